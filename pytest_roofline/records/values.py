"""Values of a JSON record: times, printed rates, text that is safe to print."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from roofline_engine.check import Claim, Mistake
from roofline_engine.units import half_digit, is_time, number, printable
from roofline_engine.work import Work

from ..declare import build_work
from .source import RecordRow
from .table import RATES, TIMES

#: Of one second; to divide by 1e9 is exact where to multiply by 1e-9 is not.
_PER_SECOND = {spelling: float(round(1 / unit)) for spelling, unit in TIMES.items()}
#: The note of a row with bytes alone.
NO_FLOPS = "FLOPs are not known: only the memory roof is tested"
_LONGEST_LABEL = 200
_LONGEST_SHOWN = 40


def seconds(value: object, key: str, unit: str) -> float:
    """Return a time above zero in seconds. Raises ValueError with key and value, also for a string, since JSON has numbers."""
    if isinstance(value, str):
        raise ValueError(f"{key} is {short_repr(value)}, expected a number of {unit}")
    if value is None:
        raise ValueError(f"no time: {key} is missing")
    t_s = number(value, key, above=0.0) / _PER_SECOND[unit]
    if not is_time(t_s):
        raise ValueError(f"{key} is {short_repr(value)}, too {'small' if t_s < 1 else 'large'} for a time in {unit}")
    return t_s


def maybe_seconds(row: Mapping[str, Any], key: str, unit: str = "ms") -> tuple[float | None, tuple[str, ...]]:
    """Return a time that a row can do without: None when it is missing, with a note when it is not usable."""
    if row.get(key) is None:
        return None, ()
    try:
        return seconds(row[key], key, unit), ()
    except ValueError as error:
        return None, (str(error),)


def ratio(value: object) -> float | None:
    """Return a speedup that a tool computed; None for 0, null and other values, which all mean that it is missing."""
    try:
        return None if isinstance(value, str) else float(number(value, "speedup", above=0.0))
    except ValueError:
        return None


def build_row(
    where: str,
    row: Mapping[str, Any],
    key: str,
    unit: str = "ms",
    *,
    work: tuple[Mapping[str, Any] | None, str],
    baseline: tuple[str, float | None] = ("unknown", None),
    speedup: float | None = None,
    clock: str = "device-event",
    **fields: Any,
) -> RecordRow:
    """Return the record of a row, refused without a time.

    Args:
        where: its place in the file.
        row: the values of the row; ``key`` is the one of its time and ``unit`` the unit.
        work: the keywords of its work, or None and the reason.
        baseline: its kind and its time.
        speedup: over the baseline, for a row that does not give the baseline's time.
        clock: as of Measurement.
        fields: other fields of the RecordRow.
    """
    kind, baseline_t_s = baseline
    if baseline_t_s is not None:
        speedup = None
    fields.update(row=where, work=work[0], no_work=work[1], clock=clock, baseline_t_s=baseline_t_s, speedup=speedup)
    fields["baseline_kind"] = kind if baseline_t_s is not None or speedup is not None else "unknown"
    try:
        t_s, printed = seconds(row.get(key), key, unit), row[key]
        return RecordRow(t_s=t_s, rounding=half_digit(repr(printed), printed), placeholder_time=printed == 1, **fields)
    except ValueError as error:
        return RecordRow(refused=str(error), refused_code="time", **fields)


def judge(values: Iterable[bool | None]) -> bool | None:
    """Judge an output by several checks: True when all pass, False when one fails, None when none was made."""
    verdicts = [value for value in values if value is not None]
    return all(verdicts) if verdicts else None


def label(value: object) -> str:
    """Return a text so that it is short and safe to print; empty for another value."""
    if not isinstance(value, str):
        return ""
    text = printable(value)
    return text if len(text) <= _LONGEST_LABEL else text[: _LONGEST_LABEL - 3] + "..."


def short_repr(value: object) -> str:
    """Return a value as messages show it."""
    text = ascii(value)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."


def mapping(value: object) -> Mapping[str, Any]:
    """Return ``value`` when it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    """Return ``value`` when it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def flag(value: object) -> bool | None:
    """Return True or False; None for anything else."""
    return value if isinstance(value, bool) else None


def count(value: object) -> int | None:
    """Return a whole number of at least 1; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 10**12 else None


def first(values: Mapping[str, Any], *keys: str) -> Any:
    """Return the value of the first of ``keys`` that is not null; None when all are."""
    return next((values[key] for key in keys if values.get(key) is not None), None)


def check_work(keywords: Mapping[str, Any]) -> tuple[dict[str, Any] | None, str]:
    """Return the keywords when work can be built from them; else None and the reason."""
    try:
        build_work(keywords)
    except (ValueError, OverflowError) as error:
        return None, str(error)
    return dict(keywords), ""


def totals_of(work: Work) -> tuple[dict[str, Any], tuple[Mistake, ...]]:
    """Return the keywords of a work by its primary byte model; the other models are known wrong counts."""
    keywords = {
        "op": work.op,
        "bytes": work.bytes,
        "flops": work.flops,
        "dtype": work.dtype.name,
        "weight_dtype": work.weight_dtype.name,
        "engine": work.engine,
        "coverage": work.coverage,
        "least": work.least,
    }
    return keywords, tuple(
        Mistake("overcounted_bytes", work.bytes / model.bytes, "memory", f"bytes by {label(model.model)}", in_work=True)
        for model in work.candidates[1:]
        if 0 < model.bytes < work.bytes
    )


def claims(row: Mapping[str, Any]) -> tuple[Claim, ...]:
    """Return the rates that a row prints, by the unit in their key; a value that is not a number claims nothing."""
    rates = []
    for key, value in row.items():
        rate = RATES.get(key.lower().removeprefix("bandwidth_")) if isinstance(key, str) else None
        if rate is None or isinstance(value, str) or value is None:
            continue
        try:
            printed = number(value, key, minimum=0.0)
        except ValueError:
            continue
        axis, base = rate
        rates.append(Claim(axis, printed * base, half_digit(repr(printed), printed)))
    return tuple(rates)
