"""Every adapter of this package, and which of them reads a file or rows that a program holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..source import Adapter, RecordRow, Sample
from ..table import TableFormat, table_of
from . import aiter, benchmarks, claims, flashinfer, geak, gemm_libraries, leaderboards, timers, triton

#: In the order in which they are asked: the most particular formats first.
ADAPTERS: tuple[Adapter, ...] = (
    geak.OP_BENCH,
    gemm_libraries.BLAS_BENCH,
    gemm_libraries.CUTLASS,
    benchmarks.NVBENCH,
    benchmarks.NVBENCH_CSV,
    benchmarks.NVBENCH_MARKDOWN,
    timers.CODSPEED,
    timers.PYPERF,
    timers.ASV,
    timers.HYPERFINE,
    benchmarks.PYTEST_BENCHMARK,
    benchmarks.GOOGLE_BENCHMARK,
    flashinfer.TRACE,
    flashinfer.DEFINITION,
    leaderboards.ARENA,
    leaderboards.KERNELBENCH,
    geak.UNITTEST,
    leaderboards.POPCORN,
    triton.LIGER,
    flashinfer.BENCHMARK,
    aiter.TUNED_MOE,
    triton.TRITONBENCH,
    aiter.TUNED_GEMM,
    triton.GEMM_SWEEP,
    claims.CLAIMS,
    claims.JSON_CLAIMS,
    triton.PERF_REPORT,
    aiter.OP_TEST,
)


def choose(sample: Sample, more: Iterable[Adapter] = ()) -> Adapter | None:
    """Return the first adapter that knows the start of a file. Adapters of hooks (``more``) come before this package's."""
    return next((adapter for adapter in (*more, *ADAPTERS) if adapter.matches(sample)), None)


def read_rows(rows: Sequence[Mapping[str, object]], label: str) -> list[RecordRow]:
    """Return the records of rows that a program holds, such as a dict that a test returned. Keys are the columns of a CSV.

    Raises RefusedError when no format has these columns and none of them is a time, or a format needs another column.
    """
    table = table_of(rows, label)
    columns = frozenset(name.lower() for name in table.names)
    tables = (adapter for adapter in ADAPTERS if isinstance(adapter, TableFormat))
    adapter = next((adapter for adapter in tables if adapter.has_columns(columns)), aiter.OP_TEST)
    return list(adapter.read_table(table))
