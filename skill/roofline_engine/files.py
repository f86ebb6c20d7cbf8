"""Read and write files: one policy for encodings and sizes, CSV tables, JSON, whole writes.

Text is UTF-8 (with or without a byte-order mark) or UTF-16 with its mark, as Windows shells redirect it, and may be packed with
gzip. Every size is bounded. A file that cannot be read raises ValueError with one line that names the file and the reason.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import IO, NamedTuple, TypeVar, cast

from .units import printable

ARTIFACT_NAME = "profile_roofline.json"
REPORT_NAME = "profile_roofline.md"
#: The largest file that is read, packed or unpacked.
LARGEST_FILE = 512 * 2**20
#: What reading from an open file may raise; a gzip raises the last three.
READ_ERRORS = (OSError, EOFError, zlib.error)


def open_binary(path: str) -> IO[bytes]:
    """Open ``path`` to read bytes, unpacked where the file is a gzip. Raises OSError.

    The file is opened once: a pipe, as a shell's ``<(command)`` makes, gives its bytes once.
    """
    stream = open(path, "rb")  # noqa: SIM115 - the caller closes it
    if stream.peek(2)[:2] != b"\x1f\x8b":
        return stream
    import gzip  # few files are packed

    packed = gzip.GzipFile(fileobj=stream)
    packed.myfileobj = stream  # type: ignore[assignment]  # closed together with the gzip
    return cast("IO[bytes]", packed)


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


def read_bytes(path: str, largest: int = LARGEST_FILE) -> bytes:
    """Read a whole file, unpacked where it is a gzip. Raises ValueError when it cannot be read or is over ``largest``."""
    label = printable(path)
    try:
        if os.path.getsize(path) > largest:
            raise ValueError(f"{label}: larger than {largest >> 20} MiB")
        with open_binary(path) as stream:
            raw = stream.read(largest + 1)
    except READ_ERRORS as error:
        raise ValueError(f"{label}: {getattr(error, 'strerror', None) or error}") from None
    if len(raw) > largest:
        raise ValueError(f"{label}: larger than {largest >> 20} MiB when unpacked")
    return raw


def read_text(path: str, largest: int = LARGEST_FILE) -> str:
    """Read the text of a file. Raises ValueError when it cannot be read, is too large, or is not text."""
    return decode_text(read_bytes(path, largest), printable(path))


def parse_json(text: str, label: str, *, has_unique_keys: bool = False) -> object:
    """Parse a JSON text. Raises ValueError, which names ``label`` and the place.

    has_unique_keys: refuse an object with the same key twice; otherwise the last value counts.
    """
    try:
        return json.loads(text, object_pairs_hook=_unique if has_unique_keys else None)
    except json.JSONDecodeError as error:
        raise ValueError(f"{label}: not JSON: line {error.lineno} column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise ValueError(f"{label}: nested too deep to read") from None
    except ValueError as error:  # an integer literal longer than Python converts
        raise ValueError(f"{label}: {error}") from None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {printable(repr(twice))[:60]} is twice in an object")
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


def read_table(text: str, label: str, is_header: Callable[[Sequence[str]], bool]) -> Table:
    """Read the table in ``text``, after whatever a tool printed before it and without its ``==PROF==`` lines.

    A row that is not as wide as the header is named and left out, never shifted or filled.

    Raises ValueError when no line is a header.
    """
    lines = text.splitlines(keepends=True)
    begin = next((at for at, line in enumerate(lines, 1) if is_header(_cells(line))), None)
    if begin is None:
        raise ValueError(f"{label}: no line is a header of a known format")
    header = _cells(lines[begin - 1])
    rows, problems = [], []
    reader = csv.reader(line if not line.startswith("==") else "\n" for line in lines[begin:])
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells) and len(cells) < len(header):
                continue  # a blank line; a row of blank cells may be ncu's units
            at = begin + reader.line_num
            if len(cells) != len(header):
                problems.append(f"{label}: line {at} has {len(cells)} cells, expected {len(header)}: left out")
                continue
            rows.append((at, tuple(cells)))
    except csv.Error as error:
        raise ValueError(f"{label}: line {begin + reader.line_num}: {error}") from None
    return Table(label, tuple(header), tuple(rows), tuple(problems))


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


def write_whole(path: str, content: str | bytes) -> None:
    """Write ``content``, text as UTF-8, to a temporary sibling and rename it onto ``path``.

    Raises OSError when the folder cannot be written, or ``path`` is a directory or a symbolic link.
    """
    if os.path.islink(path) or os.path.isdir(path):
        kind = "symbolic link" if os.path.islink(path) else "directory"
        raise OSError(f"{path} is a {kind}, which is not overwritten")
    temporary = f"{path}.{os.urandom(4).hex()}.tmp"
    try:
        with open(temporary, "xb") as handle:
            handle.write(content.encode() if isinstance(content, str) else content)
        if os.path.exists(path):
            os.chmod(temporary, stat.S_IMODE(os.stat(path).st_mode))
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


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
