"""The geometry of a roofline: what is attainable at an intensity, where limits meet, which lower ceiling explains a rate.

Intensities are in FLOP/byte, rates in FLOP/s, bandwidths in bytes/s. On log-log axes a bandwidth is a straight line of slope
one and a compute ceiling a flat one (Williams, Waterman and Patterson, CACM 52(4), 2009), so two points draw a limit exactly.
"""

from __future__ import annotations

from collections.abc import Iterable


def ridge(flops_s: float, bytes_s: float) -> float:
    """The intensity at which a bandwidth and a compute ceiling meet."""
    return flops_s / bytes_s


def attainable(intensity: float, bytes_s: float | None, flops_s: float | None) -> float | None:
    """The rate of the limit that binds at an intensity; None where neither is known."""
    limits = [intensity * bytes_s] if bytes_s else []
    limits += [flops_s] if flops_s else []
    return min(limits) if limits else None


def binds(intensity: float, bytes_s: float | None, flops_s: float | None) -> str | None:
    """``compute`` right of the ridge, else ``memory`` as in ``metrics.point``; None where a limit is not known."""
    if not (bytes_s and flops_s):
        return None
    return "compute" if intensity > ridge(flops_s, bytes_s) else "memory"


def below_ceiling(intensity: float, rate: float, bytes_s: float | None, ceilings: Iterable[float]) -> float | None:
    """The lowest compute ceiling that a kernel stays under although memory would let it pass.

    None where there is none: left of a ceiling's ridge the bandwidth alone explains the rate, so nothing follows.
    """
    over = [one for one in ceilings if rate < one and bytes_s and intensity > ridge(one, bytes_s)]
    return min(over) if over else None
