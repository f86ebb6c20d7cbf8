"""From AMD's request and instruction counters to bytes by level and FLOPs; each factor with its source."""

from __future__ import annotations

import re

from .measured import Group, Measured, plausible
from .record import Record

#: Bytes of one L1 lookup or L1-to-L2 read (rocprofiler-compute#598, rocm-systems#6339); an L1-to-L2 write or atomic is 64 B
#: on all (vecCopy of 8 MiB on MI300X: 131,072 write requests, 65,536 read requests).
LINE_BYTES = {"gfx940": 128, "gfx941": 128, "gfx942": 128, "gfx950": 128}
_WRITE_BYTES = 64
#: FETCH_SIZE and WRITE_SIZE are in KiB (renderdoc#2037 took 1000).
_KIB = 1024
#: SQ_INSTS_VALU_MFMA_MOPS_* count 512 FLOPs each whatever the dtype and the instruction (olcf-user-docs#574, #973).
MOPS_FLOPS = 512
_MOPS = {
    "F8": "fp8",
    "F6F4": "fp6_fp4",
    "F16": "fp16",
    "BF16": "bf16",
    "XF32": "tf32",
    "F32": "fp32",
    "F64": "fp64",
    "I8": "int8",
}
_MFMA_FLOPS = {"F8": "fp8", "F16": "fp16", "BF16": "bf16", "F32": "fp32", "F64": "fp64"}
#: One VALU instruction works on the 64 lanes of a wave; a multiply-add is two FLOPs (rocprof-compute's own formula).
_LANES = 64
_VALU = {"F16": "vector_fp16", "F32": "vector_fp32", "F64": "vector_fp64"}
PERCENTAGES = ("MemUnitStalled", "MfmaUtil", "OccupancyPercent", "L2CacheHit", "VALUUtilization")
#: From this release on FETCH_SIZE is right on gfx950; before, reads are half (rocm-systems#2501, GEAK#468).
GFX950_ROCM = (7, 12)

BYTES_COUNTERS = re.compile(r"(FETCH_SIZE|WRITE_SIZE|TCC_EA0?_(RD|WR)REQ(_32B|_64B|_128B)?|GL2C_EA_RDREQ(_\w+)?)$")
WANTED = re.compile(
    BYTES_COUNTERS.pattern
    + r"|(TCC_BUBBLE|TCP_TOTAL_CACHE_ACCESSES|TCP_TCC_(READ|WRITE|ATOMIC_WITH_RET|ATOMIC_WITHOUT_RET)_REQ"
    + r"|SQ_INSTS_VALU_MFMA_MOPS_\w+|SQ_INSTS_VALU_(ADD|MUL|FMA|TRANS)_F\d+|MfmaFlops\w*|"
    + "|".join(PERCENTAGES)
    + r")$"
)


class Tool(Record):
    """What decides how counters are read: the architecture and ROCm's version; None where it is not known."""

    gfx: str | None = None
    rocm: tuple[int, ...] | None = None


def version(text: object) -> tuple[int, ...] | None:
    """``7.12.0-115`` as numbers; None when there is no version in it."""
    found = re.match(r"\s*(\d+)\.(\d+)", text) if isinstance(text, str) else None
    return (int(found.group(1)), int(found.group(2))) if found else None


def measure(group: Group, tool: Tool, source: str) -> Measured:
    read, written = _reads(group, tool), _writes(group)
    levels: dict[str, float] = {}
    if read is not None:
        levels["hbm_read"] = read
    if written is not None:
        levels["hbm_write"] = written
    if read is not None and written is not None and group.alike("hbm", "hbm reads", "hbm writes"):
        levels["hbm"] = read + written
    levels.update(_caches(group, tool))
    flops = _flops(group)
    utilisation = {name: value for name, value in ((name, group.mean(name)) for name in PERCENTAGES) if value is not None}
    levels = plausible(levels, group.problems)
    return Measured(
        group.name,
        len(group.dispatches),
        group.time(),
        levels,
        flops,
        source,
        {name: value for name, value in utilisation.items() if group.live(name)},
        tuple(group.problems),
        group.grids(),
        group.spread,
    )


def _reads(group: Group, tool: Tool) -> float | None:
    """Bytes read from memory by one dispatch."""
    gfx = tool.gfx or ""
    prefix = next((name for name in ("TCC_EA0_", "TCC_EA_") if group.has(f"{name}RDREQ")), None)
    counted = prefix is not None and (group.has(f"{prefix}RDREQ_128B") or not group.has("FETCH_SIZE"))
    if not counted and group.has("FETCH_SIZE"):
        if gfx == "gfx950" and (tool.rocm is None or tool.rocm < GFX950_ROCM):
            known = "unknown" if tool.rocm is None else ".".join(map(str, tool.rocm))
            group.problems.append(
                f"hbm reads: FETCH_SIZE on gfx950 is half before ROCm {'.'.join(map(str, GFX950_ROCM))}, this one is {known}: "
                "collect TCC_EA0_RDREQ_128B (rocm-systems#2501)"
            )
            return None
        found = group.together("hbm reads", "FETCH_SIZE")
        return found["FETCH_SIZE"] * _KIB if found else None
    if prefix is None:
        if group.has("GL2C_EA_RDREQ"):
            return _rdna_reads(group, gfx)
        if any(group.has(name) for name in ("WRITE_SIZE", "TCC_EA0_WRREQ", "TCC_EA_WRREQ")):
            group.problems.append("hbm reads: FETCH_SIZE was not collected, nor TCC_EA0_RDREQ")
        return None
    all_of, small = f"{prefix}RDREQ", f"{prefix}RDREQ_32B"
    if group.has(f"{prefix}RDREQ_128B"):
        large: str | None = f"{prefix}RDREQ_128B"
    elif gfx == "gfx950":
        group.problems.append(f"hbm reads: {prefix}RDREQ_128B was not collected; TCC_BUBBLE does not count 128 B on gfx950")
        return None
    else:
        large = "TCC_BUBBLE" if prefix == "TCC_EA0_" else None
        if large and not gfx:
            group.problems.append("hbm reads: the gfx is not known: read as gfx942, wrong on gfx950 (name it with --gfx)")
    found = group.together("hbm reads", *filter(None, (all_of, small, large)), quiet=(small,))
    if found is None:
        return None
    big = found[large] if large else 0.0
    middle = found[all_of] - big - found[small]
    if middle < 0:
        group.problems.append(f"hbm reads: {middle:.6g} requests of 64 B: a negative count, so {large} is not what it says")
        return None
    return 128 * big + 64 * middle + 32 * found[small]


def _rdna_reads(group: Group, gfx: str) -> float | None:
    if not gfx.startswith("gfx12"):
        group.problems.append("hbm reads: GL2C_EA_RDREQ has a known size on gfx12 only")
        return None
    found = group.together("hbm reads", "GL2C_EA_RDREQ")  # 16 MiB are 65,538 requests of 256 B: legacy-rocm-build#6613
    return found["GL2C_EA_RDREQ"] * 256 if found else None


def _writes(group: Group) -> float | None:
    prefix = next((name for name in ("TCC_EA0_", "TCC_EA_") if group.has(f"{name}WRREQ")), None)
    if group.has("WRITE_SIZE"):
        found = group.together("hbm writes", "WRITE_SIZE", quiet=("WRITE_SIZE",))
        return found["WRITE_SIZE"] * _KIB if found else None
    if prefix is None:
        if any(group.has(name) for name in ("FETCH_SIZE", "TCC_EA0_RDREQ", "TCC_EA_RDREQ", "GL2C_EA_RDREQ")):
            group.problems.append("hbm writes: WRITE_SIZE was not collected")
        return None
    found = group.together("hbm writes", f"{prefix}WRREQ", f"{prefix}WRREQ_64B")
    if found is None:
        return None
    whole = found[f"{prefix}WRREQ_64B"]
    return 64 * whole + 32 * (found[f"{prefix}WRREQ"] - whole)


def _caches(group: Group, tool: Tool) -> dict[str, float]:
    levels: dict[str, float] = {}
    if not any(group.has(name) for name in ("TCP_TCC_READ_REQ", "TCP_TOTAL_CACHE_ACCESSES")):
        return levels
    new, old = (any(group.has(f"TCC_{ea}_{way}REQ") for way in ("RD", "WR")) for ea in ("EA0", "EA"))
    gfx = tool.gfx or ("gfx942" if new else "gfx90a" if old else None)
    if gfx is None:
        group.problems.append("l1, l2: the line size depends on the gfx, which is not known (name it with --gfx)")
        return levels
    line = LINE_BYTES.get(gfx, 64)
    if group.has("TCP_TCC_READ_REQ") and group.has("TCP_TCC_WRITE_REQ"):
        names = [f"TCP_TCC_{kind}_REQ" for kind in ("READ", "WRITE", "ATOMIC_WITH_RET", "ATOMIC_WITHOUT_RET")]
        names = [name for name in names if group.has(name)]
        found = group.together("l2", *names, quiet=names)
        if found:
            levels["l2"] = sum(value * (line if "READ" in name else _WRITE_BYTES) for name, value in found.items())
    if group.live("TCP_TOTAL_CACHE_ACCESSES"):
        levels["l1"] = (group.mean("TCP_TOTAL_CACHE_ACCESSES") or 0.0) * line
        group.problems.append("l1: an upper bound, each lookup counted as a whole line")  # vecCopy of doubles: 2 to 4 times
    return levels


def _flops(group: Group) -> dict[str, float]:
    """FLOPs of one dispatch by dtype; a dtype that counted nothing is left out."""
    flops: dict[str, float] = {}
    for suffix, dtype in _MOPS.items():
        count = group.mean(f"SQ_INSTS_VALU_MFMA_MOPS_{suffix}")
        if count:
            flops[dtype] = count * MOPS_FLOPS
    if not flops:
        flops = {dtype: value for suffix, dtype in _MFMA_FLOPS.items() for value in [group.mean(f"MfmaFlops{suffix}")] if value}
        total = group.mean("MfmaFlops")
        if not flops and total:
            flops["matrix"] = total
    for suffix, dtype in _VALU.items():
        names = {kind: f"SQ_INSTS_VALU_{kind}_{suffix}" for kind in ("ADD", "MUL", "FMA", "TRANS")}
        present = {kind: name for kind, name in names.items() if group.has(name)}
        if not present:
            continue
        found = group.together(dtype, *present.values(), quiet=list(present.values()))
        if found is None:
            continue
        count = sum(found[name] * (2 if kind == "FMA" else 1) for kind, name in present.items())
        if count:
            flops[dtype] = count * _LANES
            if len(present) < len(names):
                group.problems.append(f"{dtype}: a lower bound, not all of ADD, MUL, FMA and TRANS were collected")
    return flops
