"""Files of hardware counters in the formats that the profilers write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofline_engine.counters import base, read

HEAD_2024 = (
    '"Correlation_Id","Dispatch_Id","Agent_Id","Queue_Id","Process_Id","Thread_Id","Grid_Size","Kernel_Id","Kernel_Name",'
    '"Workgroup_Size","LDS_Block_Size","Scratch_Size","VGPR_Count","SGPR_Count","Counter_Name","Counter_Value"'
)
HEAD_2025 = HEAD_2024.replace('"VGPR_Count",', '"VGPR_Count","Accum_VGPR_Count",') + ',"Start_Timestamp","End_Timestamp"'
COPY = "void copy_kernel<float, 4>(float*, float const*)"
MIB = 2**20
VECCOPY_MI300 = {  # 8 MiB read, 8 MiB written
    "TCC_EA0_RDREQ_sum": 65_763,
    "TCC_EA0_RDREQ_32B_sum": 0,
    "TCC_BUBBLE_sum": 65_536,
    "TCC_EA0_WRREQ_sum": 131_072,
    "TCC_EA0_WRREQ_64B_sum": 131_072,
    "TCP_TCC_READ_REQ_sum": 65_536,
    "TCP_TCC_WRITE_REQ_sum": 131_072,
    "TCP_TOTAL_CACHE_ACCESSES_sum": 524_288,
    "Start_Timestamp": "8.1097E+14",
    "End_Timestamp": "8.1097E+14",
}


def long_csv(*dispatches: dict[str, Any], name: str = COPY, schema: int = 2025, grid: int = 1024) -> str:
    """counter_collection: a row per dispatch and counter. ``ns`` is the time of a dispatch, the rest its counters."""
    lines = [HEAD_2025 if schema == 2025 else HEAD_2024]
    for index, one in enumerate(dispatches, 1):
        one = dict(one)
        ns, kernel, size = one.pop("ns", 5000), one.pop("kernel", name), one.pop("grid", grid)
        begin = 1569078135380312 + index * 10**6
        for counter, value in one.items():
            row = f'{index},{index},"Agent 1",2,77,77,{size},5,"{kernel}",256,0,0,12,'
            row = row.replace('"Agent 1"', "1") if schema == 2024 else row + "4,"
            row += f'32,"{counter}",{value}'
            lines.append(row + (f",{begin},{begin + ns}" if schema == 2025 else ""))
    return "\n".join(lines) + "\n"


def wide_csv(*dispatches: dict[str, Any], name: str = "vecCopy(double*, double*, int) [clone .kd]") -> str:
    """pmc_perf: a row per dispatch, a column per counter."""
    titles = list(dispatches[0])
    lines = [",".join(["Dispatch_ID", "Kernel_Name", "Grid_Size", *titles])]
    lines += [f'{at},"{name}",1048576,' + ",".join(str(one[title]) for title in titles) for at, one in enumerate(dispatches)]
    return "\n".join(lines) + "\n"


def raw_csv(metrics: dict[str, tuple[str, Sequence[str]]], cc: str = "9.0", names: Sequence[str] = ("k",)) -> str:
    """Nsight Compute's raw page: units under the header."""
    head = ["ID", "Kernel Name", "Grid Size", "CC", *metrics]
    lines = ["==PROF== Connected to process 1", ",".join(f'"{item}"' for item in head)]
    lines.append(",".join(f'"{item}"' for item in ["", "", "", "", *(unit for unit, _ in metrics.values())]))
    for at, name in enumerate(names):
        cells = [str(at), name, "(80, 1, 1)", cc, *(values[at] for _, values in metrics.values())]
        lines.append(",".join(f'"{cell}"' for cell in cells))
    return "\n".join([*lines, "==PROF== Disconnected from process 1"]) + "\n"


def details_csv(*rows: tuple[str, str, str, str, str]) -> str:
    lines = ['"ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"']
    lines += [f'"{at}","{name}","s","{metric}","{unit}","{value}"' for at, name, metric, unit, value in rows]
    return "\n".join(lines) + "\n"


def only(text: str, gfx: str | None = "gfx942", rocm: str | None = None) -> base.Measured:
    (kernel,) = read.parse(text, "f.csv", gfx, rocm).kernels
    return kernel
