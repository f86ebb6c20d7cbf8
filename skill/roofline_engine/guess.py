"""Shapes for a row that has none captured: from its own ``est_shape`` or tensors, else from the model's config (stage A).

Everything here is a guess that is shown and never ranked on. What cannot be told is refused with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping

from .inputs import Env, Row
from .kernels import UNMODELLED, Hint
from .modelconfig import ModelConfig
from .models import OPS
from .units import Dtype, parse_dtype, whole


class CannotModelError(ValueError):
    """L2: this row has no work model or no shapes; the message is the reason."""


def parameters(
    row: Row, hint: Hint, regime: str, env: Env, config: ModelConfig | None, notes: list[str]
) -> tuple[str, dict[str, object]]:
    """Op and work-model parameters for one row; what was assumed goes to ``notes``.

    Raises:
        CannotModelError: with the reason.
    """
    given = _estimated(row, hint, notes) or _from_tensors(row, hint, notes)
    if given:
        return given
    if hint.op not in OPS:
        raise CannotModelError(UNMODELLED[hint.op])
    if hint.op not in ("moe", "attn_decode", "rmsnorm"):
        raise CannotModelError(f"{hint.op} without usable shapes: which of the model's operands these are cannot be told")
    if config is None:
        raise CannotModelError(f"{hint.op} without usable shapes, and no config.json of the model")
    tokens = _tokens(regime, env, notes)
    if hint.op == "moe":
        return "moe", _moe(hint, tokens, env, config, notes)
    if hint.op == "attn_decode":
        return "attn_decode", _attention(env, config, notes)
    return "rmsnorm", _rmsnorm(row, tokens, env, config, notes)


def _estimated(row: Row, hint: Hint, notes: list[str]) -> tuple[str, dict[str, object]] | None:
    """``est_shape`` as parameters of the op: an object, or text such as ``M=64, N=4096, K=2048, dtype=bf16``."""
    if row.est_shape is None:
        return None
    if isinstance(row.est_shape, Mapping):
        values = {str(key): value for key, value in row.est_shape.items()}
    elif isinstance(row.est_shape, str) and "=" in row.est_shape:
        pairs = (item.partition("=") for item in row.est_shape.replace(";", ",").split(","))
        values = {key.strip(): value.strip() for key, _, value in pairs if key.strip()}
    else:
        notes.append("est_shape is neither an object nor text like M=64, N=4096: not used")
        return None
    op = values.pop("op", hint.op)
    for key in ("launches", "calls", "t_us"):
        values.pop(key, None)
    if not isinstance(op, str) or op not in OPS:
        raise CannotModelError(f"est_shape: no work model for op {op!r:.40}")
    if "dtype" not in values and isinstance(row.dtypes, list) and row.dtypes:
        values["dtype"] = row.dtypes[0]
    notes.append("shapes from est_shape")
    return op, values


def _from_tensors(row: Row, hint: Hint, notes: list[str]) -> tuple[str, dict[str, object]] | None:
    """The row's own tensor shapes and dtypes, for the ops whose operands they identify."""
    if hint.op not in ("gemm", "elementwise", "copy", "softmax", "rmsnorm", "layernorm"):
        return None
    tensors = _tensors(row, notes)
    if not tensors:
        return None
    used = "shapes from the Top-N's tensors"
    first, dtype = tensors[0]
    if hint.op == "gemm":
        matrices = [item for item in tensors if len(item[0]) == 2][:2]
        if len(matrices) < 2:
            return None
        (m, k), (rows, cols), weight = matrices[0][0], matrices[1][0], matrices[1][1]
        if k not in (rows, cols):
            return None
        notes.append(used)
        n = cols if k == rows else rows
        return "gemm", {"M": m, "N": n, "K": k, "dtype": matrices[0][1], "weight_dtype": weight}
    notes.append(used)
    numel = 1
    for size in first:
        numel *= size
    if hint.op == "elementwise":
        if any(shape != first for shape, _ in tensors):
            notes.append("the Top-N's tensors have different shapes: which are read and which written cannot be told")
            return None
        return "elementwise", {"numel": numel, "inputs": len(tensors), "outputs": 1, "dtype": dtype}
    return hint.op, {"rows": numel // first[-1], "cols": first[-1], "dtype": dtype}


def _tensors(row: Row, notes: list[str]) -> list[tuple[list[int], Dtype]]:
    """(logical shape, dtype) of each tensor; lists that cannot be read are no evidence, an unknown dtype is refused."""
    if not row.shapes and not row.dtypes:
        return []
    shapes, dtypes = row.shapes, row.dtypes
    if isinstance(shapes, list) and isinstance(dtypes, list) and len(dtypes) == 1:
        dtypes = dtypes * len(shapes)
    if not isinstance(shapes, list) or not isinstance(dtypes, list) or len(shapes) != len(dtypes):
        notes.append("the Top-N's shapes and dtypes are not two lists of the same length: not used")
        return []
    found = []
    for shape, name in zip(shapes, dtypes):
        try:
            sizes = [whole(size, "size") for size in shape] if isinstance(shape, list) else []
        except ValueError:
            sizes = []
        if not sizes:
            notes.append("a shape of the Top-N is no list of sizes: its tensors are not used")
            return []
        try:
            dtype = parse_dtype(name)
        except ValueError as error:
            raise CannotModelError(str(error)) from None
        if dtype.pack != 1 and dtype.peak:  # the stored shape holds several values an element
            sizes[-1] *= dtype.pack
            dtype = parse_dtype(dtype.peak)
        found.append((sizes, dtype))
    return found


def _rmsnorm(row: Row, tokens: float, env: Env, config: ModelConfig, notes: list[str]) -> dict[str, object]:
    low = row.name.lower()
    if "quant" in low or "qk" in low or "q_norm" in low or "k_norm" in low:
        raise CannotModelError("a norm of another width, or fused with quantisation: its shapes are not in config.json")
    if config.hidden is None:
        raise CannotModelError("rmsnorm without shapes: config.json has no hidden size")
    notes.append("hidden size from config.json")
    residual = "add" in low
    return {"rows": tokens, "cols": config.hidden, "dtype": _sixteen_bit(config, env, "activations"), "residual": residual}


def _tokens(regime: str, env: Env, notes: list[str]) -> float:
    if regime == "prefill":
        if env.prefill_tokens is None:
            raise CannotModelError("prefill without shapes: tokens of one launch unknown (give workload.prefill_tokens)")
        notes.append(f"{env.prefill_tokens:g} tokens from workload.prefill_tokens")
        return env.prefill_tokens
    if env.conc is None:
        raise CannotModelError("decode without shapes: workload.conc is missing, so the tokens of one step are unknown")
    notes.append(f"{env.conc:g} tokens a step = workload.conc")
    return env.conc


def _parallel(env: Env, notes: list[str]) -> int:
    if env.tensor_parallel is None:
        notes.append("tensor parallelism not given: 1 assumed")
    return env.tensor_parallel or 1


def _moe(hint: Hint, tokens: float, env: Env, config: ModelConfig, notes: list[str]) -> dict[str, object]:
    sizes = {
        "hidden": config.hidden,
        "inter": config.moe_inter,
        "experts": config.experts,
        "top_k": config.top_k,
    }
    missing = [key for key, value in sizes.items() if value is None]
    if missing:
        raise CannotModelError(f"moe without shapes: config.json does not give {', '.join(missing)}")
    tp, ep = _parallel(env, notes), env.expert_parallel or 1
    inter, experts = config.moe_inter or 0, config.experts or 0
    if ep > 1:
        raise CannotModelError("moe without shapes under expert parallelism: the tokens routed to this device are unknown")
    if inter % tp:
        raise CannotModelError(f"moe without shapes: the experts' width {inter} does not split over {tp} devices")
    weight = _with_scales(hint.weight_dtype, env) or _weight_dtype(config, env)
    act = _with_scales(hint.dtype, env) or (weight if weight.value_bits == 8 else _sixteen_bit(config, env, "activations"))
    notes.append(f"expert sizes from config.json, activations in {act.name}, weights in {weight.name}")
    sizes.update(tokens=int(tokens), inter=inter // tp, experts=experts)
    return {**sizes, "stage": hint.stage or "both", "gated": config.gated, "dtype": act, "weight_dtype": weight}


def _with_scales(spelled: Dtype | None, env: Env) -> Dtype | None:
    """A kernel name says fp4 where the model is mxfp4: the same values, and the scales are part of the operand."""
    if spelled is None or not env.model_dtype:
        return spelled
    model = _named(env.model_dtype, "model_dtype")
    return model if model.peak == spelled.peak else spelled


def _attention(env: Env, config: ModelConfig, notes: list[str]) -> dict[str, object]:
    if config.attention_kind:
        raise CannotModelError(f"{config.attention_kind}: no work model")
    heads, kv_heads, head_dim = config.n_q_heads, config.n_kv_heads, config.head_dim
    if heads is None or kv_heads is None or head_dim is None:
        raise CannotModelError("attention without shapes: config.json does not give head counts and head_dim")
    tp = _parallel(env, notes)
    if heads % tp or (kv_heads % tp and tp % kv_heads):
        raise CannotModelError(f"attention without shapes: {heads} and {kv_heads} heads do not split over {tp} devices")
    kv = _sixteen_bit(config, env, "the KV cache")
    if env.kv_dtype and env.kv_dtype != "auto":
        kv = _named(env.kv_dtype, "kv_cache_dtype")
    if config.sliding_window is not None:
        notes.append("config.json has a sliding window that some layers may use: full context assumed")
    notes.append(f"heads from config.json, KV cache in {kv.name}")
    return {
        "batch": int(env.conc or 1),
        "n_q_heads": heads // tp,
        "n_kv_heads": max(1, kv_heads // tp),
        "head_dim": head_dim,
        "dtype": _sixteen_bit(config, env, "queries"),
        "kv_dtype": kv,
    }


def context(env: Env) -> tuple[float, list[float], str]:
    """The mean context of a decode step and its range: isl + osl/2 over [isl, isl + osl] (specification section 4)."""
    if env.isl is None or env.osl is None:
        raise CannotModelError("attention without seq_len, and workload.isl and workload.osl are not both given")
    mean = env.isl + env.osl / 2
    return mean, [env.isl, env.isl + env.osl], f"context {mean:g} = isl + osl/2"


def _named(name: str, key: str) -> Dtype:
    try:
        return parse_dtype(name)
    except ValueError as error:
        raise CannotModelError(f"{key}: {error}") from None


def _weight_dtype(config: ModelConfig, env: Env) -> Dtype:
    if env.model_dtype:
        named = _named(env.model_dtype, "model_dtype")
        written = config.weight_dtype
        if written is not None and written.value_bits != named.value_bits and written.value_bits < 16:
            raise CannotModelError(f"model_dtype says {named.name}, config.json says {written.name} weights: which is it?")
        return named
    if config.weight_dtype is None:
        raise CannotModelError("the weights' dtype is unknown: give model_dtype in env_report.json")
    return config.weight_dtype


def _sixteen_bit(config: ModelConfig, env: Env, what: str) -> Dtype:
    """The model's own dtype for what a weight quantisation leaves alone."""
    if config.dtype is not None:
        return config.dtype
    if env.model_dtype:
        named = _named(env.model_dtype, "model_dtype")
        if named.value_bits >= 16:
            return named
    raise CannotModelError(f"the dtype of {what} is unknown: config.json has no torch_dtype")
