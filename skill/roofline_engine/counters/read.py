"""Read a file of counters from any tool, and prove the counters by a copy of known traffic."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from ..files import parse_json, read_table, read_text
from ..kernels import stem
from ..peaks import architecture
from ..units import printable
from . import amd, nvidia
from .base import KNOWN_COPY_BAND, CounterFile, KernelCounts

#: What the skill collects, by what for. FETCH_SIZE needs a new ROCm on gfx950, where the 128 B request counter does it.
WANTED = {
    "bytes": ("FETCH_SIZE", "WRITE_SIZE"),
    "bytes on gfx950": ("TCC_EA0_RDREQ", "TCC_EA0_RDREQ_32B", "TCC_EA0_RDREQ_128B", "TCC_EA0_WRREQ", "TCC_EA0_WRREQ_64B"),
    "FLOPs": tuple(f"SQ_INSTS_VALU_MFMA_MOPS_{dtype}" for dtype in ("F8", "F16", "BF16", "F32", "F64", "I8")),
    "corroboration": ("MemUnitStalled", "MfmaUtil", "OccupancyPercent"),
}
_NOT_COUNTERS = (
    ("TotalDurationNs", "a Top-N or statistics list: give it to analyze"),
    ("Total Time (ns)", "a Top-N list: give it to analyze"),
    ("HBMBw", "measured ceilings, not counters"),
    ("workload_name", "a description of the system, not counters"),
    ("Gfx_Target_Version", "a list of agents, not counters"),
)


class Available(NamedTuple):
    """``rocprofv3 --list-avail``: the counters of each GPU by architecture, and whether the list was cut."""

    label: str
    counters: dict[str, frozenset[str]]
    cut: bool


def read(path: str, gfx: str | None = None, rocm: str | None = None, skip: int = 0) -> CounterFile:
    """Read the kernels of a file of counters.

    gfx, rocm: the architecture and ROCm's version where the caller knows them; else they are read from the files next to it
    (sysinfo.csv of rocprof-compute, agent_info.csv of rocprofv3). skip: warm-up dispatches of each kernel to leave out.

    Raises:
        ValueError: with one line that names the file, the place, and why it cannot be read.
    """
    label = printable(os.path.basename(path))
    archs, listed_rocm = _read_context(path)
    arch = gfx or (archs[0] if len(archs) == 1 else None)
    file = parse(read_text(path), label, arch, rocm or listed_rocm, skip)
    archs = file.archs or archs
    if len(archs) > 1:
        raise ValueError(f"{label}: counted on {' and '.join(archs)}, and the dispatches do not say on which")
    if gfx and archs and architecture(gfx) != architecture(archs[0]):
        raise ValueError(f"{label}: counted on {printable(archs[0])}, not on {printable(gfx)}")
    return file


def parse(text: str, label: str, gfx: str | None = None, rocm: str | None = None, skip: int = 0) -> CounterFile:
    """Read the kernels in the text of such a file."""
    tool = amd.Tool(gfx, amd.version(rocm))
    if text.lstrip()[:1] in ("{", "["):
        return amd.from_json(parse_json(text, label), label, tool, skip)
    if not text.strip():
        raise ValueError(f"{label}: empty")
    head = text[:4000]
    if '"Kernel Name"' in head or re.search(r"(?m)^[^\n]*\bKernel Name\b", head):
        return nvidia.from_table(text, label, skip)
    if not re.search(r"Kernel_?Name", head):
        for mark, what in _NOT_COUNTERS:
            if mark in head:
                raise ValueError(f"{label}: {what}")
    return amd.from_table(text, label, tool, skip)


def _read_context(path: str) -> tuple[tuple[str, ...], str | None]:
    """Read the architectures and ROCm's version that the profiler wrote to a file next to the counters."""
    gfx: tuple[str, ...] = ()
    rocm = None
    folder, name = os.path.split(os.path.abspath(path))
    prefix = re.sub(r"(counter_collection|kernel_trace)\.csv$", "", name)
    for sibling in ("sysinfo.csv", f"{prefix}agent_info.csv"):
        place = os.path.join(folder, sibling)
        if sibling == name or not os.path.isfile(place):
            continue
        try:
            table = read_table(read_text(place), sibling, lambda header: "gpu_arch" in header or "Gfx_Target_Version" in header)
        except ValueError:
            continue
        arch_at, rocm_at = table.column("gpu_arch", "Name"), table.column("rocm_version")
        archs = {cells[arch_at] for _, cells in table.rows if arch_at is not None and cells[arch_at].startswith("gfx")}
        gfx = gfx or tuple(sorted(archs))
        if rocm is None and rocm_at is not None and table.rows:
            rocm = table.rows[0][1][rocm_at]
    return gfx, rocm


def list_avail(text: str, label: str) -> Available:
    """Read what ``rocprofv3 --list-avail`` printed. Raises ValueError when it lists no counter."""
    counters: dict[str, set[str]] = {}
    arch = ""
    for line in text.splitlines():
        key, colon, value = (part.strip() for part in line.partition(":"))
        if not colon:
            continue
        if key == "Name" and value.startswith("gfx"):
            arch = value
        elif key in ("Counter_Name", "Name"):
            counters.setdefault(arch, set()).add(value)
    if not counters:
        raise ValueError(f"{label}: Counter_Name is missing, expected the output of rocprofv3 --list-avail")
    cut = any(line.strip() == "..." for line in text.splitlines())
    return Available(label, {name: frozenset(names) for name, names in counters.items()}, cut)


def is_list_avail(text: str) -> bool:
    return re.search(r"(?m)^\s*Counter_Name\s*:", text) is not None


def show_available(available: Available) -> list[str]:
    """For each GPU, which of the wanted counters exist and what their absence means."""
    lines = []
    for arch, names in available.counters.items():
        lines.append(
            f"{printable(arch) or 'unknown gfx'}: {len(names)} counters" + (", the list is cut" if available.cut else "")
        )
        for purpose, wanted in WANTED.items():
            if ("gfx950" in purpose) != (arch == "gfx950"):
                continue
            have = [name for name in wanted if name in names or f"{name}_sum" in names]
            missing = [name for name in wanted if name not in have]
            lines.append(f"  {purpose}: {', '.join(have) or 'none'}" + (f"; absent: {', '.join(missing)}" if missing else ""))
            if missing and purpose.startswith("bytes"):
                lines.append(f"  L4: {missing[0]} is absent, so bytes cannot be counted here")
    return lines


def check_copy(counters: CounterFile, nbytes: float, kernel: str | None) -> tuple[bool, str]:
    """Check that a copy of ``nbytes`` in total is counted within 2 %; return whether it is, and the line to print.

    Raises:
        ValueError: when it is unclear which kernel is the copy.
    """
    copy = _pick_kernel(counters, kernel)
    counted = copy.bytes.get("hbm")
    name = printable(copy.name)[:60]
    if counted is None:
        why = "; ".join((*map(str, copy.problems), *counters.remarks)) or "it has no byte counters"
        return False, f"{counters.label}: {name}: L4 on this stack: no bytes to compare: {why}"
    off = counted / nbytes - 1
    line = f"{counters.label}: {name}: {counted:.0f} bytes counted, {nbytes:.0f} moved, {off:+.2%}"
    if copy.spread > 2 * KNOWN_COPY_BAND:
        return False, f"{line}, but the dispatches differ by {copy.spread:.0%} of their mean: L4 on this stack"
    if abs(off) <= KNOWN_COPY_BAND:
        return True, f"{line}: within {KNOWN_COPY_BAND:.0%}, the counters hold"
    return False, f"{line}: over {KNOWN_COPY_BAND:.0%}, these counters are L4 on this stack"


def _pick_kernel(counters: CounterFile, kernel: str | None) -> KernelCounts:
    if kernel is not None:
        named = [item for item in counters.kernels if kernel in (item.name, stem(item.name))]
        if len(named) != 1:
            raise ValueError(f"{counters.label}: {len(named)} kernels are named {printable(kernel)}, expected one")
        return named[0]
    if len(counters.kernels) != 1:
        names = ", ".join(printable(item.name)[:40] for item in counters.kernels[:4])
        raise ValueError(f"{counters.label}: {len(counters.kernels)} kernels ({names}). Name the copy with --kernel")
    return counters.kernels[0]
