"""How much of an array of numpy is used where a mask or an index says so; its functions take numpy as their first argument."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from .covered import SOME
from .record import Part

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
    return _counted(np, base, np.arange(base.size).reshape(base.shape)[key], 1)


def taken(np: Any, base: Any, key: Any, axis: Any, many: int) -> Part:
    """The rows of an array along an axis, or the elements of all of it, that are named."""
    keys = np.asarray(key)
    if keys.dtype.kind not in "iu" or keys.size > MOST_KEYS:
        return some(base, many, exact=keys.dtype.kind == "b")
    length = base.size if axis is None else base.shape[axis]
    return _counted(np, base, keys % length, base.size // length)


def _counted(np: Any, base: Any, places: Any, elements: int) -> Part:
    found = np.unique(places)
    return Part(float(found.size * elements * base.itemsize), (SOME, hash(found.tobytes())), True)
