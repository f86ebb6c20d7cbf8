"""Whole-process cost of ``analyze`` on a Top-N of 8 kernels, against a bare interpreter, run by turns.

    python benchmarks/bench_analyze.py [RUNS]

Prints the median of each and the difference, and the ratio in the same run, since machines differ and drift.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOL = ROOT / "skill" / "roofline_tools.py"


def write_run(folder: Path, kernels: int = 8) -> None:
    """A run with ``kernels`` head entries of falling shares, shapes for each, at 20 to 90 % of the rated bandwidth."""
    rows, shapes = [], {}
    for index in range(kernels):
        name, wide = f"gemm_kernel_{index}", 4096 + 128 * index
        nbytes = 2 * (64 * 8192 + 8192 * wide + 64 * wide)
        time_ms = 1e3 * nbytes / (5.3e12 * (0.2 + 0.7 * (0.6180339887 * index % 1)))
        share = 100 / kernels * (1.5 - index / kernels)
        rows.append({"name": name, "pct_gpu_time": share, "base_latency_ms": time_ms, "editable": True})
        shapes[name] = [{"op": "gemm", "M": 64, "N": wide, "K": 8192, "dtype": "bf16"}]
    (folder / "profile_topN.json").write_text(json.dumps({"top_kernels": rows}))
    (folder / "shapes.json").write_text(json.dumps(shapes))
    (folder / "env_report.json").write_text(json.dumps({"gfx": "gfx942", "device_name": "AMD Instinct MI300X"}))


def cached(folder: Path) -> dict[str, str]:
    """An environment in which bytecode is cached, as in any installed copy; from a read-only folder each run compiles."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return {**environment, "PYTHONPYCACHEPREFIX": str(folder)}


def seconds(command: list[str], environment: dict[str, str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    return time.perf_counter() - start


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    with tempfile.TemporaryDirectory() as name:
        run = Path(name, "run")
        run.mkdir()
        write_run(run)
        environment = cached(Path(name, "cache"))
        imports = f"import sys; sys.path.insert(0, {str(TOOL.parent)!r}); import roofline_engine.roofline"
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "import the model": [sys.executable, "-c", imports],
            "analyze, 8 kernels": [sys.executable, str(TOOL), "analyze", str(run)],
        }
        times: dict[str, list[float]] = {label: [] for label in commands}
        for command in commands.values():  # warm the caches
            seconds(command, environment)
        for _ in range(runs):
            for label, command in commands.items():
                times[label].append(1e3 * seconds(command, environment))
    base = statistics.median(times["python -c pass"])
    for label, values in times.items():
        median = statistics.median(values)
        print(f"{label:20} median {median:6.1f} ms  (+{median - base:5.1f} ms, {median / base:4.2f}x, min {min(values):.1f})")


if __name__ == "__main__":
    main()
