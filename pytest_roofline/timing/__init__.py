"""Where seconds come from: a call timed on the clock of its device, or the statistics of a benchmark plugin.

No module here imports pytest or an array library.
"""

from .measuring import Comparison, Speedup, compare, measure
from .settings import Settings

__all__ = ["Comparison", "Settings", "Speedup", "compare", "measure"]
