"""Run every kernel once a round until the budget is spent, five rounds at least.

A ceiling is what the machine can do, and every disturbance makes a round slower: the best round is the estimate. The rounds
spread over the whole budget, because the speed of some machines swings within a minute.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from .store import Ceiling

#: The least number of rounds of a ceiling.
ROUNDS = 5
#: Takes the share of the budget that is spent, 0 to 1.
Tick = Callable[[float], None]


class Kernel(NamedTuple):
    """Something to time. The fields that ``Ceiling`` has as well mean the same."""

    name: str
    kind: str
    level: str | None
    dtype: str
    threads: int
    work: float  # the bytes or FLOPs of one call
    call: Callable[[], object]

    def ceiling(self, samples: Sequence[tuple[float, float]], method: str) -> Ceiling:
        """Return the ceiling of the rounds' samples: (rate, share of the cores' time) each."""
        rates = [rate for rate, _ in samples]
        return Ceiling(
            **{name: getattr(self, name) for name in ("name", "kind", "level", "dtype", "threads")},
            value=max(rates),
            median=statistics.median(rates),
            rounds=len(rates),
            method=method,
            cpu_share=max(samples)[1],
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
    """Return a ceiling of each kernel, after one untimed call that maps its pages and starts its threads.

    Args:
        kernels: what to time.
        method: named in the ceilings.
        seconds: the budget.
        clock: returns wall-clock seconds.
        cpu: returns the seconds of CPU time that all threads of this process have had.
        tick: called with the share of the budget that is spent.
    """
    for kernel in kernels:
        kernel.call()
    samples: list[list[tuple[float, float]]] = [[] for _ in kernels]
    start = clock()
    count, spent = 0, 0.0
    while count < ROUNDS or spent < seconds:
        for kernel, rounds in zip(kernels, samples):
            cpu_before, before = cpu(), clock()
            kernel.call()
            wall = max(clock() - before, 1e-9)
            rounds.append((kernel.work / wall, min(1.0, (cpu() - cpu_before) / (kernel.threads * wall))))
        count, spent = count + 1, clock() - start
        if tick:
            tick(min(count / ROUNDS, spent / seconds, 1.0))
    return tuple(kernel.ceiling(rounds, method) for kernel, rounds in zip(kernels, samples))


def best_of(runs: Iterable[Sequence[Ceiling]]) -> tuple[Ceiling, ...]:
    """Return one ceiling of each key from several runs of one round each."""
    by_key: dict[object, list[Ceiling]] = {}
    for run in runs:
        for item in run:
            by_key.setdefault(item.key, []).append(item)
    return tuple(_joined(items) for items in by_key.values())


def _joined(items: list[Ceiling]) -> Ceiling:
    values = [item.value for item in items]
    return replace(items[0], value=max(values), median=statistics.median(values), rounds=len(values))
