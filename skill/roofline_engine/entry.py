"""Every field of a result, defined once: name, unit, format and meaning.

The JSON artifact, the Markdown report, ``validate`` and (in the pytest plugin) the terminal, JUnit and the figure read
these definitions; none keeps a second list. The field names of the specification are kept as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

# Closed sets: nothing else may be emitted (``validate`` names whatever is).
OP_CLASSES = ("gemm", "moe", "attn", "elementwise", "unknown")
REGIMES = ("decode", "prefill")
BOUND_TYPES = ("memory", "compute", "latency", "unknown")
ROOF_AXES = ("memory", "compute")
HEADROOM_CLASSES = ("underperforming", "moderate", "saturated", "unknown")
UNKNOWN_REASONS = (  # in the order in which the first that applies is taken
    "not_measured",
    "unmodelled",
    "infeasible",
    "dispatch_bound",
    "cache_resident",
    "unvalidated_peak",
    "no_target",
    "conflicting_models",
    "low_confidence",
)
STAGES = ("A", "B", "C")
CONFIDENCES = ("low", "medium", "high")
MEASUREMENT_BASES = ("model", "mixed", "counters")
ROUTES = (
    "kernel_track",
    "occupancy_track",
    "byte_reduction_track",
    "algorithmic_track",
    "host_side_track",
    "pct_order",
    "low_priority",
)
PEAK_SOURCES = ("table", "derived", "measured", "user")
PEAK_CONFIDENCES = ("high", "low")


@dataclass(frozen=True)
class ByteModel:
    """One candidate for the work of one unit: bytes that must cross the memory roof, and the FLOPs that go with them.

    in_range: whether the candidate counts for the range of the verdict, or is only listed.
    feasible: bytes <= peak bandwidth x time; None where there is no peak or no time.
    """

    model: str
    bytes: float
    flops: float
    in_range: bool = True
    feasible: bool | None = None


def _metric(default: object = None, *, unit: str = "", fmt: str = "", doc: str = "", choices: tuple[str, ...] = ()):  # type: ignore[no-untyped-def]
    """A dataclass field with its one definition: unit, format spec for people, meaning, closed set."""
    meta = {"unit": unit, "fmt": fmt, "doc": doc, "choices": choices}
    if isinstance(default, list):
        return field(default_factory=list, metadata=meta)
    return field(default=default, metadata=meta)


@dataclass(frozen=True)
class Entry:
    """One kernel of the Top-N with what the roofline says of it. ``None`` means not known, never zero."""

    name: str = _metric("", doc="kernel name as the profiler gave it")
    short_name: str = _metric("", doc="name for display")
    pct_gpu_time: float = _metric(0.0, unit="%", fmt=".2f", doc="share of GPU time, copied from the Top-N")
    regime: str = _metric("decode", doc="the regime that carries the launches", choices=REGIMES)
    op_class: str = _metric("unknown", doc="coarse class of the op", choices=OP_CLASSES)
    op: str = _metric("unknown", doc="finer name of the op, the work model used")
    modeled: bool = _metric(False, doc="whether bytes and FLOPs could be modelled")
    stage: str = _metric("A", doc="A: profile and config, B: captured shapes, C: counters", choices=STAGES)
    editable: bool | None = _metric(None, doc="whether the kernel has an editable call site, from the Top-N")
    dtype: str | None = _metric(None, doc="dtype whose compute peak is used")
    weight_dtype: str | None = _metric(None, doc="dtype of the weights or of the KV cache")
    t_ms: float | None = _metric(None, unit="ms", fmt=".4g", doc="time of one launch in this regime")
    launches_per_step: float | None = _metric(None, fmt="g", doc="launches per model step, from the Top-N")
    launches_per_unit: float = _metric(1, fmt="g", doc="launches that make one logical unit")
    t_unit_ms: float | None = _metric(None, unit="ms", fmt=".4g", doc="t_ms x launches_per_unit")
    bytes_est: float | None = _metric(None, unit="B", fmt=".4g", doc="bytes of one unit over the memory roof")
    flops_est: float | None = _metric(None, unit="FLOP", fmt=".4g", doc="FLOPs of one unit")
    byte_models: list[ByteModel] = _metric([], doc="every candidate for the bytes, feasible or not")
    achieved_bw_bytes_s: float | None = _metric(None, unit="B/s", fmt=".4g", doc="bytes_est / t_unit")
    achieved_flops: float | None = _metric(None, unit="FLOP/s", fmt=".4g", doc="flops_est / t_unit")
    hbm_util: float | None = _metric(None, fmt=".3f", doc="achieved bandwidth / peak bandwidth")
    compute_util: float | None = _metric(None, fmt=".4f", doc="achieved FLOP/s / peak FLOP/s of the dtype")
    arithmetic_intensity: float | None = _metric(None, unit="FLOP/B", fmt=".3g", doc="flops_est / bytes_est")
    ridge_point: float | None = _metric(None, unit="FLOP/B", fmt=".4g", doc="peak FLOP/s / peak bandwidth")
    roof_axis: str | None = _metric(None, doc="the roof roofline_pct is taken on", choices=ROOF_AXES)
    bound_type: str = _metric("unknown", doc="what binds; latency: neither roof is near", choices=BOUND_TYPES)
    roofline_pct: float | None = _metric(None, fmt=".3f", doc="achieved / peak on roof_axis, a fraction, shown <= 1")
    roofline_pct_raw: float | None = _metric(None, fmt=".4f", doc="the same, not clamped")
    roofline_pct_range: list[float] | None = _metric(None, fmt=".3f", doc="over the feasible byte models in range")
    target_eff: float | None = _metric(None, fmt=".3g", doc="what a good kernel of this op reaches (a prior)")
    attainable_speedup: float | None = _metric(None, unit="x", fmt=".3f", doc="max(1, target_eff / roofline_pct)")
    attainable_speedup_range: list[float] | None = _metric(None, unit="x", fmt=".3f", doc="over the same range")
    hard_limit_speedup: float | None = _metric(None, unit="x", fmt=".3f", doc="1 / roofline_pct: the roof itself")
    expected_e2e_gain_pct: float | None = _metric(
        None, unit="% of GPU time saved", fmt=".2f", doc="pct_gpu_time x (1 - 1/attainable_speedup)"
    )
    expected_e2e_gain_pct_range: list[float] | None = _metric(
        None, unit="% of GPU time saved", fmt=".2f", doc="over the same range"
    )
    expected_throughput_gain_pct: float | None = _metric(
        None, unit="% throughput", fmt=".2f", doc="x/(1-x) of the time saved x"
    )
    headroom_class: str = _metric("unknown", doc="the verdict, banded against target_eff", choices=HEADROOM_CLASSES)
    indicative_class: str | None = _metric(
        None, doc="the class the ratio would give; for display when headroom_class is unknown", choices=HEADROOM_CLASSES
    )
    unknown_reason: str | None = _metric(None, doc="why headroom_class is unknown", choices=UNKNOWN_REASONS)
    confidence: str = _metric("low", doc="low: display only", choices=CONFIDENCES)
    measurement_basis: str = _metric("model", doc="where bytes and FLOPs come from", choices=MEASUREMENT_BASES)
    rankable: bool = _metric(False, doc="whether the gain may order work")
    suspect: bool = _metric(False, doc="the ratio is impossible: model, peak or time is wrong")
    bytes_upper_bound: float | None = _metric(None, unit="B", fmt=".4g", doc="peak bandwidth x t_unit")
    stage_c_candidate: bool = _metric(False, doc="counters would settle this one")
    falsifiable: bool | None = _metric(None, doc="false: the roof time is under the dispatch floor")
    route: str = _metric("pct_order", doc="where the work goes", choices=ROUTES)
    byte_reduction_levers: list[str] = _metric([], doc="ways to move fewer bytes; only when saturated")
    host_side_levers: list[str] = _metric([], doc="ways that need no kernel edit; only when not editable")
    notes: str = _metric("", doc="the unit, the assumptions, what would sharpen this")


def to_dict(entry: Entry) -> dict[str, object]:
    """The entry as plain builtins, in the order of the definition."""
    out: dict[str, object] = {}
    for item in fields(entry):
        value = getattr(entry, item.name)
        if item.name == "byte_models":
            value = [
                {"model": m.model, "bytes": m.bytes, "flops": m.flops, "in_range": m.in_range, "feasible": m.feasible}
                for m in value
            ]
        out[item.name] = value
    return out


def show(entry: Entry, name: str) -> str:
    """One field for people, by its definition: ``unknown`` for None, its format and unit otherwise."""
    value = getattr(entry, name)
    meta = _META[name]
    if value is None:
        return "unknown"
    if isinstance(value, list):
        return "[" + ", ".join(format(item, meta["fmt"]) for item in value) + "]"
    text = format(value, meta["fmt"]) if meta["fmt"] else str(value)
    unit = meta["unit"]
    return f"{text}{unit}" if unit in ("%", "x") else f"{text} {unit}".rstrip()


_META = {item.name: item.metadata for item in fields(Entry)}
CLOSED_SETS = {name: meta["choices"] for name, meta in _META.items() if meta["choices"]}
