"""Files of other tools: read their text and JSON within bounds, and look at their start to find the format."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

from roofline_engine.check import Claim, Mistake
from roofline_engine.files import READ_ERRORS, decode_text, encoding_of, open_binary, parse_json, read_bounded, reason
from roofline_engine.units import printable

#: Why a row is refused, by code; the row's text has the details.
REFUSED_CODES = {
    "row": "not a row of the format",
    "value": "a value that cannot be read",
    "time": "no time that can be used",
    "not_timed": "nothing was timed",
    "summary": "a summary of other rows",
    "no_peaks": "no peaks for the device",
    "placeholder": "a placeholder instead of a time",
}


@dataclass(slots=True, kw_only=True)  # not frozen: that doubles the cost of a record, and a file has 500,000
class RecordRow:
    """One row. None where the file does not give a value."""

    row: str  # where it is in the file: line 12, benchmarks[3], level1/1_Square
    name: str = ""  # of the kernel or test
    work: Mapping[str, Any] | None = None  # keywords of declare.build, with logical sizes
    no_work: str = ""  # why work is None
    t_s: float | None = None  # seconds of one unit
    rounding: float = 0.0  # half of the last printed digit of t_s, as a fraction
    device: str | None = None  # a product, a gfx or the hardware string of the file
    units: int | None = None  # CUs or SMs of the device, which a bare gfx needs
    launches: float = 1  # in the timed unit
    wall_s: float | None = None  # on the host, from launch to result, when t_s is a device's time
    clock: str = "unknown"  # as of Measurement
    cache: str = "unknown"  # as of Measurement
    rounds: int | None = None
    q1_s: float | None = None
    q3_s: float | None = None
    baseline_kind: str = "unknown"
    baseline_t_s: float | None = None
    speedup: float | None = None  # over the baseline, when only the ratio is given
    claims: tuple[Claim, ...] = ()  # printed rates, converted by the unit that the format states
    placeholder_time: bool = False  # the printed time is exactly 1
    known_mistakes: tuple[Mistake, ...] = ()  # mistakes that this row's shape makes possible
    timed_flops: float | None = None  # FLOPs of what was timed, when that is more than the work
    correct: bool | None = None  # what the file says of the output
    working_set: float | None = None  # bytes that the timed loop uses again
    counter_ratio: float | None = None  # bytes by hardware counters over the compulsory ones
    refused: str = ""  # why the row cannot be used; the other fields hold what is known
    refused_code: str = "not_timed"  # one of REFUSED_CODES, when it is refused
    notes: tuple[str, ...] = ()


#: The start of a file that an adapter may look at (bytes).
SAMPLE = 65_536
#: A longer line is refused (bytes). A file is read line by line, so this bounds the memory.
LONGEST_LINE = 8_000_000
#: The largest document that is parsed whole (bytes).
LARGEST_DOCUMENT = 256 << 20
#: The largest file that is read line by line (bytes).
LARGEST_FILE = 2 << 30
#: The most that is read of a gzip (bytes). A small file may hold a thousand times its size, and 64 MiB of short rows take
#: two minutes.
LARGEST_UNPACKED = 64 << 20
#: Deeper keys are not part of an outline.
_OUTLINE_LEVELS = 4
#: A string, closed or cut off by the end of the sample, with the colon that makes it a key; or a bracket.
_TOKEN = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)(?:"(\s*:)?|\\?\Z)|([{}\[\]])', re.DOTALL)
_QUOTED = re.compile(r'"[^"]*"|\([^()]*\)')


class RefusedError(ValueError):
    """A file that cannot be read: one line with the file, the place and the reason."""


class Sample:
    """The start of a file, for ``Adapter.matches``. All adapters share it, so each property is computed once."""

    def __init__(self, text: str, suffix: str = "") -> None:
        self.text, self.suffix = text, suffix

    @cached_property
    def first(self) -> str:
        """Return the first line that is neither blank nor a comment."""
        return next((line for line in self.text.splitlines() if not is_comment(line)), "")

    @cached_property
    def columns(self) -> frozenset[str]:
        """Return the column names of a table, in lower case; empty when the first line is not a header."""
        is_text = self.first.isprintable() or "\t" in self.first
        return frozenset(name.lower() for name in split_header(self.first)) if is_text else frozenset()

    @cached_property
    def keys(self) -> frozenset[str]:
        """Return the paths of the keys of a JSON text, as ``outline`` does."""
        return outline(self.text)


class Source:
    """An open file. ``lines()`` streams it, ``text()`` and ``json()`` return all of it; all are bounded."""

    def __init__(self, path: Path, stream: IO[bytes]) -> None:
        self.path = path  # an adapter may look for files next to it (a definition, a meta.json)
        self.label = printable(path.name)  # the file in messages
        self._stream = stream

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def sample(self) -> Sample:
        """Return the start of the file, which is read again afterwards. Raises RefusedError for a broken gzip."""
        start = self._read(SAMPLE)
        self._stream.seek(0)
        return Sample(start.decode(encoding_of(start), errors="replace"), self.path.suffix)

    def position(self) -> int:
        """Return how many bytes have been read."""
        return self._stream.tell()

    def lines(self) -> Iterator[str]:
        """Yield the lines without their ends. Raises RefusedError for one over the bound and for bytes that are not text."""
        encoding = encoding_of(self._read(2))
        self._stream.seek(0)
        if encoding == "utf-16":  # its bytes cannot be split into lines
            yield from (line.rstrip("\r") for line in self.text().split("\n"))
            return
        number = 0
        try:
            while line := self._stream.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE:
                    raise RefusedError(f"{self.label}: line {number} is longer than {LONGEST_LINE} bytes")
                yield line.decode(encoding).rstrip("\r\n")
                encoding = "utf-8"
        except UnicodeDecodeError as error:
            raise RefusedError(f"{self.label}: line {number}: not UTF-8 text (byte {error.start})") from None
        except READ_ERRORS as error:
            raise RefusedError(f"{self.label}: {reason(error)}") from None

    def text(self) -> str:
        """Return the whole file. Raises RefusedError when it is larger than the bound or not text."""
        try:
            return decode_text(read_bounded(self._stream, LARGEST_DOCUMENT), self.label)
        except READ_ERRORS as error:
            raise RefusedError(f"{self.label}: {reason(error)}") from None
        except ValueError as error:
            raise RefusedError(str(error)) from None

    def json(self) -> Any:
        """Return the file as one JSON value, where NaN and Infinity are numbers. Raises RefusedError with the place."""
        return parse(self.text(), self.label)

    def _read(self, size: int) -> bytes:
        try:
            return self._stream.read(size)
        except READ_ERRORS as error:
            raise RefusedError(f"{self.label}: {reason(error)}") from None


class Adapter(Protocol):
    """One format."""

    @property
    def NAME(self) -> str:  # noqa: N802 - a module may be an adapter, and this a constant
        """Return the name in ``--format`` and ``roofline check list``."""

    def matches(self, sample: Sample) -> bool:
        """Return whether a file that starts so is of this format, by its content alone."""

    def read(self, source: Source) -> Iterable[RecordRow]:
        """Yield the rows in their order, each row that cannot be used as a refused one.

        Raises RefusedError when the file as a whole cannot be read.
        """


class DocumentFormat(NamedTuple):
    """An adapter for JSON documents and lines of text."""

    NAME: str
    matches: Callable[[Sample], bool]
    read: Callable[[Source], Iterable[RecordRow]]
    columns: str  # for people: what it reads


def open_source(path: Path) -> Source:
    """Open a file, or what a gzip holds. Raises RefusedError when it cannot be opened."""
    label = printable(str(path))
    try:
        stream = open_binary(str(path), LARGEST_FILE, LARGEST_UNPACKED)
        if not stream.seekable():  # a pipe, whose start is read twice
            with stream:
                stream = io.BytesIO(read_bounded(stream, LARGEST_DOCUMENT))
    except READ_ERRORS as error:
        raise RefusedError(f"{label}: {reason(error)}") from None
    return Source(path, stream)


def parse(text: str, label: str) -> Any:
    """Parse one JSON value. Raises RefusedError for text that is not JSON or is nested too deep."""
    try:
        return parse_json(text, label)
    except ValueError as error:
        raise RefusedError(str(error)) from None


def outline(text: str) -> frozenset[str]:
    """Return the paths of the keys in a JSON text, such as ``.benchmarks[].stats``; the text may be cut off anywhere."""
    if text.lstrip()[:1] not in ("{", "["):
        return frozenset()
    paths: set[str] = set()
    levels: list[str] = []
    value = ""  # the path of the value that comes next
    for token in _TOKEN.finditer(text):
        key, colon, bracket = token.groups()
        if bracket and bracket in "{[":
            value += "[]" if bracket == "[" and len(levels) < _OUTLINE_LEVELS else ""
            levels.append(value)
        elif bracket:
            del levels[-1:]
            value = levels[-1] if levels else ""
        elif colon:
            value = levels[-1] if levels else ""
            if len(levels) <= _OUTLINE_LEVELS:
                value += "." + key[:80]
                paths.add(value)
    return frozenset(paths)


def is_comment(line: str) -> bool:
    """Return whether a line above a header is blank or a comment."""
    return not line.strip() or line.lstrip().startswith("#")


def separator(header: str) -> str:
    """Return the separator that a header uses most, outside quotes and parentheses; a pipe when the line opens with one."""
    if header.lstrip().startswith("|"):
        return "|"
    bare = _QUOTED.sub("", header)
    return max(",;\t", key=bare.count)


def split_header(header: str) -> list[str]:
    """Return the column names in a header line; empty when it cannot be split."""
    mark = separator(header)
    if mark == "|":
        return [name.strip() for name in bare_row(header).split("|")]
    try:
        return [name.strip() for name in next(csv.reader([header], delimiter=mark), [])]
    except csv.Error:
        return []


def bare_row(line: str) -> str:
    """Return a row of a Markdown table without its outer pipes; empty for the rule under the header."""
    line = line.strip()
    return line.removeprefix("|").removesuffix("|") if line.strip("|-: ") else ""
