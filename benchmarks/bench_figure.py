"""Time and size of the interactive page, as a whole process, beside a bare interpreter and the smallest page in the same run.

    python benchmarks/bench_figure.py [RUNS]

Inputs: an artifact of ``analyze`` with 5,000 kernels, a plain table of 5,000 with C++ names, and one kernel. Needs the extra
``plot``. The page of Vega's engine is made before anything is timed, as it is once on a machine.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench_analyze import TOOL, cached, seconds, write_run

KERNELS = 5_000
NAME = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_{}_256x128_ldg8_f2f_stages_64x3_nn_align8>(Params)"
ROOFS = {
    "ceilings": [{"name": "bf16 matrix", "gflops": 312_000.0}],
    "bandwidths": [{"name": "HBM", "level": "hbm", "gbs": 2039.0}],
}


def table(kernels: int) -> dict[str, object]:
    """Kernels over five decades of intensity, at every percent of their roof."""
    rows = []
    for at in range(kernels):
        intensity = 10 ** (5 * (at * 0.6180339887 % 1) - 1.5)
        rate = (at * 0.4142135623 % 1 or 0.5) * min(intensity * 2039.0, 312_000.0)
        rows.append({"name": NAME.format(at), "intensity": intensity, "gflops": rate, "share": 100 / kernels})
    return {**ROOFS, "kernels": rows}


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_run(folder, KERNELS)
        environment = cached(folder / "cache")
        analyze = [sys.executable, str(TOOL), "analyze", str(folder), "--head-pct", "0", "--head-max", "0"]
        subprocess.run(analyze, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        inputs = {
            "one kernel": "one.json",
            f"a table of {KERNELS:,}": "many.json",
            f"{KERNELS:,} analysed": "profile_roofline.json",
        }
        (folder / "one.json").write_text(json.dumps(table(1)))
        (folder / "many.json").write_text(json.dumps(table(KERNELS)))
        plot = [sys.executable, "-c", "import sys; from pytest_roofline.cli import main; sys.exit(main())", "plot"]
        commands = {"python -c pass": [sys.executable, "-c", "pass"]}
        commands |= {label: [*plot, str(folder / file), "-o", str(folder / f"{file}.html")] for label, file in inputs.items()}
        times: dict[str, list[float]] = {label: [] for label in commands}
        for command in commands.values():  # warm the caches
            seconds(command, environment)
        for _ in range(runs):
            for label, command in commands.items():
                times[label].append(seconds(command, environment))
        sizes = {label: (folder / f"{file}.html").stat().st_size / 1e6 for label, file in inputs.items()}
    smallest = statistics.median(times["one kernel"])
    for label, values in times.items():
        median = statistics.median(values)
        size = f", {sizes[label]:.2f} MB" if label in sizes else ""
        print(f"{label:20} median {median:5.2f} s ({median / smallest:4.2f}x of one kernel's, min {min(values):.2f}){size}")


if __name__ == "__main__":
    main()
