"""What counters said of one kernel, and the reading that every counter format shares: text, tables, means over dispatches.

A mean is over dispatches, never a sum against one launch's time. A counter that is zero in the whole file is missing, not
zero: builds list counters they do not feed (rocprofiler-sdk#47, #57; rocm-systems#5953, #8523).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ..units import number

#: Dispatches whose HBM counters differ by more than this part of their mean are not of one kind. The writes of a copy that
#: still lie in the L2 differ by 0.38 (vecCopy of 8 MiB on MI200); decode steps of an MoE by their routing.
MOST_SPREAD = 0.5
#: Timestamps coarser than this part of the duration have lost it (a spreadsheet writes 8.1097E+14).
_COARSEST = 0.01


class Dispatch(NamedTuple):
    """One launch: its counters as collected, its own time (s) where the file has it, its grid."""

    name: str
    values: Mapping[str, float]
    t_s: float | None = None
    grid: str = ""


class Measured(NamedTuple):
    """What the counters say of one kernel, as the mean over its dispatches.

    bytes: by level: ``hbm`` (with ``hbm_read`` and ``hbm_write``), ``l2``, ``l1``. flops: by dtype on the matrix units,
    ``vector_`` before a dtype elsewhere, ``sparse_`` before one that used structured sparsity. A level or a dtype that
    cannot be had is not in them; ``problems`` says why. grids: how many grid sizes ran under the name. spread: of the HBM
    counters over the dispatches, (largest - smallest) / mean.
    """

    name: str
    dispatches: int
    t_s: float | None
    bytes: Mapping[str, float]
    flops: Mapping[str, float]
    source: str
    corroboration: Mapping[str, float]
    problems: tuple[str, ...]
    grids: int = 1
    spread: float = 0.0

    def to_dict(self) -> dict[str, object]:
        """Plain builtins, ready for JSON."""
        out: dict[str, object] = dict(self._asdict())
        for key in ("bytes", "flops", "corroboration"):
            out[key] = dict(getattr(self, key))
        out["problems"] = list(self.problems)
        return out


class Counters(NamedTuple):
    """One file of counters as read. gfx is None where neither the caller nor the file says it.

    archs: the architectures that the file itself names, or a file beside it. lacks: what a file without byte counters has.
    """

    label: str
    source: str
    gfx: str | None
    kernels: tuple[Measured, ...]
    problems: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    lacks: str = ""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What to tell a reader of the file itself: its problems, and that it has no byte counters."""
        return (*self.problems, self.lacks) if self.lacks else self.problems


class Group:
    """The dispatches of one kernel; asks for means and keeps one line for each that cannot be given."""

    def __init__(self, name: str, dispatches: Sequence[Dispatch], dead: Iterable[str]) -> None:
        self.name, self.dispatches, self.dead = name, dispatches, frozenset(dead)
        self.names = {name for dispatch in dispatches for name in dispatch.values}
        self.problems: list[str] = []
        self.carriers: dict[str, frozenset[int]] = {}
        self.spread = 0.0

    def has(self, name: str) -> bool:
        return name in self.names

    def live(self, name: str) -> bool:
        """Collected, and fed: not zero in the whole file."""
        return self.has(name) and name not in self.dead

    def mean(self, name: str) -> float | None:
        """The mean over the dispatches that carry the counter."""
        found = [dispatch.values[name] for dispatch in self.dispatches if name in dispatch.values]
        return sum(found) / len(found) if found else None

    def together(self, what: str, *names: str, quiet: Sequence[str] = ()) -> dict[str, float] | None:
        """The means of counters that one figure needs; None with its reason in ``problems``.

        All must come from the same dispatches (a filter on some passes only gave 342 % of a peak: rocprofiler-compute#80;
        mixed passes 207 %: rocm-systems#9324). Those in ``quiet`` may be zero throughout.
        """
        for name in names:
            if not self.has(name):
                self.problems.append(f"{what}: {name} was not collected")
                return None
            if name in self.dead and name not in quiet:
                self.problems.append(f"{what}: {name} is zero in the whole file, so it is missing")
                return None
        carriers = {name: {at for at, one in enumerate(self.dispatches) if name in one.values} for name in names}
        if len(set(map(frozenset, carriers.values()))) > 1:
            counts = ", ".join(f"{name} on {len(found)}" for name, found in carriers.items())
            self.problems.append(f"{what}: passes are mixed ({counts} of {len(self.dispatches)} dispatches)")
            return None
        self.carriers[what] = frozenset(carriers[names[0]])
        if what.startswith("hbm") and not self._one_kind(what, names):
            return None
        return {name: self.mean(name) or 0.0 for name in names}

    def _one_kind(self, what: str, names: Sequence[str]) -> bool:
        """Whether the dispatches moved about the same: a warm-up, another shape or another GPU makes a mean of no launch."""
        totals = [sum(one.values[name] for name in names) for one in self.dispatches if names[0] in one.values]
        least, most, mean = min(totals), max(totals), sum(totals) / len(totals)
        spread = (most - least) / mean if mean > 0 else 0.0
        self.spread = max(self.spread, spread)
        if spread <= MOST_SPREAD:
            return True
        self.problems.append(
            f"{what}: dispatches count from {least:.6g} to {most:.6g} of {' + '.join(names)}: not launches of one kind "
            "(--skip leaves warm-ups out)"
        )
        return False

    def alike(self, what: str, *parts: str) -> bool:
        """Whether figures that ``together`` gave stand on the same dispatches, so that they may be added."""
        sets = [self.carriers.get(part, frozenset()) for part in parts]
        if len(set(sets)) <= 1:
            return True
        counts = ", ".join(f"{part} on {len(found)}" for part, found in zip(parts, sets))
        self.problems.append(f"{what}: passes are mixed ({counts} of {len(self.dispatches)} dispatches)")
        return False

    def time(self) -> float | None:
        times = [dispatch.t_s for dispatch in self.dispatches if dispatch.t_s is not None]
        return sum(times) / len(times) if times else None

    def grids(self) -> int:
        return len({dispatch.grid for dispatch in self.dispatches})


def grouped(dispatches: Iterable[Dispatch], skip: int = 0) -> list[Group]:
    """The dispatches by kernel name, without the first ``skip`` of each (warm-up launches), in order of appearance."""
    by_name: dict[str, list[Dispatch]] = {}
    fed: set[str] = set()
    seen: set[str] = set()
    for dispatch in dispatches:
        by_name.setdefault(dispatch.name, []).append(dispatch)
        for key, value in dispatch.values.items():
            seen.add(key)
            if value:
                fed.add(key)
    return [Group(name, found[skip:] if len(found) > skip else found, seen - fed) for name, found in by_name.items()]


def plausible(bytes_by_level: Mapping[str, float], problems: list[str]) -> dict[str, float]:
    """The levels without those that cannot be: zero bytes, and more traffic below a cache than above it.

    Every byte of a level passes the one above, so the intensity grows from L1 to L2 to HBM (rocprofiler-compute#690).
    """
    levels = {key: value for key, value in bytes_by_level.items() if value > 0 or key in ("hbm_read", "hbm_write")}
    if bytes_by_level.get("hbm") == 0:
        problems.append("hbm: zero bytes, so the counters are unavailable")
    order = [key for key in ("l1", "l2", "hbm") if key in levels]
    for upper, lower in zip(order, order[1:]):
        if levels[lower] > levels[upper] * (1 + KNOWN_COPY_BAND):
            problems.append(
                f"hbm: {lower}: {levels[lower]:.6g} bytes are more than the {levels[upper]:.6g} of {upper}: intensity "
                "must grow by level, so neither is believed"
            )
            return {}
    return levels


#: A copy of known traffic must read within this, and the levels may contradict each other by no more.
KNOWN_COPY_BAND = 0.02


def duration(start: str, end: str) -> tuple[float | None, str]:
    """Seconds between two timestamps in ns as the file spells them, or None and why."""
    first, last = number(start, "Start_Timestamp"), number(end, "End_Timestamp")
    if last <= first:
        return None, f"the timestamps give no time (start {start}, end {end})"
    if max(_resolution(start), _resolution(end)) > _COARSEST * (last - first):
        return None, f"the timestamps have lost their resolution (start {start}, end {end})"
    return (last - first) / 1e9, ""


def _resolution(text: str) -> float:
    """What one step of the last written digit is worth: 1e10 for 8.1097E+14."""
    mantissa, _, exponent = text.strip().lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    return float(10.0 ** (int(exponent or 0) - decimals))
