"""Operations of torch that use some rows or elements of a table: which, by the indices as they were given.

Imports torch, so it is imported only where the user's code already did.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import torch

from .covered import LISTED, SOME
from .record import Part
from .torch_models import MOST_LOOKED_AT, UNKNOWN, Call, Model, copied, elementwise, readable

#: Stretches of a table that are listed one by one, so that what two look-ups share is known.
MOST_LISTED = 4096
REPEATED = "which rows its indices name is not known: the bytes of its table are an upper bound"
_key = count()


def _touched(call: Call, table: Any, dims: Sequence[int], indices: Sequence[Any]) -> Part:
    """The part of ``table`` at these indices along these dimensions, in full along the others; the indices broadcast."""
    rest = [at for at in range(table.dim()) if at not in dims]
    row = table.element_size() * math.prod(table.shape[at] for at in rest)
    return _part(call, table, dims, indices, rest, row)


def _elements(call: Call, table: Any, dim: int, index: Any) -> Part:
    """The elements that ``gather`` or ``scatter`` reaches: along ``dim`` where the index says, elsewhere at its own place."""
    dims = range(table.dim())
    places = [
        index if at == dim else torch.arange(index.shape[at], device=index.device).view([-1 if to == at else 1 for to in dims])
        for at in dims
    ]
    return _part(call, table, list(dims), places, [], table.element_size())


def _part(call: Call, table: Any, dims: Sequence[int], indices: Sequence[Any], rest: Sequence[int], row: int) -> Part:
    whole = table.numel() * table.element_size()
    many = math.prod(torch.broadcast_shapes(*(index.shape for index in indices)))
    bound = Part(float(min(many * row, whole)), (SOME, next(_key)), False)
    if many > MOST_LOOKED_AT or not all(readable(call, index) for index in indices):
        return bound
    try:
        place = 0
        for dim, index in zip(dims, indices):
            place = place + torch.remainder(index.long(), table.shape[dim]) * table.stride(dim)
        places = torch.unique(place)
        found = int(places.numel())
        inner = math.prod(table.shape[at] for at in rest)
        nbytes = float(found * row)
        width = table.element_size()
        dense = _dense([(table.shape[at], table.stride(at)) for at in rest])
        if found * (1 if dense else inner) > MOST_LISTED:
            checked = int((places * torch.arange(1, found + 1, device=places.device)).sum())
            return Part(nbytes, (SOME, found, checked, *dims), True)
        run = inner if dense else 1
        if not dense:
            for at in rest:
                places = places[..., None] + torch.arange(table.shape[at], device=places.device) * table.stride(at)
        start = table.storage_offset()
        starts = sorted({(start + at) * width for at in places.flatten().tolist()})
    except (RuntimeError, NotImplementedError):  # indices without values, as a tracer's are
        return bound
    return Part(nbytes, (LISTED, run * width, *starts), True)


def _dense(dims: Sequence[tuple[int, int]]) -> bool:
    """Whether these dimensions are one stretch."""
    length = 1
    for size, stride in sorted(dims, key=lambda pair: pair[1]):
        if size != 1 and stride != length:
            return False
        length *= size
    return True


def _looked_up(call: Call, table: Any, indices: Any) -> Part:
    """The part of a table that ``table[indices]`` is; a mask stands for the places where it is true."""
    dims: list[int] = []
    given = []
    at = 0
    for index in indices:
        if index is None:
            at += 1
        elif index.dtype in (torch.bool, torch.uint8):
            if not readable(call, index):
                return Part(float(table.numel() * table.element_size()), (SOME, next(_key)), False)
            dims += range(at, at + index.dim())
            given += index.nonzero().unbind(-1)
            at += index.dim()
        else:
            dims.append(at)
            given.append(index)
            at += 1
    return _touched(call, table, dims, given)


def _indices(index: Any) -> list[Any]:
    return [one for one in index if one is not None] if isinstance(index, (list, tuple)) else [index]


# How an operation names its table, its indices and what it writes there.

Finds = Callable[[Call, Any], Part]


def rows(dim: str | int, index: str) -> Finds:
    """Along one dimension; ``dim``: its name, or which."""

    def find(call: Call, table: Any) -> Part:
        at = call[dim] if isinstance(dim, str) else dim
        return _touched(call, table, [at % table.dim()], [call[index].reshape(-1)]) if table.dim() else _all(table)

    return find


def places(call: Call, table: Any) -> Part:
    return _elements(call, table, call["dim"] % table.dim(), call["index"]) if table.dim() else _all(table)


def flat(call: Call, table: Any) -> Part:
    """Of ``take`` and ``put``, which see their table as one row."""
    index = call["index"]
    if not table.is_contiguous():
        return Part(float(min(index.numel(), table.numel()) * table.element_size()), (SOME, next(_key)), False)
    return _touched(call, table.view(-1), [0], [index])


def indexed(call: Call, table: Any) -> Part:
    return _looked_up(call, table, call["indices"])


def masked(call: Call, table: Any) -> Part:
    return _looked_up(call, table, [call["mask"].expand_as(table)])


def _all(table: Any) -> Part:
    return Part(float(table.numel() * table.element_size()), None, True)


def gather(table: str, index: str, find: Finds) -> Callable[[Call], Model]:
    """Rows or elements of a table as they are asked for, each read once."""

    def build(call: Call) -> Model:
        source, indices, out = call[table], _indices(call[index]), call.writes[0]
        part = find(call, source)
        many = math.prod(torch.broadcast_shapes(*(one.shape for one in indices)))
        cols = max(out.numel() // max(many, 1), 1)
        if indices[0].dtype in (torch.bool, torch.uint8):
            cols = 1
        parameters = {
            "rows": out.numel() // cols, "cols": cols, "dtype": source.dtype, "out_dtype": out.dtype,
            "index_dtype": indices[0].dtype,
        }  # fmt: skip
        return _bounded(Model("gather", parameters, exact=True, part={id(source): part}), part)

    return build


def scatter(find: Finds, source: str = "", *, adds: bool = False) -> Callable[[Call], Model]:
    """Values written to some places of a table, or added to them: no other place of it moves, unless a copy is made.

    adds: it computes, so that what is there is read; also where the call says ``accumulate``.
    """

    def build(call: Call) -> Model:
        table, out = call["self"], call.writes[0]
        part = find(call, table)
        values = call.get(source) if source else None
        values = values if isinstance(values, torch.Tensor) else None
        computes = adds or bool(call.get("accumulate")) or isinstance(call.get("reduce"), str)
        others = tuple(tensor for tensor in call.reads if tensor is not table)
        if out is table:
            model = elementwise(call) if computes else copied(call, int(part.nbytes) // table.element_size())
            model = model._replace(reads=(*others, table) if computes else others, part={id(table): part})
        else:
            model = elementwise(call) if computes else copied(call, out.numel())
            untouched = float(table.numel() * table.element_size()) - part.nbytes
            left = Part(untouched, (SOME, next(_key)), part.exact)
            model = model._replace(part={} if computes else {id(table): left})
        if computes:
            numel = values.numel() if values is not None else int(part.nbytes) // table.element_size()
            model = model._replace(parameters={**model.parameters, "numel": numel, "outputs": 1})
        return _bounded(model, part)

    return build


def masked_scatter(call: Call) -> Model:
    """As many of the values, from the first on, as the mask has places."""
    model, source = scatter(masked)(call), call["source"]
    part = masked(call, call["self"])
    used = int(part.nbytes) // call["self"].element_size() * source.element_size()
    return model._replace(part={**model.part, id(source): Part(float(used), (SOME, next(_key)), part.exact)})


def slice_scatter(call: Call) -> Model:
    """A copy with one part from elsewhere."""
    table, source = call["self"], call["src"]
    left = float((table.numel() - source.numel()) * table.element_size())
    return copied(call, call.writes[0].numel())._replace(part={id(table): Part(left, (SOME, next(_key)), True)})


def nll_loss(call: Call) -> Model:
    """One of each row's log-probabilities, where the target says; a row that is ignored has none."""
    scores, target = call["self"], call["target"]
    if not readable(call, target):
        used, exact = target.numel(), False
    else:
        used, exact = int((target != call.get("ignore_index", -100)).sum()), True
    part = Part(float(used * scores.element_size()), (SOME, next(_key)), exact)
    if not used:
        return UNKNOWN._replace(note="every row is ignored")
    sizes = {"rows": 1, "cols": used, "dtype": scores.dtype, "out_dtype": call.writes[0].dtype}
    return _bounded(Model("reduce", sizes, exact=True, part={id(scores): part}), part)


def _bounded(model: Model, part: Part) -> Model:
    return model if part.exact else model._replace(partly=True, note="; ".join(filter(None, (model.note, REPEATED))))
