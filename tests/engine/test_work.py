"""Bytes and FLOPs per op, against figures derived here from the sizes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline_engine.ops import OPS, op_class, work
from roofline_engine.ops.matmul import experts_hit, experts_hit_distinct, positions_met
from roofline_engine.work import TARGET_EFF, fit_to_cache

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


@pytest.mark.parametrize(("experts", "top_k", "tokens"), [(8, 2, 1), (256, 8, 1), (256, 8, 16), (64, 6, 10)])
def test_few_tokens_hit_distinct_experts(experts: int, top_k: int, tokens: int) -> None:
    sizes = {"hidden": 64, "inter": 32, "experts": experts, "top_k": top_k, "dtype": "bf16"}
    one = work("moe", tokens=1, **sizes)
    per_expert = 3 * 64 * 32 * 2
    assert one.bytes == pytest.approx(top_k * per_expert, rel=1e-12)  # exactly k, not a fraction less
    some = work("moe", tokens=tokens, **sizes)
    assert some.bytes == pytest.approx(experts * (1 - (1 - top_k / experts) ** tokens) * per_expert)
    assert [model.model for model in some.candidates] == ["experts_hit", "experts_hit_and_activations", "all_experts"]


@pytest.mark.parametrize(("dtype", "kept"), [("bf16", (2 + 0.25) / 2), ("fp8", (1 + 0.25) / 2), ("fp4", (0.5 + 0.125) / 2)])
def test_sparse_weights_are_half_of_the_values_and_their_indices(dtype: str, kept: float) -> None:
    # Two of four values: half of the bytes and 2 bits for each that is kept, of 4-bit values 2 for a pair.
    m, n, k, a = 16, 64, 128, {"bf16": 2, "fp8": 1, "fp4": 0.5}[dtype]
    dense, sparse = (
        work("gemm", M=m, N=n, K=k, dtype=dtype, out_dtype="bf16", sparsity=sparsity) for sparsity in ("dense", "2:4")
    )
    assert sparse.flops == dense.flops / 2
    assert sparse.bytes == m * k * a + n * k * kept + m * n * 2
    grouped = work("grouped_gemm", M=m, N=n, K=k, groups=4, dtype=dtype, out_dtype="bf16", sparsity="2:4")
    assert grouped.bytes == m * k * a + 4 * n * k * kept + m * n * 2
    moe = work("moe", tokens=1, hidden=n, inter=k, experts=4, top_k=2, dtype=dtype, sparsity="2:4")
    assert (moe.bytes, moe.flops) == (pytest.approx(2 * 3 * n * k * kept), 2 * 2 * 3 * n * k / 2)
    with pytest.raises(ValueError, match=r"gemm: sparsity is '1:3', expected one of dense, 2:4"):
        work("gemm", M=m, N=n, K=k, dtype=dtype, sparsity="1:3")


@pytest.mark.parametrize(
    ("op", "sizes", "written"),
    [
        ("gemm", {"M": 8, "N": 16, "K": 32, "batch": 3, "out_dtype": "fp32"}, 3 * 8 * 16 * 4),
        ("copy", {"rows": 8, "cols": 16}, 8 * 16 * 2),
        ("reduce", {"rows": 8, "cols": 16}, 8 * 2),
        ("rmsnorm", {"rows": 8, "cols": 16, "residual": True}, 2 * 8 * 16 * 2),
        ("optimizer", {"numel": 10, "algorithm": "adam"}, 10 * (2 + 2 * 4)),  # the parameter, and two moments in fp32
        ("optimizer", {"numel": 10, "algorithm": "sgd", "master_dtype": "fp32"}, 10 * (2 + 4)),
        ("attn_prefill", {"batch": 1, "n_q_heads": 4, "n_kv_heads": 2, "head_dim": 8, "seq_q": 16}, 16 * 4 * 8 * 2),
    ],
)
def test_results_are_counted_apart(op: str, sizes: dict[str, object], written: float) -> None:
    done = work(op, dtype="bf16", **sizes)
    assert done.written == written
    assert written < done.bytes


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


#: One call of each op, and for a parameter that doubling will not do for: what is given in its place, with what goes along.
_CALLS: dict[str, tuple[dict[str, object], dict[str, dict[str, object]]]] = {
    "gemm": (
        {"M": 2, "N": 3, "K": 64, "weight_dtype": "int8"},
        {"batch": {"batch": 2}, "addend": {"addend": 3}, "weight_dtype": {"weight_dtype": "int4"}}
        | {"scale_block": {"scale_block": 32}, "group_size": {"group_size": 32}},
    ),
    "grouped_gemm": (
        {"M": 4, "N": 3, "K": 5, "groups": 2},
        {"group_sizes": {"group_sizes": [4, 0]}, "weight_dtype": {"weight_dtype": "fp8"}},
    ),
    "moe": (
        {"tokens": 3, "hidden": 8, "inter": 4, "experts": 4, "top_k": 2, "shared_experts": 1, "shared_inter": 4},
        {"stage": {"stage": 1}, "gated": {"gated": False}, "routing": {"routing": [3, 3, 0, 0]}}
        | {"weight_dtype": {"weight_dtype": "fp8"}, "streams_all_experts": {"streams_all_experts": True}},
    ),
    "conv2d": (
        {"batch": 1, "in_channels": 4, "out_channels": 4, "input": [5, 6], "kernel": [2, 3]},
        {"input": {"input": [6, 6]}, "kernel": {"kernel": [3, 3]}, "stride": {"stride": 2}, "padding": {"padding": 1}}
        | {"dilation": {"dilation": 2}, "groups": {"groups": 2}, "bias": {"bias": True}}
        | {"direction": {"direction": "data", "stride": 3}, "weight_dtype": {"weight_dtype": "fp8"}},
    ),
    "attn_decode": (
        {"batch": 2, "n_q_heads": 4, "n_kv_heads": 2, "head_dim": 8, "seq_len": 9},
        {"head_dim_v": {"head_dim_v": 4}, "shared_kv": {"shared_kv": True}, "seq_lens": {"seq_lens": [5, 6]}}
        | {"seq_len_range": {"seq_len_range": [8, 10]}, "seq_q": {"seq_q": 2}, "window": {"window": 4}}
        | {"kv_dtype": {"kv_dtype": "fp8"}},
    ),
    "mla_decode": (
        {"batch": 2, "n_q_heads": 4, "seq_len": 9, "kv_lora_rank": 16, "rope_dim": 8},
        {"seq_lens": {"seq_lens": [5, 6]}, "seq_len_range": {"seq_len_range": [8, 10]}, "seq_q": {"seq_q": 2}}
        | {"kv_dtype": {"kv_dtype": "fp8"}},
    ),
    "attn_prefill": (
        {"batch": 2, "n_q_heads": 4, "n_kv_heads": 2, "head_dim": 8, "seq_q": 4, "seq_kv": 6},
        {"head_dim_v": {"head_dim_v": 4}, "seq_lens": {"seq_lens": [5, 6], "seq_q": None, "seq_kv": None}}
        | {"causal": {"causal": False}, "window": {"window": 2}, "window_left": {"window_left": 1}, "pairs": {"pairs": 7}}
        | {"window_right": {"window_right": 1, "causal": False}, "kv_dtype": {"kv_dtype": "fp8"}}
        | {"algorithm": {"algorithm": "math"}},
    ),
    "gated_delta": (
        {"batch": 1, "seq": 2, "heads": 4, "key_heads": 2, "key_dim": 8, "value_dim": 4},
        {"state_dtype": {"state_dtype": "bf16"}},
    ),
    "ssm_scan": (
        {"batch": 1, "seq": 2, "heads": 4, "head_dim": 8, "state_dim": 4},
        {"groups": {"groups": 2}, "state_dtype": {"state_dtype": "bf16"}},
    ),
    "spmm": (
        {"rows": 6, "cols": 8, "n": 3, "nnz": 12},
        {"format": {"format": "csc"}, "block": {"format": "bsr", "block": [2, 2]}, "cols_used": {"cols_used": 4}}
        | {"index_dtype": {"index_dtype": "int64"}},
    ),
    "spmv": (
        {"rows": 6, "cols": 8, "nnz": 12},
        {"format": {"format": "coo"}, "block": {"block": [2, 2]}, "cols_used": {"cols_used": 4}}
        | {"index_dtype": {"index_dtype": "int64"}},
    ),
    "elementwise": ({"numel": 9, "inputs": 1, "outputs": 1}, {}),
    "rmsnorm": ({"rows": 2, "cols": 8, "weights": 1}, {"residual": {"residual": True}}),
    "copy": ({"rows": 2, "cols": 8}, {}),
    "gather": ({"rows": 9, "cols": 8, "table_rows": 3}, {"index_dtype": {"index_dtype": "int32"}}),
    "rope": ({"tokens": 2, "n_heads": 2, "head_dim": 8}, {"rotary_dim": {"rotary_dim": 4}}),
    "quantize": (
        {"rows": 2, "cols": 8, "out_dtype": "fp8"},
        {"group_size": {"group_size": 4}, "scale_dtype": {"scale_dtype": "bf16"}},
    ),
    "cross_entropy": ({"rows": 2, "cols": 8, "out_dtype": "bf16"}, {"with_grad": {"with_grad": True}}),
    "topk": ({"rows": 2, "cols": 8, "k": 2}, {}),
    "optimizer": (
        {"numel": 9, "algorithm": "adam"},
        {"algorithm": {"algorithm": "sgd"}, "grad_dtype": {"grad_dtype": "fp32"}, "state_dtype": {"state_dtype": "bf16"}}
        | {"master_dtype": {"master_dtype": "fp32"}},
    ),
}
_LIKE = {
    **dict.fromkeys(("softmax", "transpose", "cat", "reduce"), "copy"),
    **{
        "conv1d": "conv2d",
        "conv3d": "conv2d",
        "attn_backward": "attn_prefill",
        "layernorm": "rmsnorm",
        "dequantize": "quantize",
    },
}


@pytest.mark.parametrize("op", [op for op in OPS if op not in ("conv1d", "conv3d")])  # conv2d is of their model
def test_every_accepted_parameter_is_used(op: str) -> None:
    """A parameter changes the figure, its dtype or its note, or is refused by name; an ignored one gives a wrong number."""
    given, others = _CALLS[_LIKE.get(op, op)]
    given = {"dtype": "bf16", **given}
    before = work(op, 0.0, **given)
    for key in OPS[op].accepted:
        size = given.get(key)
        change = others.get(key) or {key: 2 * size if isinstance(size, int) else "fp32"}
        try:
            assert work(op, 0.0, **{**given, **change}) != before, key
        except ValueError as error:
            assert key in str(error), f"{key}: {error}"  # noqa: PT017  # whichever of the two


@pytest.mark.parametrize(
    ("kind", "index_bytes"),
    [
        ({}, 4 * (12 + 6 + 1)),  # CSR: a column per value, a pointer per row and the end
        ({"format": "csc"}, 4 * (12 + 8 + 1)),
        ({"format": "coo", "index_dtype": "int64"}, 8 * 2 * 12),
        ({"format": "bsr", "block": [2, 3]}, 4 * (2 + 3 + 1)),  # 12 values in 2 blocks, of 3 rows of blocks
    ],
)
def test_a_sparse_product_moves_values_indices_and_vectors_once(kind: dict[str, Any], index_bytes: int) -> None:
    shape: dict[str, Any] = {"rows": 6, "cols": 8, "nnz": 12, "dtype": "fp64", **kind}
    vector, matrix = work("spmv", **shape), work("spmm", **shape, n=3)
    assert (vector.bytes, vector.flops) == (8 * 12 + index_bytes + 8 * (8 + 6), 2 * 12)
    assert (matrix.bytes, matrix.flops) == (8 * 12 + index_bytes + 8 * 3 * (8 + 6), 2 * 12 * 3)
    # 12 values in 6 rows lie in 2 columns at least: 6 of the 8 elements of the vector may not be read.
    assert vector.unavoidable == (vector.bytes - 8 * 6, 2 * 12)
    assert vector.dtype.name == "fp64"


def test_columns_without_values_are_not_read() -> None:
    shape: dict[str, Any] = {"rows": 1000, "cols": 1_000_000, "nnz": 10, "dtype": "fp32"}
    assert work("spmv", **shape).bytes == 4 * 10 + 4 * (10 + 1001) + 4 * (10 + 1000)
    known = work("spmv", **shape, cols_used=3)
    assert known.bytes == 4 * 10 + 4 * (10 + 1001) + 4 * (3 + 1000)
    assert known.unavoidable == (known.bytes, 20)
    with pytest.raises(ValueError, match="nnz is 7, more than the 2 x 3 places"):
        work("spmv", rows=2, cols=3, nnz=7, dtype="fp32")


# What the field's formats and masks leave to be got wrong.


def test_a_quantized_norm_writes_the_residual_sum_in_the_input_dtype() -> None:
    done = work("rmsnorm", rows=4, cols=128, dtype="bf16", out_dtype="fp8", residual=True)
    # x and the residual read, the sum written: 2 bytes each; the result 1; the weights.
    assert done.bytes == 4 * 128 * (2 + 2 + 2 + 1) + 128 * 2
    assert done.flops == 4 * 128 * (3 + 1 + 1)  # square, sum, scale; weight; add
    assert work("layernorm", rows=4, cols=128, dtype="bf16", weights=0).flops == 4 * 128 * 5


def test_backward_of_a_narrow_cache_and_of_another_output_type() -> None:
    shape: dict[str, Any] = {"batch": 1, "n_q_heads": 4, "n_kv_heads": 2, "head_dim": 8, "head_dim_v": 6, "seq_q": 5}
    done = work("attn_backward", **shape, dtype="bf16", kv_dtype="fp8", out_dtype="fp32", causal=False)
    q_and_its_gradient, out_and_its_gradient = 2 * 5 * 4 * 8 * 2, 2 * 5 * 4 * 6 * 4
    assert done.bytes == q_and_its_gradient + out_and_its_gradient + 2 * 5 * 2 * (8 + 6) * 1


@pytest.mark.parametrize("window", [None, 0, 1, 2, 7])
@pytest.mark.parametrize("length", [2, 3, 9])
def test_several_queries_of_a_decode_step_are_causal_among_themselves(window: int | None, length: int) -> None:
    queries, heads, kv_heads, dim = 3, 4, 2, 8
    seen = [
        (query, key)
        for query in range(queries)
        for key in range(length)
        if key <= (at := query + length - queries) and (window is None or key > at - window)
    ]
    shape: dict[str, Any] = {"batch": 2, "n_q_heads": heads, "n_kv_heads": kv_heads, "head_dim": dim, "dtype": "bf16"}
    for lengths in ({"seq_len": length}, {"seq_lens": [length, length]}):
        done = work("attn_decode", **shape, **lengths, seq_q=queries, window=window)
        assert done.flops == 2 * 2 * heads * 2 * dim * len(seen)
        assert done.bytes == 2 * len({key for _, key in seen}) * kv_heads * 2 * dim * 2
    if window is None:
        latent = work("mla_decode", batch=2, n_q_heads=heads, kv_lora_rank=6, rope_dim=2, seq_len=length, seq_q=3, dtype="bf16")
        assert latent.flops == 2 * 2 * heads * (6 + 2 + 6) * len(seen)


def test_a_mean_context_of_a_fraction_is_between_its_neighbours() -> None:
    shape: dict[str, Any] = {"batch": 2, "n_q_heads": 4, "n_kv_heads": 2, "head_dim": 8, "seq_q": 4, "dtype": "bf16"}
    mean, split = work("attn_decode", **shape, seq_len=10.5), work("attn_decode", **shape, seq_lens=[10, 11])
    assert (mean.bytes, mean.flops) == (split.bytes, split.flops)


def test_shared_keys_and_values_use_the_longer_width() -> None:
    shape: dict[str, Any] = {"batch": 1, "n_q_heads": 16, "n_kv_heads": 1, "seq_len": 100, "shared_kv": True, "dtype": "bf16"}
    for dim, dim_v in ((576, 512), (512, 576)):
        assert work("attn_decode", **shape, head_dim=dim, head_dim_v=dim_v).bytes == 100 * 576 * 2


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"seq_lens": [4, 4], "seq_q": 4}, "seq_lens has 2 sequences, and seq_q is given too"),
        ({"seq_lens": [4, 4], "batch": 3}, "seq_lens has 2 sequences, and batch is 3"),
        ({"seq_lens": [4.5]}, "seq_lens is 4.5, expected a whole number"),
        ({"batch": 1, "seq_q": 4, "window": 2, "window_left": 2}, "window_left is 2, which contradicts causal and window 2"),
        ({"batch": 1, "seq_q": 4, "window_right": 1}, "window_right is 1, which contradicts causal"),
    ],
)
def test_contradicting_prefill_sizes_are_refused(more: dict[str, object], says: str) -> None:
    for op in ("attn_prefill", "attn_backward"):
        with pytest.raises(ValueError, match=says):
            work(op, n_q_heads=1, n_kv_heads=1, head_dim=8, dtype="bf16", **more)


def test_a_shared_expert_writes_between_the_stages() -> None:
    shape: dict[str, Any] = {"tokens": 6, "hidden": 8, "inter": 4, "experts": 2, "top_k": 1, "dtype": "bf16"}
    between = 6 * 4 + 6 * 2 * 5  # of the routed experts and of two shared ones, 5 wide
    for stage, rows in ((1, 6 * 8 + between), (2, between + 6 * 8), ("both", 2 * 6 * 8 + 2 * between)):
        with_shared = work("moe", 0.0, **shape, stage=stage, shared_experts=2, shared_inter=5)
        weights = {1: 2, 2: 1, "both": 3}[stage] * 8
        hit = experts_hit(2, 6)
        assert with_shared.bytes == pytest.approx(2 * (weights * (hit * 4 + 2 * 5) + rows))


def test_traffic_beyond_the_cache_is_counted_and_listed() -> None:
    """The figure has it from the L2 on; a row is beyond the roof by its smallest bytes, which a larger cache may give."""
    shape: dict[str, Any] = {"tokens": 64, "hidden": 32, "inter": 16, "experts": 1, "top_k": 1, "dtype": "bf16"}
    weights, rows, between = 3 * 32 * 16 * 2, 2 * 64 * 32 * 2, 64 * 16 * 2
    for l2, figure, beside in (
        (None, weights, {"experts_hit_and_activations": weights + rows}),
        (rows, weights, {"experts_hit_and_activations": weights + rows}),
        (rows - 1, weights + rows, {"without_activations": weights}),
        (
            between - 1,
            weights + rows + 2 * between,
            {"without_activations": weights, "without_intermediate": weights + rows},
        ),
    ):
        done = work("moe", l2, **shape)
        assert done.bytes == figure
        listed = {model.model: model for model in done.candidates if "activ" in model.model or "intermediate" in model.model}
        assert {name: model.bytes for name, model in listed.items()} == beside
        assert all(model.in_range == (figure == weights) for model in listed.values())
        assert fit_to_cache(work("moe", **shape), l2) == done


def test_a_gather_reads_no_more_rows_than_the_table_has() -> None:
    shape: dict[str, Any] = {"cols": 128, "dtype": "bf16", "index_dtype": "int32"}
    repeated = work("gather", **shape, rows=1_000_000, table_rows=1000)
    assert repeated.bytes == 1000 * 128 * 2 + 1_000_000 * (128 * 2 + 4)
    assert work("gather", **shape, rows=10, table_rows=1000).bytes == work("gather", **shape, rows=10).bytes


def test_the_data_gradient_has_no_bias() -> None:
    shape: dict[str, Any] = {"batch": 1, "in_channels": 2, "out_channels": 3, "input": [9], "kernel": [3], "dtype": "fp32"}
    more = {
        way: work("conv1d", **shape, direction=way, bias=True).bytes - work("conv1d", **shape, direction=way).bytes
        for way in ("forward", "data", "weight")
    }
    assert more == {"forward": 12, "data": 0, "weight": 12}


def test_groups_of_unknown_sizes_include_the_expected_hits_in_range() -> None:
    """256 rows over 256 groups: as few as one group each, 162 expected; with all 256 in the figure alone 0.9 was 1.42."""
    shape: dict[str, Any] = {"M": 256, "N": 64, "K": 128, "groups": 256, "dtype": "bf16"}
    found = models("grouped_gemm", **shape)
    operands = 2 * 256 * (128 + 64)
    assert found["a_b_c"][0] == operands + 256 * 128 * 64 * 2
    assert found["groups_hit"][0] == pytest.approx(operands + 256 * (1 - (1 - 1 / 256) ** 256) * 128 * 64 * 2)
    assert set(models("grouped_gemm", **shape, group_sizes=[1] * 256)) == {"a_b_c"}


def test_scales_included_in_a_dtype_width_are_not_counted_twice() -> None:
    shape: dict[str, Any] = {"M": 64, "N": 256, "K": 256, "out_dtype": "bf16"}
    plain = work("gemm", **shape, dtype="bf16", weight_dtype="mxfp4")
    assert work("gemm", **shape, dtype="bf16", weight_dtype="mxfp4", group_size=32).bytes == plain.bytes
    both = work("gemm", **shape, dtype="mxfp8")
    assert both.bytes == (64 * 256 + 256 * 256) * 8.25 / 8 + 64 * 256 * 2
    assert work("gemm", **shape, dtype="mxfp8", scale_block=32).bytes == both.bytes
    with pytest.raises(ValueError, match="group_size is 128, but nvfp4 has a scale per 16 values in its width"):
        work("gemm", **shape, dtype="bf16", weight_dtype="nvfp4", group_size=128)
    rows: dict[str, Any] = {"rows": 4, "cols": 64}
    for more in ({}, {"group_size": 32}, {"group_size": 32, "scale_dtype": "e8m0"}):
        assert work("quantize", **rows, dtype="bf16", out_dtype="mxfp4", **more).bytes == 4 * 64 * (2 + 4.25 / 8)
        assert work("dequantize", **rows, dtype="mxfp4", out_dtype="bf16", **more).bytes == 4 * 64 * (2 + 4.25 / 8)
    with pytest.raises(ValueError, match="scale_dtype is 'fp32', but mxfp4 has scales of 8 bits"):
        work("quantize", **rows, dtype="bf16", out_dtype="mxfp4", scale_dtype="fp32")


@pytest.mark.parametrize(
    ("british", "name", "sizes"),
    [
        ("quantise", "quantize", {"rows": 4, "cols": 256, "dtype": "bf16", "out_dtype": "fp8"}),
        ("dequantise", "dequantize", {"rows": 4, "cols": 256, "dtype": "fp8", "out_dtype": "bf16"}),
        ("optimiser", "optimizer", {"numel": 1000, "algorithm": "adam", "dtype": "bf16"}),
    ],
)
def test_british_spellings_of_ops_are_accepted(british: str, name: str, sizes: dict[str, Any]) -> None:
    assert work(british, **sizes) == work(name, **sizes)
    assert op_class(british) == op_class(name) == "elementwise"
    assert british not in OPS
