"""The peaks of the devices that the rows of one run are of; each is found once, when the first row needs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from roofline_engine.peaks import CPU, Device, Peaks, Target
from roofline_engine.peaks_measured import PeakFiles, open_peaks
from roofline_engine.peaks_table import normalize_name

from . import ceilings as host_ceilings

AUTO = "auto"


class UnknownDeviceError(ValueError):
    """A device that neither the peak table nor the machine knows, with what to do."""


class Devices:
    """Peaks by device name.

    chosen: ``--roofline-device``: ``auto``, ``cpu``, a product or an architecture. given: ``--roofline-peaks``. hook: asked
    first, by name. of_host: the CPU's measured peaks. of_machine: the accelerator of this machine, or None.
    """

    def __init__(
        self,
        chosen: str,
        given: Path | None,
        *,
        hook: Callable[[str], Peaks | None],
        of_host: Callable[[], Peaks],
        of_machine: Callable[[], Device | None],
    ) -> None:
        self.chosen, self.given = chosen, given
        self.hook, self.of_host, self.of_machine = hook, of_host, of_machine
        self.problems: list[str] = []
        self.targets: Mapping[tuple[str, str, str, str], Target] = {}
        self._found: dict[str, Peaks] = {}
        self._machine: Device | None = None
        self._asked = False
        self._files: PeakFiles | None = None

    @property
    def found(self) -> dict[str, Peaks]:
        """The peaks that rows have used, by the name they go under."""
        return self._found

    def name(self, declared: str | None, seen: str | None) -> str | None:
        """The name of a row's device: the marker's, then that of its arrays, then the run's; None where it cannot be told.

        seen: ``cpu`` or ``gpu``, what the arrays of the test are on.
        """
        if declared is not None:
            return CPU if declared.lower() == CPU else declared
        if seen == CPU:
            return CPU
        if self.chosen != AUTO:
            return self.chosen if not (seen == "gpu" and self.chosen == CPU) else None
        machine = self.machine()
        if seen == "gpu":
            return None if machine is None else _label(machine)
        return CPU if machine is None else None  # with an accelerator at hand, a row of neither could be of either

    def machine(self) -> Device | None:
        """The accelerator of this machine, looked for once."""
        if not self._asked:
            self._asked = True
            self._machine = self.of_machine()
        return self._machine

    def is_host_only(self) -> bool:
        """Return whether the user chose the CPU, or left the choice open on a machine without an accelerator."""
        return self.chosen == CPU or (self.chosen == AUTO and self.machine() is None)

    def peaks(self, name: str) -> Peaks:
        """The peaks of a device.

        Raises:
            UnknownDeviceError: for a name that is in no table.
        """
        if name not in self._found:
            self._found[name] = self._resolved(name)._replace(targets=self.targets)
        return self._found[name]

    def same(self, one: str, other: str) -> bool:
        """Whether two names are of one product; not where one of them is in no table."""
        if normalize_name(one) == normalize_name(other):
            return True
        if CPU in (one, other):
            return False
        try:
            first, second = (self._found.get(name) or self._resolved(name) for name in (one, other))
        except (ValueError, OSError):
            return False
        return first.product == second.product if first.product and second.product else first.gfx == second.gfx is not None

    def replace(self, name: str, peaks: Peaks) -> None:
        """Take better peaks of a device: a ceiling that a row exceeded, measured once more."""
        self._found[name] = peaks._replace(targets=self.targets)

    def _resolved(self, name: str) -> Peaks:
        hooked = self.hook(name)
        if hooked is not None:
            return hooked
        if name == CPU:
            return self.of_host()
        files = self._read_files()
        machine = self.machine() if self.chosen == AUTO else None
        if machine is not None and name == _label(machine):
            found = files.rated(machine)
        else:
            found = files.rated(name)
            if found.source == "derived":
                like = files.table.near(name) if files.table else ""
                raise UnknownDeviceError(f"no peaks for device {name!r}: {like}`roofline peaks list` has the names")
        try:
            found, refused = files.lay_over(found)
            self.problems += [f"peaks: {line}" for line in refused]
        except ValueError as error:
            self.problems.append(f"peaks: {error}")
        return found

    def readable(self) -> None:
        """Read the files that were given.

        Raises:
            ValueError, OSError: when they cannot be.
        """
        self._read_files()

    def _read_files(self) -> PeakFiles:
        """Return the table and the measured ceilings to lay over it.

        Raises:
            ValueError, OSError: when a file that was given cannot be read.
        """
        if self._files is None:
            try:
                self._files = open_peaks(None if self.given is None else str(self.given))
            except OSError as error:
                raise ValueError(f"peaks not used: {self.given}: {error.strerror}") from None
        return self._files


class Host:
    """say: told in one line what went otherwise."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self._found: host_ceilings.Ceilings | None = None
        self._doubted: set[str] = set()

    def peaks(self) -> Peaks:
        """From the cache, else from a measurement of a few seconds; never the long one. A doubtful axis is measured again."""
        found = host_ceilings.ceilings("quick", say=self.say)
        for axis, item in found.axes().items():
            if not item.steady:
                found = host_ceilings.remeasure(found, axis, say=self.say)
        self._found = found
        return found.peaks()

    def remeasure(self, peaks: Peaks, axis: str | None) -> Peaks:
        """``peaks``, or larger ones where measuring the axis once more gives them."""
        if self._found is None or axis is None or axis in self._doubted:
            return peaks
        self._doubted.add(axis)
        again = host_ceilings.remeasure(self._found, axis, say=self.say)
        if again == self._found:
            return peaks
        self._found = again
        return again.peaks()


def _label(device: Device) -> str:
    return device.device_name or device.gfx or "gpu"
