"""Draw a chart with braille characters, for a terminal: roofs, a letter for each kernel, and the list of the kernels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from textwrap import wrap

from roofline_engine.units import quantity

from ..report.columns import shorten
from .layout import Box, Plane, domain, footer, roof_ends, unit_of
from .model import Chart
from .vega import ticks

#: Letters of kernels; those after them have a dot.
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#: Columns of the numbers of the rate axis.
_MARGIN = 10
_COLORS = {"underperforming": "red", "moderate": "blue", "saturated": "green"}


def draw(chart: Chart, width: int, height: int) -> str:
    """Return the drawing and the list in lines of at most ``width`` characters.

    On a terminal, unless NO_COLOR is set, letters have the color of the verdict.

    height: lines of the plot, without title, axis and list.
    """
    columns = width - _MARGIN - 1
    plane = Plane(Box(0, 0, columns, height), *domain(chart))
    ranked = sorted(range(len(chart.kernels)), key=lambda at: (-(chart.kernels[at].share or 0.0), chart.kernels[at].row))
    letters = dict(zip(ranked, _LETTERS))
    lines = [*wrap(chart.title, width), *wrap(chart.subtitle, width), ""]
    lines += _plot(chart, plane, letters)
    lines += (shorten(line, width) for line in _bottom(chart, plane))
    lines += ["", *(part for line in _listed(chart, plane, letters) for part in wrap(line, width, subsequent_indent="   "))]
    return "\n".join(line.rstrip(" \u2800") for line in lines) + "\n"


def _plot(chart: Chart, plane: Plane, letters: dict[int, str]) -> Iterator[str]:
    """Yield the lines of the frame, with the numbers of the rate axis before it."""
    import plotille

    (x0, x1), (y0, y1) = ((math.log10(low), math.log10(high)) for low, high in (plane.x, plane.y))
    columns, rows = int(plane.frame.w), int(plane.frame.h)
    canvas = plotille.Canvas(columns, rows, x0, y0, x1, y1)

    def place(intensity: float, rate: float) -> tuple[float, float]:
        """Return a place of the canvas, which has none at its upper ends."""
        x, y = math.log10(intensity), math.log10(rate)
        return min(max(x, x0), x1 - 1e-6 * (x1 - x0)), min(max(y, y0), y1 - 1e-6 * (y1 - y0))

    for _, start, end in roof_ends(chart, plane):
        canvas.line(*place(*start), *place(*end))
    for one in chart.kernels:
        for start, end in zip(one.earlier, (*one.earlier[1:], (one.intensity, one.rate))):
            canvas.line(*place(*start), *place(*end))
    for ceiling in sorted(chart.ceilings, key=lambda one: one.flops_s):
        name = shorten(ceiling.name, columns // 2)
        x = x1 - (len(name) + 0.5) * (x1 - x0) / columns
        y = place(1.0, ceiling.flops_s)[1] + (y1 - y0) / rows
        canvas.text(x, min(y, place(1.0, plane.y[1])[1]), name)
    for at in reversed(range(len(chart.kernels))):
        if at not in letters:
            canvas.point(*place(chart.kernels[at].intensity, chart.kernels[at].rate))
    for at, letter in reversed(letters.items()):  # the largest last, so that no other hides it
        one = chart.kernels[at]
        for level, intensity in reversed(one.spots):
            word = letter if level == one.spots[0][0] else "."
            canvas.text(*place(intensity, one.rate), word, color=_COLORS.get(one.verdict))
    unit = unit_of([one.flops_s for one in chart.ceilings] or [one.rate for one in chart.kernels] or [1e10])
    numbers = {int(plane.py(value * unit[0])): f"{value:g}" for value in ticks(plane.y[0] / unit[0], plane.y[1] / unit[0])}
    yield f"{unit[1]:>{_MARGIN}}"
    for row, line in enumerate(canvas.plot().splitlines()):
        number = numbers.get(row, "")
        yield f"{number:>{_MARGIN - 1}} {'┤' if number else '│'}{line}"


def _bottom(chart: Chart, plane: Plane) -> Iterator[str]:
    """Yield the intensity axis."""
    axis, numbers = ["─"] * int(plane.frame.w), [" "] * int(plane.frame.w)
    for value in ticks(*plane.x):
        at, text = int(plane.px(value)), f"{value:g}"
        if at >= len(axis):
            continue
        axis[at] = "┬"
        if at + len(text) <= len(axis) and not "".join(numbers[max(0, at - 1) : at + len(text) + 1]).strip():
            numbers[at : at + len(text)] = text
    yield f"{'':>{_MARGIN}}└{''.join(axis)}"
    yield f"{'':>{_MARGIN}} {''.join(numbers)}"
    levels = "at each level" if len(chart.levels) > 1 else "of DRAM traffic"
    yield f"{'':>{_MARGIN}} arithmetic intensity (FLOP per byte {levels})"


def _listed(chart: Chart, plane: Plane, letters: dict[int, str]) -> Iterator[str]:
    """Yield the bandwidths, a line for each kernel with a letter, and what is not drawn."""
    for one in sorted(chart.bandwidths, key=lambda one: one.bytes_s):
        yield f"memory bound: {one.name} = {quantity(one.bytes_s, 'B/s')}"
    shown: dict[tuple[int, int], str] = {}
    for at, letter in letters.items():
        kernel = chart.kernels[at]
        top = shown.setdefault((int(plane.px(kernel.intensity)), int(plane.py(kernel.rate))), letter)
        hidden = "" if top == letter else f" (under {top})"
        share = f", {kernel.share:.3g}% of the time" if kernel.share is not None else ""
        yield f"{letter}  {kernel.label_name:30}  {', '.join(kernel.label()[1:])}{share}{hidden}"
    if len(chart.kernels) > len(letters):
        yield f"{len(chart.kernels) - len(letters)} more kernels are dots"
    yield from footer(chart.excluded, 1e6)
    yield from chart.notes
