"""A Hugging Face ``config.json``, flat or nested, as far as it tells the shapes of a kernel (stage A: a guess)."""

from __future__ import annotations

from collections.abc import Mapping

from .record import Record
from .units import Dtype, parse_dtype, whole


class ModelConfig(Record):
    """The sizes a work model needs; None where the config does not give one. Heads and experts are of the whole model."""

    layers: int | None = None
    attention_layers: int | None = None
    moe_layers: int | None = None
    hidden: int | None = None
    moe_inter: int | None = None
    gated: bool = True
    experts: int | None = None
    top_k: int | None = None
    n_q_heads: int | None = None
    n_kv_heads: int | None = None
    head_dim: int | None = None
    dtype: Dtype | None = None
    weight_dtype: Dtype | None = None
    attention_kind: str = ""
    sliding_window: int | None = None
    problems: tuple[str, ...] = ()


def read(data: object) -> ModelConfig | None:
    """Read a parsed config.json; None when it is not a transformer's (no hidden size, flat or under ``text_config``)."""
    if not isinstance(data, Mapping):
        return None
    nested = next((data[key] for key in ("text_config", "llm_config", "language_config") if _is_model(data.get(key))), None)
    text = nested if isinstance(nested, Mapping) else data
    if not _is_model(text):
        return None
    problems: list[str] = []

    def size(*keys: str) -> int | None:
        for key in keys:
            value = text.get(key)
            if value is None or isinstance(value, (list, dict)):
                continue
            try:
                return whole(value, f"config.json: {key}")
            except ValueError as error:
                problems.append(str(error))
        return None

    hidden, heads = size("hidden_size", "n_embd", "d_model"), size("num_attention_heads", "n_head")
    layers = size("num_hidden_layers", "n_layer")
    head_dim = size("head_dim")
    if head_dim is None and hidden and heads and hidden % heads == 0:
        head_dim = hidden // heads
    given = "num_key_value_heads" in text or "num_kv_heads" in text  # null, as where layers differ, is not MHA
    experts = size("num_experts", "n_routed_experts", "num_local_experts")
    dtype = _dtype(text.get("dtype") or text.get("torch_dtype") or data.get("dtype") or data.get("torch_dtype"))
    return ModelConfig(
        layers=layers,
        attention_layers=_attention_layers(text, layers),
        moe_layers=_moe_layers(text, layers) if experts else None,
        hidden=hidden,
        moe_inter=size("moe_intermediate_size", "intermediate_size") if experts else None,
        gated="relu2" not in str(text.get("mlp_hidden_act") or text.get("hidden_act")),
        experts=experts,
        top_k=size("num_experts_per_tok", "top_k_experts", "moe_topk", "num_experts_per_token") if experts else None,
        n_q_heads=heads,
        n_kv_heads=size("num_key_value_heads", "num_kv_heads") if given else heads,
        head_dim=head_dim,
        dtype=dtype,
        weight_dtype=_weights(text, data.get("quantization_config") or text.get("quantization_config"), dtype),
        attention_kind=_attention_kind(text, head_dim),
        sliding_window=size("sliding_window") if text.get("use_sliding_window", True) else None,
        problems=tuple(problems),
    )


def _is_model(value: object) -> bool:
    return isinstance(value, Mapping) and ("hidden_size" in value or "n_embd" in value or "d_model" in value)


def _dtype(value: object) -> Dtype | None:
    try:
        return parse_dtype(value)
    except ValueError:
        return None


def _weights(text: Mapping[str, object], quantization: object, dtype: Dtype | None) -> Dtype | None:
    """The weight dtype where the config says it plainly; None where it does not, never a guess."""
    if text.get("expert_dtype") is not None:
        return _dtype(text["expert_dtype"])
    if quantization is None:
        return dtype
    method = quantization.get("quant_method") if isinstance(quantization, Mapping) else None
    return parse_dtype(method) if method in ("fp8", "mxfp4", "mxfp8", "nvfp4") else None


def _attention_kind(text: Mapping[str, object], head_dim: int | None) -> str:
    """Empty for plain MHA or GQA; else what makes one KV size per layer wrong."""
    if text.get("kv_lora_rank") is not None:
        return "multi-head latent attention"
    if text.get("compress_ratios") is not None or text.get("index_topk") is not None:
        return "compressed or sparse attention"
    if text.get("v_head_dim") not in (None, head_dim):
        return "attention with another head_dim for V"
    if text.get("global_head_dim") not in (None, head_dim) or text.get("attention_k_eq_v"):
        return "attention whose layers have different KV sizes"
    return ""


def _attention_layers(text: Mapping[str, object], layers: int | None) -> int | None:
    """Layers that run an attention kernel, full, sliding or chunked; linear and state-space layers do not."""
    kinds = text.get("layer_types")
    if isinstance(kinds, list) and kinds:
        return sum("attention" in str(kind) and "linear" not in str(kind) for kind in kinds) or None
    pattern = text.get("hybrid_override_pattern")  # Nemotron-H: M Mamba, * attention, E MoE, - MLP
    if isinstance(pattern, str) and pattern:
        return pattern.count("*") or None
    interval = text.get("full_attention_interval")
    if layers and isinstance(interval, int) and not isinstance(interval, bool) and interval > 0:
        return layers // interval
    return layers


def _moe_layers(text: Mapping[str, object], layers: int | None) -> int | None:
    pattern = text.get("hybrid_override_pattern")
    if isinstance(pattern, str) and pattern:
        return pattern.count("E") or None
    frequency = text.get("moe_layer_freq")
    if isinstance(frequency, list) and frequency:
        return sum(bool(item) for item in frequency) or None
    dense_first = text.get("first_k_dense_replace")
    if layers and isinstance(dense_first, int) and not isinstance(dense_first, bool) and 0 <= dense_first < layers:
        return layers - dense_first
    return layers
