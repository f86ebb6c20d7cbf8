"""What a finished test has to say: its measurements, its work by the first source that knows it, its baseline."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from roofline_engine.check import Baseline, Measurement

from . import declare
from .baselines import Earlier
from .capture import watching
from .capture.timers import Observed
from .capture.trace import Captured
from .capture.watching import Watched
from .config import Settings
from .declare import Declared, declared, first_said, over
from .fixture import Recorder, Taken
from .timing.devices import device_kind
from .timing.plugins import codspeed_count, is_benchmark, of_codspeed, of_pytest_benchmark
from .values import plain

if TYPE_CHECKING:
    import pytest

    from .records.row import RecordRow

#: A time is printed with two or three digits.
_ROUNDED = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One test and its time: what a row is made from."""

    nodeid: str
    test: str  # the name of the test's function
    declared: Declared
    measurement: Measurement | None = None
    baseline: Baseline | None = None
    baseline_device: str | None = None  # the device of an earlier time, where its file names one
    seen: str | None = None  # where the arrays of the test are: cpu or gpu
    problem: str = ""  # why the work is unknown
    idle: bool = False  # whether the test has a benchmark that took no time
    group: str | None = None  # the benchmark group
    path: str = ""
    line: int = 0
    launched: tuple[str, ...] = ()  # symbols of the author's own kernels that were launched
    record: RecordRow | None = None  # the record that the time was read from
    pct_gpu_time: float | None = None  # the share of a serving run, where the task gives one


class HookError(Exception):
    """A hook of the project raised."""


class _Leader(NamedTuple):
    """A baseline of its benchmark group, with what tells whether it is of the same problem as another member."""

    baseline: Baseline
    params: Mapping[str, Any]
    said: Declared
    seen: str | None


class Ran(NamedTuple):
    """What a test's call gave beside its fixtures. before: benchmarks of pytest-codspeed by then. returned: its figures."""

    before: int = 0
    returned: Sequence[Case] = ()
    watched: Watched | None = None


class Cases:
    """Finds the cases of tests, and remembers the leaders of benchmark groups.

    baselines: earlier times by nodeid.
    """

    def __init__(self, config: pytest.Config, settings: Settings, baselines: Mapping[str, Earlier]) -> None:
        self.config, self.settings, self.baselines = config, settings, baselines
        self._leaders: dict[str, dict[str, _Leader]] = {}

    def before(self) -> int:
        """Benchmarks that pytest-codspeed has taken before a test starts; ``of`` takes it back."""
        return codspeed_count(self._codspeed())

    def of(self, item: pytest.Item, recorder: Recorder | None, ran: Ran) -> list[Case]:
        """The cases of a test: the figures that it returned, else each measurement of its ``roofline`` fixture or of another
        timer in it, else the one of a benchmark plugin.

        None for a test that was neither measured nor says anything of its work.
        """
        offered: list[Case] | None = getattr(item, "roofline_cases", None)
        if offered is not None:
            return [self._offered(item, case, None) for case in offered]
        fixture = benchmark(item)
        fixed = recorder.declared if recorder is not None else None
        watched = ran.watched or Watched()
        if ran.returned:
            said, _ = self._said(item, fixed, fixture)
            return [self._offered(item, case, said, _timed_as(case, watched)) for case in ran.returned]
        taken = [*(recorder.taken if recorder is not None else []), *map(_observed, watched.observed)]
        if taken:
            cases = []
            for at, one in enumerate(taken, 1):
                nodeid = f"{item.nodeid}#{at}" if len(taken) > 1 else item.nodeid
                # What is declared between two measurements is of the second.
                by_then = fixed if one.declared is None and len(taken) == 1 else one.declared
                said, problem = self._declared(item, by_then, fixture, one.captured)
                cases.append(self._case(item, said, problem, one.measurement, one.seen, one.baseline, nodeid, one.captured))
            return cases
        captured = watched.own if fixture is None else watched.benchmark
        said, problem = self._declared(item, fixed, fixture, captured)
        try:
            measurement = self._benchmark_time(fixture, ran.before)
        except ValueError as error:  # a timer of the suite's own that gives no time
            measurement, problem = None, str(error)
        if measurement is None:
            found = declare.of_properties(item.user_properties)
            if found is not None:
                measurement = Measurement("user", found[0])
                told = said.work is not None and said.source not in ("captured", "names")
                said = said if told else over(declared(found[1], {}, "properties"), said)
        if measurement is None and fixture is None and said.work is None:
            return []
        seen = watched.seen or device_kind(*getattr(item, "funcargs", {}).values())
        case = self._case(item, said, problem, measurement, seen, captured=captured)
        return [dataclasses.replace(case, idle=fixture is not None and measurement is None)]

    def _offered(self, item: pytest.Item, case: Case, said_of_test: Declared | None, captured: Captured | None = None) -> Case:
        """A case that came as it is, from a child process (``collect``) or out of what the test returned: the nodeid is the
        item's, with the row's label if it has one. captured: the work of the call that its time is of."""
        path, line, _ = item.location
        nodeid = f"{item.nodeid}[{case.nodeid}]" if case.nodeid else item.nodeid
        said, problem = over(said_of_test, case.declared), case.problem
        if said.work is None:
            sources = (("hook", lambda: self._hooked(item, {})), ("config", lambda: declare.find(self.settings.work, nodeid)))
            found, wrong = first_said(sources, {})
            said, problem = over(found, said), wrong or problem
        if said.work is None and captured is not None:
            seen, why = watching.declared(captured)
            said, problem = over(seen, said), problem or why
        earlier = self.baselines.get(nodeid) if case.baseline is None else None
        return dataclasses.replace(
            case,
            nodeid=nodeid,
            declared=said,
            measurement=None if watching.interpreted(captured) else case.measurement,
            problem=problem,
            baseline=earlier.baseline if earlier else case.baseline,
            baseline_device=earlier.device if earlier else None,
            path=path,
            line=(line or 0) + 1,
        )

    def _case(
        self,
        item: pytest.Item,
        said: Declared,
        problem: str,
        measurement: Measurement | None,
        seen: str | None,
        baseline: Baseline | None = None,
        nodeid: str = "",
        captured: Captured | None = None,
    ) -> Case:
        if watching.timeless(captured):
            measurement = None
        path, line, _ = item.location
        found, nodeid = group(item), nodeid or item.nodeid
        earlier = self.baselines.get(nodeid) if baseline is None else None
        case = Case(
            nodeid=nodeid,
            test=getattr(item, "originalname", None) or item.name,
            declared=said,
            measurement=measurement,
            baseline=baseline or (earlier.baseline if earlier else self._led(item, found, said, seen)),
            baseline_device=earlier.device if earlier else None,
            seen=seen,
            problem=problem,
            launched=captured.kernels if captured is not None else (),
            group=found,
            path=path,
            line=(line or 0) + 1,
        )
        if said.baseline and found is not None and measurement is not None:
            leads = Baseline(said.baseline_kind, t_s=measurement.t_s, spread=measurement.spread, source=nodeid)
            self._leaders.setdefault(found, {})[nodeid] = _Leader(leads, dict(parameters(item)), said, seen)
        return case

    def _declared(
        self, item: pytest.Item, fixed: Declared | None, fixture: Any, captured: Captured | None
    ) -> tuple[Declared, str]:
        """What is known of a test's kernel, by the first source that knows it, and why nothing is where one failed."""
        said, problem = self._said(item, fixed, fixture)
        if said.work is None and captured is not None:
            seen, why = watching.declared(captured)
            said, problem = over(seen, said), problem or why
        if said.work is None:
            test, params = getattr(item, "originalname", None) or item.name, parameters(item)
            guessed, wrong = first_said((("names", lambda: declare.guess(test, params)),), params)
            said, problem = over(guessed, said), problem or wrong
        return said, problem

    def _said(self, item: pytest.Item, fixed: Declared | None, fixture: Any) -> tuple[Declared, str]:
        """What its author or user says. fixed: what its ``roofline`` fixture was told."""
        params = parameters(item)
        said = over(fixed, self._marked(item))
        if said.work is not None:
            return said, ""
        found, problem = first_said(
            (
                ("hook", lambda: self._hooked(item, params)),
                ("config", lambda: declare.find(self.settings.work, item.nodeid)),
                ("extra_info", lambda: declare.of_extra_info(getattr(fixture, "extra_info", None) or {})),
            ),
            params,
        )
        return over(found, said), problem

    def _marked(self, item: pytest.Item) -> Declared | None:
        marker = item.get_closest_marker("roofline")
        return declared(marker.kwargs, parameters(item), "marker") if marker is not None else None

    def says_work(self, item: pytest.Item) -> bool:
        """Whether a marker or a glob says what a test's kernel does, so that nothing need be captured."""
        try:
            marked = self._marked(item)
        except ValueError:  # told when its row is made
            return True
        return (marked is not None and marked.work is not None) or declare.find(self.settings.work, item.nodeid) is not None

    def timed(self, item: pytest.Item, before: int) -> bool:
        """Whether the benchmark of a test has taken a time, so that one call more is nothing to it."""
        try:
            return self._benchmark_time(benchmark(item), before) is not None
        except ValueError:
            return False

    def _hooked(self, item: pytest.Item, params: Mapping[str, Any]) -> Mapping[str, Any] | None:
        try:
            found: Mapping[str, Any] | None = item.ihook.pytest_roofline_work(item=item, params=params)
        except ValueError:
            raise
        except Exception as error:
            raise HookError(f"pytest_roofline_work raised {type(error).__name__}: {error}") from error
        return found

    def _benchmark_time(self, fixture: Any, before: int) -> Measurement | None:
        codspeed = self._codspeed()
        if getattr(codspeed, "is_codspeed_enabled", False):
            return of_codspeed(codspeed, before)
        return of_pytest_benchmark(fixture) if fixture is not None else None

    def _codspeed(self) -> Any:
        return self.config.pluginmanager.get_plugin("codspeed_plugin")

    def _led(self, item: pytest.Item, found: str | None, said: Declared, seen: str | None) -> Baseline | None:
        """The leader of a test's benchmark group, for the others of it."""
        if found is None or said.baseline:
            return None
        return _chosen(list(self._leaders.get(found, {}).values()), dict(parameters(item)), said, seen)


def _timed_as(case: Case, watched: Watched) -> Captured | None:
    """What was captured of the timed call whose time a returned figure is; None where it may be one of several."""
    t_s = case.measurement.t_s if case.measurement is not None else 0.0
    near = [one for one in watched.observed if abs(one.measurement.t_s - t_s) <= _ROUNDED * t_s]
    found = [one.captured for one in near if one.captured]
    works = [captured.work and (captured.work.bytes, captured.work.flops) for captured in found]
    return found[0] if found and works.count(works[0]) == len(works) else None


def _observed(one: Observed) -> Taken:
    return Taken(None, one.measurement._replace(notes=(*one.measurement.notes, f"by {one.source}")), captured=one.captured)


def _chosen(leaders: list[_Leader], params: Mapping[str, Any], said: Declared, seen: str | None) -> Baseline | None:
    """The leader that shares most of the arguments. One of another problem or device, or one of several, is no baseline that
    a speedup can be told over: it is of kind ``unknown``."""
    if not leaders:
        return None
    shared = [sum(_equal(params.get(key, key), value) for key, value in leader.params.items()) for leader in leaders]
    best = [leader for leader, count in zip(leaders, shared) if count == max(shared)]
    first = best[0]
    here, there = said.work, first.said.work
    other_work = (
        here is not None
        and there is not None
        and {(m.bytes, m.flops) for m in here.candidates} != {(m.bytes, m.flops) for m in there.candidates}
    )
    devices = {device for device in (said.device or seen, first.said.device or first.seen) if device is not None}
    if len(best) > 1 or other_work or len(devices) > 1:
        return first.baseline._replace(kind="unknown")
    return first.baseline


def _equal(one: Any, other: Any) -> bool:
    one, other = plain(one), plain(other)
    return one is other or (type(one) is type(other) and isinstance(one, (bool, int, float, str)) and one == other)


class _Parameters(Mapping[str, Any]):
    """The parametrize arguments of a test as it gets them: of a parametrized fixture, the number or name it returned."""

    def __init__(self, item: pytest.Item) -> None:
        self._item = item
        self._params: Mapping[str, Any] = getattr(getattr(item, "callspec", None), "params", {})

    def __getitem__(self, name: str) -> Any:
        value = self._params[name]
        given = plain(getattr(self._item, "funcargs", {}).get(name))
        return given if isinstance(given, (bool, int, float, str)) else value

    def __iter__(self) -> Iterator[str]:
        return iter(self._params)

    def __len__(self) -> int:
        return len(self._params)


def parameters(item: pytest.Item) -> Mapping[str, Any]:
    """The parametrize arguments of a test; the values of fixtures among them once they are there."""
    return _Parameters(item)


def benchmark(item: pytest.Item) -> Any:
    """The fixture of pytest-benchmark or pytest-codspeed that a test has; None for another of that name."""
    fixture = getattr(item, "funcargs", {}).get("benchmark")
    return fixture if is_benchmark(fixture) else None


def group(item: pytest.Item) -> str | None:
    """The benchmark group of a test."""
    marker = item.get_closest_marker("benchmark")
    found = marker.kwargs.get("group") if marker is not None else None
    return found if isinstance(found, str) else None
