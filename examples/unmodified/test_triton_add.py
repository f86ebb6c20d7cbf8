"""Correctness of a Triton kernel; without a GPU it runs in Triton's interpreter, which is told before Triton is imported."""

import os

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, numel, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < numel
    x, y = tl.load(x_ptr + offsets, mask=mask), tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


@pytest.mark.parametrize("numel", [98432])
def test_add(numel):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x, y = torch.rand(numel, device=device), torch.rand(numel, device=device)
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(numel, 1024),)](x, y, out, numel, BLOCK=1024)
    torch.testing.assert_close(out, x + y)
