"""The pairs of a ledger and its file, JSON lines with a line for each pair; the CSV and old Markdown files that it imports.

A line is added under a lock and the file is replaced whole: several processes can append, and a kill leaves the old file or the
new one. Earlier versions kept the ledger in a Markdown file. Its pairs are read from there until the first append copies them.
"""

from __future__ import annotations

import csv
import dataclasses
import datetime
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from filelock import FileLock, Timeout

from roofline_engine.check import COMPARABLE
from roofline_engine.fields import BOUND_TYPES, CONFIDENCES, MEASUREMENT_BASES, STAGES
from roofline_engine.files import decode_text, parse_json, read_bytes, read_text, write_whole
from roofline_engine.ops import op_name
from roofline_engine.roofline import ISOLATED_NOISE
from roofline_engine.units import number, printable, short_repr

if TYPE_CHECKING:
    from ..row import Row


#: A time above the roof is wrong; one that cannot contradict a prediction does not confirm it either.
_NO_EVIDENCE = ("beyond_roof", "not_falsifiable", "not_comparable")


@dataclass(frozen=True, slots=True)
class Interval:
    """A number, or the range of several runs or assumptions."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and self.low <= self.high < math.inf):
            raise ValueError(f"{_format(self.low)}-{_format(self.high)}, expected finite numbers, the smaller first")

    @property
    def mid(self) -> float:
        """The number that stands for a range.

        It is the geometric mean of positive ends, as ratios are averaged; of percents about zero the arithmetic mean.
        """
        if self.low == self.high:
            return self.low
        if self.low > 0:
            return math.exp((math.log(self.low) + math.log(self.high)) / 2)
        return self.low / 2 + self.high / 2

    def __str__(self) -> str:
        return _format(self.low) if self.low == self.high else f"{_format(self.low)}-{_format(self.high)}"

    @classmethod
    def of(cls, value: float) -> Interval:
        """Return one number as an interval."""
        return cls(value, value)

    @classmethod
    def parse(cls, text: str, what: str) -> Interval:
        """Read ``1.4``, ``1.30-1.51`` or ``-0.4``, the smaller end first. Raises ValueError naming ``what`` and the text."""
        match = _INTERVAL.fullmatch(text.strip())
        if not match:
            raise ValueError(f"{what} is {short_repr(text.strip())}, expected a number or a range such as 1.30-1.51")
        return cls._named(what, float(match[1]), float(match[2] or match[1]))

    @classmethod
    def from_json(cls, value: object, what: str) -> Interval:
        """Read a number, or a list of two, the smaller first. Raises ValueError naming ``what`` and the value."""
        low, high = value if isinstance(value, list) and len(value) == 2 else (value, value)
        return cls._named(what, float(number(low, what)), float(number(high, what)))

    @classmethod
    def _named(cls, what: str, low: float, high: float) -> Interval:
        try:
            return cls(low, high)
        except ValueError as error:
            raise ValueError(f"{what} is {error}") from None


_NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
#: Playbooks write ranges with a hyphen or an en dash.
_INTERVAL = re.compile(rf"({_NUMBER})(?:\s*[-\u2013]\s*({_NUMBER}))?")
_DATE = re.compile(r"[0-9]{4}(?:-[0-9]{2}(?:-[0-9]{2})?)?")


def _format(value: float) -> str:
    return repr(int(value)) if abs(value) < 1e15 and value == int(value) else repr(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The prediction for one kernel and its outcome; None and "" mean unknown.

    Raises:
        ValueError: for a value outside its set or range, naming the field.
    """

    kernel: str
    op: str = "unknown"
    bound_type: str = "unknown"
    axis: str = ""  # the predicted roof: memory or compute
    dtype: str = ""
    device: str = ""
    stack: str = ""  # the framework and model in which the kernel runs
    attainable: Interval | None = None  # the predicted speedup
    predicted_pct: Interval | None = None  # the ratio to the roof before, a fraction
    predicted_e2e_pct: Interval | None = None  # percent of the run end to end
    basis: str = ""  # the measurement basis of the prediction
    stage: str = ""  # the stage of the prediction
    confidence: str = ""  # the confidence of the prediction
    measured: Interval | None = None  # the isolated speedup
    achieved_pct: Interval | None = None  # the ratio to the roof after, a fraction
    measured_e2e_pct: Interval | None = None  # percent of the run end to end
    noise: float = ISOLATED_NOISE  # the relative change that is noise of ``measured``
    date: str = ""  # ISO: a day, a month or a year
    source: str = ""  # where the figures come from

    def __post_init__(self) -> None:
        for name in ("kernel", "op"):
            if not getattr(self, name).strip():
                raise ValueError(f"{name} is empty, expected a name")
        for name, choices in _SETS.items():
            value = getattr(self, name)
            if value not in choices:
                expected = ", ".join(choice or "nothing" for choice in choices)
                raise ValueError(f"{name} is {short_repr(value)}, expected {expected}")
        for name in _POSITIVE:
            interval = getattr(self, name)
            if interval is not None and interval.low <= 0:
                raise ValueError(f"{name} is {interval}, expected more than 0")
        if self.attainable is not None and self.attainable.low < 1:
            raise ValueError(f"attainable is {self.attainable}, expected a speedup of 1 or more")
        if not 0 <= self.noise < math.inf:
            raise ValueError(f"noise is {self.noise}, expected a relative change of at least 0")
        if self.date and not _DATE.fullmatch(self.date):
            raise ValueError(f"date is {short_repr(self.date)}, expected YYYY-MM-DD, YYYY-MM or YYYY")

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The group of the pair: op, bound_type, stage, device."""
        return self.op, self.bound_type, self.stage, self.device

    @property
    def ratio(self) -> float | None:
        """Realized over predicted speedup; None where either is unknown."""
        return None if self.attainable is None or self.measured is None else self.measured.mid / self.attainable.mid

    def to_json(self) -> dict[str, object]:
        """Return the known fields as JSON values: an interval as a number, or as its two ends."""
        fields: dict[str, object] = {}
        for name in NAMES:
            value = getattr(self, name)
            if isinstance(value, Interval):
                fields[name] = value.low if value.low == value.high else [value.low, value.high]
            elif value != _DEFAULTS[name]:
                fields[name] = value
        return fields

    @classmethod
    def from_json(cls, data: object) -> Pair:
        """Return the pair that ``to_json`` wrote. Other keys are ignored. Raises ValueError naming the field."""
        if not isinstance(data, dict):
            raise ValueError("expected a JSON object")
        values: dict[str, Any] = {"kernel": ""}
        for name in NAMES:
            value = data.get(name)
            if value is None:
                continue
            if name in INTERVALS:
                value = Interval.from_json(value, name)
            elif name == "noise":
                value = float(number(value, name))
            elif not isinstance(value, str):
                raise ValueError(f"{name} is {short_repr(value)}, expected text")
            values[name] = value
        return cls(**values)

    @classmethod
    def from_text(cls, cells: Mapping[str, str]) -> Pair:
        """Return the pair with the fields in ``cells``, where an empty cell is unknown. Raises ValueError naming the field.

        Other cells are ignored.
        """
        values: dict[str, Any] = {"kernel": ""}
        for name, text in cells.items():
            if name in (*INTERVALS, "noise"):
                if text.strip():
                    interval = Interval.parse(text, name)
                    values[name] = interval.mid if name == "noise" else interval
            elif name in NAMES and text:
                values[name] = op_name(text) if name == "op" else text
        return cls(**values)


_DEFAULTS: dict[str, object] = {field.name: field.default for field in dataclasses.fields(Pair)}
NAMES = tuple(_DEFAULTS)
INTERVALS = ("attainable", "predicted_pct", "predicted_e2e_pct", "measured", "achieved_pct", "measured_e2e_pct")
_POSITIVE = ("attainable", "predicted_pct", "measured", "achieved_pct")
_SETS = {
    "bound_type": BOUND_TYPES,
    "axis": ("", "memory", "compute"),
    "basis": ("", *MEASUREMENT_BASES),
    "stage": ("", *STAGES),
    "confidence": ("", *CONFIDENCES),
}


def pair_of(row: Row, *, stack: str = "", date: str | None = None, source: str = "pytest") -> Pair | None:
    """Return the pair of a row with a prediction, a speedup and a comparable baseline; None for any other row.

    date: ISO, by default of today. stack, source: as in ``Pair``.
    """
    prediction, entry, speedup = row.prediction, row.entry, row.check.speedup
    if prediction is None or prediction.attainable_speedup is None or speedup is None or row.correct is False:
        return None
    if row.baseline is None or row.baseline.kind not in COMPARABLE or row.check.status in _NO_EVIDENCE:
        return None
    axis = prediction.roof_axis or entry.roof_axis or ""
    return Pair(
        kernel=row.kernel or prediction.kernel,
        op=entry.op,
        bound_type=entry.bound_type,
        axis=axis,
        dtype=entry.dtype or "",
        device=row.device or "",
        stack=stack,
        attainable=Interval.of(prediction.attainable_speedup),
        predicted_pct=_positive(prediction.roofline_pct),
        basis=entry.measurement_basis if entry.measurement_basis in MEASUREMENT_BASES else "",
        stage=entry.stage,
        confidence=prediction.confidence,
        measured=Interval.of(speedup),
        achieved_pct=_positive(entry.roofline_pct) if axis == entry.roof_axis and not entry.suspect else None,
        noise=ISOLATED_NOISE if row.check.band is None else row.check.band,
        date=datetime.date.today().isoformat() if date is None else date,
        source=source,
    )


def _positive(value: float | None) -> Interval | None:
    return Interval.of(value) if value is not None and value > 0 else None


OWN = Path(".roofline", "ledger.jsonl")
#: Where earlier versions kept the ledger.
MARKDOWN = (Path("knowledge", "backend_playbook.md"), Path(".roofline", "ledger.md"))
#: An append takes milliseconds: a process that holds the lock this long hangs.
_LOCK_S = 120.0
#: A line is some hundred bytes: a larger file is not a ledger.
_LARGEST = 1 << 28


class Unread(NamedTuple):
    """A line of a file that could not be read; it stays in the file."""

    line: int
    why: str


class Ledger(NamedTuple):
    """The content of a ledger."""

    path: Path  # the file that was read
    pairs: tuple[Pair, ...] = ()
    unread: tuple[Unread, ...] = ()

    @classmethod
    def of(cls, path: Path, rows: Iterable[Pair | Unread]) -> Ledger:
        """Return the ledger of what the lines of a file gave."""
        rows = list(rows)
        pairs = tuple(row for row in rows if isinstance(row, Pair))
        return cls(path, pairs, tuple(row for row in rows if isinstance(row, Unread)))


def locate(root: Path) -> Path:
    """Return the ledger of the project in ``root``: ``OWN``, or a Markdown ledger of an earlier version."""
    return next((path for path in (root / OWN, *(root / name for name in MARKDOWN)) if path.is_file()), root / OWN)


def lines_path(path: Path) -> Path:
    """Return the file with the lines of the ledger ``path``: next to a Markdown ledger, with the suffix ``.jsonl``."""
    return path.with_suffix(".jsonl") if path.suffix == ".md" else path


def read(path: Path) -> Ledger:
    """Return the ledger; empty where the file is missing. Raises ValueError if the file is not a ledger."""
    lines = lines_path(path)
    if lines != path and path.is_file() and not lines.exists():
        return read_markdown(path)
    rows = enumerate(_json_lines(lines).split(b"\n"), 1)
    return Ledger.of(lines, [_read_pair(at, _from_line, line) for at, line in rows if line.strip()])


def _read_pair(line: int, read: Callable[..., Pair], *arguments: Any) -> Pair | Unread:
    """Return the pair that ``read`` makes of the arguments; a ValueError is why the line is not read."""
    try:
        return read(*arguments)
    except ValueError as error:
        return Unread(line, str(error))


def _from_line(line: bytes) -> Pair:
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("not UTF-8 text") from None
    return Pair.from_json(parse_json(text))


def append(path: Path, pairs: Iterable[Pair], *, once: bool = False, say: Callable[[str], None] | None = None) -> int:
    """Add ``pairs`` to the ledger and return their number. A missing file is made, with its folder.

    Args:
        path: the ledger. For a Markdown ledger the lines go to the ``.jsonl`` file next to it, with the pairs in the Markdown.
        pairs: what to add.
        once: leave out pairs that are in the ledger, field by field.
        say: called with a line if the lines go to another file than ``path``.

    Raises:
        OSError: if the file cannot be written, is a folder or a symbolic link, or stays locked.
        ValueError: if the file is not a ledger.
    """
    added = list(pairs)
    if not added:
        return 0
    lines = lines_path(path)
    if say is not None and lines != path:
        say(f"{path}: a ledger is a file of JSON lines; the pairs go to {lines}")
    lines.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(f"{lines}.lock").acquire(timeout=_LOCK_S, poll_interval=0.005):
            before = _json_lines(lines)
            known = read(path).pairs if once or not before else ()
            if once:
                existing = set(known)
                added = [pair for pair in dict.fromkeys(added) if pair not in existing]
            content = before or _lines(known)
            if added and content and not content.endswith(b"\n"):
                content += b"\n"
            content += _lines(added)
            if content != before:
                write_whole(str(lines), content)
    except Timeout as error:
        raise OSError(f"{printable(str(lines))}: locked by another process for {_LOCK_S:.0f} s") from error
    return len(added)


def _json_lines(path: Path) -> bytes:
    """Return the content of a ledger. Raises ValueError for another file, also Markdown of an earlier version."""
    data = _bytes(path)
    if data.lstrip()[:1] != b"{" and _HEADING.search(data.decode("utf-8", "replace")):
        raise ValueError(f"{printable(str(path))}: a Markdown ledger of an older version. Rename it to end in .md")
    lines = (line.strip(b" \t\r\xef\xbb\xbf") for line in data.split(b"\n"))
    if data.strip() and not any(line.startswith(b"{") and line.endswith(b"}") for line in lines):
        raise ValueError(f"{printable(str(path))}: not a ledger, no line is a JSON object. A CSV: roofline ledger import FILE")
    return data


def _lines(pairs: Iterable[Pair]) -> bytes:
    return "".join(json.dumps(pair.to_json()) + "\n" for pair in pairs).encode()


def _bytes(path: Path) -> bytes:
    if not path.exists():
        return b""
    data = read_bytes(str(path), _LARGEST)
    if b"\0" in data:
        raise ValueError(f"{printable(str(path))}: not UTF-8 text, not a ledger")
    return data


# A CSV of predicted and measured speedups: a row for each kernel.

#: The field of a pair for a column of other tools. The names of a pair's fields are columns too; other columns are ignored.
COLUMNS = {
    "gfx": "device",
    "op_class": "op",
    "predicted_roofline_pct": "predicted_pct",
    "predicted_attainable": "attainable",
    "measured_iso": "measured",
}
#: Our names for the ops of such tables.
OPS = {"attention": "attn"}


def read_csv(path: Path) -> Ledger:
    """Return the pairs in a CSV. Raises ValueError if the file is not such a table."""
    label = printable(path.name)
    reader = csv.reader(io.StringIO(read_text(str(path), _LARGEST), newline=""), strict=True)
    try:
        header = next(reader, None)
        if header is None:
            raise ValueError(f"{label}: empty, expected a header with a column kernel")
        names = _header(header, label)
        rows = [_read_pair(reader.line_num, _pair, names, cells) for cells in reader if any(map(str.strip, cells))]
    except csv.Error as error:
        raise ValueError(f"{label}: line {reader.line_num}: {printable(str(error))}") from None
    return Ledger.of(path, rows)


def _header(cells: list[str], label: str) -> list[str]:
    names = [COLUMNS.get(cell.strip(), cell.strip()) for cell in cells]
    for name in ("kernel", "attainable", "measured"):
        if name not in names:
            column = next((column for column, field in COLUMNS.items() if field == name), name)
            raise ValueError(f"{label}: no column {column!r} in its first line")
    twice = [name for name in names if name and names.count(name) > 1]
    if twice:
        raise ValueError(f"{label}: two columns for {short_repr(twice[0])}")
    return names


def _pair(names: list[str], cells: list[str]) -> Pair:
    if len(cells) != len(names):
        raise ValueError(f"{len(cells)} cells, expected {len(names)}")
    values = dict(zip(names, map(str.strip, cells)))
    return Pair.from_text({**values, "op": OPS.get(values.get("op", ""), values.get("op", ""))})


# The Markdown of earlier versions: the tables under a heading.

_HEADING = re.compile(r"^ {0,3}##[ \t]+Roofline ledger[# \t]*$", re.MULTILINE)
_NEXT_HEADING = re.compile(r"^ {0,3}#{1,2}[ \t]", re.MULTILINE)
#: A heading inside a fence is text; an open fence that nothing closes is text too.
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})[^\n]*\n(?:.*\n)*? {0,3}\1[`~]*[ \t]*$", re.MULTILINE)
_CELL = re.compile(r"(?:[^\\|]|\\.|\\\Z)*", re.DOTALL)
_DASHES = re.compile(r":?-+:?")
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|([^0-9A-Za-z\s]))")


def read_markdown(path: Path) -> Ledger:
    """Return the pairs in the Markdown ledger of an earlier version. Raises ValueError if the file is not text."""
    data = _bytes(path)
    try:
        text = decode_text(data, printable(path.name))
    except ValueError:  # a playbook in another encoding; the ledger's section is UTF-8
        text = data.decode("utf-8", "replace")
    text = _FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), text.replace("\r\n", "\n"))
    heading = _HEADING.search(text)
    if heading is None:
        return Ledger(path)
    end = _NEXT_HEADING.search(text, heading.end())
    first = text.count("\n", 0, heading.end()) + 1
    return Ledger.of(path, _read_tables(text[heading.end() : end.start() if end else None], first))


def _read_tables(text: str, first: int) -> Iterator[Pair | Unread]:
    """Yield the rows of every table with a column ``kernel``; ``first`` is the number of the first line."""
    columns: list[str] | None = None
    before: list[str] = []
    for at, line in enumerate(text.split("\n"), first):
        cells = list(_cells(line))
        if not line.strip():
            columns, before = None, []
        elif columns is None:
            if "kernel" in before and len(cells) == len(before) and all(map(_DASHES.fullmatch, cells)):
                columns = before
            before = cells
        elif len(cells) != len(columns):
            yield Unread(at, f"{len(cells)} cells, expected {len(columns)}")
        else:
            yield _read_pair(at, Pair.from_text, dict(zip(columns, map(_unescape, cells))))


def _cells(line: str) -> Iterator[str]:
    """Yield the cells of a line of a table, escaped."""
    text = line.strip().removeprefix("|")
    at = 0
    while at < len(text):
        cell = _CELL.match(text, at)
        assert cell is not None
        yield cell[0].strip()
        at = cell.end() + 1


def _unescape(cell: str) -> str:
    return _ESCAPE.sub(lambda match: match[4] or chr(min(int(match[1] or match[2] or match[3], 16), 0x10FFFF)), cell)
