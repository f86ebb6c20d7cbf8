"""``roofline check``: the rows of other people's files against the roof, their own printed figures, and predictions.

Status comes from recomputed figures alone; a printed rate is a claim beside it. Rows that cannot be used are refused with the
reason, and never left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from roofline_engine import peaktable
from roofline_engine.causes import AGREES, EXPERIMENTS, SHORT, Claim, Facts, Finding, found, of_claim, of_excess, of_unit
from roofline_engine.check import (
    NOT_FALSIFIABLE,
    Baseline,
    Check,
    Measurement,
    Overhead,
    Prediction,
    check,
    limit,
    overhead,
)
from roofline_engine.entry import Entry
from roofline_engine.metrics import bound, point, roof_time
from roofline_engine.models import TARGET_EFF, WITHOUT_ACTIVATIONS, Work, in_cache
from roofline_engine.peaks import Peaks, named
from roofline_engine.units import printable, quantity

from .ingest import Record
from .work.declared import build

if TYPE_CHECKING:
    from .predictions import Predictions

#: Works kept by shape: tuner tables try many kernels on one shape.
_REMEMBERED = 4096


@dataclass(slots=True, kw_only=True)  # not frozen: a frozen one takes three times as long to make, and files have many rows
class Result:
    """One row with what was found. ``claim``: axis, claimed, recomputed, factor, cause, and why; None where all agree."""

    source: str
    row: str
    name: str
    device: str | None
    op: str | None
    dtype: str | None
    t_s: float | None
    status: str
    message: str
    cause: str | None = None
    decided: str | None = None
    experiment: str | None = None
    roofline_pct: float | None = None
    roof_axis: str | None = None
    bound_type: str = "unknown"
    utilisation: float | None = None
    limit: float | None = None
    speedup: float | None = None
    attainable: float | None = None
    correct: bool | None = None
    baseline_kind: str | None = None
    prediction: Prediction | None = None
    claim: Mapping[str, Any] | None = None
    overhead: Overhead | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain builtins."""
        found = {name: getattr(self, name) for name in self.__slots__}
        found["overhead"] = None if self.overhead is None else dict(self.overhead._asdict())
        found["prediction"] = None if self.prediction is None else dict(self.prediction._asdict())
        return found


@dataclass(slots=True, kw_only=True)
class Refused:
    """A row that could not be used, and why; the cause where one of the closed set fits."""

    source: str
    row: str
    reason: str
    cause: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain builtins."""
        return {name: getattr(self, name) for name in self.__slots__}


class Checker:
    """What all rows of a run share: the peak table, the devices found so far, the works of shapes seen before.

    device: of rows whose file names none. given: peaks in place of the table's, for every row. brief: where only counts are
    wanted of ordinary rows, under the roof with nothing to compare them with, they all are the same two objects.
    """

    def __init__(
        self,
        table: peaktable.Table | None,
        *,
        device: str | None = None,
        given: Peaks | None = None,
        predictions: Predictions | None = None,
        brief: bool = False,
    ) -> None:
        self.brief = brief
        self.table, self.device, self.given, self.predictions = table, device, given, predictions
        self._peaks: dict[tuple[str, int | None], Peaks | None] = {}
        self._shapes: dict[tuple[Any, ...], _Shape | str] = {}

    def check(self, source: str, records: Iterable[Record]) -> Iterator[Result | Refused]:
        """The results of one file's rows, in their order."""
        for record in records:
            if record.refused:
                yield Refused(source=source, row=record.row, reason=record.refused)
            else:
                yield self.row(source, record)

    def row(self, source: str, record: Record) -> Result | Refused:
        """The result of one row."""
        peaks = self._of(record)
        if isinstance(peaks, str):
            return Refused(source=source, row=record.row, reason=peaks)
        shape, why = self._shape(record, peaks)
        plain = shape is not None and record.baseline_t_s is None and record.speedup is None and self.predictions is None
        plain = plain and record.wall_s is None
        if plain and shape is not None and record.t_s is not None and shape.roof_s <= record.t_s and _agrees(record, shape):
            if self.brief:
                return _SMALL if shape.falsifiable(record.launches, peaks) is False else _PLAIN
            return _ordinary(source, record, shape, peaks, record.t_s)
        done = shape.work if shape else None
        facts = facts_of(record)
        measurement, baseline = times(record)
        entry = Entry(
            name=record.name,
            stage="B",
            launches_per_unit=record.launches,
            falsifiable=None if shape is None else shape.falsifiable(record.launches, peaks),
            target_eff=TARGET_EFF.get(done.op) if done else None,
        )
        prediction = self._predicted(record.name) if self.predictions and record.name else None
        outcome = check(entry, done, measurement, peaks, baseline=baseline, prediction=prediction, facts=facts)
        if outcome.cause == "placeholder":
            decided = outcome.message.partition("; ")[2]
            return Refused(source=source, row=record.row, reason=f"placeholder: {decided}", cause="placeholder")
        claim = _claim(record, done, peaks, facts)
        return _result(source, record, done, why, peaks, outcome, claim, measurement, baseline, prediction)

    def _predicted(self, name: str) -> Prediction | None:
        assert self.predictions is not None
        entry, how, _ = self.predictions.match(name)
        return entry.prediction._replace(matched=how) if entry else None

    def _of(self, record: Record) -> Peaks | str:
        """The peaks of a row's device, or why there are none."""
        if self.given is not None:
            return self.given
        name = record.device or self.device
        if name is None:
            return "no device is named: --device"
        key = (name, record.units if record.device else None)
        if key not in self._peaks:
            self._peaks[key] = self._resolved(*key)
        found = self._peaks[key]
        if found is not None:
            return found
        near = self.table.near(name).strip() if self.table else ""
        return f"no peaks for device {printable(name)}" + (f": {near}" if near else "")

    def _resolved(self, name: str, units: int | None) -> Peaks | None:
        if self.table is None:
            return None
        found = named(self.table, name, units)
        return found if found.hbm_bw_bytes_s or found.flops else None

    def _shape(self, record: Record, peaks: Peaks) -> tuple[_Shape | None, str]:
        if record.work is None:
            return None, record.no_work or "its work is not known"
        key: tuple[Any, ...] = (id(peaks), *record.work, *record.work.values())
        try:
            found = self._shapes.get(key)
        except TypeError:  # a list of sizes
            key = (id(peaks), *record.work, *map(repr, record.work.values()))
            found = self._shapes.get(key)
        if found is None:
            try:
                made = build(record.work)
                found = "its work is not known" if made is None else _shape(in_cache(made, peaks.l2_bytes), peaks)
            except ValueError as error:
                found = str(error)
            if len(self._shapes) >= _REMEMBERED:
                self._shapes.clear()
            self._shapes[key] = found
        return (None, found) if isinstance(found, str) else (found, "")


class _Shape(NamedTuple):
    """The work of a shape on a device, and what every row of it needs.

    roof_s: the roof time of its least bytes and FLOPs. own_roof_s: of the figure's.
    """

    work: Work
    rate: float | None
    roof_s: float
    own_roof_s: float

    def falsifiable(self, launches: float, peaks: Peaks) -> bool | None:
        return None if peaks.hbm_bw_bytes_s is None else self.own_roof_s > launches * peaks.dispatch_floor_s


def _shape(done: Work, peaks: Peaks) -> _Shape:
    _, rate = peaks.compute_axis(done.engine, done.dtype.peak)
    own = least = roof_time(done.bytes, done.flops, peaks, rate)
    if len(done.candidates) > 1:
        nbytes, flops = min(model.bytes for model in done.candidates), min(model.flops for model in done.candidates)
        least = roof_time(nbytes, flops, peaks, rate)
    return _Shape(done, rate, least, own)


def _agrees(record: Record, shape: _Shape) -> bool:
    """Whether the printed rates are those of the figure: the ordinary row, which needs no more looking into."""
    if record.timed_flops is not None or record.counted is not None:
        return False
    first = shape.work.candidates[0]
    for claim in record.claims:
        recomputed = (first.bytes if claim.axis == "memory" else first.flops) / (record.t_s or 1.0)
        if not recomputed or abs(claim.claimed / recomputed - 1) > max(AGREES, claim.digits):
            return False
    return True


def _counted(status: str) -> Result:
    return Result(source="", row="", name="", device=None, op=None, dtype=None, t_s=None, status=status, message="")


_SMALL, _PLAIN = _counted("not_falsifiable"), _counted("not_checked")


def _ordinary(source: str, record: Record, shape: _Shape, peaks: Peaks, t_s: float) -> Result:
    """A row under the roof with nothing to compare it with."""
    done = shape.work
    first = done.candidates[0]
    p = point(first.bytes, first.flops, t_s, peaks.hbm_bw_bytes_s, shape.rate, streaming=done.engine == "vector")
    small = shape.falsifiable(record.launches, peaks) is False
    return Result(
        source=source,
        row=record.row,
        name=record.name,
        device=peaks.product or peaks.gfx,
        op=done.op,
        dtype=done.dtype.name,
        t_s=t_s,
        status="not_falsifiable" if small else "not_checked",
        message=NOT_FALSIFIABLE if small else "no baseline",
        roofline_pct=p.raw,
        roof_axis=p.roof_axis,
        bound_type=bound(p),
        utilisation=shape.roof_s / t_s,
        correct=record.correct,
    )


def times(record: Record) -> tuple[Measurement | None, Baseline | None]:
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


def facts_of(record: Record) -> Facts:
    """What a row says beside its work and its time."""
    return Facts(
        hand_written=record.hand_written,
        timed_flops=record.timed_flops,
        alternatives=record.alternatives,
        cold=record.cache == "cold",
        correct=record.correct,
        working_set=record.working_set,
        counted=record.counted,
    )


def printed(record: Record, done: Work | None, peaks: Peaks) -> str:
    """What is wrong with the rates that a row prints, as a line; empty where all agree with its shape and time."""
    claim = _claim(record, done, peaks, facts_of(record))
    return f"its own figure: {told(claim)}" if claim is not None else ""


def _claim(record: Record, done: Work | None, peaks: Peaks, facts: Facts) -> dict[str, Any] | None:
    """The printed rate that differs most from what shape and time give, or that no device allows; None where all agree."""
    worst: tuple[float, dict[str, Any]] | None = None
    for claim in record.claims:
        recomputed, finding = _held(claim, record, done, peaks, facts)
        if finding is None:
            continue
        factor = claim.claimed / recomputed if recomputed else None
        told = {
            "axis": claim.axis,
            "claimed": claim.claimed,
            "recomputed": recomputed,
            "factor": factor,
            "cause": finding.cause,
            "decided": finding.decided,
            "experiment": finding.experiment,
        }
        size = max(factor, 1 / factor) if factor else float("inf")
        if worst is None or size > worst[0]:
            worst = size, told
    if worst is None and facts.counted is not None and facts.counted < SHORT:
        short = found("counter_fault", f"the counters show {facts.counted:.2f} of the compulsory bytes")
        return _told("memory", short)
    if worst is None and done is not None:
        unit = of_unit(done.flops, facts)
        if unit is not None:
            return _told("compute", unit)
    return worst[1] if worst else None


def _told(axis: str, finding: Finding) -> dict[str, Any]:
    return {
        "axis": axis,
        "claimed": None,
        "recomputed": None,
        "factor": finding.factor,
        "cause": finding.cause,
        "decided": finding.decided,
        "experiment": finding.experiment,
    }


def _held(claim: Claim, record: Record, done: Work | None, peaks: Peaks, facts: Facts) -> tuple[float | None, Finding | None]:
    """What shape and time give in the claim's place, and what is wrong with the claim."""
    if done is not None and record.t_s is not None:
        models = [model for model in done.candidates if model.in_range or model.model in WITHOUT_ACTIVATIONS]
        rates = [(model.bytes if claim.axis == "memory" else model.flops) / record.t_s for model in models]
        findings = [(rate, of_claim(claim, rate, facts)) for rate in rates if rate > 0]
        if not findings or any(finding is None for _, finding in findings):
            return None, None  # one of the byte models that are possible gives it
        return findings[0]
    axis, peak = ("memory", peaks.hbm_bw_bytes_s) if claim.axis == "memory" else _compute(done, peaks)
    if not peak or claim.claimed <= peak * limit(peaks, axis, peak)[0] * 1.05:
        return None, None
    return None, of_excess(axis, claim.claimed / peak, None, peaks, facts)


def _compute(done: Work | None, peaks: Peaks) -> tuple[str, float | None]:
    """The compute peak of a claim's dtype; the highest where no shape says which."""
    if done is not None:
        return peaks.compute_axis(done.engine, done.dtype.peak)
    axes = {f"matrix.{dtype}": rate for dtype, rate in peaks.flops.items()}
    axes.update({f"vector.{dtype}": rate for dtype, rate in peaks.vector.items()})
    best = max(axes, key=lambda axis: axes[axis], default=None)
    return (best, axes[best]) if best else ("matrix.none", None)


def _result(
    source: str,
    record: Record,
    done: Work | None,
    why: str,
    peaks: Peaks,
    outcome: Check,
    claim: dict[str, Any] | None,
    measurement: Measurement | None,
    baseline: Baseline | None,
    prediction: Prediction | None,
) -> Result:
    pct = axis = None
    binds = "unknown"
    if done is not None and measurement is not None:
        _, rate = peaks.compute_axis(done.engine, done.dtype.peak)
        first = done.candidates[0]
        p = point(first.bytes, first.flops, measurement.t_s, peaks.hbm_bw_bytes_s, rate, streaming=done.engine == "vector")
        pct, axis, binds = p.raw, p.roof_axis, bound(p)
    message = outcome.message
    if outcome.status == "not_checked" and done is None:
        message = why
    return Result(
        source=source,
        row=record.row,
        name=record.name,
        device=peaks.product or peaks.gfx,
        op=done.op if done else None,
        dtype=done.dtype.name if done else None,
        t_s=record.t_s,
        status=outcome.status,
        message=message,
        cause=outcome.cause,
        decided=message.partition("; ")[2] if outcome.cause else None,
        experiment=EXPERIMENTS[outcome.cause] if outcome.cause else None,
        roofline_pct=pct,
        roof_axis=axis,
        bound_type=binds,
        utilisation=outcome.utilisation,
        limit=outcome.limit,
        speedup=outcome.speedup,
        attainable=outcome.attainable,
        correct=record.correct,
        baseline_kind=baseline.kind if baseline else None,
        prediction=prediction,
        claim=claim,
        overhead=overhead(measurement, record.launches) if measurement is not None else None,
    )


def told(claim: Mapping[str, Any]) -> str:
    """A claim as a line for people."""
    unit = "B/s" if claim["axis"] == "memory" else "FLOP/s"
    parts = [f"{quantity(claim['claimed'], unit)} is printed"] if claim["claimed"] is not None else []
    if claim["recomputed"] is not None:
        parts.append(f"shape and time give {quantity(claim['recomputed'], unit)}")
    return f"{claim['cause']}: {', '.join(parts)}{': ' if parts else ''}{claim['decided']}"
