"""A test that times its kernel itself and returns what it found, a column each."""

import time

import numpy as np
import pytest


def bench(fn, *args, rounds=20):
    fn(*args)
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        fn(*args)
        times.append(time.perf_counter() - start)
    return 1e6 * sorted(times)[rounds // 2]


@pytest.mark.parametrize(("m", "n", "k"), [(256, 1024, 512)])
@pytest.mark.parametrize("dtype", [np.float32])
def test_gemm(m, n, k, dtype):
    a, b = np.ones((m, k), dtype), np.ones((k, n), dtype)
    us = bench(np.matmul, a, b)
    return {"numpy us": us, "numpy TFLOPS": 2 * m * n * k / us / 1e6}
