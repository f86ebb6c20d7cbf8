"""The examples, run by the commands of docs/examples.md: every kernel gets a correct row, and the check finds the two cheats.

The assertions hold for any times. Only the ceiling is uncertain, because a busy machine may measure it too low. A row above the
ceiling is near_roof; the ceiling is then measured again and the larger one kept. A row beyond the ceiling gets one more run.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from roofline_engine.roofline import LARGEST_CACHE
from support.tool import ROOT

pytest.importorskip("numpy")
pytest.importorskip("pytest_benchmark")
pytestmark = pytest.mark.examples

PAGE = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"(?m)^\$ (pytest .*)$", PAGE)
KERNELS, CHEATS, GATED, PLAIN = (
    "pytest examples/kernels --roofline",
    "pytest examples/cheats --roofline",
    "pytest examples/cheats --roofline --roofline-fail-on=beyond_roof",
    "pytest examples/kernels examples/cheats --benchmark-disable",
)
#: Bytes of the operands of a kernel in runs that measure nothing.
SMALL = 2**22

Rows = dict[str, dict[str, Any]]


class Run(NamedTuple):
    code: int
    out: str
    rows: Rows
    report: dict[str, Any]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, ceilings: Path) -> Callable[..., Run]:
    """Run a command of the page in a copy of the examples."""
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    environment |= {"ROOFLINE_CACHE_DIR": str(ceilings), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "120"}

    def go(command: str, *options: str) -> Run:
        words, report = shlex.split(command), folder / "report.json"
        if "--roofline" in words:
            options += (f"--roofline-report=json:{report}", "--benchmark-max-time=0.2")
        variables = environment if "--roofline" in words else {**environment, "ROOFLINE_EXAMPLE_BYTES": str(SMALL)}
        line = [sys.executable, "-m", *words, "-p", "no:cacheprovider", *options]
        done = subprocess.run(line, cwd=folder, env=variables, capture_output=True, text=True, timeout=300, check=False)
        found = json.loads(report.read_text(encoding="utf-8")) if report.exists() else {"entries": []}
        report.unlink(missing_ok=True)
        return Run(done.returncode, done.stdout + done.stderr, {row["short_name"]: row for row in found["entries"]}, found)

    return go


@pytest.fixture(scope="module")
def kernels(run: Callable[..., Run]) -> Run:
    """The run of the kernels under the gate that the cheats fail."""
    done = run(KERNELS, "--roofline-fail-on=beyond_roof")
    if any(row["check"]["status"] == "beyond_roof" for row in done.rows.values()):
        done = run(KERNELS, "--roofline-fail-on=beyond_roof")
    assert done.code == 0, done.out
    return done


@pytest.fixture(scope="module")
def cheats(run: Callable[..., Run]) -> Run:
    return run(CHEATS)


def test_the_page_shows_these_commands() -> None:
    assert sorted(COMMANDS) == sorted([KERNELS, CHEATS, GATED, PLAIN])


def test_examples_pass_without_the_flag(run: Callable[..., Run]) -> None:
    done = run(PLAIN, "-W", "error")
    assert done.code == 0, done.out
    assert "9 passed" in done.out
    assert "% roof" not in done.out


#: FLOPs and bytes of each kernel, by the formulas of the page.
WORK = {
    "test_stream_triad": (2, 3 * 8),
    "test_sparse_matvec": (2 * 16, 16 * (8 + 4) + 4 + 8 + 8),
    "test_fft": (5 * 20, 2 * 16),
    "test_gemm_naive": (2 * 512, 3 * 8),
    "test_gemm_tuned": (2 * 512, 3 * 8),
    "test_n_body[1024]": (20 * 1024, 7 * 8),
}


def test_each_kernel_has_a_row_with_time_and_work(kernels: Run) -> None:
    assert kernels.rows.keys() == WORK.keys() | {"test_stencil"}
    for name, row in kernels.rows.items():
        assert row["measurement"]["t_s"] > 0, name
        assert row["measurement"]["rounds"] >= 5, name
        assert row["modeled"], name
        assert row["stage"] == "B", name
        assert row["dtype"] == "fp64", name
        assert row["work"]["source"] == ("fixture" if "n_body" in name else "marker"), name
        assert row["target_eff"], name
        assert row["device"] == "cpu", name


@pytest.mark.parametrize("name", WORK)
def test_intensity_matches_the_formula(kernels: Run, name: str) -> None:
    flops, nbytes = WORK[name]
    assert kernels.rows[name]["arithmetic_intensity"] == pytest.approx(flops / nbytes, rel=1e-12)


def test_intensity_of_the_stencil(kernels: Run) -> None:
    row = kernels.rows["test_stencil"]
    inside = round((row["flops_est"] / 8) ** (1 / 3))
    assert row["flops_est"] == 8 * inside**3
    assert row["bytes_est"] == 8 * ((inside + 2) ** 3 + inside**3)


@pytest.mark.parametrize("name", ["test_stream_triad", "test_sparse_matvec", "test_stencil", "test_fft"])
def test_memory_bound_kernels_move_four_times_the_cache(kernels: Run, name: str) -> None:
    cache = kernels.report["devices"]["cpu"]["l2_bytes"]
    if cache is None or cache > LARGEST_CACHE:
        pytest.skip("a cache of unknown size, or one whose fourfold is no example")
    assert kernels.rows[name]["bytes_est"] >= 4 * cache


def test_each_percent_uses_the_measured_roof_and_is_possible(kernels: Run) -> None:
    assert kernels.report["devices"]["cpu"]["source"] == "measured"
    for name, row in kernels.rows.items():
        status, ratio = row["check"]["status"], row["roofline_pct_raw"]
        assert ratio > 0, name
        assert ratio <= 1 or status == "near_roof", (name, ratio, status)
        assert 0 < row["roofline_pct"] <= 1, name


def test_each_kernel_has_a_class_if_the_ceiling_is_reliable(kernels: Run) -> None:
    for name, row in kernels.rows.items():
        if row["headroom_class"] == "unknown":  # infeasible: above the ceiling, or numpy's one core against very many
            assert row["unknown_reason"] in ("low_confidence", "infeasible", "noisy"), (name, row["unknown_reason"])
        assert row["indicative_class"] or row["unknown_reason"] == "infeasible", name


def test_terminal_shows_every_kernel(kernels: Run) -> None:
    table = kernels.out[kernels.out.index("roofline: 7 measured") :]
    for name in kernels.rows:
        assert re.search(rf"(?m)^{re.escape(name)} .*[0-9]", table), name


def test_cheats_are_beyond_the_roof_and_pass(cheats: Run) -> None:
    assert cheats.code == 0, cheats.out
    assert cheats.rows.keys() == {"test_cached_result", "test_overcounted_bytes"}
    for name, axis in (("test_cached_result", "vector.fp64"), ("test_overcounted_bytes", "memory")):
        row = cheats.rows[name]
        assert row["check"]["status"] == "beyond_roof", name
        assert row["check"]["axis"] == axis, name
        assert row["headroom_class"] == "unknown", name
        assert row["suspect"], name
        assert f"BeyondRoofWarning: {name}: beyond_roof" in cheats.out
    assert "a cached result, over-counted work" in cheats.out


def test_cheats_fail_under_the_gate(run: Callable[..., Run]) -> None:
    done = run(GATED)
    assert done.code == 1, done.out
    assert "2 failed" in done.out
    for row in done.rows.values():
        assert row["failed"].startswith("beyond_roof: "), row["failed"]


def test_the_page_lists_the_work_of_each_kernel(kernels: Run) -> None:
    listed = dict(re.findall(r"(?m)^\| `(test_[^`]+)` .*\| ([\d.]+) \|$", PAGE))
    assert listed.keys() == kernels.rows.keys()
    for name, shown in listed.items():
        assert float(shown) == pytest.approx(
            kernels.rows[name]["arithmetic_intensity"], rel=0.05 if "stencil" in name else 5e-3
        )
