"""One call of a framework's operation, and the engine's op that a builder makes of it.

A tensor is anything with the methods of ``TensorFacts``: a live tensor of torch, or the shape, dtype and strides that a
profiler recorded. What only live tensors tell, the values of indices and masks, is a method of ``Call`` for a subclass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from ..fields import Note, note
from ..ops import work
from ..units import parse_dtype
from ..work import Work

UNKNOWN_MASK = note("it is unknown what the mask of the attention hides: counted as if it hid nothing")
#: The bytes of a table are those of all that its indices may name.
UNKNOWN_ROWS = note("which rows its indices name is unknown: the bytes of its table are an upper bound")
_number = count()


class TensorFacts:
    """The shape, dtype and strides of a tensor, with the methods of a torch tensor that tell them."""

    __slots__ = ("_stride", "dtype", "shape")

    def __init__(self, shape: Sequence[int], dtype: str, stride: Sequence[int] | None = None) -> None:
        self.shape = tuple(shape)
        self.dtype = dtype  # as ``parse_dtype`` reads it
        self._stride = tuple(stride) if stride is not None else dense_strides(self.shape)

    def __repr__(self) -> str:
        return f"TensorFacts({self.shape}, {self.dtype!r}, {self._stride})"

    def size(self) -> tuple[int, ...]:
        return self.shape

    def stride(self) -> tuple[int, ...]:
        return self._stride

    def dim(self) -> int:
        return len(self.shape)

    def numel(self) -> int:
        return math.prod(self.shape)

    def element_size(self) -> float:
        """Return the bytes of one storage element.

        Raises:
            ValueError: for an unknown dtype.
        """
        dtype = parse_dtype(self.dtype)
        return dtype.value_bits * dtype.pack / 8

    def is_contiguous(self) -> bool:
        return all(
            size == 1 or stride == dense for size, stride, dense in zip(self.shape, self._stride, dense_strides(self.shape))
        )


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor, in elements."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def touched_bytes(tensor: Any) -> float:
    """Return the distinct bytes of a tensor: an expanded dimension adds nothing, overlapping windows count their span."""
    dims = [(size, stride) for size, stride in zip(tensor.shape, tensor.stride()) if size != 1]
    if any(not size for size, _ in dims):
        return 0.0
    distinct = math.prod(size for size, stride in dims if stride)
    span = 1 + sum((size - 1) * abs(stride) for size, stride in dims)
    return float(min(distinct, span) * tensor.element_size())


def is_tensor(value: Any) -> bool:
    """Return whether an argument is a tensor, live or recorded."""
    return hasattr(value, "element_size")


def nbytes_of(tensor: Any) -> float:
    """Return the bytes of all elements of a tensor, repeated ones included."""
    return float(tensor.numel() * tensor.element_size())


def broadcast(shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return the shape that these shapes broadcast to.

    Raises:
        ValueError: for shapes that do not fit.
    """
    out: list[int] = []
    for shape in shapes:
        out = [1] * (len(shape) - len(out)) + out
        for at, size in enumerate(reversed(shape), 1):
            if out[-at] == 1:
                out[-at] = size
            elif size not in (1, out[-at]):
                raise ValueError(f"shapes {' and '.join(map(str, map(tuple, shapes)))} do not broadcast")
    return tuple(out)


class Unknown(NamedTuple):
    """Some bytes, unknown which. Views with the same key cover the same bytes."""

    key: tuple[object, ...]


class Part(NamedTuple):
    """How much of a tensor is used."""

    nbytes: float
    view: Any  # which bytes: an ``Unknown``, or a view that the capture can compare; None: all of it
    exact: bool  # False: ``nbytes`` is an upper bound

    def of(self, region: Any) -> Any:
        """Return the region of a tensor, a named tuple with ``nbytes`` and ``view``, of which only this part is used."""
        if self.view is None or self.nbytes >= region.nbytes:
            return region
        return region._replace(nbytes=self.nbytes, view=self.view)


def unknown_part(nbytes: float, *, exact: bool = True) -> Part:
    """Return a part of so many bytes, unknown which: its view is equal to no other."""
    return Part(float(nbytes), Unknown(("unique", next(_number))), exact)


def all_of(tensor: Any) -> Part:
    return Part(nbytes_of(tensor), None, True)


class Call:
    """One operation with its arguments. The methods bound what depends on values; a subclass with live tensors reads it."""

    __slots__ = ("name", "reads", "values", "writes")

    def __init__(self, name: str, values: Mapping[str, Any], reads: Sequence[Any], writes: Sequence[Any]) -> None:
        self.name = name
        self.values = values  # its arguments by name
        self.reads, self.writes = reads, writes

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def get(self, name: str, default: Any = None) -> Any:
        value = self.values.get(name)
        return default if value is None else value

    def matrix_dtype(self, tensor: Any, *, convolution: bool = False) -> Any:
        """Return the dtype in which a product of this tensor runs."""
        return tensor.dtype

    def visible_pairs(self, mask: Any, pairs: int) -> int | None:
        """Return how many of the (query, key) pairs of a batch, per head, a mask does not hide; None where unknown."""
        return None

    def kept_rows(self, target: Any, ignored: int) -> int | None:
        """Return how many targets are not ``ignored``; None where unknown."""
        return None

    def find(self, kind: str, table: Any) -> Part:
        """Return the part of a table that the indices use.

        kind: ``elements`` (gather and scatter), ``flat`` (take and put, which see the table as one row), ``indexed``
        (``table[indices]``), or a place of an index as ``dim:index``: the name or number of the dimension, the index's name.
        """
        if not table.dim():
            return all_of(table)
        values = self.values.get("values")
        if kind == "indexed" and is_tensor(values) and self.values.get("indices") is None:  # a profiler may not record them
            return unknown_part(min(nbytes_of(values), nbytes_of(table)), exact=False)
        indices, dims = self.indices_of(kind, table)
        if any(is_mask(index) for index in indices):
            return unknown_part(nbytes_of(table), exact=False)
        rest = math.prod(size for at, size in enumerate(table.shape) if at not in dims)
        if kind == "flat":
            rest = 1
        looked_up = math.prod(broadcast([tuple(index.shape) for index in indices]))
        return unknown_part(min(looked_up * rest * table.element_size(), nbytes_of(table)), exact=False)

    def indices_of(self, kind: str, table: Any) -> tuple[list[Any], list[int]]:
        """Return the index tensors, and the dimensions of the table that they select in."""
        if kind in ("elements", "flat"):
            return [self["index"]], list(range(table.dim()))
        if kind == "indexed":
            indices: list[Any] = []
            dims: list[int] = []
            at = 0
            if self.values.get("indices", self.values.get("mask")) is None:
                raise ValueError("its indices are not recorded")
            for index in self.values["indices"] if "indices" in self.values else [self["mask"]]:
                width = index.dim() if index is not None and is_mask(index) else 1
                if index is not None:
                    indices.append(index)
                    dims += range(at, at + width)
                at += width
            return indices, dims
        place, _, name = kind.partition(":")
        dim = int(place) if place.lstrip("-").isdigit() else int(self[place])
        index = self[name]
        return [TensorFacts((index.numel(),), str(index.dtype))], [dim % table.dim()]


def is_mask(index: Any) -> bool:
    """Return whether an index stands for the places where it is true."""
    return str(index.dtype).rpartition(".")[2] in ("bool", "uint8", "unsigned char")


class BatchFacts(NamedTuple):
    """Sums over the sequences of one model step, as vLLM and SGLang name their ranges for TraceLens."""

    prefills: int  # sequences in prefill
    decodes: int
    queries: int  # of all sequences
    keys: int
    pairs: int  # (query, key) pairs under a causal mask


class OpSpec(NamedTuple):
    """The engine's op of a call."""

    op: str | None  # None where the FLOPs are unknown
    parameters: Mapping[str, Any] = {}
    #: Operands that the engine counts in full. Where they share memory, with themselves (an expanded dimension) or with each
    #: other, the bytes are fewer.
    charged: Sequence[Any] = ()
    extra: Sequence[Any] = ()  # tensors read that the engine does not count
    exact: bool = False  # the op's bytes are those of its tensors
    reads: Sequence[Any] | None = None  # of this op alone where the call is several, or those that move
    writes: Sequence[Any] | None = None
    parts: Mapping[int, Part] = {}  # how much of a tensor is used, by its ``id``
    is_bound: bool = False  # how much is used is unknown, so that the bytes are an upper bound
    notes: tuple[Note, ...] = ()


UNKNOWN = OpSpec(None)
if TYPE_CHECKING:  # Python 3.8 cannot subscript the classes of collections.abc
    Builder = Callable[[Call], OpSpec]
    Builders = Callable[[Call], "OpSpec | list[OpSpec]"]


class SpecWork(NamedTuple):
    """The engine's work of one ``OpSpec``."""

    work: Work | None  # None where the engine has no model
    flops: float | None  # without a model; None where unknown
    notes: tuple[Note, ...]


def work_of(
    spec: OpSpec,
    reads: Sequence[Any],
    writes: Sequence[Any],
    distinct: Callable[[Sequence[Any], Sequence[Any]], float],
) -> SpecWork:
    """Return the engine's work of ``spec`` with the bytes of its tensors.

    reads, writes: the tensors of this op.
    distinct: returns the bytes of tensors that are read and written, each byte once.
    """
    notes, op_work, flops = spec.notes, None, None
    elements = sum(tensor.numel() for tensor in writes)
    if spec.op is not None and reads and elements and not any(tensor.numel() for tensor in reads):
        # A product over no elements: zeros are written.
        spec = OpSpec("copy", {"rows": elements, "cols": 1, "dtype": str(writes[0].dtype)}, exact=True)
    if spec.op is not None:
        try:
            op_work, flops = engine_work(spec), 0.0
        except ValueError as error:  # a dtype or a size that the engine refuses
            notes = (note(str(error)),)
    if op_work is not None and spec.exact:
        op_work = _add_bytes(op_work, distinct(reads, writes) - op_work.bytes)
    elif op_work is not None and spec.charged:
        charged = [tensor for tensor in spec.charged if id(tensor) not in spec.parts] if spec.parts else spec.charged
        full = sum(tensor.numel() * tensor.element_size() for tensor in charged)
        once = distinct((*charged, *spec.extra), ())
        op_work = _add_bytes(op_work, once - full)
    if op_work is not None and op_work.engine == "vector" and op_work.flops:
        dtypes = {tensor.dtype for tensor in (*reads, *writes)}
        kinds = [_kind(dtype) for dtype in dtypes]
        if "complex" in kinds:
            op_work, flops, notes = None, None, (note("complex arithmetic has no model"),)
        elif "float" not in kinds:  # FLOPs are of floating point
            op_work = op_work._replace(candidates=tuple(model._replace(flops=0.0) for model in op_work.candidates))
    return SpecWork(op_work, flops, notes)


@lru_cache(maxsize=256)
def _kind(dtype: Any) -> str:
    """Return whether a dtype, of torch or by name, is ``complex``, ``float`` or ``integer``."""
    name = str(dtype).rpartition("::")[2] or str(dtype)
    name = name.rpartition(".")[2].lower()
    if name.startswith(("complex", "chalf", "cfloat", "cdouble")):
        return "complex"
    integers = ("int", "uint", "long", "short", "bool", "unsigned", "signed", "char", "byte", "qint", "quint", "bits")
    return "integer" if name.startswith(integers) else "float"


def is_complex(dtype: Any) -> bool:
    return _kind(dtype) == "complex"


def engine_work(spec: OpSpec) -> Work:
    """Return the engine's bytes and FLOPs.

    Raises:
        ValueError: for a size or a dtype that the engine refuses.
    """
    assert spec.op is not None
    return _engine_work(spec.op, tuple(spec.parameters.items()))


@lru_cache(maxsize=4096)
def _engine_work(op: str, parameters: tuple[tuple[str, Any], ...]) -> Work:
    return work(op, **plain_parameters(parameters))


def plain_parameters(parameters: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return the parameters with dtypes of torch by their names."""
    return {key: value if isinstance(value, (int, float, str, tuple, list)) else str(value) for key, value in parameters}


def _add_bytes(op_work: Work, more: float) -> Work:
    """Add bytes to every byte model."""
    if not more:
        return op_work
    return op_work._replace(candidates=tuple(model._replace(bytes=model.bytes + more) for model in op_work.candidates))
