"""Measured ceilings of the machine that the tests run on, and which GPU it has.

``cpu_peaks`` is what a run asks for: the engine's ``Peaks`` of this CPU, from the cache or from a quick measurement.
``ceilings`` is the fuller record behind it, ``remeasure`` doubts one figure of it, ``find_device`` names the GPU.
Nothing here imports pytest, and numpy only where a measurement with it runs.
"""

from .device import Found, find_device
from .measure import ceilings, cpu_peaks, remeasure
from .record import Ceiling, Ceilings

__all__ = ["Ceiling", "Ceilings", "Found", "ceilings", "cpu_peaks", "find_device", "remeasure"]
