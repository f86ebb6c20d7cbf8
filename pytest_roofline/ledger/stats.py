"""What the pairs show: realized over predicted by group, the speedup to expect of the next one, and targets to raise."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from roofline_engine.inputs import TARGETS_SCHEMA
from roofline_engine.roofline import SERVING_NOISE
from roofline_engine.work import TARGET_EFF

from .store import Pair

AGREES, OVER_PROMISED, EXCEEDED = "agrees", "over_promised", "exceeded"

#: The number of pairs of a group that weigh as much as all pairs in the expected speedup, and the number of kernels that weigh
#: as much as the prior in a target: a 90th percentile of fewer rests on the two largest.
ENOUGH = 20
#: The number of pairs without gain that the mean assumes before the first real pair.
PRIOR = 4


def outcome(pair: Pair) -> str | None:
    """Compare the isolated speedup with the predicted one; None where either is unknown.

    A difference within the pair's noise is agreement. No gain against a predicted gain is over-promised.
    """
    if pair.ratio is None:
        return None
    if pair.ratio > 1 + pair.noise:
        return EXCEEDED
    return OVER_PROMISED if pair.ratio < 1 / (1 + pair.noise) else AGREES


def outcome_e2e(pair: Pair) -> str | None:
    """Compare the end-to-end gains, whose difference in percent of the run is what is noisy."""
    if pair.predicted_e2e_pct is None or pair.measured_e2e_pct is None:
        return None
    difference = pair.measured_e2e_pct.mid - pair.predicted_e2e_pct.mid
    if abs(difference) <= 100 * SERVING_NOISE:
        return AGREES
    return EXCEEDED if difference > 0 else OVER_PROMISED


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The numbers of outcomes of one kind."""

    n: int
    agrees: int
    over_promised: int
    exceeded: int

    @classmethod
    def of(cls, outcomes: Iterable[str | None]) -> Tally:
        """Count the outcomes that are not None."""
        counts = Counter(outcomes)
        return cls(n=counts.total() - counts[None], **{name: counts[name] for name in (AGREES, OVER_PROMISED, EXCEEDED)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Pairs that share a key."""

    key: tuple[str, ...]
    isolated: Tally
    ratio: float | None  # the geometric mean of realized over predicted speedup
    lowest: float | None  # the smallest of these ratios
    highest: float | None  # the largest
    spread: float | None  # their geometric standard deviation as a factor; None for one pair
    e2e: Tally
    e2e_difference: float | None  # the median of measured minus predicted, percent of the run


def group(pairs: Iterable[Pair], key: Callable[[Pair], tuple[str, ...]]) -> list[Group]:
    """Return the groups that have a pair with an outcome, the ones with most isolated pairs first."""
    by_key: dict[tuple[str, ...], list[Pair]] = {}
    for pair in pairs:
        if outcome(pair) or outcome_e2e(pair):
            by_key.setdefault(key(pair), []).append(pair)
    groups = [_group(name, members) for name, members in by_key.items()]
    return sorted(groups, key=lambda item: (-item.isolated.n, -item.e2e.n, item.key))


def _group(key: tuple[str, ...], pairs: Sequence[Pair]) -> Group:
    logs = [math.log(pair.ratio) for pair in pairs if pair.ratio is not None]
    differences = [
        pair.measured_e2e_pct.mid - pair.predicted_e2e_pct.mid
        for pair in pairs
        if pair.measured_e2e_pct is not None and pair.predicted_e2e_pct is not None
    ]
    return Group(
        key=key,
        isolated=Tally.of(map(outcome, pairs)),
        ratio=math.exp(statistics.fmean(logs)) if logs else None,
        lowest=math.exp(min(logs)) if logs else None,
        highest=math.exp(max(logs)) if logs else None,
        spread=math.exp(statistics.stdev(logs)) if len(logs) > 1 else None,
        e2e=Tally.of(map(outcome_e2e, pairs)),
        e2e_difference=statistics.median(differences) if differences else None,
    )


class Experience:
    """The speedups that predictions have realized so far.

    The expected speedup is what pairs have realized on average, never more than what is attainable: ``min(attainable,
    exp(m))``. m is the mean of ln(max(1, measured)) over all pairs with both figures and ``PRIOR`` pairs without a gain. The
    mean of a group (op, bound_type, stage, device) is drawn toward m as if ``ENOUGH`` of its pairs had exactly m. The max is
    there because a candidate that is slower than what it replaces is not used.
    """

    def __init__(self, pairs: Iterable[Pair]) -> None:
        self._n, self._sum = 0, 0.0
        self._groups: dict[tuple[str, ...], tuple[int, float]] = {}
        for pair in pairs:
            gain = _gain(pair)
            if gain is not None:
                n, total = self._groups.get(pair.key, (0, 0.0))
                self._groups[pair.key] = n + 1, total + gain
                self._n, self._sum = self._n + 1, self._sum + gain

    def expected(
        self,
        attainable: float,
        *,
        op: str = "unknown",
        bound_type: str = "unknown",
        stage: str = "",
        device: str = "",
    ) -> float | None:
        """Return the expected speedup for an attainable one; None before the first pair."""
        return self._expect(attainable, (op, bound_type, stage, device), None)

    def of(self, pair: Pair) -> float | None:
        """Return the expected speedup of the kernel of ``pair``, without the pair as evidence for itself."""
        return None if pair.attainable is None else self._expect(pair.attainable.mid, pair.key, _gain(pair))

    def _expect(self, attainable: float, key: tuple[str, ...], known: float | None) -> float | None:
        """Return the expected speedup; ``known`` is the gain of a pair with this key to leave out."""
        n, total = self._n, self._sum
        n_group, total_group = self._groups.get(key, (0, 0.0))
        if known is not None:
            n, total, n_group, total_group = n - 1, total - known, n_group - 1, total_group - known
        if n <= 0:
            return None
        everywhere = total / (n + PRIOR)
        here = (ENOUGH * everywhere + total_group) / (ENOUGH + n_group)
        return min(attainable, math.exp(max(0.0, here)))


def _gain(pair: Pair) -> float | None:
    return None if pair.ratio is None or pair.measured is None else math.log(max(1.0, pair.measured.mid))


# Targets from what kernels reached: a proposal, which takes effect only where its file is named.


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The proposed target of one (device, op, axis, dtype)."""

    device: str
    op: str
    axis: str
    dtype: str
    prior: float | None  # the prior target; None for an op without one
    observed: float  # the quantile over kernels of the best ratio that each reached
    n: int  # the number of kernels
    target_eff: float | None  # None where the prior stays
    why: str
    source: str


def achieved(pair: Pair) -> float | None:
    """Return the best ratio to the roof that the kernel reached, a fraction; None where it is unknown or impossible.

    It is the ratio of the new time where that was recorded. Otherwise it is the ratio before times the speedup, which is right
    while the bytes and FLOPs stay the same. It is at least the ratio before, because a failed attempt takes nothing away.
    """
    before = pair.predicted_pct.mid if pair.predicted_pct else None
    after = pair.achieved_pct.mid if pair.achieved_pct else None
    if after is None and before is not None and pair.measured is not None:
        after = before * pair.measured.mid
    possible = [value for value in (before, after) if value is not None and 0 < value <= 1]
    return max(possible, default=None)


def quantile(values: Sequence[float], q: float) -> float:
    """Return the smallest of ``values`` that at least the share ``q`` of them does not exceed: never an interpolation."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(q * len(ranked) - 1e-9) - 1)]


def propose(pairs: Iterable[Pair], q: float = 0.9) -> list[Proposal]:
    """Return a proposal for each (device, op, axis, dtype) that pairs name in full. The pairs of a kernel count once.

    The prior moves toward the quantile as if ``ENOUGH`` kernels supported the prior. An op without a prior gets the quantile of
    at least ``ENOUGH`` kernels. A target is never lowered: that no kernel has reached it is no evidence that none can.

    Raises ValueError if ``q`` is not over 0 and up to 1.
    """
    if not 0 < q <= 1:
        raise ValueError(f"quantile is {q}, expected over 0 and up to 1")
    best: dict[tuple[str, str, str, str], dict[tuple[str, str], float]] = {}
    sources: dict[tuple[str, str, str, str], set[str]] = {}
    for pair in pairs:
        key, ratio = (pair.device, pair.op, pair.axis, pair.dtype), achieved(pair)
        if ratio is None or not all(key):
            continue
        kernels = best.setdefault(key, {})
        name = (pair.kernel, pair.stack)
        kernels[name] = max(kernels.get(name, 0.0), ratio)
        sources.setdefault(key, set()).add(pair.date or "undated")
    proposals = []
    for key, kernels in sorted(best.items()):
        device, op, axis, dtype = key
        observed, n, prior = quantile(list(kernels.values()), q), len(kernels), TARGET_EFF.get(op)
        target, why = _move(prior, observed, n)
        prior_text = "none" if prior is None else f"{prior:g}"
        dates = sorted(sources[key])
        period = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
        proposals.append(
            Proposal(
                device=device,
                op=op,
                axis=axis,
                dtype=dtype,
                prior=prior,
                observed=observed,
                n=n,
                target_eff=target,
                why=why,
                source=f"ledger, {period}: {q:g} quantile {observed:.4g} of {n} kernels, prior {prior_text}",
            )
        )
    return proposals


def _move(prior: float | None, observed: float, n: int) -> tuple[float | None, str]:
    if prior is None:
        if n < ENOUGH:
            return None, f"an op without a prior needs {ENOUGH} kernels"
        return round(observed, 4), "no prior"
    if observed <= prior:
        return None, "not over the prior, which stays: a target that is not reached may be reachable"
    return round(prior + n / (n + ENOUGH) * (observed - prior), 4), f"{n} kernels against a prior that counts as {ENOUGH}"


def document(proposals: Iterable[Proposal], q: float) -> dict[str, Any]:
    """Return the targets that change, in the format that the engine's ``read_targets`` reads."""
    rows = [asdict(item) for item in proposals if item.target_eff is not None]
    for row in rows:
        del row["why"]
    return {"schema": TARGETS_SCHEMA, "quantile": q, "targets": rows}
