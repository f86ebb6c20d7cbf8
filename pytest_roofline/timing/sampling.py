"""How a call is timed: the settings, the order of events, when to stop, and how well the median is known.

Everything here takes a ``Clock``, so a recorder in its place shows the sequence without a device. One round is, per candidate:
evict, start, the calls, stop. With two candidates the order alternates from round to round, so that a drift (a clock that
ramps, a neighbor that wakes) affects both alike. A device is waited for once per block of rounds, never between them.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any, Literal, NamedTuple

from roofline_engine.roofline import ISOLATED_NOISE

from .clocks import Call, Clock

#: A round takes at least this many times the clock's resolution: 0.1 %, the overhead torch.utils.benchmark aims at.
ROUND_OVER_RESOLUTION = 1_000
#: Calls in one round at most, and rounds queued before the device is waited for.
MOST_CALLS = 1_000_000
MOST_QUEUED = 256
#: The quartiles of a standard normal distribution lie this far from its mean.
NORMAL_QUARTILE = 0.6745

Flush = Callable[[], object]
Now = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a call is timed."""

    cache: Literal["auto", "cold", "warm"] = "auto"  # cold evicts before each round; auto is cold on a device, warm on the host
    graph: bool = False  # replay a captured graph (CUDA and HIP through torch)
    band: float = ISOLATED_NOISE  # the relative width that the median must be known to
    budget_s: float = 1.0  # seconds of rounds after which sampling ends in any case
    min_s: float = 0.1  # seconds of rounds before which it does not end
    min_rounds: int = 5  # whatever the budget
    warmup_calls: int = 3  # both reached before the first round, or the budget is spent
    warmup_s: float = 0.15
    llc_bytes: int | None = None  # the last-level cache, memory-side caches included, if the driver does not know it

    def __post_init__(self) -> None:
        if self.cache not in ("auto", "cold", "warm"):
            raise ValueError(f"cache is {self.cache!r}; expected auto, cold or warm")
        for name in ("band", "budget_s", "min_s", "warmup_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} is {value!r}; expected a number of 0 or more")
        if self.min_rounds < 5:
            raise ValueError(f"min_rounds is {self.min_rounds!r}; expected at least 5, because fewer have no quartiles")
        if self.warmup_calls < 1:
            raise ValueError(f"warmup_calls is {self.warmup_calls!r}; expected at least 1")
        if self.llc_bytes is not None and self.llc_bytes <= 0:
            raise ValueError(f"llc_bytes is {self.llc_bytes!r}; expected a positive number of bytes")


class Candidate(NamedTuple):
    """One of the functions that are timed."""

    call: Call
    batch: int = 1  # calls in a round


class Samples(NamedTuple):
    """The times of all rounds."""

    times: tuple[list[float], ...]  # seconds per call, by candidate and round
    settled: bool  # whether the medians, and the ratio of two candidates, are known to the band
    spent_s: float

    @property
    def ratios(self) -> list[float]:
        """The first candidate over the second, round by round."""
        return [first / second for first, second in zip(*self.times)]


def warm_up(clock: Clock, call: Call, settings: Settings, now: Now) -> None:
    """Call in growing groups, with a wait for the device after each, until both minima are reached or the budget is spent."""
    begin, calls, group = now(), 0, 1
    while True:
        for _ in repeat(None, group):
            call()
        clock.synchronize()
        calls, spent = calls + group, now() - begin
        if spent >= settings.budget_s + settings.warmup_s or (calls >= settings.warmup_calls and spent >= settings.warmup_s):
            return
        group = min(2 * group, MOST_QUEUED)


def batch_size(clock: Clock, call: Call) -> int:
    """Return how many calls a round needs to take well over the clock's resolution."""
    required, batch = ROUND_OVER_RESOLUTION * clock.resolution_s, 1
    while True:
        ((per_call,),) = draw(clock, None, [Candidate(call, batch)], range(1))
        if per_call * batch >= required or batch >= MOST_CALLS:
            return batch
        missing = required / (per_call * batch)
        batch = min(int(batch * min(max(1.2 * missing, 2.0), 10.0)), MOST_CALLS)


def draw(clock: Clock, flush: Flush | None, candidates: Sequence[Candidate], rounds: range) -> tuple[list[float], ...]:
    """Run one block of rounds, given by their numbers; return seconds per call, by candidate."""
    clock.reserve(len(candidates) * len(rounds))
    forward = range(len(candidates))
    order = [at for number in rounds for at in (forward if number % 2 == 0 else reversed(forward))]
    primes = flush is None and len(candidates) > 1
    for sample, at in enumerate(order):
        call, batch = candidates[at]
        if flush is not None:
            flush()
        elif primes:
            call()  # warm means this candidate's own operands, not those that the other has just left in the cache
        _sample(clock, sample, call, batch)
    clock.synchronize()
    times: tuple[list[float], ...] = tuple([] for _ in candidates)
    for sample, at in enumerate(order):
        # A reading under the resolution is no time: the resolution bounds it from above.
        times[at].append(max(clock.elapsed_s(sample), clock.resolution_s) / candidates[at].batch)
    return times


def _sample(clock: Clock, sample: int, call: Call, batch: int) -> None:
    """Run the timed region. The last result lives until the clock has stopped, so that freeing it is not timed."""
    calls, result = repeat(None, batch), None
    clock.start(sample)
    for _ in calls:
        result = call()
    clock.stop(sample)
    del result


def collect(clock: Clock, flush: Flush | None, candidates: Sequence[Candidate], settings: Settings, now: Now) -> Samples:
    """Run blocks of rounds, each as long as all before it, until the medians are known to the band or the budget ends."""
    step = len(candidates)  # an even number of rounds gives both orders of two candidates the same weight
    block = -(-settings.min_rounds // step) * step
    times: tuple[list[float], ...] = tuple([] for _ in candidates)
    begin = now()
    while True:
        rounds = len(times[0])
        for all_times, more in zip(times, draw(clock, flush, candidates, range(rounds, rounds + block))):
            all_times.extend(more)
        rounds, spent = rounds + block, now() - begin
        samples = Samples(times, False, spent)
        series = [*times, samples.ratios] if step > 1 else times
        settled = all(uncertainty(values) <= settings.band for values in series)
        affordable = int((settings.budget_s - spent) / spent * rounds) if spent > 0 else rounds
        block = min(rounds, affordable, MOST_QUEUED) // step * step
        if block < step or (settled and spent >= settings.min_s):
            return samples._replace(settled=settled)


class Quartiles(NamedTuple):
    q1: float
    median: float
    q3: float

    @property
    def spread(self) -> float:
        """Interquartile range over the median."""
        return (self.q3 - self.q1) / self.median if self.median else math.inf


def quartiles(values: Sequence[float]) -> Quartiles:
    """Return quartiles that are linear between order statistics, the ends included.

    ``statistics.quantiles(method="inclusive")`` computes the same, but of equal values its quartiles may be a rounding apart.
    """
    ordered = sorted(values)
    last = len(ordered) - 1
    return Quartiles(_at(ordered, last / 4), _at(ordered, last / 2), _at(ordered, last * 3 / 4))


def uncertainty(values: Sequence[float]) -> float:
    """Return the interquartile range of the median's own sampling distribution, over the median.

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


# Eviction: read a buffer of twice the cache size before a round. A read, because written lines are dirty and their write-back
# would be charged to the next kernel. Twice the size, because replacement is not strictly by age.

#: The largest last-level cache that a GPU's driver does not report: AMD's Infinity Cache of 256 MB (CDNA 3 white paper).
#: Taken for a GPU whose caches are unknown.
LARGEST_UNREPORTED_BYTES = 256 * 2**20
#: For a host whose caches are unknown: over the L3 that one core of a desktop part can fill (96 MiB with stacked cache).
UNKNOWN_HOST_BYTES = 128 * 2**20
CPU_FOLDER = Path("/sys/devices/system/cpu")


class HostCache(NamedTuple):
    """The last-level cache of the host."""

    bytes: int  # of one instance
    instances: int | None  # how many this process may run on; None where unknown


def host_cache(folder: Path = CPU_FOLDER, cpus: Iterable[int] | None = None) -> HostCache:
    """Return the last-level cache of these CPUs (default: all that this process may run on) as Linux describes it."""
    if cpus is None:
        cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    caches: dict[tuple[int, str], int] = {}
    for cache in (path for cpu in cpus for path in folder.glob(f"cpu{cpu}/cache/index[0-9]*")):
        try:
            size = re.fullmatch(r"(\d+)K", (cache / "size").read_text().strip())
            level, shared = int((cache / "level").read_text()), (cache / "shared_cpu_list").read_text().strip()
        except (OSError, ValueError):
            continue
        if size:
            caches[level, shared] = int(size[1]) * 1024
    if not caches:
        return HostCache(UNKNOWN_HOST_BYTES, None)
    last = max(level for level, _ in caches)
    sizes = [size for (level, _), size in caches.items() if level == last]
    return HostCache(max(sizes), len(sizes))


def host_flush(llc_bytes: int) -> Flush:
    """Return ``memchr`` over a buffer: it reads every line, at memory speed, and allocates nothing.

    The buffer is filled with ones: pages of zeros that were never written are all the same page of the kernel.
    """
    buffer = bytearray(b"\1") * (2 * llc_bytes)
    return lambda: buffer.find(b"\0")


def torch_flush(torch: Any, device: int, llc_bytes: int | None) -> Flush:
    reported = int(getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0))
    size = _buffer_size(llc_bytes, reported, hip=bool(getattr(torch.version, "hip", None)))
    place = torch.device("cuda", device)
    buffer = torch.zeros(size, dtype=torch.float32, device=place)
    total = torch.zeros(1, dtype=torch.float32, device=place)
    return lambda: torch.sum(buffer, dim=0, keepdim=True, out=total)


def cupy_flush(cupy: Any, device: int, llc_bytes: int | None) -> Flush:
    reported = int(cupy.cuda.Device(device).attributes.get("L2CacheSize", 0))
    size = _buffer_size(llc_bytes, reported, hip=bool(cupy.cuda.runtime.is_hip))
    with cupy.cuda.Device(device):
        buffer = cupy.zeros(size, dtype="float32")
        total = cupy.zeros((), dtype="float32")
    return lambda: buffer.sum(out=total)


def jax_flush(jax: Any, device: Any, llc_bytes: int | None) -> Flush:
    """Return a flush that waits for its end: JAX is timed by the host, and a flush still running would be in the sample."""
    buffer = jax.device_put(jax.numpy.ones(_buffer_size(llc_bytes), dtype="float32"), device)
    total = jax.jit(jax.numpy.sum)
    total(buffer).block_until_ready()
    return lambda: total(buffer).block_until_ready()


def _buffer_size(llc_bytes: int | None, reported: int = 0, *, hip: bool = False) -> int:
    """Return the floats of a buffer; HIP reports the L2 of one die, and not the memory-side cache behind it."""
    if llc_bytes is None:
        llc_bytes = max(reported, LARGEST_UNREPORTED_BYTES) if hip or not reported else reported
    return 2 * llc_bytes // 4
