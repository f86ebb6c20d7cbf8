"""Times that a test takes with the timers of Triton and torch are observed, and the results of the timers are unchanged.

The timers run in a separate process, because the test replaces Triton's driver.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(not (find_spec("triton") and find_spec("torch")), reason="needs triton and torch")

SCRIPT = '''
import functools, json, time
import torch, triton, triton.testing
from torch.utils.benchmark import Timer
from triton.testing import do_bench
from triton.runtime import driver
from pytest_roofline.capture.timers import observe_timers


class Event:
    """A clock that reads 1, 2, 3, ... ms between the two events of a call."""
    count = 0

    def __init__(self, enable_timing):
        pass

    def record(self):
        pass

    def elapsed_time(self, other):
        Event.count += 1
        return float(Event.count)


class Interface:
    Event = Event

    def synchronize(self):
        pass


class Driver:
    def get_device_interface(self):
        return Interface

    def get_empty_cache_for_benchmark(self):
        return None

    def clear_cache(self, cache):
        pass

    def get_benchmarker(self):
        from triton.testing import do_bench
        return do_bench


Interface.synchronize = staticmethod(lambda: None)
driver.set_active(Driver())
cases = {}


def shown(observed):
    return [{"by": o.source, "calls": None if o.fn is None else repr(o.fn()), **o.measurement._asdict()} for o in observed]


def timed(name, run, *namespaces):
    Event.count = 0
    with observe_timers(namespaces) as observed:
        result = run()
    cases[name] = {"result": result if isinstance(result, (float, list)) else None, "seen": shown(observed)}


def fn():
    return "the function"


plain = triton.testing.do_bench
# The first reading is the estimate: 1 / 5 ms, so rep=1 is five rounds, which read 2 to 6 ms.
timed("mean", lambda: triton.testing.do_bench(fn, rep=1))
timed("median", lambda: triton.testing.do_bench(fn, 25, 1, return_mode="median"))
timed("max", lambda: triton.testing.do_bench(fn, rep=1, return_mode="max"))
timed("all", lambda: triton.testing.do_bench(fn, rep=1, return_mode="all"))
timed("quantiles", lambda: triton.testing.do_bench(fn, rep=1, quantiles=[0.25, 0.5, 0.75]))
timed("percentiles", lambda: triton.testing.do_bench(fn, rep=1, quantiles=[0.5, 0.2, 0.8]))
timed("one quantile", lambda: triton.testing.do_bench(fn, rep=1, quantiles=[0.25]))
timed("by name, not given", lambda: do_bench(fn, rep=1))
timed("by name", lambda: do_bench(fn, rep=1), globals())
timed("partial", lambda: triton.testing.do_bench(functools.partial(fn), rep=1))


def graph(fn, rep=20, grad_to_none=None, quantiles=None, return_mode="mean"):
    return result


for name, result in (("graph", 0.5), ("zero", 0.0), ("nothing", None), ("odd", [[1.0]])):
    triton.testing.do_bench_cudagraph = graph
    timed(name, lambda: triton.testing.do_bench_cudagraph(fn))

@triton.autotune([triton.Config({"B": 64}), triton.Config({"B": 128})], key=["n"])
@triton.jit
def kernel(n, B: triton.language.constexpr):
    pass

kernel.fn.run = lambda *args, **kwargs: None
timed("autotuner", lambda: kernel[(1,)](3))
kept = {}
with observe_timers() as observed:
    kept["fn"] = triton.testing.do_bench
cases["kept"] = [kept["fn"](fn, rep=1) > 0, len(observed)]


def broken():
    raise KeyError("mine")


with observe_timers([globals()]) as observed:
    try:
        do_bench(broken)
    except KeyError as error:
        cases["raised"] = [str(error), len(observed)]
cases["restored"] = [do_bench is plain, triton.testing.do_bench is plain, Timer.timeit.__module__]

x = torch.ones(8)
timed("timeit", lambda: Timer("x + y", "y = 1.0", globals={"x": x}).timeit(10))
timed("lines", lambda: Timer("z = x + 1\\nz + 1", globals={"x": x}).timeit(10))
timed("blocked", lambda: Timer("sum(range(100))").blocked_autorange(min_run_time=0.02))
timed("adaptive", lambda: Timer("sum(range(100))", timer=time.perf_counter).adaptive_autorange(max_run_time=0.05))
timed("own clock", lambda: Timer("1", timer=lambda: time.perf_counter()).timeit(10))
timed("setup once", lambda: Timer("1", "opened.append(1); assert len(opened) < 3", globals={"opened": []}).timeit(10))
with observe_timers() as observed:
    result = Timer("x + 1", globals={"x": x}).timeit(10)
cases["same"] = [type(result).__module__, observed[0].measurement.t_s == result.median]
with observe_timers() as observed:
    Timer("x + 1", globals={"x": x}).timeit(100)
print(json.dumps(cases))
'''


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    script = Path(tmp_path_factory.mktemp("timers")) / "timers.py"
    script.write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def one(cases: dict[str, Any], name: str) -> dict[str, Any]:
    (seen,) = cases[name]["seen"]
    assert isinstance(seen, dict)
    return seen


#: Rounds of 2, 3, 4, 5 and 6 ms: their mean and median are 4, their quartiles 3 and 5.
@pytest.mark.parametrize(
    ("mode", "result", "t_ms", "spread_ms", "rounds", "notes"),
    [
        ("mean", 4.0, 4, None, None, ["the mean, not the median"]),
        ("median", 4.0, 4, None, None, []),
        ("max", 6.0, 6, None, None, ["the max, not the median"]),
        ("all", [2.0, 3.0, 4.0, 5.0, 6.0], 4, (3, 5), 5, []),
        ("quantiles", [3.0, 4.0, 5.0], 4, (3, 5), None, []),
        ("percentiles", [4.0, 2.8, 5.2], 4, None, None, []),
        ("one quantile", 3.0, 3, None, None, ["the 0.25 quantile; no median was asked for"]),
    ],
)
def test_each_way_to_return_a_time_is_understood(
    cases: dict[str, Any],
    mode: str,
    result: float | list[float],
    t_ms: float,
    spread_ms: tuple[float, float] | None,
    rounds: int | None,
    notes: list[str],
) -> None:
    seen = one(cases, mode)
    assert cases[mode]["result"] == pytest.approx(result)
    assert seen["t_s"] == pytest.approx(t_ms * 1e-3)
    assert (seen["q1_s"], seen["q3_s"]) == (pytest.approx([t * 1e-3 for t in spread_ms]) if spread_ms else (None, None))
    assert (seen["rounds"], seen["notes"]) == (rounds, notes)
    assert (seen["by"], seen["clock"], seen["cache"]) == ("triton.testing.do_bench", "device-event", "cold")
    assert seen["calls"] == "'the function'"


def test_a_name_that_the_test_imported_is_reached_through_its_globals(cases: dict[str, Any]) -> None:
    assert cases["by name, not given"]["seen"] == []
    assert one(cases, "by name")["t_s"] == pytest.approx(4e-3)
    assert one(cases, "partial")["calls"] == "'the function'"


def test_a_graph_is_replayed_warm(cases: dict[str, Any]) -> None:
    seen = one(cases, "graph")
    assert (seen["t_s"], seen["clock"], seen["cache"]) == (0.5e-3, "device-graph", "warm")


@pytest.mark.parametrize("case", ["zero", "nothing", "odd"])
def test_results_without_a_time_are_not_observed(cases: dict[str, Any], case: str) -> None:
    assert cases[case]["seen"] == []


def test_autotuner_candidates_and_later_calls_are_not_observed(cases: dict[str, Any]) -> None:
    assert cases["autotuner"]["seen"] == []
    assert cases["kept"] == [True, 0]


def test_an_exception_propagates_and_the_timers_are_restored(cases: dict[str, Any]) -> None:
    assert cases["raised"] == ["'mine'", 0]
    assert cases["restored"] == [True, True, "torch.utils.benchmark.utils.timer"]


@pytest.mark.parametrize(
    ("case", "method", "calls"),
    [
        ("timeit", "timeit", "tensor([2., 2., 2., 2., 2., 2., 2., 2.])"),
        ("lines", "timeit", "None"),
        ("blocked", "blocked_autorange", "4950"),
        ("adaptive", "adaptive_autorange", "4950"),
    ],
)
def test_a_timer_gives_its_statement_after_its_setup(cases: dict[str, Any], case: str, method: str, calls: str) -> None:
    seen = one(cases, case)
    assert seen["by"] == f"torch.utils.benchmark.Timer.{method}"
    assert seen["calls"] == calls
    assert seen["cache"] == "warm"
    assert seen["clock"] in ("host", "host+sync")
    assert (seen["rounds"] == 1) == (seen["q1_s"] is None)
    assert any("calls a round" in note for note in seen["notes"])


def test_a_custom_clock_is_unknown(cases: dict[str, Any]) -> None:
    assert one(cases, "own clock")["clock"] == "unknown"


def test_a_setup_that_cannot_run_twice_keeps_its_time(cases: dict[str, Any]) -> None:
    assert one(cases, "setup once")["calls"] is None


def test_the_result_equals_torchs(cases: dict[str, Any]) -> None:
    assert cases["same"] == ["torch.utils.benchmark.utils.common", True]
