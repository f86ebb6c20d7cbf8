"""Several ranks of one run as one table: for each operation the slowest and the fastest rank, and the ranks that lag behind.

Files are read one after another; of each only sums per operation are kept.
"""

from __future__ import annotations

from statistics import median
from typing import Any, NamedTuple

from .form import Profile
from .rows import describe_shapes, op_rows

#: A rank whose kernels run this much longer than the median rank's holds the others up. Our own value: ranks of one model with
#: balanced work differ by a few percent.
_LAGS = 1.10


class RankTotal(NamedTuple):
    """What one rank did, in microseconds."""

    name: str  # its number where the file has it, else the file's name
    label: str  # the file's name
    kernels_us: float  # the sum of its kernels
    compute_us: float  # by the union of intervals; 0 where the file has no times of day
    communication_us: float
    exposed_communication_us: float
    idle_us: float


class _Row:
    """One operation over the ranks."""

    __slots__ = ("calls", "fastest", "op", "ranks", "shape", "slowest", "total_us")

    def __init__(self, op: str, shape: str) -> None:
        self.op, self.shape = op, shape
        self.calls = self.total_us = 0.0
        self.ranks = 0
        self.slowest: tuple[float, str] = (0.0, "")
        self.fastest: tuple[float, str] = (0.0, "")

    def add(self, rank: str, calls: float, total_us: float) -> None:
        if not self.ranks or total_us > self.slowest[0]:
            self.slowest = (total_us, rank)
        if not self.ranks or total_us < self.fastest[0]:
            self.fastest = (total_us, rank)
        self.ranks += 1
        self.calls += calls
        self.total_us += total_us


class RankTable:
    """The table over all ranks; ``add`` one profile after another."""

    def __init__(self) -> None:
        self.totals: list[RankTotal] = []
        self._rows: dict[Any, _Row] = {}

    def add(self, profile: Profile) -> RankTotal:
        """Add one rank and return what it did."""
        name = profile.label if profile.rank is None else str(profile.rank)
        if any(total.name == name for total in self.totals):
            name = f"{name} ({profile.label})"
        sums = [
            sum(getattr(timeline, field) for timeline in profile.timelines)
            for field in ("compute_us", "communication_us", "exposed_communication_us", "idle_us")
        ]
        total = RankTotal(name, profile.label, sum(unit.times.total_us for unit in profile.units), *sums)
        self.totals.append(total)
        for row in op_rows(profile):
            if row.inside:
                continue
            key = (row.facts, row.row.regime) if row.facts else (row.row.name, row.row.regime)
            kept = self._rows.get(key)
            if kept is None:
                shape = describe_shapes(row.facts) if row.facts else ""
                kept = self._rows[key] = _Row(row.row.framework_op or row.row.short_name, shape)
            kept.add(name, row.times.calls, row.times.total_us)
        return total

    def stragglers(self) -> list[RankTotal]:
        """Return the ranks that compute much longer than the median rank."""
        times = {total.name: total.compute_us or total.kernels_us - total.communication_us for total in self.totals}
        usual = median(times.values()) if times else 0.0
        return [total for total in self.totals if usual and times[total.name] > _LAGS * usual]

    def rows(self) -> list[_Row]:
        """Return the operations by the time of all ranks."""
        return sorted(self._rows.values(), key=lambda row: -row.total_us)

    def fields(self) -> dict[str, object]:
        """Return the table as the artifact has it."""
        return {
            "ranks": [total._asdict() for total in self.totals],
            "stragglers": [total.name for total in self.stragglers()],
            "rank_ops": [
                {
                    "aten": row.op,
                    "shape": row.shape,
                    "ranks": row.ranks,
                    "calls": row.calls / row.ranks,
                    "total_us": {
                        "mean": row.total_us / row.ranks,
                        "slowest": row.slowest[0],
                        "slowest_rank": row.slowest[1],
                        "fastest": row.fastest[0],
                        "fastest_rank": row.fastest[1],
                    },
                }
                for row in self.rows()
            ],
        }
