"""What a capture records of each operation, and what all of them come to."""

from __future__ import annotations

from typing import NamedTuple

from roofline_engine.fields import Note, note
from roofline_engine.work import Work

from .combine import View

META = note("its tensors are on the meta device, where nothing is computed", "meta_device")
#: Pallas has an interpreter too: a program of XLA.
INTERPRETED = note("ran in an interpreter: its time is not the time of a kernel", "interpreted")
#: The bytes of a table are those of all that its indices may name.
UNKNOWN_ROWS = note("which rows its indices name is unknown: the bytes of its table are an upper bound")


class Region(NamedTuple):
    """What an operation touches of one allocation."""

    storage: int  # the allocation, by its number within a capture
    view: View | None  # which of its bytes; None: all
    nbytes: float  # distinct bytes of the view
    whole: float  # bytes of the allocation


class Part(NamedTuple):
    """How much of an array is used."""

    nbytes: float
    view: View | None  # None: all of it
    exact: bool  # False: ``nbytes`` is an upper bound

    def of(self, region: Region) -> Region:
        """Return the region of an array of which only this part is used."""
        if self.view is None or self.nbytes >= region.nbytes:
            return region
        return region._replace(nbytes=self.nbytes, view=self.view)


class OpTrace(NamedTuple):
    """One operation as it ran."""

    name: str  # the framework's name (``aten.mm``), or the symbol of a kernel
    reads: tuple[Region, ...] = ()
    writes: tuple[Region, ...] = ()
    either: tuple[Region, ...] = ()  # read or written, unknown which: the arguments of a kernel
    work: Work | None = None  # the engine's model, with the op, its FLOPs and dtype; None where the engine has no model
    flops: float | None = 0.0  # without a model; None where unknown
    dtype: str | None = None
    is_bound: bool = False  # its regions may be used in part (a paged cache), so that their bytes are an upper bound
    launches: int = 1
    notes: tuple[Note, ...] = ()
    is_kernel: bool = False  # a kernel that the test's author wrote, not an operation of a framework


class CapturedWork(NamedTuple):
    """The work of one call."""

    how: str  # what saw the call: torch, triton, torch and triton, jax or numpy
    work: Work | None = None  # None where unknown
    reason: str = ""  # why the work is unknown
    certain: bool = True  # False for upper bounds and guesses, so that the row is for display only
    launches: int | None = None  # kernel launches in the call, where they show
    operations: int = 0  # how many were recorded
    notes: tuple[Note, ...] = ()
    kernels: tuple[str, ...] = ()  # symbols of the author's own kernels
    source: str = "captured"  # captured, or names for a guess from names alone
