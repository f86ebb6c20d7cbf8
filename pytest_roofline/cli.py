"""The ``roofline`` command of the installed package: the skill's own command line and what the package adds to it."""

from __future__ import annotations

import argparse
import json

from roofline_engine import cli


def main() -> int:
    """Entry point of the console script; see ``roofline --help``."""
    return cli.main(prog="roofline", more=_ADDED)


def _add_measure(one: argparse.ArgumentParser) -> None:
    from .ceilings import command

    command.add(one)


def _add_annotate(one: argparse.ArgumentParser) -> None:
    from . import replay

    replay.add(one)


def _add_check(one: argparse.ArgumentParser) -> None:
    from . import checking

    checking.add(one)


def _add_ledger(one: argparse.ArgumentParser) -> None:
    from .ledger import command

    command.add(one)


def _add_plot(one: argparse.ArgumentParser) -> None:
    from .figure import command

    command.add(one)


def _add_schema(one: argparse.ArgumentParser) -> None:
    one.add_argument("name", metavar="NAME", nargs="?", help="the record; without it, their names")
    one.set_defaults(run=_schema)


def _schema(options: argparse.Namespace) -> int:
    from .records import NAMES, model

    if options.name is None:
        print("\n".join(NAMES))
    elif options.name in NAMES:
        print(json.dumps(model(options.name).model_json_schema(), indent=1))
    else:
        raise ValueError(f"no record {options.name!r}: there are {', '.join(NAMES)}")
    return 0


_ADDED = (
    cli.Extension("annotate", "a stored pytest-benchmark JSON to the report of a run", _add_annotate),
    cli.Extension("check", "rows that other tools wrote, against the roof and their own figures", _add_check),
    cli.Extension("ledger", "predicted against actual speedups, over time", _add_ledger),
    cli.Extension("plot", "the roofline figure of a report, an artifact or a table", _add_plot),
    cli.Extension("schema", "the JSON Schema of a record or a document", _add_schema),
    cli.Extension("peaks", "this machine's CPU: bandwidth by level of memory, compute ceilings", _add_measure, "measure"),
)
