"""Work of tests without a declaration: captured from what they time, from their own call, or read from what they return."""

from __future__ import annotations

import functools
from importlib.util import find_spec
from typing import Any

import pytest

from pytest_roofline.capture.watching import uses_clock_or_modes
from support.project import Project

pytest_plugins = ["pytester"]

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
BENCHMARK = ("benchmark",)
QUICK = ("--benchmark-min-rounds=3", "--benchmark-max-time=0.01", "--roofline-device=MI355X")


# torch, in processes forked from one that has imported it.

TORCH = """
    import pytest, torch
    import torch.nn.functional as F

    A = torch.ones(64, 32)
    B = torch.ones(32, 16)
    calls = []

    def mm(a, b):
        calls.append(1)
        return a @ b

    def test_arguments(benchmark):
        benchmark(mm, A, B)

    def test_closure(benchmark):
        benchmark(lambda: A @ B)

    def test_pedantic(benchmark):
        calls.clear()
        benchmark.pedantic(mm, args=(A, B), rounds=4, warmup_rounds=0)
        assert len(calls) == 4

    def test_disabled_timer_is_not_called_more(benchmark):
        calls.clear()
        benchmark.disabled = True
        benchmark(mm, A, B)
        assert len(calls) == 1

    def test_fixture(roofline):
        assert roofline.measure(torch.softmax, A, -1).shape == A.shape

    @pytest.mark.roofline(bytes=1e6)
    def test_marked(benchmark):
        benchmark(mm, A, B)

    def test_declared(benchmark, roofline):
        roofline(bytes=2e6)
        benchmark(mm, A, B)

    grown = [1]

    def test_changing(benchmark):
        def grow():
            grown.append(1)
            return torch.ones(len(grown))
        benchmark(grow)

    raised = []

    def test_raising(benchmark):
        def once():
            if torch._C._len_torch_dispatch_stack():
                raise RuntimeError("not under a mode")
            return A @ B
        benchmark(once)

    def test_unknown(benchmark):
        benchmark(torch.linalg.svdvals, A)

    def test_own_call_by_name():
        x = torch.randn(8, 128)
        out = torch.softmax(x, -1)
        torch.testing.assert_close(out.sum(-1), torch.ones(8))

    def test_layer_norm():
        x, w, b = torch.randn(8, 128), torch.ones(128), torch.zeros(128)
        F.layer_norm(x, (128,), w, b)
        (x - x.mean(-1, keepdim=True)) * w

    def test_nothing_of_ours():
        assert 1

    def test_meta(benchmark):
        benchmark(mm, A.to("meta"), B.to("meta"))

    def test_returns_a_tensor_count(benchmark):
        assert benchmark(mm, A, B).shape == (64, 16)
"""

#: C = A B, fp32: the three matrices once, a multiply and an add per term.
MM_BYTES, MM_FLOPS = 4 * (64 * 32 + 32 * 16 + 64 * 16), 2 * 64 * 32 * 16


@needs_torch
def test_what_a_test_of_torch_times_is_captured(project: Project) -> None:
    ran = project.write(test_a=TORCH).spawn(*QUICK, plugins=BENCHMARK, torch=True)
    assert set(ran.counts) == {"passed"}, ran.out
    rows = ran.rows

    def work(name: str) -> tuple[str | None, float | None, float | None, str]:
        row = rows[name]
        return row["work"]["source"], row["bytes_est"], row["flops_est"], row["stage"]

    for name in ("test_arguments", "test_closure", "test_returns_a_tensor_count"):
        assert work(name) == ("captured", MM_BYTES, MM_FLOPS, "B")
        assert rows[name]["notes"].startswith("captured: torch; ")
    assert work("test_fixture")[:2] == ("captured", 2 * 4 * 64 * 32)
    assert work("test_marked") == ("marker", 1e6, 0, "B")
    assert work("test_declared") == ("fixture", 2e6, 0, "B")
    # CPU arrays are not compared with the accelerator of the run.
    assert {rows[name]["device"] for name in ("test_arguments", "test_closure", "test_marked")} == {"cpu"}
    # Where the work is unknown, the arrays that go in and come out: for display.
    args = {
        "test_pedantic": "not captured: benchmark.pedantic() runs a fixed number of calls",
        "test_changing": "capture dropped: the captured call returned something other than the timed calls",
        "test_raising": "RuntimeError: not under a mode",
        "test_unknown": "svd",
    }
    for name, reason in args.items():
        assert rows[name]["work"]["coverage"] == "args"
        assert work(name)[2:] == (0, "A")
        assert reason in rows[name]["notes"]
    assert work("test_pedantic")[1] == work("test_raising")[1] == MM_BYTES
    # Tests without a timer: the op that the name tells, out of all that ran; a guess, so for display.
    assert work("test_layer_norm") == ("captured", 4 * (2 * 8 * 128 + 2 * 128), 7 * 8 * 128, "A")
    assert rows["test_layer_norm"]["measurement"] is None
    assert rows["test_layer_norm"]["unknown_reason"] == "not_measured"
    assert rows["test_layer_norm"]["roof_s"] == pytest.approx(4 * (2 * 8 * 128 + 2 * 128) / 8e12, rel=1e-6)
    assert work("test_own_call_by_name") == ("captured", 2 * 4 * 8 * 128, 5 * 8 * 128, "A")
    assert "test_nothing_of_ours" not in rows
    assert work("test_meta")[:3] == ("captured", MM_BYTES, MM_FLOPS)
    assert rows["test_meta"]["measurement"] is rows["test_meta"]["roofline_pct"] is None  # nothing was computed


@needs_torch
def test_capture_off_watches_nothing(project: Project) -> None:
    project.write(
        test_a="""
        import torch
        from torch.utils._python_dispatch import _len_torch_dispatch_stack

        def test_a(benchmark):
            seen = []
            def fn():
                seen.append(torch._C._len_torch_dispatch_stack())
            benchmark(fn)
            assert not any(seen)
            assert type(benchmark).__call__.__module__ == type(benchmark).__module__

        def test_b():
            assert not torch._C._len_torch_dispatch_stack()
        """.replace("        from torch.utils._python_dispatch import _len_torch_dispatch_stack\n", "")
    )
    ran = project.spawn(*QUICK, "--roofline-capture=off", plugins=BENCHMARK, torch=True)
    assert ran.counts == {"passed": 2}
    assert ran.rows["test_a"]["work"]["source"] is None
    assert "test_b" not in ran.rows


@needs_torch
def test_calls_of_a_timer_are_rows_and_their_test_is_not_watched(project: Project) -> None:
    project.write(
        test_a="""
        import torch
        from torch.utils.benchmark import Timer

        A, B = torch.ones(64, 32), torch.ones(32, 16)
        watched = torch._C._len_torch_dispatch_stack

        def test_two_timers():
            assert not watched()
            first = Timer("torch.mm(A, B)", globals=globals()).timeit(5)
            second = Timer("A + 1", globals=globals()).timeit(5)
            assert first.median > 0 and second.median > 0

        def test_times_nothing():
            assert watched()
            torch.softmax(A, -1)
        """
    )
    ran = project.spawn("--roofline-device=cpu", plugins=BENCHMARK, torch=True)
    assert ran.counts == {"passed": 2}
    rows = ran.rows
    first, second = rows["test_two_timers#1"], rows["test_two_timers#2"]
    assert (first["bytes_est"], first["flops_est"]) == (MM_BYTES, MM_FLOPS)
    assert second["bytes_est"] == 2 * 4 * 64 * 32
    assert first["measurement"]["source"] == "user"
    assert "by torch.utils.benchmark.Timer.timeit" in first["measurement"]["notes"]
    assert rows["test_times_nothing"]["bytes_est"] == 2 * 4 * 64 * 32


@needs_torch
def test_a_timed_function_is_watched_before_the_test_goes_on(project: Project) -> None:
    """The function is watched once, before the test goes on. Later changes do not matter, and nothing runs after the test."""
    project.write(
        hidden="""
        from torch.utils.benchmark import Timer

        def figure(statement, space):
            return Timer(statement, globals=space).timeit(5).median
        """,
        test_a="""
        import torch
        from hidden import figure  # no name in this file tells of a clock

        A, B = torch.ones(64, 32), torch.ones(32, 16)
        state = {"a": A, "open": False}
        calls = []

        def fn():
            calls.append((state["open"], torch._C._len_torch_dispatch_stack()))
            return state["a"] @ B

        def test_closes():
            torch.softmax(A, -1)
            state["open"] = True
            assert figure("fn()", globals()) > 0
            state["open"], state["a"] = False, torch.ones(2, 32)

        def test_after():
            assert all(was_open for was_open, _ in calls)
            assert [depth for _, depth in calls] == (len(calls) - 1) * [0] + [1]  # the last alone is watched
            calls.clear()

        def test_capture_runs_once_more():
            state["open"] = True
            figure("fn()", globals())
            assert len(calls) == 2 + 5 + 1  # torch warms up by two, five are timed
        """,
    )
    ran = project.spawn("--roofline-device=MI355X", torch=True)
    assert ran.counts == {"passed": 3}
    assert (ran.rows["test_closes"]["bytes_est"], ran.rows["test_closes"]["flops_est"]) == (MM_BYTES, MM_FLOPS)


@pytest.mark.skipif(not (find_spec("torch") and find_spec("triton")), reason="needs torch and triton")
def test_a_kernel_in_the_triton_interpreter_has_work_but_no_time(project: Project) -> None:
    project.write(
        test_a="""
        import pytest, torch, triton
        import triton.language as tl

        @triton.jit
        def _scale_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
            at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            tl.store(out_ptr + at, 2 * tl.load(x_ptr + at, mask=at < n), mask=at < n)

        def scale(x):
            out = torch.empty_like(x)
            _scale_kernel[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128)
            return out

        X = torch.rand(1000)

        def test_timed(benchmark):
            benchmark(scale, X)

        def test_plain():
            torch.testing.assert_close(scale(X), 2 * X)
        """
    )
    path = project.json(
        "predictions.json", {"skill_version": "1", "peaks": {}, "entries": [{"name": "scale_kernel_0d1d2c", "op": "copy"}]}
    )
    ran = project.spawn(*QUICK, f"--roofline-predictions={path}", plugins=BENCHMARK, torch=True, TRITON_INTERPRET="1")
    assert ran.counts == {"passed": 2}
    for name in ("test_timed", "test_plain"):
        row = ran.rows[name]
        assert row["bytes_est"] == 2 * 4 * 1000
        assert row["measurement"] is None
        assert row["roofline_pct"] is None
        assert row["prediction"]["matched"] == "by the kernel it launches, _scale_kernel"
        assert "interpreter" in row["notes"]


# What a test returns.


def test_returned_figures_are_rows_without_a_warning(project: Project) -> None:
    project.write(
        test_a="""
        import numpy as np, pytest

        @pytest.mark.parametrize("m,n,k", [(64, 4096, 7168)])
        @pytest.mark.parametrize("dtype", ["bf16"])
        def test_gemm(m, n, k, dtype):
            return {"ck us": np.float64(20.0), "ck TFLOPS": 2 * m * n * k / 20.0 / 1e6, "triton us": 40.0}

        def test_rows():
            return [{"M": 64, "N": 4096, "K": 7168, "dtype": "bf16", "us": us, "TFLOPS": 1.0} for us in (20.0, 25.0)]

        @pytest.mark.roofline(bytes=80e6)
        def test_marked():
            return {"my_us": 20.0}
        """
    )
    ran = project.run("-W", "error", "--roofline-device=MI355X")
    assert ran.counts == {"passed": 3}
    nbytes = 2 * (64 * 7168 + 7168 * 4096 + 64 * 4096)
    ck, triton = (ran.rows[f"test_gemm[bf16-64-4096-7168][{name}]"] for name in ("ck", "triton"))
    assert (ck["work"]["source"], ck["bytes_est"], ck["t_unit_ms"]) == ("returned", nbytes, pytest.approx(0.02))
    assert ck["roofline_pct"] == pytest.approx(nbytes / 20e-6 / 8e12, rel=1e-3)
    assert triton["t_unit_ms"] == pytest.approx(0.04)
    assert ck["measurement"]["clock"] == "unknown"  # how it took its time is not in the dict
    assert "its printed rate is wrong" in ran.rows["test_rows"]["notes"]  # 1.0 TFLOPS is not what the shape and 20 us give
    assert ran.rows["test_rows[#2]"]["t_unit_ms"] == pytest.approx(0.025)
    marked = ran.rows["test_marked[my]"]
    assert (marked["work"]["source"], marked["bytes_est"]) == ("marker", 80e6)


@needs_torch
def test_a_returned_time_without_sizes_gets_the_work_of_the_timed_call(project: Project) -> None:
    project.write(
        test_a="""
        import pytest, torch
        from torch.utils.benchmark import Timer

        A, B = torch.ones(64, 32), torch.ones(32, 16)

        def timed(text):
            return Timer(text, globals=globals()).timeit(5).median * 1e6

        def test_one():
            return {"us": round(timed("torch.mm(A, B)"), 4)}

        def test_another_time():
            return {"us": 2 * timed("torch.mm(A, B)")}

        @pytest.mark.roofline(bytes=8)
        def test_marked():
            return {"us": timed("torch.mm(A, B)")}
        """
    )
    ran = project.spawn("--roofline-device=MI355X", plugins=BENCHMARK, torch=True)
    assert ran.counts == {"passed": 3}
    one = next(row for name, row in ran.rows.items() if name.startswith("test_one"))
    assert (one["work"]["source"], one["bytes_est"], one["flops_est"]) == ("captured", MM_BYTES, MM_FLOPS)
    other = next(row for name, row in ran.rows.items() if name.startswith("test_another_time"))
    assert (other["bytes_est"], other["unknown_reason"]) == (None, "unmodelled")
    marked = next(row for name, row in ran.rows.items() if name.startswith("test_marked"))
    assert (marked["work"]["source"], marked["bytes_est"]) == ("marker", 8)


@needs_torch
def test_torch_jit_trace_runs_as_it_does_without_capture(project: Project) -> None:
    """torch.jit.trace checks its graph by another run, and fails in that under any dispatch mode (torch 2.13)."""
    project.write(
        test_a="""
        import torch

        A = torch.ones(4, 4)

        def test_scale():
            traced = torch.jit.trace(lambda x: x * 2, (A,))
            assert torch.equal(traced(A), A * 2)

        def test_timed(benchmark):
            benchmark(lambda: torch.jit.trace(lambda x: x * 2, (A,)))
        """
    )
    ran = project.spawn(*QUICK, plugins=BENCHMARK, torch=True)
    assert ran.counts["passed"] == 2
    row = ran.rows["test_timed"]
    assert row["work"]["coverage"] == "args"
    assert "traces with torch.jit" in row["notes"]


def test_other_returned_values_are_left_to_pytest(project: Project) -> None:
    project.write(
        test_a="""
        import unittest

        def test_number():
            return 1.5

        def test_dict():
            return {"error": 0.1, "status": "us"}

        def test_tuple():
            return 0.1, 0.2

        class TestOld(unittest.TestCase):
            def test_method(self):
                return {"us": 3.0}
        """
    )
    ran = project.run("-W", "ignore::DeprecationWarning", "-rw")
    alone = project.run("-W", "ignore::DeprecationWarning", "-rw", report=False)
    assert ran.counts["warning"] == alone.counts["warning"] >= 3
    assert ran.report["entries"] == []


def test_a_failed_test_has_no_returned_row(project: Project) -> None:
    project.write(test_a="def test_fails():\n    found = {'us': 3.0}\n    assert found['us'] < 2\n    return found\n")
    ran = project.run()
    assert ran.counts == {"failed": 1}
    assert "assert found['us'] < 2" in ran.out
    assert ran.report["entries"] == []


def test_a_wrong_capture_setting_is_a_usage_error(project: Project) -> None:
    ran = project.write(test_a="def test_a(): pass").run("--roofline-capture=sometimes")
    assert ran.code == 4
    assert "--roofline-capture is 'sometimes', expected auto or off" in ran.out


# Which tests time something themselves, so that watching their own call would be part of their times.


def _helper() -> float:
    from time import perf_counter

    return perf_counter()


class _Class:
    def helper(self) -> float:
        return _helper()

    def test_by_method(self) -> None:
        assert self.helper()


def _wrapped(fn: Any) -> Any:
    @functools.wraps(fn)
    def call_profiled(*args: Any) -> Any:
        return _helper() and fn(*args)

    return call_profiled


def _by_helper() -> None:
    assert _helper()


def _by_inner_function() -> None:
    def run() -> float:
        return _helper()

    assert run()


def _by_mode() -> bool:
    import torch

    return bool(torch.overrides.has_torch_function(()))


def _by_argument(do_bench: Any) -> None:
    assert do_bench


@_wrapped
def _by_decorator() -> None: ...


def _by_none(numel: int) -> None:
    """A name in a docstring or of a local is not a clock: perf_counter."""
    timesteps = events = numel
    assert timesteps + events


@pytest.mark.parametrize("test", [_by_helper, _by_inner_function, _by_argument, _by_decorator, _by_mode, _Class.test_by_method])
def test_a_test_that_uses_a_clock_or_torch_modes_is_not_watched(test: Any) -> None:
    assert uses_clock_or_modes(test, _Class)


def test_a_test_without_a_clock_is_watched() -> None:
    assert not uses_clock_or_modes(_by_none)


@pytest.mark.parametrize(
    ("latency", "bandwidth", "status", "reason"),
    [
        ("0.2", "13.0", "beyond_roof", "infeasible"),  # 12.95 of 8 TB/s at least, whatever the time is
        ("0.2", "8.2", "near_roof", "infeasible"),
        ("0.1", "4.0", "not_checked", "low_confidence"),  # a clock that is not known
        ("0.00", "9.9", "not_checked", "not_measured"),
    ],
)
def test_a_time_of_two_digits_is_not_dropped(project: Project, latency: str, bandwidth: str, status: str, reason: str) -> None:
    project.write(
        test_a=f"""
        def test_copy(record_property):
            record_property("tileops_latency_ms", "{latency}")
            record_property("tileops_bandwidth_tbs", "{bandwidth}")
        """
    )
    ran = project.run("--roofline-device=MI355X")
    row = ran.rows["test_copy"]
    assert row["check"]["status"] == status
    if latency == "0.00":
        assert "tileops_latency_ms is '0.00', expected more than 0" in row["notes"]
    else:
        assert row["achieved_bw_bytes_s"] == pytest.approx(float(bandwidth) * 1e12)


def test_recorded_rates_have_priority_over_parameter_names(project: Project) -> None:
    project.write(
        test_a="""
        import pytest

        @pytest.mark.parametrize(("m", "n", "k", "dtype"), [(64, 4096, 7168, "bf16")])
        def test_gemm(m, n, k, dtype, record_property):
            record_property("tileops_latency_ms", "0.0500")
            record_property("tileops_bandwidth_tbs", "1.2000")
        """
    )
    row = project.run("--roofline-device=MI355X").rows["test_gemm[64-4096-7168-bf16]"]
    assert (row["work"]["source"], row["bytes_est"]) == ("properties", pytest.approx(1.2e12 * 50e-6))


ARGUMENTS = """
    import mmap
    import numpy as np

    X = np.random.default_rng(0).random(1 << 16)  # 524288 B
    MEMORY = mmap.mmap(-1, 1 << 25, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    MEMORY.madvise(mmap.MADV_NOHUGEPAGE)  # Linux may give memory to pages that it can join to a huge one, in the background
    FRESH = np.frombuffer(MEMORY)

    def test_sort(benchmark):
        benchmark(np.sort, X)

    def test_global(benchmark):
        benchmark(lambda: np.sort(X))

    def test_pedantic(benchmark):
        benchmark.pedantic(np.multiply, args=(X, 2.0), rounds=5)

    def test_fixture(roofline):
        roofline.measure(np.sum, X)

    def test_fft(roofline):
        roofline.measure(np.fft.rfft, X)

    def test_early(benchmark):
        benchmark(np.all, np.zeros(1 << 26, bool))

    def test_fresh(benchmark):
        benchmark(np.max, FRESH)
"""


def test_the_traffic_of_arguments_is_shown_and_not_judged(project: Project) -> None:
    ran = project.write(test_a=ARGUMENTS).run(*QUICK[:2], "--roofline-fail-on=beyond_roof", "-v", plugins=BENCHMARK)
    rows = ran.rows
    size = 524288.0
    # 65536 doubles in and as many out; of the transform 32769 complex numbers of 16 B.
    for name, nbytes in {"sort": 2 * size, "global": 2 * size, "pedantic": 2 * size, "fft": size + 16 * 32769}.items():
        row = rows[f"test_{name}"]
        assert (row["work"]["coverage"], row["bytes_est"], row["stage"]) == ("args", nbytes, "A")
        assert row["headroom_class"] == "unknown"
        assert not row["rankable"]
        assert row["gates"] == [{"gate": "beyond_roof", "status": "skipped", "code": "args_only", "text": ""}]
        assert f"test_{name}: {nbytes / 1e6:.4g} MB of arguments and results at " in ran.out
    assert rows["test_fixture"]["work"]["coverage"] == "whole"  # its work is known
    assert any(line.startswith("test_sort ") and " args " in line for line in ran.section)


def test_a_function_that_need_not_read_its_operands_is_not_beyond_the_roof(project: Project) -> None:
    """numpy stops at the first False; the system reads one page of zeros for all pages that nothing wrote."""
    ran = project.write(test_a=ARGUMENTS).run(
        *QUICK[:2], "-k", "early or fresh", "--roofline-fail-on=beyond_roof", plugins=BENCHMARK
    )
    assert ran.counts == {"passed": 2, "deselected": 5}
    early, fresh = ran.rows["test_early"], ran.rows["test_fresh"]
    assert early["work"]["coverage"] == fresh["work"]["coverage"] == "range"
    assert early["work"]["least"] == [0.0, 0.0]  # its pages are zeros that nothing wrote, too
    assert [(gate["status"], gate["code"]) for gate in early["gates"]] == [("skipped", "no_least")]
    assert [gate["status"] for gate in fresh["gates"]] == ["passed"]
    assert fresh["work"]["least"][0] < 0.1 * fresh["bytes_est"] == 0.1 * 8 * 2**22
    assert "untouched_pages" in fresh["note_codes"]


HALF_RECORDED = """
import ctypes
import numpy as np

A = np.ones((64, 64))

def step(a):
    out = np.zeros(a.shape)
    ctypes.memmove(out.ctypes.data, a.ctypes.data, a.nbytes)
    return np.maximum(out, 0)

def test_step(roofline):
    roofline.measure(step, A)
"""
SLOW_MEMORY = """
import pytest
from roofline_engine.peaks import Peaks

@pytest.hookimpl(optionalhook=True)
def pytest_roofline_peaks(device):
    return Peaks(product=device, hbm_bw_bytes_s={bandwidth}, vector={{"fp64": 1e15}}, source="user", confidence="high")
"""


@pytest.mark.parametrize(("bandwidth", "reason"), [(1e3, "infeasible"), (1e15, "partly_seen")])
def test_a_half_recorded_call_has_no_class_and_can_only_be_beyond_the_roof(
    project: Project, bandwidth: float, reason: str
) -> None:
    """The result is 32768 B: at 1 kB/s they take 32 s."""
    project.write(test_a=HALF_RECORDED, conftest=SLOW_MEMORY.format(bandwidth=bandwidth))
    row = project.run("--roofline-fail-on=beyond_roof", "--roofline-device=cpu").rows["test_step"]
    assert (row["stage"], row["headroom_class"], row["unknown_reason"]) == ("A", "unknown", reason)
    assert (row["check"]["status"] == "beyond_roof") is (reason == "infeasible")
    assert (row["roofline_pct"] is None) is (reason == "partly_seen")
    assert "partly_seen" in row["note_codes"]
