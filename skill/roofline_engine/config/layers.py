"""Read which layers of a model run which attention and which hold experts, one item a layer.

The keys differ by family. Where a config has none of them, the default of the family's class in Hugging Face transformers
applies (``configuration_<model_type>.py``, named behind each); what is still open is ``unstated`` and not guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ..files import Problems
from ..units import Dtype, parse_dtype, whole

#: Kinds of layer that run an attention kernel over a KV cache.
ATTENTION = ("full", "sliding", "chunked", "sparse", "compressed", "unstated")

#: No model has as many; a wrong number must not cost memory.
_MOST_LAYERS = 10_000

_NAMES: dict[object, str] = {
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "linear",
    "recurrent": "linear",
    "mamba": "mamba",
    "mamba2": "mamba",
    "conv": "conv",
    "moe": "moe",
    "mlp": "mlp",
}
#: Lists with one item a layer. 0 is the model's main kind in neither: MiMo's 1 is sliding, MiniMax-Text-01's 1 is full.
_LISTS: dict[str, dict[object, str]] = {
    "layer_types": _NAMES,
    "layers_block_type": _NAMES,
    "hybrid_layer_pattern": {0: "full", 1: "sliding"},
    "attn_type_list": {0: "linear", 1: "full"},
}
#: Nemotron-H: one character a layer.
_CHARACTERS: dict[object, str] = {"M": "mamba", "*": "full", "E": "moe", "-": "mlp"}
#: Every n-th layer is full, the others sliding, where the config does not say (transformers: gemma2, gemma3, cohere2).
_PATTERN_DEFAULT = {"gemma2": 2, "gemma3": 6, "gemma3_text": 6, "cohere2": 4}
#: A ``sliding_window`` is that of every layer (transformers: these classes have no pattern).
_ALL_SLIDING = ("mistral", "mixtral", "phi3", "phimoe", "starcoder2")
#: Llama 4: every fourth layer is full (and has no rotary embedding), where ``no_rope_layers`` is not given.
_LLAMA4_FULL = 4


class Keys:
    """The keys of one config, each checked when it is read. A null counts as missing."""

    def __init__(self, data: object, problems: Problems) -> None:
        self.data: Mapping[str, object] = data if isinstance(data, Mapping) else {}
        self.problems = problems

    def first(self, *keys: str) -> str | None:
        """The first of ``keys`` that the config has."""
        return next((key for key in keys if self.data.get(key) is not None), None)

    def size(self, *keys: str, minimum: int = 1) -> int | None:
        """The value of the first of ``keys`` that the config has; a wrong value is None, and no later key replaces it."""
        key = self.first(*keys)
        return None if key is None else self.problems.attempt(whole, self.data[key], f"config.json: {key}", minimum=minimum)

    def count(self, *keys: str) -> int | None:
        return self.size(*keys, minimum=0)

    def dtype(self, *keys: str) -> Dtype | None:
        key = self.first(*keys)
        try:
            return None if key is None else parse_dtype(self.data[key])
        except ValueError as error:
            self.wrong(f"{key}: {error}")
            return None

    def text(self, key: str) -> str:
        value = self.data.get(key)
        return value if isinstance(value, str) else ""

    def group(self, key: str) -> Keys:
        return Keys(self.data.get(key), self.problems)

    def wrong(self, text: str) -> None:
        """Keep one line about what cannot be used."""
        self.problems.add(f"config.json: {text}")


def number_of_layers(keys: Keys) -> int | None:
    layers = keys.size("num_hidden_layers", "n_layer", "num_layers")
    if layers is not None and layers > _MOST_LAYERS:
        keys.wrong(f"num_hidden_layers is {layers}, expected at most {_MOST_LAYERS}")
        return None
    return layers


def attention_kinds(keys: Keys, layers: int | None) -> list[str] | None:
    """The kind of each layer; None where the config contradicts itself or names a kind that is not known."""
    for key, names in _LISTS.items():
        if keys.first(key):
            return _listed(keys, key, names, layers)
    if keys.first("hybrid_override_pattern"):
        pattern = keys.text("hybrid_override_pattern").replace("|", "")
        return _named(keys, "hybrid_override_pattern", pattern, _CHARACTERS, layers)
    if layers is None:
        return None
    if keys.first("full_attention_interval"):
        return _every(keys.size("full_attention_interval"), layers, "linear")
    if keys.first("attn_layer_period"):
        return _every(keys.size("attn_layer_period"), layers, "mamba", keys.count("attn_layer_offset"))
    linear = keys.group("linear_attn_config")  # Kimi-Linear: the numbers of the full layers, from 1
    full = linear.data.get("full_attn_layers")
    if isinstance(full, list):
        return ["full" if index + 1 in full else "linear" for index in range(layers)]
    sparse = keys.group("sparse_attention_config")  # MiniMax-M3: 1 reads chosen blocks of the context
    if sparse.first("sparse_attention_freq") and sparse.data.get("use_sparse_attention") is not False:
        return _listed(sparse, "sparse_attention_freq", {0: "full", 1: "sparse"}, layers)
    if keys.first("compress_ratios"):  # DeepSeek-V4: a ratio a layer
        return ["compressed"] * layers
    if keys.first("attention_chunk_size"):
        return _chunked(keys, layers)
    return _sliding(keys, layers)


def _listed(keys: Keys, key: str, names: Mapping[object, str], layers: int | None) -> list[str] | None:
    value = keys.data[key]
    if not isinstance(value, list):
        keys.wrong(f"{key} is {value!r:.40}, expected a list with an item a layer")
        return None
    return _named(keys, key, value, names, layers)


def _named(keys: Keys, key: str, items: object, names: Mapping[object, str], layers: int | None) -> list[str] | None:
    listed = one_a_layer(keys, key, items, layers)
    if listed is None:
        return None
    unknown = [item for item in listed if isinstance(item, (list, dict)) or item not in names]
    if unknown:
        keys.wrong(f"{key}: the layer kind {unknown[0]!r:.40} is unknown, so the list is not used")
        return None
    return [names[item] for item in listed]


def one_a_layer(keys: Keys, key: str, items: object, layers: int | None) -> list[object] | None:
    """The items of the model's own layers: multi-token-prediction layers may follow them."""
    listed = list(items) if isinstance(items, (list, str)) else []
    extra = max(keys.count(name) or 0 for name in ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"))
    if not listed or (layers is not None and not layers <= len(listed) <= layers + extra):
        keys.wrong(f"{key} has {len(listed)} layers, num_hidden_layers says {layers}")
        return None
    return listed[:layers]


def _every(interval: int | None, layers: int, other: str, offset: int | None = None) -> list[str] | None:
    """Full at every ``interval``-th layer: the last of each group, or the one at ``offset``."""
    if interval is None:
        return None
    place = interval - 1 if offset is None else offset
    return ["full" if index % interval == place else other for index in range(layers)]


def _chunked(keys: Keys, layers: int) -> list[str] | None:
    if keys.first("no_rope_layers") and keys.data["no_rope_layers"] != []:
        return _listed(keys, "no_rope_layers", {1: "chunked", 0: "full"}, layers)
    if keys.text("model_type").startswith("llama4"):
        return _every(keys.size("no_rope_layer_interval") or _LLAMA4_FULL, layers, "chunked")
    keys.wrong("attention_chunk_size is given, but not which layers use it")
    return ["unstated"] * layers


def window(keys: Keys) -> int | None:
    """The sliding window, where the config has one that is switched on (Qwen's is off by default)."""
    switched = keys.data.get("use_sliding_window")
    if switched is False or (switched is None and keys.text("model_type").startswith("qwen")):
        return None
    return keys.size("sliding_window", "sliding_window_size")


def _sliding(keys: Keys, layers: int) -> list[str] | None:
    model = keys.text("model_type")
    key = keys.first("sliding_window_pattern", "_sliding_window_pattern")
    if window(keys) is None:
        return ["full"] * layers
    if key is not None:
        value = keys.data[key]
        if isinstance(value, str) and value and set(value) <= {"L", "G"}:  # EXAONE 4: LLLG, and the last layer is full
            pattern = ["sliding" if value[index % len(value)] == "L" else "full" for index in range(layers)]
            return [*pattern[:-1], "full"]
        if isinstance(value, list):
            return _listed(keys, key, {1: "sliding", 0: "full"}, layers)
        return _every(keys.size(key), layers, "sliding")
    if model in _PATTERN_DEFAULT:
        return _every(_PATTERN_DEFAULT[model], layers, "sliding")
    if model.startswith("qwen") and keys.first("max_window_layers"):
        first = keys.count("max_window_layers")
        return None if first is None else ["full" if index < first else "sliding" for index in range(layers)]
    if model in _ALL_SLIDING:
        return ["sliding"] * layers
    keys.wrong("sliding_window is given, but not which layers use it")
    return ["unstated"] * layers


def moe_flags(keys: Keys, layers: int | None, kinds: list[str] | None) -> list[bool] | None:
    """Whether each layer holds experts, for a model that has some; None where the config does not tell."""
    if kinds and "moe" in kinds:  # a layer is a mixer or a MoE, never both
        return [kind == "moe" for kind in kinds]
    if keys.first("mlp_layer_types"):
        named = _listed(keys, "mlp_layer_types", {"dense": "mlp", "sparse": "moe"}, layers)
        return None if named is None else [kind == "moe" for kind in named]
    if isinstance(keys.data.get("moe_layer_freq"), list):
        items = one_a_layer(keys, "moe_layer_freq", keys.data["moe_layer_freq"], layers)
        return None if items is None else [bool(item) for item in items]
    if layers is None:
        return None
    numbers = _numbers(keys)
    if numbers is not None:
        return [index in numbers for index in range(layers)]
    rule = _rule(keys)
    return None if rule is None else [rule(index) for index in range(layers)]


def _numbers(keys: Keys) -> set[int] | None:
    """Layers that hold experts given by their numbers: Llama 4's ``moe_layers``, Step-3's ``moe_layers_enum``."""
    key = keys.first("moe_layers", "moe_layers_enum")
    if key is None:
        return None
    value = keys.data[key]
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list):
        return None
    return keys.problems.attempt(lambda: {whole(item, f"config.json: {key}", minimum=0) for item in items})


def _rule(keys: Keys) -> Callable[[int], bool] | None:
    """Which layers hold experts, by the rule of each family's class in transformers."""
    if keys.first("interleave_moe_layer_step"):  # llama4: range(step - 1, layers, step)
        step = keys.size("interleave_moe_layer_step")
        return None if step is None else lambda index: index % step == step - 1
    if keys.first("expert_layer_period"):  # jamba
        period, offset = keys.size("expert_layer_period"), keys.count("expert_layer_offset") or 0
        return None if period is None else lambda index: index % period == offset
    if keys.first("moe_layer_start_index"):  # ernie4_5_moe
        start, every = keys.count("moe_layer_start_index"), keys.size("moe_layer_interval") or 1
        last = keys.count("moe_layer_end_index")
        if start is None:
            return None
        return lambda index: index >= start and (last is None or index <= last) and (index + 1) % every == 0
    dense = keys.data.get("mlp_only_layers") or []
    if not isinstance(dense, list):
        keys.wrong(f"mlp_only_layers is {dense!r:.40}, expected a list of layers")
        return None
    # qwen2_moe, qwen3_moe: (layer + 1) % step; deepseek: layer % frequency
    sparse, frequency = (keys.size(name) if keys.first(name) else 1 for name in ("decoder_sparse_step", "moe_layer_freq"))
    first = keys.count("first_k_dense_replace") if keys.first("first_k_dense_replace") else 0
    if sparse is None or frequency is None or first is None:
        return None
    return lambda index: index not in dense and index >= first and (index + 1) % sparse == 0 and index % frequency == 0


#: A key with one of these names a size: it may change what a layer reads.
_SIZE_WORD = re.compile(r"(_size|_dim|lora_rank|_per_layer|(attention|query|kv)_groups)$|heads|experts|expert_num|num_expert")
#: The size keys that ``model`` and this module read.
_READ = frozenset(
    (
        *(
            "hidden_size",
            "num_attention_heads",
            "num_key_value_heads",
            "num_kv_heads",
            "num_attention_groups",
            "num_query_groups",
        ),
        *("head_dim", "v_head_dim", "num_attention_heads_per_layer", "num_key_value_heads_per_layer"),
        *("swa_head_dim", "swa_v_head_dim", "swa_num_attention_heads", "swa_num_key_value_heads"),
        *("global_head_dim", "num_global_key_value_heads", "sliding_window_size", "attention_chunk_size"),
        *("kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim"),
        *("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts", "moe_latent_size"),
        *("num_experts_per_tok", "top_k_experts", "num_experts_per_token", "experts_per_token"),
        *("moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size"),
        *("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert", "num_fused_shared_experts"),
        *("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size"),
        *("shared_experts_intermediate_size", "share_expert_dim"),
    )
)
#: Sizes that no modeled op has: of embeddings, dense layers, other mixers, indexers, other towers, training and serving.
_HARMLESS = re.compile(
    r"(\w*vocab|chunk|batch|\w*ngram|cache|image|patch|\w*kernel|\w*state|\w*parallel|ep|tp|pp|world|\w*embedding)_size$"
    r"|(\w*merge|codebook|block)_size$"
    r"|(chunk_size_feed_forward|dense_intermediate_size|intermediate_size_mlp|ffn_hidden_size|\w+_size_per_layer_input"
    r"|cross_attention_hidden_size|rotary_dim|qk_head_dim|o_lora_rank|time_step_rank|max_\w+)$"
    r"|(mamba|ssm|linear|conv|index|mtp|vision|audio|mm|image|video|rope|rotary|embedding|indexer|router|n_mamba|cross)_\w+$"
)


def unread_sizes(data: Mapping[str, object]) -> tuple[str, ...]:
    """Return the keys of a config that name a size which is neither read nor known to be harmless, also one level down.

    A null, a zero, an empty list and a switch change nothing. One level down only what is named after attention or experts.
    """
    found = [key for key, value in data.items() if _is_unread_size(key, value)]
    for key, value in data.items():
        if isinstance(value, Mapping) and re.search("attention|attn|moe|expert|mlp|ffn", key) and key not in _READ_GROUPS:
            found += [f"{key}.{inner}" for inner, item in value.items() if _SIZE_WORD.search(str(inner)) and _is_number(item)]
    return tuple(found)


#: Groups of keys that are read, or whose ops have no work model (linear and sparse attention).
_READ_GROUPS = ("attention_other_setting", "linear_attn_config", "sparse_attention_config")


def _is_unread_size(key: str, value: object) -> bool:
    is_size = _SIZE_WORD.search(key) and key not in _READ and not _HARMLESS.match(key)
    return bool(is_size) and (_is_number(value) or (isinstance(value, list) and any(map(_is_number, value))))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value != 0


_OF_ATTENTION = re.compile(r"head|attn|attention|kv|qk|query|_groups|lora")
_OF_EXPERTS = re.compile(r"expert|moe|ffn|intermediate|mlp|latent")


def unread_of(unread: tuple[str, ...], part: str) -> str | None:
    """Return the first unread key that may change the sizes of a part: ``attention``, ``experts`` or ``norm``. Else None."""
    about = {"attention": _OF_ATTENTION, "experts": _OF_EXPERTS}
    for key in unread:
        parts = [name for name, pattern in about.items() if pattern.search(key)]
        if part in parts or not parts:
            return key
    return None
