"""Read a Hugging Face ``config.json``, flat or nested, for the sizes that give the shapes of a kernel (stage A: a guess).

Sizes are of the whole model; ``guess`` derives the share of one device. None is unknown, never zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..files import Problems
from ..units import Dtype, parse_dtype, whole
from . import layers as layer
from .layers import Keys
from .quantization import Quantization
from .quantization import read as read_quantization

#: Where a multimodal config keeps its language model (lm-polygraph#435, transformers#37515).
_NESTS = ("text_config", "llm_config", "language_config", "thinker_config", "language_model_config")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "num_attention_groups", "num_query_groups")
_TOP_K = (
    "num_experts_per_tok",
    "top_k_experts",
    "moe_topk",
    "moe_top_k",
    "num_experts_per_token",
    "experts_per_token",
    "moe_k",
)
#: The kinds of layers that Step 3.5's ``attention_other_setting`` may be of.
_OTHER_KINDS = {"sliding_attention": "sliding", "full_attention": "full"}


class Attention(NamedTuple):
    """The attention of the layers of one kind."""

    kind: str  # one of layers.ATTENTION
    layers: int
    n_q_heads: int | None = None
    n_kv_heads: int | None = None
    head_dim: int | None = None
    head_dim_v: int | None = None
    window: int | None = None  # tokens that a layer reads at most
    shared_kv: bool = False  # K is V, so one of them is read


class Mla(NamedTuple):
    """Multi-head latent attention: a token's cache is kv_lora_rank + rope_dim values, whatever the number of heads."""

    kv_lora_rank: int | None = None
    rope_dim: int | None = None
    nope_dim: int | None = None
    q_lora_rank: int | None = None


class ModelConfig(NamedTuple):
    """The sizes a work model needs; None where the config does not give one. Heads and experts are of the whole model."""

    layers: int | None = None
    kinds: Mapping[str, int] = {}  # number of layers by kind
    attention_layers: int | None = None
    attention: tuple[Attention, ...] = ()  # one item per kind that reads a KV cache
    attention_kind: str = ""  # why the attention has no work model; empty where it has one
    mla: Mla | None = None
    index_topk: int | None = None
    moe_layers: int | None = None
    hidden: int | None = None
    moe_inter: int | None = None
    moe_hidden: int | None = None  # what the experts read and write: hidden, unless they work in a latent space
    gated: bool = True
    experts: int | None = None
    top_k: int | None = None
    shared_experts: int | None = None
    shared_inter: int | None = None
    fused_shared: int | None = None
    n_q_heads: int | None = None
    n_kv_heads: int | None = None
    head_dim: int | None = None
    dtype: Dtype | None = None
    weight_dtype: Dtype | None = None  # of the routed experts, else of the MLP, block scales included
    activation_dtype: Dtype | None = None
    kv_dtype: Dtype | None = None
    quantization: Quantization | None = None
    excluded: Mapping[str, frozenset[int] | None] = {}  # parts that keep the model's dtype (None: in all layers)
    unread: tuple[str, ...] = ()  # keys that name a size and are neither read here nor known to be harmless
    problems: tuple[str, ...] = ()

    def layers_of(self, op: str, launches: float | None) -> int | None:
        """How many layers run ``op``; those of one kind where their number is that of the launches of a step."""
        if op == "moe":
            return self.moe_layers
        if not op.startswith(("attn", "mla")):
            return None
        match = self.kind_with(launches)
        return match.layers if match is not None else self.attention_layers

    def kind_with(self, launches: float | None) -> Attention | None:
        """The one kind of attention layer with as many layers as a step has launches."""
        matches = [group for group in self.attention if group.layers == launches]
        return matches[0] if len(matches) == 1 else None


def read(data: object) -> ModelConfig | None:
    """Read a parsed config.json; None when it is not a transformer's (no hidden size, flat or nested).

    Raises ValueError for a table of several models.
    """
    if not isinstance(data, Mapping):
        return None
    text = _language_model(data)
    if text is None:
        tables = [
            str(key)
            for key, value in data.items()
            if isinstance(value, Mapping) and any(map(_is_model, (value, *value.values())))
        ]
        if tables:
            raise ValueError(f"config.json: a table of models ({', '.join(tables)[:60]}), expected the config of one")
        return None
    problems = Problems()
    keys = Keys(text, problems)
    total = layer.number_of_layers(keys)
    kinds = layer.attention_kinds(keys, total)
    counted = {kind: kinds.count(kind) for kind in sorted(set(kinds))} if kinds else {}
    hidden, heads = keys.size("hidden_size", "n_embd", "d_model"), keys.size("num_attention_heads", "n_head")
    mla = _mla(keys)
    head_dim = _head_dim(keys, hidden, heads, mla)
    has_kv_heads = any(key in text for key in _KV_HEADS)  # null, as where layers differ, is not MHA
    kv_heads = keys.size(*_KV_HEADS) if has_kv_heads else heads
    base = Attention("full", 0, heads, kv_heads, head_dim, keys.size("v_head_dim") or head_dim)
    reading = {kind: count for kind, count in counted.items() if kind in layer.ATTENTION}
    config = ModelConfig(
        layers=total,
        kinds=counted,
        attention_layers=sum(reading.values()) or None,
        attention=_attention_groups(keys, kinds or [], base),
        unread=layer.unread_sizes(text),
        attention_kind=_attention_kind(keys, mla),
        mla=mla,
        index_topk=keys.size("index_topk"),
        hidden=hidden,
        n_q_heads=heads,
        n_kv_heads=kv_heads,
        head_dim=head_dim,
        dtype=_dtype(Keys(data, problems), keys),
    )
    config = _nas(keys, config)
    flags = layer.moe_flags(keys, total, kinds) if _experts(keys) else None
    config = _moe(keys, config, flags)
    scheme = keys.data.get("quantization_config") or data.get("quantization_config") or data.get("compression_config")
    quantization = None if scheme is None else read_quantization(scheme, keys, total)
    return _weights(keys, config, quantization, flags)._replace(problems=tuple(dict.fromkeys(problems.lines)))


def _language_model(data: Mapping[str, object]) -> Mapping[str, object] | None:
    for key in _NESTS:
        nested = data.get(key)
        if isinstance(nested, Mapping):
            model = _language_model(nested)
            if model is not None:
                return model
    return data if _is_model(data) else None


def _is_model(value: object) -> bool:
    return isinstance(value, Mapping) and any(key in value for key in ("hidden_size", "n_embd", "d_model"))


def _dtype(top: Keys, keys: Keys) -> Dtype | None:
    """The model's own dtype, which a quantization leaves to the modules it excludes."""
    names = ("dtype", "torch_dtype")
    return keys.dtype(*names) if keys.first(*names) else top.dtype(*names)


def _head_dim(keys: Keys, hidden: int | None, heads: int | None, mla: Mla | None) -> int | None:
    """The explicit one where the config gives it, wrong or not (eole#78); else hidden / heads."""
    if mla is not None:
        return (mla.nope_dim + mla.rope_dim) if mla.nope_dim and mla.rope_dim else None
    if keys.first("head_dim", "kv_channels"):
        return keys.size("head_dim", "kv_channels")
    if hidden is None or heads is None:
        return None
    if hidden % heads:
        keys.wrong(f"no head_dim, and hidden_size {hidden} is not a multiple of num_attention_heads {heads}")
        return None
    return hidden // heads


def _mla(keys: Keys) -> Mla | None:
    if keys.first("kv_lora_rank") is None:
        return None
    return Mla(*map(keys.size, ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "q_lora_rank")))


def _attention_groups(keys: Keys, kinds: Sequence[str], base: Attention) -> tuple[Attention, ...]:
    """The attention layers by kind, and by their number of heads where a list gives one for each layer (Laguna)."""
    heads, kv_heads = (
        _per_layer(keys, key, len(kinds)) for key in ("num_attention_heads_per_layer", "num_key_value_heads_per_layer")
    )
    counts: dict[Attention, int] = {}
    by_kind = {kind: _attention(keys, kind, base) for kind in sorted(set(kinds)) if kind in layer.ATTENTION}
    for at, kind in sorted(enumerate(kinds), key=lambda item: item[1]):
        if kind in by_kind:
            group = by_kind[kind]
            group = group if heads is None else group._replace(n_q_heads=heads[at])
            group = group if kv_heads is None else group._replace(n_kv_heads=kv_heads[at])
            counts[group] = counts.get(group, 0) + 1
    return tuple(group._replace(layers=count) for group, count in counts.items())


def _per_layer(keys: Keys, key: str, layers: int) -> list[int | None] | None:
    """The sizes of a list with one for each layer; None without the list, and unknown sizes where it cannot be read."""
    if keys.first(key) is None:
        return None
    listed = layer.one_a_layer(keys, key, keys.data[key], layers) or [None] * layers
    return [None if item is None else keys.problems.attempt(whole, item, f"config.json: {key}", minimum=1) for item in listed]


def _attention(keys: Keys, kind: str, base: Attention) -> Attention:
    """The layers of one kind, with the keys that MiMo (``swa_``), Gemma 4 (``global_``) and Step 3.5 give for one alone."""
    config = base._replace(kind=kind)
    other = keys.group("attention_other_setting")
    if other.data and _OTHER_KINDS.get(other.text("attention_type") or "sliding_attention") == kind:
        config = config._replace(
            n_q_heads=other.size("num_attention_heads") or config.n_q_heads,
            n_kv_heads=other.size("num_attention_groups") or config.n_kv_heads,
            head_dim=other.size("head_dim") or config.head_dim,
            head_dim_v=other.size("head_dim") or config.head_dim_v,
        )
    if kind == "sliding":
        dim = keys.size("swa_head_dim") or config.head_dim
        return config._replace(
            window=layer.window(keys),
            n_q_heads=keys.size("swa_num_attention_heads") or config.n_q_heads,
            n_kv_heads=keys.size("swa_num_key_value_heads") or config.n_kv_heads,
            head_dim=dim,
            head_dim_v=keys.size("swa_v_head_dim") or (dim if keys.first("swa_head_dim") else config.head_dim_v),
        )
    if kind == "chunked":
        return config._replace(window=keys.size("attention_chunk_size"))
    if kind == "unstated":
        return config._replace(window=layer.window(keys) or keys.size("attention_chunk_size"))
    dim = keys.size("global_head_dim")
    if dim is not None:
        config = config._replace(head_dim=dim, head_dim_v=dim)
    if keys.data.get("attention_k_eq_v") is True:  # gemma4: only there are the global KV heads used
        config = config._replace(shared_kv=True, n_kv_heads=keys.size("num_global_key_value_heads") or config.n_kv_heads)
    return config


def _attention_kind(keys: Keys, mla: Mla | None) -> str:
    """Why no work model fits the attention, where none does. An index over the context picks the tokens MLA reads."""
    sparse = keys.group("sparse_attention_config").data
    if keys.first("compress_ratios") or (keys.first("index_topk") and mla is None):
        return "compressed or sparse attention"
    if sparse and sparse.get("use_sparse_attention") is not False:
        return "block-sparse attention"
    return ""


def _nas(keys: Keys, config: ModelConfig) -> ModelConfig:
    """A model found by architecture search: its layers differ, so one layer is not all layers."""
    blocks = keys.data.get("block_configs")
    if not isinstance(blocks, list) or not blocks:
        return config
    attentions = [Keys(block, keys.problems).group("attention").data for block in blocks]
    count = sum(not block.get("no_op") and not block.get("replace_with_linear") for block in attentions)
    kinds = {repr(block) for block in blocks}
    why = f"block_configs: {len(blocks)} layers of {len(kinds)} kinds, {count} with attention: one layer is not all layers"
    return config._replace(
        attention_layers=count or None, attention=(), kinds={"full": count, "other": len(blocks) - count}, attention_kind=why
    )


def _experts(keys: Keys) -> int | None:
    key = keys.first("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
    return (keys.count(key) or None) if key else None  # 0 in a dense model of a family that has both


def _moe(keys: Keys, config: ModelConfig, flags: list[bool] | None) -> ModelConfig:
    act = keys.text("mlp_hidden_act") or keys.text("hidden_act")
    config = config._replace(gated="relu2" not in act)
    experts = _experts(keys)
    if experts is None:
        return config
    # A null moe_intermediate_size is not the dense layers' width; a family without the key (Mixtral) has only one width.
    named = next((key for key in ("moe_intermediate_size", "expert_ffn_hidden_size") if key in keys.data), "intermediate_size")
    inter = keys.size(named)
    shared, width = _shared(keys, inter)
    return config._replace(
        moe_layers=(sum(flags) or None) if flags is not None else None,
        moe_inter=inter,
        moe_hidden=keys.size("moe_latent_size") if keys.first("moe_latent_size") else config.hidden,
        experts=experts,
        top_k=keys.size(*_TOP_K),
        shared_experts=shared,
        shared_inter=width,
        fused_shared=keys.count("num_fused_shared_experts"),
    )


def _shared(keys: Keys, inter: int | None) -> tuple[int | None, int | None]:
    """Shared experts and the width of one; (0, None) where the model has none."""
    if keys.text("model_type").startswith("llama4"):  # Llama4TextMoe: one, of the experts' width
        return 1, inter
    key = keys.first("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert")
    count = keys.count(key) if key else 0
    if count is None:
        return None, None
    all_in_one = keys.first(
        *("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_experts_intermediate_size"),
        "share_expert_dim",
    )
    if all_in_one is not None:  # the width of all of them in one MLP (qwen2_moe, nemotron_h)
        width = keys.count(all_in_one)
        return (None, None) if width is None else (1, width) if width else (0, None)
    if keys.first("shared_intermediate_size"):
        width = keys.count("shared_intermediate_size")
        return (count or 1, width) if width else (0, None)
    return (count, inter) if count else (0, None)


def _weights(keys: Keys, config: ModelConfig, quantization: Quantization | None, flags: list[bool] | None) -> ModelConfig:
    """The dtypes: of the experts (or the MLP), of what feeds them, and of the excluded parts."""
    expert = keys.dtype("expert_dtype")
    if quantization is None:
        return config._replace(weight_dtype=expert if keys.first("expert_dtype") else config.dtype)
    inside = frozenset(range(config.layers)) if config.layers else frozenset()
    excluded = {
        part: None if where is None or where >= inside else where & inside for part, where in quantization.excluded.items()
    }
    excluded = {part: where for part, where in excluded.items() if where is None or where}
    dtype, activations = quantization.dtype, quantization.activations
    if keys.first("expert_dtype"):
        # DeepSeek-V4: fp4 experts inside an fp8 checkpoint, with e8m0 scales as scale_fmt says: OCP MX, one per 32.
        narrow = expert is not None and expert.name == "fp4" and keys.group("quantization_config").text("scale_fmt") == "ue8m0"
        dtype = parse_dtype("mxfp4") if narrow else expert
    else:
        with_experts = frozenset(index for index, flag in enumerate(flags) if flag) if flags else inside
        names = ("experts", "experts (down)") if config.experts else ("dense_mlp",)
        extents = {_excluded_extent(excluded, part, with_experts) for part in names}
        if extents == {"all"}:
            dtype, activations = config.dtype, None
        elif extents != {"none"}:
            keys.wrong("quantization_config excludes some of the experts: the weights' width differs by layer")
            dtype = None
    return config._replace(
        weight_dtype=dtype, activation_dtype=activations, kv_dtype=quantization.kv, quantization=quantization, excluded=excluded
    )


def _excluded_extent(excluded: Mapping[str, frozenset[int] | None], part: str, with_experts: frozenset[int]) -> str:
    """Whether a part keeps the model's dtype in all of the layers that have it, in some or in none."""
    where = excluded.get(part, frozenset())
    if where is None or (where and where >= with_experts):
        return "all"
    return "some" if where & with_experts else "none"
