"""Ordinary tests under ``--roofline``: the same outcomes, order and output as with pytest alone."""

from __future__ import annotations

import re

import pytest

import pytest_roofline.session
from support.project import Project, Ran


def lines(ran: Ran) -> list[str]:
    """Return the lines of pytest itself, without ours, times and addresses."""
    text = re.sub(r"0x[0-9a-f]+|\d+\.\d+s\b|=* \(\d:\d\d:\d\d\)", "", ran.out)
    kept, ours = [], False
    for line in text.splitlines():
        if line.startswith("="):
            ours = " roofline: " in line
        if not ours and not line.startswith("roofline: "):
            kept.append(re.sub("=+", "=", line))
    return kept


def assert_same(project: Project, *args: object, plugins: tuple[str, ...] = ()) -> Ran:
    """Compare a run with the flag with one without it; return the run with it."""
    how = ("-v", "-rA", "-p", "no:cacheprovider", *args)
    alone = project.run(*how, plugins=plugins, flag=False)
    ran = project.run(*how, "--roofline-device=MI355X", plugins=plugins)
    assert lines(ran) == lines(alone)
    assert ran.code == alone.code
    return ran


def test_an_item_listed_twice_runs_twice_in_order(project: Project) -> None:
    project.write(
        conftest="""
        def pytest_collection_modifyitems(items):
            items.insert(0, items[-1])
        """,
        test_a="def test_one(): pass\ndef test_two(): pass\ndef test_three(): pass",
    )
    ran = assert_same(project)
    assert re.findall(r"::(test_\w+) PASSED +\[", ran.out) == ["test_three", "test_one", "test_two", "test_three"]


def test_a_function_without_a_module_runs(project: Project) -> None:
    project.write(
        conftest="""
        import pytest

        class Listed(pytest.File):
            def collect(self):
                yield pytest.Function.from_parent(self, name="listed", callobj=lambda: None)

        def pytest_collect_file(file_path, parent):
            return Listed.from_parent(parent, path=file_path) if file_path.suffix == ".txt" else None
        """
    )
    (project.path / "cases.txt").touch()
    assert assert_same(project).counts == {"passed": 1}


@pytest.mark.parametrize(
    "fixture",
    [
        "lambda fn: fn(3)",
        "abs",
        "functools.partial(abs)",
        "'abc'.count",
        "{'stats': 1, 'extra_info': {}}",
        "7",
        "unittest.mock.MagicMock()",
        "Frozen()",
        "ByKeyword()",
    ],
)
def test_a_benchmark_fixture_of_the_project_works_unchanged(project: Project, fixture: str) -> None:
    project.write(
        test_a=f"""
        import functools, pytest, unittest.mock

        class NoWrites(type):
            def __setattr__(cls, name, value):
                raise TypeError("frozen")

        class Frozen(metaclass=NoWrites):
            def __call__(self, fn):
                return fn

        class ByKeyword:
            def __call__(self, *, fn):
                return fn

        @pytest.fixture
        def benchmark():
            return {fixture}

        def test_it(benchmark):
            if isinstance(benchmark, ByKeyword):
                assert benchmark(fn=3) == 3
            elif isinstance(benchmark, Frozen):
                assert benchmark(3) == 3
        """
    )
    ran = assert_same(project)
    assert ran.counts == {"passed": 1}
    assert ran.report["entries"] == []


def test_a_benchmark_keeps_its_traceback_and_accepts_a_keyword(project: Project) -> None:
    project.write(
        test_a="""
        def test_fails(benchmark):
            benchmark(lambda: 1 / 0)

        def test_by_name(benchmark):
            assert benchmark(function_to_benchmark=lambda: 3) == 3
        """
    )
    assert assert_same(project, "--benchmark-disable", plugins=("benchmark",)).counts == {"failed": 1, "passed": 1}
    timed = project.run("--roofline-device=MI355X", "-k", "by_name", plugins=("benchmark",))
    assert timed.counts == {"passed": 1, "deselected": 1}
    assert timed.rows["test_by_name"]["measurement"]["source"] == "pytest-benchmark"


@pytest.mark.parametrize("module", ["types.ModuleType(name)", "unittest.mock.MagicMock()", "None"])
def test_mocked_libraries_are_not_used_as_libraries(project: Project, module: str) -> None:
    """A suite without GPU libraries replaces them with stand-ins."""
    project.write(
        test_a=f"""
        import sys, types, unittest.mock
        import pytest

        @pytest.fixture(autouse=True)
        def stand_ins(monkeypatch):
            for name in ("torch", "triton", "triton.testing", "jax", "cupy"):
                monkeypatch.setitem(sys.modules, name, {module})

        def test_plain():
            pass

        def test_measured(roofline):
            assert roofline.measure(lambda: 3) == 3
        """
    )
    ran = assert_same(project)
    assert ran.counts == {"passed": 2}
    assert ran.report["skill_errors"] == []
    (row,) = ran.report["entries"]
    assert "no array among its arguments" in row["notes"]


def test_a_test_sees_its_own_function(project: Project) -> None:
    project.write(
        test_a="""
        class TestIt:
            def test_method(self, request):
                assert request.node.obj == request.function == self.test_method
                assert request.function.__self__ is self

        def test_function(request):
            assert request.node.obj is request.function is test_function
        """
    )
    assert assert_same(project).counts == {"passed": 2}


@pytest.mark.parametrize(
    "value",
    [
        "type('Odd', (), {'columns': [], 'to_dict': lambda *_: 1 / 0})()",
        "type('Odd', (dict,), {'items': lambda _: 1 / 0})(us=3)",
    ],
)
def test_a_returned_object_that_raises_when_inspected(project: Project, value: str) -> None:
    project.write(test_a=f"def test_it():\n    return {value}\n")
    assert assert_same(project).counts == {"passed": 1, "warning": 1}


@pytest.mark.parametrize("name", ["benchmark", "watch_test", "catch_returned"])
def test_an_internal_fault_is_reported_and_fails_no_test(project: Project, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def fault(*_: object, **__: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(pytest_roofline.session, name, fault)
    monkeypatch.setattr(pytest_roofline.session, "loaded", lambda name: object())  # as if torch were there
    project.write(test_a="def test_good(): pass\ndef test_bad(): assert not 'this is the test'\n")
    ran = project.run()
    assert ran.counts == {"failed": 1, "passed": 1}
    assert "not 'this is the test'" in ran.out
    assert any("test_good: fault of the plugin: RuntimeError: planted" in line for line in ran.report["skill_errors"])


def test_recorded_properties_are_kept(project: Project) -> None:
    project.write(
        test_a="""
        def test_it(record_property):
            record_property("roofline_of_mine", 1)
            record_property("other", 2)
        """
    )
    ran = project.run("--junitxml=junit.xml")
    assert [one.get("name") for one in ran.junit["test_it"].iter("property")] == ["roofline_of_mine", "other"]
