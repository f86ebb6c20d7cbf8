"""The CPU of this machine as a run sees it: its ceilings, found once, and doubted once per axis when a row exceeds them."""

from __future__ import annotations

from collections.abc import Callable

from roofline_engine.peaks import Peaks

from . import ceilings


class Host:
    """say: told in one line what went otherwise."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self._found: ceilings.Ceilings | None = None
        self._doubted: set[str] = set()

    def peaks(self) -> Peaks:
        """From the cache, else from a measurement of a few seconds; never the long one. A doubtful axis is measured again."""
        found = ceilings.ceilings("quick", say=self.say)
        for axis, item in found.axes().items():
            if not item.steady:
                found = ceilings.remeasure(found, axis, say=self.say)
        self._found = found
        return found.peaks()

    def remeasure(self, peaks: Peaks, axis: str | None) -> Peaks:
        """``peaks``, or larger ones where measuring the axis once more gives them."""
        if self._found is None or axis is None or axis in self._doubted:
            return peaks
        self._doubted.add(axis)
        again = ceilings.remeasure(self._found, axis, say=self.say)
        if again == self._found:
            return peaks
        self._found = again
        return again.peaks()
