"""What ``roofline check`` found, for a terminal, as Markdown, and as GitHub annotations; counted as the rows stream by."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from typing import Any

from roofline_engine.check import EXPERIMENTS
from roofline_engine.report import code, table
from roofline_engine.report import text as plain_text
from roofline_engine.roofline import ISOLATED_NOISE
from roofline_engine.units import printable

from ..records.row import REFUSED_CODES
from ..row import Row
from .columns import duration, overhead_told

#: Worst rows, and refusals and claims of a kind, that are told one by one.
_WORST = 10
_OF_A_KIND = 3


class Tally:
    """Counts, and the rows worth telling; every row only where they are kept for JSON."""

    def __init__(self, *, keep: bool) -> None:
        self.counts: Counter[str] = Counter()
        self.causes: Counter[str] = Counter()
        self.claims: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.rows: list[dict[str, Any]] = []
        self.refused: list[dict[str, Any]] = []
        self.said: list[str] = []
        self._keep = keep
        self._worst: list[tuple[float, int, Row]] = []
        self._hidden: list[tuple[float, int, Row]] = []
        self._of_claim: dict[str, list[Row]] = {}
        self._of_reason: dict[str, list[Row]] = {}
        self._seen = 0

    def add(self, item: Row) -> None:
        """Take one row."""
        self._seen += 1
        if item.refusal is not None:
            kind = item.refusal.code
            self.reasons[kind] += 1
            if item.refusal.cause:
                self.causes[item.refusal.cause] += 1
            told_of = self._of_reason.setdefault(kind, [])
            if len(told_of) < _OF_A_KIND:
                told_of.append(item)
            if self._keep:
                self.refused.append(item.to_checked_dict())
            return
        status = item.check.status
        self.counts[status] += 1
        if item.check.cause:
            self.causes[item.check.cause] += 1
        if item.mismatch:
            cause = item.mismatch.cause
            self.claims[cause] += 1
            if not item.check.cause:
                self.causes[cause] += 1
            explain_claim = self._of_claim.setdefault(cause, [])
            if len(explain_claim) < _OF_A_KIND:
                explain_claim.append(item)
        if status in ("beyond_roof", "near_roof", "exceeds_target", "regression"):
            heapq.heappush(self._worst, (_badness(item), -self._seen, item))
            if len(self._worst) > _WORST:
                heapq.heappop(self._worst)
        overhead = item.overhead
        if overhead and overhead.graph_speedup > 1 + ISOLATED_NOISE:
            heapq.heappush(self._hidden, (overhead.share, -self._seen, item))
            if len(self._hidden) > _OF_A_KIND:
                heapq.heappop(self._hidden)
        if self._keep:
            self.rows.append(item.to_checked_dict())

    @property
    def total(self) -> int:
        return self._seen

    def worst(self) -> list[Row]:
        """The worst first."""
        return [item for _, _, item in sorted(self._worst, reverse=True)]

    def to_dict(self) -> dict[str, Any]:
        """The document of ``--json``."""
        return {
            "counts": dict(self.counts.most_common()),
            "causes": dict(self.causes.most_common()),
            "rows": self.rows,
            "refused": self.refused,
            "errors": self.said,
        }

    def lines(self) -> Iterator[str]:
        """The summary for a terminal."""
        refused = sum(self.reasons.values())
        yield f"{self.total} {'row' if self.total == 1 else 'rows'}: {_counted(self.counts) or 'none could be used'}" + (
            f"; {refused} refused" if refused else ""
        )
        for item in self.worst():
            yield f"{item.check.status}: {_place(item)}: {printable(item.check.message)}"
            if item.check.cause:
                yield f"    to confirm: {EXPERIMENTS[item.check.cause]}"
        for _, _, item in sorted(self._hidden, reverse=True):
            if item.overhead:
                yield f"launch overhead: {_place(item)}: {overhead_told(item.overhead)}"
        for cause, count in self.claims.most_common():
            yield f"printed figures that differ, {count} by {cause}:"
            for item in self._of_claim[cause]:
                yield f"    {_place(item)}: {printable(_describe(item))}"
        for kind, count in self.reasons.most_common():
            yield f"refused, {count}: {REFUSED_CODES[kind]}"
            for item in self._of_reason[kind]:
                reason = item.refusal.reason if item.refusal else ""
                yield f"    {printable(item.path)} {printable(item.nodeid)}: {printable(reason)}"

    def markdown(self) -> str:
        """The summary as Markdown."""
        parts = ["# Records against the roof"]
        statuses = [["status", "rows"], *[[status, str(count)] for status, count in self.counts.most_common()]]
        if self.reasons:
            statuses.append(["refused", str(sum(self.reasons.values()))])
        parts.append(table(statuses))
        if self._worst:
            head = ["row", "kernel", "time", "of the peak", "status", "cause"]
            rows = [
                [
                    plain_text(f"{item.path} {item.nodeid}"),
                    code(item.entry.name, longest=44),
                    duration(_seconds(item)),
                    f"{item.check.utilisation:.3g}" if item.check.utilisation else "-",
                    item.check.status,
                    item.check.cause or "-",
                ]
                for item in self.worst()
            ]
            parts += ["## Worst rows", table([head, *rows])]
        if self.claims:
            parts.append("## Printed figures that differ")
            lines = [
                f"- {cause}, {count} rows; for example {plain_text(_place(self._of_claim[cause][0]))}: "
                f"{plain_text(_describe(self._of_claim[cause][0]))}"
                for cause, count in self.claims.most_common()
            ]
            parts.append("\n".join(lines))
        if self.reasons:
            parts.append("## Refused")
            parts.append("\n".join(f"- {REFUSED_CODES[kind]}: {count}" for kind, count in self.reasons.most_common()))
        parts += [plain_text(line) for line in self.said]
        return "\n\n".join(parts) + "\n"

    def commands(self) -> Iterator[str]:
        """GitHub workflow commands for the worst rows."""
        from .markdown import escaped, escaped_property

        for item in self.worst():
            title = escaped_property(f"roofline: {item.check.status}")
            message = escaped(f"{_place(item)}: {item.check.message}")
            yield f"::warning file={escaped_property(item.path)},title={title}::{message}"


def _badness(item: Row) -> float:
    over = (item.check.utilisation or 0.0) / (item.check.limit or 1.0)
    return {"beyond_roof": 3e9, "near_roof": 0.0, "exceeds_target": 2e9, "regression": 1e9}[item.check.status] + min(over, 1e8)


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {status}" for status, count in counts.most_common())


def _place(item: Row) -> str:
    ratio = item.entry.roofline_pct_raw
    rate = "" if ratio is None else f", {100 * ratio:.3g} % of the roof"
    name = f" {item.entry.name[:40]}" if item.entry.name else ""
    return printable(f"{item.path} {item.nodeid}{name} ({duration(_seconds(item))}{rate})")


def _seconds(item: Row) -> float | None:
    return None if item.measurement is None else item.measurement.t_s


def _describe(item: Row) -> str:
    return "" if item.mismatch is None else item.mismatch.describe()
