"""What sampling asks of a clock, and the host's clock.

A *sample* is a place for one start and one stop, so that a device clock can queue many samples and be read once at the end.
``start`` and ``stop`` mirror each other: whatever start waits for before it reads, stop waits for before it reads.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Protocol

Call = Callable[[], object]


class CannotCaptureError(Exception):
    """A call that cannot be recorded as a graph; the message is the device library's own."""


class Clock(Protocol):
    @property
    def name(self) -> str:
        """``Measurement.clock``."""

    @property
    def resolution_s(self) -> float:
        """The least difference it can tell, or what reading it costs, whichever is more."""

    def prepare(self, call: Call) -> Call:
        """What is to stand between start and stop for this call; asked once per call, after its warm-up."""

    def reserve(self, samples: int) -> None:
        """Make room for samples 0 .. samples-1, so that nothing is allocated while one runs."""

    def start(self, sample: int) -> None: ...

    def stop(self, sample: int) -> None: ...

    def synchronize(self) -> None:
        """Wait for everything queued; ``elapsed_s`` is valid only after it."""

    def elapsed_s(self, sample: int) -> float: ...

    def straggle_s(self, call: Call) -> float:
        """How long the device works on after a stop that follows this call: more than a little is work left untimed."""

    def in_a_row_s(self, call: Call, prepared: Call) -> tuple[float, float] | None:
        """Wall time of a call as the caller launches it and of its prepared form, each of many in a row whose end is waited
        for: what the first takes longer is launch overhead. None where the two are the same."""


class HostClock:
    """The monotonic host clock, ``host+sync`` where a call is waited for.

    wait: waits for a device, at both ends of a sample. ready: waits for the result of a call, at the end of each (JAX
    dispatches asynchronously and has no wait for a whole device).
    """

    def __init__(self, wait: Callable[[], object] | None = None, ready: Callable[[object], object] | None = None) -> None:
        self.name = "host" if wait is None and ready is None else "host+sync"
        self.resolution_s = tick_s()
        self._wait, self._ready = wait, ready
        self._from_ns: list[int] = []
        self._to_ns: list[int] = []

    def prepare(self, call: Call) -> Call:
        ready = self._ready
        return call if ready is None else lambda: ready(call())

    def reserve(self, samples: int) -> None:
        self._from_ns, self._to_ns = [0] * samples, [0] * samples

    def start(self, sample: int) -> None:
        if self._wait is not None:
            self._wait()
        self._from_ns[sample] = time.perf_counter_ns()

    def stop(self, sample: int) -> None:
        if self._wait is not None:
            self._wait()
        self._to_ns[sample] = time.perf_counter_ns()

    def synchronize(self) -> None:
        if self._wait is not None:
            self._wait()

    def elapsed_s(self, sample: int) -> float:
        return (self._to_ns[sample] - self._from_ns[sample]) * 1e-9

    def straggle_s(self, call: Call) -> float:
        return 0.0

    def in_a_row_s(self, call: Call, prepared: Call) -> tuple[float, float] | None:
        return None


def tick_s(reads: int = 200) -> float:
    """The shortest positive time between two reads of the host clock: its resolution and its cost in one figure.

    ``time.get_clock_info`` states the nominal 1 ns, which no two reads ever show.
    """
    stamps = [time.perf_counter_ns() for _ in range(reads)]
    steps = [after - before for before, after in itertools.pairwise(stamps) if after > before]
    return min(steps, default=1_000) * 1e-9
