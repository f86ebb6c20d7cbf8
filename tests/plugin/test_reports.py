"""Unusable input gives one clear line, or ends the run if a gate needs it. Every report escapes hostile names."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from pytest_roofline.declare import read_declaration
from support.profiles import worked_example
from support.project import Project, Ran

STREAM = """
import pytest

@pytest.mark.roofline(op="rmsnorm", bytes=8e8, device="MI355X"{more})
def test_stream(roofline):
    roofline.record(t_s=2e-4, clock="device-event", cache="cold")
"""
GATE = "--roofline-fail-on=regression"


def artifact(**changes: Any) -> str:
    return json.dumps({**json.loads(worked_example()), **changes})


def refused(project: Project, *args: str) -> Ran:
    """The run must end before any test, with the exit status of a usage error and no traceback."""
    project.write(test_a=STREAM.format(more="") + "\nopen('ran', 'w').close()\n")
    ran = project.run(*args)
    assert ran.code == 4
    assert not (project.path / "ran").exists()
    assert "Traceback" not in ran.out
    assert "INTERNALERROR" not in ran.out
    return ran


def said(project: Project, *args: str) -> list[str]:
    """Return the messages of a run whose exit status must be pytest's."""
    project.write(test_a=STREAM.format(more=""))
    ran = project.run(*args)
    assert ran.code == 0
    assert ran.counts == {"passed": 1}
    lines = [line for line in ran.section if line.startswith("roofline: ")]
    assert [f"roofline: {line}" for line in ran.report["skill_errors"]] == lines or "report" in lines[-1]
    return lines


# Input that a gate may need.


#: What is unusable: the option that takes it, its file and content (None: the file is missing), and what the line must name.
UNUSABLE: dict[str, tuple[str, str, Any, str]] = {
    "absent predictions": ("predictions", "none.json", None, "none.json"),
    "predictions that are no JSON": ("predictions", "p.json", "{", "p.json"),
    "predictions of a newer version": ("predictions", "p.json", {"skill_version": "2"}, "skill_version '2'"),
    "a report of a newer schema": ("predictions", "p.json", {"schema": "roofline-report/2"}, "roofline-report/2"),
    "predictions of another device": ("predictions", "p.json", {"peaks": {"product": "h200"}}, "predicted on h200"),
    "absent baseline": ("baseline", "none.json", None, "none.json"),
    "a baseline without benchmarks": ("baseline", "b.json", {"x": 1}, "b.json"),
    "a baseline with a time of zero": (
        "baseline",
        "b.json",
        {"benchmarks": [{"fullname": "x", "stats": {"median": 0}}]},
        "expected more than 0",
    ),
    "a baseline that is a list": ("baseline", "b.json", [], "expected an object"),
    "absent peaks": ("peaks", "none.md", None, "none.md"),
    "peaks without a table": ("peaks", "peaks.md", "no figures here", "peaks.md"),
    "a broken peaks file": (
        "peaks",
        "peaks.md",
        "```\nproduct: mi355x\ndevice_names: MI355X\ngfx: gfx950\nhbm_bw_bytes_s: a lot\n```\n",
        "peaks.md",
    ),
}


def unusable(project: Project, which: str) -> tuple[str, str]:
    """Return the option with its input, and the text that the message must contain."""
    option, name, content, named = UNUSABLE[which]
    if content is not None:
        predictions = option == "predictions" and isinstance(content, dict) and "schema" not in content
        project.json(name, artifact(**content) if predictions else content)
    return f"--roofline-{option}={name}", named


@pytest.mark.parametrize("which", UNUSABLE)
def test_unusable_input_with_a_gate_ends_the_run(project: Project, which: str) -> None:
    option, named = unusable(project, which)
    ran = refused(project, option, GATE, "--roofline-device=MI355X")
    (line,) = [line for line in ran.out.splitlines() if line.startswith("ERROR: ")]
    assert named in line


@pytest.mark.parametrize("which", UNUSABLE)
def test_unusable_input_without_a_gate_is_one_line(project: Project, which: str) -> None:
    option, named = unusable(project, which)
    (line,) = said(project, option, "--roofline-device=MI355X")
    assert named in line


@pytest.mark.parametrize("which", ["absent predictions", "a broken peaks file"])
def test_workers_do_not_repeat_a_message(project: Project, which: str) -> None:
    option, _ = unusable(project, which)
    project.write(test_a=STREAM.format(more=""))
    ran = project.run(option, "--roofline-device=MI355X", "-n2", plugins=("xdist",))
    assert (ran.code, len(ran.report["skill_errors"])) == (0, 1)


def test_a_row_on_another_device_has_no_prediction(project: Project) -> None:
    project.write(test_a=STREAM.format(more=', kernel="fused_moe_kernel"').replace("MI355X", "H200"))
    ran = project.run(f"--roofline-predictions={project.json('p.json', artifact())}")
    assert ran.rows["test_stream"]["prediction"] is None
    (line,) = ran.report["skill_errors"]
    assert "predicted on gfx950" in line


# Reports that cannot be written.


@pytest.mark.parametrize("kind", ["json", "md"])
@pytest.mark.parametrize("gate", [(), (GATE,)])
def test_a_report_that_cannot_be_written_is_one_line(project: Project, kind: str, gate: tuple[str, ...]) -> None:
    (project.path / "taken").write_text("a file where a folder should be", encoding="utf-8")
    project.write(test_a=STREAM.format(more=""))
    ran = project.run(f"--roofline-report={kind}:taken/r.{kind}", *gate)
    assert (ran.code, ran.counts) == (len(gate), {"passed": 1})  # GATE has no baseline
    (line,) = [line for line in ran.section if "not written" in line]
    assert "taken" in line
    assert ran.rows  # the other report was written


def test_a_folder_and_a_link_are_not_overwritten(project: Project) -> None:
    (project.path / "folder").mkdir()
    target = project.path / "target"
    target.write_text("mine", encoding="utf-8")
    (project.path / "link.md").symlink_to(target)
    project.write(test_a=STREAM.format(more=""))
    ran = project.run("--roofline-report=json:folder", "--roofline-report=md:link.md")
    assert ran.code == 0
    assert sum("not written" in line for line in ran.section) == 2
    assert target.read_text(encoding="utf-8") == "mine"


def test_a_hook_that_adds_an_object_outside_json_loses_only_that_report(project: Project) -> None:
    project.write(
        test_a=STREAM.format(more=""), conftest="def pytest_roofline_report(report):\n    report['mine'] = object()\n"
    )
    ran = project.run("--roofline-report=md:r.md")
    assert (ran.code, ran.counts) == (0, {"passed": 1})
    assert any("report json: not written" in line for line in ran.section)
    assert (project.path / "r.md").exists()


HOOKS = ["report(report)", "annotation(item)", "work(item)"]


def raising(project: Project, hook: str) -> Project:
    return project.write(
        conftest=f"def pytest_roofline_{hook}:\n    raise RuntimeError('of the conftest')\n",
        test_a="def test_one(roofline):\n    roofline.record(1.0)\n",
    )


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_that_raises_fails_no_test(project: Project, hook: str) -> None:
    ran = raising(project, hook).run()
    assert (ran.code, ran.counts) == (0, {"passed": 1})
    assert any("of the conftest" in line for line in ran.section)


@pytest.mark.parametrize("hook", HOOKS[1:])
def test_a_row_that_a_gate_could_not_check_does_not_pass(project: Project, hook: str) -> None:
    ran = raising(project, hook).run(GATE)
    assert ran.counts == {"failed": 1}
    assert "not checked" in ran.out


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        ('op="rms_norm"', "is it rmsnorm?"),
        ('op="rmsnorm", rows=1, dtype="bf16"', "missing cols; it takes cols, dtype, out_dtype, residual, rows"),
        (
            'op="rmsnorm", rows="m", cols=1, dtype="bf16"',
            "expected a number or a parametrize argument of this test (n)",
        ),
    ],
)
def test_an_invalid_marker_lists_what_is_valid(project: Project, marker: str, said: str) -> None:
    test = f"@pytest.mark.parametrize('n', [1])\n@pytest.mark.roofline({marker})\ndef test_one(n):\n    pass\n"
    project.write(test_a=f"import pytest\n\n{test}")
    assert said in project.run().out


@pytest.mark.parametrize("op", ["optimizer", "optimiser"])
def test_the_algorithm_of_an_optimizer_is_no_size(op: str) -> None:
    keywords = {"op": op, "numel": "n", "algorithm": "adamw", "dtype": "fp32"}
    declaration = read_declaration(keywords, {"n": 1000}, "marker")
    assert declaration.work is not None
    assert (declaration.work.op, declaration.work.flops) == ("optimizer", 14_000.0)
    with pytest.raises(ValueError, match=r"^optimizer: missing numel"):
        read_declaration({**keywords, "numel": None}, {}, "marker")


def test_a_gate_reports_a_missing_baseline(project: Project) -> None:
    project.write(test_a=STREAM.format(more=""))
    ran = project.run(GATE)
    assert ran.code == 1
    reason = "the row has no baseline (no_baseline). Use --roofline-compare, --roofline-baseline or baseline=True"
    assert any(line.startswith(f"unchecked by regression, 1: {reason}") for line in ran.section)


# Invalid settings.


@pytest.mark.parametrize(
    ("option", "named"),
    [
        ("--roofline-report=docx:x", "'docx'"),
        ("--roofline-report=json", "json needs a destination"),
        ("--roofline-report=term:x", "term takes no destination"),
        ("--roofline-fail-on=beyond", "'beyond'"),
        ("--roofline-fail-on=beyond_roof,\x1b[31m", r"'\x1b[31m'"),
        ("--roofline-fail-under=ninety", "ninety"),
        ("--roofline-fail-under=101", "expected a percent from 1 to 100"),
        ("--roofline-fail-under=-1", "expected a percent from 1 to 100"),
        ("--roofline-fail-under=60%", "'60%', expected a percent from 1 to 100 (60 is 60 %)"),
        ("--roofline-fail-under=nan", "nan"),
        ("--roofline-fail-under=0.6", "--roofline-fail-under is '0.6', expected a percent from 1 to 100 (60 is 60 %)"),
    ],
)
def test_an_invalid_option_is_refused(project: Project, option: str, named: str) -> None:
    ran = refused(project, option)
    (line,) = [line for line in ran.out.splitlines() if line.startswith("ERROR: roofline: ")]
    assert named in line


@pytest.mark.parametrize(
    ("toml", "named"),
    [
        ("[tool.roofline]\nfail_unders = 60", "fail_unders"),
        ("[tool.roofline]\nfail_under = 0.6", "fail_under is 0.6, expected a percent from 1 to 100"),
        ('[tool.pytest.ini_options]\nroofline_fail_under = "0.99"', "roofline_fail_under is 0.99"),
        ('[tool.roofline]\nnoise = "much"', "noise"),
        ("[tool.roofline]\nnoise = -1", "noise"),
        ("[tool.roofline]\nnoise = 3.4", "expected a fraction (0.034 is 3.4 %)"),
        ('[tool.roofline]\nfail_on = ["everything"]', "'everything'"),
        ('[tool.roofline]\njunit = "some"', "'some'"),
        ('[tool.pytest.ini_options]\nroofline_noise = "3.4%"', "roofline_noise"),
        ('[tool.pytest.ini_options]\nroofline_fail_under = "1000"', "1000"),
        ('[tool.pytest.ini_options]\nroofline_fail_on = "nothing_known"', "'nothing_known'"),
        ('[tool.pytest]\nroofline_noise = "much"', "roofline_noise"),
        ("[tool.pytest]\nroofline_fail_under = true", "roofline_fail_under"),
        ('[tool.pytest]\nroofline_junit = "some"', "'some'"),
    ],
)
def test_an_invalid_key_is_refused(project: Project, toml: str, named: str) -> None:
    project.toml(toml)
    ran = refused(project)
    (line,) = [line for line in ran.out.splitlines() if line.startswith("ERROR: ")]
    assert named in line


def test_an_unknown_report_in_the_project_table_is_refused(project: Project) -> None:
    project.toml('[tool.roofline]\nreport = ["docx"]').write(test_a="def test_one(): pass")
    ran = project.run(report=False)
    assert ran.code == 4
    assert "'docx'" in ran.out


def test_a_broken_roofline_toml(project: Project) -> None:
    for text, told in (
        ("noise = ", "Invalid value"),
        ("z = " + "[" * 2000 + "]" * 2000, "nested more than 100 levels deep"),
        ("z = " + "7" * 5000, "an integer of more digits than Python reads (4300)"),
        ("z = '\xff'", "not UTF-8 text"),
    ):
        (project.path / "roofline.toml").write_bytes(text.encode("latin-1"))
        (line,) = [line for line in refused(project).out.splitlines() if line.startswith("ERROR: ")]
        assert "roofline.toml: " in line
        assert told in line


# Markers.


@pytest.mark.parametrize(
    ("marker", "named"),
    [
        ('op="gemm", M="m", N=64, K=64, dtype="bf16"', "M"),
        ('bytes="nbytes"', "bytes"),
        ("bytes=-8", "bytes"),
        ("bytes=True", "bytes"),
        ("bytes=float('nan')", "bytes"),
        ('op="gem", M=1, N=1, K=1, dtype="bf16"', "gem"),
        ('op="matmul", M=1, N=1, K=1, dtype="bf16"', "Did you mean op='gemm'?"),
        ('op="rms_norm", rows=1, cols=1, dtype="bf16"', "Did you mean op='rmsnorm'?"),
        ('op="gemm", M=1, N=1, K=1, Q=1, dtype="bf16"', "Q"),
        ('op="gemm", M=1, N=1, K=1, dtype="bf17"', "bf17"),
        ("bytes=8, min_pct=101", "min_pct"),
        ("bytes=8, min_pct=0.6", "min_pct"),
        ('bytes=8, min_pct="most"', "min_pct"),
        ('bytes=8, baseline="yes"', "baseline"),
        ('bytes=8, baseline_kind="old"', "baseline_kind"),
        ("bytes=8, launches=0", "launches"),
        ("bytes=8, target_eff=1.5", "target_eff is 1.5, expected at most 1 (0.6 is 60 %)"),
        ('bytes=8, min_pct="60%"', "min_pct is '60%', expected a percent from 1 to 100 (60 is 60 %)"),
        ('op="rmsnorm", rows=1, cols=1, dtype="bf16", kernal="k"', ". Did you mean kernel=?"),
        ("8", "keywords only"),
        ("flops=8", "bytes"),
    ],
)
def test_an_invalid_marker_is_an_error_of_its_file(project: Project, marker: str, named: str) -> None:
    project.write(
        test_a=f"import pytest\n@pytest.mark.roofline({marker})\ndef test_wrong(roofline): pass\ndef test_same_file(): pass\n",
        test_b=STREAM.format(more=""),
    )
    ran = project.run("--continue-on-collection-errors")
    assert ran.counts == {"passed": 1, "error": 1}
    assert ran.code == 1
    (line,) = [line for line in ran.out.splitlines() if line.startswith("test_a.py::test_wrong: roofline marker: ")]
    assert named in line
    assert list(ran.rows) == ["test_stream"]


def test_an_invalid_marker_interrupts_like_any_collection_error(project: Project) -> None:
    project.write(
        test_a="import pytest\n@pytest.mark.roofline(bytes='n')\ndef test_wrong(): pass\n", test_b="def test_b(): pass"
    )
    assert project.run().code == 2


def test_an_invalid_fixture_keyword_fails_the_test(project: Project) -> None:
    project.write(test_a="def test_wrong(roofline):\n    roofline(bytes='n')\n")
    ran = project.run()
    assert ran.counts == {"failed": 1}
    assert "bytes is 'n', expected a number" in ran.out


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("roofline(op='rmsnorm', rows=1, dtype='bf16')", "rmsnorm: missing cols"),
        ("roofline.record('40us')", "t_s is '40us'"),
        ("roofline.record(1e-6, clock='cuda')", "clock is 'cuda', expected one of"),
    ],
)
def test_a_mistake_in_a_test_is_shown_at_its_line(project: Project, said: str, told: str) -> None:
    project.write(test_a=f"def test_wrong(roofline):\n    {said}\n")
    ran = project.run()
    assert ran.counts == {"failed": 1}
    assert f"E       ValueError: {told}" in ran.out
    assert "test_a.py:2: ValueError" in ran.out
    assert "recorder.py" not in ran.out


def test_predictions_that_are_neither_an_artifact_nor_a_report(project: Project) -> None:
    path = project.json("before.json", {"benchmarks": []})
    project.write(test_a=STREAM.format(more=""))
    ran = project.run(f"--roofline-predictions={path}")
    assert "before.json: neither a profile_roofline.json (skill_version) nor a report" in ran.out


# Launch overhead.


def test_launch_overhead_is_shown_next_to_the_roof(project: Project) -> None:
    text = STREAM.format(more=", launches=12").replace("clock=", "wall_s=4e-4, clock=")
    ran = project.write(test_a=text).run()
    (row,) = ran.report["entries"]
    assert row["overhead"] == {
        "launches": 12.0,
        "wall_s": 4e-4,
        "share": pytest.approx(0.5),
        "graph_speedup": pytest.approx(2.0),
    }
    assert "launch overhead: test_stream: 12 launches, 50.0 % of 400 us of wall time is not device time" in ran.out
    assert "could be up to 2.00x faster, whatever the roof says" in ran.out


# Names of other people's kernels.

HOSTILE = "k\x1b[31mred\x07 | <b>bold</b> `code`\n::error::boom\r\n## heading\u202e%0A"


def hostile(project: Project, *args: str) -> Ran:
    """A row with hostile names, beyond its roof so that every report shows it, and a prediction."""
    more = f", kernel={HOSTILE!r})\n@pytest.mark.parametrize('p', [{HOSTILE!r}]"
    project.write(test_a=STREAM.format(more=more).replace("2e-4", "2e-5").replace("(roofline)", "(roofline, p)"))
    entries = [{"name": f"another {HOSTILE}"}]
    path = project.json("predictions.json", {"skill_version": "1", "peaks": {}, "entries": entries})
    ran = project.run(f"--roofline-predictions={path}", *args)
    (row,) = ran.report["entries"]
    assert row["kernel"] == HOSTILE  # the data is as it was
    return ran


def test_hostile_names_in_the_terminal(project: Project) -> None:
    out = hostile(project, "-vv", "--color=no").out
    (unmatched,) = [line for line in out.splitlines() if line.startswith("predictions without a test: ")]
    assert unmatched.startswith(
        r"predictions without a test: another k\x1b[31mred\x07 | <b>bold</b> `code`\n::error::boom\r\n##"
    )
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", out)
    assert not [line for line in out.splitlines() if line.strip().startswith(("::", "## "))]


def test_a_test_name_is_shown_whole_whatever_its_parameters(project: Project) -> None:
    project.write(
        test_a="""
        import pytest

        class TestGroup:
            @pytest.mark.parametrize("p", ["a::b[c]"])
            def test_one(self, roofline, p):
                roofline.record(1.0)
        """
    )
    (row,) = project.run().report["entries"]
    assert row["short_name"] == "test_one[a::b[c]]"


def test_hostile_names_in_the_json(project: Project) -> None:
    hostile(project)
    text = (project.path / "roofline.json").read_bytes()
    assert not re.search(rb"[^\x0a\x20-\x7e]", text)


def test_hostile_names_in_markdown(project: Project) -> None:
    hostile(project, "--roofline-report=md:r.md")
    text = (project.path / "r.md").read_text(encoding="utf-8")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", text)
    assert [line for line in text.splitlines() if line.startswith("## heading") or line.startswith("::")] == []
    spans = re.sub(r"`[^`\n]*`", "", text)  # what is outside of code
    assert "<b>" not in spans.replace(r"\<b\>", "")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows[:3]}) == 1  # a pipe of the name makes no cell


def test_hostile_names_in_github_commands(project: Project, capfd: pytest.CaptureFixture[str]) -> None:
    hostile(project, "--roofline-report=github")
    commands = [line for line in capfd.readouterr().out.splitlines() if line.startswith("::")]
    assert len(commands) == 1
    assert re.match(r"::warning file=test_a\.py,line=\d+,title=roofline%3A [^:,\x1b]*::beyond_roof: ", commands[0])


def test_a_failed_row_is_an_error_at_its_line(project: Project, capfd: pytest.CaptureFixture[str]) -> None:
    project.write(test_a=STREAM.format(more=", min_pct=90"))
    project.run("--roofline-report=github")
    (command,) = [line for line in capfd.readouterr().out.splitlines() if line.startswith("::")]
    assert command.startswith("::error file=test_a.py,line=3,title=roofline%3A test_stream::50.0 %25 of the memory roof")


def test_a_known_gap_is_not_an_error(project: Project, capfd: pytest.CaptureFixture[str]) -> None:
    project.write(test_a=STREAM.format(more=", min_pct=90").replace("@pytest", "@pytest.mark.xfail(strict=True)\n@pytest", 1))
    ran = project.run("--roofline-report=github")
    assert ran.counts == {"xfailed": 1}
    assert [line for line in capfd.readouterr().out.splitlines() if line.startswith("::")] == []
    assert ran.rows["test_stream"]["failed"] is None


def test_markdown_gives_the_reason_of_a_failure(project: Project) -> None:
    project.write(test_a=STREAM.format(more=", min_pct=90"))
    project.run("--roofline-report=md:r.md")
    assert "- `test_stream` fails: 50.0 % of the memory roof" in (project.path / "r.md").read_text(encoding="utf-8")


def test_the_job_summary_is_appended_to(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = project.path / "summary.md"
    summary.write_text("of an earlier step\n", encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    hostile(project, "--roofline-report=github")
    text = summary.read_text(encoding="utf-8")
    assert text.startswith("of an earlier step\n")
    assert "# Roofline headroom" in text
    assert "\x1b" not in text


def test_hostile_names_in_junit(project: Project) -> None:
    ran = hostile(project, "--junitxml=junit.xml")
    (case,) = ran.junit.values()  # it is well-formed XML
    assert {item.attrib["name"]: item.attrib["value"] for item in case.iter("property")}["roofline_check"] == "beyond_roof"


def test_a_hostile_device_and_file_name(project: Project) -> None:
    project.write(test_a=STREAM.format(more="").replace("MI355X", "\\x1b[31mMI355X\\n::error::x"))
    ran = project.run("--roofline-predictions=\x1b[31m.json")
    assert ran.counts == {"passed": 1}
    assert "\x1b" not in ran.out
    assert not [line for line in ran.out.splitlines() if line.startswith("::")]


# Destinations.


def test_an_empty_report_option_hides_only_the_section(project: Project) -> None:
    project.write(test_a=STREAM.format(more=""))
    ran = project.run("--roofline-report=")
    assert "measured" not in ran.out
    assert ran.rows


def test_a_report_creates_its_folder(project: Project) -> None:
    project.write(test_a=STREAM.format(more=""))
    project.run("--roofline-report=md:new/deep/r.md")
    assert (project.path / "new" / "deep" / "r.md").read_text(encoding="utf-8").startswith("# Roofline headroom")


def test_a_report_path_survives_a_chdir_in_a_test(project: Project) -> None:
    project.write(test_a="import os\ndef test_one(tmp_path):\n    os.chdir(tmp_path)\n")
    project.spawn()
    assert project.path.joinpath("roofline.json").is_file()


def test_paths_in_the_project_table_are_relative_to_the_project(project: Project) -> None:
    project.toml('[tool.roofline]\nreport = ["md:reports/r.md"]\n').write(test_a=STREAM.format(more=""))
    (project.path / "below").mkdir()
    os.chdir(project.path / "below")
    project.run("..", report=False)
    assert (project.path / "reports" / "r.md").is_file()


def test_collecting_writes_nothing(project: Project) -> None:
    project.write(test_a=STREAM.format(more=""))
    ran = project.run("--collect-only")
    assert ran.code == 0
    assert not (project.path / "roofline.json").exists()


def test_no_temporary_file_remains(project: Project) -> None:
    project.write(test_a=STREAM.format(more=""))
    project.run("--roofline-report=md:r.md")
    assert [path.name for path in Path(project.path).iterdir() if ".tmp" in path.name] == []


REASONS = """
import pytest

def copy(nbytes):
    return pytest.mark.roofline(op="copy", bytes=nbytes, device="cpu")

@copy(1e6)
@pytest.mark.parametrize("n", [1, 2])
def test_small(roofline, n):
    roofline.record(1e-3, clock="host", cache="warm")

@pytest.mark.roofline(op="histogram", bytes=1e9, device="cpu")
def test_other(roofline):
    roofline.record(1.0, clock="host", cache="cold")

@copy(1e9)
def test_noisy(roofline):
    roofline.record(0.2, clock="host", cache="cold", q1_s=0.12, q3_s=0.3)
"""


def test_reasons_are_grouped_by_their_code_with_what_to_do(project: Project) -> None:
    project.write(
        conftest="""
        import pytest
        from roofline_engine.peaks import Peaks

        @pytest.hookimpl(optionalhook=True)
        def pytest_roofline_peaks(config, device):
            return Peaks(product="cpu", hbm_bw_bytes_s=1e10, source="measured", confidence="high")
        """,
        test_a=REASONS,
    )
    ran = project.run()
    lines = [line for line in ran.section if line.startswith("no verdict: ")]
    assert [line.split(": ")[1] for line in lines] == ["cache_resident, 2 rows", "no_target, 1 row", "noisy, 1 row"]
    assert [line.split("; ")[-1] for line in lines] == [
        "run with --roofline-cache=cold",
        "set target_eff= in the marker",
        "run again, or with more rounds",
    ]
    cold = project.run("--roofline-cache=cold")
    assert any("use operands more than twice the cache" in line for line in cold.section)


def test_a_run_without_a_time_says_how_to_take_one(project: Project) -> None:
    project.write(test_a="def test_x(): pass\ndef test_y(): pass")
    for option in ("-v", "-q"):
        assert "2 tests have no time: use the benchmark fixture, roofline.measure(fn, ...), or time=" in project.run(option).out
    project.write(test_b="def test_z(roofline): roofline.record(1e-3)")
    assert "have no time" not in project.run().out  # other tests of the suite need none


def test_benchmark_fixtures_of_another_name_are_seen(project: Project) -> None:
    """A project derives fixtures from pytest-benchmark's. pytest-benchmark shows all of them."""
    project.write(
        conftest="""
        import pytest
        from pytest_benchmark.fixture import BenchmarkFixture

        def make(request):
            session, node = request.config._benchmarksession, request.node
            return BenchmarkFixture(
                node, add_stats=session.benchmarks.append, logger=session.logger, warner=node.warn,
                disabled=session.disabled, **dict(session.options),
            )

        @pytest.fixture
        def one(request): return make(request)

        @pytest.fixture
        def other(request): return make(request)
        """,
        test_a="""
        def test_single(one): one.pedantic(sum, args=([1],), rounds=5)

        def test_pair(one, other):
            one.pedantic(sum, args=([1],), rounds=5)
            other.pedantic(sorted, args=([1] * 1000,), rounds=5)
        """,
    )
    rows = project.run(plugins=("benchmark",)).rows
    assert sorted(rows) == ["test_pair#1", "test_pair#2", "test_single"]
    assert rows["test_pair#1"]["measurement"]["t_s"] < rows["test_pair#2"]["measurement"]["t_s"]


def before(project: Project, test: str, seconds: float) -> None:
    """Write an earlier time of a test of test_a.py."""
    project.json("before.json", {"benchmarks": [{"fullname": f"test_a.py::{test}", "stats": {"median": seconds}}]})


def test_a_narrow_terminal_keeps_the_speedup_over_a_baseline(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    project.write(
        test_a="""
        import pytest

        @pytest.mark.roofline(op="copy", rows=65536, cols=8192, dtype="bf16", device="MI355X")
        def test_a_copy_with_a_name_that_is_longer_than_the_column(roofline):
            roofline.record(1e-3, clock="device-event", cache="cold")
        """
    )
    before(project, "test_a_copy_with_a_name_that_is_longer_than_the_column", 5e-4)
    assert "0.50x regression" in project.run("--roofline-baseline=before.json").out


def test_a_speedup_that_nothing_judges_has_its_reason(project: Project) -> None:
    project.write(
        test_a="""
        import pytest

        @pytest.mark.roofline(bytes=1e6, flops=0, dtype="bf16", device="MI355X")
        def test_x(roofline):
            roofline.record(1e-3)
        """
    )
    before(project, "test_x", 5.1e-3)
    out = project.run("--roofline-baseline=before.json").out
    assert "5.10x not_checked" in out
    assert "not_checked: test_x: 5.100x, without a prediction to compare it with" in out
