"""Which bytes of an allocation a view covers, and how many several views cover together.

A view is a tuple of integers, so that two spellings of the same bytes are equal: ``(start, length)`` is one stretch;
``(start, run, size, stride, ...)`` a stretch of ``run`` bytes repeated ``size`` times ``stride`` bytes apart, and that
repeated in turn; ``(LISTED, run, *starts)`` stretches at those places; ``(SOME, key)`` nobody knows which bytes; ``()`` all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

View = tuple[int, ...]
WHOLE: View = ()
LISTED, SOME = -1, -2

#: Stretches that are looked at one by one; about a tenth of a second.
MOST_RUNS = 1 << 17
#: Different views of one allocation beyond which no overlap is looked for.
MOST_VIEWS = 256


def strided(start: int, width: int, dims: Iterable[tuple[int, int]]) -> tuple[View, int]:
    """The view of elements of ``width`` bytes over dimensions of (size, stride in bytes), and its distinct bytes.

    Dimensions in any order; one that is expanded (stride 0) adds nothing, windows that overlap are counted once.
    """
    run = width
    outer: list[tuple[int, int]] = []
    span = width  # from the first byte to the last
    plain = True
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
        plain = plain and stride >= span
        outer.append((size, stride))
        span += (size - 1) * stride
    if not outer:
        return (start, run), run
    if plain:
        view = (start, run, *(number for pair in outer for number in pair))
        return view, run * math.prod(size for size, _ in outer)
    count = math.prod(size for size, _ in outer)
    if count > MOST_RUNS:  # never seen of a real kernel: windows that overlap in no regular way
        return (SOME, start, run, *(number for pair in outer for number in pair)), min(count * run, span)
    starts = sorted({start + at for at in _places(outer)})
    return (LISTED, run, *starts), sum(end - begin for begin, end in _joined((at, at + run) for at in starts))


def _places(outer: Sequence[tuple[int, int]]) -> Iterator[int]:
    if not outer:
        yield 0
        return
    (size, stride), rest = outer[-1], outer[:-1]
    inside = list(_places(rest))
    for at in range(0, size * stride, stride):
        for place in inside:
            yield at + place


def _runs(view: View) -> Iterator[tuple[int, int]]:
    """Its stretches, each from its first byte to the one after the last."""
    if view[0] == LISTED:
        return ((at, at + view[1]) for at in view[2:])
    return ((view[0] + at, view[0] + at + view[1]) for at in _places(_outer(view)))


def _count(view: View) -> int:
    return len(view) - 2 if view[0] == LISTED else math.prod(view[2::2])


def _outer(view: View) -> list[tuple[int, int]]:
    return list(zip(view[2::2], view[3::2]))


def _bounds(view: View) -> tuple[int, int]:
    if view[0] == LISTED:
        return view[2], view[-1] + view[1]
    return view[0], view[0] + view[1] + sum((size - 1) * stride for size, stride in _outer(view))


def _joined(runs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(runs):
        if joined and begin <= joined[-1][1]:
            if end > joined[-1][1]:
                joined[-1] = (joined[-1][0], end)
        else:
            joined.append((begin, end))
    return joined


class Covered:
    """Views of one allocation of ``whole`` bytes. exact: whether ``nbytes`` is what they cover, or a bound from above."""

    __slots__ = ("_views", "exact", "nbytes", "whole")

    def __init__(self, whole: float) -> None:
        self.whole, self.nbytes, self.exact = whole, 0.0, True
        self._views: dict[View, float] = {}

    def add(self, view: View, nbytes: float) -> float:
        """The bytes that this view covers and none before it did."""
        view = view or (0, int(self.whole))
        if view in self._views or (self.exact and self.nbytes >= self.whole):
            return 0.0
        before = self.nbytes
        self._views[view] = nbytes
        if len(self._views) == 1:
            self.nbytes = nbytes
        else:
            found = self._together() if len(self._views) <= MOST_VIEWS and self.exact else None
            if found is None:
                # Together they are at most all of it; that is exact only where one of them is all of it.
                self.exact = nbytes >= self.whole
                found = min(before + nbytes, self.whole)
            self.nbytes = max(float(found), before)
        return self.nbytes - before

    def _together(self) -> float | None:
        """The bytes of all views, each once; None where that takes too long or is not known."""
        if any(view[0] == SOME for view in self._views):
            return None
        plain = _joined((view[0], view[0] + view[1]) for view in self._views if len(view) == 2 and view[0] >= 0)
        others = [
            view
            for view in self._views
            if len(view) != 2 and not any(begin <= low and high <= end for low, high in [_bounds(view)] for begin, end in plain)
        ]
        self._views = {
            **{(begin, end - begin): float(end - begin) for begin, end in plain},
            **{view: self._views[view] for view in others},
        }
        bounds = sorted(map(_bounds, self._views))
        if all(one[1] <= after[0] for one, after in pairwise(bounds)):
            return sum(self._views.values())
        return self._of_a_grid() or self._of_runs()

    def _of_a_grid(self) -> float | None:
        """Parts of the same cells, as the halves of each row are."""
        outers = {view[2:] for view in self._views}
        first = min(view[0] for view in self._views)
        if len(outers) > 1 or first < 0 or not min(len(view) for view in self._views) > 2:
            return None
        (outer,) = outers
        if max(view[0] + view[1] for view in self._views) - first > min(outer[1::2]):
            return None
        cells = _joined((view[0], view[0] + view[1]) for view in self._views)
        return float(sum(end - begin for begin, end in cells) * math.prod(outer[::2]))

    def _of_runs(self) -> float | None:
        if sum(map(_count, self._views)) > MOST_RUNS:
            return None
        return float(sum(end - begin for begin, end in _joined(run for view in self._views for run in _runs(view))))
