"""Which bytes of an allocation a view covers, and how many bytes several views cover together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, pairwise
from typing import NamedTuple

#: Stretches that are looked at one by one; about a tenth of a second.
MOST_RUNS = 1 << 17
#: Different views of one allocation beyond which no overlap is looked for.
MOST_VIEWS = 256
_number = count()


class Strided(NamedTuple):
    """A stretch of bytes, repeated at regular distances. Two spellings of the same bytes are equal."""

    start: int
    run: int  # bytes of the stretch
    dims: tuple[tuple[int, int], ...] = ()  # (how often, bytes apart), the shortest distance first

    def runs(self) -> Iterator[tuple[int, int]]:
        """Yield the first byte of each stretch and the byte after its last."""
        return ((self.start + at, self.start + at + self.run) for at in _offsets(self.dims))

    def count_runs(self) -> int:
        return math.prod(size for size, _ in self.dims)

    def bounds(self) -> tuple[int, int]:
        return self.start, self.start + self.run + sum((size - 1) * stride for size, stride in self.dims)


class Listed(NamedTuple):
    """Stretches of one length at listed places, in order."""

    run: int
    starts: tuple[int, ...]

    def runs(self) -> Iterator[tuple[int, int]]:
        return ((at, at + self.run) for at in self.starts)

    def count_runs(self) -> int:
        return len(self.starts)

    def bounds(self) -> tuple[int, int]:
        return self.starts[0], self.starts[-1] + self.run


class Unknown(NamedTuple):
    """Some bytes, unknown which. Views with the same key cover the same bytes."""

    key: tuple[object, ...]


View = Strided | Listed | Unknown


def unknown_view() -> Unknown:
    """Return a view of unknown bytes that is equal to no other view."""
    return Unknown(("unique", next(_number)))


def strided(start: int, width: int, dims: Iterable[tuple[int, int]]) -> tuple[View, int]:
    """Return the view of elements of ``width`` bytes over dimensions of (size, stride in bytes), and its distinct bytes.

    The dimensions may be in any order. An expanded dimension (stride 0) adds nothing; overlapping windows count once.
    """
    run = width
    outer: list[tuple[int, int]] = []
    span = width  # from the first byte to the last
    is_plain = True
    for stride, size in sorted((abs(stride), size if stride > 0 else -size) for size, stride in dims if stride and size != 1):
        if size < 0:
            size = -size
            start -= (size - 1) * stride
        if not outer and stride <= run:
            run += (size - 1) * stride
            span = run
            continue
        if outer:
            inner, step = outer[-1]
            ratio, rest = divmod(stride, step)
            if not rest and ratio <= inner:
                outer[-1] = ((size - 1) * ratio + inner, step)
                span += (size - 1) * stride
                continue
        is_plain = is_plain and stride >= span
        outer.append((size, stride))
        span += (size - 1) * stride
    view = Strided(start, run, tuple(outer))
    runs = view.count_runs()
    if is_plain:
        return view, run * runs
    if runs > MOST_RUNS:  # never seen in a real kernel: windows that overlap in no regular way
        return Unknown(view), min(runs * run, span)
    starts = tuple(sorted({start + at for at in _offsets(outer)}))
    listed = Listed(run, starts)
    return listed, _length(_join(listed.runs()))


def _offsets(dims: Sequence[tuple[int, int]]) -> Iterator[int]:
    if not dims:
        yield 0
        return
    (size, stride), rest = dims[-1], dims[:-1]
    inside = list(_offsets(rest))
    for at in range(0, size * stride, stride):
        for offset in inside:
            yield at + offset


def _join(runs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the union of stretches, in order."""
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(runs):
        if joined and begin <= joined[-1][1]:
            if end > joined[-1][1]:
                joined[-1] = (joined[-1][0], end)
        else:
            joined.append((begin, end))
    return joined


def _length(runs: Iterable[tuple[int, int]]) -> int:
    return sum(end - begin for begin, end in runs)


class Coverage:
    """The bytes that the views of one allocation cover."""

    __slots__ = ("_views", "exact", "nbytes", "whole")

    def __init__(self, whole: float) -> None:
        self.whole = whole  # bytes of the allocation
        self.nbytes = 0.0
        self.exact = True  # whether ``nbytes`` is what the views cover, or an upper bound
        self._views: dict[View, float] = {}

    def add(self, view: View | None, nbytes: float) -> float:
        """Return the bytes that this view covers and no view before it did; None is the whole allocation."""
        view = view or Strided(0, int(self.whole))
        if view in self._views or (self.exact and self.nbytes >= self.whole):
            return 0.0
        before = self.nbytes
        self._views[view] = nbytes
        if len(self._views) == 1:
            self.nbytes = nbytes
        else:
            together = self._together() if len(self._views) <= MOST_VIEWS and self.exact else None
            if together is None:
                # Together they are at most all of it; that is exact only where one of them is all of it.
                self.exact = nbytes >= self.whole
                together = min(before + nbytes, self.whole)
            self.nbytes = max(float(together), before)
        return self.nbytes - before

    def _together(self) -> float | None:
        """Return the bytes of all views, each byte once; None where that takes too long or is unknown."""
        views = [view for view in self._views if not isinstance(view, Unknown)]
        if len(views) < len(self._views):
            return None
        plain = _join(view.bounds() for view in views if isinstance(view, Strided) and not view.dims)
        others: list[Strided | Listed] = []
        for view in views:
            low, high = view.bounds()
            if (isinstance(view, Listed) or view.dims) and not any(begin <= low and high <= end for begin, end in plain):
                others.append(view)
        known: list[Strided | Listed] = [*(Strided(begin, end - begin) for begin, end in plain), *others]
        self._views = {view: self._views[view] if view in others else float(view.run) for view in known}
        bounds = sorted(view.bounds() for view in known)
        if all(one[1] <= after[0] for one, after in pairwise(bounds)):
            return sum(self._views.values())
        return _of_a_grid(known) or _of_runs(known)


def _of_a_grid(views: Sequence[Strided | Listed]) -> float | None:
    """Return the bytes of views that are parts of the same cells, as the halves of each row are."""
    grids = [view for view in views if isinstance(view, Strided) and view.dims]
    if len(grids) < len(views) or len({view.dims for view in grids}) > 1:
        return None
    dims, first = grids[0].dims, min(view.start for view in grids)
    if max(view.start + view.run for view in grids) - first > min(stride for _, stride in dims):
        return None
    cells = _join((view.start, view.start + view.run) for view in grids)
    return float(_length(cells) * grids[0].count_runs())


def _of_runs(views: Sequence[Strided | Listed]) -> float | None:
    if sum(view.count_runs() for view in views) > MOST_RUNS:
        return None
    return float(_length(_join(run for view in views for run in view.runs())))
