"""Liger-Kernel's long CSV: a row a kernel, provider, mode and size; ``speed`` in ms and ``memory`` in MB stand in one column.

Times are the medians of triton's do_bench, which empties the cache before each run, with the 20th and 80th percentile.
Another provider's row with the same sizes, GPU and mode is the baseline, wherever it stands, so the rows are held in memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from .aiter_moe import every_expert
from .row import RecordRow
from .source import Sample, Source
from .table import Table, dtype, duration, header, shown, size

NAME = "Liger-Kernel benchmark"

_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_MISSING = ("", "nan", "none", "null")
_COLUMNS = ("kernel_name", "kernel_provider", "kernel_operation_mode", "metric_name", "metric_unit", "x_name", "x_value")
_QUANTILES = ("quartiles are the 20th and 80th percentile",)
_Key = tuple[str, ...]
_Params = Mapping[str, Any]


def matches(sample: Sample) -> bool:
    return {*_COLUMNS, "y_value_50"} <= header(sample)


def read(source: Source) -> Iterator[RecordRow]:
    table = Table(source)
    keys: list[tuple[_Key, str]] = []
    rows = list(table.records(_reader(table, keys)))
    keyed = iter(keys)
    timed = [(record, next(keyed) if record.t_s is not None else None) for record in rows]
    others: dict[_Key, list[tuple[str, float]]] = {}
    for record, key in timed:
        if key is not None and record.t_s is not None and not _of_liger(key[1]):
            others.setdefault(key[0], []).append((key[1], record.t_s))
    for record, key in timed:
        baselines = others.get(key[0]) if key is not None and _of_liger(key[1]) else None
        if baselines:
            provider, t_s = baselines[0]
            record = replace(record, baseline_kind=kind_of(provider), baseline_t_s=t_s)
        yield record


def _of_liger(provider: str) -> bool:
    return provider.lower().startswith("liger")


def kind_of(provider: str) -> str:
    """What a provider is as a baseline: the frameworks' own code is eager unless its name says that it was compiled."""
    low = provider.lower()
    if "compile" in low or "inductor" in low:
        return "compiled"
    return "eager" if any(word in low for word in ("huggingface", "torch", "aten", "eager")) else "reference"


def _reader(table: Table, keys: list[tuple[_Key, str]]) -> Callable[[str, list[str]], Iterable[RecordRow]]:
    kernel, provider, mode, metric, unit, x_name, x_value = (table.column(name) for name in _COLUMNS)
    median, low, high = table.column("y_value_50"), table.maybe("y_value_20"), table.maybe("y_value_80")
    config, gpu = table.maybe("extra_benchmark_config_str"), table.maybe("gpu_name")
    version = table.maybe("liger_version")

    def row(where: str, fields: list[str]) -> Iterable[RecordRow]:
        name = shown(f"{fields[kernel]} {fields[mode]} {fields[provider]} {fields[x_name]}={fields[x_value]}")
        device = shown(fields[gpu]) or None if gpu is not None else None
        if fields[metric] != "speed":
            why = f"metric_name is {fields[metric][:40]!r} in {fields[unit][:10]}, not a time"
            return (RecordRow(row=where, name=name, device=device, refused=why),)
        if fields[unit] not in _SECONDS:
            raise ValueError(f"metric_unit is {fields[unit][:40]!r}, expected one of {', '.join(_SECONDS)}")
        if fields[x_value].strip().lower() in _MISSING:
            raise ValueError(f"x_value is {fields[x_value][:40]!r}: which size of {fields[x_name][:40]} it is of is not told")
        second = _SECONDS[fields[unit]]
        t_s, refused = duration(fields[median], "y_value_50", second)
        around = [None if at is None else duration(fields[at], "", second)[0] for at in (low, high)]
        spread = None not in around
        work, no_work, timed_flops = _work(
            fields[kernel], fields[mode], fields[x_name], fields[x_value], "{}" if config is None else fields[config]
        )
        if t_s is not None:
            apart = (kernel, mode, x_name, x_value, config, gpu, version)
            keys.append((tuple(fields[at] for at in apart if at is not None), fields[provider]))
        record = RecordRow(
            row=where,
            name=name,
            work=work,
            no_work=no_work,
            t_s=t_s,
            device=device,
            clock="device-event",
            cache="cold",
            q1_s=around[0] if spread else None,
            q3_s=around[1] if spread else None,
            hand_written=t_s == second,
            alternatives=every_expert(work["experts"], work["tokens"] * work["top_k"]) if work and work["op"] == "moe" else (),
            timed_flops=timed_flops,
            refused=refused,
            notes=_QUANTILES if spread else (),
        )
        return (record,)

    return row


def _work(kernel: str, mode: str, x_name: str, x_value: str, config: str) -> tuple[dict[str, Any] | None, str, float | None]:
    """The keywords of the work model; or why there are none; and the FLOPs of what was timed where that is another unit."""
    if mode not in ("forward", "no-grad-forward"):
        return None, f"mode {mode[:40]}: the models are of forward passes", None
    if kernel not in _OPS:
        return None, f"no work model for kernel {kernel[:40]}", None
    try:
        given = json.loads(config or "{}")
    except (ValueError, RecursionError):
        raise ValueError(f"extra_benchmark_config_str is {config[:40]!r}, expected JSON") from None
    if not isinstance(given, dict):
        raise ValueError(f"extra_benchmark_config_str is {config[:40]!r}, expected an object")
    given[x_name] = x_value
    if "dtype" not in given:
        return None, "the row gives no dtype", None
    try:
        work, timed_flops = _OPS[kernel](given)
    except KeyError as error:
        return None, f"the row gives no {error.args[0]}", None
    return {**work, "dtype": dtype(str(given["dtype"]))}, "", timed_flops


def _rows(op: str, column: str, **more: Any) -> Callable[[_Params], tuple[dict[str, Any], None]]:
    def build(given: _Params) -> tuple[dict[str, Any], None]:
        return {"op": op, "rows": _size(given, "M"), "cols": _size(given, column), **more}, None

    return build


def _rope(given: _Params) -> tuple[dict[str, Any], None]:
    tokens = _size(given, "seq_len" if "seq_len" in given else "T")
    heads, hidden = _size(given, "num_q_heads"), _size(given, "hidden_size" if "hidden_size" in given else "H")
    return {"op": "rope", "tokens": tokens, "n_heads": heads + _size(given, "num_kv_heads"), "head_dim": hidden // heads}, None


def _cross_entropy(given: _Params) -> tuple[dict[str, Any], None]:
    rows = _size(given, "BT") if "BT" in given else _size(given, "B") * _size(given, "T")
    return {"op": "cross_entropy", "rows": rows, "cols": _size(given, "V" if "V" in given else "vocab_size")}, None


def _gated_mlp(given: _Params) -> tuple[dict[str, Any], float]:
    """Named after the activation, timed with its three GEMMs."""
    tokens = _size(given, "B") * _size(given, "T")
    hidden, inter = _size(given, "hidden_size"), _size(given, "intermediate_size")
    return {"op": "elementwise", "numel": tokens * inter, "inputs": 2}, 6.0 * tokens * hidden * inter


def _fused_moe(given: _Params) -> tuple[dict[str, Any], None]:
    shape = {"tokens": "T", "hidden": "H", "inter": "intermediate_dim", "experts": "E", "top_k": "K"}
    return {"op": "moe", **{key: _size(given, name) for key, name in shape.items()}}, None


def _size(given: _Params, name: str) -> int:
    if given[name] is None:
        raise KeyError(name)
    return size(str(given[name]), name)


_OPS: Mapping[str, Callable[[_Params], tuple[dict[str, Any], float | None]]] = {
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
