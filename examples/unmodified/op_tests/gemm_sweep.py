"""Sweep numpy's GEMM over batch sizes and check it against a float64 product."""

import argparse
import csv
import statistics
import time

import numpy as np

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("-m", type=int, nargs="*", default=[64, 256, 1024])
parser.add_argument("-n", type=int, default=1024)
parser.add_argument("-k", type=int, default=1024)
parser.add_argument("--csv", default="gemm_sweep.csv")
args = parser.parse_args()


def run_perftest(fn, *operands, iters=20, warmup=3):
    for _ in range(warmup):
        fn(*operands)
    times = []
    for _ in range(iters):
        start = time.perf_counter()
        fn(*operands)
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def test_gemm(m, n, k):
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    reference = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(a @ b, reference, rtol=1e-3, atol=1e-3)
    us = run_perftest(np.matmul, a, b)
    moved = 4 * (m * k + k * n + m * n)
    return {
        "dtype": "fp32",
        "outdtype": "fp32",
        "m": m,
        "n": n,
        "k": k,
        "numpy us": round(us, 2),
        "numpy TFLOPS": f"{2 * m * n * k / us / 1e6:.4g}",
        "numpy TB/s": f"{moved / us / 1e6:.4g}",
    }


rows = [test_gemm(m, args.n, args.k) for m in args.m]
with open(args.csv, "w", newline="") as stream:
    writer = csv.DictWriter(stream, rows[0])
    writer.writeheader()
    writer.writerows(rows)
print(f"wrote {len(rows)} rows to {args.csv}")
