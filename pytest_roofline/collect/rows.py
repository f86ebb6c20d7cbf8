"""One row that a child process found, as a line of JSON: what travels from ``inside`` to the item, and what it is there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from roofline_engine.check import Baseline, Claim, Measurement
from roofline_engine.fields import ByteModel, Note
from roofline_engine.units import parse_dtype, printable
from roofline_engine.work import Work

from ..capture.trace import Captured

if TYPE_CHECKING:
    from ..testcase import Case  # which the child does not need, nor the settings behind it


class Row(NamedTuple):
    """label: which of the item's rows. seen: ``cpu`` or ``gpu``, where its arrays were. claims: rates that it returned.

    problem: why it has no time.
    """

    label: str
    captured: Captured
    measurement: Measurement | None = None
    baseline: Baseline | None = None
    claims: tuple[Claim, ...] = ()
    seen: str | None = None
    problem: str = ""

    def to_json(self) -> str:
        """One line."""
        captured, work = self.captured, self.captured.work
        said = {**self._asdict(), "captured": {**captured._asdict(), "work": None if work is None else _work_to_dict(work)}}
        for key in ("measurement", "baseline"):
            value = said[key]
            said[key] = None if value is None else value._asdict()
        said["claims"] = [claim._asdict() for claim in self.claims]
        return json.dumps(said)

    @classmethod
    def from_dict(cls, said: Mapping[str, Any]) -> Row:
        """The row that ``to_json`` wrote."""
        captured = dict(said["captured"])
        if captured["work"] is not None:
            captured["work"] = _work_from_dict(captured["work"])
        captured.update(notes=tuple(captured["notes"]), kernels=tuple(captured["kernels"]))
        measurement, baseline = said["measurement"], said["baseline"]
        return cls(
            label=said["label"],
            captured=Captured(**captured),
            measurement=None if measurement is None else Measurement(**{**measurement, "notes": tuple(measurement["notes"])}),
            baseline=None if baseline is None else Baseline(**baseline),
            claims=tuple(Claim(**claim) for claim in said["claims"]),
            seen=said["seen"],
            problem=said["problem"],
        )

    def case(self, test: str) -> Case:
        """The case of its item. Work that is only a bound, or guessed, is for display: stage A."""
        from ..capture.watching import declared, interpreted
        from ..declare import Declared
        from ..records.row import RecordRow
        from ..testcase import Case

        said, problem = declared(self.captured)
        return Case(
            nodeid=printable(self.label),
            test=test,
            declared=said or Declared(),
            measurement=None if interpreted(self.captured) else self.measurement,
            baseline=self.baseline,
            seen=self.seen,
            problem="; ".join(filter(None, (problem, self.problem))),
            launched=self.captured.kernels,
            record=RecordRow(row=self.label, t_s=self.measurement.t_s if self.measurement else None, claims=self.claims),
        )


def _work_to_dict(work: Work) -> dict[str, Any]:
    return {
        **work._asdict(),
        "candidates": [model._asdict() for model in work.candidates],
        "dtype": work.dtype.name,
        "weight_dtype": work.weight_dtype.name,
    }


def _work_from_dict(said: Mapping[str, Any]) -> Work:
    return Work(
        **{
            **said,
            "candidates": tuple(ByteModel(**model) for model in said["candidates"]),
            "dtype": parse_dtype(said["dtype"]),
            "weight_dtype": parse_dtype(said["weight_dtype"]),
            "notes": tuple(Note(*item) for item in said["notes"]),
            "cached": tuple(said["cached"]),
        }
    )
