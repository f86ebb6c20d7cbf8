"""Top-N lists in the CSV formats of profilers, through ``analyze``."""

from __future__ import annotations

from typing import Any

import pytest

from support.profiles import GEMM, MI300X, Run, entry, gemm_row
from support.tool import run_tool

STATS = '"Name","Calls","TotalDurationNs","AverageNs","Percentage","MinNs","MaxNs","StdDev"\n'
NSYS = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"


def analyzed(run: Run, text: str, name: str = "kernel_stats.csv") -> dict[str, Any]:
    (run.round / name).write_text(text, encoding="utf-8")
    return run.env(**MI300X).analyze("--head-pct", "0", "--head-max", "0")


def test_rocprofv3_kernel_stats_are_read(run: Run) -> None:
    text = STATS + '"void f<float, 4>(float*, int)",1000,545275480,545275.480000,43.03,1,2,8821.4\n'
    text += '"__amd_rocclr_fillBufferAligned",1,5920,5920.000000,4.671e-04,5920,5920,0.00000000e+00\n'
    artifact = analyzed(run, text)
    first = entry(artifact, "void f<float, 4>(float*, int)")
    assert (first["short_name"], first["pct_gpu_time"], first["t_ms"]) == ("f", 43.03, pytest.approx(0.54527548))
    assert entry(artifact, "__amd_rocclr_fillBufferAligned")["pct_gpu_time"] == 4.671e-04
    assert not any("L5" in line for line in artifact["skill_errors"])


def test_a_truncated_list_is_not_renormalized(run: Run) -> None:
    artifact = analyzed(run, STATS + '"a",10,8380,838,8.38,1,2,0\n"b",10,6460,646,6.46,1,2,0\n')
    assert [item["pct_gpu_time"] for item in artifact["entries"]] == [8.38, 6.46]


def test_nsys_preamble_templates_and_memory_rows(run: Run) -> None:
    text = "Generating SQLite file a.sqlite\nProcessing [a.sqlite]...\n" + NSYS
    text += '50.0,500004,344,1453.5,1.0,1,2,0.1,"void moe_kernel<(unsigned int)512, (bool)1>(float *)"\n'
    text += "25.0,250,344,1.0,1.0,1,2,0.1,[CUDA memcpy Host-to-Device]\n"
    artifact = analyzed(run, text, "report_cuda_gpu_kern_sum.csv")
    (only,) = artifact["entries"]
    assert only["name"] == "void moe_kernel<(unsigned int)512, (bool)1>(float *)"
    assert (only["pct_gpu_time"], only["t_ms"]) == (50.0, pytest.approx(1453.5e-6))
    assert "its minimum and maximum, which do not contain it, are not used" in only["notes"]
    assert artifact["copies"] == [{"name": "[CUDA memcpy Host-to-Device]", "pct_gpu_time": 25.0}]


def test_g7_nsys_times_in_other_units_and_older_titles(run: Run) -> None:
    text = "Time(%),Total Time (us),Instances,Average (us),Minimum (us),Maximum (us),GridXYZ,Name\n"
    (only,) = analyzed(run, text + "60.5,500,10,50.0,1,2,1 1 1,kern\n", "gpukernsum.csv")["entries"]
    assert (only["pct_gpu_time"], only["t_ms"]) == (60.5, pytest.approx(0.05))


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ('"HIP_API",13,458514859,35270373.7,100.00,2300,352276613,9.9\n', "domains of API or copy time"),
        ('"hipMalloc",4,26249,6562.5,85.1,3,2,1\n"__hipRegisterFatBinary",1,9,9,2.9e-03,9,9,0\n', "API calls of the host"),
        ('"MEMORY_COPY_HOST_TO_DEVICE",4,26249,6562.5,100,3,2,1\n', "copies, not kernels"),
        ("", "it lists no kernel"),
    ],
)
def test_g9_lists_that_share_the_header_are_refused(run: Run, rows: str, why: str) -> None:
    artifact = analyzed(run, STATS + rows)
    assert artifact["entries"] == []
    (line,) = [line for line in artifact["skill_errors"] if line.startswith("L5")]
    assert line.startswith("L5: kernel_stats.csv: ")
    assert why in line


def test_g6_a_waiting_collective_has_no_headroom(run: Run) -> None:
    text = STATS + '"rccl_main_kernel(ncclDevComm*, unsigned long)",142,916515855,6454337.0,82.74,7210,382428559,3.2e7\n'
    (only,) = analyzed(run, text)["entries"]
    assert (only["headroom_class"], only["unknown_reason"], only["attainable_speedup"]) == ("unknown", "unmodelled", None)


def test_a_bad_row_loses_only_itself(run: Run) -> None:
    text = STATS + '"a",10,8380,838,many,1,2,0\n"b",10,6460,646,6.46,1,2,0\n"c",10\n'
    artifact = analyzed(run, text)
    assert [item["name"] for item in artifact["entries"]] == ["b"]
    errors = "\n".join(artifact["skill_errors"])
    assert "line 2 (a): Percentage is 'many', expected a number" in errors
    assert "line 4 has 2 cells, expected 8" in errors


def test_without_shares_they_come_from_the_times(run: Run) -> None:
    artifact = analyzed(run, "Name,Calls,TotalDurationNs\na,3,300\nb,1,100\n")
    assert [(item["pct_gpu_time"], item["t_ms"]) for item in artifact["entries"]] == [
        (75.0, pytest.approx(1e-4)),
        (25.0, pytest.approx(1e-4)),
    ]
    assert "of the sum of the listed rows" in artifact["entries"][0]["notes"]


def test_two_lists_in_a_folder_are_refused(run: Run) -> None:
    for name in ("a_kernel_stats.csv", "b_kernel_stats.csv"):
        (run.round / name).write_text(STATS + '"a",10,8380,838,8.38,1,2,0\n')
    done = run_tool("analyze", run.round)
    assert done.code == 2
    assert "expected one Top-N list in it, found a_kernel_stats.csv, b_kernel_stats.csv: name one" in done.err
    assert run_tool("analyze", run.round / "a_kernel_stats.csv").code == 0


def test_profile_top_n_json_wins_over_a_csv_beside_it(run: Run) -> None:
    (run.round / "kernel_stats.csv").write_text(STATS + '"other",10,8380,838,8.38,1,2,0\n')
    artifact = run.topn({"name": "mine", "pct_gpu_time": 50, "base_latency_ms": 1}).env(**MI300X).analyze()
    assert [item["name"] for item in artifact["entries"]] == ["mine"]


def test_the_list_is_not_read_as_counters(run: Run) -> None:
    artifact = analyzed(run, STATS + '"a",10,8380,838,8.38,1,2,0\n', "counters_kernel_stats.csv")
    assert not any("L4" in line["reason"] for line in artifact["degraded"])


def test_columns_that_contradict_each_other_give_no_time(run: Run) -> None:
    artifact = analyzed(run, STATS + '"copy_kernel",100,60000000,250000,60.0,1,2,0\n')
    assert artifact["entries"][0]["t_ms"] is None
    assert any("0.25 ms on average, but 0.6 ms by total and calls" in line for line in artifact["skill_errors"])


@pytest.mark.parametrize(("shares", "said"), [((0.6, 0.2), "are they fractions?"), ((90, 70), "add up to 160.0 %")])
def test_shares_that_do_not_add_up_are_reported(run: Run, shares: tuple[float, float], said: str) -> None:
    artifact = analyzed(run, STATS + "".join(f'"{name}",10,8380,838,{pct},1,2,0\n' for name, pct in zip("ab", shares)))
    assert any(said in line for line in artifact["skill_errors"])


def test_a_row_without_a_name_is_reported(run: Run) -> None:
    artifact = analyzed(run, STATS + '"",10,8380,838,60,1,2,0\n"b",10,8380,838,20,1,2,0\n')
    assert [item["name"] for item in artifact["entries"]] == ["b"]
    assert any("has no name: left out" in line for line in artifact["skill_errors"])


@pytest.mark.parametrize(
    ("row", "t_ms", "basis"),
    [
        # Nine launches of 100 us and one of 9.1 ms: the mean of 1 ms is the time of none of them.
        ("10,10000000,1000000.0,50.0,100000,9100000,2700000", 0.1, "mean without the longest one, which took 9100 us,"),
        ("10,1000000,100000.0,50.0,98000,103000,1500", 0.1, "mean of 10 launches"),
        # Half of the launches are ten times as long: no one launch made this mean.
        ("10,5500000,550000.0,50.0,100000,4000000,900000", 0.1, "minimum (since the mean 550 us has a maximum of 4000 us)"),
    ],
)
def test_the_spread_of_the_launches_decides_what_one_takes(run: Run, row: str, t_ms: float, basis: str) -> None:
    (only,) = analyzed(run, STATS + f'"gemm_kernel",{row}\n')["entries"]
    assert only["t_ms"] == pytest.approx(t_ms)
    assert f"t_ms is the {basis}" in only["notes"]


def test_the_median_of_nsys_is_the_time_of_a_launch(run: Run) -> None:
    text = "Time (%),Total Time (us),Instances,Avg (us),Med (us),Min (us),Max (us),StdDev (us),Name\n"
    (only,) = analyzed(run, text + "60.5,10000,10,1000.0,100.0,98.0,9100.0,2700,kern\n", "a_cuda_gpu_kern_sum.csv")["entries"]
    assert only["t_ms"] == pytest.approx(0.1)
    assert "launches that took longer are in pct_gpu_time: 10% of it is of launches of this time" in only["notes"]


def test_a_mean_that_its_spread_contradicts_gives_no_verdict(run: Run) -> None:
    """A standard deviation of 2.7 means, and neither median nor minimum: the time of a launch is unknown."""
    rows = [gemm_row(base_latency_ms=None, calls=10, avg_us=100.0, t_us_std=270.0)]
    only = run.topn(*rows).shapes(gemm_kernel=[GEMM]).env(**MI300X).analyze()["entries"][0]
    assert (only["headroom_class"], only["unknown_reason"], only["rankable"]) == ("unknown", "noisy", False)
    assert "100 us has a standard deviation of 270 us and the file has no median or minimum" in only["notes"]
    steady = [gemm_row(base_latency_ms=None, calls=10, avg_us=100.0, t_us_std=3.0)]
    only = run.topn(*steady).analyze()["entries"][0]
    assert only["unknown_reason"] is None


def test_a_median_in_a_top_n_replaces_the_mean(run: Run) -> None:
    rows = [gemm_row(base_latency_ms=None, calls=10, avg_us=1000.0, t_us_median=100.0, t_us_min=99.0, t_us_max=9100.0)]
    only = run.topn(*rows).shapes(gemm_kernel=[GEMM]).env(**MI300X).analyze()["entries"][0]
    assert only["t_ms"] == pytest.approx(0.1)


def test_shapes_that_cover_all_launches_explain_the_spread(run: Run) -> None:
    rows = [gemm_row(base_latency_ms=None, calls=10, avg_us=100.0, t_us_std=270.0)]
    cases = [{**GEMM, "calls": 5}, {**GEMM, "M": 32, "calls": 5}]
    only = run.topn(*rows).shapes(gemm_kernel=cases).env(**MI300X).analyze()["entries"][0]
    assert only["t_ms"] == pytest.approx(0.1)
    assert only["unknown_reason"] != "noisy"
