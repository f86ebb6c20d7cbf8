"""Colours and shapes, once for every renderer: a verdict has a colour, a bound a shape, a roof a colour and a dash."""

from __future__ import annotations

from collections import Counter

from roofline_engine.units import quantity

from .layout import Entry
from .model import Bandwidth, Ceiling, Model

#: Okabe and Ito's palette, told apart by people who see fewer colours; the shape says the bound without any.
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
#: In the dark, each colour of the drawing is this one.
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


def ceilings(model: Model) -> list[tuple[Ceiling, str, str]]:
    """Each ceiling with its colour and its dash, solid but for measured ones beside rated."""
    ranked = sorted(model.ceilings, key=lambda one: (-one.flops_s, one.name))
    return [(one, CEILINGS[at % len(CEILINGS)], dash(one.basis)) for at, one in enumerate(ranked)]


def bandwidths(model: Model) -> list[tuple[Bandwidth, str, str]]:
    """Each bandwidth with its colour and its dash, main memory first."""
    main = model.main
    ranked = sorted(model.bandwidths, key=lambda one: (one != main, -one.bytes_s, one.name))
    return [(one, BANDWIDTHS[at % len(BANDWIDTHS)], dash(one.basis)) for at, one in enumerate(ranked)]


def dash(basis: str) -> str:
    return "--" if basis == "measured" else "-"


def legend(model: Model) -> list[Entry]:
    """One line for each roof, each verdict and each bound that the figure has."""
    told = names(model)
    found = [Entry("line", told[one], colour, shape) for one, colour, shape in ceilings(model)]
    found += [Entry("line", told[one], colour, shape) for one, colour, shape in bandwidths(model)]
    verdicts = {one.verdict for one in model.kernels}
    if verdicts - {"none"}:
        found += [Entry("colour", text, colour, "o") for key, (colour, text) in VERDICTS.items() if key in verdicts]
    bounds = {one.bound for one in model.kernels}
    found += [Entry("shape", text, FAINT, shape) for key, (shape, _, text) in BOUNDS.items() if key in bounds]
    return found


def names(model: Model) -> dict[Ceiling | Bandwidth, str]:
    """What each roof is called, no two alike: those that share a name are told apart by their figure, then their dtype."""
    roofs: list[Ceiling | Bandwidth] = [*(one for one, *_ in ceilings(model)), *(one for one, *_ in bandwidths(model))]
    found = {one: named(one) for one in roofs}
    for more in (_figure, _dtype, _number):
        twice = Counter(found.values())
        seen: Counter[str] = Counter()
        for one, name in found.items():
            seen[name] += 1
            if twice[name] > 1:
                found[one] = more(one, name, seen[name])
    return found


def _figure(one: Ceiling | Bandwidth, name: str, _: int) -> str:
    rate, unit = (one.flops_s, "FLOP/s") if isinstance(one, Ceiling) else (one.bytes_s, "B/s")
    return f"{name}: {quantity(rate, unit)}"


def _dtype(one: Ceiling | Bandwidth, name: str, _: int) -> str:
    word = (one.dtype or one.unit) if isinstance(one, Ceiling) else one.level
    return f"{name}, {word}" if word else name


def _number(_: Ceiling | Bandwidth, name: str, at: int) -> str:
    return f"{name} ({at})"


def named(one: Ceiling | Bandwidth) -> str:
    """A roof's name, with its basis where the name does not say it."""
    if one.basis == "given" or one.basis in one.name:
        return one.name
    return f"{one.name}, {one.basis}"
