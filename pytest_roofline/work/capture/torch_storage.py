"""Which allocation a tensor lies in, and how much of it.

Imports torch, so it is imported only where the user's code already did.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from .covered import strided
from .record import Region

_PLAIN = (torch.Tensor, torch.nn.Parameter)


class Storages:
    """The allocations of one capture, numbered in the order they are met.

    They are held weakly, so that a capture needs no more memory than the call: the address of an allocation is not given
    out again while a weak reference to it is left, and the reference says whether the call left it behind. The references
    are torch's bare ones, not ``StorageWeakRef``: objects by the thousand bring on full garbage collections.
    """

    def __init__(self) -> None:
        self._refs: list[int] = []
        self._whole: list[int] = []
        self._numbers: dict[int, int] = {}
        self.made: set[int] = set()
        self._free = torch.UntypedStorage._free_weak_ref

    def __del__(self) -> None:
        for reference in self._refs:
            self._free(reference)

    @property
    def met(self) -> int:
        """How many there are."""
        return len(self._refs)

    def number(self, tensor: Any, made: bool = False) -> int:
        """Of the allocation of ``tensor``; made: the call has just made it, if it is new."""
        storage = tensor.untyped_storage()
        number = self._numbers.get(storage._cdata)
        if number is None:
            self._numbers[storage._cdata] = number = len(self._refs)
            self._refs.append(storage._weak_ref())
            self._whole.append(storage.nbytes())
            if made:
                self.made.add(number)
        return number

    def region(self, tensor: Any, made: bool = False) -> Region:
        """What ``tensor`` covers, each byte once. Two views of the same bytes are one region, whatever their shapes."""
        number = self.number(tensor, made)
        width = tensor.element_size()
        start = tensor.storage_offset() * width
        if tensor.is_contiguous():
            nbytes = tensor.numel() * width
            return Region(number, (start, nbytes), nbytes, self._whole[number])
        dims = zip(tensor.size(), tensor.stride())
        view, nbytes = strided(start, width, [(size, stride * width) for size, stride in dims])
        return Region(number, view, nbytes, self._whole[number])

    def kept(self) -> set[int]:
        """Of those that the call made, the ones that are still there."""
        return {number for number in self.made if not torch.UntypedStorage._expired(self._refs[number])}


def foreign(tensor: Any) -> bool:
    """Whether a tensor is of a class that dispatches by itself, so that its storage is not what it computes on."""
    kind = type(tensor)
    return kind not in _PLAIN and kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def why_not(tensors: Iterable[Any]) -> str:
    """Which of these tensors has no regions."""
    for tensor in tensors:
        if foreign(tensor):
            return f"a tensor of the class {type(tensor).__name__}"
        if tensor.is_nested:
            return "a nested tensor"
        if tensor.layout is not torch.strided:
            return f"a tensor of the layout {str(tensor.layout).removeprefix('torch.')}"
    return ""


def tensors_of(value: Any) -> list[Any]:
    """The tensors of an argument or a result, also of lists of them."""
    if isinstance(value, torch.Tensor):
        return [value]
    if not isinstance(value, (list, tuple)):
        return []
    found = []
    for item in value:
        if isinstance(item, torch.Tensor):
            found.append(item)
        elif isinstance(item, (list, tuple)):
            found += tensors_of(item)
    return found


def held_in(value: Any, depth: int = 4) -> list[Any]:
    """The tensors of what a call returned: also those of dictionaries and of objects."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        items: Iterable[Any] = value.values()
    elif isinstance(value, (list, tuple, set)):
        items = value
    else:
        items = vars(value).values() if hasattr(value, "__dict__") and not isinstance(value, type) else ()
    return [tensor for item in items for tensor in held_in(item, depth - 1)] if depth else []
