"""The ceilings of a machine: the records, the peaks they make, and one cache file a machine.

Two processes that want the same ceilings measure them once: the cache file has a lock.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

from filelock import FileLock
from pydantic import Field, TypeAdapter, ValidationError

from roofline_engine.files import read_json, to_json, write_whole
from roofline_engine.peaks import CPU, Level, Peaks, join_sentences
from roofline_engine.units import HOST_BANDWIDTH_BOUNDS, HOST_FLOPS_BOUNDS, printable, quantity

from .machine import Machine, Whole

#: The version of the format. 2 has the caches, the working set of a ceiling, and how often its best was reached.
SCHEMA = "roofline-ceilings/2"
#: A round this near to the best one reproduces it, and this many rounds, the best one included, make a ceiling reliable: one
#: fast round may be luck, three at the same rate are a plateau.
REPRODUCES, REPEATS = 0.03, 3
#: The share of a cache in which one set of data reliably stays.
FILL = 0.75
#: More bytes a clock than a core moves to and from its L1: two loads and a store of 64 bytes (Intel and AMD with AVX-512).
_L1_BYTES_A_CLOCK = 192.0
#: More than one core reads from memory: over twice the 100 GB/s of an M1 Max (AnandTech, 2021), the fastest known.
_CORE_BYTES_S = 2.5e11
#: More FLOPs a clock and core than any CPU does, by architecture. On x86: two 512-bit FMA units, and AMX for narrow types (16 x
#: 16 x 64 int8 multiply-adds in 16 clocks, half of them in 16 bits; Intel's optimization manual, chapter 20). Elsewhere: a
#: matrix unit. Apple's SME does 2 TFLOP/s in fp32 at 4.4 GHz, 455 (arXiv:2409.18779), and 4 times that in int8.
_X86_FLOPS = {"fp64": 32.0, "fp32": 64.0, "bf16": 1024.0, "fp16": 1024.0, "int8": 2048.0}
_OTHER_FLOPS = {"fp64": 128.0, "fp32": 512.0, "bf16": 1024.0, "fp16": 1024.0, "int8": 2048.0}
#: A faster clock than any core has, Hz.
_CLOCK_HZ = 6.5e9
#: A measurement with a smaller share than this of its cores shared them. One other program on two cores leaves 0.75 at most;
#: BLAS on a quiet machine has 0.87 of them in a product of 15 ms.
OWN = 0.8
#: The levels, from the cores outwards.
LEVELS = ("L1", "L2", "L3", "DRAM")
#: The names of ceilings by kind, the highest compute ceiling first. ``triad`` is two loads and a store; ``vector`` has no
#: fused multiply-add; ``gemm`` is a whole GEMM, a lower bound of ``vector_fma``.
NAMES = {"bandwidth": ("read", "copy", "add", "triad"), "compute": ("vector_fma", "gemm", "vector", "scalar")}
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
Text = Annotated[str, Field(min_length=1)]

#: Takes one line about a problem.
Say = Callable[[str], None]
#: Longer than any measurement takes: a process that holds the lock for longer hangs.
_LOCK_S = 900.0


def on_stderr(line: str) -> None:
    """Print one line on stderr, the default ``Say``."""
    print(printable(line), file=sys.stderr)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """One ceiling: the best rate that a number of threads reached."""

    name: str  # one of NAMES[kind]
    kind: str  # bandwidth or compute
    level: str | None  # one of LEVELS; None for compute
    dtype: Text
    threads: Whole
    value: Positive  # the best of the rounds, in ``unit``
    median: Positive  # the median of the rounds, in ``unit``
    rounds: Whole
    method: Text  # carm, numpy, memory or torch
    reproduced: Whole = 1  # rounds within REPRODUCES of the best, the best included
    working_set: Whole | None = None  # bytes of all threads' data, for a level of cache
    #: The process' share of the threads' cores in the best round; None if unknown. Well under 1, other programs had the rest
    #: and the ceiling is too low.
    cpu_share: float | None = None

    def __post_init__(self) -> None:
        if self.name not in NAMES.get(self.kind, ()) or (self.level in LEVELS) is not (self.kind == "bandwidth"):
            raise ValueError(f"unknown ceiling: name {self.name!r}, kind {self.kind!r}, level {self.level!r}")

    @property
    def unit(self) -> str:
        return "B/s" if self.kind == "bandwidth" else "FLOP/s"

    @property
    def spread(self) -> float:
        """The distance of the best from the median, as a fraction of the median."""
        return self.value / self.median - 1

    @property
    def steady(self) -> bool:
        """Whether the ceiling is reliable: several rounds reached it, and no other program used the cores."""
        return self.reproduced >= REPEATS and self.had_cores

    @property
    def had_cores(self) -> bool:
        """Whether no other program is known to have used the cores."""
        return self.cpu_share is None or self.cpu_share >= OWN

    @property
    def key(self) -> tuple[str, str | None, str, int, int | None]:
        """What was measured, by any method."""
        dtype = self.dtype if self.kind == "compute" else ""
        return self.name, self.level, dtype, self.threads, self.working_set

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "unit": self.unit}


def explain_impossible(item: Ceiling, arch: str) -> str:
    """Return why no CPU of an architecture reaches a ceiling; empty where one may."""
    low, high = HOST_BANDWIDTH_BOUNDS if item.kind == "bandwidth" else HOST_FLOPS_BOUNDS
    if not low <= item.value <= high:
        return "is outside the range of any CPU: a unit error?"
    if item.kind == "compute":
        most = (_X86_FLOPS if arch in ("x86_64", "amd64") else _OTHER_FLOPS).get(item.dtype)
        what = f"{most:.0f} FLOPs a clock and core" if most else ""
        rate = most * _CLOCK_HZ if most else high
    elif item.level == "DRAM":
        rate, what = _CORE_BYTES_S, f"{quantity(_CORE_BYTES_S, 'B/s')} a core"
    else:
        rate, what = _L1_BYTES_A_CLOCK * _CLOCK_HZ, f"{_L1_BYTES_A_CLOCK:.0f} bytes a clock and core"
    return f"is over {what}" if item.value > rate * item.threads else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """The ceilings of one machine."""

    machine: Machine
    method: Text  # carm, numpy or memory
    date: Text  # UTC, ISO 8601
    clock_mhz: Positive | None  # of the cores just after the measurement; None where the system does not say
    call_s: Positive  # the cost of an empty call, seconds
    items: Annotated[tuple[Ceiling, ...], Field(alias="ceilings")]  # the key in a file
    notes: tuple[str, ...] = ()  # refused ceilings with the reason, and remarks

    def axes(self) -> dict[str, Ceiling]:
        """Return the best ceiling behind ``memory`` and behind each ``vector.<dtype>`` that was measured."""
        return {axis: max(items, key=lambda item: item.value) for axis, items in self._by_axis().items()}

    def _by_axis(self) -> dict[str, list[Ceiling]]:
        """Return the ceilings of each roof: ``memory``, then each ``vector.<dtype>``."""
        roofs: dict[str, list[Ceiling]] = {}
        for item in sorted(self.items, key=lambda item: item.kind):  # bandwidth first
            if item.level == "DRAM" or item.name in ("vector_fma", "gemm"):
                roofs.setdefault("memory" if item.level else f"vector.{item.dtype}", []).append(item)
        return roofs

    def doubtful(self) -> tuple[str, ...]:
        """Return the roofs, and the levels of cache, that are not reliable."""
        return (*(name for name, items in self._by_axis().items() if not _is_reliable(items)), *self._doubtful_levels())

    def _doubtful_levels(self) -> tuple[str, ...]:
        sizes: dict[tuple[str, int], list[Ceiling]] = {}
        for item in self.items:
            if item.working_set is not None and item.level is not None:
                sizes.setdefault((item.level, item.working_set), []).append(item)
        doubtful = {level for (level, _), items in sizes.items() if not _is_reliable(items)}
        return tuple(level for level in LEVELS if level in doubtful)

    def levels(self) -> tuple[Level, ...]:
        """Return the bandwidth for each size of operands that was measured, the smallest first.

        What larger operands reach, smaller ones reach too, and all of them reach what memory does.
        """
        by_size: dict[int, list[Ceiling]] = {}
        for item in self.items:
            if item.working_set is not None:
                by_size.setdefault(item.working_set, []).append(item)
        found: list[Level] = []
        memory = self._by_axis().get("memory")
        if memory:
            by_size[2**62] = memory
        for size, items in sorted(by_size.items(), reverse=True):
            best = max(items, key=lambda item: item.value)
            confidence = "high" if _is_reliable(items) else "low"
            if found and found[-1].bandwidth_bytes_s > best.value:
                found.append(found[-1]._replace(name=best.level or "", bytes=float(size)))
            else:
                found.append(Level(best.level or "", float(size), best.value, confidence))
        return tuple(level for level in reversed(found) if level.bytes < 2**62)

    def disturbed(self) -> str:
        """Name the axes that are too low because other programs used the cores; empty where none is."""
        shared = [axis for axis, item in self.axes().items() if item.cpu_share is not None and item.cpu_share < OWN]
        return f"too low, because other programs used the cores: {', '.join(shared)}" if shared else ""

    def merged(self, *more: Ceiling) -> Ceilings:
        """Add ``more``. Of two ceilings of the same thing the larger stays, because a ceiling is a lower bound."""
        by_key = {item.key: item for item in self.items}
        for item in more:
            by_key[item.key] = _larger(by_key[item.key], item) if item.key in by_key else item
        return replace(self, items=tuple(by_key.values()))

    def peaks(self) -> Peaks:
        """Return the engine's peaks of this CPU. An axis has high confidence where its ceiling is ``steady``."""
        axes = self.axes()
        memory = axes.get("memory")
        doubtful = tuple(axis for axis in self.doubtful() if axis in axes)
        repeats = ", ".join(f"{axis} {item.reproduced} of {item.rounds}" for axis, item in axes.items())
        clock = "clock unknown" if self.clock_mhz is None else f"{self.clock_mhz:.0f} MHz"
        measured = f"{self.machine.cpu}, {self.machine.cores} cores, measured {self.date} by {self.method} ({clock})"
        lower = any(item.name == "gemm" for item in axes.values())
        return Peaks(
            product=CPU,
            hbm_bw_bytes_s=memory.value if memory else None,
            vector={axis.partition(".")[2]: item.value for axis, item in axes.items() if "." in axis},
            l2_bytes=self.machine.cache_bytes,
            units=self.machine.cores,
            source="measured",
            confidence="low" if doubtful or not axes else "high",
            low_axes=doubtful if len(doubtful) < len(axes) else (),
            dispatch_floor_s=self.call_s,
            levels=self.levels(),
            note=join_sentences(
                measured,
                f"rounds within {100 * REPRODUCES:.0f} % of the best: {repeats}" if axes else "",
                self.disturbed(),
                "FLOP/s measured by a GEMM, a lower bound" if lower else "",
                *self.notes,
            ),
        )

    def to_json(self) -> dict[str, object]:
        return {
            "schema": SCHEMA,
            "method": self.method,
            "date": self.date,
            "clock_mhz": self.clock_mhz,
            "call_s": self.call_s,
            "machine": asdict(self.machine),
            "ceilings": [item.to_json() for item in self.items],
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, data: object) -> Ceilings:
        """Read the ceilings of one machine.

        Raises:
            ValueError: in one line, naming the wrong value; also for another version.
        """
        if not isinstance(data, Mapping):
            raise ValueError(f"a JSON {type(data).__name__}, expected an object")
        if data.get("schema") != SCHEMA:
            raise ValueError(f"schema is {data.get('schema')!r}, expected {SCHEMA}")
        try:
            record = TypeAdapter(cls).validate_python(data)
        except ValidationError as error:
            first = error.errors()[0]
            raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        for item in record.items:
            why = explain_impossible(item, record.machine.arch)
            if why:
                raise ValueError(f"{item.name} {item.level or item.dtype}: {format_ceiling(item)} {why}")
        return record


def _is_reliable(items: Collection[Ceiling]) -> bool:
    """Return whether several rounds reached the best of the ceilings of one roof, and the most threads had their cores.

    One thread that had its core is no roof of the machine where the others had none.
    """
    most = max(item.threads for item in items)
    widest = max((item for item in items if item.threads == most), key=lambda item: item.value)
    return max(items, key=lambda item: item.value).steady and widest.had_cores


def _larger(one: Ceiling, other: Ceiling) -> Ceiling:
    """Return the larger ceiling, with the rounds of both where the smaller one reproduces it."""
    high, low = (one, other) if one.value >= other.value else (other, one)
    if low.value < (1 - REPRODUCES) * high.value:
        return high
    share = high.cpu_share if low.cpu_share is None else max(high.cpu_share or 0.0, low.cpu_share)
    return replace(high, rounds=high.rounds + low.rounds, reproduced=high.reproduced + low.reproduced, cpu_share=share)


def format_ceiling(item: Ceiling, value: float | None = None) -> str:
    """Format the ceiling, or another value in its unit, for people."""
    return quantity(item.value if value is None else value, item.unit)


# The cache.


def folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return ``ROOFLINE_CACHE_DIR``, else ``pytest-roofline`` in the user's cache directory of this system.

    A user without a home, as in a container with a numeric user that has no account, gets a temporary folder.
    """
    try:
        if environ.get("ROOFLINE_CACHE_DIR"):
            return Path(environ["ROOFLINE_CACHE_DIR"]).expanduser()
        root = Path(environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME") or "")
        if root.is_absolute():  # the XDG Base Directory Specification ignores a relative path
            return root / "pytest-roofline"
        home = Path("~").expanduser()
        if environ.get("HOME") == "" or not home.is_absolute():
            raise RuntimeError("no home")
        return home / ".cache" / "pytest-roofline"
    except RuntimeError:  # also of expanduser
        return Path(tempfile.gettempdir()) / f"pytest-roofline-{os.getuid() if hasattr(os, 'getuid') else 'cache'}"


def path_of(machine: Machine, where: Path | None = None) -> Path:
    """Return the file of the machine's ceilings."""
    return (folder() if where is None else where) / f"ceilings-{machine.key}.json"


def load(path: Path, machine: Machine, say: Say) -> Ceilings | None:
    """Return the ceilings in the file. Without a file it is None; an unusable file is None too, and ``say`` gets the reason."""
    if not path.exists():
        return None
    try:
        data = read_json(str(path))
        try:
            cached = Ceilings.from_json(data)
            if cached.machine != machine:
                raise ValueError(f"it is of another machine ({cached.machine.cpu}, {cached.machine.cores} cores)")
        except ValueError as error:
            raise ValueError(f"{path.name}: {error}") from None
    except ValueError as error:
        say(f"ceilings not used, measured again: {_one_line(error)}")
        return None
    return cached


def once(
    path: Path,
    machine: Machine,
    is_enough: Callable[[Ceilings], bool],
    make: Callable[[Ceilings | None], Ceilings],
    say: Say,
    force: bool = False,
) -> Ceilings:
    """Return the ceilings in the file where they are enough; else measure with ``make``, which gets them, and write the file.

    ``force`` measures although the file is enough; a measurement that another process made during the call is new enough.
    """
    before = load(path, machine, _ignore)  # the read under the lock reports problems
    if before is not None and is_enough(before) and not force:
        return before

    def change(cached: Ceilings | None) -> Ceilings:
        return cached if cached is not None and is_enough(cached) and not (force and cached == before) else make(cached)

    return settle(path, machine, change, say)


def settle(path: Path, machine: Machine, change: Callable[[Ceilings | None], Ceilings], say: Say) -> Ceilings:
    """Replace the ceilings in the file with what ``change`` returns for them; one process at a time.

    Without write access to the folder the measurement is used and not kept.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(f"{path}.lock")
        lock.acquire(timeout=_LOCK_S)
    except OSError as error:  # Timeout is one too
        say(f"{path.parent}: not kept: {_one_line(error)}")
        return change(load(path, machine, _ignore))
    try:
        cached = load(path, machine, say)
        changed = change(cached)
        if changed != cached:
            try:
                write_whole(str(path), to_json(changed.to_json()))
            except OSError as error:
                say(_one_line(error))
        return changed
    finally:
        lock.release()


def _ignore(line: str) -> None:
    pass


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
