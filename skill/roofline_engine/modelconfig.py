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
    experts: int | None = None
    top_k: int | None = None
    n_q_heads: int | None = None
    n_kv_heads: int | None = None
    head_dim: int | None = None
    dtype: Dtype | None = None
    weight_dtype: Dtype | None = None
    latent_attention: bool = False
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
    experts = size("num_experts", "n_routed_experts", "num_local_experts")
    dtype = _dtype(text.get("dtype") or text.get("torch_dtype") or data.get("dtype") or data.get("torch_dtype"))
    return ModelConfig(
        layers=layers,
        attention_layers=_attention_layers(text, layers),
        moe_layers=_moe_layers(text, layers) if experts else None,
        hidden=hidden,
        moe_inter=size("moe_intermediate_size", "intermediate_size") if experts else None,
        experts=experts,
        top_k=size("num_experts_per_tok", "top_k_experts", "moe_topk", "num_experts_per_token") if experts else None,
        n_q_heads=heads,
        n_kv_heads=size("num_key_value_heads", "num_kv_heads") or heads,
        head_dim=head_dim,
        dtype=dtype,
        weight_dtype=_weights(data.get("quantization_config") or text.get("quantization_config"), dtype),
        latent_attention=text.get("kv_lora_rank") is not None,
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


def _weights(quantization: object, dtype: Dtype | None) -> Dtype | None:
    """The weight dtype where the quantisation says it plainly; None where it does not, never a guess."""
    if quantization is None:
        return dtype
    method = quantization.get("quant_method") if isinstance(quantization, Mapping) else None
    return parse_dtype(method) if method in ("fp8", "mxfp4", "mxfp8", "nvfp4") else None


def _attention_layers(text: Mapping[str, object], layers: int | None) -> int | None:
    """Layers with full attention: by ``layer_types``, by ``full_attention_interval``, else all of them."""
    kinds = text.get("layer_types")
    if isinstance(kinds, list) and kinds:
        return sum("full" in str(kind) for kind in kinds) or None
    interval = text.get("full_attention_interval")
    if layers and isinstance(interval, int) and not isinstance(interval, bool) and interval > 0:
        return layers // interval
    return layers


def _moe_layers(text: Mapping[str, object], layers: int | None) -> int | None:
    dense_first = text.get("first_k_dense_replace")
    if layers and isinstance(dense_first, int) and not isinstance(dense_first, bool) and 0 <= dense_first < layers:
        return layers - dense_first
    return layers
