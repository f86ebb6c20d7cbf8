"""Fixtures of all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.register_assert_rewrite("support")

from support.profiles import Run  # noqa: E402
from support.project import Project  # noqa: E402

pytest_plugins = ["pytester"]
for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID"):
    os.environ.pop(name, None)  # the runs inside of a test are of no worker


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


@pytest.fixture(scope="session")
def ceilings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where runs keep what they measure of this machine's CPU: once for all of them, for it takes seconds."""
    return tmp_path_factory.mktemp("ceilings")


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, ceilings: Path) -> Project:
    return Project(pytester, monkeypatch, ceilings)
