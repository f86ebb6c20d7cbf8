"""Read the sources of a chart: a report or an artifact, a plain table, the measured ceilings of a CPU, a data frame."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from roofline_engine.check import COMPARABLE
from roofline_engine.fields import FIELDS, HEADROOM_CLASSES
from roofline_engine.files import read_json, read_text
from roofline_engine.peaks import CPU
from roofline_engine.roofline import attainable_rate, bound, lower_ceiling, point, roof_axis_at
from roofline_engine.units import finite, number, parse_dtype, printable, quantity, unit_of

from ..ceilings.store import LEVELS, SCHEMA, Ceilings
from ..report.columns import LONGEST, distinct_labels, row_names, shorten
from .model import (
    LONGEST_LABEL,
    MAIN_MEMORY,
    ROUNDING,
    WIDE,
    Bandwidth,
    Ceiling,
    Chart,
    Excluded,
    Kernel,
    Roofs,
    check_range,
    exclude_above_roof,
    is_drawable,
    make_subtitle,
    make_title,
    meaning_of,
    row_name,
    short_label,
    split_impossible,
)


def read_document(
    document: Any, label: str, device: str | None = None, title: str | None = None, ceilings: Any = None
) -> Chart:
    """Return the chart of a parsed report, artifact, plain table, or record of a CPU's ceilings.

    ceilings: such a record, or an object with ``ceilings`` and ``bandwidths``, drawn with the roofs of a report's rows.

    Raises:
        ValueError: for a document of an unknown kind, in one line that names ``label``.
    """
    title = None if title is None else shorten(title, 300)
    if isinstance(document, Mapping):
        if isinstance(document.get("entries"), list):
            machine = None if ceilings is None else measured_roofs(ceilings, "--ceilings")
            return report_chart(document, label, device, title, machine)
        if ceilings is not None:
            raise ValueError(f"{label}: --ceilings needs the rows of a report; this document has roofs already")
        if document.get("schema") == SCHEMA:
            return machine_chart(document, label, title)
        if isinstance(document.get("kernels"), list):
            if device is not None:
                raise ValueError(f"{label}: --device selects the rows of a report; a table has one set of roofs")
            return table_chart(document["kernels"], document, label, title)
    expected = "a report or an artifact (entries), a table (kernels, ceilings, bandwidths), or measured ceilings"
    raise ValueError(f"{label}: nothing to draw. Expected {expected}")


# Measured ceilings of a CPU.

#: A limit above this fraction of a roof is the roof itself.
_BELOW = 0.99
_CEILING_NAMES = {"vector_fma": "FMA", "gemm": "GEMM", "vector": "no FMA", "scalar": "scalar"}


class MeasuredRoofs(NamedTuple):
    """The measured roofs of one machine."""

    bandwidths: tuple[Bandwidth, ...]
    ceilings: tuple[Ceiling, ...]
    note: str = ""
    is_cpu: bool = False


def measured_roofs(document: Any, label: str) -> MeasuredRoofs:
    """Return the roofs in a record of ``roofline peaks measure``, with all threads, or those of a plain table.

    Raises:
        ValueError: for another document, in one line that names ``label``.
    """
    if isinstance(document, Mapping) and "schema" not in document and {"bandwidths", "ceilings"} & set(document):
        return MeasuredRoofs(_table_bandwidths(document, label), _table_ceilings(document, label))
    try:
        record = Ceilings.from_json(document)
    except ValueError as error:
        raise ValueError(f"{label}: not a record of roofline peaks measure: {error}") from None
    threads = max((item.threads for item in record.items), default=0)
    items = [item for item in record.items if item.threads == threads]
    bandwidths = []
    for level in reversed(LEVELS):
        rates = sorted((item for item in items if item.level == level), key=lambda item: -item.value)
        for item in rates if level == "DRAM" else rates[:1]:  # every kind of memory traffic, the best rate of a cache
            name = f"{level} {item.name}"
            bandwidths.append(Bandwidth(name=name, bytes_s=item.value, level=level.lower(), basis="measured"))
    ceilings = []
    for item in items:
        if item.kind == "compute":
            name = f"{item.dtype} {_CEILING_NAMES[item.name]}"
            meaning = meaning_of(name)
            ceilings.append(Ceiling(name=name, flops_s=item.value, dtype=item.dtype, basis="measured", meaning=meaning))
    return MeasuredRoofs(tuple(bandwidths), tuple(ceilings), record.peaks().note, is_cpu=True)


#: The columns of rocprof-compute's roofline.csv: GB/s of a level, and GFLOP/s by dtype.
_EMPIRICAL_LEVELS = {"HBMBw": "hbm", "MALLBw": "mall", "L2Bw": "l2", "L1Bw": "l1"}
_EMPIRICAL_DTYPES = {
    **{"FP32Flops": ("fp32", "vector"), "FP64Flops": ("fp64", "vector"), "MFMAF64Flops": ("fp64", "matrix")},
    **{"MFMABF16Flops": ("bf16", "matrix"), "MFMAF16Flops": ("fp16", "matrix"), "MFMAF32Flops": ("fp32", "matrix")},
    **{"MFMAF8Flops": ("fp8", "matrix"), "MFMAI8Ops": ("int8", "matrix")},
}


def read_ceilings(path: str) -> Any:
    """Read a file of ceilings: JSON, or the roofline.csv that rocprof-compute measures.

    Of several devices in the CSV, each ceiling is that of the fastest.

    Raises:
        ValueError, OSError: for another file, in one line.
    """
    text = read_text(path)
    head, rows = text.partition("\n")[0].split(","), list(csv.DictReader(text.splitlines()))
    if not set(_EMPIRICAL_LEVELS) & set(head):
        return read_json(path)
    where = printable(path)

    def fastest(column: str) -> float:
        cells = [(row[column], f"{where}: line {line}: {column}") for line, row in enumerate(rows, 2) if row[column]]
        return max((number(cell, place, minimum=0) for cell, place in cells), default=0.0)

    rates = {column: fastest(column) for column in (*_EMPIRICAL_LEVELS, *_EMPIRICAL_DTYPES) if column in head}
    return {
        "bandwidths": [
            {"name": f"{level.upper()}, measured", "level": level, "gbs": rates[column], "basis": "measured"}
            for column, level in _EMPIRICAL_LEVELS.items()
            if rates.get(column)
        ],
        "ceilings": [
            {"name": f"{dtype} {unit}, measured", "gflops": rates[column], "dtype": dtype, "unit": unit, "basis": "measured"}
            for column, (dtype, unit) in _EMPIRICAL_DTYPES.items()
            if rates.get(column)
        ],
    }


def machine_chart(document: Any, label: str, title: str | None) -> Chart:
    """Return the chart of a machine without kernels."""
    machine = measured_roofs(document, label)
    return Chart(
        title=title or make_title((), (), Roofs(machine.bandwidths, machine.ceilings)),
        subtitle=make_subtitle((), (), "roofs: measured"),
        bandwidths=machine.bandwidths,
        ceilings=machine.ceilings,
        kernels=(),
        notes=(machine.note,),
    )


def _add_lower_limits(
    machine: MeasuredRoofs, bandwidths: tuple[Bandwidth, ...], ceilings: tuple[Ceiling, ...], dtypes: Iterable[str]
) -> tuple[tuple[Bandwidth, ...], tuple[Ceiling, ...]]:
    """Add what ``machine`` has below the roofs that judged the rows. Those roofs stay the roofs."""
    memory = max((one.bytes_s for one in bandwidths if one.level in MAIN_MEMORY), default=None)
    tops = {one.dtype: one.flops_s for one in reversed(ceilings)}
    slopes = [
        one for one in machine.bandwidths if one.level not in MAIN_MEMORY or memory is None or one.bytes_s < _BELOW * memory
    ]
    used = set(dtypes)
    flat = [one for one in machine.ceilings if one.dtype in used and one.flops_s < _BELOW * tops.get(one.dtype, 0.0)]
    return (*bandwidths, *slopes), tuple(sorted((*ceilings, *flat), key=lambda one: -one.flops_s))


# A plain table.

BASES = ("rated", "measured", "given")
#: Kinds of units with the keys that messages name. Every spelling of the kind is a key: gflops, TFLOP/s, gbs, GiB/s.
_EXPECTED = {"flop_rate": "flops_s or gflops", "bandwidth": "bytes_s or gbs"}


def table_chart(rows: Sequence[Mapping[str, Any]], roofs: Mapping[str, Any], label: str, title: str | None = None) -> Chart:
    """Return the chart of ``rows`` under ``roofs``, an object with ``ceilings`` and ``bandwidths``.

    A row that cannot be drawn is listed with its reason. label: names the source in messages.

    Raises:
        ValueError: for an invalid roof, in one line.
    """
    ceilings, bandwidths = _table_ceilings(roofs, label), _table_bandwidths(roofs, label)
    machine = Roofs(bandwidths, ceilings)
    kernels: list[Kernel] = []
    excluded: list[Excluded] = []
    whole = [row_name(row.get("name"), at) if isinstance(row, Mapping) else "" for at, row in enumerate(rows)]
    names, labels = _distinct_names(whole)
    for at, (row, key, name, alias) in enumerate(zip(rows, whole, names, labels)):
        if not isinstance(row, Mapping):
            why = f"is {type(row).__name__}, not an object"
            excluded.append(Excluded(row=at, name=f"row {at + 1}", kind="unusable", why=why))
            continue
        try:
            kernel = _table_kernel(row, at, name, machine)
        except ValueError as error:
            kernel = Excluded(row=at, name=name, kind="unusable", why=str(error))
        if isinstance(kernel, Excluded):
            excluded.append(kernel)
        else:
            kernels.append(machine.place(replace(kernel, key=key, alias=alias)))
    kernels, impossible = split_impossible(kernels)
    if any(one.verdict != "none" for one in kernels):  # when some rows have a verdict, a row without one is unknown
        kernels = [replace(one, verdict="unknown") if one.verdict == "none" else one for one in kernels]
    excluded += impossible
    bases = sorted({one.basis for one in ceilings} | {one.basis for one in bandwidths})
    return Chart(
        title=title or make_title(kernels, excluded, machine),
        subtitle=make_subtitle(kernels, excluded, f"roofs: {', '.join(bases)}" if bases else "no roof given"),
        bandwidths=bandwidths,
        ceilings=ceilings,
        kernels=tuple(kernels),
        excluded=tuple(sorted(excluded, key=lambda one: one.row)),
        columns=_table_columns(rows),
    )


def _table_ceilings(roofs: Mapping[str, Any], label: str) -> tuple[Ceiling, ...]:
    """Return the ceilings of a table; duplicates are one limit."""
    items = _objects(roofs, "ceilings", label)
    return tuple(dict.fromkeys(_table_ceiling(one, f"{label}: ceilings[{at}]") for at, one in items))


def _table_bandwidths(roofs: Mapping[str, Any], label: str) -> tuple[Bandwidth, ...]:
    items = _objects(roofs, "bandwidths", label)
    return tuple(dict.fromkeys(_table_bandwidth(one, f"{label}: bandwidths[{at}]") for at, one in items))


def _distinct_names(whole: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return a name of usual length and a label for each row; rows with different names differ in both."""
    rows = list(whole)
    names, labels = distinct_labels(rows, LONGEST), distinct_labels(rows, LONGEST_LABEL, label=short_label)
    return [names[row] for row in rows], [labels[row] for row in rows]


def _objects(roofs: Mapping[str, Any], key: str, label: str) -> list[tuple[int, Mapping[str, Any]]]:
    items = roofs.get(key, [])
    if not isinstance(items, Sequence) or isinstance(items, str):
        raise ValueError(f"{label}: {key} is {type(items).__name__}, expected a list of objects")
    for at, item in enumerate(items):
        if not isinstance(item, Mapping):
            raise ValueError(f"{label}: {key}[{at}] is {type(item).__name__}, expected an object")
    return list(enumerate(items))


def _si_value(item: Mapping[str, Any], kind: str, where: str, prefix: str = "") -> float | None:
    """Return the value of the one key that is a unit of ``kind``, in SI; None without such a key."""
    units = {key: unit_of(str(key)[len(prefix) :], kind) for key in item if str(key).startswith(prefix)}
    given = [(key, unit.factor) for key, unit in units.items() if unit is not None and item[key] is not None]
    if len(given) > 1:
        raise ValueError(f"{where}: both {given[0][0]} and {given[1][0]}, expected one")
    return number(item[given[0][0]], f"{where} {given[0][0]}".strip()) * given[0][1] if given else None


def _roof_value(item: Mapping[str, Any], kind: str, where: str) -> float:
    value = _si_value(item, kind, where)
    if value is None:
        raise ValueError(f"{where}: expected {_EXPECTED[kind]}")
    return check_range(value, where)


def _roof_basis(item: Mapping[str, Any], where: str) -> str:
    basis = item.get("basis", "given")
    if basis not in BASES:
        raise ValueError(f"{where}: basis is {basis!r}, expected {', '.join(BASES)}")
    return str(basis)


def _table_ceiling(item: Mapping[str, Any], where: str) -> Ceiling:
    rate = _roof_value(item, "flop_rate", where)
    name = shorten(str(item.get("name") or quantity(rate, "FLOP/s")), 40)
    unit = item.get("unit")
    return Ceiling(
        name=name,
        flops_s=rate,
        dtype=_table_dtype(item.get("dtype")),
        unit=None if unit is None else shorten(str(unit), 20),
        basis=_roof_basis(item, where),
        meaning=meaning_of(name),
    )


def _table_bandwidth(item: Mapping[str, Any], where: str) -> Bandwidth:
    rate = _roof_value(item, "bandwidth", where)
    level = shorten(str(item.get("level") or ""), 20)
    name = shorten(str(item.get("name") or level or quantity(rate, "B/s")), 40)
    return Bandwidth(name=name, bytes_s=rate, level=level.lower(), basis=_roof_basis(item, where))


def _table_dtype(value: object) -> str | None:
    """Return a known dtype by its table name. Another word stays as it is: it only has to match its ceiling."""
    if value is None or value == "":
        return None
    try:
        dtype = parse_dtype(value)
    except ValueError:
        return shorten(str(value), 20)
    return dtype.peak or dtype.name


def _table_kernel(row: Mapping[str, Any], at: int, name: str, roofs: Roofs) -> Kernel | Excluded:
    rate = _si_value(row, "flop_rate", "")
    bandwidth = _si_value(row, "bandwidth", "")
    spots = _table_spots(row, roofs.bandwidths)
    if rate is None and bandwidth and len(spots) == 1 and not spots[0][0]:
        rate = spots[0][1] * bandwidth
    if rate == 0 or (rate is None and bandwidth):
        why = f"{'does no FLOPs' if rate == 0 else 'no FLOPs are given'}, so it has no place on this plot"
        if bandwidth:
            why += f"; {quantity(bandwidth, 'B/s')}"
            why += f", {100 * bandwidth / roofs.main.bytes_s:.1f}% of {roofs.main.name}" if roofs.main else ""
        return Excluded(row=at, name=name, kind="copy", why=why)
    if rate is None:
        return Excluded(row=at, name=name, kind="not measured", why="no rate: expected flops_s or gflops")
    check_range(rate, "its rate in FLOP/s")
    if not spots:
        raise ValueError("no intensity: expected intensity, or intensities by level")
    for level, value in spots:
        check_range(value, f"its intensity at {level}" if level else "its intensity")
    share = row.get("share")
    verdict = row.get("headroom_class")
    before = _si_value(row, "flop_rate", "", "before_")
    baseline = None
    if before is not None:
        given = row.get("before_intensity")
        intensity = float(number(given, "before_intensity")) if given is not None else spots[0][1]
        baseline = check_range(intensity, "before_intensity"), check_range(before, "its rate before, in FLOP/s")
    return Kernel(
        row=at,
        name=name,
        rate=rate,
        spots=spots,
        share=None if _is_missing(share) else float(number(share, "share", minimum=0)),
        dtype=_table_dtype(row.get("dtype")),
        verdict=str(verdict) if verdict in HEADROOM_CLASSES else "none",
        earlier=(baseline,) if baseline else (),
        basis=shorten(str(row.get("measurement_basis") or row.get("basis") or ""), 40),
    )


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _table_spots(row: Mapping[str, Any], bandwidths: Sequence[Bandwidth]) -> tuple[tuple[str, float], ...]:
    by_level, intensity = row.get("intensities"), row.get("intensity")
    if isinstance(by_level, Mapping):
        by_level = {level: value for level, value in by_level.items() if not _is_missing(value)}
    if isinstance(by_level, Mapping) and by_level:
        known = {bandwidth.level for bandwidth in bandwidths}
        unknown = [level for level in by_level if str(level).lower() not in known]
        if unknown:
            level = shorten(str(unknown[0]), 20)
            raise ValueError(f"its intensities name the level {level!r}, the bandwidths have {', '.join(sorted(known))}")
        return tuple((str(level).lower(), float(number(value, f"intensity at {level}"))) for level, value in by_level.items())
    return () if intensity is None else (("", float(number(intensity, "intensity"))),)


_TABLE_KEYS = {"name", "headroom_class", "intensity", "intensities", "dtype", "share"}


def _table_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the other cells of the rows. Picking shows them with the computed values."""
    objects = [row if isinstance(row, Mapping) else {} for row in rows]
    keys = [key for key in dict.fromkeys(key for row in objects for key in row) if not _is_read(str(key))]
    known = [key for key in FIELDS if key in keys]
    others = [key for key in keys if key not in FIELDS]
    return {shorten(str(key), 60): [_cell(row.get(key)) for row in objects] for key in (*known, *others)}


def _is_read(key: str) -> bool:
    return key in _TABLE_KEYS or key.startswith("before_") or unit_of(key, *_EXPECTED) is not None


def _cell(value: object) -> object:
    """Return what picking shows of a value: nothing of a nested one."""
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, list) and not any(isinstance(one, (list, dict)) for one in value):
        return [_cell(one) for one in value[:8]]
    return None if isinstance(value, (list, dict)) else _shorten_note(str(value))


@lru_cache(maxsize=1024)  # many rows share a note
def _shorten_note(text: str) -> str:
    return shorten(text, 400)


# A report of a run or an artifact of ``analyze``: the engine's own percentages and roofs.

#: Name of a compute engine -> its key in ``peaks``.
_ENGINES = {"matrix": "flops", "vector": "vector"}
#: Largest factor between a printed ratio and the ratio of printed values: each has two digits or more.
_AGREES = 1.1
#: The entry's headroom field. Artifacts of other tools lack it.
_HEADROOM_KEY = "hard_limit_speedup"
#: Unknown-reasons of rows that the drawn roof does not limit: a cache, the launch, or an unvalidated peak does.
_OTHER_LIMITS = ("cache_resident", "dispatch_bound", "unvalidated_peak")
#: Relative difference below which two compute peaks are the same. Dtypes differ by far more; ridge points have four digits.
_SAME_PEAK = 1e-3


def report_chart(
    document: Mapping[str, Any],
    label: str,
    device: str | None = None,
    title: str | None = None,
    machine: MeasuredRoofs | None = None,
) -> Chart:
    """Return the chart of the rows of one device of ``document``.

    device: its name; by default the device with most rows. machine: the measured roofs of a CPU.

    Raises:
        ValueError: for a device that the document lacks, and for ``machine`` with the rows of another device.
    """
    entries = [one if isinstance(one, Mapping) else {} for one in document["entries"]]
    name, peaks = _select_device(document, entries, label, device)
    bandwidths = _report_bandwidths(peaks)
    if machine is not None and machine.is_cpu and peaks.get("product") != CPU:
        raise ValueError(f"{label}: --ceilings is of a CPU, these rows are of another device")
    caches = {one.level: one for one in machine.bandwidths if one.level not in MAIN_MEMORY} if machine is not None else {}
    rated_l2 = _positive(peaks, "l2_bw_bytes_s")
    if "l2" not in caches and rated_l2 and any(_positive(entry, _TRAFFIC["l2"]) for entry in entries):
        caches["l2"] = Bandwidth(name="L2, rated", bytes_s=rated_l2, level="l2", basis="rated")
        bandwidths = (*bandwidths, caches["l2"])
    kernels: list[Kernel] = []
    excluded: list[Excluded] = []
    levels: dict[Bandwidth, None] = {}
    exceeded: Counter[str] = Counter()
    roofs: dict[tuple[str, str], None] = {}
    unique = row_names(nodeid for entry in entries if isinstance(nodeid := entry.get("nodeid"), str))
    whole: dict[str, set[str]] = {}
    for entry in entries:  # a short name that two kernels share names neither
        whole.setdefault(str(entry.get("short_name")), set()).add(str(entry.get("name")))
    names, labels = _distinct_names(
        row_name(
            unique.get(str(entry.get("nodeid")))
            or (entry.get("short_name") if len(whole[str(entry.get("short_name"))]) == 1 else None)
            or entry.get("name"),
            at,
        )
        for at, entry in enumerate(entries)
    )
    for at, (entry, row, alias) in enumerate(zip(entries, names, labels)):
        other = entry.get("device") if name is not None else None
        if other is not None and other != name:
            why = f"runs on {shorten(str(other), 40)}; select it with --device"
            excluded.append(Excluded(row=at, name=row, kind="other device", why=why))
            continue
        kernel = _report_kernel(entry, at, row, peaks)
        if isinstance(kernel, Excluded):
            excluded.append(kernel)
            continue
        drawn, over = _with_levels(kernel[0], entry, caches)
        exceeded.update(over)
        kernels.append(replace(drawn, key=str(entry.get("nodeid") or entry.get("name") or ""), alias=alias))
        if entry.get("roof_level") and drawn.bytes_s:
            words = f"{_word(entry, 'roof_level')}, measured"
            levels[Bandwidth(name=words, bytes_s=drawn.bytes_s, level=drawn.spots[0][0], basis="measured")] = None
        roofs.update(dict.fromkeys(kernel[1]))
    ceilings = _report_ceilings(peaks, roofs)
    bandwidths = (*bandwidths, *levels)
    notes = [shorten(str(peaks["note"]), 400)] if peaks.get("note") else []
    counted = {level for entry in entries for level in _TRAFFIC if _positive(entry, _TRAFFIC[level])}
    if counted - set(caches):
        words = ", ".join(level.upper() for level in sorted(counted - set(caches)))
        notes.append(f"{words}: counted, not drawn: its bandwidth is unknown. Give measured bandwidths with --ceilings")
    for level, rows in sorted(exceeded.items()):
        text = (
            f"{level.upper()}: not drawn for {rows} of the kernels: their rate is over its roof, so count or bandwidth is wrong"
        )
        notes.append(text)
    if machine is not None:
        bandwidths, ceilings = _add_lower_limits(machine, bandwidths, ceilings, [dtype for _, dtype in roofs])
    kernels = [_with_lower_ceiling(one, ceilings) for one in kernels]
    if any(one.share is None for one in kernels):
        kernels = [one if one.share is None else replace(one, share=None) for one in kernels]
    return Chart(
        title=title or make_title(kernels, excluded, Roofs(bandwidths, ceilings)),
        subtitle=make_subtitle(kernels, excluded, _report_basis(document, peaks, name)),
        bandwidths=bandwidths,
        ceilings=ceilings,
        kernels=tuple(kernels),
        excluded=tuple(excluded),
        notes=tuple(notes),
        failures=tuple(
            (name, str(entry["failed"]), str(entry.get("arithmetic") or ""))
            for name, entry in zip(names, entries)
            if entry.get("failed")
        ),
        columns=_report_columns(entries),
    )


def _report_basis(document: Mapping[str, Any], peaks: Mapping[str, Any], name: str | None) -> str:
    """Return the device and the basis of its peaks, for the subtitle."""
    product = peaks.get("product") or peaks.get("gfx") or name or document.get("gfx")
    parts = [shorten(str(product), 40) if product else "no device known"]
    if any(peaks.get(key) for key in ("hbm_bw_bytes_s", *_ENGINES.values())):
        parts.append(f"peaks: {_word(peaks, 'source')}, {_word(peaks, 'confidence')} confidence")
    elif peaks:
        parts.append("no peaks known")
    return ", ".join(parts)


def _select_device(
    document: Mapping[str, Any], entries: Sequence[Mapping[str, Any]], label: str, device: str | None
) -> tuple[str | None, Mapping[str, Any]]:
    """Return the device whose rows are drawn and its peaks. An artifact has one device without a name."""
    devices = document.get("devices")
    peaks = document.get("peaks")
    if not isinstance(devices, Mapping) or not devices:
        if device is not None:
            raise ValueError(f"{label}: --device selects one of several devices, all rows here are of one device")
        return None, peaks if isinstance(peaks, Mapping) else {}
    if device is not None and device not in devices:
        raise ValueError(f"{label}: no device {printable(device)!r}, expected {', '.join(map(printable, devices))}")
    rows = Counter(name for one in entries if isinstance(name := one.get("device"), str) and _finite(one, "achieved_flops"))
    name = device or max(devices, key=lambda one: rows[one])
    selected = devices[name]
    return name, selected if isinstance(selected, Mapping) else {}


def _finite(entry: Mapping[str, Any], key: str) -> float | None:
    return finite(entry.get(key))


def _positive(entry: Mapping[str, Any], key: str) -> float | None:
    """Return a positive value that a drawing can hold; None for any other and for a missing one."""
    value = _finite(entry, key)
    return value if value is not None and is_drawable(value) else None


def _word(entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key)
    return shorten(value, 40) if isinstance(value, str) and value else "unknown"


def _choice(entry: Mapping[str, Any], key: str) -> str:
    """Return a value of the closed set of its field; ``unknown`` for another."""
    value = entry.get(key)
    return value if isinstance(value, str) and value in FIELDS[key].choices else "unknown"


def _rate(peaks: Mapping[str, Any], engine: str, dtype: str) -> float | None:
    table = peaks.get(_ENGINES[engine])
    return _positive(table, dtype) if isinstance(table, Mapping) else None


def _report_bandwidths(peaks: Mapping[str, Any]) -> tuple[Bandwidth, ...]:
    bandwidths = []
    rated = _positive(peaks, "hbm_bw_bytes_s")
    if rated:
        basis = "measured" if peaks.get("source") == "measured" else "rated"
        bandwidths.append(Bandwidth(name=f"memory, {basis}", bytes_s=rated, level="memory", basis=basis))
    achievable = peaks.get("achievable")
    measured = _positive(achievable, "hbm_bw_bytes_s") if isinstance(achievable, Mapping) else None
    if measured:
        bandwidths.append(Bandwidth(name="memory, measured", bytes_s=measured, level="memory", basis="measured"))
    return tuple(bandwidths)


def _compute_roof(entry: Mapping[str, Any], peaks: Mapping[str, Any]) -> float | None:
    """Return the rate of the compute roof that judged the row, from its ridge point or its utilization."""
    ridge_point, bandwidth = _positive(entry, "ridge_point"), _positive(peaks, "hbm_bw_bytes_s")
    if ridge_point and bandwidth:
        return ridge_point * bandwidth
    utilization, achieved = _positive(entry, "compute_util"), _positive(entry, "achieved_flops")
    return achieved / utilization if utilization and achieved else None


def _find_peak(rate: float, entry: Mapping[str, Any], peaks: Mapping[str, Any]) -> tuple[str, str, float] | None:
    """Return engine, dtype and rate of the peak that is this compute roof; without a dtype, the first peak of that rate."""
    try:
        own = parse_dtype(entry.get("dtype")).peak
    except ValueError:
        own = None
    for engine, table in _ENGINES.items():
        rates = peaks.get(table)
        for dtype in [own] if own else rates if isinstance(rates, Mapping) else ():
            listed = _rate(peaks, engine, dtype)
            if listed is not None and abs(rate / listed - 1) < _SAME_PEAK:
                return engine, dtype, listed
    return None


def _report_kernel(
    entry: Mapping[str, Any], at: int, name: str, peaks: Mapping[str, Any]
) -> tuple[Kernel, list[tuple[str, str]]] | Excluded:
    def exclude(kind: str, why: str) -> Excluded:
        return Excluded(row=at, name=name, kind=kind, why=why)

    reason = _word(entry, "unknown_reason") if entry.get("unknown_reason") else ""
    if entry.get("modeled") is False or reason == "unmodelled":
        notes = str(entry.get("notes") or "")
        return exclude("unmodelled", f"no work model{': ' + shorten(notes, 160) if notes else ''}")
    if _positive(entry, "t_unit_ms") is None and _positive(entry, "t_ms") is None:
        return exclude("not measured", "no time, so no rate")
    raw, axis = _finite(entry, "roofline_pct_raw"), _word(entry, "roof_axis")
    if entry.get("suspect") or (raw is not None and raw > 1):
        which = "" if axis == "unknown" else f"{axis} "
        text = f"{raw:.3g} times its {which}roof" if raw is not None else "its rate is no evidence"
        return exclude("impossible", f"{text}: the work model, the peak or the time is wrong")
    if _finite(entry, "flops_est") == 0:
        bandwidth, fraction = _positive(entry, "achieved_bw_bytes_s"), _positive(entry, "roofline_pct")
        text = f"; {quantity(bandwidth, 'B/s')}" if bandwidth else ""
        text += f", {100 * fraction:.1f}% of the memory roof" if fraction else ""
        return exclude("copy", f"does no FLOPs, so it has no place on this plot{text}")
    rate, intensity = _positive(entry, "achieved_flops"), _positive(entry, "arithmetic_intensity")
    if rate is None or intensity is None:
        return exclude("unusable", "no rate and intensity that a machine could have")
    flops_s = _compute_roof(entry, peaks)
    peak = _find_peak(flops_s, entry, peaks) if flops_s else None
    flops_s = peak[2] if peak else flops_s
    level, bytes_s = "", _positive(peaks, "hbm_bw_bytes_s")
    if entry.get("roof_level") and raw and axis == "memory":  # judged by the bandwidth of a cache
        level, bytes_s = _word(entry, "roof_level").lower(), (_positive(entry, "achieved_bw_bytes_s") or 0.0) / raw or None
    share = _finite(entry, "pct_gpu_time")
    fraction = _positive(entry, "roofline_pct")
    roof = attainable_rate(intensity, bytes_s, flops_s) if flops_s or axis != "compute" else None
    if roof and rate / roof > ROUNDING:
        return exclude_above_roof(at, name, rate, roof)
    if roof and fraction and not 1 / _AGREES <= fraction * roof / rate <= _AGREES:
        why = f"its roofline_pct is {fraction:.3g}, its rate {rate / roof:.3g} of the roof at its intensity"
        return exclude("unusable", why)
    kernel = Kernel(
        row=at,
        name=name,
        rate=rate,
        spots=((level, intensity),),
        fraction=fraction,
        bytes_s=bytes_s,
        flops_s=flops_s,
        axis=roof_axis_at(intensity, bytes_s, flops_s) or (axis if axis != "unknown" else None),
        bound=_choice(entry, "bound_type"),
        verdict=_choice(entry, "headroom_class"),
        reason=reason,
        share=share if share is not None and share >= 0 else None,
        dtype=peak[1] if peak and entry.get("dtype") else None,
        earlier=_baseline(entry, intensity, rate),
        range_ends=_range_ends(entry, intensity, rate),
        basis=_row_basis(entry),
        interval=_interval(entry),
        roof_limits=_is_limited_by_roof(entry, reason),
    )
    return kernel, [(peak[0], peak[1])] if peak else []


#: The levels of memory that counters give, with their fields.
_TRAFFIC = {"l1": "l1_traffic", "l2": "l2_traffic"}


def _with_levels(kernel: Kernel, entry: Mapping[str, Any], caches: Mapping[str, Bandwidth]) -> tuple[Kernel, Sequence[str]]:
    """Return the kernel with a point for each counted level of known bandwidth, and the levels whose roof the rate exceeds.

    The level that attains least binds: its roof is then the kernel's.
    """
    flops = _positive(entry, "flops_est")
    counted = {level: _positive(entry, field) for level, field in _TRAFFIC.items()}
    spots = {level: flops / nbytes for level, nbytes in counted.items() if level in caches and flops and nbytes}
    roofs = {level: attainable_rate(x, caches[level].bytes_s, kernel.flops_s) or math.inf for level, x in spots.items()}
    over = [level for level, roof in roofs.items() if kernel.rate > ROUNDING * roof]
    roofs = {level: roof for level, roof in roofs.items() if level not in over and is_drawable(spots[level])}
    if not roofs or kernel.roof is None:
        return kernel, over
    roofs["hbm"], spots["hbm"] = kernel.roof, kernel.intensity
    order = sorted(roofs, key=lambda level: roofs[level])
    placed = replace(
        kernel,
        spots=tuple((level, spots[level]) for level in order),
        by_level=tuple((level, kernel.rate / roofs[level]) for level in order),
    )
    if order[0] == "hbm":
        return placed, over
    bytes_s = caches[order[0]].bytes_s
    judged = point(kernel.rate / placed.intensity, kernel.rate, 1.0, bytes_s, kernel.flops_s)
    axis = roof_axis_at(placed.intensity, bytes_s, kernel.flops_s)
    return replace(placed, bytes_s=bytes_s, fraction=placed.by_level[0][1], axis=axis, bound=bound(judged)), over


def _row_basis(entry: Mapping[str, Any]) -> str:
    confidence = _word(entry, "confidence")
    if entry.get("measurement_basis"):
        return f"{_word(entry, 'measurement_basis')}, {confidence}"
    return f"{confidence} confidence" if entry.get("confidence") else ""


def _is_limited_by_roof(entry: Mapping[str, Any], reason: str) -> bool:
    """Whether the roof above a row limits it. A row without a target has a roof all the same."""
    headroom_known = _HEADROOM_KEY not in entry or _positive(entry, _HEADROOM_KEY) is not None
    return reason == "no_target" or (reason not in _OTHER_LIMITS and headroom_known)


def _baseline(entry: Mapping[str, Any], intensity: float, rate: float) -> tuple[tuple[float, float], ...]:
    baseline, measurement = entry.get("baseline"), entry.get("measurement")
    if not (isinstance(baseline, Mapping) and isinstance(measurement, Mapping)) or baseline.get("kind") not in COMPARABLE:
        return ()
    before_s, now_s = _positive(baseline, "t_s"), _positive(measurement, "t_s")
    before = rate * now_s / before_s if before_s and now_s else 0.0
    return ((intensity, before),) if is_drawable(before) else ()


def _range_ends(
    entry: Mapping[str, Any], intensity: float, rate: float
) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """Return the ends of the row's range: its byte models where they differ, else the quartiles of its time."""
    t_ms = _positive(entry, "t_unit_ms")
    ends = []
    for one in entry.get("byte_models") or ():
        if isinstance(one, Mapping) and one.get("in_range") is not False and one.get("feasible") is not False and t_ms:
            nbytes, flops = _positive(one, "bytes"), _positive(one, "flops")
            if nbytes and flops and is_drawable(flops / nbytes) and is_drawable(flops / t_ms):
                ends.append((flops / nbytes, flops / (t_ms / 1e3)))
    ends.sort()
    if len(ends) > 1 and ends[-1][0] / ends[0][0] >= WIDE:
        return ends[0], ends[-1]
    if ends and max(y for _, y in ends) / min(y for _, y in ends) >= WIDE:
        by_rate = sorted(ends, key=lambda end: end[1])
        return by_rate[0], by_rate[-1]
    measurement = entry.get("measurement")
    if isinstance(measurement, Mapping):
        t, fast, slow = (_positive(measurement, key) for key in ("t_s", "q1_s", "q3_s"))
        if t and fast and slow and slow / fast >= WIDE and is_drawable(rate * t / slow) and is_drawable(rate * t / fast):
            return (intensity, rate * t / slow), (intensity, rate * t / fast)
    return None


def _interval(entry: Mapping[str, Any]) -> str:
    interval = entry.get("roofline_pct_range")
    if not isinstance(interval, Sequence) or len(interval) != 2 or not all(isinstance(end, (int, float)) for end in interval):
        return ""
    low, high = (f"{100 * end:.1f}" for end in interval)
    return f"{low}% of roof" if low == high else f"{low} to {high}% of roof"


def _report_ceilings(peaks: Mapping[str, Any], roofs: Mapping[tuple[str, str], None]) -> tuple[Ceiling, ...]:
    """Return the compute roofs of the rows, the vector peaks of the same dtypes, and what was measured of them."""
    wanted = dict(roofs)
    for _, dtype in roofs:
        for engine in _ENGINES:
            wanted.setdefault((engine, dtype), None)
    if not wanted:  # without rows, the common dtypes
        wanted = dict.fromkeys((engine, dtype) for engine in _ENGINES for dtype in ("bf16", "fp32"))
    basis = "measured" if peaks.get("source") == "measured" else "rated"
    achievable = peaks.get("achievable")
    ceilings = []
    for engine, dtype in wanted:
        rate, matrix = _rate(peaks, engine, dtype), _rate(peaks, "matrix", dtype)
        if rate is None or (engine == "vector" and rate == matrix):
            continue
        meaning = "no faster than vector units" if engine == "vector" and matrix else ""
        units = "matrix and vector" if engine == "matrix" and rate == _rate(peaks, "vector", dtype) else engine
        ceilings.append(Ceiling(name=f"{dtype} {units}", flops_s=rate, dtype=dtype, unit=engine, basis=basis, meaning=meaning))
        measured = _rate(achievable, engine, dtype) if isinstance(achievable, Mapping) else None
        if measured is not None:
            name = f"{dtype} {engine}, measured"
            ceilings.append(Ceiling(name=name, flops_s=measured, dtype=dtype, unit=engine, basis="measured"))
    return tuple(sorted(ceilings, key=lambda one: (-one.flops_s, one.name)))


def _with_lower_ceiling(kernel: Kernel, ceilings: Sequence[Ceiling]) -> Kernel:
    lower = [one for one in ceilings if one.dtype == kernel.dtype and one.meaning and one.flops_s < (kernel.flops_s or 0)]
    flops_s = lower_ceiling(kernel.intensity, kernel.rate, kernel.bytes_s, [one.flops_s for one in lower])
    if flops_s is None:
        return kernel
    return replace(kernel, lower_ceiling=next(one for one in lower if one.flops_s == flops_s))


#: Fields that the figure shows itself, or that are too long for a row.
_SHOWN_ELSEWHERE = {"name", "short_name", "byte_models", "arithmetic_intensity", "achieved_flops", "roofline_pct", "dtype"}
_SHOWN_ELSEWHERE |= {"pct_gpu_time", "bound_type", "headroom_class"}


def _report_columns(entries: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the fields of the entries in the order of their definition, then what a test run adds."""
    columns: dict[str, list[Any]] = {}
    for key in (*(field for field in FIELDS if field not in _SHOWN_ELSEWHERE), "nodeid", "kernel", "device", "failed"):
        columns[key] = [_cell(entry.get(key)) for entry in entries]
    for key, inner in (("work", "source"), ("measurement", "source"), ("check", "status"), ("check", "message")):
        values = [entry.get(key) for entry in entries]
        columns[f"{key} {inner}"] = [_cell(one.get(inner)) if isinstance(one, Mapping) else None for one in values]
    return {key: values for key, values in columns.items() if any(one is not None and one not in ("", []) for one in values)}


# Rows from Python: dicts or a data frame.


def read_rows(rows: Any) -> list[Any]:
    """Return rows as dicts, from a list of dicts or a pandas, polars or arrow table.

    Raises:
        ValueError: for another type, in one line.
    """
    if isinstance(rows, Sequence) and not isinstance(rows, (str, bytes)):
        return [_json_row(row) for row in rows]
    import narwhals as nw
    from narwhals.exceptions import NarwhalsError

    try:
        frame = nw.from_native(rows, eager_only=True)
    except TypeError:
        expected = "a list of dicts or a pandas, polars or arrow table"
        raise ValueError(f"rows is {type(rows).__name__}, expected {expected}") from None
    except NarwhalsError as error:  # two columns with one name
        raise ValueError(f"rows: {' '.join(str(error).split())}") from None
    objects: list[dict[str, Any]] = [_json_row(row) for row in frame.rows(named=True)]
    if frame.implementation.is_pandas_like():  # NaN is a missing cell in pandas
        objects = [{key: None if value != value else value for key, value in row.items()} for row in objects]
    if "name" not in frame.columns:
        for row, name in zip(objects, _index_names(nw.maybe_get_index(frame))):
            row["name"] = name
    return objects


def _index_names(index: Any) -> list[Any]:
    """Return the names in the index of a pandas frame: its level ``name``, else the whole index if it holds strings."""
    if index is None:
        return []
    if "name" in index.names:
        return [_json_cell(one) for one in index.get_level_values("name")]
    names = [" ".join(map(str, one)) if isinstance(one, tuple) else one for one in index]
    return names if all(isinstance(one, str) for one in names) else []


def _json_row(row: Any) -> Any:
    return {key: _json_cell(value) for key, value in row.items()} if isinstance(row, Mapping) else row


def _json_cell(value: Any) -> Any:
    """Return a value as JSON has it: decimals, numpy scalars and the missing values of pandas are converted."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, Mapping):
        return _json_row(value)
    if isinstance(value, Decimal):
        return float(value)
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    return value.item() if getattr(value, "shape", None) == () else value
