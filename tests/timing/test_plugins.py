"""The statistics of the benchmark plugins, from the objects and files of the installed plugins."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_roofline.timing.plugins import codspeed_count, of_benchmark_json, of_codspeed, of_pytest_benchmark

SUITE = """
import pytest

def fn():
    return sum(range(1000))

def test_used(benchmark):
    assert benchmark(fn) == 499500

def test_pedantic(benchmark):
    benchmark.pedantic(fn, rounds=7, iterations=3)

def test_not_used(benchmark):
    pass

def test_raises(benchmark):
    with pytest.raises(ZeroDivisionError):
        benchmark(lambda: 1 / 0)
"""

CONFTEST = """
import json
import pytest
from pytest_roofline.timing import plugins

found = {}

@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    plugin = item.config.pluginmanager.get_plugin("codspeed_plugin")
    before = plugins.codspeed_count(plugin)
    try:
        return (yield)
    finally:
        fixture = plugins.of_pytest_benchmark(item.funcargs.get("benchmark"))
        codspeed = plugins.of_codspeed(plugin, before)
        stats = getattr(getattr(item.funcargs.get("benchmark"), "stats", None), "stats", None)
        found[item.name] = [
            fixture and fixture._asdict(),
            codspeed and codspeed._asdict(),
            stats.median if stats else None,
            [b.stats.median_ns for b in getattr(getattr(plugin, "instrument", None), "benchmarks", [])][before:],
        ]

def pytest_sessionfinish():
    with open("found.json", "w") as file:
        json.dump(found, file)
"""


def suite(folder: Path, *options: str) -> dict[str, Any]:
    (folder / "test_suite.py").write_text(SUITE)
    (folder / "conftest.py").write_text(CONFTEST)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--benchmark-json=b.json", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((folder / "found.json").read_text())
    assert isinstance(found, dict)
    return found


FAST = ("--benchmark-max-time=0.01", "--benchmark-min-rounds=5")


@pytest.fixture(scope="module")
def benchmarked(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    pytest.importorskip("pytest_benchmark")
    folder = tmp_path_factory.mktemp("benchmark")
    return suite(folder, *FAST), json.loads((folder / "b.json").read_text())["benchmarks"]


def test_a_used_fixture_has_its_own_median(benchmarked: tuple[dict[str, Any], Any]) -> None:
    found, codspeed, median, _ = benchmarked[0]["test_used"]
    assert codspeed is None
    assert found["t_s"] == median
    assert found["q1_s"] <= found["t_s"] <= found["q3_s"]
    assert found["rounds"] >= 5
    assert (found["source"], found["clock"], found["cache"]) == ("pytest-benchmark", "host", "warm")


def test_a_pedantic_run_is_timed_per_iteration(benchmarked: tuple[dict[str, Any], Any]) -> None:
    found, _, median, _ = benchmarked[0]["test_pedantic"]
    assert (found["rounds"], found["t_s"], found["notes"]) == (7, median, ["3 calls a round"])


@pytest.mark.parametrize("test", ["test_not_used", "test_raises"])
def test_a_fixture_without_times_has_no_measurement(benchmarked: tuple[dict[str, Any], Any], test: str) -> None:
    assert benchmarked[0][test][:2] == [None, None]


def test_the_json_of_a_run_gives_the_same_measurements(benchmarked: tuple[dict[str, Any], list[dict[str, Any]]]) -> None:
    found, rows = benchmarked
    assert {row["name"] for row in rows} == {"test_used", "test_pedantic"}
    for row in rows:
        again = of_benchmark_json(row)._asdict()
        assert {**again, "notes": list(again["notes"])} == found[row["name"]][0]


def test_disabled_benchmarks_have_no_measurement(tmp_path: Path) -> None:
    pytest.importorskip("pytest_benchmark")
    found = suite(tmp_path, "--benchmark-disable")
    assert [values[:2] for values in found.values()] == [[None, None]] * 4


def test_codspeed_walltime_is_timed_per_iteration(tmp_path: Path) -> None:
    pytest.importorskip("pytest_codspeed")
    found = suite(
        tmp_path,
        *("--codspeed", "--codspeed-mode=walltime", "--codspeed-warmup-time=0.001", "--codspeed-max-time=0.02"),
        *("-k", "used or pedantic"),
    )
    fixture, measurement, _, (median_ns,) = found["test_used"]
    assert fixture is None  # codspeed's fixture says that it is pytest-benchmark's, and has no statistics
    assert measurement["t_s"] == pytest.approx(median_ns * 1e-9)
    assert (measurement["source"], measurement["clock"], measurement["cache"]) == ("pytest-codspeed", "host", "warm")
    assert found["test_pedantic"][1]["rounds"] == 7
    assert found["test_not_used"][:2] == [None, None]


def test_codspeed_modes_without_times_have_no_measurement() -> None:
    for plugin in (None, SimpleNamespace(instrument=SimpleNamespace()), SimpleNamespace(instrument=None)):
        assert codspeed_count(plugin) == 0
        assert of_codspeed(plugin, 0) is None


def test_codspeed_quartiles_of_two_rounds_stay_within_the_times() -> None:
    """``statistics.quantiles`` of [1, 9] extrapolates the quartiles to -1 and 11."""
    walltime = pytest.importorskip("pytest_codspeed.instruments.walltime")
    stats = walltime.BenchmarkStats.from_list([1.0, 9.0], rounds=2, iter_per_round=1, warmup_iters=1, total_time=1.0)
    assert stats.q1_ns == -1.0
    plugin = SimpleNamespace(instrument=SimpleNamespace(benchmarks=[SimpleNamespace(stats=stats)]))
    found = of_codspeed(plugin, 0)
    assert found is not None
    assert (found.q1_s, found.t_s, found.q3_s) == pytest.approx((1e-9, 5e-9, 9e-9))
    assert of_codspeed(plugin, 1) is None


@given(st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=12))
def test_any_times_of_pytest_benchmark_are_ordered(times: list[float]) -> None:
    module = pytest.importorskip("pytest_benchmark.stats")
    stats = module.Stats()
    for time in times:
        stats.update(time)
    found = of_pytest_benchmark(SimpleNamespace(stats=SimpleNamespace(stats=stats, iterations=1), has_error=False))
    assert found is not None
    assert found.q1_s is not None
    assert found.q3_s is not None
    assert found.q1_s <= found.t_s <= found.q3_s


ROW = {"name": "t", "options": {"timer": "perf_counter"}, "stats": {"median": 2e-3, "q1": 1e-3, "q3": 3e-3, "rounds": 9}}


@pytest.mark.parametrize("key", ["median", "q1", "q3", "rounds"])
@pytest.mark.parametrize("value", [None, "1e-3", True, float("nan"), float("inf"), -1.0, [], 10**400])
def test_a_bad_value_of_the_json_is_named(key: str, value: Any) -> None:
    row = copy.deepcopy(ROW)
    row["stats"][key] = value  # type: ignore[index]
    with pytest.raises(ValueError, match=rf"stats\.(median, )?(q1, median, q3|{key}|median)"):
        of_benchmark_json(row)


@pytest.mark.parametrize("row", [{}, {"stats": None}, {"stats": []}, {"stats": {}}])
def test_a_row_without_statistics_is_named(row: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^stats"):
        of_benchmark_json(row)


@pytest.mark.parametrize(("key", "value"), [("q1", 2.5e-3), ("q3", 1.5e-3), ("rounds", 2.5), ("median", 0)])
def test_contradicting_times_are_refused(key: str, value: float) -> None:
    row = copy.deepcopy(ROW)
    row["stats"][key] = value  # type: ignore[index]
    with pytest.raises(ValueError, match="expected"):
        of_benchmark_json(row)


def test_a_custom_timer_is_an_unknown_clock() -> None:
    assert of_benchmark_json({**ROW, "options": {"timer": "cupti_timer"}}).clock == "unknown"
    assert of_benchmark_json({**ROW, "options": {}}).clock == "host"


def test_numpy_numbers_become_exact_floats_and_ints() -> None:
    numpy = pytest.importorskip("numpy")
    stats = {"median": numpy.float64(2e-3), "q1": numpy.float32(1e-3), "q3": numpy.float64(3e-3), "rounds": numpy.int64(9)}
    found = of_benchmark_json({"stats": {**stats, "iterations": numpy.int32(2)}})
    assert [type(value) for value in found[:8]] == [str, float, float, float, int, str, str, tuple]
