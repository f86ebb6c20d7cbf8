"""One row of a report, of a checked file or of an annotated benchmark, and the only reader and writer of its JSON."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from roofline_engine.check import BEYOND, Baseline, Check, Finding, Measurement, Overhead, Prediction, launch_overhead
from roofline_engine.fields import ByteModel, Entry, first_text, read_notes, to_dict
from roofline_engine.ops import op_name
from roofline_engine.units import number, parse_dtype, quantity
from roofline_engine.work import COVERAGES, Work

from .declare import ENGINES, Declaration

if TYPE_CHECKING:
    from pydantic import TypeAdapter

REPORT_SCHEMA = "roofline-report/1"
#: skipped: the gate could not decide. allowed: it found something that the allow list or an xfail mark allows.
GATE_STATUSES = ("passed", "failed", "skipped", "allowed")

T = TypeVar("T")


class GateOutcome(NamedTuple):
    """What one gate said of one row."""

    gate: str  # a kind of --roofline-fail-on, or fail_under, min_pct or device
    status: str  # one of GATE_STATUSES
    code: str = ""  # why the gate skipped the row, or a special reason: one of gate.CODES
    text: str = ""  # why the gate failed the row: the line to report; details of a skip; who allows it


class Mismatch(NamedTuple):
    """A printed rate that differs from the rate that shape and time give."""

    axis: str  # memory or compute
    claimed: float | None  # the printed rate (B/s or FLOP/s)
    recomputed: float | None  # the rate from shape and time
    factor: float | None  # claimed over recomputed
    cause: str  # one of roofline_engine.check.CAUSES
    decided: str  # the figures that decided
    experiment: str  # what would confirm the cause

    @classmethod
    def of(
        cls, axis: str, finding: Finding, factor: float | None, claimed: float | None = None, recomputed: float | None = None
    ) -> Mismatch:
        return cls(axis, claimed, recomputed, factor, finding.cause, finding.decided, finding.experiment)

    def describe(self) -> str:
        """Return one line for people."""
        if self.axis == "speedup":
            return f"{self.cause}: {self.claimed:.4g}x is printed, the two times give {self.recomputed:.4g}x: {self.decided}"
        unit = "B/s" if self.axis == "memory" else "FLOP/s"
        parts = [] if self.claimed is None else [f"{quantity(self.claimed, unit)} is printed"]
        if self.recomputed is not None:
            parts.append(f"shape and time give {quantity(self.recomputed, unit)}")
        return f"{self.cause}: {', '.join(parts)}{': ' if parts else ''}{self.decided}"


class Refusal(NamedTuple):
    """Why a row of a file could not be used."""

    reason: str
    code: str  # one of records.source.REFUSED_CODES
    cause: str | None = None  # one of roofline_engine.check.CAUSES, where one applies


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One kernel that was measured, or whose work is at least known."""

    nodeid: str  # of the test; for a row of a file, its place ("line 12")
    entry: Entry
    check: Check
    device: str | None = None  # the key of its peaks in the report
    roof_s: float | None = None  # seconds at the roof: the shortest time that the work can take
    work_source: str | None = None  # marker, fixture, hook, config, extra_info, properties, captured, returned, names, ...
    engine: str | None = None  # the units that the FLOPs run on: matrix or vector
    coverage: str = "whole"  # how much of the work is known: one of roofline_engine.work.COVERAGES
    least: tuple[float, float] | None = None  # bytes and FLOPs that no run can avoid, where the byte models do not give them
    written: float | None = None  # bytes of the work that are results
    measurement: Measurement | None = None
    baseline: Baseline | None = None
    prediction: Prediction | None = None
    group: str | None = None  # the benchmark group
    kernel: str | None = None  # the kernel's name, where a declaration gives one
    gates: tuple[GateOutcome, ...] = ()  # one outcome for each gate that the user asked for
    path: str = ""  # of the test's file, or the file that the row is from
    line: int = 0
    claims: int = 0  # rates that the record prints
    mismatch: Mismatch | None = None  # the worst of the rates that a checked file prints
    correct: bool | None = None  # what a checked file says about the output
    refusal: Refusal | None = None  # set when the row of a checked file cannot be used

    @property
    def failed(self) -> str | None:
        """The line with which a gate failed the test; None when all gates passed."""
        return next((outcome.text for outcome in self.gates if outcome.status == "failed"), None)

    @property
    def arithmetic(self) -> str | None:
        """The figures of the first gate that failed, so that a reader can work the result out again; None where none failed."""
        outcome = next((one for one in self.gates if one.status == "failed"), None)
        if outcome is None:
            return None
        if outcome.gate in ("regression", "exceeds_target"):
            return self._work_out_speedup()
        if outcome.gate in ("fail_under", "min_pct") and self.check.status != "beyond_roof":
            return self._work_out_rate(
                self.entry.roof_axis, self.entry.roofline_pct_raw, self.entry.bytes_est, self.entry.flops_est
            )
        if outcome.gate in ("beyond_roof", "fail_under", "min_pct"):
            models = self.entry.byte_models
            least = (min(one.bytes for one in models), min(one.flops for one in models)) if models else (None, None)
            rate = self._work_out_rate(self.check.axis, self.check.utilisation, *(self.least or least))
            most = f"{BEYOND * (self.check.limit or 1.0):.4g} is possible ({self.check.limit_basis})"
            return None if rate is None else f"{rate}; {most}"
        return None

    def _work_out_rate(self, axis: str | None, ratio: float | None, nbytes: float | None, flops: float | None) -> str | None:
        amount, unit = (nbytes, "B") if axis == "memory" else (flops, "FLOP")
        t_s = None if self.measurement is None else self.measurement.t_s
        if not (amount and ratio and t_s):
            return None
        rate = amount / t_s
        peak = f"the peak of {self.entry.roof_level or axis}, {quantity(rate / ratio, f'{unit}/s')}"
        return f"{amount:,.0f} {unit} / {t_s:.6g} s = {quantity(rate, f'{unit}/s')}, {ratio:.4g} times {peak}"

    def _work_out_speedup(self) -> str | None:
        check, before = self.check, None if self.baseline is None else self.baseline.t_s
        if self.measurement is None or before is None or check.speedup is None:
            return None
        band = check.band or 0.0
        attainable = check.attainable if self.prediction is None else self.prediction.attainable_speedup
        limits = [f"less than 1 / (1 + {band:.4g}) = {1 / (1 + band):.4g} is a regression"]
        if attainable is not None:
            limits.append(f"more than {attainable:.4g} x (1 + {band:.4g}) = {attainable * (1 + band):.4g} exceeds the target")
        return f"{before:.6g} s before / {self.measurement.t_s:.6g} s now = {check.speedup:.4g}; {', '.join(limits)}"

    @property
    def is_allowed(self) -> bool:
        """Whether the allow list or an xfail mark allows the status of the check."""
        return any(one.gate == self.check.status and one.status == "allowed" for one in self.gates)

    def expected_to_fail(self) -> Row:
        """Return the row of a test with an xfail mark: what its gates found is allowed."""
        allowed = (one._replace(status="allowed", code="xfail") if one.status == "failed" else one for one in self.gates)
        return replace(self, gates=tuple(allowed))

    @property
    def reason(self) -> str:
        """The first note: for a row without a work model, why it has none."""
        return first_text(self.entry.notes)

    @property
    def overhead(self) -> Overhead | None:
        """The launch overhead of the call, where its wall time and its device time are known."""
        return None if self.measurement is None else launch_overhead(self.measurement, self.entry.launches_per_unit)

    def to_dict(self) -> dict[str, Any]:
        """Return the row as the report has it, plain builtins: the fields of the skill's entry first."""
        return {
            **to_dict(self.entry),
            "nodeid": self.nodeid,
            "kernel": self.kernel,
            "group": self.group,
            "device": self.device,
            "roof_s": self.roof_s,
            "measurement": _to_plain(self.measurement),
            "overhead": _to_plain(self.overhead),
            "work": {
                "source": self.work_source,
                "engine": self.engine,
                "coverage": self.coverage,
                "least": None if self.least is None else list(self.least),
                "written": self.written,
            },
            "baseline": _to_plain(self.baseline),
            "prediction": _to_plain(self.prediction),
            "check": _to_plain(self.check),
            "failed": self.failed,
            "arithmetic": self.arithmetic,
            "gates": [outcome._asdict() for outcome in self.gates],
            "path": self.path,
            "line": self.line,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Row:
        """Return the row that ``to_dict`` wrote."""
        entry = {key: _to_tuple(value) for key, value in data.items() if key in Entry._fields}
        entry["notes"] = read_notes(data["notes"], data.get("note_codes", ()))
        entry["op"] = op_name(data["op"])
        entry["byte_models"] = tuple(ByteModel(**model) for model in data["byte_models"])

        def part(key: str, kind: Any) -> Any:
            value = data.get(key)
            return None if value is None else kind(**{name: _to_tuple(item) for name, item in value.items()})

        return cls(
            entry=Entry(**entry),
            check=part("check", Check),
            measurement=part("measurement", Measurement),
            baseline=part("baseline", Baseline),
            prediction=part("prediction", Prediction),
            work_source=data["work"]["source"],
            engine=data["work"]["engine"],
            coverage=data["work"].get("coverage", "whole"),
            least=_to_tuple(data["work"].get("least")),
            written=data["work"].get("written"),
            gates=tuple(GateOutcome(**outcome) for outcome in data["gates"]),
            **{key: data[key] for key in ("nodeid", "device", "roof_s", "group", "kernel", "path", "line")},
        )

    def to_checked_dict(self) -> dict[str, Any]:
        """Return the row as ``roofline check --json`` prints it."""
        entry, check, refusal = self.entry, self.check, self.refusal
        if refusal is not None:
            return {"source": self.path, "row": self.nodeid, "reason": refusal.reason, "cause": refusal.cause}
        return {
            "source": self.path,
            "row": self.nodeid,
            "name": entry.name,
            "device": self.device,
            "op": entry.op if entry.modeled else None,
            "dtype": entry.dtype,
            "t_s": None if self.measurement is None else self.measurement.t_s,
            **_pick(check, "status", "message", "cause", "decided", "experiment"),
            "roofline_pct": entry.roofline_pct_raw,
            **_pick(entry, "roof_axis", "bound_type"),
            **_pick(check, "utilisation", "limit", "limit_basis", "speedup", "attainable", "change", "unchecked_axis"),
            "correct": self.correct,
            "baseline_kind": None if self.baseline is None else self.baseline.kind,
            "prediction": _to_plain(self.prediction),
            "claim": _to_plain(self.mismatch),
            "overhead": _to_plain(self.overhead),
        }


def _to_plain(record: Any) -> dict[str, Any] | None:
    if record is None:
        return None
    return {key: list(value) if isinstance(value, tuple) else value for key, value in zip(record._fields, record)}


def _pick(record: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names}


def _to_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def read_part(kind: type[T], data: object, where: str = "", keys: Collection[str] = ()) -> T:
    """Validate what a file says of one named tuple; other keys are ignored, and null is the same as missing.

    keys: the fields to read; all of them by default.

    Raises:
        ValueError: one line with ``where``, the field, and what is wrong with it.
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"{where or 'row'}: is {type(data).__name__}, expected an object")
    names: Collection[str] = keys or kind._fields  # type: ignore[attr-defined]
    given = {key: data[key] for key in names if data.get(key) is not None}
    part = _validate(kind, given, where)
    for key, value in given.items():
        _refuse_flag(value, getattr(part, key), where, key)
    return part


def read_field(kind: type[T], data: object, path: str, where: str = "") -> T | None:
    """Validate one value of a file, such as ``stats.median``; None when it is missing or null.

    Raises:
        ValueError: as ``read_part``.
    """
    for key in path.split("."):
        data = data.get(key) if isinstance(data, Mapping) else None
    if data is None:
        return None
    value = _validate(kind, data, where, path)
    _refuse_flag(data, value, where, path)
    return value


def _refuse_flag(given: object, value: object, *place: str) -> None:
    """Raise ValueError for true or false in the place of a number: pydantic reads them as 1 and 0."""
    if isinstance(given, bool) and not isinstance(value, bool):
        raise ValueError(f"{'.'.join(filter(None, place))}: is {str(given).lower()}, expected a number")


def require_field(kind: type[T], data: object, path: str, where: str = "") -> T:
    """Validate one value of a file; as ``read_field``, but a missing value is an error."""
    value = read_field(kind, data, path, where)
    if value is None:
        raise ValueError(f"{'.'.join(filter(None, (where, path)))}: is missing")
    return value


def _validate(kind: type[T], value: object, *place: str) -> T:
    from pydantic import ValidationError  # 0.1 s: only files need it

    try:
        return cast(T, _adapter(cast(Any, kind)).validate_python(value))
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(filter(None, (*place, *map(str, first['loc']))))}: {first['msg']}") from None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import ConfigDict, TypeAdapter

    return TypeAdapter(kind, config=ConfigDict(allow_inf_nan=False, strict=kind is float))  # true and "1" are no numbers


#: Fields of the entry that a declaration is read from.
_DECLARED = (
    *("op", "op_class", "modeled", "stage", "dtype", "weight_dtype", "launches_per_unit", "byte_models", "target_eff"),
    "target_basis",
)


def declaration_in(row: Mapping[str, Any]) -> Declaration:
    """Return the declaration behind a row that a run left in a file.

    Raises:
        ValueError: for a row that was edited by hand: one line with the field.
    """
    kernel, device = read_field(str, row, "kernel"), read_field(str, row, "device")
    entry = read_part(Entry, row, keys=_DECLARED)
    number(entry.launches_per_unit, "launches_per_unit", minimum=1)
    if entry.target_eff is not None:
        number(entry.target_eff, "target_eff", above=0)
    target = None if entry.target_basis in ("prior", "sustained") else entry.target_eff  # those two follow from op and device
    declaration = Declaration(kernel=kernel, device=device, launches=entry.launches_per_unit, target_eff=target)
    if not entry.modeled:
        return declaration
    engine, source = require_field(str, row, "work.engine"), read_field(str, row, "work.source") or ""
    if engine not in ENGINES:
        raise ValueError(f"work.engine: is {engine!r:.40}, expected {' or '.join(ENGINES)}")
    if not entry.byte_models or min(min(model.bytes, model.flops) for model in entry.byte_models) < 0:
        raise ValueError("byte_models: expected a list of byte models with bytes and flops of 0 or more")
    coverage, least = read_field(str, row, "work.coverage") or "whole", read_field(tuple[float, float], row, "work.least")
    if coverage not in COVERAGES:
        raise ValueError(f"work.coverage: is {coverage!r:.40}, expected one of {', '.join(COVERAGES)}")
    if least is not None and min(least) < 0:
        raise ValueError("work.least: expected bytes and FLOPs of 0 or more")
    dtype, weight_dtype = parse_dtype(entry.dtype), parse_dtype(entry.weight_dtype)
    work = Work(
        *(op_name(entry.op), entry.op_class, entry.byte_models, engine, dtype, weight_dtype, ()),
        coverage=coverage,
        least=least,
        written=read_field(float, row, "work.written"),
    )
    return replace(declaration, work=work, source=source, stage=entry.stage)
