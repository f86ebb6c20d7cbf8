"""What a measurement says of a prediction: consistent with it, above it, or beyond what the roof allows.

The rules are those of the design's section 4. ``beyond_roof`` and ``near_roof`` come from the row's own time; the other
statuses compare a speedup over a baseline with what was thought attainable. The measurement always wins: a contradiction
says that a model, a peak, a prior or a time is wrong, never that the kernel is.

A rate beyond the roof, or a printed figure that shape and time do not give, gets a cause: the first test that fits. Each test
is a number: a factor that a known mistake would make, a peak that breaks a rule, a working set that a cache holds. Where none
fits the cause is ``unexplained``. The tests and their order are those of the field's own post-mortems, named beside each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .fields import Entry
from .peaks import CPU, OVER_RATED_BOARD, Peaks, clock_margin
from .roofline import CACHE_REACH, ISOLATED_NOISE, assess, attainable_speedup, cache_bytes, roof_of, route
from .units import quantity
from .work import Work

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


class Mistake(NamedTuple):
    """A way to count the row that somebody might have taken: what it multiplies the figure of ``axis`` by (both: "")."""

    cause: str
    factor: float
    axis: str
    why: str


class Facts(NamedTuple):
    """What is known of a row beside its work and its time.

    hand_written: the time is exactly one of its printed unit. counted: bytes by counters over the compulsory ones.
    timed_flops: FLOPs of what was timed, where the record says them and the op is named otherwise. alternatives: mistakes that
    this row's shape makes possible. working_set: bytes that the timed loop uses again. cold: flushed or rotated.
    fewer_bytes: of the candidate's own algorithm. correct: what a check of the output said; None where there was none.
    """

    hand_written: bool = False
    counted: float | None = None
    timed_flops: float | None = None
    alternatives: tuple[Mistake, ...] = ()
    working_set: float | None = None
    cold: bool = False
    fewer_bytes: float | None = None
    correct: bool | None = None


class Claim(NamedTuple):
    """A printed rate: B/s of ``memory`` or FLOP/s of ``compute``. digits: half its last printed digit, as a fraction."""

    axis: str
    claimed: float
    digits: float = 0.0


class Finding(NamedTuple):
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


def explain_claim(claim: Claim, recomputed: float, facts: Facts = Facts()) -> Finding | None:  # noqa: B008  # immutable
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


def _generic(axis: str) -> Iterator[Mistake]:
    for factor in _UNITS:
        for value, sign in ((factor, ""), (1 / factor, "1/")):
            yield Mistake("accounting_unit", value, "", f"a unit or a decimal place, {sign}{factor:.4g}")
    for factor in _WIDTHS:
        for value, sign in ((factor, ""), (1 / factor, "1/")):
            if axis == "memory":
                yield Mistake("dtype_width", value, axis, f"elements counted at {sign}{factor:g} times their width")
            elif factor == 2.0:
                yield Mistake("flop_convention", value, axis, f"FLOPs counted {sign}{factor:g} times")


def explain_unit(model_flops: float, facts: Facts) -> Finding | None:
    """Whether what was timed is another unit than the op named: a record called swiglu that times three GEMMs."""
    if facts.timed_flops is None or model_flops <= 0 or facts.timed_flops / model_flops < 1 / LEAVES[0]:
        return None
    factor = facts.timed_flops / model_flops
    return found("accounting_unit", f"what was timed does {factor:.4g} times the FLOPs of the op it is named after", factor)


def explain_excess(axis: str, utilisation: float, nbytes: float | None, peaks: Peaks, facts: Facts = Facts()) -> Finding:  # noqa: B008
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
        if held <= CACHE_REACH * cache and (peaks.product == CPU or utilisation <= _DEVICE_CACHE):
            said = f"{quantity(held, 'B')} again and again through {quantity(cache, 'B')} of cache"
            return found("cache_resident", said)
    if facts.fewer_bytes is not None and nbytes and side == "memory" and utilisation * facts.fewer_bytes / nbytes <= 1.0:
        said = f"its own algorithm moves {quantity(facts.fewer_bytes, 'B')}, not {quantity(nbytes, 'B')}: a byte-reduction win"
        return found("different_algorithm", said)
    if facts.correct is False:
        return found("work_skipped", "its output failed the check")
    return found("unexplained", f"{utilisation:.4g} times the roof, and none of the known mistakes gives that factor")


STATUSES = (  # the first that applies
    "not_falsifiable",
    "beyond_roof",
    "near_roof",
    "not_comparable",
    "regression",
    "no_change",
    "exceeds_target",
    "consistent",
    "not_checked",
)
BASELINE_KINDS = ("live", "previous", "eager", "compiled", "reference", "unknown")
#: A prediction is about this kernel, so only this kernel's own earlier time is its baseline.
COMPARABLE = ("live", "previous")
SOURCES = ("pytest-benchmark", "pytest-codspeed", "roofline", "user")
CLOCKS = ("host", "host+sync", "device-event", "device-graph", "unknown")
CACHES = ("cold", "warm", "unknown")
#: Over the limit by this factor a rate is beyond the roof, below it near: timers and data sheets are good to about 5 %.
BEYOND = 1.05
#: A measured ceiling of low confidence was taken while others used the cores: rounds that had a third of them are common, and
#: a GEMM is another third under its roof. It is good to an order of magnitude, no more.
DISTURBED = 10.0
#: How many times faster than memory the caches of a CPU can be that keep warm operands, down to its L1: 96 B a clock (Zen 4,
#: two loads and a store) on 16 cores at 5 GHz are 7.7 TB/s over 83 GB/s of two DDR5-5200 channels, 92, and 512-bit cores have
#: twice that. A benchmark on a CPU is warm unless it says otherwise; a device's is asked to be cold.
CACHE_OVER_MEMORY = 200.0
#: What a kernel writes may still be in a CPU's cache at its end, and of a copy's bytes that is half.
WRITTEN = 2.0


NOTHING = Facts()
NOT_FALSIFIABLE = "its roof time is under the dispatch floor: no time could contradict it"


class Measurement(NamedTuple):
    """One time of one unit of work, in seconds: the median over rounds with its quartiles.

    source: who measured (``pytest-benchmark``, ``pytest-codspeed``, ``roofline``, ``user``). clock: ``host`` (no device wait
    known), ``host+sync``, ``device-event``, ``device-graph`` or ``unknown``. cache: ``cold`` (flushed or rotated before each
    round), ``warm`` (the same operands round after round) or ``unknown``. rounds: how many there were. wall_s: of one call on
    the host, from launch to result, where t_s is a device's; busy_s: the device time to hold it against, where t_s was taken
    with another state of the cache.
    """

    source: str
    t_s: float
    q1_s: float | None = None
    q3_s: float | None = None
    rounds: int | None = None
    clock: str = "unknown"
    cache: str = "unknown"
    notes: tuple[str, ...] = ()
    wall_s: float | None = None
    busy_s: float | None = None

    @property
    def spread(self) -> float:
        """Interquartile range over the median; 0 where the quartiles are not known."""
        if self.q1_s is None or self.q3_s is None:
            return 0.0
        return (self.q3_s - self.q1_s) / self.t_s


class Overhead(NamedTuple):
    """What of a call's wall time no device time covers: launches, the gaps between them, the host. No roof shows it.

    launches: in the call, where known. share: of the wall time, 0 to 1. graph_speedup: wall over device time, the most that
    replaying the launches as one graph could win.
    """

    wall_s: float
    share: float
    graph_speedup: float
    launches: float | None = None


class Baseline(NamedTuple):
    """What a row is compared with: the time of one unit (s), or a speedup somebody else worked out.

    kind: ``live`` (timed by turns in this run), ``previous`` (the same kernel, earlier, on this machine), or something that
    a prediction is not about: ``eager``, ``compiled``, ``reference``, ``unknown``.
    """

    kind: str
    t_s: float | None = None
    speedup: float | None = None
    spread: float = 0.0
    source: str = ""


class Prediction(NamedTuple):
    """What was thought of the kernel before: attainable_speedup over its baseline, and that baseline's ratio to the roof.

    matched: how the measurement was found to be of this kernel.
    """

    kernel: str
    attainable_speedup: float | None
    roofline_pct: float | None = None
    roof_axis: str | None = None
    headroom_class: str = "unknown"
    confidence: str = "low"
    pct_gpu_time: float | None = None
    source: str = ""
    matched: str = ""


class Check(NamedTuple):
    """The outcome for one row.

    utilisation: the row's rate over the rated peak of ``axis``, by its smallest byte model. limit: what a right measurement
    can reach over that peak, and why (``limit_basis``). band: the relative change that is noise.
    """

    status: str
    message: str = ""
    axis: str | None = None
    utilisation: float | None = None
    limit: float | None = None
    limit_basis: str = ""
    speedup: float | None = None
    attainable: float | None = None
    band: float | None = None
    cause: str | None = None
    decided: str | None = None  # the figures that decided the cause

    @property
    def experiment(self) -> str | None:
        """What would confirm the cause."""
        return EXPERIMENTS[self.cause] if self.cause else None


class Limit(NamedTuple):
    """What a right measurement can reach over a rated peak."""

    code: str  # measured, full_bus, highest_clock, clock_unknown or baseline
    factor: float
    basis: str  # the reason, for people


def limit_of(peaks: Peaks, axis: str, rated: float) -> Limit:
    """Return what a right measurement can reach over the ``rated`` peak of an axis."""
    if peaks.source == "measured":
        if peaks.product == CPU and peaks.axis_confidence(axis) == "low":
            return Limit("measured", DISTURBED, "the ceiling was measured among other programs")
        return Limit("measured", OVER_RATED_BOARD, "a measured ceiling is a lower bound")
    top = peaks.highest(axis)
    if top:
        code, basis = ("full_bus", "the full bus") if axis == "memory" else ("highest_clock", "the highest clock")
        return Limit(code, max(1.0, top / rated), basis)
    return Limit("clock_unknown", clock_margin(peaks.product), "the highest clock is not known")


def resident(measurement: Measurement, nbytes: float, peaks: Peaks) -> bool:
    """Whether operands of ``nbytes`` may have come from a cache, round after round."""
    return measurement.cache != "cold" and nbytes <= CACHE_REACH * cache_bytes(peaks)


def _limit_with_caches(peaks: Peaks, axis: str, rated: float, nbytes: float, measurement: Measurement) -> Limit:
    """Return ``limit_of`` with what the caches of a CPU add to it on the memory axis."""
    code, factor, basis = limit_of(peaks, axis, rated)
    if peaks.product != CPU or axis != "memory" or nbytes > CACHE_REACH * cache_bytes(peaks):
        return Limit(code, factor, basis)
    if resident(measurement, nbytes, peaks):
        return Limit(code, factor * CACHE_OVER_MEMORY, f"out of a cache, and {basis}")
    return Limit(code, factor * WRITTEN, f"what it wrote may still be in a cache, and {basis}")


def lacks_device_sync(measurement: Measurement, peaks: Peaks) -> bool:
    """Whether a device's work was timed on a host's clock, with no wait for the device that is known of."""
    return peaks.product != CPU and measurement.clock in ("host", "unknown")


def assess_measurement(
    entry: Entry,
    work: Work,
    measurement: Measurement,
    peaks: Peaks,
    *,
    launches: float = 1,
    target_eff: float | None = None,
) -> Entry:
    """The verdict of one isolated measurement, whose identity and stage ``entry`` holds already.

    Operands that may have stayed in a cache give no verdict on the memory axis, and a device's work on a host's clock none
    at all: without a wait for the device such a time is of the launch.
    """
    t_ms = 1e3 * measurement.t_s
    entry = entry._replace(t_ms=t_ms / launches, launches_per_unit=launches, t_unit_ms=t_ms)
    entry = assess(entry, work, peaks, warm=measurement.cache != "cold", target_eff=target_eff, lowest=0.0)
    over = entry.unknown_reason == "infeasible" and entry.roof_axis == "memory" and (entry.roofline_pct_raw or 0.0) > 1.0
    if over and peaks.product == CPU and resident(measurement, work.bytes, peaks):  # a rate that a cache allows
        entry = entry._replace(unknown_reason="cache_resident")
    return mark_low_confidence(entry) if lacks_device_sync(measurement, peaks) else entry._replace(route=route(entry))


def launch_overhead(measurement: Measurement, launches: float | None = None) -> Overhead | None:
    """The launch overhead of a call whose wall time is known beside its device time.

    Device time over the wall time is impossible, so nothing follows from such a pair but that one of the two is wrong.
    """
    wall_s, busy_s = measurement.wall_s, measurement.busy_s or measurement.t_s
    if wall_s is None or wall_s <= 0 or not measurement.clock.startswith("device-") or busy_s > wall_s * (1 + ISOLATED_NOISE):
        return None
    busy_s = min(busy_s, wall_s)
    return Overhead(wall_s, 1.0 - busy_s / wall_s, wall_s / busy_s, launches)


def mark_low_confidence(entry: Entry) -> Entry:
    """The row for display only: its time is not one to judge by."""
    entry = entry._replace(
        headroom_class="unknown",
        unknown_reason=entry.unknown_reason or "low_confidence",
        confidence="low",
        rankable=False,
    )
    return entry._replace(route=route(entry))


def check(
    entry: Entry,
    work: Work | None,
    measurement: Measurement | None,
    peaks: Peaks | None,
    *,
    baseline: Baseline | None = None,
    prediction: Prediction | None = None,
    noise: float = ISOLATED_NOISE,
    facts: Facts = NOTHING,
) -> Check:
    """Hold one row against its roof and its prediction. See ``STATUSES``: the first that applies stands.

    Without a prediction from elsewhere, what the row's target leaves over a live or previous baseline is one.
    """
    speedup = _speedup(measurement, baseline)
    spreads = [measurement.spread if measurement else 0.0, baseline.spread if baseline else 0.0]
    out = Check("not_checked", speedup=speedup, band=max(noise, *spreads))
    if work is not None and measurement is not None and peaks is not None:
        out = _under_the_roof(out, entry, work, measurement, peaks, facts)
    elif speedup is not None and prediction is not None and prediction.roofline_pct:
        out = _by_the_baseline(out, speedup, prediction)
    if out.status != "not_checked":
        return out
    if speedup is None or baseline is None:
        why = "no time" if measurement is None else "no work to hold it against" if work is None else "no baseline"
        return out._replace(message=out.message or why)
    if baseline.kind not in COMPARABLE:
        return out._replace(
            status="not_comparable",
            message=f"{speedup:.3f}x is over {_a(baseline.kind)} baseline, a prediction is about this kernel",
        )
    band = out.band or noise
    attainable = prediction.attainable_speedup if prediction else _from_baseline(entry, work, baseline, peaks)
    out = out._replace(attainable=attainable)
    if speedup < 1 / (1 + band):
        return out._replace(
            status="regression",
            message=f"takes {1 / speedup:.3g} times as long as the {baseline.kind} baseline, noise is {band:.1%}",
        )
    if speedup < 1 + band:
        return out._replace(status="no_change", message=f"{speedup:.3f}x is within the noise of {band:.1%}")
    if attainable is None:
        return out._replace(message=f"{speedup:.3f}x, no prediction to hold it against")
    if speedup > attainable * (1 + band) and prediction is None and entry.unknown_reason == "cache_resident":
        # The target is one of the memory's roof, which says nothing of what a cache has served.
        return out._replace(
            message=f"{speedup:.3f}x, over the {attainable:.3f}x that memory allows: a cache may have served it"
        )
    if speedup > attainable * (1 + band):
        said = (
            f"{speedup:.3f}x measured, {attainable:.3f}x was thought attainable: the target was too low, the measurement stands"
        )
        return out._replace(status="exceeds_target", message=said)
    return out._replace(status="consistent", message=f"{speedup:.3f}x measured, {attainable:.3f}x attainable")


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def _speedup(measurement: Measurement | None, baseline: Baseline | None) -> float | None:
    if baseline is None:
        return None
    if baseline.t_s is not None and measurement is not None:
        return baseline.t_s / measurement.t_s
    return baseline.speedup


def _under_the_roof(out: Check, entry: Entry, work: Work, measurement: Measurement, peaks: Peaks, facts: Facts) -> Check:
    """The row's own rates, by the smallest bytes and FLOPs it can have had, against the limit of the nearer roof."""
    roof = roof_of(work, peaks)
    nbytes = min(model.bytes for model in work.candidates)
    flops = min(model.flops for model in work.candidates)
    p = roof.place(nbytes, flops, measurement.t_s)
    candidates = []
    for axis, util, peak in (("memory", p.hbm_util, roof.bandwidth), (roof.axis, p.compute_util, roof.rate)):
        if util is not None and peak:
            limit = _limit_with_caches(peaks, axis, peak, nbytes, measurement)
            candidates.append((util / limit.factor, axis, util, limit))
    if not candidates:
        return out
    _, axis, utilisation, limit = max(candidates)
    out = out._replace(axis=axis, utilisation=utilisation, limit=limit.factor, limit_basis=limit.basis)
    if entry.falsifiable is False:
        return out._replace(status="not_falsifiable", message=NOT_FALSIFIABLE)
    placed = _place(out, limit)
    if placed is out:
        return out
    held = axis == "memory" and resident(measurement, nbytes, peaks)
    told = f"its {quantity(nbytes, 'B')} may have stayed in {quantity(cache_bytes(peaks), 'B')} of cache: flush between rounds"
    if placed.status == "beyond_roof":
        again = held and peaks.product != CPU and facts.working_set is None
        beside = facts._replace(cold=measurement.cache == "cold", working_set=nbytes if again else facts.working_set)
        finding = explain_excess(axis, utilisation, nbytes, peaks, beside)
        why = {"unexplained": _SUSPECTS, "cache_resident": told}.get(finding.cause, finding.decided)
        return placed._replace(cause=finding.cause, decided=why, message=f"{placed.message}; {why}")
    if placed.status == "near_roof" and held and peaks.product == CPU:
        # Not against the roof of the memory, so it says nothing: what the baseline says stands.
        return out._replace(cause="cache_resident", decided=told, message=f"{utilisation:.3g} times the memory roof; {told}")
    return placed


def _by_the_baseline(out: Check, speedup: float, prediction: Prediction) -> Check:
    """Where the row has no time of its own: the ratio its baseline had, times the speedup."""
    utilisation = (prediction.roofline_pct or 0.0) * speedup
    factor = clock_margin(None) if prediction.roof_axis == "compute" else 1.0
    limit = Limit("baseline", factor, "the baseline's ratio times the speedup")
    axis, basis = prediction.roof_axis, limit.basis
    return _place(out._replace(axis=axis, utilisation=utilisation, limit=factor, limit_basis=basis), limit)


_SUSPECTS = "a kernel that does not run, a missing sync, a cached result, over-counted work or a wrong peak"


def _place(out: Check, limit: Limit) -> Check:
    """beyond_roof, near_roof, or unchanged, from the utilisation and its limit."""
    if out.utilisation is None or out.utilisation <= 1.0:
        return out
    roof = f"{out.utilisation:.3g} times the {out.axis or 'known'} roof"
    if out.utilisation > BEYOND * limit.factor:
        return out._replace(status="beyond_roof", message=f"{roof}, {BEYOND * limit.factor:.3g} is possible ({limit.basis})")
    under = ": the ceiling may be under-measured" if limit.code == "measured" else f": possible with {limit.basis}"
    return out._replace(status="near_roof", message=roof + under)


def _from_baseline(entry: Entry, work: Work | None, baseline: Baseline, peaks: Peaks | None) -> float | None:
    """What the target leaves over the baseline's own time; None where that time has no ratio or the row no target."""
    if work is None or peaks is None or baseline.t_s is None or entry.target_eff is None:
        return None
    p = roof_of(work, peaks).place(work.bytes, work.flops, baseline.t_s)
    if p.raw is None or not 0 < p.raw <= 1:
        return None
    return attainable_speedup(p.raw, entry.target_eff, baseline.t_s / entry.launches_per_unit, peaks.dispatch_floor_s)
