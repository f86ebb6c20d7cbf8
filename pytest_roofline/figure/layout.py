"""One drawing of a model at one size: its frame, the domain of its axes, and the place of everything on it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from . import limits
from .labels import Label, placed
from .limits import Level, Slope, Tag
from .model import Left, Model
from .paper import SMALL, TEXT, Box, Plane, text_width, wrapped

#: Marker diameters in pixels, by share of the time: areas grow with it, in steps that keep the drawing small.
SMALLEST, LARGEST, STEPS = 7.0, 22.0, 8
_ALIKE = 9.0
#: With more kernels markers are smaller.
CROWD = 400
TITLE = 12.5
UNITS = ((1e15, "PFLOP/s"), (1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"), (1.0, "FLOP/s"))
#: A line of the legend.
LEGEND_LINE = 13.0


@dataclass(frozen=True, slots=True)
class Size:
    """A drawing's outline; inside: whether its legend stands in the frame, or under it."""

    width: float
    height: float
    inside: bool = True


WIDE = Size(960, 600)
NARROW = Size(390, 560, inside=False)


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the legend. kind: line, colour or shape; shape: a dash or a marker, in plotpress' letters."""

    kind: str
    text: str
    colour: str
    shape: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One drawing.

    unit: FLOP/s in one of the rates' axis, and its name. arrows: kernels that carry the way to their roof, those whose label
    says how far it is.
    """

    size: Size
    plane: Plane
    unit: tuple[float, str]
    diameters: tuple[float, ...]
    labels: tuple[Label, ...]
    legend: tuple[Entry, ...]
    legend_box: Box
    slopes: tuple[Slope, ...]
    tags: tuple[Tag, ...]
    levels: tuple[Level, ...]
    flat: tuple[str, Box] | None
    title: tuple[str, ...]
    subtitle: tuple[str, ...]
    footer: tuple[str, ...]
    arrows: frozenset[int]


def unit_of(rates: Iterable[float]) -> tuple[float, str]:
    """The unit in which the highest rate has two to four digits before the point, as 1840 GFLOP/s has."""
    top = max(rates)
    return next((unit for unit in UNITS if top >= 10 * unit[0]), UNITS[-1])


def domain(model: Model) -> tuple[tuple[float, float], tuple[float, float]]:
    """Intensities and rates from edge to edge: every point, every ridge, and a bit of each limit beyond them."""
    ends = [end for one in model.kernels for end in (*(one.span or ()), *([one.before] if one.before else []))]
    xs = [x for one in model.kernels for _, x in one.spots] + [x for x, _ in ends]
    ys = [one.rate for one in model.kernels] + [rate for _, rate in ends]
    tops = [one.flops_s for one in model.ceilings]
    corners = [x for x, _ in model.ridges]
    if not xs and not corners:
        wide = model.main
        xs = [0.1, 10.0]
        ys = [x * wide.bytes_s for x in xs] if wide else tops or [1e9, 1e11]
    if not tops and model.bandwidths:
        tops = [max(xs) * one.bytes_s for one in model.bandwidths]
    low_x, high_x = min([*xs, *corners]) / 3.5, max([*xs, *corners]) * 4.5
    if corners:  # the slope has to be seen: a decade of it under the lowest ridge
        low_x = min(low_x, min(corners) / 10)
        ys = [*ys, min(tops) / 10]
    return (low_x, high_x), (min(ys or [min(tops) / 10]) / 2.5, max([*ys, *tops]) * 2.6)


def diameters(model: Model) -> tuple[float, ...]:
    """A marker's diameter for each kernel: its area by its share of the time, all alike where there are no shares."""
    shares = [one.share for one in model.kernels]
    known = [one for one in shares if one]
    crowd = len(shares) > CROWD
    if not known or len(known) * 2 < len(shares):
        return tuple(_ALIKE * (2 / 3 if crowd else 1) for _ in shares)
    top, largest = max(known), LARGEST / 2 if crowd else LARGEST
    found = []
    for share in shares:
        wide = math.sqrt(SMALLEST**2 + (largest**2 - SMALLEST**2) * (share or 0.0) / top)
        step = round((wide - SMALLEST) / (largest - SMALLEST) * STEPS)
        found.append(SMALLEST + (largest - SMALLEST) * step / STEPS)
    return tuple(found)


def footer(left: Sequence[Left], wide: float) -> tuple[str, ...]:
    """What is listed and not drawn, a kind at a time, the first few by name."""
    kinds: dict[str, list[Left]] = {}
    for one in left:
        kinds.setdefault(one.kind, []).append(one)
    lines: list[str] = []
    for kind, group in kinds.items():
        told = "; ".join(f"{one.name if len(one.name) < 40 else one.name[:39] + '…'} ({one.why})" for one in group[:3])
        rest = f"; and {len(group) - 3} more" if len(group) > 3 else ""
        lines += wrapped(f"Listed, not drawn: {kind}, {len(group)}: {told}{rest}", wide, SMALL, 2, "    ")
    return tuple(lines)


def arrange(model: Model, legend: Sequence[Entry], size: Size = WIDE) -> Layout:
    """The drawing of a model."""
    unit = unit_of([one.flops_s for one in model.ceilings] or [one.rate for one in model.kernels] or [1e10])
    wide = size.width - 32
    title = wrapped(model.title, wide / 1.1, TITLE, 3)  # bold
    subtitle = wrapped(model.subtitle, wide, TEXT, 3)
    below = footer(model.left, wide)
    legend_w = max((30 + text_width(one.text, SMALL) for one in legend), default=0.0) + 10
    legend_h = LEGEND_LINE * len(legend) + 8 if legend else 0.0
    top = 16 + 16 * len(title) + 13 * len(subtitle)
    frame = Box(62, top, size.width - 62 - 18, max(size.height - top - 46, 240))
    bottom = frame.y + frame.h
    height = bottom + 46 + 12 * len(below) + (0 if size.inside else legend_h + 6)
    box = Box(frame.x, bottom + 44, legend_w, legend_h)
    if size.inside:
        box = Box(frame.x + frame.w - legend_w - 8, bottom - legend_h - 8, legend_w, legend_h)
    plane = _headroom(model, Plane(frame, *domain(model)))
    if size.inside:
        plane = _headroom(model, _clear(model, plane, box))
    sizes = diameters(model)
    tags, levels, flat = (
        limits.tags(model, plane, unit, sizes),
        limits.levels(model, plane, sizes),
        limits.compute_bound(model, plane),
    )
    taken = [one.box for one in tags] + ([box] if size.inside and legend else [])
    slopes, along = limits.slopes(model, plane, sizes, taken)
    taken += [*along, *([flat[1]] if flat else []), *(one.box for one in levels)]
    labels = placed(model, plane, sizes, taken)
    return Layout(
        size=Size(size.width, height, size.inside),
        plane=plane,
        unit=unit,
        diameters=sizes,
        labels=labels,
        legend=tuple(legend),
        legend_box=box,
        slopes=slopes,
        tags=tags,
        levels=levels,
        flat=flat,
        title=title or ("Roofline",),
        subtitle=subtitle,
        footer=below,
        arrows=frozenset(label.kernel for label in labels),
    )


def _headroom(model: Model, plane: Plane) -> Plane:
    """With room for two lines of words over the highest ceiling, however many decades there are."""
    top = max((one.flops_s for one in model.ceilings), default=None)
    if top is None:
        return plane
    part = 40 / plane.frame.h
    need = (math.log10(top) - part * math.log10(plane.y[0])) / (1 - part)
    return Plane(plane.frame, plane.x, (plane.y[0], max(plane.y[1], 10**need)))


def _clear(model: Model, plane: Plane, box: Box) -> Plane:
    """With lower rates at its lower edge, until no point is under the legend."""
    room = box.grown(12)
    for _ in range(40):
        if not any(room.hits(plane.disc(x, one.rate, 0.01)) for one in model.kernels for _, x in one.spots):
            break
        plane = Plane(plane.frame, plane.x, (plane.y[0] / 1.4, plane.y[1]))
    return plane
