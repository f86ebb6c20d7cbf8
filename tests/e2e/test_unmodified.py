"""Every kind of test and script in one run, and files that end their process next to ordinary tests."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from support.pages import run_page
from support.project import Project, Ran
from support.tool import ROOT

pytest_plugins = ["pytester"]

EXAMPLES = ROOT / "examples" / "unmodified"
FRAMEWORKS = ("torch", "triton", "jax")
MISSING = [name for name in FRAMEWORKS if find_spec(name) is None]

#: Files with the name of a test that end a run of pytest or hang it.
PLANTED = {
    "test_exits.py": "import sys\nprint('usage: no')\nsys.exit(2)\n",
    "test_crashes.py": "import argparse, ctypes\nargparse.ArgumentParser().parse_args()\nctypes.string_at(0)\n",
    "test_hangs.py": "import argparse, time\nargparse.ArgumentParser().parse_args()\ntime.sleep(600)\n",
    "test_writes.py": "import argparse, sys\nargparse.ArgumentParser().parse_args()\n"
    "for _ in range(100): sys.stdout.write('x' * 1_000_000 + '\\n')\nsys.exit(1)\n",
}


def work(row: dict[str, Any]) -> tuple[str | None, float | None, float | None]:
    return row["work"]["source"], row["bytes_est"], row["flops_est"]


def test_a_file_that_ends_its_process_fails_only_its_item(project: Project) -> None:
    project.write(test_before="def test_before(): pass", test_zz_after="def test_after(): pass")
    for name, text in PLANTED.items():
        (project.path / name).write_text(text)
    (project.path / "pytest.ini").write_text("[pytest]\nroofline_item_timeout = 5\n")
    ran = project.spawn()
    assert ran.code == 1
    assert ran.counts == {"failed": len(PLANTED), "passed": 2}
    for name, said in (
        ("test_exits", "exit status 2"),
        ("test_crashes", "killed by SIGSEGV"),
        ("test_hangs", "not done after 5 s (roofline_item_timeout)"),
        ("test_writes", "exit status 1"),
    ):
        assert f"FAILED {name}.py::{name} - Failed: {said}" in ran.out
    assert len(ran.out) < 100_000


@pytest.fixture(scope="module")
def page_run(tmp_path_factory: pytest.TempPathFactory, ceilings: Path) -> Ran:
    """The run of examples/unmodified, one of the commands of docs/unmodified.md."""
    folder = tmp_path_factory.mktemp("page")
    report = folder / "roofline.json"
    runs = {}
    for command, done in run_page("unmodified", folder, ceilings, f"--roofline-report=json:{report}"):
        kept = folder / f"run_{len(runs)}"
        kept.mkdir()
        report.rename(kept / report.name)
        runs[command] = Ran(done.returncode, done.stdout, kept)
    return runs["pytest --roofline examples/unmodified"]


@pytest.mark.docs
def test_the_page_runs_as_it_stands(page_run: Ran) -> None:
    assert page_run.code == 0


@pytest.mark.docs
@pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}")
def test_each_shape_of_test_is_a_row(page_run: Ran) -> None:
    ran = page_run
    # On some machine a gain exceeds its target, which is a warning.
    assert set(ran.counts) - {"warning", "warnings"} == {"passed"}, ran.out
    rows = {row["nodeid"].removeprefix("unmodified/"): row for row in ran.report["entries"]}

    # S1, parametrized and not timed: fp32 rows in and out and a row of weights, 4 FLOPs an element.
    norm = rows["test_norm.py::test_rms_norm[1024-4096]"]
    assert work(norm) == ("captured", 4 * 1024 * (2 * 4096 + 1), 4 * 4096 * 1024)
    assert norm["measurement"] is None

    # S2, returned: A, B and C in fp32 (the dict names no output, aiter's default is bf16).
    gemm = rows["test_returns_figures.py::test_gemm[float32-256-1024-512][numpy]"]
    assert work(gemm) == ("returned", 4 * (256 * 512 + 512 * 1024) + 2 * 256 * 1024, 2 * 256 * 1024 * 512)
    assert gemm["measurement"]["t_s"] > 0

    # S3, a script that reads the command line as it is imported.
    scripts = [row for name, row in rows.items() if name.startswith("op_tests/gemm_sweep.py")]
    assert [work(row) for row in scripts] == [
        ("script", 4 * (m * 1024 + 1024 * 1024 + m * 1024), 2 * m * 1024 * 1024) for m in (64, 256, 1024)
    ]

    # S4, a task folder: shapes from meta.json.
    for m in (8, 512):
        case = next(row for name, row in rows.items() if name.startswith("kernels/") and f"M{m}" in name)
        assert work(case)[1:] == (4 * (m * 2048 + 1024 * 2048 + m * 1024), 2 * m * 1024 * 2048)
        assert case["measurement"]["t_s"] > 0

    # S5, perf_report: 2048 rows, the author's norm op by op and torch's as one.
    for n in (1024, 4096):
        for provider in ("mine", "torch"):
            row = rows[f"benchmarks/bench_rmsnorm.py::benchmark[N={n} {provider}]"]
            assert work(row)[:2] == ("captured", 4 * n * (2 * 2048 + 1))

    # S6, the benchmark fixture: causal attention over 256 queries, 4 heads of 64; silu(gate) * up of 2048 x 2048.
    pairs = 256 * 257 // 2
    for heads in (4, 1):
        row = rows[f"test_attention_bench.py::test_causal[{heads}]"]
        assert work(row) == ("captured", 4 * 64 * 256 * (2 * 4 + 2 * heads), 4 * 4 * pairs * 64)
    assert work(rows["test_attention_bench.py::test_gated"])[:2] == ("captured", 3 * 4 * 2048 * 2048)
    assert work(rows["test_numpy_bench.py::test_matmul"]) == (
        "captured",
        4 * (256 * 512 + 512 * 1024 + 256 * 1024),
        2 * 256 * 512 * 1024,
    )
    assert work(rows["test_numpy_bench.py::test_axpy"])[:2] == ("captured", 3 * 8 * (1 << 22))
    assert work(rows["test_jax_bench.py::test_matmul"]) == (
        "captured",
        4 * (256 * 512 + 512 * 1024 + 256 * 1024),
        2 * 256 * 512 * 1024,
    )
    assert work(rows["test_jax_bench.py::test_softmax"])[:2] == ("captured", 2 * 4 * 2048 * 1024)

    # A Triton kernel in the interpreter: work, and no time that would be Python's.
    add = rows["test_triton_add.py::test_add[98432]"]
    assert work(add)[:2] == ("captured", 3 * 4 * 98432)
    assert add["measurement"] is None

    # A problem file of KernelBench: input, two weights, output; two products of 1024 x 2048 x 4096.
    problem = rows["level1/12_Gated_linear.py::12_Gated_linear"]
    assert problem["bytes_est"] == 4 * (1024 * 2048 + 2 * 2048 * 4096 + 1024 * 4096)
    assert problem["flops_est"] == 2 * 2 * 1024 * 2048 * 4096
    assert problem["measurement"] is None


@pytest.mark.docs
def test_without_the_flag_the_plugin_collects_none_of_them(project: Project) -> None:
    shutil.copytree(EXAMPLES, project.path / "unmodified")
    with_plugin = project.spawn("--collect-only", "-q", "unmodified", plugins=("benchmark",), on=False, torch=True)
    without = project.spawn("--collect-only", "-q", "unmodified", plugins=("roofline", "benchmark"), on=None, torch=True)
    named = [[line for line in ran.out.splitlines() if "::" in line] for ran in (with_plugin, without)]
    assert named[0] == named[1]
    assert not any(part in ran.out for ran in (with_plugin, without) for part in ("unittest.py", "bench_rmsnorm", "12_Gated"))
