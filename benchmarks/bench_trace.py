"""Whole-process cost of ``analyze`` on a trace, against TraceLens on the same file, run by turns; and a trace of any size.

    python benchmarks/bench_trace.py trace.json.gz [--tracelens COMMAND] [--fast PYTHON] [--runs N]
    python benchmarks/bench_trace.py --make MEGABYTES out.json

--tracelens: the command TraceLens_generate_perf_report_pytorch of an environment that has it.
--fast: a Python with orjson or msgspec, beside the standard library alone.
--make: write a trace of about this size, in torch's layout; with a trace, peak memory is printed as a multiple of its size.
"""

import argparse
import gzip
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
#: Python frames per operation in a trace with_stack; the most of a real trace is frames and arrows.
FRAMES = 12


def seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def peak_bytes(command: list[str]) -> int:
    """Return the peak memory of a command."""
    code = "import resource,subprocess,sys;subprocess.run(sys.argv[1:],stdout=-3,stderr=-3,check=True);"
    code += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    done = subprocess.run([sys.executable, "-c", code, *command], check=True, capture_output=True, text=True)
    return int(done.stdout) * 1024


def make_trace(megabytes: float, path: Path) -> None:
    """Write a trace in the layout of torch's profiler: operations with shapes, launches, kernels, arrows and Python frames."""
    device = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "computeMajor": 9, "computeMinor": 0, "numSms": 132, "warpSize": 32}
    written, number, at = 0, 1, 1e9
    with path.open("w", encoding="utf-8") as stream:
        stream.write(json.dumps({"schemaVersion": 1, "deviceProperties": [device]})[:-1] + ',\n  "traceEvents": [\n')

        def event(first: str, **fields: object) -> None:
            nonlocal written
            args = fields.pop("args", None)
            text = "  {\n    " + json.dumps({"ph": first, **fields})[1:-1]
            text += ',\n    "args": {\n      ' + json.dumps(args)[1:-1] + "\n    }" if args else ""
            stream.write((",\n" if written else "") + text + "\n  }")
            written += len(text) + 6

        while written < megabytes * 1e6:
            m = 1024 * (1 + number % 24)
            args = {"External id": number, "Concrete Inputs": ["", ""], "Input type": ["c10::BFloat16", "c10::BFloat16"]}
            args |= {"Input Strides": [[4096, 1], [1, 4096]], "Input Dims": [[m, 4096], [4096, 4096]], "Ev Idx": number}
            event("X", cat="cpu_op", name="aten::mm", pid=1, tid=1, ts=at, dur=40.0, args=args)
            launch = {"External id": number, "cbid": 211, "correlation": number}
            event("X", cat="cuda_runtime", name="cudaLaunchKernel", pid=1, tid=1, ts=at + 5, dur=4.0, args=launch)
            event("s", id=number, pid=1, tid=1, ts=at + 5, cat="ac2g", name="ac2g")
            launch |= {"device": 0, "stream": 7, "grid": [m // 128, 32, 1], "block": [128, 1, 1]}
            event(
                "X", cat="kernel", name="sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", pid=0, tid=7, ts=at, dur=m / 20, args=launch
            )
            event("f", id=number, pid=0, tid=7, ts=at, cat="ac2g", name="ac2g", bp="e")
            for frame in range(FRAMES):
                args = {"Python parent id": frame, "Python id": FRAMES * number + frame, "Ev Idx": number}
                event("X", cat="python_function", name=f"model.py({frame}): forward", pid=1, tid=1, ts=at, dur=50.0, args=args)
            number, at = number + 1, at + 1300.0
        stream.write('\n  ],\n  "traceName": "made"\n}\n')
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB, {number - 1} operations")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--make", type=float)
    parser.add_argument("--tracelens")
    parser.add_argument("--fast")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    if options.make:
        make_trace(options.make, options.trace)
        return
    with tempfile.TemporaryDirectory() as folder:
        analyze = [str(TOOL), "analyze", str(options.trace), "--by", "op", "--out", folder]
        # -I -S: no installed package, so that the standard library parses
        commands = {"analyze": [sys.executable, "-I", "-S", *analyze]}
        if options.fast:
            commands["analyze, fast"] = [options.fast, *analyze]
        if options.tracelens:
            report = ["--profile_json_path", str(options.trace), "--output_csvs_dir", os.path.join(folder, "csvs")]
            commands["TraceLens"] = [options.tracelens, *report]
        for command in commands.values():
            seconds(command)
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(options.runs):
            for name, command in commands.items():
                times[name].append(seconds(command))
        base = statistics.median(times["analyze"])
        for name, values in times.items():
            print(f"{name:15} {statistics.median(values):.3f} s, {statistics.median(values) / base:.2f} x analyze")
        opener = gzip.open if options.trace.suffix == ".gz" else open
        with opener(options.trace, "rb") as stream:
            size = 0
            while chunk := stream.read(1 << 24):
                size += len(chunk)
        peak = peak_bytes(commands["analyze"])
        print(f"memory          {peak / 1e6:.0f} MB, {peak / size:.2f} of the {size / 1e6:.1f} MB unpacked")


if __name__ == "__main__":
    main()
