"""Labels of kernels that lie over nothing: each beside its marker where there is room, farther with a leader, or left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .limits import NEAR, lines, stem
from .model import Kernel, Model
from .paper import LINE, SMALL, Box, Plane, Segment, around, text_width

#: Labels of so many kernels at most, a third of them in a narrow frame; the others tell themselves on picking.
LABELLED = 40
_NARROW = 600
#: A label that would cross this much of the drawing is left out.
TANGLED = 45.0
_ROOF, _STEM, _OWN_STEM, _LEADER, _RANK = 20.0, 6.0, 10.0, 15.0, 0.6
#: With more kernels a label says its percent in short.
TERSE = 12
_GAP = 3.0
#: Distances from the marker, the first without a leader.
_FAR = (0.0, 10.0, 24.0, 42.0, 64.0, 90.0)


@dataclass(frozen=True, slots=True)
class Label:
    """A label's text and box, and where it points when it does not stand beside its marker. kernel: its number.

    leftward: whether it stands left of its point, and so is flush with its right end.
    """

    kernel: int
    lines: tuple[str, ...]
    box: Box
    leftward: bool
    leader: Segment | None = None


def placed(model: Model, plane: Plane, sizes: Sequence[float], taken: Sequence[Box]) -> tuple[Label, ...]:
    """Labels of the largest kernels. sizes: of their markers. taken: boxes that are not free."""
    ranked = sorted(range(len(model.kernels)), key=lambda at: _rank(model.kernels[at], at))
    chosen = ranked[: LABELLED if plane.frame.w > _NARROW else LABELLED // 3]
    discs = list(_discs(model, plane, sizes, ranked[:NEAR]))
    roofs = lines(model, plane)
    stems = {at: line for at in chosen if (line := stem(model.kernels[at], plane)) is not None}
    inner = plane.frame.grown(-2)
    found: list[Label] = []
    blocked = list(taken)
    for at in chosen:
        one = model.kernels[at]
        said = one.label(len(model.kernels) > TERSE)
        wide, high = max(text_width(line, SMALL) for line in said), LINE * len(said)
        x, y = plane.at(one.intensity, one.rate)
        best: tuple[float, Box, Segment | None] | None = None
        candidates = list(_candidates(x, y, sizes[at] / 2 + _GAP, wide, high))
        reach = around([box for box, _ in candidates])
        near = [other for other in (*blocked, *discs) if reach.hits(other)]
        for rank, (box, far) in enumerate(candidates):
            if not box.inside(inner) or any(box.hits(other) for other in near):
                continue
            leader = ((x, y), box.nearest(x, y)) if far else None
            cost = _RANK * rank + _ROOF * sum(box.crossed(line) for line in roofs)
            cost += sum((_OWN_STEM if key == at else _STEM) * box.crossed(line) for key, line in stems.items())
            cost += _LEADER * sum(other.crossed(leader) for other in blocked) if leader else 0.0
            if best is None or cost < best[0]:
                best = cost, box, leader
        if best is not None and best[0] <= TANGLED:
            _, box, leader = best
            found.append(Label(at, said, box, box.x + box.w <= x, leader))
            blocked.append(box.grown(1.0))
    return tuple(found)


def _rank(kernel: Kernel, at: int) -> tuple[float, float, int]:
    """By share of the time, then by what is left to win."""
    return -(kernel.share or 0.0), kernel.fraction if kernel.fraction is not None else 2.0, at


def _discs(model: Model, plane: Plane, sizes: Sequence[float], order: Sequence[int]) -> Iterator[Box]:
    """What is drawn of kernels: their points, the ends of their ranges, where they stood before."""
    for at in order:
        one = model.kernels[at]
        for _, x in one.spots:
            yield plane.disc(x, one.rate, sizes[at])
        for x, rate in (*(one.span or ()), *([one.before] if one.before else [])):
            yield plane.disc(x, rate, 8.0)


def _candidates(x: float, y: float, off: float, wide: float, high: float) -> Iterator[tuple[Box, bool]]:
    """Places of a label around its marker, the nearest first; whether they need a leader."""
    for far in _FAR:
        r = off + far
        d = r * 0.75
        for left, top in (
            (x + r, y - high / 2),
            (x + d, y + d - 2),
            (x + d, y - d - high + 2),
            (x - r - wide, y - high / 2),
            (x - d - wide, y + d - 2),
            (x - d - wide, y - d - high + 2),
            (x - wide / 2, y + r),
            (x - wide / 2, y - r - high),
        ):
            yield Box(left, top, wide, high), far > 0
