"""Runs of pytest inside a test: with the plugins named and no others, and the outcome in one object."""

from __future__ import annotations

import itertools
import json
import linecache
import os
import subprocess
import sys
import warnings
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.forked import fork_context, run_forked
from support.modules import ModuleKeeper

RUN_TIMEOUT_S = 300
#: Entry points by what is measured with.
MEASURED_WITH = {
    "none": (),
    "benchmark": ("benchmark",),
    "codspeed": ("codspeed",),
    "both": ("benchmark", "codspeed"),
}


class Ran(NamedTuple):
    """One run: its exit status, its output and its folder."""

    code: int
    out: str
    folder: Path

    @property
    def report(self) -> dict[str, Any]:
        """The report of ``--roofline-report=json:roofline.json``."""
        document = json.loads((self.folder / "roofline.json").read_text(encoding="utf-8"))
        assert isinstance(document, dict)
        return document

    @property
    def rows(self) -> dict[str, dict[str, Any]]:
        """The report's rows by the test's name."""
        return {row["short_name"]: row for row in self.report["entries"]}

    @property
    def counts(self) -> dict[str, int]:
        """Outcomes by name, from the last line that pytest prints."""
        words = self.out.strip().splitlines()[-1].strip("= ").replace(",", "").split()
        pairs = [(word, after) for word, after in itertools.pairwise(words) if word.isdigit()]
        return {name.rstrip("s"): int(count) for count, name in pairs}

    @property
    def section(self) -> list[str]:
        """The lines of the section of ``pytest --roofline``."""
        lines = self.out.splitlines()
        start = next(at for at, line in enumerate(lines) if line.startswith("=") and " roofline: " in line)
        end = next(at for at, line in enumerate(lines[start + 1 :], start + 1) if line.startswith("="))
        return lines[start:end]

    @property
    def junit(self) -> dict[str, ElementTree.Element]:
        """The test cases of ``--junitxml=junit.xml`` by name."""
        return {case.attrib["name"]: case for case in ElementTree.parse(self.folder / "junit.xml").iter("testcase")}


class Project:
    """A folder with tests. Its runs see no plugin, cache or CI variable of the machine.

    ceilings: the folder of this machine's measured ceilings. keeper: keeps the modules that the runs import.
    """

    def __init__(
        self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, ceilings: Path, keeper: ModuleKeeper
    ) -> None:
        self.pytester, self.path, self.keeper = pytester, pytester.path, keeper
        (self.path / "pyproject.toml").touch()
        self.env = {
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "ROOFLINE_CACHE_DIR": str(ceilings),
            "COLUMNS": "250",
        }
        for name, value in self.env.items():
            monkeypatch.setenv(name, value)
        for name in ("GITHUB_STEP_SUMMARY", "GITHUB_ACTIONS", "CI", "PYTEST_ADDOPTS", "NO_COLOR", "FORCE_COLOR", "PY_COLORS"):
            monkeypatch.delenv(name, raising=False)

    def write(self, **files: str) -> Project:
        """Write ``name="text"`` as name.py."""
        self.pytester.makepyfile(**files)
        return self

    def toml(self, text: str) -> Project:
        (self.path / "pyproject.toml").write_text(text, encoding="utf-8")
        return self

    def json(self, name: str, content: Any) -> Path:
        path = self.path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    def run(self, *args: object, plugins: tuple[str, ...] = (), report: bool = True, flag: bool = True) -> Ran:
        """Run in this process, with ``--roofline`` and the JSON report, or without one or both."""
        on = (_ON if report else _ON[:1]) if flag else ()
        linecache.clearcache()  # a warning shows its line of test_a.py, of which each test has its own
        with warnings.catch_warnings():
            warnings.resetwarnings()  # the run's own filters, none of ours
            result = self.pytester.runpytest_inprocess(*_arguments(plugins), *on, *map(str, args), plugins=[self.keeper])
        self.keeper.restore()
        return Ran(int(result.ret), f"{result.stderr.str()}\n{result.stdout.str()}".strip(), self.path)

    def spawn(
        self,
        *args: object,
        plugins: tuple[str, ...] = (),
        on: bool | None = True,
        torch: bool = False,
        **environment: str,
    ) -> Ran:
        """Run in another process.

        on: with the flag, without it (False), without the plugin (None). torch: the process is forked from one that has
        imported torch, where the platform can fork.
        """
        arguments = [*_arguments(plugins)[2 if on is None else 0 :], *(_ON if on else ()), *map(str, args)]
        environment = {**os.environ, **self.env, **environment}
        if torch and fork_context() is not None:
            return Ran(*run_forked(arguments, self.path, environment, RUN_TIMEOUT_S), self.path)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            cwd=self.path,
            env=environment,
            timeout=RUN_TIMEOUT_S,
        )
        return Ran(done.returncode, done.stdout, self.path)


_ON = ("--roofline", "--roofline-report=json:roofline.json")


def _arguments(plugins: tuple[str, ...]) -> list[str]:
    return [word for name in ("roofline", *plugins) for word in ("-p", name)]
