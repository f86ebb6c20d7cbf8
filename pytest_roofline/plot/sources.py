"""Read the sources of a chart: a report or an artifact, a plain table, and the measured ceilings of a CPU."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from roofline_engine.entry import FIELDS, HEADROOM_CLASSES
from roofline_engine.roofs import attainable, below_ceiling, binds
from roofline_engine.units import number, parse_dtype, printable, quantity

from ..ceilings.store import LEVELS, SCHEMA, Ceilings
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
    impossible,
    meaning_of,
    named,
    over_its_roof,
    ranged,
    sensible,
    shortened,
    titled,
)

#: What is nearer to a roof than this is the roof.
_UNDER = 0.99
_NAMED = {"vector_fma": "FMA", "gemm": "GEMM", "vector": "no FMA", "scalar": "scalar"}


class Measured(NamedTuple):
    """The measured roofs of one machine."""

    bandwidths: tuple[Bandwidth, ...]
    ceilings: tuple[Ceiling, ...]
    note: str


def is_record(document: object) -> bool:
    return isinstance(document, Mapping) and document.get("schema") == SCHEMA


def measured(document: Any, label: str) -> Measured:
    """The roofs in a record of ceilings, with all threads.

    Raises:
        ValueError: for what is no such record, in one line that names ``label``.
    """
    try:
        record = Ceilings.from_json(document)
    except ValueError as error:
        raise ValueError(f"{label}: no ceilings of roofline peaks measure: {error}") from None
    threads = max((item.threads for item in record.items), default=0)
    items = [item for item in record.items if item.threads == threads]
    bandwidths = []
    for level in reversed(LEVELS):
        found = sorted((item for item in items if item.level == level), key=lambda item: -item.value)
        for item in found if level == "DRAM" else found[:1]:  # of a cache the best, of memory each kind of traffic
            name = f"{level} {item.name}"
            bandwidths.append(Bandwidth(name=name, bytes_s=item.value, level=level.lower(), basis="measured"))
    ceilings = []
    for item in items:
        if item.kind == "compute":
            name = f"{item.dtype} {_NAMED[item.name]}"
            made = Ceiling(name=name, flops_s=item.value, dtype=item.dtype, basis="measured", meaning=meaning_of(name))
            ceilings.append(made)
    return Measured(tuple(bandwidths), tuple(ceilings), record.peaks().note)


def machine_chart(document: Any, label: str, title: str | None) -> Model:
    """The figure of a machine alone."""
    found = measured(document, label)
    return Model(
        title=title or titled((), (), Roofs(found.bandwidths, found.ceilings)),
        subtitle=counted((), (), "roofs: measured"),
        bandwidths=found.bandwidths,
        ceilings=found.ceilings,
        kernels=(),
        notes=(found.note,),
    )


def added(found: Measured, bandwidths: tuple[Bandwidth, ...], ceilings: tuple[Ceiling, ...], dtypes: Iterable[str]) -> Measured:
    """What ``found`` adds to the roofs that rows were judged by, which stay the roofs: nothing over those is a roof here."""
    memory = max((one.bytes_s for one in bandwidths), default=None)
    tops = {one.dtype: one.flops_s for one in reversed(ceilings)}
    wide = tuple(
        one for one in found.bandwidths if one.level != LEVELS[-1].lower() or memory is None or one.bytes_s < _UNDER * memory
    )
    used = set(dtypes)
    low = tuple(one for one in found.ceilings if one.dtype in used and one.flops_s < _UNDER * tops.get(one.dtype, 0.0))
    return Measured((*bandwidths, *wide), tuple(sorted((*ceilings, *low), key=lambda one: -one.flops_s)), found.note)


BASES = ("rated", "measured", "given")
#: Keys of a rate and of a bandwidth, with the factor to FLOP/s and bytes/s.
_RATES = {"flops_s": 1.0, "gflops": 1e9}
_BANDWIDTHS = {"bytes_s": 1.0, "gbs": 1e9}


def table_chart(rows: Sequence[Mapping[str, Any]], roofs: Mapping[str, Any], label: str, title: str | None = None) -> Model:
    """The figure of ``rows`` under ``roofs``, an object with ``ceilings`` and ``bandwidths``.

    A row that cannot be drawn is listed with its reason. label: names the source in messages.

    Raises:
        ValueError: for a roof that cannot be meant, in one line.
    """
    ceilings = tuple(_ceiling(one, f"{label}: ceilings[{at}]") for at, one in _each(roofs, "ceilings", label))
    bandwidths = tuple(_bandwidth(one, f"{label}: bandwidths[{at}]") for at, one in _each(roofs, "bandwidths", label))
    ceilings, bandwidths = tuple(dict.fromkeys(ceilings)), tuple(dict.fromkeys(bandwidths))  # the same limit twice is one
    machine = Roofs(bandwidths, ceilings)
    kernels: list[Kernel] = []
    left: list[Left] = []
    names = [named(row.get("name"), at) if isinstance(row, Mapping) else "" for at, row in enumerate(rows)]
    shown = aliases(names)
    for at, (row, name) in enumerate(zip(rows, names)):
        if not isinstance(row, Mapping):
            left.append(Left(row=at, name=f"row {at + 1}", kind="unusable", why=f"is {type(row).__name__}, not an object"))
            continue
        try:
            found = _table_kernel(row, at, name, machine, shown.get(name, ""))
        except ValueError as error:
            left.append(Left(row=at, name=name, kind="unusable", why=str(error)))
            continue
        if isinstance(found, Left):
            left.append(found)
        else:
            kernels.append(machine.over(found))
    kernels, wrong = impossible(kernels)
    if any(one.verdict != "none" for one in kernels):  # where some have a verdict, one without is unknown
        kernels = [replace(one, verdict="unknown") if one.verdict == "none" else one for one in kernels]
    left += wrong
    bases = sorted({one.basis for one in ceilings} | {one.basis for one in bandwidths})
    return Model(
        title=title or titled(kernels, left, machine),
        subtitle=counted(kernels, left, f"roofs: {', '.join(bases)}" if bases else "no roof given"),
        bandwidths=bandwidths,
        ceilings=ceilings,
        kernels=tuple(kernels),
        left=tuple(sorted(left, key=lambda one: one.row)),
        columns=_table_columns(rows, kernels),
    )


def _each(roofs: Mapping[str, Any], key: str, label: str) -> list[tuple[int, Mapping[str, Any]]]:
    found = roofs.get(key, [])
    if not isinstance(found, Sequence) or isinstance(found, str):
        raise ValueError(f"{label}: {key} is {type(found).__name__}, expected a list of objects")
    for at, one in enumerate(found):
        if not isinstance(one, Mapping):
            raise ValueError(f"{label}: {key}[{at}] is {type(one).__name__}, expected an object")
    return list(enumerate(found))


def _figure(one: Mapping[str, Any], keys: Mapping[str, float], where: str) -> float | None:
    """The one figure of ``keys`` that is given, in SI; None where none is."""
    given = [key for key in keys if one.get(key) is not None]
    if len(given) > 1:
        raise ValueError(f"{where}: both {given[0]} and {given[1]}, expected one")
    return number(one[given[0]], f"{where} {given[0]}".strip()) * keys[given[0]] if given else None


def _roof(one: Mapping[str, Any], keys: Mapping[str, float], where: str) -> float:
    value = _figure(one, keys, where)
    if value is None:
        raise ValueError(f"{where}: expected {' or '.join(keys)}")
    return ranged(value, where)


def _table_basis(one: Mapping[str, Any], where: str) -> str:
    basis = one.get("basis", "given")
    if basis not in BASES:
        raise ValueError(f"{where}: basis is {basis!r}, expected {', '.join(BASES)}")
    return str(basis)


def _ceiling(one: Mapping[str, Any], where: str) -> Ceiling:
    rate = _roof(one, _RATES, where)
    name = shortened(str(one.get("name") or quantity(rate, "FLOP/s")), 40)
    unit = one.get("unit")
    return Ceiling(
        name=name,
        flops_s=rate,
        dtype=_dtype(one.get("dtype")),
        unit=None if unit is None else shortened(str(unit), 20),
        basis=_table_basis(one, where),
        meaning=meaning_of(name),
    )


def _bandwidth(one: Mapping[str, Any], where: str) -> Bandwidth:
    rate = _roof(one, _BANDWIDTHS, where)
    level = shortened(str(one.get("level") or ""), 20)
    name = shortened(str(one.get("name") or level or quantity(rate, "B/s")), 40)
    return Bandwidth(name=name, bytes_s=rate, level=level.lower(), basis=_table_basis(one, where))


def _dtype(value: object) -> str | None:
    """A dtype by the table's name where it has one; another word stays as it is, since it only has to match its ceiling."""
    if value is None or value == "":
        return None
    try:
        dtype = parse_dtype(value)
    except ValueError:
        return shortened(str(value), 20)
    return dtype.peak or dtype.name


def _table_kernel(row: Mapping[str, Any], at: int, name: str, roofs: Roofs, alias: str) -> Kernel | Left:
    rate = _figure(row, _RATES, "")
    moved = _figure(row, _BANDWIDTHS, "")
    spots = _spots(row, roofs.bandwidths)
    if rate is None and moved and len(spots) == 1 and not spots[0][0]:
        rate = spots[0][1] * moved
    if rate == 0 or (rate is None and moved):
        why = f"{'does no FLOPs' if rate == 0 else 'no FLOPs are given'}, so it has no place on this plot"
        if moved:
            why += f"; {quantity(moved, 'B/s')}" + (
                f", {100 * moved / roofs.main.bytes_s:.1f}% of {roofs.main.name}" if roofs.main else ""
            )
        return Left(row=at, name=name, kind="copy", why=why)
    if rate is None:
        return Left(row=at, name=name, kind="not measured", why="no rate: expected flops_s or gflops")
    ranged(rate, "its rate in FLOP/s")
    if not spots:
        raise ValueError("no intensity: expected intensity, or intensities by level")
    for level, value in spots:
        ranged(value, f"its intensity at {level}" if level else "its intensity")
    share = row.get("share")
    verdict = row.get("headroom_class")
    before = _figure({key[7:]: value for key, value in row.items() if str(key).startswith("before_")}, _RATES, "before")
    earlier = None
    if before is not None:
        old = row.get("before_intensity")
        at_first = float(number(old, "before_intensity")) if old is not None else spots[0][1]
        earlier = ranged(at_first, "before_intensity"), ranged(before, "its rate before, in FLOP/s")
    return Kernel(
        row=at,
        name=name,
        alias=alias,
        rate=rate,
        spots=spots,
        share=None if _empty(share) else float(number(share, "share", minimum=0)),
        dtype=_dtype(row.get("dtype")),
        verdict=str(verdict) if verdict in HEADROOM_CLASSES else "none",
        before=earlier,
        basis=shortened(str(row.get("measurement_basis") or row.get("basis") or ""), 40),
    )


def _empty(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _spots(row: Mapping[str, Any], bandwidths: Sequence[Bandwidth]) -> tuple[tuple[str, float], ...]:
    many, one = row.get("intensities"), row.get("intensity")
    if isinstance(many, Mapping):
        many = {level: value for level, value in many.items() if not _empty(value)}  # where it was not counted
    if isinstance(many, Mapping) and many:
        known = {wide.level for wide in bandwidths}
        unknown = [level for level in many if str(level).lower() not in known]
        if unknown:
            told = shortened(str(unknown[0]), 20)
            raise ValueError(f"no bandwidth has the level {told!r} of its intensities, there are {', '.join(sorted(known))}")
        return tuple((str(level).lower(), float(number(value, f"intensity at {level}"))) for level, value in many.items())
    return () if one is None else (("", float(number(one, "intensity"))),)


_OWN = {"name", "headroom_class", "intensity", "intensities", "flops_s", "gflops", "bytes_s", "gbs", "dtype", "share"}


def _table_columns(rows: Sequence[Mapping[str, Any]], kernels: Sequence[Kernel]) -> dict[str, list[Any]]:
    """The row as it was given: picking shows it beside what the figure worked out."""
    given = [row if isinstance(row, Mapping) else {} for row in rows]
    keys = dict.fromkeys(key for row in given for key in row if key not in _OWN and not str(key).startswith("before_"))
    known = [key for key in FIELDS if key in keys]
    return {
        shortened(str(key), 60): [_plain(row.get(key)) for row in given]
        for key in (*known, *(key for key in keys if key not in FIELDS))
    }


def _plain(value: object) -> object:
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return shortened(str(value), 400)


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


def report_chart(
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
    ceilings = _report_ceilings(peaks, used)
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


def _report_ceilings(peaks: Mapping[str, Any], used: Mapping[tuple[str, str], None]) -> tuple[Ceiling, ...]:
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
