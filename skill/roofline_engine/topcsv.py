"""A Top-N as profilers write it to CSV: rocprofv3 ``kernel_stats`` and nsys ``cuda_gpu_kern_sum``, as they come."""

from __future__ import annotations

import re

from .inputs import Row, TopN, doubtful_shares, short_name
from .measured import clean_name, condensed, read_table
from .units import number, printable

_UNITS_MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}
#: An average may be rounded to a unit of its column.
_ROUNDED = 0.02
#: Rows of domain_stats, hip_api_stats, memory_copy_stats and nsys's memory rows: time of the host or of a copy engine.
_DOMAIN = re.compile(r"(HIP|HSA|MARKER|RCCL|ROCDECODE|ROCJPEG|OMPT|KERNEL|MEMORY|SCRATCH)_[A-Z_]+$")
_API = re.compile(r"(__hip|hip|cuda|cu|hsaKmt)[A-Z]\w*$|hsa_\w+$")
_COPY = re.compile(r"\[CUDA mem(cpy|set)\b.*\]$|Memcpy |Memset ")


def is_topn(name: str) -> bool:
    """Whether a file's name is that of a Top-N CSV."""
    low = name.lower()
    return low.endswith(".csv") and any(mark in low for mark in ("kernel_stats", "kern_sum", "gpukernsum"))


def read(text: str, label: str) -> TopN:
    """The kernels of the list; shares are copied, never renormalised, since a list may be cut.

    Raises:
        ValueError: when it lists no kernels: API calls, domains, copies, or nothing.
    """
    table = read_table(text, label, lambda header: "Name" in header and len(header) > 2)
    name_at = table.at("Name")
    calls_at = table.at("Calls", "Instances", "Count")
    pct_at = table.at("Percentage", "Time (%)", "Time(%)")
    total_at, total_ms = _timed(table.header, ("TotalDurationNs", "Total Time"))
    avg_at, avg_ms = _timed(table.header, ("AverageNs", "Avg", "Average"))
    if table.at("Num Calls") is not None:
        raise ValueError(f"{label}: API calls of the host, not kernels: give kernel_stats or cuda_gpu_kern_sum")
    if name_at is None or calls_at is None or (pct_at is None and total_at is None):
        raise ValueError(f"{label}: expected the columns of kernel_stats or cuda_gpu_kern_sum")
    problems = list(table.problems)
    problems += _others(label, [cells[name_at] for _, cells in table.rows])
    whole = 0.0
    if pct_at is None and total_at is not None:
        whole = sum(_number(cells[total_at], "", []) or 0.0 for _, cells in table.rows)
    rows: list[Row] = []
    for line, cells in table.rows:
        name = cells[name_at].strip()
        if not name:
            problems.append(f"{label}: line {line} has no name: left out")
        if not name or _kind(name):
            continue
        where = f"{label}: line {line} ({printable(name)[:60]})"
        calls = _number(cells[calls_at], f"{where}: {table.header[calls_at]}", problems)
        total = _number(cells[total_at], f"{where}: {table.header[total_at]}", problems) if total_at is not None else None
        avg = _number(cells[avg_at], f"{where}: {table.header[avg_at]}", problems) if avg_at is not None else None
        t_ms = avg * avg_ms if avg else None
        if total and calls:
            per_call = total * total_ms / calls
            if t_ms and abs(t_ms / per_call - 1) > _ROUNDED:
                problems.append(f"{where}: {t_ms:.6g} ms on average, but {per_call:.6g} ms by total and calls: no time used")
                t_ms = None
            elif t_ms is None:
                t_ms = per_call
        basis = ""
        if pct_at is not None:
            pct = _number(cells[pct_at], f"{where}: {table.header[pct_at]}", problems)
        else:
            pct, basis = (100.0 * total / whole if total and whole else None), "the sum of the listed rows"
        if pct is None or pct > 100.5:
            problems.append(f"{where}: no usable share: left out")
            continue
        name = clean_name(name)
        rows.append(Row(name, short_name(name), pct, pct_basis=basis, calls=calls, avg_ms=t_ms))
    if not rows:
        raise ValueError(f"{label}: no kernel in it" + (f": {problems[0]}" if problems else ""))
    return TopN(tuple(rows), problems=condensed(problems + doubtful_shares(label, rows)))


def _kind(name: str) -> str:
    """What a row is when it is no kernel. A kernel may be named like an API call, so only a whole file of those tells."""
    if _COPY.match(name):
        return "copies"
    return "domains of API or copy time" if _DOMAIN.match(name) else ""


def _others(label: str, names: list[str]) -> list[str]:
    """One line for each kind of row that is no kernel. Raises ValueError when the whole file is such."""
    kinds = [kind for kind in map(_kind, names) if kind]
    if names and len(kinds) == len(names):
        what = " and ".join(dict.fromkeys(kinds))
    elif names and all(map(_API.match, names)):
        what = "API calls of the host"
    else:
        return [f"{label}: {kinds.count(kind)} rows are {kind}, not kernels: left out" for kind in dict.fromkeys(kinds)]
    raise ValueError(f"{label}: {what}, not kernels: give kernel_stats or cuda_gpu_kern_sum")


def _timed(header: tuple[str, ...], names: tuple[str, ...]) -> tuple[int | None, float]:
    """A column of times by its name without the unit, and what one of its units is in ms."""
    for at, title in enumerate(header):
        match = re.match(r"(.*?)\s*\((\w+)\)$", title)
        base, unit = match.groups() if match else (title, "ns")
        if base in names and unit in _UNITS_MS:
            return at, _UNITS_MS[unit]
    return None, 1.0


def _number(text: str, what: str, problems: list[str]) -> float | None:
    try:
        return number(text, what, minimum=0)
    except ValueError as error:
        problems.append(str(error))
        return None
