"""Reading alone: rows of a tuned-GEMM CSV to records per second of processor time, and what ten times the rows cost.

    python benchmarks/bench_ingest.py

Prints the rate, its ratio to Python's own csv reader over the same file, and how time and memory grow from 50,000 to 500,000
rows: ten times the time, the same memory.
"""

import csv
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pytest_roofline.records.formats.aiter import TUNED_GEMM
from pytest_roofline.records.source import open_source

HEADER = "gfx,cu_num,M,N,K,q_dtype_w,libtype,kernelId,splitK,us,kernelName,tflops,bw,errRatio"


def write(path: Path, rows: int) -> Path:
    rng = random.Random(0)
    with path.open("w", encoding="utf-8") as out:
        out.write(HEADER + "\n")
        for _ in range(rows):
            m, n, k = rng.randint(1, 65536), 128 * rng.randint(1, 256), 128 * rng.randint(1, 64)
            us = round(rng.uniform(5, 5000), 4)
            tflops, bw = round(2 * m * n * k / us / 1e6, 2), round((m * k + n * k + 2 * m * n) / us / 1e3, 2)
            name = f"a8w8_bpreshuffle_256x{rng.randint(1, 16) * 16}x128x128_16x16_16x16_8x32x1_intrawave_v3"
            out.write(f"gfx942,80,{m},{n},{k},torch.float8_e4m3fnuz,ck,10,0,{us},{name},{tflops},{bw},0.0\n")
    return path


def seconds(path: Path) -> float:
    start = time.process_time()
    rows = sum(1 for record in TUNED_GEMM.read(open_source(path)) if not record.refused)
    done = time.process_time() - start
    assert rows, path
    return done


def plain(path: Path) -> float:
    start = time.process_time()
    with path.open(newline="", encoding="utf-8") as handle:
        sum(1 for _ in csv.reader(handle))
    return time.process_time() - start


def memory(path: Path) -> float:
    """The highest resident MiB of a process of its own that reads the file."""
    program = (
        "import resource, sys\nfrom pathlib import Path\nfrom pytest_roofline.records.formats.aiter import TUNED_GEMM\n"
        "from pytest_roofline.records.source import open_source\n"
        "for _ in TUNED_GEMM.read(open_source(Path(sys.argv[1]))): pass\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    return int(done.stdout) / (1024 if sys.platform != "darwin" else 1024**2)


def main() -> None:
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for rows in (50_000, 500_000):
            path = write(Path(folder, f"{rows}.csv"), rows)
            best, floor = (min(measure(path) for _ in range(3)) for measure in (seconds, plain))
            found[rows] = best, memory(path)
            print(
                f"{rows:7,} rows: {best:6.3f} s, {rows / best:9,.0f} rows/s, {best / floor:4.1f}x csv.reader, "
                f"peak {found[rows][1]:4.0f} MiB"
            )
    grown = [later / earlier for later, earlier in zip(found[500_000], found[50_000])]
    print(f"ratio 10x rows: time {grown[0]:.1f}x, memory {grown[1]:.2f}x")


if __name__ == "__main__":
    main()
