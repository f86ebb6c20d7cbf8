"""Definitions of flashinfer-bench and SOL-ExecBench: axes, symbolic shapes and dtypes, and the work they give.

Axes are ``const``, ``var`` (a number in each workload) or ``expr`` (arithmetic over the others). As an adapter this module
knows a definition and refuses it: it has no times.
"""

from __future__ import annotations

import ast
import math
import operator
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from roofline_engine.ops import work
from roofline_engine.units import Dtype, parse_dtype, whole, wider

from .row import RecordRow
from .source import RefusedError, Sample, Source, outline, parse
from .values import buildable, label, mapping, shown

NAME = "definition JSON"

#: Definitions are small, and a folder holds some hundreds: what is beyond these is not one.
_LARGEST = 2_000_000
_MOST_FILES = 5_000
#: Levels above the traces at which a ``definitions`` folder is looked for: traces lie in a folder per op type.
_LEVELS_ABOVE = 3
#: Of what workloads gave, this many are kept.
_MOST_ANSWERS = 4096
#: More bytes than any memory holds.
_MOST_BYTES = 1e18
#: Ops that read as much of an input as the data says.
_BY_DATA = ("paged", "moe", "sampling", "sparse", "dsa", "gather", "embedding")


def matches(sample: Sample) -> bool:
    """Axes, inputs and outputs of a named op."""
    keys = outline(sample.text)
    return keys >= {".name", ".axes", ".inputs"} and not keys.isdisjoint((".op_type", ".outputs", ".reference"))


def read(source: Source) -> Iterator[RecordRow]:
    """No rows.

    Raises:
        RefusedError: always.
    """
    raise RefusedError(f"{source.label}: a definition, which has no times: give the traces that name it")


Answer = tuple[dict[str, Any] | None, str, tuple[str, ...]]


class Definitions:
    """The definitions beside a file of traces, each read once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._found: dict[str | None, Mapping[str, Any]] = {}
        self._paths: list[Path] | None = None
        self._known: dict[str, Mapping[str, Any]] = {}
        self._answers: dict[object, Answer] = {}

    def work(self, name: str | None, workload: Mapping[str, Any]) -> Answer:
        """As ``work_of``, with the reason also where there is no definition or it cannot be understood.

        Many solutions run the same workloads, so what those gave is kept.
        """
        inputs = workload.get("inputs")
        key = (name, repr(workload.get("axes")), tuple(inputs) if isinstance(inputs, dict) else None)
        if key not in self._answers:
            if len(self._answers) >= _MOST_ANSWERS:
                self._answers.clear()
            try:
                self._answers[key] = work_of(self.find(name), workload)
            except (ValueError, OverflowError) as error:
                self._answers[key] = None, str(error), ()
        return self._answers[key]

    def find(self, name: str | None) -> Mapping[str, Any]:
        """The definition of a name; of traces that name none, the ``definition.json`` beside them.

        Raises:
            ValueError: where there is none.
        """
        if name not in self._found:
            self._found[name] = self._look(name)
        if not self._found[name]:
            beside = f"no definition {shown(name)}" if name else "no definition is named, and no definition.json lies"
            raise ValueError(f"{beside} beside the traces, so their shapes are not known")
        return self._found[name]

    def _look(self, name: str | None) -> Mapping[str, Any]:
        if name is None:
            return _definition(self._folder / "definition.json")
        if self._paths is None:
            self._paths = list(_candidates(self._folder))
        for path in self._paths:
            if path.stem == name and (found := _definition(path)).get("name") == name:
                return found
        while self._paths and name not in self._known:
            found = _definition(self._paths.pop(0))
            if isinstance(found.get("name"), str):
                self._known.setdefault(found["name"], found)
        return self._known.get(name, {})


def _candidates(folder: Path) -> Iterator[Path]:
    """JSON files beside, then those of ``definitions`` folders above, within bounds."""
    left = _MOST_FILES
    roots = [folder / "definitions", *(above / "definitions" for above in list(folder.resolve().parents)[:_LEVELS_ABOVE])]
    for root, deep in ((folder, False), *((root, True) for root in roots)):
        for at, folders, names in os.walk(root):
            folders[:] = sorted(folders) if deep else []
            for name in sorted(names):
                if left and name.endswith(".json"):
                    left -= 1
                    yield Path(at, name)


def _definition(path: Path) -> Mapping[str, Any]:
    """A file's definition; empty where it is none."""
    try:
        with path.open("rb") as stream:
            data = stream.read(_LARGEST + 1)
        whole = parse(data.decode("utf-8-sig"), path.name) if len(data) <= _LARGEST and b'"axes"' in data else None
    except (OSError, ValueError):  # not readable, not UTF-8, not JSON
        return {}
    return whole if isinstance(whole, dict) and whole.keys() >= {"axes", "inputs", "outputs"} else {}


class _Tensor:
    """One operand with its logical shape; a scalar has none."""

    def __init__(self, name: str, shape: tuple[int, ...], dtype: Dtype) -> None:
        self.name, self.dtype = name, dtype
        stored = math.prod(shape)
        self.nbytes = stored * dtype.pack * dtype.nbytes
        self.shape = (*shape[:-1], shape[-1] * dtype.pack)
        self.numel = stored * dtype.pack


def work_of(definition: Mapping[str, Any], workload: Mapping[str, Any]) -> Answer:
    """Keywords of work, the reason where there are none, and notes.

    Bytes are every input and output once. FLOPs are the engine's where the op and its shapes are known to it; otherwise they
    stay unknown. Where the data tells how much of an input is read, the sum would be too much, and there is no work.

    Raises:
        ValueError: for axes, shapes and dtypes that cannot be understood.
    """
    kind = label(definition.get("op_type")).lower()
    sizes = _axes(mapping(definition.get("axes")), mapping(workload.get("axes")))
    given = workload.get("inputs")
    inputs = _tensors(definition, "inputs", sizes, given if isinstance(given, dict) else None)
    outputs = _tensors(definition, "outputs", sizes, None)
    if not inputs or not outputs:
        raise ValueError("the definition has no input or no output with a shape")
    for part in _BY_DATA:
        if part in kind:
            return None, f"op type {kind}: how much of its inputs is read stands in the data", ()
    for tensor in inputs:
        if tensor.dtype.name in ("int32", "int64"):
            return None, f"input {label(tensor.name)} is of indices: how much of the others is read stands in the data", ()
    nbytes = sum(tensor.nbytes for tensor in (*inputs, *outputs))
    if nbytes > _MOST_BYTES:
        raise ValueError(f"its operands have {nbytes:.3g} bytes, more than any memory holds")
    shaped = _SHAPED.get(kind)
    keywords = shaped(inputs, outputs, nbytes) if shaped else None
    if keywords is None:
        done, why = buildable({"bytes": nbytes})
        return done, why, ("FLOPs are not known: only the memory roof is tested",)
    done, why = buildable(keywords)
    return done, why, ()


def _axes(declared: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, int]:
    """Every axis as a number.

    Raises:
        ValueError: naming the axis.
    """
    sizes: dict[str, int] = {}
    formulas = {}
    for name, axis in declared.items():
        kind = mapping(axis).get("type")
        if kind == "const":
            sizes[name] = whole(mapping(axis).get("value"), f"axis {label(name)}")
        elif kind == "expr":
            formulas[name] = mapping(axis).get("expression", mapping(axis).get("value"))
        else:
            if name not in given:
                raise ValueError(f"axis {label(name)} has no value in the workload")
            sizes[name] = whole(given[name], f"axis {label(name)}")
    for name, formula in formulas.items():
        sizes[name] = whole(_evaluated(formula, sizes, f"axis {label(name)}"), f"axis {label(name)}")
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


def _evaluated(formula: object, sizes: Mapping[str, int], what: str) -> float:
    """Arithmetic over axes, by the four operations and remainders alone."""
    if isinstance(formula, int) and not isinstance(formula, bool):
        return formula
    if not isinstance(formula, str) or len(formula) > _LONGEST_FORMULA:
        raise ValueError(f"{what} is {shown(formula)}, expected a short formula over axes")

    def value(node: ast.expr) -> float:
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            return float(node.value) if isinstance(node.value, float) else int(node.value)  # type: ignore[arg-type]
        if isinstance(node, ast.Name) and node.id in sizes:
            return sizes[node.id]
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return float(_OPERATORS[type(node.op)](value(node.left), value(node.right)))
        raise ValueError(f"{what} is {shown(formula)}, expected arithmetic over axes that come before it")

    try:
        return value(ast.parse(formula, mode="eval").body)
    except (SyntaxError, ZeroDivisionError, RecursionError, MemoryError, OverflowError):
        raise ValueError(f"{what} is {shown(formula)}, expected arithmetic over axes") from None


def _tensors(
    definition: Mapping[str, Any], side: str, sizes: Mapping[str, int], given: Mapping[str, Any] | None
) -> list[_Tensor]:
    """The operands of one side; a scalar, and an optional input that the workload leaves out, is none."""
    found = []
    for name, spec in mapping(definition.get(side)).items():
        spec = mapping(spec)
        shape = spec.get("shape")
        left_out = given is not None and name not in given and spec.get("optional") is True
        if shape is None or shape == [] or left_out:
            continue
        if not isinstance(shape, list):
            raise ValueError(f"{side}.{label(name)}: shape is {shown(shape)}, expected a list of axes")
        dims = tuple(_dim(item, sizes, f"{side}.{label(name)}") for item in shape)
        try:
            dtype = parse_dtype(spec.get("dtype"))
        except ValueError as error:
            raise ValueError(f"{side}.{label(name)}: {error}") from None
        found.append(_Tensor(name, dims, dtype))
    return found


def _dim(item: object, sizes: Mapping[str, int], what: str) -> int:
    if isinstance(item, str) and item in sizes:
        return sizes[item]
    return whole(_evaluated(item, sizes, what), what)


def _gemm(inputs: list[_Tensor], outputs: list[_Tensor], nbytes: float) -> dict[str, Any] | None:
    """A (.., M, K) and B (.., N, K) or (.., K, N) to C (.., M, N); scales and biases only add their bytes."""
    if len(outputs) != 1 or len(inputs) < 2:
        return None
    a, b, c = inputs[0], inputs[1], outputs[0]
    if not len(a.shape) == len(b.shape) == len(c.shape) or not 2 <= len(a.shape) <= 3:
        return None
    (m, k), n, batch = a.shape[-2:], c.shape[-1], a.shape[:-2]
    if c.shape != (*batch, m, n) or b.shape not in ((*batch, n, k), (*batch, k, n)):
        return None
    count = math.prod(batch)
    if wider(a.dtype, b.dtype).peak is None:
        return None
    if a.dtype.pack == b.dtype.pack == c.dtype.pack == 1:
        keywords = {"op": "gemm", "M": m, "N": n, "K": k, "dtype": a.dtype.name}
        keywords |= {"weight_dtype": b.dtype.name, "out_dtype": c.dtype.name} | ({"batch": count} if count > 1 else {})
        if _same(keywords, nbytes):
            return keywords
    flops = 2.0 * count * m * n * k
    dtype = wider(a.dtype, b.dtype).name
    return {"op": "gemm", "bytes": nbytes, "flops": flops, "dtype": dtype, "weight_dtype": b.dtype.name, "engine": "matrix"}


def _rmsnorm(inputs: list[_Tensor], outputs: list[_Tensor], nbytes: float) -> dict[str, Any] | None:
    """Rows of the last axis and a weight of its length, with or without a residual of the same shape."""
    x = max(inputs, key=lambda tensor: len(tensor.shape))
    whole_rows = [tensor for tensor in inputs if tensor.shape == x.shape]
    weights = [tensor for tensor in inputs if tensor.shape == x.shape[-1:]]
    if len(x.shape) < 2 or len(weights) != 1 or len(whole_rows) + 1 != len(inputs) or len(whole_rows) > 2:
        return None
    if any(tensor.shape != x.shape for tensor in outputs):
        return None
    cols = x.shape[-1]
    keywords = {
        "op": "rmsnorm",
        "rows": x.numel // cols,
        "cols": cols,
        "dtype": x.dtype.name,
        "out_dtype": outputs[0].dtype.name,
    }
    if len(whole_rows) == 2:
        keywords["residual"] = True
    flops = 5.0 if len(whole_rows) == 2 else 4.0  # of an element, as the engine counts them
    return keywords if _same(keywords, nbytes) else _streamed("rmsnorm", nbytes, flops * x.numel, x.dtype)


def _rope(inputs: list[_Tensor], outputs: list[_Tensor], nbytes: float) -> dict[str, Any] | None:
    """3 FLOPs per rotated element, as the engine counts them; rotated is what an output of an input's own shape holds."""
    shapes = [tensor.shape for tensor in inputs]
    rotated = [tensor for tensor in outputs if tensor.shape in shapes]
    if not rotated or len(rotated) != len(outputs):
        return None
    return _streamed("rope", nbytes, 3.0 * sum(tensor.numel for tensor in rotated), rotated[0].dtype)


def _streamed(op: str, nbytes: float, flops: float, dtype: Dtype) -> dict[str, Any]:
    """Declared bytes with the FLOPs of an op whose math is in fp32 on the vector units."""
    return {"op": op, "bytes": nbytes, "flops": flops, "dtype": "fp32", "weight_dtype": dtype.name, "engine": "vector"}


def _same(keywords: Mapping[str, Any], nbytes: float) -> bool:
    """Whether the engine's model of the op moves the bytes that the definition declares."""
    try:
        return abs(work(**keywords).bytes - nbytes) <= 1e-9 * nbytes
    except ValueError:
        return False


_SHAPED: Mapping[str, Callable[[list[_Tensor], list[_Tensor], float], dict[str, Any] | None]] = {
    "gemm": _gemm,
    "rmsnorm": _rmsnorm,
    "fused_add_rmsnorm": _rmsnorm,
    "rope": _rope,
}
