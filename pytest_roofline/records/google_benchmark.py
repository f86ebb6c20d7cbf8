"""google-benchmark's JSON. ``real_time`` by its ``time_unit``, ns where that is left out, which is the library's default.

Of the aggregates only a median is a time of a run, and only where the repetitions it is of are not rows themselves.
``bytes_per_second`` gives the bytes back by the clock that the library divides by: the CPU's, unless the name ends in
``/real_time`` or ``/manual_time``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from roofline_engine.units import number

from .row import RecordRow
from .source import Sample, Source, benchmarks, outline
from .values import PER_SECOND, buildable, count, label, mapping, seconds, shown, timed

NAME = "google-benchmark JSON"

_KEYS = ("real_time", "time_unit", "run_type", "family_index")


def matches(sample: Sample) -> bool:
    """Benchmarks with a real time or a run type, and no statistics."""
    keys = outline(sample.text)
    return ".benchmarks[].stats" not in keys and any(f".benchmarks[].{key}" in keys for key in _KEYS)


def read(source: Source) -> Iterator[RecordRow]:
    """A row per benchmark.

    Raises:
        RefusedError: for what is no JSON or has no list of benchmarks.
    """
    _, listed = benchmarks(source)
    rows = [mapping(item) for item in listed]
    repeated = {_run(row) for row in rows if row.get("run_type", "iteration") == "iteration"}
    for at, row in enumerate(rows):
        yield _row(row, f"benchmarks[{at}]", repeated)


def _run(row: Mapping[str, Any]) -> str:
    return label(row.get("run_name")) or label(row.get("name"))


def _row(row: Mapping[str, Any], where: str, repeated: set[str]) -> RecordRow:
    name = label(row.get("name"))
    why = _unusable(row, repeated)
    unit = row.get("time_unit", "ns")
    if not why and unit not in tuple(PER_SECOND):
        why = f"time_unit is {shown(unit)}, expected {', '.join(PER_SECOND)}"
    if why:
        return RecordRow(row=where, name=name, refused=why)
    manual = "/manual_time" in name
    work, no_work, notes = _work(row, name, unit)
    return timed(
        where,
        row.get("real_time"),
        "real_time",
        unit,
        name=_run(row),
        work=work,
        no_work=no_work,
        clock="unknown" if manual else "host",
        cache="warm",
        rounds=count(row.get("repetitions")) if row.get("run_type") == "aggregate" else None,
        notes=notes,
    )


def _unusable(row: Mapping[str, Any], repeated: set[str]) -> str:
    if not row:
        return "expected an object with name and real_time"
    if row.get("error_occurred"):
        return f"error_occurred: {label(row.get('error_message')) or 'no message'}"
    if row.get("skipped"):
        return f"skipped: {label(row.get('skip_message')) or 'no message'}"
    if row.get("run_type") != "aggregate":
        return ""
    kind = label(row.get("aggregate_name"))
    if kind != "median":
        return f"an aggregate ({kind or 'of no name'}), not the time of a run"
    if _run(row) in repeated:
        return "an aggregate (median) of repetitions that are rows themselves"
    return "" if (count(row.get("repetitions")) or 0) > 1 else "an aggregate (median) that does not say of how many repetitions"


def _work(row: Mapping[str, Any], name: str, unit: str) -> tuple[dict[str, Any] | None, str, tuple[str, ...]]:
    rate = row.get("bytes_per_second")
    if rate is None:
        items = "items_per_second counts items, no bytes" if "items_per_second" in row else "no bytes_per_second"
        return None, items, ()
    threads = row.get("threads")
    if isinstance(threads, int) and threads > 1:
        return None, f"bytes_per_second over {threads} threads: by which time is not told", ()
    wall = "/real_time" in name or "/manual_time" in name
    key = "real_time" if wall else "cpu_time"
    try:
        nbytes = number(rate, "bytes_per_second", above=0.0) * seconds(row.get(key), key, unit)
    except ValueError as error:
        return None, str(error), ()
    work, why = buildable({"bytes": nbytes})
    note = f"bytes are bytes_per_second times {key}; FLOPs are not known: only the memory roof is tested"
    return work, why, (note,) if work else ()
