"""Saved runs: ``--roofline-save``, ``--roofline-compare`` and ``roofline history``."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_roofline import saved
from pytest_roofline.history import Line, Point, compare_medians, find_changes
from pytest_roofline.saved import Run
from support.project import Project, Ran

#: One test that takes the seconds in the file ``seconds``: 2 MB at 1 GB/s is 2 ms.
TEST = """
import pathlib
import pytest

@pytest.mark.roofline(bytes=2e6, flops=0, device="MI300X", dtype="bf16")
def test_copy(roofline):
    roofline.record(float(pathlib.Path("seconds").read_text()), clock="device-event", cache="cold")
"""


def run(project: Project, seconds: float, *args: str) -> Ran:
    project.write(test_a=TEST)
    (project.path / "seconds").write_text(str(seconds))
    return project.run(*args)


def files(project: Project) -> list[str]:
    return sorted(path.name for path in (project.path / ".roofline").glob("*.json"))


def edit(project: Project, file: str, **values: Any) -> None:
    path = project.path / ".roofline" / file
    report = json.loads(path.read_text())
    report["run"].update(values)
    path.write_text(json.dumps(report))


def command(project: Project, *args: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", "from pytest_roofline.cli import main; raise SystemExit(main())", *args]
    return subprocess.run(words, cwd=project.path, capture_output=True, encoding="utf-8", check=False, timeout=120)


def history(project: Project, *args: str) -> str:
    done = command(project, "history", *args)
    assert done.returncode == 0, done.stderr
    return done.stdout


GATE = "--roofline-fail-on=regression"


def test_a_regression_over_the_latest_saved_run_fails(project: Project) -> None:
    assert run(project, 2e-3, "--roofline-save=before").code == 0
    assert files(project) == ["0001_before.json"]
    slow = run(project, 4e-3, "--roofline-compare", GATE)
    assert slow.code == 1
    assert "takes 2 times as long as the previous baseline" in slow.out
    assert "baseline 0001_before.json" in slow.out
    assert run(project, 2e-3, "--roofline-compare=before", GATE).code == 0
    assert run(project, 2e-3, "--roofline-compare=1", GATE).code == 0


def test_the_first_run_has_nothing_to_compare_with_and_passes(project: Project) -> None:
    first = run(project, 2e-3, "--roofline-compare", "--roofline-save=main", GATE)
    assert first.code == 0
    assert "has no saved run: --roofline-save makes one" in first.out
    assert "rows without an earlier time do not fail this run (no_baseline)" in first.out
    assert run(project, 4e-3, "--roofline-compare", GATE).code == 1


def test_a_named_run_that_is_missing_ends_a_gated_run(project: Project) -> None:
    run(project, 2e-3, "--roofline-save=main")
    missing = run(project, 2e-3, "--roofline-compare=other", GATE)
    assert missing.code == pytest.ExitCode.USAGE_ERROR
    assert "has no run 'other'. The latest are 0001 main" in missing.out


def test_a_run_in_which_a_gate_failed_is_no_default_baseline(project: Project) -> None:
    """Else a regression would be accepted by the next run."""
    run(project, 2e-3, "--roofline-save=main")
    assert run(project, 4e-3, "--roofline-save=main", "--roofline-compare", GATE).code == 1
    assert run(project, 4e-3, "--roofline-compare", GATE).code == 1
    assert run(project, 4e-3, "--roofline-compare=2", GATE).code == 0


def test_runs_of_other_machines_are_not_compared(project: Project) -> None:
    run(project, 2e-3, "--roofline-save=main")
    edit(project, "0001_main.json", machine="another")
    other = run(project, 4e-3, "--roofline-compare", GATE)
    assert other.code == 0
    assert "the saved runs are of other machines" in other.out


@pytest.mark.parametrize("option", ["--roofline-save", "--roofline-compare"])
def test_a_path_after_the_option_is_not_its_name(project: Project, option: str) -> None:
    refused = run(project, 2e-3, option, "test_a.py")
    assert refused.code == pytest.ExitCode.USAGE_ERROR
    assert f"{option} took test_a.py as its name. To give a name write {option}=NAME" in refused.out


def test_a_name_after_the_equals_sign_may_look_like_a_path(project: Project) -> None:
    """A branch has slashes."""
    run(project, 2e-3, "--roofline-save=feature/x")
    assert files(project) == ["0001_feature-x.json"]
    edit(project, "0001_feature-x.json", branch="feature/x")
    assert run(project, 4e-3, "--roofline-compare=feature/x", GATE).code == 1
    project.toml('[tool.pytest.ini_options]\naddopts = ["--roofline-compare=feature/x"]')
    assert run(project, 4e-3, GATE).code == 1


def test_two_baselines_are_refused(project: Project) -> None:
    refused = run(project, 2e-3, "--roofline-compare", "--roofline-baseline=x.json")
    assert refused.code == pytest.ExitCode.USAGE_ERROR


def test_runs_without_a_time_or_an_end_are_not_saved(project: Project) -> None:
    project.write(test_b="import pytest\ndef test_x(): pass\ndef test_y(): pytest.exit('stop')")
    assert "run not saved: no row has a time" in project.run("--roofline-save", "-k", "test_x").out
    run(project, 2e-3, "--roofline-save")
    assert files(project) == []


def test_the_commit_and_branch_are_saved(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(project.path.parent))
    monkeypatch.setenv("GITHUB_SHA", "f" * 40)
    monkeypatch.setenv("GITHUB_HEAD_REF", "feature/x")
    run(project, 2e-3, "--roofline-save")
    assert files(project) == ["0001_feature-x.json"]
    facts = json.loads((project.path / ".roofline" / "0001_feature-x.json").read_text())["run"]
    assert (facts["commit"], facts["branch"], facts["is_dirty"]) == ("f" * 40, "feature/x", False)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com"]
    for command in (["init", "-q", "-b", "main"], ["add", "test_a.py"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *command], cwd=project.path, check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=project.path, check=True, capture_output=True, text=True).stdout
    (project.path / "test_a.py").write_text(TEST + "\n")
    project.run("--roofline-save")
    facts = json.loads((project.path / ".roofline" / "0002_main.json").read_text())["run"]
    assert (facts["commit"], facts["branch"], facts["is_dirty"]) == (head.strip(), "main", True)


def test_history_never_joins_machines(project: Project) -> None:
    for seconds in (2e-3, 4e-3, 2e-3):
        run(project, seconds, "--roofline-save=main")
    edit(project, "0002_main.json", machine="another", cpu="Other CPU")
    lines = json.loads(history(project, "--json"))["lines"]
    assert [[point["t_s"] for point in line["points"]] for line in lines] == [[2e-3, 2e-3], [4e-3]]
    text = history(project)
    assert "Other CPU" in text
    assert "1 run," in text


def test_history_marks_failed_gates_and_says_what_is_not_tested(project: Project) -> None:
    run(project, 2e-3, "--roofline-save=main")
    run(project, 4e-3, "--roofline-save=main", "--roofline-compare", GATE)
    text = history(project, "copy")
    assert "+100.0%  regression" in text
    assert "2 of 2" not in text
    assert "1 of 1 tests have no quartiles of 5 undisturbed rounds: their changes are not tested" in text


def test_history_reads_a_changed_file_again_and_names_one_it_cannot_read(project: Project) -> None:
    run(project, 2e-3, "--roofline-save=main")
    history(project)
    edit(project, "0001_main.json", name="renamed")
    (project.path / ".roofline" / "0002_broken.json").write_text("{")
    done = command(project, "history")
    assert done.returncode == 0
    assert "0001 renamed" in done.stdout
    assert "0002_broken.json: not a saved run" in done.stderr


def test_a_broken_index_is_made_again(project: Project) -> None:
    run(project, 2e-3, "--roofline-save=main")
    (project.path / ".roofline" / "index.sqlite").write_bytes(b"no database" * 100)
    assert "0001 main" in history(project)


def test_history_without_a_saved_run_says_how_to_make_one(project: Project) -> None:
    done = command(project, "history")
    assert done.returncode == 2
    assert "has no saved run: pytest --roofline --roofline-save makes one" in done.stderr


def test_the_page_has_the_lines(project: Project) -> None:
    for seconds in (2e-3, 4e-3):
        run(project, seconds, "--roofline-save=main")
    history(project, "--html", "page.html")
    page = (project.path / "page.html").read_text(encoding="utf-8")
    assert '"t_s":[0.002,0.004]' in page
    assert "vegaEmbed" in page


def point(t_s: float, spread: float = 0.0108, rounds: float = 100, *, run: int = 0, best: float = math.nan) -> Point:
    return Point(run, t_s, t_s - spread / 2, t_s + spread / 2, best, rounds, 0.5)


def test_the_p_value_of_two_medians() -> None:
    # R = 1.08, n = 100: the standard error of each is 1.25 x 1.08 / 1.35 / 10 = 0.1, that of the difference 0.1 sqrt(2).
    # 1.959964 standard errors have the two-sided probability 0.05.
    before, after = point(10.0, 1.08), point(10.0 + 1.959964 * 0.1 * math.sqrt(2), 1.08)
    assert compare_medians(before, after) == pytest.approx(0.05, abs=1e-6)
    assert compare_medians(point(1.0, rounds=4), point(2.0)) is None
    assert compare_medians(point(1.0, 0.0), point(2.0, 0.0)) == 0.0
    assert compare_medians(point(1.0, 0.0), point(1.0, 0.0)) == 1.0
    assert compare_medians(point(1.0)._replace(q1_s=math.nan), point(2.0)) is None


def changes_of(*points: Point) -> list[int]:
    runs = [Run(Path("x"), number, "main", noise=0.034) for number in range(len(points))]
    line = Line("t", "d", "m", [one._replace(run=at) for at, one in enumerate(points)])
    return [change.at for change in find_changes(line, runs)]


def test_a_change_is_larger_than_the_noise() -> None:
    assert changes_of(point(1.0), point(1.03), point(1.10), point(1.0)) == [2, 3]  # +3 %, +6.8 %, -9.1 %


def test_a_change_that_the_best_round_lacks_is_another_programs() -> None:
    assert changes_of(point(1.0, best=0.9), point(1.5, best=0.9)) == []
    assert changes_of(point(1.0, best=0.9), point(1.5, best=1.4)) == [1]
    assert changes_of(point(1.5, best=1.4), point(1.0, best=1.4)) == []


def test_a_change_is_larger_than_the_usual_step() -> None:
    noisy = [point(1.0 if at % 2 else 1.2) for at in range(12)]
    assert changes_of(*noisy, point(1.0)) == list(range(1, 9))  # 8 steps show that this test scatters by 20 %
    assert changes_of(*noisy, point(5.0))[-1] == 12  # from 1.0


def test_runs_are_named_by_number_name_branch_or_commit() -> None:
    one = Run(Path("x"), 7, "main-gpu", branch="main", commit="abcdef0123")
    assert all(map(one.answers_to, ("7", "0007", "main-gpu", "main", "abcdef0")))
    assert not any(map(one.answers_to, ("8", "ma", "abcdef", "")))


def test_the_latest_of_a_name_on_this_machine_comes_first() -> None:
    here = saved.this_machine().key
    runs = [
        Run(Path("x"), 1, "a", machine=here),
        Run(Path("x"), 2, "a", machine="other"),
        Run(Path("x"), 3, "b", machine="other"),
    ]
    assert saved.choose(runs, "a", Path()).number == 1
    assert saved.choose(runs, "b", Path()).number == 3


def test_a_baseline_that_other_programs_disturbed_shows_no_small_change(project: Project) -> None:
    """Its times are too long by an unknown factor: 1.5 times is noise, 3 times is not."""
    run(project, 2e-3, "--roofline-save=main")
    path = project.path / ".roofline" / "0001_main.json"
    report = json.loads(path.read_text())
    report["entries"][0]["measurement"]["wait_share"] = 0.5
    path.write_text(json.dumps(report))
    close = run(project, 3e-3, "--roofline-compare", GATE)
    assert close.code == 1
    assert "1 unchecked (wide_band 1)" in close.out
    assert "1 failed" in run(project, 6e-3, "--roofline-compare", GATE).out


def test_times_of_several_workers_are_not_saved(project: Project) -> None:
    project.write(test_a="def test_x(roofline): roofline.measure(sum, [1])")
    ran = project.spawn("--roofline-save", "-n", "2", plugins=("xdist",))
    assert "run not saved: other pytest-xdist workers ran at the same time" in ran.out
    assert files(project) == []


def test_a_time_that_is_none_is_left_out(project: Project) -> None:
    run(project, 2e-3, "--roofline-save=main")
    run(project, 2e-3, "--roofline-save=main")
    path = project.path / ".roofline" / "0001_main.json"
    path.write_text(path.read_text().replace('"t_s": 0.002', '"t_s": 0.0'))
    assert len(json.loads(history(project, "--json"))["lines"][0]["points"]) == 1


@pytest.mark.parametrize("facts", [{"number": 10**30}, {"number": "1"}, {"number": None}, {"name": ["x"]}, {"name": None}])
def test_a_file_with_odd_facts_is_named_and_left_out(project: Project, facts: dict[str, Any]) -> None:
    run(project, 2e-3, "--roofline-save=main")
    run(project, 2e-3, "--roofline-save=main")
    edit(project, "0001_main.json", path="x", **facts)
    problems: list[str] = []
    edit(project, "0002_main.json", commit=5, is_dirty="x", machine=None)
    assert [one.describe() for one in saved.read_runs(project.path / ".roofline", problems.append)] == ["0002 main"]
    assert problems == ["0001_main.json: not a saved run: expected run.number, a whole number, and run.name"]


def test_saving_without_the_flag_is_not_silent(project: Project) -> None:
    project.write(test_a=TEST)
    out = project.run("--roofline-save=x", "--roofline-compare", flag=False).out
    assert "roofline: --roofline-save and --roofline-compare have no effect without --roofline" in out
