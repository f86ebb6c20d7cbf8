"""The engine's model of an op with the bytes of what was seen of it."""

from __future__ import annotations

from roofline_engine.models import Work

from .record import Seen
from .total import distinct


def sized(found: Work, seen: Seen, flops: float | None = None) -> Work:
    """``found`` with the distinct bytes that ``seen`` reads and writes, and other FLOPs where they are given."""
    model = found.candidates[0]
    nbytes = distinct(seen.reads, seen.writes)
    return found._replace(candidates=(model._replace(bytes=nbytes, flops=model.flops if flops is None else flops),))
