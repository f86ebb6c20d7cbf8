"""The arguments of a command, through the command line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

import pytest

from roofline_engine import cli
from roofline_engine.cli import COMMANDS, Command
from support.tool import EXAMPLE, TOOL, run_tool


def configure(parser: ArgumentParser) -> None:
    def run(options: Namespace) -> int:
        values = {name: value for name, value in vars(options).items() if name not in ("run", "parser", "output")}
        print({name: value for name, value in sorted(values.items()) if value})
        return 0

    parser.add_argument("place", metavar="PLACE")
    parser.add_argument("others", metavar="OTHER", nargs="*")
    parser.add_argument("--share-pct", metavar="PCT", default="5")
    parser.add_argument("--share-max", metavar="N")
    parser.add_argument("--how", metavar="HOW", choices=("fast", "slow"))
    parser.add_argument("-w", "--with", metavar="FILE", action="append")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("-v", "--verbose", action="count", default=0)
    parser.set_defaults(run=run)


def said(capsys: pytest.CaptureFixture[str], *given: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of ``tool go`` with these arguments; it prints what it was given."""
    status = cli.main(["go", *given], "tool", [Command("go", "go there at 2 %", configure, "PLACE", "0 gone, 2 lost")])
    out, err = capsys.readouterr()
    return status, out.strip(), err


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["a"], {"place": "a", "share_pct": "5"}),
        (["a", "--share-pct", "7"], {"place": "a", "share_pct": "7"}),
        (["--share-pct=7", "a"], {"place": "a", "share_pct": "7"}),
        (["--share-pct=--odd", "a"], {"place": "a", "share_pct": "--odd"}),
        (["a", "--share-pct", "-0.5"], {"place": "a", "share_pct": "-0.5"}),
        (["-", "--share-max", "-"], {"place": "-", "share_pct": "5", "share_max": "-"}),
        (["--", "--json"], {"place": "--json", "share_pct": "5"}),
        (["a", "--json", "b", "c"], {"place": "a", "others": ["b", "c"], "share_pct": "5", "json": True}),
        (["a", "--with", "x", "--with=y", "-w", "z"], {"place": "a", "share_pct": "5", "with": ["x", "y", "z"]}),
        (["a", "--how", "slow"], {"place": "a", "share_pct": "5", "how": "slow"}),
        (["a", "-v"], {"place": "a", "share_pct": "5", "verbose": 1}),
        (["a", "-vv", "--verb"], {"place": "a", "share_pct": "5", "verbose": 3}),
        (["a", "--share-pct", ""], {"place": "a"}),
    ],
)
def test_values_come_by_name_and_by_place(
    given: list[str], expected: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(capsys, *given) == (0, str(dict(sorted(expected.items()))), "")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ([], "the following arguments are required: PLACE"),
        (["a", "--nope"], "unrecognized arguments: --nope"),
        (["a", "-x"], "unrecognized arguments: -x"),
        (["a", "--share=1"], "ambiguous option: --share=1 could match --share-pct, --share-max"),
        (["a", "--share-pct"], "argument --share-pct: expected one argument"),
        (["a", "--share-pct", "--json"], "argument --share-pct: expected one argument"),
        (["a", "--json=1"], "argument --json: ignored explicit argument '1'"),
        (["a", "--how", "any"], "argument --how: invalid choice: 'any' (expected one of fast, slow)"),
        (["a", "--\x1b[31m"], "unrecognized arguments: --\\x1b[31m"),
    ],
)
def test_invalid_arguments_exit_with_2_and_are_named(
    given: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = said(capsys, *given)
    assert (status, out) == (2, "")
    assert err.startswith("usage: tool go [-h] [--share-pct PCT]")
    assert f"tool go: error: {problem}" in err
    assert err.endswith(". Try tool go --help\n")


def test_help_describes_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = said(capsys, "a", "--help")
    assert (status, err) == (0, "")
    for option in ("PLACE", "OTHER", "--share-pct PCT", "--how HOW", "-w FILE", "--json", "print JSON"):
        assert option in out
    assert "Go there at 2 %." in out
    assert "example:\n  tool go PLACE\n" in out
    assert "exit status: 0 gone, 2 lost" in out


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_help_lists_the_exit_status(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*command.name.split(), "--help"]) == 0
    out = capsys.readouterr().out
    assert f"usage: roofline_tools.py {command.name} " in out
    assert f"exit status: {command.exits}" in out
    assert f"example:\n  roofline_tools.py {command.name}" in out


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], "error: no command is given. Try roofline_tools.py --help"),
        (["peaks"], "peaks: error: no command is given. Try roofline_tools.py peaks --help"),
        (["peaks", "lst"], "peaks: error: argument COMMAND: invalid choice: 'lst' (did you mean list?). Try"),
        (["analyse"], "error: argument COMMAND: invalid choice: 'analyse' (did you mean analyze?). Try"),
        (["qqqq"], "invalid choice: 'qqqq' (expected one of analyze, profile, "),
        (["validate", "x", "--jsno=1"], "unrecognized arguments: --jsno=1. Try"),
        (["peaks", "list", "--jsno"], "unrecognized arguments: --jsno (did you mean --json?). Try"),
        (["skill", "path", "more"], "skill path: error: unrecognized arguments: more"),
    ],
)
def test_an_unknown_command_lists_the_known_ones(given: list[str], expected: str) -> None:
    done = run_tool(*given)
    assert (done.code, done.out) == (2, "")
    assert expected in done.err
    assert done.err.startswith("usage: roofline_tools.py")


# Standard output.


@pytest.fixture
def wrong(tmp_path: Path) -> list[str]:
    """The command line of a check that fails and prints more than a pipe holds."""
    document = json.loads((EXAMPLE / "profile_roofline.json").read_text())
    document["entries"] = [{**document["entries"][0], "stage": "Z", "name": f"k{at}"} for at in range(3000)]
    (tmp_path / "wrong.json").write_text(json.dumps(document))
    return [sys.executable, str(TOOL), "validate", str(tmp_path / "wrong.json")]


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_does_not_change_the_exit_status(wrong: list[str], unbuffered: str) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(wrong, stdout=theirs, stderr=subprocess.PIPE, text=True, env=environment, check=False)
    os.close(theirs)
    assert done.returncode == 1
    assert re.fullmatch(r"\S+wrong\.json: \d+ inconsistencies\n", done.stderr)


@pytest.mark.skipif(os.name != "posix", reason="needs a POSIX shell")
def test_a_closed_standard_output_does_not_change_the_exit_status(wrong: list[str]) -> None:
    for closed in (">&-", ">&- 2>&-", ">&- 2>&- <&-"):
        done = subprocess.run(["sh", "-c", f'"$@" {closed}', "sh", *wrong], capture_output=True, text=True, check=False)
        assert done.returncode == 1, closed
        assert "internal error" not in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device without room")
def test_an_output_without_room_is_named(wrong: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(wrong, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "standard output: No space left on device"


@pytest.mark.parametrize("words", [["help"], ["help", "peaks"], ["help", "peaks", "show"]])
def test_help_is_a_command_too(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 0
    out = capsys.readouterr().out
    assert cli.main([*words[1:], "--help"]) == 0
    assert out == capsys.readouterr().out
    assert "usage: roofline_tools.py" in out
