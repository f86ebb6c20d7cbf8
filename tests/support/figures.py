"""Tables for the tests of the figure, with derived or cited results."""

from __future__ import annotations

from typing import Any

#: The example that the figure was specified by: a CPU with a measured bandwidth, two ceilings under its peak, seven kernels.
PEAK, BANDWIDTH = 1840.0, 204.0
SEVEN: dict[str, Any] = {
    "ceilings": [
        {"name": "peak (vector + FMA)", "gflops": PEAK},
        {"name": "no FMA", "gflops": PEAK / 2},
        {"name": "scalar (no vectorization)", "gflops": PEAK / 16},
    ],
    "bandwidths": [{"name": "STREAM", "level": "DRAM", "gbs": BANDWIDTH}],
    "kernels": [
        {"name": "stream triad", "intensity": 0.083, "gflops": 15.5},
        {"name": "sparse matvec", "intensity": 0.22, "gflops": 41.0},
        {"name": "stencil, 7-point", "intensity": 0.52, "gflops": 96.0},
        {"name": "FFT, 1M point", "intensity": 2.1, "gflops": 320.0},
        {"name": "dense GEMM (naive)", "intensity": 12.0, "gflops": 108.0},
        {"name": "dense GEMM (tuned)", "intensity": 42.0, "gflops": 1520.0},
        {"name": "N-body", "intensity": 130.0, "gflops": 1660.0},
    ],
}
#: Percent of roof, as the specification prints them.
SEVEN_OF_ROOF = ["91.5%", "91.4%", "90.5%", "74.7%", "5.9%", "82.6%", "90.2%"]

#: NERSC's V100 (Yang, Kurth, Williams: hierarchical roofline, cyanguwa/nersc-roofline): ceilings by ERT and GPP at nw=1.
V100: dict[str, Any] = {
    "ceilings": [
        {"name": "FMA", "gflops": 7068.86, "basis": "measured"},
        {"name": "no FMA", "gflops": 3535.79, "basis": "measured"},
    ],
    "bandwidths": [
        {"name": "L1", "level": "L1", "gbs": 14336, "basis": "measured"},
        {"name": "L2", "level": "L2", "gbs": 2996.77, "basis": "measured"},
        {"name": "HBM", "level": "HBM", "gbs": 828.758, "basis": "measured"},
    ],
    "kernels": [{"name": "GPP nw=1", "intensities": {"L1": 0.865, "L2": 2.25, "HBM": 2.58}, "gflops": 2085.8}],
}

NASTY = "</script><img src=x onerror=alert(1)>" + "std::tuple<" * 400 + "\x1b[31m\x00\u202e"
GPU: dict[str, Any] = {
    "ceilings": [
        {"name": "fp32 vector", "gflops": 19500, "dtype": "fp32", "basis": "rated"},
        {"name": "bf16 matrix", "gflops": 312000, "dtype": "bf16", "basis": "rated"},
    ],
    "bandwidths": [
        {"name": "HBM", "level": "hbm", "gbs": 2039, "basis": "rated"},
        {"name": "HBM copy, measured", "level": "hbm", "gbs": 1750, "basis": "measured"},
    ],
}


def many(count: int, name: str = "kernel_{}") -> dict[str, Any]:
    """``count`` kernels over five decades of intensity, spread by the golden ratio, with shares that add to 100 or so."""
    kernels = []
    for at in range(count):
        part, other = at * 0.6180339887 % 1, at * 0.4142135623 % 1
        intensity, dtype = 10 ** (5 * part - 1.5), ("fp32", "bf16")[at % 2]
        peak = {"fp32": 19500.0, "bf16": 312000.0}[dtype]
        kernels.append(
            {
                "name": name.format(at),
                "intensity": intensity,
                "gflops": (0.05 + 0.9 * other) * min(intensity * 2039, peak),
                "dtype": dtype,
                "share": round(100 / count * (0.2 + 1.6 * other), 4),
                "headroom_class": ("underperforming", "moderate", "saturated", "unknown")[at % 4],
            }
        )
    return {**GPU, "kernels": kernels}
