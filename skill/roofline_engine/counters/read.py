"""Read a file of counters from any tool, prove the counters by a copy of known traffic, and apply them (stage C).

The counts of an entry replace its model where they hold. Where they do not hold, an L4 line gives the reason.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..fields import ByteModel, Degradation, Entry, Note, note
from ..files import is_database, parse_json, read_text
from ..inputs import Row, read_surroundings
from ..kernels import UNMODELED, stem
from ..ops import op_class
from ..peaks import Peaks, architecture
from ..roofline import LARGEST_CACHE, assess
from ..units import Dtype, parse_dtype, printable, quantity
from ..work import TARGET_EFF, Work
from . import amd, nvidia
from .base import HBM_FIGURES, KNOWN_COPY_BAND, CounterFile, KernelCounts

#: What the skill collects, by what for. FETCH_SIZE needs a new ROCm on gfx950, where the 128 B request counter does it.
WANTED = {
    "bytes": ("FETCH_SIZE", "WRITE_SIZE"),
    "bytes on gfx950": ("TCC_EA0_RDREQ", "TCC_EA0_RDREQ_32B", "TCC_EA0_RDREQ_128B", "TCC_EA0_WRREQ", "TCC_EA0_WRREQ_64B"),
    "FLOPs": tuple(f"SQ_INSTS_VALU_MFMA_MOPS_{dtype}" for dtype in ("F8", "F16", "BF16", "F32", "F64", "I8")),
    "corroboration": ("MemUnitStalled", "MfmaUtil", "OccupancyPercent"),
}
_NOT_COUNTERS = (
    ("TotalDurationNs", "a Top-N or statistics list: give it to analyze"),
    ("Total Time (ns)", "a Top-N list: give it to analyze"),
    ("HBMBw", "measured ceilings, not counters"),
    ("workload_name", "a description of the system, not counters"),
    ("Gfx_Target_Version", "a list of agents, not counters"),
)


class Available(NamedTuple):
    """``rocprofv3 --list-avail``: the counters of each GPU by architecture, and whether the list was cut."""

    counters: dict[str, set[str]]
    cut: bool


def read(path: str, gfx: str | None = None, rocm: str | None = None, skip: int = 0) -> CounterFile:
    """Read the kernels of a file of counters.

    gfx, rocm: the architecture and ROCm's version where the caller knows them; else they are read from the files next to it
    (sysinfo.csv of rocprof-compute, agent_info.csv of rocprofv3). skip: warm-up dispatches of each kernel to leave out.

    Raises ValueError with one line that names the file, the place, and why it cannot be read.
    """
    label = printable(os.path.basename(path))
    beside = read_surroundings(path)
    arch = gfx or (beside.archs[0] if len(beside.archs) == 1 else None)
    version = rocm or beside.rocm_version
    if is_database(path):
        file = amd.from_database(path, label, amd.Tool(arch, amd.version(version)), skip)
    else:
        file = parse(read_text(path), label, arch, version, skip)
    archs = file.archs or beside.archs
    if len(archs) > 1:
        raise ValueError(f"{label}: counted on {' and '.join(archs)}, and the dispatches do not say on which")
    if gfx and archs and architecture(gfx) != architecture(archs[0]):
        raise ValueError(f"{label}: counted on {printable(archs[0])}, not on {printable(gfx)}")
    return file


def parse(text: str, label: str, gfx: str | None = None, rocm: str | None = None, skip: int = 0) -> CounterFile:
    """Read the kernels in the text of such a file."""
    tool = amd.Tool(gfx, amd.version(rocm))
    if text.lstrip()[:1] in ("{", "["):
        return amd.from_json(parse_json(text, label), label, tool, skip)
    if not text.strip():
        raise ValueError(f"{label}: empty")
    head = text[:4000]
    if re.search(r"\bKernel Name\b", head):
        return nvidia.from_table(text, label, skip)
    if not re.search(r"Kernel_?Name", head):
        for mark, what in _NOT_COUNTERS:
            if mark in head:
                raise ValueError(f"{label}: {what}")
    return amd.from_table(text, label, tool, skip)


def list_avail(text: str, label: str) -> Available:
    """Read what ``rocprofv3 --list-avail`` printed. Raises ValueError when it lists no counter."""
    counters: dict[str, set[str]] = {}
    arch = ""
    for line in text.splitlines():
        key, colon, value = (part.strip() for part in line.partition(":"))
        if not colon:
            continue
        if key == "Name" and value.startswith("gfx"):
            arch = value
        elif key in ("Counter_Name", "Name"):
            counters.setdefault(arch, set()).add(value)
    if not counters:
        raise ValueError(f"{label}: Counter_Name is missing, expected the output of rocprofv3 --list-avail")
    return Available(counters, any(line.strip() == "..." for line in text.splitlines()))


def is_list_avail(text: str) -> bool:
    return re.search(r"(?m)^\s*Counter_Name\s*:", text) is not None


def show_available(available: Available) -> list[str]:
    """For each GPU, which of the wanted counters exist and what their absence means."""
    lines = []
    for arch, names in available.counters.items():
        cut = ", the list is cut" if available.cut else ""
        lines.append(f"{printable(arch) or 'unknown gfx'}: {len(names)} counters{cut}")
        for purpose, wanted in WANTED.items():
            if ("gfx950" in purpose) != (arch == "gfx950"):
                continue
            have = [name for name in wanted if name in names or f"{name}_sum" in names]
            missing = [name for name in wanted if name not in have]
            lines.append(f"  {purpose}: {', '.join(have) or 'none'}" + (f"; absent: {', '.join(missing)}" if missing else ""))
            if missing and purpose.startswith("bytes"):
                lines.append(f"  L4: {missing[0]} is absent, so bytes cannot be counted here")
    return lines


def check_copy(counters: CounterFile, nbytes: float, kernel: str | None, cache: float = LARGEST_CACHE) -> tuple[bool, str]:
    """Check that a copy of ``nbytes`` in total is counted within 2 %; return whether it is, and the line to print.

    Reads and writes are judged apart where the file has both: what the copy wrote may still lie in a cache of ``cache`` bytes.

    Raises ValueError when it is unclear which kernel is the copy.
    """
    copy = _pick_kernel(counters, kernel)
    counted = copy.bytes.get("hbm")
    name = printable(copy.name)[:60]
    if counted is None:
        why = "; ".join((*map(str, copy.problems), *counters.remarks)) or "it has no byte counters"
        return False, f"{counters.label}: {name}: L4 on this stack: no bytes to compare: {why}"
    off = counted / nbytes - 1
    line = f"{counters.label}: {name}: {counted:.0f} bytes counted, {nbytes:.0f} moved, {off:+.2%}"
    reads, writes = copy.bytes.get("hbm_read"), copy.bytes.get("hbm_write")
    half = nbytes / 2
    if reads is not None and writes is not None and abs(reads / half - 1) <= KNOWN_COPY_BAND:
        missing = half - writes
        if KNOWN_COPY_BAND * half < missing <= cache:
            held = f"{writes:.0f} of {half:.0f} bytes written are counted, the rest may lie in the {quantity(cache, 'B')} cache"
            return (
                True,
                f"{counters.label}: {name}: reads hold ({reads / half - 1:+.2%}); {held}: analyze takes the model's writes",
            )
    if copy.spread > 2 * KNOWN_COPY_BAND:
        return False, f"{line}, but the dispatches differ by {copy.spread:.0%} of their mean: L4 on this stack"
    if abs(off) <= KNOWN_COPY_BAND:
        return True, f"{line}: within {KNOWN_COPY_BAND:.0%}, the counters hold"
    return False, f"{line}: over {KNOWN_COPY_BAND:.0%}, these counters are L4 on this stack"


def _pick_kernel(counters: CounterFile, kernel: str | None) -> KernelCounts:
    if kernel is not None:
        named = [item for item in counters.kernels if kernel in (item.name, stem(item.name))]
        if len(named) != 1:
            raise ValueError(f"{counters.label}: {len(named)} kernels are named {printable(kernel)}, expected one")
        return named[0]
    if len(counters.kernels) != 1:
        names = ", ".join(printable(item.name)[:40] for item in counters.kernels[:4])
        raise ValueError(f"{counters.label}: {len(counters.kernels)} kernels ({names}). Name the copy with --kernel")
    return counters.kernels[0]


#: Counted bytes or FLOPs under this part of what the op must move or compute were not all counted.
COMPULSORY = 0.9
#: Over this part of the model's, the kernel does more than the op needs: padding, re-reads (rocprofiler-compute#66).
_MORE = 1.1
#: Launches whose counted time is this far from the profile's were not the same work.
_SAME_TIME = 1.5
#: Counting serializes launches and may lock clocks; a difference in time over this is worth a note.
_NOTED_TIME = 0.1


class _Match(NamedTuple):
    """The counts of an entry's kernel in one file."""

    label: str
    counts: KernelCounts


class CounterSet:
    """The counter files of one run. ``assess`` judges an entry with them; ``degraded`` has a line for each refusal."""

    def __init__(self, paths: Sequence[str], rows: Sequence[Row], gfx: str | None, rocm: str | None) -> None:
        self.gfx = gfx
        self.degraded: list[Degradation] = []
        self._files: list[CounterFile] = []
        self._stems = Counter(stem(row.name) for row in rows)
        for path in paths:
            label = printable(os.path.basename(path))
            try:
                file = read(path, gfx, rocm)
            except Exception as error:  # a bug of the engine must not cost the analysis
                self._refuse(label, str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}")
                continue
            if gfx is not None and file.is_nvidia == gfx.startswith("gfx"):
                self._refuse(label, f"{file.source} is not of this device ({gfx})")
                continue
            self._files.append(file)
            self.degraded += [Degradation("L4", _without_label(line, label), label) for line in file.problems]
            if not any(self._find(file, row.name) for row in rows):
                self._refuse(label, "no kernel of the Top-N is in it by name")

    def _refuse(self, label: str, why: str, kernel: str = "") -> None:
        where = f"{printable(kernel)[:60]}: " if kernel else ""
        self.degraded.append(Degradation("L4", f"{where}{_without_label(why, label)}; the modeled result is kept", label))

    def _find(self, file: CounterFile, name: str) -> KernelCounts | None:
        exact = [kernel for kernel in file.kernels if kernel.name == name]
        if exact:
            return exact[0]
        base = stem(name)
        near = [kernel for kernel in file.kernels if stem(kernel.name) == base and _is_cut_name(kernel.name, name)]
        return near[0] if len(near) == 1 and self._stems[base] == 1 else None

    def assess(
        self, entry: Entry, work: Work, peaks: Peaks, *, conflict: bool, swing: float, shapes: int
    ) -> tuple[Entry, list[Note]]:
        """Assess the entry by its counters where they hold, else by its model; the notes say what was counted.

        shapes: how many captured shapes run under the name.
        """
        by_model = assess(entry, work, peaks, conflict=conflict, swing=swing)
        kernels = ((file.label, self._find(file, entry.name)) for file in self._files)
        matches = [_Match(label, counts) for label, counts in kernels if counts is not None]
        if not matches:
            return by_model, []
        cache = peaks.l2_bytes or LARGEST_CACHE
        for_bytes = self._first(entry, matches, lambda match: self._doubt_bytes(entry, work, match, shapes, cache))
        for_flops = self._first(entry, matches, lambda match: self._doubt_flops(entry, work, match, shapes))
        source = for_bytes or for_flops
        if source is None:
            return by_model, []
        traffic = _count_traffic(for_bytes.counts, work, entry.launches_per_unit) if for_bytes else None
        nbytes = traffic.total if traffic else None
        flops = sum(for_flops.counts.flops.values()) * entry.launches_per_unit if for_flops else None
        counted = _counted_work(work, nbytes, flops)
        try:
            conflict = conflict and for_bytes is None
            by_counters = assess(entry._replace(stage="C"), counted, peaks, conflict=conflict, swing=swing)
            why = _find_impossible(by_counters, for_bytes, for_flops)
        except ValueError as error:  # counts that no arithmetic takes
            by_counters, why = by_model, str(error)
        if why:
            self._refuse(source.label, why, entry.name)
            return by_model, []
        basis = "counters" if traffic and for_flops and not traffic.modeled else "mixed"
        notes = [_figure_note("bytes", "B", "re-reads", for_bytes, nbytes, work.bytes)]
        notes += map(note, traffic.modeled if traffic else ())
        notes.append(_figure_note("FLOPs", "FLOP", "padding or recomputation is in it", for_flops, flops, work.flops))
        l1, l2 = (_level_traffic(level, for_bytes, entry.launches_per_unit) for level in ("l1", "l2"))
        by_counters = by_counters._replace(measurement_basis=basis, l1_traffic=l1, l2_traffic=l2)
        return by_counters, [*notes, *_other_notes(entry, matches)]

    def assess_unmodeled(self, entry: Entry, peaks: Peaks, *, swing: float) -> tuple[Entry, list[Note]] | None:
        """Assess an entry without a work model by its counts alone; None where no file has usable ones.

        The ratio is that of the traffic that the kernel moved, which the op may not need. Without the FLOPs of all units only
        a saturated memory roof is a verdict: the kernel may be limited by computing.
        """
        kernels = ((file.label, self._find(file, entry.name)) for file in self._files)
        matches = [_Match(label, counts) for label, counts in kernels if counts is not None]
        for match in matches:
            why = _doubt_counts(entry, match.counts, self.gfx)
            if why:
                self.degraded.append(Degradation("L4", f"{printable(entry.name)[:60]}: {why}", match.label))
                continue
            if match.counts.t_s and match.counts.spread > _NOTED_TIME:  # the mean bytes are those of the mean time
                entry = entry._replace(t_ms=match.counts.t_s * 1e3, t_unit_ms=match.counts.t_s * 1e3)
            work, is_whole = _count_work(entry.op, match.counts)
            assessed = _assess_counted(entry._replace(stage="C"), work, peaks, swing)
            basis = f"no work model: bytes and FLOPs are counted, mean of {match.counts.dispatches} dispatches ({match.label})"
            notes = [note(basis), note("they are what the kernel moved and computed, which the op may not need", "remark")]
            if match.counts.t_s and entry.t_ms and abs(match.counts.t_s * 1e3 / entry.t_ms - 1) <= _NOTED_TIME:
                notes.append(
                    note("counting may lock the clocks, so a launch may be faster than while it was counted", "remark")
                )
            if not is_whole and assessed.headroom_class != "saturated" and assessed.unknown_reason != "infeasible":
                rate = work.bytes / (entry.t_ms / 1e3) if entry.t_ms else 0.0
                share = f", {assessed.hbm_util:.1%} of memory bandwidth" if assessed.hbm_util is not None else ""
                notes.append(note(f"{quantity(work.bytes, 'B')} counted are {quantity(rate, 'B/s')}{share}"))
                missing = "FLOPs were not all counted, so the kernel may be limited by computing: collect those of "
                units = [unit for unit in ("matrix", "vector") if unit not in match.counts.units]
                notes.append(note(f"{missing}the {' and '.join(units)} units", "sharpen"))
                assessed = assess(entry._replace(stage="C"), work._replace(coverage="lower_bound"), peaks, swing=swing)
            dtype = None if work.dtype is _NO_DTYPE else work.dtype.name
            assessed = assessed._replace(measurement_basis="counters", dtype=dtype, weight_dtype=None)
            if not work.flops and not {"matrix", "vector"}.issubset(match.counts.units):
                assessed = assessed._replace(flops_est=None, achieved_flops=None, compute_util=None, arithmetic_intensity=None)
            return assessed, [*notes, *_other_notes(entry, [match])]
        return None

    def _first(self, entry: Entry, matches: Sequence[_Match], doubt: Callable[[_Match], str | None]) -> _Match | None:
        """The first file without a doubt (None: it has nothing to say). Doubts are reported only where no file holds."""
        refused = []
        for match in matches:
            why = doubt(match)
            if why == "":
                return match
            if why:
                refused.append((match.label, why))
        for label, why in refused:
            self._refuse(label, why, entry.name)
        return None

    def _doubt_bytes(self, entry: Entry, work: Work, match: _Match, shapes: int, cache: float) -> str | None:
        counts = match.counts
        why = _doubt_kernel(entry, counts, shapes)
        if why:
            return why
        counted = counts.bytes.get("hbm")
        if counted is None:
            problems = [str(problem) for problem in counts.problems if problem.figure in HBM_FIGURES]
            if counts.flops and not problems:
                return None  # a pass for FLOPs alone
            return "; ".join(problems) or "it has no byte counters"
        if self.gfx is None:
            return "the gfx is unknown, and what the byte counters count depends on it"
        estimates = [model.bytes for model in work.candidates if model.in_range]
        least, most, units = min(estimates), max(estimates), entry.launches_per_unit
        total, what, must = counted * units, "counted", "move"
        if work.written is not None and "hbm_read" in counts.bytes and "hbm_write" in counts.bytes:
            # What a kernel wrote may still lie in the cache when the counter is read, so its writes prove nothing.
            least, total, what, must = least - work.written, counts.bytes["hbm_read"] * units, "read", "read"
        if total < max(COMPULSORY * least, (1 - KNOWN_COPY_BAND) * least - cache * units):
            part = f"under {COMPULSORY} of" if total < COMPULSORY * least else f"{quantity(cache, 'B')} of cache less than"
            return (
                f"{quantity(total, 'B')} {what} are {part} the {quantity(least, 'B')} the op must {must}: "
                "a warm cache, or counters that miss part"
            )
        total = counted * units
        if total > _MORE * most and not counts.t_s:
            return _say_untimed(quantity(total, "B"), quantity(most, "B"))
        return ""

    def _doubt_flops(self, entry: Entry, work: Work, match: _Match, shapes: int) -> str | None:
        flops = match.counts.flops
        if not flops or _doubt_kernel(entry, match.counts, shapes):
            return None  # reported with the bytes
        total = sum(flops.values()) * entry.launches_per_unit
        matrix = {key: value for key, value in flops.items() if not key.startswith(("vector_", "sparse_"))}
        sparse = [key for key in flops if key.startswith("sparse_")]
        if sparse:
            return f"FLOPs with structured sparsity ({', '.join(sparse)}): the peaks here are dense"
        if work.engine == "matrix" and not matrix:
            return f"only {', '.join(flops)} FLOPs were counted, the model has them on the matrix units"
        if work.engine == "matrix" and not _is_same_dtype(matrix, work.dtype.peak):
            return f"the matrix units counted {max(matrix, key=lambda key: matrix[key])}, the model says {work.dtype.name}"
        if total > _MORE * work.flops and not match.counts.t_s:
            return _say_untimed(quantity(total, "FLOP"), quantity(work.flops, "FLOP"))
        if total < COMPULSORY * work.flops:
            return f"{quantity(total, 'FLOP')} counted are under {COMPULSORY} of the model's {quantity(work.flops, 'FLOP')}"
        return ""


#: The dtype of work whose FLOPs were not counted, or not by dtype: no compute peak applies.
_NO_DTYPE = Dtype("unknown", 0.0, 0.0, None)


def _doubt_counts(entry: Entry, counts: KernelCounts, gfx: str | None) -> str:
    """Return why these counts alone are no work; empty where they are."""
    if entry.op in ("collective", "memcpy"):
        return UNMODELED[entry.op]
    why = _doubt_kernel(entry, counts, 1)
    if why:
        return why
    if counts.bytes.get("hbm") is None:
        problems = [str(problem) for problem in counts.problems if problem.figure in HBM_FIGURES]
        parts = [f"{name[4:]} alone {quantity(value, 'B')}" for name, value in counts.bytes.items() if name[:4] == "hbm_"]
        return "; ".join(problems) or ", ".join((*parts, "it has not the bytes of reads and writes"))
    if gfx is None:
        return "the device is unknown, and what the byte counters count depends on it: name it with --device"
    sparse = [key for key in counts.flops if key.startswith("sparse_")]
    return f"FLOPs with structured sparsity ({', '.join(sparse)}): the peaks here are dense" if sparse else ""


def _count_work(op: str, counts: KernelCounts) -> tuple[Work, bool]:
    """Return the counted work of one launch, and whether it has everything that could limit the kernel.

    The FLOPs are those of the units that did more: the others run beside them.
    """
    flops: dict[str, dict[str, float]] = {"matrix": {}, "vector": {}}
    for key, value in counts.flops.items():
        engine = "vector" if key.startswith("vector_") else "matrix"
        flops[engine][key.partition("vector_")[2] or key] = value
    engine = "matrix" if flops["matrix"] else "vector"
    parts, dtype = flops[engine], _NO_DTYPE
    if parts:
        try:
            dtype = parse_dtype(max(parts, key=lambda name: parts[name]))
        except ValueError:
            dtype = _NO_DTYPE
    is_whole = (
        op_class(op) == "elementwise" or {"matrix", "vector"}.issubset(counts.units) or (engine in counts.units and bool(parts))
    )
    model = ByteModel("counters", counts.bytes["hbm"], sum(parts.values()))
    return Work(op, op_class(op), (model,), engine, dtype, dtype, ()), is_whole


def _assess_counted(entry: Entry, work: Work, peaks: Peaks, swing: float) -> Entry:
    """Assess counted work. Where the op has no target, that of streaming or of a GEMM shows whether it is saturated."""
    assessed = assess(entry, work, peaks, swing=swing)
    if assessed.unknown_reason != "no_target":
        return assessed
    target = TARGET_EFF["elementwise" if assessed.roof_axis == "memory" else "gemm"]
    trial = assess(entry, work, peaks, swing=swing, target_eff=target)
    return trial._replace(target_basis="prior") if trial.headroom_class == "saturated" else assessed


def _doubt_kernel(entry: Entry, counts: KernelCounts, shapes: int) -> str:
    """Why no figure of these counters is evidence on the entry; empty when they are."""
    if shapes > 1:
        return f"{shapes} captured shapes under one name, which counters do not separate"
    if counts.grids > 1:
        return f"dispatches of {counts.grids} grid sizes under one name: their mean is of no one shape"
    if counts.t_s and entry.t_ms:
        ratio = counts.t_s * 1e3 / entry.t_ms
        if not 1 / _SAME_TIME <= ratio <= _SAME_TIME:
            return f"the counted launches take {ratio:.2f} of the profile's time: not the same work"
    return ""


def _find_impossible(entry: Entry, for_bytes: _Match | None, for_flops: _Match | None) -> str:
    for util, roof, match in ((entry.hbm_util, "bandwidth", for_bytes), (entry.compute_util, "compute", for_flops)):
        if match is not None and util is not None and util > 1:
            return f"{util:.2f} of the {roof} roof by its counters: passes mixed, or the time is of other work"
    if (for_bytes if entry.roof_axis == "memory" else for_flops) is None:
        return f"the verdict is on the {entry.roof_axis} roof, which has no counts but only the model"
    return ""


def _without_label(line: str, label: str) -> str:
    return line[len(label) + 2 :] if line.startswith(f"{label}: ") else line


def _say_untimed(counted: str, model: str) -> str:
    return (
        f"{counted} counted are over the model's {model}, and no time of the counted launches shows that they are the profile's"
    )


def _is_cut_name(first: str, second: str) -> bool:
    """Whether one name is the other cut short, as profilers do; two sets of template arguments are two kernels."""
    first, second = (name[len("void ") :] if name.startswith("void ") else name for name in (first, second))
    return first.startswith(second.rstrip(".")) or second.startswith(first.rstrip("."))


def _is_same_dtype(matrix: dict[str, float], peak: str | None) -> bool:
    """Whether most of the counted matrix work is of the peak's dtype."""
    same = sum(value for key, value in matrix.items() if key == "matrix" or (peak is not None and peak in key))
    return same >= 0.5 * sum(matrix.values())


class _Traffic(NamedTuple):
    """The bytes of one unit by its counters."""

    total: float
    modeled: tuple[str, ...] = ()  # what of it is the model's, and why


def _count_traffic(counts: KernelCounts, work: Work, units: float) -> _Traffic:
    """Return the counted bytes of a unit, without letting a count fall under what the op must read and write.

    A count over that is re-reads or padding. A count under it is traffic that the counters did not see: reads that a cache
    served, and above all writes that still lay in it. Only a model with each operand once (``Work.written``) is such a limit.
    """
    if work.written is None or "hbm_read" not in counts.bytes or "hbm_write" not in counts.bytes:
        return _Traffic(counts.bytes["hbm"] * units)
    least = min(model.bytes for model in work.candidates if model.in_range)
    total, modeled = 0.0, []
    for what, key, must in (("read", "hbm_read", least - work.written), ("written", "hbm_write", work.written)):
        counted = counts.bytes[key] * units
        total += max(counted, must)
        if counted < (1 - KNOWN_COPY_BAND) * must:
            short = f"the {quantity(counted, 'B')} that were counted leave out what a cache holds"
            modeled.append(f"bytes {what}: the model's {quantity(must, 'B')}, since {short}")
    return _Traffic(total, tuple(modeled))


def _level_traffic(level: str, match: _Match | None, units: float) -> float | None:
    """Return the bytes of one unit through a cache; None where the count is missing or only a limit."""
    if match is None or any(problem.figure == level for problem in match.counts.problems):
        return None
    nbytes = match.counts.bytes.get(level)
    return None if nbytes is None else nbytes * units


def _counted_work(work: Work, nbytes: float | None, flops: float | None) -> Work:
    """The work as counted; the model's own candidates stay in the list, out of the range when bytes were counted."""
    models = tuple(model if flops is None else model._replace(flops=flops) for model in work.candidates)
    if nbytes is not None:
        first = ByteModel("counters", nbytes, work.flops if flops is None else flops)
        models = (first, *(model._replace(in_range=False) for model in models))
    return work._replace(candidates=models)


def _figure_note(name: str, unit: str, more: str, match: _Match | None, counted: float | None, model: float) -> Note:
    if match is None or counted is None:
        return note(f"{name}: from the model, since no counters of them hold")
    line = f"{name} counted: {quantity(counted, unit)}, mean of {match.counts.dispatches} dispatches ({match.label})"
    if model > 0:
        line += f", {counted / model:.3g} of the model's" + (f" ({more})" if counted > _MORE * model else "")
    return note(line)


def _other_notes(entry: Entry, matches: Sequence[_Match]) -> list[Note]:
    notes = []
    for match in matches:
        t_ms = match.counts.t_s * 1e3 if match.counts.t_s else None
        if t_ms and entry.t_ms and abs(t_ms / entry.t_ms - 1) > _NOTED_TIME:
            notes.append(note(f"one launch took {t_ms:.4g} ms while counted, {entry.t_ms:.4g} ms in the profile"))
        shares = ", ".join(f"{name} {value:.3g} %" for name, value in match.counts.corroboration.items())
        if shares:
            notes.append(note(f"other counters: {shares}"))
    return notes
