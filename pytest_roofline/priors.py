"""What was known before the run: predictions (the skill's artifact) and baselines (earlier times of the same tests)."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from roofline_engine.check import Baseline, Prediction
from roofline_engine.inputs import read_json
from roofline_engine.models import Work
from roofline_engine.peaks import Peaks
from roofline_engine.units import printable, quantity

ARTIFACT_VERSION = "1"
REPORT_SCHEMA = "roofline-report/1"
#: Bytes and FLOPs within this factor may be of one shape: counters see more than a model has.
ALIKE = 1.25


class _Finite(BaseModel):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class _Predicted(_Finite):
    name: str
    short_name: str = ""
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


@dataclass(slots=True)
class Predictions:
    """The entries of one artifact, found by kernel."""

    source: str
    device: str | None
    gfx: str | None
    entries: list[Prediction]
    names: dict[str, list[int]]
    work: list[tuple[float | None, float | None]]

    def match(self, kernel: str | None, test: str) -> Prediction | None:
        """The prediction of a test: by ``kernel=`` (a name, short name or symbol), else by the test function's name."""
        found = self.names.get(kernel) or self.names.get(symbol(kernel)) if kernel else self.names.get(symbol(test))
        if not found or len(found) > 1:
            return None
        return self.entries[found[0]]

    def other_work(self, prediction: Prediction, work: Work) -> str | None:
        """Why a prediction is about another shape than a test's; None when it may be of the same."""
        nbytes, flops = next(work for entry, work in zip(self.entries, self.work) if entry is prediction)
        for what, theirs, mine in (("B", nbytes, work.bytes), ("FLOP", flops, work.flops)):
            if theirs and mine and not 1 / ALIKE <= mine / theirs <= ALIKE:
                return f"it is of {quantity(theirs, what)}, this test of {quantity(mine, what)}"
        return None

    def other_device(self, peaks: Peaks) -> str | None:
        """Why these are of another device than ``peaks``; None when they may be of the same."""
        for mine, theirs in ((peaks.product, self.device), (peaks.gfx, self.gfx)):
            if mine and theirs:
                return None if mine == theirs else f"{self.source}: predicted on {printable(theirs)}, the run is on {mine}"
        return None


def symbol(name: str) -> str:
    """A kernel's or a test's name without template arguments, parameters, namespaces and ``test_``: what the two share."""
    text = name.partition("[")[0].partition("(")[0].partition("<")[0].rpartition("::")[2].strip().lower()
    for prefix in ("test_", "bench_", "benchmark_"):
        text = text.removeprefix(prefix)
    return "".join(ch for ch in text if ch.isalnum())


def read_predictions(path: Path) -> Predictions:
    """Read a profile_roofline.json, or a report of an earlier run.

    Raises:
        ValueError: one line naming the file and the place; also for a version that is not known.
    """
    label, data = _document(path)
    schema, version = data.get("schema"), data.get("skill_version")
    if schema not in (None, REPORT_SCHEMA) or (schema is None and version != ARTIFACT_VERSION):
        told = schema if schema is not None else f"skill_version {version!r}"
        raise ValueError(
            f"{label}: {printable(str(told))[:60]} is not known here, expected skill_version '1' or {REPORT_SCHEMA}"
        )
    artifact = _valid(_Artifact, data, label)
    entries, names = [], dict[str, list[int]]()
    works = [(item.bytes_est, item.flops_est) for item in artifact.entries]
    for at, item in enumerate(artifact.entries):
        kernel = item.kernel or item.short_name or item.name
        entries.append(
            Prediction(
                kernel=kernel,
                attainable_speedup=item.attainable_speedup,
                roofline_pct=item.roofline_pct,
                roof_axis=item.roof_axis,
                headroom_class=item.headroom_class,
                confidence=item.confidence,
                pct_gpu_time=item.pct_gpu_time,
                source=label,
            )
        )
        for name in {item.name, item.short_name, kernel, symbol(item.name), symbol(kernel)} - {""}:
            names.setdefault(name, []).append(at)
    return Predictions(label, artifact.peaks.product, artifact.peaks.gfx, entries, names, works)


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
    return {"machine": platform.machine() or None, "cpu": _cpu_model()}


def _cpu_model() -> str | None:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as handle:
            return next((line.partition(":")[2].strip() for line in handle if line.startswith("model name")), None)
    except OSError:
        return platform.processor() or None


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
