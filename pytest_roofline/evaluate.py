"""From one case, a test with its time and what it says of its kernel, to its row. Knows nothing of pytest."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from roofline_engine import advice
from roofline_engine.check import (
    NOTHING,
    Baseline,
    Check,
    Claim,
    Facts,
    Finding,
    Measurement,
    Prediction,
    assess_measurement,
    check,
    explain_claim,
    explain_counters,
    explain_excess,
    explain_unit,
    lacks_device_sync,
    launch_overhead,
    limit_of,
    mark_low_confidence,
)
from roofline_engine.fields import Entry, Note, note, tidy_notes
from roofline_engine.peaks import CPU, Peaks
from roofline_engine.roofline import assess, mark_unmodeled, roof_of
from roofline_engine.work import WITHOUT_ACTIVATIONS, Work, fit_to_cache

from .names import short_name
from .records.row import RecordRow
from .row import Mismatch, Row

if TYPE_CHECKING:
    from .baselines import Predictions
    from .devices import Devices
    from .testcase import Case

NO_WORK = note("nothing says what it moves: a marker, the fixture, [tool.roofline.work] or extra_info can", "no_work_model")
IDLE = note("its benchmark took no time: benchmarks are disabled, or off under pytest-xdist (-n 0 turns them on)", "idle")
UNTIMELY = note(
    "device work on a host's clock without a wait for the device: the time may be of the launch alone", "no_device_sync"
)
SHARED = note("measured while other workers of pytest-xdist ran: display only, -n 0 measures alone", "shared_workers")
#: What takes its times in a worker as well; pytest-benchmark does not, and of a time that a test recorded nothing is known.
TIMED_HERE = ("roofline", "pytest-codspeed")
#: A ceiling measured among other programs is good to this factor; what exceeds it by more is not the ceiling's fault.
_SWING = 10.0
NO_OVERHEAD = note(
    "its wall time says nothing: it is under the device time, so one of the two is wrong, or there is no device time",
    "no_overhead",
)
NO_DEVICE = note("its device is not known: device= in the marker, or --roofline-device", "no_device")


class Annotator:
    """Holds what all rows of a run share.

    shared: other processes of this run measure at the same time.
    """

    def __init__(
        self,
        noise: float,
        devices: Devices,
        predictions: Predictions | None,
        shared: bool = False,
    ) -> None:
        self.noise, self.devices, self.predictions = noise, devices, predictions
        self.shared = shared
        self.problems: list[str] = []
        self._told: set[str] = set()

    def take_problems(self) -> list[str]:
        """What went wrong since the last call."""
        found = [*self.problems, *self.devices.problems]
        self.problems, self.devices.problems = [], []
        return found

    def annotate(self, case: Case) -> Row:
        """The row of a case; what could not be known is a reason in it, never an error."""
        case = self._as_run_here(case)
        said = case.declared
        notes = [*said.notes, note(case.problem, "problem")]
        device, peaks = self._peaks(case, notes)
        work = fit_to_cache(said.work, peaks.l2_bytes if peaks else None) if said.work else None
        prediction = self._predicted(case, work, peaks, notes)
        baseline = self._comparable(case, device)
        entry = Entry(
            name=said.kernel or case.nodeid,
            short_name=short_name(case.nodeid),
            pct_gpu_time=prediction.pct_gpu_time if prediction else case.pct_gpu_time,
            stage=said.stage,
            launches_per_unit=said.launches,
        )
        outcome = None
        if work is None:
            notes.insert(0, note(case.problem, "no_work_model") if case.problem else NO_WORK)
            entry = self._timed(mark_unmodeled(entry, "unknown", "unknown"), case)
        elif peaks is None:
            entry = assess(self._timed(entry, case), work, Peaks(source="derived"), target_eff=said.target_eff)
        else:
            entry, outcome, peaks = self._judged(entry, work, case, peaks, prediction, device, baseline)
            notes += [*work.notes, *advice.remarks(entry, peaks)]
            if case.measurement is not None and lacks_device_sync(case.measurement, peaks):
                notes.append(UNTIMELY)
        if outcome is None:
            outcome = check(entry, None, case.measurement, peaks, baseline=baseline, prediction=prediction, noise=self.noise)
        if case.record is not None:
            mismatch = find_mismatch(case.record, work, peaks or Peaks(source="derived"), facts_of(case.record))
            notes += [] if mismatch is None else [note(f"its own figure: {mismatch.describe()}", "claim")]
        if case.measurement is not None:
            notes += map(note, case.measurement.notes)
            if case.measurement.wall_s is not None and launch_overhead(case.measurement) is None:
                notes.append(NO_OVERHEAD)
            notes += [SHARED] if self.shared and case.measurement.source in TIMED_HERE else []
        elif case.idle:
            notes.append(IDLE)
        entry = entry._replace(notes=tidy_notes(notes))
        return Row(
            nodeid=case.nodeid,
            entry=entry,
            check=outcome,
            device=device,
            roof_s=None if work is None or peaks is None else _roof(work, peaks),
            work_source=said.source or None,
            engine=work.engine if work else None,
            measurement=case.measurement,
            baseline=baseline,
            prediction=prediction,
            group=case.group,
            kernel=said.kernel,
            path=case.path,
            line=case.line,
        )

    def _judged(
        self,
        entry: Entry,
        work: Work,
        case: Case,
        peaks: Peaks,
        prediction: Prediction | None,
        device: str | None,
        baseline: Baseline | None,
    ) -> tuple[Entry, Check, Peaks]:
        said, measurement = case.declared, case.measurement

        def judge(peaks: Peaks) -> tuple[Entry, Check]:
            if measurement is None:
                row = assess(entry, work, peaks, target_eff=said.target_eff)
            else:
                row = assess_measurement(entry, work, measurement, peaks, launches=said.launches, target_eff=said.target_eff)
                row = mark_low_confidence(row) if self.shared and measurement.source in TIMED_HERE else row
            facts = NOTHING if case.record is None else facts_of(case.record)
            noise = self.noise
            found = check(row, work, measurement, peaks, baseline=baseline, prediction=prediction, noise=noise, facts=facts)
            return row, found

        row, outcome = judge(peaks)
        exceeded = outcome.status in ("beyond_roof", "near_roof") and outcome.cause != "cache_resident"
        if exceeded and device == CPU and (outcome.utilisation or 0.0) <= _SWING:
            better = self.devices.remeasure_cpu(outcome.axis)
            if better != peaks:
                peaks = better
                row, outcome = judge(peaks)
        return row, outcome, peaks

    def _predicted(self, case: Case, work: Work | None, peaks: Peaks | None, notes: list[Note]) -> Prediction | None:
        """The prediction of a case's kernel, on its device and of its shape, with a note on how it was found or why not."""
        if self.predictions is None:
            return None
        said = case.declared
        entry, how, problem = self.predictions.match(
            case.test, nodeid=case.nodeid, kernel=said.kernel, launched=case.launched, work=work
        )
        if entry is None:
            notes.append(note(problem, "prediction_unused"))
            return None
        other = self.predictions.other_device(peaks) if peaks is not None else None
        if other:
            self.tell(f"{other}: not used")
            return None
        other = entry.other_work(work) if work is not None else None
        if other:
            notes.append(note(f"prediction not used: {other} ({how})", "prediction_unused"))
            return None
        notes.append(note(f"prediction {how}", "prediction"))
        return entry.prediction._replace(matched=how)

    def _as_run_here(self, case: Case) -> Case:
        """A format's times are a device's as a rule; on a machine without one, and on its CPU, they are the host's."""
        record, measurement = case.record, case.measurement
        if record is None or measurement is None or case.declared.device is not None:
            return case
        if not measurement.clock.startswith("device-"):
            return case
        if not self.devices.is_host_only():
            return case
        return replace(
            case,
            measurement=measurement._replace(clock="host", cache="unknown"),
            record=replace(record, clock="host", cache="unknown"),
        )

    def _comparable(self, case: Case, device: str | None) -> Baseline | None:
        """The baseline of a case; of kind ``unknown`` where its file says that it was of another device."""
        baseline, before = case.baseline, case.baseline_device
        if baseline is None or before is None or device is None or self.devices.is_same(before, device):
            return baseline
        return baseline._replace(kind="unknown", source=f"{baseline.source}, of {before}")

    def _timed(self, entry: Entry, case: Case) -> Entry:
        if case.measurement is None:
            return entry
        t_ms = 1e3 * case.measurement.t_s
        return entry._replace(t_ms=t_ms / case.declared.launches, t_unit_ms=t_ms)

    def _peaks(self, case: Case, notes: list[Note]) -> tuple[str | None, Peaks | None]:
        if case.declared.work is None:
            return case.declared.device, None  # nothing to hold against a roof, so no ceiling is measured for it
        on_device = case.measurement is not None and case.measurement.clock.startswith("device-")
        name = self.devices.name(case.declared.device, "gpu" if on_device else case.seen)
        if name is None:
            notes.append(NO_DEVICE)
            return None, None
        if name == CPU and case.measurement is None:
            return name, self.devices.resolved.get(CPU)  # no time to hold against a ceiling, so none is measured for it
        try:
            return name, self.devices.peaks(name)
        except (ValueError, OSError) as error:
            self.tell(str(error))
            notes.append(note(str(error), "no_device"))
            return name, None

    def tell(self, line: str) -> None:
        """Keep a line for the report, once."""
        if line not in self._told:
            self._told.add(line)
            self.problems.append(line)


def _roof(work: Work, peaks: Peaks) -> float | None:
    """Seconds at the roof of the work's figure; None where no roof is known."""
    return roof_of(work, peaks).time(work.bytes, work.flops) or None


def times(record: RecordRow) -> tuple[Measurement | None, Baseline | None]:
    """The time of a row and what it is compared with."""
    measurement = None
    if record.t_s is not None:
        measurement = Measurement(
            "user",
            record.t_s,
            record.q1_s,
            record.q3_s,
            record.rounds,
            record.clock,
            record.cache,
            record.notes,
            record.wall_s,
        )
    if record.baseline_t_s is not None:
        return measurement, Baseline(record.baseline_kind, t_s=record.baseline_t_s)
    if record.speedup is not None:
        return measurement, Baseline(record.baseline_kind, speedup=record.speedup)
    return measurement, None


def facts_of(record: RecordRow) -> Facts:
    """Return what a row says besides its work and its time."""
    return Facts(
        placeholder_time=record.placeholder_time,
        timed_flops=record.timed_flops,
        known_mistakes=record.known_mistakes,
        cold=record.cache == "cold",
        correct=record.correct,
        working_set=record.working_set,
        counter_ratio=record.counter_ratio,
    )


def find_mismatch(record: RecordRow, work: Work | None, peaks: Peaks, facts: Facts) -> Mismatch | None:
    """Return the printed rate that differs most from what shape and time give, or that no device allows."""
    worst: tuple[float, Mismatch] | None = None
    for claim in record.claims:
        recomputed, finding = _check_claim(claim, record, work, peaks, facts)
        if finding is None:
            continue
        factor = claim.claimed / recomputed if recomputed else None
        size = max(factor, 1 / factor) if factor else float("inf")
        if worst is None or size > worst[0]:
            worst = (
                size,
                Mismatch(claim.axis, claim.claimed, recomputed, factor, finding.cause, finding.decided, finding.experiment),
            )
    if worst is not None:
        return worst[1]
    axis = "memory"
    finding = explain_counters(facts)
    if finding is None and work is not None and facts.timed_flops is not None:
        axis, finding = "compute", explain_unit(work.flops, facts)
    if finding is None:
        return None
    return Mismatch(axis, None, None, finding.factor, finding.cause, finding.decided, finding.experiment)


def _check_claim(
    claim: Claim, record: RecordRow, work: Work | None, peaks: Peaks, facts: Facts
) -> tuple[float | None, Finding | None]:
    """Return the rate that shape and time give, and what is wrong with the printed one."""
    if work is not None and record.t_s is not None:
        first: tuple[float, Finding] | None = None
        for model in work.candidates:
            rate = (model.bytes if claim.axis == "memory" else model.flops) / record.t_s
            if rate > 0 and (model.in_range or model.model in WITHOUT_ACTIVATIONS):
                finding = explain_claim(claim, rate, facts)
                if finding is None:
                    return None, None  # one of the possible byte models gives it
                first = first or (rate, finding)
        return first or (None, None)
    axis, peak = ("memory", peaks.hbm_bw_bytes_s) if claim.axis == "memory" else _compute_peak(work, peaks)
    if not peak or claim.claimed <= peak * limit_of(peaks, axis, peak).factor * 1.05:
        return None, None
    return None, explain_excess(axis, claim.claimed / peak, None, peaks, facts)


def _compute_peak(work: Work | None, peaks: Peaks) -> tuple[str, float | None]:
    """Return the compute peak for the dtype of a claim; the highest peak where no shape names the dtype."""
    if work is not None:
        return peaks.compute_axis(work.engine, work.dtype.peak)
    axes = {f"matrix.{dtype}": rate for dtype, rate in peaks.flops.items()}
    axes.update({f"vector.{dtype}": rate for dtype, rate in peaks.vector.items()})
    best = max(axes, key=lambda axis: axes[axis], default=None)
    return (best, axes[best]) if best else ("matrix.none", None)
