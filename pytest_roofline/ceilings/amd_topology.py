"""AMD GPUs as the kernel's compute driver (KFD) lists them, in the order in which ROCr and HIP number them.

Each is a folder of ``/sys/class/kfd/kfd/topology/nodes``; one with no SIMD units is a CPU. ``gfx_target_version`` is
10000 x major + 100 x minor + stepping, the last two hexadecimal digits in a name: 90402 is gfx942, 90010 gfx90a.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from roofline_engine.device import Device

from .visible import entries

_NODES = "sys/class/kfd/kfd/topology/nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU; ``uuid`` as ROCr gives it, ``GPU-`` and sixteen hexadecimal digits."""

    uuid: str
    device: Device


def gpus(root: Path = Path("/")) -> list[Gpu]:
    """The GPUs this process may read, in the kernel's order."""
    nodes = [path for path in (root / _NODES).glob("*") if path.name.isdecimal()]
    found = (_gpu(root, node) for node in sorted(nodes, key=lambda path: int(path.name)))
    return [gpu for gpu in found if gpu is not None]


def visible(found: Sequence[Gpu], environ: Mapping[str, str]) -> list[Gpu]:
    """Those left by ROCR_VISIBLE_DEVICES and then, counted among these, HIP_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES."""
    left = _chosen(found, environ.get("ROCR_VISIBLE_DEVICES"))
    return _chosen(left, environ.get("HIP_VISIBLE_DEVICES", environ.get("CUDA_VISIBLE_DEVICES")))


def _chosen(found: Sequence[Gpu], text: str | None) -> list[Gpu]:
    listed = entries(text)
    if listed is None:
        return list(found)
    left = []
    for entry in listed:
        named = [gpu for gpu in found if gpu.uuid.lower() == entry.lower()]
        named = named or ([found[int(entry)]] if entry.isdecimal() and int(entry) < len(found) else [])
        if not named:
            break
        left += named
    return left


def _gpu(root: Path, node: Path) -> Gpu | None:
    keys = _properties(node / "properties")
    simds, a_unit, version = (keys.get(key, 0) for key in ("simd_count", "simd_per_cu", "gfx_target_version"))
    if not simds or not version:
        return None
    banks = [_properties(path) for path in sorted((node / "mem_banks").glob("*/properties"))]
    memory = next((bank for bank in banks if bank.get("heap_type") in (1, 2)), {})  # frame buffer, public or private
    clock, memory_clock = keys.get("max_engine_clk_fcompute"), memory.get("mem_clk_max")  # MHz
    return Gpu(
        uuid=f"GPU-{keys.get('unique_id', 0):016x}",
        device=Device(
            gfx=f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}",
            device_name=_product_name(root, keys.get("drm_render_minor", 0)),
            cu_count=simds // a_unit if a_unit else None,
            memory_bytes=float(memory["size_in_bytes"]) if memory.get("size_in_bytes") else None,
            clock_khz=clock * 1e3 if clock else None,
            memory_clock_khz=memory_clock * 1e3 if memory_clock else None,
            memory_bus_bits=float(memory["width"]) if memory.get("width") else None,
        ),
    )


def _product_name(root: Path, minor: int) -> str | None:
    """Server boards carry their product's name; ``""`` and a missing file are the rule on others."""
    try:
        name = (root / f"sys/class/drm/renderD{minor}/device/product_name").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return name.strip() or None


def _properties(path: Path) -> dict[str, int]:
    """``key number`` a line; a node that this process may not read has none."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}
