"""Extracted task folders, ``meta.json`` beside ``unittest.py``: an item per case, one run of the harness for all of them.

The harness says by its exit status what came of it (0 right, 1 wrong, 2 no environment for it, 3 the harness itself is
incomplete) and by its lines how long each case took (``records.geak_lines``). The recorded inputs and outputs beside it
(``reference_io.pt``) are the harness's own business: a pickle, which is not opened here.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from roofline_engine.units import printable

from ..recorded import of_records
from ..records import geak_lines
from ..records.row import RecordRow
from ..records.source import RefusedError, open_source
from ..records.task_meta import META, Task, Workload, of_file
from ..records.values import PER_SECOND
from . import child
from .items import ChildFile, ChildItem, own_names, scratch

#: Of a harness from before per-case lists; over several shapes it is their mean and no row.
_LATENCY = re.compile(r"\s*GEAK_RESULT_LATENCY_MS=(?P<ms>[0-9.eE+-]+)(?:\s+(?:case(?:_id)?=)?(?P<case>\S+))?\s*$")
_SHAPES = re.compile(r"\s*GEAK_SHAPES_USED=\[(?P<shapes>[^\]]*)\]")
_INCOMPLETE = re.compile(r"\s*UT_HARNESS_INCOMPLETE:?\s*(?P<why>.*)")
_RESULT = re.compile(r"\s*RESULT\s+(?:PASS|FAIL)\b.*")
#: Of the lines of one run no more are held: a run prints one list.
_MOST_LINES = 10_000
NO_TIME = "the harness printed no time of this case"


def is_task(path: Path) -> bool:
    """Whether a file is the harness of a task folder."""
    return path.name == "unittest.py" and path.with_name(META).is_file()


class _Said(NamedTuple):
    """What one run said. records: of its cases by name. single: a time that no name goes with. shown: whose report has it."""

    records: dict[str, RecordRow]
    single: RecordRow | None = None
    problem: str = ""
    code: int = 0
    result: str = ""
    incomplete: str = ""
    unread: str = ""
    shown: str = ""


class TaskDir(ChildFile):
    """The folder of one task."""

    def __init__(self, **of_pytest: Any) -> None:
        super().__init__(**of_pytest)
        self.task = Task()
        self._said: _Said | None = None
        self._told: set[str] = set()

    def collect(self) -> Iterator[ChildItem]:
        self.task = of_file(self.path.with_name(META))
        cases = self.task.cases
        if not cases:
            yield WholeTask.from_parent(self, name=self.path.parent.name or "task")
        for name, case in zip(own_names([case.name for case in cases]), cases):
            yield TaskCase.from_parent(self, name=name, case=case)

    def said(self, item: pytest.Item) -> _Said:
        """What the harness said, run for the first item that asks and again for one that asks a second time (a rerun)."""
        if self._said is None or item.nodeid in self._told:
            self._told = set()
            self._said = self._run(item)
        self._told.add(item.nodeid)
        return self._said

    def _run(self, item: pytest.Item) -> _Said:
        with scratch() as folder:
            ended = self.run(item, folder, folder="last")
            said = _lines(ended.out)
            usage = "usage:" in child.excerpt(ended.err)  # argparse also ends with 2
            code = 1 if ended.problem and (ended.code not in (1, 2, 3) or usage) else ended.code
            code = 3 if code == 1 and said.incomplete else code  # its sentinel, in a harness that does not translate it
            head = said.result or said.incomplete if code in (1, 3) else ""
            return said._replace(problem=ended.told(head) if ended.problem else "", code=code, shown=item.nodeid)


class _TaskItem(ChildItem):
    @property
    def folder(self) -> TaskDir:
        assert isinstance(self.parent, TaskDir)
        return self.parent

    def outcome(self) -> _Said:
        """What the harness said, where it ran and was right; else this item's outcome is what came of it."""
        said = self.folder.said(self)
        if said.problem:
            told = said.problem if said.shown == self.nodeid else f"{said.problem.splitlines()[0]} (as {said.shown})"
            if said.code == 2:
                pytest.skip(f"no environment for it: {told}")
            if said.code == 3:
                pytest.xfail(f"harness incomplete: {said.incomplete or told}")
            pytest.fail(told, pytrace=False)
        return said


class TaskCase(_TaskItem):
    """One case of the workload."""

    def __init__(self, *, case: Workload, **of_pytest: Any) -> None:
        super().__init__(**of_pytest)
        self.case = case

    def runtest(self) -> None:
        said = self.outcome()
        task, case = self.folder.task, self.case
        record = said.records.get(case.name)
        if record is None and len(task.cases) == 1:
            record = said.single
        if record is None:
            record = RecordRow(row=META, notes=(said.unread or NO_TIME,))
        record = dataclasses.replace(
            record,
            name=case.name,
            work=case.work,
            no_work=case.reason,
            notes=(*record.notes, *case.notes, *([task.problem] if task.problem else [])),
        )
        self.roofline_cases = _as_cases([record], task, "")


class WholeTask(_TaskItem):
    """A task whose meta.json lists no case: a row per case that its harness prints."""

    def runtest(self) -> None:
        said = self.outcome()
        task = self.folder.task
        records = [dataclasses.replace(record, no_work=task.problem) for record in said.records.values()]
        if not records:
            records = [said.single or RecordRow(row=META, notes=(said.unread or NO_TIME,))]
            records = [dataclasses.replace(records[0], no_work=task.problem)]
        self.roofline_cases = _as_cases(records, task, None)


def _as_cases(records: list[RecordRow], task: Task, label: str | None) -> list[Any]:
    found = of_records(records, {}, META)
    share = task.pct_gpu_time
    more: dict[str, Any] = {} if label is None else {"nodeid": label}
    return [
        dataclasses.replace(
            case,
            test=task.kernel or case.test,
            pct_gpu_time=share,
            declared=dataclasses.replace(case.declared, kernel=task.kernel or None),
            **more,
        )
        for case in found
    ]


def _lines(out: Path) -> _Said:
    """What a harness printed."""
    records: dict[str, RecordRow] = {}
    unread, result, incomplete, shapes = "", "", "", None
    singles: list[RecordRow] = []
    marked: list[str] = []
    for number, line in enumerate(child.lines(out, b"GRU"), 1):
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
            shapes = len([part for part in used["shapes"].split(",") if part.strip()])
        elif why:
            incomplete = printable(why["why"])[:300] or "UT_HARNESS_INCOMPLETE"
        elif _RESULT.match(line):
            result = printable(line.strip())[:300]
    listed = out.with_name("unittest.py")  # by this name messages call what it printed
    listed.write_text("\n".join(marked), encoding="utf-8")
    with open_source(listed) as source:
        try:
            records.update((record.name, record) for record in geak_lines.read(source))
        except RefusedError as error:
            unread = "" if records or singles or "no GEAK_PER_CASE" in str(error) else str(error)
    single = singles[-1] if singles and shapes in (None, 1) else None
    return _Said(records=records, single=single, result=result, incomplete=incomplete, unread=unread)


def _latency(text: str, row: str) -> RecordRow:
    try:
        t_s = float(text) / PER_SECOND["ms"]
    except ValueError:
        t_s = 0.0
    if not 0 < t_s < float("inf"):
        return RecordRow(row=row, refused=f"GEAK_RESULT_LATENCY_MS is {text[:40]}, no time")
    return RecordRow(row=row, t_s=t_s, clock="device-event", hand_written=float(text) == 1)
