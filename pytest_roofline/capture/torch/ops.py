"""Which model of the engine an operation of aten has.

A table by name, and for what is not in it the tags that torch gives its own operations. Imports torch, so it is imported
only where the user's code already did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as functional

from .models import (
    UNKNOWN,
    Call,
    Model,
    adaptive,
    attention,
    attention_backward,
    cat,
    convolution,
    convolution_backward,
    cross_entropy,
    elementwise,
    flat,
    gather,
    group_norm,
    indexed,
    layer_norm,
    linear,
    listed,
    masked,
    masked_scatter,
    moved,
    nll_loss,
    norms,
    optimiser,
    places,
    pool,
    product,
    reduce,
    rms_norm,
    rows,
    scaled_mm,
    scatter,
    slice_scatter,
    softmax,
    topk,
)


def model_of(name: str, tags: Sequence[Any]) -> Callable[[Call], Model | list[Model]]:
    """What makes the model of a call of this operation: several where it is several kernels' worth of work."""
    found = TABLE.get(name.rstrip("_")) or TABLE.get(name)
    if found is not None:
        return found
    if name.startswith("_foreach_") or torch.Tag.pointwise in tags:
        return elementwise
    if torch.Tag.reduction in tags:
        return reduce
    return _unknown


def _unknown(call: Call) -> Model:
    return UNKNOWN


_FLASH = "_scaled_dot_product_{}"
_BACKENDS = ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention")
_ATTENTION = [_FLASH.format(name) for name in (*_BACKENDS, "fused_attention_overrideable", "attention_math")]
_ATTENTION_BACKWARD = [_FLASH.format(name + "_backward") for name in (*_BACKENDS, "fused_attention_overrideable")]

#: By the operation's name, without the underscore of its in-place form.
TABLE: dict[str, Callable[[Call], Model | list[Model]]] = {
    "mm": product("self", "mat2"),
    "bmm": product("self", "mat2"),
    "mv": product("self", "vec"),
    "dot": product("self", "tensor"),
    "vdot": product("self", "other"),
    "_int_mm": product("self", "mat2"),
    "addmm": product("mat1", "mat2", "self"),
    "_addmm_activation": product("mat1", "mat2", "self"),
    "addmv": product("mat", "vec", "self"),
    "baddbmm": product("batch1", "batch2", "self"),
    "_scaled_mm": scaled_mm,
    "linear": linear,
    "convolution": convolution,
    "_convolution": convolution,
    "convolution_overrideable": convolution,
    "convolution_backward": convolution_backward,
    **dict.fromkeys(_ATTENTION, attention),
    **dict.fromkeys(_ATTENTION_BACKWARD, attention_backward),
    "_softmax": softmax,
    "_log_softmax": softmax,
    "_safe_softmax": softmax,
    "native_layer_norm": layer_norm,
    "_fused_rms_norm": rms_norm,
    "native_group_norm": group_norm,
    "embedding": gather("weight", "indices", rows(0, "indices")),
    "index_select": gather("self", "index", rows("dim", "index")),
    "index": gather("self", "indices", indexed),
    "gather": gather("self", "index", places),
    "take": gather("self", "index", flat),
    **dict.fromkeys(("cat", "stack"), cat),
    **dict.fromkeys(
        ("clone", "_to_copy", "copy", "flip", "roll", "repeat", "tril", "triu", "constant_pad_nd", "unfold_copy",
         "nonzero", "masked_select", "diag_embed", "reflection_pad1d", "reflection_pad2d", "replication_pad1d",
         "replication_pad2d", "pixel_shuffle", "pixel_unshuffle", "im2col", "repeat_interleave", "_pack_padded_sequence",
         "slice_backward", "select_backward", "unfold_backward", "embedding_dense_backward", "channel_shuffle",
         "fill", "zero", "zeros", "zeros_like", "ones", "ones_like", "full", "full_like", "eye", "scalar_tensor", "new_zeros",
         "new_ones", "new_full"),
        moved,
    ),
    **dict.fromkeys(("index_put", "_index_put_impl", "_unsafe_index_put"), scatter(indexed, "values")),
    "index_add": scatter(rows("dim", "index"), "source", adds=True),
    "index_reduce": scatter(rows("dim", "index"), "source", adds=True),
    "index_copy": scatter(rows("dim", "index"), "source"),
    "index_fill": scatter(rows("dim", "index")),
    "scatter": scatter(places, "src"),
    "scatter_add": scatter(places, "src", adds=True),
    "scatter_reduce": scatter(places, "src", adds=True),
    "put": scatter(flat, "source"),
    "masked_fill": scatter(masked),
    "masked_scatter": masked_scatter,
    **dict.fromkeys(("slice_scatter", "select_scatter", "diagonal_scatter"), slice_scatter),
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), nll_loss),
    # Streams without a tag of torch's: maps with a few operations an element.
    **dict.fromkeys(
        ("arange", "linspace", "rand", "rand_like", "randn", "randn_like", "randint",
         "randint_like", "uniform", "normal", "normal_functional", "bernoulli", "random", "exponential", "native_dropout",
         "native_dropout_backward", "_softmax_backward_data", "_log_softmax_backward_data", "native_layer_norm_backward",
         "_fused_rms_norm_backward", "native_group_norm_backward", "native_batch_norm", "_native_batch_norm_legit",
         "native_batch_norm_backward", "cudnn_batch_norm", "miopen_batch_norm", "nll_loss_backward", "nll_loss2d_backward",
         "mse_loss_backward", "cumsum", "cumprod", "logcumsumexp",
         "glu", "glu_backward", "upsample_nearest2d", "upsample_bilinear2d", "_amp_foreach_non_finite_check_and_unscale"),
        elementwise,
    ),
    "topk": topk,
    **{f"{name}_pool{dims}d": pool(dims) for name in ("avg", "max") for dims in (1, 2, 3)},
    **{f"max_pool{dims}d_with_indices": pool(dims) for dims in (2, 3)},
    **dict.fromkeys(
        ("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_max_pool2d", "adaptive_max_pool3d"),
        adaptive,
    ),
    **dict.fromkeys(("_foreach_copy", "_foreach_zero"), listed),
    "_foreach_norm": norms,
    "mse_loss": reduce,
    "var_mean": reduce,
    "var": reduce,
    "std": reduce,
    "logsumexp": reduce,
    "linalg_vector_norm": reduce,
    "count_nonzero": reduce,
    "_fused_adam": optimiser("adam"),
    "_fused_adamw": optimiser("adamw"),
    "_fused_sgd": optimiser("sgd"),
}  # fmt: skip

#: They allocate, compare for the host or do nothing on the device.
FREE = {
    "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted", "_local_scalar_dense",
    "is_nonzero", "item", "_assert_async", "lift_fresh", "lift", "resize_", "resize_as_", "set_", "is_same_size", "sym_size",
    "sym_stride", "sym_numel", "record_stream", "device", "layout", "is_pinned", "pin_memory", "_fused_sdp_choice", "is_set_to",
}  # fmt: skip
#: What they write to is not read.
WRITE_ONLY = {
    "copy_", "_foreach_copy_", "_foreach_zero_",
    "fill_", "zero_", "uniform_", "normal_", "bernoulli_", "random_", "exponential_", "zeros_like", "ones_like",
    "full_like", "rand_like", "randn_like", "randint_like", "new_zeros", "new_ones", "new_full",
}  # fmt: skip
#: A test's checks are not its kernel.
CHECKS = {"allclose", "equal", "isclose"}


class Composite(NamedTuple):
    """A function with the names of its arguments. fits: whether the model covers the call; where it does not, the function is
    recorded as what it is taken apart into. backward: the model of its backward pass where that is taken apart as well."""

    name: str
    names: tuple[str, ...]
    model: Callable[[Call], Model]
    fits: Callable[[Mapping[str, Any]], bool]
    backward: Callable[[Call], Model] | None = None

    def values(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The arguments by name; None where the model does not cover them."""
        given = {**dict(zip(self.names, args)), **kwargs}
        first = given.get(self.names[0])
        if not isinstance(first, torch.Tensor) or torch._C._is_any_autocast_enabled():
            return None  # under autocast the dtypes are decided inside
        return given if self.fits(given) else None


def _linear(given: Mapping[str, Any]) -> bool:
    return isinstance(given.get("weight"), torch.Tensor) and given["weight"].dtype == given["input"].dtype


def _attention(given: Mapping[str, Any]) -> bool:
    return bool(given["query"].dim() > 1)


def _rms_norm(given: Mapping[str, Any]) -> bool:
    return bool(given.get("normalized_shape"))


def _cross_entropy(given: Mapping[str, Any]) -> bool:
    """Over class indices, without weights of classes or smoothing."""
    target = given.get("target")
    indices = isinstance(target, torch.Tensor) and not target.is_floating_point()
    return indices and given.get("weight") is None and not given.get("label_smoothing")


_SDPA = Composite(
    "scaled_dot_product_attention",
    ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa"),
    attention,
    _attention,
    partial(attention_backward, algorithm="math"),
)
#: Attention that was not taken apart: one operation forward, and one of its own backward.
FUSED = "_scaled_dot_product"
_RMS_NORM = Composite("rms_norm", ("input", "normalized_shape", "weight", "eps"), rms_norm, _rms_norm)

COMPOSITES: dict[Any, Composite] = {
    functional.linear: Composite("linear", ("input", "weight", "bias"), linear, _linear),
    functional.scaled_dot_product_attention: _SDPA,
    functional.rms_norm: _RMS_NORM,
    torch.rms_norm: _RMS_NORM,
    functional.cross_entropy: Composite(
        "cross_entropy",
        ("input", "target", "weight", "size_average", "ignore_index", "reduce", "reduction", "label_smoothing"),
        cross_entropy,
        _cross_entropy,
    ),
}
