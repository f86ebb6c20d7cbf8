"""``roofline peaks measure``: print the ceilings of this machine as a table or as one JSON document."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from roofline_engine.files import to_json
from roofline_engine.units import number, printable

from ..report.console import progress
from .measure import METHODS, ceilings
from .store import LEVELS, NAMES, Ceiling, Ceilings, format_ceiling, on_stderr

#: The exit status of a command that was interrupted, as shells give it.
_INTERRUPTED = 130
_METHODS = ("auto", *reversed(METHODS))


def configure(parser: ArgumentParser) -> None:
    """Add the options of ``roofline peaks measure``."""
    methods = f"{', '.join(_METHODS)} (default: auto, the best one available)"
    parser.add_argument("--method", metavar="METHOD", choices=_METHODS, default="auto", help=methods)
    parser.add_argument("--seconds", metavar="N", help="spread the rounds over this many seconds (carm: at least five passes)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--force", action="store_true", help="measure although the cache holds this machine's ceilings")
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    """Measure, unless the cache has the ceilings, and print them."""
    seconds = None if options.seconds is None else float(number(options.seconds, "--seconds", above=0))
    try:
        with progress("measuring", 1.0, redraw=False) as tick:
            measured = ceilings(options.method, seconds, force=options.force, say=on_stderr, tick=tick)
    except KeyboardInterrupt:
        on_stderr("interrupted: nothing was measured or kept")
        return _INTERRUPTED
    if options.json:
        sys.stdout.write(to_json({"peaks": measured.peaks().to_dict(), **measured.to_json()}))
    else:
        print("\n".join(table(measured)))
    return 0


def table(measured: Ceilings) -> list[str]:
    """Format the machine, each ceiling with its spread, and the peaks they make."""
    machine, peaks = measured.machine, measured.peaks()
    cache = "unknown" if machine.cache_bytes is None else f"{machine.cache_bytes / 2**20:.4g} MiB"
    clock = "" if measured.clock_mhz is None else f", {measured.clock_mhz:.0f} MHz"
    lines = [f"{printable(machine.cpu)}, {machine.cores} cores{clock}, last-level cache {cache}"]
    lines += [f"measured {measured.date} by {measured.method}", ""]
    head = f"{'ceiling':11} {'level':5} {'dtype':5} {'threads':>7} {'best':>13} {'median':>13}"
    lines.append(f"{head} {'spread':>7} {'rounds':>6} {'cores':>6}  by")
    for item in sorted(measured.items, key=_place):
        median = format_ceiling(item, item.median)
        share = "-" if item.cpu_share is None else f"{item.cpu_share:.0%}"
        lines.append(
            f"{item.name:11} {item.level or '-':5} {item.dtype:5} {item.threads:7} {format_ceiling(item):>13} {median:>13} "
            f"{item.spread:7.1%} {item.rounds:6} {share:>6}  {item.method}"
        )
    lines.append("")
    for axis, item in measured.axes().items():
        lines.append(f"roof {axis:12} {format_ceiling(item)}, confidence {peaks.axis_confidence(axis)}")
    lines += [f"empty call        {measured.call_s * 1e9:.3g} ns", *(f"note: {printable(note)}" for note in measured.notes)]
    if measured.disturbed():
        lines.append(f"note: {measured.disturbed()}; measure again with --force when the machine is quiet")
    return lines


def _place(item: Ceiling) -> tuple[int, int, str, str]:
    """Sort all threads first, levels from the cores outwards, the highest ceiling first."""
    return -item.threads, (*NAMES["compute"], *LEVELS).index(item.level or item.name), item.dtype, item.name
