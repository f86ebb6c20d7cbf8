"""Several captured shapes under one kernel name: their work as one."""

from __future__ import annotations

from collections.abc import Sequence

from .entry import ByteModel, note
from .models import Work
from .peaks import Peaks


def mean(works: Sequence[Work], weights: Sequence[float]) -> Work:
    """The weighted mean of the works, byte model by byte model.

    Raises:
        ValueError: when the shapes are of different ops or dtypes.
    """
    first = works[0]
    for other in works[1:]:
        if (other.op, other.dtype, other.engine) != (first.op, first.dtype, first.engine):
            raise ValueError(
                f"cases of different kinds under one kernel ({first.op} {first.dtype.name}, {other.op} {other.dtype.name})"
            )
    total = sum(weights)
    names = dict.fromkeys(model.model for item in works for model in item.candidates)
    candidates = []
    for name in names:
        # A shape that lacks this candidate (a captured context has no range) takes part with its own figure.
        same = [next((m for m in item.candidates if m.model == name), item.candidates[0]) for item in works]
        nbytes = sum(weight * model.bytes for weight, model in zip(weights, same)) / total
        flops = sum(weight * model.flops for weight, model in zip(weights, same)) / total
        listed = all(model.in_range for model in same)
        candidates.append(ByteModel(name, nbytes, flops, in_range=listed))
    notes = (note(f"{len(works)} captured shapes, the first: {first.notes[0].text}"),)
    return first._replace(candidates=tuple(candidates), notes=notes)


def scaled(done: Work, factor: float) -> Work:
    """The same work at another amount: what a kernel that runs at this rate does in ``factor`` times the time."""
    models = (ByteModel(m.model, m.bytes * factor, m.flops * factor, in_range=m.in_range) for m in done.candidates)
    return done._replace(candidates=tuple(models))


def spread(folded: Work, works: Sequence[Work]) -> Work:
    """``folded`` with each shape's own figure in its range, for when one time cannot be shared out among them."""
    own = (ByteModel(f"shape_{at}", item.bytes, item.flops) for at, item in enumerate(works, 1))
    return folded._replace(candidates=(*folded.candidates, *own))


def roofs(works: Sequence[Work], peaks: Peaks) -> list[str]:
    """The roof each shape walks toward: ratios on different roofs are never averaged."""
    _, rate = peaks.compute_axis(works[0].engine, works[0].dtype.peak)
    if not rate or not peaks.hbm_bw_bytes_s:
        return ["memory"] * len(works)
    bandwidth = peaks.hbm_bw_bytes_s
    return ["compute" if item.flops * bandwidth > item.bytes * rate else "memory" for item in works]


def heaviest(labels: Sequence[str], weights: Sequence[float]) -> tuple[str, float]:
    """The label with most weight, and the share of the weight that the others have."""
    totals: dict[str, float] = {}
    for label, weight in zip(labels, weights):
        totals[label] = totals.get(label, 0.0) + weight
    best = max(totals, key=lambda label: totals[label])
    return best, 1.0 - totals[best] / sum(weights)
