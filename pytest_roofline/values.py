"""Values that users and other libraries give, as plain builtins.

What leaves a test is an exact int, float, str or bool: a numpy scalar in a test report breaks pytest-xdist, silently, at the
end of a run.
"""

from __future__ import annotations

from typing import Any

from roofline_engine.units import number


def plain(value: Any) -> Any:
    """Return an exact builtin: numpy and torch scalars by ``item()``, dtypes by their name. Other values stay as they are."""
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
        except Exception:  # an array of several values, or an object whose item() means something else
            return value
        return plain(scalar) if isinstance(scalar, (bool, int, float, str)) else value
    return value


def raised(error: BaseException) -> str:
    """Describe an exception in one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:200]


def dtype_name(value: Any) -> str | None:
    """Return the name of a dtype object of torch, numpy, JAX or ml_dtypes; None for anything else."""
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
