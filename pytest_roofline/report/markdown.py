"""The report as Markdown: the table, the contradictions, both rankings, and the notes folded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roofline_engine.report import code, table
from roofline_engine.report import text as plain_text

from ..row import Row
from .columns import ALARMS, COLUMNS, kernel

if TYPE_CHECKING:
    from .document import Document


def text(document: Document) -> str:
    """The whole report."""
    measured = [row for row in document.rows if row.measurement is not None]
    parts = ["# Roofline headroom", *[f"- {plain_text(name)}: {_peaks(peaks)}" for name, peaks in document.devices.items()]]
    if measured:
        head = [column.title for column in COLUMNS]
        rows = [[code(kernel(row)), *[plain_text(column.text(row)) for column in COLUMNS[1:]]] for row in measured]
        parts.append(table([head, *rows]))
    else:
        parts.append("No measured kernel.")
    alarms = [row for row in document.rows if row.check.status in ALARMS or row.failed]
    if alarms:
        parts += ["## Checks", "\n".join(f"- {code(kernel(row))} {plain_text(_said(row))}" for row in alarms)]
    if len(measured) > 1 and any(row.entry.rankable for row in measured):
        parts.append("## The two rankings")
        shares, gains = document.by_share(), document.by_gain()
        pairs = [[str(at), code(kernel(a)), code(kernel(b))] for at, (a, b) in enumerate(zip(shares, gains), 1)]
        parts.append(table([["rank", "by measured share or time", "by expected gain"], *pairs]))
    notes = [f"- {code(row.nodeid)}: {plain_text(row.entry.notes)}" for row in document.rows if row.entry.notes]
    if notes:
        parts += ["<details><summary>What each figure rests on</summary>", "\n".join(notes), "</details>"]
    if document.problems:
        parts += ["## What could not be done", *[f"- {plain_text(line)}" for line in document.problems]]
    parts.append("roofline_pct says how well a kernel spends its byte and FLOP budget, not whether that budget is needed.")
    return "\n\n".join(parts) + "\n"


def _said(row: Row) -> str:
    return f"fails: {row.failed}" if row.failed else f"{row.check.status}: {row.check.message}"


def _peaks(peaks: dict[str, object]) -> str:
    bandwidth = peaks.get("hbm_bw_bytes_s")
    shown = f"{bandwidth / 1e9:.4g} GB/s" if isinstance(bandwidth, (int, float)) else "unknown bandwidth"
    return f"{shown}, {peaks.get('source')}, {peaks.get('confidence')} confidence"
