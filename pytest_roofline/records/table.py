"""Rows with named columns, from a CSV file or from a program, and the columns that a format declares.

A format declares its columns once and binds them to a ``Table``. A fault in one row (too few fields, a cell that is not a
number, a NUL) refuses that row. A missing or ambiguous column refuses the file.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import inf
from typing import Any, NamedTuple

from roofline_engine.check import Claim
from roofline_engine.units import UNITS, half_digit, is_time, number, parse_dtype, printable, whole

from .source import RecordRow, RefusedError, Sample, Source, bare_row, is_comment, separator, split_header

#: No format has more columns.
_MOST_COLUMNS = 2_000
#: Characters of a cell that a message shows.
_SHOWN = 60
#: The default of a column that every file of the format has.
REQUIRED: Any = ...
#: The default of a column whose field is left out when the file lacks the column.
ABSENT: Any = object()

#: Seconds of one, by the spelling of a unit of time in lower case.
TIMES = {spelling: unit.factor for spelling, unit in UNITS.items() if unit.kind == "time"}
#: The roof, and B/s or FLOP/s of one, by the spelling of a rate in lower case.
RATES = {spelling: (unit.axis, unit.factor) for spelling, unit in UNITS.items() if unit.axis}

Fields = Sequence[str]


class Column(NamedTuple):
    """A column of a format, and the field that its cells fill."""

    field: str
    names: tuple[str, ...]  # its spellings; the first that the file has is read
    read: Callable[[str, str], Any]  # from a cell's text and the column's name to the value
    default: Any = REQUIRED  # the value when the file has no such column


class Table:
    """Named columns and their rows."""

    def __init__(self, label: str, names: Sequence[str], rows: Iterable[tuple[str, Fields, str]]) -> None:
        self.label, self.names = label, list(names)
        self._rows = rows  # the place of each row in the file, its fields, and what is wrong with it
        self._places: dict[str, list[int]] = {}
        for place, name in enumerate(self.names):
            self._places.setdefault(name.lower(), []).append(place)
        if len(self.names) > _MOST_COLUMNS:
            raise RefusedError(f"{label}: {len(self.names)} columns, expected at most {_MOST_COLUMNS}")

    def place(self, *names: str) -> int:
        """Return the index of the column with the first of ``names`` that the file has.

        Raises RefusedError when the file has none of them, or has one of them twice.
        """
        place = self.find(*names)
        if place is None:
            raise RefusedError(f"{self.label}: no column {' or '.join(names)}; it has {', '.join(self.names)[:300]}")
        return place

    def find(self, *names: str) -> int | None:
        """Return the same index; None when the file has none of ``names``."""
        for name in names:
            places = self.every(name)
            if len(places) > 1:
                fields = " and ".join(str(place + 1) for place in places)
                raise RefusedError(f"{self.label}: column {name!r} appears {len(places)} times (fields {fields}). Keep one")
            if places:
                return places[0]
        return None

    def every(self, name: str) -> list[int]:
        """Return the indices of all columns with that name; some formats repeat one."""
        return self._places.get(name.lower(), [])

    def bind(self, *columns: Column) -> Callable[[Fields], dict[str, Any]]:
        """Return a function that reads these columns of a row, as values by field. Raises RefusedError as ``place`` does."""
        fixed: dict[str, Any] = {}
        cells: list[tuple[str, Callable[[str, str], Any], int, str]] = []
        for column in columns:
            place = self.place(*column.names) if column.default is REQUIRED else self.find(*column.names)
            if place is None and column.default is not ABSENT:
                fixed[column.field] = column.default
            elif place is not None:
                fixed[column.field] = None  # its place in the order
                cells.append((column.field, column.read, place, self.names[place]))

        def values(fields: Fields) -> dict[str, Any]:
            row = fixed.copy()
            for field, read, place, name in cells:
                row[field] = read(fields[place], name)
            return row

        return values

    def timing(
        self, column: str, unit: float, rates: Mapping[str, tuple[str, float]], text_of: Callable[[str], str] | None = None
    ) -> Callable[[Fields], dict[str, Any]]:
        """Return a function that reads a row's time and printed rates, as fields of its RecordRow.

        Args:
            column: the column of the time.
            unit: seconds of one.
            rates: values as of ``RATES``, by column; columns that the file lacks are skipped.
            text_of: takes the number out of a cell of the time.
        """
        place = self.place(column)
        name = self.names[place]
        printed = [(at, *rates[rate]) for rate in rates if (at := self.find(rate)) is not None]

        def values(fields: Fields) -> dict[str, Any]:
            text = fields[place] if text_of is None else text_of(fields[place])
            t_s, refused = duration(text, name, unit)
            rounding = half_digit(text, t_s / unit) if t_s else 0.0
            claims = [item for at, axis, base in printed if (item := claim(fields[at], axis, base, rounding)) is not None]
            row: dict[str, Any] = {"t_s": t_s, "rounding": rounding, "placeholder_time": t_s == unit}
            row["claims"] = tuple(claims)
            return row | {"refused": refused, "refused_code": "time"} if refused else row

        return values

    def records(self, read: Callable[[str, Fields], Iterable[RecordRow]]) -> Iterator[RecordRow]:
        """Yield the records that ``read(place, fields)`` makes of each row; a ValueError refuses the row."""
        for where, fields, problem in self._rows:
            if problem:
                yield RecordRow(row=where, refused=problem, refused_code="row")
                continue
            try:
                yield from read(where, fields)
            except ValueError as error:
                yield RecordRow(row=where, refused=str(error), refused_code="value")


_UNIT_AT_END = re.compile(rf"(?:^|[ _])({'|'.join(map(re.escape, sorted({*TIMES, *RATES}, key=len)))})$", re.I)


def column_of_key(key: str) -> str | None:
    """Return the column ``ck us`` for a key ``ck_us``; None for a key that does not end in a unit of time or rate."""
    unit = _UNIT_AT_END.search(key)
    if unit is None or key.lower() == "s":  # s alone is a size
        return None
    return f"{key[: unit.start()]} {unit[1]}".strip()


class TableFormat(NamedTuple):
    """An adapter for rows with named columns."""

    NAME: str
    has_columns: Callable[[frozenset[str]], bool]  # whether columns, in lower case, are of this format
    read_table: Callable[[Table], Iterable[RecordRow]]
    columns: str  # for people: the columns that it reads

    def matches(self, sample: Sample) -> bool:
        """Return whether the header of a CSV is of this format."""
        return self.has_columns(sample.columns)

    def read(self, source: Source) -> Iterable[RecordRow]:
        """Yield the rows of a CSV. Raises RefusedError for a file without a header or without a required column."""
        return self.read_table(read_csv(source))


def table_of(rows: Sequence[Mapping[str, object]], label: str) -> Table:
    """Return the table of rows that a program holds. A value is read as its text would be."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = ((f"row {at}", [str(row.get(name, "")) for name in names], "") for at, row in enumerate(rows, 1))
    return Table(label, names, cells)


def read_csv(source: Source) -> Table:
    """Return the table of a CSV or Markdown file; the header shows the separator. Raises RefusedError without a header."""
    lines = source.lines()
    above, header = next(((at, line) for at, line in enumerate(lines, 1) if not is_comment(line)), (0, ""))
    names = [printable(name) for name in split_header(header.replace("\0", _REPLACED))]
    if len(names) < 2:
        raise RefusedError(f"{source.label}: no header line with columns, expected a CSV file")
    return Table(source.label, names, _csv_rows(lines, separator(header), len(names), above))


#: Instead of a NUL, which versions of Python's reader treat differently.
_REPLACED = "\ufffd"


def _csv_rows(lines: Iterator[str], mark: str, width: int, above: int) -> Iterator[tuple[str, Fields, str]]:
    has_nul = False  # in the lines of the row

    def without_nul() -> Iterator[str]:
        nonlocal has_nul
        for text in lines:
            if "\0" in text:
                has_nul, text = True, text.replace("\0", _REPLACED)
            yield text

    if mark == "|":
        rows = csv.reader(map(bare_row, without_nul()), delimiter="|", quoting=csv.QUOTE_NONE, skipinitialspace=True)
    else:
        rows = csv.reader(without_nul(), delimiter=mark, strict=True)
    line = 0
    while True:
        try:
            for fields in rows:
                where, line = f"line {line + above + 1}", rows.line_num
                if len(fields) == width and not has_nul:
                    yield where, fields, ""
                elif fields:  # neither an empty line nor the rule of a Markdown table
                    yield where, fields, _problem(fields, width, has_nul, mark)
                has_nul = False
            return
        except csv.Error as error:
            where, line, has_nul = f"line {line + above + 1}", rows.line_num, False
            if "field larger" in str(error):  # an open quote swallowed the next rows
                yield where, (), f"not a CSV row: {error}; nothing after it is read"
                return
            yield where, (), f"not a CSV row: {error}"


def _problem(fields: Fields, width: int, has_nul: bool, mark: str) -> str:
    if has_nul:
        return "a NUL byte in the row"
    if fields[0].startswith("#"):
        return f"a comment, not a row: {printable(mark.join(fields))[:_SHOWN]}"
    return f"{len(fields)} fields, the header has {width}"


_MEASURED = re.compile(r"([-+.\w]*[\d.a-z]??)\s*([a-z\u00b5\u03bc]+(?:/s)?)", re.I)


def split_unit(text: str) -> tuple[str, float | None]:
    """Return the number in a cell such as ``7.412 ms`` or ``90.5 GB/s``, and its unit in s or B/s; None without a unit."""
    match = _MEASURED.fullmatch(text.strip())
    unit = UNITS.get(match[2].lower()) if match and match[1] else None
    return (match[1], unit.factor) if match and unit is not None else (text.strip(), None)


# Values of a cell. Each function takes the text and the column's name, and raises ValueError with both.


def duration(text: str, column: str, unit: float) -> tuple[float | None, str]:
    """Return the seconds in a cell whose column counts in ``unit`` seconds, or None and why the row cannot be used."""
    try:
        t_s = float(text) * unit
        if is_time(t_s) and "_" not in text:
            return t_s, ""
    except ValueError:
        pass
    try:
        t_s = real(text, column, above=0.0) * unit
    except ValueError as error:
        return None, str(error)
    if is_time(t_s):
        return t_s, ""
    return None, f"{column} is {text[:_SHOWN]!r}, too {'small' if t_s < 1 else 'large'} for a time"


def real(text: str, column: str, *, above: float | None = None) -> float:
    """Return a number. ``1,234`` is refused: it is a thousand in one country and 1.234 in another."""
    if not text.strip():
        raise ValueError(f"{column} is empty")
    if "," in text and "." not in text:
        raise ValueError(
            f"{column} is {text[:_SHOWN]!r}: the comma may be a decimal point or a separator of thousands. Write a point"
        )
    return number(text, column, above=above)


def size(text: str, column: str) -> int:
    """Return a whole number of at least 1; ``64.0``, as a data frame writes a column with gaps, is 64."""
    if text.isdecimal() and len(text) < 16:
        value = int(text)
        if value >= 1:
            return value
    return whole(real(text, column), column)


_TRUE, _FALSE = frozenset(("true", "1", "1.0", "yes")), frozenset(("false", "0", "0.0", "no"))


def flag(text: str, column: str) -> bool:
    """Return a boolean as Python, pandas or a person writes it. An empty cell is an error, not False."""
    low = text.strip().lower()
    if low in _TRUE:
        return True
    if low in _FALSE:
        return False
    raise ValueError(f"{column} is {text[:_SHOWN]!r}, expected true or false" if low else f"{column} is empty")


def sizes(**names: str) -> tuple[Column, ...]:
    """Return columns that every row of a format fills with a size, by field."""
    return tuple(Column(field, (name,), size) for field, name in names.items())


@lru_cache(maxsize=1024)
def dtype(text: str, column: str = "dtype") -> str:
    """Return the dtype of a work model, whose sizes are logical: ``float4_e2m1fn_x2`` stores two values, one is fp4."""
    parsed = parse_dtype(text.strip())
    return parsed.name if parsed.pack == 1 or parsed.peak is None else parsed.peak


def clean(text: str, column: str = "") -> str:
    """Return text that is safe to print, such as a kernel's name."""
    return printable(text.strip())


def is_right(most_wrong: float) -> Callable[[str, str], bool | None]:
    """Return a function that reads a printed share of wrong elements (``0.0073``, ``0.7%``); without a share it gives None."""

    def read(cell: str, _: str) -> bool | None:
        try:
            share = float(cell[:-1]) / 100 if cell.endswith("%") else float(cell)
        except ValueError:
            return None
        return share <= most_wrong if share == share else None

    return read


def claim(text: str, axis: str, base: float, time: float = 0.0) -> Claim | None:
    """Return a printed rate in units of ``base`` FLOP/s or B/s; None when the cell does not hold one.

    ``time`` is the rounding of the row's printed time, as a fraction: the rate was computed before that rounding.
    """
    try:
        value = float(text)
    except ValueError:
        return None
    rate = value * base
    return Claim(axis, rate, half_digit(text, value) + time) if 0.0 <= rate < inf else None
