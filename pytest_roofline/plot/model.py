"""The figure as values: roofs, kernels with their percent of the roof that binds, what is left out and why.

Nothing is drawn here and no position on paper is known; intensities are in FLOP/byte, rates in FLOP/s, bandwidths in bytes/s.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from roofline_engine.metrics import bound, point
from roofline_engine.roofs import attainable, below_ceiling, binds, ridge
from roofline_engine.units import printable, quantity

#: Words that tell the one memory that is the last level, where a bandwidth carries its level.
MAIN_MEMORY = ("hbm", "dram", "memory", "vram", "gddr", "main")
#: A row under the roof by less than this has no way to show.
WORTH_AN_ARROW = 1.15
#: A range narrower than this is inside a marker.
WIDE = 1.1
#: Longest name that is shown whole: a C++ template may have thousands of characters.
LONGEST, LONGEST_LABEL = 120, 30
#: Of a name that is told apart: letters of its beginning, and before what differs.
_HEAD, _BEFORE = 8, 5
#: Combining marks that no language piles up so high: they would be drawn over what stands above.
_PILED = re.compile("([\u0300-\u036f]{3})[\u0300-\u036f]+")
_ARGUMENTS = re.compile(r"\([^()]*\)$")
_SENSIBLE = (1e-30, 1e30)
#: A rate over its roof by less than this is the rounding of printed figures.
ROUNDING = 1.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandwidth:
    """One limit of slope one. level: of the memory, lower case, "" where nothing says. basis: rated, measured, or given."""

    name: str
    bytes_s: float
    level: str = ""
    basis: str = "given"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """One flat limit. dtype, unit: of whose kernels, None for all; meaning: of staying under it where memory would not."""

    name: str
    flops_s: float
    dtype: str | None = None
    unit: str | None = None
    basis: str = "given"
    meaning: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel to draw.

    spots: (level, intensity), one for each level of memory that was counted, the one that binds first. fraction: of the roof
    that binds, or of the one that is known (``lone``); None where none is. flops_s, bytes_s: the limits over it. share: of the
    time, a percent. before: intensity and rate of its baseline. span: two ends of its range where it is wide. row: its place in
    the input. limited: whether that roof is what limits it, which of work that stays in a cache, say, it is not. lone:
    ``memory`` or ``compute`` where a table gives that limit alone: the other may bind, so the percent names its roof and
    nothing is said of the way to it. alias: the name on its label where several names would be one when they are short.
    """

    row: int
    name: str
    rate: float
    spots: tuple[tuple[str, float], ...]
    fraction: float | None = None
    bytes_s: float | None = None
    flops_s: float | None = None
    axis: str | None = None
    bound: str = "unknown"
    verdict: str = "none"
    reason: str = ""
    share: float | None = None
    dtype: str | None = None
    below: Ceiling | None = None
    before: tuple[float, float] | None = None
    span: tuple[tuple[float, float], tuple[float, float]] | None = None
    basis: str = ""
    interval: str = ""
    limited: bool = True
    alias: str = ""
    lone: str = ""

    @property
    def intensity(self) -> float:
        return self.spots[0][1]

    @property
    def roof(self) -> float | None:
        """The rate of the roof over it."""
        return attainable(self.intensity, self.bytes_s, self.flops_s)

    @property
    def ranked(self) -> bool:
        """Whether its percent is of the roof that binds, and so can stand beside others'."""
        return self.fraction is not None and self.limited and not self.lone

    @property
    def reached(self) -> str:
        """Percent, and of which roof where that may not be the one that binds."""
        if self.fraction is None:
            return "unknown"
        if self.lone:
            return f"{percent(self.fraction)} of the {self.lone} roof alone"
        return percent(self.fraction) if self.limited else f"{percent(self.fraction)} of the {self.axis or 'known'} roof"

    @property
    def most(self) -> float | None:
        """How much faster the roof would be."""
        return 1.0 / self.fraction if self.fraction and self.limited and not self.lone else None

    @property
    def far(self) -> bool:
        """Whether the way to the roof is worth telling."""
        return self.most is not None and self.most >= WORTH_AN_ARROW

    @property
    def tip(self) -> float | None:
        """Where the arrow to its roof ends; None where there is no way worth one, or nothing that says where the roof is."""
        return self.roof if self.far and self.roof is not None and self.roof > self.rate else None

    @property
    def shown(self) -> str:
        """The name on a label."""
        return self.alias or labelled(self.name)

    @property
    def told(self) -> str:
        """What it means that the kernel stays under a lower ceiling, right of that ceiling's ridge."""
        return "" if self.below is None else self.below.meaning or f"under {self.below.name}"

    def label(self, terse: bool = False) -> tuple[str, ...]:
        """Name, percent of the attainable roof with the way that is left, and what a lower ceiling says."""
        if self.fraction is None:
            return (self.shown, "no roof known")
        if self.lone:
            other = "memory" if self.lone == "compute" else "compute"
            return (self.shown, f"{percent(self.fraction)} of {self.lone} roof", f"{other} roof unknown")
        second = percent(self.fraction) if terse else f"{percent(self.fraction)} of roof"
        if not self.limited:
            second = f"{percent(self.fraction)} of {self.axis or 'known'} roof"
        if self.far:
            second += f", up to {times(self.most or 1)}"
        lines = [self.shown, second]
        if self.told:
            lines.append(self.told)
        elif self.reason and self.verdict == "unknown":
            lines.append(f"unknown: {worded(self.reason)}")
        return tuple(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A row that is listed beside the plot. kind: copy, not measured, unmodelled, impossible, unusable, other device."""

    row: int
    name: str
    kind: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """All that a renderer draws. columns: what picking shows, field by field, one value a row of the input."""

    title: str
    subtitle: str
    bandwidths: tuple[Bandwidth, ...]
    ceilings: tuple[Ceiling, ...]
    kernels: tuple[Kernel, ...]
    left: tuple[Left, ...] = ()
    notes: tuple[str, ...] = ()
    columns: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def main(self) -> Bandwidth | None:
        """The bandwidth under which a kernel without levels stands."""
        return main_bandwidth(self.bandwidths)

    @property
    def ridges(self) -> tuple[tuple[float, float], ...]:
        """Where each ceiling meets main memory, and the highest every other bandwidth."""
        if not self.ceilings:
            return ()
        top = max(one.flops_s for one in self.ceilings)
        found: dict[tuple[float, float], None] = {}
        for wide in self.bandwidths:
            for one in self.ceilings if wide == self.main else ():
                found[ridge(one.flops_s, wide.bytes_s), one.flops_s] = None
            found[ridge(top, wide.bytes_s), top] = None
        return tuple(found)

    @property
    def levels(self) -> tuple[str, ...]:
        """Levels of memory that kernels have points at."""
        return tuple(dict.fromkeys(level for kernel in self.kernels for level, _ in kernel.spots))


def sensible(value: float) -> bool:
    """Whether a drawing can hold a positive figure."""
    return _SENSIBLE[0] <= value <= _SENSIBLE[1]


def ranged(value: float, what: str) -> float:
    """A positive intensity, rate or bandwidth that a drawing can hold.

    Raises:
        ValueError: naming ``what``.
    """
    if not value > 0:
        raise ValueError(f"{what} is {value:g}, expected more than 0")
    if not sensible(value):
        raise ValueError(f"{what} is {value:g}, out of the range of any machine")
    return value


def shortened(name: str, longest: int = LONGEST) -> str:
    """A name for people: control characters escaped, the middle of a long one left out."""
    name = printable(name[: 4 * longest] + name[-longest:] if len(name) > 5 * longest else name)
    if not name.isascii():
        name = _PILED.sub(r"\1", name)
    if len(name) <= longest:
        return name
    head = (longest - 1) * 2 // 3
    return f"{name[:head]}…{name[len(name) - (longest - 1 - head) :]}"


def named(name: object, at: int) -> str:
    """A row's name, or its place where nothing can be read of it."""
    text = "" if name is None or name != name else str(name)
    return shortened(text) if text.strip() else f"row {at + 1}"


def worded(reason: str) -> str:
    """A word of a closed set for people."""
    return reason.replace("_", " ")


def percent(fraction: float) -> str:
    value = 100 * fraction
    return f"{value:.1f}%" if value >= 0.095 else f"{value:.2g}%"


def times(factor: float) -> str:
    if factor < WORTH_AN_ARROW:
        return f"{factor:.2f}x"
    return f"{factor:.1f}x" if factor < 9.95 else f"{factor:,.0f}x"


def main_bandwidth(bandwidths: Sequence[Bandwidth]) -> Bandwidth | None:
    """The last level of memory: by its name, else the slowest level; of several figures of one level the highest."""
    named = [one for one in bandwidths if one.level in MAIN_MEMORY]
    if not named and bandwidths:
        slowest = min(bandwidths, key=lambda one: one.bytes_s).level
        named = [one for one in bandwidths if one.level == slowest]
    return max(named, key=lambda one: one.bytes_s, default=None)


class Roofs:
    """The limits of one machine, and what a kernel reaches under those of its dtype."""

    def __init__(self, bandwidths: Sequence[Bandwidth], ceilings: Sequence[Ceiling]) -> None:
        self.bandwidths, self.ceilings = bandwidths, ceilings
        self.main = main_bandwidth(bandwidths)
        self._fastest = {"": self.main.bytes_s if self.main else None}
        for one in bandwidths:
            if one.level:
                self._fastest[one.level] = max(self._fastest.get(one.level) or 0.0, one.bytes_s)
        self._of_dtype: dict[str | None, tuple[float | None, list[Ceiling]]] = {}

    @property
    def told(self) -> str:
        """What the limits say alone: where the highest ridge is."""
        top = max(self.ceilings, key=lambda one: one.flops_s, default=None)
        if top is None or self.main is None:
            return "Roofline"
        return f"Memory binds below {ridge(top.flops_s, self.main.bytes_s):.3g} FLOP/byte, {top.name} above"

    def _compute(self, dtype: str | None) -> tuple[float | None, list[Ceiling]]:
        """The highest ceiling of a dtype, else of those for all, and the lower ones that can explain why it is not reached."""
        if dtype not in self._of_dtype:
            of_dtype = [one for one in self.ceilings if one.dtype == dtype and one.dtype is not None]
            own = of_dtype or [one for one in self.ceilings if one.dtype is None]
            top = max((one.flops_s for one in own), default=None)
            bases = {one.basis for one in own if one.flops_s == top}  # a measured ceiling under a rated one explains nothing
            lower = [one for one in own if top is not None and one.flops_s < top and one.basis in bases]
            self._of_dtype[dtype] = top, lower
        return self._of_dtype[dtype]

    def over(self, kernel: Kernel) -> Kernel:
        """The kernel with its roof, the percent of it, and what explains the rest.

        Of several levels the one that attains least at its own intensity binds, and comes first.
        """
        flops_s, lower = self._compute(kernel.dtype)
        spots = kernel.spots
        if len(spots) > 1:

            def attained(spot: tuple[str, float]) -> float:
                return attainable(spot[1], self._fastest.get(spot[0]), flops_s) or math.inf

            spots = tuple(sorted(spots, key=attained))
        (level, intensity), rate = spots[0], kernel.rate
        bytes_s = self._fastest.get(level)
        roof = attainable(intensity, bytes_s, flops_s)
        explains = below_ceiling(intensity, rate, bytes_s, [one.flops_s for one in lower])
        return replace(
            kernel,
            spots=spots,
            fraction=rate / roof if roof else None,
            bytes_s=bytes_s,
            flops_s=flops_s,
            lone="" if roof is None or (bytes_s and flops_s) else "memory" if bytes_s else "compute",
            axis=binds(intensity, bytes_s, flops_s),
            bound=bound(point(rate / intensity, rate, 1.0, bytes_s, flops_s)),
            below=next((one for one in lower if one.flops_s == explains), None),
        )


def labelled(name: str) -> str:
    """A name on a label: of a C++ signature without what all of them have, ``void`` and the arguments."""
    if "<" in name or "::" in name:
        name = _ARGUMENTS.sub("", name.removeprefix("void ")) or name
    return shortened(name, LONGEST_LABEL)


def aliases(names: Iterable[str]) -> dict[str, str]:
    """For names that differ only in what a label leaves out: labels with the part that differs."""
    shorts = {name: labelled(name) for name in names}
    ends: dict[str, tuple[str, str]] = {}
    for name, short in shorts.items():
        first, last = ends.get(short, (name, name))
        ends[short] = min(first, name), max(last, name)
    differs = {short: _alike(*both) for short, both in ends.items() if both[0] != both[1] and "…" in short}
    found = {}
    for name, short in shorts.items():
        if short in differs:
            begin = max(_HEAD, min(differs[short] - _BEFORE, len(name) - (LONGEST_LABEL - _HEAD - 2)))
            part = name[begin : begin + LONGEST_LABEL - _HEAD - 2]
            found[name] = f"{short[:_HEAD]}…{part}{'…' if begin + len(part) < len(name) else ''}"
    return found


def _alike(one: str, other: str) -> int:
    """Letters that two names begin with alike."""
    return next((at for at, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))


def meaning_of(name: str) -> str:
    """What it means to stay under a ceiling of this name although memory would let the kernel pass."""
    words = name.lower()
    if "scalar" in words or "no vector" in words or "not vector" in words:
        return "not vectorised"
    if "no fma" in words or "no-fma" in words or "without fma" in words:
        return "no fused multiply-add"
    return ""


def titled(kernels: Sequence[Kernel], left: Sequence[Left], roofs: Roofs) -> str:
    """What to see: the kernel with most to win, by its share of the time where that is known; without kernels, the ridge.

    A row without a verdict ranks nothing; where one would come first, the title says that it was left out.
    """
    known = [one for one in kernels if one.ranked]
    if not known:
        nothing = "No row has a place on this plot: the list says why" if left else roofs.told
        return "Roofline: what binds these kernels is not known" if kernels else nothing
    if len(known) == len(kernels) == 1:
        (only,) = known
        return f"{only.shown} reaches {percent(only.fraction or 0)} of its roof{_explained(only)}"
    judged = [one for one in known if one.verdict != "unknown"] or known
    first = _foremost(judged)
    among = "" if first is _foremost(known) else "Of the rows with a verdict, "
    if all(one.share is not None for one in judged):
        told = f"{first.share:.3g}% of the time at {percent(first.fraction or 0)} of its roof"
        return f"{among}{first.shown} has most to win: {told}{_explained(first)}"
    return f"{among}{first.shown} is farthest from its roof, at {percent(first.fraction or 0)}{_explained(first)}"


def _foremost(kernels: Sequence[Kernel]) -> Kernel:
    if all(one.share is not None for one in kernels):
        return max(kernels, key=lambda one: (one.share or 0) * (1 - (one.fraction or 0)))
    return min(kernels, key=lambda one: one.fraction or 0)


def _explained(kernel: Kernel) -> str:
    return f": {kernel.below.meaning}" if kernel.below is not None and kernel.below.meaning else ""


def counted(kernels: Sequence[Kernel], left: Sequence[Left], basis: str) -> str:
    """The line under the title: how many, the middle of them, what was left out, on what basis."""
    parts = []
    fractions = sorted(one.fraction for one in kernels if one.fraction is not None and one.ranked)
    number = f"{len(kernels)} kernel{'' if len(kernels) == 1 else 's'}"
    if len(fractions) > 1:
        middle = len(fractions) // 2
        median = fractions[middle] if len(fractions) % 2 else (fractions[middle - 1] + fractions[middle]) / 2
        of = "" if len(fractions) == len(kernels) else f", {len(fractions)} of them under a roof that binds"
        number += f"{of}, median {percent(median)} of the roof"
    parts.append(number)
    if left:
        parts.append(f"{len(left)} listed, not drawn")
    return "; ".join([*parts, *([basis] if basis else [])])


def impossible(kernels: Iterable[Kernel]) -> tuple[list[Kernel], list[Left]]:
    """Those that can be, and those over their roof: the model, the peak or the time of such a row is wrong."""
    right, wrong = [], []
    for one in kernels:
        if one.fraction is not None and one.fraction > ROUNDING:
            wrong.append(over_its_roof(one.row, one.name, one.rate, one.rate / one.fraction))
        else:
            right.append(one)
    return right, wrong


def over_its_roof(row: int, name: str, rate: float, roof: float) -> Left:
    """A row whose rate its roof does not allow."""
    why = f"{quantity(rate, 'FLOP/s')} is {rate / roof:.3g} times its roof of {quantity(roof, 'FLOP/s')}"
    return Left(row=row, name=name, kind="impossible", why=why)
