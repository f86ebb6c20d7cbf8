"""The GPU that a process would use, from driver files and from stand-ins for the vendors' modules."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_roofline.ceilings import Gpu, find_device
from roofline_engine.peaks import resolve
from roofline_engine.peaks_table import load
from support.tool import ROOT

TABLE = load(str(ROOT / "peaks.md"))

#: Node properties as the kernel writes them, a key and a decimal number a line, cut to what is read here and some around it.
MI300X = {"cpu_cores_count": 0, "simd_count": 1216, "simd_per_cu": 4, "gfx_target_version": 90402, "drm_render_minor": 128}
MI250X = {"simd_count": 440, "simd_per_cu": 4, "gfx_target_version": 90010, "drm_render_minor": 129}
CPU_NODE = {"cpu_cores_count": 96, "simd_count": 0, "gfx_target_version": 0}


def node(root: Path, number: int, keys: dict[str, int], memory: int | None = None, product: str | None = None) -> None:
    folder = root / "sys/class/kfd/kfd/topology/nodes" / str(number)
    folder.mkdir(parents=True)
    (folder / "properties").write_text("".join(f"{key} {value}\n" for key, value in keys.items()))
    if memory is not None:
        bank = folder / "mem_banks/0"
        bank.mkdir(parents=True)
        (bank / "properties").write_text(f"heap_type 1\nsize_in_bytes {memory}\nflags 0\nwidth 8192\nmem_clk_max 1300\n")
    if product is not None:
        card = root / f"sys/class/drm/renderD{keys['drm_render_minor']}/device"
        card.mkdir(parents=True)
        (card / "product_name").write_text(product + "\n")


def nvidia_file(root: Path, bus: str, model: str, uuid: str) -> None:
    folder = root / "proc/driver/nvidia/gpus" / bus
    folder.mkdir(parents=True)
    (folder / "information").write_text(f"Model: \t\t {model}\nIRQ:   \t\t 312\nGPU UUID: \t {uuid}\nBus Location: \t {bus}\n")


class Nvml:
    """NVML's functions that matter here, over a list of (name, capability, bytes, uuid)."""

    def __init__(self, *gpus: tuple[str, tuple[int, int], int, str], broken: bool = False) -> None:
        self.gpus, self.broken, self.open = gpus, broken, 0

    def nvmlInit(self) -> None:  # noqa: N802
        if self.broken:
            raise RuntimeError("Driver Not Loaded")
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:  # noqa: N802
        return next(at for at, gpu in enumerate(self.gpus) if gpu[3].startswith(uuid))

    def nvmlDeviceGetName(self, handle: int) -> bytes:  # noqa: N802
        return self.gpus[handle][0].encode()  # text since nvidia-ml-py 11.5, bytes before

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:  # noqa: N802
        return self.gpus[handle][1]

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(total=self.gpus[handle][2])

    def nvmlDeviceGetMaxClockInfo(self, handle: int, kind: int) -> int:  # noqa: N802
        return {1: 1980, 2: 2619}[kind]

    def nvmlDeviceGetMemoryBusWidth(self, handle: int) -> int:  # noqa: N802
        raise RuntimeError("Not Supported")


H100 = ("NVIDIA H100 80GB HBM3", (9, 0), 85520809984, "GPU-11111111-2222")
A100 = ("NVIDIA A100-SXM4-80GB", (8, 0), 85899345920, "GPU-33333333-4444")


def torch(name: str, started: bool = True, hip: str | None = None, **keys: Any) -> SimpleNamespace:
    props = SimpleNamespace(name=name, major=9, minor=0, multi_processor_count=132, total_memory=85017493504, **keys)
    cuda = SimpleNamespace(
        is_initialized=lambda: started,
        is_available=lambda: True,
        current_device=lambda: 0,
        device_count=lambda: 1,
        get_device_properties=lambda index: props,
    )
    return SimpleNamespace(cuda=cuda, version=SimpleNamespace(hip=hip))


def find(root: Path, modules: dict[str, Any] | None = None, loaded: dict[str, Any] | None = None, **env: str) -> Gpu | None:
    return find_device(root, env, modules or {}, (loaded or {}).get)


def test_a_machine_without_a_gpu_has_none(tmp_path: Path) -> None:
    assert find(tmp_path) is None
    node(tmp_path, 0, CPU_NODE)
    assert find(tmp_path) is None


def test_amds_topology_gives_architecture_units_memory_and_clocks(tmp_path: Path) -> None:
    node(tmp_path, 0, CPU_NODE)
    node(tmp_path, 2, {**MI300X, "max_engine_clk_fcompute": 2100}, memory=206141652992)
    found = find(tmp_path)
    assert found
    device = found.device
    assert (device.gfx, device.cu_count, device.memory_bytes) == ("gfx942", 304, 206141652992.0)
    assert (device.clock_khz, device.memory_clock_khz, device.memory_bus_bits) == (2.1e6, 1.3e6, 8192.0)
    assert resolve(TABLE, found.device).product == "mi300x"  # gfx942 is four products: units and memory tell which


def test_a_server_boards_product_name_is_read(tmp_path: Path) -> None:
    node(tmp_path, 1, MI300X, product="AMD Instinct MI300X OAM")
    found = find(tmp_path)
    assert found
    assert found.device.device_name == "AMD Instinct MI300X OAM"
    assert resolve(TABLE, found.device).product == "mi300x"


@pytest.mark.parametrize(
    ("version", "gfx"),
    [(90402, "gfx942"), (90500, "gfx950"), (90010, "gfx90a"), (90006, "gfx906"), (110000, "gfx1100"), (120001, "gfx1201")],
)
def test_a_version_number_of_the_driver_is_an_architecture(tmp_path: Path, version: int, gfx: str) -> None:
    node(tmp_path, 1, {**MI300X, "gfx_target_version": version})
    found = find(tmp_path)
    assert found
    assert found.device.gfx == gfx


@pytest.mark.parametrize(
    ("environment", "gfx"),
    [
        ({}, "gfx942"),
        ({"HIP_VISIBLE_DEVICES": "1"}, "gfx90a"),
        ({"ROCR_VISIBLE_DEVICES": "1,0"}, "gfx90a"),
        ({"ROCR_VISIBLE_DEVICES": "GPU-00000000000000ab"}, "gfx90a"),
        ({"CUDA_VISIBLE_DEVICES": "1"}, "gfx90a"),
        ({"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "0"}, "gfx90a"),
        ({"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "1"}, None),
        ({"HIP_VISIBLE_DEVICES": ""}, None),
        ({"HIP_VISIBLE_DEVICES": "-1"}, None),
        ({"ROCR_VISIBLE_DEVICES": "7"}, None),
        ({"HIP_VISIBLE_DEVICES": "-1,0"}, None),
    ],
)
def test_hidden_amd_devices_are_ignored(tmp_path: Path, environment: dict[str, str], gfx: str | None) -> None:
    node(tmp_path, 1, MI300X)
    node(tmp_path, 10, {**MI250X, "unique_id": 0xAB})
    found = find(tmp_path, **environment)
    assert (found.device.gfx if found else None) == gfx


def test_nvml_gives_the_first_visible_gpu(tmp_path: Path) -> None:
    nvml = Nvml(H100, A100)
    found = find(tmp_path, loaded={"pynvml": nvml})
    assert found
    assert (found.device.device_name, found.device.gfx, found.visible) == ("NVIDIA H100 80GB HBM3", "sm_90", 2)
    assert (found.device.clock_khz, found.device.memory_bus_bits) == (1.98e6, None)
    assert resolve(TABLE, found.device).product == "h100-sxm"
    assert nvml.open == 0


@pytest.mark.parametrize(
    ("listed", "name"),
    [("1", A100[0]), ("GPU-3333", A100[0]), ("0,1", H100[0]), ("", None), ("-1", None), ("5", None), ("NoDevFiles", None)],
)
def test_hidden_nvidia_devices_are_ignored(tmp_path: Path, listed: str, name: str | None) -> None:
    for at, gpu in enumerate((H100, A100)):
        nvidia_file(tmp_path, f"0000:0{at}:00.0", gpu[0], gpu[3])
    for loaded in ({"pynvml": Nvml(H100, A100)}, {}):
        found = find(tmp_path, loaded=loaded, CUDA_VISIBLE_DEVICES=listed)
        assert (found.device.device_name if found else None) == name


def test_a_failing_library_falls_back_to_the_driver_files(tmp_path: Path) -> None:
    nvidia_file(tmp_path, "0000:01:00.0", "NVIDIA H100 80GB HBM3", "GPU-1")
    found = find(tmp_path, loaded={"pynvml": Nvml(broken=True), "amdsmi": SimpleNamespace()})
    assert found
    assert found.source == "the NVIDIA driver's files"
    assert resolve(TABLE, found.device).product == "h100-sxm"


def test_without_topology_the_amd_library_is_asked(tmp_path: Path) -> None:
    calls = []
    smi = SimpleNamespace(
        amdsmi_init=lambda: calls.append("init"),
        amdsmi_shut_down=lambda: calls.append("shut down"),
        amdsmi_get_processor_handles=lambda: ["one", "two"],
        amdsmi_get_gpu_asic_info=lambda handle: {
            "market_name": f"AMD Instinct MI300X {handle}",
            "num_compute_units": 304,
            "target_graphics_version": "gfx942",
        },
        amdsmi_get_gpu_vram_info=lambda handle: {"vram_size": 196592},
    )
    found = find(tmp_path, loaded={"amdsmi": smi}, HIP_VISIBLE_DEVICES="1")
    assert found
    assert found.device[:4] == ("gfx942", "AMD Instinct MI300X two", 304, 196592 * 2.0**20)
    assert calls == ["init", "shut down"]


def test_torch_with_a_gpu_in_use_is_asked_first(tmp_path: Path) -> None:
    nvml = Nvml(A100)
    found = find(tmp_path, modules={"torch": torch("NVIDIA H100 80GB HBM3")}, loaded={"pynvml": nvml})
    assert found
    assert (found.source, found.device.gfx, found.device.cu_count) == ("torch", "sm_90", 132)
    amd = find(tmp_path, modules={"torch": torch("AMD Instinct MI300X", hip="6.3", gcnArchName="gfx942:sramecc+:xnack-")})
    assert amd
    assert amd.device.gfx == "gfx942:sramecc+:xnack-"
    assert resolve(TABLE, amd.device).gfx == "gfx942"


def test_torch_without_a_started_gpu_is_asked_last(tmp_path: Path) -> None:
    asleep = {"torch": torch("NVIDIA H100 80GB HBM3", started=False)}
    found = find(tmp_path, modules=asleep, loaded={"pynvml": Nvml(A100)})
    assert found
    assert (found.source, found.device.device_name) == ("NVML", A100[0])
    found = find(tmp_path, modules=asleep)
    assert found
    assert found.source == "torch"


def test_malformed_driver_files_give_no_gpu(tmp_path: Path) -> None:
    node(tmp_path, 1, MI300X)
    (tmp_path / "sys/class/kfd/kfd/topology/nodes/1/properties").write_bytes(b"\xff\x00 simd_count lots\n\n")
    folder = tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0"
    folder.mkdir(parents=True)
    (folder / "information").write_bytes(b"\xff\xfe")
    assert find(tmp_path) is None
