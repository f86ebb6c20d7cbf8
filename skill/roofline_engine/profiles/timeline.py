"""Where the time of a device goes, by the union of intervals: kernels that overlap take their time once."""

from __future__ import annotations

import math
from collections.abc import Iterable

from .form import Timeline

#: What an interval is.
COMPUTE, COMMUNICATION, COPY = 0, 1, 2


class _Union:
    """The length of the union of intervals that come in the order of their starts."""

    __slots__ = ("end", "length")

    def __init__(self) -> None:
        self.end, self.length = -math.inf, 0.0

    def add(self, start: float, end: float) -> None:
        if end > self.end:
            self.length += end - max(start, self.end)
            self.end = end


def merge_intervals(device: str, intervals: Iterable[tuple[float, float, int]]) -> Timeline | None:
    """Return the timeline of intervals that come in the order of their starts; nothing of them is kept.

    What is exposed of one kind is the union with it less the union without it.
    """
    compute, communication, copy, kernels, busy = (_Union() for _ in range(5))
    first = None
    for start, end, kind in intervals:
        first = start if first is None else first
        (compute, communication, copy)[kind].add(start, end)
        if kind != COPY:
            kernels.add(start, end)
        busy.add(start, end)
    if first is None:
        return None
    span = busy.end - first
    return Timeline(
        device,
        span,
        busy.length,
        compute.length,
        communication.length,
        kernels.length - compute.length,
        copy.length,
        busy.length - kernels.length,
        max(span - busy.length, 0.0),
    )
