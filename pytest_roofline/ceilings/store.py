"""The ceilings of a machine: the records, the peaks they make, and one cache file a machine.

Two processes that want the same ceilings measure them once: the cache file has a lock.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

from filelock import FileLock
from pydantic import Field, TypeAdapter, ValidationError

from roofline_engine.files import to_json, write_whole
from roofline_engine.peaks import CPU, Peaks, join_sentences
from roofline_engine.peaks_measured import ROUNDS
from roofline_engine.units import printable, quantity

from .machine import Machine, Whole

#: The version of the format: 1 is the first.
SCHEMA = "roofline-ceilings/1"
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
    method: Text  # carm, numpy or memory
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
        """Whether the ceiling is reliable: best and median agree, and no other program used the cores."""
        return self.spread <= ROUNDS and (self.cpu_share is None or self.cpu_share >= OWN)

    @property
    def key(self) -> tuple[str, str | None, str, int]:
        """What was measured, by any method."""
        dtype = self.dtype if self.kind == "compute" else ""
        return self.name, self.level, dtype, self.threads

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "unit": self.unit}


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
        best: dict[str, Ceiling] = {}
        for item in sorted(self.items, key=lambda item: item.kind):  # bandwidth first
            if item.level == "DRAM" or item.name in ("vector_fma", "gemm"):
                axis = "memory" if item.level else f"vector.{item.dtype}"
                best[axis] = max(best.get(axis, item), item, key=lambda one: one.value)
        return best

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
        doubtful = tuple(axis for axis, item in axes.items() if not item.steady)
        spreads = ", ".join(f"{axis} {item.spread:.0%}".replace("%", " %") for axis, item in axes.items())
        rounds = min((item.rounds for item in axes.values()), default=0)
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
            note=join_sentences(
                measured,
                f"best of at least {rounds} rounds, over their median by: {spreads}" if axes else "",
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
            return TypeAdapter(cls).validate_python(data)
        except ValidationError as error:
            first = error.errors()[0]
            raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def _larger(one: Ceiling, other: Ceiling) -> Ceiling:
    """Return the larger ceiling. A doubtful one gets the rounds of a steady one that confirms it."""
    high, low = (one, other) if one.value >= other.value else (other, one)
    if low.steady and not high.steady and high.value <= (1 + ROUNDS) * low.median:
        return replace(high, median=low.median, rounds=low.rounds, cpu_share=low.cpu_share)
    return high


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
        root = environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
        return Path(root or "~/.cache").expanduser() / "pytest-roofline"
    except RuntimeError:  # expanduser
        return Path(tempfile.gettempdir()) / f"pytest-roofline-{os.getuid() if hasattr(os, 'getuid') else 'cache'}"


def path_of(machine: Machine, where: Path | None = None) -> Path:
    """Return the file of the machine's ceilings."""
    return (folder() if where is None else where) / f"ceilings-{machine.key}.json"


def load(path: Path, machine: Machine, say: Say) -> Ceilings | None:
    """Return the ceilings in the file. Without a file it is None; an unusable file is None too, and ``say`` gets the reason."""
    try:
        cached = Ceilings.from_json(json.loads(path.read_text(encoding="utf-8")))
        if cached.machine != machine:
            raise ValueError(f"it is of another machine ({cached.machine.cpu}, {cached.machine.cores} cores)")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        say(f"{path.name}: not used, measured again: {_one_line(error)}")
        return None
    return cached


def once(
    path: Path,
    machine: Machine,
    is_enough: Callable[[Ceilings], bool],
    make: Callable[[], Ceilings],
    say: Say,
    force: bool = False,
) -> Ceilings:
    """Return the ceilings in the file where they are enough; else measure with ``make`` and write the file.

    ``force`` measures although the file is enough; a measurement that another process made during the call is new enough.
    """
    before = load(path, machine, _ignore)  # the read under the lock reports problems
    if before is not None and is_enough(before) and not force:
        return before

    def change(cached: Ceilings | None) -> Ceilings:
        return cached if cached is not None and is_enough(cached) and not (force and cached == before) else make()

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
                say(f"{path.name}: not kept: {_one_line(error)}")
        return changed
    finally:
        lock.release()


def _ignore(line: str) -> None:
    pass


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
