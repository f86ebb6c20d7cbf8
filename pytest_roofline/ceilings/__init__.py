"""The measured ceilings of the machine that the tests run on, and the GPU that it has.

``cpu_peaks`` returns the engine's ``Peaks`` of this CPU, from the cache or from a quick measurement. ``ceilings`` returns the
full record behind them, ``remeasure`` checks one of its ceilings again, ``add_dtype`` adds that of a narrow dtype.
``find_device`` names the GPU. Nothing here imports pytest; numpy is imported only where it measures.
"""

from .gpu import Gpu, find_device
from .kernels import TORCH_DTYPES
from .measure import add_dtype, ceilings, cpu_peaks, remeasure
from .store import Ceiling, Ceilings, Say

__all__ = [
    "TORCH_DTYPES",
    "Ceiling",
    "Ceilings",
    "Gpu",
    "Say",
    "add_dtype",
    "ceilings",
    "cpu_peaks",
    "find_device",
    "remeasure",
]
