"""The peaks of one device: which product of the peak table a run was made on, and what follows from its properties alone.

A gfx or compute capability is not a product (gfx942 is four of them), so a product is found by its whole name, or by
architecture with unit count and memory size. A bare architecture uses its default block, with low confidence on every axis
where the products that share it differ by more than 10 %.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .peaks_audit import clock_of, engine_clock, faults_in_use, sustained_figures
from .peaks_table import Block, Table, normalize_name, unit_counts
from .units import BANDWIDTH_BOUNDS, FLOPS_BOUNDS

#: The product of peaks that were measured on a CPU.
CPU = "cpu"
#: One launch on a GPU takes about this long whatever it does (specification 3.6), so a time near it says nothing of the kernel.
#: The floor of a CPU is a measured empty call.
DISPATCH_FLOOR_S = 5e-6
#: Products behind one architecture agree when their peaks lie within this; MI350X and MI355X differ by 8.3 %.
AGREEMENT = 0.10
#: How far a right measurement may exceed a rated figure when the highest clock is unknown: boards that boost freely (RTX 5090:
#: 254 of 209.5 TFLOP/s measured), and others.
OVER_RATED_BOARD, OVER_RATED = 1.25, 1.10
_BOARDS = ("rtx", "rx", "w7900", "r9700")
#: Transfers per memory clock and bus bit, for the clock that the driver reports: DDR 2, HBM of CDNA3/4 4, GDDR6 as HIP reports
#: it 16, LPDDR5X of the APU 8 (exact on the products of the table, +2.4 % on H200).
_TRANSFERS = {"gfx906": 2, "gfx908": 2, "gfx90a": 2, "gfx942": 4, "gfx950": 4, "gfx1151": 8}


class Device(NamedTuple):
    """What a run says of its device. Every key may be missing; clocks are in kHz, as HIP, CUDA and torch report them."""

    gfx: str | None = None  # the architecture: gfx942, sm_90
    device_name: str | None = None
    cu_count: int | None = None  # CUs or SMs
    memory_bytes: float | None = None
    clock_khz: float | None = None  # the highest clock of the units
    memory_clock_khz: float | None = None
    memory_bus_bits: float | None = None
    run_clock_khz: float | None = None  # the clock during the run, locked or sampled


class Level(NamedTuple):
    """The bandwidth that a CPU was measured to have for operands of one size."""

    name: str  # the level of cache that holds them: L1, L2 or L3; empty: memory
    bytes: float  # of the operands
    bandwidth_bytes_s: float  # of all threads, or of one where that is more
    confidence: str  # high or low


class Target(NamedTuple):
    """What kernels of one device, op, axis and dtype were observed to reach."""

    target_eff: float  # a fraction of the roof
    n: int  # kernels
    source: str


class Peaks(NamedTuple):
    """The denominators of one device. Rates are dense, in bytes/s and FLOP/s; None or a missing key is unknown."""

    product: str | None = None
    gfx: str | None = None
    hbm_bw_bytes_s: float | None = None  # of memory, rated
    hbm_bw_limit_bytes_s: float | None = None  # of the full bus; of the fastest of several products that share a name
    flops: Mapping[str, float] = {}  # of the matrix units (tensor cores, MFMA, WMMA), by dtype
    flops_max: Mapping[str, float] = {}  # at the highest clock; of the fastest of several products that share a name
    vector: Mapping[str, float] = {}  # of the vector units, by dtype
    vector_max: Mapping[str, float] = {}
    l2_bytes: float | None = None
    mall_bytes: float | None = None
    units: int | None = None  # CUs or SMs
    source: str = "table"  # one of fields.PEAK_SOURCES
    confidence: str = "low"  # high or low
    low_axes: tuple[str, ...] = ()  # axes of low confidence (memory, matrix.fp8) where the other axes have a high one
    unvalidated: Mapping[str, str] = {}  # axis to the rule that its figure breaks; such an axis gives no verdict
    sustained: Mapping[str, float] = {}  # axis of matrix units to what large GEMMs are known to sustain under the power limit
    achievable: Mapping[str, float] = {}  # axis to a measured ceiling under its roof, for display
    dispatch_floor_s: float = DISPATCH_FLOOR_S
    targets: Mapping[tuple[str, str, str, str], Target] = {}  # by device, op, axis, dtype: observed here, from the user's file
    levels: tuple[Level, ...] = ()  # by the size of the operands, the smallest and fastest first
    note: str = ""
    l2_bw_bytes_s: float | None = None  # of the L2, where published; for display

    def compute_axis(self, engine: str, dtype: str | None) -> tuple[str, float | None]:
        """Return the compute axis of ``dtype`` (``matrix.bf16``) and its peak FLOP/s; never the figure of another dtype.

        Matrix work in a dtype that the matrix units lack runs on the vector units (an fp32 GEMM on H100).
        """
        name = dtype or "none"
        if engine == "matrix" and name in self.flops:
            return f"matrix.{name}", self.flops[name]
        return (f"vector.{name}", self.vector[name]) if name in self.vector else (f"{engine}.{name}", None)

    @property
    def compute_axes(self) -> tuple[str, ...]:
        """The compute axes with a known peak."""
        return (*(f"matrix.{dtype}" for dtype in self.flops), *(f"vector.{dtype}" for dtype in self.vector))

    def levels_around(self, nbytes: float) -> list[Level]:
        """Return the measured sizes next to operands of this size, the smaller one first; memory is the last size."""
        smaller = [level for level in self.levels if level.bytes < nbytes]
        larger = [level for level in self.levels if level.bytes >= nbytes]
        memory = Level("", math.inf, self.hbm_bw_bytes_s or 0.0, self.axis_confidence("memory"))
        return [*smaller[-1:], *(larger[:1] or [memory])]

    def at_level(self, level: Level) -> Peaks:
        """Return the peaks of work whose operands a level of cache holds: its bandwidth stands for that of memory."""
        low = [axis for axis in self.compute_axes if self.axis_confidence(axis) == "low"]
        low += ["memory"] if level.confidence == "low" else []
        return self._replace(
            hbm_bw_bytes_s=level.bandwidth_bytes_s, confidence="low" if low else "high", low_axes=tuple(low), levels=()
        )

    def rated(self, axis: str) -> float | None:
        """Return the rated figure of ``memory`` or ``matrix.bf16``; None where unknown."""
        engine, dot, dtype = axis.partition(".")
        if not dot:
            return self.hbm_bw_bytes_s
        return (self.flops if engine == "matrix" else self.vector).get(dtype)

    def highest(self, axis: str) -> float | None:
        """Return the rate of ``memory`` or ``matrix.bf16`` at the full bus or the highest clock; None where unknown."""
        engine, dot, dtype = axis.partition(".")
        if not dot:
            return self.hbm_bw_limit_bytes_s
        return (self.flops_max if engine == "matrix" else self.vector_max).get(dtype)

    def target(self, op: str, axis: str | None, dtype: str) -> Target | None:
        """Return the observed target of exactly this device, op, axis and dtype."""
        return self.targets.get((normalize_name(self.product or self.gfx or ""), op, axis or "", dtype))

    def axis_confidence(self, axis: str) -> str:
        """Return ``high`` or ``low`` for an axis such as ``memory`` or ``matrix.bf16``."""
        if self.low_axes:
            return "low" if axis in self.low_axes else "high"
        return self.confidence

    def to_dict(self) -> dict[str, object]:
        """Return the artifact's ``peaks`` object."""
        keys = ("product", "gfx", "hbm_bw_bytes_s", "flops", "vector", "l2_bytes", "mall_bytes", "source", "confidence", "note")
        out: dict[str, object] = {name: getattr(self, name) for name in keys}
        if self.l2_bw_bytes_s:
            out["l2_bw_bytes_s"] = self.l2_bw_bytes_s
        if self.low_axes:
            out["low_confidence_axes"] = list(self.low_axes)
        if self.levels:
            out["levels"] = [level._asdict() for level in self.levels]
        if self.unvalidated:
            out["unvalidated"] = dict(self.unvalidated)
        if self.sustained:
            out["sustained"] = dict(self.sustained)
        if self.achievable:
            parts = [(*axis.partition(".")[::2], value) for axis, value in self.achievable.items()]
            out["achievable"] = {
                "hbm_bw_bytes_s": self.achievable.get("memory"),
                "flops": {dtype: value for engine, dtype, value in parts if engine == "matrix"},
                "vector": {dtype: value for engine, dtype, value in parts if engine == "vector"},
            }
        return out


def clock_margin(product: str | None) -> float:
    """Return how far a right measurement may exceed a rated figure when the highest clock is unknown."""
    return OVER_RATED_BOARD if (product or "").startswith(_BOARDS) else OVER_RATED


def fastest_axis(peaks: Peaks) -> tuple[str, float] | None:
    """Return the compute axis with the highest rate, and the rate (FLOP/s); None where none is known."""
    axes = {f"matrix.{dtype}": rate for dtype, rate in peaks.flops.items()}
    axes.update({f"vector.{dtype}": rate for dtype, rate in peaks.vector.items()})
    name = max(axes, key=lambda axis: axes[axis], default=None)
    return None if name is None else (name, axes[name])


def join_sentences(*parts: str) -> str:
    """Return the parts of a note as one."""
    return "; ".join(part for part in parts if part)


def architecture(text: str) -> str:
    """Return the architecture in one spelling: ``gfx942:sramecc+:xnack-`` is ``gfx942``, ``sm90a`` and ``9.0`` ``sm_90``."""
    key = text.strip().lower().split(":")[0]
    if key.startswith("sm"):
        return "sm_" + key[2:].lstrip("_").rstrip("af")
    major, dot, minor = key.partition(".")
    if dot and major.isdigit() and minor.isdigit():
        return f"sm_{major}{minor}"
    return key


def resolve(table: Table | None, device: Device) -> Peaks:
    """Return the peaks of ``device``; what is uncertain has low confidence or is null, and ``note`` names the key to add.

    Raises:
        ValueError: when the block that was found has a line that cannot be read (names file and line).
    """
    peaks = _rated_peaks(table, device)
    return peaks if device.run_clock_khz is None else _at_run_clock(table, peaks, device.run_clock_khz)


def resolve_name(table: Table | None, name: str, units: int | None = None) -> Peaks:
    """Return the peaks of a name: of an architecture where the table has it, else of a product.

    units: CUs or SMs, which distinguish the products of one architecture.
    """
    gfx = architecture(name)
    is_arch = table is not None and (gfx in table.defaults or bool(table.of_arch(gfx)))
    return resolve(table, Device(gfx=gfx, cu_count=units) if is_arch else Device(device_name=name))


def _at_run_clock(table: Table | None, peaks: Peaks, run_khz: float) -> Peaks:
    """Return the peaks at the clock of the run: FLOP/s are units x clock x rate, so in proportion to the rated clock.

    A kernel at 48 % of what a GB200 locked to 1200 MHz can do is at 28 % of its rated peak (NVIDIA/cudnn-frontend#314).
    The memory has another clock.
    """
    run, block = hertz(run_khz), table.products.get(peaks.product or "") if table else None
    rated, top = (engine_clock(block, "matrix"), engine_clock(block, "max")) if block else (None, None)
    vector = (engine_clock(block, "vector") if block else None) or rated
    if run is None or rated is None or vector is None or run > 1e6 * max(rated, vector, top or 0.0):
        reason = "the clock behind the rated FLOP/s is not known" if run else "no plausible kHz figure"
        reason = f"over the highest clock of {peaks.product}" if run and rated and vector else reason
        peaks = peaks._replace(note=join_sentences(f"run_clock_khz {run_khz:g} not used: {reason}", peaks.note))
        if peaks.confidence == "low" and not peaks.low_axes:
            return peaks
        return peaks._replace(confidence="low", low_axes=tuple(dict.fromkeys((*peaks.low_axes, *peaks.compute_axes))))
    what = f"FLOP/s at the {run / 1e6:g} MHz of the run, rated at {rated:g} (matrix) and {vector:g} (vector)"
    factors = {"matrix": run / 1e6 / rated, "vector": run / 1e6 / vector}
    flops = {dtype: rate * factors[clock_of(f"matrix.{dtype}")] for dtype, rate in peaks.flops.items()}
    units = {dtype: rate * factors["vector"] for dtype, rate in peaks.vector.items()}
    return peaks._replace(flops=flops, flops_max=flops, vector=units, vector_max=units, note=join_sentences(what, peaks.note))


def _rated_peaks(table: Table | None, device: Device) -> Peaks:
    gfx = architecture(device.gfx) if device.gfx else None
    if table is None:
        return _derive_peaks(None, device, gfx, "no peak table was found")
    name, mig = _split_mig(device.device_name or "")
    if not normalize_name(name):  # ROCm reports "AMD Radeon Graphics" for many parts
        name = ""
    blocks = table.find(name) if name else []
    if not blocks and not name and gfx and gfx not in table.defaults and not table.of_arch(gfx):
        blocks = table.find(device.gfx or "")  # the key gfx sometimes holds a product name
        gfx = blocks[0].text("gfx") if blocks else gfx
    if blocks:
        return _product_peaks(table, blocks, device, gfx, mig)
    unlisted = f"{name!r} is not in {os.path.basename(table.path)}" if name else ""
    if not gfx:
        return _derive_peaks(table, device, gfx, unlisted or "no gfx and no device name of a product")
    return _architecture_peaks(table, device, gfx, unlisted)


def _product_peaks(table: Table, blocks: list[Block], device: Device, gfx: str | None, mig: str) -> Peaks:
    blocks = _matching(blocks, device) or blocks
    arch = blocks[0].text("gfx")
    block = _default_product(table.defaults.get(arch or ""), blocks)
    peaks = peaks_of_block(table, block)
    if len(blocks) > 1:
        peaks = _with_agreement(table, peaks, blocks, f"the name is shared by {_ids(blocks)}")
    doubts = []
    if gfx and arch and gfx != arch:
        doubts.append(f"the device name says {block.id} ({arch}) but gfx says {gfx}: correct one of the two keys")
    if mig:
        return _mig_slice(peaks, block, device, mig, doubts)
    if device.memory_bytes is not None and not _fits_memory(block, device.memory_bytes):
        size = f"{device.memory_bytes / 1e9:.4g}e9"
        doubts.append(f"memory_bytes {size} is not that of {block.id}: correct one of the two keys")
    if device.cu_count is not None and device.cu_count not in unit_counts(block):
        peaks, doubt = _partition(peaks, block, device.cu_count)
        doubts.append(doubt)
    return _with_doubts(peaks, doubts)


def _architecture_peaks(table: Table, device: Device, gfx: str, unlisted: str) -> Peaks:
    listed = table.of_arch(gfx)
    has_keys = device.cu_count is not None or device.memory_bytes is not None
    blocks = _matching(listed, device)
    default = table.defaults.get(gfx)
    doubts = [unlisted] if unlisted else []
    if len(blocks) == 1 and has_keys:
        return _with_doubts(peaks_of_block(table, blocks[0]), doubts)
    if blocks and default:
        block = _default_product(default, blocks)
        peaks = peaks_of_block(table, default if block.id == default.text("use") else block, base=block)
        if len(blocks) > 1:
            what = f"{gfx} {'with these keys' if has_keys else 'alone'} is {_ids(blocks)}"
            peaks = _with_agreement(table, peaks, blocks, what)
        return _with_doubts(peaks, doubts)
    if device.cu_count and not blocks:
        whole = [block for block in listed if _is_partition(block, device.cu_count)]
        if whole:
            peaks, doubt = _partition(peaks_of_block(table, whole[0]), whole[0], device.cu_count)
            return _with_doubts(peaks, [doubt, f"could be a partition of {_ids(whole)}: add device_name"])
    if unlisted:
        reason = unlisted
    elif not listed:
        reason = f"{gfx} is not in {os.path.basename(table.path)}"
    elif not blocks:
        reason = f"no {gfx} product has this cu_count and memory_bytes ({_ids(listed)} are listed)"
    else:
        reason = f"{gfx} alone is {_ids(blocks)}: add device_name"
    return _derive_peaks(table, device, gfx, reason)


def _default_product(default: Block | None, blocks: Sequence[Block]) -> Block:
    """Return the product that the default of the architecture uses, where it is one of the blocks; else the first."""
    use = default.text("use") if default else None
    return next((block for block in blocks if block.id == use), blocks[0])


def _ids(blocks: Sequence[Block]) -> str:
    return ", ".join(block.id for block in blocks)


def _is_partition(block: Block, cu_count: int) -> bool:
    counts = unit_counts(block)
    return bool(counts) and any(counts[0] == cu_count * parts for parts in (2, 4, 6, 8))


def _matching(blocks: Sequence[Block], device: Device) -> list[Block]:
    """Return the blocks with the device's unit count and memory size, where it has them."""
    return [
        block
        for block in blocks
        if (device.cu_count is None or device.cu_count in unit_counts(block))
        and (device.memory_bytes is None or _fits_memory(block, device.memory_bytes))
    ]


def _fits_memory(block: Block, memory_bytes: float) -> bool:
    """Return whether the size is the block's: a driver reports 141 GB as 150.8e9 bytes, 16 GB as 15.8e9 (GiB, less ECC)."""
    sizes = (block.text("memory_bytes") or "").split()
    return not sizes or any(0.92 <= memory_bytes / float(size) <= 1.08 for size in sizes)


def peaks_of_block(table: Table, block: Block, base: Block | None = None) -> Peaks:
    """Return the peaks of a product block; a default block overrides figures of the product that it uses (``base``)."""
    base = base or block
    if block.kind == "default" and base is block:
        raise ValueError(f"{block.path}:{block.start}: default {block.id} uses no product")
    blocks = (base,) if block is base else (base, block)

    def rates(prefix: str) -> tuple[dict[str, float], dict[str, float]]:
        rated: dict[str, float] = {}
        highest: dict[str, float] = {}
        for source in blocks:
            for dtype, line in source.figures(prefix):
                rated[dtype] = source.value(line)
                limit = source.limit(line, "max")
                if limit:
                    highest[dtype] = limit
        return rated, highest

    flops, flops_max = rates("matrix.")
    vector, vector_max = rates("vector.")
    owner = block if block.line("hbm_bw_bytes_s") else base
    memory = owner.known("hbm_bw_bytes_s")
    bandwidth = owner.value(memory) if memory else None
    limit = owner.limit(memory, "limit") if memory else None
    counts = unit_counts(base)
    confidence = base.text("confidence") or "low"
    notes = [line.value for line in block.lines if line.key == "note"]
    if confidence == "medium":
        notes.insert(0, "figures through secondary sources")
    sustained, refused = sustained_figures(base)
    notes += refused
    return Peaks(
        product=base.id if block is base else None,
        gfx=base.text("gfx"),
        hbm_bw_bytes_s=bandwidth,
        hbm_bw_limit_bytes_s=limit or bandwidth,
        flops=flops,
        flops_max=flops_max,
        vector=vector,
        vector_max=vector_max,
        l2_bytes=base.maybe("l2_bytes"),
        l2_bw_bytes_s=base.maybe("l2_bw_bytes_s"),
        mall_bytes=base.maybe("mall_bytes"),
        units=counts[0] if counts else None,
        source="table" if table.shipped else "user",
        confidence="low" if confidence == "low" else "high",
        unvalidated={
            axis: what
            for source in blocks
            for axis, what in faults_in_use(table, source).items()
            if source is block or block.line(axis) is None
        },
        sustained=sustained,
        note="; ".join(notes),
    )


def _with_agreement(table: Table, peaks: Peaks, blocks: Sequence[Block], what: str) -> Peaks:
    """Return peaks for any of several products: of low confidence on each axis where they differ too much.

    The limits are those of the fastest: an H200's 4.4 TB/s are not beyond the roof of an sm_90.
    """
    products = [peaks_of_block(table, block) for block in blocks]
    peaks = _with_limits(peaks, [peaks, *products])
    shared = {axis for axis in peaks.sustained if all(axis in item.sustained for item in products if item.rated(axis))}
    if any(item.l2_bw_bytes_s != peaks.l2_bw_bytes_s for item in products):
        peaks = peaks._replace(l2_bw_bytes_s=None)
    peaks = peaks._replace(sustained={axis: max(item.sustained.get(axis, 0.0) for item in products) for axis in shared})
    low = []
    for axis in ("memory", *peaks.compute_axes):
        known = [rate for rate in (item.rated(axis) for item in products) if rate]
        if not known or max(known) > (1 + AGREEMENT) * min(known):
            low.append(axis)
    if not low and peaks.confidence == "high":
        note = join_sentences(f"{what}, which agree within 10 %", peaks.note)
        return peaks._replace(product=None, confidence="high", note=note)
    advice = f"{what}, which differ by more than 10 % on {', '.join(low)}: add device_name, or cu_count and memory_bytes"
    return peaks._replace(product=None, confidence="low", low_axes=tuple(low), note=join_sentences(advice, peaks.note))


def _with_limits(peaks: Peaks, products: Sequence[Peaks]) -> Peaks:
    """Return ``peaks`` with the highest limits of the products; a product with an unknown limit may exceed its rated figure."""
    limits: dict[str, dict[str, float]] = {"matrix": {}, "vector": {}}
    for axis in peaks.compute_axes:
        engine, _, dtype = axis.partition(".")
        rates = [(item.highest(axis), item.rated(axis), clock_margin(item.product)) for item in products]
        if any(top for top, _, _ in rates):
            limits[engine][dtype] = max(top or rated * margin for top, rated, margin in rates if rated)
    memory = [item.hbm_bw_limit_bytes_s or item.hbm_bw_bytes_s or 0.0 for item in products]
    limit = max(memory) if peaks.hbm_bw_bytes_s else None
    return peaks._replace(hbm_bw_limit_bytes_s=limit, flops_max=limits["matrix"], vector_max=limits["vector"])


def _with_doubts(peaks: Peaks, doubts: Sequence[str]) -> Peaks:
    if not doubts:
        return peaks
    return peaks._replace(confidence="low", low_axes=(), note=join_sentences(*doubts, peaks.note))


def _partition(peaks: Peaks, block: Block, cu_count: int) -> tuple[Peaks, str]:
    """Return the peaks of a part of the units, and what is uncertain about them."""
    counts = unit_counts(block)
    if not counts or cu_count > counts[0]:
        return peaks, f"cu_count {cu_count} does not fit {block.id} ({counts[0] if counts else 'unknown'} units)"
    doubt = f"{cu_count} of the {counts[0]} units of {block.id}: FLOP/s scaled, bandwidth shared by the partitions"
    return _scale_peaks(peaks, cu_count / counts[0], 1.0), doubt


def _scale_peaks(peaks: Peaks, compute: float, memory: float) -> Peaks:
    changes: dict[str, Any] = {}
    for name in ("flops", "flops_max", "vector", "vector_max", "sustained"):
        changes[name] = {dtype: rate * compute for dtype, rate in getattr(peaks, name).items()}
    for name in ("hbm_bw_bytes_s", "hbm_bw_limit_bytes_s", "l2_bytes", "l2_bw_bytes_s"):
        changes[name] = (getattr(peaks, name) or 0.0) * memory or None
    return peaks._replace(**changes)


def _split_mig(name: str) -> tuple[str, str]:
    """Split ``NVIDIA H100 80GB HBM3 MIG 1g.10gb`` into the product's name and the profile ``1g.10gb``; else an empty profile.

    The attributes of a profile (``+me``, ``+gfx``, ``-me``) change its media engines alone. A compute instance within a GPU
    instance (``1c.3g.40gb``) keeps its own slices of SMs.
    """
    head, mark, tail = name.partition(" MIG ")
    profile = re.match(r"(?:\d+c\.)?\d+g\.\d+gb", tail.strip().lower())
    return (head, profile.group()) if mark and profile else (name, "")


def _mig_slice(peaks: Peaks, block: Block, device: Device, profile: str, doubts: Sequence[str]) -> Peaks:
    """Scale to a MIG slice: the SMs that are visible or published for the profile, and memory slices of eight.

    The SMs of a profile are not proportional to its slices (``nvidia-smi mig -lgip``: 16, 32, 60 and 64 of the 132 of an H100
    for 1 to 4 slices), so a profile whose SMs are not known has no compute peak. The memory is (NVIDIA's MIG user guide).
    """
    counts, listed = unit_counts(block), block.text(f"mig.{profile}") or ""
    visible = device.cu_count if device.cu_count and counts and device.cu_count <= counts[0] else None
    units = visible or (int(listed) if listed.isdigit() else None)
    size = float((block.text("memory_bytes") or "0").split()[0])
    memory_gb = float(profile.rpartition(".")[2][: -len("gb")])
    slices = 8 if "7g." in profile or not size else min(8, max(1, round(8 * memory_gb * 1e9 / size)))
    scaled = _scale_peaks(peaks, units / counts[0] if units and counts else 0.0, slices / 8)._replace(units=units)
    if units is None:
        scaled = scaled._replace(flops={}, flops_max={}, vector={}, vector_max={}, sustained={})
    compute = f"{units} of {counts[0]} SMs" if units and counts else "its SMs are not known, so no compute peak: add cu_count"
    doubt = f"MIG slice {profile} of {block.id}: {compute}; bandwidth x {slices / 8:.3g}"
    return _with_doubts(scaled, [*doubts, doubt])


def _derive_peaks(table: Table | None, device: Device, gfx: str | None, reason: str) -> Peaks:
    """Return peaks from the device's units, clocks and bus alone (L1): low confidence, null where a property is missing."""
    bandwidth = None
    clock_hz, memory_hz = hertz(device.clock_khz), hertz(device.memory_clock_khz)
    is_rdna = gfx is not None and gfx.startswith(("gfx10", "gfx11", "gfx12"))
    if gfx and memory_hz and device.memory_bus_bits:
        transfers = _TRANSFERS.get(gfx, 2 if gfx.startswith("sm_") else 16 if is_rdna else 0)
        rate = transfers * memory_hz * device.memory_bus_bits / 8
        bandwidth = rate if BANDWIDTH_BOUNDS[0] <= rate <= BANDWIDTH_BOUNDS[1] else None
    flops: dict[str, float] = {}
    vector: dict[str, float] = {}
    rates = _rates_block(table, device, gfx)
    limited = _limited_products(table, gfx)
    if rates and device.cu_count and clock_hz and not limited:
        units = device.cu_count * (2 if is_rdna else 1)  # RDNA reports work-group processors
        for dtype, line in rates.figures():
            rate = units * clock_hz * rates.value(line)
            if FLOPS_BOUNDS[0] <= rate <= FLOPS_BOUNDS[1]:
                (flops if line.key.startswith("matrix.") else vector)[dtype] = rate
    if bandwidth or flops or vector:
        how = "derived from the device's properties"
        how += f", compute left out: {limited} of this architecture are cut below their units and clock" if limited else ""
    elif device.cu_count and device.clock_khz and device.memory_clock_khz and device.memory_bus_bits:
        how = f"no peaks: {gfx} is unknown, so they cannot be derived"
    else:
        how = (
            "no peaks: add device_name to env_report.json, or cu_count and the keys in kHz and bits (clock_khz, "
            "memory_clock_khz, memory_bus_bits)"
        )
    return Peaks(
        gfx=gfx,
        hbm_bw_bytes_s=bandwidth,
        hbm_bw_limit_bytes_s=bandwidth,
        flops=flops,
        vector=vector,
        units=device.cu_count,
        source="derived",
        note=f"L1: {reason}; {how}",
    )


def _limited_products(table: Table | None, gfx: str | None) -> str:
    """Return the products of an architecture whose compute the vendor cut below units x clock x rate."""
    blocks = table.of_arch(gfx) if table and gfx else []
    return _ids([b for b in blocks if any(line.key == "waiver" and line.value.startswith("under_") for line in b.lines)])


def hertz(clock_khz: float | None) -> float | None:
    """Return a clock in Hz; None for one that is no plausible kHz figure (MHz read as kHz: pytorch#196372)."""
    return clock_khz * 1e3 if clock_khz is not None and 1e5 <= clock_khz <= 1e7 else None


def _rates_block(table: Table | None, device: Device, gfx: str | None) -> Block | None:
    if table is None or not gfx:
        return None
    consumer = "GEFORCE" in (device.device_name or "").upper()
    return table.rates.get(gfx) or table.rates.get(f"{gfx}-{'geforce' if consumer else 'pro'}")
