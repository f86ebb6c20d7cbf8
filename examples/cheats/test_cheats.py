"""Two benchmarks whose results are right and whose figures cannot be: what ``--roofline`` says of them.

Both pass as tests. With ``--roofline-fail-on=beyond_roof`` both fail, because no kernel moves or computes what they claim in
the time that they took.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from working_set import working_set

Array = NDArray[np.float64]
N = 512


class CachedMatmul:
    """The planted cheat: operands seen before are told by their identity and get the product stored for them.

    It stands for every harness in which the work is not done again: a memo, a captured buffer, a lazy result that no one reads.
    """

    def __init__(self) -> None:
        self.seen: dict[tuple[int, int], Array] = {}

    def __call__(self, a: Array, b: Array) -> Array:
        key = id(a), id(b)
        if key not in self.seen:
            self.seen[key] = a @ b
        return self.seen[key]


@pytest.mark.roofline(op="gemm", M=N, N=N, K=N, dtype="fp64")
def test_cached_result(benchmark: Callable[..., Any]) -> None:
    a, b = np.random.default_rng(1).random((2, N, N))
    assert benchmark(CachedMatmul(), a, b)[0] == pytest.approx(a[0] @ b)


WIDTH = 64
TABLE = working_set() // (8 * WIDTH)
LOOKUPS = 1024


# The planted count: the whole table, of which a lookup reads LOOKUPS rows. Right is LOOKUPS * (2 * 8 * WIDTH + 8): each row
# read and written, and its index. (A count that is off by the width of a dtype is found when the kernel is over 1 / (that
# factor) of its roof; below, no time contradicts it.)
@pytest.mark.roofline(op="gather", bytes=8 * WIDTH * TABLE, dtype="fp64")
def test_overcounted_bytes(benchmark: Callable[..., Any]) -> None:
    rng = np.random.default_rng(2)
    table, rows = np.ones((TABLE, WIDTH)), rng.integers(0, TABLE, LOOKUPS)
    assert (benchmark(np.take, table, rows, axis=0) == 1.0).all()
