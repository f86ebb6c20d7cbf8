"""A sweep of working sets on this CPU, as RRZE takes of GPUs: each rate against the roof of the level that holds the set.

    python benchmarks/sweep.py [--measure]

One thread adds two arrays into a third, from a working set inside the L1 to one of sixteen last-level caches. Its rate must lie
under the one-thread ceiling of the innermost level that holds the set, within what a measured ceiling may be low by (1.25 times
1.05); a level without one is unknown, and the notes say why. The ceilings are those of ``roofline peaks measure``
(``--measure`` takes them first, three minutes).
"""

import sys
import time
from pathlib import Path

import numpy as np

from pytest_roofline.ceilings import Ceilings, ceilings
from roofline_engine.check import BEYOND
from roofline_engine.peaks import OVER_RATED_BOARD

LEVELS = ("L1", "L2", "L3", "DRAM")


def cache_sizes() -> dict[str, int]:
    """Bytes by level of the first core; what the system does not say is left out."""
    found = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        if kind != "Instruction":
            found[f"L{level}"] = int(size[:-1]) * {"K": 1 << 10, "M": 1 << 20}[size[-1]]
    return found


def rate(nbytes: int, seconds: float = 0.15) -> float:
    """B/s of an addition over a working set of so many bytes: the best of many rounds, each long enough to time."""
    a, b, c = (np.ones(max(1, nbytes // 24)) for _ in range(3))
    calls = max(1, int(2e6 / max(nbytes, 1)))
    best, end = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(calls):
            np.add(b, c, out=a)
        best = max(best, 3 * a.nbytes * calls / (time.perf_counter() - start))
    return best


def roof(found: Ceilings, level: str) -> float | None:
    """The best one-thread bandwidth of a level; None where it was not measured."""
    return max((item.value for item in found.items if item.level == level and item.threads == 1), default=None)


def main() -> None:
    found = ceilings("carm" if "--measure" in sys.argv[1:] else "quick")
    sizes = cache_sizes()
    last = sizes.get("L3") or found.machine.cache_bytes or 1 << 25
    over = 0
    print(f"{'working set':>12} {'level':5} {'rate':>12} {'roof':>12}  of the roof")
    nbytes = 1 << 13
    while nbytes <= 16 * last:
        level = next((name for name in LEVELS[:-1] if nbytes <= sizes.get(name, 0)), "DRAM")
        reached, ceiling = rate(nbytes), roof(found, level)
        told = f"{ceiling / 1e9:7.1f} GB/s  {reached / ceiling:6.2f}" if ceiling else "unknown"
        over += ceiling is not None and reached / ceiling > BEYOND * OVER_RATED_BOARD
        print(f"{nbytes / 1024:9.0f} KiB {level:5} {reached / 1e9:7.1f} GB/s {told}")
        nbytes *= 2
    for note in found.notes:
        print(f"note: {note}")
    print(f"{over} over what a measured ceiling may be low by; ceilings by {found.method}")
    sys.exit(1 if over else 0)


if __name__ == "__main__":
    main()
