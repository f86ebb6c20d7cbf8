"""Targets from what kernels have been seen to reach: a proposal, which nothing takes up unless its file is named."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from roofline_engine.inputs import TARGETS_SCHEMA
from roofline_engine.work import TARGET_EFF

from .pair import Pair
from .summary import ENOUGH


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One (device, op, axis, dtype): its prior target, what ``n`` kernels of it reach, and the target to use.

    observed: the quantile over kernels of the best ratio that each has been seen at. target_eff: None where it stays as it
    is, ``why`` says for what reason.
    """

    device: str
    op: str
    axis: str
    dtype: str
    prior: float | None
    observed: float
    n: int
    target_eff: float | None
    why: str
    source: str


def achieved(pair: Pair) -> float | None:
    """The best ratio to its roof that the kernel of ``pair`` was seen at, a fraction; None where none is known or possible.

    That of the new time where it was recorded, else that before times the speedup, which holds while the bytes and FLOPs
    stay; never less than that before, since an attempt that fails takes nothing away.
    """
    before = pair.predicted_pct.mid if pair.predicted_pct else None
    after = pair.achieved_pct.mid if pair.achieved_pct else None
    if after is None and before is not None and pair.measured is not None:
        after = before * pair.measured.mid
    known = [value for value in (before, after) if value is not None and 0 < value <= 1]
    return max(known) if known else None


def quantile(values: Sequence[float], q: float) -> float:
    """The smallest of ``values`` that at least the share ``q`` of them does not exceed: one that was seen, not a mean."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(q * len(ranked) - 1e-9) - 1)]


def propose(pairs: Iterable[Pair], q: float = 0.9) -> list[Proposal]:
    """A proposal for each (device, op, axis, dtype) that pairs name in full, with those of each kernel taken as one.

    The prior moves towards the quantile as if ``ENOUGH`` kernels stood behind it; an op without a prior gets the quantile
    once as many were seen. A target is never lowered: that nobody has reached it yet does not say that it cannot be.

    Raises:
        ValueError: when ``q`` is not over 0 and up to 1.
    """
    if not 0 < q <= 1:
        raise ValueError(f"quantile is {q}, expected over 0 and up to 1")
    best: dict[tuple[str, str, str, str], dict[tuple[str, str], float]] = {}
    sources: dict[tuple[str, str, str, str], set[str]] = {}
    for pair in pairs:
        key, reached = (pair.device, pair.op, pair.axis, pair.dtype), achieved(pair)
        if reached is None or not all(key):
            continue
        kernels = best.setdefault(key, {})
        name = (pair.kernel, pair.stack)
        kernels[name] = max(kernels.get(name, 0.0), reached)
        sources.setdefault(key, set()).add(pair.date or "undated")
    found = []
    for key, kernels in sorted(best.items()):
        observed, n, prior = quantile(list(kernels.values()), q), len(kernels), TARGET_EFF.get(key[1])
        target, why = _moved(prior, observed, n)
        dates = sorted(sources[key])
        when = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
        found.append(
            Proposal(
                device=key[0],
                op=key[1],
                axis=key[2],
                dtype=key[3],
                prior=prior,
                observed=observed,
                n=n,
                target_eff=target,
                why=why,
                source=f"ledger, {when}: {q:g} quantile {observed:.4g} of {n} kernels, prior {_or_none(prior)}",
            )
        )
    return found


def _moved(prior: float | None, observed: float, n: int) -> tuple[float | None, str]:
    if prior is None:
        if n < ENOUGH:
            return None, f"no prior, and {ENOUGH} kernels are needed without one"
        return round(observed, 4), "no prior"
    if observed <= prior:
        return None, "not over the prior: that it was not reached is no evidence against it"
    return round(prior + n / (n + ENOUGH) * (observed - prior), 4), f"{n} kernels against a prior worth {ENOUGH}"


def _or_none(value: float | None) -> str:
    return "none" if value is None else f"{value:g}"


def document(proposals: Iterable[Proposal], q: float) -> dict[str, Any]:
    """The targets that move, as the file that the engine's ``read_targets`` reads."""
    rows = [
        {
            "device": item.device,
            "op": item.op,
            "axis": item.axis,
            "dtype": item.dtype,
            "target_eff": item.target_eff,
            "prior": item.prior,
            "observed": item.observed,
            "n": item.n,
            "source": item.source,
        }
        for item in proposals
        if item.target_eff is not None
    ]
    return {"schema": TARGETS_SCHEMA, "quantile": q, "targets": rows}
