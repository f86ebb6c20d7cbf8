"""Roofs on paper: where each line starts and ends, and where its words stand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from roofline_engine.units import quantity

from .model import Bandwidth, Ceiling, Kernel, Model
from .paper import SMALL, TEXT, Box, Plane, Segment, along, around, text_width

#: Points that words keep clear of; where there are more, there is no clear place.
NEAR = 400
#: Kernels whose points say their level of memory.
_TAGGED = 12
#: Places along a slope where its words may stand, as parts of what is free; over the line, else under it.
_PARTS = (0.12, 0.25, 0.38, 0.5, 0.62, 0.75, 0.88, 0.0, 1.0, 0.06, 0.18, 0.31, 0.44, 0.56, 0.69, 0.81, 0.94)
_LIFTS = (5.0, -5.0 - 0.75 * SMALL)
#: What it costs that a letter or two lies over a point, that a line runs through the words; what more than is unreadable.
_OVER, _THROUGH, _UNREADABLE = 6.0, 16.0, 10.0


class Slope(NamedTuple):
    """The words of a bandwidth, from a place on, at an angle in degrees."""

    bandwidth: Bandwidth
    words: str
    x: float
    y: float
    angle: float


class Tag(NamedTuple):
    """The words of a ceiling, flush with the right end of their box."""

    ceiling: Ceiling
    words: str
    box: Box


class Level(NamedTuple):
    """The name of a level of memory at a kernel's point. kernel: its number."""

    kernel: int
    words: str
    box: Box


def slope_ends(model: Model, one: Bandwidth, plane: Plane) -> tuple[float, float]:
    """Intensities between which a bandwidth is drawn: from the edge to the highest ceiling, or to the other edge."""
    top = max((ceiling.flops_s for ceiling in model.ceilings), default=plane.y[1])
    return max(plane.x[0], plane.y[0] / one.bytes_s), min(plane.x[1], min(top, plane.y[1]) / one.bytes_s)


def ceiling_start(model: Model, flops_s: float, plane: Plane) -> float:
    """The intensity from which a ceiling can be reached at all: its ridge with the fastest memory."""
    fastest = max((one.bytes_s for one in model.bandwidths), default=None)
    return min(max(plane.x[0], flops_s / fastest), plane.x[1]) if fastest else plane.x[0]


def lines(model: Model, plane: Plane) -> list[Segment]:
    """Every limit as it is drawn."""
    found: list[Segment] = []
    for one in model.bandwidths:
        start, end = slope_ends(model, one, plane)
        if start < end:
            found.append((plane.at(start, start * one.bytes_s), plane.at(end, end * one.bytes_s)))
    for top in model.ceilings:
        start = ceiling_start(model, top.flops_s, plane)
        found.append((plane.at(start, top.flops_s), plane.at(plane.x[1], top.flops_s)))
    return found


def slope_words(one: Bandwidth, main: Bandwidth | None) -> str:
    """As the specification's figure says it, for each level of memory."""
    figure = quantity(one.bytes_s, "B/s")
    if one == main:
        told = f" ({one.name})" if one.name not in (figure, one.level) or one.basis != "given" else ""
        return f"memory bound, slope 1 = {figure}{told}"
    return f"{one.name} = {figure}"


def ceiling_words(one: Ceiling, unit: tuple[float, str]) -> str:
    """A ceiling's name and figure, in the unit of the axis."""
    return f"{one.name}: {one.flops_s / unit[0]:.4g} {unit[1]}"


def _discs(model: Model, plane: Plane, sizes: Sequence[float]) -> list[Box]:
    """The markers that words keep clear of."""
    return [plane.disc(x, one.rate, size) for one, size in zip(model.kernels[:NEAR], sizes) for _, x in one.spots]


def tags(model: Model, plane: Plane, unit: tuple[float, str], sizes: Sequence[float]) -> tuple[Tag, ...]:
    """Each ceiling's words at its line: at the right end, over it or under it, else as much further left as is free.

    They keep clear of each other, and of points and slopes where there is such a place.
    """
    found: list[Tag] = []
    right = plane.frame.x + plane.frame.w - 6
    discs = _discs(model, plane, sizes)
    rising = [line for line in lines(model, plane) if line[0][1] != line[1][1]]
    for one in sorted(model.ceilings, key=lambda one: (-one.flops_s, one.name)):
        words = ceiling_words(one, unit)
        wide, at = text_width(words, SMALL), plane.py(one.flops_s)
        taken = [tag.box for tag in found]
        steps = range(max(1, int((right - wide - plane.frame.x - 4) // 12) + 1))
        places = [Box(right - wide - 12 * step, at + off, wide, 11) for step in steps for off in (-12, 1)]
        free = [box for box in places if not any(box.hits(other) for other in taken)]
        near = [disc for disc in discs if abs(disc.y + disc.h / 2 - at) < 12 + disc.h]
        start = plane.px(ceiling_start(model, one.flops_s, plane))
        over = (box for box in free if box.x >= start and not any(box.crossed(line) for line in rising))
        clear = (box for box in over if not any(box.hits(disc) for disc in near))
        found.append(Tag(one, words, next(clear, free[0] if free else places[0])))
    return tuple(found)


def compute_bound(model: Model, plane: Plane) -> tuple[str, Box] | None:
    """The words over the roof right of the ridge, where there is room for them."""
    main = model.main
    if not model.ceilings or main is None:
        return None
    top = max(one.flops_s for one in model.ceilings)
    words = "compute bound"
    wide = text_width(words, TEXT)
    left = max(plane.px(max(top / main.bytes_s, plane.x[0])) + 10, plane.frame.x + 6)
    right = plane.frame.x + plane.frame.w - 8
    if right - left < wide:
        return None
    return words, Box(right - wide, plane.py(top) - 17 - TEXT, wide, TEXT + 3)


def levels(model: Model, plane: Plane, sizes: Sequence[float]) -> tuple[Level, ...]:
    """The levels of memory under kernels' points, over them where two would collide, left out where there is no room."""
    if len(model.levels) < 2:
        return ()
    found: list[Level] = []
    discs = _discs(model, plane, sizes)
    for at, (one, size) in enumerate(zip(model.kernels[:_TAGGED], sizes)):
        middle = plane.py(one.rate)
        for level, intensity in sorted(one.spots, key=lambda spot: spot[1]):
            wide = text_width(level.upper(), 7.0)
            x = plane.px(intensity) - wide / 2
            places = (Box(x, middle + size / 2 + 1, wide, 9), Box(x, middle - size / 2 - 10, wide, 9))
            free = (box for box in places if not any(box.hits(other) for other in (*discs, *(one.box for one in found))))
            box = next(free, None)
            if box is not None:
                found.append(Level(at, level.upper(), box))
    return tuple(found)


def slopes(model: Model, plane: Plane, sizes: Sequence[float], taken: Sequence[Box]) -> tuple[tuple[Slope, ...], list[Box]]:
    """The words along each bandwidth, at the place where they are in the way of least, and their boxes.

    Words that would be hard to read wherever they stood are left out, as the legend names the line; main memory's never are.
    """
    found: list[Slope] = []
    boxes: list[Box] = []
    points = _discs(model, plane, sizes) + [plane.disc(x, rate, 4.0) for x, rate in model.ridges]
    flat = [line for line in lines(model, plane) if line[0][1] == line[1][1]]
    for one in model.bandwidths:
        words = slope_words(one, model.main)
        wide = text_width(words, SMALL)
        start, end = slope_ends(model, one, plane)
        if end <= start:
            continue
        x, y = plane.at(start, start * one.bytes_s)
        room = math.dist((x, y), plane.at(end, end * one.bytes_s)) - wide - 12
        best: tuple[float, float, float, list[Box]] | None = None
        for part, lift in ((part, lift) for lift in _LIFTS for part in _PARTS if room >= 0):
            shift, cos, sin = 6 + part * room, math.cos(plane.angle), math.sin(plane.angle)
            sx, sy = x + shift * cos - lift * sin, y - shift * sin - lift * cos
            mine = along(sx, sy, plane.angle, wide, SMALL)
            if not all(box.inside(plane.frame) for box in mine):
                continue
            reach = around(mine)
            near = [point for point in points if reach.hits(point)]
            cost = _OVER * sum(box.hits(point) for box in mine for point in near)
            cost += 5 * sum(box.hits(other) for box in mine for other in (*taken, *boxes))
            cost += 3 * sum(box.crossed(line) for box in mine for line in flat)
            cost += _THROUGH * _lines_through(model, plane, one, (sx, sx + wide * cos), lift)
            if best is None or cost < best[0]:
                best = cost, sx, sy, mine
        if best is not None and (best[0] <= _UNREADABLE or one == model.main):
            found.append(Slope(one, words, best[1], best[2], math.degrees(plane.angle)))
            boxes += best[3]
    return tuple(found), boxes


def _lines_through(model: Model, plane: Plane, one: Bandwidth, xs: tuple[float, float], lift: float) -> int:
    """How many bandwidths run through words that stand ``lift`` over the line of one; all are parallel."""
    count = 0
    for other in model.bandwidths:
        start, end = slope_ends(model, other, plane)
        over = (plane.py(one.bytes_s) - plane.py(other.bytes_s)) * math.cos(plane.angle)
        meets = start < end and plane.px(start) < xs[1] and xs[0] < plane.px(end)
        count += meets and lift - 2 <= over <= lift + 0.75 * SMALL
    return count


def stem(kernel: Kernel, plane: Plane) -> Segment | None:
    """The arrow from a kernel up to its roof, where the way is worth one."""
    if kernel.tip is None:
        return None
    return plane.at(kernel.intensity, kernel.rate), plane.at(kernel.intensity, kernel.tip)
