"""``measure`` one function, or ``compare`` two by interleaved pairs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from roofline_engine.check import Measurement

from .arrays import held_by, places
from .choose import Setup, choose
from .clock import Call, CannotCaptureError, Clock
from .sampling import ROUND_OVER_RESOLUTION, Leg, Now, Samples, batch_size, collect, warm_up
from .settings import Settings
from .spread import quartiles, uncertainty

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
    setup = choose(places(args, kwargs, held_by(fn), value), settings)
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
    setup = choose(places(args, kwargs, held_by(baseline), held_by(candidate), seen), settings)
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
