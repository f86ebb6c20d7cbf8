"""What an adapter gives: one record a row of somebody else's file, in our units, nothing judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from roofline_engine.check import Alternative, Claim


@dataclass(slots=True, kw_only=True)  # not frozen: that doubles the cost of a record, and a file has 500,000
class RecordRow:
    """One row. Seconds, bytes/s and FLOP/s; None where the file does not say.

    row: where it stands, as its reader would look for it (``line 12``, ``benchmarks[3]``, ``level1/1_Square``). name: of the
    kernel or test. work: keywords of ``declare.build`` (an op and its sizes, or bytes, flops and dtype), with logical
    sizes; None, and the reason in ``no_work``, where the file does not tell. t_s: time of one unit.
    device: product name, gfx or the hardware string as it stands; units: its CUs or SMs, where a bare gfx needs them.
    clock, cache: as of ``Measurement``. baseline_kind, baseline_t_s: what the row is compared with; speedup: the ratio alone.
    claims: printed rates, converted by the unit that the format states. hand_written: the printed time is exactly 1.
    alternatives: mistakes that this row's shape makes possible. correct: what the record says of the output.
    launches: in the timed unit. wall_s: of it on the host, launch to result, beside a device's t_s. working_set: bytes that the
    timed loop uses again. counted: bytes by counters over the compulsory ones. refused: why the row cannot be used at all; the
    other fields then hold what is known.
    """

    row: str
    name: str = ""
    work: Mapping[str, Any] | None = None
    no_work: str = ""
    t_s: float | None = None
    device: str | None = None
    units: int | None = None
    launches: float = 1
    wall_s: float | None = None
    clock: str = "unknown"
    cache: str = "unknown"
    rounds: int | None = None
    q1_s: float | None = None
    q3_s: float | None = None
    baseline_kind: str = "unknown"
    baseline_t_s: float | None = None
    speedup: float | None = None
    claims: tuple[Claim, ...] = ()
    hand_written: bool = False
    alternatives: tuple[Alternative, ...] = ()
    timed_flops: float | None = None
    correct: bool | None = None
    working_set: float | None = None
    counted: float | None = None
    refused: str = ""
    notes: tuple[str, ...] = field(default=())
