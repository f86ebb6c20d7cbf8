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
#: Sizes that a test may have beside those of the model. One that the model has no place for multiplies its work, by what is not
#: told: a batch beside seq_len, heads beside a hidden size, experts beside M.
_MULTIPLIERS = {"batch", "batch_size", "bs", "b", "num_seqs", "seq_len", "seqlen", "num_tokens", "tokens"}
_MULTIPLIERS |= {"num_heads", "n_heads", "heads", "num_experts", "experts", "e", "top_k", "topk", "groups", "num_groups", "g"}


def guess(name: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
    """The keywords that the names suggest; None unless they give each size and the dtype of one op's model, and none beside."""
    op = classify(name.removeprefix("test_").removeprefix("bench_")).op
    if op not in OPS:
        return None
    needed = [key for key, default in _parameters(op).items() if default is REQUIRED]
    if not all(key in _ALIASES for key in needed):
        return None
    lower = {key.lower(): plain(value) for key, value in params.items()}
    found: dict[str, Any] = {"op": op}
    beside = {name for name in _MULTIPLIERS & lower.keys() if lower[name] != 1}
    for key in (*needed, "dtype"):
        alias = next((alias for alias in _ALIASES[key] if alias in lower), None)
        if alias is None or not _fits(key, lower[alias]):
            return None
        found[key] = lower[alias]
        beside.discard(alias)
    if beside:
        return None
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
