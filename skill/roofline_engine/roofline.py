"""The verdict: how near one unit of work is to its roof, and how much speedup that leaves.

All arithmetic of the model is here. Formulas, bands and the order of the rules without a verdict are sections 3 and 6 of the
specification; the range over byte models, the cap by the dispatch floor and the reasons are added here.

Intensities are in FLOP/byte, rates in FLOP/s, bandwidths in bytes/s. On log-log axes a bandwidth is a straight line of slope
one and a compute ceiling a flat one (Williams, Waterman and Patterson, CACM 52(4), 2009), so two points draw a limit exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from .fields import ByteModel, Entry
from .peaks import DISPATCH_FLOOR_S, OVER_RATED_BOARD, Level, Peaks
from .work import TARGET_EFF, Work

# A test compares the table in SKILL.md with these constants.
#: With both ratios under this, neither roof is near: latency or occupancy is the limiter (specification 3.5).
LATENCY_THRESHOLD = 0.60
#: Bands of the ratio to target_eff, not to the roof: the headroom is the distance to what a good kernel reaches (3.6).
SATURATED_BAND = 0.9
MODERATE_BAND = 0.6
#: A ratio under this is as impossible as one over 1: the model, the peak or the time is wrong by orders (6, L3).
SUSPECT_LOW = 0.001
#: Below this share Amdahl's law caps the gain under the noise, whatever the roofline says (3.0).
HEAD_PCT = 5.0
HEAD_MAX = 8
#: Identical reruns of one isolated kernel differ by this much; serving runs by much less (8.3).
ISOLATED_NOISE = 0.034
SERVING_NOISE = 0.005
#: Plain streaming reaches about this part of the pin rate (8.2); a memory roofline_pct above it deserves counters.
STREAMING_FRACTION = 0.85
#: The largest last-level cache in peaks.md (MI300X's MALL), for a device with unknown caches.
LARGEST_CACHE = 268435456
#: A warm working set of up to this many caches is partly served by them: 1.29x too fast at 1.33 of an RTX 5090's L2, 1.06x
#: at 1.01 of a GB200's and right at 2.02 (NVIDIA/TileGym#82, #118).
CACHE_REACH = 2.0

#: Why work of each coverage has no class. Work that depends on the data has one where both ends of its range agree.
COVERAGE_REASONS = {"range": "data_dependent", "lower_bound": "partly_seen", "args": "args_only"}
#: Reasons without numbers: attainable_speedup and the gains are null.
NO_NUMBERS = (
    "not_measured",
    "unmodelled",
    "infeasible",
    "dispatch_bound",
    *COVERAGE_REASONS.values(),
    "unvalidated_peak",
    "no_target",
)


class Point(NamedTuple):
    """One amount of work over one time under two limits; None where a peak is unknown."""

    achieved_bw_bytes_s: float
    achieved_flops: float
    arithmetic_intensity: float | None
    hbm_util: float | None  # achieved over peak bandwidth
    compute_util: float | None  # achieved over peak FLOP/s
    ridge_point: float | None
    roof_axis: str | None  # memory or compute
    raw: float | None  # the ratio on roof_axis, not clamped


def point(
    nbytes: float, flops: float, t_s: float, peak_bw: float | None, peak_flops: float | None, *, streaming: bool = False
) -> Point:
    """Place bytes, FLOPs and a time (seconds) under the peaks (bytes/s, FLOP/s).

    The axis is compute where the intensity is over the ridge point, else memory; a point on the ridge is memory. Without a
    compute peak only work that is memory-bound by nature (``streaming``, or no FLOPs) has an axis. A rate over the one known
    peak is impossible whatever the other peak is, so it has that axis.

    Raises:
        ValueError: when ``t_s`` is not positive.
    """
    if not t_s > 0:
        raise ValueError(f"time is {t_s!r} s, expected more than 0")
    bandwidth, rate = nbytes / t_s, flops / t_s
    if not (math.isfinite(bandwidth) and math.isfinite(rate)):
        raise ValueError(f"{nbytes:.4g} bytes and {flops:.4g} FLOPs in {t_s!r} s are not finite rates")
    intensity = flops / nbytes if nbytes > 0 else None
    hbm_util = bandwidth / peak_bw if peak_bw else None
    compute_util = rate / peak_flops if peak_flops else None
    ridge = peak_flops / peak_bw if peak_flops and peak_bw else None
    axis: str | None = None
    if ridge is not None and intensity is not None:
        axis = "compute" if intensity > ridge else "memory"
    elif hbm_util is not None and (streaming or not flops or hbm_util > 1.0):
        axis = "memory"
    elif compute_util is not None and compute_util > 1.0:
        axis = "compute"
    raw = compute_util if axis == "compute" else hbm_util if axis == "memory" else None
    return Point(bandwidth, rate, intensity, hbm_util, compute_util, ridge, axis, raw)


class Roof(NamedTuple):
    """The two limits of one kind of work on one device."""

    bandwidth: float | None  # bytes/s of memory
    rate: float | None  # FLOP/s of the units and the dtype
    axis: str  # of the rate: matrix.bf16
    streaming: bool = False  # memory-bound by its nature, whatever the rate

    def place(self, nbytes: float, flops: float, t_s: float) -> Point:
        """Place bytes, FLOPs and a time (seconds) under this roof; see ``point``."""
        return point(nbytes, flops, t_s, self.bandwidth, self.rate, streaming=self.streaming)

    def time(self, nbytes: float, flops: float) -> float:
        """Return the seconds on the limit that takes longer; a limit that is unknown takes none."""
        return max(nbytes / self.bandwidth if self.bandwidth else 0.0, flops / self.rate if self.rate else 0.0)


def roof_of(work: Work, peaks: Peaks) -> Roof:
    """Return the roof of this work: the memory bandwidth, and the peak rate of its units and dtype."""
    axis, rate = peaks.compute_axis(work.engine, work.dtype.peak or work.dtype.name)
    return Roof(peaks.hbm_bw_bytes_s, rate, axis, streaming=work.engine == "vector")


def choose_target(work: Work, peaks: Peaks, p_axis: str | None, given: float | None = None) -> tuple[float | None, str | None]:
    """Return what a good kernel of this work reaches on an axis, and what sets it: one of ``fields.TARGET_BASES``.

    The caller's own figure and one that was observed on this device stand. Otherwise it is the least of the prior of the op, of
    what matrix units are known to sustain on the product (peaks.md), and of a measured ceiling. No figure without a prior.

    p_axis: ``memory`` or ``compute``; None where the axis is unknown.
    """
    if given is not None:
        return given, "given"
    observed = peaks.target(work.op, p_axis, work.dtype.name) if peaks.targets else None
    if observed is not None:
        return observed.target_eff, "observed"
    prior = TARGET_EFF.get(work.op)
    if prior is None:
        return None, None
    target, basis = prior, "prior"
    roof = roof_of(work, peaks)
    axis, peak = ("memory", roof.bandwidth) if p_axis == "memory" else (roof.axis, roof.rate)
    for name, ceilings in (("sustained", peaks.sustained), ("measured", peaks.achievable)):
        ceiling = ceilings.get(axis) if p_axis is not None else None
        if peak and ceiling and ceiling / peak < target:
            target, basis = ceiling / peak, name
    return target, basis


def headroom(roofline_pct: float, target_eff: float) -> str:
    """Return the class of a ratio (a fraction) against what a good kernel of the op reaches."""
    if roofline_pct >= SATURATED_BAND * target_eff:
        return "saturated"
    if roofline_pct >= MODERATE_BAND * target_eff:
        return "moderate"
    return "underperforming"


def attainable_speedup(roofline_pct: float, target_eff: float, t_launch_s: float, floor_s: float = DISPATCH_FLOOR_S) -> float:
    """Return max(1, target/pct), at most the speedup at which one launch takes the dispatch floor."""
    cap = max(1.0, t_launch_s / floor_s)
    return min(max(1.0, target_eff / roofline_pct), cap)


def time_saved_pct(pct_gpu_time: float, speedup: float) -> float:
    """Return the percent of the GPU time saved when a kernel with this share gets this much faster (Amdahl)."""
    return pct_gpu_time * (1.0 - 1.0 / speedup)


def throughput_gain_pct(saved_pct: float) -> float | None:
    """Return the throughput gain for this time saved, x/(1-x); None when no time would remain."""
    return 100.0 * saved_pct / (100.0 - saved_pct) if saved_pct < 100.0 else None


def bound(p: Point) -> str:
    """Return the limiter. A small intensity alone does not make a kernel memory-bound: a roof has to be near."""
    if p.hbm_util is None or p.roof_axis is None:
        return "unknown"
    if p.compute_util is None:
        if p.hbm_util >= LATENCY_THRESHOLD:
            return p.roof_axis
        return "latency" if p.roof_axis == "memory" else "unknown"  # on the memory axis the work streams
    if p.hbm_util < LATENCY_THRESHOLD and p.compute_util < LATENCY_THRESHOLD:
        return "latency"
    return p.roof_axis


def assess(
    entry: Entry,
    work: Work,
    peaks: Peaks,
    *,
    conflict: bool = False,
    warm: bool = False,
    target_eff: float | None = None,
    lowest: float = SUSPECT_LOW,
    swing: float = 1.0,
) -> Entry:
    """Return ``entry``, which has its identity, times and stage, with every metric from its work and the peaks.

    conflict: the work combines shapes on different roofs, so no single ratio describes them.
    warm: an isolated timing without a known flush: its operands may stay in a cache between launches. A serving run is cold.
    target_eff: what a good kernel of this op reaches here, in place of the prior.
    lowest: a smaller ratio is impossible; 0 for an isolated timing, which may be a loop on one of many cores.
    swing: how many times as fast as this time the kernel may be, by the best of its rounds; infinite where that is unknown.
    """
    roof = roof_of(work, peaks)
    nbytes, flops = work.bytes, work.flops
    fields: dict[str, Any] = {  # set at once at the end: each change copies the entry
        "op": work.op,
        "op_class": work.op_class,
        "modeled": True,
        "dtype": work.dtype.name,
        "weight_dtype": work.weight_dtype.name,
        "bytes_est": nbytes,
        "flops_est": flops,
        "byte_models": work.candidates,
        "arithmetic_intensity": flops / nbytes if nbytes > 0 else None,
        "ridge_point": roof.rate / roof.bandwidth if roof.rate and roof.bandwidth else None,
    }
    fields["target_eff"], fields["target_basis"] = choose_target(work, peaks, None, target_eff)
    if entry.t_ms is None or entry.t_unit_ms is None:
        return _decide(entry, "not_measured", "memory", peaks, fields)
    t_launch, t_unit = entry.t_ms / 1e3, entry.t_unit_ms / 1e3
    placed = [(model, roof.place(model.bytes, model.flops, t_unit)) for model in work.candidates]
    p = placed[0][1]
    fields.update(
        byte_models=tuple(
            model._replace(feasible=None if q.hbm_util is None else 0 < q.hbm_util <= 1.0) for model, q in placed
        ),
        achieved_bw_bytes_s=p.achieved_bw_bytes_s,
        achieved_flops=p.achieved_flops,
        hbm_util=p.hbm_util,
        compute_util=p.compute_util,
        roof_axis=p.roof_axis,
        bound_type=bound(p),
        roofline_pct_raw=p.raw,
        roofline_pct=None if p.raw is None else min(p.raw, 1.0),
        bytes_upper_bound=peaks.hbm_bw_bytes_s * t_unit if peaks.hbm_bw_bytes_s else None,
        falsifiable=is_falsifiable(work, peaks, entry.launches_per_unit),
    )
    fields["target_eff"], fields["target_basis"] = choose_target(work, peaks, p.roof_axis, target_eff)
    axis = roof.axis if p.roof_axis == "compute" else "memory"
    if work.coverage != "whole":
        end = roof.place(*work.unavoidable, t_unit)
        if work.coverage != "range" or not _is_one_class(p, end, fields["target_eff"], lowest):
            return _assess_part(entry, work, p, end, axis, peaks, fields)
        placed.append((ByteModel("least", *work.unavoidable), end))
    if p.raw is not None and (p.raw > 1.0 or p.raw < lowest or nbytes <= 0):
        # An impossible ratio says nothing about the kernel, nor about its limiter.
        fields.update(bound_type="unknown", suspect=True, stage_c_candidate=True)
        return _decide(entry, "infeasible", axis, peaks, fields)
    if t_launch <= peaks.dispatch_floor_s:
        fields["bound_type"] = "latency"
        return _decide(entry, "dispatch_bound", axis, peaks, fields)
    if p.raw is None:
        return _decide(entry, "unvalidated_peak", axis, peaks, fields)
    resident = "cache_resident" if warm and axis == "memory" and nbytes <= CACHE_REACH * cache_bytes(peaks) else None
    if axis in peaks.unvalidated:
        return _decide(entry, resident or "unvalidated_peak", axis, peaks, fields)
    target = fields["target_eff"]
    if target is None:
        return _decide(entry, resident or "no_target", axis, peaks, fields)

    points = [q for model, q in placed if model.in_range and q.raw is not None and lowest <= q.raw <= 1.0]
    ratios = [q.raw for q in points if q.raw is not None]
    low, high = min(ratios), max(ratios)
    best = min(1.0, high * swing)
    speedups = [attainable_speedup(pct, target, t_launch, peaks.dispatch_floor_s) for pct in (p.raw, best, low)]
    share = entry.pct_gpu_time  # None for a unit test, which has no gain end to end
    gains = [] if share is None else [time_saved_pct(share, speedup) for speedup in speedups]
    one_axis = all(q.roof_axis == p.roof_axis for q in points)
    conflict = conflict or not one_axis or headroom(low, target) != headroom(high, target)
    noisy = headroom(high, target) != headroom(best, target)
    reason = resident or ("conflicting_models" if conflict else "noisy" if noisy else None)
    fields.update(
        stage_c_candidate=reason in ("cache_resident", "conflicting_models"),
        roofline_pct_range=(low, best),
        attainable_speedup=speedups[0],
        attainable_speedup_range=(speedups[1], speedups[2]),
        hard_limit_speedup=1.0 / p.raw,
        expected_e2e_gain_pct=gains[0] if gains else None,
        expected_e2e_gain_pct_range=(gains[1], gains[2]) if gains else None,
        expected_throughput_gain_pct=throughput_gain_pct(gains[0]) if gains else None,
        indicative_class=headroom(p.raw, target),
    )
    return _decide(entry, reason, axis, peaks, fields)


def assess_in_cache(assessed: Entry, work: Work, peaks: Peaks, judge: Callable[[Peaks], Entry]) -> Entry:
    """Return the verdict of operands that stay in a cache, under the roof of the level that holds them.

    assessed: what ``assess`` returned, without a verdict because of the caches. judge: ``assess`` of the same time under other
    peaks.

    The bandwidth was measured for some sizes of operands. The verdict stands if it is the same under those of the two sizes
    next to this one; the figures are those of the larger and slower one. A rate over a bandwidth shows that a faster level
    served it, or that the ceiling is too low: a small excess is saturated. ``assessed`` is returned where the verdicts differ,
    or where the rate exceeds both.
    """
    found: list[tuple[Level, Entry]] = []
    is_over = False
    for level in peaks.levels_around(work.bytes):
        judged = judge(peaks.at_level(level))
        raw = judged.roofline_pct_raw
        if raw is None:
            return assessed
        if raw <= 1.0:
            found.append((level, judged))
        else:
            is_over = is_over or raw <= OVER_RATED_BOARD
    verdicts = {(judged.headroom_class, judged.unknown_reason) for _, judged in found}
    if len(verdicts) != 1 or (is_over and verdicts != {("saturated", None)}):
        return assessed
    level, judged = found[-1]
    ranges = [item.roofline_pct_range for _, item in found if item.roofline_pct_range is not None]
    speedups = [item.attainable_speedup_range for _, item in found if item.attainable_speedup_range is not None]
    kept = ("hbm_util", "ridge_point", "bytes_upper_bound", "byte_models", "falsifiable")  # of memory
    return judged._replace(
        roof_level=(level.name or None) if judged.roof_axis == "memory" else None,
        roofline_pct_range=(min(low for low, _ in ranges), max(high for _, high in ranges)) if ranges else None,
        attainable_speedup_range=(min(low for low, _ in speedups), max(high for _, high in speedups)) if speedups else None,
        **{name: getattr(assessed, name) for name in kept},
    )


def _is_one_class(p: Point, end: Point, target: float | None, lowest: float) -> bool:
    """Return whether the most and the least work are possible, on one axis and of one class."""
    if p.raw is None or end.raw is None or target is None or p.roof_axis != end.roof_axis:
        return False
    possible = lowest <= end.raw <= p.raw <= 1.0
    return possible and headroom(p.raw, target) == headroom(end.raw, target)


def _assess_part(entry: Entry, work: Work, p: Point, end: Point, axis: str, peaks: Peaks, fields: dict[str, Any]) -> Entry:
    """Return the entry of work that is known in part, without a class.

    end: the work that no run can avoid, under the same roof. It alone can be impossible. Argument traffic keeps its percent,
    for display; the others have none, since only an end of it is known.
    """
    fields["bound_type"] = "unknown"
    if max(end.hbm_util or 0.0, end.compute_util or 0.0) > 1.0:
        fields.update(suspect=True, stage_c_candidate=True)
        return _decide(entry, "infeasible", axis, peaks, fields)
    if work.coverage != "args" or p.raw is None or p.raw > 1.0:
        fields.update(
            dict.fromkeys(
                ("achieved_bw_bytes_s", "achieved_flops", "hbm_util", "compute_util", "roofline_pct", "roofline_pct_raw")
            )
        )
    if entry.t_ms is not None and entry.t_ms / 1e3 <= peaks.dispatch_floor_s:
        return _decide(entry, "dispatch_bound", axis, peaks, fields)
    return _decide(entry, COVERAGE_REASONS[work.coverage], axis, peaks, fields)


def roof_axes(works: Sequence[Work], peaks: Peaks) -> list[str]:
    """Return the axis of each shape: ratios on different roofs are never averaged."""
    roof = roof_of(works[0], peaks)
    if not roof.rate or not roof.bandwidth:
        return ["memory"] * len(works)
    return ["compute" if item.flops * roof.bandwidth > item.bytes * roof.rate else "memory" for item in works]


def cache_bytes(peaks: Peaks) -> float:
    """Return the size of the last level of cache."""
    return max(peaks.l2_bytes or 0.0, peaks.mall_bytes or 0.0) or LARGEST_CACHE


def is_falsifiable(work: Work, peaks: Peaks, launches: float) -> bool | None:
    """Return whether a faster time could contradict the roof: the roof time exceeds what dispatch alone costs."""
    if peaks.hbm_bw_bytes_s is None:
        return None
    return roof_of(work, peaks).time(work.bytes, work.flops) > launches * peaks.dispatch_floor_s


def _decide(entry: Entry, reason: str | None, axis: str, peaks: Peaks, fields: dict[str, Any]) -> Entry:
    """Return the entry with these fields, and the class, reason and confidence that follow.

    The first reason that applies stands; low confidence is the last one.
    """
    low = entry.stage == "A" or peaks.axis_confidence(axis) == "low"
    if reason is None and low:
        reason = "low_confidence"
    assert reason not in NO_NUMBERS or "attainable_speedup" not in fields
    verdict = (reason is None and fields.get("indicative_class")) or "unknown"
    fields.update(
        headroom_class=verdict,
        unknown_reason=reason,
        confidence="low" if low else {"B": "medium", "C": "high"}[entry.stage],
        rankable=verdict != "unknown",
    )
    return entry._replace(**fields)


def mark_unmodeled(entry: Entry, op: str, op_class: str) -> Entry:
    """Return an entry without a work model (L2); the caller gives the reason in ``degraded`` and in the notes."""
    return entry._replace(op=op, op_class=op_class, modeled=False, headroom_class="unknown", unknown_reason="unmodelled")


def route(entry: Entry) -> str:
    """Return where the work goes: the first row that fits in the table of the specification's section 7."""
    if entry.editable is False:
        return "host_side_track"
    if entry.headroom_class == "unknown" or entry.bound_type == "unknown":
        return "pct_order"
    if entry.pct_gpu_time is not None and entry.pct_gpu_time < HEAD_PCT:
        return "low_priority"
    if entry.headroom_class == "saturated":
        return "algorithmic_track" if entry.bound_type == "compute" else "byte_reduction_track"
    return "occupancy_track" if entry.bound_type == "latency" else "kernel_track"


def ridge(flops_s: float, bytes_s: float) -> float:
    """Return the intensity at which a bandwidth and a compute ceiling meet."""
    return flops_s / bytes_s


def attainable_rate(intensity: float, bytes_s: float | None, flops_s: float | None) -> float | None:
    """Return the attainable rate at an intensity; None where both ceilings are unknown."""
    limits = [intensity * bytes_s] if bytes_s else []
    limits += [flops_s] if flops_s else []
    return min(limits) if limits else None


def roof_axis_at(intensity: float, bytes_s: float | None, flops_s: float | None) -> str | None:
    """Return ``compute`` right of the ridge, else ``memory``, as ``point`` does; None where a ceiling is unknown."""
    if not (bytes_s and flops_s):
        return None
    return "compute" if intensity > ridge(flops_s, bytes_s) else "memory"


def lower_ceiling(intensity: float, rate: float, bytes_s: float | None, ceilings: Iterable[float]) -> float | None:
    """Return the lowest compute ceiling that a kernel stays under although memory would let it pass; None without one.

    Left of a ceiling's ridge the bandwidth alone explains the rate.
    """
    passable = [ceiling for ceiling in ceilings if rate < ceiling and bytes_s and intensity > ridge(ceiling, bytes_s)]
    return min(passable, default=None)
