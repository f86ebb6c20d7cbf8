"""Values of other people's libraries as plain builtins, in one place: what leaves a test is exact int, float, str or bool.

A numpy scalar in a test report breaks pytest-xdist, at the end of a run in silence.
"""

from __future__ import annotations

from typing import Any


def plain(value: Any) -> Any:
    """``value`` as an exact builtin: numpy and torch scalars by ``item()``, dtypes by their name; others as they are."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    for kind in (bool, int, float, str):  # subclasses: numpy.float64, enum.StrEnum, torch.Size's ints
        if isinstance(value, kind):
            return kind(value)
    named = dtype_name(value)
    if named is not None:
        return named
    item = getattr(value, "item", None)
    if callable(item):
        try:
            scalar = item()
        except Exception:  # of an array of several, of an object that means something else by it
            return value
        return plain(scalar) if isinstance(scalar, (bool, int, float, str)) else value
    return value


def raised(error: BaseException) -> str:
    """An exception in one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:200]


def dtype_name(value: Any) -> str | None:
    """The name of a dtype object of torch, numpy, JAX or ml_dtypes; None for anything else."""
    if type(value).__name__ == "dtype" and str(value).startswith("torch."):
        return str(value)
    if isinstance(value, type) and hasattr(value, "dtype") and hasattr(value, "itemsize"):  # numpy.float32, ml_dtypes.bfloat16
        return value.__name__
    name = getattr(value, "name", None)
    if isinstance(name, str) and hasattr(value, "itemsize") and hasattr(value, "kind"):  # numpy.dtype
        return name
    inner = getattr(value, "dtype", None)  # jax.numpy.bfloat16
    if inner is not None and not hasattr(value, "shape") and callable(value):
        return dtype_name(inner)
    return None
