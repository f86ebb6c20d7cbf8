"""Measured ceilings of other tools, recognized by content, checked and laid over the peaks of the run's device.

``read_ceilings`` reads rocprof-compute's ``roofline.csv``, TraceLens' arch JSON (max-achievable FLOPs), the Empirical
Roofline Tool's ``roofline.json`` and carm-roofline's ``benchmarks.jsonl``; ``lay_over`` checks each figure.

A measured ceiling is a lower bound of what the hardware can do: the roof of an axis is the larger of table and measurement.
Smaller measured figures are *achievable*, shown with the roof. A figure that cannot be right is not used, and one line gives
the reason: a benchmark at half rate (rocm-amdgpu-bench#24), one die of a package (rocprofiler-compute#712), more than the
highest clock gives (rocprofiler-compute#691).
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from .files import parse_json, read_text
from .peaks import AGREEMENT, Device, Peaks, clock_margin, join_sentences, resolve, resolve_name
from .peaks_audit import UNDER_ARITHMETIC, UNDER_GEMM, telltale
from .peaks_table import Table, load, locate
from .units import (
    BANDWIDTH_BOUNDS,
    FLOPS_BOUNDS,
    HOST_BANDWIDTH_BOUNDS,
    HOST_FLOPS_BOUNDS,
    number,
    parse_dtype,
    printable,
    quantity,
)

_LARGEST_FILE = 2**26
CACHES = ("l2", "l1", "lds", "mall", "l3")


class Ceiling(NamedTuple):
    """One measured figure."""

    axis: str  # memory, a cache of CACHES, or a compute axis such as matrix.bf16
    value: float  # bytes/s or FLOP/s, the middle of the rounds
    where: str  # file, row and column
    best: float | None = None  # of the rounds; None where the file has none


class Overlay(NamedTuple):
    """The ceilings of one file."""

    tool: str
    label: str  # the file's name, for messages
    ceilings: tuple[Ceiling, ...]
    device: str | None = None  # the name that the file gives
    gfx: str | None = None  # the architecture, where a neighboring file gives it
    gemm: bool = False  # whole GEMMs were timed, not instructions
    host: bool = False  # a CPU was measured
    narrow: str = ""  # why the bandwidth is not of the whole device


class CeilingsError(ValueError):
    """A file of measured ceilings that cannot be used."""


def read_ceilings(path: str, device: str | None = None) -> Overlay | None:
    """Return the measured ceilings in ``path``; None for another format, such as a peak table.

    device: which device, where the file has several that differ (rocprof-compute's device id, carm's machine).

    Raises:
        CeilingsError: one line naming the file and the place.
        ValueError: when the file cannot be read at all.
    """
    label = printable(os.path.basename(path))
    text = read_text(path, _LARGEST_FILE)
    head = text.lstrip()[:1]
    header = text.split("\n", 1)[0].strip().lower().split(",")
    try:
        if head in ("{", "["):
            overlay = _from_json(text, label, device)
        elif "device" in header and "hbmbw" in header:
            overlay = _from_rocprof(text, path, label, device)
        else:
            return None
    except ValueError as error:
        raise CeilingsError(str(error)) from None
    if not overlay.ceilings:
        raise CeilingsError(f"{label}: no measured figure in it")
    return overlay


class PeakFiles(NamedTuple):
    """Where the peaks of a run come from."""

    table: Table | None  # None: no table was found
    overlay: Overlay | None = None  # measured ceilings to lay over the table's peaks

    def rated(self, device: Device | str, units: int | None = None) -> Peaks:
        """Return the peaks of the facts of a device, or of a name; units: CUs or SMs of a name."""
        return resolve_name(self.table, device, units) if isinstance(device, str) else resolve(self.table, device)

    def lay_over(self, peaks: Peaks) -> tuple[Peaks, list[str]]:
        """Return ``peaks`` under the measured ceilings, and one line for each figure that was not used.

        Raises:
            ValueError: when the ceilings are of another device.
        """
        return (peaks, []) if self.overlay is None else lay_over(peaks, self.overlay, self.table)

    def resolve(self, device: Device | str, units: int | None = None) -> tuple[Peaks, list[str]]:
        """Return the peaks of a device under the measured ceilings; see ``rated`` and ``lay_over``."""
        return self.lay_over(self.rated(device, units))


def open_peaks(path: str | None = None, ceilings_device: str | None = None) -> PeakFiles:
    """Read the shipped table, or the table in ``path``, or the ceilings in ``path`` with the shipped table.

    ceilings_device: which device of the ceilings, where their file holds several.

    Raises:
        ValueError: when a file cannot be read.
    """
    overlay = None if path is None else read_ceilings(path, ceilings_device)
    own = path is not None and overlay is None
    place = path if own else locate()
    return PeakFiles(load(place, shipped=not own) if place else None, overlay)


def _from_json(text: str, label: str, device: str | None) -> Overlay:
    lines = [(at, line) for at, line in enumerate(text.split("\n"), 1) if line.strip()]
    if '"isa"' in lines[0][1] and '"type"' in lines[0][1]:
        return _from_carm([(at, parse_json(line, f"{label}: line {at}")) for at, line in lines], label, device)
    data = parse_json(text, label)
    if isinstance(data, dict):
        if "max_achievable_tflops" in data or "mem_bw_gbps" in data:
            return _from_tracelens(data, label)
        if isinstance(data.get("empirical"), dict):
            return _from_ert(data["empirical"], label)
    raise ValueError(f"{label}: unknown JSON: expected TraceLens arch, ERT roofline.json or carm benchmarks.jsonl")


def _dtype(name: object, where: str) -> str:
    """Return the peak table's name of a dtype; ValueError names the place."""
    try:
        dtype = parse_dtype(name)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    return dtype.peak or dtype.name


#: Columns of rocprof-compute's roofline.csv (rocm-amdgpu-bench, utils/benchmark.py): GB/s and GFLOP/s, the mean over the
#: experiments; ``HBMBwLow`` and ``hbmBwHigh`` are the ends of its confidence interval. 0 is a type that the device lacks.
_ROCPROF = {"hbmbw": "memory", "mallbw": "mall", "l2bw": "l2", "l1bw": "l1", "ldsbw": "lds"}


def _rocprof_axes(column: str) -> list[str]:
    """Return the axes of a column: ``MFMABF16Flops`` is matrix.bf16, ``FP32Flops`` vector.fp32, ``MFMAF6F4Flops`` two."""
    name = column.strip().lower()
    if name in _ROCPROF:
        return [_ROCPROF[name]]
    match = re.fullmatch("(mfma|wmma)?(.*?)(fl)?ops", name)
    if match is None:
        return []
    engine, name = "matrix." if match[1] else "vector.", match[2]
    axes = []
    for spelling in ("f6", "f4") if name == "f6f4" else (name[2:] if name.startswith("mx") else name,):
        try:
            axes.append(engine + _dtype(spelling, column))
        except ValueError:
            continue
    return axes


def _from_rocprof(text: str, path: str, label: str, device: str | None) -> Overlay:
    try:
        rows = list(csv.reader(text.replace("\r", "").split("\n")))
    except csv.Error as error:
        raise ValueError(f"{label}: not CSV: {error}") from None
    header = [printable(name.strip()) for name in rows[0]]
    low = [name.lower() for name in header]
    body = [(at, row) for at, row in enumerate(rows[1:], 2) if any(cell.strip() for cell in row)]
    id_at = low.index("device")
    if device is not None:
        body = [(at, row) for at, row in body if len(row) > id_at and row[id_at].strip() == device]
    if not body:
        raise ValueError(f"{label}: no row" + (f" of device {printable(device)}" if device is not None else ""))
    ceilings = []
    for column, name in enumerate(header):
        axes = _rocprof_axes(name)
        top = low.index(low[column] + "high") if low[column] + "high" in low else None
        figures: list[tuple[float, float | None, str, str]] = []
        for at, row in body if axes else ():
            where = f"{label}: line {at}, {name}"
            if column >= len(row):
                raise ValueError(f"{where}: the row ends before it")
            if row[column].strip().lower() in ("", "0", "0.0", "nan", "n/a", "none"):
                continue
            value = number(row[column], where, above=0) * 1e9
            best = number(row[top], f"{label}: line {at}, {header[top]}", above=0) * 1e9 if top and top < len(row) else None
            figures.append((value, best, where, row[id_at].strip()))
        if not figures:
            continue
        most, least = max(figures, key=lambda item: item[0]), min(figures, key=lambda item: item[0])
        if most[0] > (1 + AGREEMENT) * least[0]:
            raise ValueError(
                f"{label}: {name} is {least[0] / 1e9:.5g} on device {printable(least[3])} and {most[0] / 1e9:.5g} on device "
                f"{printable(most[3])}: name the run's with --peaks-device"
            )
        ceilings += [Ceiling(axis, most[0], most[2], most[1]) for axis in axes]
    gfx, narrow = _sysinfo(os.path.join(os.path.dirname(path), "sysinfo.csv"))
    return Overlay("rocprof-compute", label, tuple(ceilings), gfx=gfx, narrow=narrow)


def _sysinfo(path: str) -> tuple[str | None, str]:
    """Return the architecture in rocprof-compute's sysinfo.csv, and its memory partition where that is not the whole."""
    try:
        row = next(csv.DictReader(read_text(path, _LARGEST_FILE).splitlines()))
    except (ValueError, StopIteration, csv.Error):
        return None, ""
    mode = (row.get("memory_partition") or "").strip().upper()
    split = mode.startswith("NPS") and mode != "NPS1"
    return (row.get("gpu_arch") or "").strip().lower() or None, f"measured in {printable(mode)} (sysinfo.csv)" if split else ""


def _from_tracelens(data: Mapping[str, object], label: str) -> Overlay:
    """Read ``mem_bw_gbps`` in GB/s, and ``max_achievable_tflops`` in TFLOP/s by ``matrix_`` or ``vector_`` and dtype."""
    ceilings = []
    if data.get("mem_bw_gbps") is not None:
        where = f"{label}: mem_bw_gbps"
        ceilings.append(Ceiling("memory", number(data["mem_bw_gbps"], where, above=0) * 1e9, where))
    rates = data.get("max_achievable_tflops", {})
    if not isinstance(rates, dict):
        raise ValueError(f"{label}: max_achievable_tflops is {type(rates).__name__}, expected an object")
    for key, value in rates.items():
        where = f"{label}: max_achievable_tflops.{printable(str(key))}"
        engine, _, name = str(key).partition("_")
        if engine not in ("matrix", "vector"):
            raise ValueError(f"{where}: expected matrix_ or vector_ and a dtype")
        rate = number(value, where, above=0) * 1e12
        ceilings.append(Ceiling(f"{engine}.{_dtype(name, where)}", rate, where))
    device = data.get("name")
    named = device if isinstance(device, str) else None
    return Overlay("TraceLens", label, tuple(ceilings), device=named, gemm=True)


def _from_ert(data: Mapping[str, object], label: str) -> Overlay:
    """Read ``{"gbytes": {"data": [["L1", GB/s], ["DRAM", ...]]}, "gflops": {"data": [["GFLOPs", ...]]}}``, the best trials.

    ERT's kernels are in double precision, on the vector units; later versions put the precision before ``GFLOPs``.
    """
    ceilings = []
    for section, scale in (("gbytes", "GB/s"), ("gflops", "GFLOP/s")):
        block = data.get(section)
        rows = block.get("data") if isinstance(block, dict) else None
        for at, row in enumerate(rows if isinstance(rows, list) else ()):
            where = f"{label}: empirical.{section}.data[{at}]"
            if not (isinstance(row, list) and len(row) == 2 and isinstance(row[0], str)):
                raise ValueError(f"{where}: expected a name and a figure in {scale}")
            value = number(row[1], where, above=0) * 1e9
            name = row[0].strip().lower()
            if section == "gbytes":
                axis = {"dram": "memory", "hbm": "memory"}.get(name, name)
                if axis != "memory" and axis not in CACHES:
                    continue
            else:
                kind = name.replace("gflops", "").replace("gflop/s", "").strip(" /-_")
                axis = f"vector.{_dtype(kind or 'fp64', where)}"
            ceilings.append(Ceiling(axis, value, where))
    meta = data.get("metadata")
    config = meta.get("CONFIG") if isinstance(meta, dict) else None
    gpu = config.get("ERT_GPU") if isinstance(config, dict) else None
    on_gpu = str(gpu[0] if isinstance(gpu, list) and gpu else gpu).strip().lower() == "true"
    return Overlay("ERT", label, tuple(ceilings), host=not on_gpu)


def _from_carm(records: list[tuple[int, object]], label: str, device: str | None) -> Overlay:
    """Read one benchmark a line: ``type`` memory has ``bandwidth_gbps`` at a ``cache_level``, arithmetic ``performance_gops``.

    A roof is the best configuration (ISA, threads, load:store mix, operation); its repeats are the rounds.
    """
    rounds: dict[tuple[str, ...], list[tuple[float, str]]] = {}
    machines = set()
    for at, row in records:
        where = f"{label}: line {at}"
        if not isinstance(row, dict):
            raise ValueError(f"{where}: expected an object")
        machine = str(row.get("machine"))
        if device is not None and machine != device:
            continue
        machines.add(machine)
        figure = carm_figure(row, where)
        if figure is None:
            continue
        axis, key, value = figure
        setting = tuple(row.get(name) for name in ("isa", "data_type", "num_threads", "operation", "load_store_ratio"))
        rounds.setdefault((axis, machine, *map(str, setting)), []).append((value, f"{where}, {key}"))
    if len(machines) > 1:
        names = ", ".join(sorted(map(printable, machines)))
        raise ValueError(f"{label}: several machines ({names}): name the run's with --peaks-device")
    best: dict[str, Ceiling] = {}
    for (axis, *_), repeats in rounds.items():
        repeats.sort()
        value, where = repeats[len(repeats) // 2]
        if axis not in best or value > best[axis].value:
            best[axis] = Ceiling(axis, value, where, repeats[-1][0] if len(repeats) > 1 else None)
    return Overlay("carm-roofline", label, tuple(best.values()), device=next(iter(machines), None), host=True)


def carm_figure(row: Mapping[str, object], where: str) -> tuple[str, str, float] | None:
    """Return axis, key and figure (bytes/s or FLOP/s) of one of carm-roofline's records; None for one that is no roof.

    Raises:
        ValueError: naming ``where`` and the key.
    """
    level = str(row.get("cache_level")).strip().lower()
    if row.get("type") == "memory" and level in (*CACHES, "dram"):
        axis, key = "memory" if level == "dram" else level, "bandwidth_gbps"
    elif row.get("type") == "arithmetic":
        axis, key = f"vector.{_dtype(row.get('data_type'), where)}", "performance_gops"
    else:
        return None  # a mixed series shows the roof at chosen intensities, a sweep has sizes in place of levels
    return axis, key, number(row.get(key), f"{where}, {key}", above=0) * 1e9


#: Rounds are one ceiling when the best lies within this of the median; a wider spread is a busy or throttled machine.
ROUNDS = 0.15
#: BF16 and FP16 of one device; rocprof-compute 3.6.0 on MI355X is right in both at 0.89, its faults were at 0.5 and 0.56.
BF16_FP16 = 0.85
#: Over the rated figure at the highest clock or the full bus this much is timing noise, more is a fault.
OVER_CLOCK, OVER_BUS = 1.02, 1.01
#: A "measured" figure this close to the data sheet's is the data sheet's (5300 GB/s, int8 2600 in TraceLens' MI300X file).
_NOMINAL = 0.01


def lay_over(peaks: Peaks, overlay: Overlay, table: Table | None) -> tuple[Peaks, list[str]]:
    """Lay measured ceilings over ``peaks``: return the peaks, and one line for each figure that was not used.

    Raises:
        ValueError: when the file is of another device.
    """
    _check_device(peaks, overlay, table)
    listed = bool(peaks.hbm_bw_bytes_s or peaks.flops or peaks.vector)
    valid: dict[str, Ceiling] = {}
    refused, unlisted = [], []
    for ceiling in overlay.ceilings:
        if ceiling.axis in CACHES:
            continue
        rated = peaks.rated(ceiling.axis)
        if listed and rated is None:
            unlisted.append(ceiling.axis)
            continue
        fault = _find_fault(peaks, overlay, ceiling, rated)
        if fault:
            refused.append(f"{ceiling.where}: {quantity(ceiling.value, _unit(ceiling.axis))} {fault}; not used")
        elif ceiling.axis not in valid or ceiling.value > valid[ceiling.axis].value:
            valid[ceiling.axis] = ceiling
    refused += _drop_unequal_half(peaks, valid)
    if unlisted:
        names = ", ".join(sorted(set(unlisted)))
        refused.append(f"{overlay.label}: no figure of {peaks.product or peaks.gfx} to check {names} against; not used")
    if not valid:
        first = refused[0] if refused else f"{overlay.label}: only caches were measured"
        raise ValueError(f"{first}; no figure of the file fits {peaks.product or peaks.gfx or 'this device'}")
    return _combine(peaks, overlay, valid, listed), refused


def _unit(axis: str) -> str:
    return "FLOP/s" if "." in axis else "B/s"


def _highest(peaks: Peaks, axis: str, rated: float) -> float:
    """Return the most that a right measurement of the axis can be."""
    if axis == "memory":
        return OVER_BUS * max(rated, peaks.hbm_bw_limit_bytes_s or 0.0)
    top = peaks.highest(axis)
    return OVER_CLOCK * max(rated, top) if top else rated * clock_margin(peaks.product)


def _check_device(peaks: Peaks, overlay: Overlay, table: Table | None) -> None:
    run = peaks.product or peaks.gfx
    if overlay.host and run:
        raise ValueError(f"{overlay.label}: {overlay.tool} measured a CPU, the run was made on {printable(run)}")
    if overlay.gfx and peaks.gfx and overlay.gfx.split(":")[0] != peaks.gfx:
        where = f"{overlay.label}: measured on {printable(overlay.gfx)} (sysinfo.csv)"
        raise ValueError(f"{where}, the run was made on {peaks.gfx}")
    products = table.find(overlay.device) if table and overlay.device and not overlay.host else []
    ids, architectures = [block.id for block in products], [block.text("gfx") for block in products]
    if products and (peaks.product not in (None, *ids) or peaks.gfx not in (None, *architectures)):
        raise ValueError(f"{overlay.label}: measured on {printable(overlay.device or '')}, the run was made on {run}")


def _find_fault(peaks: Peaks, overlay: Overlay, ceiling: Ceiling, rated: float | None) -> str:
    """Return why a figure cannot be the ceiling of its axis; empty when it can."""
    axis, value = ceiling.axis, ceiling.value
    if "." in axis:
        low, high = HOST_FLOPS_BOUNDS if overlay.host else FLOPS_BOUNDS
    else:
        low, high = HOST_BANDWIDTH_BOUNDS if overlay.host else BANDWIDTH_BOUNDS
    if not low <= value <= high:
        return "is out of the range of any device: a unit error?"
    if axis == "memory":
        cache = next((item for item in overlay.ceilings if item.axis == "l2"), None)
        if cache and value > cache.value:
            return f"is over the {quantity(cache.value, 'B/s')} of the L2: measured out of a cache"
        if overlay.narrow:
            return f"is not of the whole device: {overlay.narrow}"
    if rated is None:
        return ""
    ratio, top = value / rated, _highest(peaks, axis, rated)
    if axis in peaks.unvalidated:
        return "cannot be checked: the table's figure breaks a rule"
    if value > top:
        return f"is {ratio:.3g}x the rated {quantity(rated, _unit(axis))}, over what clock and bus allow{telltale(ratio)}"
    floor = UNDER_GEMM if overlay.gemm and axis.startswith("matrix.") else UNDER_ARITHMETIC
    if ratio < floor:
        cause = telltale(ratio) or ": a faulty benchmark, or a part of the device?"
        return f"is {ratio:.3g} of the rated {quantity(rated, _unit(axis))}, under {floor:g}{cause}"
    if overlay.gemm and abs(ratio - 1) <= _NOMINAL:
        return "is the figure of the data sheet, not a measurement"
    vector = peaks.vector.get(axis[len("matrix.") :]) if axis.startswith("matrix.") else None
    if overlay.gemm and vector and rated > 1.5 * vector and abs(value / vector - 1) <= 2 * _NOMINAL:
        return f"is the rated {quantity(vector, 'FLOP/s')} of the vector units"
    return ""


def _drop_unequal_half(peaks: Peaks, valid: dict[str, Ceiling]) -> list[str]:
    """Drop the slower of BF16 and FP16 where they differ and the device runs them alike: its benchmark is faulty."""
    pair = [valid[axis] for axis in ("matrix.bf16", "matrix.fp16") if axis in valid]
    rated = [peaks.flops.get(dtype) for dtype in ("bf16", "fp16")]
    if len(pair) < 2 or not (rated[0] and rated[1] and abs(rated[0] / rated[1] - 1) <= 0.01):
        return []
    slow, fast = sorted(pair, key=lambda item: item.value)
    if slow.value >= BF16_FP16 * fast.value:
        return []
    del valid[slow.axis]
    fault = f"is {slow.value / fast.value:.3g} of {fast.axis}, which this device runs at the same rate"
    return [f"{slow.where}: {quantity(slow.value, 'FLOP/s')} {fault}; not used"]


def _combine(peaks: Peaks, overlay: Overlay, valid: Mapping[str, Ceiling], listed: bool) -> Peaks:
    """Return ``peaks`` with the valid ceilings; listed: the table has figures of this device."""
    roofs: dict[str, float] = {}
    achievable: dict[str, float] = {}
    doubtful = []
    for axis, ceiling in valid.items():
        rated = peaks.rated(axis)
        if rated is not None and ceiling.value <= rated:
            achievable[axis] = ceiling.value
            continue
        roofs[axis] = ceiling.value
        steady = ceiling.best is not None and ceiling.best <= (1 + ROUNDS) * ceiling.value
        agrees = ceiling.best is None and rated is not None and ceiling.value <= (1 + AGREEMENT) * rated
        if not (steady or agrees):
            doubtful.append(axis)
    what = f"measured by {overlay.tool} ({overlay.label}): {', '.join(valid)}"
    used = f"over the table and so the roof: {', '.join(roofs)}" if roofs else "none is over the table, which stays the roof"
    note = join_sentences(what, used if listed else "the only figures of this device", peaks.note if listed else "")
    if overlay.host and overlay.device:
        note = join_sentences(note, f"machine {printable(overlay.device)}")
    # GEMMs that ran here say more of this device than the table's figure of the product.
    sustained = {axis: rate for axis, rate in peaks.sustained.items() if not (overlay.gemm and axis in valid)}
    combined = peaks._replace(achievable={**peaks.achievable, **achievable}, sustained=sustained, note=note)
    if not roofs:
        return combined
    flops, vector = ({**values} for values in (peaks.flops, peaks.vector))
    for axis, value in roofs.items():
        engine, dot, dtype = axis.partition(".")
        if dot:
            (flops if engine == "matrix" else vector)[dtype] = value
    bandwidth = roofs.get("memory", peaks.hbm_bw_bytes_s)
    limit = max(bandwidth or 0.0, peaks.hbm_bw_limit_bytes_s or 0.0) or None
    combined = combined._replace(
        flops=flops, vector=vector, hbm_bw_bytes_s=bandwidth, hbm_bw_limit_bytes_s=limit, source="measured"
    )
    if not (listed or overlay.host or (overlay.gfx and peaks.gfx)):
        note = join_sentences(note, "nothing shows that they are of the run's device")
        return combined._replace(confidence="low", note=note)
    if not listed:
        partly = tuple(doubtful) if len(doubtful) < len(roofs) else ()
        return combined._replace(confidence="low" if doubtful else "high", low_axes=partly)
    if doubtful and (peaks.confidence == "high" or peaks.low_axes):
        return combined._replace(confidence="low", low_axes=tuple(dict.fromkeys((*peaks.low_axes, *doubtful))))
    return combined
