"""What live tensors of torch tell of a call beyond shapes and dtypes, and the functions that torch takes apart.

The engine's ``calls.aten`` maps operations to its ops. Imports torch, so it is imported only after the user's code imported
torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as functional

from roofline_engine.calls import call as engine
from roofline_engine.calls.aten import attention, attention_backward, cross_entropy, linear, norm
from roofline_engine.calls.call import Part, Unknown, all_of, broadcast, nbytes_of, unknown_part

from ..trace import Listed, Region

if TYPE_CHECKING:
    from roofline_engine.calls.call import Builder

#: More elements than these of an index or a mask are not read.
MOST_READ = 1 << 22
#: Stretches of a table that are listed one by one, so that what two look-ups share is known.
MOST_LISTED = 4096


class Call(engine.Call):
    """One operation with its live arguments, whose values are read where that is safe."""

    __slots__ = ("may_read", "regions")

    def __init__(
        self,
        name: str,
        values: Mapping[str, Any],
        reads: Sequence[Any],
        writes: Sequence[Any],
        regions: dict[int, Region],
        may_read: bool = True,
    ) -> None:
        super().__init__(name, values, reads, writes)
        self.regions = regions  # what each tensor covers, by its ``id``
        self.may_read = may_read  # whether a builder may read the values of a tensor, such as indices

    def can_read(self, tensor: Any) -> bool:
        """Return whether reading a tensor's values is safe, and cheap compared to the call."""
        if not self.may_read or tensor.device.type == "meta" or tensor.numel() > MOST_READ:
            return False
        if tensor.device.type != "cuda":
            return True
        return not (torch.cuda.is_current_stream_capturing() or torch.cuda.get_sync_debug_mode())

    def matrix_dtype(self, tensor: Any, *, convolution: bool = False) -> Any:
        """Return the dtype in which a product of this tensor runs: fp32 may run as TF32 on CUDA."""
        if tensor.dtype is not torch.float32 or tensor.device.type != "cuda" or torch.version.hip:
            return tensor.dtype
        fast = torch.backends.cudnn.allow_tf32 if convolution else torch.get_float32_matmul_precision() != "highest"
        return "tf32" if fast else tensor.dtype

    def visible_pairs(self, mask: Any, pairs: int) -> int | None:
        """Return how many of the pairs a mask does not hide; None where it cannot be read, and for part of a pair."""
        if not self.can_read(mask):
            return None
        visible = int((mask if mask.dtype == torch.bool else ~torch.isneginf(mask)).sum())
        seen, rest = divmod(visible * pairs, mask.numel())  # masks expand over missing dimensions
        return None if rest else seen

    def kept_rows(self, target: Any, ignored: int) -> int | None:
        """Return how many targets are not ``ignored``; None where they cannot be read."""
        return int((target != ignored).sum()) if self.can_read(target) else None

    def find(self, kind: str, table: Any) -> Part:
        """Return the part of a table that the indices use, by their values."""
        if not table.dim():
            return all_of(table)
        if kind == "elements":
            return _find_elements(self, table)
        if kind == "flat":
            return _find_flat(self, table)
        if kind == "indexed":
            return _find_indexed(self, table)
        dim, _, name = kind.partition(":")
        at = int(dim) if dim.lstrip("-").isdigit() else self[dim]
        return rows_part(self, table, [at % table.dim()], [self[name].reshape(-1)])


def _find_elements(call: Call, table: Any) -> Part:
    """Find the elements of ``gather`` and ``scatter``: along ``dim`` by the index, elsewhere by the place in the index."""
    index, axis, dims = call["index"], call["dim"] % table.dim(), range(table.dim())
    places = [
        index if at == axis else torch.arange(index.shape[at], device=index.device).view([-1 if to == at else 1 for to in dims])
        for at in dims
    ]
    return rows_part(call, table, list(dims), places)


def _find_flat(call: Call, table: Any) -> Part:
    """Find the elements of ``take`` and ``put``, which see their table as one row."""
    index = call["index"]
    if not table.is_contiguous():
        return unknown_part(min(index.numel() * table.element_size(), nbytes_of(table)), exact=False)
    return rows_part(call, table.view(-1), [0], [index])


def _find_indexed(call: Call, table: Any) -> Part:
    """Find what ``table[indices]`` uses; a mask stands for the places where it is true."""
    indices = call["indices"] if "indices" in call.values else [call["mask"].expand_as(table)]
    dims: list[int] = []
    places = []
    at = 0
    for index in indices:
        if index is None:
            at += 1
        elif index.dtype in (torch.bool, torch.uint8):
            if not call.can_read(index):
                return unknown_part(nbytes_of(table), exact=False)
            dims += range(at, at + index.dim())
            places += index.nonzero().unbind(-1)
            at += index.dim()
        else:
            dims.append(at)
            places.append(index)
            at += 1
    return rows_part(call, table, dims, places)


def rows_part(call: Call, table: Any, dims: Sequence[int], indices: Sequence[Any]) -> Part:
    """Return the part of ``table`` at these indices along these dimensions, in full along the others; the indices broadcast."""
    rest = [at for at in range(table.dim()) if at not in dims]
    inner, width = math.prod(table.shape[at] for at in rest), table.element_size()
    looked_up = math.prod(broadcast([tuple(index.shape) for index in indices]))
    bound = unknown_part(min(looked_up * inner * width, nbytes_of(table)), exact=False)
    if looked_up > MOST_READ or not all(call.can_read(index) for index in indices):
        return bound
    try:
        offsets = 0
        for dim, index in zip(dims, indices):
            offsets = offsets + torch.remainder(index.long(), table.shape[dim]) * table.stride(dim)
        places = torch.unique(offsets)
        rows = int(places.numel())
        nbytes = float(rows * inner * width)
        is_dense = _is_dense([(table.shape[at], table.stride(at)) for at in rest])
        if rows * (1 if is_dense else inner) > MOST_LISTED:
            checksum = int((places * torch.arange(1, rows + 1, device=places.device)).sum())
            return Part(nbytes, Unknown((rows, checksum, *dims)), True)
        run = inner if is_dense else 1
        if not is_dense:
            for at in rest:
                places = places[..., None] + torch.arange(table.shape[at], device=places.device) * table.stride(at)
        start = table.storage_offset()
        starts = sorted({(start + at) * width for at in places.flatten().tolist()})
    except (RuntimeError, NotImplementedError):  # indices without values, as those of a tracer
        return bound
    return Part(nbytes, Listed(run * width, tuple(starts)), True)


def _is_dense(dims: Sequence[tuple[int, int]]) -> bool:
    """Return whether dimensions of (size, stride) are one stretch."""
    length = 1
    for size, stride in sorted(dims, key=lambda pair: pair[1]):
        if size != 1 and stride != length:
            return False
        length *= size
    return True


#: A test's checks, which are not its kernel.
CHECKS = {"allclose", "equal", "isclose"}


# Functions that torch takes apart before it runs them.


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


_RMS_NORM = Composite(
    "rms_norm",
    ("input", "normalized_shape", "weight", "eps"),
    norm("rmsnorm", "weight"),
    lambda values: bool(values.get("normalized_shape")),
)

COMPOSITES: dict[Any, Composite] = {
    functional.linear: Composite("linear", ("input", "weight", "bias"), linear, _fits_linear),
    functional.scaled_dot_product_attention: Composite(
        "scaled_dot_product_attention",
        ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa"),
        attention,
        lambda values: bool(values["query"].dim() > 1),
        partial(attention_backward, algorithm="math"),
    ),
    functional.rms_norm: _RMS_NORM,
    torch.rms_norm: _RMS_NORM,
    functional.cross_entropy: Composite(
        "cross_entropy",
        ("input", "target", "weight", "size_average", "ignore_index", "reduce", "reduction", "label_smoothing"),
        cross_entropy,
        _fits_cross_entropy,
    ),
}
