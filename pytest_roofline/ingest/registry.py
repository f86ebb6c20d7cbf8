"""Every adapter of this package, in the order in which they are asked: the most particular formats first."""

from __future__ import annotations

from . import (
    Adapter,
    aiter_gemm,
    aiter_moe,
    aiter_table,
    arena,
    definitions,
    flashinfer_csv,
    geak_lines,
    geak_op_bench,
    google_benchmark,
    kernelbench,
    liger,
    microbench,
    nvbench,
    popcorn,
    pytest_benchmark,
    trace,
    tritonbench,
)

ADAPTERS: tuple[Adapter, ...] = (
    geak_op_bench,
    nvbench,
    pytest_benchmark,
    google_benchmark,
    trace,
    definitions,
    arena,
    kernelbench,
    geak_lines,
    popcorn,
    liger,
    flashinfer_csv,
    aiter_moe,
    tritonbench,
    aiter_gemm,
    aiter_table,
    microbench,
)
