"""Figures of a long measurement that cannot be right, by each other and by what the quick one reached in the same minutes.

A ceiling is a lower bound, and what disturbs a measurement makes it slower. Of two that contradict each other the lower one
is wrong, then: a cache slower than the memory beneath it, vector units slower than scalar code. Only a figure that is larger
than anything else can explain is wrong for being large.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from roofline_engine.units import HOST_BANDWIDTH_BOUNDS, HOST_FLOPS_BOUNDS, quantity

from .record import LEVELS, Ceiling, shown

#: Two methods on one level: stores that skip the cache and page sizes make 1.3 between them, another level makes 2 and more.
_MEMORY = 1.5
#: The same thing measured twice in a minute on a machine that is not idle.
_NOISE = 1.10
#: More than any core does a clock (two 512-bit FMA units in fp32: 64 FLOPs), at more than any clock.
_FLOPS_A_CLOCK = {"fp32": 64.0, "fp64": 32.0}
_CLOCK_HZ = 6.5e9
#: What must not be slower than what follows it, as the levels must not.
_STACK = ("vector_fma", "vector", "scalar")


def refused(long: Sequence[Ceiling], quick: Sequence[Ceiling]) -> dict[Ceiling, str]:
    """The ceilings of ``long`` that cannot be right, each with the reason in one line."""
    found = {
        item: why for item in long if (why := _impossible(item) or _against_quick(item, quick) or _beaten(item, long, quick))
    }
    sound = [item for item in long if item not in found]
    found.update({item: why for item in sound if (why := _against_lower(item, sound))})
    return {item: f"{_where(item)}: {shown(item)} {why}; not used" for item, why in found.items()}


def raised(sound: Sequence[Ceiling], quick: Sequence[Ceiling]) -> list[Ceiling]:
    """Those of ``quick`` that lie over each of ``sound`` for their level and threads, where there is one."""
    roofs: dict[tuple[str | None, int], float] = {}
    for item in sound:
        roofs[item.level, item.threads] = max(item.value, roofs.get((item.level, item.threads), 0.0))
    return [item for item in quick if item.value > roofs.get((item.level, item.threads), math.inf)]


def _where(item: Ceiling) -> str:
    what = f"{item.level} {item.name}" if item.level else f"{item.name} {item.dtype}"
    return f"{item.method}: {what}, {item.threads} thread{'s' * (item.threads > 1)}"


def _impossible(item: Ceiling) -> str:
    low, high = HOST_BANDWIDTH_BOUNDS if item.kind == "bandwidth" else HOST_FLOPS_BOUNDS
    if not low <= item.value <= high:
        return "is out of the range of any CPU: a unit error?"
    most = _FLOPS_A_CLOCK.get(item.dtype) if item.kind == "compute" else None
    if most and item.value > most * _CLOCK_HZ * item.threads:
        return f"is over {most:.0f} FLOPs a clock and core"
    return ""


def _against_quick(item: Ceiling, quick: Sequence[Ceiling]) -> str:
    alike = [other for other in quick if other.threads == item.threads]
    if item.level == "DRAM":
        memory = max((other.value for other in alike if other.level == "DRAM"), default=item.value)
        if item.value > _MEMORY * memory:
            return f"is over {_MEMORY} times the {quantity(memory, 'B/s')} of {alike[0].method}: measured out of a cache?"
        if item.value * _MEMORY < memory:
            return f"is far under the {quantity(memory, 'B/s')} of {alike[0].method}: the machine was busy"
    if item.name == "vector_fma":
        gemm = max((other.value for other in alike if (other.name, other.dtype) == ("gemm", item.dtype)), default=0.0)
        if item.value * _NOISE < gemm:
            return f"is under the {quantity(gemm, 'FLOP/s')} of a GEMM: the machine was busy"
    return ""


def _beaten(item: Ceiling, long: Sequence[Ceiling], quick: Sequence[Ceiling]) -> str:
    """Of a cache: the best of its ceilings is under what as many threads or fewer reached from it, or from beneath it."""
    if item.level not in LEVELS[:-1]:
        return ""
    here = item.level, item.threads
    roof = max(other.value for other in long if (other.level, other.threads) == here)
    beneath = LEVELS[LEVELS.index(item.level) :]
    proof = [other for other in quick if other.level in beneath and other.threads <= item.threads]
    beats = [other for other in proof if other.value > roof * (_MEMORY if (other.level, other.threads) == here else _NOISE)]
    best = max(beats, key=lambda other: other.value, default=None)
    if best is None:
        return ""
    threads = f"{best.threads} thread{'s' * (best.threads > 1)}"
    return f"is under the {shown(best)} of {best.method}'s {best.name} from {best.level}, {threads}: the machine was busy"


def _against_lower(item: Ceiling, sound: Sequence[Ceiling]) -> str:
    for order, place in ((LEVELS, item.level), (_STACK, item.name)):
        lower = order[order.index(place) + 1 :] if place in order else ()
        for other in sound:
            beneath = other.level if order is LEVELS else other.name
            alike = (other.threads, other.dtype) == (item.threads, item.dtype) and (order is _STACK or other.name == item.name)
            if alike and beneath in lower and other.value > _NOISE * item.value:
                return f"is under the {shown(other)} of {beneath}: disturbed" + (", or not held by it" if item.level else "")
    return ""
