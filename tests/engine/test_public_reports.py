"""Public reports of wrong rooflines, one test each, grouped by error: peaks, bytes, FLOPs, counters, edge cases.

The correct value is derived here or given in the report. Reports about a figure or a file format are in other files:
test_peaks_audit_public, test_peaks_measured, test_public_figures, test_counters, test_counters_apply, test_roofline.
"""

from __future__ import annotations

from typing import Any

import pytest

from roofline_engine.advice import remarks
from roofline_engine.counters import read
from roofline_engine.fields import ByteModel, Entry
from roofline_engine.inputs import read_topn
from roofline_engine.ops import work
from roofline_engine.ops.attention import attention_pairs, keys_seen
from roofline_engine.ops.matmul import experts_hit, experts_hit_distinct
from roofline_engine.peaks import Device, Peaks, resolve
from roofline_engine.peaks_table import load
from roofline_engine.roofline import SATURATED_BAND, assess, point
from roofline_engine.units import parse_dtype, quantity
from roofline_engine.work import TARGET_EFF, Work
from support.ceiling_files import over, rocprof
from support.counter_files import MIB, VECCOPY_MI300, long_csv, only, wide_csv
from support.profiles import GEMM, MI300X, Run, entry, gemm_row
from support.tool import ROOT, run_tool

TABLE = load(str(ROOT / "peaks.md"))
H100 = "NVIDIA H100 80GB HBM3"
GB200 = "NVIDIA GB200"
RTX5090 = "NVIDIA GeForce RTX 5090"


def found(name: str, **keys: object) -> Peaks:
    return resolve(TABLE, Device(device_name=name, **keys))  # type: ignore[arg-type]


def streamed(nbytes: float, rate: float, peaks: Peaks, *, warm: bool = False, op: str = "copy", flops: float = 0.0) -> Entry:
    """A kernel that moves ``nbytes`` at ``rate`` bytes/s, judged at stage B."""
    fp32 = parse_dtype("fp32")
    done = Work(op, "elementwise", (ByteModel("x", nbytes, flops),), "vector", fp32, fp32, ())
    t_ms = nbytes / rate * 1e3
    return assess(Entry(stage="B", t_ms=t_ms, t_unit_ms=t_ms, pct_gpu_time=20.0), done, peaks, warm=warm)


# A. Peaks.


def test_a1_rocprofiler_compute_700_704_712_rates_of_mi300_and_a23_xprof_3163_of_amd_parts() -> None:
    rates = TABLE.rates["gfx942"]
    assert (rates.maybe("matrix.bf16"), rates.maybe("matrix.fp16")) == (2048, 2048)  # 4096 was the wrong one
    assert found("AMD Instinct MI300X").flops["bf16"] == pytest.approx(304 * 2100e6 * 2048, rel=1e-3)
    for block in TABLE.products.values():  # no AMD part is judged by another architecture's rates
        if (block.text("gfx") or "").startswith("gfx"):
            assert block.text("rates") == block.text("gfx"), block.id


def test_a14_tritonbench_78_599_1879_gbs_on_an_h100_sxm_are_56_percent() -> None:
    peak = found(H100).hbm_bw_bytes_s
    assert peak is not None
    assert 1879e9 / peak == pytest.approx(0.56, abs=0.002)  # printed: 94 %, of the PCIe card's 2.0 TB/s


def test_a24_cudnn_frontend_314_a_locked_clock_moves_the_compute_roof() -> None:
    """GB200, 152 SMs of 8192 dense BF16 FLOP/clk: 28.0 % of the highest clock's 2062 MHz is 48.1 % at 1200 (48.3 printed)."""
    rate = 0.280 * 152 * 2062e6 * 8192
    locked, free = found(GB200, run_clock_khz=1_200_000), found(GB200)
    assert locked.flops["bf16"] == pytest.approx(152 * 1200e6 * 8192, rel=1e-3)
    assert rate / locked.flops["bf16"] == pytest.approx(0.483, abs=0.003)
    assert rate / free.flops["bf16"] == pytest.approx(0.287, abs=0.001)  # of the rated 2500, at 2008 MHz
    assert locked.vector["fp32"] == pytest.approx(free.vector["fp32"] * 1200 / 2062)
    assert locked.hbm_bw_bytes_s == free.hbm_bw_bytes_s
    assert (locked.confidence, "at the 1200 MHz of the run" in locked.note) == ("high", True)


@pytest.mark.parametrize(("khz", "why"), [(1200, "no plausible kHz figure"), (2.5e6, "over the highest clock of gb200")])
def test_a24_a_run_clock_that_cannot_be_is_not_used_and_costs_the_compute_axis(khz: float, why: str) -> None:
    peaks = found(GB200, run_clock_khz=khz)
    assert peaks.flops == found(GB200).flops
    assert why in peaks.note
    assert (peaks.axis_confidence("matrix.bf16"), peaks.axis_confidence("memory")) == ("low", "high")


def test_a24_the_run_clock_is_read_from_env_report(run: Run) -> None:
    run.topn(gemm_row(t_ms=2.0)).shapes(gemm_kernel=[{**GEMM, "M": 8192}])
    full = run.env(**MI300X).analyze()["entries"][0]
    half = run.env(**MI300X, run_clock_khz=1_050_000).analyze()["entries"][0]
    assert half["roofline_pct"] == pytest.approx(2 * full["roofline_pct"], rel=1e-6)
    done = run_tool("validate", run.round / "profile_roofline.json")
    assert done.code == 0, done.out


# B and bug_reports A. Bytes: caches, units, widths.

RATES_OVER_THE_ROOF = [
    ("B1 TileGym#82", found(RTX5090), 5019e9),
    ("B3 iris#119, taken as an MI300X", found("AMD Instinct MI300X"), 5563e9),
    ("B3 transformers-benchmarks#4: 16 MiB", found("NVIDIA GeForce RTX 4090"), 3868.374e9),
    ("B3 gpu-benches#6: 8 MB on a 4060 Ti", Peaks(hbm_bw_bytes_s=288e9, source="user", confidence="high"), 968e9),
    ("B4 intellikit#186: Infinity Cache of gfx1030", Peaks(hbm_bw_bytes_s=512e9, source="user", confidence="high"), 557e9),
    ("A5 llama.cpp#8898: over the 936 of the card", Peaks(hbm_bw_bytes_s=936e9, source="user", confidence="high"), 937e9),
    ("A11 gfx1151: 32 MB MALL, 3.4x", found("Radeon 8060S Graphics"), 3.4 * 231e9),
    ("A11 RRZE gpu-benches H200: 1.5 MB in the L2", found("NVIDIA H200"), 13.5e12),
    ("F1 llm.c#851: persisting L2 window on L40S", found("NVIDIA L40S"), 3530e9),
]


@pytest.mark.parametrize(("report", "peaks", "rate"), RATES_OVER_THE_ROOF, ids=[row[0] for row in RATES_OVER_THE_ROOF])
def test_a_rate_out_of_a_cache_is_never_a_percentage_of_the_memory(report: str, peaks: Peaks, rate: float) -> None:
    judged = streamed(1e9, rate, peaks)
    assert judged.roofline_pct_raw == pytest.approx(rate / (peaks.hbm_bw_bytes_s or 0))
    assert (judged.suspect, judged.headroom_class, judged.unknown_reason) == (True, "unknown", "infeasible")
    assert judged.attainable_speedup is None


@pytest.mark.parametrize(
    ("mib", "warm", "reason"),
    [(64, True, "cache_resident"), (128, True, "cache_resident"), (256, True, None), (64, False, None), (128, False, None)],
)
def test_b1_tilegym_118_a_warm_working_set_near_the_l2_has_no_verdict(mib: int, warm: bool, reason: str | None) -> None:
    """RMSNorm on GB200, L2 132.6 MB: 1.6x too fast at 64 MiB, 1.06x at 128, right at 256. 0.6 of the roof reads as 0.96."""
    judged = streamed(mib * MIB, 0.96 * 8e12, found(GB200), warm=warm, op="rmsnorm")
    assert judged.unknown_reason == reason
    assert judged.headroom_class == ("unknown" if reason else "saturated")
    assert judged.indicative_class == "saturated"
    assert judged.rankable is (reason is None)
    assert any("132.6 MB of cache: flush" in item.text for item in remarks(judged, found(GB200))) is (reason is not None)


@pytest.mark.parametrize(
    ("cols", "warm_gbs", "cold_gbs", "reason"),
    [
        (1024, 3117, 1253, "infeasible"),
        (2048, 4142, 1344, "infeasible"),
        (4096, 5019, 1434, "infeasible"),
        (8192, 1778, 1382, "cache_resident"),  # 0.99 of the roof, and 1.29x too fast
        (16384, 1451, 1366, None),
    ],
)
def test_b1_tilegym_82_rmsnorm_on_an_rtx_5090(cols: int, warm_gbs: float, cold_gbs: float, reason: str | None) -> None:
    nbytes = work("rmsnorm", rows=4096, cols=cols, dtype="fp16").bytes
    warm = streamed(nbytes, warm_gbs * 1e9, found(RTX5090), warm=True, op="rmsnorm")
    assert (warm.unknown_reason, warm.rankable) == (reason, reason is None)
    cold = streamed(nbytes, cold_gbs * 1e9, found(RTX5090), op="rmsnorm")
    assert (cold.unknown_reason, cold.rankable) == (None, True)


def test_b4_intellikit_186_the_mall_counts_as_cache_and_an_unknown_cache_is_taken_large() -> None:
    peaks = found("AMD Instinct MI300X")
    assert (peaks.l2_bytes, peaks.mall_bytes) == (32 * MIB, 256 * MIB)
    for known in (peaks, peaks._replace(l2_bytes=None, mall_bytes=None)):
        assert streamed(500 * MIB, 4e12, known, warm=True).unknown_reason == "cache_resident"
        assert streamed(520 * MIB, 4e12, known, warm=True).unknown_reason is None
    compute = streamed(64 * MIB, 4e11, peaks, warm=True, flops=64 * MIB * 100)
    assert (compute.roof_axis, compute.unknown_reason) == ("compute", None)  # a cache cannot help there


def test_b3_onednn_4529_the_bandwidth_is_of_its_operands_and_over_what_the_part_has() -> None:
    """1024x8:8x4096 in bf16, 0.026458 ms: 320.15 GB/s where at most 108 are possible, out of a cache that was not flushed."""
    rate = work("gemm", M=1024, N=4096, K=8, dtype="bf16").bytes / 26.458e-6
    assert rate / 1e9 == pytest.approx(320.15, abs=0.01)
    assert streamed(1e9, rate, Peaks(hbm_bw_bytes_s=108e9, confidence="high")).suspect


def test_a5_llama_cpp_8898_a_product_moves_each_operand_once_not_each_access() -> None:
    m, n, k = 64, 512, 4096
    done = work("gemm", M=m, N=n, K=k, dtype="fp16")
    assert done.bytes == 2 * (m * k + k * n + m * n)
    assert 2 * (2 * m * n * k) / done.bytes > 50  # what counting in the loop would give


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (2**30, "1.074 GB"),
        (1e9, "1 GB"),
        (618.01 * 2**20, "648 MB"),
        (11.865 * 2**30, "12.74 GB"),  # nvbench#4 printed 11.865 GiB/s beside a percentage of GB/s
        (450.61 * 2**30, "483.8 GB"),  # tensorflow-upstream#925: MI25 has 483.84
    ],
)
def test_b12_torchcomms_142_hello_gpu_8_nvbench_217_quantities_are_si_both_ways(value: float, shown: str) -> None:
    assert quantity(value, "B") == shown


def test_b14_tileops_1993_rows_over_a_triad_ceiling_are_under_the_roof() -> None:
    """A triad reaches 0.848 of the pins: read-mostly rows at 105 to 109 % of it are possible, up to 0.938 of the roof."""
    peaks = found("NVIDIA H200")
    peaks = peaks._replace(achievable={"memory": 0.848 * (peaks.hbm_bw_bytes_s or 0)})
    for over_triad in (1.05, 1.09):
        judged = streamed(1e9, over_triad * peaks.achievable["memory"], peaks)
        assert judged.roofline_pct == pytest.approx(over_triad * 0.848)
        assert (judged.roofline_pct or 0) < 0.938
        assert (judged.suspect, judged.headroom_class) == (False, "saturated")


def test_b15_pytorch_97057_an_operand_updated_in_place_is_read_and_written() -> None:
    assert work("elementwise", numel=1000, dtype="fp32").bytes == 2 * 4000  # x.mul_(2)
    assert work("elementwise", numel=1000, inputs=2, dtype="fp32").bytes == 3 * 4000  # x.add_(y)
    assert work("optimizer", numel=1000, algorithm="sgd", dtype="fp32").bytes == 3 * 4000  # p.add_(grad, alpha=-lr)


@pytest.mark.parametrize(
    ("report", "dtype", "value", "scale"),
    [
        ("rocm-libraries#1120", "mxfp4", 0.5, 1 / 32),
        ("rocm-libraries#1120", "mxfp6", 0.75, 1 / 32),
        ("accelerator-microbenchmarks#99", "torch.float4_e2m1fn", 0.5, 0.0),
        ("accelerator-microbenchmarks#99", "int4", 0.5, 0.0),
        ("tinygrad#17388", "torch.uint4", 0.5, 0.0),
        ("the same kind", "mxfp8", 1.0, 1 / 32),
        ("the same kind", "nvfp4", 0.5, 1 / 16),
        ("the same kind", "fp6", 0.75, 0.0),
    ],
)
def test_b16_values_narrower_than_a_byte_and_their_scales(report: str, dtype: str, value: float, scale: float) -> None:
    done = work("gemm", M=64, N=128, K=256, dtype=dtype, out_dtype="bf16")
    assert done.bytes == (64 * 256 + 256 * 128) * (value + scale) + 64 * 128 * 2


def test_b16_a_packed_shape_is_not_halved_twice() -> None:
    with pytest.raises(ValueError, match="packed storage: give logical sizes and fp4"):
        work("gemm", M=64, N=128, K=128, dtype="torch.float4_e2m1fn_x2")


def test_b19_vllm_54228_a2_inference_sim_790_draws_are_without_replacement() -> None:
    assert experts_hit_distinct(384, 1, 6) == pytest.approx(6, rel=1e-12)  # one token reads exactly its six
    assert experts_hit(384, 6) == pytest.approx(5.96, abs=0.005)  # with replacement
    assert experts_hit_distinct(8, 3, 2) == pytest.approx(8 * (1 - (6 / 8) ** 3))  # 4.625 of the issue, not 6 and not 8
    done = work("moe", tokens=64, hidden=64, inter=32, experts=256, top_k=8, dtype="bf16")
    assert done.bytes < min(64 * 8, 256) * 3 * 64 * 32 * 2


def test_a1_flashinfer_2341_the_experts_that_were_counted() -> None:
    counts = [2] * 113 + [30] + [0] * 14  # 256 pairs on 114 of 128 experts
    done = work("moe", 64 << 20, tokens=32, hidden=64, inter=32, experts=128, top_k=8, dtype="bf16", routing=counts)
    assert done.bytes == 114 * 3 * 64 * 32 * 2


# C and bug_reports B. FLOPs.


def test_c1_b2_maxtext_1988_causal_attention_of_a_training_step_is_211_tflop() -> None:
    """Forward and twice that backward over 2^45 = batch x seq^2 x heads x dim x layers: 422.21 full, 211.11 causal."""
    shape: dict[str, Any] = {"batch": 4, "n_q_heads": 32, "n_kv_heads": 32, "head_dim": 128, "seq_q": 8192, "dtype": "bf16"}
    for causal, tflop in ((False, 422.21), (True, 211.11)):
        forward = work("attn_prefill", **shape, causal=causal).flops
        backward = work("attn_backward", **shape, causal=causal, algorithm="math").flops
        assert 32 * (forward + backward) / 1e12 == pytest.approx(tflop, rel=2e-4)


def test_c1_modular_5557_torchtitan_341_causal_prefill_halves_the_rate() -> None:
    n = 16384
    assert attention_pairs(n, n, right=0) / n**2 == pytest.approx(0.5, abs=1e-4)


@pytest.mark.parametrize(
    ("report", "tflops"),
    [
        ("B2 Megatron-LM#831: 189 TFLOP/s, doubled by the full square", 2 * 189.0),
        ("B3 flash-attention#573: 322 TFLOP/s on an A800", 322.0),
        ("A10 nanoGPT#464", 1.04 * 312),
        ("D3 nsys-ai#385", 3.69 * 312),
    ],
)
def test_more_flops_than_the_part_has_are_suspect_and_never_saturated(report: str, tflops: float) -> None:
    peaks = found("NVIDIA A100-SXM4-80GB")  # 312; an A800 has the same tensor cores
    bf16 = parse_dtype("bf16")
    done = Work("gemm", "gemm", (ByteModel("x", 1e6, tflops * 1e9),), "matrix", bf16, bf16, ())
    judged = assess(Entry(stage="B", t_ms=1.0, t_unit_ms=1.0, pct_gpu_time=20.0), done, peaks)
    assert judged.roofline_pct_raw == pytest.approx(tflops / 312)
    assert (judged.suspect, judged.headroom_class, judged.roofline_pct) == (True, "unknown", 1.0)


def test_b3_sycl_tla_322_332_bytes_are_those_of_the_keys_a_query_sees() -> None:
    """A causal triangle halves what blocks re-read, not the compulsory bytes: its last query sees every key. A window does."""
    heads: dict[str, Any] = {"batch": 1, "n_q_heads": 8, "n_kv_heads": 2, "head_dim": 64, "dtype": "bf16"}
    full, causal = (work("attn_prefill", **heads, seq_q=512, causal=flag) for flag in (False, True))
    assert causal.bytes == full.bytes
    q_and_out, per_key = 2 * 128 * 8 * 64 * 2, 2 * 2 * 64 * 2
    chunk = work("attn_prefill", **heads, seq_q=128, seq_kv=4096, window=1024)
    assert chunk.bytes == q_and_out + (1024 + 127) * per_key  # of 4096 cached
    back = work("attn_backward", **heads, seq_q=128, seq_kv=4096, window=1024)
    assert back.bytes == 2 * q_and_out + (1024 + 127) * per_key + 4096 * per_key  # every key's gradient is written


@pytest.mark.parametrize("n_q", [0, 1, 3, 7])
@pytest.mark.parametrize("left", [None, 0, 2, 9])
def test_keys_seen_are_what_counting_them_gives(n_q: int, left: int | None) -> None:
    n_kv = 5
    seen = {
        key
        for query in range(n_q)
        for key in range(n_kv)
        if key <= query + n_kv - n_q and (left is None or key >= query + n_kv - n_q - left)
    }
    assert keys_seen(n_q, n_kv, left=left) == len(seen)


@pytest.mark.parametrize("report", ["C3 LLM-Viewer#12", "C3 pytorch#177188"])
def test_gqa_flops_go_by_query_heads_and_kv_bytes_by_kv_heads(report: str) -> None:
    shape: dict[str, Any] = {"batch": 2, "n_q_heads": 32, "head_dim": 128, "seq_len": 1000, "dtype": "bf16"}
    gqa, mha = (work("attn_decode", **shape, n_kv_heads=heads) for heads in (8, 32))
    assert gqa.flops == mha.flops == 2 * 2 * 2 * 1000 * 32 * 128
    assert mha.bytes == 4 * gqa.bytes


@pytest.mark.parametrize(("n_q", "n_kv"), [(128, 4096), (300, 1000), (1000, 300)])
def test_c4_intel_xpu_triton_5854_a_causal_rectangle(n_q: int, n_kv: int) -> None:
    pairs = sum(max(0, min(n_kv, query + n_kv - n_q + 1)) for query in range(n_q))
    done = work("attn_prefill", batch=1, n_q_heads=16, n_kv_heads=4, head_dim=128, seq_q=n_q, seq_kv=n_kv, dtype="bf16")
    assert done.flops == 4 * 16 * 128 * pairs
    if n_q == 128:  # sgl-kernel-xpu#192: 0.984497 of the rectangle, 24.7083 TFLOP/s in 0.171132 ms
        assert pairs / (n_q * n_kv) == pytest.approx(0.984497, abs=1e-6)
        assert done.flops / 0.171132e-3 / 1e12 == pytest.approx(24.7083, rel=1e-3)


def test_c4_intel_xpu_triton_5987_the_pairs_of_a_neighbourhood_mask() -> None:
    """NATTEN: each of 32 x 32 queries sees 7 x 7 keys; the square of the sequence is 21 times that."""
    shape: dict[str, Any] = {"batch": 2, "n_q_heads": 4, "n_kv_heads": 4, "head_dim": 64, "seq_q": 1024, "dtype": "bf16"}
    full, near = (work("attn_prefill", **shape, causal=False, pairs=pairs) for pairs in (None, 2 * 1024 * 49))
    assert near.flops == 4 * 4 * 64 * 2 * 1024 * 49
    assert full.flops / near.flops == pytest.approx(1024 / 49)
    assert near.bytes == full.bytes
    with pytest.raises(ValueError, match="pairs is 2097153, expected at most the 2097152 that the full mask leaves"):
        work("attn_prefill", **shape, causal=False, pairs=2 * 1024**2 + 1)


def test_b5_pytorch_134804_145947_attention_is_its_two_products_once() -> None:
    heads, n, dim = 12, 256, 64
    whole = work("attn_prefill", batch=1, n_q_heads=heads, n_kv_heads=heads, head_dim=dim, seq_q=n, causal=False, dtype="bf16")
    scores = work("gemm", batch=heads, M=n, N=n, K=dim, dtype="bf16")
    values = work("gemm", batch=heads, M=n, N=dim, K=n, dtype="bf16")
    assert whole.flops == scores.flops + values.flops


def test_b5_pytorch_126268_a_count_of_zero_is_no_count(run: Run) -> None:
    zero = {"SQ_INSTS_VALU_MFMA_MOPS_BF16": 0, "FETCH_SIZE": 140_000, "WRITE_SIZE": 1_000, "ns": 50_000}
    assert only(long_csv(zero)).flops == {}
    (run.round / "counter_collection.csv").write_text(long_csv(zero, name="gemm_kernel"))
    item = run.topn(gemm_row(t_ms=0.05)).shapes(gemm_kernel=[GEMM]).env(**MI300X).analyze()["entries"][0]
    assert item["measurement_basis"] == "mixed"  # bytes counted, FLOPs the model's
    assert item["compute_util"] == pytest.approx(2 * 64 * 8192 * 8192 / 50e-6 / 1307.4e12, rel=1e-3)


def test_b6_tracelens_460_attention_without_a_dtype_is_unmodelled_with_a_note(run: Run) -> None:
    shape = {"op": "attn_decode", "batch": 8, "n_q_heads": 8, "n_kv_heads": 8, "head_dim": 128, "seq_len": 1024}
    run.topn(gemm_row("paged_attention"), gemm_row(pct=10.0)).shapes(paged_attention=[shape], gemm_kernel=[GEMM])
    artifact = run.env(**MI300X).analyze()
    item = entry(artifact, "paged_attention")
    assert (item["modeled"], item["unknown_reason"]) == (False, "unmodelled")
    assert "missing dtype" in item["notes"]
    assert entry(artifact, "gemm_kernel")["modeled"] is True


# C and bug_reports C6, E. Counters.


def test_c6_rocprofiler_compute_66_an_8x8x8_product_counts_64_times_its_flops(run: Run) -> None:
    assert work("gemm", M=8, N=8, K=8, dtype="bf16").flops == 1024
    counted = {"FETCH_SIZE": 1, "WRITE_SIZE": 1, "SQ_INSTS_VALU_MFMA_MOPS_BF16": 128, "ns": 6_000}
    (run.round / "counter_collection.csv").write_text(long_csv(counted, name="gemm_kernel"))
    tiny = {"op": "gemm", "M": 8, "N": 8, "K": 8, "dtype": "bf16"}
    artifact = run.topn(gemm_row(t_ms=0.006)).shapes(gemm_kernel=[tiny]).env(**MI300X).analyze()
    assert "65.54 kFLOP, mean of 1 dispatches" in artifact["entries"][0]["notes"]
    assert "64 of the model's (padding or recomputation is in it)" in artifact["entries"][0]["notes"]
    assert artifact["degraded"] == []


@pytest.mark.parametrize(
    ("dtype", "rate"), [("fp64", 256), ("fp32", 256), ("fp16", 1024), ("bf16", 1024), ("int8", 1024), ("fp8", None)]
)
def test_c7_olcf_user_docs_614_each_dtype_has_its_own_rate_on_gfx90a(dtype: str, rate: float | None) -> None:
    assert TABLE.rates["gfx90a"].maybe(f"matrix.{dtype}") == rate


def test_c8_rocm_systems_2985_an_fp16_vector_benchmark_at_a_quarter(tmp_path: Any) -> None:
    """35.5 TFLOP/s in FP16 beside 135.9 in FP32 on MI350X, which runs both at one rate; MI200 has twice in FP16."""
    path = tmp_path / "r.csv"
    for part, hbm, fp16, fp32 in (("MI350X", 6914, 35490.2, 135885.7), ("MI210", 1388, 0.25 * 20942, 20942)):
        path.write_text(f"device,HBMBw,FP16Flops,FP32Flops\n0,{hbm},{fp16},{fp32}\n")
        peaks, refused = over(path, part)
        assert len(refused) == 1, refused
        assert "FP16Flops" in refused[0] or "vector.fp16" in refused[0]
        assert peaks.achievable["vector.fp32"] == pytest.approx(fp32 * 1e9)
        assert "vector.fp16" not in peaks.achievable


@pytest.mark.parametrize("report", ["C6 rocprofiler-sdk#83: Grid_Size is work-items", "D6 rocm-systems#3371: workgroup size"])
def test_grid_and_workgroup_sizes_enter_no_figure(report: str) -> None:
    counted = {"FETCH_SIZE": 100, "WRITE_SIZE": 50, "SQ_INSTS_VALU_MFMA_MOPS_BF16": 10, "SQ_INSTS_VALU_FMA_F32": 3}
    small, large = (only(long_csv(counted, grid=grid)) for grid in (1024, 1_048_576))
    assert small == large
    other_workgroup = only(long_csv(counted).replace('",256,0,0', '",64,0,0'))
    assert (other_workgroup.bytes, other_workgroup.flops) == (small.bytes, small.flops)


@pytest.mark.parametrize(
    ("report", "counter"),
    [
        ("rocprofiler-sdk#47, rocm-systems#5953: SQ_WAVE_CYCLES on gfx1200", "OccupancyPercent"),
        ("rocprofiler-sdk#57, rocm-systems#8523: GL2C_HIT on gfx1201", "L2CacheHit"),
        ("rocm-systems#7893: FETCH_SIZE on gfx12", "FETCH_SIZE"),
    ],
)
def test_e3_a_counter_that_is_listed_and_never_fed_is_missing(report: str, counter: str) -> None:
    kernel = only(long_csv({counter: 0, "WRITE_SIZE": 8}, {counter: 0, "WRITE_SIZE": 8}), "gfx1201")
    assert kernel.corroboration == {}
    assert "hbm" not in kernel.bytes


def test_e5_rocm_systems_1841_a_duration_column_changes_nothing() -> None:
    with_it = {**VECCOPY_MI300, "Duration": 7000}
    assert only(wide_csv(with_it)) == only(wide_csv(VECCOPY_MI300))


def test_e5_rocprofiler_compute_61_the_counting_runs_time_never_replaces_the_profiles(run: Run) -> None:
    counted = {"FETCH_SIZE": 140_000, "WRITE_SIZE": 2_000, "ns": 60_000}
    (run.round / "counter_collection.csv").write_text(long_csv(counted, name="gemm_kernel"))
    item = run.topn(gemm_row(t_ms=0.05)).shapes(gemm_kernel=[GEMM]).env(**MI300X).analyze()["entries"][0]
    assert (item["stage"], item["t_ms"]) == ("C", 0.05)
    assert item["achieved_bw_bytes_s"] == pytest.approx(142_000 * 1024 / 50e-6)


# D and bug_reports C7. Time and edges.


def test_c7_kernelbench_times_are_milliseconds_and_minus_one_is_missing() -> None:
    rows = [{"name": "k", "pct_gpu_time": 5, "base_latency_ms": value} for value in (-1.0, 1.36)]
    missing, timed = read_topn({"top_kernels": rows}, "t.json").rows
    assert (dict(missing.base_latency_ms), missing.avg_ms) == ({}, None)
    assert dict(timed.base_latency_ms) == {"": 1.36}


@pytest.mark.parametrize("value", [0, 0.0, -1.0, float("nan"), float("inf")])
def test_d4_kineto_110_a_duration_of_nothing_is_not_measured(run: Run, value: float) -> None:
    row = {"name": "gemm_kernel", "pct_gpu_time": 20.0, "base_latency_ms": value, "avg_us": value}
    item = run.topn(row).shapes(gemm_kernel=[GEMM]).env(**MI300X).analyze()["entries"][0]
    assert (item["unknown_reason"], item["roofline_pct"], item["attainable_speedup"]) == ("not_measured", None, None)


def test_d4_llm_viewer_kineto_110_equal_timestamps_give_no_time_and_no_rate() -> None:
    found = read.parse(long_csv({"FETCH_SIZE": 1, "WRITE_SIZE": 1, "ns": 0}), "f.csv", "gfx942")
    assert found.kernels[0].t_s is None
    assert "the timestamps give no time" in found.problems[0]


def test_d10_aprender_567_the_end_to_end_gain_is_no_more_than_the_share() -> None:
    judged = streamed(1e9, 0.1 * 8e12, found(GB200))
    assert judged.attainable_speedup == pytest.approx(8.75)  # 0.875 / 0.1, of the kernel
    assert judged.expected_e2e_gain_pct == pytest.approx(20 * (1 - 1 / 8.75))  # of the run
    assert (judged.expected_e2e_gain_pct or 0) < judged.pct_gpu_time


def test_d11_sol_execbench_a_time_under_the_speed_of_light_is_no_score() -> None:
    judged = streamed(1e9, 1.25 * 8e12, found(GB200))
    assert (judged.roofline_pct_raw, judged.suspect) == (pytest.approx(1.25), True)
    assert (judged.roofline_pct, judged.hard_limit_speedup, judged.attainable_speedup) == (1.0, None, None)
    with pytest.raises(ValueError, match="time is 0"):
        point(1e9, 0.0, 0.0, 8e12, None)


def test_d13_inference_sim_415_no_kernel_is_promised_the_raw_peak() -> None:
    assert all(0 < target < 1 for target in TARGET_EFF.values())
    judged = streamed(1e9, 0.5 * 8e12, found(GB200))
    assert judged.attainable_speedup == pytest.approx(TARGET_EFF["copy"] / 0.5)
    assert (judged.attainable_speedup or 0) < (judged.hard_limit_speedup or 0)
    at_target = streamed(1e9, SATURATED_BAND * TARGET_EFF["copy"] * 8e12, found(GB200))
    assert at_target.headroom_class == "saturated"


def test_d13_inference_sim_415_a_calibrated_ceiling_stands_beside_the_roof(tmp_path: Any) -> None:
    """0.82 of the pins, as a fit or a benchmark finds it, is what is achievable; the roof stays the rated one."""
    peaks, refused = over(rocprof(tmp_path / "r.csv", {"HBMBw": 0.82 * 4800, "MFMABF16Flops": 700e3}), "NVIDIA H200")
    assert refused == []
    assert (peaks.hbm_bw_bytes_s, peaks.achievable["memory"]) == (4.8e12, pytest.approx(0.82 * 4.8e12))
