"""``roofline peaks measure`` as a person and as a script run it, and the page that describes it."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

import pytest

from pytest_roofline.ceilings import measure
from roofline_engine import cli
from roofline_engine.cli import Command
from support.tool import ROOT, Outcome, run_tool

PAGE = ROOT / "docs" / "ceilings.md"


def roofline(*arguments: object, cache: Path, **more: str) -> Outcome:
    command = [str(Path(sys.executable).parent / "roofline"), *map(str, arguments)]
    environment = {**os.environ, "ROOFLINE_CACHE_DIR": str(cache), **more}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that holds a measurement by numpy."""
    folder = tmp_path_factory.mktemp("cache")
    done = roofline("peaks", "measure", "--method", "numpy", "--seconds", "0.1", cache=folder)
    assert (done.code, done.err) == (0, "")
    for word in ("read", "copy", "triad", "gemm", "GB/s", "FLOP/s", "roof memory", "roof vector.fp64", "roof L2 ", "by numpy"):
        assert word in done.out
    return folder


def test_the_second_run_prints_what_the_first_measured_as_one_document(folder: Path) -> None:
    first, second = (roofline("peaks", "measure", "--method", "numpy", "--json", cache=folder) for _ in range(2))
    assert first == second
    document = json.loads(first.out)
    assert document["schema"] == "roofline-ceilings/2"
    peaks = document["peaks"]
    assert peaks["source"] == "measured"
    assert peaks["hbm_bw_bytes_s"] == max(item["value"] for item in document["ceilings"] if item["level"] == "DRAM")
    assert set(peaks["vector"]) == {"fp32", "fp64"}
    for item in document["ceilings"]:
        assert item["rounds"] >= 5
        assert 0 < item["median"] <= item["value"]
    assert [path.suffix for path in folder.iterdir() if path.suffix != ".lock"] == [".json"]


def test_a_quick_answer_takes_whatever_the_cache_holds(folder: Path) -> None:
    before = sorted(path.read_bytes() for path in folder.glob("*.json"))
    said: list[str] = []
    peaks = measure.cpu_peaks(where=folder, say=said.append)
    assert (peaks.source, said) == ("measured", [])
    assert sorted(path.read_bytes() for path in folder.glob("*.json")) == before


def test_measuring_an_axis_again_never_lowers_it(folder: Path) -> None:
    found = measure.ceilings(where=folder)
    again = measure.remeasure(found, ["vector.fp32"], 0.01, where=folder)
    assert again.peaks().vector["fp32"] >= found.peaks().vector["fp32"]
    assert again.peaks().hbm_bw_bytes_s == found.peaks().hbm_bw_bytes_s
    assert measure.ceilings(where=folder) == again


@pytest.mark.parametrize("arguments", [["--method", "magic"], ["--seconds", "0"], ["--seconds", "long"], ["surplus"]])
def test_bad_usage_exits_with_2(arguments: list[str], tmp_path: Path) -> None:
    done = roofline("peaks", "measure", *arguments, cache=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert "Traceback" not in done.err
    assert list(tmp_path.iterdir()) == []


def test_without_a_compiler_only_the_long_measurement_is_refused(folder: Path, tmp_path: Path) -> None:
    done = roofline("peaks", "measure", "--method", "carm", cache=tmp_path, PATH=str(tmp_path))
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("method carm: carm-roofline")
    assert done.err.count("\n") == 1
    assert roofline("peaks", "measure", "--method", "auto", cache=folder, PATH=str(tmp_path)).code == 0


def test_the_command_is_in_the_package_and_not_in_the_skill(tmp_path: Path) -> None:
    listed = roofline("peaks", "--help", cache=tmp_path).out
    assert [word for word in ("list", "show", "audit", "measure") if f"\n    {word} " in listed] == [
        "list",
        "show",
        "audit",
        "measure",
    ]
    assert "--method" in roofline("peaks", "measure", "--help", cache=tmp_path).out
    done = run_tool("peaks", "measure")
    assert done.code == 2
    assert "measure" not in run_tool("peaks", "--help").out


def test_a_caller_adds_commands_and_actions_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    def run(options: Namespace) -> int:
        if options.name == "bad":
            raise ValueError("bad is no name")
        print(f"hello {options.name}")
        return 1

    def configure(parser: ArgumentParser) -> None:
        parser.add_argument("name", metavar="NAME")
        parser.set_defaults(run=run)

    added = [Command(name, "say hello", configure) for name in ("greet", "counters greet")]
    for command in (["greet"], ["counters", "greet"]):
        assert cli.main([*command, "you"], "tool", added) == 1
        assert capsys.readouterr().out == "hello you\n"
        assert cli.main([*command, "bad"], "tool", added) == 2
        assert capsys.readouterr().err == "bad is no name\n"
        assert cli.main([*command], "tool", added) == 2
        assert cli.main([*command], "tool") == 2
    capsys.readouterr()
    assert cli.main(["--help"], "tool", added) == 0
    assert "greet" in capsys.readouterr().out


def test_the_page_runs_as_it_stands(folder: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    commands = [
        line[2:]
        for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL)
        for line in block.splitlines()
        if line.startswith("$ ")
    ]
    assert len(commands) >= 2
    for command in commands:
        words = shlex.split(command)
        assert words[:3] == ["roofline", "peaks", "measure"]
        done = roofline(*words[1:], cache=folder)
        assert done.code == 0, done.err
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    environment = {**os.environ, "ROOFLINE_CACHE_DIR": str(folder)}
    done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert "measured" in done.stdout


def test_the_page_matches_the_code() -> None:
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    for name in ("read", "copy", "add", "triad", "vector_fma", "vector", "scalar", "gemm"):
        assert f"`{name}`" in text
    for method, seconds in measure.SECONDS.items():
        assert f"| `{method}` |" in text
        assert f"{seconds:g} s" in text
    assert "within 3 %" in text
    assert "ROOFLINE_CACHE_DIR" in text
