"""The Top-N in the forms that profilers and agents write, and the files next to it."""

from __future__ import annotations

from typing import Any

import pytest

from roofline_engine.config.model import read as read_config
from roofline_engine.inputs import read_env, read_shapes, read_topn
from roofline_engine.kernels import classify
from support.profiles import GEMM, MI300X, Run, entry, gemm_row
from support.tool import run_tool


def test_list_with_kernel_pct_ms_and_us_per_call() -> None:
    rows = [
        {"kernel": "main_kernel", "pct": 48.68, "ms": 4053.7, "calls": 1872, "us_per_call": 2165.4, "cat": "kernel"},
        {
            "kernel": "Memcpy DtoD (Device -> Device)",
            "pct": 0.15,
            "ms": 12.7,
            "calls": 391,
            "us_per_call": 32.6,
            "cat": "gpu_memcpy",
        },
    ]
    topn = read_topn({"total_gpu_ms": 8328.0, "kernels": rows}, "list.json")
    assert [(row.name, row.pct, row.pct_basis) for row in topn.rows] == [("main_kernel", 48.68, "")]
    assert topn.copies == (("Memcpy DtoD (Device -> Device)", 0.15),)
    assert topn.rows[0].avg_ms == pytest.approx(2.1654)
    assert topn.problems == ()


def test_list_with_name_us_and_calls_has_its_shares_from_its_own_times() -> None:
    topn = read_topn({"total_us": 8939894.8, "kernels": [{"name": "allreduce", "us": 2715523.7, "calls": 3388}]}, "rank.json")
    row = topn.rows[0]
    assert row.pct == pytest.approx(30.38, abs=0.005)
    assert row.pct_basis == "the list's total"
    assert row.avg_ms == pytest.approx(2715523.7 / 3388 / 1e3)


def test_shares_from_the_rows_times_are_noted(run: Run) -> None:
    artifact = run.write(
        "profile_topN.json", {"total_us": 1000.0, "kernels": [{"name": "gemm_kernel", "us": 400.0, "calls": 8}]}
    )
    item = artifact.shapes(gemm_kernel=[GEMM]).env(**MI300X).analyze()["entries"][0]
    assert item["pct_gpu_time"] == pytest.approx(40.0)
    assert "pct_gpu_time computed from times, of the list's total" in item["notes"]
    assert item["t_ms"] == pytest.approx(0.05)


def test_without_a_total_the_listed_rows_are_the_total() -> None:
    topn = read_topn([{"name": "a", "us": 30.0}, {"name": "b", "us": 10.0}], "rank.json")
    assert [row.pct for row in topn.rows] == pytest.approx([75.0, 25.0])


def test_the_time_of_one_call_under_the_key_of_all_is_named() -> None:
    """48.9 us of one call, taken for the time of all 164560, would give shares by the wrong weights and a time of 0.3 ns."""
    topn = read_topn([{"name": "moe", "us": 48.9, "calls": 164560}, {"name": "norm", "us": 3.1, "calls": 329120}], "rank.json")
    assert topn.rows == ()
    assert (
        "row 1 (moe): 48.9 us over 164560 calls are 0.0003 us each, too short for a launch: is it the time of one?"
        in (topn.problems[0])
    )
    kept = read_topn([{"name": "moe", "us": 48.9, "calls": 164560, "pct": 26.0, "us_per_call": 48.9}], "rank.json").rows[0]
    assert (kept.pct, kept.avg_ms) == (26.0, pytest.approx(0.0489))


def test_mixed_tensor_dtypes_leave_the_output_dtype_unknown(run: Run) -> None:
    shapes = [[64, 8192], [64, 8192]]
    rows = [gemm_row(f"add_{widest}_elementwise_kernel", shapes=shapes, dtypes=["bf16", widest]) for widest in ("bf16", "fp32")]
    artifact = run.topn(*rows).env(**MI300X).analyze()
    assert entry(artifact, rows[0]["name"])["bytes_est"] == 3 * 64 * 8192 * 2
    assert entry(artifact, rows[1]["name"])["modeled"] is False


@pytest.mark.parametrize(
    ("latency", "serving", "regime", "t_ms", "noted"),
    [
        ({"decode": 0.05, "prefill": 0.9}, {"n_decode_steps": 2033, "n_prefill_steps": 24}, "decode", 0.05, ""),
        ({"decode": 0.05, "prefill": 0.9}, {"n_decode_steps": 2, "n_prefill_steps": 24}, "prefill", 0.9, ""),
        ({"prefill": 0.9}, {"n_decode_steps": 2033, "n_prefill_steps": 24}, "decode", 0.06, "base_latency_ms has no decode"),
        ({"prefill": 0.9}, None, "prefill", 0.9, ""),
        (0.07, None, "decode", 0.07, "no step counts: decode assumed"),
        (None, {"n_decode_steps": 1, "n_prefill_steps": 0}, "decode", 0.06, "no base_latency_ms: the average"),
        ({"decode": None}, {"n_decode_steps": 1}, "decode", 0.06, "the average over all launches"),
    ],
)
def test_the_time_uses_the_regime_of_the_launches(
    run: Run, latency: Any, serving: Any, regime: str, t_ms: float, noted: str
) -> None:
    row = {"name": "gemm_kernel", "pct_gpu_time": 20.0, "avg_us": 60.0, "calls": 100}
    row.update({} if latency is None else {"base_latency_ms": latency})
    run.topn(row, **({} if serving is None else {"serving": serving})).shapes(gemm_kernel=[GEMM]).env(**MI300X)
    item = run.analyze()["entries"][0]
    assert (item["regime"], item["t_ms"]) == (regime, pytest.approx(t_ms))
    assert noted in item["notes"]


def test_a_row_without_any_time_is_not_measured(run: Run) -> None:
    run.topn({"name": "gemm_kernel", "pct_gpu_time": 20.0}).shapes(gemm_kernel=[GEMM]).env(**MI300X)
    item = run.analyze()["entries"][0]
    assert (item["unknown_reason"], item["t_ms"]) == ("not_measured", None)
    assert item["bytes_est"] is not None


@pytest.mark.parametrize("value", [True, "NaN", float("nan"), float("inf"), -3, "many", [1], {}])
def test_unusable_shares_are_named_by_file_row_and_key(value: Any) -> None:
    topn = read_topn({"top_kernels": [{"name": "k", "pct_gpu_time": value}]}, "profile_topN.json")
    assert topn.rows == ()
    assert any(problem.startswith("profile_topN.json: row 1 (k): pct_gpu_time is ") for problem in topn.problems)


def test_a_share_over_one_hundred_is_refused() -> None:
    topn = read_topn({"top_kernels": [{"name": "k", "pct_gpu_time": 264.5}]}, "t.json")
    assert topn.rows == ()
    assert "expected a percentage of at most 100" in topn.problems[0]


def test_numeric_strings_with_thousands_separators_are_read_exactly() -> None:
    topn = read_topn(
        {"total_ms": "30,416.0", "top_kernels": [{"name": "k", "total_ms": "8,045", "calls": "164,560"}]}, "t.json"
    )
    assert topn.rows[0].pct == pytest.approx(100 * 8045 / 30416)
    assert topn.rows[0].avg_ms == pytest.approx(8045 / 164560)


@pytest.mark.parametrize("data", [{}, {"results": []}, "text", 7, None, {"kernels": {}}])
def test_a_document_without_kernels_is_refused(data: Any) -> None:
    with pytest.raises(ValueError, match="expected a Top-N profile"):
        read_topn(data, "t.json")


def test_head_selection(run: Run) -> None:
    rows = [gemm_row(f"k{index}", pct=float(index)) for index in range(1, 13)]
    run.topn(*rows).env(**MI300X)
    names = [item["name"] for item in run.analyze()["entries"]]
    assert names == [f"k{index}" for index in range(12, 4, -1)]  # 5 % or more, biggest first, at most 8
    assert [item["name"] for item in run.analyze("--head-pct", 10)["entries"]] == ["k12", "k11", "k10"]
    assert [item["name"] for item in run.analyze("--head-max", 2)["entries"]] == ["k12", "k11"]
    assert len(run.analyze("--head-pct", 0, "--head-max", 0)["entries"]) == 12


def test_launches_of_one_unit(run: Run) -> None:
    moe = {"op": "moe", "tokens": 64, "hidden": 2048, "inter": 512, "experts": 256, "top_k": 8, "dtype": "fp8"}
    run.topn(gemm_row("fused_moe_kernel", t_ms=0.15, launches_per_step=80)).env(**MI300X)
    run.config(hidden_size=2048, num_hidden_layers=40, num_experts=256, num_experts_per_tok=8, moe_intermediate_size=512)
    layered = run.shapes(fused_moe_kernel=[moe]).analyze()["entries"][0]
    assert (layered["launches_per_unit"], layered["t_unit_ms"]) == (2, pytest.approx(0.3))
    staged = run.shapes(fused_moe_kernel=[{**moe, "stage": 1}]).analyze()["entries"][0]
    assert staged["launches_per_unit"] == 1
    told = run.shapes(fused_moe_kernel=[{**moe, "launches": 4}]).analyze()["entries"][0]
    assert told["launches_per_unit"] == 4
    (run.top / "config.json").unlink()
    alone = run.shapes(fused_moe_kernel=[moe]).analyze()["entries"][0]
    assert (alone["launches_per_unit"], alone["unknown_reason"]) == (1, "conflicting_models")
    assert "one launch (assumed): a whole MoE layer may take several" in alone["notes"]
    differing = run.shapes(fused_moe_kernel=[{**moe, "launches": 4}, {**moe, "launches": 1}]).analyze()
    assert "launches differ between the cases (1, 4)" in differing["degraded"][0]["reason"]


def test_the_launches_of_a_step_over_its_layers_are_no_unit_of_a_gemm(run: Run) -> None:
    # Three projections of each of 32 layers under one name: the captured shape is of one launch, as is the time.
    run.topn(gemm_row("gemm_kernel", t_ms=0.1, launches_per_step=96)).env(**MI300X)
    run.config(hidden_size=4096, num_hidden_layers=32, num_attention_heads=32)
    entry = run.shapes(gemm_kernel=[{"op": "gemm", "M": 64, "N": 4096, "K": 4096, "dtype": "bf16"}]).analyze()["entries"][0]
    assert (entry["launches_per_unit"], entry["t_unit_ms"]) == (1, pytest.approx(0.1))


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        ({"layer_types": ["sliding_attention"] * 25 + ["full_attention"] * 5}, 30),  # Gemma: one kernel runs both kinds
        ({"layer_types": ["linear_attention", "full_attention"] * 15}, 15),
        ({"hybrid_override_pattern": "MEM*EMEM*E" * 3}, 6),  # Nemotron-H
        ({"full_attention_interval": 4}, 7),
        ({}, 30),
    ],
)
def test_layers_that_run_the_attention_kernel(run: Run, config: dict[str, Any], layers: int) -> None:
    case = {
        "op": "attn_decode",
        "batch": 64,
        "n_q_heads": 16,
        "n_kv_heads": 2,
        "head_dim": 256,
        "seq_len": 1024,
        "dtype": "bf16",
    }
    run.topn(gemm_row("kernel_unified_attention_2d", launches_per_step=layers, t_ms=0.06)).shapes(
        kernel_unified_attention_2d=[case]
    )
    item = run.env(**MI300X).config(hidden_size=2048, num_hidden_layers=30, **config).analyze()["entries"][0]
    assert item["launches_per_unit"] == 1
    assert f"one of {layers} layers" in item["notes"]


def moved(m: int) -> int:
    """Bytes of GEMM with M rows: A, B and C in bf16."""
    return 2 * (m * 8192 + 8192 * 8192 + m * 8192)


def test_several_captured_shapes_are_the_mean_over_their_calls(run: Run) -> None:
    small, large = {**GEMM, "M": 1, "calls": 300}, {**GEMM, "M": 128, "calls": 100}
    item = run.topn(gemm_row()).shapes(gemm_kernel=[small, large]).env(**MI300X).analyze()["entries"][0]
    assert item["bytes_est"] == pytest.approx((300 * moved(1) + 100 * moved(128)) / 400)
    assert item["flops_est"] == pytest.approx(2 * 8192 * 8192 * (300 * 1 + 100 * 128) / 400)
    assert item["headroom_class"] != "unknown"


def test_one_time_for_several_shapes_needs_one_class_for_all(run: Run) -> None:
    # A decode-only time over shapes of both regimes: the mean would call 0.13 of the roof moderate.
    rows = {"op": "rmsnorm", "cols": 8192, "dtype": "bf16"}
    cases = [{**rows, "rows": 256, "calls": 2033}, {**rows, "rows": 16384, "calls": 120}]
    row = {"name": "rmsnorm", "pct_gpu_time": 9.0, "base_latency_ms": {"decode": 0.008, "prefill": 0.12}}
    serving = {"n_decode_steps": 2033, "n_prefill_steps": 120}
    item = run.topn(row, serving=serving).shapes(rmsnorm=cases).env(**MI300X).analyze()["entries"][0]
    assert item["headroom_class"] == "unknown"
    assert "one time for several shapes" in item["notes"]


def test_shapes_that_cover_all_launches_meet_the_average_time(run: Run) -> None:
    cases = [{**GEMM, "M": 1, "calls": 300}, {**GEMM, "M": 128, "calls": 100}]
    row = gemm_row(base_latency_ms={"decode": 0.9}, calls=400, avg_us=50.0)
    item = run.topn(row).shapes(gemm_kernel=cases).env(**MI300X).analyze()["entries"][0]
    assert item["t_ms"] == pytest.approx(0.05)
    assert item["roofline_pct"] == pytest.approx((300 * moved(1) + 100 * moved(128)) / 400 / 50e-6 / 5.3e12)
    assert len(item["byte_models"]) == 1


@pytest.mark.parametrize(("avg_us", "said"), [(50.0, False), (90.0, False), (0.05, True), (120.0, True)])
def test_a_base_latency_far_from_the_average_is_noted(run: Run, avg_us: float, said: bool) -> None:
    item = run.topn(gemm_row(t_ms=0.05, avg_us=avg_us)).shapes(gemm_kernel=[GEMM]).env(**MI300X).analyze()["entries"][0]
    assert item["t_ms"] == pytest.approx(0.05)
    assert ("times the average over all launches" in item["notes"]) is said


@pytest.mark.parametrize(("total_ms", "said"), [(200.0, False), (205.0, False), (120.0, True)])
def test_a_share_that_contradicts_its_time_is_noted(run: Run, total_ms: float, said: bool) -> None:
    row = gemm_row(pct=20.0, total_ms=total_ms)
    artifact = run.topn(row, total_gpu_time_ms=1000.0).shapes(gemm_kernel=[GEMM]).env(**MI300X).analyze()
    assert artifact["entries"][0]["pct_gpu_time"] == 20.0  # as given
    assert any("pct_gpu_time is 20, but its time is" in line for line in artifact["skill_errors"]) is said


def test_a_t_us_of_each_shape_weights_the_fold(run: Run) -> None:
    # The ratio of the whole: all bytes over all time, wherever the commonest shape stands.
    cases = [{**GEMM, "M": 1, "calls": 300, "t_us": 40.0}, {**GEMM, "M": 128, "calls": 100, "t_us": 80.0}]
    item = run.topn(gemm_row(t_ms=0.05)).shapes(gemm_kernel=cases).env(**MI300X).analyze()["entries"][0]
    whole = (300 * moved(1) + 100 * moved(128)) / (300 * 40e-6 + 100 * 80e-6)
    assert item["t_ms"] == pytest.approx(0.05)  # the Top-N's
    assert item["roofline_pct"] == pytest.approx(whole / 5.3e12)
    bad = run.shapes(gemm_kernel=[{**GEMM, "t_us": "bogus"}]).analyze()
    assert "t_us is 'bogus', expected a number" in bad["degraded"][0]["reason"]


def test_a_fold_never_averages_across_roofs(run: Run) -> None:
    thin, fat = {**GEMM, "M": 1, "calls": 900, "t_us": 40.0}, {**GEMM, "M": 8192, "calls": 1, "t_us": 4000.0}
    item = run.topn(gemm_row()).shapes(gemm_kernel=[thin, fat]).env(**MI300X).analyze()["entries"][0]
    assert item["roof_axis"] == "memory"
    assert item["roofline_pct"] == pytest.approx(moved(1) / 40e-6 / 5.3e12)
    assert f"{4000 / (900 * 40 + 4000):.1%} of that time is of shapes on another roof" in item["notes"]
    idle = [{**GEMM, "calls": 0, "t_us": 1e6}, {**GEMM, "calls": 3, "t_us": 40.0}]
    alone = run.shapes(gemm_kernel=idle).analyze()["entries"][0]
    assert alone["bytes_est"] == moved(64)


def test_a_fold_keeps_the_context_range_of_the_shapes_that_have_one(run: Run) -> None:
    heads = {"op": "attn_decode", "batch": 64, "n_q_heads": 16, "n_kv_heads": 8, "head_dim": 128, "dtype": "bf16"}
    run.topn(gemm_row("paged_attention", t_ms=0.1411)).env(gfx="gfx950", workload={"isl": 1024, "osl": 1024})
    item = run.shapes(paged_attention=[{**heads, "seq_len": 1536}, heads]).analyze()["entries"][0]
    per_token = 64 * 8 * 128 * 2 * 2
    low, high = item["roofline_pct_range"]
    assert low <= (1536 + 1024) / 2 * per_token / 141.1e-6 / 8e12
    assert high >= (1536 + 2048) / 2 * per_token / 141.1e-6 / 8e12 * (1 - 1e-9)


def test_calls_are_given_for_all_cases_or_none(run: Run) -> None:
    cases = [{**GEMM, "calls": 5000}, {**GEMM, "M": 128}]
    artifact = run.topn(gemm_row()).shapes(gemm_kernel=cases).env(**MI300X).analyze()
    assert "calls are given for some cases only" in artifact["degraded"][0]["reason"]


def test_the_kv_dtype_of_the_server_is_used_where_the_shape_has_none(run: Run) -> None:
    case = {"op": "attn_decode", "batch": 8, "n_q_heads": 8, "n_kv_heads": 8, "head_dim": 128, "seq_len": 4096, "dtype": "bf16"}
    run.topn(gemm_row("paged_attention")).shapes(paged_attention=[case])
    assert run.env(**MI300X, kv_cache_dtype="auto").analyze()["entries"][0]["weight_dtype"] == "bf16"
    assert run.env(**MI300X, kv_cache_dtype="fp8").analyze()["entries"][0]["weight_dtype"] == "fp8"


def test_packed_dtypes_are_refused_where_sizes_are_logical(run: Run) -> None:
    artifact = run.topn(gemm_row()).shapes(gemm_kernel=[{**GEMM, "weight_dtype": "float4_e2m1fn_x2"}]).env(**MI300X).analyze()
    assert "packed storage: give logical sizes and fp4" in artifact["degraded"][0]["reason"]


def test_captured_shapes_on_different_roofs_give_no_verdict(run: Run) -> None:
    thin, fat = {**GEMM, "M": 1}, {**GEMM, "M": 8192}
    item = run.topn(gemm_row(t_ms=0.5)).shapes(gemm_kernel=[thin, fat]).env(**MI300X).analyze()["entries"][0]
    assert (item["headroom_class"], item["unknown_reason"]) == ("unknown", "conflicting_models")


def test_captured_shapes_of_different_ops_are_refused(run: Run) -> None:
    cases = [GEMM, {"op": "copy", "rows": 8, "cols": 8, "dtype": "bf16"}]
    artifact = run.topn(gemm_row()).shapes(gemm_kernel=cases).env(**MI300X).analyze()
    assert "different kinds under one kernel" in artifact["degraded"][0]["reason"]


def test_shapes_of_an_unlisted_kernel_are_reported(run: Run) -> None:
    artifact = run.topn(gemm_row()).shapes(gemm_kernal=[GEMM]).env(**MI300X).analyze()
    assert "L5: shapes.json: no kernel of the Top-N is named gemm_kernal" in artifact["skill_errors"]


def test_shapes_for_a_name_that_two_rows_share_are_not_used(run: Run) -> None:
    artifact = run.topn(gemm_row(), gemm_row()).shapes(gemm_kernel=[GEMM]).env(**MI300X).analyze()
    assert any("2 rows are named gemm_kernel" in line for line in artifact["skill_errors"])
    assert all(item["headroom_class"] == "unknown" for item in artifact["entries"])


def test_est_shape_and_tensors_of_the_row_are_stage_a(run: Run) -> None:
    written = gemm_row("gemm_a", est_shape="M=64, N=8192, K=8192, dtype=bf16")
    listed = gemm_row("gemm_b", shapes=[[64, 8192], [8192, 8192]], dtypes=["torch.bfloat16", "torch.bfloat16"])
    packed = gemm_row("gemm_c", shapes=[[64, 8192], [8192, 4096]], dtypes=["fp8", "torch.float4_e2m1fn_x2"])
    artifact = run.topn(written, listed, packed).env(**MI300X).analyze()
    for name in ("gemm_a", "gemm_b"):
        item = entry(artifact, name)
        assert (item["stage"], item["confidence"], item["headroom_class"]) == ("A", "low", "unknown")
        assert item["bytes_est"] == 2 * (2 * 64 * 8192 + 8192 * 8192)
        assert item["indicative_class"] is not None
    # K3: the packed weight is [N, K/2] on paper and K values wide in fact, half a byte each.
    assert entry(artifact, "gemm_c")["flops_est"] == 2 * 64 * 8192 * 8192
    assert entry(artifact, "gemm_c")["bytes_est"] == 64 * 8192 + 8192 * 8192 / 2 + 64 * 8192


MOE_CONFIG = {
    "text_config": {
        "hidden_size": 6144,
        "num_hidden_layers": 78,
        "first_k_dense_replace": 3,
        "n_routed_experts": 256,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 2048,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "dtype": "bfloat16",
    }
}


def test_rows_without_shapes_are_guessed_from_the_config_per_device(run: Run) -> None:
    run.write("config.json", MOE_CONFIG)
    run.env(**MI300X, model_dtype="mxfp4", tp=8, workload={"isl": 8192, "osl": 1024, "conc": 64})
    run.topn(
        gemm_row("mfma_moe1_silu_mul_afp4_wfp4_bf16_t32x128"), gemm_row("paged_attention_v2", 10.0), gemm_row("rmsnorm", 9.0)
    )
    artifact = run.analyze()
    moe = entry(artifact, "mfma_moe1_silu_mul_afp4_wfp4_bf16_t32x128")
    hit = 256 * (1 - (1 - 1 / 256) ** 512)
    assert moe["bytes_est"] == pytest.approx(hit * 2 * 6144 * (2048 // 8) * 4.25 / 8)  # stage 1, width over 8 devices
    assert (moe["stage"], moe["launches_per_unit"], moe["dtype"]) == ("A", 1, "mxfp4")
    attn = entry(artifact, "paged_attention_v2")
    assert attn["bytes_est"] == 64 * 8704 * 1 * 128 * 2 * 2  # one KV head of eight on this device
    norm = entry(artifact, "rmsnorm")
    assert norm["bytes_est"] == 64 * 6144 * 4 + 6144 * 2
    assert all(item["headroom_class"] == "unknown" for item in artifact["entries"])


@pytest.mark.parametrize(
    ("name", "env", "config", "says"),
    [
        ("fused_moe_kernel", {}, {}, "workload.conc is missing"),
        ("fused_moe_kernel", {"workload": {"conc": 8}}, {"num_experts": 8}, "does not give inter, top_k"),
        ("fused_moe_prefill", {"workload": {"conc": 8}}, {}, "tokens of one launch unknown"),
        ("paged_attention", {"workload": {"conc": 8}}, {"kv_lora_rank": 512}, "multi-head latent attention"),
        ("paged_attention", {"workload": {"conc": 8}}, {"num_attention_heads": 8, "head_dim": 64}, "isl or workload.osl"),
        ("Cijk_Alik_Bljk_BBS_BH_Bias", {}, {}, "gemm without usable shapes"),
        ("chunk_gated_delta_rule_fwd_kernel", {}, {}, "linear attention"),
        ("topk_transform_decode_kernel", {}, {}, "top-k or sampling"),
        ("fused_add_rms_norm_quant", {"workload": {"conc": 8}}, {}, "fused with quantization"),
        ("paged_attention", {"workload": {"conc": 8}}, {"compress_ratios": [4]}, "compressed or sparse attention"),
        (
            "paged_attention",
            {"workload": {"conc": 8}},
            {"num_attention_heads": 64, "head_dim": 128, "num_key_value_heads": None},
            "does not give head counts",
        ),
        (
            "fused_moe_kernel",
            {"workload": {"conc": 8}, "model_dtype": "fp8"},
            {
                "num_experts": 8,
                "num_experts_per_tok": 2,
                "moe_intermediate_size": 64,
                "quantization_config": {"quant_method": "mxfp4"},
            },
            "model_dtype says fp8, config.json says mxfp4",
        ),
    ],
)
def test_sizes_missing_in_the_config_are_unmodelled_with_a_reason(
    run: Run, name: str, env: dict[str, Any], config: dict[str, Any], says: str
) -> None:
    run.topn(gemm_row(name)).env(**MI300X, **env)
    run.config(hidden_size=4096, num_hidden_layers=2, torch_dtype="bfloat16", **config)
    artifact = run.analyze()
    assert artifact["entries"][0]["unknown_reason"] == "unmodelled"
    assert says in artifact["degraded"][0]["reason"]


def test_host_side_levers_for_a_kernel_that_cannot_be_edited(run: Run) -> None:
    run.topn(gemm_row(editable=False, t_ms=0.028)).shapes(gemm_kernel=[GEMM])
    item = run.env(**MI300X, available_backends=["aiter", "hipblaslt"]).analyze()["entries"][0]
    assert (item["route"], item["headroom_class"], item["byte_reduction_levers"]) == ("host_side_track", "saturated", [])
    text = " ".join(item["host_side_levers"])
    for lever in (
        "dispatch or path selection",
        "AITER_CONFIG_GEMM_*",
        "backend swap (available: aiter, hipblaslt)",
        "graph capture",
    ):
        assert lever in text


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("fused_moe_kernel", "moe"),
        ("mfma_moe2_afp4_wfp4_bf16_cshuffle_t64x128x256", "moe"),
        ("_ZN7ck_tile6kentryILi2ENS_15MoeFlatmmKernelINS_33GemmSpatial", "moe"),
        ("moe_reduction_kernel_plain_bf16_topk9_md6144", "moe_helper"),
        ("_ZN5aiter30fused_mx_quant_moe_sort_kernelIDF16bN4opus5fp4_tE", "moe_helper"),
        ("void aiter::grouped_topk_kernel<>(hip_bfloat16*)", "moe_helper"),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "collective"),
        ("_ZN5aiter26cross_device_reduce_2stageIDF16bLi8ELb0EEEv", "collective"),
        ("void quickreduce::allreduce_prototype_twoshot<>", "collective"),
        ("kernel_paged_attention_2d", "attn_decode"),
        ("kernel_unified_attention_3d", "attn_decode"),
        ("_ZN7ck_tile6kentryILi1ENS_38FmhaBatchPrefillWithPagedKVCacheKernel", "attn_prefill"),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x64x64", "gemm"),
        ("hgemm_bf16_32x64x64x7_SPK3_W1x2x1_BLDS1_TN_AS1_0", "gemm"),
        ("nvjet_tst_128x64_64x8_1x2_h_bz_TNT", "gemm"),
        ("_fused_qk_rope_cat_and_cache_mla_kernel", "rope"),
        ("_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16b", "rmsnorm"),
        ("chunk_gated_delta_rule_fwd_kernel_h_blockdim64", "linear_attention"),
        ("_causal_conv1d_fwd_kernel", "linear_attention"),
        ("Memcpy DtoD (Device -> Device)", "memcpy"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<>>", "elementwise"),
        ("main_kernel", "unknown"),
        # Steps of a larger op, whose bytes are not those of the op.
        ("vllm::moe::topkGatingSoftmax<float, 8>", "moe_helper"),
        ("vllm::moe::count_and_sort_expert_tokens_kernel", "moe_helper"),
        ("finalizeMoeRoutingKernel", "helper"),
        ("paged_attention_ll4mi_reduce_kernel", "helper"),
        ("merge_attn_states_kernel", "helper"),
        ("FlashAttnFwdCombine", "helper"),
        ("create_flashinfer_kv_indices_triton_attention", "helper"),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float>", "helper"),
        ("Cijk_B_PostGSU2", "helper"),
        ("_gemm_a8w8_reduce_kernel", "helper"),
        # Inductor lists every op it fused.
        ("triton_poi_fused_constant_pad_nd_moe_forward_0", "fused"),
        ("triton_red_fused__scaled_dot_product_flash_attention_1", "fused"),
        ("fmha_bwd_hd128_bf16_causal", "attn_backward"),
        ("igemm_fwd_gtcx2_nhwc_fp16", "conv"),
        ("cutlass_tensorop_f16_s16816fprop_optimized", "conv"),
        ("sm80_xmma_fprop_implicit_gemm_bf16", "conv"),
        ("update_property_kernel", "unknown"),  # p-rope-rty is no rotary embedding
        # A GEMM with a fused activation or a sort in its epilogue is a GEMM.
        ("bmm_E4m3_E4m3E4m3_Fp32_t128x8x128u2_s6_et64x8_rM_TN_transOut_swiGlu_dynBatch_sm100f", "gemm"),
        ("bmm_E2m1_E2m1E2m1_Fp32_bA16_bB16_bC16_t128x8x512_s5_et128x8", "gemm"),
        ("mfma_moe1_silu_mul_afp8_wfp4_fp8_t32x128x256_pm1_fp8q_sort_async_gui_v32", "moe"),
        ("a8w8_blockscale_bpreshuffle_1x128x128_256x16x64x256_intrawave_v1", "gemm"),
        ("a4w4_blockscale_256x128x128x128", "gemm"),
        ("void mul_mat_q<(ggml_type)12, 64, false>(char const*)", "gemm"),
        ("void mul_mat_q_stream_k_fixup<(ggml_type)12, 64>", "helper"),
        # Attention: a split over the KV cache is decode, its second stage merges partial results.
        ("void flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>>", "attn_decode"),
        ("void flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128>>", "helper"),
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128>>", "attn_prefill"),
        ("_fwd_grouped_kernel_stage1", "attn_decode"),
        ("_fwd_kernel_stage2", "helper"),
        ("_fwd_grouped_kernel_stage2", "helper"),
        (
            "fmhaSm100fKernel_QkvBfloat16OBfloat16H128PagedKvCausalP64MultiCtasKvVarSeqQ16StaticSwapsAbForGen",
            "attn_decode",
        ),
        ("fmhaSm100fKernel_QkvBfloat16OBfloat16H64PagedKvCausalP64VarSeqQ128Kv128PersistentContext", "attn_prefill"),
        ("fmhaSm100fKernel_QkvBfloat16OBfloat16HQk576HV512HVPerCta256PagedKvDenseP64MultiCtasKvVarSeqQ16", "mla_decode"),
        ("void (anonymous namespace)::store_kvcache<256l, 4, false, long>(StoreKVCacheParams)", "helper"),
        # The forward models do not fit the backward steps.
        ("void (anonymous namespace)::softmax_warp_backward<float, float, float, 10, true, false>", "backward"),
        ("void at::native::(anonymous namespace)::layer_norm_grad_input_kernel<float, float, false>", "backward"),
        ("miopenSp3AsmConv_v21_1_3_gfx9_fp16_dot2_edc_f2x3_stride1", "conv"),
        ("batched_transpose_64x32_pack_4x2_ediv_1x2_half", "transpose"),
        # Copies of the runtime are no kernels, kernels that copy are.
        ("CopyDeviceToHost", "memcpy"),
        ("CopyHostToDevice", "memcpy"),
        ("hipMemcpyAsync", "memcpy"),
        ("[CUDA memcpy Host-to-Device]", "memcpy"),
        ("[CUDA memset]", "memcpy"),
        ("Memset (Device)", "memcpy"),
        ("MemcpyD2H", "memcpy"),
        ("void at::native::elementwise_kernel<128, 4, direct_copy_kernel_cuda(at::TensorIteratorBase&)>", "copy"),
        ("void memcpy_like_kernel<float>(float*)", "unknown"),
    ],
)
def test_kernel_names(name: str, op: str) -> None:
    assert classify(name).op == op


@pytest.mark.parametrize(
    ("name", "stage"),
    [
        ("fmoe_gemm1_256x128", "1"),
        ("fmoe_gemm2_256x128", "2"),
        ("moe_ck2stages_gemm1_256x64x128x128_1x4_MulABScale_v1", "1"),
        ("moe_ck2stages_gemm2_256x64x128x128_1x4_MulABScale_v1", "2"),
        ("_ZN5aiter44fmoe_stage1_bf16_pertokenFp8_g1u1_32x512_pf3E", "1"),
        ("mfma_moe2_afp4_wfp4_bf16_cshuffle_t64x128x256", "2"),
        ("_matmul_ogs_NNT_bf16xbf16xmxfp4_16x256x128x1_swiglu", "1"),
        ("fused_moe_kernel", None),
        ("_ZN5aiter37fmoe_bf16_blockscaleFp8_g1u1_vs_silu_1tg_32x256E", None),  # both stages in one launch
    ],
)
def test_the_stage_of_an_expert_gemm(name: str, stage: str | None) -> None:
    assert (classify(name).op, classify(name).stage) == ("moe", stage)


@pytest.mark.parametrize(
    ("name", "activations", "weights"),
    [
        ("bmm_E4m3_E4m3E4m3_Fp32_t128x8x128u2_swiGlu_dynBatch", "fp8", "fp8"),
        ("bmm_E2m1_E2m1E2m1_Fp32_bA16_bB16_bC16_t128x8x512", "nvfp4", "nvfp4"),
        ("bmm_MxE4m3_MxE2m1MxE4m3_Fp32_Ab32_Bb32_Cb32_t128x128x256", "mxfp8", "mxfp4"),  # weights first
        ("bmm_Bfloat16_MxInt4Bfloat16_castBfloat16_Fp32_Ab32_t128", "bf16", "int4"),
    ],
)
def test_the_dtypes_of_a_batched_gemm_by_tensorrt_llm(name: str, activations: str, weights: str) -> None:
    hint = classify(name)
    assert hint.dtype is not None
    assert hint.weight_dtype is not None
    assert (hint.dtype.name, hint.weight_dtype.name) == (activations, weights)


@pytest.mark.parametrize(
    ("name", "activations", "weights"),
    [
        ("_ZN5aiter44fmoe_stage1_bf16_per1x32Fp4_g1u1_32x512_pf3E", "mxfp4", "mxfp4"),  # fp4 alone is 6.25 % low
        ("_ZN5aiter37fmoe_bf16_blockscaleFp8_g1u1_vs_silu_1tg_32x256E", "fp8/per_1x128", "fp8/per_128x128"),
        ("_ZN5aiter44fmoe_stage1_bf16_pertokenFp8_g1u1_32x512_pf3E", "fp8", "fp8"),
        ("fused_moe_q4K", None, "q4_k"),
    ],
)
def test_a_kernels_name_gives_its_operands_with_their_scales(name: str, activations: str | None, weights: str) -> None:
    hint = classify(name)
    assert hint.weight_dtype is not None
    assert (hint.dtype.name if hint.dtype else None, hint.weight_dtype.name) == (activations, weights)


def test_copies_of_the_runtime_are_listed_with_their_share_and_have_no_headroom(run: Run) -> None:
    run.topn(gemm_row(), {"name": "CopyDeviceToHost", "pct_gpu_time": 31.5, "calls": 10, "total_ms": 4.0}).env(**MI300X)
    artifact = run.analyze()
    assert [item["name"] for item in artifact["entries"]] == ["gemm_kernel"]
    assert artifact["copies"] == [{"name": "CopyDeviceToHost", "pct_gpu_time": 31.5}]
    report = (run.round / "profile_roofline.md").read_text(encoding="utf-8")
    assert "copies and fills by the runtime, not kernels: 31.5 % of GPU time (`CopyDeviceToHost`)" in report


def test_config_flat_nested_and_foreign() -> None:
    flat = read_config({"hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32, "torch_dtype": "float16"})
    assert flat is not None
    assert (flat.head_dim, flat.n_kv_heads, flat.attention_layers) == (128, 32, 32)
    nested = read_config(
        {"text_config": {**MOE_CONFIG["text_config"], "layer_types": ["full_attention", "linear_attention"] * 39}}
    )
    assert nested is not None
    assert (nested.moe_layers, nested.attention_layers, nested.experts) == (75, 39, 256)
    assert read_config({"compilerOptions": {}}) is None
    assert read_config([1, 2]) is None


def test_env_keys_as_torch_and_hip_name_them() -> None:
    env = read_env({"gcnArchName": "gfx942", "multi_processor_count": 304, "total_memory": 206e9, "unknown_key": {}}, "e.json")
    assert (env.device.gfx, env.device.cu_count, env.device.memory_bytes) == ("gfx942", 304, 206e9)
    assert env.problems == ()
    bad = read_env({"gfx": 942, "cu_count": "many", "workload": {"isl": -1}}, "env_report.json")
    assert len(bad.problems) == 3
    assert all(problem.startswith("env_report.json") for problem in bad.problems)


def test_shapes_take_one_case_or_a_list() -> None:
    shapes, problems = read_shapes({"one": GEMM, "list": [GEMM, GEMM], "empty": [], "text": "M=1"}, "shapes.json")
    assert {name: len(cases) for name, cases in shapes.items()} == {"one": 1, "list": 2}
    assert len(problems) == 2


def test_files_are_found_beside_and_up_to_two_folders_above(run: Run) -> None:
    run.topn(gemm_row()).shapes(gemm_kernel=[GEMM]).env(**MI300X)  # env_report.json is two folders above
    assert run.analyze()["peaks"]["product"] == "mi300x"
    (run.top / "env_report.json").rename(run.top.parent / "env_report.json")  # three folders above
    assert run.analyze()["peaks"]["product"] is None
    named = run.analyze("--env", run.top.parent / "env_report.json")
    assert named["peaks"]["product"] == "mi300x"


def test_out_writes_elsewhere_and_the_file_itself_may_be_named(run: Run) -> None:
    run.topn(gemm_row()).shapes(gemm_kernel=[GEMM]).env(**MI300X)
    out = run.top / "elsewhere" / "deep"
    done = run_tool("analyze", run.round / "profile_topN.json", "--out", out)
    assert done.code == 0
    assert sorted(path.name for path in out.iterdir()) == ["profile_roofline.json", "profile_roofline.md"]
    assert sorted(path.name for path in run.round.iterdir()) == ["profile_topN.json", "shapes.json"]


def test_hostile_names_are_escaped_in_the_report_and_kept_in_the_artifact(run: Run) -> None:
    name = "evil\x1b[2J|`<script>`\nkernel"
    artifact = run.topn(gemm_row(name)).env(**MI300X).analyze()
    assert artifact["entries"][0]["name"] == name
    report = (run.round / "profile_roofline.md").read_text(encoding="utf-8")
    assert "\x1b" not in report
    assert "full name: `evil\\x1b[2J|'<script>'\\nkernel`" in report
    table = [line for line in report.splitlines() if line.startswith("| 1 ")]
    assert len(table) == 2
    assert all("`evil\\x1b[2J\\|'`" in line for line in table)  # a bare | would end the cell
    assert "\x1b" not in run_tool("analyze", run.round).err


def test_unused_input_is_reported(run: Run) -> None:
    rows = [
        gemm_row("gemm_a", est_shape="64x8192x8192"),
        gemm_row("gemm_b", shapes="[64, 8192]", dtypes=["bf16"]),
        gemm_row("gemm_c", regime="Prefil"),
    ]
    run.topn(*rows, serving="decode").env(**MI300X, workload="isl=1024", available_backends="aiter")
    artifact = run.analyze()
    assert "est_shape is neither an object nor text" in entry(artifact, "gemm_a")["notes"]
    assert "not two lists of the same length" in entry(artifact, "gemm_b")["notes"]
    errors = "\n".join(artifact["skill_errors"])
    for line in ("regime is 'Prefil'", "serving is str", "workload is str", "available_backends is str"):
        assert line in errors


def test_shares_that_look_like_fractions_are_reported(run: Run) -> None:
    artifact = run.topn(gemm_row(pct=0.45), gemm_row("other", pct=0.2)).env(**MI300X).analyze()
    assert artifact["entries"] == []
    assert any("are they fractions?" in line for line in artifact["skill_errors"])


def test_a_lone_surrogate_in_a_name_is_accepted(run: Run) -> None:
    artifact = run.write("profile_topN.json", '{"top_kernels":[{"name":"\\ud800abc","pct_gpu_time":50,"avg_us":20}]}').analyze()
    assert len(artifact["entries"]) == 1
    assert "\x9b" not in run_tool("analyze", run.topn(gemm_row("a\x9b2Jb")).round, "--json").out


def test_a_huge_name_is_shortened_in_the_report(run: Run) -> None:
    run.topn(gemm_row("k" * 2_000_000)).env(**MI300X)
    done = run_tool("analyze", run.round)
    assert done.code == 0
    assert len(done.out) < 10_000
