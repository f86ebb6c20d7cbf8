"""Time and memory of ``analyze`` on a database of rocprofv3 of many dispatches, as a ratio to a sum by SQLite alone.

python benchmarks/bench_database.py [DISPATCHES]
"""

from __future__ import annotations

import random
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

TOOL = Path(__file__).resolve().parents[1] / "skill" / "roofline_tools.py"
KERNELS = 200


def dispatches(count: int) -> Iterator[tuple[int, int, int]]:
    """Yield kernel, start and end in ns: 20 to 40 us with a spread of 0.8 us, one after another."""
    draw = random.Random(1)
    at = 10**18
    for _ in range(count):
        kernel = draw.randrange(KERNELS)
        start = at + draw.randrange(2000)
        at = start + max(1, round(draw.gauss(20_000 + 100 * kernel, 800)))
        yield kernel, start, at


def write(path: Path, count: int) -> None:
    base = sqlite3.connect(path)
    columns = 'kernel_id INTEGER, "start" BIGINT, "end" BIGINT, agent_id INTEGER, workgroup_size_x, workgroup_size_y, '
    columns += "workgroup_size_z, grid_size_x, grid_size_y, grid_size_z"
    base.execute("CREATE TABLE rocpd_info_kernel_symbol_1 (id INTEGER PRIMARY KEY, kernel_name TEXT)")
    base.execute("CREATE TABLE rocpd_info_agent_1 (id INTEGER PRIMARY KEY, type TEXT, name TEXT, product_name TEXT)")
    base.execute("INSERT INTO rocpd_info_agent_1 VALUES (1, 'GPU', 'gfx942', 'AMD Instinct MI300X')")
    base.execute(f"CREATE TABLE rocpd_kernel_dispatch_1 ({columns})")
    base.executemany("INSERT INTO rocpd_info_kernel_symbol_1 VALUES (?, ?)", ((at, f"kernel_{at}") for at in range(KERNELS)))
    base.executemany("INSERT INTO rocpd_kernel_dispatch_1 VALUES (?, ?, ?, 1, 256, 1, 1, 65536, 1, 1)", dispatches(count))
    base.commit()
    base.close()


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10**6
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run_results.db"
        write(path, count)
        started = time.perf_counter()
        with sqlite3.connect(path) as base:
            base.execute('SELECT kernel_id, sum("end" - "start") FROM rocpd_kernel_dispatch_1 GROUP BY 1').fetchall()
        alone = time.perf_counter() - started
        started = time.perf_counter()
        subprocess.run([sys.executable, "-I", TOOL, "analyze", path, "--out", folder], check=True, capture_output=True)
        passed = time.perf_counter() - started
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
        size = path.stat().st_size >> 20
        print(
            f"{count} dispatches, {size} MiB: {passed:.1f} s, {passed / alone:.1f} times a sum by SQLite, {memory} MiB at most"
        )


if __name__ == "__main__":
    main()
