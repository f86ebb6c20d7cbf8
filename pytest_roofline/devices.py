"""The peaks of the devices of one run. Each is resolved once, when the first row needs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from roofline_engine.peaks import CPU, Device, Peaks, Target
from roofline_engine.peaks_measured import PeakFiles, open_peaks
from roofline_engine.peaks_table import normalize_name
from roofline_engine.units import number
from roofline_engine.work import Work

from . import ceilings
from .values import plain

AUTO = "auto"
ELSEWHERE = "the times are of another machine, whose ceilings are not known here: --device=cpu if it is one like this"


class UnknownDeviceError(ValueError):
    """A device that is neither in the peak table nor in this machine."""


#: Fields of ``Peaks`` that are a number, or a table of numbers by name; each is above 0 or unknown.
_NUMBERS = ("hbm_bw_bytes_s", "hbm_bw_limit_bytes_s", "l2_bytes", "mall_bytes", "l2_bw_bytes_s", "units", "dispatch_floor_s")
_TABLES = ("flops", "flops_max", "vector", "vector_max", "achievable")


def read_given_peaks(given: object, where: str) -> Peaks:
    """Return the peaks that a hook gave, as plain numbers.

    where: the hook and the device, for messages.

    Raises:
        ValueError: for another type, and for a figure that is no finite number above 0, by its field.
    """
    if not isinstance(given, Peaks):
        raise ValueError(f"{where}: is {given!r:.60}, expected pytest_roofline.Peaks")
    values: dict[str, Any] = {
        key: value if isinstance(value, tuple) else plain(value) for key, value in given._asdict().items() if key != "targets"
    }

    def read(value: Any, name: str) -> float:
        if isinstance(value, str):
            raise ValueError(f"{name} is {value!r:.40}, expected a number")
        return number(value, name, above=0)

    try:
        for name in _NUMBERS:
            if values[name] is not None:
                values[name] = read(values[name], name)
        for name in _TABLES:
            if not isinstance(values[name], dict):
                raise ValueError(f"{name} is {values[name]!r:.40}, expected a table of rates by dtype")
            values[name] = {key: read(value, f"{name}[{key!r}]") for key, value in values[name].items()}
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    return given._replace(**values)


class Devices:
    """Resolves peaks by the name of a device: hook, this machine's measured CPU, peak table and measured ceilings."""

    def __init__(
        self,
        chosen: str,  # ``--roofline-device``: ``auto``, ``cpu``, a product or an architecture
        given: Path | None,  # ``--roofline-peaks``
        hook: Callable[[str], Peaks | None] = lambda name: None,
        *,
        measures_cpu: bool = True,  # false for times of another machine
        uses_accelerator: bool = True,  # false for times of another machine, too
        announce: ceilings.Say | None = None,  # called with one line before a measurement of this machine
    ) -> None:
        self.chosen, self.given, self.hook = chosen, given, hook
        self.announce = announce
        self.measures_cpu, self.uses_accelerator = measures_cpu, uses_accelerator
        self.problems: list[str] = []
        self.targets: Mapping[tuple[str, str, str, str], Target] = {}
        self.resolved: dict[str, Peaks] = {}  # the peaks that rows have used, by device name
        self._cpu: ceilings.Ceilings | None = None
        self._remeasured: set[str] = set()

    def name(self, declared: str | None, kind: str | None) -> str | None:
        """Return the device of a row: the marker's, else that of its arrays, else the run's. None where it is unknown.

        kind: ``cpu`` or ``gpu``, where the arrays of the test are.
        """
        if declared is not None:
            return CPU if declared.lower() == CPU else declared
        if kind == CPU:
            return CPU
        if self.chosen != AUTO:
            return self.chosen if not (kind == "gpu" and self.chosen == CPU) else None
        if kind == "gpu":
            return None if self.accelerator is None else _label(self.accelerator)
        return CPU if self.accelerator is None else None  # next to an accelerator, a row without arrays could be of either

    @cached_property
    def accelerator(self) -> Device | None:
        """The accelerator of this machine."""
        gpu = ceilings.find_device() if self.uses_accelerator else None
        return None if gpu is None else gpu.device

    def is_host_only(self) -> bool:
        """Return whether the user chose the CPU, or left the choice open on a machine without an accelerator."""
        return self.chosen == CPU or (self.chosen == AUTO and self.accelerator is None)

    def peaks(self, name: str) -> Peaks:
        """Return the peaks of a device.

        Raises:
            UnknownDeviceError: for a name that is in no table.
        """
        if name not in self.resolved:
            self.resolved[name] = self._resolve(name)._replace(targets=self.targets)
        return self.resolved[name]

    def peaks_for(self, name: str, work: Work) -> Peaks:
        """Return the peaks of a device for a work; on this CPU, the ceiling of a narrow dtype is measured when work needs it.

        Raises:
            UnknownDeviceError: for a name that is in no table.
        """
        peaks, dtype = self.peaks(name), work.dtype.peak or work.dtype.name
        is_missing = work.engine == "matrix" and work.flops > 0 and peaks.compute_axis(work.engine, work.dtype.peak)[1] is None
        if (
            name != CPU
            or self._cpu is None
            or not is_missing
            or dtype not in ceilings.TORCH_DTYPES
            or dtype in self._remeasured
        ):
            return peaks
        self._remeasured.add(dtype)
        self._use(ceilings.add_dtype(self._cpu, dtype, say=self.problems.append, announce=self.announce))
        return self.resolved[CPU]

    def _use(self, measured: ceilings.Ceilings) -> None:
        """Take new ceilings of this CPU."""
        if measured != self._cpu:
            self._cpu = measured
            self.resolved[CPU] = measured.peaks()._replace(targets=self.targets)

    def is_same(self, one: str, other: str) -> bool:
        """Return whether two names are of one product; false where one of them is in no table."""
        if normalize_name(one) == normalize_name(other):
            return True
        if CPU in (one, other):
            return False
        try:
            first, second = (self.resolved.get(name) or self._resolve(name) for name in (one, other))
        except (ValueError, OSError):
            return False
        return first.product == second.product if first.product and second.product else first.gfx == second.gfx is not None

    def remeasure_cpu(self, axis: str | None) -> Peaks:
        """Measure an axis of the CPU again, which a row exceeded, once for each axis. Return the peaks, larger or as before."""
        if self._cpu is not None and axis is not None and axis not in self._remeasured:
            self._remeasured.add(axis)
            self._use(ceilings.remeasure(self._cpu, [axis], say=self.problems.append))
        return self.resolved[CPU]

    @cached_property
    def files(self) -> PeakFiles:
        """The peak table, and the measured ceilings to lay over it. Raises ValueError for a given file that cannot be read."""
        return open_peaks(None if self.given is None else str(self.given))

    def _resolve(self, name: str) -> Peaks:
        hooked = self.hook(name)
        if hooked is not None:
            return hooked
        if name == CPU:
            return self._measure_cpu()
        files = self.files
        accelerator = self.accelerator if self.chosen == AUTO else None
        if accelerator is not None and name == _label(accelerator):
            peaks = files.rated(accelerator)
        else:
            peaks = files.rated(name)
            if peaks.source == "derived":
                near = files.table.suggest(name) if files.table else ""
                raise UnknownDeviceError(f"no peaks for device {name!r}: {near}`roofline peaks list` has the names")
        try:
            peaks, refused = files.lay_over(peaks)
            self.problems += [f"peaks: {line}" for line in refused]
        except ValueError as error:
            self.problems.append(f"peaks: {error}")
        return peaks

    def _measure_cpu(self) -> Peaks:
        """Take the CPU's ceilings from the cache or from a quick measurement, and measure an unsteady axis again."""
        if not self.measures_cpu:
            raise ValueError(ELSEWHERE)
        measured = ceilings.ceilings("quick", say=self.problems.append, announce=self.announce)
        if measured.doubtful():
            measured = ceilings.remeasure(measured, measured.doubtful(), say=self.problems.append)
        self._cpu = measured
        return measured.peaks()


def _label(device: Device) -> str:
    return device.device_name or device.gfx or "gpu"
