"""Tuned GEMMs of aiter: one row the fastest kernel for a shape, or every candidate with the share of wrong results.

``us`` is the profiler's time of the kernel over rotated operands; ``tflops`` and ``bw`` (GB/s) are printed beside it. gfx is
missing in older files, which then say the compute units alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from roofline_engine.check import Alternative
from roofline_engine.units import parse_dtype

from .row import RecordRow
from .source import Sample, Source
from .table import Table, claim, dtype, duration, half_digit, header, ratio_ok, shown, size

NAME = "aiter tuned GEMM"

#: Parts that have as many compute units, where a file does not name gfx: MI300X, MI308X and MI355X.
GFX_OF_UNITS = {304: "gfx942", 80: "gfx942", 256: "gfx950"}
#: Above this share of wrong elements the tuner itself takes a kernel for wrong.
MOST_WRONG = 0.05
#: What a kernel's name says of its operands, in files without a dtype column. a8w8 there is the block-scaled fp8 family.
_NAMED = (
    ("fp8gemm", "fp8"),
    ("a8w8_blockscale", "fp8"),
    ("a8w8_bpreshuffle", "fp8"),
    ("f4gemm", "fp4"),
    ("a4w4", "fp4"),
    ("i8gemm", "int8"),
    ("bf16gemm", "bf16"),
)


def matches(sample: Sample) -> bool:
    names = header(sample)
    return {"m", "n", "k", "us"} <= names and not names.isdisjoint(("cu_num", "gfx")) and "tb/s" not in names


def read(source: Source) -> Iterator[RecordRow]:
    table = Table(source)
    return table.records(_reader(table))


@lru_cache(maxsize=256)
def dtype_of_name(kernel: str) -> str:
    low = kernel.lower()
    return next((spelled for word, spelled in _NAMED if word in low), "")


@lru_cache(maxsize=64)
def device(gfx: str, units: str) -> tuple[str | None, int | None, str]:
    """The part that gfx and ``cu_num`` name, its compute units, and a note where gfx follows from them alone."""
    count = size(units, "cu_num") if units.strip() else None
    if gfx.strip():
        return shown(gfx), count, ""
    found = GFX_OF_UNITS.get(count or 0)
    return found, count, f"no gfx: {found} has parts of {count} CUs" if found else f"no gfx, and {count} CUs name no part"


def _reader(table: Table) -> Callable[[str, list[str]], Iterable[RecordRow]]:
    m, n, k, us = (table.column(name) for name in ("M", "N", "K", "us"))
    batch, gfx, units = table.maybe("B", "batch"), table.maybe("gfx"), table.maybe("cu_num")
    inputs, outputs = table.maybe("dtype", "q_dtype_w"), table.maybe("outdtype", "out_dtype")
    wrong, kernel = table.maybe("errRatio", "err_ratio"), table.maybe("kernelName", "libtype")
    tflops, bw = table.maybe("tflops"), table.maybe("bw")
    told = ""  # by the names of this file's kernels: a tuner's file is of one dtype

    def row(where: str, fields: list[str]) -> Iterable[RecordRow]:
        nonlocal told
        printed = fields[us]
        t_s, refused = duration(printed, "us", 1e-6)
        sizes = size(fields[m], "M"), size(fields[n], "N"), size(fields[k], "K")
        count = 1 if batch is None else size(fields[batch], "B")
        name = "" if kernel is None else shown(fields[kernel])
        part, cus, note = device("" if gfx is None else fields[gfx], "" if units is None else fields[units])
        notes: tuple[str, ...] = (note,) if note else ()
        work, no_work, a = None, "", ""
        if inputs is not None:
            a = dtype(fields[inputs])
        else:
            told = a = dtype_of_name(name) or told
            no_work = "" if a else "no dtype column, and the kernel's name does not say one"
            notes += (f"{a} by the names of the kernels, there is no dtype column",) if a else ()
        out = "bf16" if outputs is None else dtype(fields[outputs])
        if a:
            work = {"op": "gemm", "M": sizes[0], "N": sizes[1], "K": sizes[2], "dtype": a, "out_dtype": out}
            if count > 1:
                work["batch"] = count
        rounding = half_digit(printed, t_s * 1e6) if t_s else 0.0
        flops = None if tflops is None else claim(fields[tflops], "compute", 1e12, rounding)
        nbytes = None if bw is None else claim(fields[bw], "memory", 1e9, rounding)
        claims = (flops, nbytes) if flops and nbytes else tuple(found for found in (flops, nbytes) if found)
        record = RecordRow(
            row=where,
            name=name,
            work=work,
            no_work=no_work,
            t_s=t_s,
            device=part,
            units=cus,
            clock="device-event",
            cache="cold",
            claims=claims,
            hand_written=t_s == 1e-6,
            alternatives=mistakes(*sizes, count, a, out) if a and (out == "fp32" or count > 1) else (),
            correct=None if wrong is None else ratio_ok(fields[wrong], MOST_WRONG),
            refused=refused,
            notes=notes,
        )
        return (record,)

    return row


@lru_cache(maxsize=1024)
def mistakes(m: int, n: int, k: int, batch: int, a: str, out: str) -> tuple[Alternative, ...]:
    """What somebody may have counted instead: a wide output at 2 bytes, one matrix of a batch."""
    found = []
    if out == "fp32":
        operands, c = (m * k + n * k) * parse_dtype(a).nbytes, m * n
        found.append(Alternative("dtype_width", (operands + 2 * c) / (operands + 4 * c), "memory", "an fp32 output at 2 bytes"))
    if batch > 1:
        found.append(Alternative("accounting_unit", 1 / batch, "", f"one matrix of a batch of {batch}"))
        found.append(Alternative("accounting_unit", float(batch), "", f"a batch of {batch} counted twice over"))
    return tuple(found)
