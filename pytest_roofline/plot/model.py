"""The chart as values: roofs, kernels with their percent of the binding roof, and excluded rows with their reason.

Nothing here is drawn or placed on paper. Intensities are in FLOP/byte, rates in FLOP/s, bandwidths in bytes/s.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, NamedTuple

from roofline_engine.roofline import attainable_rate, bound, lower_ceiling, point, ridge, roof_axis_at
from roofline_engine.units import quantity

from ..report.columns import shorten

#: Level names that mean main memory.
MAIN_MEMORY = ("hbm", "dram", "memory", "vram", "gddr", "main")
#: Smallest speedup to the roof that gets an arrow.
WORTH_AN_ARROW = 1.15
#: A narrower range fits inside a marker and is not drawn.
WIDE = 1.1
#: Longest label of a kernel.
LONGEST_LABEL = 30
#: Characters of a name that make it distinct: a mangled template has thousands.
_WHOLE = 4000
_ARGUMENTS = re.compile(r"\([^()]*\)$")
_SENSIBLE = (1e-30, 1e30)
#: A smaller excess over the roof is the rounding of printed figures.
ROUNDING = 1.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandwidth:
    """One limit of slope one."""

    name: str
    bytes_s: float
    level: str = ""  # of memory, lower case; "" when unknown
    basis: str = "given"  # rated, measured or given


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """One flat limit."""

    name: str
    flops_s: float
    dtype: str | None = None  # of the kernels it limits; None limits all
    unit: str | None = None  # matrix or vector
    basis: str = "given"  # rated, measured or given
    meaning: str = ""  # what staying under it says, where memory would allow more


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel to draw."""

    row: int  # position in the input
    name: str
    rate: float
    spots: tuple[tuple[str, float], ...]  # (level, intensity) per counted memory level; the binding level first
    fraction: float | None = None  # of the binding roof, or of the only known one (only_roof)
    bytes_s: float | None = None  # the memory limit above it
    flops_s: float | None = None  # the compute limit above it
    axis: str | None = None
    bound: str = "unknown"
    verdict: str = "none"
    reason: str = ""
    share: float | None = None  # of the time, percent
    dtype: str | None = None
    lower_ceiling: Ceiling | None = None  # the lower ceiling that explains the rate
    earlier: tuple[tuple[float, float], ...] = ()  # intensity and rate of its baseline, or in earlier runs, the oldest first
    change: float | None = None  # how much faster it is than in the first of several runs
    fraction_before: float | None = None  # of its roof in that run
    range_ends: tuple[tuple[float, float], tuple[float, float]] | None = None  # of its range, when wide
    basis: str = ""
    interval: str = ""
    roof_limits: bool = True  # False when a cache or the launch limits it instead
    key: str = ""  # the whole name, by which runs are compared
    alias: str = ""  # label that stays distinct from the labels of similar names
    by_level: tuple[tuple[str, float], ...] = ()  # (level, fraction of the roof at its intensity), where levels are counted
    only_roof: str = ""  # "memory" or "compute" when the other limit is unknown: the percent names this roof, no headroom

    @property
    def intensity(self) -> float:
        return self.spots[0][1]

    @property
    def roof(self) -> float | None:
        """The attainable rate at its intensity."""
        return attainable_rate(self.intensity, self.bytes_s, self.flops_s)

    @property
    def roof_word(self) -> str:
        """The roof of its percent: that of the level which binds, where it is not main memory."""
        level = self.spots[0][0]
        return f"{level.upper()} roof" if level and level not in MAIN_MEMORY and self.axis == "memory" else "roof"

    @property
    def is_ranked(self) -> bool:
        """Whether its percent is of the binding roof, so that it compares with other kernels."""
        return self.fraction is not None and self.roof_limits and not self.only_roof

    @property
    def percent_text(self) -> str:
        """The percent, with the roof's name when another roof may bind."""
        if self.fraction is None:
            return "unknown"
        if self.only_roof:
            return f"{percent(self.fraction)} of the {self.only_roof} roof alone"
        if self.roof_word != "roof":
            return f"{percent(self.fraction)} of the {self.roof_word}"
        return percent(self.fraction) if self.roof_limits else f"{percent(self.fraction)} of the {self.axis or 'known'} roof"

    @property
    def headroom(self) -> float | None:
        """The speedup at the roof."""
        return 1.0 / self.fraction if self.fraction and self.roof_limits and not self.only_roof else None

    @property
    def has_headroom(self) -> bool:
        """Whether the headroom is large enough to show, and no change is shown instead."""
        return self.change is None and self.headroom is not None and self.headroom >= WORTH_AN_ARROW

    @property
    def arrow_tip(self) -> float | None:
        """The rate where the arrow to its roof ends; None without an arrow."""
        return self.roof if self.has_headroom and self.roof is not None and self.roof > self.rate else None

    @property
    def label_name(self) -> str:
        """The name on its label."""
        return self.alias or short_label(self.name)

    @property
    def explanation(self) -> str:
        """What staying under a lower ceiling means, right of the ridge of that ceiling."""
        return "" if self.lower_ceiling is None else self.lower_ceiling.meaning or f"under {self.lower_ceiling.name}"

    def label(self, terse: bool = False) -> tuple[str, ...]:
        """Return the lines of its label: name, percent with headroom, and what a lower ceiling explains."""
        if self.fraction is None:
            return (self.label_name, "no roof known")
        if self.only_roof:
            other = "memory" if self.only_roof == "compute" else "compute"
            return (self.label_name, f"{percent(self.fraction)} of {self.only_roof} roof", f"{other} roof unknown")
        word = self.roof_word
        second = percent(self.fraction) if terse and word == "roof" else f"{percent(self.fraction)} of {word}"
        if not self.roof_limits:
            second = f"{percent(self.fraction)} of {self.axis or 'known'} roof"
        if self.change is not None:
            second = f"{percent(self.fraction_before)} → {second}" if self.fraction_before is not None else second
            second += f", {factor_text(self.change)}"
        if self.has_headroom:
            second += f", up to {times(self.headroom or 1)}"
        lines = [self.label_name, second]
        if self.explanation:
            lines.append(self.explanation)
        elif self.reason and self.verdict == "unknown":
            lines.append(f"unknown: {readable(self.reason)}")
        return tuple(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Excluded:
    """A row that is listed beside the plot, with the reason."""

    row: int
    name: str
    kind: str  # copy, not measured, unmodelled, impossible, unusable, other device
    why: str


class Change(NamedTuple):
    """What happened to one kernel between the first and the last of several runs."""

    name: str
    fraction_before: float | None  # of the roof
    fraction: float | None
    factor: float | None  # how much faster; None in one run alone
    word: str  # faster, slower, within the noise of reruns, new, or only in a run


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Everything that a renderer draws."""

    title: str
    subtitle: str
    bandwidths: tuple[Bandwidth, ...]
    ceilings: tuple[Ceiling, ...]
    kernels: tuple[Kernel, ...]
    excluded: tuple[Excluded, ...] = ()
    notes: tuple[str, ...] = ()
    failures: tuple[tuple[str, str, str], ...] = ()  # rows that failed a gate: name, reason, arithmetic
    changes: tuple[Change, ...] = ()  # of several runs, the largest slowdown first
    since: str = ""  # the first of several runs
    columns: dict[str, list[Any]] = field(default_factory=dict)  # what picking shows: field -> one value per input row

    @property
    def main(self) -> Bandwidth | None:
        """The bandwidth that limits a kernel without memory levels."""
        return main_bandwidth(self.bandwidths)

    @property
    def ridges(self) -> tuple[tuple[float, float], ...]:
        """Where each ceiling meets main memory, and where the highest one meets every other bandwidth."""
        if not self.ceilings:
            return ()
        top = max(ceiling.flops_s for ceiling in self.ceilings)
        points: dict[tuple[float, float], None] = {}
        for bandwidth in self.bandwidths:
            for ceiling in self.ceilings if bandwidth == self.main else ():
                points[ridge(ceiling.flops_s, bandwidth.bytes_s), ceiling.flops_s] = None
            points[ridge(top, bandwidth.bytes_s), top] = None
        return tuple(points)

    @property
    def levels(self) -> tuple[str, ...]:
        """Memory levels at which kernels have points."""
        return tuple(dict.fromkeys(level for kernel in self.kernels for level, _ in kernel.spots))


def is_drawable(value: float) -> bool:
    """Whether a logarithmic axis can hold a positive value."""
    return _SENSIBLE[0] <= value <= _SENSIBLE[1]


def check_range(value: float, what: str) -> float:
    """Return a positive intensity, rate or bandwidth that a drawing can hold.

    Raises:
        ValueError: naming ``what``.
    """
    if not value > 0:
        raise ValueError(f"{what} is {value:g}, expected more than 0")
    if not is_drawable(value):
        raise ValueError(f"{what} is {value:g}, out of the range of any machine")
    return value


def row_name(name: object, index: int) -> str:
    """Return the whole name of a row, or its position when it has none."""
    text = "" if name is None or name != name else str(name)
    return shorten(text, _WHOLE) if text.strip() else f"row {index + 1}"


def readable(code: str) -> str:
    """Return a code of a closed set as words."""
    return code.replace("_", " ")


def percent(fraction: float) -> str:
    value = 100 * fraction
    return f"{value:.1f}%" if value >= 0.095 else f"{value:.2g}%"


def factor_text(factor: float | None) -> str:
    """Return a change as a factor of at least 1, with its direction; nothing for a kernel of one run alone."""
    if factor is None:
        return ""
    return f"{times(factor)} faster" if factor >= 1 else f"{times(1 / factor)} slower"


def times(factor: float) -> str:
    if factor < WORTH_AN_ARROW:
        return f"{factor:.2f}x"
    return f"{factor:.1f}x" if factor < 9.95 else f"{factor:,.0f}x"


def main_bandwidth(bandwidths: Sequence[Bandwidth]) -> Bandwidth | None:
    """Return the bandwidth of main memory: by level name, else of the slowest level; the highest value of that level."""
    candidates = [one for one in bandwidths if one.level in MAIN_MEMORY]
    if not candidates and bandwidths:
        slowest = min(bandwidths, key=lambda one: one.bytes_s).level
        candidates = [one for one in bandwidths if one.level == slowest]
    return max(candidates, key=lambda one: one.bytes_s, default=None)


class Roofs:
    """The limits of one machine, and what a kernel reaches under the limits of its dtype."""

    def __init__(self, bandwidths: Sequence[Bandwidth], ceilings: Sequence[Ceiling]) -> None:
        self.bandwidths, self.ceilings = bandwidths, ceilings
        self.main = main_bandwidth(bandwidths)
        self._fastest = {"": self.main.bytes_s if self.main else None}
        for bandwidth in bandwidths:
            if bandwidth.level:
                self._fastest[bandwidth.level] = max(self._fastest.get(bandwidth.level) or 0.0, bandwidth.bytes_s)
        self._compute_roofs: dict[str | None, tuple[float | None, list[Ceiling]]] = {}

    @property
    def headline(self) -> str:
        """What the limits say without kernels: where the highest ridge is."""
        top = max(self.ceilings, key=lambda one: one.flops_s, default=None)
        if top is None or self.main is None:
            return "Roofline"
        return f"Memory binds below {ridge(top.flops_s, self.main.bytes_s):.3g} FLOP/byte, {top.name} above"

    def _compute_roof(self, dtype: str | None) -> tuple[float | None, list[Ceiling]]:
        """Return the highest ceiling of a dtype, else of those for all dtypes, and the lower ceilings that explain a rate."""
        if dtype not in self._compute_roofs:
            of_dtype = [one for one in self.ceilings if one.dtype == dtype and one.dtype is not None]
            candidates = of_dtype or [one for one in self.ceilings if one.dtype is None]
            top = max((one.flops_s for one in candidates), default=None)
            bases = {one.basis for one in candidates if one.flops_s == top}  # a measured one under a rated one explains nothing
            lower = [one for one in candidates if top is not None and one.flops_s < top and one.basis in bases]
            self._compute_roofs[dtype] = top, lower
        return self._compute_roofs[dtype]

    def place(self, kernel: Kernel) -> Kernel:
        """Return the kernel with its roof, its percent, and the ceiling that explains the rest.

        Of several memory levels, the one that attains least at its own intensity binds and comes first.
        """
        flops_s, lower = self._compute_roof(kernel.dtype)
        attained = {spot: attainable_rate(spot[1], self._fastest.get(spot[0]), flops_s) or math.inf for spot in kernel.spots}
        spots = tuple(sorted(attained, key=lambda spot: attained[spot]))
        (level, intensity), rate = spots[0], kernel.rate
        bytes_s = self._fastest.get(level)
        roof = attainable_rate(intensity, bytes_s, flops_s)
        explaining = lower_ceiling(intensity, rate, bytes_s, [one.flops_s for one in lower])
        return replace(
            kernel,
            spots=spots,
            fraction=rate / roof if roof else None,
            by_level=tuple((spot[0], rate / attained[spot]) for spot in spots) if len(spots) > 1 else (),
            bytes_s=bytes_s,
            flops_s=flops_s,
            only_roof="" if roof is None or (bytes_s and flops_s) else "memory" if bytes_s else "compute",
            axis=roof_axis_at(intensity, bytes_s, flops_s),
            bound=bound(point(rate / intensity, rate, 1.0, bytes_s, flops_s)),
            lower_ceiling=next((one for one in lower if one.flops_s == explaining), None),
        )


def short_label(name: str) -> str:
    """Return a name for a label: a C++ signature without ``void`` and its arguments, then shortened."""
    if "<" in name or "::" in name:
        name = _ARGUMENTS.sub("", name.removeprefix("void ")) or name
    return shorten(name, LONGEST_LABEL)


def meaning_of(name: str) -> str:
    """Return what staying under a ceiling of this name means, where memory would allow more."""
    words = name.lower()
    if "scalar" in words or "no vector" in words or "not vector" in words:
        return "not vectorized"
    if "no fma" in words or "no-fma" in words or "without fma" in words:
        return "no fused multiply-add"
    return ""


def make_title(kernels: Sequence[Kernel], excluded: Sequence[Excluded], roofs: Roofs) -> str:
    """Return what to see: the kernel with most to win, weighted by its share of the time; the ridge without kernels.

    A row without a verdict does not rank. When it would come first, the title says that it was passed over.
    """
    known = [one for one in kernels if one.is_ranked]
    if not known:
        nothing = "No row has a place on this plot: see the list for the reasons" if excluded else roofs.headline
        return "Roofline: the binding roof of these kernels is unknown" if kernels else nothing
    if len(known) == len(kernels) == 1:
        (only,) = known
        return f"{only.label_name} reaches {percent(only.fraction or 0)} of its roof{_with_explanation(only)}"
    judged = [one for one in known if one.verdict != "unknown"] or known
    first = _most_to_win(judged)
    among = "" if first is _most_to_win(known) else "Of the rows with a verdict, "
    if all(one.share is not None for one in judged):
        text = f"{first.share:.3g}% of the time at {percent(first.fraction or 0)} of its roof"
        return f"{among}{first.label_name} has most to win: {text}{_with_explanation(first)}"
    return f"{among}{first.label_name} is farthest from its roof, at {percent(first.fraction or 0)}{_with_explanation(first)}"


def _most_to_win(kernels: Sequence[Kernel]) -> Kernel:
    if all(one.share is not None for one in kernels):
        return max(kernels, key=lambda one: (one.share or 0) * (1 - (one.fraction or 0)))
    return min(kernels, key=lambda one: one.fraction or 0)


def _with_explanation(kernel: Kernel) -> str:
    return f": {kernel.lower_ceiling.meaning}" if kernel.lower_ceiling is not None and kernel.lower_ceiling.meaning else ""


def make_subtitle(kernels: Sequence[Kernel], excluded: Sequence[Excluded], basis: str) -> str:
    """Return the line under the title: the number of kernels, their median, the number of excluded rows, and the basis."""
    fractions = [one.fraction for one in kernels if one.fraction is not None and one.is_ranked]
    number = count_kernels(len(kernels))
    if len(fractions) > 1:
        of = "" if len(fractions) == len(kernels) else f", {len(fractions)} of them under a roof that binds"
        number += f"{of}, median {percent(median(fractions))} of the roof"
    rest = [f"{len(excluded)} listed, not drawn"] if excluded else []
    return "; ".join([number, *rest, *([basis] if basis else [])])


def count_kernels(count: int) -> str:
    return f"{count} kernel{'' if count == 1 else 's'}"


def split_impossible(kernels: Iterable[Kernel]) -> tuple[list[Kernel], list[Excluded]]:
    """Split kernels into possible ones and those above their roof, whose work model, peak or time is wrong."""
    possible, impossible = [], []
    for one in kernels:
        if one.fraction is not None and one.fraction > ROUNDING:
            impossible.append(exclude_above_roof(one.row, one.name, one.rate, one.rate / one.fraction))
        else:
            possible.append(one)
    return possible, impossible


def exclude_above_roof(row: int, name: str, rate: float, roof: float) -> Excluded:
    """Return the exclusion of a row whose rate is above its roof."""
    why = f"{quantity(rate, 'FLOP/s')} is {rate / roof:.3g} times its roof of {quantity(roof, 'FLOP/s')}"
    return Excluded(row=row, name=name, kind="impossible", why=why)
