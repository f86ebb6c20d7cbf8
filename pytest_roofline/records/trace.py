"""Trace JSON lines of flashinfer-bench and SOL-ExecBench: a workload, and what a solution took on it (``latency_ms``).

A trace names a definition, whose axes, shapes and dtypes give the work; it is looked up beside the traces and in a
``definitions`` folder above them. The baseline is the definition's torch reference: ``reference``, where 1000x is usual.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .definitions import Definitions
from .row import RecordRow
from .source import RefusedError, Sample, Source, each_line, outline
from .values import label, mapping, maybe_seconds, ratio, timed

NAME = "Trace JSON lines"

_WORKLOAD = {".axes", ".inputs", ".uuid"}
_TRACE = {".definition", ".workload"}
#: Statuses in which the output was looked at and found wrong.
_WRONG = ("INCORRECT", "REWARD_HACK")


def matches(sample: Sample) -> bool:
    """A line that is a trace or a workload."""
    keys = outline(sample.first)
    return keys >= _TRACE or (keys >= _WORKLOAD and ".outputs" not in keys)


def read(source: Source) -> Iterator[RecordRow]:
    """A row per line, as it is read."""
    definitions = Definitions(source.path.parent)
    for number, line in each_line(source):
        where = f"line {number}"
        yield RecordRow(row=where, refused=str(line)) if isinstance(line, RefusedError) else _row(line, where, definitions)


def _row(line: Any, where: str, definitions: Definitions) -> RecordRow:
    if not isinstance(line, dict):
        return RecordRow(row=where, refused="expected an object with definition, workload and evaluation")
    named = line.get("definition")
    workload = mapping(line.get("workload")) if "workload" in line else line
    evaluation = mapping(line.get("evaluation"))
    work, why, notes = definitions.work(named if isinstance(named, str) else None, workload)
    solution = label(line.get("solution"))
    fields: dict[str, Any] = {
        "name": label(named),
        "work": work,
        "no_work": why,
        "device": label(mapping(evaluation.get("environment")).get("hardware")) or None,
        "notes": (*notes, *((f"solution {solution}",) if solution else ())),
    }
    if not evaluation:
        return RecordRow(row=where, refused="no time: a workload that was not evaluated", **fields)
    status = evaluation.get("status")
    if status != "PASSED":
        wrong = isinstance(status, str) and status.startswith(_WRONG)
        said = f"status is {label(status) or 'missing'}, so it was not timed"
        return RecordRow(row=where, refused=said, correct=False if wrong else None, **fields)
    times = mapping(evaluation.get("performance"))
    baseline, problem = maybe_seconds(times.get("reference_latency_ms"), "reference_latency_ms", "ms")
    fields["notes"] += problem
    return timed(
        where,
        times.get("latency_ms"),
        "latency_ms",
        "ms",
        clock="device-event",
        baseline_kind="reference",
        baseline_t_s=baseline,
        speedup=ratio(times.get("speedup_factor")) if baseline is None else None,
        correct=True,
        **fields,
    )
