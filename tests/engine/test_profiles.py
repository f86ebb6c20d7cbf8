"""Profiles of rocprof, nsys, ncu, TraceLens and torch's tables: what each gives, alone or in a folder, and hostile ones.

The columns are those of the tools' own documentation; the figures are made here, and each right value is worked out beside it.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from roofline_engine.profiles import find_reader
from roofline_engine.profiles.form import Profile
from roofline_engine.profiles.timeline import COMMUNICATION, COMPUTE, merge_intervals
from support.tool import run_tool
from support.traces import TraceBuilder

KERNEL_TRACE_2024 = (
    '"Kind","Agent_Id","Queue_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name","Correlation_Id","Start_Timestamp",'
    '"End_Timestamp","Private_Segment_Size","Group_Segment_Size","Workgroup_Size_X","Workgroup_Size_Y","Workgroup_Size_Z",'
    '"Grid_Size_X","Grid_Size_Y","Grid_Size_Z"\n'
)
AGENTS = (
    '"Node_Id","Agent_Type","Cu_Count","Gfx_Target_Version","Name","Vendor_Name","Product_Name","Model_Name"\n'
    '0,"CPU",128,0,"AMD EPYC","CPU","AMD EPYC",""\n'
    '1,"GPU",304,90402,"gfx942","AMD","AMD Instinct MI300X","ip discovery"\n'
)
STATS = (
    '"Name","Calls","TotalDurationNs","AverageNs","Percentage","MinNs","MaxNs","StdDev"\n'
    '"gemm_kernel",10,1000000,100000.0,100.0,90000,110000,5000.0\n'
)


def read(path: Path) -> Profile:
    reader = find_reader(str(path))
    assert reader is not None
    return reader.read(str(path))


def refused(path: Path) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is what the test is about
        read(path)
    assert str(caught.value).startswith(path.name)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def analyze(path: Path, *options: object) -> dict[str, Any]:
    done = run_tool("analyze", path, "--json", "--head-pct", 0, "--out", path.parent / "artifact", *options)
    assert done.code == 0, done.err
    assert "Traceback" not in done.err
    document = json.loads(done.out)
    assert isinstance(document, dict)
    return document


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def dispatch(number: int, name: str, start: int, end: int, queue: int = 1, agent: str = "1") -> str:
    """Return a row of KERNEL_TRACE_2024: 4 blocks of 256 work-items."""
    return f'"KERNEL_DISPATCH",{agent},{queue},7,{number},3,"{name}",9,{start},{end},0,0,256,1,1,1024,1,1\n'


# Times of launches.


def test_a_kernel_trace_gives_times_grids_and_idle_time(tmp_path: Path) -> None:
    """Launches of 10, 20 and 60 us; the second overlaps the first by 5 us, and 15 us pass before the third."""
    rows = [(1, 0, 10_000), (2, 5_000, 25_000), (3, 40_000, 100_000)]
    text = KERNEL_TRACE_2024 + "".join(dispatch(number, "gemm<a, b>", start, end) for number, start, end in rows)
    profile = read(write(tmp_path / "7_kernel_trace.csv", text))
    (unit,) = profile.units
    assert unit.name == "gemm<a, b>"
    assert (unit.times.calls, unit.times.total_us, unit.times.median_us) == (3, 90.0, 20.0)
    assert (unit.times.min_us, unit.times.max_us) == (10.0, 60.0)
    assert (unit.kernels[0].grid, unit.kernels[0].block) == ((4, 1, 1), (256, 1, 1))
    (timeline,) = profile.timelines
    assert (timeline.span_us, timeline.busy_us, timeline.idle_us) == (100.0, 85.0, 15.0)


def test_timestamps_of_an_epoch_keep_their_nanoseconds(tmp_path: Path) -> None:
    """1.7e18 ns as doubles are 256 ns apart."""
    text = KERNEL_TRACE_2024 + dispatch(1, "a", 1_700_000_000_000_000_001, 1_700_000_000_000_000_102)
    assert read(write(tmp_path / "kernel_trace.csv", text)).units[0].times.total_us == pytest.approx(0.101, abs=1e-12)


def test_rows_that_are_no_launches_are_counted_and_left_out(tmp_path: Path) -> None:
    good, negative = dispatch(1, "a", 0, 10_000), dispatch(2, "a", 50_000, 40_000)
    nan, coarse = (
        dispatch(3, "a", 0, 1).replace(",0,1,", ",nan,1,"),
        dispatch(4, "a", 0, 1).replace(",0,1,", ",8.1E+14,8.1E+14,"),
    )
    profile = read(write(tmp_path / "kernel_trace.csv", KERNEL_TRACE_2024 + good * 2 + negative + nan + coarse))
    assert profile.units[0].times.calls == 1
    assert len(profile.problems) == 4


def test_two_queues_may_run_the_same_interval(tmp_path: Path) -> None:
    text = KERNEL_TRACE_2024 + dispatch(1, "a", 0, 10_000) + dispatch(1, "a", 0, 10_000, queue=2)
    assert read(write(tmp_path / "kernel_trace.csv", text)).units[0].times.calls == 2


def test_nsys_trace_after_remarks_of_the_tool(tmp_path: Path) -> None:
    """A kernel of 30 us, then a copy from the host of 20 us, which is no kernel."""
    head = "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Bytes (MB),Device,Ctx,Strm,Name\n"
    rows = '0,30000,1,132,1,1,128,1,1,,NVIDIA H100 80GB HBM3 (0),1,7,"void gemm<float, 4>(float*)"\n'
    rows += "30000,20000,2,,,,,,,1.5,NVIDIA H100 80GB HBM3 (0),1,7,[CUDA memcpy Host-to-Device]\n"
    profile = read(
        write(tmp_path / "cuda_gpu_trace.csv", "Generating SQLite file a.sqlite\nProcessing [a.sqlite]...\n" + head + rows)
    )
    assert [(unit.name, unit.times.total_us) for unit in profile.units] == [("void gemm<float, 4>(float*)", 30.0)]
    assert profile.device.device_name == "NVIDIA H100 80GB HBM3"
    assert profile.timelines[0].exposed_copy_us == 20.0


def test_results_json_of_rocprofv3(tmp_path: Path) -> None:
    """Two launches of 4 and 6 us on a named device."""
    agent = {
        "id": {"handle": 5},
        "type": 2,
        "name": "gfx942",
        "product_name": "AMD Instinct MI300X",
        "cu_count": 304,
        "node_id": 1,
    }
    sizes = {"workgroup_size": {"x": 64, "y": 1, "z": 1}, "grid_size": {"x": 128, "y": 2, "z": 1}}
    records = [
        {
            "start_timestamp": start,
            "end_timestamp": end,
            "dispatch_info": {"agent_id": {"handle": 5}, "queue_id": {"handle": 1}, "kernel_id": 8, "dispatch_id": at, **sizes},
        }
        for at, (start, end) in enumerate([(0, 4000), (4000, 10_000)])
    ]
    symbols = [{"kernel_id": 8, "formatted_kernel_name": "add.kd"}]
    tool = {"agents": [agent], "kernel_symbols": symbols, "buffer_records": {"kernel_dispatch": records}}
    profile = read(write(tmp_path / "1_results.json", json.dumps({"rocprofiler-sdk-tool": [tool]})))
    assert (profile.units[0].name, profile.units[0].times.total_us, profile.units[0].kernels[0].grid) == (
        "add",
        10.0,
        (2, 2, 1),
    )
    assert profile.device.device_name == "AMD Instinct MI300X"


def test_rocprof_of_the_first_generation(tmp_path: Path) -> None:
    """CSV, the JSON beside it, whose numbers are text, and SQLite: two launches of 16 and 20 us in each."""
    text = '"Index","KernelName","gpu-id","queue-id","grd","wgr","BeginNs","EndNs","DurationNs"\n'
    text += '0,"copy.kd",2,0,1024,256,100,16100,16000\n1,"copy.kd",2,0,1024,256,20000,40000,20000\n'
    event = '{"ph":"X","pid":"6","tid":"0","name":"copy","ts":"0","dur":"16","args":'
    event += '{"BeginNs":"%d","EndNs":"%d","dev-id":"2","queue-id":"%d","Name":"copy"}}'
    trace = '{ "traceEvents":[{}\n,{"args":{"name":"0 CPU HIP API"},"ph":"M","pid":2,"name":"process_name"}\n,'
    trace += event % (100, 16100, 0) + "\n," + event % (20000, 40000, 1) + "\n]}"
    base = sqlite3.connect(tmp_path / "results.db")
    base.execute('CREATE TABLE OPS ("BeginNs", "EndNs", "dev-id", "queue-id", "Name", "pid", "tid")')
    base.executemany("INSERT INTO OPS VALUES (?, ?, 2, 0, 'copy', 1, 1)", [("100", "16100"), ("20000", "40000")])
    base.commit()
    base.close()
    kernels = trace.replace("dev-id", "gpu-id").replace('"Name"', '"KernelName"')
    files = [
        write(tmp_path / "kernels.json", kernels),
        write(tmp_path / "results.csv", text),
        write(tmp_path / "results.json", trace),
        tmp_path / "results.db",
    ]
    for path in files:
        times = read(path).units[0].times
        assert (times.calls, times.total_us, times.median_us, times.max_us) == (2, 36.0, 18.0, 20.0), path.name


# Databases.


def write_rocpd(path: Path, rows: list[tuple[Any, ...]], *, with_timestamps: bool = False) -> Path:
    """Write a rocpd database with dispatches (kernel, agent, start, end) of kernels 1 and 2, which share a name."""
    base = sqlite3.connect(path)
    u = "_00ab"
    base.execute(f"CREATE TABLE rocpd_info_kernel_symbol{u} (id INTEGER PRIMARY KEY, kernel_name TEXT, display_name TEXT)")
    base.executemany(f"INSERT INTO rocpd_info_kernel_symbol{u} VALUES (?, ?, ?)", [(1, "g.kd", "gemm"), (2, "g.kd", "gemm")])
    base.execute(
        f"CREATE TABLE rocpd_info_agent{u} (id INTEGER PRIMARY KEY, type TEXT, name TEXT, product_name TEXT, extdata TEXT)"
    )
    base.execute(f"INSERT INTO rocpd_info_agent{u} VALUES (1, 'CPU', 'EPYC', 'EPYC', '{{}}')")
    base.execute(f"INSERT INTO rocpd_info_agent{u} VALUES (2, 'GPU', 'gfx942', 'AMD Instinct MI300X', '{{\"cu_count\": 304}}')")
    sizes = "workgroup_size_x, workgroup_size_y, workgroup_size_z, grid_size_x, grid_size_y, grid_size_z"
    if with_timestamps:
        base.execute(f"CREATE TABLE rocpd_timestamp{u} (id INTEGER PRIMARY KEY, value BIGINT)")
        base.execute(f"CREATE TABLE rocpd_track{u} (id INTEGER PRIMARY KEY, agent_id INTEGER)")
        base.execute(f"CREATE TABLE rocpd_kernel_dispatch{u} (track_id, kernel_id, start_id, end_id, {sizes})")
        for at, (kernel, agent, start, end) in enumerate(rows):
            base.executemany(f"INSERT INTO rocpd_timestamp{u} VALUES (?, ?)", [(2 * at, start), (2 * at + 1, end)])
            base.execute(f"INSERT INTO rocpd_track{u} VALUES (?, ?)", (at, agent))
            values = (at, kernel, 2 * at, 2 * at + 1)
            base.execute(f"INSERT INTO rocpd_kernel_dispatch{u} VALUES (?, ?, ?, ?, 64, 1, 1, 640, 1, 1)", values)
    else:
        base.execute(f'CREATE TABLE rocpd_kernel_dispatch{u} (kernel_id, agent_id, "start", "end", {sizes})')
        base.executemany(f"INSERT INTO rocpd_kernel_dispatch{u} VALUES (?, ?, ?, ?, 64, 1, 1, 640, 1, 1)", rows)
    base.commit()
    base.close()
    return path


@pytest.mark.parametrize("with_timestamps", [False, True])
def test_rocpd(tmp_path: Path, with_timestamps: bool) -> None:
    """Launches of 10, 20, 20 and 30 us under two numbers of one name; one ends before it starts."""
    rows = [(1, 2, 0, 10_000), (2, 2, 10_000, 30_000), (1, 2, 30_000, 50_000), (2, 2, 60_000, 90_000), (1, 2, 9_000, 5)]
    profile = read(write_rocpd(tmp_path / "run_results.db", rows, with_timestamps=with_timestamps))
    (unit,) = profile.units
    times = unit.times
    assert (times.calls, times.total_us, times.median_us, times.min_us, times.max_us) == (4, 80.0, 20.0, 10.0, 30.0)
    assert times.std_us == pytest.approx((200 / 4) ** 0.5)  # deviations -10, 0, 0 and 10 of the mean 20
    assert (unit.name, unit.kernels[0].grid) == ("gemm", (10, 1, 1))
    assert (profile.device.device_name, profile.device.cu_count) == ("AMD Instinct MI300X", 304)
    assert (profile.timelines[0].span_us, profile.timelines[0].busy_us) == (90.0, 80.0)
    assert profile.problems == ("run_results.db: 1 of 5 kernels have no usable times: left out",)


def test_counters_of_a_rocpd_database(tmp_path: Path) -> None:
    """Two launches of 80 us, each with 131,072 KiB read and as much written, counted in two halves: 3.36 TB/s of 5.3."""
    path = write_rocpd(tmp_path / "run_results.db", [(1, 2, 0, 80_000), (1, 2, 100_000, 180_000)])
    base = sqlite3.connect(path)
    base.execute("ALTER TABLE rocpd_kernel_dispatch_00ab ADD COLUMN event_id INTEGER")
    base.execute("UPDATE rocpd_kernel_dispatch_00ab SET event_id = rowid + 100")
    base.execute("UPDATE rocpd_info_kernel_symbol_00ab SET display_name = 'copy_kernel'")
    base.execute("CREATE TABLE rocpd_info_pmc_00ab (id INTEGER PRIMARY KEY, name TEXT, symbol TEXT)")
    base.execute("INSERT INTO rocpd_info_pmc_00ab VALUES (1, 'FETCH_SIZE', 'FETCH_SIZE'), (2, 'WRITE_SIZE', 'WRITE_SIZE')")
    base.execute("CREATE TABLE rocpd_pmc_event_00ab (event_id INTEGER, pmc_id INTEGER, value REAL)")
    halves = [(event, counter, 65_536) for event in (101, 102) for counter in (1, 2) for _ in range(2)]
    base.executemany("INSERT INTO rocpd_pmc_event_00ab VALUES (?, ?, ?)", halves)
    base.commit()
    base.close()
    (entry,) = analyze(path)["entries"]
    assert (entry["stage"], entry["headroom_class"], entry["bytes_est"]) == ("C", "moderate", 2 * 131_072 * 1024)
    assert entry["roofline_pct"] == pytest.approx(2 * 131_072 * 1024 / 80e-6 / 5.3e12, rel=1e-3)
    assert run_tool("counters", "show", path).out.startswith("run_results.db: rocpd counters, gfx942, 1 kernels")


def write_nsys(path: Path, *kernels: tuple[int, int, str], extra: str = "") -> Path:
    base = sqlite3.connect(path)
    base.executescript(
        "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);"
        "CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, smCount INTEGER, totalMemory INTEGER);"
        "INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H100 80GB HBM3', 132, 85899345920);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, demangledName INTEGER,"
        " shortName INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, copyKind INTEGER);" + extra
    )
    for number, (start, end, name) in enumerate(kernels):
        base.execute("INSERT INTO StringIds VALUES (?, ?)", (number, name))
        base.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, ?, ?, 132, 1, 1, 128, 1, 1)", (start, end, number, number)
        )
    base.commit()
    base.close()
    return path


def test_nsys_export_knows_its_device_and_what_hides_under_what(tmp_path: Path) -> None:
    """A kernel from 0 to 10 us, NCCL from 5 to 20 us, and a copy from 20 to 25 us."""
    copy = "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (20000, 25000, 0, 1);"
    kernels = [(0, 10_000, "gemm(float*)"), (5_000, 20_000, "ncclDevKernel_AllReduce_Sum_bf16")]
    profile = read(write_nsys(tmp_path / "report.sqlite", *kernels, extra=copy))
    assert profile.device.device_name == "NVIDIA H100 80GB HBM3"
    (timeline,) = profile.timelines
    assert (timeline.compute_us, timeline.exposed_communication_us, timeline.exposed_copy_us) == (10.0, 10.0, 5.0)
    report = analyze(tmp_path / "report.sqlite", "--shapes", shapes(tmp_path, "gemm(float*)"))
    entry = next(entry for entry in report["entries"] if entry["op"] == "gemm")
    assert (report["peaks"]["product"], entry["stage"], entry["modeled"]) == ("h100-sxm", "B", True)


def shapes(folder: Path, name: str) -> Path:
    case = {"op": "gemm", "M": 64, "N": 2048, "K": 2048, "dtype": "bf16"}
    return write(folder / "cases.json", json.dumps({name: [case]}))


def test_nvtx_ranges_tell_prefill_from_decode(tmp_path: Path) -> None:
    """One kernel in three launches: in a range of prefill, in decode inside of a longer range, and outside of both.

    A second process has launches with the same numbers, and no range.
    """
    first, second = 7 << 24, 8 << 24
    extra = (
        "DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL; CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER,"
        " deviceId INTEGER, globalPid INTEGER, correlationId INTEGER, demangledName INTEGER);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, globalTid INTEGER, correlationId INTEGER);"
        "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, text TEXT, textId INTEGER, globalTid INTEGER);"
        "INSERT INTO StringIds VALUES (0, 'gemm'), (1, 'decode step');"
        f"INSERT INTO NVTX_EVENTS VALUES (0, 100, 'prefill step', NULL, {first + 1}), (200, 900, 'serving', NULL, {first + 1}),"
        f" (300, 400, NULL, 1, {first + 1}), (0, NULL, 'prefill', NULL, {second + 1});"
    )
    for number, (launched, start, length) in enumerate([(50, 1000, 10_000), (350, 20_000, 20_000), (850, 50_000, 30_000)]):
        extra += f"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({launched}, {first + 1}, {number});"
        extra += f"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({launched}, {second + 1}, {number});"
        extra += f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({start}, {start + length}, 0, {first}, {number}, 0);"
    extra += f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (0, 40000, 1, {second}, 0, 0);"
    profile = read(write_nsys(tmp_path / "report.sqlite", extra=extra))
    assert {unit.regime: (unit.times.calls, unit.times.total_us) for unit in profile.units} == {
        "prefill": (1, 10.0),
        "decode": (1, 20.0),
        None: (2, 70.0),
    }


def test_a_database_is_never_written_beside_or_waited_for(tmp_path: Path) -> None:
    """Another program holds a lock and has rows in its write-ahead log: those are named, and no file is made."""
    path = write_nsys(tmp_path / "report.sqlite", (0, 10_000, "a"))
    writer = sqlite3.connect(path)
    writer.execute("PRAGMA journal_mode=WAL")
    writer.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (0, 99, 0, 0, 0, 1, 1, 1, 1, 1, 1)")
    writer.commit()
    writer.execute("BEGIN EXCLUSIVE")
    before = sorted(item.name for item in tmp_path.iterdir())
    profile = read(path)
    assert sorted(item.name for item in tmp_path.iterdir()) == before
    assert profile.units[0].times.calls == 1
    assert "report.sqlite-wal" in profile.problems[0]
    writer.close()


def test_a_view_of_a_database_is_not_run(tmp_path: Path) -> None:
    """The name of the table stands for a query without an end."""
    base = sqlite3.connect(tmp_path / "evil.db")
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
    base.execute(f"CREATE VIEW rocpd_kernel_dispatch AS {endless}")
    base.execute(f"CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS {endless}")
    base.commit()
    base.close()
    assert "no table of kernels" in refused(tmp_path / "evil.db")


def test_databases_that_are_no_profiles(tmp_path: Path) -> None:
    base = sqlite3.connect(tmp_path / "other.db")
    base.execute("CREATE TABLE users (name TEXT)")
    base.commit()
    base.close()
    assert "expected rocpd, an export of nsys" in refused(tmp_path / "other.db")
    write_nsys(tmp_path / "empty.sqlite")
    assert "no kernel" in refused(tmp_path / "empty.sqlite")
    whole = write_nsys(tmp_path / "whole.sqlite", (0, 1, "a")).read_bytes()
    (tmp_path / "cut.sqlite").write_bytes(whole[: len(whole) // 2])
    refused(tmp_path / "cut.sqlite")


def test_a_database_that_is_added_up_agrees_with_its_rows(tmp_path: Path) -> None:
    """Fifty launches of 1 to 50 us: the median is 25.5 us."""
    rows = [(1, 2, 100_000 * at, 100_000 * at + 1000 * (at + 1)) for at in range(50)]
    times = read(write_rocpd(tmp_path / "a.db", rows)).units[0].times
    assert (times.calls, times.total_us, times.median_us) == (50, 1275.0, 25.5)


# Tables that were made of a trace.


def test_tracelens_report_gives_operations_with_shapes(tmp_path: Path) -> None:
    """mm of 4096 cubed in 500 us is 275 TFLOP/s, 27.8 % of the 989.4 of an H100."""
    head = "name,op category,Input Dims,Input type,Input Strides,Concrete Inputs,operation_count,Kernel Time (µs)_mean,"
    head += "Kernel Time (µs)_std,Kernel Time (µs)_sum,Kernel Time (µs)_median,Kernel Time (µs)_min,Kernel Time (µs)_max,"
    head += "kernel_details_summary\n"
    row = 'aten::mm,GEMM,"((4096, 4096), (4096, 4096))","(\'c10::BFloat16\', \'c10::BFloat16\')","((4096, 1), (4096, 1))",'
    row += "\"('', '')\",2,500,10,1000,500,490,510,"
    row += "\"[{'name': 'gemm_kernel', 'stream': 7, 'count': 2, 'total_duration_us': np.float64(1000.0)}]\"\n"
    path = write(tmp_path / "unified_perf_summary.csv", head + row + 'aten::view,other,"()","()","()","()",9,,,,,,,\n')
    report = analyze(path, "--device", "h100-sxm")
    (entry,) = report["entries"]
    assert (entry["framework_op"], entry["stage"], entry["calls"]) == ("aten::mm", "B", 2)
    assert entry["roofline_pct"] == pytest.approx(2 * 4096**3 / 500e-6 / 989.4e12, rel=1e-3)


KEY_AVERAGES = """\
-----------------------  ------------  ------------  ------------  ------------
                   Name      Self CPU     CPU total     Self CUDA    # of Calls
-----------------------  ------------  ------------  ------------  ------------
               aten::mm      12.000us      20.000us       1.500ms            10
            gemm_kernel       0.000us       0.000us       1.500ms            10
            aten::copy_       5.000us       5.000us     400.000us             4
       CopyHostToDevice       0.000us       0.000us     300.000us             2
            copy_kernel       0.000us       0.000us     100.000us             2
          ProfilerStep*       0.000us       0.000us       5.000ms             1
               [memory]       0.000us       0.000us       0.000us             3
-----------------------  ------------  ------------  ------------  ------------
Self CPU time total: 17.000us
Self CUDA time total: 1.900ms
"""


def test_key_averages_counts_no_kernel_twice(tmp_path: Path) -> None:
    """Kernels take 1.5 + 0.1 ms of the total of 1.9 ms; the copy is the rest."""
    profile = read(write(tmp_path / "averages.txt", KEY_AVERAGES))
    assert [(unit.name, unit.times.calls, unit.times.total_us) for unit in profile.units] == [
        ("gemm_kernel", 10, 1500.0),
        ("copy_kernel", 2, 100.0),
    ]
    assert profile.problems == ()
    cut = read(write(tmp_path / "cut.txt", KEY_AVERAGES.replace("total: 1.900ms", "total: 3.800ms")))
    assert "50.0% of the total" in cut.problems[0]
    assert analyze(tmp_path / "cut.txt")["entries"][0]["pct_gpu_time"] == pytest.approx(100 * 1.5 / 3.8)


def test_key_averages_without_kernels_lists_operations(tmp_path: Path) -> None:
    """The copy of 0.3 ms, which is also in aten::copy_, leaves 0.1 ms there."""
    lines = [line for line in KEY_AVERAGES.splitlines(keepends=True) if "_kernel" not in line]
    profile = read(write(tmp_path / "averages.txt", "".join(lines)))
    assert [(unit.name, unit.times.total_us) for unit in profile.units] == [("aten::mm", 1500.0), ("aten::copy_", 100.0)]


def test_key_averages_as_csv(tmp_path: Path) -> None:
    text = "key,count,self_cpu_time_total,cpu_time_total,self_device_time_total\naten::mm,2,10,20,30\ngemm_kernel,2,0,0,30\n"
    (unit,) = read(write(tmp_path / "averages.csv", text)).units
    assert (unit.name, unit.times.total_us) == ("gemm_kernel", 30.0)


# Counters alone.

NCU = (
    '"ID","Kernel Name","CC","dram__bytes_read.sum","dram__bytes_write.sum","gpu__time_duration.sum",'
    '"smsp__sass_thread_inst_executed_op_ffma_pred_on.sum","sm__inst_executed_pipe_tensor.sum"\n'
    '"","","","Mbyte","Mbyte","us","inst","inst"\n'
)


def ncu_row(name: str, read_mb: float, write_mb: float, t_us: float, ffma: float | str = 0, tensor: float | str = 0) -> str:
    return f'"0","{name}","8.0","{read_mb}","{write_mb}","{t_us}","{ffma}","{tensor}"\n'


def test_ncu_alone_gives_a_verdict(tmp_path: Path) -> None:
    """100 MB in 80 us are 1.25 TB/s, 80.4 % of an A100's 1.555: over 0.9 of the target of 0.875, so saturated."""
    path = write(tmp_path / "ncu.csv", NCU + ncu_row("silu_kernel", 60, 40, 80, ffma=1e6))
    (entry,) = analyze(path, "--device", "a100-sxm-40")["entries"]
    assert (entry["stage"], entry["measurement_basis"], entry["headroom_class"]) == ("C", "counters", "saturated")
    assert entry["roofline_pct"] == pytest.approx(100e6 / 80e-6 / 1.555e12, rel=1e-3)
    assert entry["flops_est"] == 2e6


def test_an_unknown_op_is_judged_only_where_its_roof_is_near(tmp_path: Path) -> None:
    """The same kernel under another name, and with half the traffic: how much a good kernel would reach is unknown."""
    path = write(
        tmp_path / "ncu.csv", NCU + ncu_row("my_step", 60, 40, 80, ffma=1e6) + ncu_row("my_other", 30, 20, 80, ffma=1e6)
    )
    near, far = analyze(path, "--device", "a100-sxm-40")["entries"]
    assert (near["headroom_class"], far["headroom_class"], far["unknown_reason"]) == ("saturated", "unknown", "no_target")
    assert far["roofline_pct"] == pytest.approx(50e6 / 80e-6 / 1.555e12, rel=1e-3)


def test_bytes_alone_prove_no_headroom(tmp_path: Path) -> None:
    """A GEMM at 40 % of the bandwidth may be limited by computing, which was not counted."""
    head = (
        NCU.replace(',"sm__inst_executed_pipe_tensor.sum"', "")
        .replace(',"smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"', "")
        .replace(',"inst","inst"', "")
    )
    path = write(tmp_path / "ncu.csv", head + '"0","gemm_kernel","8.0","30","20","80"\n')
    report = analyze(path, "--device", "a100-sxm-40")
    (entry,) = report["entries"]
    assert (entry["headroom_class"], entry["unknown_reason"]) == ("unknown", "partly_seen")
    assert (entry["roofline_pct"], entry["flops_est"], entry["bytes_est"]) == (None, None, 50e6)
    assert run_tool("validate", tmp_path / "artifact" / "profile_roofline.json").code == 0


def test_counters_without_times_say_what_to_collect(tmp_path: Path) -> None:
    head = NCU.replace('"gpu__time_duration.sum"', '"Kernel Time"').replace('"us"', '""')
    assert "collect gpu__time_duration.sum" in refused(write(tmp_path / "ncu.csv", head + ncu_row("a", 1, 1, 5)))


def test_counters_in_a_folder_are_used_whatever_their_name(tmp_path: Path) -> None:
    """The kernel trace has the times, a CSV of ncu the bytes: 100 MB in 80 us are 80.4 % of an A100's bandwidth."""
    run = tmp_path / "run"
    run.mkdir()
    write(run / "kernel_trace.csv", KERNEL_TRACE_2024 + dispatch(1, "silu_kernel", 0, 80_000))
    write(run / "launches.csv", NCU + ncu_row("silu_kernel", 60, 40, 80, ffma=1e6))
    (entry,) = analyze(run, "--device", "a100-sxm-40")["entries"]
    assert (entry["stage"], entry["headroom_class"]) == ("C", "saturated")


def test_a_folder_of_rocprof_compute_alone(tmp_path: Path) -> None:
    """8 MiB read and written in 16 us are 1.05 TB/s, 64 % of the 1.638 TB/s of an MI210: moderate for a copy.

    131,072 reads of 64 B and as many writes of 64 B, by the counters of gfx90a.
    """
    names = "TCC_EA_RDREQ_sum,TCC_EA_RDREQ_32B_sum,TCC_EA_WRREQ_sum,TCC_EA_WRREQ_64B_sum"
    mops = ",".join(f"SQ_INSTS_VALU_MFMA_MOPS_{dtype}" for dtype in ("F16", "BF16", "F32"))
    valu = ",".join(f"SQ_INSTS_VALU_FMA_{dtype}" for dtype in ("F16", "F32", "F64"))
    head = f"Dispatch_ID,Kernel_Name,Grid_Size,Start_Timestamp,End_Timestamp,{names},{mops},{valu}\n"
    row = '0,"copy_kernel(double*, double*) [clone .kd]",1048576,1000,17000,131072,0,131072,131072,0,0,0,0,0,0\n'
    other = '1,"gemm_kernel",64,20000,30000,64,0,64,64,0,512,0,0,64,0\n'  # FLOP counters that are fed
    run = tmp_path / "run"
    run.mkdir()
    write(run / "pmc_perf.csv", head + row + other)
    write(run / "sysinfo.csv", "workload_name,gpu_model,gpu_arch,cu_per_gpu,rocm_version\nvcopy,MI200,gfx90a,104,6.0.2\n")
    report = analyze(run)
    entry = next(entry for entry in report["entries"] if entry["name"].startswith("copy_kernel"))
    assert (report["gfx"], entry["stage"], entry["headroom_class"]) == ("gfx90a", "C", "moderate")
    assert entry["roofline_pct"] == pytest.approx(2 * 8 * 2**20 / 16e-6 / 1638.4e9, rel=1e-3)


# Folders.


def test_a_folder_is_read_by_the_format_that_says_most(tmp_path: Path) -> None:
    """rocprofv3 writes into a folder by host: the trace is read, the sums of the same run are named, the device is known."""
    host = tmp_path / "run" / "host1"
    host.mkdir(parents=True)
    write(host / "7_kernel_trace.csv", KERNEL_TRACE_2024 + dispatch(1, "a", 0, 10_000))
    write(host / "7_kernel_stats.csv", STATS)
    write(host / "7_agent_info.csv", AGENTS)
    done = run_tool("analyze", tmp_path / "run", "--head-pct", 0, "--out", tmp_path / "out")
    assert "read: 7_kernel_trace.csv" in done.out
    assert "not read, since they may be of the same run: 7_kernel_stats.csv" in done.out
    assert "`mi300x`" in done.out
    assert "env_report.json is missing" not in done.err


def test_statistics_take_the_device_of_the_agents_beside(tmp_path: Path) -> None:
    write(tmp_path / "7_kernel_stats.csv", STATS)
    write(tmp_path / "7_agent_info.csv", AGENTS)
    write(tmp_path / "9_agent_info.csv", AGENTS.replace("MI300X", "MI300A").replace("304", "228"))  # of another process
    report = analyze(tmp_path / "7_kernel_stats.csv")
    assert report["peaks"]["product"] == "mi300x"
    assert analyze(tmp_path / "7_kernel_stats.csv", "--device", "mi325x")["peaks"]["product"] == "mi325x"


def test_several_files_of_one_format_are_ranks(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for rank, length in enumerate((10_000, 20_000)):
        write(run / f"{rank}_kernel_trace.csv", KERNEL_TRACE_2024 + dispatch(1, "a", 0, length))
    report = analyze(run)
    assert [rank["name"] for rank in report["ranks"]] == ["0_kernel_trace.csv", "1_kernel_trace.csv"]
    assert report["entries"][0]["t_ms"] == pytest.approx(0.02)  # of the slowest


def test_a_trace_of_torch_wins_over_a_database_of_the_same_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    trace = TraceBuilder()
    trace.op("aten::mm", [((256, 256), "c10::BFloat16"), ((256, 256), "c10::BFloat16")], [("gemm_kernel", 50.0)])
    trace.write(run / "trace.json")
    write_nsys(run / "report.sqlite", (0, 10_000, "gemm_kernel"))
    report = analyze(run)
    assert (report["source"]["format"], report["entries"][0]["framework_op"]) == ("torch profiler trace", "aten::mm")
    assert "report.sqlite (profiler database)" in report["source"]["remarks"][1]


def test_a_folder_without_a_profile(tmp_path: Path) -> None:
    write(tmp_path / "notes.txt", "hello\n")
    done = run_tool("analyze", tmp_path)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "the output of a profiler" in done.err


def test_a_folder_with_a_report_alone_says_how_to_export_it(tmp_path: Path) -> None:
    (tmp_path / "a.nsys-rep").write_bytes(b"\x00\x01")
    done = run_tool("analyze", tmp_path)
    assert done.code == 2
    assert "nsys export --type sqlite -o a.sqlite a.nsys-rep" in done.err


def test_copies_come_from_the_file_beside_the_kernels(tmp_path: Path) -> None:
    """A kernel of 10 us, then a copy of 30 us of which the device sees all."""
    path = write(tmp_path / "7_kernel_trace.csv", KERNEL_TRACE_2024 + dispatch(1, "a", 0, 10_000))
    head = '"Kind","Direction","Source_Agent_Id","Destination_Agent_Id","Correlation_Id","Start_Timestamp","End_Timestamp"\n'
    write(tmp_path / "7_memory_copy_trace.csv", head + '"MEMORY_COPY","MEMORY_COPY_HOST_TO_DEVICE",0,1,4,10000,40000\n')
    profile = read(path)
    assert [unit.name for unit in profile.units] == ["a"]
    assert (profile.timelines[0].span_us, profile.timelines[0].exposed_copy_us) == (40.0, 30.0)


def test_profile_prepares_a_run_from_any_format(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    write_nsys(run / "report.sqlite", (0, 10_000, "gemm_kernel"))
    done = run_tool("profile", run, "--out", tmp_path / "work")
    assert done.code == 0, done.err
    topn = json.loads((tmp_path / "work" / "profile_topN.json").read_text())
    assert topn["top_kernels"][0]["base_latency_ms"] == 0.01
    assert json.loads((tmp_path / "work" / "env_report.json").read_text())["device_name"] == "NVIDIA H100 80GB HBM3"


# Files that are no profiles, or broken.


@pytest.mark.parametrize(
    ("name", "content", "advice"),
    [
        ("a.nsys-rep", b"\x00\x01", "nsys export --type sqlite -o a.sqlite a.nsys-rep"),
        ("a.ncu-rep", b"\x00\x01", "ncu --import a.ncu-rep --csv --page raw > a.csv"),
        ("agent_info.csv", AGENTS.encode(), "a list of agents"),
        ("empty.csv", b"\n", "nothing in it"),
        ("pmc_perf_0.csv", b"Dispatch_ID,Kernel_Name\n", "without times"),
        ("kernel_trace.csv", KERNEL_TRACE_2024.encode(), "no kernel"),
        ("results.json", b'{"rocprofiler-sdk-tool": [', "not JSON"),
        ("results2.json", b'{"rocprofiler-sdk-tool": 3}', "expected the results JSON"),
        ("fake.db", b"SQLite format 3\x00" + b"\xff" * 4000, "expected the database of a profiler"),
        ("stats.csv", b"type,time ms,percent\n", "unified_perf_summary.csv"),
    ],
)
def test_a_file_that_gives_nothing_says_what_would(tmp_path: Path, name: str, content: bytes, advice: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert advice in refused(path)
    assert run_tool("analyze", path, "--out", tmp_path / "out").code == 0  # one line, and the run goes on


def test_a_timeline_needs_no_more_than_what_runs_at_once() -> None:
    """A kernel within another, and communication after both; the intervals come in the order of their starts."""
    intervals = iter([(0.0, 100.0, COMPUTE), (10.0, 20.0, COMPUTE), (90.0, 120.0, COMMUNICATION)])
    timeline = merge_intervals("0", intervals)
    assert timeline is not None
    assert (timeline.busy_us, timeline.compute_us, timeline.exposed_communication_us) == (120.0, 100.0, 20.0)
