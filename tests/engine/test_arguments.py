"""The reader of a command's arguments, through the command line."""

from __future__ import annotations

import pytest

from roofline_engine import cli
from roofline_engine.arguments import Command, Option, Options
from support.tool import run_tool

OPTIONS = (
    Option("place", "PLACE", required=True),
    Option("others", "OTHER", many=True),
    Option("--share-pct", "PCT", default="5"),
    Option("--share-max", "N"),
    Option("--how", "HOW", choices=("fast", "slow")),
    Option("--with", "FILE", many=True, short="w"),
    Option("--json"),
    Option("--verbose", short="v"),
)


def said(capsys: pytest.CaptureFixture[str], *given: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of ``tool go`` with these arguments; it prints what it was given."""

    def run(options: Options) -> int:
        print({name: value for name, value in vars(options).items() if value})
        return 0

    status = cli.main(["go", *given], "tool", [Command("go", "go there", lambda: (run, OPTIONS))])
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
        (["a", "--json", "b", "c"], {"place": "a", "others": ["b", "c"], "share_pct": "5", "json": 1}),
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
    assert said(capsys, *given) == (0, str(expected), "")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ([], "missing PLACE"),
        (["a", "--nope"], "unknown option --nope"),
        (["a", "-x"], "unknown option -x"),
        (["a", "-ww", "x"], "unknown option -ww"),
        (["a", "--share=1"], "ambiguous option --share"),
        (["a", "--share-pct"], "--share-pct: expected PCT"),
        (["a", "--share-pct", "--json"], "--share-pct: expected PCT"),
        (["a", "--json=1"], "--json takes no value"),
        (["a", "--how", "any"], "--how is 'any', expected one of fast, slow"),
        (["a", "--\x1b[31m"], "unknown option --\\x1b[31m"),
    ],
)
def test_what_cannot_be_read_is_exit_2_and_named(given: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, *given) == (2, "", f"usage: tool go [OPTION]... PLACE [OTHER...]\ntool: error: {problem}\n")


def test_the_help_names_every_option_and_what_it_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = said(capsys, "a", "--nope", "--help")
    assert (status, err) == (0, "")
    for option in OPTIONS:
        assert f" {option.shown}" in out
    assert "go there" in out


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], "no command, expected one of analyze, validate, peaks, counters, skill"),
        (["peaks"], "peaks: no command, expected one of list, show, audit"),
        (["peaks", "lst"], "peaks: unknown command 'lst', expected one of list, show, audit"),
        (["skill", "path", "more"], "unexpected argument 'more'"),
    ],
)
def test_a_command_that_is_not_there_is_told_with_those_that_are(given: list[str], expected: str) -> None:
    done = run_tool(*given)
    assert (done.code, done.out) == (2, "")
    assert done.err.endswith(f"roofline_tools.py: error: {expected}\n")
