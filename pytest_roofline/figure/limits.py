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
_PARTS = (0.12, 0.25, 0.38, 0.5, 0.62, 0.75, 0.88, 0.0, 1.0)
_LIFTS = (5.0, -5.0 - 0.75 * SMALL)


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


def tags(model: Model, plane: Plane, unit: tuple[float, str]) -> tuple[Tag, ...]:
    """Each ceiling's words at the right end of its line: over it, under it where the one above is near, else further left."""
    found: list[Tag] = []
    right = plane.frame.x + plane.frame.w - 6
    for one in sorted(model.ceilings, key=lambda one: (-one.flops_s, one.name)):
        words = ceiling_words(one, unit)
        wide, at = text_width(words, SMALL), plane.py(one.flops_s)
        over, under = Box(right - wide, at - 12, wide, 11), Box(right - wide, at + 1, wide, 11)
        taken = [tag.box for tag in found]
        box = next((box for box in (over, under) if not any(box.hits(other) for other in taken)), over)
        while any(box.hits(other) for other in taken) and box.x > plane.frame.x + wide:
            box = Box(box.x - 12, box.y, wide, box.h)
        found.append(Tag(one, words, box))
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
    """The levels of memory under kernels' points, over them where two would collide."""
    if len(model.levels) < 2:
        return ()
    found: list[Level] = []
    for at, (one, size) in enumerate(zip(model.kernels[:_TAGGED], sizes)):
        middle, mine = plane.py(one.rate), len(found)
        for level, intensity in sorted(one.spots, key=lambda spot: spot[1]):
            wide = text_width(level.upper(), 7.0)
            box = Box(plane.px(intensity) - wide / 2, middle + size / 2 + 1, wide, 9)
            if any(box.hits(other.box) for other in found[mine:]):
                box = Box(box.x, middle - size / 2 - 10, wide, 9)
            found.append(Level(at, level.upper(), box))
    return tuple(found)


def slopes(model: Model, plane: Plane, taken: Sequence[Box]) -> tuple[tuple[Slope, ...], list[Box]]:
    """The words along each bandwidth, at the place where they are in the way of least, and their boxes."""
    found: list[Slope] = []
    boxes: list[Box] = []
    spots = [(x, one.rate) for one in model.kernels[:NEAR] for _, x in one.spots]
    points = [plane.disc(x, rate, 0.01) for x, rate in (*spots, *model.ridges)]
    drawn = lines(model, plane)
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
            reach = around(mine).grown(6)
            near = [point for point in points if reach.hits(point)]
            cost = 4.0 * sum(box.hits(point) for box in (one.grown(6) for one in mine) for point in near)
            cost += 5 * sum(box.hits(other) for box in mine for other in (*taken, *boxes))
            cost += 3 * sum(box.crossed(line) for box in mine for line in drawn)
            if best is None or cost < best[0]:
                best = cost, sx, sy, mine
        if best is not None:
            found.append(Slope(one, words, best[1], best[2], math.degrees(plane.angle)))
            boxes += best[3]
    return tuple(found), boxes


def stem(kernel: Kernel, plane: Plane) -> Segment | None:
    """The arrow from a kernel up to its roof, where the way is worth one."""
    if kernel.tip is None:
        return None
    return plane.at(kernel.intensity, kernel.rate), plane.at(kernel.intensity, kernel.tip)
