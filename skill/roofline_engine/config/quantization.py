"""Read ``quantization_config``: what a checkpoint stores narrow, how wide with its scales, and which modules it excludes.

A width here moves every figure by 2x or more, so a scheme that is not understood leaves the width unknown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from ..units import BLOCK_SCALE_BITS, GROUP_SCALE_BITS, Dtype, add_scales, parse_dtype
from .layers import Keys

#: Bits of one scale. fp8 blocks: ``weight_scale_inv`` is fp32 unless ``scale_fmt`` is ue8m0; compressed-tensors keeps
#: scales in the model's 16-bit dtype; AWQ and GPTQ store fp16 scales and, where asymmetric, a zero point as wide as a weight.
_SCALE_FP32, _SCALE_16, _SCALE_E8M0 = BLOCK_SCALE_BITS, GROUP_SCALE_BITS, 8

#: What modelopt's ``quant_algo`` stores and computes with: weights and activations (None: left at 16 bit).
_MODELOPT = {
    "FP8": ("fp8", "fp8"),
    "FP8_PB_WO": ("fp8", None),
    "FP8_PER_CHANNEL_PER_TOKEN": ("fp8", "fp8"),
    "NVFP4": ("nvfp4", "nvfp4"),
    "NVFP4_AWQ": ("nvfp4", "nvfp4"),
    "W4A16_NVFP4": ("nvfp4", None),
    "MXFP8": ("mxfp8", "mxfp8"),
    "W4A16_AWQ": ("int4", None),
    "W4A8_AWQ": ("int4", "fp8"),
    "INT8_SQ": ("int8", "int8"),
}
#: Integers with a scale for each group of a row; only the layers are converted.
_GROUPED_INT = ("awq", "gptq", "auto-round")
_PLAIN = {"mxfp4": "mxfp4", "mxfp8": "mxfp8", "nvfp4": "nvfp4", "fbgemm_fp8": "fp8", "gpt_oss_mxfp4": "mxfp4"}


class Quantization(NamedTuple):
    """One quantization of a checkpoint."""

    method: str
    dtype: Dtype | None  # of the converted weights, its width with the share of block scales; None is unknown
    activations: Dtype | None = None  # what the matrix units are fed; None where activations stay at the model's dtype
    kv: Dtype | None = None  # of the KV cache, where the checkpoint says
    block: tuple[int, ...] = ()  # values that share a scale, as rows x columns
    excluded: Mapping[str, frozenset[int] | None] = {}  # part to the layers that keep the model's dtype (None: all)


def read(data: object, keys: Keys, layers: int | None) -> Quantization:
    """Read ``quantization_config`` (or a ``compression_config``) of a model with ``layers``; problems go to ``keys``."""
    if not isinstance(data, Mapping):
        keys.wrong(f"quantization_config is {type(data).__name__}, expected an object")
        return Quantization("unknown", None)
    inner = Keys(data, keys.problems)
    method = (inner.text("quant_method") or inner.text("quant_algo")).lower()
    rules = _rules(inner)
    scheme = _read_scheme(inner, method, rules)
    if scheme is None:
        keys.wrong(f"quantization_config: {method or 'no quant_method'}: the weights' width is unknown")
        return Quantization(method, None)
    excluded, refused = find_parts(rules, layers)
    if refused:
        keys.wrong(f"quantization_config: the rule {refused[0]!r:.60} is not understood: the width is unknown")
        scheme = scheme._replace(dtype=None)
    return scheme._replace(excluded=excluded)


def _rules(keys: Keys) -> list[str]:
    """Every list of modules that are not converted, whatever the tool calls it."""
    rules: list[str] = []
    for key in ("modules_to_not_convert", "ignore", "ignored_layers", "exclude", "exclude_modules", "llm_int8_skip_modules"):
        value = keys.data.get(key)
        if isinstance(value, list):
            rules += [item for item in value if isinstance(item, str)]
        elif value is not None:
            keys.wrong(f"quantization_config: {key} is {value!r:.40}, expected a list of modules")
    dynamic = keys.data.get("dynamic")  # GPTQModel: a rule that starts with "-:" leaves its modules alone
    if isinstance(dynamic, Mapping):
        rules += ["re:" + str(rule)[2:] for rule in dynamic if str(rule).startswith("-:")]
    if keys.text("quant_method").lower() in _GROUPED_INT and keys.data.get("lm_head") is not True:
        rules.append("lm_head")  # they convert the layers only, unless the config says otherwise
    return rules


def _read_scheme(keys: Keys, method: str, rules: list[str]) -> Quantization | None:
    if method == "fp8":
        return _fp8(keys)
    if method in _PLAIN:
        dtype = parse_dtype(_PLAIN[method])
        return Quantization(method, dtype, dtype if method != "mxfp4" else None)  # gpt-oss: mxfp4 weights, bf16 activations
    if method in _GROUPED_INT:
        return _grouped_int(keys, method)
    if method == "compressed-tensors":
        return _compressed(keys, rules)
    if method.startswith("modelopt") or keys.first("quant_algo"):
        return _modelopt(keys)
    if method == "quark":
        return _quark(keys)
    return None


def _fp8(keys: Keys) -> Quantization:
    block = keys.data.get("weight_block_size")
    scale = _SCALE_E8M0 if keys.text("scale_fmt") == "ue8m0" else _SCALE_FP32
    fp8 = parse_dtype("fp8")
    if block is None:
        return Quantization("fp8", fp8, fp8)
    sizes = _positive(block)
    if not sizes:
        keys.wrong(f"quantization_config: weight_block_size is {block!r:.40}, expected two sizes")
        return Quantization("fp8", None, fp8)
    return Quantization("fp8", add_scales(fp8, scale, math.prod(sizes)), fp8, block=sizes)


def _positive(value: object) -> tuple[int, ...]:
    items = value if isinstance(value, list) else []
    return tuple(items) if all(type(item) is int and item > 0 for item in items) else ()


def _add_group_scales(dtype: Dtype, scale_bits: float, group: int | None) -> tuple[Dtype, tuple[int, ...]]:
    """Return ``dtype`` with one scale per group of a row, and the block; -1 is a scale per row, which weighs nothing."""
    return (add_scales(dtype, scale_bits, group), (group,)) if group and group > 0 else (dtype, ())


def _grouped_int(keys: Keys, method: str) -> Quantization | None:
    bits, group = keys.size("bits", "w_bit"), keys.size("group_size", "q_group_size", minimum=-1)
    if bits not in (4, 8):
        return None
    zero = keys.data.get("zero_point") is True or keys.data.get("sym") is False
    dtype, block = _add_group_scales(parse_dtype(f"int{bits}"), _SCALE_16 + (bits if zero else 0), group)
    return Quantization(method, dtype, block=block)


def _compressed(keys: Keys, rules: list[str]) -> Quantization | None:
    """compressed-tensors: groups of targets, the experts' group being the one whose targets name them, else ``Linear``."""
    groups = [Keys(item, keys.problems) for item in keys.group("config_groups").data.values() if isinstance(item, Mapping)]
    if not groups:
        return None
    chosen = _for_experts(groups)
    if chosen is None:  # only other modules are converted: the experts keep the model's dtype
        rules.append("re:.*experts.*")
        chosen = groups[0]
    weights, inputs = chosen.group("weights"), chosen.group("input_activations")
    dtype, block = _tensor(weights, keys.text("format"))
    if dtype is None:
        return None
    activations = _tensor(inputs, keys.text("format"))[0] if inputs.data else None
    cache = _tensor(keys.group("kv_cache_scheme"), "")[0] if keys.first("kv_cache_scheme") else None
    return Quantization("compressed-tensors", dtype, activations, cache, block)


def _for_experts(groups: list[Keys]) -> Keys | None:
    linear = None
    for group in groups:
        targets = group.data.get("targets")
        names = [item for item in targets if isinstance(item, str)] if isinstance(targets, list) else []
        if "experts" in find_parts([name for name in names if name != "Linear"], None)[0]:
            return group
        if "Linear" in names and linear is None:
            linear = group
    return linear


def _tensor(keys: Keys, form: str) -> tuple[Dtype | None, tuple[int, ...]]:
    """One tensor's scheme: num_bits, type, strategy and what shares a scale."""
    bits, kind = keys.size("num_bits"), keys.text("type")
    group = keys.size("group_size", minimum=-1) or 0
    if kind == "float" and bits == 4:
        if "mxfp4" in form or group == 32:
            return parse_dtype("mxfp4"), (32,)
        return (parse_dtype("nvfp4"), (16,)) if "nvfp4" in form or group == 16 else (None, ())
    if (kind, bits) not in (("float", 8), ("int", 8), ("int", 4)):
        return None, ()
    dtype = parse_dtype("fp8" if kind == "float" else f"int{bits}")
    block = _positive(keys.data.get("block_structure"))
    scale = _SCALE_16 + ((bits or 0) if keys.data.get("symmetric") is False else 0)
    return (add_scales(dtype, scale, math.prod(block)), block) if block else _add_group_scales(dtype, scale, group)


def _modelopt(keys: Keys) -> Quantization | None:
    algorithm = keys.text("quant_algo").upper()
    if algorithm not in _MODELOPT:
        return None
    weights, activations = _MODELOPT[algorithm]
    group = keys.size("group_size", minimum=-1)
    dtype, block = _add_group_scales(parse_dtype(weights), _SCALE_16, group if weights == "int4" else None)
    narrow = keys.text("kv_cache_quant_algo").upper() == "FP8" or keys.group("kv_cache_scheme").data.get("num_bits") == 8
    kv = parse_dtype("fp8") if narrow else None
    return Quantization("modelopt", dtype, parse_dtype(activations) if activations else None, kv, block)


def _quark(keys: Keys) -> Quantization | None:
    """Quark: ``global_quant_config`` for every layer; a ``layer_quant_config`` that differs leaves the width unknown."""
    if keys.group("layer_quant_config").data:
        return None
    every = keys.group("global_quant_config")
    weights, activations = _quark_tensor(every.group("weight")), _quark_tensor(every.group("input_tensors"))
    schemes = keys.group("kv_cache_quant_config").data.values()
    caches = (Keys(item, keys.problems).group("output_tensors") for item in schemes if isinstance(item, Mapping))
    kv = next(map(_quark_tensor, caches), None)
    return None if weights is None else Quantization("quark", weights, activations, kv)


def _quark_tensor(keys: Keys) -> Dtype | None:
    name, group = keys.text("dtype"), keys.size("group_size", minimum=-1)
    if not name:
        return None
    if name == "fp4" and group == 32:
        return parse_dtype("mxfp4")
    try:
        return _add_group_scales(parse_dtype(name), _SCALE_16, group)[0]
    except ValueError:
        return None


#: Modules as families of models name them; a rule covers a part when it covers one of its names.
_PARTS = {
    "experts": (
        "mlp.experts.0.gate_proj mlp.experts.0.gate_up_proj mlp.experts.gate_up_proj"
        " block_sparse_moe.experts.0.w1 feed_forward.experts.gate_up_proj mixer.experts.0.up_proj"
    ),
    "experts (down)": (
        "mlp.experts.0.down_proj mlp.experts.down_proj block_sparse_moe.experts.0.w2"
        " feed_forward.experts.down_proj mixer.experts.0.down_proj"
    ),
    "shared_experts": (
        "mlp.shared_experts.gate_proj mlp.shared_expert.gate_proj block_sparse_moe.shared_experts.gate_proj"
        " feed_forward.shared_expert.gate_proj mixer.shared_experts.up_proj"
    ),
    "dense_mlp": "mlp.gate_proj mlp.gate_up_proj mlp.down_proj feed_forward.gate_proj",
    "attention": (
        "self_attn.q_proj self_attn.qkv_proj self_attn.o_proj self_attn.q_a_proj self_attn.kv_b_proj"
        " attention.q_proj mixer.q_proj"
    ),
    "linear_attention": "linear_attn.in_proj_qkvz linear_attn.out_proj mixer.in_proj",
    "router": "mlp.gate mlp.router block_sparse_moe.gate feed_forward.router mixer.gate",
    "norms": "input_layernorm post_attention_layernorm",
    "lm_head": "lm_head",
    "embeddings": "embed_tokens",
}
_OTHER_TOWERS = ("vision", "visual", "audio", "mm_projector")  # their layers are numbered too, and are not the model's
_OUTSIDE = ("lm_head", "embeddings")  # not in a layer
#: Longer rules, and rules with more wildcards or groups, are refused: matching one must not take long.
_LONGEST_RULE, _MOST_WILDCARDS, _MOST_GROUPS = 300, 5, 8
#: The regular expressions that rules use: a quantifier only follows a single character, so none can nest.
_SIMPLE = re.compile(r"(?:[\w.|()-]|\\[.\-_dw]|\[\^?[\w.-]+\]|(?:\.|\\[dw]|\[\^?[\w.-]+\])[*+]|\(\?:)*\$?")
_LAYER = re.compile(r".*?layers\\?\.(\d+)(?=\\?\.(?![*+])|\(\?:|$)")
#: As many layers as a model may have whose config does not tell.
_UNKNOWN_DEPTH = 200


def find_parts(rules: Iterable[str], layers: int | None) -> tuple[dict[str, frozenset[int] | None], list[str]]:
    """Find the parts of the model that ``rules`` cover, each with its layers (None: all), and the rules that are refused.

    layers: how many the model has; None where that is unknown.
    """
    refused: list[str] = []
    named_layers: dict[str, set[int]] = {}  # by expression; those that differ in one layer's number are one, with "#"
    for rule in rules:
        if any(word in rule for word in _OTHER_TOWERS):
            continue
        expression = _to_expression(rule)
        if expression is None:
            refused.append(rule)
            continue
        layer = _LAYER.match(expression)
        if layer:
            expression = rf".*layers\.#{expression[layer.end() :]}"
        named_layers.setdefault(expression, set()).update(map(int, layer.groups()) if layer else ())
    parts: dict[str, frozenset[int] | None] = {}
    for expression, named in named_layers.items():
        pattern = re.compile(expression)
        for part, names in _PARTS.items():
            covered = _covered_layers(pattern, part, names.split(), named, layers)
            if covered is None or covered:
                before = parts.get(part, frozenset())
                parts[part] = None if covered is None or before is None else before | covered
    return parts, refused


def _to_expression(rule: str) -> str | None:
    """Turn a rule into a regular expression, for ``match``; None for one that is refused.

    A rule is a module or a run of its components with ``*``, or after ``re:`` an expression.
    """
    if rule.startswith("re:"):
        expression = rule[len("re:") :].lstrip("^")
        simple = _SIMPLE.fullmatch(expression) and expression.count("(") <= _MOST_GROUPS
        wildcards = len(re.findall(r"[*+]", expression))
    else:
        pieces = rule.strip(".").split("*")
        expression = r"(?:.*\.)?" + ".*".join(map(re.escape, pieces)) + r"(?:\..*)?$"
        simple, wildcards = True, len(pieces)
    if not simple or wildcards > _MOST_WILDCARDS or len(rule) > _LONGEST_RULE:
        return None
    try:
        re.compile(expression)
    except re.error:
        return None
    return expression


def _covered_layers(
    pattern: re.Pattern[str], part: str, names: Sequence[str], named: AbstractSet[int], layers: int | None
) -> frozenset[int] | None:
    """The layers whose ``part`` a rule covers; None is all of them."""

    def covers(prefix: str) -> bool:
        return any(pattern.match(prefix + name) for name in names)

    if part in _OUTSIDE:
        return None if covers("") or covers("model.") else frozenset()
    if named:
        return frozenset(named) if covers("model.layers.#.") else frozenset()
    if not re.search(r"\d", pattern.pattern.replace("[0-9]", "")):  # all layers alike
        return None if covers("model.layers.0.") else frozenset()
    depth = layers or _UNKNOWN_DEPTH
    covered = frozenset(layer for layer in range(depth) if covers(f"model.layers.{layer}."))
    return None if len(covered) == depth else covered
