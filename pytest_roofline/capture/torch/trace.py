"""From an operation of torch to its ``OpTrace``: its schema, the memory of its tensors and the engine's work.

Imports torch, so it is imported only after the user's code imported torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from roofline_engine.calls.aten import FREE, TABLE, WRITE_ONLY, spec_builder
from roofline_engine.calls.call import OpSpec, Part, work_of
from roofline_engine.fields import note
from roofline_engine.work import Work

from ...values import attributes, contents, is_kind
from ..trace import OpTrace, Region, Strided, distinct, strided
from .ops import Call, rows_part

if TYPE_CHECKING:
    from roofline_engine.calls.call import Builders


class Schema(NamedTuple):
    """What torch knows about an operation."""

    label: str
    name: str
    arguments: tuple[str, ...]
    written: tuple[str, ...]  # arguments that it writes to
    unread: tuple[str, ...]  # arguments that it does not read
    build: Builders
    is_view: bool  # its result is another view of the same memory
    is_free: bool  # nothing is computed or moved
    ignores_values: bool  # its result does not depend on the values of its tensors, as with ``zeros_like``
    is_composite: bool  # torch runs it as other operations, which are recorded instead


#: The schemas of the operations that have run.
SCHEMAS: dict[Any, Schema] = {}


def read_schema(func: Any) -> Schema:
    """Return the schema of a dispatched operation; one that takes functions (``cond``, ``flex_attention``) has none."""
    schema = SCHEMAS[func] = _read_schema(func)
    return schema


def _read_schema(func: Any) -> Schema:
    if not isinstance(func, torch._ops.OpOverload):
        label = str(func)
        return Schema(
            label, label, (), (), (), spec_builder(label, is_pointwise=False, is_reduction=False), False, False, False, False
        )
    arguments = func._schema.arguments
    base = func.overloadpacket.__name__
    written = tuple(item.name for item in arguments if item.alias_info is not None and item.alias_info.is_write)
    unread = tuple(item.name for item in arguments if item.is_out)
    write_only = base in WRITE_ONLY
    label = f"{func.namespace}.{base}"
    name = base if func.namespace in ("aten", "prim", "prims") else label
    return Schema(
        label,
        name,
        tuple(item.name for item in arguments),
        written,
        unread + written if write_only else unread,
        spec_builder(name, is_pointwise=torch.Tag.pointwise in func.tags, is_reduction=torch.Tag.reduction in func.tags),
        bool(func.is_view) or torch.Tag.inplace_view in func.tags,
        base in FREE,
        write_only and not written,
        name not in TABLE and _can_decompose(func),
    )


def _can_decompose(func: Any) -> bool:
    try:
        return bool(func._can_decompose())
    except RuntimeError:  # not an operation of the dispatcher, such as prim::device
        return False


def trace_op(label: str, call: Call, spec: OpSpec, launches: int = 1) -> OpTrace:
    """Return one operation with the engine's work of ``spec``, or without work where the engine has no model."""
    reads = call.reads if spec.reads is None else spec.reads
    writes = call.writes if spec.writes is None else spec.writes
    regions = call.regions

    def cover(tensors: Sequence[Any]) -> list[Region]:
        if not spec.parts:
            return [regions[id(tensor)] for tensor in tensors]
        return [spec.parts.get(id(tensor), _WHOLE).of(regions[id(tensor)]) for tensor in tensors]

    def count(read: Sequence[Any], written: Sequence[Any]) -> float:
        return distinct(cover(read), cover(written))

    op_work, flops, notes = work_of(spec, reads, writes, count)
    dtype = op_work.dtype.name if op_work is not None else None
    crosses = _crosses_devices(reads, writes)
    if crosses:
        notes = (note("a copy between devices is not the traffic of one memory"),)
    bound = crosses or spec.is_bound
    return OpTrace(label, tuple(cover(reads)), tuple(cover(writes)), (), op_work, flops, dtype, bound, launches, notes)


_WHOLE = Part(0.0, None, True)


def sparse_parts(tensor: Any) -> tuple[Any, ...]:
    """Return the tensors that a sparse matrix is stored in, its values first; empty for any other tensor."""
    if tensor.layout is torch.sparse_csr:
        return tensor.values(), tensor.col_indices(), tensor.crow_indices()
    if tensor.layout is torch.sparse_csc:
        return tensor.values(), tensor.row_indices(), tensor.ccol_indices()
    return (tensor._values(), tensor._indices()) if tensor.layout is torch.sparse_coo and tensor.sparse_dim() == 2 else ()


#: The operands of products with a sparse matrix, by operation; the last is what is added.
SPARSE_PRODUCTS = {
    "mm": ("self", "mat2", ""),
    "mv": ("self", "vec", ""),
    "addmm": ("mat1", "mat2", "self"),
    "_sparse_addmm": ("mat1", "mat2", "self"),
}


def sparse_product(call: Call, operands: Sequence[Any], parts: Sequence[Any]) -> OpSpec:
    """Model a sparse matrix times a dense one, in either order.

    operands: of the product; parts: of the one that is sparse, as ``sparse_parts`` gives them.
    """
    (first, second), values, is_right = operands, parts[0], operands[1].layout is not torch.strided
    matrix, dense = (second, first) if is_right else (first, second)
    if values.dtype.is_complex or values.dim() > 1:
        return OpSpec(None, notes=(note("products of this sparse matrix have no model"),))
    rows, cols = matrix.shape
    if matrix.layout is torch.sparse_coo:
        kind, inner = "coo", parts[1][0 if is_right else 1]
    else:
        is_listed = (matrix.layout is torch.sparse_csr) != is_right  # the index that is summed over is stored
        kind = "csr" if is_listed else "csc"
        inner = parts[1] if is_listed else parts[2].diff().nonzero().reshape(-1)
    n = dense.numel() // (rows if is_right else cols)
    sizes = {"rows": cols if is_right else rows, "cols": rows if is_right else cols, "nnz": values.numel(), "format": kind}
    sizes |= {"n": n} if dense.dim() > 1 else {}
    dtypes = {"dtype": values.dtype, "weight_dtype": dense.dtype, "out_dtype": call.writes[0].dtype, "index_dtype": inner.dtype}
    used = rows_part(call, dense, [1 if is_right else 0], [inner])
    return OpSpec("spmm" if dense.dim() > 1 else "spmv", {**sizes, **dtypes}, exact=True, parts={id(dense): used})


def _crosses_devices(reads: Sequence[Any], writes: Sequence[Any]) -> bool:
    """Return whether data moves between devices; a scalar on the host is a parameter."""
    first = writes[0].device
    for tensor in reads:  # noqa: SIM110  # a generator costs as much as all the rest
        if tensor.device != first and tensor.dim():
            return True
    return False


class DecomposedAttention(NamedTuple):
    """Attention that ran as several operations."""

    first: int  # its first autograd node, by sequence number
    last: int  # the number after its last autograd node
    work: Work  # of its backward pass
    steps: list[int]  # which operations are its backward pass


def merge_backward(traces: Sequence[OpTrace], decomposed: Sequence[DecomposedAttention]) -> list[OpTrace]:
    """Replace each backward pass that ran as several operations by one, in the place of its first step."""
    merged: list[OpTrace | None] = list(traces)
    for item in decomposed:
        if not item.steps:
            continue
        steps = [traces[at] for at in item.steps]
        inner = {region.storage for step in steps for region in step.writes}
        reads = dict.fromkeys(region for step in steps for region in step.reads if region.storage not in inner)
        writes = dict.fromkeys(region for step in steps for region in step.writes)
        name = "scaled_dot_product_attention backward"
        for at in item.steps:
            merged[at] = None
        merged[item.steps[0]] = OpTrace(name, tuple(reads), tuple(writes), work=item.work, launches=len(steps))
    return [trace for trace in merged if trace is not None]


class Storages:
    """The allocations of one capture, numbered in the order of their first use.

    They are referenced weakly, so that a capture needs no more memory than the call. The address of an allocation is not
    reused while a weak reference to it exists, and the reference tells whether the allocation outlived the call. The references
    are torch's bare ones, not ``StorageWeakRef``: thousands of objects would trigger full garbage collections.
    """

    def __init__(self) -> None:
        self.allocations: set[int] = set()  # storages that the call made
        self._refs: list[int] = []
        self._whole: list[int] = []
        self._numbers: dict[int, int] = {}
        self._free = torch.UntypedStorage._free_weak_ref

    def __del__(self) -> None:
        for reference in self._refs:
            self._free(reference)

    def __len__(self) -> int:
        return len(self._refs)

    def number(self, tensor: Any, is_new: bool = False) -> int:
        """Return the number of a tensor's allocation; is_new: the call has just made the storage, if it has no number."""
        storage = tensor.untyped_storage()
        number = self._numbers.get(storage._cdata)
        if number is None:
            self._numbers[storage._cdata] = number = len(self._refs)
            self._refs.append(storage._weak_ref())
            self._whole.append(storage.nbytes())
            if is_new:
                self.allocations.add(number)
        return number

    def region(self, tensor: Any, is_new: bool = False) -> Region:
        """Return what a tensor covers, each byte once. Two views of the same bytes are one region, whatever their shapes."""
        number = self.number(tensor, is_new)
        width = tensor.element_size()
        start = tensor.storage_offset() * width
        if tensor.is_contiguous():
            nbytes = tensor.numel() * width
            return Region(number, Strided(start, nbytes), nbytes, self._whole[number])
        dims = zip(tensor.size(), tensor.stride())
        view, nbytes = strided(start, width, [(size, stride * width) for size, stride in dims])
        return Region(number, view, nbytes, self._whole[number])

    def survivors(self) -> set[int]:
        """Return the storages that the call made and that still exist."""
        return {number for number in self.allocations if not torch.UntypedStorage._expired(self._refs[number])}


_PLAIN = (torch.Tensor, torch.nn.Parameter)


def has_own_dispatch(tensor: Any) -> bool:
    """Return whether a tensor's class dispatches by itself, so that its storage is not what it computes on."""
    kind = type(tensor)
    return kind not in _PLAIN and kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def unsupported(tensors: Iterable[Any]) -> str:
    """Describe the first of these tensors that has no regions; empty where all have."""
    for tensor in tensors:
        if has_own_dispatch(tensor):
            return f"a tensor of the class {type(tensor).__name__}"
        if tensor.is_nested:
            return "a nested tensor"
        if tensor.layout is not torch.strided:
            return f"a tensor of the layout {str(tensor.layout).removeprefix('torch.')}"
    return ""


def tensors_of(value: Any) -> list[Any]:
    """Return the tensors of an argument or a result, also of nested lists."""
    if isinstance(value, torch.Tensor):
        return [value]
    if not is_kind(value, (list, tuple)):
        return []
    tensors = []
    for item in value:
        if isinstance(item, torch.Tensor):
            tensors.append(item)
        elif isinstance(item, (list, tuple)):
            tensors += tensors_of(item)
    return tensors


#: Values in one container of a result that are searched for tensors.
MOST_RESULTS = 1_000


def result_tensors(value: Any, depth: int = 4) -> list[Any]:
    """Return the tensors of what a call returned, also in dictionaries and in attributes of objects."""
    if is_kind(value, torch.Tensor):
        return [value]
    if not depth:
        return []
    items = contents(value, MOST_RESULTS)
    if items is None:
        items = islice(tuple((attributes(value) or {}).values()), MOST_RESULTS)
    return [tensor for item in items for tensor in result_tensors(item, depth - 1)]
