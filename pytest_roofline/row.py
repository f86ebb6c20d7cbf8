"""One row of a run: the engine's entry of a test, with where its figures come from and what the check says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roofline_engine.check import Baseline, Check, Measurement, Overhead, Prediction, overhead
from roofline_engine.fields import ByteModel, Entry, read_notes, to_dict
from roofline_engine.units import number, parse_dtype
from roofline_engine.work import Work

from .declare import Declared


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured, or at least declared, kernel.

    device: the key of its peaks in the report. roof_s: seconds at the roof, the least that its work can take. work_source:
    ``marker``, ``fixture``, ``hook``, ``config``, ``extra_info``, ``properties``, ``captured``, ``returned``, ``names``, what a
    collected file calls it, or None. engine: the units its FLOPs run on, ``matrix`` or ``vector``. group: its benchmark group.
    failed: the line with which a gate failed its test. path, line: of the test, for messages.
    """

    nodeid: str
    entry: Entry
    check: Check
    device: str | None = None
    roof_s: float | None = None
    work_source: str | None = None
    engine: str | None = None
    measurement: Measurement | None = None
    baseline: Baseline | None = None
    prediction: Prediction | None = None
    group: str | None = None
    kernel: str | None = None
    failed: str | None = None
    path: str = ""
    line: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The entry of the report, plain builtins: the skill's fields first, then pytest's."""
        measurement = self.measurement
        return {
            **to_dict(self.entry),
            "nodeid": self.nodeid,
            "kernel": self.kernel,
            "group": self.group,
            "device": self.device,
            "roof_s": self.roof_s,
            "measurement": None if measurement is None else _plain(measurement),
            "overhead": None if self.overhead is None else _plain(self.overhead),
            "work": {"source": self.work_source, "engine": self.engine},
            "baseline": None if self.baseline is None else _plain(self.baseline),
            "prediction": None if self.prediction is None else _plain(self.prediction),
            "check": _plain(self.check),
            "failed": self.failed,
            "path": self.path,
            "line": self.line,
        }

    @property
    def overhead(self) -> Overhead | None:
        """What of the call's wall time is no device time, where both are known."""
        launches = self.entry.launches_per_unit
        return None if self.measurement is None else overhead(self.measurement, launches)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Row:
        """The row that ``to_dict`` wrote."""
        entry = {key: _tuple(value) for key, value in data.items() if key in Entry._fields}
        entry["notes"] = read_notes(data["notes"], data.get("note_codes", ()))
        entry["byte_models"] = tuple(ByteModel(**model) for model in data["byte_models"])

        def part(key: str, kind: Any) -> Any:
            value = data.get(key)
            return None if value is None else kind(**{name: _tuple(item) for name, item in value.items()})

        return cls(
            entry=Entry(**entry),
            check=part("check", Check),
            measurement=part("measurement", Measurement),
            baseline=part("baseline", Baseline),
            prediction=part("prediction", Prediction),
            work_source=data["work"]["source"],
            engine=data["work"]["engine"],
            **{key: data[key] for key in ("nodeid", "device", "roof_s", "group", "kernel", "failed", "path", "line")},
        )

    def to_json(self) -> str:
        """One string of plain builtins: what travels from an xdist worker to the controller."""
        return json.dumps(self.to_dict(), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Row:
        """The row that ``to_json`` wrote."""
        return cls.from_dict(json.loads(text))


def _plain(record: Any) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in record._asdict().items()}


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@dataclass(slots=True, kw_only=True)  # not frozen: a frozen one takes three times as long to make, and files have many rows
class Result:
    """One row with what was found. ``claim``: axis, claimed, recomputed, factor, cause, and why; None where all agree."""

    source: str
    row: str
    name: str
    device: str | None
    op: str | None
    dtype: str | None
    t_s: float | None
    status: str
    message: str
    cause: str | None = None
    decided: str | None = None
    experiment: str | None = None
    roofline_pct: float | None = None
    roof_axis: str | None = None
    bound_type: str = "unknown"
    utilisation: float | None = None
    limit: float | None = None
    speedup: float | None = None
    attainable: float | None = None
    correct: bool | None = None
    baseline_kind: str | None = None
    prediction: Prediction | None = None
    claim: Mapping[str, Any] | None = None
    overhead: Overhead | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain builtins."""
        found = {name: getattr(self, name) for name in self.__slots__}
        found["overhead"] = None if self.overhead is None else dict(self.overhead._asdict())
        found["prediction"] = None if self.prediction is None else dict(self.prediction._asdict())
        return found


@dataclass(slots=True, kw_only=True)
class Refused:
    """A row that could not be used, and why; the cause where one of the closed set fits."""

    source: str
    row: str
    reason: str
    cause: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain builtins."""
        return {name: getattr(self, name) for name in self.__slots__}


def declaration_in(row: Mapping[str, Any]) -> Declared:
    """The declaration behind a row of a report."""
    kernel, device = row.get("kernel"), row.get("device")
    launches = float(number(row.get("launches_per_unit", 1), "launches_per_unit", minimum=1))
    work = None
    if row.get("modeled") is True:
        models = tuple(
            ByteModel(
                str(model["model"]),
                number(model["bytes"], "bytes", minimum=0),
                number(model["flops"], "flops", minimum=0),
                model["in_range"] is True,
            )
            for model in row["byte_models"]
        )
        engine = row["work"]["engine"]
        if not models or engine not in ("matrix", "vector"):
            raise ValueError("no byte model, or no engine")
        dtype, weight = parse_dtype(row["dtype"]), parse_dtype(row["weight_dtype"])
        work = Work(str(row["op"]), str(row["op_class"]), models, engine, dtype, weight, ())
    target = row.get("target_eff")
    return Declared(
        work=work,
        source=str(row["work"]["source"] or "") if work else "",
        stage=str(row["stage"]) if work else "A",
        kernel=kernel if isinstance(kernel, str) else None,
        device=device if isinstance(device, str) else None,
        launches=launches,
        target_eff=None if target is None else number(target, "target_eff", above=0),
    )
