"""Which allocation a tensor lies in, and how much of it.

Imports torch, so it is imported only where the user's code already did.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .record import Region

_PLAIN = (torch.Tensor, torch.nn.Parameter)


class Storages:
    """The allocations of one capture, numbered in the order they are met.

    They are held weakly, so that a capture needs no more memory than the call: the address of an allocation is not given
    out again while a weak reference to it is left, and the reference says whether the call left it behind.
    """

    def __init__(self) -> None:
        self._refs: list[StorageWeakRef] = []
        self._numbers: dict[int, int] = {}
        self.made: set[int] = set()

    def number(self, tensor: Any, *, made: bool = False) -> int:
        """Of the allocation of ``tensor``; made: the call has just made it, if it is new."""
        storage = tensor.untyped_storage()
        number = self._numbers.get(storage._cdata)
        if number is None:
            self._numbers[storage._cdata] = number = len(self._refs)
            self._refs.append(StorageWeakRef(storage))
            if made:
                self.made.add(number)
        return number

    def region(self, tensor: Any, *, made: bool = False) -> Region:
        """What ``tensor`` covers, each byte once: an expanded dimension is one element, overlapping windows are their span.

        Two views of the same dense bytes are one region, whatever their shapes.
        """
        number = self.number(tensor, made=made)
        covered, span = 1, 1
        sizes, strides = tensor.size(), tensor.stride()
        for size, stride in zip(sizes, strides):
            if stride:
                covered *= size
                span += (size - 1) * stride
            elif not size:
                covered = 0
        width = tensor.element_size()
        start = tensor.storage_offset() * width
        whole = float(tensor.untyped_storage().nbytes())
        if not covered:
            return Region(number, (start, 0), 0.0, whole)
        if span <= covered:
            return Region(number, (start, span * width), float(span * width), whole)
        return Region(number, (start, width, *sizes, *strides), float(covered * width), whole)

    def kept(self) -> set[int]:
        """Of those that the call made, the ones that are still there."""
        return {number for number in self.made if not self._refs[number].expired()}


def refused(tensor: Any) -> str:
    """Why regions of this tensor cannot be told; empty where they can."""
    kind = type(tensor)
    if kind not in _PLAIN and kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return f"a tensor of the class {kind.__name__}"
    if tensor.is_nested:
        return "a nested tensor"
    if tensor.layout is not torch.strided:
        return f"a tensor of layout {str(tensor.layout).removeprefix('torch.')}"
    if tensor.is_quantized:
        return "a quantised tensor"
    return ""
