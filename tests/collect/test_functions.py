"""``perf_report`` functions and KernelBench problems under ``pytest --roofline``: run in a child, with one row per point."""

from __future__ import annotations

import importlib.util
import json
import types
from pathlib import Path
from typing import Any

import pytest

from pytest_roofline.capture.trace import CapturedWork
from pytest_roofline.collect.child import ChildRow
from pytest_roofline.collect.child_main import RESULT_UNITS, read_result
from pytest_roofline.collect.collectors import PythonFile
from pytest_roofline.row import read_part
from roofline_engine.check import Baseline, Claim, Measurement
from roofline_engine.fields import note
from roofline_engine.ops import work
from roofline_engine.units import unit_in
from support.project import Project, Ran

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

#: A stand-in for Triton's decorator.
STAND_IN = """
class Benchmark:
    def __init__(self, x_names, x_vals, line_arg, line_vals, line_names, plot_name, args, xlabel="", ylabel="", **style):
        vars(self).update(locals())

class Mark:
    def __init__(self, fn, benchmarks):
        self.fn, self.benchmarks = fn, benchmarks

def perf_report(benchmarks):
    return lambda fn: Mark(fn, benchmarks)

def do_bench(fn, warmup=25, rep=100, grad_to_none=None, quantiles=None, return_mode="mean"):
    fn()
    return [0.05, 0.04, 0.06] if quantiles else 0.05
"""
BENCH = """
import triton.testing

@triton.testing.perf_report(triton.testing.Benchmark(
    x_names=["M"], x_vals=[64, 128], line_arg="provider", line_vals=["mine", "theirs"], line_names=["Mine", "Theirs"],
    ylabel={ylabel!r}, plot_name="gemm", args={{"N": 2048, "K": 4096, "dtype": "bf16"}}))
def bench_gemm(M, N, K, dtype, provider):
    {body}
"""


def triton(project: Project) -> None:
    """Write a stand-in for Triton."""
    folder = project.path / "stand_in" / "triton"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("__version__ = '3.4.0'\n")
    (folder / "testing.py").write_text(STAND_IN)
    (project.path / "pytest.ini").write_text("[pytest]\npythonpath = stand_in\n")


def bench(project: Project, body: str, ylabel: str = "ms", name: str = "bench_gemm.py") -> None:
    triton(project)
    (project.path / name).write_text(BENCH.format(body=body, ylabel=ylabel))


def run(project: Project, *args: object, **more: Any) -> Ran:
    ran = project.run("--roofline-device=MI355X", *args, **more)
    assert "INTERNALERROR" not in ran.out, ran.out
    return ran


# perf_report.


def test_a_row_per_point_and_provider(project: Project) -> None:
    bench(project, "return (0.05, 0.04, 0.06) if provider == 'mine' else 0.1")
    ran = run(project)
    assert ran.counts == {"passed": 1}
    assert list(ran.rows) == [f"bench_gemm[M={m} {line}]" for m in (64, 128) for line in ("Mine", "Theirs")]
    row = ran.rows["bench_gemm[M=64 Mine]"]
    assert row["nodeid"] == "bench_gemm.py::bench_gemm[M=64 Mine]"
    assert row["line"] == 4 + 3  # the function's, under its decorator
    measured = row["measurement"]
    assert (measured["t_s"], measured["q1_s"], measured["q3_s"]) == pytest.approx((50e-6, 40e-6, 60e-6))
    assert ran.rows["bench_gemm[M=128 Theirs]"]["measurement"]["t_s"] == pytest.approx(1e-4)
    assert row["flops_est"] == 2 * 64 * 2048 * 4096  # by the names of its arguments
    assert (row["stage"], row["work"]["source"]) == ("A", "names")


@pytest.mark.parametrize(("ylabel", "t_s"), [("Runtime (us)", 5e-8), ("Execution Time (ms)", 5e-5), ("s", 0.05)])
def test_a_time_uses_the_unit_of_its_axis(project: Project, ylabel: str, t_s: float) -> None:
    bench(project, "return 0.05", ylabel)
    assert run(project).rows["bench_gemm[M=64 Mine]"]["measurement"]["t_s"] == pytest.approx(t_s)


def test_a_printed_rate_is_compared_with_its_time(project: Project) -> None:
    """17.56 MB in 50 us are 0.351 TB/s, and three times that is printed."""
    body = "ms, *_ = triton.testing.do_bench(lambda: None, quantiles=[0.5, 0.2, 0.8])\n    return 3 * 17.563648e6 / ms * 1e-6"
    bench(project, body, "GB/s")
    row = run(project).rows["bench_gemm[M=64 Mine]"]
    assert row["measurement"]["t_s"] == pytest.approx(50e-6)
    assert (row["measurement"]["clock"], row["measurement"]["cache"]) == ("device-event", "cold")
    assert "1.054 TB/s is printed, shape and time give 351.3 GB/s" in row["notes"]


@pytest.mark.parametrize(
    ("body", "ylabel", "line"),
    [
        ("return 100.0", "ms", "gate: 4 checked, 0 failed, 0 allowed, 0 unchecked"),
        ("return None", "ms", "gate: 0 checked, 0 failed, 0 allowed, 4 unchecked (no_time 4)"),
        ("return 90000.0", "TFLOPS", "gate: 0 checked, 0 failed, 0 allowed, 4 unchecked (no_time 4)"),
    ],
)
def test_each_point_is_given_to_a_gate(project: Project, body: str, ylabel: str, line: str) -> None:
    bench(project, body, ylabel)
    ran = run(project, "--roofline-fail-on=beyond_roof", "-q")
    assert line in ran.out.splitlines()
    assert ran.code == ("0 checked" in line)


def test_a_rate_without_a_time_is_compared_with_the_device(project: Project) -> None:
    bench(project, "return 90000.0", "TFLOPS")
    row = run(project).rows["bench_gemm[M=64 Mine]"]
    assert row["measurement"] is None
    assert "its printed rate is wrong: " in row["notes"]
    assert "90 PFLOP/s is printed" in row["notes"]


@pytest.mark.parametrize(
    ("body", "ylabel", "why"),
    [
        ("return None", "ms", "it returned None, expected a number or three"),
        ("return -1.0", "ms", "it returned -1.0, not a time or rate"),
        ("return float('nan')", "GB/s", "it returned nan, not a time or rate"),
        ("return 1.0", "speedup", "no unit of time or rate in its ylabel 'speedup'"),
        ("return 1.0", "", "no unit of time or rate in its ylabel ''"),
    ],
)
def test_an_invalid_figure_has_a_reason(project: Project, body: str, ylabel: str, why: str) -> None:
    bench(project, body, ylabel)
    row = run(project).rows["bench_gemm[M=64 Mine]"]
    assert row["measurement"] is None
    assert why in row["notes"]


def test_a_point_that_raises_fails_its_row_and_all_fail_the_item(project: Project) -> None:
    bench(project, "if M == 128: raise MemoryError('128 does not fit')\n    return 0.05")
    ran = run(project)
    assert ran.counts == {"passed": 1}
    assert ran.rows["bench_gemm[M=64 Mine]"]["measurement"] is not None
    assert "it raised MemoryError: 128 does not fit" in ran.rows["bench_gemm[M=128 Mine]"]["notes"]
    (project.path / "bench_gemm.py").write_text(BENCH.format(body="raise OSError('no device')", ylabel="ms"))
    ran = run(project)
    assert ran.counts == {"failed": 1}
    assert "every call of bench_gemm raised, the last: OSError: no device" in ran.out


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("import ctypes; ctypes.string_at(0)", "killed by SIGSEGV"),
        ("raise SystemExit(0)", "bench_gemm.py ended its process when it was imported or called"),
        ("import os; os._exit(0)", "bench_gemm.py ended its process"),
        ("import time; time.sleep(600)", "not done after 3 s"),
    ],
)
def test_a_process_that_ends_early_fails_its_item(project: Project, body: str, told: str) -> None:
    bench(project, body)
    project.write(test_other="def test_one(): pass")
    ran = run(project, "-o", "roofline_item_timeout=3")
    assert ran.counts == {"failed": 1, "passed": 1}
    assert told in ran.out


def test_without_triton_it_is_skipped_with_the_reason(project: Project) -> None:
    bench(project, "return 1.0")
    (project.path / "stand_in" / "triton" / "__init__.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'triton'\", name='triton')"
    )
    ran = run(project, "-rs")
    assert ran.counts == {"skipped": 1}
    assert "needs triton, which is not installed" in ran.out


def test_which_files_are_benchmarks(project: Project) -> None:
    bench(project, "return 0.05", name="gemm.py")
    assert run(project).code == 5  # neither named like one nor on the command line
    assert run(project, "gemm.py").counts == {"passed": 1}
    assert run(project, "gemm.py::bench_gemm").counts == {"passed": 1}
    both = (project.path / "gemm.py").read_text() + "\ndef test_one(): pass\n"
    (project.path / "gemm.py").write_text(both)
    (project.path / "conftest.py").write_text("import sys; sys.path.insert(0, 'stand_in')")
    listed = run(project, "gemm.py", "--co", "-q", report=False).out
    assert "gemm.py::test_one" in listed
    assert "gemm.py::bench_gemm" in listed
    (project.path / "gemm.py").rename(project.path / "benchmark_gemm.py")
    assert run(project).counts == {"passed": 1}


def test_a_run_at_import_is_skipped(project: Project) -> None:
    bench(project, "print('called'); return 0.05")
    path = project.path / "bench_gemm.py"
    path.write_text(path.read_text() + "\nbench_gemm.run(print_data=True, save_path='.')\n")
    ran = run(project, "-rP")
    assert ran.counts == {"passed": 1}
    assert ran.out.count("called") == 4  # by each point


def test_collecting_runs_nothing(project: Project) -> None:
    bench(project, "return 0.05")
    path = project.path / "bench_gemm.py"
    path.write_text(path.read_text() + "\nopen('ran', 'w')\n")
    assert "bench_gemm.py::bench_gemm" in run(project, "--co", "-q", report=False).out
    assert not (project.path / "ran").exists()


def test_under_workers(project: Project) -> None:
    bench(project, "return 0.05")
    ran = run(project, "-n2", plugins=("xdist",))
    assert ran.counts == {"passed": 1}
    assert len(ran.rows) == 4


@needs_triton
@needs_torch
def test_perf_report_of_triton_with_a_torch_timer(project: Project) -> None:
    """A copy of 2^20 floats reads and writes 4 MiB each."""
    (project.path / "bench_copy.py").write_text(
        """
import torch
import triton
from torch.utils.benchmark import Timer

@triton.testing.perf_report(
    triton.testing.Benchmark(["n"], [1 << 20], "provider", ["torch"], ["torch"], "copy", {}, ylabel="GB/s")
)
def benchmark(n, provider):
    x, y = torch.zeros(n), torch.zeros(n)
    t = Timer("y.copy_(x)", globals={"x": x, "y": y}).blocked_autorange(min_run_time=0.02).median
    return 2 * 4 * n / t * 1e-9
"""
    )
    row = run(project).rows["benchmark[n=1048576 torch]"]
    assert row["bytes_est"] == 2 * 4 * 2**20
    assert (row["stage"], row["work"]["source"]) == ("B", "captured")
    assert row["measurement"]["t_s"] > 0
    assert "its printed rate is wrong" not in row["notes"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("@perf_report(configs)\ndef f(): pass", ["f"]),
        ("@triton.testing.perf_report([a, b])\ndef f(): pass", ["f"]),
        ("def f(): pass\nbench = triton.testing.perf_report(configs)(f)", ["bench"]),
        ("def get():\n    @perf_report(c)\n    def f(): pass", []),
        ("@other\ndef f(): pass  # perf_report", []),
        ("benchmark.run()  # of perf_report", []),
    ],
)
def test_the_functions_of_a_file(tmp_path: Path, text: str, names: list[str]) -> None:
    path = tmp_path / "a.py"
    path.write_text(text)
    assert [name for name, _ in PythonFile(path).reports()] == names


@pytest.mark.parametrize(
    ("label", "unit"),
    [
        ("ms", ("", 1e-3)),
        ("Runtime (us)", ("", 1e-6)),
        ("time [\u03bcs]", ("", 1e-6)),
        ("GB/s", ("memory", 1e9)),
        ("Bandwidth (GiB/s)", ("memory", 2**30)),
        ("TFLOPS", ("compute", 1e12)),
        ("TFLOP/s", ("compute", 1e12)),
        ("tokens", None),
        ("ms or GB/s", None),
        ("forms", None),
    ],
)
def test_units(label: str, unit: tuple[str, float] | None) -> None:
    found = unit_in(label, *RESULT_UNITS)
    assert (None if found is None else (found.axis, found.factor)) == unit


def test_a_dict_by_unit() -> None:
    found = read_result({"ms": 0.05, "GB/s": 351.0, "provider": "mine"}, "")
    assert found.measurement is not None
    assert found.measurement.t_s == pytest.approx(50e-6)
    assert found.claims == (Claim("memory", 351e9),)
    assert "no key has a unit" in read_result({"a": 1}, "ms").problem


def test_a_row_survives_json() -> None:
    done = work("gemm", M=64, N=2048, K=4096, dtype="bf16", weight_dtype="fp8")
    row = ChildRow(
        "M=64 mine",
        CapturedWork("torch", done, launches=2, operations=3, notes=(note("a note"),)),
        Measurement("user", 5e-5, 4e-5, 6e-5, 10, "host", "warm", ("another",)),
        Baseline("eager", t_s=1e-4),
        (Claim("memory", 1e12, 0.01),),
        "cpu",
        "a problem",
    )
    assert read_part(ChildRow, json.loads(row.to_json()), "row") == row
    empty = ChildRow("", CapturedWork("", reason="why"))
    assert read_part(ChildRow, json.loads(empty.to_json()), "row") == empty


# Problem files.

PROBLEM = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, A, B):
        return torch.matmul(A, B) * self.scale

M, K, N = 256, 512, 128

def get_inputs():
    return [torch.rand(M, K), torch.rand(K, N)]

def get_init_inputs():
    return [2.0]
"""
NEW = """
class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, A, B):
        return torch.matmul(A * self.scale, B){wrong}
"""


def problem(project: Project, text: str = PROBLEM, name: str = "1_Matmul_scaled_.py") -> None:
    (project.path / name).write_text(text)


@needs_torch
def test_the_work_of_a_problem_is_read_on_the_meta_device(project: Project) -> None:
    """The inputs are 1 TB, and none is allocated."""
    problem(project, PROBLEM.replace("256, 512, 128", "1 << 20, 1 << 18, 1 << 19"))
    ran = run(project)
    assert ran.counts == {"passed": 1}
    (row,) = ran.report["entries"]
    assert row["nodeid"] == "1_Matmul_scaled_.py::1_Matmul_scaled_"
    m, k, n = 1 << 20, 1 << 18, 1 << 19
    assert row["flops_est"] == pytest.approx(2 * m * k * n, rel=1e-3)  # and one multiplication an output
    assert row["bytes_est"] == pytest.approx(4 * (m * k + k * n + m * n))
    assert row["measurement"] is None


@needs_torch
def test_a_problem_that_needs_values_has_no_work() -> None:
    from pytest_roofline.collect.child_main import problem as rows_of

    module = types.ModuleType("eye")
    exec(PROBLEM.replace("torch.rand(M, K)", "torch.eye(int(torch.rand(1).item() * 4) + 1)"), vars(module))
    (row,) = rows_of(module, "no")
    assert row.captured.work is None
    assert row.captured.reason.startswith("the model does not run on the meta device: RuntimeError: ")


@needs_torch
def test_a_problem_is_timed_on_request_and_compared_with_its_candidate(project: Project) -> None:
    for name, wrong in (("1_Timed.py", ""), ("2_Timed.py", " * 1.1")):
        text = "import time" + PROBLEM + NEW.format(wrong=wrong)
        # Far under any ceiling of this machine, also one that was measured while the machine was busy.
        problem(project, text.replace("        return", "        time.sleep(5e-3)\n        return"), name)
    ran = run(project, "--roofline-time=*Timed*")
    assert ran.counts == {"failed": 1, "passed": 1}
    assert "ModelNew differs from Model by up to" in ran.out
    assert list(ran.rows) == ["1_Timed[Model]", "1_Timed[ModelNew]"]
    old, new = ran.rows.values()
    for row in (old, new):
        assert row["measurement"]["t_s"] > 0
        assert row["measurement"]["source"] == "roofline"
        assert row["flops_est"] == pytest.approx(2 * 256 * 512 * 128, rel=5e-3)
    assert (new["baseline"]["kind"], new["check"]["status"]) == ("eager", "not_comparable")
    assert new["baseline"]["t_s"] == old["measurement"]["t_s"]


def test_without_torch_it_is_skipped_with_the_reason(project: Project) -> None:
    problem(project)
    (project.path / "stand_in").mkdir()
    (project.path / "stand_in" / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')")
    (project.path / "pytest.ini").write_text("[pytest]\npythonpath = stand_in\n")
    ran = run(project, "-rs")
    assert ran.counts == {"skipped": 1}
    assert "needs torch, which is not installed" in ran.out


def test_files_that_are_not_problems_are_not_collected(project: Project) -> None:
    problem(project, PROBLEM.replace("get_init_inputs", "get_more"), "a.py")
    problem(project, "def f():\n" + "\n".join(f"    {line}" for line in PROBLEM.splitlines()), "b.py")
    problem(project, PROBLEM.replace("class Model(", "class ModelNew("), "c.py")
    assert run(project).code == 5
