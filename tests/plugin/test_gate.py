"""Predictions, baselines and gates, tested with times that the tests record themselves."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.profiles import worked_example
from support.project import Project, Ran

#: The worked example's MoE: 64 tokens choose 8 of 256 experts each, two launches a layer, 49.471 us a launch.
HIT = 256 * (1 - (1 - 1 / 256) ** (64 * 8))
MOE_BYTES = HIT * 3 * 2048 * 512  # gate, up and down, fp8
MOE_T = 2 * 49.471e-6
BANDWIDTH = 8e12  # bytes/s, peaks.md: MI355X and the bare gfx950
ATTAINABLE = 0.90 / (MOE_BYTES / MOE_T / BANDWIDTH)  # 1.022
NOISE = 0.034

MOE_TEST = """
    import pytest

    @pytest.mark.roofline(
        op="moe", tokens=64, hidden=2048, inter=512, experts=256, top_k=8, dtype="fp8", weight_dtype="fp8",
        launches=2, kernel="fused_moe_kernel", device="gfx950",
    )
    def test_moe(roofline):
        roofline.record(t_s={t_s!r}, clock="device-event", cache="cold")
"""

#: 0.8 GB at 8 TB/s: 100 us at the roof, over MI355X's caches and its 5 us of dispatch.
NBYTES = 8e8
ROOF_S = NBYTES / BANDWIDTH


def streaming(t_s: float, *, name: str = "test_stream", **marker: Any) -> str:
    said = {"op": "rmsnorm", "bytes": NBYTES, "device": "MI355X", **marker}
    return f"""
import pytest

@pytest.mark.roofline(**{said!r})
def {name}(roofline):
    roofline.record(t_s={t_s!r}, clock="device-event", cache="cold")
"""


def benchmark_json(project: Project, **medians: float) -> str:
    rows = [
        {"name": name, "fullname": f"test_a.py::{name}", "stats": {"median": t_s, "q1": t_s, "q3": t_s}}
        for name, t_s in medians.items()
    ]
    return str(project.json("before.json", {"machine_info": {}, "benchmarks": rows}))


@pytest.fixture
def predictions(project: Project) -> str:
    return str(project.json("profile_roofline.json", worked_example()))


def moe(project: Project, speedup: float, *args: str) -> Ran:
    project.write(test_a=MOE_TEST.format(t_s=MOE_T / speedup))
    return project.run(f"--roofline-baseline={benchmark_json(project, test_moe=MOE_T)}", *args)


# The worked example: 88.0 % of the roof, 1.022x attainable.


@pytest.mark.parametrize(("speedup", "status"), [(1.047, "consistent"), (1.10, "exceeds_target"), (1.31, "beyond_roof")])
def test_the_worked_example_meets_its_prediction(project: Project, predictions: str, speedup: float, status: str) -> None:
    utilisation = MOE_BYTES / (MOE_T / speedup) / BANDWIDTH
    expected = (
        "beyond_roof"
        if utilisation > 1.05 * 8.192 / 8  # peaks.md: 8.192 TB/s is the full bus
        else "exceeds_target"
        if speedup > ATTAINABLE * (1 + NOISE)
        else "consistent"
    )
    assert expected == status
    ran = moe(project, speedup, f"--roofline-predictions={predictions}")
    assert ran.code == 0
    check = ran.rows["test_moe"]["check"]
    assert check["status"] == status
    assert check["utilisation"] == pytest.approx(utilisation, rel=1e-6)
    assert check["speedup"] == pytest.approx(speedup)


def test_the_prediction_comes_from_the_artifact(project: Project, predictions: str) -> None:
    row = moe(project, 1.047, f"--roofline-predictions={predictions}").rows["test_moe"]
    assert row["prediction"]["attainable_speedup"] == pytest.approx(ATTAINABLE, rel=1e-6)
    assert row["check"]["attainable"] == pytest.approx(ATTAINABLE, rel=1e-6)
    assert row["pct_gpu_time"] == 26.45


def test_predictions_without_a_test_are_listed(project: Project, predictions: str) -> None:
    ran = moe(project, 1.047, f"--roofline-predictions={predictions}")
    assert ran.report["unmatched_predictions"] == ["kernel_paged_attention_2d"]
    assert "kernel_paged_attention_2d" in ran.out


def test_a_pin_selects_the_prediction_of_a_test(project: Project, predictions: str) -> None:
    project.write(test_a=MOE_TEST.format(t_s=MOE_T).replace(', kernel="fused_moe_kernel"', ""))
    alone = project.run(f"--roofline-predictions={predictions}")
    assert alone.rows["test_moe"]["prediction"]["matched"] == "by its op and work: moe of 696.7 MB"
    pins = project.path / "match.toml"
    pins.write_text('"*::test_moe" = "fused_moe_kernel"')
    pinned = project.run(f"--roofline-predictions={predictions}", f"--roofline-match={pins}")
    assert pinned.rows["test_moe"]["prediction"]["matched"] == "pinned by match.toml"


def test_unusable_pins_are_reported_and_stop_a_gated_run(project: Project, predictions: str) -> None:
    project.write(test_a=MOE_TEST.format(t_s=MOE_T))
    pins = project.path / "match.toml"
    pins.write_text('"*" = "fused_mo"')
    line = "match not used: match.toml: '*': no prediction is named 'fused_mo' in profile_roofline.json"
    ran = project.run(f"--roofline-predictions={predictions}", f"--roofline-match={pins}")
    assert line in ran.report["skill_errors"]
    assert ran.rows["test_moe"]["prediction"] is not None
    ran = project.run(f"--roofline-predictions={predictions}", f"--roofline-match={pins}", "--roofline-fail-on=regression")
    assert ran.code == 4
    assert line in ran.out
    assert project.run(f"--roofline-match={pins}").report["skill_errors"] == ["match not used: it needs --roofline-predictions"]


@pytest.mark.parametrize(
    ("kinds", "failed"),
    [("regression,unmodelled", 0), ("beyond_roof", 1), ("exceeds_target", 1)],  # 1.31x, and 1.022x is attainable
)
def test_a_row_beyond_the_roof_fails_under_the_gates_that_it_breaks(
    project: Project, predictions: str, kinds: str, failed: int
) -> None:
    project.write(test_b="def test_other(): pass")
    ran = moe(project, 1.31, f"--roofline-predictions={predictions}", f"--roofline-fail-on={kinds}")
    assert ran.counts.get("failed", 0) == failed
    assert ran.counts["passed"] == 2 - failed
    assert ran.code == (1 if failed else 0)
    assert ran.rows["test_moe"]["check"]["status"] == "beyond_roof"


def test_a_ratio_over_eager_is_not_comparable(project: Project, predictions: str) -> None:
    project.write(
        test_a=f"""
        import pytest
        moe = dict(op="moe", tokens=64, hidden=2048, inter=512, experts=256, top_k=8, dtype="fp8", weight_dtype="fp8",
                   launches=2, kernel="fused_moe_kernel", device="gfx950")

        @pytest.mark.benchmark(group="moe")
        @pytest.mark.roofline(**moe)
        def test_triton(roofline):
            roofline.record(t_s={MOE_T!r}, clock="device-event", cache="cold")

        @pytest.mark.benchmark(group="moe")
        @pytest.mark.roofline(baseline=True, baseline_kind="eager", **moe)
        def test_eager(roofline):
            roofline.record(t_s={1.31 * MOE_T!r}, clock="device-event", cache="cold")
        """
    )
    ran = project.run(f"--roofline-predictions={predictions}", plugins=("benchmark",))
    check = ran.rows["test_triton"]["check"]
    assert (check["status"], check["speedup"]) == ("not_comparable", pytest.approx(1.31))
    assert list(ran.rows) == ["test_eager", "test_triton"]  # the leader ran first


# Without predictions: the row's own roof and the time before.


@pytest.mark.parametrize("launches", [1, 1000])
def test_a_time_under_the_cost_of_a_launch_is_held_against_the_roof(project: Project, launches: int) -> None:
    project.write(test_a=streaming(1e-9, bytes=2e-6 * BANDWIDTH, launches=launches))  # a roof of 2 us, a launch costs 5 us
    ran = project.run("--roofline-fail-on=beyond_roof")
    assert ran.rows["test_stream"]["check"]["status"] == "beyond_roof"
    assert ran.counts["failed"] == 1


@pytest.mark.parametrize(
    ("speedup", "status"),
    [
        (0.96, "regression"),  # under 1 / 1.034 = 0.967
        (0.97, "no_change"),
        (1.03, "no_change"),  # under 1.034
        (1.04, "consistent"),  # the baseline is at half of the roof, its target leaves 1.75x
        (1.85, "exceeds_target"),  # over 1.75 * 1.034 = 1.81
    ],
)
def test_an_earlier_time_is_a_baseline(project: Project, speedup: float, status: str) -> None:
    before = 2 * ROOF_S
    project.write(test_a=streaming(before / speedup))
    ran = project.run(f"--roofline-baseline={benchmark_json(project, test_stream=before)}")
    check = ran.rows["test_stream"]["check"]
    assert check["status"] == status
    if status in ("consistent", "exceeds_target"):
        assert check["attainable"] == pytest.approx(0.875 * 2)  # rmsnorm's target of 0.875, over 0.5 of the roof


def test_quartiles_of_a_doubtful_time_widen_the_band(project: Project) -> None:
    project.write(
        test_a=f"""
        import pytest

        @pytest.mark.roofline(op="rmsnorm", bytes={NBYTES!r}, device="MI355X")
        def test_stream(roofline):
            t = {2 * ROOF_S / 1.10!r}
            roofline.record(t_s=t, q1_s=0.9 * t, q3_s=1.1 * t, clock="device-event", cache="cold")
        """
    )
    check = project.run(f"--roofline-baseline={benchmark_json(project, test_stream=2 * ROOF_S)}").rows["test_stream"]["check"]
    assert check["band"] == pytest.approx(0.2)
    assert check["status"] == "no_change"  # 1.10x is within 20 %


def test_an_earlier_report_is_a_baseline(project: Project) -> None:
    project.write(test_a=streaming(2 * ROOF_S))
    project.run("--roofline-report=json:before.json")
    project.write(test_a=streaming(3 * ROOF_S))
    row = project.run("--roofline-baseline=before.json").rows["test_stream"]
    assert row["baseline"]["t_s"] == pytest.approx(2 * ROOF_S)
    assert row["check"]["status"] == "regression"


@pytest.mark.parametrize(
    ("kind", "factor", "failed"), [("regression", 0.5, 1), ("regression", 1.0, 0), ("exceeds_target", 1.9, 1)]
)
def test_a_comparison_fails_under_the_gate_of_its_kind(project: Project, kind: str, factor: float, failed: int) -> None:
    project.write(test_a=streaming(2 * ROOF_S / factor))
    before = benchmark_json(project, test_stream=2 * ROOF_S)
    ran = project.run(f"--roofline-baseline={before}", f"--roofline-fail-on={kind}")
    assert ran.counts.get("failed", 0) == failed
    assert ran.code == failed


# Ceilings that were measured here are lower bounds.

HOST_BANDWIDTH = 1e10
MEASURED_PEAKS = f"""
import pytest
from roofline_engine.peaks import Peaks

@pytest.hookimpl(optionalhook=True)
def pytest_roofline_peaks(device):
    if device == "cpu":
        return Peaks(product="cpu", hbm_bw_bytes_s={HOST_BANDWIDTH!r}, l2_bytes=1e6, source="measured", confidence="high")
"""


@pytest.mark.parametrize(
    ("utilisation", "status"),
    [(0.9, "not_checked"), (1.2, "near_roof"), (1.30, "near_roof"), (1.32, "beyond_roof"), (1.4, "beyond_roof")],
)
def test_a_row_above_a_measured_ceiling(project: Project, utilisation: float, status: str) -> None:
    # 1.25 is what boards reach over a rated figure whose limit is not known, 5 % more is a timer's: 1.3125 in all
    t_s = NBYTES / HOST_BANDWIDTH / utilisation
    project.write(conftest=MEASURED_PEAKS, test_a=streaming(t_s, device="cpu").replace("device-event", "host"))
    row = project.run().rows["test_stream"]
    assert row["check"]["status"] == status
    assert ("under-measured" in row["check"]["message"]) == (status == "near_roof")
    assert (row["headroom_class"] == "unknown") == (utilisation > 1)


def test_a_working_set_within_the_cache_may_exceed_memory_bandwidth(project: Project) -> None:
    t_s = 1e6 / HOST_BANDWIDTH / 3
    project.write(
        conftest=MEASURED_PEAKS,
        test_a=streaming(t_s, device="cpu", bytes=1e6).replace("device-event", "host").replace("cold", "warm"),
    )
    ran = project.run("--roofline-fail-on=beyond_roof,infeasible")
    check = ran.rows["test_stream"]["check"]
    assert (check["status"], check["cause"]) == ("not_checked", "cache_resident")
    assert ran.code == 0


# Percent of the roof.


@pytest.mark.parametrize(("asked", "failed"), [(49.0, 0), (51.0, 1)])
def test_min_pct_of_a_marker(project: Project, asked: float, failed: int) -> None:
    project.write(test_a=streaming(2 * ROOF_S, min_pct=asked))
    ran = project.run()
    assert ran.counts == ({"failed": 1} if failed else {"passed": 1})
    assert ran.code == failed
    if failed:
        assert "50.0 % of the memory roof, at least 51 % is required" in ran.out


@pytest.mark.parametrize(("asked", "failed"), [("49", 0), ("51", 1)])
def test_fail_under(project: Project, asked: str, failed: int) -> None:
    project.write(test_a=streaming(2 * ROOF_S))
    assert project.run(f"--roofline-fail-under={asked}").code == failed


def test_the_stricter_of_two_limits_applies(project: Project) -> None:
    project.write(test_a=streaming(2 * ROOF_S, min_pct=10))
    assert project.run("--roofline-fail-under=60").counts == {"failed": 1}


def test_an_impossible_ratio_does_not_pass_as_100_percent(project: Project) -> None:
    project.write(test_a=streaming(ROOF_S / 3))
    ran = project.run("--roofline-fail-on=infeasible")
    assert ran.counts["failed"] == 1
    assert ran.rows["test_stream"]["roofline_pct_raw"] == pytest.approx(3)


def test_without_a_gate_nothing_fails(project: Project) -> None:
    project.write(test_a=streaming(ROOF_S / 3), test_b=streaming(100 * ROOF_S))
    assert project.run().counts["passed"] == 2


# Rows of low confidence are for display.

GUESSED = """
import pytest

@pytest.mark.parametrize("M, N, K, dtype", [(8192, 8192, 8192, "bf16")])
def test_gemm(roofline, M, N, K, dtype):
    roofline.record(t_s={t_s!r}, clock="device-event", cache="cold")
"""
GUESSED_ROOF_S = 2 * 8192**3 / 2516.6e12


@pytest.mark.parametrize("gate", ["--roofline-fail-under=90", "--roofline-fail-on=infeasible,unmodelled"])
def test_a_guess_from_names_fails_no_test(project: Project, gate: str) -> None:
    slow = "under" in gate
    project.write(test_a=GUESSED.format(t_s=GUESSED_ROOF_S * (10 if slow else 1 / 1.06)))
    ran = project.run("--roofline-device=MI355X", gate)
    row = ran.rows["test_gemm[8192-8192-8192-bf16]"]
    assert (row["stage"], row["confidence"], row["work"]["source"]) == ("A", "low", "names")
    assert row["roofline_pct_raw"] == pytest.approx(0.1 if slow else 1.06, rel=1e-6)
    assert (ran.counts["passed"], ran.code) == (1, 1)  # not checked, so the run fails
    assert "1 unchecked (low_confidence 1)" in ran.out


def test_beyond_roof_fails_even_on_a_guess(project: Project) -> None:
    project.write(test_a=GUESSED.format(t_s=GUESSED_ROOF_S / 2))
    assert project.run("--roofline-device=MI355X", "--roofline-fail-on=beyond_roof").counts["failed"] == 1


def test_the_unmodelled_gate_fails_a_test_without_work(project: Project) -> None:
    project.write(
        test_a="""
        def test_known(roofline):
            roofline(op="rmsnorm", bytes=8e8, device="MI355X")
            roofline.record(t_s=2e-4, clock="device-event", cache="cold")

        def test_unknown(roofline):
            roofline.record(t_s=2e-4)

        def test_not_measured():
            pass
        """
    )
    ran = project.run("--roofline-fail-on=unmodelled")
    assert ran.counts == {"failed": 1, "passed": 2}
    assert ran.rows["test_unknown"]["failed"].startswith("unmodelled")


def test_device_work_on_a_host_clock_has_no_class(project: Project) -> None:
    project.write(test_a=streaming(2 * ROOF_S).replace("device-event", "host"))
    ran = project.run("--roofline-fail-under=90")
    row = ran.rows["test_stream"]
    assert (row["headroom_class"], row["confidence"]) == ("unknown", "low")
    assert (ran.counts, ran.code) == ({"passed": 1}, 1)
    assert "1 unchecked (low_confidence 1)" in ran.out


# A contradiction is a warning at the test, and nothing else is.


def test_a_contradiction_warns_at_its_test(project: Project) -> None:
    project.write(test_a=streaming(ROOF_S / 3))
    ran = project.run()
    lines = ran.out.splitlines()
    at = next(i for i, line in enumerate(lines) if "BeyondRoofWarning" in line)
    assert lines[at].strip().startswith("test_a.py:3:")  # a function starts with its decorator, says pytest
    assert ran.counts == {"passed": 1, "warning": 1}


@pytest.mark.parametrize(
    ("option", "failed"),
    [
        ("error", 1),
        ("error::pytest_roofline.PytestRooflineWarning", 1),
        ("error::pytest_roofline.BeyondRoofWarning", 1),
        ("error::pytest_roofline.ExceedsTargetWarning", 0),
        ("ignore::pytest_roofline.BeyondRoofWarning", 0),
    ],
)
def test_warnings_are_promoted_and_silenced_by_name(project: Project, option: str, failed: int) -> None:
    project.write(test_a=streaming(ROOF_S / 3))
    ran = project.run("-W", option)
    assert ran.code == failed
    assert len(ran.rows) == 1  # a warning that fails the test does not lose its row


def test_exceeding_a_target_has_its_own_warning(project: Project, predictions: str) -> None:
    ran = moe(project, 1.10, f"--roofline-predictions={predictions}", "-W", "error::pytest_roofline.ExceedsTargetWarning")
    assert ran.code == 1
    assert "ExceedsTargetWarning: test_moe: exceeds_target: 1.100x" in ran.out
    assert "session.py" not in ran.out  # the message alone, no line of the plugin's own source


@pytest.mark.parametrize("t_s", [2 * ROOF_S, 100 * ROOF_S, ROOF_S / 1.01])
def test_a_possible_result_does_not_warn(project: Project, t_s: float) -> None:
    project.write(test_a=streaming(t_s))
    assert project.run("-W", "error").counts == {"passed": 1}


def test_a_degraded_result_passes_under_w_error(project: Project) -> None:
    project.write(test_a=streaming(ROOF_S, device="no such device"))
    ran = project.run("-W", "error")
    assert ran.counts == {"passed": 1}
    assert any("no such device" in line for line in ran.report["skill_errors"])


def test_the_json_report_matches_its_schema(project: Project) -> None:
    project.write(test_a=streaming(2 * ROOF_S))
    report = project.run().report
    assert report["schema"] == "roofline-report/1"
    assert report["ranking_by_pct"] == report["ranking_by_expected_gain"] == ["test_a.py::test_stream"]
    assert json.loads(json.dumps(report, allow_nan=False)) == report


# A gate reports a test that it could not check because of a mistake in the test's declaration.


@pytest.mark.parametrize(
    "gate", ["--roofline-fail-on=beyond_roof", "--roofline-fail-on=regression", "--roofline-fail-under=10"]
)
def test_an_unknown_device_of_a_marker_fails_its_test_under_a_gate(project: Project, gate: str) -> None:
    project.write(test_a=streaming(2 * ROOF_S, device="MI335X"))
    ran = project.run(gate)
    assert ran.counts["failed"] == 1
    assert "no peaks for device 'MI335X': is it mi355x" in ran.out
    assert "gate: 1 checked, 1 failed, 0 allowed, 0 unchecked" in ran.out or "no_baseline 1" in ran.out
    assert project.run().counts["passed"] == 1


def test_an_unknown_device_of_a_glob_ends_a_run_with_a_gate(project: Project) -> None:
    project.toml('[tool.roofline.work]\n"*test_one*" = { bytes = 8e8, device = "MI335X" }')
    project.write(test_a="def test_one(roofline): roofline.record(2e-4, clock='device-event', cache='cold')")
    ran = project.run("--roofline-fail-on=beyond_roof")
    assert ran.code == 4
    assert "[tool.roofline.work] '*test_one*': no peaks for device 'MI335X'" in ran.out
    assert project.run().counts == {"passed": 1}


def test_a_misspelled_op_of_a_glob_is_named(project: Project) -> None:
    project.toml('[tool.roofline.work]\n"*test_one*" = { op = "rmsnrm", rows = 1, cols = 1, dtype = "bf16" }')
    project.write(test_a="def test_one(roofline): roofline.record(2e-4, clock='device-event', cache='cold')")
    ran = project.run("--roofline-fail-on=beyond_roof")
    assert (ran.counts["passed"], ran.code) == (1, 1)
    assert "is it rmsnorm?" in ran.out
    assert "1 unchecked (no_work_model 1)" in ran.out


@pytest.mark.parametrize(("t_s", "told"), [(101 * ROOF_S, False), (1e3 * 2 * ROOF_S, True)])
def test_a_time_in_a_wrong_unit_is_suggested(project: Project, t_s: float, told: bool) -> None:
    project.write(test_a=streaming(t_s))
    assert ("Is the time in seconds? test_stream (200 ms)" in project.run().out) is told


def test_an_impossible_ratio_is_not_100_percent_in_junit(project: Project) -> None:
    project.write(test_a=streaming(ROOF_S / 3), test_b=streaming(2 * ROOF_S, name="test_half"))
    ran = project.run("--junitxml=junit.xml")
    found = {}
    for name, case in ran.junit.items():
        said = {pair.get("name"): pair.get("value") for pair in case.iter("property")}
        found[name] = said.get("roofline_pct"), said.get("roofline_pct_raw")
    assert found == {"test_stream": (None, "3"), "test_half": ("0.5", None)}


def test_a_ratio_that_the_highest_clock_allows_is_not_infeasible(project: Project) -> None:
    project.write(test_a=streaming(1.0, bytes=1.03 * BANDWIDTH))
    ran = project.run("--roofline-fail-on=infeasible")
    assert (ran.rows["test_stream"]["check"]["status"], ran.counts["passed"]) == ("near_roof", 1)
    project.write(test_a=streaming(1.0, bytes=1.2 * BANDWIDTH))
    assert project.run("--roofline-fail-on=infeasible").counts["failed"] == 1


def test_a_roof_that_is_not_known_is_not_checked(project: Project) -> None:
    marker = {"op": "gemm", "M": 8192, "N": 8192, "K": 8192, "dtype": "bool", "bytes": None}
    project.write(test_a=streaming(40e-6, **marker))  # 27 PFLOP/s, and the fastest dtype of MI355X has 10
    assert project.run("--roofline-fail-on=beyond_roof").counts["failed"] == 1
    project.write(test_a=streaming(1e-3, **marker))
    (outcome,) = project.run("--roofline-fail-on=beyond_roof").rows["test_stream"]["gates"]
    assert (outcome["status"], outcome["code"]) == ("skipped", "unchecked_axis")


@pytest.mark.parametrize("t_s", [1e308, 1e-300])
def test_a_time_that_no_kernel_takes_is_refused_at_the_call(project: Project, t_s: float) -> None:
    project.write(test_a=streaming(t_s))
    ran = project.run("--roofline-fail-on=beyond_roof")
    assert f"ValueError: t_s is {t_s!r}, expected a time from 1e-15 to 1e+09 s" in ran.out
    assert "fault" not in ran.out


def test_the_reports_work_out_what_failed(project: Project) -> None:
    """A reader of the job summary can redo each result by hand."""
    project.write(
        test_a="""
        import pytest

        # 2 x 65536 x 8192 x 2 B = 2,147,483,648 B. In 12 us that is 1.79e14 B/s, 22.37 times 8e12 B/s.
        @pytest.mark.roofline(op="copy", rows=65536, cols=8192, dtype="bf16", device="MI355X")
        def test_fast(roofline):
            roofline.record(12e-6, clock="device-event", cache="cold")

        # In 537 us: 4e12 B/s, half of the peak. 268 us before are 0.499 of 537 us.
        @pytest.mark.roofline(op="copy", rows=65536, cols=8192, dtype="bf16", device="MI355X")
        def test_slow(roofline):
            roofline.record(537e-6, clock="device-event", cache="cold")

        @pytest.mark.roofline(op="copy", rows=65536, cols=8192, dtype="bf16", device="MI355X")
        def test_slower(roofline):
            roofline.record(537e-6, clock="device-event", cache="cold")
        """
    )
    project.json("before.json", {"benchmarks": [{"fullname": "test_a.py::test_slower", "stats": {"median": 268e-6}}]})
    gates = ("--roofline-fail-on=beyond_roof,regression", "--roofline-fail-under=60", "--roofline-allow-unchecked")
    ran = project.run(*gates, "--roofline-baseline=before.json", "--roofline-report=md:r.md", "--roofline-report=html:r.html")
    expected = {
        "test_fast": "2,147,483,648 B / 1.2e-05 s = 179 TB/s, 22.37 times the peak of memory, 8 TB/s; ",
        "test_slow": "2,147,483,648 B / 0.000537 s = 3.999 TB/s, 0.4999 times the peak of memory, 8 TB/s",
        "test_slower": "0.000268 s before / 0.000537 s now = 0.4991; less than 1 / (1 + 0.034) = 0.9671 is a regression",
    }
    for name, text in expected.items():
        assert ran.rows[name]["arithmetic"].startswith(text)
        for report in ("r.md", "r.html"):
            assert text in (project.path / report).read_text(encoding="utf-8")
