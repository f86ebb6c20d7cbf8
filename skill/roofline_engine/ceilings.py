"""Measured ceilings as other tools write them, told apart by content.

``read`` knows rocprof-compute's ``roofline.csv``, TraceLens' arch JSON (max-achievable FLOPs), the Empirical Roofline Tool's
``roofline.json`` and carm-roofline's ``benchmarks.jsonl``. What the figures are worth is ``overlay``'s to judge.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Mapping

from .peaks import AGREEMENT
from .record import Record
from .units import number, parse_dtype, printable

_LARGEST_FILE = 2**26
CACHES = ("l2", "l1", "lds", "mall", "l3")


class Ceiling(Record):
    """One measured figure: bytes/s of ``memory`` or a cache, FLOP/s of an axis such as ``matrix.bf16``.

    where: file, row and column. best: of the rounds, whose middle ``value`` is; None where the file has no rounds.
    """

    axis: str
    value: float
    where: str
    best: float | None = None


class Overlay(Record):
    """The ceilings of one file.

    device: the device's name as the file gives it. gfx: the architecture, where a file beside it says. gemm: whole GEMMs were
    timed, not instructions. host: a CPU was measured. narrow: why its bandwidth is not the whole device's.
    """

    tool: str
    label: str
    ceilings: tuple[Ceiling, ...]
    device: str | None = None
    gfx: str | None = None
    gemm: bool = False
    host: bool = False
    narrow: str = ""


def read(path: str, device: str | None = None) -> Overlay | None:
    """The measured ceilings in ``path``; None where it holds none of the four formats (a peak table, perhaps).

    device: which one, where a file holds several that differ (rocprof-compute's device id, carm's machine).

    Raises:
        ValueError: one line naming the file and the place.
    """
    label = printable(os.path.basename(path))
    if os.path.getsize(path) > _LARGEST_FILE:
        raise ValueError(f"{label}: larger than 64 MiB")
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as handle:
        text = handle.read()
    head = text.lstrip()[:1]
    if head in ("{", "["):
        return _from_json(text, label, device)
    header = text.split("\n", 1)[0].strip().lower().split(",")
    if "device" in header and "hbmbw" in header:
        return _from_rocprof(text, path, label, device)
    return None


def _from_json(text: str, label: str, device: str | None) -> Overlay:
    try:
        lines = [(at, line) for at, line in enumerate(text.split("\n"), 1) if line.strip()]
        if '"isa"' in lines[0][1] and '"type"' in lines[0][1]:
            return _from_carm([(at, _load(line, f"{label}: line {at}")) for at, line in lines], label, device)
        data = _load(text, label)
    except RecursionError:
        raise ValueError(f"{label}: nested too deep to read") from None
    if isinstance(data, dict):
        if "max_achievable_tflops" in data or "mem_bw_gbps" in data:
            return _from_tracelens(data, label)
        if isinstance(data.get("empirical"), dict):
            return _from_ert(data["empirical"], label)
    raise ValueError(f"{label}: JSON of no kind known: expected TraceLens arch, ERT roofline.json or carm benchmarks.jsonl")


def _load(text: str, where: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"{where}: not JSON: {error}") from None


def _some(ceilings: Iterable[Ceiling], label: str) -> tuple[Ceiling, ...]:
    found = tuple(ceilings)
    if not found:
        raise ValueError(f"{label}: no measured figure in it")
    return found


def _dtype(name: object, where: str) -> str:
    """The table's name of a dtype; ValueError names the place."""
    try:
        dtype = parse_dtype(name)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    return dtype.peak or dtype.name


#: Columns of rocprof-compute's roofline.csv (rocm-amdgpu-bench, utils/benchmark.py): GB/s and GFLOP/s; the mean over the
#: experiments, beside it the ends of its confidence interval (``HBMBwLow``, ``hbmBwHigh``). 0 is a type the device lacks.
_ROCPROF = {"hbmbw": "memory", "mallbw": "mall", "l2bw": "l2", "l1bw": "l1", "ldsbw": "lds"}


def _rocprof_axes(column: str) -> tuple[str, ...]:
    """``MFMABF16Flops`` is matrix.bf16, ``FP32Flops`` vector.fp32, ``MFMAF6F4Flops`` both types, ``device`` none."""
    name = column.strip().lower()
    if name in _ROCPROF:
        return (_ROCPROF[name],)
    kind = next((end for end in ("flops", "ops") if name.endswith(end)), None)
    if kind is None:
        return ()
    name = name[: -len(kind)]
    engine = "matrix." if name.startswith(("mfma", "wmma")) else "vector."
    name = name[4:] if engine == "matrix." else name
    found = []
    for one in ("f6", "f4") if name == "f6f4" else (name[2:] if name.startswith("mx") else name,):
        try:
            dtype = parse_dtype(one)
        except ValueError:
            continue
        found.append(engine + (dtype.peak or dtype.name))
    return tuple(found)


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
        seen: list[tuple[float, float | None, str, str]] = []
        for at, row in body if axes else ():
            where = f"{label}: line {at}, {name}"
            if column >= len(row):
                raise ValueError(f"{where}: the row ends before it")
            if row[column].strip().lower() in ("", "0", "0.0", "nan", "n/a", "none"):
                continue
            value = number(row[column], where, above=0) * 1e9
            best = number(row[top], f"{label}: line {at}, {header[top]}", above=0) * 1e9 if top and top < len(row) else None
            seen.append((value, best, where, row[id_at].strip()))
        if not seen:
            continue
        most, least = max(seen, key=lambda item: item[0]), min(seen, key=lambda item: item[0])
        if most[0] > (1 + AGREEMENT) * least[0]:
            raise ValueError(
                f"{label}: {name} is {least[0] / 1e9:.5g} on device {printable(least[3])} and {most[0] / 1e9:.5g} on device "
                f"{printable(most[3])}: name the run's with --peaks-device"
            )
        ceilings += [Ceiling(axis, most[0], most[2], most[1]) for axis in axes]
    gfx, narrow = _sysinfo(os.path.join(os.path.dirname(path), "sysinfo.csv"))
    return Overlay("rocprof-compute", label, _some(ceilings, label), gfx=gfx, narrow=narrow)


def _sysinfo(path: str) -> tuple[str | None, str]:
    """What rocprof-compute wrote beside its roofline: the architecture, and a memory partition that is not the whole."""
    try:
        with open(path, encoding="utf-8-sig", errors="replace", newline="") as handle:
            row = next(csv.DictReader(handle))
    except (OSError, StopIteration, csv.Error):
        return None, ""
    mode = (row.get("memory_partition") or "").strip().upper()
    split = mode.startswith("NPS") and mode != "NPS1"
    return (row.get("gpu_arch") or "").strip().lower() or None, f"measured in {printable(mode)} (sysinfo.csv)" if split else ""


def _from_tracelens(data: Mapping[str, object], label: str) -> Overlay:
    """``mem_bw_gbps`` in GB/s, ``max_achievable_tflops`` in TFLOP/s by ``matrix_`` or ``vector_`` and dtype."""
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
    return Overlay("TraceLens", label, _some(ceilings, label), device=named, gemm=True)


def _from_ert(data: Mapping[str, object], label: str) -> Overlay:
    """``{"gbytes": {"data": [["L1", GB/s], ["DRAM", ...]]}, "gflops": {"data": [["GFLOPs", ...]]}}``, the best of all trials.

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
    return Overlay("ERT", label, _some(ceilings, label), host=not on_gpu)


def _from_carm(records: list[tuple[int, object]], label: str, device: str | None) -> Overlay:
    """One benchmark a line: ``type`` memory has ``bandwidth_gbps`` at a ``cache_level``, arithmetic ``performance_gops``.

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
    for (axis, *_), seen in rounds.items():
        seen.sort()
        value, where = seen[len(seen) // 2]
        if axis not in best or value > best[axis].value:
            best[axis] = Ceiling(axis, value, where, seen[-1][0] if len(seen) > 1 else None)
    return Overlay("carm-roofline", label, _some(best.values(), label), device=next(iter(machines), None), host=True)


def carm_figure(row: Mapping[str, object], where: str) -> tuple[str, str, float] | None:
    """Axis, key and figure (bytes/s or FLOP/s) of one of carm-roofline's records; None for one that is no roof.

    Raises:
        ValueError: naming ``where`` and the key.
    """
    level = str(row.get("cache_level")).strip().lower()
    if row.get("type") == "memory" and level in (*CACHES, "dram"):
        axis, key = "memory" if level == "dram" else level, "bandwidth_gbps"
    elif row.get("type") == "arithmetic":
        axis, key = f"vector.{_dtype(row.get('data_type'), where)}", "performance_gops"
    else:
        return None  # a mixed series shows the roof at chosen intensities, a sweep has sizes for levels
    return axis, key, number(row.get(key), f"{where}, {key}", above=0) * 1e9
