"""A row of a run as a pair of the ledger."""

from __future__ import annotations

import datetime

from roofline_engine.check import COMPARABLE
from roofline_engine.roofline import ISOLATED_NOISE

from ..row import Result, Row
from .pair import BASES, Figure, Pair

#: A time beyond the roof is wrong, and one that could not contradict a prediction does not bear one out.
_NO_EVIDENCE = ("beyond_roof", "not_falsifiable", "not_comparable")


def of_annotation(row: Row, *, stack: str = "", date: str | None = None, source: str = "pytest") -> Pair | None:
    """The pair of a test whose kernel was predicted and measured over a baseline of its own; None for any other.

    date: ISO, today's by default. stack, source: as in ``Pair``.
    """
    prediction, entry, speedup = row.prediction, row.entry, row.check.speedup
    if prediction is None or prediction.attainable_speedup is None or speedup is None:
        return None
    if row.baseline is None or row.baseline.kind not in COMPARABLE or row.check.status in _NO_EVIDENCE:
        return None
    axis = prediction.roof_axis or entry.roof_axis or ""
    achieved = entry.roofline_pct if axis == entry.roof_axis and not entry.suspect else None
    return Pair(
        kernel=row.kernel or prediction.kernel,
        op=entry.op,
        bound_type=entry.bound_type,
        axis=axis,
        dtype=entry.dtype or "",
        device=row.device or "",
        stack=stack,
        attainable=Figure.of(prediction.attainable_speedup),
        predicted_pct=_positive(prediction.roofline_pct),
        basis=entry.measurement_basis if entry.measurement_basis in BASES else "",
        stage=entry.stage,
        confidence=prediction.confidence,
        measured=Figure.of(speedup),
        achieved_pct=_positive(achieved),
        noise=ISOLATED_NOISE if row.check.band is None else row.check.band,
        date=datetime.date.today().isoformat() if date is None else date,
        source=source,
    )


def of_result(row: Result, *, stack: str = "", date: str | None = None) -> Pair | None:
    """The pair of a row of ``roofline check``, by the same rules; its source is the file and the row."""
    prediction, speedup = row.prediction, row.speedup
    if prediction is None or prediction.attainable_speedup is None or speedup is None or row.correct is False:
        return None
    if row.baseline_kind not in COMPARABLE or row.status in _NO_EVIDENCE:
        return None
    axis = prediction.roof_axis or row.roof_axis or ""
    achieved = row.roofline_pct if axis == row.roof_axis and (row.roofline_pct or 0.0) <= 1.0 else None
    return Pair(
        kernel=prediction.kernel,
        op=row.op or "unknown",
        bound_type=row.bound_type,
        axis=axis,
        dtype=row.dtype or "",
        device=row.device or "",
        stack=stack,
        attainable=Figure.of(prediction.attainable_speedup),
        predicted_pct=_positive(prediction.roofline_pct),
        confidence=prediction.confidence,
        measured=Figure.of(speedup),
        achieved_pct=_positive(achieved),
        date=datetime.date.today().isoformat() if date is None else date,
        source=f"{row.source} {row.row}",
    )


def _positive(value: float | None) -> Figure | None:
    return Figure.of(value) if value is not None and value > 0 else None
