"""Tables of the commands on a terminal, and plain text in a pipe."""

from __future__ import annotations

import io
import re
import sys

import pytest

from pytest_roofline.cli import COMMANDS, main
from pytest_roofline.report.console import TerminalOutput
from roofline_engine.cli import Command

NAME = "a_kernel_with_a_name_that_is_longer_than_a_column"
REPORT = f"# Title\n\n| # | kernel | verdict |\n|---|--------|---------|\n| 1 | `{NAME}` | **saturated** |\n"
ROWS = [["kernel", "time"], [NAME, "1 us"], ["[bold]x\x1b[2J", ""]]


class Screen(io.StringIO):
    """A stdout that is a terminal."""

    def isatty(self) -> bool:
        return True


def drawn(monkeypatch: pytest.MonkeyPatch, *, markdown: bool, width: int, terminal: bool = True) -> str:
    screen = Screen() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    output = TerminalOutput()
    if markdown:
        output.markdown(REPORT)
    else:
        output.table(ROWS)
    text = screen.getvalue()
    assert not re.search(r"\x1b\[(?:\d+;)*[34]\d", text)  # no color
    return re.sub(r"\x1b\[[\d;]*m", "", text)


@pytest.mark.parametrize("markdown", [True, False])
@pytest.mark.parametrize("width", [40, 120])
def test_a_terminal_gets_tables_at_its_width_and_whole_names(
    markdown: bool, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = drawn(monkeypatch, markdown=markdown, width=width)
    assert all(len(line) <= width for line in text.splitlines())
    assert "|" not in text
    assert (NAME in text) == (width == 120)
    letters = "".join(char for char in text if char.isalnum() or char == "_")
    assert all(part in letters for part in ("a_kernel_with", "column"))
    assert "\u2026" not in text


def test_a_pipe_gets_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(monkeypatch, markdown=True, width=40, terminal=False) == REPORT
    text = drawn(monkeypatch, markdown=False, width=40, terminal=False)
    assert text.splitlines()[1] == f"{NAME}  1 us"


def test_a_name_holds_neither_markup_nor_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    text = drawn(monkeypatch, markdown=False, width=120)
    assert "[bold]x\\x1b[2J" in text


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_of_the_package_has_a_help_with_its_exit_status(
    command: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["roofline", *command.name.split(), "--help"])
    assert main() == 0
    out = capsys.readouterr().out
    assert f"usage: roofline {command.name} " in out
    assert f"exit status: {command.exits}" in out
    assert f"example:\n  roofline {command.name}" in out


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_knows_every_command_and_its_options(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("shtab")
    monkeypatch.setattr(sys, "argv", ["roofline", "completion", shell])
    assert main() == 0
    out = capsys.readouterr().out
    for word in ("analyze", "calibrate", "history", "-ceilings", "-storage"):
        assert word in out
