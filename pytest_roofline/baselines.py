"""What is known before a run: predictions (the skill's artifact) with the tests they are of, and earlier times of tests."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from roofline_engine.check import Baseline, Prediction
from roofline_engine.files import read_json
from roofline_engine.peaks import Peaks
from roofline_engine.units import printable, quantity
from roofline_engine.work import Work

from .ceilings.machine import cpu_model
from .config import read_toml
from .declare import matches

#: Bytes and FLOPs within this factor may be of one shape: counters see more than a model has.
ALIKE = 1.25
#: Within this factor they are of one shape, where nothing but the op says so.
SAME = 1.02

_TESTS = re.compile(r"^(?:test|bench|benchmark)_+")
#: What autotuners and compilers append to a Triton kernel's name: its block sizes and flags (aiter), how its arguments are
#: specialised (``_0d1d2d3c``), the running number of a cache entry.
_TUNED = re.compile(r"(?:_[A-Z][A-Z0-9_]*_(?:\d+|None|True|False)(?![A-Za-z]).*|_0[dce]*1[\ddce]*|_+\d+)$")
_KERNEL = re.compile(r"^_*kernel_+|_+(?:kernel|jit|impl|triton|cuda|hip)$|^_+|_+$")


def symbol(name: str) -> str:
    """What the names of a kernel and of its test share: without template and launch arguments, namespaces, mangling, tuned
    suffixes, ``kernel`` and ``test_``; letters and digits in lower case."""
    text = _function(name) if name.startswith("_Z") else name.replace("(anonymous namespace)", "")
    text = text.partition("[")[0].partition("(")[0].partition("<")[0].rpartition("::")[2].strip().removeprefix("void ")
    text = _TUNED.sub("", text)
    text = _TESTS.sub("", text.lower())
    while (shorter := _KERNEL.sub("", text)) not in ("", text):
        text = shorter
    return "".join(ch for ch in text if ch.isalnum())


def _function(mangled: str) -> str:
    """The function's own name out of an Itanium-mangled one, which profilers cut short: of ``_ZN3foo3barIfEEvT_``, ``bar``.

    https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling: source names are their length and their letters.
    """
    nested = mangled.startswith("_ZN")
    at, found = 2 + nested, mangled
    while size := re.match(r"[rVKRO]*(?:St|L)*(\d+)", mangled[at:]):
        at += len(size[0])
        found = mangled[at : at + int(size[1])]
        at += int(size[1])
        if not nested:
            break
    return found


@dataclass(slots=True)
class Predicted:
    """One entry: its prediction, the names it goes by, its op and work."""

    prediction: Prediction
    names: frozenset[str]
    op: str | None = None
    bytes: float | None = None
    flops: float | None = None

    def other_work(self, work: Work, factor: float = ALIKE) -> str | None:
        """Why this is about another shape than ``work``; None when it may be of the same."""
        for what, theirs, mine in (("B", self.bytes, work.bytes), ("FLOP", self.flops, work.flops)):
            if theirs and mine and not 1 / factor <= mine / theirs <= factor:
                return f"it is of {quantity(theirs, what)}, this test of {quantity(mine, what)}"
        return None


class Match(NamedTuple):
    """The entry of a test and how it was found, or why there is none where it could be one of several."""

    entry: Predicted | None = None
    how: str = ""
    problem: str = ""


@dataclass(slots=True)
class Predictions:
    """The entries of one artifact. pins: glob over nodeids to the name of an entry, where the user says which is which."""

    source: str
    device: str | None
    gfx: str | None
    entries: list[Predicted]
    pins: Mapping[str, str] = field(default_factory=dict)
    pinned_by: str = ""
    _named: dict[str, list[Predicted]] = field(init=False)
    _folded: dict[str, list[Predicted]] = field(init=False)

    def __post_init__(self) -> None:
        self._named, self._folded = {}, {}
        for entry in self.entries:
            for name in entry.names:
                self._named.setdefault(name, []).append(entry)
            for name in {symbol(name) for name in entry.names} - {""}:
                self._folded.setdefault(name, []).append(entry)

    def pin(self, pins: Mapping[str, str], source: str) -> None:
        """Take the user's word for which test is of which entry.

        Raises:
            ValueError: for a name that no entry, or more than one, has.
        """
        for glob, name in pins.items():
            count = len(self._named.get(name, ()))
            if count != 1:
                there = "no prediction is" if not count else f"{count} predictions are"
                raise ValueError(f"{source}: {printable(glob)!r}: {there} named {printable(name)!r} in {self.source}")
        self.pins, self.pinned_by = pins, source

    def match(
        self, test: str, *, nodeid: str = "", kernel: str | None = None, launched: Iterable[str] = (), work: Work | None = None
    ) -> Match:
        """The prediction of a test: where the user pins it, by ``kernel=``, by the kernels it launches, by its own name, and
        last by its op where bytes and FLOPs are the same. Of several that fit by name, the one of the same work.

        test: the name of its function. launched: kernels' symbols.
        """
        pinned = next((name for glob, name in self.pins.items() if matches(glob, nodeid)), None)
        if pinned is not None:
            return Match(self._named[pinned][0], f"pinned by {self.pinned_by}")
        by_name = [*((name, "the kernel it launches") for name in launched), (test, "its name")]
        for name, what in [(kernel, "kernel=")] if kernel else by_name:
            found = self._named.get(name) or self._folded.get(symbol(name), [])
            if found:
                return _one(found, work, f"by {what}, {printable(name)}")
        if kernel or work is None:
            return Match()
        alike = [
            entry
            for entry in self.entries
            if entry.op == work.op and entry.bytes and entry.flops is not None and not entry.other_work(work, SAME)
        ]
        return _one(alike, work, f"by its op and work: {work.op} of {quantity(work.bytes, 'B')}") if alike else Match()

    def other_device(self, peaks: Peaks) -> str | None:
        """Why these are of another device than ``peaks``; None when they may be of the same."""
        for mine, theirs in ((peaks.product, self.device), (peaks.gfx, self.gfx)):
            if mine and theirs:
                return None if mine == theirs else f"{self.source}: predicted on {printable(theirs)}, the run is on {mine}"
        return None


def _one(found: Collection[Predicted], work: Work | None, how: str) -> Match:
    """The only one, or the only one of the same work."""
    fits = list(found)
    if len(fits) > 1 and work is not None:
        fits = [entry for entry in fits if not entry.other_work(work)] or fits
    if len(fits) == 1:
        return Match(fits[0], how)
    names = ", ".join(printable(entry.prediction.kernel)[:60] for entry in fits[:3])
    return Match(problem=f"{len(fits)} predictions fit {how}: {names}: --roofline-match pins one")


ARTIFACT_VERSION = "1"
REPORT_SCHEMA = "roofline-report/1"


class _Finite(BaseModel):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class _Predicted(_Finite):
    name: str
    short_name: str = ""
    op: str | None = None
    kernel: str | None = None
    attainable_speedup: float | None = None
    roofline_pct: float | None = None
    roof_axis: str | None = None
    headroom_class: str = "unknown"
    confidence: str = "low"
    pct_gpu_time: float | None = None
    bytes_est: float | None = None
    flops_est: float | None = None


class _Device(_Finite):
    product: str | None = None
    gfx: str | None = None


class _Artifact(_Finite):
    skill_version: str | None = None
    peaks: _Device = _Device()
    entries: list[_Predicted]


class _Stats(_Finite):
    median: float
    q1: float | None = None
    q3: float | None = None


class _Benchmark(_Finite):
    fullname: str
    stats: _Stats
    extra_info: dict[str, Any] = {}


class _Benchmarks(_Finite):
    machine_info: dict[str, Any] = {}
    benchmarks: list[_Benchmark]


class _Time(_Finite):
    t_s: float
    q1_s: float | None = None
    q3_s: float | None = None


class _Row(_Finite):
    nodeid: str
    device: str | None = None
    measurement: _Time | None = None


class _Report(_Finite):
    machine: dict[str, Any] = {}
    entries: list[_Row]


def read_predictions(path: Path) -> Predictions:
    """Read a profile_roofline.json, or a report of an earlier run.

    Raises:
        ValueError: one line naming the file and the place; also for a version that is not known.
    """
    label, data = _document(path)
    schema, version = data.get("schema"), data.get("skill_version")
    if schema not in (None, REPORT_SCHEMA) or (schema is None and version != ARTIFACT_VERSION):
        if schema is None and version is None:
            raise ValueError(f"{label}: neither a profile_roofline.json (skill_version) nor a report ({REPORT_SCHEMA})")
        told = schema if schema is not None else f"skill_version {version!r}"
        raise ValueError(
            f"{label}: {printable(str(told))[:60]} is not known here, expected skill_version '1' or {REPORT_SCHEMA}"
        )
    artifact = _valid(_Artifact, data, label)
    return Predictions(label, artifact.peaks.product, artifact.peaks.gfx, [_entry(item, label) for item in artifact.entries])


def _entry(item: _Predicted, label: str) -> Predicted:
    kernel = item.kernel or item.short_name or item.name
    prediction = Prediction(
        kernel=kernel,
        attainable_speedup=item.attainable_speedup,
        roofline_pct=item.roofline_pct,
        roof_axis=item.roof_axis,
        headroom_class=item.headroom_class,
        confidence=item.confidence,
        pct_gpu_time=item.pct_gpu_time,
        source=label,
    )
    names = frozenset({item.name, item.short_name, kernel} - {""})
    return Predicted(prediction, names, item.op, item.bytes_est, item.flops_est)


def read_pins(path: Path) -> dict[str, str]:
    """Which test is of which prediction: a TOML file of globs over nodeids to names of entries.

    Raises:
        ValueError: one line naming the file and the place.
    """
    label = printable(path.name)
    try:
        found = read_toml(path)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{label}: {error}") from None
    pins: dict[str, str] = {}
    for glob, name in found.items():
        if not isinstance(name, str):
            told = printable(repr(name))[:40]
            raise ValueError(
                f'{label}: {printable(glob)!r} is {told}, expected the name of a prediction, as in "*norm*" = "rms"'
            )
        pins[glob] = name
    return pins


class Earlier(NamedTuple):
    """The earlier time of a test, and the device that its file says it was of."""

    baseline: Baseline
    device: str | None


def read_baselines(path: Path) -> dict[str, Earlier]:
    """Earlier times by nodeid, from pytest-benchmark JSON or a report. Of another machine they are of kind ``unknown``.

    Raises:
        ValueError: one line naming the file and the place.
    """
    label, data = _document(path)
    if data.get("schema") == REPORT_SCHEMA:
        report = _valid(_Report, data, label)
        kind = "previous" if _same(report.machine) else "unknown"
        rows = [(row, row.measurement) for row in report.entries if row.measurement is not None]
        return {
            row.nodeid: Earlier(_baseline(kind, label, m.t_s, m.q1_s, m.q3_s, f"entry {row.nodeid}"), row.device)
            for row, m in rows
        }
    if "benchmarks" not in data:
        raise ValueError(f"{label}: neither pytest-benchmark JSON (benchmarks) nor a report ({REPORT_SCHEMA})")
    document = _valid(_Benchmarks, data, label)
    kind = "previous" if is_here(document.machine_info) else "unknown"
    return {
        item.fullname: Earlier(
            _baseline(kind, label, item.stats.median, item.stats.q1, item.stats.q3, f"benchmark {item.fullname}"),
            _device_of(item.extra_info.get("roofline")),
        )
        for item in document.benchmarks
    }


def _device_of(row: Any) -> str | None:
    device = row.get("device") if isinstance(row, Mapping) else None
    return device if isinstance(device, str) else None


def this_machine() -> dict[str, str | None]:
    """What says that two times are of one machine: architecture and CPU model."""
    return {"machine": platform.machine() or None, "cpu": cpu_model()}


def is_here(machine_info: Any) -> bool:
    """Whether pytest-benchmark's ``machine_info`` may be of this machine: nothing that both know differs."""
    info = machine_info if isinstance(machine_info, Mapping) else {}
    cpu = info.get("cpu")
    return _same({"machine": info.get("machine"), "cpu": cpu.get("brand_raw") if isinstance(cpu, Mapping) else None})


def _same(machine: Mapping[str, Any]) -> bool:
    here = this_machine()
    return not any(here[key] and machine.get(key) and here[key] != machine[key] for key in here)


def _baseline(kind: str, label: str, t_s: float, q1: float | None, q3: float | None, where: str) -> Baseline:
    if not t_s > 0:
        raise ValueError(f"{label}: {printable(where)}: time is {t_s!r} s, expected more than 0")
    spread = (q3 - q1) / t_s if q1 is not None and q3 is not None else 0.0
    return Baseline(kind, t_s=t_s, spread=max(0.0, spread), source=label)


def _document(path: Path) -> tuple[str, Mapping[str, Any]]:
    data = read_json(os.fspath(path))
    label = printable(path.name)
    if not isinstance(data, Mapping):
        raise ValueError(f"{label}: is {type(data).__name__}, expected an object")
    return label, data


def _valid(model: Any, data: Mapping[str, Any], label: str) -> Any:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{label}: {where}: {first['msg']}") from None
