"""Benchmark libraries with ``benchmarks`` in their JSON: pytest-benchmark, google-benchmark, nvbench.

nvbench writes its tables as CSV and Markdown too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from roofline_engine.check import Mistake
from roofline_engine.units import half_digit, number, quantity

from ... import declare
from ...declare import Declaration
from ...row import declaration_in
from ...timing.plugins import of_benchmark_json
from ..source import DocumentFormat, RecordRow, RefusedError, Sample, Source
from ..table import TIMES, Fields, Table, TableFormat, clean, duration, split_unit
from ..values import (
    NO_FLOPS,
    build_row,
    check_work,
    count,
    items,
    label,
    mapping,
    maybe_seconds,
    seconds,
    short_repr,
    totals_of,
)

_Work = tuple["dict[str, Any] | None", str]  # keywords, or None and why


def _benchmarks(source: Source) -> tuple[dict[str, Any], list[Any]]:
    """Return the document and its list ``benchmarks``. Raises RefusedError without one."""
    whole = source.json()
    listed = whole.get("benchmarks") if isinstance(whole, dict) else None
    if not isinstance(listed, list):
        raise RefusedError(f"{source.label}: the list 'benchmarks' is missing")
    return whole, listed


# pytest-benchmark, every schema since 2015. Times are seconds. Work comes from the row that a run with ``--roofline`` left in
# ``extra_info.roofline``, or from totals under known keys of ``extra_info``. Names of tests are not used.


def _read_pytest_benchmark(source: Source) -> Iterator[RecordRow]:
    for at, item in enumerate(_benchmarks(source)[1]):
        yield _pytest_row(mapping(item), f"benchmarks[{at}]")


def _pytest_row(item: Mapping[str, Any], where: str) -> RecordRow:
    name = label(item.get("fullname")) or label(item.get("name"))
    try:
        measurement = of_benchmark_json(item)
    except ValueError as error:
        return RecordRow(row=where, name=name, refused=str(error), refused_code="time")
    extra = mapping(item.get("extra_info"))
    declared, work, no_work = None, None, ""
    known_mistakes: tuple[Mistake, ...] = ()
    try:
        if isinstance(extra.get("roofline"), Mapping):
            declared = _declaration(extra["roofline"])
            if declared.work is None:
                no_work = "extra_info.roofline has no work"
            else:
                work, known_mistakes = totals_of(declared.work)
        else:
            keywords = declare.read_extra_info(extra)
            work, no_work = check_work(keywords) if keywords else (None, "extra_info has no bytes")
    except ValueError as error:
        no_work = str(error)
    return RecordRow(
        row=where,
        name=(declared and declared.kernel) or name,
        work=work,
        no_work=no_work,
        t_s=measurement.t_s,
        placeholder_time=measurement.t_s == 1,
        device=declared.device if declared else None,
        launches=declared.launches if declared else 1,
        clock=measurement.clock,
        cache=measurement.cache,
        rounds=measurement.rounds,
        q1_s=measurement.q1_s,
        q3_s=measurement.q3_s,
        known_mistakes=known_mistakes,
        notes=measurement.notes,
    )


def _declaration(row: Mapping[str, Any]) -> Declaration:
    """Return what the row of a run with ``--roofline`` declares. Raises ValueError."""
    try:
        return declaration_in(row)
    except ValueError as error:
        raise ValueError(f"extra_info.roofline: {error}") from None


# google-benchmark: ``real_time`` by its ``time_unit``, ns when that is left out, which is the library's default. Of the
# aggregates only a median is a time of a run, and only when the repetitions it is of are not rows themselves.
# ``bytes_per_second`` gives the bytes back by the clock that the library divides by: the CPU's, unless the name ends in
# ``/real_time`` or ``/manual_time``.


def _is_google_benchmark(sample: Sample) -> bool:
    keys = sample.keys
    return ".benchmarks[].stats" not in keys and not keys.isdisjoint(
        f".benchmarks[].{key}" for key in ("real_time", "time_unit", "run_type", "family_index")
    )


def _read_google_benchmark(source: Source) -> Iterator[RecordRow]:
    rows = [mapping(item) for item in _benchmarks(source)[1]]
    repeated = {_run_name(row) for row in rows if row.get("run_type", "iteration") == "iteration"}
    for at, row in enumerate(rows):
        yield _google_row(row, f"benchmarks[{at}]", repeated)


def _run_name(row: Mapping[str, Any]) -> str:
    return label(row.get("run_name")) or label(row.get("name"))


def _google_row(row: Mapping[str, Any], where: str, repeated: set[str]) -> RecordRow:
    name, unit = label(row.get("name")), row.get("time_unit", "ns")
    refused, code = _google_refusal(row, repeated), "summary" if row.get("run_type") == "aggregate" else "not_timed"
    if not refused and not (isinstance(unit, str) and unit.lower() in TIMES):
        refused, code = f"time_unit is {short_repr(unit)}, expected ns, us, ms or s", "time"
    if refused:
        return RecordRow(row=where, name=name, refused=refused, refused_code=code)
    unit = unit.lower()
    work, notes = _google_work(row, name, unit)
    return build_row(
        where,
        row,
        "real_time",
        unit,
        name=_run_name(row),
        work=work,
        clock="unknown" if "/manual_time" in name else "host",
        cache="warm",
        rounds=count(row.get("repetitions")) if row.get("run_type") == "aggregate" else None,
        notes=notes,
    )


def _google_refusal(row: Mapping[str, Any], repeated: set[str]) -> str:
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
        return f"an aggregate ({kind or 'without a name'}), not the time of a run"
    if _run_name(row) in repeated:
        return "an aggregate (median) of repetitions that are rows themselves"
    return "" if (count(row.get("repetitions")) or 0) > 1 else "an aggregate (median) without its number of repetitions"


def _google_work(row: Mapping[str, Any], name: str, unit: str) -> tuple[_Work, tuple[str, ...]]:
    rate = row.get("bytes_per_second")
    if rate is None:
        return (None, "items_per_second counts items, not bytes" if "items_per_second" in row else "no bytes_per_second"), ()
    threads = row.get("threads")
    if isinstance(threads, int) and threads > 1:
        return (None, f"bytes_per_second is over {threads} threads: the time that it divides by is unknown"), ()
    key = "real_time" if "/real_time" in name or "/manual_time" in name else "cpu_time"
    try:
        nbytes = number(rate, "bytes_per_second", above=0.0) * seconds(row.get(key), key, unit)
    except ValueError as error:
        return (None, str(error)), ()
    work = check_work({"bytes": nbytes})
    return work, (f"bytes are bytes_per_second times {key}; {NO_FLOPS}",) if work[0] else ()


# nvbench: the cold GPU time of each state (s, by its tag), with the global memory traffic that the benchmark declares. Cold
# means that the L2 is flushed before every launch. The time is a mean of CUDA events. Bytes are the declared rate times that
# time, exact when the declared sizes add up to it. Numbers are strings in this format.

#: Tags of a time, the first that a state has: the clock and the cache it was taken with.
_NVBENCH_TIMES = {
    "nv/cold/time/gpu/mean": ("device-event", "cold"),
    "nv/batch/time/gpu/mean": ("device-event", "warm"),
    "nv/cpu_only/time/cpu/mean": ("host", "unknown"),
}
_RATE = "nv/cold/bw/global/bytes_per_second"
_TRAFFIC = ("nv/gmem/reads/", "nv/gmem/writes/")
#: The rate is the declared bytes over the mean, both doubles.
_ROUNDING = 1e-6


def _read_nvbench(source: Source) -> Iterator[RecordRow]:
    whole, listed = _benchmarks(source)
    devices = {short_repr(mapping(item).get("id")): mapping(item) for item in items(whole.get("devices"))}
    for at, benchmark in enumerate(listed):
        states, name = mapping(benchmark).get("states"), label(mapping(benchmark).get("name"))
        if not isinstance(states, list):
            yield RecordRow(row=f"benchmarks[{at}]", name=name, refused="the list 'states' is missing", refused_code="row")
            continue
        for place, state in enumerate(map(mapping, states)):
            device = devices.get(short_repr(state.get("device")), {})
            yield _nvbench_row(state, name, f"benchmarks[{at}].states[{place}]", device)


def _nvbench_row(state: Mapping[str, Any], benchmark: str, where: str, device: Mapping[str, Any]) -> RecordRow:
    name = f"{benchmark} {label(state.get('name'))}".strip()
    product = label(device.get("name")) or None
    values, traffic = _summaries(state.get("summaries"))
    tag = next((tag for tag in _NVBENCH_TIMES if tag in values), None)
    if state.get("is_skipped"):
        refused = f"skipped: {label(state.get('skip_reason')) or 'no reason given'}"
        return RecordRow(row=where, name=name, device=product, refused=refused)
    if tag is None:
        return RecordRow(row=where, name=name, device=product, refused=f"no time: none of {', '.join(_NVBENCH_TIMES)}")
    clock, cache = _NVBENCH_TIMES[tag]
    work, notes = _nvbench_work(values, traffic)
    with suppress(ValueError):
        bus = number(device.get("global_memory_bus_bandwidth"), "global_memory_bus_bandwidth", above=0.0)
        notes += (f"the device's own bus clock and width give {quantity(bus, 'B/s')}",)
    # CPU Time, of the same launches until the device is done.
    wall_s = maybe_seconds(values, "nv/cold/time/cpu/mean", "s")[0] if "/cold/" in tag else None
    return build_row(
        where,
        values,
        tag,
        "s",
        name=name,
        work=work,
        device=product,
        units=count(device.get("number_of_sms")),
        clock=clock,
        wall_s=wall_s,
        cache=cache,
        rounds=count(values.get(tag.partition("/time/")[0] + "/sample_size")),
        notes=(*notes, "a mean"),
    )


def _summaries(listed: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values of a state by tag, and those that are declared bytes. The file has numbers as strings."""
    values, traffic = dict[str, Any](), dict[str, Any]()
    for summary in map(mapping, items(listed)):
        tag, data = summary.get("tag"), map(mapping, items(summary.get("data")))
        value = next((item.get("value") for item in data if item.get("name") == "value"), None)
        if isinstance(value, str):
            with suppress(ValueError):
                value = number(value, "value")
        if isinstance(tag, str):
            values[tag] = value
            if tag.startswith(_TRAFFIC) and summary.get("hint") == "bytes":
                traffic[tag] = value
    return values, traffic


def _nvbench_work(values: Mapping[str, Any], traffic: Mapping[str, Any]) -> tuple[_Work, tuple[str, ...]]:
    notes: tuple[str, ...] = (NO_FLOPS,)
    try:
        nbytes = sum(number(value, "nv/gmem", minimum=0) for value in traffic.values())
        if _RATE in values:
            mean = number(values["nv/cold/time/gpu/mean"], "nv/cold/time/gpu/mean", above=0.0)
            moved = number(values[_RATE], _RATE, above=0.0) * mean
            if not nbytes or abs(moved / nbytes - 1) >= _ROUNDING:
                nbytes = round(moved)
                notes += ("bytes are the rate times the time",)
        elif nbytes:
            notes += ("bytes are only what the benchmark names",)
        else:
            return (None, "no global memory reads or writes are declared"), ()
    except (KeyError, ValueError, OverflowError) as error:
        return (None, f"no bytes: {error}"), ()
    work = check_work({"bytes": nbytes})
    return work, notes if work[0] else ()


# nvbench's tables: the cold GPU time and ``GlobalMem BW`` of each state. CSV has all digits, in seconds and bytes/sec, for all
# benchmarks in one table; Markdown has a table for each benchmark and device, and units in the cells. Bytes are the bandwidth
# times the time.

#: Columns of a time, the first that a row fills: the clock and the cache it was taken with.
_NVBENCH_COLUMNS = {
    "gpu time": ("device-event", "cold"),
    "batch gpu": ("device-event", "warm"),
    "cpu time": ("host", "unknown"),
}
_SKIPPED, _BANDWIDTH, _AFTER_AXES = "skipped", "globalmem bw", ("skipped", "samples", "cpu time", "gpu time")
_SECONDS, _BYTES_S, _NVBENCH_BYTES = " (sec)", " (bytes/sec)", " (bytes)"
_BENCHMARK_TITLE = re.compile(r"## ([^\[].*)")
_DEVICE_TITLE = re.compile(r"### \[\d+\] (.+)")
_NVBENCH_START = re.compile(r"^(?:\|.*\| *(?:GPU|CPU) Time +\||## \[\d+\] `)", re.M)


def _split_cell(text: str) -> tuple[str, float]:
    number_, unit = split_unit(text)
    return number_, 1.0 if unit is None else unit  # CSV counts in seconds and bytes/sec


def _read_nvbench_csv(table: Table) -> Iterator[RecordRow]:
    benchmark, device = table.place("Benchmark"), table.place("Device Name")
    read = _nvbench_table(table.names)

    def row(where: str, fields: Fields) -> Iterable[RecordRow]:
        yield read(where, fields, clean(fields[benchmark]), clean(fields[device]) or None)

    return table.records(row)


def _read_nvbench_markdown(source: Source) -> Iterator[RecordRow]:
    benchmark, device, names = "", None, list[str]()
    read = _nvbench_table(names)
    for number_, line in enumerate(source.lines(), 1):
        text = line.strip()
        if title := _BENCHMARK_TITLE.fullmatch(text):
            benchmark, device = clean(title[1]), None
        elif title := _DEVICE_TITLE.fullmatch(text):
            device = clean(title[1])
        if not text.startswith("|"):
            names = []
            continue
        fields = [field.strip() for field in text.strip("|").split("|")]
        if not names:
            names, read = fields, _nvbench_table(fields)
        elif set(text) - set("|-: "):
            try:
                if len(fields) != len(names):
                    raise ValueError(f"{len(fields)} fields, the header has {len(names)}")
                yield read(f"line {number_}", fields, benchmark, device)
            except ValueError as error:
                yield RecordRow(row=f"line {number_}", name=benchmark, refused=str(error), refused_code="row")


def _nvbench_table(names: list[str]) -> Callable[[str, Fields, str, str | None], RecordRow]:
    """Return a function that reads a row of a table with these columns: its place, fields, benchmark and device."""
    low = [name.lower().removesuffix(_SECONDS).removesuffix(_BYTES_S) for name in names]
    times = [(low.index(name), *how) for name, how in _NVBENCH_COLUMNS.items() if name in low]
    rate, skipped, cpu, samples = (
        low.index(name) if name in low else None for name in (_BANDWIDTH, _SKIPPED, "cpu time", "samples")
    )
    first = low.index("device name") + 1 if "device name" in low else 0
    ends = [low.index(name) for name in _AFTER_AXES if name in low]
    axes = [at for at in range(first, min(ends, default=first)) if not names[at].endswith((_NVBENCH_BYTES, "(pow2)"))]

    def read(where: str, fields: Fields, benchmark: str, device: str | None) -> RecordRow:
        name = clean(" ".join([benchmark, *(f"{names[at]}={fields[at]}" for at in axes)])[:200])
        if skipped is not None and fields[skipped].strip().lower() == "yes":
            return RecordRow(row=where, name=name, device=device, refused="skipped")
        chosen = next((time for time in times if fields[time[0]].strip()), None)
        if chosen is None:
            return RecordRow(
                row=where, name=name, device=device, refused="no time: neither GPU Time nor CPU Time", refused_code="time"
            )
        at, clock, cache = chosen
        text, unit = _split_cell(fields[at])
        t_s, refused = duration(text, names[at], unit)
        work: _Work = None, "no GlobalMem BW: no global memory reads or writes are declared"
        digits = half_digit(text, t_s / unit) if t_s else 0.0
        if t_s is not None and rate is not None and fields[rate].strip():
            text, per_s = _split_cell(fields[rate])
            moved = number(text, names[rate], above=0.0) * per_s
            work, digits = check_work({"bytes": moved * t_s}), max(digits, half_digit(text, moved / per_s))
        wall_s = None
        if cpu is not None and cache == "cold" and fields[cpu].strip():
            text, unit = _split_cell(fields[cpu])
            wall_s = duration(text, names[cpu], unit)[0]
        rounds = fields[samples].strip().rstrip("x") if samples is not None else ""
        return RecordRow(
            row=where,
            name=name,
            device=device,
            work=work[0],
            no_work=work[1],
            t_s=t_s,
            rounding=digits,
            clock=clock,
            cache=cache,
            wall_s=wall_s,
            rounds=int(rounds) if rounds.isdecimal() and int(rounds) > 0 else None,
            refused=refused,
            refused_code="time",
            notes=(NO_FLOPS, "bytes are the rate times the time", "a mean") if work[0] else ("a mean",),
        )

    return read


PYTEST_BENCHMARK = DocumentFormat(
    "pytest-benchmark JSON",
    lambda sample: ".benchmarks[].stats" in sample.keys and ".benchmarks[].stats.median_ns" not in sample.keys,
    _read_pytest_benchmark,
    "benchmarks[] with stats; work in extra_info",
)
GOOGLE_BENCHMARK = DocumentFormat(
    "google-benchmark JSON", _is_google_benchmark, _read_google_benchmark, "benchmarks[] with real_time, bytes_per_second"
)
NVBENCH = DocumentFormat(
    "nvbench JSON",
    lambda sample: ".meta.version.nvbench" in sample.keys,
    _read_nvbench,
    "benchmarks[].states[] with their summaries, global memory reads and writes",
)
NVBENCH_CSV = TableFormat(
    "nvbench CSV",
    lambda names: {"benchmark", "device name"} <= names and any(name.endswith(" time (sec)") for name in names),
    _read_nvbench_csv,
    "Benchmark, Device Name, Skipped, GPU Time (sec), GlobalMem BW (bytes/sec), and the axes",
)
NVBENCH_MARKDOWN = DocumentFormat(
    "nvbench Markdown",
    lambda sample: _NVBENCH_START.search(sample.text) is not None,
    _read_nvbench_markdown,
    "a table for each benchmark and device: GPU Time, CPU Time, GlobalMem BW, and the axes",
)
