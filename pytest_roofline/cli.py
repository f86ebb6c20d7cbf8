"""The ``roofline`` command of the installed package: the skill's own command line and what the package adds to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from roofline_engine import cli
from roofline_engine.arguments import Command, Option, Options

_Loaded = tuple[Callable[[Options], int], Sequence[Option]]


def main() -> int:
    """Entry point of the console script; see ``roofline --help``."""
    return cli.main(prog="roofline", more=_ADDED)


def _measure() -> _Loaded:
    from .ceilings import command

    return command.run, command.OPTIONS


def _annotate() -> _Loaded:
    from . import annotate

    return annotate.run, annotate.OPTIONS


def _check() -> _Loaded:
    from . import checking

    return checking.run, checking.OPTIONS


def _ledger_show() -> _Loaded:
    from .ledger import command

    return command.show, command.SHOW


def _ledger_import() -> _Loaded:
    from .ledger import command

    return command.take, command.TAKE


def _ledger_calibrate() -> _Loaded:
    from .ledger import command

    return command.calibrate, command.CALIBRATE


def _plot() -> _Loaded:
    from .plot import output

    return output.run, output.OPTIONS


def _schema(options: Options) -> int:
    from .schema import NAMES, model

    if options.name is None:
        print("\n".join(NAMES))
    elif options.name in NAMES:
        print(json.dumps(model(options.name).model_json_schema(), indent=1))
    else:
        raise ValueError(f"no record {options.name!r}: there are {', '.join(NAMES)}")
    return 0


_ADDED = (
    Command("annotate", "a stored pytest-benchmark JSON to the report of a run", _annotate),
    Command("check", "rows that other tools wrote, against the roof and their own figures", _check),
    Command("ledger", "predicted against actual speedups, over time"),
    Command("ledger show", "realised over predicted, and what to expect of the next prediction", _ledger_show),
    Command("ledger import", "add the pairs of a CSV", _ledger_import),
    Command("ledger calibrate", "propose target_eff values from what kernels reached", _ledger_calibrate),
    Command("plot", "the roofline figure of a report, an artifact or a table", _plot),
    Command(
        "schema",
        "the JSON Schema of a record or a document",
        lambda: (_schema, (Option("name", "NAME", "the record; without it, their names"),)),
    ),
    Command("peaks measure", "this machine's CPU: bandwidth by level of memory, compute ceilings", _measure),
)
