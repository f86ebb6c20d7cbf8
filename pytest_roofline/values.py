"""Values that users and other libraries give, as plain builtins.

What leaves a test is an exact int, float, str or bool: a numpy scalar in a test report breaks pytest-xdist, silently, at the
end of a run.

A value of a test may be anything: a mock that records what is read of it, a proxy that raises on every attribute, a list that
holds itself. A look at one asks its type and the methods of the builtin types, and runs no code of the value's own class.
"""

from __future__ import annotations

from collections import UserDict, deque
from collections.abc import Iterator
from itertools import islice
from types import FunctionType, MethodType, ModuleType
from typing import Any

from roofline_engine.units import number

#: Containers inside one another beyond which a value is not looked at.
MOST_NESTED = 16


def is_kind(value: object, kinds: type | tuple[type, ...]) -> bool:
    """Return whether the type of a value inherits from one of ``kinds``.

    ``isinstance`` also asks the value's ``__class__``, and the metaclass of an abstract class.
    """
    if type(kinds) is tuple:
        return any(type.__subclasscheck__(kind, type(value)) for kind in kinds)
    return type.__subclasscheck__(kinds, type(value))  # type: ignore[arg-type]


def contents(value: Any, most: int) -> Iterator[Any] | None:
    """Return an iterator over the first ``most`` items of a builtin container or ``UserDict``; None for any other value."""
    if is_kind(value, list):
        return islice(list.__iter__(value), most)
    if is_kind(value, tuple):
        return islice(tuple.__iter__(value), most)
    if is_kind(value, dict):
        return iter(tuple(islice(dict.values(value), most)))  # another thread may change it
    if is_kind(value, deque):
        return iter(tuple(islice(deque.__iter__(value), most)))
    if is_kind(value, (set, frozenset)):
        kind = set if is_kind(value, set) else frozenset
        return iter(tuple(islice(kind.__iter__(value), most)))
    if is_kind(value, UserDict):
        data = (attributes(value) or {}).get("data")
        return contents(data, most) if type(data) is dict else iter(())
    return None


def defines(kind: type, *names: str) -> bool:
    """Return whether a class or a base of it has each of these members; ``hasattr`` would also ask its metaclass."""
    members = {name for base in type.mro(kind) for name in names if name in vars(base)}
    return len(members) == len(names)


def attributes(value: Any) -> dict[str, Any] | None:
    """Return the attributes of a user's object; None for anything else."""
    if is_kind(value, (type, ModuleType, FunctionType, MethodType)):
        return None
    try:
        found = object.__getattribute__(value, "__dict__")
    except Exception:  # an object without attributes
        return None
    return found if type(found) is dict else None


def plain(value: Any, depth: int = MOST_NESTED) -> Any:
    """Return an exact builtin: numpy and torch scalars by ``item()``, dtypes by their name. Other values stay as they are."""
    if depth and is_kind(value, (list, tuple)):
        return [plain(item, depth - 1) for item in contents(value, len(value)) or ()]
    if depth and is_kind(value, dict):
        return {str(key): plain(item, depth - 1) for key, item in dict.items(value)}
    return scalar(value)


def scalar(value: Any) -> Any:
    """Return an exact bool, int, float or str for a scalar or a dtype; any other value as it is."""
    kind = type(value)
    if value is None or kind is int or kind is float or kind is str or kind is bool:
        return value
    try:
        for kind in (bool, int, float, str):  # subclasses: numpy.float64, enum.StrEnum, torch.Size's ints
            if is_kind(value, kind):
                return kind(value)
        named = dtype_name(value)
        if named is not None:
            return named
        if defines(type(value), "item", "dtype"):  # of an array library
            item = value.item()
            return scalar(item) if is_kind(item, (bool, int, float, str)) else value
    except Exception:  # an array of several values, or an object that fails when it is inspected
        return value
    return value


def raised(error: BaseException) -> str:
    """Describe an exception in one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:200]


def dtype_name(value: Any) -> str | None:
    """Return the name of a dtype object of torch, numpy, JAX or ml_dtypes; None for anything else."""
    kind = type(value)
    if kind.__name__ == "dtype" and kind.__module__ == "torch":
        return str(value)
    if is_kind(value, type):
        is_scalar = defines(value, "dtype", "itemsize")  # numpy.float32, ml_dtypes.bfloat16
        return str(value.__name__) if is_scalar else None
    if defines(kind, "itemsize", "kind", "byteorder"):  # numpy.dtype
        return str(value.name)
    inner = (attributes(value) or {}).get("dtype")  # jax.numpy.bfloat16
    if inner is not None and callable(value) and not defines(kind, "shape"):
        return dtype_name(inner)
    return None


def percent(value: Any, where: str) -> float:
    """Return a percent of the roof from 1 to 100. 0.6 is refused: it may mean 60 %.

    where: the option or keyword, for the message.

    Raises:
        ValueError: for any other value.
    """
    try:
        result = float(number(value, where, minimum=0))
    except ValueError:
        result = -1.0
    if not 1 <= result <= 100:
        raise ValueError(f"{where} is {value!r:.40}, expected a percent from 1 to 100 (60 is 60 %)")
    return result
