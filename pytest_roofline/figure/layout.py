"""Where things stand on paper: the frame, the domain of the axes, labels that collide with nothing.

All in pixels of the drawing, from its upper left corner; nothing here knows the library that draws.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roofline_engine.units import quantity

from .model import Bandwidth, Ceiling, Kernel, Left, Model

#: Labels of so many kernels at most; the others tell themselves on picking.
LABELLED = 40
#: A label that would cross this much of the drawing is left out: a roof costs 20, a leader through a label 15.
TANGLED = 45.0
#: With more kernels a label says its percent in short.
TERSE = 12
TEXT, SMALL, LINE = 9.0, 8.0, 10.0
#: Marker diameters in pixels, by share of the time: areas grow with it, in steps that keep the drawing small.
SMALLEST, LARGEST, STEPS = 7.0, 22.0, 8
_GAP = 3.0
#: Points that words keep clear of; where there are more, there is no clear place.
_NEAR = 400
UNITS = ((1e15, "PFLOP/s"), (1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"), (1.0, "FLOP/s"))


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle."""

    x: float
    y: float
    w: float
    h: float

    def hits(self, other: Box) -> bool:
        return (
            self.x < other.x + other.w
            and other.x < self.x + self.w
            and self.y < other.y + other.h
            and other.y < self.y + self.h
        )

    def inside(self, other: Box) -> bool:
        return (
            self.x >= other.x
            and self.y >= other.y
            and self.x + self.w <= other.x + other.w
            and self.y + self.h <= other.y + other.h
        )

    def grown(self, by: float) -> Box:
        return Box(self.x - by, self.y - by, self.w + 2 * by, self.h + 2 * by)


@dataclass(frozen=True, slots=True)
class Size:
    """A drawing's outline. legend: columns of its legend and where it stands, inside the frame or under it."""

    width: float
    height: float
    inside: bool = True


WIDE = Size(960, 600)
NARROW = Size(390, 560, inside=False)


@dataclass(frozen=True, slots=True)
class Label:
    """A label's text and box, and where it points when it does not stand beside its marker."""

    kernel: int
    lines: tuple[str, ...]
    box: Box
    leader: tuple[tuple[float, float], tuple[float, float]] | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the legend. kind: line or marker; shape: a dash pattern's name or a marker's."""

    kind: str
    text: str
    colour: str
    shape: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One drawing of a model at one size."""

    size: Size
    frame: Box
    x: tuple[float, float]
    y: tuple[float, float]
    unit: tuple[float, str]
    diameters: tuple[float, ...]
    labels: tuple[Label, ...]
    legend: tuple[Entry, ...]
    legend_box: Box
    slopes: tuple[tuple[Bandwidth, str, float, float, float], ...]
    tags: tuple[tuple[Ceiling, str, Box], ...]
    flat: tuple[str, float, float] | None
    title: tuple[str, ...]
    subtitle: tuple[str, ...]
    footer: tuple[str, ...]

    def px(self, intensity: float) -> float:
        return _px(self.frame, self.x, intensity)

    def py(self, rate: float) -> float:
        return _py(self.frame, self.y, rate)

    @property
    def arrows(self) -> frozenset[int]:
        """Kernels that carry the way to their roof: those whose label says how far it is."""
        return frozenset(label.kernel for label in self.labels)


def _px(frame: Box, domain: tuple[float, float], value: float) -> float:
    low, high = (math.log10(end) for end in domain)
    return frame.x + (math.log10(value) - low) / (high - low) * frame.w


def _py(frame: Box, domain: tuple[float, float], value: float) -> float:
    low, high = (math.log10(end) for end in domain)
    return frame.y + (high - math.log10(value)) / (high - low) * frame.h


#: Advance widths in em, of DejaVu Sans, the widest of the sans-serif fonts that stand in for Helvetica: a label is never wider
#: than its box.
_WIDTHS = {
    **dict.fromkeys("ijl'|", 0.34),
    **dict.fromkeys(" .,:;!/", 0.34),
    **dict.fromkeys("tfr()[]-I", 0.42),
    **dict.fromkeys("csxzkvy_J", 0.6),
    **dict.fromkeys("mwMW@%…", 1.0),
}


def text_width(text: str, size: float = TEXT) -> float:
    """Pixels that a line takes at most."""
    total = 0.0
    for letter in text:
        if letter in _WIDTHS:
            total += _WIDTHS[letter]
        else:
            total += (0.79 if letter.isupper() else 0.64 if letter != "=" else 0.84) if letter.isascii() else 1.0
    return total * size


def unit_of(rates: Iterable[float]) -> tuple[float, str]:
    """The unit in which the highest rate has two to four digits before the point, as 1840 GFLOP/s has."""
    top = max(rates)
    return next((unit for unit in UNITS if top >= 10 * unit[0]), UNITS[-1])


def domain(model: Model) -> tuple[tuple[float, float], tuple[float, float]]:
    """Intensities and rates from edge to edge: every point, every ridge, and a bit of each limit beyond them."""
    xs = [x for one in model.kernels for _, x in one.spots]
    ys = [one.rate for one in model.kernels]
    for one in model.kernels:
        for end in (*(one.span or ()), *([one.before] if one.before else [])):
            xs.append(end[0])
            ys.append(end[1])
    tops = [one.flops_s for one in model.ceilings]
    corners = [x for x, _ in model.ridges]
    if not xs and not corners:
        wide = model.main
        xs = [0.1, 10.0]
        ys = [x * wide.bytes_s for x in xs] if wide else tops or [1e9, 1e11]
    if not tops and model.bandwidths:
        tops = [max(xs) * one.bytes_s for one in model.bandwidths]
    low_x, high_x = min([*xs, *corners]) / 3.5, max([*xs, *corners]) * 4.5
    if not ys:
        ys = [min(tops) / 10]
    if corners and model.bandwidths:  # the slope has to be seen: a decade of it under the lowest ridge
        low_x = min(low_x, min(corners) / 10)
        ys = [*ys, min(one.flops_s for one in model.ceilings) / 10]
    low_y, high_y = min(ys) / 2.5, max([*ys, *tops]) * 2.6
    return (low_x, high_x), (low_y, high_y)


def diameters(model: Model) -> tuple[float, ...]:
    """A marker's diameter for each kernel: its area by its share of the time, all alike where there are no shares."""
    shares = [one.share for one in model.kernels]
    known = [one for one in shares if one]
    if not known or len(known) * 2 < len(shares):
        size = 9.0 if len(shares) <= 400 else 6.0
        return tuple(size for _ in shares)
    top, largest = max(known), LARGEST if len(shares) <= 400 else LARGEST / 2
    found = []
    for share in shares:
        wide = math.sqrt(SMALLEST**2 + (largest**2 - SMALLEST**2) * (share or 0.0) / top)
        step = round((wide - SMALLEST) / (largest - SMALLEST) * STEPS)
        found.append(SMALLEST + (largest - SMALLEST) * step / STEPS)
    return tuple(found)


def footer(left: Sequence[Left], notes: Sequence[str], wide: float, most: int = 5) -> tuple[str, ...]:
    """What is listed and not drawn, a kind a line."""
    kinds: dict[str, list[Left]] = {}
    for one in left:
        kinds.setdefault(one.kind, []).append(one)
    lines = []
    room = int(wide / (0.5 * SMALL))
    for kind, group in kinds.items():
        told = "; ".join(f"{one.name if len(one.name) < 40 else one.name[:39] + '…'} ({one.why})" for one in group[:3])
        rest = f"; and {len(group) - 3} more" if len(group) > 3 else ""
        head = f"Listed, not drawn: {kind}, {len(group)}: "
        lines += textwrap.wrap(head + told + rest, room, subsequent_indent="    ", max_lines=2, placeholder=" …")
    return tuple(lines[: most * 2])


def arrange(model: Model, legend: Sequence[Entry], size: Size = WIDE) -> Layout:
    """The drawing of a model."""
    unit = unit_of([one.flops_s for one in model.ceilings] or [one.rate for one in model.kernels] or [1e10])
    wide = size.width - 32
    title = tuple(textwrap.wrap(model.title, int(wide / (0.56 * 12.5)), max_lines=3, placeholder=" …")) or ("Roofline",)
    subtitle = tuple(textwrap.wrap(model.subtitle, int(wide / (0.5 * TEXT)), max_lines=3, placeholder=" …"))
    below = footer(model.left, model.notes, wide)
    top = 16 + 16 * len(title) + 13 * len(subtitle)
    legend_w = max((30 + text_width(one.text, SMALL) for one in legend), default=0.0) + 10
    legend_h = 13 * len(legend) + 8 if legend else 0.0
    under = 46 + 12 * len(below) + (legend_h + 6 if not size.inside else 0)
    frame = Box(62, top, size.width - 62 - 18, max(size.height - top - 46, 240))
    size = Size(size.width, frame.y + frame.h + under, size.inside)
    x, y = domain(model)
    y = _headroom(model, frame, y)
    if size.inside:
        box = Box(frame.x + frame.w - legend_w - 8, frame.y + frame.h - legend_h - 8, legend_w, legend_h)
        y = _headroom(model, frame, _clear(model, frame, x, y, box))
    else:
        box = Box(frame.x, frame.y + frame.h + 44, legend_w, legend_h)
    sizes = diameters(model)
    inner = frame.grown(-2)
    tags = _tags(model, frame, y, unit)
    keep = [tag for _, _, tag in tags] + ([box] if size.inside and legend else [])
    slopes, flat, taken = _limits(model, frame, x, y, keep)
    labels = _labels(model, frame, x, y, sizes, inner, [*taken, *keep])
    return Layout(
        size=size,
        frame=frame,
        x=x,
        y=y,
        unit=unit,
        diameters=sizes,
        labels=labels,
        legend=tuple(legend),
        legend_box=box,
        slopes=slopes,
        tags=tags,
        flat=flat,
        title=title,
        subtitle=subtitle,
        footer=below,
    )


def _headroom(model: Model, frame: Box, y: tuple[float, float]) -> tuple[float, float]:
    """The rates' domain with room for two lines of words over the highest ceiling, however many decades there are."""
    top = max((one.flops_s for one in model.ceilings), default=None)
    if top is None:
        return y
    part = 40 / frame.h
    need = (math.log10(top) - part * math.log10(y[0])) / (1 - part)
    return y[0], max(y[1], 10**need)


def _clear(model: Model, frame: Box, x: tuple[float, float], y: tuple[float, float], box: Box) -> tuple[float, float]:
    """The rates' domain, longer at its lower end until no point is under the legend."""
    for _ in range(40):
        hidden = any(
            box.grown(12).hits(Box(_px(frame, x, spot[1]), _py(frame, y, one.rate), 0.01, 0.01))
            for one in model.kernels
            for spot in one.spots
        )
        if not hidden:
            break
        y = y[0] / 1.4, y[1]
    return y


def _limits(
    model: Model,
    frame: Box,
    x: tuple[float, float],
    y: tuple[float, float],
    taken: Sequence[Box],
) -> tuple[tuple[tuple[Bandwidth, str, float, float, float], ...], tuple[str, float, float] | None, list[Box]]:
    """The words along the slopes and over the roof, with their boxes."""
    decade_x = frame.w / math.log10(x[1] / x[0])
    decade_y = frame.h / math.log10(y[1] / y[0])
    angle = math.atan2(decade_y, decade_x)
    words = []
    boxes: list[Box] = []
    main = model.main
    spots = [(spot[1], one.rate) for one in model.kernels[:_NEAR] for spot in one.spots]
    points = [Box(_px(frame, x, at), _py(frame, y, rate), 0.01, 0.01) for at, rate in (*spots, *model.ridges)]
    lines = _segments(model, frame, x, y)
    for one in model.bandwidths:
        text = slope_words(one, main)
        start, end = slope_ends(model, one, x, y)
        if end <= start:
            continue
        wide = text_width(text, SMALL)
        ax, ay = _px(frame, x, start), _py(frame, y, start * one.bytes_s)
        bx, by = _px(frame, x, end), _py(frame, y, end * one.bytes_s)
        length = math.hypot(bx - ax, by - ay)
        if length < wide + 12:
            continue
        best = None
        places = [
            (part, lift) for lift in (5.0, -5.0 - 0.75 * SMALL) for part in (0.12, 0.25, 0.38, 0.5, 0.62, 0.75, 0.88, 0.0, 1.0)
        ]
        for part, lift in places:
            along = 6 + part * (length - wide - 12)
            sx = ax + along * math.cos(angle) - lift * math.sin(angle)
            sy = ay - along * math.sin(angle) - lift * math.cos(angle)
            mine = _along(sx, sy, angle, wide, SMALL)
            if not all(box.inside(frame) for box in mine):
                continue
            cost = 4 * sum(box.hits(point) for box in (one.grown(6) for one in mine) for point in points)
            cost += 5 * sum(box.hits(other) for box in mine for other in (*taken, *boxes))
            cost += 3 * sum(_crosses(box, line) for box in mine for line in lines)
            if best is None or cost < best[0]:
                best = (cost, sx, sy, mine)
        if best is None:
            continue
        words.append((one, text, best[1], best[2], math.degrees(angle)))
        boxes += best[3]
    flat = None
    if model.ceilings and main:
        top = max(one.flops_s for one in model.ceilings)
        corner = top / main.bytes_s
        text = "compute bound"
        wide = text_width(text, TEXT)
        left = max(_px(frame, x, max(corner, x[0])) + 10, frame.x + 6)
        right = frame.x + frame.w - 8
        if right - left >= wide:
            at = right - wide
            flat = (text, at, _py(frame, y, top) - 17)
            boxes.append(Box(at, flat[2] - TEXT, wide, TEXT + 3))
    if len(model.levels) > 1:
        for kernel, size in zip(model.kernels[:12], diameters(model)):
            boxes += [box for _, _, box in level_tags(kernel, size, frame, x, y)]
    return tuple(words), flat, boxes


def ceiling_words(one: Ceiling, unit: tuple[float, str]) -> str:
    """A ceiling's name and figure, in the unit of the axis."""
    return f"{one.name}: {one.flops_s / unit[0]:.4g} {unit[1]}"


def slope_words(one: Bandwidth, main: Bandwidth | None) -> str:
    """As the specification's figure says it, for each level of memory."""
    figure = quantity(one.bytes_s, "B/s")
    if one == main:
        told = f" ({one.name})" if one.name not in (figure, one.level) or one.basis != "given" else ""
        return f"memory bound, slope 1 = {figure}{told}"
    return f"{one.name} = {figure}"


def slope_ends(model: Model, one: Bandwidth, x: tuple[float, float], y: tuple[float, float]) -> tuple[float, float]:
    """Intensities between which a bandwidth is drawn: from the edge to the highest ceiling, or to the other edge."""
    top = max((ceiling.flops_s for ceiling in model.ceilings), default=y[1])
    return max(x[0], y[0] / one.bytes_s), min(x[1], min(top, y[1]) / one.bytes_s)


def _tags(model: Model, frame: Box, y: tuple[float, float], unit: tuple[float, str]) -> tuple[tuple[Ceiling, str, Box], ...]:
    """Each ceiling's words at the right end of its line: over it, under it where the one above is near, else further left."""
    found: list[tuple[Ceiling, str, Box]] = []
    for one in sorted(model.ceilings, key=lambda one: (-one.flops_s, one.name)):
        words = ceiling_words(one, unit)
        wide, at = text_width(words, SMALL), _py(frame, y, one.flops_s)
        right = frame.x + frame.w - 6
        over, under = Box(right - wide, at - 12, wide, 11), Box(right - wide, at + 1, wide, 11)
        taken = [box for _, _, box in found]
        box = next((box for box in (over, under) if not any(box.hits(other) for other in taken)), over)
        while any(box.hits(other) for other in taken) and box.x > frame.x + wide:
            box = Box(box.x - 12, box.y, wide, box.h)
        found.append((one, words, box))
    return tuple(found)


def level_tags(
    kernel: Kernel, size: float, frame: Box, x: tuple[float, float], y: tuple[float, float]
) -> list[tuple[str, float, Box]]:
    """The names of the levels under a kernel's points, over them where two would collide: text, middle, box."""
    found: list[tuple[str, float, Box]] = []
    middle = _py(frame, y, kernel.rate)
    for level, intensity in sorted(kernel.spots, key=lambda spot: spot[1]):
        at, wide = _px(frame, x, intensity), text_width(level.upper(), 7.0)
        box = Box(at - wide / 2, middle + size / 2 + 1, wide, 9)
        if any(box.hits(other) for _, _, other in found):
            box = Box(box.x, middle - size / 2 - 10, wide, 9)
        found.append((level.upper(), at, box))
    return found


def _along(x: float, y: float, angle: float, wide: float, high: float) -> list[Box]:
    """Boxes that cover a line of text at an angle, letter by letter or so."""
    parts = max(1, math.ceil(wide / 14))
    step = wide / parts
    found = []
    for part in range(parts):
        ax, ay = x + part * step * math.cos(angle), y - part * step * math.sin(angle)
        bx, by = ax + step * math.cos(angle), ay - step * math.sin(angle)
        ox, oy = -high * math.sin(angle), -high * math.cos(angle)
        xs, ys = (ax, bx, ax + ox, bx + ox), (ay, by, ay + oy, by + oy)
        found.append(Box(min(xs), min(ys), max(xs) - min(xs), max(ys) - min(ys)))
    return found


def _labels(
    model: Model,
    frame: Box,
    x: tuple[float, float],
    y: tuple[float, float],
    sizes: Sequence[float],
    inner: Box,
    taken: Sequence[Box],
) -> tuple[Label, ...]:
    """Labels of the largest, each beside its marker where there is room, farther with a leader where there is not.

    A label that has no free place near is left out rather than laid over another.
    """
    most = LABELLED if frame.w > 600 else LABELLED // 3
    order = sorted(range(len(model.kernels)), key=lambda at: (-(model.kernels[at].share or 0.0), _least(model.kernels[at]), at))
    discs = [
        Box(_px(frame, x, spot[1]) - size / 2, _py(frame, y, one.rate) - size / 2, size, size)
        for one, size in zip(model.kernels, sizes)
        for spot in one.spots
    ]
    for one in model.kernels[:_NEAR]:
        for end in (*(one.span or ()), *([one.before] if one.before else [])):
            discs.append(Box(_px(frame, x, end[0]) - 4, _py(frame, y, end[1]) - 4, 8, 8))
    near = discs if len(discs) <= _NEAR else [discs[at] for at in order[:_NEAR] if at < len(discs)]
    roofs = _segments(model, frame, x, y)
    stems = {at: _stem(model.kernels[at], frame, x, y) for at in order[:most]}
    placed: list[Label] = []
    blocked = list(taken)
    for at in order[:most]:
        one = model.kernels[at]
        lines = one.label(len(model.kernels) > TERSE)
        wide = max(text_width(line, SMALL) for line in lines)
        high = LINE * len(lines)
        cx, cy = _px(frame, x, one.spots[0][1]), _py(frame, y, one.rate)
        best: tuple[float, Box, bool] | None = None
        for rank, (box, far) in enumerate(_candidates(cx, cy, sizes[at] / 2 + _GAP, wide, high)):
            if not box.inside(inner) or any(box.hits(other) for other in blocked) or any(box.hits(disc) for disc in near):
                continue
            cost = 0.6 * rank + 20 * sum(_crosses(box, segment) for segment in roofs)
            cost += 6 * sum(_crosses(box, stem) for key, stem in stems.items() if stem is not None and key != at)
            own = stems[at]
            cost += 10 * (own is not None and _crosses(box, own))
            if far:
                leader = ((cx, cy), _nearest(box, cx, cy))
                cost += 15 * sum(_crosses(other, leader) for other in blocked)
            if best is None or cost < best[0]:
                best = (cost, box, far)
        if best is None or best[0] > TANGLED:
            continue
        _, box, far = best
        placed.append(Label(at, lines, box, ((cx, cy), _nearest(box, cx, cy)) if far else None))
        blocked.append(box.grown(1.0))
    return tuple(placed)


def _least(kernel: Kernel) -> float:
    return kernel.fraction if kernel.fraction is not None else 2.0


def _candidates(cx: float, cy: float, off: float, wide: float, high: float) -> list[tuple[Box, bool]]:
    found = []
    for far in (0.0, 10.0, 24.0, 42.0, 64.0, 90.0):
        r = off + far
        d = r * 0.75
        found += [
            (Box(cx + r, cy - high / 2, wide, high), far > 0),
            (Box(cx + d, cy + d - 2, wide, high), far > 0),
            (Box(cx + d, cy - d - high + 2, wide, high), far > 0),
            (Box(cx - r - wide, cy - high / 2, wide, high), far > 0),
            (Box(cx - d - wide, cy + d - 2, wide, high), far > 0),
            (Box(cx - d - wide, cy - d - high + 2, wide, high), far > 0),
            (Box(cx - wide / 2, cy + r, wide, high), far > 0),
            (Box(cx - wide / 2, cy - r - high, wide, high), far > 0),
        ]
    return found


_Segment = tuple[tuple[float, float], tuple[float, float]]


def _segments(model: Model, frame: Box, x: tuple[float, float], y: tuple[float, float]) -> list[_Segment]:
    found: list[_Segment] = []
    for one in model.bandwidths:
        start, end = slope_ends(model, one, x, y)
        if start < end:
            found.append(
                (
                    (_px(frame, x, start), _py(frame, y, start * one.bytes_s)),
                    (_px(frame, x, end), _py(frame, y, end * one.bytes_s)),
                )
            )
    for ceiling in model.ceilings:
        start = ceiling_start(model, ceiling.flops_s, x)
        found.append(
            ((_px(frame, x, start), _py(frame, y, ceiling.flops_s)), (frame.x + frame.w, _py(frame, y, ceiling.flops_s)))
        )
    return found


def ceiling_start(model: Model, flops_s: float, x: tuple[float, float]) -> float:
    """The intensity from which a ceiling can be reached at all: its ridge with the fastest memory."""
    fastest = max((one.bytes_s for one in model.bandwidths), default=None)
    return min(max(x[0], flops_s / fastest), x[1]) if fastest else x[0]


def _stem(kernel: Kernel, frame: Box, x: tuple[float, float], y: tuple[float, float]) -> _Segment | None:
    """The arrow from a kernel up to its roof."""
    if kernel.roof is None or not kernel.far:
        return None
    at = _px(frame, x, kernel.intensity)
    return (at, _py(frame, y, kernel.rate)), (at, _py(frame, y, kernel.roof))


def _nearest(box: Box, x: float, y: float) -> tuple[float, float]:
    return min(max(x, box.x), box.x + box.w), min(max(y, box.y), box.y + box.h)


def _crosses(box: Box, segment: _Segment) -> bool:
    """Whether a line touches a box: cut it by the box's four sides (Liang and Barsky, 1984)."""
    (ax, ay), (bx, by) = segment
    dx, dy = bx - ax, by - ay
    low, high = 0.0, 1.0
    for p, q in ((-dx, ax - box.x), (dx, box.x + box.w - ax), (-dy, ay - box.y), (dy, box.y + box.h - ay)):
        if p == 0:
            if q < 0:
                return False
        elif p < 0:
            low = max(low, q / p)
        else:
            high = min(high, q / p)
        if low > high:
            return False
    return True
