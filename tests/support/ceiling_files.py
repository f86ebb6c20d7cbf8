"""Measured ceilings in the format that rocprof-compute writes, and the peaks that follow from such a file."""

from __future__ import annotations

from pathlib import Path

from roofline_engine.peaks import Device, Peaks, resolve
from roofline_engine.peaks_measured import lay_over, read_ceilings
from roofline_engine.peaks_table import load
from support.tool import ROOT

TABLE = load(str(ROOT / "peaks.md"))
#: rocprof-compute's names; the file's own typo (hbmBwHigh) and the zeros of types the device lacks included.
HEADER = (
    "device,HBMBw,HBMBwLow,hbmBwHigh,L2Bw,L2BwLow,L2BwHigh,FP32Flops,FP32FlopsLow,FP32FlopsHigh,"
    "MFMAF8Flops,MFMAF8FlopsLow,MFMAF8FlopsHigh,MFMABF16Flops,MFMABF16FlopsLow,MFMABF16FlopsHigh,"
    "MFMAF16Flops,MFMAF16FlopsLow,MFMAF16FlopsHigh,MFMAI8Ops,MFMAFI8OpsLow,MFMAI8OpsHigh"
)
COLUMNS = ("HBMBw", "L2Bw", "FP32Flops", "MFMAF8Flops", "MFMABF16Flops", "MFMAF16Flops", "MFMAI8Ops")


def rocprof(path: Path, *devices: dict[str, float], spread: float = 0.001) -> Path:
    """A roofline.csv with these figures (GB/s, GFLOP/s) a device, zero where none is given."""
    lines = [HEADER]
    for number, figures in enumerate(devices):
        cells = [str(number)]
        for column in COLUMNS:
            value = figures.get(column, 0.0)
            cells += [f"{value:.8g}", f"{value * (1 - spread):.8g}", f"{value * (1 + spread):.8g}"]
        lines.append(",".join(cells))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def over(path: Path, name: str, device: str | None = None) -> tuple[Peaks, list[str]]:
    overlay = read_ceilings(str(path), device)
    assert overlay is not None
    return lay_over(resolve(TABLE, Device(device_name=name)), overlay, TABLE)
