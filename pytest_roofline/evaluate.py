"""Evaluate one case, a test with its time and its declared work, to a row. Imports no pytest."""

from __future__ import annotations

from collections.abc import Iterator
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
from roofline_engine.peaks import CPU, Peaks, fastest_axis
from roofline_engine.roofline import assess, mark_unmodeled, roof_of
from roofline_engine.work import WITHOUT_ACTIVATIONS, Work, fit_to_cache

from .devices import UnknownDeviceError
from .gate import NO_WORK as NO_WORK_TEXT
from .gate import Gates
from .records.source import RecordRow
from .report.columns import short_name
from .row import Mismatch, Row

if TYPE_CHECKING:
    from .baselines import Predictions
    from .devices import Devices
    from .testcase import Case

NO_WORK = note(NO_WORK_TEXT, "no_work_model")
IDLE = note("the benchmark took no time: benchmarks are disabled, or off under pytest-xdist (-n 0 turns them on)", "idle")
NO_DEVICE_SYNC = note(
    "device work on a host clock without a wait for the device: the time may cover only the launch", "no_device_sync"
)
SHARED_WORKERS = note("measured while other pytest-xdist workers ran: for display only. -n 0 measures alone", "shared_workers")
NO_OVERHEAD = note("wall time ignored: it is shorter than the device time, or the device time is unknown", "no_overhead")
NO_DEVICE = note("the device is unknown. Set device= in the marker, or --roofline-device", "no_device")
#: Sources that measure in an xdist worker as well. pytest-benchmark does not; where a recorded time was taken is unknown.
TIMED_HERE = ("roofline", "pytest-codspeed")
#: A ceiling measured among other programs is right within this factor; a row that exceeds it by more has another cause.
_SWING = 10.0
#: Stands for the peaks of an unknown device.
_NO_PEAKS = Peaks(source="derived")


class Annotator:
    """Makes the rows of one run."""

    def __init__(
        self,
        devices: Devices,
        predictions: Predictions | None,
        *,
        noise: float,  # the relative change that is noise
        gates: Gates,
        shared: bool = False,  # whether other processes of this run measure at the same time
    ) -> None:
        self.devices, self.predictions = devices, predictions
        self.noise, self.gates, self.shared = noise, gates, shared
        self.problems: list[str] = []  # lines for the report, which has each of them once

    def take_problems(self) -> list[str]:
        """Return what went wrong since the last call."""
        problems = [*self.problems, *self.devices.problems]
        self.problems, self.devices.problems = [], []
        return problems

    def annotate(self, case: Case) -> Row:
        """Return the row of a case; what is unknown has a reason in the row and raises no error."""
        case = self._with_host_clock(case)
        declaration, measurement, record = case.declaration, case.measurement, case.record
        notes = [*declaration.notes, note(case.problem, "problem")]
        device, peaks = self._resolve_peaks(case, notes)
        work = fit_to_cache(declaration.work, peaks.l2_bytes if peaks else None) if declaration.work else None
        facts = NOTHING if record is None else facts_of(record)
        prediction = self._find_prediction(case, work, peaks, notes)
        baseline = self._comparable_baseline(case, device)
        entry = Entry(
            name=declaration.kernel or case.nodeid,
            short_name=short_name(case.nodeid),
            pct_gpu_time=prediction.pct_gpu_time if prediction else case.pct_gpu_time,
            stage=declaration.stage,
            launches_per_unit=declaration.launches,
        )
        if measurement is not None:
            t_ms = 1e3 * measurement.t_s
            entry = entry._replace(t_ms=t_ms / declaration.launches, t_unit_ms=t_ms)

        def judge(peaks: Peaks | None) -> tuple[Entry, Check]:
            assessed = self._assess(entry, work, peaks, case)
            against = work if peaks is not None else None
            return assessed, check(
                assessed, against, measurement, peaks, baseline=baseline, prediction=prediction, noise=self.noise, facts=facts
            )

        assessed, outcome = judge(peaks)
        exceeded = outcome.status in ("beyond_roof", "near_roof") and outcome.cause != "cache_resident"
        if exceeded and device == CPU and (outcome.utilisation or 0.0) <= _SWING:
            better = self.devices.remeasure_cpu(outcome.axis)
            if better != peaks:
                peaks = better
                assessed, outcome = judge(peaks)
        level = self._exceeded_level(assessed, peaks, device)
        if level is not None and (better := self.devices.remeasure_cpu(level)) != peaks:
            peaks = better
            assessed, outcome = judge(peaks)
        mismatch = None if record is None else find_mismatch(record, work, peaks or _NO_PEAKS, facts)
        if work is None:
            notes.insert(0, note(case.problem, "no_work_model") if case.problem else NO_WORK)
        notes += self._remarks(case, assessed, work, peaks, mismatch)
        row = Row(
            nodeid=case.nodeid,
            entry=assessed._replace(notes=tidy_notes(notes)),
            check=outcome,
            device=device,
            roof_s=_roof_s(assessed, work, peaks),
            work_source=declaration.source or None,
            engine=work.engine if work else None,
            coverage=work.coverage if work else "whole",
            least=work.least if work else None,
            written=work.written if work else None,
            measurement=measurement,
            baseline=baseline,
            prediction=prediction,
            group=case.group,
            kernel=declaration.kernel,
            path=case.path,
            line=case.line,
            claims=0 if record is None else len(record.claims),
            mismatch=mismatch,
            refusal=case.refusal,
        )
        return replace(row, gates=self.gates.evaluate(row, declaration.min_pct))

    def _exceeded_level(self, entry: Entry, peaks: Peaks | None, device: str | None) -> str | None:
        """Return the slowest level of cache of this CPU that a row exceeds: its ceiling may be too low."""
        if device != CPU or peaks is None or not peaks.levels or entry.unknown_reason != "cache_resident":
            return None
        levels = peaks.levels_around(entry.bytes_est or 0.0)
        rate = entry.achieved_bw_bytes_s or 0.0
        return next((level.name for level in reversed(levels) if level.name and rate > level.bandwidth_bytes_s), None)

    def _remarks(
        self, case: Case, entry: Entry, work: Work | None, peaks: Peaks | None, mismatch: Mismatch | None
    ) -> Iterator[Note]:
        """Yield what a reader should know about the figures of a row."""
        measurement = case.measurement
        if work is not None and peaks is not None:
            yield from work.notes
            yield from advice.remarks(entry, peaks)
            if measurement is not None and lacks_device_sync(measurement, peaks):
                yield NO_DEVICE_SYNC
        if mismatch is not None:
            yield note(f"its printed rate is wrong: {mismatch.describe()}", "claim")
        if measurement is None:
            if case.idle:
                yield IDLE
            if case.untimed:
                yield note(case.untimed, "untimed")
            return
        yield from map(note, measurement.notes)
        if measurement.wall_s is not None and launch_overhead(measurement) is None:
            yield NO_OVERHEAD
        if self.shared and measurement.source in TIMED_HERE:
            yield SHARED_WORKERS

    def _assess(self, entry: Entry, work: Work | None, peaks: Peaks | None, case: Case) -> Entry:
        """Return the entry with its verdict."""
        measurement, target_eff = case.measurement, case.declaration.target_eff
        if work is None:
            return mark_unmodeled(entry, "unknown", "unknown")
        if peaks is None or measurement is None:
            return assess(entry, work, peaks or _NO_PEAKS, target_eff=target_eff)
        launches = case.declaration.launches
        entry = assess_measurement(entry, work, measurement, peaks, launches=launches, target_eff=target_eff)
        return mark_low_confidence(entry) if self.shared and measurement.source in TIMED_HERE else entry

    def _find_prediction(self, case: Case, work: Work | None, peaks: Peaks | None, notes: list[Note]) -> Prediction | None:
        """Return the prediction for a case's kernel, device and shape; a note says how it was found or why not."""
        if self.predictions is None:
            return None
        entry, how, problem = self.predictions.match(
            case.test, nodeid=case.nodeid, kernel=case.declaration.kernel, launched=case.launched, work=work
        )
        if entry is None:
            notes.append(note(problem, "prediction_unused"))
            return None
        other_device = self.predictions.other_device(peaks) if peaks is not None else None
        if other_device:
            self.problems.append(f"{other_device}: not used")
            return None
        other_work = entry.other_work(work) if work is not None else None
        if other_work:
            notes.append(note(f"prediction not used: {other_work} ({how})", "prediction_unused"))
            return None
        notes.append(note(f"prediction {how}", "prediction"))
        return entry.prediction._replace(matched=how)

    def _with_host_clock(self, case: Case) -> Case:
        """Return the case of a record on the CPU with the host's clock: the formats expect the clock of a device."""
        record, measurement = case.record, case.measurement
        if record is None or measurement is None or case.declaration.device is not None:
            return case
        if not measurement.clock.startswith("device-") or not self.devices.is_host_only():
            return case
        measurement = measurement._replace(clock="host", cache="unknown")
        return replace(case, measurement=measurement, record=replace(record, clock="host", cache="unknown"))

    def _comparable_baseline(self, case: Case, device: str | None) -> Baseline | None:
        """Return the baseline of a case; of kind ``unknown`` when its file names another device."""
        baseline, earlier = case.baseline, case.baseline_device
        if baseline is None or earlier is None or device is None or self.devices.is_same(earlier, device):
            return baseline
        return baseline._replace(kind="unknown", source=f"{baseline.source}, of {earlier}")

    def _resolve_peaks(self, case: Case, notes: list[Note]) -> tuple[str | None, Peaks | None]:
        """Return the name of a case's device and its peaks; no ceiling is measured for a case without work or time."""
        if case.declaration.work is None:
            return case.declaration.device, None
        on_device = case.measurement is not None and case.measurement.clock.startswith("device-")
        name = self.devices.name(case.declaration.device, "gpu" if on_device else case.device_kind)
        if name is None:
            notes.append(NO_DEVICE)
            return None, None
        if name == CPU and case.measurement is None:
            return name, self.devices.resolved.get(CPU)
        try:
            return name, self.devices.peaks_for(name, case.declaration.work)
        except (ValueError, OSError) as error:
            self.problems.append(str(error))
            notes.append(note(str(error), "unknown_device" if isinstance(error, UnknownDeviceError) else "no_device"))
            return name, None


def _roof_s(entry: Entry, work: Work | None, peaks: Peaks | None) -> float | None:
    """Return the seconds of the work at the roof that the entry was judged by."""
    if work is None or peaks is None:
        return None
    if entry.roof_level is not None and entry.roofline_pct_raw is not None and entry.t_unit_ms is not None:
        return entry.roofline_pct_raw * entry.t_unit_ms / 1e3
    return roof_of(work, peaks).time(work.bytes, work.flops) or None


def times(record: RecordRow) -> tuple[Measurement | None, Baseline | None]:
    """Return the time of a record and its baseline."""
    measurement = baseline = None
    if record.t_s is not None:
        measurement = Measurement(
            *("user", record.t_s, record.q1_s, record.q3_s, record.rounds),
            *(record.clock, record.cache, record.notes, record.wall_s),
            rounding=record.rounding,
        )
    if record.baseline_t_s is not None or record.speedup is not None:
        speedup = record.speedup if record.baseline_t_s is None else None
        baseline = Baseline(record.baseline_kind, t_s=record.baseline_t_s, speedup=speedup)
    return measurement, baseline


def facts_of(record: RecordRow) -> Facts:
    """Return what a record says besides its work and its time."""
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
            worst = size, Mismatch.of(claim.axis, finding, factor, claim.claimed, recomputed)
    if worst is not None:
        return worst[1]
    axis = "memory"
    finding = explain_counters(facts)
    if finding is None and work is not None and facts.timed_flops is not None:
        axis, finding = "compute", explain_unit(work.flops, facts)
    return None if finding is None else Mismatch.of(axis, finding, finding.factor)


def _check_claim(
    claim: Claim, record: RecordRow, work: Work | None, peaks: Peaks, facts: Facts
) -> tuple[float | None, Finding | None]:
    """Return the rate that shape and time give, and what is wrong with the printed one."""
    if claim.axis == "speedup":
        if record.t_s is None or record.baseline_t_s is None:
            return None, None
        speedup = record.baseline_t_s / record.t_s
        return speedup, explain_claim(claim, speedup)
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
    return None, explain_excess(axis, claim.claimed / peak, None, peaks, facts, printed=True)


def _compute_peak(work: Work | None, peaks: Peaks) -> tuple[str, float | None]:
    """Return the compute peak for the dtype of a claim; the highest peak where no shape names the dtype."""
    if work is not None:
        return peaks.compute_axis(work.engine, work.dtype.peak)
    return fastest_axis(peaks) or ("matrix.none", None)
