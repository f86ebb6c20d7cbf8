"""Every adapter of this package, in the order in which they are asked: the most particular formats first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from . import (
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
from .source import Adapter, Sample

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


def adapters() -> Sequence[Adapter]:
    """Those of this package, the narrower formats first."""
    return ADAPTERS


def choose(source_start: str, suffix: str, more: Iterable[Adapter] = ()) -> Adapter | None:
    """The first adapter that knows the start of a file; those of hooks are asked before ours."""
    sample = Sample(source_start, suffix)
    return next((adapter for adapter in (*more, *adapters()) if adapter.matches(sample)), None)
