"""Files of functions that somebody else calls: ``perf_report`` benchmarks and KernelBench problems, each item a child process.

The file is imported there (``inside``), never here; its items follow from its syntax tree.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import roofline_engine

from ..declare import matches
from .child import LONGEST_LINE, Ended
from .items import ChildFile, ChildItem, scratch
from .rows import Row

_INSIDE = Path(__file__).with_name("inside.py")
#: Where the child imports this package and the engine from, as this process did.
_FOLDERS = os.pathsep.join(str(Path(file).parent.parent) for file in (Path(__file__).parent, roofline_engine.__file__))


class Reports(ChildFile):
    """A file with functions under ``perf_report``: an item each."""

    def __init__(self, *, functions: list[tuple[str, int]], **of_pytest: Any) -> None:
        super().__init__(**of_pytest)
        self.functions = functions

    def collect(self) -> Iterator[ChildItem]:
        for name, line in self.functions:
            yield Imported.from_parent(self, name=name, line=line - 1, kind="perf_report", arguments=(name,))


class Problem(ChildFile):
    """A problem file: one item."""

    def __init__(self, *, line: int, **of_pytest: Any) -> None:
        super().__init__(**of_pytest)
        self.line = line

    def collect(self) -> Iterator[ChildItem]:
        yield ProblemItem.from_parent(self, name=self.path.stem, line=self.line - 1, kind="problem")


class Imported(ChildItem):
    """An item that has its rows from ``inside``."""

    def __init__(self, *, kind: str, arguments: tuple[str, ...] = (), **of_pytest: Any) -> None:
        super().__init__(**of_pytest)
        self.kind, self.arguments = kind, arguments

    def given(self) -> tuple[str, ...]:
        """What the child is told beside the file."""
        return self.arguments

    def runtest(self) -> None:
        file = self.parent
        assert isinstance(file, ChildFile)
        self.roofline_cases = []
        with scratch() as folder:
            rows = folder / "rows"
            ended = file.run(
                self, folder, _INSIDE, [_FOLDERS, str(rows), self.kind, str(self.path), *self.given()], folder="none"
            )
            found = list(self._read(rows, ended))
        self.roofline_cases = [row.case(self.name) for row in found]

    def _read(self, rows: Path, ended: Ended) -> Iterator[Row]:
        """The rows of a child that came to its end; else what came of it is this item's outcome."""
        if ended.problem:
            pytest.fail(ended.told(), pytrace=False)
        done = False
        with rows.open("rb") if rows.exists() else open(os.devnull, "rb") as stream:
            while line := stream.readline(LONGEST_LINE):
                said = json.loads(line)
                if "needs" in said:
                    pytest.skip(f"needs {said['needs']}, which is not installed")
                done = "done" in said
                if not done:
                    yield Row.from_dict(said)
        if not done:
            pytest.fail(ended.told(f"{self.path.name} ended its process as it was imported or called"), pytrace=False)


class ProblemItem(Imported):
    """A problem, run on real tensors only where ``--roofline-time`` asks for it."""

    def given(self) -> tuple[str, ...]:
        assert isinstance(self.parent, Problem)
        glob = self.parent.settings.time
        return ("yes" if glob is not None and matches(glob, self.nodeid) else "no",)
