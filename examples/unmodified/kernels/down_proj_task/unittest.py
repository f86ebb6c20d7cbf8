"""Correctness and per-case speedup of the candidate over the baseline. Exit status: 0 pass, 1 wrong, 2 environment."""

import json
import math
import pathlib
import statistics
import sys
import time

try:
    import numpy as np
except ImportError as error:
    print(f"environment: {error}", file=sys.stderr)
    sys.exit(2)

META = json.loads((pathlib.Path(__file__).parent / "meta.json").read_text())


def baseline(a, b):
    """The weight is transposed at each call."""
    return a @ np.ascontiguousarray(b.T)


def candidate(a, b):
    return a @ b.T


def time_op(fn, *operands, iters=15):
    times = []
    for _ in range(iters):
        start = time.perf_counter()
        fn(*operands)
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def main():
    rng = np.random.default_rng(0)
    n, k = META["b_shape"]
    b = rng.standard_normal((n, k), np.float32)
    per_case, passed = [], True
    for case in META["workload"]["cases"]:
        a = rng.standard_normal((case["m"], k), np.float32)
        passed &= bool(np.allclose(candidate(a, b), baseline(a, b), rtol=1e-3, atol=1e-3))
        before, after = time_op(baseline, a, b), time_op(candidate, a, b)
        per_case.append(
            {
                "sig": case["name"],
                "regime": case["regime"],
                "m": case["m"],
                "baseline_ms": round(before, 4),
                "optimized_ms": round(after, 4),
                "speedup": round(before / after, 4),
            }
        )
    print("GEAK_PER_CASE " + json.dumps(per_case))
    geomean = math.exp(statistics.fmean(math.log(case["baseline_ms"] / case["optimized_ms"]) for case in per_case))
    print(f"GEAK_GEOMEAN_SPEEDUP {geomean:.4f}")
    print(f"RESULT {'PASS' if passed else 'FAIL'} (oracle={passed})")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
