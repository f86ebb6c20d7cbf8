"""Values of one record: a time by its unit, text fit to print, sizes that give work, printed rates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roofline_engine.check import Claim
from roofline_engine.kernels import classify
from roofline_engine.units import number, parse_dtype, printable

from ..declare import build
from .row import RecordRow

#: Of one second.
PER_SECOND = {"ns": 1e9, "us": 1e6, "ms": 1e3, "s": 1.0}
_LONGEST = 200


def seconds(value: object, key: str, unit: str) -> float:
    """A time above zero in seconds; a string is none, since JSON has numbers.

    Raises:
        ValueError: naming the key and the value.
    """
    if isinstance(value, str):
        raise ValueError(f"{key} is {shown(value)}, expected a number of {unit}")
    if value is None:
        raise ValueError(f"no time: {key} is missing")
    t_s = number(value, key, above=0.0) / PER_SECOND[unit]
    if not t_s:
        raise ValueError(f"{key} is {shown(value)}, too small a time of {unit}")
    return t_s


def maybe_seconds(value: object, key: str, unit: str) -> tuple[float | None, tuple[str, ...]]:
    """A time that a row can do without: None where there is none, and a note where it is not usable."""
    if value is None:
        return None, ()
    try:
        return seconds(value, key, unit), ()
    except ValueError as error:
        return None, (str(error),)


def ratio(value: object) -> float | None:
    """A speedup that somebody worked out; None for 0, null and what is no number, all of which mean that there is none."""
    try:
        return None if isinstance(value, str) else float(number(value, "speedup", above=0.0))
    except ValueError:
        return None


def timed(row: str, value: object, key: str, unit: str, **fields: Any) -> RecordRow:
    """The record of a row with its time, refused where that is no time."""
    try:
        t_s = seconds(value, key, unit)
    except ValueError as error:
        return RecordRow(row=row, refused=str(error), **fields)
    return RecordRow(row=row, t_s=t_s, hand_written=value == 1, **fields)


def label(value: object) -> str:
    """Text of the record that is safe to print, shortened; empty where there is none."""
    if not isinstance(value, str):
        return ""
    text = printable(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def shown(value: object) -> str:
    """A value in a message."""
    text = ascii(value)
    return text if len(text) <= 40 else text[:37] + "..."


def mapping(value: object) -> Mapping[str, Any]:
    """``value`` where it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def flag(value: object) -> bool | None:
    """True or False as it stands; None for anything else."""
    return value if isinstance(value, bool) else None


def count(value: object) -> int | None:
    """A whole number of at least 1; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 10**12 else None


def buildable(keywords: Mapping[str, Any]) -> tuple[dict[str, Any] | None, str]:
    """The keywords where work can be built of them; None and the reason where it cannot."""
    try:
        build(keywords)
    except (ValueError, OverflowError) as error:
        return None, str(error)
    return dict(keywords), ""


#: Spellings of the parameters that say what was computed.
_GEMM: dict[str, tuple[str, ...]] = {"M": ("m",), "N": ("n",), "K": ("k",)}
_OPTIONAL: dict[str, tuple[str, ...]] = {
    "batch": ("batch", "b", "l"),  # l is CUTLASS's and gpu-mode's
    "out_dtype": ("out_dtype", "output_dtype"),
    "weight_dtype": ("weight_dtype", "w_dtype"),
    "group_size": ("group_size",),
}
_OP = ("op", "op_type", "op_name", "kernel")
#: Weights narrower than the activations: their width decides, the product runs at the activations' rate.
_WEIGHT_BITS = {4: "int4", 8: "int8"}
_DTYPE = ("dtype", "data_type", "torch_dtype", "in_dtype", "input_dtype")
#: Beside M, N and K these are a size that the product of M, N and K alone does not have.
_GROUPED = ("num_experts", "experts", "n_experts", "expert", "e", "groups", "num_groups", "g", "topk", "top_k")
_BATCHED = ("batch_size", "bs", "num_batches")


def work_of(params: Mapping[str, Any]) -> tuple[dict[str, Any] | None, str]:
    """Work from the parameters of a record: a GEMM where M, N, K and the dtype are all among them; else the reason."""
    lower = {key.lower(): value for key, value in params.items() if isinstance(key, str) and value is not None}
    if not lower:
        return None, "no sizes in the record"
    names = printable(", ".join(sorted(lower)))[:80]
    if any(key in lower for key in _GROUPED):
        return None, f"{names}: which GEMMs of a MoE or a group were timed is not told"
    if any(lower.get(key, 1) != 1 for key in _BATCHED):
        return None, f"{names}: whether {next(key for key in _BATCHED if key in lower)} is in M or a batch of GEMMs is not told"
    op = next((lower[name] for name in _OP if name in lower), "gemm")
    if not isinstance(op, str) or classify(op).op != "gemm":
        return None, f"op {shown(op)}: only a GEMM's sizes are known by their names"
    found: dict[str, Any] = {"op": "gemm"}
    for key, spellings in (*_GEMM.items(), ("dtype", _DTYPE), *_OPTIONAL.items()):
        value = next((lower[name] for name in spellings if name in lower), None)
        if value is not None:
            found[key] = value
        elif key in _GEMM:
            return None, f"{names}: no op whose sizes these are is told"
        elif key == "dtype":
            return None, f"{names}: no dtype is told"
    work, why = _weights(found, lower.get("weight_bits"))
    if work is not None and "group_size" in work and parse_dtype(work.get("weight_dtype", work["dtype"])).value_bits > 8:
        return None, f"{names}: group_size is of scales or of a group of GEMMs, and no narrow weights tell which"
    return work, why


def _weights(found: dict[str, Any], bits: object) -> tuple[dict[str, Any] | None, str]:
    """The same with weights of ``bits``, where they are narrower than the activations."""
    work, why = buildable(found)
    if work is None or bits is None or "weight_dtype" in found or bits == parse_dtype(found["dtype"]).value_bits:
        return work, why
    if not isinstance(bits, int) or bits not in _WEIGHT_BITS:
        return None, f"weight_bits is {shown(bits)}, expected 4 or 8"
    return buildable({**found, "weight_dtype": _WEIGHT_BITS[bits]})


#: Printed rates by their key, lower case: the axis and the unit. ``gbps`` of kernel benchmarks are gigabytes.
_RATES = {
    **dict.fromkeys(("tflops", "tflop/s", "tflops/s", "tflop_s"), ("compute", 1e12)),
    **dict.fromkeys(("gflops", "gflop/s"), ("compute", 1e9)),
    **dict.fromkeys(("gbps", "gb/s", "gb_s", "gb_per_s", "gb_per_sec", "bandwidth_gbps", "bandwidth_gb_s"), ("memory", 1e9)),
    **dict.fromkeys(("tbps", "tb/s", "tb_s", "tb_per_s", "tb_per_sec"), ("memory", 1e12)),
}


def claims(row: Mapping[str, Any]) -> tuple[Claim, ...]:
    """The rates that a row prints, by the unit in their key; what is no number claims nothing."""
    found = []
    for key, value in row.items():
        known = _RATES.get(key.lower()) if isinstance(key, str) else None
        if known is None or isinstance(value, str) or value is None:
            continue
        try:
            rate = number(value, key, minimum=0.0)
        except ValueError:
            continue
        axis, unit = known
        found.append(Claim(axis, rate * unit, _half_digit(rate)))
    return tuple(found)


def _half_digit(rate: float) -> float:
    """Half of the last printed digit as a fraction of the figure."""
    if not rate:
        return 0.0
    text = repr(rate)
    if "e" in text:
        return 0.0
    return float(0.5 * 10.0 ** -len(text.partition(".")[2]) / rate)
