"""What an operation of numpy is to the engine, from its arrays: the op, its parameters, and how much of an array is used.

The functions for masks and indices take numpy as their first argument.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from roofline_engine.fields import Note, note

from .coverage import Unknown, unknown_view
from .trace import Part


class OpSpec(NamedTuple):
    """The engine's op of an operation."""

    op: str | None  # None where the FLOPs are unknown
    parameters: Mapping[str, Any] = {}
    flops: float | None = None  # in place of the engine's
    notes: tuple[Note, ...] = ()


UNKNOWN = OpSpec(None)

#: Generalized ufuncs that multiply; the core dimensions of the operands give M, N and K.
_PRODUCTS = ("matmul", "vecdot", "matvec", "vecmat")


def of_ufunc(ufunc: Any, method: str, reads: Sequence[Any], writes: Sequence[Any], options: Mapping[str, Any]) -> OpSpec:
    """A call, reduction, accumulation or outer product of a universal function."""
    if getattr(ufunc, "signature", None) is not None:
        is_known = ufunc.__name__ in _PRODUCTS and method == "__call__" and not {"axes", "axis"} & set(options)
        return product(ufunc.__name__, reads[0], reads[-1], _size(writes), _dtype(writes, reads)) if is_known else UNKNOWN
    if method not in ("reduce", "__call__", "accumulate", "outer"):
        return UNKNOWN
    spec = reduce(reads[0], writes) if method == "reduce" else elementwise(reads, writes)
    mask = options.get("where", True)
    if mask is True or spec.op is None or not spec.flops:
        return spec
    # Only elements under a set mask are computed.
    shape = max((array.shape for array in (*reads, *writes)), key=math.prod)
    share = float(mask) if not getattr(mask, "ndim", 0) else int(mask.sum()) / mask.size
    return spec._replace(flops=spec.flops * round(share * math.prod(shape)) / math.prod(shape))


def elementwise(reads: Sequence[Any], writes: Sequence[Any]) -> OpSpec:
    """One FLOP per written element, if one of the types is a float."""
    arrays = (*reads, *writes)
    numel = max((array.size for array in writes), default=0) or max((array.size for array in reads), default=1)
    parameters = {"numel": numel, "inputs": len(reads), "outputs": max(len(writes), 1), "dtype": _dtype(writes, reads)}
    return _counted("elementwise", parameters, arrays, float(numel * max(len(writes), 1)))


def reduce(source: Any, writes: Sequence[Any], results: int | None = None) -> OpSpec:
    rows = results or _size(writes)
    sizes = {"rows": rows, "cols": max(source.size // rows, 1), "dtype": str(source.dtype)}
    return _counted("reduce", {**sizes, "out_dtype": _dtype(writes, [source])}, (source, *writes), float(source.size))


def move(out: Any) -> OpSpec:
    """Elements are moved, nothing is computed: bytes of any type."""
    if out.dtype.hasobject:
        return OpSpec(None, notes=(note("the bytes of objects are unknown"),))
    cols = out.shape[-1] if out.ndim else 1
    return OpSpec("copy", {"rows": out.size // cols, "cols": cols * out.itemsize, "dtype": "uint8"}, 0.0)


def product(name: str, a: Any, b: Any, results: int, dtype: str) -> OpSpec:
    """``matmul`` and the like, over stacks of matrices."""
    m = a.shape[-2] if name in ("matmul", "matvec") and a.ndim > 1 else 1
    n = b.shape[-1] if name in ("matmul", "vecmat") and b.ndim > 1 else 1
    return _gemm(a, b, m, n, a.shape[-1], max(results // (m * n), 1), dtype)


def contraction(a: Any, b: Any, results: int, dtype: str) -> OpSpec:
    """``dot``, ``inner``, ``vdot``, ``tensordot``, ``outer``: M x K and K x N elements make M x N."""
    k = max(math.isqrt(a.size * b.size // max(results, 1)), 1)
    return _gemm(a, b, a.size // k, b.size // k, k, 1, dtype)


def einsum(subscripts: str, operands: Sequence[Any], results: int, dtype: str) -> OpSpec:
    """Of two operands with indices of a batch, of rows, of columns, or summed."""
    given, arrow, out = subscripts.replace(" ", "").partition("->")
    terms = given.split(",")
    if "." in subscripts or len(terms) != len(operands) or any(len(set(term)) != len(term) for term in terms):
        return OpSpec(None, notes=(note("an einsum with an ellipsis or a diagonal"),))
    if not arrow:
        out = "".join(sorted(index for index in set("".join(terms)) if given.count(index) == 1))
    sizes = {index: size for term, array in zip(terms, operands) for index, size in zip(term, array.shape)}
    if len(terms) == 1:
        return reduce(operands[0], (), results) if len(out) < len(terms[0]) else move(operands[0])
    if len(terms) != 2:
        return OpSpec(None, notes=(note(f"an einsum of {len(terms)} operands may be taken in several orders"),))
    left, right = (set(term) for term in terms)
    if ((left ^ right) - set(out)) or not set(out) <= left | right:
        return OpSpec(None, notes=(note("an einsum that sums an index of one operand"),))

    def extent(indices: set[str]) -> int:
        return math.prod(sizes[index] for index in indices)

    m, n, k = extent(left - right), extent(right - left), extent((left & right) - set(out))
    return _gemm(operands[0], operands[1], m, n, k, extent(left & right & set(out)), dtype)


def _gemm(a: Any, b: Any, m: int, n: int, k: int, batch: int, dtype: str) -> OpSpec:
    if "c" in (a.dtype.kind, b.dtype.kind):
        return OpSpec(None, notes=(note("complex products have no model"),))
    sizes = {"M": m, "N": n, "K": k, "batch": batch}
    return OpSpec("gemm", {**sizes, "dtype": str(a.dtype), "weight_dtype": str(b.dtype), "out_dtype": dtype})


def _counted(op: str, parameters: Mapping[str, Any], arrays: Sequence[Any], flops: float) -> OpSpec:
    kinds = {array.dtype.kind for array in arrays}
    if not kinds <= set("biuf"):
        return OpSpec(None, notes=(note("arithmetic on complex numbers, objects, text or dates has no model"),))
    return OpSpec(op, parameters, flops if "f" in kinds else 0.0)


def _size(writes: Sequence[Any]) -> int:
    return int(writes[0].size) if writes else 1


def _dtype(writes: Sequence[Any], reads: Sequence[Any]) -> str:
    return str((*writes, *reads)[0].dtype)


#: More elements than these of an index or a mask are not read.
MOST_READ = 1 << 22


def some_elements(array: Any, elements: int, *, exact: bool = True) -> Part:
    """Return a part of so many elements, unknown which."""
    return Part(float(elements * array.itemsize), unknown_view(), exact)


def masked_parts(np: Any, mask: Any, arrays: Sequence[Any]) -> dict[int, Part]:
    """Return, by ``id``, the part of each array that a mask selects; empty without an array as the mask."""
    if not isinstance(mask, np.ndarray):
        return {}
    shape = np.broadcast_shapes(*(array.shape for array in arrays), mask.shape)
    elements = int(np.count_nonzero(np.broadcast_to(mask, shape)))
    key = Unknown((hash(mask.tobytes()) if mask.size <= MOST_READ else id(mask),))
    return {
        id(array): Part(float(elements * array.itemsize), key, True)
        for array in arrays
        if array is not mask and array.shape == shape
    }


def indexed_part(np: Any, base: Any, key: Any, elements: int) -> Part:
    """Return the part that an index of arrays selects, which may repeat elements; ``elements`` if none repeats."""
    keys = key if isinstance(key, (list, tuple)) else [key]
    kinds = {one.dtype.kind for one in keys if isinstance(one, np.ndarray) and one.ndim}
    if kinds == {"b"}:
        return some_elements(base, elements)  # a mask selects each element once
    if not isinstance(key, tuple):
        return taken_part(np, base, key, 0, elements)
    if base.size > MOST_READ:
        return some_elements(base, elements, exact=False)
    return _part_of_places(np, base, np.arange(base.size).reshape(base.shape)[key], 1)


def taken_part(np: Any, base: Any, key: Any, axis: Any, elements: int) -> Part:
    """Return the part of the rows along an axis that ``key`` selects; without an axis, of the elements."""
    keys = np.asarray(key)
    if keys.dtype.kind not in "iu" or keys.size > MOST_READ:
        return some_elements(base, elements, exact=keys.dtype.kind == "b")
    length = base.size if axis is None else base.shape[axis]
    return _part_of_places(np, base, keys % length, base.size // length)


def _part_of_places(np: Any, base: Any, places: Any, elements: int) -> Part:
    distinct = np.unique(places)
    return Part(float(distinct.size * elements * base.itemsize), Unknown((hash(distinct.tobytes()),)), True)
