"""What a benchmark function returns, by the unit that its axis is labelled with: a time, or a rate that is a claim."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from roofline_engine.check import Claim, Measurement

from ..values import plain

#: Seconds of one, by how axes and keys spell it. A whole word: ``s`` is no part of another.
_TIMES = {
    **dict.fromkeys(("ns", "nanoseconds"), 1e-9),
    **dict.fromkeys(("us", "\u00b5s", "\u03bcs", "usec", "microseconds"), 1e-6),
    **dict.fromkeys(("ms", "msec", "milliseconds"), 1e-3),
    **dict.fromkeys(("s", "sec", "seconds"), 1.0),
}
_RATES = {
    **{f"{prefix}{flops}": ("compute", unit) for prefix, unit in (("g", 1e9), ("t", 1e12), ("p", 1e15))
       for flops in ("flops", "flop/s", "flops/s")},
    **{f"{prefix}{bps}": ("memory", unit) for prefix, unit in (("g", 1e9), ("t", 1e12)) for bps in ("b/s", "bps", "bytes/s")},
    "gib/s": ("memory", 2.0**30),
}  # fmt: skip
_WORDS = re.compile(r"[^\s()\[\],;:=]+")
SPREAD = "its spread is the least and the most that it returned"


class Unit(NamedTuple):
    """axis: ``memory`` or ``compute`` of a rate, empty for a time. base: of one in s, B/s or FLOP/s."""

    axis: str
    base: float


class Returned(NamedTuple):
    """problem: why it is neither a time nor a rate."""

    measurement: Measurement | None = None
    claims: tuple[Claim, ...] = ()
    problem: str = ""


def unit_of(label: str) -> Unit | None:
    """The unit in the label of an axis (``Runtime (us)``, ``TFLOPS``); None where it has none, or two."""
    found = set()
    for word in _WORDS.findall(label.lower()):
        if word in _RATES:
            found.add(Unit(*_RATES[word]))
        elif word in _TIMES:
            found.add(Unit("", _TIMES[word]))
    return found.pop() if len(found) == 1 else None


def understood(value: Any, label: str) -> Returned:
    """What a function returned: a figure, three with its spread around it, or a dict by unit."""
    value = plain(value)
    if isinstance(value, dict):
        return _by_key(value)
    figures = value if isinstance(value, list) else [value]
    if len(figures) not in (1, 3) or not all(_is_number(figure) for figure in figures):
        return Returned(problem=f"it returned {value!r:.60}, expected a number or three")
    unit = unit_of(label)
    if unit is None:
        return Returned(problem=f"no unit of time or rate in its ylabel {label!r:.60}")
    return _of(figures, unit)


def _of(figures: list[float], unit: Unit) -> Returned:
    first = figures[0] * unit.base
    if not (0 < first < math.inf):
        return Returned(problem=f"it returned {figures[0]!r:.60}, no time or rate")
    if unit.axis:
        return Returned(claims=(Claim(unit.axis, first),))
    low, high = sorted(figure * unit.base for figure in figures[1:]) if len(figures) == 3 else (first, first)
    spread = len(figures) == 3 and 0 < low <= first <= high < math.inf
    return Returned(Measurement("user", first, low, high, notes=(SPREAD,)) if spread else Measurement("user", first))


def _by_key(values: Mapping[str, Any]) -> Returned:
    found = Returned()
    for key, value in values.items():
        unit = unit_of(str(key))
        if unit is None or not _is_number(value):
            continue
        one = _of([value], unit)
        found = Returned(found.measurement or one.measurement, found.claims + one.claims, found.problem or one.problem)
    return found if found != Returned() else Returned(problem=f"it returned {dict(values)!r:.60}, and no key has a unit")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
