"""Measured ceilings of other tools, laid over the peaks of the product a run was made on.

``ceilings`` reads the files; ``apply`` checks every figure and lays it over the table's.

A measured ceiling is a lower bound of the hardware's: the roof of an axis is the larger of table and measurement. The smaller
measured ones are kept as *achievable*, beside the roof. A figure that cannot be right is not used, and one line says why:
a benchmark at half rate (rocm-amdgpu-bench#24), one die of a package (rocprofiler-compute#712), more than the highest clock
gives (rocprofiler-compute#691).
"""

from __future__ import annotations

from collections.abc import Mapping

from .ceilings import CACHES, Ceiling, Overlay
from .peaks import AGREEMENT, Peaks, joined, over_rated
from .peaktable import Table
from .rules import UNDER_ARITHMETIC, telltale
from .units import (
    BANDWIDTH_BOUNDS,
    FLOPS_BOUNDS,
    HOST_BANDWIDTH_BOUNDS,
    HOST_FLOPS_BOUNDS,
    printable,
    quantity,
)

#: Rounds are one ceiling when the best lies within this of the median; a wider spread is a busy or throttled machine.
ROUNDS = 0.15
#: Whole GEMMs run under the power limit: 0.49 of the MI300X's fp8 rate is the lowest right one (TraceLens, AMD's MAF blog).
UNDER_GEMM = 0.40
#: BF16 and FP16 of one device; rocprof-compute 3.6.0 on MI355X is right in both at 0.89, its faults were at 0.5 and 0.56.
BF16_FP16 = 0.85
#: Over the rated figure at the highest clock or the full bus this much is timing noise, more is a fault.
OVER_CLOCK, OVER_BUS = 1.02, 1.01
#: A "measured" figure this close to the data sheet's is the data sheet's (5300 GB/s, int8 2600 in TraceLens' MI300X file).
_NOMINAL = 0.01


def apply(peaks: Peaks, overlay: Overlay, table: Table | None) -> tuple[Peaks, list[str]]:
    """Lay measured ceilings over ``peaks``: (the peaks, one line for each figure that was not used).

    Raises:
        ValueError: when the file as a whole is of another device.
    """
    _same_device(peaks, overlay, table)
    listed = bool(peaks.hbm_bw_bytes_s or peaks.flops or peaks.vector)
    right: dict[str, Ceiling] = {}
    refused, strangers = [], []
    for ceiling in overlay.ceilings:
        if ceiling.axis in CACHES:
            continue
        rated = _rated(peaks, ceiling.axis)
        if listed and rated is None:
            strangers.append(ceiling.axis)
            continue
        wrong = _wrong(peaks, overlay, ceiling, rated)
        if wrong:
            refused.append(f"{ceiling.where}: {quantity(ceiling.value, _unit(ceiling.axis))} {wrong}; not used")
        elif ceiling.axis not in right or ceiling.value > right[ceiling.axis].value:
            right[ceiling.axis] = ceiling
    refused += _unequal_halves(peaks, right)
    if strangers:
        names = ", ".join(sorted(set(strangers)))
        refused.append(f"{overlay.label}: no figure of {peaks.product or peaks.gfx} to check {names} against; not used")
    if not right:
        first = refused[0] if refused else f"{overlay.label}: only caches were measured"
        raise ValueError(f"{first}; no figure of the file fits {peaks.product or peaks.gfx or 'this device'}")
    return _laid(peaks, overlay, right, listed), refused


def _unit(axis: str) -> str:
    return "FLOP/s" if "." in axis else "B/s"


def _rated(peaks: Peaks, axis: str) -> float | None:
    engine, dot, dtype = axis.partition(".")
    if not dot:
        return peaks.hbm_bw_bytes_s
    return (peaks.flops if engine == "matrix" else peaks.vector).get(dtype)


def _highest(peaks: Peaks, axis: str, rated: float) -> float:
    """The most that a right measurement of the axis can be."""
    if axis == "memory":
        return OVER_BUS * max(rated, peaks.hbm_bw_limit_bytes_s or 0.0)
    top = peaks.highest(axis)
    return OVER_CLOCK * max(rated, top) if top else rated * over_rated(peaks.product)


def _same_device(peaks: Peaks, overlay: Overlay, table: Table | None) -> None:
    run = peaks.product or peaks.gfx
    if overlay.host and run:
        raise ValueError(f"{overlay.label}: {overlay.tool} measured a CPU, the run was made on {printable(run)}")
    if overlay.gfx and peaks.gfx and overlay.gfx.split(":")[0] != peaks.gfx:
        where = f"{overlay.label}: measured on {printable(overlay.gfx)} (sysinfo.csv)"
        raise ValueError(f"{where}, the run was made on {peaks.gfx}")
    named = table.named(overlay.device) if table and overlay.device and not overlay.host else []
    if named and peaks.product not in (None, *(block.id for block in named)):
        raise ValueError(f"{overlay.label}: measured on {printable(overlay.device or '')}, the run was made on {run}")
    if named and peaks.gfx and peaks.gfx not in [block.text("gfx") for block in named]:
        raise ValueError(f"{overlay.label}: measured on {printable(overlay.device or '')}, the run was made on {peaks.gfx}")


def _wrong(peaks: Peaks, overlay: Overlay, ceiling: Ceiling, rated: float | None) -> str:
    """Why a figure cannot be the ceiling of its axis; empty when it can."""
    axis, value = ceiling.axis, ceiling.value
    if "." in axis:
        low, high = HOST_FLOPS_BOUNDS if overlay.host else FLOPS_BOUNDS
    else:
        low, high = HOST_BANDWIDTH_BOUNDS if overlay.host else BANDWIDTH_BOUNDS
    if not low <= value <= high:
        return "is out of the range of any device: a unit error?"
    if axis == "memory":
        cache = next((item for item in overlay.ceilings if item.axis == "l2"), None)
        if cache and value > cache.value:
            return f"is over the {quantity(cache.value, 'B/s')} of the L2: measured out of a cache"
        if overlay.narrow:
            return f"is not the whole device's: {overlay.narrow}"
    if rated is None:
        return ""
    ratio, top = value / rated, _highest(peaks, axis, rated)
    if axis in peaks.unvalidated:
        return "has nothing to be checked against: the table's own figure breaks a rule"
    if value > top:
        return f"is {ratio:.3g}x the rated {quantity(rated, _unit(axis))}, over what clock and bus allow{telltale(ratio)}"
    floor = UNDER_GEMM if overlay.gemm and axis.startswith("matrix.") else UNDER_ARITHMETIC
    if ratio < floor:
        guess = telltale(ratio) or ": a faulty benchmark, or a part of the device?"
        return f"is {ratio:.3g} of the rated {quantity(rated, _unit(axis))}, under {floor:g}{guess}"
    if overlay.gemm and abs(ratio - 1) <= _NOMINAL:
        return "is the data sheet's figure, no measurement"
    vector = peaks.vector.get(axis[len("matrix.") :]) if axis.startswith("matrix.") else None
    if overlay.gemm and vector and rated > 1.5 * vector and abs(value / vector - 1) <= 2 * _NOMINAL:
        return f"is the rated {quantity(vector, 'FLOP/s')} of the vector units"
    return ""


def _unequal_halves(peaks: Peaks, right: dict[str, Ceiling]) -> list[str]:
    """BF16 and FP16 where the device runs them alike: the slower of two that differ is a faulty benchmark."""
    pair = [right[axis] for axis in ("matrix.bf16", "matrix.fp16") if axis in right]
    rated = [peaks.flops.get(dtype) for dtype in ("bf16", "fp16")]
    if len(pair) < 2 or not (rated[0] and rated[1] and abs(rated[0] / rated[1] - 1) <= 0.01):
        return []
    slow, fast = sorted(pair, key=lambda item: item.value)
    if slow.value >= BF16_FP16 * fast.value:
        return []
    del right[slow.axis]
    told = f"is {slow.value / fast.value:.3g} of {fast.axis}, which this device runs at the same rate"
    return [f"{slow.where}: {quantity(slow.value, 'FLOP/s')} {told}; not used"]


def _laid(peaks: Peaks, overlay: Overlay, right: Mapping[str, Ceiling], listed: bool) -> Peaks:
    roofs: dict[str, float] = {}
    achievable: dict[str, float] = {}
    doubtful = []
    for axis, ceiling in right.items():
        rated = _rated(peaks, axis)
        if rated is not None and ceiling.value <= rated:
            achievable[axis] = ceiling.value
            continue
        roofs[axis] = ceiling.value
        steady = ceiling.best is not None and ceiling.best <= (1 + ROUNDS) * ceiling.value
        agrees = ceiling.best is None and rated is not None and ceiling.value <= (1 + AGREEMENT) * rated
        if not (steady or agrees):
            doubtful.append(axis)
    what = f"measured by {overlay.tool} ({overlay.label}): {', '.join(right)}"
    used = f"over the table and so the roof: {', '.join(roofs)}" if roofs else "none is over the table, which stays the roof"
    note = joined(what, used if listed else "the only figures of this device", peaks.note if listed else "")
    if overlay.host and overlay.device:
        note = joined(note, f"machine {printable(overlay.device)}")
    laid = peaks._replace(achievable={**peaks.achievable, **achievable}, note=note)
    if not roofs:
        return laid
    flops, vector = ({**values} for values in (peaks.flops, peaks.vector))
    for axis, value in roofs.items():
        engine, dot, dtype = axis.partition(".")
        if dot:
            (flops if engine == "matrix" else vector)[dtype] = value
    bandwidth = roofs.get("memory", peaks.hbm_bw_bytes_s)
    limit = max(bandwidth or 0.0, peaks.hbm_bw_limit_bytes_s or 0.0) or None
    laid = laid._replace(flops=flops, vector=vector, hbm_bw_bytes_s=bandwidth, hbm_bw_limit_bytes_s=limit, source="measured")
    if not (listed or overlay.host) and (
        overlay.gfx is None or peaks.gfx is None
    ):  # nothing says that the run's device was measured
        return laid._replace(confidence="low", note=joined(laid.note, "nothing shows that they are of the run's device"))
    if not listed:
        partly = tuple(doubtful) if len(doubtful) < len(roofs) else ()
        return laid._replace(confidence="low" if doubtful else "high", low_axes=partly)
    if doubtful and (peaks.confidence == "high" or peaks.low_axes):
        return laid._replace(confidence="low", low_axes=tuple(dict.fromkeys((*peaks.low_axes, *doubtful))))
    return laid
