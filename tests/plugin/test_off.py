"""Without ``--roofline`` the plugin is inactive: no process, output line or file differs."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from support.project import Project, Ran

SUITE = """
import pytest

@pytest.mark.roofline(bytes=8e8, dtype="bf16", min_pct=99)
@pytest.mark.parametrize("n", [1, 2])
def test_marked(n, record_property):
    record_property("n", n)

def test_benchmark(benchmark):
    benchmark.extra_info["bytes"] = 8
    benchmark.pedantic(sum, args=([1, 2],), rounds=3)

def test_fails():
    assert 1 == 2

@pytest.mark.xfail(strict=True)
def test_known():
    raise RuntimeError

@pytest.mark.skip
def test_skipped():
    pass
"""

#: Records the processes that are started and the modules that are imported, and prints them at exit.
WATCH = """
import atexit, sys

started = []
starts = ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.exec", "os.system")
sys.addaudithook(lambda event, args: started.append(event) if event in starts else None)

def tell():
    ours = sorted(name for name in sys.modules if name.partition(".")[0] == "pytest_roofline")
    packages = {name.partition(".")[0] for name in sys.modules}
    heavy = sorted(packages & {"pydantic", "roofline_engine", "numpy", "filelock", "rich"})
    print("WATCHED", started, ours, heavy, flush=True)

atexit.register(tell)
"""


def watched(project: Project, *args: str, plugins: tuple[str, ...] = ()) -> tuple[Any, list[str], list[str]]:
    """The processes started, the modules of this package, and the heavy modules of one run without the flag."""
    (project.path / "sitecustomize.py").write_text(WATCH, encoding="utf-8")  # runs before pytest does
    ran = project.spawn(*args, plugins=plugins, on=False, PYTHONPATH=str(project.path))
    found = re.search(r"WATCHED (\[.*?\]) (\[.*?\]) (\[.*?\])", ran.out)
    assert found is not None, ran.out
    started, ours, heavy = (json.loads(group.replace("'", '"')) for group in found.groups())
    return started, ours, heavy


def test_starts_no_process_and_imports_little(project: Project) -> None:
    project.write(test_a="def test_one(roofline): assert roofline.measure(abs, -1) == 1")
    started, ours, heavy = watched(project)
    assert started == []
    assert len(ours) <= 3
    assert heavy == []


@pytest.mark.parametrize("option", ["--markers", "--help", "--co"])
def test_help_and_markers_import_no_more(project: Project, option: str) -> None:
    project.write(test_a="def test_one(): pass")
    started, ours, heavy = watched(project, option)
    assert (started, heavy) == ([], [])
    assert len(ours) <= 3


def test_output_equals_that_without_the_plugin(project: Project) -> None:
    project.write(test_a=SUITE.replace("@pytest.mark.roofline", "@pytest.mark.other"))
    on, off = both(project, plugins=("benchmark",))
    assert on.code == off.code == 1
    assert on.counts == off.counts
    assert "roofline" not in on.out.replace("roofline-0.1.0", "").replace(str(project.path), "")


@pytest.mark.parametrize(
    "args", [("test_a.py::test_marked",), ("test_a.py",), ("no_such_file.py",), ("-k", "nothing"), ("--co",), ("-x",)]
)
def test_exit_status_equals_that_without_the_plugin(project: Project, args: tuple[str, ...]) -> None:
    project.write(test_a=SUITE)
    on, off = both(project, *args, plugins=("benchmark",))
    assert on.code == off.code


def test_junit_xml_equals_that_without_the_plugin(project: Project) -> None:
    project.write(test_a=SUITE)
    documents = []
    for ran in pairs(project, "--junitxml=junit.xml", plugins=("benchmark",)):
        text = (ran.folder / "junit.xml").read_text(encoding="utf-8")
        documents.append(re.sub(r' (time|timestamp|hostname)="[^"]*"', "", text))
    assert documents[0] == documents[1]
    assert documents[0].count("<testcase") == 6


def test_benchmark_json_equals_that_without_the_plugin(project: Project) -> None:
    project.write(test_a=SUITE)
    documents = []
    for ran in pairs(project, "--benchmark-json=b.json", plugins=("benchmark",)):
        document = json.loads((ran.folder / "b.json").read_text(encoding="utf-8"))
        for key in ("machine_info", "commit_info", "datetime"):
            del document[key]
        for row in document["benchmarks"]:
            del row["stats"]
        documents.append(document)
    assert documents[0] == documents[1]
    assert documents[0]["benchmarks"][0]["extra_info"] == {"bytes": 8}


def test_bad_settings_are_ignored_without_the_flag(project: Project) -> None:
    project.toml('[tool.roofline]\nno_such_key = 1\n[tool.pytest.ini_options]\nroofline_noise = "much"\n')
    project.write(test_a='import pytest\n@pytest.mark.roofline(bytes="a string")\ndef test_one(): pass')
    ran = project.spawn("--roofline-report=nothing", "--roofline-fail-on=nothing", on=False)
    assert ran.code == 0
    assert ran.counts == {"passed": 1}
    assert "roofline: --roofline-fail-on has no effect without --roofline" in ran.out


def test_the_fixture_calls_once_and_returns_the_value(project: Project) -> None:
    project.write(
        test_a="""
        def test_measure(roofline):
            calls = []
            assert roofline(bytes=8, dtype="no such dtype") is None
            assert roofline.measure(lambda *a, **k: calls.append((a, k)) or "value", 1, two=2) == "value"
            assert calls == [((1,), {"two": 2})]

        def test_compare(roofline):
            calls = []
            value = roofline.compare(lambda x: calls.append(("old", x)), lambda x: calls.append(("new", x)) or "value", 1)
            assert (value, calls) == ("value", [("new", 1)])

        def test_record(roofline):
            assert roofline.record(1e-3, q1_s=1e-3) is None

        def test_an_error_is_the_callers(roofline):
            def wrong():
                raise KeyError("mine")
            try:
                roofline.measure(wrong)
            except KeyError as error:
                assert error.args == ("mine",)
            else:
                raise AssertionError("swallowed")
        """
    )
    ran = project.spawn(on=False)
    assert ran.counts == {"passed": 4}


def both(project: Project, *args: str, plugins: tuple[str, ...]) -> tuple[Ran, Ran]:
    """Run with the plugin off, and with it blocked."""
    first, second = pairs(project, *args, plugins=plugins)
    return first, second


def pairs(project: Project, *args: str, plugins: tuple[str, ...]) -> Any:
    yield project.spawn(*args, plugins=plugins, on=False)
    yield project.spawn("-p", "no:roofline", *args, plugins=plugins, on=None)
