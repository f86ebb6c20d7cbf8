"""Tuned fused MoEs of aiter: ``us`` of both stages, ``tflops`` and ``bw`` (GB/s) beside it.

The printed bandwidth counts the weights of every expert, at every number of tokens; what is read is the experts that tokens
were routed to, which the work model expects from the routing of uniform draws. Some rows are copies of the row of another
number of tokens, rates included: they are found by times that are the same to the last digit, so the rows are held in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from roofline_engine.check import Alternative
from roofline_engine.ops.matmul import experts_hit

from .aiter_gemm import device
from .row import RecordRow
from .source import Sample, Source
from .table import Table, claim, dtype, duration, flag, half_digit, header, ratio_ok, shown, size

NAME = "aiter tuned fused MoE"

#: Above this share of wrong elements aiter's MoE tuner takes a kernel for wrong (FmoeTuner's errRatio).
MOST_WRONG = 0.5
_SHAPE = {"tokens": "token", "hidden": "model_dim", "inter": "inter_dim", "experts": "expert", "top_k": "topk"}


def matches(sample: Sample) -> bool:
    return {*_SHAPE.values(), "us"} <= header(sample)


def read(source: Source) -> Iterator[RecordRow]:
    table = Table(source)
    us = [place for place in (table.maybe(name) for name in ("us", "us1", "us2")) if place is not None]
    timed: dict[tuple[object, ...], set[int]] = {}
    rows: list[tuple[RecordRow, tuple[object, ...]]] = []
    read_row = _reader(table)

    def keyed(where: str, fields: list[str]) -> Iterable[RecordRow]:
        record = read_row(where, fields)
        work = record.work or {}
        key = (record.name, *(fields[place] for place in us), *(value for name, value in work.items() if name != "tokens"))
        timed.setdefault(key, set()).add(work["tokens"])
        rows.append((record, key))
        return (record,)

    keys = iter(rows)
    for record in list(table.records(keyed)):
        others = timed[next(keys)[1]] if record.work else set()
        yield _copied(record, others) if len(others) > 1 else record


def _copied(record: RecordRow, counts: set[int]) -> RecordRow:
    """A row whose time is printed for other numbers of tokens too: its rates may be those of one of them."""
    tokens = (record.work or {})["tokens"]
    others = tuple(
        Alternative(
            "accounting_unit", count / tokens, "compute", f"the same time is printed for {count} tokens, these are {tokens}"
        )
        for count in sorted(counts - {tokens}, reverse=True)
    )
    said = f"the same time, to the last digit, is printed for {', '.join(map(str, sorted(counts)))} tokens"
    return replace(record, alternatives=(*record.alternatives, *others), notes=(*record.notes, said))


def _reader(table: Table) -> Callable[[str, list[str]], RecordRow]:
    shape = [(key, column, table.column(column)) for key, column in _SHAPE.items()]
    us, gated = table.column("us"), table.maybe("use_g1u1")
    quantised = [name for name in ("q_dtype_a", "q_dtype_w") if table.maybe(name) is not None]
    operands = ("q_dtype_a", "q_dtype_w") if quantised else ("dtype", "dtype")  # one alone says nothing of the other
    a, w, out = table.column(operands[0]), table.column(operands[1]), table.column("dtype")
    gfx, units, one_stage = table.maybe("gfx"), table.maybe("cu_num"), table.maybe("run_1stage")
    kernels = [place for place in (table.maybe("kernelName1"), table.maybe("kernelName2")) if place is not None]
    errors = [place for place in (table.maybe("err1"), table.maybe("err2")) if place is not None]
    tflops, bw = table.maybe("tflops"), table.maybe("bw")

    def row(where: str, fields: list[str]) -> RecordRow:
        t_s, refused = duration(fields[us], "us", 1e-6)
        work: dict[str, Any] = {"op": "moe"}
        sizes = {key: size(fields[place], column) for key, column, place in shape}
        work.update(sizes, gated=gated is None or flag(fields[gated], "use_g1u1"))
        work.update(dtype=dtype(fields[a]), weight_dtype=dtype(fields[w]), out_dtype=dtype(fields[out]))
        part, cus, note = device("" if gfx is None else fields[gfx], "" if units is None else fields[units])
        rounding = half_digit(fields[us], t_s * 1e6) if t_s else 0.0
        claims = (
            None if tflops is None else claim(fields[tflops], "compute", 1e12, rounding),
            None if bw is None else claim(fields[bw], "memory", 1e9, rounding),
        )
        right = [ratio_ok(fields[place], MOST_WRONG) for place in errors]
        return RecordRow(
            row=where,
            name=" + ".join(shown(fields[place]) for place in kernels if fields[place].strip()),
            work=work,
            t_s=t_s,
            device=part,
            units=cus,
            launches=1 if one_stage is None or flag(fields[one_stage], "run_1stage") else 2,
            clock="device-event",
            cache="cold",
            claims=tuple(found for found in claims if found),
            hand_written=t_s == 1e-6,
            alternatives=every_expert(sizes["experts"], sizes["tokens"] * sizes["top_k"]),
            correct=False if False in right else True if True in right else None,
            refused=refused,
            notes=(note,) if note else (),
        )

    return row


def every_expert(experts: int, pairs: int) -> tuple[Alternative, ...]:
    """All experts counted where ``pairs`` of a token and an expert hit some, also at two and four times a weight's width."""
    all_to_hit = experts / experts_hit(experts, pairs)
    said = f"all {experts} experts counted, {experts / all_to_hit:.1f} are hit"
    return tuple(
        Alternative(
            "overcounted_bytes", all_to_hit * wide, "memory", said + (f", at {wide} times their width" if wide > 1 else "")
        )
        for wide in (1, 2, 4)
    )
