"""The specification's worked example (section 9): Qwen3.5-35B-A3B-FP8 on gfx950, decode, 64 sequences.

Every expected figure is derived here from the published sizes and times, or is the published figure itself.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from support.profiles import entry
from support.tool import EXAMPLE, run_tool

PEAK_BW, PEAK_FP8, PEAK_BF16 = 8.0e12, 5.0e15, 2.5e15


def analyze(folder: Path, tmp_path: Path) -> dict[str, Any]:
    done = run_tool("analyze", folder, "--out", tmp_path / "out", "--json")
    assert done.code == 0, done.err
    artifact: dict[str, Any] = json.loads(done.out)
    return artifact


@pytest.fixture(scope="module")
def stage_b(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return analyze(EXAMPLE, tmp_path_factory.mktemp("b"))


@pytest.fixture(scope="module")
def stage_a(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("a")
    for path in EXAMPLE.glob("*.json"):
        if path.name != "shapes.json":
            shutil.copy(path, folder)
    return analyze(folder, folder)


def test_k9_moe_layer_is_saturated_on_the_memory_roof(stage_b: dict[str, Any]) -> None:
    moe = entry(stage_b, "fused_moe_kernel")
    hit = 256 * (1 - (1 - 1 / 256) ** 512)  # 64 tokens x top-8 draws over 256 experts
    weights = 3 * 2048 * 512  # gate, up and down of one expert, one byte each
    t_s = 2 * 49.471e-6  # two launches make one layer: 80 a step over 40 layers
    assert hit == pytest.approx(221.5, abs=0.05)
    assert moe["launches_per_unit"] == 2
    assert moe["t_unit_ms"] == pytest.approx(0.098942)
    assert moe["bytes_est"] == pytest.approx(hit * weights)
    assert moe["bytes_est"] / 1e6 == pytest.approx(696.75, abs=0.01)
    assert moe["flops_est"] == 2 * 512 * weights
    assert moe["achieved_bw_bytes_s"] / 1e12 == pytest.approx(7.04, abs=0.005)
    assert moe["roofline_pct"] == pytest.approx(hit * weights / t_s / PEAK_BW)
    assert moe["roofline_pct"] == pytest.approx(0.880, abs=0.0005)
    assert moe["arithmetic_intensity"] == pytest.approx(4.62, abs=0.005)
    assert moe["ridge_point"] == pytest.approx(PEAK_FP8 / PEAK_BW) == 625
    assert (moe["bound_type"], moe["roof_axis"], moe["headroom_class"]) == ("memory", "memory", "saturated")
    assert moe["attainable_speedup"] == pytest.approx(1.022, abs=0.0005)
    assert moe["expected_e2e_gain_pct"] == pytest.approx(0.58, abs=0.005)
    assert moe["route"] == "byte_reduction_track"
    assert (moe["stage"], moe["confidence"], moe["rankable"]) == ("B", "medium", True)


def test_all_experts_are_listed_as_infeasible_and_not_chosen(stage_b: dict[str, Any]) -> None:
    moe = entry(stage_b, "fused_moe_kernel")
    everything = next(model for model in moe["byte_models"] if model["model"] == "all_experts")
    assert everything["bytes"] == 256 * 3 * 2048 * 512
    assert everything["bytes"] / (2 * 49.471e-6) / PEAK_BW == pytest.approx(1.017, abs=0.0005)
    assert everything["feasible"] is False
    assert moe["bytes_est"] < everything["bytes"]
    assert moe["suspect"] is False


def test_moe_range_covers_the_draws_without_replacement(stage_b: dict[str, Any]) -> None:
    moe = entry(stage_b, "fused_moe_kernel")
    distinct = 256 * (1 - (1 - 8 / 256) ** 64)
    low, high = moe["roofline_pct_range"]
    assert low == pytest.approx(moe["roofline_pct"])
    assert high >= distinct * 3 * 2048 * 512 / (2 * 49.471e-6) / PEAK_BW
    assert high < 0.89


def test_k10_attention_is_underperforming_over_its_whole_context_range(stage_b: dict[str, Any]) -> None:
    attn = entry(stage_b, "kernel_paged_attention_2d")
    per_token = 64 * 2 * 256 * 2 * 2  # sequences x KV heads x head_dim x (K and V) x bf16
    t_s = 141.1e-6
    assert attn["bytes_est"] == 1536 * per_token  # isl + osl/2 = 1024 + 512
    assert attn["bytes_est"] / 1e6 == pytest.approx(201.3, abs=0.05)
    assert attn["flops_est"] == 2 * 64 * 16 * 1536 * 256 * 2
    assert attn["roofline_pct"] == pytest.approx(0.178, abs=0.0005)
    assert (attn["bound_type"], attn["headroom_class"]) == ("latency", "underperforming")
    assert attn["attainable_speedup"] == pytest.approx(2.80, abs=0.005)
    assert attn["expected_e2e_gain_pct"] == pytest.approx(5.7, abs=0.01)
    low, high = attn["roofline_pct_range"]
    assert low == pytest.approx(1024 * per_token / t_s / PEAK_BW) == pytest.approx(0.119, abs=0.0005)
    assert high == pytest.approx(2048 * per_token / t_s / PEAK_BW) == pytest.approx(0.238, abs=0.0005)
    assert attn["attainable_speedup_range"] == pytest.approx([0.5 / high, 0.5 / low])
    assert attn["ridge_point"] == pytest.approx(PEAK_BF16 / PEAK_BW)
    assert attn["launches_per_unit"] == 1  # 10 a step over the 10 full-attention layers of 40
    assert attn["route"] == "occupancy_track"


def test_the_two_rankings_are_in_opposite_order(stage_b: dict[str, Any]) -> None:
    assert stage_b["ranking_by_pct"] == ["fused_moe_kernel", "kernel_paged_attention_2d"]
    assert stage_b["ranking_by_expected_gain"] == ["kernel_paged_attention_2d", "fused_moe_kernel"]


def test_rows_under_the_head_are_absent_and_not_degraded(stage_b: dict[str, Any]) -> None:
    assert len(stage_b["entries"]) == 2
    assert stage_b["degraded"] == []
    assert stage_b["skill_errors"] == []


def test_shares_are_copied_to_the_digit(stage_b: dict[str, Any]) -> None:
    given = json.loads((EXAMPLE / "profile_topN.json").read_text())
    shares = {row["name"]: row["pct_gpu_time"] for row in given["top_kernels"]}
    assert {item["name"]: item["pct_gpu_time"] for item in stage_b["entries"]} == {
        name: share for name, share in shares.items() if share >= 5
    }


def test_without_shapes_every_class_is_unknown_and_indicative(stage_a: dict[str, Any]) -> None:
    assert stage_a["stage"] == "A"
    for item, hint in zip(stage_a["entries"], ["saturated", "underperforming"]):
        assert item["headroom_class"] == "unknown"
        assert item["unknown_reason"] == "low_confidence"
        assert item["indicative_class"] == hint
        assert item["confidence"] == "low"
        assert item["rankable"] is False
        assert item["attainable_speedup"] is not None  # kept for display
    by_share = ["fused_moe_kernel", "kernel_paged_attention_2d"]
    assert stage_a["ranking_by_pct"] == by_share
    assert stage_a["ranking_by_expected_gain"] == by_share


def test_levers_keep_the_measurement_contract(stage_b: dict[str, Any]) -> None:
    levers = entry(stage_b, "fused_moe_kernel")["byte_reduction_levers"]
    text = " ".join(levers)
    assert "_per_token_group_quant_8bit" in text  # the neighbour to fuse away is named
    assert all("accuracy gate" in lever for lever in levers if "fp4" in lever)
    for forbidden in ("speculative", "MTP", "batch size", "conc", "isl", "osl"):
        assert forbidden not in text
    assert entry(stage_b, "kernel_paged_attention_2d")["byte_reduction_levers"] == []


def test_report_leads_with_verdicts_and_shows_both_rankings(tmp_path: Path) -> None:
    done = run_tool("analyze", EXAMPLE, "--out", tmp_path)
    report = (tmp_path / "profile_roofline.md").read_text(encoding="utf-8")
    assert done.out == report
    assert report.index("## Verdicts") < report.index("## The two rankings") < report.index("## Kernel by kernel")
    assert "They disagree" in report
    for words in ("**saturated**", "1.022x", "**underperforming**", "2.80x", "2 launches", "1536 = isl + osl/2", "to sharpen"):
        assert words in report


def test_the_artifact_is_consistent_with_itself(tmp_path: Path) -> None:
    run_tool("analyze", EXAMPLE, "--out", tmp_path)
    done = run_tool("validate", tmp_path / "profile_roofline.json")
    assert (done.code, done.out.strip()) == (0, f"{tmp_path / 'profile_roofline.json'}: consistent")
