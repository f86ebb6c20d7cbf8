"""What is known before a run: predictions with the tests that they belong to, and earlier times of tests."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from roofline_engine.check import CONTENDED, WIDEST_BAND, Baseline, Prediction
from roofline_engine.fields import ARTIFACT_VERSION, Entry
from roofline_engine.files import read_json
from roofline_engine.ops import op_name
from roofline_engine.peaks import Peaks
from roofline_engine.units import TIME_BOUNDS, is_time, printable, quantity
from roofline_engine.work import Work

from .declare import matches
from .row import REPORT_SCHEMA, read_field, read_part, require_field
from .timing.plugins import ROUNDING

#: Bytes and FLOPs within this factor may belong to one shape: counters see more than a model has.
ALIKE = 1.25
#: Bytes and FLOPs within this factor belong to one shape, where only the op names it.
SAME = 1.02
#: Fields of an entry that a prediction is read from.
_PREDICTED = (
    *("name", "short_name", "op", "attainable_speedup", "roofline_pct", "roof_axis", "headroom_class", "confidence"),
    *("pct_gpu_time", "bytes_est", "flops_est"),
)

#: Where the JSON of pytest-benchmark has how long the threads of a run waited for a core.
WAIT_SHARE = "extra_info.roofline.measurement.wait_share"
_TESTS = re.compile(r"^(?:test|bench|benchmark)_+")
#: What autotuners and compilers append to the name of a Triton kernel: block sizes and flags (aiter), how its arguments are
#: specialized (``_0d1d2d3c``), the running number of a cache entry.
_TUNED = re.compile(r"(?:_[A-Z][A-Z0-9_]*_(?:\d+|None|True|False)(?![A-Za-z]).*|_0[dce]*1[\ddce]*|_+\d+)$")
_KERNEL = re.compile(r"^_*kernel_+|_+(?:kernel|jit|impl|triton|cuda|hip)$|^_+|_+$")


def symbol(name: str) -> str:
    """Return what the names of a kernel and of its test share, in lower-case letters and digits.

    Template and launch arguments, namespaces, mangling, tuned suffixes, ``kernel`` and ``test_`` are left out.
    """
    text = _function(name) if name.startswith("_Z") else name.replace("(anonymous namespace)", "")
    text = text.partition("[")[0].partition("(")[0].partition("<")[0].rpartition("::")[2].strip().removeprefix("void ")
    text = _TUNED.sub("", text)
    text = _TESTS.sub("", text.lower())
    while (shorter := _KERNEL.sub("", text)) not in ("", text):
        text = shorter
    return "".join(ch for ch in text if ch.isalnum())


def _function(mangled: str) -> str:
    """Return the function's name in an Itanium-mangled name, which profilers cut short: ``bar`` of ``_ZN3foo3barIfEEvT_``.

    https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling: a source name is its length and its letters.
    """
    nested = mangled.startswith("_ZN")
    at, name = 2 + nested, mangled
    while size := re.match(r"[rVKRO]*(?:St|L)*(\d+)", mangled[at:]):
        at += len(size[0])
        name = mangled[at : at + int(size[1])]
        at += int(size[1])
        if not nested:
            break
    return name


@dataclass(slots=True)
class Predicted:
    """One entry of an artifact."""

    prediction: Prediction
    names: frozenset[str]  # that the kernel goes by
    op: str | None = None
    bytes: float | None = None
    flops: float | None = None

    def other_work(self, work: Work, factor: float = ALIKE) -> str | None:
        """Return why the entry belongs to another shape than ``work``; None when it may be the same."""
        for unit, theirs, mine in (("B", self.bytes, work.bytes), ("FLOP", self.flops, work.flops)):
            if theirs and mine and not 1 / factor <= mine / theirs <= factor:
                return f"the prediction is for {quantity(theirs, unit)}, this test has {quantity(mine, unit)}"
        return None


class Match(NamedTuple):
    """The entry that a test belongs to, or why no entry was chosen among several."""

    entry: Predicted | None = None
    how: str = ""  # how the entry was found
    problem: str = ""


@dataclass(slots=True)
class Predictions:
    """The entries of one artifact."""

    source: str  # the file
    device: str | None
    gfx: str | None
    entries: list[Predicted]
    pins: Mapping[str, str] = field(default_factory=dict)  # glob over nodeids to the name of an entry
    pinned_by: str = ""  # the file with the pins
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
        """Set which test belongs to which entry.

        Raises:
            ValueError: for a name that no entry has, or more than one.
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
        """Find the prediction of a test: by pin, by ``kernel=``, by the kernels that the test launches, by the test's name, and
        last by its op with the same bytes and FLOPs. Of several entries with one name, the entry with the same work is chosen.

        test: the name of the test's function. launched: symbols of kernels.
        """
        pinned = next((name for glob, name in self.pins.items() if matches(glob, nodeid)), None)
        if pinned is not None:
            return Match(self._named[pinned][0], f"pinned by {self.pinned_by}")
        by_name = [*((name, "the kernel it launches") for name in launched), (test, "its name")]
        for name, what in [(kernel, "kernel=")] if kernel else by_name:
            entries = self._named.get(name) or self._folded.get(symbol(name), [])
            if entries:
                return _choose(entries, work, f"by {what}, {printable(name)}")
        if kernel or work is None:
            return Match()
        alike = [
            entry
            for entry in self.entries
            if entry.op == work.op and entry.bytes and entry.flops is not None and not entry.other_work(work, SAME)
        ]
        return _choose(alike, work, f"by its op and work: {work.op} of {quantity(work.bytes, 'B')}") if alike else Match()

    def other_device(self, peaks: Peaks) -> str | None:
        """Return why the predictions belong to another device than ``peaks``; None when it may be the same."""
        for mine, theirs in ((peaks.product, self.device), (peaks.gfx, self.gfx)):
            if mine and theirs:
                return None if mine == theirs else f"{self.source}: predicted on {printable(theirs)}, the run is on {mine}"
        return None


def _choose(fits: list[Predicted], work: Work | None, how: str) -> Match:
    """Return the only entry, or the only entry with the same work."""
    if len(fits) > 1 and work is not None:
        fits = [entry for entry in fits if not entry.other_work(work)] or fits
    if len(fits) == 1:
        return Match(fits[0], how)
    names = ", ".join(printable(entry.prediction.kernel)[:60] for entry in fits[:3])
    return Match(problem=f"{len(fits)} predictions fit {how}: {names}: --roofline-match pins one")


def read_predictions(path: Path) -> Predictions:
    """Read a profile_roofline.json, or the report of an earlier run.

    Raises:
        ValueError: one line with the file and the place; also for an unknown version.
    """
    label, data = _read_document(path)
    schema, version = data.get("schema"), data.get("skill_version")
    if schema not in (None, REPORT_SCHEMA) or (schema is None and version != ARTIFACT_VERSION):
        if schema is None and version is None:
            raise ValueError(f"{label}: neither a profile_roofline.json (skill_version) nor a report ({REPORT_SCHEMA})")
        version_name = schema if schema is not None else f"skill_version {version!r}"
        raise ValueError(
            f"{label}: unknown version {printable(str(version_name))[:60]}, expected skill_version '1' or {REPORT_SCHEMA}"
        )
    device, gfx = (read_field(str, data, f"peaks.{key}", label) for key in ("product", "gfx"))
    return Predictions(
        label, device, gfx, [_read_prediction(item, label, where) for where, item in _items(data, "entries", label)]
    )


def _read_prediction(item: object, label: str, where: str) -> Predicted:
    name = require_field(str, item, "name", where)
    entry = read_part(Entry, item, where, _PREDICTED)
    kernel = read_field(str, item, "kernel", where) or entry.short_name or name
    prediction = Prediction(
        kernel=kernel,
        attainable_speedup=entry.attainable_speedup,
        roofline_pct=entry.roofline_pct,
        roof_axis=entry.roof_axis,
        headroom_class=entry.headroom_class,
        confidence=entry.confidence,
        pct_gpu_time=entry.pct_gpu_time,
        source=label,
    )
    names = frozenset({name, entry.short_name, kernel} - {""})
    return Predicted(prediction, names, op_name(entry.op), entry.bytes_est, entry.flops_est)


def read_pins(path: Path) -> dict[str, str]:
    """Read which test belongs to which prediction: a TOML file of globs over nodeids to names of entries.

    Raises:
        ValueError: one line with the file and the place.
    """
    from .config import read_toml  # imports pydantic

    label = printable(path.name)
    document = read_toml(path)
    pins: dict[str, str] = {}
    for glob, name in document.items():
        if not isinstance(name, str):
            expected = 'expected the name of a prediction, as in "*norm*" = "rms"'
            raise ValueError(f"{label}: {printable(glob)!r} is {printable(repr(name))[:40]}, {expected}")
        pins[glob] = name
    return pins


class Earlier(NamedTuple):
    """The earlier time of a test."""

    baseline: Baseline
    device: str | None  # where the file names one


def read_baselines(path: Path) -> dict[str, Earlier]:
    """Read earlier times by nodeid, from pytest-benchmark JSON or a report; from another machine they are of kind ``unknown``.

    Raises:
        ValueError: one line with the file and the place.
    """
    label, data = _read_document(path)
    if data.get("schema") == REPORT_SCHEMA:
        machine = data.get("machine")
        is_here = _is_this(machine if isinstance(machine, Mapping) else {})
        key, name, device = "entries", "nodeid", "device"
        times, wait = ("measurement.t_s", "measurement.q1_s", "measurement.q3_s"), "measurement.wait_share"
    elif "benchmarks" in data:
        is_here = is_this_machine(data.get("machine_info"))
        key, name, device = "benchmarks", "fullname", "extra_info.roofline.device"
        times, wait = ("stats.median", "stats.q1", "stats.q3"), WAIT_SHARE
    else:
        raise ValueError(f"{label}: neither pytest-benchmark JSON (benchmarks) nor a report ({REPORT_SCHEMA})")
    kind, earlier = "previous" if is_here else "unknown", {}
    for where, item in _items(data, key, label):
        nodeid = require_field(str, item, name, where)
        if key == "entries" and item.get("measurement") is None:
            continue
        median, q1, q3 = (read_field(float, item, path, where) for path in times)
        if median is None or not is_time(median):
            expected = f"expected more than 0, a time from {TIME_BOUNDS[0]:g} to {TIME_BOUNDS[1]:g} s"
            raise ValueError(f"{label}: {printable(nodeid)}: {times[0]} is {median!r}, {expected}")
        spread = (q3 - q1) / median if q1 is not None and q3 is not None else 0.0
        if (q1 or 0.0) > median * (1 + ROUNDING) or (q3 is not None and q3 < median * (1 - ROUNDING)):
            quartiles = f"quartiles {q1} and {q3}, expected the median {median} between them"
            raise ValueError(f"{label}: {printable(nodeid)}: {quartiles}")
        if nodeid in earlier:
            raise ValueError(f"{label}: {printable(nodeid)}: is twice in {key}, expected one time for each test")
        if (read_field(float, item, wait, where) or 0.0) > CONTENDED:
            spread = max(spread, WIDEST_BAND)
        baseline = Baseline(kind, t_s=median, spread=max(0.0, spread), source=label)
        earlier[nodeid] = Earlier(baseline, read_field(str, item, device, where))
    return earlier


def this_machine() -> dict[str, str | None]:
    """Return what identifies the machine of a time: architecture and CPU model."""
    from .ceilings.machine import cpu_model  # imports numpy's kernels; predictions do without

    return {"machine": platform.machine() or None, "cpu": cpu_model()}


def is_this_machine(machine_info: Any) -> bool:
    """Return whether pytest-benchmark's ``machine_info`` may describe this machine: nothing that both know differs."""
    info = machine_info if isinstance(machine_info, Mapping) else {}
    cpu = info.get("cpu")
    return _is_this({"machine": info.get("machine"), "cpu": cpu.get("brand_raw") if isinstance(cpu, Mapping) else None})


def _is_this(machine: Mapping[str, Any]) -> bool:
    here = this_machine()
    return not any(here[key] and machine.get(key) and here[key] != machine[key] for key in here)


def _read_document(path: Path) -> tuple[str, Mapping[str, Any]]:
    data = read_json(os.fspath(path), has_unique_keys=True)
    label = printable(path.name)
    if not isinstance(data, Mapping):
        raise ValueError(f"{label}: is {type(data).__name__}, expected an object")
    return label, data


def _items(data: Mapping[str, Any], key: str, label: str) -> Iterator[tuple[str, Any]]:
    """Yield each item of a list in a document, with its place for messages."""
    items = data.get(key)
    if not isinstance(items, list):
        raise ValueError(f"{label}: {key}: is {type(items).__name__}, expected a list")
    for at, item in enumerate(items):
        yield f"{label}: {key}.{at}", item
