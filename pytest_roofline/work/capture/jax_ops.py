"""The operations of a jaxpr: what each reads and writes, and the engine's model of it.

Under ``jit`` XLA fuses what it can, so changes of layout are no operations, and what a jaxpr makes and uses up is no traffic.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, NamedTuple

from roofline_engine.entry import ByteModel
from roofline_engine.models import Work, work
from roofline_engine.units import Dtype, parse_dtype

from .record import Region, Seen
from .sized import sized
from .total import distinct
from .triton_launches import INTERPRETED

_LAYOUT = {
    *("reshape", "squeeze", "expand_dims", "broadcast_in_dim", "stop_gradient", "transpose", "copy", "copy_p"),
    *("optimization_barrier", "sharding_constraint", "bitcast_convert_type"),
}
_CALLS = {
    *("jit", "pjit", "closed_call", "core_call", "core_closed_call", "remat", "remat2", "checkpoint", "composite"),
    *("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"),
}
_MOVED = {"convert_element_type", "concatenate", "pad", "rev", "iota", "split", "dynamic_update_slice", "scatter"}
#: Of their first operand they read as much as they return.
_PARTS = {"slice", "dynamic_slice", "gather"}
#: They change a part of their first operand, which is not copied when it was donated.
UPDATES = {"dynamic_update_slice", "scatter", "scatter-add", "scatter-mul", "scatter-min", "scatter-max"}
_REDUCED = {f"reduce_{name}" for name in ("sum", "max", "min", "prod", "and", "or", "xor")} | {"argmax", "argmin"}
_MAPPED = {
    *("add", "add_any", "sub", "mul", "div", "rem", "neg", "sign", "abs", "max", "min", "clamp", "select_n", "pow"),
    *("integer_pow", "square", "sqrt", "rsqrt", "cbrt", "exp", "exp2", "expm1", "log", "log1p", "logistic", "tanh"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "asinh", "acosh", "atanh"),
    *("erf", "erfc", "erf_inv", "lgamma", "digamma", "floor", "ceil", "round", "is_finite", "nextafter"),
    *("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor", "not", "shift_left", "shift_right_logical"),
    *("shift_right_arithmetic", "population_count", "clz", "reduce_precision"),
    *("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp", "scatter-add", "scatter-mul", "scatter-min", "scatter-max"),
}
#: One FLOP per element of a window, as for ``reduce``.
_WINDOWS = {f"reduce_window_{name}" for name in ("sum", "max", "min")}
_UNKNOWN_LOOP = "how often a while loop runs, or which branch of a cond is taken, is not known before it does"


class Held(NamedTuple):
    """Where a value lies: an allocation, and its bytes."""

    storage: int
    nbytes: float


class Reader:
    """Reads a jaxpr into ``seen``. made: the storages that come about in it. loops: whether it has a scan."""

    def __init__(self, platform: str) -> None:
        self.platform = platform
        self.seen: list[Seen] = []
        self.made: set[int] = set()
        self.loops = False
        self._constants: dict[int, Held] = {}
        self._number = count()

    def new(self, aval: Any, times: int = 1) -> Held:
        held = Held(next(self._number), times * nbytes(aval))
        self.made.add(held.storage)
        return held

    def whole(self, jaxpr: Any, constants: Sequence[Any], arguments: Sequence[Any]) -> set[int]:
        """Read the jaxpr of a call; the storages of its results. arguments: an array that is given twice is there once."""
        values = arguments if len(arguments) == len(jaxpr.invars) else [variable.aval for variable in jaxpr.invars]
        given = [self._constant(value) if hasattr(value, "dtype") else None for value in values]
        results = self.read(jaxpr, constants, given, 1)
        kept = set()
        for variable, held in zip(jaxpr.outvars, results):
            if variable in jaxpr.invars:
                continue
            if held is None or held.storage not in self.made or held.nbytes < nbytes(variable.aval):  # copied after all
                out = self.new(variable.aval)
                copied = Seen("copy", *regions([] if held is None else [held], [out]))
                self.add(copied._replace(work=sized(_moved_work(variable.aval), copied, 0.0)), 1)
                held = out
            kept.add(held.storage)
        return kept

    def read(self, jaxpr: Any, constants: Sequence[Any], given: Sequence[Held | None], times: int) -> list[Held | None]:
        """The places of the results of a jaxpr that runs ``times`` over."""
        places: dict[Any, Held | None] = dict(zip(jaxpr.invars, given))
        places.update((variable, self._constant(value)) for variable, value in zip(jaxpr.constvars, constants))
        for eqn in _live(jaxpr):
            inputs = [None if hasattr(atom, "val") else places[atom] for atom in eqn.invars]
            places.update(zip(eqn.outvars, self._equation(eqn, inputs, times)))
        return [None if hasattr(atom, "val") else places[atom] for atom in jaxpr.outvars]

    def _constant(self, value: Any) -> Held:
        if id(value) not in self._constants:
            self._constants[id(value)] = Held(next(self._number), nbytes(value))
        return self._constants[id(value)]

    def _equation(self, eqn: Any, inputs: Sequence[Held | None], times: int) -> Sequence[Held | None]:
        name = eqn.primitive.name
        if name in _LAYOUT:
            return inputs[: len(eqn.outvars)]
        if name in _CALLS:
            inner = next(eqn.params[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in eqn.params)
            return self.read(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), inputs, times)
        if name == "scan":
            return self._scan(eqn, inputs, times)
        outputs = [self.new(variable.aval) for variable in eqn.outvars]
        if not all(math.prod(variable.aval.shape) for variable in eqn.outvars):
            return outputs
        small = all(
            math.prod(variable.aval.shape) == 1 for variable in (*eqn.invars, *eqn.outvars) if hasattr(variable, "aval")
        )
        if small and name in _MAPPED | _MOVED:  # a counter, an index
            return outputs
        self.add(self._seen(eqn, [held for held in inputs if held is not None], outputs), times)
        return outputs

    def _scan(self, eqn: Any, inputs: Sequence[Held | None], times: int) -> list[Held | None]:
        """Its body as often as it runs; what it carries from one run to the next stays inside."""
        self.loops = True
        body, length = eqn.params["jaxpr"], eqn.params["length"]
        fixed, carried = eqn.params["num_consts"], eqn.params["num_carry"]
        inner = [*inputs[:fixed], *(self.new(variable.aval) for variable in body.jaxpr.invars[fixed:])]
        self.read(body.jaxpr, body.consts, inner, times * length)
        outputs = [self.new(variable.aval) for variable in eqn.outvars]
        through = [held for held in inputs[fixed:] if held is not None]
        written = [held for held, variable in zip(outputs, eqn.outvars) if type(variable).__name__ != "DropVar"]
        if carried or written:
            self.add(Seen("scan", *regions(through, written)), times)
        return list(outputs)

    def add(self, seen: Seen, times: int) -> None:
        if times != 1 and seen.work is not None:
            candidates = [
                model._replace(bytes=times * model.bytes, flops=times * model.flops) for model in seen.work.candidates
            ]
            seen = seen._replace(work=seen.work._replace(candidates=tuple(candidates)))
        self.seen.append(seen)

    def _seen(self, eqn: Any, inputs: list[Held], outputs: list[Held]) -> Seen:
        name, out = eqn.primitive.name, eqn.outvars[0].aval
        reads, writes = regions(inputs, outputs)
        if name in _PARTS and reads:
            first = inputs[0]
            part = min(outputs[0].nbytes, first.nbytes)
            reads = (Region(first.storage, (outputs[0].storage,), part, first.nbytes), *reads[1:])
        base = Seen(name, reads, writes)
        try:
            if name in ("cond", "while"):
                return base._replace(flops=None, note=_UNKNOWN_LOOP)
            if name == "pallas_call":
                return _pallas(eqn, base)
            if name == "dot_general":
                return base._replace(work=_dot(eqn, base, self.platform))
            if name == "conv_general_dilated":
                return base._replace(work=_convolution(eqn, base, self.platform))
            if name in _PARTS | _MOVED:
                return base._replace(work=sized(_moved_work(out), base, 0.0))
            if name in _REDUCED:
                rows, source = math.prod(out.shape), eqn.invars[0].aval
                cols = max(math.prod(source.shape) // rows, 1)
                found = work("reduce", rows=rows, cols=cols, dtype=_dtype(source), out_dtype=_dtype(out))
                return base._replace(work=sized(found, base, found.flops if _computes(eqn) else 0.0))
            if name in _MAPPED | _WINDOWS:
                times = math.prod(eqn.params["window_dimensions"]) if name in _WINDOWS else 1
                changed = eqn.invars[2].aval if name in UPDATES else out  # a scatter computes with its updates alone
                sizes = {"numel": math.prod(changed.shape), "inputs": len(reads), "outputs": len(writes)}
                found = work("elementwise", **sizes, dtype=_dtype(out))
                return base._replace(work=sized(found, base, times * found.flops if _computes(eqn) else 0.0))
        except ValueError as error:  # a dtype or a size that the engine has no model for
            return base._replace(flops=None, note=f"{name}: {error}")
        return base._replace(flops=None)


def regions(inputs: Sequence[Held], outputs: Sequence[Held]) -> tuple[tuple[Region, ...], tuple[Region, ...]]:
    """What an operation reads and what it writes, each in full."""
    reads, writes = (tuple(Region(held.storage, (), held.nbytes, held.nbytes) for held in side) for side in (inputs, outputs))
    return reads, writes


def nbytes(aval: Any) -> float:
    """Bytes of an array of this shape and type; a type of fewer than 8 bits is stored in the width that it has."""
    size = math.prod(aval.shape)
    try:
        return float(size * _dtype(aval).nbytes)
    except ValueError:
        return float(size * getattr(aval.dtype, "itemsize", 0))


def _dtype(aval: Any) -> Dtype:
    return parse_dtype(str(aval.dtype))


def _live(jaxpr: Any) -> list[Any]:
    """The equations whose results are used: XLA drops the others."""
    used = {id(atom) for atom in jaxpr.outvars}
    kept = []
    for eqn in reversed(jaxpr.eqns):
        if eqn.effects or any(id(variable) in used for variable in eqn.outvars):
            used.update(id(atom) for atom in eqn.invars)
            kept.append(eqn)
    return kept[::-1]


def _computes(eqn: Any) -> bool:
    """Whether there is floating-point arithmetic in it: integers and booleans have no FLOPs."""
    kinds = [str(variable.aval.dtype) for variable in (*eqn.invars, *eqn.outvars)]
    if any(kind.startswith("complex") for kind in kinds):
        raise ValueError("arithmetic on complex numbers has no model")
    return any("float" in kind for kind in kinds)


def _moved_work(out: Any) -> Work:
    return work("copy", rows=max(math.prod(out.shape[:-1]), 1), cols=out.shape[-1] if out.shape else 1, dtype=_dtype(out))


def _operand(aval: Any, precision: Any, platform: str) -> Dtype:
    """The type at which a product runs. ``precision``: JAX's, two of them, a name of an algorithm, or None.

    On NVIDIA fp32 is TF32 unless the highest precision is asked for (docs.jax.dev, "Matmul precision"; jax#18934), on a TPU it
    is one pass of bf16 by default.
    """
    stored = _dtype(aval)
    names = {str(getattr(item, "name", item)) for item in (precision if isinstance(precision, tuple) else (precision,))}
    coarse = names <= {"None", "DEFAULT", "HIGH", "HIGHEST"}
    if not coarse:
        algorithm = names.pop()
        first = algorithm.partition("_")[0].lower()
        if names or "_X" in algorithm or first not in ("bf16", "f16", "tf32", "f32", "f64"):
            raise ValueError(f"precision {algorithm} has no peak")
        return parse_dtype(first)
    if stored.name != "fp32" or platform not in ("cuda", "tpu") or "HIGHEST" in names:
        return stored
    if platform == "tpu":
        if "HIGH" in names:
            raise ValueError("precision HIGH takes several passes on a TPU")
        return parse_dtype("bf16")
    return parse_dtype("tf32")


def _dot(eqn: Any, seen: Seen, platform: str) -> Work:
    (left, right), out = (variable.aval for variable in eqn.invars), eqn.outvars[0].aval
    (contracted, other), (batch, also) = eqn.params["dimension_numbers"]
    if "complex" in str(out.dtype):
        raise ValueError("a product of complex numbers has no model")
    free = [size for at, size in enumerate(left.shape) if at not in (*contracted, *batch)]
    right_free = [size for at, size in enumerate(right.shape) if at not in (*other, *also)]
    precision = eqn.params.get("precision")
    sizes = {
        "M": math.prod(free),
        "N": math.prod(right_free),
        "K": math.prod(left.shape[at] for at in contracted),
        "batch": math.prod(left.shape[at] for at in batch),
    }
    a, b = _operand(left, precision, platform), _operand(right, precision, platform)
    found = work("gemm", **sizes, dtype=a, weight_dtype=b, out_dtype=_dtype(out))
    return sized(found, seen, found.flops)


def _convolution(eqn: Any, seen: Seen, platform: str) -> Work:
    """2 x outputs x inputs of a group x taps, as the engine counts it: taps in the padding too."""
    source, weight = (variable.aval for variable in eqn.invars)
    out, params = eqn.outvars[0].aval, eqn.params
    if set(params["lhs_dilation"]) - {1} or "complex" in str(out.dtype):
        raise ValueError("a transposed or complex convolution has no model")
    numbers = params["dimension_numbers"]
    spec = numbers.rhs_spec  # output features, input features of a group, taps
    taps = math.prod(weight.shape[at] for at in spec[1:])
    flops = 2.0 * math.prod(out.shape) * taps
    dims = len(spec) - 2
    dtype = _operand(source, params.get("precision"), platform)
    name = f"conv{dims}d" if dims in (1, 2, 3) else "unknown"
    note = f"{name}: {tuple(source.shape)} by {tuple(weight.shape)}, output {tuple(out.shape)}"
    candidate = ByteModel("input_weight_output", distinct(seen.reads, seen.writes), flops)
    return Work(name, "gemm", (candidate,), "matrix", dtype, _dtype(weight), (note,))


def _pallas(eqn: Any, seen: Seen) -> Seen:
    """A Pallas kernel is what its author estimates; its body is written for one block of a grid."""
    params = eqn.params
    name = params.get("name") or getattr(params.get("debug"), "func_name", "") or "pallas_call"
    told = [INTERPRETED] if params.get("interpret") else []
    estimate = params.get("cost_estimate")
    seen = seen._replace(name=f"pallas_call {name}" if name != "pallas_call" else name)
    if estimate is None:
        return seen._replace(flops=None, note="; ".join([*told, "a Pallas kernel without a cost_estimate"]))
    products = [inner for inner in _inside(params["jaxpr"]) if inner.primitive.name == "dot_general"]
    dtype = _dtype(products[0].invars[0].aval) if products else parse_dtype("fp32")
    candidate = ByteModel("cost_estimate", float(estimate.bytes_accessed), float(estimate.flops + estimate.transcendentals))
    found = Work("unknown", "unknown", (candidate,), "matrix" if products else "vector", dtype, dtype, ())
    return seen._replace(work=found, note="; ".join([*told, "bytes and FLOPs of its author's cost_estimate"]))


def _inside(jaxpr: Any) -> Iterator[Any]:
    for eqn in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield eqn
        for value in eqn.params.values():
            for item in value if isinstance(value, (tuple, list)) else (value,):
                if hasattr(item, "eqns") or hasattr(item, "jaxpr"):
                    yield from _inside(item)
