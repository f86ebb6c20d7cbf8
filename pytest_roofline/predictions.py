"""The entries of a profile_roofline.json, and which of them a test is of."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from roofline_engine.check import Prediction
from roofline_engine.models import Work
from roofline_engine.peaks import Peaks
from roofline_engine.units import printable, quantity

from .work.globs import matches

#: Bytes and FLOPs within this factor may be of one shape: counters see more than a model has.
ALIKE = 1.25
#: Within this factor they are of one shape, where nothing but the op says so.
SAME = 1.02

_TESTS = re.compile(r"^(?:test|bench|benchmark)_+")
#: What autotuners and compilers append to a Triton kernel's name: its block sizes and flags (aiter), how its arguments are
#: specialised (``_0d1d2d3c``), the running number of a cache entry.
_TUNED = re.compile(r"(?:_[A-Z][A-Z0-9_]*_(?:\d+|None|True|False)(?![A-Za-z]).*|_0[dce]*1[\ddce]*|_+\d+)$")
_KERNEL = re.compile(r"^_*kernel_+|_+(?:kernel|jit|impl|triton|cuda|hip)$|^_+|_+$")


def symbol(name: str) -> str:
    """What the names of a kernel and of its test share: without template and launch arguments, namespaces, mangling, tuned
    suffixes, ``kernel`` and ``test_``; letters and digits in lower case."""
    text = _function(name) if name.startswith("_Z") else name.replace("(anonymous namespace)", "")
    text = text.partition("[")[0].partition("(")[0].partition("<")[0].rpartition("::")[2].strip().removeprefix("void ")
    text = _TUNED.sub("", text)
    text = _TESTS.sub("", text.lower())
    while (shorter := _KERNEL.sub("", text)) not in ("", text):
        text = shorter
    return "".join(ch for ch in text if ch.isalnum())


def _function(mangled: str) -> str:
    """The function's own name out of an Itanium-mangled one, which profilers cut short: of ``_ZN3foo3barIfEEvT_``, ``bar``.

    https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling: source names are their length and their letters.
    """
    nested = mangled.startswith("_ZN")
    at, found = 2 + nested, mangled
    while size := re.match(r"[rVKRO]*(?:St|L)*(\d+)", mangled[at:]):
        at += len(size[0])
        found = mangled[at : at + int(size[1])]
        at += int(size[1])
        if not nested:
            break
    return found


@dataclass(slots=True)
class Predicted:
    """One entry: its prediction, the names it goes by, its op and work."""

    prediction: Prediction
    names: frozenset[str]
    op: str | None = None
    bytes: float | None = None
    flops: float | None = None

    def other_work(self, work: Work, factor: float = ALIKE) -> str | None:
        """Why this is about another shape than ``work``; None when it may be of the same."""
        for what, theirs, mine in (("B", self.bytes, work.bytes), ("FLOP", self.flops, work.flops)):
            if theirs and mine and not 1 / factor <= mine / theirs <= factor:
                return f"it is of {quantity(theirs, what)}, this test of {quantity(mine, what)}"
        return None


class Match(NamedTuple):
    """The entry of a test and how it was found, or why there is none where it could be one of several."""

    entry: Predicted | None = None
    how: str = ""
    problem: str = ""


@dataclass(slots=True)
class Predictions:
    """The entries of one artifact. pins: glob over nodeids to the name of an entry, where the user says which is which."""

    source: str
    device: str | None
    gfx: str | None
    entries: list[Predicted]
    pins: Mapping[str, str] = field(default_factory=dict)
    pinned_by: str = ""
    _named: dict[str, list[Predicted]] = field(init=False)
    _folded: dict[str, list[Predicted]] = field(init=False)

    def __post_init__(self) -> None:
        self._named, self._folded = {}, {}
        for entry in self.entries:
            for name in entry.names:
                self._named.setdefault(name, []).append(entry)
            for name in {symbol(name) for name in entry.names} - {""}:
                self._folded.setdefault(name, []).append(entry)

    def pin(self, pins: Mapping[str, str], source: str) -> None:
        """Take the user's word for which test is of which entry.

        Raises:
            ValueError: for a name that no entry, or more than one, has.
        """
        for glob, name in pins.items():
            count = len(self._named.get(name, ()))
            if count != 1:
                there = "no prediction is" if not count else f"{count} predictions are"
                raise ValueError(f"{source}: {printable(glob)!r}: {there} named {printable(name)!r} in {self.source}")
        self.pins, self.pinned_by = pins, source

    def match(
        self, test: str, *, nodeid: str = "", kernel: str | None = None, launched: Iterable[str] = (), work: Work | None = None
    ) -> Match:
        """The prediction of a test: where the user pins it, by ``kernel=``, by the kernels it launches, by its own name, and
        last by its op where bytes and FLOPs are the same. Of several that fit by name, the one of the same work.

        test: the name of its function. launched: kernels' symbols.
        """
        pinned = next((name for glob, name in self.pins.items() if matches(glob, nodeid)), None)
        if pinned is not None:
            return Match(self._named[pinned][0], f"pinned by {self.pinned_by}")
        by_name = [*((name, "the kernel it launches") for name in launched), (test, "its name")]
        for name, what in [(kernel, "kernel=")] if kernel else by_name:
            found = self._named.get(name) or self._folded.get(symbol(name), [])
            if found:
                return _one(found, work, f"by {what}, {printable(name)}")
        if kernel or work is None:
            return Match()
        alike = [
            entry
            for entry in self.entries
            if entry.op == work.op and entry.bytes and entry.flops is not None and not entry.other_work(work, SAME)
        ]
        return _one(alike, work, f"by its op and work: {work.op} of {quantity(work.bytes, 'B')}") if alike else Match()

    def other_device(self, peaks: Peaks) -> str | None:
        """Why these are of another device than ``peaks``; None when they may be of the same."""
        for mine, theirs in ((peaks.product, self.device), (peaks.gfx, self.gfx)):
            if mine and theirs:
                return None if mine == theirs else f"{self.source}: predicted on {printable(theirs)}, the run is on {mine}"
        return None


def _one(found: Collection[Predicted], work: Work | None, how: str) -> Match:
    """The only one, or the only one of the same work."""
    fits = list(found)
    if len(fits) > 1 and work is not None:
        fits = [entry for entry in fits if not entry.other_work(work)] or fits
    if len(fits) == 1:
        return Match(fits[0], how)
    names = ", ".join(printable(entry.prediction.kernel)[:60] for entry in fits[:3])
    return Match(problem=f"{len(fits)} predictions fit {how}: {names}: --roofline-match pins one")
