"""Seven kernels of rising arithmetic intensity, in numpy, each with the work that it cannot avoid.

Bytes are compulsory: every operand is read once and every result written once, as if a cache held all that is used again.
Arrays that numpy makes on the way are left out, for they are the implementation's and not the algorithm's. They, and that
numpy's loops run on one core, are why most rows lie below the roof: this distance is what the table is there to show.

The first four work on more than the caches hold (``working_set``), or their rows would say nothing of memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from working_set import working_set

Array = NDArray[np.float64]
Indices = NDArray[np.int32]
Benchmark = Callable[..., Any]

# Stream triad, a = b + s*c (McCalpin, STREAM). An element is 2 FLOPs, two loads and a store of 8 bytes.
TRIAD = math.ceil(working_set() / 24)


def stream_triad(a: Array, b: Array, c: Array) -> Array:
    """numpy has no triad: a product, then a sum, five passes over memory where three are needed."""
    np.multiply(c, 3.0, out=a)
    return np.add(a, b, out=a)


# The target is the engine's own for streaming: 0.875 of the memory roof, the middle of what good streaming kernels reach.
@pytest.mark.roofline(op="elementwise", bytes=24 * TRIAD, flops=2 * TRIAD, dtype="fp64")
def test_stream_triad(benchmark: Benchmark) -> None:
    a, b, c = np.zeros(TRIAD), np.full(TRIAD, 1.0), np.full(TRIAD, 2.0)
    assert (benchmark(stream_triad, a, b, c) == 7.0).all()


# Sparse matrix times vector in CSR, fp64 values and int32 indices. A non-zero is 2 FLOPs and 8 + 4 bytes, the 1/6 FLOP/B of
# the roofline paper (Williams, Waterman and Patterson, CACM 52(4), 2009); a row adds 4 of its start, 8 of x and 8 of y.
PER_ROW = 16
BYTES_A_ROW = 12 * PER_ROW + 20
ROWS = math.ceil(working_set() / BYTES_A_ROW)
# Columns lie this near the diagonal, so that x comes from memory once: 64 KiB of it are in use at a time.
BAND = 4096


def sparse_matvec(values: Array, columns: Indices, starts: Indices, x: Array) -> Array:
    """numpy writes out the gathered x and the products, each as long as the values, before it adds up."""
    return np.add.reduceat(values * x[columns], starts)


# The target is that of a gather, a streaming op: 15 of 16 bytes are streams, and the gathered x lies in the cache.
@pytest.mark.roofline(op="gather", bytes=BYTES_A_ROW * ROWS, flops=2 * PER_ROW * ROWS, dtype="fp64")
def test_sparse_matvec(benchmark: Benchmark) -> None:
    rng = np.random.default_rng(1)
    columns = rng.integers(-BAND, BAND, PER_ROW * ROWS, dtype=np.int32)
    columns += np.repeat(np.arange(ROWS, dtype=np.int32), PER_ROW)
    np.clip(columns, 0, ROWS - 1, out=columns)
    starts = np.arange(0, PER_ROW * ROWS, PER_ROW, dtype=np.int32)
    values, x = rng.random(PER_ROW * ROWS), rng.random(ROWS)
    y = benchmark(sparse_matvec, values, columns, starts, x)
    for row in (0, ROWS // 2, ROWS - 1):
        part = slice(PER_ROW * row, PER_ROW * (row + 1))
        assert y[row] == pytest.approx(values[part] @ x[columns[part]])


# One Jacobi sweep of the 7-point stencil over a cube: 6 additions and 2 multiplications a point inside, u read once, v written
# once inside; the planes before and behind come from the cache. At most 8 FLOPs in 16 bytes, as in the roofline paper, whose
# lower figure counts what a store reads before it writes. The measured ceiling leaves that out too.
SIDE = 2 + math.ceil((working_set() / 16) ** (1 / 3))
INSIDE = (SIDE - 2) ** 3


def stencil(u: Array, v: Array) -> Array:
    """Plane by plane, so that what a plane's seven passes use again is in the cache."""
    for at in range(1, len(u) - 1):
        plane, result = u[at], v[at, 1:-1, 1:-1]
        np.add(u[at - 1, 1:-1, 1:-1], u[at + 1, 1:-1, 1:-1], out=result)
        for beside in (plane[:-2, 1:-1], plane[2:, 1:-1], plane[1:-1, :-2], plane[1:-1, 2:]):
            result += beside
        result *= 0.125
        result += 0.25 * plane[1:-1, 1:-1]
    return v


# The target is that of streaming: with its neighbours in the cache a stencil is one stream in and one out.
@pytest.mark.roofline(op="elementwise", bytes=8 * (SIDE**3 + INSIDE), flops=8 * INSIDE, dtype="fp64")
def test_stencil(benchmark: Benchmark) -> None:
    u, v = np.random.default_rng(2).random((SIDE, SIDE, SIDE)), np.zeros((SIDE, SIDE, SIDE))
    v = benchmark(stencil, u, v)
    around = u[0, 1, 1] + u[2, 1, 1] + u[1, 0, 1] + u[1, 2, 1] + u[1, 1, 0] + u[1, 1, 2]
    assert v[1, 1, 1] == pytest.approx(0.125 * around + 0.25 * u[1, 1, 1])


# Complex FFTs of 2^20 points: 5 N log2 N FLOPs each, by the convention of FFTW's benchFFT (fftw.org/speed/method.html), N
# points of 16 bytes read and written once.
POINTS = 2**20
TRANSFORMS = math.ceil(working_set() / (32 * POINTS))


# The target: a transform too large for the caches of a core passes over memory twice (Bailey's four steps, 1024 by 1024
# points), each pass at most at the 0.875 of streaming. A weak prior: half of that.
@pytest.mark.roofline(
    bytes=32 * POINTS * TRANSFORMS,
    flops=5 * POINTS * int(math.log2(POINTS)) * TRANSFORMS,
    dtype="fp64",
    target_eff=0.875 / 2,
)
def test_fft(benchmark: Benchmark) -> None:
    wave = np.exp(2j * np.pi * 3 * np.arange(POINTS) / POINTS)
    spectra = benchmark(np.fft.fft, np.tile(wave, (TRANSFORMS, 1)))
    assert np.abs(spectra).argmax(axis=1).tolist() == [3] * TRANSFORMS
    assert spectra[:, 3] == pytest.approx(POINTS)


# Dense GEMM, square: 2 n^3 FLOPs, A, B and C once each. Both tests have the same work, the engine's own model and target.
N = 512


def gemm_naive(a: Array, b: Array, out: Array) -> Array:
    """numpy's own loop nest, without BLAS, blocks or a second core."""
    return np.einsum("ik,kj->ij", a, b, out=out, optimize=False)


@pytest.mark.roofline(op="gemm", M=N, N=N, K=N, dtype="fp64")
def test_gemm_naive(benchmark: Benchmark) -> None:
    a, b = np.random.default_rng(3).random((2, N, N))
    assert np.allclose(benchmark(gemm_naive, a, b, np.empty((N, N))), a @ b)


@pytest.mark.roofline(op="gemm", M=N, N=N, K=N, dtype="fp64")
def test_gemm_tuned(benchmark: Benchmark) -> None:
    """The BLAS that numpy was built with, on all cores."""
    a, b = np.random.default_rng(3).random((2, N, N))
    assert np.allclose(benchmark(np.matmul, a, b, np.empty((N, N)))[:8], (a[:8, :, None] * b).sum(axis=1))


def accelerations(bodies: Array, rows: int = 16) -> Array:
    """Of bodies x, y, z and mass; a few against all at a time, whose distances and weights stay in the cache."""
    place, mass = bodies[:3], bodies[3]
    found = np.empty_like(place)
    for low in range(0, place.shape[1], rows):
        away = place[:, None, :] - place[:, low : low + rows, None]
        squares = np.einsum("cij,cij->ij", away, away) + 1e-4
        weight = mass / (squares * np.sqrt(squares))
        np.einsum("cij,ij->ci", away, weight, out=found[:, low : low + rows])
    return found


@pytest.mark.parametrize("bodies", [1024])
def test_n_body(roofline: Any, bodies: int) -> None:
    """All pairs of softened gravity: 20 FLOPs each by GPU Gems 3, chapter 31, where a square root and a division count as one.

    A body is four numbers in and three out. The target is what NVIDIA's sample of that chapter reports: 1.8 of the 3.52 TFLOP/s
    of a Tesla K20c. A weak prior for a CPU, whose square roots and divisions are slower beside its multiply-adds.
    """
    roofline(bytes=8 * 7 * bodies, flops=20 * bodies**2, dtype="fp64", target_eff=0.51)
    universe = np.random.default_rng(4).random((4, bodies))
    pull = roofline.measure(accelerations, universe)
    assert np.abs(pull @ universe[3]).max() < 1e-9 * np.abs(pull).sum()  # momentum stays
