"""Why a rate is beyond the roof, or a printed figure is not what its own shape and time give: the first test that fits.

Each test is a number: a factor that a known mistake would make, a peak that breaks a rule, a working set that a cache holds.
Where none fits it is ``unexplained``, which says more than a guess. The tests and their order are those of the field's own
post-mortems, named beside each.
"""

from __future__ import annotations

from collections.abc import Iterator

from .metrics import CACHE_REACH, cache_bytes
from .peaks import Peaks
from .record import Record
from .units import quantity

#: A factor is an identity when it lies this near; between them lie models that differ by activations or scales.
IDENTITY = 0.05
#: More than a device's caches give over its memory: an MI300X reads 17.2 TB/s from its Infinity Cache and 2 KiB a clock of each
#: of 8 L2s, 34.4 TB/s (AMD's CDNA 3 white paper), over 5.3. Nothing stays in a shared memory from launch to launch.
_DEVICE_CACHE = 10.0

#: Slips of units and widths are exact; only the printed digits blur them.
EXACT = 0.01
#: Printed figures carry three or four digits; what differs by less is rounding.
AGREES = 0.005
#: Counters that show less than this of the bytes that must have moved are wrong (stage C calls that L4).
SHORT = 0.9
#: What a wrong factor must leave of the roof to explain an excess: less is another mistake.
LEAVES = (0.2, 1.0)

EXPERIMENTS = {
    "placeholder": "run it again: a time written by hand is no measurement",
    "counter_fault": "check the counters by a copy of known traffic (roofline counters check), and the tool's version",
    "accounting_unit": "time one launch of one unit, and count that unit",
    "dtype_width": "read element_size() of the captured tensors",
    "flop_convention": "count the FLOPs under the mask, a multiply-add as two, against dense peaks",
    "overcounted_bytes": "count what is read: the experts hit, the lengths in use, or the counters",
    "wrong_peak": "a vendor GEMM of the dtype, or a stream copy, against the same peak",
    "cache_resident": "rotate operands over twice the cache, or read-flush between rounds",
    "different_algorithm": "recompute the bytes of the new algorithm: a byte-reduction win",
    "work_skipped": "fresh random inputs and a full comparison of the output",
    "unexplained": "wall time per call against device time, the number of kernels, poisoned outputs",
}


CAUSES = tuple(EXPERIMENTS)


class Alternative(Record):
    """A way to count the row that somebody might have taken: what it multiplies the figure of ``axis`` by (both: "")."""

    cause: str
    factor: float
    axis: str
    why: str


class Facts(Record):
    """What is known of a row beside its work and its time.

    hand_written: the time is exactly one of its printed unit. counted: bytes by counters over the compulsory ones.
    timed_flops: FLOPs of what was timed, where the record says them and the op is named otherwise. alternatives: mistakes that
    this row's shape makes possible. working_set: bytes that the timed loop uses again. cold: flushed or rotated.
    fewer_bytes: of the candidate's own algorithm. correct: what a check of the output said; None where there was none.
    """

    hand_written: bool = False
    counted: float | None = None
    timed_flops: float | None = None
    alternatives: tuple[Alternative, ...] = ()
    working_set: float | None = None
    cold: bool = False
    fewer_bytes: float | None = None
    correct: bool | None = None


class Claim(Record):
    """A printed rate: B/s of ``memory`` or FLOP/s of ``compute``. digits: half its last printed digit, as a fraction."""

    axis: str
    claimed: float
    digits: float = 0.0


class Finding(Record):
    """The cause, the figures that decided, and the experiment that would confirm it."""

    cause: str
    decided: str
    experiment: str
    factor: float | None = None


def found(cause: str, decided: str, factor: float | None = None) -> Finding:
    """A finding with the experiment of its cause."""
    return Finding(cause, decided, EXPERIMENTS[cause], factor)


#: Slips of units and of tables: a decimal place (aiter's bpreshuffle TFLOPS are ten times too high), a prefix (its bw column
#: is TB/s in one file and GB/s in its sibling), binary prefixes.
_UNITS = (10.0, 100.0, 1e3, 1e6, 1.024, 1.024**2, 1.024**3)
_WIDTHS = (2.0, 4.0, 8.0)


def of_claim(claim: Claim, recomputed: float, facts: Facts = Facts()) -> Finding | None:  # noqa: B008  # immutable
    """Why a printed rate differs from the one its shape and time give; None where it does not."""
    if claim.claimed == 0.0:
        return found("placeholder", "0.0 is printed, nothing was worked out", 0.0)
    factor = claim.claimed / recomputed
    slack = max(AGREES, claim.digits)
    if abs(factor - 1) <= slack:
        return None
    if facts.counted is not None and facts.counted < SHORT:
        return found("counter_fault", f"the counters show {facts.counted:.2f} of the compulsory bytes", factor)
    for alternative, near, least in (
        *((item, IDENTITY, slack) for item in facts.alternatives),
        *((item, EXACT, claim.digits) for item in _generic(claim.axis)),  # exact slips, with no model that may be off a little
    ):
        # A factor near 1 (an fp32 output at two bytes, a binary prefix) must fit the closer, or it would explain anything.
        tolerance = max(least, min(near, abs(alternative.factor - 1) / 10))
        if alternative.axis in ("", claim.axis) and abs(factor / alternative.factor - 1) <= tolerance:
            return found(alternative.cause, f"{factor:.4g} times what shape and time give: {alternative.why}", factor)
    return found("unexplained", f"{factor:.4g} times what shape and time give", factor)


def _generic(axis: str) -> Iterator[Alternative]:
    for factor in _UNITS:
        for value, sign in ((factor, ""), (1 / factor, "1/")):
            yield Alternative("accounting_unit", value, "", f"a unit or a decimal place, {sign}{factor:.4g}")
    for factor in _WIDTHS:
        for value, sign in ((factor, ""), (1 / factor, "1/")):
            if axis == "memory":
                yield Alternative("dtype_width", value, axis, f"elements counted at {sign}{factor:g} times their width")
            elif factor == 2.0:
                yield Alternative("flop_convention", value, axis, f"FLOPs counted {sign}{factor:g} times")


def of_unit(model_flops: float, facts: Facts) -> Finding | None:
    """Whether what was timed is another unit than the op named: a record called swiglu that times three GEMMs."""
    if facts.timed_flops is None or model_flops <= 0 or facts.timed_flops / model_flops < 1 / LEAVES[0]:
        return None
    factor = facts.timed_flops / model_flops
    return found("accounting_unit", f"what was timed does {factor:.4g} times the FLOPs of the op it is named after", factor)


def of_excess(axis: str, utilisation: float, nbytes: float | None, peaks: Peaks, facts: Facts = Facts()) -> Finding:  # noqa: B008
    """Why a rate is ``utilisation`` times the peak of ``axis`` (``memory``, ``matrix.fp8``, ...), over what it can be.

    nbytes: the bytes behind it, None where they are not known.
    """
    side = "memory" if axis == "memory" else "compute"
    if facts.hand_written:
        return found("placeholder", f"exactly 1 of its unit, and {utilisation:.4g} times the roof", utilisation)
    if facts.counted is not None and facts.counted < SHORT:
        return found("counter_fault", f"the counters show {facts.counted:.2f} of the compulsory bytes")
    for alternative in facts.alternatives:
        left = utilisation / alternative.factor
        if alternative.axis in ("", side) and LEAVES[0] < left <= LEAVES[1]:
            return found(alternative.cause, f"{left:.3g} of the roof without it: {alternative.why}", alternative.factor)
    if axis in peaks.unvalidated:
        return found("wrong_peak", f"the peak itself breaks a rule: {peaks.unvalidated[axis]}")
    held = facts.working_set if facts.working_set is not None else nbytes
    if side == "memory" and not facts.cold and facts.working_set is not None and held is not None:
        cache = cache_bytes(peaks)
        if held <= CACHE_REACH * cache and (peaks.product == "cpu" or utilisation <= _DEVICE_CACHE):
            said = f"{quantity(held, 'B')} again and again through {quantity(cache, 'B')} of cache"
            return found("cache_resident", said)
    if facts.fewer_bytes is not None and nbytes and side == "memory" and utilisation * facts.fewer_bytes / nbytes <= 1.0:
        said = f"its own algorithm moves {quantity(facts.fewer_bytes, 'B')}, not {quantity(nbytes, 'B')}: a byte-reduction win"
        return found("different_algorithm", said)
    if facts.correct is False:
        return found("work_skipped", "its output failed the check")
    return found("unexplained", f"{utilisation:.4g} times the roof, and none of the known mistakes gives that factor")
