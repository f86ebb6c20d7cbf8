"""What the pairs say: realised over predicted by group, in both directions, and the speedup to expect of the next one."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from roofline_engine.roofline import SERVING_NOISE

from .pair import Pair

AGREES, OVER_PROMISED, EXCEEDED = "agrees", "over_promised", "exceeded"

#: So many pairs of a group weigh as much as all pairs together in what is expected of it, and so many kernels as much as the
#: prior in a target: with fewer, a 90th percentile rests on the two largest of them.
ENOUGH = 20
#: How many pairs without any gain are assumed before the first one is seen.
PRIOR = 4


def outcome(pair: Pair) -> str | None:
    """How the isolated speedup stands to the one thought attainable; None where either is not known.

    Within the pair's noise of it is agreement. A speedup that is none, against a promise of more, is over-promised.
    """
    if pair.ratio is None:
        return None
    if pair.ratio > 1 + pair.noise:
        return EXCEEDED
    return OVER_PROMISED if pair.ratio < 1 / (1 + pair.noise) else AGREES


def outcome_e2e(pair: Pair) -> str | None:
    """Likewise end to end, where the difference in percent of the run is what is noisy."""
    if pair.predicted_e2e_pct is None or pair.measured_e2e_pct is None:
        return None
    difference = pair.measured_e2e_pct.mid - pair.predicted_e2e_pct.mid
    if abs(difference) <= 100 * SERVING_NOISE:
        return AGREES
    return EXCEEDED if difference > 0 else OVER_PROMISED


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Outcomes of one kind: how many of each."""

    n: int = 0
    agrees: int = 0
    over_promised: int = 0
    exceeded: int = 0

    @classmethod
    def of(cls, outcomes: Iterable[str | None]) -> Tally:
        """Count; None is not counted."""
        told = [item for item in outcomes if item is not None]
        return cls(
            n=len(told), agrees=told.count(AGREES), over_promised=told.count(OVER_PROMISED), exceeded=told.count(EXCEEDED)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Pairs that were predicted alike.

    key: what they share. ratio: geometric mean of realised over predicted speedup, with the smallest and the largest, and
    ``spread``, the geometric standard deviation as a factor (None of one pair). isolated, e2e: the outcomes.
    e2e_difference: median of measured minus predicted, percent of the run.
    """

    key: tuple[str, ...]
    isolated: Tally
    ratio: float | None
    lowest: float | None
    highest: float | None
    spread: float | None
    e2e: Tally
    e2e_difference: float | None


def group(pairs: Iterable[Pair], key: Callable[[Pair], tuple[str, ...]]) -> list[Group]:
    """The groups that have a pair with an outcome, those with most isolated pairs first."""
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
    """What speedups predictions have come to so far.

    The speedup to expect is what pairs have realised on average, never more than what is attainable: ``min(attainable,
    exp(m))``. m, the mean of ln(max(1, measured)) over all pairs with both figures, counts ``PRIOR`` pairs without a gain
    beside them; the mean of a group (op, bound_type, stage, device) is drawn towards it as if ``ENOUGH`` of its pairs had
    just that. A candidate that is slower than what it replaces is not taken, hence the max.
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
        without: Pair | None = None,
    ) -> float | None:
        """The speedup to expect where ``attainable`` is thought possible; None before there is any experience.

        without: a pair of the experience that is left out of it, so that none is its own evidence.
        """
        n, total = self._n, self._sum
        key = (op, bound_type, stage, device)
        n_group, total_group = self._groups.get(key, (0, 0.0))
        gain = None if without is None else _gain(without)
        if gain is not None and without is not None:
            n, total = n - 1, total - gain
            if without.key == key:
                n_group, total_group = n_group - 1, total_group - gain
        if n <= 0:
            return None
        everywhere = total / (n + PRIOR)
        here = (ENOUGH * everywhere + total_group) / (ENOUGH + n_group)
        return min(attainable, math.exp(max(0.0, here)))

    def of(self, pair: Pair) -> float | None:
        """The speedup to expect of the kernel of ``pair``, which is left out where it has come to something itself."""
        if pair.attainable is None:
            return None
        op, bound_type, stage, device = pair.key
        return self.expected(
            pair.attainable.mid,
            op=op,
            bound_type=bound_type,
            stage=stage,
            device=device,
            without=pair if pair.ratio is not None else None,
        )


def _gain(pair: Pair) -> float | None:
    return None if pair.ratio is None or pair.measured is None else math.log(max(1.0, pair.measured.mid))
