"""Benchmarks of attention with pytest-benchmark: no word of FLOPs or bytes."""

import pytest

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("kv_heads", [4, 1])
def test_causal(benchmark, kv_heads):
    q = torch.randn(1, 4, 256, 64)
    k, v = (torch.randn(1, kv_heads, 256, 64) for _ in range(2))
    out = benchmark(torch.nn.functional.scaled_dot_product_attention, q, k, v, is_causal=True, enable_gqa=True)
    assert out.shape == q.shape


def test_gated(benchmark):
    gate, up = (torch.randn(2048, 2048) for _ in range(2))
    benchmark(lambda: torch.nn.functional.silu(gate) * up)
