"""Tables that are made of a torch trace: TraceLens' ``unified_perf_summary.csv``, and ``key_averages()`` of torch.profiler."""

from __future__ import annotations

import os
import re
from ast import literal_eval
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ..calls.recorded import OpFacts
from ..files import Problems, condense, read_table, read_text
from ..inputs import Times
from ..kernels import clean_name, is_copy
from ..units import number, printable
from .form import KernelUse, Profile, Unit

# TraceLens.

_KERNEL = re.compile(
    r"'name': (?:'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\")"
    r".*?'count': (\d+).*?'total_duration_us': (?:np\.float64\()?([\d.e+-]+)"
)
_TIME = re.compile(r"Kernel Time \(\S+s\)_(sum|median|min|max|std)")


def read_tracelens(path: str) -> Profile:
    """Read the operations of a TraceLens report, with their shapes and kernels.

    Raises:
        ValueError: with one line that names the file and the reason.
    """
    label = printable(os.path.basename(path))
    table = read_table(read_text(path), label, lambda header: "Input Dims" in header and "operation_count" in header)
    problems = Problems(table.problems)
    places = {match[1]: at for at, title in enumerate(table.header) for match in [_TIME.fullmatch(title)] if match}
    missing = [name for name in ("name", "Input type", "kernel_details_summary") if name not in table.header]
    if missing or "sum" not in places:
        raise ValueError(
            f"{label}: {', '.join(missing) or 'Kernel Time (us)_sum'} is missing, expected unified_perf_summary.csv"
        )
    units = []
    for line, cells in table.rows:
        row = dict(zip(table.header, cells))
        unit = problems.attempt(_tracelens_unit, row, {key: cells[at] for key, at in places.items()}, f"{label}: line {line}")
        if unit is not None:
            units.append(unit)
    if not units:
        raise ValueError(f"{label}: no operation with kernels in it" + (f": {problems.lines[0]}" if problems.lines else ""))
    units.sort(key=lambda unit: -unit.times.total_us)
    return Profile("TraceLens report", label, tuple(units), problems=condense(problems.lines))


def _tracelens_unit(row: dict[str, str], times: dict[str, str], where: str) -> Unit | None:
    if not times["sum"].strip():
        return None  # an operation of the host
    total = number(times["sum"], f"{where}: kernel time", minimum=0)
    if not total:
        return None
    calls = number(row["operation_count"], f"{where}: operation_count", above=0)
    spread = [
        number(times[key], f"{where}: kernel time", minimum=0) if times.get(key, "").strip() else None
        for key in ("median", "min", "max", "std")
    ]
    name = row["name"].strip()
    uses = [
        KernelUse(clean_name(first or second), float(count), float(time))
        for first, second, count, time in _KERNEL.findall(row["kernel_details_summary"])
        if not _is_host_copy(first or second)
    ]
    if not uses and row["kernel_details_summary"].strip():
        return None  # copies of the host
    inputs = (
        _literal(row.get(key, ""), f"{where}: {key}")
        for key in ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
    )
    shapes, dtypes, strides, concrete = inputs
    facts = OpFacts(name, shapes, tuple(map(str, dtypes)), strides, tuple(map(str, concrete)))
    uses.sort(key=lambda use: -use.total_us)
    return Unit(tuple(uses) or (KernelUse(name, calls, total),), Times(calls, total, *spread), facts)


def _is_host_copy(name: str) -> bool:
    """Return whether this is a copy to or from the host; one on the device uses the device's memory."""
    return is_copy(name) and not name.startswith("Memcpy DtoD")


def _literal(text: str, where: str) -> tuple[Any, ...]:
    if not text.strip():
        return ()
    try:
        value = literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"{where} is {text!r:.40}, expected a list of inputs: left out") from None
    frozen = _frozen(value)
    return frozen if isinstance(frozen, tuple) else (frozen,)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, (list, tuple)) else value


# key_averages().


class _Line(NamedTuple):
    """One row of ``key_averages()``. Times are in microseconds."""

    name: str
    is_host: bool  # it took time of the CPU: an operation, a call of the runtime, a range
    self_us: float  # of the device
    calls: float


_UNITS_US = {"us": 1.0, "ms": 1e3, "s": 1e6, "ns": 1e-3}
_CELL = re.compile(r"([\d.,]+)\s*(ns|us|ms|s)?")
_TOTAL = re.compile(r"(?m)^Self (?!CPU)\w+ time total:\s*(\S+)")
#: Part of the total that rounding may hide.
_ROUNDING = 0.02


def read_key_averages(path: str) -> Profile:
    """Read the kernels of a ``key_averages()`` table, as text or as CSV.

    A kernel's time is also in the row of the operation that launched it, so the rows of operations are used only where the
    table has no kernels.

    Raises:
        ValueError: with one line that names the file and the reason.
    """
    label = printable(os.path.basename(path))
    text = read_text(path)
    problems = Problems()
    rows = list(_text_rows(text) or _csv_rows(text, label, problems))
    if not rows:
        raise ValueError(f"{label}: a table without a row")
    lines = [line for row in rows for line in [problems.attempt(_line, row, label)] if line is not None]
    hosts = {line.name for line in lines if line.is_host}
    busy = [line for line in lines if line.self_us > 0 and line.calls > 0]
    launched = [
        line for line in busy if not line.is_host and line.name not in hosts and not line.name.startswith("ProfilerStep")
    ]
    copies = [line for line in launched if _is_host_copy(line.name)]
    kernels = [line for line in launched if not _is_host_copy(line.name)]
    copied = sum(line.self_us for line in copies)
    if not kernels:
        problems.add(f"{label}: it has no row of a kernel: operations are listed by their own time on the device")
        kernels = [
            line._replace(self_us=line.self_us - copied) if line.name == "aten::copy_" else line
            for line in busy
            if line.is_host
        ]
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for line in kernels:
        if line.self_us > 0:
            sums[line.name][0] += line.calls
            sums[line.name][1] += line.self_us
    if not sums:
        raise ValueError(f"{label}: no row has time of the device: was the activity CUDA profiled?")
    units = [Unit((KernelUse(name, calls, total),), Times(calls, total)) for name, (calls, total) in sums.items()]
    units.sort(key=lambda unit: -unit.times.total_us)
    listed, footer = copied + sum(line.self_us for line in kernels), _TOTAL.search(text)
    total = problems.attempt(_microseconds, footer[1], f"{label}: the total") if footer else None
    if total and listed < (1 - _ROUNDING) * total:
        problems.add(f"{label}: its kernels are {listed / total:.1%} of the total: the table is cut; shares are of the total")
    if footer is None:
        problems.add(f"{label}: the line 'Self CUDA time total' is missing: shares are of the rows that it has")
    whole = total if total and total > listed else None
    return Profile("torch key_averages table", label, tuple(units), problems=condense(problems.lines), total_us=whole)


def _text_rows(text: str) -> Iterable[dict[str, str]] | None:
    """Return the rows of a table in text, between lines of dashes; None where it is no such table."""
    lines = text.splitlines()
    for at, line in enumerate(lines[:-2]):
        if re.fullmatch(r"\s*-{3,}(\s+-{3,}){3,}\s*", line) and "Name" in lines[at + 1] and "# of Calls" in lines[at + 1]:
            return _text_cells(lines, at + 1)
    return None


def _text_cells(lines: Sequence[str], at: int) -> Iterator[dict[str, str]]:
    """Yield the rows under the titles at ``at``. Two spaces or more separate columns; a long title shifts those after it."""
    titles = re.split(r"\s{2,}", lines[at].strip())
    for line in lines[at + 2 :]:
        if line.lstrip().startswith("---"):
            return
        cells = re.split(r"\s{2,}", line.strip())
        if len(cells) >= len(titles):
            split = len(cells) - len(titles) + 1  # a name may have two spaces
            yield dict(zip(titles, ["  ".join(cells[:split]), *cells[split:]]))


def _csv_rows(text: str, label: str, problems: Problems) -> Iterator[dict[str, str]]:
    table = read_table(text, label, is_key_averages)
    problems.lines += table.problems
    for _, cells in table.rows:
        yield dict(zip(table.header, cells))


def is_key_averages(header: Sequence[str]) -> bool:
    """Return whether these are the columns of ``key_averages()``, as its table or its attributes name them."""
    return ("Name" in header and "# of Calls" in header) or ("key" in header and "count" in header)


def _line(row: dict[str, str], label: str) -> _Line | None:
    name = clean_name(row.get("Name", row.get("key", "")))
    device = next(
        (
            title
            for title in row
            if re.fullmatch(r"Self (?!CPU)\w+", title) or re.fullmatch(r"self_(?!cpu)\w+_time_total", title)
        ),
        None,
    )
    if not name or name == "[memory]":
        return None
    if device is None:
        raise ValueError(f"{label}: it has no time of a device: was the activity CUDA profiled?")
    where = f"{label}: {name[:60]}"
    self_us = _microseconds(row[device], f"{where}: {device}")
    host = max(
        _microseconds(row[title], f"{where}: {title}") if row.get(title) else 0.0
        for title in ("Self CPU", "CPU total", "self_cpu_time_total", "cpu_time_total")
    )
    calls = number(row.get("# of Calls", row.get("count", "")), f"{where}: calls", minimum=0)
    return _Line(name, host > 0 or name.startswith("aten::"), self_us, calls)


def _microseconds(text: str, what: str) -> float:
    match = _CELL.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{what} is {text!r:.24}, expected a time: left out")
    return float(number(match[1], what, minimum=0)) * _UNITS_US[match[2] or "us"]
