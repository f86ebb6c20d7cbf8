"""CSV as benchmarks write it: the separator told by the header, columns by name, rows by the line where they stand.

An adapter asks a ``Table`` for its columns once and then turns each row's fields into records. What is wrong with one row (too
few fields, a cell that is no number, a NUL) refuses that row; a column that is missing or ambiguous refuses the file.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from math import inf

from roofline_engine.check import Claim
from roofline_engine.units import number, parse_dtype, printable, whole

from .row import RecordRow
from .source import RefusedError, Sample, Source

#: No format has as many columns; a header that has is none.
_MOST_COLUMNS = 2_000
#: Of a shape or of a name nothing longer than this is shown.
_SHOWN = 60
_QUOTED = re.compile(r'"[^"]*"|\([^()]*\)')


def separator(first: str) -> str:
    """The separator that a header line uses most, outside quotes and parentheses; a pipe where it opens the line."""
    if first.lstrip("\ufeff ").startswith("|"):
        return "|"
    bare = _QUOTED.sub("", first)
    return max(",;\t", key=bare.count)


def _columns(first: str) -> list[str]:
    mark = separator(first)
    line = first.removeprefix("\ufeff")
    if mark == "|":
        return [name.strip() for name in _bare(line).split("|")]
    try:
        return [name.strip() for name in next(csv.reader([line], delimiter=mark), [])]
    except csv.Error:
        return []


@lru_cache(maxsize=4)
def _of_line(first: str) -> frozenset[str]:
    return frozenset(name.lower() for name in _columns(first)) if first.isprintable() or "\t" in first else frozenset()


def header(sample: Sample) -> frozenset[str]:
    """The column names at the start of a file, in lower case, for ``matches``; none where it is no table."""
    return _of_line(sample.first.removeprefix("\ufeff"))


class Table:
    """One file: ``names`` of its columns as they stand, and its rows.

    Raises:
        RefusedError: for a file without a header.
    """

    def __init__(self, source: Source) -> None:
        self.label = source.label
        self._tainted = False
        self._lines = self._clean(source)
        first, self._above = "", 0
        for line in self._lines:
            self._above += 1
            if line.strip():
                first = line
                break
        self._mark = separator(first)
        self.names = [printable(name) for name in _columns(first)]
        self._places: dict[str, list[int]] = {}
        for place, name in enumerate(self.names):
            self._places.setdefault(name.lower(), []).append(place)
        if len(self.names) < 2:
            raise RefusedError(f"{self.label}: no header line with columns, expected a CSV file")
        if len(self.names) > _MOST_COLUMNS:
            raise RefusedError(f"{self.label}: {len(self.names)} columns, expected at most {_MOST_COLUMNS}")

    def _clean(self, source: Source) -> Iterator[str]:
        """The lines; a NUL, which Python's reader takes differently by version, is replaced and remembered."""
        for line in source.lines():
            if "\0" in line:
                self._tainted = True
                line = line.replace("\0", "\ufffd")
            yield line

    def column(self, *names: str) -> int:
        """Where the column of the first of ``names`` that the file has stands.

        Raises:
            RefusedError: where it has none of them, or one of them twice.
        """
        place = self.maybe(*names)
        if place is None:
            raise RefusedError(f"{self.label}: no column {' or '.join(names)}; it has {', '.join(self.names)[:300]}")
        return place

    def maybe(self, *names: str) -> int | None:
        """The same; None where the file has none of them."""
        for name in names:
            places = self._places.get(name.lower(), ())
            if len(places) > 1:
                said = " and ".join(str(place + 1) for place in places)
                raise RefusedError(
                    f"{self.label}: column {name} stands there {len(places)} times (fields {said}): which is meant?"
                )
            if places:
                return places[0]
        return None

    def every(self, name: str) -> list[int]:
        """All columns of that name, where a format repeats one for another of its parts."""
        return self._places.get(name.lower(), [])

    def records(self, read: Callable[[str, list[str]], Iterable[RecordRow]]) -> Iterator[RecordRow]:
        """What ``read(where, fields)`` makes of every row, one after another; a ValueError of its refuses the row."""
        width, above = len(self.names), self._above
        lines = map(_bare, self._lines) if self._mark == "|" else self._lines
        if self._mark == "|":
            rows = csv.reader(lines, delimiter="|", quoting=csv.QUOTE_NONE, skipinitialspace=True)
        else:
            rows = csv.reader(lines, delimiter=self._mark, strict=True)
        line = 0
        while True:
            try:
                for fields in rows:
                    where, line = f"line {line + above + 1}", rows.line_num
                    if len(fields) != width or self._tainted:
                        wrong = self._wrong(fields, width)
                        if wrong:
                            yield RecordRow(row=where, refused=wrong)
                        continue
                    try:
                        yield from read(where, fields)
                    except ValueError as error:
                        yield RecordRow(row=where, refused=str(error))
                return
            except csv.Error as error:
                where, line, self._tainted = f"line {line + above + 1}", rows.line_num, False
                if "field larger" in str(error):  # an open quote swallows what follows: where a row starts is not known
                    yield RecordRow(row=where, refused=f"no CSV row: {error}, nothing after it is read")
                    return
                yield RecordRow(row=where, refused=f"no CSV row: {error}")

    def _wrong(self, fields: list[str], width: int) -> str:
        tainted, self._tainted = self._tainted, False
        if not fields:
            return ""  # an empty line, or the rule of a Markdown table
        if tainted:
            return "a NUL byte in the row"
        if fields[0].startswith("#"):
            return f"a comment, no row: {printable(self._mark.join(fields))[:_SHOWN]}"
        return f"{len(fields)} fields where the header has {width}"


def _bare(line: str) -> str:
    """A row of a Markdown table without its outer pipes; nothing of the rule under the header."""
    line = line.strip()
    return line.removeprefix("|").removesuffix("|") if line.strip("|-: ") else ""


def duration(text: str, column: str, unit: float) -> tuple[float | None, str]:
    """Seconds from a cell whose column counts in ``unit`` seconds, or None and why the row cannot be used."""
    try:
        t_s = float(text) * unit
        if 0.0 < t_s < inf and "_" not in text:
            return t_s, ""
    except ValueError:
        pass
    try:
        t_s = real(text, column, above=0.0) * unit
    except ValueError as error:
        return None, str(error)
    return (t_s, "") if t_s > 0.0 else (None, f"{column} is {text[:_SHOWN]!r}, no time is as short")


def real(text: str, column: str, *, above: float | None = None, minimum: float | None = None) -> float:
    """A number.

    Raises:
        ValueError: naming the column and the value; also for ``1,234``, a thousand in one country and 1.234 in another.
    """
    if not text.strip():
        raise ValueError(f"{column} is empty")
    if "," in text and "." not in text:
        raise ValueError(
            f"{column} is {text[:_SHOWN]!r}: a comma may be a decimal point or a separator of thousands, write a point"
        )
    return number(text, column, above=above, minimum=minimum)


def size(text: str, column: str, minimum: int = 1) -> int:
    """A whole number; ``64.0``, as a data frame writes a column with gaps, is 64.

    Raises:
        ValueError: naming the column and the value.
    """
    if text.isdecimal() and len(text) < 16:
        value = int(text)
        if value >= minimum:
            return value
    return whole(real(text, column), column, minimum=minimum)


_TRUE, _FALSE = frozenset(("true", "1", "1.0", "yes")), frozenset(("false", "0", "0.0", "no"))


def flag(text: str, column: str) -> bool:
    """A boolean as Python, pandas or a person writes it. An empty cell is none: half of a matrix may hang on it.

    Raises:
        ValueError: naming the column and the value.
    """
    low = text.strip().lower()
    if low in _TRUE:
        return True
    if low in _FALSE:
        return False
    raise ValueError(f"{column} is {text[:_SHOWN]!r}, expected true or false" if low else f"{column} is empty")


_HALVES = tuple(0.5 * 10.0**-places for places in range(40))


def half_digit(text: str, value: float) -> float:
    """Half of the last printed digit, as a fraction of the value: 0.09 is good to 0.056 of itself; 0 for a zero."""
    if not value:
        return 0.0
    fraction = text.partition(".")[2]
    if fraction.isdigit() and len(fraction) < len(_HALVES):
        return _HALVES[len(fraction)] / value
    mantissa, _, exponent = text.strip().lower().partition("e")
    places = len(mantissa.partition(".")[2]) - (int(exponent) if exponent.strip("+-").isdigit() else 0)
    return float(0.5 * 10.0**-places / value)


def claim(text: str, axis: str, unit: float, time: float = 0.0) -> Claim | None:
    """A printed rate in units of ``unit`` FLOP/s or B/s; None where the cell holds none.

    time: what the rounding of the row's printed time adds, as a fraction: the rate was worked out before it was rounded.
    """
    try:
        value = float(text)
    except ValueError:
        return None
    rate = value * unit
    return Claim(axis, rate, half_digit(text, value) + time) if 0.0 <= rate < inf else None


@lru_cache(maxsize=1024)
def dtype(text: str) -> str:
    """A dtype's name for a work model, where sizes are logical: ``float4_e2m1fn_x2`` stores two values, one is fp4.

    Raises:
        ValueError: for a spelling that is not known.
    """
    found = parse_dtype(text.strip())
    return found.name if found.pack == 1 or found.peak is None else found.peak


def shown(text: str) -> str:
    """A kernel's name that is safe to print."""
    return printable(text.strip())


def ratio_ok(text: str, most: float) -> bool | None:
    """Whether a printed share of wrong elements (``0.0073``, ``0.7%``) is at most ``most``; None where none is printed."""
    try:
        value = float(text)
    except ValueError:
        if not text.endswith("%"):
            return None
        return ratio_ok(text[:-1], 100 * most)
    return value <= most if value == value else None
