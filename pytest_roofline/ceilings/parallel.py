"""The same work on a share of the data in each of several threads, timed as one call."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

from .machine import Machine, available_bytes
from .record import LEVELS

#: Data this many times a cache comes from the level beneath it (the rule of McCalpin's STREAM).
OVER_CACHE = 4
#: Data less than this many times a cache come from it as much as from the level beneath.
_APART = 2
#: The most of a cache that one set of data can be counted on to stay in.
_FILL = 0.75
#: Where the size of the cache is not known; the largest one-socket L3 without stacked dies is about this.
UNKNOWN_CACHE = 2**25
#: The most of the memory that can be had now.
SHARE_OF_MEMORY = 4


class Team:
    """``threads`` threads, each always with the same share: the pages it touched first are near it."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def run(self, share: Callable[[int], object]) -> None:
        """``share(i)`` for each thread's number, until the last has ended. The call of ``share`` must release the GIL."""
        if self._pool is None:
            share(0)
        else:
            list(self._pool.map(share, range(self.threads)))

    def cut(self, size: int) -> list[slice]:
        """``size`` elements in one slice a thread."""
        edges = [size * at // self.threads for at in range(self.threads + 1)]
        return [slice(low, high) for low, high in pairwise(edges)]


def teams(machine: Machine) -> Sequence[Team]:
    """One thread and all of them."""
    return [Team(threads) for threads in dict.fromkeys((1, machine.cores))]


def array_bytes(machine: Machine, arrays: int, available: int | None = None) -> tuple[int, str]:
    """The size of each of ``arrays`` so that they come from memory, and a note where there is too little of it for that."""
    wanted = OVER_CACHE * (machine.cache_bytes or UNKNOWN_CACHE)
    room = available_bytes() if available is None else available
    size = wanted if room is None else min(wanted, room // (SHARE_OF_MEMORY * arrays))
    size = max(size, 2**22) // 4096 * 4096
    if size < wanted:
        return size, f"arrays of {size / 2**20:.0f} MiB for want of memory, not {OVER_CACHE} times the last-level cache"
    if machine.cache_bytes is None:
        return size, f"the cache's size is not known, arrays of {size / 2**20:.0f} MiB"
    return size, ""


def level_bytes(caches: Mapping[str, tuple[int, int]], threads: int) -> dict[str, int]:
    """Bytes of each thread's data for each level of ``caches``, as ``machine.caches`` gives them.

    ``OVER_CACHE`` times the level above, less where the level itself is small: a virtual machine is told a cache's size and may
    get a part of it. A level is left out where no size lies clear of the one above.
    """
    found, above = {}, 0
    for level, (each, count) in caches.items():
        share = each // math.ceil(threads / count)
        size = min(OVER_CACHE * above or each, int(_FILL * share))
        if level in LEVELS and size >= _APART * above:
            found[level] = size // 1024 * 1024
        above = share
    return found
