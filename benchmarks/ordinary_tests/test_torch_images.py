"""Convolutions and pooling in torch."""

import pytest

torch = pytest.importorskip("torch")
from torch.nn import functional  # noqa: E402


@pytest.mark.parametrize("channels", [16, 64])
def test_convolution(benchmark, channels):
    x, weight = torch.randn(4, channels, 56, 56), torch.randn(channels, channels, 3, 3)
    benchmark(functional.conv2d, x, weight, padding=1)


def test_pointwise_convolution(benchmark):
    x, weight = torch.randn(4, 64, 56, 56), torch.randn(128, 64, 1, 1)
    benchmark(functional.conv2d, x, weight)


def test_max_pool(benchmark):
    x = torch.randn(8, 64, 112, 112)
    benchmark(functional.max_pool2d, x, 2)


def test_batch_norm(benchmark):
    layer, x = torch.nn.BatchNorm2d(64).eval(), torch.randn(8, 64, 56, 56)
    benchmark(lambda: layer(x).detach())
