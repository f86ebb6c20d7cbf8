"""A GEMM sweep over tile sizes: M, N, K, the tile, ``dtype``, ``time_ms`` and ``TFLOPS``; builds that failed are comments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from .row import RecordRow
from .source import Sample, Source
from .table import Table, claim, dtype, duration, half_digit, header, shown, size

NAME = "GEMM microbenchmark"

_SECONDS = {"time_ms": 1e-3, "time_us": 1e-6, "time_ns": 1e-9, "time_s": 1.0}


def matches(sample: Sample) -> bool:
    names = header(sample)
    return {"m", "n", "k", "dtype"} <= names and not names.isdisjoint(_SECONDS)


def read(source: Source) -> Iterator[RecordRow]:
    table = Table(source)
    return table.records(_reader(table))


def _reader(table: Table) -> Callable[[str, list[str]], Iterable[RecordRow]]:
    m, n, k, time = (table.column(*names) for names in (("M",), ("N",), ("K",), _SECONDS))
    column = table.names[time]
    unit = _SECONDS[column.lower()]
    inputs, outputs, tflops = table.column("dtype"), table.maybe("outdtype", "out_dtype"), table.maybe("TFLOPS")
    variant = [(name, place) for place, name in enumerate(table.names) if name.upper().startswith(("TILE", "STAGES", "SPLIT"))]

    def row(where: str, fields: list[str]) -> Iterable[RecordRow]:
        t_s, refused = duration(fields[time], column, unit)
        rounding = half_digit(fields[time], t_s / unit) if t_s else 0.0
        printed = None if tflops is None else claim(fields[tflops], "compute", 1e12, rounding)
        work = {"op": "gemm", "M": size(fields[m], "M"), "N": size(fields[n], "N"), "K": size(fields[k], "K")}
        work["dtype"] = dtype(fields[inputs])
        if outputs is not None:
            work["out_dtype"] = dtype(fields[outputs])
        yield RecordRow(
            row=where,
            name=shown(" ".join(f"{name}={fields[place]}" for name, place in variant)),
            work=work,
            t_s=t_s,
            claims=(printed,) if printed else (),
            hand_written=t_s == unit,
            refused=refused,
        )

    return row
