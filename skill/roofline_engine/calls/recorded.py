"""An operation as a profiler recorded it, and the case of shapes.json that it is: the op, its parameters, the bytes it moves.

A profiler records the inputs of an operation by their place: shapes, dtypes, strides, and the values of numbers. The names of
the arguments and the shapes of the results come from ``signatures``.
"""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from ..units import parse_dtype
from ..work import Work
from . import aten
from .call import (
    BatchFacts,
    Call,
    OpSpec,
    SpecWork,
    TensorFacts,
    engine_work,
    is_tensor,
    plain_parameters,
    touched_bytes,
    work_of,
)
from .serving import serving_schema
from .signatures import POINTWISE, REDUCTIONS, SAME_AS, signature_of

NO_SHAPES = "the trace has no shapes: profile with record_shapes=True"


class OpFacts(NamedTuple):
    """One operation as recorded. An input without a shape is a number, a list of them, or missing."""

    name: str  # with its namespace: aten::mm
    shapes: tuple[Any, ...] = ()  # a tuple of sizes for each tensor, of tuples for each list of tensors
    dtypes: tuple[str, ...] = ()  # c10::BFloat16, Scalar, ScalarList, TensorList, or empty
    strides: tuple[Any, ...] = ()
    concrete: tuple[str, ...] = ()  # the values of numbers, flags and lists, as text
    batch: BatchFacts | None = None  # what a range around it says of the sequences


class Modeled(NamedTuple):
    """What a recorded operation is to the engine."""

    case: Mapping[str, Any] | None = None  # as in shapes.json; None without a model
    reason: str = ""  # why there is no case
    notes: tuple[str, ...] = ()  # what the case rests on
    has_model: bool = False  # the operation has a model, whether or not its arguments fit


_NOT_TENSORS = ("", "Scalar", "ScalarList", "TensorList", "GenericList", "None")


def read_argument(facts: OpFacts, at: int, list_dtype: str) -> Any:
    """Return one recorded input: a ``TensorFacts``, a list of them, a number, a flag, a list of numbers, or None."""
    dtype = facts.dtypes[at] if at < len(facts.dtypes) else ""
    shape = facts.shapes[at] if at < len(facts.shapes) else ()
    stride = facts.strides[at] if at < len(facts.strides) else None
    if dtype not in _NOT_TENSORS:
        fits = stride is not None and len(stride) == len(shape)
        return TensorFacts(shape, dtype, stride if fits else None)
    if shape and isinstance(shape[0], tuple):
        strides = stride if stride is not None and len(stride) == len(shape) else [None] * len(shape)
        return [
            TensorFacts(sizes, list_dtype, steps if steps is not None and len(steps) == len(sizes) else None)
            for sizes, steps in zip(shape, strides)
        ]
    return read_value(facts.concrete[at] if at < len(facts.concrete) else "")


@lru_cache(maxsize=4096)
def read_value(text: str) -> Any:
    """Return a number, flag or list that a profiler recorded as text; None where it recorded nothing."""
    if not text or text == "None":
        return None
    try:
        return literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        plain = text.strip("[]() ")
        if plain and all(part.strip().lower() in ("true", "false") for part in plain.split(",")):
            return [part.strip().lower() == "true" for part in plain.split(",")]
        return text


class RecordedCall(Call):
    """A call whose tensors were recorded: no values, and the dtype of fp32 products as the kernel's name tells it."""

    __slots__ = ("batch", "runs_tf32")

    def __init__(self, name: str, values: Mapping[str, Any], reads: Any, writes: Any, runs_tf32: bool = False) -> None:
        super().__init__(name, values, reads, writes)
        self.runs_tf32 = runs_tf32
        self.batch: BatchFacts | None = None  # what a range around the call says of its sequences

    def matrix_dtype(self, tensor: Any, *, convolution: bool = False) -> Any:
        """Return the dtype in which a product of this tensor runs."""
        return "tf32" if self.runs_tf32 and parse_dtype(tensor.dtype).name == "fp32" else tensor.dtype


def aten_call(facts: OpFacts, kernels: Sequence[str]) -> RecordedCall | None:
    """Return the call of an operation of PyTorch; None where its arguments are not known.

    Raises:
        ValueError: where the recorded inputs do not fit the operation.
    """
    base = facts.name.rpartition("::")[2]
    signature = signature_of(base)
    in_place = base.endswith("_")
    dtype = list_dtype(kernels)
    inputs = [read_argument(facts, at, dtype) for at in range(max(len(facts.shapes), len(facts.dtypes)))]
    if signature is None:
        return None
    names, outputs = signature
    if base == "arange":
        names = {1: ("end",), 2: ("start", "end")}.get(_count_numbers(inputs), names)
    if base.startswith("sum") and len(inputs) == 2:  # sum(self, dtype)
        names = ("self", "dtype")
    values = dict(zip(names, inputs))
    tensors = _flat(inputs)
    out = _flat(inputs[len(names) :]) if not base.startswith("_foreach_") else []
    if base.rstrip("_") in ("max", "min") and is_tensor(values.get("dim")):
        values["other"] = values.pop("dim")
    reads = [tensor for tensor in tensors if not any(tensor is one for one in out)]
    if in_place:
        writes = _flat([inputs[0]])
        if base in aten.WRITE_ONLY:
            reads = [tensor for tensor in reads if not any(tensor is one for one in writes)]
    elif out:
        writes = [TensorFacts(made.shape, one.dtype) for made, one in zip(outputs(values, reads), out)]
    else:
        writes = outputs(values, reads)
    if base in aten.WRITE_ONLY and not in_place:
        reads = []
    return RecordedCall(SAME_AS.get(base, base), values, reads, writes, runs_tf32=any(map(_runs_tf32, kernels)))


def _count_numbers(inputs: Sequence[Any]) -> int:
    numbers = 0
    for value in inputs:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            break
        numbers += 1
    return numbers if numbers < 3 else 3


def _flat(values: Sequence[Any]) -> list[Any]:
    tensors = []
    for value in values:
        if is_tensor(value):
            tensors.append(value)
        elif isinstance(value, list):
            tensors += [one for one in value if is_tensor(one)]
    return tensors


_OPAQUE = re.compile(r"OpaqueType<(\d+)u?>")
_LIST_DTYPES = re.compile(r"c10::BFloat16|c10::Half|c10::Float8_e\w+|\bdouble\b|\bfloat\b|\blong\b|\bint\b")
_WIDTHS = {1: "uint8", 2: "bf16", 4: "fp32", 8: "int64", 16: "complex128"}


def list_dtype(kernels: Sequence[str]) -> str:
    """Return the dtype of a list of tensors, which is not recorded, by the template arguments of its kernel; else empty."""
    for name in kernels:
        opaque = _OPAQUE.search(name)
        if opaque:
            return _WIDTHS.get(int(opaque.group(1)), "")
    for name in kernels:
        named = _LIST_DTYPES.search(name)
        if named:
            return named.group()
    return ""


def _runs_tf32(kernel: str) -> bool:
    """Return whether a product of fp32 ran as TF32: cuBLAS, CUTLASS and cuDNN name it, or the instruction 16x8x8."""
    low = kernel.lower()
    return "tf32" in low or "s1688gemm" in low or "xf32" in low


def _plain_distinct(reads: Sequence[Any], writes: Sequence[Any]) -> float:
    return sum(map(touched_bytes, reads)) + sum(map(touched_bytes, writes))


def case_of(call: Call, specs: Sequence[OpSpec]) -> Modeled:
    """Return the case of a call: one op with its parameters, and bytes or FLOPs where they are not the formula's."""
    works: list[tuple[OpSpec, SpecWork]] = []
    for spec in specs:
        if spec.op is None:
            return Modeled(None, spec.notes[0].text if spec.notes else "it has no model")
        reads = call.reads if spec.reads is None else spec.reads
        writes = call.writes if spec.writes is None else spec.writes

        def distinct(read: Sequence[Any], written: Sequence[Any], spec: OpSpec = spec) -> float:
            return sum(
                min(touched_bytes(tensor), spec.parts[id(tensor)].nbytes) if id(tensor) in spec.parts else touched_bytes(tensor)
                for tensor in (*read, *written)
            )

        result = work_of(spec, reads, writes, distinct)
        if result.work is None:
            return Modeled(None, result.notes[0].text if result.notes else "it has no model", has_model=True)
        works.append((spec, result))
    spec, result = max(works, key=lambda item: (item[1].work.flops, item[1].work.bytes) if item[1].work else (0.0, 0.0))
    assert result.work is not None
    assert spec.op is not None
    case: dict[str, Any] = {"op": spec.op, **plain_parameters(tuple(spec.parameters.items()))}
    formula: Work = engine_work(spec)
    nbytes = sum(one.work.bytes for _, one in works if one.work)
    flops = sum(one.work.flops for _, one in works if one.work)
    if abs(nbytes - formula.bytes) > 1e-9 * nbytes:
        case["bytes"] = nbytes
    if flops != formula.flops:
        case["flops"] = flops
    if spec.is_bound:
        case["least_bytes"] = sum(map(touched_bytes, call.writes if spec.writes is None else spec.writes))
    return Modeled(case, "", tuple(item.text for item in spec.notes), has_model=True)


@lru_cache(maxsize=65536)
def model(facts: OpFacts, kernels: tuple[str, ...] = ()) -> Modeled:
    """Return what a recorded operation is to the engine.

    kernels: the names of its kernels, which tell the dtype of lists of tensors and whether fp32 ran as TF32.
    """
    namespace = facts.name.rpartition("::")[0]
    if not facts.shapes and not facts.dtypes:
        return Modeled(None, NO_SHAPES, has_model=has_model(facts.name))
    try:
        if namespace == "aten":
            call = aten_call(facts, kernels)
            if call is None:
                return Modeled(None, "it has no model")
            if not call.writes:
                return Modeled(None, "its results are unknown", has_model=True)
            name = call.name
            build = aten.spec_builder(
                name,
                is_pointwise=name.rstrip("_") in POINTWISE,
                is_reduction=name in REDUCTIONS,
            )
            built = build(call)
            return case_of(call, built if isinstance(built, list) else [built])
        if is_fused(facts.name):
            return _fused_case(facts)
        schema = serving_schema(facts.name)
        if schema is not None:
            names, serve = schema
            inputs = [read_argument(facts, at, "") for at in range(max(len(facts.shapes), len(facts.dtypes)))]
            values = dict(zip(names, inputs))
            call = RecordedCall(facts.name, values, _flat(inputs), [])
            call.batch = facts.batch
            built = serve(call)
            return case_of(call, built if isinstance(built, list) else [built])
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, ZeroDivisionError) as error:
        what = str(error) if type(error) is ValueError else f"its recorded inputs do not fit: {type(error).__name__}: {error}"
        return Modeled(None, what[:200], has_model=True)
    return Modeled(None, "it has no model")


#: Operations that run as several others with models of their own, and are one piece of work to who calls them: a convolution
#: with its bias, attention by one fused kernel with what prepares its inputs.
_WHOLE = ("aten::convolution", "aten::convolution_backward", "aten::_scaled_dot_product_")
_STEPWISE = "aten::_scaled_dot_product_attention_math"


def is_whole(name: str) -> bool:
    """Return whether everything that an operation runs belongs to it, whatever models the inner operations have."""
    return name.startswith(_WHOLE) and name != _STEPWISE


def is_fused(name: str) -> bool:
    """Return whether an operation is a kernel that Inductor generated: its name says what it fused, not what it moves."""
    return name.startswith(("triton_poi_", "triton_red_", "triton_per_"))


def _fused_case(facts: OpFacts) -> Modeled:
    """Count each argument of a generated kernel once: its FLOPs, and what it reads twice or writes in place, are unknown."""
    tensors = _flat([read_argument(facts, at, "") for at in range(len(facts.shapes))])
    if not tensors:
        return Modeled(None, "its arguments are not recorded", has_model=True)
    case = {
        "op": "elementwise",
        "numel": max(tensor.numel() for tensor in tensors),
        "dtype": tensors[0].dtype,
        "bytes": _plain_distinct(tensors, ()),
        "flops": 0,
        "coverage": "args",
    }
    return Modeled(case, "", ("a generated kernel: the bytes of its arguments, each once",), has_model=True)


def has_model(name: str) -> bool:
    """Return whether operations of this name have a model, so that their kernels are one unit of work."""
    if is_fused(name):
        return True
    namespace, _, base = name.rpartition("::")
    if namespace != "aten":
        return serving_schema(name) is not None
    return signature_of(base) is not None
