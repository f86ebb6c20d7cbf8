"""Values of a JSON record: times, printed rates, text that is safe to print."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roofline_engine.check import Claim
from roofline_engine.units import number, printable

from ..declare import build_work
from .row import RecordRow
from .table import RATES, TIMES, half_digit

#: Of one second; to divide by 1e9 is exact where to multiply by 1e-9 is not.
_PER_SECOND = {spelling: float(round(1 / unit)) for spelling, unit in TIMES.items()}
#: The note of a row with bytes alone.
NO_FLOPS = "FLOPs are not known: only the memory roof is tested"
_LONGEST_LABEL = 200
_LONGEST_SHOWN = 40


def seconds(value: object, key: str, unit: str) -> float:
    """A time above zero in seconds; a string is not a time, since JSON has numbers. Raises ValueError with key and value."""
    if isinstance(value, str):
        raise ValueError(f"{key} is {shown(value)}, expected a number of {unit}")
    if value is None:
        raise ValueError(f"no time: {key} is missing")
    t_s = number(value, key, above=0.0) / _PER_SECOND[unit]
    if not t_s:
        raise ValueError(f"{key} is {shown(value)}, too small for a time in {unit}")
    return t_s


def maybe_seconds(value: object, key: str, unit: str) -> tuple[float | None, tuple[str, ...]]:
    """A time that a row can do without: None when it is missing, with a note when it is not usable."""
    if value is None:
        return None, ()
    try:
        return seconds(value, key, unit), ()
    except ValueError as error:
        return None, (str(error),)


def ratio(value: object) -> float | None:
    """A speedup that a tool computed; None for 0, null and what is not a number, which all mean that it is missing."""
    try:
        return None if isinstance(value, str) else float(number(value, "speedup", above=0.0))
    except ValueError:
        return None


def timed(
    row: str, value: object, key: str, unit: str, work: tuple[Mapping[str, Any] | None, str] = (None, ""), **fields: Any
) -> RecordRow:
    """The record of a row with its time, refused when that is not a time. work: its keywords, or None and why."""
    fields.update(row=row, work=work[0], no_work=work[1])
    try:
        return RecordRow(t_s=seconds(value, key, unit), hand_written=value == 1, **fields)
    except ValueError as error:
        return RecordRow(refused=str(error), refused_code="time", **fields)


def label(value: object) -> str:
    """Text of the record that is safe to print, shortened; empty for another value."""
    if not isinstance(value, str):
        return ""
    text = printable(value)
    return text if len(text) <= _LONGEST_LABEL else text[: _LONGEST_LABEL - 3] + "..."


def shown(value: object) -> str:
    """A value in a message."""
    text = ascii(value)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."


def mapping(value: object) -> Mapping[str, Any]:
    """``value`` when it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    """``value`` when it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def flag(value: object) -> bool | None:
    """True or False; None for anything else."""
    return value if isinstance(value, bool) else None


def count(value: object) -> int | None:
    """A whole number of at least 1; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 10**12 else None


def first(values: Mapping[str, Any], *keys: str) -> Any:
    """The value of the first of ``keys`` that is not null; None when there is none."""
    return next((values[key] for key in keys if values.get(key) is not None), None)


def buildable(keywords: Mapping[str, Any]) -> tuple[dict[str, Any] | None, str]:
    """The keywords when work can be built from them; else None and the reason."""
    try:
        build_work(keywords)
    except (ValueError, OverflowError) as error:
        return None, str(error)
    return dict(keywords), ""


def claims(row: Mapping[str, Any]) -> tuple[Claim, ...]:
    """The rates that a row prints, by the unit in their key; a value that is not a number claims nothing."""
    found = []
    for key, value in row.items():
        rate = RATES.get(key.lower().removeprefix("bandwidth_")) if isinstance(key, str) else None
        if rate is None or isinstance(value, str) or value is None:
            continue
        try:
            printed = number(value, key, minimum=0.0)
        except ValueError:
            continue
        axis, base = rate
        found.append(Claim(axis, printed * base, half_digit(repr(printed), printed)))
    return tuple(found)
