"""The GitHub Action and the pre-commit hooks of this repository: they parse, and their shell calls what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_roofline.cli import COMMANDS as PACKAGE_COMMANDS
from roofline_engine.cli import COMMANDS
from support.tool import ROOT, run_tool

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs bash")


@pytest.fixture(scope="module")
def action() -> dict[str, Any]:
    document = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    return document


@pytest.fixture
def stubs(tmp_path: Path) -> Path:
    """A folder of commands that write their arguments to ``calls``, one a line."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("python", "roofline"):
        stub = folder / name
        stub.write_text(f'#!/bin/sh\nprintf \'%s\\n\' {name} "$@" >> "{tmp_path}/calls"\nexit "${{STUB_STATUS:-0}}"\n')
        stub.chmod(0o755)
    return folder


def run_step(action: dict[str, Any], name: str, stubs: Path, **environment: str) -> tuple[int, list[str]]:
    """Run the shell of a step, with the defaults of the inputs in its environment; return its status and the calls."""
    step = next(step for step in action["runs"]["steps"] if step["name"] == name)
    values = {key: str(one["default"]) for key, one in action["inputs"].items()}
    given = {}
    for key, expression in step.get("env", {}).items():
        named = re.fullmatch(r"\$\{\{ inputs\.([\w-]+)( \|\| .*)? \}\}", expression)
        assert named, expression
        given[key] = values[named[1]]
    unknown = environment.keys() - given.keys() - {"STUB_STATUS", "GITHUB_ACTION_PATH"}
    assert not unknown
    path = os.pathsep.join([str(stubs), os.environ["PATH"]])
    done = subprocess.run(  # what GitHub runs for "shell: bash"
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        env={**os.environ, **given, **environment, "PATH": path},
        cwd=stubs.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    calls = stubs.parent / "calls"
    return done.returncode, calls.read_text().splitlines() if calls.exists() else []


def test_every_input_is_used_and_documented(action: dict[str, Any]) -> None:
    text = yaml.safe_dump(action["runs"])
    page = (ROOT / "docs" / "gate.md").read_text(encoding="utf-8")
    for name in action["inputs"]:
        assert f"inputs.{name}" in text
        assert f"`{name}`" in page
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == set(action["inputs"])


def test_no_expression_is_in_a_script(action: dict[str, Any]) -> None:
    """GitHub pastes an expression into the script: a branch's name could then run commands."""
    assert [step["name"] for step in action["runs"]["steps"] if "${{" in step.get("run", "")] == []


def test_the_tests_run_with_the_defaults(action: dict[str, Any], stubs: Path) -> None:
    status, calls = run_step(action, "Run the tests", stubs)
    assert status == 0
    assert calls == [
        *("python", "-m", "pytest", "--roofline", "--roofline-device=auto", "--roofline-storage=.roofline"),
        *("--roofline-report=github", "--roofline-report=json:roofline.json", "--roofline-report=html:roofline.html"),
        *("--roofline-fail-on=beyond_roof,regression", "--roofline-compare"),
    ]


def test_the_inputs_become_options(action: dict[str, Any], stubs: Path) -> None:
    given = {"ARGUMENTS": "kernels/ -k 'copy or sum' '$(touch x)'", "FAIL_ON": "", "FAIL_UNDER": "60", "BASELINE": "a b.json"}
    status, calls = run_step(action, "Run the tests", stubs, **given, SAVE="true", ALLOW_UNCHECKED="true", DEVICE="MI300X")
    assert status == 0
    assert calls[3:7] == ["kernels/", "-k", "copy or sum", "$(touch x)"]
    assert not (stubs.parent / "x").exists()
    assert calls[-4:] == [
        *("--roofline-fail-under=60", "--roofline-allow-unchecked", "--roofline-save", "--roofline-baseline=a b.json")
    ]
    assert "--roofline-device=MI300X" in calls
    assert not any("fail-on" in one for one in calls)


def test_a_failed_run_fails_the_step(action: dict[str, Any], stubs: Path) -> None:
    assert run_step(action, "Run the tests", stubs, STUB_STATUS="1")[0] == 1
    assert run_step(action, "Draw the history", stubs, STUB_STATUS="2")[0] == 0  # no run is saved yet


def test_the_package_of_the_action_is_installed(action: dict[str, Any], stubs: Path) -> None:
    _, calls = run_step(action, "Install", stubs, GITHUB_ACTION_PATH="/action dir", INSTALL="numpy>=1 torch")
    assert calls == ["python", "-m", "pip", "install", "/action dir[plot]", "numpy>=1", "torch"]


def test_the_hooks_call_commands_that_exist(tmp_path: Path) -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    names = {command.name for command in (*COMMANDS, *PACKAGE_COMMANDS)}
    assert {hook["entry"].removeprefix("roofline ") for hook in hooks} <= names
    peaks = next(hook for hook in hooks if hook["id"] == "roofline-peaks-audit")
    words = [*peaks["entry"].split()[1:], *peaks["args"][:-1], ROOT / peaks["args"][-1]]
    assert run_tool(*words).code == 0
    wrong = tmp_path / "profile_roofline.json"  # pre-commit gives a hook all files at once
    wrong.write_text("{}")
    done = run_tool("validate", wrong, wrong)
    assert done.code == 1
    assert done.err.count("inconsistencies") == 2
