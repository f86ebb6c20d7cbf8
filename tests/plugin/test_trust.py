"""Baselines, declarations and gates apply to the right test: a figure of one test never reaches another."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import pytest

from pytest_roofline.ceilings.store import folder
from support.project import Project

#: The command, whether or not its folder is on the PATH.
ROOFLINE = (sys.executable, "-c", "import sys; from pytest_roofline.cli import main; sys.exit(main())")

HEAD = """
import pytest

WORK = {"op": "copy", "bytes": 1e9, "device": "MI300X"}
HOW = {"clock": "device-event", "cache": "cold"}
"""


def speedups(project: Project, text: str) -> dict[str, tuple[str, float | None]]:
    project.write(test_a=HEAD + text)
    return {name: (row["check"]["status"], row["check"]["speedup"]) for name, row in project.run().rows.items()}


# Groups: the baseline is that of the same problem.


def test_baselines_of_a_group_match_by_arguments(project: Project) -> None:
    found = speedups(
        project,
        """
@pytest.mark.benchmark(group="g")
@pytest.mark.parametrize("n", [1, 4])
class TestGroup:
    @pytest.mark.roofline(**WORK)
    def test_new(self, roofline, n):
        roofline.record(n * 1e-3, **HOW)

    @pytest.mark.roofline(**WORK, baseline=True)
    def test_old(self, roofline, n):
        roofline.record(n * 2e-3, **HOW)
""",
    )
    assert [found[f"test_new[{n}]"][1] for n in (1, 4)] == [pytest.approx(2.0)] * 2


def test_a_baseline_that_is_one_of_the_implementations(project: Project) -> None:
    found = speedups(
        project,
        """
@pytest.mark.benchmark(group="g")
@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize("how", [pytest.param("old", marks=pytest.mark.roofline(**WORK, baseline=True)), "new"])
def test_it(roofline, how, n):
    if how == "new":
        roofline(**WORK)
    roofline.record(n * (2e-3 if how == "old" else 1e-3), **HOW)
""",
    )
    assert [found[f"test_it[new-{n}]"][1] for n in (1, 4)] == [pytest.approx(2.0)] * 2


@pytest.mark.parametrize("other", ['{**WORK, "bytes": 4e9}', '{**WORK, "device": "MI355X"}'])
def test_a_baseline_with_other_work_or_device_is_not_comparable(project: Project, other: str) -> None:
    found = speedups(
        project,
        f"""
@pytest.mark.benchmark(group="g")
@pytest.mark.roofline(**WORK, baseline=True)
def test_old(roofline):
    roofline.record(1e-3, **HOW)

@pytest.mark.benchmark(group="g")
@pytest.mark.roofline(**{other})
def test_new(roofline):
    roofline.record(2e-3, **HOW)
""",
    )
    assert found["test_new"] == ("not_comparable", pytest.approx(0.5))


def test_indistinguishable_baselines_are_not_comparable(project: Project) -> None:
    found = speedups(
        project,
        """
@pytest.mark.benchmark(group="g")
@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.roofline(**WORK, baseline=True)
def test_old(roofline, n):
    roofline.record(n * 1e-3, **HOW)

@pytest.mark.benchmark(group="g")
@pytest.mark.roofline(**WORK)
def test_new(roofline):
    roofline.record(2e-3, **HOW)
""",
    )
    assert found["test_new"][0] == "not_comparable"


# Whose work.


def test_a_hook_of_a_folder_applies_to_its_tests(project: Project) -> None:
    for name, text in (
        (
            "sub/conftest.py",
            "import pytest\n\n@pytest.hookimpl(optionalhook=True)\ndef pytest_roofline_work(item, params):\n"
            "    return {'op': 'copy', 'bytes': 1e9, 'device': 'MI300X'}\n",
        ),
        ("sub/test_in.py", "def test_in(roofline):\n    roofline.record(1e-3)\n"),
        ("other/test_out.py", "def test_out(roofline):\n    roofline.record(1e-3)\n"),
    ):
        path = project.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    rows = project.run("sub", "other").rows
    assert (rows["test_in"]["bytes_est"], rows["test_in"]["work"]["source"]) == (1e9, "hook")
    assert rows["test_out"]["unknown_reason"] == "unmodelled"


def test_a_declaration_after_a_measurement_applies_to_the_next(project: Project) -> None:
    project.write(
        test_a=HEAD
        + """
def test_it(roofline):
    roofline.record(1e-3, **HOW)
    roofline(**WORK)
    roofline.record(1e-3, **HOW)
    roofline(**{**WORK, "bytes": 2e9})
    roofline.record(1e-3, **HOW)
"""
    )
    rows = project.run().rows
    assert [rows[f"test_it#{at}"]["bytes_est"] for at in (1, 2, 3)] == [None, 1e9, 2e9]


def test_a_parametrized_fixture_gives_its_value_not_its_parameter(project: Project) -> None:
    project.write(
        test_a=HEAD
        + """
@pytest.fixture(params=[10, 20])
def rows(request):
    return request.param * 1024

@pytest.mark.roofline(op="copy", rows="rows", cols=8192, dtype="bf16", device="MI300X")
def test_it(roofline, rows):
    roofline.record(1e-3, **HOW)
"""
    )
    rows = project.run().rows
    for param in (10, 20):  # read and written, 2 bytes each
        assert rows[f"test_it[{param}]"]["bytes_est"] == param * 1024 * 8192 * 2 * 2


def test_an_earlier_time_matches_the_same_measurement_of_a_test(project: Project) -> None:
    text = """
@pytest.mark.roofline(**WORK)
def test_it(roofline):
    roofline.record({0}, **HOW)
    roofline.record({1}, **HOW)
"""
    project.write(test_a=HEAD + text.format(1e-3, 4e-3))
    before = project.json("before.json", project.run().report)
    project.write(test_a=HEAD + text.format(1e-3, 2e-3))
    rows = project.run(f"--roofline-baseline={before}").rows
    assert [rows[f"test_it#{at}"]["check"]["speedup"] for at in (1, 2)] == [pytest.approx(1), pytest.approx(2)]


def test_a_name_keeps_colons_in_its_arguments(project: Project) -> None:
    project.write(
        test_a=HEAD
        + """
@pytest.mark.parametrize("kind", ["torch::float"])
@pytest.mark.roofline(**WORK)
def test_it(roofline, kind):
    roofline.record(1e-3, **HOW)
"""
    )
    (row,) = project.run().report["entries"]
    assert row["short_name"] == "test_it[torch::float]"


def test_quartiles_on_the_wrong_side_of_the_median_are_refused(project: Project) -> None:
    project.write(test_a="def test_it(roofline):\n    roofline.record(1e-3, q1_s=5e-3, q3_s=2e-3)\n")
    assert "expected them in this order" in project.run().out


# Gates that look at nothing say so; those that can look do.


@pytest.mark.parametrize(("t_s", "before"), [(2e-6, 1e-6), (0.9e-4, 0.4e-4)])
def test_a_regression_is_reported_at_any_percent(project: Project, t_s: float, before: float) -> None:
    # A roof time under the dispatch floor, and a rate of 1.02 of the roof: the roof does not hide the regression.
    nbytes = 1e6 if t_s < 1e-5 else t_s * 5.3e12 * 1.02
    project.write(
        test_a=f"""
import pytest

@pytest.mark.roofline(op="copy", bytes={nbytes!r}, device="MI300X")
def test_it(roofline):
    roofline.record({t_s!r}, clock="device-event", cache="cold")
"""
    )
    name = project.json("before.json", {"benchmarks": [{"fullname": "test_a.py::test_it", "stats": {"median": before}}]})
    ran = project.run(f"--roofline-baseline={name}", "--roofline-fail-on=regression")
    assert ran.rows["test_it"]["check"]["status"] in ("regression", "near_roof")
    assert ran.counts["failed"] == 1


def test_a_gate_reports_rows_without_a_percent(project: Project) -> None:
    project.write(
        test_a=HEAD
        + """
@pytest.mark.roofline(min_pct=90)
def test_it(roofline):
    roofline.record(1e-3, **HOW)
"""
    )
    ran = project.run("--roofline-fail-under=90")
    assert (ran.counts["passed"], ran.code) == (1, 1)
    assert any(line.startswith("unchecked by min_pct, fail_under, 1: the row has no byte/FLOP model") for line in ran.section)


@pytest.mark.parametrize(("asked", "failed"), [(60, 0), (80, 1)])
def test_a_percent_from_cache_can_fail_but_not_pass(project: Project, asked: int, failed: int) -> None:
    # 200 MB in 50 us are 0.75 of 5.3 TB/s, and MI300X has 256 MiB of cache: without it the row would have less, not more.
    project.write(
        test_a=HEAD
        + f"""
@pytest.mark.roofline(**{{**WORK, "bytes": 2e8}}, min_pct={asked})
def test_it(roofline):
    roofline.record(5e-5, clock="device-event", cache="warm")
"""
    )
    ran = project.run()
    assert ran.counts.get("failed", 0) == failed
    assert any(line.startswith("unchecked by min_pct, 1: ") for line in ran.section) != failed
    assert ran.code == failed  # min_pct= alone does not ask the run to prove it


def test_a_baseline_file_without_the_test_is_reported(project: Project) -> None:
    project.write(test_a=HEAD + "def test_renamed(roofline):\n    roofline.record(1e-3, **HOW)\n")
    before = project.json("before.json", {"benchmarks": [{"fullname": "test_a.py::test_old", "stats": {"median": 1.0}}]})
    ran = project.run(f"--roofline-baseline={before}", "--roofline-fail-on=regression")
    assert ran.code == 1
    assert any(line.startswith("unchecked by regression, 1: the row has no baseline (no_baseline)") for line in ran.section)
    ran = project.run(f"--roofline-baseline={before}")
    assert any("before.json has no earlier time for test_renamed" in line for line in ran.report["skill_errors"])


def test_a_percent_within_the_cost_of_a_launch_fails_no_test(project: Project) -> None:
    project.write(
        test_a=HEAD
        + """
@pytest.mark.roofline(**{**WORK, "bytes": 1e6}, min_pct=90)
def test_it(roofline):
    roofline.record(4e-6, **HOW)
"""
    )
    ran = project.run()
    assert (ran.rows["test_it"]["unknown_reason"], ran.counts["passed"]) == ("dispatch_bound", 1)


def test_a_stored_run_keeps_its_group_baseline(project: Project) -> None:
    project.write(
        test_a=HEAD
        + """
@pytest.mark.benchmark(group="g")
@pytest.mark.roofline(**WORK, baseline=True)
def test_old(benchmark):
    benchmark(sum, [1])

@pytest.mark.benchmark(group="g")
@pytest.mark.roofline(**WORK)
def test_new(benchmark):
    benchmark(sum, [1])
"""
    )
    rows = project.run(
        "--benchmark-json=now.json", "--benchmark-max-time=0.001", "--benchmark-min-rounds=5", plugins=("benchmark",)
    ).rows
    done = project.pytester.run(*ROOFLINE, "annotate", "now.json", "--report", "json:again.json")
    assert done.ret == 0
    again = {row["short_name"]: row for row in json.loads((project.path / "again.json").read_text("utf-8"))["entries"]}
    for name, row in rows.items():
        for key in ("baseline", "check", "line", "headroom_class", "roofline_pct_raw", "measurement"):
            assert again[name][key] == row[key], key


# Whose machine, device and shape.


def test_an_earlier_time_on_another_device_is_not_comparable(project: Project) -> None:
    text = HEAD + "@pytest.mark.roofline(**WORK)\ndef test_it(roofline):\n    roofline.record(1e-3, **HOW)\n"
    project.write(test_a=text)
    before = project.json("before.json", project.run().report)
    for device, status in (("MI355X", "not_comparable"), ("mi300x", "regression"), ("AMD Instinct MI300X", "regression")):
        project.write(test_a=text.replace("1e-3", "2e-3").replace('"MI300X"', f'"{device}"'))
        row = project.run(f"--roofline-baseline={before}").rows["test_it"]
        assert (device, row["check"]["status"]) == (device, status)


def test_a_device_clock_time_is_not_a_cpu_time(project: Project) -> None:
    project.write(
        test_a="""
        def test_it(roofline):
            roofline(op="copy", bytes=1e9)
            roofline.record(1e-3, clock="device-event", cache="cold")
        """
    )
    for device in ("auto", "cpu"):
        row = project.run(f"--roofline-device={device}").rows["test_it"]
        assert (row["device"], row["roofline_pct"], row["check"]["status"]) == (None, None, "not_checked")


def test_cpu_matches_in_any_letter_case(project: Project) -> None:
    project.write(
        conftest="""
        import pytest
        from roofline_engine.peaks import Peaks

        @pytest.hookimpl(optionalhook=True)
        def pytest_roofline_peaks(config, device):
            return Peaks(product="cpu", hbm_bw_bytes_s=1e10, source="measured", confidence="high") if device == "cpu" else None
        """,
        test_a="""
        def test_it(roofline):
            roofline(op="copy", bytes=1e9, device="CPU")
            roofline.record(1.0, clock="host", cache="cold")
        """,
    )
    assert project.run().rows["test_it"]["roofline_pct"] == pytest.approx(0.1)


@pytest.mark.parametrize(("tokens", "used"), [(64, True), (4096, False)])
def test_a_prediction_applies_to_its_own_shape(project: Project, tokens: int, used: bool) -> None:
    # 64 rows of 8192 in bf16, read and written: 2.1 MB; of 4096 rows 64 times that.
    nbytes = 64 * 8192 * 2 * 2
    entry = {"name": "k", "attainable_speedup": 1.5, "bytes_est": nbytes, "flops_est": 0}
    artifact = {"skill_version": "1", "peaks": {"gfx": "gfx942"}, "entries": [entry]}
    predictions = project.json("predictions.json", artifact)
    project.write(
        test_a=HEAD
        + f"""
@pytest.mark.roofline(op="copy", rows={tokens}, cols=8192, dtype="bf16", device="MI300X", kernel="k")
def test_it(roofline):
    roofline.record(1e-3, **HOW)
"""
    )
    row = project.run(f"--roofline-predictions={predictions}").rows["test_it"]
    assert (row["prediction"] is not None) == used
    assert ("prediction not used" in row["notes"]) != used


@pytest.mark.parametrize("device", ["auto", "MI300X"])
def test_times_from_another_machine_are_not_compared_with_this_cpu(project: Project, device: str) -> None:
    project.write(
        conftest="""
        import pytest
        from roofline_engine.peaks import Peaks

        @pytest.hookimpl(optionalhook=True)
        def pytest_roofline_peaks(config, device):
            return Peaks(product="cpu", hbm_bw_bytes_s=1e10, source="measured", confidence="high") if device == "cpu" else None
        """,
        test_a="""
        import pytest

        @pytest.mark.roofline(op="copy", bytes=1e9, device="cpu")
        def test_it(benchmark):
            benchmark.pedantic(sum, ([1],), rounds=5)
        """,
    )
    assert project.run("--benchmark-json=now.json", plugins=("benchmark",)).rows["test_it"]["roofline_pct_raw"] is not None
    data = json.loads((project.path / "now.json").read_text("utf-8"))
    data["machine_info"]["cpu"]["brand_raw"] = "a CPU of the past"
    project.json("now.json", data)
    project.pytester.run(*ROOFLINE, "annotate", "now.json", "--device", device, "--report", "json:again.json")
    (row,) = json.loads((project.path / "again.json").read_text("utf-8"))["entries"]
    assert (row["device"], row["roofline_pct_raw"]) == ("cpu", None)


def test_examples_of_hypothesis_are_not_timed(project: Project) -> None:
    project.write(
        test_a="""
        from hypothesis import HealthCheck, given, settings, strategies

        @settings(suppress_health_check=list(HealthCheck), max_examples=5, deadline=200)
        @given(strategies.integers(1, 5))
        def test_it(roofline, n):
            assert roofline.measure(lambda: n) == n
            assert roofline.compare(lambda: 0, lambda: n) == n
        """
    )
    ran = project.run()
    assert (ran.counts, ran.code) == ({"passed": 1}, 0)
    assert ran.rows["test_it"]["measurement"] is None
    ran = project.run("--roofline-fail-on=beyond_roof")
    assert (ran.counts, ran.code) == ({"passed": 1}, 1)
    assert "roofline.measure does not time the examples of a Hypothesis test" in ran.out


ONLY_ONCE = """
    import pytest

    def test_measure(roofline):
        assert roofline.measure(next, iter([7])) == 7

    def test_fail(roofline):
        calls = []
        def once():
            calls.append(1)
            if len(calls) > 1:
                pytest.fail("a second call")
            return 7
        assert roofline.measure(once) == 7

    def test_compare(roofline):
        assert roofline.compare(lambda: 1 / 0, lambda: 7) == 7

    def test_second_of_two(roofline):
        roofline.measure(lambda: 7)
        assert roofline.measure(next, iter([7])) == 7
"""


def test_a_function_that_can_be_called_only_once_is_not_timed_and_does_not_fail(project: Project) -> None:
    """Without the flag ``measure`` is one call, which passes."""
    project.write(test_a=ONLY_ONCE)
    assert project.run().counts == {"passed": 4}
    ran = project.run("--roofline-fail-on=beyond_roof")
    assert (ran.counts, ran.code) == ({"passed": 4}, 1)
    for name in ("test_measure", "test_fail", "test_compare", "test_second_of_two#2"):
        assert ran.rows[name]["measurement"] is None
        (outcome,) = ran.rows[name]["gates"]
        assert (outcome["status"], outcome["code"]) == ("skipped", "no_time")
        assert outcome["text"].startswith("a repeated call raised ")


def test_pytest_exit_in_a_repeated_call_ends_the_session(project: Project) -> None:
    project.write(
        test_a="""
        import pytest

        def test_it(roofline):
            calls = []
            roofline.measure(lambda: calls and pytest.exit("enough") or calls.append(1))
        """
    )
    assert project.spawn().code == 2


def test_annotations_work_on_a_terminal_without_unicode(project: Project) -> None:
    project.write(
        test_a=HEAD
        + """
@pytest.mark.roofline(**WORK)
def test_\xfc(roofline):
    roofline.record(1e-6, **HOW)
"""
    )
    ran = project.spawn("--roofline-report=github", PYTHONIOENCODING="ascii")
    assert any(line.startswith("::warning ") and "title=roofline%3A test_\\xfc" in line for line in ran.out.splitlines())


def test_a_user_without_a_home_folder_has_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless(self: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", homeless)
    assert folder({}).parent == Path(tempfile.gettempdir())


@pytest.mark.parametrize(
    ("stats", "message"),
    [
        ({"median": True}, "stats.median: Input should be a valid number"),
        ({"median": 1e308}, "stats.median is 1e+308, expected more than 0, a time from 1e-15 to 1e+09 s"),
        ({"median": 1e-300}, "stats.median is 1e-300, expected more than 0, a time"),
    ],
)
def test_a_baseline_that_is_no_time_is_refused(project: Project, stats: dict[str, object], message: str) -> None:
    project.write(test_a=HEAD + "@pytest.mark.roofline(**WORK)\ndef test_it(roofline):\n    roofline.record(1e-3, **HOW)\n")
    name = project.json("before.json", {"benchmarks": [{"fullname": "test_a.py::test_it", "stats": stats}]})
    ran = project.run(f"--roofline-baseline={name}", "--roofline-fail-on=regression")
    assert message in ran.out


def test_a_baseline_with_wild_quartiles_shows_no_change(project: Project) -> None:
    project.write(test_a=HEAD + "@pytest.mark.roofline(**WORK)\ndef test_it(roofline):\n    roofline.record(2e-3, **HOW)\n")
    stats = {"median": 1e-3, "q1": 1e-9, "q3": 1.0}
    name = project.json("before.json", {"benchmarks": [{"fullname": "test_a.py::test_it", "stats": stats}]})
    ran = project.run(f"--roofline-baseline={name}", "--roofline-fail-on=regression")
    assert ran.rows["test_it"]["check"]["status"] == "not_comparable"
    assert "0 checked, 0 failed, 0 allowed, 1 unchecked (wide_band 1)" in ran.out
