"""aiter: files of tuned GEMMs and fused MoEs, and tables of op tests. Times are device events over rotated operands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from roofline_engine.check import Mistake
from roofline_engine.kernels import find_scaling
from roofline_engine.ops.matmul import experts_expected
from roofline_engine.units import parse_dtype, quantize_dtype

from ..source import RecordRow, RefusedError
from ..table import ABSENT, RATES, TIMES, Column, Fields, Table, TableFormat, clean, dtype, flag, is_right, size, sizes
from ..values import judge

#: The gfx of parts with so many compute units, for older files without a gfx column: MI300X, MI308X and MI355X.
_GFX_OF_UNITS = {304: "gfx942", 80: "gfx942", 256: "gfx950"}
#: ``bw`` of a tuner is GB/s.
_RATES = {"tflops": RATES["tflops"], "bw": RATES["gb/s"]}
_TIMED: dict[str, Any] = {"clock": "device-event", "cache": "cold"}


def _part(table: Table) -> Callable[[Fields], tuple[dict[str, Any], tuple[str, ...]]]:
    """Return a function that reads a row's device, as fields of its RecordRow, with a note when it guesses gfx."""
    gfx, units = table.find("gfx"), table.find("cu_num")

    @lru_cache(maxsize=64)
    def part(name: str, count: str) -> tuple[dict[str, Any], tuple[str, ...]]:
        cus = size(count, "cu_num") if count.strip() else None
        if name.strip():
            return {"device": clean(name), "units": cus}, ()
        guess = _GFX_OF_UNITS.get(cus or 0)
        note = f"no gfx; parts with {cus} CUs are {guess}" if guess else f"no gfx, and no known part has {cus} CUs"
        return {"device": guess, "units": cus}, (note,)

    return lambda fields: part("" if gfx is None else fields[gfx], "" if units is None else fields[units])


# Wrong counts that the shape of a row makes possible, for any format with the same ops.

_NO_SCALES = "the scales of the blocks left out"


def mistakes_of(work: Mapping[str, Any] | None) -> tuple[Mistake, ...]:
    """Return the known wrong counts of a GEMM or a MoE with these keywords; none for other work."""
    if work is not None and work["op"] == "gemm":
        sizes = work["M"], work["N"], work["K"], work.get("batch", 1)
        return _gemm_mistakes(*sizes, work["dtype"], work.get("weight_dtype", work["dtype"]), work["out_dtype"])
    if work is not None and work["op"] == "moe":
        return _moe_mistakes(work["experts"], work["tokens"], work["top_k"], work.get("weight_dtype", work["dtype"]))
    return ()


@lru_cache(maxsize=1024)
def _gemm_mistakes(m: int, n: int, k: int, batch: int, dtype: str, weights: str, out_dtype: str) -> tuple[Mistake, ...]:
    """Leave the scales out, count an fp32 output at 2 bytes, one matrix of a batch, a batch twice."""
    mistakes, a, w, c = [], parse_dtype(dtype), parse_dtype(weights), m * n
    operands = m * k * a.nbytes + n * k * w.nbytes
    plain = (m * k * a.value_bits + n * k * w.value_bits) / 8
    if plain != operands:
        out = c * parse_dtype(out_dtype).nbytes
        factor = (plain + out) / (operands + out)
        mistakes.append(Mistake("dtype_width", factor, "memory", _NO_SCALES))
        mistakes.append(
            Mistake("accounting_unit", factor / 1000, "memory", f"a unit or a decimal place, 1/1000, and {_NO_SCALES}")
        )
    if out_dtype == "fp32":
        factor = (operands + 2 * c) / (operands + 4 * c)
        mistakes.append(Mistake("dtype_width", factor, "memory", "an fp32 output at 2 bytes"))
    if batch > 1:
        mistakes.append(Mistake("accounting_unit", 1 / batch, "", f"one matrix of a batch of {batch}"))
        mistakes.append(Mistake("accounting_unit", float(batch), "", f"a batch of {batch} counted twice over"))
    return tuple(mistakes)


def _moe_mistakes(experts: int, tokens: int, top_k: int, weights: str) -> tuple[Mistake, ...]:
    """Count all experts instead of those that the tokens hit, also at 2 and 4 times a weight's width; leave scales out."""
    hit, w = experts_expected(experts, tokens, top_k), parse_dtype(weights)
    values = w.value_bits / w.bits
    text = f"all {experts} experts counted, {hit:.1f} are hit"
    widths = {1: "", 2: ", at 2 times their width", 4: ", at 4 times their width"}
    if values < 1:
        text += f", {_NO_SCALES}"
    mistakes = [
        Mistake("overcounted_bytes", values * experts / hit * wide, "memory", text + more) for wide, more in widths.items()
    ]
    return *((Mistake("dtype_width", values, "memory", _NO_SCALES),) if values < 1 else ()), *mistakes


# Scales: a column q_type has aiter's QuantType, whose per_1x128 is DeepSeek's fp8 (its weights are scaled per 128 x 128). Files
# without one have them in the kernels' names. The tuners' own bandwidth leaves scales out.

_BLOCKS = {"per_1x128": ("per_1x128", "per_128x128")}


def _q_type(text: str, column: str) -> tuple[str, str] | None:
    """Return the quantization of activations and weights: ``QuantType.per_1x32``."""
    name = text.strip().rpartition(".")[2].lower()
    return _BLOCKS.get(name, (name, name)) if name else None


def _with_scales(work: dict[str, Any], scaling: tuple[str, str] | None) -> dict[str, Any]:
    """Return ``work`` with the scales in its dtypes, whose elements it has; a scheme that is unknown refuses the row."""
    if scaling is None:
        return work
    a, w = (parse_dtype(work[key]) for key in ("dtype", "weight_dtype" if "weight_dtype" in work else "dtype"))
    names = [quantize_dtype(*pair).name for pair in zip((a, w), scaling)]
    work = {**work, "dtype": names[0]}
    if "weight_dtype" in work or names[0] != names[1]:
        work["weight_dtype"] = names[1]
    return work


# Tuned GEMMs: one row is the fastest kernel for a shape, or a candidate with its share of wrong results.

#: The tuner itself rejects a kernel with a larger share of wrong elements.
_MOST_WRONG = 0.05
#: What a kernel's name contains, by dtype, for files without a dtype column. There a8w8 is the block-scaled fp8 family.
_NAMED_DTYPES = {
    "fp8": ("fp8gemm", "a8w8_blockscale", "a8w8_bpreshuffle"),
    "fp4": ("f4gemm", "a4w4"),
    "int8": ("i8gemm",),
    "bf16": ("bf16gemm",),
}


def _sparsity(text: str, column: str) -> str | None:
    """Return the sparsity of the weights; None for an empty cell, which is dense."""
    return clean(text).lower() or None


_GEMM = (
    *sizes(M="M", N="N", K="K"),
    Column("dtype", ("dtype", "q_dtype_w"), dtype, ""),
    Column("out_dtype", ("outdtype", "out_dtype"), dtype, "bf16"),
    Column("batch", ("B", "batch"), size, ABSENT),
    Column("sparsity", ("sparsity",), _sparsity, ABSENT),
)


def _dtype_of_kernel(name: str) -> str:
    return next((dtype for dtype, words in _NAMED_DTYPES.items() if any(word in name.lower() for word in words)), "")


def _read_gemms(table: Table) -> Iterator[RecordRow]:
    timing, part, shape = table.timing("us", TIMES["us"], _RATES), _part(table), table.bind(*_GEMM)
    other = table.bind(
        Column("name", ("kernelName", "libtype"), clean, ""),
        Column("correct", ("errRatio", "err_ratio"), is_right(_MOST_WRONG), None),
    )
    file_dtype = ""  # from the names of this file's kernels: a tuner's file has one dtype

    def row(where: str, fields: Fields) -> Iterable[RecordRow]:
        nonlocal file_dtype
        work, more = shape(fields), other(fields)
        device, notes = part(fields)
        if not work["dtype"]:
            work["dtype"] = file_dtype = _dtype_of_kernel(more["name"]) or file_dtype
            notes += (f"{file_dtype} from the kernel names; a dtype column is missing",) if file_dtype else ()
        if work.get("batch") == 1:
            del work["batch"]
        gemm = _with_scales({"op": "gemm", **work}, find_scaling(more["name"])) if work["dtype"] else None
        if gemm is None:
            more["no_work"] = "a dtype column is missing, and the kernel's name does not give the dtype"
        yield RecordRow(
            row=where,
            work=gemm,
            known_mistakes=mistakes_of(gemm),
            notes=notes,
            **timing(fields),
            **device,
            **more,
            **_TIMED,
        )

    return table.records(row)


# Tuned fused MoEs. ``us`` is the time of both stages. The printed bandwidth counts the weights of all experts for any number of
# tokens, but a launch reads only the experts that tokens are routed to; the work model assumes uniform routing. Some rows copy
# the time and the rates of another number of tokens. Times that agree to the last digit reveal them, so the rows are kept.

#: aiter's MoE tuner rejects a kernel with a larger share of wrong elements (FmoeTuner's errRatio).
_MOST_WRONG_MOE = 0.5
_MOE = (
    *sizes(tokens="token", hidden="model_dim", inter="inter_dim", experts="expert", top_k="topk"),
    Column("gated", ("use_g1u1",), flag, True),
)
#: Both or none: the dtype of the activations does not give the dtype of the weights.
_QUANTIZED = (Column("dtype", ("q_dtype_a",), dtype), Column("weight_dtype", ("q_dtype_w",), dtype))
_PLAIN = (Column("dtype", ("dtype",), dtype), Column("weight_dtype", ("dtype",), dtype))


def _read_moes(table: Table) -> list[RecordRow]:
    quantized = table.find("q_dtype_a") is not None or table.find("q_dtype_w") is not None
    shape = table.bind(*_MOE, *(_QUANTIZED if quantized else _PLAIN), Column("out_dtype", ("dtype",), dtype))
    scales = table.bind(Column("scaling", ("q_type",), _q_type, None))
    one_stage = table.bind(Column("launches", ("run_1stage",), lambda text, name: 1 if flag(text, name) else 2, 1))
    kernels = [place for place in map(table.find, ("kernelName1", "kernelName2")) if place is not None]
    errors = [place for place in map(table.find, ("err1", "err2")) if place is not None]
    times = [place for place in map(table.find, ("us", "us1", "us2")) if place is not None]
    timing, part, right = table.timing("us", TIMES["us"], _RATES), _part(table), is_right(_MOST_WRONG_MOE)
    timed: list[tuple[RecordRow, set[int]]] = []  # each record, with all numbers of tokens that have its time
    tokens: dict[tuple[object, ...], set[int]] = {}

    def row(where: str, fields: Fields) -> Iterable[RecordRow]:
        name = " + ".join(clean(fields[place]) for place in kernels if fields[place].strip())
        work = _with_scales({"op": "moe", **shape(fields)}, scales(fields)["scaling"] or find_scaling(name))
        device, notes = part(fields)

        record = RecordRow(
            row=where,
            name=name,
            work=work,
            known_mistakes=mistakes_of(work),
            correct=judge(right(fields[place], "") for place in errors),
            notes=notes,
            **timing(fields),
            **device,
            **one_stage(fields),
            **_TIMED,
        )
        key = (record.name, *(fields[place] for place in times), *(work[name] for name in work if name != "tokens"))
        timed.append((record, tokens.setdefault(key, set())))
        timed[-1][1].add(work["tokens"])
        yield record

    rows = list(table.records(row))
    for record, counts in timed:
        if len(counts) > 1:
            _mark_copied(record, sorted(counts, reverse=True))
    return rows


def _mark_copied(record: RecordRow, counts: list[int]) -> None:
    """Mark a row whose time is also printed for other numbers of tokens: its rates may be theirs."""
    assert record.work is not None
    tokens = record.work["tokens"]
    for count in counts:
        if count != tokens:
            text = f"the same time is printed for {count} tokens, this row has {tokens}"
            record.known_mistakes += (Mistake("accounting_unit", count / tokens, "compute", text),)
    record.notes += (f"the same time, to the last digit, is printed for {', '.join(map(str, reversed(counts)))} tokens",)


# Tables of op tests, CSV or Markdown, with columns such as ``ck us``, ``ck TFLOPS``, ``triton us``, or ``us`` alone. Each row
# gives one record per backend. The columns of the shape give the op: M, N, K of a GEMM; nhead, batch, ctx of MLA decode over a
# latent of 512 + 64, as aiter counts its FLOPs.

_TIME = re.compile(rf"(?:(?P<backend>.*\S)\s+)?(?P<unit>{'|'.join(map(re.escape, TIMES))})", re.I)
_MLA = (
    *sizes(batch="batch", n_q_heads="nhead", seq_len="ctx"),
    Column("seq_q", ("mtp", "decode_qlen"), size, 1),
    Column("dtype", ("dtype", "q_dtype_w", "q_dtype"), dtype),
)
_TEST_GEMM = (*_GEMM[:3], Column("dtype", ("dtype", "q_dtype_w", "q_dtype"), dtype), *_GEMM[4:])


def _backend_and_unit(name: str) -> tuple[str, float] | None:
    """Split the name of a column of times into the backend and seconds of one; None for another column."""
    match = _TIME.fullmatch(name)
    if match is None or name.lower() == "s":  # a column named s is a size
        return None
    return match["backend"] or "", TIMES[match["unit"].lower()]


def _is_op_test(names: frozenset[str]) -> bool:
    has_rate = any(name.rpartition(" ")[2] in RATES or name.endswith(("tb/s", "tflops", "tflpos")) for name in names)
    return has_rate and any(map(_backend_and_unit, names))


def _read_op_tests(table: Table) -> Iterator[RecordRow]:
    backends = []
    for name in table.names:
        column = _backend_and_unit(name)
        if column:
            backend, unit = column
            prefix = f"{backend} " if backend else ""
            rates = {prefix + rate: base for rate, base in RATES.items()}
            backends.append((clean(backend), table.timing(name, unit, rates)))
    if not backends:
        raise RefusedError(f"{table.label}: no column of a time such as us or ck us")
    part, shape, has_units = _part(table), _op_test_shape(table), table.find("cu_num") is not None

    def row(where: str, fields: Fields) -> Iterator[RecordRow]:
        work, no_work = shape(fields)
        device, notes = part(fields)
        notes, mistakes = notes if has_units else (), mistakes_of(work)
        more = dict(work=work, no_work=no_work, known_mistakes=mistakes, notes=notes, **device, **_TIMED)
        for backend, timing in backends:
            yield RecordRow(row=where, name=backend, **timing(fields), **more)

    return table.records(row)


def _op_test_shape(table: Table) -> Callable[[Fields], tuple[dict[str, Any] | None, str]]:
    """Return a function that turns a row's fields into the keywords of the work model, or None and the reason."""
    names = {name.lower() for name in table.names}
    if names.isdisjoint(("dtype", "q_dtype_w", "q_dtype")):
        return lambda fields: (None, "no dtype column")
    if names >= {"m", "n", "k"}:
        gemm = table.bind(*_TEST_GEMM)
        return lambda fields: ({"op": "gemm", **gemm(fields)}, "")
    if names >= {"nhead", "batch", "ctx"}:
        mla = table.bind(*_MLA)

        def decode(fields: Fields) -> tuple[dict[str, Any], str]:
            work = {"op": "mla_decode", **mla(fields)}
            return {**work, "kv_dtype": work["dtype"], "out_dtype": "bf16"}, ""

        return decode
    first_time = next(place for place, name in enumerate(table.names) if _backend_and_unit(name))
    shape = ", ".join(table.names[:first_time])
    return lambda fields: (None, f"no work model for the columns {shape}")


TUNED_GEMM = TableFormat(
    "aiter tuned GEMM",
    lambda names: {"m", "n", "k", "us"} <= names and not names.isdisjoint(("cu_num", "gfx")) and "tb/s" not in names,
    _read_gemms,
    "gfx or cu_num, M, N, K, dtype, outdtype, us, tflops, bw, kernelName",
)
TUNED_MOE = TableFormat(
    "aiter tuned fused MoE",
    lambda names: {"token", "model_dim", "inter_dim", "expert", "topk", "us"} <= names,
    _read_moes,
    "gfx or cu_num, token, model_dim, inter_dim, expert, topk, dtype, us, tflops, bw",
)
OP_TEST = TableFormat(
    "aiter op test",
    _is_op_test,
    _read_op_tests,
    "M, N, K, dtype (or nhead, batch, ctx), and BACKEND us, BACKEND TFLOPS, BACKEND TB/s",
)
