"""The degradation ladder through the command line: every level exits 0 and reports what it could not do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from roofline_engine.check import Measurement, check
from roofline_engine.fields import Entry
from roofline_engine.ops import work
from roofline_engine.peaks import resolve_name
from roofline_engine.peaks_table import load
from support.profiles import GEMM, MI300X, Run, entry, gemm_row
from support.tool import ROOT, run_tool


@pytest.mark.parametrize("how", ["env_report", "environment"])
def test_l0_writes_nothing(run: Run, how: str) -> None:
    run.topn(gemm_row()).env(**MI300X, **({"analysis_skill": "none"} if how == "env_report" else {}))
    settings = {"ROOFLINE_SKILL": "none"} if how == "environment" else {}
    done = run_tool("analyze", run.round, **settings)
    assert (done.code, done.out) == (0, "")
    assert "L0" in done.err
    assert sorted(path.name for path in run.round.iterdir()) == ["profile_topN.json"]


def test_l0_needs_no_profile() -> None:
    assert run_tool("analyze", "/nowhere", ROOFLINE_SKILL="none").code == 0


def test_l1_unknown_gfx_gives_bytes_and_flops_but_no_ratio(run: Run) -> None:
    artifact = run.topn(gemm_row()).shapes(gemm_kernel=[GEMM]).env(gfx="gfx999").analyze()
    assert artifact["peaks"]["source"] == "derived"
    assert artifact["peaks"]["confidence"] == "low"
    assert artifact["peaks"]["hbm_bw_bytes_s"] is None
    assert "device_name" in artifact["peaks"]["note"]  # which key to add
    only = artifact["entries"][0]
    assert only["roofline_pct"] is None
    assert only["bytes_est"] == 2 * (64 * 8192 + 8192 * 8192 + 64 * 8192)
    assert only["flops_est"] == 2 * 64 * 8192 * 8192
    assert only["arithmetic_intensity"] == pytest.approx(only["flops_est"] / only["bytes_est"])
    assert (only["headroom_class"], only["unknown_reason"], only["confidence"]) == ("unknown", "unvalidated_peak", "low")


def test_l1_derives_peaks_from_the_devices_properties(run: Run) -> None:
    # A part the table does not list: 3.2 GHz HBM on 6144 bits, 2 transfers a clock.
    run.topn(gemm_row()).shapes(gemm_kernel=[GEMM])
    run.env(gfx="sm_80", device_name="NVIDIA A400", memory_clock_khz=3200000, memory_bus_bits=6144, cu_count=100, clock_khz=2e6)
    artifact = run.analyze()
    peaks = artifact["peaks"]
    assert peaks["source"] == "derived"
    assert peaks["hbm_bw_bytes_s"] == pytest.approx(2 * 3.2e9 * 6144 / 8)
    assert peaks["flops"]["bf16"] == pytest.approx(100 * 2e9 * 2048)  # 2048 FLOP/clk/SM: NVIDIA A100 white paper
    only = artifact["entries"][0]
    assert only["roofline_pct"] is not None
    assert (only["confidence"], only["headroom_class"], only["unknown_reason"]) == ("low", "unknown", "low_confidence")


def test_l1_without_peaks_md(run: Run, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "skill", tmp_path / "alone" / "skill", ignore=shutil.ignore_patterns("__pycache__"))
    run.topn(gemm_row()).shapes(gemm_kernel=[GEMM]).env(**MI300X)
    done = run_tool("analyze", run.round, "--json", tool=tmp_path / "alone" / "skill" / "roofline_tools.py")
    assert done.code == 0, done.err
    artifact = json.loads(done.out)
    assert artifact["peaks"]["hbm_bw_bytes_s"] is None
    assert any(line.startswith("L1: peaks.md is missing") for line in artifact["skill_errors"])
    assert artifact["entries"][0]["bytes_est"] > 0


def test_l2_unmodelled_op_degrades_that_entry_only(run: Run) -> None:
    run.topn(gemm_row(), gemm_row("mystery", 15.0), gemm_row("ncclDevKernel_AllReduce_Sum_bf16", 10.0))
    artifact = run.shapes(gemm_kernel=[GEMM]).env(**MI300X).analyze()
    assert entry(artifact, "gemm_kernel")["headroom_class"] != "unknown"
    for name in ("mystery", "ncclDevKernel_AllReduce_Sum_bf16"):
        item = entry(artifact, name)
        assert (item["modeled"], item["headroom_class"], item["unknown_reason"]) == (False, "unknown", "unmodelled")
        assert item["attainable_speedup"] is None
    reasons = {line["name"]: line["reason"] for line in artifact["degraded"]}
    assert set(reasons) == {"mystery", "ncclDevKernel_AllReduce_Sum_bf16"}
    assert "interconnect" in reasons["ncclDevKernel_AllReduce_Sum_bf16"]
    assert set(artifact["ranking_by_expected_gain"]) == {"gemm_kernel", "mystery", "ncclDevKernel_AllReduce_Sum_bf16"}


def test_l2_unknown_dtype_fails_closed_and_is_named(run: Run) -> None:
    case = {**GEMM, "dtype": "float7_e9m9"}
    artifact = run.topn(gemm_row()).shapes(gemm_kernel=[case]).env(**MI300X).analyze()
    only = artifact["entries"][0]
    assert (only["modeled"], only["unknown_reason"]) == (False, "unmodelled")
    assert "float7_e9m9" in artifact["degraded"][0]["reason"]


@pytest.mark.parametrize(
    ("t_ms", "direction"),
    [(0.02, "over"), (400.0, "under")],  # 136 MB in 20 us is 6.8 TB/s of 5.3; in 0.4 s it is 0.0001 of the roof
)
def test_l3_impossible_ratio_is_suspect_and_never_a_verdict(run: Run, t_ms: float, direction: str) -> None:
    artifact = run.topn(gemm_row(t_ms=t_ms)).shapes(gemm_kernel=[GEMM]).env(**MI300X).analyze()
    only = artifact["entries"][0]
    raw = 2 * (2 * 64 * 8192 + 8192 * 8192) / (t_ms / 1e3) / 5.3e12
    assert only["roofline_pct_raw"] == pytest.approx(raw)
    assert only["roofline_pct"] == pytest.approx(min(raw, 1.0))
    assert (raw > 1) == (direction == "over")
    assert only["suspect"] is True
    assert (only["headroom_class"], only["unknown_reason"]) == ("unknown", "infeasible")
    assert only["stage_c_candidate"] is True
    assert only["bytes_upper_bound"] == pytest.approx(5.3e12 * t_ms / 1e3)
    assert only["attainable_speedup"] is None
    assert only["expected_e2e_gain_pct"] is None


@pytest.mark.parametrize(
    ("ratio", "status", "words"),
    [
        (1.025, "near_roof", "1.025 of the rated roof: possible with the highest clock"),
        (1.2, "beyond_roof", "1.2 of the roof is impossible"),
    ],
)
def test_analyze_and_check_draw_the_line_at_the_same_place(run: Run, ratio: float, status: str, words: str) -> None:
    # The bf16 rate of MI300X is rated at its highest clock, so the line is at 1.05.
    peaks = resolve_name(load(str(ROOT / "peaks.md")), "MI300X")
    case = {"op": "gemm", "M": 8192, "N": 8192, "K": 8192, "dtype": "bf16"}
    t_s = 2 * 8192**3 / peaks.flops["bf16"] / ratio
    only = run.topn(gemm_row(t_ms=1e3 * t_s)).shapes(gemm_kernel=[case]).env(**MI300X).analyze()["entries"][0]
    assert only["roofline_pct_raw"] == pytest.approx(ratio)
    assert (only["headroom_class"], only["unknown_reason"]) == ("unknown", "infeasible")
    assert words in only["notes"]
    done, time = work(**case), Measurement("user", t_s, clock="device-event", cache="cold")  # type: ignore[arg-type]
    assert check(Entry(stage="B"), done, time, peaks).status == status


@pytest.mark.parametrize("name", ["counters.csv", "run_counter_collection.csv", "pmc_perf.csv"])
def test_l4_implausible_counters_are_reported_and_change_nothing(run: Run, name: str) -> None:
    (run.round / name).write_text("Kernel_Name,FETCH_SIZE\ngemm_kernel,1\n")  # half of a total
    artifact = run.topn(gemm_row()).shapes(gemm_kernel=[GEMM]).env(**MI300X).analyze()
    assert [line["name"] for line in artifact["degraded"]] == [name]
    assert artifact["degraded"][0]["reason"].startswith("L4")
    assert artifact["entries"][0]["confidence"] == "medium"


@pytest.mark.parametrize("broken", ["env_report.json", "config.json", "shapes.json"])
def test_l5_broken_json_next_to_the_profile_loses_only_itself(run: Run, broken: str) -> None:
    run.topn(gemm_row()).shapes(gemm_kernel=[GEMM]).env(**MI300X).config(hidden_size=4096)
    run.write(broken, '{"gfx": "gfx942",')
    artifact = run.analyze()
    assert any(broken in line and "not JSON: line 1 column" in line for line in artifact["skill_errors"])
    assert [item["name"] for item in artifact["entries"]] == ["gemm_kernel"]


def test_l5_a_broken_top_n_writes_an_artifact_with_the_error(run: Run) -> None:
    artifact = run.write("profile_topN.json", '{"top_kernels": [').env(**MI300X).analyze()
    assert artifact["entries"] == []
    assert any("profile_topN.json" in line and "not JSON" in line for line in artifact["skill_errors"])
    assert json.loads((run.round / "profile_roofline.json").read_text()) == artifact


def test_l5_bad_row_is_named_and_the_others_are_kept(run: Run) -> None:
    rows = [gemm_row(), {"name": "broken", "pct_gpu_time": "many"}, "not a row", {"pct_gpu_time": 9.0}]
    artifact = run.topn(*rows).shapes(gemm_kernel=[GEMM]).env(**MI300X).analyze()
    assert [item["name"] for item in artifact["entries"]] == ["gemm_kernel"]
    errors = "\n".join(artifact["skill_errors"])
    assert "row 2 (broken): pct_gpu_time is 'many', expected a number" in errors
    assert "row 3 is str, expected an object" in errors
    assert "row 4: no name" in errors


def test_a_top_n_without_other_files_is_enough(run: Run) -> None:
    artifact = run.topn(gemm_row(), gemm_row("paged_attention_v1", 30.0)).analyze()
    assert len(artifact["entries"]) == 2
    assert all(item["headroom_class"] == "unknown" for item in artifact["entries"])
    assert any("env_report.json" in line for line in artifact["skill_errors"])


def test_unwritable_output_still_prints_the_result(run: Run, tmp_path: Path) -> None:
    run.topn(gemm_row()).shapes(gemm_kernel=[GEMM]).env(**MI300X)
    in_the_way = tmp_path / "file"
    in_the_way.write_text("kept")
    artifact = run.analyze("--out", in_the_way / "below")
    assert len(artifact["entries"]) == 1
    assert any("not written" in line for line in artifact["skill_errors"])
    assert in_the_way.read_text() == "kept"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["analyze", "/nowhere/at/all"], "/nowhere/at/all: expected a Top-N file, a profile, or a directory with one"),
        (["analyze", ".", "--head-pct", "lots"], "--head-pct is 'lots', expected a number"),
        (["analyze", ".", "--env", "/nowhere.json"], "--env /nowhere.json: No such file or directory"),
        (["validate", "/nowhere.json"], "/nowhere.json: No such file or directory"),
        (["peaks", "show", "NVIDIA GeForce RTX 5060 Ti"], "is not in peaks.md"),
        (["peaks", "show", "H100"], "H100 is not in peaks.md: is it h100-sxm or h100-pcie or h100-nvl? `roofline peaks list`"),
        (["peaks", "show", "MI335X"], "is not in peaks.md: is it mi355x or "),
        (["frobnicate"], "invalid choice: 'frobnicate'"),
    ],
)
def test_bad_usage_is_exit_2_with_one_clear_line(args: list[str], says: str, run: Run) -> None:
    run.topn(gemm_row())
    done = run_tool(*[str(run.round) if arg == "." else arg for arg in args])
    assert done.code == 2
    assert done.out == ""
    assert says in done.err


@pytest.mark.parametrize(("dtypes", "basis"), [(["bf16", "fp8"], "the Top-N"), (None, "model_dtype")])
def test_a_captured_attention_takes_its_activation_dtype_from_the_row_or_the_model(
    dtypes: list[str] | None, basis: str, run: Run
) -> None:
    captured = {
        "op": "attn_decode",
        "batch": 64,
        "n_q_heads": 32,
        "n_kv_heads": 8,
        "head_dim": 128,
        "seq_len": 2048,
        "kv_dtype": "fp8",
    }
    run.topn({"name": "paged_attention", "pct_gpu_time": 20, "base_latency_ms": 0.2, **({"dtypes": dtypes} if dtypes else {})})
    artifact = run.env(**MI300X, model_dtype="bf16").shapes(paged_attention=captured).analyze()
    only = entry(artifact, "paged_attention")
    assert (only["modeled"], only["stage"], only["dtype"]) == (True, "B", "bf16")
    assert basis in only["notes"]
    # K and V of the context once, at one byte: 2 x batch x seq x KV heads x head_dim.
    assert only["bytes_est"] == 2 * 64 * 2048 * 8 * 128


@pytest.mark.parametrize(("name", "rows_moved"), [("fused_add_rms_norm_kernel", 4), ("rms_norm_kernel", 2)])
def test_the_name_of_a_norm_says_whether_a_residual_is_added(name: str, rows_moved: int, run: Run) -> None:
    captured = {"op": "rmsnorm", "rows": 4096, "cols": 4096, "dtype": "bf16"}
    run.topn({"name": name, "pct_gpu_time": 20, "base_latency_ms": 0.2})
    artifact = run.env(**MI300X).shapes(**{name: captured}).analyze()
    # Input and residual read, both written; or input read, output written; and the weight once.
    assert entry(artifact, name)["bytes_est"] == (rows_moved * 4096 * 4096 + 4096) * 2
