"""From an operation of torch to what the total reads of it.

Imports torch, so it is imported only where the user's code already did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from roofline_engine.ops import work
from roofline_engine.work import Work

from ..combine import distinct
from ..coverage import strided
from ..trace import Region, Seen, part_of
from .models import Call, Model
from .ops import FREE, TABLE, WRITE_ONLY, model_of


class Schema(NamedTuple):
    """What torch says of an operation.

    names: its arguments. changed: those that it writes to; unread: those that it does not read. view: another look at the
    same memory. free: nothing is computed or moved. blank: its result does not depend on what its tensors hold, as with
    ``zeros_like``. composite: torch runs it as other operations, which tell more.
    """

    label: str
    name: str
    names: tuple[str, ...]
    changed: tuple[str, ...]
    unread: tuple[str, ...]
    model: Callable[[Call], Model | list[Model]]
    view: bool
    free: bool
    blank: bool
    composite: bool


#: Of the operations that have been met.
SCHEMAS: dict[Any, Schema] = {}


def schema(func: Any) -> Schema:
    """Of an operation as it is dispatched. One that takes functions (``cond``, ``flex_attention``) tells nothing of itself."""
    found = SCHEMAS[func] = _schema(func)
    return found


def _schema(func: Any) -> Schema:
    if not isinstance(func, torch._ops.OpOverload):
        name = str(func)
        return Schema(name, name, (), (), (), model_of(name, ()), False, False, False, False)
    arguments = func._schema.arguments
    name = func.overloadpacket.__name__
    changed = tuple(item.name for item in arguments if item.alias_info is not None and item.alias_info.is_write)
    unread = tuple(item.name for item in arguments if item.is_out)
    only = name in WRITE_ONLY
    label = f"{func.namespace}.{name}"
    known = name if func.namespace in ("aten", "prim", "prims") else label
    return Schema(
        label,
        known,
        tuple(item.name for item in arguments),
        changed,
        unread + changed if only else unread,
        model_of(known, func.tags),
        bool(func.is_view) or torch.Tag.inplace_view in func.tags,
        name in FREE,
        only and not changed,
        known not in TABLE and _composite(func),
    )


def _composite(func: Any) -> bool:
    try:
        return bool(func._can_decompose())
    except RuntimeError:  # not one of the dispatcher's, such as prim::device
        return False


def seen(label: str, call: Call, model: Model, launches: int = 1) -> Seen:
    """One operation as the engine's ``model`` of it, or without one where it has none."""
    reads = call.reads if model.reads is None else model.reads
    writes = call.writes if model.writes is None else model.writes
    regions = call.regions
    read, written = [regions[id(tensor)] for tensor in reads], [regions[id(tensor)] for tensor in writes]
    if model.part:
        read = [part_of(region, model.part.get(id(tensor))) for region, tensor in zip(read, reads)]
        written = [part_of(region, model.part.get(id(tensor))) for region, tensor in zip(written, writes)]
    note, done, flops, between = model.note, None, None, _between(reads, writes)
    if model.op is not None:
        try:
            done, flops = engine_work(model), 0.0
        except ValueError as error:  # a dtype or a size that the engine refuses
            note = str(error)
    if done is not None and model.exact:
        done = _with_bytes(done, distinct(read, written) - done.bytes)
    elif done is not None and model.charged:
        charged = [tensor for tensor in model.charged if id(tensor) not in model.part] if model.part else model.charged
        full = sum(tensor.numel() * tensor.element_size() for tensor in charged)
        once = distinct([regions[id(tensor)] for tensor in (*charged, *model.extra)])
        done = _with_bytes(done, once - full)
    if done is not None and done.engine == "vector" and done.flops:
        kinds = {tensor.dtype for tensor in (*reads, *writes)}
        if any(kind.is_complex for kind in kinds):
            done, flops, note = None, None, "arithmetic on complex numbers has no model"
        elif not any(kind.is_floating_point for kind in kinds):  # FLOPs are of floating point
            done = done._replace(candidates=tuple(one._replace(flops=0.0) for one in done.candidates))
    dtype = done.dtype.name if done is not None else None
    if between:
        note = "a copy between devices is not the traffic of one memory"
    return Seen(label, tuple(read), tuple(written), (), done, flops, dtype, between or model.partly, launches, note)


def _between(reads: Sequence[Any], writes: Sequence[Any]) -> bool:
    """Whether data moves between devices; a scalar of the host is a parameter."""
    first = writes[0].device
    for tensor in reads:  # noqa: SIM110  # a generator costs as much as all the rest
        if tensor.device != first and tensor.dim():
            return True
    return False


def engine_work(model: Model) -> Work:
    """Bytes and FLOPs by the engine.

    Raises:
        ValueError: for a size or a dtype that it refuses.
    """
    assert model.op is not None
    return _work(model.op, tuple(model.parameters.items()))


@lru_cache(maxsize=4096)
def _work(op: str, parameters: tuple[tuple[str, Any], ...]) -> Work:
    plain: dict[str, Any] = {key: str(value) if isinstance(value, torch.dtype) else value for key, value in parameters}
    return work(op, **plain)


def _with_bytes(done: Work, more: float) -> Work:
    """The same with more bytes, in every byte model."""
    if not more:
        return done
    return done._replace(candidates=tuple(model._replace(bytes=model.bytes + more) for model in done.candidates))


class Decomposed(NamedTuple):
    """Attention that ran as several operations: its autograd nodes by number, its backward work, where its steps are."""

    first: int
    last: int
    work: Work
    steps: list[int]


def merged(operations: Sequence[Seen], decomposed: Sequence[Decomposed]) -> list[Seen]:
    """With each backward pass that ran as several operations as one, at the place of its first step."""
    whole: dict[int, Seen] = {}
    dropped: set[int] = set()
    for item in decomposed:
        if not item.steps:
            continue
        steps = [operations[at] for at in item.steps]
        inner = {region.storage for step in steps for region in step.writes}
        reads = dict.fromkeys(region for step in steps for region in step.reads if region.storage not in inner)
        writes = dict.fromkeys(region for step in steps for region in step.writes)
        dropped.update(item.steps)
        name = "scaled_dot_product_attention backward"
        whole[item.steps[0]] = Seen(name, tuple(reads), tuple(writes), work=item.work, launches=len(steps))
    return [whole.get(at, one) for at, one in enumerate(operations) if at not in dropped or at in whole]


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
