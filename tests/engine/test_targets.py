"""Observed targets: used if their file is named, and marked as observed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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


def test_a_missing_file_is_bad_usage(tmp_path: Path) -> None:
    done = run_tool("analyze", EXAMPLE, "--out", tmp_path, "--targets", tmp_path / "none.json")
    assert done.code == 2
    assert "no such file" in done.err
