"""An artifact of ``analyze`` or a report of a run to the model of the figure: the engine's own percentages, its own roofs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from roofline_engine.entry import FIELDS
from roofline_engine.roofs import attainable, below_ceiling, binds
from roofline_engine.units import parse_dtype, printable, quantity

from .machine import Measured, added
from .model import (
    ROUNDING,
    WIDE,
    Bandwidth,
    Ceiling,
    Kernel,
    Left,
    Model,
    Roofs,
    aliases,
    counted,
    named,
    over_its_roof,
    sensible,
    shortened,
    titled,
)

#: Baselines of the same kernel and shape; a ratio against another kind says nothing of the way gone here.
_COMPARABLE = ("live", "previous")
_ENGINES = {"matrix": "flops", "vector": "vector"}
#: How far a printed ratio and one of printed figures may be apart: each of them has two digits or more.
_AGREES = 1.1
#: What the entry says of the way to the roof; the artifacts of other tools do not have it.
_KEY = "hard_limit_speedup"
#: Reasons for which the roof of the drawing is not what limits the row: a cache, the launch, a peak that nobody has checked.
_OTHER_ROOF = ("cache_resident", "dispatch_bound", "unvalidated_peak")
#: Two dtypes differ by far more; a ridge point is printed with four digits or more.
_SAME = 1e-3


def model(
    document: Mapping[str, Any],
    label: str,
    device: str | None = None,
    title: str | None = None,
    more: Measured | None = None,
) -> Model:
    """The figure of the rows of one device of ``document``.

    device: which one, where a report has several; the one with most rows otherwise. more: what was measured of a CPU.

    Raises:
        ValueError: for a device that the document does not have, and for ``more`` of another.
    """
    entries = [one if isinstance(one, Mapping) else {} for one in document["entries"]]
    name, peaks = _device(document, entries, label, device)
    known = any(peaks.get(key) for key in ("hbm_bw_bytes_s", *_ENGINES.values()))
    bandwidths = _bandwidths(peaks)
    kernels: list[Kernel] = []
    left: list[Left] = []
    used: dict[tuple[str, str], None] = {}
    names = [named(entry.get("short_name") or entry.get("name"), at) for at, entry in enumerate(entries)]
    labels = aliases(names)
    for at, (entry, shown) in enumerate(zip(entries, names)):
        other = entry.get("device") if name is not None else None
        if other is not None and other != name:
            why = f"of another device, {shortened(str(other), 40)}: --device draws it"
            left.append(Left(row=at, name=shown, kind="other device", why=why))
            continue
        found = _kernel(entry, at, shown, peaks, labels.get(shown, ""))
        if isinstance(found, Left):
            left.append(found)
            continue
        kernels.append(found[0])
        used.update(dict.fromkeys(found[1]))
    ceilings = _ceilings(peaks, used)
    if more is not None:
        if peaks.get("product") != "cpu":
            raise ValueError(f"{label}: its rows are not of a CPU, whose ceilings were given")
        bandwidths, ceilings, _ = added(more, bandwidths, ceilings, [dtype for _, dtype in used])
    kernels = [_explained(one, ceilings) for one in kernels]
    told = [_word(peaks, "source"), f"{_word(peaks, 'confidence')} confidence"]
    roof = [f"peaks: {', '.join(told)}"] if known else ["no peaks known"] if peaks else []
    product = peaks.get("product") or peaks.get("gfx") or name or document.get("gfx")
    basis = ", ".join([*([shortened(str(product), 40)] if product else ["no device known"]), *roof])
    if any(one.share is None for one in kernels):
        kernels = [_without_share(one) for one in kernels]
    return Model(
        title=title or titled(kernels, left, Roofs(bandwidths, ceilings)),
        subtitle=counted(kernels, left, basis),
        bandwidths=bandwidths,
        ceilings=ceilings,
        kernels=tuple(kernels),
        left=tuple(left),
        notes=(shortened(str(peaks["note"]), 400),) if peaks.get("note") else (),
        columns=_columns(entries),
    )


def _without_share(kernel: Kernel) -> Kernel:
    return kernel if kernel.share is None else replace(kernel, share=None)


def _device(
    document: Mapping[str, Any], entries: Sequence[Mapping[str, Any]], label: str, device: str | None
) -> tuple[str | None, Mapping[str, Any]]:
    """Which device's rows are drawn, and its peaks; an artifact has one without a name."""
    devices = document.get("devices")
    peaks = document.get("peaks")
    if not isinstance(devices, Mapping) or not devices:
        if device is not None:
            raise ValueError(f"{label}: rows of one device alone, --device has nothing to choose")
        return None, peaks if isinstance(peaks, Mapping) else {}
    if device is not None and device not in devices:
        raise ValueError(f"{label}: no device {printable(device)!r}, there are {', '.join(map(printable, devices))}")
    rows = Counter(name for one in entries if isinstance(name := one.get("device"), str) and _finite(one, "achieved_flops"))
    name = device or max(devices, key=lambda one: rows[one])
    found = devices[name]
    return name, found if isinstance(found, Mapping) else {}


def _finite(entry: Mapping[str, Any], key: str) -> float | None:
    value = entry.get(key)
    if type(value) is float:
        return value if math.isfinite(value) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an int beyond the range of a double
        return None


def _above(entry: Mapping[str, Any], key: str) -> float | None:
    """A positive figure that a drawing can hold; None for any other, as for what is missing."""
    value = _finite(entry, key)
    return value if value is not None and sensible(value) else None


def _word(entry: Mapping[str, Any], key: str) -> str:
    """A short text for people; ``unknown`` where there is none."""
    value = entry.get(key)
    return shortened(value, 40) if isinstance(value, str) and value else "unknown"


def _one_of(entry: Mapping[str, Any], key: str) -> str:
    """A word of the closed set of its field; ``unknown`` for another."""
    value = entry.get(key)
    return value if isinstance(value, str) and value in FIELDS[key].choices else "unknown"


def _rate(peaks: Mapping[str, Any], engine: str, dtype: str) -> float | None:
    table = peaks.get(_ENGINES[engine])
    return _above(table, dtype) if isinstance(table, Mapping) else None


def _bandwidths(peaks: Mapping[str, Any]) -> tuple[Bandwidth, ...]:
    found = []
    rated = _above(peaks, "hbm_bw_bytes_s")
    if rated:
        basis = "measured" if peaks.get("source") == "measured" else "rated"
        found.append(Bandwidth(name=f"memory, {basis}", bytes_s=rated, level="memory", basis=basis))
    reached = peaks.get("achievable")
    measured = _above(reached, "hbm_bw_bytes_s") if isinstance(reached, Mapping) else None
    if measured:
        found.append(Bandwidth(name="memory, measured", bytes_s=measured, level="memory", basis="measured"))
    return tuple(found)


def _compute_roof(entry: Mapping[str, Any], peaks: Mapping[str, Any]) -> float | None:
    """The rate of the compute roof that the row was held against: what gives its ridge point, else its utilisation."""
    ridge_point, wide = _above(entry, "ridge_point"), _above(peaks, "hbm_bw_bytes_s")
    if ridge_point and wide:
        return ridge_point * wide
    util, achieved = _above(entry, "compute_util"), _above(entry, "achieved_flops")
    return achieved / util if util and achieved else None


def _listed(rate: float, entry: Mapping[str, Any], peaks: Mapping[str, Any]) -> tuple[str, str, float] | None:
    """Unit, dtype and rate of the peak that is this compute roof; of an artifact without dtypes, the first of that rate."""
    try:
        own = parse_dtype(entry.get("dtype")).peak
    except ValueError:
        own = None
    for engine, table in _ENGINES.items():
        rates = peaks.get(table)
        for dtype in [own] if own else rates if isinstance(rates, Mapping) else ():
            listed = _rate(peaks, engine, dtype)
            if listed is not None and abs(rate / listed - 1) < _SAME:
                return engine, dtype, listed
    return None


def _kernel(
    entry: Mapping[str, Any], at: int, name: str, peaks: Mapping[str, Any], alias: str
) -> tuple[Kernel, list[tuple[str, str]]] | Left:
    def left(kind: str, why: str) -> Left:
        return Left(row=at, name=name, kind=kind, why=why)

    reason = _word(entry, "unknown_reason") if entry.get("unknown_reason") else ""
    if entry.get("modeled") is False or reason == "unmodelled":
        first = str(entry.get("notes") or "").partition("; ")[0]
        return left("unmodelled", f"no model of its work{': ' + shortened(first, 160) if first else ''}")
    if _above(entry, "t_unit_ms") is None and _above(entry, "t_ms") is None:
        return left("not measured", "no time, so no rate")
    raw, axis = _finite(entry, "roofline_pct_raw"), _word(entry, "roof_axis")
    if entry.get("suspect") or (raw is not None and raw > 1):
        which = "" if axis == "unknown" else f"{axis} "
        told = f"{raw:.3g} times its {which}roof" if raw is not None else "its rate is no evidence"
        return left("impossible", f"{told}: the work model, the peak or the time is wrong")
    if _finite(entry, "flops_est") == 0:
        wide, part = _above(entry, "achieved_bw_bytes_s"), _above(entry, "roofline_pct")
        told = f"; {quantity(wide, 'B/s')}" if wide else ""
        told += f", {100 * part:.1f}% of the memory roof" if part else ""
        return left("copy", f"does no FLOPs, so it has no place on this plot{told}")
    rate, intensity = _above(entry, "achieved_flops"), _above(entry, "arithmetic_intensity")
    if rate is None or intensity is None:
        return left("unusable", "no rate and intensity that a machine could have")
    flops_s = _compute_roof(entry, peaks)
    found = _listed(flops_s, entry, peaks) if flops_s else None
    flops_s = found[2] if found else flops_s
    wide = _above(peaks, "hbm_bw_bytes_s")
    share = _finite(entry, "pct_gpu_time")
    fraction = _above(entry, "roofline_pct")
    roof = attainable(intensity, wide, flops_s) if flops_s or axis != "compute" else None
    if roof and rate / roof > ROUNDING:
        return over_its_roof(at, name, rate, roof)
    if roof and fraction and not 1 / _AGREES <= fraction * roof / rate <= _AGREES:
        return left("unusable", f"its roofline_pct is {fraction:.3g}, its rate {rate / roof:.3g} of the roof at its intensity")
    kernel = Kernel(
        row=at,
        name=name,
        alias=alias,
        rate=rate,
        spots=(("", intensity),),
        fraction=fraction,
        bytes_s=wide,
        flops_s=flops_s,
        axis=binds(intensity, wide, flops_s) or (axis if axis != "unknown" else None),
        bound=_one_of(entry, "bound_type"),
        verdict=_one_of(entry, "headroom_class"),
        reason=reason,
        share=share if share is not None and share >= 0 else None,
        dtype=found[1] if found and entry.get("dtype") else None,
        before=_before(entry, intensity, rate),
        span=_span(entry, intensity, rate),
        basis=_basis(entry),
        interval=_interval(entry),
        limited=_limited(entry, reason),
    )
    axes = [(found[0], found[1])] if found else []
    return kernel, axes


def _basis(entry: Mapping[str, Any]) -> str:
    sure = _word(entry, "confidence")
    if entry.get("measurement_basis"):
        return f"{_word(entry, 'measurement_basis')}, {sure}"
    return f"{sure} confidence" if entry.get("confidence") else ""


def _limited(entry: Mapping[str, Any], reason: str) -> bool:
    """Whether the roof over a row limits it; one without a target has a roof all the same."""
    return reason == "no_target" or (reason not in _OTHER_ROOF and (_KEY not in entry or _above(entry, _KEY) is not None))


def _before(entry: Mapping[str, Any], intensity: float, rate: float) -> tuple[float, float] | None:
    base, now = entry.get("baseline"), entry.get("measurement")
    if not (isinstance(base, Mapping) and isinstance(now, Mapping)) or base.get("kind") not in _COMPARABLE:
        return None
    old, new = _above(base, "t_s"), _above(now, "t_s")
    before = rate * new / old if old and new else 0.0
    return (intensity, before) if sensible(before) else None


def _span(entry: Mapping[str, Any], intensity: float, rate: float) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """The candidates for the work of one unit, where they differ, else the quartiles of its time."""
    t_ms = _above(entry, "t_unit_ms")
    ends = []
    for one in entry.get("byte_models") or ():
        if isinstance(one, Mapping) and one.get("in_range") is not False and one.get("feasible") is not False and t_ms:
            nbytes, flops = _above(one, "bytes"), _above(one, "flops")
            if nbytes and flops and sensible(flops / nbytes) and sensible(flops / t_ms):
                ends.append((flops / nbytes, flops / (t_ms / 1e3)))
    ends.sort()
    if len(ends) > 1 and ends[-1][0] / ends[0][0] >= WIDE:
        return ends[0], ends[-1]
    if ends and max(y for _, y in ends) / min(y for _, y in ends) >= WIDE:
        by_rate = sorted(ends, key=lambda end: end[1])
        return by_rate[0], by_rate[-1]
    now = entry.get("measurement")
    if isinstance(now, Mapping):
        t, fast, slow = (_above(now, key) for key in ("t_s", "q1_s", "q3_s"))
        if t and fast and slow and slow / fast >= WIDE and sensible(rate * t / slow) and sensible(rate * t / fast):
            return (intensity, rate * t / slow), (intensity, rate * t / fast)
    return None


def _interval(entry: Mapping[str, Any]) -> str:
    span = entry.get("roofline_pct_range")
    if not isinstance(span, Sequence) or len(span) != 2 or not all(isinstance(end, (int, float)) for end in span):
        return ""
    low, high = (f"{100 * end:.1f}" for end in span)
    return f"{low}% of roof" if low == high else f"{low} to {high}% of roof"


def _ceilings(peaks: Mapping[str, Any], used: Mapping[tuple[str, str], None]) -> tuple[Ceiling, ...]:
    """The compute roofs that rows stand under, the vector units' of the same dtypes, and what was measured of them."""
    wanted = dict(used)
    for _, dtype in used:
        for engine in _ENGINES:
            wanted.setdefault((engine, dtype), None)
    if not wanted:  # no row to say: the widest vector and matrix rates that are common
        wanted = dict.fromkeys((engine, dtype) for engine in _ENGINES for dtype in ("bf16", "fp32"))
    basis = "measured" if peaks.get("source") == "measured" else "rated"
    reached = peaks.get("achievable")
    found = []
    for engine, dtype in wanted:
        rate = _rate(peaks, engine, dtype)
        twin = _rate(peaks, "matrix", dtype)
        if rate is None or (engine == "vector" and rate == twin):
            continue
        meaning = "no faster than vector units" if engine == "vector" and twin else ""
        found.append(Ceiling(name=f"{dtype} {engine}", flops_s=rate, dtype=dtype, unit=engine, basis=basis, meaning=meaning))
        low = _rate(reached, engine, dtype) if isinstance(reached, Mapping) else None
        if low is not None:
            name = f"{dtype} {engine}, measured"
            found.append(Ceiling(name=name, flops_s=low, dtype=dtype, unit=engine, basis="measured"))
    return tuple(sorted(found, key=lambda one: (-one.flops_s, one.name)))


def _explained(kernel: Kernel, ceilings: Sequence[Ceiling]) -> Kernel:
    lower = [one for one in ceilings if one.dtype == kernel.dtype and one.meaning and one.flops_s < (kernel.flops_s or 0)]
    under = below_ceiling(kernel.intensity, kernel.rate, kernel.bytes_s, [one.flops_s for one in lower])
    return kernel if under is None else replace(kernel, below=next(one for one in lower if one.flops_s == under))


#: Shown by the figure itself, or too long for a row.
_ELSEWHERE = {"name", "short_name", "byte_models", "arithmetic_intensity", "achieved_flops", "roofline_pct", "dtype"}
_ELSEWHERE |= {"pct_gpu_time", "bound_type", "headroom_class"}
_LONGEST_NOTE = 600


def _columns(entries: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The fields of the entries in the order of their definition, then what a run adds."""
    columns: dict[str, list[Any]] = {}
    for key in (*(field for field in FIELDS if field not in _ELSEWHERE), "nodeid", "kernel", "device", "failed"):
        columns[key] = [entry.get(key) for entry in entries]
    for key, inner in (("work", "source"), ("measurement", "source"), ("check", "status"), ("check", "message")):
        values = [entry.get(key) for entry in entries]
        columns[f"{key} {inner}"] = [one.get(inner) if isinstance(one, Mapping) else None for one in values]
    words: dict[str, str] = {}
    shown = {key: _column(values, words) for key, values in columns.items()}
    return {key: values for key, values in shown.items() if any(one is not None and one not in ("", []) for one in values)}


def _column(values: list[Any], words: dict[str, str]) -> list[Any]:
    """A column by what is in it, since most are of figures alone. words: as of ``_value``."""
    kinds = set(map(type, values))
    if kinds <= {int, bool, type(None)}:
        return values
    if kinds <= {float, int, bool, type(None)}:
        return [one if type(one) is not float or math.isfinite(one) else None for one in values]
    return [_value(one, words) for one in values]


def _value(value: object, words: dict[str, str]) -> object:
    """What picking shows of a field. words: those that were shortened before, since many rows say the same."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        if value not in words:
            words[value] = shortened(value, _LONGEST_NOTE)
        return words[value]
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, list) and not any(isinstance(one, (list, dict)) for one in value):
        return [_value(one, words) for one in value[:8]]
    return None
