"""What a measurement of a machine leaves behind: its ceilings, each the best of several rounds, and the peaks they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from roofline_engine.overlay import ROUNDS
from roofline_engine.peaks import Peaks, joined
from roofline_engine.units import number, quantity, whole

from .machine import Machine

#: History: 1 is the first.
SCHEMA = "roofline-ceilings/1"
#: A measurement that had less than this of its cores shared them: one other program on two cores leaves 0.75 at most, and
#: BLAS on a quiet machine has 0.87 of them in a product of 15 ms.
OWN = 0.8
#: From the cores outwards.
LEVELS = ("L1", "L2", "L3", "DRAM")
#: What is measured, by kind; of compute the highest first.
NAMES = {"bandwidth": ("read", "copy", "add", "triad"), "compute": ("vector_fma", "gemm", "vector", "scalar")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """One ceiling: what ``threads`` threads reached at best, in ``unit``.

    name: of bandwidth ``read``, ``copy``, ``add`` and ``triad`` (two loads and a store); of compute ``vector_fma``,
    ``vector`` (no fused multiply-add), ``scalar`` and ``gemm`` (a whole GEMM: a lower bound of ``vector_fma``).
    kind: ``bandwidth`` or ``compute``. level: ``L1``, ``L2``, ``L3`` or ``DRAM``; None for compute. method: who measured.
    value: the best of ``rounds``. median: their middle. cpu_share: of the time of ``threads`` cores, what the process had in
    the best round; well under 1 other programs had the rest, and the best is too low. None where it is not known.
    """

    name: str
    kind: str
    level: str | None
    dtype: str
    threads: int
    value: float
    median: float
    rounds: int
    method: str
    cpu_share: float | None = None

    @property
    def unit(self) -> str:
        return "B/s" if self.kind == "bandwidth" else "FLOP/s"

    @property
    def spread(self) -> float:
        """How far the best lies over the median, as a fraction of the median."""
        return self.value / self.median - 1

    @property
    def steady(self) -> bool:
        """Whether it can be believed: best and median agree, and the cores were its own."""
        return self.spread <= ROUNDS and (self.cpu_share is None or self.cpu_share >= OWN)

    @property
    def key(self) -> tuple[str, str | None, str, int]:
        """What was measured, whoever did it."""
        dtype = self.dtype if self.kind == "compute" else ""
        return self.name, self.level, dtype, self.threads

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "unit": self.unit}

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> Ceiling:
        """Raises ValueError naming what is wrong."""
        level, share = data.get("level"), data.get("cpu_share")
        made = cls(
            name=_text(data, "name"),
            kind=_text(data, "kind"),
            level=None if level is None else _text(data, "level"),
            dtype=_text(data, "dtype"),
            threads=whole(data.get("threads"), "threads", minimum=1),
            value=number(data.get("value"), "value", above=0),
            median=number(data.get("median"), "median", above=0),
            rounds=whole(data.get("rounds"), "rounds", minimum=1),
            method=_text(data, "method"),
            cpu_share=None if share is None else number(share, "cpu_share", minimum=0),
        )
        if made.name not in NAMES.get(made.kind, ()) or (made.level in LEVELS) is not (made.kind == "bandwidth"):
            raise ValueError(f"no ceiling is a {made.name!r} of kind {made.kind!r} and level {made.level!r}")
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """The ceilings of one machine.

    method: ``carm``, ``numpy`` or ``memory``. date: UTC, ISO 8601. clock_mhz: of the cores just after the measurement, None
    where the system does not say. call_s: the cost of an empty call. notes: figures refused, and why.
    """

    machine: Machine
    method: str
    date: str
    clock_mhz: float | None
    call_s: float
    items: tuple[Ceiling, ...]
    notes: tuple[str, ...] = ()

    def best(self, axis: str) -> Ceiling | None:
        """The ceiling behind ``memory`` or ``vector.<dtype>``; None where it was not measured."""
        _, dot, dtype = axis.partition(".")
        if dot:
            found = [item for item in self.items if item.name in ("vector_fma", "gemm") and item.dtype == dtype]
        else:
            found = [item for item in self.items if item.level == "DRAM"]
        return max(found, key=lambda item: item.value, default=None)

    def axes(self) -> dict[str, Ceiling]:
        """The ceiling of every axis that has one."""
        dtypes = dict.fromkeys(item.dtype for item in self.items if item.kind == "compute")
        found = {axis: self.best(axis) for axis in ("memory", *(f"vector.{dtype}" for dtype in dtypes))}
        return {axis: item for axis, item in found.items() if item is not None}

    def disturbed(self) -> str:
        """Which axes are too low because other programs had the cores; empty where none is."""
        shared = [axis for axis, item in self.axes().items() if item.cpu_share is not None and item.cpu_share < OWN]
        return f"other programs used the cores meanwhile, too low: {', '.join(shared)}" if shared else ""

    def merged(self, *more: Ceiling) -> Ceilings:
        """With ``more``; of two ceilings of the same thing the larger stays, since a ceiling is a lower bound."""
        kept = {item.key: item for item in self.items}
        for item in more:
            kept[item.key] = _larger(kept[item.key], item) if item.key in kept else item
        return replace(self, items=tuple(kept.values()))

    def peaks(self) -> Peaks:
        """The engine's peaks of this CPU. An axis has high confidence when its ceiling is ``steady``."""
        axes = self.axes()
        memory = axes.get("memory")
        doubtful = tuple(axis for axis, item in axes.items() if not item.steady)
        spreads = ", ".join(f"{axis} {item.spread:.0%}".replace("%", " %") for axis, item in axes.items())
        rounds = min((item.rounds for item in axes.values()), default=0)
        clock = "clock not known" if self.clock_mhz is None else f"{self.clock_mhz:.0f} MHz"
        said = f"{self.machine.cpu}, {self.machine.cores} cores, measured {self.date} by {self.method} ({clock})"
        lower = any(item.name == "gemm" for item in axes.values())
        return Peaks(
            product="cpu",
            hbm_bw_bytes_s=memory.value if memory else None,
            vector={axis.partition(".")[2]: item.value for axis, item in axes.items() if "." in axis},
            l2_bytes=self.machine.cache_bytes,
            units=self.machine.cores,
            source="measured",
            confidence="low" if doubtful or not axes else "high",
            low_axes=doubtful if len(doubtful) < len(axes) else (),
            dispatch_floor_s=self.call_s,
            note=joined(
                said,
                f"best of at least {rounds} rounds, over their median by: {spreads}" if axes else "",
                self.disturbed(),
                "FLOP/s are those of a GEMM, a lower bound" if lower else "",
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
        """Raises ValueError in one line when ``data`` is not such a record, of another version too."""
        if not isinstance(data, Mapping):
            raise ValueError(f"a JSON {type(data).__name__}, expected an object")
        if data.get("schema") != SCHEMA:
            raise ValueError(f"schema is {data.get('schema')!r}, expected {SCHEMA}")
        listed, machine, notes = data.get("ceilings"), data.get("machine"), data.get("notes", [])
        if not (isinstance(listed, list) and all(isinstance(item, Mapping) for item in listed)):
            raise ValueError("ceilings is no list of objects")
        if not isinstance(machine, Mapping) or not isinstance(notes, list):
            raise ValueError("machine is no object or notes no list")
        clock = data.get("clock_mhz")
        return cls(
            machine=Machine.from_json(machine),
            method=_text(data, "method"),
            date=_text(data, "date"),
            clock_mhz=None if clock is None else number(clock, "clock_mhz", above=0),
            call_s=number(data.get("call_s"), "call_s", above=0),
            items=tuple(Ceiling.from_json(item) for item in listed),
            notes=tuple(str(note) for note in notes),
        )


def _larger(one: Ceiling, other: Ceiling) -> Ceiling:
    """The larger; a doubtful one takes over the rounds of a steady one that confirms it."""
    high, low = (one, other) if one.value >= other.value else (other, one)
    if low.steady and not high.steady and high.value <= (1 + ROUNDS) * low.median:
        return replace(high, median=low.median, rounds=low.rounds, cpu_share=low.cpu_share)
    return high


def shown(item: Ceiling, value: float | None = None) -> str:
    """The figure, or another in its unit, for a person."""
    return quantity(item.value if value is None else value, item.unit)


def _text(data: Mapping[str, object], key: str) -> str:
    value = data.get(key)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{key} is {value!r}, expected text")
    return value
