"""Measured ceilings of other tools over the table's peaks: the formats that those tools write, and refused figures.

Tests that start with a public report's id (A2, D9, ...) use its figures: the wrong one is named, the right one is used.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from roofline_engine.peaks import Device, resolve
from roofline_engine.peaks_measured import Ceiling, Overlay, lay_over
from support.ceiling_files import TABLE, over, rocprof
from support.profiles import Run, entry
from support.tool import Outcome, run_tool


def tracelens(path: Path, name: str = "MI300X", bandwidth: float | None = None, **rates: float) -> Path:
    document: dict[str, Any] = {"name": name, "max_achievable_tflops": rates}
    if bandwidth is not None:
        document["mem_bw_gbps"] = bandwidth
    path.write_text(json.dumps(document, indent=4), encoding="utf-8")
    return path


def ert(path: Path, gflops: float, gpu: bool = False, label: str = "GFLOPs", **levels: float) -> Path:
    """ERT 1.1.0's database: figures in GB/s and GFLOP/s, the run's configuration in the metadata."""
    document = {
        "empirical": {
            "gbytes": {"data": [[name, value] for name, value in levels.items()], "metadata": {"FLOPS": 1}},
            "gflops": {"data": [[label, gflops]], "metadata": {"FLOPS": 16}},
            "metadata": {"ERT_VERSION": "1.1.0", "CONFIG": {"ERT_GPU": [str(gpu)]}},
        },
        "spec": {"gbytes": {"data": []}, "gflops": {"data": []}},
    }
    path.write_text(json.dumps(document, indent=3), encoding="utf-8")
    return path


def carm_memory(level: str, gbps: float, machine: str = "box", **more: Any) -> dict[str, Any]:
    row = {"type": "memory", "cache_level": level, "bandwidth_gbps": gbps, "machine": machine, "isa": "x86_avx2"}
    return {**row, "data_type": "f64", "num_threads": 2, "load_store_ratio": "2:1", **more}


def carm_flops(gops: float, machine: str = "box", **more: Any) -> dict[str, Any]:
    row = {"type": "arithmetic", "performance_gops": gops, "operation": "fma", "machine": machine, "isa": "x86_avx2"}
    return {**row, "data_type": "f64", "num_threads": 2, **more}


def carm(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row, sort_keys=True) + "\n" for row in rows), encoding="utf-8")
    return path


def show(path: Path, name: str, *options: object) -> Outcome:
    return run_tool("peaks", "show", name, "--peaks", path, *options)


#: One GCD of MI200 as rocprof-compute measured it (ROCm/rocprofiler-compute tests/workloads/vcopy/MI200/roofline.csv, rounded).
MI200 = {"HBMBw": 1388.93, "L2Bw": 5018.29, "FP32Flops": 20941.97, "MFMABF16Flops": 170483.16, "MFMAF16Flops": 164938.17}


def test_rocprof_ceilings_under_the_table_are_achievable_and_the_roof_stays(tmp_path: Path) -> None:
    peaks, refused = over(rocprof(tmp_path / "roofline.csv", MI200), "AMD Instinct MI210")
    assert refused == []
    assert (peaks.source, peaks.confidence) == ("table", "high")
    assert peaks.hbm_bw_bytes_s == 1.6384e12
    assert peaks.achievable["memory"] == pytest.approx(1388.93e9)
    assert peaks.achievable["memory"] / 1.6384e12 == pytest.approx(0.848, abs=0.001)
    assert peaks.achievable["matrix.bf16"] == pytest.approx(170.48316e12)
    assert peaks.achievable["vector.fp32"] == pytest.approx(20.94197e12)
    assert "matrix.fp8" not in peaks.achievable  # 0 is a type the device lacks
    assert "measured by rocprof-compute (roofline.csv): memory" in peaks.note


def test_the_artifacts_peaks_object_holds_what_is_achievable(tmp_path: Path) -> None:
    done = show(rocprof(tmp_path / "r.csv", MI200), "AMD Instinct MI210", "--json")
    assert (done.code, done.err) == (0, "")
    peaks = json.loads(done.out)
    assert peaks["hbm_bw_bytes_s"] == 1.6384e12
    assert peaks["achievable"]["hbm_bw_bytes_s"] == pytest.approx(1388.93e9)
    assert set(peaks["achievable"]["flops"]) == {"bf16", "fp16"}
    assert peaks["achievable"]["vector"] == {"fp32": pytest.approx(20.94197e12)}
    assert "achievable" not in json.loads(run_tool("peaks", "show", "MI210", "--json").out)


def test_a25_a_measured_ceiling_above_the_rated_one_is_the_roof(tmp_path: Path) -> None:
    """H200 at 1980 MHz: 1070.5 TFLOP/s is allowed, the rated 989.4 is at 1830 (mixbench#14: boost over the sheet)."""
    peaks, refused = over(rocprof(tmp_path / "r.csv", {"MFMABF16Flops": 1.02e6, "HBMBw": 4500}), "NVIDIA H200")
    assert refused == []
    assert (peaks.source, peaks.confidence) == ("measured", "high")
    assert peaks.flops["bf16"] == pytest.approx(1020e12)
    assert peaks.flops["fp16"] == pytest.approx(989.4e12)  # the axis that was not measured keeps the table's
    assert peaks.achievable == {"memory": pytest.approx(4.5e12)}
    assert "so the roof: matrix.bf16" in peaks.note


@pytest.mark.parametrize(("spread", "confidence"), [(0.149, "high"), (0.16, "low")])
def test_measured_is_high_when_best_and_median_are_within_15_percent(tmp_path: Path, spread: float, confidence: str) -> None:
    peaks, _ = over(rocprof(tmp_path / "r.csv", {"MFMABF16Flops": 1.02e6}, spread=spread), "NVIDIA H200")
    assert peaks.confidence == confidence
    assert peaks.axis_confidence("matrix.bf16") == confidence
    assert peaks.axis_confidence("memory") == "high"


def test_without_rounds_a_measured_roof_is_low_unless_it_agrees_with_the_table() -> None:
    base = resolve(TABLE, Device(device_name="NVIDIA GeForce RTX 5090"))  # 209.5, at most 1.25 of it on a GeForce
    for value, confidence in ((230e12, "high"), (254e12, "low")):
        overlay = Overlay("a tool", "f", (Ceiling("matrix.bf16", value, "f: row 1"),))
        assert lay_over(base, overlay, TABLE)[0].axis_confidence("matrix.bf16") == confidence


def test_a2_one_xcds_bandwidth_against_the_whole_chip(tmp_path: Path) -> None:
    """rocprofiler-compute#712: 665.6 GB/s as the peak made 2022 GB/s 303 %."""
    path = rocprof(tmp_path / "r.csv", {"HBMBw": 665.6, "MFMABF16Flops": 1.0e6})
    peaks, refused = over(path, "MI300X")
    assert peaks.hbm_bw_bytes_s == 5.3e12
    assert "memory" not in peaks.achievable
    assert refused == [
        "r.csv: line 2, HBMBw: 665.6 GB/s is 0.126 of the rated 5.3 TB/s, under 0.55: one die of eight?; not used"
    ]


def test_d3_a_packages_figures_against_one_gcd(tmp_path: Path) -> None:
    """torchtitan#928: MI250X peaks are per GCD; an OAM's 3276.8 GB/s and 383 TF are two."""
    done = show(rocprof(tmp_path / "r.csv", {"HBMBw": 3276.8, "MFMABF16Flops": 383e3}), "mi250x-gcd")
    assert (done.code, done.out) == (2, "")
    assert "r.csv: line 2, HBMBw: 3.277 TB/s is 2x the rated 1.638 TB/s" in done.err
    assert "two dies for one" in done.err
    assert done.err.count("\n") == 1


def test_a3_more_than_the_highest_clock_gives(tmp_path: Path) -> None:
    """rocprofiler-compute#691: the microbenchmark read 81 TFLOP/s FP64 on MI300A, whose vector units do 61.3."""
    path = tmp_path / "r.csv"
    path.write_text("device,HBMBw,FP64Flops\n0,4100,81000\n")
    peaks, refused = over(path, "MI300A")
    assert peaks.vector["fp64"] == pytest.approx(61.3e12)
    assert refused == [
        "r.csv: line 2, FP64Flops: 81 TFLOP/s is 1.32x the rated 61.3 TFLOP/s, over what clock and bus allow; not used"
    ]


def test_a4_d9_a_bf16_benchmark_at_half_rate(tmp_path: Path) -> None:
    """rocm-amdgpu-bench#24: BF16 516.6, right about 1033; D9: FP16 916 is right, and the larger one is used."""
    path = rocprof(tmp_path / "r.csv", {"MFMABF16Flops": 516.6e3, "MFMAF16Flops": 916e3})
    peaks, refused = over(path, "MI300X")
    assert [line.split(": ")[1] for line in refused] == ["line 2, MFMABF16Flops"]
    assert peaks.achievable == {"matrix.fp16": pytest.approx(916e12)}
    assert over(rocprof(path, {"MFMABF16Flops": 1033e3}), "MI300X")[1] == []


def test_d9_bf16_and_fp16_that_must_agree(tmp_path: Path) -> None:
    """Both over 0.55 of the rated 1307 and still 0.75 apart: the slower one is a bad benchmark."""
    peaks, refused = over(rocprof(tmp_path / "r.csv", {"MFMABF16Flops": 750e3, "MFMAF16Flops": 1000e3}), "MI300X")
    assert "MFMABF16Flops: 750 TFLOP/s is 0.75 of matrix.fp16, which this device runs at the same rate" in refused[0]
    assert set(peaks.achievable) == {"matrix.fp16"}
    mi100 = over(rocprof(tmp_path / "r.csv", {"MFMABF16Flops": 80e3, "MFMAF16Flops": 160e3}), "MI100")
    assert mi100[1] == []  # gfx908 runs BF16 at half rate


def test_a5_gfx908_measured_over_the_spec(tmp_path: Path) -> None:
    """rocm-amdgpu-bench#4: the spec is what the clock allows; a HBM figure over the bus is no measurement of HBM."""
    _, refused = over(rocprof(tmp_path / "r.csv", {"HBMBw": 1300, "MFMAF16Flops": 160e3}), "MI100")
    assert refused[0].startswith("r.csv: line 2, HBMBw: 1.3 TB/s is 1.06x the rated 1.229 TB/s")


def test_a6_gfx90a_bf16_with_the_old_instruction(tmp_path: Path) -> None:
    """rocm-systems#5162: 83.3 with the 32x32x4 instruction, 160.5 with the right one, of 181."""
    _, refused = over(rocprof(tmp_path / "r.csv", {"HBMBw": 1388, "MFMABF16Flops": 83.3e3}), "MI210")
    assert "MFMABF16Flops: 83.3 TFLOP/s is 0.46 of the rated 181 TFLOP/s, under 0.55" in refused[0]
    assert over(rocprof(tmp_path / "r.csv", {"MFMABF16Flops": 160.5e3}), "MI210")[1] == []


def test_a7_equal_and_both_too_low(tmp_path: Path) -> None:
    """rocm-systems#3506, #3948, #3837: FP16 1.02, BF16 1.1, I8 2.19 PFLOP/s on gfx950 agree; 1.8, 2.0, 4.2 were right."""
    wrong = {"HBMBw": 6914, "MFMAF16Flops": 1.02e6, "MFMABF16Flops": 1.1e6, "MFMAI8Ops": 2.19e6}
    peaks, refused = over(rocprof(tmp_path / "r.csv", wrong), "MI350X")
    assert [line.split(": ")[1] for line in refused] == ["line 2, MFMABF16Flops", "line 2, MFMAF16Flops", "line 2, MFMAI8Ops"]
    assert peaks.achievable == {"memory": pytest.approx(6.914e12)}  # rocm-systems#8480: the read-only kernel
    right = {"MFMAF16Flops": 1.8e6, "MFMABF16Flops": 2.0e6, "MFMAI8Ops": 4.2e6}
    assert over(rocprof(tmp_path / "r.csv", right), "MI350X")[1] == []


def test_rocprof_3_6_on_mi355x_is_right_but_for_fp8(tmp_path: Path) -> None:
    """BF16 2435, FP16 2163, INT8 4854 were repaired in 3.6.0; F8 still reads 2456 with the legacy instruction, 0.49."""
    figures = {"MFMABF16Flops": 2435e3, "MFMAF16Flops": 2163e3, "MFMAI8Ops": 4854e3, "MFMAF8Flops": 2456e3}
    peaks, refused = over(rocprof(tmp_path / "r.csv", figures), "MI355X")
    assert [line.split(": ")[1] for line in refused] == ["line 2, MFMAF8Flops"]
    assert set(peaks.achievable) == {"matrix.bf16", "matrix.fp16", "matrix.int8"}


def test_two_columns_of_one_dtype_are_one_ceiling_the_larger(tmp_path: Path) -> None:
    """MFMAMXF8Flops uses the scaled instruction at full rate; MFMAF6F4Flops stands for both types."""
    path = tmp_path / "r.csv"
    for order in ("MFMAF8Flops,MFMAMXF8Flops\n0,3000e3,4800e3", "MFMAMXF8Flops,MFMAF8Flops\n0,4800e3,3000e3"):
        path.write_text(f"device,HBMBw,MFMAF6F4Flops,{order.replace(chr(10) + '0,', chr(10) + '0,6900,9681e3,')}\n")
        peaks, refused = over(path, "MI355X")
        assert refused == []
        assert peaks.achievable["matrix.fp8"] == pytest.approx(4800e12)
        assert peaks.achievable["matrix.fp6"] == peaks.achievable["matrix.fp4"] == pytest.approx(9681e12)


@pytest.mark.parametrize(("gbps", "right"), [(157, False), (2000, False), (4073, True)])
def test_a8_the_hbm_roof_of_mi308x(tmp_path: Path, gbps: float, right: bool) -> None:
    """legacy-rocm-build#5070, rocm-systems#8480: 157 GB/s and 2 TB/s were faults, the read-only kernel gives 4.07."""
    path = rocprof(tmp_path / "r.csv", {"HBMBw": gbps, "MFMABF16Flops": 300e3})
    peaks, refused = over(path, "MI308X")
    assert (refused == [], "memory" in peaks.achievable) == (right, right)


def test_a9_bandwidth_of_an_nps_partition(tmp_path: Path) -> None:
    """rocm-systems#1927, #11243: NPS2 halves what one partition sees."""
    path = rocprof(tmp_path / "roofline.csv", {"HBMBw": 3900, "MFMABF16Flops": 1.0e6})
    (tmp_path / "sysinfo.csv").write_text("gpu_arch,memory_partition\ngfx942,NPS2\n")
    peaks, refused = over(path, "MI300X")
    assert refused == [
        "roofline.csv: line 2, HBMBw: 3.9 TB/s is not of the whole device: measured in NPS2 (sysinfo.csv); not used"
    ]
    assert set(peaks.achievable) == {"matrix.bf16"}


def test_the_architecture_in_sysinfo_must_be_the_runs(tmp_path: Path) -> None:
    path = rocprof(tmp_path / "roofline.csv", MI200)
    (tmp_path / "sysinfo.csv").write_text('sbios,gpu_arch\n"American Megatrends International, LLC",gfx90a\n')
    assert over(path, "MI210")[1] == []
    with pytest.raises(ValueError, match=r"roofline.csv: measured on gfx90a \(sysinfo.csv\), the run was made on gfx942"):
        over(path, "MI300X")


def test_a16_a17_a_thousand_times_too_large_or_small(tmp_path: Path) -> None:
    """torchao's 1.792e15 B/s, and a clock in kHz read as MHz."""
    _, refused = over(rocprof(tmp_path / "r.csv", {"HBMBw": 1.792e6, "MFMABF16Flops": 200e3}), "RTX 5090")
    assert refused == ["r.csv: line 2, HBMBw: 1.792 PB/s is out of the range of any device: a unit error?; not used"]
    _, refused = over(rocprof(tmp_path / "r.csv", {"HBMBw": 1500, "MFMABF16Flops": 20}), "RTX 5090")
    assert "MFMABF16Flops: 20 GFLOP/s is out of the range of any device" in refused[0]


def test_b12_gib_written_as_gb(tmp_path: Path) -> None:
    """torchcomms#142, nvbench#217: a bus run at its limit and multiplied by 1.074 is over the bus, and the line says why."""
    _, refused = over(rocprof(tmp_path / "r.csv", {"HBMBw": 1638.4 * 1.0737, "MFMABF16Flops": 160e3}), "MI210")
    assert "a binary prefix, GiB read as GB?" in refused[0]


def test_b4_a_bandwidth_over_the_l2s_was_measured_in_a_cache(tmp_path: Path) -> None:
    """intellikit#186: 557 GB/s of a 512 GB/s part, out of its Infinity Cache."""
    _, refused = over(rocprof(tmp_path / "r.csv", {"HBMBw": 1600, "L2Bw": 1500, "MFMABF16Flops": 160e3}), "MI210")
    assert "is over the 1.5 TB/s of the L2: measured out of a cache" in refused[0]


def test_a20_a26_a_dtype_without_a_figure_in_the_table_gets_no_roof(tmp_path: Path) -> None:
    peaks, refused = over(rocprof(tmp_path / "r.csv", {"HBMBw": 1388, "MFMAF8Flops": 300e3}), "MI210")
    assert refused == ["r.csv: no figure of mi210 to check matrix.fp8 against; not used"]
    assert peaks.compute_axis("matrix", "fp8") == ("matrix.fp8", None)


def test_several_devices_agree_or_one_is_named(tmp_path: Path) -> None:
    alike = rocprof(tmp_path / "r.csv", MI200, {**MI200, "HBMBw": 1389.3})
    assert over(alike, "MI210")[0].achievable["memory"] == pytest.approx(1389.3e9)  # the larger: each is a lower bound
    mixed = rocprof(tmp_path / "m.csv", MI200, {**MI200, "HBMBw": 1000})
    done = show(mixed, "MI210")
    assert (done.code, done.out) == (2, "")
    assert done.err == "m.csv: HBMBw is 1000 on device 1 and 1388.9 on device 0: name the run's with --peaks-device\n"
    one = json.loads(show(mixed, "MI210", "--peaks-device", 1, "--json").out)
    assert one["achievable"]["hbm_bw_bytes_s"] == pytest.approx(1e12)
    assert "no row of device 7" in show(mixed, "MI210", "--peaks-device", 7).err


#: The rates of AMD's MI300X file (HPCTrainingExamples mi300.json): measured, data-sheet and copied figures side by side.
MAF = {
    "matrix_fp16": 654,
    "matrix_bf16": 708,
    "matrix_fp32": 163,
    "matrix_fp64": 81,
    "matrix_fp8": 1273,
    "matrix_int8": 2600,
    "vector_fp32": 81,
    "vector_fp64": 40,
}


def test_tracelens_maf_is_achievable_and_its_data_sheet_figures_are_not(tmp_path: Path) -> None:
    """A peaks file must not mix achievable (708) with data-sheet (1307.4) peaks: each figure keeps its kind."""
    peaks, refused = over(tracelens(tmp_path / "mi300.json", bandwidth=5300, **MAF), "MI300X")
    assert peaks.achievable == {"matrix.fp16": 654e12, "matrix.bf16": 708e12, "matrix.fp8": 1273e12}
    assert peaks.flops["bf16"] == pytest.approx(1307.4e12)
    why = {line.split(": ")[1].rpartition(".")[2]: line for line in refused}
    for name in ("mem_bw_gbps", "matrix_fp32", "matrix_int8"):
        assert "figure of the data sheet, not a measurement" in why[name]
    assert "is the rated 81.7 TFLOP/s of the vector units" in why["matrix_fp64"]
    for name in ("vector_fp32", "vector_fp64"):  # 2x low: 163.4 and 81.7
        assert "under 0.55" in why[name]


def test_tracelens_scaled_over_the_hardware(tmp_path: Path) -> None:
    """TraceLens' MI325X: MI300X silicon and clock, yet fp32 194 of 163.4 and int8 3094 of 2614.9."""
    path = tracelens(tmp_path / "a.json", "MI325X", matrix_bf16=843, matrix_fp32=194, matrix_int8=3094)
    peaks, refused = over(path, "MI325X")
    assert peaks.achievable == {"matrix.bf16": 843e12}
    assert [line.split(": ")[1].rpartition("_")[2] for line in refused] == ["fp32", "int8"]


def test_a13_a14_another_products_file_is_not_used(tmp_path: Path) -> None:
    """nsys-ai#577: H200 given H100's figures; tritonbench#78: the SXM part given the PCIe card's."""
    done = show(tracelens(tmp_path / "a.json", "MI300X", matrix_bf16=708), "MI325X")
    assert (done.code, done.err) == (2, "a.json: measured on MI300X, the run was made on mi325x\n")
    assert show(tracelens(tmp_path / "a.json", "MI300X", matrix_bf16=708), "gfx950").code == 2


def test_ert_of_a_gpu_is_laid_over_its_product(tmp_path: Path) -> None:
    """NERSC's V100: FMA 7068.86 GFLOP/s in double precision, HBM 828.758 GB/s, L2 2996.77, L1 14336."""
    path = ert(tmp_path / "roofline.json", 7068.86, gpu=True, L1=14336.0, L2=2996.77, DRAM=828.758)
    peaks, refused = over(path, "Tesla V100-SXM2-16GB")
    assert refused == []
    assert peaks.achievable == {"memory": pytest.approx(828.758e9), "vector.fp64": pytest.approx(7068.86e9)}
    labelled = ert(path, 14000, gpu=True, label="FP32 GFLOPs", HBM=828.758)
    assert over(labelled, "v100-sxm2")[0].achievable["vector.fp32"] == pytest.approx(14e12)


def test_a_cpus_ceilings_are_not_a_gpus(tmp_path: Path) -> None:
    done = show(ert(tmp_path / "e.json", 288.33, DRAM=68.76), "MI300X")
    assert (done.code, done.err) == (2, "e.json: ERT measured a CPU, the run was made on mi300x\n")
    done = show(carm(tmp_path / "c.jsonl", carm_memory("DRAM", 14.7)), "MI300X")
    assert (done.code, done.err) == (2, "c.jsonl: carm-roofline measured a CPU, the run was made on mi300x\n")


def test_carm_gives_a_device_that_the_table_lacks_its_only_figures(tmp_path: Path) -> None:
    rows = [carm_flops(value) for value in (92.4, 90.0, 91.0)] + [carm_memory("DRAM", value) for value in (14.7, 14.1, 14.6)]
    rows += [carm_memory("L1", 277.0), carm_flops(45.0, operation="add"), carm_memory("DRAM", 9.0, num_threads=1)]
    rows.append({**carm_flops(1.0), "type": "mixed", "points": []})
    done = show(carm(tmp_path / "benchmarks.jsonl", *rows), "cpu", "--json")
    assert (done.code, done.err) == (0, "")
    peaks = json.loads(done.out)
    assert (peaks["source"], peaks["confidence"]) == ("measured", "high")  # best 14.7, middle 14.6
    assert peaks["hbm_bw_bytes_s"] == pytest.approx(14.6e9)
    assert peaks["vector"] == {"fp64": pytest.approx(91.0e9)}
    assert "carm-roofline (benchmarks.jsonl)" in peaks["note"]


def test_one_round_is_low_and_rounds_that_differ_are(tmp_path: Path) -> None:
    for values in ((14.7,), (14.7, 12.0, 12.1)):
        path = carm(tmp_path / "b.jsonl", *(carm_memory("DRAM", value) for value in values))
        assert json.loads(show(path, "cpu", "--json").out)["confidence"] == "low"


def test_several_machines_in_one_file(tmp_path: Path) -> None:
    path = carm(tmp_path / "b.jsonl", carm_memory("DRAM", 14.7), carm_memory("DRAM", 200.0, machine="server"))
    assert "several machines (box, server): name the run's with --peaks-device" in show(path, "cpu").err
    named = json.loads(show(path, "cpu", "--peaks-device", "server", "--json").out)
    assert named["hbm_bw_bytes_s"] == pytest.approx(200e9)


GEMM = {"op": "gemm", "M": 8192, "N": 8192, "K": 8192, "dtype": "bf16"}
COPY = {"op": "copy", "rows": 65536, "cols": 8192, "dtype": "bf16"}


def test_analyze_shows_percent_of_achievable_beside_percent_of_roof(run: Run, tmp_path: Path) -> None:
    """2 x 8192^3 FLOPs in 2 ms are 549.756 TFLOP/s: 42.05 % of 1307.4, 77.65 % of the 708 that MI300X sustains."""
    run.topn(
        {"name": "gemm", "pct_gpu_time": 60, "base_latency_ms": {"decode": 2.0}},
        {"name": "copy", "pct_gpu_time": 30, "base_latency_ms": {"decode": 0.6}},
    ).env(device_name="AMD Instinct MI300X", model_dtype="bf16").shapes(gemm=[GEMM], copy=[COPY])
    path = tracelens(tmp_path / "maf.json", bandwidth=4200, matrix_bf16=708)
    artifact = run.analyze("--peaks", path)
    assert artifact["peaks"]["source"] == "table"
    assert artifact["peaks"]["achievable"]["flops"] == {"bf16": 708e12}
    assert entry(artifact, "gemm")["roofline_pct"] == pytest.approx(2 * 8192**3 / 2e-3 / 1307.4e12)
    report = (run.round / "profile_roofline.md").read_text(encoding="utf-8")
    assert "measured ceiling: 77.6 % of the 708 TFLOP/s achievable, 42.0 % of the roof" in report
    moved = 2 * 65536 * 8192 * 2 / 0.6e-3
    assert f"measured ceiling: {100 * moved / 4.2e12:.1f} % of the 4.2 TB/s achievable" in report
    assert run_tool("validate", run.round / "profile_roofline.json").code == 0


def test_analyze_names_unused_ceilings_and_continues(run: Run, tmp_path: Path) -> None:
    run.topn({"name": "gemm", "pct_gpu_time": 60, "base_latency_ms": {"decode": 2.0}}).shapes(gemm=[GEMM])
    run.env(device_name="AMD Instinct MI300X", model_dtype="bf16")
    plain = run.analyze()
    for path in (
        rocprof(tmp_path / "low.csv", {"MFMABF16Flops": 516.6e3}),
        tracelens(tmp_path / "other.json", "MI325X", matrix_bf16=843),
        carm(tmp_path / "cpu.jsonl", carm_memory("DRAM", 20.0)),
    ):
        artifact = run.analyze("--peaks", path)
        assert artifact["entries"] == plain["entries"]
        assert artifact["peaks"] == plain["peaks"]
        (line,) = artifact["skill_errors"]
        assert line.startswith(f"L1: peaks: {path.name}: ")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"max_achievable_tflops": {"matrix_fp16": "fast"}}', "f: max_achievable_tflops.matrix_fp16 is 'fast'"),
        ('{"max_achievable_tflops": {"matrix_fp16": NaN}}', "expected a finite number"),
        ('{"max_achievable_tflops": {"matrix_fp16": -1}}', "expected more than 0"),
        ('{"max_achievable_tflops": {"tensor_fp16": 1}}', "expected matrix_ or vector_ and a dtype"),
        ('{"max_achievable_tflops": {"matrix_fp17": 1}}', "f: max_achievable_tflops.matrix_fp17: unknown dtype"),
        ('{"max_achievable_tflops": [1]}', "is list, expected an object"),
        ('{"max_achievable_tflops": {}}', "f: no measured figure"),
        (
            '{"empirical": {"gbytes": {"data": [["DRAM"]]}}}',
            "f: empirical.gbytes.data[0]: expected a name and a figure in GB/s",
        ),
        ('{"empirical": {"gflops": {"data": [["MIPS", 1]]}}}', "f: empirical.gflops.data[0]: unknown dtype"),
        ('{"empirical": {}}', "no measured figure"),
        ('{"gpu": "MI300X"}', "f: unknown JSON"),
        ("[1, 2]", "f: unknown JSON"),
        ("{", "f: not JSON"),
        ("[" * 200_000, "f: nested more than 100 levels deep"),
        ('{"type": "memory", "isa": "x", "cache_level": "DRAM"}', "f: line 1, bandwidth_gbps is None, expected a number"),
        ('{"type": "memory", "isa": "x"}\nnope', "f: line 2: not JSON"),
        ('{"type": "memory", "isa": "x"}\n[]', "f: line 2: expected an object"),
        ('{"type": "arithmetic", "isa": "x", "data_type": "f17"}', "f: line 1: unknown dtype"),
        ("device,HBMBw\n", "f: no row"),
        ("device,HBMBw\n0\n", "f: line 2, HBMBw: the row ends before it"),
        ("device,HBMBw\n0,fast\n", "f: line 2, HBMBw is 'fast', expected a number"),
        ("device,HBMBw\n0,-1\n", "f: line 2, HBMBw is '-1', expected more than 0"),
        ("device,HBMBw\n0,0\n", "f: no measured figure"),
        ("device,HBMBw,L2Bw\n0,0,5000\n", "f: only caches were measured"),
        ("device,HBMBw,HBMBw\x1b[31mFlops\n0,1e5,1\n", "out of the range"),
        ("device,HBMBw\n0," + "9" * 5000 + "\n", "HBMBw"),
        ("", "no fenced block starts with 'product:'"),
    ],
)
def test_broken_files_are_refused_in_one_line(tmp_path: Path, run: Run, text: str, says: str) -> None:
    path = tmp_path / "f"
    path.write_text(text, encoding="utf-8")
    done = show(path, "MI300X")
    assert done.code == 2, done.out
    assert says in done.err
    assert "\x1b" not in done.err
    assert len(done.err.splitlines()) == 1
    run.topn({"name": "k", "pct_gpu_time": 60}).env(device_name="MI300X")
    assert run.analyze("--peaks", path)["peaks"]["gfx"] in ("gfx942", None)


def test_no_other_table_stands_in_for_one_that_cannot_be_read(tmp_path: Path, run: Run) -> None:
    run.topn({"name": "k", "pct_gpu_time": 60}).env(device_name="MI300X")
    path = tmp_path / "peaks.md"
    path.write_text("no table", encoding="utf-8")
    artifact = run.analyze("--peaks", path)
    assert artifact["peaks"]["hbm_bw_bytes_s"] is None
    assert artifact["skill_errors"][0].endswith("no fenced block starts with 'product:'")
    path.write_text('{"max_achievable_tflops": {"matrix_fp16": -1}}', encoding="utf-8")  # ceilings, which lie over a table
    artifact = run.analyze("--peaks", path)
    assert artifact["peaks"]["product"] == "mi300x"
    assert "matrix_fp16" in artifact["skill_errors"][0]


def test_every_figure_is_linear_in_the_unit_it_is_written_in(tmp_path: Path) -> None:
    """GB/s and TFLOP/s of TraceLens, GB/s and GFLOP/s of the others: the same ceilings from each file."""
    files = [
        tracelens(tmp_path / "t.json", "H200", bandwidth=4200, vector_fp64=30),
        ert(tmp_path / "e.json", 30e3, gpu=True, DRAM=4200),
    ]
    csv_file = tmp_path / "r.csv"
    csv_file.write_text("device,HBMBw,FP64Flops\n0,4200,30000\n")
    for path in (*files, csv_file):
        achievable = over(path, "NVIDIA H200")[0].achievable
        assert achievable == {"memory": pytest.approx(4.2e12), "vector.fp64": pytest.approx(30e12)}, path
