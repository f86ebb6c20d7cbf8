"""The files that other tools write: text within bounds, JSON, and the start of a file by which a format is known."""

from __future__ import annotations

import codecs
import io
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from roofline_engine.units import printable

from .row import RecordRow


class RefusedError(ValueError):
    """Why a whole file cannot be read: one line naming the file, the place and what was expected."""


#: Of the file's start, what an adapter may look at.
SAMPLE = 65_536
#: A line longer than this is no record; a file is read line by line, so memory stays bounded.
LONGEST_LINE = 8_000_000
#: The largest JSON document that is parsed whole.
LARGEST_DOCUMENT = 256_000_000
#: What may come out of a gzip.
LARGEST_EXPANDED = 2_000_000_000


class Sample:
    """The start of a file for ``matches``: its text, its first line, the suffix of its name."""

    def __init__(self, text: str, suffix: str) -> None:
        self.text, self.suffix = text, suffix
        self.first = next((line for line in text.splitlines() if line.strip()), "")


class Source:
    """A file to read. ``lines()`` streams it, ``text()`` is the whole of a document; both are bounded and UTF-8.

    label: its name for messages. path: itself; files beside it (a definition, a baseline) may be looked up from there.
    """

    def __init__(self, path: Path, stream: io.BufferedIOBase, longest: int | None = None) -> None:
        self.path, self.label = path, printable(path.name)
        self._stream, self._longest = stream, longest

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def start(self, size: int) -> str:
        """The first ``size`` bytes as text, for ``matches``; they are read again afterwards.

        Raises:
            RefusedError: for a gzip that is none, and for UTF-16.
        """
        try:
            data = self._stream.read(size)
            self._stream.seek(0)
        except _UNREADABLE as error:
            raise RefusedError(f"{self.label}: {error}") from None
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise RefusedError(f"{self.label}: UTF-16 text, as some shells redirect to a file: save it as UTF-8")
        return data.decode("utf-8-sig", errors="replace")

    def position(self) -> int:
        """Bytes read so far."""
        return self._stream.tell()

    def lines(self) -> Iterator[str]:
        """The lines without their ends.

        Raises:
            RefusedError: for a line over the bound and for bytes that are no UTF-8.
        """
        number = size = 0
        read, encoding = self._stream.readline, "utf-8-sig"
        try:
            while line := read(LONGEST_LINE + 1):
                number, size = number + 1, size + len(line)
                if self._longest is not None and size > self._longest:
                    raise RefusedError(f"{self.label}: more than {self._longest} bytes come out of it")
                if len(line) > LONGEST_LINE:
                    raise RefusedError(f"{self.label}: line {number} is longer than {LONGEST_LINE} bytes")
                yield line.decode(encoding).rstrip("\r\n")
                encoding = "utf-8"
        except UnicodeDecodeError as error:
            raise RefusedError(f"{self.label}: line {number}: not UTF-8 text (byte {error.start})") from None
        except _UNREADABLE as error:
            raise RefusedError(f"{self.label}: {error}") from None

    def text(self) -> str:
        """The whole file.

        Raises:
            RefusedError: when it is larger than the bound or no UTF-8.
        """
        data = self._read(self._stream.read, LARGEST_DOCUMENT + 1)
        if len(data) > LARGEST_DOCUMENT:
            raise RefusedError(f"{self.label}: larger than {LARGEST_DOCUMENT} bytes, too large to be one document")
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise RefusedError(f"{self.label}: not UTF-8 text (byte {error.start})") from None

    def _read(self, how: Callable[[int], bytes], size: int) -> bytes:
        try:
            return how(size)
        except _UNREADABLE as error:
            raise RefusedError(f"{self.label}: {error}") from None


_UNREADABLE = (OSError, EOFError, zlib.error)


class Adapter(Protocol):
    """One format."""

    NAME: str

    def matches(self, sample: Sample) -> bool:
        """Whether a file that starts so is of this format, told by content alone."""

    def read(self, source: Source) -> Iterable[RecordRow]:
        """The rows, as they come; a row that cannot be used is given as refused, never left out.

        Raises:
            RefusedError: when the file as a whole cannot be read.
        """


def open_source(path: Path) -> Source:
    """Open a file, also a gzip of it, whose expansion is bounded as well.

    Raises:
        RefusedError: when it cannot be opened.
    """
    import gzip

    try:
        stream: io.BufferedIOBase = path.open("rb")
        if stream.peek(2)[:2] == b"\x1f\x8b":  # type: ignore[attr-defined]  # a BufferedReader
            return Source(path, gzip.GzipFile(fileobj=stream), LARGEST_EXPANDED)
    except OSError as error:
        raise RefusedError(f"{printable(str(path))}: {error.strerror or error}") from None
    return Source(path, stream)


#: Keys below this level tell no format apart.
_LEVELS = 4
#: A string, closed or cut off by the end of the sample, with the colon that makes it a key; or a bracket.
_TOKEN = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)(?:"(\s*:)?|\\?\Z)|([{}\[\]])', re.DOTALL)


def document(source: Source) -> Any:
    """The file as one JSON value. NaN and Infinity are read as such: what holds one is refused where it is used.

    Raises:
        RefusedError: one line naming the file and the place.
    """
    return parse(source.text(), source.label)


def benchmarks(source: Source) -> tuple[dict[str, Any], list[Any]]:
    """A document with a list ``benchmarks``, and the list.

    Raises:
        RefusedError: for what is no JSON or has no such list.
    """
    whole = document(source)
    listed = whole.get("benchmarks") if isinstance(whole, dict) else None
    if not isinstance(listed, list):
        raise RefusedError(f"{source.label}: no list 'benchmarks' in it")
    return whole, listed


def parse(text: str, where: str) -> Any:
    """One JSON value.

    Raises:
        RefusedError: for what is no JSON, nested too deep, or holds an integer too long to convert.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise RefusedError(f"{where}: not JSON: line {error.lineno} column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise RefusedError(f"{where}: nested too deep to read") from None
    except ValueError:
        raise RefusedError(f"{where}: not JSON: an integer of thousands of digits") from None


def each_line(source: Source) -> Iterator[tuple[int, Any]]:
    """(line number, value) of JSON lines, one at a time; in place of a value the RefusedError of a line that is no JSON."""
    for number, line in enumerate(source.lines(), 1):
        if line.strip():
            try:
                yield number, parse(line, f"line {number}")
            except RefusedError as error:
                yield number, error


@lru_cache(maxsize=4)
def outline(text: str) -> frozenset[str]:
    """The paths of the keys in the start of a JSON text, such as ``.benchmarks[].stats``; the text may be cut off anywhere."""
    if text.lstrip("\ufeff \t\r\n")[:1] not in ("{", "["):
        return frozenset()
    found: set[str] = set()
    levels: list[str] = []
    value = ""  # the path of the value that comes next
    for token in _TOKEN.finditer(text):
        key, colon, bracket = token.groups()
        if bracket and bracket in "{[":
            value += "[]" if bracket == "[" and len(levels) < _LEVELS else ""
            levels.append(value)
        elif bracket:
            del levels[-1:]
            value = levels[-1] if levels else ""
        elif colon:
            value = levels[-1] if levels else ""
            if len(levels) <= _LEVELS:
                value += "." + key[:80]
                found.add(value)
    return frozenset(found)
