"""Figures that a test returns, as aiter's do: ``{"ck us": 7.2, "ck TFLOPS": 310.0}``; read as the same columns of a file are.

pytest warns of a test that returns a value; of one whose value is understood here it hears nothing.
"""

from __future__ import annotations

import csv
import functools
import inspect
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from roofline_engine.units import printable

from .plain import plain
from .records import aiter_table
from .records.registry import choose
from .records.row import RecordRow
from .records.source import RefusedError, Source

#: The unit at the end of a key that names a figure.
_UNIT = re.compile(r"(?:^|[ _])(us|ms|tflops|tflpos|gflops|tb/s|gb/s)$", re.I)
_TIME = re.compile(r"(?:^|[ _])(us|ms)$", re.I)


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
    return isinstance(key, str) and _UNIT.search(key) is not None and isinstance(value, (int, float))


def records(rows: Sequence[Mapping[str, Any]], params: Mapping[str, Any], label: str) -> list[RecordRow]:
    """The rows as records, each with the test's arguments as columns beside its own."""
    return [record for row in rows for record in _read(row, params, label)]


def _read(row: Mapping[str, Any], params: Mapping[str, Any], label: str) -> list[RecordRow]:
    columns = {_spaced(str(key)): plain(value) for key, value in row.items()}
    known = {name.lower() for name in columns}
    columns = {**{name: plain(value) for name, value in params.items() if name.lower() not in known}, **columns}
    names = [name for name, value in columns.items() if isinstance(value, (bool, int, float, str))]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([["test", *names], [label, *(columns[name] for name in names)]])  # a table has two columns or more
    adapter = choose(text.getvalue(), ".csv")
    if adapter is None and any(_TIME.search(name) for name in names):
        adapter = aiter_table
    if adapter is None:
        return [RecordRow(row="returned", refused=f"it returns {', '.join(map(printable, names))}: rates without a time")]
    source = Source(Path(label), io.BytesIO(text.getvalue().encode("utf-8", errors="replace")))
    try:
        return [_returned(record) for record in adapter.read(source)]
    except RefusedError as error:
        return [RecordRow(row="returned", refused=str(error))]


def _returned(record: RecordRow) -> RecordRow:
    """How a test took its time is not in the value, whatever the format does as a rule."""
    record.row, record.clock, record.cache = "returned", "unknown", "unknown"
    return record


def _spaced(key: str) -> str:
    """``ck_us`` as ``ck us``."""
    return _UNIT.sub(lambda found: f" {found[1]}", key).strip()
