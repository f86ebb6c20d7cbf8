"""Bytes and FLOPs per op: what a kernel must move and compute, whatever its implementation.

``work(op, **parameters)`` is the one entry point; docs/inputs.md lists the ops and their parameters, one vocabulary for
shapes.json and for Python. Every op takes ``dtype`` and ``out_dtype``, as ``units.parse_dtype`` reads them; sizes are
logical, of one device.

Bytes are compulsory traffic of the memory roof: each operand once. FLOPs count a multiply-add as two. The ops stand in the
``ops_*`` modules, one family each, loaded when one of them is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module

from .entry import ByteModel, Note, note
from .record import Record
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
    "quantise": 0.875,
    "copy": 0.875,
    "transpose": 0.875,
    "cat": 0.875,
    "reduce": 0.875,
    "gather": 0.875,
}


class Work(Record):
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


class Op(Record):
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

#: Which module holds which op.
_FAMILIES = {
    "ops_matmul": ("gemm", "grouped_gemm", "moe", "conv1d", "conv2d", "conv3d"),
    "ops_attention": ("attn_decode", "mla_decode", "attn_prefill", "attn_backward"),
    "ops_streaming": (
        "elementwise",
        "copy",
        "transpose",
        "cat",
        "softmax",
        "rmsnorm",
        "layernorm",
        "reduce",
        "gather",
        "rope",
        "quantise",
        "dequantise",
        "cross_entropy",
        "topk",
        "optimiser",
    ),
    "ops_recurrent": ("gated_delta", "ssm_scan"),
}
_MODULES = {op: module for module, ops in _FAMILIES.items() for op in ops}
_LOADED: dict[str, Op] = {}


class _Ops(Mapping):  # type: ignore[type-arg]  # a subscripted base needs Python 3.9
    """The registry by op name; a family's module is imported when one of its ops is looked up."""

    def __getitem__(self, name: str) -> Op:
        if name not in _LOADED:
            import_module(f"{__package__}.{_MODULES[name]}")
        return _LOADED[name]

    def __contains__(self, name: object) -> bool:
        return name in _MODULES

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)


OPS = _Ops()


def op_class(op: str) -> str:
    """The class of an op, also of a convolution whose dimensions the name does not say; ``unknown`` where none is fit."""
    if op == "conv":
        return "gemm"
    return OPS[op].op_class if op in OPS else "unknown"


def op(
    *names: str, op_class: str, source: str, leaves_out: str, **parameters: object
) -> Callable[[Callable[[Params], Work]], Callable[[Params], Work]]:
    """Register a work model under one or several names; used by the ``ops_*`` modules."""

    def register(build: Callable[[Params], Work]) -> Callable[[Params], Work]:
        accepted = frozenset((*parameters, *_ALWAYS))
        required = frozenset(("dtype", *(name for name, default in parameters.items() if default is REQUIRED)))
        for name in names:
            _LOADED[name] = Op(name, op_class, parameters, accepted, required, build, source, leaves_out)
        return build

    return register


def work(op: str, l2_bytes: float | None = None, **parameters: object) -> Work:
    """Bytes and FLOPs of one unit of ``op``.

    l2_bytes: the cache below which activations need not count as memory traffic; None when it is not known.

    Raises:
        ValueError: for an op without a model, a parameter that is missing, unknown, or not a positive whole number,
            and a dtype that is not known.
    """
    model = _LOADED.get(op) or OPS.get(op)
    if model is None:
        from difflib import get_close_matches  # for a mistake alone

        near = get_close_matches(str(op), list(OPS), n=1)
        like = f": is it {near[0]}? There" if near else "; there"
        raise ValueError(f"no work model for op {op!r:.40}{like} are models for {', '.join(sorted(OPS))}")
    return in_cache(model.build(Params(model, parameters)), l2_bytes)


#: The candidates that have the activations beside the figure, while a cache may hold them, and how the notes say so; and those
#: that lack them, or what lies between, once the figure has both: never chosen, but a larger cache behind the L2 may give them.
WITH_ACTIVATIONS = ("experts_hit_and_activations", "kv_cache_q_and_out")
WITHOUT_ACTIVATIONS = ("without_activations", "without_intermediate")
LEFT_TO_CACHE = note("activations left out of the figure, in the range", "left_to_cache")


def in_cache(done: Work, l2_bytes: float | None) -> Work:
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
            raise ValueError(f"{op.name}: unknown parameter {', '.join(sorted(unknown))}; {accepted}")
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
