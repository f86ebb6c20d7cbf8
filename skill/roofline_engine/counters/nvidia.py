"""NVIDIA: read the CSV of Nsight Compute, the raw page or the details page.

The raw page has a row per launch, with units under the header; the details page has a row per metric.
Units are per cell: SI prefixes are 1000-based (Kbyte is 1000 bytes), KiB and its like are not. A file written under another
locale has decimal commas; which of the two it is, is decided for the file as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ..files import Problems, Table, condense, read_table
from ..kernels import clean_name
from ..peaks import architecture
from ..units import number, printable
from .base import CounterFile, Dispatch, DispatchGroup, KernelCounts, group_dispatches

_TIME = "gpu__time_duration.sum"
_CYCLES, _CLOCK = "sm__cycles_elapsed.avg", "sm__cycles_elapsed.avg.per_second"
_LABELS = {"Duration": _TIME, "Achieved Occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active"}
#: Bytes read and written, as ncu's versions name them.
_HBM = (("dram__bytes_read.sum", "dram__bytes_write.sum"), ("dram__bytes.sum.read", "dram__bytes.sum.write"))
_LEVELS = {"l2": "lts__t_bytes.sum", "l1": "l1tex__t_bytes.sum"}
_SHARES = {
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "dram_throughput",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "sm_throughput",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": "tensor_pipe",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "occupancy",
}
#: FLOPs of one thread's instruction: a multiply-add is two, a packed one two lanes of that.
_SASS = {"add": 1, "mul": 1, "fma": 2, "add2": 2, "mul2": 2, "fma2": 4}
_SASS_NAME = re.compile(r"sm(?:sp)?__sass_thread_inst_executed_op_([dfh])(add2?|mul2?|fma2?)_pred_on\.sum$")
_PRECISION = {"d": "vector_fp64", "f": "vector_fp32", "h": "vector_fp16"}
_PATH = re.compile(r"sm__ops_path_tensor_(op_[a-z]+_)?src_(\w+?)(_dst_\w+?)?(_sparsity_(?:on|off))?\.sum$")
_PIPE = re.compile(r"sm(?:sp)?__inst_executed_pipe_tensor\w*\.sum$")
#: FLOPs of one warp-level tensor instruction on Volta; an A100 HMMA.16816 is 4096, so the factor is of Volta alone.
_VOLTA_FLOPS, _VOLTA = 512, "7.0"
_SOURCES = {"fp4_fp6": "fp6_fp4", "fp4_fp6_fp8": "fp8"}

_PREFIX = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_SECONDS = {prefix + word: prefix for prefix in ("", "m", "u", "n") for word in ("s", "sec", "second")}
_WHOLE = ("byte", "bytes", "inst", "nsecond", "ns", "nsec")
_THREE_AFTER = re.compile(r"[+-]?\d{1,3}[.,]\d{3}$")
_COUNTED = re.compile(r"([kKMGTP]i?)?(bytes?|B|inst|cycle|op|ops|request|sector)?$")


def from_table(text: str, label: str, skip: int) -> CounterFile:
    """Read either page. Raises ValueError when it holds no launch."""
    table = read_table(text, label, lambda header: "Kernel Name" in header and ("ID" in header or "Metric Name" in header))
    details = table.column("Metric Name") is not None
    problems = Problems(table.problems)
    if not table.rows or (not details and len(table.rows) == 1):
        raise ValueError(f"{label}: a header without a launch")
    dispatches = _details(table, problems) if details else _raw(table, problems)
    capability_at = table.column("CC")
    capabilities = set() if capability_at is None else {cells[capability_at].strip() for _, cells in table.rows} - {""}
    source = f"ncu {'details' if details else 'raw'} page"
    kernels = tuple(_measure(group, source, capabilities == {_VOLTA}) for group in group_dispatches(dispatches, skip))
    if not kernels:
        raise ValueError(f"{label}: it has no launch of a kernel")
    archs = tuple(sorted(map(architecture, capabilities)))
    device_at = table.column("device__attribute_display_name")
    names = set() if device_at is None else {cells[device_at].strip() for _, cells in table.rows} - {""}
    lines = condense(problems.lines)
    return CounterFile(label, source, None, kernels, lines, archs, is_nvidia=True, device_names=tuple(sorted(names)))


def _wanted(name: str) -> bool:
    return name in (_TIME, _CYCLES, _CLOCK, "dram__bytes.sum", *_HBM[0], *_HBM[1], *_LEVELS.values(), *_SHARES) or any(
        pattern.match(name) for pattern in (_SASS_NAME, _PATH, _PIPE)
    )


def _raw(table: Table, problems: Problems) -> list[Dispatch]:
    name_at, grid_at = table.column("Kernel Name"), table.column("Grid Size")
    assert name_at is not None
    units_line, units = table.rows[0]
    if units[name_at].strip():
        raise ValueError(f"{table.label}: line {units_line}: expected the units under the header, found a launch")
    columns = [(at, name) for at, name in enumerate(table.header) if _wanted(name)]
    metrics = [at for at, name in enumerate(table.header) if "__" in name]
    decimal = _decimal_comma((cells[at] for _, cells in table.rows[1:] for at in metrics), table.label)
    dispatches = []
    for line, cells in table.rows[1:]:
        values = {}
        for at, name in columns:
            value = problems.attempt(_cell, cells[at], units[at], f"{table.label}: line {line}: {name}", decimal)
            if value is not None:
                values[name] = value
        grid = cells[grid_at] if grid_at is not None else ""
        dispatches.append(_dispatch(cells[name_at], values, grid))
    return dispatches


def _details(table: Table, problems: Problems) -> list[Dispatch]:
    id_at, name_at, metric_at = table.column("ID"), table.column("Kernel Name"), table.column("Metric Name")
    unit_at, value_at, grid_at = table.column("Metric Unit"), table.column("Metric Value"), table.column("Grid Size")
    if id_at is None or unit_at is None or value_at is None or metric_at is None or name_at is None:
        raise ValueError(f"{table.label}: expected the columns ID, Kernel Name, Metric Name, Metric Unit and Metric Value")
    decimal = _decimal_comma((cells[value_at] for _, cells in table.rows), table.label)
    # An ID is of one process.
    keys = [at for at in (table.column("Process ID"), table.column("Device"), id_at, name_at) if at is not None]
    launches: dict[tuple[str, ...], tuple[str, dict[str, float], str]] = {}
    for line, cells in table.rows:
        metric = cells[metric_at].strip()
        metric = _LABELS.get(metric, metric)
        grid = cells[grid_at] if grid_at is not None else ""
        _, values, _ = launches.setdefault(tuple(cells[at] for at in keys), (cells[name_at], {}, grid))
        if _wanted(metric):
            where = f"{table.label}: line {line}: {metric}"
            value = problems.attempt(_cell, cells[value_at], cells[unit_at], where, decimal)
            if value is not None:
                values.setdefault(metric, value)
    return [_dispatch(name, values, grid) for name, values, grid in launches.values()]


def _dispatch(name: str, values: dict[str, float], grid: str) -> Dispatch:
    t_s: float | None = values.get(_TIME)
    if t_s is None and values.get(_CYCLES) and values.get(_CLOCK):
        t_s = values[_CYCLES] / values[_CLOCK]
    return Dispatch(clean_name(name), values, t_s or None, grid)


def _decimal_comma(cells: Iterable[str], label: str) -> bool | None:
    """Whether commas are decimal in this file; None when no number shows it.

    ``1.234`` alone is ambiguous, but where no number has a comma it is a decimal point: a locale of decimal commas
    would have written one somewhere.

    Raises ValueError when some numbers show one and some the other.
    """
    commas = False
    shown: dict[str, str] = {}  # a decimal mark, and the first number that shows it
    for cell in cells:
        text = cell.strip().lstrip("+-")
        if not re.match(r"[\d.,]+$", text):
            continue
        commas = commas or "," in text
        last = max(text.rfind(","), text.rfind("."))
        if last < 0:
            continue
        mark, other = text[last], "," if text[last] == "." else "."
        grouped_by_three = re.match(r"\d{1,3}(\D\d{3})+$", text) is not None and other not in text
        if grouped_by_three and text.count(mark) == 1:
            continue  # "1,234" and "1.234" alone are ambiguous
        shown.setdefault(other if grouped_by_three else mark, cell)
    if len(shown) == 2:
        raise ValueError(f"{label}: {shown[',']!r:.30} has a decimal comma and {shown['.']!r:.30} a decimal point: not read")
    if shown or not commas:
        return "," in shown
    return None


def _cell(text: str, unit: str, what: str, decimal_comma: bool | None) -> float:
    """One cell in base units (bytes, seconds, counts, percent). Raises ValueError when it holds no usable number."""
    plain = text.strip()
    if plain.lower() in ("", "n/a", "nan", "no data", "-"):
        raise ValueError(f"{what} is {plain or 'empty'}: skipped")
    if decimal_comma:
        plain = plain.replace(".", "").replace(",", ".")
    elif _THREE_AFTER.match(plain) and ("." in plain if unit.strip() in _WHOLE else decimal_comma is None):
        # A count of base units is whole, so its comma groups thousands and its point is no decimal point.
        raise ValueError(f"{what} is {plain!r}: thousands or decimals, which the file does not show: skipped")
    value = number(plain, what, minimum=0)
    try:
        return value * factor(unit)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None


def factor(unit: str) -> float:
    """What one of ``unit`` is in bytes, seconds, counts, percent or 1/s. Raises ValueError for a unit that is not known."""
    text = unit.strip()
    if text in ("", "%"):
        return 1.0
    if text in _SECONDS:
        return _PREFIX[_SECONDS[text]]
    rate = re.match(r"(?:cycle/)?(n|u|m|)(?:second|sec|s)$|([kKMGT]?)(?:Hz|hz)$", text)
    if rate:
        return 1.0 / _PREFIX[rate.group(1)] if rate.group(1) is not None else _PREFIX[rate.group(2)]
    counted = _COUNTED.match(text)
    if not counted:
        raise ValueError(f"unit {unit!r:.30} is not known")
    prefix = counted.group(1) or ""
    return _BINARY[prefix] if prefix in _BINARY else _PREFIX[prefix]


def _measure(group: DispatchGroup, source: str, volta: bool) -> KernelCounts:
    levels: dict[str, float] = {}
    for pair in _HBM:
        levels.update({level: group.mean(name) for level, name in zip(("hbm_read", "hbm_write"), pair) if group.live(name)})
    names: tuple[str, ...] = ()
    if group.live("dram__bytes.sum"):
        names = ("dram__bytes.sum",)
    elif group.has(*_HBM[0]):
        names = _HBM[0]
    elif "hbm_read" in levels and "hbm_write" in levels:
        names = _HBM[1]
    means = group.means("hbm", *names) if names else None
    if means:
        levels["hbm"] = sum(means.values())
    levels.update({level: group.mean(name) for level, name in _LEVELS.items() if group.live(name)})
    shares = {label: group.mean(name) for name, label in _SHARES.items() if group.has(name)}
    flops = _flops(group, volta)
    return group.counts(levels, flops, source, shares, _counted_units(group, flops))


def _counted_units(group: DispatchGroup, flops: Mapping[str, float]) -> tuple[str, ...]:
    """Return the units whose FLOPs were all counted. Tensor units that were idle computed nothing."""
    idle = [name for name in group.names if _PIPE.match(name) or _SHARES.get(name) == "tensor_pipe"]
    has_matrix = any(not key.startswith("vector_") for key in flops) or any(not group.mean(name) for name in idle)
    has_vector = any(match[2] == "fma" and match[1] == "f" for match in map(_SASS_NAME.match, group.names) if match)
    return (*(("matrix",) if has_matrix else ()), *(("vector",) if has_vector else ()))


def _flops(group: DispatchGroup, volta: bool) -> dict[str, float]:
    names = list(dict.fromkeys(name for dispatch in group.dispatches for name in dispatch.values))
    flops: dict[str, float] = {}
    for name in names:
        sass = _SASS_NAME.match(name)
        count = group.mean(name) if sass else 0.0
        if sass and count:
            key = _PRECISION[sass.group(1)]
            flops[key] = flops.get(key, 0.0) + count * _SASS[sass.group(2)]
    tensor = _tensor(group, names)
    pipes = [name for name in names if _PIPE.match(name) and group.mean(name)]
    if not tensor and pipes:
        if volta:
            tensor = {"fp16": max(map(group.mean, pipes)) * _VOLTA_FLOPS}
        else:
            group.refuse(
                "flops",
                f"{printable(pipes[0])} x 512 holds on a V100 only (CC {_VOLTA}; an A100 instruction is 4096): "
                "collect sm__ops_path_tensor_*",
            )
    return {**tensor, **flops}


def _tensor(group: DispatchGroup, names: Iterable[str]) -> dict[str, float]:
    """The tensor paths' own operation counts by source dtype: the total where it was collected, else the sum of its parts."""
    paths: dict[bool, dict[str, dict[str, dict[str, float]]]] = {False: {}, True: {}}
    for name in names:
        match = _PATH.match(name)
        if match:
            op, src, dst, sparsity = match.groups()
            of_src = paths[bool(op)].setdefault((op or "") + src, {})
            of_src.setdefault(dst or "", {})[(sparsity or "").rpartition("_")[2]] = group.mean(name)
    # The op_ paths are the same operations counted by instruction, so never both.
    chosen = paths[False] or paths[True]
    flops: dict[str, float] = {}
    for key, of_src in chosen.items():
        src = re.sub(r"^op_[a-z]+_", "", key)
        dtype = _SOURCES.get(src, src)
        parts = [of_src[""]] if "" in of_src else list(of_src.values())
        total = sum(part[""] if "" in part else part.get("on", 0.0) + part.get("off", 0.0) for part in parts)
        sparse = sum(part.get("on", 0.0) for part in parts)
        for label, count in ((dtype, total - sparse), (f"sparse_{dtype}", sparse)):
            if count > 0:
                flops[label] = flops.get(label, 0.0) + count
    return flops
