"""The colors and shapes of the figure, the names of its roofs, and its legend."""

from __future__ import annotations

from collections import Counter

from roofline_engine.units import quantity

from .layout import Entry, Text
from .model import Bandwidth, Ceiling, Chart

#: Okabe and Ito's palette, which color-blind readers can distinguish. The shape shows the limiter without color.
VERDICTS = {
    "underperforming": ("#D55E00", "underperforming"),
    "moderate": ("#0072B2", "moderate"),
    "saturated": ("#009E73", "saturated"),
    "unknown": ("#6B7280", "verdict unknown"),
    "none": ("#0072B2", "kernel"),
}
#: The marker of each limiter, as Vega names it.
BOUNDS = {
    "memory": ("circle", "memory bound"),
    "compute": ("square", "compute bound"),
    "latency": ("triangle-up", "latency bound: neither roof is near"),
    "unknown": ("diamond", "bound unknown"),
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
    """Return a line for each roof, verdict and limiter of the chart, and for each other mark that it has."""
    names = roof_names(chart)
    entries = [Entry("line", names[one], color, dash) for one, (color, dash) in roof_looks(chart).items()]
    verdicts = {one.verdict for one in chart.kernels}
    if verdicts - {"none"}:
        entries += [Entry("color", text, color, "circle") for key, (color, text) in VERDICTS.items() if key in verdicts]
    bounds = {one.bound for one in chart.kernels}
    entries += [Entry("shape", text, FAINT, shape) for key, (shape, text) in BOUNDS.items() if key in bounds]
    kernels = chart.kernels
    marks = (
        ("arrow", "headroom to the roof", any(one.arrow_tip is not None for one in kernels)),
        ("range", "range of the figure", any(one.range_ends is not None for one in kernels)),
        ("before", f"in {chart.since}" if chart.since else "the baseline", any(one.earlier for one in kernels)),
        ("area", "area: share of the time", len({one.share for one in kernels if one.share}) > 1),
    )
    return entries + [Entry("mark", text, FAINT, shape) for shape, text, is_drawn in marks if is_drawn]


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
