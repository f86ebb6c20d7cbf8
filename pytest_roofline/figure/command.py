"""``roofline plot``: a report, an artifact or a table of kernels to a picture, a page, or a specification."""

from __future__ import annotations

import os

from roofline_engine.arguments import Option, Options
from roofline_engine.inputs import read_json
from roofline_engine.units import printable

from .output import SUFFIXES, needed, of_document, suffix_of, write

OPTIONS = (
    Option("path", "REPORT", "a report, an artifact, a table in JSON, or measured ceilings alone", required=True),
    Option("--output", "FILE", f"ends in {', '.join(SUFFIXES)}; repeatable", many=True, required=True, short="o"),
    Option("--ceilings", "FILE", "what roofline peaks measure --json printed: caches, no FMA, scalar, beside a report's roofs"),
    Option("--device", "NAME", "whose rows, where a report has several devices"),
    Option("--title", "TEXT", "in place of the one that says what to see"),
)


def run(options: Options) -> int:
    """Write the figure to each file.

    Raises:
        ValueError, OSError: for bad usage, a file that cannot be read and one that cannot be written, in one line.
    """
    for path in options.output:
        suffix_of(path)
    needed()
    label = printable(os.path.basename(options.path))
    ceilings = read_json(options.ceilings) if options.ceilings else None
    model = of_document(read_json(options.path), label, options.device, options.title, ceilings)
    for path in options.output:
        write(model, path)
        print(f"wrote {printable(path)}")
    return 0
