"""Several captured shapes under one kernel name: their work as one, weighted by how often each ran."""

from __future__ import annotations

from collections.abc import Sequence

from .entry import ByteModel
from .models import Work
from .peaks import Peaks


def mean(works: Sequence[Work], calls: Sequence[float], peaks: Peaks) -> tuple[Work, bool]:
    """The mean work of one unit over all calls, and whether the shapes stand on different roofs.

    Mean bytes over the Top-N's mean time is total bytes over total time: the ratio of the whole, where the commonest
    shape alone would overstate or understate it. Shapes on different roofs share no ratio; the caller gives no verdict.

    Raises:
        ValueError: when the shapes are of different ops or dtypes.
    """
    first = works[0]
    for other in works[1:]:
        if (other.op, other.dtype, other.engine) != (first.op, first.dtype, first.engine):
            raise ValueError(
                f"cases of different kinds under one kernel ({first.op} {first.dtype.name}, {other.op} {other.dtype.name})"
            )
    total = sum(calls)
    by_name = [{model.model: model for model in item.candidates} for item in works]
    candidates = []
    for model in first.candidates:
        if all(model.model in found for found in by_name):
            same = [found[model.model] for found in by_name]
            candidates.append(
                ByteModel(
                    model.model,
                    sum(weight * item.bytes for weight, item in zip(calls, same)) / total,
                    sum(weight * item.flops for weight, item in zip(calls, same)) / total,
                    in_range=model.in_range,
                )
            )
    _, rate = peaks.compute_axis(first.engine, first.dtype.peak)
    sides = set()
    if rate and peaks.hbm_bw_bytes_s:
        sides = {item.flops * peaks.hbm_bw_bytes_s > item.bytes * rate for item in works}
    notes = (f"{len(works)} captured shapes, the mean over {total:g} calls", *first.notes[:1], "and others")
    return first._replace(candidates=tuple(candidates), notes=notes), len(sides) > 1
