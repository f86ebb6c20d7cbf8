"""What to do about a verdict: levers by name, and remarks on how far to trust it.

Every lever keeps the measurement contract: isl, osl and concurrency are the user's, no speculative decoding, and a lossy
one counts only behind the accuracy gate (specification section 7.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .check import is_beyond, limit_of_entry
from .fields import Entry, Note, note
from .inputs import Row
from .kernels import classify
from .peaks import Peaks
from .roofline import ISOLATED_NOISE, SERVING_NOISE, STREAMING_FRACTION, cache_bytes
from .units import parse_dtype, printable, quantity
from .work import TARGET_EFF

_NEIGHBORS = ("rmsnorm", "layernorm", "quantize", "elementwise", "copy", "rope", "moe_helper", "softmax")
_NAMED = 3
_LOSSY = "lossy, must pass the accuracy gate"

#: What each route means, in the words of the report.
ROUTES = {
    "kernel_track": "kernel work: micro-optimize toward the roof",
    "occupancy_track": "kernel work: occupancy, shorter dependency chains, split-K or fusion; not fewer bytes",
    "byte_reduction_track": "move fewer bytes for the same work; tuning has little left",
    "algorithmic_track": "another algorithm or a faster dtype; tuning has little left",
    "host_side_track": "not editable: host-side levers only",
    "pct_order": "no verdict: fall back to the order by GPU time",
    "low_priority": "small share: ordinary Amdahl",
}


def find_neighbors(rows: Iterable[Row]) -> list[Row]:
    """Return the rows that are small prologues or epilogues of other kernels, the largest few first."""
    small = (row for row in rows if classify(row.name, row.classification).op in _NEIGHBORS)
    return sorted(small, key=lambda row: -row.pct)[: _NAMED + 1]


def attach(entry: Entry, neighbors: Callable[[], list[Row]], backends: Iterable[str]) -> Entry:
    """Add the levers that the verdict calls for. ``neighbors`` returns those of ``find_neighbors``."""
    if entry.editable is False:  # no kernel edit can be integrated, so none is offered
        return entry._replace(host_side_levers=tuple(host_side_levers(entry, backends)))
    if entry.headroom_class == "saturated" and entry.bound_type != "compute":
        entry = entry._replace(byte_reduction_levers=tuple(byte_reduction_levers(entry, neighbors())))
    return entry


def byte_reduction_levers(entry: Entry, neighbors: Iterable[Row]) -> list[str]:
    """Ways to move fewer bytes for the same work, the concrete ones first."""
    levers = []
    others = [f"{printable(row.short_name)} ({row.pct:.2f} %)" for row in neighbors if row.name != entry.name][:_NAMED]
    named = f": in this profile {', '.join(others)}" if others else ""
    levers.append(f"fuse an adjacent prologue or epilogue away, its round trip and its own time are saved{named}")
    if entry.op == "moe":
        models = {model.model: model for model in entry.byte_models}
        every, routed = models.get("all_experts"), models.get("experts_routed") or models.get("experts_hit")
        if every is not None and routed is not None and every.bytes > routed.bytes:
            waste = quantity(every.bytes - routed.bytes, "B")
            ruled_out = " (this time rules out all of it; look for part of it)" if every.feasible is False else ""
            levers.append(
                f"stop reading what is not used: streaming every expert is {waste} a unit over the routed ones{ruled_out}"
            )
        levers.append("layout and packing: no padded expert tiles, keep the intermediate of the two stages in L2")
    elif entry.op == "attn_decode":
        levers.append("layout and packing: pages laid out so that a block of K and V is one contiguous read")
    else:
        levers.append("layout and packing: drop padding, coalesce, reuse L2 between neighboring launches")
    if entry.weight_dtype and entry.op in ("gemm", "moe", "attn_decode"):
        width = parse_dtype(entry.weight_dtype).value_bits
        what = "KV cache" if entry.op == "attn_decode" else "weights"
        if width > 8:
            levers.append(f"{what} in fp8 instead of {entry.weight_dtype}: {_LOSSY}")
        elif width > 4 and what == "weights":
            levers.append(f"{what} in fp4 instead of {entry.weight_dtype}: {_LOSSY}")
    return levers


def host_side_levers(entry: Entry, backends: Iterable[str]) -> list[str]:
    """What can be done to a kernel that cannot be edited."""
    database = {"moe": "tuned_fmoe", "gemm": "AITER_CONFIG_GEMM_*"}.get(entry.op_class, "AITER_CONFIG_*")
    names = ", ".join(map(printable, backends))
    return [
        "dispatch or path selection: another kernel of the same library for this shape",
        f"the tuning database ({database}): tune this shape",
        "a backend swap" + (f" (available: {names})" if names else ""),
        "graph capture, where launch gaps are part of the time",
    ]


def _target_remarks(entry: Entry, peaks: Peaks) -> list[str]:
    """Say what sets the target where the prior of the op does not."""
    prior, target = TARGET_EFF.get(entry.op), entry.target_eff
    if target is None or entry.target_basis in (None, "prior"):
        return []
    if entry.target_basis in ("sustained", "measured"):
        ceiling = {
            "sustained": f"the most that large GEMMs are known to sustain on {peaks.product or peaks.gfx} (peaks.md)",
            "measured": "the measured ceiling of this axis",
        }[entry.target_basis]
        return [f"target {target:.3g}: {ceiling}, under the prior {prior:g} of {entry.op}"]
    what = f"the prior {prior:g}" if prior is not None else "none"
    return [f"target {target:g} as observed or given, in place of {what}"] if target != prior else []


def _infeasible(entry: Entry, peaks: Peaks) -> str:
    """Return what a ratio over the rated roof, or far under it, means; the line is that of ``check``."""
    raw = entry.roofline_pct_raw or 0.0
    limit = limit_of_entry(entry, peaks)
    if raw > 1.0 and limit is not None and not is_beyond(raw, limit.factor):
        return f"{raw:.4g} of the rated roof: possible with {limit.basis}, so no class"
    text = f"{raw:.4g} of the roof is impossible (L3): the model, the peak or the time is wrong"
    return f"{text}; at most {quantity(entry.bytes_upper_bound or 0, 'B')} fit that time"


def remarks(entry: Entry, peaks: Peaks) -> list[Note]:
    """What a reader should know before believing the figure, and what would sharpen it."""
    texts: list[str] = []
    reason = entry.unknown_reason
    if reason == "infeasible":
        texts.append(_infeasible(entry, peaks))
    elif reason == "dispatch_bound":
        floor_us = peaks.dispatch_floor_s * 1e6
        texts.append(f"one launch is within the dispatch floor of {floor_us:.3g} us: fuse it or capture a graph")
    elif reason == "cache_resident":
        moved, cache = quantity(entry.bytes_est or 0, "B"), quantity(cache_bytes(peaks), "B")
        texts.append(f"launches repeated over {moved} can be served in part out of {cache} of cache: flush it between them")
    elif reason == "data_dependent":
        texts.append("what it reads depends on its data, and the least and the most give no one class: counters would decide")
    elif reason == "partly_seen":
        texts.append("only a part of its work is known: a time can contradict the part, a percent needs the whole")
    elif reason == "args_only":
        texts.append("the bytes are those of its arguments and results, each once: for display, declare its work for a class")
    elif reason == "unvalidated_peak" and entry.roofline_pct_raw is None:
        missing = "bandwidth" if peaks.hbm_bw_bytes_s is None else f"{entry.dtype} compute"
        texts.append(f"no {missing} peak for this device, so the ratio is unknown")
    elif reason == "unvalidated_peak":
        texts.append("the peak breaks a rule: " + "; ".join(peaks.unvalidated.values()))
    elif reason == "no_target":
        texts.append(f"no target for {entry.op}: what a good kernel reaches is not known")
    elif reason == "conflicting_models":
        texts.append("no one class holds over the byte models, shapes and units that are possible: counters would decide")
    elif reason == "noisy":
        low, best = entry.roofline_pct_range or (0.0, 0.0)
        texts.append(
            f"the class differs between this time and the fastest one of its spread ({low:.1%} to {best:.1%} of the roof)"
        )
    if entry.bytes_est is not None and not entry.falsifiable and entry.falsifiable is not None and reason is None:
        texts.append("the roof time is under the dispatch floor: a faster time could not contradict it")
    texts += _target_remarks(entry, peaks)
    cap = entry.t_ms / 1e3 / peaks.dispatch_floor_s if entry.t_ms else None
    if entry.attainable_speedup is not None and cap and abs(entry.attainable_speedup - cap) < 1e-9 * cap:
        texts.append(f"attainable capped at {cap:.2f}x: no launch beats the dispatch floor")
    if (
        entry.roof_axis == "memory"
        and entry.roofline_pct
        and entry.roofline_pct > STREAMING_FRACTION
        and not entry.suspect
        and entry.stage != "C"
    ):
        texts.append(f"above the {STREAMING_FRACTION:g} of the pin rate that plain streaming reaches: worth counters")
    if entry.rankable and entry.expected_e2e_gain_pct is not None and entry.attainable_speedup:
        if entry.attainable_speedup <= 1 + ISOLATED_NOISE:
            texts.append(f"the speedup left is inside the {ISOLATED_NOISE:.1%} noise of isolated reruns")
        elif entry.expected_e2e_gain_pct <= 100 * SERVING_NOISE:
            texts.append(f"the gain is inside the {SERVING_NOISE:.1%} noise of serving runs")
    if entry.confidence == "low" and entry.stage != "A" and (peaks.confidence == "low" or peaks.low_axes):
        texts.append("low confidence: the peak of this axis is not certain")
    notes = [note(line, "remark") for line in texts]
    if entry.stage == "A":
        notes.append(note("to sharpen: capture the kernel's shapes and dtypes (shapes.json) and run again", "sharpen"))
    elif entry.stage == "B":
        notes.append(note("to sharpen: counters of the isolated op", "sharpen"))
    return notes
