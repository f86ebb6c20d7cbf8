"""The ``roofline`` command of the installed package: the skill's own command line under its short name."""

from __future__ import annotations

from roofline_engine import cli


def main() -> int:
    """Entry point of the console script; see ``roofline --help``."""
    return cli.main(prog="roofline")
