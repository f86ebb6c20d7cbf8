"""The work of one op: the bytes and FLOPs that a kernel must move and compute, whatever its implementation.

Bytes are compulsory traffic of the memory roof: each operand once. FLOPs count a multiply-add as two. The work models are in
``ops``; this module has what they share: the type of their result, the check of their parameters, and several shapes as one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from .fields import ByteModel, Note, note
from .units import Dtype, parse_dtype, whole

#: How close a well-written kernel of an op comes to its roof: priors, set by how regular the access is.
#: gemm, moe, attn_decode and the streaming band 0.85-0.90 (its middle) are the specification's section 7; attn_prefill
#: (FlashAttention-3 reports up to 0.75 of the H100 fp16 peak, arXiv:2407.08608) and conv are weak priors. Other ops have no
#: target.
TARGET_EFF = {
    "gemm": 0.90,
    "moe": 0.90,
    "attn_decode": 0.50,
    "attn_prefill": 0.75,
    "conv1d": 0.80,
    "conv2d": 0.80,
    "conv3d": 0.80,
    "elementwise": 0.875,
    "rmsnorm": 0.875,
    "layernorm": 0.875,
    "softmax": 0.875,
    "rope": 0.875,
    "quantize": 0.875,
    "copy": 0.875,
    "transpose": 0.875,
    "cat": 0.875,
    "reduce": 0.875,
    "gather": 0.875,
}

#: How much of the work its byte models give, the most certain first: all of it; the most of a range that depends on the data;
#: the part that was seen; the arrays that a call takes and returns.
COVERAGES = ("whole", "range", "lower_bound", "args")


class Work(NamedTuple):
    """The work of one unit."""

    op: str
    op_class: str  # one of fields.OP_CLASSES
    candidates: tuple[ByteModel, ...]  # the primary byte model first
    engine: str  # matrix or vector: the units that the FLOPs run on
    dtype: Dtype  # whose compute peak applies
    weight_dtype: Dtype  # of the weights or of the KV cache
    notes: tuple[Note, ...]  # the assumptions
    launches: int | None = None  # of one unit, where the parameters tell
    cached: tuple[float, float] = (0.0, 0.0)  # bytes left to a cache: of activations, and of one launch's output to the next
    coverage: str = "whole"  # one of COVERAGES
    written: float | None = None  # bytes of the primary byte model that are results, each written once; None: unknown
    least: tuple[float, float] | None = None  # bytes and FLOPs that no run can avoid; None: the least of the candidates

    @property
    def bytes(self) -> float:
        """Bytes by the primary byte model."""
        return self.candidates[0].bytes

    @property
    def flops(self) -> float:
        """FLOPs by the primary byte model."""
        return self.candidates[0].flops

    @property
    def unavoidable(self) -> tuple[float, float]:
        """Bytes and FLOPs that no run can avoid: what a time that is too short is compared with.

        Argument traffic alone proves nothing: a call may leave an argument unread.
        """
        if self.least is not None:
            return self.least
        if self.coverage == "args":
            return 0.0, 0.0
        if len(self.candidates) == 1:  # most shapes of most files
            return self.candidates[0].bytes, self.candidates[0].flops
        return min(model.bytes for model in self.candidates), min(model.flops for model in self.candidates)


class WorkError(ValueError):
    """Work that cannot be modeled; ``code`` is ``no_work_model``, ``unknown_parameter`` or ``bad_parameter``."""

    def __init__(self, message: str, code: str = "bad_parameter") -> None:
        super().__init__(message)
        self.code = code


class Op(NamedTuple):
    """A work model."""

    name: str
    op_class: str
    parameters: Mapping[str, object]  # name to default; REQUIRED where the caller must give one
    accepted: frozenset[str]  # every parameter, with those that all ops take
    required: frozenset[str]
    build: Callable[[Params], Work]
    source: str  # of the formula
    leaves_out: str  # what the formula does not count


#: The default of a parameter that the caller must give.
REQUIRED = ...
#: Parameters that every op takes.
_ALWAYS = ("dtype", "out_dtype")

#: Every op by name; importing ``ops`` fills it, so read it there as ``ops.OPS``.
REGISTRY: dict[str, Op] = {}


def op(
    *names: str,
    op_class: str,
    source: str,
    leaves_out: str,
    required: Sequence[str],
    optional: Sequence[str] = (),
    defaults: Mapping[str, object] | None = None,
) -> Callable[[Callable[[Params], Work]], Callable[[Params], Work]]:
    """Register the decorated work model under one or several names.

    required: the parameters that the caller must give; optional: those that are unknown without a value; defaults: the others.
    """
    parameters = {**dict.fromkeys(required, REQUIRED), **dict.fromkeys(optional), **(defaults or {})}
    accepted, needed = frozenset((*parameters, *_ALWAYS)), frozenset((*required, "dtype"))

    def register(build: Callable[[Params], Work]) -> Callable[[Params], Work]:
        for name in names:
            REGISTRY[name] = Op(name, op_class, parameters, accepted, needed, build, source, leaves_out)
        return build

    return register


#: Candidates with the activations that the primary byte model leaves to a cache.
WITH_ACTIVATIONS = ("experts_hit_and_activations", "kv_cache_q_and_out")
#: Candidates without the activations, or without the intermediate, once the primary model counts both. They are listed only: a
#: larger cache behind the L2 may make them true.
WITHOUT_ACTIVATIONS = ("without_activations", "without_intermediate")
LEFT_TO_CACHE = note("activations left out of the figure, in the range", "left_to_cache")


def fit_to_cache(work: Work, l2_bytes: float | None) -> Work:
    """Return the work on a device with a cache of ``l2_bytes``: activations over that size count as memory traffic.

    What one launch hands to the next is written and read again where the cache cannot hold it. An unknown cache holds all.
    """
    activations, intermediate = work.cached
    if l2_bytes is None or not activations:
        return work
    spilled = 2 * intermediate if intermediate > l2_bytes else 0.0
    added = activations + spilled
    if added <= l2_bytes:
        return work
    with_all = [model for model in work.candidates if model.model in WITH_ACTIVATIONS]
    models = [model._replace(bytes=model.bytes + added) for model in work.candidates if model not in with_all]
    smaller = [work.candidates[0], *(with_all if spilled else ())]
    models += [model._replace(model=name, in_range=False) for model, name in zip(smaller, WITHOUT_ACTIVATIONS)]
    counted = note("activations counted (more than the L2)")
    notes = tuple(counted if item.code == "left_to_cache" else item for item in work.notes)
    return work._replace(candidates=tuple(models), notes=notes, cached=(0.0, 0.0), written=None)


class Params:
    """The parameters of one call, each checked when it is read.

    Raises:
        WorkError: for unknown and for missing parameters.
    """

    def __init__(self, op: Op, raw: Mapping[str, object]) -> None:
        self.op = op
        self.raw = {key: value for key, value in raw.items() if value is not None}
        if op.accepted.issuperset(raw) and self.raw.keys() >= op.required:
            return
        accepted = f"it takes {', '.join(sorted(op.accepted))}"
        unknown = raw.keys() - op.accepted
        if unknown:
            raise WorkError(f"{op.name}: unknown parameter {', '.join(sorted(unknown))}; {accepted}", "unknown_parameter")
        missing = [key for key in (*op.parameters, "dtype") if key in op.required and key not in self.raw]
        raise WorkError(f"{op.name}: missing {', '.join(missing)}; {accepted}")

    def name(self, key: str) -> str:
        """Return a parameter's name for messages."""
        return f"{self.op.name}: {key}"

    def size(self, key: str, *, minimum: int = 1) -> int:
        return whole(self.raw.get(key, self.op.parameters[key]), self.name(key), minimum=minimum)

    def maybe_size(self, key: str, *, minimum: int = 1) -> int | None:
        """Return a size, or None where it was not given."""
        return self.size(key, minimum=minimum) if key in self.raw else None

    def sizes(self, key: str, *, minimum: int = 1) -> list[int]:
        value = self.raw.get(key)
        if not isinstance(value, (list, tuple)) or not value:
            raise ValueError(f"{self.name(key)} is {value!r:.40}, expected a list of sizes")
        return [whole(item, self.name(key), minimum=minimum) for item in value]

    def choice(self, key: str, choices: Mapping[object, str]) -> str:
        """Return one of a closed set, given under any of its spellings."""
        value = self.raw.get(key, self.op.parameters[key])
        if not isinstance(value, (int, str)) or isinstance(value, bool) or value not in choices:
            raise ValueError(f"{self.name(key)} is {value!r:.40}, expected one of {', '.join(map(str, choices))}")
        return choices[value]

    def flag(self, key: str) -> bool:
        value = self.raw.get(key, self.op.parameters[key])
        if not isinstance(value, bool):
            raise ValueError(f"{self.name(key)} is {value!r}, expected true or false")
        return value

    def dtype(self, key: str, default: Dtype | None = None) -> Dtype:
        """Return a dtype of unpacked values."""
        if key not in self.raw and default is not None:
            return default
        try:
            dtype = parse_dtype(self.raw[key])
        except ValueError as error:
            raise ValueError(f"{self.name(key)}: {error}") from None
        if dtype.pack != 1:  # the tensor's shape is halved; the sizes given here may be halved or not, a factor of 2
            raise ValueError(f"{self.name(key)} {self.raw[key]} names a packed storage: give logical sizes and {dtype.peak}")
        return dtype

    def has_scales(self, dtype: Dtype, key: str) -> bool:
        """Return whether the width of ``dtype`` includes the block scales that the parameter ``key`` asks for.

        Raises:
            ValueError: where it includes the scales of another block: they would be counted twice.
        """
        if dtype.bits == dtype.value_bits:
            return False
        block = round(8 / (dtype.bits - dtype.value_bits))  # a scale of 8 bits
        if self.size(key) != block:
            raise ValueError(
                f"{self.name(key)} is {self.raw[key]!r:.40}, but {dtype.name} has a scale per {block} values in its width"
            )
        return True


def combine_shapes(works: Sequence[Work], weights: Sequence[float]) -> Work:
    """Return the weighted mean of the works, byte model by byte model.

    Raises:
        ValueError: when the shapes are of different ops or dtypes.
    """
    first = works[0]
    for other in works[1:]:
        if (other.op, other.dtype, other.engine) != (first.op, first.dtype, first.engine):
            raise ValueError(
                f"cases of different kinds under one kernel ({first.op} {first.dtype.name}, {other.op} {other.dtype.name})"
            )
    total = sum(weights)
    names = dict.fromkeys(model.model for item in works for model in item.candidates)
    candidates = []
    for name in names:
        # A shape without this candidate (a captured context has no range) takes part with its primary byte model.
        models = [next((m for m in item.candidates if m.model == name), item.candidates[0]) for item in works]
        nbytes = sum(weight * model.bytes for weight, model in zip(weights, models)) / total
        flops = sum(weight * model.flops for weight, model in zip(weights, models)) / total
        candidates.append(ByteModel(name, nbytes, flops, in_range=all(model.in_range for model in models)))
    notes = (note(f"{len(works)} captured shapes, the first: {first.notes[0].text}"),)
    least: tuple[float, float] | None = None
    if any(item.least is not None or item.coverage != "whole" for item in works):
        ends = [item.unavoidable for item in works]
        nbytes, flops = (sum(weight * end[at] for weight, end in zip(weights, ends)) / total for at in (0, 1))
        least = (nbytes, flops)
    coverage = max((item.coverage for item in works), key=COVERAGES.index)
    results = [item.written for item in works if item.written is not None]
    written = sum(weight * part for weight, part in zip(weights, results)) / total if len(results) == len(works) else None
    return first._replace(candidates=tuple(candidates), notes=notes, coverage=coverage, least=least, written=written)


def scale_work(work: Work, factor: float) -> Work:
    """Return ``factor`` times the work: what a kernel at this rate does in ``factor`` times the time."""
    models = (ByteModel(m.model, m.bytes * factor, m.flops * factor, in_range=m.in_range) for m in work.candidates)
    least = work.least and (work.least[0] * factor, work.least[1] * factor)
    written = None if work.written is None else work.written * factor
    return work._replace(candidates=tuple(models), least=least, written=written)


def widen_range(combined: Work, works: Sequence[Work]) -> Work:
    """Return ``combined`` with the work of each shape in its range, for one time that cannot be divided among the shapes."""
    shapes = (ByteModel(f"shape_{at}", item.bytes, item.flops) for at, item in enumerate(works, 1))
    return combined._replace(candidates=(*combined.candidates, *shapes))


def heaviest_label(labels: Sequence[str], weights: Sequence[float]) -> tuple[str, float]:
    """Return the label with the most weight, and the share of the weight of the other labels."""
    totals: dict[str, float] = {}
    for label, weight in zip(labels, weights):
        totals[label] = totals.get(label, 0.0) + weight
    best = max(totals, key=lambda label: totals[label])
    return best, 1.0 - totals[best] / sum(weights)
