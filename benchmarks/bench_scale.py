"""Time and memory of ``analyze`` and ``validate`` over 1,000 and 10,000 kernels with the head selection off, each as
a whole process.

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


def measure(arguments: list[str], environment: dict[str, str]) -> tuple[float, float]:
    command = [sys.executable, str(TOOL), *arguments]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0
    return time.perf_counter() - start, usage.ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)


def main() -> None:
    results: dict[str, list[tuple[float, float]]] = {"analyze": [], "validate": []}
    for kernels in (1_000, 10_000):
        with tempfile.TemporaryDirectory() as name:
            write_run(Path(name), kernels)
            artifact = Path(name, "profile_roofline.json")
            commands = {"analyze": [name, "--head-pct", "0", "--head-max", "0"], "validate": [str(artifact)]}
            for command, arguments in commands.items():
                best = min(measure([command, *arguments], cached(Path(name, "cache"))) for _ in range(3))
                results[command].append(best)
                print(f"{command:8} {kernels:6} kernels: {best[0]:6.2f} s, peak {best[1]:5.0f} MiB")
            print(f"{len(json.dumps(json.loads(artifact.read_text())['entries'])) / 1e6:.1f} MB of entries")
    for command, ((short_s, small), (long_s, large)) in results.items():
        print(f"{command}, 10x the kernels: time {long_s / short_s:.1f}x, memory {large / small:.1f}x")


if __name__ == "__main__":
    main()
