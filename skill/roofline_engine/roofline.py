"""The verdict: where one unit of work stands against the roofs, and what that leaves to win.

All arithmetic of the model is here. Formulas, bands and the order of the no-verdict rules are the specification's
sections 3 and 6; the range over byte models, the cap by the dispatch floor and the reasons are this project's.

Intensities are in FLOP/byte, rates in FLOP/s, bandwidths in bytes/s. On log-log axes a bandwidth is a straight line of slope
one and a compute ceiling a flat one (Williams, Waterman and Patterson, CACM 52(4), 2009), so two points draw a limit exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from .fields import Entry
from .peaks import DISPATCH_FLOOR_S, Peaks
from .work import TARGET_EFF, Work

# One definition of each constant; SKILL.md's table is held to these by a test.
#: Both utilisations under this: neither roof is near, so latency or occupancy binds (specification 3.5).
LATENCY_THRESHOLD = 0.60
#: Bands against target_eff, not against the roof: what is left is the distance to what a good kernel reaches (3.6).
SATURATED_BAND = 0.9
MODERATE_BAND = 0.6
#: A ratio under this is as impossible as one over 1: the model, the peak or the time is off by orders (6, L3).
SUSPECT_LOW = 0.001
#: Below this share Amdahl's law caps the gain under the noise, whatever the roofline says (3.0).
HEAD_PCT = 5.0
HEAD_MAX = 8
#: Identical reruns of one isolated kernel differ by this much; serving runs by much less (8.3).
ISOLATED_NOISE = 0.034
SERVING_NOISE = 0.005
#: Plain streaming reaches about this part of the pin rate (8.2); a memory roofline_pct above it deserves counters.
STREAMING_FRACTION = 0.85
#: The largest last-level cache in peaks.md (MI300X's MALL), for a device whose own are not known.
LARGEST_CACHE = 268435456
#: A warm working set of up to this many caches is partly served by them: 1.29x too fast at 1.33 of an RTX 5090's L2, 1.06x
#: at 1.01 of a GB200's and right at 2.02 (NVIDIA/TileGym#82, #118).
CACHE_REACH = 2.0

#: With these there is nothing to multiply: attainable_speedup and the gains are null.
NO_NUMBERS = ("not_measured", "unmodelled", "infeasible", "dispatch_bound", "unvalidated_peak", "no_target")


class Point(NamedTuple):
    """One amount of work over one time against two roofs; None where a peak is not known."""

    achieved_bw_bytes_s: float
    achieved_flops: float
    arithmetic_intensity: float | None
    hbm_util: float | None
    compute_util: float | None
    ridge_point: float | None
    roof_axis: str | None
    raw: float | None


def point(
    nbytes: float, flops: float, t_s: float, peak_bw: float | None, peak_flops: float | None, *, streaming: bool = False
) -> Point:
    """Place bytes, FLOPs and a time (seconds) under the roofs (bytes/s, FLOP/s).

    The roof walked toward is compute when the intensity is over the ridge point, else memory; a point on the ridge is
    memory. Without a compute peak only work that is memory-bound by its nature (``streaming``, or no FLOPs) has an axis;
    but a rate over the one peak that is known is impossible whatever the other is, so its axis is that one.

    Raises:
        ValueError: when ``t_s`` is not positive.
    """
    if not t_s > 0:
        raise ValueError(f"time is {t_s!r} s, expected more than 0")
    bandwidth, rate = nbytes / t_s, flops / t_s
    if not (math.isfinite(bandwidth) and math.isfinite(rate)):
        raise ValueError(f"{nbytes:.4g} bytes and {flops:.4g} FLOPs in {t_s!r} s are no finite rates")
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
    axis, rate = peaks.compute_axis(work.engine, work.dtype.peak)
    return Roof(peaks.hbm_bw_bytes_s, rate, axis, streaming=work.engine == "vector")


def headroom(roofline_pct: float, target_eff: float) -> str:
    """The class of a ratio (a fraction) against what a good kernel of the op reaches."""
    if roofline_pct >= SATURATED_BAND * target_eff:
        return "saturated"
    if roofline_pct >= MODERATE_BAND * target_eff:
        return "moderate"
    return "underperforming"


def attainable_speedup(roofline_pct: float, target_eff: float, t_launch_s: float, floor_s: float = DISPATCH_FLOOR_S) -> float:
    """max(1, target/pct), capped at what the dispatch floor leaves of one launch."""
    cap = max(1.0, t_launch_s / floor_s)
    return min(max(1.0, target_eff / roofline_pct), cap)


def time_saved_pct(pct_gpu_time: float, speedup: float) -> float:
    """Amdahl: percent of the GPU time saved when a kernel of this share gets this much faster."""
    return pct_gpu_time * (1.0 - 1.0 / speedup)


def throughput_gain_pct(saved_pct: float) -> float | None:
    """Time saved as throughput: x/(1-x). None when nothing would be left of the time."""
    return 100.0 * saved_pct / (100.0 - saved_pct) if saved_pct < 100.0 else None


def bound(p: Point) -> str:
    """What binds. A small intensity alone does not make a kernel memory-bound: a roof has to be near."""
    if p.hbm_util is None or p.roof_axis is None:
        return "unknown"
    if p.compute_util is None:
        if p.hbm_util >= LATENCY_THRESHOLD:
            return p.roof_axis
        return "latency" if p.roof_axis == "memory" else "unknown"  # such work streams: its FLOPs are no roof
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
) -> Entry:
    """Fill in every metric of ``entry``, whose identity, times and stage are set, from its work and the peaks.

    conflict: the caller folded cases that stand on different roofs, so no single ratio speaks for them.
    warm: an isolated timing without a known flush, whose operands may have stayed in a cache between its launches; a
    serving run is cold.
    target_eff: what a good kernel of this op reaches here, in place of the prior. lowest: a ratio under it is no kernel's; an
    isolated timing has none, since a loop on one of many cores may well be that slow.
    """
    roof = roof_of(work, peaks)
    nbytes, flops = work.bytes, work.flops
    found: dict[str, Any] = {  # all set at once at the end, since an entry is copied for each change
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
        "target_eff": TARGET_EFF.get(work.op) if target_eff is None else target_eff,
    }
    if entry.t_ms is None or entry.t_unit_ms is None:
        return _decided(entry, "not_measured", "memory", peaks, found)
    t_launch, t_unit = entry.t_ms / 1e3, entry.t_unit_ms / 1e3
    placed = [(model, roof.place(model.bytes, model.flops, t_unit)) for model in work.candidates]
    p = placed[0][1]
    found.update(
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
    if peaks.targets and target_eff is None:
        observed = peaks.target(work.op, p.roof_axis, work.dtype.name)
        if observed:
            found["target_eff"] = observed.target_eff
    axis = roof.axis if p.roof_axis == "compute" else "memory"
    if p.raw is None:
        return _decided(entry, "unvalidated_peak", axis, peaks, found)
    if p.raw > 1.0 or p.raw < lowest or nbytes <= 0:
        # The ratio is no evidence about the kernel, so neither is what it says of the bound.
        found.update(bound_type="unknown", suspect=True, stage_c_candidate=True)
        return _decided(entry, "infeasible", axis, peaks, found)
    if t_launch <= peaks.dispatch_floor_s:
        found["bound_type"] = "latency"
        return _decided(entry, "dispatch_bound", axis, peaks, found)
    resident = "cache_resident" if warm and axis == "memory" and nbytes <= CACHE_REACH * cache_bytes(peaks) else None
    if axis in peaks.unvalidated:
        return _decided(entry, resident or "unvalidated_peak", axis, peaks, found)
    target = found["target_eff"]
    if target is None:
        return _decided(entry, resident or "no_target", axis, peaks, found)

    points = [q for model, q in placed if model.in_range and q.raw is not None and lowest <= q.raw <= 1.0]
    ratios = [q.raw for q in points if q.raw is not None]
    low, high = min(ratios), max(ratios)
    speedups = [attainable_speedup(pct, target, t_launch, peaks.dispatch_floor_s) for pct in (p.raw, high, low)]
    share = entry.pct_gpu_time  # a unit test has none, so no gain end to end
    gains = [] if share is None else [time_saved_pct(share, speedup) for speedup in speedups]
    one_axis = all(q.roof_axis == p.roof_axis for q in points)
    conflict = conflict or not one_axis or headroom(low, target) != headroom(high, target)
    reason = resident or ("conflicting_models" if conflict else None)
    found.update(
        stage_c_candidate=reason is not None,
        roofline_pct_range=(low, high),
        attainable_speedup=speedups[0],
        attainable_speedup_range=(speedups[1], speedups[2]),
        hard_limit_speedup=1.0 / p.raw,
        expected_e2e_gain_pct=gains[0] if gains else None,
        expected_e2e_gain_pct_range=(gains[1], gains[2]) if gains else None,
        expected_throughput_gain_pct=throughput_gain_pct(gains[0]) if gains else None,
        indicative_class=headroom(p.raw, target),
    )
    return _decided(entry, reason, axis, peaks, found)


def roof_axes(works: Sequence[Work], peaks: Peaks) -> list[str]:
    """The roof each shape walks toward: ratios on different roofs are never averaged."""
    roof = roof_of(works[0], peaks)
    if not roof.rate or not roof.bandwidth:
        return ["memory"] * len(works)
    return ["compute" if item.flops * roof.bandwidth > item.bytes * roof.rate else "memory" for item in works]


def cache_bytes(peaks: Peaks) -> float:
    """What the last level of cache holds."""
    return max(peaks.l2_bytes or 0.0, peaks.mall_bytes or 0.0) or LARGEST_CACHE


def is_falsifiable(work: Work, peaks: Peaks, launches: float) -> bool | None:
    """Return whether a faster time could contradict the roof: the roof time exceeds what dispatch alone costs."""
    if peaks.hbm_bw_bytes_s is None:
        return None
    return roof_of(work, peaks).time(work.bytes, work.flops) > launches * peaks.dispatch_floor_s


def _decided(entry: Entry, reason: str | None, axis: str, peaks: Peaks, found: dict[str, Any]) -> Entry:
    """The entry with the fields ``found``, and the class, reason and confidence that follow.

    The first reason that applies stands, low confidence is the last of them.
    """
    low = entry.stage == "A" or peaks.axis_confidence(axis) == "low"
    if reason is None and low:
        reason = "low_confidence"
    assert reason not in NO_NUMBERS or "attainable_speedup" not in found
    verdict = (reason is None and found.get("indicative_class")) or "unknown"
    found.update(
        headroom_class=verdict,
        unknown_reason=reason,
        confidence="low" if low else {"B": "medium", "C": "high"}[entry.stage],
        rankable=verdict != "unknown",
    )
    return entry._replace(**found)


def mark_unmodeled(entry: Entry, op: str, op_class: str) -> Entry:
    """L2: this entry alone has no model; the caller says why in ``degraded`` and in the notes."""
    return entry._replace(op=op, op_class=op_class, modeled=False, headroom_class="unknown", unknown_reason="unmodelled")


def route(entry: Entry) -> str:
    """Where the work goes: the specification's section 7 table, first row that fits. It orders, it never prunes."""
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
    """The intensity at which a bandwidth and a compute ceiling meet."""
    return flops_s / bytes_s


def attainable_rate(intensity: float, bytes_s: float | None, flops_s: float | None) -> float | None:
    """The rate of the limit that binds at an intensity; None where neither is known."""
    limits = [intensity * bytes_s] if bytes_s else []
    limits += [flops_s] if flops_s else []
    return min(limits) if limits else None


def roof_axis_at(intensity: float, bytes_s: float | None, flops_s: float | None) -> str | None:
    """``compute`` right of the ridge, else ``memory`` as in ``point``; None where a limit is not known."""
    if not (bytes_s and flops_s):
        return None
    return "compute" if intensity > ridge(flops_s, bytes_s) else "memory"


def lower_ceiling(intensity: float, rate: float, bytes_s: float | None, ceilings: Iterable[float]) -> float | None:
    """The lowest compute ceiling that a kernel stays under although memory would let it pass.

    None where there is none: left of a ceiling's ridge the bandwidth alone explains the rate, so nothing follows.
    """
    over = [one for one in ceilings if rate < one and bytes_s and intensity > ridge(one, bytes_s)]
    return min(over) if over else None
