"""Predicted against actual speedups over time, in a Markdown file that people read and programs parse.

``append`` and ``read`` are the file, ``locate`` where a project has it; ``pair_of`` makes a row a pair,
``Experience`` says what speedup to expect, ``group`` how well predictions did, ``propose`` which targets to raise.
Nothing here imports pytest.
"""

from .calibrate import Proposal, propose
from .pair import Figure, Pair
from .rows import pair_of
from .store import Ledger, append, locate, read
from .summary import Experience, Group, group, outcome, outcome_e2e

__all__ = [
    "Experience",
    "Figure",
    "Group",
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
