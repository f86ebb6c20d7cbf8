"""Stage C: what counters say of an entry takes the place of its model, where it holds; where it does not, the line why (L4)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .. import roofline
from ..fields import ByteModel, Entry
from ..inputs import Row
from ..kernels import stem as stem_of
from ..peaks import Peaks
from ..units import printable, quantity
from ..work import Work
from . import read
from .base import Counters, Measured

#: Counted bytes or FLOPs under this part of what the op must move or compute were not all counted.
COMPULSORY = 0.9
#: Over this part of the model's, the kernel does more than the op needs: padding, re-reads (rocprofiler-compute#66).
_MORE = 1.1
#: Launches whose counted time is this far from the profile's were not the same work.
_SAME_TIME = 1.5
#: Counting serialises launches and may lock clocks; beyond this it is worth a note.
_NOTED_TIME = 0.1
_STANDS = "the analytic result stands"


class _Found(NamedTuple):
    """The counters of one kernel in one file."""

    label: str
    kernel: Measured


class Book:
    """The counter files of one run. ``assess`` judges an entry with them; ``degraded`` has a line for each refusal."""

    def __init__(self, paths: Sequence[str], rows: Sequence[Row], gfx: str | None, rocm: str | None) -> None:
        self.gfx = gfx
        self.degraded: list[dict[str, str]] = []
        self._files: list[Counters] = []
        self._stems: dict[str, int] = {}
        for row in rows:
            stem = stem_of(row.name)
            self._stems[stem] = self._stems.get(stem, 0) + 1
        for path in paths:
            label = printable(os.path.basename(path))
            try:
                found = read.read(path, gfx, rocm)
            except ValueError as error:
                self._refuse(label, str(error))
                continue
            except Exception as error:  # a fault of ours must not cost the analysis
                self._refuse(label, f"{type(error).__name__}: {error}")
                continue
            nvidia = found.source.startswith("ncu")
            if gfx is not None and nvidia == gfx.startswith("gfx"):
                self._refuse(label, f"{found.source} is not of this device ({gfx})")
                continue
            self._files.append(found)
            self.degraded += [{"name": label, "reason": f"L4: {_bare(line, label)}"} for line in found.problems]
            if not any(self._match(found, row.name) for row in rows):
                self._refuse(label, "no kernel of the Top-N is in it by name")

    def _refuse(self, label: str, why: str, kernel: str = "") -> None:
        where = f"{printable(kernel)[:60]}: " if kernel else ""
        self.degraded.append({"name": label, "reason": f"L4: {where}{_bare(why, label)}; {_STANDS}"})

    def _match(self, file: Counters, name: str) -> Measured | None:
        exact = [one for one in file.kernels if one.name == name]
        if exact:
            return exact[0]
        stem = stem_of(name)
        near = [one for one in file.kernels if stem_of(one.name) == stem and _cut(one.name, name)]
        return near[0] if len(near) == 1 and self._stems.get(stem) == 1 else None

    def assess(self, entry: Entry, work: Work, peaks: Peaks, notes: list[str], *, conflict: bool, shapes: int) -> Entry:
        """The entry by its counters where they hold, else by its model. shapes: captured shapes under the name."""
        plain = roofline.assess(entry, work, peaks, conflict=conflict)
        matched = ((file.label, self._match(file, entry.name)) for file in self._files)
        found = [_Found(label, kernel) for label, kernel in matched if kernel is not None]
        if not found:
            return plain
        nbytes, flops = self._bytes(entry, work, found, shapes), self._flops(entry, work, found, shapes)
        source = nbytes or flops
        if source is None:
            return plain
        launches = entry.launches_per_unit
        counted = _replaced(
            work,
            nbytes.kernel.bytes["hbm"] * launches if nbytes else None,
            sum(flops.kernel.flops.values()) * launches if flops else None,
        )
        basis = "counters" if nbytes and flops else "mixed"
        try:
            judged = roofline.assess(entry._replace(stage="C"), counted, peaks, conflict=conflict and nbytes is None)
            why = self._impossible(judged, nbytes, flops)
        except ValueError as error:  # figures that no arithmetic takes
            judged, why = plain, str(error)
        if why:
            self._refuse(source.label, why, entry.name)
            return plain
        notes += _said(entry, work, nbytes, flops, found)
        return judged._replace(measurement_basis=basis)

    def _usable(self, entry: Entry, one: _Found, shapes: int) -> str:
        """Why no figure of these counters speaks for the entry; empty when they may."""
        kernel = one.kernel
        if shapes > 1:
            return f"{shapes} captured shapes under one name, and counters do not tell them apart"
        if kernel.grids > 1:
            return f"dispatches of {kernel.grids} grid sizes under one name: their mean is of no one shape"
        if kernel.t_s and entry.t_ms:
            ratio = kernel.t_s * 1e3 / entry.t_ms
            if not 1 / _SAME_TIME <= ratio <= _SAME_TIME:
                return f"the counted launches take {ratio:.2f} of the profile's time: not the same work"
        return ""

    def _first(self, entry: Entry, found: Sequence[_Found], doubt: Callable[[_Found], str | None]) -> _Found | None:
        """The first file without a doubt (None: it has nothing to say). Doubts are told only where no file is left."""
        refused = []
        for one in found:
            why = doubt(one)
            if why == "":
                return one
            if why:
                refused.append((one.label, why))
        for label, why in refused:  # another file may have had what one lacks
            self._refuse(label, why, entry.name)
        return None

    def _bytes(self, entry: Entry, work: Work, found: Sequence[_Found], shapes: int) -> _Found | None:
        estimates = [model.bytes for model in work.candidates if model.in_range]
        need, most = min(estimates), max(estimates)

        def doubt(one: _Found) -> str | None:
            why = self._usable(entry, one, shapes)
            if why:
                return why
            counted = one.kernel.bytes.get("hbm")
            if counted is None:
                said = [problem for problem in one.kernel.problems if problem.startswith("hbm")]
                if one.kernel.flops and not said:
                    return None  # a pass for FLOPs alone
                return "; ".join(said) or "no byte counters in it"
            if self.gfx is None:
                return "the gfx is not known, and what the byte counters count depends on it"
            total = counted * entry.launches_per_unit
            if total < COMPULSORY * need:
                return (
                    f"{quantity(total, 'B')} counted are under {COMPULSORY} of the {quantity(need, 'B')} the op must move: "
                    "a warm cache, or counters that miss part"
                )
            if total > _MORE * most and not one.kernel.t_s:
                return _untimed(quantity(total, "B"), quantity(most, "B"))
            return ""

        return self._first(entry, found, doubt)

    def _flops(self, entry: Entry, work: Work, found: Sequence[_Found], shapes: int) -> _Found | None:
        def doubt(one: _Found) -> str | None:
            flops = one.kernel.flops
            if not flops or self._usable(entry, one, shapes):
                return None  # said with the bytes
            total = sum(flops.values()) * entry.launches_per_unit
            matrix = {key: value for key, value in flops.items() if not key.startswith(("vector_", "sparse_"))}
            sparse = [key for key in flops if key.startswith("sparse_")]
            if sparse:
                return f"FLOPs with structured sparsity ({', '.join(sparse)}): the peaks here are dense"
            if work.engine == "matrix" and not matrix:
                return f"only {', '.join(flops)} FLOPs were counted, the model has them on the matrix units"
            if work.engine == "matrix" and not _same_dtype(matrix, work.dtype.peak):
                return f"the matrix units counted {max(matrix, key=lambda key: matrix[key])}, the model says {work.dtype.name}"
            if total > _MORE * work.flops and not one.kernel.t_s:
                return _untimed(quantity(total, "FLOP"), quantity(work.flops, "FLOP"))
            if total < COMPULSORY * work.flops:
                return f"{quantity(total, 'FLOP')} counted are under {COMPULSORY} of the model's {quantity(work.flops, 'FLOP')}"
            return ""

        return self._first(entry, found, doubt)

    def _impossible(self, judged: Entry, nbytes: _Found | None, flops: _Found | None) -> str:
        over = [
            (judged.hbm_util, "bandwidth", nbytes),
            (judged.compute_util, "compute", flops),
        ]
        for util, roof, counted in over:
            if counted is not None and util is not None and util > 1:
                return f"{util:.2f} of the {roof} roof by its counters: passes mixed, or the time is of other work"
        if (nbytes if judged.roof_axis == "memory" else flops) is None:
            return f"the verdict stands on the {judged.roof_axis} roof, and only the model speaks for it"
        return ""


def _bare(line: str, label: str) -> str:
    return line[len(label) + 2 :] if line.startswith(f"{label}: ") else line


def _untimed(counted: str, model: str) -> str:
    return (
        f"{counted} counted are over the model's {model}, and no time of the counted launches shows that they are the profile's"
    )


def _cut(first: str, second: str) -> bool:
    """Whether one name is the other cut short, as profilers do; two sets of template arguments are two kernels."""
    first, second = (name[len("void ") :] if name.startswith("void ") else name for name in (first, second))
    return first.startswith(second.rstrip(".")) or second.startswith(first.rstrip("."))


def _same_dtype(matrix: dict[str, float], peak: str | None) -> bool:
    """Whether most of the counted matrix work is of the peak's dtype."""
    same = sum(value for key, value in matrix.items() if key == "matrix" or (peak is not None and peak in key))
    return same >= 0.5 * sum(matrix.values())


def _replaced(work: Work, nbytes: float | None, flops: float | None) -> Work:
    """The work as counted; the model's own candidates stay in the list, out of the range when bytes were counted."""
    models = tuple(model if flops is None else model._replace(flops=flops) for model in work.candidates)
    if nbytes is not None:
        first = ByteModel("counters", nbytes, work.flops if flops is None else flops)
        models = (first, *(model._replace(in_range=False) for model in models))
    return work._replace(candidates=models)


def _said(entry: Entry, work: Work, nbytes: _Found | None, flops: _Found | None, found: Sequence[_Found]) -> list[str]:
    launches = entry.launches_per_unit
    said = []
    for what, one, unit, model in (("bytes", nbytes, "B", work.bytes), ("FLOPs", flops, "FLOP", work.flops)):
        if one is None:
            said.append(f"{what}: the model's, no counters of them hold")
            continue
        counted = (one.kernel.bytes["hbm"] if unit == "B" else sum(one.kernel.flops.values())) * launches
        line = f"{what} counted: {quantity(counted, unit)}, mean of {one.kernel.dispatches} dispatches ({one.label})"
        if model > 0:
            line += f", {counted / model:.3g} of the model's"
            if counted > _MORE * model:
                line += " (re-reads)" if unit == "B" else " (padding or recomputation is in it)"
        said.append(line)
    for one in found:
        t_ms = one.kernel.t_s * 1e3 if one.kernel.t_s else None
        if t_ms and entry.t_ms and abs(t_ms / entry.t_ms - 1) > _NOTED_TIME:
            said.append(f"one launch took {t_ms:.4g} ms while counted, {entry.t_ms:.4g} ms in the profile")
        shares = ", ".join(f"{name} {value:.3g} %" for name, value in one.kernel.corroboration.items())
        if shares:
            said.append(f"counters beside it: {shares}")
    return said
