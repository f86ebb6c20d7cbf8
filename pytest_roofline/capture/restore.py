"""What a capture replaces or changes for a while, and how it is put back: functions, variables and random generators."""

from __future__ import annotations

import functools
import pickle
import random
import types
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from ..timing.devices import loaded
from ..values import attributes, contents, is_kind

_FUNCTIONS = (types.FunctionType, types.MethodType)


@contextmanager
def replaced(
    owner: Any, name: str, wrapper: Callable[..., Any], namespaces: tuple[MutableMapping[str, Any], ...] = ()
) -> Iterator[None]:
    """Make ``owner.name(*args)`` call ``wrapper(original, *args)`` while the block runs.

    namespaces: mappings in which the function may have other names, which are replaced too.

    A replacement that a caller kept beyond the block calls the original. An ``owner`` without such an attribute is left as it
    is, and an attribute that another library replaced inside the block is not put back.
    """
    original = vars(owner).get(name)
    if original is None:
        yield
        return
    active = True

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        return wrapper(original, *args, **kwargs) if active else original(*args, **kwargs)

    bound = [(space, key) for space in namespaces for key, value in list(space.items()) if value is original]
    setattr(owner, name, call)
    for space, key in bound:
        space[key] = call
    try:
        yield
    finally:
        active = False
        if vars(owner).get(name) is call:
            setattr(owner, name, original)
        for space, key in bound:
            if space.get(key) is call:
                space[key] = original


def unwrap_partial(fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Sequence[Any], dict[str, Any]]:
    """Return the function that a partial calls, with all its arguments."""
    while isinstance(fn, functools.partial):
        fn, args, kwargs = fn.func, (*fn.args, *args), {**fn.keywords, **kwargs}
    return fn, args, dict(kwargs)


def bind_call(fn: Any) -> Any:
    """Return the method that an object of a Python class with ``__call__`` runs; any other callable as it is."""
    if is_kind(fn, (*_FUNCTIONS, type)):
        return fn
    method = next((vars(kind)["__call__"] for kind in type.mro(type(fn)) if "__call__" in vars(kind)), None)
    return types.MethodType(method, fn) if type(method) is types.FunctionType else fn


# Variables that a function reaches without being given them.


def variable_holders(fn: Any) -> Iterator[tuple[Any, list[Any] | None]]:
    """Yield mappings in which a function finds values or puts them, each with the keys; None for every key.

    These are its closure, the attributes of its object and the globals that it names, also for the functions of its module that
    it names.
    """
    waiting, visited = [fn], set()
    scopes: dict[int, tuple[dict[str, Any], set[str]]] = {}
    while waiting:
        item = waiting.pop()
        owner = None
        if is_kind(item, types.MethodType):
            owner, item = item.__self__, item.__func__
        if not is_kind(item, types.FunctionType) or item in visited:
            continue
        visited.add(item)
        if attributes(owner) is not None:
            yield vars(owner), None
        cells, scope = _Cells(dict(zip(item.__code__.co_freevars, item.__closure__ or ()))), item.__globals__
        yield cells, list(cells.cells)
        scopes.setdefault(id(scope), (scope, set()))[1].update(item.__code__.co_names)
        named = [scope[name] for name in item.__code__.co_names if name in scope]
        waiting += [cells[name] for name in cells.cells if name in cells]
        waiting += [value for value in named if is_kind(value, _FUNCTIONS) and value.__module__ == scope.get("__name__")]
    for scope, names in scopes.values():
        yield scope, list(names)


def present_items(holder: Any, keys: list[Any] | None) -> dict[Any, Any]:
    """Return what one of the ``variable_holders`` has now under its keys."""
    return {key: holder[key] for key in (list(holder) if keys is None else keys) if key in holder}


def names_in(code: types.CodeType) -> Iterator[str]:
    """Yield the names that a function uses, and those of the functions inside it."""
    yield from (*code.co_names, *code.co_freevars)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_in(constant)


def assign(holder: Any, key: Any, value: Any) -> None:
    """Assign a value that differs from the present one."""
    if holder[key] is not value:
        holder[key] = value


class _Cells:
    """The variables of a closure as items."""

    def __init__(self, cells: dict[str, Any]) -> None:
        self.cells = cells

    def __getitem__(self, name: str) -> Any:
        return self.cells[name].cell_contents

    def __setitem__(self, name: str, value: Any) -> None:
        self.cells[name].cell_contents = value

    def __delitem__(self, name: str) -> None:
        del self.cells[name].cell_contents

    def __contains__(self, name: str) -> bool:
        try:
            self.cells[name].cell_contents  # noqa: B018
        except (KeyError, ValueError):  # a variable without a value yet
            return False
        return True


# Random generators.

#: How many objects are searched for generators, and how deep inside one another.
MOST_OBJECTS, DEPTH = 2_000, 3


class _Generator(NamedTuple):
    library: str
    get_state: Callable[[], Any]
    set_state: Callable[[Any], object]


@contextmanager
def restored_generators(fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[list[bool]]:
    """Put random generators back into their state after the block; the list then tells of each whether numpy drew from it.

    These are the generators of Python, numpy and torch, and those that ``fn`` is given, closes over or finds in its object and
    its module.
    """
    drawn: list[bool] = []
    generators = [*_global_generators(), *_reachable_generators(fn, [*args, *kwargs.values()])]
    states = [generator.get_state() for generator in generators]
    try:
        yield drawn
    finally:
        for generator, state in zip(generators, states):
            drawn.append(generator.library == "numpy" and pickle.dumps(generator.get_state()) != pickle.dumps(state))
            generator.set_state(state)


def _global_generators() -> Iterator[_Generator]:
    yield _Generator("python", random.getstate, random.setstate)
    numpy, torch = loaded("numpy.random"), loaded("torch")
    if numpy is not None:
        yield _Generator("numpy", numpy.get_state, numpy.set_state)
    if torch is not None:
        yield _Generator("torch", torch.get_rng_state, torch.set_rng_state)
        if torch.cuda.is_initialized():
            yield _Generator("torch", torch.cuda.get_rng_state_all, torch.cuda.set_rng_state_all)


def _reachable_generators(fn: Any, given: list[Any]) -> Iterator[_Generator]:
    waiting = [(value, DEPTH) for value in (*given, fn.__self__ if is_kind(fn, types.MethodType) else None)]
    for holder, keys in variable_holders(fn):
        waiting += [(value, DEPTH) for value in present_items(holder, keys).values()]
    visited: set[int] = set()
    while waiting and len(visited) < MOST_OBJECTS:
        value, depth = waiting.pop()
        if id(value) in visited:
            continue
        visited.add(id(value))
        generator = _generator(value)
        if generator is not None:
            yield generator
        elif depth:
            items = contents(value, MOST_OBJECTS)
            waiting += [(item, depth - 1) for item in items or tuple((attributes(value) or {}).values())]


def _generator(value: Any) -> _Generator | None:
    numpy, torch = loaded("numpy.random"), loaded("torch")
    if numpy is not None and is_kind(value, (numpy.Generator, numpy.BitGenerator)):
        bits = getattr(value, "bit_generator", value)
        return _Generator("numpy", lambda: bits.state, lambda state: setattr(bits, "state", state))
    if numpy is not None and is_kind(value, numpy.RandomState):
        return _Generator("numpy", value.get_state, value.set_state)
    if torch is not None and is_kind(value, torch.Generator):
        return _Generator("torch", value.get_state, value.set_state)
    if is_kind(value, random.Random):
        return _Generator("python", value.getstate, value.setstate)
    return None
