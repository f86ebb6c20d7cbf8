"""Evicting the caches before a round by *reading* a buffer of twice their size.

Reading, because written lines are dirty and their write-back would be charged to the kernel that follows; twice the size,
because replacement is not strictly by age. The buffer is made once and read outside the timed region.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

Flush = Callable[[], object]

#: The largest last-level cache that a GPU's driver does not report: AMD's Infinity Cache of 256 MB (CDNA 3 white paper).
#: Taken for a GPU whose caches are unknown.
LARGEST_UNREPORTED_BYTES = 256 * 2**20
#: For a host whose caches are unknown: over the L3 that one core of a desktop part can fill (96 MiB with stacked cache).
UNKNOWN_HOST_BYTES = 128 * 2**20
CPU_FOLDER = Path("/sys/devices/system/cpu")


class HostCache(NamedTuple):
    """The last-level cache of the host."""

    bytes: int  # of one instance
    instances: int | None  # how many this process may run on; None where unknown


def host_cache(folder: Path = CPU_FOLDER, cpus: Iterable[int] | None = None) -> HostCache:
    """Return the last-level cache of these CPUs (default: all that this process may run on) as Linux describes it."""
    if cpus is None:
        cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    caches: dict[tuple[int, str], int] = {}
    for cache in (path for cpu in cpus for path in folder.glob(f"cpu{cpu}/cache/index[0-9]*")):
        try:
            size = re.fullmatch(r"(\d+)K", (cache / "size").read_text().strip())
            level, shared = int((cache / "level").read_text()), (cache / "shared_cpu_list").read_text().strip()
        except (OSError, ValueError):
            continue
        if size:
            caches[level, shared] = int(size[1]) * 1024
    if not caches:
        return HostCache(UNKNOWN_HOST_BYTES, None)
    last = max(level for level, _ in caches)
    sizes = [size for (level, _), size in caches.items() if level == last]
    return HostCache(max(sizes), len(sizes))


def host_flush(llc_bytes: int) -> Flush:
    """Return ``memchr`` over a buffer: it reads every line, at memory speed, and allocates nothing.

    The buffer is filled with ones: pages of zeros that were never written are all the same page of the kernel.
    """
    buffer = bytearray(b"\1") * (2 * llc_bytes)
    return lambda: buffer.find(b"\0")


def torch_flush(torch: Any, device: int, llc_bytes: int | None) -> Flush:
    if llc_bytes is None:
        reported = int(getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0))
        llc_bytes = _llc_bytes(reported, hip=bool(getattr(torch.version, "hip", None)))
    place = torch.device("cuda", device)
    buffer = torch.zeros(_floats(llc_bytes), dtype=torch.float32, device=place)
    total = torch.zeros(1, dtype=torch.float32, device=place)
    return lambda: torch.sum(buffer, dim=0, keepdim=True, out=total)


def cupy_flush(cupy: Any, device: int, llc_bytes: int | None) -> Flush:
    if llc_bytes is None:
        reported = int(cupy.cuda.Device(device).attributes.get("L2CacheSize", 0))
        llc_bytes = _llc_bytes(reported, hip=bool(cupy.cuda.runtime.is_hip))
    with cupy.cuda.Device(device):
        buffer = cupy.zeros(_floats(llc_bytes), dtype="float32")
        total = cupy.zeros((), dtype="float32")
    return lambda: buffer.sum(out=total)


def jax_flush(jax: Any, device: Any, llc_bytes: int | None) -> Flush:
    """Return a flush that waits for its end: JAX is timed by the host, and a flush still running would be in the sample."""
    buffer = jax.device_put(jax.numpy.ones(_floats(llc_bytes or LARGEST_UNREPORTED_BYTES), dtype="float32"), device)
    total = jax.jit(jax.numpy.sum)
    total(buffer).block_until_ready()
    return lambda: total(buffer).block_until_ready()


def _llc_bytes(reported: int, hip: bool) -> int:
    """Return the size to evict: HIP reports the L2 of one die, and not the memory-side cache behind it."""
    return max(reported, LARGEST_UNREPORTED_BYTES) if hip or not reported else reported


def _floats(llc_bytes: int) -> int:
    return 2 * llc_bytes // 4
