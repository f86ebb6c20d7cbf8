"""One run with ``--roofline``: each test's case to its row, rows to the controller, the controller to the reports.

Registered by ``plugin`` only when asked for. With pytest-xdist a worker attaches its rows to the test's report as strings of
JSON, the controller collects them; without it one process does both.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from roofline_engine.check import CACHES, CLOCKS, Baseline, Measurement
from roofline_engine.device import Device
from roofline_engine.peaks import Peaks
from roofline_engine.units import number

from .annotation import Annotation
from .annotator import Annotator, Case, gate
from .devices import AUTO, Devices, seen_on
from .plain import plain
from .plugin import Plain
from .priors import Predictions, read_baselines, read_predictions
from .problems import BeyondRoofWarning, ExceedsTargetWarning
from .report import Document, write
from .report.junit import properties
from .report.terminal import section
from .settings import Settings, SettingsError, resolve
from .work import globs, names, records
from .work.declared import Declared, declared

#: On the test's report, from worker to controller: a JSON list of rows, each a string of JSON.
_ATTRIBUTE = "_roofline"

_fixture_key = pytest.StashKey["Recorder"]()
_rows_key = pytest.StashKey[list[Annotation]]()


def start(config: pytest.Config) -> None:
    """Resolve the settings, read what was known before, and register the session.

    Raises:
        pytest.UsageError: for a setting that cannot be meant, and for an input that a gate needs and that cannot be read.
    """
    given = {name: config.getoption(f"roofline_{name}") for name in _OPTIONS}
    ini = {name: config.getini(f"roofline_{name}") for name in _INI}
    try:
        settings = resolve(given, ini, config.rootpath)
    except SettingsError as error:
        raise pytest.UsageError(f"roofline: {error}") from None
    problems: list[str] = []
    predictions = _prior(settings.predictions, read_predictions, settings, problems)
    baselines = _prior(settings.baseline, read_baselines, settings, problems) or {}
    session = Session(config, settings, predictions, baselines, problems)
    session.check_inputs()
    config.pluginmanager.register(session, "roofline-session")


_OPTIONS = ("device", "peaks", "predictions", "baseline", "report", "fail_on", "fail_under", "time")
_INI = ("device", "peaks", "fail_on", "fail_under", "noise", "junit")


def _prior(path: Path | None, read: Callable[[Path], Any], settings: Settings, problems: list[str]) -> Any:
    if path is None:
        return None
    try:
        return read(path)
    except (ValueError, OSError) as error:
        return _refused(str(error), settings, problems)


def _refused(line: str, settings: Settings, problems: list[str]) -> None:
    """An input that cannot be used: the run's end where a gate may need it, one line where none does."""
    if settings.gated:
        raise pytest.UsageError(f"roofline: {line}")
    problems.append(line)


class Session:
    """The plugin object of one run."""

    def __init__(
        self,
        config: pytest.Config,
        settings: Settings,
        predictions: Predictions | None,
        baselines: Mapping[str, Baseline],
        problems: list[str],
    ) -> None:
        self.config, self.settings, self.baselines = config, settings, baselines
        devices = Devices(
            settings.device,
            settings.peaks,
            hook=self._hooked_peaks,
            of_host=self._host_peaks,
            of_machine=_machine,
        )
        self.annotator = Annotator(settings, devices, predictions, _remeasure)
        self.document = Document(settings, predictions)
        self.problems = problems
        self.is_worker = hasattr(config, "workerinput")
        self._leaders: dict[str, Baseline] = {}

    # Before the tests.

    def check_inputs(self) -> None:
        """The device and the peaks, where they were named, and whether the predictions are of that device."""
        devices, chosen = self.annotator.devices, self.settings.device
        if chosen not in (AUTO, "cpu"):
            try:
                peaks = devices.peaks(chosen)
            except (ValueError, OSError) as error:
                _refused(str(error), self.settings, self.problems)
                return
            predictions = self.annotator.predictions
            other = predictions.other_device(peaks) if predictions else None
            if other:
                _refused(other, self.settings, self.problems)
                self.annotator.predictions = self.document.predictions = None
        elif self.settings.peaks is not None:
            try:
                devices.readable()
            except (ValueError, OSError) as error:
                _refused(str(error), self.settings, self.problems)

    def _hooked_peaks(self, device: str) -> Peaks | None:
        found: Peaks | None = self.config.hook.pytest_roofline_peaks(config=self.config, device=device)
        return found

    def _host_peaks(self) -> Peaks:
        from .ceilings import cpu_peaks

        return cpu_peaks()

    def pytest_report_header(self) -> str:
        return f"roofline: {self.document.header(self.annotator.devices)}"

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """A marker that cannot be meant is an error of its file's collection, like any other mistake in it."""
        report = yield
        wrong = []
        for node in report.result or ():
            marker = node.get_closest_marker("roofline") if isinstance(node, pytest.Function) else None
            if marker is None or not isinstance(node, pytest.Function):
                continue
            try:
                self._marked(node, marker)
            except ValueError as error:
                wrong.append(f"{node.nodeid}: roofline marker: {error}")
        if wrong:
            report.outcome = "failed"
            report.longrepr = "\n".join(wrong)
            report.result = []
        return report

    def _marked(self, item: pytest.Function, marker: pytest.Mark) -> Declared:
        if marker.args:
            raise ValueError(f"takes keywords only, given {marker.args[0]!r:.40}")
        return declared(marker.kwargs, _params(item), "marker")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """The baseline of a benchmark group runs before the others of the group; all else keeps its place."""
        first: dict[str, int] = {}
        place = {}
        for at, item in enumerate(items):
            group, marker = _group(item), item.get_closest_marker("roofline")
            start = at if group is None else first.setdefault(group, at)
            leads = group is not None and marker is not None and marker.kwargs.get("baseline") is True
            place[item] = (start, 0) if leads else (at, 1)
        items.sort(key=lambda item: place[item])

    # One test.

    def fixture(self, item: pytest.Item) -> Recorder:
        """The ``roofline`` fixture of a test."""
        recorder = Recorder(_params(item))  # a rerun starts afresh
        item.stash[_fixture_key] = recorder
        return recorder

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        item.stash[_rows_key] = []
        benchmarks = _codspeed_count(self.config)
        result = yield
        try:
            rows = self._rows(item, benchmarks)
        except Exception as error:  # L5: a fault of ours must not fail a test
            self._fault(item, error)
            return result
        item.stash[_rows_key] = rows
        failures = [row.failed for row in rows if row.failed]
        self._export(item, rows)
        for row in rows:
            kind = {"beyond_roof": BeyondRoofWarning, "exceeds_target": ExceedsTargetWarning}.get(row.check.status)
            if kind is not None:
                item.warn(kind(f"{row.entry.short_name}: {row.check.status}: {row.check.message}"))
        if failures:
            pytest.fail("roofline: " + "\n".join(failures), pytrace=False)
        return result

    def _fault(self, item: pytest.Item, error: Exception) -> None:
        self.annotator.problems.append(f"{item.nodeid}: fault of the plugin: {type(error).__name__}: {error}")

    def _rows(self, item: pytest.Item, benchmarks: int) -> list[Annotation]:
        cases, min_pct = self._cases(item, benchmarks)
        rows = []
        for case in cases:
            row = self.annotator.annotate(case)
            self._lead(item, case)
            failed = gate(row, self.settings, min_pct)
            row = dataclasses.replace(row, failed=failed)
            self.config.hook.pytest_roofline_annotation(item=item, annotation=row)
            rows.append(row)
        return rows

    def _cases(self, item: pytest.Item, benchmarks: int) -> tuple[list[Case], float | None]:
        """What there is to say of a test: each measurement of its own fixture, else the one of a benchmark plugin."""
        recorder = item.stash.get(_fixture_key, None)
        taken = recorder.taken if recorder is not None else []
        fixture = getattr(item, "funcargs", {}).get("benchmark")
        said, problem = self._declared(item, recorder, fixture)
        path, line, _ = item.location
        common: dict[str, Any] = {
            "nodeid": item.nodeid,
            "test": getattr(item, "originalname", None) or item.name,
            "group": _group(item),
            "path": path,
            "line": (line or 0) + 1,
            "problem": problem,
        }
        if taken:
            many = len(taken) > 1
            return [
                Case(
                    **{**common, "nodeid": f"{item.nodeid}#{at}" if many else item.nodeid},
                    declared=_over(one.declared, said),
                    measurement=one.measurement,
                    baseline=one.baseline or self._baseline(item, _over(one.declared, said)),
                    seen=one.seen,
                )
                for at, one in enumerate(taken, 1)
            ], said.min_pct
        measurement = self._benchmark_time(item, fixture, benchmarks)
        if measurement is None and fixture is None and not said.source:
            return [], None
        if measurement is None:
            found = records.of_properties(item.user_properties)
            if found is not None:
                t_s, keywords = found
                measurement = Measurement("user", t_s)
                said = said if said.work else declared(keywords, {}, "properties")
        if measurement is None and said.work is None and fixture is None:
            return [], None
        seen = seen_on(list(getattr(item, "funcargs", {}).values()))
        return [
            Case(**common, declared=said, measurement=measurement, baseline=self._baseline(item, said), seen=seen)
        ], said.min_pct

    def _declared(self, item: pytest.Item, recorder: Recorder | None, fixture: Any) -> tuple[Declared, str]:
        """What is said of a test's kernel, by the first source that says it, and why nothing is where that failed."""
        params = _params(item)
        marker = item.get_closest_marker("roofline")
        marked = declared(marker.kwargs, params, "marker") if marker is not None else None
        if recorder is not None and recorder.declared is not None:
            return _over(recorder.declared, marked), ""
        if marked is not None and marked.work is not None:
            return marked, ""
        problem = ""
        for source, find in (
            ("hook", lambda: self.config.hook.pytest_roofline_work(item=item, params=params)),
            ("config", lambda: (globs.find(self.settings.work, item.nodeid) or ("", None))[1]),
            ("extra_info", lambda: records.of_extra_info(getattr(fixture, "extra_info", None) or {})),
            ("names", lambda: names.guess(getattr(item, "originalname", item.name), params)),
        ):
            try:
                keywords = find()
                if keywords is not None:
                    found = declared(keywords, params, source, stage="A" if source == "names" else "B")
                    return _over(found, marked), ""
            except ValueError as error:
                problem = problem or f"{source}: {error}"
        return marked or Declared(), problem

    def _benchmark_time(self, item: pytest.Item, fixture: Any, benchmarks: int) -> Measurement | None:
        from .timing import benchmarks as stats

        codspeed = self.config.pluginmanager.get_plugin("codspeed_plugin")
        if codspeed is not None and getattr(codspeed, "is_codspeed_enabled", False):
            return stats.of_codspeed(codspeed, benchmarks)
        return stats.of_pytest_benchmark(fixture) if fixture is not None else None

    def _baseline(self, item: pytest.Item, said: Declared) -> Baseline | None:
        """The earlier time of this test, else the leader of its benchmark group."""
        earlier = self.baselines.get(item.nodeid)
        if earlier is not None:
            return earlier
        group = _group(item)
        return None if group is None or said.baseline else self._leaders.get(group)

    def _lead(self, item: pytest.Item, case: Case) -> None:
        if case.declared.baseline and case.group is not None and case.measurement is not None:
            m = case.measurement
            self._leaders[case.group] = Baseline(case.declared.baseline_kind, t_s=m.t_s, spread=m.spread, source=item.nodeid)

    def _export(self, item: pytest.Item, rows: list[Annotation]) -> None:
        """JUnit properties and pytest-benchmark's extra_info; those of an earlier try of the same test are replaced."""
        item.user_properties[:] = [pair for pair in item.user_properties if not str(pair[0]).startswith("roofline_")]
        if self.settings.junit and rows:
            item.user_properties.extend(properties(rows[0]))
        extra = getattr(getattr(item, "funcargs", {}).get("benchmark"), "extra_info", None)
        if isinstance(extra, dict) and rows:
            extra["roofline"] = rows[0].to_dict()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "call":
            rows = item.stash.get(_rows_key, [])
            problems = self.annotator.take_problems()
            devices = {name: peaks.to_dict() for name, peaks in self.annotator.devices.found.items()}
            if rows or problems:
                told = {"rows": [row.to_json() for row in rows], "problems": problems, "devices": devices}
                setattr(report, _ATTRIBUTE, json.dumps(told))
        return report

    # The end, on the controller.

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        told = getattr(report, _ATTRIBUTE, None)
        if self.is_worker or told is None:
            return
        data = json.loads(told)
        self.document.add([Annotation.from_json(text) for text in data["rows"]], data["problems"], data["devices"])

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_json(self, output_json: dict[str, Any]) -> None:
        output_json["roofline"] = self.document.summary()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        if self.is_worker or self.config.option.collectonly:
            return
        self.document.problems = [*self.problems, *self.annotator.take_problems(), *self.document.problems]
        document = self.document.to_dict()
        self.config.hook.pytest_roofline_report(config=self.config, report=document)
        annotates = self.config.pluginmanager.has_plugin("pytest_github_actions_annotate_failures")
        write(self.document, document, self.settings, annotations=not annotates)

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.is_worker and ("term", "") in self.settings.reports:
            section(terminalreporter, self.document)


@dataclass(frozen=True, slots=True)
class Taken:
    """One measurement that a test took, with what had been declared by then."""

    declared: Declared | None
    measurement: Measurement
    baseline: Baseline | None
    seen: str | None


class Recorder(Plain):
    """The ``roofline`` fixture under ``--roofline``."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        self.params = params
        self.declared: Declared | None = None
        self.taken: list[Taken] = []

    def __call__(self, **work: object) -> None:
        """Declare the work of what is measured next, or of the test's benchmark; keywords as those of the marker.

        Raises:
            ValueError: for keywords that cannot be meant.
        """
        self.declared = declared(work, self.params, "fixture")

    def measure(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Time ``fn(*args, **kwargs)`` on the clock of its device and return its value."""
        from .timing import measure

        value, measurement = measure(fn, *args, **kwargs)
        self._take(measurement, None, (value, args, kwargs))
        return value

    def compare(self, baseline: Callable[..., Any], candidate: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Time both by turns and return the candidate's value; the row is the candidate's, over the baseline."""
        from .timing import compare

        result = compare(baseline, candidate, *args, **kwargs)
        before = result.baseline
        self._take(
            result.candidate,
            Baseline("live", t_s=before.t_s, spread=before.spread, source="roofline.compare"),
            (result.value, args, kwargs),
        )
        return result.value

    def record(self, t_s: float, **measurement: Any) -> None:
        """Take a time (s) that the test measured itself: ``q1_s``, ``q3_s``, ``rounds``, ``clock`` and ``cache`` say more.

        Raises:
            ValueError: for a time that is no positive number, or a keyword that is not known.
        """
        self._take(_measured(t_s, measurement), None, ())

    def _take(self, measurement: Measurement, baseline: Baseline | None, values: object) -> None:
        self.taken.append(Taken(self.declared, measurement, baseline, seen_on(values)))


def _measured(t_s: Any, said: Mapping[str, Any]) -> Measurement:
    known = ("q1_s", "q3_s", "rounds", "clock", "cache")
    unknown = [key for key in said if key not in known]
    if unknown:
        raise ValueError(f"record: unknown {', '.join(unknown)}; it takes t_s, {', '.join(known)}")
    values: dict[str, Any] = {key: plain(value) for key, value in said.items() if value is not None}
    for key in ("q1_s", "q3_s"):
        if key in values:
            values[key] = float(number(values[key], key, above=0))
    for key, choices in (("clock", CLOCKS), ("cache", CACHES)):
        if values.get(key, choices[0]) not in choices:
            raise ValueError(f"{key} is {values[key]!r:.40}, expected one of {', '.join(choices)}")
    if "rounds" in values:
        values["rounds"] = int(number(values["rounds"], "rounds", minimum=1))
    return Measurement("user", float(number(plain(t_s), "t_s", above=0)), **values)


def _params(item: pytest.Item) -> Mapping[str, Any]:
    return getattr(getattr(item, "callspec", None), "params", {})


def _group(item: pytest.Item) -> str | None:
    marker = item.get_closest_marker("benchmark")
    group = marker.kwargs.get("group") if marker is not None else None
    return group if isinstance(group, str) else None


def _codspeed_count(config: pytest.Config) -> int:
    instrument = getattr(config.pluginmanager.get_plugin("codspeed_plugin"), "instrument", None)
    return len(getattr(instrument, "benchmarks", ()))


def _over(first: Declared | None, second: Declared | None) -> Declared:
    """``first`` where it says something, ``second`` elsewhere."""
    if first is None or second is None:
        return first or second or Declared()
    fields = [field.name for field in dataclasses.fields(Declared)]
    of_work = ("work", "source", "stage", "notes")
    changed = {name: getattr(first, name) for name in fields if getattr(first, name) != getattr(_NOTHING, name)}
    if first.work is not None:
        changed.update({name: getattr(first, name) for name in of_work})
    return dataclasses.replace(second, **changed)


_NOTHING = Declared()


def _machine() -> Device | None:
    from .ceilings import find_device

    return find_device()


def _remeasure(peaks: Peaks, axis: str | None) -> Peaks:
    from .ceilings import remeasure

    return remeasure(peaks, axis)
