"""Files of hardware counters: what each tool writes is read exactly or refused with one line that says why.

The inputs are made here in the tools' formats. Tests of public reports carry the report's number.
"""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline_engine.counters import amd, base, nvidia, read
from support.counter_files import COPY, MIB, VECCOPY_MI300, details_csv, long_csv, only, raw_csv, wide_csv
from support.tool import run_tool


def said(kernel: base.Measured) -> str:
    return "\n".join(map(str, kernel.problems))


# rocprofv3, long format


@pytest.mark.parametrize("schema", [2024, 2025])
def test_rocprofv3_long_format_in_both_schemas(schema: int) -> None:
    text = long_csv({"FETCH_SIZE": "8.19200000e+03", "WRITE_SIZE": 8192.0, "OccupancyPercent": "4.0e+01"}, schema=schema)
    kernel = only(text)
    assert (kernel.name, kernel.dispatches) == (COPY, 1)
    assert kernel.bytes == {"hbm_read": 8 * MIB, "hbm_write": 8 * MIB, "hbm": 16 * MIB}
    assert kernel.t_s == (pytest.approx(5e-6) if schema == 2025 else None)


def test_b11_renderdoc_2037_fetch_size_is_in_kib() -> None:
    assert only(long_csv({"FETCH_SIZE": 1, "WRITE_SIZE": 0.5})).bytes["hbm"] == 1536


def test_fetchsize_and_writesize_are_the_same_counters() -> None:
    assert only(long_csv({"FetchSize": 1, "WriteSize": 0.5})).bytes["hbm"] == 1536
    assert only(wide_csv({"FetchSize": 1, "WriteSize": 0.5})).bytes["hbm"] == 1536


def test_k5_counters_are_averaged_per_dispatch_and_never_summed() -> None:
    kernel = only(
        long_csv({"FETCH_SIZE": 180, "WRITE_SIZE": 50, "ns": 4000}, {"FETCH_SIZE": 220, "WRITE_SIZE": 50, "ns": 8000})
    )
    assert kernel.dispatches == 2
    assert kernel.bytes["hbm"] == (200 + 50) * 1024
    assert kernel.t_s == pytest.approx(6e-6)  # the time stands on both rows of a dispatch and counts once


def test_e7_percent_counters_are_averaged_not_summed() -> None:
    """rocprofv3's long format: a row per dispatch and counter, in scientific notation."""
    kernel = only(long_csv({"OccupancyPercent": "4.34e-02"}, {"OccupancyPercent": "8.0e-02"}))
    assert kernel.corroboration == {"OccupancyPercent": pytest.approx(0.0617)}


def test_e3_a_column_of_zeros_is_missing() -> None:
    """rocprofiler-sdk#47, #57; rocm-systems#5953, #8523: counters that are listed and always 0."""
    kernel = only(long_csv({"FETCH_SIZE": "0.00000000e+00", "WRITE_SIZE": 10}, {"FETCH_SIZE": 0, "WRITE_SIZE": 20}))
    assert "hbm" not in kernel.bytes
    assert "FETCH_SIZE is zero in the whole file" in said(kernel)


def test_e2_rocm_systems_8022_zero_bytes_are_unavailable_not_infinite_intensity() -> None:
    two = long_csv({"FETCH_SIZE": 0, "WRITE_SIZE": 0, "kernel": "a"}, {"FETCH_SIZE": 10, "WRITE_SIZE": 10, "kernel": "b"})
    first, second = read.parse(two, "f.csv", "gfx942").kernels
    assert "hbm" not in first.bytes
    assert "zero bytes" in said(first)
    assert second.bytes["hbm"] == 20 * 1024


def test_b10_rocm_systems_11630_no_write_size_gives_no_total() -> None:
    kernel = only(long_csv({"FETCH_SIZE": 100}), "gfx1250")
    assert kernel.bytes == {"hbm_read": 102400}
    assert "WRITE_SIZE was not collected" in said(kernel)


def test_e4_legacy_rocm_build_6613_gfx1201_requests_are_256_bytes() -> None:
    kernel = only(long_csv({"GL2C_EA_RDREQ_sum": 65538, "WRITE_SIZE": 1}), "gfx1201")
    assert kernel.bytes["hbm_read"] == pytest.approx(16 * MIB, rel=1e-4)


def test_e5_rocprofiler_compute_80_a_filter_on_some_passes_is_no_total() -> None:
    kernel = only(long_csv({"FETCH_SIZE": 100, "WRITE_SIZE": 50}, {"WRITE_SIZE": 50}))
    assert "hbm" not in kernel.bytes
    assert "passes are mixed (hbm reads on 1, hbm writes on 2 of 2 dispatches)" in said(kernel)


@pytest.mark.parametrize(
    ("rocm", "believed"), [(None, False), ("6.4.1", False), ("7.11.0", False), ("7.12.0-3", True), ("8.0", True)]
)
def test_b5_rocm_systems_2501_gfx950_fetch_size_needs_a_new_rocm(rocm: str | None, believed: bool) -> None:
    kernel = only(long_csv({"FETCH_SIZE": 4096, "WRITE_SIZE": 8192}), "gfx950", rocm)
    assert ("hbm" in kernel.bytes) == believed
    assert ("rocm-systems#2501" in said(kernel)) == (not believed)


def test_b5_geak_468_gfx950_counts_128_byte_requests_by_their_own_counter() -> None:
    read = {"TCC_EA0_RDREQ_sum": 70_000, "TCC_EA0_RDREQ_32B_sum": 1_000, "TCC_EA0_RDREQ_128B_sum": 65_536}
    write = {"TCC_EA0_WRREQ_sum": 131_072, "TCC_EA0_WRREQ_64B_sum": 131_072}
    kernel = only(long_csv({**read, **write}), "gfx950")
    assert kernel.bytes["hbm_read"] == 128 * 65_536 + 64 * (70_000 - 65_536 - 1_000) + 32 * 1_000
    assert kernel.bytes["hbm_write"] == 64 * 131_072
    del read["TCC_EA0_RDREQ_128B_sum"]
    kernel = only(long_csv({**read, **write, "TCC_BUBBLE_sum": 65_536}), "gfx950")
    assert "hbm" not in kernel.bytes
    assert "RDREQ_128B was not collected" in said(kernel)


def test_e1_rocm_systems_833_a_negative_count_of_64_byte_requests_is_suspect() -> None:
    kernel = only(long_csv({"TCC_EA0_RDREQ": 100, "TCC_EA0_RDREQ_32B": 10, "TCC_BUBBLE": 95, "WRITE_SIZE": 1}))
    assert "hbm" not in kernel.bytes
    assert "-5 requests of 64 B" in said(kernel)


def test_a_counter_given_twice_for_a_dispatch_is_not_used() -> None:
    text = long_csv({"FETCH_SIZE": 1, "WRITE_SIZE": 1})
    text += text.splitlines()[1].replace('"FETCH_SIZE",1,', '"FETCH_SIZE",2,') + "\n"
    found = read.parse(text, "f.csv", "gfx942")
    assert "hbm" not in found.kernels[0].bytes
    assert "line 4: FETCH_SIZE is given twice" in found.problems[0]


def test_several_grid_sizes_are_reported() -> None:
    assert only(long_csv({"FETCH_SIZE": 1, "grid": 64}, {"FETCH_SIZE": 1, "grid": 128})).grids == 2


def test_warm_up_dispatches_can_be_left_out() -> None:
    text = long_csv({"FETCH_SIZE": 900, "WRITE_SIZE": 1}, {"FETCH_SIZE": 100, "WRITE_SIZE": 1})
    (kernel,) = read.parse(text, "f.csv", "gfx942", skip=1).kernels
    assert (kernel.dispatches, kernel.bytes["hbm_read"]) == (1, 102400)


# FLOPs of AMD counters


@pytest.mark.parametrize(
    ("suffix", "dtype"),
    [("F8", "fp8"), ("F16", "fp16"), ("BF16", "bf16"), ("F32", "fp32"), ("F64", "fp64"), ("I8", "int8"), ("XF32", "tf32")],
)
def test_c7_olcf_user_docs_574_973_mops_are_512_flops_for_every_dtype(suffix: str, dtype: str) -> None:
    # 2 batches of 128 x 128 x 256: 2*2*128*128*256 = 2*MNK*batch
    exact = 2 * 2 * 128 * 128 * 256
    kernel = only(long_csv({f"SQ_INSTS_VALU_MFMA_MOPS_{suffix}": exact // 512}))
    assert kernel.flops == {dtype: exact}


def test_b7_olcf_user_docs_574_bmm_of_rocprof_compute_gives_its_own_flops() -> None:
    # 4,194,304 MOPS_BF16 are 2*128*128*128*512 FLOPs exactly.
    assert only(long_csv({"SQ_INSTS_VALU_MFMA_MOPS_BF16": 4_194_304})).flops == {"bf16": 2 * 128 * 128 * 128 * 512}


def test_valu_flops_count_64_lanes_and_a_multiply_add_twice() -> None:
    counts = {"ADD": 10, "MUL": 20, "FMA": 30, "TRANS": 5}
    kernel = only(long_csv({f"SQ_INSTS_VALU_{kind}_F32": value for kind, value in counts.items()}))
    assert kernel.flops == {"vector_fp32": 64 * (10 + 20 + 2 * 30 + 5)}
    kernel = only(long_csv({"SQ_INSTS_VALU_FMA_F32": 30}))
    assert kernel.flops == {"vector_fp32": 64 * 60}
    assert "lower bound" in said(kernel)


def test_derived_mfma_flops_are_flops_already() -> None:
    assert only(long_csv({"MfmaFlopsBF16": 1e9})).flops == {"bf16": 1e9}


# rocprof-compute, wide format


def test_wide_gfx942_bytes_by_level() -> None:
    kernel = only(wide_csv(VECCOPY_MI300), "gfx942")
    assert kernel.name == "vecCopy(double*, double*, int)"
    assert kernel.bytes["hbm_read"] == 65_536 * 128 + (65_763 - 65_536) * 64  # 65,763 x 64 would be half
    assert kernel.bytes["hbm_write"] == 8 * MIB
    assert kernel.bytes["l2"] == 16 * MIB
    assert kernel.bytes["l1"] >= kernel.bytes["l2"]


def test_wide_without_the_architecture_names_its_assumption() -> None:
    kernel = only(wide_csv(VECCOPY_MI300), None)
    assert "read as gfx942, wrong on gfx950" in said(kernel)


def test_e6_mangled_timestamps_give_no_time() -> None:
    """rocprof-compute's MI300 workloads: 8.1097E+14 at both ends."""
    found = read.parse(wide_csv(VECCOPY_MI300, VECCOPY_MI300), "f.csv", "gfx942")
    assert found.kernels[0].t_s is None
    assert found.problems == (
        "f.csv: line 2: the timestamps give no time (start 8.1097E+14, end 8.1097E+14) (and 1 more such lines)",
    )
    lost = wide_csv({**VECCOPY_MI300, "Start_Timestamp": "8.1097E+14", "End_Timestamp": "8.1098E+14"})
    found = read.parse(lost, "f.csv", "gfx942")
    assert found.kernels[0].t_s is None
    assert "lost their resolution" in found.problems[0]
    backwards = wide_csv({**VECCOPY_MI300, "Start_Timestamp": 20, "End_Timestamp": 10})
    assert only(backwards).t_s is None


def test_wide_gfx90a_sums_channels_where_there_is_no_sum() -> None:
    one = {"TCC_EA_RDREQ[0]": 60, "TCC_EA_RDREQ[1]": 40, "TCC_EA_RDREQ_32B[0]": 5, "TCC_EA_RDREQ_32B[1]": 5}
    one.update({"TCC_EA_WRREQ_sum": 30, "TCC_EA_WRREQ[0]": 999, "TCC_EA_WRREQ_64B_sum": 20})
    kernel = only(wide_csv(one), "gfx90a")
    assert kernel.bytes["hbm_read"] == 64 * 90 + 32 * 10
    assert kernel.bytes["hbm_write"] == 64 * 20 + 32 * 10


@pytest.mark.parametrize(("gfx", "line"), [("gfx942", 128), ("gfx950", 128), ("gfx90a", 64), ("gfx908", 64)])
def test_b7_rocm_systems_6339_rocprofiler_compute_598_line_sizes_by_architecture(gfx: str, line: int) -> None:
    one = {"TCP_TCC_READ_REQ_sum": 1000, "TCP_TCC_WRITE_REQ_sum": 10, "TCP_TOTAL_CACHE_ACCESSES_sum": 5000}
    kernel = only(wide_csv(one), gfx)
    assert kernel.bytes["l2"] == 1000 * line + 10 * 64
    assert kernel.bytes["l1"] == 5000 * line


def test_b7_without_the_architecture_there_is_no_line_size() -> None:
    kernel = only(long_csv({"TCP_TOTAL_CACHE_ACCESSES_sum": 5000}), None)
    assert kernel.bytes == {}
    assert "line size depends on the gfx" in said(kernel)


def test_b8_rocprofiler_compute_690_intensity_grows_by_level_or_is_refused() -> None:
    one = {"FETCH_SIZE": 100, "WRITE_SIZE": 100, "TCP_TCC_READ_REQ_sum": 10, "TCP_TCC_WRITE_REQ_sum": 10}
    kernel = only(wide_csv(one))
    assert kernel.bytes == {}
    assert "intensity must grow by level" in said(kernel)


def test_e5_rocprofiler_compute_499_and_header_only_files_are_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match=r"^f\.csv: a header without a row: the profile matched no kernel$"):
        read.parse("Dispatch_ID,Kernel_Name\n", "f.csv")


def test_a_row_of_another_width_is_named_and_never_shifted() -> None:
    text = wide_csv({"FETCH_SIZE": 1, "WRITE_SIZE": 1}) + '1,"other",1048576,5\n'
    found = read.parse(text, "f.csv", "gfx942")
    assert [kernel.name for kernel in found.kernels] == ["vecCopy(double*, double*, int)"]
    assert found.problems == ("f.csv: line 3 has 4 cells, expected 5: left out",)


def test_a_cell_that_is_no_number_is_named_by_row_and_column() -> None:
    found = read.parse(wide_csv({"FETCH_SIZE": "many", "WRITE_SIZE": 1}), "f.csv", "gfx942")
    assert found.problems == ("f.csv: line 2: FETCH_SIZE is 'many', expected a number",)
    assert "hbm" not in found.kernels[0].bytes


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("nothing here\n", "no line is a header of a known format"),
        ('"Name","Calls","TotalDurationNs","AverageNs"\n"HIP_API",1,2,3\n', "give it to analyze"),
        ("device,HBMBw,HBMBwLow\n0,1388.9,1388.3\n", "measured ceilings, not counters"),
        ("workload_name,gpu_arch\nv,gfx942\n", "a description of the system"),
        ("{", "not JSON"),
        ("{}", "expected rocprofv3's results JSON"),
    ],
)
def test_an_invalid_counter_file_is_refused_in_one_line(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text(text)
    done = run_tool("counters", "show", path)
    assert (done.code, done.out) == (2, "")
    assert why in done.err
    assert done.err.startswith("f.csv: ")
    assert done.err.count("\n") == 1


# rocprofv3's results JSON


def results(records: list[dict[str, Any]], kernels: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "rocprofiler-sdk-tool": [
            {
                "agents": [
                    {"id": {"handle": 9}, "type": 2, "name": "gfx942"},
                    {"id": {"handle": 8}, "type": 1, "name": "EPYC"},
                ],
                "counters": [{"id": {"handle": 1}, "name": "FETCH_SIZE"}, {"id": {"handle": 2}, "name": "WRITE_SIZE"}],
                "kernel_symbols": [{"kernel_id": 3, "kernel_name": "k.kd", "formatted_kernel_name": "k(float*)"}],
                "callback_records": {"counter_collection": records},
                "buffer_records": {"kernel_dispatch": kernels},
            }
        ]
    }


def launch(start: int, end: int) -> dict[str, Any]:
    return {"start_timestamp": start, "end_timestamp": end, "dispatch_info": {"kernel_id": 3, "dispatch_id": start}}


def test_results_json_counters() -> None:
    instances = [{"counter_id": {"handle": handle}, "value": value} for handle, value in ((1, 60.0), (1, 40.0), (2, 25.0))]
    found = read.parse(json.dumps(results([{"dispatch_data": launch(100, 1100), "records": instances}], [])), "r.json")
    assert found.gfx == "gfx942"
    (kernel,) = found.kernels
    assert (kernel.name, kernel.t_s) == ("k(float*)", pytest.approx(1e-6))
    assert kernel.bytes == {"hbm_read": 100 * 1024, "hbm_write": 25 * 1024, "hbm": 125 * 1024}  # instances are summed


def test_d2_nsys_ai_93_f7_ninfer_3090_60_overlapping_dispatches_are_detected() -> None:
    found = read.parse(json.dumps(results([], [launch(0, 100), launch(50, 150), launch(400, 500)])), "r.json")
    assert found.problems[0] == "r.json: dispatches overlap: their sum is 300 ns, their union 250 of a span of 500 ns"
    assert amd.overlap([]) == (0.0, 0.0, 0.0)


# Nsight Compute


def test_ncu_raw_page_units_thousands_and_time() -> None:
    text = raw_csv(
        {
            "dram__bytes_read.sum": ("byte", ["5,156,128"]),
            "dram__bytes_write.sum": ("byte", ["5,760"]),
            "gpu__time_duration.sum": ("ns", ["28,448"]),
            "launch__cache_config": ("", ["CachePreferNone"]),
        },
        names=["void w13_kernel<4, 1>(const unsigned char *)"],
    )
    kernel = only(text, None)
    assert kernel.name == "void w13_kernel<4, 1>(const unsigned char *)"
    assert kernel.bytes == {"hbm_read": 5_156_128, "hbm_write": 5_760, "hbm": 5_161_888}
    assert kernel.t_s == pytest.approx(28.448e-6)


@pytest.mark.parametrize(
    ("unit", "factor"),
    [
        ("byte", 1),
        ("Kbyte", 1e3),
        ("Mbyte", 1e6),
        ("Gbyte", 1e9),
        ("KiB", 1024),
        ("MiB", 2**20),
        ("usecond", 1e-6),
        ("ms", 1e-3),
    ]
    + [("nsecond", 1e-9), ("second", 1), ("%", 1), ("", 1), ("inst", 1), ("Kinst", 1e3), ("Ghz", 1e9), ("cycle/nsecond", 1e9)],
)
def test_e8_ncu_prefixes_are_thousands_and_binary_ones_are_not(unit: str, factor: float) -> None:
    if unit in ("KiB", "MiB"):
        assert nvidia.factor(unit) == factor
    else:
        assert nvidia.factor(unit) == pytest.approx(factor)


def test_ncu_details_page_with_scaled_units_and_na() -> None:
    rows = [("0", "w13", "dram__bytes_read.sum", "Mbyte", "10.24"), ("0", "w13", "gpu__time_duration.sum", "usecond", "40")]
    rows.append(("1", "w2", "dram__bytes_read.sum", "Mbyte", "n/a"))
    found = read.parse(details_csv(*rows), "f.csv")
    first, second = found.kernels
    assert first.bytes == {"hbm_read": pytest.approx(10_240_000)}
    assert first.bytes["hbm_read"] / (first.t_s or 0) == pytest.approx(256e9)
    assert second.bytes == {}
    assert found.problems == ("f.csv: line 4: dram__bytes_read.sum is n/a: skipped",)


DRAM_PCT = "dram__throughput.avg.pct_of_peak_sustained_elapsed"


def test_e8_csvkit_876_decimal_commas_of_a_localised_file() -> None:
    kernel = only(details_csv(("0", "k", DRAM_PCT, "%", "5,40"), ("0", "k", "dram__bytes.sum", "byte", "1.234.567")), None)
    assert kernel.corroboration == {"dram_throughput": pytest.approx(5.4)}  # not 540
    assert kernel.bytes["hbm"] == 1_234_567
    rows = [("0", "k", "dram__bytes.sum", "Mbyte", "2523,00"), ("0", "k", DRAM_PCT, "%", "1,234")]
    kernel = only(details_csv(*rows), None)
    assert kernel.bytes["hbm"] == pytest.approx(2523e6)  # not 252,300
    assert kernel.corroboration == {"dram_throughput": pytest.approx(1.234)}  # the other number decides


def test_e8_ambiguous_numbers_are_thousands_only_where_they_count() -> None:
    found = read.parse(details_csv(("0", "k", DRAM_PCT, "%", "5,400"), ("0", "k", "dram__bytes.sum", "byte", "5,400")), "f.csv")
    assert found.kernels[0].bytes == {"hbm": 5400}
    assert found.kernels[0].corroboration == {}
    assert "thousands or decimals" in found.problems[0]
    with pytest.raises(ValueError, match="decimal comma and"):
        read.parse(details_csv(("0", "k", DRAM_PCT, "%", "5,40"), ("0", "k", DRAM_PCT, "%", "5.4")), "f.csv")


@pytest.mark.parametrize(
    ("unit", "value", "others", "right"),
    [
        ("usecond", "28.448", [], 28.448e-6),  # no comma anywhere: a decimal point
        ("usecond", "28.448", ["5,40"], 28_448e-6),  # decimal commas elsewhere: thousands
        ("usecond", "28,448", ["5.40"], 28_448e-6),
        ("usecond", "28,448", ["5,40"], 28.448e-6),
        ("usecond", "28,448", [], None),
        ("usecond", "28.448", ["1,234"], None),
        ("nsecond", "28,448", [], 28_448e-9),  # nanoseconds are whole
        ("nsecond", "28.448", [], None),
        ("nsecond", "2.128.448", [], 2_128_448e-9),
    ],
)
def test_e8_what_three_digits_after_a_mark_mean(unit: str, value: str, others: list[str], right: float | None) -> None:
    rows = [("0", "k", "gpu__time_duration.sum", unit, value)]
    kernel = only(details_csv(*rows, *(("0", "k", "other__metric", "%", other) for other in others)), None)
    assert kernel.t_s == (None if right is None else pytest.approx(right))


def test_c10_ncu_tensor_paths_are_flops_directly() -> None:
    # The FP8 GEMM of 4096 x 3072 x 768: 2*M*N*K.
    exact = 2 * 4096 * 3072 * 768
    assert exact == 19_327_352_832
    metrics = {
        "sm__ops_path_tensor_src_fp8.sum": ("", [f"{exact:,}"]),
        "sm__ops_path_tensor_src_fp8_dst_fp32.sum": ("", [f"{exact:,}"]),
    }
    assert only(raw_csv(metrics), None).flops == {"fp8": exact}  # the total, not the total and its part
    metrics["sm__ops_path_tensor_op_hmma_src_fp8_dst_fp32.sum"] = ("", [f"{exact:,}"])
    assert only(raw_csv(metrics), None).flops == {"fp8": exact}  # the same operations by instruction


def test_ncu_sparse_operations_are_separate() -> None:
    metrics = {
        "sm__ops_path_tensor_src_fp16_dst_fp32_sparsity_off.sum": ("", ["1,000,000"]),
        "sm__ops_path_tensor_src_fp16_dst_fp32_sparsity_on.sum": ("", ["3,000,000"]),
    }
    assert only(raw_csv(metrics), None).flops == {"fp16": 1e6, "sparse_fp16": 3e6}


def test_ncu_sass_counts_packed_instructions_by_their_lanes() -> None:
    counts = {"fadd": 1, "fmul": 2, "ffma": 3, "fadd2": 4, "ffma2": 5, "hfma2": 6, "hadd": 7, "dfma": 8}
    names = {f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum": ("inst", [str(value)]) for op, value in counts.items()}
    assert only(raw_csv(names), None).flops == {
        "vector_fp32": 1 + 2 + 2 * 3 + 2 * 4 + 4 * 5,
        "vector_fp16": 4 * 6 + 7,
        "vector_fp64": 16,
    }


def test_c9_pipe_tensor_times_512_holds_on_a_v100_only() -> None:
    metrics = {"sm__inst_executed_pipe_tensor.sum": ("inst", ["1,000,000"])}
    assert only(raw_csv(metrics, cc="7.0"), None).flops == {"fp16": 512e6}
    kernel = only(raw_csv(metrics, cc="8.0"), None)
    assert kernel.flops == {}
    assert "V100 only" in said(kernel)


def test_ncu_levels() -> None:
    metrics = {
        "dram__bytes.sum": ("Mbyte", ["1.5"]),
        "lts__t_bytes.sum": ("Mbyte", ["3.0"]),
        "l1tex__t_bytes.sum": ("Mbyte", ["6.0"]),
        "sm__cycles_elapsed.avg": ("cycle", ["30000"]),
        "sm__cycles_elapsed.avg.per_second": ("cycle/nsecond", ["1.5"]),
    }
    kernel = only(raw_csv(metrics), None)
    assert kernel.bytes == pytest.approx({"hbm": 1.5e6, "l2": 3e6, "l1": 6e6})
    assert kernel.t_s == pytest.approx(30000 / 1.5e9)


def test_ncu_without_units_under_the_header_is_refused() -> None:
    text = "\n".join(line for line in raw_csv({"dram__bytes.sum": ("byte", ["1", "2"])}, names=["a", "b"]).splitlines())
    text = "\n".join(line for at, line in enumerate(text.splitlines()) if at != 2)
    with pytest.raises(ValueError, match="expected the units under the header, found a launch"):
        read.parse(text, "f.csv")


# The command


def test_show_prints_levels_flops_and_rates(tmp_path: Path) -> None:
    path = tmp_path / "counter_collection.csv"
    path.write_text(long_csv({"FETCH_SIZE": 1000, "WRITE_SIZE": 24, "SQ_INSTS_VALU_MFMA_MOPS_BF16": 1000, "ns": 1000}))
    done = run_tool("counters", "show", path, "--gfx", "gfx942")
    assert done.code == 0, done.err
    assert f"{COPY}: 1 dispatches, 1 us" in done.out
    assert "1048576 (1.049 MB), 1.049 TB/s" in done.out
    assert "512000 (512 kFLOP), 512 GFLOP/s" in done.out
    kernel = json.loads(run_tool("counters", "show", path, "--gfx", "gfx942", "--json").out)["kernels"][0]
    assert kernel["bytes"]["hbm"] == 1048576


@pytest.mark.parametrize(("moved", "code"), [(16 * MIB, 0), (16 * MIB * 1.019, 0), (16 * MIB * 1.04, 1), (32 * MIB, 1)])
def test_b5_check_with_a_copy_of_known_traffic(moved: float, code: int, tmp_path: Path) -> None:
    path = tmp_path / "counter_collection.csv"
    path.write_text(long_csv({"FETCH_SIZE": 8192, "WRITE_SIZE": 8192}))
    done = run_tool("counters", "check", path, "--bytes", moved, "--gfx", "gfx942")
    assert done.code == code
    assert f"{16 * MIB / moved - 1:+.2%}" in done.out
    assert ("L4 on this stack" in done.out) == (code == 1)


@pytest.mark.parametrize(
    ("fetch", "write", "code", "says"),
    [
        (
            8192,
            6526,
            0,
            "reads hold (+0.00%); 6682624 of 8388608 bytes written are counted, the rest may lie in the 33.55 MB cache",
        ),
        (6526, 8192, 1, "L4 on this stack"),  # reads that are missing are a fault
        (8192, 9830, 1, "L4 on this stack"),  # so are writes that nothing wrote
    ],
)
def test_a_copy_whose_writes_lie_in_the_cache_proves_its_reads(
    fetch: int, write: int, code: int, says: str, tmp_path: Path
) -> None:
    """vecCopy of 8 MiB on MI200 counts 6.68 MB of its writes, the rest is dirty in the L2."""
    path = tmp_path / "counter_collection.csv"
    path.write_text(long_csv({"FETCH_SIZE": fetch, "WRITE_SIZE": write}))
    done = run_tool("counters", "check", path, "--bytes", 16 * MIB, "--gfx", "gfx942")
    assert done.code == code
    assert says in done.out


def test_check_asks_which_kernel_and_fails_without_bytes(tmp_path: Path) -> None:
    path = tmp_path / "counter_collection.csv"
    path.write_text(long_csv({"SQ_WAVES": 1, "kernel": "a"}, {"SQ_WAVES": 1, "kernel": "b"}))
    done = run_tool("counters", "check", path, "--bytes", 5)
    assert (done.code, done.err) == (2, "counter_collection.csv: 2 kernels (a, b). Name the copy with --kernel\n")
    done = run_tool("counters", "check", path, "--bytes", 5, "--kernel", "a")
    assert done.code == 1
    assert "it has no byte counters (SQ_WAVES)" in done.out
    shown = json.loads(run_tool("counters", "show", path, "--json").out)
    assert shown["problems"] == ["counter_collection.csv: it has no byte counters (SQ_WAVES)"]


def test_the_architecture_comes_from_the_files_beside_it(tmp_path: Path) -> None:
    (tmp_path / "x_counter_collection.csv").write_text(long_csv({"FETCH_SIZE": 1, "WRITE_SIZE": 1}))
    (tmp_path / "x_agent_info.csv").write_text(
        '"Node_Id","Agent_Type","Gfx_Target_Version","Name"\n0,"CPU",0,"AMD EPYC"\n2,"GPU",90500,"gfx950"\n'
    )
    assert read.read(str(tmp_path / "x_counter_collection.csv")).gfx == "gfx950"
    (tmp_path / "pmc_perf.csv").write_text(wide_csv({"FETCH_SIZE": 1, "WRITE_SIZE": 1}))
    (tmp_path / "sysinfo.csv").write_text('workload_name,sbios,rocm_version,gpu_arch\nv,"A, LLC.X",7.12.1-5,gfx950\n')
    found = read.read(str(tmp_path / "pmc_perf.csv"))
    assert (found.gfx, found.kernels[0].bytes["hbm"]) == ("gfx950", 2048)


LIST_AVAIL = """GPU     :\t0
Name    :\tgfx90a
configs :
   Method              :\thost_trap

GPU:0
Name:gfx90a
Counter_Name        :\tFETCH_SIZE
Description         :\tThe total KiB: a colon in a text
Expression          :\treduce(TCC_EA_RDREQ,sum)
Counter_Name        :\tMfmaUtil
"""


def test_list_avail_says_which_wanted_counters_exist(tmp_path: Path) -> None:
    path = tmp_path / "avail.txt"
    path.write_text(LIST_AVAIL)
    done = run_tool("counters", "show", path)
    assert done.code == 0, done.err
    assert "gfx90a: 2 counters\n" in done.out
    assert "bytes: FETCH_SIZE; absent: WRITE_SIZE" in done.out
    assert "L4: WRITE_SIZE is absent" in done.out
    assert "corroboration: MfmaUtil; absent: MemUnitStalled, OccupancyPercent" in done.out
    path.write_text(LIST_AVAIL + "...\n")
    assert "the list is cut" in run_tool("counters", "show", path).out


def test_hostile_names_are_shown_escaped(tmp_path: Path) -> None:
    path = tmp_path / "counter_collection.csv"
    path.write_text(long_csv({"FETCH_SIZE": 1, "WRITE_SIZE": 1, "kernel": "evil\x1b[31m"}))
    assert "\x1b" not in run_tool("counters", "show", path).out


def test_utf16_of_a_windows_shell_is_read(tmp_path: Path) -> None:
    path = tmp_path / "ncu.csv"
    path.write_text(details_csv(("0", "k", "dram__bytes.sum", "byte", "12")), encoding="utf-16")
    assert read.read(str(path)).kernels[0].bytes == {"hbm": 12}


SAMPLES = (
    long_csv({"FETCH_SIZE": 100, "WRITE_SIZE": 7, "SQ_INSTS_VALU_FMA_F32": 3, "MemUnitStalled": 1.5}, {"FETCH_SIZE": 9}),
    wide_csv(VECCOPY_MI300),
    raw_csv({"dram__bytes.sum": ("Mbyte", ["1,5"]), "gpu__time_duration.sum": ("us", ["3"])}),
    details_csv(("0", "k", DRAM_PCT, "%", "5,400"), ("0", "k", "dram__bytes.sum", "byte", "5,400")),
    json.dumps(results([{"dispatch_data": launch(1, 5), "records": [{"counter_id": {"handle": 1}, "value": 2}]}], [])),
)


@given(
    sample=st.sampled_from(SAMPLES),
    edits=st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 9), st.text(max_size=6)), max_size=4),
    gfx=st.sampled_from([None, "gfx90a", "gfx942", "gfx950", "gfx1201"]),
)
def test_a_damaged_file_is_read_or_refused_in_one_line(sample: str, edits: list[tuple[int, int, str]], gfx: str | None) -> None:
    for at, length, text in edits:
        sample = sample[:at] + text + sample[at + length :]
    found, refused = parsed(sample, gfx)
    assert found is not None or (refused.startswith("f: ") and "\n" not in refused)
    for kernel in found.kernels if found else ():
        levels = [kernel.bytes[name] for name in ("l1", "l2", "hbm") if name in kernel.bytes]
        assert all(lower <= upper * 1.02 for upper, lower in itertools.pairwise(levels))
        assert all(math.isfinite(value) and value >= 0 for value in [*kernel.bytes.values(), *kernel.flops.values()])
        assert kernel.t_s is None or kernel.t_s > 0


@given(st.text(max_size=200), st.booleans())
def test_any_text_is_read_or_refused(text: str, header: bool) -> None:
    found, refused = parsed(("Dispatch_ID,Kernel_Name,FETCH_SIZE\n" if header else "") + text, None)
    assert found is not None or refused.startswith("f: ")


def parsed(text: str, gfx: str | None) -> tuple[base.Counters | None, str]:
    try:
        return read.parse(text, "f", gfx), ""
    except ValueError as error:
        return None, str(error)
