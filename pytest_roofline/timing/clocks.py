"""Clocks: the host's, events on a device's stream, and events around the replays of a graph.

A *sample* is one start and one stop, so that a device clock can queue many samples and be read once at the end. ``start`` and
``stop`` mirror each other: what start waits for before it reads, stop waits for before it reads.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

Call = Callable[[], object]

#: About half a microsecond: CUDA Runtime API, cudaEventElapsedTime, of which hipEventElapsedTime is the counterpart.
EVENT_RESOLUTION_S = 0.5e-6
#: Groups of calls back to back, and calls in a group: enough that one wait at the end is little of it.
BACK_TO_BACK = (5, 20)


class CannotCaptureError(Exception):
    """A call that cannot be recorded as a graph; the message is the device library's own."""


class Clock:
    """What sampling asks of a clock."""

    name: str  # ``Measurement.clock``
    resolution_s: float  # the least difference that it shows, or what reading it costs, whichever is more

    def prepare(self, call: Call) -> Call:
        """Return what runs between start and stop for this call; asked once per call, after its warm-up."""
        return call

    def reserve(self, samples: int) -> None:
        """Make room for samples 0 .. samples-1, so that nothing is allocated while one runs."""
        raise NotImplementedError

    def start(self, sample: int) -> None:
        raise NotImplementedError

    def stop(self, sample: int) -> None:
        raise NotImplementedError

    def synchronize(self) -> None:
        """Wait for everything queued; ``elapsed_s`` is valid only after it."""
        raise NotImplementedError

    def elapsed_s(self, sample: int) -> float:
        raise NotImplementedError

    def tail_after_stop_s(self, call: Call) -> float:
        """Return how long the device works on after a stop that follows this call: more than a little was not timed."""
        return 0.0

    def back_to_back_s(self, call: Call, prepared: Call) -> tuple[float, float] | None:
        """Return the wall time of a call as the caller launches it, and of its prepared form, each of many calls back to back
        with one wait at the end: the difference is launch overhead. None where the two are the same."""
        return None


class HostClock(Clock):
    """The monotonic host clock, ``host+sync`` where a call is waited for.

    wait: waits for a device, at both ends of a sample.
    ready: waits for the result of a call, at the end of each (JAX dispatches asynchronously and cannot wait for a device).
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
        self.synchronize()
        self._from_ns[sample] = time.perf_counter_ns()

    def stop(self, sample: int) -> None:
        self.synchronize()
        self._to_ns[sample] = time.perf_counter_ns()

    def synchronize(self) -> None:
        if self._wait is not None:
            self._wait()

    def elapsed_s(self, sample: int) -> float:
        return (self._to_ns[sample] - self._from_ns[sample]) * 1e-9


def tick_s(reads: int = 200) -> float:
    """Return the shortest positive time between two reads of the host clock: its resolution and its cost in one figure.

    ``time.get_clock_info`` states the nominal 1 ns, which no two reads ever show.
    """
    stamps = [time.perf_counter_ns() for _ in range(reads)]
    steps = [after - before for before, after in itertools.pairwise(stamps) if after > before]
    return min(steps, default=1_000) * 1e-9


class WaitMeter:
    """How long the threads of this process wait for a core that other programs have, from Linux's scheduler statistics."""

    #: Threads that are read, the oldest first: each costs a file.
    MOST_THREADS = 32

    def __init__(self, tasks: Path = Path("/proc/self/task")) -> None:
        self._tasks = tasks
        self._before = self._read()

    def share(self) -> float | None:
        """Return the time waited since the start over the time that the threads wanted a core; None where unknown."""
        ran = waited = 0
        for thread, (ran_ns, waited_ns) in self._read().items():
            before = self._before.get(thread, (0, 0))
            ran, waited = ran + ran_ns - before[0], waited + waited_ns - before[1]
        return waited / (ran + waited) if ran > 0 else None

    def _read(self) -> dict[str, tuple[int, int]]:
        """Return the nanoseconds that each thread has run and has waited (schedstat in proc(5))."""
        times = {}
        try:
            threads = sorted(self._tasks.iterdir(), key=lambda path: (len(path.name), path.name))[: self.MOST_THREADS]
        except OSError:
            return {}
        for thread in threads:
            try:
                ran, waited, _ = (thread / "schedstat").read_text().split()
                times[thread.name] = int(ran), int(waited)
            except (OSError, ValueError):  # the thread has ended, or the kernel keeps no such statistics
                continue
        return times


class Events(NamedTuple):
    """A library's events on one device."""

    stream: Any
    create: Callable[[], Any]
    elapsed_ms: Callable[[Any, Any], float]
    synchronize: Callable[[], object]


def torch_events(cuda: Any, device: int) -> Events:
    """Return ``torch.cuda`` events, which are HIP's where torch was built for ROCm."""
    stream = cuda.current_stream(device)

    def create() -> Any:
        event = cuda.Event(enable_timing=True)
        event.record(stream)  # torch creates the driver's event at its first record; not inside a sample
        return event

    return Events(stream, create, lambda start, stop: start.elapsed_time(stop), lambda: cuda.synchronize(device))


def cupy_events(cuda: Any, number: int) -> Events:
    """Return ``cupy.cuda`` events; CuPy's current stream is per thread and device."""
    device = cuda.Device(number)

    def create() -> Any:
        with device:
            return cuda.Event()

    with device:
        return Events(cuda.get_current_stream(), create, cuda.get_elapsed_time, device.synchronize)


class EventClock(Clock):
    """Device time between two events on one stream (clock ``device-event``). Gaps between launches are part of it."""

    name = "device-event"
    resolution_s = EVENT_RESOLUTION_S

    def __init__(self, events: Events) -> None:
        self._events = events
        self._pairs: list[tuple[Any, Any]] = []

    def reserve(self, samples: int) -> None:
        while len(self._pairs) < samples:
            self._pairs.append((self._events.create(), self._events.create()))

    def start(self, sample: int) -> None:
        self._pairs[sample][0].record(self._events.stream)

    def stop(self, sample: int) -> None:
        self._pairs[sample][1].record(self._events.stream)

    def synchronize(self) -> None:
        self._events.synchronize()

    def elapsed_s(self, sample: int) -> float:
        return float(self._events.elapsed_ms(*self._pairs[sample])) * 1e-3

    def tail_after_stop_s(self, call: Call) -> float:
        """Wait for the event of the timed stream first, then time the wait for the whole device."""
        stop = self._pairs[0][1]
        call()
        stop.record(self._events.stream)
        stop.synchronize()
        begin = time.perf_counter()
        self._events.synchronize()
        return time.perf_counter() - begin


class GraphClock(EventClock):
    """Events around replays of a graph of one call: no launch gaps inside the call (clock ``device-graph``)."""

    name = "device-graph"

    def __init__(self, events: Events, cuda: Any, device: int) -> None:
        super().__init__(events)
        self._cuda, self._device = cuda, device
        self._results: list[object] = []  # a graph writes into the memory of what its capture returned

    def prepare(self, call: Call) -> Call:
        graph = self._cuda.CUDAGraph()
        self._events.synchronize()
        try:
            with self._cuda.device(self._device), self._cuda.graph(graph):
                self._results.append(call())
        except Exception as error:
            raise CannotCaptureError(f"{type(error).__name__}: {error}") from error
        replay: Call = graph.replay
        replay()
        self._events.synchronize()
        return replay

    def back_to_back_s(self, call: Call, prepared: Call) -> tuple[float, float] | None:
        groups = [(self._group_s(call), self._group_s(prepared)) for _ in range(BACK_TO_BACK[0])]
        return min(group[0] for group in groups), min(group[1] for group in groups)

    def _group_s(self, call: Call) -> float:
        calls = BACK_TO_BACK[1]
        self._events.synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        self._events.synchronize()
        return (time.perf_counter() - begin) / calls
