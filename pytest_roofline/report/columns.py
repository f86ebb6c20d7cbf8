"""The columns of a row and the shortest names that tell rows apart, for terminal, Markdown and figure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from roofline_engine.check import Overhead
from roofline_engine.units import printable

from ..row import Row

#: The longest name that is shown whole: a C++ template may have thousands of characters.
LONGEST = 120
#: Least characters that a name keeps of its beginning, and before the first difference, when only its difference is shown.
_HEAD, _BEFORE = 8, 5
#: Combining marks beyond the third on one letter: no language needs them, and they would cover the line above.
_PILED = re.compile("([\u0300-\u036f]{3})[\u0300-\u036f]+")


def short_name(nodeid: str) -> str:
    """Return a test's own name with its arguments, which may contain ``::``."""
    return _parts(nodeid)[-1]


def row_names(nodeids: Iterable[str]) -> dict[str, str]:
    """Name each row by its test alone; add the class, then the file, then folders where two rows would share a name."""
    names: dict[str, str] = {}
    alike: dict[str, list[str]] = {}
    for nodeid in nodeids:
        alike.setdefault(short_name(nodeid), []).append(nodeid)
    for short, group in alike.items():
        count = 1
        candidates = dict.fromkeys(group, short)
        while len(set(candidates.values())) < len(candidates) and any(candidates[nodeid] != nodeid for nodeid in candidates):
            count += 1
            candidates = {nodeid: _last_parts(nodeid, count) for nodeid in candidates}
        names.update(candidates)
    return names


def _parts(nodeid: str) -> list[str]:
    """Split a nodeid into folders, file, classes and the test with its arguments."""
    path, colons, rest = nodeid.partition("::")
    head, bracket, arguments = (rest if colons else path).partition("[")
    classes = head.split("::")
    return [*(path.split("/") if colons else ()), *classes[:-1], classes[-1] + bracket + arguments]


def _last_parts(nodeid: str, count: int) -> str:
    """Join the last parts of a nodeid again: folders and file by ``/``, classes and test by ``::``."""
    parts = _parts(nodeid)[-count:]
    files = max(0, len(parts) - nodeid.partition("[")[0].count("::"))
    return "::".join([*(["/".join(parts[:files])] if files else ()), *parts[files:]])


def shorten(name: str, longest: int = LONGEST, mark: str = "…") -> str:
    """Escape control characters and replace the middle of a long name with ``mark``."""
    name = printable(name[: 4 * longest] + name[-longest:] if len(name) > 5 * longest else name)
    if not name.isascii():
        name = _PILED.sub(r"\1", name)
    if len(name) <= longest:
        return name
    head = (longest - len(mark)) * 2 // 3
    return f"{name[:head]}{mark}{name[len(name) - (longest - len(mark) - head) :]}"


def distinct_labels(
    names: Iterable[str], longest: int, mark: str = "…", label: Callable[[str], str] | None = None
) -> dict[str, str]:
    """Label each name in at most ``longest`` characters; names whose labels would be equal show the part that differs.

    label: how a name is shortened; ``shorten`` by default.
    """
    labels = {name: label(name) if label is not None else shorten(name, longest, mark) for name in names}
    heads = {name: text[: max(_HEAD, longest // 4)] for name, text in labels.items()}
    for attempt in range(0 if label is not None else 1, _ATTEMPTS):
        groups: dict[str, list[str]] = {}
        for name, text in labels.items():
            groups.setdefault(text, []).append(name)
        alike = [group for group in groups.values() if len(group) > 1]
        for group in alike:
            differs = _common_prefix(min(group), max(group))
            for name in group:
                cut = attempt > 0 and len(name) > longest
                labels[name] = _around(name, heads[name], differs, longest, mark) if cut else shorten(name, longest, mark)
        if not alike:
            break
    return labels


#: Attempts to make labels distinct: each shows the first difference of the names that still share one.
_ATTEMPTS = 5


def _around(name: str, head: str, at: int, longest: int, mark: str) -> str:
    """Return the head and the part of a name around one of its characters."""
    size = longest - len(head) - 2 * len(mark)
    begin = max(len(head), min(at - _BEFORE, len(name) - size))
    part = name[begin : begin + size]
    return f"{head}{mark}{part}{mark if begin + len(part) < len(name) else ''}"


def _common_prefix(one: str, other: str) -> int:
    """Count the characters that two names share at their beginning."""
    return next((at for at, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))


def list_some(names: Sequence[str], most: int) -> str:
    """Join the first names by commas and count the others."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


#: Statuses that a reader must not miss.
ALARMS = ("beyond_roof", "exceeds_target", "near_roof", "regression")


class Column(NamedTuple):
    """One column."""

    title: str
    text: Callable[[Row], str]
    right: bool = True  # whether the text is aligned right
    spare: int = 0  # the order in which columns are left out of a narrow terminal; 0 stays


def duration(seconds: float | None) -> str:
    """Format a time with four significant digits and the unit that fits."""
    if seconds is None:
        return "-"
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= factor * 0.99995:
            return f"{seconds / factor:.4g} {unit}"
    return f"{seconds * 1e9:.4g} ns"


def describe_overhead(overhead: Overhead) -> str:
    """Describe the cost of launches and host, and the most that one graph of the launches could win."""
    launches = f"{overhead.launches:g} launches, " if overhead.launches and overhead.launches > 1 else ""
    return (
        f"{launches}{100 * overhead.share:.1f} % of {duration(overhead.wall_s)} of wall time is not device time. As one graph "
        f"the call could be up to {overhead.graph_speedup:.2f}x faster, whatever the roof says"
    )


def percent(row: Row) -> str:
    """Format the percent of the roof, with ``!`` for an impossible one and ``args`` for one of the arguments' traffic."""
    entry = row.entry
    if entry.suspect and entry.roofline_pct_raw is not None:
        value = 100 * entry.roofline_pct_raw
        return f"{value:,.0f} !" if value >= 1000 else f"{value:.3g} !"
    mark = " args" if row.coverage == "args" else ""
    return "-" if entry.roofline_pct is None else f"{100 * entry.roofline_pct:.1f}{mark}"


def limiter(row: Row) -> str:
    """Say what keeps a kernel from its roof: memory, compute, latency, or launch for a call that takes as long as a launch."""
    entry = row.entry
    if entry.unknown_reason == "dispatch_bound":
        return "launch"
    return "-" if entry.bound_type == "unknown" else entry.bound_type


def headroom(row: Row) -> str:
    """Return the speedup up to the achievable percent, with its range where it is wide."""
    entry = row.entry
    if entry.attainable_speedup is None:
        return "-"
    text = f"{entry.attainable_speedup:.2f}x"
    span = entry.attainable_speedup_range
    if span and f"{span[0]:.2f}" != f"{span[1]:.2f}":
        text += f" ({span[0]:.2f}-{span[1]:.2f})"
    return text


def verdict(row: Row) -> str:
    """Format the class; for unknown the reason, or the class with ``?`` where only the confidence is low."""
    entry = row.entry
    if entry.headroom_class != "unknown":
        return entry.headroom_class
    if entry.indicative_class and entry.unknown_reason == "low_confidence":
        return f"{entry.indicative_class}?"
    return f"unknown: {entry.unknown_reason}" if entry.unknown_reason else "unknown"


def outcome(row: Row) -> str:
    """Format the status of the check, with the measured speedup."""
    status, speedup = row.check.status, row.check.speedup
    if status == "not_checked" and speedup is None:
        return "-"
    return status if speedup is None else f"{speedup:.2f}x {status}"


def _seconds(row: Row) -> float | None:
    return None if row.entry.t_unit_ms is None else row.entry.t_unit_ms / 1e3


def _intensity(row: Row) -> str:
    value = row.entry.arithmetic_intensity
    return f"{value:.3g}" if value else "-"  # 0 for a copy, and for a kernel with unknown FLOPs


#: The columns after the row's name, which depends on the other rows.
COLUMNS = (
    Column("time", lambda row: duration(_seconds(row))),
    Column("FLOP/B", _intensity, spare=2),
    Column("roof", lambda row: row.entry.roof_level or row.entry.roof_axis or "-", right=False, spare=6),
    Column("% roof", percent),
    Column("limiter", limiter, right=False, spare=3),
    Column("achievable %", lambda row: "-" if row.entry.target_eff is None else f"{100 * row.entry.target_eff:.3g}", spare=1),
    Column("headroom", headroom, spare=4),
    Column("verdict", verdict, right=False),
    Column("check", outcome, right=False, spare=5),
)
