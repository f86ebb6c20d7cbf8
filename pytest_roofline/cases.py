"""What a finished test has to say: its measurements, its work by the first source that knows it, its baseline."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest

from roofline_engine.check import Baseline, Measurement

from .annotator import Case
from .devices import seen_on
from .plain import plain
from .priors import Earlier
from .problems import HookError
from .recorder import Recorder
from .settings import Settings
from .timing.benchmarks import codspeed_count, of_codspeed, of_pytest_benchmark
from .work import globs, names, records
from .work.declared import Declared, declared, first_said, over


class _Leader(NamedTuple):
    """A baseline of its benchmark group, with what tells whether it is of the same problem as another member."""

    baseline: Baseline
    params: Mapping[str, Any]
    said: Declared
    seen: str | None


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

    def of(self, item: pytest.Item, recorder: Recorder | None, before: int) -> list[Case]:
        """The cases of a test: each measurement of its ``roofline`` fixture, else the one of a benchmark plugin.

        None for a test that was neither measured nor says anything of its work.
        """
        offered: list[Case] | None = getattr(item, "roofline_cases", None)
        if offered is not None:
            return [self._offered(item, case) for case in offered]
        fixture = getattr(item, "funcargs", {}).get("benchmark")
        said, problem = self._declared(item, recorder, fixture)
        taken = recorder.taken if recorder is not None else []
        if taken:
            cases = []
            before_any = said
            if len(taken) > 1 and taken[0].declared is None:  # what is declared between two measurements is of the second
                before_any, problem = self._declared(item, None, fixture)
            for at, one in enumerate(taken, 1):
                nodeid = f"{item.nodeid}#{at}" if len(taken) > 1 else item.nodeid
                work = over(one.declared, said) if one.declared is not None else before_any
                cases.append(self._case(item, work, problem, one.measurement, one.seen, one.baseline, nodeid))
            return cases
        try:
            measurement = self._benchmark_time(fixture, before)
        except ValueError as error:  # a timer of the suite's own that gives no time
            measurement, problem = None, str(error)
        if measurement is None:
            found = records.of_properties(item.user_properties)
            if found is not None:
                measurement = Measurement("user", found[0])
                said = said if said.work else over(declared(found[1], {}, "properties"), said)
        if measurement is None and fixture is None and said.work is None:
            return []
        case = self._case(item, said, problem, measurement, seen_on(list(getattr(item, "funcargs", {}).values())))
        return [dataclasses.replace(case, idle=fixture is not None and measurement is None)]

    def _offered(self, item: pytest.Item, case: Case) -> Case:
        """A case of an item that has its own (``collect``): the nodeid is the item's, with the row's label if it has one."""
        path, line, _ = item.location
        nodeid = f"{item.nodeid}[{case.nodeid}]" if case.nodeid else item.nodeid
        said, problem = case.declared, case.problem
        if said.work is None:
            sources = (("hook", lambda: self._hooked(item, {})), ("config", lambda: globs.find(self.settings.work, nodeid)))
            found, wrong = first_said(sources, {})
            said, problem = over(found, said), wrong or problem
        earlier = self.baselines.get(nodeid) if case.baseline is None else None
        return dataclasses.replace(
            case,
            nodeid=nodeid,
            declared=said,
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
    ) -> Case:
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
            group=found,
            path=path,
            line=(line or 0) + 1,
        )
        if said.baseline and found is not None and measurement is not None:
            leads = Baseline(said.baseline_kind, t_s=measurement.t_s, spread=measurement.spread, source=nodeid)
            self._leaders.setdefault(found, {})[nodeid] = _Leader(leads, dict(parameters(item)), said, seen)
        return case

    def _declared(self, item: pytest.Item, recorder: Recorder | None, fixture: Any) -> tuple[Declared, str]:
        """What is said of a test's kernel, by the first source that says it, and why nothing is where one failed."""
        params = parameters(item)
        marker = item.get_closest_marker("roofline")
        marked = declared(marker.kwargs, params, "marker") if marker is not None else None
        if recorder is not None and recorder.declared is not None:
            return over(recorder.declared, marked), ""
        if marked is not None and marked.work is not None:
            return marked, ""
        found, problem = first_said(
            (
                ("hook", lambda: self._hooked(item, params)),
                ("config", lambda: globs.find(self.settings.work, item.nodeid)),
                ("extra_info", lambda: records.of_extra_info(getattr(fixture, "extra_info", None) or {})),
                ("names", lambda: names.guess(getattr(item, "originalname", None) or item.name, params)),
            ),
            params,
        )
        return over(found, marked), problem

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


def group(item: pytest.Item) -> str | None:
    """The benchmark group of a test."""
    marker = item.get_closest_marker("benchmark")
    found = marker.kwargs.get("group") if marker is not None else None
    return found if isinstance(found, str) else None
