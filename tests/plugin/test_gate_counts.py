"""The count that ends a run with a gate: what is given to a gate is checked, or unchecked with its reason."""

from __future__ import annotations

import json
import re

import pytest

from support.project import Project, Ran

#: 1 GB at the 8 TB/s of an MI355X are 125 us.
HEAD = """
import pytest

WORK = {"op": "copy", "bytes": 1e9, "device": "MI355X"}
HOW = {"clock": "device-event", "cache": "cold"}
"""
POSSIBLE = "250e-6"
IMPOSSIBLE = "1e-9"
GATE = "--roofline-fail-on=beyond_roof"
QUICK = ("--benchmark-max-time=0.001", "--benchmark-min-rounds=2")


def gate_line(ran: Ran) -> str:
    """The only line with the counts, without its prefix."""
    (line,) = [line for line in ran.out.splitlines() if line.startswith("gate: ")]
    return line.removeprefix("gate: ")


def counts(checked: int = 0, failed: int = 0, allowed: int = 0, unchecked: int = 0, codes: str = "") -> str:
    text = f"{checked} checked, {failed} failed, {allowed} allowed, {unchecked} unchecked"
    return text + (f" ({codes})" if codes else "")


# The border: what is given to a gate.


@pytest.mark.parametrize("verbosity", ["-v", "-q", "-qq"])
def test_plain_tests_are_not_given_to_a_gate(project: Project, verbosity: str) -> None:
    project.write(test_a="def test_one(): pass\n\ndef test_two(roofline): pass")
    ran = project.run(GATE, verbosity)
    assert (ran.code, gate_line(ran)) == (0, counts())


def test_a_run_without_a_gate_has_no_count(project: Project) -> None:
    project.write(test_a=HEAD + f"def test_it(roofline):\n    roofline(**WORK)\n    roofline.record({POSSIBLE}, **HOW)\n")
    assert "gate:" not in project.run().out


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (f"roofline(**WORK); roofline.record({POSSIBLE}, **HOW)", counts(checked=1)),
        ("roofline(**WORK)", counts(unchecked=1, codes="no_time 1")),
        (f"roofline.record({POSSIBLE}, **HOW)", counts(unchecked=1, codes="no_work_model 1")),
        (
            f"roofline(op='copy', bytes=1e9); roofline.record({POSSIBLE}, **HOW)",
            counts(unchecked=1, codes="no_device 1"),
        ),
        (f"roofline(**WORK); roofline.record({IMPOSSIBLE}, **HOW)", counts(checked=1, failed=1)),
    ],
)
@pytest.mark.parametrize("verbosity", ["-v", "-q"])
def test_a_row_is_checked_or_unchecked_with_a_reason(project: Project, body: str, expected: str, verbosity: str) -> None:
    project.write(test_a=HEAD + f"def test_it(roofline):\n    {body}\n")
    ran = project.run(GATE, verbosity)
    assert gate_line(ran) == expected
    assert ran.code == (0 if expected == counts(checked=1) else 1)
    if "(" in expected:
        code = expected.partition("(")[2].split()[0]
        assert re.search(rf"unchecked by beyond_roof, 1: .*\({code}\)\. .*\. Rows: test_it", ran.out)
    tolerant = project.run(GATE, "--roofline-allow-unchecked", verbosity)
    assert gate_line(tolerant) == expected
    assert tolerant.code == ("1 failed" in expected)


def test_the_count_is_shown_where_the_section_is_turned_off(project: Project) -> None:
    project.write(test_a=HEAD + "@pytest.mark.roofline(**WORK)\ndef test_it(): pass\n")
    ran = project.run(GATE, "--roofline-report=")
    assert (ran.code, gate_line(ran)) == (1, counts(unchecked=1, codes="no_time 1"))


def test_min_pct_alone_is_counted_and_fails_no_run(project: Project) -> None:
    project.write(test_a="import pytest\n\n@pytest.mark.roofline(min_pct=50)\ndef test_it(): pass\n")
    ran = project.run("-q")
    assert (ran.code, gate_line(ran)) == (0, counts(unchecked=1, codes="no_time 1"))
    ran = project.run("-q", GATE)
    assert (ran.code, gate_line(ran)) == (1, counts(unchecked=1, codes="no_time 1"))


def test_a_skipped_test_is_not_given(project: Project) -> None:
    project.write(
        test_a=HEAD
        + f"""
@pytest.mark.skip
@pytest.mark.roofline(**WORK)
def test_one(roofline):
    roofline.record({POSSIBLE})

@pytest.mark.roofline(**WORK)
def test_two():
    pytest.skip("no device")
"""
    )
    ran = project.run(GATE)
    assert (ran.code, gate_line(ran), ran.counts) == (0, counts(), {"skipped": 2})


def test_the_counts_are_of_the_whole_run_under_xdist(project: Project) -> None:
    project.write(
        test_a=HEAD
        + f"""
@pytest.mark.parametrize("n", range(4))
@pytest.mark.roofline(**WORK)
def test_it(roofline, n):
    roofline.record({POSSIBLE}, **HOW)

@pytest.mark.roofline(**WORK)
def test_untimed():
    pass

@pytest.mark.roofline(**WORK)
def test_impossible(roofline):
    roofline.record({IMPOSSIBLE}, **HOW)
"""
    )
    ran = project.spawn("-n2", "-q", GATE, plugins=("xdist",))
    assert (ran.code, gate_line(ran)) == (1, counts(checked=5, failed=1, unchecked=1, codes="no_time 1"))
    ran = project.spawn("-n2", "-q", GATE, "--deselect=test_a.py::test_impossible", plugins=("xdist",))
    assert (ran.code, gate_line(ran)) == (1, counts(checked=4, unchecked=1, codes="no_time 1"))
    gate = ran.report["gate"]
    assert gate == {
        "kinds": ["beyond_roof"],
        **{"checked": 4, "failed": 0, "allowed": 0, "unchecked": 1},
        "reasons": {"no_time": 1},
    }


def test_codes_of_unchecked_rows_can_be_accepted(project: Project) -> None:
    project.write(test_a=HEAD + "@pytest.mark.roofline(**WORK)\ndef test_it(): pass\n")
    for key, code in (('["no_time"]', 0), ('["no_baseline"]', 1), ("true", 0), ("false", 1)):
        project.toml(f"[tool.roofline]\nallow_unchecked = {key}\n")
        assert (key, project.run(GATE).code) == (key, code)
    for key, code in (("no_time", 0), ("no_baseline no_time", 0), ("no_baseline", 1), ("true", 0), ("false", 1)):
        project.toml(f'[tool.pytest.ini_options]\nroofline_allow_unchecked = "{key}"\n')
        assert (key, project.run(GATE).code) == (key, code)
    project.toml('[tool.roofline]\nallow_unchecked = ["no_tme"]\n')
    ran = project.run(GATE)
    assert ran.code == 4
    assert "allow_unchecked: unknown code 'no_tme', expected true, false or codes of no_time, " in ran.out


# Times that come in other ways, late, or before a skip.


def test_a_benchmark_that_is_requested_at_run_time_is_a_row(project: Project) -> None:
    project.write(
        test_a=HEAD
        + """
@pytest.fixture
def timer(request):
    return request.getfixturevalue("benchmark")

@pytest.mark.roofline(op="copy", bytes=1e12, device="MI355X")
def test_direct(request):
    request.getfixturevalue("benchmark")(sum, [1])

@pytest.mark.roofline(op="copy", bytes=1e12, device="MI355X")
def test_through_a_fixture(timer):
    timer(sum, [1])

def test_no_marker(request):
    request.getfixturevalue("benchmark")(sum, [1])
"""
    )
    ran = project.run(f"{GATE},unmodelled", *QUICK, plugins=("benchmark",))
    assert ran.counts["failed"] == 3  # 1 TB in a microsecond; and no model
    assert gate_line(ran) == counts(checked=2, failed=3, unchecked=1, codes="no_work_model 1")


def test_a_benchmark_next_to_a_recorded_time_is_a_row(project: Project) -> None:
    project.write(
        test_a=HEAD
        + """
@pytest.mark.roofline(op="copy", bytes=1e12, device="MI355X")
def test_both(benchmark, roofline):
    benchmark(sum, [1])
    roofline.record(20.0, **HOW)

@pytest.mark.roofline(op="copy", bytes=1e12, device="MI355X")
def test_same(benchmark, roofline):
    benchmark(sum, [1])
    roofline.record(benchmark.stats.stats.median)
"""
    )
    rows = project.run(*QUICK, plugins=("benchmark",)).rows
    assert list(rows) == ["test_both#1", "test_both#2", "test_same"]
    assert [row["check"]["status"] for row in rows.values()] == ["not_checked", "beyond_roof", "beyond_roof"]


def test_a_time_that_is_recorded_in_a_teardown_is_an_error_at_the_call(project: Project) -> None:
    project.write(
        test_a=HEAD
        + f"""
@pytest.fixture
def late(roofline):
    yield
    roofline.record({IMPOSSIBLE}, **HOW)

@pytest.fixture
def early(roofline):
    roofline.record({POSSIBLE}, **HOW)
    yield

@pytest.mark.roofline(**WORK)
def test_late(late):
    pass

@pytest.mark.roofline(**WORK)
def test_early(early):
    pass
"""
    )
    ran = project.run("-q")
    assert ran.counts == {"passed": 2, "error": 1}
    assert "the roofline fixture was used after the test's call" in ran.out
    assert re.search(r"^test_a\.py:\d+: RuntimeError$", ran.out, re.MULTILINE)  # and no line of the plugin
    assert ran.rows["test_early"]["measurement"] is not None
    assert project.run(flag=False, report=False).counts == {"passed": 2}


@pytest.mark.parametrize(
    ("end", "t_s", "outcome", "expected"),
    [
        ("pytest.skip('late')", POSSIBLE, {"skipped": 1}, counts(checked=1)),
        ("pytest.skip('late')", IMPOSSIBLE, {"failed": 1}, counts(checked=1, failed=1)),
        ("raise unittest.SkipTest", IMPOSSIBLE, {"failed": 1}, counts(checked=1, failed=1)),
        ("pytest.xfail('late')", POSSIBLE, {"xfailed": 1}, counts(checked=1)),
        ("pytest.xfail('late')", IMPOSSIBLE, {"xfailed": 1}, counts(checked=1, allowed=1)),
    ],
)
def test_a_time_before_a_skip_counts(project: Project, end: str, t_s: str, outcome: dict[str, int], expected: str) -> None:
    project.write(
        test_a=HEAD
        + f"""
import unittest

@pytest.mark.roofline(**WORK)
def test_it(roofline):
    roofline.record({t_s}, **HOW)
    {end}
"""
    )
    ran = project.run(GATE)
    found = {name: count for name, count in ran.counts.items() if name != "warning"}
    assert (found, gate_line(ran)) == (outcome, expected)
    assert ran.code == (1 if "failed" in outcome else 0)
    without = project.run()
    assert without.counts.keys() - {"warning"} == {"xfailed" if "xfail" in end else "skipped"}
    assert "test_it" in without.rows


def test_a_skip_that_unittest_catches_hides_no_failure(project: Project) -> None:
    project.write(
        test_a=HEAD
        + f"""
import unittest

class TestIt(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def keep(self, roofline):
        self.roofline = roofline

    def test_it(self):
        self.roofline(**WORK)
        self.roofline.record({IMPOSSIBLE}, **HOW)
        self.skipTest("late")
"""
    )
    ran = project.run(GATE)
    assert (ran.code, gate_line(ran)) == (1, counts(checked=1, failed=1))
    assert project.run().code == 0


def test_an_xfail_mark_counts_as_allowed(project: Project) -> None:
    project.write(
        test_a=HEAD
        + f"""
@pytest.mark.xfail(strict=True)
@pytest.mark.roofline(**WORK)
def test_it(roofline):
    roofline.record({IMPOSSIBLE}, **HOW)
"""
    )
    ran = project.run(GATE)
    assert (ran.code, gate_line(ran)) == (0, counts(checked=1, allowed=1))


@pytest.mark.parametrize("second", [f"roofline.record({POSSIBLE}, **HOW)", "pass", "pytest.skip('second')"])
def test_a_later_try_does_not_forget_a_time_beyond_the_roof(project: Project, second: str) -> None:
    project.write(
        test_a=HEAD
        + f"""
tries = []

@pytest.mark.roofline(**WORK)
def test_it(roofline):
    tries.append(1)
    if len(tries) == 1:
        roofline.record({IMPOSSIBLE}, **HOW)
    else:
        {second}
"""
    )
    ran = project.run(GATE, "--reruns=1", plugins=("rerunfailures",))
    assert (ran.code, ran.counts["failed"]) == (1, 1)
    assert "beyond_roof in an earlier try of this test" in ran.out
    assert "1 failed, 0 allowed" in gate_line(ran)


def test_a_later_try_may_repair_another_failure(project: Project) -> None:
    project.write(
        test_a=HEAD
        + f"""
tries = []

@pytest.mark.roofline(**WORK)
def test_it(roofline):
    tries.append(1)
    assert len(tries) > 1
    roofline.record({POSSIBLE}, **HOW)
"""
    )
    ran = project.run(GATE, "--reruns=1", plugins=("rerunfailures",))
    assert (ran.code, gate_line(ran)) == (0, counts(checked=1))


# Scripts: what they write is given, whether it can be read or not.

TABLE = "dtype,m,n,k,us\\nbf16,4096,8192,8192,{us}\\n"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (f"open('a.csv', 'w').write('{TABLE.format(us='5e2')}')", counts(checked=1)),
        (f"open('.a.csv', 'w').write('{TABLE.format(us='1e-3')}')", counts(checked=1, failed=1)),
        *(
            (f"open('a.csv', 'w').write('{TABLE.format(us=us)}')", counts(unchecked=1, codes="refused 1"))
            for us in ("nan", "0", "-1", "1.5 us", "", "1e400")
        ),
        ("pass", counts(unchecked=1, codes="refused 1")),
        (f"open('a.csv', 'w').write('loading...\\n{TABLE.format(us='5e2')}')", counts(unchecked=1, codes="refused 1")),
        (f"print('loading...\\n{TABLE.format(us='5e2')}')", counts(unchecked=1, codes="refused 1")),
    ],
)
def test_rows_of_a_script_are_given(project: Project, body: str, expected: str) -> None:
    project.write(test_gemm=f"import sys\n{body}\nsys.exit(0)")
    ran = project.run(GATE, "-q", "--roofline-device=MI355X")
    assert gate_line(ran) == expected
    assert ran.code == (expected != counts(checked=1))
    if "refused" in expected:
        assert "the row could not be used (refused). Correct the row" in ran.out
        assert project.run("--roofline-fail-on=refused", "--roofline-allow-unchecked").counts == {"failed": 1}


# Baselines that cannot be compared.


@pytest.mark.parametrize("verbosity", ["-v", "-q"])
def test_a_baseline_of_another_device_or_machine_is_named(project: Project, verbosity: str) -> None:
    text = HEAD + f"@pytest.mark.roofline(**WORK)\ndef test_it(roofline):\n    roofline.record({POSSIBLE}, **HOW)\n"
    project.write(test_a=text)
    report = project.run().report
    other_device = project.json("device.json", report)
    other_machine = project.json("machine.json", {**report, "machine": {"machine": "vax", "cpu": "other"}})
    ran = project.run("--roofline-fail-on=regression", f"--roofline-baseline={other_device}", verbosity)
    assert (ran.code, gate_line(ran)) == (0, counts(checked=1))
    ran = project.run("--roofline-fail-on=regression", f"--roofline-baseline={other_machine}", verbosity)
    assert (ran.code, gate_line(ran)) == (1, counts(unchecked=1, codes="not_comparable 1"))
    assert "its baseline is of kind unknown, machine.json" in ran.out
    project.write(test_a=text.replace("MI355X", "MI300X"))
    ran = project.run("--roofline-fail-on=regression", f"--roofline-baseline={other_device}", verbosity)
    assert (ran.code, gate_line(ran)) == (1, counts(unchecked=1, codes="not_comparable 1"))
    assert "its baseline is of kind unknown, device.json, of MI355X" in ran.out


@pytest.mark.parametrize("confidence", ["high", "low"])
def test_three_times_the_baseline_is_a_regression_whatever_the_ceiling(project: Project, confidence: str) -> None:
    project.write(
        conftest=f"""
        import pytest
        from pytest_roofline import Peaks

        @pytest.hookimpl(optionalhook=True)
        def pytest_roofline_peaks(device):
            return Peaks(product="cpu", hbm_bw_bytes_s=1e10, source="measured", confidence="{confidence}")
        """,
        test_a="""
        def test_it(roofline):
            roofline(op="copy", bytes=1e9, device="cpu")
            roofline.record(0.6, clock="host", cache="cold")
        """,
    )
    before = project.json("before.json", {"benchmarks": [{"fullname": "test_a.py::test_it", "stats": {"median": 0.2}}]})
    ran = project.run(f"--roofline-baseline={before}", "--roofline-fail-on=regression")
    assert (ran.rows["test_it"]["confidence"] == "low") == (confidence == "low")
    assert (ran.code, gate_line(ran)) == (1, counts(checked=1, failed=1))


@pytest.mark.parametrize(
    ("stats", "line"),
    [
        ({"median": True}, "stats.median"),
        ({"median": "1"}, "stats.median"),
        ({"median": 1.0, "q1": 2.0, "q3": 3.0}, "quartiles 2.0 and 3.0, expected the median 1.0 between them"),
        ({"median": 1.0, "q1": 0.1, "q3": 0.9}, "expected the median 1.0 between them"),
    ],
)
def test_a_baseline_that_is_no_time_is_refused(project: Project, stats: dict[str, object], line: str) -> None:
    project.write(test_a="def test_it(roofline):\n    roofline.record(1.0)\n")
    before = project.json("before.json", {"benchmarks": [{"fullname": "test_a.py::test_it", "stats": stats}]})
    ran = project.run(f"--roofline-baseline={before}", "--roofline-fail-on=regression")
    assert ran.code == 4
    assert line in ran.out


def test_a_band_that_hides_twice_the_time_is_unchecked(project: Project) -> None:
    project.write(test_a="def test_it(roofline):\n    roofline.record(2.0)\n")
    stats = {"median": 1.0, "q1": 1e-9, "q3": 2.5}
    before = project.json("before.json", {"benchmarks": [{"fullname": "test_a.py::test_it", "stats": stats}]})
    ran = project.run(f"--roofline-baseline={before}", "--roofline-fail-on=regression")
    assert (ran.code, gate_line(ran)) == (1, counts(unchecked=1, codes="wide_band 1"))


@pytest.mark.parametrize("text", ['{"benchmarks": [ONE, ONE]}', '{"benchmarks": [{"fullname": "t", "fullname": "t"}]}'])
def test_a_baseline_with_a_test_or_a_key_twice_is_refused(project: Project, text: str) -> None:
    project.write(test_a="def test_it(roofline):\n    roofline.record(1.0)\n")
    one = json.dumps({"fullname": "test_a.py::test_it", "stats": {"median": 1.0}})
    before = project.json("before.json", text.replace("ONE", one))
    ran = project.run(f"--roofline-baseline={before}", "--roofline-fail-on=regression")
    assert ran.code == 4
    assert "twice" in ran.out
    ran = project.run(f"--roofline-baseline={before}")
    assert ran.code == 0
    assert any("baseline not used" in line for line in ran.report["skill_errors"])


# Peaks and reports of hooks.


@pytest.mark.parametrize("value", ["float('nan')", "-1.0", "'8e12'", "10**400", "0", "True", "[8e12]"])
def test_peaks_of_a_hook_that_are_no_rate_are_named_once(project: Project, value: str) -> None:
    project.write(
        conftest=f"""
        import pytest
        from pytest_roofline import Peaks

        @pytest.hookimpl(optionalhook=True)
        def pytest_roofline_peaks(device):
            return Peaks(product="x", hbm_bw_bytes_s={value}, flops={{"bf16": 1e15}})
        """,
        test_a=f"""
        import pytest

        @pytest.mark.parametrize("n", [1, 2])
        @pytest.mark.roofline(op="copy", bytes=1e9, device="x")
        def test_it(roofline, n):
            roofline.record({POSSIBLE}, clock="device-event", cache="cold")
        """,
    )
    ran = project.run(GATE)
    assert (ran.code, gate_line(ran)) == (1, counts(unchecked=2, codes="no_roof 2"))
    (line,) = [line for line in ran.report["skill_errors"] if "hbm_bw_bytes_s" in line]
    assert line.startswith("pytest_roofline_peaks for x: hbm_bw_bytes_s is ")
    assert "Error" not in ran.out.replace("Error:", "")


def test_a_report_hook_that_makes_a_cycle_loses_only_its_part(project: Project) -> None:
    project.write(
        conftest="""
        import pytest

        @pytest.hookimpl(optionalhook=True)
        def pytest_roofline_report(report):
            report["self"] = report
        """,
        test_a="def test_it(roofline):\n    roofline.record(1.0)\n",
    )
    ran = project.run()
    assert ran.code == 0
    assert "self" not in ran.report
    assert "pytest_roofline_report: ValueError: Circular reference detected" in ran.out


# Gates that are empty, unread or blocked.


@pytest.mark.parametrize("option", ["--roofline-fail-on=", "--roofline-fail-on=,", "--roofline-fail-on= "])
def test_an_empty_gate_is_refused(project: Project, option: str) -> None:
    ran = project.run(option)
    assert ran.code == 4
    assert "--roofline-fail-on is empty, expected beyond_roof" in ran.out


@pytest.mark.parametrize("value", ["", "0", "0.6", "101", "nan", "-1"])
def test_a_percent_out_of_range_is_refused(project: Project, value: str) -> None:
    ran = project.run(f"--roofline-fail-under={value}")
    assert ran.code == 4
    assert "expected a percent from 1 to 100" in ran.out


def test_min_pct_of_zero_is_refused(project: Project) -> None:
    project.write(test_a="import pytest\n\n@pytest.mark.roofline(bytes=8, min_pct=0)\ndef test_it(): pass\n")
    assert "min_pct is 0, expected a percent from 1 to 100" in project.run().out


@pytest.mark.parametrize(
    "toml",
    [
        '[tool.pytest.ini_options]\nroofline_fail_on = ""',
        "[tool.roofline]\nfail_on = []",
        '[tool.roofline]\nfail_on = [""]',
        "[tool.roofline]\nfail_under = 0",
        '[tool.pytest.ini_options]\nroofline_fail_under = "0"',
    ],
)
def test_an_empty_gate_of_a_file_is_refused(project: Project, toml: str) -> None:
    ran = project.toml(toml).run()
    assert ran.code == 4
    assert "fail_" in ran.out


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_a_configuration_that_is_no_file_is_an_error(project: Project, kind: str) -> None:
    path = project.path / "roofline.toml"
    path.mkdir() if kind == "folder" else path.symlink_to(project.path / "missing")
    ran = project.run()
    assert ran.code == 4
    assert "roofline.toml: is no regular file, or a link to a missing one" in ran.out


def test_a_table_that_is_not_read_is_named(project: Project) -> None:
    project.write(test_a="def test_it(): pass")
    (project.path / "roofline.toml").write_text("")
    line = "pyproject.toml [tool.roofline] is not read: roofline.toml is next to it"
    project.toml('[tool.roofline]\ndevice = "MI355X"\n')
    ran = project.run()
    assert ran.code == 0
    assert line in ran.out
    assert project.run(GATE).code == 4
    project.toml('[tool.roofline]\nfail_on = ["beyond_roof"]\n')
    ran = project.run()
    assert ran.code == 4
    assert line in ran.out
    project.toml("[tool.other]\n")
    assert line not in project.run(GATE).out


@pytest.mark.parametrize("verbosity", ["-v", "-q"])
def test_a_gate_without_the_flag_is_named_in_the_summary(project: Project, verbosity: str) -> None:
    project.write(test_a="def test_it(): pass")
    ran = project.run(GATE, verbosity, flag=False, report=False)
    assert ran.code == 0
    *_, line, _ = ran.out.splitlines()
    assert line == "roofline: --roofline-fail-on has no effect without --roofline"
    assert "no effect" not in project.run(verbosity, flag=False, report=False).out


@pytest.mark.parametrize("name", ["roofline-session", "roofline-reporter"])
def test_a_blocked_plugin_is_a_usage_error(project: Project, name: str) -> None:
    ran = project.run("-p", f"no:{name}", GATE)
    assert ran.code == 4
    assert f"--roofline does nothing with -p no:{name}" in ran.out


@pytest.mark.parametrize(("ratio", "code"), [(2.0, 0), (0.96, 0), (1e-8, 1)])
def test_fail_under_does_not_pass_an_impossible_time(project: Project, ratio: float, code: int) -> None:
    # Twice the roof's time, a little less than it (within the 8.192 TB/s of the full bus, times 1.05), and far less.
    project.write(
        test_a=HEAD + f"@pytest.mark.roofline(**WORK)\ndef test_it(roofline):\n    roofline.record({125e-6 * ratio!r}, **HOW)\n"
    )
    ran = project.run("--roofline-fail-under=40", "-q")
    assert (ran.code, gate_line(ran)) == (code, counts(checked=1, failed=code))


# The allow list.

ALLOW = """
[[tool.roofline.allow]]
{target}
kind = "{kind}"
reason = "known since the last driver"
until = {until}
"""
TWO_ROWS = f"""
@pytest.mark.roofline(**WORK)
def test_it(roofline):
    roofline.record({IMPOSSIBLE}, **HOW)

@pytest.mark.roofline(**WORK)
def test_untimed():
    pass
"""


def allow_entry(target: str = 'test = "*::test_it"', kind: str = "beyond_roof", until: str = "2999-12-31") -> str:
    return ALLOW.format(target=target, kind=kind, until=until)


def test_an_entry_allows_a_failure_and_another_an_unchecked_row(project: Project) -> None:
    project.write(test_a=HEAD + TWO_ROWS)
    assert gate_line(project.run(GATE)) == counts(checked=1, failed=1, unchecked=1, codes="no_time 1")
    project.toml(allow_entry() + allow_entry('test = "*untimed"', "no_time", '"2999-12-31"'))
    ran = project.run(GATE, "-W", "error")
    assert (ran.code, gate_line(ran)) == (0, counts(checked=1, allowed=2))
    assert "allowed: test_it: beyond_roof: known since the last driver (until 2999-12-31)" in ran.out
    assert "allowed: test_untimed: beyond_roof (no_time): known since" in ran.out
    assert [gate["status"] for gate in ran.rows["test_it"]["gates"]] == ["allowed"]
    assert "allow list" not in ran.out


def test_an_entry_allows_nothing_else(project: Project) -> None:
    project.write(test_a=HEAD + TWO_ROWS.partition("\n\n")[0])
    for entry in (allow_entry('test = "*::test_other"'), allow_entry(kind="regression"), allow_entry(kind="no_time")):
        ran = project.toml(entry).run(GATE)
        assert (ran.code, gate_line(ran)) == (1, counts(checked=1, failed=1))
        assert "allow list: unused, " in ran.out
    ran = project.toml(allow_entry('test = "*other"')).run(GATE)
    assert "allow list: unused, no row of this run matches: beyond_roof of '*other' until 2999-12-31" in ran.out


def test_an_expired_entry_allows_nothing_and_is_named(project: Project) -> None:
    project.write(test_a=HEAD + TWO_ROWS.partition("\n\n")[0]).toml(allow_entry(until="2020-02-29"))
    ran = project.run(GATE, "-q")
    assert (ran.code, gate_line(ran)) == (1, counts(checked=1, failed=1))
    assert "allow list: expired, allows nothing: beyond_roof of '*::test_it' until 2020-02-29" in ran.out
    assert "allow list" not in project.run().out  # without a gate there is nothing to allow


def test_an_unused_entry_is_named(project: Project) -> None:
    project.write(test_a=HEAD + TWO_ROWS.partition("\n\n")[0].replace(IMPOSSIBLE, POSSIBLE)).toml(allow_entry())
    ran = project.run(GATE, "-q")
    assert (ran.code, gate_line(ran)) == (0, counts(checked=1))
    assert "allow list: unused, its rows pass: beyond_roof of '*::test_it' until 2999-12-31" in ran.out


def test_the_allow_list_works_under_xdist(project: Project) -> None:
    project.write(test_a=HEAD + TWO_ROWS).toml(allow_entry() + allow_entry('test = "*untimed"', "no_time"))
    ran = project.spawn("-n2", "-q", GATE, plugins=("xdist",))
    assert (ran.code, gate_line(ran)) == (0, counts(checked=1, allowed=2))
    assert "allow list" not in ran.out


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        (allow_entry(""), "expected one of test and record, a glob"),
        (allow_entry('test = "*"\nrecord = "*"'), "expected one of test and record, a glob"),
        (allow_entry('test = "*"'), "its glob covers every row or none"),
        (allow_entry('record = "?*"'), "its glob covers every row or none"),
        (allow_entry('test = ""'), "its glob covers every row or none"),
        (allow_entry(kind="beyond"), "unknown kind 'beyond', expected one of beyond_roof, "),
        (allow_entry(until='"soon"'), "expected a date, as in 2026-12-31"),
        (allow_entry(until="7"), "until"),
        (allow_entry().replace("known since the last driver", " "), "reason is empty"),
        (allow_entry() + 'why = "x"', "unknown key allow.0.why, expected test, record, kind, reason, until"),
        (allow_entry().replace("until = 2999-12-31", ""), "allow.0.until: Field required"),
    ],
)
def test_an_invalid_entry_is_refused(project: Project, entry: str, line: str) -> None:
    ran = project.toml(entry).run()
    assert ran.code == 4
    assert line in ran.out
