"""The form that every reader of profiles returns: kernels with their times, the operations that launched them, the device.

Times are in microseconds. A reader fills what its format has; None and empty are unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..calls.recorded import OpFacts
from ..inputs import Times
from ..peaks import Device


class KernelUse(NamedTuple):
    """A kernel as part of a unit."""

    name: str
    launches: float  # in all calls of the unit
    total_us: float
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()


#: Why the operation of a kernel is unknown in a file that ties kernels to operations.
MISSING = {
    "no_launch": "neither its operation nor its launch is in the trace",
    "graph_replay": "it was replayed from a graph, which records no shapes: give the trace of the capture with --shapes-from",
    "no_operation": "it was launched outside of any operation that the trace records",
    "kernels_only": "the profile has no shapes: give those of its kernels with --shapes, or the model's with --config",
    "no_shapes": "the trace has no shapes: profile with record_shapes=True",
}


class Unit(NamedTuple):
    """What runs as one: a call of an operation with all its kernels, or a kernel alone where no operation is known."""

    kernels: tuple[KernelUse, ...]  # the one with the most time first
    times: Times  # of one call: the sum of its kernels
    op: OpFacts | None = None
    regime: str | None = None  # decode or prefill, where the file says it
    borrowed_from: str = ""  # where the shapes come from if not from the launch itself, in words
    durations: Sequence[float] = ()  # of each call, where the file has them
    missing: str = ""  # why its operation is unknown, a key of MISSING; empty where it is known or the file has none
    inside: str = ""  # the operation of another unit, which has its time too

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
    steps: tuple[Unit, ...] = ()  # operations inside of others' units, whose time is counted there
    is_counted: bool = False  # the file has the hardware counters of its kernels too
    total_us: float | None = None  # of all kernels, where the file lists a part of them
