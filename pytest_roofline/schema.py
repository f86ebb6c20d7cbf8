"""``roofline schema``: every record and document as a pydantic model, made from the engine's definitions.

Types come from the annotations of the records; meanings, units and closed sets come from the engine's tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from roofline_engine import check, fields
from roofline_engine.work import COVERAGES

from .gate import CODES, DEVICE, KINDS, LIMITS
from .row import GATE_STATUSES, REPORT_SCHEMA, GateOutcome

#: Each record with the closed sets of its fields.
_RECORDS: dict[str, tuple[Any, Mapping[str, tuple[str, ...]]]] = {
    "byte-model": (fields.ByteModel, {}),
    "entry": (fields.Entry, fields.CLOSED_SETS),
    "measurement": (check.Measurement, {"source": check.SOURCES, "clock": check.CLOCKS, "cache": check.CACHES}),
    "overhead": (check.Overhead, {}),
    "baseline": (check.Baseline, {"kind": check.BASELINE_KINDS}),
    "prediction": (
        check.Prediction,
        {"headroom_class": fields.HEADROOM_CLASSES, "confidence": fields.CONFIDENCES, "roof_axis": fields.ROOF_AXES},
    ),
    "gate": (GateOutcome, {"gate": (*KINDS, *LIMITS, DEVICE), "status": GATE_STATUSES, "code": ("", *CODES)}),
    "check": (check.Check, {"status": check.STATUSES, "cause": check.CAUSES}),
}
NAMES = (*_RECORDS, "peaks", "row", "artifact", "report")


Stage: Any = Literal[fields.STAGES]
Coverage: Any = Literal[COVERAGES]


class PeaksModel(BaseModel):
    """The ``peaks`` of an artifact or a report: dense rates in B/s and FLOP/s."""

    model_config = ConfigDict(extra="allow", title="peaks")

    product: str | None
    gfx: str | None
    hbm_bw_bytes_s: float | None
    flops: dict[str, float]
    vector: dict[str, float]
    l2_bytes: float | None
    mall_bytes: float | None
    source: Literal["table", "derived", "measured", "user"]
    confidence: Literal["high", "low"]
    note: str


class GateCounts(BaseModel):
    """What the gates of a run decided, in rows."""

    kinds: list[str]  # of --roofline-fail-on
    checked: int  # decided by each gate
    failed: int
    allowed: int  # by the allow list or an xfail mark
    unchecked: int  # skipped by a gate
    reasons: dict[str, int]  # unchecked rows by code


class SavedRun(BaseModel):
    """What ``--roofline-save`` adds to a report."""

    number: int
    name: str
    commit: str | None
    branch: str | None
    is_dirty: bool  # whether tracked files differed from the commit
    machine: str  # equal for machines of equal hardware
    cpu: str
    host: str


class Degraded(BaseModel):
    """A kernel without a work model."""

    name: str
    reason: str  # why it has none


class CopyShare(BaseModel):
    """A copy or a fill by the runtime."""

    name: str
    pct_gpu_time: float | None


@cache
def model(name: str) -> type[BaseModel]:
    """Return the model of a record or document, by its name in ``NAMES``.

    Raises:
        KeyError: for any other name.
    """
    if name in _RECORDS:
        return _of_record(name)
    documents: dict[str, Callable[[], type[BaseModel]]] = {"row": _row, "artifact": _artifact, "report": _report}
    return PeaksModel if name == "peaks" else documents[name]()


def _of_record(name: str) -> type[BaseModel]:
    record, sets = _RECORDS[name]
    meanings = fields.FIELDS if record is fields.Entry else {}
    hints = get_type_hints(record)
    members: dict[str, Any] = {}
    for key in record._fields:
        kind, default = hints[key], record._field_defaults.get(key, ...)
        if record is fields.Entry and key == "notes":  # JSON has one text and a list of codes
            members["note_codes"] = (list[str], Field([], description=meanings["note_codes"].doc))
            kind, default = str, ""
        elif record is fields.Entry and key == "byte_models":
            kind = tuple[model("byte-model"), ...]  # type: ignore[misc]
        elif key in sets:
            closed: Any = Literal[sets[key]]
            kind = closed | None if type(None) in get_args(kind) else closed
        meaning = meanings.get(key)
        unit: Any = {"unit": meaning.unit} if meaning is not None and meaning.unit else None
        members[key] = (kind, Field(default, description=meaning.doc if meaning else None, json_schema_extra=unit))
    doc = (record.__doc__ or "").partition("\n")[0]
    return create_model(name, __config__=ConfigDict(extra="forbid", title=name), __doc__=doc, **members)


class Work(BaseModel):
    """Where bytes and FLOPs come from, the units that the FLOPs run on, and how much of the work is known."""

    source: str | None
    engine: Literal["matrix", "vector"] | None = None
    coverage: Coverage = "whole"
    least: tuple[float, float] | None = None  # bytes and FLOPs that no run can avoid
    written: float | None = None  # bytes that are results


def _row() -> type[BaseModel]:
    members: dict[str, Any] = {
        "nodeid": (str, ...),
        "kernel": (str | None, None),
        "group": (str | None, None),
        "device": (str | None, None),
        "roof_s": (float | None, Field(None, json_schema_extra={"unit": "s"})),
        "work": (Work, ...),
        "check": (model("check"), ...),
        "failed": (str | None, None),
        "arithmetic": (str | None, None),  # the figures of the gate that failed
        "gates": (list[model("gate")], []),  # type: ignore[misc]
        "path": (str, ""),
        "line": (int, 0),
        **{key: (model(key) | None, None) for key in ("measurement", "overhead", "baseline", "prediction")},
    }
    doc = "One test of a report: the entry of its kernel, with its measurement, prediction and check."
    return create_model("row", __base__=model("entry"), __doc__=doc, **members)


def _document(name: str, doc: str, entries: type[BaseModel], **more: Any) -> type[BaseModel]:
    return create_model(
        name,
        __config__=ConfigDict(extra="allow", title=name),
        __doc__=doc,
        gfx=(str | None, None),
        stage=(Stage, ...),
        entries=(list[entries], ...),  # type: ignore[valid-type]
        ranking_by_pct=(list[str], ...),
        ranking_by_expected_gain=(list[str], ...),
        degraded=(list[Degraded], ...),
        skill_errors=(list[str], ...),
        **more,
    )


def _artifact() -> type[BaseModel]:
    return _document(
        "artifact",
        "profile_roofline.json, what ``roofline analyze`` writes.",
        model("entry"),
        skill=(Literal["roofline"], ...),
        skill_version=(Literal["1"], ...),
        peaks=(PeaksModel, ...),
        copies=(list[CopyShare], []),
        head_pct=(float, ...),
        head_max=(int, ...),
    )


def _report() -> type[BaseModel]:
    return _document(
        "report",
        "``roofline-report/1``, what ``pytest --roofline`` writes.",
        model("row"),
        schema_=(Literal[REPORT_SCHEMA], Field(alias="schema")),
        created=(str, ...),
        version=(str, ...),
        machine=(dict[str, str | None], ...),
        peaks=(PeaksModel | None, ...),
        devices=(dict[str, PeaksModel], ...),
        noise=(float, ...),
        gate=(GateCounts | None, None),
        run=(SavedRun | None, None),
        unmatched_predictions=(list[str], ...),
        unmatched_tests=(list[str], ...),
    )
