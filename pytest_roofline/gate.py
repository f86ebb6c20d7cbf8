"""The gates that fail a test: what each one checks, and its outcome for a row."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from roofline_engine.check import COMPARABLE

from .report.columns import list_some
from .row import GateOutcome, Row

#: Kinds of --roofline-fail-on, and of --fail-on in ``roofline annotate``.
TEST_KINDS = {
    "beyond_roof": "the time is shorter than the hardware allows",
    "exceeds_target": "the speedup is larger than was predicted",
    "infeasible": "the ratio to the roof is impossible",
    "regression": "slower than the baseline by more than noise",
    "unmodelled": "no byte/FLOP model",
}
#: Kinds of --fail-on in ``roofline check``.
RECORD_KINDS = {
    **{kind: TEST_KINDS[kind] for kind in ("beyond_roof", "exceeds_target", "regression")},
    "claim": "a printed rate differs from the rate that shape and time give",
    "refused": "a row or a file could not be used",
}
#: Why a gate skips a row.
SKIPS = {
    "low_confidence": "the gate would fail the row, but the row has low confidence",
    "no_percent": "the row has no percent of the roof that is reliable enough",
    "no_roof": "the roof of the row is unknown",
    "no_baseline": "the row has no baseline",
}
#: Gates on the percent of the roof: ``--roofline-fail-under`` and ``min_pct=`` of a test.
LIMITS = ("fail_under", "min_pct")
#: Rows named in one line.
_NAMED = 3


class Gates(NamedTuple):
    """The gates that a user asked for."""

    kinds: frozenset[str] = frozenset()  # keys of TEST_KINDS
    fail_under: float | None = None  # percent of the roof

    def evaluate(self, row: Row, min_pct: float | None = None) -> tuple[GateOutcome, ...]:
        """Return the outcome of each gate for a row; the first failure is the one to report.

        A row of low confidence can fail ``unmodelled`` and ``beyond_roof`` only: its ratio is for display.

        min_pct: percent of the roof that the test itself asks for.
        """
        entry, status, message = row.entry, row.check.status, row.check.message
        is_low = entry.confidence == "low"
        no_roof = "no_roof" if row.measurement is not None and row.roof_s is None else ""
        no_baseline = "no_baseline" if row.check.speedup is None else ""
        # Without a model a speedup is only two times, which no doubtful peak can change.
        low_speedup = "low_confidence" if is_low and entry.modeled else ""
        regression = message if status == "regression" else ""
        if not regression and _is_slower(row):  # the roof decided the status
            regression = f"{row.check.speedup:.3f}x: slower than the baseline by more than noise ({status})"
        ratio = f"{entry.roofline_pct_raw or 0:.4g} of the {entry.roof_axis or 'known'} roof"
        findings = {  # the failure, why the row is spared, why nothing was checked; in the order of reporting
            "beyond_roof": (message if status == "beyond_roof" else "", "", no_roof),
            "unmodelled": ("" if entry.modeled else row.reason, "", ""),
            "exceeds_target": (message if status == "exceeds_target" else "", low_speedup, no_baseline),
            "regression": (regression, low_speedup, no_baseline),
            "infeasible": (ratio if entry.unknown_reason == "infeasible" else "", "low_confidence" if is_low else "", ""),
        }
        outcomes = [
            _outcome(kind, f"{kind}: {failure}" if failure else "", spared, unchecked)
            for kind, (failure, spared, unchecked) in findings.items()
            if kind in self.kinds
        ]
        limits = {"min_pct": min_pct, "fail_under": self.fail_under}
        for name, limit in sorted(limits.items(), key=lambda item: -(item[1] or 0.0)):
            outcomes += [] if limit is None else [_limit(row, name, limit)]
        return tuple(outcomes)


def _outcome(gate: str, failure: str, spared: str, unchecked: str) -> GateOutcome:
    """Return a failure unless the row is spared; without a failure, passed unless nothing was checked."""
    skip = spared if failure else unchecked
    if skip:
        return GateOutcome(gate, "skipped", skip)
    return GateOutcome(gate, "failed", text=failure) if failure else GateOutcome(gate, "passed")


def _limit(row: Row, gate: str, limit: float) -> GateOutcome:
    entry = row.entry
    if entry.roofline_pct is None or entry.suspect or entry.unknown_reason in ("unvalidated_peak", "dispatch_bound"):
        return GateOutcome(gate, "skipped", "no_percent")
    is_low, failure = entry.confidence == "low", ""
    if 0 < 100 * entry.roofline_pct < limit:
        roof = entry.roof_level or entry.roof_axis
        failure = (
            f"{100 * entry.roofline_pct:.1f} % of the {roof} roof, at least {limit:g} % is required "
            f"(limiter: {entry.bound_type}, {entry.hard_limit_speedup or 1 / entry.roofline_pct:.2f}x to the roof)"
        )
    # A pass out of a cache proves nothing: such a percent is no percent of the memory roof.
    unproven = is_low or entry.unknown_reason == "cache_resident"
    return _outcome(gate, failure, "low_confidence" if is_low else "", "no_percent" if unproven else "")


def _is_slower(row: Row) -> bool:
    """Return whether a row took longer than its own earlier or live baseline by more than noise."""
    speedup, band = row.check.speedup, row.check.band
    comparable = row.baseline is not None and row.baseline.kind in COMPARABLE
    return comparable and speedup is not None and band is not None and speedup < 1 / (1 + band)


def skipped_rows(rows: Iterable[Row], gates: Collection[str], *codes: str) -> list[Row]:
    """Return the rows that no gate failed and that one of ``gates`` skipped; ``codes``: only for one of these reasons."""

    def is_skipped(outcome: GateOutcome) -> bool:
        return outcome.status == "skipped" and outcome.gate in gates and (not codes or outcome.code in codes)

    return [row for row in rows if not row.failed and any(map(is_skipped, row.gates))]


def list_gaps(rows: Collection[Row], gates: Gates, baseline: Path | None, matched: Collection[str]) -> Iterator[str]:
    """Return one line for each thing that the gates of a run did not check: a green run must say what it left out.

    baseline: the file with earlier times. matched: the nodeids in that file.
    """
    for row in skipped_rows(rows, ["min_pct"]):
        yield f"{row.entry.short_name}: min_pct was not checked: no reliable percent of the roof"
    unproven = skipped_rows(rows, ["fail_under"])
    if unproven:
        option = f"--roofline-fail-under={gates.fail_under:g}"
        yield f"{option} was not applied to {_names(unproven)}: no reliable percent of the roof"
    roofless = skipped_rows(rows, ["beyond_roof"])
    if roofless:
        yield f"beyond_roof was not checked for {_names(roofless)}: no known roof"
    if baseline is not None and matched:  # a file that could not be read has another line
        missing = [row for row in rows if row.measurement is not None and row.nodeid not in matched]
        if missing:
            yield f"{baseline.name} has no earlier time for {_names(missing)}"


def _names(rows: Collection[Row]) -> str:
    return list_some([row.entry.short_name for row in rows], _NAMED)
