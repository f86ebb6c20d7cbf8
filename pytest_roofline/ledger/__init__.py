"""Predicted against actual speedups over time, in a file of JSON lines.

``append`` and ``read`` are the file; ``locate`` finds the one of a project. ``pair_of`` makes a row a pair. ``Experience``
returns the speedup to expect, ``group`` how good predictions were, ``propose`` the targets to raise. Nothing here imports
pytest.
"""

from .stats import Experience, Group, Proposal, group, outcome, outcome_e2e, propose
from .store import Interval, Ledger, Pair, append, locate, pair_of, read

__all__ = [
    "Experience",
    "Group",
    "Interval",
    "Ledger",
    "Pair",
    "Proposal",
    "append",
    "group",
    "locate",
    "outcome",
    "outcome_e2e",
    "pair_of",
    "propose",
    "read",
]
