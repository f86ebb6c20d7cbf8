"""One run with ``--roofline``: each test becomes rows, and the rows become the reports.

``plugin`` imports this module only with the flag. A ``Session`` turns tests into rows; it runs in every process that runs
tests. A ``Reporter`` collects the rows and writes the reports; a pytest-xdist worker has none, and sends its rows with the
test's report as one JSON document.
"""

from __future__ import annotations

import json
import os
import unittest
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

from roofline_engine.fields import has_note
from roofline_engine.inputs import read_targets
from roofline_engine.peaks import CPU, Peaks
from roofline_engine.units import printable

from .baselines import Earlier, Predictions, read_baselines, read_pins, read_predictions
from .capture.watching import CaptureResult, uses_clock_or_modes, watch_devices, watch_test
from .collect.collectors import Collectors
from .collect.items import ProblemItem
from .config import INI_KEYS, OPTIONS, Settings, SettingsError, resolve
from .declare import is_baseline, matches, read_declaration
from .devices import AUTO, Devices, UnknownDeviceError, read_given_peaks
from .evaluate import Annotator
from .fixture import Recorder
from .gate import unmatched_baselines
from .records.cases import cases_of_returned, catch_returned
from .report import write_reports
from .report.document import Document, properties
from .report.terminal import Line, gate_lines, lines, title
from .row import GateOutcome, Row
from .testcase import REQUESTED, CallOutcome, Cases, HookError, Parameters, benchmark, group, marker_keywords, roofline_markers
from .timing.clocks import WaitMeter
from .timing.devices import loaded
from .timing.measurement import Setup, evict_host
from .timing.plugins import Eviction, cold_rounds, is_benchmark
from .values import plain
from .warnings import BeyondRoofWarning, ExceedsTargetWarning

#: The attribute of a test's report with which a worker sends a ``WorkerPayload``, as JSON.
_ATTRIBUTE = "_roofline"

T = TypeVar("T")

_recorder_key = pytest.StashKey[Recorder]()
_rows_key = pytest.StashKey[list[Row]]()
#: Rows of earlier tries of a test that were beyond the roof: a later try makes such a time no less impossible.
_beyond_key = pytest.StashKey[list[Row]]()
#: How a test ends early on purpose. What it measured until then counts.
_LATE_ENDS = (pytest.skip.Exception, pytest.xfail.Exception, unittest.SkipTest)
#: Without one of these plugins a run makes no rows or no summary.
_NEEDED = ("roofline-session", "roofline-reporter")
#: The properties that this plugin added: a test may record others whose names begin alike.
_properties_key = pytest.StashKey[list[tuple[str, str]]]()


def start(config: pytest.Config) -> None:
    """Resolve the settings, read predictions and baselines, and register the plugins of this run.

    Raises:
        pytest.UsageError: for an invalid setting, and for an unreadable input that a gate needs.
    """
    options = {name: config.getoption(f"roofline_{name}") for name in OPTIONS}
    ini = {}
    for name in INI_KEYS:
        try:
            ini[name] = config.getini(f"roofline_{name}")
        except (TypeError, ValueError, pytest.UsageError) as error:  # not every version of pytest names the key
            raise pytest.UsageError(f"roofline: roofline_{name}: {error}") from None
    try:
        settings = resolve(options, ini, config.rootpath)
    except SettingsError as error:
        raise pytest.UsageError(f"roofline: {error}") from None
    settings = _with_saved_run(config, settings)
    blocked = [name for name in _NEEDED if config.pluginmanager.is_blocked(name)]
    if blocked:
        raise pytest.UsageError(f"roofline: --roofline does nothing with -p no:{blocked[0]}: leave out one of the two")
    inputs = _Inputs(settings)
    session = Session(config, settings, inputs)
    inputs.check_devices(session.annotator)
    config.pluginmanager.register(session, "roofline-session")
    config.pluginmanager.register(Collectors(config, settings), "roofline-collect")
    if not hasattr(config, "workerinput"):
        session.reporter = Reporter(config, settings, inputs, session.annotator)
        config.pluginmanager.register(session.reporter, "roofline-reporter")


def _with_saved_run(config: pytest.Config, settings: Settings) -> Settings:
    """Return the settings with the saved run that ``--roofline-compare`` means as the baseline.

    Where no run can be compared with, and none is named, rows without an earlier time do not fail the run: it may be the first.

    Raises:
        pytest.UsageError: for a name that is a path, for two baselines, and for a run that a gate needs.
    """
    arguments = [*config.invocation_params.args, *config.getini("addopts"), *os.environ.get("PYTEST_ADDOPTS", "").split()]
    for option in ("save", "compare"):
        name = getattr(settings, option)
        is_path = name and (os.sep in name or "::" in name or os.path.exists(name))
        if is_path and f"--roofline-{option}={name}" not in arguments:
            expected = f"To give a name write --roofline-{option}=NAME, and without a name put the option last"
            raise pytest.UsageError(f"roofline: --roofline-{option} took {printable(name)} as its name. {expected}")
    if settings.compare is None:
        return settings
    if config.getoption("roofline_baseline"):
        raise pytest.UsageError("roofline: --roofline-compare and --roofline-baseline both name earlier times. Leave out one")
    from .saved import choose, read_runs

    problems: list[str] = []
    try:
        run = choose(read_runs(settings.storage, problems.append), settings.compare, settings.storage)
        return replace(settings, baseline=run.path, problems=(*settings.problems, *problems))
    except (ValueError, OSError) as error:
        if settings.compare and settings.gated:
            raise pytest.UsageError(f"roofline: --roofline-compare: {error}") from None
        problems.append(f"--roofline-compare: {error}")
    allowed = settings.allow_unchecked
    if settings.gated and "no_baseline" not in allowed:
        problems.append("nothing to compare with: rows without an earlier time do not fail this run (no_baseline)")
        allowed |= {"no_baseline"}
    return replace(settings, baseline=None, allow_unchecked=allowed, problems=(*settings.problems, *problems))


class _Inputs:
    """The files that the settings name. One that cannot be used ends a run with a gate, and is a problem of any other run."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.problems: list[str] = list(settings.problems)
        self.predictions: Predictions | None = self._read("predictions", read_predictions)
        self.baselines: Mapping[str, Earlier] = self._read("baseline", read_baselines) or {}
        pins = self._read("match", read_pins)
        if pins and self.predictions is not None:
            pin = self.predictions.pin
            self._read("match", lambda path: pin(pins, path.name))
        elif pins:
            self._refuse("match not used: it needs --roofline-predictions")

    def _read(self, name: str, read: Callable[[Path], Any]) -> Any:
        path = getattr(self.settings, name)
        if path is None:
            return None
        try:
            return read(path)
        except (ValueError, OSError) as error:
            return self._refuse(f"{name} not used: {error}")

    def _refuse(self, problem: str) -> None:
        if self.settings.gated:
            raise pytest.UsageError(f"roofline: {problem}")
        self.problems.append(problem)

    def check_devices(self, annotator: Annotator) -> None:
        """Read the targets and the peaks of the chosen device, and drop predictions of another device."""
        devices, device = annotator.devices, self.settings.device
        devices.targets = self._read("targets", lambda path: read_targets(os.fspath(path))) or {}
        try:
            if device not in (AUTO, CPU):
                peaks = devices.peaks(device)
                other = self.predictions.other_device(peaks) if self.predictions else None
                if other:
                    self._refuse(f"{other}: not used")
                    annotator.predictions = self.predictions = None
            elif self.settings.peaks is not None:
                _ = devices.files  # an unreadable file is reported before the first test
        except (ValueError, OSError) as error:
            self._refuse(str(error))
        if self.settings.gated:
            self._check_work_devices(devices)

    def _check_work_devices(self, devices: Devices) -> None:
        """End a gated run for a device in ``[tool.roofline.work]`` that has no peaks."""
        for glob, keywords in self.settings.work.items():
            device = keywords.get("device")
            if isinstance(device, str) and device.lower() != CPU:
                try:
                    devices.peaks(device)
                except UnknownDeviceError as error:
                    raise pytest.UsageError(f"roofline: [tool.roofline.work] {printable(glob)!r}: {error}") from None


class WorkerPayload(NamedTuple):
    """What one test gives to the report."""

    rows: list[Row]
    problems: list[str]
    devices: dict[str, dict[str, Any]]  # the peaks of each device so far, as in the report

    def to_json(self) -> str:
        """Write one JSON document, to travel from a pytest-xdist worker to the controller."""
        return json.dumps({**self._asdict(), "rows": [row.to_dict() for row in self.rows]})

    @classmethod
    def from_json(cls, text: str) -> WorkerPayload:
        """Read what ``to_json`` wrote."""
        data = json.loads(text)
        return cls(**{**data, "rows": [Row.from_dict(row) for row in data["rows"]]})


class Session:
    """The plugin that turns the tests of a process into rows. reporter: None in a pytest-xdist worker."""

    def __init__(self, config: pytest.Config, settings: Settings, inputs: _Inputs) -> None:
        self.config, self.settings = config, settings
        self.reporter: Reporter | None = None
        self.cases = Cases(config, settings, inputs.baselines)
        devices = Devices(settings.device, settings.peaks, self._hooked_peaks, announce=self._announce)
        is_shared = getattr(config, "workerinput", {}).get("workercount", 1) > 1
        self.annotator = Annotator(devices, inputs.predictions, noise=settings.noise, gates=settings.gates, shared=is_shared)

    def _announce(self, line: str) -> None:
        """Print one line at once, in the middle of a test; a pytest-xdist worker has no terminal."""
        terminal = self.config.pluginmanager.get_plugin("terminalreporter")
        capture = self.config.pluginmanager.get_plugin("capturemanager")
        if terminal is None:
            return
        with capture.global_and_fixture_disabled() if capture is not None else nullcontext():
            terminal.ensure_newline()
            terminal.write_line(f"roofline: {line}")
            terminal.flush()

    def _hooked_peaks(self, device: str) -> Peaks | None:
        peaks = self.config.hook.pytest_roofline_peaks(config=self.config, device=device)
        if peaks is None:
            return None
        return read_given_peaks(peaks, f"pytest_roofline_peaks for {printable(device)}")

    # Collection.

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Report an invalid marker as an error of its file's collection, like any other mistake in the file."""
        report = yield
        errors = []
        for node in report.result or ():
            if not isinstance(node, pytest.Function) or not (markers := roofline_markers(node)):
                continue
            try:
                positional = [value for marker in markers for value in marker.args]
                if positional:
                    raise ValueError(f"takes keywords only, given {positional[0]!r:.40}")
                read_declaration(marker_keywords(node), Parameters(node), "marker")
            except ValueError as error:
                errors.append(f"{node.nodeid}: roofline marker: {error}")
        if errors:
            report.outcome = "failed"
            report.longrepr = "\n".join(errors)
            report.result = []
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Run the baseline of a benchmark group before the others of the group; all other tests keep their place."""
        starts: dict[str, int] = {}
        order = []  # by position: a plugin may have put one item in twice
        for position, item in enumerate(items):
            name = group(item)
            start = position if name is None else starts.setdefault(name, position)
            leads = name is not None and is_baseline(marker_keywords(item), Parameters(item))
            order.append((start, 0, position) if leads else (position, 1, position))
        items[:] = [items[position] for *_, position in sorted(order)]
        if self.settings.time is not None and items:
            self._check_time_glob(self.settings.time, items)

    def _check_time_glob(self, glob: str, items: list[pytest.Item]) -> None:
        """Report a ``--roofline-time`` that will time nothing."""
        problems = self.annotator.problems
        matching = [item for item in items if matches(glob, item.nodeid)]
        if not matching:
            problems.append(f"--roofline-time={glob} matches no test: it is a glob of whole nodeids, as in '*::test_name*'")
        elif not any(isinstance(item, ProblemItem) or _timed_name(item) for item in matching):
            problems.append(f"--roofline-time={glob} times nothing: no test that it matches has time= in its marker")

    # One test.

    def fixture(self, item: pytest.Item) -> Recorder:
        """Return the ``roofline`` fixture of a test."""
        captures = self.settings.capture and not self.cases.says_work(item)
        recorder = Recorder(Parameters(item), marker_keywords(item), captures=captures, cache=self.settings.cache)
        return item.stash.setdefault(_recorder_key, recorder)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        earlier = item.stash.get(_rows_key, [])  # of an earlier try of this test
        item.stash.setdefault(_beyond_key, []).extend(row for row in earlier if _fails_beyond_roof(row))
        item.stash[_rows_key] = []
        if _recorder_key in item.stash:
            del item.stash[_recorder_key]
        if hasattr(item, REQUESTED):
            delattr(item, REQUESTED)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        """Keep the ``benchmark`` fixture that a test requests by its name at run time."""
        value = yield
        if fixturedef.argname == "benchmark" and is_benchmark(value):
            setattr(request.node, REQUESTED, value)
        return value

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        outcome, meter = CallOutcome(), None
        try:
            outcome = CallOutcome(self.cases.codspeed_count_before())
            meter = None if benchmark(item) is None else WaitMeter()
        except Exception as error:
            self._report_fault(item, error)
        no_figures: list[Mapping[str, Any]] = []
        report_fault = partial(self._report_fault, item)
        result: object = None
        late: BaseException | None = None
        figures, watched = no_figures, None
        try:
            with (
                shielded(partial(self._timing, item), None, report_fault),
                shielded(partial(self._catching, item), no_figures, report_fault) as figures,
                shielded(partial(self._evicting, item), Eviction(), report_fault) as eviction,
                shielded(partial(self._watching, item, outcome.codspeed_before), None, report_fault) as watched,
            ):
                result = yield
        except _LATE_ENDS as error:
            if not (self._has_measured(item, outcome) or item.stash.get(_beyond_key, [])):
                raise
            late = error
        finally:
            recorder = item.stash.get(_recorder_key, None)
            if recorder is not None:
                recorder.close()
        try:
            params = Parameters(item)
            returned = cases_of_returned(figures, params, item.name)
            wait_share = None if meter is None else meter.share()
            cold = self._cold_setup if eviction.ran else None
            if eviction.problem:
                self.annotator.problems.append(f"{item.nodeid}: --roofline-cache=cold was not applied: {eviction.problem}")
            rows = self._rows(item, outcome._replace(returned=returned, watched=watched, wait_share=wait_share, cold=cold))
            rows = _with_earlier_tries(rows, item.stash.get(_beyond_key, []))
            self._export(item, rows)
            item.stash[_rows_key] = rows
        except Exception as error:  # L5: a fault of this plugin fails no test, unless a gate would pass unchecked
            problem = self._report_fault(item, error)
            if self.settings.gated:
                pytest.fail(f"roofline: not checked: {printable(problem)}", pytrace=False)
            rows = []
        failures = [line for row in rows for line in (row.failed, _warn(item, row)) if line]
        if failures and not isinstance(late, pytest.xfail.Exception):
            pytest.fail("roofline: " + "\n".join(failures), pytrace=False)
        if late is not None:
            raise late
        return result

    def _has_measured(self, item: pytest.Item, outcome: CallOutcome) -> bool:
        """Return whether a test that ends early has a time."""
        recorder = item.stash.get(_recorder_key, None)
        return bool(recorder is not None and recorder.samples) or self.cases.has_benchmark_time(item, outcome.codspeed_before)

    def _report_fault(self, item: pytest.Item, error: Exception) -> str:
        """Report an error that costs a test its row, or a part of the row, and nothing else."""
        source = "" if isinstance(error, HookError) else f"fault of the plugin: {type(error).__name__}: "
        problem = f"{item.nodeid}: {source}{error}"
        self.annotator.problems.append(problem)
        return problem

    @contextmanager
    def _timing(self, item: pytest.Item) -> Iterator[None]:
        """With ``--roofline-time``, measure the callable that the marker names with ``time=``, at its first call."""
        glob = self.settings.time
        if glob is None or not matches(glob, item.nodeid) or (name := _timed_name(item)) is None:
            yield
            return
        module = getattr(item, "module", None)
        fn = getattr(module, name, None)
        if not callable(fn):
            self.annotator.problems.append(f"{item.nodeid}: time={name!r} names no callable of its module")
            yield
            return
        setattr(module, name, self.fixture(item).first_call(fn))
        try:
            yield
        finally:
            setattr(module, name, fn)

    def _catching(self, item: pytest.Item) -> AbstractContextManager[list[Mapping[str, Any]]]:
        """Catch the figures that a test function returns; pytest itself only warns about them."""
        return catch_returned(item) if _is_function(item) else nullcontext([])

    def _evicting(self, item: pytest.Item) -> AbstractContextManager[Eviction]:
        """With ``--roofline-cache=cold``, evict the caches of the host before each round of the test's benchmark."""
        fixture = benchmark(item)
        if self.settings.cache != "cold" or fixture is None:
            return nullcontext(Eviction())
        flush = self._cold_setup.flush
        return nullcontext(Eviction()) if flush is None else cold_rounds(fixture, flush)

    @cached_property
    def _cold_setup(self) -> Setup:
        return evict_host()

    def _watching(self, item: pytest.Item, codspeed_before: int) -> AbstractContextManager[CaptureResult | None]:
        """Capture the work of a test that declares none."""
        fixture = benchmark(item)
        if not (self.settings.capture and isinstance(item, pytest.Function)) or self.cases.says_work(item):
            return nullcontext() if fixture is None else watch_devices(fixture)
        own = fixture is None and "roofline" not in item.funcargs and _is_function(item) and loaded("torch") is not None
        own = own and not uses_clock_or_modes(item.function, item.cls)
        timed = partial(self.cases.has_benchmark_time, item, codspeed_before)
        namespace = getattr(item.module, "__dict__", {})  # missing for a function that another plugin collected
        return watch_test(item.originalname, namespace, fixture, own=own, is_timed=timed)

    def _rows(self, item: pytest.Item, outcome: CallOutcome) -> list[Row]:
        rows = []
        for case in self.cases.cases_for(item, item.stash.get(_recorder_key, None), outcome):
            row = self.annotator.annotate(case)
            item.ihook.pytest_roofline_annotation(item=item, annotation=row)
            rows.append(row)
        return rows

    def _export(self, item: pytest.Item, rows: list[Row]) -> None:
        """Write JUnit properties and pytest-benchmark's extra_info, in place of those of an earlier try of the test."""
        earlier = [id(pair) for pair in item.stash.get(_properties_key, [])]
        item.user_properties[:] = [pair for pair in item.user_properties if id(pair) not in earlier]
        pairs = properties(rows[0]) if self.settings.junit and rows else []
        item.stash[_properties_key] = pairs
        item.user_properties.extend(pairs)
        extra = getattr(benchmark(item), "extra_info", None)
        if isinstance(extra, dict) and rows:
            extra["roofline"] = rows[0].to_dict()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "call":
            rows, problems = item.stash.get(_rows_key, []), self.annotator.take_problems()
            if rows or problems:
                devices = {name: peaks.to_dict() for name, peaks in self.annotator.devices.resolved.items()}
                payload = WorkerPayload(rows, problems, devices)
                if self.reporter is not None:
                    self.reporter.payloads[item.nodeid] = payload
                    return report
                try:
                    text = payload.to_json()
                except (TypeError, ValueError) as error:  # a value that JSON cannot hold must not end the worker
                    problem = f"{item.nodeid}: fault of the plugin: {type(error).__name__}: {error}"
                    text = WorkerPayload([], [*problems, problem], devices).to_json()
                setattr(report, _ATTRIBUTE, text)
        return report


class Reporter:
    """The plugin that collects the rows of a run and writes its reports."""

    def __init__(self, config: pytest.Config, settings: Settings, inputs: _Inputs, annotator: Annotator) -> None:
        self.config, self.settings, self.annotator = config, settings, annotator
        self.problems, self.baselines = inputs.problems, inputs.baselines
        self.document = Document(settings, inputs.predictions)
        self.payloads: dict[str, WorkerPayload] = {}  # from this process, by the test's nodeid

    def pytest_report_header(self) -> str:
        return f"roofline: {self.document.header(self.annotator.devices)}"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "setup":
            self.document.forget(report.nodeid)  # the rows of an earlier try
        elif report.when == "call":
            payload, text = self.payloads.pop(report.nodeid, None), getattr(report, _ATTRIBUTE, None)
            if payload is None and text is not None:
                payload = WorkerPayload.from_json(text)
            if payload is not None:
                rows = payload.rows
                if hasattr(report, "wasxfail"):  # the author knows of the gap: no error of this run
                    rows = [row.expected_to_fail() for row in rows]
                self.document.add(rows, payload.problems, payload.devices, report.nodeid)
            if report.passed and (payload is None or not payload.rows):
                self.document.rowless[report.nodeid] = None

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_json(self, output_json: dict[str, Any]) -> None:
        output_json["roofline"] = self.document.summary()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.config.option.collectonly:
            return
        problems = [*self.problems, *self.annotator.take_problems(), *self.document.problems]
        if self.settings.baseline is not None and "regression" not in self.settings.fail_on:
            problems += unmatched_baselines(self.document.rows, self.settings.baseline.name, self.baselines)
        self.document.problems = list(dict.fromkeys(problems))
        # A row can fail where pytest keeps another outcome of its test: a skip that unittest caught.
        if self.document.gate.fails_run and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        self._append_to_ledger()
        self._save(session)
        data = self.document.to_dict()
        try:
            self.config.hook.pytest_roofline_report(config=self.config, report=data)
            if self.config.hook.pytest_roofline_report.get_hookimpls():
                data = plain(data)
                json.dumps(data, default=repr, skipkeys=True)  # refuses an object that contains itself
        except Exception as error:  # L5, as for a test
            self.document.problems.append(f"pytest_roofline_report: {type(error).__name__}: {error}")
            data = self.document.to_dict()  # without what the hook left in it
        has_annotator = self.config.pluginmanager.has_plugin("pytest_github_actions_annotate_failures")
        write_reports(self.document, data, self.settings, annotations=not has_annotator)

    def _save(self, session: pytest.Session) -> None:
        """Save the run. A run that did not come to its end would be a baseline without some of the tests."""
        if self.settings.save is None:
            return
        if session.exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            self.document.problems.append("run not saved: it did not come to its end")
            return
        if not any(row.measurement is not None for row in self.document.rows):
            self.document.problems.append("run not saved: no row has a time")
            return
        if all(has_note(row.entry.notes, "shared_workers") for row in self.document.rows if row.measurement is not None):
            self.document.problems.append("run not saved: other pytest-xdist workers ran at the same time. Measure with -n 0")
            return
        from .saved import save

        try:
            path = save(self.settings.storage, self.settings.save, self.document.to_dict(), self.settings.root)
            self.document.written.append(os.path.relpath(path))
        except (OSError, ValueError) as error:
            self.document.problems.append(f"run not saved: {error}")

    def _append_to_ledger(self) -> None:
        """Append the outcomes of this run's predictions to the ledger that the settings name."""
        if self.settings.ledger is None:
            return
        from .ledger import append, pair_of

        try:
            pairs = [pair for row in self.document.rows if (pair := pair_of(row)) is not None]
            append(self.settings.ledger, pairs, say=self.document.problems.append)
            if not pairs:
                self.document.problems.append("ledger: nothing to append: no row has both a prediction and a speedup")
        except (OSError, ValueError) as error:
            self.document.problems.append(f"ledger: nothing appended: {error}")

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.config.option.collectonly:
            return
        verbosity, width = self.config.get_verbosity(), self.config.get_terminal_writer().fullwidth
        is_shown = ("term", "") in self.settings.reports
        if verbosity >= 0 and is_shown:
            terminalreporter.write_sep("=", title(self.document))
        below = list(lines(self.document, width, verbosity)) if is_shown else []
        below += [Line(title(self.document))] if is_shown and verbosity < 0 else []
        for line in (*below, *gate_lines(self.document, width, verbosity)):  # the gate's are never turned off
            terminalreporter.write_line(line.text, **dict.fromkeys(line.markup, True))


@contextmanager
def shielded(
    make: Callable[[], AbstractContextManager[T]], fallback: T, report_error: Callable[[Exception], object]
) -> Iterator[T]:
    """Enter ``make()`` around a test that its errors must not fail: they go to ``report_error``, and the block goes on.

    fallback: what the block gets when the context cannot be entered. An exception of the block itself propagates.
    """
    try:
        context = make()
        value = context.__enter__()
    except Exception as error:
        report_error(error)
        context, value = nullcontext(fallback), fallback
    raised: BaseException | None = None
    try:
        yield value
    except BaseException as error:
        raised = error
        raise
    finally:
        try:
            context.__exit__(type(raised) if raised else None, raised, raised.__traceback__ if raised else None)
        except Exception as error:
            if error is not raised:
                report_error(error)


def _fails_beyond_roof(row: Row) -> bool:
    return any(outcome.gate == "beyond_roof" and outcome.status == "failed" for outcome in row.gates)


def _with_earlier_tries(rows: list[Row], earlier: list[Row]) -> list[Row]:
    """Return the rows of a test's last try; a row that was beyond the roof in an earlier try fails again."""
    by_nodeid = {row.nodeid: row for row in rows}
    for before in earlier:
        text = f"beyond_roof in an earlier try of this test: {before.check.message}"
        failure = GateOutcome("beyond_roof", "failed", "earlier_try", text)
        row = by_nodeid.get(before.nodeid, before)
        if not _fails_beyond_roof(row) or row is before:
            gates = (failure, *(outcome for outcome in row.gates if outcome.gate != "beyond_roof"))
            by_nodeid[row.nodeid] = replace(row, gates=gates)
    return list(by_nodeid.values())


def _timed_name(item: pytest.Item) -> Any:
    """Return the name of the callable that a test's marker wants timed."""
    return marker_keywords(item).get("time")


def _warn(item: pytest.Item, row: Row) -> str | None:
    """Warn about a contradiction at the test's line. Return the failure, where the user's filters make the warning an error."""
    kind = {"beyond_roof": BeyondRoofWarning, "exceeds_target": ExceedsTargetWarning}.get(row.check.status)
    if kind is None or row.is_allowed:
        return None
    warning = kind(printable(f"{row.entry.short_name}: {row.check.status}: {row.check.message}"))
    try:
        item.warn(warning)
    except kind:
        return f"{kind.__name__}: {warning}"
    return None


def _is_function(item: pytest.Item) -> bool:
    """Whether pytest itself calls the test's function; unittest calls its own."""
    return isinstance(item, pytest.Function) and not (item.cls is not None and issubclass(item.cls, unittest.TestCase))
