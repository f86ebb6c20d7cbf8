"""tritonbench's CSV: one row an input, a column per backend and metric (``triton-latency`` in ms, ``-tflops``, ``-gbps``).

The file names neither the op nor the dtype, so its times are compared with each other. The last row averages the others and is
dropped with a word. The lists of shapes that such a run starts from are CSV too: they hold nothing to check and are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf

from .liger import kind_of
from .row import RecordRow
from .source import RefusedError, Sample, Source
from .table import Table, claim, duration, half_digit, header, shown

NAME = "tritonbench"

_RATES = {"tflops": ("compute", 1e12), "gbps": ("memory", 1e9)}
#: Of a list of shapes nothing but these; what else has no time is left to be refused as unknown.
_SHAPES = {"m", "n", "k", "b", "batch", "bias", "dtype", "count"}
_SUMMARIES = {"average": "the average over the rows above, no input of its own", "hashes": "hashes of the kernels, no input"}


def matches(sample: Sample) -> bool:
    names = header(sample)
    return any(name.endswith("-latency") for name in names) or ({"m", "n", "k"} <= names and names <= _SHAPES)


def read(source: Source) -> Iterator[RecordRow]:
    table = Table(source)
    if not any(name.lower().endswith("-latency") for name in table.names):
        raise RefusedError(
            f"{table.label}: shapes alone ({', '.join(table.names)[:80]}), no column of a time: nothing to check"
        )
    return table.records(_reader(table))


class _Backend:
    """The columns of one backend."""

    def __init__(self, table: Table, label: str) -> None:
        self.label, self.column = label, f"{label}-latency"
        self.latency = table.column(self.column)
        self.speedup, self.accuracy = table.maybe(f"{label}-speedup"), table.maybe(f"{label}-accuracy")
        rates = [(table.maybe(f"{label}-{metric}"), axis, unit) for metric, (axis, unit) in _RATES.items()]
        self.rates = [(place, axis, unit) for place, axis, unit in rates if place is not None]

    def time(self, fields: list[str]) -> tuple[float | None, str]:
        """Seconds; a spread in parentheses behind the median is left."""
        return duration(_median(fields[self.latency]), self.column, 1e-3)


def _median(text: str) -> str:
    return text.partition("(")[0].strip() or text


def _ratio(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0.0 < value < inf else None


def _reader(table: Table) -> Callable[[str, list[str]], Iterable[RecordRow]]:
    labels = [name[: -len("-latency")] for name in table.names if name.lower().endswith("-latency")]
    backends = [_Backend(table, label) for label in labels]
    compared = any(backend.speedup is not None for backend in backends)
    base = next((backend for backend in backends if backend.speedup is None), None) if compared else None

    def row(where: str, fields: list[str]) -> Iterator[RecordRow]:
        x = fields[0].strip()
        if x.lower() in _SUMMARIES:
            yield RecordRow(row=where, name=x, refused=_SUMMARIES[x.lower()])
            return
        base_s = None if base is None else base.time(fields)[0]
        for backend in backends:
            t_s, refused = backend.time(fields)
            printed = _median(fields[backend.latency])
            rounding = half_digit(printed, t_s * 1e3) if t_s else 0.0
            claims = (claim(fields[place], axis, unit, rounding) for place, axis, unit in backend.rates)
            against = base is not None and backend is not base
            ratio = "" if backend.speedup is None else fields[backend.speedup].removesuffix("x").strip()
            sure = "" if backend.accuracy is None else fields[backend.accuracy].strip().lower()
            yield RecordRow(
                row=where,
                name=shown(f"{backend.label} {table.names[0]}={x}"),
                no_work="the file names neither the op nor the dtype",
                t_s=t_s,
                clock="device-event",
                baseline_kind=kind_of(base.label) if base is not None and against else "unknown",
                baseline_t_s=base_s if against else None,
                speedup=None if refused else _ratio(ratio),
                claims=tuple(found for found in claims if found),
                hand_written=t_s == 1e-3,
                correct={"1.0": True, "1": True, "true": True, "0.0": False, "0": False, "false": False}.get(sure),
                refused=refused,
            )

    return row
