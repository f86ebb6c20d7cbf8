"""Time and memory of ``roofline check`` over 50,000 and 500,000 rows of a tuner's table, as a whole process.

    python benchmarks/bench_check.py [ROWS]

Prints both and their ratio: ten times the rows should cost ten times the time and no more memory.
"""

import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HEAD = "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName,err_ratio,tflops,bw\n"


def write(path: Path, rows: int) -> None:
    """Rows of many shapes, three kernels each, with the rates that their time gives."""
    chance = random.Random(1)
    with path.open("w") as handle:
        handle.write(HEAD)
        for at in range(rows):
            if at % 3 == 0:
                m, n, k = chance.randrange(1, 16384), 64 * chance.randrange(1, 512), 64 * chance.randrange(1, 256)
            us = round(max(2 * m * n * k / 1.2e9, 2 * (m * k + n * k + m * n) / 5e6, 5.0) * chance.uniform(1, 3), 4)
            tflops, bw = round(2 * m * n * k / us / 1e6, 2), round(2 * (m * k + n * k + m * n) / us / 1e3, 2)
            handle.write(
                f"gfx950,256,{m},{n},{k},False,torch.bfloat16,torch.bfloat16,False,False,asm,{at},0,{us},kernel_{at % 997},"
                f"0.0,{tflops},{bw}\n"
            )


def measure(path: Path) -> tuple[float, float]:
    command = "import sys; from pytest_roofline.cli import main; sys.exit(main())"
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", command, "check", str(path)], stdout=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0
    return time.perf_counter() - start, usage.ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    with tempfile.TemporaryDirectory() as name:
        found = []
        for count in (rows, 10 * rows):
            path = Path(name, "tuned.csv")
            write(path, count)
            runs = [measure(path) for _ in range(2 if count == rows else 1)]
            found.append(min(runs))
            print(f"{count:8} rows: {found[-1][0]:6.2f} s, peak {found[-1][1]:5.0f} MiB", flush=True)
    (first, small), (second, large) = found
    print(f"ratio 10x rows: time {second / first:.1f}x, memory {large / small:.2f}x")


if __name__ == "__main__":
    main()
