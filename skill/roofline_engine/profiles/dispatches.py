"""Files with a row for each dispatch of a kernel: traces of rocprofv3 and rocprof, ``cuda_gpu_trace`` of nsys, and counters.

Sources of the columns: rocprofv3's documentation (using-rocprofv3, the schemas of 2024 and 2025), ROCm/rocprofiler's tblextr.py
for rocprof, and the reports of nsys stats in the guide of Nsight Systems.
"""

from __future__ import annotations

import os
import re
from array import array
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from ..counters.amd import as_object, objects, symbol_name
from ..counters.read import read as read_counters
from ..files import Problems, Table, TableReader, condense, parse_json, read_table, read_text
from ..inputs import amd_device, choose_device, times_of
from ..kernels import classify, clean_name, is_copy
from ..peaks import Device
from ..units import number, printable
from .form import KernelUse, Profile, Unit
from .timeline import COMMUNICATION, COMPUTE, COPY, merge_intervals

#: Names of the columns, by what is in them.
_NAME = ("Kernel_Name", "KernelName", "Name")
_START = ("Start_Timestamp", "BeginNs")
_END = ("End_Timestamp", "EndNs")
_AGENT = ("Agent_Id", "GPU_ID", "gpu-id", "Device")
#: What makes a launch one: the queue, its number, the process.
_KEYS = (("Queue_Id", "queue-id", "Strm"), ("Dispatch_Id", "Dispatch_ID", "Index", "CorrId"), ("Process_Id", "pid"))
_GRID, _BLOCK = ("Grid_Size", "grd"), ("Workgroup_Size", "wgr")
_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}


@lru_cache(maxsize=1 << 16)
def kind_of(name: str) -> int:
    """Return what a kernel's time is in a timeline: computation, communication, or a copy."""
    op = classify(name).op
    return COPY if op == "memcpy" else COMMUNICATION if op == "collective" else COMPUTE


class _Dispatch(NamedTuple):
    """One launch. Times are in nanoseconds."""

    name: str
    start: int
    end: int
    device: str = ""
    grid: tuple[int, ...] = ()  # blocks
    block: tuple[int, ...] = ()
    key: tuple[str, ...] = ()  # its queue and number: a row that a file has twice is one launch


class Collector:
    """Collects dispatches in any order, and gives their profile."""

    def __init__(self, label: str, source: str) -> None:
        self.label, self.source = label, source
        self.problems = Problems()
        self._durations: dict[str, array[float]] = defaultdict(lambda: array("d"))  # us, by name
        self._uses: dict[tuple[str, tuple[int, ...], tuple[int, ...]], list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._intervals: dict[str, list[tuple[int, int, int]]] = defaultdict(list)  # ns, by device
        self._seen: set[int] = set()  # hashes of launches
        self._negative = self._twice = 0

    @property
    def devices(self) -> list[str]:
        """The devices that something ran on."""
        return list(self._intervals)

    def add(self, dispatch: _Dispatch) -> None:
        """Add one launch of a kernel, or one copy."""
        name, start, end = dispatch.name, dispatch.start, dispatch.end
        if end < start:
            self._negative += 1
            return
        identity = hash(dispatch)
        if identity in self._seen:
            self._twice += 1
            return
        self._seen.add(identity)
        self._intervals[dispatch.device].append((start, end, kind_of(name)))
        if is_copy(name):
            return
        duration = (end - start) / 1e3
        self._durations[name].append(duration)
        use = self._uses[name, dispatch.grid, dispatch.block]
        use[0] += 1
        use[1] += duration

    def profile(self, device: Device) -> Profile:
        """Return the profile.

        Raises:
            ValueError: where there is no kernel.
        """
        lines = list(condense(self.problems.lines))
        if self._negative:
            lines.append(f"{self.label}: {self._negative} dispatches end before they start: left out")
        if self._twice:
            lines.append(f"{self.label}: {self._twice} rows are twice in it: each is counted once")
        if not self._durations:
            raise ValueError(f"{self.label}: it has no kernel" + (f": {lines[0]}" if lines else ""))
        uses: dict[str, list[KernelUse]] = defaultdict(list)
        for (name, grid, block), (launches, total) in self._uses.items():
            uses[name].append(KernelUse(name, launches, total, grid, block))
        units = [
            Unit(tuple(sorted(uses[name], key=lambda use: -use.total_us)), times_of(durations), durations=durations)
            for name, durations in self._durations.items()
        ]
        units.sort(key=lambda unit: -unit.times.total_us)
        timelines = []
        for name, intervals in sorted(self._intervals.items()):
            base = min(intervals)[0]
            in_us = (((start - base) / 1e3, (end - base) / 1e3, kind) for start, end, kind in sorted(intervals))
            timelines.append(merge_intervals(name, in_us))
        measured = tuple(timeline for timeline in timelines if timeline is not None)
        return Profile(self.source, self.label, tuple(units), device, measured, problems=tuple(lines))


def read_csv(path: str) -> Profile:
    """Read a kernel trace of rocprofv3, the results of rocprof, or ``cuda_gpu_trace`` of nsys.

    Raises:
        ValueError: with one line that names the file and the reason.
    """
    label = printable(os.path.basename(path))
    rows = TableReader(read_text(path), label, _is_header)
    table = Table(label, rows.header, ())
    columns = _Columns(table)
    is_nsys = columns.times is not None
    amd = "rocprofv3 kernel trace" if table.column("Kind") is not None else "rocprof results"
    found = Collector(label, "nsys cuda_gpu_trace" if is_nsys else amd)
    for line, cells in rows:
        dispatch = found.problems.attempt(columns.read, line, cells)
        if dispatch is not None:
            found.add(dispatch)
    found.problems.lines += rows.problems
    if not is_nsys:
        _add_copies(found, path)
    device = Device()
    if is_nsys:
        names = sorted({re.sub(r" \(\d+\)$", "", name) for name in found.devices} - {""})
        device = Device(device_name=names[0]) if names else device
        if len(names) > 1:
            found.problems.add(f"{label}: kernels of several devices ({', '.join(names)}): the first is taken")
    return found.profile(device)


def _add_copies(found: Collector, path: str) -> None:
    """Add the copies that rocprofv3 writes to a file of their own beside the kernels."""
    name = os.path.basename(path)
    beside = os.path.join(os.path.dirname(path), name.replace("kernel_trace.csv", "memory_copy_trace.csv"))
    if not name.endswith("kernel_trace.csv") or not os.path.isfile(beside):
        return
    label = printable(os.path.basename(beside))
    table = found.problems.attempt(read_table, read_text(beside), label, lambda cells: "Direction" in cells)
    if table is None:
        return
    ends = [table.column(f"{end}_Agent_Id") for end in ("Destination", "Source")]
    start_at, end_at = table.column(*_START), table.column(*_END)
    devices = set(found.devices)
    for line, cells in table.rows:
        device = next((cells[at].strip() for at in ends if at is not None and cells[at].strip() in devices), None)
        if device is None or start_at is None or end_at is None:
            continue
        interval = [found.problems.attempt(_whole, cells[at], f"{label}: line {line}") for at in (start_at, end_at)]
        if interval[0] is not None and interval[1] is not None:
            found.add(_Dispatch("MEMORY_COPY_DEVICE", interval[0], interval[1], device, key=(str(line),)))


def _whole(text: str, what: str) -> int:
    return int(number(text.strip(), f"{what}: timestamp"))


def _is_header(cells: Sequence[str]) -> bool:
    names = set(cells)
    has_times = (names.intersection(_START) and names.intersection(_END)) or any(
        cell.startswith(("Start (", "Start(")) for cell in cells
    )
    return bool(has_times and names.intersection(_NAME))


def _duration_column(table: Table) -> tuple[int, int, int, int] | None:
    """Return the places of start and duration in an nsys trace, each with its unit in ns."""
    found: dict[str, tuple[int, int]] = {}
    for at, title in enumerate(table.header):
        match = re.fullmatch(r"(Start|Duration) ?\((\w+)\)", title)
        if match and match[2] in _NS:
            found[match[1]] = at, _NS[match[2]]
    return (*found["Start"], *found["Duration"]) if len(found) == 2 else None


class _Columns:
    """Reads the rows of a table; the places of its columns are found once."""

    def __init__(self, table: Table) -> None:
        self.label, column = table.label, table.column
        self.times = _duration_column(table)
        self.name, self.device = column(*_NAME), column(*_AGENT)
        self.start, self.end = column(*_START), column(*_END)
        self.keys = [at for at in (column(*names) for names in _KEYS) if at is not None]
        if self.times:
            shapes = [[column(f"{kind}{axis}") for axis in "XYZ"] for kind in ("Grd", "Blk")]
        else:
            shapes = [[column(f"{kind}_{axis}") for axis in "XYZ"] for kind in ("Grid_Size", "Workgroup_Size")]
            shapes = [places if any(places) else [column(*total)] for places, total in zip(shapes, (_GRID, _BLOCK))]
        self.shapes = [[at for at in places if at is not None] for places in shapes]
        self._shapes: dict[tuple[str, ...], tuple[tuple[int, ...], tuple[int, ...]]] = {}  # they repeat

    def read(self, line: int, cells: Sequence[str]) -> _Dispatch:
        """Return one row.

        Raises:
            ValueError: where it is no launch, with its line.
        """
        if self.times:
            start_at, start_unit, duration_at, duration_unit = self.times
            start = round(number(cells[start_at], f"{self.label}: line {line}: start") * start_unit)
            end = start + round(number(cells[duration_at], f"{self.label}: line {line}: duration") * duration_unit)
        else:
            assert self.start is not None
            assert self.end is not None
            start, end = self._time(cells[self.start], line), self._time(cells[self.end], line)
        name = _clean(cells[self.name]) if self.name is not None else ""
        if not name:
            raise ValueError(f"{self.label}: line {line}: it has no kernel name: left out")
        device = cells[self.device].strip() if self.device is not None else ""
        return _Dispatch(name, start, end, device, *self._shape(cells), tuple([cells[at] for at in self.keys]))

    def _time(self, text: str, line: int) -> int:
        text = text.strip()
        if text.isdigit():
            return int(text)
        if "e" in text.lower() or "." in text:
            raise ValueError(f"{self.label}: line {line}: the timestamp {text[:24]} has lost its resolution: left out")
        return int(number(text, f"{self.label}: line {line}: timestamp"))

    def _shape(self, cells: Sequence[str]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the grid in blocks, and the block. AMD's tools write the grid in work-items."""
        texts = tuple([cells[at] for places in self.shapes for at in places])
        shape = self._shapes.get(texts)
        if shape is None:
            grid, block = (tuple(int(cells[at]) for at in places if cells[at].strip().isdigit()) for places in self.shapes)
            if not self.times:
                grid = tuple(-(-size // (block[at] or 1)) if at < len(block) else size for at, size in enumerate(grid))
            shape = self._shapes[texts] = grid, block
        return shape


_clean = lru_cache(maxsize=1 << 16)(clean_name)


def read_results_json(path: str) -> Profile:
    """Read the results JSON of rocprofv3.

    Raises:
        ValueError: with one line that names the file and the reason.
    """
    label = printable(os.path.basename(path))
    processes = as_object(parse_json(read_text(path), label)).get("rocprofiler-sdk-tool")
    if not isinstance(processes, list):
        raise ValueError(f"{label}: 'rocprofiler-sdk-tool' is missing, expected the results JSON of rocprofv3")
    found = Collector(label, "rocprofv3 results JSON")
    devices: dict[str, Device] = {}
    used: set[str] = set()
    for at, process in enumerate(map(as_object, processes)):
        agents = {}
        for agent in objects(process, "agents"):
            handle = str(as_object(agent.get("id")).get("handle"))
            agents[handle] = f"agent {agent.get('node_id', handle)}"
            if agent.get("type") == 2:
                devices[agents[handle]] = _agent_device(agent)
        names = {item.get("kernel_id"): symbol_name(item) for item in objects(process, "kernel_symbols")}
        records = as_object(process.get("buffer_records"))
        counted = [
            as_object(item.get("dispatch_data")) for item in objects(process.get("callback_records"), "counter_collection")
        ]
        for item in objects(records, "kernel_dispatch") or counted:
            info = as_object(item.get("dispatch_info"))
            name = names.get(info.get("kernel_id"))
            if not name:
                found.problems.add(f"{label}: a dispatch of kernel_id {info.get('kernel_id')!r:.20} without a symbol: left out")
                continue
            handle = str(as_object(info.get("agent_id")).get("handle"))
            device = agents.get(handle, f"agent {handle}")
            block, items = (_xyz(info.get(key)) for key in ("workgroup_size", "grid_size"))
            grid = tuple(-(-size // (step or 1)) for size, step in zip(items, block))
            key = (str(at), str(as_object(info.get("queue_id")).get("handle")), str(info.get("dispatch_id")))
            interval = found.problems.attempt(_interval, item, f"{label}: dispatch {info.get('dispatch_id')!r:.20}")
            if interval is not None:
                used.add(device)
                found.add(_Dispatch(clean_name(name), *interval, device, grid, block, key))
        for item in objects(records, "memory_copy"):
            interval = found.problems.attempt(_interval, item, f"{label}: a memory copy")
            ends = [str(as_object(item.get(key)).get("handle")) for key in ("dst_agent_id", "src_agent_id")]
            device = next((agents[end] for end in ends if agents.get(end) in devices), "")
            if interval is not None and device:
                found.add(_Dispatch("MEMORY_COPY_DEVICE", *interval, device))
    chosen, doubt = choose_device({name: devices[name] for name in sorted(used) if name in devices})
    found.problems.lines += [f"{label}: {line}" for line in doubt]
    return found.profile(chosen)._replace(
        is_counted=any(objects(as_object(item).get("callback_records"), "counter_collection") for item in processes)
    )


def _interval(item: object, where: str) -> tuple[int, int]:
    times = [as_object(item).get(key) for key in ("start_timestamp", "end_timestamp")]
    start, end = (int(number(value, f"{where}: timestamp")) for value in times)
    return start, end


def _xyz(value: object) -> tuple[int, ...]:
    sizes = [as_object(value).get(axis) for axis in "xyz"]
    return tuple(size for size in sizes if isinstance(size, int) and size >= 0)


def _agent_device(agent: object) -> Device:
    facts = as_object(agent)
    name, product, units = facts.get("name"), facts.get("product_name"), facts.get("cu_count")
    memory = [as_object(bank).get("size_in_bytes") for bank in objects(facts, "mem_banks")]
    sizes = [float(size) for size in memory if isinstance(size, (int, float)) and size > 0]
    return amd_device(str(name or ""), str(product or ""), units if isinstance(units, int) else None, sum(sizes) or None)


def read_rocprof_json(path: str) -> Profile:
    """Read the JSON that rocprof writes beside its results: a Chrome trace with the nanoseconds of each dispatch.

    Raises:
        ValueError: with one line that names the file and the reason.
    """
    label = printable(os.path.basename(path))
    found = Collector(label, "rocprof JSON trace")
    for event in objects(parse_json(read_text(path), label), "traceEvents"):
        args = as_object(event.get("args"))
        device = args.get("dev-id", args.get("gpu-id"))
        if event.get("ph") != "X" or device is None or "BeginNs" not in args:
            continue
        interval = found.problems.attempt(_nanoseconds, args, f"{label}: {event.get('name')!r:.40}")
        if interval is not None:
            name = str(args.get("Name", args.get("KernelName", event.get("name"))))
            key = (str(args.get("queue-id")), str(args.get("pid")))
            found.add(_Dispatch(clean_name(name), *interval, str(device), key=key))
    return found.profile(Device())


def _nanoseconds(args: object, where: str) -> tuple[int, int]:
    start, end = (int(number(as_object(args).get(key), f"{where}: {key}")) for key in ("BeginNs", "EndNs"))
    return start, end


def read_counted(path: str) -> Profile:
    """Read the kernels and times of a file of counters; ``analyze`` takes the counts from the same file.

    Raises:
        ValueError: with one line that names the file and the reason.
    """
    label = printable(os.path.basename(path))
    file = read_counters(path)
    units, untimed = [], 0
    for kernel in file.kernels:
        durations = [1e6 * t_s for t_s in kernel.durations_s]
        if durations:
            times = times_of(durations)
            units.append(Unit((KernelUse(kernel.name, times.calls, times.total_us),), times, durations=durations))
        else:
            untimed += 1
    if not units:
        reasons = [line[len(label) + 2 :] for line in file.problems[:1]]
        wanted = "collect gpu__time_duration.sum" if file.is_nvidia else "give a kernel trace, with this file as --counters"
        raise ValueError("; ".join((f"{label}: {len(file.kernels)} kernels, none with a time", *reasons, wanted)))
    units.sort(key=lambda unit: -unit.times.total_us)
    problems = list(file.problems)
    if untimed:
        problems.append(f"{label}: {untimed} of {len(file.kernels)} kernels have no time: left out")
    device = Device(
        gfx=file.gfx or (file.archs[0] if len(file.archs) == 1 else None),
        device_name=file.device_names[0] if len(file.device_names) == 1 else None,
    )
    return Profile(file.source, label, tuple(units), device, problems=tuple(problems), is_counted=True)
