"""Tables of predicted and measured speedups as CSV: a line a kernel, the columns below, others left alone."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import NamedTuple

from roofline_engine.units import printable

from .pair import Pair

#: Column of the CSV to field of a pair; a pair's own field names are columns too.
COLUMNS = {
    "gfx": "device",
    "op_class": "op",
    "predicted_roofline_pct": "predicted_pct",
    "predicted_attainable": "attainable",
    "measured_iso": "measured",
}
#: Words of such tables for what is called otherwise here.
OPS = {"attention": "attn"}
_LARGEST = 1 << 26


class Table(NamedTuple):
    """The pairs of a CSV, and a line for each of its rows that could not be read."""

    pairs: tuple[Pair, ...]
    problems: tuple[str, ...]


def read(path: Path) -> Table:
    """The pairs in ``path``.

    Raises:
        ValueError: for a file that is no such table.
    """
    label = printable(path.name)
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError(f"{label}: larger than {_LARGEST >> 20} MiB")
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ValueError(f"{label}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{label}: not UTF-8 text (byte {error.start})") from None
    return parse(text, label)


def parse(text: str, label: str) -> Table:
    """The pairs in the text of a CSV; ``label`` names it in the problems.

    Raises:
        ValueError: when its header is not one of such a table.
    """
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    pairs: list[Pair] = []
    problems: list[str] = []
    names: list[str] = []
    try:
        for cells in reader:
            if not names:
                names = _header(cells, label)
            elif any(cell.strip() for cell in cells):
                line = reader.line_num
                try:
                    pairs.append(_pair(names, cells))
                except ValueError as error:
                    problems.append(printable(f"{label}:{line}: {error}"))
    except csv.Error as error:
        raise ValueError(f"{label}: line {reader.line_num}: {printable(str(error))}") from None
    if not names:
        raise ValueError(f"{label}: empty, expected a header with a column kernel")
    return Table(tuple(pairs), tuple(problems))


def _header(cells: list[str], label: str) -> list[str]:
    names = [COLUMNS.get(cell.strip(), cell.strip()) for cell in cells]
    for name in ("kernel", "attainable", "measured"):
        if name not in names:
            own = next((column for column, field in COLUMNS.items() if field == name), name)
            raise ValueError(f"{label}: no column {own!r} in its first line")
    twice = [name for name in names if name and names.count(name) > 1]
    if twice:
        raise ValueError(f"{label}: two columns for {printable(twice[0][:60])!r}")
    return names


def _pair(names: list[str], cells: list[str]) -> Pair:
    if len(cells) != len(names):
        raise ValueError(f"{len(cells)} cells, expected {len(names)}")
    values = {name: cell.strip() for name, cell in zip(names, cells, strict=True)}
    return Pair.from_text({**values, "op": OPS.get(values.get("op", ""), values.get("op", ""))})
