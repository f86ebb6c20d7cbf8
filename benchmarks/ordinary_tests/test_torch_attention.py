"""Attention and its parts in torch."""

import pytest

torch = pytest.importorskip("torch")
from torch.nn import functional  # noqa: E402


@pytest.mark.parametrize("length", [128, 512])
def test_attention(benchmark, length):
    q, k, v = (torch.randn(1, 8, length, 64) for _ in range(3))
    benchmark(functional.scaled_dot_product_attention, q, k, v)


def test_scores(benchmark):
    q, k = torch.randn(8, 512, 64), torch.randn(8, 512, 64)
    benchmark(lambda: q @ k.transpose(-1, -2))


def test_softmax(benchmark):
    x = torch.randn(8 * 512, 512)
    benchmark(torch.softmax, x, -1)


def test_rms_norm(benchmark):
    x, weight = torch.randn(2048, 1024), torch.ones(1024)
    benchmark(functional.rms_norm, x, (1024,), weight)
