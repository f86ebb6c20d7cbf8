"""The figure in a terminal: places of letters, the list, encodings, and what is missing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_roofline.plot import sources
from support.figures import GPU, NASTY, SEVEN, many

pytest.importorskip("plotille")

from pytest_roofline.plot import terminal

ROOFLINE = [sys.executable, "-c", "import sys; from pytest_roofline.cli import main; sys.exit(main())"]


def drawn(document: dict[str, Any], width: int = 100, height: int = 24) -> list[str]:
    return terminal.draw(sources.read_document(document, "table.json"), width, height).splitlines()


def plot_lines(lines: list[str]) -> list[str]:
    """Return the lines of the frame without the numbers of the axis."""
    return [line[11:] for line in lines if line[10:11] in ("│", "┤")]


def test_letters_are_at_the_places_of_their_kernels() -> None:
    """Two kernels a decade apart on both axes, under one bandwidth: the second is right of and above the first."""
    rows = [{"name": "low", "intensity": 1, "gflops": 10}, {"name": "high", "intensity": 10, "gflops": 100}]
    lines = drawn(
        {"bandwidths": [{"name": "HBM", "gbs": 100}], "ceilings": [{"name": "peak", "gflops": 1000}], "kernels": rows}
    )
    frame = plot_lines(lines)
    assert len(frame) == 24
    (low,) = ((at, line.index("a")) for at, line in enumerate(frame) if "a" in line.replace("peak", ""))
    (high,) = ((at, line.index("b")) for at, line in enumerate(frame) if "b" in line)
    axis = lines[next(at for at, line in enumerate(lines) if "└" in line) + 1]
    ticks = {found[0]: found.start() - 11 for found in re.finditer(r"\S+", axis)}
    assert (low[1], high[1]) == (ticks["1"], ticks["10"])
    numbers = {line[:10].strip(): at for at, line in enumerate(line for line in lines if line[10:11] in ("│", "┤"))}
    assert abs(low[0] - numbers["10"]) <= 1
    assert abs(high[0] - numbers["100"]) <= 1
    assert "a  low                             10.0% of roof, up to 10x" in lines
    assert "memory bound: HBM = 100 GB/s" in lines


@pytest.mark.parametrize("width", [50, 80, 140])
@pytest.mark.parametrize("document", [SEVEN, many(70), {"kernels": []}, {**GPU, "kernels": []}])
def test_every_line_fits(document: dict[str, Any], width: int) -> None:
    lines = drawn(document, width)
    assert max(map(len, lines)) <= width
    assert len(plot_lines(lines)) == 24


def test_kernels_beyond_the_letters_and_hidden_ones_are_named() -> None:
    assert "18 more kernels are dots" in drawn(many(70))  # 52 letters
    rows = [{"name": f"k{at}", "intensity": 3, "gflops": 500, "dtype": "fp32", "share": 50 - at} for at in range(2)]
    lines = drawn({**GPU, "kernels": [*rows, {"name": "copy", "gflops": 0, "gbs": 100}]})
    assert any(line.startswith("b  k1") and line.endswith("(under a)") for line in lines)
    assert any(line.startswith("Listed, not drawn: copy, 1") for line in lines)


def test_color_is_that_of_the_verdict_and_none_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"name": "k", "intensity": 3, "gflops": 500, "dtype": "fp32", "headroom_class": "underperforming"}
    document = {**GPU, "kernels": [row]}
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    assert "\x1b" not in "\n".join(drawn(document))
    assert "\x1b" not in "\n".join(drawn({**GPU, "kernels": [{**row, "name": NASTY}]}))
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[31ma" in "\n".join(drawn(document))


def plot(folder: Path, document: Any, **environment: str) -> subprocess.CompletedProcess[str]:
    source = folder / "table.json"
    source.write_text(json.dumps(document), encoding="utf-8")
    env = {**os.environ, "COLUMNS": "80", **environment}
    command = [*ROOFLINE, "plot", str(source)]
    return subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", env=env, check=False, timeout=300)


def test_without_an_output_the_command_draws_here(tmp_path: Path) -> None:
    done = plot(tmp_path, SEVEN, PYTHONIOENCODING="utf-8")
    assert (done.returncode, done.stderr) == (0, "")
    assert "dense GEMM (naive) is farthest from its roof" in done.stdout
    assert any(0x2801 <= ord(letter) <= 0x28FF for letter in done.stdout)
    ascii_only = plot(tmp_path, SEVEN, PYTHONIOENCODING="ascii")
    assert ascii_only.returncode == 0
    assert "......" in ascii_only.stdout


def test_a_missing_library_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['plotille'] = None", encoding="utf-8")
    done = plot(tmp_path, SEVEN, PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "pip install 'pytest-roofline[plot]' (not found: plotille)" in done.stderr
