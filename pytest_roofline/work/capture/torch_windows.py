"""Pooling of torch: windows over an input, some of which skip positions.

Imports torch, so it is imported only where the user's code already did.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from roofline_engine.ops_matmul import positions_met

from .torch_models import Call, Model
from .torch_products import met_only


def pool(dims: int) -> Callable[[Call], Model]:
    """One FLOP per element of a window, as for ``reduce``; positions that no window meets are not read."""

    def build(call: Call) -> Model:
        source, out = call["self"], call.writes[0]
        kernel = _per_axis(call["kernel_size"], dims)
        stride = _per_axis(call.get("stride") or kernel, dims)
        padding, dilation = _per_axis(call.get("padding", 0), dims), _per_axis(call.get("dilation", 1), dims)
        axes = zip(source.shape[-dims:], kernel, stride, padding, dilation, out.shape[-dims:])
        met = [positions_met(*axis) for axis in axes]
        return _reduced(source, out, math.prod(kernel) * out.numel())._replace(part=met_only(source, met))

    return build


def adaptive(call: Call) -> Model:
    """Window i of n over an axis of s positions is from floor(i s / n) to ceil((i + 1) s / n)."""
    source, out = call["self"], call.writes[0]
    sizes = call["output_size"]
    elements = math.prod(source.shape[: -len(sizes)])
    for size, many in zip(source.shape[-len(sizes) :], out.shape[-len(sizes) :]):
        elements *= sum(-(-(at + 1) * size // many) - at * size // many for at in range(many))
    return _reduced(source, out, elements)


def _reduced(source: Any, out: Any, elements: int) -> Model:
    sizes = {"rows": 1, "cols": elements, "dtype": source.dtype, "out_dtype": out.dtype}
    return Model("reduce", sizes, exact=True)


def _per_axis(value: Any, dims: int) -> list[int]:
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    return values * dims if len(values) == 1 else values
