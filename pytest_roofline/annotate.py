"""``roofline annotate``: turn a stored pytest-benchmark JSON into the report of a run, without running tests."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from roofline_engine.check import BASELINE_KINDS, Baseline
from roofline_engine.files import read_json, to_json
from roofline_engine.peaks import CPU
from roofline_engine.units import printable

from . import declare
from .baselines import WAIT_SHARE, is_this_machine, read_baselines, read_predictions
from .config import TYPES, SettingsError, resolve
from .declare import Declaration, first_declaration
from .devices import AUTO, Devices
from .evaluate import Annotator
from .gate import KINDS, unmatched_baselines
from .report import write_reports
from .report.columns import short_name
from .report.document import Document
from .report.terminal import gate_lines, lines, title
from .row import Refusal, declaration_in, read_field, read_part
from .testcase import Case
from .timing.plugins import of_benchmark_json


def configure(parser: ArgumentParser) -> None:
    """Add the options of ``roofline annotate``: those of pytest without their prefix."""
    parser.add_argument("path", metavar="BENCHMARK.json", help="what pytest --benchmark-json or --benchmark-save wrote")
    parser.add_argument("--device", metavar="NAME", help="the device of the times: a product, a gfx, cpu, or auto (default)")
    parser.add_argument("--peaks", metavar="PATH", help="another peak table, or ceilings that another tool measured")
    parser.add_argument("--predictions", metavar="PATH", help="a profile_roofline.json to compare the measurements with")
    parser.add_argument("--baseline", metavar="PATH", help="pytest-benchmark JSON or an earlier report: the times before")
    parser.add_argument("--report", metavar="TYPE:DEST", action="append", help=f"{', '.join(TYPES)}; repeatable")
    parser.add_argument("--fail-on", metavar="KIND[,KIND]", help=f"exit 1 on {', '.join(KINDS)}, and on an unchecked row")
    parser.add_argument("--fail-under", metavar="PCT", help="exit 1 where a row is under this percent of its roof")
    parser.add_argument("--allow-unchecked", action="store_true", default=None, help="warn about rows that no gate could check")
    parser.add_argument("--json", action="store_true", help="print the report as one JSON document")
    parser.add_argument("-v", "--verbose", action="count", default=0, help="print the basis of each figure; twice: the notes")
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    """Print the report; return 1 when a gate fails.

    Raises:
        ValueError, OSError: one line, for bad usage and for files that cannot be read.
    """
    try:
        settings = resolve(vars(options), {}, Path.cwd())
    except SettingsError as error:
        raise SettingsError(str(error).replace("--roofline-", "--")) from None
    data = read_json(options.path)
    label = printable(Path(options.path).name)
    if not isinstance(data, Mapping) or not isinstance(data.get("benchmarks"), list):
        raise SettingsError(f"{label}: the list 'benchmarks' is missing, expected pytest-benchmark JSON")
    predictions = read_predictions(settings.predictions) if settings.predictions else None
    baselines = read_baselines(settings.baseline) if settings.baseline else {}
    problems: list[str] = list(settings.problems)
    measures_cpu = is_this_machine(data.get("machine_info")) or settings.device == CPU
    devices = Devices(settings.device, settings.peaks, measures_cpu=measures_cpu, uses_accelerator=False)
    if settings.device not in (AUTO, CPU):
        devices.peaks(settings.device)
    annotator = Annotator(devices, predictions, noise=settings.noise, gates=settings.gates)
    document = Document(settings, predictions, prefix="--")
    rows = []
    for case in _read_cases(data["benchmarks"], label, settings.work, problems):
        earlier = baselines.get(case.nodeid)
        if earlier is not None:
            case = dataclasses.replace(case, baseline=earlier.baseline, baseline_device=earlier.device)
        rows.append(annotator.annotate(case))
    peaks = {name: peaks.to_dict() for name, peaks in devices.resolved.items()}
    document.add(rows, [*problems, *annotator.take_problems()], peaks)
    if settings.baseline is not None and "regression" not in settings.fail_on:
        document.problems += unmatched_baselines(document.rows, settings.baseline.name, baselines)
    document.problems = list(dict.fromkeys(document.problems))
    if settings.gated and not any(row.measurement for row in document.rows):
        raise SettingsError(
            f"{label}: no benchmark could be read, so the gate checked nothing: {'; '.join(problems) or 'it has none'}"
        )
    report = document.to_dict()
    write_reports(document, report, settings, annotations=True)
    if options.json:
        sys.stdout.write(to_json(report))
    else:
        print(title(document))
        width = shutil.get_terminal_size().columns
        for line in (*lines(document, width, options.verbose), *gate_lines(document, width, options.verbose)):
            print(line.text)
    failures = [f"{printable(row.nodeid)}: {printable(row.failed)}" for row in document.rows if row.failed]
    for failure in failures:
        print(failure, file=sys.stderr)
    if options.json and document.gate.is_needed:
        print(document.gate.line(), file=sys.stderr)
    return 1 if document.gate.fails_run else 0


def _read_cases(
    benchmarks: list[Any], label: str, work: Mapping[str, Mapping[str, Any]], problems: list[str]
) -> Iterator[Case]:
    """Yield the case of each benchmark; ``problems`` gets a line for each that cannot be read.

    work: ``[tool.roofline.work]``.
    """
    counts: Counter[str] = Counter()
    for at, item in enumerate(benchmarks, 1):
        nodeid = item.get("fullname") if isinstance(item, Mapping) else None
        if not isinstance(nodeid, str):
            yield _refused(f"{label}: benchmark {at}", f"{label}: benchmark {at} has no fullname", "row", problems)
            continue
        counts[nodeid] += 1
        try:
            measurement = of_benchmark_json(item)._replace(wait_share=read_field(float, item, WAIT_SHARE))
        except ValueError as error:
            reason = f"{label}: benchmark {at} ({printable(nodeid)[:60]}): {error}"
            yield _refused(f"{label}: benchmark {at}", reason, "time", problems)
            continue
        extra = item.get("extra_info")
        extra = extra if isinstance(extra, Mapping) else {}
        row, group = extra.get("roofline"), item.get("group")
        line, baseline = _read_origin(row) if isinstance(row, Mapping) else (0, None)
        declaration, problem = _find_declaration(item, extra, nodeid, work)
        yield Case(
            nodeid=nodeid if counts[nodeid] == 1 else f"{nodeid}#{counts[nodeid]}",  # a merged file may have a test twice
            test=short_name(nodeid),
            declaration=declaration,
            measurement=measurement,
            group=group if isinstance(group, str) else None,
            problem=problem,
            path=nodeid.partition("::")[0],
            line=line,
            baseline=baseline,
        )


def _refused(nodeid: str, reason: str, code: str, problems: list[str]) -> Case:
    """Return the case of a benchmark that cannot be read, so that a gate counts it."""
    problems.append(reason)
    return Case(nodeid=nodeid, test="", declaration=Declaration(), problem=reason, refusal=Refusal(reason, code))


def _read_origin(row: Mapping[str, Any]) -> tuple[int, Baseline | None]:
    """Return the line of a test and the baseline of its run, where the run left them in the file."""
    line = row.get("line")
    line = line if type(line) is int and line > 0 else 0
    try:
        baseline = read_part(Baseline, row.get("baseline"), "baseline")
    except ValueError:  # edited by hand
        return line, None
    is_usable = baseline.kind in BASELINE_KINDS and baseline.t_s is not None and baseline.t_s > 0 and baseline.spread >= 0
    return line, baseline if is_usable else None


def _find_declaration(
    item: Mapping[str, Any], extra: Mapping[str, Any], nodeid: str, work: Mapping[str, Mapping[str, Any]]
) -> tuple[Declaration, str]:
    """Return what is known of a benchmark's work, and why it is unknown: first from the row of a run, then as in a run."""
    params = item.get("params")
    params = {key: _read_param(value) for key, value in params.items()} if isinstance(params, Mapping) else {}
    problem = ""
    if isinstance(extra.get("roofline"), Mapping):
        try:
            return declaration_in(extra["roofline"]), ""
        except ValueError as error:
            problem = f"extra_info.roofline: {error}"
    test = short_name(nodeid).partition("[")[0]
    declaration, why = first_declaration(
        (
            ("config", lambda: declare.find_keywords(work, nodeid)),
            ("extra_info", lambda: declare.read_extra_info(extra)),
            ("names", lambda: declare.guess_keywords(test, params)),
        ),
        params,
    )
    return (Declaration(), problem or why) if declaration is None else (declaration, "")


def _read_param(value: Any) -> Any:
    """Return a parametrize argument; pytest-benchmark writes what JSON cannot hold as ``UNSERIALIZABLE[...]``."""
    if isinstance(value, str) and value.startswith("UNSERIALIZABLE[") and value.endswith("]"):
        return value[len("UNSERIALIZABLE[") : -1].strip("'\"")
    return value
