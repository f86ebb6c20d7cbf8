"""Where a function finds what it is not given: its closure, the arguments of a partial, its object, its module."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import Any


def surroundings(fn: Any) -> Iterator[tuple[Any, list[Any] | None]]:
    """Holders with the keys under which a function may find values in them, or put them; None for all that there are at any
    time. Also those of the functions of its own module that it names."""
    waiting, done = [fn], set()
    scopes: dict[int, tuple[dict[str, Any], set[str]]] = {}
    while waiting:
        item = waiting.pop()
        if isinstance(item, functools.partial):
            yield _Partial(item), list(range(len(item.args)))
            yield item.keywords, None
            waiting.append(item.func)
            continue
        owner, item = getattr(item, "__self__", None), getattr(item, "__func__", item)
        if not isinstance(item, types.FunctionType) or item in done:
            continue
        done.add(item)
        if isinstance(getattr(owner, "__dict__", None), dict):
            yield vars(owner), None
        cells, scope = _Cells(dict(zip(item.__code__.co_freevars, item.__closure__ or ()))), item.__globals__
        yield cells, list(cells.cells)
        scopes.setdefault(id(scope), (scope, set()))[1].update(item.__code__.co_names)
        named = [scope[name] for name in item.__code__.co_names if name in scope]
        waiting += [cells[name] for name in cells.cells if name in cells]
        waiting += [value for value in named if getattr(value, "__module__", None) == scope.get("__name__")]
    for scope, names in scopes.values():
        yield scope, list(names)


def names_of(code: types.CodeType) -> Iterator[str]:
    """The names that a function uses, those of the functions inside it too."""
    yield from (*code.co_names, *code.co_freevars)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_of(constant)


def put(holder: Any, key: Any, value: Any) -> None:
    """Assign, where it is another value."""
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
        except (KeyError, ValueError):  # a variable that has no value yet
            return False
        return True


class _Partial:
    """The arguments of a partial as items."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner

    def __getitem__(self, at: int) -> Any:
        return self.owner.args[at]

    def __setitem__(self, at: int, value: Any) -> None:
        args = (*self.owner.args[:at], value, *self.owner.args[at + 1 :])
        self.owner.__setstate__((self.owner.func, args, self.owner.keywords, vars(self.owner)))

    def __contains__(self, at: int) -> bool:
        return at in range(len(self.owner.args))
