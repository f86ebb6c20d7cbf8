"""Median, quartiles, and how well the median is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

#: The quartiles of a standard normal distribution lie this far from its mean.
NORMAL_QUARTILE = 0.6745


class Quartiles(NamedTuple):
    q1: float
    median: float
    q3: float

    @property
    def spread(self) -> float:
        """Interquartile range over the median."""
        return (self.q3 - self.q1) / self.median if self.median else math.inf


def quartiles(values: Sequence[float]) -> Quartiles:
    """Linear between order statistics, the ends included: numpy's default, ``statistics.quantiles(method="inclusive")``."""
    ordered = sorted(values)
    last = len(ordered) - 1
    return Quartiles(_at(ordered, last / 4), _at(ordered, last / 2), _at(ordered, last * 3 / 4))


def uncertainty(values: Sequence[float]) -> float:
    """Interquartile range of the median's own sampling distribution, over the median.

    The rank of the true median among n values is binomial with mean n/2 and standard deviation sqrt(n)/2, whatever the
    values' distribution; so the order statistics 0.6745 sqrt(n)/2 ranks to either side enclose it half of the time (David and
    Nagaraja, Order Statistics, 7.1). Unlike the values' own interquartile range it shrinks as rounds are added.
    """
    ordered = sorted(values)
    middle, reach = (len(ordered) - 1) / 2, NORMAL_QUARTILE * math.sqrt(len(ordered)) / 2
    median = _at(ordered, middle)
    return (_at(ordered, middle + reach) - _at(ordered, middle - reach)) / median if median else math.inf


def _at(ordered: Sequence[float], rank: float) -> float:
    rank = min(max(rank, 0.0), len(ordered) - 1.0)
    below = math.floor(rank)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (rank - below)
