"""Timing tools whose files have times by name and no work: pytest-codspeed, pyperf, asv, hyperfine.

The work of their rows comes from the globs of ``[tool.roofline.work]``. All of them time on the host, in a loop over the same
data.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, product
from math import isnan
from statistics import median, quantiles
from typing import Any

from roofline_engine.units import finite, is_time

from ...timing.plugins import of_codspeed_stats
from ..source import DocumentFormat, RecordRow, RefusedError, Sample, Source
from ..values import first, items, label, mapping, short_repr

#: Why these rows have no work of their own.
NAMELESS = "the file has times alone: a glob of [tool.roofline.work] in pyproject.toml gives the work of this name"
_HOW: dict[str, Any] = {"no_work": NAMELESS, "clock": "host", "cache": "warm"}


def _list_at(source: Source, key: str) -> tuple[dict[str, Any], list[Any]]:
    whole = source.json()
    listed = whole.get(key) if isinstance(whole, dict) else None
    if not isinstance(listed, list):
        raise RefusedError(f"{source.label}: the list {key!r} is missing")
    return whole, listed


def _of_times(where: str, name: str, times: Iterable[object], what: str) -> RecordRow:
    """Return the record of a list of times in seconds: their median and quartiles."""
    seconds = [finite(value) for value in times]
    known = [value for value in seconds if value is not None and is_time(value)]
    if not known or len(known) < len(seconds):
        why = f"{what} is {short_repr(seconds)}, expected times in seconds" if seconds else f"no time: {what} is empty"
        return RecordRow(row=where, name=name, refused=why, refused_code="time")
    q1_s, _, q3_s = quantiles(known, n=4, method="inclusive") if len(known) > 1 else known * 3
    return RecordRow(row=where, name=name, t_s=median(known), rounds=len(known), q1_s=q1_s, q3_s=q3_s, **_HOW)


# pytest-codspeed's walltime instrument, .codspeed/results_*.json: nanoseconds a call.


def _read_codspeed(source: Source) -> Iterator[RecordRow]:
    for at, item in enumerate(map(mapping, _list_at(source, "benchmarks")[1])):
        where, name = f"benchmarks[{at}]", label(item.get("uri")) or label(item.get("name"))
        try:
            times = of_codspeed_stats(mapping(item.get("stats")))
        except ValueError as error:
            yield RecordRow(row=where, name=name, refused=str(error), refused_code="time")
            continue
        yield RecordRow(
            row=where,
            name=name,
            t_s=times.t_s,
            rounds=times.rounds,
            q1_s=times.q1_s,
            q3_s=times.q3_s,
            notes=times.notes,
            **_HOW,
        )


# pyperf: the values of all runs, in seconds a call unless the metadata names another unit. A run that calibrates has none.


def _read_pyperf(source: Source) -> Iterator[RecordRow]:
    whole, listed = _list_at(source, "benchmarks")
    shared = mapping(whole.get("metadata"))
    for at, item in enumerate(map(mapping, listed)):
        metadata = {**shared, **mapping(item.get("metadata"))}
        where, name, unit = f"benchmarks[{at}]", label(metadata.get("name")), metadata.get("unit", "second")
        if unit != "second":
            yield RecordRow(row=where, name=name, refused=f"the unit is {short_repr(unit)}, not a time")
            continue
        values = [value for run in items(item.get("runs")) for value in items(mapping(run).get("values"))]
        yield _of_times(where, name, values, "values")


# hyperfine: seconds of a process, its start included. --ignore-failure keeps runs that failed.


def _read_hyperfine(source: Source) -> Iterator[RecordRow]:
    for at, item in enumerate(map(mapping, _list_at(source, "results")[1])):
        where, name = f"results[{at}]", label(item.get("command"))
        codes = items(item.get("exit_codes"))
        failed = sum(code != 0 for code in codes)
        if failed:
            yield RecordRow(row=where, name=name, refused=f"{failed} of {len(codes)} runs failed (exit_codes)")
            continue
        record = _of_times(where, name, items(item.get("times")) or [first(item, "median", "mean")], "times")
        record.notes += ("the time of a process, its start included",)
        yield record


# asv: a file for a commit and a machine. A result is a list with a value for each combination of the parameters, in seconds for
# a benchmark that is named time_ or timeraw_; null is a failure, NaN a skipped combination. Files of version 1 have no columns.

_ASV_TIME = re.compile(r"(?:.*\.)?(?:time(?:raw)?_\w+|Time[A-Z]\w*)")


def _read_asv(source: Source) -> Iterator[RecordRow]:
    whole = source.json()
    results = whole.get("results") if isinstance(whole, dict) else None
    if not isinstance(results, dict):
        raise RefusedError(f"{source.label}: the object 'results' is missing")
    columns = [str(column) for column in items(whole.get("result_columns"))] or ["result", "params"]
    for key, value in results.items():
        row = value if isinstance(value, dict) else dict(zip(columns, value if isinstance(value, list) else [value]))
        yield from _asv_rows(label(key), row)


def _asv_rows(name: str, row: Mapping[str, Any]) -> Iterator[RecordRow]:
    where = f"results.{name}"
    if not _ASV_TIME.fullmatch(name):
        yield RecordRow(row=where, name=name, refused="not a time: its name starts with neither time_ nor timeraw_")
        return
    values = row.get("result")
    values = values if isinstance(values, list) else [values]
    combinations = islice(product(*map(items, items(row.get("params")))), len(values))
    names = [f"({', '.join(map(str, combination))})" if combination else "" for combination in combinations]
    quartiles = [items(row.get(f"stats_q_{part}")) for part in (25, 75)]
    for at, value in enumerate(values):
        full, place_name = label(name + (names[at] if at < len(names) else f"[{at}]")), f"{where}[{at}]"
        t_s = finite(value)
        if t_s is None or not is_time(t_s):
            is_skipped = isinstance(value, float) and isnan(value)
            why = "skipped" if is_skipped else "the benchmark failed" if value is None else f"result is {short_repr(value)}"
            yield RecordRow(row=place_name, name=full, refused=why, refused_code="not_timed" if is_skipped else "time")
            continue
        q1_s, q3_s = (finite(part[at]) if at < len(part) else None for part in quartiles)
        has_spread = q1_s is not None and q3_s is not None and 0 < q1_s <= t_s <= q3_s
        yield RecordRow(
            row=place_name, name=full, t_s=t_s, q1_s=q1_s if has_spread else None, q3_s=q3_s if has_spread else None, **_HOW
        )


def _has_keys(*paths: str) -> Any:
    return lambda sample: sample.keys.issuperset(paths)


def _is_asv(sample: Sample) -> bool:
    keys = sample.keys
    return ".results" in keys and (".result_columns" in keys or {".commit_hash", ".env_name"} <= keys)


CODSPEED = DocumentFormat(
    "pytest-codspeed JSON", _has_keys(".benchmarks[].stats.median_ns"), _read_codspeed, "benchmarks[] with uri and stats in ns"
)
PYPERF = DocumentFormat("pyperf JSON", _has_keys(".benchmarks[].runs"), _read_pyperf, "benchmarks[].runs[] with values in s")
ASV = DocumentFormat("asv results", _is_asv, _read_asv, "results of time_ benchmarks by their parameters, in s")
HYPERFINE = DocumentFormat(
    "hyperfine JSON",
    _has_keys(".results[].command", ".results[].mean"),
    _read_hyperfine,
    "results[] with command and times in s",
)
