"""What a config.json's ``quantization_config`` stores narrow, how wide with its scales, and what it leaves alone.

A width here moves every figure by 2x or more, so what is not understood is unknown, with one line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .layers import Keys
from .module_rules import parts
from .record import Record
from .units import Dtype, parse_dtype

#: Bits of one scale. fp8 blocks: ``weight_scale_inv`` is fp32 unless ``scale_fmt`` is ue8m0; compressed-tensors keeps
#: scales in the model's 16-bit dtype; AWQ and GPTQ store fp16 scales and, where asymmetric, a zero point as wide as a weight.
_SCALE_FP32, _SCALE_16, _SCALE_E8M0 = 32, 16, 8

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
_PLAIN = {"mxfp4": "mxfp4", "mxfp8": "mxfp8", "nvfp4": "nvfp4", "fbgemm_fp8": "fp8", "gpt_oss_mxfp4": "mxfp4"}


class Quantisation(Record):
    """One quantisation of a checkpoint.

    dtype: of what is converted, its width with the share of block scales; None where it cannot be told.
    activations: the dtype the matrix units are fed, None where activations stay at the model's. kv: of the KV cache, where
    the checkpoint says. block: values that share a scale, as rows x columns. excluded: part to the layers that keep the
    model's dtype (None is all of them).
    """

    method: str
    dtype: Dtype | None
    activations: Dtype | None = None
    kv: Dtype | None = None
    block: tuple[int, ...] = ()
    excluded: Mapping[str, frozenset[int] | None] = {}


def read(data: object, keys: Keys) -> Quantisation:
    """Read ``quantization_config`` (or a ``compression_config``); lines about it go to ``keys``."""
    if not isinstance(data, Mapping):
        keys.wrong(f"config.json: quantization_config is {type(data).__name__}, expected an object")
        return Quantisation("unknown", None)
    inner = Keys(data, keys.problems)
    method = (inner.text("quant_method") or inner.text("quant_algo") or "").lower()
    rules = _rules(inner)
    known = _known(inner, method, rules)
    if known is None:
        keys.wrong(f"config.json: quantization_config: {method or 'no quant_method'}: the weights' width is not known from it")
        return Quantisation(method, None)
    excluded, strange = parts(rules)
    if strange:
        keys.wrong(f"config.json: quantization_config: the rule {strange[0]!r:.60} is not understood: the width is not known")
        known = known._replace(dtype=None)
    return known._replace(excluded=excluded)


def _rules(keys: Keys) -> list[str]:
    """Every list of modules that stay as they are, whatever the tool calls it."""
    found: list[str] = []
    for key in ("modules_to_not_convert", "ignore", "ignored_layers", "exclude", "exclude_modules", "llm_int8_skip_modules"):
        value = keys.data.get(key)
        if isinstance(value, list):
            found += [item for item in value if isinstance(item, str)]
        elif value is not None:
            keys.wrong(f"config.json: quantization_config: {key} is {value!r:.40}, expected a list of modules")
    dynamic = keys.data.get("dynamic")  # GPTQModel: a rule that starts with "-:" leaves its modules alone
    if isinstance(dynamic, Mapping):
        found += ["re:" + str(rule)[2:] for rule in dynamic if str(rule).startswith("-:")]
    if keys.text("quant_method").lower() in ("awq", "gptq", "auto-round") and keys.data.get("lm_head") is not True:
        found.append("lm_head")  # both convert the layers only, unless told
    return found


def _known(keys: Keys, method: str, rules: list[str]) -> Quantisation | None:
    if method == "fp8":
        return _fp8(keys)
    if method in _PLAIN:
        dtype = parse_dtype(_PLAIN[method])
        return Quantisation(method, dtype, dtype if method != "mxfp4" else None)  # gpt-oss: mxfp4 weights, bf16 activations
    if method in ("awq", "gptq", "auto-round"):
        return _grouped_int(keys, method)
    if method == "compressed-tensors":
        return _compressed(keys, rules)
    if method.startswith("modelopt") or keys.first("quant_algo"):
        return _modelopt(keys)
    if method == "quark":
        return _quark(keys)
    return None


def _fp8(keys: Keys) -> Quantisation:
    block = keys.data.get("weight_block_size")
    scale = _SCALE_E8M0 if keys.text("scale_fmt") == "ue8m0" else _SCALE_FP32
    fp8 = parse_dtype("fp8")
    if block is None:
        return Quantisation("fp8", fp8, fp8)
    sizes = _positive(block)
    if not sizes:
        keys.wrong(f"config.json: quantization_config: weight_block_size is {block!r:.40}, expected two sizes")
        return Quantisation("fp8", None, fp8)
    return Quantisation("fp8", scaled(fp8, scale, sizes), fp8, block=sizes)


def _positive(value: object) -> tuple[int, ...]:
    items = value if isinstance(value, list) else []
    fine = all(isinstance(item, int) and not isinstance(item, bool) and item > 0 for item in items)
    return tuple(items) if fine else ()


def scaled(dtype: Dtype, scale_bits: float, block: Sequence[int]) -> Dtype:
    """``dtype`` with its share of one scale of ``scale_bits`` per block."""
    values = 1
    for size in block:
        values *= size
    return dtype._replace(bits=dtype.value_bits + scale_bits / values)


def _grouped_int(keys: Keys, method: str) -> Quantisation | None:
    bits, group = keys.size("bits", "w_bit"), keys.size("group_size", "q_group_size", minimum=-1)
    if bits not in (4, 8):
        return None
    dtype = parse_dtype(f"int{bits}")
    if not group or group < 0:  # -1: a scale per row
        return Quantisation(method, dtype)
    zero = keys.data.get("zero_point") is True or keys.data.get("sym") is False
    return Quantisation(method, scaled(dtype, _SCALE_16 + (bits if zero else 0), (group,)), block=(group,))


def _compressed(keys: Keys, rules: list[str]) -> Quantisation | None:
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
    fed = _tensor(inputs, keys.text("format"))[0] if inputs.data else None
    cache = _tensor(keys.group("kv_cache_scheme"), "")[0] if keys.first("kv_cache_scheme") else None
    return Quantisation("compressed-tensors", dtype, fed, cache, block)


def _for_experts(groups: list[Keys]) -> Keys | None:
    linear = None
    for group in groups:
        targets = group.data.get("targets")
        names = [item for item in targets if isinstance(item, str)] if isinstance(targets, list) else []
        if "experts" in parts([name for name in names if name != "Linear"])[0]:
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
    block = _positive(keys.data.get("block_structure")) or ((group,) if group > 0 else ())
    zero = (bits or 0) if keys.data.get("symmetric") is False else 0
    return (scaled(dtype, _SCALE_16 + zero, block), block) if block else (dtype, ())


def _modelopt(keys: Keys) -> Quantisation | None:
    algorithm = keys.text("quant_algo").upper()
    if algorithm not in _MODELOPT:
        return None
    weights, fed = _MODELOPT[algorithm]
    dtype, block = parse_dtype(weights), _positive(None)
    group = keys.size("group_size", minimum=-1)
    if weights == "int4" and group and group > 0:
        dtype, block = scaled(dtype, _SCALE_16, (group,)), (group,)
    narrow = keys.text("kv_cache_quant_algo").upper() == "FP8" or keys.group("kv_cache_scheme").data.get("num_bits") == 8
    kv = parse_dtype("fp8") if narrow else None
    return Quantisation("modelopt", dtype, parse_dtype(fed) if fed else None, kv, block)


def _quark(keys: Keys) -> Quantisation | None:
    """Quark: ``global_quant_config`` for every layer; a ``layer_quant_config`` that differs leaves the width unknown."""
    if keys.group("layer_quant_config").data:
        return None
    whole = keys.group("global_quant_config")
    weights, fed = _quark_tensor(whole.group("weight")), _quark_tensor(whole.group("input_tensors"))
    kv = next((_quark_tensor(item) for item in _kv_tensors(keys)), None)
    return None if weights is None else Quantisation("quark", weights, fed, kv)


def _kv_tensors(keys: Keys) -> Iterable[Keys]:
    for value in keys.group("kv_cache_quant_config").data.values():
        if isinstance(value, Mapping):
            yield Keys(value, keys.problems).group("output_tensors")


def _quark_tensor(keys: Keys) -> Dtype | None:
    name, group = keys.text("dtype"), keys.size("group_size", minimum=-1)
    if not name:
        return None
    if name == "fp4" and group == 32:
        return parse_dtype("mxfp4")
    try:
        dtype = parse_dtype(name)
    except ValueError:
        return None
    return scaled(dtype, _SCALE_16, (group,)) if group and group > 0 else dtype
