"""What a run says of its device, and the peaks that follow from that alone when the table does not know the device."""

from __future__ import annotations

from .peaktable import Block, Table
from .record import Record
from .units import BANDWIDTH_BOUNDS, FLOPS_BOUNDS


class Device(Record):
    """What a run says of its device. Every key may be missing; clocks are in kHz as HIP, CUDA and torch report them.

    clock_khz: the highest the units can run at. run_clock_khz: what they did run at, locked or sampled while the kernels ran.
    """

    gfx: str | None = None
    device_name: str | None = None
    cu_count: int | None = None
    memory_bytes: float | None = None
    clock_khz: float | None = None
    memory_clock_khz: float | None = None
    memory_bus_bits: float | None = None
    run_clock_khz: float | None = None


def architecture(text: str) -> str:
    """``gfx942:sramecc+:xnack-`` is ``gfx942``; ``sm90a``, ``9.0`` and ``sm_90`` are ``sm_90``."""
    key = text.strip().lower().split(":")[0]
    if key.startswith("sm"):
        return "sm_" + key[2:].lstrip("_").rstrip("af")
    major, dot, minor = key.partition(".")
    if dot and major.isdigit() and minor.isdigit():
        return f"sm_{major}{minor}"
    return key


#: Bits per memory clock and bus bit, for the clock that the driver reports: DDR 2, HBM of CDNA3/4 4, GDDR6 as HIP reports
#: it 16, LPDDR5X of the APU 8 (exact on the products of the table, +2.4 % on H200).
_TRANSFERS = {"gfx906": 2, "gfx908": 2, "gfx90a": 2, "gfx942": 4, "gfx950": 4, "gfx1151": 8}


def derive(
    table: Table | None, device: Device, gfx: str | None
) -> tuple[float | None, dict[str, float], dict[str, float], str]:
    """Bytes/s, matrix and vector FLOP/s from units, clocks and bus alone, and a sentence on how, or on what is missing."""
    bandwidth = None
    clock_hz, memory_hz = hertz(device.clock_khz), hertz(device.memory_clock_khz)
    rdna = gfx is not None and gfx.startswith(("gfx10", "gfx11", "gfx12"))
    if gfx and memory_hz and device.memory_bus_bits:
        factor = _TRANSFERS.get(gfx, 2 if gfx.startswith("sm_") else 16 if rdna else 0)
        guess = factor * memory_hz * device.memory_bus_bits / 8
        bandwidth = guess if BANDWIDTH_BOUNDS[0] <= guess <= BANDWIDTH_BOUNDS[1] else None
    flops: dict[str, float] = {}
    vector: dict[str, float] = {}
    rates = _rates_for(table, device, gfx)
    limited = _limited(table, gfx)
    if rates and device.cu_count and clock_hz and not limited:
        units = device.cu_count * (2 if rdna else 1)  # reported as work-group processors
        for prefix, out in (("matrix.", flops), ("vector.", vector)):
            for dtype, line in rates.figures(prefix):
                rate = units * clock_hz * rates.value(line)
                if FLOPS_BOUNDS[0] <= rate <= FLOPS_BOUNDS[1]:
                    out[dtype] = rate
    if bandwidth or flops or vector:
        how = "derived from the device's properties"
        how += f", compute left out: {limited} of this architecture are cut below their units and clock" if limited else ""
    elif device.cu_count and device.clock_khz and device.memory_clock_khz and device.memory_bus_bits:
        how = f"no peaks: nothing is known of {gfx} to derive them with"
    else:
        how = (
            "no peaks: add device_name to env_report.json, or cu_count and the keys in kHz and bits (clock_khz, "
            "memory_clock_khz, memory_bus_bits)"
        )
    return bandwidth, flops, vector, how


def _limited(table: Table | None, gfx: str | None) -> str:
    """Products of an architecture whose compute the vendor cut: with such siblings units x clock x rate proves nothing."""
    if table is None or not gfx:
        return ""
    cut = [b.id for b in table.with_arch(gfx) if any(x.key == "waiver" and x.value.startswith("under_") for x in b.lines)]
    return ", ".join(cut)


def hertz(clock_khz: float | None) -> float | None:
    """A clock in Hz; one that is no plausible kHz figure (MHz read as kHz: pytorch#196372) is not used."""
    return clock_khz * 1e3 if clock_khz is not None and 1e5 <= clock_khz <= 1e7 else None


def _rates_for(table: Table | None, device: Device, gfx: str | None) -> Block | None:
    if table is None or not gfx:
        return None
    consumer = "GEFORCE" in (device.device_name or "").upper()
    return table.rates.get(gfx) or table.rates.get(f"{gfx}-{'geforce' if consumer else 'pro'}")
