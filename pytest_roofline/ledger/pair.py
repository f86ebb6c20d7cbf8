"""One predicted-against-actual pair: its fields, its text, its JSON, and the pair of a run's row."""

from __future__ import annotations

import dataclasses
import datetime
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from roofline_engine.check import COMPARABLE
from roofline_engine.fields import BOUND_TYPES, CONFIDENCES, MEASUREMENT_BASES, STAGES
from roofline_engine.ops import op_name
from roofline_engine.roofline import ISOLATED_NOISE
from roofline_engine.units import number, short_repr

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
        """Read ``1.4``, ``1.30-1.51`` or ``-0.4``; the smaller end of a range comes first.

        Raises:
            ValueError: naming ``what``, the text and what was expected.
        """
        match = _INTERVAL.fullmatch(text.strip())
        if not match:
            raise ValueError(f"{what} is {short_repr(text.strip())}, expected a number or a range such as 1.30-1.51")
        return cls._named(what, float(match[1]), float(match[2] or match[1]))

    @classmethod
    def from_json(cls, value: object, what: str) -> Interval:
        """Read a number, or a list of two: the smaller first.

        Raises:
            ValueError: naming ``what``, the value and what was expected.
        """
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
            if name != "kernel" and value == _DEFAULTS[name]:
                continue
            if isinstance(value, Interval):
                value = value.low if value.low == value.high else [value.low, value.high]
            fields[name] = value
        return fields

    @classmethod
    def from_json(cls, data: object) -> Pair:
        """Return the pair that ``to_json`` wrote. Other keys are ignored.

        Raises:
            ValueError: naming the field.
        """
        if not isinstance(data, dict):
            raise ValueError("expected a JSON object")
        values: dict[str, Any] = {"kernel": ""}
        for name in data.keys() & set(NAMES):
            value = data[name]
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
        """Return the pair with the fields in ``cells``. An empty or missing cell is unknown; other cells are ignored.

        Raises:
            ValueError: naming the field.
        """
        values: dict[str, Any] = {"kernel": ""}
        for name, text in cells.items():
            if name in INTERVALS and text.strip():
                values[name] = Interval.parse(text, name)
            elif name == "noise" and text.strip():
                values[name] = Interval.parse(text, name).mid
            elif name in NAMES and name not in (*INTERVALS, "noise") and text:
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
