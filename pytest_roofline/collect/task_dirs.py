"""Extracted task folders, ``meta.json`` next to ``unittest.py``: an item per case, and one run of the harness for all cases.

The exit status of the harness is its verdict: 0 right, 1 wrong, 2 the environment is missing, 3 the harness is incomplete. Its
output has the time of each case (``records.formats.geak``). Only the harness opens the recorded inputs and outputs
(``reference_io.pt``), which are a pickle.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from roofline_engine.units import half_digit, is_time, printable

from ..records.cases import cases_of_records
from ..records.formats.geak import CASES, META, UNITTEST, Task, Workload, read_task
from ..records.source import RecordRow, RefusedError, open_source
from . import child
from .items import ChildFile, ChildItem, scratch, unique_names

#: Printed by harnesses older than per-case lists. For several shapes it is their mean, which is not a row.
_LATENCY = re.compile(r"\s*GEAK_RESULT_LATENCY_MS=(?P<ms>[0-9.eE+-]+)(?:\s+(?:case(?:_id)?=)?(?P<case>\S+))?\s*$")
_SHAPES = re.compile(r"\s*GEAK_SHAPES_USED=\[(?P<shapes>[^\]]*)\]")
_INCOMPLETE = re.compile(r"\s*UT_HARNESS_INCOMPLETE:?\s*(?P<why>.*)")
_RESULT = re.compile(r"\s*RESULT\s+(?:PASS|FAIL)\b.*")
#: The most marked lines of one run that are kept; a run prints one list.
_MOST_LINES = 10_000
NO_TIME = "the harness printed no time for this case"


def is_task(path: Path) -> bool:
    """Return whether a file is the harness of a task folder."""
    return path.name == "unittest.py" and path.with_name(META).is_file()


class _HarnessRun(NamedTuple):
    """One run of the harness."""

    records: dict[str, RecordRow]  # the cases by name
    single: RecordRow | None = None  # a time without a name
    problem: str = ""  # why the run failed
    code: int = 0  # the exit status
    result: str = ""  # its RESULT line
    incomplete: str = ""  # why the harness is incomplete, by its own words
    unread: str = ""  # why the list of cases is unreadable
    nodeid: str = ""  # the item that started it and whose report has the output

    @property
    def without_time(self) -> RecordRow:
        """The record of a case for which the harness printed no time."""
        return RecordRow(row=META, notes=(self.unread or NO_TIME,))


class TaskDir(ChildFile):
    """The folder of one task."""

    def __init__(self, **of_pytest: Any) -> None:
        super().__init__(**of_pytest)
        self.task = Task()
        self._last: _HarnessRun | None = None
        self._served: set[str] = set()  # the items that have used the last run

    def collect(self) -> Iterator[ChildItem]:
        self.task = read_task(self.path.with_name(META))
        cases = self.task.cases
        if not cases:
            yield WholeTask.from_parent(self, name=self.path.parent.name or "task")
        for name, case in zip(unique_names([case.name for case in cases]), cases):
            yield TaskCase.from_parent(self, name=name, case=case)

    def harness_run(self, item: pytest.Item) -> _HarnessRun:
        """Return the run of the harness: a new one for the first item, and for an item that asks again (a rerun)."""
        if self._last is None or item.nodeid in self._served:
            self._served = set()
            self._last = self._run(item)
        self._served.add(item.nodeid)
        return self._last

    def _run(self, item: pytest.Item) -> _HarnessRun:
        with scratch() as folder:
            child_exit = self.run(item, folder, folder="last")
            harness = _read_output(child_exit.out)
            is_usage = "usage:" in child.excerpt(child_exit.err)  # argparse also exits with 2
            code = 1 if child_exit.problem and (child_exit.code not in (1, 2, 3) or is_usage) else child_exit.code
            code = 3 if code == 1 and harness.incomplete else code  # a harness that prints its sentinel and exits with 1
            head = harness.result or harness.incomplete if code in (1, 3) else ""
            problem = child_exit.message(head) if child_exit.problem else ""
            return harness._replace(problem=problem, code=code, nodeid=item.nodeid)


class _TaskItem(ChildItem):
    @property
    def folder(self) -> TaskDir:
        assert isinstance(self.parent, TaskDir)
        return self.parent

    def run_harness(self) -> _HarnessRun:
        """Return a successful run of the harness; a failed run is the outcome of this item."""
        harness = self.folder.harness_run(self)
        if harness.problem:
            message = harness.problem
            if harness.nodeid != self.nodeid:
                message = f"{message.splitlines()[0]} (see {harness.nodeid})"
            if harness.code == 2:
                pytest.skip(f"environment missing: {message}")
            if harness.code == 3:
                pytest.xfail(f"harness incomplete: {harness.incomplete or message}")
            pytest.fail(message, pytrace=False)
        return harness


class TaskCase(_TaskItem):
    """One case of the workload."""

    def __init__(self, *, case: Workload, **of_pytest: Any) -> None:
        super().__init__(**of_pytest)
        self.case = case

    def runtest(self) -> None:
        harness = self.run_harness()
        task, case = self.folder.task, self.case
        single = harness.single if len(task.cases) == 1 else None
        record = harness.records.get(case.name) or single or harness.without_time
        record = dataclasses.replace(
            record,
            name=case.name,
            work=case.work,
            no_work=case.reason,
            notes=(*record.notes, *case.notes, *([task.problem] if task.problem else [])),
        )
        self.roofline_cases = _as_cases([record], task, nodeid="")


class WholeTask(_TaskItem):
    """A task whose meta.json lists no cases: a row per case that its harness prints."""

    def runtest(self) -> None:
        harness = self.run_harness()
        task = self.folder.task
        records = list(harness.records.values()) or [harness.single or harness.without_time]
        self.roofline_cases = _as_cases([dataclasses.replace(record, no_work=task.problem) for record in records], task)


def _as_cases(records: list[RecordRow], task: Task, **more: Any) -> list[Any]:
    return [
        dataclasses.replace(
            case,
            test=task.kernel or case.test,
            pct_gpu_time=task.pct_gpu_time,
            declaration=dataclasses.replace(case.declaration, kernel=task.kernel or None),
            **more,
        )
        for case in cases_of_records(records, {}, META)
    ]


def _read_output(out: Path) -> _HarnessRun:
    """Read what a harness printed."""
    records: dict[str, RecordRow] = {}
    unread, result, incomplete, shapes = "", "", "", None
    singles: list[RecordRow] = []
    marked: list[str] = []
    for number, line in enumerate(child.lines(out), 1):
        if line.lstrip().startswith(("GEAK_", "RESULT ")) and len(marked) < _MOST_LINES:
            marked.append(line)
        latency, used, why = _LATENCY.match(line), _SHAPES.match(line), _INCOMPLETE.match(line)
        if latency:
            record = _latency(latency["ms"], f"line {number}")
            if latency["case"]:
                records[latency["case"]] = dataclasses.replace(record, name=latency["case"])
            else:
                singles.append(record)
        elif used:
            shapes = sum(1 for part in used["shapes"].split(",") if part.strip())
        elif why:
            incomplete = printable(why["why"])[:300] or "UT_HARNESS_INCOMPLETE"
        elif _RESULT.match(line):
            result = printable(line.strip())[:300]
    transcript = out.with_name("unittest.py")  # messages name this file
    transcript.write_text("\n".join(marked), encoding="utf-8")
    if any(map(CASES.match, marked)):
        with open_source(transcript) as source:
            try:
                records.update((record.name, record) for record in UNITTEST.read(source))
            except RefusedError as error:
                unread = "" if records or singles else str(error)
    single = singles[-1] if singles and shapes in (None, 1) else None
    return _HarnessRun(records=records, single=single, result=result, incomplete=incomplete, unread=unread)


def _latency(text: str, row: str) -> RecordRow:
    try:
        t_s = float(text) / 1e3
    except ValueError:
        t_s = 0.0
    if not is_time(t_s):
        return RecordRow(row=row, refused=f"GEAK_RESULT_LATENCY_MS is {text[:40]}, expected a time in ms", refused_code="time")
    rounding = half_digit(text, float(text))
    return RecordRow(row=row, t_s=t_s, rounding=rounding, clock="device-event", placeholder_time=float(text) == 1)
