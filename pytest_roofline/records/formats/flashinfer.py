"""FlashInfer: the CSV of its benchmarks; the traces and definitions of flashinfer-bench, which SOL-ExecBench writes too."""

from __future__ import annotations

import ast
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from roofline_engine.files import read_text
from roofline_engine.ops import work
from roofline_engine.units import Dtype, parse_dtype, whole, wider_dtype

from ..source import DocumentFormat, RecordRow, RefusedError, Sample, Source, outline, parse
from ..table import RATES, TIMES, Fields, Table, TableFormat, clean, dtype, flag, real, size
from ..values import NO_FLOPS, build_row, check_work, label, mapping, maybe_seconds, ratio, short_repr
from .aiter import mistakes_of

# The benchmarks' CSV: one row a routine, backend and shape. All routines share one header, which repeats a name where two of
# them use it (num_tokens, top_k), and leave the others' columns empty. The printed bytes of a batched product are those of one
# of the batch.


class _MissingError(Exception):
    """Why a row does not give its work."""


class _Cells:
    """One row by column name; of a repeated name, the first cell that is filled."""

    def __init__(self, places: Mapping[str, list[int]], fields: Fields) -> None:
        self._places, self._fields = places, fields

    def text(self, name: str) -> str:
        return next((cell for place in self._places.get(name, ()) if (cell := self._fields[place].strip())), "")

    def get(self, name: str, read: Callable[[str, str], Any] = size, default: Any = None) -> Any:
        """Return the value of a cell, or ``default``. Raises _MissingError for an empty cell without a default."""
        text = self.text(name)
        if not text and default is None:
            raise _MissingError(f"the row gives no {name}")
        return read(text, name) if text else default

    def sizes(self, **names: str) -> dict[str, int]:
        return {key: self.get(name) for key, name in names.items()}


def _read_benchmarks(table: Table) -> Iterator[RecordRow]:
    routine, backend = table.place("routine"), table.find("backend")
    table.place("tb_per_sec")
    timing = table.timing("median_time", TIMES["ms"], {name: RATES[name] for name in ("tflops", "tb_per_sec")})
    places = {name.lower(): table.every(name) for name in table.names}

    def row(where: str, fields: Fields) -> Iterable[RecordRow]:
        cells = _Cells(places, fields)
        name = fields[routine].strip()
        work, no_work = _work_of_routine(name, cells)
        yield RecordRow(
            row=where,
            name=clean(f"{name} {'' if backend is None else fields[backend]}"),
            work=work,
            no_work=no_work,
            clock="device-event" if cells.get("no_cuda_graph", flag, True) else "device-graph",
            known_mistakes=mistakes_of(work),
            **timing(fields),
        )

    return table.records(row)


def _work_of_routine(routine: str, cells: _Cells) -> tuple[dict[str, Any] | None, str]:
    """Return the keywords of the work model, or None and the reason."""
    if routine not in _ROUTINES:
        return None, f"no work model for routine {clean(routine)[:60]}"
    try:
        return _ROUTINES[routine](cells), ""
    except _MissingError as error:
        return None, f"{routine}: {error}"


def _product(dtype_of: str | Callable[[_Cells], str], batch: str = "") -> Callable[[_Cells], dict[str, Any]]:
    """Return what reads a GEMM whose dtype the routine's name or a column gives. ``batch`` is the column of the batch."""

    def work(cells: _Cells) -> dict[str, Any]:
        sizes = cells.sizes(M="m", N="n", K="k")
        a = dtype_of if isinstance(dtype_of, str) else dtype_of(cells)
        more = {"batch": cells.get(batch)} if batch else {}
        return {"op": "gemm", **sizes, "dtype": a, "out_dtype": cells.get("out_dtype", dtype), **more}

    return work


def _group_gemm(cells: _Cells) -> dict[str, Any]:
    groups, rows = cells.get("group_size"), cells.get("m")
    work = {"op": "grouped_gemm", "M": groups * rows, **cells.sizes(N="n", K="k"), "groups": groups}
    return {**work, "group_sizes": [rows] * groups, "dtype": "fp8", "out_dtype": cells.get("out_dtype", dtype)}


def _attention(op: str, cells: _Cells, **sizes: str) -> dict[str, Any]:
    q = cells.get("q_dtype", dtype)
    dtypes = {"dtype": q, "out_dtype": cells.get("out_dtype", dtype, q), "kv_dtype": cells.get("kv_dtype", dtype, q)}
    return {"op": op, **cells.sizes(batch="batch_size", n_q_heads="num_qo_heads", **sizes), **dtypes}


def _lengths(cells: _Cells) -> dict[str, Any]:
    mean = cells.get("avg_actual_seq_len", lambda text, name: real(text, name, above=0.0), 0.0)
    return {"seq_len": mean or cells.get("s_kv"), "seq_q": cells.get("s_qo", default=1)}


_GQA = {"n_kv_heads": "num_kv_heads", "head_dim": "head_dim_qk", "head_dim_v": "head_dim_vo"}


def _decode(cells: _Cells) -> dict[str, Any]:
    return {**_attention("attn_decode", cells, **_GQA), **_lengths(cells)}


def _mla(cells: _Cells) -> dict[str, Any]:
    return {**_attention("mla_decode", cells, kv_lora_rank="head_dim_ckv", rope_dim="head_dim_kpe"), **_lengths(cells)}


def _prefill(cells: _Cells) -> dict[str, Any]:
    if cells.get("random_actual_seq_len", flag, False):
        raise _MissingError("lengths drawn at random: their squares are not in the row")
    work = _attention("attn_prefill", cells, **_GQA, seq_q="s_qo", seq_kv="s_kv")
    return {**work, "causal": cells.get("causal", flag)}


def _rmsnorm(cells: _Cells) -> dict[str, Any]:
    rows, a = cells.get("batch_size") * cells.get("num_heads", default=1), cells.get("input_dtype", dtype)
    return {"op": "rmsnorm", "rows": rows, "cols": cells.get("hidden_size"), "dtype": a}


def _softmax(cells: _Cells) -> dict[str, Any]:
    return {"op": "softmax", **cells.sizes(rows="batch_size", cols="vocab_size"), "dtype": cells.get("input_dtype", dtype)}


def _moe_fp8(cells: _Cells) -> dict[str, Any]:
    experts = cells.get("num_experts")
    if cells.get("local_num_experts", default=experts) != experts or cells.get("tp_size", default=1) != 1:
        raise _MissingError("one rank of several: the row does not give which experts its tokens reach")
    sizes = cells.sizes(tokens="num_tokens", hidden="hidden_size", inter="intermediate_size", top_k="top_k")
    return {"op": "moe", **sizes, "experts": experts, "dtype": "fp8", "out_dtype": "bf16"}


_ROUTINES: Mapping[str, Callable[[_Cells], dict[str, Any]]] = {
    "gemm_fp8_nt_groupwise": _product("fp8"),
    "mm_fp8": _product("fp8"),
    "mm_mxfp8": _product("mxfp8"),
    "mm_bf16": _product("bf16"),
    "mm_fp4": _product(lambda cells: "nvfp4" if cells.get("use_nvfp4", flag) else "mxfp4"),
    "bmm_fp8": _product(lambda cells: cells.get("input_dtype", dtype), "batch_size"),
    "bmm_mxfp8": _product("mxfp8", "batch_size"),
    "bmm_bf16": _product("bf16", "batch_size"),
    "group_gemm_fp8_nt_groupwise": _group_gemm,
    "BatchDecodeWithPagedKVCacheWrapper": _decode,
    "BatchMLAPagedAttentionWrapper": _mla,
    "BatchPrefillWithPagedKVCacheWrapper": _prefill,
    "BatchPrefillWithRaggedKVCacheWrapper": _prefill,
    "rmsnorm": _rmsnorm,
    "softmax": _softmax,
    "trtllm_fp8_block_scale_moe": _moe_fp8,
    "trtllm_fp8_per_tensor_scale_moe": _moe_fp8,
}


# Traces: JSON lines with a workload and what a solution took on it (``latency_ms``). A trace names a definition, whose axes,
# shapes and dtypes give the work. The baseline is the definition's torch reference: ``reference``, where 1000x is usual.

_WORKLOAD_KEYS = {".axes", ".inputs", ".uuid"}
_TRACE_KEYS = {".definition", ".workload"}
#: Statuses of an output that was compared and is wrong.
_WRONG = ("INCORRECT", "REWARD_HACK")


def _is_trace(sample: Sample) -> bool:
    keys = outline(sample.first)
    return keys >= _TRACE_KEYS or (keys >= _WORKLOAD_KEYS and ".outputs" not in keys)


def _read_traces(source: Source) -> Iterator[RecordRow]:
    definitions = Definitions(source.path.parent)
    for number, line in enumerate(source.lines(), 1):
        if line.strip():
            where = f"line {number}"
            try:
                trace = parse(line, where)
                problem = "" if isinstance(trace, dict) else "expected an object with definition, workload and evaluation"
            except RefusedError as error:
                problem = str(error)
            yield RecordRow(row=where, refused=problem, refused_code="row") if problem else _trace(trace, where, definitions)


def _trace(line: Mapping[str, Any], where: str, definitions: Definitions) -> RecordRow:
    name = line.get("definition")
    workload = mapping(line.get("workload")) if "workload" in line else line
    evaluation = mapping(line.get("evaluation"))
    work, notes = definitions.work(name if isinstance(name, str) else None, workload)
    solution = label(line.get("solution"))
    fields: dict[str, Any] = {
        "name": label(name),
        "device": label(mapping(evaluation.get("environment")).get("hardware")) or None,
        "notes": (*notes, *((f"solution {solution}",) if solution else ())),
    }
    status = evaluation.get("status")
    if status != "PASSED":
        correct = False if isinstance(status, str) and status.startswith(_WRONG) else None
        refused = f"status is {label(status) or 'missing'}, so it was not timed"
        refused = refused if evaluation else "no time: a workload that was not evaluated"
        return RecordRow(row=where, work=work[0], no_work=work[1], refused=refused, correct=correct, **fields)
    times = mapping(evaluation.get("performance"))
    baseline, problem = maybe_seconds(times, "reference_latency_ms")
    fields["notes"] += problem
    return build_row(
        where,
        times,
        "latency_ms",
        work=work,
        baseline=("reference", baseline),
        speedup=ratio(times.get("speedup_factor")),
        correct=True,
        **fields,
    )


# Definitions: axes, symbolic shapes and dtypes, and the work they give. Axes are ``const``, ``var`` (a number in each workload)
# or ``expr`` (arithmetic over the others).

#: Definitions are small (characters), and a folder holds some hundreds: larger files are not definitions.
_LARGEST = 2_000_000
_MOST_FILES = 5_000
#: A ``definitions`` folder is looked for in so many levels above the traces, which lie in a folder per op type.
_LEVELS_ABOVE = 3
#: More bytes than any memory holds.
_MOST_BYTES = 1e18
#: Ops that read as much of an input as the data says.
_BY_DATA = ("paged", "moe", "sampling", "sparse", "dsa", "gather", "embedding")

Answer = tuple[tuple["dict[str, Any] | None", str], tuple[str, ...]]  # keywords of work or why they are missing, notes


def _is_definition(sample: Sample) -> bool:
    keys = sample.keys
    return keys >= {".name", ".axes", ".inputs"} and not keys.isdisjoint((".op_type", ".outputs", ".reference"))


def _refuse_definition(source: Source) -> Iterator[RecordRow]:
    raise RefusedError(f"{source.label}: a definition, which has no times: give the traces that name it")


class Definitions:
    """The definitions next to a file of traces, each read once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read = cache(_definition)
        self._by_name: dict[str | None, Mapping[str, Any]] = {}

    def work(self, name: str | None, workload: Mapping[str, Any]) -> Answer:
        """Return as ``work_of_definition`` does, with the reason also when the definition is missing or wrong."""
        try:
            return work_of_definition(self.find(name), workload)
        except (ValueError, OverflowError) as error:
            return (None, str(error)), ()

    def find(self, name: str | None) -> Mapping[str, Any]:
        """Return the definition of a name; for traces that name none, the ``definition.json`` next to them.

        Raises ValueError when it is missing.
        """
        if name not in self._by_name:
            # Most files are named after their definition, so those are read first.
            paths = sorted(self._paths, key=lambda path: path.stem != name) if name else [self._folder / "definition.json"]
            definitions = map(self._read, paths)
            self._by_name[name] = next((one for one in definitions if name is None or one.get("name") == name), {})
        if not self._by_name[name]:
            missing = f"definition {short_repr(name)}" if name else "definition.json (the trace names no definition)"
            raise ValueError(f"shapes are not known: {missing} is missing next to the traces")
        return self._by_name[name]

    @cached_property
    def _paths(self) -> list[Path]:
        """Return the JSON files next to the traces, then those of ``definitions`` folders above."""
        above = list(self._folder.resolve().parents)[:_LEVELS_ABOVE]
        paths = [path for path in sorted(self._folder.glob("*.json")) if path.is_file()]
        for root in (self._folder, *above):
            paths += sorted(itertools.islice((root / "definitions").rglob("*.json"), _MOST_FILES))
        return paths[:_MOST_FILES]


def _definition(path: Path) -> Mapping[str, Any]:
    """Return the definition in a file; empty when the file is something else."""
    try:
        text = read_text(str(path), _LARGEST)
        whole = parse(text, path.name) if '"axes"' in text else None
    except ValueError:  # not readable, not text, not JSON
        return {}
    return whole if isinstance(whole, dict) and whole.keys() >= {"axes", "inputs", "outputs"} else {}


class _Tensor:
    """One operand with its logical shape; a scalar has none."""

    def __init__(self, name: str, shape: tuple[int, ...], dtype: Dtype) -> None:
        self.name, self.dtype = name, dtype
        self.shape = (*shape[:-1], shape[-1] * dtype.pack)
        self.numel = math.prod(self.shape)
        self.nbytes = self.numel * dtype.nbytes


def work_of_definition(definition: Mapping[str, Any], workload: Mapping[str, Any]) -> Answer:
    """Return the keywords of the work, or None and the reason; and notes.

    Bytes are every input and output once. FLOPs are the engine's when it knows the op and its shapes; otherwise they stay
    unknown. When the data decides how much of an input is read, the sum would be too much, and the work is missing.

    Raises ValueError for axes, shapes and dtypes that cannot be understood.
    """
    kind = label(definition.get("op_type")).lower()
    sizes = _axes(mapping(definition.get("axes")), mapping(workload.get("axes")))
    names = workload.get("inputs")
    inputs = _tensors(definition, "inputs", sizes, names if isinstance(names, dict) else None)
    outputs = _tensors(definition, "outputs", sizes, None)
    if not inputs or not outputs:
        raise ValueError("the definition has no input or no output with a shape")
    if any(part in kind for part in _BY_DATA):
        return (None, f"op type {kind}: the data decides how much of its inputs is read"), ()
    for tensor in inputs:
        if tensor.dtype.name in ("int32", "int64"):
            return (None, f"input {label(tensor.name)} holds indices: the data decides how much of the others is read"), ()
    nbytes = sum(tensor.nbytes for tensor in (*inputs, *outputs))
    if nbytes > _MOST_BYTES:
        raise ValueError(f"its operands have {nbytes:.3g} bytes, more than any memory holds")
    shaped = _SHAPED.get(kind)
    keywords = shaped(inputs, outputs, nbytes) if shaped else None
    return check_work(keywords or {"bytes": nbytes}), () if keywords else (NO_FLOPS,)


def _axes(axes: Mapping[str, Any], workload: Mapping[str, Any]) -> dict[str, int]:
    """Return every axis as a number. Raises ValueError with the axis."""
    sizes: dict[str, int] = {}
    formulas = {}
    for name, axis in axes.items():
        kind = mapping(axis).get("type")
        if kind == "const":
            sizes[name] = whole(mapping(axis).get("value"), f"axis {label(name)}")
        elif kind == "expr":
            formulas[name] = mapping(axis).get("expression", mapping(axis).get("value"))
        elif name in workload:
            sizes[name] = whole(workload[name], f"axis {label(name)}")
        else:
            raise ValueError(f"axis {label(name)} has no value in the workload")
    for name, formula in formulas.items():
        sizes[name] = _size(formula, sizes, f"axis {label(name)}")
    return sizes


_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}
_LONGEST_FORMULA = 200


def _size(formula: object, sizes: Mapping[str, int], what: str) -> int:
    """Evaluate a size: a number, an axis, or arithmetic over axes (four operations and remainders)."""
    if isinstance(formula, int):
        return whole(formula, what)
    if isinstance(formula, str) and formula in sizes:
        return sizes[formula]
    if not isinstance(formula, str) or len(formula) > _LONGEST_FORMULA:
        raise ValueError(f"{what} is {short_repr(formula)}, expected a short formula over axes")

    def value(node: ast.expr) -> float:
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            return node.value  # type: ignore[return-value]
        if isinstance(node, ast.Name) and node.id in sizes:
            return sizes[node.id]
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return float(_OPERATORS[type(node.op)](value(node.left), value(node.right)))
        raise ValueError(f"{what} is {short_repr(formula)}, expected arithmetic over axes that come before it")

    try:
        result = value(ast.parse(formula, mode="eval").body)
    except (SyntaxError, ZeroDivisionError, RecursionError, MemoryError, OverflowError):
        raise ValueError(f"{what} is {short_repr(formula)}, expected arithmetic over axes") from None
    return whole(result, what)


def _tensors(
    definition: Mapping[str, Any], side: str, sizes: Mapping[str, int], workload: Mapping[str, Any] | None
) -> list[_Tensor]:
    """Return the operands of one side, without scalars and without optional inputs that the workload leaves out."""
    tensors = []
    for name, spec in mapping(definition.get(side)).items():
        spec, what = mapping(spec), f"{side}.{label(name)}"
        shape = spec.get("shape")
        is_left_out = workload is not None and name not in workload and spec.get("optional") is True
        if shape is None or shape == [] or is_left_out:
            continue
        if not isinstance(shape, list):
            raise ValueError(f"{what}: shape is {short_repr(shape)}, expected a list of axes")
        dims = tuple(_size(item, sizes, what) for item in shape)
        try:
            dtype = parse_dtype(spec.get("dtype"))
        except ValueError as error:
            raise ValueError(f"{what}: {error}") from None
        tensors.append(_Tensor(name, dims, dtype))
    return tensors


def _shaped_gemm(inputs: list[_Tensor], outputs: list[_Tensor], nbytes: float) -> dict[str, Any] | None:
    """Return A (.., M, K) by B (.., N, K) or (.., K, N) to C (.., M, N); scales and biases only add their bytes."""
    if len(outputs) != 1 or len(inputs) < 2:
        return None
    a, b, c = inputs[0], inputs[1], outputs[0]
    if not len(a.shape) == len(b.shape) == len(c.shape) or not 2 <= len(a.shape) <= 3:
        return None
    (m, k), n, batch = a.shape[-2:], c.shape[-1], a.shape[:-2]
    if c.shape != (*batch, m, n) or b.shape not in ((*batch, n, k), (*batch, k, n)):
        return None
    count = math.prod(batch)
    if wider_dtype(a.dtype, b.dtype).peak is None:
        return None
    if a.dtype.pack == b.dtype.pack == c.dtype.pack == 1:
        dtypes = {"dtype": a.dtype.name, "weight_dtype": b.dtype.name, "out_dtype": c.dtype.name}
        modeled = _modeled(nbytes, op="gemm", M=m, N=n, K=k, **dtypes, **({"batch": count} if count > 1 else {}))
        if modeled:
            return modeled
    flops = 2.0 * count * m * n * k
    dtype = wider_dtype(a.dtype, b.dtype).name
    return {"op": "gemm", "bytes": nbytes, "flops": flops, "dtype": dtype, "weight_dtype": b.dtype.name, "engine": "matrix"}


def _shaped_rmsnorm(inputs: list[_Tensor], outputs: list[_Tensor], nbytes: float) -> dict[str, Any] | None:
    """Return rows of the last axis with a weight of its length, with or without a residual of the same shape."""
    x = max(inputs, key=lambda tensor: len(tensor.shape))
    whole_rows = [tensor for tensor in inputs if tensor.shape == x.shape]
    weights = [tensor for tensor in inputs if tensor.shape == x.shape[-1:]]
    if len(x.shape) < 2 or len(weights) != 1 or len(whole_rows) + 1 != len(inputs) or len(whole_rows) > 2:
        return None
    if any(tensor.shape != x.shape for tensor in outputs):
        return None
    cols, residual = x.shape[-1], {"residual": True} if len(whole_rows) == 2 else {}
    dtypes = {"dtype": x.dtype.name, "out_dtype": outputs[0].dtype.name}
    flops = 5.0 if residual else 4.0  # of an element, as the engine counts them
    modeled = _modeled(nbytes, op="rmsnorm", rows=x.numel // cols, cols=cols, **dtypes, **residual)
    return modeled or _streamed("rmsnorm", nbytes, flops * x.numel, x.dtype)


def _shaped_rope(inputs: list[_Tensor], outputs: list[_Tensor], nbytes: float) -> dict[str, Any] | None:
    """Return 3 FLOPs per rotated element, as the engine counts them; an output with the shape of an input is rotated."""
    shapes = [tensor.shape for tensor in inputs]
    rotated = [tensor for tensor in outputs if tensor.shape in shapes]
    if not rotated or len(rotated) != len(outputs):
        return None
    return _streamed("rope", nbytes, 3.0 * sum(tensor.numel for tensor in rotated), rotated[0].dtype)


def _modeled(nbytes: float, **keywords: Any) -> dict[str, Any] | None:
    """Return the keywords when the engine's model of the op moves the bytes that the definition declares."""
    with suppress(ValueError):
        if abs(work(**keywords).bytes - nbytes) <= 1e-9 * nbytes:
            return keywords
    return None


def _streamed(op: str, nbytes: float, flops: float, dtype: Dtype) -> dict[str, Any]:
    """Return declared bytes with the FLOPs of an op whose math is in fp32 on the vector units."""
    return {"op": op, "bytes": nbytes, "flops": flops, "dtype": "fp32", "weight_dtype": dtype.name, "engine": "vector"}


_SHAPED: Mapping[str, Callable[[list[_Tensor], list[_Tensor], float], dict[str, Any] | None]] = {
    "gemm": _shaped_gemm,
    "rmsnorm": _shaped_rmsnorm,
    "fused_add_rmsnorm": _shaped_rmsnorm,
    "rope": _shaped_rope,
}


BENCHMARK = TableFormat(
    "FlashInfer benchmark",
    lambda names: {"routine", "median_time", "tb_per_sec"} <= names,
    _read_benchmarks,
    "routine, median_time, tflops, tb_per_sec, backend, and the sizes of the routine",
)
TRACE = DocumentFormat(
    "Trace JSON lines", _is_trace, _read_traces, "a line a run: definition, workload, evaluation; the definition's file nearby"
)
DEFINITION = DocumentFormat("definition JSON", _is_definition, _refuse_definition, "no times: check the trace beside it")
