"""The long measurement: run carm-roofline's micro-benchmarks, compiled for this CPU, in a process.

They measure what numpy cannot: vector units with and without fused multiply-add, scalar code, and each level of the caches. One
pass of the tool gives one figure a benchmark, so that five passes or more are the rounds. The tool counts the loads and stores
of its instructions, as all methods here do: a store counts once. carm-roofline is optional (pytest-roofline[cpu]).
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from roofline_engine.peaks_measured import carm_figure
from roofline_engine.units import whole

from .kernels import ROUNDS, Tick, array_bytes, level_bytes
from .machine import Machine, caches, isa_flags
from .store import LEVELS, REPRODUCES, Ceiling

#: The tool's names of vector instruction sets, the widest first, by the CPU flag that the system lists.
_VECTORS = (
    ("avx512f", "x86_avx512"),
    ("avx2", "x86_avx2"),
    ("avx", "x86_avx"),
    ("sse2", "x86_sse"),
    ("sve", "arm_sve"),
    ("asimd", "arm_neon"),
)
_SCALAR = {"x86_64": "x86", "aarch64": "arm"}
#: Seconds for which one pass times a benchmark: the length of one of the tool's runs.
_TEST_S = "0.1"
#: A pass that takes longer than this hangs; half a minute is normal.
_PASS_LIMIT_S = 600.0


def missing(machine: Machine) -> str:
    """Name what this machine lacks for the method; empty where nothing is missing."""
    if platform.system() != "Linux" or machine.arch not in _SCALAR:
        return f"carm-roofline needs Linux on {' or '.join(_SCALAR)}"
    if importlib.util.find_spec("carm_roofline") is None:
        return "carm-roofline is not installed (pip install pytest-roofline[cpu])"
    if shutil.which("gcc") is None:
        return "carm-roofline needs gcc"
    if not _vector(isa_flags()):
        return "the CPU has no vector instruction set that carm-roofline knows"
    return ""


def measure(machine: Machine, seconds: float, tick: Tick | None = None) -> tuple[Ceiling, ...]:
    """Return the ceilings of five passes, or of as many as start within ``seconds``.

    Raises:
        ValueError: in one line, when the tool fails or its output is unreadable.
    """
    vector = _vector(isa_flags())
    passes: list[list[Ceiling]] = []
    start = time.monotonic()
    while len(passes) < ROUNDS or time.monotonic() - start < seconds:
        with tempfile.TemporaryDirectory(prefix="roofline-") as folder:
            items: list[Ceiling] = []
            runs = arguments(machine, vector, caches())
            for at, run in enumerate(runs, 1):
                items += _pass(run, os.path.join(folder, str(at)), vector)
                if tick:
                    tick(min((len(passes) + at / len(runs)) / ROUNDS, (time.monotonic() - start) / seconds, 1.0))
        passes.append(items)
    return tuple(_with_set(item) for item in best_of(passes))


def _with_set(item: Ceiling) -> Ceiling:
    """Return the ceiling of a cache with the size of the data that it was measured with."""
    each = level_bytes(caches(), item.threads).get(item.level or "")
    return item if each is None else replace(item, working_set=each * item.threads)


def best_of(runs: Iterable[Sequence[Ceiling]]) -> tuple[Ceiling, ...]:
    """Return one ceiling of each key from several runs of one round each."""
    by_key: dict[object, list[Ceiling]] = {}
    for run in runs:
        for item in run:
            by_key.setdefault(item.key, []).append(item)
    joined = []
    for items in by_key.values():
        values = [item.value for item in items]
        near = sum(value >= (1 - REPRODUCES) * max(values) for value in values)
        median = statistics.median(values)
        joined.append(replace(items[0], value=max(values), median=median, rounds=len(values), reproduced=near))
    return tuple(joined)


def _vector(flags: set[str]) -> str:
    return next((name for flag, name in _VECTORS if flag in flags), "")


def arguments(machine: Machine, vector: str, levels: Mapping[str, tuple[int, int]]) -> list[list[str]]:
    """Return the arguments of each run of the tool; a pass is all of them.

    They name the size for each level. The tool's default is three quarters of a cache; a virtual machine may own less of an L3.
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
    """Return a line for each level that is too near the one above for a measurement."""
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
        process = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_PASS_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise ValueError(f"carm-roofline: a pass did not end within {_PASS_LIMIT_S:.0f} s") from None
    path = os.path.join(folder, name, "benchmarks.jsonl")
    if process.returncode or not os.path.isfile(path):
        output = (process.stderr + process.stdout).strip().splitlines()
        raise ValueError(f"carm-roofline: exit status {process.returncode}: {output[-1].strip() if output else 'no output'}")
    with open(path, encoding="utf-8") as handle:
        return list(read(handle.read(), vector))


def read(text: str, vector: str) -> Iterator[Ceiling]:
    """Read the ceilings of ``vector`` and of scalar code from the tool's JSON lines, one round each.

    Raises:
        ValueError: naming the line and the key.
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
    """Name the ceiling: vector with FMA, vector or scalar; for memory, loads only or two loads a store."""
    wide = row.get("isa") == vector
    if row.get("type") == "memory":
        return {"1:0": "read", "2:1": "triad"}.get(str(row.get("load_store_ratio"))) if wide else None
    names = {("fma", True): "vector_fma", ("add", True): "vector", ("add", False): "scalar"}
    return names.get((str(row.get("operation")), wide))
