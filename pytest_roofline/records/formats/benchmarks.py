"""Benchmark libraries with ``benchmarks`` in their JSON: pytest-benchmark, google-benchmark, nvbench."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from roofline_engine.check import Mistake
from roofline_engine.units import number, quantity
from roofline_engine.work import Work

from ... import declare
from ...declare import Declaration
from ...row import declaration_in
from ...timing.plugins import of_benchmark_json
from ..source import DocumentFormat, RecordRow, RefusedError, Sample, Source
from ..table import TIMES
from ..values import NO_FLOPS, build_row, check_work, count, items, label, mapping, maybe_seconds, seconds, short_repr

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
                work, known_mistakes = _keywords(declared.work)
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


def _keywords(work: Work) -> tuple[dict[str, Any], tuple[Mistake, ...]]:
    """Return the work of a row by its primary byte model; the other models are known wrong counts."""
    keywords = {
        "op": work.op,
        "bytes": work.bytes,
        "flops": work.flops,
        "dtype": work.dtype.name,
        "weight_dtype": work.weight_dtype.name,
        "engine": work.engine,
        "coverage": work.coverage,
        "least": work.least,
    }
    return keywords, tuple(
        Mistake("overcounted_bytes", work.bytes / model.bytes, "memory", f"bytes by {label(model.model)}", in_work=True)
        for model in work.candidates[1:]
        if 0 < model.bytes < work.bytes
    )


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


PYTEST_BENCHMARK = DocumentFormat(
    "pytest-benchmark JSON",
    lambda sample: ".benchmarks[].stats" in sample.keys,
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
