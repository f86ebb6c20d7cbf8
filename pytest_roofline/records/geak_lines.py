"""What a GEAK task's unittest prints: ``GEAK_PER_CASE [{"sig": ..., "baseline_ms": ..., "optimized_ms": ...}]``.

Times are ms by their keys, medians of device events. Baseline and optimized are the same kernel before and after, so the
baseline is ``previous``. The geomean, weighted and v3 latency lines mix shapes and are no rows. ``RESULT PASS|FAIL`` is of the
list before it. A case has a name and no sizes: those are of the case of that name in the task's ``meta.json``, where one lies
beside.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

from .row import RecordRow
from .source import RefusedError, Sample, Source, parse
from .task_meta import META, Task, Workload, beside
from .values import count, label, mapping, maybe_seconds, ratio, shown, timed

NAME = "GEAK unittest output"

_KNOWN = re.compile(r"^[ \t]*GEAK_[A-Z_]+[ =:]", re.MULTILINE)
CASES = re.compile(r"\s*GEAK_PER_CASE\s*[=:]?\s*(?=\[)")
_RESULT = re.compile(r"\s*RESULT\s+(PASS|FAIL)\b")
_UNTRUSTED = re.compile(r"\s*GEAK_[A-Z_]*SPEEDUP[ =:].*\buntrusted\b", re.IGNORECASE)
#: The speedup is printed with three or four digits.
_ROUNDING = 0.002


def matches(sample: Sample) -> bool:
    """Lines of its markers anywhere in the start."""
    return _KNOWN.search(sample.text) is not None


def read(source: Source) -> Iterator[RecordRow]:
    """A row per case, in order.

    Raises:
        RefusedError: where there is no list of cases, or one that is no JSON.
    """
    waiting: list[RecordRow] = []
    lists, task = 0, beside(source.path)
    for number, line in enumerate(source.lines(), 1):
        result, cases = _RESULT.match(line), CASES.match(line)
        if result:
            passed = result[1] == "PASS"
            yield from (dataclasses.replace(record, correct=passed) for record in waiting)
            waiting = []
        elif cases:
            yield from waiting
            lists += 1
            listed = parse(line[cases.end() :], f"{source.label}: line {number}: GEAK_PER_CASE")
            waiting = [_case(case, f"line {number}: [{at}]", task) for at, case in enumerate(listed)]
        elif _UNTRUSTED.match(line):
            note = ("the harness itself calls the speedup untrusted",)
            waiting = [dataclasses.replace(record, notes=record.notes + note) for record in waiting]
    yield from waiting
    if not lists:
        raise RefusedError(f"{source.label}: no GEAK_PER_CASE line with a list; a speedup over all shapes has no roof")


def _case(case: Any, where: str, task: Task) -> RecordRow:
    case = mapping(case)
    name = label(case.get("sig")) or label(case.get("name"))
    if not case:
        return RecordRow(row=where, refused="expected an object with sig, baseline_ms and optimized_ms")
    baseline, notes = maybe_seconds(case.get("baseline_ms"), "baseline_ms", "ms")
    known = _agreeing(task.case(name), case.get("m"))
    printed = ratio(case.get("speedup"))
    record = timed(
        where,
        case.get("optimized_ms"),
        "optimized_ms",
        "ms",
        name=name,
        work=known.work,
        no_work=known.reason,
        clock="device-event",
        rounds=count(case.get("reps")),
        baseline_kind="previous",
        baseline_t_s=baseline,
        speedup=printed if baseline is None else None,
        notes=(*notes, *known.notes),
    )
    notes = record.notes
    if record.t_s is None or baseline is None:
        return record
    if baseline == record.t_s:
        notes += ("baseline_ms and optimized_ms are equal to the last digit: was the same leg timed twice?",)
    if printed is not None and abs(printed * record.t_s / baseline - 1) > _ROUNDING:
        notes += (f"speedup is {shown(case['speedup'])}, its own times give {baseline / record.t_s:.4g}",)
    return dataclasses.replace(record, notes=notes)


def _agreeing(known: Workload, m: object) -> Workload:
    """The case where the rows that were timed are its own; a task may have been made anew since."""
    if known.work is None or m is None or known.work.get("M", m) == m:
        return known
    return known._replace(work=None, reason=f"{META} has M = {known.work['M']} for this case, and m is {shown(m)} here")
