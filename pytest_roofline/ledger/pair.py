"""One predicted-against-actual pair, and the text of each of its fields."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roofline_engine.fields import BOUND_TYPES, CONFIDENCES, STAGES
from roofline_engine.roofline import ISOLATED_NOISE

BASES = ("model", "mixed", "counters")


@dataclass(frozen=True, slots=True)
class Figure:
    """A number, or the range of several runs or assumptions; ``mid`` stands for it.

    The middle is the geometric one where both ends are positive, as ratios are averaged; else, for percents about zero, the
    arithmetic one.
    """

    low: float
    high: float

    @property
    def mid(self) -> float:
        if self.low == self.high:
            return self.low
        if self.low > 0:
            return math.exp((math.log(self.low) + math.log(self.high)) / 2)
        return self.low / 2 + self.high / 2

    def __str__(self) -> str:
        return _shown(self.low) if self.low == self.high else f"{_shown(self.low)}-{_shown(self.high)}"

    @classmethod
    def of(cls, value: float) -> Figure:
        """One number as a figure."""
        return cls(value, value)

    @classmethod
    def parse(cls, text: str, what: str) -> Figure:
        """``1.4``, ``1.30-1.51`` or ``-0.4``; the ends of a range in rising order.

        Raises:
            ValueError: naming ``what``, the text and what was expected.
        """
        found = _FIGURE.fullmatch(text.strip())
        if not found:
            raise ValueError(f"{what} is {text.strip()[:60]!r}, expected a number or a range such as 1.30-1.51")
        low, high = float(found[1]), float(found[2] or found[1])
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ValueError(f"{what} is {text.strip()[:60]!r}, expected finite numbers")
        if low > high:
            raise ValueError(f"{what} is {text.strip()[:60]!r}, expected the smaller number first")
        return cls(low, high)


_NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
#: Playbooks write ranges with either dash.
_FIGURE = re.compile(rf"({_NUMBER})(?:\s*[-\u2013]\s*({_NUMBER}))?")
_DATE = re.compile(r"[0-9]{4}(?:-[0-9]{2}(?:-[0-9]{2})?)?")


def _shown(value: float) -> str:
    return repr(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """What was predicted for one kernel and what came of it; None and "" are not known.

    attainable: the speedup thought attainable. predicted_pct, achieved_pct: the kernel's ratio to its roof before and after,
    fractions. predicted_e2e_pct, measured_e2e_pct: percent end to end. measured: the isolated speedup. basis, stage,
    confidence: of the prediction. axis: the roof walked toward. noise: the relative change that is noise of ``measured``.
    date: ISO, also of a month or a year. source: who says so.

    Raises:
        ValueError: for a value outside its set or range, by the field's name.
    """

    kernel: str
    op: str = "unknown"
    bound_type: str = "unknown"
    axis: str = ""
    dtype: str = ""
    device: str = ""
    stack: str = ""
    attainable: Figure | None = None
    predicted_pct: Figure | None = None
    predicted_e2e_pct: Figure | None = None
    basis: str = ""
    stage: str = ""
    confidence: str = ""
    measured: Figure | None = None
    achieved_pct: Figure | None = None
    measured_e2e_pct: Figure | None = None
    noise: float = ISOLATED_NOISE
    date: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        for name in ("kernel", "op"):
            if not getattr(self, name).strip():
                raise ValueError(f"{name} is empty, expected a name")
        for name, choices in _SETS.items():
            value = getattr(self, name)
            if value not in choices:
                raise ValueError(f"{name} is {value[:60]!r}, expected {', '.join(choice or 'nothing' for choice in choices)}")
        for name in _POSITIVE:
            figure = getattr(self, name)
            if figure is not None and figure.low <= 0:
                raise ValueError(f"{name} is {figure}, expected more than 0")
        if self.attainable is not None and self.attainable.low < 1:
            raise ValueError(f"attainable is {self.attainable}, expected a speedup of 1 or more")
        for name in FIGURES:
            figure = getattr(self, name)
            if figure is not None and not (math.isfinite(figure.low) and figure.low <= figure.high < math.inf):
                raise ValueError(f"{name} is {figure.low} to {figure.high}, expected finite numbers, the smaller first")
        if not 0 <= self.noise < math.inf:
            raise ValueError(f"noise is {self.noise}, expected a relative change of at least 0")
        if self.date and not _DATE.fullmatch(self.date):
            raise ValueError(f"date is {self.date[:60]!r}, expected YYYY-MM-DD, YYYY-MM or YYYY")

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The group that it counts in: op, bound_type, stage, device."""
        return self.op, self.bound_type, self.stage, self.device

    @property
    def ratio(self) -> float | None:
        """Realised over predicted speedup; None where either is not known."""
        return None if self.attainable is None or self.measured is None else self.measured.mid / self.attainable.mid

    def to_text(self) -> dict[str, str]:
        """Every field as text; ``from_text`` reads it back to an equal pair."""
        return {name: _text(getattr(self, name)) for name in NAMES}

    @classmethod
    def from_text(cls, cells: Mapping[str, str]) -> Pair:
        """The pair whose fields ``cells`` holds; an empty or missing cell is not known.

        Raises:
            ValueError: naming the field.
        """
        values: dict[str, Any] = {}
        for name, text in cells.items():
            if name in FIGURES and text.strip():
                values[name] = Figure.parse(text, name)
            elif name == "noise" and text.strip():
                values[name] = Figure.parse(text, name).mid
            elif name in NAMES and name not in (*FIGURES, "noise") and text:
                values[name] = text
        return cls(**{"kernel": "", **values})


def _text(value: object) -> str:
    if value is None:
        return ""
    return _shown(value) if isinstance(value, float) else str(value)


#: The fields in the order of the table's columns.
NAMES = tuple(field.name for field in dataclasses.fields(Pair))
FIGURES = ("attainable", "predicted_pct", "predicted_e2e_pct", "measured", "achieved_pct", "measured_e2e_pct")
_POSITIVE = ("attainable", "predicted_pct", "measured", "achieved_pct")
_SETS = {
    "bound_type": BOUND_TYPES,
    "axis": ("", "memory", "compute"),
    "basis": ("", *BASES),
    "stage": ("", *STAGES),
    "confidence": ("", *CONFIDENCES),
}
