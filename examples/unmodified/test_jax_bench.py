"""pytest-benchmark on a jitted function of JAX."""

import pytest

jax = pytest.importorskip("jax")


def test_softmax(benchmark):
    x = jax.numpy.ones((2048, 1024))
    softmax = jax.jit(jax.nn.softmax)
    benchmark(lambda: softmax(x).block_until_ready())


def test_matmul(benchmark):
    a, b = jax.numpy.ones((256, 512)), jax.numpy.ones((512, 1024))
    benchmark(lambda a, b: (a @ b).block_until_ready(), a, b)
