"""``roofline history``: the time and the percent of the roof of each test over the saved runs, with the changes beyond noise.

A line is one test on one device of one machine. Times of different machines are never in one line.
"""

from __future__ import annotations

import gc
import html
import json
import math
import os
import statistics
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from roofline_engine.files import write_whole
from roofline_engine.roofline import ISOLATED_NOISE
from roofline_engine.units import number, printable, whole

from .config import FOLDER, read_project
from .declare import matches
from .report.columns import duration, row_names, shorten
from .saved import Points, Run, read_points

#: The test that decides whether two medians differ, for people.
TEST = "two-sided z test of two medians, with standard errors from quartiles and rounds (McGill, Tukey and Larsen, 1978)"
#: A difference is a change below this probability. With 1,000 tests compared, one is expected by chance; the band of the noise
#: must be exceeded, too.
ALPHA = 1e-3
#: Rounds that a quartile needs: fewer give no test.
_ROUNDS = 5
#: Earlier steps of a line that show how much its times scatter from run to run, and how many of their standard deviations a
#: change must exceed. 1.4826 times the median absolute deviation estimates a standard deviation.
_STEPS, _DEVIATIONS, _MAD = 8, 4.0, 1.4826
#: Runs in the page, tests in the terminal, and characters of a sparkline.
_PAGE_RUNS, _MOST, _SPARK = 200, 40, 16
_BARS = "▁▂▃▄▅▆▇█"
_ASCII_BARS = "_.-=+*%#"


class Point(NamedTuple):
    """One time of a line."""

    run: int  # the position of its run
    t_s: float
    q1_s: float
    q3_s: float
    min_s: float
    rounds: float
    fraction: float  # of the roof; nan where unknown
    failure: str = ""  # the gates that failed it


class Change(NamedTuple):
    """A step between two runs of one line that is beyond noise."""

    at: int  # the position of the later point in the line
    ratio: float  # the later time over the earlier one
    p: float  # of the test


class Line(NamedTuple):
    """The times of one test on one device of one machine, in the order of the runs."""

    test: str  # nodeid
    device: str
    machine: str
    points: list[Point]


def read_lines(pairs: Iterable[tuple[Run, Points]], glob: str = "") -> tuple[list[Run], list[Line]]:
    """Return the runs and their lines. glob: over nodeids, also a part of one; empty for all tests."""
    runs: list[Run] = []
    lines: dict[tuple[str, str, str], Line] = {}
    chosen: dict[tuple[str, int], list[Line | None]] = {}  # by machine and list of tests, which runs share
    kept = []
    for run, points in pairs:
        key = run.machine, id(points.tests)
        if key not in chosen:
            kept.append(points.tests)  # so that no other list gets its id
            chosen[key] = [
                lines.setdefault((test, device, run.machine), Line(test, device, run.machine, []))
                if not glob or matches(glob, test) or matches(f"*{glob}*", test)
                else None
                for test, device in points.tests
            ]
        at, failed = len(runs), points.failures
        columns = zip(chosen[key], points.t_s, points.q1_s, points.q3_s, points.min_s, points.rounds, points.fractions)
        for position, (line, t_s, q1_s, q3_s, min_s, rounds, fraction) in enumerate(columns):
            if line is not None:
                line.points.append(Point(at, t_s, q1_s, q3_s, min_s, rounds, fraction, failed.get(position, "")))
        runs.append(run)
    return runs, [line for line in lines.values() if line.points]


def find_changes(line: Line, runs: Sequence[Run]) -> list[Change]:
    """Return the steps beyond noise: larger than the noise of the later run, in the median and the best round, significant by
    ``TEST``, and larger than the usual step between the runs of this line.

    Another program makes the median of a run longer, and leaves its best round as it is.
    """
    changes = []
    steps: list[float] = []
    for at, (before, after) in enumerate(zip(line.points, line.points[1:]), 1):
        ratio = after.t_s / before.t_s
        if not 1 / (1 + (noise := runs[after.run].noise or ISOLATED_NOISE)) <= ratio <= 1 + noise:
            best = after.min_s / before.min_s if before.min_s > 0 and after.min_s > 0 else ratio
            p = compare_medians(before, after)
            usual = _MAD * statistics.median(steps) if len(steps) >= _STEPS else 0.0
            is_steady = (best > 1 + noise) if ratio > 1 else (best < 1 / (1 + noise))
            if is_steady and p is not None and p < ALPHA and abs(math.log(ratio)) > _DEVIATIONS * usual:
                changes.append(Change(at, ratio, p))
        steps.append(abs(ratio - 1))
    return changes


def compare_medians(before: Point, after: Point) -> float | None:
    """Return the p value of ``TEST``; None where quartiles are unknown or of fewer than 5 rounds.

    The standard error of a median is 1.25 R / (1.35 sqrt(n)), with R the range between the quartiles of n rounds: R / 1.35 is
    the standard deviation of a normal distribution, and its median scatters 1.25 times as much as its mean.
    R. McGill, J. W. Tukey, W. A. Larsen, Variations of Box Plots, The American Statistician 32 (1978), p. 16.
    """
    if not (before.rounds >= _ROUNDS and after.rounds >= _ROUNDS):  # nan is not
        return None
    variance = sum((1.25 * (one.q3_s - one.q1_s) / 1.35) ** 2 / one.rounds for one in (before, after))
    if math.isnan(variance):
        return None
    difference = abs(after.t_s - before.t_s)
    if not variance:
        return 0.0 if difference else 1.0
    return math.erfc(difference / math.sqrt(2 * variance))


def configure(parser: ArgumentParser) -> None:
    """Add the options of ``roofline history``."""
    parser.add_argument("glob", metavar="GLOB", nargs="?", default="", help="the tests: a glob, or a part of the nodeid")
    storage = f"the folder of saved runs (default: that of the project, {FOLDER})"
    parser.add_argument("--storage", metavar="DIR", help=storage)
    parser.add_argument("--last", metavar="N", help="the latest N runs only (default: all; 200 in the page)")
    parser.add_argument("--html", metavar="FILE", help="write a page that plots time and percent of the roof of each test")
    parser.add_argument("--json", action="store_true", help="print the lines and their changes as JSON")
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    """Print the history, or write it.

    Raises:
        ValueError, OSError: for bad usage, for a folder without a saved run, and for a file that cannot be written.
    """
    gc.disable()  # a million points make no cycle, and looking for one takes as long as reading them
    project, _ = read_project(Path.cwd())
    folder = Path(options.storage or project.storage or FOLDER)
    last = None if options.last is None else whole(number(options.last, "--last", minimum=1), "--last", minimum=1)
    problems: list[str] = []
    runs, lines = read_lines(read_points(folder, problems.append), options.glob)
    for problem in problems:
        print(problem, file=sys.stderr)
    if not runs:
        raise ValueError(f"{printable(str(folder))} has no saved run: pytest --roofline --roofline-save makes one")
    if not lines:
        raise ValueError(f"no test of {len(runs)} saved runs matches {printable(options.glob)!r}")
    if last is not None:
        lines = list(_cut(lines, len(runs) - last))
    if options.html:
        write_page(options.html, runs, list(_cut(lines, len(runs) - (last or _PAGE_RUNS))))
        print(f"wrote {printable(options.html)}")
    elif options.json:
        json.dump({"test": TEST, "lines": [_to_dict(line, runs) for line in lines]}, sys.stdout, indent=1)
        print()
    else:
        _print(runs, lines, options)
    return 0


def _cut(lines: Iterable[Line], first: int) -> Iterator[Line]:
    """Yield the lines without the points before the run ``first``."""
    for line in lines:
        points = [point for point in line.points if point.run >= first]
        if points:
            yield line._replace(points=points)


def _to_dict(line: Line, runs: Sequence[Run]) -> dict[str, Any]:
    points = [
        {
            "run": runs[point.run].path.name,
            "commit": runs[point.run].commit,
            "t_s": point.t_s,
            "roofline_pct": None if math.isnan(point.fraction) else point.fraction,
            "failed": point.failure or None,
        }
        for point in line.points
    ]
    changes = [{"run": points[one.at]["run"], "ratio": one.ratio, "p": one.p} for one in find_changes(line, runs)]
    return {"test": line.test, "device": line.device, "machine": line.machine, "points": points, "changes": changes}


def _print(runs: Sequence[Run], lines: Sequence[Line], options: Namespace) -> None:
    """Print a table for each machine, the lines with changes and failures first, and the changes."""
    names = row_names(dict.fromkeys(line.test for line in lines))
    changes = {id(line): find_changes(line, runs) for line in lines}
    bars = _BARS if (getattr(sys.stdout, "encoding", None) or "").lower().startswith("utf") else _ASCII_BARS
    machines = dict.fromkeys(line.machine for line in lines)
    for machine in machines:
        own = [one for one in runs if one.machine == machine]
        hosts = ", ".join(dict.fromkeys(one.host for one in own if one.host))
        counted = f"{len(own)} run{'s' * (len(own) > 1)}"
        print(
            f"{printable(own[0].cpu or 'unknown CPU')} ({printable(shorten(hosts)) or machine}): {counted}, {own[0].describe()}"
            f" to {own[-1].describe()}"
        )
        group = [line for line in lines if line.machine == machine]
        group.sort(key=lambda line: (not line.points[-1].failure, not changes[id(line)]))
        rows = [["test", "device", "runs", "first", "latest", "% roof", "trend", "latest step", "gate"]]
        for line in group[:_MOST]:
            rows.append(_row(line, names[line.test], changes[id(line)], bars))
        options.output.table(rows, left=2)
        if len(group) > _MOST:
            print(f"and {len(group) - _MOST} more tests without a change: name some with GLOB, or use --html or --json")
        print()
    steps = [(line, change) for line in lines for change in changes[id(line)]]
    steps.sort(key=lambda pair: -pair[0].points[pair[1].at].run)
    for line, change in steps[:_MOST]:
        before, after = line.points[change.at - 1], line.points[change.at]
        kind = f"{change.ratio:.3g}x slower" if change.ratio > 1 else f"{1 / change.ratio:.3g}x faster"
        at = f"{duration(before.t_s)} to {duration(after.t_s)}, p {change.p:.1g}"
        print(f"{kind} at {runs[after.run].describe()}: {printable(names[line.test])} ({at})")
    if len(steps) > _MOST:
        print(f"and {len(steps) - _MOST} earlier changes")
    untested = sum(all(math.isnan(one.q1_s) or not one.rounds >= _ROUNDS for one in line.points) for line in lines)
    if untested:
        print(
            f"{untested} of {len(lines)} tests have no quartiles of {_ROUNDS} undisturbed rounds: their changes are not tested"
        )
    noise = max(one.noise for one in runs) or ISOLATED_NOISE
    print(
        f"A change exceeds {noise:.1%} in the median and the best round, and the usual step of its test; p < {ALPHA:g}, {TEST}."
    )


def _row(line: Line, name: str, changes: Sequence[Change], bars: str) -> list[str]:
    first, latest = line.points[0], line.points[-1]
    step = latest.t_s / line.points[-2].t_s if len(line.points) > 1 else 1.0
    mark = "!" if changes and changes[-1].at == len(line.points) - 1 else ""
    percent = "-" if math.isnan(latest.fraction) else f"{100 * latest.fraction:.1f}"
    failed = sum(bool(point.failure) for point in line.points)
    gate = latest.failure or (f"failed in {failed} earlier" if failed else "-")
    return [
        *(shorten(name), line.device or "-", str(len(line.points)), duration(first.t_s), duration(latest.t_s), percent),
        *(draw_spark([point.t_s for point in line.points[-_SPARK:]], bars), f"{step - 1:+.1%}{mark}", gate),
    ]


def draw_spark(times: Sequence[float], bars: str = _BARS) -> str:
    """Draw times as bars of text, from half of the longest time or less: equal times are equally high."""
    low, high = min(min(times), max(times) / 2), max(times)
    return "".join(bars[min(len(bars) - 1, int((t_s - low) / (high - low) * len(bars)))] for t_s in times)


def write_page(path: str, runs: Sequence[Run], lines: Sequence[Line]) -> None:
    """Write the page: a table of the tests that sorts, and the time and the percent of the roof of the chosen one.

    Raises:
        ValueError: where the extra ``plot`` is missing.
    """
    from .plot.output import engine, require_extra
    from .plot.page import POLICY, inert

    require_extra()
    first = min(line.points[0].run for line in lines)
    data = {
        "runs": [[one.describe(), one.created, one.branch or "", one.host, one.cpu, one.number] for one in runs[first:]],
        "lines": [
            {
                "test": line.test,
                "device": line.device,
                "machine": line.machine,
                "at": [point.run - first for point in line.points],
                "t_s": [float(f"{point.t_s:.4g}") for point in line.points],
                "low": [None if math.isnan(point.q1_s) else float(f"{point.q1_s:.4g}") for point in line.points],
                "high": [None if math.isnan(point.q3_s) else float(f"{point.q3_s:.4g}") for point in line.points],
                "percent": [None if math.isnan(one.fraction) else float(f"{100 * one.fraction:.3g}") for one in line.points],
                "failures": {str(at): point.failure for at, point in enumerate(line.points) if point.failure},
                "changes": [[one.at, one.ratio, one.p] for one in find_changes(line, runs)],
            }
            for line in lines
        ],
    }
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    left_out = f" The {first} runs before are left out: --last N sets how many are here." if first else ""
    page = Template(files(__package__).joinpath("history.html").read_text(encoding="utf-8")).substitute(
        policy=POLICY,
        title=f"Roofline history: {len(lines)} lines, {len(runs) - first} runs",
        note=html.escape(
            "One line is one test on one device of one machine. A change exceeds the noise in the median and in the best "
            f"round, and the usual step of its test; p < {ALPHA:g}, {TEST}.{left_out}"
        ),
        data=text,
        engine=inert(engine()),
    )
    write_whole(os.fspath(path), page)
