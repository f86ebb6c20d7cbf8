"""Which machine this is: what a ceiling belongs to. Read from the system's own files, no process is started."""

from __future__ import annotations

import hashlib
import math
import os
import platform
import re
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from pathlib import Path

from roofline_engine.units import whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What tells one machine's ceilings from another's; the host name does not.

    cores: those this process may use (affinity and a container's quota). memory_bytes: to the GiB, since a kernel update
    moves it by less. cache_bytes: all the last-level caches that those cores use; None where the system does not say.
    """

    cpu: str
    arch: str
    cores: int
    memory_bytes: int | None
    cache_bytes: int | None

    @property
    def key(self) -> str:
        """A short name for a file."""
        return hashlib.sha256(repr(astuple(self)).encode()).hexdigest()[:16]

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> Machine:
        """Raises ValueError naming what is wrong."""
        sizes = [data.get("memory_bytes"), data.get("cache_bytes")]
        memory, cache = (None if size is None else whole(size, "machine", minimum=1) for size in sizes)
        cores = whole(data.get("cores"), "machine.cores", minimum=1)
        return cls(cpu=str(data.get("cpu")), arch=str(data.get("arch")), cores=cores, memory_bytes=memory, cache_bytes=cache)


def this_machine(root: Path = Path("/"), cpus: set[int] | None = None) -> Machine:
    """The machine under ``root``, its files those of Linux; elsewhere what Python itself can tell.

    cpus: the numbers of the cores that may be used; None for those of this process.
    """
    usable = _affinity() if cpus is None else cpus
    memory = _memory_total(root)
    return Machine(
        cpu=_cpu_name(root),
        arch=platform.machine().lower() or "unknown",
        cores=min(len(usable), _quota(root) or len(usable)),
        memory_bytes=None if memory is None else round(memory / 2**30) * 2**30 or None,
        cache_bytes=_last_level_cache(root, usable),
    )


def clock_mhz(root: Path = Path("/")) -> float | None:
    """The fastest clock of any core at this moment, as the system gives it."""
    text = _read(root / "proc/cpuinfo")
    found = [float(value) for value in re.findall(r"(?m)^cpu MHz\s*:\s*([\d.]+)", text)]
    for path in (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_cur_freq"):
        khz = _read(path).strip()
        found += [int(khz) / 1e3] if khz.isdigit() else []
    return max((value for value in found if value > 0), default=None)


def available_bytes(root: Path = Path("/")) -> int | None:
    """Memory that can be had now without paging: the system's figure, or less under a container's limit."""
    found = re.search(r"(?m)^MemAvailable:\s*(\d+) kB", _read(root / "proc/meminfo"))
    total = _memory_total(root)
    limits = [int(found[1]) * 1024] if found else [total // 2] if total else []
    most, used = (_read(root / f"sys/fs/cgroup/memory.{name}").strip() for name in ("max", "current"))
    if most.isdigit():
        limits.append(max(0, int(most) - (int(used) if used.isdigit() else 0)))
    return min(limits, default=None)


def isa_flags(root: Path = Path("/")) -> set[str]:
    """The instruction-set extensions the kernel lists for the CPU."""
    found = re.search(r"(?m)^(?:flags|Features|isa)\s*:\s*(.*)$", _read(root / "proc/cpuinfo"))
    return set(found[1].lower().split()) if found else set()


def caches(root: Path = Path("/"), cpus: set[int] | None = None) -> dict[str, tuple[int, int]]:
    """By level, ``L1`` first: the bytes of one data cache, the smallest, and how many distinct ones ``cpus`` use."""
    found = _data_caches(root, _affinity() if cpus is None else cpus)
    return {f"L{level}": (min(sizes), len(sizes)) for level, sizes in sorted(found.items())}


def _data_caches(root: Path, cpus: set[int]) -> dict[int, list[int]]:
    """By level, the bytes of each distinct data cache of ``cpus``."""
    found: dict[int, dict[str, int]] = {}
    for cpu in cpus:
        for index in (root / f"sys/devices/system/cpu/cpu{cpu}/cache").glob("index*"):
            size = re.fullmatch(r"(\d+)([KMG]?)", _read(index / "size").strip())
            level = _read(index / "level").strip()
            if size and level.isdigit() and _read(index / "type").strip() in ("Unified", "Data"):
                nbytes = int(size[1]) * 1024 ** " KMG".index(size[2] or " ")
                found.setdefault(int(level), {})[_read(index / "shared_cpu_list").strip() or str(cpu)] = nbytes
    return {level: list(sizes.values()) for level, sizes in found.items()}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _affinity() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def _quota(root: Path) -> int | None:
    """Whole cores of a container's CPU quota (``cpu.max``: microseconds of CPU time per period)."""
    quota, _, period = _read(root / "sys/fs/cgroup/cpu.max").strip().partition(" ")
    return max(1, math.ceil(int(quota) / int(period))) if quota.isdigit() and period.isdigit() and int(period) else None


def _cpu_name(root: Path) -> str:
    text = _read(root / "proc/cpuinfo")
    for key in ("model name", "Model", "uarch", "cpu model"):
        found = re.search(rf"(?m)^{key}\s*:\s*(\S.*)$", text)
        if found:
            return " ".join(found[1].split())
    parts = [found[1] for key in ("CPU implementer", "CPU part") if (found := re.search(rf"(?m)^{key}\s*:\s*(\S+)$", text))]
    return " ".join(["CPU", *parts]) if parts else platform.processor() or "unknown CPU"


def _memory_total(root: Path) -> int | None:
    found = re.search(r"(?m)^MemTotal:\s*(\d+) kB", _read(root / "proc/meminfo"))
    if found:
        return int(found[1]) * 1024
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if root == Path("/") else None
    except (ValueError, OSError, AttributeError):
        return None


def _last_level_cache(root: Path, cpus: set[int]) -> int | None:
    """The sizes of the distinct last-level caches of ``cpus``, summed: a package has one for each group of cores."""
    found = _data_caches(root, cpus)
    return sum(found[max(found)]) or None if found else None
