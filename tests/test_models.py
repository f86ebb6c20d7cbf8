"""Bytes and FLOPs per op, against figures derived here from the sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline_engine.models import OPS, TARGET_EFF, work
from roofline_engine.ops_matmul import experts_hit, experts_hit_distinct, positions_met

L2 = 33554432  # 32 MiB, MI300X and MI355X


def models(op: str, l2: float | None = L2, **parameters: object) -> dict[str, tuple[float, float]]:
    done = work(op, l2, **parameters)
    return {model.model: (model.bytes, model.flops) for model in done.candidates}


def test_gemm_counts_each_operand_once() -> None:
    done = work("gemm", M=512, N=1024, K=2048, dtype="bf16", weight_dtype="fp8", out_dtype="fp32")
    assert done.bytes == 512 * 2048 * 2 + 2048 * 1024 * 1 + 512 * 1024 * 4
    assert done.flops == 2 * 512 * 1024 * 2048
    assert done.dtype.name == "bf16"  # the wider operand sets the rate


def test_batched_gemm_counts_every_batch() -> None:
    one = work("gemm", M=8, N=16, K=32, dtype="fp16")
    four = work("gemm", M=8, N=16, K=32, batch=4, dtype="fp16")
    assert (four.bytes, four.flops) == (4 * one.bytes, 4 * one.flops)


def test_narrow_gemm_without_an_output_dtype_has_the_16_bit_output_in_range() -> None:
    found = models("gemm", M=4096, N=4096, K=4096, dtype="fp8")
    assert found["a_b_c"][0] == 3 * 4096 * 4096
    assert found["a_b_c_16bit_out"][0] == 4 * 4096 * 4096
    assert set(models("gemm", M=64, N=64, K=64, dtype="fp8", out_dtype="bf16")) == {"a_b_c"}


@pytest.mark.parametrize(("stage", "matrices"), [(1, 2), ("gate_up", 2), (2, 1), ("down", 1), ("both", 3)])
def test_moe_by_stage(stage: object, matrices: int) -> None:
    tokens, hidden, inter, experts, top_k = 64, 2048, 512, 256, 8
    done = work("moe", L2, tokens=tokens, hidden=hidden, inter=inter, experts=experts, top_k=top_k, stage=stage, dtype="fp8")
    hit = experts * (1 - (1 - 1 / experts) ** (tokens * top_k))
    assert done.bytes == pytest.approx(hit * matrices * hidden * inter)
    assert done.flops == 2 * tokens * top_k * matrices * hidden * inter
    assert done.launches == (None if stage == "both" else 1)


def test_moe_without_a_gate_has_two_matrices() -> None:
    gated = work("moe", L2, tokens=1, hidden=64, inter=32, experts=4, top_k=1, dtype="bf16")
    plain = work("moe", L2, tokens=1, hidden=64, inter=32, experts=4, top_k=1, dtype="bf16", gated=False)
    assert plain.flops / gated.flops == pytest.approx(2 / 3)


def test_moe_estimates_and_what_is_in_range() -> None:
    done = work("moe", L2, tokens=64, hidden=2048, inter=512, experts=256, top_k=8, dtype="fp8")
    weights = 3 * 2048 * 512
    by_name = {model.model: model for model in done.candidates}
    assert by_name["experts_hit_distinct"].bytes == pytest.approx(256 * (1 - (1 - 8 / 256) ** 64) * weights)
    assert by_name["all_experts"].bytes == 256 * weights
    assert by_name["all_experts"].in_range is False
    activations = 64 * 2048 * 2  # in and out, one byte each, far under the L2
    extra = by_name["experts_hit_and_activations"].bytes - by_name["experts_hit_distinct"].bytes
    assert extra == pytest.approx(activations)
    told = work("moe", L2, tokens=64, hidden=2048, inter=512, experts=256, top_k=8, dtype="fp8", streams_all_experts=True)
    assert next(model for model in told.candidates if model.model == "all_experts").in_range is True
    assert told.bytes == done.bytes  # never chosen as the figure


def test_moe_activations_beyond_the_l2_are_counted() -> None:
    tokens, hidden, inter = 32768, 4096, 1024
    done = work("moe", L2, tokens=tokens, hidden=hidden, inter=inter, experts=8, top_k=2, stage=1, dtype="bf16")
    read_and_written = (tokens * hidden + 2 * tokens * inter) * 2
    assert done.bytes == pytest.approx(8 * 2 * hidden * inter * 2 + read_and_written)


@pytest.mark.parametrize(
    ("experts", "top_k", "tokens", "bias_pct"),
    [(8, 2, 1, -6.25), (16, 4, 1, -9.0), (64, 6, 1, -3.8), (128, 8, 1, -2.7), (256, 8, 1, -1.36), (256, 8, 64, -0.43)],
)
def test_draws_with_replacement_undercount_by_the_published_bias(
    experts: int, top_k: int, tokens: int, bias_pct: float
) -> None:
    ratio = experts_hit(experts, tokens * top_k) / experts_hit_distinct(experts, tokens, top_k)
    assert 100 * (ratio - 1) == pytest.approx(bias_pct, abs=0.06)


def test_experts_hit_edges() -> None:
    assert experts_hit(1, 100) == 1
    assert experts_hit(8, 1) == pytest.approx(1)
    assert experts_hit_distinct(8, 3, 8) == 8


def test_attention_decode_bytes_by_kv_heads_and_flops_by_query_heads() -> None:
    # gpt-oss-120b unified attention, batch 64, 8704 tokens, 32 query and 4 KV heads of 64: 285.2 M elements of K and V.
    bf16 = work("attn_decode", batch=64, n_q_heads=32, n_kv_heads=4, head_dim=64, seq_len=8704, dtype="bf16")
    fp8 = work("attn_decode", batch=64, n_q_heads=32, n_kv_heads=4, head_dim=64, seq_len=8704, dtype="bf16", kv_dtype="fp8")
    assert bf16.bytes / 2 == fp8.bytes == 64 * 8704 * 4 * 64 * 2
    assert fp8.bytes / 1e6 == pytest.approx(285.2, abs=0.05)
    assert bf16.flops == 4 * 64 * 32 * 8704 * 64
    assert fp8.dtype.name == "bf16"  # fp8 KV is widened to the queries' type


def test_attention_window_limits_the_context() -> None:
    full = work("attn_decode", batch=1, n_q_heads=8, n_kv_heads=8, head_dim=128, seq_len=1000, dtype="bf16")
    wide = work("attn_decode", batch=1, n_q_heads=8, n_kv_heads=8, head_dim=128, seq_len=1000, window=4096, dtype="bf16")
    narrow = work("attn_decode", batch=1, n_q_heads=8, n_kv_heads=8, head_dim=128, seq_len=1000, window=250, dtype="bf16")
    assert (wide.bytes, wide.flops) == (full.bytes, full.flops)
    assert (narrow.bytes * 4, narrow.flops * 4) == (full.bytes, full.flops)


CONV = {"batch": 2, "in_channels": 4, "out_channels": 6, "dtype": "fp32"}


@pytest.mark.parametrize(
    ("window", "met", "out"),
    [
        ({"kernel": [1], "stride": 2}, 5, 5),  # 0, 2, 4, 6, 8 of 9 positions
        ({"kernel": [2], "stride": 3}, 6, 3),  # 0, 1, 3, 4, 6, 7
        ({"kernel": [2], "stride": 2}, 8, 4),  # the last is left over
        ({"kernel": [2], "stride": 2, "dilation": 2}, 5, 4),  # 0 and 2, 2 and 4, ...: the even ones
        ({"kernel": [3], "stride": 2, "padding": 1}, 9, 5),
        ({"kernel": [1], "stride": 2, "padding": 1}, 4, 6),  # -1 to 9: the odd ones
        ({"kernel": [3]}, 9, 7),
    ],
)
def test_a_convolution_reads_the_positions_that_a_tap_meets(window: dict[str, object], met: int, out: int) -> None:
    (taps,) = window["kernel"]  # type: ignore[misc]
    weight, output = 6 * 4 * taps, 2 * 6 * out
    for direction, positions in (("forward", met), ("weight", met), ("data", 9)):  # a gradient by data has them all
        found = work("conv1d", **CONV, input=[9], direction=direction, **window)
        assert found.bytes == 4 * (2 * 4 * positions + weight + output)


@given(
    size=st.integers(1, 12), taps=st.integers(1, 5), stride=st.integers(1, 6), padding=st.integers(0, 4),
    dilation=st.integers(1, 4), outputs=st.integers(1, 12),
)  # fmt: skip
def test_positions_met(size: int, taps: int, stride: int, padding: int, dilation: int, outputs: int) -> None:
    met = {at * stride + tap * dilation - padding for at in range(outputs) for tap in range(taps)} & set(range(size))
    assert positions_met(size, taps, stride, padding, dilation, outputs) == len(met)


def test_streaming_ops() -> None:
    assert work("copy", rows=1000, cols=1000, dtype="fp32").bytes == 2 * 1000 * 1000 * 4
    assert work("copy", rows=1000, cols=1000, dtype="fp32").flops == 0
    assert work("elementwise", numel=1 << 20, inputs=2, outputs=1, dtype="bf16").bytes == 3 * 2 * (1 << 20)
    assert work("softmax", rows=64, cols=32000, dtype="bf16", out_dtype="fp32").bytes == 64 * 32000 * (2 + 4)
    assert work("rmsnorm", rows=64, cols=4096, dtype="bf16").bytes == 64 * 4096 * 4 + 4096 * 2
    assert work("rmsnorm", rows=64, cols=4096, dtype="bf16", residual=True).bytes == 2 * 64 * 4096 * 4 + 4096 * 2
    assert work("layernorm", rows=64, cols=4096, dtype="bf16").bytes == 64 * 4096 * 4 + 2 * 4096 * 2


@pytest.mark.parametrize(
    ("op", "parameters", "says"),
    [
        ("gemm", {"M": 1, "N": 1, "dtype": "bf16"}, "gemm: missing K"),
        ("gemm", {"M": 1, "N": 1, "K": 1}, "gemm: missing dtype"),
        ("gemm", {"M": 0, "N": 1, "K": 1, "dtype": "bf16"}, "gemm: M is 0, expected at least 1"),
        ("gemm", {"M": "m", "N": 1, "K": 1, "dtype": "bf16"}, "gemm: M is 'm', expected a number"),
        ("gemm", {"M": 1, "N": 1, "K": 1, "k": 1, "dtype": "bf16"}, "gemm: unknown parameter k; it takes K, M, N"),
        ("gemm", {"M": 1, "N": 1, "K": 1, "dtype": "bf17"}, "gemm: dtype: unknown dtype 'bf17'"),
        (
            "moe",
            {"tokens": 1, "hidden": 1, "inter": 1, "experts": 2, "top_k": 3, "dtype": "fp8"},
            "top_k 3 is more than experts 2",
        ),
        (
            "moe",
            {"tokens": 1, "hidden": 1, "inter": 1, "experts": 2, "top_k": 1, "stage": 3, "dtype": "fp8"},
            "stage is 3, expected one of 1, 2",
        ),
        (
            "attn_decode",
            {"batch": 1, "n_q_heads": 6, "n_kv_heads": 4, "head_dim": 8, "seq_len": 1, "dtype": "bf16"},
            "n_q_heads 6 is not a multiple of n_kv_heads 4",
        ),
        ("sampling", {"dtype": "bf16"}, "no work model for op 'sampling'; there are models for attn_backward"),
    ],
)
def test_bad_parameters_are_named(op: str, parameters: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says.replace("(", r"\(")):
        work(op, **parameters)


def test_every_model_states_its_source_and_limits() -> None:
    for name, op in OPS.items():
        assert op.name == name
        assert len(op.source) > 20
        assert len(op.leaves_out) > 5
    assert set(TARGET_EFF) <= set(OPS)  # and an op that is not in it has no target
