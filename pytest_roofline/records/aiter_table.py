"""Tables of aiter's op tests, CSV or Markdown: ``ck us``, ``ck TFLOPS``, ``ck TB/s``, ``triton us``; or without a prefix.

One record per row and backend. The op follows from the columns of the shape: M, N, K of a GEMM; nhead, batch, ctx of MLA decode
over a latent of 512 + 64, as aiter's own FLOPs of it count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from roofline_engine.check import Alternative

from .aiter_gemm import device, mistakes
from .row import RecordRow
from .source import RefusedError, Sample, Source
from .table import Table, claim, dtype, duration, half_digit, header, shown, size

NAME = "aiter op test"

_TIMED = re.compile(r"(?:(?P<backend>.*\S)\s+)?(?P<unit>us|ms)$", re.I)
_SECONDS = {"us": 1e-6, "ms": 1e-3}
#: Rates by the column's name after the prefix; ``TFLPOS`` is how some of the tests spell it.
_RATES = {
    "tflops": ("compute", 1e12),
    "tflpos": ("compute", 1e12),
    "gflops": ("compute", 1e9),
    "tb/s": ("memory", 1e12),
    "gb/s": ("memory", 1e9),
}
_Shape = Callable[[list[str]], "tuple[dict[str, Any] | None, str]"]


def matches(sample: Sample) -> bool:
    names = header(sample)
    rated = any(name.endswith(rate) for name in names for rate in ("tb/s", "tflops", "tflpos"))
    return rated and any(_TIMED.match(name) for name in names)


def read(source: Source) -> Iterator[RecordRow]:
    table = Table(source)
    return table.records(_reader(table))


def _reader(table: Table) -> Callable[[str, list[str]], Iterable[RecordRow]]:
    gfx, units, shape = table.maybe("gfx"), table.maybe("cu_num"), _shape(table)
    backends: list[tuple[str, str, int, float, list[tuple[int, str, float]]]] = []
    for name in table.names:
        found = _TIMED.match(name)
        if not found:
            continue
        backend, unit = found["backend"] or "", _SECONDS[found["unit"].lower()]
        prefix = f"{backend} " if backend else ""
        rates = []
        for rate, (axis, to_base) in _RATES.items():
            at = table.maybe(prefix + rate)
            if at is not None:
                rates.append((at, axis, to_base))
        backends.append((backend, name, table.column(name), unit, rates))
    if not backends:
        raise RefusedError(f"{table.label}: no column of a time such as us or ck us")

    def row(where: str, fields: list[str]) -> Iterator[RecordRow]:
        work, no_work = shape(fields)
        part, cus, note = device("" if gfx is None else fields[gfx], "" if units is None else fields[units])
        for backend, column, place, unit, rates in backends:
            t_s, refused = duration(fields[place], column, unit)
            rounding = half_digit(fields[place], t_s / unit) if t_s else 0.0
            claims = (claim(fields[at], axis, to_base, rounding) for at, axis, to_base in rates)
            yield RecordRow(
                row=where,
                name=shown(backend),
                work=work,
                no_work=no_work,
                t_s=t_s,
                device=part,
                units=cus,
                clock="device-event",
                cache="cold",
                claims=tuple(found for found in claims if found),
                hand_written=t_s == unit,
                alternatives=_mistakes(work),
                refused=refused,
                notes=(note,) if note and units is not None else (),
            )

    return row


def _shape(table: Table) -> _Shape:
    """What turns a row's fields into the keywords of the work model, or says why it cannot."""
    a, out = table.maybe("dtype", "q_dtype_w", "q_dtype"), table.maybe("outdtype", "out_dtype")
    if a is None:
        return lambda fields: (None, "no dtype column")
    gemm = [table.maybe(name) for name in ("M", "N", "K")]
    if None not in gemm:
        m, n, k = (place for place in gemm if place is not None)
        batch = table.maybe("B", "batch")

        def of_gemm(fields: list[str]) -> tuple[dict[str, Any], str]:
            work: dict[str, Any] = {"op": "gemm", "M": size(fields[m], "M"), "N": size(fields[n], "N")}
            work.update(K=size(fields[k], "K"), dtype=dtype(fields[a]), out_dtype="bf16" if out is None else dtype(fields[out]))
            if batch is not None:
                work["batch"] = size(fields[batch], "batch")
            return work, ""

        return of_gemm
    mla = [table.maybe(name) for name in ("nhead", "batch", "ctx")]
    if None not in mla:
        heads, sequences, context = (place for place in mla if place is not None)
        tokens = table.maybe("mtp", "decode_qlen")

        def of_mla(fields: list[str]) -> tuple[dict[str, Any], str]:
            work: dict[str, Any] = {"op": "mla_decode", "batch": size(fields[sequences], "batch")}
            work.update(n_q_heads=size(fields[heads], "nhead"), seq_len=size(fields[context], "ctx"))
            work.update(seq_q=1 if tokens is None else size(fields[tokens], "mtp"))
            work.update(dtype=dtype(fields[a]), kv_dtype=dtype(fields[a]), out_dtype="bf16")
            return work, ""

        return of_mla
    known = ", ".join(table.names[: table.column(next(name for name in table.names if _TIMED.match(name)))])
    return lambda fields: (None, f"no op is known by the columns {known}")


def _mistakes(work: dict[str, Any] | None) -> tuple[Alternative, ...]:
    if work is None or work["op"] != "gemm":
        return ()
    m, n, k, batch = (work.get(key, 1) for key in ("M", "N", "K", "batch"))
    return mistakes(m, n, k, batch, work["dtype"], work["out_dtype"])
