"""The hook that finds them.

Registered by the session, so only with ``--roofline``. Nothing of theirs is imported in this process, and nothing is run while
tests are collected: what a file is follows from its name and its syntax tree, what it measures from a child process.
"""

from __future__ import annotations

from collections.abc import Generator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from ..config import Settings
from . import scripts, task_dirs
from .imported import Problem, Reports
from .items import ChildFile
from .source import PythonFile

#: Files that other programs run or import.
_NEVER = ("__init__.py", "__main__.py", "conftest.py", "setup.py")
#: Files whose ``perf_report`` functions are benchmarks without being named on the command line.
_BENCHES = ("bench_*.py", "benchmark_*.py")


class Collectors:
    """The plugin object."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self.config, self.settings = config, settings
        self.listed = scripts.read_listed(settings.scripts)

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(
        self, file_path: Path, parent: pytest.Collector
    ) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
        """The collector of a file that is one of ours, in the place of those that would import it (tests and doctests).

        A file of benchmarks that may hold tests as well keeps its module; a linter's items stay in any case.
        """
        found = yield
        if file_path.suffix != ".py" or file_path.name in _NEVER:
            return found
        file = PythonFile(file_path)
        ours = self._collector(file, parent)
        if ours is None:
            return found
        both = isinstance(ours, (Reports, Problem)) and (self._is_test(file_path) or self._has_tests(file))
        return [*(one for one in found if both or not isinstance(one, pytest.Module)), ours]

    def _collector(self, file: PythonFile, parent: pytest.Collector) -> ChildFile | None:
        path, settings = file.path, self.settings
        named = parent.session.isinitpath(path)  # the file itself is on the command line
        listed = scripts.find(self.listed, path, self.config.rootpath)
        if listed is not None:
            return scripts.Script.from_parent(parent, path=path, settings=settings, listed=listed)
        if task_dirs.is_task(path):
            return task_dirs.TaskDir.from_parent(parent, path=path, settings=settings)
        functions = file.reports() if named or any(fnmatch(path.name, pattern) for pattern in _BENCHES) else []
        if functions:
            return Reports.from_parent(parent, path=path, settings=settings, functions=functions)
        if (named or self._is_test(path)) and file.ends_at_import():
            return scripts.Script.from_parent(parent, path=path, settings=settings)
        line = file.problem()
        if line is not None:
            return Problem.from_parent(parent, path=path, settings=settings, line=line)
        return None

    def _is_test(self, path: Path) -> bool:
        """Whether pytest takes a file for a test by its name: a pattern with a folder in it is of the whole path."""
        patterns: list[str] = self.config.getini("python_files")
        return any(fnmatch(str(path) if "/" in one else path.name, f"*/{one}" if "/" in one else one) for one in patterns)

    def _has_tests(self, file: PythonFile) -> bool:
        return file.has_tests(self.config.getini("python_functions"), self.config.getini("python_classes"))
