"""The report as Markdown, and GitHub's job summary and annotations."""

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

#: GitHub shows ten annotations of a kind for each step; the worst come first.
_MOST = 10
_KINDS = ("beyond_roof", "exceeds_target")


def text(document: Document) -> str:
    """Return the whole report: the table, the contradictions, both rankings, and the notes folded."""
    measured = [row for row in document.rows if row.measurement is not None]
    parts = ["# Roofline headroom", *[f"- {plain_text(name)}: {_peaks(peaks)}" for name, peaks in document.devices.items()]]
    if measured:
        head = ["kernel", *[column.title for column in COLUMNS]]
        rows = [[code(document.name(row)), *[plain_text(column.text(row)) for column in COLUMNS]] for row in measured]
        parts.append(table([head, *rows]))
    else:
        parts.append("No measured kernel.")
    alarms = [row for row in document.rows if (row.check.status in ALARMS and not row.is_allowed) or row.failed]
    if alarms:
        parts += ["## Checks", "\n".join(f"- {code(document.name(row))} {plain_text(_verdict(row))}" for row in alarms)]
    worked = [(row, text) for row in alarms if (text := row.arithmetic) is not None]
    if worked:
        parts += [
            "## Arithmetic of the failed rows",
            "\n".join(f"- {code(document.name(row))} {plain_text(text)}" for row, text in worked),
        ]
    if document.gate.is_needed:
        parts += ["## Gate", "\n".join(f"- {plain_text(line)}" for line in document.gate.lines())]
    if len(measured) > 1 and any(row.entry.rankable for row in measured):
        parts.append("## The two rankings")
        shares, gains = document.by_share(), document.by_gain()
        pairs = [[str(at), code(document.name(a)), code(document.name(b))] for at, (a, b) in enumerate(zip(shares, gains), 1)]
        parts.append(table([["rank", "by measured share or time", "by expected gain"], *pairs]))
    notes = [f"- {code(row.nodeid)}: {plain_text(join_notes(row.entry.notes))}" for row in document.rows if row.entry.notes]
    if notes:
        parts += ["<details><summary>Notes on each row</summary>", "\n".join(notes), "</details>"]
    if document.problems:
        parts += ["## Problems", *[f"- {plain_text(line)}" for line in document.problems]]
    parts.append("roofline_pct says how well a kernel spends its byte and FLOP budget, not whether that budget is necessary.")
    return "\n\n".join(parts) + "\n"


def _verdict(row: Row) -> str:
    return f"fails: {row.failed}" if row.failed else f"{row.check.status}: {row.check.message}"


def _peaks(peaks: dict[str, object]) -> str:
    bandwidth = peaks.get("hbm_bw_bytes_s")
    shown = f"{bandwidth / 1e9:.4g} GB/s" if isinstance(bandwidth, (int, float)) else "unknown bandwidth"
    return f"{shown}, {peaks.get('source')}, {peaks.get('confidence')} confidence"


def annotate(rows: Iterable[Row]) -> None:
    """Print workflow commands: errors for rows that failed their test, warnings for other contradictions."""
    ranks = {status: rank for rank, status in enumerate(_KINDS)}
    alarms = [row for row in rows if row.failed or (row.check.status in ranks and not row.is_allowed)]
    alarms.sort(key=lambda row: (not row.failed, ranks.get(row.check.status, len(ranks))))
    for row in alarms[:_MOST]:
        level = "error" if row.failed else "warning"
        title = escaped_property(f"roofline: {row.entry.short_name}")
        place = f"file={escaped_property(row.path)},line={row.line},title={title}"
        line = f"\n::{level} {place}::{escaped(row.failed or _verdict(row))}\n"
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        sys.stdout.write(line.encode(encoding, "backslashreplace").decode(encoding))


def escaped(text: str) -> str:
    """Escape ``%`` and line ends, as GitHub's own toolkit does."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escaped_property(text: str) -> str:
    """Escape the value of a property, in which ``:`` and ``,`` are special, too."""
    return escaped(text).replace(":", "%3A").replace(",", "%2C")
