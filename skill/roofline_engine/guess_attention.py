"""Attention without captured shapes: what the layers of a config.json read on one device (stage A)."""

from __future__ import annotations

from .inputs import Env, Row
from .kernels import Hint
from .record import TYPE_CHECKING
from .share import CannotModelError, context, launch_tokens, named_dtype, of_one_rank, parallel, sixteen_bit
from .units import Dtype

if TYPE_CHECKING:
    from .modelconfig import Attention, ModelConfig


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
