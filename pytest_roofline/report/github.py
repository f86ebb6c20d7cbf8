"""GitHub Actions: the job's summary, and annotations at the tests' lines."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from ..row import Row

#: The interface shows ten annotations of a kind per step; the worst come first.
_MOST = 10
_KINDS = ("beyond_roof", "exceeds_target")


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
