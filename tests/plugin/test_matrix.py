"""``pytest --roofline`` with the plugins and options that suites use: no test is lost and no outcome changes."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import pytest

from support.project import MEASURED_WITH, Project, Ran

#: 0.8 GB against 8 TB/s (peaks.md: MI355X): 100 us at the roof, so half of it.
RECORDED = """
import pytest

@pytest.mark.roofline(op="rmsnorm", bytes=8e8, dtype="bf16", device="MI355X")
@pytest.mark.parametrize("n", [1, 2])
def test_recorded(roofline, n):
    roofline.record(t_s=2e-4, clock="device-event", cache="cold")

def test_plain():
    pass

def test_fails():
    assert 1 == 2
"""
BENCHED = """
import pytest

def test_bench(benchmark):
    assert benchmark(sum, [1, 2]) == 3

@pytest.mark.roofline(op="rmsnorm", bytes=1e3, dtype="bf16", device="MI355X")
def test_marked_bench(benchmark):
    assert benchmark(sum, [1, 2]) == 3
"""
ROWS = {"test_recorded[1]", "test_recorded[2]"}
BENCH_ROWS = {"test_bench", "test_marked_bench"}
QUICK = {
    "none": (),
    "benchmark": ("--benchmark-max-time=0.01", "--benchmark-min-rounds=2"),
    "codspeed": ("--codspeed", "--codspeed-max-time=0.02", "--codspeed-warmup-time=0.001"),
    "both": ("--benchmark-max-time=0.01", "--benchmark-min-rounds=2"),
}
#: Every pair of values of any two parameters occurs in at least one of these runs.
PAIRS = [
    ("none", 0, "-q"),
    ("none", 2, "-v"),
    ("benchmark", 0, "-v"),
    ("benchmark", 2, "-q"),
    ("codspeed", 0, "-q"),
    ("codspeed", 2, "-v"),
    ("both", 0, "-v"),
    ("both", 2, "-q"),
]
SOURCE = {"benchmark": "pytest-benchmark", "codspeed": "pytest-codspeed", "both": "pytest-benchmark"}


def whole(ran: Ran, passed: int, **others: int) -> None:
    """Assert that neither the plugin nor pytest had a fault, and that every outcome is counted."""
    assert "INTERNALERROR" not in ran.out
    assert "Traceback" not in ran.out
    found = {name: count for name, count in ran.counts.items() if name != "warning"}
    assert found == {"passed": passed, **others}


@pytest.mark.matrix
@pytest.mark.parametrize(("measured_with", "workers", "verbosity"), PAIRS)
def test_matrix(project: Project, measured_with: str, workers: int, verbosity: str) -> None:
    plugins = (*MEASURED_WITH[measured_with], "xdist")
    project.write(test_a=RECORDED)
    if measured_with != "none":
        project.write(test_b=BENCHED)
    args = ("--junitxml=junit.xml", f"-n{workers}", verbosity, *QUICK[measured_with])
    ran = project.run(*args, plugins=plugins)

    benched = BENCH_ROWS if measured_with != "none" else set()
    recorded = ROWS if measured_with != "codspeed" else set()
    rows = ran.rows
    assert set(rows) == recorded | benched
    if recorded:
        whole(ran, 3 + len(benched), failed=1)
        assert ran.code == 1
        assert set(ran.junit) == {*ROWS, *benched, "test_plain", "test_fails"}
    else:  # --codspeed runs benchmarks alone
        whole(ran, len(benched), **({} if workers else {"deselected": 4}))
        assert ran.code == 0
        assert set(ran.junit) == benched
    for name in recorded:
        assert rows[name]["roofline_pct"] == pytest.approx(0.5)
        assert rows[name]["headroom_class"] == "underperforming"  # 0.5 is under 0.6 of rmsnorm's 0.875
        told = {item.attrib["name"]: item.attrib["value"] for item in ran.junit[name].iter("property")}
        assert told["roofline_pct"] == "0.5"
    for name in benched:
        measurement = rows[name]["measurement"]
        off = workers and measured_with != "codspeed"  # pytest-benchmark takes no time under workers
        assert (measurement and measurement["source"]) == (None if off else SOURCE[measured_with])
        assert rows[name]["headroom_class"] == "unknown"
    assert rows.get("test_bench", {}).get("unknown_reason") in (None, "unmodelled")
    assert "roofline: " in ran.out


def test_a_worker_reports_the_same_row(project: Project) -> None:
    project.write(test_a=RECORDED)
    here = project.run().rows
    there = project.spawn("-n2", plugins=("xdist",)).rows
    assert there == here


def test_a_time_taken_in_a_worker_has_low_confidence(project: Project) -> None:
    project.write(test_b=BENCHED.replace("bytes=1e3", "bytes=8e8"))
    rows = project.run("-n2", *QUICK["codspeed"], plugins=("codspeed", "xdist")).rows
    assert "other pytest-xdist workers" in rows["test_marked_bench"]["notes"]
    assert rows["test_marked_bench"]["confidence"] == "low"


def test_with_two_benchmark_plugins_the_active_one_is_read(project: Project) -> None:
    project.write(test_b=BENCHED)
    ran = project.run(*QUICK["codspeed"], plugins=MEASURED_WITH["both"])
    whole(ran, 2)
    assert {row["measurement"]["source"] for row in ran.rows.values()} == {"pytest-codspeed"}


def test_a_benchmark_without_work_has_a_time_and_no_percent(project: Project) -> None:
    project.write(test_b=BENCHED)
    row = project.run(*QUICK["benchmark"], plugins=("benchmark",)).rows["test_bench"]
    assert row["t_unit_ms"] > 0
    assert row["modeled"] is False
    assert row["unknown_reason"] == "unmodelled"
    assert [row[key] for key in ("roofline_pct", "bytes_est", "attainable_speedup", "op_class")] == [
        None,
        None,
        None,
        "unknown",
    ]


# Options and other plugins.


def test_strict_markers(project: Project) -> None:
    project.write(test_a=RECORDED)
    whole(project.run("--strict-markers", "--strict-config"), 3, failed=1)


def test_native_configuration_in_strict_mode(project: Project) -> None:
    project.toml(
        """
        [tool.pytest]
        strict = true
        roofline_device = "MI355X"
        roofline_noise = 0.05
        roofline_fail_under = 60
        roofline_fail_on = ["regression"]
        roofline_junit = "none"
        """
    )
    project.write(test_a=RECORDED)
    ran = project.run("--junitxml=junit.xml")
    whole(ran, 1, failed=3)  # both rows are at 50 %
    assert ran.report["noise"] == 0.05
    assert not list(ran.junit["test_recorded[1]"].iter("property"))


def test_ini_options_table_accepts_the_same_keys(project: Project) -> None:
    project.toml(
        """
        [tool.pytest.ini_options]
        roofline_noise = "0.05"
        roofline_fail_under = "60"
        roofline_fail_on = "regression,beyond_roof"
        """
    )
    project.write(test_a=RECORDED)
    ran = project.run()
    whole(ran, 1, failed=3)
    assert ran.report["noise"] == 0.05


def test_command_line_overrides_ini_and_ini_overrides_the_project_table(project: Project) -> None:
    project.toml('[tool.pytest.ini_options]\nroofline_fail_under = "40"\n[tool.roofline]\nfail_under = 60\nnoise = 0.1\n')
    project.write(test_a=RECORDED)
    assert project.run().counts["failed"] == 1  # 40 of ini
    assert project.run().report["noise"] == 0.1  # of the table
    assert project.run("--roofline-fail-under=51").counts["failed"] == 3


@pytest.mark.parametrize("workers", [(), ("-n2",)])
def test_warnings_as_errors(project: Project, workers: tuple[str, ...]) -> None:
    project.write(test_a=RECORDED)
    ran = project.spawn("-W", "error", *workers, plugins=("xdist",))
    whole(ran, 3, failed=1)


def test_benchmarks_disabled(project: Project) -> None:
    project.write(test_b=BENCHED)
    ran = project.run("--benchmark-disable", plugins=("benchmark",))
    whole(ran, 2)
    assert all(row["measurement"] is None for row in ran.rows.values())
    assert ran.rows["test_marked_bench"]["unknown_reason"] == "not_measured"


def test_a_project_with_our_hooks_runs_with_the_plugin_blocked(project: Project) -> None:
    project.write(
        conftest="""
        import pytest

        @pytest.hookimpl(optionalhook=True)
        def pytest_roofline_work(item, params):
            return {"bytes": 8e8, "dtype": "bf16", "device": "MI355X", "op": "rmsnorm"}
        """,
        test_a="def test_plain(): pass",
    )
    assert project.spawn("-p", "no:roofline", on=None).counts == {"passed": 1}
    assert project.run().rows["test_plain"]["work"]["source"] == "hook"


def test_a_rerun_replaces_the_first_try(project: Project) -> None:
    project.write(
        test_a="""
        import pytest
        tries = []

        @pytest.mark.roofline(op="rmsnorm", bytes=8e8, device="MI355X", min_pct=60)
        def test_flaky(roofline):
            tries.append(1)
            roofline.record(t_s=2e-4 / len(tries), clock="device-event", cache="cold")
        """
    )
    ran = project.run("--reruns=1", "--junitxml=junit.xml", plugins=("rerunfailures",))
    whole(ran, 1, rerun=1)
    assert ran.code == 0
    assert [(row["t_ms"], row["failed"]) for row in ran.report["entries"]] == [(pytest.approx(0.1), None)]
    names = [item.attrib["name"] for item in ran.junit["test_flaky"].iter("property")]
    assert len(names) == len(set(names))


def test_a_rerun_that_fails_before_measuring_removes_the_first_row(project: Project) -> None:
    project.write(
        test_a="""
        import pytest
        tries = []

        @pytest.mark.roofline(op="rmsnorm", bytes=8e8, device="MI355X", min_pct=60)
        def test_flaky(roofline):
            tries.append(1)
            assert len(tries) == 1
            roofline.record(t_s=2e-4, clock="device-event", cache="cold")
        """
    )
    ran = project.run("--reruns=1", plugins=("rerunfailures",))
    assert ran.counts == {"failed": 1, "rerun": 1}
    assert ran.report["entries"] == []


@pytest.mark.parametrize(("asked", "outcome", "code"), [(60, "xfailed", 0), (40, "failed", 1)])
def test_a_known_gap_is_a_strict_xfail(project: Project, asked: float, outcome: str, code: int) -> None:
    project.write(
        test_a=f"""
        import pytest

        @pytest.mark.xfail(strict=True)
        @pytest.mark.roofline(op="rmsnorm", bytes=8e8, device="MI355X", min_pct={asked})
        def test_gap(roofline):
            roofline.record(2e-4, clock="device-event", cache="cold")
        """
    )
    ran = project.run()
    assert (ran.counts, ran.code) == ({outcome: 1}, code)
    assert ran.rows["test_gap"]["roofline_pct"] == pytest.approx(0.5)


def test_exit_first_and_last_failed(project: Project) -> None:
    project.write(test_a=RECORDED)
    first = project.run("-x", "--roofline-fail-under=60")
    assert first.counts == {"failed": 1}
    again = project.run("-x", "--lf", "--roofline-fail-under=60")
    assert again.counts == {"failed": 1, "deselected": 1} or again.counts["failed"] == 1
    assert list(again.rows) == list(first.rows) == ["test_recorded[1]"]


def test_colors_follow_pytest(project: Project) -> None:
    project.write(test_a=RECORDED)
    coloured = project.spawn(FORCE_COLOR="1").out
    table = next(line for line in coloured.splitlines() if "test_recorded[1]" in line and "underperforming" in line)
    assert "\x1b[" in table
    assert "\x1b" not in project.spawn(FORCE_COLOR="1", NO_COLOR="1").out


LONG = """
import pytest

@pytest.mark.roofline(op="rmsnorm", bytes=8e8, dtype="bf16", device="MI355X")
@pytest.mark.parametrize("implementation_of_the_kernel", ["a_long_parameter_of_a_test", "x"])
@pytest.mark.parametrize("t", [2e-4, 1e-3, 4e-5, 3e-5])
def test_rms_norm_of_the_hidden_states(roofline, implementation_of_the_kernel, t):
    roofline.record(t_s=t, clock="device-event", cache="cold")

@pytest.mark.parametrize("M, N, K, dtype", [(8192, 8192, 8192, "bf16")])
def test_gemm(roofline, M, N, K, dtype):
    roofline.record(t_s=1e-3, clock="device-event", cache="cold")

@pytest.mark.roofline(op="attn_decode", batch=64, n_q_heads=16, n_kv_heads=2, head_dim=256, seq_len=1536, dtype="bf16",
                      device="no such device with a name that fills a line all by itself")
def test_attention(roofline):
    roofline.record(t_s=1e-3, clock="device-event", cache="cold")
"""


@pytest.mark.parametrize("verbosity", ["-v", "-vv", "--color=no"])
def test_no_line_is_wider_than_the_terminal(project: Project, monkeypatch: pytest.MonkeyPatch, verbosity: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    project.write(test_a=LONG)
    ran = project.run("--roofline-device=MI355X", verbosity)
    assert len(ran.rows) == 10
    assert [line for line in ran.section if len(line) > 80] == []


def test_quiet_shows_contradictions_and_a_count(project: Project) -> None:
    project.write(test_a=LONG)
    ran = project.run("--roofline-device=MI355X", "-q")
    lines = ran.out.splitlines()
    assert sum(line.startswith("beyond_roof: ") for line in lines) == 4
    assert any(line.startswith("roofline: 10 measured") for line in lines)
    assert not any("% roof" in line for line in lines)


def test_other_kinds_of_tests(project: Project) -> None:
    project.write(
        test_a='''
        import unittest
        import pytest

        def double(x):
            """
            >>> double(2)
            4
            """
            return 2 * x

        class TestCase(unittest.TestCase):
            def test_method(self):
                self.assertEqual(double(1), 2)

        class TestClass:
            @pytest.mark.roofline(op="rmsnorm", bytes=8e8, device="MI355X", min_pct=60)
            def test_gated(self, roofline):
                roofline.record(2e-4, clock="device-event", cache="cold")

        def test_subtests(roofline, subtests):
            for n in range(3):
                with subtests.test(n=n):
                    roofline(op="rmsnorm", bytes=8e8, device="MI355X")
                    roofline.record(2e-4, clock="device-event", cache="cold")

        def test_skips(roofline):
            roofline.record(2e-4)
            pytest.skip("after it measured")
        '''
    )
    ran = project.run("--doctest-modules", "--roofline-fail-on=unmodelled")
    assert "INTERNALERROR" not in ran.out
    assert (ran.counts["passed"], ran.counts["failed"]) == (3, 2)  # test_skips measured a kernel without a model
    assert list(ran.rows) == ["test_gated", "test_subtests#1", "test_subtests#2", "test_subtests#3", "test_skips"]
    assert project.run("--doctest-modules").counts["skipped"] == 1


def test_files_are_written_without_a_terminal_reporter(project: Project) -> None:
    project.write(test_a=RECORDED)
    assert project.run("-p", "no:terminal").code == 1
    assert json.loads((project.path / "roofline.json").read_text())["entries"]


# Values of other libraries.

SCALARS = """
import enum
import numpy as np
import pytest

class Kind(str, enum.Enum):
    RMSNORM = "rmsnorm"

@pytest.mark.roofline(op=Kind.RMSNORM, bytes=np.float64(8e8), flops=np.int64(1000), dtype=np.dtype("float32"),
                      launches=np.int32(2), min_pct=np.float32(10), target_eff=np.float64(0.5), device=np.str_("MI355X"))
def test_marker(roofline):
    roofline.record(t_s=np.float64(2e-4), q1_s=np.float32(1.9e-4), q3_s=np.float64(2.1e-4), rounds=np.int64(7),
                    clock=np.str_("device-event"), cache="cold")

@pytest.mark.parametrize("rows", [np.int64(4096)])
@pytest.mark.parametrize("dtype", [np.float32, np.dtype("float16")])
def test_fixture(roofline, rows, dtype):
    roofline(op="rmsnorm", rows=rows, cols=np.int16(8192), dtype=dtype, device="MI355X")
    roofline.record(np.float32(2e-4), clock="device-event", cache="cold")

def test_measure(roofline):
    roofline(bytes=np.uint64(8), dtype=np.float64)
    assert roofline.measure(np.add, np.float32(1), np.int8(1)) == 2

def test_last(record_property):
    pass
"""
EXTRA_INFO = """
import numpy as np

def test_extra_info(benchmark):
    benchmark.extra_info.update(bytes=np.int64(8_000), flops=np.float32(1), dtype="float32", op="rmsnorm")
    benchmark(sum, [1])
"""
NUMPY_PEAKS = """
import numpy as np
import pytest
from roofline_engine.peaks import Peaks

@pytest.hookimpl(optionalhook=True)
def pytest_roofline_peaks(device):
    if device == "cpu":
        return Peaks(product="cpu", hbm_bw_bytes_s=np.float32(1e10), vector={"fp32": np.float64(1e11)}, l2_bytes=np.int64(1000),
                     source="measured", confidence="high")

@pytest.hookimpl(optionalhook=True)
def pytest_roofline_report(report):
    report["mine"] = np.float32(0.5)
"""


@pytest.mark.parametrize("workers", [(), ("-n2",)])
def test_numpy_scalars_are_accepted_everywhere(project: Project, workers: tuple[str, ...]) -> None:
    project.write(conftest=NUMPY_PEAKS, test_a=SCALARS)
    ran = project.spawn(*workers, "--junitxml=junit.xml", plugins=("xdist",))
    whole(ran, 5)
    assert ran.report["skill_errors"] == []
    assert len(ran.rows) == 4
    row = ran.rows["test_marker"]
    assert (row["bytes_est"], row["dtype"], row["launches_per_unit"], row["target_eff"]) == (8e8, "fp32", 2, 0.5)
    assert row["measurement"]["rounds"] == 7
    assert row["roofline_pct"] == pytest.approx(0.5)
    assert ran.report["mine"] == 0.5
    assert len(ran.junit) == 5


def test_numpy_scalars_are_accepted_in_extra_info(project: Project) -> None:
    project.write(conftest=NUMPY_PEAKS, test_a=EXTRA_INFO)
    ran = project.run("--roofline-device=cpu", *QUICK["benchmark"], plugins=("benchmark",))
    row = ran.rows["test_extra_info"]
    assert (row["work"]["source"], row["bytes_est"], row["flops_est"]) == ("extra_info", 8000, 1)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_torch_scalars_are_accepted(project: Project) -> None:
    project.write(
        test_a="""
        import pytest, torch

        @pytest.mark.roofline(op="rmsnorm", bytes=torch.tensor(8e8), dtype=torch.bfloat16, device="MI355X")
        def test_marker(roofline):
            roofline.record(torch.tensor(2e-4, dtype=torch.float64), clock="device-event", cache="cold")
        """
    )
    row = project.spawn("-n1", plugins=("xdist",)).rows["test_marker"]
    assert (row["dtype"], row["roofline_pct"]) == ("bf16", pytest.approx(0.5))


# Files of pytest-benchmark.


def test_both_benchmark_files_hold_the_rows(project: Project) -> None:
    project.write(test_b=BENCHED)
    save = ("--benchmark-json=one.json", "--benchmark-save=two", f"--benchmark-storage={project.path / 'store'}")
    whole(project.run(*QUICK["benchmark"], *save, plugins=("benchmark",)), 2)
    (saved,) = (project.path / "store").rglob("*two.json")
    documents: list[dict[str, Any]] = [json.loads(path.read_text()) for path in (project.path / "one.json", saved)]
    for document in documents:
        assert document["roofline"]["rows"] == 2
        rows = {row["name"]: row["extra_info"]["roofline"] for row in document["benchmarks"]}
        assert rows["test_marked_bench"]["bytes_est"] == 1e3
    assert documents[0]["roofline"] == documents[1]["roofline"]


def test_a_benchmark_file_is_a_baseline(project: Project) -> None:
    project.write(test_b=BENCHED)
    project.run(*QUICK["benchmark"], "--benchmark-json=one.json", plugins=("benchmark",))
    ran = project.run(*QUICK["benchmark"], "--roofline-baseline=one.json", plugins=("benchmark",))
    assert all(row["baseline"]["kind"] == "previous" for row in ran.rows.values())
    assert all(row["check"]["speedup"] > 0 for row in ran.rows.values())


# Workers.


def test_a_crashed_worker_loses_no_row_of_another_test(project: Project) -> None:
    project.write(test_a=RECORDED.replace("assert 1 == 2", "pass"), test_b="import os\ndef test_crashes():\n    os._exit(7)\n")
    ran = project.spawn("-n2", "--junitxml=junit.xml", plugins=("xdist",))
    whole(ran, 4, failed=1)
    assert ran.code == 1
    assert set(ran.rows) == ROWS
    assert len(ran.junit) == 5


def test_a_gate_works_in_a_worker(project: Project) -> None:
    project.write(test_a=RECORDED)
    ran = project.spawn("-n2", "--roofline-fail-under=60", plugins=("xdist",))
    whole(ran, 1, failed=3)
    assert {row["failed"] is None for row in ran.rows.values()} == {False}


@pytest.mark.parametrize(
    ("glob", "told"),
    [
        ("test_timed", "--roofline-time=test_timed matches no test: it is a glob of whole nodeids, as in '*::test_name*'"),
        ("*test_plain", "--roofline-time=*test_plain times nothing: no test that it matches has time= in its marker"),
        ("*test_timed", ""),
    ],
)
def test_an_unused_time_glob_is_reported(project: Project, glob: str, told: str) -> None:
    project.write(
        test_a="""
        import pytest

        def work(): pass

        def test_plain(): work()

        @pytest.mark.roofline(op="rmsnorm", bytes=8, device="MI355X", time="work")
        def test_timed(): work()
        """
    )
    ran = project.run(f"--roofline-time={glob}")
    assert ran.counts == {"passed": 2}
    assert [line for line in ran.report["skill_errors"] if "--roofline-time" in line] == ([told] if told else [])
    assert (ran.rows["test_timed"]["measurement"] is None) == bool(told)


COLD = """
import pytest

calls = {name: 0 for name in ("plain", "pedantic", "batched", "prepared")}

def work(name, value=0):
    calls[name] += 1
    return value

def marked(fn):
    return pytest.mark.roofline(op="copy", bytes=64, device="cpu")(fn)  # the functions move no more

@marked
def test_plain(benchmark):
    assert benchmark(work, "plain", value=3) == 3
    assert calls["plain"] >= 7  # one to estimate, one to warm up, five rounds

@marked
def test_pedantic(benchmark):
    assert benchmark.pedantic(work, ("pedantic", 4), rounds=3) == 4
    assert calls["pedantic"] == 3

@marked
def test_batched(benchmark):
    benchmark.pedantic(work, ("batched",), rounds=3, iterations=2)

@marked
def test_prepared(benchmark):
    assert benchmark.pedantic(work, setup=lambda: (("prepared", 5), {}), rounds=3) == 5

@marked
def test_measured(roofline):
    assert roofline.measure(lambda: 6) == 6

@pytest.mark.roofline(op="copy", bytes=64, device="cpu", cache="warm")
def test_warm(roofline):
    roofline.measure(lambda: 6)
"""


def test_caches_are_evicted_before_each_round_without_a_change_of_the_tests(project: Project) -> None:
    project.write(test_a=COLD)
    quick = ("--benchmark-max-time=0.01", "-p", "no:cacheprovider")
    ran = project.run("--roofline-cache=cold", *quick, plugins=("benchmark",))
    assert ran.counts == {"passed": 6}
    assert {row["check"]["status"] for row in ran.rows.values()} == {"not_checked"}
    # Several last-level caches are not all evicted by one thread.
    cold = {"cold", "unknown"}
    states = {name: row["measurement"]["cache"] for name, row in ran.rows.items()}
    assert {name for name, state in states.items() if state in cold} == {
        "test_plain",
        "test_pedantic",
        "test_prepared",
        "test_measured",
    }
    assert (states["test_batched"], states["test_warm"]) == ("warm", "warm")
    (line,) = [line for line in ran.section if "--roofline-cache=cold was not applied" in line]
    assert "test_batched" in line
    assert ran.rows["test_plain"]["measurement"]["rounds"] >= 5
    usual = project.run(*quick, plugins=("benchmark",))
    assert {row["measurement"]["cache"] for name, row in usual.rows.items() if name != "test_warm"} == {"warm"}
    disabled = project.run("--roofline-cache=cold", "--benchmark-disable", "-k", "prepared", plugins=("benchmark",))
    assert disabled.rows["test_prepared"]["measurement"] is None
