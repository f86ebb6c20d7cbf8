"""KernelBench: results of samples and baseline timings by level; robust-kbench's timings and profile extracts.

Times are ms: ``runtime`` too, though a comment in KernelBench calls it us, since it is filled from the statistics in ms. By
default they are of CUDA events. A baseline of another file is not looked for: each file alone gives times, and only a
``ref_runtime`` in the record (the eager reference) is a baseline. Sizes stand in a problem's code, and its name is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from roofline_engine.units import number, quantity

from .row import RecordRow
from .source import RefusedError, Sample, Source, document, outline
from .values import count, flag, label, mapping, maybe_seconds, shown, timed, work_of

NAME = "KernelBench JSON"

_SAMPLE = re.compile(r"\.\d+(\[\]|\.\d+)?\.(compiled|correctness)")
_LEVEL = re.compile(r"\.level\w+\..+\.mean")
_IN_CODE = "the problem's sizes are in its code, and its name is none"


def matches(sample: Sample) -> bool:
    """Samples by problem, problems by level, robust-kbench's settings, or rows of its tasks."""
    keys = outline(sample.text)
    if ".eval_settings" in keys or {"[].task", "[].runtime_ms"} <= keys:
        return True
    if {".compiled", ".correctness", ".runtime"} <= keys:
        return True
    return any(_SAMPLE.fullmatch(key) or _LEVEL.fullmatch(key) for key in keys)


def read(source: Source) -> Iterator[RecordRow]:
    """A row per sample, problem, setting or task.

    Raises:
        RefusedError: for what is no JSON or holds no row.
    """
    whole = document(source)
    found = False
    for record in _rows(whole):
        found = True
        yield record
    if not found:
        raise RefusedError(f"{source.label}: no samples, levels or eval_settings in it")


def _rows(whole: Any) -> Iterator[RecordRow]:
    if isinstance(whole, list):
        for at, row in enumerate(whole):
            yield _task(mapping(row), f"[{at}]")
    elif not isinstance(whole, dict):
        return
    elif "eval_settings" in whole:
        yield from _settings(whole)
    elif "correctness" in whole:
        yield _sample(whole, "sample", "")
    else:
        for key, value in whole.items():
            if key.startswith("level"):
                for problem, row in mapping(value).items():
                    yield _baseline(mapping(row), label(f"{key}/{problem}"), label(problem))
            else:
                for where, row in _samples(value, label(key)):
                    yield _sample(mapping(row), where, label(key))


def _samples(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list):
        yield from ((f"{key}[{at}]", row) for at, row in enumerate(value))
    elif isinstance(value, dict) and "correctness" not in value and all(isinstance(row, dict) for row in value.values()):
        yield from ((f"{key}/{label(at)}", row) for at, row in value.items())
    else:
        yield key, value


def _sample(row: Mapping[str, Any], where: str, problem: str) -> RecordRow:
    metadata, stats = mapping(row.get("metadata")), mapping(row.get("runtime_stats"))
    correct = flag(row.get("correctness"))
    fields: dict[str, Any] = {
        "name": label(row.get("problem_name")) or (f"problem {problem}" if problem else ""),
        "device": label(metadata.get("hardware")) or None,
        "correct": correct,
    }
    if not row:
        return RecordRow(row=where, refused="expected an object with correctness and runtime")
    if row.get("compiled") is False:
        return RecordRow(row=where, refused="compiled is false: nothing was timed", **fields)
    key = "runtime_stats.mean" if "mean" in stats else "runtime"
    value = stats["mean"] if "mean" in stats else row.get("runtime")
    if correct is False and isinstance(value, (int, float)) and value <= 0:
        return RecordRow(row=where, refused=f"correctness is false and {key} is {value}: it was not timed", **fields)
    work, why = work_of(mapping(row.get("params"))) if row.get("params") else (None, _IN_CODE)
    reference = row.get("ref_runtime")
    missing = reference is None or reference == -1
    baseline, notes = (None, ()) if missing else maybe_seconds(reference, "ref_runtime", "ms")
    if metadata.get("excessive_speedup"):
        notes += ("KernelBench itself flags the speedup as excessive",)
    return timed(
        where,
        value,
        key,
        "ms",
        work=work,
        no_work=why,
        clock="device-event",
        rounds=count(stats.get("num_trials")),
        baseline_kind="eager" if baseline is not None else "unknown",
        baseline_t_s=baseline,
        notes=(*notes, "a mean"),
        **fields,
    )


def _baseline(row: Mapping[str, Any], where: str, problem: str) -> RecordRow:
    return timed(
        where,
        row.get("mean"),
        "mean",
        "ms",
        name=problem,
        no_work=_IN_CODE,
        device=label(row.get("hardware")) or None,
        clock="device-event",
        rounds=count(row.get("num_trials")),
        notes=("a mean",),
    )


def _settings(whole: Mapping[str, Any]) -> Iterator[RecordRow]:
    """robust-kbench: a median a setting, on the first device it lists."""
    devices = mapping(mapping(whole.get("device_info")).get("devices"))
    first = mapping(next(iter(devices.values()), None))
    bus = _bus(first)
    for setting, row in mapping(whole["eval_settings"]).items():
        times = mapping(row)
        key = "median_time" if "median_time" in times else "mean_time"
        yield timed(
            f"eval_settings/{label(setting)}",
            times.get(key),
            key,
            "ms",
            name=label(setting),
            no_work=f"the setting {label(setting)} is told, the op and its dtype are not",
            device=label(first.get("name")) or None,
            units=count(first.get("multiprocessors")),
            clock="device-event",
            notes=bus,
        )


def _bus(device: Mapping[str, Any]) -> tuple[str, ...]:
    """The bandwidth that the device's record gives by itself: bits over 8, two transfers a clock, as for HBM and GDDR."""
    bits, mhz = device.get("memory_bus_width_bits"), device.get("memory_clock_rate_MHz")
    try:
        rate = 2e6 * number(mhz, "memory_clock_rate_MHz", above=0.0) * number(bits, "memory_bus_width_bits", above=0.0) / 8
    except ValueError:
        return ()
    return (f"the device's own memory clock and bus width give {quantity(rate, 'B/s')}, two transfers a clock",)


def _task(row: Mapping[str, Any], where: str) -> RecordRow:
    """robust-kbench's results by task: ``speedup`` is over eager, also where it is text."""
    backward = row.get("forward") in (False, "False")
    name = label(row.get("task")) + (" backward" if backward else "")
    speedup: float | None = None
    notes: tuple[str, ...] = ()
    if row.get("speedup") is not None:
        try:
            speedup = float(number(row["speedup"], "speedup", above=0.0))
        except ValueError as error:
            notes = (str(error),)
    rate = mapping(mapping(row.get("ncu_metrics")).get("Memory Throughput"))
    if (count(rate.get("n")) or 0) > 1:
        said = f"ncu's {shown(rate.get('avg_value'))} B/s is a plain mean over {rate['n']} launches, whatever their length"
        notes = (*notes, f"{said}: no rate of this row")
    return timed(
        where,
        row.get("runtime_ms"),
        "runtime_ms",
        "ms",
        name=name,
        no_work=_IN_CODE,
        clock="device-event",
        baseline_kind="eager",
        speedup=speedup,
        notes=notes,
    )
