"""The ``roofline`` fixture of a test under ``--roofline``: what it declared and what it measured."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from roofline_engine.check import CACHES, CLOCKS, Baseline, Measurement
from roofline_engine.units import number

from .declare import Declared, declared, over
from .timing.devices import device_kind
from .values import plain

if TYPE_CHECKING:
    from .capture.trace import Captured
    from .timing import Settings

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Taken:
    """One measurement that a test took, with what had been declared by then, and what one call more of it was seen to do."""

    declared: Declared | None
    measurement: Measurement
    baseline: Baseline | None = None
    seen: str | None = None
    captured: Captured | None = None


class Recorder:
    """The ``roofline`` fixture under ``--roofline``."""

    def __init__(self, params: Mapping[str, Any], marked: Mapping[str, Any], *, captures: bool = False) -> None:
        self.params, self.captures = params, captures
        self.marked = declared(marked, params, "marker")
        self.declared: Declared | None = None
        self.taken: list[Taken] = []

    def __call__(self, **work: object) -> None:
        """Declare the work of what is measured next, or of the test's benchmark; keywords as those of the marker.

        Raises:
            ValueError: for keywords that cannot be meant.
        """
        __tracebackhide__ = True
        self.declared = _told(declared, work, self.params, "fixture")

    def measure(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Time ``fn(*args, **kwargs)`` on the clock of its device and return its value."""
        __tracebackhide__ = True
        if _is_drawn():
            return fn(*args, **kwargs)
        from .timing import measure

        value, measurement = measure(fn, *args, settings=self._settings(), **kwargs)
        self._take(measurement, None, (value, args, kwargs), self._captured(fn, args, kwargs, value))
        return value

    def compare(self, baseline: Callable[..., Any], candidate: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Time both by turns and return the candidate's value; the row is the candidate's, over the baseline."""
        __tracebackhide__ = True
        if _is_drawn():
            return candidate(*args, **kwargs)
        from .timing import compare

        result = compare(baseline, candidate, *args, settings=self._settings(), **kwargs)
        before = result.baseline
        self._take(
            result.candidate,
            Baseline("live", t_s=before.t_s, spread=before.spread, source="roofline.compare"),
            (result.value, args, kwargs),
            self._captured(candidate, args, kwargs, result.value),
        )
        return result.value

    def first_call(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """``fn``, measured at its first call and plain after it."""

        @functools.wraps(fn)
        def call(*args: Any, **kwargs: Any) -> Any:
            return fn(*args, **kwargs) if self.taken else self.measure(fn, *args, **kwargs)

        return call

    def record(self, t_s: float, **measurement: Any) -> None:
        """Take a time (s) that the test measured itself, with the fields of ``Measurement`` that say more of it.

        Raises:
            ValueError: for a time that is no positive number, or a keyword that is not known.
        """
        __tracebackhide__ = True
        self._take(_told(_measured, t_s, measurement), None, ())

    def _settings(self) -> Settings:
        from .timing import Settings

        said = over(self.declared, self.marked)
        return Settings(cache=said.cache or "auto", graph=said.graph)  # type: ignore[arg-type]  # one of the three

    def _captured(self, fn: Callable[..., Any], args: Any, kwargs: Mapping[str, Any], value: Any) -> Captured | None:
        """The work of what has been measured, where nothing declares it."""
        if not self.captures or over(self.declared, self.marked).work is not None:
            return None
        from .capture.watching import of_timed, shape

        return of_timed(fn, args, kwargs, like=shape(value))

    def _take(
        self, measurement: Measurement, baseline: Baseline | None, values: object, captured: Captured | None = None
    ) -> None:
        self.taken.append(Taken(self.declared, measurement, baseline, device_kind(values), captured))


def _told(understand: Callable[..., T], *said: Any) -> T:
    """What a test says, understood; a mistake in it is shown at its own line, without the way through this package."""
    __tracebackhide__ = True
    try:
        return understand(*said)
    except ValueError as error:
        raise ValueError(str(error)) from None


def _is_drawn() -> bool:
    """Whether an example of hypothesis is running: a hundred of them a test, each with a deadline, are nothing to time."""
    hypothesis = sys.modules.get("hypothesis")
    return hypothesis is not None and bool(hypothesis.currently_in_test_context())


def _measured(t_s: Any, said: Mapping[str, Any]) -> Measurement:
    known = ("q1_s", "q3_s", "rounds", "clock", "cache", "wall_s")
    unknown = [key for key in said if key not in known]
    if unknown:
        raise ValueError(f"record: unknown {', '.join(unknown)}; it takes t_s, {', '.join(known)}")
    values: dict[str, Any] = {key: plain(value) for key, value in said.items() if value is not None}
    for key in ("q1_s", "q3_s", "wall_s"):
        if key in values:
            values[key] = float(number(values[key], key, above=0))
    for key, choices in (("clock", CLOCKS), ("cache", CACHES)):
        if values.get(key, choices[0]) not in choices:
            raise ValueError(f"{key} is {values[key]!r:.40}, expected one of {', '.join(choices)}")
    if "rounds" in values:
        values["rounds"] = int(number(values["rounds"], "rounds", minimum=1))
    t_s = float(number(plain(t_s), "t_s", above=0))
    if not values.get("q1_s", t_s) <= t_s <= values.get("q3_s", t_s):
        raise ValueError(f"q1_s, t_s, q3_s are {values.get('q1_s')}, {t_s}, {values.get('q3_s')}; expected them in this order")
    return Measurement("user", t_s, **values)
