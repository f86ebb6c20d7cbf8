"""Tests that pytest would not collect, or not survive: task folders, scripts, ``perf_report`` functions, problem files.

Registered by the session, so only with ``--roofline``. Nothing of theirs is imported in this process, and nothing is run while
tests are collected: what a file is follows from its name and its syntax tree, what it measures from a child process.
"""

from __future__ import annotations

from collections.abc import Generator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from ..settings import Settings
from . import scripts, task_dirs
from .items import ChildFile
from .source import PythonFile


class Collectors:
    """The plugin object that finds them."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self.config, self.settings = config, settings
        self.listed = scripts.read_listed(settings.scripts)

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(
        self, file_path: Path, parent: pytest.Collector
    ) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
        """The collector of a file that is one of ours, in the place of those that would import it."""
        found = yield
        if file_path.suffix != ".py":
            return found
        kind, more = self._kind(PythonFile(file_path), parent.session.isinitpath(file_path))
        if kind is None:
            return found
        return [kind.from_parent(parent, path=file_path, settings=self.settings, **more)]

    def _kind(self, file: PythonFile, named: bool) -> tuple[type[ChildFile] | None, dict[str, Any]]:
        """What collects a file, with what it needs to know. named: the file itself is on the command line."""
        listed = scripts.find(self.listed, file.path, self.config.rootpath)
        if listed is not None:
            return scripts.Script, {"listed": listed}
        if task_dirs.is_task(file.path):
            return task_dirs.TaskDir, {}
        if (named or self._is_test(file.path)) and file.ends_at_import():
            return scripts.Script, {}
        return None, {}

    def _is_test(self, path: Path) -> bool:
        """Whether pytest takes a file for a test by its name: a pattern with a folder in it is of the whole path."""
        patterns: list[str] = self.config.getini("python_files")
        return any(fnmatch(str(path) if "/" in one else path.name, f"*/{one}" if "/" in one else one) for one in patterns)
