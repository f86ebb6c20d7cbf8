"""Draw a chart with plotpress, and the colors and shapes that every renderer uses."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from roofline_engine.units import quantity

from .layout import CROWD, LEGEND_LINE, LINE, SMALL, TEXT, TITLE, Box, Entry, Layout, ceiling_start, slope_ends
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


def ceilings(chart: Chart) -> list[tuple[Ceiling, str, str]]:
    """Return each ceiling with its color and its dash: solid, or dashed when measured."""
    ranked = sorted(chart.ceilings, key=lambda one: (-one.flops_s, one.name))
    return [(one, CEILINGS[at % len(CEILINGS)], dash(one.basis)) for at, one in enumerate(ranked)]


def bandwidths(chart: Chart) -> list[tuple[Bandwidth, str, str]]:
    """Return each bandwidth with its color and its dash, main memory first."""
    main = chart.main
    ranked = sorted(chart.bandwidths, key=lambda one: (one != main, -one.bytes_s, one.name))
    return [(one, BANDWIDTHS[at % len(BANDWIDTHS)], dash(one.basis)) for at, one in enumerate(ranked)]


def dash(basis: str) -> str:
    return "--" if basis == "measured" else "-"


def legend(chart: Chart) -> list[Entry]:
    """Return one line for each roof, verdict and limiter of the chart."""
    roofs = roof_names(chart)
    entries = [Entry("line", roofs[one], color, shape) for one, color, shape in ceilings(chart)]
    entries += [Entry("line", roofs[one], color, shape) for one, color, shape in bandwidths(chart)]
    verdicts = {one.verdict for one in chart.kernels}
    if verdicts - {"none"}:
        entries += [Entry("color", text, color, "o") for key, (color, text) in VERDICTS.items() if key in verdicts]
    bounds = {one.bound for one in chart.kernels}
    entries += [Entry("shape", text, FAINT, shape) for key, (shape, _, text) in BOUNDS.items() if key in bounds]
    return entries


def roof_names(chart: Chart) -> dict[Ceiling | Bandwidth, str]:
    """Return a distinct name for each roof. Equal names get their value, then their dtype, then a number."""
    roofs: list[Ceiling | Bandwidth] = [*(one for one, *_ in ceilings(chart)), *(one for one, *_ in bandwidths(chart))]
    names = {one: _name_with_basis(one) for one in roofs}
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
#: Most kernels whose links, ranges and baselines are drawn.
_DETAILED = 400
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
    _roofs(axes, chart, layout, drawn)
    _ways(axes, chart, layout, drawn)
    _points(axes, chart, layout, drawn)
    _words(axes, chart, layout, drawn)
    return drawn


def detailed(chart: Chart, layout: Layout) -> list[int]:
    """Return the kernels whose links, ranges and baselines are drawn, labeled ones first."""
    labeled = [label.kernel for label in layout.labels]
    others = [at for at in range(len(chart.kernels)) if at not in layout.arrows]
    return labeled + others[: max(0, _DETAILED - len(labeled))]


def _note(axes: Any, drawn: Drawing, kernels: list[int]) -> None:
    """Record the kernels of the last mark."""
    drawn.series[len(axes.artists) - 1] = kernels


def _roofs(axes: Any, chart: Chart, layout: Layout, drawn: Drawing) -> None:
    scale = layout.unit[0]
    for one, color, dash in bandwidths(chart):
        start, end = slope_ends(chart, one, layout.plane)
        if start < end:
            ys = [start * one.bytes_s / scale, end * one.bytes_s / scale]
            axes.plot([start, end], ys, color=color, linewidth=1.7, linestyle=dash)
    for top, color, dash in ceilings(chart):
        start = ceiling_start(chart, top.flops_s, layout.plane)
        axes.plot([start, layout.plane.x[1]], [top.flops_s / scale] * 2, color=color, linewidth=1.9, linestyle=dash)
    if chart.ridges:
        xs, ys = [x for x, _ in chart.ridges], [y / scale for _, y in chart.ridges]
        axes.scatter(xs, ys, s=5 * _POINT, color=INK)


def _ways(axes: Any, chart: Chart, layout: Layout, drawn: Drawing) -> None:
    """Draw the lines of kernels: between memory levels, from the baseline, ranges, arrows to the roof, label leaders."""
    scale = layout.unit[0]
    known = detailed(chart, layout)

    def line(xs: list[float], ys: list[float], at: int, **look: Any) -> None:
        axes.plot(xs, [y / scale for y in ys], **look)
        _note(axes, drawn, [at])

    for at in known:
        one = chart.kernels[at]
        if len(one.spots) > 1:
            xs = sorted(x for _, x in one.spots)
            line([xs[0], xs[-1]], [one.rate] * 2, at, color=FAINT, linewidth=1.0)
            drawn.links.append(len(axes.artists) - 1)
        if one.before is not None:
            line([one.before[0], one.intensity], [one.before[1], one.rate], at, color=FAINT, linewidth=0.9)
        if one.range_ends is not None:
            (ax, ay), (bx, by) = one.range_ends
            line([ax, bx], [ay, by], at, color=INK, linewidth=2.6, alpha=0.45)
    tips = {at: tip for at in known if at in layout.arrows and (tip := chart.kernels[at].arrow_tip) is not None}
    for at, tip in tips.items():
        one = chart.kernels[at]
        line([one.intensity] * 2, [one.rate, tip], at, color=FAINT, linewidth=1.0, linestyle=":")
    if tips:
        xs = [chart.kernels[at].intensity for at in tips]
        ys = [_under(layout, tip) / scale for tip in tips.values()]
        axes.scatter(xs, ys, s=6 * _POINT, marker="^", color=FAINT)
        _note(axes, drawn, list(tips))
    before = [at for at in known if chart.kernels[at].before is not None]
    if before:
        ends = [chart.kernels[at].before or (1.0, 1.0) for at in before]
        xs, ys = [x for x, _ in ends], [y / scale for _, y in ends]
        axes.scatter(xs, ys, s=6 * _POINT, color=PAPER, edgecolors=FAINT, linewidths=1.0)
        _note(axes, drawn, before)
    for label in layout.labels:
        if label.leader is not None:
            (ax, ay), (bx, by) = label.leader
            xs = [layout.plane.back_x(ax), layout.plane.back_x(bx)]
            ys = [layout.plane.back_y(ay), layout.plane.back_y(by)]
            line(xs, ys, label.kernel, color=FAINT, linewidth=0.6)


def _under(layout: Layout, rate: float) -> float:
    """Return a rate a little below another, so that an arrowhead ends at the line."""
    return layout.plane.back_y(layout.plane.py(rate) + 3.5)


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


def _words(axes: Any, chart: Chart, layout: Layout, drawn: Drawing) -> None:
    def text(px: float, py: float, words: str, kernel: int | None, level: str | None = None, **look: Any) -> None:
        axes.text(
            layout.plane.back_x(px),
            layout.plane.back_y(py) / layout.unit[0],
            words,
            **{"fontsize": SMALL, "outline": PAPER, "color": INK, **look},
        )
        drawn.labels.append(kernel)
        drawn.levels.append(level)

    colors = {one: color for one, color, _ in bandwidths(chart)}
    for slope in layout.slopes:
        text(slope.x, slope.y, slope.words, None, rotation=slope.angle, color=colors[slope.bandwidth])
    if layout.flat is not None:
        words, box = layout.flat
        text(box.x, box.y + TEXT, words, None, fontsize=TEXT)
    shades = {top: color for top, color, _ in ceilings(chart)}
    for tag in layout.tags:
        text(tag.box.x + tag.box.w, tag.box.y + tag.box.h - 2.5, tag.words, None, color=shades[tag.ceiling], ha="right")
    for one in layout.levels:
        middle = one.box.x + one.box.w / 2
        text(middle, one.box.y + one.box.h - 1, one.words, one.kernel, one.words, ha="center", color=FAINT, fontsize=7.0)
    for label in layout.labels:
        px, ha = (label.box.x + label.box.w, "right") if label.leftward else (label.box.x, "left")
        text(px, label.box.y + LINE - 2, "\n".join(label.lines), label.kernel, ha=ha)


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
