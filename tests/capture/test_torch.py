"""A torch call that is watched once: its work equals the engine's model, and watching changes nothing."""

from __future__ import annotations

import ctypes
import random
import threading
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_roofline.capture.trace import CapturedWork
from roofline_engine.ops import work
from roofline_engine.work import Work


@pytest.fixture(scope="module")
def torch() -> Any:
    """Import torch in a test, not with the file: collecting these tests must not import torch for the others."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    torch.manual_seed(0)
    return torch


def capture(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> CapturedWork:
    from pytest_roofline.capture.torch.watch import capture

    return capture(fn, args, kwargs)[1]


def texts(captured: CapturedWork) -> list[str]:
    return [item.text for item in captured.notes]


def done(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Work:
    captured = capture(fn, *args, **kwargs)
    assert captured.work is not None, captured.reason
    return captured.work


class Case(NamedTuple):
    """call: the callable and its arguments. flops, nbytes: what they are by hand, of fp32 unless the case has another dtype."""

    name: str
    call: Callable[[Any], tuple[Any, ...]]
    op: str
    parameters: dict[str, Any]
    flops: float
    nbytes: float


def F(torch: Any) -> Any:  # noqa: N802
    return torch.nn.functional


GEMM = {"M": 8, "N": 32, "K": 16, "dtype": "fp32"}
A_B_C = 4 * (8 * 16 + 16 * 32 + 8 * 32)
CONV = {"batch": 2, "in_channels": 4, "out_channels": 6, "dtype": "fp32"}
ROWS = {"rows": 8, "cols": 16, "dtype": "fp32"}
ONE_WAY = 4 * 8 * 16

CASES = [
    Case("mm", lambda t: (t.mm, t.ones(8, 16), t.ones(16, 32)), "gemm", GEMM, 2 * 8 * 32 * 16, A_B_C),
    Case("matmul_nt", lambda t: (t.matmul, t.ones(8, 16), t.ones(32, 16).t()), "gemm", GEMM, 2 * 8 * 32 * 16, A_B_C),
    Case("mv", lambda t: (t.mv, t.ones(8, 16), t.ones(16)), "gemm", {**GEMM, "N": 1}, 2 * 8 * 16, 4 * (8 * 16 + 16 + 8)),
    Case("dot", lambda t: (t.dot, t.ones(16), t.ones(16)), "gemm", {**GEMM, "M": 1, "N": 1}, 2 * 16, 4 * (16 + 16 + 1)),
    Case("addmm_bias", lambda t: (t.addmm, t.ones(32), t.ones(8, 16), t.ones(16, 32)), "gemm", {**GEMM, "addend": 32},
         2 * 8 * 32 * 16, A_B_C + 4 * 32),
    Case("addmm_c", lambda t: (t.addmm, t.ones(8, 32), t.ones(8, 16), t.ones(16, 32)), "gemm", {**GEMM, "addend": 8 * 32},
         2 * 8 * 32 * 16, A_B_C + 4 * 8 * 32),
    Case("addmm_beta_0", lambda t: (lambda c, a, b: t.addmm(c, a, b, beta=0), t.ones(8, 32), t.ones(8, 16), t.ones(16, 32)),
         "gemm", GEMM, 2 * 8 * 32 * 16, A_B_C),
    Case("bmm", lambda t: (t.bmm, t.ones(3, 8, 16), t.ones(3, 16, 32)), "gemm", {**GEMM, "batch": 3}, 3 * 2 * 8 * 32 * 16,
         3 * A_B_C),
    Case("baddbmm", lambda t: (t.baddbmm, t.ones(3, 8, 32), t.ones(3, 8, 16), t.ones(3, 16, 32)), "gemm",
         {**GEMM, "batch": 3, "addend": 3 * 8 * 32}, 3 * 2 * 8 * 32 * 16, 3 * (A_B_C + 4 * 8 * 32)),
    Case("linear", lambda t: (F(t).linear, t.ones(2, 4, 16), t.ones(32, 16)), "gemm", GEMM, 2 * 8 * 32 * 16, A_B_C),
    Case("linear_bias", lambda t: (F(t).linear, t.ones(8, 16), t.ones(32, 16), t.ones(32)), "gemm", {**GEMM, "addend": 32},
         2 * 8 * 32 * 16, A_B_C + 4 * 32),
    Case("linear_bf16", lambda t: (F(t).linear, t.ones(8, 16).bfloat16(), t.ones(32, 16).bfloat16()), "gemm",
         {**GEMM, "dtype": "bf16"}, 2 * 8 * 32 * 16, A_B_C / 2),
    Case("int_mm", lambda t: (t._int_mm, t.ones(32, 32, dtype=t.int8), t.ones(32, 32, dtype=t.int8)), "gemm",
         {"M": 32, "N": 32, "K": 32, "dtype": "int8", "out_dtype": "int32"}, 2 * 32**3, 32 * 32 * (1 + 1 + 4)),
    Case("scaled_mm", lambda t: (lambda a, b, s: t._scaled_mm(a, b.t(), s, s, out_dtype=t.bfloat16),
                                 t.ones(16, 32).to(t.float8_e4m3fn), t.ones(48, 32).to(t.float8_e4m3fn), t.ones(())),
         "gemm", {"M": 16, "N": 48, "K": 32, "dtype": "fp8", "out_dtype": "bf16"}, 2 * 16 * 48 * 32,
         16 * 32 + 32 * 48 + 2 * 16 * 48),
    Case("conv1d", lambda t: (F(t).conv1d, t.ones(2, 4, 10), t.ones(6, 4, 3)), "conv1d",
         {**CONV, "input": [10], "kernel": [3]}, 2 * 2 * 6 * 8 * 4 * 3, 4 * (2 * 4 * 10 + 6 * 4 * 3 + 2 * 6 * 8)),
    Case("conv2d", lambda t: (lambda x, w, b: F(t).conv2d(x, w, b, stride=2, padding=1, groups=2),
                              t.ones(2, 4, 9, 9), t.ones(6, 2, 3, 3), t.ones(6)), "conv2d",
         {**CONV, "input": [9, 9], "kernel": [3, 3], "stride": 2, "padding": 1, "groups": 2, "bias": True},
         2 * 2 * 6 * 25 * 2 * 9, 4 * (2 * 4 * 81 + 6 * 2 * 9 + 6 + 2 * 6 * 25)),
    Case("conv3d", lambda t: (F(t).conv3d, t.ones(2, 4, 5, 5, 5), t.ones(6, 4, 2, 2, 2)), "conv3d",
         {**CONV, "input": [5, 5, 5], "kernel": [2, 2, 2]}, 2 * 2 * 6 * 64 * 4 * 8, 4 * (2 * 4 * 125 + 6 * 4 * 8 + 2 * 6 * 64)),
    Case("conv_transpose2d", lambda t: (lambda x, w: F(t).conv_transpose2d(x, w, stride=2), t.ones(2, 6, 4, 4),
                                        t.ones(6, 4, 3, 3)), "conv2d",
         {**CONV, "input": [9, 9], "kernel": [3, 3], "stride": 2, "direction": "data"},
         2 * 2 * 6 * 16 * 4 * 9, 4 * (2 * 4 * 81 + 6 * 4 * 9 + 2 * 6 * 16)),
    Case("softmax", lambda t: (lambda x: t.softmax(x, -1), t.ones(8, 16)), "softmax", ROWS, 5 * 8 * 16, 2 * ONE_WAY),
    Case("log_softmax", lambda t: (lambda x: t.log_softmax(x, -1), t.ones(8, 16)), "softmax", ROWS, 5 * 8 * 16, 2 * ONE_WAY),
    Case("layer_norm", lambda t: (F(t).layer_norm, t.ones(8, 16), (16,), t.ones(16), t.ones(16)), "layernorm", ROWS,
         7 * 8 * 16, 2 * ONE_WAY + 2 * 4 * 16),
    Case("layer_norm_plain", lambda t: (F(t).layer_norm, t.ones(8, 16), (16,)), "layernorm", {**ROWS, "weights": 0},
         5 * 8 * 16, 2 * ONE_WAY),
    Case("rms_norm", lambda t: (F(t).rms_norm, t.ones(8, 16), (16,), t.ones(16)), "rmsnorm", ROWS, 4 * 8 * 16,
         2 * ONE_WAY + 4 * 16),
    Case("rms_norm_module", lambda t: (t.nn.RMSNorm(16, elementwise_affine=False), t.ones(2, 4, 16)), "rmsnorm",
         {**ROWS, "weights": 0}, 3 * 8 * 16, 2 * ONE_WAY),
    Case("cross_entropy", lambda t: (F(t).cross_entropy, t.ones(8, 16), t.zeros(8, dtype=t.int64)), "cross_entropy", ROWS,
         4 * 8 * 16, ONE_WAY + 4 * 8),
    Case("gelu", lambda t: (F(t).gelu, t.ones(8, 16)), "elementwise", {"numel": 128, "dtype": "fp32"}, 128, 2 * ONE_WAY),
    Case("mul", lambda t: (t.mul, t.ones(8, 16), t.ones(8, 16)), "elementwise", {"numel": 128, "inputs": 2, "dtype": "fp32"},
         128, 3 * ONE_WAY),
    Case("add_", lambda t: (lambda x, y: x.add_(y), t.ones(8, 16), t.ones(8, 16)), "elementwise",
         {"numel": 128, "inputs": 2, "dtype": "fp32"}, 128, 3 * ONE_WAY),
    Case("gt", lambda t: (t.gt, t.ones(8, 16), 0), "elementwise", {"numel": 128, "dtype": "fp32", "out_dtype": "bool"}, 128,
         ONE_WAY + 128),
    Case("clone", lambda t: (t.clone, t.ones(8, 16)), "copy", ROWS, 0, 2 * ONE_WAY),
    Case("copy_", lambda t: (lambda x, y: x.copy_(y), t.ones(8, 16), t.ones(8, 16)), "copy", ROWS, 0, 2 * ONE_WAY),
    Case("to", lambda t: (lambda x: x.to(t.bfloat16), t.ones(8, 16)), "copy", {**ROWS, "out_dtype": "bf16"}, 0, 1.5 * ONE_WAY),
    Case("fp8", lambda t: (lambda x: x.to(t.float8_e5m2), t.ones(8, 16)), "copy", {**ROWS, "out_dtype": "fp8"}, 0,
         1.25 * ONE_WAY),
    Case("transpose", lambda t: (lambda x: x.t().contiguous(), t.ones(16, 8)), "transpose", ROWS, 0, 2 * ONE_WAY),
    Case("cat", lambda t: (lambda *x: t.cat(x), t.ones(4, 16), t.ones(4, 16)), "cat", ROWS, 0, 2 * ONE_WAY),
    Case("sum", lambda t: (lambda x: x.sum(-1), t.ones(8, 16)), "reduce", ROWS, 128, ONE_WAY + 4 * 8),
    Case("amax", lambda t: (lambda x: x.amax(-1), t.ones(8, 16)), "reduce", ROWS, 128, ONE_WAY + 4 * 8),
    Case("mean_all", lambda t: (t.mean, t.ones(8, 16)), "reduce", {**ROWS, "rows": 1, "cols": 128}, 128, ONE_WAY + 4),
    Case("embedding", lambda t: (F(t).embedding, t.arange(8), t.ones(100, 16)), "gather", ROWS, 0, 2 * ONE_WAY + 8 * 8),
    Case("index_select", lambda t: (lambda x, i: x.index_select(0, i), t.ones(100, 16), t.arange(8)), "gather", ROWS, 0,
         2 * ONE_WAY + 8 * 8),
    Case("index", lambda t: (lambda x, i: x[i], t.ones(100, 16), t.arange(8)), "gather", ROWS, 0, 2 * ONE_WAY + 8 * 8),
    Case("topk", lambda t: (lambda x: x.topk(3), t.ones(8, 16)), "topk", {**ROWS, "k": 3}, 128, ONE_WAY + 8 * 3 * (4 + 4)),
]  # fmt: skip


@pytest.mark.parametrize("mode", ["eager", "no_grad", "inference_mode"])
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_captured_work_is_the_engines(case: Case, mode: str, torch: Any) -> None:
    """Bytes and FLOPs of the model, and the right numbers; the same with and without autograd."""
    with {"eager": torch.enable_grad, "no_grad": torch.no_grad, "inference_mode": torch.inference_mode}[mode]():
        fn, *args = case.call(torch)
        captured = capture(fn, *args)
    assert captured.work is not None, captured.reason
    expected = work(case.op, **case.parameters)
    assert captured.work == expected
    assert (captured.work.flops, captured.work.bytes) == (case.flops, case.nbytes)
    assert captured.operations == 1
    assert captured.certain


def test_meta_tensors_have_work_without_memory(torch: Any) -> None:
    a = torch.empty(1 << 16, 1 << 16, device="meta")
    assert done(torch.mm, a, a.clone()) == work("gemm", M=1 << 16, N=1 << 16, K=1 << 16, dtype="fp32")


# Attention. torch's own counter has 0 for the CPU's kernel, counts all pairs of a causal mask, and is wrong on GQA.


def attend(torch: Any, backend: str, q: Any, k: Any, v: Any, **kwargs: Any) -> Any:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(getattr(SDPBackend, backend)):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, **kwargs)


BACKENDS = pytest.mark.parametrize("backend", ["FLASH_ATTENTION", "MATH"])
HEADS = pytest.mark.parametrize(("heads", "kv_heads"), [(12, 12), (12, 4), (12, 1)])
CAUSAL = pytest.mark.parametrize("causal", [False, True])


@BACKENDS
@HEADS
@CAUSAL
def test_attention(backend: str, heads: int, kv_heads: int, causal: bool, torch: Any) -> None:
    """2 FLOPs x 12 heads x (64 + 64) x pairs: 64 x 64 of them, or 64 x 65 / 2; both backends compute the same function."""
    q, k, v = torch.ones(1, heads, 64, 64), torch.ones(1, kv_heads, 64, 64), torch.ones(1, kv_heads, 64, 64)
    captured = capture(attend, torch, backend, q, k, v, is_causal=causal, enable_gqa=heads != kv_heads)
    sizes = {"batch": 1, "n_q_heads": heads, "n_kv_heads": kv_heads, "head_dim": 64, "seq_q": 64}
    assert captured.work == work("attn_prefill", **sizes, causal=causal, dtype="fp32")
    assert captured.work.flops == 2 * heads * 128 * (64 * 65 // 2 if causal else 64 * 64)
    assert captured.work.flops == 12_582_912 or causal
    assert captured.work.bytes == 4 * 64 * 64 * (2 * heads + 2 * kv_heads)


@pytest.mark.parametrize(("n_q", "n_kv", "pairs", "keys"), [(4, 6, 10, 4), (6, 4, 10 + 2 * 4, 4), (5, 5, 15, 5)])
def test_torchs_causal_mask_is_aligned_at_the_top_left(n_q: int, n_kv: int, pairs: int, keys: int, torch: Any) -> None:
    """Query i sees the keys 0 to i, so the ones after the last query are not read."""
    q, k, v = torch.ones(2, 3, n_q, 8), torch.ones(2, 3, n_kv, 8), torch.ones(2, 3, n_kv, 8)
    mask = torch.ones(n_q, n_kv, dtype=torch.bool).tril()
    assert int(mask.sum()) == pairs
    found = done(torch.nn.functional.scaled_dot_product_attention, q, k, v, is_causal=True)
    assert found.flops == 2 * 2 * 3 * (8 + 8) * pairs
    assert found.bytes == 4 * 2 * 3 * 8 * (2 * n_q + 2 * keys)


MASKS = [
    ("hides nothing", lambda t: t.zeros(16, 16), 256, 4 * 256),
    ("of values", lambda t: t.full((16, 16), float("-inf")).triu(1), 136, 4 * 256),  # 16 x 17 / 2
    ("of truths", lambda t: t.ones(16, 16, dtype=t.bool).tril(), 136, 256),
    ("of a head", lambda t: t.ones(1, 1, 16, 16, dtype=t.bool).tril(), 136, 256),
    ("expanded", lambda t: (t.arange(16) < 4).expand(16, 16), 64, 16),  # four keys each
]  # fmt: skip


@pytest.mark.parametrize(("mask", "pairs", "nbytes"), [case[1:] for case in MASKS], ids=[case[0] for case in MASKS])
@pytest.mark.parametrize("backward", [False, True])
def test_a_mask_gives_the_exact_number_of_pairs(
    mask: Callable[[Any], Any], pairs: int, nbytes: int, backward: bool, torch: Any
) -> None:
    """Two products forward, four backward where the scores were kept: 2 FLOPs x 2 heads x 8 a pair each."""
    q, k, v = (torch.ones(1, 2, 16, 8, requires_grad=backward) for _ in range(3))
    given = mask(torch)

    def step() -> Any:
        out = attend(torch, "MATH", q, k, v, attn_mask=given)
        return torch.autograd.grad(out, (q, k, v), torch.ones_like(out)) if backward else out

    captured = capture(step)
    assert captured.work is not None
    assert captured.certain
    assert captured.work.flops == (6 if backward else 2) * 2 * 2 * 8 * pairs
    if not backward:
        assert captured.work.bytes == 4 * 4 * (2 * 16 * 8) + nbytes


def test_an_unreadable_mask_bounds_the_pairs(torch: Any) -> None:
    q, mask = torch.empty(1, 2, 16, 8, device="meta"), torch.empty(16, 16, device="meta")
    captured = capture(F(torch).scaled_dot_product_attention, q, q.clone(), q.clone(), mask)
    assert captured.work is not None
    assert (captured.work.flops, captured.certain) == (2 * 2 * 2 * 8 * 256, False)
    assert "it is unknown what the mask of the attention hides: counted as if it hid nothing" in texts(captured)
    one, keys = torch.ones(1, 2, 1, 8), torch.ones(1, 2, 16, 8)
    assert not capture(F(torch).scaled_dot_product_attention, one, keys, keys.clone(), torch.arange(16)[None] < 4).certain


def test_one_query_is_a_step_of_decoding(torch: Any) -> None:
    q, kv = torch.ones(2, 8, 1, 16), [torch.ones(2, 2, 100, 16) for _ in range(2)]
    found = done(attend, torch, "FLASH_ATTENTION", q, *kv, enable_gqa=True)
    sizes = {"batch": 2, "n_q_heads": 8, "n_kv_heads": 2, "head_dim": 16, "seq_len": 100, "kv_dtype": "fp32"}
    assert found == work("attn_decode", **sizes, dtype="fp32")
    assert (found.flops, found.bytes) == (2 * 2 * 8 * 100 * (16 + 16), 4 * 2 * 100 * 2 * 2 * 16)


@CAUSAL
def test_attention_backward_of_the_flash_kernel_is_five_products(causal: bool, torch: Any) -> None:
    q, k, v = (torch.ones(1, 4, 32, 16, requires_grad=True) for _ in range(3))
    out = attend(torch, "FLASH_ATTENTION", q, k, v, is_causal=causal)
    found = done(torch.autograd.grad, out, (q, k, v), torch.ones(1, 4, 32, 16))
    sizes = {"batch": 1, "n_q_heads": 4, "n_kv_heads": 4, "head_dim": 16, "seq_q": 32, "causal": causal, "dtype": "fp32"}
    assert found == work("attn_backward", **sizes)
    pairs = 32 * 33 // 2 if causal else 32 * 32
    assert found.flops == 5 * 2 * 4 * 16 * pairs
    assert found.bytes == 4 * 8 * (4 * 32 * 16)  # q, k, v, out, dout and dq, dk, dv


@BACKENDS
@CAUSAL
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_attention_forward_and_backward(backend: str, causal: bool, kv_heads: int, torch: Any) -> None:
    """2 products forward; backward 5 where S is computed again, 4 where it was kept."""

    def step(q: Any, k: Any, v: Any, grad: Any) -> Any:
        out = attend(torch, backend, q, k, v, is_causal=causal, enable_gqa=kv_heads != 4)
        return torch.autograd.grad(out, (q, k, v), grad)

    q, grad = torch.ones(1, 4, 32, 16, requires_grad=True), torch.ones(1, 4, 32, 16)
    k, v = (torch.ones(1, kv_heads, 32, 16, requires_grad=True) for _ in range(2))
    found = done(step, q, k, v, grad)
    pairs = 32 * 33 // 2 if causal else 32 * 32
    assert found.flops == (2 + (4 if backend == "MATH" else 5)) * 2 * 4 * 16 * pairs
    # q, k, v and dout read, dq, dk and dv written.
    assert found.bytes == 4 * 32 * 16 * (2 * 4 + 2 * kv_heads + 4 + 2 * kv_heads)


def test_math_attention_backward_alone_is_four_products(torch: Any) -> None:
    """The forward pass ran before the capture, so only the backward products are seen, over all pairs."""
    q, k, v = (torch.ones(1, 4, 32, 16, requires_grad=True) for _ in range(3))
    out = attend(torch, "MATH", q, k, v)
    found = done(torch.autograd.grad, out, (q, k, v), torch.ones(1, 4, 32, 16))
    assert found.flops == 4 * 2 * 4 * 16 * 32 * 32


@pytest.mark.parametrize("name", ["flash", "efficient", "cudnn"])
def test_the_kernels_of_other_devices(name: str, torch: Any) -> None:
    """Called by name on tensors without memory, forward and backward: one operation each, causal, at bf16."""
    q, k, v, out, grad = (torch.empty(1, 4, 128, 64, device="meta", dtype=torch.bfloat16) for _ in range(5))
    lse, seed = torch.empty(1, 4, 128, device="meta"), torch.empty((), dtype=torch.int64, device="meta")
    aten = torch.ops.aten
    forward, backward = {
        "flash": (
            lambda: aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True),
            lambda: aten._scaled_dot_product_flash_attention_backward(
                grad, q, k, v, out, lse, None, None, 128, 128, 0.0, True, seed, seed
            ),
        ),
        "efficient": (
            lambda: aten._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, True),
            lambda: aten._scaled_dot_product_efficient_attention_backward(
                grad, q, k, v, None, out, lse, seed, seed, 0.0, [True, True, True, False], True
            ),
        ),
        "cudnn": (
            lambda: aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, True),
            lambda: aten._scaled_dot_product_cudnn_attention_backward(
                grad, q, k, v, out, lse, seed, seed, None, None, None, 128, 128, 0.0, True
            ),
        ),
    }[name]
    sizes = {"batch": 1, "n_q_heads": 4, "n_kv_heads": 4, "head_dim": 64, "seq_q": 128, "dtype": "bf16"}
    assert done(forward) == work("attn_prefill", **sizes)
    assert done(backward) == work("attn_backward", **sizes)


# Backward of others.


def test_backward_of_a_linear_layer_is_two_products(torch: Any) -> None:
    x, w = torch.ones(8, 16, requires_grad=True), torch.ones(32, 16, requires_grad=True)
    out = torch.nn.functional.linear(x, w)
    found = done(torch.autograd.grad, out, (x, w), torch.ones(8, 32))
    assert (found.op, found.flops) == ("gemm", 2 * 2 * 8 * 16 * 32)
    assert found.bytes == 4 * (2 * 8 * 16 + 2 * 32 * 16 + 8 * 32)  # x, dx, w, dw, dout


@pytest.mark.parametrize("direction", ["data", "weight"])
def test_backward_of_a_convolution(direction: str, torch: Any) -> None:
    x, w = torch.ones(2, 4, 9, 9, requires_grad=True), torch.ones(6, 4, 3, 3, requires_grad=True)
    out = torch.nn.functional.conv2d(x, w)
    found = done(torch.autograd.grad, out, x if direction == "data" else w, torch.ones(2, 6, 7, 7))
    assert found == work("conv2d", **CONV, input=[9, 9], kernel=[3, 3], direction=direction)
    assert found.flops == 2 * 2 * 6 * 49 * 4 * 9


def test_backward_of_a_convolution_by_both(torch: Any) -> None:
    x, w = torch.ones(2, 4, 9, 9, requires_grad=True), torch.ones(6, 4, 3, 3, requires_grad=True)
    b = torch.ones(6, requires_grad=True)
    out = torch.nn.functional.conv2d(x, w, b)
    found = done(torch.autograd.grad, out, (x, w, b), torch.ones(2, 6, 7, 7))
    assert (found.op, found.flops) == ("conv2d", 2 * 2 * 2 * 6 * 49 * 4 * 9)
    assert found.bytes == 4 * (2 * (2 * 4 * 81 + 6 * 4 * 9) + 2 * 6 * 49 + 6)


# Which bytes: views, aliases, what is in between.


def test_silu_and_mul_is_one_pass(torch: Any) -> None:
    captured = capture(lambda a, b: torch.nn.functional.silu(a) * b, torch.ones(8, 16), torch.ones(8, 16))
    assert captured.work is not None
    assert [(m.model, m.bytes) for m in captured.work.candidates] == [("fused", 3 * ONE_WAY), ("op_by_op", 5 * ONE_WAY)]
    assert (captured.work.op, captured.launches) == ("elementwise", 2)


def test_tensors_saved_for_backward_are_written(torch: Any) -> None:
    """silu's result is saved for the product's gradient."""
    a, b = (torch.ones(8, 16, requires_grad=True) for _ in range(2))
    captured = capture(lambda: torch.nn.functional.silu(a) * b)
    assert captured.work is not None
    assert captured.work.bytes == 4 * ONE_WAY
    assert texts(captured) == ["512 B kept in addition to its result, such as for a backward pass, count as written"]


def test_results_kept_between_calls_lower_the_confidence(torch: Any) -> None:
    """A cache that grows by a row per call: the timed calls were shorter than the watched one."""
    held = {"keys": torch.ones(4, 16)}

    def step(key: Any) -> Any:
        held["keys"] = torch.cat([held["keys"], key])
        return held["keys"].sum()

    captured = capture(step, torch.ones(1, 16))
    assert captured.work is None
    assert captured.reason == "variable held['keys'] grows from call to call: each call does more work"

    def keep(key: Any) -> Any:
        held["last"] = key * 2
        return key.sum()

    captured = capture(keep, torch.ones(1, 16))
    assert captured.work is not None
    assert not captured.certain
    assert "if it keeps more at each call, each call does more work" in texts(captured)[0]
    # What a dictionary or an object brings back is its result.
    out = type("Out", (), {})()

    def named(x: Any) -> Any:
        out.last = x + 1
        return {"out": out}

    assert capture(named, torch.ones(4)).certain


@pytest.mark.parametrize(
    ("call", "nbytes"),
    [
        (lambda t: (lambda x: x @ x.t(), t.ones(8, 16)), 4 * (8 * 16 + 8 * 8)),
        (lambda t: (lambda x: x * x, t.ones(8, 16)), 2 * ONE_WAY),
        (lambda t: (lambda x, b: x + b, t.ones(8, 16), t.ones(16)), 2 * ONE_WAY + 4 * 16),
        (lambda t: (lambda b: b + 1, t.ones(16).expand(8, 16)), ONE_WAY + 4 * 16),
        (lambda t: (lambda a, w: t.bmm(a, w), t.ones(3, 8, 16), t.ones(16, 32).expand(3, 16, 32)),
         4 * (3 * 8 * 16 + 16 * 32 + 3 * 8 * 32)),
        (lambda t: (lambda x: x[:, :4] + 1, t.ones(8, 16)), 2 * 4 * 8 * 4),
        (lambda t: (lambda x: x[::2] + x[1::2], t.ones(8, 16)), 1.5 * ONE_WAY),
        (lambda t: (lambda x: x.unfold(0, 4, 1).sum(-1), t.ones(16)), 4 * (16 + 13)),
        (lambda t: (lambda x: x.as_strided((13, 4), (1, 1)) + 1, t.ones(16)), 4 * (16 + 13 * 4)),
        (lambda t: (lambda x: x.view(-1).view(16, 8)[:] + x.view(16, 8), t.ones(8, 16)), 2 * ONE_WAY),
        (lambda t: (lambda x: x[:4].zero_(), t.ones(8, 16)), ONE_WAY / 2),
        (lambda t: (lambda x: x.add_(1).relu_(), t.ones(8, 16)), 2 * ONE_WAY),
        (lambda t: (lambda x, o: t.mul(x, 2, out=o), t.ones(8, 16), t.ones(8, 16)), 2 * ONE_WAY),
        (lambda t: (lambda x: t.mul(x, 2, out=t.empty(8, 16)), t.ones(8, 16)), 2 * ONE_WAY),
        (lambda t: (lambda x: (x + 1)[:4], t.ones(8, 16)), 2 * ONE_WAY),
        (lambda t: (lambda x: x + t.ones(8, 16), t.ones(8, 16)), 2 * ONE_WAY),
        (lambda t: (lambda x: x.sum().item(), t.ones(8, 16)), ONE_WAY + 4),
        (lambda t: (lambda x: x * t.tensor(2.0), t.ones(8, 16)), 2 * ONE_WAY + 4),
        (lambda t: (lambda x, y: t.cat([x, y]), t.ones(8, 16), t.ones(0)), 2 * ONE_WAY),
        (lambda t: (lambda x: x[x > 0], t.tensor([1.0, -1.0] * 8)), 4 * 16 + 4 * 8),
    ],
)  # fmt: skip
def test_bytes_are_compulsory(call: Callable[[Any], tuple[Any, ...]], nbytes: float, torch: Any) -> None:
    fn, *args = call(torch)
    before = [arg.clone() for arg in args]
    expected = fn(*before)
    value, captured = _captured(fn, args)
    assert torch.equal(torch.as_tensor(value), torch.as_tensor(expected))
    assert captured.work is not None, captured.reason
    assert captured.work.bytes == nbytes


#: A table of 1000 rows of 16 floats, 64 B each; the indices name three of them, one twice.
ROW = 64


def some(t: Any) -> Any:
    return t.tensor([3, 5, 5, 900])


def table(t: Any) -> Any:
    return t.zeros(1000, 16)


def four(t: Any) -> Any:
    return t.ones(4, 16)


def wide(t: Any) -> Any:
    """The same indices for each of the 16 columns."""
    return some(t)[:, None].expand(4, 16).contiguous()


#: Four rows to write, and their indices of 8 B: one a row, or one an element.
GIVEN, WIDE = 4 * ROW + 4 * 8, 4 * ROW + 4 * 16 * 8

TABLES = [
    # Written without being read: three rows.
    ("index_put_", lambda t: (lambda x, i, s: x.index_put_((i,), s), table(t), some(t), four(t)), 3 * ROW + GIVEN, 0),
    ("setitem", lambda t: (lambda x, i, s: x.__setitem__(i, s), table(t), some(t), four(t)), 3 * ROW + GIVEN, 0),
    ("negative", lambda t: (lambda x, i, s: x.index_put_((i,), s), table(t), some(t) - 1000, four(t)), 3 * ROW + GIVEN, 0),
    ("index_copy_", lambda t: (lambda x, i, s: x.index_copy_(0, i, s), table(t), some(t), four(t)), 3 * ROW + GIVEN, 0),
    ("scatter_", lambda t: (lambda x, i, s: x.scatter_(0, i, s), table(t), wide(t), four(t)), 3 * ROW + WIDE, 0),
    ("index_fill_", lambda t: (lambda x, i: x.index_fill_(0, i, 1.0), table(t), some(t)), 3 * ROW + 4 * 8, 0),
    ("scatter_ one value", lambda t: (lambda x, i: x.scatter_(0, i, 1.0), table(t), wide(t)), 3 * ROW + 4 * 16 * 8, 0),
    ("columns", lambda t: (lambda x, i: x.index_fill_(1, i, 1.0), t.zeros(10, 1000), some(t)), 10 * 3 * 4 + 4 * 8, 0),
    ("of two dimensions", lambda t: (lambda x, i, j: x.index_put_((i, j), t.ones(4)), table(t), some(t),
                                     t.tensor([1, 2, 2, 3])), 3 * 4 + 2 * 4 * 8, 0),
    ("put_", lambda t: (lambda x, i, s: x.put_(i, s), table(t), some(t), t.ones(4)), 3 * 4 + 4 * 4 + 4 * 8, 0),
    # Added to: three rows read as well, an addition for each value.
    ("accumulate", lambda t: (lambda x, i, s: x.index_put_((i,), s, accumulate=True), table(t), some(t), four(t)),
     6 * ROW + GIVEN, 64),
    ("index_add_", lambda t: (lambda x, i, s: x.index_add_(0, i, s), table(t), some(t), four(t)), 6 * ROW + GIVEN, 64),
    ("scatter_add_", lambda t: (lambda x, i, s: x.scatter_add_(0, i, s), table(t), wide(t), four(t)), 6 * ROW + WIDE, 64),
    ("scatter_reduce_", lambda t: (lambda x, i, s: x.scatter_reduce_(0, i, s, "amax"), table(t), wide(t), four(t)),
     6 * ROW + WIDE, 64),
    # A copy is made: all written, all read but for what is written over.
    ("scatter", lambda t: (lambda x, i, s: x.scatter(0, i, s), table(t), wide(t), four(t)), 2 * 64000 - 3 * ROW + WIDE, 0),
    ("index_add", lambda t: (lambda x, i, s: x.index_add(0, i, s), table(t), some(t), four(t)), 2 * 64000 + GIVEN, 64),
    ("select_scatter", lambda t: (lambda x, s: x.select_scatter(s, 0, 7), table(t), t.ones(16)), 2 * 64000, 0),
    # By a mask, of 1 B an element: where it is true.
    ("masked_fill_", lambda t: (lambda x, m: x.masked_fill_(m, 2.0), table(t), t.arange(16000).view(1000, 16) < 48),
     16000 + 48 * 4, 0),
    ("mask of rows", lambda t: (lambda x, m: x.masked_fill_(m[:, None], 2.0), table(t), t.arange(1000) < 3), 1000 + 3 * ROW, 0),
    ("masked_scatter_", lambda t: (lambda x, m, s: x.masked_scatter_(m, s), t.zeros(8, 8), t.arange(64).view(8, 8) < 3,
                                   t.ones(64)), 64 + 2 * 3 * 4, 0),
    # Read: each row once, however often it is asked for.
    ("embedding", lambda t: (F(t).embedding, t.zeros(4, dtype=t.int64), table(t)), ROW + 4 * ROW + 4 * 8, 0),
    ("index", lambda t: (lambda x, i: x[i], table(t), some(t)), 3 * ROW + GIVEN, 0),
    ("index_select", lambda t: (lambda x, i: x.index_select(0, i), table(t), some(t)), 3 * ROW + GIVEN, 0),
    ("gather", lambda t: (lambda x, i: x.gather(0, i), table(t), wide(t)), 3 * ROW + WIDE, 0),
    ("take", lambda t: (t.take, table(t), some(t)), 3 * 4 + 4 * 4 + 4 * 8, 0),
    # Two look-ups of which one row is the same: four rows read, one result written.
    ("twice", lambda t: (lambda x, i, j: x[i] + x[j], table(t), some(t), t.tensor([1, 3, 5, 5])), 8 * ROW + 2 * 32, 64),
    # One log-probability a row, an index of 8 B, and one result; two rows are ignored.
    ("nll_loss", lambda t: (F(t).nll_loss, t.zeros(8, 1000), t.tensor([0, 1, 2, -100, 4, 5, -100, 7])), 6 * 4 + 8 * 8 + 4, 6),
    # A key of two heads into a cache of 16 places: written, and nothing read but the key.
    ("cache", lambda t: (lambda c, k: c[:, :, 7].copy_(k), t.zeros(1, 2, 16, 8), t.ones(1, 2, 8)), 2 * 64, 0),
    ("cache setitem", lambda t: (lambda c, k: c.__setitem__((slice(None), slice(None), 7), k), t.zeros(1, 2, 16, 8),
                                 t.ones(1, 2, 8)), 2 * 64, 0),
    ("cache index_copy_", lambda t: (lambda c, k: c.index_copy_(2, t.tensor([7]), k), t.zeros(1, 2, 16, 8),
                                     t.ones(1, 2, 1, 8)), 2 * 64 + 8, 0),
]  # fmt: skip


@pytest.mark.parametrize(("call", "nbytes", "flops"), [case[1:] for case in TABLES], ids=[case[0] for case in TABLES])
def test_only_indexed_rows_of_a_table_move(
    call: Callable[[Any], tuple[Any, ...]], nbytes: float, flops: float, torch: Any
) -> None:
    fn, *args = call(torch)
    captured = capture(fn, *args)
    assert captured.work is not None, captured.reason
    assert (captured.work.bytes, captured.work.flops) == (nbytes, flops)
    assert captured.certain


def test_a_key_written_into_a_cache_is_not_read_from_memory_again(torch: Any) -> None:
    """One query of two heads over 8 of 16 places: 7 keys and 8 values of each head read, and the new key, written to the
    cache; the query read and the output written."""
    cache, values, key, query = (torch.zeros(1, 2, places, 8) for places in (16, 16, 1, 1))

    def step() -> Any:
        cache[:, :, 7:8] = key
        return F(torch).scaled_dot_product_attention(query, cache[:, :, :8], values[:, :, :8])

    assert done(step).bytes == 4 * 8 * 2 * (7 + 8 + 1 + 1 + 1 + 1)


def test_indices_without_values_bound_the_rows_from_above(torch: Any) -> None:
    table, index = torch.empty(1000, 16, device="meta"), torch.empty(4, dtype=torch.int64, device="meta")
    captured = capture(F(torch).embedding, index, table)
    assert captured.work is not None
    assert captured.work.bytes == 2 * 4 * ROW + 4 * 8
    assert not captured.certain
    assert "which rows its indices name is unknown: the bytes of its table are an upper bound" in texts(captured)


def test_indices_are_not_read_while_a_test_runs(torch: Any) -> None:
    """Which would allocate, wait for the device and be seen by a profiler: four rows at most, and all of a mask."""
    from pytest_roofline.capture.torch.watch import Watch

    x, index = table(torch), some(torch)
    with Watch(own=True) as watch:
        out = x[index]
    found = watch.finish(out)
    assert found.work is not None
    assert (found.work.bytes, found.certain) == (2 * 4 * ROW + 4 * 8, False)
    with Watch(own=True) as watch:
        x.masked_fill_(x > 0, 1.0)
    assert not watch.finish().certain


def test_a_watch_keeps_other_modes(torch: Any) -> None:
    """Put on before it or inside it, and left in any order."""
    from torch.utils._python_dispatch import TorchDispatchMode

    from pytest_roofline.capture.torch.watch import Watch

    class Counting(TorchDispatchMode):  # type: ignore[misc]
        seen = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen += 1
            return func(*args, **(kwargs or {}))

    inner, a = Counting(), torch.ones(4, 4)
    with Watch(own=True) as watch:
        inner.__enter__()
        torch.mm(a, a)
    assert [type(mode) for mode in _dispatch_modes(torch)] == [Counting]
    torch.mm(a, a)
    assert inner.seen == 2
    assert watch.finish().operations == 1
    with Watch(own=True) as nested:
        torch.mm(a, a)
    assert nested.finish().reason == "other modes of torch are active"
    inner.__exit__(None, None, None)
    assert not _dispatch_modes(torch)
    assert not torch.overrides._get_current_function_mode_stack()
    assert not torch.utils._python_dispatch.is_in_torch_dispatch_mode()


def _dispatch_modes(torch: Any) -> list[Any]:
    return list(torch.utils._python_dispatch._get_current_dispatch_mode_stack())


WINDOWS = [
    # Positions 0, 2, 4, 6, 8 of 9 on each axis: 25 of 81.
    ("1x1, stride 2", lambda t: (lambda x, w: F(t).conv2d(x, w, stride=2), t.ones(2, 4, 9, 9), t.ones(6, 4, 1, 1)),
     4 * (2 * 4 * 25 + 6 * 4 + 2 * 6 * 25), 2 * 2 * 6 * 25 * 4),
    # Positions 0, 1, 3, 4, 6, 7 of 9.
    ("2, stride 3", lambda t: (lambda x, w: F(t).conv1d(x, w, stride=3), t.ones(1, 4, 9), t.ones(6, 4, 2)),
     4 * (4 * 6 + 6 * 4 * 2 + 6 * 3), 2 * 6 * 3 * 4 * 2),
    # Taps two apart, two steps on: positions 0, 2, 4, 6, 8 of 9.
    ("dilated", lambda t: (lambda x, w: F(t).conv1d(x, w, stride=2, dilation=2), t.ones(1, 4, 9), t.ones(6, 4, 2)),
     4 * (4 * 5 + 6 * 4 * 2 + 6 * 4), 2 * 6 * 4 * 4 * 2),
    # The last position of 8 is met by no window of 3 with a stride of 2: 7 of 8.
    ("rest", lambda t: (lambda x, w: F(t).conv1d(x, w, stride=2), t.ones(1, 4, 8), t.ones(6, 4, 3)),
     4 * (4 * 7 + 6 * 4 * 3 + 6 * 3), 2 * 6 * 3 * 4 * 3),
    ("avg_pool", lambda t: (lambda x: F(t).avg_pool2d(x, 2), t.ones(1, 1, 8, 8)), 4 * (64 + 16), 64),
    ("avg_pool, stride 4", lambda t: (lambda x: F(t).avg_pool2d(x, 2, 4), t.ones(1, 1, 8, 8)), 4 * (16 + 4), 16),
    ("max_pool", lambda t: (lambda x: F(t).max_pool2d(x, 2), t.ones(1, 1, 8, 8)), 4 * (64 + 16), 64),
    ("max_pool, its places kept", lambda t: (lambda x: F(t).max_pool2d(x, 2, return_indices=True), t.ones(1, 1, 8, 8)),
     4 * (64 + 16) + 8 * 16, 64),
    ("max_pool, stride 4", lambda t: (lambda x: F(t).max_pool2d(x, 1, 4), t.ones(1, 1, 8, 8)), 4 * (4 + 4), 4),
    # From floor(5 i / 3) to ceil(5 (i + 1) / 3): 2, 3 and 2 of an axis of 5; each of its own on the other.
    ("adaptive", lambda t: (lambda x: F(t).adaptive_avg_pool2d(x, (3, 5)), t.ones(1, 1, 5, 5)), 4 * (25 + 15), 7 * 5),
    ("pool of one axis", lambda t: (lambda x: F(t).avg_pool1d(x, 2), t.ones(1, 1, 64)), 4 * (64 + 32), 64),
    ("pool of three axes", lambda t: (lambda x: F(t).avg_pool3d(x, 2), t.ones(1, 1, 8, 8, 8)), 4 * (512 + 64), 512),
]  # fmt: skip


@pytest.mark.parametrize(("call", "nbytes", "flops"), [case[1:] for case in WINDOWS], ids=[case[0] for case in WINDOWS])
def test_positions_outside_all_windows_are_not_read(
    call: Callable[[Any], tuple[Any, ...]], nbytes: float, flops: float, torch: Any
) -> None:
    fn, *args = call(torch)
    found = done(fn, *args)
    assert (found.bytes, found.flops) == (nbytes, flops)


def test_a_data_gradient_is_written_everywhere(torch: Any) -> None:
    """dx has all 9 positions, of which a kernel of 1 with a stride of 2 met 5; dw needs those 5 alone."""
    x, w = torch.ones(1, 4, 9, requires_grad=True), torch.ones(6, 4, 1, requires_grad=True)
    out = F(torch).conv1d(x, w, stride=2)
    grad = torch.ones_like(out)
    by_data = done(torch.autograd.grad, out, x, grad, retain_graph=True)
    assert by_data.bytes == 4 * (4 * 9 + 6 * 4 + 6 * 5)
    by_weight = done(torch.autograd.grad, out, w, grad)
    assert by_weight.bytes == 4 * (4 * 5 + 6 * 4 + 6 * 5)


KINDS = [
    # Integers and booleans have no FLOPs.
    ("int", lambda t: (t.add, t.ones(64, dtype=t.int32), t.ones(64, dtype=t.int32)), 3 * 256, 0),
    ("bool", lambda t: (t.logical_and, t.ones(64, dtype=t.bool), t.ones(64, dtype=t.bool)), 3 * 64, 0),
    ("int sum", lambda t: (t.sum, t.ones(64, dtype=t.int32)), 256 + 8, 0),
    # A list of 16 and 32 elements.
    ("foreach add_", lambda t: (lambda x: t._foreach_add_(x, 1.0), [t.ones(16), t.ones(32)]), 2 * 192, 48),
    ("foreach mul", lambda t: (t._foreach_mul, [t.ones(16), t.ones(32)], [t.ones(16), t.ones(32)]), 3 * 192, 48),
    ("foreach copy_", lambda t: (t._foreach_copy_, [t.ones(16), t.ones(32)], [t.ones(16), t.ones(32)]), 2 * 192, 0),
    ("foreach zero_", lambda t: (t._foreach_zero_, [t.ones(16), t.ones(32)]), 192, 0),
    ("foreach norm", lambda t: (t._foreach_norm, [t.ones(16), t.ones(32)]), 192 + 8, 48),
    ("beta 0", lambda t: (lambda c, a, b: t.addmm(c, a, b, beta=0).relu(), t.ones(8, 32), t.ones(8, 16), t.ones(16, 32)),
     A_B_C, 2 * 8 * 32 * 16),
    ("alpha 0", lambda t: (lambda c, a, b: t.addmm(c, a, b, alpha=0), t.ones(8, 32), t.ones(8, 16), t.ones(16, 32)),
     2 * 4 * 8 * 32, 0),
    ("no elements", lambda t: (lambda a, b: a[:, :0] @ b[:0], t.ones(8, 16), t.ones(16, 32)), 4 * 8 * 32, 0),
    ("out is an input", lambda t: (lambda x: t.add(x, 1, out=x), t.ones(64)), 2 * 256, 64),
    ("expanded", lambda t: (lambda x: x.expand(8, 16).sum(), t.ones(16)), 64 + 4, 128),
    ("mse_loss", lambda t: (F(t).mse_loss, t.ones(64), t.ones(64)), 2 * 256 + 4, 64),
]  # fmt: skip


@pytest.mark.parametrize(("call", "nbytes", "flops"), [case[1:] for case in KINDS], ids=[case[0] for case in KINDS])
def test_which_operations_are_counted(call: Callable[[Any], tuple[Any, ...]], nbytes: float, flops: float, torch: Any) -> None:
    fn, *args = call(torch)
    found = done(fn, *args)
    assert (found.bytes, found.flops) == (nbytes, flops)


@pytest.mark.parametrize(
    ("optimizer", "options", "streams", "flops"),
    [
        # Parameter and gradient read and the parameter written; each state read and written.
        ("SGD", {}, 3, 2),
        ("SGD", {"momentum": 0.9}, 5, 4),
        ("Adam", {}, 7, 14),
        ("AdamW", {}, 7, 14),
        ("Adam", {"amsgrad": True}, 9, 14),
    ],
)
def test_a_fused_step_of_an_optimizer(optimizer: str, options: dict[str, Any], streams: int, flops: int, torch: Any) -> None:
    """100 and 50 parameters; Adam also reads and writes how many steps were taken, of each 4 B, and adds one."""
    parameters = [torch.nn.Parameter(torch.ones(size)) for size in (100, 50)]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    step = getattr(torch.optim, optimizer)(parameters, lr=0.1, fused=True, **options).step
    step()
    counters = 0 if optimizer == "SGD" else 2
    found = done(step)
    assert (found.bytes, found.flops) == (streams * 4 * 150 + counters * 2 * 4, flops * 150 + counters)


OVERLAPS = [
    # Elements 0 to 7 and 4 to 11: twelve.
    ("stretches", lambda x: x[0:8] + x[4:12], (16,), 12 + 8),
    # The halves of each row, then a whole row's worth of the first: all 32.
    ("halves", lambda x: x[:, :4] * x[:, 4:] + x[:, :4].t().contiguous().t(), (4, 8), 32 + 16),
    # One third of each row, in two shapes, is one third.
    ("shapes", lambda x: x.view(4, 3, 8)[:, 1].sum() + x[:, 8:16].t().sum(), (4, 24), 32 + 1),
    # Columns 0 to 5 and 4 to 7 of each row: all 8.
    ("columns", lambda x: x[:, :6].sum() + x[:, 4:].sum(), (4, 8), 32 + 1),
    # Columns 0 to 3 of all rows, all columns of the first two: 16 + 16 - 8.
    ("crossed", lambda x: x[:, :4].sum() + x[:2].sum(), (4, 8), 24 + 1),
    # Every second element and every third of 12: 6 + 4 - 2.
    ("combs", lambda x: x[::2].sum() + x[::3].sum(), (12,), 8 + 1),
    # Windows of 3 that start at each second element reach 0 to 6 of 8; of 3 at 0 and 4 six of 8.
    ("windows", lambda x: x.as_strided((3, 3), (2, 1)).sum(), (8,), 7 + 1),
    ("gaps", lambda x: x.as_strided((2, 3), (4, 1)).sum(), (8,), 6 + 1),
    # 0, 2, 4 and 3, 5, 7: six.
    ("unlike steps", lambda x: x.as_strided((2, 3), (3, 2)).sum(), (8,), 6 + 1),
]  # fmt: skip


@pytest.mark.parametrize(("fn", "shape", "elements"), [case[1:] for case in OVERLAPS], ids=[case[0] for case in OVERLAPS])
def test_memory_shared_by_views_is_read_once(fn: Callable[..., Any], shape: tuple[int, ...], elements: int, torch: Any) -> None:
    captured = capture(fn, torch.ones(shape))
    assert captured.work is not None
    assert captured.work.bytes == 4 * elements
    assert captured.certain


def _captured(fn: Callable[..., Any], args: list[Any]) -> tuple[Any, CapturedWork]:
    from pytest_roofline.capture.torch.watch import capture

    return capture(fn, args)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(m=st.integers(1, 40), n=st.integers(1, 40), k=st.integers(1, 40), bias=st.booleans(), half=st.booleans())
def test_any_linear_layer(m: int, n: int, k: int, bias: bool, half: bool, torch: Any) -> None:
    dtype = torch.bfloat16 if half else torch.float32
    x, w, b = torch.ones(m, k, dtype=dtype), torch.ones(n, k, dtype=dtype), torch.ones(n, dtype=dtype)
    found = done(torch.nn.functional.linear, x, w, b if bias else None)
    assert found == work("gemm", M=m, N=n, K=k, addend=n if bias else 0, dtype=str(dtype))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4), data=st.data())
def test_a_view_covers_exactly_its_elements(sizes: list[int], data: Any, torch: Any) -> None:
    from pytest_roofline.capture.torch.trace import Storages

    base = torch.arange(float(torch.tensor(sizes).prod())).view(sizes)
    view = base.permute(data.draw(st.permutations(range(len(sizes)))))
    for at in range(view.dim()):
        view = view.narrow(at, 0, data.draw(st.integers(1, view.shape[at])))
    region = Storages().region(view)
    assert region.nbytes == 4 * len(set(view.flatten().tolist()))
    assert region.nbytes <= region.whole == 4 * base.numel()


# What cannot be counted says why.


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda t: (t.sort, t.ones(8)), "no FLOP count for aten.sort"),
        (lambda t: (t.fft.fft, t.ones(8)), "no FLOP count for aten._fft_r2c"),
        (lambda t: (lambda x: x @ x, t.ones(4, 4, dtype=t.complex64)),
         "no FLOP count for aten.mm (complex products have no model)"),
        (lambda t: (lambda x: x + x, t.ones(4, dtype=t.complex64)),
         "no FLOP count for aten.add (complex arithmetic has no model)"),
        (lambda t: (t.linalg.inv, t.eye(4)), "no FLOP count for aten.linalg_inv_ex"),
        (lambda t: (t.unique, t.ones(4)), "no FLOP count for aten._unique2"),
        (lambda t: (lambda x: x.to_sparse(), t.ones(4)),
         "the capture failed: aten._to_sparse on a tensor of the layout sparse_coo"),
        (lambda t: (lambda x: x.t(), t.ones(4, 4)), "no operation was recorded"),
        (lambda t: (lambda x: x.copy_(x), t.ones(4, 4)), "no operation was recorded"),  # torch moves nothing
        (lambda t: (lambda: t.cond(t.tensor(True), lambda: t.ones(1), lambda: t.zeros(1), ()),),
         "no FLOP count for cond"),
    ],
)  # fmt: skip
def test_unknown_work_has_a_reason(call: Callable[[Any], tuple[Any, ...]], reason: str, torch: Any) -> None:
    fn, *args = call(torch)
    captured = capture(fn, *args)
    assert (captured.work, captured.reason) == (None, reason)


def test_a_custom_operation_is_named(torch: Any) -> None:
    library = torch.library.Library("roofline_test", "DEF")
    library.define("mm(Tensor a, Tensor b) -> Tensor")
    library.impl("mm", lambda a, b: a @ b, "CPU")
    try:
        captured = capture(torch.ops.roofline_test.mm, torch.ones(4, 4), torch.ones(4, 4))
    finally:
        library._destroy()
    assert captured.reason == "no FLOP count for roofline_test.mm"


def test_assertions_of_a_test_are_not_its_kernel(torch: Any) -> None:
    def fn(a: Any, b: Any) -> Any:
        out = a @ b
        torch.testing.assert_close(out, out.clone(), rtol=1e-3, atol=1e-3)
        assert torch.allclose(out, out)
        assert torch.isclose(out, out).all()
        return out

    captured = capture(fn, torch.ones(8, 16), torch.ones(16, 32))
    assert captured.operations == 2  # the product and the clone
    assert captured.work is not None
    assert captured.work.candidates[0] == work("gemm", **GEMM).candidates[0]._replace(model="fused")


# Nothing is changed, nothing is broken.


def test_the_value_is_returned_and_random_numbers_are_repeated(torch: Any) -> None:
    numpy = pytest.importorskip("numpy")

    def fn() -> tuple[Any, float, float]:
        return torch.rand(4), random.random(), float(numpy.random.rand())

    torch.manual_seed(1)
    random.seed(1)
    numpy.random.seed(1)
    value, _ = _captured(fn, [])
    again = fn()
    assert torch.equal(value[0], again[0])
    assert value[1:] == again[1:]


def test_a_generator_argument_keeps_its_state(torch: Any) -> None:
    numpy = pytest.importorskip("numpy")
    given, dice = torch.Generator().manual_seed(1), numpy.random.default_rng(0)
    before = given.get_state(), dice.bit_generator.state
    _captured(lambda g: (torch.rand(4, generator=g), dice.random()), [given])
    assert torch.equal(given.get_state(), before[0])
    assert dice.bit_generator.state == before[1]


def test_an_error_of_the_call_reaches_it(torch: Any) -> None:
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        capture(torch.mm, torch.ones(2, 3), torch.ones(2, 3))
    assert done(torch.mm, torch.ones(2, 2), torch.ones(2, 2)).flops == 2 * 8


def test_an_internal_error_does_not_reach_the_caller(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from pytest_roofline.capture.torch import watch

    def broken(*args: Any) -> None:
        raise KeyError("gone")

    monkeypatch.setattr(watch, "trace_op", broken)
    value, captured = _captured(torch.mm, [torch.ones(2, 2), torch.ones(2, 2)])
    assert value[0, 0] == 2
    assert (captured.work, captured.reason) == (None, "the capture failed: KeyError: 'gone'")


def test_a_capture_over_its_budget_is_dropped(torch: Any) -> None:
    from pytest_roofline.capture.torch.watch import capture

    value, captured = capture(lambda x: x + 1 + 1, (torch.ones(1),), budget_s=0.0)
    assert float(value) == 3
    assert captured.work is None
    assert captured.reason.startswith("the capture took more than its 0 s")


def test_intermediate_tensors_are_freed(torch: Any) -> None:
    """A capture needs no more memory than the call."""
    import gc
    import weakref

    died = []

    def fn(x: Any) -> Any:
        middle = x + 1
        weakref.finalize(middle.untyped_storage(), died.append, True)
        out = middle + 1
        del middle
        gc.collect()
        assert died
        return out

    assert done(fn, torch.ones(4)).bytes == 2 * 16


def test_a_function_compiled_later_is_still_compiled(torch: Any) -> None:
    """Met under a mode before it is compiled, torch would leave it uncompiled for good."""
    compiled = []

    def backend(module: Any, inputs: Any) -> Any:
        compiled.append(True)
        return module.forward

    def fn(x: Any) -> Any:
        return torch.relu(x) * x

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = torch.compile(fn, backend=backend)
        captured = capture(made, torch.ones(8, 16))
        assert not compiled
        made(torch.ones(8, 16))
    assert compiled
    assert captured.work is not None
    assert (captured.work.bytes, captured.launches) == (2 * ONE_WAY, None)
    assert texts(captured) == ["compiled: recorded as the operations it is compiled from, so its launches are unknown"]


def test_autocast_decides_the_dtype(torch: Any) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = done(torch.nn.functional.linear, torch.ones(8, 16), torch.ones(32, 16))
    assert (found.flops, found.dtype.name) == (2 * 8 * 32 * 16, "bf16")


def test_function_transforms_and_autograd(torch: Any) -> None:
    class Square(torch.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, a: Any) -> Any:
            ctx.save_for_backward(a)
            return a @ a.t()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            (a,) = ctx.saved_tensors
            return 2 * (grad @ a)

    x = torch.ones(8, 16, requires_grad=True)
    found = done(lambda: torch.autograd.grad(Square.apply(x).sum(), x))
    assert (found.op, found.flops) == ("gemm", 2 * 2 * 8 * 8 * 16)
    found = done(torch.vmap(torch.dot), torch.ones(8, 16), torch.ones(8, 16))
    assert (found.op, found.flops) == ("gemm", 2 * 8 * 16)
    assert done(torch.func.grad(lambda a: (a * a).sum()), torch.ones(8, 16)).bytes >= 2 * ONE_WAY


def test_work_of_another_thread_is_not_seen(torch: Any) -> None:
    def fn() -> None:
        thread = threading.Thread(target=lambda: torch.ones(4) + 1)
        thread.start()
        thread.join()

    assert capture(fn).reason == "it starts threads, whose work is not recorded"


def test_work_of_a_thread_pool_is_not_seen(torch: Any) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        captured = capture(lambda x: (x + 1, pool.submit(torch.exp, x).result()), torch.ones(4))
    assert (captured.work, captured.reason) == (None, "it starts threads, whose work is not recorded")


# Sparse matrices.


@pytest.mark.parametrize(
    ("layout", "indices"),
    [
        ("sparse_csr", 16 + 7),  # a column per value, a pointer per row and the end
        ("sparse_csc", 16 + 9),
        ("sparse_coo", 2 * 16),
    ],
)
def test_products_with_a_sparse_matrix(layout: str, indices: int, torch: Any) -> None:
    dense = torch.zeros(6, 8)
    dense[:4, ::2] = 1.0  # 16 values; the columns 1, 3, 5 and 7 have none, nor the rows 4 and 5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch calls these layouts beta
        matrix = dense.to_sparse(layout=getattr(torch, layout))
    vector, columns, rows, added = torch.ones(8), torch.ones(8, 3), torch.ones(3, 6), torch.ones(6, 3)
    stored = 4 * 16 + 8 * indices
    cases = [
        (done(lambda m, x: m @ x, matrix, vector), "spmv", 1, 4 * (4 + 6)),
        (done(lambda m, x: m @ x, matrix, columns), "spmm", 3, 4 * 3 * (4 + 6)),
        (done(torch.sparse.addmm, added, matrix, columns), "spmm", 3, 4 * 3 * (4 + 6 + 6)),
        (done(lambda x, m: x @ m, rows, matrix), "spmm", 3, 4 * 3 * (4 + 8)),  # four of the six rows of the matrix have values
    ]
    for found, op, n, dense_bytes in cases:
        assert (found.op, found.flops, found.bytes) == (op, 2 * 16 * n, stored + dense_bytes)
        assert found.coverage == "whole"


def test_a_sparse_matrix_of_blocks_has_a_reason(torch: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        matrix = torch.eye(8).to_sparse_bsr((2, 2))
    captured = capture(lambda m, x: m @ x, matrix, torch.ones(8))
    assert captured.work is None
    assert "layout sparse_bsr" in captured.reason


# A call that does more than is recorded, and one that is whole.


def native_copy(to: Any, source: Any) -> None:
    """Stands for a kernel in native code: nothing records it."""
    ctypes.memmove(to.data_ptr(), source.data_ptr(), source.numel() * source.element_size())


def test_a_kernel_on_pointers_leaves_a_lower_bound(torch: Any) -> None:
    x = torch.ones(8, 16)

    def into_empty(x: Any) -> Any:
        out = torch.empty_like(x)
        native_copy(out, x)
        return out.relu()

    def into_zeros(x: Any) -> Any:
        out = torch.zeros(8, 16)
        native_copy(out, x)
        return out.relu()

    for fn, why in (
        (into_empty, "memory was used that nothing recorded wrote"),
        (into_zeros, "nothing recorded used argument x"),
    ):
        captured = capture(fn, x)
        assert captured.work is not None
        assert captured.work.coverage == "lower_bound"
        assert why in "; ".join(item.text for item in captured.notes if item.code == "partly_seen")


def test_a_returned_buffer_that_nothing_recorded_wrote_is_no_result(torch: Any) -> None:
    def step(x: Any) -> Any:
        out = torch.empty_like(x)
        native_copy(out, x)
        return out

    captured = capture(step, torch.ones(8, 16))
    assert captured.work is None
    assert any(item.code == "partly_seen" for item in captured.notes)


@pytest.mark.parametrize(
    "name", ["out=", "beta", "uniform_", "dropout", "batch norm", "nested", "attention backward", "view", "part of a buffer"]
)
def test_honest_calls_of_torch_are_whole(name: str, torch: Any) -> None:
    x, y = torch.ones(8, 8), torch.ones(8, 8)
    nn, functional = torch.nn, torch.nn.functional
    q = torch.ones(1, 2, 16, 8, requires_grad=True)

    def into_out(x: Any, y: Any) -> Any:
        out = torch.empty(8, 8)
        torch.mm(x, y, out=out)
        return out.relu_()

    def part(x: Any, y: Any) -> Any:
        buffer = torch.empty(16, 8)
        buffer[:8] = x
        return buffer[:8] @ y

    deep = nn.Sequential(nn.Sequential(nn.Sequential(nn.Linear(8, 8)), nn.ReLU()), nn.Linear(8, 8))
    calls: dict[str, tuple[Any, ...]] = {
        "out=": (into_out, x, y),
        "beta": (lambda x, y: torch.addmm(torch.empty(8, 8), x, y, beta=0), x, y),
        "uniform_": (lambda x: x + torch.empty_like(x).uniform_(), x),
        "dropout": (nn.Dropout(), x),
        "batch norm": (nn.BatchNorm1d(8), x),
        "nested": (deep, x),
        "attention backward": (lambda q: functional.scaled_dot_product_attention(q, q, q).sum().backward(), q),
        "view": (lambda x, y: (x.t(), y + 1), x, y),
        "part of a buffer": (part, x, y),
    }
    captured = capture(*calls[name])
    assert captured.work is not None, captured.reason
    assert captured.work.coverage == "whole", texts(captured)


def test_operations_over_no_elements_are_no_work(torch: Any) -> None:
    def step(x: Any, y: Any) -> Any:
        x[:0].add_(y[:0])
        return x[:, :0] @ y[:0] + x + x[:0].sum()

    captured = capture(step, torch.ones(8, 8), torch.ones(8, 8))
    assert captured.work is not None, captured.reason
    assert (captured.work.coverage, captured.work.flops) == ("whole", 2 * 64)  # the two sums of 8 x 8
