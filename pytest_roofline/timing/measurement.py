"""``measure`` one function, or ``compare`` two by interleaved pairs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from roofline_engine.check import Measurement

from .cache import Flush, cupy_flush, host_cache, host_flush, jax_flush, torch_flush
from .clocks import Call, CannotCaptureError, Clock, CupyEvents, EventClock, GraphClock, HostClock, TorchEvents
from .devices import HOST, Place, loaded, places, reachable_values
from .sampling import ROUND_OVER_RESOLUTION, Leg, Now, Samples, Settings, batch_size, collect, quartiles, uncertainty, warm_up

T = TypeVar("T")

#: Under this a time by events is to a good part the gaps between launches: a 256^3 matmul reads 2.7 times longer by events
#: than by graph replay (triton#10149), and a launch costs 2 to 10 us.
LAUNCH_GAPS_S = 20e-6
#: Work that goes on after the stop event, as a share of the time, that is more than the wait's own cost.
STRAGGLE = 0.25


class Speedup(NamedTuple):
    """Baseline time over candidate time, round by round: the median of the ratios with its quartiles."""

    median: float
    q1: float
    q3: float
    rounds: int


class Comparison(NamedTuple):
    """value: what the candidate returned, of its last call."""

    value: Any
    baseline: Measurement
    candidate: Measurement
    speedup: Speedup


def measure(fn: Callable[..., T], /, *args: Any, settings: Settings | None = None, **kwargs: Any) -> tuple[T, Measurement]:
    """Call ``fn(*args, **kwargs)`` many times; what the first call returned, and the time of one call.

    An exception of ``fn`` leaves as it is. The calls share their arguments: a function that changes them changes them often.
    """
    settings = settings or Settings()
    value = fn(*args, **kwargs)
    setup = choose(places(args, kwargs, reachable_values(fn), value), settings)
    (measurement,), _ = run(setup, [partial(fn, *args, **kwargs)], settings)
    return value, measurement


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
    settings = settings or Settings()
    seen = [candidate(*args, **kwargs), baseline(*args, **kwargs)]
    setup = choose(places(args, kwargs, reachable_values(baseline), reachable_values(candidate), seen), settings)
    del seen
    calls: list[Call] = [partial(baseline, *args, **kwargs), partial(candidate, *args, **kwargs)]
    (before, after), samples = run(setup, calls, settings)
    ratio = quartiles(samples.ratios)
    speedup = Speedup(ratio.median, ratio.q1, ratio.q3, len(samples.ratios))
    return Comparison(candidate(*args, **kwargs), before, after, speedup)


def run(
    setup: Setup, calls: Sequence[Call], settings: Settings, now: Now = time.perf_counter
) -> tuple[list[Measurement], Samples]:
    """Warm up, prepare, size the batches, sample; one measurement per call. All calls are timed by one clock."""
    for call in calls:
        warm_up(setup.clock, call, settings, now)
    setup, prepared = _prepared(setup, calls)
    clock, flush = setup.clock, setup.flush
    # A second call in the same round would find what the first left in the cache.
    legs = [Leg(call, 1 if flush else batch_size(clock, call)) for call in prepared]
    samples = collect(clock, flush, legs, settings, now)
    found = [_measurement(setup, leg, at, samples, settings) for at, leg in enumerate(legs)]
    rows = [clock.in_a_row_s(call, leg.call) for call, leg in zip(calls, legs)]
    return [one if row is None else one._replace(wall_s=row[0], busy_s=row[1]) for one, row in zip(found, rows)], samples


def _prepared(setup: Setup, calls: Sequence[Call]) -> tuple[Setup, list[Call]]:
    try:
        return setup, [setup.clock.prepare(call) for call in calls]
    except CannotCaptureError as error:
        if setup.fallback is None:
            raise
        notes = (*setup.notes, f"not captured as a graph, timed by events: {error}")
        setup = setup._replace(clock=setup.fallback, fallback=None, notes=notes)
        return setup, [setup.clock.prepare(call) for call in calls]


def _measurement(setup: Setup, leg: Leg, at: int, samples: Samples, settings: Settings) -> Measurement:
    values = samples.legs[at]
    found, clock = quartiles(values), setup.clock
    notes = list(setup.notes)
    if leg.batch > 1:
        notes.append(f"{leg.batch} calls a round")
    notes += _doubts(clock, leg, values, samples, settings)
    return Measurement("roofline", found.median, found.q1, found.q3, len(values), clock.name, setup.cache, tuple(notes))


def _doubts(clock: Clock, leg: Leg, values: list[float], samples: Samples, settings: Settings) -> list[str]:
    found, doubts = quartiles(values), []
    if not samples.settled:
        doubts.append(
            f"budget of {settings.budget_s:g} s ended after {len(values)} rounds: the median is known to "
            f"{uncertainty(values):.1%}, wanted {settings.band:.1%}"
        )
    if found.spread > settings.band:
        doubts.append(f"the rounds spread by {found.spread:.1%} (interquartile range over median), band {settings.band:.1%}")
    if found.median * leg.batch * 10 < ROUND_OVER_RESOLUTION * clock.resolution_s:
        doubts.append(
            f"a round takes under {ROUND_OVER_RESOLUTION // 10} times the clock's resolution, {clock.resolution_s:.2g} s"
        )
    if clock.name == "device-event" and found.median < LAUNCH_GAPS_S:
        doubts.append(f"under {LAUNCH_GAPS_S * 1e6:g} us by events: gaps between launches are in it, graph replay has none")
    straggle = clock.straggle_s(leg.call)
    if straggle > max(STRAGGLE * found.median, LAUNCH_GAPS_S):
        doubts.append(
            f"the device worked on for {straggle * 1e6:.3g} us after the last event: work on another stream is not timed"
        )
    return doubts


NO_GRAPH = "no graph replay: it needs arrays of torch on one CUDA or HIP device"


class Setup(NamedTuple):
    """fallback: the clock for a call that cannot be captured as a graph."""

    clock: Clock
    flush: Flush | None = None
    cache: str = "warm"
    notes: tuple[str, ...] = ()
    fallback: Clock | None = None


def choose(found: set[Place], settings: Settings) -> Setup:
    """One device: its own events. JAX: its own wait. Several devices, or one without events of ours: the host, with a wait."""
    devices = found - {HOST}
    if settings.graph and {place[:2] for place in devices} != {("torch", "cuda")}:
        setup = choose(found, replace(settings, graph=False))
        return setup._replace(notes=(*setup.notes, NO_GRAPH))
    if not devices:
        return _host(HOST in found, settings)
    if {place.framework for place in devices} == {"jax"}:
        return _jax(devices, settings)
    if len(devices) == 1:
        place = _one(devices)
        if place[:2] == ("torch", "cuda"):
            return _torch(place.number, settings)
        if place.framework == "cupy":
            return _cupy(place.number, settings)
    setup = _waiting(devices, settings)
    return setup._replace(notes=(*setup.notes, NO_GRAPH)) if settings.graph else setup


def _one(found: set[Place]) -> Place:
    (place,) = found
    return place


def _host(on_host: bool, settings: Settings) -> Setup:
    cuda = getattr(loaded("torch"), "cuda", None)
    if not on_host and cuda is not None and cuda.is_initialized():
        note = "no array among the arguments, the closure or the result: timed by the host with the device waited for"
        return _no_flush(Setup(HostClock(cuda.synchronize), notes=(note,)), settings)
    return _host_eviction(Setup(HostClock()), settings)


def _host_eviction(setup: Setup, settings: Settings) -> Setup:
    if settings.cache != "cold":
        return setup
    last = host_cache()
    flushed = setup._replace(flush=host_flush(settings.llc_bytes or last.bytes), cache="cold")
    if last.instances == 1:
        return flushed
    many = "an unknown number of" if last.instances is None else str(last.instances)
    note = f"{many} last-level caches; the one of the core that reads the buffer is evicted, the others may not be"
    return flushed._replace(cache="unknown", notes=(*setup.notes, note))


def _torch(device: int, settings: Settings) -> Setup:
    torch = loaded("torch")
    api = TorchEvents(torch.cuda, device)
    events = EventClock(api)
    setup = Setup(GraphClock(api, torch.cuda, device), fallback=events) if settings.graph else Setup(events)
    return _device_eviction(setup, settings, lambda: torch_flush(torch, device, settings.llc_bytes))


def _cupy(device: int, settings: Settings) -> Setup:
    cupy = loaded("cupy")
    setup = Setup(EventClock(CupyEvents(cupy.cuda, device)))
    return _device_eviction(setup, settings, lambda: cupy_flush(cupy, device, settings.llc_bytes))


def _jax(found: set[Place], settings: Settings) -> Setup:
    jax = loaded("jax")
    setup = Setup(HostClock(ready=jax.block_until_ready))
    if all(place.platform == "cpu" for place in found):
        return _host_eviction(setup, settings)
    if len(found) > 1:
        return _no_flush(setup, settings)
    place = _one(found)
    (device,) = [device for device in jax.devices(place.platform) if device.id == place.number]
    return _device_eviction(setup, settings, lambda: jax_flush(jax, device, settings.llc_bytes))


def _device_eviction(setup: Setup, settings: Settings, make: Callable[[], Flush]) -> Setup:
    if settings.cache == "warm":
        return setup
    try:
        flush = make()
        flush()
    except (RuntimeError, MemoryError) as error:  # torch's and CuPy's out-of-memory errors are these
        return setup._replace(notes=(*setup.notes, f"cache not evicted: {type(error).__name__}: {error}"))
    return setup._replace(flush=flush, cache="cold")


def _waiting(found: set[Place], settings: Settings) -> Setup:
    waits = [wait for place in sorted(found) if place.framework != "jax" and (wait := _wait_for(place)) is not None]
    ready = loaded("jax").block_until_ready if any(place.framework == "jax" for place in found) else None
    devices = ", ".join(f"{place.framework} {place.platform}:{place.number}" for place in sorted(found))
    note = f"arrays on {devices}: timed by the host with a wait for each"
    if not (waits or ready):
        note = f"arrays on {devices}, and no loaded library to wait for it with: the time may be that of the launch alone"
        return _no_flush(Setup(HostClock(), notes=(note,)), settings)
    wait = (lambda: [wait() for wait in waits]) if waits else None
    return _no_flush(Setup(HostClock(wait, ready), notes=(note,)), settings)


def _wait_for(place: Place) -> Callable[[], Any] | None:
    """The device-wide wait that this place's library offers; any of the CUDA libraries waits for all of them."""
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


def _no_flush(setup: Setup, settings: Settings) -> Setup:
    if settings.cache != "cold":
        return setup
    return setup._replace(notes=(*setup.notes, "cache not evicted: no eviction for these devices"))
