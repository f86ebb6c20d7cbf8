"""Time and memory of ``analyze`` over 1,000 and 10,000 kernels with the head selection off, as a whole process.

    python benchmarks/bench_scale.py

Prints both and their ratio: ten times the kernels should cost ten times, not a hundred.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench_analyze import TOOL, cached, write_run


def measure(folder: Path, environment: dict[str, str]) -> tuple[float, float]:
    command = [sys.executable, str(TOOL), "analyze", str(folder), "--head-pct", "0", "--head-max", "0"]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0
    return time.perf_counter() - start, usage.ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)


def main() -> None:
    found = {}
    for kernels in (1_000, 10_000):
        with tempfile.TemporaryDirectory() as name:
            write_run(Path(name), kernels)
            found[kernels] = min(measure(Path(name), cached(Path(name, "cache"))) for _ in range(3))
            size = len(json.dumps(json.loads(Path(name, "profile_roofline.json").read_text())["entries"]))
        seconds, mib = found[kernels]
        print(f"{kernels:6} kernels: {seconds:6.2f} s, peak {mib:5.0f} MiB, {size / 1e6:.1f} MB of entries")
    print(
        f"ratio 10x kernels: time {found[10_000][0] / found[1_000][0]:.1f}x, memory {found[10_000][1] / found[1_000][1]:.1f}x"
    )


if __name__ == "__main__":
    main()
