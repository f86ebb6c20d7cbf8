"""The order of events of a measurement: warm-up, batch size, rounds, and when to stop.

Everything here takes a ``Clock``, so a recorder in its place shows the sequence without a device. One round is, per leg:
evict, start, the calls, stop; with two legs the order alternates from round to round, so that a drift (a clock that ramps, a
neighbour that wakes) falls on both alike. A device is waited for once per block of rounds, never between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Literal, NamedTuple

from roofline_engine.roofline import ISOLATED_NOISE

from .clocks import Call, Clock

#: A round takes at least this many times the clock's resolution: 0.1 %, the overhead torch.utils.benchmark aims at.
ROUND_OVER_RESOLUTION = 1_000
#: Calls in one round at most, and rounds queued before the device is waited for.
MOST_CALLS = 1_000_000
MOST_QUEUED = 256

Flush = Callable[[], object]
Now = Callable[[], float]


class Leg(NamedTuple):
    """One of the functions compared: what is called, and how often in a round."""

    call: Call
    batch: int = 1


class Samples(NamedTuple):
    """Seconds per call, by leg and round; settled: the medians (and the ratio of two legs) are known to the band."""

    legs: tuple[list[float], ...]
    settled: bool
    spent_s: float

    @property
    def ratios(self) -> list[float]:
        """First leg over second, round by round."""
        return [first / second for first, second in zip(*self.legs)]


def warm_up(clock: Clock, call: Call, settings: Settings, now: Now) -> None:
    """Calls in growing groups, the device waited for after each, until both minima are reached or the budget is spent."""
    begin, done, group = now(), 0, 1
    while True:
        for _ in repeat(None, group):
            call()
        clock.synchronize()
        done, spent = done + group, now() - begin
        if spent >= settings.budget_s + settings.warmup_s or (done >= settings.warmup_calls and spent >= settings.warmup_s):
            return
        group = min(2 * group, MOST_QUEUED)


def batch_size(clock: Clock, call: Call) -> int:
    """How many calls a round needs to take well over the clock's resolution."""
    wanted, batch = ROUND_OVER_RESOLUTION * clock.resolution_s, 1
    while True:
        ((took,),) = draw(clock, None, [Leg(call, batch)], range(1))
        if took * batch >= wanted or batch >= MOST_CALLS:
            return batch
        missing = wanted / (took * batch)
        batch = min(int(batch * min(max(1.2 * missing, 2.0), 10.0)), MOST_CALLS)


def draw(clock: Clock, flush: Flush | None, legs: Sequence[Leg], rounds: range) -> tuple[list[float], ...]:
    """One block of rounds, by their numbers; seconds per call, by leg."""
    clock.reserve(len(legs) * len(rounds))
    order = [at for number in rounds for at in (range(len(legs)) if number % 2 == 0 else reversed(range(len(legs))))]
    prime = flush is None and len(legs) > 1
    for sample, at in enumerate(order):
        call, batch = legs[at]
        if flush is not None:
            flush()
        elif prime:
            call()  # warm means this leg's own operands, not those the other leg has just left in the cache
        _timed(clock, sample, call, batch)
    clock.synchronize()
    drawn: tuple[list[float], ...] = tuple([] for _ in legs)
    for sample, at in enumerate(order):
        # A reading under the resolution is no time: the resolution bounds it from above.
        drawn[at].append(max(clock.elapsed_s(sample), clock.resolution_s) / legs[at].batch)
    return drawn


def _timed(clock: Clock, sample: int, call: Call, batch: int) -> None:
    """The timed region. The last result is held until the clock has stopped, so that freeing it is not timed."""
    calls, held = repeat(None, batch), None
    clock.start(sample)
    for _ in calls:
        held = call()
    clock.stop(sample)
    del held


def collect(clock: Clock, flush: Flush | None, legs: Sequence[Leg], settings: Settings, now: Now) -> Samples:
    """Blocks of rounds, each as long as all before it, until the medians are known to the band or the budget ends."""
    step = len(legs)  # an even number of rounds gives both orders of two legs the same weight
    block = -(-settings.min_rounds // step) * step
    taken: tuple[list[float], ...] = tuple([] for _ in legs)
    begin = now()
    while True:
        done = len(taken[0])
        for all_of_leg, fresh in zip(taken, draw(clock, flush, legs, range(done, done + block))):
            all_of_leg.extend(fresh)
        done, spent = done + block, now() - begin
        samples = Samples(taken, False, spent)
        series = [*taken, samples.ratios] if step > 1 else taken
        settled = all(uncertainty(values) <= settings.band for values in series)
        affordable = int((settings.budget_s - spent) / spent * done) if spent > 0 else done
        block = min(done, affordable, MOST_QUEUED) // step * step
        if block < step or (settled and spent >= settings.min_s):
            return samples._replace(settled=settled)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """cache: ``cold`` evicts before each round, ``warm`` does not, ``auto`` is cold on a device and warm on the host.
    graph: replay a captured graph (CUDA and HIP through torch). band: the relative width that the median must be known to.
    budget_s: seconds of rounds after which sampling ends, settled or not; min_s: before which it does not. min_rounds: always
    taken, whatever the budget. warmup_calls, warmup_s: both are reached before the first round, or the budget is spent.
    llc_bytes: the last-level cache, memory-side caches included, where the caller knows better than the driver.
    """

    cache: Literal["auto", "cold", "warm"] = "auto"
    graph: bool = False
    band: float = ISOLATED_NOISE
    budget_s: float = 1.0
    min_s: float = 0.1
    min_rounds: int = 5
    warmup_calls: int = 3
    warmup_s: float = 0.15
    llc_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.cache not in ("auto", "cold", "warm"):
            raise ValueError(f"cache is {self.cache!r}; expected auto, cold or warm")
        for name in ("band", "budget_s", "min_s", "warmup_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} is {value!r}; expected a number of 0 or more")
        if self.min_rounds < 5:
            raise ValueError(f"min_rounds is {self.min_rounds!r}; expected at least 5, quartiles of fewer say nothing")
        if self.warmup_calls < 1:
            raise ValueError(f"warmup_calls is {self.warmup_calls!r}; expected at least 1")
        if self.llc_bytes is not None and self.llc_bytes <= 0:
            raise ValueError(f"llc_bytes is {self.llc_bytes!r}; expected a positive number of bytes")


#: The quartiles of a standard normal distribution lie this far from its mean.
NORMAL_QUARTILE = 0.6745


class Quartiles(NamedTuple):
    q1: float
    median: float
    q3: float

    @property
    def spread(self) -> float:
        """Interquartile range over the median."""
        return (self.q3 - self.q1) / self.median if self.median else math.inf


def quartiles(values: Sequence[float]) -> Quartiles:
    """Linear between order statistics, the ends included: numpy's default, ``statistics.quantiles(method="inclusive")``."""
    ordered = sorted(values)
    last = len(ordered) - 1
    return Quartiles(_at(ordered, last / 4), _at(ordered, last / 2), _at(ordered, last * 3 / 4))


def uncertainty(values: Sequence[float]) -> float:
    """Interquartile range of the median's own sampling distribution, over the median.

    The rank of the true median among n values is binomial with mean n/2 and standard deviation sqrt(n)/2, whatever the
    values' distribution; so the order statistics 0.6745 sqrt(n)/2 ranks to either side enclose it half of the time (David and
    Nagaraja, Order Statistics, 7.1). Unlike the values' own interquartile range it shrinks as rounds are added.
    """
    ordered = sorted(values)
    middle, reach = (len(ordered) - 1) / 2, NORMAL_QUARTILE * math.sqrt(len(ordered)) / 2
    median = _at(ordered, middle)
    return (_at(ordered, middle + reach) - _at(ordered, middle - reach)) / median if median else math.inf


def _at(ordered: Sequence[float], rank: float) -> float:
    rank = min(max(rank, 0.0), len(ordered) - 1.0)
    below = math.floor(rank)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (rank - below)
