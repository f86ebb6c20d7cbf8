"""Times of the roofline fixture, and a loop of Python."""

import numpy as np
import pytest

rng = np.random.default_rng(5)


@pytest.mark.parametrize("n", [100_000, 4_000_000])
def test_sum_of_squares(roofline, n):
    x = rng.random(n)
    roofline.measure(lambda: np.dot(x, x))


def test_product(roofline):
    a, b = rng.random((768, 768), np.float32), rng.random((768, 768), np.float32)
    roofline.measure(np.matmul, a, b)


@pytest.mark.roofline(cache="cold")
def test_cold_copy(roofline):
    x = np.ones(4_000_000)
    roofline.measure(np.copy, x)


def test_standardize(roofline):
    x = rng.random((2000, 400))
    roofline.measure(lambda: (x - x.mean(axis=0)) / x.std(axis=0))


def test_distances(roofline):
    a, b = rng.random((500, 64)), rng.random((400, 64))
    roofline.measure(lambda: (a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * a @ b.T)
