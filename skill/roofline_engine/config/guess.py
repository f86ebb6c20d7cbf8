"""Shapes for a row that has none captured: from its own ``est_shape`` or tensors, else from the model's config (stage A).

Everything here is a guess that is shown and never ranked on. What cannot be told is refused with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..inputs import Env, Row
from ..kernels import UNMODELLED, Hint
from ..ops import OPS
from ..units import Dtype, parse_dtype, whole
from .model import Attention, ModelConfig

#: Tile of aiter's fp4 MoE kernels: its tuned gpt-oss files hold 3072 where config.json says 2880.
_FP4_TILE = 256
_WHICH = "which of the model's operands these are cannot be told"
_OPERANDS = {"attn_prefill": "how the tokens of a launch split into sequences is unknown"}


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
    if hint.op == "mla_decode":
        return "mla_decode", latent(row, hint, regime, env, config, notes)
    if hint.op not in OPS:
        raise CannotModelError(UNMODELLED.get(hint.op, f"{hint.op}: no work model"))
    if hint.op not in ("moe", "attn_decode", "rmsnorm"):
        raise CannotModelError(f"{hint.op} without usable shapes: {_OPERANDS.get(hint.op, _WHICH)}")
    if config is None:
        raise CannotModelError(f"{hint.op} without usable shapes, and no config.json of the model")
    if hint.op == "attn_decode" and config.mla is not None and not config.attention_kind:
        return "mla_decode", latent(row, hint, regime, env, config, notes)
    if hint.op == "attn_decode" and regime == "prefill":
        raise CannotModelError(f"attention at prefill without usable shapes: {_OPERANDS['attn_prefill']}")
    tokens = launch_tokens(regime, env, notes)
    if hint.op == "moe":
        return "moe", _moe(hint, tokens, env, config, notes)
    if hint.op == "attn_decode":
        return "attn_decode", attention(row, tokens, env, config, notes)
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
        if any(tensor != tensors[0] for tensor in tensors):
            notes.append("the Top-N's tensors differ in shape or dtype: which are read and which written cannot be told")
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
    if config.mla is not None and config.mla.q_lora_rank is not None:
        notes.append("the norms of the latent ranks may run under the same name: hidden size assumed")
    residual = "add" in low
    return {
        "rows": of_one_rank(tokens, env, notes),
        "cols": config.hidden,
        "dtype": sixteen_bit(config, env, "activations"),
        "residual": residual,
    }


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
    tp, ep = parallel(env, notes), env.expert_parallel or 1
    inter, experts = config.moe_inter or 0, config.experts or 0
    if ep > 1:
        here = f"{experts // ep} of {experts} experts are here" if experts % ep == 0 else f"{experts} experts over {ep} devices"
        raise CannotModelError(f"moe without shapes under expert parallelism: {here}, the tokens routed to them are unknown")
    if (env.data_parallel or 1) > 1:
        raise CannotModelError("moe without shapes under data parallelism: whether a device sees all ranks' tokens is unknown")
    if inter % tp:
        raise CannotModelError(f"moe without shapes: the experts' width {inter} does not split over {tp} devices")
    weight = _with_scales(hint.weight_dtype, env, config) or _weight_dtype(config, env, notes)
    act = _with_scales(hint.dtype, env, config) or _activations(weight, config, env)
    notes.append(f"expert sizes from config.json, activations in {act.name}, weights in {_width(weight, config)}")
    sizes.update(tokens=int(tokens), inter=inter // tp)
    _say_padding([config.hidden or 0, inter // tp], weight, notes)
    shared = _shared_experts(config, tp, notes)
    return {**sizes, **shared, "stage": hint.stage or "both", "gated": config.gated, "dtype": act, "weight_dtype": weight}


def _shared_experts(config: ModelConfig, tp: int, notes: list[str]) -> dict[str, object]:
    """Shared experts count where config.json says that the engine fuses them into the launch of the routed ones."""
    count, width = config.shared_experts, config.shared_inter
    if not count or not width:
        return {}
    what = f"{count} shared expert{'s' if count > 1 else ''} of width {width}"
    fused = config.fused_shared and width % tp == 0 and "shared_experts" not in config.excluded
    if not fused:
        notes.append(f"{what} not counted: taken for a launch of its own (num_fused_shared_experts says otherwise)")
        return {}
    notes.append(f"{what} counted: num_fused_shared_experts is {config.fused_shared}")
    return {"shared_experts": count, "shared_inter": width // tp}


def _say_padding(sizes: list[int], weight: Dtype, notes: list[str]) -> None:
    """aiter pads gpt-oss's 2880 to 3072 for its fp4 kernels: 256 is the multiple of their tiles."""
    if weight.value_bits > 4:
        return
    for size in sorted(set(sizes)):
        padded = -(-size // _FP4_TILE) * _FP4_TILE
        if padded != size:
            notes.append(f"a 4-bit kernel may pad {size} to {padded} (+{100 * (padded / size - 1):.1f} %): not counted")


def _width(dtype: Dtype, config: ModelConfig) -> str:
    """The dtype's name, with what shares a scale where that is the config's to say."""
    block = config.quantisation.block if config.quantisation is not None and dtype == config.weight_dtype else ()
    if dtype.bits == dtype.value_bits or dtype.name.startswith(("mx", "nv")) or not block:
        return dtype.name
    return f"{dtype.name} ({dtype.bits:.5g} bits with a scale per {'x'.join(map(str, block))})"


def _with_scales(spelled: Dtype | None, env: Env, config: ModelConfig) -> Dtype | None:
    """A kernel name says fp4 where the model is mxfp4: the same values, and the scales are part of the operand."""
    if spelled is None:
        return None
    if env.model_dtype:
        model = named_dtype(env.model_dtype, "model_dtype")
        return model if model.peak == spelled.peak else spelled
    written = config.weight_dtype
    return written if written is not None and written.peak == spelled.peak else spelled


def _weight_dtype(config: ModelConfig, env: Env, notes: list[str]) -> Dtype:
    """The experts' dtype: the config's, which knows the scales and what is left alone, unless the run says otherwise."""
    written, quantised = config.weight_dtype, config.quantisation
    named = named_dtype(env.model_dtype, "model_dtype") if env.model_dtype else None
    if quantised is not None and quantised.dtype is not None:
        if written is None:
            raise CannotModelError("config.json leaves some of the experts at the model's dtype: their width differs by layer")
        if written == config.dtype:
            notes.append(f"{quantised.method} leaves the experts in {written.name}")
            return written
    if named is None:
        if written is None:
            raise CannotModelError("the weights' dtype is unknown: give model_dtype in env_report.json")
        return written
    if written is not None and written.value_bits != named.value_bits and written.value_bits < 16:
        raise CannotModelError(f"model_dtype says {named.name}, config.json says {written.name} weights: which is it?")
    return written if written is not None and written.peak == named.peak and written.bits > named.bits else named


def _activations(weight: Dtype, config: ModelConfig, env: Env) -> Dtype:
    """What feeds the experts: as the quantisation says; without one, 8-bit weights are fed 8-bit activations."""
    quantised = config.quantisation
    if quantised is not None and quantised.dtype is not None and weight == config.weight_dtype:
        return config.activation_dtype or sixteen_bit(config, env, "activations")
    return weight if weight.value_bits == 8 else sixteen_bit(config, env, "activations")


def latent(row: Row, hint: Hint, regime: str, env: Env, config: ModelConfig | None, notes: list[str]) -> dict[str, object]:
    """MLA decode: every head reads the same latents, so tensor parallelism splits the heads and not the cache."""
    low = row.name.lower()
    if any(word in low for word in ("indexer", "mqa_logits")):
        raise CannotModelError("the indexer of sparse attention reads its own keys, not the latents: no work model")
    if any(word in low for word in ("reduce", "combine", "metadata", "cache", "quant")):
        raise CannotModelError("a step beside latent attention, whose operands are in no file")
    if regime == "prefill" or "prefill" in low:
        raise CannotModelError("multi-head latent attention at prefill: no work model")
    if config is None:
        raise CannotModelError(f"{hint.op} without usable shapes, and no config.json of the model")
    if config.attention_kind:
        raise CannotModelError(f"{config.attention_kind}: no work model")
    mla, heads = config.mla, config.n_q_heads
    if mla is None or mla.kv_lora_rank is None or mla.rope_dim is None or heads is None:
        raise CannotModelError(
            "multi-head latent attention without shapes: config.json does not give kv_lora_rank, rope and head counts"
        )
    batch = of_one_rank(launch_tokens(regime, env, notes), env, notes)
    tp = parallel(env, notes)
    if heads % tp:
        raise CannotModelError(f"multi-head latent attention without shapes: {heads} heads do not split over {tp} devices")
    mean, (low_end, high_end), note = context(env)
    notes.append(note)
    if config.index_topk is not None:
        mean, low_end, high_end = (min(size, config.index_topk) for size in (mean, low_end, high_end))
        notes.append(f"sparse: at most index_topk = {config.index_topk} tokens are read")
    kv = _cache_dtype(config, env, notes)
    return {
        "batch": batch,
        "n_q_heads": heads // tp,
        "kv_lora_rank": mla.kv_lora_rank,
        "rope_dim": mla.rope_dim,
        "seq_len": mean,
        "seq_len_range": [low_end, high_end],
        "dtype": sixteen_bit(config, env, "queries"),
        "kv_dtype": kv,
    }


def attention(row: Row, launched: float, env: Env, config: ModelConfig, notes: list[str]) -> dict[str, object]:
    """Decode over a KV cache: one launch runs one layer, on one device's share of the heads."""
    if config.attention_kind:
        raise CannotModelError(f"{config.attention_kind}: no work model")
    groups = _groups(row, config, notes)
    group = groups[0]
    heads, kv_heads, head_dim = group.n_q_heads, group.n_kv_heads, group.head_dim
    extra: dict[str, object] = {}
    if group.head_dim_v != head_dim:
        extra["head_dim_v"] = group.head_dim_v
    if group.shared_kv:
        extra["shared_kv"] = True
        notes.append("K is V (attention_k_eq_v), read once: a cache that holds both is read twice")
    if heads is None or kv_heads is None or head_dim is None:
        raise CannotModelError("attention without shapes: config.json does not give head counts and head_dim")
    batch = of_one_rank(launched, env, notes)
    tp = parallel(env, notes)
    if heads % tp or (kv_heads % tp and tp % kv_heads):
        raise CannotModelError(f"attention without shapes: {heads} and {kv_heads} heads do not split over {tp} devices")
    if tp > kv_heads:
        notes.append(f"{kv_heads} KV heads replicated over {tp} devices: one on each")
    kv = _cache_dtype(config, env, notes)
    return {
        "batch": batch,
        "n_q_heads": heads // tp,
        "n_kv_heads": max(1, kv_heads // tp),
        "head_dim": head_dim,
        **extra,
        **_reach(groups, env, notes),
        "dtype": sixteen_bit(config, env, "queries"),
        "kv_dtype": kv,
    }


def _groups(row: Row, config: ModelConfig, notes: list[str]) -> tuple[Attention, ...]:
    """The layers this kernel runs: those of one kind, or all of one size. Where sizes differ, launches must tell them apart."""
    groups = config.attention
    if not groups:
        raise CannotModelError("attention without shapes: config.json does not tell which layers have attention")
    if any(group.kind == "unstated" for group in groups):
        raise CannotModelError("attention without shapes: config.json does not tell which layers use its window")
    if len(groups) == 1:
        return groups
    said = " and ".join(f"{group.layers} {group.kind}" for group in groups)
    alone = config.kind_alone(row.launches_per_step)
    if alone is not None:
        notes.append(f"{said} layers: {row.launches_per_step:g} launches a step are the {alone.kind} ones")
        return (alone,)
    if len({group._replace(kind="", layers=0, window=None) for group in groups}) > 1:
        raise CannotModelError(f"{said} layers read different KV sizes, and which of them this kernel runs cannot be told")
    return groups


def _reach(groups: tuple[Attention, ...], env: Env, notes: list[str]) -> dict[str, object]:
    """The context that the layers read: a window for one kind, else the mean over the layers with both ends in the range."""
    if len(groups) == 1 and groups[0].kind == "full":
        return {}
    mean, (low, high), note = context(env)
    for group in groups:
        if group.kind == "chunked" and group.window is not None and high > group.window:
            raise CannotModelError(
                f"chunked layers read what is filled of their {group.window} tokens, and contexts run to {high:g}: unknown"
            )
        if group.kind != "full" and group.window is None:
            raise CannotModelError(f"attention without shapes: config.json gives no window for its {group.kind} layers")
    if len(groups) == 1:
        return {"window": groups[0].window} if groups[0].kind == "sliding" else {}

    def seen(group: Attention, tokens: float) -> float:
        return tokens if group.window is None else min(tokens, group.window)

    total = sum(group.layers for group in groups)
    folded = sum(group.layers * seen(group, mean) for group in groups) / total
    said = " and ".join(f"{group.layers} {group.kind}" + (f" ({group.window})" if group.window else "") for group in groups)
    notes.append(f"{note}; {said} layers under one name: {folded:g} tokens is their mean, the range covers each")
    ends = [min(seen(group, low) for group in groups), max(seen(group, high) for group in groups)]
    return {"seq_len": folded, "seq_len_range": ends}


def _cache_dtype(config: ModelConfig, env: Env, notes: list[str]) -> Dtype:
    """As the engine was told; ``auto`` is the checkpoint's scheme, else the model's dtype."""
    if env.kv_dtype and env.kv_dtype != "auto":
        kv, basis = named_dtype(env.kv_dtype, "kv_cache_dtype"), ""
    elif config.kv_dtype is not None:
        kv, basis = config.kv_dtype, " as the checkpoint says"
    else:
        kv, basis = sixteen_bit(config, env, "the KV cache"), "" if env.kv_dtype else " (assumed: no kv_cache_dtype)"
    notes.append(f"heads from config.json, KV cache in {kv.name}{basis}")
    return kv


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
