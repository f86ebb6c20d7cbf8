"""Stage C through ``analyze``: plausible counters replace the model; others are refused (L4) with the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.counter_files import long_csv, raw_csv
from support.profiles import GEMM, MI300X, Run, gemm_row
from support.tool import run_tool

# The GEMM of conftest, [64,8192] x [8192,8192] in bf16.
BYTES = 2 * (2 * 64 * 8192 + 8192 * 8192)
FLOPS = 2 * 64 * 8192 * 8192
T_MS = 0.05
PEAK = 5.3e12
FETCH_KIB, WRITE_KIB = 140_000, 1_100  # the output is 1,024 KiB
COUNTED = (FETCH_KIB + WRITE_KIB) * 1024
GOOD = {"FETCH_SIZE": FETCH_KIB, "WRITE_SIZE": WRITE_KIB, "SQ_INSTS_VALU_MFMA_MOPS_BF16": FLOPS // 512, "ns": 52_000}


def judged(run: Run, *dispatches: dict[str, Any], kernel: str = "gemm_kernel", **env: Any) -> dict[str, Any]:
    """Return the entry of a Top-N row with counters; the artifact must pass validate."""
    (run.round / "counter_collection.csv").write_text(long_csv(*({"ns": 50_000, **one} for one in dispatches), name=kernel))
    return finished(run, **env)


def finished(run: Run, *options: object, **env: Any) -> dict[str, Any]:
    if not (run.round / "profile_topN.json").exists():
        run.topn(gemm_row(t_ms=T_MS)).shapes(gemm_kernel=[GEMM])
    artifact = run.env(**{**MI300X, **env}).analyze(*options)
    done = run_tool("validate", run.round / "profile_roofline.json")
    assert done.code == 0, done.out
    return artifact


def reason(artifact: dict[str, Any]) -> str:
    """Return the one L4 line; the analytic result must be unchanged."""
    (line,) = artifact["degraded"]
    assert line["name"] == "counter_collection.csv"
    assert line["reason"].startswith("L4: ")
    (only,) = artifact["entries"]
    assert (only["stage"], only["confidence"], only["measurement_basis"]) == ("B", "medium", "model")
    assert only["bytes_est"] == BYTES
    return str(line["reason"])


def test_counters_replace_bytes_and_flops(run: Run) -> None:
    artifact = judged(run, GOOD, {**GOOD, "ns": 48_000})
    (only,) = artifact["entries"]
    assert (artifact["stage"], only["stage"], only["confidence"], only["measurement_basis"]) == ("C", "C", "high", "counters")
    assert only["bytes_est"] == COUNTED
    assert only["flops_est"] == FLOPS
    assert only["hbm_util"] == pytest.approx(COUNTED / (T_MS / 1e3) / PEAK)
    assert only["rankable"] is True
    assert (only["byte_models"][0]["model"], only["byte_models"][0]["bytes"]) == ("counters", COUNTED)
    assert BYTES in [model["bytes"] for model in only["byte_models"][1:]]  # the model stays as a candidate
    assert not any(model["in_range"] for model in only["byte_models"][1:])
    assert "mean of 2 dispatches (counter_collection.csv)" in only["notes"]
    assert artifact["degraded"] == []


def test_the_traffic_of_the_caches_is_kept_where_it_is_exact(run: Run) -> None:
    """gfx942 has lines of 128 bytes; each write is 64. L1 lookups are counted as whole lines: only a limit."""
    caches = {"TCP_TCC_READ_REQ": 5_000_000, "TCP_TCC_WRITE_REQ": 20_000, "TCP_TOTAL_CACHE_ACCESSES": 9_000_000}
    (only,) = judged(run, {**GOOD, **caches})["entries"]
    assert (only["l2_traffic"], only["l1_traffic"]) == (128 * 5_000_000 + 64 * 20_000, None)
    assert only["bytes_est"] == COUNTED
    (plain,) = judged(run, GOOD)["entries"]
    assert plain["l2_traffic"] is None


def test_one_counter_of_two_gives_a_mixed_stage(run: Run) -> None:
    (only,) = judged(run, {"FETCH_SIZE": FETCH_KIB, "WRITE_SIZE": WRITE_KIB})["entries"]
    assert (only["stage"], only["confidence"], only["measurement_basis"]) == ("C", "high", "mixed")
    assert (only["bytes_est"], only["flops_est"]) == (COUNTED, FLOPS)


def test_flops_alone_do_not_confirm_the_memory_roof(run: Run) -> None:
    why = reason(judged(run, {"SQ_INSTS_VALU_MFMA_MOPS_BF16": FLOPS // 512}))
    assert "the verdict is on the memory roof, which has no counts but only the model" in why


def test_flops_alone_are_enough_on_the_compute_roof(run: Run) -> None:
    size, bytes_alone = 8192, {"FETCH_SIZE": 300_000, "WRITE_SIZE": 140_000}  # 402,653,184 B are compulsory
    run.topn(gemm_row(t_ms=2.0)).shapes(gemm_kernel=[{"op": "gemm", "M": size, "N": size, "K": size, "dtype": "bf16"}])
    (only,) = judged(run, {"SQ_INSTS_VALU_MFMA_MOPS_BF16": 2 * size**3 // 512, "ns": 2_000_000})["entries"]
    assert (only["stage"], only["measurement_basis"], only["roof_axis"]) == ("C", "mixed", "compute")
    assert (only["bytes_est"], only["byte_models"][0]["model"]) == (3 * 2 * size**2, "a_b_c")
    artifact = judged(run, {**bytes_alone, "ns": 2_000_000})
    assert (artifact["entries"][0]["stage"], artifact["entries"][0]["measurement_basis"]) == ("B", "model")
    assert "the verdict is on the compute roof" in artifact["degraded"][0]["reason"]


def test_two_passes_in_two_files_make_both(run: Run) -> None:
    (run.round / "a_pass_counter_collection.csv").write_text(
        long_csv({"SQ_INSTS_VALU_MFMA_MOPS_BF16": FLOPS // 512, "ns": 50_000}, name="gemm_kernel")
    )
    artifact = judged(run, {"FETCH_SIZE": FETCH_KIB, "WRITE_SIZE": WRITE_KIB})
    assert artifact["entries"][0]["measurement_basis"] == "counters"
    assert artifact["degraded"] == []


def test_corroborating_percentages_are_in_the_notes(run: Run) -> None:
    (only,) = judged(run, {**GOOD, "MemUnitStalled": 41.5, "MfmaUtil": "9.0e+00", "OccupancyPercent": 33})["entries"]
    assert "MemUnitStalled 41.5 %, MfmaUtil 9 %, OccupancyPercent 33 %" in only["notes"]


def test_low_peaks_keep_confidence_low(run: Run) -> None:
    env = {"gfx": "gfx942", "device_name": "AMD Instinct MI999X", "cu_count": 100, "clock_khz": 2e6}
    artifact = judged(run, GOOD, **env, memory_clock_khz=2_600_000, memory_bus_bits=8192)
    (only,) = artifact["entries"]
    assert artifact["peaks"]["confidence"] == "low"
    assert (only["stage"], only["confidence"], only["headroom_class"]) == ("C", "low", "unknown")


def test_k5_the_sum_over_dispatches_is_never_one_launch(run: Run) -> None:
    (only,) = judged(run, *[GOOD] * 40)["entries"]
    assert only["bytes_est"] == COUNTED


def test_bytes_are_of_the_unit(run: Run) -> None:
    run.topn(gemm_row(t_ms=T_MS)).shapes(gemm_kernel=[{**GEMM, "launches": 2}])
    (only,) = judged(run, {"FETCH_SIZE": FETCH_KIB, "WRITE_SIZE": WRITE_KIB})["entries"]
    assert only["bytes_est"] == 2 * COUNTED
    assert only["achieved_bw_bytes_s"] == pytest.approx(COUNTED / (T_MS / 1e3))


def test_bytes_under_the_compulsory_ones_are_l4(run: Run) -> None:
    said = reason(judged(run, {"FETCH_SIZE": BYTES // 1024 * 0.8, "WRITE_SIZE": 1}))
    assert "gemm_kernel: 109.1 MB read are under 0.9 of the 135.3 MB the op must read" in said
    assert said.endswith("the modeled result is kept")


#: Three arrays read and one written: 3 x 1 GiB and 1 GiB.
ADDS = {"op": "elementwise", "numel": 2**29, "inputs": 3, "outputs": 1, "dtype": "bf16"}


def test_writes_that_still_lie_in_the_cache_do_not_change_the_class(run: Run) -> None:
    """Complete reads and two thirds of the writes are 0.917 of the bytes: 0.80 of the roof would read 0.733, moderate."""
    mib = 1024
    t_ms = 1e3 * 4 * 2**30 / (0.80 * PEAK)
    run.topn(gemm_row(t_ms=t_ms)).shapes(gemm_kernel=[ADDS])
    counted = {"FETCH_SIZE": 3 * 1024 * mib, "WRITE_SIZE": 1024 * mib * 2 // 3, "ns": round(t_ms * 1e6)}
    (only,) = judged(run, counted)["entries"]
    assert (only["headroom_class"], only["stage"], only["measurement_basis"]) == ("saturated", "C", "mixed")
    assert only["bytes_est"] == pytest.approx(4 * 2**30)
    assert (
        "bytes written: the model's 1.074 GB, since the 715.8 MB that were counted leave out what a cache holds"
        in only["notes"]
    )


def test_more_writes_than_the_op_needs_are_counted(run: Run) -> None:
    mib = 1024
    run.topn(gemm_row(t_ms=1.4)).shapes(gemm_kernel=[ADDS])
    (only,) = judged(run, {"FETCH_SIZE": 3 * 1024 * mib, "WRITE_SIZE": 2 * 1024 * mib, "ns": 1_400_000})["entries"]
    assert only["bytes_est"] == 5 * 2**30


def test_reads_that_no_cache_can_hold_are_missing(run: Run) -> None:
    """5 % of 3 GiB is 161 MB: within the tolerance of 10 %, but more than the 33.6 MB of the L2."""
    mib = 1024
    run.topn(gemm_row(t_ms=1.4)).shapes(gemm_kernel=[ADDS])
    artifact = judged(run, {"FETCH_SIZE": round(0.95 * 3 * 1024 * mib), "WRITE_SIZE": 1024 * mib, "ns": 1_400_000})
    (line,) = artifact["degraded"]
    assert "3.06 GB read are 33.55 MB of cache less than the 3.221 GB the op must read" in line["reason"]
    assert artifact["entries"][0]["stage"] == "B"


def test_e1_gfx950_bytes_of_an_unknown_tool_are_l4(run: Run) -> None:
    env = {"gfx": "gfx950", "device_name": "AMD Instinct MI355X"}
    assert "FETCH_SIZE on gfx950 is half before ROCm 7.12, this one is unknown" in reason(
        judged(run, {"FETCH_SIZE": FETCH_KIB, "WRITE_SIZE": WRITE_KIB}, **env)
    )
    (only,) = finished(run, **env, rocm_version="7.12.0")["entries"]
    assert only["stage"] == "C"


def test_b9_rocm_systems_9324_counters_over_the_roof_are_l4(run: Run) -> None:
    kib = 2.07 * PEAK * T_MS / 1e3 / 1024
    assert "2.07 of the bandwidth roof by its counters" in reason(judged(run, {"FETCH_SIZE": kib, "WRITE_SIZE": 1}))


def test_c6_rocprofiler_compute_66_padding_is_a_note_not_an_error(run: Run) -> None:
    # An 8x8x8 product needs 1024 FLOPs; a 32x32x32 tile counts 64 times that. Here a GEMM counted at 4 times its own.
    (only,) = judged(run, {**GOOD, "SQ_INSTS_VALU_MFMA_MOPS_BF16": 4 * FLOPS // 512})["entries"]
    assert (only["measurement_basis"], only["flops_est"]) == ("counters", 4 * FLOPS)
    assert "4 of the model's (padding or recomputation is in it)" in only["notes"]


def test_incomplete_flops_keep_the_modeled_ones(run: Run) -> None:
    artifact = judged(run, {**GOOD, "SQ_INSTS_VALU_MFMA_MOPS_BF16": FLOPS // 1024})
    (only,) = artifact["entries"]
    assert (only["measurement_basis"], only["flops_est"]) == ("mixed", FLOPS)
    assert "4.295 GFLOP counted are under 0.9 of the model's 8.59 GFLOP" in artifact["degraded"][0]["reason"]


def test_c7_flops_of_another_dtype_contradict_the_shapes(run: Run) -> None:
    one = {"FETCH_SIZE": FETCH_KIB, "WRITE_SIZE": WRITE_KIB, "SQ_INSTS_VALU_MFMA_MOPS_F8": FLOPS // 512}
    artifact = judged(run, one)
    assert artifact["entries"][0]["measurement_basis"] == "mixed"
    assert "the matrix units counted fp8, the model says bf16" in artifact["degraded"][0]["reason"]


def test_several_grids_or_shapes_under_one_name_are_l4(run: Run) -> None:
    assert "2 grid sizes under one name" in reason(judged(run, GOOD, {**GOOD, "grid": 2048}))


def test_launches_with_other_work_are_l4(run: Run) -> None:
    assert "take 2.00 of the profile's time: not the same work" in reason(judged(run, {**GOOD, "ns": 100_000}))


def test_a_different_time_under_the_profiler_is_noted(run: Run) -> None:
    (only,) = judged(run, {**GOOD, "ns": 60_000})["entries"]
    assert only["stage"] == "C"
    assert "one launch took 0.06 ms while counted, 0.05 ms in the profile" in only["notes"]


def test_a_guess_is_not_raised_by_the_other_roof(run: Run) -> None:
    run.topn(gemm_row(t_ms=T_MS, est_shape={"M": 64, "N": 8192, "K": 8192, "dtype": "bf16"}))
    artifact = judged(run, {"SQ_INSTS_VALU_MFMA_MOPS_BF16": FLOPS // 512})
    assert (artifact["entries"][0]["modeled"], artifact["entries"][0]["stage"]) == (True, "A")
    assert "the verdict is on the memory roof" in artifact["degraded"][0]["reason"]


@pytest.mark.parametrize("name", ["void gemm_kernel<128, true>(float*)", "gemm_kernel"])
def test_names_match_with_and_without_templates(run: Run, name: str) -> None:
    run.topn(gemm_row("void gemm_kernel<128, true>(float*)", t_ms=T_MS)).shapes(gemm_kernel=[GEMM])
    assert judged(run, GOOD, kernel=name)["entries"][0]["stage"] == "C"


def test_an_ambiguous_short_name_matches_nothing(run: Run) -> None:
    run.topn(gemm_row("gemm_kernel<1>", t_ms=T_MS), gemm_row("gemm_kernel<2>", t_ms=T_MS))
    run.shapes(**{"gemm_kernel<1>": [GEMM], "gemm_kernel<2>": [GEMM]})
    artifact = judged(run, GOOD)
    assert {item["stage"] for item in artifact["entries"]} == {"B"}
    assert "no kernel of the Top-N is in it by name" in artifact["degraded"][0]["reason"]


def test_files_named_replace_those_found(run: Run, tmp_path: Path) -> None:
    (run.round / "counter_collection.csv").write_text("broken")
    elsewhere = tmp_path / "mine.csv"
    elsewhere.write_text(long_csv(GOOD, name="gemm_kernel"))
    artifact = finished(run, "--counters", elsewhere)
    assert artifact["entries"][0]["stage"] == "C"
    assert artifact["degraded"] == []
    done = run_tool("analyze", run.round, "--counters", "/nowhere.csv")
    assert (done.code, done.err) == (2, "--counters /nowhere.csv: No such file or directory\n")


def test_nvidia_counters_on_an_nvidia_device(run: Run) -> None:
    metrics = {
        "dram__bytes_read.sum": ("Mbyte", ["140.0"]),
        "dram__bytes_write.sum": ("Mbyte", ["1.5"]),
        "sm__ops_path_tensor_src_bf16_dst_fp32.sum": ("", [f"{FLOPS:,}"]),
        "gpu__time_duration.sum": ("usecond", ["51.0"]),
    }
    (run.round / "ncu_raw.csv").write_text(raw_csv(metrics, names=["gemm_kernel"]))
    (only,) = finished(run, gfx="sm_90", device_name="NVIDIA H100 80GB HBM3")["entries"]
    assert (only["stage"], only["measurement_basis"]) == ("C", "counters")
    assert only["bytes_est"] == pytest.approx(141.5e6)
    artifact = finished(run)  # the same file in a run on an MI300X
    assert "counted on sm_90, not on gfx942" in artifact["degraded"][0]["reason"]


def test_a_results_json_of_another_tool_is_not_counters(run: Run) -> None:
    (run.round / "results.json").write_text(json.dumps({"speedup": 1.2}))
    assert finished(run)["degraded"] == []


# Counters that belong to another run or another kernel.


def test_counters_of_another_template_instantiation_are_not_credited(run: Run) -> None:
    run.topn(gemm_row("void gemm_kernel<64, 64>(float*)", t_ms=T_MS)).shapes(gemm_kernel=[GEMM])
    assert "no kernel of the Top-N is in it by name" in reason(judged(run, GOOD, kernel="void gemm_kernel<256, 128>(float*)"))


def test_a_joined_file_whose_dispatch_names_two_kernels_mixes_neither(run: Run) -> None:
    head, *first = long_csv({"FETCH_SIZE": FETCH_KIB, "ns": 50_000}, name="gemm_kernel").splitlines(keepends=True)
    _, *second = long_csv({"WRITE_SIZE": WRITE_KIB, "ns": 50_000}, name="fill").splitlines(keepends=True)
    (run.round / "counter_collection.csv").write_text("".join([head, *first, *second]))
    assert "WRITE_SIZE was not collected" in reason(finished(run))


def test_two_processes_under_ncu_are_two_launches(run: Run) -> None:
    header = "ID,Process ID,Kernel Name,Metric Name,Metric Unit,Metric Value"
    rows = [
        f'"0","{process}","gemm_kernel","{name}","{unit}","{value}"'
        for process, value in ((1, 150_000_000), (2, 130_000_000))
        for name, unit, value in (("dram__bytes.sum", "byte", value), ("gpu__time_duration.sum", "nsecond", 50_000))
    ]
    (run.round / "ncu.csv").write_text("\n".join([header, *rows]) + "\n")
    (only,) = finished(run, gfx="sm_90", device_name="NVIDIA H100 80GB HBM3")["entries"]
    assert (only["stage"], only["bytes_est"]) == ("C", 140_000_000)


@pytest.mark.parametrize(("cc", "stage"), [("8.0", "B"), ("9.0", "C")])
def test_the_compute_capability_of_the_rows_is_the_runs(run: Run, cc: str, stage: str) -> None:
    rows = [f'"0","gemm_kernel","{cc}","dram__bytes.sum","Mbyte","140.5"']
    (run.round / "ncu.csv").write_text("\n".join(["ID,Kernel Name,CC,Metric Name,Metric Unit,Metric Value", *rows]) + "\n")
    artifact = finished(run, gfx="sm_90", device_name="NVIDIA H100 80GB HBM3")
    assert artifact["entries"][0]["stage"] == stage
    assert (artifact["degraded"] == []) == (stage == "C")


def test_the_agent_info_beside_a_file_is_compared_with_the_run(run: Run) -> None:
    (run.round / "agent_info.csv").write_text('"Node_Id","Name","Gfx_Target_Version"\n1,"gfx950",90500\n')
    assert "counted on gfx950, not on gfx942" in reason(judged(run, GOOD))


def test_differing_dispatches_have_no_mean(run: Run) -> None:
    other = {"FETCH_SIZE": 4 * FETCH_KIB, "WRITE_SIZE": WRITE_KIB}
    artifact = judged(run, GOOD, {**GOOD, **other})
    assert artifact["entries"][0]["stage"] == "B"
    assert any("not launches of one kind" in line["reason"] for line in artifact["degraded"])


def test_bytes_above_the_model_need_a_time(run: Run) -> None:
    more = {**GOOD, "FETCH_SIZE": 3 * FETCH_KIB // 2}
    (only,) = judged(run, more)["entries"]
    assert only["stage"] == "C"
    artifact = judged(run, {**more, "ns": 0})
    assert artifact["entries"][0]["stage"] == "B"
    assert any("no time of the counted launches shows" in line["reason"] for line in artifact["degraded"])


def test_rows_left_out_are_listed_in_the_artifact(run: Run) -> None:
    text = long_csv({**GOOD, "ns": 50_000}, name="gemm_kernel")
    (run.round / "counter_collection.csv").write_text(text + "1,2,3\n")
    artifact = finished(run)
    assert artifact["entries"][0]["stage"] == "C"
    assert any("has 3 cells" in line["reason"] for line in artifact["degraded"])


def test_unusable_counters_keep_the_model(run: Run) -> None:
    assert "not finite rates" in reason(judged(run, {"FETCH_SIZE": "1e308", "WRITE_SIZE": "1e308"}))


def test_vector_flops_do_not_apply_to_a_matrix_op(run: Run) -> None:
    only = {"FETCH_SIZE": FETCH_KIB, "WRITE_SIZE": WRITE_KIB, "SQ_INSTS_VALU_FMA_F32": FLOPS // 128}
    artifact = judged(run, only)
    assert artifact["entries"][0]["measurement_basis"] == "mixed"
    assert "the model has them on the matrix units" in artifact["degraded"][0]["reason"]
