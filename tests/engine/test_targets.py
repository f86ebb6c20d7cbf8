"""Observed targets: used if their file is named, and marked as observed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from roofline_engine.validate import validate
from support.profiles import Run
from support.tool import EXAMPLE, run_tool


def named(tmp_path: Path, *rows: dict[str, object], schema: str = "roofline-targets/1") -> Path:
    path = tmp_path / "targets.json"
    path.write_text(json.dumps({"schema": schema, "targets": list(rows)}))
    return path


ROW = {"device": "gfx950", "op": "attn_decode", "axis": "memory", "dtype": "bf16", "target_eff": 0.6, "n": 24, "source": "ours"}


def test_an_observed_target_replaces_the_prior(tmp_path: Path) -> None:
    done = run_tool("analyze", EXAMPLE, "--out", tmp_path, "--json", "--targets", named(tmp_path, ROW))
    assert done.code == 0, done.err
    entries = {item["name"]: item for item in json.loads(done.out)["entries"]}
    attention, experts = entries["kernel_paged_attention_2d"], entries["fused_moe_kernel"]
    assert attention["target_eff"] == 0.6
    assert attention["attainable_speedup"] == pytest.approx(0.6 / attention["roofline_pct"])
    assert "target 0.6 as observed or given, in place of the prior 0.5" in attention["notes"]
    assert experts["target_eff"] == 0.9  # of another op
    assert "observed" not in experts["notes"]


@pytest.mark.parametrize("change", [{"device": "MI300X"}, {"axis": "compute"}, {"dtype": "fp8"}, {"op": "gemm"}])
def test_a_target_for_another_op_is_not_used(tmp_path: Path, change: dict[str, str]) -> None:
    done = run_tool("analyze", EXAMPLE, "--out", tmp_path, "--json", "--targets", named(tmp_path, {**ROW, **change}))
    entries = {item["name"]: item for item in json.loads(done.out)["entries"]}
    assert entries["kernel_paged_attention_2d"]["target_eff"] == 0.5


@pytest.mark.parametrize(
    ("change", "said"),
    [({"target_eff": 1.2}, "expected a fraction of the roof"), ({"n": 0}, "n is 0"), ({"op": 3}, "expected a name")],
)
def test_a_broken_file_gives_one_line_and_keeps_the_priors(tmp_path: Path, change: dict[str, object], said: str) -> None:
    done = run_tool("analyze", EXAMPLE, "--out", tmp_path, "--json", "--targets", named(tmp_path, {**ROW, **change}))
    assert done.code == 0
    document = json.loads(done.out)
    assert [line for line in document["skill_errors"] if "targets not used" in line and said in line]
    assert document["entries"][1]["target_eff"] == 0.5


#: 8192^3 in bf16: 2 x 8192^3 = 1.0995e12 FLOP, compute-bound on each of these devices.
BIG = {"op": "gemm", "M": 8192, "N": 8192, "K": 8192, "dtype": "bf16", "out_dtype": "bf16"}
FLOPS = 2.0 * 8192**3


def big_gemm(run: Run, device: str, ratio: float, peak: float, *options: object) -> dict[str, Any]:
    t_ms = 1e3 * FLOPS / (ratio * peak)
    run.topn({"name": "gemm_kernel", "pct_gpu_time": 50.0, "base_latency_ms": t_ms}).env(device_name=device)
    artifact = run.shapes(gemm_kernel=[BIG]).analyze(*options)
    assert validate(artifact) == []
    return cast(dict[str, Any], artifact["entries"][0])


def test_what_the_device_sustains_bounds_the_target(run: Run) -> None:
    """AMD's best bf16 GEMM on MI300X is 708 of 1307.4 TFLOP/s (power): 34.9 % leaves 1.55x, not 0.9 / 0.349 = 2.58x."""
    item = big_gemm(run, "MI300X", 0.349, 1307.4e12)
    assert item["target_eff"] == pytest.approx(708 / 1307.4)
    assert item["target_basis"] == "sustained"
    assert item["attainable_speedup"] == pytest.approx(708 / 1307.4 / 0.349)
    assert "the most that large GEMMs are known to sustain on mi300x (peaks.md), under the prior 0.9 of gemm" in item["notes"]


def test_the_memory_axis_keeps_the_prior(run: Run) -> None:
    run.topn({"name": "gemm_kernel", "pct_gpu_time": 50.0, "base_latency_ms": 0.05}).env(device_name="MI300X")
    item = run.shapes(gemm_kernel=[{**BIG, "M": 16}]).analyze()["entries"][0]
    assert (item["roof_axis"], item["target_eff"], item["target_basis"]) == ("memory", 0.9, "prior")


def test_a_device_without_a_sustained_figure_keeps_the_prior(run: Run) -> None:
    item = big_gemm(run, "NVIDIA H20", 0.5, 148e12)
    assert (item["target_eff"], item["target_basis"]) == (0.9, "prior")


def test_a_measured_ceiling_bounds_the_target(run: Run, tmp_path: Path) -> None:
    """GEMMs that ran here replace the table's figure: 650 of 1307.4. The memory ceiling bounds the memory axis alike."""
    ceilings = {"name": "MI300X", "mem_bw_gbps": 4240, "max_achievable_tflops": {"matrix_bf16": 650}}
    (tmp_path / "arch.json").write_text(json.dumps(ceilings))
    item = big_gemm(run, "MI300X", 0.349, 1307.4e12, "--peaks", tmp_path / "arch.json")
    assert (item["target_eff"], item["target_basis"]) == (pytest.approx(650 / 1307.4), "measured")
    run.topn({"name": "gemm_kernel", "pct_gpu_time": 50.0, "base_latency_ms": 0.05})
    options = ("--peaks", tmp_path / "arch.json")
    item = run.shapes(gemm_kernel=[{**BIG, "M": 16}]).analyze(*options)["entries"][0]
    assert (item["target_eff"], item["target_basis"]) == (pytest.approx(4240 / 5300), "measured")


def test_an_observed_target_stands_over_a_sustained_figure(run: Run, tmp_path: Path) -> None:
    row = {**ROW, "device": "MI300X", "op": "gemm", "axis": "compute", "target_eff": 0.6}
    item = big_gemm(run, "MI300X", 0.349, 1307.4e12, "--targets", named(tmp_path, row))
    assert (item["target_eff"], item["target_basis"]) == (0.6, "observed")


def test_validate_compares_the_target_with_the_sustained_rates(run: Run) -> None:
    big_gemm(run, "MI300X", 0.349, 1307.4e12)
    artifact = run.analyze()
    artifact["entries"][0]["target_eff"] = 0.6
    assert any("target_eff is 0.6, but peaks.sustained gives 0.5415" in line for line in validate(artifact))


def test_a_missing_file_is_bad_usage(tmp_path: Path) -> None:
    done = run_tool("analyze", EXAMPLE, "--out", tmp_path, "--targets", tmp_path / "none.json")
    assert done.code == 2
    assert "No such file" in done.err
