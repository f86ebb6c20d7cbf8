"""Records as the cases of a test: a script's CSV, the lines that it printed, a dict that a test returned."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from roofline_engine import peaks_table
from roofline_engine.fields import note
from roofline_engine.peaks import resolve_name
from roofline_engine.work import Work

from ..declare import Declaration, build_work
from ..evaluate import times
from ..row import Refusal
from ..testcase import Case
from ..values import defines, is_kind, plain, scalar
from .formats import read_rows
from .source import RecordRow, RefusedError
from .table import column_of_key

#: The longest label of a row.
_LONGEST = 120
WRONG = note("the record says that its output is wrong", "wrong_output")


def cases_of_records(
    records: Iterable[RecordRow], params: Mapping[str, Any], source: str, *, with_sizes: bool = True
) -> list[Case]:
    """Return a case for each record, with a distinct label as its ``nodeid``.

    params: the test's arguments; a string in a record's work that names one stands for its value. source: of the work, for the
    report. with_sizes: whether a label has the sizes next to the name.
    """
    cases = []
    labels: set[str] = set()
    for record in records:
        label = text = label_of(record) if with_sizes else record.name
        number = 2
        while label in labels:
            label, number = f"{text} #{number}".strip(), number + 1
        labels.add(label)
        cases.append(replace(_case(record, params, source), nodeid=label))
    return cases


def _case(record: RecordRow, params: Mapping[str, Any], source: str) -> Case:
    work, problem = _work(record, params)
    measurement, baseline = times(record)
    notes = () if record.correct is not False else (WRONG,)
    return Case(
        nodeid="",
        test=record.name,
        declaration=Declaration(
            work=work,
            source=source if work is not None else "",
            stage="B" if work is not None else "A",
            device=_device(record.device, record.units),
            launches=record.launches,
            notes=(*notes, *map(note, record.notes if measurement is None else ())),
        ),
        measurement=None if record.refused else measurement,
        baseline=baseline,
        problem=f"{record.row}: {record.refused}" if record.refused else problem,
        refusal=Refusal(f"{record.row}: {record.refused}", record.refused_code) if record.refused else None,
        record=record,
    )


def label_of(record: RecordRow) -> str:
    """Return the name and the sizes of a record; its place in the file where it has neither."""
    sizes = {key: value for key, value in (record.work or {}).items() if isinstance(value, int)}
    shape = "x".join(str(sizes.pop(key)) for key in "MNK") if sizes.keys() >= set("MNK") else ""
    label = " ".join(part for part in (record.name, shape, *(f"{key}={value}" for key, value in sizes.items())) if part)
    return (label if len(label) <= _LONGEST else label[: _LONGEST - 3] + "...") or record.row


def _work(record: RecordRow, params: Mapping[str, Any]) -> tuple[Work | None, str]:
    """Return the work of a record, or the reason why it is unknown."""
    if record.work is None:
        return None, record.no_work
    keywords = {
        key: params[value] if isinstance(value, str) and value in params else value for key, value in record.work.items()
    }
    try:
        return build_work({key: plain(value) for key, value in keywords.items()}), ""
    except (ValueError, OverflowError) as error:
        return None, f"{record.row}: {error}"


@functools.lru_cache(maxsize=64)  # reading the peak table takes milliseconds
def _device(name: str | None, units: int | None) -> str | None:
    """Return the product, where the number of units tells it from others of its architecture; else the name itself."""
    path = peaks_table.locate() if name and units else None
    if name is None or path is None:
        return name
    return resolve_name(peaks_table.load(path, shipped=True), name, units).product or name


@contextmanager
def catch_returned(item: Any) -> Iterator[list[Mapping[str, Any]]]:
    """Fill a list with the rows of figures that the test's function returns in the block.

    pytest gets any other value, and whatever a coroutine, a generator or a Hypothesis test returns.
    """
    rows: list[Mapping[str, Any]] = []
    fn = item.obj
    is_hypothesis = getattr(fn, "is_hypothesis_test", False)
    if is_hypothesis or inspect.iscoroutinefunction(fn) or inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        yield rows
        return

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        item.obj = fn  # for a test that looks at its own item
        value = fn(*args, **kwargs)
        try:
            returned = _figure_rows(value)
        except Exception:  # an object that fails when it is inspected has no figures
            returned = []
        rows.extend(returned)
        return None if returned else value

    item.obj = call
    try:
        yield rows
    finally:
        item.obj = fn


def _figure_rows(value: Any) -> list[Mapping[str, Any]]:
    """Return the rows of figures in a value: a dict, a list or tuple of dicts, a pandas table; none in anything else."""
    if defines(type(value), "to_dict", "columns"):
        value = value.to_dict("records")
    rows = value if is_kind(value, (list, tuple)) else [value]
    if not all(is_kind(row, dict) and any(_is_figure(key, item) for key, item in row.items()) for row in rows):
        return []
    return list(rows)


def _is_figure(key: Any, value: Any) -> bool:
    return type(key) is str and column_of_key(key) is not None and type(scalar(value)) in (bool, int, float)


def cases_of_returned(rows: Sequence[Mapping[str, Any]], params: Mapping[str, Any], label: str) -> list[Case]:
    """Return the cases of the rows that a test returned. The test's arguments are further columns."""
    records = [record for row in rows for record in returned_records(row, params, label)]
    return cases_of_records(records, params, "returned", with_sizes=False)


def returned_records(row: Mapping[str, Any], params: Mapping[str, Any], label: str) -> list[RecordRow]:
    """Return the records of one row that a test returned, one for each of its times."""
    columns = {column_of_key(str(key)) or str(key): plain(value) for key, value in row.items()}
    names = {name.lower() for name in columns}
    columns = {**{name: plain(value) for name, value in params.items() if name.lower() not in names}, **columns}
    cells = {name: value for name, value in columns.items() if isinstance(value, (bool, int, float, str))}
    try:
        records = read_rows([cells], label)
    except RefusedError as error:
        return [RecordRow(row="returned", refused=str(error))]
    for record in records:  # the value does not say how the test took its time, whatever the format usually does
        record.row, record.clock, record.cache = "returned", "unknown", "unknown"
    return records
