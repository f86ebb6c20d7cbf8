"""Figures of a long measurement that cannot be right, found by what the quick one reached in the same minutes."""

from __future__ import annotations

from collections.abc import Sequence

from roofline_engine.units import HOST_BANDWIDTH_BOUNDS, HOST_FLOPS_BOUNDS, quantity

from .record import Ceiling, shown

#: Two methods on one memory: stores that skip the cache and page sizes make 1.3 between them, a cache makes 2 and more.
_MEMORY = 1.5
#: The same thing measured twice in a minute on a machine that is not idle.
_NOISE = 1.10
#: More than any core does a clock (two 512-bit FMA units in fp32: 64 FLOPs), at more than any clock.
_FLOPS_A_CLOCK = {"fp32": 64.0, "fp64": 32.0}
_CLOCK_HZ = 6.5e9
_LEVELS = ("L1", "L2", "L3", "DRAM")


def refused(long: Sequence[Ceiling], quick: Sequence[Ceiling]) -> dict[Ceiling, str]:
    """The ceilings of ``long`` that cannot be right, each with the reason in one line."""
    found: dict[Ceiling, str] = {}
    for item in long:
        why = _impossible(item) or _against(item, [other for other in long if other not in found], quick)
        if why:
            where = f"{item.level} {item.name}" if item.level else f"{item.name} {item.dtype}"
            found[item] = f"{item.method}: {where}, {item.threads} threads: {shown(item)} {why}; not used"
    return found


def _impossible(item: Ceiling) -> str:
    low, high = HOST_BANDWIDTH_BOUNDS if item.kind == "bandwidth" else HOST_FLOPS_BOUNDS
    if not low <= item.value <= high:
        return "is out of the range of any CPU: a unit error?"
    most = _FLOPS_A_CLOCK.get(item.dtype) if item.kind == "compute" else None
    if most and item.value > most * _CLOCK_HZ * item.threads:
        return f"is over {most:.0f} FLOPs a clock and core"
    return ""


def _against(item: Ceiling, long: Sequence[Ceiling], quick: Sequence[Ceiling]) -> str:
    if item.kind == "compute":
        return _compute(item, long, quick)
    beneath = _LEVELS[: _LEVELS.index(item.level)] if item.level in _LEVELS else ()
    nearer = [other for other in long if other.level in beneath and (other.name, other.threads) == (item.name, item.threads)]
    for other in nearer:
        if item.value > _NOISE * other.value:
            return f"is over the {shown(other)} of the {other.level}: one of the two was disturbed"
    memory = [other.value for other in quick if other.level == item.level == "DRAM" and other.threads == item.threads]
    if memory and item.value > _MEMORY * max(memory):
        return f"is over {_MEMORY} times the {quantity(max(memory), 'B/s')} of {quick[0].method}: measured out of a cache?"
    if memory and item.value * _MEMORY < max(memory):
        return f"is less than numpy's {quantity(max(memory), 'B/s')}: the machine was busy"
    return ""


def _compute(item: Ceiling, long: Sequence[Ceiling], quick: Sequence[Ceiling]) -> str:
    if item.name == "vector_fma":
        gemm = max((other.value for other in quick if (other.name, other.dtype) == ("gemm", item.dtype)), default=0.0)
        whole_machine = item.threads == max(other.threads for other in long)
        if whole_machine and item.value * _NOISE < gemm:
            return f"is under the {quantity(gemm, 'FLOP/s')} that a GEMM reached: the machine was busy"
        return ""
    above = {"vector": "vector_fma", "scalar": "vector"}[item.name]
    for other in long:
        if (other.name, other.dtype, other.threads) == (above, item.dtype, item.threads) and item.value > _NOISE * other.value:
            return f"is over the {shown(other)} of {above}: one of the two was disturbed"
    return ""
