"""What the pytest plugin costs: unused, per benchmarked test, and per row of a report.

    python benchmarks/bench_plugin.py [start] [tests] [reports]

start: a whole ``python -m pytest`` of one trivial test with the plugin and with it blocked, by turns; the difference of the
minima, since the median of a shared machine is mostly the machine. tests: 1,000 trivial benchmarks with pytest-benchmark
alone and with ``--roofline``, by turns. reports: every report file of 1,000 and of 10,000 rows, and their ratio.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from pytest_roofline.row import Row

#: Every other plugin of this environment, blocked; autoload stays on, as it is for everyone.
OTHERS = sorted({entry.name for entry in importlib.metadata.entry_points(group="pytest11")} - {"roofline", "benchmark"})
ALONE = [word for name in OTHERS for word in ("-p", f"no:{name}")]
TRIVIAL = "def test_one():\n    pass\n"
BENCHMARKS = """
import pytest

@pytest.mark.parametrize("n", range({tests}))
def test_bench(benchmark, n):
    benchmark(len, ())
"""
QUICK = ("--benchmark-max-time=0.0001", "--benchmark-min-rounds=1", "--benchmark-warmup=off")
GOAL_START_MS, GOAL_TEST_MS, GOAL_REPORTS_S = 6.0, 1.0, 2.0


class Cost(NamedTuple):
    """One process: seconds on the clock, and of the CPU, which a busy machine disturbs less."""

    wall: float
    cpu: float


def environment(folder: Path) -> dict[str, str]:
    """With bytecode cached, as in any installed copy."""
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}


def cost(folder: Path, *args: str) -> Cost:
    """One run of pytest in ``folder``, as a process of its own."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *ALONE, *args]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        command, check=True, cwd=folder, env=environment(folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def by_turns(folder: Path, runs: int, *variants: tuple[str, ...]) -> list[Cost]:
    """The least wall and CPU time of each variant, each run once before any is timed."""
    costs: list[list[Cost]] = [[] for _ in variants]
    for at in range(runs + 1):
        for kept, variant in zip(costs, variants):
            taken = cost(folder, *variant)
            if at:
                kept.append(taken)
    return [Cost(min(one.wall for one in kept), min(one.cpu for one in kept)) for kept in costs]


#: Import and registration, which runs the hooks that add options, ini keys and hook specifications.
LOAD = """
import time, pytest, _pytest.config
manager = _pytest.config.get_config().pluginmanager
start = time.perf_counter()
import pytest_roofline.plugin
manager.register(pytest_roofline.plugin, "roofline")
print(time.perf_counter() - start)
"""


def load_s(folder: Path, runs: int = 20) -> float:
    """What loading the plugin takes by itself, which the difference of two whole runs shows only on a quiet machine."""
    command = [sys.executable, "-c", LOAD]
    return min(
        float(subprocess.run(command, check=True, env=environment(folder), capture_output=True, text=True).stdout)
        for _ in range(runs)
    )


def bench_start(folder: Path, runs: int = 60) -> None:
    (folder / "test_one.py").write_text(TRIVIAL)
    print(f"import and registration alone: {1e3 * load_s(folder):.1f} ms")
    without, with_it = by_turns(folder, runs, ("-p", "no:benchmark", "-p", "no:roofline"), ("-p", "no:benchmark"))
    for kind in Cost._fields:
        a, b = getattr(without, kind), getattr(with_it, kind)
        print(
            f"start-up without --roofline, {kind}: {1e3 * (b - a):+.1f} ms to {1e3 * a:.0f} ms ({b / a:.3f}x), "
            f"minima of {runs} runs by turns; goal {GOAL_START_MS:+g} ms"
        )


def bench_tests(folder: Path, tests: int = 1000, runs: int = 5) -> None:
    (folder / "test_many.py").write_text(BENCHMARKS.format(tests=tests))
    (folder / "test_one.py").write_text(BENCHMARKS.format(tests=1))
    many, one = ("test_many.py", *QUICK), ("test_one.py", *QUICK)
    alone, alone_1, on, on_1 = by_turns(folder, runs, many, one, (*many, "--roofline"), (*one, "--roofline"))
    for kind in Cost._fields:
        of = [getattr(one, kind) for one in (alone, alone_1, on, on_1)]
        each, each_on = (of[0] - of[1]) / (tests - 1), (of[2] - of[3]) / (tests - 1)
        print(
            f"{tests} benchmarks, {kind}: {1e3 * each:.2f} ms a test alone, {1e3 * each_on:.2f} ms with --roofline "
            f"({each_on / each:.2f}x, {1e3 * (each_on - each):+.2f} ms; goal {GOAL_TEST_MS:+g} ms); the flag itself "
            f"{1e3 * (of[3] - of[1]):+.0f} ms a run; minima of {runs}"
        )


def bench_reports(folder: Path) -> None:
    from pytest_roofline.config import Settings
    from pytest_roofline.report import write_reports
    from pytest_roofline.report.document import Document

    row = one_row()
    taken = {}
    for count in (1_000, 10_000):
        settings = Settings(reports=(("json", str(folder / "r.json")), ("md", str(folder / "r.md"))))
        rows = [dataclasses.replace(row, nodeid=f"test_a.py::test_bench[{at}]") for at in range(count)]
        best = float("inf")
        for _ in range(3):
            document = Document(settings, None)
            document.add(rows, [], {})
            start = time.perf_counter()
            write_reports(document, document.to_dict(), settings, annotations=False)
            best = min(best, time.perf_counter() - start)
        taken[count] = best
        size = sum((folder / name).stat().st_size for name in ("r.json", "r.md")) / 1e6
        print(f"report files of {count:6,} rows: {best:.3f} s, {size:.1f} MB; goal {GOAL_REPORTS_S:g} s for 10,000")
    print(f"ten times the rows: {taken[10_000] / taken[1_000]:.1f}x the time")


def one_row() -> Row:
    """A row with a verdict, a baseline and a remark, as a run makes it."""
    from roofline_engine.check import Baseline, Measurement, assess_measurement, check
    from roofline_engine.fields import Entry
    from roofline_engine.ops import work
    from roofline_engine.peaks import Peaks

    peaks = Peaks(product="x", hbm_bw_bytes_s=8e12, flops={"bf16": 2.5e15}, l2_bytes=3e7, confidence="high")
    done = work("gemm", M=64, N=8192, K=8192, dtype="bf16")
    time_ = Measurement("user", 5e-5, 4.9e-5, 5.1e-5, 100, clock="device-event", cache="cold")
    entry = assess_measurement(Entry(name="gemm", short_name="gemm", stage="B"), done, time_, peaks)
    before = Baseline("previous", t_s=6e-5, source="before.json")
    outcome = check(entry, done, time_, peaks, baseline=before)
    return Row(nodeid="", entry=entry, check=outcome, device="x", work_source="marker", measurement=time_, baseline=before)


def main() -> None:
    benches: dict[str, Callable[[Path], None]] = {"start": bench_start, "tests": bench_tests, "reports": bench_reports}
    for name in sys.argv[1:] or benches:
        with tempfile.TemporaryDirectory() as folder:
            benches[name](Path(folder))


if __name__ == "__main__":
    main()
