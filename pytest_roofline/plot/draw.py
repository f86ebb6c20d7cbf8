"""Draw a chart with plotpress, and the colors and shapes that every renderer uses."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from roofline_engine.units import quantity

from .layout import CROWD, LEGEND_LINE, LINE, SMALL, TEXT, TITLE, Box, Entry, Layout, Text, kernel_lines, roof_ends
from .model import Bandwidth, Ceiling, Chart

#: Okabe and Ito's palette, which color-blind readers can distinguish. The shape shows the limiter without color.
VERDICTS = {
    "underperforming": ("#D55E00", "underperforming"),
    "moderate": ("#0072B2", "moderate"),
    "saturated": ("#009E73", "saturated"),
    "unknown": ("#6B7280", "verdict unknown"),
    "none": ("#0072B2", "kernel"),
}
#: A bound's marker in plotpress' letters and in Vega's words.
BOUNDS = {
    "memory": ("o", "circle", "memory bound"),
    "compute": ("s", "square", "compute bound"),
    "latency": ("^", "triangle-up", "latency bound: neither roof is near"),
    "unknown": ("D", "diamond", "bound unknown"),
}
#: Highest first.
CEILINGS = ("#B91C1C", "#B45309", "#7C4A1E", "#7C3AED", "#BE185D", "#4D7C0F", "#0F766E", "#374151")
#: Main memory first.
BANDWIDTHS = ("#334155", "#0E7490", "#A16207", "#6D28D9", "#166534", "#9F1239")
INK, FAINT, PAPER, GRID = "#1F2937", "#6B7280", "#FFFFFF", "#C4CAD3"
#: In the dark, each color of the drawing is this one.
DARK = {
    INK: "#E5E7EB",
    FAINT: "#9CA3AF",
    PAPER: "#14181F",
    GRID: "#39414F",
    "#000000": "#9CA3AF",
    "#334155": "#CBD5E1",
    "#0E7490": "#22D3EE",
    "#A16207": "#FACC15",
    "#6D28D9": "#A78BFA",
    "#166534": "#4ADE80",
    "#9F1239": "#FB7185",
    "#B91C1C": "#F87171",
    "#B45309": "#FB923C",
    "#7C4A1E": "#D6A57A",
    "#7C3AED": "#C4B5FD",
    "#BE185D": "#F472B6",
    "#4D7C0F": "#A3E635",
    "#0F766E": "#2DD4BF",
    "#374151": "#9CA3AF",
    "#D55E00": "#FF8A3D",
    "#0072B2": "#4DB2F0",
    "#009E73": "#34D9A6",
}


def roof_looks(chart: Chart) -> dict[Bandwidth | Ceiling, tuple[str, str]]:
    """Return the color and the dash of each roof: ceilings from the highest, then bandwidths, main memory first.

    A line is solid, or dashed when measured.
    """
    main = chart.main
    flat = sorted(chart.ceilings, key=lambda one: (-one.flops_s, one.name))
    slopes = sorted(chart.bandwidths, key=lambda one: (one != main, -one.bytes_s, one.name))
    colors: dict[Bandwidth | Ceiling, str] = {one: CEILINGS[at % len(CEILINGS)] for at, one in enumerate(flat)}
    colors.update({one: BANDWIDTHS[at % len(BANDWIDTHS)] for at, one in enumerate(slopes)})
    return {one: (color, "--" if one.basis == "measured" else "-") for one, color in colors.items()}


def text_color(text: Text, looks: dict[Bandwidth | Ceiling, tuple[str, str]]) -> str:
    """Return the color of a text: that of its roof, faint for a memory level."""
    return looks[text.roof][0] if text.roof is not None else INK if text.kernel is None else FAINT


def legend(chart: Chart) -> list[Entry]:
    """Return one line for each roof, verdict and limiter of the chart."""
    names = roof_names(chart)
    entries = [Entry("line", names[one], color, dash) for one, (color, dash) in roof_looks(chart).items()]
    verdicts = {one.verdict for one in chart.kernels}
    if verdicts - {"none"}:
        entries += [Entry("color", text, color, "o") for key, (color, text) in VERDICTS.items() if key in verdicts]
    bounds = {one.bound for one in chart.kernels}
    entries += [Entry("shape", text, FAINT, shape) for key, (shape, _, text) in BOUNDS.items() if key in bounds]
    return entries


def roof_names(chart: Chart) -> dict[Ceiling | Bandwidth, str]:
    """Return a distinct name for each roof. Equal names get their value, then their dtype, then a number."""
    names = {one: _name_with_basis(one) for one in roof_looks(chart)}
    for extend in (_add_value, _add_dtype, _add_number):
        uses = Counter(names.values())
        numbers: Counter[str] = Counter()
        for one, name in names.items():
            numbers[name] += 1
            if uses[name] > 1:
                names[one] = extend(one, name, numbers[name])
    return names


def _add_value(one: Ceiling | Bandwidth, name: str, _: int) -> str:
    rate, unit = (one.flops_s, "FLOP/s") if isinstance(one, Ceiling) else (one.bytes_s, "B/s")
    return f"{name}: {quantity(rate, unit)}"


def _add_dtype(one: Ceiling | Bandwidth, name: str, _: int) -> str:
    word = (one.dtype or one.unit) if isinstance(one, Ceiling) else one.level
    return f"{name}, {word}" if word else name


def _add_number(_: Ceiling | Bandwidth, name: str, at: int) -> str:
    return f"{name} ({at})"


def _name_with_basis(one: Ceiling | Bandwidth) -> str:
    """Return a roof's name with its basis, unless the name contains it."""
    if one.basis == "given" or one.basis in one.name:
        return one.name
    return f"{one.name}, {one.basis}"


#: plotpress has 100 pixels an inch and gives marker sizes in points.
_POINT = 72.0 / 100.0
#: Most kernels with a mark each.
_APART = 60
_FONT = "Helvetica, Arial, 'Liberation Sans', sans-serif"


class Drawing(NamedTuple):
    """A plotpress figure, the SVG drawn over it, and the kernels that each of its marks shows."""

    figure: Any
    title: str
    overlay: str
    series: dict[int, list[int]]  # number of a series -> the kernels of its points, in order
    spots: dict[int, list[int]]  # number of a series of kernels -> the indices of its points among all points
    links: list[int]  # series that connect the memory levels of a kernel
    labels: list[int | None]  # kernel of each text; None for a roof
    levels: list[str | None]  # memory level that each text names; None for another text

    def svg(self) -> str:
        """Return the drawing as one SVG document."""
        return self.add_overlay(self.figure.to_svg())

    def add_overlay(self, svg: str) -> str:
        """Return plotpress' SVG with the overlay, and the title for screen readers."""
        head, _, _ = svg.rpartition("</svg>")
        start = f'<svg role="img" aria-label="{html.escape(self.title)}" '
        return f"{head.replace('<svg ', start, 1)}{self.overlay}</svg>"


def draw_chart(chart: Chart, layout: Layout) -> Drawing:
    """Draw ``chart`` as ``layout`` places it."""
    import plotpress

    style = plotpress.Style(
        font_family=_FONT, tick_label_size=TEXT, label_size=10.0, text_color=INK, grid_color=GRID, grid_alpha=0.8
    )
    size, plane = layout.size, layout.plane
    frame = plane.frame
    figure = plotpress.Figure(figsize=(size.width / 100, size.height / 100), style=style, facecolor=PAPER)
    axes = figure.add_axes(
        [frame.x / size.width, 1 - (frame.y + frame.h) / size.height, frame.w / size.width, frame.h / size.height]
    )
    scale = layout.unit[0]
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(*plane.x)
    axes.set_ylim(plane.y[0] / scale, plane.y[1] / scale)
    axes.grid(True)
    axes.set_xlabel("arithmetic intensity (FLOP per byte of DRAM traffic)")
    if len(chart.levels) > 1:
        axes.set_xlabel("arithmetic intensity (FLOP per byte of traffic at each level)")
    axes.set_ylabel(f"attained performance ({layout.unit[1]})")
    drawn = Drawing(figure, chart.title, _overlay(chart, layout), {}, {}, [], [], [])
    _roofs(axes, chart, layout)
    _lines(axes, chart, layout, drawn)
    _points(axes, chart, layout, drawn)
    _texts(axes, chart, layout, drawn)
    return drawn


def _note(axes: Any, drawn: Drawing, kernels: list[int]) -> None:
    """Record the kernels of the last mark."""
    drawn.series[len(axes.artists) - 1] = kernels


def _roofs(axes: Any, chart: Chart, layout: Layout) -> None:
    looks = roof_looks(chart)
    for one, (x, y), (x2, y2) in roof_ends(chart, layout.plane):
        (color, dash), width = looks[one], 1.7 if isinstance(one, Bandwidth) else 1.9
        axes.plot([x, x2], [y / layout.unit[0], y2 / layout.unit[0]], color=color, linewidth=width, linestyle=dash)
    if chart.ridges:
        xs, ys = [x for x, _ in chart.ridges], [y / layout.unit[0] for _, y in chart.ridges]
        axes.scatter(xs, ys, s=5 * _POINT, color=INK)


_LINE_LOOKS: dict[str, dict[str, Any]] = {
    "levels": {"color": FAINT, "linewidth": 1.0},
    "before": {"color": FAINT, "linewidth": 0.9},
    "range": {"color": INK, "linewidth": 2.6, "alpha": 0.45},
    "arrow": {"color": FAINT, "linewidth": 1.0, "linestyle": ":"},
    "leader": {"color": FAINT, "linewidth": 0.6},
}


def _lines(axes: Any, chart: Chart, layout: Layout, drawn: Drawing) -> None:
    lines = kernel_lines(chart, layout)
    for one in lines:
        axes.plot([one.start[0], one.end[0]], [one.start[1], one.end[1]], **_LINE_LOOKS[one.kind])
        _note(axes, drawn, [one.kernel])
        if one.kind == "levels":
            drawn.links.append(len(axes.artists) - 1)
    arrows = [one for one in lines if one.kind == "arrow"]
    if arrows:
        ys = [_below_line(layout, one.end[1]) for one in arrows]
        axes.scatter([one.end[0] for one in arrows], ys, s=6 * _POINT, marker="^", color=FAINT)
        _note(axes, drawn, [one.kernel for one in arrows])
    before = [one for one in lines if one.kind == "before"]
    if before:
        xs, ys = [one.start[0] for one in before], [one.start[1] for one in before]
        axes.scatter(xs, ys, s=6 * _POINT, color=PAPER, edgecolors=FAINT, linewidths=1.0)
        _note(axes, drawn, [one.kernel for one in before])


def _below_line(layout: Layout, rate: float) -> float:
    """Return a rate a little lower, so that an arrowhead ends at the line."""
    scale = layout.unit[0]
    return layout.plane.back_y(layout.plane.py(rate * scale) + 3.5) / scale


def _points(axes: Any, chart: Chart, layout: Layout, drawn: Drawing) -> None:
    """Draw the kernels, smallest last so that none is hidden. Many kernels share one mark per look.

    plotpress draws the edges of a mark over all its points, so a crowd has no edges.
    """
    groups: dict[tuple[float, str, str, int], list[tuple[int, int, float, float]]] = {}
    apart = len(chart.kernels) <= _APART
    spot = 0
    for at, one in enumerate(chart.kernels):
        for _, x in one.spots:
            key = (layout.diameters[at], one.verdict, one.bound, at if apart else 0)
            groups.setdefault(key, []).append((at, spot, x, one.rate / layout.unit[0]))
            spot += 1
    for (size, verdict, bound, _), points in sorted(groups.items(), key=lambda item: (-item[0][0], item[0][1:])):
        axes.scatter(
            [x for _, _, x, _ in points],
            [y for _, _, _, y in points],
            s=size * _POINT * (1.25 if bound in ("latency", "unknown") else 1.0),  # a triangle and a diamond fill half a square
            marker=BOUNDS[bound][0],
            color=VERDICTS[verdict][0],
            edgecolors=PAPER,
            linewidths=0.8 if len(chart.kernels) <= CROWD else 0.0,
        )
        _note(axes, drawn, [at for at, *_ in points])
        drawn.spots[len(axes.artists) - 1] = [spot for _, spot, _, _ in points]


def _texts(axes: Any, chart: Chart, layout: Layout, drawn: Drawing) -> None:
    looks = roof_looks(chart)
    texts = [(one, text_color(one, looks), one.words if one in layout.levels else None) for one in layout.texts]
    for label in layout.labels:
        x, align = (label.box.x + label.box.w, "right") if label.leftward else (label.box.x, "left")
        words, y = "\n".join(label.lines), label.box.y + LINE - 2
        texts.append((Text(words, x, y, label.box, align, kernel=label.kernel), INK, None))
    for one, color, level in texts:
        place = (layout.plane.back_x(one.x), layout.plane.back_y(one.y) / layout.unit[0])
        look = {"fontsize": one.size, "outline": PAPER, "color": color, "ha": one.align, "rotation": one.angle}
        axes.text(*place, one.words, **look)
        drawn.labels.append(one.kernel)
        drawn.levels.append(level)


def _text(x: float, y: float, words: str, size: float, color: str = INK, more: str = "") -> str:
    escaped = html.escape(words, quote=False)
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" fill="{color}"{more}>{escaped}</text>'


def _overlay(chart: Chart, layout: Layout) -> str:
    """Return title, excluded rows and legend. plotpress' own legend shows a circle for every shape."""
    parts = []
    y = 20.0
    for line in layout.title:
        parts.append(_text(16, y, line, TITLE, more=' font-weight="bold"'))
        y += 16
    for line in layout.subtitle:
        parts.append(_text(16, y - 1, line, TEXT, FAINT))
        y += 13
    low = layout.plane.frame.y + layout.plane.frame.h + 50
    if not layout.size.inside:
        low = layout.legend_box.y + layout.legend_box.h + 14
    for at, line in enumerate(layout.footer):
        parts.append(_text(16, low + 12 * at, line, SMALL, FAINT))
    if layout.legend:
        parts.append(_legend(layout.legend, layout.legend_box))
    return f'<g class="roofline-over">{"".join(parts)}</g>'


def _legend(entries: Sequence[Entry], box: Box) -> str:
    parts = [
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.w:.1f}" height="{box.h:.1f}" rx="3" fill="{PAPER}" '
        f'fill-opacity="0.9" stroke="{GRID}" stroke-width="0.8"/>'
    ]
    for at, one in enumerate(entries):
        y = box.y + 4 + LEGEND_LINE * (at + 0.5)
        x = box.x + 6
        if one.kind == "line":
            dash = ' stroke-dasharray="5,3"' if one.shape == "--" else ""
            parts.append(
                f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{x + 16:.1f}" y2="{y:.1f}" stroke="{one.color}" stroke-width="2"{dash}/>'
            )
        else:
            hollow = f'fill="{PAPER}" stroke="{one.color}" stroke-width="1.4"'  # colors are filled, shapes are outlines
            parts.append(_shape(one.shape, x + 8, y, f'fill="{one.color}"' if one.kind == "color" else hollow))
        parts.append(_text(x + 22, y + 2.8, one.text, SMALL))
    return f'<g class="roofline-legend">{"".join(parts)}</g>'


def _shape(shape: str, x: float, y: float, look: str) -> str:
    if shape == "o":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" {look}/>'
    corners = {
        "s": ((-3.5, -3.5), (3.5, -3.5), (3.5, 3.5), (-3.5, 3.5)),
        "^": ((0.0, -4.0), (4.2, 3.5), (-4.2, 3.5)),
        "D": ((0.0, -4.5), (4.5, 0.0), (0.0, 4.5), (-4.5, 0.0)),
    }[shape]
    points = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)
    return f'<polygon points="{points}" {look}/>'
