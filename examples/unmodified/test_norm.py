"""Correctness of a norm, as libraries test their layers: sizes by parametrize, a reference, no timing."""

import pytest

torch = pytest.importorskip("torch")


def reference(x, weight, eps=1e-6):
    scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + eps)
    return (x.float() * scale * weight.float()).to(x.dtype)


@pytest.mark.parametrize("num_tokens", [7, 4096])
@pytest.mark.parametrize("hidden_size", [1024])
def test_rms_norm(num_tokens, hidden_size):
    torch.manual_seed(0)
    x = torch.randn(num_tokens, hidden_size)
    weight = torch.randn(hidden_size)
    out = torch.nn.functional.rms_norm(x, (hidden_size,), weight, eps=1e-6)
    torch.testing.assert_close(out, reference(x, weight), atol=1e-4, rtol=1e-4)
