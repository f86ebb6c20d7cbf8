"""What an adapter gives: one ``RecordRow`` a row of a file, in SI units, before any check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roofline_engine.check import Claim, Mistake

#: Why a row is refused, by code; the row's text has the details.
REFUSED_CODES = {
    "row": "not a row of the format",
    "value": "a value that cannot be read",
    "time": "no time that can be used",
    "not_timed": "nothing was timed",
    "summary": "a summary of other rows",
    "no_peaks": "no peaks for the device",
    "placeholder": "a placeholder instead of a time",
}


@dataclass(slots=True, kw_only=True)  # not frozen: that doubles the cost of a record, and a file has 500,000
class RecordRow:
    """One row. None where the file does not give a value."""

    row: str  # where it is in the file: line 12, benchmarks[3], level1/1_Square
    name: str = ""  # of the kernel or test
    work: Mapping[str, Any] | None = None  # keywords of declare.build, with logical sizes
    no_work: str = ""  # why work is None
    t_s: float | None = None  # seconds of one unit
    device: str | None = None  # a product, a gfx or the hardware string of the file
    units: int | None = None  # CUs or SMs of the device, which a bare gfx needs
    launches: float = 1  # in the timed unit
    wall_s: float | None = None  # on the host, from launch to result, when t_s is a device's time
    clock: str = "unknown"  # as of Measurement
    cache: str = "unknown"  # as of Measurement
    rounds: int | None = None
    q1_s: float | None = None
    q3_s: float | None = None
    baseline_kind: str = "unknown"
    baseline_t_s: float | None = None
    speedup: float | None = None  # over the baseline, when only the ratio is given
    claims: tuple[Claim, ...] = ()  # printed rates, converted by the unit that the format states
    placeholder_time: bool = False  # the printed time is exactly 1
    known_mistakes: tuple[Mistake, ...] = ()  # mistakes that this row's shape makes possible
    timed_flops: float | None = None  # FLOPs of what was timed, when that is more than the work
    correct: bool | None = None  # what the file says of the output
    working_set: float | None = None  # bytes that the timed loop uses again
    counter_ratio: float | None = None  # bytes by hardware counters over the compulsory ones
    refused: str = ""  # why the row cannot be used; the other fields hold what is known
    refused_code: str = "not_timed"  # one of REFUSED_CODES, when it is refused
    notes: tuple[str, ...] = ()
