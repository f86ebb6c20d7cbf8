"""Every adapter of this package, in the order in which they are asked: the formats with the most particular columns first."""

from __future__ import annotations

from . import Adapter, aiter_gemm, aiter_moe, aiter_table, flashinfer_csv, liger, microbench, tritonbench

ADAPTERS: tuple[Adapter, ...] = (liger, flashinfer_csv, aiter_moe, tritonbench, aiter_gemm, aiter_table, microbench)
