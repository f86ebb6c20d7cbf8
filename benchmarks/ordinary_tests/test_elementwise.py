"""Elementwise arithmetic in numpy, from a few kilobytes to more than the caches."""

import numpy as np
import pytest


@pytest.mark.parametrize("n", [1_000, 10_000, 100_000, 1_000_000, 10_000_000])
def test_add(benchmark, n):
    a, b, out = np.ones(n), np.ones(n), np.empty(n)
    benchmark(np.add, a, b, out=out)


def test_axpy(benchmark):
    x, y = np.ones(2_000_000, np.float32), np.ones(2_000_000, np.float32)
    benchmark(lambda: 2 * x + y)


def test_clip(benchmark):
    x = np.linspace(-1, 1, 500_000)
    benchmark(np.clip, x, -0.5, 0.5)


def test_exp(benchmark):
    x = np.linspace(-1, 1, 200_000)
    benchmark(np.exp, x)


def test_where(benchmark):
    x = np.linspace(-1, 1, 500_000)
    benchmark(lambda: np.where(x > 0, x, 0.1 * x))
