"""Files of AMD's profilers: rocprofv3 counter_collection CSV and results JSON, kernel traces, rocprof-compute pmc_perf."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from .amd import BYTES_COUNTERS, WANTED, Tool, measure
from .measured import Counters, Dispatch, Table, clean_name, condensed, duration, grouped, read_table
from .units import number, printable


def from_table(text: str, label: str, tool: Tool, skip: int) -> Counters:
    """Any of the CSV forms. Raises ValueError when it holds no dispatches of kernels."""
    table = read_table(text, label, lambda header: "Kernel_Name" in header or "KernelName" in header)
    if not table.rows:
        why = "; ".join(table.problems) or "the profile matched no kernel"
        raise ValueError(f"{label}: a header without a row: {why}")
    problems = list(table.problems)
    if table.at("Counter_Name") is not None:
        source, dispatches = "rocprofv3 counter_collection", _long(table, problems)
    else:
        traced = table.at("Kind") is not None
        source, dispatches = "rocprofv3 kernel_trace" if traced else "rocprof-compute pmc_perf", _wide(table, problems)
    return evaluate(label, source, dispatches, tool, problems, skip)


def evaluate(
    label: str, source: str, dispatches: Sequence[Dispatch], tool: Tool, problems: list[str], skip: int = 0
) -> Counters:
    """The kernels of a file from its dispatches."""
    if not dispatches:
        raise ValueError(f"{label}: no dispatch of a kernel in it" + (f": {problems[0]}" if problems else ""))
    names = {name for dispatch in dispatches for name in dispatch.values}
    lacks = ""
    if not any(BYTES_COUNTERS.match(name) for name in names):
        listed = f" ({', '.join(printable(name) for name in sorted(names)[:4])})" if names else ""
        lacks = f"{label}: no byte counters in it{listed}"
    kernels = tuple(measure(group, tool, source) for group in grouped(dispatches, skip))
    return Counters(label, source, tool.gfx, kernels, condensed(problems), lacks=lacks)


def _canonical(name: str) -> str:
    return name[: -len("_sum")] if name.endswith("_sum") else name


def _long(table: Table, problems: list[str]) -> list[Dispatch]:
    """One row per dispatch and counter; the times stand on each row of a dispatch and are taken once."""
    name_at, counter_at, value_at = table.at("Kernel_Name"), table.at("Counter_Name"), table.at("Counter_Value")
    start_at, end_at, grid_at = table.at("Start_Timestamp"), table.at("End_Timestamp"), table.at("Grid_Size")
    dispatch_at = table.at("Dispatch_Id", "Dispatch_ID", "Correlation_Id")
    if name_at is None or counter_at is None or value_at is None or dispatch_at is None:
        raise ValueError(f"{table.label}: expected the columns Dispatch_Id, Kernel_Name, Counter_Name and Counter_Value")
    # The name is part of it: files of several processes may be joined, whose ids repeat.
    keys = [at for at in (table.at("Process_Id"), table.at("Agent_Id"), dispatch_at, name_at) if at is not None]
    found: dict[tuple[str, ...], Dispatch] = {}
    spoilt: set[tuple[tuple[str, ...], str]] = set()
    for line, cells in table.rows:
        key = tuple(cells[at] for at in keys)
        dispatch = found.get(key)
        if dispatch is None:
            t_s = None
            if start_at is not None and end_at is not None:
                t_s = _time(cells[start_at], cells[end_at], f"{table.label}: line {line}", problems)
            grid = cells[grid_at] if grid_at is not None else ""
            dispatch = found[key] = Dispatch(clean_name(cells[name_at]), {}, t_s, grid)
        counter = _canonical(cells[counter_at].strip())
        values = dict(dispatch.values)
        value = _value(cells[value_at], f"{table.label}: line {line}: {printable(counter)}", problems)
        if value is None or (key, counter) in spoilt:
            continue
        if values.setdefault(counter, value) != value:
            problems.append(f"{table.label}: line {line}: {printable(counter)} is given twice for one dispatch: not used")
            spoilt.add((key, counter))
            del values[counter]
        found[key] = dispatch._replace(values=values)
    return list(found.values())


def _wide(table: Table, problems: list[str]) -> list[Dispatch]:
    """One row per dispatch, a column per counter; ``[i]`` columns are the channels of one, summed unless its sum is there."""
    columns: dict[str, list[int]] = {}
    for at, title in enumerate(table.header):
        channel = re.match(r"(\w+)\[\d+\]$", title)
        name = _canonical(channel.group(1) if channel else title)
        if not WANTED.match(name):
            continue
        if channel is None:
            columns[name] = [at]
        elif name not in columns or table.header[columns[name][0]].endswith("]"):
            columns.setdefault(name, []).append(at)
    name_at = table.at("Kernel_Name", "KernelName")
    start_at, end_at = table.at("Start_Timestamp", "BeginNs"), table.at("End_Timestamp", "EndNs")
    grid_at = [at for at in (table.at(name) for name in ("Grid_Size", "Grid_Size_X", "Grid_Size_Y", "Grid_Size_Z")) if at]
    assert name_at is not None
    dispatches = []
    for line, cells in table.rows:
        where = f"{table.label}: line {line}"
        values: dict[str, float] = {}
        for name, places in columns.items():
            parts = [_value(cells[at], f"{where}: {table.header[at]}", problems) for at in places]
            known = [part for part in parts if part is not None]
            if len(known) == len(parts):
                values[name] = sum(known)
        t_s = None
        if start_at is not None and end_at is not None:
            t_s = _time(cells[start_at], cells[end_at], where, problems)
        grid = "x".join(cells[at] for at in grid_at)
        dispatches.append(Dispatch(clean_name(cells[name_at]), values, t_s, grid))
    return dispatches


def _value(text: str, what: str, problems: list[str]) -> float | None:
    plain = text.strip().lower()
    if plain in ("", "nan", "n/a", "none"):
        return None
    try:
        return number(text, what, minimum=0)
    except ValueError as error:
        problems.append(str(error))
        return None


def _time(start: str, end: str, where: str, problems: list[str]) -> float | None:
    try:
        t_s, why = duration(start, end)
    except ValueError as error:
        t_s, why = None, str(error)
    if why:
        problems.append(f"{where}: {why}")
    return t_s


def from_json(data: object, label: str, tool: Tool, skip: int) -> Counters:
    """rocprofv3's results JSON. Raises ValueError when it holds none."""
    tools = data.get("rocprofiler-sdk-tool") if isinstance(data, Mapping) else None
    if not isinstance(tools, list) or not tools:
        raise ValueError(f"{label}: no 'rocprofiler-sdk-tool' in it, expected rocprofv3's results JSON")
    problems: list[str] = []
    dispatches: list[Dispatch] = []
    spans: list[tuple[float, float]] = []
    archs: set[str] = set()
    for one in tools:
        process = one if isinstance(one, Mapping) else {}
        archs |= {str(item.get("name")) for item in _objects(process, "agents") if item.get("type") == 2}
        names = {item.get("kernel_id"): _symbol(item) for item in _objects(process, "kernel_symbols")}
        counters = {_handle(item.get("id")): str(item.get("name")) for item in _objects(process, "counters")}
        counted = _objects(process.get("callback_records"), "counter_collection")
        for item in counted or _objects(process.get("buffer_records"), "kernel_dispatch"):
            data_of = item.get("dispatch_data", item)
            data_of = data_of if isinstance(data_of, Mapping) else {}
            info = data_of.get("dispatch_info")
            info = info if isinstance(info, Mapping) else {}
            name = names.get(info.get("kernel_id"))
            if name is None:
                problems.append(f"{label}: a dispatch of kernel_id {info.get('kernel_id')!r:.20} without a symbol: left out")
                continue
            start, end = str(data_of.get("start_timestamp", 0)), str(data_of.get("end_timestamp", 0))
            t_s = _time(start, end, f"{label}: dispatch {info.get('dispatch_id')!r:.20}", problems)
            if t_s is not None:
                spans.append((float(start), float(end)))
            values: dict[str, float] = {}
            for record in _objects(item, "records"):  # one record an instance: rocprofv3's own CSV sums them
                counter = _canonical(counters.get(_handle(record.get("counter_id")), ""))
                value = _value(str(record.get("value")), f"{label}: {printable(counter)}", problems)
                if counter and value is not None:
                    values[counter] = values.get(counter, 0.0) + value
            dispatches.append(Dispatch(clean_name(name), values, t_s, repr(info.get("grid_size"))))
    if tool.gfx is None and len(archs) == 1:
        tool = tool._replace(gfx=next(iter(archs)))
    total, union, span = overlap(spans)
    if union and total > union * 1.001:
        problems.append(
            f"{label}: dispatches overlap: their sum is {total:.0f} ns, their union {union:.0f} of a span of {span:.0f} ns"
        )
    found = evaluate(label, "rocprofv3 results JSON", dispatches, tool, problems, skip)
    return found._replace(archs=tuple(sorted(archs)))


def _objects(holder: object, key: str) -> list[Mapping[str, object]]:
    held = holder.get(key) if isinstance(holder, Mapping) else None
    if isinstance(held, Mapping):
        held = list(held.values())
    return [item for item in held if isinstance(item, Mapping)] if isinstance(held, list) else []


def _handle(value: object) -> object:
    return value.get("handle") if isinstance(value, Mapping) else value


def _symbol(item: Mapping[str, object]) -> str:
    names = (item.get(key) for key in ("formatted_kernel_name", "kernel_name", "truncated_kernel_name"))
    return next((name for name in names if isinstance(name, str) and name), "")


def overlap(spans: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Sum, union and span of intervals: kernels on several streams overlap (nsys-ai#93, ninfer-3090#60)."""
    total = union = 0.0
    reach = float("-inf")
    for start, end in sorted(spans):
        total += end - start
        union += max(0.0, end - max(start, reach))
        reach = max(reach, end)
    return total, union, (reach - min(start for start, _ in spans)) if spans else 0.0
