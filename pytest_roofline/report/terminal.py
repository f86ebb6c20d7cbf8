"""The terminal section, after the benchmark table: as wide as the terminal, coloured by class, as talkative as ``-v``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from roofline_engine.units import printable, quantity

from ..annotation import Annotation
from .columns import ALARMS, COLUMNS, Column, kernel

if TYPE_CHECKING:
    import pytest

    from . import Document

_COLOURS: dict[str, dict[str, bool]] = {
    "underperforming": {"yellow": True},
    "moderate": {"cyan": True},
    "saturated": {"green": True},
}
_ALARM = {"red": True, "bold": True}
#: Narrowest a kernel's name is cut to.
_NAME = 16


def section(reporter: pytest.TerminalReporter, document: Document) -> None:
    """Write the section. ``-q`` leaves the contradictions and a count."""
    rows = [row for row in document.rows if row.measurement is not None]
    untimed = len(document.rows) - len(rows)
    quiet = reporter.config.get_verbosity() < 0
    verbose = reporter.config.get_verbosity()
    verdicts = sum(row.entry.headroom_class != "unknown" for row in rows)
    count = f"{len(rows)} measured, {verdicts} with a verdict" + (f", {untimed} not measured" if untimed else "")
    if not quiet:
        reporter.section(f"roofline: {count}", sep="=")
        if rows:
            _table(reporter, rows)
        for name, peaks in document.devices.items():
            reporter.write_line(f"peaks of {printable(name)}: {_peaks(peaks)}")
    alarms = [row for row in document.rows if row.check.status in ALARMS]
    for row in alarms:
        colour = _ALARM if row.check.status == "beyond_roof" else {"yellow": True}
        reporter.write_line(f"{row.check.status}: {kernel(row)}: {printable(row.check.message)}", **colour)
    if not quiet:
        _reasons(reporter, document, rows)
        _rankings(reporter, document, rows, full=verbose > 0)
        _unmatched(reporter, document)
    if verbose > 0:
        _bases(reporter, document.rows, notes=verbose > 1)
    for line in document.problems:
        reporter.write_line(f"roofline: {printable(line)}", yellow=True)
    for path in document.written:
        reporter.write_line(f"roofline report: {printable(path)}")
    if quiet:
        reporter.write_line(f"roofline: {count}")


def _table(reporter: pytest.TerminalReporter, rows: Sequence[Annotation]) -> None:
    columns = [column for column in COLUMNS if column.title != "check" or any(column.text(row) != "-" for row in rows)]
    width = reporter.config.get_terminal_writer().fullwidth
    while True:
        cells = [[column.title for column in columns], *[[column.text(row) for column in columns] for row in rows]]
        sizes = [max(len(line[at]) for line in cells) for at in range(len(columns))]
        rest = sum(sizes[1:]) + 2 * (len(columns) - 1)
        spare = [column for column in columns if column.spare]
        if rest + min(sizes[0], _NAME) <= width or not spare:
            break
        columns.remove(min(spare, key=lambda column: column.spare))
    sizes[0] = min(sizes[0], max(_NAME, width - rest))
    for at, line in enumerate(cells):
        text = "  ".join(_cell(cell, size, column) for cell, size, column in zip(line, sizes, columns)).rstrip()
        reporter.write_line(text, **(_colour(rows[at - 1]) if at else {"bold": True}))


def _cell(text: str, size: int, column: Column) -> str:
    shown = text if len(text) <= size else _elided(text, size)
    return shown.rjust(size) if column.right else shown.ljust(size)


def _elided(text: str, size: int) -> str:
    """The middle goes: both ends of a test's name tell it from its neighbours."""
    head = (size - 2) // 2
    return f"{text[:head]}..{text[len(text) - (size - 2 - head) :]}"


def _colour(row: Annotation) -> dict[str, bool]:
    return _ALARM if row.check.status == "beyond_roof" or row.failed else _COLOURS.get(row.entry.headroom_class, {})


def _peaks(peaks: dict[str, object]) -> str:
    bandwidth = peaks.get("hbm_bw_bytes_s")
    parts = [quantity(bandwidth, "B/s") if isinstance(bandwidth, (int, float)) else "unknown bandwidth"]
    for name in ("flops", "vector"):
        rates = peaks.get(name)
        if isinstance(rates, dict):
            parts += [
                f"{dtype} {quantity(rates[dtype], 'FLOP/s')}" for dtype in ("fp64", "fp32", "bf16", "fp8") if dtype in rates
            ]
    return f"{', '.join(dict.fromkeys(parts))}; {peaks.get('source')}, {peaks.get('confidence')} confidence"


def _reasons(reporter: pytest.TerminalReporter, document: Document, rows: Sequence[Annotation]) -> None:
    """Why rows have no verdict, a line a reason, with what would settle it."""
    seen: dict[str, int] = {}
    for row in rows:
        if row.entry.headroom_class == "unknown" and row.check.status not in ("beyond_roof", "near_roof"):
            first = row.entry.notes.partition("; ")[0] if not row.entry.modeled else _why(row)
            if first:
                seen[first] = seen.get(first, 0) + 1
    for reason, count in seen.items():
        reporter.write_line(f"no verdict for {count}: {printable(reason)}")


def _why(row: Annotation) -> str:
    """The remark that explains the reason, not those on the model."""
    reason = row.entry.unknown_reason or ""
    return {
        "cache_resident": "operands that fit a cache say nothing of memory: larger ones, or roofline.measure with a cold cache",
        "dispatch_bound": "the call is within the cost of a launch",
        "no_target": "what a good kernel of this op reaches is not known: target_eff= in the marker",
        "low_confidence": "the figure is for display: stage A, a doubtful ceiling, or device work on a host's clock",
        "conflicting_models": "no one class holds over the byte models that are possible",
        "unvalidated_peak": "the peak of its roof is not known, or breaks a rule",
        "infeasible": "the ratio is impossible: the model, the peak or the time is wrong",
    }.get(reason, reason)


def _rankings(reporter: pytest.TerminalReporter, document: Document, rows: Sequence[Annotation], *, full: bool) -> None:
    if len(rows) < 2:
        return
    most = None if full else 3
    shares = [row for row in document.by_share() if row.measurement is not None]
    gains = [row for row in document.by_gain() if row.entry.rankable]
    more = ", ..." if most and len(shares) > most else ""
    measure = "share of GPU time" if any(row.entry.pct_gpu_time for row in rows) else "time"
    reporter.write_line(f"by {measure}: {', '.join(kernel(row) for row in shares[:most])}{more}")
    told = [f"{kernel(row)} {_gain(row)}" for row in gains[:most]]
    reporter.write_line(
        f"by expected gain: {', '.join(told) or 'nothing can be ranked'}{', ...' if most and len(gains) > most else ''}"
    )


def _gain(row: Annotation) -> str:
    entry = row.entry
    return (
        f"(+{entry.expected_e2e_gain_pct:.2f} %)"
        if entry.expected_e2e_gain_pct is not None
        else f"({entry.attainable_speedup:.2f}x)"
    )


def _unmatched(reporter: pytest.TerminalReporter, document: Document) -> None:
    kernels, tests = document.unmatched()
    for what, names in (("predictions without a test", kernels), ("tests without a prediction", tests)):
        if names:
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            reporter.write_line(f"{what}: {', '.join(printable(name) for name in names[:5])}{more}")


def _bases(reporter: pytest.TerminalReporter, rows: Sequence[Annotation], *, notes: bool) -> None:
    for row in rows:
        entry, m = row.entry, row.measurement
        moved = f"{quantity(entry.bytes_est, 'B')}, {quantity(entry.flops_est or 0, 'FLOP')}" if entry.bytes_est else "no work"
        timed = f"{m.source}, {m.clock} clock, {m.cache} cache, {m.rounds or '?'} rounds" if m else "not measured"
        reporter.write_line(f"{kernel(row)}: {moved} ({row.work_source or 'no source'}, stage {entry.stage}); {timed}")
        if notes and entry.notes:
            reporter.write_line(f"    {printable(entry.notes)}")
            for lever in (*entry.byte_reduction_levers, *entry.host_side_levers):
                reporter.write_line(f"    lever: {printable(lever)}")
