"""GEAK's op_bench JSON: one op, a row per backend, with the backend in use as the baseline.

Times are ms by their keys, device events. The baseline is another backend's kernel: ``reference``. ``isolated_speedup`` null
means never timed, and 0.0 in old files the same or "not faster": both are missing. ``measurement_mode`` is the cache. The
record has no sizes: they are of the ``meta.json`` beside, where that has one case of the same op.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .row import RecordRow
from .source import RefusedError, Sample, Source, document, outline
from .task_meta import META, Task, Workload, beside
from .values import flag, label, mapping, maybe_seconds, ratio, timed

NAME = "GEAK op_bench JSON"


def matches(sample: Sample) -> bool:
    """An op with backends."""
    keys = outline(sample.text)
    return ".op_kind" in keys and not keys.isdisjoint((".results[].backend", ".winner_backend", ".winner_ms"))


def read(source: Source) -> Iterator[RecordRow]:
    """A row per backend; of a file without ``results``, its winner.

    Raises:
        RefusedError: where the file is no JSON or has neither.
    """
    whole = document(source)
    results = whole.get("results") if isinstance(whole, dict) else None
    known = _workload(whole, beside(source.path)) if isinstance(whole, dict) else Workload("", None)
    if isinstance(results, list) and results:
        for at, result in enumerate(results):
            yield _row(whole, mapping(result), f"results[{at}]", "ms", known)
    elif isinstance(whole, dict) and whole.get("winner_ms") is not None:
        winner = {"backend": whole.get("winner_backend"), "winner_ms": whole["winner_ms"]}
        yield _row(whole, winner, "winner", "winner_ms", known)
    else:
        raise RefusedError(f"{source.label}: no results and no winner_ms, expected a list of backends with ms")


def _row(whole: Mapping[str, Any], result: Mapping[str, Any], where: str, key: str, known: Workload) -> RecordRow:
    backend = label(result.get("backend"))
    name = "/".join(part for part in (label(whole.get("task")) or label(whole.get("op_kind")), backend) if part)
    why = _unusable(whole, result)
    if why:
        return RecordRow(row=where, name=name, refused=why, correct=flag(result.get("correct")))
    baseline, notes = maybe_seconds(whole.get("baseline_ms"), "baseline_ms", "ms")
    if whole.get("baseline_ms") == result.get(key):
        baseline = None  # this row is the baseline
    if whole.get("harness_suspect") is True:
        notes += ("the harness calls its own run suspect",)
    mode = whole.get("measurement_mode")
    winner = backend == label(whole.get("winner_backend"))
    return timed(
        where,
        result.get(key),
        key,
        "ms",
        name=name,
        work=known.work,
        no_work=known.reason,
        clock="device-event",
        wall_s=maybe_seconds(result.get("wall_ms"), "wall_ms", "ms")[0],
        cache=mode if mode in ("cold", "warm") else "unknown",
        baseline_kind="reference",
        baseline_t_s=baseline,
        speedup=ratio(whole.get("isolated_speedup")) if winner and whole.get("baseline_ms") is None else None,
        correct=flag(result.get("correct")),
        notes=(*notes, *known.notes),
    )


def _workload(whole: Mapping[str, Any], task: Task) -> Workload:
    """What was timed, where the task leaves no choice."""
    kind = label(whole.get("op_kind"))
    if not task.cases:
        return Workload("", None, task.problem)
    if task.kind != kind:
        return Workload("", None, f"{META} beside is of op_kind {task.kind or 'unknown'}, this of {kind or 'unknown'}")
    if len(task.cases) > 1:
        return Workload("", None, f"{META} has {len(task.cases)} cases, and which was timed is not told")
    return task.cases[0]


def _unusable(whole: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    if whole.get("measured") is False:
        return "measured is false: nothing was timed"
    if not result:
        return "expected an object with backend and ms"
    if result.get("available") is False:
        return "available is false: the backend did not run"
    if result.get("raised") not in (None, False):
        return "raised: the backend failed"
    return ""
