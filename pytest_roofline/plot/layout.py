"""Place one drawing of a chart: its frame, the domain of its axes, and every line, marker and label on it."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from roofline_engine.units import quantity

from .model import Bandwidth, Ceiling, Chart, Excluded, Kernel

TEXT, SMALL, LINE = 9.0, 8.0, 10.0

Segment = tuple[tuple[float, float], tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle."""

    x: float
    y: float
    w: float
    h: float

    def hits(self, other: Box) -> bool:
        across = self.x < other.x + other.w and other.x < self.x + self.w
        return across and self.y < other.y + other.h and other.y < self.y + self.h

    def inside(self, other: Box) -> bool:
        across = self.x >= other.x and self.x + self.w <= other.x + other.w
        return across and self.y >= other.y and self.y + self.h <= other.y + other.h

    def grown(self, by: float) -> Box:
        return Box(self.x - by, self.y - by, self.w + 2 * by, self.h + 2 * by)

    def nearest(self, x: float, y: float) -> tuple[float, float]:
        """The place in it that is nearest to another."""
        return min(max(x, self.x), self.x + self.w), min(max(y, self.y), self.y + self.h)

    def crossed(self, line: Segment) -> bool:
        """Whether a line touches it: cut by its four sides (Liang and Barsky, ACM TOG 3(1), 1984)."""
        (ax, ay), (bx, by) = line
        dx, dy = bx - ax, by - ay
        low, high = 0.0, 1.0
        for p, q in ((-dx, ax - self.x), (dx, self.x + self.w - ax), (-dy, ay - self.y), (dy, self.y + self.h - ay)):
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


@dataclass(frozen=True, slots=True)
class Plane:
    """A frame with logarithmic axes. x: intensities from edge to edge; y: rates."""

    frame: Box
    x: tuple[float, float]
    y: tuple[float, float]

    def px(self, intensity: float) -> float:
        return self.frame.x + math.log10(intensity / self.x[0]) / math.log10(self.x[1] / self.x[0]) * self.frame.w

    def py(self, rate: float) -> float:
        return self.frame.y + math.log10(self.y[1] / rate) / math.log10(self.y[1] / self.y[0]) * self.frame.h

    def back_x(self, px: float) -> float:
        """The intensity at a pixel."""
        return float(self.x[0] * (self.x[1] / self.x[0]) ** ((px - self.frame.x) / self.frame.w))

    def back_y(self, py: float) -> float:
        """The rate at a pixel."""
        return float(self.y[1] * (self.y[0] / self.y[1]) ** ((py - self.frame.y) / self.frame.h))

    def at(self, intensity: float, rate: float) -> tuple[float, float]:
        return self.px(intensity), self.py(rate)

    def disc(self, intensity: float, rate: float, wide: float) -> Box:
        """The box of a marker."""
        return Box(self.px(intensity) - wide / 2, self.py(rate) - wide / 2, wide, wide)

    @property
    def angle(self) -> float:
        """Of a line of slope one, in radians."""
        decade_x = self.frame.w / math.log10(self.x[1] / self.x[0])
        return math.atan2(self.frame.h / math.log10(self.y[1] / self.y[0]), decade_x)


#: Advance widths in em, of DejaVu Sans, the widest of the sans-serif fonts that stand in for Helvetica: a label is never wider
#: than its box.
_WIDTHS = {
    **dict.fromkeys("ijl'| .,:;!/", 0.34),
    **dict.fromkeys("tfr()[]-I", 0.42),
    **dict.fromkeys("csxzkvy_J", 0.6),
    "=": 0.84,
    **dict.fromkeys("mwMW@%…", 1.0),
}
_CAPITAL, _LETTER, _OTHER = 0.79, 0.64, 1.0


def text_width(text: str, size: float = TEXT) -> float:
    """Pixels that a line takes at most."""
    total = 0.0
    for letter in text if text.isascii() else (one for one in text if not unicodedata.combining(one)):
        usual = (_CAPITAL if letter.isupper() else _LETTER) if letter.isascii() else _OTHER
        total += _WIDTHS.get(letter, usual)
    return total * size


def wrap_text(text: str, wide: float, size: float, most: int, indent: str = "") -> tuple[str, ...]:
    """Lines of at most ``wide`` pixels, ``most`` of them; what is cut off ends in an ellipsis."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        longer = f"{line} {word}" if line.strip() else line + word
        if text_width(longer, size) <= wide:
            line = longer
            continue
        lines.append(line)
        line = indent + word
        if len(lines) == most:
            return (*lines[:-1], _truncate(f"{lines[-1]} …", wide, size))
    return tuple(_truncate(one, wide, size) for one in (*lines, line) if one.strip())


def _truncate(line: str, wide: float, size: float) -> str:
    while text_width(line, size) > wide and len(line) > 2:
        line = line.rstrip("…").rstrip()[:-1] + "…"
    return line


def bounding_box(boxes: Sequence[Box]) -> Box:
    """The smallest box that holds others."""
    x, y = min(one.x for one in boxes), min(one.y for one in boxes)
    return Box(x, y, max(one.x + one.w for one in boxes) - x, max(one.y + one.h for one in boxes) - y)


def text_boxes(x: float, y: float, angle: float, wide: float, high: float) -> list[Box]:
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


#: Points that words keep clear of; where there are more, there is no clear place.
NEAR = 400
#: Kernels whose points say their level of memory.
_TAGGED = 12
#: Places text_boxes a slope where its words may stand, as parts of what is free; over the line, else under it.
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


def slope_ends(chart: Chart, one: Bandwidth, plane: Plane) -> tuple[float, float]:
    """Intensities between which a bandwidth is drawn: from the edge to the highest ceiling, or to the other edge."""
    top = max((ceiling.flops_s for ceiling in chart.ceilings), default=plane.y[1])
    return max(plane.x[0], plane.y[0] / one.bytes_s), min(plane.x[1], min(top, plane.y[1]) / one.bytes_s)


def ceiling_start(chart: Chart, flops_s: float, plane: Plane) -> float:
    """The intensity from which a ceiling can be reached at all: its ridge with the fastest memory."""
    fastest = max((one.bytes_s for one in chart.bandwidths), default=None)
    return min(max(plane.x[0], flops_s / fastest), plane.x[1]) if fastest else plane.x[0]


def roof_lines(chart: Chart, plane: Plane) -> list[Segment]:
    """Every limit as it is drawn."""
    found: list[Segment] = []
    for one in chart.bandwidths:
        start, end = slope_ends(chart, one, plane)
        if start < end:
            found.append((plane.at(start, start * one.bytes_s), plane.at(end, end * one.bytes_s)))
    for top in chart.ceilings:
        start = ceiling_start(chart, top.flops_s, plane)
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


def _markers(chart: Chart, plane: Plane, sizes: Sequence[float]) -> list[Box]:
    """The markers that words keep clear of."""
    return [plane.disc(x, one.rate, size) for one, size in zip(chart.kernels[:NEAR], sizes) for _, x in one.spots]


def place_tags(chart: Chart, plane: Plane, unit: tuple[float, str], sizes: Sequence[float]) -> tuple[Tag, ...]:
    """Each ceiling's words at its line: at the right end, over it or under it, else as much further left as is free.

    They keep clear of each other, and of points and slopes where there is such a place.
    """
    found: list[Tag] = []
    right = plane.frame.x + plane.frame.w - 6
    discs = _markers(chart, plane, sizes)
    rising = [line for line in roof_lines(chart, plane) if line[0][1] != line[1][1]]
    for one in sorted(chart.ceilings, key=lambda one: (-one.flops_s, one.name)):
        words = ceiling_words(one, unit)
        wide, at = text_width(words, SMALL), plane.py(one.flops_s)
        taken = [tag.box for tag in found]
        steps = range(max(1, int((right - wide - plane.frame.x - 4) // 12) + 1))
        places = [Box(right - wide - 12 * step, at + off, wide, 11) for step in steps for off in (-12, 1)]
        free = [box for box in places if not any(box.hits(other) for other in taken)]
        near = [disc for disc in discs if abs(disc.y + disc.h / 2 - at) < 12 + disc.h]
        start = plane.px(ceiling_start(chart, one.flops_s, plane))
        over = (box for box in free if box.x >= start and not any(box.crossed(line) for line in rising))
        clear = (box for box in over if not any(box.hits(disc) for disc in near))
        found.append(Tag(one, words, next(clear, free[0] if free else places[0])))
    return tuple(found)


def place_compute_bound(chart: Chart, plane: Plane) -> tuple[str, Box] | None:
    """The words over the roof right of the ridge, where there is room for them."""
    main = chart.main
    if not chart.ceilings or main is None:
        return None
    top = max(one.flops_s for one in chart.ceilings)
    words = "compute bound"
    wide = text_width(words, TEXT)
    left = max(plane.px(max(top / main.bytes_s, plane.x[0])) + 10, plane.frame.x + 6)
    right = plane.frame.x + plane.frame.w - 8
    if right - left < wide:
        return None
    return words, Box(right - wide, plane.py(top) - 17 - TEXT, wide, TEXT + 3)


def place_levels(chart: Chart, plane: Plane, sizes: Sequence[float]) -> tuple[Level, ...]:
    """The levels of memory under kernels' points, over them where two would collide, left out where there is no room."""
    if len(chart.levels) < 2:
        return ()
    found: list[Level] = []
    discs = _markers(chart, plane, sizes)
    for at, (one, size) in enumerate(zip(chart.kernels[:_TAGGED], sizes)):
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


def place_slopes(
    chart: Chart, plane: Plane, sizes: Sequence[float], taken: Sequence[Box]
) -> tuple[tuple[Slope, ...], list[Box]]:
    """The words text_boxes each bandwidth, at the place where they are in the way of least, and their boxes.

    Words that would be hard to read wherever they stood are left out, as the legend names the line; main memory's never are.
    """
    found: list[Slope] = []
    boxes: list[Box] = []
    points = _markers(chart, plane, sizes) + [plane.disc(x, rate, 4.0) for x, rate in chart.ridges]
    flat = [line for line in roof_lines(chart, plane) if line[0][1] == line[1][1]]
    for one in chart.bandwidths:
        words = slope_words(one, chart.main)
        wide = text_width(words, SMALL)
        start, end = slope_ends(chart, one, plane)
        if end <= start:
            continue
        x, y = plane.at(start, start * one.bytes_s)
        room = math.dist((x, y), plane.at(end, end * one.bytes_s)) - wide - 12
        best: tuple[float, float, float, list[Box]] | None = None
        for part, lift in ((part, lift) for lift in _LIFTS for part in _PARTS if room >= 0):
            shift, cos, sin = 6 + part * room, math.cos(plane.angle), math.sin(plane.angle)
            sx, sy = x + shift * cos - lift * sin, y - shift * sin - lift * cos
            mine = text_boxes(sx, sy, plane.angle, wide, SMALL)
            if not all(box.inside(plane.frame) for box in mine):
                continue
            reach = bounding_box(mine)
            near = [point for point in points if reach.hits(point)]
            cost = _OVER * sum(box.hits(point) for box in mine for point in near)
            cost += 5 * sum(box.hits(other) for box in mine for other in (*taken, *boxes))
            cost += 3 * sum(box.crossed(line) for box in mine for line in flat)
            cost += _THROUGH * _lines_through(chart, plane, one, (sx, sx + wide * cos), lift)
            if best is None or cost < best[0]:
                best = cost, sx, sy, mine
        if best is not None and (best[0] <= _UNREADABLE or one == chart.main):
            found.append(Slope(one, words, best[1], best[2], math.degrees(plane.angle)))
            boxes += best[3]
    return tuple(found), boxes


def _lines_through(chart: Chart, plane: Plane, one: Bandwidth, xs: tuple[float, float], lift: float) -> int:
    """How many bandwidths run through words that stand ``lift`` over the line of one; all are parallel."""
    count = 0
    for other in chart.bandwidths:
        start, end = slope_ends(chart, other, plane)
        over = (plane.py(one.bytes_s) - plane.py(other.bytes_s)) * math.cos(plane.angle)
        meets = start < end and plane.px(start) < xs[1] and xs[0] < plane.px(end)
        count += meets and lift - 2 <= over <= lift + 0.75 * SMALL
    return count


def stem(kernel: Kernel, plane: Plane) -> Segment | None:
    """The arrow from a kernel up to its roof, where the way is worth one."""
    if kernel.arrow_tip is None:
        return None
    return plane.at(kernel.intensity, kernel.rate), plane.at(kernel.intensity, kernel.arrow_tip)


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


def place_labels(chart: Chart, plane: Plane, sizes: Sequence[float], taken: Sequence[Box]) -> tuple[Label, ...]:
    """Labels of the largest kernels. sizes: of their markers. taken: boxes that are not free."""
    ranked = sorted(range(len(chart.kernels)), key=lambda at: _rank(chart.kernels[at], at))
    chosen = ranked[: LABELLED if plane.frame.w > _NARROW else LABELLED // 3]
    discs = list(_drawn_marks(chart, plane, sizes, ranked[:NEAR]))
    roofs = roof_lines(chart, plane)
    stems = {at: line for at in chosen if (line := stem(chart.kernels[at], plane)) is not None}
    inner = plane.frame.grown(-2)
    found: list[Label] = []
    blocked = list(taken)
    for at in chosen:
        one = chart.kernels[at]
        said = one.label(len(chart.kernels) > TERSE)
        wide, high = max(text_width(line, SMALL) for line in said), LINE * len(said)
        x, y = plane.at(one.intensity, one.rate)
        best: tuple[float, Box, Segment | None] | None = None
        candidates = list(_candidates(x, y, sizes[at] / 2 + _GAP, wide, high))
        reach = bounding_box([box for box, _ in candidates])
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


def _drawn_marks(chart: Chart, plane: Plane, sizes: Sequence[float], order: Sequence[int]) -> Iterator[Box]:
    """What is drawn of kernels: their points, the ends of their ranges, where they stood before."""
    for at in order:
        one = chart.kernels[at]
        for _, x in one.spots:
            yield plane.disc(x, one.rate, sizes[at])
        for x, rate in (*(one.range_ends or ()), *([one.before] if one.before else [])):
            yield plane.disc(x, rate, 8.0)


def _candidates(x: float, y: float, off: float, wide: float, high: float) -> Iterator[tuple[Box, bool]]:
    """Places of a label bounding_box its marker, the nearest first; whether they need a leader."""
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
    """One line of the legend. kind: line, color or shape; shape: a dash or a marker, in plotpress' letters."""

    kind: str
    text: str
    color: str
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


def domain(chart: Chart) -> tuple[tuple[float, float], tuple[float, float]]:
    """Intensities and rates from edge to edge: every point, every ridge, and a bit of each limit beyond them."""
    ends = [end for one in chart.kernels for end in (*(one.range_ends or ()), *([one.before] if one.before else []))]
    xs = [x for one in chart.kernels for _, x in one.spots] + [x for x, _ in ends]
    ys = [one.rate for one in chart.kernels] + [rate for _, rate in ends]
    tops = [one.flops_s for one in chart.ceilings]
    corners = [x for x, _ in chart.ridges]
    if not xs and not corners:
        wide = chart.main
        xs = [0.1, 10.0]
        ys = [x * wide.bytes_s for x in xs] if wide else tops or [1e9, 1e11]
    if not tops and chart.bandwidths:
        tops = [max(xs) * one.bytes_s for one in chart.bandwidths]
    low_x, high_x = min([*xs, *corners]) / 3.5, max([*xs, *corners]) * 4.5
    if corners:  # the slope has to be seen: a decade of it under the lowest ridge
        low_x = min(low_x, min(corners) / 10)
        ys = [*ys, min(tops) / 10]
    return (low_x, high_x), (min(ys or [min(tops) / 10]) / 2.5, max([*ys, *tops]) * 2.6)


def diameters(chart: Chart) -> tuple[float, ...]:
    """A marker's diameter for each kernel: its area by its share of the time, all alike where there are no shares."""
    shares = [one.share for one in chart.kernels]
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


def footer(left: Sequence[Excluded], wide: float) -> tuple[str, ...]:
    """What is listed and not drawn, a kind at a time, the first few by name."""
    kinds: dict[str, list[Excluded]] = {}
    for one in left:
        kinds.setdefault(one.kind, []).append(one)
    lines: list[str] = []
    for kind, group in kinds.items():
        told = "; ".join(f"{one.name if len(one.name) < 40 else one.name[:39] + '…'} ({one.why})" for one in group[:3])
        rest = f"; and {len(group) - 3} more" if len(group) > 3 else ""
        lines += wrap_text(f"Listed, not drawn: {kind}, {len(group)}: {told}{rest}", wide, SMALL, 2, "    ")
    return tuple(lines)


def arrange(chart: Chart, legend: Sequence[Entry], size: Size = WIDE) -> Layout:
    """The drawing of a chart."""
    unit = unit_of([one.flops_s for one in chart.ceilings] or [one.rate for one in chart.kernels] or [1e10])
    wide = size.width - 32
    title = wrap_text(chart.title, wide / 1.1, TITLE, 3)  # bold
    subtitle = wrap_text(chart.subtitle, wide, TEXT, 3)
    below = footer(chart.excluded, wide)
    legend_w = max((30 + text_width(one.text, SMALL) for one in legend), default=0.0) + 10
    legend_h = LEGEND_LINE * len(legend) + 8 if legend else 0.0
    top = 16 + 16 * len(title) + 13 * len(subtitle)
    frame = Box(62, top, size.width - 62 - 18, max(size.height - top - 46, 240))
    bottom = frame.y + frame.h
    height = bottom + 46 + 12 * len(below) + (0 if size.inside else legend_h + 6)
    box = Box(frame.x, bottom + 44, legend_w, legend_h)
    if size.inside:
        box = Box(frame.x + frame.w - legend_w - 8, bottom - legend_h - 8, legend_w, legend_h)
    plane = _headroom(chart, Plane(frame, *domain(chart)))
    if size.inside:
        plane = _headroom(chart, _clear(chart, plane, box))
    sizes = diameters(chart)
    tags, levels, flat = (
        place_tags(chart, plane, unit, sizes),
        place_levels(chart, plane, sizes),
        place_compute_bound(chart, plane),
    )
    taken = [one.box for one in tags] + ([box] if size.inside and legend else [])
    slopes, text_boxes = place_slopes(chart, plane, sizes, taken)
    taken += [*text_boxes, *([flat[1]] if flat else []), *(one.box for one in levels)]
    labels = place_labels(chart, plane, sizes, taken)
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


def _headroom(chart: Chart, plane: Plane) -> Plane:
    """With room for two lines of words over the highest ceiling, however many decades there are."""
    top = max((one.flops_s for one in chart.ceilings), default=None)
    if top is None:
        return plane
    part = 40 / plane.frame.h
    need = (math.log10(top) - part * math.log10(plane.y[0])) / (1 - part)
    return Plane(plane.frame, plane.x, (plane.y[0], max(plane.y[1], 10**need)))


def _clear(chart: Chart, plane: Plane, box: Box) -> Plane:
    """With lower rates at its lower edge, until no point is under the legend."""
    room = box.grown(12)
    for _ in range(40):
        if not any(room.hits(plane.disc(x, one.rate, 0.01)) for one in chart.kernels for _, x in one.spots):
            break
        plane = Plane(plane.frame, plane.x, (plane.y[0] / 1.4, plane.y[1]))
    return plane
