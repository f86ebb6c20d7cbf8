"""How far predicted speedups are from realized ones, and whether the ledger's expected speedup is nearer.

    python benchmarks/ledger_predictions.py PAIRS.csv

Leave one out: each pair with an isolated measurement is predicted from the others. The error is the mean of
|ln(realized / predicted)|, with a 95 % bootstrap interval over pairs (fixed seed). ``power law`` is the rule that was fixed
first and dropped for its result, see docs/ledger.md. The last column leaves out the pairs whose source calls its own
measurement unresolvable.
"""

import argparse
import math
import random
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from pytest_roofline.ledger import Experience, Pair
from pytest_roofline.ledger.store import read_csv

SEED, DRAWS = 20240607, 10_000


def _logs(pair: Pair) -> tuple[float, float]:
    assert pair.attainable is not None
    assert pair.measured is not None
    return math.log(pair.attainable.mid), math.log(pair.measured.mid)


def published(pair: Pair, others: Sequence[Pair]) -> float:
    return _logs(pair)[0]


def nothing(pair: Pair, others: Sequence[Pair]) -> float:
    return 0.0


def constant(pair: Pair, others: Sequence[Pair]) -> float:
    return statistics.fmean(_logs(other)[1] for other in others)


def expected(pair: Pair, others: Sequence[Pair]) -> float:
    op, bound_type, stage, device = pair.key
    assert pair.attainable is not None
    value = Experience(others).expected(pair.attainable.mid, op=op, bound_type=bound_type, stage=stage, device=device)
    assert value is not None
    return math.log(value)


def power_law(pair: Pair, others: Sequence[Pair]) -> float:
    """attainable**b, b by least squares in logs, drawn to 0.5 over all, then by bound, then by group, two 2x pairs each."""
    strength, b = 2 * math.log(2) ** 2, 0.5
    for alike in (lambda p: True, lambda p: p.bound_type == pair.bound_type, lambda p: p.key == pair.key):
        points = [_logs(other) for other in others if alike(other)]
        b = (strength * b + sum(x * max(0.0, y) for x, y in points)) / (strength + sum(x * x for x, _ in points))
        b = min(1.0, max(0.0, b))
    return b * _logs(pair)[0]


RULES: tuple[tuple[str, Callable[[Pair, Sequence[Pair]], float]], ...] = (
    ("published prediction", published),
    ("always 1.0", nothing),
    ("best constant", constant),
    ("expected speedup", expected),
    ("power law (dropped)", power_law),
)


def errors(pairs: Sequence[Pair], rule: Callable[[Pair, Sequence[Pair]], float]) -> list[float]:
    return [abs(_logs(pair)[1] - rule(pair, [*pairs[:at], *pairs[at + 1 :]])) for at, pair in enumerate(pairs)]


def interval(values: Sequence[float]) -> tuple[float, float]:
    draw = random.Random(SEED)
    means = sorted(statistics.fmean(draw.choices(values, k=len(values))) for _ in range(DRAWS))
    return means[int(0.025 * DRAWS)], means[int(0.975 * DRAWS) - 1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, metavar="PAIRS.csv")
    pairs = [pair for pair in read_csv(parser.parse_args().path).pairs if pair.ratio is not None]
    resolved = [pair for pair in pairs if "unresolvable" not in pair.source]
    print(f"{len(pairs)} pairs with an isolated measurement, {len(resolved)} of them resolvable")
    print(f"{'':22} mean |ln(realised/predicted)|   95 % interval    of the resolvable")
    found = {name: errors(pairs, rule) for name, rule in RULES}
    for name, rule in RULES:
        low, high = interval(found[name])
        rest = statistics.fmean(errors(resolved, rule))
        print(f"{name:22} {statistics.fmean(found[name]):28.3f}   {low:.3f} to {high:.3f}    {rest:17.3f}")
    for other in ("published prediction", "always 1.0", "best constant"):
        gaps = [mine - theirs for mine, theirs in zip(found["expected speedup"], found[other], strict=True)]
        low, high = interval(gaps)
        print(f"expected speedup minus {other}: {statistics.fmean(gaps):+.3f}, 95 % interval {low:+.3f} to {high:+.3f}")


if __name__ == "__main__":
    main()
