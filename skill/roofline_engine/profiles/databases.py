"""SQLite databases of profilers: rocpd of rocprofv3, the export of nsys, the results of rocprof.

SQL adds the dispatches up, so memory does not grow with their number, apart from the different durations of one kernel. A
database is opened read-only and as immutable: nothing is written beside it, and a lock does not stop the reading. Only tables
are read, no views, which a file could define at will.

Sources of the schemas: rocpd_tables.sql of ROCm/rocprofiler-sdk, the SQLite schema reference of Nsight Systems, sqlitedb.py and
tblextr.py of ROCm/rocprofiler.
"""

from __future__ import annotations

import heapq
import math
import os
import re
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..counters.amd import join_rocpd_times
from ..files import list_tables, open_database, quote_name
from ..inputs import Times, amd_device, choose_device
from ..kernels import clean_name, is_copy
from ..peaks import Device
from ..units import printable
from .dispatches import kind_of
from .form import KernelUse, Profile, Unit
from .timeline import COPY, merge_intervals

if TYPE_CHECKING:
    import sqlite3


class _Source(NamedTuple):
    """Where the intervals of one kind are, as expressions of SQL; times are in nanoseconds."""

    rows: str  # the tables, joined
    start: str
    end: str
    name: str  # a number, or the name itself
    device: str
    sizes: tuple[str, ...] = ()  # grid and block: three and three
    regime: str = "NULL"  # prefill or decode


class _Layout(NamedTuple):
    """What is read of one database."""

    source: str  # the format, for people
    kernels: tuple[_Source, ...]
    copies: tuple[_Source, ...]
    names: Mapping[Any, str]  # of the numbers in ``_Source.name``; a name that is not in it stands for itself
    devices: Mapping[str, Device]  # by the value of ``_Source.device``
    grid_is_items: bool = False  # the grid is counted in work-items, not in blocks
    is_counted: bool = False  # it has hardware counters


def read(path: str) -> Profile:
    """Read a database.

    Raises:
        ValueError: with one line that names the file and the reason.
    """
    label = printable(os.path.basename(path))
    problems = []
    log = f"{path}-wal"
    if os.path.isfile(log) and os.path.getsize(log):
        problems.append(f"{label}: rows in {printable(os.path.basename(log))} are not read: close the program that writes it")
    with open_database(path) as base:
        return _read(base, label, problems)


def _read(base: sqlite3.Connection, label: str, problems: list[str]) -> Profile:
    tables = list_tables(base)
    layout = next((found for find in (_rocpd, _nsys, _rocprof) for found in [find(base, tables)] if found), None)
    if layout is None:
        raise ValueError(f"{label}: no table of kernels in it: expected rocpd, an export of nsys, or results of rocprof")
    if not layout.kernels:
        raise ValueError(f"{label}: {layout.source}: no table of kernels in it: were kernels traced?")
    units, lines = _units(base, layout)
    problems += [f"{label}: {line}" for line in lines]
    if not units:
        raise ValueError(f"{label}: it has no kernel" + (f": {lines[0]}" if lines else ""))
    timelines = list(_timelines(base, layout))
    used = {name: layout.devices[name] for name in sorted(name for name, _ in timelines) if name in layout.devices}
    device, doubt = choose_device(used or dict(layout.devices))
    problems += [f"{label}: {line}" for line in doubt]
    measured = tuple(timeline for _, timeline in timelines)
    return Profile(layout.source, label, tuple(units), device, measured, problems=tuple(problems), is_counted=layout.is_counted)


# Adding up.


class _Durations:
    """The different durations of one kernel with their counts, each part in rising order."""

    def __init__(self) -> None:
        self._parts: dict[Any, tuple[array[int], array[int]]] = {}

    def add(self, part: Any, duration: int, count: int) -> None:
        durations, counts = self._parts.setdefault(part, (array("q"), array("q")))
        durations.append(duration)
        counts.append(count)

    def times(self) -> Times:
        """Return the times in microseconds."""

        def merged() -> Iterator[tuple[int, int]]:
            return heapq.merge(*(zip(*part) for part in self._parts.values()))

        calls = total = 0
        least = most = 0
        squares = 0.0
        for duration, count in merged():
            least = duration if not calls else least
            most = duration
            calls += count
            total += duration * count
            squares += float(duration) * duration * count
        middle = [(calls - 1) // 2, calls // 2]
        found: list[int] = []
        seen = 0
        for duration, count in merged():
            seen += count
            while len(found) < 2 and middle[len(found)] < seen:
                found.append(duration)
            if len(found) == 2:
                break
        mean = total / calls
        spread = math.sqrt(max(squares / calls - mean * mean, 0.0))
        return Times(calls, total / 1e3, sum(found) / 2e3, least / 1e3, most / 1e3, spread / 1e3)


def _times(source: _Source) -> str:
    """Return the condition that the times of a row are numbers, and in order."""
    return f"typeof({source.start}) = 'integer' AND typeof({source.end}) = 'integer' AND {source.end} >= {source.start}"


def _name(layout: _Layout, value: Any) -> str:
    return clean_name(printable(str(layout.names.get(value, value)))) or "unnamed"


def _units(base: sqlite3.Connection, layout: _Layout) -> tuple[list[Unit], list[str]]:
    durations: dict[tuple[str, Any], _Durations] = defaultdict(_Durations)
    uses: dict[tuple[str, Any], dict[Any, list[float]]] = defaultdict(dict)
    rows = used = 0
    for at, source in enumerate(layout.kernels):
        rows += base.execute(f"SELECT count(*) FROM {source.rows}").fetchone()[0]
        length, where = f"({source.end} - {source.start})", f"FROM {source.rows} WHERE {_times(source)}"
        query = f"SELECT {source.name}, {source.regime}, {length}, count(*) {where} GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
        for value, regime, duration, count in base.execute(query):
            used += count
            durations[_name(layout, value), regime].add((at, value), duration, count)
        sizes = source.sizes or ("NULL",)
        places = ", ".join(str(5 + place) for place in range(len(sizes)))
        query = f"SELECT {source.name}, {source.regime}, count(*), sum({length}), {', '.join(sizes)} {where}"
        for value, regime, count, total, *numbers in base.execute(f"{query} GROUP BY 1, 2, {places}"):
            use = uses[_name(layout, value), regime].setdefault(_shape(numbers, layout.grid_is_items), [0.0, 0.0])
            use[0] += count
            use[1] += total / 1e3
    units = []
    for (name, regime), found in durations.items():
        if is_copy(name):
            continue
        kernels = [KernelUse(name, launches, total, *shape) for shape, (launches, total) in uses[name, regime].items()]
        units.append(Unit(tuple(sorted(kernels, key=lambda use: -use.total_us)), found.times(), regime=regime))
    units.sort(key=lambda unit: -unit.times.total_us)
    return units, [f"{rows - used} of {rows} kernels have no usable times: left out"] if rows > used else []


def _shape(numbers: Sequence[Any], is_items: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the grid in blocks, and the block."""
    if len(numbers) != 6 or not all(isinstance(value, int) and value >= 0 for value in numbers):
        return (), ()
    grid, block = tuple(numbers[:3]), tuple(numbers[3:])
    return (tuple(-(-size // (step or 1)) for size, step in zip(grid, block)) if is_items else grid), block


def _timelines(base: sqlite3.Connection, layout: _Layout) -> Iterator[tuple[str, Any]]:
    """Yield the devices that something ran on, each with its timeline."""
    parts = []
    for source, name in (
        *((source, source.name) for source in layout.kernels),
        *((source, "NULL") for source in layout.copies),
    ):
        parts.append(
            f"SELECT {source.device} AS device, {source.start} AS t0, {source.end} AS t1, {name} AS name"
            f" FROM {source.rows} WHERE {_times(source)}"
        )
    union = " UNION ALL ".join(parts)
    kinds: dict[Any, int] = {None: COPY}
    for device, first in base.execute(f"SELECT device, min(t0) FROM ({union}) GROUP BY 1 ORDER BY 1").fetchall():
        if device is None:
            continue
        rows = base.execute(f"SELECT t0, t1, name FROM ({union}) WHERE device = ? ORDER BY t0", (device,))
        timeline = merge_intervals(str(device), _intervals(rows, layout, kinds, first))
        if timeline is not None:
            yield str(device), timeline


def _intervals(
    rows: Iterable[tuple[int, int, Any]], layout: _Layout, kinds: dict[Any, int], first: int
) -> Iterator[tuple[float, float, int]]:
    for start, end, value in rows:
        kind = kinds.get(value)
        if kind is None:
            kind = kinds[value] = kind_of(_name(layout, value))
        yield (start - first) / 1e3, (end - first) / 1e3, kind


# The layouts.


def _rocpd(base: sqlite3.Connection, tables: Mapping[str, tuple[str, ...]]) -> _Layout | None:
    """Find the tables of rocpd. Each process has tables of its own, with a number in their names.

    The times of a dispatch are in its row, or in a table of timestamps; the device is in its row, or in that of its track.
    """
    endings = [name[len("rocpd_kernel_dispatch") :] for name in tables if re.fullmatch(r"rocpd_kernel_dispatch\w*", name)]
    if not endings:
        return None
    kernels, copies = [], []
    names: dict[Any, str] = {}
    devices: dict[str, Device] = {}
    for ending in endings:
        symbols = f"rocpd_info_kernel_symbol{ending}"
        if symbols in tables:
            wanted = [name for name in ("display_name", "kernel_name") if name in tables[symbols]]
            for number, *spelled in base.execute(f"SELECT id, {', '.join(wanted)} FROM {quote_name(symbols)}"):
                names[f"{ending}:{number}"] = next((str(text) for text in spelled if text), f"kernel {number}")
        devices.update(_rocpd_devices(base, tables, f"rocpd_info_agent{ending}"))
        sizes = tuple(f"k.{kind}_size_{axis}" for kind in ("grid", "workgroup") for axis in "xyz")
        found = _rocpd_rows(tables, "rocpd_kernel_dispatch", ending, "k.agent_id", "t.agent_id")
        if found is not None:
            kernels.append(found._replace(name=f"'{ending}:' || k.kernel_id", sizes=sizes))
        copied = _rocpd_rows(tables, "rocpd_memory_copy", ending, "coalesce(k.dst_agent_id, k.src_agent_id)", None)
        if copied is not None and devices:
            ids = ", ".join(number for number in devices)
            on_gpu = f"CASE WHEN k.dst_agent_id IN ({ids}) THEN k.dst_agent_id"
            on_gpu += f" WHEN k.src_agent_id IN ({ids}) THEN k.src_agent_id END"
            copies.append(copied._replace(device=on_gpu))
    is_counted = any(
        base.execute(f"SELECT 1 FROM {quote_name(name)} LIMIT 1").fetchone()
        for name in tables
        if name.startswith("rocpd_pmc_event")
    )
    return _Layout("rocpd", tuple(kernels), tuple(copies), names, devices, grid_is_items=True, is_counted=is_counted)


def _rocpd_rows(
    tables: Mapping[str, tuple[str, ...]], table: str, ending: str, device: str, device_of_track: str | None
) -> _Source | None:
    found = join_rocpd_times(tables, table, ending)
    if found is None:
        return None
    rows, start, end = found
    columns = tables[table + ending]
    if "agent_id" not in columns and device_of_track is not None and "track_id" in columns:
        rows += f" LEFT JOIN {quote_name(f'rocpd_track{ending}')} t ON t.id = k.track_id"
        device = device_of_track
    return _Source(rows, start, end, "NULL", device)


def _rocpd_devices(base: sqlite3.Connection, tables: Mapping[str, tuple[str, ...]], table: str) -> dict[str, Device]:
    """Read the GPUs. ``extdata`` has the agent's properties as JSON, with the number of its CUs."""
    if table not in tables:
        return {}
    import json

    wanted = [name if name in tables[table] else "NULL" for name in ("id", "type", "name", "product_name", "extdata")]
    devices = {}
    for number, kind, name, product, more in base.execute(f"SELECT {', '.join(wanted)} FROM {quote_name(table)}"):
        if kind != "GPU" or not isinstance(number, int):
            continue
        try:
            facts = json.loads(more) if more else {}
        except ValueError:
            facts = {}
        units = facts.get("cu_count") if isinstance(facts, dict) else None
        devices[str(number)] = amd_device(str(name or ""), str(product or ""), units if isinstance(units, int) else None)
    return devices


def _nsys(base: sqlite3.Connection, tables: Mapping[str, tuple[str, ...]]) -> _Layout | None:
    """Find the tables of an nsys export; nvprof's have the same names."""
    is_export = "StringIds" in tables or "StringTable" in tables
    columns = next((tables[name] for name in _NSYS_KERNELS if name in tables), ())
    if not is_export and not columns:
        return None
    table = next((name for name in _NSYS_KERNELS if name in tables), "")
    names: dict[Any, str] = {}
    kernels: tuple[_Source, ...] = ()
    name = next((column for column in ("demangledName", "shortName", "name", "mangledName") if column in columns), None)
    if table and name and {"start", "end"}.issubset(columns):
        device = "deviceId" if "deviceId" in columns else "0"
        shape = tuple(f"{kind}{axis}" for kind in ("grid", "block") for axis in "XYZ")
        sizes = shape if set(shape).issubset(columns) else ()
        found = _Source(quote_name(table), '"start"', '"end"', quote_name(name), device, sizes)
        kernels = (_with_regimes(base, tables, table, found),)
        strings = next((found for found in ("StringIds", "StringTable") if found in tables), None)
        if strings:
            key = "id" if "id" in tables[strings] else "_id_"
            used = f"SELECT DISTINCT {quote_name(name)} FROM {quote_name(table)}"
            query = f"SELECT {key}, value FROM {quote_name(strings)} WHERE {key} IN ({used})"
            names = {number: str(value) for number, value in base.execute(query)}
    copies = tuple(
        _Source(quote_name(found), '"start"', '"end"', "NULL", "deviceId" if "deviceId" in tables[found] else "0")
        for found in ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")
        if found in tables and {"start", "end"}.issubset(tables[found])
    )
    return _Layout("nsys SQLite export", kernels, copies, names, _nsys_devices(base, tables))


def _with_regimes(base: sqlite3.Connection, tables: Mapping[str, tuple[str, ...]], table: str, source: _Source) -> _Source:
    """Return the kernels with the regime that the NVTX range around their launch names, where ranges name one."""
    from .torch_trace import read_range

    ranges, runtime, columns = (tables.get(name, ()) for name in ("NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME", table))
    needed = ("start", "end", "globalTid"), ("start", "globalTid", "correlationId"), ("correlationId",)
    if not all(set(wanted).issubset(have) for wanted, have in zip(needed, (ranges, runtime, columns))):
        return source
    names = [*(["n.text"] if "text" in ranges else []), *(["s.value"] if "textId" in ranges and "StringIds" in tables else [])]
    strings = "LEFT JOIN StringIds s ON s.id = n.textId" if "s.value" in names else ""
    query = f"SELECT n.globalTid, n.start, n.end, coalesce({', '.join(['NULL', *names, 'NULL'])}) FROM NVTX_EVENTS n {strings}"
    spans: dict[Any, list[tuple[int, int, str]]] = defaultdict(list)
    for thread, start, end, label in base.execute(f"{query} WHERE typeof(n.start) = 'integer' AND typeof(n.end) = 'integer'"):
        facts = read_range(label) if isinstance(label, str) else None
        if facts is not None and facts.regime is not None:
            spans[thread].append((start, end, facts.regime))
    if not spans:
        return source
    # The upper bits of both numbers are of the process (Nsight Systems, "Serialized process and thread identifiers").
    has_process = "globalPid" in columns
    process = "globalTid / 16777216" if has_process else "0"
    base.execute("CREATE TEMP TABLE launch (number INTEGER, process INTEGER, regime TEXT, PRIMARY KEY (number, process))")
    for thread, found in spans.items():
        rows = base.execute(
            f"SELECT start, correlationId, {process} FROM CUPTI_ACTIVITY_KIND_RUNTIME"
            " WHERE globalTid = ? AND typeof(start) = 'integer' ORDER BY start",
            (thread,),
        )
        base.executemany("INSERT OR REPLACE INTO temp.launch VALUES (?, ?, ?)", _inner_regimes(rows, sorted(found)))
    on_process = f" AND l.process = {source.rows}.globalPid / 16777216" if has_process else ""
    joined = f"{source.rows} LEFT JOIN temp.launch l ON l.number = {source.rows}.correlationId{on_process}"
    return source._replace(rows=joined, regime="l.regime")


def _inner_regimes(
    launches: Iterable[tuple[int, int, int]], spans: Sequence[tuple[int, int, str]]
) -> Iterator[tuple[int, int, str]]:
    """Yield number, process and regime of each launch within a range, the innermost one; both are in the order of starts."""
    around: list[tuple[int, str]] = []  # ends and regimes of the ranges that are open
    following = 0
    for at, number, process in launches:
        while following < len(spans) and spans[following][0] <= at:
            around.append(spans[following][1:])
            following += 1
        while around and around[-1][0] < at:
            around.pop()
        if around:
            yield number, process, around[-1][1]


_NSYS_KERNELS = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL")


def _nsys_devices(base: sqlite3.Connection, tables: Mapping[str, tuple[str, ...]]) -> dict[str, Device]:
    """Read the GPUs by the number that CUDA gives them."""
    columns = tables.get("TARGET_INFO_GPU", ())
    if "name" not in columns or "id" not in columns:
        return {}
    numbers: dict[Any, list[Any]] = defaultdict(list)
    if {"gpuId", "cudaId"}.issubset(tables.get("TARGET_INFO_CUDA_DEVICE", ())):
        for gpu, cuda in base.execute("SELECT DISTINCT gpuId, cudaId FROM TARGET_INFO_CUDA_DEVICE"):
            numbers[gpu].append(cuda)
    wanted = [column if column in columns else "NULL" for column in ("id", "name", "smCount", "totalMemory")]
    devices = {}
    for number, name, units, memory in base.execute(f"SELECT {', '.join(wanted)} FROM TARGET_INFO_GPU"):
        device = Device(
            device_name=str(name) if name else None,
            cu_count=units if isinstance(units, int) and units > 0 else None,
            memory_bytes=float(memory) if isinstance(memory, int) and memory > 0 else None,
        )
        for cuda in numbers.get(number, [number]):
            devices[str(cuda)] = device
    return devices


#: Tables of rocprof that have kernels, the one with their grids first.
_ROCPROF_KERNELS = (("A", "KernelName"), ("KERN", "Name"), ("OPS", "Name"))


def _rocprof(base: sqlite3.Connection, tables: Mapping[str, tuple[str, ...]]) -> _Layout | None:
    """Find the tables of rocprof's results."""
    for table, name in _ROCPROF_KERNELS:
        columns = tables.get(table, ())
        if not {name, "BeginNs", "EndNs"}.issubset(columns):
            continue
        device = next((quote_name(column) for column in ("gpu-id", "dev-id") if column in columns), "0")
        # The columns have no type: a number may be kept as text.
        start, end = "CAST(BeginNs AS INTEGER)", "CAST(EndNs AS INTEGER)"
        kernels = _Source(quote_name(table), start, end, quote_name(name), device)
        copied = tables.get("COPY", ())
        copies = (
            (_Source('"COPY"', start, end, "NULL", device if device.strip('"') in copied else "0"),)
            if {"BeginNs", "EndNs"}.issubset(copied)
            else ()
        )
        return _Layout("rocprof SQLite results", (kernels,), copies, {}, {})
    return None
