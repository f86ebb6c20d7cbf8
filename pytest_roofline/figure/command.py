"""``roofline plot``: a report, an artifact or a table of kernels to a picture, a page, or a specification."""

from __future__ import annotations

import argparse
import os

from roofline_engine.inputs import read_json
from roofline_engine.units import printable

from .output import SUFFIXES, needed, of_document, suffix_of, write


def add(one: argparse.ArgumentParser) -> None:
    """The options of the command."""
    one.add_argument("path", metavar="REPORT", help="a report, an artifact, or JSON with ceilings, bandwidths and kernels")
    one.add_argument(
        "-o", "--output", metavar="FILE", action="append", required=True, help=f"ends in {', '.join(SUFFIXES)}; repeatable"
    )
    one.add_argument("--device", metavar="NAME", help="whose rows, where a report has several devices")
    one.add_argument("--title", metavar="TEXT", help="in place of the one that says what to see")
    one.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the figure to each file.

    Raises:
        ValueError, OSError: for bad usage, a file that cannot be read and one that cannot be written, in one line.
    """
    for path in options.output:
        suffix_of(path)
    needed()
    label = printable(os.path.basename(options.path))
    model = of_document(read_json(options.path), label, options.device, options.title)
    for path in options.output:
        write(model, path)
        print(f"wrote {printable(path)}")
    return 0
