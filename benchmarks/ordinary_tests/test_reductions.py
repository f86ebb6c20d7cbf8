"""Sums, means and norms in numpy."""

import numpy as np
import pytest

rng = np.random.default_rng(1)


@pytest.mark.parametrize("n", [10_000, 1_000_000, 20_000_000])
def test_sum(benchmark, n):
    x = rng.random(n)
    benchmark(np.sum, x)


def test_mean_of_columns(benchmark):
    x = rng.random((5000, 500))
    benchmark(np.mean, x, axis=0)


def test_max_of_rows(benchmark):
    x = rng.random((500, 5000), np.float32)
    benchmark(np.max, x, axis=1)


def test_dot_of_vectors(benchmark):
    x, y = rng.random(500_000), rng.random(500_000)
    benchmark(np.dot, x, y)


def test_norm(benchmark):
    x = rng.random((1000, 1000))
    benchmark(lambda: np.sqrt((x * x).sum()))
