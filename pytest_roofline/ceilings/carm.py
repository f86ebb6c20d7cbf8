"""The long measurement: carm-roofline's micro-benchmarks, compiled for this CPU and run as a process of their own.

They give what numpy cannot: vector units with and without fused multiply-add, scalar code, and each level of the caches. One
pass of the tool gives one figure a benchmark, so five passes or more make the rounds. It counts the loads and stores that its
instructions name, as everywhere here: a store counts once.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping

from roofline_engine.ceilings import carm_figure
from roofline_engine.units import whole

from .machine import Machine, caches, isa_flags
from .parallel import array_bytes, level_bytes
from .record import LEVELS, Ceiling
from .rounds import ROUNDS, Tick, best_of

#: Vector instruction sets as the tool calls them, the widest first, by the flag the kernel lists.
_VECTORS = (
    ("avx512f", "x86_avx512"),
    ("avx2", "x86_avx2"),
    ("avx", "x86_avx"),
    ("sse2", "x86_sse"),
    ("sve", "arm_sve"),
    ("asimd", "arm_neon"),
)
_SCALAR = {"x86_64": "x86", "aarch64": "arm"}
#: Seconds a benchmark is timed for in one pass: one of the tool's own runs, which it makes 0.1 s long.
_TEST_S = "0.1"
#: A pass that takes longer than this is stuck; one takes half a minute.
_PASS_LIMIT_S = 600.0


def missing(machine: Machine) -> str:
    """What this machine lacks for the method, in words; empty when it can be used."""
    if platform.system() != "Linux" or machine.arch not in _SCALAR:
        return f"carm-roofline needs Linux on {' or '.join(_SCALAR)}"
    if importlib.util.find_spec("carm_roofline") is None:
        return "carm-roofline is not installed (the extra: pytest-roofline[cpu])"
    if shutil.which("gcc") is None:
        return "carm-roofline needs gcc"
    if not _vector(isa_flags()):
        return "no vector instruction set that carm-roofline knows"
    return ""


def measure(machine: Machine, seconds: float, tick: Tick | None = None) -> tuple[Ceiling, ...]:
    """The ceilings of five passes, or as many as start within ``seconds``.

    Raises:
        ValueError: in one line, when the tool fails or writes what cannot be read.
    """
    vector = _vector(isa_flags())
    passes: list[list[Ceiling]] = []
    start = time.monotonic()
    while len(passes) < ROUNDS or time.monotonic() - start < seconds:
        with tempfile.TemporaryDirectory(prefix="roofline-") as folder:
            found: list[Ceiling] = []
            runs = arguments(machine, vector, caches())
            for at, run in enumerate(runs, 1):
                found += _pass(run, os.path.join(folder, str(at)), vector)
                if tick:
                    tick(min((len(passes) + at / len(runs)) / ROUNDS, (time.monotonic() - start) / seconds, 1.0))
        passes.append(found)
    return best_of(passes)


def _vector(flags: set[str]) -> str:
    return next((name for flag, name in _VECTORS if flag in flags), "")


def arguments(machine: Machine, vector: str, levels: Mapping[str, tuple[int, int]]) -> list[list[str]]:
    """The arguments of each run of the tool; a pass is one of each.

    The size for each level is ours: the tool's own is three quarters of a cache, and a virtual machine may get less of an L3.
    """
    counts = list(dict.fromkeys((1, machine.cores)))
    compute = ["-t", "arithmetic", "-i", _SCALAR[machine.arch], vector, "-d", "f32", "f64", "--instruction", "add", "fma"]
    runs = [[*compute, "--threads", *map(str, counts)]]
    dram, _ = array_bytes(machine, machine.cores)
    memory = ["-t", "memory", "-i", vector, "-d", "f64", "--ld-st-ratio", "1:0", "2:1"]
    alike: dict[tuple[tuple[str, int], ...], list[int]] = {}  # thread counts of the same sizes need one run
    for threads in counts:
        alike.setdefault(tuple({**level_bytes(levels, threads), "DRAM": dram}.items()), []).append(threads)
    for sizes, threads_of in alike.items():
        targets = ["-m", *(level for level, _ in sizes), "--mem-test-sizes", *(f"{size // 1024}KiB" for _, size in sizes)]
        runs.append([*memory, *targets, "--threads", *map(str, threads_of)])
    return runs


def left_out(machine: Machine, levels: Mapping[str, tuple[int, int]]) -> list[str]:
    """A line for each level that cannot be measured apart from the one above it."""
    return [
        f"carm: {level}, {threads} thread{'s' * (threads > 1)}: unknown, a thread's share is too near that of the level above"
        for threads in dict.fromkeys((1, machine.cores))
        for level in levels
        if level in LEVELS and level not in level_bytes(levels, threads)
    ]


def _pass(run: list[str], folder: str, vector: str) -> list[Ceiling]:
    name = run[1]
    command = [sys.executable, "-m", "carm_roofline.carm", "benchmark", *run, "--test-time", _TEST_S, "--verbose", "1"]
    command += ["--output-dir", folder, "--name", name, "--output-fmt", "jsonl"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_PASS_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise ValueError(f"carm-roofline: no end after {_PASS_LIMIT_S:.0f} s") from None
    path = os.path.join(folder, name, "benchmarks.jsonl")
    if done.returncode or not os.path.isfile(path):
        said = (done.stderr + done.stdout).strip().splitlines()
        raise ValueError(f"carm-roofline: exit {done.returncode}: {said[-1].strip() if said else 'no word why'}")
    with open(path, encoding="utf-8") as handle:
        return list(read(handle.read(), vector))


def read(text: str, vector: str) -> Iterator[Ceiling]:
    """The ceilings in the tool's JSON lines, those of ``vector`` and of scalar code, one round each.

    Raises:
        ValueError: naming line and key.
    """
    for at, line in enumerate(text.splitlines(), 1):
        where = f"carm-roofline: line {at}"
        try:
            row = json.loads(line) if line.strip() else {}
        except ValueError as error:
            raise ValueError(f"{where}: not JSON: {error}") from None
        if not isinstance(row, dict):
            raise ValueError(f"{where}: expected an object")
        figure, name = carm_figure(row, where), _name(row, vector)
        if figure is None or name is None:
            continue
        axis, _, value = figure
        compute = "." in axis
        yield Ceiling(
            name=name,
            kind="compute" if compute else "bandwidth",
            level=None if compute else "DRAM" if axis == "memory" else axis.upper(),
            dtype=axis.partition(".")[2] if compute else "fp64",
            threads=whole(row.get("num_threads"), f"{where}, num_threads"),
            value=value,
            median=value,
            rounds=1,
            method="carm",
        )


def _name(row: Mapping[str, object], vector: str) -> str | None:
    """The stacked ceilings: vector+FMA, vector alone, scalar alone; of memory, loads alone and two loads to a store."""
    wide = row.get("isa") == vector
    if row.get("type") == "memory":
        return {"1:0": "read", "2:1": "triad"}.get(str(row.get("load_store_ratio"))) if wide else None
    named = {("fma", True): "vector_fma", ("add", True): "vector", ("add", False): "scalar"}
    return named.get((str(row.get("operation")), wide))
