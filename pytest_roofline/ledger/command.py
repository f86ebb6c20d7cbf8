"""``roofline ledger``: show how good predictions were, import pairs, propose targets."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from roofline_engine import report
from roofline_engine.files import condense, to_json, write_whole
from roofline_engine.units import number, printable

from . import store
from .stats import ENOUGH, PRIOR, Experience, Group, document, group, outcome, outcome_e2e, propose
from .store import Pair

SCHEMA = "roofline-ledger/1"
_RULE = (
    f"expected = min(attainable, mean realized speedup): the geometric mean with {PRIOR} pairs without a gain added; the mean "
    f"of a group weighs as much as that of all pairs once it has {ENOUGH} pairs"
)


def _add_ledger(parser: ArgumentParser) -> None:
    markdown = " or ".join(map(str, store.MARKDOWN))
    parser.add_argument("--ledger", metavar="FILE", help=f"default: {store.OWN}, or an older ledger in {markdown}")


def configure_show(parser: ArgumentParser) -> None:
    """Add the options of ``roofline ledger show``."""
    _add_ledger(parser)
    formats = parser.add_mutually_exclusive_group()
    formats.add_argument("--json", action="store_true", help="print one JSON document")
    formats.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    parser.set_defaults(run=show)


def configure_import(parser: ArgumentParser) -> None:
    """Add the options of ``roofline ledger import``."""
    parser.add_argument("path", metavar="FILE", help="a CSV with a row for each pair, or an older Markdown ledger")
    _add_ledger(parser)
    parser.set_defaults(run=import_pairs)


def configure_calibrate(parser: ArgumentParser) -> None:
    """Add the options of ``roofline ledger calibrate``."""
    _add_ledger(parser)
    parser.add_argument("--quantile", metavar="Q", default="0.9", help="quantile over the kernels of a kind (default: 0.9)")
    parser.add_argument("--out", metavar="FILE", help="write the targets that change to FILE, as JSON")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(run=calibrate)


def _path(options: Namespace) -> Path:
    return Path(options.ledger) if options.ledger else store.locate(Path())


def _read(options: Namespace) -> store.Ledger:
    path = _path(options)
    if not path.exists() and not store.lines_path(path).exists():
        raise ValueError(f"{printable(str(path))}: this ledger does not exist. `roofline ledger import FILE` makes one")
    ledger = store.read(path)
    _say(condense(f"{ledger.path}:{item.line}: not read, kept: {item.why}" for item in ledger.unread))
    if ledger.path == path and store.lines_path(path) != path:
        _say([f"{path}: a Markdown ledger of an older version; new pairs go to {store.lines_path(path)}"])
    return ledger


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        print(printable(line), file=sys.stderr)


def import_pairs(options: Namespace) -> int:
    """Add the pairs of a file to the ledger, each once."""
    source = Path(options.path)
    imported = (store.read_markdown if source.suffix.lower() in (".md", ".markdown") else store.read_csv)(source)
    _say(condense(f"{source.name}:{item.line}: {item.why}" for item in imported.unread))
    if not imported.pairs:
        raise ValueError(f"{printable(options.path)}: no readable row with a pair")
    path = _path(options)
    added = store.append(path, imported.pairs, once=True, say=lambda line: _say([line]))
    existing = len(imported.pairs) - added
    rest = f", {existing} already there" if existing else ""
    print(f"{printable(str(store.lines_path(path)))}: {added} {'pair' if added == 1 else 'pairs'} added{rest}")
    return 0


def show(options: Namespace) -> int:
    """Print the pairs by class and group, and each kernel's expected speedup."""
    ledger = _read(options)
    pairs = ledger.pairs
    experience = Experience(pairs)
    classes = group(pairs, lambda pair: (pair.bound_type,))
    groups = group(pairs, lambda pair: pair.key)
    if options.json:
        content: dict[str, object] = {
            "schema": SCHEMA,
            "path": str(ledger.path),
            "rule": _RULE,
            "classes": [_group(("bound_type",), item) for item in classes],
            "groups": [_group(_KEY, item) for item in groups],
            "pairs": [_pair(pair, experience) for pair in pairs],
            "unread": [item._asdict() for item in ledger.unread],
        }
        sys.stdout.write(to_json(content))
        return 0
    tables = _tables(pairs, experience, classes, groups)
    rule = [_RULE] if len(tables) == 3 else []  # it explains the table of kernels
    if options.markdown:
        print("\n\n".join([*map(_markdown, tables), *rule]))
        return 0
    for at, rows in enumerate(tables):
        if at:
            print()
        options.output.table(rows, left=_count_names(rows))
    if rule:
        print(f"\n{_RULE}")
    return 0


_KEY = ("op", "bound_type", "stage", "device")


def _group(names: Sequence[str], item: Group) -> dict[str, object]:
    values = asdict(item)
    return {**dict(zip(names, values.pop("key"), strict=True)), **values}


def _pair(pair: Pair, experience: Experience) -> dict[str, Any]:
    def interval(name: str) -> dict[str, float] | None:
        value = getattr(pair, name)
        return None if value is None else {"value": value.mid, "low": value.low, "high": value.high}

    return {
        "kernel": pair.kernel,
        **dict(zip(_KEY, pair.key, strict=True)),
        "attainable": interval("attainable"),
        "expected": experience.of(pair),
        "measured": interval("measured"),
        "outcome": outcome(pair),
        "predicted_e2e_pct": interval("predicted_e2e_pct"),
        "measured_e2e_pct": interval("measured_e2e_pct"),
        "outcome_e2e": outcome_e2e(pair),
        "confidence": pair.confidence,
        "date": pair.date,
        "stack": pair.stack,
        "source": pair.source,
    }


def _tables(
    pairs: Sequence[Pair], experience: Experience, classes: Sequence[Group], groups: Sequence[Group]
) -> list[list[list[str]]]:
    """Return the rows of each table, the header first: by limiter, by group, and the kernels with a prediction, if any."""
    head = ["n", "realized/predicted", "range", "spread", "over", "agrees", "exceeded", "e2e n", "over", "agrees", "exceeded"]
    tables = [
        [["limiter", *head], *[[*item.key, *_numbers(item)] for item in classes]],
        [["op", "limiter", "stage", "device", *head], *[[*item.key, *_numbers(item)] for item in groups]],
    ]
    kernels = [["kernel", "attainable", "expected", "measured", "isolated", "end to end"]]
    for pair in pairs:
        if pair.attainable is not None:
            expected = experience.of(pair)
            kernels.append(
                [
                    pair.kernel[:60],
                    f"{pair.attainable}x",
                    "-" if expected is None else f"{expected:.2f}x",
                    "-" if pair.measured is None else f"{pair.measured}x",
                    outcome(pair) or "-",
                    outcome_e2e(pair) or "-",
                ]
            )
    return [*tables, kernels] if len(kernels) > 1 else tables


def _numbers(item: Group) -> list[str]:
    ratios = [
        _short(item.ratio),
        "-" if item.lowest is None else f"{item.lowest:.2f}-{item.highest:.2f}",
        "-" if item.spread is None else f"x{item.spread:.2f}",
    ]
    counts = [[tally.over_promised, tally.agrees, tally.exceeded] for tally in (item.isolated, item.e2e)]
    return [str(item.isolated.n), *ratios, *map(str, counts[0]), str(item.e2e.n), *map(str, counts[1])]


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


_NAMES = ("op", "limiter", "stage", "device", "kernel", "axis", "dtype")


def _count_names(rows: Sequence[Sequence[str]]) -> int:
    return sum(title in _NAMES for title in rows[0])


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    # ``table`` escapes the pipes.
    return report.table([[report.text(cell).replace("\\|", "|") or "-" for cell in row] for row in rows])


def calibrate(options: Namespace) -> int:
    """Print the proposed targets, and write them with ``--out``."""
    q = number(options.quantile, "--quantile", above=0)
    ledger = _read(options)
    proposals = propose(ledger.pairs, q)
    result = document(proposals, q)
    if options.json:
        sys.stdout.write(to_json({**result, "kept": [asdict(item) for item in proposals if item.target_eff is None]}))
    elif proposals:
        rows = [["device", "op", "axis", "dtype", "n", "prior", "observed", "proposed", "why"]]
        for item in proposals:
            numbers = [_short(item.prior), f"{item.observed:.3f}", "-" if item.target_eff is None else f"{item.target_eff:.3f}"]
            rows.append([item.device, item.op, item.axis, item.dtype, str(item.n), *numbers, item.why])
        options.output.table(rows, left=_count_names(rows))
    if not proposals:
        _say([f"{ledger.path}: no pair has a device, op, axis, dtype and a ratio to the roof, all of which a target needs"])
    if options.out:
        write_whole(options.out, to_json(result))
        _say([f"wrote {options.out}"])
    return 0
