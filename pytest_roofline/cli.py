"""The ``roofline`` command of the installed package: the skill's own commands and those that the package adds."""

from __future__ import annotations

import importlib
import json
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping

from roofline_engine import cli
from roofline_engine.cli import Command

from .report.console import TerminalOutput


class CommandOutput(TerminalOutput):
    """The output of the installed package, which has the figure."""

    def figure(self, document: Mapping[str, object], path: str) -> None:
        """Draw the figure of an artifact to a file, by its suffix."""
        from .plot.output import require_extra, write
        from .plot.sources import report_chart

        require_extra()
        write(report_chart(document, "the trace"), path)


def main() -> int:
    """Entry point of the console script; see ``roofline --help``."""
    return cli.main(prog="roofline", more=COMMANDS, output=CommandOutput())


def _lazy(module: str, function: str = "configure") -> Callable[[ArgumentParser], object]:
    """Import a command's module when the command runs: some load pytest, pydantic, numpy or the figure."""
    return lambda parser: getattr(importlib.import_module(module, __package__), function)(parser)


def _schema(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", help="the record or document (default: print their names)")
    parser.set_defaults(run=_print_schema)


def _print_schema(options: Namespace) -> int:
    from .schema import NAMES, model

    if options.name is None:
        print("\n".join(NAMES))
    elif options.name in NAMES:
        print(json.dumps(model(options.name).model_json_schema(), indent=1))
    else:
        raise ValueError(f"schema {options.name!r} is unknown. Choose one of {', '.join(NAMES)}")
    return 0


def _completion(parser: ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=("bash", "zsh"), help="bash or zsh")
    parser.set_defaults(run=_print_completion)


def _print_completion(options: Namespace) -> int:
    try:
        import shtab
    except ImportError:
        raise ValueError("completion needs the extra 'completion': pip install 'pytest-roofline[completion]'") from None
    parser = cli.build_parser("roofline", (*cli.COMMANDS, *COMMANDS), CommandOutput())
    parser.add_pending(recursive=True)
    print(shtab.complete(parser, options.shell))
    return 0


COMMANDS = (
    Command(
        "annotate",
        "turn a stored pytest-benchmark JSON into the report of a run",
        _lazy(".annotate"),
        "run.json",
        "0 done, 1 a gate failed, 2 bad usage or unreadable input",
    ),
    Command(
        "check",
        "check rows that other tools wrote against the roof and against their own figures",
        _lazy(".records.check"),
        "tuned_gemm.csv --fail-on beyond_roof",
        "0 done, 1 --fail-on applies, 2 bad usage or unreadable input",
    ),
    Command(
        "history",
        "show time and percent of the roof of each test over the saved runs, and the changes beyond noise",
        _lazy(".history"),
        "'*::test_softmax*' --html history.html",
    ),
    Command("ledger", "compare predicted with actual speedups over time"),
    Command(
        "ledger show",
        "print realized over predicted speedups, and what to expect of the next",
        _lazy(".ledger.command", "configure_show"),
    ),
    Command("ledger import", "add the pairs of a CSV", _lazy(".ledger.command", "configure_import"), "pairs.csv"),
    Command(
        "ledger calibrate",
        "propose target_eff values from what kernels reached",
        _lazy(".ledger.command", "configure_calibrate"),
        "--out targets.json",
    ),
    Command(
        "plot",
        "draw the roofline figure of a report, an artifact or a table",
        _lazy(".plot.output"),
        "report.json -o figure.html",
    ),
    Command("completion", "print the completion script of a shell", _completion, "bash"),
    Command("schema", "print the JSON Schema of a record or a document", _schema, "report"),
    Command(
        "skill install",
        "copy the skill to where the client of a coding agent looks",
        _lazy(".agent_skill", "configure_install"),
        "--client claude",
        "0 done, 1 a place has something else and was left as it is, 2 bad usage",
    ),
    Command(
        "skill check",
        "compare the installed copies of the skill with this package",
        _lazy(".agent_skill", "configure_check"),
        exits="0 every copy is current, 1 a copy is stale, edited or missing, 2 bad usage",
    ),
    Command(
        "skill uninstall",
        "remove installed copies of the skill",
        _lazy(".agent_skill", "configure_uninstall"),
        exits="0 done, 1 a folder has other files and was left as it is, 2 bad usage",
    ),
    Command(
        "peaks measure",
        "measure this machine's CPU: bandwidth by level of memory, compute ceilings",
        _lazy(".ceilings.measure"),
    ),
)
