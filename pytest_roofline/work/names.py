"""Work guessed from the names of a test and its parametrize arguments: stage A, for display only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roofline_engine.kernels import classify
from roofline_engine.models import OPS, REQUIRED
from roofline_engine.units import number, parse_dtype

from ..plain import plain

#: Names that kernel tests give the sizes, lower case; the first of each is the model's own.
_ALIASES = {
    "M": ("m", "num_tokens", "tokens", "bs", "batch_size", "rows"),
    "N": ("n", "out_features", "output_size", "intermediate_size"),
    "K": ("k", "in_features", "input_size", "hidden_size", "hidden"),
    "rows": ("rows", "m", "num_tokens", "tokens", "seq_len"),
    "cols": ("cols", "n", "hidden_size", "hidden", "hidden_dim", "dim", "d"),
    "dtype": ("dtype", "data_type", "torch_dtype", "in_dtype", "input_dtype"),
    "weight_dtype": ("weight_dtype", "w_dtype", "quant_dtype"),
    "out_dtype": ("out_dtype", "output_dtype"),
}


def guess(name: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
    """The keywords that the names suggest; None unless they give every size and the dtype of one op's model."""
    op = classify(name.removeprefix("test_").removeprefix("bench_")).op
    if op not in OPS:
        return None
    needed = [key for key, default in _parameters(op).items() if default is REQUIRED]
    if not all(key in _ALIASES for key in needed):
        return None
    lower = {key.lower(): plain(value) for key, value in params.items()}
    found: dict[str, Any] = {"op": op}
    for key in (*needed, "dtype"):
        value = next((lower[alias] for alias in _ALIASES[key] if alias in lower), None)
        if value is None or not _fits(key, value):
            return None
        found[key] = value
    for key in ("weight_dtype", "out_dtype"):
        value = next((lower[alias] for alias in _ALIASES[key] if alias in lower), None)
        if value is not None and _fits(key, value) and (key == "out_dtype" or key in _parameters(op)):
            found[key] = value
    return found


def _parameters(op: str) -> Mapping[str, object]:
    return OPS[op].parameters


def _fits(key: str, value: Any) -> bool:
    try:
        parse_dtype(value) if key.endswith("dtype") else number(value, key, minimum=1)
    except ValueError:
        return False
    return True
