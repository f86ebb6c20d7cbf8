"""What a measurement says of a prediction: consistent with it, above it, or beyond what the roof allows.

The rules are those of the design's section 4. ``beyond_roof`` and ``near_roof`` come from the row's own time; the other
statuses compare a speedup over a baseline with what was thought attainable. The measurement always wins: a contradiction
says that a model, a peak, a prior or a time is wrong, never that the kernel is.
"""

from __future__ import annotations

from .record import Record


class Measurement(Record):
    """One time of one unit of work, in seconds: the median over rounds with its quartiles.

    source: who measured (``pytest-benchmark``, ``pytest-codspeed``, ``roofline``, ``user``). clock: ``host`` (no device wait
    known), ``host+sync``, ``device-event``, ``device-graph`` or ``unknown``. cache: ``cold`` (flushed or rotated before each
    round), ``warm`` (the same operands round after round) or ``unknown``. rounds: how many there were.
    """

    source: str
    t_s: float
    q1_s: float | None = None
    q3_s: float | None = None
    rounds: int | None = None
    clock: str = "unknown"
    cache: str = "unknown"
    notes: tuple[str, ...] = ()

    @property
    def spread(self) -> float:
        """Interquartile range over the median; 0 where the quartiles are not known."""
        if self.q1_s is None or self.q3_s is None:
            return 0.0
        return (self.q3_s - self.q1_s) / self.t_s
