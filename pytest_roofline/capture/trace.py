"""What a capture sees of a call, and what it comes to."""

from __future__ import annotations

from typing import NamedTuple

from roofline_engine.work import Work

META = "its tensors are on the meta device, where nothing is computed"


class Region(NamedTuple):
    """What an operation touches of one allocation.

    storage: the allocation, unique within a capture. view: which of its bytes, as ``covered`` writes it. nbytes: distinct bytes
    of the view. whole: bytes of the allocation.
    """

    storage: int
    view: tuple[int, ...]
    nbytes: float
    whole: float


class Part(NamedTuple):
    """How much of an array is used. view: which bytes, as ``covered`` writes it; None for all. exact: else at most so many."""

    nbytes: float
    view: tuple[int, ...] | None
    exact: bool


def part_of(region: Region, part: Part | None) -> Region:
    """The region of an array of which a part alone is used."""
    if part is None or part.view is None or part.nbytes >= region.nbytes:
        return region
    return region._replace(nbytes=part.nbytes, view=part.view)


class Seen(NamedTuple):
    """One operation as it ran.

    name: the framework's (``aten.mm``, a kernel's symbol). work: the engine's model of it, which then says the op, its FLOPs
    and their dtype; None where there is none, and then only its regions are known. either: regions of which it is not known
    whether they are read or written (a kernel's arguments). partly: its regions may be used in part only (a paged cache), so
    they bound its bytes from above. flops: None where nobody knows them. note: what the reader has to know. kernel: a kernel
    that the test's author wrote, by its symbol, rather than an operation of a framework.
    """

    name: str
    reads: tuple[Region, ...] = ()
    writes: tuple[Region, ...] = ()
    either: tuple[Region, ...] = ()
    work: Work | None = None
    flops: float | None = 0.0
    dtype: str | None = None
    partly: bool = False
    launches: int = 1
    note: str = ""
    kernel: bool = False


class Captured(NamedTuple):
    """The work of one call.

    how: what saw it (``torch``, ``triton``, ``torch and triton``, ``jax``, ``numpy``). work: None where it is not known, with
    the reason. sure: False where a figure is a bound alone, so that the row is for display. launches: of kernels in the call,
    where the source shows them. operations: how many were seen. kernels: the symbols of its author's own.
    """

    how: str
    work: Work | None = None
    reason: str = ""
    sure: bool = True
    launches: int | None = None
    operations: int = 0
    notes: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
