"""Random generators that a call draws from, set back to where they stood."""

from __future__ import annotations

import pickle
import random
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ...timing.arrays import loaded
from .surroundings import surroundings

#: Objects that are looked at for generators, and how deep inside one another.
MOST_OBJECTS, DEPTH = 2_000, 3


class _Generator:
    """kind: numpy or another. get, put: its state."""

    def __init__(self, kind: str, get: Callable[[], Any], put: Callable[[Any], object]) -> None:
        self.kind, self._get, self._put = kind, get, put
        self._state = get()

    def put_back(self) -> bool:
        """Whether something was drawn from it."""
        drawn = self.kind == "numpy" and pickle.dumps(self._get()) != pickle.dumps(self._state)
        self._put(self._state)
        return drawn


@contextmanager
def as_before(fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[list[bool]]:
    """The generators of Python, numpy and torch, and those that ``fn`` is given, closes over or finds in its object and its
    module, stand afterwards where they stood before. The list then holds whether random numbers of numpy were drawn."""
    drawn: list[bool] = []
    known = [*_global(), *_found(fn, [*args, *kwargs.values()])]
    try:
        yield drawn
    finally:
        put_back = [generator.put_back() for generator in known]
        drawn.append(any(put_back))


def _global() -> Iterator[_Generator]:
    yield _Generator("python", random.getstate, random.setstate)
    numpy, torch = loaded("numpy.random"), loaded("torch")
    if numpy is not None:
        yield _Generator("numpy", numpy.get_state, numpy.set_state)
    if torch is not None:
        yield _Generator("torch", torch.get_rng_state, torch.set_rng_state)
        if torch.cuda.is_initialized():
            yield _Generator("torch", torch.cuda.get_rng_state_all, torch.cuda.set_rng_state_all)


def _found(fn: Any, given: list[Any]) -> Iterator[_Generator]:
    """Those that are reached from a function and what it is given."""
    waiting = [(value, DEPTH) for value in (*given, getattr(fn, "__self__", None))]
    for holder, keys in surroundings(fn):
        waiting += [(holder[key], DEPTH) for key in (list(holder) if keys is None else keys) if key in holder]
    done: set[int] = set()
    while waiting and len(done) < MOST_OBJECTS:
        value, depth = waiting.pop()
        if id(value) in done:
            continue
        done.add(id(value))
        generator = _generator(value)
        if generator is not None:
            yield generator
        elif depth:
            waiting += [(inner, depth - 1) for inner in _inside(value)]


def _generator(value: Any) -> _Generator | None:
    numpy, torch = loaded("numpy.random"), loaded("torch")
    if numpy is not None and isinstance(value, (numpy.Generator, numpy.BitGenerator)):
        bits = getattr(value, "bit_generator", value)
        return _Generator("numpy", lambda: bits.state, lambda state: setattr(bits, "state", state))
    if numpy is not None and isinstance(value, numpy.RandomState):
        return _Generator("numpy", value.get_state, value.set_state)
    if torch is not None and isinstance(value, torch.Generator):
        return _Generator("torch", value.get_state, value.set_state)
    if isinstance(value, random.Random):
        return _Generator("python", value.getstate, value.setstate)
    return None


def _inside(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple, set)):
        return list(value)[:MOST_OBJECTS]
    if isinstance(value, Mapping):
        return list(value.values())[:MOST_OBJECTS]
    if isinstance(value, (type, types.ModuleType, types.FunctionType)):
        return []
    held = getattr(value, "__dict__", None)
    return list(held.values()) if isinstance(held, dict) else []
