"""Which GPU this process would use, from what is at hand: no process is started, torch is not imported.

``find_device`` asks, in this order, a torch that is already imported and has its GPU in use, NVIDIA's NVML, the kernel's
topology of AMD GPUs, AMD's management library, and the NVIDIA driver's files. The first visible device is the answer: what
the environment hides (``CUDA_VISIBLE_DEVICES``, ``ROCR_VISIBLE_DEVICES``, ``HIP_VISIBLE_DEVICES``) is not there.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roofline_engine.device import Device
from roofline_engine.peaks import Peaks, resolve
from roofline_engine.peaktable import Table

from . import amd_topology
from .visible import first_visible

#: Gives a module by its name, None where it is not installed.
Import = Callable[[str], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The device in the engine's words, who said so, and how many are visible (None: not known)."""

    device: Device
    source: str
    count: int | None = None

    def peaks(self, table: Table | None) -> Peaks:
        """Its peaks in the table; the note says when the table cannot tell which product it is."""
        return resolve(table, self.device)


def find_device(
    root: Path = Path("/"),
    environ: Mapping[str, str] = os.environ,
    modules: Mapping[str, Any] = sys.modules,
    load: Import | None = None,
) -> Found | None:
    """The GPU that a program started like this one would use first; None where there is none or none is visible."""
    load = load or _import
    torch = modules.get("torch")
    ways: tuple[Callable[[], Found | None], ...] = (
        lambda: _from_torch(torch, started=True),
        lambda: _from_nvml(load("pynvml"), environ),
        lambda: _from_kfd(root, environ),
        lambda: _from_amdsmi(load("amdsmi"), environ),
        lambda: _from_driver_files(root, environ),
        lambda: _from_torch(torch, started=False),
    )
    for look in ways:
        try:
            found = look()
        except Exception:  # a library of a vendor that fails here is one that cannot tell
            continue
        if found is not None:
            return found
    return None


def _import(name: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a package under an old name, which is no fault of the tests that run
            return importlib.import_module(name)
    except Exception:  # installed but broken is not installed
        return None


def _from_torch(torch: Any, *, started: bool) -> Found | None:
    """What torch sees. Asking it starts its GPU runtime, which a fork does not survive, so unstarted it comes last."""
    cuda = getattr(torch, "cuda", None)
    if cuda is None or bool(cuda.is_initialized()) is not started or not cuda.is_available():
        return None
    props = cuda.get_device_properties(cuda.current_device())
    gfx = getattr(props, "gcnArchName", None) if getattr(torch.version, "hip", None) else f"sm_{props.major}{props.minor}"
    device = Device(
        gfx=gfx, device_name=props.name, cu_count=props.multi_processor_count, memory_bytes=float(props.total_memory)
    )
    return Found(device=device, source="torch", count=cuda.device_count())


def _from_nvml(nvml: Any, environ: Mapping[str, str]) -> Found | None:
    if nvml is None:
        return None
    nvml.nvmlInit()
    try:
        count = int(nvml.nvmlDeviceGetCount())
        wanted = first_visible(environ.get("CUDA_VISIBLE_DEVICES"), count)
        if wanted is None:
            return None
        by = nvml.nvmlDeviceGetHandleByIndex if isinstance(wanted, int) else nvml.nvmlDeviceGetHandleByUUID
        return Found(device=_nvml_device(nvml, by(wanted)), source="NVML", count=count)
    finally:
        nvml.nvmlShutdown()


def _nvml_device(nvml: Any, handle: Any) -> Device:
    def ask(name: str, *more: Any) -> Any:
        try:
            return getattr(nvml, name)(handle, *more)
        except Exception:  # not every driver and not every GPU answers every question
            return None

    name = ask("nvmlDeviceGetName")
    major_minor = ask("nvmlDeviceGetCudaComputeCapability")
    memory = ask("nvmlDeviceGetMemoryInfo")
    clock, memory_clock = (ask("nvmlDeviceGetMaxClockInfo", kind) for kind in (1, 2))  # NVML_CLOCK_SM, NVML_CLOCK_MEM: MHz
    bus = ask("nvmlDeviceGetMemoryBusWidth")
    return Device(
        gfx="sm_{}{}".format(*major_minor) if major_minor else None,
        device_name=name.decode() if isinstance(name, bytes) else name,
        memory_bytes=float(memory.total) if memory else None,
        clock_khz=clock * 1e3 if clock else None,
        memory_clock_khz=memory_clock * 1e3 if memory_clock else None,
        memory_bus_bits=float(bus) if bus else None,
    )


def _from_kfd(root: Path, environ: Mapping[str, str]) -> Found | None:
    nodes = amd_topology.gpus(root)
    shown = amd_topology.visible(nodes, environ)
    return Found(device=shown[0].device, source="the kernel's topology of AMD GPUs", count=len(shown)) if shown else None


def _from_amdsmi(smi: Any, environ: Mapping[str, str]) -> Found | None:
    """Only where the kernel's topology is not to be read: this library orders GPUs by bus, not as HIP does."""
    if smi is None:
        return None
    smi.amdsmi_init()
    try:
        handles = list(smi.amdsmi_get_processor_handles())
        for key in ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
            wanted = first_visible(environ.get(key), len(handles))
            handles = handles[wanted:] if isinstance(wanted, int) else []
        if not handles:
            return None
        asic, vram = smi.amdsmi_get_gpu_asic_info(handles[0]), smi.amdsmi_get_gpu_vram_info(handles[0])
    finally:
        smi.amdsmi_shut_down()
    units, size = asic.get("num_compute_units"), vram.get("vram_size")  # MiB; "N/A" where the driver does not know
    gfx = str(asic.get("target_graphics_version") or "")
    device = Device(
        gfx=gfx if gfx.startswith("gfx") else None,
        device_name=asic.get("market_name"),
        cu_count=units if isinstance(units, int) else None,
        memory_bytes=size * 2.0**20 if isinstance(size, int) else None,
    )
    return Found(device=device, source="amd-smi", count=len(handles))


def _from_driver_files(root: Path, environ: Mapping[str, str]) -> Found | None:
    """The NVIDIA driver's file for each GPU gives its name, which is what the table is keyed by."""
    gpus = []
    for path in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        gpus.append({key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)})
    wanted = first_visible(environ.get("CUDA_VISIBLE_DEVICES"), len(gpus))
    if isinstance(wanted, str):
        wanted = next((at for at, gpu in enumerate(gpus) if gpu.get("GPU UUID", "").startswith(wanted)), None)
    if wanted is None or not gpus[wanted].get("Model"):
        return None
    return Found(device=Device(device_name=gpus[wanted]["Model"]), source="the NVIDIA driver's files", count=len(gpus))
