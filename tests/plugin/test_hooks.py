"""The hooks of the plugin: each has its section and its example in docs/hooks.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest_roofline
from pytest_roofline import hookspec
from pytest_roofline.config import read_toml
from support.tool import ROOT

PAGE = (ROOT / "docs" / "hooks.md").read_text(encoding="utf-8")


def test_each_hook_has_a_section_and_an_example() -> None:
    hooks = {name for name in vars(hookspec) if name.startswith("pytest_roofline_")}
    assert set(re.findall(r"(?m)^## (pytest_roofline_\w+)$", PAGE)) == hooks
    assert set(re.findall(r"(?m)^def (pytest_roofline_\w+)\(", PAGE)) == hooks


def test_an_installed_package_adds_a_record_format(tmp_path: Path) -> None:
    for language in ("python", "toml"):
        for block in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL):
            first, _, rest = block.partition("\n")
            (tmp_path / first.removeprefix("# ")).write_text(rest)
    project = read_toml(tmp_path / "pyproject.toml")["project"]
    installed = tmp_path / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    installed.mkdir()
    entries = "\n".join(f"{name} = {value}" for name, value in project["entry-points"]["pytest_roofline"].items())
    (installed / "entry_points.txt").write_text(f"[pytest_roofline]\n{entries}\n")
    (tmp_path / "times.txt").write_text(re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)[0])
    command, shown = re.findall(r"```sh\n\$ roofline (.*?)\n(.*?)```", PAGE, re.DOTALL)[0]
    code = "import sys; from pytest_roofline.cli import main; sys.exit(main())"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code, *command.split()],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert shown.strip() in done.stdout


def test_each_public_name_is_on_the_page_of_the_api() -> None:
    page = (ROOT / "docs" / "python_api.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\[`(\w+)`\]\(#", page)) == set(pytest_roofline.__all__)
    for name in pytest_roofline.__all__:
        assert getattr(pytest_roofline, name).__name__ == name
