"""Fixtures of all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("support")

from support.modules import ModuleKeeper  # noqa: E402
from support.profiles import Run  # noqa: E402
from support.project import Project  # noqa: E402

pytest_plugins = ["pytester"]
for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID"):
    os.environ.pop(name, None)  # runs inside a test belong to no worker


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


@pytest.fixture(scope="session")
def ceilings(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """The folder of this machine's measured ceilings; all runs and workers share it, because a measurement takes seconds."""
    folder = tmp_path_factory.getbasetemp()
    return (folder.parent if hasattr(request.config, "workerinput") else folder) / "ceilings"


@pytest.fixture
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleKeeper]:
    """Keep modules imported. Set up before pytester, which at its end drops the modules imported since its start."""
    keeper = ModuleKeeper(tmp_path_factory.getbasetemp())
    yield keeper
    keeper.restore()


@pytest.fixture
def project(keeper: ModuleKeeper, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, ceilings: Path) -> Project:
    return Project(pytester, monkeypatch, ceilings, keeper)
