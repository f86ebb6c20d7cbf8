"""The quick measurement: stream kernels and GEMM by numpy, in a few seconds and without a compiler.

Bytes are those that the loops name, each array once a pass: a store counts once, not also as the read (write-allocate) that
most CPUs do before it. numpy has no fused triad, so ``triad`` is two passes over blocks that stay in the L2, where the
scaled block is traffic of the cache; ``add`` moves the triad's bytes in one pass.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from .machine import Machine
from .parallel import Team, array_bytes, level_bytes, teams
from .rounds import Kernel

Array = npt.NDArray[np.float64]

#: Elements of a triad's block, 256 KiB: below, the calls cost; above, the L2 of small cores does not hold it.
_BLOCK = 32768
#: Traffic of one call from a cache: a millisecond at most, short enough to be undisturbed in some rounds.
_LEVEL_BYTES = 2**23
#: What BLAS libraries read for their thread count, the more specific first.
_BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "OMP_NUM_THREADS")


def streams(machine: Machine, available: int | None = None) -> tuple[list[Kernel], list[str]]:
    """read, copy, add and triad over arrays larger than the caches, and notes on what is not as it should be."""
    nbytes, note = array_bytes(machine, 3, available)
    arrays = [np.empty(nbytes // 8) for _ in range(3)]
    made = teams(machine)
    shares = made[-1].cut(len(arrays[0]))

    def touch(at: int) -> None:  # by the thread that will use it: its pages lie near it
        for array in arrays:
            array[shares[at]] = 1.0

    made[-1].run(touch)
    return [kernel for team in made for kernel in _streams(team, *arrays)], [note] if note else []


def gemms(machine: Machine, environ: Mapping[str, str] = os.environ) -> tuple[list[Kernel], list[str]]:
    """Square GEMMs, 2 n^3 FLOPs each, on the threads of numpy's BLAS, and a note where those are not all cores."""
    n = 1024 if machine.cores <= 8 else 2048 if machine.cores <= 32 else 4096
    name = next((name for name in _BLAS_THREADS if environ.get(name, "").isdigit()), None)
    threads = min(machine.cores, max(1, int(environ[name]))) if name else machine.cores
    found = [_gemm(n, dtype, np.ones((n, n), kind), threads) for dtype, kind in (("fp32", np.float32), ("fp64", np.float64))]
    return found, [f"GEMM on {threads} of {machine.cores} cores ({name})"] if threads < machine.cores else []


def levels(caches: Mapping[str, tuple[int, int]]) -> list[Kernel]:
    """An addition by one thread from each level of the caches: proof of a rate; too low for a ceiling, as calls cost time."""
    return [_level(level, nbytes) for level, nbytes in level_bytes(caches, 1).items()]


def _level(level: str, nbytes: int) -> Kernel:
    x, y, z = (np.ones(nbytes // 24) for _ in range(3))
    passes = max(1, _LEVEL_BYTES // nbytes)

    def call() -> None:
        for _ in range(passes):
            np.add(y, z, out=x)

    work = 3.0 * x.nbytes * passes
    return Kernel(name="add", kind="bandwidth", level=level, dtype="fp64", threads=1, work=work, call=call)


def _streams(team: Team, a: Array, b: Array, c: Array) -> list[Kernel]:
    mine = [(a[share], b[share], c[share], np.empty(_BLOCK)) for share in team.cut(len(a))]

    def read(at: int) -> None:
        mine[at][1].max()

    def copy(at: int) -> None:
        x, y, _, _ = mine[at]
        np.copyto(x, y)

    def add(at: int) -> None:
        x, y, z, _ = mine[at]
        np.add(y, z, out=x)

    def triad(at: int) -> None:
        x, y, z, block = mine[at]
        for low in range(0, len(x), _BLOCK):
            high = min(low + _BLOCK, len(x))
            scaled = np.multiply(z[low:high], 3.0, out=block[: high - low])
            np.add(y[low:high], scaled, out=x[low:high])

    def kernel(name: str, arrays: int, share: Callable[[int], None]) -> Kernel:
        return Kernel(
            name=name,
            kind="bandwidth",
            level="DRAM",
            dtype="fp64",
            threads=team.threads,
            work=arrays * a.nbytes,
            call=lambda: team.run(share),
        )

    return [kernel("read", 1, read), kernel("copy", 2, copy), kernel("add", 3, add), kernel("triad", 3, triad)]


def _gemm(n: int, dtype: str, operand: npt.NDArray[np.floating], threads: int) -> Kernel:
    out = np.empty_like(operand)
    return Kernel(
        name="gemm",
        kind="compute",
        level=None,
        dtype=dtype,
        threads=threads,
        work=2.0 * n**3,
        call=lambda: np.matmul(operand, operand, out=out),
    )
