"""Where seconds come from: a call timed on the clock of its device, or the statistics of a benchmark plugin.

No module here imports pytest or an array library.
"""

from .measurement import Comparison, Speedup, compare, measure
from .plugins import codspeed_count, of_benchmark_json, of_codspeed, of_pytest_benchmark
from .sampling import Settings

__all__ = [
    "Comparison",
    "Settings",
    "Speedup",
    "codspeed_count",
    "compare",
    "measure",
    "of_benchmark_json",
    "of_codspeed",
    "of_pytest_benchmark",
]
