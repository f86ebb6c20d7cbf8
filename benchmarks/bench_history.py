"""Time ``roofline history`` on a store of many runs, as a ratio to reading as many numbers from JSON.

    python benchmarks/bench_history.py [RUNS] [TESTS]

The store is made through the index: the report of each run is made in memory, since a thousand files of a thousand rows take
gigabytes. A history reads the index alone.
"""

from __future__ import annotations

import gc
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / folder) for folder in ("", "skill")]

from pytest_roofline import saved  # noqa: E402
from pytest_roofline.history import find_changes, read_lines  # noqa: E402


def make_report(number: int, tests: int, rng: random.Random) -> dict[str, Any]:
    """Return the report of a run whose times scatter by 1 %."""
    entries = []
    for test in range(tests):
        t_s = 1e-3 * (1 + test / 100) * rng.gauss(1, 0.01)
        times = {"t_s": t_s, "q1_s": 0.99 * t_s, "q3_s": 1.01 * t_s, "min_s": 0.98 * t_s, "rounds": 50}
        nodeid = f"tests/test_kernels_of_a_project.py::test_kernel[{test}]"
        entries.append({"nodeid": nodeid, "device": "cpu", "roofline_pct_raw": 0.5, "gates": [], "measurement": times})
    run = {"number": number, "name": "main", "machine": "m", "cpu": "c", "host": "h", "commit": "f" * 40, "branch": "main"}
    return {"schema": saved.REPORT_SCHEMA, "created": "2026-01-01", "noise": 0.034, "run": run, "entries": entries}


def main() -> None:
    runs, tests = (int(word) for word in (*sys.argv[1:], *("1000", "1000")[len(sys.argv) - 1 :]))
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(1, runs + 1):
            (folder / f"{number:04}_main.json").write_text("{}")
        saved.read_json = lambda path: make_report(int(Path(path).name[:4]), tests, rng)  # type: ignore[assignment]
        saved.read_runs(folder, print)
        gc.disable()
        start = time.process_time()
        read, lines = read_lines(saved.read_points(folder, print))
        loaded = time.process_time()
        changes = sum(len(find_changes(line, read)) for line in lines)
        done = time.process_time()
    text = json.dumps([[rng.random() for _ in range(6)] for _ in range(runs * tests)])
    before = time.process_time()
    json.loads(text)
    unit = time.process_time() - before
    print(
        f"{runs} runs of {tests} tests: load {(loaded - start) / unit:.2f}, changes {(done - loaded) / unit:.2f} of json.loads"
    )
    print(f"load {loaded - start:.2f} s, changes {done - loaded:.2f} s, {changes} changes in {len(lines)} lines")


if __name__ == "__main__":
    main()
