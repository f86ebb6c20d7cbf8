"""The quick measurement: its kernels, memory streams and GEMMs, and the rounds that time them.

A ceiling is what the machine can do, and every disturbance makes a round slower: the best round is the estimate. The rounds
spread over the whole budget, because the speed of some machines swings within a minute.

Bytes are the ones that a loop names, each array once a pass: a store counts once, without the read (write-allocate) that most
CPUs do before it. numpy has no fused triad, so ``triad`` makes two passes over blocks that stay in the L2, where the scaled
block is cache traffic; ``add`` moves the triad's bytes in one pass. numpy is imported only where it measures.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from .machine import Machine, available_bytes
from .store import FILL, LEVELS, REPEATS, REPRODUCES, Ceiling

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

#: The least number of rounds of a ceiling.
ROUNDS = 5
#: A measurement takes up to this many times its budget where rounds have not reproduced the best one.
PATIENCE = 3.0
#: Takes the share of the budget that is spent, 0 to 1.
Tick = Callable[[float], None]
#: Data this many times the size of a cache comes from the level beneath it (the rule of McCalpin's STREAM).
OVER_CACHE = 4
#: Data smaller than this many times a cache comes from that cache as much as from the level beneath.
_APART = 2
#: The assumed last-level cache where the system does not say: about the largest L3 of one socket without stacked dies.
UNKNOWN_CACHE = 2**25
#: The arrays together take at most one part in this many of the available memory.
SHARE_OF_MEMORY = 4
#: Elements of one block of the triad, 256 KiB: in smaller blocks the calls cost; larger ones leave the L2 of small cores.
_BLOCK = 32768
#: Traffic of one call and thread from a cache: a fraction of a millisecond, short enough that some rounds are undisturbed.
_LEVEL_BYTES = 2**24
#: Traffic of one call and thread from memory, some milliseconds: starting the threads takes a few hundredths of one.
_CALL_BYTES = 2**25
#: The variables that BLAS libraries read for their thread count, the more specific first.
_BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "OMP_NUM_THREADS")


class Kernel(NamedTuple):
    """Something to time. The fields that ``Ceiling`` has as well mean the same."""

    name: str
    kind: str
    level: str | None
    dtype: str
    threads: int
    work: float  # the bytes or FLOPs of one call
    call: Callable[[], object]
    working_set: int | None = None

    def ceiling(self, samples: Sequence[tuple[float, float]], method: str) -> Ceiling:
        """Return the ceiling of the rounds' samples: (rate, share of the cores' time) each."""
        rates = [rate for rate, _ in samples]
        return Ceiling(
            **{name: getattr(self, name) for name in ("name", "kind", "level", "dtype", "threads", "working_set")},
            value=max(rates),
            reproduced=_count_near(rates),
            median=statistics.median(rates),
            rounds=len(rates),
            method=method,
            cpu_share=max(samples)[1],
        )


def measure(
    kernels: Sequence[Kernel],
    method: str,
    seconds: float,
    *,
    clock: Callable[[], float] = time.perf_counter,
    cpu: Callable[[], float] = time.process_time,
    tick: Tick | None = None,
) -> tuple[Ceiling, ...]:
    """Return a ceiling of each kernel, after one untimed call that maps its pages and starts its threads.

    Where the best round of a kernel has not been reproduced the rounds go on, to at most PATIENCE times the budget.

    seconds: the budget. clock, cpu: return seconds of wall clock, and of the CPU time of all threads of this process.
    """
    for kernel in kernels:
        kernel.call()
    samples: list[list[tuple[float, float]]] = [[] for _ in kernels]
    start = clock()
    count, spent = 0, 0.0
    while count < ROUNDS or spent < seconds or (spent < PATIENCE * seconds and not _are_reproduced(kernels, samples)):
        for kernel, rounds in zip(kernels, samples):
            cpu_before, before = cpu(), clock()
            kernel.call()
            wall = max(clock() - before, 1e-9)
            rounds.append((kernel.work / wall, min(1.0, (cpu() - cpu_before) / (kernel.threads * wall))))
        count, spent = count + 1, clock() - start
        if tick:
            tick(min(count / ROUNDS, spent / seconds, 1.0))
    return tuple(kernel.ceiling(rounds, method) for kernel, rounds in zip(kernels, samples))


def _count_near(rates: Sequence[float]) -> int:
    """Count the rates that reproduce the best of them, the best included."""
    least = (1 - REPRODUCES) * max(rates)
    return sum(rate >= least for rate in rates)


def _are_reproduced(kernels: Sequence[Kernel], samples: Sequence[Sequence[tuple[float, float]]]) -> bool:
    """Return whether the best kernel of each level and each dtype has been reproduced: the others make no roof."""
    best: dict[tuple[str | None, str], list[float]] = {}
    for kernel, rounds in zip(kernels, samples):
        rates = [rate for rate, _ in rounds]
        group = kernel.level, kernel.dtype
        if max(rates) > max(best.get(group, [0.0])):
            best[group] = rates
    return all(_count_near(rates) >= REPEATS for rates in best.values())


# Threads, and the sizes of the data.


class Team:
    """A number of threads, each of which always works on the same share: the pages it touched first lie near it."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def run(self, share: Callable[[int], object]) -> None:
        """Call ``share(i)`` in each thread and wait for all of them. ``share`` must release the GIL."""
        if self._pool is None:
            share(0)
        else:
            list(self._pool.map(share, range(self.threads)))

    def cut(self, size: int) -> list[slice]:
        """Split ``size`` elements into one slice a thread."""
        edges = [size * at // self.threads for at in range(self.threads + 1)]
        return [slice(low, high) for low, high in pairwise(edges)]


def teams(machine: Machine) -> Sequence[Team]:
    """Return a team of one thread and a team of one thread a core."""
    return [Team(threads) for threads in dict.fromkeys((1, machine.cores))]


def array_bytes(machine: Machine, arrays: int, available: int | None = None) -> tuple[int, str]:
    """Size each of ``arrays`` so that they come from memory. Return the size, and a note where memory is too small for that."""
    target = OVER_CACHE * (machine.cache_bytes or UNKNOWN_CACHE)
    room = available_bytes() if available is None else available
    size = target if room is None else min(target, room // (SHARE_OF_MEMORY * arrays))
    size = max(size, 2**22) // 4096 * 4096
    if size < target:
        return size, f"too little free memory: arrays of {size / 2**20:.0f} MiB, not {OVER_CACHE} times the last-level cache"
    if machine.cache_bytes is None:
        return size, f"the size of the last-level cache is unknown: arrays of {size / 2**20:.0f} MiB"
    return size, ""


def level_bytes(caches: Mapping[str, tuple[int, int]], threads: int) -> dict[str, int]:
    """Return the bytes of each thread's data for each level of ``caches``, which is what ``machine.caches`` returns.

    The size is ``OVER_CACHE`` times the level above, or less where the level itself is small: a virtual machine reports the
    size of a cache and may own only a part of it. A level without a size that is clear of the level above is not in the result.
    """
    sizes: dict[str, int] = {}
    above = 0
    for level, (each, count) in caches.items():
        share = each // math.ceil(threads / count)
        size = min(OVER_CACHE * above or each, int(FILL * share))
        if level in LEVELS and size >= _APART * above:
            sizes[level] = size // 1024 * 1024
        above = share
    return sizes


# The C library's block functions. A foreign call releases the GIL, so all cores take part.


def memory_streams(machine: Machine, available: int | None = None) -> tuple[list[Kernel], list[str]]:
    """Return copy, and read where the C library has ``memcmp``; and a note where the arrays are too small."""
    nbytes, note = array_bytes(machine, 2, available)
    source, target = ((ctypes.c_char * nbytes).from_buffer(bytearray(nbytes)) for _ in range(2))
    for block in (source, target):  # pages that were never written are one page of zeros of the system's, in the cache
        ctypes.memset(block, 1, nbytes)
    return [kernel for team in teams(machine) for kernel in _memory_streams(team, source, target)], [note] if note else []


def _memory_streams(team: Team, source: ctypes.Array[ctypes.c_char], target: ctypes.Array[ctypes.c_char]) -> list[Kernel]:
    start, end = ctypes.addressof(source), ctypes.addressof(target)
    shares = [(share.start, share.stop - share.start) for share in team.cut(len(source))]

    def copy(at: int) -> None:
        offset, size = shares[at]
        ctypes.memmove(end + offset, start + offset, size)

    def kernel(name: str, share: Callable[[int], None]) -> Kernel:
        def call() -> object:
            team.run(share)
            return source, target  # addresses do not keep the blocks alive, this does

        return Kernel(name, "bandwidth", "DRAM", "u8", team.threads, 2 * len(source), call)

    compare = _memcmp()
    if compare is None:
        return [kernel("copy", copy)]

    def read(at: int) -> None:
        offset, size = shares[at]
        compare(end + offset, start + offset, size)

    return [kernel("copy", copy), kernel("read", read)]


def _memcmp() -> Callable[[int, int, int], int] | None:
    """Return the C library's memcmp, which reads two equal blocks to their end; None where ctypes cannot load it (Windows)."""
    try:
        compare = ctypes.CDLL(None).memcmp
    except (OSError, AttributeError, TypeError):
        return None
    compare.argtypes, compare.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t), ctypes.c_int
    return lambda first, second, size: int(compare(first, second, size))


# numpy.


def numpy_streams(machine: Machine, available: int | None = None) -> tuple[list[Kernel], list[str]]:
    """Return read, copy, add and triad over arrays larger than the caches, and a note where the arrays are too small."""
    import numpy as np

    nbytes, note = array_bytes(machine, 3, available)
    arrays = [np.empty(nbytes // 8) for _ in range(3)]
    both = teams(machine)
    shares = both[-1].cut(len(arrays[0]))

    def touch(at: int) -> None:  # by the thread that will use them: their pages lie near it
        for array in arrays:
            array[shares[at]] = 1.0

    both[-1].run(touch)
    return [kernel for team in both for kernel in _numpy_streams(team, *arrays)], [note] if note else []


def _numpy_streams(team: Team, a: Array, b: Array, c: Array) -> list[Kernel]:
    import numpy as np

    def read(_x: Array, y: Array, _z: Array, _block: Array) -> None:
        y.max()

    def copy(x: Array, y: Array, _z: Array, _block: Array) -> None:
        np.copyto(x, y)

    def add(x: Array, y: Array, z: Array, _block: Array) -> None:
        np.add(y, z, out=x)

    def triad(x: Array, y: Array, z: Array, block: Array) -> None:
        for low in range(0, len(x), _BLOCK):
            high = min(low + _BLOCK, len(x))
            scaled = np.multiply(z[low:high], 3.0, out=block[: high - low])
            np.add(y[low:high], scaled, out=x[low:high])

    def kernel(name: str, arrays: int, work: Callable[[Array, Array, Array, Array], None]) -> Kernel:
        """Each call takes the next part of the arrays, so that a round is short and its data has left the caches."""
        parts = max(1, arrays * a.nbytes // (_CALL_BYTES * team.threads))
        shares = team.cut(len(a) // parts)
        blocks = [np.empty(_BLOCK) for _ in shares]
        turns = itertools.cycle(range(parts))

        def call() -> None:
            first = next(turns) * (len(a) // parts)

            def share(at: int) -> None:
                part = slice(first + shares[at].start, first + shares[at].stop)
                work(a[part], b[part], c[part], blocks[at])

            team.run(share)

        return Kernel(name, "bandwidth", "DRAM", "fp64", team.threads, arrays * 8.0 * (len(a) // parts), call)

    return [kernel("read", 1, read), kernel("copy", 2, copy), kernel("add", 3, add), kernel("triad", 3, triad)]


def numpy_gemms(machine: Machine, environ: Mapping[str, str] = os.environ) -> tuple[list[Kernel], list[str]]:
    """Return square GEMMs, 2 n^3 FLOPs each, on the threads of numpy's BLAS; and a note where BLAS uses fewer cores."""
    import numpy as np

    sizes = (512, 1024) if machine.cores <= 8 else (2048,) if machine.cores <= 32 else (4096,)
    name = next((name for name in _BLAS_THREADS if environ.get(name, "").isdigit()), None)
    threads = min(machine.cores, max(1, int(environ[name]))) if name else machine.cores
    kinds = (("fp32", np.float32), ("fp64", np.float64))
    gemms = [_gemm(n, dtype, np.ones((n, n), kind), threads) for dtype, kind in kinds for n in sizes]
    return gemms, [f"GEMM on {threads} of {machine.cores} cores ({name})"] if threads < machine.cores else []


def _gemm(n: int, dtype: str, operand: npt.NDArray[np.floating], threads: int) -> Kernel:
    import numpy as np

    out = np.empty_like(operand)
    return Kernel("gemm", "compute", None, dtype, threads, 2.0 * n**3, lambda: np.matmul(operand, operand, out=out))


#: The dtypes whose ceiling is measured by torch, where a row needs it.
TORCH_DTYPES = ("bf16", "fp16", "int8")


def torch_gemms(machine: Machine, dtype: str) -> list[Kernel]:
    """Return square GEMMs of torch in one of TORCH_DTYPES on all cores; int8 accumulates in int32."""
    import torch

    torch.set_num_threads(machine.cores)
    kinds = {"bf16": torch.bfloat16, "fp16": torch.float16, "int8": torch.int8}
    product = torch._int_mm if dtype == "int8" else torch.mm

    def gemm(n: int) -> Kernel:
        operand = torch.ones(n, n).to(kinds[dtype])
        return Kernel("gemm", "compute", None, dtype, machine.cores, 2.0 * n**3, lambda: product(operand, operand))

    return [gemm(n) for n in ((512, 1024) if machine.cores <= 32 else (2048,))]


def numpy_levels(machine: Machine, sizes: Mapping[str, tuple[int, int]], available: int | None = None) -> list[Kernel]:
    """Return additions by one thread and by all over operands of growing size, from three quarters of the L1 to the memory.

    They end at twice the last level of cache, in steps of two: a virtual machine reports the size of a cache that it shares
    with others, so what a level holds is not known from its size.

    sizes: what ``machine.caches`` returns.
    """
    if not sizes:
        return []
    room = available_bytes() if available is None else available
    most = 2 * (machine.cache_bytes or UNKNOWN_CACHE)
    most = most if room is None else min(most, room // SHARE_OF_MEMORY)
    (first, _), found = next(iter(sizes.values())), []
    for team in teams(machine):
        shares = {level: each // math.ceil(team.threads / count) for level, (each, count) in sizes.items() if level in LEVELS}
        nbytes = int(FILL * first) // 1024 * 1024
        while nbytes * team.threads <= most:
            level = next((name for name, share in shares.items() if nbytes <= share), list(shares)[-1])
            found.append(_level(level, nbytes, team))
            nbytes *= 2
    return found


def _level(level: str, nbytes: int, team: Team) -> Kernel:
    """Add one row of numbers to another, many times in one call that holds no lock: the rows are one row in memory."""
    import numpy as np
    from numpy.lib.stride_tricks import as_strided

    length = nbytes // 16
    repeats = max(1, _LEVEL_BYTES // (24 * length))
    sums = [np.zeros(length) for _ in range(team.threads)]
    rows = [as_strided(np.ones(length), (repeats, length), (0, 8), writeable=False) for _ in sums]

    def share(at: int) -> None:
        np.add.reduce(rows[at], axis=0, out=sums[at])

    work = 24.0 * length * repeats * team.threads
    working_set = 16 * length * team.threads
    return Kernel("add", "bandwidth", level, "fp64", team.threads, work, lambda: team.run(share), working_set)
