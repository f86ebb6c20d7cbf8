"""The report as Markdown: the table, the contradictions, both rankings, and the notes folded."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from roofline_engine.fields import join_notes
from roofline_engine.report import code, table
from roofline_engine.report import text as plain_text

from ..row import Row
from .columns import ALARMS, COLUMNS

if TYPE_CHECKING:
    from .document import Document

#: The interface shows ten annotations of a kind per step; the worst come first.
_MOST = 10
_KINDS = ("beyond_roof", "exceeds_target")


def text(document: Document) -> str:
    """The whole report."""
    measured = [row for row in document.rows if row.measurement is not None]
    parts = ["# Roofline headroom", *[f"- {plain_text(name)}: {_peaks(peaks)}" for name, peaks in document.devices.items()]]
    if measured:
        head = ["kernel", *[column.title for column in COLUMNS]]
        rows = [[code(document.name(row)), *[plain_text(column.text(row)) for column in COLUMNS]] for row in measured]
        parts.append(table([head, *rows]))
    else:
        parts.append("No measured kernel.")
    alarms = [row for row in document.rows if row.check.status in ALARMS or row.failed]
    if alarms:
        parts += ["## Checks", "\n".join(f"- {code(document.name(row))} {plain_text(_said(row))}" for row in alarms)]
    if len(measured) > 1 and any(row.entry.rankable for row in measured):
        parts.append("## The two rankings")
        shares, gains = document.by_share(), document.by_gain()
        pairs = [[str(at), code(document.name(a)), code(document.name(b))] for at, (a, b) in enumerate(zip(shares, gains), 1)]
        parts.append(table([["rank", "by measured share or time", "by expected gain"], *pairs]))
    notes = [f"- {code(row.nodeid)}: {plain_text(join_notes(row.entry.notes))}" for row in document.rows if row.entry.notes]
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


def append_summary(path: str, text: str) -> None:
    """Append to ``$GITHUB_STEP_SUMMARY``, which other steps write to as well."""
    with open(path, "a", encoding="utf-8") as handle:
        handle.write(text + "\n")


def annotate(rows: Iterable[Row]) -> None:
    """Print workflow commands for contradictions, errors for rows that failed their test."""
    told = [row for row in rows if row.failed or row.check.status in _KINDS]
    told.sort(key=lambda row: (not row.failed, _KINDS.index(row.check.status) if row.check.status in _KINDS else len(_KINDS)))
    for row in told[:_MOST]:
        level = "error" if row.failed else "warning"
        text = row.failed or f"{row.check.status}: {row.check.message}"
        place = (
            f"file={escaped_property(row.path)},line={row.line},title={escaped_property('roofline: ' + row.entry.short_name)}"
        )
        line, encoding = f"\n::{level} {place}::{escaped(text)}\n", getattr(sys.stdout, "encoding", None) or "utf-8"
        sys.stdout.write(line.encode(encoding, "backslashreplace").decode(encoding))


def escaped(text: str) -> str:
    """Escaped as the runner's own toolkit does: ``%`` and line ends."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escaped_property(text: str) -> str:
    return escaped(text).replace(":", "%3A").replace(",", "%2C")
