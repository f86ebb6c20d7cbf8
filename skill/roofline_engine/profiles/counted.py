"""Files of hardware counters as profiles: the kernels that were counted, with the times of their launches."""

from __future__ import annotations

import os

from ..counters.read import read as read_counters
from ..inputs import times_of
from ..peaks import Device
from ..units import printable
from .form import KernelUse, Profile, Unit


def read(path: str) -> Profile:
    """Read the kernels and times of a file of counters; ``analyze`` takes the counts from the same file.

    Raises:
        ValueError: with one line that names the file and the reason.
    """
    label = printable(os.path.basename(path))
    file = read_counters(path)
    units, untimed = [], 0
    for kernel in file.kernels:
        durations = [1e6 * t_s for t_s in kernel.durations_s]
        if durations:
            times = times_of(durations)
            units.append(Unit((KernelUse(kernel.name, times.calls, times.total_us),), times, durations=durations))
        else:
            untimed += 1
    if not units:
        reasons = [line[len(label) + 2 :] for line in file.problems[:1]]
        wanted = "collect gpu__time_duration.sum" if file.is_nvidia else "give a kernel trace, with this file as --counters"
        raise ValueError("; ".join((f"{label}: {len(file.kernels)} kernels, none with a time", *reasons, wanted)))
    units.sort(key=lambda unit: -unit.times.total_us)
    problems = list(file.problems)
    if untimed:
        problems.append(f"{label}: {untimed} of {len(file.kernels)} kernels have no time: left out")
    device = Device(gfx=file.gfx or (file.archs[0] if len(file.archs) == 1 else None))
    return Profile(file.source, label, tuple(units), device, problems=tuple(problems), is_counted=True)
