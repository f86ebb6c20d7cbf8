"""Work that a benchmark already wrote down: ``extra_info`` of pytest-benchmark, and the properties of a test.

Only totals are taken as they stand (``bytes``, ``flops``, NVIDIA/Fuser's ``IOBytes``). Rates beside their own time, as
tile-ai/TileOPs writes them (``tileops_latency_ms``, ``tileops_tflops``, ``tileops_bandwidth_tbs``), give the work back where
their printed digits hold it to 2 %.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from roofline_engine.units import number

from ..plain import plain

_BYTES = ("bytes", "bytes_moved", "io_bytes", "IOBytes")
_FLOPS = ("flops", "flop", "total_flops")
_DTYPE = ("dtype", "data_type")
#: How far the last printed digit may move a figure.
_ROUNDING = 0.02


def of_extra_info(extra: Mapping[str, Any]) -> dict[str, Any] | None:
    """The keywords of a declaration; None where nothing is said of bytes.

    Raises:
        ValueError: for a figure under a known key that is no number.
    """
    nbytes = _first(extra, _BYTES)
    if nbytes is None:
        return None
    found: dict[str, Any] = {"bytes": number(nbytes[1], nbytes[0], above=0)}
    flops, dtype = _first(extra, _FLOPS), _first(extra, _DTYPE)
    if flops is not None:
        found["flops"] = number(flops[1], flops[0], minimum=0)
    if dtype is not None:
        found["dtype"] = dtype[1]
    if isinstance(extra.get("op"), str):
        found["op"] = plain(extra["op"])
    return found


def of_properties(properties: Iterable[tuple[str, Any]]) -> tuple[float, dict[str, Any]] | None:
    """(seconds, keywords) from ``<tag>_latency_ms`` with rates of the same tag; None where no tag has all of them."""
    values = {key: value for key, value in properties if isinstance(key, str)}
    for key in values:
        tag, latency, _ = key.partition("_latency_ms")
        if not latency or tag == "baseline" or f"{tag}_bandwidth_tbs" not in values:
            continue
        printed = [values[key], values[f"{tag}_bandwidth_tbs"]]
        if not all(_precise(value) for value in printed):
            continue
        t_s = float(printed[0]) / 1e3
        return t_s, {"bytes": float(printed[1]) * 1e12 * t_s}
    return None


def _precise(value: Any) -> bool:
    """Whether half of the last printed digit is within the rounding allowed."""
    text = str(value)
    try:
        size = float(text)
    except ValueError:
        return False
    digits = len(text.partition(".")[2])
    return size > 0 and 0.5 * 10.0**-digits <= _ROUNDING * size


def _first(values: Mapping[str, Any], keys: tuple[str, ...]) -> tuple[str, Any] | None:
    return next(((key, plain(values[key])) for key in keys if values.get(key) is not None), None)
