"""The form that every reader of profiles returns: kernels with their times, the operations that launched them, the device.

Times are in microseconds. A reader fills what its format has; None and empty are unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..calls.recorded import OpFacts
from ..peaks import Device

#: A mean with a maximum this many times the median, or a standard deviation this many times the mean, is not the time of a
#: typical launch. Our own values: launches of one kernel and shape differ by less than 2x in the traces that we have read; a
#: mean that one stalled launch moved differs from the median by more.
_FAR_MAX, _FAR_STD = 5.0, 1.0


class Times(NamedTuple):
    """The times of all calls of one thing."""

    calls: float
    total_us: float
    median_us: float | None = None
    min_us: float | None = None
    max_us: float | None = None
    std_us: float | None = None

    @property
    def mean_us(self) -> float:
        return self.total_us / self.calls


def times_of(durations: Sequence[float]) -> Times:
    """Return the times of these durations, of which there is at least one."""
    ordered = sorted(durations)
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    return Times(len(ordered), sum(ordered), median, ordered[0], ordered[-1])


class TypicalTime(NamedTuple):
    """The time of one call, as far as the spread lets it be known."""

    t_us: float | None  # None: no time of this file is that of a typical call
    basis: str  # median, mean or minimum; where t_us is None, why


def typical_time(times: Times) -> TypicalTime:
    """Return the median where it is known, else the mean unless its own spread contradicts it, else the minimum."""
    if times.median_us is not None:
        return TypicalTime(times.median_us, "median")
    mean = times.mean_us
    far = times.max_us is not None and times.max_us > _FAR_MAX * mean
    wide = times.std_us is not None and times.std_us > _FAR_STD * mean
    if not (far or wide):
        return TypicalTime(mean, "mean")
    spread = f"the mean {mean:.4g} us has a {'maximum' if far else 'standard deviation'} of "
    spread += f"{times.max_us if far else times.std_us:.4g} us"
    if times.min_us:
        return TypicalTime(times.min_us, f"minimum, since {spread}")
    return TypicalTime(None, f"{spread}, and the file has no median or minimum")


class KernelUse(NamedTuple):
    """A kernel as part of a unit."""

    name: str
    launches: float  # in all calls of the unit
    total_us: float
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()


class Unit(NamedTuple):
    """What runs as one: a call of an operation with all its kernels, or a kernel alone where no operation is known."""

    kernels: tuple[KernelUse, ...]  # the one with the most time first
    times: Times  # of one call: the sum of its kernels
    op: OpFacts | None = None
    regime: str | None = None  # decode or prefill, where the file says it
    borrowed_from: str = ""  # where the shapes come from if not from the launch itself, in words
    durations: Sequence[float] = ()  # of each call, where the file has them

    @property
    def name(self) -> str:
        """The name of its main kernel."""
        return self.kernels[0].name


class Timeline(NamedTuple):
    """Where the time of one device goes, by the union of intervals."""

    device: str
    span_us: float  # from the first to the last event
    busy_us: float  # something runs
    compute_us: float  # kernels other than communication run
    communication_us: float
    exposed_communication_us: float  # communication runs and no kernel
    copy_us: float
    exposed_copy_us: float  # copies run, and no kernel or communication
    idle_us: float


class Profile(NamedTuple):
    """One profile of one process or rank."""

    source: str  # the format, for people
    label: str  # the file's name
    units: tuple[Unit, ...]
    device: Device = Device()
    timelines: tuple[Timeline, ...] = ()
    rank: int | None = None
    problems: tuple[str, ...] = ()  # one line for each thing that could not be used
