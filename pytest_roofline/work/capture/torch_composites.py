"""Functions of torch that it takes apart before it runs them, recorded as they were called.

Imports torch, so it is imported only where the user's code already did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as functional

from .torch_models import Call, Model, cross_entropy, rms_norm
from .torch_products import attention, attention_backward, linear


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


_ATTENTION = Composite(
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
    functional.scaled_dot_product_attention: _ATTENTION,
    functional.rms_norm: _RMS_NORM,
    torch.rms_norm: _RMS_NORM,
    functional.cross_entropy: Composite(
        "cross_entropy",
        ("input", "target", "weight", "size_average", "ignore_index", "reduce", "reduction", "label_smoothing"),
        cross_entropy,
        _cross_entropy,
    ),
}
