"""Compare runs: the kernels of the last run with their places in the earlier ones, and what changed since the first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from roofline_engine.roofline import ISOLATED_NOISE

from .model import Change, Chart, Excluded, Kernel, count_kernels, factor_text

_CHANGED = ("faster", "slower")


def compare(runs: Sequence[tuple[str, Chart]], title: str | None = None) -> Chart:
    """Return the chart of the last run with the places of its kernels in the earlier runs.

    Kernels are the same when they have the same name; of several with one name, the first is compared with the first. The
    change is that of the time, and of the rate where a run has no time.

    runs: the name and the chart of each run, the oldest first. title: replaces the generated title.
    """
    (first_name, first), (last_name, last) = runs[0], runs[-1]
    places = [_by_key(chart.kernels) for _, chart in runs[:-1]]
    old = places[0]
    kernels, changes = [], []
    for key, one in _by_key(last.kernels).items():
        earlier = tuple((at[key].intensity, at[key].rate) for at in places if key in at)
        before = old.get(key)
        factor = None if before is None else _factor(first, before, last, one)
        change = Change(one.name, before.fraction if before else None, one.fraction, factor, _word(factor))
        changes.append(change)
        shown = factor if change.word in _CHANGED else None
        kernels.append(replace(one, earlier=earlier, change=shown, fraction_before=change.fraction_before))
    gone = [one for key, one in old.items() if key not in _by_key(last.kernels)]
    changes += [Change(one.name, one.fraction, None, None, f"only in {first_name}") for one in gone]
    changes.sort(key=lambda change: (change.factor is None, change.factor or 0.0))
    missing = [Excluded(row=-1, name=one.name, kind="gone", why=f"only in {first_name}") for one in gone]
    notes = [
        f"{name} has other roofs than {last_name}: its places are drawn under the roofs of {last_name}"
        for name, chart in runs[:-1]
        if (chart.bandwidths, chart.ceilings) != (last.bandwidths, last.ceilings)
    ]
    return replace(
        last,
        title=title or _title(changes, first_name),
        subtitle=f"{' → '.join(name for name, _ in runs)}; {last.subtitle}",
        kernels=tuple(kernels),
        excluded=(*last.excluded, *missing),
        notes=(*last.notes, *notes),
        changes=tuple(changes),
        since=first_name,
    )


def _by_key(kernels: Iterable[Kernel]) -> dict[tuple[str, int], Kernel]:
    """Return the kernels by their whole name and its number among equal names."""
    counts: Counter[str] = Counter()
    found = {}
    for one in kernels:
        key = one.key or one.name
        found[key, counts[key]] = one
        counts[key] += 1
    return found


def _factor(first: Chart, before: Kernel, last: Chart, after: Kernel) -> float:
    """Return how much faster a kernel is: the ratio of the times, or that of the rates."""
    old, new = (_time(chart, kernel) for chart, kernel in ((first, before), (last, after)))
    return old / new if old and new else after.rate / before.rate


def _time(chart: Chart, kernel: Kernel) -> float | None:
    value = chart.columns.get("t_unit_ms", [])[kernel.row : kernel.row + 1]
    return float(value[0]) if value and isinstance(value[0], (int, float)) and value[0] > 0 else None


def _word(factor: float | None) -> str:
    """Return what a change is: a factor within the noise of reruns is none."""
    if factor is None:
        return "new"
    if factor > 1 + ISOLATED_NOISE:
        return "faster"
    return "slower" if factor < 1 / (1 + ISOLATED_NOISE) else "within the noise of reruns"


def _title(changes: Sequence[Change], first_name: str) -> str:
    """Return how many kernels changed, and the one that changed most."""
    counts = Counter(change.word for change in changes)
    known = [change for change in changes if change.factor is not None]
    if not known:
        return f"No kernel is in {first_name} too"
    words = [f"{count_kernels(counts[word])} {word}" for word in _CHANGED if counts[word]]
    if not words:
        return f"No kernel changed beyond the noise of reruns since {first_name}"
    changed = [change for change in known if change.word in _CHANGED]
    most = max(changed, key=lambda change: max(change.factor or 1.0, 1.0 / (change.factor or 1.0)))
    return f"{', '.join(words)} since {first_name}: {most.name} most, {factor_text(most.factor)}"
