"""A table of claims, as people write it by hand: a row a measurement, columns named as the parameters of the work models.

docs/check.md lists the columns. The table states neither how its times were taken nor what was in a cache, so clock and cache
are unknown unless columns of that name say it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from math import inf
from typing import Any, NamedTuple

from roofline_engine.check import BASELINE_KINDS, CACHES, CLOCKS, Claim
from roofline_engine.kernels import classify
from roofline_engine.ops import OPS, op_name
from roofline_engine.units import half_digit, printable
from roofline_engine.work import REQUIRED

from ..source import DocumentFormat, RecordRow, RefusedError, Sample, Source, outline, parse
from ..table import (
    RATES,
    TIMES,
    Column,
    Fields,
    Table,
    TableFormat,
    claim,
    clean,
    dtype,
    duration,
    real,
    size,
    split_unit,
    table_of,
)
from ..values import NO_FLOPS, check_work
from .aiter import mistakes_of

_NAMES = ("name", "kernel_name", "test", "case", "label", "id")
_DEVICES = ("device", "gpu", "device_name", "gpu_name", "hardware")
_SHAPES = ("shape", "mnk", "problem", "problem_size", "size")
#: The kind of baseline by the first word of its column.
_BASELINES = {
    **dict.fromkeys(("baseline", "base"), "unknown"),
    **dict.fromkeys(("previous", "before", "old"), "previous"),
    **dict.fromkeys(("reference", "ref"), "reference"),
    **dict.fromkeys(("eager", "compiled"), ""),  # a kind of that name
}
#: Words beside the unit of a time that stand for the time of a row, and their rank: a median is taken before a mean.
_TIME_WORDS = {
    **dict.fromkeys(("time", "t", "latency", "duration", "runtime", "elapsed", "kernel", "gpu", "device", "measured"), 0),
    **dict.fromkeys(("optimized", "new", "after", "candidate", "mine", "ours"), 0),
    **dict.fromkeys(("median", "p50"), 0),
    **dict.fromkeys(("mean", "avg", "average"), 1),
    **dict.fromkeys(("min", "best"), 2),
}
#: Words of a column whose cells have the unit.
_LAST = 9  # the rank of such a column
_BARE_TIMES = {"time", "latency", "duration", "runtime", "elapsed"}
#: Words beside the unit of a rate that stand for the rate of a row.
_RATE_WORDS = {"achieved", "effective", "measured", "bandwidth", "bw", "throughput", "memory", "compute", "mem"}
_WORDS = re.compile(r"[^\s()\[\],;:=_]+")
_NUMBERS = re.compile(r"\d+")
#: A list of sizes in one cell: ``3x3``, ``[3, 3]``, ``3*3``.
_LIST = re.compile(r"[\[(]?\s*\d+(?:\s*[x*,;\u00d7\s]\s*\d+)+\s*[\])]?", re.I)
#: One number with separators, which is refused: ``4,096``.
_THOUSANDS = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+")


class _TimeColumn(NamedTuple):
    """A column of a time."""

    name: str
    unit: float | None  # seconds of one; None: each cell has its unit
    rank: int  # the lowest is taken
    baseline: str | None  # the kind of baseline whose time it is; None for the time of the row


def _split_unit(name: str, units: Mapping[str, Any]) -> tuple[list[str], Any]:
    """Return the words of a column's name without its unit, and what ``units`` has for the unit; None without one."""
    low = name.lower()
    for spelling in sorted(units, key=len, reverse=True):
        bare = low.rstrip(") ]")
        if bare.endswith(spelling) and (len(bare) == len(spelling) or not bare[-len(spelling) - 1].isalnum()):
            return _WORDS.findall(bare[: -len(spelling)]), units[spelling]
    return [], None


def _time_column(name: str) -> _TimeColumn | None:
    """Return what a column of a time holds; None for another column. A column ``s`` is a size."""
    words, unit = _split_unit(name, TIMES)
    if name.lower() == "s":
        return None
    words = _WORDS.findall(name.lower()) if unit is None else words
    baseline = _BASELINES.get(words[0]) if words else None
    if baseline is not None:
        baseline, words = baseline or words[0], words[1:]
    if not all(word in _TIME_WORDS for word in words) or (unit is None and _BARE_TIMES.isdisjoint(words)):
        return None
    rank = max((_TIME_WORDS[word] for word in words), default=0)
    return _TimeColumn(name, unit, rank if unit is not None else _LAST, baseline)


def _rate_column(name: str) -> tuple[str, float] | None:
    words, rate = _split_unit(name, RATES)
    return rate if rate is not None and all(word in _RATE_WORDS for word in words) else None


def _is_claims(names: frozenset[str]) -> bool:
    """Return whether columns are of this table, and of none that is more particular."""
    times = [column for column in map(_time_column, names) if column is not None and column.baseline is None]
    if not times:
        return "op" in names and "speedup" in names
    if "op" in names or not names.isdisjoint(_SHAPES) or "bytes" in names:
        return True
    if {"nhead", "batch", "ctx"} <= names:  # an op test of aiter
        return False
    has_rate = any(map(_rate_column, names))
    return not has_rate if {"m", "n", "k"} <= names else has_rate  # sizes with rates are an op test of aiter too


def _read_claims(table: Table) -> Iterator[RecordRow]:
    time, baseline = _times(table)
    find = {name: table.find(*names) for name, names in (("name", _NAMES), ("device", _DEVICES), ("shape", _SHAPES))}
    rates = [(at, *rate) for at, name in enumerate(table.names) if (rate := _rate_column(name)) is not None]
    speedup, kind = table.find("speedup"), table.find("baseline_kind")
    how = table.bind(
        Column("clock", ("clock",), _choice(CLOCKS), "unknown"),
        Column("cache", ("cache",), _choice(CACHES), "unknown"),
        Column("launches", ("launches",), _launches, 1.0),
    )
    work_of = _work_reader(table, find["shape"], {*map(table.find, (*_NAMES, *_DEVICES))} - {None})

    def row(where: str, fields: Fields) -> Iterable[RecordRow]:
        t_s, refused, rounding, is_one = None, "", 0.0, False
        if time is not None:
            text, unit = _time_cell(fields[table.place(time.name)], time)
            t_s, refused = duration(text, time.name, unit)
            rounding = half_digit(text, t_s / unit) if t_s else 0.0
            is_one = t_s == unit
        printed_digits = rounding
        claims = [item for at, axis, base in rates if (item := claim(fields[at], axis, base, rounding)) is not None]
        work, no_work = work_of(fields)
        notes: tuple[str, ...] = ()
        if work is None and t_s is not None and claims:
            work, no_work, notes = _work_of_rates(claims, t_s, no_work)
            printed_digits = max((item.digits for item in claims), default=rounding)
        values: dict[str, Any] = {"baseline_kind": fields[kind].strip() if kind is not None else "unknown"}
        if values["baseline_kind"] not in BASELINE_KINDS:
            raise ValueError(f"baseline_kind is {fields[kind or 0][:40]!r}, expected one of {', '.join(BASELINE_KINDS)}")
        if baseline is not None and fields[at := table.place(baseline.name)].strip():
            text, unit = _time_cell(fields[at], baseline)
            values["baseline_t_s"], wrong = duration(text, baseline.name, unit)
            if wrong:
                raise ValueError(wrong)
            if values["baseline_kind"] == "unknown":
                values["baseline_kind"] = baseline.baseline
            rounding += half_digit(text, values["baseline_t_s"] / unit)
        printed = _speedup(fields[speedup], table.names[speedup]) if speedup is not None else None
        if printed is not None and "baseline_t_s" in values:
            text = fields[speedup or 0].strip().rstrip("xX")
            claims.append(Claim("speedup", printed, half_digit(text, printed) + rounding))
        elif printed is not None:
            values["speedup"] = printed
        if t_s is None and not refused and printed is None:
            refused = "no time and no speedup"
        yield RecordRow(
            row=where,
            name=_text(find["name"], fields),
            device=_text(find["device"], fields) or None,
            work=work,
            no_work=no_work,
            t_s=t_s,
            rounding=printed_digits,
            placeholder_time=is_one,
            claims=tuple(claims),
            known_mistakes=_mistakes(work),
            refused=refused,
            refused_code="time",
            notes=notes,
            **values,
            **how(fields),
        )

    return table.records(row)


def _time_cell(text: str, column: _TimeColumn) -> tuple[str, float]:
    """Return the number of a time and its unit in seconds. Raises ValueError for a cell without the unit that it needs."""
    if column.unit is not None or not text.strip():
        return text, column.unit or 1.0
    number, unit = split_unit(text)
    if unit is None:
        shown = text.strip()[:20]
        raise ValueError(f"{column.name} is {shown!r}: the unit is missing. Write {shown} us, or name the column time_us")
    return number, unit


def _times(table: Table) -> tuple[_TimeColumn | None, _TimeColumn | None]:
    """Return the columns of the row's time and of its baseline. Raises RefusedError where two have the same rank."""
    columns = [column for column in map(_time_column, table.names) if column is not None]
    chosen = []
    for kind in ([column for column in columns if column.baseline is None], [c for c in columns if c.baseline is not None]):
        ranked = sorted(kind, key=lambda column: column.rank)
        if len(ranked) > 1 and ranked[0].rank == ranked[1].rank:
            names = f"{printable(ranked[0].name)} and {printable(ranked[1].name)}"
            raise RefusedError(f"{table.label}: the columns {names} are both the time of a row. Keep one, or rename the other")
        chosen.append(ranked[0] if ranked else None)
    return chosen[0], chosen[1]


_Work = tuple["dict[str, Any] | None", str]  # the keywords of a work model, or None and the reason


def _work_reader(table: Table, shape: int | None, taken: set[int | None]) -> Callable[[Fields], _Work]:
    """Return a function that turns a row's fields into the keywords of its work.

    taken: the columns that hold a name or a device.
    """
    op_at, bytes_at, flops_at = table.find("op"), table.find("bytes"), table.find("flops")
    has_sizes = all(table.find(name) is not None for name in "MNK")

    @cache
    def columns_of(op: str) -> list[tuple[str, int]]:
        """Return the columns of the parameters of an op. Raises ValueError for a column that is probably misspelled."""
        accepted = {name.lower(): name for name in OPS[op].accepted}
        columns = []
        for at, name in enumerate(table.names):
            if name.lower() in accepted and at not in taken:
                columns.append((accepted[name.lower()], at))
            elif len(name) > 3 and _is_free(name) and (near := get_close_matches(name.lower(), accepted, n=1, cutoff=0.85)):
                raise ValueError(f"the column {printable(name)[:40]} is not read. Did you mean {accepted[near[0]]}?")
        return columns

    def read(fields: Fields) -> _Work:
        op = op_name(fields[op_at].strip().lower()) if op_at is not None else ""
        op = op or ("gemm" if has_sizes else "")
        if op and op not in OPS and bytes_at is None:
            return None, _explain_op(op)
        work: dict[str, Any] = {"op": op}
        if op in OPS:
            work.update({name: _value(fields[at], name) for name, at in columns_of(op) if fields[at].strip()})
            if op == "conv1d":  # its lists of sizes have one, which looks like a number
                work.update({name: [work[name]] for name in ("input", "kernel") if isinstance(work.get(name), int)})
            if shape is not None and fields[shape].strip():
                work.update(_sizes(fields[shape], op, table.names[shape]))
        has_model = op in OPS and all(name in work for name, default in OPS[op].parameters.items() if default is REQUIRED)
        if not has_model and bytes_at is not None and fields[bytes_at].strip():
            work = {"op": op} if op else {}
            for key in ("dtype", "weight_dtype"):
                at = table.find(key)
                work.update({key: dtype(fields[at], key)} if at is not None and fields[at].strip() else {})
            work["bytes"] = real(fields[bytes_at], "bytes", above=0)
            if flops_at is not None and fields[flops_at].strip():
                work["flops"] = real(fields[flops_at], "flops")
            return work, ""
        return (work, "") if op else (None, "the column op is missing: name the op of each row, such as gemm or rmsnorm")

    return read


def _explain_op(op: str) -> str:
    """Return that an op has no work model, and which one is probably meant: kernels have other names, such as matmul."""
    known = classify(op).op
    near = [known] if known in OPS else get_close_matches(op, OPS, n=1)
    return f"op {printable(op)[:40]!r} has no work model{f'. Did you mean {near[0]}?' if near else ''}"


def _is_free(name: str) -> bool:
    """Return whether this table has no meaning of its own for a column."""
    known = (*_NAMES, *_DEVICES, *_SHAPES, "op", "bytes", "flops", "speedup", "baseline_kind", "clock", "cache", "launches")
    return name.lower() not in known and _time_column(name) is None and _rate_column(name) is None


def _value(text: str, name: str) -> Any:
    """Return a parameter's value: a dtype, a flag, a list of sizes, a number, else text."""
    text = text.strip()
    if name.endswith("dtype"):
        return dtype(text, name)
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if _THOUSANDS.fullmatch(text):
        raise ValueError(
            f"{name} is {text[:40]!r}: leave out the separator of thousands; a list of sizes is {text.replace(',', 'x')}"
        )
    if _LIST.fullmatch(text):
        return [int(number) for number in _NUMBERS.findall(text)]
    try:
        value = real(text, name)
    except ValueError:
        return clean(text)
    return int(value) if value == int(value) else value


def _sizes(text: str, op: str, column: str) -> dict[str, int]:
    """Return the sizes in one cell, such as ``4096x4096x1024`` for M, N and K of a GEMM, or ``rows x cols``."""
    required = [name for name, default in OPS[op].parameters.items() if default is REQUIRED]
    numbers = _NUMBERS.findall(text)
    if required not in (["M", "N", "K"], ["rows", "cols"]) or len(numbers) != len(required):
        raise ValueError(f"{column} is {text[:40]!r}: {op} takes {', '.join(required)}. Give each a column of its own")
    return {name: size(number, column) for name, number in zip(required, numbers)}


def _work_of_rates(claims: list[Claim], t_s: float, reason: str) -> tuple[dict[str, Any] | None, str, tuple[str, ...]]:
    """Return the bytes that a printed bandwidth and a time give: all that a row without sizes says of its work."""
    bandwidth = next((claim.claimed for claim in claims if claim.axis == "memory" and claim.claimed > 0), None)
    if bandwidth is None:
        return None, reason, ()
    return {"bytes": bandwidth * t_s}, "", (NO_FLOPS, "bytes are the printed bandwidth times the time")


def _mistakes(work: Mapping[str, Any] | None) -> tuple[Any, ...]:
    try:
        return mistakes_of({"out_dtype": (work or {}).get("dtype"), **work} if work else None)
    except (KeyError, TypeError, ValueError):  # a row without a size; building the work says which
        return ()


def _speedup(text: str, column: str) -> float | None:
    text = text.strip()
    if not text:
        return None
    value = real(text.rstrip("xX"), column, above=0.0)
    return value if value < inf else None


def _launches(text: str, column: str) -> float:
    return real(text, column, above=0.0) if text.strip() else 1.0


def _choice(choices: tuple[str, ...]) -> Callable[[str, str], str]:
    def read(text: str, column: str) -> str:
        value = text.strip().lower() or "unknown"
        if value not in choices:
            raise ValueError(f"{column} is {text[:40]!r}, expected one of {', '.join(choices)}")
        return value

    return read


def _text(place: int | None, fields: Fields) -> str:
    return "" if place is None else clean(fields[place])


#: Sizes that an op takes in several ways, and the way that suits a table.
_TEMPLATE_SIZES = {
    "attn_prefill": ("batch", "seq_q", "seq_kv"),
    "attn_backward": ("batch", "seq_q", "seq_kv"),
    "attn_decode": ("seq_len",),
    "mla_decode": ("seq_len",),
    "quantize": ("out_dtype",),
    "dequantize": ("out_dtype",),
}


def template(op: str) -> str:
    """Return the header of a table for one op.

    Raises:
        ValueError: for an op without a work model.
    """
    name = op_name(op)
    if name not in OPS:
        raise ValueError(f"{_explain_op(name)} Choose one of {', '.join(sorted(OPS))}")
    required = [parameter for parameter, default in OPS[name].parameters.items() if default is REQUIRED]
    required += _TEMPLATE_SIZES.get(name, ())
    return ",".join(("name", "op", *required, "dtype", "device", "us", "baseline_us", "speedup", "GB/s", "TFLOPS"))


CLAIMS = TableFormat(
    "table of claims",
    _is_claims,
    _read_claims,
    "a time such as us or latency_ms; op with the parameters of its work model, shape, or bytes; device, dtype, name, "
    "baseline_us, speedup, GB/s, TFLOPS",
)


# The same as JSON: a list of objects, or an object a line, with the columns as keys.


def _json_columns(sample: Sample) -> frozenset[str]:
    is_list = sample.text.lstrip().startswith("[")
    keys = sample.keys if is_list else outline(sample.first)
    paths = (key.rpartition(".") for key in keys)
    return frozenset(name.lower() for parent, _, name in paths if parent == ("[]" if is_list else ""))


def _read_json_claims(source: Source) -> Iterator[RecordRow]:
    if source.sample().text.lstrip().startswith("["):
        rows = source.json()
    else:
        rows = [parse(line, f"{source.label}: line {at}") for at, line in enumerate(source.lines(), 1) if line.strip()]
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise RefusedError(f"{source.label}: expected a list of objects, or an object a line")
    known = [{name: value for name, value in row.items() if value is not None} for row in rows]
    for record in _read_claims(table_of(known, source.label)):
        if record.work is not None:
            record.work, record.no_work = check_work(record.work)
        yield record


JSON_CLAIMS = DocumentFormat(
    "JSON claims",
    lambda sample: _is_claims(_json_columns(sample)),
    _read_json_claims,
    "the columns of a table of claims as keys",
)
