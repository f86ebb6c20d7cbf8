"""How a call is to be timed: one frozen record, checked when it is made."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """cache: ``cold`` evicts before each round, ``warm`` does not, ``auto`` is cold on a device and warm on the host.
    graph: replay a captured graph (CUDA and HIP through torch). band: the relative width that the median must be known to.
    budget_s: seconds of rounds after which sampling ends, settled or not; min_s: before which it does not. min_rounds: always
    taken, whatever the budget. warmup_calls, warmup_s: both are reached before the first round, or the budget is spent.
    llc_bytes: the last-level cache, memory-side caches included, where the caller knows better than the driver.
    """

    cache: Literal["auto", "cold", "warm"] = "auto"
    graph: bool = False
    band: float = 0.034
    budget_s: float = 1.0
    min_s: float = 0.1
    min_rounds: int = 5
    warmup_calls: int = 3
    warmup_s: float = 0.15
    llc_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.cache not in ("auto", "cold", "warm"):
            raise ValueError(f"cache is {self.cache!r}; expected auto, cold or warm")
        for name in ("band", "budget_s", "min_s", "warmup_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} is {value!r}; expected a number of 0 or more")
        if self.min_rounds < 5:
            raise ValueError(f"min_rounds is {self.min_rounds!r}; expected at least 5, quartiles of fewer say nothing")
        if self.warmup_calls < 1:
            raise ValueError(f"warmup_calls is {self.warmup_calls!r}; expected at least 1")
        if self.llc_bytes is not None and self.llc_bytes <= 0:
            raise ValueError(f"llc_bytes is {self.llc_bytes!r}; expected a positive number of bytes")
