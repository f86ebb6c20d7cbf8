"""Which builder an operation of aten has: a table by name, and torch's own tags for operations outside of it.

Imports torch, so it is imported only after the user's code imported torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as functional

from . import models
from .models import UNKNOWN, Builder, Call, OpSpec


def spec_builder(name: str, tags: Sequence[Any]) -> Callable[[Call], OpSpec | list[OpSpec]]:
    """Return what builds the spec of a call of this operation: several specs where it does the work of several kernels."""
    builder = TABLE.get(name.rstrip("_")) or TABLE.get(name)
    if builder is not None:
        return builder
    if name.startswith("_foreach_") or torch.Tag.pointwise in tags:
        return models.elementwise
    if torch.Tag.reduction in tags:
        return models.reduce
    return lambda call: UNKNOWN


_FLASH = "_scaled_dot_product_{}"
_BACKENDS = ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention")
_ATTENTION = [_FLASH.format(name) for name in (*_BACKENDS, "fused_attention_overrideable", "attention_math")]
_ATTENTION_BACKWARD = [_FLASH.format(name + "_backward") for name in (*_BACKENDS, "fused_attention_overrideable")]

#: By the operation's name, without the underscore of its in-place form.
TABLE: dict[str, Callable[[Call], OpSpec | list[OpSpec]]] = {
    **dict.fromkeys(("mm", "bmm", "_int_mm"), models.product("self", "mat2")),
    "mv": models.product("self", "vec"),
    "dot": models.product("self", "tensor"),
    "vdot": models.product("self", "other"),
    **dict.fromkeys(("addmm", "_addmm_activation"), models.product("mat1", "mat2", "self")),
    "addmv": models.product("mat", "vec", "self"),
    "baddbmm": models.product("batch1", "batch2", "self"),
    "_scaled_mm": models.scaled_mm,
    "linear": models.linear,
    **dict.fromkeys(("convolution", "_convolution", "convolution_overrideable"), models.convolution),
    "convolution_backward": models.convolution_backward,
    **dict.fromkeys(_ATTENTION, models.attention),
    **dict.fromkeys(_ATTENTION_BACKWARD, models.attention_backward),
    **dict.fromkeys(("_softmax", "_log_softmax", "_safe_softmax"), models.softmax),
    "native_layer_norm": models.layer_norm,
    "_fused_rms_norm": models.rms_norm,
    "native_group_norm": models.group_norm,
    "embedding": models.gather("weight", "indices", models.find_rows(0, "indices")),
    "index_select": models.gather("self", "index", models.find_rows("dim", "index")),
    "index": models.gather("self", "indices", models.find_indexed),
    "gather": models.gather("self", "index", models.find_elements),
    "take": models.gather("self", "index", models.find_flat),
    **dict.fromkeys(("cat", "stack"), models.cat),
    **dict.fromkeys(
        ("clone", "_to_copy", "copy", "flip", "roll", "repeat", "tril", "triu", "constant_pad_nd", "unfold_copy",
         "nonzero", "masked_select", "diag_embed", "reflection_pad1d", "reflection_pad2d", "replication_pad1d",
         "replication_pad2d", "pixel_shuffle", "pixel_unshuffle", "im2col", "repeat_interleave", "_pack_padded_sequence",
         "slice_backward", "select_backward", "unfold_backward", "embedding_dense_backward", "channel_shuffle",
         "fill", "zero", "zeros", "zeros_like", "ones", "ones_like", "full", "full_like", "eye", "scalar_tensor", "new_zeros",
         "new_ones", "new_full"),
        models.move,
    ),
    **dict.fromkeys(("index_put", "_index_put_impl", "_unsafe_index_put"), models.scatter(models.find_indexed, "values")),
    **dict.fromkeys(("index_add", "index_reduce"), models.scatter(models.find_rows("dim", "index"), "source", adds=True)),
    "index_copy": models.scatter(models.find_rows("dim", "index"), "source"),
    "index_fill": models.scatter(models.find_rows("dim", "index")),
    "scatter": models.scatter(models.find_elements, "src"),
    **dict.fromkeys(("scatter_add", "scatter_reduce"), models.scatter(models.find_elements, "src", adds=True)),
    "put": models.scatter(models.find_flat, "source"),
    "masked_fill": models.scatter(models.find_masked),
    "masked_scatter": models.masked_scatter,
    **dict.fromkeys(("slice_scatter", "select_scatter", "diagonal_scatter"), models.slice_scatter),
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), models.nll_loss),
    # Streams without a tag: maps with a few operations per element.
    **dict.fromkeys(
        ("arange", "linspace", "rand", "rand_like", "randn", "randn_like", "randint",
         "randint_like", "uniform", "normal", "normal_functional", "bernoulli", "random", "exponential", "native_dropout",
         "native_dropout_backward", "_softmax_backward_data", "_log_softmax_backward_data", "native_layer_norm_backward",
         "_fused_rms_norm_backward", "native_group_norm_backward", "native_batch_norm", "_native_batch_norm_legit",
         "native_batch_norm_backward", "cudnn_batch_norm", "miopen_batch_norm", "nll_loss_backward", "nll_loss2d_backward",
         "mse_loss_backward", "cumsum", "cumprod", "logcumsumexp",
         "glu", "glu_backward", "upsample_nearest2d", "upsample_bilinear2d", "_amp_foreach_non_finite_check_and_unscale"),
        models.elementwise,
    ),
    "topk": models.topk,
    **{f"{name}_pool{dims}d": models.pool(dims) for name in ("avg", "max") for dims in (1, 2, 3)},
    **{f"max_pool{dims}d_with_indices": models.pool(dims) for dims in (2, 3)},
    **dict.fromkeys(
        ("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_max_pool2d", "adaptive_max_pool3d"),
        models.adaptive_pool,
    ),
    **dict.fromkeys(("_foreach_copy", "_foreach_zero"), models.copy_lists),
    "_foreach_norm": models.reduce_lists,
    **dict.fromkeys(("mse_loss", "var_mean", "var", "std", "logsumexp", "linalg_vector_norm", "count_nonzero"), models.reduce),
    "_fused_adam": models.optimizer("adam"),
    "_fused_adamw": models.optimizer("adamw"),
    "_fused_sgd": models.optimizer("sgd"),
}  # fmt: skip

#: Operations that allocate, compare for the host or do nothing on the device.
FREE = {
    "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted", "_local_scalar_dense",
    "is_nonzero", "item", "_assert_async", "lift_fresh", "lift", "resize_", "resize_as_", "set_", "is_same_size", "sym_size",
    "sym_stride", "sym_numel", "record_stream", "device", "layout", "is_pinned", "pin_memory", "_fused_sdp_choice", "is_set_to",
}  # fmt: skip
#: Operations that do not read what they write to.
WRITE_ONLY = {
    "copy_", "_foreach_copy_", "_foreach_zero_",
    "fill_", "zero_", "uniform_", "normal_", "bernoulli_", "random_", "exponential_", "zeros_like", "ones_like",
    "full_like", "rand_like", "randn_like", "randint_like", "new_zeros", "new_ones", "new_full",
}  # fmt: skip
#: A test's checks, which are not its kernel.
CHECKS = {"allclose", "equal", "isclose"}


class Composite(NamedTuple):
    """A function of torch that torch takes apart before it runs; it is recorded as it was called."""

    name: str
    arguments: tuple[str, ...]
    build: Builder
    fits: Callable[[Mapping[str, Any]], bool]  # whether the spec covers a call; if not, its operations are recorded
    build_backward: Builder | None = None  # of its backward pass, where torch takes that apart as well

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the arguments by name; None where the spec does not cover them."""
        values = {**dict(zip(self.arguments, args)), **kwargs}
        first = values.get(self.arguments[0])
        if not isinstance(first, torch.Tensor) or torch._C._is_any_autocast_enabled():
            return None  # autocast chooses the dtypes inside
        return values if self.fits(values) else None


def _fits_linear(values: Mapping[str, Any]) -> bool:
    return isinstance(values.get("weight"), torch.Tensor) and values["weight"].dtype == values["input"].dtype


def _fits_cross_entropy(values: Mapping[str, Any]) -> bool:
    """Return whether it is over class indices, without class weights or smoothing."""
    target = values.get("target")
    has_indices = isinstance(target, torch.Tensor) and not target.is_floating_point()
    return has_indices and values.get("weight") is None and not values.get("label_smoothing")


#: Prefix of attention that torch did not take apart: one operation forward, and one backward.
FUSED = "_scaled_dot_product"
_RMS_NORM = Composite(
    "rms_norm",
    ("input", "normalized_shape", "weight", "eps"),
    models.rms_norm,
    lambda values: bool(values.get("normalized_shape")),
)

COMPOSITES: dict[Any, Composite] = {
    functional.linear: Composite("linear", ("input", "weight", "bias"), models.linear, _fits_linear),
    functional.scaled_dot_product_attention: Composite(
        "scaled_dot_product_attention",
        ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa"),
        models.attention,
        lambda values: bool(values["query"].dim() > 1),
        partial(models.attention_backward, algorithm="math"),
    ),
    functional.rms_norm: _RMS_NORM,
    torch.rms_norm: _RMS_NORM,
    functional.cross_entropy: Composite(
        "cross_entropy",
        ("input", "target", "weight", "size_average", "ignore_index", "reduce", "reduction", "label_smoothing"),
        models.cross_entropy,
        _fits_cross_entropy,
    ),
}
