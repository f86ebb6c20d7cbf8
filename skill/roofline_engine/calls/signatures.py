"""The arguments of PyTorch's operations by name, and the shapes of their results: what only the dispatcher knows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..units import parse_dtype
from .aten import per_axis
from .call import TensorFacts, broadcast, is_tensor

#: The numbers of torch's dtypes (c10/core/ScalarType.h), as ``dtype`` arguments are recorded.
SCALAR_TYPES = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "fp16", 6: "fp32", 7: "fp64", 8: "complex32",
    9: "complex64", 10: "complex128", 11: "bool",
    15: "bf16", 23: "float8_e5m2", 24: "float8_e4m3fn", 25: "float8_e5m2fnuz", 26: "float8_e4m3fnuz",
    27: "uint16", 28: "uint32", 29: "uint64", 44: "float8_e8m0fnu", 45: "float4_e2m1fn_x2",
}  # fmt: skip

# The shapes of results. A rule gets the arguments by name and returns the tensors that the call makes.

if TYPE_CHECKING:  # Python 3.8 cannot subscript the classes of collections.abc
    Outputs = Callable[[Mapping[str, Any], "list[Any]"], "list[Any]"]


def _dtype_of(values: Mapping[str, Any], default: str) -> str:
    number = values.get("dtype", values.get("out_dtype"))
    if isinstance(number, int) and number in SCALAR_TYPES:
        return SCALAR_TYPES[number]
    return default


def _like(name: str = "", dtype: str = "") -> Outputs:
    """One result like a tensor, the first one without a name."""

    def make(values: Mapping[str, Any], tensors: list[Any]) -> list[Any]:
        source = values[name] if name else tensors[0]
        if isinstance(source, list):
            return [TensorFacts(one.shape, dtype or one.dtype) for one in source]
        return [TensorFacts(source.shape, dtype or _dtype_of(values, source.dtype), _dense_like(source))]

    return make


def _dense_like(source: Any) -> tuple[int, ...] | None:
    """Return the strides of a result that keeps the order of the dimensions of a dense tensor; None for row-major."""
    order = sorted(range(source.dim()), key=lambda at: (-source.stride()[at], at))
    step, strides = 1, [0] * source.dim()
    for at in reversed(order):
        strides[at] = step
        step *= max(source.shape[at], 1)
    return tuple(strides) if tuple(strides) == tuple(source.stride()) else None


_RANKS = {"bool": 0, "integer": 1, "float": 2, "complex": 3}
#: Pointwise operations with a result in floating point, and with one in bool, whatever their inputs.
_FLOATING = (
    " div true_divide sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh "
    "atanh sigmoid erf erfc erfinv reciprocal logit lgamma digamma sinc i0 silu gelu mish softplus "
)
_LOGICAL = " eq ne lt le gt ge logical_and logical_or logical_xor logical_not isnan isinf isfinite isposinf isneginf signbit "


def _rank(dtype: str) -> int:
    name = parse_dtype(dtype).name
    if name.startswith("complex"):
        return 3
    return 0 if name == "bool" else 1 if name.startswith(("int", "uint")) else 2


def promoted(tensors: Sequence[Any]) -> str:
    """Return the dtype of a result of these tensors: torch's rule, where a tensor of no dimensions counts by its kind alone."""
    full = [tensor for tensor in tensors if tensor.dim()] or list(tensors)
    best = full[0].dtype
    for tensor in full[1:]:
        one, two = parse_dtype(best), parse_dtype(tensor.dtype)
        if {one.name, two.name} == {"fp16", "bf16"}:
            best = "fp32"
        elif (_rank(tensor.dtype), two.value_bits) > (_rank(best), one.value_bits):
            best = tensor.dtype
    scalar = max((_rank(tensor.dtype) for tensor in tensors), default=0)
    if scalar > _rank(best):
        return {1: "int64", 2: "fp32", 3: "complex64"}[scalar]
    return str(best)


def _pointwise(name: str) -> Outputs:
    def make(values: Mapping[str, Any], tensors: list[Any]) -> list[Any]:
        shape = broadcast([tensor.shape for tensor in tensors])
        dtype = promoted(tensors)
        if f" {name} " in _LOGICAL:
            dtype = "bool"
        elif name == "where" and is_tensor(values.get("condition")):
            dtype = promoted([tensor for tensor in tensors if tensor is not values["condition"]] or tensors)
        elif _rank(dtype) < 2 and (f" {name} " in _FLOATING or any(isinstance(value, float) for value in values.values())):
            dtype = "fp32"
        first = next((tensor for tensor in tensors if tensor.shape == shape), None)
        return [TensorFacts(shape, dtype, None if first is None else _dense_like(first))]

    return make


def _reduced(values: Mapping[str, Any], tensors: list[Any], dtype: str = "") -> list[Any]:
    source = tensors[0]
    dims = values.get("dim")
    if dims is None or isinstance(dims, bool):
        dims = []
    dims = [at % max(source.dim(), 1) for at in (dims if isinstance(dims, (list, tuple)) else [dims])]
    keeps = bool(values.get("keepdim"))
    shape = [1 if keeps and (at in dims or not dims) else size for at, size in enumerate(source.shape)]
    if not keeps:
        shape = [size for at, size in enumerate(source.shape) if dims and at not in dims]
    return [TensorFacts(shape, dtype or _dtype_of(values, source.dtype))]


def _reduction(name: str) -> Outputs:
    def make(values: Mapping[str, Any], tensors: list[Any]) -> list[Any]:
        if is_tensor(values.get("other")):  # max and min of two tensors
            return _pointwise(name)(values, tensors)
        index = name in ("argmax", "argmin", "count_nonzero")
        dtype = "int64" if index else "bool" if name in ("any", "all") else ""
        if name in ("sum", "nansum", "prod") and _rank(tensors[0].dtype) < 2:
            dtype = "int64"
        out = _reduced(values, tensors, dtype)
        if name in ("max", "min") and values.get("dim") is not None:
            return [*out, TensorFacts(out[0].shape, "int64")]
        return out * 2 if name in ("var_mean", "std_mean", "aminmax") else out

    return make


def _product(values: Mapping[str, Any], tensors: list[Any]) -> list[Any]:
    if len(tensors) < 2:
        raise ValueError("its recorded inputs do not fit: there are no two operands")
    first, second = (tensors[-2:] if len(tensors) == 2 else tensors[1:3]) if "mat1" in values else tensors[:2]
    if any(key in values for key in ("batch1", "mat")):
        first, second = tensors[1:3]
    shape = first.shape[:-1] + second.shape[-1:] if second.dim() > 1 else first.shape[:-1]
    return [TensorFacts(shape, _dtype_of(values, first.dtype))]


def _linear(values: Mapping[str, Any], tensors: list[Any]) -> list[Any]:
    source, weight = values["input"], values["weight"]
    return [TensorFacts(source.shape[:-1] + weight.shape[:-1], source.dtype)]


def _convolved(values: Mapping[str, Any], tensors: list[Any]) -> list[Any]:
    source, weight = values["input"], values["weight"]
    dims = weight.dim() - 2
    stride, padding, dilation = (
        per_axis(values.get(key) or default, dims) for key, default in (("stride", 1), ("padding", 0), ("dilation", 1))
    )
    axes = zip(source.shape[2:], weight.shape[2:], stride, padding, dilation)
    if values.get("transposed"):
        extra = per_axis(values.get("output_padding") or 0, dims)
        sizes = [
            (size - 1) * hop - 2 * pad + step * (taps - 1) + more + 1 for (size, taps, hop, pad, step), more in zip(axes, extra)
        ]
        channels = weight.shape[1] * (values.get("groups") or 1)
    else:
        sizes = [(size + 2 * pad - step * (taps - 1) - 1) // hop + 1 for size, taps, hop, pad, step in axes]
        channels = weight.shape[0]
    return [TensorFacts((source.shape[0], channels, *sizes), source.dtype)]


def _gradients(*names: str) -> Outputs:
    """Gradients like these arguments, as far as the output mask wants them."""

    def make(values: Mapping[str, Any], tensors: list[Any]) -> list[Any]:
        mask = values.get("output_mask") or [True] * len(names)
        made = []
        for is_wanted, name in zip(mask, names):
            source = values.get(name)
            if is_wanted and isinstance(source, (list, tuple)):
                made.append(TensorFacts(source, values["grad_output"].dtype))
            elif is_wanted and source is not None:
                made.append(TensorFacts(source.shape, source.dtype))
        return made

    return make


def _attended(values: Mapping[str, Any], tensors: list[Any]) -> list[Any]:
    query, value = values["query"], values["value"]
    return [TensorFacts((*query.shape[:-1], value.shape[-1]), query.dtype)]


def _concatenated(values: Mapping[str, Any], tensors: list[Any]) -> list[Any]:
    parts = [tensor for tensor in values["tensors"] if tensor.shape != (0,)] or values["tensors"]
    axis = values.get("dim") or 0
    shape = list(parts[0].shape)
    axis %= max(len(shape), 1)
    shape[axis] = sum(tensor.shape[axis] for tensor in parts)
    return [TensorFacts(shape, promoted(parts))]


def _stacked(values: Mapping[str, Any], tensors: list[Any]) -> list[Any]:
    parts = values["tensors"]
    shape = list(parts[0].shape)
    shape.insert((values.get("dim") or 0) % (len(shape) + 1), len(parts))
    return [TensorFacts(shape, promoted(parts))]


def _embedded(values: Mapping[str, Any], tensors: list[Any]) -> list[Any]:
    table, indices = values["weight"], values["indices"]
    return [TensorFacts((*indices.shape, *table.shape[1:]), table.dtype)]


def _selected(values: Mapping[str, Any], tensors: list[Any]) -> list[Any]:
    source, index, axis = values["self"], values["index"], values["dim"]
    shape = list(source.shape)
    shape[axis] = index.numel()
    return [TensorFacts(shape, source.dtype)]


def _indexed(values: Mapping[str, Any], tensors: list[Any]) -> list[Any]:
    source, indices = values["self"], [one for one in values.get("indices") or () if one is not None]
    if not indices:
        raise ValueError("its indices are not recorded")
    looked_up = broadcast([tuple(one.shape) for one in indices])
    return [TensorFacts((*looked_up, *source.shape[len(indices) :]), source.dtype)]


def _top(values: Mapping[str, Any], tensors: list[Any]) -> list[Any]:
    source = values["self"]
    shape = list(source.shape)
    shape[-1 if values.get("dim") is None else values["dim"]] = values["k"]
    return [TensorFacts(shape, source.dtype), TensorFacts(shape, "int64")]


def _windows(values: Mapping[str, Any], tensors: list[Any]) -> list[Any]:
    source, kernel = values["self"], values["kernel_size"]
    dims = len(kernel)
    stride = per_axis(values.get("stride") or kernel, dims)
    padding, dilation = per_axis(values.get("padding") or 0, dims), per_axis(values.get("dilation") or 1, dims)
    more = 1 if values.get("ceil_mode") else 0
    sizes = [
        (size + 2 * pad - step * (taps - 1) - 1 + more * (hop - 1)) // hop + 1
        for size, taps, hop, pad, step in zip(source.shape[-dims:], kernel, stride, padding, dilation)
    ]
    shape = (*source.shape[:-dims], *sizes)
    return [TensorFacts(shape, source.dtype), TensorFacts(shape, "int64")]


def _resized(values: Mapping[str, Any], tensors: list[Any]) -> list[Any]:
    source, sizes = values["self"], values.get("output_size")
    if sizes is None:  # the overload with factors, in the place of the first scale
        factors = values["scales_h"]
        sizes = [int(size * factor) for size, factor in zip(source.shape[-len(factors) :], factors)]
    return [TensorFacts((*source.shape[: -len(sizes)], *sizes), source.dtype)]


def _sized(values: Mapping[str, Any], tensors: list[Any]) -> list[Any]:
    return [TensorFacts(values["size"], _dtype_of(values, tensors[0].dtype if tensors else "fp32"))]


def _counted(values: Mapping[str, Any], tensors: list[Any]) -> list[Any]:
    start, end, step = values.get("start") or 0, values["end"], values.get("step") or 1
    return [TensorFacts((max(0, math.ceil((end - start) / step)),), "int64" if isinstance(end, int) else "fp32")]


def _padded(values: Mapping[str, Any], tensors: list[Any]) -> list[Any]:
    source, pad = tensors[0], values.get("pad") or values["padding"]
    shape = list(source.shape)
    for at in range(len(pad) // 2):
        shape[-1 - at] += pad[2 * at] + pad[2 * at + 1]
    return [TensorFacts(shape, source.dtype)]


def _halved(values: Mapping[str, Any], tensors: list[Any]) -> list[Any]:
    source = tensors[0]
    shape = list(source.shape)
    shape[values.get("dim", -1)] //= 2
    return [TensorFacts(shape, source.dtype)]


def _normalized(values: Mapping[str, Any], tensors: list[Any]) -> list[Any]:
    source = values["input"]
    return [TensorFacts(source.shape, source.dtype, _dense_like(source))]


def _batch_normalized(values: Mapping[str, Any], tensors: list[Any]) -> list[Any]:
    source = values["input"]
    channels = TensorFacts(source.shape[1:2], "fp32")
    return [*_normalized(values, tensors), *([channels] * 2 if values.get("training") else [])]


def _scalar(values: Mapping[str, Any], tensors: list[Any]) -> list[Any]:
    source = tensors[0]
    return [TensorFacts(source.shape[:1] if values.get("reduction") == 0 else (), source.dtype)]


_RULES: dict[str, Outputs] = {
    "product": _product,
    "linear": _linear,
    "convolved": _convolved,
    "attended": _attended,
    "normalized": _normalized,
    "concatenated": _concatenated,
    "stacked": _stacked,
    "embedded": _embedded,
    "selected": _selected,
    "indexed": _indexed,
    "top": _top,
    "windows": _windows,
    "window": lambda values, tensors: _windows(values, tensors)[:1],
    "resized": _resized,
    "sized": _sized,
    "counted": _counted,
    "padded": _padded,
    "halved": _halved,
    "scalar": _scalar,
    "batch_normalized": _batch_normalized,
    "looked_up": lambda values, tensors: [TensorFacts(values["index"].shape, values["self"].dtype)],
    "dropout": lambda values, tensors: [*_normalized(values, tensors), TensorFacts(values["input"].shape, "bool")],
    "norms": lambda values, tensors: [TensorFacts((), one.dtype) for one in values["self"]],
}
#: Operations | the names of their arguments | the rule of their results: one of ``_RULES``, ``=`` and an argument that the
#: result is like, ``grad`` and the arguments that gradients are like, ``pointwise`` or ``reduction``.
_SCHEMAS = """
mm bmm _int_mm | self mat2 | product
mv | self vec | product
dot | self tensor | product
vdot | self other | product
addmm _addmm_activation | self mat1 mat2 beta alpha | product
baddbmm | self batch1 batch2 beta alpha | product
addmv | self mat vec beta alpha | product
_scaled_mm | self mat2 scale_a scale_b bias scale_result out_dtype use_fast_accum | product
linear | input weight bias | linear
convolution convolution_overrideable | input weight bias stride padding dilation transposed output_padding groups | convolved
_convolution | input weight bias stride padding dilation transposed output_padding groups benchmark deterministic
  cudnn_enabled allow_tf32 | convolved
cudnn_convolution | input weight padding stride dilation groups benchmark deterministic allow_tf32 | convolved
cudnn_convolution_relu | input weight bias stride padding dilation groups | convolved
cudnn_convolution_transpose | input weight padding output_padding stride dilation groups benchmark deterministic
  allow_tf32 | convolved
miopen_convolution miopen_depthwise_convolution | input weight bias padding stride dilation groups benchmark
  deterministic | convolved
_conv_depthwise2d | input weight kernel_size bias stride padding dilation | convolved
_slow_conv2d_forward thnn_conv2d | input weight kernel_size bias stride padding | convolved
convolution_backward | grad_output input weight bias_sizes stride padding dilation transposed output_padding groups
  output_mask | grad input weight bias_sizes
_scaled_dot_product_flash_attention | query key value dropout_p is_causal return_debug_mask scale | attended
_scaled_dot_product_flash_attention_for_cpu | query key value dropout_p is_causal attn_mask scale | attended
_scaled_dot_product_efficient_attention | query key value attn_bias compute_log_sumexp dropout_p is_causal scale | attended
_scaled_dot_product_cudnn_attention | query key value attn_bias compute_log_sumexp dropout_p is_causal return_debug_mask
  scale | attended
_scaled_dot_product_fused_attention_overrideable | query key value attn_bias dropout_p is_causal return_debug_mask
  scale | attended
_scaled_dot_product_attention_math | query key value attn_mask dropout_p is_causal dropout_mask scale enable_gqa | attended
scaled_dot_product_attention | query key value attn_mask dropout_p is_causal scale enable_gqa | attended
_flash_attention_forward | query key value cum_seq_q cum_seq_k max_q max_k dropout_p is_causal return_debug_mask scale
  window_size_left window_size_right seqused_k alibi_slopes | attended
_efficient_attention_forward | query key value bias cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k dropout_p
  custom_mask_type compute_log_sumexp scale seqlen_k window_size | attended
_scaled_dot_product_flash_attention_backward | grad_out query key value out logsumexp cum_seq_q cum_seq_k max_q max_k
  dropout_p is_causal philox_seed philox_offset scale | grad query key value
_scaled_dot_product_efficient_attention_backward | grad_out query key value attn_bias out logsumexp philox_seed
  philox_offset dropout_p grad_input_mask is_causal scale | grad query key value
_scaled_dot_product_cudnn_attention_backward | grad_out query key value out logsumexp philox_seed philox_offset attn_bias
  cum_seq_q cum_seq_k max_q max_k dropout_p is_causal scale | grad query key value
_flash_attention_backward | grad_out query key value out logsumexp cum_seq_q cum_seq_k max_q max_k dropout_p is_causal
  philox_seed philox_offset scale window_size_left window_size_right | grad query key value
_efficient_attention_backward | grad_out query key value bias out cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k
  logsumexp dropout_p philox_seed philox_offset custom_mask_type bias_requires_grad scale | grad query key value
_softmax _log_softmax | self dim half_to_float | =self
_safe_softmax softmax log_softmax | self dim dtype | =self
_softmax_backward_data _log_softmax_backward_data | grad_output output dim input_dtype | =grad_output
native_layer_norm | input normalized_shape weight bias eps | normalized
layer_norm | input normalized_shape weight bias eps cudnn_enable | normalized
_fused_rms_norm rms_norm | input normalized_shape weight eps | normalized
native_group_norm | input weight bias N C HxW group eps | normalized
native_batch_norm _native_batch_norm_legit cudnn_batch_norm miopen_batch_norm | input weight bias running_mean running_var
  training momentum eps | batch_normalized
native_layer_norm_backward | grad_output input normalized_shape mean rstd weight bias output_mask | grad input weight bias
_fused_rms_norm_backward | grad_output input normalized_shape rstd weight output_mask | grad input weight
native_group_norm_backward | grad_output input mean rstd weight N C HxW group output_mask | grad input weight weight
native_batch_norm_backward | grad_output input weight running_mean running_var save_mean save_invstd train eps
  output_mask | grad input weight weight
cudnn_batch_norm_backward miopen_batch_norm_backward | input grad_output weight running_mean running_var save_mean save_var
  epsilon reserveSpace | grad input weight weight
embedding | weight indices padding_idx scale_grad_by_freq sparse | embedded
index_select | self dim index | selected
index | self indices | indexed
gather | self dim index sparse_grad | looked_up
take | self index | looked_up
cat | tensors dim | concatenated
stack | tensors dim | stacked
clone | self memory_format | =self
_to_copy | self dtype layout device pin_memory non_blocking memory_format | =self
copy _foreach_copy | self src non_blocking | =self
flip | self dims | =self
roll | self shifts dims | =self
tril triu | self diagonal | =self
fill | self value | =self
zero _foreach_zero uniform normal random exponential bernoulli | self | =self
zeros_like ones_like rand_like randn_like | self dtype layout device pin_memory memory_format | =self
full_like | self fill_value dtype layout device pin_memory memory_format | =self
zeros ones rand randn | size dtype layout device pin_memory | sized
full | size fill_value dtype layout device pin_memory | sized
new_zeros new_ones | self size dtype layout device pin_memory | sized
arange | start end step | counted
constant_pad_nd | self pad value | padded
reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d | self padding | padded
index_put _unsafe_index_put | self indices values accumulate | =self
_index_put_impl | self indices values accumulate unsafe | =self
index_add | self dim index source alpha | =self
index_copy | self dim index source | =self
index_fill | self dim index value | =self
scatter | self dim index src reduce | =self
scatter_add | self dim index src | =self
scatter_reduce | self dim index src reduce include_self | =self
masked_fill | self mask value | =self
nll_loss_forward nll_loss2d_forward | self target weight reduction ignore_index | scalar
nll_loss_backward nll_loss2d_backward | grad_output self target weight reduction ignore_index total_weight | =self
mse_loss | self target reduction | scalar
mse_loss_backward | grad_output self target reduction | =self
native_dropout | input p train | dropout
native_dropout_backward | grad_output mask scale | =grad_output
cumsum cumprod | self dim dtype | =self
logcumsumexp | self dim | =self
glu | self dim | halved
glu_backward | grad_output self dim | =self
upsample_nearest2d | self output_size scales_h scales_w | resized
upsample_bilinear2d | self output_size align_corners scales_h scales_w | resized
topk | self k dim largest sorted | top
avg_pool1d avg_pool2d avg_pool3d | self kernel_size stride padding ceil_mode count_include_pad divisor_override | window
max_pool1d max_pool2d max_pool3d | self kernel_size stride padding dilation ceil_mode | window
max_pool2d_with_indices max_pool3d_with_indices | self kernel_size stride padding dilation ceil_mode | windows
_adaptive_avg_pool2d _adaptive_avg_pool3d | self output_size | resized
_foreach_norm | self ord dtype | norms
_fused_adam _fused_adamw | self grads exp_avgs exp_avg_sqs max_exp_avg_sqs state_steps lr beta1 beta2 weight_decay eps amsgrad
  maximize grad_scale found_inf | =self
_fused_sgd | self grads momentum_buffer_list weight_decay momentum lr dampening nesterov maximize is_first_step grad_scale
  found_inf | =self
abs acos acosh angle asin asinh atan atanh bitwise_not ceil conj_physical cos cosh deg2rad digamma erf erfc erfinv exp exp2
  expm1 floor frac hardsigmoid i0 isfinite isinf isnan isneginf isposinf lgamma log log10 log1p log2 logical_not mish neg
  positive rad2deg reciprocal relu relu6 rsqrt selu sgn sigmoid sign signbit silu sin sinc sinh sqrt square tan tanh trunc
  hardswish | self | pointwise
atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign eq fmax fmin fmod gcd ge gt heaviside
  hypot lcm ldexp le logaddexp logaddexp2 logical_and logical_or logical_xor lt maximum minimum mul ne nextafter remainder
  true_divide xlogy floor_divide | self other | pointwise
add sub rsub | self other alpha | pointwise
div | self other rounding_mode | pointwise
addcmul addcdiv | self tensor1 tensor2 value | pointwise
clamp clip | self min max | pointwise
clamp_max | self max | pointwise
clamp_min | self min | pointwise
hardshrink softshrink | self lambd | pointwise
float_power pow | self exponent | pointwise
sigmoid_backward tanh_backward | grad_output output | pointwise
silu_backward hardswish_backward hardsigmoid_backward | grad_output self | pointwise
gelu_backward | grad_output self approximate | pointwise
threshold_backward | grad_output self threshold | pointwise
lerp | self end weight | pointwise
where | condition self other | pointwise
round | self decimals | pointwise
softplus | self beta threshold | pointwise
logit | self eps | pointwise
nan_to_num | self nan posinf neginf | pointwise
threshold | self threshold value | pointwise
elu | self alpha scale input_scale | pointwise
hardtanh | self min_val max_val | pointwise
leaky_relu | self negative_slope | pointwise
celu | self alpha | pointwise
gelu | self approximate | pointwise
sum mean nansum prod | self dim keepdim dtype | reduction
amax amin all any argmax argmin logsumexp max min aminmax | self dim keepdim | reduction
std var std_mean var_mean | self dim correction keepdim | reduction
count_nonzero | self dim | reduction
norm | self p dim keepdim dtype | reduction
linalg_vector_norm | self ord dim keepdim dtype | reduction
"""
#: Operations with the names of their arguments and the rule of their results.
SIGNATURES: dict[str, tuple[tuple[str, ...], Outputs]] = {}
POINTWISE: set[str] = set()  # torch's tag ``pointwise``
REDUCTIONS: set[str] = set()  # torch's tag ``reduction``


def _fill() -> None:
    for line in _SCHEMAS.replace("\n  ", " ").strip().split("\n"):
        names, arguments, rule = (part.split() for part in line.split("|"))
        for name in names:
            if rule[0] in ("pointwise", "reduction"):
                outputs = (_pointwise if rule[0] == "pointwise" else _reduction)(name)
                (POINTWISE if rule[0] == "pointwise" else REDUCTIONS).add(name)
            elif rule[0] == "grad":
                outputs = _gradients(*rule[1:])
            else:
                outputs = _like(rule[0][1:]) if rule[0].startswith("=") else _RULES[rule[0]]
            SIGNATURES[name] = (tuple(arguments), outputs)


_fill()
#: Operations that are another one to the builders of ``aten``.
SAME_AS = {
    **dict.fromkeys(
        ("cudnn_convolution", "miopen_convolution", "miopen_depthwise_convolution", "_conv_depthwise2d", "_slow_conv2d_forward",
         "thnn_conv2d", "cudnn_convolution_relu", "cudnn_convolution_transpose"),
        "convolution",
    ),
    **dict.fromkeys(("softmax", "log_softmax"), "_softmax"),
    "layer_norm": "native_layer_norm",
    "rms_norm": "_fused_rms_norm",
    "scaled_dot_product_attention": "_scaled_dot_product_flash_attention",
    "cudnn_batch_norm_backward": "native_batch_norm_backward",
    "miopen_batch_norm_backward": "native_batch_norm_backward",
}  # fmt: skip


def signature_of(base: str) -> tuple[tuple[str, ...], Outputs] | None:
    """Return the arguments and the rule of an operation by its name without the namespace; None where they are unknown."""
    found = SIGNATURES.get(base) or SIGNATURES.get(base.rstrip("_"))
    if found is None and base.startswith("_foreach_"):
        return ("self",), _like("self")
    return found
