"""Measured ceilings of a machine that does not exist."""

from __future__ import annotations

from typing import Any

from pytest_roofline.ceilings.machine import Machine
from pytest_roofline.ceilings.store import Ceiling, Ceilings

BOX = Machine(cpu="Box 1", arch="x86_64", cores=2, memory_bytes=2**34, cache_bytes=2**25)


def bandwidth(value: float, level: str = "DRAM", *, name: str = "read", median: float | None = None, **keys: Any) -> Ceiling:
    keys = {"threads": 2, "rounds": 5, "reproduced": 5, "method": "carm", **keys}
    return Ceiling(name=name, kind="bandwidth", level=level, dtype="fp64", value=value, median=median or value, **keys)


def compute(
    value: float, name: str = "vector_fma", dtype: str = "fp32", *, median: float | None = None, **keys: Any
) -> Ceiling:
    keys = {"threads": 2, "rounds": 5, "reproduced": 5, "method": "carm", **keys}
    return Ceiling(name=name, kind="compute", level=None, dtype=dtype, value=value, median=median or value, **keys)


def of_box(*items: Ceiling, **keys: Any) -> Ceilings:
    keys = {"method": "carm", "date": "2026-01-02T03:04:05Z", "clock_mhz": 3000.0, "call_s": 5e-8, **keys}
    return Ceilings(machine=BOX, items=items, **keys)
