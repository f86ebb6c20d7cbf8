"""A row of a run as a pair of the ledger."""

from __future__ import annotations

import datetime

from roofline_engine.check import COMPARABLE
from roofline_engine.roofline import ISOLATED_NOISE

from ..row import Row
from .pair import BASES, Figure, Pair

#: A time beyond the roof is wrong, and one that could not contradict a prediction does not bear one out.
_NO_EVIDENCE = ("beyond_roof", "not_falsifiable", "not_comparable")


def pair_of(row: Row, *, stack: str = "", date: str | None = None, source: str = "pytest") -> Pair | None:
    """The pair of a test whose kernel was predicted and measured over a baseline of its own; None for any other.

    date: ISO, today's by default. stack, source: as in ``Pair``.
    """
    prediction, entry, speedup = row.prediction, row.entry, row.check.speedup
    if prediction is None or prediction.attainable_speedup is None or speedup is None or row.correct is False:
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


def _positive(value: float | None) -> Figure | None:
    return Figure.of(value) if value is not None and value > 0 else None
