"""From the form of a profile to the rows of a Top-N, by kernel or by operation, with their shapes as in shapes.json."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..calls.recorded import NO_SHAPES, OpFacts, model
from ..inputs import Row, Times, TopN, times_of, typical_time
from ..kernels import classify, is_copy, short_name
from ..units import parse_dtype
from .form import MISSING, KernelUse, Profile, Unit

#: Kernels of one unit that its description names.
_NAMED = 3


class OpRow(NamedTuple):
    """One operation with its shapes: a row of the table by operation."""

    row: Row  # what the verdict is taken of
    facts: OpFacts | None
    times: Times
    kernels: tuple[KernelUse, ...]
    inside: str = ""  # the operation that has its time too


def topn_of(profile: Profile) -> TopN:
    """Return the kernels of a profile as a Top-N, each with each of its shapes; shares are of the time of all kernels."""
    totals = _totals(profile)
    rows = tuple(_row(unit, *totals) for unit in profile.units)
    return TopN(rows, problems=profile.problems, assumed_regime="unknown")


def op_rows(profile: Profile) -> list[OpRow]:
    """Return the operations of a profile, each with each of its shapes, by time; a kernel without one is a row of its own.

    Steps of other operations are rows too, whose time is counted there.
    """
    totals = _totals(profile)
    groups: dict[Any, list[Unit]] = defaultdict(list)
    for unit in (*profile.units, *profile.steps):
        # Layers with and without a sliding window record the same inputs, but choose other kernels.
        same = unit.op if unit.op is not None and unit.op.batch is None else (unit.op, unit.name)
        groups[same, unit.regime, unit.missing, bool(unit.borrowed_from), unit.inside].append(unit)
    rows = []
    for units in groups.values():
        unit = _merge(units)
        rows.append(OpRow(_row(unit, *totals), unit.op, unit.times, unit.kernels, unit.inside))
    return sorted(rows, key=lambda row: (bool(row.inside), -row.times.total_us))


def _merge(units: Sequence[Unit]) -> Unit:
    """Return the units of one operation as one, whichever kernels ran."""
    if len(units) == 1:
        return units[0]
    if all(unit.durations for unit in units):
        times = times_of([value for unit in units for value in unit.durations])
    else:
        calls, total = (sum(values) for values in zip(*((unit.times.calls, unit.times.total_us) for unit in units)))
        times = Times(calls, total)
    kernels: dict[tuple[str, Any, Any], KernelUse] = {}
    for use in (use for unit in units for use in unit.kernels):
        key = (use.name, use.grid, use.block)
        before = kernels.get(key)
        kernels[key] = (
            use
            if before is None
            else before._replace(launches=before.launches + use.launches, total_us=before.total_us + use.total_us)
        )
    uses = tuple(sorted(kernels.values(), key=lambda use: -use.total_us))
    return units[0]._replace(kernels=uses, times=times, durations=())


def _totals(profile: Profile) -> tuple[float, float]:
    """Return the time of all kernels, and of those that are no communication."""
    total = profile.total_us or sum(unit.times.total_us for unit in profile.units)
    communication = sum(unit.times.total_us for unit in profile.units if is_collective(unit.name))
    return total or 1.0, (total - communication) or 1.0


def is_collective(name: str) -> bool:
    return classify(name).op == "collective"


def _row(unit: Unit, total_us: float, compute_us: float) -> Row:
    facts, times = unit.op, unit.times
    time = typical_time(times)
    kernels = tuple(dict.fromkeys(use.name for use in unit.kernels))
    modeled = model(facts, kernels) if facts is not None else None
    remarks = [f"t_ms is the {time.basis} of {times.calls:g} calls"]
    if unit.borrowed_from:
        remarks.append(unit.borrowed_from)
    remarks += modeled.notes if modeled else ()
    missing = unit.missing
    if facts is None and not missing and classify(unit.name).op not in ("collective", "memcpy"):
        missing = "kernels_only"
    reason = MISSING.get(missing, "")
    if modeled is not None and modeled.case is None:
        reason = f"{facts.name if facts else ''}: {modeled.reason}"
        missing = "no_shapes" if modeled.reason == NO_SHAPES else ""
    return Row(
        name=unit.name,
        short_name=short_name(unit.name),
        pct=100.0 * times.total_us / total_us,
        calls=times.calls,
        avg_ms=time.t_us / 1e3,
        times=times,
        regime=unit.regime,
        unit=_describe_unit(facts, kernels),
        case=modeled.case if modeled else None,
        unmodeled=reason,
        compute_pct=None if is_collective(unit.name) else 100.0 * times.total_us / compute_us,
        missing=missing,
        framework_op=facts.name if facts else None,
        shape=describe_shapes(facts) if facts else None,
        remarks=tuple(remarks),
    )


def _describe_unit(facts: OpFacts | None, kernels: Sequence[str]) -> str:
    if facts is None:
        return "one launch"
    if len(kernels) == 1:
        return f"one call of {facts.name}"
    others = ", ".join(short_name(name) for name in kernels[1 : 1 + _NAMED])
    more = f" and {len(kernels) - 1 - _NAMED} more" if len(kernels) > 1 + _NAMED else ""
    return f"one call of {facts.name}, with the kernels {others}{more}"


def describe_shapes(facts: OpFacts) -> str:
    """Return the shapes and dtypes of an operation's tensors for people: ``8944x1024, 1024x2816 bf16``."""
    tensors = []
    for at, shape in enumerate(facts.shapes):
        dtype = facts.dtypes[at] if at < len(facts.dtypes) else ""
        if shape and isinstance(shape[0], tuple):
            tensors.append((f"{len(shape)} tensors", ""))
        elif dtype not in ("", "Scalar", "ScalarList", "TensorList", "GenericList"):
            tensors.append(("x".join(map(str, shape)) or "scalar", _short_dtype(dtype)))
    dtypes = list(dict.fromkeys(dtype for _, dtype in tensors if dtype))
    if len(dtypes) > 1:
        return ", ".join(f"{text} {dtype}".rstrip() for text, dtype in tensors)
    return " ".join([", ".join(text for text, _ in tensors), *dtypes])


def _short_dtype(dtype: str) -> str:
    try:
        return parse_dtype(dtype).name
    except ValueError:
        return dtype


def shapes_of(rows: Iterable[Row]) -> dict[str, list[Mapping[str, object]]]:
    """Return shapes.json for these rows; a name that several rows share has the shape in it."""
    return {row.name: [row.case] for row in rows if row.case is not None and not is_copy(row.name)}


def named_apart(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with one name each: a kernel that ran with several shapes has the shape in its name."""
    counts: dict[str, int] = defaultdict(int)
    for row in rows:
        counts[row.name] += 1
    seen: dict[str, int] = defaultdict(int)
    named = []
    for row in rows:
        if counts[row.name] > 1:
            parts = [part for part in (row.framework_op, row.shape, row.regime if row.regime else None) if part]
            name = f"{row.name} [{' '.join(parts)}]" if parts else row.name
            seen[name] += 1
            row = row._replace(name=name if seen[name] == 1 else f"{name} #{seen[name]}")
        named.append(row)
    return named
