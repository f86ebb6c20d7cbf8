"""Tables of Triton kernels: tritonbench's CSV, Liger-Kernel's long CSV, ``triton.testing.perf_report``, a sweep of tiles."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from typing import Any, NamedTuple

from roofline_engine.units import half_digit, unit_in

from ..source import DocumentFormat, RecordRow, RefusedError, Sample, Source, split_header
from ..table import (
    ABSENT,
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
    read_csv,
    size,
    sizes,
)
from ..values import NO_FLOPS
from .aiter import mistakes_of


def kind_of_provider(name: str) -> str:
    """Return the kind of baseline that a provider is: code of a framework is eager unless its name has a compiler."""
    low = name.lower()
    if "compile" in low or "inductor" in low:
        return "compiled"
    return "eager" if any(word in low for word in ("huggingface", "torch", "aten", "eager")) else "reference"


# tritonbench: one row an input, a column per backend and metric (``triton-latency`` in ms, ``-tflops``, ``-gbps``). The file
# names neither the op nor the dtype, so its times are compared with each other. The last row averages the others. The lists of
# shapes that such a run starts from are CSV too: they hold nothing to check and are refused.

#: The columns of a list of shapes.
_SHAPE_COLUMNS = {"m", "n", "k", "b", "batch", "bias", "dtype", "count"}
_SUMMARIES = {"average": "the average over the rows above, not an input", "hashes": "hashes of the kernels, not an input"}
_CORRECT = {"1.0": True, "1": True, "true": True, "0.0": False, "0": False, "false": False}
_LATENCY = "-latency"


def _is_tritonbench(names: frozenset[str]) -> bool:
    return any(name.endswith(_LATENCY) for name in names) or ({"m", "n", "k"} <= names and names <= _SHAPE_COLUMNS)


def _median(text: str) -> str:
    """Return the median in a cell, without the spread in parentheses behind it."""
    return text.partition("(")[0].strip() or text


def _speedup(text: str, _: str) -> float | None:
    try:
        value = float(text.removesuffix("x"))
    except ValueError:
        return None
    return value if 0.0 < value < inf else None


def _read_tritonbench(table: Table) -> Iterator[RecordRow]:
    names = [name[: -len(_LATENCY)] for name in table.names if name.lower().endswith(_LATENCY)]
    if not names:
        raise RefusedError(
            f"{table.label}: shapes alone ({', '.join(table.names)[:80]}), no column of a time: nothing to check"
        )
    backends = []
    for name in names:
        rates = {f"{name}-{rate}": base for rate, base in RATES.items()}
        more = table.bind(
            Column("speedup", (f"{name}-speedup",), _speedup, None),
            Column("correct", (f"{name}-accuracy",), lambda text, _: _CORRECT.get(text.strip().lower()), None),
        )
        backends.append((name, table.timing(name + _LATENCY, TIMES["ms"], rates, _median), more))
    compared = [table.find(f"{name}-speedup") is not None for name in names]
    base = compared.index(False) if any(compared) and not all(compared) else None  # the others are compared with this backend

    def row(where: str, fields: Fields) -> Iterator[RecordRow]:
        x = fields[0].strip()
        if x.lower() in _SUMMARIES:
            yield RecordRow(row=where, name=x, refused=_SUMMARIES[x.lower()], refused_code="summary")
            return
        base_s = None if base is None else backends[base][1](fields)["t_s"]
        for at, (name, timing, more) in enumerate(backends):
            values = {**more(fields), **timing(fields)}
            if "refused" in values:
                values["speedup"] = None
            if base is not None and at != base:
                values.update(baseline_kind=kind_of_provider(names[base]), baseline_t_s=base_s)
            yield RecordRow(
                row=where,
                name=clean(f"{name} {table.names[0]}={x}"),
                no_work="the file names neither the op nor the dtype",
                clock="device-event",
                **values,
            )

    return table.records(row)


# Liger-Kernel: a row a kernel, provider, mode and size; ``speed`` in ms and ``memory`` in MB share one column. Times are the
# medians of triton's do_bench, which empties the cache before each run, with the 20th and 80th percentile. Another provider's
# row with the same sizes, GPU and mode is the baseline, wherever it is in the file, so the rows are kept in memory.

_MISSING = ("", "nan", "none", "null")
_LIGER = ("kernel_name", "kernel_provider", "kernel_operation_mode", "metric_name", "metric_unit", "x_name", "x_value")
_OURS = "liger"  # the start of Liger's own providers
_Timed = tuple[RecordRow, tuple[str, ...], str]  # a record with its sizes and its provider
_Params = Mapping[str, Any]


def _read_liger(table: Table) -> list[RecordRow]:
    timed: list[_Timed] = []
    rows = list(table.records(_liger_row(table, timed)))
    baselines: dict[tuple[str, ...], tuple[str, float | None]] = {}  # the first other provider of the same sizes
    for record, key, provider in timed:
        if not provider.startswith(_OURS):
            baselines.setdefault(key, (kind_of_provider(provider), record.t_s))
    for record, key, provider in timed:
        if provider.startswith(_OURS) and key in baselines:
            record.baseline_kind, record.baseline_t_s = baselines[key]
    return rows


def _liger_row(table: Table, timed: list[_Timed]) -> Callable[[str, Fields], Iterable[RecordRow]]:
    """Return a function that reads a row, and adds the records with a time to ``timed``."""
    kernel, provider, mode, metric, unit, x_name, x_value = (table.place(name) for name in _LIGER)
    median, low, high = table.place("y_value_50"), table.find("y_value_20"), table.find("y_value_80")
    config, gpu, version = (table.find(name) for name in ("extra_benchmark_config_str", "gpu_name", "liger_version"))
    of_same_sizes = [at for at in (kernel, mode, x_name, x_value, config, gpu, version) if at is not None]

    def row(where: str, fields: Fields) -> Iterable[RecordRow]:
        name = clean(f"{fields[kernel]} {fields[mode]} {fields[provider]} {fields[x_name]}={fields[x_value]}")
        device = clean(fields[gpu]) or None if gpu is not None else None
        if fields[metric] != "speed":
            why = f"metric_name is {fields[metric][:40]!r} in {fields[unit][:10]}, not a time"
            yield RecordRow(row=where, name=name, device=device, refused=why)
            return
        second = TIMES.get(fields[unit].lower())
        if second is None:
            raise ValueError(f"metric_unit is {fields[unit][:40]!r}, expected a unit of time such as ms or us")
        if fields[x_value].strip().lower() in _MISSING:
            raise ValueError(f"x_value is {fields[x_value][:40]!r}: the size of {fields[x_name][:40]} is missing")
        t_s, refused = duration(fields[median], "y_value_50", second)
        q1_s, q3_s = (None if at is None else duration(fields[at], "", second)[0] for at in (low, high))
        has_spread = q1_s is not None and q3_s is not None
        params = "{}" if config is None else fields[config]
        work, no_work = _liger_work(fields[kernel], fields[mode], fields[x_name], fields[x_value], params)
        timed_flops = work.pop("timed_flops", None) if work else None
        record = RecordRow(
            row=where,
            name=name,
            work=work,
            no_work=no_work,
            t_s=t_s,
            rounding=half_digit(fields[median], t_s / second) if t_s else 0.0,
            device=device,
            clock="device-event",
            cache="cold",
            q1_s=q1_s if has_spread else None,
            q3_s=q3_s if has_spread else None,
            placeholder_time=t_s == second,
            known_mistakes=mistakes_of(work),
            timed_flops=timed_flops,
            refused=refused,
            refused_code="time",
            notes=("quartiles are the 20th and 80th percentile",) if has_spread else (),
        )
        if t_s is not None:
            timed.append((record, tuple(fields[at] for at in of_same_sizes), fields[provider].lower()))
        yield record

    return row


def _liger_work(kernel: str, mode: str, x_name: str, x_value: str, config: str) -> tuple[dict[str, Any] | None, str]:
    """Return the keywords of the work model, with the ``timed_flops`` when more was timed; or None and the reason."""
    if mode not in ("forward", "no-grad-forward"):
        return None, f"mode {mode[:40]}: the models are of forward passes"
    if kernel not in _LIGER_OPS:
        return None, f"no work model for kernel {kernel[:40]}"
    try:
        params = json.loads(config or "{}")
    except (ValueError, RecursionError):
        raise ValueError(f"extra_benchmark_config_str is {config[:40]!r}, expected JSON") from None
    if not isinstance(params, dict):
        raise ValueError(f"extra_benchmark_config_str is {config[:40]!r}, expected an object")
    params[x_name] = x_value
    if "dtype" not in params:
        return None, "the row gives no dtype"
    try:
        work = _LIGER_OPS[kernel](params)
    except KeyError as error:
        return None, f"the row gives no {error.args[0]}"
    return {**work, "dtype": dtype(str(params["dtype"]))}, ""


def _rows(op: str, column: str, **more: Any) -> Callable[[_Params], dict[str, Any]]:
    return lambda params: {"op": op, "rows": _size(params, "M"), "cols": _size(params, column), **more}


def _rope(params: _Params) -> dict[str, Any]:
    tokens = _size(params, "seq_len" if "seq_len" in params else "T")
    heads, hidden = _size(params, "num_q_heads"), _size(params, "hidden_size" if "hidden_size" in params else "H")
    return {"op": "rope", "tokens": tokens, "n_heads": heads + _size(params, "num_kv_heads"), "head_dim": hidden // heads}


def _cross_entropy(params: _Params) -> dict[str, Any]:
    rows = _size(params, "BT") if "BT" in params else _size(params, "B") * _size(params, "T")
    return {"op": "cross_entropy", "rows": rows, "cols": _size(params, "V" if "V" in params else "vocab_size")}


def _gated_mlp(params: _Params) -> dict[str, Any]:
    """Return the activation, which names the kernel, and the FLOPs of the three GEMMs that are timed with it."""
    tokens = _size(params, "B") * _size(params, "T")
    hidden, inter = _size(params, "hidden_size"), _size(params, "intermediate_size")
    return {"op": "elementwise", "numel": tokens * inter, "inputs": 2, "timed_flops": 6.0 * tokens * hidden * inter}


def _fused_moe(params: _Params) -> dict[str, Any]:
    shape = {"tokens": "T", "hidden": "H", "inter": "intermediate_dim", "experts": "E", "top_k": "K"}
    return {"op": "moe", **{key: _size(params, name) for key, name in shape.items()}}


def _size(params: _Params, name: str) -> int:
    if params[name] is None:
        raise KeyError(name)
    return size(str(params[name]), name)


_LIGER_OPS: Mapping[str, Callable[[_Params], dict[str, Any]]] = {
    "rms_norm": _rows("rmsnorm", "H"),
    "fused_add_rms_norm": _rows("rmsnorm", "H", residual=True),
    "layer_norm": _rows("layernorm", "N"),
    "softmax": _rows("softmax", "N"),
    "rope": _rope,
    "cross_entropy": _cross_entropy,
    "swiglu": _gated_mlp,
    "geglu": _gated_mlp,
    "fused_moe": _fused_moe,
}


# ``triton.testing.perf_report``: a row for each input, a column for each provider with the unit in parentheses, such as
# ``Triton (TFLOPS)``. Intel's benchmarks of Triton for XPU have two columns for each provider, ``Triton-GB/s`` and
# ``Triton-TFlops``, with -min, -max and -CV. Rates alone give no time, but 2 M N K over the rate of a GEMM is one. The first
# provider that is a library or a framework is the baseline. Neither file names an op or a device. A dtype needs a column.

_IN_PARENTHESES = re.compile(r"(.+?) \((.+)\)")
_INTEL = re.compile(r"(.+)-(GB/s|TFlops)(-min|-max)?", re.I)
_INTEL_SPREAD = re.compile(r".+-CV", re.I)
_LIBRARIES = re.compile(r"torch|aten|eager|inductor|compile|blas|cudnn|onednn|xetla|cutlass|reference|baseline|naive", re.I)
#: Words of a statistic in the place of a provider: the table is another profiler's.
_STATISTICS = re.compile(r"(?:total|avg|average|mean|med|median|min|max|std\w*|start|end|duration|elapsed|time)\b.*", re.I)
_WHOLE = re.compile(r"(?<=\d)\.0+$")  # sizes are printed as floats
_Y_KINDS = ("time", "bandwidth", "flop_rate")


class _Provider(NamedTuple):
    """The columns of a provider."""

    name: str
    time: tuple[int, float] | None  # the place and seconds of one
    rates: tuple[tuple[int, str, float], ...]  # the place, the roof, and B/s or FLOP/s of one


def _providers(names: list[str]) -> tuple[list[_Provider], list[int]]:
    """Return the providers of a table, and the places of its other columns; no providers for another table."""
    providers: dict[str, _Provider] = {}
    inputs = []
    for at, name in enumerate(names):
        low = name.lower()
        match, unit = _IN_PARENTHESES.fullmatch(name), None
        if match is not None:
            unit = unit_in(match[2], *_Y_KINDS)
        elif (match := _INTEL.fullmatch(name)) is not None:
            if match[3]:
                continue
            unit = unit_in(match[2], *_Y_KINDS)
        elif _INTEL_SPREAD.fullmatch(name) or low in ("datetime", "run_counter", "diff"):
            continue
        if match is None or unit is None:
            inputs.append(at)
            continue
        provider = providers.setdefault(match[1], _Provider(clean(match[1]), None, ()))
        if unit.axis:
            provider = provider._replace(rates=(*provider.rates, (at, unit.axis, unit.factor)))
        else:
            provider = provider._replace(time=(at, unit.factor))
        providers[match[1]] = provider
    return list(providers.values()), inputs


def _is_perf_report(sample: Sample) -> bool:
    """Return whether a header has inputs first and then providers, of one unit where it is in parentheses."""
    names = split_header(sample.first)
    providers, inputs = _providers(names)
    units = {name[name.index("(") :].lower() for name in names if _IN_PARENTHESES.fullmatch(name)}
    columns = [at for provider in providers for at in (*(at for at, *_ in provider.rates), *(provider.time or ())[:1])]
    return (
        bool(providers and inputs)
        and max(inputs) < min(columns)
        and len(units) < 2
        and not any(_STATISTICS.fullmatch(provider.name) for provider in providers)
    )


def _read_perf_report(source: Source) -> Iterator[RecordRow]:
    table = read_csv(source)
    providers, inputs = _providers(table.names)
    base = next((at for at, provider in enumerate(providers) if _LIBRARIES.search(provider.name)), None)
    if len(providers) < 2:
        base = None
    sizes_at = {name: at for at in inputs if (name := table.names[at].upper()) in ("M", "N", "K", "B", "BATCH")}
    dtype_at = next((at for at in inputs if table.names[at].lower() in ("dtype", "datatype")), None)

    def product(fields: Fields) -> dict[str, Any] | None:
        """Return the sizes of a GEMM, None for another table."""
        if not {"M", "N", "K"} <= sizes_at.keys():
            return None
        values = {name: size(fields[at], name) for name, at in sizes_at.items()}
        batch = values.pop("B", 1) * values.pop("BATCH", 1)
        return {"op": "gemm", **values, **({"batch": batch} if batch > 1 else {})}

    def row(where: str, fields: Fields) -> Iterable[RecordRow]:
        gemm = product(fields)
        flops = 2.0 * gemm["M"] * gemm["N"] * gemm["K"] * gemm.get("batch", 1) if gemm else None
        key = " ".join(f"{table.names[at]}={_WHOLE.sub('', fields[at].strip())}" for at in inputs)[:160]
        records = []
        for provider in providers:
            record = RecordRow(row=where, name=clean(f"{provider.name} {key}"))
            if provider.time is not None:
                at, second = provider.time
                record.t_s, record.refused = duration(fields[at], table.names[at], second)
                record.refused_code, record.placeholder_time = "time", record.t_s == second
                record.rounding = half_digit(fields[at], record.t_s / second) if record.t_s else 0.0
            claims = [(at, claim(fields[at], axis, factor, record.rounding)) for at, axis, factor in provider.rates]
            printed = {item.axis: item for _, item in claims if item is not None and item.claimed > 0}
            work: dict[str, Any] | None = None
            record.no_work = "the file names neither the op nor the dtype"
            if gemm is not None:
                record.no_work = "the file names no dtype"
                work = {**gemm, "dtype": dtype(fields[dtype_at])} if dtype_at is not None and fields[dtype_at].strip() else None
            if record.t_s is None and not record.refused and flops is not None and "compute" in printed:
                rate = printed.pop("compute")
                record.t_s, record.rounding = flops / rate.claimed, rate.digits
                record.notes += ("the time is 2 M N K over the printed rate",)
            if work is None and record.t_s is not None and "memory" in printed:
                rate = printed.pop("memory")
                work, record.rounding = {"bytes": rate.claimed * record.t_s}, max(record.rounding, rate.digits)
                record.notes += ("bytes are the printed bandwidth times the time", NO_FLOPS)
            record.work, record.claims = work, tuple(printed.values())
            if provider.rates and not any(item for _, item in claims):
                record.refused = record.refused or f"no number in the columns of {provider.name}"
            records.append(record)
        _compare(records, providers, fields, base)
        yield from records

    return table.records(row)


def _compare(records: list[RecordRow], providers: list[_Provider], fields: Fields, base: int | None) -> None:
    """Compare the records of a row with its baseline: by time, else by the first rate that both print.

    A record with neither a time nor a speedup is refused.
    """
    for at, (record, provider) in enumerate(zip(records, providers)):
        if base is not None and at != base and not record.refused and not records[base].refused:
            record.baseline_kind = kind_of_provider(providers[base].name)
            if record.t_s is not None and records[base].t_s is not None:
                record.baseline_t_s = records[base].t_s
            elif provider.rates and providers[base].rates:
                mine, theirs = (claim(fields[rates[0][0]], *rates[0][1:]) for rates in (provider.rates, providers[base].rates))
                record.speedup = mine.claimed / theirs.claimed if mine and theirs and theirs.claimed > 0 else None
        if not record.refused and record.t_s is None and record.speedup is None:
            record.refused, record.refused_code = "rates without a time or the sizes of a GEMM: no time", "time"


# A sweep over the tile sizes of a GEMM: M, N, K, the tile, ``dtype``, ``time_ms`` and ``TFLOPS``; failed builds are comments.

_SWEEP_TIMES = {f"time_{spelling}": seconds for spelling, seconds in TIMES.items()}
_SWEEP = (
    *sizes(M="M", N="N", K="K"),
    Column("dtype", ("dtype",), dtype),
    Column("out_dtype", ("outdtype", "out_dtype"), dtype, ABSENT),
)


def _read_sweep(table: Table) -> Iterator[RecordRow]:
    time = table.names[table.place(*_SWEEP_TIMES)]
    timing, shape = table.timing(time, _SWEEP_TIMES[time.lower()], RATES), table.bind(*_SWEEP)
    variant = [(name, place) for place, name in enumerate(table.names) if name.upper().startswith(("TILE", "STAGES", "SPLIT"))]

    def row(where: str, fields: Fields) -> Iterable[RecordRow]:
        name = clean(" ".join(f"{name}={fields[place]}" for name, place in variant))
        yield RecordRow(row=where, name=name, work={"op": "gemm", **shape(fields)}, **timing(fields))

    return table.records(row)


TRITONBENCH = TableFormat(
    "tritonbench", _is_tritonbench, _read_tritonbench, "x_val, and NAME-latency, NAME-tflops, NAME-gbps by backend"
)
LIGER = TableFormat(
    "Liger-Kernel benchmark", lambda names: {*_LIGER, "y_value_50"} <= names, _read_liger, ", ".join((*_LIGER, "y_value_50"))
)
PERF_REPORT = DocumentFormat(
    "triton perf_report and Intel XPU benchmarks",
    _is_perf_report,
    _read_perf_report,
    "the inputs, and PROVIDER (ms), (GB/s) or (TFLOPS) for each provider; or PROVIDER-GB/s and PROVIDER-TFlops",
)
GEMM_SWEEP = TableFormat(
    "GEMM microbenchmark",
    lambda names: {"m", "n", "k", "dtype"} <= names and "op" not in names and not names.isdisjoint(_SWEEP_TIMES),
    _read_sweep,
    "M, N, K, dtype, time_ms, TFLOPS",
)
