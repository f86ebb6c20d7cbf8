"""Products of matrices and vectors in numpy."""

import numpy as np
import pytest

rng = np.random.default_rng(0)


@pytest.mark.parametrize("n", [128, 512, 1024])
def test_square_product(benchmark, n):
    a, b = rng.random((n, n), np.float32), rng.random((n, n), np.float32)
    assert benchmark(np.matmul, a, b).shape == (n, n)


def test_product_in_double_precision(benchmark):
    a, b = rng.random((600, 400)), rng.random((400, 800))
    benchmark(lambda: a @ b)


def test_matrix_vector(benchmark):
    a, x = rng.random((2000, 3000)), rng.random(3000)
    benchmark(np.dot, a, x)


def test_gram_matrix(benchmark):
    x = rng.random((4000, 256))
    benchmark(lambda: x.T @ x)


def test_einsum_of_a_batch(benchmark):
    a, b = rng.random((16, 64, 64), np.float32), rng.random((16, 64, 64), np.float32)
    benchmark(np.matmul, a, b)
