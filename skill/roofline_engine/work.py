"""Bytes and FLOPs per op: what a kernel must move and compute, whatever its implementation.

``work(op, **parameters)`` is the one entry point; docs/inputs.md lists the ops and their parameters, one vocabulary for
shapes.json and for Python. Every op takes ``dtype`` and ``out_dtype``, as ``units.parse_dtype`` reads them; sizes are
logical, of one device.

Bytes are compulsory traffic of the memory roof: each operand once. FLOPs count a multiply-add as two. The ops stand in the
``ops_*`` modules, one family each, loaded when one of them is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from .fields import ByteModel, Note, note
from .units import Dtype, parse_dtype, whole

#: How close a well-written kernel of an op comes to its roof: priors, set by how regular the access is.
#: gemm, moe, attn_decode and the streaming band 0.85-0.90 (its middle) are the specification's section 7; attn_prefill
#: (FlashAttention-3 reports up to 0.75 of the H100 fp16 peak, arXiv:2407.08608) and conv are weak priors. An op that is
#: not here has no target.
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


class Work(NamedTuple):
    """The work of one unit.

    candidates: the figure first, then every other byte model. engine: ``matrix`` or ``vector``, the peak table to use.
    dtype: the compute peak's row. launches: the launches of one unit where the parameters tell. notes: assumptions. cached:
    bytes of activations that the figure leaves to a cache, and of what lies between the launches of the unit.
    """

    op: str
    op_class: str
    candidates: tuple[ByteModel, ...]
    engine: str
    dtype: Dtype
    weight_dtype: Dtype
    notes: tuple[Note, ...]
    launches: int | None = None
    cached: tuple[float, float] = (0.0, 0.0)

    @property
    def bytes(self) -> float:
        return self.candidates[0].bytes

    @property
    def flops(self) -> float:
        return self.candidates[0].flops


class WorkError(ValueError):
    """Work that cannot be modeled; ``code`` is ``no_work_model``, ``unknown_parameter`` or ``bad_parameter``."""

    def __init__(self, message: str, code: str = "bad_parameter") -> None:
        super().__init__(message)
        self.code = code


class Op(NamedTuple):
    """A work model: its parameters (name to default, ``...`` where one must be given), formula source and limits.

    accepted, required: the names of what may and of what must be given, with those that every op takes.
    """

    name: str
    op_class: str
    parameters: Mapping[str, object]
    accepted: frozenset[str]
    required: frozenset[str]
    build: Callable[[Params], Work]
    source: str
    leaves_out: str


REQUIRED = ...
#: Parameters that every op takes.
_ALWAYS = ("dtype", "out_dtype")

#: Every op by name, filled by the modules of ``ops``; import it from there.
REGISTRY: dict[str, Op] = {}


def op(
    *names: str, op_class: str, source: str, leaves_out: str, **parameters: object
) -> Callable[[Callable[[Params], Work]], Callable[[Params], Work]]:
    """Register a work model under one or several names; used by the modules of ``ops``."""

    def register(build: Callable[[Params], Work]) -> Callable[[Params], Work]:
        accepted = frozenset((*parameters, *_ALWAYS))
        required = frozenset(("dtype", *(name for name, default in parameters.items() if default is REQUIRED)))
        for name in names:
            REGISTRY[name] = Op(name, op_class, parameters, accepted, required, build, source, leaves_out)
        return build

    return register


#: The candidates that have the activations beside the figure, while a cache may hold them, and how the notes say so; and those
#: that lack them, or what lies between, once the figure has both: never chosen, but a larger cache behind the L2 may give them.
WITH_ACTIVATIONS = ("experts_hit_and_activations", "kv_cache_q_and_out")
WITHOUT_ACTIVATIONS = ("without_activations", "without_intermediate")
LEFT_TO_CACHE = note("activations left out of the figure, in the range", "left_to_cache")


def fit_to_cache(done: Work, l2_bytes: float | None) -> Work:
    """``done`` on a device whose cache has ``l2_bytes``: activations that are more than that are memory traffic, in the figure.

    What lies between two launches is written and read where the cache does not hold it. While the cache is not known, it may
    hold them all.
    """
    activations, between = done.cached
    if l2_bytes is None or not activations:
        return done
    spilled = 2 * between if between > l2_bytes else 0.0
    added = activations + spilled
    if added <= l2_bytes:
        return done
    models = [one._replace(bytes=one.bytes + added) for one in done.candidates if one.model not in WITH_ACTIVATIONS]
    beside = [done.candidates[0], *(one for one in done.candidates if spilled and one.model in WITH_ACTIVATIONS)]
    models += [one._replace(model=name, in_range=False) for one, name in zip(beside, WITHOUT_ACTIVATIONS)]
    counted = note("activations counted (more than the L2)")
    notes = tuple(counted if item.code == "left_to_cache" else item for item in done.notes)
    return done._replace(candidates=tuple(models), notes=notes, cached=(0.0, 0.0))


class Params:
    """The parameters of one call, each checked when it is read; leftovers are refused."""

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
        raise ValueError(f"{op.name}: missing {', '.join(missing)}; {accepted}")

    def size(self, key: str, *, minimum: int = 1) -> int:
        try:
            return whole(self.raw.get(key, self.op.parameters[key]), key, minimum=minimum)
        except ValueError as error:
            raise ValueError(f"{self.op.name}: {error}") from None

    def maybe_size(self, key: str, *, minimum: int = 1) -> int | None:
        return self.size(key, minimum=minimum) if key in self.raw else None

    def sizes(self, key: str, *, minimum: int = 1) -> list[int]:
        """A list of sizes."""
        value = self.raw.get(key)
        if not isinstance(value, (list, tuple)) or not value:
            raise ValueError(f"{self.name(key)} is {value!r:.40}, expected a list of sizes")
        return [whole(item, self.name(key), minimum=minimum) for item in value]

    def choice(self, key: str, choices: Mapping[object, str]) -> str:
        """One of a closed set, under any of its spellings."""
        value = self.raw.get(key, self.op.parameters[key])
        if not isinstance(value, (int, str)) or isinstance(value, bool) or value not in choices:
            raise ValueError(f"{self.name(key)} is {value!r:.40}, expected one of {', '.join(map(str, choices))}")
        return choices[value]

    def name(self, key: str) -> str:
        return f"{self.op.name}: {key}"

    def flag(self, key: str) -> bool:
        value = self.raw.get(key, self.op.parameters[key])
        if not isinstance(value, bool):
            raise ValueError(f"{self.op.name}: {key} is {value!r}, expected true or false")
        return value

    def dtype(self, key: str, default: Dtype | None = None) -> Dtype:
        if key not in self.raw and default is not None:
            return default
        try:
            found = parse_dtype(self.raw[key])
        except ValueError as error:
            raise ValueError(f"{self.op.name}: {key}: {error}") from None
        if found.pack != 1:
            # The tensor's shape is halved already; whether the sizes here are is anyone's guess, and 2x is at stake.
            raise ValueError(
                f"{self.op.name}: {key} {self.raw[key]} names a packed storage: give logical sizes and {found.peak}"
            )
        return found

    def has_scales(self, dtype: Dtype, key: str) -> bool:
        """Whether the width of ``dtype`` has the block scales that the parameter ``key`` asks for in it already.

        Raises:
            ValueError: where it has those of another block: they would be counted twice.
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
    """The weighted mean of the works, byte model by byte model.

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
        # A shape that lacks this candidate (a captured context has no range) takes part with its own figure.
        same = [next((m for m in item.candidates if m.model == name), item.candidates[0]) for item in works]
        nbytes = sum(weight * model.bytes for weight, model in zip(weights, same)) / total
        flops = sum(weight * model.flops for weight, model in zip(weights, same)) / total
        listed = all(model.in_range for model in same)
        candidates.append(ByteModel(name, nbytes, flops, in_range=listed))
    notes = (note(f"{len(works)} captured shapes, the first: {first.notes[0].text}"),)
    return first._replace(candidates=tuple(candidates), notes=notes)


def scale_work(done: Work, factor: float) -> Work:
    """The same work at another amount: what a kernel that runs at this rate does in ``factor`` times the time."""
    models = (ByteModel(m.model, m.bytes * factor, m.flops * factor, in_range=m.in_range) for m in done.candidates)
    return done._replace(candidates=tuple(models))


def widen_range(folded: Work, works: Sequence[Work]) -> Work:
    """``folded`` with each shape's own figure in its range, for when one time cannot be shared out among them."""
    own = (ByteModel(f"shape_{at}", item.bytes, item.flops) for at, item in enumerate(works, 1))
    return folded._replace(candidates=(*folded.candidates, *own))


def heaviest_label(labels: Sequence[str], weights: Sequence[float]) -> tuple[str, float]:
    """The label with most weight, and the share of the weight that the others have."""
    totals: dict[str, float] = {}
    for label, weight in zip(labels, weights):
        totals[label] = totals.get(label, 0.0) + weight
    best = max(totals, key=lambda label: totals[label])
    return best, 1.0 - totals[best] / sum(weights)
