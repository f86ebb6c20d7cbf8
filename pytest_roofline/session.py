"""One run with ``--roofline``: each test's case to its row, rows to the controller, the controller to the reports.

Registered by ``plugin`` only when asked for. With pytest-xdist a worker attaches its rows to the test's report as strings of
JSON, the controller collects them; without it one process does both.
"""

from __future__ import annotations

import dataclasses
import json
import os
import unittest
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, NamedTuple, TypeVar

import pytest

from roofline_engine.inputs import read_targets
from roofline_engine.peaks import Device, Peaks
from roofline_engine.units import printable

from .baselines import Earlier, Predictions, read_baselines, read_pins, read_predictions
from .capture.watching import Watched, minds_a_watch, seeing, watching
from .collect.collectors import Collectors
from .collect.functions import ProblemItem
from .config import Settings, SettingsError, resolve
from .declare import Declared, declared, is_baseline, matches
from .devices import AUTO, Devices, Host
from .evaluate import Annotator
from .fixture import Recorder
from .gate import list_gaps
from .recorded import catching, of_records, returned_records
from .report import write_reports
from .report.document import Document, properties
from .report.terminal import lines, title
from .row import Row
from .testcase import Cases, HookError, Ran, benchmark, group, parameters
from .timing.devices import loaded
from .values import plain
from .warnings import BeyondRoofWarning, ExceedsTargetWarning

#: On the test's report, from worker to controller: a JSON list of rows, each a string of JSON.
_ATTRIBUTE = "_roofline"

T = TypeVar("T")

_recorder_key = pytest.StashKey[Recorder]()
_rows_key = pytest.StashKey[list[Any]]()
#: The properties that are ours: a test may record some whose names begin as ours do.
_properties_key = pytest.StashKey[list[tuple[str, str]]]()


def start(config: pytest.Config) -> None:
    """Resolve the settings, read what was known before, and register the session.

    Raises:
        pytest.UsageError: for a setting that cannot be meant, and for an input that a gate needs and that cannot be read.
    """
    given = {name: config.getoption(f"roofline_{name}") for name in _OPTIONS}
    ini = {}
    for name in _INI:
        try:
            ini[name] = config.getini(f"roofline_{name}")
        except (TypeError, ValueError, pytest.UsageError) as error:  # of a wrong type, not all versions of pytest name the key
            raise pytest.UsageError(f"roofline: roofline_{name}: {error}") from None
    try:
        settings = resolve(given, ini, config.rootpath)
    except SettingsError as error:
        raise pytest.UsageError(f"roofline: {error}") from None
    problems: list[str] = []
    predictions = _prior("predictions", read_predictions, settings, problems)
    pins = _prior("match", read_pins, settings, problems)
    if pins and predictions is not None:
        _prior("match", lambda path: predictions.pin(pins, path.name), settings, problems)
    elif pins:
        _refused("match not used: it needs --roofline-predictions", settings, problems)
    baselines = _prior("baseline", read_baselines, settings, problems) or {}
    session = Session(config, settings, predictions, baselines, problems)
    session.check_inputs()
    config.pluginmanager.register(session, "roofline-session")
    config.pluginmanager.register(Collectors(config, settings), "roofline-collect")


_OPTIONS = (
    *("device", "peaks", "predictions", "baseline", "report", "fail_on", "fail_under", "ledger"),
    *("time", "match", "capture"),
)
_INI = ("device", "peaks", "fail_on", "fail_under", "noise", "junit", "item_timeout", "scripts")


def _prior(name: str, read: Callable[[Path], Any], settings: Settings, problems: list[str]) -> Any:
    path = getattr(settings, name)
    if path is None:
        return None
    try:
        return read(path)
    except (ValueError, OSError) as error:
        return _refused(f"{name} not used: {error}", settings, problems)


def _refused(line: str, settings: Settings, problems: list[str]) -> None:
    """An input that cannot be used: the run's end where a gate may need it, one line where none does."""
    if settings.gated:
        raise pytest.UsageError(f"roofline: {line}")
    problems.append(line)


class _Told(NamedTuple):
    """What one test has for the report: its rows (in a worker as strings of JSON), what went wrong, the peaks so far."""

    rows: list[Any]
    problems: list[str]
    devices: dict[str, dict[str, Any]]


def _sent(report: pytest.TestReport) -> _Told | None:
    """What a worker has attached to a report."""
    text = getattr(report, _ATTRIBUTE, None)
    if text is None:
        return None
    told = _Told(**json.loads(text))
    return told._replace(rows=[Row.from_json(row) for row in told.rows])


class Session:
    """The plugin object of one run."""

    def __init__(
        self,
        config: pytest.Config,
        settings: Settings,
        predictions: Predictions | None,
        baselines: Mapping[str, Earlier],
        problems: list[str],
    ) -> None:
        self.config, self.settings = config, settings
        self.cases = Cases(config, settings, baselines)
        host = Host(lambda line: self.annotator.tell(line))
        devices = Devices(settings.device, settings.peaks, hook=self._hooked_peaks, of_host=host.peaks, of_machine=_machine)
        shared = getattr(config, "workerinput", {}).get("workercount", 1) > 1
        self.annotator = Annotator(settings, devices, predictions, host.remeasure, shared)
        self.document = Document(settings, predictions)
        self.problems = problems
        self.is_worker = hasattr(config, "workerinput")
        self._told: dict[str, _Told] = {}

    # Before the tests.

    def check_inputs(self) -> None:
        """The device, the peaks and the targets, where they were named, and whether the predictions are of that device."""
        if self.settings.targets is not None:
            try:
                self.annotator.devices.targets = read_targets(os.fspath(self.settings.targets))
            except (ValueError, OSError) as error:
                _refused(f"targets not used: {error}", self.settings, self.problems)
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
                _refused(f"{other}: not used", self.settings, self.problems)
                self.annotator.predictions = self.document.predictions = None
        elif self.settings.peaks is not None:
            try:
                devices.readable()
            except (ValueError, OSError) as error:
                _refused(str(error), self.settings, self.problems)

    def _hooked_peaks(self, device: str) -> Peaks | None:
        found = self.config.hook.pytest_roofline_peaks(config=self.config, device=device)
        if found is None:
            return None
        if not isinstance(found, Peaks):
            raise ValueError(f"pytest_roofline_peaks gave {found!r:.60} for {device}, expected roofline_engine.peaks.Peaks")
        said = found._asdict().items()
        coerced: dict[str, Any] = {key: value if isinstance(value, tuple) else plain(value) for key, value in said}
        return Peaks(**coerced)

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
        return declared(marker.kwargs, parameters(item), "marker")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """The baseline of a benchmark group runs before the others of the group; all else keeps its place."""
        first: dict[str, int] = {}
        place = []  # by position: a plugin may have put one item in twice
        for at, item in enumerate(items):
            found, marker = group(item), item.get_closest_marker("roofline")
            start = at if found is None else first.setdefault(found, at)
            leads = found is not None and marker is not None and is_baseline(marker.kwargs, parameters(item))
            place.append((start, 0, at) if leads else (at, 1, at))
        items[:] = [items[at] for *_, at in sorted(place)]
        if self.settings.time is not None and items:
            self._tell_of_time(self.settings.time, items)

    def _tell_of_time(self, glob: str, items: list[pytest.Item]) -> None:
        """A line where ``--roofline-time`` is going to time nothing."""
        fits = [item for item in items if matches(glob, item.nodeid)]
        if not fits:
            self.annotator.tell(f"--roofline-time={glob} fits no test: it is a glob of whole nodeids, as in '*::test_name*'")
        elif not any(isinstance(item, ProblemItem) or self._times(item) for item in fits):
            self.annotator.tell(f"--roofline-time={glob} times nothing: no test that it fits has time= in its marker")

    @staticmethod
    def _times(item: pytest.Item) -> Any:
        """The name of the callable that a test's marker wants timed."""
        marker = item.get_closest_marker("roofline")
        return marker.kwargs.get("time") if marker is not None else None

    # One test.

    def fixture(self, item: pytest.Item) -> Recorder:
        """The ``roofline`` fixture of a test."""
        marker = item.get_closest_marker("roofline")
        captures = self.settings.capture and not self.cases.says_work(item)
        made = Recorder(parameters(item), marker.kwargs if marker else {}, captures=captures)
        return item.stash.setdefault(_recorder_key, made)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if _recorder_key in item.stash:  # of an earlier try
            del item.stash[_recorder_key]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        item.stash[_rows_key] = []
        ran = Ran()
        try:
            ran = Ran(self.cases.before())
        except Exception as error:
            self._faulted(item, error)
        nothing: list[Mapping[str, Any]] = []
        with (
            self._guarded(item, partial(self._timed, item), None),
            self._guarded(item, partial(self._returning, item), nothing) as returned,
            self._guarded(item, partial(self._watching, item, ran.before), None) as watched,
        ):
            result = yield
        try:
            params = parameters(item)
            returned_cases = of_records(returned_records(returned, params, item.name), params, "returned", sized=False)
            ran = ran._replace(returned=returned_cases, watched=watched)
            rows = self._rows(item, ran)
            self._export(item, rows)
            item.stash[_rows_key] = [row.to_json() for row in rows] if self.is_worker else rows
        except Exception as error:  # L5: a fault of ours fails no test, unless a gate would pass for want of a check
            line = self._faulted(item, error)
            if self.settings.gated:
                pytest.fail(f"roofline: not checked: {printable(line)}", pytrace=False)
            return result
        failures = [line for row in rows for line in (row.failed, _warned(item, row)) if line]
        if failures:
            pytest.fail("roofline: " + "\n".join(failures), pytrace=False)
        return result

    def _faulted(self, item: pytest.Item, error: Exception) -> str:
        """Tell of a fault that costs a test its row, or a part of it, and no more."""
        ours = "" if isinstance(error, HookError) else f"fault of the plugin: {type(error).__name__}: "
        line = f"{item.nodeid}: {ours}{error}"
        self.annotator.tell(line)
        return line

    def _guarded(self, item: pytest.Item, make: Callable[[], AbstractContextManager[T]], instead: T) -> Guarded[T]:
        return Guarded(make, instead, partial(self._faulted, item))

    @contextmanager
    def _timed(self, item: pytest.Item) -> Iterator[None]:
        """With ``--roofline-time``, the callable that the marker names with ``time=`` is measured at its first call."""
        name = self._times(item)
        if name is None or self.settings.time is None or not matches(self.settings.time, item.nodeid):
            yield
            return
        module = getattr(item, "module", None)
        fn = getattr(module, name, None)
        if not callable(fn):
            self.annotator.tell(f"{item.nodeid}: time={name!r} names no callable of its module")
            yield
            return
        setattr(module, name, self.fixture(item).first_call(fn))
        try:
            yield
        finally:
            setattr(module, name, fn)

    def _returning(self, item: pytest.Item) -> AbstractContextManager[list[Mapping[str, Any]]]:
        """What a function under test returns, where pytest itself would only warn of it."""
        return catching(item) if _is_function(item) else nullcontext([])

    def _watching(self, item: pytest.Item, before: int) -> AbstractContextManager[Watched | None]:
        """Capture of what nobody annotated."""
        fixture = benchmark(item)
        if not (self.settings.capture and isinstance(item, pytest.Function)) or self.cases.says_work(item):
            return nullcontext() if fixture is None else seeing(fixture)
        own = fixture is None and "roofline" not in item.funcargs and _is_function(item) and loaded("torch") is not None
        own = own and not minds_a_watch(item.function, item.cls)
        timed = partial(self.cases.timed, item, before)
        namespace = getattr(item.module, "__dict__", {})  # of a function that some other plugin collected there is none
        return watching(item.originalname, namespace, fixture, own=own, timed=timed)

    def _rows(self, item: pytest.Item, ran: Ran) -> list[Row]:
        rows = []
        for case in self.cases.of(item, item.stash.get(_recorder_key, None), ran):
            row = self.annotator.annotate(case)
            row = dataclasses.replace(row, gates=self.settings.gates.evaluate(row, case.declared.min_pct))
            item.ihook.pytest_roofline_annotation(item=item, annotation=row)
            rows.append(row)
        return rows

    def _export(self, item: pytest.Item, rows: list[Row]) -> None:
        """JUnit properties and pytest-benchmark's extra_info; those of an earlier try of the same test are replaced."""
        earlier = [id(pair) for pair in item.stash.get(_properties_key, [])]
        item.user_properties[:] = [pair for pair in item.user_properties if id(pair) not in earlier]
        own = properties(rows[0]) if self.settings.junit and rows else []
        item.stash[_properties_key] = own
        item.user_properties.extend(own)
        extra = getattr(benchmark(item), "extra_info", None)
        if isinstance(extra, dict) and rows:
            extra["roofline"] = rows[0].to_dict()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "call":
            told = _Told(item.stash.get(_rows_key, []), self.annotator.take_problems(), {})
            if told.rows or told.problems:
                found = self.annotator.devices.found
                told = told._replace(devices={name: peaks.to_dict() for name, peaks in found.items()})
                if self.is_worker:
                    setattr(report, _ATTRIBUTE, json.dumps(told._asdict()))
                else:
                    self._told[item.nodeid] = told
        return report

    # The end, on the controller.

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self.is_worker:
            return
        if report.when == "setup":
            self.document.forget(report.nodeid)  # of an earlier try
        elif report.when == "call":
            told = self._told.pop(report.nodeid, None) or _sent(report)
            if told is not None:
                if hasattr(report, "wasxfail"):  # a gap that its author knows of is no error of this run
                    told = told._replace(rows=[row.without_failures() for row in told.rows])
                self.document.add(*told, report.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_json(self, output_json: dict[str, Any]) -> None:
        output_json["roofline"] = self.document.summary()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        if self.is_worker or self.config.option.collectonly:
            return
        told = [*self.problems, *self.annotator.take_problems(), *self.document.problems]
        told += list_gaps(
            self.document.rows,
            self.settings.gates,
            self.settings.baseline,
            self.cases.baselines,
        )
        self.document.problems = list(dict.fromkeys(told))
        self._remember()
        document = self.document.to_dict()
        try:
            self.config.hook.pytest_roofline_report(config=self.config, report=document)
            if self.config.hook.pytest_roofline_report.get_hookimpls():
                document = plain(document)
        except Exception as error:  # L5, as for a test
            self.document.problems.append(f"pytest_roofline_report: {type(error).__name__}: {error}")
        annotates = self.config.pluginmanager.has_plugin("pytest_github_actions_annotate_failures")
        write_reports(self.document, document, self.settings, annotations=not annotates)

    def _remember(self) -> None:
        """Append the outcome of this run's predictions to the ledger that was named."""
        if self.settings.ledger is None:
            return
        from .ledger import append, pair_of

        try:
            pairs = [pair for row in self.document.rows if (pair := pair_of(row)) is not None]
            append(self.settings.ledger, pairs)
            if not pairs:
                self.document.problems.append("ledger: nothing to append: no row has both a prediction and a speedup")
        except (OSError, ValueError) as error:
            self.document.problems.append(f"ledger: nothing appended: {error}")

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.is_worker or self.config.option.collectonly or ("term", "") not in self.settings.reports:
            return
        verbosity, width = self.config.get_verbosity(), self.config.get_terminal_writer().fullwidth
        if verbosity >= 0:
            terminalreporter.write_sep("=", title(self.document))
        for line in lines(self.document, width, verbosity):
            terminalreporter.write_line(line.text, **dict.fromkeys(line.markup, True))
        if verbosity < 0:
            terminalreporter.write_line(title(self.document))


def _warned(item: pytest.Item, row: Row) -> str | None:
    """Warn of a contradiction at the test's line; the failure that the user's filters make of it, if they do."""
    kind = {"beyond_roof": BeyondRoofWarning, "exceeds_target": ExceedsTargetWarning}.get(row.check.status)
    if kind is None:
        return None
    warning = kind(printable(f"{row.entry.short_name}: {row.check.status}: {row.check.message}"))
    try:
        item.warn(warning)
    except kind:
        return f"{kind.__name__}: {warning}"
    return None


def _is_function(item: pytest.Item) -> bool:
    """Whether a test is a function that pytest calls itself: one of unittest's it does not."""
    return isinstance(item, pytest.Function) and not (item.cls is not None and issubclass(item.cls, unittest.TestCase))


def _machine() -> Device | None:
    from .ceilings import find_device

    found = find_device()
    return None if found is None else found.device


class Guarded(Generic[T]):
    """``make()`` as a context; where that, its start or its end raises of itself, ``tell`` hears of it and the block goes on.

    instead: what the block gets where there is no context. An exception of the block leaves as it is.
    """

    def __init__(self, make: Callable[[], AbstractContextManager[T]], instead: T, tell: Callable[[Exception], object]) -> None:
        self._make, self._instead, self._tell = make, instead, tell
        self._context: AbstractContextManager[T] | None = None

    def __enter__(self) -> T:
        try:
            context = self._make()
            value = context.__enter__()
        except Exception as error:
            self._tell(error)
            return self._instead
        self._context = context
        return value

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._context is None:
            return
        try:
            self._context.__exit__(kind, error, trace)
        except Exception as fault:
            if fault is not error:
                self._tell(fault)
