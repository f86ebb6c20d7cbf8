"""Identify the machine that ceilings belong to, from the system's files and without starting a process."""

from __future__ import annotations

import hashlib
import math
import os
import platform
import re
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

Whole = Annotated[int, Field(ge=1, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What identifies the machine of a ceiling; the host name does not."""

    cpu: str  # the model's name
    arch: str
    cores: Whole  # that this process may use: affinity and a container's quota
    memory_bytes: Whole | None  # to the GiB, because a kernel update changes it by less
    cache_bytes: Whole | None  # all last-level caches of those cores; None where the system does not say

    @property
    def key(self) -> str:
        """A short name for the machine's file."""
        return hashlib.sha256(repr(astuple(self)).encode()).hexdigest()[:16]


def this_machine(root: Path = Path("/"), cpus: set[int] | None = None) -> Machine:
    """Return this machine, from Linux's files under ``root``, or elsewhere from what Python knows.

    cpus: the numbers of the usable cores; None for the ones of this process.
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


def cpu_model(root: Path = Path("/")) -> str | None:
    """Return the CPU's model name; None where the system gives the CPU no such name."""
    text = read_text(root / "proc/cpuinfo")
    return _cpuinfo(text, "model name") if text else platform.processor() or None


def _cpu_name(root: Path) -> str:
    """Return the model name or what comes nearest to one."""
    text = read_text(root / "proc/cpuinfo")
    for key in ("model name", "Model", "uarch", "cpu model"):
        name = _cpuinfo(text, key)
        if name:
            return " ".join(name.split())
    parts = [part for key in ("CPU implementer", "CPU part") if (part := _cpuinfo(text, key))]
    return " ".join(["CPU", *parts]) if parts else platform.processor() or "unknown CPU"


def _cpuinfo(text: str, key: str) -> str | None:
    """Return the first value of a key in the text of /proc/cpuinfo."""
    line = re.search(rf"(?m)^{key}[ \t]*:[ \t]*(\S.*)$", text)
    return line[1].strip() if line else None


def clock_mhz(root: Path = Path("/")) -> float | None:
    """Return the fastest clock of any core at this moment; None where the system does not say."""
    text = read_text(root / "proc/cpuinfo")
    clocks = [float(value) for value in re.findall(r"(?m)^cpu MHz\s*:\s*([\d.]+)", text)]
    for path in (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_cur_freq"):
        khz = read_text(path).strip()
        clocks += [int(khz) / 1e3] if khz.isdigit() else []
    return max((value for value in clocks if value > 0), default=None)


def available_bytes(root: Path = Path("/")) -> int | None:
    """Return the memory available without paging: the system's figure, or less under a container's limit."""
    available = re.search(r"(?m)^MemAvailable:\s*(\d+) kB", read_text(root / "proc/meminfo"))
    total = _memory_total(root)
    limits = [int(available[1]) * 1024] if available else [total // 2] if total else []
    most, used = (read_text(root / f"sys/fs/cgroup/memory.{name}").strip() for name in ("max", "current"))
    if most.isdigit():
        limits.append(max(0, int(most) - (int(used) if used.isdigit() else 0)))
    return min(limits, default=None)


def isa_flags(root: Path = Path("/")) -> set[str]:
    """Return the CPU's instruction-set extensions as the system lists them."""
    flags = re.search(r"(?m)^(?:flags|Features|isa)\s*:\s*(.*)$", read_text(root / "proc/cpuinfo"))
    return set(flags[1].lower().split()) if flags else set()


def caches(root: Path = Path("/"), cpus: set[int] | None = None) -> dict[str, tuple[int, int]]:
    """Return, by level, ``L1`` first: the bytes of the smallest data cache, and how many distinct ones ``cpus`` use."""
    by_level = _data_caches(root, _affinity() if cpus is None else cpus)
    return {f"L{level}": (min(sizes), len(sizes)) for level, sizes in sorted(by_level.items())}


def _data_caches(root: Path, cpus: set[int]) -> dict[int, list[int]]:
    """Return the bytes of each distinct data cache of ``cpus``, by level."""
    by_level: dict[int, dict[str, int]] = {}
    for cpu in cpus:
        for index in (root / f"sys/devices/system/cpu/cpu{cpu}/cache").glob("index*"):
            size = re.fullmatch(r"(\d+)([KMG]?)", read_text(index / "size").strip())
            level = read_text(index / "level").strip()
            if size and level.isdigit() and read_text(index / "type").strip() in ("Unified", "Data"):
                nbytes = int(size[1]) * 1024 ** " KMG".index(size[2] or " ")
                by_level.setdefault(int(level), {})[read_text(index / "shared_cpu_list").strip() or str(cpu)] = nbytes
    return {level: list(sizes.values()) for level, sizes in by_level.items()}


def read_text(path: Path) -> str:
    """Return the text of a file of the system; empty where this process cannot read it."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _affinity() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def _quota(root: Path) -> int | None:
    """Return the whole cores of a container's CPU quota (``cpu.max``: microseconds of CPU time per period)."""
    quota, _, period = read_text(root / "sys/fs/cgroup/cpu.max").strip().partition(" ")
    return max(1, math.ceil(int(quota) / int(period))) if quota.isdigit() and period.isdigit() and int(period) else None


def _memory_total(root: Path) -> int | None:
    total = re.search(r"(?m)^MemTotal:\s*(\d+) kB", read_text(root / "proc/meminfo"))
    if total:
        return int(total[1]) * 1024
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if root == Path("/") else None
    except (ValueError, OSError, AttributeError):
        return None


def _last_level_cache(root: Path, cpus: set[int]) -> int | None:
    """Sum the distinct last-level caches of ``cpus``: a package has one for each group of cores."""
    by_level = _data_caches(root, cpus)
    return sum(by_level[max(by_level)]) or None if by_level else None
