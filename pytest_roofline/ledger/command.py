"""``roofline ledger``: show what predictions came to, import a table of them, propose targets."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from roofline_engine.files import to_json, write_whole
from roofline_engine.units import number, printable

from . import store, table
from .calibrate import document, propose
from .pair import Pair
from .summary import ENOUGH, PRIOR, Experience, Group, group, outcome, outcome_e2e

SCHEMA = "roofline-ledger/1"
_RULE = (
    f"expected = min(attainable, mean realised speedup): geometric, {PRIOR} pairs without a gain added; a group's own mean "
    f"weighs as much once it has {ENOUGH} pairs"
)


def _add_ledger(parser: ArgumentParser) -> None:
    parser.add_argument("--ledger", metavar="FILE", help=f"default: {store.PLAYBOOK} where it exists, else {store.OWN}")


def configure_show(parser: ArgumentParser) -> None:
    """Add the options of ``roofline ledger show``."""
    _add_ledger(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(run=show)


def configure_import(parser: ArgumentParser) -> None:
    """Add the options of ``roofline ledger import``."""
    parser.add_argument("path", metavar="FILE.csv", help="a CSV with a row for each pair")
    _add_ledger(parser)
    parser.set_defaults(run=take)


def configure_calibrate(parser: ArgumentParser) -> None:
    """Add the options of ``roofline ledger calibrate``."""
    _add_ledger(parser)
    parser.add_argument("--quantile", metavar="Q", default="0.9", help="quantile over the kernels of a kind (default: 0.9)")
    parser.add_argument("--out", metavar="FILE", help="write the targets that change to FILE, as JSON")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(run=calibrate)


def _path(options: Namespace) -> Path:
    return Path(options.ledger) if options.ledger else store.locate(Path())


def _read(options: Namespace) -> tuple[Path, store.Ledger]:
    path = _path(options)
    if not path.is_file():
        raise ValueError(f"{printable(str(path))}: no such ledger: roofline ledger import makes one")
    ledger = store.read(path)
    _say(f"{path}:{item.line}: not read, kept: {item.why}" for item in ledger.unread)
    if ledger.skipped:
        lines = ", ".join(map(str, ledger.skipped[:10])) + (", ..." if len(ledger.skipped) > 10 else "")
        _say([f"{path}: {len(ledger.skipped)} notes of free text were not understood (line {lines})"])
    return path, ledger


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        print(printable(line), file=sys.stderr)


def take(options: Namespace) -> int:
    found = table.read(Path(options.path))
    _say(found.problems)
    if not found.pairs:
        raise ValueError(f"{printable(options.path)}: no row that could be read")
    path = _path(options)
    added = store.append(path, found.pairs, once=True)
    left = len(found.pairs) - added
    there = f", {left} stood there already" if left else ""
    print(f"{printable(str(path))}: {added} {'pair' if added == 1 else 'pairs'} added{there}")
    return 0


def show(options: Namespace) -> int:
    path, ledger = _read(options)
    pairs = ledger.all
    experience = Experience(pairs)
    classes = group(pairs, lambda pair: (pair.bound_type,))
    groups = group(pairs, lambda pair: pair.key)
    if options.json:
        sys.stdout.write(
            to_json(
                {
                    "schema": SCHEMA,
                    "path": str(path),
                    "rule": _RULE,
                    "classes": [_group(("bound_type",), item) for item in classes],
                    "groups": [_group(_KEY, item) for item in groups],
                    "pairs": [_pair(pair, experience) for pair in pairs],
                    "unread": [item._asdict() for item in ledger.unread],
                    "notes": {"read": len(ledger.notes), "not_understood": list(ledger.skipped)},
                }
            )
        )
        return 0
    print("\n".join(_lines(pairs, experience, classes, groups)))
    return 0


_KEY = ("op", "bound_type", "stage", "device")


def _group(names: Sequence[str], item: Group) -> dict[str, object]:
    values = asdict(item)
    return {**dict(zip(names, values.pop("key"), strict=True)), **values}


def _pair(pair: Pair, experience: Experience) -> dict[str, Any]:
    def figure(name: str) -> dict[str, float] | None:
        value = getattr(pair, name)
        return None if value is None else {"value": value.mid, "low": value.low, "high": value.high}

    return {
        "kernel": pair.kernel,
        **dict(zip(_KEY, pair.key, strict=True)),
        "attainable": figure("attainable"),
        "expected": experience.of(pair),
        "measured": figure("measured"),
        "outcome": outcome(pair),
        "predicted_e2e_pct": figure("predicted_e2e_pct"),
        "measured_e2e_pct": figure("measured_e2e_pct"),
        "outcome_e2e": outcome_e2e(pair),
        "confidence": pair.confidence,
        "date": pair.date,
        "stack": pair.stack,
        "source": pair.source,
    }


def _lines(pairs: Sequence[Pair], experience: Experience, classes: Sequence[Group], groups: Sequence[Group]) -> list[str]:
    head = ["n", "realised/predicted", "range", "spread", "over", "agrees", "exceeded", "e2e n", "over", "agrees", "exceeded"]
    out = [*_table([["bound by", *head], *[[*item.key, *_figures(item)] for item in classes]]), ""]
    out += _table([["op", "bound by", "stage", "device", *head], *[[*item.key, *_figures(item)] for item in groups]])
    promised = [pair for pair in pairs if pair.attainable is not None]
    if promised:
        rows = [["kernel", "attainable", "expected", "measured", "isolated", "end to end"]]
        for pair in promised:
            expected = experience.of(pair)
            rows.append(
                [
                    pair.kernel[:60],
                    f"{pair.attainable}x",
                    "-" if expected is None else f"{expected:.2f}x",
                    "-" if pair.measured is None else f"{pair.measured}x",
                    outcome(pair) or "-",
                    outcome_e2e(pair) or "-",
                ]
            )
        out += ["", *_table(rows), "", _RULE]
    return out


def _figures(item: Group) -> list[str]:
    ratios = [
        _short(item.ratio),
        "-" if item.lowest is None else f"{item.lowest:.2f}-{item.highest:.2f}",
        "-" if item.spread is None else f"x{item.spread:.2f}",
    ]
    counts = [[tally.over_promised, tally.agrees, tally.exceeded] for tally in (item.isolated, item.e2e)]
    return [str(item.isolated.n), *ratios, *map(str, counts[0]), str(item.e2e.n), *map(str, counts[1])]


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


_NAMES = ("op", "bound by", "stage", "device", "kernel", "axis", "dtype")


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns that line up, names to the left."""
    rows = [[printable(cell) or "-" for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    named = sum(cell in _NAMES for cell in rows[0])
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if at < named else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def calibrate(options: Namespace) -> int:
    q = number(options.quantile, "--quantile", above=0)
    path, ledger = _read(options)
    proposals = propose(ledger.all, q)
    result = document(proposals, q)
    if options.json:
        sys.stdout.write(to_json({**result, "kept": [asdict(item) for item in proposals if item.target_eff is None]}))
    elif proposals:
        rows = [["device", "op", "axis", "dtype", "n", "prior", "observed", "proposed", "why"]]
        for item in proposals:
            figures = [_short(item.prior), f"{item.observed:.3f}", "-" if item.target_eff is None else f"{item.target_eff:.3f}"]
            rows.append([item.device, item.op, item.axis, item.dtype, str(item.n), *figures, item.why])
        print("\n".join(_table(rows)))
    if not proposals:
        _say([f"{path}: no pair names its device, op, axis and dtype and what it reached of its roof"])
    if options.out:
        write_whole(options.out, to_json(result))
        _say([f"wrote {options.out}"])
    return 0
