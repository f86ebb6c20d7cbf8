"""Profiles as profilers write them: each reader returns the one form that ``analyze`` continues from.

A reader is a function of a path that returns a ``form.Profile``; ``find_reader`` chooses it by the start of the file, and
``find_profiles`` chooses the files of a folder.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from ..files import ARTIFACT_NAME, READ_ERRORS, encoding_of, open_binary
from ..inputs import CONFIG_NAME, ENV_NAME, SHAPES_NAME, is_topn_csv
from ..units import printable

if TYPE_CHECKING:
    from .form import Profile

#: Bytes of a file that decide what it is.
_START = 1 << 16


class Reader(NamedTuple):
    """A format of profiles."""

    name: str  # for people
    module: str  # of this package; it loads when a file is of this format
    fits: Callable[[str, bytes], bool]  # of a file's name and its first bytes, unpacked
    function: str = "read"  # of the module: (path) -> Profile
    is_counted: bool = False  # its files have hardware counters, and may be several passes over the same launches

    def read(self, path: str, shapes_from: str | None = None) -> Profile:
        """Read a profile.

        shapes_from: another file with the shapes of kernels that were replayed from a graph, where the format has such files.

        Raises:
            ValueError: with one line that names the file, where it cannot be used.
        """
        options = {}
        if shapes_from:
            if self.module != "torch_trace":
                raise ValueError(f"--shapes-from: {printable(os.path.basename(path))} is no trace of the torch profiler")
            options["shapes_from"] = shapes_from
        profile: Profile = getattr(import_module("." + self.module, __package__), self.function)(path, **options)
        return profile


class Refusal(NamedTuple):
    """A format that holds no kernels or that only the vendor's tool reads."""

    name: str
    fits: Callable[[str, bytes], bool]
    advice: str  # what to do; {name} and {stem} are the file's name with and without its ending

    def read(self, path: str, shapes_from: str | None = None) -> Profile:
        """Raise ValueError with the advice."""
        name = printable(os.path.basename(path))
        raise ValueError(f"{name}: {self.name}: {self.advice.format(name=name, stem=os.path.splitext(name)[0])}")


def _is_chrome_trace(name: str, start: bytes) -> bool:
    """Return whether a file is a Chrome trace: its events come first, or keys that only torch's profiler writes."""
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n")
    if _is_rocprof_trace(name, start):
        return False
    if text[:1] == b"[":
        return b'"ph"' in text[:4096]
    return text[:1] == b"{" and (b'"traceEvents"' in text or (b'"schemaVersion"' in text and b'"deviceProperties"' in text))


def _is_rocprof_trace(name: str, start: bytes) -> bool:
    return b'"traceEvents"' in start and (b'"BeginNs"' in start or b"CPU HIP API" in start)


def _is_database(name: str, start: bytes) -> bool:
    return start.startswith(b"SQLite format 3\0")


def _has_columns(*patterns: str, without: str = "") -> Callable[[str, bytes], bool]:
    """Return a test of a text's first lines: one of them has each of the patterns, and not the last one."""
    wanted = [re.compile(pattern) for pattern in patterns]
    refused = re.compile(without) if without else None

    def fits(name: str, start: bytes) -> bool:
        if start[:1] in (b"{", b"[") or (b"\0" in start[:4] and encoding_of(start) != "utf-16"):
            return False
        lines = start.decode(encoding_of(start), "replace").splitlines()[:_HEADERS]
        for line in lines:
            if all(pattern.search(line) for pattern in wanted):
                return refused is None or refused.search(line) is None
        return False

    return fits


#: The header is one of this many lines; tools print remarks before it.
_HEADERS = 50
_COUNTERS = r"(?i)\b(FETCH_SIZE|WRITE_SIZE|(SQ|SQC|TCC|TCP|TA|TD|GRBM|GL2C|CPC|SPI)_\w+|MemUnit\w+|MfmaUtil|\w*Occupancy\w*)\b"
_DISPATCHES = r'\b(Kernel_Name|KernelName)\b"?'

_has_calls = _has_columns(r"\bName\b", r"# of Calls", r"\bCPU total\b")
_has_attributes = _has_columns(r"\bkey\b", r"\bcount\b", r"\bself_\w+_time_total\b")

#: The formats, in the order in which they are tried. In a folder the first one that occurs is read, so the formats that say
#: most come first: operations with shapes, then each launch, then sums, then launches that were slowed by counting.
READERS: tuple[Reader | Refusal, ...] = (
    Reader("torch profiler trace", "torch_trace", _is_chrome_trace),
    Reader("TraceLens report", "op_tables", _has_columns(r"\bInput Dims\b", r"\boperation_count\b"), "read_tracelens"),
    Reader("profiler database", "databases", _is_database),
    Reader("rocprofv3 results JSON", "dispatches", lambda name, start: b'"rocprofiler-sdk-tool"' in start, "read_results_json"),
    Reader(
        "rocprof kernel trace",
        "dispatches",
        _has_columns(
            _DISPATCHES, r"\b(Start_Timestamp|BeginNs)\b", r"\b(End_Timestamp|EndNs)\b", without=_COUNTERS + "|Counter_Name"
        ),
        "read_csv",
    ),
    Reader("rocprof JSON trace", "dispatches", _is_rocprof_trace, "read_rocprof_json"),
    Reader("nsys cuda_gpu_trace", "dispatches", _has_columns(r"\bStart ?\(", r"\bDuration ?\(", r"\bGrdX\b"), "read_csv"),
    Reader(
        "torch key_averages table",
        "op_tables",
        lambda name, start: _has_calls(name, start) or _has_attributes(name, start),
        "read_key_averages",
    ),
    Reader("ncu CSV", "dispatches", _has_columns(r'"Kernel Name"|\bKernel Name\b,', r"\bID\b"), "read_counted", True),
    Reader("counters of rocprof", "dispatches", _has_columns(_DISPATCHES, _COUNTERS + "|Counter_Name"), "read_counted", True),
    Refusal(
        "a report of Nsight Systems",
        lambda name, start: name.endswith((".nsys-rep", ".qdrep")),
        "export it: nsys export --type sqlite -o {stem}.sqlite {name}",
    ),
    Refusal(
        "a report of Nsight Compute",
        lambda name, start: name.endswith(".ncu-rep"),
        "export it: ncu --import {name} --csv --page raw > {stem}.csv",
    ),
    Refusal(
        "a Perfetto trace",
        lambda name, start: name.endswith((".pftrace", ".perfetto-trace")),
        "profile with rocprofv3 --output-format csv or rocpd",
    ),
    Refusal("a list of agents, not kernels", _has_columns(r"\bGfx_Target_Version\b"), "give the kernel trace beside it"),
    Refusal(
        "a description of the system, not kernels",
        _has_columns(r"\bworkload_name\b", r"\bgpu_arch\b"),
        "give pmc_perf.csv beside it",
    ),
    Refusal("measured ceilings, not kernels", _has_columns(r"\bHBMBw\b"), "give it with --peaks"),
    Refusal(
        "a list of counters that exist, not kernels",
        lambda name, start: re.search(rb"(?m)^\s*Counter_Name\s*:", start) is not None,
        "roofline counters show reads it",
    ),
    Refusal(
        "a table of TraceLens without shapes",
        _has_columns(r"\bParent cpu_op\b|^type,time ms,percent|^bin_start,|TFLOPS/s_mean|total_direct_kernel_time"),
        "give unified_perf_summary.csv",
    ),
    Refusal("a list of kernels without times", _has_columns(_DISPATCHES), "give the kernel trace"),
    Refusal("nothing in it", lambda name, start: not start.strip(), "expected a profile"),
)


def find_reader(path: str) -> Reader | Refusal | None:
    """Return what reads this file, or refuses it; None where it is of no known format, or cannot be opened."""
    if not os.path.isfile(path):
        return None
    try:
        with open_binary(path, sys.maxsize) as stream:
            start = stream.read(_START)
    except READ_ERRORS:
        return None
    name = os.path.basename(path).lower()
    return next((reader for reader in READERS if reader.fits(name, start)), None)


# Which profiles of a folder are read: those of the format that says most, all of them where they are ranks of one run.

#: Endings of profiles; other files are not opened.
_ENDINGS = (".json", ".json.gz", ".csv", ".csv.gz", ".db", ".sqlite", ".sqlite3", ".txt")
#: Endings of reports that the vendor's tool alone reads.
_REPORTS = (".nsys-rep", ".qdrep", ".ncu-rep", ".pftrace", ".perfetto-trace")
_OURS = (ARTIFACT_NAME, ENV_NAME, CONFIG_NAME, SHAPES_NAME)
#: Profilers write into a folder by host, and in it into one by process.
_LEVELS = 2
#: Files that are opened; a folder with more is no run.
_MOST_FILES = 2000
#: Files that a remark names.
_NAMED = 4
_LISTS = "statistics by kernel"


class FoundProfiles(NamedTuple):
    """What to read of a folder."""

    paths: tuple[str, ...]  # of one format: ranks
    counters: tuple[str, ...] = ()  # further files of counters of the same run
    remarks: tuple[str, ...] = ()  # what is read, and what is not


def find_profiles(folder: str) -> FoundProfiles | None:
    """Return the profiles to read in a folder, or in the folders in it where it has none; None without any.

    Profiles of other formats are of the same run, so they are named and left out: nothing is added up twice.

    Raises:
        ValueError: where the folder has only a report that the vendor's tool exports, with the command.
    """
    reports: list[str] = []
    for paths in _levels(folder):
        groups = _group(paths)
        if groups:
            return _choose(groups)
        reports += [path for path in paths if path.lower().endswith(_REPORTS)]
    for path in reports:
        reader = find_reader(path)
        if isinstance(reader, Refusal):
            reader.read(path)
    return None


def _levels(folder: str) -> Iterator[list[str]]:
    """Yield the files of the folder, then those one level lower, then those two levels lower."""
    folders = [folder]
    opened = 0
    for _ in range(_LEVELS + 1):
        files, lower = [], []
        for place in folders:
            try:
                names = sorted(os.listdir(place))
            except OSError:
                continue
            for name in names:
                path = os.path.join(place, name)
                if os.path.isdir(path) and not os.path.islink(path):
                    lower.append(path)
                elif name.lower().endswith(_ENDINGS + _REPORTS) and name not in _OURS and opened < _MOST_FILES:
                    opened += 1
                    files.append(path)
        yield files
        folders = lower


def _group(paths: Sequence[str]) -> dict[str, list[str]]:
    """Return the files by format, the format that says most first."""
    by_format: dict[str, list[str]] = {}
    seen: set[str] = set()
    for path in paths:
        reader = find_reader(path)
        name = reader.name if isinstance(reader, Reader) else _LISTS if reader is None and is_topn_csv(path) else None
        plain = re.sub(r"\.gz$", "", path)
        if name is not None and plain not in seen:  # a file and its gzip are one
            seen.add(plain)
            by_format.setdefault(name, []).append(path)
    order = [reader.name for reader in READERS if isinstance(reader, Reader)]
    order.insert(order.index("torch key_averages table"), _LISTS)
    return {name: by_format[name] for name in order if name in by_format}


def _choose(groups: dict[str, list[str]]) -> FoundProfiles:
    (name, paths), *others = groups.items()
    counters: list[str] = []
    if _is_counted(name) and len(paths) > 1:  # passes over the same launches
        paths = sorted(paths, key=lambda path: os.path.basename(path) != "pmc_perf.csv")
        paths, counters = paths[:1], paths[1:]
    counters += [path for other, files in others if _is_counted(other) for path in files]
    remarks = [f"read: {_names(paths)} ({name}{f', {len(paths)} files as ranks' if len(paths) > 1 else ''})"]
    left = [f"{_names(files)} ({other})" for other, files in others if not _is_counted(other)]
    if left:
        remarks.append(f"not read, since they may be of the same run: {'; '.join(left)}; name one to read it")
    return FoundProfiles(tuple(paths), tuple(counters), tuple(remarks))


def _is_counted(name: str) -> bool:
    return any(isinstance(reader, Reader) and reader.name == name and reader.is_counted for reader in READERS)


def _names(paths: Sequence[str]) -> str:
    names = [printable(os.path.basename(path)) for path in paths]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
