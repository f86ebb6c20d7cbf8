"""``roofline check RECORDS...``: check the rows of other tools' files against the roof, their own rates, and predictions.

Status comes from recomputed figures alone; a printed rate is a claim beside it. Rows that cannot be used are refused with the
reason, and never left out.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from roofline_engine.check import Check, Prediction, check
from roofline_engine.fields import Entry
from roofline_engine.files import to_json, write_whole
from roofline_engine.peaks import Peaks, resolve_name
from roofline_engine.peaks_measured import open_peaks
from roofline_engine.peaks_table import Table
from roofline_engine.roofline import Roof, bound, roof_of
from roofline_engine.units import printable
from roofline_engine.work import TARGET_EFF, Work, fit_to_cache

from ..declare import build
from ..evaluate import facts_of, find_mismatch, times
from ..gate import RECORD_KINDS
from ..report.records import Tally
from ..row import Refusal, Row
from .registry import ADAPTERS, choose
from .row import RecordRow
from .source import Adapter, RefusedError, open_source

if TYPE_CHECKING:
    from ..baselines import Predictions

#: Works kept by shape: tuner tables try many kernels on one shape.
_REMEMBERED = 4096


class Checker:
    """What all rows of a run share: the peak table, the devices found so far, the works of shapes seen before.

    device: of rows whose file names none. given: peaks in place of the table's, for every row.
    """

    def __init__(
        self,
        table: Table | None,
        *,
        device: str | None = None,
        given: Peaks | None = None,
        predictions: Predictions | None = None,
    ) -> None:
        self.table, self.device, self.given, self.predictions = table, device, given, predictions
        self._peaks: dict[tuple[str, int | None], Peaks | None] = {}
        self._shapes: dict[tuple[Any, ...], _Shape | str] = {}

    def check(self, source: str, records: Iterable[RecordRow]) -> Iterator[Row]:
        """Return the rows of one file, in their order."""
        for record in records:
            yield (
                _refuse(source, record, Refusal(record.refused, record.refused_code))
                if record.refused
                else self.row(source, record)
            )

    def row(self, source: str, record: RecordRow) -> Row:
        """Check one record."""
        peaks = self._of(record)
        if isinstance(peaks, str):
            return _refuse(source, record, Refusal(peaks, "no_peaks"))
        shape, why = self._shape(record, peaks)
        facts = facts_of(record)
        measurement, baseline = times(record)
        entry = _entry(record, shape, peaks)
        work = shape.work if shape else None
        prediction = self._predicted(record.name) if self.predictions and record.name else None
        outcome = check(entry, work, measurement, peaks, baseline=baseline, prediction=prediction, facts=facts)
        if outcome.cause == "placeholder":
            return _refuse(source, record, Refusal(f"placeholder: {outcome.decided}", "placeholder", "placeholder"))
        if outcome.status == "not_checked" and work is None:
            outcome = outcome._replace(message=why)
        return Row(
            nodeid=record.row,
            path=source,
            entry=entry,
            check=outcome,
            device=peaks.product or peaks.gfx,
            measurement=measurement,
            baseline=baseline,
            prediction=prediction,
            mismatch=find_mismatch(record, work, peaks, facts),
            correct=record.correct,
        )

    def _predicted(self, name: str) -> Prediction | None:
        assert self.predictions is not None
        entry, how, _ = self.predictions.match(name)
        return entry.prediction._replace(matched=how) if entry else None

    def _of(self, record: RecordRow) -> Peaks | str:
        """The peaks of a row's device, or why there are none."""
        if self.given is not None:
            return self.given
        name = record.device or self.device
        if name is None:
            return "no device is named: --device"
        key = (name, record.units if record.device else None)
        if key not in self._peaks:
            self._peaks[key] = self._resolved(*key)
        found = self._peaks[key]
        if found is not None:
            return found
        near = self.table.near(name).strip() if self.table else ""
        return f"no peaks for device {printable(name)}" + (f": {near}" if near else "")

    def _resolved(self, name: str, units: int | None) -> Peaks | None:
        if self.table is None:
            return None
        found = resolve_name(self.table, name, units)
        return found if found.hbm_bw_bytes_s or found.flops else None

    def _shape(self, record: RecordRow, peaks: Peaks) -> tuple[_Shape | None, str]:
        if record.work is None:
            return None, record.no_work or "its work is not known"
        key: tuple[Any, ...] = (id(peaks), *record.work, *record.work.values())
        try:
            found = self._shapes.get(key)
        except TypeError:  # a list of sizes
            key = (id(peaks), *record.work, *map(repr, record.work.values()))
            found = self._shapes.get(key)
        if found is None:
            try:
                made = build(record.work)
                found = "its work is not known" if made is None else _shape(fit_to_cache(made, peaks.l2_bytes), peaks)
            except ValueError as error:
                found = str(error)
            if len(self._shapes) >= _REMEMBERED:
                self._shapes.clear()
            self._shapes[key] = found
        return (None, found) if isinstance(found, str) else (found, "")


class _Shape(NamedTuple):
    """The work of a shape on a device, and what every row of it needs.

    roof_s: the roof time of its least bytes and FLOPs. own_roof_s: of the figure's.
    """

    work: Work
    roof: Roof
    roof_s: float
    own_roof_s: float

    def falsifiable(self, launches: float, peaks: Peaks) -> bool | None:
        return None if peaks.hbm_bw_bytes_s is None else self.own_roof_s > launches * peaks.dispatch_floor_s


def _shape(done: Work, peaks: Peaks) -> _Shape:
    roof = roof_of(done, peaks)
    own = least = roof.time(done.bytes, done.flops)
    if len(done.candidates) > 1:
        nbytes, flops = min(model.bytes for model in done.candidates), min(model.flops for model in done.candidates)
        least = roof.time(nbytes, flops)
    return _Shape(done, roof, least, own)


def _refuse(source: str, record: RecordRow, refusal: Refusal) -> Row:
    entry = Entry(name=record.name)
    return Row(nodeid=record.row, path=source, entry=entry, check=Check("not_checked"), refusal=refusal)


def _entry(record: RecordRow, shape: _Shape | None, peaks: Peaks) -> Entry:
    if shape is None:
        return Entry(name=record.name, stage="B", launches_per_unit=record.launches)
    work = shape.work
    raw = axis = None
    limiter = "unknown"
    if record.t_s is not None:
        p = shape.roof.place(work.bytes, work.flops, record.t_s)
        raw, axis, limiter = p.raw, p.roof_axis, bound(p)
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
        roofline_pct=None if raw is None else min(raw, 1.0),
        roofline_pct_raw=raw,
        suspect=raw is not None and raw > 1.0,
        target_eff=TARGET_EFF.get(work.op),
        falsifiable=shape.falsifiable(record.launches, peaks),
    )


#: Files over this get a progress bar, where there is a terminal.
_LONG = 5_000_000


def configure(parser: ArgumentParser) -> None:
    """Add the options of ``roofline check``."""
    parser.add_argument("records", metavar="RECORDS", nargs="+", help="files that tuners, benchmarks and agents wrote")
    parser.add_argument("--predictions", metavar="FILE", help="a profile_roofline.json to compare measured speedups with")
    parser.add_argument("--device", metavar="NAME", help="the device of rows whose file names none: a product or a gfx")
    parser.add_argument("--peaks", metavar="FILE", help="another peak table, or measured ceilings (with --device)")
    parser.add_argument("--ledger", metavar="FILE", help="append predicted and measured speedups to this ledger")
    parser.add_argument("--format", metavar="NAME", help="read as this format, whatever the content is; list prints the names")
    parser.add_argument("--fail-on", metavar="KIND[,KIND]", help=f"exit 1 on {', '.join(RECORD_KINDS)}")
    parser.add_argument("--markdown", metavar="FILE", help="also write the summary to FILE")
    parser.add_argument("--github", action="store_true", help="print GitHub annotations for the worst rows")
    parser.add_argument("--json", action="store_true", help="print every row as one JSON document")
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    """Read, check, print; 1 where ``--fail-on`` names what was found.

    Raises:
        ValueError, OSError: for bad usage, and where no file could be read.
    """
    more = _hooked()
    known = [*more, *ADAPTERS]
    if options.records == ["list"] and options.format is None:
        print("\n".join(adapter.NAME for adapter in known))
        return 0
    kinds = [kind.strip() for kind in (options.fail_on or "").split(",") if kind.strip()]
    unknown = [kind for kind in kinds if kind not in RECORD_KINDS]
    if unknown:
        raise ValueError(f"--fail-on: unknown kind {printable(unknown[0])!r}, expected {', '.join(RECORD_KINDS)}")
    named = [adapter for adapter in known if options.format == adapter.NAME]
    if options.format is not None and not named:
        raise ValueError(f"--format: there are {', '.join(adapter.NAME for adapter in known)}")
    predictions = None
    if options.predictions:
        from ..baselines import read_predictions

        predictions = read_predictions(Path(options.predictions))
    table, given = _peaks(options.peaks, options.device)
    checker = Checker(table, device=options.device, given=given, predictions=predictions)
    tally, predicted = Tally(keep=options.json), list[Row]()
    read = 0
    for path in map(Path, options.records):
        try:
            for item in _of_file(path, checker, named[0] if named else None, more):
                tally.add(item)
                if item.prediction is not None:
                    predicted.append(item)
            read += 1
        except RefusedError as error:
            tally.said.append(str(error))
    if not read and tally.total == 0:
        raise ValueError("; ".join(tally.said))
    if options.ledger:
        from ..ledger import append, pair_of

        pairs = [pair for item in predicted if (pair := pair_of(item, source=f"{item.path} {item.nodeid}")) is not None]
        append(Path(options.ledger), pairs, say=lambda line: print(printable(line), file=sys.stderr))
    if options.markdown:
        write_whole(options.markdown, tally.markdown())
    if options.json:
        sys.stdout.write(to_json(tally.to_dict()))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0  # a pipe gets whole lines
        for line in tally.lines():
            print(textwrap.fill(line, width, subsequent_indent="    ", break_long_words=False) if width else line)
    if options.github:
        print("\n".join(tally.commands()))
    for line in tally.said:
        print(line, file=sys.stderr)
    if kinds and not tally.counts:
        print("--fail-on: no row could be checked", file=sys.stderr)
    return 1 if any(_happened(kind, tally) for kind in kinds) else 0


def _happened(kind: str, tally: Tally) -> bool:
    if kind == "claim":
        return bool(tally.claims)
    if kind == "refused":
        return bool(tally.reasons or tally.said)
    return tally.counts[kind] > 0


def _of_file(path: Path, checker: Checker, named: Adapter | None, more: list[Adapter]) -> Iterator[Row]:
    source = open_source(path)
    with source, _progress(path) as tick:
        adapter = named or choose(source.sample(), more)
        if adapter is None:
            raise RefusedError(f"{source.label}: of no format that is known here (roofline check list)")
        for at, item in enumerate(checker.check(source.label, adapter.read(source))):
            if tick is not None and at % 1000 == 0:
                tick(source.position())
            yield item


def _hooked() -> list[Adapter]:
    """Adapters of installed packages: the hook of this plugin, outside pytest."""
    import pluggy

    from .. import hookspec

    manager = pluggy.PluginManager("pytest")
    manager.add_hookspecs(hookspec)
    manager.load_setuptools_entrypoints("pytest_roofline")
    return [adapter for found in manager.hook.pytest_roofline_ingest() for adapter in found]


@contextmanager
def _progress(path: Path) -> Iterator[Callable[[int], object] | None]:
    """A bar on stderr for a long file; nothing where nobody looks."""
    size = os.path.getsize(path) if path.is_file() else 0
    if size < _LONG or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(printable(path.name), total=size)
        yield lambda position: bar.update(task, completed=position)


def _peaks(path: str | None, device: str | None) -> tuple[Table | None, Peaks | None]:
    """Return the table, and the peaks of ``device`` under measured ceilings where such a file was given."""
    files = open_peaks(path)
    if files.overlay is None:
        return files.table, None
    if device is None:
        raise ValueError("--peaks with measured ceilings needs --device")
    peaks, refused = files.resolve(device)
    for line in refused:
        print(printable(line), file=sys.stderr)
    return files.table, peaks
