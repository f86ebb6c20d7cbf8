"""The ceilings of this machine: from the cache, or measured by the best method it has."""

from __future__ import annotations

import importlib.util
import timeit
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from roofline_engine.peaks import Peaks

from . import cache, carm, crosscheck, rounds
from .cache import Say, on_stderr
from .machine import Machine, caches, clock_mhz, this_machine
from .record import Ceiling, Ceilings
from .rounds import Kernel, Tick

#: The better the later.
METHODS = ("memory", "numpy", "carm")
#: The budget of each; of carm the least it can be, five passes of half a minute.
SECONDS = {"memory": 2.0, "numpy": 3.0, "carm": 150.0}
#: Rounds of a millisecond before carm's passes and after them, one at least of them undisturbed.
_LEVELS_S = 0.5


def cpu_peaks(method: str = "quick", seconds: float | None = None, *, where: Path | None = None, say: Say = on_stderr) -> Peaks:
    """This CPU's peaks, ``source`` measured; the arguments are those of ``ceilings``."""
    return ceilings(method, seconds, where=where, say=say).peaks()


def ceilings(
    method: str = "quick",
    seconds: float | None = None,
    *,
    force: bool = False,
    where: Path | None = None,
    say: Say = on_stderr,
    tick: Tick | None = None,
) -> Ceilings:
    """The ceilings of this machine, from its cache file where that holds them by ``method`` or a better one.

    method: ``carm``, ``numpy`` or ``memory``; ``auto`` the best of them that this machine has; ``quick`` the best that takes
    a few seconds. seconds: the budget, at least five rounds whatever it is. force: measure although the cache holds them.
    where: the cache's folder. say: told in one line what went otherwise.

    Raises:
        ValueError: when ``method`` names one that this machine lacks.
    """
    machine = this_machine()
    wanted = _choose(method, machine)

    def good(found: Ceilings) -> bool:
        return found.method in METHODS and METHODS.index(found.method) >= METHODS.index(wanted)

    def make() -> Ceilings:
        budget = SECONDS[wanted] if seconds is None else seconds
        if wanted != "carm":
            return _quick(machine, wanted, budget, tick)
        try:
            return _long(machine, budget, say, tick)
        except ValueError as error:
            if method == "carm":
                raise
            say(f"{error}; measured by {_choose('quick', machine)} instead")
            return _quick(machine, _choose("quick", machine), SECONDS["numpy"], tick)

    return cache.once(cache.path_of(machine, where), machine, good, make, say, force)


def remeasure(found: Ceilings, axis: str, seconds: float = 1.0, *, where: Path | None = None, say: Say = on_stderr) -> Ceilings:
    """Measure ``memory`` or ``vector.<dtype>`` once more, because a row exceeds it, and keep the larger of the two.

    ``found`` itself where nothing came out larger; else the larger is in the cache file too.
    """
    machine, method = found.machine, _quick_method()
    if axis == "memory":
        kernels = [kernel for kernel in _streams(machine, method)[0] if kernel.threads == machine.cores]
    else:
        kernels = [kernel for kernel in _gemms(machine, method)[0] if axis == f"vector.{kernel.dtype}"]
    again = rounds.measure(kernels, method, seconds) if kernels else ()
    return keep_larger(found, again, where=where, say=say)


def keep_larger(found: Ceilings, again: tuple[Ceiling, ...], *, where: Path | None = None, say: Say = on_stderr) -> Ceilings:
    """``found`` with what ``again`` has larger, which goes into the cache file as well."""
    if found.merged(*again) == found:
        return found

    def change(held: Ceilings | None) -> Ceilings:
        return (held or found).merged(*found.items, *again)

    return cache.settle(cache.path_of(found.machine, where), found.machine, change, say)


def _choose(method: str, machine: Machine) -> str:
    lacking = carm.missing(machine) if method in ("auto", "carm") else ""
    if method == "auto":
        return _quick_method() if lacking else "carm"
    if method == "quick":
        return _quick_method()
    if method not in METHODS:
        raise ValueError(f"method is {method!r}, expected auto, quick, {', '.join(METHODS)}")
    if method == "numpy" and _quick_method() != "numpy":
        lacking = "numpy is not installed (the extra: pytest-roofline[cpu])"
    if lacking:
        raise ValueError(f"method {method}: {lacking}")
    return method


def _quick_method() -> str:
    return "numpy" if importlib.util.find_spec("numpy") else "memory"


def _quick(machine: Machine, method: str, seconds: float, tick: Tick | None) -> Ceilings:
    kernels, notes = _kernels(machine, method)
    return _record(machine, method, rounds.measure(kernels, method, seconds, tick=tick), notes)


def _long(machine: Machine, seconds: float, say: Say, tick: Tick | None) -> Ceilings:
    """carm's passes between two quick measurements: what a busy minute does to the one shows in the other."""
    method = _quick_method()
    kernels, notes = _kernels(machine, method)
    levels, notes = _levels(method), notes + carm.left_out(machine, caches())
    before = rounds.measure(kernels, method, SECONDS[method] / 2)
    proof = rounds.measure(levels, method, _LEVELS_S)
    passed = carm.measure(machine, seconds, tick)
    quick = _record(machine, "carm", before, notes).merged(*rounds.measure(kernels, method, SECONDS[method] / 2))
    proof += rounds.measure(levels, method, _LEVELS_S)
    wrong = crosscheck.refused(passed, (*quick.items, *proof))
    for line in wrong.values():
        say(line)
    sound = [item for item in passed if item not in wrong]
    kept = quick.merged(*sound, *crosscheck.raised(sound, proof))
    return replace(kept, notes=(*kept.notes, *wrong.values()))


def _kernels(machine: Machine, method: str) -> tuple[list[Kernel], list[str]]:
    """Everything a quick method measures, and its notes."""
    (streams, notes), (gemms, more) = _streams(machine, method), _gemms(machine, method)
    return streams + gemms, notes + more


def _streams(machine: Machine, method: str) -> tuple[list[Kernel], list[str]]:
    if method == "memory":
        from . import memory_kernels

        return memory_kernels.streams(machine)
    from . import numpy_kernels

    return numpy_kernels.streams(machine)


def _gemms(machine: Machine, method: str) -> tuple[list[Kernel], list[str]]:
    if method == "memory":
        return [], ["bandwidth alone: compute ceilings need numpy"]
    from . import numpy_kernels

    return numpy_kernels.gemms(machine)


def _levels(method: str) -> list[Kernel]:
    if method == "memory":
        return []
    from . import numpy_kernels

    return numpy_kernels.levels(caches())


def _record(machine: Machine, method: str, items: tuple[Ceiling, ...], notes: list[str]) -> Ceilings:
    return Ceilings(
        machine=machine,
        method=method,
        date=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        clock_mhz=clock_mhz(),
        call_s=empty_call_s(),
        items=items,
        notes=tuple(notes),
    )


def empty_call_s() -> float:
    """What calling a function that does nothing costs: the dispatch floor of work that is called from Python."""
    calls = 10_000
    return min(timeit.repeat(_nothing, number=calls, repeat=5)) / calls


def _nothing() -> None:
    pass
