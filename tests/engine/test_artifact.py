"""The files on disk, and validate."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from roofline_engine.fields import NOTE_CODES
from roofline_engine.files import to_json, write_whole
from roofline_engine.validate import validate
from support.profiles import GEMM, MI300X, Run, gemm_row
from support.tool import EXAMPLE, ROOT, TOOL, run_tool

FILES = ("profile_roofline.json", "profile_roofline.md")


@pytest.fixture(scope="module")
def sound() -> dict[str, Any]:
    done = run_tool("analyze", EXAMPLE, "--json", "--out", os.devnull + "/nowhere")
    document: dict[str, Any] = json.loads(done.out)
    document["skill_errors"] = []
    return document


def test_a_failed_write_keeps_the_old_file_and_no_temporary_file(tmp_path: Path) -> None:
    target = tmp_path / "file.json"
    target.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(str(target), "new \ud800")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_foreign_directories_and_links_are_kept(run: Run, tmp_path: Path) -> None:
    run.topn(gemm_row()).shapes(gemm_kernel=[GEMM]).env(**MI300X)
    elsewhere = tmp_path / "elsewhere.json"
    elsewhere.write_text("kept")
    (run.round / FILES[0]).symlink_to(elsewhere)
    (run.round / FILES[1]).mkdir()
    artifact = run.analyze()
    assert elsewhere.read_text() == "kept"
    assert (run.round / FILES[0]).is_symlink()
    assert (run.round / FILES[1]).is_dir()
    assert len([line for line in artifact["skill_errors"] if "not written" in line]) == 2


@pytest.mark.parametrize("name", FILES)
def test_an_input_is_not_overwritten(run: Run, name: str) -> None:
    run.topn(gemm_row()).shapes(gemm_kernel=[GEMM]).env(**MI300X)
    (run.round / name).write_text((run.round / "profile_topN.json").read_text())
    before = (run.round / name).read_bytes()
    done = run_tool("analyze", run.round / name)
    assert (done.code, done.err) == (
        2,
        f"{run.round / name}: an input, which is not overwritten. Name another folder with --out\n",
    )
    assert (run.round / name).read_bytes() == before
    assert run_tool("analyze", run.round / name, "--out", run.round / "other").code == 0


@pytest.mark.parametrize("topn", ["", "{", '{"top_kernels": []}'])
def test_an_artifact_is_not_replaced_by_an_empty_one(run: Run, topn: str) -> None:
    run.topn(gemm_row()).shapes(gemm_kernel=[GEMM]).env(**MI300X).analyze()
    before = [(run.round / name).read_bytes() for name in FILES]
    (run.round / "profile_topN.json").write_text(topn)
    done = run_tool("analyze", run.round)
    assert done.code == 0
    assert f"{run.round / FILES[0]}: kept from an earlier run, since no kernel could be read" in done.err
    assert "wrote" not in done.err
    assert [(run.round / name).read_bytes() for name in FILES] == before


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_fifo_next_to_the_profile_is_named(run: Run) -> None:
    run.topn(gemm_row()).shapes(gemm_kernel=[GEMM]).env(**MI300X)
    for name in ("x_counter.csv", "some_results.json", "sysinfo.csv"):
        os.mkfifo(run.round / name)
    artifact = run.analyze()
    assert any("x_counter.csv: a named pipe (FIFO), expected a regular file" in str(item) for item in artifact["degraded"])
    done = run_tool("analyze", run.round, "--env", run.round / "sysinfo.csv")
    expected = f"--env {run.round / 'sysinfo.csv'}: a named pipe (FIFO), expected a regular file\n"
    assert (done.code, done.err) == (2, expected)


def test_killed_at_any_moment_each_file_is_the_old_one_or_the_new_one(run: Run) -> None:
    run.topn(gemm_row()).shapes(gemm_kernel=[GEMM]).env(**MI300X)
    target = run.round / FILES[0]
    old = json.dumps({"old": "x" * 200_000})
    target.write_text(old)
    start = time.perf_counter()
    done = run_tool("analyze", run.round)
    whole = time.perf_counter() - start
    assert done.code == 0
    new = target.read_text()
    for step in range(24):
        target.write_text(old)
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(TOOL), "analyze", str(run.round)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(whole * step / 20)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert target.read_text() in (old, new)


def test_written_json_is_strict() -> None:
    assert json.loads(to_json({"a": float("inf"), "b": [float("nan"), 1.5]})) == {"a": None, "b": [None, 1.5]}


def test_a_consistent_artifact_is_accepted(sound: dict[str, Any]) -> None:
    assert validate(sound) == []


@pytest.mark.parametrize(
    ("place", "planted", "says"),
    [
        ("entries.0.hbm_util", 0.44, "hbm_util is 0.44, but achieved / peak bandwidth gives 0.880"),
        ("entries.0.achieved_bw_bytes_s", 7.04e9, "achieved_bw_bytes_s"),
        ("entries.0.arithmetic_intensity", 46.2, "arithmetic_intensity"),
        ("entries.0.t_unit_ms", 0.049471, "t_unit_ms is 0.049471, but t_ms x launches_per_unit"),
        ("entries.0.roofline_pct", 0.95, "roofline_pct is 0.95"),
        ("entries.0.roofline_pct", 88.0, "expected a fraction of at most 1"),
        ("entries.0.attainable_speedup", 1.2, "attainable_speedup is 1.2"),
        ("entries.0.attainable_speedup", 0.9, "expected at least 1"),
        ("entries.0.expected_e2e_gain_pct", 6.81, "expected_e2e_gain_pct is 6.81"),
        ("entries.0.headroom_class", "underperforming", "headroom_class is underperforming, but"),
        ("entries.0.bound_type", "latency", "bound_type is latency, but the utilizations give memory"),
        ("entries.0.bound_type", "bandwidth", "bound_type is 'bandwidth', expected one of memory"),
        ("entries.0.roof_axis", "compute", "roof_axis is compute"),
        ("entries.0.op_class", "comm", "op_class is 'comm', expected one of"),
        ("entries.0.route", "drop", "route is 'drop'"),
        ("entries.0.confidence", "low", "headroom_class is saturated at low confidence"),
        ("entries.0.suspect", True, "on a suspect ratio"),
        ("entries.0.modeled", False, "without a model"),
        ("entries.1.pct_gpu_time", None, "pct_gpu_time is None"),
        ("entries.0.stage", "A", "stage is B, but the lowest of the entries is A"),
        ("peaks.source", "guess", "peaks.source is 'guess'"),
        ("peaks.confidence", "medium", "peaks.confidence is 'medium'"),
        ("ranking_by_pct", ["fused_moe_kernel"], "not a permutation of the entries"),
        ("ranking_by_expected_gain", ["fused_moe_kernel", "kernel_paged_attention_2d"], "not in the order of gain"),
        ("ranking_by_pct", ["kernel_paged_attention_2d", "fused_moe_kernel"], "not in the order of pct_gpu_time"),
        ("entries", {}, "entries is not a list"),
        ("entries.0.hard_limit_speedup", 1.5, "hard_limit_speedup is 1.5"),
        ("entries.0.expected_throughput_gain_pct", 9.0, "expected_throughput_gain_pct is 9"),
        ("entries.0.roofline_pct_range", [0.1, 0.2], "roofline_pct_range is [0.1, 0.2], expected [low, high] around"),
        ("entries.1.attainable_speedup_range", [2.9], "attainable_speedup_range"),
        ("entries.0.byte_models.0.bytes", 1e8, "byte_models begins with 1e+08 bytes"),
        ("entries.0.byte_models.3.feasible", True, "all_experts is 1.02 of the roof, feasible says otherwise"),
        ("peaks.flops.fp8", 1e16, "ridge_point is 625, but the peaks of fp8 give 1250"),
        ("entries.0.unknown_reason", "infeasible", "next to unknown_reason infeasible"),
        ("entries.0.unknown_reason", "infeasible", "attainable_speedup is 1.02244 although infeasible, expected null"),
        ("entries.0.confidence", "high", "confidence is high at stage B"),
        ("entries.0.measurement_basis", "counters", "measurement_basis is counters at stage B"),
        ("entries.0.stage", "C", "measurement_basis is model at stage C"),
        ("peaks.confidence", "low", "confidence is medium although the peaks are low"),
        ("entries.0.op_class", "elementwise", "op_class is elementwise, but moe is moe"),
        ("entries.0.route", "kernel_track", "route is kernel_track, but class, bound and share give byte_reduction_track"),
        ("entries.1.byte_reduction_levers", ["x"], "byte_reduction_levers on an entry that is not saturated"),
        ("entries.0.host_side_levers", ["x"], "host_side_levers on an entry that is editable"),
        ("entries.0.name", None, "name is missing"),
        ("head_pct", 10.0, "8.86 % is under the head of 10 %"),
        ("entries.0.roofline_pct", "88%", "roofline_pct is '88%', expected a number"),
        ("entries.0.hbm_util", "0.88", "hbm_util is '0.88', expected a number"),
        ("entries.0.suspect", "no", "suspect is 'no', expected true or false"),
        ("entries.0.byte_models", "x", "byte_models is 'x', expected a list"),
        ("peaks", None, "peaks is not an object"),
        ("skill", "nope", "skill is 'nope', expected 'roofline'"),
        ("degraded", None, "degraded is not a list"),
        ("entries.1.roofline_pct_range", [0.1, 0.49], "the range runs from underperforming to saturated"),
        ("entries.0.suspect", True, "suspect, but 0.8802 of the roof is possible"),
        ("entries.0.rankable", False, "rankable is False with headroom_class saturated"),
        ("entries.0.falsifiable", False, "falsifiable is False, but the roof time is 87.1 us of 10 us"),
    ],
)
def test_validate_names_each_planted_inconsistency(sound: dict[str, Any], place: str, planted: Any, says: str) -> None:
    document = copy.deepcopy(sound)
    holder: Any = document
    *path, last = place.split(".")
    for key in path:
        holder = holder[int(key) if key.isdigit() else key]
    holder[last] = planted
    assert any(says in line for line in validate(document)), validate(document)


def test_validate_the_first_reason_that_applies_stands(run: Run) -> None:
    run.topn(gemm_row(t_ms=0.004)).env(**MI300X).shapes(gemm_kernel=[{**GEMM, "N": 64, "K": 512}])
    artifact = run.analyze()
    assert artifact["entries"][0]["unknown_reason"] == "dispatch_bound"
    assert validate(artifact) == []
    artifact["entries"][0]["unknown_reason"] = "unvalidated_peak"
    assert any("dispatch_bound comes first" in line for line in validate(artifact))


def test_validate_an_unknown_needs_a_reason_and_suspect_a_flag(run: Run) -> None:
    run.topn(gemm_row(t_ms=0.02)).shapes(gemm_kernel=[GEMM]).env(**MI300X)
    document = run.analyze()
    assert validate(document) == []
    document["entries"][0]["unknown_reason"] = None
    document["entries"][0]["suspect"] = False
    found = "\n".join(validate(document))
    assert "unknown without an unknown_reason" in found
    assert "over 1 and suspect is not set" in found


def test_validate_reads_artifacts_written_by_hand_with_rounded_figures() -> None:
    # As agents write it: no added fields, three or four digits, the regime in words.
    row = {
        "name": "attn",
        "pct_gpu_time": 44.876,
        "regime": "decode / full layers",
        "op_class": "attn",
        "modeled": True,
        "t_ms": 0.2068,
        "bytes_est": 641728512,
        "flops_est": 2281701376,
        "achieved_bw_bytes_s": 3103135938104.4487,
        "hbm_util": 0.3879,
        "compute_util": 0.0044,
        "arithmetic_intensity": 3.56,
        "ridge_point": 312.5,
        "bound_type": "latency",
        "roofline_pct": 0.3879,
        "target_eff": 0.5,
        "attainable_speedup": 1.289,
        "expected_e2e_gain_pct": 10.06,
        "headroom_class": "unknown",
        "confidence": "low",
        "suspect": False,
    }
    document = {
        "skill": "roofline",
        "skill_version": "1",
        "peaks": {"hbm_bw_bytes_s": 8e12, "source": "table", "confidence": "high"},
        "stage": "A",
        "entries": [row],
        "ranking_by_pct": ["attn"],
        "ranking_by_expected_gain": ["attn"],
    }
    assert validate(document) == []
    row["expected_e2e_gain_pct"] = 12.0
    assert validate(document) == [
        "entry 1 (attn): expected_e2e_gain_pct is 12, but pct_gpu_time x (1 - 1/attainable) gives 10.06"
    ]
    del row["bytes_est"], row["expected_e2e_gain_pct"]  # without bytes there is nothing to recompute the ratio from
    assert validate(document) == []


def test_validate_exit_codes(run: Run, tmp_path: Path) -> None:
    run.topn(gemm_row()).shapes(gemm_kernel=[GEMM]).env(**MI300X).analyze()
    good = run.round / FILES[0]
    assert run_tool("validate", good).code == 0
    document = json.loads(good.read_text())
    document["entries"][0]["hbm_util"] = 9.0
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps(document))
    done = run_tool("validate", bad)
    assert (done.code, "hbm_util is 9" in done.out) == (1, True)
    bad.write_text("{")
    assert run_tool("validate", bad).code == 2


def test_the_artifact_page_lists_every_note_code() -> None:
    _, _, codes = (ROOT / "docs" / "artifact.md").read_text(encoding="utf-8").partition("The codes of `note_codes`")
    listed = dict(line[3:].split("`: ", 1) for line in codes.splitlines() if line.startswith("- `"))
    assert listed == NOTE_CODES
