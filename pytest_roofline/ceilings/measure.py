"""The ceilings of this machine: from the cache, or measured by the best method that the machine has.

``carm`` measures between two quick measurements, and the results are compared. A ceiling is a lower bound, and a disturbance
makes a measurement slower. Where two ceilings contradict each other, the lower one is therefore wrong: a cache slower than
the memory beneath it, vector units slower than scalar code. A figure is wrong for being large only where it exceeds what any
CPU can do.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import timeit
from argparse import ArgumentParser, Namespace
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from pydantic import TypeAdapter

from roofline_engine.files import to_json
from roofline_engine.peaks import Peaks
from roofline_engine.units import number, printable, quantity

from ..report.console import progress
from . import carm, kernels, store
from .kernels import Kernel, Tick
from .machine import Machine, caches, clock_mhz, this_machine
from .store import LEVELS, NAMES, REPRODUCES, Ceiling, Ceilings, Say, format_ceiling, on_stderr

#: The methods, the best last.
METHODS = ("memory", "numpy", "carm")
#: The default budget of each. That of carm is its minimum: five passes of half a minute.
SECONDS = {"memory": 2.0, "numpy": 4.0, "carm": 150.0}
#: Seconds that torch takes to start and to measure one dtype, and after which it hangs.
_TORCH_S, _TORCH_LIMIT_S = 5.0, 120.0
#: Two methods on one level differ by up to 1.3, from stores that skip the cache and from page sizes; two levels by 2 or more.
_METHODS_DIFFER = 1.5
#: The same thing measured twice in a minute on a busy machine.
_NOISE = 1.10
#: Compute ceilings, none of which may be slower than the ones after it, as with the levels.
_STACK = ("vector_fma", "vector", "scalar")


def cpu_peaks(method: str = "quick", seconds: float | None = None, *, where: Path | None = None, say: Say = on_stderr) -> Peaks:
    """Return this CPU's peaks, with the source ``measured``; the arguments are those of ``ceilings``."""
    return ceilings(method, seconds, where=where, say=say).peaks()


def ceilings(
    method: str = "quick",
    seconds: float | None = None,
    *,
    force: bool = False,
    where: Path | None = None,
    say: Say = on_stderr,
    tick: Tick | None = None,
    announce: Say | None = None,
) -> Ceilings:
    """Return the ceilings of this machine, from its cache file where that has them by ``method`` or by a better one.

    Args:
        method: ``carm``, ``numpy`` or ``memory``; ``auto`` is the best of them here; ``quick`` the best that takes seconds.
        seconds: the budget; at least five rounds are measured in any case.
        force: measure although the cache has the ceilings. Of two ceilings of one thing the larger stays.
        where: the folder of the cache.
        say: called with one line for each problem.
        tick: called with the share of the work that is done.
        announce: called with one line before a measurement.

    Raises:
        ValueError: when this machine lacks ``method``.
    """
    machine = this_machine()
    chosen = _choose(method, machine)

    def is_enough(cached: Ceilings) -> bool:
        return cached.method in METHODS and METHODS.index(cached.method) >= METHODS.index(chosen)

    path = store.path_of(machine, where)

    def make(cached: Ceilings | None) -> Ceilings:
        budget = SECONDS[chosen] if seconds is None else seconds
        if announce is not None:
            announce(f"measuring the ceilings of this machine once, about {budget:.0f} s; kept in {path}")
        measured = take(budget)
        if cached is None:
            return measured
        for line in _explain_kept(cached, measured):
            say(line)
        return measured.merged(*cached.items)

    def take(budget: float) -> Ceilings:
        if chosen != "carm":
            return _quick(machine, chosen, budget, tick)
        try:
            return _long(machine, budget, say, tick)
        except ValueError as error:
            if method == "carm":
                raise
            say(f"{error}; measured by {_quick_method()} instead")
            return _quick(machine, _quick_method(), SECONDS["numpy"], tick)

    return store.once(path, machine, is_enough, make, say, force)


def _explain_kept(cached: Ceilings, measured: Ceilings) -> Iterator[str]:
    """Yield one line for each roof that stays, because an earlier measurement of this machine reached more."""
    now = measured.axes()
    for axis, item in cached.axes().items():
        if axis in now and now[axis].value < (1 - REPRODUCES) * item.value:
            kept, reached = format_ceiling(item), format_ceiling(now[axis])
            yield f"{axis}: kept {kept} of {cached.date}: a ceiling is a lower bound, and this measurement reached {reached}"


def remeasure(
    old: Ceilings, axes: Collection[str], seconds: float = 1.0, *, where: Path | None = None, say: Say = on_stderr
) -> Ceilings:
    """Measure ``memory``, levels such as ``L3`` and ``vector.<dtype>`` again, and keep the larger ceilings.

    Return ``old`` itself where nothing grew and no rounds confirm it; other ceilings go into the cache file as well.
    """
    machine, method = old.machine, _quick_method()
    doubted: list[Kernel] = []
    if "memory" in axes:
        doubted += [kernel for kernel in _streams(machine, method)[0] if kernel.threads == machine.cores]
    if any(axis in LEVELS for axis in axes):
        doubted += [kernel for kernel in _levels(machine, method) if kernel.level in axes and kernel.threads == machine.cores]
    if any(axis.startswith("vector.") for axis in axes):
        doubted += [kernel for kernel in _gemms(machine, method)[0] if f"vector.{kernel.dtype}" in axes]
    again = kernels.measure(doubted, method, seconds) if doubted else ()
    return keep_larger(old, again, where=where, say=say)


def add_dtype(
    old: Ceilings, dtype: str, *, where: Path | None = None, say: Say = on_stderr, announce: Say | None = None
) -> Ceilings:
    """Measure the compute ceiling of one of TORCH_DTYPES by torch, in a process, and keep it; ``old`` itself without torch.

    A machine that converts can compute 16-bit floating point at the rate of fp32, so fp32's ceiling is a lower bound of theirs.
    """
    if importlib.util.find_spec("torch") is None:
        return old
    if announce is not None:
        announce(f"measuring the {dtype} ceiling of this CPU with torch once, about {_TORCH_S:.0f} s; kept with the others")
    code = f"import {__name__} as measure; measure.print_torch_ceilings({dtype!r})"
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=_TORCH_LIMIT_S, check=True)
        items = TypeAdapter(tuple[Ceiling, ...]).validate_json(done.stdout.splitlines()[-1])
    except subprocess.CalledProcessError as error:
        say(f"the {dtype} ceiling was not measured: torch: {(error.stderr.strip().splitlines() or ['no output'])[-1]}")
        return old
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired) as error:
        say(f"the {dtype} ceiling was not measured: {type(error).__name__}")
        return old
    fp32 = old.axes().get("vector.fp32")
    if fp32 is not None and dtype in ("bf16", "fp16"):
        items = (*items, replace(fp32, name="gemm", dtype=dtype))
    return keep_larger(
        old, tuple(item for item in items if not store.explain_impossible(item, old.machine.arch)), where=where, say=say
    )


def print_torch_ceilings(dtype: str) -> None:
    """Measure one of TORCH_DTYPES in this process and print the ceilings as one line of JSON."""
    items = kernels.measure(kernels.torch_gemms(this_machine(), dtype), "torch", _TORCH_S / 2)
    print(TypeAdapter(tuple[Ceiling, ...]).dump_json(items).decode())


def keep_larger(old: Ceilings, again: tuple[Ceiling, ...], *, where: Path | None = None, say: Say = on_stderr) -> Ceilings:
    """Return ``old`` with the larger of ``again``, and put those into the cache file as well."""
    if old.merged(*again) == old:
        return old

    def change(cached: Ceilings | None) -> Ceilings:
        kept = cached or old
        known = {item.key: item.value for item in kept.items}
        return kept.merged(*(item for item in old.items if item.value > known.get(item.key, 0.0)), *again)

    return store.settle(store.path_of(old.machine, where), old.machine, change, say)


def _choose(method: str, machine: Machine) -> str:
    lacking = carm.missing(machine) if method in ("auto", "carm") else ""
    if method == "auto":
        return _quick_method() if lacking else "carm"
    if method == "quick":
        return _quick_method()
    if method not in METHODS:
        raise ValueError(f"method is {method!r}, expected auto, quick, {', '.join(METHODS)}")
    if method == "numpy" and _quick_method() != "numpy":
        lacking = "numpy is not installed (pip install pytest-roofline[cpu])"
    if lacking:
        raise ValueError(f"method {method}: {lacking}")
    return method


def _quick_method() -> str:
    return "numpy" if importlib.util.find_spec("numpy") else "memory"


def _quick(machine: Machine, method: str, seconds: float, tick: Tick | None) -> Ceilings:
    quick_kernels, notes = _kernels(machine, method)
    return _record(machine, method, kernels.measure(quick_kernels, method, seconds, tick=tick), notes)


def _long(machine: Machine, seconds: float, say: Say, tick: Tick | None) -> Ceilings:
    """Run carm's passes between two quick measurements: what a busy minute does to the one shows in the other."""
    method = _quick_method()
    quick_kernels, notes = _kernels(machine, method)
    notes += carm.left_out(machine, caches())
    before = kernels.measure(quick_kernels, method, SECONDS[method] / 2)
    passed = carm.measure(machine, seconds, tick)
    quick = _record(machine, "carm", before, notes).merged(*kernels.measure(quick_kernels, method, SECONDS[method] / 2))
    wrong = refused(passed, quick.items, machine.arch)
    for line in wrong.values():
        say(line)
    combined = quick.merged(*(item for item in passed if item not in wrong))
    return replace(combined, notes=(*combined.notes, *wrong.values()))


def _kernels(machine: Machine, method: str) -> tuple[list[Kernel], list[str]]:
    """Return all kernels of a quick method, and its notes."""
    (streams, notes), (gemms, more) = _streams(machine, method), _gemms(machine, method)
    return streams + _levels(machine, method) + gemms, notes + more


def _levels(machine: Machine, method: str) -> list[Kernel]:
    return kernels.numpy_levels(machine, caches()) if method == "numpy" else []


def _streams(machine: Machine, method: str) -> tuple[list[Kernel], list[str]]:
    return kernels.memory_streams(machine) if method == "memory" else kernels.numpy_streams(machine)


def _gemms(machine: Machine, method: str) -> tuple[list[Kernel], list[str]]:
    if method == "memory":
        return [], ["bandwidth only: compute ceilings need numpy"]
    return kernels.numpy_gemms(machine)


def _record(machine: Machine, method: str, items: tuple[Ceiling, ...], notes: list[str]) -> Ceilings:
    record = Ceilings(
        machine=machine,
        method=method,
        date=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        clock_mhz=clock_mhz(),
        call_s=empty_call_s(),
        items=(),
        notes=tuple(notes),
    )
    return record.merged(*items)  # two sizes of a GEMM are one ceiling


def empty_call_s() -> float:
    """Return the cost of calling an empty function: the dispatch floor of work that is called from Python."""
    calls = 10_000
    return min(timeit.repeat(lambda: None, number=calls, repeat=5)) / calls


# The comparison of carm's ceilings with each other and with the quick ones.


def refused(long: Sequence[Ceiling], quick: Sequence[Ceiling], arch: str = "x86_64") -> dict[Ceiling, str]:
    """Return the ceilings of ``long`` that must be wrong, each with the reason in one line."""
    wrong = {
        item: why
        for item in long
        if (why := store.explain_impossible(item, arch) or _against_quick(item, quick) or _beaten(item, long, quick))
    }
    sound = [item for item in long if item not in wrong]
    wrong.update({item: why for item in sound if (why := _against_lower(item, sound))})
    return {item: f"{_label(item)}: {format_ceiling(item)} {why}; not used" for item, why in wrong.items()}


def _label(item: Ceiling) -> str:
    what = f"{item.level} {item.name}" if item.level else f"{item.name} {item.dtype}"
    return f"{item.method}: {what}, {_threads(item)}"


def _threads(item: Ceiling) -> str:
    return f"{item.threads} thread{'s' * (item.threads > 1)}"


def _against_quick(item: Ceiling, quick: Sequence[Ceiling]) -> str:
    alike = [other for other in quick if other.threads == item.threads]
    if item.level == "DRAM":
        memory = max((other.value for other in alike if other.level == "DRAM"), default=item.value)
        if item.value > _METHODS_DIFFER * memory:
            bandwidth = quantity(memory, "B/s")
            return f"is over {_METHODS_DIFFER} times the {bandwidth} of {alike[0].method}: measured out of a cache?"
        if item.value * _METHODS_DIFFER < memory:
            return f"is far under the {quantity(memory, 'B/s')} of {alike[0].method}: the machine was busy"
    if item.name == "vector_fma":
        gemm = max((other.value for other in alike if (other.name, other.dtype) == ("gemm", item.dtype)), default=0.0)
        if item.value * _NOISE < gemm:
            return f"is under the {quantity(gemm, 'FLOP/s')} of a GEMM: the machine was busy"
    return ""


def _beaten(item: Ceiling, long: Sequence[Ceiling], quick: Sequence[Ceiling]) -> str:
    """For a cache: say that its best ceiling is under what as many threads or fewer reached from it or from beneath it."""
    if item.level not in LEVELS[:-1]:
        return ""
    here = item.level, item.threads
    best = max(other.value for other in long if (other.level, other.threads) == here)
    beneath = LEVELS[LEVELS.index(item.level) :]
    proof = [other for other in quick if other.level in beneath and other.threads <= item.threads]
    beats = [
        other for other in proof if other.value > best * (_METHODS_DIFFER if (other.level, other.threads) == here else _NOISE)
    ]
    winner = max(beats, key=lambda other: other.value, default=None)
    if winner is None:
        return ""
    what = f"{winner.method}'s {winner.name} from {winner.level}, {_threads(winner)}"
    return f"is under the {format_ceiling(winner)} of {what}: the machine was busy"


def _against_lower(item: Ceiling, sound: Sequence[Ceiling]) -> str:
    for order, place in ((LEVELS, item.level), (_STACK, item.name)):
        lower = order[order.index(place) + 1 :] if place in order else ()
        for other in sound:
            beneath = other.level if order is LEVELS else other.name
            alike = (other.threads, other.dtype) == (item.threads, item.dtype) and (order is _STACK or other.name == item.name)
            if alike and beneath in lower and other.value > _NOISE * item.value:
                cause = "disturbed, or too large for the cache" if item.level else "disturbed"
                return f"is under the {format_ceiling(other)} of {beneath}: {cause}"
    return ""


#: The exit status of a command that was interrupted, as shells give it.
_INTERRUPTED = 130
_METHODS = ("auto", *reversed(METHODS))


def configure(parser: ArgumentParser) -> None:
    """Add the options of ``roofline peaks measure``."""
    methods = f"{', '.join(_METHODS)} (default: auto, the best one available)"
    parser.add_argument("--method", metavar="METHOD", choices=_METHODS, default="auto", help=methods)
    parser.add_argument("--seconds", metavar="N", help="spread the rounds over this many seconds (carm: at least five passes)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--force", action="store_true", help="measure although the cache holds this machine's ceilings")
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    """Measure, unless the cache has the ceilings, and print them."""
    seconds = None if options.seconds is None else float(number(options.seconds, "--seconds", above=0))
    try:
        with progress("measuring", 1.0, redraw=False) as tick:
            measured = ceilings(options.method, seconds, force=options.force, say=on_stderr, tick=tick)
    except KeyboardInterrupt:
        on_stderr("interrupted: nothing was measured or kept")
        return _INTERRUPTED
    if options.json:
        sys.stdout.write(to_json({"peaks": measured.peaks().to_dict(), **measured.to_json()}))
    else:
        print("\n".join(table(measured)))
    return 0


def table(measured: Ceilings) -> list[str]:
    """Format the machine, each ceiling with its spread, and the peaks they make."""
    machine, peaks = measured.machine, measured.peaks()
    cache = "unknown" if machine.cache_bytes is None else f"{machine.cache_bytes / 2**20:.4g} MiB"
    clock = "" if measured.clock_mhz is None else f", {measured.clock_mhz:.0f} MHz"
    lines = [f"{printable(machine.cpu)}, {machine.cores} cores{clock}, last-level cache {cache}"]
    lines += [f"measured {measured.date} by {measured.method}", ""]
    head = f"{'ceiling':11} {'level':5} {'dtype':5} {'threads':>7} {'set':>10} {'best':>13} {'median':>13}"
    lines.append(f"{head} {'rounds':>6} {'at best':>7} {'cores':>6}  by")
    for item in sorted(measured.items, key=_place):
        median = format_ceiling(item, item.median)
        share = "-" if item.cpu_share is None else f"{item.cpu_share:.0%}"
        size = "-" if item.working_set is None else f"{item.working_set / 1024:.0f} KiB"
        lines.append(
            f"{item.name:11} {item.level or '-':5} {item.dtype:5} {item.threads:7} {size:>10} {format_ceiling(item):>13} "
            f"{median:>13} {item.rounds:6} {item.reproduced:7} {share:>6}  {item.method}"
        )
    lines.append("")
    for axis, item in measured.axes().items():
        lines.append(f"roof {axis:12} {format_ceiling(item)}, confidence {peaks.axis_confidence(axis)}")
    for level in peaks.levels:
        rate, size = quantity(level.bandwidth_bytes_s, "B/s"), f"{level.name} {level.bytes / 1024:.0f} KiB"
        lines.append(f"roof {size:12} {rate}, confidence {level.confidence}")
    lines += [f"empty call        {measured.call_s * 1e9:.3g} ns", *(f"note: {printable(note)}" for note in measured.notes)]
    if measured.disturbed():
        lines.append(f"note: {measured.disturbed()}; measure again with --force when the machine is quiet")
    return lines


def _place(item: Ceiling) -> tuple[int, int, str, str, int]:
    """Sort all threads first, levels from the cores outwards, the highest ceiling first."""
    return (
        -item.threads,
        (*NAMES["compute"], *LEVELS).index(item.level or item.name),
        item.dtype,
        item.name,
        item.working_set or 0,
    )
