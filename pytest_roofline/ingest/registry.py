"""Every adapter of this package, in the order in which they are asked."""

from __future__ import annotations

from . import (
    Adapter,
    arena,
    definitions,
    geak_lines,
    geak_op_bench,
    google_benchmark,
    kernelbench,
    nvbench,
    popcorn,
    pytest_benchmark,
    trace,
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
)
