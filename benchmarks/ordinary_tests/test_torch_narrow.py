"""bf16 and fp16 in torch on the CPU."""

import pytest

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("n", [256, 1024])
def test_product_in_bf16(benchmark, n):
    a, b = torch.randn(n, n, dtype=torch.bfloat16), torch.randn(n, n, dtype=torch.bfloat16)
    benchmark(torch.mm, a, b)


def test_product_in_fp16(benchmark):
    a, b = torch.randn(128, 128, dtype=torch.float16), torch.randn(128, 128, dtype=torch.float16)
    benchmark(torch.mm, a, b)


def test_add_in_bf16(benchmark):
    a, b = torch.randn(4_000_000).bfloat16(), torch.randn(4_000_000).bfloat16()
    benchmark(torch.add, a, b)


def test_to_bf16(benchmark):
    x = torch.randn(4_000_000)
    benchmark(lambda: x.to(torch.bfloat16))
