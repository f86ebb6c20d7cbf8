"""Hardware peaks: the table in ``peaks.md``, and which of its products a run was made on.

A gfx or compute capability is not a product (gfx942 is four of them), so a product is found by its whole name, or by
architecture with unit count and memory size. What stays open is said: a bare architecture uses its default block, with
low confidence on every axis where the products that share it differ by more than 10 %.

The grammar of ``peaks.md`` (fenced blocks, one ``key: value | field | [sources]`` a line) is described at its top.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from .peaks_audit import clock_of, engine_clock, faults
from .peaks_table import Block, Table, normalize_name, unit_counts
from .units import BANDWIDTH_BOUNDS, FLOPS_BOUNDS

#: The product of peaks that were measured on a CPU.
CPU = "cpu"
#: One launch costs about this much whatever it does (specification 3.6), so a time near it is not the kernel's. Of a GPU; a
#: CPU's own is a measured empty call.
DISPATCH_FLOOR_S = 5e-6
#: Products behind one architecture agree when their peaks lie within this; MI350X and MI355X differ by 8.3 %.
AGREEMENT = 0.10


#: Over the rated figure where the highest clock is not known: boards that boost freely (RTX 5090: 254 of 209.5 TFLOP/s
#: measured), and others.
OVER_RATED_BOARD, OVER_RATED = 1.25, 1.10
_BOARDS = ("rtx", "rx", "w7900", "r9700")


def clock_margin(product: str | None) -> float:
    """How far a right measurement may lie over a rated figure whose limit is not known."""
    return OVER_RATED_BOARD if (product or "").startswith(_BOARDS) else OVER_RATED


class Target(NamedTuple):
    """What kernels of one device, op, axis and dtype were seen to reach of their roof, a fraction, ``n`` of them."""

    target_eff: float
    n: int
    source: str


class Peaks(NamedTuple):
    """The denominators of one device. Rates are dense; bytes/s and FLOP/s; None or a missing key is unknown.

    flops: matrix (tensor core, MFMA, WMMA) rates by dtype. vector: the vector units' rates. *_max: at maximum clock; of
    several products that share a name, and the bus's limit too, those of the fastest.
    low_axes: axes with low confidence although the product is known well enough otherwise (``memory``, ``matrix.fp8``).
    unvalidated: axis to the rule its figure breaks; no compute-axis verdict is taken on it.
    achievable: axis to a measured ceiling under its roof (``overlay``); shown beside the roof, never in its place.
    targets: what good kernels were observed to reach here, from a file that was named (``targets``).
    """

    product: str | None = None
    gfx: str | None = None
    hbm_bw_bytes_s: float | None = None
    hbm_bw_limit_bytes_s: float | None = None
    flops: Mapping[str, float] = {}
    flops_max: Mapping[str, float] = {}
    vector: Mapping[str, float] = {}
    vector_max: Mapping[str, float] = {}
    l2_bytes: float | None = None
    mall_bytes: float | None = None
    units: int | None = None
    source: str = "table"
    confidence: str = "low"
    low_axes: tuple[str, ...] = ()
    unvalidated: Mapping[str, str] = {}
    achievable: Mapping[str, float] = {}
    dispatch_floor_s: float = DISPATCH_FLOOR_S
    targets: Mapping[tuple[str, str, str, str], Target] = {}
    note: str = ""

    def compute_axis(self, engine: str, dtype: str | None) -> tuple[str, float | None]:
        """The compute roof of ``dtype``: its axis (``matrix.bf16``) and peak FLOP/s; never another dtype's figure.

        Matrix work in a dtype that the matrix units lack runs on the vector units (an fp32 GEMM on H100).
        """
        name = dtype or "none"
        if engine == "matrix" and name in self.flops:
            return f"matrix.{name}", self.flops[name]
        return (f"vector.{name}", self.vector[name]) if name in self.vector else (f"{engine}.{name}", None)

    def highest(self, axis: str) -> float | None:
        """The rate of ``memory`` or an axis such as ``matrix.bf16`` at the full bus or the highest clock, where known."""
        engine, dot, dtype = axis.partition(".")
        if not dot:
            return self.hbm_bw_limit_bytes_s
        return (self.flops_max if engine == "matrix" else self.vector_max).get(dtype)

    def target(self, op: str, axis: str | None, dtype: str) -> Target | None:
        """The observed target of just this device, op, axis and dtype; never that of another."""
        return self.targets.get((normalize_name(self.product or self.gfx or ""), op, axis or "", dtype))

    def axis_confidence(self, axis: str) -> str:
        """``high`` or ``low`` for ``memory`` or an axis such as ``matrix.bf16``."""
        if self.low_axes:
            return "low" if axis in self.low_axes else "high"
        return self.confidence

    def to_dict(self) -> dict[str, object]:
        """The artifact's ``peaks`` object."""
        out: dict[str, object] = {
            "product": self.product,
            "gfx": self.gfx,
            "hbm_bw_bytes_s": self.hbm_bw_bytes_s,
            "flops": dict(self.flops),
            "vector": dict(self.vector),
            "l2_bytes": self.l2_bytes,
            "mall_bytes": self.mall_bytes,
            "source": self.source,
            "confidence": self.confidence,
            "note": self.note,
        }
        if self.low_axes:
            out["low_confidence_axes"] = list(self.low_axes)
        if self.unvalidated:
            out["unvalidated"] = dict(self.unvalidated)
        if self.achievable:
            parts = [(axis.partition(".")[0], axis.partition(".")[2], value) for axis, value in self.achievable.items()]
            out["achievable"] = {
                "hbm_bw_bytes_s": self.achievable.get("memory"),
                "flops": {dtype: value for engine, dtype, value in parts if engine == "matrix"},
                "vector": {dtype: value for engine, dtype, value in parts if engine == "vector"},
            }
        return out


def resolve(table: Table | None, device: Device) -> Peaks:
    """The peaks of ``device``. What cannot be told is low confidence or null, and ``note`` says which key would settle it.

    Raises:
        ValueError: when the block that was found has a line that cannot be read (names file and line).
    """
    peaks = _resolved(table, device)
    return peaks if device.run_clock_khz is None else _at_run_clock(table, peaks, device.run_clock_khz)


def resolve_name(table: Table | None, name: str, units: int | None = None) -> Peaks:
    """The peaks that a person means by ``name``: an architecture where the table has it, else a product.

    units: CUs or SMs, which tell the products of one architecture apart.
    """
    gfx = architecture(name)
    by_arch = table is not None and (gfx in table.defaults or bool(table.of_arch(gfx)))
    return resolve(table, Device(gfx=gfx, cu_count=units) if by_arch else Device(device_name=name))


def _at_run_clock(table: Table | None, peaks: Peaks, run_khz: float) -> Peaks:
    """FLOP/s at the clock the units ran at: units x clock x rate, so in proportion to the clock behind the rated figure.

    A kernel at 48 % of what a GB200 locked to 1200 MHz can do is at 28 % of its rated peak (NVIDIA/cudnn-frontend#314).
    The memory has a clock of its own.
    """
    run, block = hertz(run_khz), table.products.get(peaks.product or "") if table else None
    rated, top = (engine_clock(block, "matrix"), engine_clock(block, "max")) if block else (None, None)
    vector = (engine_clock(block, "vector") if block else None) or rated
    if run is None or rated is None or vector is None or run > 1e6 * max(rated, vector, top or 0.0):
        why = "the clock behind the rated FLOP/s is not known" if run else "no plausible kHz figure"
        why = f"over the highest clock of {peaks.product}" if run and rated and vector else why
        peaks = peaks._replace(note=join_sentences(f"run_clock_khz {run_khz:g} not used: {why}", peaks.note))
        if peaks.confidence == "low" and not peaks.low_axes:
            return peaks
        compute = (*(f"matrix.{dtype}" for dtype in peaks.flops), *(f"vector.{dtype}" for dtype in peaks.vector))
        return peaks._replace(confidence="low", low_axes=tuple(dict.fromkeys((*peaks.low_axes, *compute))))
    said = f"FLOP/s at the {run / 1e6:g} MHz of the run, rated at {rated:g} (matrix) and {vector:g} (vector)"
    slowed = {"matrix": run / 1e6 / rated, "vector": run / 1e6 / vector}
    flops = {dtype: rate * slowed[clock_of(f"matrix.{dtype}")] for dtype, rate in peaks.flops.items()}
    units = {dtype: rate * slowed["vector"] for dtype, rate in peaks.vector.items()}
    return peaks._replace(flops=flops, flops_max=flops, vector=units, vector_max=units, note=join_sentences(said, peaks.note))


def _resolved(table: Table | None, device: Device) -> Peaks:
    gfx = architecture(device.gfx) if device.gfx else None
    if table is None:
        return _derived(None, device, gfx, "no peak table was found")
    name, mig = _split_mig(device.device_name or "")
    if not normalize_name(name):  # "AMD Radeon Graphics", which ROCm reports for many parts, says nothing
        name = ""
    found = table.named(name) if name else []
    if not found and not name and gfx and gfx not in table.defaults and not table.of_arch(gfx):
        found = table.named(device.gfx or "")  # the key gfx sometimes holds a product name
        gfx = found[0].text("gfx") if found else gfx
    if found:
        return _of_product(table, found, device, gfx, mig)
    if not gfx:
        said = f"{name!r} is not in {os.path.basename(table.path)}" if name else "no gfx and no device name that tells"
        return _derived(table, device, gfx, said)
    unlisted = f"{name!r} is not in {os.path.basename(table.path)}" if name else ""
    return _of_architecture(table, device, gfx, unlisted)


def _of_product(table: Table, found: list[Block], device: Device, gfx: str | None, mig: tuple[int, float] | None) -> Peaks:
    if len(found) > 1:
        found = _matching(found, device) or found
    block = found[0]
    arch = block.text("gfx")
    if len(found) > 1:
        default = table.defaults.get(arch or "")
        use = default.text("use") if default else None
        block = next((item for item in found if item.id == use), block)
    peaks = peaks_of_block(table, block)
    if len(found) > 1:
        peaks = _with_agreement(table, peaks, found, f"the name is shared by {_ids(found)}")
    doubts = []
    if gfx and arch and gfx != arch:
        doubts.append(f"the device name says {block.id} ({arch}) but gfx says {gfx}: correct one of the two keys")
    if mig:
        return _mig_slice(peaks, block, device, mig, doubts)
    if device.memory_bytes is not None and not _fits_memory(block, device.memory_bytes):
        said = f"{device.memory_bytes / 1e9:.4g}e9"
        doubts.append(f"memory_bytes {said} is not that of {block.id}: correct one of the two keys")
    if device.cu_count is not None and device.cu_count not in unit_counts(block):
        peaks, doubt = _scaled(peaks, block, device.cu_count)
        doubts.append(doubt)
    return _doubted(peaks, doubts)


def _of_architecture(table: Table, device: Device, gfx: str, unlisted: str) -> Peaks:
    every = table.of_arch(gfx)
    named_keys = device.cu_count is not None or device.memory_bytes is not None
    found = _matching(every, device) if named_keys else every
    default = table.defaults.get(gfx)
    if len(found) == 1 and named_keys:
        return _doubted(peaks_of_block(table, found[0]), [unlisted] if unlisted else [])
    if found and default:
        use = default.text("use")
        block = next((item for item in found if item.id == use), found[0])
        peaks = peaks_of_block(table, default if block.id == use else block, base=block)
        if len(found) == 1:
            return _doubted(peaks, [unlisted] if unlisted else [])
        what = f"{gfx} {'with these keys' if named_keys else 'alone'} is {_ids(found)}"
        peaks = _with_agreement(table, peaks, found, what)
        return _doubted(peaks, [unlisted] if unlisted else [])
    if every and named_keys and not found:
        part_of = [block for block in every if device.cu_count and _is_partition(block, device.cu_count)]
        if part_of and device.cu_count:
            peaks, doubt = _scaled(peaks_of_block(table, part_of[0]), part_of[0], device.cu_count)
            return _doubted(peaks, [doubt, f"could be a partition of {_ids(part_of)}: add device_name"])
    reason = unlisted or (f"{gfx} is not in {os.path.basename(table.path)}" if not every else "")
    if not reason and not found:
        reason = f"no {gfx} product has this cu_count and memory_bytes ({_ids(every)} are listed)"
    return _derived(table, device, gfx, reason or f"{gfx} alone is {_ids(found)}: add device_name")


def _ids(blocks: list[Block]) -> str:
    return ", ".join(block.id for block in blocks)


def _is_partition(block: Block, cu_count: int) -> bool:
    counts = unit_counts(block)
    return bool(counts) and any(counts[0] == cu_count * parts for parts in (2, 4, 6, 8))


def _matching(blocks: list[Block], device: Device) -> list[Block]:
    found = []
    for block in blocks:
        if device.cu_count is not None and device.cu_count not in unit_counts(block):
            continue
        if device.memory_bytes is None or _fits_memory(block, device.memory_bytes):
            found.append(block)
    return found


def _fits_memory(block: Block, memory_bytes: float) -> bool:
    """A driver reports a 141 GB part as 150.8e9 bytes and a 16 GB one as 15.8e9: GB or GiB, less what ECC takes."""
    sizes = (block.text("memory_bytes") or "").split()
    return not sizes or any(0.92 <= memory_bytes / float(size) <= 1.08 for size in sizes)


def peaks_of_block(table: Table, block: Block, base: Block | None = None) -> Peaks:
    """Peaks of a product block; a default block overrides figures of the product it uses (``base``)."""
    base = base or block
    if block.kind == "default" and base is block:
        raise ValueError(f"{block.path}:{block.start}: default {block.id} uses no product")

    def rates(prefix: str) -> tuple[dict[str, float], dict[str, float]]:
        rated: dict[str, float] = {}
        top: dict[str, float] = {}
        for source in (base, block) if block is not base else (base,):
            for dtype, line in source.figures(prefix):
                rated[dtype] = source.value(line)
                limit = line.named("max")
                if limit and limit != "unknown":
                    top[dtype] = source.value(line, limit)
        return rated, top

    flops, flops_max = rates("matrix.")
    vector, vector_max = rates("vector.")
    memory = block.line("hbm_bw_bytes_s") or base.line("hbm_bw_bytes_s")
    owner = block if block.line("hbm_bw_bytes_s") else base
    bandwidth = owner.value(memory) if memory and memory.value != "unknown" else None
    limit = memory.named("limit") if memory else None
    counts = unit_counts(base)
    confidence = base.text("confidence") or "low"
    notes = [line.value for line in block.lines if line.key == "note"]
    if confidence == "medium":
        notes.insert(0, "figures through secondary sources")
    return Peaks(
        product=base.id if block is base else None,
        gfx=base.text("gfx"),
        hbm_bw_bytes_s=bandwidth,
        hbm_bw_limit_bytes_s=owner.value(memory, limit) if memory and limit and limit != "unknown" else bandwidth,
        flops=flops,
        flops_max=flops_max,
        vector=vector,
        vector_max=vector_max,
        l2_bytes=base.maybe("l2_bytes"),
        mall_bytes=base.maybe("mall_bytes"),
        units=counts[0] if counts else None,
        source="table" if table.shipped else "user",
        confidence="low" if confidence == "low" else "high",
        unvalidated={
            axis: fault
            for source in ((base, block) if block is not base else (base,))
            for axis, _, fault in faults(table, source)
            if source is block or block.line(axis) is None
        },
        note="; ".join(notes),
    )


def _with_agreement(table: Table, peaks: Peaks, found: list[Block], what: str) -> Peaks:
    """Peaks that stand for several products: of low confidence on each axis where they differ too much.

    What is possible is what the fastest of them can do: an H200's 4.4 TB/s are not beyond the roof of an sm_90.
    """
    voices = [peaks_of_block(table, block) for block in found]
    peaks = _with_limits(peaks, [peaks, *voices])
    axes = {"memory": [item.hbm_bw_bytes_s for item in voices]}
    for prefix, name in (("matrix.", "flops"), ("vector.", "vector")):
        for dtype in getattr(peaks, name):
            axes[prefix + dtype] = [getattr(item, name).get(dtype) for item in voices]
    low = []
    for axis, values in axes.items():
        known = [value for value in values if value]
        if not known or max(known) > (1 + AGREEMENT) * min(known):
            low.append(axis)
    if not low and peaks.confidence == "high":
        return peaks._replace(
            product=None, confidence="high", note=join_sentences(f"{what}, which agree within 10 %", peaks.note)
        )
    advice = f"{what}, which differ by more than 10 % on {', '.join(low)}: add device_name, or cu_count and memory_bytes"
    return peaks._replace(product=None, confidence="low", low_axes=tuple(low), note=join_sentences(advice, peaks.note))


def _with_limits(peaks: Peaks, voices: list[Peaks]) -> Peaks:
    """``peaks`` with the highest limits among ``voices``; one whose limit is not known may be over its rated figure."""

    def tops(name: str) -> dict[str, float]:
        found: dict[str, float] = {}
        known = {dtype for voice in voices for dtype in getattr(voice, f"{name}_max")}
        for voice in voices:
            rated, limits = getattr(voice, name), getattr(voice, f"{name}_max")
            for dtype in known & rated.keys():
                top = limits.get(dtype) or rated[dtype] * clock_margin(voice.product)
                found[dtype] = max(top, found.get(dtype, 0.0))
        return {dtype: found[dtype] for dtype in getattr(peaks, name) if dtype in found}

    memory = [voice.hbm_bw_limit_bytes_s or voice.hbm_bw_bytes_s or 0.0 for voice in voices]
    limit = max(memory) if peaks.hbm_bw_bytes_s else None
    return peaks._replace(hbm_bw_limit_bytes_s=limit, flops_max=tops("flops"), vector_max=tops("vector"))


def join_sentences(*parts: str) -> str:
    """The parts of a note."""
    return "; ".join(part for part in parts if part)


def _doubted(peaks: Peaks, doubts: list[str]) -> Peaks:
    if not doubts:
        return peaks
    return peaks._replace(confidence="low", low_axes=(), note=join_sentences(*doubts, peaks.note))


def _scaled(peaks: Peaks, block: Block, cu_count: int) -> tuple[Peaks, str]:
    counts = unit_counts(block)
    if not counts or cu_count > counts[0]:
        return peaks, f"cu_count {cu_count} does not fit {block.id} ({counts[0] if counts else 'unknown'} units)"
    part = cu_count / counts[0]
    return (
        _times(peaks, part, 1.0),
        f"{cu_count} of the {counts[0]} units of {block.id}: FLOP/s scaled, bandwidth shared by the partitions",
    )


def _times(peaks: Peaks, compute: float, memory: float) -> Peaks:
    def scale(values: Mapping[str, float], by: float) -> dict[str, float]:
        return {key: value * by for key, value in values.items()}

    return peaks._replace(
        flops=scale(peaks.flops, compute),
        flops_max=scale(peaks.flops_max, compute),
        vector=scale(peaks.vector, compute),
        vector_max=scale(peaks.vector_max, compute),
        hbm_bw_bytes_s=peaks.hbm_bw_bytes_s * memory if peaks.hbm_bw_bytes_s else None,
        hbm_bw_limit_bytes_s=peaks.hbm_bw_limit_bytes_s * memory if peaks.hbm_bw_limit_bytes_s else None,
        l2_bytes=peaks.l2_bytes * memory if peaks.l2_bytes else None,
    )


def _split_mig(name: str) -> tuple[str, tuple[int, float] | None]:
    """``NVIDIA H100 80GB HBM3 MIG 1g.10gb`` is the product's name and (1 compute slice, 10 GB)."""
    head, found, tail = name.partition(" MIG ")
    slices, g, memory = tail.strip().lower().split("+")[0].partition("g.")
    if not (found and g and slices.isdigit() and memory.endswith("gb") and memory[:-2].isdigit()):
        return name, None
    return head, (int(slices), float(memory[:-2]))


def _mig_slice(peaks: Peaks, block: Block, device: Device, mig: tuple[int, float], doubts: list[str]) -> Peaks:
    """Scale by the slice: visible SMs of all SMs, and memory slices of eight (NVIDIA MIG user guide)."""
    slices, memory_gb = mig
    counts = unit_counts(block)
    total = 4 if block.id == "a30" else 7
    compute = device.cu_count / counts[0] if device.cu_count and counts and device.cu_count <= counts[0] else slices / total
    size = float((block.text("memory_bytes") or "0").split()[0])
    memory = min(8, max(1, round(8 * memory_gb * 1e9 / size))) / 8 if size else 1.0
    doubts.append(f"a MIG slice of {block.id}: FLOP/s x {compute:.3g}, bandwidth x {memory:.3g}")
    return _doubted(_times(peaks, min(1.0, compute), memory), doubts)


def _derived(table: Table | None, device: Device, gfx: str | None, reason: str) -> Peaks:
    """L1: peaks from the device's own properties, low confidence; null where the properties are missing."""
    bandwidth, flops, vector, how = derive(table, device, gfx)
    return Peaks(
        gfx=gfx,
        hbm_bw_bytes_s=bandwidth,
        hbm_bw_limit_bytes_s=bandwidth,
        flops=flops,
        vector=vector,
        units=device.cu_count,
        source="derived",
        confidence="low",
        note=f"L1: {reason}; {how}",
    )


class Device(NamedTuple):
    """What a run says of its device. Every key may be missing; clocks are in kHz as HIP, CUDA and torch report them.

    clock_khz: the highest the units can run at. run_clock_khz: what they did run at, locked or sampled while the kernels ran.
    """

    gfx: str | None = None
    device_name: str | None = None
    cu_count: int | None = None
    memory_bytes: float | None = None
    clock_khz: float | None = None
    memory_clock_khz: float | None = None
    memory_bus_bits: float | None = None
    run_clock_khz: float | None = None


def architecture(text: str) -> str:
    """``gfx942:sramecc+:xnack-`` is ``gfx942``; ``sm90a``, ``9.0`` and ``sm_90`` are ``sm_90``."""
    key = text.strip().lower().split(":")[0]
    if key.startswith("sm"):
        return "sm_" + key[2:].lstrip("_").rstrip("af")
    major, dot, minor = key.partition(".")
    if dot and major.isdigit() and minor.isdigit():
        return f"sm_{major}{minor}"
    return key


#: Bits per memory clock and bus bit, for the clock that the driver reports: DDR 2, HBM of CDNA3/4 4, GDDR6 as HIP reports
#: it 16, LPDDR5X of the APU 8 (exact on the products of the table, +2.4 % on H200).
_TRANSFERS = {"gfx906": 2, "gfx908": 2, "gfx90a": 2, "gfx942": 4, "gfx950": 4, "gfx1151": 8}


def derive(
    table: Table | None, device: Device, gfx: str | None
) -> tuple[float | None, dict[str, float], dict[str, float], str]:
    """Bytes/s, matrix and vector FLOP/s from units, clocks and bus alone, and a sentence on how, or on what is missing."""
    bandwidth = None
    clock_hz, memory_hz = hertz(device.clock_khz), hertz(device.memory_clock_khz)
    rdna = gfx is not None and gfx.startswith(("gfx10", "gfx11", "gfx12"))
    if gfx and memory_hz and device.memory_bus_bits:
        factor = _TRANSFERS.get(gfx, 2 if gfx.startswith("sm_") else 16 if rdna else 0)
        guess = factor * memory_hz * device.memory_bus_bits / 8
        bandwidth = guess if BANDWIDTH_BOUNDS[0] <= guess <= BANDWIDTH_BOUNDS[1] else None
    flops: dict[str, float] = {}
    vector: dict[str, float] = {}
    rates = _rates_for(table, device, gfx)
    limited = _limited(table, gfx)
    if rates and device.cu_count and clock_hz and not limited:
        units = device.cu_count * (2 if rdna else 1)  # reported as work-group processors
        for prefix, out in (("matrix.", flops), ("vector.", vector)):
            for dtype, line in rates.figures(prefix):
                rate = units * clock_hz * rates.value(line)
                if FLOPS_BOUNDS[0] <= rate <= FLOPS_BOUNDS[1]:
                    out[dtype] = rate
    if bandwidth or flops or vector:
        how = "derived from the device's properties"
        how += f", compute left out: {limited} of this architecture are cut below their units and clock" if limited else ""
    elif device.cu_count and device.clock_khz and device.memory_clock_khz and device.memory_bus_bits:
        how = f"no peaks: nothing is known of {gfx} to derive them with"
    else:
        how = (
            "no peaks: add device_name to env_report.json, or cu_count and the keys in kHz and bits (clock_khz, "
            "memory_clock_khz, memory_bus_bits)"
        )
    return bandwidth, flops, vector, how


def _limited(table: Table | None, gfx: str | None) -> str:
    """Products of an architecture whose compute the vendor cut: with such siblings units x clock x rate proves nothing."""
    if table is None or not gfx:
        return ""
    cut = [b.id for b in table.of_arch(gfx) if any(x.key == "waiver" and x.value.startswith("under_") for x in b.lines)]
    return ", ".join(cut)


def hertz(clock_khz: float | None) -> float | None:
    """A clock in Hz; one that is no plausible kHz figure (MHz read as kHz: pytorch#196372) is not used."""
    return clock_khz * 1e3 if clock_khz is not None and 1e5 <= clock_khz <= 1e7 else None


def _rates_for(table: Table | None, device: Device, gfx: str | None) -> Block | None:
    if table is None or not gfx:
        return None
    consumer = "GEFORCE" in (device.device_name or "").upper()
    return table.rates.get(gfx) or table.rates.get(f"{gfx}-{'geforce' if consumer else 'pro'}")
