"""Every adapter of this package, in the order in which they are asked."""

from __future__ import annotations

from . import Adapter, aiter_gemm

ADAPTERS: tuple[Adapter, ...] = (aiter_gemm,)
