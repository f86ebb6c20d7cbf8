"""The ledger's file: JSON lines, a line for each pair; and the tables that it imports, CSV and the Markdown of older ledgers.

A line is added under a lock and the file is replaced whole: several processes can append, and a kill leaves the old file or the
new one. Earlier versions kept the ledger in a Markdown file. Its pairs are read from there until the first append copies them.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock, Timeout

from roofline_engine.files import decode_text, read_bytes, read_text, write_whole
from roofline_engine.units import printable, short_repr

from .pair import Pair

OWN = Path(".roofline", "ledger.jsonl")
#: Where earlier versions kept the ledger.
MARKDOWN = (Path("knowledge", "backend_playbook.md"), Path(".roofline", "ledger.md"))
#: An append takes milliseconds: a process that holds the lock this long hangs.
_LOCK_S = 120.0
#: A line is some hundred bytes: a larger file is not a ledger.
_LARGEST = 1 << 28


class Unread(NamedTuple):
    """A line of a file that could not be read; it stays in the file."""

    line: int
    why: str


class Ledger(NamedTuple):
    """The content of a ledger."""

    path: Path  # the file that was read
    pairs: tuple[Pair, ...] = ()
    unread: tuple[Unread, ...] = ()


def locate(root: Path) -> Path:
    """Return the ledger of the project in ``root``: ``OWN``, or a Markdown ledger of an earlier version."""
    return next((path for path in (root / OWN, *(root / name for name in MARKDOWN)) if path.is_file()), root / OWN)


def lines_path(path: Path) -> Path:
    """Return the file with the lines of the ledger ``path``: next to a Markdown ledger, with the suffix ``.jsonl``."""
    return path.with_suffix(".jsonl") if path.suffix == ".md" else path


def read(path: Path) -> Ledger:
    """Return the ledger; empty where the file is missing.

    Raises:
        ValueError: if the file is not a ledger.
    """
    lines = lines_path(path)
    if lines != path and path.is_file() and not lines.exists():
        return read_markdown(path)
    pairs: list[Pair] = []
    unread: list[Unread] = []
    for number, line in enumerate(_bytes(lines).split(b"\n"), 1):
        if line.strip():
            try:
                pairs.append(Pair.from_json(json.loads(line.decode("utf-8-sig"))))
            except UnicodeDecodeError:
                unread.append(Unread(number, "not UTF-8 text"))
            except (json.JSONDecodeError, RecursionError) as error:
                unread.append(Unread(number, f"not JSON: {error}"))
            except ValueError as error:
                unread.append(Unread(number, str(error)))
    return Ledger(lines, tuple(pairs), tuple(unread))


def append(path: Path, pairs: Iterable[Pair], *, once: bool = False, say: Callable[[str], None] | None = None) -> int:
    """Add ``pairs`` to the ledger and return their number. A missing file is made, with its folder.

    Args:
        path: the ledger. For a Markdown ledger the lines go to the ``.jsonl`` file next to it, with the pairs in the Markdown.
        pairs: what to add.
        once: leave out pairs that are in the ledger, field by field.
        say: called with a line if the lines go to another file than ``path``.

    Raises:
        OSError: if the file cannot be written, is a folder or a symbolic link, or stays locked.
        ValueError: if the file is not a ledger.
    """
    added = list(pairs)
    if not added:
        return 0
    lines = lines_path(path)
    if say is not None and lines != path:
        say(f"{path}: a ledger is a file of JSON lines; the pairs go to {lines}")
    lines.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(f"{lines}.lock").acquire(timeout=_LOCK_S, poll_interval=0.005):
            content = before = _bytes(lines)
            if once or not before:
                known = read(path).pairs
                if once:
                    existing = set(known)
                    added = [pair for pair in dict.fromkeys(added) if pair not in existing]
                content = before or _lines(known)
            if added and content and not content.endswith(b"\n"):
                content += b"\n"
            content += _lines(added)
            if content != before:
                write_whole(str(lines), content)
    except Timeout as error:
        raise OSError(f"{printable(str(lines))}: locked by another process for {_LOCK_S:.0f} s") from error
    return len(added)


def _lines(pairs: Iterable[Pair]) -> bytes:
    return "".join(json.dumps(pair.to_json()) + "\n" for pair in pairs).encode()


def _bytes(path: Path) -> bytes:
    if not path.exists():
        return b""
    data = read_bytes(str(path), _LARGEST)
    if b"\0" in data:
        raise ValueError(f"{printable(str(path))}: not UTF-8 text, not a ledger")
    return data


# A CSV of predicted and measured speedups: a row for each kernel.

#: The field of a pair for a column of other tools. The names of a pair's fields are columns too; other columns are ignored.
COLUMNS = {
    "gfx": "device",
    "op_class": "op",
    "predicted_roofline_pct": "predicted_pct",
    "predicted_attainable": "attainable",
    "measured_iso": "measured",
}
#: Our names for the ops of such tables.
OPS = {"attention": "attn"}


def read_csv(path: Path) -> Ledger:
    """Return the pairs in a CSV.

    Raises:
        ValueError: if the file is not such a table.
    """
    label = printable(path.name)
    reader = csv.reader(io.StringIO(read_text(str(path), _LARGEST), newline=""), strict=True)
    pairs: list[Pair] = []
    unread: list[Unread] = []
    names: list[str] = []
    try:
        for cells in reader:
            if not names:
                names = _header(cells, label)
            elif any(cell.strip() for cell in cells):
                try:
                    pairs.append(_pair(names, [cell.strip() for cell in cells]))
                except ValueError as error:
                    unread.append(Unread(reader.line_num, str(error)))
    except csv.Error as error:
        raise ValueError(f"{label}: line {reader.line_num}: {printable(str(error))}") from None
    if not names:
        raise ValueError(f"{label}: empty, expected a header with a column kernel")
    return Ledger(path, tuple(pairs), tuple(unread))


def _header(cells: list[str], label: str) -> list[str]:
    names = [COLUMNS.get(cell.strip(), cell.strip()) for cell in cells]
    for name in ("kernel", "attainable", "measured"):
        if name not in names:
            column = next((column for column, field in COLUMNS.items() if field == name), name)
            raise ValueError(f"{label}: no column {column!r} in its first line")
    twice = [name for name in names if name and names.count(name) > 1]
    if twice:
        raise ValueError(f"{label}: two columns for {short_repr(twice[0])}")
    return names


def _pair(names: list[str], cells: list[str]) -> Pair:
    if len(cells) != len(names):
        raise ValueError(f"{len(cells)} cells, expected {len(names)}")
    values = dict(zip(names, cells))
    return Pair.from_text({**values, "op": OPS.get(values.get("op", ""), values.get("op", ""))})


# The Markdown of earlier versions: the tables under a heading.

_HEADING = re.compile(r"^ {0,3}##[ \t]+Roofline ledger[# \t]*$", re.MULTILINE)
_NEXT_HEADING = re.compile(r"^ {0,3}#{1,2}[ \t]", re.MULTILINE)
#: A heading inside a fence is text; an open fence that nothing closes is text too.
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})[^\n]*\n(?:.*\n)*? {0,3}\1[`~]*[ \t]*$", re.MULTILINE)
_CELL = re.compile(r"(?:[^\\|]|\\.|\\\Z)*", re.DOTALL)
_DASHES = re.compile(r":?-+:?")
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|([^0-9A-Za-z\s]))")


def read_markdown(path: Path) -> Ledger:
    """Return the pairs in the Markdown ledger of an earlier version: of every table with a column ``kernel``.

    Raises:
        ValueError: if the file is not text.
    """
    data = _bytes(path)
    try:
        text = decode_text(data, printable(path.name))
    except ValueError:  # a playbook in another encoding; the ledger's section is UTF-8
        text = data.decode("utf-8", "replace")
    text = _FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), text.replace("\r\n", "\n"))
    heading = _HEADING.search(text)
    if heading is None:
        return Ledger(path)
    end = _NEXT_HEADING.search(text, heading.end())
    pairs: list[Pair] = []
    unread: list[Unread] = []
    columns: list[str] | None = None
    before: list[str] = []
    first = text.count("\n", 0, heading.end()) + 1
    for number, line in enumerate(text[heading.end() : end.start() if end else None].split("\n"), first):
        cells = list(_cells(line))
        if not line.strip():
            columns, before = None, []
        elif columns is None:
            if "kernel" in before and len(cells) == len(before) and all(map(_DASHES.fullmatch, cells)):
                columns = before
            before = cells
        elif len(cells) != len(columns):
            unread.append(Unread(number, f"{len(cells)} cells, expected {len(columns)}"))
        else:
            try:
                pairs.append(Pair.from_text(dict(zip(columns, map(_unescape, cells)))))
            except ValueError as error:
                unread.append(Unread(number, str(error)))
    return Ledger(path, tuple(pairs), tuple(unread))


def _cells(line: str) -> Iterator[str]:
    """Yield the cells of a line of a table, escaped."""
    text = line.strip().removeprefix("|")
    at = 0
    while at < len(text):
        cell = _CELL.match(text, at)
        assert cell is not None
        yield cell[0].strip()
        at = cell.end() + 1


def _unescape(cell: str) -> str:
    return _ESCAPE.sub(lambda match: match[4] or chr(min(int(match[1] or match[2] or match[3], 16), 0x10FFFF)), cell)
