"""Place one drawing of a chart: its frame, the domain of its axes, and every line, marker and label on it."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import NamedTuple

from roofline_engine.units import quantity

from .model import Bandwidth, Ceiling, Chart, Excluded, Kernel

#: Sizes of text and the height of a line of small text, in pixels: none is under 11.
TEXT, SMALL, LINE = 12.0, 11.0, 13.0

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
        """Return the point inside that is nearest to (x, y)."""
        return min(max(x, self.x), self.x + self.w), min(max(y, self.y), self.y + self.h)

    def crossed(self, line: Segment) -> bool:
        """Whether a line touches it, by clipping at its four sides (Liang and Barsky, ACM TOG 3(1), 1984)."""
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
    """A frame with logarithmic axes."""

    frame: Box
    x: tuple[float, float]  # intensities at the edges
    y: tuple[float, float]  # rates at the edges

    def px(self, intensity: float) -> float:
        return self.frame.x + math.log10(intensity / self.x[0]) / math.log10(self.x[1] / self.x[0]) * self.frame.w

    def py(self, rate: float) -> float:
        return self.frame.y + math.log10(self.y[1] / rate) / math.log10(self.y[1] / self.y[0]) * self.frame.h

    def back_x(self, px: float) -> float:
        """Return the intensity at a pixel."""
        return float(self.x[0] * (self.x[1] / self.x[0]) ** ((px - self.frame.x) / self.frame.w))

    def back_y(self, py: float) -> float:
        """Return the rate at a pixel."""
        return float(self.y[1] * (self.y[0] / self.y[1]) ** ((py - self.frame.y) / self.frame.h))

    def at(self, intensity: float, rate: float) -> tuple[float, float]:
        return self.px(intensity), self.py(rate)

    def disc(self, intensity: float, rate: float, wide: float) -> Box:
        """Return the box of a marker."""
        return Box(self.px(intensity) - wide / 2, self.py(rate) - wide / 2, wide, wide)

    @property
    def angle(self) -> float:
        """The angle of a line of slope one, in radians."""
        decade_x = self.frame.w / math.log10(self.x[1] / self.x[0])
        return math.atan2(self.frame.h / math.log10(self.y[1] / self.y[0]), decade_x)


#: Advance widths in em of DejaVu Sans, the widest of the sans-serif fonts that replace Helvetica, so that a label fits its box.
_WIDTHS = {
    **dict.fromkeys("ijl'| .,:;!/", 0.34),
    **dict.fromkeys("tfr()[]-I", 0.42),
    **dict.fromkeys("csxzkvy_J", 0.6),
    "=": 0.84,
    **dict.fromkeys("mwMW@%…", 1.0),
}
_CAPITAL, _LETTER, _OTHER = 0.79, 0.64, 1.0


def text_width(text: str, size: float = TEXT) -> float:
    """Return the most pixels that a line of text takes."""
    total = 0.0
    for letter in text if text.isascii() else (one for one in text if not unicodedata.combining(one)):
        usual = (_CAPITAL if letter.isupper() else _LETTER) if letter.isascii() else _OTHER
        total += _WIDTHS.get(letter, usual)
    return total * size


def wrap_text(text: str, wide: float, size: float, most: int, indent: str = "") -> tuple[str, ...]:
    """Break a text into at most ``most`` lines of ``wide`` pixels. A text that is cut ends in an ellipsis."""
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
    """Return the smallest box around others."""
    x, y = min(one.x for one in boxes), min(one.y for one in boxes)
    return Box(x, y, max(one.x + one.w for one in boxes) - x, max(one.y + one.h for one in boxes) - y)


def text_boxes(x: float, y: float, angle: float, wide: float, high: float) -> list[Box]:
    """Return boxes that cover a line of text at an angle, one for every letter or two."""
    parts = max(1, math.ceil(wide / 14))
    step = wide / parts
    boxes = []
    for part in range(parts):
        ax, ay = x + part * step * math.cos(angle), y - part * step * math.sin(angle)
        bx, by = ax + step * math.cos(angle), ay - step * math.sin(angle)
        ox, oy = -high * math.sin(angle), -high * math.cos(angle)
        xs, ys = (ax, bx, ax + ox, bx + ox), (ay, by, ay + oy, by + oy)
        boxes.append(Box(min(xs), min(ys), max(xs) - min(xs), max(ys) - min(ys)))
    return boxes


#: Most points that text avoids. With more points no place is clear.
NEAR = 400
#: Most kernels whose points name their memory level.
_TAGGED = 12
#: Positions for text along a slope, as fractions of the free length; above the line first, then below.
_PARTS = (0.12, 0.25, 0.38, 0.5, 0.62, 0.75, 0.88, 0.0, 1.0, 0.06, 0.18, 0.31, 0.44, 0.56, 0.69, 0.81, 0.94)
_LIFTS = (6.0, -6.0 - 0.75 * SMALL)
#: Cost of a letter over a point, of a line through the text, and the cost above which text is unreadable.
_OVER, _THROUGH, _UNREADABLE = 6.0, 16.0, 10.0


class Text(NamedTuple):
    """The text of a roof or of a memory level."""

    words: str
    x: float  # of its baseline, in pixels
    y: float
    box: Box
    align: str = "left"
    size: float = SMALL
    angle: float = 0.0  # degrees
    roof: Bandwidth | Ceiling | None = None  # gives its color
    kernel: int | None = None  # index in Chart.kernels, of a memory level
    level: str = ""


def slope_ends(chart: Chart, one: Bandwidth, plane: Plane) -> tuple[float, float]:
    """Return the intensities between which a bandwidth is drawn: from the edge to the highest ceiling or the other edge."""
    top = max((ceiling.flops_s for ceiling in chart.ceilings), default=plane.y[1])
    return max(plane.x[0], plane.y[0] / one.bytes_s), min(plane.x[1], min(top, plane.y[1]) / one.bytes_s)


def ceiling_start(chart: Chart, flops_s: float, plane: Plane) -> float:
    """Return the intensity from which a ceiling is attainable: its ridge with the fastest memory."""
    fastest = max((one.bytes_s for one in chart.bandwidths), default=None)
    return min(max(plane.x[0], flops_s / fastest), plane.x[1]) if fastest else plane.x[0]


def roof_ends(chart: Chart, plane: Plane) -> list[tuple[Bandwidth | Ceiling, tuple[float, float], tuple[float, float]]]:
    """Return every limit with the ends of its line, as (intensity, rate)."""
    ends: list[tuple[Bandwidth | Ceiling, tuple[float, float], tuple[float, float]]] = []
    for one in chart.bandwidths:
        low, high = slope_ends(chart, one, plane)
        if low < high:
            ends.append((one, (low, low * one.bytes_s), (high, high * one.bytes_s)))
    for top in chart.ceilings:
        start = ceiling_start(chart, top.flops_s, plane)
        ends.append((top, (start, top.flops_s), (plane.x[1], top.flops_s)))
    return ends


def roof_lines(chart: Chart, plane: Plane) -> list[Segment]:
    """Return the line of every limit, in pixels."""
    return [(plane.at(*start), plane.at(*end)) for _, start, end in roof_ends(chart, plane)]


def slope_words(one: Bandwidth, main: Bandwidth | None) -> tuple[str, ...]:
    """Return the text along a bandwidth, and a shorter one for a place without room."""
    value = quantity(one.bytes_s, "B/s")
    if one == main:
        name = f" ({one.name})" if one.name not in (value, one.level) or one.basis != "given" else ""
        return f"memory bound, slope 1 = {value}{name}", f"memory bound, {value}"
    return (f"{one.name} = {value}",)


def ceiling_words(one: Ceiling, unit: tuple[float, str]) -> tuple[str, ...]:
    """Return a ceiling's name and value, in the unit of the axis, and its name for a place without room."""
    return f"{one.name}: {one.flops_s / unit[0]:.4g} {unit[1]}", one.name


def _markers(chart: Chart, plane: Plane, sizes: Sequence[float]) -> list[Box]:
    """Return the markers that text avoids."""
    return [plane.disc(x, one.rate, size) for one, size in zip(chart.kernels[:NEAR], sizes) for _, x in one.spots]


def place_tags(chart: Chart, plane: Plane, unit: tuple[float, str], sizes: Sequence[float]) -> tuple[Text, ...]:
    """Place each ceiling's text at the right end of its line, above or below, else further left.

    Texts avoid each other, and points, slopes and the arrows of the largest kernels where possible.
    """
    tags: list[Text] = []
    largest = sorted(range(len(chart.kernels)), key=lambda at: _rank(chart.kernels[at], at))[:TERSE]
    stems = [line for at in largest if (line := stem(chart.kernels[at], plane)) is not None]
    right = plane.frame.x + plane.frame.w - 6
    discs = _markers(chart, plane, sizes)
    avoided = [line for line in roof_lines(chart, plane) if line[0][1] != line[1][1]] + stems
    for one in sorted(chart.ceilings, key=lambda one: (-one.flops_s, one.name)):
        at, taken = plane.py(one.flops_s), [tag.box for tag in tags]
        near = [disc for disc in discs if abs(disc.y + disc.h / 2 - at) < 15 + disc.h]
        start = plane.px(ceiling_start(chart, one.flops_s, plane))
        places = [
            (Box(right - wide - 12 * step, at + off, wide, 14), words)
            for words, wide in ((words, text_width(words, SMALL)) for words in ceiling_words(one, unit))
            for step in range(max(1, int((right - wide - plane.frame.x - 4) // 12) + 1))
            for off in (-15, 1)
        ]
        free = [place for place in places if not any(place[0].hits(other) for other in taken)]
        over = (place for place in free if place[0].x >= start and not any(place[0].crossed(line) for line in avoided))
        clear = (place for place in over if not any(place[0].hits(disc) for disc in near))
        box, words = next(clear, free[0] if free else places[0])
        tags.append(Text(words, box.x + box.w, box.y + box.h - 3.5, box, "right", roof=one))
    return tuple(tags)


def place_compute_bound(chart: Chart, plane: Plane) -> tuple[Text, ...]:
    """Place "compute bound" above the roof, right of the ridge, where it fits."""
    main = chart.main
    if not chart.ceilings or main is None:
        return ()
    top = max(one.flops_s for one in chart.ceilings)
    words = "compute bound"
    wide = text_width(words, TEXT)
    left = max(plane.px(max(top / main.bytes_s, plane.x[0])) + 10, plane.frame.x + 6)
    right = plane.frame.x + plane.frame.w - 8
    if right - left < wide:
        return ()
    box = Box(right - wide, plane.py(top) - 20 - TEXT, wide, TEXT + 3)
    return (Text(words, box.x, box.y + TEXT, box, size=TEXT),)


def place_levels(chart: Chart, plane: Plane, sizes: Sequence[float]) -> tuple[Text, ...]:
    """Place the memory levels below kernels' points, above them on a collision, nowhere without room.

    Of several levels, the one that binds is marked.
    """
    if len(chart.levels) < 2:
        return ()
    levels: list[Text] = []
    discs = _markers(chart, plane, sizes)
    for at, (one, size) in enumerate(zip(chart.kernels[:_TAGGED], sizes)):
        middle = plane.py(one.rate)
        for level, intensity in sorted((spot for spot in one.spots if spot[0]), key=lambda spot: spot[1]):
            binds = len(one.spots) > 1 and level == one.spots[0][0]
            words = f"{level.upper()} binds" if binds else level.upper()
            wide = text_width(words, SMALL)
            x = plane.px(intensity) - wide / 2
            places = (Box(x, middle + size / 2 + 1, wide, 13), Box(x, middle - size / 2 - 14, wide, 13))
            free = (box for box in places if not any(box.hits(other) for other in (*discs, *(one.box for one in levels))))
            box = next(free, None)
            if box is not None:
                levels.append(Text(words, box.x + box.w / 2, box.y + box.h - 3, box, "center", kernel=at, level=level))
    return tuple(levels)


def place_slopes(
    chart: Chart, plane: Plane, sizes: Sequence[float], taken: Sequence[Box]
) -> tuple[tuple[Text, ...], list[Box]]:
    """Place the text along each bandwidth where it hides least, and return its boxes too.

    Text that is unreadable everywhere is dropped, since the legend names the line. The text of main memory always stays.
    """
    slopes: list[Text] = []
    boxes: list[Box] = []
    points = _markers(chart, plane, sizes) + [plane.disc(x, rate, 4.0) for x, rate in chart.ridges]
    flat = [line for line in roof_lines(chart, plane) if line[0][1] == line[1][1]]
    for one in chart.bandwidths:
        start, end = slope_ends(chart, one, plane)
        if end <= start:
            continue
        x, y = plane.at(start, start * one.bytes_s)
        free = math.dist((x, y), plane.at(end, end * one.bytes_s)) - 12
        best: tuple[float, float, float, list[Box], str] | None = None
        for words, lift, part in product(slope_words(one, chart.main), _LIFTS, _PARTS):
            wide = text_width(words, SMALL)
            room = free - wide
            if room < 0 or (best is not None and best[0] <= _UNREADABLE and words != best[4]):
                continue
            shift, cos, sin = 6 + part * room, math.cos(plane.angle), math.sin(plane.angle)
            sx, sy = x + shift * cos - lift * sin, y - shift * sin - lift * cos
            covered = text_boxes(sx, sy, plane.angle, wide, SMALL)
            if not all(box.inside(plane.frame) for box in covered):
                continue
            reach = bounding_box(covered)
            near = [point for point in points if reach.hits(point)]
            cost = _OVER * sum(box.hits(point) for box in covered for point in near)
            cost += 12 * sum(box.hits(other) for box in covered for other in (*taken, *boxes))
            cost += 3 * sum(box.crossed(line) for box in covered for line in flat)
            cost += _THROUGH * _lines_through(chart, plane, one, (sx, sx + wide * cos), lift)
            if best is None or cost < best[0]:
                best = cost, sx, sy, covered, words
        if best is not None and (best[0] <= _UNREADABLE or one == chart.main):
            slopes.append(Text(best[4], best[1], best[2], bounding_box(best[3]), angle=math.degrees(plane.angle), roof=one))
            boxes += best[3]
    return tuple(slopes), boxes


def _lines_through(chart: Chart, plane: Plane, one: Bandwidth, xs: tuple[float, float], lift: float) -> int:
    """Count the bandwidths that cross text ``lift`` above the line of one. All are parallel."""
    count = 0
    for other in chart.bandwidths:
        start, end = slope_ends(chart, other, plane)
        over = (plane.py(one.bytes_s) - plane.py(other.bytes_s)) * math.cos(plane.angle)
        meets = start < end and plane.px(start) < xs[1] and xs[0] < plane.px(end)
        count += meets and lift - 2 <= over <= lift + 0.75 * SMALL
    return count


def stem(kernel: Kernel, plane: Plane) -> Segment | None:
    """Return the arrow from a kernel up to its roof; None without one."""
    if kernel.arrow_tip is None:
        return None
    return plane.at(kernel.intensity, kernel.rate), plane.at(kernel.intensity, kernel.arrow_tip)


def _arrows(kernel: Kernel, plane: Plane) -> list[Segment]:
    """Return the arrow of a kernel to its roof, and those from its places in earlier runs."""
    places = [*kernel.earlier, (kernel.intensity, kernel.rate)]
    lines = [(plane.at(*start), plane.at(*end)) for start, end in pairwise(places)]
    to_roof = stem(kernel, plane)
    return [*lines, to_roof] if to_roof is not None else lines


#: Most kernels with a label, a third of it in a narrow frame. Picking shows the names of the others.
LABELLED = 40
_NARROW = 600
#: Cost above which a label is dropped, unless its kernel takes this share of the time: then it has any free place.
TANGLED = 45.0
_HEAVY = 10.0
_ROOF, _STEM, _LEADER, _RANK = 20.0, 12.0, 60.0, 0.6
#: Places of a label that are counted as ever farther.
_FARTHEST = 32
#: Characters of a line of a label in a narrow frame.
_NARROW_LINE = 18
#: With more kernels, labels show the percent in short.
TERSE = 12
_GAP = 3.0
#: Distances from the marker, the first without a leader.
_FAR = (0.0, 10.0, 24.0, 42.0, 64.0, 90.0, 125.0)


@dataclass(frozen=True, slots=True)
class Label:
    """A kernel's label."""

    kernel: int  # index in Chart.kernels
    lines: tuple[str, ...]
    box: Box
    leftward: bool  # left of its point, so aligned to its right end
    leader: Segment | None = None  # line to the marker, when the label is away from it


def place_labels(chart: Chart, plane: Plane, sizes: Sequence[float], taken: Sequence[Box]) -> tuple[Label, ...]:
    """Place the labels of the largest kernels. sizes: marker diameters. taken: boxes that are not free.

    No label lies on the arrow of a larger kernel or on its own: ``arrange`` leaves out the arrows that cross another label.
    """
    ranked = sorted(range(len(chart.kernels)), key=lambda at: _rank(chart.kernels[at], at))
    is_narrow = plane.frame.w <= _NARROW
    chosen = ranked[: LABELLED // 3 if is_narrow else LABELLED]
    discs = list(_drawn_marks(chart, plane, sizes, ranked[:NEAR]))
    roofs = roof_lines(chart, plane)
    stems = {at: _arrows(chart.kernels[at], plane) for at in chosen}
    inner = plane.frame.grown(-2)
    labels: list[Label] = []
    blocked = list(taken)
    drawn: list[Segment] = []
    for at in chosen:
        one = chart.kernels[at]
        text = one.label(is_narrow or len(chart.kernels) > TERSE)
        if is_narrow:
            text = tuple(line for words in text for line in _halves(words))
        is_heavy = (one.share or 0.0) >= _HEAVY
        own = stems.pop(at)
        wide, high = max(text_width(line, SMALL) for line in text), LINE * len(text)
        x, y = plane.at(one.intensity, one.rate)
        marker = (x, y), sizes[at] / 2 + _GAP
        best: tuple[float, Box, Segment | None] | None = None
        for places in (_candidates, _anywhere):
            candidates = [(rank, *one) for rank, one in enumerate(places(*marker, wide, high, inner)) if one[0].inside(inner)]
            reach = bounding_box([box for _, box, _ in candidates] or [inner])
            near = [other for other in (*blocked, *discs) if reach.hits(other)]
            for rank, box, far in candidates:
                if any(box.hits(other) for other in near):
                    continue
                if any(box.crossed(line) for line in (*own, *drawn)):
                    continue
                leader = ((x, y), box.nearest(x, y)) if far else None
                cost = _RANK * min(rank, _FARTHEST) + _ROOF * sum(box.crossed(line) for line in roofs)
                cost += _STEM * sum(box.crossed(line) for lines in stems.values() for line in lines)
                cost += _LEADER * sum(box.crossed(label.leader) for label in labels if label.leader is not None)
                cost += _LEADER * sum(other.crossed(leader) for other in blocked) if leader else 0.0
                if best is None or cost < best[0]:
                    best = cost, box, leader
            if (best is not None and best[0] < _LEADER) or not (is_heavy or len(chart.kernels) <= TERSE):
                break
        if best is not None and (best[0] <= TANGLED or is_heavy):
            _, box, leader = best
            labels.append(Label(at, text, box, box.x + box.w <= x, leader))
            blocked.append(box.grown(1.0))
            drawn += [line for line in own if not any(label.box.crossed(line) for label in labels)]
    return tuple(labels)


def _halves(words: str) -> tuple[str, ...]:
    """Break a line of a label in two, at the character nearest its middle that ends a word."""
    if len(words) <= _NARROW_LINE:
        return (words,)
    middle = len(words) // 2
    ends = [at + 1 for at, letter in enumerate(words[:-1]) if letter in " _,-:;…<[(" and abs(at + 1 - middle) <= middle // 2]
    end = min(ends, key=lambda at: abs(at - middle), default=middle)
    return words[:end].rstrip(), words[end:].lstrip()


def _clear_stems(chart: Chart, plane: Plane, labels: Sequence[Label], texts: Sequence[Text]) -> frozenset[int]:
    """Return the labeled kernels whose arrow crosses no label and no text along it."""
    boxes = [*(label.box for label in labels), *(text.box for text in texts)]
    stems = {label.kernel: stem(chart.kernels[label.kernel], plane) for label in labels}
    return frozenset(at for at, line in stems.items() if line is None or not any(box.crossed(line) for box in boxes))


def _rank(kernel: Kernel, at: int) -> tuple[float, float, int]:
    """Sort by share of the time, then by headroom."""
    return -(kernel.share or 0.0), kernel.fraction if kernel.fraction is not None else 2.0, at


def _drawn_marks(chart: Chart, plane: Plane, sizes: Sequence[float], order: Sequence[int]) -> Iterator[Box]:
    """Yield the drawn marks of kernels: points, ends of ranges, and baselines."""
    for at in order:
        one = chart.kernels[at]
        for _, x in one.spots:
            yield plane.disc(x, one.rate, sizes[at])
        for x, rate in (*(one.range_ends or ()), *one.earlier):
            yield plane.disc(x, rate, 8.0)


def _candidates(at: tuple[float, float], off: float, wide: float, high: float, _: Box) -> Iterator[tuple[Box, bool]]:
    """Yield places of a label around its marker, nearest first, and whether each needs a leader."""
    x, y = at
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


def _anywhere(at: tuple[float, float], off: float, wide: float, high: float, frame: Box) -> Iterator[tuple[Box, bool]]:
    """Yield places of a label all over the frame, nearest first, each with a leader."""
    x, y = at
    tops = [frame.y + LINE * row for row in range(int((frame.h - high) // LINE) + 1)]
    lefts = [frame.x + 2 * LINE * column for column in range(int((frame.w - wide) // (2 * LINE)) + 1)]
    places = [Box(left, top, wide, high) for top in tops for left in lefts]
    far = [(math.dist((x, y), box.nearest(x, y)), box) for box in places]
    yield from ((box, True) for distance, box in sorted(far, key=lambda one: one[0]) if distance > off)


#: Marker diameters in pixels. The area grows with the share of the time, in steps that keep the drawing small.
SMALLEST, LARGEST, STEPS = 7.0, 22.0, 8
_UNIFORM = 10.0
#: Most kernels whose links, ranges and baselines are drawn.
_DETAILED = 400
#: With more kernels, markers are smaller.
CROWD = 400
TITLE, TITLE_LINE, SUBTITLE_LINE = 16.0, 20.0, 15.0
UNITS = ((1e15, "PFLOP/s"), (1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"), (1.0, "FLOP/s"))
#: Height of a line of the legend.
LEGEND_LINE = 17.0


@dataclass(frozen=True, slots=True)
class Size:
    """A drawing's outline, in pixels."""

    width: float
    height: float
    inside: bool = True  # whether the legend is inside the frame, or below it
    bare: bool = False  # whether it has the frame alone: title, legend and list are elsewhere


WIDE = Size(1100, 700)
NARROW = Size(400, 620, inside=False)


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the legend."""

    kind: str  # line, color, shape or mark
    text: str
    color: str
    shape: str  # of a line its dash, of a color or a shape the marker, of a mark arrow, range, before or area


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One drawing with every position."""

    size: Size
    plane: Plane
    unit: tuple[float, str]  # of the rate axis: FLOP/s and name
    diameters: tuple[float, ...]
    labels: tuple[Label, ...]
    legend: tuple[Entry, ...]
    legend_box: Box
    slopes: tuple[Text, ...]  # of bandwidths
    flat: tuple[Text, ...]  # "compute bound" above the roof, where it fits
    tags: tuple[Text, ...]  # of ceilings
    levels: tuple[Text, ...]  # of memory levels at kernels
    title: tuple[str, ...]
    subtitle: tuple[str, ...]
    footer: tuple[str, ...]
    arrows: frozenset[int]  # kernels with an arrow to their roof: those with a label, unless it would cross a text

    @property
    def texts(self) -> tuple[Text, ...]:
        """The texts of roofs and memory levels."""
        return (*self.slopes, *self.flat, *self.tags, *self.levels)


class Line(NamedTuple):
    """A line of a kernel, in FLOP/byte and in the unit of the rate axis."""

    kind: str  # levels, before, range, arrow or leader
    kernel: int
    start: tuple[float, float]
    end: tuple[float, float]


def kernel_lines(chart: Chart, layout: Layout) -> list[Line]:
    """Return the lines of kernels: between memory levels, from the baseline, ranges, arrows to the roof, label leaders."""
    plane, scale = layout.plane, layout.unit[0]
    labeled = {label.kernel: None for label in layout.labels}
    others = [at for at in range(len(chart.kernels)) if at not in labeled]
    lines: list[Line] = []

    def add(kind: str, kernel: int, start: tuple[float, float], end: tuple[float, float]) -> None:
        lines.append(Line(kind, kernel, (start[0], start[1] / scale), (end[0], end[1] / scale)))

    for at in (*labeled, *others[: max(0, _DETAILED - len(labeled))]):
        one = chart.kernels[at]
        place = (one.intensity, one.rate)
        if len(one.spots) > 1:
            xs = sorted(x for _, x in one.spots)
            add("levels", at, (xs[0], one.rate), (xs[-1], one.rate))
        for start, end in zip(one.earlier, (*one.earlier[1:], place)):
            add("before", at, start, end)
        if one.range_ends is not None:
            add("range", at, *one.range_ends)
        if at in layout.arrows and one.arrow_tip is not None:
            add("arrow", at, place, (one.intensity, one.arrow_tip))
    for label in layout.labels:
        if label.leader is not None:
            start, end = ((plane.back_x(x), plane.back_y(y)) for x, y in label.leader)
            add("leader", label.kernel, start, end)
    return lines


def unit_of(rates: Iterable[float]) -> tuple[float, str]:
    """Return the unit in which the highest rate has two to four integer digits, as 1840 GFLOP/s."""
    top = max(rates)
    return next((unit for unit in UNITS if top >= 10 * unit[0]), UNITS[-1])


def domain(chart: Chart) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the domains of intensity and rate: every point, every ridge, and some of each limit beyond them."""
    ends = [end for one in chart.kernels for end in (*(one.range_ends or ()), *one.earlier)]
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
    if corners:  # show a decade of the slope below the lowest ridge
        low_x = min(low_x, min(corners) / 10)
        ys = [*ys, min(tops) / 10]
    return (low_x, high_x), (min(ys or [min(tops) / 10]) / 2.5, max([*ys, *tops]) * 2.6)


def diameters(chart: Chart) -> tuple[float, ...]:
    """Return a marker diameter per kernel: area by share of the time, uniform without shares."""
    shares = [one.share for one in chart.kernels]
    known = [one for one in shares if one]
    crowd = len(shares) > CROWD
    if not known or len(known) * 2 < len(shares):
        return tuple(_UNIFORM * (2 / 3 if crowd else 1) for _ in shares)
    top, largest = max(known), LARGEST / 2 if crowd else LARGEST
    sizes = []
    for share in shares:
        wide = math.sqrt(SMALLEST**2 + (largest**2 - SMALLEST**2) * (share or 0.0) / top)
        step = round((wide - SMALLEST) / (largest - SMALLEST) * STEPS)
        sizes.append(SMALLEST + (largest - SMALLEST) * step / STEPS)
    return tuple(sizes)


def footer(excluded: Sequence[Excluded], wide: float) -> tuple[str, ...]:
    """Return the lines on excluded rows, by kind, the first few by name."""
    kinds: dict[str, list[Excluded]] = {}
    for one in excluded:
        kinds.setdefault(one.kind, []).append(one)
    lines: list[str] = []
    for kind, group in kinds.items():
        names = "; ".join(f"{one.name if len(one.name) < 40 else one.name[:39] + '…'} ({one.why})" for one in group[:3])
        rest = f"; and {len(group) - 3} more" if len(group) > 3 else ""
        lines += wrap_text(f"Listed, not drawn: {kind}, {len(group)}: {names}{rest}", wide, SMALL, 2, "    ")
    return tuple(lines)


def arrange(chart: Chart, legend: Sequence[Entry], size: Size = WIDE) -> Layout:
    """Place everything of a chart in one drawing."""
    unit = unit_of([one.flops_s for one in chart.ceilings] or [one.rate for one in chart.kernels] or [1e10])
    wide = size.width - 32
    title = () if size.bare else wrap_text(chart.title, wide / 1.1, TITLE, 3)  # bold
    subtitle = () if size.bare else wrap_text(chart.subtitle, wide, TEXT, 3)
    below = () if size.bare else footer(chart.excluded, wide)
    legend = () if size.bare else legend
    legend_w = max((36 + text_width(one.text, SMALL) for one in legend), default=0.0) + 12
    legend_h = LEGEND_LINE * len(legend) + 10 if legend else 0.0
    top = 12 if size.bare else 18 + TITLE_LINE * len(title) + SUBTITLE_LINE * len(subtitle)
    frame = Box(70, top, size.width - 70 - 18, max(size.height - top - 50, 240))
    bottom = frame.y + frame.h
    height = bottom + 50 + LINE * len(below) + (0 if size.inside or not legend else legend_h + 8)
    box = Box(frame.x, bottom + 50, legend_w, legend_h)
    if size.inside:
        box = Box(frame.x + frame.w - legend_w - 8, bottom - legend_h - 8, legend_w, legend_h)
    plane = _headroom(chart, Plane(frame, *domain(chart)))
    if size.inside and legend:
        plane = _headroom(chart, _clear(chart, plane, box))
    sizes = diameters(chart)
    tags, levels = place_tags(chart, plane, unit, sizes), place_levels(chart, plane, sizes)
    flat = place_compute_bound(chart, plane)
    taken = [one.box for one in tags] + ([box] if size.inside and legend else [])
    slopes, slope_boxes = place_slopes(chart, plane, sizes, taken)
    taken += [*slope_boxes, *(one.box for one in (*flat, *levels))]
    labels = place_labels(chart, plane, sizes, taken)
    return Layout(
        size=Size(size.width, height, size.inside, size.bare),
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
        title=title or (() if size.bare else ("Roofline",)),
        subtitle=subtitle,
        footer=below,
        arrows=_clear_stems(chart, plane, labels, (*tags, *flat, *levels)),
    )


def _headroom(chart: Chart, plane: Plane) -> Plane:
    """Return the plane with room for two lines of text above the highest ceiling."""
    top = max((one.flops_s for one in chart.ceilings), default=None)
    if top is None:
        return plane
    part = 48 / plane.frame.h
    need = (math.log10(top) - part * math.log10(plane.y[0])) / (1 - part)
    return Plane(plane.frame, plane.x, (plane.y[0], max(plane.y[1], 10**need)))


def _clear(chart: Chart, plane: Plane, box: Box) -> Plane:
    """Return the plane extended downwards until no point is under the legend."""
    room = box.grown(12)
    for _ in range(40):
        if not any(room.hits(plane.disc(x, one.rate, 0.01)) for one in chart.kernels for _, x in one.spots):
            break
        plane = Plane(plane.frame, plane.x, (plane.y[0] / 1.4, plane.y[1]))
    return plane
