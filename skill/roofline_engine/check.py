"""What a measurement says of a prediction: consistent with it, above it, or beyond what the roof allows.

The rules are those of the design's section 4. ``beyond_roof`` and ``near_roof`` come from the row's own time; the other
statuses compare a speedup over a baseline with what was thought attainable. The measurement always wins: a contradiction
says that a model, a peak, a prior or a time is wrong, never that the kernel is.
"""

from __future__ import annotations

from .causes import Facts, of_excess
from .entry import Entry
from .metrics import CACHE_REACH, ISOLATED_NOISE, assess, attainable_speedup, cache_bytes, point, route
from .models import Work
from .peaks import OVER_RATED_BOARD, Peaks, over_rated
from .record import Record
from .units import quantity

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
#: The product of peaks that were measured on a CPU.
HOST = "cpu"
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


class Measurement(Record):
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


class Overhead(Record):
    """What of a call's wall time no device time covers: launches, the gaps between them, the host. No roof shows it.

    launches: in the call, where known. share: of the wall time, 0 to 1. graph_speedup: wall over device time, the most that
    replaying the launches as one graph could win.
    """

    wall_s: float
    share: float
    graph_speedup: float
    launches: float | None = None


class Baseline(Record):
    """What a row is compared with: the time of one unit (s), or a speedup somebody else worked out.

    kind: ``live`` (timed by turns in this run), ``previous`` (the same kernel, earlier, on this machine), or something that
    a prediction is not about: ``eager``, ``compiled``, ``reference``, ``unknown``.
    """

    kind: str
    t_s: float | None = None
    speedup: float | None = None
    spread: float = 0.0
    source: str = ""


class Prediction(Record):
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


class Check(Record):
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


def limit(peaks: Peaks, axis: str, rated: float) -> tuple[float, str]:
    """What a right measurement can reach over the ``rated`` peak of an axis, as a factor, and on what that rests."""
    if peaks.source == "measured":
        if peaks.product == HOST and peaks.axis_confidence(axis) == "low":
            return DISTURBED, "the ceiling was measured among other programs"
        return OVER_RATED_BOARD, "a measured ceiling is a lower bound"
    top = peaks.highest(axis)
    if top:
        return max(1.0, top / rated), "the full bus" if axis == "memory" else "the highest clock"
    return over_rated(peaks.product), "the highest clock is not known"


def resident(measurement: Measurement, nbytes: float, peaks: Peaks) -> bool:
    """Whether operands of ``nbytes`` may have come from a cache, round after round."""
    return measurement.cache != "cold" and nbytes <= CACHE_REACH * cache_bytes(peaks)


def _possible(peaks: Peaks, axis: str, rated: float, nbytes: float, measurement: Measurement) -> tuple[float, str]:
    """``limit``, with what the caches of a CPU add to it on the memory axis."""
    factor, basis = limit(peaks, axis, rated)
    if peaks.product != HOST or axis != "memory" or nbytes > CACHE_REACH * cache_bytes(peaks):
        return factor, basis
    if resident(measurement, nbytes, peaks):
        return factor * CACHE_OVER_MEMORY, f"out of a cache, and {basis}"
    return factor * WRITTEN, f"what it wrote may still be in a cache, and {basis}"


def untimely(measurement: Measurement, peaks: Peaks) -> bool:
    """Whether a device's work was timed on a host's clock, with no wait for the device that is known of."""
    return peaks.product != HOST and measurement.clock in ("host", "unknown")


def measured(
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
    if over and peaks.product == HOST and resident(measurement, work.bytes, peaks):  # a rate that a cache allows
        entry = entry._replace(unknown_reason="cache_resident")
    return doubted(entry) if untimely(measurement, peaks) else entry._replace(route=route(entry))


def overhead(measurement: Measurement, launches: float | None = None) -> Overhead | None:
    """The launch overhead of a call whose wall time is known beside its device time.

    Device time over the wall time is impossible, so nothing follows from such a pair but that one of the two is wrong.
    """
    wall_s, busy_s = measurement.wall_s, measurement.busy_s or measurement.t_s
    if wall_s is None or wall_s <= 0 or not measurement.clock.startswith("device-") or busy_s > wall_s * (1 + ISOLATED_NOISE):
        return None
    busy_s = min(busy_s, wall_s)
    return Overhead(wall_s, 1.0 - busy_s / wall_s, wall_s / busy_s, launches)


def doubted(entry: Entry) -> Entry:
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
    axis_name, rate = peaks.compute_axis(work.engine, work.dtype.peak)
    nbytes = min(model.bytes for model in work.candidates)
    flops = min(model.flops for model in work.candidates)
    p = point(nbytes, flops, measurement.t_s, peaks.hbm_bw_bytes_s, rate)
    axes = (("memory", p.hbm_util, peaks.hbm_bw_bytes_s), (axis_name, p.compute_util, rate))
    known = []
    for axis, util, peak in axes:
        if util is not None and peak:
            factor, basis = _possible(peaks, axis, peak, nbytes, measurement)
            known.append((util / factor, axis, util, factor, basis))
    if not known:
        return out
    _, axis, utilisation, factor, basis = max(known)
    out = out._replace(axis=axis, utilisation=utilisation, limit=factor, limit_basis=basis)
    if entry.falsifiable is False:
        return out._replace(status="not_falsifiable", message=NOT_FALSIFIABLE)
    placed = _placed(out)
    held = axis == "memory" and resident(measurement, nbytes, peaks)
    told = f"its {quantity(nbytes, 'B')} may have stayed in {quantity(cache_bytes(peaks), 'B')} of cache: flush between rounds"
    if placed.status == "beyond_roof":
        again = held and peaks.product != HOST and facts.working_set is None
        beside = facts._replace(cold=measurement.cache == "cold", working_set=nbytes if again else facts.working_set)
        finding = of_excess(axis, utilisation, nbytes, peaks, beside)
        why = {"unexplained": _SUSPECTS, "cache_resident": told}.get(finding.cause, finding.decided)
        return placed._replace(cause=finding.cause, message=f"{placed.message}; {why}")
    if placed.status == "near_roof" and held and peaks.product == HOST:
        # Not against the roof of the memory, so it says nothing: what the baseline says stands.
        return out._replace(cause="cache_resident", message=f"{utilisation:.3g} times the memory roof; {told}")
    return placed


def _by_the_baseline(out: Check, speedup: float, prediction: Prediction) -> Check:
    """Where the row has no time of its own: the ratio its baseline had, times the speedup."""
    utilisation = (prediction.roofline_pct or 0.0) * speedup
    factor = over_rated(None) if prediction.roof_axis == "compute" else 1.0
    basis = "the baseline's ratio times the speedup"
    return _placed(out._replace(axis=prediction.roof_axis, utilisation=utilisation, limit=factor, limit_basis=basis))


_SUSPECTS = "a kernel that does not run, a missing sync, a cached result, over-counted work or a wrong peak"


def _placed(out: Check) -> Check:
    """beyond_roof, near_roof, or unchanged, from the utilisation and its limit."""
    if out.utilisation is None or out.limit is None or out.utilisation <= 1.0:
        return out
    roof = f"{out.utilisation:.3g} times the {out.axis or 'known'} roof"
    if out.utilisation > BEYOND * out.limit:
        return out._replace(status="beyond_roof", message=f"{roof}, {BEYOND * out.limit:.3g} is possible ({out.limit_basis})")
    under = ": the ceiling may be under-measured" if "ceiling" in out.limit_basis else f": possible with {out.limit_basis}"
    return out._replace(status="near_roof", message=roof + under)


def _from_baseline(entry: Entry, work: Work | None, baseline: Baseline, peaks: Peaks | None) -> float | None:
    """What the target leaves over the baseline's own time; None where that time has no ratio or the row no target."""
    if work is None or peaks is None or baseline.t_s is None or entry.target_eff is None:
        return None
    _, rate = peaks.compute_axis(work.engine, work.dtype.peak)
    first = work.candidates[0]
    p = point(first.bytes, first.flops, baseline.t_s, peaks.hbm_bw_bytes_s, rate, streaming=work.engine == "vector")
    if p.raw is None or not 0 < p.raw <= 1:
        return None
    return attainable_speedup(p.raw, entry.target_eff, baseline.t_s / entry.launches_per_unit, peaks.dispatch_floor_s)
