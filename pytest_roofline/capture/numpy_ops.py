"""What an operation of numpy is to the engine: its op and parameters, from the arrays that it takes and gives."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

from .coverage import SOME
from .trace import Part


class Model(NamedTuple):
    """op: None where nobody knows the FLOPs. flops: in place of the engine's."""

    op: str | None
    parameters: Mapping[str, Any] = {}
    flops: float | None = None
    note: str = ""


UNKNOWN = Model(None)

#: Generalised ufuncs that multiply: the sizes M, N and K, from the core dimensions of the operands.
_PRODUCTS = ("matmul", "vecdot", "matvec", "vecmat")


def of_ufunc(ufunc: Any, method: str, reads: Sequence[Any], writes: Sequence[Any], options: Mapping[str, Any]) -> Model:
    """A call, reduction, accumulation or outer product of a universal function."""
    if getattr(ufunc, "signature", None) is not None:
        plain = ufunc.__name__ in _PRODUCTS and method == "__call__" and not {"axes", "axis"} & set(options)
        return product(ufunc.__name__, reads[0], reads[-1], _size(writes), _dtype(writes, reads)) if plain else UNKNOWN
    if method not in ("reduce", "__call__", "accumulate", "outer"):
        return UNKNOWN
    model = reduced(reads[0], writes) if method == "reduce" else elementwise(reads, writes)
    mask = options.get("where", True)
    if mask is True or model.op is None or not model.flops:
        return model
    # Only where the mask is set is anything computed.
    shape = max((array.shape for array in (*reads, *writes)), key=math.prod)
    share = float(mask) if not getattr(mask, "ndim", 0) else int(mask.sum()) / mask.size
    return model._replace(flops=model.flops * round(share * math.prod(shape)) / math.prod(shape))


def elementwise(reads: Sequence[Any], writes: Sequence[Any]) -> Model:
    """One FLOP per element that is written, where there is a float among the types."""
    arrays = (*reads, *writes)
    numel = max((array.size for array in writes), default=0) or max((array.size for array in reads), default=1)
    parameters = {"numel": numel, "inputs": len(reads), "outputs": max(len(writes), 1), "dtype": _dtype(writes, reads)}
    return _counted("elementwise", parameters, arrays, float(numel * max(len(writes), 1)))


def reduced(source: Any, writes: Sequence[Any], results: int | None = None) -> Model:
    rows = results or _size(writes)
    sizes = {"rows": rows, "cols": max(source.size // rows, 1), "dtype": str(source.dtype)}
    return _counted("reduce", {**sizes, "out_dtype": _dtype(writes, [source])}, (source, *writes), float(source.size))


def moved(out: Any) -> Model:
    """Elements moved, none computed: bytes, whatever their type."""
    if out.dtype.hasobject:
        return Model(None, note="objects have no bytes of their own")
    cols = out.shape[-1] if out.ndim else 1
    return Model("copy", {"rows": out.size // cols, "cols": cols * out.itemsize, "dtype": "uint8"}, 0.0)


def product(name: str, a: Any, b: Any, results: int, dtype: str) -> Model:
    """``matmul`` and the like, over stacks of matrices."""
    m = a.shape[-2] if name in ("matmul", "matvec") and a.ndim > 1 else 1
    n = b.shape[-1] if name in ("matmul", "vecmat") and b.ndim > 1 else 1
    return _gemm(a, b, m, n, a.shape[-1], max(results // (m * n), 1), dtype)


def contraction(a: Any, b: Any, results: int, dtype: str) -> Model:
    """``dot``, ``inner``, ``vdot``, ``tensordot``, ``outer``: M x K and K x N elements make M x N."""
    k = max(math.isqrt(a.size * b.size // max(results, 1)), 1)
    return _gemm(a, b, a.size // k, b.size // k, k, 1, dtype)


def einsum(subscripts: str, operands: Sequence[Any], results: int, dtype: str) -> Model:
    """Of two operands whose every index is of a batch, of the rows, of the columns or summed over."""
    given, arrow, out = subscripts.replace(" ", "").partition("->")
    terms = given.split(",")
    if "." in subscripts or len(terms) != len(operands) or any(len(set(term)) != len(term) for term in terms):
        return Model(None, note="an einsum with an ellipsis or a diagonal")
    if not arrow:
        out = "".join(sorted(index for index in set("".join(terms)) if given.count(index) == 1))
    sizes = {index: size for term, array in zip(terms, operands) for index, size in zip(term, array.shape)}
    if len(terms) == 1:
        return reduced(operands[0], (), results) if len(out) < len(terms[0]) else moved(operands[0])
    if len(terms) != 2:
        return Model(None, note=f"an einsum of {len(terms)} operands may be taken in several orders")
    left, right = (set(term) for term in terms)
    if ((left ^ right) - set(out)) or not set(out) <= left | right:
        return Model(None, note="an einsum that sums an index of one operand")

    def extent(indices: set[str]) -> int:
        return math.prod(sizes[index] for index in indices)

    m, n, k = extent(left - right), extent(right - left), extent((left & right) - set(out))
    return _gemm(operands[0], operands[1], m, n, k, extent(left & right & set(out)), dtype)


def _gemm(a: Any, b: Any, m: int, n: int, k: int, batch: int, dtype: str) -> Model:
    if "c" in (a.dtype.kind, b.dtype.kind):
        return Model(None, note="a product of complex numbers has no model")
    sizes = {"M": m, "N": n, "K": k, "batch": batch}
    return Model("gemm", {**sizes, "dtype": str(a.dtype), "weight_dtype": str(b.dtype), "out_dtype": dtype})


def _counted(op: str, parameters: Mapping[str, Any], arrays: Sequence[Any], flops: float) -> Model:
    kinds = {array.dtype.kind for array in arrays}
    if not kinds <= set("biuf"):
        return Model(None, note="arithmetic on complex numbers, objects, text or dates has no model")
    return Model(op, parameters, flops if "f" in kinds else 0.0)


def _size(writes: Sequence[Any]) -> int:
    return int(writes[0].size) if writes else 1


def _dtype(writes: Sequence[Any], reads: Sequence[Any]) -> str:
    return str((*writes, *reads)[0].dtype)


#: Indices, or elements of a mask, beyond which it is not looked for those that repeat.
MOST_KEYS = 1 << 22
_number = count()


def some(array: Any, elements: int, *, exact: bool = True) -> Part:
    """So many elements, nobody knows which."""
    return Part(float(elements * array.itemsize), (SOME, next(_number)), exact)


def masked(np: Any, mask: Any, arrays: Sequence[Any]) -> dict[int, Part]:
    """Of arrays that a mask is laid over, by id, the elements where it is set."""
    if mask is None:
        return {}
    shape = np.broadcast_shapes(*(array.shape for array in arrays), mask.shape)
    found = int(np.count_nonzero(np.broadcast_to(mask, shape)))
    key = hash(mask.tobytes()) if mask.size <= MOST_KEYS else id(mask)
    return {
        id(array): Part(float(found * array.itemsize), (SOME, key), array.shape == shape)
        for array in arrays
        if array is not mask and array.shape == shape
    }


def named(np: Any, base: Any, key: Any, many: int) -> Part:
    """What is used of an array by an index of arrays, of which some may name the same element; ``many`` if none do."""
    kinds = [
        one.dtype.kind for one in (key if isinstance(key, (list, tuple)) else [key]) if isinstance(one, np.ndarray) and one.ndim
    ]
    if kinds and set(kinds) == {"b"}:
        return some(base, many)  # a mask names each element once
    if not isinstance(key, tuple):
        return taken(np, base, key, 0, many)
    if base.size > MOST_KEYS:
        return some(base, many, exact=False)
    return _part_of_places(np, base, np.arange(base.size).reshape(base.shape)[key], 1)


def taken(np: Any, base: Any, key: Any, axis: Any, many: int) -> Part:
    """The rows of an array along an axis, or the elements of all of it, that are named."""
    keys = np.asarray(key)
    if keys.dtype.kind not in "iu" or keys.size > MOST_KEYS:
        return some(base, many, exact=keys.dtype.kind == "b")
    length = base.size if axis is None else base.shape[axis]
    return _part_of_places(np, base, keys % length, base.size // length)


def _part_of_places(np: Any, base: Any, places: Any, elements: int) -> Part:
    found = np.unique(places)
    return Part(float(found.size * elements * base.itemsize), (SOME, hash(found.tobytes())), True)
