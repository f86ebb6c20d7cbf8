"""The ``roofline`` fixture of a test under ``--roofline``; without the flag ``plugin.NullFixture`` stands in."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from roofline_engine.check import CACHES, CLOCKS, Baseline, Measurement
from roofline_engine.units import number, seconds

from .declare import Declaration, merge, read_declaration
from .timing.devices import device_kind, reachable_values, untouched_bytes
from .values import plain, raised

if TYPE_CHECKING:
    from .capture.trace import CapturedWork
    from .timing import Settings

T = TypeVar("T")

#: What a function, or pytest inside it, may raise in a repeated call.
_OF_A_REPEAT = (Exception, pytest.fail.Exception, pytest.skip.Exception)
IN_HYPOTHESIS = "roofline.measure does not time the examples of a Hypothesis test. Measure in a test of one example"


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement of a test."""

    declaration: Declaration | None  # what the fixture had declared by then
    measurement: Measurement | None  # None for a benchmark that took no time, and for a call that cannot be repeated
    baseline: Baseline | None = None
    device_kind: str | None = None  # where the arrays are: cpu or gpu
    captured: CapturedWork | None = None  # the work of one more call, where nothing declares it
    untouched: float = 0.0  # bytes of its arrays that lie on pages which nothing wrote
    untimed: str = ""  # why the call has no time


class Recorder:
    """The ``roofline`` fixture under ``--roofline``."""

    def __init__(
        self, params: Mapping[str, Any], marked: Mapping[str, Any], *, captures: bool = False, cache: str = "auto"
    ) -> None:
        self.params, self.captures = params, captures
        self.cache = cache  # where a declaration asks for nothing else
        self.marked = read_declaration(marked, params, "marker")
        self.declaration: Declaration | None = None
        self.samples: list[Sample] = []
        self.untimed = ""  # why a call of ``measure`` or ``compare`` was not timed
        self._is_closed = False

    def close(self) -> None:
        """End the recording: the rows of the test are made after its call, so a later time would be lost."""
        self._is_closed = True

    def __call__(self, **work: object) -> None:
        """Declare the work of the next measurement, or of the test's benchmark, by the keywords of the marker.

        Raises:
            ValueError: for an invalid keyword.
        """
        __tracebackhide__ = True
        self._require_open()
        self.declaration = _at_the_call(read_declaration, work, self.params, "fixture")

    def measure(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Time ``fn(*args, **kwargs)`` on the clock of its device and return its value."""
        __tracebackhide__ = True
        self._require_open()
        if _is_in_hypothesis():
            self.untimed = IN_HYPOTHESIS
            return fn(*args, **kwargs)
        from .timing.measurement import start

        value, repeat = start(fn, args, kwargs, self._settings())
        try:
            measurement = repeat()
        except _OF_A_REPEAT as error:
            self._add_untimed(error)
            return value
        self._add(measurement, None, (value, args, kwargs), self._capture(fn, args, kwargs, value, measurement), fn)
        return value

    def compare(self, baseline: Callable[..., Any], candidate: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Time both, alternating, and return the candidate's value. The row is the candidate's, against the baseline."""
        __tracebackhide__ = True
        self._require_open()
        if _is_in_hypothesis():
            self.untimed = IN_HYPOTHESIS
            return candidate(*args, **kwargs)
        from .timing.measurement import start_comparison

        value, repeat = start_comparison(baseline, candidate, args, kwargs, self._settings())
        try:
            result = repeat()
        except _OF_A_REPEAT as error:
            self._add_untimed(error)
            return value
        before = result.baseline
        self._add(
            result.candidate,
            Baseline("live", t_s=before.t_s, spread=before.spread, source="roofline.compare"),
            (result.value, args, kwargs),
            self._capture(candidate, args, kwargs, result.value, result.candidate),
            candidate,
        )
        return result.value

    def first_call(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap ``fn``: the first call is measured, later calls are plain."""

        @functools.wraps(fn)
        def call(*args: Any, **kwargs: Any) -> Any:
            return fn(*args, **kwargs) if self.samples else self.measure(fn, *args, **kwargs)

        return call

    def record(self, t_s: float, **measurement: Any) -> None:
        """Add a time (s) that the test measured itself, with more fields of ``Measurement``.

        Raises:
            ValueError: for a time that is not a positive number, and for an unknown keyword.
        """
        __tracebackhide__ = True
        self._require_open()
        self._add(_at_the_call(_measurement, t_s, measurement), None, ())

    def _require_open(self) -> None:
        __tracebackhide__ = True
        if self._is_closed:
            raise RuntimeError(
                "the roofline fixture was used after the test's call, as in the teardown of a fixture: the test's row is "
                "already made. Use it in the test, or before the yield of the fixture"
            )

    def _settings(self) -> Settings:
        from .timing import Settings

        declaration = merge(self.declaration, self.marked)
        return Settings(cache=declaration.cache or self.cache, graph=declaration.graph)  # type: ignore[arg-type]  # a checked value

    def _capture(
        self, fn: Callable[..., Any], args: Any, kwargs: Mapping[str, Any], value: Any, measurement: Measurement
    ) -> CapturedWork | None:
        """Capture the work of a measured call, where nothing declares it. A long call is not repeated for this."""
        if not self.captures or merge(self.declaration, self.marked).work is not None:
            return None
        from .capture.watching import capture_timed, count_arguments
        from .timing.measurement import LONG_CALL_S

        if measurement.t_s >= LONG_CALL_S:
            from .capture.trace import CapturedWork

            reason = f"not captured: one more call would take {measurement.t_s:.3g} s"
            return count_arguments(CapturedWork("", reason=reason), args, kwargs, reachable_values(fn), value)
        return capture_timed(fn, args, kwargs, value)

    def _add_untimed(self, error: BaseException) -> None:
        """Add a sample without a time. Without ``--roofline`` the test makes the first call alone, and that one passed."""
        if isinstance(error, pytest.exit.Exception):
            raise error
        untimed = f"a repeated call raised {raised(error)}. Give roofline.measure a function that can be called many times"
        self.samples.append(Sample(self.declaration, None, untimed=untimed))

    def _add(
        self,
        measurement: Measurement,
        baseline: Baseline | None,
        values: object,
        captured: CapturedWork | None = None,
        fn: Callable[..., Any] | None = None,
    ) -> None:
        untouched = untouched_bytes(values, reachable_values(fn))
        self.samples.append(Sample(self.declaration, measurement, baseline, device_kind(values), captured, untouched))


def _at_the_call(parse: Callable[..., T], *arguments: Any) -> T:
    """Parse a test's arguments. The traceback of a mistake ends at the test's own line."""
    __tracebackhide__ = True
    try:
        return parse(*arguments)
    except ValueError as error:
        raise ValueError(str(error)) from None


def _is_in_hypothesis() -> bool:
    """Return whether a Hypothesis example is running. Those are not timed: a test has a hundred, each with a deadline."""
    hypothesis = sys.modules.get("hypothesis")
    return hypothesis is not None and bool(hypothesis.currently_in_test_context())


def _measurement(t_s: Any, fields: Mapping[str, Any]) -> Measurement:
    names = ("q1_s", "q3_s", "rounds", "clock", "cache", "wall_s")
    unknown = [key for key in fields if key not in names]
    if unknown:
        raise ValueError(f"record: unknown {', '.join(unknown)}; expected t_s, {', '.join(names)}")
    values: dict[str, Any] = {key: plain(value) for key, value in fields.items() if value is not None}
    for key in ("q1_s", "q3_s", "wall_s"):
        if key in values:
            values[key] = seconds(values[key], key)
    for key, choices in (("clock", CLOCKS), ("cache", CACHES)):
        if values.get(key, choices[0]) not in choices:
            raise ValueError(f"{key} is {values[key]!r:.40}, expected one of {', '.join(choices)}")
    if "rounds" in values:
        values["rounds"] = int(number(values["rounds"], "rounds", minimum=1))
    t_s = seconds(plain(t_s), "t_s")
    if not values.get("q1_s", t_s) <= t_s <= values.get("q3_s", t_s):
        raise ValueError(f"q1_s, t_s, q3_s are {values.get('q1_s')}, {t_s}, {values.get('q3_s')}; expected them in this order")
    return Measurement("user", t_s, **values)
