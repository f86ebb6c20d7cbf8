"""What ``roofline peaks measure`` knows of a CPU, as roofs: caches, kinds of traffic, ceilings without FMA and scalar."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..ceilings.record import LEVELS, SCHEMA, Ceilings
from .model import Bandwidth, Ceiling, Model, Roofs, counted, meaning_of, titled

#: What is nearer to a roof than this is the roof.
_UNDER = 0.99
_NAMED = {"vector_fma": "FMA", "gemm": "GEMM", "vector": "no FMA", "scalar": "scalar"}


class Measured(NamedTuple):
    """The measured roofs of one machine."""

    bandwidths: tuple[Bandwidth, ...]
    ceilings: tuple[Ceiling, ...]
    note: str


def is_record(document: object) -> bool:
    return isinstance(document, Mapping) and document.get("schema") == SCHEMA


def measured(document: Any, label: str) -> Measured:
    """The roofs in a record of ceilings, with all threads.

    Raises:
        ValueError: for what is no such record, in one line that names ``label``.
    """
    try:
        record = Ceilings.from_json(document)
    except ValueError as error:
        raise ValueError(f"{label}: no ceilings of roofline peaks measure: {error}") from None
    threads = max((item.threads for item in record.items), default=0)
    items = [item for item in record.items if item.threads == threads]
    bandwidths = []
    for level in reversed(LEVELS):
        found = sorted((item for item in items if item.level == level), key=lambda item: -item.value)
        for item in found if level == "DRAM" else found[:1]:  # of a cache the best, of memory each kind of traffic
            name = f"{level} {item.name}"
            bandwidths.append(Bandwidth(name=name, bytes_s=item.value, level=level.lower(), basis="measured"))
    ceilings = []
    for item in items:
        if item.kind == "compute":
            name = f"{item.dtype} {_NAMED[item.name]}"
            made = Ceiling(name=name, flops_s=item.value, dtype=item.dtype, basis="measured", meaning=meaning_of(name))
            ceilings.append(made)
    return Measured(tuple(bandwidths), tuple(ceilings), record.peaks().note)


def model(document: Any, label: str, title: str | None) -> Model:
    """The figure of a machine alone."""
    found = measured(document, label)
    return Model(
        title=title or titled((), (), Roofs(found.bandwidths, found.ceilings)),
        subtitle=counted((), (), "roofs: measured"),
        bandwidths=found.bandwidths,
        ceilings=found.ceilings,
        kernels=(),
        notes=(found.note,),
    )


def added(found: Measured, bandwidths: tuple[Bandwidth, ...], ceilings: tuple[Ceiling, ...], dtypes: Iterable[str]) -> Measured:
    """What ``found`` adds to the roofs that rows were judged by, which stay the roofs: nothing over those is a roof here."""
    memory = max((one.bytes_s for one in bandwidths), default=None)
    tops = {one.dtype: one.flops_s for one in reversed(ceilings)}
    wide = tuple(
        one for one in found.bandwidths if one.level != LEVELS[-1].lower() or memory is None or one.bytes_s < _UNDER * memory
    )
    used = set(dtypes)
    low = tuple(one for one in found.ceilings if one.dtype in used and one.flops_s < _UNDER * tops.get(one.dtype, 0.0))
    return Measured((*bandwidths, *wide), tuple(sorted((*ceilings, *low), key=lambda one: -one.flops_s)), found.note)
