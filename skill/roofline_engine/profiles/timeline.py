"""Where the time of a device goes, by the union of intervals: kernels that overlap take their time once."""

from __future__ import annotations

from collections.abc import Iterable

from .form import Timeline

#: What an interval is.
COMPUTE, COMMUNICATION, COPY = 0, 1, 2


def measure_timeline(device: str, intervals: Iterable[tuple[float, float, int]]) -> Timeline | None:
    """Return the timeline of these intervals (start, end in microseconds, kind); None without one."""
    edges = []
    for start, end, kind in intervals:
        edges.append((start, 1, kind))
        edges.append((end, -1, kind))
    if not edges:
        return None
    edges.sort(key=lambda edge: edge[0])
    running = [0, 0, 0]
    busy = compute = communication = exposed_communication = copy = exposed_copy = 0.0
    before = edges[0][0]
    for at, step, kind in edges:
        passed = at - before
        if passed > 0:
            computes, communicates, copies = running
            if computes or communicates or copies:
                busy += passed
            if computes:
                compute += passed
            if communicates:
                communication += passed
                if not computes:
                    exposed_communication += passed
            if copies:
                copy += passed
                if not computes and not communicates:
                    exposed_copy += passed
            before = at
        running[kind] += step
    span = edges[-1][0] - edges[0][0]
    return Timeline(
        device, span, busy, compute, communication, exposed_communication, copy, exposed_copy, max(span - busy, 0.0)
    )
