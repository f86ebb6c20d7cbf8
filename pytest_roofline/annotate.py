"""``roofline annotate``: a stored pytest-benchmark JSON to the same report as a run, with no test run."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from roofline_engine.check import BASELINE_KINDS, Baseline
from roofline_engine.files import read_json, to_json
from roofline_engine.peaks import CPU
from roofline_engine.units import number, printable

from . import declare
from .baselines import is_this_machine, read_baselines, read_predictions
from .config import TYPES, SettingsError, resolve
from .declare import Declaration, first_declaration
from .devices import AUTO, Devices
from .evaluate import Annotator
from .gate import TEST_KINDS, list_gaps
from .names import short_name
from .report import write_reports
from .report.document import Document
from .report.terminal import lines, title
from .row import declaration_in
from .testcase import Case
from .timing.plugins import of_benchmark_json

_OPTIONS = ("device", "peaks", "predictions", "baseline", "report", "fail_on", "fail_under")


def configure(parser: ArgumentParser) -> None:
    """Add the options of ``roofline annotate``: those of pytest without their prefix."""
    parser.add_argument("path", metavar="BENCHMARK.json", help="what pytest --benchmark-json or --benchmark-save wrote")
    parser.add_argument("--device", metavar="NAME", help="the device of the times: a product, a gfx, cpu, or auto (default)")
    parser.add_argument("--peaks", metavar="PATH", help="another peak table, or ceilings that another tool measured")
    parser.add_argument("--predictions", metavar="PATH", help="a profile_roofline.json to compare the measurements with")
    parser.add_argument("--baseline", metavar="PATH", help="pytest-benchmark JSON or an earlier report: the times before")
    parser.add_argument("--report", metavar="TYPE:DEST", action="append", help=f"{', '.join(TYPES)}; repeatable")
    parser.add_argument("--fail-on", metavar="KIND[,KIND]", help=f"exit 1 on {', '.join(TEST_KINDS)}")
    parser.add_argument("--fail-under", metavar="PCT", help="exit 1 where a row is under this percent of its roof")
    parser.add_argument("--json", action="store_true", help="print the report as one JSON document")
    parser.add_argument("-v", "--verbose", action="count", default=0, help="print the basis of each figure; twice: the notes")
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    """Print the report; 1 when a gate fails.

    Raises:
        ValueError, OSError: for bad usage and for files that cannot be read, in one line.
    """
    try:
        settings = resolve({name: getattr(options, name) for name in _OPTIONS}, {}, Path.cwd())
    except SettingsError as error:
        raise SettingsError(str(error).replace("--roofline-", "--")) from None
    data = read_json(options.path)
    label = printable(Path(options.path).name)
    if not isinstance(data, Mapping) or not isinstance(data.get("benchmarks"), list):
        raise SettingsError(f"{label}: no list 'benchmarks' in it, expected pytest-benchmark JSON")
    predictions = read_predictions(settings.predictions) if settings.predictions else None
    baselines = read_baselines(settings.baseline) if settings.baseline else {}
    problems: list[str] = []
    here = is_this_machine(data.get("machine_info"))
    devices = Devices(settings.device, settings.peaks, measures_cpu=here or settings.device == CPU, uses_accelerator=False)
    if settings.device not in (AUTO, CPU):
        devices.peaks(settings.device)
    annotator = Annotator(settings.noise, devices, predictions)
    document = Document(settings, predictions)
    rows = []
    for case in _cases(data["benchmarks"], label, settings.work, problems):
        earlier = baselines.get(case["nodeid"])
        if earlier is not None:
            case = {**case, "baseline": earlier.baseline, "baseline_device": earlier.device}
        case_with_time = Case(**case)
        row = annotator.annotate(case_with_time)
        rows.append(dataclasses.replace(row, gates=settings.gates.evaluate(row, case_with_time.declared.min_pct)))
    document.add(
        rows, [*problems, *annotator.take_problems()], {name: peaks.to_dict() for name, peaks in devices.resolved.items()}
    )
    document.problems += list_gaps(document.rows, settings.gates, settings.baseline, baselines)
    found = document.to_dict()
    write_reports(document, found, settings, annotations=True)
    if options.json:
        sys.stdout.write(to_json(found))
    else:
        print(title(document))
        for line in lines(document, shutil.get_terminal_size().columns, options.verbose):
            print(line.text)
    for row in document.rows:
        if row.failed:
            print(f"{printable(row.nodeid)}: {printable(row.failed)}", file=sys.stderr)
    return 1 if any(row.failed for row in document.rows) else 0


def _cases(
    benchmarks: list[Any], label: str, table: Mapping[str, Mapping[str, Any]], problems: list[str]
) -> Iterator[dict[str, Any]]:
    for at, item in enumerate(benchmarks, 1):
        nodeid = item.get("fullname") if isinstance(item, Mapping) else None
        if not isinstance(nodeid, str):
            problems.append(f"{label}: benchmark {at} has no fullname")
            continue
        try:
            measurement = of_benchmark_json(item)
        except ValueError as error:
            problems.append(f"{label}: benchmark {at} ({printable(nodeid)[:60]}): {error}")
            continue
        said, problem = _said(item, nodeid, table)
        line, baseline = _told(item)
        yield {
            "nodeid": nodeid,
            "test": short_name(nodeid),
            "declared": said,
            "measurement": measurement,
            "group": item.get("group") if isinstance(item.get("group"), str) else None,
            "problem": problem,
            "path": nodeid.partition("::")[0],
            "line": line,
            "baseline": baseline,
        }


def _told(item: Mapping[str, Any]) -> tuple[int, Baseline | None]:
    """The line of a test and the baseline that its run compared it with, where the run left them."""
    extra = item.get("extra_info")
    row = extra.get("roofline") if isinstance(extra, Mapping) else None
    if not isinstance(row, Mapping):
        return 0, None
    line, before = row.get("line"), row.get("baseline")
    at = line if type(line) is int and line > 0 else 0
    try:
        if not isinstance(before, Mapping) or before["kind"] not in BASELINE_KINDS:
            return at, None
        spread = number(before.get("spread", 0), "spread", minimum=0)
        return at, Baseline(
            before["kind"], t_s=number(before["t_s"], "t_s", above=0), spread=spread, source=str(before["source"])
        )
    except (KeyError, TypeError, ValueError):  # written by hand: no baseline
        return at, None


def _said(item: Mapping[str, Any], nodeid: str, table: Mapping[str, Mapping[str, Any]]) -> tuple[Declaration, str]:
    """What is known of a row's work: the row that a run with ``--roofline`` left in it, then as in a run."""
    extra = item.get("extra_info")
    extra = extra if isinstance(extra, Mapping) else {}
    params = item.get("params")
    params = {key: _value(value) for key, value in params.items()} if isinstance(params, Mapping) else {}
    problem = ""
    if isinstance(extra.get("roofline"), Mapping):
        try:
            return declaration_in(extra["roofline"]), ""
        except (ValueError, TypeError, KeyError) as error:
            problem = f"extra_info.roofline: {error}"
    test = short_name(nodeid).partition("[")[0]
    found, why = first_declaration(
        (
            ("config", lambda: declare.find_keywords(table, nodeid)),
            ("extra_info", lambda: declare.read_extra_info(extra)),
            ("names", lambda: declare.guess_keywords(test, params)),
        ),
        params,
    )
    return found or Declaration(), "" if found else problem or why


def _value(value: Any) -> Any:
    """A parametrize argument as JSON holds it: pytest-benchmark writes what JSON cannot as ``UNSERIALIZABLE[...]``."""
    if isinstance(value, str) and value.startswith("UNSERIALIZABLE[") and value.endswith("]"):
        return value[len("UNSERIALIZABLE[") : -1].strip("'\"")
    return value
