"""Layers of a network in torch."""

import pytest

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def _no_grad():
    with torch.no_grad():
        yield


@pytest.mark.parametrize("tokens", [1, 64, 512])
def test_linear(benchmark, tokens):
    layer, x = torch.nn.Linear(1024, 1024), torch.randn(tokens, 1024)
    benchmark(layer, x)


def test_mlp(benchmark):
    layer = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512))
    benchmark(layer, torch.randn(256, 512))


def test_layer_norm(benchmark):
    layer, x = torch.nn.LayerNorm(1024), torch.randn(2048, 1024)
    benchmark(layer, x)


def test_relu(benchmark):
    x = torch.randn(4_000_000)
    benchmark(torch.relu, x)


def test_embedding(benchmark):
    layer, ids = torch.nn.Embedding(30_000, 256), torch.randint(0, 30_000, (4096,))
    benchmark(layer, ids)
