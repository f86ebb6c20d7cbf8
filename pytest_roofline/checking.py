"""``roofline check RECORDS...``: the command around ``checker``."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from roofline_engine import ceilings, overlay, peaktable
from roofline_engine.arguments import Option, Options
from roofline_engine.artifact import to_json, write_whole
from roofline_engine.peaks import Peaks, named
from roofline_engine.units import printable

from .checker import Checker, Refused, Result
from .ingest import SAMPLE, Adapter, RefusedError, adapters, choose, open_source
from .report.checked import Tally

KINDS = ("beyond_roof", "exceeds_target", "regression", "claim", "refused")
#: Files over this get a progress bar, where there is a terminal.
_LONG = 5_000_000


OPTIONS = (
    Option("records", "RECORDS", "files that tuners, benchmarks and agents wrote", many=True, required=True),
    Option("--predictions", "FILE", "a profile_roofline.json to hold measured speedups against"),
    Option("--device", "NAME", "of rows whose file names none: a product or a gfx"),
    Option("--peaks", "FILE", "another peak table, or measured ceilings (with --device)"),
    Option("--ledger", "FILE", "append what was predicted and what came of it to this ledger"),
    Option("--format", "NAME", "read as this format, whatever the content looks like; list names them"),
    Option("--fail-on", "KIND[,KIND]", f"exit 1 on {', '.join(KINDS)}"),
    Option("--markdown", "FILE", "write the summary there as well"),
    Option("--github", what="print GitHub annotations for the worst rows"),
    Option("--json", what="print every row as one JSON document"),
)


def run(options: Options) -> int:
    """Read, check, print; 1 where ``--fail-on`` names what was found.

    Raises:
        ValueError, OSError: for bad usage, and where no file could be read.
    """
    more = _hooked()
    known = [*more, *adapters()]
    if options.records == ["list"] and options.format is None:
        print("\n".join(adapter.NAME for adapter in known))
        return 0
    kinds = [kind.strip() for kind in (options.fail_on or "").split(",") if kind.strip()]
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise ValueError(f"--fail-on: unknown kind {printable(unknown[0])!r}, expected {', '.join(KINDS)}")
    named = [adapter for adapter in known if options.format == adapter.NAME]
    if options.format is not None and not named:
        raise ValueError(f"--format: there are {', '.join(adapter.NAME for adapter in known)}")
    predictions = None
    if options.predictions:
        from .priors import read_predictions

        predictions = read_predictions(Path(options.predictions))
    table, given = _peaks(options.peaks, options.device)
    checker = Checker(table, device=options.device, given=given, predictions=predictions, brief=not options.json)
    tally, predicted = Tally(keep=options.json), list[Result]()
    read = 0
    for path in map(Path, options.records):
        try:
            for item in _of_file(path, checker, named[0] if named else None, more):
                tally.add(item)
                if isinstance(item, Result) and item.prediction is not None:
                    predicted.append(item)
            read += 1
        except RefusedError as error:
            tally.said.append(str(error))
    if not read and tally.total == 0:
        raise ValueError("; ".join(tally.said))
    if options.ledger:
        from .ledger import append, of_result

        append(Path(options.ledger), [pair for item in predicted if (pair := of_result(item)) is not None])
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


def _of_file(path: Path, checker: Checker, named: Adapter | None, more: list[Adapter]) -> Iterator[Result | Refused]:
    source = open_source(path)
    with source, _progress(path) as tick:
        adapter = named or choose(source.start(SAMPLE), path.suffix, more)
        if adapter is None:
            raise RefusedError(f"{source.label}: of no format that is known here (roofline check list)")
        for at, item in enumerate(checker.check(source.label, adapter.read(source))):
            if tick is not None and at % 1000 == 0:
                tick(source.position())
            yield item


def _hooked() -> list[Adapter]:
    """Adapters of installed packages: the hook of this plugin, outside pytest."""
    import pluggy

    from . import hookspec

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


def _peaks(path: str | None, device: str | None) -> tuple[peaktable.Table | None, Peaks | None]:
    """The table, and the peaks of ``device`` under measured ceilings where such a file was given."""
    measured = ceilings.read(path) if path is not None else None
    shipped = path is None or measured is not None
    found = peaktable.locate() if shipped else path
    table = peaktable.load(found, shipped=shipped) if found else None
    if measured is None:
        return table, None
    if device is None:
        raise ValueError("--peaks with measured ceilings needs --device")
    laid, refused = overlay.apply(named(table, device), measured, table)
    for line in refused:
        print(printable(line), file=sys.stderr)
    return table, laid
