"""Find the GPU that this process would use, without starting a process and without importing torch.

``find_device`` asks, in this order: a torch that is already imported and uses its GPU, NVIDIA's NVML, the Linux kernel's
topology of AMD GPUs, AMD's management library, and the NVIDIA driver's files. The first visible device is the answer;
``CUDA_VISIBLE_DEVICES``, ``ROCR_VISIBLE_DEVICES`` and ``HIP_VISIBLE_DEVICES`` hide devices.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from roofline_engine.peaks import Device

from .machine import read_text

#: Returns a module by its name, None where it is not installed.
Import = Callable[[str], Any]
#: The folder of the Linux kernel's compute driver for AMD GPUs (KFD): one folder a node.
_NODES = "sys/class/kfd/kfd/topology/nodes"


class Gpu(NamedTuple):
    """A GPU and where it was found."""

    device: Device
    source: str  # what named the device
    visible: int  # the number of visible devices


def find_device(
    root: Path = Path("/"),
    environ: Mapping[str, str] = os.environ,
    modules: Mapping[str, Any] = sys.modules,
    load: Import | None = None,
) -> Gpu | None:
    """Return the GPU that a program started like this one would use first; None without a visible GPU."""
    load = load or _import
    torch = modules.get("torch")
    sources: tuple[Callable[[], Gpu | None], ...] = (
        lambda: _from_torch(torch, started=True),
        lambda: _from_nvml(load("pynvml"), environ),
        lambda: _from_kfd(root, environ),
        lambda: _from_amdsmi(load("amdsmi"), environ),
        lambda: _from_driver_files(root, environ),
        lambda: _from_torch(torch, started=False),
    )
    for look in sources:
        try:
            device = look()
        except Exception:  # a vendor's library that fails here cannot name the device
            continue
        if device is not None:
            return device
    return None


def _import(name: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a package under a deprecated name is not the fault of the user's tests
            return importlib.import_module(name)
    except Exception:  # a broken installation counts as none
        return None


def entries(text: str | None) -> list[str] | None:
    """Return the devices listed in CUDA_VISIBLE_DEVICES, by whose rules HIP and ROCr go as well; None for an unset variable.

    The first invalid entry hides the rest. An empty list, as of ``CUDA_VISIBLE_DEVICES=``, hides every device.
    """
    if text is None:
        return None
    listed = []
    for entry in (part.strip() for part in text.split(",")):
        if not (entry.isdecimal() or entry.startswith(("GPU-", "MIG-"))):
            break
        listed.append(entry)
    return listed


def first_visible(text: str | None, count: int) -> int | str | None:
    """Return the index of the first visible device of ``count``, or the id that lists it; None where none is visible."""
    listed = entries(text)
    if listed is None:
        return 0 if count else None
    if not listed or not count:
        return None
    if listed[0].isdecimal():
        return int(listed[0]) if int(listed[0]) < count else None
    return listed[0]


def _from_torch(torch: Any, *, started: bool) -> Gpu | None:
    """Ask torch. An unstarted torch comes last: asking starts its GPU runtime, which does not survive a fork."""
    cuda = getattr(torch, "cuda", None)
    if cuda is None or bool(cuda.is_initialized()) is not started or not cuda.is_available():
        return None
    props = cuda.get_device_properties(cuda.current_device())
    gfx = getattr(props, "gcnArchName", None) if getattr(torch.version, "hip", None) else f"sm_{props.major}{props.minor}"
    device = Device(
        gfx=gfx, device_name=props.name, cu_count=props.multi_processor_count, memory_bytes=float(props.total_memory)
    )
    return Gpu(device, "torch", cuda.device_count())


def _from_nvml(nvml: Any, environ: Mapping[str, str]) -> Gpu | None:
    if nvml is None:
        return None
    nvml.nvmlInit()
    try:
        count = int(nvml.nvmlDeviceGetCount())
        first = first_visible(environ.get("CUDA_VISIBLE_DEVICES"), count)
        if first is None:
            return None
        handle_of = nvml.nvmlDeviceGetHandleByIndex if isinstance(first, int) else nvml.nvmlDeviceGetHandleByUUID
        return Gpu(_nvml_device(nvml, handle_of(first)), "NVML", count)
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


class _AmdGpu(NamedTuple):
    uuid: str  # as ROCr prints it: ``GPU-`` and sixteen hexadecimal digits
    device: Device


def _from_kfd(root: Path, environ: Mapping[str, str]) -> Gpu | None:
    """Ask the Linux kernel, which lists AMD GPUs in the order in which ROCr and HIP number them."""
    nodes = [path for path in (root / _NODES).glob("*") if path.name.isdecimal()]
    listed = (_amd_gpu(root, node) for node in sorted(nodes, key=lambda path: int(path.name)))
    gpus = _visible([gpu for gpu in listed if gpu is not None], environ.get("ROCR_VISIBLE_DEVICES"))
    # HIP counts the devices that ROCr leaves visible.
    gpus = _visible(gpus, environ.get("HIP_VISIBLE_DEVICES", environ.get("CUDA_VISIBLE_DEVICES")))
    return Gpu(gpus[0].device, "the kernel's topology of AMD GPUs", len(gpus)) if gpus else None


def _visible(gpus: Sequence[_AmdGpu], text: str | None) -> list[_AmdGpu]:
    listed = entries(text)
    if listed is None:
        return list(gpus)
    visible = []
    for entry in listed:
        named = [gpu for gpu in gpus if gpu.uuid.lower() == entry.lower()]
        named = named or ([gpus[int(entry)]] if entry.isdecimal() and int(entry) < len(gpus) else [])
        if not named:
            break
        visible += named
    return visible


def _amd_gpu(root: Path, node: Path) -> _AmdGpu | None:
    """Read one node; None for a CPU, which has no SIMD units.

    ``gfx_target_version`` is 10000 x major + 100 x minor + stepping. A name has the last two as hexadecimal digits: 90402 is
    gfx942, 90010 is gfx90a.
    """
    keys = _properties(node / "properties")
    simds, per_unit, version = (keys.get(key, 0) for key in ("simd_count", "simd_per_cu", "gfx_target_version"))
    if not simds or not version:
        return None
    banks = [_properties(path) for path in sorted((node / "mem_banks").glob("*/properties"))]
    memory = next((bank for bank in banks if bank.get("heap_type") in (1, 2)), {})  # frame buffer, public or private
    clock, memory_clock = keys.get("max_engine_clk_fcompute"), memory.get("mem_clk_max")  # MHz
    product = read_text(root / f"sys/class/drm/renderD{keys.get('drm_render_minor', 0)}/device/product_name")
    return _AmdGpu(
        uuid=f"GPU-{keys.get('unique_id', 0):016x}",
        device=Device(
            gfx=f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}",
            device_name=product.strip() or None,  # server boards carry it; other boards have an empty file or none
            cu_count=simds // per_unit if per_unit else None,
            memory_bytes=float(memory["size_in_bytes"]) if memory.get("size_in_bytes") else None,
            clock_khz=clock * 1e3 if clock else None,
            memory_clock_khz=memory_clock * 1e3 if memory_clock else None,
            memory_bus_bits=float(memory["width"]) if memory.get("width") else None,
        ),
    )


def _properties(path: Path) -> dict[str, int]:
    """Read lines of ``key number``; a file that this process may not read has none."""
    pairs = (line.split() for line in read_text(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def _from_amdsmi(smi: Any, environ: Mapping[str, str]) -> Gpu | None:
    """Ask AMD's library, only where the kernel's topology is unreadable: the library orders GPUs by bus, HIP does not."""
    if smi is None:
        return None
    smi.amdsmi_init()
    try:
        handles = list(smi.amdsmi_get_processor_handles())
        for key in ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
            first = first_visible(environ.get(key), len(handles))
            handles = handles[first:] if isinstance(first, int) else []
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
    return Gpu(device, "amd-smi", len(handles))


def _from_driver_files(root: Path, environ: Mapping[str, str]) -> Gpu | None:
    """Read the NVIDIA driver's file of each GPU, which has the product's name, the key of the peak table."""
    gpus = []
    for path in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        pairs = (line.partition(":") for line in read_text(path).splitlines())
        gpus.append({key.strip(): value.strip() for key, _, value in pairs})
    first = first_visible(environ.get("CUDA_VISIBLE_DEVICES"), len(gpus))
    if isinstance(first, str):
        first = next((at for at, gpu in enumerate(gpus) if gpu.get("GPU UUID", "").startswith(first)), None)
    if first is None or not gpus[first].get("Model"):
        return None
    return Gpu(Device(device_name=gpus[first]["Model"]), "the NVIDIA driver's files", len(gpus))
