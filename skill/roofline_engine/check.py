"""Compare a measurement with its roof and its prediction, and say why a rate is impossible.

The rules are those of the design's section 4. ``beyond_roof`` and ``near_roof`` come from the row's own time; the other
statuses compare a speedup over a baseline with the speedup that was predicted. The measurement always wins: a contradiction
means that a model, a peak, a prior or a time is wrong, never the kernel.

A rate beyond the roof, or a printed rate that shape and time do not give, gets a cause: the first test that fits. Each test
is a number: a factor that a known mistake would make, a peak that breaks a rule, a working set that a cache can hold. Where
none fits, the cause is ``unexplained``. The tests and their order come from the field's post-mortems, named beside each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from .fields import Entry
from .peaks import CPU, OVER_RATED_BOARD, Peaks, clock_margin, fastest_axis
from .roofline import (
    CACHE_REACH,
    ISOLATED_NOISE,
    Roof,
    assess,
    assess_in_cache,
    attainable_speedup,
    cache_bytes,
    roof_of,
    route,
)
from .units import parse_dtype, quantity
from .work import Work

STATUSES = (  # the first that applies
    "beyond_roof",
    "near_roof",
    "not_comparable",
    "regression",
    "no_change",
    "not_falsifiable",
    "exceeds_target",
    "consistent",
    "not_checked",
)
#: What a time says of a comparable baseline. It is the ratio of two times, so no roof and no prediction enters it.
CHANGES = ("slower", "within_noise", "faster")
BASELINE_KINDS = ("live", "previous", "eager", "compiled", "reference", "unknown")
#: A prediction is about this kernel, so only an earlier time of this kernel is a baseline for it.
COMPARABLE = ("live", "previous")
SOURCES = ("pytest-benchmark", "pytest-codspeed", "roofline", "user")
CLOCKS = ("host", "host+sync", "device-event", "device-graph", "unknown")
CACHES = ("cold", "warm", "unknown")

#: The causes of an impossible or wrong rate, each with the experiment that would confirm it.
EXPERIMENTS = {
    "placeholder": "run it again: a time written by hand is no measurement",
    "counter_fault": "check the counters by a copy of known traffic (roofline counters check), and the tool's version",
    "accounting_unit": "time one launch of one unit, and count that unit",
    "dtype_width": "read element_size() of the captured tensors",
    "flop_convention": "count the FLOPs under the mask, a multiply-add as two, against dense peaks",
    "overcounted_bytes": "count what is read: the experts hit, the lengths in use, or the counters",
    "wrong_peak": "a vendor GEMM of the dtype, or a stream copy, against the same peak",
    "cache_resident": "rotate operands over twice the cache, or read-flush between rounds",
    "different_algorithm": "recompute the bytes of the new algorithm: a byte-reduction win",
    "work_skipped": "fresh random inputs and a full comparison of the output",
    "unexplained": "wall time per call against device time, the number of kernels, poisoned outputs",
}
CAUSES = tuple(EXPERIMENTS)

#: A rate over the limit by this factor is beyond the roof, below it near: timers and data sheets are good to about 5 %.
BEYOND = 1.05
#: A measured ceiling of low confidence was taken while other programs used the cores: rounds with a third of the cores are
#: common, and a GEMM is another third under its roof. Such a ceiling is good to an order of magnitude.
DISTURBED = 10.0
#: Seconds that one reading of a clock is uncertain by. cudaEventElapsedTime: "a resolution of around 0.5 microseconds" (CUDA
#: runtime API, event management); hipEventElapsedTime: "approximately 1 us" (HIP API, events). A host clock ticks every 100 ns
#: on Windows (QueryPerformanceCounter at 10 MHz) and finer elsewhere (PEP 418).
TICKS = {"cuda": 0.5e-6, "hip": 1e-6, "host": 1e-7}
#: A time whose last digit is worth more than this gives no class: 0.04 ms is 0.035 to 0.045.
COARSE = 0.02
#: With an interquartile range over the median itself, a time near its baseline's shows nothing.
WIDEST_BAND = 1.0
#: How many times faster than memory the caches of a CPU can be that keep warm operands, down to its L1: 96 B a clock (Zen 4,
#: two loads and a store) on 16 cores at 5 GHz are 7.7 TB/s over 83 GB/s of two DDR5-5200 channels, 92, and 512-bit cores have
#: twice that. A benchmark on a CPU is warm unless it says otherwise; a device's is asked to be cold.
CACHE_OVER_MEMORY = 200.0
#: Bytes that one core of a CPU moves in a clock: two loads and a store of 64 B from its L1 (Intel, Optimization Reference
#: Manual, Golden Cove; AMD, Zen 5). No x86 core is sold with a higher clock than 6.2 GHz (Core i9-14900KS, boost).
L1_BYTES_PER_CLOCK, CORE_CLOCK_HZ = 192.0, 6.2e9
#: FLOPs that one core of a CPU computes in a clock. The tile unit of Sapphire Rapids does 16 x 16 x 32 multiply-adds of bf16,
#: or 16 x 16 x 64 of int8, in 16 clocks (Intel, Optimization Reference Manual, AMX). Two 512-bit multiply-adds are 64 of fp32;
#: the matrix units of other cores (Power10, Apple) stay under twice that.
CORE_FLOPS_PER_CLOCK = {"fp64": 64.0, "fp32": 128.0, "tf32": 128.0, "bf16": 1024.0, "fp16": 1024.0}
CORE_OPS_PER_CLOCK = 2048.0
#: The same ratio for a CPU with an unknown number of cores: int8 on the tile unit over fp32 on two 512-bit units.
TILE_OVER_VECTOR = 32.0
#: What a kernel writes may still be in a cache when it ends. Of bytes with an unknown part that is written, half: a copy's.
WRITTEN = 2.0
#: More than the caches of a device give over its memory: an MI300X reads 17.2 TB/s from its Infinity Cache and 2 KiB a clock
#: from each of 8 L2s, 34.4 TB/s (AMD's CDNA 3 white paper), over 5.3. A shared memory keeps nothing between launches.
_DEVICE_CACHE = 10.0
#: A factor this near to a mistake's is that mistake; the byte models in between differ by activations or scales.
IDENTITY = 0.05
#: Slips of units and widths are exact; only the printed digits blur them.
EXACT = 0.01
#: Printed rates carry three or four digits; a smaller difference is rounding.
AGREES = 0.005
#: The share of its time that a process may wait for a core before its times count as another program's: one busy program next
#: to a thread for each of two cores makes them wait for a third; a quiet machine shows under 2 %.
CONTENDED = 0.2
#: Some rounds shorter than this run undisturbed on any machine: a scheduler leaves a thread its core for longer (Linux: 0.75 ms
#: and more with several cores, sched_min_granularity_ns and base_slice_ns).
SLICE_S = 1e-3
#: Counters that show less than this share of the bytes that must have moved are wrong (L4 in the artifact).
SHORT = 0.9
#: The share of the roof that must remain without a mistake for the mistake to explain an excess.
LEAVES = (0.2, 1.0)
#: Slips of units and of tables: a decimal place (aiter's bpreshuffle TFLOPS are ten times too high), a prefix (its bw column
#: is TB/s in one file and GB/s in its sibling), binary prefixes.
_UNITS = (10.0, 100.0, 1e3, 1e6, 1.024, 1.024**2, 1.024**3)
_WIDTHS = (2.0, 4.0, 8.0)

_SUSPECTS = "a kernel that does not run, a missing sync, a cached result, over-counted work or a wrong peak"
#: A GEMM between one and two times its dense peak may skip half of its multiply-adds: ``sparsity`` of the model.
_SPARSE = 2.0


class Measurement(NamedTuple):
    """One time of one unit of work: the median over rounds, with its quartiles."""

    source: str  # what measured: one of SOURCES
    t_s: float  # seconds
    q1_s: float | None = None
    q3_s: float | None = None
    rounds: int | None = None
    clock: str = "unknown"  # one of CLOCKS; host: no wait for the device is known
    cache: str = "unknown"  # cold: flushed or rotated before each round; warm: the same operands round after round
    notes: tuple[str, ...] = ()  # how it was timed; an entry has them as notes with the code basis
    wall_s: float | None = None  # of one call on the host, from launch to result, where t_s is a device time
    busy_s: float | None = None  # the device time that belongs to wall_s, where t_s has another state of the cache
    rounding: float = 0.0  # half of the last printed digit of t_s, as a fraction
    min_s: float | None = None  # the best round, seconds
    wait_share: float | None = (
        None  # of the time that the threads of this process wanted a core, the part that they waited for one
    )

    @property
    def spread(self) -> float:
        """Interquartile range over the median; 0 where the quartiles are unknown."""
        if self.q1_s is None or self.q3_s is None:
            return 0.0
        return (self.q3_s - self.q1_s) / self.t_s

    @property
    def swing(self) -> float:
        """How many times as fast as the median the kernel may be: by the best round, else by the lower quartile.

        Infinite where other programs had the cores and the rounds are long: all of them are too slow then, by an unknown
        factor, because the threads of a parallel kernel wait for the last of them.
        """
        best = self.min_s or self.q1_s
        is_contended = self.wait_share is not None and self.wait_share > CONTENDED
        if is_contended and (self.min_s is None or self.min_s > SLICE_S):
            return math.inf
        return max(1.0, self.t_s / best) if best else 1.0


class Overhead(NamedTuple):
    """The part of a call's wall time that no device time covers: launches, the gaps between them, the host."""

    wall_s: float
    share: float  # of the wall time, 0 to 1
    graph_speedup: float  # wall over device time: the most that replaying the launches as one graph can win
    launches: float | None = None  # in the call, where known


class Baseline(NamedTuple):
    """What a row is compared with."""

    kind: str  # live: alternating with it in this run; previous: the same kernel earlier, on this machine; see BASELINE_KINDS
    t_s: float | None = None  # seconds of one unit
    speedup: float | None = None  # over this baseline, where a file gives the ratio alone
    spread: float = 0.0
    source: str = ""


class Prediction(NamedTuple):
    """What an earlier profile predicted for the kernel."""

    kernel: str
    attainable_speedup: float | None  # over the baseline
    roofline_pct: float | None = None  # of the baseline, a fraction
    roof_axis: str | None = None
    headroom_class: str = "unknown"
    confidence: str = "low"
    pct_gpu_time: float | None = None
    source: str = ""
    matched: str = ""  # how the measurement was found to be of this kernel


class Mistake(NamedTuple):
    """A wrong way to count a row."""

    cause: str  # one of CAUSES
    factor: float  # the figure with the mistake over the right one
    axis: str  # memory or compute; empty: both
    why: str
    in_work: bool = False  # whether the row's own work can have it; else only a printed rate can


class Facts(NamedTuple):
    """What is known of a row besides its work and its time."""

    placeholder_time: bool = False  # the time is exactly one of its printed unit, as if written by hand
    counter_ratio: float | None = None  # bytes by counters over the compulsory bytes
    timed_flops: float | None = None  # FLOPs of what was timed, where the record names another op
    known_mistakes: tuple[Mistake, ...] = ()  # that the shape makes possible
    working_set: float | None = None  # bytes that the timed loop uses again
    cold: bool = False  # the cache was flushed, or the operands rotated
    fewer_bytes: float | None = None  # that the candidate's algorithm moves
    correct: bool | None = None  # whether a check of the output passed; None without one


class Claim(NamedTuple):
    """A printed rate or speedup."""

    axis: str  # memory, compute, or speedup for a ratio over the baseline
    claimed: float  # bytes/s, FLOP/s, or the ratio
    digits: float = 0.0  # half of the last printed digit, as a fraction


class Finding(NamedTuple):
    """Why a rate is impossible or wrong."""

    cause: str  # one of CAUSES
    decided: str  # the figures that decided
    factor: float | None = None  # the wrong figure over the right one

    @property
    def experiment(self) -> str:
        """What would confirm the cause."""
        return EXPERIMENTS[self.cause]


class Check(NamedTuple):
    """The outcome for one row."""

    status: str  # one of STATUSES
    message: str = ""
    axis: str | None = None  # the roof of utilisation: memory, or the compute axis as in matrix.bf16
    utilisation: float | None = None  # the row's rate over the rated peak of the axis, by its smallest byte model
    limit: float | None = None  # what a right measurement can reach over that peak
    limit_basis: str = ""  # the reason for limit, for people
    speedup: float | None = None  # over the baseline
    attainable: float | None = None  # the speedup that was predicted
    band: float | None = None  # the relative change that is noise
    cause: str | None = None  # one of CAUSES
    decided: str | None = None  # the figures that decided the cause
    change: str | None = None  # one of CHANGES, whatever the roof says; None without a comparable baseline
    unchecked_axis: str | None = None  # a roof that may bind and is unknown, such as matrix.bool; the row is within the other

    @property
    def experiment(self) -> str | None:
        """What would confirm the cause."""
        return EXPERIMENTS[self.cause] if self.cause else None


class Limit(NamedTuple):
    """What a right measurement can reach over a rated peak."""

    code: str  # measured, full_bus, highest_clock, clock_unknown, any_dtype or baseline
    factor: float
    basis: str  # the reason, for people


class Bound(NamedTuple):
    """One roof over the work of a row, and the least time that it leaves."""

    axis: str  # memory, or the compute axis as in matrix.bf16
    least_s: float  # seconds at the rated peak, of the bytes or FLOPs that no run can avoid
    limit: Limit


NOTHING = Facts()


def explain_claim(claim: Claim, recomputed: float, facts: Facts = NOTHING) -> Finding | None:
    """Return why a printed rate differs from the rate that shape and time give; None where it does not."""
    if claim.claimed == 0.0:
        return Finding("placeholder", "0.0 is printed, nothing was worked out", 0.0)
    factor = claim.claimed / recomputed
    rounding = max(AGREES, claim.digits)
    if abs(factor - 1) <= rounding:
        return None
    fault = explain_counters(facts)
    if fault is not None:
        return fault._replace(factor=factor)
    for mistake, near, least in (
        *((item, IDENTITY, rounding) for item in facts.known_mistakes),
        *((item, EXACT, claim.digits) for item in _generic_mistakes(claim.axis)),
    ):
        # A factor near 1 (an fp32 output at two bytes, a binary prefix) must fit closer, or it would explain anything.
        tolerance = max(least, min(near, abs(mistake.factor - 1) / 10))
        if mistake.axis in ("", claim.axis) and abs(factor / mistake.factor - 1) <= tolerance:
            return Finding(mistake.cause, f"{factor:.4g} times what shape and time give: {mistake.why}", factor)
    return Finding("unexplained", f"{factor:.4g} times what shape and time give", factor)


def explain_counters(facts: Facts) -> Finding | None:
    """Return the fault of counters that show fewer bytes than must have moved; None where they do not."""
    if facts.counter_ratio is None or facts.counter_ratio >= SHORT:
        return None
    return Finding("counter_fault", f"the counters show {facts.counter_ratio:.2f} of the compulsory bytes")


def _generic_mistakes(axis: str) -> Iterator[Mistake]:
    slips = [("accounting_unit", "", factor, "a unit or a decimal place, {}") for factor in _UNITS]
    if axis == "memory":
        slips += [("dtype_width", axis, factor, "elements counted at {} times their width") for factor in _WIDTHS]
    elif axis == "compute":
        slips.append(("flop_convention", axis, 2.0, "FLOPs counted {} times"))
    for cause, side, factor, why in slips:
        yield Mistake(cause, factor, side, why.format(f"{factor:.4g}"))
        yield Mistake(cause, 1 / factor, side, why.format(f"1/{factor:.4g}"))


def explain_unit(model_flops: float, facts: Facts) -> Finding | None:
    """Return whether a record timed another unit than the op it names, as one called swiglu that times three GEMMs."""
    if facts.timed_flops is None or model_flops <= 0 or facts.timed_flops / model_flops < 1 / LEAVES[0]:
        return None
    factor = facts.timed_flops / model_flops
    return Finding("accounting_unit", f"what was timed does {factor:.4g} times the FLOPs of the op it is named after", factor)


def explain_excess(
    axis: str, utilisation: float, nbytes: float | None, peaks: Peaks, facts: Facts = NOTHING, *, printed: bool = False
) -> Finding:
    """Return why a rate is ``utilisation`` times the peak of ``axis`` (``memory``, ``matrix.fp8``, ...), which is impossible.

    nbytes: the bytes of the rate, None where unknown. printed: whether the rate is a printed one. A rate from the row's own
    work and time has none of the mistakes that only a printed rate can have, such as the bytes of all experts.
    """
    side = "memory" if axis == "memory" else "compute"
    if facts.placeholder_time:
        return Finding("placeholder", f"exactly 1 of its unit, and {utilisation:.4g} times the roof", utilisation)
    fault = explain_counters(facts)
    if fault is not None:
        return fault
    for mistake in facts.known_mistakes:
        if not (printed or mistake.in_work):
            continue
        corrected = utilisation / mistake.factor
        if mistake.axis in ("", side) and LEAVES[0] < corrected <= LEAVES[1]:
            return Finding(mistake.cause, f"{corrected:.3g} of the roof without it: {mistake.why}", mistake.factor)
    if axis in peaks.unvalidated:
        return Finding("wrong_peak", f"the peak itself breaks a rule: {peaks.unvalidated[axis]}")
    if side == "memory" and not facts.cold and facts.working_set is not None:
        cache = cache_bytes(peaks)
        if facts.working_set <= CACHE_REACH * cache and utilisation <= _cache_factor(peaks):
            again = f"{quantity(facts.working_set, 'B')} again and again through {quantity(cache, 'B')} of cache"
            return Finding("cache_resident", again)
    if facts.fewer_bytes is not None and nbytes and side == "memory" and utilisation * facts.fewer_bytes / nbytes <= 1.0:
        fewer, expected = quantity(facts.fewer_bytes, "B"), quantity(nbytes, "B")
        return Finding("different_algorithm", f"its algorithm moves {fewer}, not {expected}: a byte-reduction win")
    if facts.correct is False:
        return Finding("work_skipped", "its output failed the check")
    return Finding("unexplained", f"{utilisation:.4g} times the roof, and none of the known mistakes gives that factor")


def limit_of(peaks: Peaks, axis: str, rated: float) -> Limit:
    """Return what a right measurement can reach over the ``rated`` peak of an axis."""
    if peaks.source == "measured":
        if peaks.product == CPU and peaks.axis_confidence(axis) == "low":
            return Limit("measured", DISTURBED, "the ceiling was measured among other programs")
        return Limit("measured", OVER_RATED_BOARD, "a measured ceiling is a lower bound")
    top = peaks.highest(axis)
    if top:
        code, basis = ("full_bus", "the full bus") if axis == "memory" else ("highest_clock", "the highest clock")
        return Limit(code, max(1.0, top / rated), basis)
    return Limit("clock_unknown", clock_margin(peaks.product), "the highest clock is not known")


def limit_of_entry(entry: Entry, peaks: Peaks) -> Limit | None:
    """Return the limit of the roof that an entry's ratio was taken on; None where its rated peak is unknown."""
    axis: str = "memory"
    if entry.roof_axis == "compute":
        engine = "vector" if entry.op_class == "elementwise" else "matrix"
        axis, _ = peaks.compute_axis(engine, parse_dtype(entry.dtype).peak)
    rated = peaks.rated(axis)
    return limit_of(peaks, axis, rated) if rated else None


def _cache_factor(peaks: Peaks) -> float:
    """Return how many times faster than memory the caches can be."""
    return CACHE_OVER_MEMORY if peaks.product == CPU else _DEVICE_CACHE


def _with_caches(limit: Limit, work: Work, nbytes: float, peaks: Peaks, cache: str, working_set: float | None) -> Limit:
    """Return the limit of the memory axis with what caches add: operands that stay in one, and results that are still in it."""
    size, most = cache_bytes(peaks), _cache_factor(peaks)
    if cache != "cold" and (nbytes if working_set is None else working_set) <= CACHE_REACH * size:
        return Limit(limit.code, limit.factor * most, f"out of a cache, and {limit.basis}")
    if work.written is not None:
        written = min(work.written, nbytes)
    else:  # the least bytes of a MoE and of attention are those of the weights and of the KV cache, which are read
        written = 0.0 if work.op_class in ("moe", "attn") else nbytes / WRITTEN
    moved = nbytes - min(written, size)
    factor = min(nbytes / moved, most) if moved else most
    if factor < 1 + AGREES:
        return limit
    return Limit(limit.code, limit.factor * factor, f"what it wrote may still be in a cache, and {limit.basis}")


def _core_limit(peaks: Peaks, axis: str) -> float | None:
    """Return the rate that no CPU of so many cores has, whatever was measured; None where the cores are not known."""
    if peaks.product != CPU or not peaks.units:
        return None
    per_clock = L1_BYTES_PER_CLOCK if axis == "memory" else CORE_FLOPS_PER_CLOCK.get(axis.partition(".")[2], CORE_OPS_PER_CLOCK)
    return peaks.units * per_clock * CORE_CLOCK_HZ


def _within_cores(limit: Limit, axis: str, rated: float, peaks: Peaks) -> Limit:
    """Return the limit, at most what the cores of a CPU can move or compute."""
    most = _core_limit(peaks, axis) if peaks.product == CPU else None
    if most is None or not rated < most < limit.factor * rated:
        return limit
    what = f"{L1_BYTES_PER_CLOCK:g} B" if axis == "memory" else f"{most / CORE_CLOCK_HZ / (peaks.units or 1):g} FLOP"
    return limit._replace(factor=most / rated, basis=f"{peaks.units} cores of {what} a clock")


def bounds_of(
    work: Work,
    peaks: Peaks,
    *,
    cache: str = "unknown",
    working_set: float | None = None,
    roof: Roof | None = None,
    limits: dict[str, Limit] | None = None,
) -> tuple[Bound, ...]:
    """Return the roofs over the work that no run can avoid, of which the known ones come first.

    A compute roof that is unknown is replaced by the fastest rate of any dtype: a rate over that is impossible all the same.

    cache: as of Measurement. working_set: bytes that the timed loop uses again; None: those of the work. roof: of the work,
    where the caller has it. limits: keeps the limits of these peaks by axis, for a caller with many shapes.
    """
    roof, limits = roof or roof_of(work, peaks), {} if limits is None else limits
    nbytes, flops = work.unavoidable
    bounds = []
    if roof.bandwidth and nbytes:
        limit = limits.get("memory") or limits.setdefault("memory", limit_of(peaks, "memory", roof.bandwidth))
        limit = _with_caches(limit, work, nbytes, peaks, cache, working_set)
        bounds.append(Bound("memory", nbytes / roof.bandwidth, _within_cores(limit, "memory", roof.bandwidth, peaks)))
    if roof.rate and flops:
        limit = limits.get(roof.axis) or limits.setdefault(roof.axis, limit_of(peaks, roof.axis, roof.rate))
        bounds.append(Bound(roof.axis, flops / roof.rate, _within_cores(limit, roof.axis, roof.rate, peaks)))
    elif flops:
        bounds += _bound_of_any_dtype(roof.axis, flops, peaks)
    return tuple(bounds)


def _bound_of_any_dtype(axis: str, flops: float, peaks: Peaks) -> list[Bound]:
    """Return the bound of FLOPs whose own rate is unknown: the fastest rate that the device has, none where none is known."""
    most = _core_limit(peaks, axis)
    if most is not None:
        return [Bound(axis, flops / most, Limit("any_dtype", 1.0, f"{peaks.units} cores of any kind"))]
    fastest = fastest_axis(peaks)
    if fastest is None:
        return []
    name, rate = fastest
    limit = limit_of(peaks, name, rate)
    basis = f"{name} is the fastest known"
    if peaks.product == CPU:
        rate, basis = rate * TILE_OVER_VECTOR, f"{basis}, a tile unit {TILE_OVER_VECTOR:g} times that"
    return [Bound(axis, flops / rate, Limit("any_dtype", limit.factor, f"{basis}; {limit.basis}"))]


def unchecked_axis(work: Work, peaks: Peaks) -> str | None:
    """Return the roof of the work that is unknown although it may be the lower one; None where each that may bind is known."""
    roof = roof_of(work, peaks)
    nbytes, flops = work.unavoidable
    if not roof.bandwidth:
        return "memory" if nbytes else None
    if roof.rate or roof.streaming or not flops:
        return None
    rates = [*peaks.flops.values(), *peaks.vector.values()]
    # Work that the memory binds even at the slowest rate of the device needs no other roof.
    return None if rates and flops * roof.bandwidth <= nbytes * min(rates) else roof.axis


def time_slack(measurement: Measurement, peaks: Peaks) -> float:
    """Return how many times its printed time a run can have taken: the clock's resolution and the printed digits.

    A reading that is not zero is a tick at least. So a time under a tick is a mean over t/tick launches or more, of which one
    tick in all is uncertain: the error is at most the tick, and at most the time itself.
    """
    if peaks.product == CPU or measurement.clock in ("host", "host+sync"):
        tick = TICKS["host"]
    else:
        tick = TICKS["hip" if peaks.gfx is not None and peaks.gfx.startswith("gfx") else "cuda"]
    return 1.0 + (tick / measurement.t_s if tick < measurement.t_s else 1.0) + measurement.rounding


def _with_slack(limit: Limit, measurement: Measurement, peaks: Peaks) -> Limit:
    """Return the limit of a rate whose time is only as good as its clock and its printed digits."""
    slack = time_slack(measurement, peaks)
    basis = limit.basis if slack <= BEYOND else f"{limit.basis}, and the resolution of the time"
    return Limit(limit.code, limit.factor * slack, basis)


def check_within(nearest: Bound, measurement: Measurement, peaks: Peaks, unchecked: str | None = None) -> Check:
    """Return what ``check`` says of a time that every roof allows, without a baseline: most rows of a tuner's table.

    nearest: ``nearest_bound`` of such a time. unchecked: as of ``unchecked_axis``.
    """
    axis, least_s, limit = nearest
    _, factor, basis = _with_slack(limit, measurement, peaks)
    band = ISOLATED_NOISE
    if measurement.q1_s is not None or measurement.rounding > band:
        band = max(band, measurement.spread, measurement.rounding)
    utilisation = least_s / measurement.t_s
    return Check("not_checked", "no baseline", axis, utilisation, factor, basis, band=band, unchecked_axis=unchecked)


def nearest_bound(bounds: tuple[Bound, ...], t_s: float) -> Bound:
    """Return the roof that a time is nearest to, or furthest beyond, by what is possible of each.

    The rate of any dtype counts only beyond it: within it, it says nothing.
    """
    nearest = max(bounds, key=lambda bound: bound.least_s / bound.limit.factor)
    if nearest.limit.code == "any_dtype" and nearest.least_s <= t_s:
        return bounds[0]
    return nearest


def lacks_device_sync(measurement: Measurement, peaks: Peaks) -> bool:
    """Return whether device work was timed on a host clock without a known wait for the device."""
    return peaks.product != CPU and measurement.clock in ("host", "unknown")


def assess_measurement(
    entry: Entry,
    work: Work,
    measurement: Measurement,
    peaks: Peaks,
    *,
    launches: float = 1,
    target_eff: float | None = None,
) -> Entry:
    """Return ``entry``, which has its identity and stage, with the verdict of one isolated measurement.

    Operands that may have stayed in a cache give no verdict on the memory axis, unless the bandwidth of the caches is known:
    the roof is then that of the level that holds them. Device work on a host clock gives none at all: without a wait for the
    device such a time is of the launch.
    """
    t_ms = 1e3 * measurement.t_s
    entry = entry._replace(t_ms=t_ms / launches, launches_per_unit=launches, t_unit_ms=t_ms)
    timed, judge = entry, partial(assess, target_eff=target_eff, lowest=0.0, swing=measurement.swing)
    entry = judge(timed, work, peaks, warm=measurement.cache != "cold")
    over = entry.unknown_reason == "infeasible" and entry.roof_axis == "memory" and (entry.roofline_pct_raw or 0.0) > 1.0
    cached = measurement.cache != "cold" and work.bytes <= CACHE_REACH * cache_bytes(peaks)
    if over and cached and (entry.roofline_pct_raw or 0.0) <= _cache_factor(peaks):  # a cache allows this rate
        entry = entry._replace(unknown_reason="cache_resident")
    if entry.unknown_reason == "cache_resident" and peaks.levels and work.coverage in ("whole", "range"):
        entry = assess_in_cache(entry, work, peaks, partial(judge, timed, work))
    if lacks_device_sync(measurement, peaks) or measurement.rounding > COARSE:
        return mark_low_confidence(entry)
    return entry._replace(route=route(entry))


def mark_low_confidence(entry: Entry) -> Entry:
    """Return the entry for display only: its time cannot be judged."""
    entry = entry._replace(
        headroom_class="unknown",
        unknown_reason=entry.unknown_reason or "low_confidence",
        confidence="low",
        rankable=False,
    )
    return entry._replace(route=route(entry))


def launch_overhead(measurement: Measurement, launches: float | None = None) -> Overhead | None:
    """Return the launch overhead of a call with a wall time and a device time.

    A device time over the wall time is impossible: one of the two is wrong, so the overhead is unknown.
    """
    wall_s, busy_s = measurement.wall_s, measurement.busy_s or measurement.t_s
    if wall_s is None or wall_s <= 0 or not measurement.clock.startswith("device-") or busy_s > wall_s * (1 + ISOLATED_NOISE):
        return None
    busy_s = min(busy_s, wall_s)
    return Overhead(wall_s, 1.0 - busy_s / wall_s, wall_s / busy_s, launches)


def check(
    entry: Entry,
    work: Work | None,
    measurement: Measurement | None,
    peaks: Peaks | None,
    *,
    baseline: Baseline | None = None,
    prediction: Prediction | None = None,
    noise: float = ISOLATED_NOISE,
    facts: Facts = NOTHING,
) -> Check:
    """Check one row against its roof and its prediction; the first of STATUSES that applies stands.

    The roof comes first, and from the row's own time: however short the kernel is, a launch only adds to its time. Without a
    prediction, the row's target over a live or previous baseline is the prediction.
    """
    speedup = _speedup(measurement, baseline)
    spreads = [measurement.spread, measurement.rounding] if measurement else []
    if measurement is not None and (measurement.wait_share or 0.0) > CONTENDED:  # the times are of the other programs, too
        spreads.append(WIDEST_BAND)
    band = max(noise, *spreads, baseline.spread if baseline else 0.0)
    out = Check("not_checked", speedup=speedup, band=band)
    if speedup is not None and baseline is not None and baseline.kind in COMPARABLE:
        out = out._replace(change="slower" if speedup < 1 / (1 + band) else "within_noise" if speedup < 1 + band else "faster")
    bounds: tuple[Bound, ...] = ()
    if work is not None and measurement is not None and peaks is not None:
        bounds = bounds_of(work, peaks, cache=measurement.cache, working_set=facts.working_set)
        out = out._replace(unchecked_axis=unchecked_axis(work, peaks))
    if bounds and work is not None and measurement is not None and peaks is not None:
        out = _check_roof(out, work, measurement, peaks, bounds, facts)
    elif speedup is not None and prediction is not None and prediction.roofline_pct:
        out = _check_baseline_ratio(out, speedup, prediction)
    if out.status != "not_checked":
        return out
    if speedup is None or baseline is None:
        missing = "no time" if measurement is None else "no work to compare it with" if work is None else "no baseline"
        return out._replace(message=out.message or missing)
    if baseline.kind not in COMPARABLE:
        kind = f"{'an' if baseline.kind[0] in 'aeiou' else 'a'} {baseline.kind}"
        message = f"{speedup:.3f}x is over {kind} baseline, a prediction is about this kernel"
        return out._replace(status="not_comparable", message=message)
    if band > WIDEST_BAND and out.change == "within_noise":
        message = f"{speedup:.3f}x: the times spread over {band:.3g} times their median, so they show no change"
        return out._replace(status="not_comparable", message=message)
    attainable = prediction.attainable_speedup if prediction else _predict(entry, work, baseline, peaks)
    status = "not_checked"
    if out.change == "slower":
        status = "regression"
        message = f"takes {1 / speedup:.3g} times as long as the {baseline.kind} baseline, noise is {band:.1%}"
    elif out.change == "within_noise":
        status, message = "no_change", f"{speedup:.3f}x is within the noise of {band:.1%}"
    elif attainable is None:
        message = f"{speedup:.3f}x, without a prediction to compare it with"
    elif _is_under_floor(entry, baseline, attainable, peaks):
        status, message = "not_falsifiable", f"{speedup:.3f}x: {attainable:.3f}x is predicted, where the launch is all the time"
    elif speedup <= attainable * (1 + band):
        status, message = "consistent", f"{speedup:.3f}x measured, {attainable:.3f}x attainable"
    elif prediction is None and entry.unknown_reason == "cache_resident":  # the target is of the memory roof, not of a cache
        message = f"{speedup:.3f}x, over the {attainable:.3f}x that memory allows: a cache may have served it"
    else:
        status, message = "exceeds_target", f"{speedup:.3f}x measured, {attainable:.3f}x predicted. "
        message += "The prediction's target is too low; the measurement is right"
    return out._replace(status=status, attainable=attainable, message=message)


def _speedup(measurement: Measurement | None, baseline: Baseline | None) -> float | None:
    if baseline is None:
        return None
    if baseline.t_s is not None and measurement is not None:
        return baseline.t_s / measurement.t_s
    return baseline.speedup


def _is_under_floor(entry: Entry, baseline: Baseline, attainable: float, peaks: Peaks | None) -> bool:
    """Return whether the best case of a prediction lies under the dispatch floor: no time can contradict it then."""
    if peaks is None or baseline.t_s is None:
        return entry.falsifiable is False
    floor_s = entry.launches_per_unit * peaks.dispatch_floor_s
    return baseline.t_s / attainable <= floor_s * (1 + 1e-9)


def _check_roof(
    out: Check, work: Work, measurement: Measurement, peaks: Peaks, bounds: tuple[Bound, ...], facts: Facts
) -> Check:
    """Compare the row's rates, by the work that no run can avoid, with the limit of the nearer roof."""
    nearest = nearest_bound(bounds, measurement.t_s)
    axis, utilisation, limit = nearest.axis, nearest.least_s / measurement.t_s, nearest.limit
    nbytes = work.unavoidable[0]
    placed = _place(out, axis, utilisation, _with_slack(limit, measurement, peaks))
    if placed.status == "beyond_roof":
        facts = facts._replace(cold=measurement.cache == "cold")
        finding = explain_excess(axis, utilisation, nbytes, peaks, facts)
        decided = finding.decided if finding.cause != "unexplained" else _suspects(work, axis, utilisation)
        return placed._replace(cause=finding.cause, decided=decided, message=f"{placed.message}; {decided}")
    cached = (nbytes if facts.working_set is None else facts.working_set) <= CACHE_REACH * cache_bytes(peaks)
    if placed.status == "near_roof" and axis == "memory" and cached and measurement.cache != "cold":
        # A cache may have served it, so the memory roof says nothing, and the baseline decides.
        cache = quantity(cache_bytes(peaks), "B")
        decided = f"its {quantity(nbytes, 'B')} may have stayed in {cache} of cache: flush between rounds"
        message = f"{utilisation:.3g} times the memory roof; {decided}"
        return placed._replace(status="not_checked", cause="cache_resident", decided=decided, message=message)
    return placed


def _suspects(work: Work, axis: str, utilisation: float) -> str:
    """Return what may be behind a rate that no known mistake explains."""
    if work.op_class == "gemm" and axis != "memory" and utilisation <= _SPARSE * BEYOND:
        return f"{_SUSPECTS}, or 2:4 sparsity, which skips half of the multiply-adds (sparsity)"
    return _SUSPECTS


def _check_baseline_ratio(out: Check, speedup: float, prediction: Prediction) -> Check:
    """Compare the ratio of the baseline times the speedup with the roof: for a row without a time."""
    factor = clock_margin(None) if prediction.roof_axis == "compute" else 1.0
    limit = Limit("baseline", factor, "the baseline's ratio times the speedup")
    return _place(out, prediction.roof_axis, (prediction.roofline_pct or 0.0) * speedup, limit)


def is_beyond(utilisation: float, limit: float) -> bool:
    """Return whether a rate over a rated peak is impossible, not only over what is rated: the one rule for every report."""
    return utilisation > BEYOND * limit


def _place(out: Check, axis: str | None, utilisation: float, limit: Limit) -> Check:
    """Return ``out`` with the utilisation of an axis and its limit, and with beyond_roof or near_roof where one applies."""
    out = out._replace(axis=axis, utilisation=utilisation, limit=limit.factor, limit_basis=limit.basis)
    if utilisation <= 1.0:
        return out
    what = "fastest rate of any dtype" if limit.code == "any_dtype" else f"{axis or 'known'} roof"
    roof = f"{utilisation:.3g} times the {what}"
    if is_beyond(utilisation, limit.factor):
        return out._replace(status="beyond_roof", message=f"{roof}, {BEYOND * limit.factor:.3g} is possible ({limit.basis})")
    reason = ": the ceiling may be under-measured" if limit.code == "measured" else f": possible with {limit.basis}"
    return out._replace(status="near_roof", message=roof + reason)


def _predict(entry: Entry, work: Work | None, baseline: Baseline, peaks: Peaks | None) -> float | None:
    """Return the speedup that the target leaves over the baseline; None without a ratio of the baseline or a target."""
    if work is None or peaks is None or baseline.t_s is None or entry.target_eff is None:
        return None
    raw = roof_of(work, peaks).place(work.bytes, work.flops, baseline.t_s).raw
    if entry.roof_level is not None and entry.roofline_pct_raw is not None and entry.t_unit_ms is not None:
        raw = entry.roofline_pct_raw * entry.t_unit_ms / 1e3 / baseline.t_s  # of the level that holds the operands
    if raw is None or not 0 < raw <= 1:
        return None
    return attainable_speedup(raw, entry.target_eff, baseline.t_s / entry.launches_per_unit, peaks.dispatch_floor_s)
