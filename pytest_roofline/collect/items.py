"""Items of collected files: a child process per item, and the cases that the item gets from it.

Also files with functions that another program calls, ``perf_report`` benchmarks and KernelBench problems. Their items follow
from the syntax tree of the file. Each runs in a child process, which imports the file (``child_main``).
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from roofline_engine.units import printable

from ..capture.watching import declare_captured, ran_in_interpreter
from ..config import Settings
from ..declare import Declaration, matches
from ..records.source import RecordRow
from ..row import read_part
from ..testcase import Case
from .child import LONGEST_LINE, ChildExit, ChildRow, excerpt, run

NO_TIME = "the benchmark gave a rate and no time"


class ChildFile(pytest.File):
    """A file that this process never imports."""

    def __init__(self, *, settings: Settings, **of_pytest: Any) -> None:
        super().__init__(**of_pytest)
        self.settings = settings

    def run(
        self,
        item: pytest.Item,
        scratch: Path,
        arguments: Sequence[str] = (),
        *,
        main: Sequence[str] | None = None,
        folder: str = "first",
        cwd: Path | None = None,
    ) -> ChildExit:
        """Run this file, or ``child_main`` with the arguments ``main``, and add its output to the report of ``item``."""
        try:
            child_exit = run(
                self.path if main is None else None,
                arguments if main is None else main,
                folder=folder,
                cwd=cwd or self.path.parent,
                limit=self.settings.item_timeout,
                scratch=scratch,
                paths=[str(path) for path in self.config.getini("pythonpath")],
            )
        except OSError as error:
            pytest.fail(f"{self.path.name} could not be started: {error}", pytrace=False)
        for name, path in (("stdout", child_exit.out), ("stderr", child_exit.err)):
            text = excerpt(path)
            if text:
                item.add_report_section("call", name, text)
        return child_exit


class ChildItem(pytest.Item):
    """A test whose rows come from a child process.

    ``testcase.Cases`` takes the attribute ``roofline_cases`` of an item as the cases of that item.
    """

    def __init__(self, *, line: int = 0, **of_pytest: Any) -> None:
        super().__init__(**of_pytest)
        self.line = line
        self.roofline_cases: list[Case] = []

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.line, self.name


@contextmanager
def scratch() -> Iterator[Path]:
    """Make a temporary folder for the output of one child."""
    try:
        temporary = tempfile.TemporaryDirectory(prefix="roofline-", ignore_cleanup_errors=True)
    except OSError as error:
        pytest.fail(f"no temporary folder for its output: {error}", pytrace=False)
    with temporary as folder:
        yield Path(folder).resolve()


def unique_names(names: Sequence[str]) -> list[str]:
    """Return distinct item names for a file, without ``::``, which separates the parts of a nodeid."""
    unique: dict[str, None] = {}
    for name in names:
        base = name.replace("::", ":")
        candidate, number = base, 2
        while candidate in unique:
            candidate, number = f"{base}-{number}", number + 1
        unique[candidate] = None
    return list(unique)


class FunctionItem(ChildItem):
    """A ``perf_report`` function, whose rows come from ``child_main``."""

    kind = "perf_report"

    def argument(self) -> str:
        """Return what ``child_main`` gets besides the file: the function's name."""
        return self.name

    def is_timed(self) -> bool:
        """Return whether each row should have a time."""
        return True

    def runtest(self) -> None:
        file = self.parent
        assert isinstance(file, ChildFile)
        self.roofline_cases = []
        with scratch() as folder:
            rows = folder / "rows"
            child_exit = file.run(self, folder, main=(str(rows), self.kind, str(self.path), self.argument()))
            self.roofline_cases = [_case(row, self.name, is_timed=self.is_timed()) for row in self._read(rows, child_exit)]

    def _read(self, rows: Path, child_exit: ChildExit) -> list[ChildRow]:
        """Return the rows of a successful child; a failure of the child is the outcome of this item."""
        if child_exit.problem:
            pytest.fail(child_exit.message(), pytrace=False)
        rows_of_child = []
        complete = False
        with rows.open("rb") if rows.exists() else open(os.devnull, "rb") as stream:
            while line := stream.readline(LONGEST_LINE):
                data = json.loads(line)
                if "needs" in data:
                    pytest.skip(f"needs {data['needs']}, which is not installed")
                complete = "done" in data
                if not complete:
                    rows_of_child.append(read_part(ChildRow, data, "row"))
        if not complete:
            pytest.fail(child_exit.message(f"{self.path.name} ended its process when it was imported or called"), pytrace=False)
        return rows_of_child


class ProblemItem(FunctionItem):
    """A problem, which runs on real tensors only where ``--roofline-time`` selects it."""

    kind = "problem"

    def is_timed(self) -> bool:
        assert isinstance(self.parent, Problem)
        glob = self.parent.settings.time
        return glob is not None and matches(glob, self.nodeid)

    def argument(self) -> str:
        return "yes" if self.is_timed() else "no"


class Reports(ChildFile):
    """A file with ``perf_report`` functions: an item for each."""

    item_type = FunctionItem

    def __init__(self, *, functions: list[tuple[str, int]], **of_pytest: Any) -> None:
        super().__init__(**of_pytest)
        self.functions = functions  # names and lines

    def collect(self) -> Iterator[ChildItem]:
        for name, line in self.functions:
            yield self.item_type.from_parent(self, name=name, line=line - 1)


class Problem(Reports):
    """A problem file: one item."""

    item_type = ProblemItem


def _case(row: ChildRow, test: str, *, is_timed: bool) -> Case:
    """Return the case of a row. Work that is a bound, or is guessed, is for display: stage A."""
    work, problem = declare_captured(row.captured)
    untimed = (row.problem or NO_TIME) if is_timed and row.measurement is None else ""
    return Case(
        nodeid=printable(row.label),
        test=test,
        declaration=work or Declaration(),
        measurement=None if ran_in_interpreter(row.captured) else row.measurement,
        baseline=row.baseline,
        device_kind=row.device_kind,
        problem=problem if untimed else "; ".join(filter(None, (problem, row.problem))),
        untimed=untimed,
        launched=row.captured.kernels,
        record=RecordRow(row=row.label, t_s=row.measurement.t_s if row.measurement else None, claims=row.claims),
    )
