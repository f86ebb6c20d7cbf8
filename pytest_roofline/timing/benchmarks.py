"""The statistics that pytest-benchmark and pytest-codspeed have taken, as a ``Measurement``.

Their objects are told by what they have, never by their class: pytest-codspeed's fixture claims to be pytest-benchmark's.
Both loop over the same operands on the host's clock and know of no device to wait for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from roofline_engine.check import Measurement


def of_pytest_benchmark(fixture: Any) -> Measurement | None:
    """The times of a ``benchmark`` fixture; None when it was not used, is disabled, or its function raised."""
    stats = getattr(getattr(fixture, "stats", None), "stats", None)
    if stats is None or getattr(fixture, "has_error", False) or not getattr(stats, "data", True):
        return None
    times = {key: getattr(stats, key) for key in ("median", "q1", "q3", "rounds")}
    iterations = getattr(fixture.stats, "iterations", 1)
    return _measurement("pytest-benchmark", times, 1.0, iterations, "benchmark.stats")


def of_codspeed(plugin: Any, seen_before: int) -> Measurement | None:
    """The times of the benchmark that pytest-codspeed's walltime instrument has added since ``seen_before`` of them.

    plugin: the object registered as ``codspeed_plugin``. None when none was added or the instrument takes no times
    (simulation, memory), so a caller may ask ``codspeed_count`` before a test and this after it, whatever the mode.
    """
    if codspeed_count(plugin) <= seen_before:
        return None
    stats = getattr(plugin.instrument.benchmarks[-1], "stats", None)
    if stats is None:
        return None
    times = {key: getattr(stats, attribute) for key, attribute in CODSPEED.items()}
    return _measurement("pytest-codspeed", times, 1e-9, getattr(stats, "iter_per_round", 1), "codspeed stats")


def codspeed_count(plugin: Any) -> int:
    """How many benchmarks the walltime instrument holds; 0 for the other instruments."""
    return len(getattr(getattr(plugin, "instrument", None), "benchmarks", None) or ())


def of_benchmark_json(benchmark: Mapping[str, Any]) -> Measurement:
    """One row of ``benchmarks`` in pytest-benchmark's JSON. ValueError names the key that is missing or no number."""
    stats = benchmark.get("stats")
    if not isinstance(stats, Mapping):
        raise ValueError(f"stats is {_shown(stats)}; expected an object of times in seconds")
    times = {key: stats.get(key) for key in ("median", "q1", "q3", "rounds")}
    return _measurement("pytest-benchmark", times, 1.0, stats.get("iterations", 1), "stats")


#: Per iteration already, unlike the times in pytest-codspeed's printed table, which 5.0.4 divides by the iterations twice.
CODSPEED = {"median": "median_ns", "q1": "q1_ns", "q3": "q3_ns", "rounds": "rounds"}


def _measurement(source: str, times: Mapping[str, Any], scale: float, iterations: Any, where: str) -> Measurement:
    median, q1, q3 = (_number(times[key], f"{where}.{key}") * scale for key in ("median", "q1", "q3"))
    if median <= 0:
        raise ValueError(f"{where}.median is {median!r}; expected a time above 0")
    if not 0 <= q1 <= median <= q3:
        raise ValueError(f"{where}.q1, median, q3 are {q1!r}, {median!r}, {q3!r}; expected them in this order")
    rounds, batch = (
        _count(value, f"{where}.{key}") for key, value in (("rounds", times["rounds"]), ("iterations", iterations))
    )
    notes = (f"{batch} calls a round",) if batch > 1 else ()
    return Measurement(source, median, q1, q3, rounds, clock="host", cache="warm", notes=notes)


def _number(value: Any, key: str) -> float:
    """An exact float of a number of any library; a boolean, a string, a NaN or an infinity is none."""
    try:
        number = math.nan if isinstance(value, (bool, str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{key} is {_shown(value)}; expected a finite number")
    return number


def _count(value: Any, key: str) -> int:
    number = _number(value, key)
    if number < 1 or number != int(number):
        raise ValueError(f"{key} is {_shown(value)}; expected a whole number of 1 or more")
    return int(number)


def _shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."
