"""The sequencing: every kernel once a round, rounds until the budget is spent, five at least.

A ceiling is what the machine can do, and everything that disturbs a round makes it slower, so the best round is the estimate;
that the rounds are spread over the whole budget is what makes it one on machines whose speed swings within a minute.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from .record import Ceiling

#: Rounds that make a ceiling.
ROUNDS = 5
#: Told how much of the budget is spent, 0 to 1.
Tick = Callable[[float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """Something that can be timed. ``work``: the bytes or FLOPs of one ``call``; the rest as in ``Ceiling``."""

    name: str
    kind: str
    level: str | None
    dtype: str
    threads: int
    work: float
    call: Callable[[], object]

    def ceiling(self, seen: Sequence[tuple[float, float]], method: str) -> Ceiling:
        """Of the (rate, share of the cores' time) of each round."""
        rates = [rate for rate, _ in seen]
        return Ceiling(
            name=self.name,
            kind=self.kind,
            level=self.level,
            dtype=self.dtype,
            threads=self.threads,
            value=max(rates),
            median=statistics.median(rates),
            rounds=len(rates),
            method=method,
            cpu_share=max(seen)[1],
        )


def measure(
    kernels: Sequence[Kernel],
    method: str,
    seconds: float,
    *,
    clock: Callable[[], float] = time.perf_counter,
    cpu: Callable[[], float] = time.process_time,
    tick: Tick | None = None,
) -> tuple[Ceiling, ...]:
    """A ceiling of each kernel, after one untimed call that maps its pages and starts its threads.

    clock, cpu: seconds of wall clock, and of CPU time that all threads of this process had.
    """
    for kernel in kernels:
        kernel.call()
    rates: list[list[tuple[float, float]]] = [[] for _ in kernels]
    start = clock()
    done, spent = 0, 0.0
    while done < ROUNDS or spent < seconds:
        for kernel, seen in zip(kernels, rates):
            had, before = cpu(), clock()
            kernel.call()
            wall = max(clock() - before, 1e-9)
            seen.append((kernel.work / wall, min(1.0, (cpu() - had) / (kernel.threads * wall))))
        done, spent = done + 1, clock() - start
        if tick:
            tick(min(done / ROUNDS, spent / seconds, 1.0))
    return tuple(kernel.ceiling(seen, method) for kernel, seen in zip(kernels, rates))


def best_of(runs: Iterable[Sequence[Ceiling]]) -> tuple[Ceiling, ...]:
    """One ceiling of each key from several runs that each gave one round."""
    seen: dict[object, list[Ceiling]] = {}
    for run in runs:
        for item in run:
            seen.setdefault(item.key, []).append(item)
    return tuple(_joined(items) for items in seen.values())


def _joined(items: list[Ceiling]) -> Ceiling:
    values = [item.value for item in items]
    return replace(items[0], value=max(values), median=statistics.median(values), rounds=len(values))
