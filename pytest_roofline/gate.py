"""The gates of a run: their kinds, the outcome of each for a row, the allow list, and the count that ends a run.

``pytest --roofline``, ``roofline annotate`` and ``roofline check`` share this module. A gate passes or fails a row, or it skips
the row with a code of ``SKIPS``: the row is unchecked, and an unchecked row fails the run unless the user allows its code.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from roofline_engine.check import COMPARABLE
from roofline_engine.fields import has_note
from roofline_engine.units import printable

from .declare import matches
from .report.columns import list_some
from .row import GateOutcome, Row

#: Kinds of --roofline-fail-on, and of --fail-on in ``roofline annotate`` and ``roofline check``.
KINDS = {
    "beyond_roof": "the time is shorter than the hardware allows",
    "unmodelled": "the row has no byte/FLOP model",
    "exceeds_target": "the speedup over the baseline is larger than was predicted",
    "regression": "the row is slower than its baseline by more than noise",
    "infeasible": "the ratio to the roof is impossible",
    "claim": "a printed rate differs from the rate that shape and time give",
    "refused": "the row could not be used: its time or its work cannot be read",
}
#: Gates on the percent of the roof: ``--roofline-fail-under`` and ``min_pct=`` of a test.
LIMITS = ("fail_under", "min_pct")
#: The gate that fails the row of an unknown device, under any other gate.
DEVICE = "device"
DECLARE_WORK = "Add @pytest.mark.roofline(...), call the roofline fixture, or set [tool.roofline.work]"
NO_WORK = f"no byte/FLOP model. {DECLARE_WORK}"
#: Why a gate skips a row: the reason, and what to do.
SKIPS = {
    "no_time": ("the row has no time", "Measure it: benchmark(...), roofline.measure or roofline.record"),
    "no_work_model": ("the row has no byte/FLOP model", DECLARE_WORK),
    "args_only": ("only the traffic of its arguments is known", DECLARE_WORK),
    "no_device": ("the device is unknown", "Set device= in the marker, or --roofline-device"),
    "no_roof": ("the peaks of the row's device are unknown", "Use --roofline-peaks"),
    "no_least": (
        "no run of it must read or compute anything, so no time is impossible",
        "Write to its operands once before, as with fill(0), or time other data",
    ),
    "unchecked_axis": ("one of its two roofs is unknown", "Use --roofline-peaks with that peak"),
    "no_percent": ("the row has no reliable percent of the roof", "-vv shows why"),
    "low_confidence": ("the gate would fail the row, but the row has low confidence", "-vv shows why"),
    "shared_workers": ("other pytest-xdist workers ran at the same time", "Measure with -n 0"),
    "no_baseline": ("the row has no baseline", "Use --roofline-compare, --roofline-baseline or baseline=True"),
    "not_comparable": ("its baseline is of another kind, device or machine", "Measure the baseline here"),
    "wide_band": ("its times vary so much that twice the time is noise", "Measure on a quiet machine"),
    "no_prediction": ("nothing predicts its speedup", "Use --roofline-predictions or target_eff="),
    "not_falsifiable": ("the prediction lies under the cost of a launch", "Predict a larger shape"),
    "refused": ("the row could not be used", "Correct the row, or leave it out of the file"),
}
#: All codes of an outcome: of a row that a gate skipped, and of one that is allowed or failed for a special reason.
CODES = (*SKIPS, "unknown_device", "earlier_try", "xfail")
#: Sources of undeclared work. Without a time such a row claims nothing, so a gate ignores it.
_GUESSED = ("captured", "names")
#: Notes that say why a row has no time.
_UNTIMED = ("idle", "untimed", "interpreted", "meta_device")
#: Rows named in one line.
_NAMED = 5


class Allowance(NamedTuple):
    """An entry of the allow list."""

    glob: str  # of whole nodeids (test), or of the places or names of records (record)
    target: str  # test or record
    kind: str  # a gate that may fail these rows, or a code of SKIPS that they may have
    reason: str  # why this is right, for people
    until: datetime.date  # the last day

    def covers(self, row: Row) -> bool:
        """Return whether the entry is about a row."""
        if self.target == "test":
            return matches(self.glob, row.nodeid)
        return any(matches(self.glob, name) for name in (f"{row.path} {row.nodeid}", row.entry.name))

    def describe(self) -> str:
        """Name the entry in one line."""
        return printable(f"{self.kind} of {self.glob!r} until {self.until.isoformat()}")


class Gates(NamedTuple):
    """The gates that a user asked for."""

    kinds: frozenset[str] = frozenset()  # keys of KINDS
    fail_under: float | None = None  # percent of the roof
    allow: tuple[Allowance, ...] = ()  # the allow list, expired entries included
    allow_unchecked: frozenset[str] = frozenset()  # codes of SKIPS that do not fail the run
    today: datetime.date = datetime.date.min  # against which entries of the allow list expire

    @property
    def is_empty(self) -> bool:
        """Whether the run asked for no gate; ``min_pct=`` of a test is then the only one."""
        return not self.kinds and self.fail_under is None

    def evaluate(self, row: Row, min_pct: float | None = None) -> tuple[GateOutcome, ...]:
        """Return the outcome of each gate for a row; the first failure is the one to report.

        A row that claims nothing has no outcome: a test whose work was captured or guessed, and which took no time.

        min_pct: percent of the roof that the test itself asks for.
        """
        if (self.is_empty and min_pct is None) or not (min_pct is not None or _claims_something(row)):
            return ()
        outcomes = []
        is_unknown = row.device is not None and has_note(row.entry.notes, "unknown_device")
        if is_unknown:
            reason = next(item.text for item in row.entry.notes if item.code == "unknown_device")
            outcomes.append(GateOutcome(DEVICE, "failed", "unknown_device", reason))
        for kind, judge in _JUDGES.items():
            if kind in self.kinds and (outcome := judge(row)) is not None and not (is_unknown and outcome.code == "no_roof"):
                outcomes.append(outcome)
        limits = {"min_pct": min_pct, "fail_under": self.fail_under}
        for name, limit in sorted(limits.items(), key=lambda item: -(item[1] or 0.0)):
            outcomes += [] if limit is None or is_unknown else [_limit(row, name, limit)]
        return tuple(self._allowed(row, outcome) for outcome in outcomes) if self.allow else tuple(outcomes)

    def _allowed(self, row: Row, outcome: GateOutcome) -> GateOutcome:
        entry = self.find_allowance(row, outcome) if outcome.status in ("failed", "skipped") else None
        if entry is None:
            return outcome
        text = "; ".join(filter(None, (f"{entry.reason} (until {entry.until.isoformat()})", outcome.text)))
        return outcome._replace(status="allowed", text=text)

    def find_allowance(self, row: Row, outcome: GateOutcome) -> Allowance | None:
        """Return the first entry of the allow list that allows what a gate found; an expired one allows nothing."""
        kind = outcome.code if outcome.code in SKIPS else outcome.gate
        return next((one for one in self.allow if one.kind == kind and self.today <= one.until and one.covers(row)), None)


def read_kinds(value: str | Sequence[str], where: str) -> frozenset[str]:
    """Parse the kinds of an option or key: texts of kinds that are separated by commas.

    Raises:
        ValueError: for an unknown kind, and for a value without one: an empty gate would check nothing.
    """
    texts = [value] if isinstance(value, str) else list(value)
    kinds = [kind for text in texts for part in text.split(",") if (kind := part.strip())]
    expected = f"expected {', '.join(KINDS)}"
    if not kinds:
        raise ValueError(f"{where} is empty, {expected}. To run without a gate, leave it out")
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise ValueError(f"{where}: unknown kind {printable(repr(unknown[0]))[:60]}, {expected}")
    return frozenset(kinds)


def _claims_something(row: Row) -> bool:
    """Return whether there is something to check: a time, a record, a benchmark, or work that someone declared."""
    if row.measurement is not None or row.work_source not in _GUESSED:
        return True
    return has_note(row.entry.notes, "idle", "untimed")


def _missing_roof(row: Row) -> tuple[str, str]:
    """Return the code and the details of a row that was not compared with a roof."""
    if row.refusal is not None:
        return "refused", row.refusal.reason
    if row.measurement is None:
        return "no_time", next((item.text for item in row.entry.notes if item.code in _UNTIMED), "")
    if not row.entry.modeled:
        reason = row.reason or row.check.message
        return "no_work_model", "" if reason == NO_WORK else reason
    least = row.least or (row.entry.bytes_est, row.entry.flops_est)
    if not any(least):
        codes = ("untouched_pages", "data_dependent")
        return "no_least", next((item.text for item in row.entry.notes if item.code in codes), "")
    unknown = next((item.text for item in row.entry.notes if item.code == "no_device"), "")
    return ("no_device" if row.device is None else "no_roof"), unknown


def _skip(gate: str, code: str, text: str = "") -> GateOutcome:
    return GateOutcome(gate, "skipped", code, text)


def _judge_beyond_roof(row: Row) -> GateOutcome:
    gate, check = "beyond_roof", row.check
    if check.status == gate:
        return GateOutcome(gate, "failed", text=f"{gate}: {check.message}")
    if row.coverage == "args":
        return _skip(gate, "args_only")
    if row.refusal is not None or check.utilisation is None:
        return _skip(gate, *_missing_roof(row))
    if check.unchecked_axis is not None:
        return _skip(gate, "unchecked_axis", f"the peak of {check.unchecked_axis} is unknown")
    return GateOutcome(gate, "passed")


def _judge_unmodelled(row: Row) -> GateOutcome:
    gate = "unmodelled"
    if row.refusal is not None:
        return _skip(gate, "refused", row.refusal.reason)
    if not row.entry.modeled:
        return GateOutcome(gate, "failed", text=f"{gate}: {row.reason or row.check.message}")
    if row.coverage in _PARTS:
        return GateOutcome(gate, "failed", text=f"{gate}: {_PARTS[row.coverage]}")
    return GateOutcome(gate, "passed")


#: Coverages of work that are no model of the whole row.
_PARTS = {"args": "only the traffic of its arguments is known", "lower_bound": "only a part of its work was seen"}


def _incomparable(row: Row) -> tuple[str, str] | None:
    """Return why the speedup of a row over its baseline cannot be used; None where it can."""
    if row.refusal is not None:
        return "refused", row.refusal.reason
    if row.check.speedup is None:
        return ("no_time" if row.measurement is None and row.baseline is not None else "no_baseline"), ""
    if row.baseline is not None and row.baseline.kind not in COMPARABLE:
        return "not_comparable", f"its baseline is of kind {row.baseline.kind}, {row.baseline.source or 'in the same file'}"
    return None


def _judge_regression(row: Row) -> GateOutcome:
    """Compare two times of one kernel: that needs no roof, and no confidence in a roof."""
    gate, speedup, band = "regression", row.check.speedup, row.check.band or 0.0
    missing = _incomparable(row)
    if missing is not None or speedup is None:
        return _skip(gate, *(missing or ("no_baseline",)))
    if has_note(row.entry.notes, "shared_workers"):
        return _skip(gate, "shared_workers")
    if speedup < 1 / (1 + band):
        text = row.check.message if row.check.status == gate else f"{1 / speedup:.3g} times the baseline, noise is {band:.1%}"
        return GateOutcome(gate, "failed", text=f"{gate}: {text}")
    return _skip(gate, "wide_band", f"noise is {band:.0%}") if band >= 1 else GateOutcome(gate, "passed")


def _judge_exceeds_target(row: Row) -> GateOutcome:
    gate, check, prediction = "exceeds_target", row.check, row.prediction
    missing = _incomparable(row)
    if missing is not None or check.speedup is None:
        return _skip(gate, *(missing or ("no_baseline",)))
    band = check.band or 0.0
    attainable = check.attainable if prediction is None else prediction.attainable_speedup
    is_over = check.status == gate or (attainable is not None and check.speedup > attainable * (1 + band))
    if is_over and row.entry.unknown_reason == "cache_resident" and prediction is None:
        return _skip(gate, "no_prediction", "a cache may have served it, and the target is of the memory roof")
    if is_over:
        if row.entry.confidence == "low" and row.entry.modeled:  # without a model the target rests on no doubtful peak
            return _skip(gate, "low_confidence")
        text = check.message if check.status == gate else f"{check.speedup:.3f}x measured, {attainable or 0:.3f}x predicted"
        return GateOutcome(gate, "failed", text=f"{gate}: {text}")
    if attainable is None and check.speedup >= 1 + band:
        return _skip(gate, "not_falsifiable" if check.status == "not_falsifiable" else "no_prediction")
    return GateOutcome(gate, "passed")


def _judge_infeasible(row: Row) -> GateOutcome:
    gate, entry = "infeasible", row.entry
    if entry.unknown_reason == gate and row.check.status != "near_roof":  # over the rated roof, and possible
        if entry.confidence == "low":
            return _skip(gate, "low_confidence")
        ratio = (
            f"{entry.roofline_pct_raw:.4g} of the {entry.roof_axis or 'known'} roof" if entry.roofline_pct_raw else "impossible"
        )
        return GateOutcome(gate, "failed", text=f"{gate}: {ratio}")
    if row.coverage == "args":
        return _skip(gate, "args_only")
    if row.refusal is not None or row.check.utilisation is None:
        return _skip(gate, *_missing_roof(row))
    return GateOutcome(gate, "passed")


def _judge_claim(row: Row) -> GateOutcome | None:
    """Return the outcome for the rates that a record prints; None for a row that prints none."""
    gate = "claim"
    if row.mismatch is not None:
        return GateOutcome(gate, "failed", text=f"{gate}: {row.mismatch.describe()}")
    if row.refusal is not None:
        return _skip(gate, "refused", row.refusal.reason)
    if not row.claims:
        return None
    if row.check.utilisation is None:
        return _skip(gate, *_missing_roof(row))
    return GateOutcome(gate, "passed")


def _judge_refused(row: Row) -> GateOutcome:
    gate = "refused"
    if row.refusal is not None:
        return GateOutcome(gate, "failed", text=f"{gate}: {row.refusal.reason}")
    return GateOutcome(gate, "passed")


#: The judges of KINDS, in the order of reporting.
_JUDGES: dict[str, Callable[[Row], GateOutcome | None]] = {
    "beyond_roof": _judge_beyond_roof,
    "unmodelled": _judge_unmodelled,
    "exceeds_target": _judge_exceeds_target,
    "regression": _judge_regression,
    "infeasible": _judge_infeasible,
    "claim": _judge_claim,
    "refused": _judge_refused,
}


def _limit(row: Row, gate: str, limit: float) -> GateOutcome:
    entry, check = row.entry, row.check
    if check.status == "beyond_roof":  # such a time proves no percent
        return GateOutcome(gate, "failed", text=f"{gate}: {check.message}")
    if has_note(entry.notes, "shared_workers"):
        return _skip(gate, "shared_workers")
    if check.status == "near_roof" and check.utilisation and check.limit:
        # The true peak may be higher, up to the limit; the row has at least this percent of it.
        is_enough = 100 * check.utilisation / check.limit >= limit
        return GateOutcome(gate, "passed") if is_enough else _skip(gate, "no_percent")
    if row.coverage == "args":
        return _skip(gate, "args_only")
    if row.refusal is not None or not entry.modeled or row.measurement is None or check.utilisation is None:
        return _skip(gate, *_missing_roof(row))
    if entry.roofline_pct is None or entry.suspect or entry.unknown_reason in ("unvalidated_peak", "dispatch_bound"):
        return _skip(gate, "no_percent", entry.unknown_reason or "")
    if 0 < 100 * entry.roofline_pct < limit:
        if entry.confidence == "low":
            return _skip(gate, "low_confidence")
        if entry.unknown_reason == "noisy":
            return _skip(gate, "no_percent", "noisy")
        roof = entry.roof_level or entry.roof_axis
        failure = (
            f"{100 * entry.roofline_pct:.1f} % of the {roof} roof, at least {limit:g} % is required "
            f"(limiter: {entry.bound_type}, {entry.hard_limit_speedup or 1 / entry.roofline_pct:.2f}x to the roof)"
        )
        return GateOutcome(gate, "failed", text=failure)
    # A pass out of a cache proves nothing: such a percent is no percent of the memory roof.
    if entry.confidence == "low" or entry.unknown_reason == "cache_resident":
        return _skip(gate, "no_percent", entry.unknown_reason or "low confidence")
    return GateOutcome(gate, "passed")


class Summary:
    """Counts what the gates of a run decided, row by row, and describes what they did not check.

    A row is checked when every gate decided it, and unchecked when a gate skipped it; each may have failed at another gate.
    """

    def __init__(self, gates: Gates, prefix: str = "--") -> None:
        self.gates, self.prefix = gates, prefix  # prefix of the options: "--roofline-" in pytest
        self.checked = self.failed = self.allowed = self.unchecked = 0
        self.codes: Counter[str] = Counter()  # unchecked rows by code
        self._fatal = 0  # unchecked rows that fail the run
        self._kinds: dict[str, dict[str, None]] = {}  # the gates of each code
        self._names: dict[str, list[str]] = {}  # the rows of each code, with details
        self._used: set[Allowance] = set()
        self._met: set[Allowance] = set()  # entries of the allow list whose row has run
        self._allowed: list[str] = []

    def add(self, row: Row, name: str, gates: tuple[GateOutcome, ...], most: int | None = None) -> None:
        """Count one row with its outcomes. most: how many rows of each code are kept to be named; None for all."""
        if self.gates.allow:
            self._met.update(entry for entry in self.gates.allow if entry.covers(row))
        if not gates:
            return
        statuses = {outcome.status for outcome in gates}
        self.failed += "failed" in statuses
        self.allowed += "allowed" in statuses
        if statuses == {"passed"}:  # nearly all rows
            self.checked += 1
            return
        skips: dict[str, str] = {}
        for outcome in gates:
            if outcome.status == "skipped":
                skips[outcome.code] = skips.get(outcome.code) or outcome.text
                self._kinds.setdefault(outcome.code, {})[outcome.gate] = None
            elif outcome.status == "allowed":
                self._allowed.append(f"{name}: {outcome.gate}{f' ({outcome.code})' if outcome.code else ''}: {outcome.text}")
                entry = self.gates.find_allowance(row, outcome)
                self._used.update([entry] if entry else [])
        for code, text in skips.items():
            self.codes[code] += 1
            names = self._names.setdefault(code, [])
            if most is None or len(names) < most:
                names.append(f"{name} ({text})" if text else name)
        self.unchecked += bool(skips)
        self.checked += not skips and not any(o.status == "allowed" and o.code in SKIPS for o in gates)
        if not self.gates.is_empty:
            self._fatal += bool(skips.keys() - self.gates.allow_unchecked)

    @property
    def is_needed(self) -> bool:
        """Whether the run asked for a gate, or a test did."""
        return not self.gates.is_empty or bool(self.checked or self.unchecked or self.allowed)

    @property
    def fails_run(self) -> bool:
        """Whether a row failed, or unchecked rows fail the run."""
        return self.failed > 0 or self._fatal > 0

    def to_dict(self) -> dict[str, object]:
        """Return the counts, as reports have them."""
        counts = {key: getattr(self, key) for key in ("checked", "failed", "allowed", "unchecked")}
        return {"kinds": sorted(self.gates.kinds), **counts, "reasons": dict(self.codes.most_common())}

    def lines(self, is_full: bool = False) -> Iterator[str]:
        """Yield what is allowed and what is unchecked, with reasons; the counts come last.

        is_full: name every row.
        """
        most = None if is_full else _NAMED
        yield from (f"allowed: {printable(line)}" for line in self._allowed[:most])
        for code, count in self.codes.most_common():
            reason, action = SKIPS[code]
            names = self._names[code]
            shown = names[:most]
            listed = printable(", ".join(shown)) + (f" and {count - len(shown)} more" if count > len(shown) else "")
            yield f"unchecked by {', '.join(self._kinds[code])}, {count}: {reason} ({code}). {action}. Rows: {listed}"
        yield from self._remarks()
        yield self.line()

    def _remarks(self) -> Iterator[str]:
        if self.gates.is_empty:
            return
        for entry in self.gates.allow:
            if entry.until < self.gates.today:
                yield f"allow list: expired, allows nothing: {entry.describe()}"
            elif entry not in self._used:
                why = "its rows pass" if entry in self._met else "no row of this run matches"
                yield f"allow list: unused, {why}: {entry.describe()}"
        if self._fatal:
            rows = "1 unchecked row fails" if self._fatal == 1 else f"{self._fatal} unchecked rows fail"
            yield f"{rows} the run. {self.prefix}allow-unchecked makes this a warning"

    def line(self) -> str:
        """Return the counts in one line."""
        reasons = ", ".join(f"{code} {count}" for code, count in self.codes.most_common())
        counts = f"{self.checked} checked, {self.failed} failed, {self.allowed} allowed, {self.unchecked} unchecked"
        return f"gate: {counts}" + (f" ({reasons})" if reasons else "")


def unmatched_baselines(rows: Collection[Row], source: str, matched: Collection[str]) -> Iterator[str]:
    """Yield one line where a file of earlier times lacks the time of rows that were measured.

    source: the file's name. matched: the nodeids in the file.
    """
    missing = [row.entry.short_name for row in rows if row.measurement is not None and row.nodeid not in matched]
    if missing and matched:  # a file that could not be read has another line
        yield f"{source} has no earlier time for {list_some(missing, _NAMED)}"
