"""The gates that fail a test: what each one checks, and its outcome for a row."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from roofline_engine.check import COMPARABLE

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
    "beyond_roof": TEST_KINDS["beyond_roof"],
    "exceeds_target": TEST_KINDS["exceeds_target"],
    "regression": TEST_KINDS["regression"],
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
        """Return what each gate says of a row; the first failure is the one to report.

        A row of low confidence can fail ``unmodelled`` and ``beyond_roof`` only: its ratio is for display.

        min_pct: percent of the roof that the test itself asks for.
        """
        outcomes = [_GATES[kind](row) for kind in _GATES if kind in self.kinds]
        limits = [("min_pct", min_pct), ("fail_under", self.fail_under)]
        for name, limit in sorted(((name, limit) for name, limit in limits if limit is not None), key=lambda item: -item[1]):
            outcomes.append(_limit(row, name, limit))
        return tuple(outcomes)


def _beyond_roof(row: Row) -> GateOutcome:
    if row.check.status == "beyond_roof":
        return _failed("beyond_roof", row.check.message)
    unknown = row.measurement is not None and row.roof_s is None
    return GateOutcome("beyond_roof", "skipped", "no_roof") if unknown else GateOutcome("beyond_roof", "passed")


def _unmodelled(row: Row) -> GateOutcome:
    return GateOutcome("unmodelled", "passed") if row.entry.modeled else _failed("unmodelled", row.reason)


def _exceeds_target(row: Row) -> GateOutcome:
    return _speedup_outcome("exceeds_target", row, row.check.message if row.check.status == "exceeds_target" else "")


def _regression(row: Row) -> GateOutcome:
    if row.check.status == "regression":
        text = row.check.message
    elif _is_slower(row):  # also when the roof decided the status
        text = f"{row.check.speedup:.3f}x: slower than the baseline by more than noise ({row.check.status})"
    else:
        text = ""
    return _speedup_outcome("regression", row, text)


def _speedup_outcome(gate: str, row: Row, failure: str) -> GateOutcome:
    if row.check.speedup is None:
        return GateOutcome(gate, "skipped", "no_baseline")
    if failure and row.entry.confidence == "low" and row.entry.modeled:  # without a model, no doubtful peak is involved
        return GateOutcome(gate, "skipped", "low_confidence")
    return _failed(gate, failure) if failure else GateOutcome(gate, "passed")


def _infeasible(row: Row) -> GateOutcome:
    entry = row.entry
    if entry.unknown_reason != "infeasible":
        return GateOutcome("infeasible", "passed")
    if entry.confidence == "low":
        return GateOutcome("infeasible", "skipped", "low_confidence")
    return _failed("infeasible", f"{entry.roofline_pct_raw or 0:.4g} of the {entry.roof_axis or 'known'} roof")


def _failed(gate: str, text: str) -> GateOutcome:
    return GateOutcome(gate, "failed", text=f"{gate}: {text}")


#: In the order in which the first failure is reported.
_GATES = {
    "beyond_roof": _beyond_roof,
    "unmodelled": _unmodelled,
    "exceeds_target": _exceeds_target,
    "regression": _regression,
    "infeasible": _infeasible,
}


def _limit(row: Row, gate: str, limit: float) -> GateOutcome:
    entry = row.entry
    no_evidence = entry.suspect or entry.unknown_reason in ("unvalidated_peak", "dispatch_bound")
    if entry.roofline_pct is None or no_evidence:
        return GateOutcome(gate, "skipped", "no_percent")
    is_under = 0 < 100 * entry.roofline_pct < limit
    if entry.confidence == "low":
        return GateOutcome(gate, "skipped", "low_confidence" if is_under else "no_percent")
    if is_under:
        text = (
            f"{100 * entry.roofline_pct:.1f} % of the {entry.roof_axis} roof, at least {limit:g} % is asked for "
            f"({entry.bound_type}-bound, up to {entry.hard_limit_speedup or 1 / entry.roofline_pct:.2f}x to the roof)"
        )
        return GateOutcome(gate, "failed", text=text)
    if entry.unknown_reason == "cache_resident":  # a percent out of a cache is no percent of the memory roof
        return GateOutcome(gate, "skipped", "no_percent")
    return GateOutcome(gate, "passed")


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
    if baseline is not None and matched:  # a file that could not be read has a line of its own
        missing = [row for row in rows if row.measurement is not None and row.nodeid not in matched]
        if missing:
            yield f"{baseline.name} has no earlier time for {_names(missing)}"


def _names(rows: Collection[Row]) -> str:
    names = [row.entry.short_name for row in rows]
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
