"""Copies, concatenations and conversions in numpy."""

import numpy as np
import pytest


@pytest.mark.parametrize("mib", [1, 16, 128])
def test_copy(benchmark, mib):
    x = np.ones(mib * 2**17)
    benchmark(np.copy, x)


def test_concatenate(benchmark):
    parts = [np.ones((1000, 100)) for _ in range(10)]
    benchmark(np.concatenate, parts)


def test_to_single_precision(benchmark):
    x = np.ones(3_000_000)
    benchmark(lambda: x.astype(np.float32))


def test_take_rows(benchmark):
    table = np.ones((20_000, 128), np.float32)
    rows = np.random.default_rng(3).integers(0, 20_000, 5_000)
    benchmark(np.take, table, rows, axis=0)


def test_sort(benchmark):
    x = np.random.default_rng(4).random(200_000)
    benchmark(np.sort, x)
