"""The counts of one kernel, and what every counter format shares: means over dispatches, and the checks of these.

A mean is over dispatches, never a sum against one launch's time. A counter that is zero in the whole file is missing, not
zero: builds list counters they do not feed (rocprofiler-sdk#47, #57; rocm-systems#5953, #8523).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from ..units import number

#: Dispatches whose HBM counters differ by more than this part of their mean are not of one kind. The writes of a copy that
#: still lie in the L2 differ by 0.38 (vecCopy of 8 MiB on MI200); decode steps of an MoE by their routing.
MOST_SPREAD = 0.5
#: Timestamps coarser than this part of the duration have lost it (a spreadsheet writes 8.1097E+14).
_COARSEST = 0.01


#: The figures that the bytes over the memory roof are made of.
HBM_FIGURES = ("hbm", "hbm reads", "hbm writes")


class Problem(NamedTuple):
    """Why a figure of a kernel cannot be given, or how it must be read."""

    figure: str  # one of HBM_FIGURES, a cache level, a dtype, or flops
    text: str

    def __str__(self) -> str:
        return f"{self.figure}: {self.text}"


class Dispatch(NamedTuple):
    """One launch."""

    name: str
    values: Mapping[str, float]  # its counters as collected
    t_s: float | None = None  # its own time, where the file has it
    grid: str = ""


class KernelCounts(NamedTuple):
    """What the counters say of one kernel, as the mean over its dispatches."""

    name: str
    dispatches: int
    t_s: float | None
    bytes: Mapping[str, float]  # by level: hbm (with hbm_read and hbm_write), l2, l1; without those that cannot be given
    flops: Mapping[str, float]  # by dtype on the matrix units; vector_ before a dtype elsewhere, sparse_ for sparse inputs
    source: str
    corroboration: Mapping[str, float]  # percentages
    problems: tuple[Problem, ...]
    grids: int = 1  # grid sizes that ran under the name
    spread: float = 0.0  # (largest - smallest) / mean of the HBM counters over the dispatches
    units: tuple[str, ...] = ()  # whose FLOPs were counted, all of them: matrix, vector
    durations_s: Sequence[float] = ()  # of each dispatch that has a time

    def to_dict(self) -> dict[str, object]:
        """Plain builtins, ready for JSON, without the time of each dispatch."""
        fields = {name: value for name, value in self._asdict().items() if name != "durations_s"}
        return {**fields, "problems": list(map(str, self.problems))}


class CounterFile(NamedTuple):
    """One file of counters."""

    label: str
    source: str  # the tool and the kind of file
    gfx: str | None  # None where neither the caller nor the file names it
    kernels: tuple[KernelCounts, ...]
    problems: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()  # the architectures that the file itself names, or a file next to it
    no_bytes: str = ""  # what a file without byte counters has instead
    is_nvidia: bool = False
    device_names: tuple[str, ...] = ()  # where the file has them

    @property
    def remarks(self) -> tuple[str, ...]:
        """What to tell a reader of the file itself: its problems, and that it has no byte counters."""
        return (*self.problems, self.no_bytes) if self.no_bytes else self.problems


class DispatchGroup:
    """The dispatches of one kernel; gives means, and keeps a problem for each that it cannot give.

    fed: the counters that are not zero in the whole file.
    """

    def __init__(self, name: str, dispatches: Sequence[Dispatch], fed: AbstractSet[str]) -> None:
        self.name, self.dispatches, self.fed = name, dispatches, fed
        self.names = {name for dispatch in dispatches for name in dispatch.values}
        self.problems: list[Problem] = []
        self.carriers: dict[str, frozenset[int]] = {}
        self.spread = 0.0

    def refuse(self, figure: str, text: str) -> None:
        """Keep why a figure cannot be given, or how it must be read."""
        self.problems.append(Problem(figure, text))

    def has(self, *names: str) -> bool:
        """Whether one of these counters was collected."""
        return not self.names.isdisjoint(names)

    def live(self, name: str) -> bool:
        """Collected, and fed: not zero in the whole file."""
        return name in self.names and name in self.fed

    def mean(self, name: str) -> float:
        """The mean over the dispatches that carry the counter; 0 where none does."""
        values = [dispatch.values[name] for dispatch in self.dispatches if name in dispatch.values]
        return sum(values) / len(values) if values else 0.0

    def means(self, figure: str, *names: str, may_be_zero: Sequence[str] = ()) -> dict[str, float] | None:
        """The means of the counters that one figure needs; None with the reason in ``problems``.

        All must come from the same dispatches (a filter on some passes only gave 342 % of a peak: rocprofiler-compute#80;
        mixed passes 207 %: rocm-systems#9324).
        """
        for name in names:
            if not self.has(name):
                self.refuse(figure, f"{name} was not collected")
                return None
            if name not in self.fed and name not in may_be_zero:
                self.refuse(figure, f"{name} is zero in the whole file, so it is missing")
                return None
        carriers = {name: frozenset(at for at, one in enumerate(self.dispatches) if name in one.values) for name in names}
        if self._are_mixed(figure, carriers):
            return None
        self.carriers[figure] = carriers[names[0]]
        if figure in HBM_FIGURES and not self._is_one_kind(figure, names):
            return None
        return {name: self.mean(name) for name in names}

    def _are_mixed(self, figure: str, carriers: Mapping[str, frozenset[int]]) -> bool:
        """Whether these figures are not of the same dispatches."""
        if len(set(carriers.values())) <= 1:
            return False
        counts = ", ".join(f"{name} on {len(places)}" for name, places in carriers.items())
        self.refuse(figure, f"passes are mixed ({counts} of {len(self.dispatches)} dispatches)")
        return True

    def _is_one_kind(self, figure: str, names: Sequence[str]) -> bool:
        """Whether the dispatches moved about the same: with a warm-up or another shape, a mean describes no launch."""
        totals = [sum(one.values[name] for name in names) for one in self.dispatches if names[0] in one.values]
        least, most, mean = min(totals), max(totals), sum(totals) / len(totals)
        spread = (most - least) / mean if mean > 0 else 0.0
        self.spread = max(self.spread, spread)
        if spread <= MOST_SPREAD:
            return True
        self.refuse(
            figure,
            f"dispatches count from {least:.6g} to {most:.6g} of {' + '.join(names)}: not launches of one kind "
            "(--skip leaves warm-ups out)",
        )
        return False

    def may_add(self, figure: str, *parts: str) -> bool:
        """Whether figures that ``means`` gave are of the same dispatches, so that they may be added."""
        return not self._are_mixed(figure, {part: self.carriers[part] for part in parts})

    def counts(
        self,
        levels: Mapping[str, float],
        flops: Mapping[str, float],
        source: str,
        corroboration: Mapping[str, float],
        units: tuple[str, ...],
    ) -> KernelCounts:
        """Return what the counters say, without the levels that cannot be."""
        times = [dispatch.t_s for dispatch in self.dispatches if dispatch.t_s is not None]
        return KernelCounts(
            self.name,
            len(self.dispatches),
            sum(times) / len(times) if times else None,
            plausible_levels(self, levels),
            flops,
            source,
            corroboration,
            tuple(self.problems),
            len({dispatch.grid for dispatch in self.dispatches}),
            self.spread,
            units,
            times,
        )


def group_dispatches(dispatches: Iterable[Dispatch], skip: int) -> list[DispatchGroup]:
    """Group by kernel name, without the first ``skip`` dispatches of each (warm-up launches), in order of appearance."""
    by_name: dict[str, list[Dispatch]] = {}
    fed: set[str] = set()
    for dispatch in dispatches:
        by_name.setdefault(dispatch.name, []).append(dispatch)
        fed.update(key for key, value in dispatch.values.items() if value)
    return [DispatchGroup(name, items[skip:] if len(items) > skip else items, fed) for name, items in by_name.items()]


def plausible_levels(group: DispatchGroup, bytes_by_level: Mapping[str, float]) -> dict[str, float]:
    """Drop the levels that cannot be: zero bytes, and more traffic below a cache than above it.

    Every byte of a level passes the one above, so the intensity grows from L1 to L2 to HBM (rocprofiler-compute#690).
    """
    levels = {key: value for key, value in bytes_by_level.items() if value > 0 or key in ("hbm_read", "hbm_write")}
    if bytes_by_level.get("hbm") == 0:
        group.refuse("hbm", "zero bytes, so the counters are unavailable")
    order = [key for key in ("l1", "l2", "hbm") if key in levels]
    for upper, lower in zip(order, order[1:]):
        if levels[lower] > levels[upper] * (1 + KNOWN_COPY_BAND):
            group.refuse(
                "hbm",
                f"{lower}: {levels[lower]:.6g} bytes are more than the {levels[upper]:.6g} of {upper}: intensity "
                "must grow by level, so neither is believed",
            )
            return {}
    return levels


#: A copy of known traffic must read within this, and the levels may contradict each other by no more.
KNOWN_COPY_BAND = 0.02


def read_duration(start: str, end: str, where: str) -> float:
    """Return the seconds between two timestamps in ns as the file spells them. Raises ValueError when they give no time."""
    first, last = number(start, f"{where}: Start_Timestamp"), number(end, f"{where}: End_Timestamp")
    if last <= first:
        raise ValueError(f"{where}: the timestamps give no time (start {start}, end {end})")
    if max(_resolution(start), _resolution(end)) > _COARSEST * (last - first):
        raise ValueError(f"{where}: the timestamps have lost their resolution (start {start}, end {end})")
    return (last - first) / 1e9


def _resolution(text: str) -> float:
    """What one step of the last written digit is worth: 1e10 for 8.1097E+14."""
    mantissa, _, exponent = text.strip().lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    return float(10.0 ** (int(exponent or 0) - decimals))
