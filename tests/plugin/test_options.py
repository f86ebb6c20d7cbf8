"""docs/options.md lists every option and key that the code has, and no other."""

from __future__ import annotations

import argparse
import re

import pytest

from pytest_roofline import config, plugin
from pytest_roofline.cli import COMMANDS as PACKAGE_COMMANDS
from roofline_engine.cli import COMMANDS
from support.tool import ROOT

PAGE = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")


def cells(heading: str, column: int = 0) -> list[str]:
    """The cells of one column of the table under a heading."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in section.splitlines() if line.startswith("| `")]
    return [row[column].strip() for row in rows]


def names(heading: str) -> set[str]:
    """The names in the first column, without their values."""
    return {re.split(r"[=\[`]", cell.lstrip("`"))[0] for cell in cells(heading)}


class Added:
    """A parser and a group in one: what ``pytest_addoption`` adds."""

    def __init__(self) -> None:
        self.options: set[str] = set()
        self.keys: set[str] = set()

    def getgroup(self, *_: str) -> Added:
        return self

    def addoption(self, name: str, **_: object) -> None:
        self.options.add(name)

    def addini(self, name: str, *_: object, **__: object) -> None:
        self.keys.add(name)


@pytest.fixture(scope="module")
def added() -> Added:
    parser = Added()
    plugin.pytest_addoption(parser)  # type: ignore[arg-type]
    return parser


def test_the_page_lists_every_option_of_pytest(added: Added) -> None:
    assert names("Options of `pytest`") == added.options
    assert {f"--roofline-{name.replace('_', '-')}" for name in config.OPTIONS} == added.options - {"--roofline"}


def test_the_page_lists_every_ini_key(added: Added) -> None:
    assert names("ini keys") == added.keys == {f"roofline_{name}" for name in config.INI_KEYS}


def test_the_page_lists_every_key_of_the_projects_file() -> None:
    assert names("`[tool.roofline]` keys") == set(config.Project.model_fields)


def test_the_page_lists_every_command_with_its_options() -> None:
    listed = {}
    for command, options in zip(cells("Options of `roofline`"), cells("Options of `roofline`", 1)):
        listed[command.strip("`").removeprefix("roofline ")] = set(re.findall(r"`(-[\w-]+)", options))
    commands = (*COMMANDS, *PACKAGE_COMMANDS)
    assert listed == {command.name: options_of(command.configure) for command in commands if command.configure}


def options_of(configure: object) -> set[str]:
    assert callable(configure)
    parser = argparse.ArgumentParser(add_help=False)
    configure(parser)
    return {option for action in parser._actions for option in action.option_strings}
