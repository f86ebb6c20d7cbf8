"""The work of a call of JAX, from its jaxpr: the function is traced and not run.

Under ``jit`` XLA fuses what it can, so a change of layout is no operation, and what a jaxpr makes and uses up is no traffic.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any, NamedTuple

from roofline_engine.calls.call import UNKNOWN_ROWS, Part, Unknown
from roofline_engine.fields import ByteModel, note
from roofline_engine.ops import work
from roofline_engine.ops.matmul import positions_met
from roofline_engine.units import Dtype, parse_dtype, quantity
from roofline_engine.work import Work

from ..timing.devices import loaded
from ..values import attributes, raised
from .restore import assign, present_items, unwrap_partial, variable_holders
from .trace import INTERPRETED, CapturedWork, Listed, OpTrace, Region, View, distinct, resize, strided, total

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
_UPDATES = {"dynamic_update_slice", "scatter", "scatter-add", "scatter-mul", "scatter-min", "scatter-max"}
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
#: What integers are followed through, to know which rows they name.
_FOLLOWED = {
    *("add", "sub", "mul", "rem", "lt", "ge", "select_n", "max", "min", "clamp", "convert_element_type", "iota"),
    *("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "concatenate", "stop_gradient", "copy"),
}
#: Integers that are read to know which rows they name, and rows that are listed one by one.
MOST_INDICES, MOST_LISTED = 1 << 20, 4096
#: Programs of more operations are not compiled once more for XLA's count: a hundred take about a second.
MOST_COMPILED = 500
#: XLA's FLOPs under this part of the matrix products in the trace: it avoided some of them, such as by computing with
#: constants at compile time. It may well simplify sums.
FOLDED = 0.5
#: XLA's count is noted where it is this far from the trace's.
APART = 0.1
#: Values of a container that are searched for what a function may have changed.
MOST_REACHED = 100
UNKNOWN_LOOP = note("how often a while loop runs, or which branch of a cond is taken, is unknown before it runs")
CONSTANTS = "part of it depends on constants only, and XLA may compute that at compile time"
MOVED_CONSTANT = note("XLA may move or convert a constant at compile time: its bytes are an upper bound")
DONATED = note("an argument that is updated in place was donated: its bytes are an upper bound")


class Buffer(NamedTuple):
    """Where a value lies."""

    storage: int
    nbytes: float
    is_plain: bool = True  # its elements are in row-major order


class JaxprReader:
    """Reads a jaxpr into ``traces``."""

    def __init__(self, platform: str, *, compiled: bool = False) -> None:
        self.platform = platform
        self.compiled = compiled  # the jaxpr is of a compiled function, so that its constants are part of the program
        self.traces: list[OpTrace] = []
        self.allocations: set[int] = set()  # storages that the jaxpr makes
        self.has_loops = False
        self.donates = False  # a function in it takes over the memory of an argument
        self.constant_only: list[OpTrace] = []  # what depends on constants of a compiled function only
        self._fixed: set[int] = set()
        self._results: list[Any] = []  # of the jaxpr read last, where they are known
        self._constants: dict[int, Buffer] = {}
        self._number = count()

    def read_call(self, jaxpr: Any, constants: Sequence[Any], arguments: Sequence[Any]) -> set[int]:
        """Read the jaxpr of a call; return the storages of its results. An array that is given twice is one input."""
        values = arguments if len(arguments) == len(jaxpr.invars) else [variable.aval for variable in jaxpr.invars]
        inputs = [self._constant(value) if hasattr(value, "dtype") else None for value in values]
        if self.compiled:
            self._fixed.update(self._constant(value).storage for value in constants)
        results = self._read(jaxpr, constants, inputs, 1, arguments if len(arguments) == len(inputs) else ())
        survivors = set()
        for variable, result in zip(jaxpr.outvars, results):
            if variable in jaxpr.invars or variable in jaxpr.constvars:  # returned as it is
                continue
            out = result
            if out is None or out.storage not in self.allocations or out.nbytes < nbytes(variable.aval):  # copied after all
                out = self._new(variable.aval)
                trace = OpTrace("copy", *_regions([] if result is None else [result], [out]))
                self.traces.append(trace._replace(work=resize(_copy_work(variable.aval), trace, 0.0)))
            survivors.add(out.storage)
        return survivors

    def _read(
        self, jaxpr: Any, constants: Sequence[Any], inputs: Sequence[Buffer | None], times: int, values: Sequence[Any] = ()
    ) -> list[Buffer | None]:
        """Read a jaxpr that runs ``times`` over; return its results. values: of its arguments, where they are known."""
        buffers: dict[Any, Buffer | None] = dict(zip(jaxpr.invars, inputs))
        buffers.update((variable, self._constant(value)) for variable, value in zip(jaxpr.constvars, constants))
        known = KnownIntegers([*zip(jaxpr.invars, values), *zip(jaxpr.constvars, constants)])
        for eqn in _live_equations(jaxpr):
            operands = [None if hasattr(atom, "val") else buffers[atom] for atom in eqn.invars]
            buffers.update(zip(eqn.outvars, self._equation(eqn, operands, times, known)))
            known.follow(eqn)
        self._results = [known.of(atom) for atom in jaxpr.outvars]
        return [None if hasattr(atom, "val") else buffers[atom] for atom in jaxpr.outvars]

    def _new(self, aval: Any) -> Buffer:
        buffer = Buffer(next(self._number), nbytes(aval))
        self.allocations.add(buffer.storage)
        return buffer

    def _constant(self, value: Any) -> Buffer:
        if id(value) not in self._constants:
            self._constants[id(value)] = Buffer(next(self._number), nbytes(value))
        return self._constants[id(value)]

    def _equation(self, eqn: Any, inputs: Sequence[Buffer | None], times: int, known: KnownIntegers) -> Sequence[Buffer | None]:
        name = eqn.primitive.name
        if name in _LAYOUT:
            keeps_order = name not in ("transpose", "broadcast_in_dim", "bitcast_convert_type")
            first = inputs[: len(eqn.outvars)]
            return [buffer and buffer._replace(is_plain=buffer.is_plain and keeps_order) for buffer in first]
        if name in _CALLS:
            self.donates = self.donates or any(eqn.params.get("donated_invars", ()))
            inner = next(eqn.params[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in eqn.params)
            constants = getattr(inner, "consts", ())
            if name in ("jit", "pjit"):
                self._fixed.update(self._constant(value).storage for value in constants)
            values = [known.of(atom) for atom in eqn.invars]
            results = self._read(getattr(inner, "jaxpr", inner), constants, inputs, times, values)
            known.add(zip(eqn.outvars, self._results))
            return results
        if name == "scan":
            return self._scan(eqn, inputs, times)
        outputs = [self._new(variable.aval) for variable in eqn.outvars]
        if not all(math.prod(variable.aval.shape) for variable in eqn.outvars):
            return outputs
        variables = [variable for variable in (*eqn.invars, *eqn.outvars) if hasattr(variable, "aval")]
        if name in _MAPPED | _MOVED and all(math.prod(variable.aval.shape) == 1 for variable in variables):
            return outputs  # a counter, an index
        operands = [buffer for buffer in inputs if buffer is not None]
        trace = self._trace(eqn, operands, outputs, known)
        self._add(trace, times)
        if operands and all(buffer.storage in self._fixed for buffer in operands):
            self.constant_only.append(trace)
            self._fixed.update(buffer.storage for buffer in outputs)
        return outputs

    def _scan(self, eqn: Any, inputs: Sequence[Buffer | None], times: int) -> list[Buffer | None]:
        """Read a loop's body as often as it runs; what it carries from one run to the next stays inside."""
        self.has_loops = True
        body, length = eqn.params["jaxpr"], eqn.params["length"]
        fixed, carried = eqn.params["num_consts"], eqn.params["num_carry"]
        inner = [*inputs[:fixed], *(self._new(variable.aval) for variable in body.jaxpr.invars[fixed:])]
        self._read(body.jaxpr, body.consts, inner, times * length)
        outputs = [self._new(variable.aval) for variable in eqn.outvars]
        through = [buffer for buffer in inputs[fixed:] if buffer is not None]
        written = [buffer for buffer, variable in zip(outputs, eqn.outvars) if type(variable).__name__ != "DropVar"]
        if carried or written:
            self._add(OpTrace("scan", *_regions(through, written)), times)
        return list(outputs)

    def _add(self, trace: OpTrace, times: int) -> None:
        if times != 1 and trace.work is not None:
            models = [model._replace(bytes=times * model.bytes, flops=times * model.flops) for model in trace.work.candidates]
            trace = trace._replace(work=trace.work._replace(candidates=tuple(models)))
        self.traces.append(trace)

    def _trace(self, eqn: Any, inputs: list[Buffer], outputs: list[Buffer], known: KnownIntegers) -> OpTrace:
        name, out = eqn.primitive.name, eqn.outvars[0].aval
        reads, writes = _regions(inputs, outputs)
        base = OpTrace(name, reads, writes)
        part = _used_part(eqn, inputs, outputs, known) if reads else None
        if part is not None:
            reads = (part.of(reads[0]), *reads[1:])
            base = base._replace(reads=reads, is_bound=not part.exact, notes=() if part.exact else (UNKNOWN_ROWS,))
        try:
            if name in ("cond", "while"):
                return base._replace(flops=None, notes=(UNKNOWN_LOOP,))
            sizes_of_inputs = [math.prod(atom.aval.shape) for atom in eqn.invars]
            if sizes_of_inputs and not any(sizes_of_inputs):  # a product over no elements: zeros are written
                return base._replace(work=resize(_copy_work(out), base, 0.0))
            if name == "pallas_call":
                return _pallas(eqn, base)
            if name == "dot_general":
                return base._replace(work=_dot(eqn, base, self.platform))
            if name == "conv_general_dilated":
                return base._replace(work=_convolution(eqn, base, self.platform))
            if name in _PARTS | _MOVED:
                return base._replace(work=resize(_copy_work(out), base, 0.0))
            if name in _REDUCED:
                rows, source = math.prod(out.shape), eqn.invars[0].aval
                cols = max(math.prod(source.shape) // rows, 1)
                model = work("reduce", rows=rows, cols=cols, dtype=_dtype(source), out_dtype=_dtype(out))
                return base._replace(work=resize(model, base, model.flops if _has_floats(eqn) else 0.0))
            if name in _MAPPED | _WINDOWS:
                taps = math.prod(eqn.params["window_dimensions"]) if name in _WINDOWS else 1
                taps = 0 if name in _WINDOWS and taps == 1 else taps  # one element of a window is taken, not added
                changed = eqn.invars[2].aval if name in _UPDATES else out  # a scatter computes with its updates alone
                sizes = {"numel": math.prod(changed.shape), "inputs": len(reads), "outputs": len(writes)}
                model = work("elementwise", **sizes, dtype=_dtype(out))
                return base._replace(work=resize(model, base, taps * model.flops if _has_floats(eqn) else 0.0))
        except ValueError as error:  # a dtype or a size that the engine refuses
            return base._replace(flops=None, notes=(note(f"{name}: {error}"),))
        return base._replace(flops=None)


class KnownIntegers:
    """Integers of a jaxpr that are known without running it: those that are given, and what is computed from them alone."""

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
        if all(value is not None for value in values):
            self._values[eqn.outvars[0]] = eqn.primitive.bind(*values, **eqn.params)


def _is_index(value: Any) -> bool:
    dtype = str(getattr(value, "dtype", ""))
    return (dtype.startswith(("int", "uint")) or dtype == "bool") and math.prod(getattr(value, "shape", ())) <= MOST_INDICES


def _used_part(eqn: Any, inputs: Sequence[Buffer], outputs: Sequence[Buffer], known: KnownIntegers) -> Part | None:
    """Return what is read of the first operand; None for all of it."""
    name, source, params = eqn.primitive.name, eqn.invars[0].aval, eqn.params
    some: View = Unknown(("read by", outputs[0].storage))
    part = Part(min(outputs[0].nbytes, inputs[0].nbytes), some, True)
    if name == "slice" and inputs[0].is_plain and inputs[0].nbytes == nbytes(source):
        return _sliced_part(source, params)
    if name in ("slice", "dynamic_slice"):
        return part
    if name == "dynamic_update_slice":
        unchanged = Unknown(("all but", inputs[1].storage)) if len(inputs) > 1 else some
        return Part(inputs[0].nbytes - nbytes(eqn.invars[1].aval), unchanged, True)
    if name == "gather":
        numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
        index = known.of(eqn.invars[1])
        if index is None or any(sizes[at] != 1 for at in numbers.start_index_map) or numbers.operand_batching_dims:
            return part._replace(exact=False)
        limits = [source.shape[at] - 1 for at in numbers.start_index_map]  # JAX clamps what is out of bounds, or fills it
        rows = {tuple(map(min, row, limits)) for row in index.reshape(-1, index.shape[-1]).tolist()}
        whole_rows = numbers.start_index_map == (0,) and sizes[1:] == source.shape[1:]
        if whole_rows and inputs[0].is_plain and len(rows) <= MOST_LISTED:
            row = int(nbytes(source) // source.shape[0])
            return Part(float(len(rows) * row), Listed(row, tuple(sorted(max(at, 0) * row for (at,) in rows))), True)
        used = len(rows) * math.prod(sizes) * nbytes(source) / math.prod(source.shape)
        return Part(used, Unknown((hash(frozenset(rows)),)), True)
    if name in _WINDOWS and set(params["base_dilation"]) == {1}:
        axes = zip(source.shape, params["window_dimensions"], params["window_strides"], params["padding"],
                   params["window_dilation"], eqn.outvars[0].aval.shape)  # fmt: skip
        met = math.prod(positions_met(size, taps, hop, pad[0], step, out) for size, taps, hop, pad, step, out in axes)
        return Part(met * nbytes(source) / math.prod(source.shape), some, True)
    return None


def _sliced_part(source: Any, params: Any) -> Part:
    width = nbytes(source) / math.prod(source.shape)
    steps = params["strides"] or [1] * len(source.shape)
    axes = list(zip(source.shape, params["start_indices"], params["limit_indices"], steps))
    if width != int(width):  # elements of less than a byte
        return Part(width * math.prod(-(-(end - begin) // step) for _, begin, end, step in axes), Unknown(tuple(axes)), True)
    dims, start, stride = [], 0, int(width)
    for size, begin, end, step in axes[::-1]:
        start += begin * stride
        dims.append((-(-(end - begin) // step), step * stride))
        stride *= size
    view, covered = strided(start, int(width), dims)
    return Part(float(covered), view, True)


def _regions(inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> tuple[tuple[Region, ...], tuple[Region, ...]]:
    """Return what an operation reads and what it writes, each in full."""
    reads, writes = (tuple(Region(one.storage, None, one.nbytes, one.nbytes) for one in side) for side in (inputs, outputs))
    return reads, writes


def nbytes(aval: Any) -> float:
    """Return the bytes of an array of this shape and type; types under 8 bits are stored in their own width."""
    size = math.prod(aval.shape)
    try:
        return float(size * _dtype(aval).nbytes)
    except ValueError:
        return float(size * getattr(aval.dtype, "itemsize", 0))


def _dtype(aval: Any) -> Dtype:
    return parse_dtype(str(aval.dtype))


def _live_equations(jaxpr: Any) -> list[Any]:
    """Return the equations whose results are used: XLA drops the others."""
    used = {id(atom) for atom in jaxpr.outvars}
    live = []
    for eqn in reversed(jaxpr.eqns):
        if eqn.effects or any(id(variable) in used for variable in eqn.outvars):
            used.update(id(atom) for atom in eqn.invars)
            live.append(eqn)
    return live[::-1]


def _has_floats(eqn: Any) -> bool:
    """Return whether an operation has floating-point arithmetic: integers and booleans have no FLOPs."""
    dtypes = [str(variable.aval.dtype) for variable in (*eqn.invars, *eqn.outvars)]
    if any(dtype.startswith("complex") for dtype in dtypes):
        raise ValueError("complex arithmetic has no model")
    return any("float" in dtype for dtype in dtypes)


def _copy_work(out: Any) -> Work:
    return work("copy", rows=max(math.prod(out.shape[:-1]), 1), cols=out.shape[-1] if out.shape else 1, dtype=_dtype(out))


def _product_dtype(aval: Any, precision: Any, platform: str) -> Dtype:
    """Return the type in which a product runs. ``precision``: JAX's, two of them, the name of an algorithm, or None.

    On NVIDIA fp32 is TF32 unless the highest precision is asked for (docs.jax.dev, "Matmul precision"; jax#18934), on a TPU it
    is one pass of bf16 by default.
    """
    stored = _dtype(aval)
    names = {str(getattr(item, "name", item)) for item in (precision if isinstance(precision, tuple) else (precision,))}
    if not names <= {"None", "DEFAULT", "HIGH", "HIGHEST"}:
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


def _dot(eqn: Any, trace: OpTrace, platform: str) -> Work:
    (left, right), out = (variable.aval for variable in eqn.invars), eqn.outvars[0].aval
    (left_summed, right_summed), (left_batch, right_batch) = eqn.params["dimension_numbers"]
    if "complex" in str(out.dtype):
        raise ValueError("complex products have no model")
    precision = eqn.params.get("precision")
    a, b = _product_dtype(left, precision, platform), _product_dtype(right, precision, platform)
    model = work(
        "gemm",
        M=math.prod(size for at, size in enumerate(left.shape) if at not in (*left_summed, *left_batch)),
        N=math.prod(size for at, size in enumerate(right.shape) if at not in (*right_summed, *right_batch)),
        K=math.prod(left.shape[at] for at in left_summed),
        batch=math.prod(left.shape[at] for at in left_batch),
        dtype=a,
        weight_dtype=b,
        out_dtype=_dtype(out),
    )
    return resize(model, trace)


def _convolution(eqn: Any, trace: OpTrace, platform: str) -> Work:
    """Count 2 x outputs x inputs of a group x taps, as the engine does: taps in the padding too."""
    source, weight = (variable.aval for variable in eqn.invars)
    out, params = eqn.outvars[0].aval, eqn.params
    if set(params["lhs_dilation"]) - {1} or "complex" in str(out.dtype):
        raise ValueError("a transposed or complex convolution has no model")
    numbers = params["dimension_numbers"]
    spec = numbers.rhs_spec  # output features, input features of a group, taps
    flops = 2.0 * math.prod(out.shape) * math.prod(weight.shape[at] for at in spec[1:])
    dims = len(spec) - 2
    dtype = _product_dtype(source, params.get("precision"), platform)
    name = f"conv{dims}d" if dims in (1, 2, 3) else "unknown"
    text = f"{name}: {tuple(source.shape)} by {tuple(weight.shape)}, output {tuple(out.shape)}"
    extents = [source.shape[at] for at in numbers.lhs_spec[2:]]
    outputs = [out.shape[at] for at in numbers.out_spec[2:]]
    kernel = [weight.shape[at] for at in spec[2:]]
    axes = zip(extents, kernel, params["window_strides"], params["padding"], params["rhs_dilation"], outputs)
    met = math.prod(positions_met(size, taps, hop, pad[0], step, many) for size, taps, hop, pad, step, many in axes)
    skipped = nbytes(source) * (1 - met / math.prod(extents))
    candidate = ByteModel("input_weight_output", distinct(trace.reads, trace.writes) - skipped, flops)
    return Work(name, "gemm", (candidate,), "matrix", dtype, _dtype(weight), (note(text),))


def _pallas(eqn: Any, trace: OpTrace) -> OpTrace:
    """Take the estimate of a Pallas kernel's author; the body of the kernel is written for one block of a grid."""
    params = eqn.params
    name = params.get("name") or getattr(params.get("debug"), "func_name", "") or "pallas_call"
    notes = (INTERPRETED,) if params.get("interpret") else ()
    estimate = params.get("cost_estimate")
    trace = trace._replace(name=f"pallas_call {name}" if name != "pallas_call" else name)
    if estimate is None:
        return trace._replace(flops=None, notes=(*notes, note("a Pallas kernel without a cost_estimate")))
    products = [inner for inner in _equations_in(params["jaxpr"]) if inner.primitive.name == "dot_general"]
    dtype = _dtype(products[0].invars[0].aval) if products else parse_dtype("fp32")
    candidate = ByteModel("cost_estimate", float(estimate.bytes_accessed), float(estimate.flops + estimate.transcendentals))
    model = Work("unknown", "unknown", (candidate,), "matrix" if products else "vector", dtype, dtype, ())
    return trace._replace(work=model, notes=(*notes, note("bytes and FLOPs of its author's cost_estimate")))


def _equations_in(jaxpr: Any) -> Iterator[Any]:
    for eqn in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield eqn
        for value in eqn.params.values():
            for item in value if isinstance(value, (tuple, list)) else (value,):
                if hasattr(item, "eqns") or hasattr(item, "jaxpr"):
                    yield from _equations_in(item)


def capture(fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> CapturedWork:
    """Return the work of ``fn(*args, **kwargs)``, which is traced and not run. What tracing changes is put back."""
    jax, (fn, args, kwargs) = loaded("jax"), unwrap_partial(fn, args, kwargs or {})
    if jax is None:
        return CapturedWork("jax", reason="jax is not imported")
    try:
        leaves = jax.tree_util.tree_leaves((args, kwargs))
        devices = {device for leaf in leaves if isinstance(leaf, jax.Array) for device in leaf.devices()}
        if len(devices) > 1:
            return CapturedWork("jax", reason=f"its arrays lie on {len(devices)} devices")
        traced = _trace_function(jax, fn, args, kwargs)
    except Exception as error:  # also what the function's own code raises under a tracer
        return CapturedWork("jax", reason=f"JAX cannot trace it: {raised(error)}")
    reader = JaxprReader(_platform(jax, devices), compiled=traced.is_jitted)
    try:
        survivors = reader.read_call(traced.jaxpr.jaxpr, traced.jaxpr.consts, traced.arguments)
        captured = total("jax", reader.traces, allocations=reader.allocations, survivors=survivors)._replace(launches=None)
    except Exception as error:  # a jaxpr of another version
        return CapturedWork("jax", reason=f"the capture failed: {raised(error)}")
    if (any(traced.donated) or reader.donates) and any(trace.name in _UPDATES for trace in reader.traces):
        captured = captured._replace(certain=False).add_note(DONATED)
    return captured if captured.work is None else _compare_with_xla(captured, traced, reader)


class _Traced(NamedTuple):
    """A traced function."""

    jaxpr: Any  # closed
    arguments: Sequence[Any]
    compile: Callable[[], Any]
    donated: Sequence[bool]  # of each argument, whether its memory may be reused
    is_jitted: bool  # by the user


def _trace_function(jax: Any, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> _Traced:
    """Trace a jitted function as the user's calls are, from JAX's cache; any other as if it were jitted, with what it closes
    over as arguments."""
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
    values = [leaves[at] for at in arrays]
    with _unchanged(fn), _waiting_tracers(jax.core.Tracer):
        closed = jax.jit(call).trace(*values).jaxpr

    def compile_traced() -> Any:
        run = jax.jit(lambda constants, given: jax.core.eval_jaxpr(closed.jaxpr, constants, *given))
        return run.lower(closed.consts, values).compile()

    return _Traced(closed, values, compile_traced, (), False)


@contextmanager
def _waiting_tracers(tracer: Any) -> Iterator[None]:
    """Let a benchmark wait for its result while it is traced."""
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
    """Put back what a function assigns, or puts into a list, dictionary, set or object that it reaches: a tracer left there
    would fail the user's next call."""
    with ExitStack() as stack:
        for holder, keys in variable_holders(fn):
            values = present_items(holder, keys)
            stack.callback(_restore_items, holder, values, keys)
            for value in [fn, *values.values()]:
                if isinstance(value, functools._lru_cache_wrapper):
                    stack.callback(_clear_if_filled, value, value.cache_info().misses)
            for container in _containers(list(values.values())):
                if isinstance(container, dict):
                    stack.callback(_restore_items, container, dict(container), None)
                elif isinstance(container, list):
                    stack.callback(container.__setitem__, slice(None), list(container))
                else:
                    stack.callback(container.update, set(container))  # after the next
                    stack.callback(container.clear)
        yield


def _containers(values: Sequence[Any], depth: int = 3) -> Iterator[Any]:
    for value in values[:MOST_REACHED]:
        container = value if isinstance(value, (dict, list, set)) else attributes(value)
        if container is not None:
            yield container
            if depth > 1:
                yield from _containers(list(container.values() if isinstance(container, dict) else container), depth - 1)


def _restore_items(holder: Any, before: Mapping[Any, Any], keys: list[Any] | None) -> None:
    for key in present_items(holder, keys).keys() - before.keys():
        del holder[key]
    for key, value in before.items():
        if key in holder:
            assign(holder, key, value)
        else:
            holder[key] = value


def _clear_if_filled(cached: Any, misses: int) -> None:
    """Clear a cache that took up results while the function was traced."""
    if cached.cache_info().misses != misses:
        cached.cache_clear()


def _platform(jax: Any, devices: set[Any]) -> str:
    """Return cuda, rocm, tpu or cpu."""
    client = next(iter(devices)).client if devices else jax.devices()[0].client
    platform = str(client.platform)
    return ("rocm" if "rocm" in str(client.platform_version).lower() else "cuda") if platform == "gpu" else platform


def _compare_with_xla(captured: CapturedWork, traced: _Traced, reader: JaxprReader) -> CapturedWork:
    """List XLA's bytes as a candidate, and drop the work where XLA computes much less than was traced."""
    op_work = captured.work
    assert op_work is not None
    folds = any(trace.work is None or trace.work.flops for trace in reader.constant_only)
    if reader.constant_only and not folds:
        captured = captured._replace(certain=False).add_note(MOVED_CONSTANT)
    unchecked = captured._replace(work=None, reason=CONSTANTS) if folds else captured
    if len(reader.traces) > MOST_COMPILED:
        return unchecked.add_note(note(f"{len(reader.traces)} operations: not compiled for XLA's own count"))
    try:
        program = traced.compile()
        cost = program.cost_analysis()
        cost = cost[0] if isinstance(cost, (list, tuple)) else cost
        text = program.as_text() or ""
    except Exception as error:
        return unchecked.add_note(note(f"no cost_analysis: {raised(error)}"))
    figures = {key: float(cost.get(key, 0.0)) for key in ("flops", "transcendentals", "bytes accessed", "optimal_seconds")}
    partial = ""  # why XLA's count is of a part
    if reader.has_loops:
        partial = "it has a loop, whose body counts once"
    elif "custom-call" in text:
        partial = "it calls a library"
    elif min(figures.values()) < 0:
        partial = "it is negative"
    if partial:
        return unchecked.add_note(note(f"XLA's own count is not of the whole: {partial}"))
    works = [trace.work for trace in reader.traces if trace.work is not None]
    ours, theirs = sum(one.flops for one in works), figures["flops"] + figures["transcendentals"]
    products = sum(one.flops for one in works if one.engine == "matrix")
    counts = f"XLA counts {quantity(theirs, 'FLOP')}, {quantity(ours, 'FLOP')} were traced"
    if theirs < FOLDED * products or (ours and not theirs) or (folds and theirs < (1 - APART) * ours):
        reason = f"{counts}: it computes with constants at compile time, or leaves work out"
        return captured._replace(work=None, reason=reason)
    if figures["bytes accessed"] > 0:
        candidate = ByteModel("xla_bytes_accessed", figures["bytes accessed"], op_work.flops, in_range=False)
        captured = captured._replace(work=op_work._replace(candidates=(*op_work.candidates, candidate)))
    return captured.add_note(note(counts)) if abs(theirs - ours) > APART * ours > 0 else captured
