"""``roofline check``: check the rows of other tools' files against the roof, their printed rates, and predictions.

The status of a row comes from recomputed figures; a printed rate is only a claim. Rows that cannot be used are refused with the
reason, never left out.
"""

from __future__ import annotations

import datetime
import os
import shutil
import sys
import textwrap
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

from roofline_engine.check import Bound, Check, Limit, bounds_of, check, check_within, nearest_bound, unchecked_axis
from roofline_engine.fields import Entry
from roofline_engine.files import parse_json, read_text, to_json, write_whole
from roofline_engine.peaks import CPU, Peaks, resolve_name
from roofline_engine.peaks_measured import open_peaks
from roofline_engine.peaks_table import Table
from roofline_engine.roofline import bound, roof_of
from roofline_engine.units import printable
from roofline_engine.work import TARGET_EFF, Work, fit_to_cache

from ..baselines import Predictions, read_predictions
from ..declare import Declaration, build_work, find_keywords, read_declaration
from ..evaluate import facts_of, find_mismatch, times
from ..gate import KINDS, SKIPS, Allowance, Gates, Summary, read_kinds
from ..report.console import progress
from ..report.records import Tally
from ..row import Refusal, Row
from .formats import ADAPTERS, choose
from .formats.claims import template
from .source import Adapter, RecordRow, RefusedError, open_source
from .values import totals_of

#: Shapes kept, of about 2 kB each: tuner tables try many kernels on one shape, and some go through all shapes again.
_SHAPES = 16_384
#: Rows between two updates of the progress bar, which files over this size get (bytes).
_TICK, _LONG = 1000, 5_000_000
_NO_WORK = "its work is unknown"
Globs = Mapping[str, Mapping[str, Any]]  # [tool.roofline.work]: keywords by glob


class Checker:
    """Checks records one by one; keeps the devices and shapes that it has met."""

    def __init__(
        self,
        table: Table | None,
        *,
        device: str | None = None,  # of records whose file names none
        peaks: Peaks | None = None,  # for every record, instead of the table's
        predictions: Predictions | None = None,
        read_globs: Callable[[], Globs] = dict,  # the work of names, read at the first row that gives none
    ) -> None:
        self.table, self.device, self.peaks, self.predictions = table, device, peaks, predictions
        self._globs = cache(read_globs)
        self._declared: dict[int, Declaration | str] = {}  # by the keywords of a glob
        self._devices: dict[tuple[str, int | None], Peaks | str] = {}
        self._shapes: dict[tuple[Any, ...], tuple[_Shape | None, str]] = {}
        self._limits: dict[int, dict[str, Limit]] = {}  # by axis, of each of the devices

    def check(self, source: str, records: Iterable[RecordRow]) -> Iterator[Row]:
        """Yield the rows of one file, in their order."""
        for record in records:
            yield self.row(source, record)

    def row(self, source: str, record: RecordRow) -> Row:
        """Check one record."""
        if record.refused:
            return _refuse(source, record, record.refused, record.refused_code)
        if record.work is None and record.name:
            self._declare(record)
        peaks = self.peaks_of(record)
        if isinstance(peaks, str):
            return _refuse(source, record, peaks, "no_peaks")
        shape, no_work = self._shape_of(record, peaks)
        work = shape.work if shape else None
        entry = _evaluate(record, shape, peaks) if shape else Entry(name=record.name, launches_per_unit=record.launches)
        facts = facts_of(record)
        mismatch = find_mismatch(record, work, peaks, facts)
        measurement, baseline = times(record)
        match = self.predictions.match(record.name) if self.predictions and record.name else None
        prediction = match.entry.prediction._replace(matched=match.how) if match and match.entry else None
        outcome = None
        if shape and measurement and baseline is None and prediction is None and record.working_set is None:
            least_s, nearest = shape.nearest(record.cache)
            if nearest is not None and measurement.t_s >= least_s:  # ``check`` would say the same
                outcome = check_within(nearest, measurement, peaks, shape.unchecked)
        if outcome is None:
            outcome = check(entry, work, measurement, peaks, baseline=baseline, prediction=prediction, facts=facts)
        if shape is None and outcome.status == "not_checked":
            outcome = outcome._replace(message=no_work)
        return Row(
            nodeid=record.row,
            path=source,
            line=_line_of(record),
            entry=entry,
            check=outcome,
            device=peaks.product or peaks.gfx,
            measurement=measurement,
            baseline=baseline,
            prediction=prediction,
            claims=len(record.claims),
            mismatch=mismatch,
            correct=record.correct,
        )

    def _declare(self, record: RecordRow) -> None:
        """Give a record the work of the first glob of ``[tool.roofline.work]`` that matches its name."""
        keywords = find_keywords(self._globs(), record.name)
        if keywords is None:
            return
        declared = self._declared.get(id(keywords))
        if declared is None:
            try:
                declared = read_declaration(keywords, {}, "config")
            except ValueError as error:
                declared = f"[tool.roofline.work]: {error}"
            self._declared[id(keywords)] = declared
        if isinstance(declared, str):
            record.no_work = declared
        elif declared.work is not None:
            record.work, record.known_mistakes = totals_of(declared.work)
            record.launches, record.device = declared.launches, record.device or declared.device

    def peaks_of(self, record: RecordRow) -> Peaks | str:
        """Return the peaks of a record's device, or why they are unknown."""
        if self.peaks is not None and (record.device is None or self.table is None):
            return self.peaks
        name = record.device or self.device
        if name is None:
            return "the record names no device: use --device"
        key = (name, record.units if record.device else None)
        if key not in self._devices:
            peaks = resolve_name(self.table, *key) if self.table else Peaks(source="derived")
            if self.peaks is not None and _is_same(name, peaks, self.peaks):
                peaks = self.peaks
            near = self.table.suggest(name).strip() if self.table else ""
            near = "--device cpu takes the measured ceilings of this machine" if name.lower() == CPU else near
            unknown = f"no peaks for device {printable(name)}" + (f": {near}" if near else "")
            self._devices[key] = peaks if peaks.hbm_bw_bytes_s or peaks.flops else unknown
        return self._devices[key]

    def work_of(self, record: RecordRow) -> Work | None:
        """Return the work of a record on its device; None where it is unknown."""
        peaks = self.peaks_of(record)
        shape = None if isinstance(peaks, str) else self._shape_of(record, peaks)[0]
        return shape.work if shape else None

    def _shape_of(self, record: RecordRow, peaks: Peaks) -> tuple[_Shape | None, str]:
        """Return the work of a record on its device, or None and why it is unknown."""
        if record.work is None:
            return None, record.no_work or _NO_WORK
        key: tuple[Any, ...] = (id(peaks), *record.work, *record.work.values())
        try:
            shape = self._shapes.get(key)
        except TypeError:  # a list of sizes
            key = (id(peaks), *record.work, *map(repr, record.work.values()))
            shape = self._shapes.get(key)
        if shape is None:
            limits = self._limits.setdefault(id(peaks), {})
            try:
                work = build_work(record.work)
                shape = (_Shape(fit_to_cache(work, peaks.l2_bytes), peaks, limits) if work else None), _NO_WORK
            except ValueError as error:
                shape = None, str(error)
            if len(self._shapes) >= _SHAPES:
                del self._shapes[next(iter(self._shapes))]  # the oldest: a file tries its kernels on one shape after another
            self._shapes[key] = shape
        return shape


class _Shape:
    """The work of a shape on a device, and what follows from it."""

    __slots__ = ("_limits", "_nearest", "_peaks", "roof", "roof_s", "unchecked", "work")

    def __init__(self, work: Work, peaks: Peaks, limits: dict[str, Limit]) -> None:
        self.work, self.roof, self._peaks, self._limits = work, roof_of(work, peaks), peaks, limits
        self.roof_s = self.roof.time(work.bytes, work.flops)  # at the roof, with the primary byte model
        self.unchecked = None if self.roof.rate and self.roof.bandwidth else unchecked_axis(work, peaks)
        self._nearest: dict[str, tuple[float, Bound | None]] = {}

    def nearest(self, cache: str) -> tuple[float, Bound | None]:
        """Return the least time of this work, under a cache that was cold or not, and the roof nearest to longer times."""
        if cache not in self._nearest:
            bounds = bounds_of(self.work, self._peaks, cache=cache, roof=self.roof, limits=self._limits)
            least_s = max((bound.least_s for bound in bounds), default=inf)
            self._nearest[cache] = least_s, nearest_bound(bounds, inf) if bounds else None
        return self._nearest[cache]


def _refuse(source: str, record: RecordRow, reason: str, code: str) -> Row:
    refusal, entry = Refusal(reason, code), Entry(name=record.name)
    return Row(nodeid=record.row, path=source, line=_line_of(record), entry=entry, check=Check("not_checked"), refusal=refusal)


def _line_of(record: RecordRow) -> int:
    """Return the line of a record; 0 where its place is another, such as benchmarks[3]."""
    kind, _, number = record.row.partition(" ")
    return int(number) if kind == "line" and number.isdecimal() else 0


def _is_same(name: str, found: Peaks, chosen: Peaks) -> bool:
    """Return whether a record's device, by its name and its peaks in the table, is the one of the chosen peaks."""
    if CPU in (chosen.product, name.lower()):
        return chosen.product == name.lower()
    if found.product and chosen.product:
        return found.product == chosen.product
    return found.gfx is not None and found.gfx == chosen.gfx


def _evaluate(record: RecordRow, shape: _Shape, peaks: Peaks) -> Entry:
    """Return the part of the entry that a check needs: no verdict on headroom."""
    work, ratio, axis, limiter = shape.work, None, None, "unknown"
    if record.t_s is not None:
        point = shape.roof.place(work.bytes, work.flops, record.t_s)
        ratio, axis, limiter = point.raw, point.roof_axis, bound(point)
    has_roof = peaks.hbm_bw_bytes_s is not None
    return Entry(
        name=record.name,
        op=work.op,
        op_class=work.op_class,
        modeled=True,
        stage="B",
        dtype=work.dtype.name,
        launches_per_unit=record.launches,
        roof_axis=axis,
        bound_type=limiter,
        roofline_pct=None if ratio is None else min(ratio, 1.0),
        roofline_pct_raw=ratio,
        suspect=ratio is not None and ratio > 1.0,
        unknown_reason="infeasible" if ratio is not None and ratio > 1.0 else None,
        confidence=peaks.axis_confidence(axis) if axis else "low",
        target_eff=TARGET_EFF.get(work.op),
        falsifiable=shape.roof_s > record.launches * peaks.dispatch_floor_s if has_roof else None,
    )


def configure(parser: ArgumentParser) -> None:
    """Add the options of ``roofline check``."""
    parser.add_argument("records", metavar="RECORDS", nargs="*", help="files that tuners, benchmarks and agents wrote")
    parser.add_argument("--predictions", metavar="FILE", help="a profile_roofline.json to compare measured speedups with")
    parser.add_argument("--device", metavar="NAME", help="the device of rows whose file names none: a product, a gfx, cpu")
    parser.add_argument(
        "--peaks", metavar="FILE", help="another peak table, measured ceilings (with --device), or the JSON of peaks measure"
    )
    parser.add_argument("--ledger", metavar="FILE", help="append predicted and measured speedups to this ledger")
    parser.add_argument("--format", metavar="NAME", help="read as this format, whatever the content is; list prints the names")
    parser.add_argument("--template", metavar="OP", help="print the header of a table of claims for this op")
    parser.add_argument("--fail-on", metavar="KIND[,KIND]", help=f"exit 1 on {', '.join(KINDS)}, and on an unchecked row")
    parser.add_argument(
        "--allow-unchecked", action="store_true", help="with --fail-on: warn about rows that it could not check"
    )
    parser.add_argument("--markdown", metavar="FILE", help="also write the summary to FILE")
    parser.add_argument("--github", action="store_true", help="print GitHub annotations: errors for what fails, else warnings")
    parser.add_argument("--json", action="store_true", help="print every row as one JSON document")
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    """Read, check and print; return 1 when ``--fail-on`` finds something or could not check a row, 2 when a file is unreadable.

    Raises ValueError and OSError for bad usage, and when no file could be read.
    """
    installed = _installed_adapters()
    formats = {adapter.NAME: adapter for adapter in reversed([*installed, *ADAPTERS])}
    names = list(reversed(formats))
    if options.records == ["list"] and options.format is None:
        for name in names:
            columns = getattr(formats[name], "columns", "")
            print(f"{name}: {columns}" if columns else name)
        return 0
    if options.template is not None:
        if options.records:
            raise ValueError("--template writes a table and reads none: leave out the records")
        print(template(options.template))
        return 0
    if not options.records:
        raise ValueError("name at least one file of records, or --template OP")
    gates = _read_gates(options.fail_on, options.allow_unchecked)
    if options.format is not None and options.format not in formats:
        raise ValueError(f"--format: unknown format {printable(options.format)!r}, expected {', '.join(names)}")
    predictions = read_predictions(Path(options.predictions)) if options.predictions else None
    table, peaks = _read_peaks(options.peaks, options.device)
    checker = Checker(table, device=options.device, peaks=peaks, predictions=predictions, read_globs=_read_globs)
    tally, predicted = Tally(keep=options.json, gate=Summary(gates)), list[Row]()
    unreadable: list[str] = []
    for path in map(Path, options.records):
        tally.file = str(path)
        try:
            for row in _check_file(path, checker, formats.get(options.format), installed):
                tally.add(row)
                predicted += [row] if row.prediction is not None else []
        except RefusedError as error:
            unreadable.append(str(error))
    if len(unreadable) == len(options.records) and tally.total == 0:
        raise ValueError("; ".join(unreadable))
    tally.errors += unreadable
    if options.ledger:
        from ..ledger import append, pair_of

        pairs = [pair for row in predicted if (pair := pair_of(row, source=f"{row.path} {row.nodeid}")) is not None]
        append(Path(options.ledger), pairs, say=lambda line: print(printable(line), file=sys.stderr))
    if options.markdown:
        write_whole(options.markdown, tally.markdown())
    if options.json:
        sys.stdout.write(to_json(tally.to_dict()))
        print(*tally.counts_lines(), sep="\n", file=sys.stderr)
    else:
        lines = tally.lines()
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0  # a pipe gets whole lines
        if width:
            next(lines)  # the counts, which the table shows
            options.output.table(tally.statuses())
        for line in lines:
            print(textwrap.fill(line, width, subsequent_indent="    ", break_long_words=False) if width else line)
    if options.github:
        print("\n".join(tally.commands()))
    for line in tally.errors:
        print(line, file=sys.stderr)
    return 2 if unreadable else int(tally.fails)


def _read_gates(fail_on: str | None, allow_unchecked: bool) -> Gates:
    """Return the gates of the command line, with the allow list of the project in the working directory.

    Raises:
        ValueError: for an empty or unknown kind, and for an unreadable configuration.
    """
    if fail_on is None:
        if allow_unchecked:
            raise ValueError("--allow-unchecked needs --fail-on")
        return Gates()
    kinds = read_kinds(fail_on, "--fail-on")
    codes, allow = frozenset(SKIPS if allow_unchecked else ()), tuple[Allowance, ...]()
    if _has_settings():
        from ..config import resolve  # imports pydantic

        settings = resolve({"fail_on": fail_on}, {}, Path.cwd())
        codes, allow = codes or settings.allow_unchecked, settings.allow
    return Gates(kinds, None, allow, codes, datetime.date.today())


def _has_settings() -> bool:
    return any(os.path.lexists(name) for name in ("roofline.toml", "pyproject.toml"))


def _read_globs() -> Globs:
    """Return ``[tool.roofline.work]`` of the project in the working directory. Raises ValueError where it is unreadable."""
    if not _has_settings():
        return {}
    from ..config import read_project  # imports pydantic

    return read_project(Path.cwd())[0].work


def _check_file(path: Path, checker: Checker, chosen: Adapter | None, installed: list[Adapter]) -> Iterator[Row]:
    source = open_source(path)
    size = os.path.getsize(path)
    with source, progress(path.name, size if size >= _LONG else None) as tick:
        sample = source.sample()
        adapter = chosen or choose(sample, installed)
        if adapter is None:
            is_near = "op" in sample.columns or sample.columns >= {"m", "n", "k"}
            hint = (
                "; a table of claims needs a time with its unit, such as time_us, and may have baseline_us" if is_near else ""
            )
            raise RefusedError(f"{source.label}: unknown format. roofline check list prints the known ones{hint}")
        for at, row in enumerate(checker.check(source.label, adapter.read(source))):
            if tick is not None and at % _TICK == 0:
                tick(source.position())
            yield row


def _installed_adapters() -> list[Adapter]:
    """Return the adapters of installed packages, by the hook of this plugin without pytest."""
    import pluggy

    from .. import hookspec

    manager = pluggy.PluginManager("pytest")
    manager.add_hookspecs(hookspec)
    manager.load_setuptools_entrypoints("pytest_roofline")
    return [adapter for group in manager.hook.pytest_roofline_ingest() for adapter in group]


def _read_peaks(path: str | None, device: str | None) -> tuple[Table | None, Peaks | None]:
    """Return the table, and the peaks of ``device`` under measured ceilings where ``path`` has them.

    The CPU has peaks by measured ceilings alone: those in ``path``, else the kept ones of this machine.
    """
    is_cpu = device is not None and device.lower() == CPU
    if path is not None and (measured := _read_cpu_ceilings(path)) is not None:
        if device is not None and not is_cpu:
            raise ValueError(f"--peaks has the measured ceilings of a CPU, --device is {printable(device)}: use --device cpu")
        return open_peaks().table, measured
    files = open_peaks(path)
    if files.overlay is None:
        return files.table, _kept_cpu_peaks() if is_cpu else None
    if device is None:
        raise ValueError("--peaks with measured ceilings needs --device")
    peaks, refused = files.resolve(device)
    for line in refused:
        print(printable(line), file=sys.stderr)
    return files.table, peaks


def _read_cpu_ceilings(path: str) -> Peaks | None:
    """Return the peaks of a CPU in what ``roofline peaks measure --json`` prints; None for another file.

    Raises ValueError for a file that cannot be read, and for ceilings that cannot be right.
    """
    text = read_text(path)
    if not text.lstrip().startswith("{"):
        return None
    data = parse_json(text, Path(path).name)
    from ..ceilings.store import SCHEMA, Ceilings  # imports pydantic

    if not isinstance(data, dict) or str(data.get("schema")).partition("/")[0] != SCHEMA.partition("/")[0]:
        return None
    try:
        return Ceilings.from_json(data).peaks()
    except ValueError as error:
        raise ValueError(f"{printable(Path(path).name)}: {error}") from None


def _kept_cpu_peaks() -> Peaks:
    """Return the peaks of this machine's CPU by its kept ceilings. Raises ValueError where none are kept."""
    from ..ceilings.machine import this_machine
    from ..ceilings.store import load, path_of

    machine = this_machine()
    kept = load(path_of(machine), machine, lambda line: print(printable(line), file=sys.stderr))
    if kept is None:
        raise ValueError(
            "--device cpu: the ceilings of this machine are not measured. Run roofline peaks measure, or give what its --json "
            "prints to --peaks"
        )
    return kept.peaks()
