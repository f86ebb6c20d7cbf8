"""Read and write files: one policy for encodings and sizes, CSV tables, JSON, whole writes.

Text is UTF-8 (with or without a byte-order mark) or UTF-16 with its mark, as Windows shells redirect it, and may be packed with
gzip. Only regular files are read, and every size is bounded. A file that cannot be read raises ValueError with one line that
names the file and the reason.
"""

from __future__ import annotations

import csv
import errno
import io
import itertools
import json
import math
import os
import re
import stat
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from .units import printable, whole

if TYPE_CHECKING:
    import sqlite3

ARTIFACT_NAME = "profile_roofline.json"
REPORT_NAME = "profile_roofline.md"
#: The largest file that is read, packed or unpacked.
LARGEST_FILE = 512 * 2**20
#: What reading from an open file may raise; a gzip raises the last three.
READ_ERRORS = (OSError, EOFError, zlib.error)


#: The variable that raises the bounds on what is read: a whole number of MiB.
SIZE_VARIABLE = "ROOFLINE_MAX_FILE_MIB"
#: A file descriptor that the shell opened: standard input and output, ``<(command)``, ``>(command)``.
_SHARED = re.compile(r"/dev/std(in|out|err)|/(?:dev|proc/self)/fd/([0-9]{1,9})")
_KINDS = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a named pipe (FIFO)"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a block device"),
)


def file_kind(mode: int) -> str:
    """Name what a file with this ``st_mode`` is; empty for a regular file."""
    return next((kind for is_kind, kind in _KINDS if is_kind(mode)), "")


def reason(error: BaseException) -> str:
    """Return the words of an exception without its number and file name."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def size_bound(bytes_by_default: int) -> int:
    """Return the bound on the size of a file: the default of its reader, or a larger one from ``ROOFLINE_MAX_FILE_MIB``.

    Raises ValueError when the variable is no whole number.
    """
    text = os.environ.get(SIZE_VARIABLE)
    return max(bytes_by_default, whole(text, SIZE_VARIABLE) << 20) if text else bytes_by_default


def _too_large(bound: int, packed: bool = False) -> OSError:
    unpacked = " when unpacked" if packed else ""
    return OSError(f"larger than {bound >> 20} MiB{unpacked}. {SIZE_VARIABLE}=N raises the bound to N MiB")


def _shared_descriptor(path: str) -> int | None:
    """Return the number of the descriptor that ``path`` names; None for any other path."""
    match = _SHARED.fullmatch(path)
    if match is None:
        return None
    return int(match[2]) if match[2] else ("in", "out", "err").index(match[1])


def _open_regular(path: str) -> IO[bytes]:
    """Open a regular file, or a descriptor that the shell opened. Anything else may block, or never end: it raises OSError."""
    shared = _shared_descriptor(path)
    mode = os.stat(path).st_mode if shared is None else os.fstat(shared).st_mode
    allowed = (stat.S_ISREG,) if shared is None else (stat.S_ISREG, stat.S_ISFIFO, stat.S_ISSOCK)
    if not any(is_kind(mode) for is_kind in allowed):
        raise OSError(f"{file_kind(mode)}, expected a regular file")
    if shared is not None:
        return open(os.dup(shared), "rb")
    stream = open(path, "rb", opener=_open_without_waiting)  # noqa: SIM115 - the caller closes it
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):  # replaced since
        stream.close()
        raise OSError("not a regular file")
    return stream


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file; the opening of a FIFO, a terminal or a tape does not wait."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))


class _Unpacked(io.RawIOBase):
    """The content of a gzip, up to a bound: reading past it raises OSError."""

    def __init__(self, stream: IO[bytes], largest: int) -> None:
        import gzip  # few files are packed

        self._packed, self._file, self._largest = gzip.GzipFile(fileobj=stream), stream, largest

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._file.seekable()

    def tell(self) -> int:
        return self._packed.tell()

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._packed.seek(offset, whence)

    def readinto(self, buffer: Any) -> int:
        data = self._packed.read1(len(buffer))  # what is there, so that a file that ends early loses nothing
        if self._packed.tell() > self._largest:
            raise _too_large(self._largest, packed=True)
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._packed.close()
        self._file.close()
        super().close()


def open_binary(path: str, largest: int = LARGEST_FILE, largest_unpacked: int | None = None) -> IO[bytes]:
    """Open the regular file ``path`` to read bytes, unpacked where it is a gzip.

    A descriptor that the shell opened (``/dev/stdin``, ``<(command)``) is read too; it may not be seekable. A named FIFO, a
    socket and a device are refused: they may never end.

    largest: the bound on the size of the file. largest_unpacked: the bound on what a gzip holds, by default the same; the
    stream raises OSError past it. ``ROOFLINE_MAX_FILE_MIB`` raises both.

    Raises OSError, without the file's name, when the file cannot be opened or is larger.
    """
    bound = size_bound(largest)
    stream = _open_regular(path)
    try:
        if os.fstat(stream.fileno()).st_size > bound:
            raise _too_large(bound)
        if cast("io.BufferedReader", stream).peek(2)[:2] != b"\x1f\x8b":
            return stream
        unpacked = bound if largest_unpacked is None else size_bound(largest_unpacked)
        return io.BufferedReader(_Unpacked(stream, unpacked), 1 << 16)
    except BaseException:
        stream.close()
        raise


def encoding_of(start: bytes) -> str:
    """Return the encoding of a text that starts with these bytes; decoding with it drops a byte-order mark."""
    return "utf-16" if start[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"


def decode_text(raw: bytes, label: str) -> str:
    """Decode ``raw``. Raises ValueError, which names ``label`` and the byte, when it is not text."""
    encoding = encoding_of(raw)
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        name = "UTF-8" if encoding == "utf-8-sig" else "UTF-16"
        raise ValueError(f"{label}: not {name} text (byte {error.start})") from None


def require_readable(path: str, prefix: str = "") -> None:
    """Raise ValueError unless ``path`` can be opened to read. prefix: goes before the path, such as the option."""
    try:
        _open_regular(path).close()
    except OSError as error:
        raise ValueError(f"{prefix}{printable(path)}: {reason(error)}") from None


def read_bounded(stream: IO[bytes], largest: int) -> bytes:
    """Read the rest of a stream. Raises OSError when it is over ``largest``, or what ``ROOFLINE_MAX_FILE_MIB`` allows."""
    bound = size_bound(largest)
    raw = stream.read(bound + 1)
    if len(raw) > bound:
        raise _too_large(bound)
    return raw


def read_bytes(path: str, largest: int = LARGEST_FILE) -> bytes:
    """Read a whole file, unpacked where it is a gzip. Raises ValueError when it cannot be read or is over ``largest``."""
    label = printable(path)
    try:
        with open_binary(path, largest) as stream:
            return read_bounded(stream, largest)
    except READ_ERRORS as error:
        raise ValueError(f"{label}: {reason(error)}") from None


def read_text(path: str, largest: int = LARGEST_FILE) -> str:
    """Read the text of a file. Raises ValueError when it cannot be read, is too large, or is not text."""
    return decode_text(read_bytes(path, largest), printable(path))


#: The deepest nesting of a document. Real ones have under 20 levels; code that walks a document recurses once a level.
NESTED_LEVELS = 100


def parse_document(parse: Callable[[str], object], text: str, label: str) -> object:
    """Parse a JSON or TOML text with ``parse``: one policy for nesting and for long integers.

    Raises ValueError, which names ``label`` and the reason. NaN and Infinity are numbers here, as Python writes them; the
    reader of a field refuses them.
    """
    prefix = f"{label}: " if label else ""
    try:
        document = parse(text)
    except RecursionError:
        raise ValueError(f"{prefix}nested more than {NESTED_LEVELS} levels deep") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{prefix}not JSON: line {error.lineno} column {error.colno}: {error.msg}") from None
    except ValueError as error:
        if type(error) is not ValueError:  # TOMLDecodeError has the place
            raise ValueError(f"{prefix}{printable(str(error))}") from None
        raise ValueError(f"{prefix}it has an integer of more digits than Python reads (4300)") from None
    level = [document]
    for _ in range(NESTED_LEVELS):
        level = [item for node in level for item in _children(node) if isinstance(item, (dict, list))]
        if not level:
            return document
    raise ValueError(f"{prefix}nested more than {NESTED_LEVELS} levels deep")


def _children(node: object) -> Iterable[object]:
    return node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()


def parse_json(text: str, label: str = "", *, has_unique_keys: bool = False) -> object:
    """Parse a JSON text. Raises ValueError, which names ``label`` and the place.

    has_unique_keys: refuse an object with the same key twice; otherwise the last value counts.
    """
    hook = _unique if has_unique_keys else None
    return parse_document(lambda text: json.loads(text, object_pairs_hook=hook), text, label)


class _TwiceError(ValueError):
    """A key is twice in an object."""


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values: dict[str, object] = {}
    for key, value in pairs:
        if key in values:
            raise _TwiceError(f"the key {printable(repr(key))[:60]} is twice in an object")
        values[key] = value
    return values


def read_json(path: str, *, has_unique_keys: bool = False) -> object:
    """Read a JSON file. Raises ValueError with one line that names the file and the place; options as ``parse_json``."""
    return parse_json(read_text(path), printable(path), has_unique_keys=has_unique_keys)


T = TypeVar("T")


class Problems:
    """Lines about what could not be used."""

    def __init__(self, lines: Iterable[str] = ()) -> None:
        self.lines = list(lines)

    def add(self, line: str) -> None:
        self.lines.append(line)

    def attempt(self, read: Callable[..., T], *arguments: object, **options: object) -> T | None:
        """Return what ``read`` returns; None, with the message as a line, where it raises ValueError."""
        try:
            return read(*arguments, **options)
        except ValueError as error:
            self.add(str(error))
            return None


class Table(NamedTuple):
    """A CSV: its header, and its rows with their line numbers, each as wide as the header."""

    label: str  # the file's name, for messages
    header: tuple[str, ...]
    rows: tuple[tuple[int, tuple[str, ...]], ...]  # line number and cells
    problems: tuple[str, ...] = ()  # one line for each row that was left out

    def column(self, *names: str) -> int | None:
        """The place of the first column that has one of these names."""
        return next((self.header.index(name) for name in names if name in self.header), None)


class TableReader:
    """The rows of a table one by one, each with its line number; ``problems`` has a line for each that was left out.

    What a tool printed before the header is skipped, and so are its ``==PROF==`` lines. A row that is not as wide as the header
    is named and left out, never shifted or filled.

    Raises ValueError when no line is a header.
    """

    def __init__(self, text: str, label: str, is_header: Callable[[Sequence[str]], bool]) -> None:
        self.label = label
        self._lines = text.splitlines(keepends=True)
        begin = next((at for at, line in enumerate(self._lines, 1) if is_header(_cells(line))), None)
        if begin is None:
            raise ValueError(f"{label}: no line is a header of a known format")
        self._begin = begin
        self.header = tuple(_cells(self._lines[begin - 1]))
        self.problems: list[str] = []

    def __iter__(self) -> Iterator[tuple[int, tuple[str, ...]]]:
        begin, width = self._begin, len(self.header)
        reader = csv.reader(line if not line.startswith("==") else "\n" for line in itertools.islice(self._lines, begin, None))
        try:
            for cells in reader:
                if not any(cell.strip() for cell in cells) and len(cells) < width:
                    continue  # a blank line; a row of blank cells may be ncu's units
                at = begin + reader.line_num
                if len(cells) != width:
                    self.problems.append(f"{self.label}: line {at} has {len(cells)} cells, expected {width}: left out")
                    continue
                yield at, tuple(cells)
        except csv.Error as error:
            raise ValueError(f"{self.label}: line {begin + reader.line_num}: {error}") from None


def read_table(text: str, label: str, is_header: Callable[[Sequence[str]], bool]) -> Table:
    """Read the table in ``text`` as a whole; ``TableReader`` says which rows are left out.

    Raises ValueError when no line is a header.
    """
    reader = TableReader(text, label, is_header)
    rows = tuple(reader)
    return Table(label, reader.header, rows, tuple(reader.problems))


def _cells(line: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line]), [])]
    except csv.Error:
        return []


def condense(problems: Iterable[str]) -> tuple[str, ...]:
    """Return the first line of each kind, with how many more there are: a file may have a million rows with one fault."""
    first: dict[str, str] = {}
    more: dict[str, int] = {}
    for line in problems:
        kind = re.sub(r"[\d.,]+(e[+-]?\d+)?", "#", line, flags=re.IGNORECASE)
        if first.setdefault(kind, line) != line:
            more[kind] = more.get(kind, 0) + 1
    return tuple(line + (f" (and {more[kind]} more such lines)" if kind in more else "") for kind, line in first.items())


#: How an SQLite database starts.
DATABASE_MAGIC = b"SQLite format 3\0"
#: Seconds after which a database that makes SQLite work without an end is given up.
_LONGEST_QUERY_S = 600.0
#: Steps of SQLite's machine between two looks at the clock.
_QUERY_STEPS = 10**6


def is_database(path: str) -> bool:
    """Return whether a file is an SQLite database."""
    try:
        with _open_regular(path) as stream:
            return stream.read(len(DATABASE_MAGIC)) == DATABASE_MAGIC
    except OSError:
        return False


@contextmanager
def open_database(path: str) -> Iterator[sqlite3.Connection]:
    """Open an SQLite database read-only and as immutable: no lock stops the reading, and nothing is written beside it.

    Raises ValueError, which names the file, where it cannot be read, also in the block that uses it.
    """
    label = printable(os.path.basename(path))
    require_readable(path)
    if not is_database(path):
        raise ValueError(f"{label}: a packed database: unpack it first")
    from urllib.parse import quote  # few runs have a database

    try:
        import sqlite3
    except ImportError:
        raise ValueError(f"{label}: this Python has no sqlite3, which a database needs") from None
    try:
        uri = f"file:{quote(os.path.abspath(path))}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as base:
            base.text_factory = lambda raw: raw.decode("utf-8", "replace")
            limit = time.monotonic() + _LONGEST_QUERY_S
            base.set_progress_handler(lambda: time.monotonic() > limit, _QUERY_STEPS)
            yield base
    except sqlite3.Error as error:
        raise ValueError(f"{label}: {printable(str(error))}: expected the database of a profiler") from None


def list_tables(base: sqlite3.Connection) -> dict[str, tuple[str, ...]]:
    """Return the tables of a database with their columns. Views are left out: a file could define them at will."""
    names = [name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {name: tuple(row[1] for row in base.execute(f"PRAGMA table_info({quote_name(name)})")) for name in names}


def quote_name(name: str) -> str:
    """Return the name of a table or column as SQL."""
    return '"' + name.replace('"', '""') + '"'


#: Temporary files of ``write_whole``; a process that was killed leaves one.
_TEMPORARY = re.compile(r"\.[0-9a-f]{16}\.roofline-tmp")
#: A temporary file this old belongs to no writer that is still at work (seconds).
_LEFT_OVER_S = 3600.0


def write_whole(path: str, content: str | bytes) -> None:
    """Write ``content``, text as UTF-8, to ``path``. A kill leaves the old file or the new one.

    A regular file is replaced whole and keeps its mode. A new one is made with its folder. A device, a FIFO with a reader and a
    descriptor that the shell opened (``/dev/stdout``, ``>(command)``) are written through.

    Raises OSError, in one line with ``path``, when it cannot be written. A directory, a symbolic link, a socket, a block device
    and a FIFO that no process reads are not written.
    """
    data = content.encode() if isinstance(content, str) else content
    with _name_failure(path):
        mode = None if _shared_descriptor(path) is not None else _mode(path, follow=False)
        if _is_written_through(path, mode):
            _write_through(path, data)
        elif mode is None or stat.S_ISREG(mode):
            _replace(path, data, mode)
        else:
            raise OSError(f"{file_kind(mode)}, which is not overwritten")


def append_text(path: str, text: str) -> None:
    """Append to a file, or write through as ``write_whole`` does. Raises OSError, in one line with ``path``."""
    with _name_failure(path):
        mode = _mode(path, follow=True)
        if _is_written_through(path, mode):
            _write_through(path, text.encode())
            return
        if mode is not None and not stat.S_ISREG(mode):
            raise OSError(f"{file_kind(mode)}, which is not written to")
        with open(path, "a", encoding="utf-8") as stream:
            stream.write(text)


@contextmanager
def _name_failure(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OSError(f"{printable(path)}: not written: {reason(error)}") from None


def _mode(path: str, follow: bool) -> int | None:
    try:
        return os.stat(path, follow_symlinks=follow).st_mode
    except (FileNotFoundError, NotADirectoryError):  # the writing names the second
        return None


def _is_written_through(path: str, mode: int | None) -> bool:
    return _shared_descriptor(path) is not None or (mode is not None and (stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)))


def _write_through(path: str, data: bytes) -> None:
    shared = _shared_descriptor(path)
    if shared is None:
        try:
            descriptor = _open_without_waiting(path, os.O_WRONLY)
        except OSError as error:
            if error.errno == errno.ENXIO:  # fifo(7): no reader, which a blocking open would wait for
                raise OSError("a named pipe (FIFO) that no process reads") from None
            raise
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError("replaced by a regular file in the meantime")
        os.set_blocking(descriptor, True)
    else:
        descriptor = os.dup(shared)
    with open(descriptor, "wb") as stream:
        stream.write(data)


def _replace(path: str, data: bytes, mode: int | None) -> None:
    folder = os.path.dirname(path)
    if folder and mode is None:
        os.makedirs(folder, exist_ok=True)
    temporary = os.path.join(folder, f".{os.urandom(8).hex()}.roofline-tmp")
    try:
        with open(temporary, "xb") as stream:
            stream.write(data)
        if mode is not None:
            os.chmod(temporary, stat.S_IMODE(mode))
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    _remove_left_over(folder or ".")


def _remove_left_over(folder: str) -> None:
    """Remove the temporary files of writers that were killed."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if _TEMPORARY.fullmatch(entry.name) and time.time() - entry.stat(follow_symlinks=False).st_mtime > _LEFT_OVER_S:
                    os.unlink(entry.path)
    except OSError:  # the file itself is written
        pass


def to_json(document: dict[str, object]) -> str:
    """Return a JSON document in ASCII, so that no name carries a terminal escape or half a surrogate pair into a pipe.

    A short document is indented. A long one has an entry a line: only the encoder without ``indent`` is in C, five times as
    fast. A number that JSON cannot hold becomes null rather than an unreadable file.
    """
    long = any(isinstance(value, list) and len(value) > _INDENTED for value in document.values())
    encode = json.JSONEncoder(allow_nan=False, check_circular=False, indent=None if long else 1).encode
    write = _lines if long else _whole
    try:
        return write(document, encode)
    except ValueError:
        return write({key: _finite(value) for key, value in document.items()}, encode)


#: A list of the document is indented up to this length.
_INDENTED = 200


def _whole(document: dict[str, object], encode: Callable[[object], str]) -> str:
    return encode(document) + "\n"


def _lines(document: dict[str, object], encode: Callable[[object], str]) -> str:
    parts: list[str] = []  # joined once: each copy of a long document takes time and memory
    for key, value in document.items():
        parts.append(f"{',' if parts else '{'}\n{encode(key)}: ")
        if isinstance(value, list) and value and isinstance(value[0], dict):
            parts.append("[\n")
            for item in value:
                parts += (encode(item), ",\n")
            parts[-1] = "\n]"
        else:
            parts.append(encode(value))
    return "".join((*parts, "\n}\n"))


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
