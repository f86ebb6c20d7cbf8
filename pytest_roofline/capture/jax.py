"""The operations of a jaxpr: what each reads and writes, and the engine's model of it.

Under ``jit`` XLA fuses what it can, so changes of layout are no operations, and what a jaxpr makes and uses up is no traffic.
"""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any, NamedTuple

from roofline_engine.fields import ByteModel, note
from roofline_engine.ops import work
from roofline_engine.ops.matmul import positions_met
from roofline_engine.units import Dtype, parse_dtype, quantity
from roofline_engine.work import Work

from ..timing.devices import loaded
from ..values import raised
from .combine import distinct, sized, total
from .coverage import LISTED, SOME, strided
from .restore import surroundings
from .trace import Captured, Region, Seen
from .triton import INTERPRETED

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
    """Where a value lies: an allocation, and its bytes. plain: its elements are in order of rows."""

    storage: int
    nbytes: float
    plain: bool = True


class Reader:
    """Reads a jaxpr into ``seen``. made: the storages that come about in it. loops: whether it has a scan. donates: whether a
    function in it takes the memory of an argument. beforehand: what depends on nothing but constants of a compiled function.

    compiled: the jaxpr is of one, so that its constants are part of the program.
    """

    def __init__(self, platform: str, *, compiled: bool = False) -> None:
        self.platform, self.compiled = platform, compiled
        self.donates = False
        self.beforehand: list[Seen] = []
        self._fixed: set[int] = set()
        self._results: list[Any] = []  # of the jaxpr read last, where they are known
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
        if self.compiled:
            self._fixed.update(self._constant(value).storage for value in constants)
        results = self.read(jaxpr, constants, given, 1, arguments if len(arguments) == len(given) else ())
        kept = set()
        for variable, held in zip(jaxpr.outvars, results):
            if variable in jaxpr.invars or variable in jaxpr.constvars:  # given on as it is
                continue
            if held is None or held.storage not in self.made or held.nbytes < nbytes(variable.aval):  # copied after all
                out = self.new(variable.aval)
                copied = Seen("copy", *regions([] if held is None else [held], [out]))
                self.add(copied._replace(work=sized(_moved_work(variable.aval), copied, 0.0)), 1)
                held = out
            kept.add(held.storage)
        return kept

    def read(
        self, jaxpr: Any, constants: Sequence[Any], given: Sequence[Held | None], times: int, values: Sequence[Any] = ()
    ) -> list[Held | None]:
        """The places of the results of a jaxpr that runs ``times`` over. values: of its arguments, where they are known."""
        places: dict[Any, Held | None] = dict(zip(jaxpr.invars, given))
        places.update((variable, self._constant(value)) for variable, value in zip(jaxpr.constvars, constants))
        known = Values([*zip(jaxpr.invars, values), *zip(jaxpr.constvars, constants)])
        for eqn in _live(jaxpr):
            inputs = [None if hasattr(atom, "val") else places[atom] for atom in eqn.invars]
            places.update(zip(eqn.outvars, self._equation(eqn, inputs, times, known)))
            known.follow(eqn)
        self._results = [known.of(atom) for atom in jaxpr.outvars]
        return [None if hasattr(atom, "val") else places[atom] for atom in jaxpr.outvars]

    def _constant(self, value: Any) -> Held:
        if id(value) not in self._constants:
            self._constants[id(value)] = Held(next(self._number), nbytes(value))
        return self._constants[id(value)]

    def _equation(self, eqn: Any, inputs: Sequence[Held | None], times: int, known: Values) -> Sequence[Held | None]:
        name = eqn.primitive.name
        if name in _LAYOUT:
            same = name not in ("transpose", "broadcast_in_dim", "bitcast_convert_type")
            return [held and held._replace(plain=held.plain and same) for held in inputs[: len(eqn.outvars)]]
        if name in _CALLS:
            self.donates = self.donates or any(eqn.params.get("donated_invars", ()))
            inner = next(eqn.params[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in eqn.params)
            constants = getattr(inner, "consts", ())
            if name in ("jit", "pjit"):
                self._fixed.update(self._constant(value).storage for value in constants)
            values = [known.of(atom) for atom in eqn.invars]
            results = self.read(getattr(inner, "jaxpr", inner), constants, inputs, times, values)
            known.add(zip(eqn.outvars, self._results))
            return results
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
        read = [held for held in inputs if held is not None]
        seen = self._seen(eqn, read, outputs, known)
        self.add(seen, times)
        if read and all(held.storage in self._fixed for held in read):
            self.beforehand.append(seen)
            self._fixed.update(held.storage for held in outputs)
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

    def _seen(self, eqn: Any, inputs: list[Held], outputs: list[Held], known: Values) -> Seen:
        name, out = eqn.primitive.name, eqn.outvars[0].aval
        reads, writes = regions(inputs, outputs)
        base = Seen(name, reads, writes)
        used = _used(eqn, inputs, outputs, known) if reads else None
        if used is not None:
            (view, nbytes), exact = used[:2], used[2]
            first = reads[0]
            if nbytes < first.nbytes:
                reads = (first._replace(view=view, nbytes=float(nbytes)), *reads[1:])
            base = base._replace(reads=reads, partly=not exact, note="" if exact else REPEATED)
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
                times = 0 if name in _WINDOWS and times == 1 else times  # one element of a window is taken, not added
                changed = eqn.invars[2].aval if name in UPDATES else out  # a scatter computes with its updates alone
                sizes = {"numel": math.prod(changed.shape), "inputs": len(reads), "outputs": len(writes)}
                found = work("elementwise", **sizes, dtype=_dtype(out))
                return base._replace(work=sized(found, base, times * found.flops if _computes(eqn) else 0.0))
        except ValueError as error:  # a dtype or a size that the engine has no model for
            return base._replace(flops=None, note=f"{name}: {error}")
        return base._replace(flops=None)


#: Integers that are looked at to know which rows they name.
MOST_INDICES, MOST_LISTED = 1 << 20, 4096
REPEATED = "which rows its indices name is not known: the bytes of its table are an upper bound"
_FOLLOWED = {
    *("add", "sub", "mul", "rem", "lt", "ge", "select_n", "max", "min", "clamp", "convert_element_type", "iota"),
    *("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "concatenate", "stop_gradient", "copy"),
}


class Values:
    """Integers of a jaxpr that are known without running it: those that are given, and what is computed of them alone."""

    def __init__(self, given: Iterable[tuple[Any, Any]]) -> None:
        self._values: dict[Any, Any] = {}
        self.add(given)

    def add(self, given: Iterable[tuple[Any, Any]]) -> None:
        self._values.update((variable, value) for variable, value in given if value is not None and _is_index(value))

    def of(self, atom: Any) -> Any:
        return atom.val if hasattr(atom, "val") else self._values.get(atom)

    def follow(self, eqn: Any) -> None:
        if eqn.primitive.name not in _FOLLOWED or not all(_is_index(variable.aval) for variable in eqn.outvars):
            return
        values = [self.of(atom) for atom in eqn.invars]
        if any(value is None for value in values):
            return
        found = eqn.primitive.bind(*values, **eqn.params)
        self._values[eqn.outvars[0]] = found


def _is_index(value: Any) -> bool:
    kind = str(getattr(value, "dtype", ""))
    return (kind.startswith(("int", "uint")) or kind == "bool") and math.prod(getattr(value, "shape", ())) <= MOST_INDICES


def _used(
    eqn: Any, inputs: Sequence[Held], outputs: Sequence[Held], known: Values
) -> tuple[tuple[int, ...], float, bool] | None:
    """Of the first operand what is read: which bytes, how many, and whether that is sure; None for all of it."""
    name, source, params = eqn.primitive.name, eqn.invars[0].aval, eqn.params
    some, part = (SOME, outputs[0].storage), min(outputs[0].nbytes, inputs[0].nbytes)
    if name == "slice" and inputs[0].plain and inputs[0].nbytes == nbytes(source):
        return (*_slice(source, params), True)
    if name in ("slice", "dynamic_slice"):
        return some, part, True
    if name == "dynamic_update_slice":
        rest = (SOME, -1 - inputs[1].storage) if len(inputs) > 1 else some
        return rest, inputs[0].nbytes - nbytes(eqn.invars[1].aval), True
    if name == "gather":
        numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
        index = known.of(eqn.invars[1])
        if index is None or any(sizes[at] != 1 for at in numbers.start_index_map) or numbers.operand_batching_dims:
            return some, part, False
        limits = [source.shape[at] - 1 for at in numbers.start_index_map]  # JAX clamps what is out of bounds, or fills it
        rows = {tuple(map(min, row, limits)) for row in index.reshape(-1, index.shape[-1]).tolist()}
        if numbers.start_index_map == (0,) and sizes[1:] == source.shape[1:] and inputs[0].plain and len(rows) <= MOST_LISTED:
            row = int(nbytes(source) // source.shape[0])
            return (LISTED, row, *sorted(max(at, 0) * row for (at,) in rows)), float(len(rows) * row), True
        return (SOME, hash(frozenset(rows))), len(rows) * math.prod(sizes) * nbytes(source) / math.prod(source.shape), True
    if name in _WINDOWS and set(params["base_dilation"]) == {1}:
        axes = zip(source.shape, params["window_dimensions"], params["window_strides"], params["padding"],
                   params["window_dilation"], eqn.outvars[0].aval.shape)  # fmt: skip
        met = math.prod(positions_met(size, taps, hop, pad[0], step, out) for size, taps, hop, pad, step, out in axes)
        return some, met * nbytes(source) / math.prod(source.shape), True
    return None


def _slice(source: Any, params: Any) -> tuple[tuple[int, ...], float]:
    width = nbytes(source) / math.prod(source.shape)
    if width != int(width):
        return (SOME, id(params)), width * math.prod(source.shape)
    strides, start = [int(width)], 0
    for size in reversed(source.shape[1:]):
        strides.insert(0, strides[0] * size)
    dims = []
    for at, stride in enumerate(strides):
        begin, end, step = params["start_indices"][at], params["limit_indices"][at], (params["strides"] or [1] * 99)[at]
        start += begin * stride
        dims.append((-(-(end - begin) // step), step * stride))
    view, covered = strided(start, int(width), dims)
    return view, float(covered)


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
    text = f"{name}: {tuple(source.shape)} by {tuple(weight.shape)}, output {tuple(out.shape)}"
    extents = [source.shape[at] for at in numbers.lhs_spec[2:]]
    outputs = [out.shape[at] for at in numbers.out_spec[2:]]
    kernel = [weight.shape[at] for at in spec[2:]]
    axes = zip(extents, kernel, params["window_strides"], params["padding"], params["rhs_dilation"], outputs)
    met = math.prod(positions_met(size, taps, hop, pad[0], step, many) for size, taps, hop, pad, step, many in axes)
    skipped = nbytes(source) * (1 - met / math.prod(extents))
    candidate = ByteModel("input_weight_output", distinct(seen.reads, seen.writes) - skipped, flops)
    return Work(name, "gemm", (candidate,), "matrix", dtype, _dtype(weight), (note(text),))


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


#: Programs of more operations are not compiled once more for XLA's count: a hundred take about a second.
MOST_COMPILED = 500
#: XLA's FLOPs under this part of the matrix products traced: it found a way round them, such as computing with constants
#: beforehand. It may well simplify sums.
FOLDED = 0.5
#: Values of a container that are looked at for what a function may have changed.
MOST_REACHED = 100
#: XLA's count is told where it is this far from ours.
APART = 0.1
BEFOREHAND = "part of it depends on nothing but constants, and whether XLA computes that beforehand is not known"
MOVED = "a constant is moved or converted, which XLA may do beforehand: its bytes are a bound"


def capture(fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Captured:
    """The work of ``fn(*args, **kwargs)``, which is traced and not run. What it changes in its surroundings is put back."""
    jax, kwargs = loaded("jax"), dict(kwargs or {})
    if jax is None:
        return Captured("jax", reason="jax is not imported")
    try:
        leaves = jax.tree_util.tree_leaves((args, kwargs))
        devices = {device for leaf in leaves if isinstance(leaf, jax.Array) for device in leaf.devices()}
        if len(devices) > 1:
            return Captured("jax", reason=f"its arrays lie on {len(devices)} devices")
        traced = _traced(jax, fn, args, kwargs)
    except Exception as error:  # what the function's own code raises under a tracer, too
        return Captured("jax", reason=f"JAX cannot trace it: {raised(error)}")
    reader = Reader(_platform(jax, devices), compiled=traced.jitted)
    try:
        kept = reader.whole(traced.jaxpr.jaxpr, traced.jaxpr.consts, traced.arguments)
        found = total("jax", reader.seen, made=reader.made, kept=kept)._replace(launches=None)
    except Exception as error:  # a jaxpr of another version
        return Captured("jax", reason=f"the capture failed: {raised(error)}")
    if (any(traced.donated) or reader.donates) and any(seen.name in UPDATES for seen in reader.seen):
        note = "an argument that is updated in place was donated: its bytes are an upper bound"
        found = found._replace(sure=False, notes=(*found.notes, note))
    return found if found.work is None else _checked(found, traced, reader)


class _Traced(NamedTuple):
    """jaxpr: closed. compiled: compiles it. donated: of each argument, whether its memory may be used. jitted: by the user."""

    jaxpr: Any
    arguments: Sequence[Any]
    compiled: Callable[[], Any]
    donated: Sequence[bool]
    jitted: bool


def _traced(jax: Any, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> _Traced:
    """A function that is jitted as the user's calls are, from JAX's cache; another as if it were, what it closes over given
    to it as arguments."""
    if hasattr(fn, "trace") and hasattr(fn, "lower"):
        own = fn.trace(*args, **kwargs)
        donated = [info.donated for info in jax.tree_util.tree_leaves(own.args_info)]
        return _Traced(own.jaxpr, jax.tree_util.tree_leaves((args, kwargs)), lambda: own.lower().compile(), donated, True)
    leaves, tree = jax.tree_util.tree_flatten((tuple(args), dict(kwargs)))
    arrays = [at for at, leaf in enumerate(leaves) if hasattr(leaf, "dtype") and hasattr(leaf, "shape")]

    def call(*given: Any) -> Any:
        filled = dict(zip(arrays, given))
        positional, named = jax.tree_util.tree_unflatten(tree, [filled.get(at, leaf) for at, leaf in enumerate(leaves)])
        return [leaf for leaf in jax.tree_util.tree_leaves(fn(*positional, **named)) if isinstance(leaf, kinds)]

    kinds = (jax.Array, jax.core.Tracer)
    with _unchanged(fn), _ready(jax.core.Tracer):
        closed = jax.jit(call).trace(*(leaves[at] for at in arrays)).jaxpr

    def run(constants: Sequence[Any], given: Sequence[Any]) -> Any:
        return jax.core.eval_jaxpr(closed.jaxpr, constants, *given)

    given = [leaves[at] for at in arrays]
    return _Traced(closed, given, lambda: jax.jit(run).lower(closed.consts, given).compile(), (), False)


@contextmanager
def _ready(tracer: Any) -> Iterator[None]:
    """A benchmark waits for its result; a traced one has nothing to wait for."""
    if "block_until_ready" in vars(tracer):
        yield
        return
    tracer.block_until_ready = lambda self: self
    try:
        yield
    finally:
        del tracer.block_until_ready


@contextmanager
def _unchanged(fn: Any) -> Iterator[None]:
    """What a function has assigned, or put into a list, dictionary, set or object that it reaches, is as before: a tracer left
    there would fail the user's next call."""
    with ExitStack() as stack:
        for holder, keys in surroundings(fn):
            values = {key: holder[key] for key in (list(holder) if keys is None else keys) if key in holder}
            stack.callback(_assigned, holder, values, keys)
            for value in [fn, *values.values()]:
                if isinstance(value, functools._lru_cache_wrapper):
                    stack.callback(_forgotten, value, value.cache_info().misses)
            for held in _containers(list(values.values())):
                if isinstance(held, dict):
                    stack.callback(_assigned, held, dict(held), None)
                elif isinstance(held, list):
                    stack.callback(held.__setitem__, slice(None), list(held))
                else:
                    stack.callback(_filled, held, set(held))
        yield


def _containers(values: Sequence[Any], depth: int = 3) -> Iterator[Any]:
    for value in values[:MOST_REACHED]:
        if isinstance(value, (types.ModuleType, types.FunctionType, type)):
            continue
        held = value if isinstance(value, (dict, list, set)) else getattr(value, "__dict__", None)
        if isinstance(held, (dict, list, set)):
            yield held
            if depth > 1:
                yield from _containers(list(held.values() if isinstance(held, dict) else held), depth - 1)


def _assigned(holder: Any, before: Mapping[Any, Any], keys: Sequence[Any] | None) -> None:
    for key in list(holder) if keys is None else keys:
        if key in holder and key not in before:
            del holder[key]
    for key, value in before.items():
        if key not in holder or holder[key] is not value:
            holder[key] = value


def _forgotten(cached: Any, misses: int) -> None:
    """What a cache has taken up is of the trace."""
    if cached.cache_info().misses != misses:
        cached.cache_clear()


def _filled(held: set[Any], before: set[Any]) -> None:
    held.clear()
    held |= before


def _platform(jax: Any, devices: set[Any]) -> str:
    """cuda, rocm, tpu or cpu."""
    client = next(iter(devices)).client if devices else jax.devices()[0].client
    platform = str(client.platform)
    return ("rocm" if "rocm" in str(client.platform_version).lower() else "cuda") if platform == "gpu" else platform


def _checked(found: Captured, traced: _Traced, reader: Reader) -> Captured:
    """With XLA's bytes as a candidate that is listed, and none of it where XLA computes much less than was traced."""
    work = found.work
    assert work is not None
    folds = any(seen.work is None or seen.work.flops for seen in reader.beforehand)
    if reader.beforehand and not folds:
        found = _noted(found, MOVED)._replace(sure=False)
    unchecked = found._replace(work=None, reason=BEFOREHAND) if folds else found
    if len(reader.seen) > MOST_COMPILED:
        return _noted(unchecked, f"{len(reader.seen)} operations: not compiled for XLA's own count")
    try:
        program = traced.compiled()
        cost = program.cost_analysis()
        cost = cost[0] if isinstance(cost, (list, tuple)) else cost
        text = program.as_text() or ""
    except Exception as error:
        return _noted(unchecked, f"no cost_analysis: {raised(error)}")
    silent = (
        "it has a loop, whose body it counts once" if reader.loops else "it calls a library" if "custom-call" in text else ""
    )
    figures = {key: float(cost.get(key, 0.0)) for key in ("flops", "transcendentals", "bytes accessed", "optimal_seconds")}
    if silent or min(figures.values()) < 0:
        return _noted(unchecked, f"XLA's own count is not of the whole: {silent or 'it is negative'}")
    works = [seen.work for seen in reader.seen if seen.work is not None]
    ours = sum(work.flops for work in works)
    products = sum(work.flops for work in works if work.engine == "matrix")
    theirs = figures["flops"] + figures["transcendentals"]
    told = f"XLA counts {quantity(theirs, 'FLOP')}, {quantity(ours, 'FLOP')} were traced"
    if theirs < FOLDED * products or (ours and not theirs) or (folds and theirs < (1 - APART) * ours):
        return found._replace(work=None, reason=f"{told}: it computes with constants beforehand, or leaves work out")
    accessed = figures["bytes accessed"]
    if accessed > 0:
        candidate = ByteModel("xla_bytes_accessed", accessed, work.flops, in_range=False)
        found = found._replace(work=work._replace(candidates=(*work.candidates, candidate)))
    return _noted(found, told) if abs(theirs - ours) > APART * ours > 0 else found


def _noted(found: Captured, note: str) -> Captured:
    return found._replace(notes=(*found.notes, note))
