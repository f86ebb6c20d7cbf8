"""What a finished test says: its measurements, the work of its kernel, its baseline."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from roofline_engine.check import Baseline, Measurement

from . import declare
from .baselines import Earlier
from .capture import watching
from .capture.timers import TimedCall
from .capture.trace import CapturedWork
from .capture.watching import CaptureResult
from .config import Settings
from .declare import Declaration
from .fixture import Recorder, Sample
from .row import Refusal
from .timing.devices import device_kind
from .timing.measurement import Setup
from .timing.plugins import codspeed_count, is_benchmark, of_codspeed, of_pytest_benchmark
from .values import is_kind, scalar

if TYPE_CHECKING:
    import pytest

    from .records.source import RecordRow

#: The attribute of an item with the ``benchmark`` fixture that ``request.getfixturevalue`` gave: ``funcargs`` lacks it.
REQUESTED = "_roofline_benchmark"
#: Relative difference of a printed time: tools print two or three digits.
_ROUNDED = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One test and its time: what a row is made from."""

    nodeid: str
    test: str  # the name of the test's function
    declaration: Declaration
    measurement: Measurement | None = None
    baseline: Baseline | None = None
    baseline_device: str | None = None  # the device of an earlier time, where its file names one
    device_kind: str | None = None  # where the arrays of the test are: cpu or gpu
    problem: str = ""  # why the work is unknown
    idle: bool = False  # whether the test has a benchmark that took no time
    untimed: str = ""  # why a call that should be measured was not
    refusal: Refusal | None = None  # set where a record cannot be used
    group: str | None = None  # the benchmark group
    path: str = ""
    line: int = 0
    launched: tuple[str, ...] = ()  # symbols of the author's own kernels that were launched
    record: RecordRow | None = None  # the record that the time was read from
    pct_gpu_time: float | None = None  # the share of a serving run, where the task gives one


class HookError(Exception):
    """A hook of the project raised."""


class GroupBaseline(NamedTuple):
    """The baseline of a benchmark group, with what shows whether another member of the group does the same work."""

    baseline: Baseline
    params: Mapping[str, Any]
    declaration: Declaration
    device_kind: str | None  # where its arrays are: cpu or gpu


class CallOutcome(NamedTuple):
    """What a test's call gave besides its fixtures."""

    codspeed_before: int = 0  # benchmarks that pytest-codspeed had taken before the call
    returned: Sequence[Case] = ()  # the figures that the test returned
    watched: CaptureResult | None = None
    cold: Setup | None = None  # how the caches were evicted before each round of the benchmark; None: they were not
    wait_share: float | None = None  # of the time that the test's threads wanted a core, the part that they waited


class Cases:
    """Finds the cases of tests, and remembers the baselines of benchmark groups."""

    def __init__(self, config: pytest.Config, settings: Settings, baselines: Mapping[str, Earlier]) -> None:
        self.config, self.settings = config, settings
        self.baselines = baselines  # earlier times by nodeid
        self._group_baselines: dict[str, dict[str, GroupBaseline]] = {}

    def codspeed_count_before(self) -> int:
        """Count the benchmarks that pytest-codspeed has taken before a test starts."""
        return codspeed_count(self._codspeed())

    def cases_for(self, item: pytest.Item, recorder: Recorder | None, outcome: CallOutcome) -> list[Case]:
        """Return the cases of a test, from the first source that has any.

        The sources: the child process of a collected file, the figures that the test returned, the measurements of its
        ``roofline`` fixture and of other timers in it, a benchmark plugin. A test without a time and without work has no case.
        A test that measures in several ways has the cases of each.
        """
        child_cases: list[Case] | None = getattr(item, "roofline_cases", None)  # set by ``collect.items.ChildItem``
        if child_cases is not None:
            return [self._complete(item, case, None) for case in child_cases]
        fixture_call = recorder.declaration if recorder is not None else None
        watched = outcome.watched or CaptureResult()
        explicit = self._explicit(item, fixture_call)[0] if outcome.returned else None
        cases = [self._complete(item, case, explicit, _timed_call(case, watched)) for case in outcome.returned]
        samples = list(recorder.samples) if recorder is not None else []
        if not cases:  # the figures that a test returns are of these calls
            samples += map(_to_sample, watched.timed_calls)
            samples += self._own_samples(item, fixture_call, outcome)
        if not cases and not samples:
            untimed = recorder.untimed if recorder is not None else ""
            return self._benchmark_case(item, fixture_call, outcome, untimed)
        benchmark_sample = self._benchmark_sample(item, samples, fixture_call, outcome)
        samples += [benchmark_sample] if benchmark_sample is not None else []
        return cases + self._measured_cases(item, samples, fixture_call, is_alone=not cases and len(samples) == 1)

    def _measured_cases(
        self, item: pytest.Item, samples: list[Sample], fixture_call: Declaration | None, *, is_alone: bool
    ) -> list[Case]:
        cases = []
        for number, sample in enumerate(samples, 1):
            nodeid = item.nodeid if is_alone else f"{item.nodeid}#{number}"
            # A declaration between two measurements belongs to the second.
            by_then = fixture_call if sample.declaration is None and is_alone else sample.declaration
            cases.append(
                self._case(item, nodeid, *self._declaration(item, by_then, sample.captured), sample, untimed=sample.untimed)
            )
        return cases

    def _benchmark_sample(
        self, item: pytest.Item, others: list[Sample], fixture_call: Declaration | None, outcome: CallOutcome
    ) -> Sample | None:
        """Return the time of the benchmark of a test that measures in another way, too; None where the two are one time."""
        if not self.has_benchmark_time(item, outcome.codspeed_before):
            return None
        measurement = self._benchmark_time(benchmark(item), outcome.codspeed_before)
        times = [other.measurement.t_s for other in others if other.measurement is not None]
        if measurement is None or any(abs(t_s - measurement.t_s) <= _ROUNDED * t_s for t_s in times):
            return None
        watched = outcome.watched or CaptureResult()
        measurement = measurement._replace(wait_share=outcome.wait_share)
        kind = watched.device or device_kind(*getattr(item, "funcargs", {}).values())
        return Sample(fixture_call, measurement, device_kind=kind, captured=watched.benchmark, untouched=watched.untouched)

    def _own_samples(self, item: pytest.Item, fixture_call: Declaration | None, outcome: CallOutcome) -> Iterator[Sample]:
        """Yield the times of a test with several benchmark fixtures of its project. Only a declaration gives their work."""
        own = own_benchmarks(item)
        kind = device_kind(*getattr(item, "funcargs", {}).values())
        for fixture in own if len(own) > 1 else ():
            measurement = self._benchmark_time(fixture, outcome.codspeed_before)
            if measurement is not None:
                yield Sample(fixture_call, measurement._replace(wait_share=outcome.wait_share), device_kind=kind)

    def _benchmark_case(
        self, item: pytest.Item, fixture_call: Declaration | None, outcome: CallOutcome, untimed: str
    ) -> list[Case]:
        fixture, watched = benchmark(item), outcome.watched or CaptureResult()
        captured = watched.own_call if fixture is None else watched.benchmark
        declaration, problem = self._declaration(item, fixture_call, captured)
        try:
            measurement = self._benchmark_time(fixture, outcome.codspeed_before)
            if measurement is not None:
                measurement = measurement._replace(wait_share=outcome.wait_share)
                if outcome.cold is not None and watched.device != "gpu":
                    notes = ("one call a round, the caches evicted before each", *outcome.cold.notes)
                    measurement = measurement._replace(cache=outcome.cold.cache, notes=notes)
        except ValueError as error:  # the suite's own timer gives no time
            measurement, problem = None, str(error)
        recorded = declare.read_properties(item.user_properties) if measurement is None else None
        if recorded is not None:
            problem, rounding = recorded.problem or problem, recorded.rounding
            if recorded.keywords and (declaration.work is None or declaration.source in ("captured", "names")):
                declaration = declare.merge(declare.read_declaration(recorded.keywords, {}, "properties"), declaration)
                rounding = recorded.rate_rounding
            measurement = None if recorded.t_s is None else Measurement("user", recorded.t_s, rounding=rounding)
        is_plain = fixture is None and declaration.work is None and declaration.min_pct is None
        if measurement is None and is_plain and not untimed and recorded is None:
            return []
        kind = watched.device or device_kind(*getattr(item, "funcargs", {}).values())
        sample = Sample(None, measurement, device_kind=kind, captured=captured, untouched=watched.untouched)
        idle = fixture is not None and measurement is None
        return [self._case(item, item.nodeid, declaration, problem, sample, idle=idle, untimed=untimed)]

    def _complete(
        self, item: pytest.Item, case: Case, test_declaration: Declaration | None, captured: CapturedWork | None = None
    ) -> Case:
        """Complete a case that a child process or the test's return value gave, with what its item has.

        captured: the work of the call that was timed.
        """
        nodeid = f"{item.nodeid}[{case.nodeid}]" if case.nodeid else item.nodeid
        declaration, problem = declare.merge(test_declaration, case.declaration), case.problem
        if declaration.work is None:
            sources = (
                ("hook", lambda: self._hooked(item, {})),
                ("config", lambda: declare.find_keywords(self.settings.work, nodeid)),
            )
            other, other_problem = declare.first_declaration(sources, {})
            declaration, problem = declare.merge(other, declaration), other_problem or problem
        declaration, problem = _add_captured(declaration, problem, captured)
        return dataclasses.replace(
            case,
            nodeid=nodeid,
            declaration=declaration,
            measurement=None if watching.ran_in_interpreter(captured) else case.measurement,
            problem=problem,
            **self._origin(item, nodeid, case.baseline),
        )

    def _case(
        self,
        item: pytest.Item,
        nodeid: str,
        declaration: Declaration,
        problem: str,
        sample: Sample,
        *,
        idle: bool = False,
        untimed: str = "",
    ) -> Case:
        measurement = None if watching.has_no_kernel_time(sample.captured) else sample.measurement
        name, kind = group(item), sample.device_kind
        if declaration.work is not None:
            work = watching.leave_out_untouched(declaration.work, sample.untouched)
            declaration = dataclasses.replace(declaration, work=work)
        case = Case(
            nodeid=nodeid,
            test=_function_name(item),
            declaration=declaration,
            measurement=measurement,
            device_kind=kind,
            problem=problem,
            idle=idle,
            untimed=untimed,
            launched=sample.captured.kernels if sample.captured is not None else (),
            group=name,
            **self._origin(item, nodeid, sample.baseline),
        )
        if name is None:
            return case
        params, siblings = dict(Parameters(item)), self._group_baselines.setdefault(name, {})
        if case.baseline is None and not declaration.baseline:
            case = dataclasses.replace(case, baseline=_pick_baseline(list(siblings.values()), params, declaration, kind))
        if declaration.baseline and measurement is not None:
            own = Baseline(declaration.baseline_kind, t_s=measurement.t_s, spread=measurement.spread, source=nodeid)
            siblings[nodeid] = GroupBaseline(own, params, declaration, kind)
        return case

    def _origin(self, item: pytest.Item, nodeid: str, baseline: Baseline | None) -> dict[str, Any]:
        """Return the place of a test in its file, and its baseline: ``baseline``, else its earlier time."""
        path, line, _ = item.location
        earlier = self.baselines.get(nodeid) if baseline is None else None
        baseline, device = earlier or (baseline, None)
        return {"path": path, "line": (line or 0) + 1, "baseline": baseline, "baseline_device": device}

    def _declaration(
        self, item: pytest.Item, fixture_call: Declaration | None, captured: CapturedWork | None
    ) -> tuple[Declaration, str]:
        """Return what the first source knows of a test's kernel, and the problem of a source that failed."""
        declaration, problem = self._explicit(item, fixture_call)
        declaration, problem = _add_captured(declaration, problem, captured)
        if declaration.work is None or declaration.work.coverage == "args":
            test, params = _function_name(item), Parameters(item)
            guessed, guess_problem = declare.first_declaration(
                (("names", lambda: declare.guess_keywords(test, params)),), params
            )
            declaration, problem = declare.merge(guessed, declaration), problem or guess_problem
        return declaration, problem

    def _explicit(self, item: pytest.Item, fixture_call: Declaration | None) -> tuple[Declaration, str]:
        """Return what the author or the user declares: fixture, marker, hook, ``[tool.roofline.work]``, extra_info."""
        params = Parameters(item)
        declaration = declare.merge(fixture_call, self._marked(item))
        if declaration.work is not None:
            return declaration, ""
        other, problem = declare.first_declaration(
            (
                ("hook", lambda: self._hooked(item, params)),
                ("config", lambda: declare.find_keywords(self.settings.work, item.nodeid)),
                ("extra_info", lambda: declare.read_extra_info(getattr(benchmark(item), "extra_info", None) or {})),
            ),
            params,
        )
        return declare.merge(other, declaration), problem

    def _marked(self, item: pytest.Item) -> Declaration | None:
        keywords = marker_keywords(item)
        return declare.read_declaration(keywords, Parameters(item), "marker") if keywords else None

    def says_work(self, item: pytest.Item) -> bool:
        """Return whether a marker or a glob declares the work of a test, so that capture is not needed."""
        try:
            marked = self._marked(item)
        except ValueError:  # reported when the row is made
            return True
        keywords = declare.find_keywords(self.settings.work, item.nodeid)
        return keywords is not None or (marked is not None and marked.work is not None)

    def has_benchmark_time(self, item: pytest.Item, codspeed_before: int) -> bool:
        """Return whether the benchmark of a test has its time, so that one more call cannot change the time."""
        try:
            return self._benchmark_time(benchmark(item), codspeed_before) is not None
        except ValueError:
            return False

    def _hooked(self, item: pytest.Item, params: Mapping[str, Any]) -> Mapping[str, Any] | None:
        try:
            keywords: Mapping[str, Any] | None = item.ihook.pytest_roofline_work(item=item, params=params)
        except ValueError:
            raise
        except Exception as error:
            raise HookError(f"pytest_roofline_work raised {type(error).__name__}: {error}") from error
        return keywords

    def _benchmark_time(self, fixture: Any, codspeed_before: int) -> Measurement | None:
        codspeed = self._codspeed()
        if getattr(codspeed, "is_codspeed_enabled", False):
            return of_codspeed(codspeed, codspeed_before)
        return of_pytest_benchmark(fixture) if fixture is not None else None

    def _codspeed(self) -> Any:
        return self.config.pluginmanager.get_plugin("codspeed_plugin")


def _add_captured(declaration: Declaration, problem: str, captured: CapturedWork | None) -> tuple[Declaration, str]:
    """Add captured work to a declaration without work."""
    if declaration.work is not None or captured is None:
        return declaration, problem
    other, other_problem = watching.declare_captured(captured)
    return declare.merge(other, declaration), problem or other_problem


def _timed_call(case: Case, watched: CaptureResult) -> CapturedWork | None:
    """Return the capture of the call whose time a returned figure is; None where calls of several kinds fit."""
    t_s = case.measurement.t_s if case.measurement is not None else 0.0
    captures = [
        observed.captured
        for observed in watched.timed_calls
        if observed.captured and abs(observed.measurement.t_s - t_s) <= _ROUNDED * t_s
    ]
    works = [captured.work and (captured.work.bytes, captured.work.flops) for captured in captures]
    return captures[0] if captures and works.count(works[0]) == len(works) else None


def _to_sample(observed: TimedCall) -> Sample:
    measurement = observed.measurement
    measurement = measurement._replace(notes=(*measurement.notes, f"by {observed.source}"))
    return Sample(None, measurement, captured=observed.captured)


def _pick_baseline(
    candidates: list[GroupBaseline], params: Mapping[str, Any], declaration: Declaration, kind: str | None
) -> Baseline | None:
    """Return the group baseline that shares most arguments.

    Its kind is ``unknown``, and no speedup is computed, where several share as many, and where its work or device differs.
    """
    if not candidates:
        return None
    shared = [sum(_is_equal(params.get(key, key), value) for key, value in other.params.items()) for other in candidates]
    best = [candidate for candidate, count in zip(candidates, shared) if count == max(shared)]
    first = best[0]
    work, other_work = declaration.work, first.declaration.work
    differs = (
        work is not None
        and other_work is not None
        and {(m.bytes, m.flops) for m in work.candidates} != {(m.bytes, m.flops) for m in other_work.candidates}
    )
    devices = {declaration.device or kind, first.declaration.device or first.device_kind} - {None}
    if len(best) > 1 or differs or len(devices) > 1:
        return first.baseline._replace(kind="unknown")
    return first.baseline


def _is_equal(one: Any, other: Any) -> bool:
    one, other = scalar(one), scalar(other)
    return one is other or (type(one) is type(other) and is_kind(one, (bool, int, float, str)) and one == other)


def _function_name(item: pytest.Item) -> str:
    return getattr(item, "originalname", None) or item.name


class Parameters(Mapping[str, Any]):
    """The parametrize arguments of a test as the test gets them.

    For a parametrized fixture: the value that it returned, once it is set up.
    """

    def __init__(self, item: pytest.Item) -> None:
        self._item = item
        self._params: Mapping[str, Any] = getattr(getattr(item, "callspec", None), "params", {})

    def __getitem__(self, name: str) -> Any:
        value = self._params[name]
        argument = scalar(getattr(self._item, "funcargs", {}).get(name))
        return argument if is_kind(argument, (bool, int, float, str)) else value

    def __iter__(self) -> Iterator[str]:
        return iter(self._params)

    def __len__(self) -> int:
        return len(self._params)


def roofline_markers(item: pytest.Item) -> list[pytest.Mark]:
    """Return the ``roofline`` markers of a test, the closest first: of its parameter set, function, class, module, package."""
    markers = list(item.iter_markers("roofline"))
    if len(markers) > 1:
        of_parameters = {id(mark) for mark in getattr(getattr(item, "callspec", None), "marks", ())}
        markers.sort(key=lambda mark: id(mark) not in of_parameters)  # pytest puts them after those of the function
    return markers


def marker_keywords(item: pytest.Item) -> dict[str, Any]:
    """Return the keywords of a test's ``roofline`` markers as those of one marker; empty without a marker."""
    return declare.merge_keywords(mark.kwargs for mark in roofline_markers(item))


def benchmark(item: pytest.Item) -> Any:
    """Return the benchmark fixture of a test, of pytest-benchmark or pytest-codspeed; None without one, and for several.

    The fixture is ``benchmark``, or the only one that a project derived from it under another name.
    """
    fixtures = getattr(item, "funcargs", {})
    if is_benchmark(fixtures.get("benchmark")):
        return fixtures["benchmark"]
    own = own_benchmarks(item)
    return own[0] if len(own) == 1 else getattr(item, REQUESTED, None)


def own_benchmarks(item: pytest.Item) -> list[Any]:
    """Return the benchmark fixtures of a test that have other names than ``benchmark``."""
    fixtures = getattr(item, "funcargs", {}).items()
    return list({id(value): value for name, value in fixtures if name != "benchmark" and is_benchmark(value)}.values())


def group(item: pytest.Item) -> str | None:
    """Return the benchmark group of a test."""
    marker = item.get_closest_marker("benchmark")
    name = marker.kwargs.get("group") if marker is not None else None
    return name if isinstance(name, str) else None
