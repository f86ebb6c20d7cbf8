"""The statistics of pytest-benchmark and pytest-codspeed as a ``Measurement``.

Attributes tell the two apart, never a class: pytest-codspeed's fixture claims to be pytest-benchmark's. Both loop over the same
operands on the host's clock and do not wait for a device.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from roofline_engine.check import Measurement
from roofline_engine.units import finite, short_repr, whole

from ..values import plain

#: Functions of ``time`` that give elapsed time on the host. Any other timer may give a device's time, or CPU time.
HOST_TIMERS = {"perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "default_timer"}
_PLUGINS = ("pytest_benchmark", "pytest_codspeed")
#: Attributes per iteration, unlike the times in pytest-codspeed's printed table, which 5.0.4 divides by them twice.
CODSPEED = {"median": "median_ns", "q1": "q1_ns", "q3": "q3_ns"}
#: Quartiles are interpolated in floating point: of equal times they may be a rounding apart.
ROUNDING = 1e-9


def is_benchmark(fixture: Any) -> bool:
    """Return whether a fixture is of one of these plugins, or derived from it; a project's ``benchmark`` may be anything."""
    return any(kind.__module__.partition(".")[0] in _PLUGINS for kind in type(fixture).__mro__)


def of_pytest_benchmark(fixture: Any) -> Measurement | None:
    """Return the times of a ``benchmark`` fixture; None when it was not used, is disabled, or its function raised."""
    metadata = getattr(fixture, "stats", None)
    stats = getattr(metadata, "stats", None)
    if not stats or getattr(fixture, "has_error", False):
        return None
    times = {key: getattr(stats, key) for key in ("median", "q1", "q3", "rounds", "min")}
    times["iterations"] = getattr(metadata, "iterations", 1)
    return _measurement("pytest-benchmark", times, "benchmark.stats", _clock(getattr(metadata, "options", None)))


#: Rounds of a benchmark whose caches are evicted: at least, at most, and the budget in units of pytest-benchmark's max_time.
COLD_ROUNDS, COLD_BUDGET = (5, 1000), 2.0


@dataclass(slots=True)
class Eviction:
    """What ``cold_rounds`` did to a benchmark."""

    ran: bool = False  # whether the caches were evicted before each round
    problem: str = ""  # why they were not


@contextmanager
def cold_rounds(fixture: Any, flush: Callable[[], object]) -> Iterator[Eviction]:
    """Make pytest-benchmark's fixture run ``flush`` before each round, of one call, while the block runs.

    Its own loop has no place for a setup, so that ``benchmark(fn)`` is timed as ``benchmark.pedantic(fn, setup=flush)``.
    """
    done, kind = Eviction(), type(fixture)
    if not hasattr(kind, "pedantic") or is_codspeed(fixture):
        done.problem = "its fixture is not pytest-benchmark's"
        yield done
        return
    call, pedantic = kind.__call__, kind.pedantic

    def cold_call(self: Any, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if getattr(self, "disabled", False):
            return call(self, fn, *args, **kwargs)
        start = time.perf_counter()
        fn(*args, **kwargs)
        flush()
        each = time.perf_counter() - start
        done.ran = True
        rounds = min(max(COLD_ROUNDS[0], int(COLD_BUDGET * float(getattr(self, "_max_time", 1.0)) / each)), COLD_ROUNDS[1])
        return pedantic(self, fn, args=args, kwargs=kwargs, setup=lambda: flush() and None, rounds=rounds, warmup_rounds=1)

    def cold_pedantic(self: Any, target: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        __tracebackhide__ = True
        names = ("args", "kwargs", "setup", "teardown", "rounds", "warmup_rounds", "iterations")
        keywords.update(zip(names, args))
        setup = keywords.get("setup")
        if keywords.get("iterations", 1) != 1:
            done.problem = "benchmark.pedantic() with several iterations a round has no setup"
            return pedantic(self, target, **keywords)

        def evict() -> Any:
            arguments = setup() if setup is not None else None
            flush()
            return arguments

        done.ran = True
        return pedantic(self, target, **{**keywords, "setup": evict})

    before = {name: vars(kind).get(name) for name in ("__call__", "pedantic")}  # None: inherited
    kind.__call__, kind.pedantic = cold_call, cold_pedantic
    try:
        yield done
    finally:
        for name, original in before.items():
            if original is None:
                delattr(kind, name)
            else:
                setattr(kind, name, original)


def is_codspeed(fixture: Any) -> bool:
    """Return whether a fixture is pytest-codspeed's, which claims to be of pytest-benchmark's class."""
    return any(kind.__module__.partition(".")[0] == "pytest_codspeed" for kind in type(fixture).__mro__)


def of_codspeed(plugin: Any, count_before: int) -> Measurement | None:
    """Return the times of the benchmark that pytest-codspeed's walltime instrument added after the first ``count_before``.

    plugin: the object registered as ``codspeed_plugin``.

    None when the instrument added none or takes no times (simulation, memory). So call ``codspeed_count`` before a test and
    this after it, in any mode.
    """
    if codspeed_count(plugin) <= count_before:
        return None
    stats = getattr(plugin.instrument.benchmarks[-1], "stats", None)
    if stats is None:
        return None
    names = (*CODSPEED.values(), "min_ns", "max_ns", "rounds", "iter_per_round")
    return of_codspeed_stats({name: getattr(stats, name) for name in names if hasattr(stats, name)})


def of_codspeed_stats(stats: Mapping[str, Any]) -> Measurement:
    """Read the statistics of pytest-codspeed's walltime instrument, from its plugin or its JSON.

    Raises:
        ValueError: with the key that is missing or no number.
    """
    times = {key: _number(stats.get(name), f"codspeed stats.{name}") * 1e-9 for key, name in CODSPEED.items()}
    if stats.get("min_ns") is not None and stats.get("max_ns") is not None:
        # Of two or three rounds its quartiles are extrapolated, below the least time and even below zero.
        least, most = (_number(stats[name], f"codspeed stats.{name}") * 1e-9 for name in ("min_ns", "max_ns"))
        times.update(q1=max(times["q1"], least), q3=min(times["q3"], most), min=least)
    counts = {"rounds": stats.get("rounds"), "iterations": stats.get("iter_per_round", 1)}
    return _measurement("pytest-codspeed", {**times, **counts}, "codspeed stats", "host")


def codspeed_count(plugin: Any) -> int:
    """Return how many benchmarks the walltime instrument holds; 0 for the other instruments."""
    return len(getattr(getattr(plugin, "instrument", None), "benchmarks", None) or ())


def of_benchmark_json(benchmark: Mapping[str, Any]) -> Measurement:
    """Read one row of ``benchmarks`` in pytest-benchmark's JSON.

    Raises:
        ValueError: with the key that is missing or no number.
    """
    stats = benchmark.get("stats")
    if not isinstance(stats, Mapping):
        raise ValueError(f"stats is {short_repr(stats)}; expected an object of times in seconds")
    times = {"iterations": 1, **dict.fromkeys(("median", "q1", "q3", "rounds")), **stats}
    return _measurement("pytest-benchmark", times, "stats", _clock(benchmark.get("options")))


def _clock(options: Any) -> str:
    """Return ``host`` for the usual timers and without one; a suite's own timer may be a device's, so ``unknown``."""
    timer = options.get("timer") if isinstance(options, Mapping) else None
    name = timer if timer is None or isinstance(timer, str) else getattr(timer, "__name__", "")
    return "host" if name is None or name.rpartition(".")[2] in HOST_TIMERS else "unknown"


def _measurement(source: str, times: Mapping[str, Any], where: str, clock: str) -> Measurement:
    median, q1, q3 = (_number(times[key], f"{where}.{key}") for key in ("median", "q1", "q3"))
    if median <= 0:
        raise ValueError(f"{where}.median is {median!r}; expected a time above 0")
    if not 0 <= q1 <= median * (1 + ROUNDING) or q3 < median * (1 - ROUNDING):
        raise ValueError(f"{where}.q1, median, q3 are {q1!r}, {median!r}, {q3!r}; expected them from 0 up in this order")
    rounds, batch = (whole(plain(times[key]), f"{where}.{key}") for key in ("rounds", "iterations"))
    notes = (f"{batch} calls a round",) if batch > 1 else ()
    best = finite(plain(times.get("min")))
    return Measurement(
        *(source, median, min(q1, median), max(q3, median), rounds, clock, "warm", notes),
        min_s=None if best is None or not 0 < best <= median else best,
    )


def _number(value: Any, key: str) -> float:
    """Read a number of any library; refuse booleans, text, NaN and infinities."""
    number = finite(plain(value))
    if number is None:
        raise ValueError(f"{key} is {short_repr(value)}; expected a finite number")
    return number
