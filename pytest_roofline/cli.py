"""The ``roofline`` command of the installed package: the skill's own command line and what the package adds to it."""

from __future__ import annotations

import argparse

from roofline_engine import cli


def main() -> int:
    """Entry point of the console script; see ``roofline --help``."""
    return cli.main(prog="roofline", more=_ADDED)


def _add_measure(one: argparse.ArgumentParser) -> None:
    from .ceilings import command

    command.add(one)


_ADDED = (
    cli.Extension("peaks", "measure", "this machine's CPU: bandwidth by level of memory, compute ceilings", _add_measure),
)
