"""nvbench's JSON: the cold GPU time of each state (s, by its tag), with the global memory traffic the benchmark declares.

Cold means that the L2 is flushed before every launch. The time is a mean of CUDA events. Bytes are the declared rate times that
time, exact where the declared sizes add up to it. Figures are strings in this format.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from roofline_engine.units import number, quantity

from .row import RecordRow
from .source import Sample, Source, benchmarks, outline
from .values import buildable, count, label, mapping, maybe_seconds, shown, timed

NAME = "nvbench JSON"

#: Tags of a time, the first that a state has: the clock and the cache it was taken with.
_TIMES = {
    "nv/cold/time/gpu/mean": ("device-event", "cold"),
    "nv/batch/time/gpu/mean": ("device-event", "warm"),
    "nv/cpu_only/time/cpu/mean": ("host", "unknown"),
}
_RATE = "nv/cold/bw/global/bytes_per_second"
_TRAFFIC = ("nv/gmem/reads/", "nv/gmem/writes/")
#: The rate is the declared bytes over the mean, both doubles.
_ROUNDING = 1e-6


def matches(sample: Sample) -> bool:
    """Its own version in ``meta``."""
    return ".meta.version.nvbench" in outline(sample.text)


def read(source: Source) -> Iterator[RecordRow]:
    """A row per state.

    Raises:
        RefusedError: for what is no JSON or has no list of benchmarks.
    """
    whole, listed = benchmarks(source)
    parts = whole.get("devices")
    devices = {shown(mapping(item).get("id")): mapping(item) for item in (parts if isinstance(parts, list) else [])}
    for at, benchmark in enumerate(listed):
        states = mapping(benchmark).get("states")
        name = label(mapping(benchmark).get("name"))
        if not isinstance(states, list):
            yield RecordRow(row=f"benchmarks[{at}]", name=name, refused="no list 'states' in it")
            continue
        for index, state in enumerate(states):
            device = devices.get(shown(mapping(state).get("device")), {})
            yield _row(mapping(state), name, f"benchmarks[{at}].states[{index}]", device)


def _row(state: Mapping[str, Any], benchmark: str, where: str, device: Mapping[str, Any]) -> RecordRow:
    name = f"{benchmark} {label(state.get('name'))}".strip()
    product = label(device.get("name")) or None
    if state.get("is_skipped"):
        reason = label(state.get("skip_reason")) or "no reason given"
        return RecordRow(row=where, name=name, device=product, refused=f"skipped: {reason}")
    summaries = _summaries(state.get("summaries"))
    tag = next((tag for tag in _TIMES if tag in summaries), None)
    if tag is None:
        return RecordRow(row=where, name=name, device=product, refused=f"no time: none of {', '.join(_TIMES)}")
    clock, cache = _TIMES[tag]
    work, why, notes = _work(summaries)
    samples = summaries.get(tag.partition("/time/")[0] + "/sample_size", ("", None))[1]
    with suppress(ValueError):
        bus = number(device.get("global_memory_bus_bandwidth"), "global_memory_bus_bandwidth", above=0.0)
        notes += (f"the device's own bus clock and width give {quantity(bus, 'B/s')}",)
    return timed(
        where,
        summaries[tag][1],
        tag,
        "s",
        name=name,
        work=work,
        no_work=why,
        device=product,
        units=count(device.get("number_of_sms")),
        clock=clock,
        wall_s=_wall(summaries, tag),
        cache=cache,
        rounds=count(samples),
        notes=(*notes, "a mean"),
    )


def _wall(summaries: Mapping[str, tuple[str, Any]], tag: str) -> float | None:
    """The host's time of the same launches, until the device is done: nvbench's ``CPU Time``."""
    beside = summaries.get(tag.replace("/gpu/", "/cpu/"), ("", None))[1] if "/cold/" in tag else None
    return maybe_seconds(beside, tag, "s")[0]


def _summaries(listed: Any) -> dict[str, tuple[str, Any]]:
    """(hint, value) by tag. A figure is a string there, so that no digit is lost; what is none stays as it is."""
    found: dict[str, tuple[str, Any]] = {}
    for summary in listed if isinstance(listed, list) else []:
        summary = mapping(summary)
        data = summary.get("data")
        values = [mapping(item) for item in data] if isinstance(data, list) else []
        value = next((item.get("value") for item in values if item.get("name") == "value"), None)
        if isinstance(value, str):
            with suppress(ValueError):
                value = number(value, "value")
        tag = summary.get("tag")
        if isinstance(tag, str):
            found[tag] = (label(summary.get("hint")), value)
    return found


def _work(summaries: Mapping[str, tuple[str, Any]]) -> tuple[dict[str, Any] | None, str, tuple[str, ...]]:
    named = [value for tag, (hint, value) in summaries.items() if tag.startswith(_TRAFFIC) and hint == "bytes"]
    try:
        total = sum(number(value, "nv/gmem", minimum=0) for value in named)
        if _RATE in summaries:
            mean = number(summaries["nv/cold/time/gpu/mean"][1], "nv/cold/time/gpu/mean", above=0.0)
            moved = number(summaries[_RATE][1], _RATE, above=0.0) * mean
            nbytes, said = (
                (total, "") if total and abs(moved / total - 1) < _ROUNDING else (round(moved), "the rate times the time")
            )
        elif total:
            nbytes, said = total, "only what the benchmark names"
        else:
            return None, "no global memory reads or writes are declared", ()
    except (KeyError, ValueError, OverflowError) as error:
        return None, f"no bytes: {error}", ()
    work, why = buildable({"bytes": nbytes})
    notes = ("FLOPs are not known: only the memory roof is tested", *((f"bytes are {said}",) if said else ()))
    return work, why, notes if work else ()
