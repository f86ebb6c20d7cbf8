"""AMD: read the files of rocprofv3 and rocprof-compute, and turn request and instruction counters into bytes and FLOPs.

Each factor has its source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..files import Problems, Table, condense, list_tables, open_database, quote_name, read_table
from ..kernels import clean_name
from ..units import number, printable
from .base import CounterFile, Dispatch, DispatchGroup, KernelCounts, group_dispatches, read_duration

#: Bytes of one L1 lookup or L1-to-L2 read (rocprofiler-compute#598, rocm-systems#6339); an L1-to-L2 write or atomic is 64 B
#: on all (vecCopy of 8 MiB on MI300X: 131,072 write requests, 65,536 read requests).
LINE_BYTES = {"gfx940": 128, "gfx941": 128, "gfx942": 128, "gfx950": 128}
_WRITE_BYTES = 64
#: FETCH_SIZE and WRITE_SIZE are in KiB (renderdoc#2037 took 1000).
_KIB = 1024
#: SQ_INSTS_VALU_MFMA_MOPS_* count 512 FLOPs each whatever the dtype and the instruction (olcf-user-docs#574, #973).
MOPS_FLOPS = 512
_MOPS = {
    "F8": "fp8",
    "F6F4": "fp6_fp4",
    "F16": "fp16",
    "BF16": "bf16",
    "XF32": "tf32",
    "F32": "fp32",
    "F64": "fp64",
    "I8": "int8",
}
_MFMA_FLOPS = {"F8": "fp8", "F16": "fp16", "BF16": "bf16", "F32": "fp32", "F64": "fp64"}
#: One VALU instruction works on the 64 lanes of a wave; a multiply-add is two FLOPs (rocprof-compute's own formula).
_LANES = 64
_VALU = {"F16": "vector_fp16", "F32": "vector_fp32", "F64": "vector_fp64"}
PERCENTAGES = ("MemUnitStalled", "MfmaUtil", "OccupancyPercent", "L2CacheHit", "VALUUtilization")
#: From this release on FETCH_SIZE is right on gfx950; before, reads are half (rocm-systems#2501, GEAK#468).
GFX950_ROCM = (7, 12)

BYTES_COUNTERS = re.compile(r"(FETCH_SIZE|WRITE_SIZE|TCC_EA0?_(RD|WR)REQ(_32B|_64B|_128B)?|GL2C_EA_RDREQ(_\w+)?)$")
WANTED = re.compile(
    BYTES_COUNTERS.pattern
    + r"|(TCC_BUBBLE|TCP_TOTAL_CACHE_ACCESSES|TCP_TCC_(READ|WRITE|ATOMIC_WITH_RET|ATOMIC_WITHOUT_RET)_REQ"
    + r"|SQ_INSTS_VALU_MFMA_MOPS_\w+|SQ_INSTS_VALU_(ADD|MUL|FMA|TRANS)_F\d+|MfmaFlops\w*|"
    + "|".join(PERCENTAGES)
    + r")$"
)


class Tool(NamedTuple):
    """What decides how counters are read; None is unknown."""

    gfx: str | None = None  # the architecture
    rocm: tuple[int, ...] | None = None  # the version of ROCm


def version(text: object) -> tuple[int, ...] | None:
    """Read ``7.12.0-115`` as numbers; None when the text has no version."""
    match = re.match(r"\s*(\d+)\.(\d+)", text) if isinstance(text, str) else None
    return (int(match.group(1)), int(match.group(2))) if match else None


def measure(group: DispatchGroup, tool: Tool, source: str) -> KernelCounts:
    memory = (("hbm_read", _reads(group, tool)), ("hbm_write", _writes(group)))
    levels = {level: nbytes for level, nbytes in memory if nbytes is not None}
    if len(levels) == 2 and group.may_add("hbm", "hbm reads", "hbm writes"):
        levels["hbm"] = sum(levels.values())
    levels.update(_caches(group, tool))
    percentages = {name: group.mean(name) for name in PERCENTAGES if group.live(name)}
    return group.counts(levels, _flops(group), source, percentages, _counted_units(group, tool))


def _counted_units(group: DispatchGroup, tool: Tool) -> tuple[str, ...]:
    """Return the units whose FLOPs were all counted: a dtype that was not collected may have done the work."""
    dtypes = ["F16", "BF16", *(["F8"] if tool.gfx is None or tool.gfx in LINE_BYTES else [])]
    has_matrix = group.has("MfmaFlops") or all(group.has(f"SQ_INSTS_VALU_MFMA_MOPS_{dtype}") for dtype in dtypes)
    has_vector = all(group.has(f"SQ_INSTS_VALU_FMA_{dtype}") for dtype in _VALU)
    return (*(("matrix",) if has_matrix else ()), *(("vector",) if has_vector else ()))


def _prefix(group: DispatchGroup, suffix: str) -> str | None:
    """The spelling of the memory counters: MI300 and newer, or before."""
    return next((prefix for prefix in ("TCC_EA0_", "TCC_EA_") if group.has(prefix + suffix)), None)


def _sized(group: DispatchGroup, figure: str, name: str, nbytes: int, may_be_zero: Sequence[str] = ()) -> float | None:
    """The bytes of a counter that counts in units of ``nbytes``."""
    means = group.means(figure, name, may_be_zero=may_be_zero)
    return means[name] * nbytes if means else None


def _reads(group: DispatchGroup, tool: Tool) -> float | None:
    """Bytes read from memory by one dispatch."""
    gfx = tool.gfx or ""
    prefix = _prefix(group, "RDREQ")
    counted = prefix is not None and (group.has(f"{prefix}RDREQ_128B") or not group.has("FETCH_SIZE"))
    if not counted and group.has("FETCH_SIZE"):
        if gfx == "gfx950" and (tool.rocm is None or tool.rocm < GFX950_ROCM):
            version_text = "unknown" if tool.rocm is None else ".".join(map(str, tool.rocm))
            group.refuse(
                "hbm reads",
                f"FETCH_SIZE on gfx950 is half before ROCm {'.'.join(map(str, GFX950_ROCM))}, this one is {version_text}: "
                "collect TCC_EA0_RDREQ_128B (rocm-systems#2501)",
            )
            return None
        return _sized(group, "hbm reads", "FETCH_SIZE", _KIB)
    if prefix is None:
        if group.has("GL2C_EA_RDREQ"):
            if gfx.startswith("gfx12"):  # 16 MiB are 65,538 requests of 256 B: legacy-rocm-build#6613
                return _sized(group, "hbm reads", "GL2C_EA_RDREQ", 256)
            group.refuse("hbm reads", "GL2C_EA_RDREQ has a known size on gfx12 only")
        elif group.has("WRITE_SIZE", "TCC_EA0_WRREQ", "TCC_EA_WRREQ"):
            group.refuse("hbm reads", "FETCH_SIZE was not collected, nor TCC_EA0_RDREQ")
        return None
    all_of, small = f"{prefix}RDREQ", f"{prefix}RDREQ_32B"
    if group.has(f"{prefix}RDREQ_128B"):
        large: str | None = f"{prefix}RDREQ_128B"
    elif gfx == "gfx950":
        group.refuse("hbm reads", f"{prefix}RDREQ_128B was not collected; TCC_BUBBLE does not count 128 B on gfx950")
        return None
    else:
        large = "TCC_BUBBLE" if prefix == "TCC_EA0_" else None
        if large and not gfx:
            group.refuse("hbm reads", "the gfx is unknown: read as gfx942, wrong on gfx950 (name it with --gfx)")
    means = group.means("hbm reads", *filter(None, (all_of, small, large)), may_be_zero=(small,))
    if means is None:
        return None
    big = means[large] if large else 0.0
    middle = means[all_of] - big - means[small]
    if middle < 0:
        group.refuse("hbm reads", f"{middle:.6g} requests of 64 B: a negative count, so {large} is not what it says")
        return None
    return 128 * big + 64 * middle + 32 * means[small]


def _writes(group: DispatchGroup) -> float | None:
    if group.has("WRITE_SIZE"):
        return _sized(group, "hbm writes", "WRITE_SIZE", _KIB, may_be_zero=("WRITE_SIZE",))
    prefix = _prefix(group, "WRREQ")
    if prefix is None:
        if group.has("FETCH_SIZE", "TCC_EA0_RDREQ", "TCC_EA_RDREQ", "GL2C_EA_RDREQ"):
            group.refuse("hbm writes", "WRITE_SIZE was not collected")
        return None
    means = group.means("hbm writes", f"{prefix}WRREQ", f"{prefix}WRREQ_64B")
    if means is None:
        return None
    whole = means[f"{prefix}WRREQ_64B"]
    return 64 * whole + 32 * (means[f"{prefix}WRREQ"] - whole)


def _caches(group: DispatchGroup, tool: Tool) -> dict[str, float]:
    levels: dict[str, float] = {}
    if not group.has("TCP_TCC_READ_REQ", "TCP_TOTAL_CACHE_ACCESSES"):
        return levels
    new, old = (group.has(f"TCC_{ea}_RDREQ", f"TCC_{ea}_WRREQ") for ea in ("EA0", "EA"))
    gfx = tool.gfx or ("gfx942" if new else "gfx90a" if old else None)
    if gfx is None:
        group.refuse("l1, l2", "the line size depends on the gfx, which is not known (name it with --gfx)")
        return levels
    line = LINE_BYTES.get(gfx, 64)
    if group.has("TCP_TCC_READ_REQ") and group.has("TCP_TCC_WRITE_REQ"):
        names = [f"TCP_TCC_{kind}_REQ" for kind in ("READ", "WRITE", "ATOMIC_WITH_RET", "ATOMIC_WITHOUT_RET")]
        names = [name for name in names if group.has(name)]
        means = group.means("l2", *names, may_be_zero=names)
        if means:
            levels["l2"] = sum(value * (line if "READ" in name else _WRITE_BYTES) for name, value in means.items())
    if group.live("TCP_TOTAL_CACHE_ACCESSES"):
        levels["l1"] = group.mean("TCP_TOTAL_CACHE_ACCESSES") * line
        group.refuse("l1", "an upper bound, each lookup counted as a whole line")  # vecCopy of doubles: 2 to 4 times
    return levels


def _flops(group: DispatchGroup) -> dict[str, float]:
    """FLOPs of one dispatch by dtype; a dtype that counted nothing is left out."""
    flops: dict[str, float] = {}
    for figures in (
        {dtype: group.mean(f"SQ_INSTS_VALU_MFMA_MOPS_{suffix}") * MOPS_FLOPS for suffix, dtype in _MOPS.items()},
        {dtype: group.mean(f"MfmaFlops{suffix}") for suffix, dtype in _MFMA_FLOPS.items()},
        {"matrix": group.mean("MfmaFlops")},
    ):
        flops = flops or {dtype: value for dtype, value in figures.items() if value}
    for suffix, dtype in _VALU.items():
        weights = {f"SQ_INSTS_VALU_{kind}_{suffix}": 2 if kind == "FMA" else 1 for kind in ("ADD", "MUL", "FMA", "TRANS")}
        present = [name for name in weights if group.has(name)]
        means = group.means(dtype, *present, may_be_zero=present) if present else None
        count = sum(value * weights[name] for name, value in means.items()) if means else 0
        if count:
            flops[dtype] = count * _LANES
            if len(present) < len(weights):
                group.refuse(dtype, "a lower bound, not all of ADD, MUL, FMA and TRANS were collected")
    return flops


def from_table(text: str, label: str, tool: Tool, skip: int) -> CounterFile:
    """Read any of the CSV forms. Raises ValueError when it holds no dispatches of kernels."""
    table = read_table(text, label, lambda header: "Kernel_Name" in header or "KernelName" in header)
    if not table.rows:
        why = "; ".join(table.problems) or "the profile matched no kernel"
        raise ValueError(f"{label}: a header without a row: {why}")
    problems = Problems(table.problems)
    if table.column("Counter_Name") is not None:
        source, dispatches = "rocprofv3 counter_collection", _long(table, problems)
    else:
        traced = table.column("Kind") is not None
        source, dispatches = "rocprofv3 kernel_trace" if traced else "rocprof-compute pmc_perf", _wide(table, problems)
    return evaluate(label, source, dispatches, tool, problems, skip)


def evaluate(label: str, source: str, dispatches: Sequence[Dispatch], tool: Tool, problems: Problems, skip: int) -> CounterFile:
    """Evaluate the dispatches of a file, kernel by kernel."""
    if not dispatches:
        raise ValueError(f"{label}: it has no dispatch of a kernel" + (f": {problems.lines[0]}" if problems.lines else ""))
    names = {name for dispatch in dispatches for name in dispatch.values}
    no_bytes = ""
    if not any(BYTES_COUNTERS.match(name) for name in names):
        listed = f" ({', '.join(printable(name) for name in sorted(names)[:4])})" if names else ""
        no_bytes = f"{label}: it has no byte counters{listed}"
    kernels = tuple(measure(group, tool, source) for group in group_dispatches(dispatches, skip))
    return CounterFile(label, source, tool.gfx, kernels, condense(problems.lines), no_bytes=no_bytes)


#: Derived metrics of rocprof and rocprof-compute, in KiB too (ROCm, MI200 performance counters, derived metrics: kilobytes
#: fetched from and written to video memory).
_ALIASES = {"FetchSize": "FETCH_SIZE", "WriteSize": "WRITE_SIZE"}


def _canonical(name: str) -> str:
    name = name[: -len("_sum")] if name.endswith("_sum") else name
    return _ALIASES.get(name, name)


def _long(table: Table, problems: Problems) -> list[Dispatch]:
    """Read one row per dispatch and counter; each row of a dispatch repeats its times."""
    name_at, counter_at, value_at = table.column("Kernel_Name"), table.column("Counter_Name"), table.column("Counter_Value")
    start_at, end_at, grid_at = table.column("Start_Timestamp"), table.column("End_Timestamp"), table.column("Grid_Size")
    dispatch_at = table.column("Dispatch_Id", "Dispatch_ID", "Correlation_Id")
    if name_at is None or counter_at is None or value_at is None or dispatch_at is None:
        raise ValueError(f"{table.label}: expected the columns Dispatch_Id, Kernel_Name, Counter_Name and Counter_Value")
    # The name is part of it: files of several processes may be joined, whose ids repeat.
    keys = [at for at in (table.column("Process_Id"), table.column("Agent_Id"), dispatch_at, name_at) if at is not None]
    dispatches: list[Dispatch] = []
    values_by_key: dict[tuple[str, ...], dict[str, float]] = {}
    ambiguous: set[tuple[tuple[str, ...], str]] = set()
    for line, cells in table.rows:
        where, key = f"{table.label}: line {line}", tuple(cells[at] for at in keys)
        if key not in values_by_key:
            t_s = None
            if start_at is not None and end_at is not None:
                t_s = problems.attempt(read_duration, cells[start_at], cells[end_at], where)
            grid = cells[grid_at] if grid_at is not None else ""
            values_by_key[key] = {}
            dispatches.append(Dispatch(clean_name(cells[name_at]), values_by_key[key], t_s, grid))
        counter, values = _canonical(cells[counter_at].strip()), values_by_key[key]
        value = problems.attempt(_value, cells[value_at], f"{where}: {printable(counter)}")
        if value is None or (key, counter) in ambiguous:
            continue
        if values.setdefault(counter, value) != value:
            problems.add(f"{where}: {printable(counter)} is given twice for one dispatch: not used")
            ambiguous.add((key, counter))
            del values[counter]
    return dispatches


def _wide(table: Table, problems: Problems) -> list[Dispatch]:
    """Read one row per dispatch, a column per counter; ``[i]`` columns are its channels, summed unless the file has the sum."""
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
    name_at = table.column("Kernel_Name", "KernelName")
    start_at, end_at = table.column("Start_Timestamp", "BeginNs"), table.column("End_Timestamp", "EndNs")
    grid_at = [at for at in (table.column(name) for name in ("Grid_Size", "Grid_Size_X", "Grid_Size_Y", "Grid_Size_Z")) if at]
    assert name_at is not None
    dispatches = []
    for line, cells in table.rows:
        where = f"{table.label}: line {line}"
        values: dict[str, float] = {}
        for name, places in columns.items():
            parts = [problems.attempt(_value, cells[at], f"{where}: {table.header[at]}") for at in places]
            numbers = [part for part in parts if part is not None]
            if len(numbers) == len(parts):
                values[name] = sum(numbers)
        t_s = None
        if start_at is not None and end_at is not None:
            t_s = problems.attempt(read_duration, cells[start_at], cells[end_at], where)
        grid = "x".join(cells[at] for at in grid_at)
        dispatches.append(Dispatch(clean_name(cells[name_at]), values, t_s, grid))
    return dispatches


def _value(text: str, what: str) -> float | None:
    return None if text.strip().lower() in ("", "nan", "n/a", "none") else number(text, what, minimum=0)


def from_json(data: object, label: str, tool: Tool, skip: int) -> CounterFile:
    """Read rocprofv3's results JSON. Raises ValueError when it holds no dispatches of kernels."""
    tools = as_object(data).get("rocprofiler-sdk-tool")
    if not isinstance(tools, list) or not tools:
        raise ValueError(f"{label}: 'rocprofiler-sdk-tool' is missing, expected rocprofv3's results JSON")
    problems = Problems()
    dispatches: list[Dispatch] = []
    spans: list[tuple[float, float]] = []
    archs: set[str] = set()
    for process in map(as_object, tools):
        archs |= {str(item.get("name")) for item in objects(process, "agents") if item.get("type") == 2}
        names = {item.get("kernel_id"): symbol_name(item) for item in objects(process, "kernel_symbols")}
        counters = {_handle(item.get("id")): str(item.get("name")) for item in objects(process, "counters")}
        counted = objects(process.get("callback_records"), "counter_collection")
        for item in counted or objects(process.get("buffer_records"), "kernel_dispatch"):
            data_of = as_object(item.get("dispatch_data", item))
            info = as_object(data_of.get("dispatch_info"))
            name = names.get(info.get("kernel_id"))
            if name is None:
                problems.add(f"{label}: a dispatch of kernel_id {info.get('kernel_id')!r:.20} without a symbol: left out")
                continue
            start, end = str(data_of.get("start_timestamp", 0)), str(data_of.get("end_timestamp", 0))
            t_s = problems.attempt(read_duration, start, end, f"{label}: dispatch {info.get('dispatch_id')!r:.20}")
            if t_s is not None:
                spans.append((float(start), float(end)))
            values: dict[str, float] = {}
            for record in objects(item, "records"):  # one record an instance: rocprofv3's own CSV sums them
                counter = _canonical(counters.get(_handle(record.get("counter_id")), ""))
                value = problems.attempt(_value, str(record.get("value")), f"{label}: {printable(counter)}")
                if counter and value is not None:
                    values[counter] = values.get(counter, 0.0) + value
            dispatches.append(Dispatch(clean_name(name), values, t_s, repr(info.get("grid_size"))))
    if tool.gfx is None and len(archs) == 1:
        tool = tool._replace(gfx=next(iter(archs)))
    total, union, span = overlap(spans)
    if union and total > union * 1.001:
        problems.add(
            f"{label}: dispatches overlap: their sum is {total:.0f} ns, their union {union:.0f} of a span of {span:.0f} ns"
        )
    file = evaluate(label, "rocprofv3 results JSON", dispatches, tool, problems, skip)
    return file._replace(archs=tuple(sorted(archs)))


def as_object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def objects(holder: object, key: str) -> list[Mapping[str, object]]:
    items = as_object(holder).get(key)
    if isinstance(items, Mapping):
        items = list(items.values())
    return [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []


def _handle(value: object) -> object:
    return value.get("handle") if isinstance(value, Mapping) else value


def symbol_name(item: Mapping[str, object]) -> str:
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


def join_rocpd_times(tables: Mapping[str, Sequence[str]], table: str, ending: str) -> tuple[str, str, str] | None:
    """Return the rows of a table of rocpd as SQL, named ``k``, with their start and end in ns; None where it has no times.

    The times are in the row, or in a table of timestamps (rocpd_tables.sql of ROCm/rocprofiler-sdk).
    """
    columns = tables.get(table + ending, ())
    rows = f"{quote_name(table + ending)} k"
    if "start" in columns and "end" in columns:
        return rows, 'k."start"', 'k."end"'
    if "start_id" in columns and f"rocpd_timestamp{ending}" in tables:
        times = quote_name(f"rocpd_timestamp{ending}")
        rows += f" JOIN {times} t0 ON t0.id = k.start_id JOIN {times} t1 ON t1.id = k.end_id"
        return rows, "t0.value", "t1.value"
    return None


def from_database(path: str, label: str, tool: Tool, skip: int) -> CounterFile:
    """Read the counters in a rocpd database. Raises ValueError when it holds none."""
    problems = Problems()
    dispatches: list[Dispatch] = []
    archs: set[str] = set()
    with open_database(path) as base:
        tables = list_tables(base)
        for name in tables:
            match = re.fullmatch(r"rocpd_kernel_dispatch(\w*)", name)
            ending = match[1] if match else ""
            found = join_rocpd_times(tables, "rocpd_kernel_dispatch", ending) if match else None
            needed = [f"rocpd_{kind}{ending}" for kind in ("pmc_event", "info_pmc", "info_kernel_symbol")]
            if found is None or not all(table in tables for table in needed):
                continue
            rows, start, end = found
            events, counters, symbols = map(quote_name, needed)
            query = (
                f"SELECT k.rowid, s.kernel_name, p.name, sum(e.value), {start}, {end}, k.grid_size_x, k.grid_size_y,"
                f" k.grid_size_z FROM {rows} JOIN {events} e ON e.event_id = k.event_id JOIN {counters} p ON p.id = e.pmc_id"
                f" JOIN {symbols} s ON s.id = k.kernel_id GROUP BY k.rowid, p.name ORDER BY k.rowid"
            )
            if "display_name" in tables[needed[2]]:
                query = query.replace("s.kernel_name", "coalesce(s.display_name, s.kernel_name)")
            last = None
            values: dict[str, float] = {}
            for at, kernel, counter, value, begin, finish, *grid in base.execute(query):
                where = f"{label}: dispatch {at}"
                if at != last:
                    last, values = at, {}
                    t_s = problems.attempt(read_duration, str(begin), str(finish), where)
                    dispatches.append(Dispatch(clean_name(str(kernel)), values, t_s, "x".join(map(str, grid))))
                count = problems.attempt(_value, str(value), f"{where}: {printable(str(counter))}")
                if count is not None:
                    values[_canonical(str(counter))] = count
            agents = f"rocpd_info_agent{ending}"
            if agents in tables:
                archs |= {str(arch) for (arch,) in base.execute(f"SELECT name FROM {quote_name(agents)} WHERE type = 'GPU'")}
    if tool.gfx is None and len(archs) == 1:
        tool = tool._replace(gfx=next(iter(archs)))
    file = evaluate(label, "rocpd counters", dispatches, tool, problems, skip)
    return file._replace(archs=tuple(sorted(archs)))
