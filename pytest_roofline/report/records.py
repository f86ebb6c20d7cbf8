"""Summarize ``roofline check`` for a terminal, as Markdown, and as GitHub annotations, while the rows stream by."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterator
from typing import Any

from roofline_engine.roofline import ISOLATED_NOISE
from roofline_engine.units import printable

from ..gate import SKIPS, Summary
from ..records.source import REFUSED_CODES
from ..row import GateOutcome, Row
from .columns import describe_overhead, duration

#: Rows printed one by one: the worst, and of each kind of refusal and claim.
_WORST = 10
_OF_A_KIND = 3
#: Reasons kept of rows that were not compared with a roof; a reason may have a name or a number in it.
_MOST_REASONS = 100
#: Statuses that are printed row by row, the worst first.
_ALARMS = ("beyond_roof", "exceeds_target", "regression", "near_roof")


class Tally:
    """Counts the rows of a check, and keeps those worth printing; all of them only for JSON."""

    def __init__(self, *, keep: bool, gate: Summary) -> None:
        self.gate = gate  # what --fail-on decided
        self.total = 0
        self.compared = 0  # rows that were compared with a roof
        self.counts: Counter[str] = Counter()  # rows by status
        self.within = 0  # rows that are not_checked for want of a prediction, and within the roof
        self.causes: Counter[str] = Counter()
        self.claims: Counter[str] = Counter()  # rows with a mismatch, by its cause
        self.reasons: Counter[str] = Counter()  # refused rows by kind of reason
        self.unchecked: Counter[str] = Counter()  # rows that were not compared with a roof, by the message
        self.cached: Counter[str] = Counter()  # rows over the memory roof that a cache allows, by their status
        self.errors: list[str] = []  # files that could not be read
        self._keep = keep
        self._rows: list[dict[str, Any]] = []
        self._refused: list[dict[str, Any]] = []
        self._worst: list[tuple[float, int, str, Row]] = []  # the worst first, by score and number, with the file
        self.file = ""  # the path of the file whose rows are added, as the user gave it
        self._failed: list[tuple[int, str, Row, str]] = []  # the first rows that fail the run: number, file, row, reason
        self._overhead: list[tuple[float, int, Row]] = []
        self._examples: dict[tuple[str, str], list[Row]] = {}  # by "claim" or "refused", and kind

    def add(self, row: Row) -> None:
        """Count one row."""
        self.total += 1
        gates = self.gate.gates
        if not gates.is_empty:
            outcomes = gates.evaluate(row)
            self.gate.add(row, f"{row.path} {row.nodeid}", outcomes, _OF_A_KIND)
            self._keep_failed(row, outcomes)
        self.compared += row.refusal is None and row.check.utilisation is not None
        if self._keep:
            (self._rows if row.refusal is None else self._refused).append(row.to_checked_dict())
        status, cause = row.check.status, row.check.cause
        if row.refusal is not None:
            self._count(self.reasons, "refused", row.refusal.code, row)
            cause = row.refusal.cause
        else:
            self.counts[status] += 1
            self.within += status == "not_checked" and row.check.utilisation is not None
            if row.check.utilisation is None and row.check.message:
                is_new = row.check.message not in self.unchecked and len(self.unchecked) >= _MOST_REASONS
                self._count(self.unchecked, "unchecked", "other reasons" if is_new else row.check.message, row)
        if cause == "cache_resident" and status not in _ALARMS:
            self._count(self.cached, "cached", status, row)
        if row.mismatch:
            self._count(self.claims, "claim", row.mismatch.cause, row)
            cause = cause or row.mismatch.cause
        if cause:
            self.causes[cause] += 1
        if status in _ALARMS:
            ratio = (row.check.utilisation or 0.0) / (row.check.limit or 1.0)
            insort(self._worst, (1e9 * _ALARMS.index(status) - min(ratio, 1e8), self.total, self.file, row))
            del self._worst[_WORST:]
        overhead = row.overhead
        if overhead and overhead.graph_speedup > 1 + ISOLATED_NOISE:
            insort(self._overhead, (-overhead.share, self.total, row))
            del self._overhead[_OF_A_KIND:]

    def _keep_failed(self, row: Row, outcomes: tuple[GateOutcome, ...]) -> None:
        if len(self._failed) >= _WORST:
            return
        allowed = self.gate.gates.allow_unchecked
        failed = [outcome for outcome in outcomes if outcome.status == "failed"]
        unchecked = [outcome for outcome in outcomes if outcome.status == "skipped" and outcome.code not in allowed]
        if failed:
            self._failed.append((self.total, self.file, row, failed[0].text))
        elif unchecked:
            code = unchecked[0].code
            reason = f"unchecked by {unchecked[0].gate}: {SKIPS[code][0]} ({code})"
            text = f"{reason}: {unchecked[0].text}" if unchecked[0].text else reason
            self._failed.append((self.total, self.file, row, text))

    def _count(self, counter: Counter[str], what: str, kind: str, row: Row) -> None:
        counter[kind] += 1
        if counter[kind] <= _OF_A_KIND:
            self._examples.setdefault((what, kind), []).append(row)

    def to_dict(self) -> dict[str, Any]:
        """Return the document of ``--json``."""
        return {
            "checked": self.compared,
            "unchecked": self.total - self.compared - sum(self.reasons.values()),
            "gate": self.gate.to_dict() if self.gate.is_needed else None,
            "counts": dict(self.counts.most_common()),
            "causes": dict(self.causes.most_common()),
            "rows": self._rows,
            "refused": self._refused,
            "errors": self.errors,
        }

    @property
    def fails(self) -> bool:
        """Whether ``--fail-on`` found something, or could not check what it was given."""
        gate = self.gate
        is_blind = not gate.gates.is_empty and not gate.checked and not gate.gates.allow_unchecked
        return gate.fails_run or is_blind

    def counts_lines(self) -> Iterator[str]:
        """Yield how many rows were compared with a roof; with ``--fail-on`` also what was not checked, the counts last."""
        refused = sum(self.reasons.values())
        unchecked = self.total - self.compared - refused
        rows = "row" if self.total == 1 else "rows"
        yield f"checked {self.compared} of {self.total} {rows} against the roof, {unchecked} unchecked, {refused} refused"
        if self.gate.is_needed:
            yield from self.gate.lines()

    def statuses(self) -> list[list[str]]:
        """Return the rows of the table of counts, the header first."""
        rows = [["status", "rows"], *[[status, str(count)] for status, count in self._shown_counts()]]
        return [*rows, ["refused", str(sum(self.reasons.values()))]] if self.reasons else rows

    def _shown_counts(self) -> list[tuple[str, int]]:
        """Return the counts by status; rows without a prediction are within the roof where they were compared with it."""
        counts = Counter(self.counts)
        counts.update({"within the roof": self.within, "not_checked": -self.within})
        return [(status, count) for status, count in counts.most_common() if count]

    def lines(self) -> Iterator[str]:
        """Yield the summary for a terminal."""
        refused = sum(self.reasons.values())
        counts = ", ".join(f"{count} {status}" for status, count in self._shown_counts())
        yield f"{self.total} {'row' if self.total == 1 else 'rows'}: {counts or 'none usable'}" + (
            f"; {refused} refused" if refused else ""
        )
        for *_, row in self._worst:
            yield f"{row.check.status}: {_place(row)}: {printable(row.check.message)}"
            if row.check.experiment:
                yield f"    to confirm: {row.check.experiment}"
        for *_, row in self._overhead:
            if row.overhead:
                yield f"launch overhead: {_place(row)}: {describe_overhead(row.overhead)}"
        for status, count in self.cached.most_common():
            yield f"over the memory roof as a cache allows, {count} {status}:"
            for row in self._examples["cached", status]:
                yield f"    {_place(row)}: {printable(row.check.decided or '')}"
        for cause, count in self.claims.most_common():
            yield f"printed rates that differ, {count} by {cause}:"
            for row in self._examples["claim", cause]:
                yield f"    {_place(row)}: {printable(_describe(row))}"
        for kind, count in self.reasons.most_common():
            yield f"refused, {count}: {REFUSED_CODES.get(kind, kind)}"
            for row in self._examples["refused", kind]:
                yield f"    {printable(row.path)} {printable(row.nodeid)}: {printable(_describe(row))}"
        if not self.gate.is_needed:  # its lines have the unchecked rows
            for message, count in self.unchecked.most_common(_OF_A_KIND):
                yield f"not compared with the roof, {count}: {printable(message)}"
                for row in self._examples["unchecked", message]:
                    yield f"    {_place(row)}"
        yield from self.counts_lines()

    def markdown(self) -> str:
        """Return the summary as Markdown."""
        from roofline_engine.report import code, table  # imports the whole analysis
        from roofline_engine.report import text as plain_text

        parts = ["# Records against the roof", table(self.statuses())]
        if self._worst:
            head = ["row", "kernel", "time", "of the peak", "status", "cause"]
            rows = [
                [
                    plain_text(f"{row.path} {row.nodeid}"),
                    code(row.entry.name, longest=44),
                    duration(_seconds(row)),
                    f"{row.check.utilisation:.3g}" if row.check.utilisation else "-",
                    row.check.status,
                    row.check.cause or "-",
                ]
                for *_, row in self._worst
            ]
            parts += ["## Worst rows", table([head, *rows])]
        if self.claims:
            lines = []
            for cause, count in self.claims.most_common():
                row = self._examples["claim", cause][0]
                lines.append(f"- {cause}, {count} rows; for example {plain_text(_place(row))}: {plain_text(_describe(row))}")
            parts += ["## Printed rates that differ", "\n".join(lines)]
        if self.reasons:
            lines = [f"- {REFUSED_CODES.get(kind, kind)}: {count}" for kind, count in self.reasons.most_common()]
            parts += ["## Refused", "\n".join(lines)]
        parts += ["## Rows checked", "\n".join(f"- {plain_text(line)}" for line in self.counts_lines())]
        parts += map(plain_text, self.errors)
        return "\n\n".join(parts) + "\n"

    def commands(self) -> Iterator[str]:
        """Yield GitHub workflow commands: errors for rows that fail the gate, warnings for the other worst rows."""
        from .markdown import escaped, escaped_property

        def command(level: str, file: str, row: Row, text: str) -> str:
            line = f",line={row.line}" if row.line else ""
            title = escaped_property(f"roofline: {row.check.status}")
            return (
                f"::{level} file={escaped_property(file)}{line},title={title}::{escaped(f'{_place(row)}: {printable(text)}')}"
            )

        for _, file, row, text in self._failed:
            yield command("error", file, row, text)
        failed = {number for number, *_ in self._failed}
        for _, number, file, row in self._worst:
            if number not in failed:
                yield command("warning", file, row, row.check.message)


def _place(row: Row) -> str:
    ratio = row.entry.roofline_pct_raw
    rate = "" if ratio is None else f", {100 * ratio:.3g} % of the roof"
    name = f" {row.entry.name[:40]}" if row.entry.name else ""
    return printable(f"{row.path} {row.nodeid}{name} ({duration(_seconds(row))}{rate})")


def _seconds(row: Row) -> float | None:
    return None if row.measurement is None else row.measurement.t_s


def _describe(row: Row) -> str:
    """Return why a row was refused, or which of its printed rates is wrong."""
    return row.refusal.reason if row.refusal else row.mismatch.describe() if row.mismatch else ""
