"""Rows that somebody else wrote of a run that has just ended, as the cases of its test. Knows nothing of pytest.

The rows are those of ``records``: a script's CSV, the lines that it printed, a dict that a test returned.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from roofline_engine import peaktable
from roofline_engine.models import Work
from roofline_engine.peaks import named

from .declare import Declared, build
from .evaluate import Case, times
from .plain import plain
from .records.row import RecordRow

#: Of a label no more is kept.
_LONGEST = 120
WRONG = "its output is wrong by its own check"


def of_records(records: Iterable[RecordRow], params: Mapping[str, Any], source: str, *, sized: bool = True) -> list[Case]:
    """A case per record, its ``nodeid`` a label that is its own among them: its name and, where ``sized``, its sizes; else
    where it stands.

    params: the test's arguments; a string of a record's work that is the name of one stands for it. source: of the work, for
    the report.
    """
    cases = [_case(record, params, source, sized) for record in records]
    taken: set[str] = set()
    for at, case in enumerate(cases):
        label, number = case.nodeid, 2
        while label in taken:
            label, number = f"{case.nodeid} #{number}".strip(), number + 1
        taken.add(label)
        cases[at] = dataclasses.replace(case, nodeid=label)
    return cases


def _case(record: RecordRow, params: Mapping[str, Any], source: str, sized: bool) -> Case:
    work, problem = _work(record, params)
    measurement, baseline = times(record)
    notes = () if record.correct is not False else (WRONG,)
    return Case(
        nodeid=label(record) if sized else record.name,
        test=record.name,
        declared=Declared(
            work=work,
            source=source if work is not None else "",
            stage="B" if work is not None else "A",
            device=_device(record.device, record.units),
            launches=record.launches,
            notes=(*notes, *(record.notes if measurement is None else ())),
        ),
        measurement=None if record.refused else measurement,
        baseline=baseline,
        problem=f"{record.row}: {record.refused}" if record.refused else problem,
        record=record,
    )


def label(record: RecordRow) -> str:
    """What tells a row from its neighbours: its name and sizes; where it stands, where it has neither."""
    sizes = {key: value for key, value in (record.work or {}).items() if isinstance(value, int)}
    shape = "x".join(str(sizes.pop(key)) for key in "MNK") if sizes.keys() >= set("MNK") else ""
    found = " ".join(part for part in (record.name, shape, *(f"{key}={value}" for key, value in sizes.items())) if part)
    return (found if len(found) <= _LONGEST else found[: _LONGEST - 3] + "...") or record.row


def _work(record: RecordRow, params: Mapping[str, Any]) -> tuple[Work | None, str]:
    """The work of a row, or why it is not known."""
    if record.work is None:
        return None, record.no_work
    filled = {key: params[value] if isinstance(value, str) and value in params else value for key, value in record.work.items()}
    try:
        return build({key: plain(value) for key, value in filled.items()}), ""
    except (ValueError, OverflowError) as error:
        return None, f"{record.row}: {error}"


@lru_cache(maxsize=64)
def _device(name: str | None, units: int | None) -> str | None:
    """The product, where the units tell it among those of its architecture; else the name as it stands."""
    path = peaktable.locate() if name and units else None
    if name is None or path is None:
        return name
    return named(peaktable.load(path, shipped=True), name, units).product or name
