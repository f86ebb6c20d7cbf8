"""What one launch on one device has of the run: its tokens, its context, its devices, the dtypes the run names."""

from __future__ import annotations

import math

from .inputs import Env
from .record import TYPE_CHECKING
from .units import Dtype, parse_dtype

if TYPE_CHECKING:
    from .modelconfig import ModelConfig


class CannotModelError(ValueError):
    """L2: this row has no work model or no shapes; the message is the reason."""


def launch_tokens(regime: str, env: Env, notes: list[str]) -> float:
    """Tokens of one launch over all ranks."""
    if regime == "prefill":
        if env.prefill_tokens is None:
            raise CannotModelError("prefill without shapes: tokens of one launch unknown (give workload.prefill_tokens)")
        notes.append(f"{env.prefill_tokens:g} tokens from workload.prefill_tokens")
        return env.prefill_tokens
    if env.conc is None:
        raise CannotModelError("decode without shapes: workload.conc is missing, so the tokens of one step are unknown")
    notes.append(f"{env.conc:g} tokens a step = workload.conc")
    return env.conc


def of_one_rank(tokens: float, env: Env, notes: list[str]) -> int:
    """The tokens of the fullest data-parallel rank."""
    ranks = env.data_parallel or 1
    if ranks == 1:
        return int(tokens)
    if (env.tensor_parallel or 1) > 1:
        raise CannotModelError("tp and dp together: engines differ in whether dp divides tp, so one device's share is unknown")
    share = math.ceil(tokens / ranks)
    notes.append(f"{share} of them on the fullest of {ranks} data-parallel ranks (assumed: the workload is that of all)")
    return share


def parallel(env: Env, notes: list[str]) -> int:
    if env.tensor_parallel is None:
        notes.append("tensor parallelism not given: 1 assumed")
    return env.tensor_parallel or 1


def context(env: Env) -> tuple[float, list[float], str]:
    """The mean context of a decode step and its range: isl + osl/2 over [isl, isl + osl] (specification section 4)."""
    if env.isl is None or env.osl is None:
        raise CannotModelError("attention without seq_len, and workload.isl and workload.osl are not both given")
    mean = env.isl + env.osl / 2
    return mean, [env.isl, env.isl + env.osl], f"context {mean:g} = isl + osl/2"


def named_dtype(name: str, key: str) -> Dtype:
    try:
        return parse_dtype(name)
    except ValueError as error:
        raise CannotModelError(f"{key}: {error}") from None


def sixteen_bit(config: ModelConfig, env: Env, what: str) -> Dtype:
    """The model's own dtype for what a weight quantisation leaves alone."""
    if config.dtype is not None:
        return config.dtype
    if env.model_dtype:
        named = named_dtype(env.model_dtype, "model_dtype")
        if named.value_bits >= 16:
            return named
    raise CannotModelError(f"the dtype of {what} is unknown: config.json has no torch_dtype")
