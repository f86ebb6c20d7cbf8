"""Work models against published figures: each test is named after its source, and each value is the correct one.

Wrong numerators are the second largest class of public roofline errors. The reports first printed another value.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline_engine.ops import work
from roofline_engine.ops.attention import attention_pairs
from roofline_engine.ops.matmul import experts_hit, experts_hit_distinct
from roofline_engine.roofline import point
from roofline_engine.work import Work


def model(done: Work, name: str) -> float:
    return next(item.bytes for item in done.candidates if item.model == name)


# Bytes: which of them move.


def test_flashinfer_2341_moe_bytes_are_those_of_routed_experts() -> None:
    shape = {"tokens": 32, "hidden": 1024, "inter": 512, "experts": 128, "top_k": 8, "dtype": "bf16"}
    per_expert = 3 * 1024 * 512 * 2
    done = work("moe", 64 << 20, **shape)
    assert model(done, "experts_hit_distinct") / per_expert == pytest.approx(128 * (1 - (120 / 128) ** 32))
    skewed = [0] * 128
    skewed[:18] = [14] * 17 + [18]  # a skewed router: 256 pairs on 18 experts
    routed = work("moe", 64 << 20, **shape, routing=skewed)
    assert routed.bytes == 18 * per_expert
    with pytest.raises(ValueError, match="counts that add up to 12, expected 128 experts"):
        work("moe", **shape, routing=[3, 9])


def test_inference_sim_764_789_790_expected_experts_of_mixtral() -> None:
    assert experts_hit_distinct(8, 3, 2) == pytest.approx(4.625)
    assert experts_hit(8, 6) == pytest.approx(4.41, abs=0.005)  # with replacement, 4.6 % low


def test_amd_llama_cpp_50_the_shape_bound_is_no_estimate() -> None:
    assert min(64 * 8, 256) == 256
    assert experts_hit_distinct(256, 64, 8) == pytest.approx(222.4, abs=0.05)


def test_flashmla_30_h20_mla_decode() -> None:
    # b=128, s=4096, h=16 in 0.601 ms: 1012 GB/s and 30.4 TFLOP/s printed.
    done = work("mla_decode", batch=128, n_q_heads=16, seq_len=4096, dtype="bf16")
    assert model(done, "kv_cache_q_and_out") / 0.601e-3 / 1e9 == pytest.approx(1012, rel=0.001)
    assert done.flops / 0.601e-3 / 1e12 == pytest.approx(30.4, rel=0.002)
    assert done.flops == 2 * 128 * 4096 * 16 * (576 + 512)


@pytest.mark.parametrize(
    ("batch", "context", "dtype", "us", "tflops", "tb_s"),
    [
        (16, 4096, "bf16", 34.7793, 131.21, 2.20279),
        (128, 131072, "bf16", 3246.21, 359.875, 5.95656),
        (16, 4096, "fp8", 26.8914, 169.697, 1.43421),
        (128, 4096, "fp8", 78.1666, 467.044, 3.94725),
    ],
)
def test_aiter_5456_sparse_mla_rows(batch: int, context: int, dtype: str, us: float, tflops: float, tb_s: float) -> None:
    # The table of the pull request, 32 heads on MI355X, which counts what each sequence uses and a bf16 output.
    done = work("mla_decode", batch=batch, n_q_heads=32, seq_len=context, dtype=dtype, out_dtype="bf16")
    assert done.flops / us / 1e6 == pytest.approx(tflops, rel=1e-4)
    assert model(done, "kv_cache_q_and_out") / us / 1e6 == pytest.approx(tb_s, rel=1e-4)


def test_flashinfer_2479_1638_2069_used_lengths_not_the_allocation() -> None:
    lengths = [100, 900, 4000, 0]
    done = work("mla_decode", batch=4, n_q_heads=128, seq_lens=lengths, dtype="bf16")
    assert done.bytes == sum(lengths) * 576 * 2
    assert done.flops == 2 * sum(lengths) * 128 * (576 + 512)


def test_aiter_fp8fp4_fmoe_one_token() -> None:
    # token=1, topk=6 of 384 experts of 3 x 7168 x 1536 in mxfp4: 105.3 MB in 34.2 us is 3.08 TB/s, not 202 TB/s.
    done = work(
        "moe",
        4 << 20,
        tokens=1,
        hidden=7168,
        inter=1536,
        experts=384,
        top_k=6,
        dtype="fp8",
        weight_dtype="mxfp4",
        out_dtype="bf16",
    )
    six = model(done, "experts_hit")
    assert six / 1e6 == pytest.approx(105.3, abs=0.05)
    assert six / 34.2e-6 / 1e12 == pytest.approx(3.08, abs=0.005)


def test_aiter_bf16_tuned_gemm_fp32_output_is_four_bytes() -> None:
    done = work("gemm", M=64, N=256, K=5120, dtype="bf16", out_dtype="fp32")
    assert done.bytes / 7.9191e-6 / 1e9 == pytest.approx(422.06, abs=0.01)


def test_aiter_dsv3_bandwidth_is_recomputed_from_the_shape() -> None:
    done = work("gemm", M=8, N=9216, K=7168, dtype="fp8", out_dtype="bf16")
    assert done.bytes / 15.2391e-6 / 1e9 == pytest.approx(4349, abs=1)  # the file says 4.35, its siblings are in GB/s


def test_a9_agent_kernel_arena_kimi_k3_activations_are_read_once_not_once_per_expert() -> None:
    done = work("moe", 4 << 20, tokens=16384, hidden=3584, inter=512, experts=8, top_k=2, stage=1, dtype="bf16")
    weights = 8 * 2 * 3584 * 512 * 2
    written = 16384 * 2 * 512 * 2
    assert done.bytes - weights - written == pytest.approx(16384 * 3584 * 2)  # 117 MB


def test_tileops_294_dtype_of_the_tensor() -> None:
    assert 2 * work("elementwise", numel=1000, dtype="fp16").bytes == work("elementwise", numel=1000, dtype="fp32").bytes


def test_gpu_mode_fp8_mm_speed_of_light_mi300x() -> None:
    # Published predictions in us (reference-kernels, problems/amd/fp8-mm), fp8 in, bf16 out.
    for m, n, k, us in ((1024, 1536, 7168, 8.63), (6144, 4608, 7168, 155.3), (1024, 7168, 256, 3.17), (6144, 7168, 256, 17.27)):
        done = work("gemm", M=m, N=n, K=k, dtype="fp8", out_dtype="bf16")
        assert max(done.flops / 2614.9e12, done.bytes / 5.3e12) * 1e6 == pytest.approx(us, rel=0.005)


def test_gpu_mode_nvfp4_gemm_speed_of_light_b200() -> None:
    # (MK + NK)(1/2 + 1/16) + 2MN bytes at 7.68 TB/s.
    for m, n, k, us in ((128, 7168, 16384, 8.994), (128, 4096, 7168, 2.354), (128, 7168, 2048, 1.333)):
        done = work("gemm", M=m, N=n, K=k, dtype="nvfp4", out_dtype="bf16")
        assert done.bytes / 7.68e12 * 1e6 == pytest.approx(us, rel=0.005)


def test_deepgemm_readme_grouped_and_block_scaled() -> None:
    grouped = work("grouped_gemm", M=4 * 256, N=7168, K=2048, groups=4, dtype="fp8", out_dtype="bf16")
    assert grouped.bytes == 4 * 256 * 2048 + 4 * 2048 * 7168 + 4 * 256 * 7168 * 2
    # The published pair 815 TFLOP/s and 2047 GB/s is one time: the ratio of FLOPs to bytes.
    assert grouped.flops / grouped.bytes == pytest.approx(815e12 / 2047e9, rel=0.01)
    half_empty = work("grouped_gemm", M=512, N=64, K=64, groups=4, group_sizes=[512, 0, 0, 0], dtype="bf16")
    assert half_empty.bytes == 2 * (512 * 64 + 64 * 64 + 512 * 64)
    plain = work("gemm", M=64, N=7168, K=16384, dtype="fp8", out_dtype="bf16")
    scaled = work("gemm", M=64, N=7168, K=16384, dtype="fp8", out_dtype="bf16", scale_block=128)
    assert scaled.bytes - plain.bytes == 4 * (64 * 128 + 128 * 56)
    int4 = work("gemm", M=1, N=4096, K=4096, dtype="bf16", weight_dtype="int4", group_size=128)
    assert int4.bytes == 4096 * 2 + 4096 * 4096 / 2 + 32 * 4096 * 2 + 4096 * 2


def test_a10_gpt_oss_120b_attention_the_kv_dtype_decides() -> None:
    shape = {"batch": 64, "n_q_heads": 32, "n_kv_heads": 4, "head_dim": 64, "seq_len": 8704, "dtype": "bf16"}
    assert work("attn_decode", **shape).bytes / 108.3e-6 / 1e12 == pytest.approx(5.27, abs=0.005)
    fp8 = work("attn_decode", **shape, kv_dtype="fp8")
    assert fp8.bytes / 108.3e-6 / 1e12 == pytest.approx(2.63, abs=0.005)
    assert any("kv_dtype not given" in item.text for item in work("attn_decode", **shape).notes)


# FLOPs.


def test_pytorch_195460_sdpa_counts_something() -> None:
    shape = {"batch": 1, "n_q_heads": 12, "n_kv_heads": 12, "seq_q": 64, "head_dim": 64, "dtype": "fp32"}
    assert work("attn_prefill", **shape, causal=False).flops == 12_582_912


def test_maxtext_1972_1988_causal_attention_is_half() -> None:
    n = 4096
    full = attention_pairs(n, n)
    assert attention_pairs(n, n, right=0) == n * (n + 1) // 2
    assert attention_pairs(n, n, right=0) / full == pytest.approx(0.5, abs=0.001)


def test_geak_llama_prefill_the_causal_half_decides_the_verdict() -> None:
    # 2 x 8192 tokens, 32 query heads, 8 KV heads of 128, 889.3 us.
    shape = {"batch": 2, "n_q_heads": 32, "n_kv_heads": 8, "head_dim": 128, "seq_q": 8192, "dtype": "bf16"}
    assert work("attn_prefill", **shape).flops / 889.3e-6 / 1e12 == pytest.approx(1236, abs=1)
    assert work("attn_prefill", **shape, causal=False).flops / 889.3e-6 / 1e12 == pytest.approx(2473, abs=1)


def test_xformers_1404_gqa_flops_by_query_heads_and_bytes_by_kv_heads() -> None:
    shape = {"batch": 1, "n_q_heads": 32, "head_dim": 128, "seq_q": 1024, "dtype": "bf16"}
    mha, gqa = (work("attn_prefill", **shape, n_kv_heads=heads) for heads in (32, 8))
    assert gqa.flops == mha.flops
    assert mha.bytes - gqa.bytes == 1024 * 24 * 128 * 2 * 2


def test_sglang_8932_decode_flops_have_no_kv_head_factor() -> None:
    done = work("attn_decode", batch=2, n_q_heads=32, n_kv_heads=8, head_dim=192, head_dim_v=128, seq_len=1000, dtype="bf16")
    assert done.flops == 2 * 2 * 1000 * 32 * (192 + 128)
    assert done.bytes == 2 * 1000 * 8 * (192 + 128) * 2
    shared = work("attn_decode", batch=2, n_q_heads=32, n_kv_heads=8, head_dim=128, seq_len=1000, shared_kv=True, dtype="bf16")
    assert shared.bytes == 2 * 1000 * 8 * 128 * 2


def test_xformers_1033_varlen_is_the_sum_over_sequences() -> None:
    heads = {"n_q_heads": 8, "n_kv_heads": 8, "head_dim": 64, "dtype": "bf16"}
    whole = work("attn_prefill", **heads, seq_lens=[100, [20, 300], 7])
    parts = [
        work("attn_prefill", **heads, batch=1, seq_q=100),
        work("attn_prefill", **heads, batch=1, seq_q=20, seq_kv=300),
        work("attn_prefill", **heads, batch=1, seq_q=7),
    ]
    assert whole.flops == sum(part.flops for part in parts)
    assert whole.bytes == sum(part.bytes for part in parts)


def test_xformers_1402_scores_and_values_share_the_pairs_of_a_causal_rectangle() -> None:
    # 4 queries, 10 keys, dims 8 and 16. xformers counts the triangle as N^2/2 (8 pairs): 1536 once its value term is right,
    # 1920 before. The exact triangle has N(N+1)/2 = 10 pairs.
    done = work("attn_prefill", batch=1, n_q_heads=1, n_kv_heads=1, head_dim=8, head_dim_v=16, seq_q=4, seq_kv=10, dtype="bf16")
    assert done.flops == 2 * (24 + 10) * (8 + 16)
    assert done.flops - 2 * 2 * (8 + 16) == 1536


def test_triton_742_causal_with_fewer_queries_than_keys() -> None:
    # Mask at the bottom right: n_q n_kv - n_q (n_q - 1) / 2.
    assert attention_pairs(100, 1000, right=0) == 100 * 1000 - 100 * 99 // 2


def test_flash_attention_backward_is_two_and_a_half_forwards() -> None:
    shape = {"batch": 4, "n_q_heads": 16, "n_kv_heads": 16, "head_dim": 128, "seq_q": 8192, "causal": False, "dtype": "bf16"}
    forward, flash = work("attn_prefill", **shape), work("attn_backward", **shape)
    assert flash.flops == 2.5 * forward.flops
    assert work("attn_backward", **shape, algorithm="math").flops == 2 * forward.flops
    assert flash.flops / 4043e-6 / 1e12 == pytest.approx(1359.8, rel=0.001)  # flash-attention#2280, B200


def test_aiter_815_causal_backward_counted_full_reads_twice_the_truth() -> None:
    shape = {"batch": 8, "n_q_heads": 64, "n_kv_heads": 8, "head_dim": 128, "seq_q": 8192, "dtype": "bf16"}
    assert work("attn_backward", **shape).flops / 20893e-6 / 1e12 == pytest.approx(1052.5, rel=0.001)  # printed: 2105


def test_b9_tinygrad_2114_more_flops_than_the_roof_is_suspect_not_clamped() -> None:
    # A Winograd convolution executes fewer FLOPs than its definition: the ratio may exceed 1 and the row is marked.
    done = work("conv2d", batch=1, in_channels=256, out_channels=256, input=[64, 64], kernel=[3, 3], padding=1, dtype="fp32")
    assert done.flops == 2 * 256 * 64 * 64 * 256 * 9
    p = point(done.bytes, done.flops, done.flops / 148.177e12, 1e12, 35e12)
    assert p.raw == pytest.approx(148.177 / 35)


def test_b8_add_with_a_default_alpha_is_one_flop() -> None:
    assert work("elementwise", numel=1000, inputs=2, dtype="fp32").flops == 1000


def test_convolutions_as_torchs_flop_counter_counts_them() -> None:
    # out = (in + 2 pad - dilation (k - 1) - 1) / stride + 1
    done = work(
        "conv2d", batch=2, in_channels=64, out_channels=128, input=[56, 56], kernel=[3, 3], stride=2, padding=1, dtype="fp16"
    )
    assert done.flops == 2 * 2 * 128 * 28 * 28 * 64 * 9
    assert done.bytes == 2 * (2 * 64 * 56 * 56 + 128 * 64 * 9 + 2 * 128 * 28 * 28)
    depthwise = work(
        "conv1d", batch=1, in_channels=512, out_channels=512, input=[1000], kernel=[4], padding=3, groups=512, dtype="bf16"
    )
    assert depthwise.flops == 2 * 512 * 1003 * 4
    volume = work(
        "conv3d", batch=1, in_channels=3, out_channels=8, input=[8, 16, 16], kernel=[2, 4, 4], stride=[2, 4, 4], dtype="fp32"
    )
    assert volume.flops == 2 * 8 * (4 * 4 * 4) * 3 * 32
    for direction in ("data", "weight"):
        again = work("conv1d", batch=1, in_channels=4, out_channels=4, input=[9], kernel=[3], dtype="bf16", direction=direction)
        assert again.flops == 2 * 4 * 7 * 4 * 3
    with pytest.raises(ValueError, match="does not fit"):
        work("conv1d", batch=1, in_channels=4, out_channels=4, input=[2], kernel=[3], dtype="bf16")


# Streaming and recurrent ops, from their definitions.


def test_streaming_definitions() -> None:
    assert work("transpose", rows=10, cols=20, dtype="bf16").bytes == 2 * 200 * 2
    assert work("reduce", rows=10, cols=20, dtype="bf16", out_dtype="fp32").bytes == 200 * 2 + 10 * 4
    assert work("gather", rows=10, cols=20, dtype="bf16").bytes == 10 * (20 * 4 + 8)
    assert work("rope", tokens=4, n_heads=8, head_dim=64, dtype="bf16").bytes == 4 * 8 * 64 * 4 + 4 * 64 * 2
    quantised = work("quantize", rows=4, cols=256, group_size=128, dtype="bf16", out_dtype="fp8")
    assert quantised.bytes == 4 * 256 * 3 + 4 * 2 * 4
    assert work("dequantize", rows=4, cols=256, group_size=128, dtype="fp8", out_dtype="bf16").bytes == quantised.bytes
    assert work("topk", rows=3, cols=1000, k=8, dtype="fp32").bytes == 3 * (1000 * 4 + 8 * 8)
    # Liger's fused forward writes the gradient in place: 16384 x 131072 fp32 in 15009.4 us is 1716.9 GB/s.
    fused = work("cross_entropy", rows=16384, cols=131072, dtype="fp32", with_grad=True)
    assert fused.bytes / 15009.4e-6 / 1e9 == pytest.approx(1716.9, rel=0.001)
    # quack's forward only reads: 4096 x 131072 bf16 in 664.033 us is 1617 GB/s.
    forward = work("cross_entropy", rows=4096, cols=131072, dtype="bf16")
    assert forward.bytes / 664.033e-6 / 1e9 == pytest.approx(1617, rel=0.001)
    adam = work("optimizer", numel=1000, algorithm="adamw", dtype="bf16")
    assert adam.bytes == 1000 * (2 + 2 + 2 + 4 * 4)  # parameter read and written, gradient read, two fp32 moments both


def test_recurrent_definitions() -> None:
    step = work("gated_delta", batch=2, seq=1, heads=32, key_heads=16, key_dim=128, value_dim=128, dtype="bf16")
    state = 2 * 32 * 128 * 128
    assert step.flops == 7 * state
    assert step.bytes == 2 * (2 * 16 * 128 * 2 + 32 * 128 * 4 + 32 * 8) + 2 * state * 4
    assert step.engine == "vector"
    assert work("gated_delta", batch=2, seq=64, heads=32, key_dim=128, value_dim=128, dtype="bf16").engine == "matrix"
    scan = work("ssm_scan", batch=2, seq=1, heads=64, head_dim=64, state_dim=128, groups=8, dtype="bf16")
    assert scan.flops == 2 * 64 * (5 * 64 * 128 + 2 * 64)
    assert scan.bytes == 2 * (64 * 64 * 4 + 2 * 8 * 128 * 2 + 64 * 4) + 2 * 2 * 64 * 64 * 128 * 4


def test_shared_experts_of_the_same_launch() -> None:
    shape = {"tokens": 64, "hidden": 1024, "inter": 256, "experts": 64, "top_k": 6, "dtype": "fp8"}
    without, with_two = work("moe", 4 << 20, **shape), work("moe", 4 << 20, **shape, shared_experts=2, shared_inter=512)
    width = 3 * 1024 * 512
    assert with_two.bytes - without.bytes == pytest.approx(2 * width)
    assert with_two.flops - without.flops == 2 * 64 * 2 * width


# Properties.


@given(
    n_q=st.integers(0, 40),
    n_kv=st.integers(0, 40),
    left=st.one_of(st.none(), st.integers(0, 45)),
    right=st.one_of(st.none(), st.integers(0, 45)),
)
def test_pairs_are_what_counting_them_gives(n_q: int, n_kv: int, left: int | None, right: int | None) -> None:
    counted = sum(
        (left is None or key >= query + n_kv - n_q - left) and (right is None or key <= query + n_kv - n_q + right)
        for query in range(n_q)
        for key in range(n_kv)
    )
    assert attention_pairs(n_q, n_kv, left=left, right=right) == counted


@given(n=st.integers(1, 3000), window=st.integers(0, 6000))
def test_a_window_as_long_as_the_sequence_is_full_and_one_of_nothing_is_nothing(n: int, window: int) -> None:
    shape = {"batch": 1, "n_q_heads": 4, "n_kv_heads": 2, "head_dim": 64, "dtype": "bf16"}
    full = work("attn_prefill", **shape, seq_q=n)
    windowed = work("attn_prefill", **shape, seq_q=n, window=window)
    assert windowed.flops == full.flops if window >= n else windowed.flops < full.flops
    if window == 0:
        assert windowed.flops == 0
    decode = work("attn_decode", **shape, seq_len=n, window=window)
    assert decode.bytes == min(n, window) * 2 * 64 * 2 * 2


@given(lengths=st.lists(st.integers(1, 5000), min_size=2, max_size=6))
def test_a_batch_of_attention_is_the_sum_of_its_sequences(lengths: list[int]) -> None:
    heads = {"n_q_heads": 8, "n_kv_heads": 2, "head_dim": 64, "dtype": "bf16"}
    whole = work("attn_decode", **heads, batch=len(lengths), seq_lens=lengths)
    parts = [work("attn_decode", **heads, batch=1, seq_len=length) for length in lengths]
    assert math.isclose(whole.bytes, sum(part.bytes for part in parts))
    assert math.isclose(whole.flops, sum(part.flops for part in parts))
