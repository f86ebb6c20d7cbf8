"""Rows that somebody else wrote of a run that has just ended, as the cases of its test. Knows nothing of pytest.

The rows are those of ``records``: a script's CSV, the lines that it printed, a dict that a test returned.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from roofline_engine import peaks_table
from roofline_engine.peaks import resolve_name
from roofline_engine.work import Work

from .declare import Declared, build
from .evaluate import times
from .records.registry import read_rows
from .records.row import RecordRow
from .records.source import RefusedError
from .records.table import column_of_key
from .testcase import Case
from .values import plain

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
    path = peaks_table.locate() if name and units else None
    if name is None or path is None:
        return name
    return resolve_name(peaks_table.load(path, shipped=True), name, units).product or name


@contextmanager
def catching(item: Any) -> Iterator[list[Mapping[str, Any]]]:
    """A list that fills with the rows of figures that the test's function returns while the block runs.

    Any other value goes on to pytest; so does whatever a coroutine, a generator or a function drawn by hypothesis returns.
    """
    caught: list[Mapping[str, Any]] = []
    fn = item.obj
    drawn = getattr(fn, "is_hypothesis_test", False)
    if drawn or inspect.iscoroutinefunction(fn) or inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        yield caught
        return

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        item.obj = fn  # a test that looks at its own item sees itself
        value = fn(*args, **kwargs)
        try:
            found = figures(value)
        except Exception:  # an object that does not bear being asked is no figure
            found = []
        caught.extend(found)
        return None if found else value

    item.obj = call
    try:
        yield caught
    finally:
        item.obj = fn


def figures(value: Any) -> list[Mapping[str, Any]]:
    """The rows of figures in a returned value: a dict, a list or tuple of them, a table of pandas; none in anything else."""
    if hasattr(value, "to_dict") and hasattr(value, "columns"):
        value = value.to_dict("records")
    rows = value if isinstance(value, (list, tuple)) else [value]
    if not all(isinstance(row, dict) and any(_figure(key, item) for key, item in row.items()) for row in rows):
        return []
    return list(rows)


def _figure(key: Any, value: Any) -> bool:
    value = plain(value)
    return isinstance(key, str) and column_of_key(key) is not None and isinstance(value, (int, float))


def returned_records(rows: Sequence[Mapping[str, Any]], params: Mapping[str, Any], label: str) -> list[RecordRow]:
    """The rows as records, each with the test's arguments as columns beside its own."""
    return [record for row in rows for record in _read(row, params, label)]


def _read(row: Mapping[str, Any], params: Mapping[str, Any], label: str) -> list[RecordRow]:
    columns = {column_of_key(str(key)) or str(key): plain(value) for key, value in row.items()}
    known = {name.lower() for name in columns}
    columns = {**{name: plain(value) for name, value in params.items() if name.lower() not in known}, **columns}
    cells = {name: value for name, value in columns.items() if isinstance(value, (bool, int, float, str))}
    try:
        records = read_rows([cells], label)
    except RefusedError as error:
        return [RecordRow(row="returned", refused=str(error))]
    for record in records:  # the value does not say how the test took its time, whatever the format does as a rule
        record.row, record.clock, record.cache = "returned", "unknown", "unknown"
    return records
