"""On which device a call works, from the arrays that it takes, closes over and returns.

A library is asked only when the user's code has imported it: its arrays cannot exist before that.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import sys
from collections.abc import Iterator
from itertools import islice
from types import BuiltinFunctionType, FunctionType, MethodType, MethodWrapperType, ModuleType
from typing import Any, NamedTuple

from ..values import attributes, contents, defines, is_kind

#: How many objects are looked at inside containers: enough for a model's state, little for a list of a million numbers.
MOST_OBJECTS = 2_000
#: And how many attributes of an object.
MOST_ATTRIBUTES = 100


class Place(NamedTuple):
    """A device that holds an array."""

    framework: str  # torch, jax, cupy or cuda (an array with ``__cuda_array_interface__`` of an unknown library)
    platform: str
    number: int


#: The place of numpy arrays and of torch's CPU tensors, where a call is over when it returns.
HOST = Place("host", "cpu", 0)


def loaded(name: str) -> Any:
    """Return a module that has been imported, else None; also None for a project's stand-in of that name."""
    module = sys.modules.get(name)
    return module if isinstance(module, ModuleType) and module.__spec__ is not None else None


def places(*objects: object) -> set[Place]:
    """Find the devices that hold the arrays among these objects and in their containers."""
    return {place for thing in _items(objects) for place in _places(thing)}


def device_kind(*objects: object) -> str | None:
    """Return ``gpu`` where an array among these objects is on an accelerator, ``cpu`` where all are on the host, else None."""
    platforms = {place.platform for place in places(*objects)}
    return None if not platforms else "cpu" if platforms == {"cpu"} else "gpu"


def array_libraries(*objects: object) -> set[str]:
    """Return the libraries with an array or a ``torch.nn.Module`` among these: torch, jax, cupy, numpy."""
    things = list(_items(objects))
    return {name.partition(".")[0] for name, kind in _ARRAYS if any(_is(thing, name, kind) for thing in things)}


_ARRAYS = (("torch", "Tensor"), ("torch.nn", "Module"), ("jax", "Array"), ("cupy", "ndarray"), ("numpy", "ndarray"))


def reachable_values(fn: Any) -> tuple[object, ...]:
    """Return the arguments of a partial, the closure, the globals that are named, the defaults, the object that is called."""
    if is_kind(fn, functools.partial):
        return (*fn.args, *fn.keywords.values(), *reachable_values(fn.func))
    if is_kind(fn, (MethodType, BuiltinFunctionType, MethodWrapperType)):  # of an object, as ``array.sum``
        return (*reachable_values(getattr(fn, "__func__", None)), fn.__self__)
    if type(fn) is FunctionType:
        named = (fn.__globals__[name] for name in fn.__code__.co_names if name in fn.__globals__)
        return (*map(_content, fn.__closure__ or ()), *(fn.__defaults__ or ()), *named)
    return () if attributes(fn) is None else (fn,)


def _content(cell: Any) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # a variable that has no value yet
        return None


#: Skipped at once: a list of numbers may be long.
_SCALARS = frozenset({type(None), bool, int, float, complex, str, bytes})


def _items(objects: tuple[object, ...]) -> Iterator[object]:
    """Yield the objects and those in their containers."""
    waiting = list(objects)
    visited: set[int] = set()
    while waiting and len(visited) < MOST_OBJECTS:
        thing = waiting.pop()
        if id(thing) in visited:
            continue
        visited.add(id(thing))
        items = contents(thing, MOST_OBJECTS)
        if items is not None:
            waiting.extend(item for item in items if type(item) not in _SCALARS)
        elif type(thing) not in _SCALARS:
            yield thing


def array_form(value: object) -> tuple[tuple[int, ...], str] | None:
    """Return the shape and the dtype of an array of a known library; None for any other value."""
    if not _is_array(value):
        return None
    try:
        return tuple(value.shape), str(value.dtype)  # type: ignore[attr-defined]
    except Exception:  # a deleted array of JAX, a subclass whose shape raises
        return None


class Extent(NamedTuple):
    """The memory that the elements of an array lie in."""

    space: str  # host, or the device
    start: int  # address of the first byte
    end: int  # and of the byte after the last
    nbytes: int  # of its distinct elements


def extents(*objects: object) -> list[Extent]:
    """Return the memory of the arrays among these and in their containers, and of those that are attributes of an object."""
    found: dict[Extent, None] = {}
    for thing in _items(objects):
        things = (thing,) if _is_array(thing) else tuple(islice((attributes(thing) or {}).values(), MOST_ATTRIBUTES))
        for array in filter(_is_array, things):
            with contextlib.suppress(Exception):  # a deleted array of JAX, a sparse tensor
                found[_extent(array)] = None
    return list(found)


def _is_array(thing: object) -> bool:
    return any(_is(thing, name, kind) for name, kind in _ARRAYS if kind != "Module")


def _extent(array: Any) -> Extent:
    if _is(array, "numpy", "ndarray"):
        space, start, width, strides = "host", array.__array_interface__["data"][0], array.itemsize, array.strides
    elif _is(array, "torch", "Tensor"):
        width = array.element_size()
        space, start, strides = str(array.device), array.data_ptr(), [width * stride for stride in array.stride()]
        space = "host" if space == "cpu" else space
    else:  # the address of JAX's and CuPy's arrays is not needed: their views are arrays of their own
        return Extent(f"array {id(array)}", 0, int(array.nbytes), int(array.nbytes))
    dims = [(size, stride) for size, stride in zip(array.shape, strides) if stride]
    nbytes = width * math.prod(size for size, _ in dims) if 0 not in array.shape else 0
    low = sum((size - 1) * stride for size, stride in dims if stride < 0) if nbytes else 0
    high = sum((size - 1) * stride for size, stride in dims if stride > 0) + width if nbytes else 0
    return Extent(space, start + low, start + high, min(nbytes, high - low))


def distinct_bytes(given: list[Extent]) -> int:
    """Return the bytes of arrays, those of overlapping arrays once: at most the memory that they span together."""
    total, space, end, nbytes, span = 0, "", 0, 0, 0
    for extent in sorted(given):
        if extent.space != space or extent.start >= end:
            total += min(nbytes, span)
            space, end, nbytes, span = extent.space, extent.start, 0, 0
        nbytes += extent.nbytes
        span += max(0, extent.end - end)
        end = max(end, extent.end)
    return total + min(nbytes, span)


#: Arrays of fewer bytes are not looked at: caches hold them. And how many pages of the others are.
LEAST_BYTES, SAMPLED_PAGES = 1 << 20, 64


def untouched_bytes(*objects: object) -> float:
    """Return the bytes of host arrays among these that lie on pages which nothing wrote, estimated from a sample of the pages.

    Linux maps such a page of fresh memory to its one page of zeros, which stays in a cache, so that a read of it is no memory
    traffic. ``/proc/self/pagemap`` tells: bit 63 of a page is set where it is present, bit 62 where it is swapped out, bit 56
    where this process alone maps it, as it does any page that it wrote (Documentation/admin-guide/mm/pagemap.rst). 0 where the
    system does not tell.
    """
    total, size = 0.0, getattr(os, "sysconf", lambda name: 4096)("SC_PAGESIZE")
    large = [extent for extent in extents(*objects) if extent.space == "host" and extent.nbytes >= LEAST_BYTES]
    if not large:
        return total
    import ctypes  # only needed for large operands

    with contextlib.suppress(OSError, ValueError), open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        for extent in large:
            step = (extent.end - extent.start - 1) / (SAMPLED_PAGES - 1)
            untouched = 0
            for at in range(SAMPLED_PAGES):
                address = extent.start + int(at * step)
                pagemap.seek(address // size * 8)
                bits = int.from_bytes(pagemap.read(8), "little")
                own = bits >> 62 & 1 or (bits >> 63 and bits >> 56 & 1)
                untouched += not own and not ctypes.string_at(address, 1)[0]  # a page that a fork shares is not of zeros
            total += extent.nbytes * untouched / SAMPLED_PAGES
    return total


def _places(thing: Any) -> list[Place]:
    try:
        return _places_of_array(thing)
    except Exception:  # a deleted array of JAX, a subclass whose device raises
        return []


def _places_of_array(thing: Any) -> list[Place]:
    if _is(thing, "torch", "Tensor"):
        device = thing.device
        return [HOST if device.type in ("cpu", "meta") else Place("torch", str(device.type), int(device.index or 0))]
    if _is(thing, "jax", "Array"):
        return [Place("jax", str(device.platform), int(device.id)) for device in thing.devices()]  # sharded: several
    if _is(thing, "cupy", "ndarray"):
        return [Place("cupy", "cuda", int(thing.device.id))]
    if _is(thing, "numpy", "ndarray"):
        return [HOST] if thing.ndim else []  # of no dimension: a number, which says nothing of where the call works
    if defines(type(thing), "__cuda_array_interface__"):
        return [Place("cuda", "cuda", 0)]
    return []


def _is(thing: object, module: str, name: str) -> bool:
    kind = getattr(loaded(module), name, None)
    return isinstance(kind, type) and is_kind(thing, kind)
