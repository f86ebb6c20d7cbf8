"""Every field of a result: its type in ``Entry``, its meaning, unit, format and closed set in ``FIELDS``.

The JSON artifact, the Markdown report, ``validate`` and, in the pytest plugin, the terminal, JUnit and the figure read these
definitions. The field names are those of the specification.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

#: The version of the artifact's format, from the specification; it changes with the format, not with the package.
ARTIFACT_VERSION = "1"

# Closed sets: no other value may be emitted; ``validate`` reports one.
OP_CLASSES = ("gemm", "moe", "attn", "elementwise", "unknown")
REGIMES = ("decode", "prefill", "unknown")
BOUND_TYPES = ("memory", "compute", "latency", "unknown")
ROOF_AXES = ("memory", "compute")
HEADROOM_CLASSES = ("underperforming", "moderate", "saturated", "unknown")
UNKNOWN_REASONS = (  # the first that applies
    "not_measured",
    "unmodelled",
    "infeasible",
    "dispatch_bound",
    "data_dependent",
    "partly_seen",
    "args_only",
    "cache_resident",
    "unvalidated_peak",
    "no_target",
    "conflicting_models",
    "noisy",
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
TARGET_BASES = ("prior", "sustained", "measured", "observed", "given")
PEAK_SOURCES = ("table", "derived", "measured", "user")
PEAK_CONFIDENCES = ("high", "low")

#: What a note is about. Decide on a code, never on a text; anyone may add a code.
NOTE_CODES = {
    "basis": "what a figure rests on: a source or an assumption (the code of most notes)",
    "unit": "the logical unit of work that the figures are for",
    "remark": "what a reader should know before believing the figure",
    "sharpen": "what would make the figure more certain",
    "problem": "an input that could not be used",
    "no_work_model": "bytes and FLOPs are unknown",
    "model_error": "the engine failed while modeling this kernel",
    "no_device": "the device is unknown",
    "unknown_device": "the device that is named has no known peaks",
    "left_to_cache": "activations are left out of the bytes: a cache may hold them",
    "idle": "a benchmark took no time: benchmarks are disabled",
    "untimed": "a call was not timed, and why",
    "shared_workers": "measured while other workers of pytest-xdist ran",
    "no_device_sync": "device work on a host clock without a wait for the device",
    "no_overhead": "the wall time cannot be right, so launch overhead is unknown",
    "wrong_output": "the output failed its own check",
    "interpreted": "a kernel ran in an interpreter: the time is not the time of a kernel",
    "partly_seen": "a part of the captured call ran where nothing records it",
    "meta_device": "tensors on the meta device: nothing was computed",
    "prediction": "which prediction was used",
    "prediction_unused": "a prediction was found and not used, and why",
    "data_dependent": "how much is read depends on the data: the bytes are the most",
    "untouched_pages": "pages of operands were never written: the system reads one page of zeros in their place",
    "claim": "a printed rate differs from the rate that shape and time give",
}


class Note(NamedTuple):
    """A remark on a result: a code for programs, a sentence for people.

    Inside the program ``notes`` is a tuple of ``Note``. In JSON the field ``notes`` is ``join_notes(notes)`` and its
    sibling ``note_codes`` lists one code for each "; "-separated part of that text; ``read_notes`` is the way back.
    """

    code: str  # a key of NOTE_CODES
    text: str  # one sentence, no final period


def note(text: str, code: str = "basis") -> Note:
    """Build a note.

    Raises:
        ValueError: for a code that NOTE_CODES lacks.
    """
    if code not in NOTE_CODES:
        raise ValueError(f"note code {code!r} is unknown. Use one of {', '.join(NOTE_CODES)}, or add it to NOTE_CODES")
    return Note(code, text)


def tidy_notes(notes: Iterable[Note]) -> tuple[Note, ...]:
    """Return the notes one sentence each, without empty and repeated texts: what an ``Entry`` holds."""
    codes: dict[str, str] = {}
    for item in notes:
        for part in filter(None, item.text.split("; ")):
            codes.setdefault(part, item.code)
    return tuple(Note(code, part) for part, code in codes.items())


def join_notes(notes: Iterable[Note]) -> str:
    """Return the texts as the JSON field ``notes`` has them, joined by "; "."""
    return "; ".join(item.text for item in notes)


def read_notes(text: str, codes: Sequence[str] = ()) -> tuple[Note, ...]:
    """Return the notes of the JSON fields ``notes`` and ``note_codes``; a part without a code gets ``basis``."""
    parts = text.split("; ") if text else []
    return tuple(Note(codes[at] if at < len(codes) else "basis", part) for at, part in enumerate(parts))


def first_text(notes: Sequence[Note]) -> str:
    """Return the text of the first note: of an entry without a model, the reason."""
    return notes[0].text if notes else ""


def has_note(notes: Iterable[Note], *codes: str) -> bool:
    """Return whether one of the notes has one of these codes."""
    return any(item.code in codes for item in notes)


#: The levels of degradation: how a run goes on with less. The artifact has the code, text for people the words too.
LEVELS = {
    "L0": "switched off",
    "L1": "device or peaks unknown",
    "L2": "not modeled",
    "L3": "impossible",
    "L4": "counters not used",
    "L5": "problem",
}


class Degradation(NamedTuple):
    """What a run could not do."""

    level: str  # a key of LEVELS
    text: str
    name: str = ""  # the kernel or file it is about

    def __str__(self) -> str:
        return f"{self.level}: {self.text}"

    def show(self) -> str:
        """Return the text for people, with the level in words."""
        return f"{LEVELS[self.level]} ({self.level}): {self.text}"


class ByteModel(NamedTuple):
    """One candidate for the work of one unit."""

    model: str
    bytes: float  # between memory and the device
    flops: float
    in_range: bool = True  # whether it counts for the range of the verdict, or is only listed
    feasible: bool | None = None  # bytes <= peak bandwidth x time; None without a peak or a time


class Entry(NamedTuple):
    """One kernel of the Top-N with its roofline; FIELDS has the meaning of each field. None means unknown, never zero."""

    name: str = ""
    short_name: str = ""
    pct_gpu_time: float | None = None
    regime: str = "decode"
    op_class: str = "unknown"
    op: str = "unknown"
    modeled: bool = False
    stage: str = "A"
    editable: bool | None = None
    dtype: str | None = None
    weight_dtype: str | None = None
    t_ms: float | None = None
    launches_per_step: float | None = None
    launches_per_unit: float = 1
    t_unit_ms: float | None = None
    bytes_est: float | None = None
    flops_est: float | None = None
    byte_models: tuple[ByteModel, ...] = ()
    l1_traffic: float | None = None
    l2_traffic: float | None = None
    achieved_bw_bytes_s: float | None = None
    achieved_flops: float | None = None
    hbm_util: float | None = None
    compute_util: float | None = None
    arithmetic_intensity: float | None = None
    ridge_point: float | None = None
    roof_axis: str | None = None
    roof_level: str | None = None
    bound_type: str = "unknown"
    roofline_pct: float | None = None
    roofline_pct_raw: float | None = None
    roofline_pct_range: tuple[float, float] | None = None
    target_eff: float | None = None
    target_basis: str | None = None
    attainable_speedup: float | None = None
    attainable_speedup_range: tuple[float, float] | None = None
    hard_limit_speedup: float | None = None
    expected_e2e_gain_pct: float | None = None
    expected_e2e_gain_pct_range: tuple[float, float] | None = None
    expected_throughput_gain_pct: float | None = None
    headroom_class: str = "unknown"
    indicative_class: str | None = None
    unknown_reason: str | None = None
    confidence: str = "low"
    measurement_basis: str = "model"
    rankable: bool = False
    suspect: bool = False
    bytes_upper_bound: float | None = None
    stage_c_candidate: bool = False
    falsifiable: bool | None = None
    route: str = "pct_order"
    byte_reduction_levers: tuple[str, ...] = ()
    host_side_levers: tuple[str, ...] = ()
    framework_op: str | None = None
    shape: str | None = None
    calls: float | None = None
    notes: tuple[Note, ...] = ()


class Field(NamedTuple):
    """The definition of one field."""

    doc: str  # its meaning
    unit: str = ""
    fmt: str = ""  # the format for people
    choices: tuple[str, ...] = ()  # its closed set


FIELDS: dict[str, Field] = {
    "name": Field("kernel name as the profiler gave it"),
    "short_name": Field("name for display"),
    "pct_gpu_time": Field("share of GPU time, copied from the Top-N; null for a unit test", unit="%", fmt=".2f"),
    "regime": Field("the regime that carries the launches", choices=REGIMES),
    "op_class": Field("coarse class of the op", choices=OP_CLASSES),
    "op": Field("finer name of the op, the work model used"),
    "modeled": Field("whether bytes and FLOPs are known"),
    "stage": Field("A: profile and config, B: captured shapes, C: counters", choices=STAGES),
    "editable": Field("whether the kernel has an editable call site, from the Top-N"),
    "dtype": Field("dtype whose compute peak is used"),
    "weight_dtype": Field("dtype of the weights or of the KV cache"),
    "t_ms": Field("time of one launch in this regime", unit="ms", fmt=".4g"),
    "launches_per_step": Field("launches per model step, from the Top-N", fmt="g"),
    "launches_per_unit": Field("launches that make one logical unit", fmt="g"),
    "t_unit_ms": Field("t_ms x launches_per_unit", unit="ms", fmt=".4g"),
    "bytes_est": Field("bytes of one unit over the memory roof", unit="B", fmt=".4g"),
    "flops_est": Field("FLOPs of one unit", unit="FLOP", fmt=".4g"),
    "byte_models": Field("every candidate for the bytes, feasible or not"),
    "l1_traffic": Field("counted bytes of one unit through the L1 caches; no upper bounds", unit="B", fmt=".4g"),
    "l2_traffic": Field("counted bytes of one unit through the L2", unit="B", fmt=".4g"),
    "achieved_bw_bytes_s": Field("bytes_est / t_unit", unit="B/s", fmt=".4g"),
    "achieved_flops": Field("flops_est / t_unit", unit="FLOP/s", fmt=".4g"),
    "hbm_util": Field("achieved bandwidth / peak bandwidth", fmt=".3f"),
    "compute_util": Field("achieved FLOP/s / peak FLOP/s of the dtype", fmt=".4f"),
    "arithmetic_intensity": Field("flops_est / bytes_est", unit="FLOP/B", fmt=".3g"),
    "ridge_point": Field("peak FLOP/s / peak bandwidth", unit="FLOP/B", fmt=".4g"),
    "roof_axis": Field("the roof roofline_pct is taken on", choices=ROOF_AXES),
    "roof_level": Field("the level of cache whose measured bandwidth is the memory roof of this row; null: memory itself"),
    "bound_type": Field("the limiter; latency: neither roof is near", choices=BOUND_TYPES),
    "roofline_pct": Field("achieved / peak on roof_axis, a fraction, shown <= 1", fmt=".3f"),
    "roofline_pct_raw": Field("the same, not clamped", fmt=".4f"),
    "roofline_pct_range": Field("over the feasible byte models in range, and from the median to the best round", fmt=".3f"),
    "target_eff": Field("what a good kernel of this op reaches, a fraction of the roof", fmt=".3g"),
    "target_basis": Field("what sets target_eff: the prior of the op, or a known limit under it", choices=TARGET_BASES),
    "attainable_speedup": Field("max(1, target_eff / roofline_pct)", unit="x", fmt=".3f"),
    "attainable_speedup_range": Field("over the same range", unit="x", fmt=".3f"),
    "hard_limit_speedup": Field("1 / roofline_pct: the roof itself", unit="x", fmt=".3f"),
    "expected_e2e_gain_pct": Field("pct_gpu_time x (1 - 1/attainable_speedup)", unit="% of GPU time saved", fmt=".2f"),
    "expected_e2e_gain_pct_range": Field("over the same range", unit="% of GPU time saved", fmt=".2f"),
    "expected_throughput_gain_pct": Field("x/(1-x) of the time saved x", unit="% throughput", fmt=".2f"),
    "headroom_class": Field("the verdict, banded against target_eff", choices=HEADROOM_CLASSES),
    "indicative_class": Field("the class the ratio would give, for display", choices=HEADROOM_CLASSES),
    "unknown_reason": Field("why headroom_class is unknown", choices=UNKNOWN_REASONS),
    "confidence": Field("low: display only", choices=CONFIDENCES),
    "measurement_basis": Field("where bytes and FLOPs come from", choices=MEASUREMENT_BASES),
    "rankable": Field("whether the gain may order work"),
    "suspect": Field("the ratio is over 1 or far too low: model, peak or time may be wrong"),
    "bytes_upper_bound": Field("peak bandwidth x t_unit", unit="B", fmt=".4g"),
    "stage_c_candidate": Field("counters would settle this one"),
    "falsifiable": Field("false: the roof time is under the dispatch floor"),
    "route": Field("which kind of work to do", choices=ROUTES),
    "byte_reduction_levers": Field("ways to move fewer bytes; only when saturated"),
    "host_side_levers": Field("ways that need no kernel edit; only when not editable"),
    "framework_op": Field("the framework's operation that launched it, from a trace"),
    "shape": Field("the inputs of that operation, shapes and dtypes"),
    "calls": Field("how often it ran", fmt="g"),
    "notes": Field("the unit, the assumptions, what would sharpen this"),
    "note_codes": Field('one code for each part of notes, as separated by "; "'),
}


def _json_type(annotation: object) -> str:
    spelling = str(getattr(annotation, "__forward_arg__", annotation)).partition(" ")[0].partition("[")[0]
    return {"str": "text", "bool": "flag", "tuple": "list"}.get(spelling, "number")


#: What each field is in JSON: text, number, flag (true or false) or list.
JSON_TYPES = {name: _json_type(annotation) for name, annotation in Entry.__annotations__.items()}
JSON_TYPES.update(notes="text", note_codes="list")


def to_dict(entry: Entry) -> dict[str, object]:
    """Return the entry as plain builtins, in the order of ``FIELDS``."""
    out: dict[str, object] = {
        name: list(value) if isinstance(value, tuple) else value for name, value in zip(entry._fields, entry)
    }
    out["byte_models"] = [model._asdict() for model in entry.byte_models]
    out["notes"], out["note_codes"] = join_notes(entry.notes), [item.code for item in entry.notes]
    return out


def show(entry: Entry, name: str) -> str:
    """Return one field for people: ``unknown`` for None, else the value in its format and unit."""
    value = getattr(entry, name)
    if value is None:
        return "unknown"
    field = FIELDS[name]
    text = format(value, field.fmt) if field.fmt else str(value)
    return f"{text}{field.unit}" if field.unit in ("%", "x") else f"{text} {field.unit}".rstrip()


CLOSED_SETS = {name: field.choices for name, field in FIELDS.items() if field.choices}
