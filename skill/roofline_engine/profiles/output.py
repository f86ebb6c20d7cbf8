"""What a profile adds to the artifact: the table by operation, the time besides kernels, what has no verdict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..fields import Entry
from ..inputs import ENV_NAME, SHAPES_NAME, TOPN_NAME, Times
from ..kernels import classify
from ..peaks import Device
from .form import Profile, Timeline
from .rows import OpRow, named_apart, shapes_of, topn_of

#: Operations without a model that are named.
_NAMED = 5


class Op(NamedTuple):
    """One operation of a profile with its verdict."""

    entry: Entry
    row: OpRow


class Covered(NamedTuple):
    """How much of the kernels' time has a verdict, in percent."""

    verdict: float  # a class
    reason: float  # no class, for a reason other than a missing model
    no_model: float
    largest: tuple[tuple[str, float], ...]  # operations without a model, with their shares, the largest first
    reasons: Mapping[str, float]  # the reasons with their shares


def cover(ops: Sequence[Op]) -> Covered:
    """Return what share of the time has a verdict, a reason, or no model."""
    verdict = reason = no_model = 0.0
    names: dict[str, float] = defaultdict(float)
    reasons: dict[str, float] = defaultdict(float)
    for op in ops:
        if op.row.inside:
            continue
        share, entry = op.entry.pct_gpu_time or 0.0, op.entry
        if entry.headroom_class != "unknown":
            verdict += share
        elif entry.unknown_reason != "unmodelled" or is_outside(entry) or op.row.row.missing:
            reason += share
            outside = classify(entry.name).op if is_outside(entry) else op.row.row.missing
            reasons[outside if entry.unknown_reason == "unmodelled" else entry.unknown_reason or "unknown"] += share
        else:
            no_model += share
            names[entry.framework_op or entry.short_name] += share
    largest = sorted(names.items(), key=lambda item: -item[1])[:_NAMED]
    return Covered(verdict, reason, no_model, tuple(largest), dict(sorted(reasons.items(), key=lambda item: -item[1])))


def is_outside(entry: Entry) -> bool:
    """Return whether a kernel is no work that a roofline of memory and compute judges: communication, a copy of the runtime."""
    return classify(entry.name).op in ("collective", "memcpy")


def profile_fields(profile: Profile, ops: Sequence[Op], remarks: Sequence[str] = ()) -> dict[str, object]:
    """Return the fields that a profile adds to the artifact; remarks: which files of a folder were read, and which were not."""
    covered = cover(ops)
    return {
        "source": {"format": profile.source, "file": profile.label, "rank": profile.rank, "remarks": list(remarks)},
        "timeline": [timeline_fields(timeline) for timeline in profile.timelines],
        "coverage": {
            "verdict_pct": covered.verdict,
            "reason_pct": covered.reason,
            "reasons_pct": dict(covered.reasons),
            "no_model_pct": covered.no_model,
            "no_model": [{"name": name, "pct_gpu_time": share} for name, share in covered.largest],
        },
        "ops": [op_fields(op) for op in ops],
    }


def timeline_fields(timeline: Timeline) -> dict[str, object]:
    """Return the times of one device as the artifact has them: microseconds, and their shares of the span."""
    fields: dict[str, object] = dict(timeline._asdict())
    shares = {
        f"{name[: -len('_us')]}_pct": 100.0 * value / timeline.span_us if timeline.span_us else 0.0
        for name, value in timeline._asdict().items()
        if name.endswith("_us") and name != "span_us"
    }
    return {**fields, **shares}


def op_fields(op: Op) -> dict[str, object]:
    """Return one row of ``ops``."""
    entry, row = op.entry, op.row
    facts = row.facts
    return {
        "op": entry.op,
        "aten": entry.framework_op,
        "shape": _plain(facts.shapes) if facts else None,
        "dtypes": list(facts.dtypes) if facts else None,
        "regime": entry.regime,
        "calls": row.times.calls,
        "t_us": times_fields(row.times),
        "pct_gpu_time": None if row.inside else entry.pct_gpu_time,
        "inside": row.inside or None,
        "flops_est": entry.flops_est,
        "bytes_est": entry.bytes_est,
        "roofline_pct": entry.roofline_pct,
        "roof_axis": entry.roof_axis,
        "headroom_class": entry.headroom_class,
        "unknown_reason": entry.unknown_reason,
        "attainable_speedup": entry.attainable_speedup,
        "notes": "; ".join(note.text for note in entry.notes),
        "kernels": [
            {
                "name": use.name,
                "launches": use.launches,
                "total_us": use.total_us,
                "grid": list(use.grid),
                "block": list(use.block),
            }
            for use in row.kernels
        ],
    }


def topn_documents(profile: Profile, device: str | None = None) -> dict[str, dict[str, object]]:
    """Return the files of a run that ``analyze`` and the skill start from, by name.

    device: its name, in place of what the profile says.
    """
    rows = named_apart(topn_of(profile).rows)
    kernels = []
    for row in rows:
        kernel: dict[str, object] = {
            "name": row.name,
            "short_name": row.short_name,
            "pct_gpu_time": row.pct,
            "calls": row.calls,
            "base_latency_ms": row.avg_ms,
            "regime": row.regime or "unknown",
            "framework_op": row.framework_op,
            "shape": row.shape,
        }
        kernels.append({key: value for key, value in kernel.items() if value is not None})
    facts = Device(device_name=device) if device else profile.device
    env = {key: value for key, value in facts._asdict().items() if value is not None}
    total = profile.total_us or sum(unit.times.total_us for unit in profile.units)
    return {
        TOPN_NAME: {"source": profile.label, "total_gpu_time_ms": total / 1e3, "top_kernels": kernels},
        SHAPES_NAME: dict(shapes_of(rows)),
        ENV_NAME: {"source": profile.label, **env},
    }


def times_fields(times: Times) -> dict[str, float | None]:
    """Return the times of one row in microseconds."""
    return {
        "mean": times.mean_us,
        "median": times.median_us,
        "min": times.min_us,
        "max": times.max_us,
        "total": times.total_us,
    }


def _plain(value: Any) -> Any:
    return list(map(_plain, value)) if isinstance(value, tuple) else value
