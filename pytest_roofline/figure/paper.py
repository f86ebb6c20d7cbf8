"""Plane geometry in pixels, from the upper left corner: boxes, lines, widths of text, and where a figure stands on log axes."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

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


def wrapped(text: str, wide: float, size: float, most: int, indent: str = "") -> tuple[str, ...]:
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
            return (*lines[:-1], _cut(f"{lines[-1]} …", wide, size))
    return tuple(_cut(one, wide, size) for one in (*lines, line) if one.strip())


def _cut(line: str, wide: float, size: float) -> str:
    while text_width(line, size) > wide and len(line) > 2:
        line = line.rstrip("…").rstrip()[:-1] + "…"
    return line


def around(boxes: Sequence[Box]) -> Box:
    """The smallest box that holds others."""
    x, y = min(one.x for one in boxes), min(one.y for one in boxes)
    return Box(x, y, max(one.x + one.w for one in boxes) - x, max(one.y + one.h for one in boxes) - y)


def along(x: float, y: float, angle: float, wide: float, high: float) -> list[Box]:
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
