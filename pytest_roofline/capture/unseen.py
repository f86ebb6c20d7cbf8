"""Signs that a call did more than its capture recorded.

A library in C, a compiled function or a kernel on a pointer runs without a trace. It shows in what it leaves behind: memory
that changed, or that is read, although nothing recorded wrote it; an argument that nothing recorded touched; a native function
among the names of the call. What was recorded is then the least of the work. State that grows makes each call another call.
"""

from __future__ import annotations

import dis
import math
import sys
import tracemalloc
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import EXTENSION_SUFFIXES
from itertools import islice
from types import BuiltinFunctionType, CodeType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, NamedTuple

from roofline_engine.fields import Note, note

from ..timing.devices import loaded
from ..values import attributes, contents, is_kind
from .restore import names_in
from .trace import CapturedWork, OpTrace

#: How deep arrays are searched for in containers, and half as deep in objects; how many values are looked at.
DEPTH, MOST_VALUES = 8, 2_000
#: Packages whose functions and libraries are native code.
_NATIVE = ("ctypes", "_ctypes", "cffi", "_cffi_backend", "numba", "cppyy", "tilelang", "cutlass", "taichi", "nanobind")
#: Packages with compiled modules that are recorded, or do no work on arrays.
_RECORDED = {"numpy", "torch", "jax", "jaxlib", "triton", "ml_dtypes", "optree", "pytest", "pluggy"}
#: A list of fewer arrays may grow without more work: a call may use its first ones alone.
FEWEST = 4
GROWS = "{} grows from call to call: each call does more work"


class Input(NamedTuple):
    """What a call is given or reaches under one name."""

    name: str  # for people: ``argument x``
    arrays: tuple[tuple[str, Any], ...]  # each array with its place inside the value
    lists: Mapping[str, list[Any]]  # the lists of arrays alone, by their place


IsArray = Callable[[Any], bool]


def find_inputs(fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any], is_array: IsArray) -> list[Input]:
    """Return the inputs of ``fn(*args, **kwargs)`` that hold arrays: arguments, closure, object, and globals that it loads."""
    code, scope, cells = _code_of(fn)
    names = code.co_varnames[hasattr(fn, "__func__") : code.co_argcount] if code is not None else ()
    named = [(f"argument {names[at] if at < len(names) else at + 1}", value) for at, value in enumerate(args)]
    named += [(f"argument {name}", value) for name, value in kwargs.items()]
    named += [(f"variable {name}", value) for name, value in cells.items()]
    if code is not None:
        loaded_names = dict.fromkeys(item.argval for item in dis.get_instructions(code) if item.opname == "LOAD_GLOBAL")
        named += [(f"variable {name}", scope[name]) for name in loaded_names if name in scope]
    owner = fn if code is None else getattr(fn, "__self__", None)
    if owner is not None:
        named.append((f"the object of class {type(owner).__name__}", owner))
    inputs = []
    for name, value in named:
        lists: dict[str, list[Any]] = {}
        arrays = tuple(arrays_in(value, is_array, lists))
        if arrays:
            inputs.append(Input(name, arrays, lists))
    return inputs


def _code_of(fn: Any) -> tuple[CodeType | None, Mapping[str, Any], dict[str, Any]]:
    """Return the code of a Python function or method, its globals and its closure; None for any other callable."""
    python = fn.__func__ if is_kind(fn, MethodType) else fn
    if not is_kind(python, FunctionType):
        return None, {}, {}
    cells = {}
    for name, cell in zip(python.__code__.co_freevars, python.__closure__ or ()):
        with suppress(ValueError):  # a variable without a value yet
            cells[name] = cell.cell_contents
    return python.__code__, python.__globals__, cells


def arrays_in(value: Any, is_array: IsArray, lists: dict[str, list[Any]] | None = None) -> Iterator[tuple[str, Any]]:
    """Yield the arrays in a value, its containers and the attributes of its objects, each with its place.

    lists: is filled with what ``Input.lists`` has.
    """
    waiting: list[tuple[str, Any, int]] = [("", value, 0)]
    visited: set[int] = set()
    while waiting and len(visited) < MOST_VALUES:
        place, item, depth = waiting.pop()
        if id(item) in visited:
            continue
        visited.add(id(item))
        if is_array(item):
            yield place, item
        elif depth < DEPTH:
            inner, cost = _items(item)
            if lists is not None and type(item) is list and inner and all(is_array(one) for _, one in inner):
                lists[place] = list(item)
            waiting += [(f"{place}{key}", one, depth + cost) for key, one in inner]


def _items(value: Any) -> tuple[list[tuple[str, Any]], int]:
    """Return what a container or an object holds, each with its place, and what a step into it costs of the depth.

    No code of the object runs.
    """
    if is_kind(value, dict):
        items = islice(dict.items(value), MOST_VALUES)
        return [(f"[{key!r}]" if type(key) in (str, int) else f"[{at}]", item) for at, (key, item) in enumerate(items)], 1
    inside = contents(value, MOST_VALUES)
    if inside is not None:
        return [(f"[{at}]", item) for at, item in enumerate(inside)], 1
    members = {**_slots(value), **(attributes(value) or {})}
    if "_parameters" in members and "_modules" in members:  # of torch, which nests deeply
        inner = {key: members.get(key) for key in ("_parameters", "_buffers", "_modules")}
        return [(f".{key}", item) for each in inner.values() if type(each) is dict for key, item in each.items()], 0
    return [(f".{key}", item) for key, item in islice(members.items(), MOST_VALUES)], 2


def _slots(value: Any) -> dict[str, Any]:
    """Return the attributes of an object that its classes keep in ``__slots__``."""
    found = {}
    for kind in type.mro(type(value)):
        if "__slots__" in vars(kind):
            for name, member in vars(kind).items():
                with suppress(AttributeError):  # it has no value yet
                    if type(member) is MemberDescriptorType:
                        found[name] = member.__get__(value)
    return found


def find_native(fn: Any) -> str:
    """Return a name in the code of a function that stands for native code, which nothing records; empty without one."""
    code, scope, cells = _code_of(fn)
    if code is None:
        return "its function" if _is_native(fn) else ""
    values = {**scope, **cells}
    return next((name for name in names_in(code) if name in values and _is_native(values[name])), "")


def _is_native(value: Any) -> bool:
    """Return whether a value is a function in native code, or a library or extension module of such functions."""
    kind = type(value)
    if issubclass(kind, (FunctionType, MethodType, type)):
        return False
    if issubclass(kind, ModuleType):
        return value.__name__ in _NATIVE or _is_extension(value)
    if any(str(base.__module__).partition(".")[0] in _NATIVE for base in kind.__mro__):
        return True
    if not callable(value):
        return False
    module = value.__module__ if issubclass(kind, BuiltinFunctionType) else kind.__module__
    return _is_extension(loaded(str(module)))


def _is_extension(module: Any) -> bool:
    """Return whether a module is compiled and of none of the packages whose functions are recorded or only help."""
    file, name = getattr(module, "__file__", None), getattr(module, "__name__", "").partition(".")[0]
    return (
        isinstance(file, str) and file.endswith(tuple(EXTENSION_SUFFIXES)) and name not in _RECORDED | sys.stdlib_module_names
    )


@contextmanager
def allocations_traced() -> Iterator[Callable[[Any], str]]:
    """Yield a function that returns the file whose code made an object inside the block; empty for an older object.

    Where tracemalloc runs already, every object counts as older.
    """
    if tracemalloc.is_tracing():
        yield lambda thing: ""
        return

    def find_origin(thing: Any) -> str:
        traceback = tracemalloc.get_object_traceback(thing) if tracemalloc.is_tracing() else None
        return traceback[0].filename if traceback else ""

    tracemalloc.start()
    try:
        yield find_origin
    finally:
        tracemalloc.stop()


class Contents:
    """Samples of memory by storage, to notice a write that was not recorded."""

    def __init__(self, sample: Callable[[Any], bytes | None]) -> None:
        self.changed = False  # whether memory has other contents than what was recorded left there
        self._sample = sample
        self._samples: dict[int, bytes | None] = {}

    def keep(self, storage: int, memory: Any) -> None:
        self._samples[storage] = self._sample(memory)

    def check(self, storage: int, memory: Any) -> None:
        before = self._samples.get(storage)
        self.changed = self.changed or (before is not None and before != self._sample(memory))


def find_signs(
    inputs: Iterable[Input],
    after: Iterable[Input],
    touched: Collection[int],
    number: Callable[[Any], int],
    *,
    native: str,
    changed: bool,
    unwritten: bool,
    unwatched: str = "",
) -> list[Note]:
    """Return why the recorded work is the least of a call's work; empty where nothing shows that there is more.

    inputs, after: of the call, before and after it.
    touched: the storages that recorded operations read or wrote.
    number: returns the storage of an array.
    native: the name of a native function in its code.
    changed: whether memory has other contents than what was recorded left there.
    unwritten: whether memory was read or returned that nothing recorded wrote.
    unwatched: a class of arrays among the inputs whose operations are not recorded.
    """
    texts = []
    if changed:
        texts.append("memory changed that nothing recorded wrote")
    if unwritten:
        texts.append("memory was used that nothing recorded wrote")
    same = {item.name: {id(array) for _, array in item.arrays} for item in after}
    unused = [
        item.name
        for item in inputs
        if same.get(item.name) == {id(array) for _, array in item.arrays}  # else the call keeps its results there
        and not any(number(array) in touched for _, array in item.arrays)
    ]
    if unused:
        texts.append(f"nothing recorded used {', '.join(unused[:3])}" + (f" and {len(unused) - 3} more" if unused[3:] else ""))
    if native:
        texts.append(f"{native} is native code")
    if unwatched:
        texts.append(f"operations on a {unwatched} are not")
    return [partly_seen(text) for text in texts]


def partly_seen(why: str) -> Note:
    return note(f"only a part of the call was recorded: {why}", "partly_seen")


def touched_storages(traces: Iterable[OpTrace]) -> set[int]:
    return {region.storage for trace in traces for region in (*trace.reads, *trace.writes, *trace.either)}


def find_growth(before: Iterable[Input], after: Iterable[Input], touched: Collection[int], number: Callable[[Any], int]) -> str:
    """Return what is larger after a call than before it, of what recorded operations used; empty where nothing is."""
    sizes: dict[str, float] = {}
    for item in before:
        sizes.update((f"{item.name}{place}", _nbytes(array)) for place, array in item.arrays)
        for place, arrays in item.lists.items():
            if len(arrays) >= FEWEST and all(number(array) in touched for array in arrays):
                sizes[f"{item.name}{place}"] = len(arrays)
    for item in after:
        found = [(place, _nbytes(array)) for place, array in item.arrays]
        found += [(place, len(arrays)) for place, arrays in item.lists.items()]
        for place, size in found:
            if size > sizes.get(f"{item.name}{place}", math.inf):
                return f"{item.name}{place}"
    return ""


def _nbytes(array: Any) -> float:
    try:
        return float(array.nbytes)
    except Exception:  # a sparse tensor
        return 0.0


def add_signs(captured: CapturedWork, found: Sequence[Note]) -> CapturedWork:
    """Return captured work as a lower bound where something shows that the call did more; unknown where it is no bound."""
    if not found:
        return captured
    notes = (*captured.notes, *found)
    if captured.work is None:
        return captured._replace(notes=notes)
    if not captured.certain:  # an upper bound of a part is no bound of the whole
        return captured._replace(work=None, reason=found[0].text, notes=notes[: -len(found)] + tuple(found[1:]))
    return captured._replace(work=captured.work._replace(coverage="lower_bound"), notes=notes)
