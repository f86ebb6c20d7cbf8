"""pytest-benchmark on functions of numpy."""

import numpy as np


def test_matmul(benchmark):
    a, b = np.ones((256, 512), np.float32), np.ones((512, 1024), np.float32)
    benchmark(np.matmul, a, b)


def test_axpy(benchmark):
    x, y = np.ones(1 << 22), np.ones(1 << 22)
    benchmark(lambda x, y: 2.0 * x + y, x, y)
