"""What a finished test has to say: its measurements, its work by the first source that knows it, its baseline."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from roofline_engine.check import Baseline, Measurement

from .annotator import Case
from .devices import seen_on
from .problems import HookError
from .recorder import Recorder
from .settings import Settings
from .timing.benchmarks import codspeed_count, of_codspeed, of_pytest_benchmark
from .work import globs, names, records
from .work.declared import Declared, declared, over


class Cases:
    """Finds the cases of tests, and remembers the leaders of benchmark groups.

    baselines: earlier times by nodeid.
    """

    def __init__(self, config: pytest.Config, settings: Settings, baselines: Mapping[str, Baseline]) -> None:
        self.config, self.settings, self.baselines = config, settings, baselines
        self._leaders: dict[str, Baseline] = {}

    def before(self) -> int:
        """Benchmarks that pytest-codspeed has taken before a test starts; ``of`` takes it back."""
        return codspeed_count(self._codspeed())

    def of(self, item: pytest.Item, recorder: Recorder | None, before: int) -> list[Case]:
        """The cases of a test: each measurement of its ``roofline`` fixture, else the one of a benchmark plugin.

        None for a test that was neither measured nor says anything of its work.
        """
        fixture = getattr(item, "funcargs", {}).get("benchmark")
        said, problem = self._declared(item, recorder, fixture)
        taken = recorder.taken if recorder is not None else []
        if taken:
            cases = []
            for at, one in enumerate(taken, 1):
                case = self._case(item, over(one.declared, said), problem, one.measurement, one.seen, one.baseline)
                cases.append(dataclasses.replace(case, nodeid=f"{item.nodeid}#{at}") if len(taken) > 1 else case)
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

    def _case(
        self,
        item: pytest.Item,
        said: Declared,
        problem: str,
        measurement: Measurement | None,
        seen: str | None,
        baseline: Baseline | None = None,
    ) -> Case:
        path, line, _ = item.location
        found = group(item)
        case = Case(
            nodeid=item.nodeid,
            test=getattr(item, "originalname", None) or item.name,
            declared=said,
            measurement=measurement,
            baseline=baseline or self._baseline(item.nodeid, found, said),
            seen=seen,
            problem=problem,
            group=found,
            path=path,
            line=(line or 0) + 1,
        )
        if said.baseline and found is not None and measurement is not None:
            leader = Baseline(said.baseline_kind, t_s=measurement.t_s, spread=measurement.spread, source=item.nodeid)
            self._leaders[found] = leader
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
        problem = ""
        sources: tuple[tuple[str, Callable[[], Mapping[str, Any] | None]], ...] = (
            ("hook", lambda: self._hooked(item, params)),
            ("config", lambda: globs.find(self.settings.work, item.nodeid)),
            ("extra_info", lambda: records.of_extra_info(getattr(fixture, "extra_info", None) or {})),
            ("names", lambda: names.guess(getattr(item, "originalname", None) or item.name, params)),
        )
        for source, find in sources:
            try:
                keywords = find()
                if keywords is not None:
                    return over(declared(keywords, params, source, stage="A" if source == "names" else "B"), marked), ""
            except ValueError as error:
                problem = problem or f"{source}: {error}"
        return marked or Declared(), problem

    def _hooked(self, item: pytest.Item, params: Mapping[str, Any]) -> Mapping[str, Any] | None:
        try:
            found: Mapping[str, Any] | None = self.config.hook.pytest_roofline_work(item=item, params=params)
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

    def _baseline(self, nodeid: str, found: str | None, said: Declared) -> Baseline | None:
        """The earlier time of this test, else the leader of its benchmark group."""
        earlier = self.baselines.get(nodeid)
        if earlier is not None or found is None or said.baseline:
            return earlier
        return self._leaders.get(found)


def parameters(item: pytest.Item) -> Mapping[str, Any]:
    """The parametrize arguments of a test."""
    found: Mapping[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    return found


def group(item: pytest.Item) -> str | None:
    """The benchmark group of a test."""
    marker = item.get_closest_marker("benchmark")
    found = marker.kwargs.get("group") if marker is not None else None
    return found if isinstance(found, str) else None
