"""``measure`` one function, or ``compare`` two in alternating pairs: their clock, their eviction, and the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from roofline_engine.check import Measurement

from .clocks import Call, CannotCaptureError, Clock, EventClock, GraphClock, HostClock, WaitMeter, cupy_events, torch_events
from .devices import HOST, Place, loaded, places, reachable_values
from .sampling import (
    ROUND_OVER_RESOLUTION,
    Candidate,
    Flush,
    Now,
    Samples,
    Settings,
    batch_size,
    collect,
    cupy_flush,
    draw,
    host_cache,
    host_flush,
    jax_flush,
    quartiles,
    torch_flush,
    uncertainty,
    warm_up,
)

T = TypeVar("T")

#: Under this a time by events is to a good part the gaps between launches: a 256^3 matmul reads 2.7 times longer by events
#: than by graph replay (triton#10149), and a launch costs 2 to 10 us.
LAUNCH_GAPS_S = 20e-6
#: Work that goes on after the stop event, as a share of the time, that is more than the wait's own cost.
TAIL = 0.25
#: A call that takes longer, in seconds, is timed in one round after its first call: five rounds would take a minute and more.
LONG_CALL_S = 10.0
NO_GRAPH = "no graph replay: it needs arrays of torch on one CUDA or HIP device"


class Speedup(NamedTuple):
    """Baseline time over candidate time, round by round: the median of the ratios with its quartiles."""

    median: float
    q1: float
    q3: float
    rounds: int


class Comparison(NamedTuple):
    """Two functions timed in pairs."""

    value: Any  # what the last call of the candidate returned
    baseline: Measurement
    candidate: Measurement
    speedup: Speedup


def measure(fn: Callable[..., T], /, *args: Any, settings: Settings | None = None, **kwargs: Any) -> tuple[T, Measurement]:
    """Call ``fn(*args, **kwargs)`` many times; return what the first call returned, and the time of one call.

    A call that takes over ``LONG_CALL_S`` is repeated once. An exception of ``fn`` is not caught. The calls share their
    arguments: a function that changes them changes them often.
    """
    value, repeat = start(fn, args, kwargs, settings or Settings())
    return value, repeat()


def start(
    fn: Callable[..., T], args: Sequence[Any], kwargs: Mapping[str, Any], settings: Settings
) -> tuple[T, Callable[[], Measurement]]:
    """Call ``fn(*args, **kwargs)`` once; return its value, and a function that repeats the call and returns its time."""
    begin = time.perf_counter()
    value = fn(*args, **kwargs)

    def repeat() -> Measurement:
        setup = choose(places(args, kwargs, reachable_values(fn), value), settings)
        setup.clock.synchronize()
        first_s = time.perf_counter() - begin
        (measurement,), _ = run(setup, [partial(fn, *args, **kwargs)], settings, first_s=first_s)
        return measurement

    return value, repeat


def compare(
    baseline: Callable[..., Any],
    candidate: Callable[..., Any],
    /,
    *args: Any,
    settings: Settings | None = None,
    **kwargs: Any,
) -> Comparison:
    """Time two functions on the same arguments, in pairs whose order alternates, on one clock.

    The candidate is called once more at the end and its value is that call's: a buffer that both functions write then holds
    what the candidate wrote.
    """
    _, repeat = start_comparison(baseline, candidate, args, kwargs, settings or Settings())
    return repeat()


def start_comparison(
    baseline: Callable[..., Any],
    candidate: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    settings: Settings,
) -> tuple[Any, Callable[[], Comparison]]:
    """Call the candidate once; return its value, and a function that times both and returns what ``compare`` does."""
    begin = time.perf_counter()
    value = candidate(*args, **kwargs)

    def repeat() -> Comparison:
        values = [value, baseline(*args, **kwargs)]
        setup = choose(places(args, kwargs, reachable_values(baseline), reachable_values(candidate), values), settings)
        del values
        setup.clock.synchronize()
        first_s = (time.perf_counter() - begin) / 2
        calls: list[Call] = [partial(baseline, *args, **kwargs), partial(candidate, *args, **kwargs)]
        (before, after), samples = run(setup, calls, settings, first_s=first_s)
        speedup = Speedup(*_median_first(samples.ratios), len(samples.ratios))
        return Comparison(candidate(*args, **kwargs), before, after, speedup)

    return value, repeat


def _median_first(values: list[float]) -> tuple[float, float, float]:
    spread = quartiles(values)
    return spread.median, spread.q1, spread.q3


class Setup(NamedTuple):
    """How calls are timed."""

    clock: Clock
    flush: Flush | None = None
    cache: str = "warm"
    notes: tuple[str, ...] = ()
    fallback: Clock | None = None  # for a call that cannot be captured as a graph

    def add_note(self, text: str) -> Setup:
        return self._replace(notes=(*self.notes, text))


def run(
    setup: Setup, calls: Sequence[Call], settings: Settings, now: Now = time.perf_counter, first_s: float = 0.0
) -> tuple[list[Measurement], Samples]:
    """Warm up, prepare, size the batches, sample; return one measurement per call. All calls are timed by one clock.

    first_s: seconds of the first call, which may have compiled the function.
    """
    if first_s >= LONG_CALL_S:
        once = _run_once(setup, calls)
        if max(measured.t_s for measured in once) >= LONG_CALL_S:
            return once, Samples(tuple([measured.t_s] for measured in once), settled=False, spent_s=0.0)
    for call in calls:
        warm_up(setup.clock, call, settings, now)
    setup, prepared = _prepare(setup, calls)
    clock, flush = setup.clock, setup.flush
    # A second call in the same round would find what the first left in the cache.
    candidates = [Candidate(call, 1 if flush else batch_size(clock, call)) for call in prepared]
    meter = WaitMeter()
    samples = collect(clock, flush, candidates, settings, now)
    waited = meter.share() if clock.name.startswith("host") else None
    measurements = []
    for call, candidate, values in zip(calls, candidates, samples.times):
        notes = (*setup.notes, *_doubts(clock, candidate, values, samples.settled, settings))
        measured = Measurement(
            *("roofline", *_median_first(values), len(values), clock.name, setup.cache, notes),
            min_s=min(values),
            wait_share=waited,
        )
        walls = clock.back_to_back_s(call, candidate.call)
        measurements.append(measured if walls is None else measured._replace(wall_s=walls[0], busy_s=walls[1]))
    return measurements, samples


def _run_once(setup: Setup, calls: Sequence[Call]) -> list[Measurement]:
    """Time one round of each call, without a warm-up."""
    setup, prepared = _prepare(setup, calls)
    clock, measurements = setup.clock, []
    for call in prepared:
        meter = WaitMeter()
        ((t_s,),) = draw(clock, setup.flush, [Candidate(call)], range(1))
        waited = meter.share() if clock.name.startswith("host") else None
        notes = (*setup.notes, f"one round, because a call takes {t_s:.3g} s: how much its time varies is unknown")
        measurements.append(Measurement("roofline", t_s, None, None, 1, clock.name, setup.cache, notes, wait_share=waited))
    return measurements


def _prepare(setup: Setup, calls: Sequence[Call]) -> tuple[Setup, list[Call]]:
    try:
        return setup, [setup.clock.prepare(call) for call in calls]
    except CannotCaptureError as error:
        if setup.fallback is None:
            raise
        setup = setup._replace(clock=setup.fallback, fallback=None)
        return _prepare(setup.add_note(f"not captured as a graph, timed by events: {error}"), calls)


def _doubts(clock: Clock, candidate: Candidate, values: list[float], settled: bool, settings: Settings) -> list[str]:
    """Return notes on the batch and on every doubt about a time."""
    spread = quartiles(values)
    notes = [f"{candidate.batch} calls a round"] if candidate.batch > 1 else []
    if not settled:
        notes.append(
            f"budget of {settings.budget_s:g} s ended after {len(values)} rounds: the median is known to "
            f"{uncertainty(values):.1%}, required {settings.band:.1%}"
        )
    if spread.spread > settings.band:
        notes.append(f"the rounds spread by {spread.spread:.1%} (interquartile range over median), band {settings.band:.1%}")
    if spread.median * candidate.batch * 10 < ROUND_OVER_RESOLUTION * clock.resolution_s:
        factor = ROUND_OVER_RESOLUTION // 10
        notes.append(f"a round takes under {factor} times the clock's resolution, {clock.resolution_s:.2g} s")
    if clock.name == "device-event" and spread.median < LAUNCH_GAPS_S:
        notes.append(f"under {LAUNCH_GAPS_S * 1e6:g} us by events: gaps between launches are in it, graph replay has none")
    tail = clock.tail_after_stop_s(candidate.call)
    if tail > max(TAIL * spread.median, LAUNCH_GAPS_S):
        notes.append(f"the device worked on for {tail * 1e6:.3g} us after the last event: work on another stream is not timed")
    return notes


# Which clock and which eviction a call gets, from where its arrays lie.


def choose(array_places: set[Place], settings: Settings) -> Setup:
    """Choose a device's own events, JAX's own wait, or the host with a wait for several devices or one without events."""
    devices = array_places - {HOST}
    if settings.graph and [place[:2] for place in devices] != [("torch", "cuda")]:
        return choose(array_places, replace(settings, graph=False)).add_note(NO_GRAPH)
    if not devices:
        return _host(HOST in array_places, settings)
    if {place.framework for place in devices} == {"jax"}:
        return _jax(devices, settings)
    if len(devices) == 1:
        (place,) = devices
        if place[:2] == ("torch", "cuda"):
            return _torch(place.number, settings)
        if place.framework == "cupy":
            return _cupy(place.number, settings)
    return _waiting(devices, settings)


def _host(on_host: bool, settings: Settings) -> Setup:
    cuda = getattr(loaded("torch"), "cuda", None)
    if not on_host and cuda is not None and cuda.is_initialized():
        note = "no array among the arguments, the closure or the result: timed by the host with a wait for the device"
        return _without_eviction(Setup(HostClock(cuda.synchronize), notes=(note,)), settings)
    return _with_host_eviction(Setup(HostClock()), settings)


def _torch(device: int, settings: Settings) -> Setup:
    torch = loaded("torch")
    events = torch_events(torch.cuda, device)
    clock = EventClock(events)
    setup = Setup(GraphClock(events, torch.cuda, device), fallback=clock) if settings.graph else Setup(clock)
    return _with_eviction(setup, settings, lambda: torch_flush(torch, device, settings.llc_bytes))


def _cupy(device: int, settings: Settings) -> Setup:
    cupy = loaded("cupy")
    setup = Setup(EventClock(cupy_events(cupy.cuda, device)))
    return _with_eviction(setup, settings, lambda: cupy_flush(cupy, device, settings.llc_bytes))


def _jax(array_places: set[Place], settings: Settings) -> Setup:
    jax = loaded("jax")
    setup = Setup(HostClock(ready=jax.block_until_ready))
    if all(place.platform == "cpu" for place in array_places):
        return _with_host_eviction(setup, settings)
    if len(array_places) > 1:
        return _without_eviction(setup, settings)
    (place,) = array_places
    (device,) = [device for device in jax.devices(place.platform) if device.id == place.number]
    return _with_eviction(setup, settings, lambda: jax_flush(jax, device, settings.llc_bytes))


def _waiting(array_places: set[Place], settings: Settings) -> Setup:
    waits = [wait for place in sorted(array_places) if place.framework != "jax" and (wait := _wait_for(place)) is not None]
    ready = loaded("jax").block_until_ready if any(place.framework == "jax" for place in array_places) else None
    devices = ", ".join(f"{place.framework} {place.platform}:{place.number}" for place in sorted(array_places))
    note = f"arrays on {devices}: timed by the host with a wait for each"
    if not (waits or ready):
        note = f"arrays on {devices}, and no loaded library can wait for it: the time may be that of the launch alone"
    wait = (lambda: [wait() for wait in waits]) if waits else None
    return _without_eviction(Setup(HostClock(wait, ready), notes=(note,)), settings)


def _wait_for(place: Place) -> Callable[[], Any] | None:
    """Return the device-wide wait that this place's library offers; each of the CUDA libraries waits for all of them."""
    if place.framework == "torch" and place.platform != "cuda":
        wait: Callable[[], Any] | None = getattr(getattr(loaded("torch"), place.platform, None), "synchronize", None)
        return wait
    torch_cuda, cupy, numba = getattr(loaded("torch"), "cuda", None), loaded("cupy"), loaded("numba.cuda")
    if torch_cuda is not None and torch_cuda.is_initialized():
        return lambda: torch_cuda.synchronize(place.number)
    if cupy is not None:
        return lambda: cupy.cuda.Device(place.number).synchronize()
    if numba is not None:
        synchronize: Callable[[], Any] = numba.synchronize
        return synchronize
    return None


def _with_eviction(setup: Setup, settings: Settings, make: Callable[[], Flush]) -> Setup:
    if settings.cache == "warm":
        return setup
    try:
        flush = make()
        flush()
    except (RuntimeError, MemoryError) as error:  # torch's and CuPy's out-of-memory errors are these
        return setup.add_note(f"cache not evicted: {type(error).__name__}: {error}")
    return setup._replace(flush=flush, cache="cold")


def evict_host() -> Setup:
    """Return how the caches of the host are evicted: the flush, the state of the cache that it leaves, and doubts as notes."""
    return _with_host_eviction(Setup(HostClock()), Settings(cache="cold"))


def _with_host_eviction(setup: Setup, settings: Settings) -> Setup:
    if settings.cache != "cold":
        return setup
    last = host_cache()
    setup = setup._replace(flush=host_flush(settings.llc_bytes or last.bytes), cache="cold")
    if last.instances == 1:
        return setup
    many = "an unknown number of" if last.instances is None else str(last.instances)
    note = f"{many} last-level caches; the one of the core that reads the buffer is evicted, the others may not be"
    return setup._replace(cache="unknown").add_note(note)


def _without_eviction(setup: Setup, settings: Settings) -> Setup:
    return setup.add_note("cache not evicted: these devices have no eviction") if settings.cache == "cold" else setup
