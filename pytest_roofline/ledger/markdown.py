"""The section of a Markdown file that is the ledger: a heading and a pipe table, in bytes so that the rest stays as it is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .pair import NAMES, Pair

HEADING = "## Roofline ledger"
INTRODUCTION = (
    "Predicted against actual speedups, a line a pair; `roofline ledger show` sums them up. Ratios to the roof (`_pct` of\n"
    "prediction and achievement) are fractions, `e2e` figures percent. Lines may be added and corrected by hand."
)
_HEADER = "| " + " | ".join(NAMES) + " |"
_RULE = "|" + "---|" * len(NAMES)

_MARKS = "\\`*|<>[]&"
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|([^0-9A-Za-z\s]))", re.DOTALL)


class Unread(NamedTuple):
    """A line of the file that could not be read, and why; it stays in the file."""

    line: int
    why: str


class Found(NamedTuple):
    """What a file holds."""

    pairs: tuple[Pair, ...]
    unread: tuple[Unread, ...]


def escape(text: str) -> str:
    """``text`` as one cell: no mark of Markdown, no control character, and nothing at its ends that a reader would strip."""
    out = "".join(_escaped(ch) for ch in text)
    if out.startswith(" "):
        out = "\\x20" + out[1:]
    return out[:-1] + "\\x20" if out.endswith(" ") else out


def _escaped(ch: str) -> str:
    if ch in _MARKS:
        return "\\" + ch
    if ch.isprintable():
        return ch
    code = ord(ch)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def unescape(cell: str) -> str:
    """The text that ``escape`` was given; a backslash before a letter that means nothing stays."""
    return _ESCAPE.sub(lambda found: found[4] or chr(min(int(found[1] or found[2] or found[3], 16), 0x10FFFF)), cell)


def row(pair: Pair) -> str:
    """The line of one pair."""
    return "| " + " | ".join(escape(text) for text in pair.to_text().values()) + " |"


def append(data: bytes, pairs: Iterable[Pair]) -> bytes:
    """``data`` with ``pairs`` at the end of the ledger's table, which is made where there is none; all else as it was."""
    rows = [row(pair) for pair in pairs]
    if not rows:
        return data
    section = _section(data)
    newline = "\r\n" if b"\r\n" in data[:4096] else "\n"
    if section is None:
        at, lines = len(data), [HEADING, "", *INTRODUCTION.splitlines(), "", _HEADER, _RULE, *rows]
        gap = _gap(data, newline)
    else:
        table = _last_table(data, *section)
        if table is None:
            at = section[0] + len(data[section[0] : section[1]].rstrip())
            lines, gap = [_HEADER, _RULE, *rows], newline * 2
        else:
            at, lines, gap = table, rows, "" if data[:table].endswith(b"\n") else newline
    after = data[at:].lstrip(b"\r\n") if gap == newline * 2 and section else data[at:]
    text = gap + newline.join(lines) + newline
    if section and gap == newline * 2 and after:
        text += newline
    return data[:at] + text.encode("utf-8") + after


def _gap(data: bytes, newline: str) -> str:
    if not data:
        return ""
    return newline if data.endswith(b"\n") else newline * 2


#: A heading of our level or above, or a fence; a heading inside a fence is text. These begin with a line's end, which the
#: engine of ``re`` looks for as fast as memory is read; ``_section`` puts one before the first line.
_MARK = re.compile(rb"\n( {0,3})(#{1,2}(?=[ \t\r\n]|\Z)|`{3,}|~{3,})([^\r\n]*)")
_BLANK = re.compile(rb"\n[ \t]*\r?(?:\n|\Z)")
_TITLE = HEADING.lstrip("# ").encode()
_BOM = b"\xef\xbb\xbf"


def _section(data: bytes) -> tuple[int, int] | None:
    """Where the ledger's section begins, after its heading, and ends; the first of that name."""
    begin: int | None = None
    for start, end, mark, rest in _headings(data):
        if begin is not None:
            return begin, start
        if mark == b"##" and rest.rstrip(b"# \t") == _TITLE:
            begin = end
    return None if begin is None else (begin, len(data))


def _headings(data: bytes) -> Iterator[tuple[int, int, bytes, bytes]]:
    """Start, end, mark and text of each heading outside the fences; one that nothing closes is text, as half a fence is."""
    lines = b"\n" + (b"\n" * len(_BOM) + data[len(_BOM) :] if data.startswith(_BOM) else data)
    marks = list(_MARK.finditer(lines))
    at = 0
    while at < len(marks):
        found, at = marks[at], at + 1
        mark, rest = found[2], found[3].strip()
        if mark.startswith(b"#"):
            yield found.start(1) - 1, found.end() - 1, mark, rest
        else:
            closed = (i for i in range(at, len(marks)) if marks[i][2].startswith(mark) and not marks[i][3].strip())
            at = next(closed, at - 1) + 1


_OURS = re.compile(rb"\n[ \t]*" + re.escape(_HEADER.encode()) + rb"[ \t]*\r?\n[ \t]*" + re.escape(_RULE.encode()))


def _last_table(data: bytes, begin: int, end: int) -> int | None:
    """Where the last table with just our columns ends: at the first blank line under it, or with the section."""
    found = list(_OURS.finditer(data, begin, end))
    if not found:
        return None
    blank = _BLANK.search(data, found[-1].end(), end)
    return end if blank is None else blank.start() + 1


_CELLS = re.compile(r"(?:[^\\|]|\\.|\\\Z)*", re.DOTALL)
_DASHES = re.compile(r":?-+:?")


def _cells(line: str) -> list[str]:
    """The cells of one line of a pipe table, still escaped."""
    text = line.strip()
    cells, at = [], 1 if text.startswith("|") else 0
    while at <= len(text):
        found = _CELLS.match(text, at)
        assert found is not None
        cells.append(found[0].strip())
        at = found.end() + 1
    if len(cells) > 1 and not cells[-1] and text.endswith("|"):
        cells.pop()
    return cells


def parse(data: bytes) -> Found:
    """The pairs of the ledger's section, and its lines that could not be read.

    Every table of the section with a column ``kernel`` is read, by the names of its columns; other columns are left alone.
    """
    section = _section(data)
    if section is None:
        return Found((), ())
    begin, end = section
    number = data.count(b"\n", 0, begin) + 1
    pairs: list[Pair] = []
    unread: list[Unread] = []
    columns: list[str] | None = None
    before: list[str] = []
    for at, raw in enumerate(data[begin:end].split(b"\n"), number):
        if not raw.strip():
            columns, before = None, []
            continue
        try:
            line = raw.rstrip(b"\r").decode("utf-8")
        except UnicodeDecodeError:
            if columns is not None or b"|" in raw:
                unread.append(Unread(at, "not UTF-8 text"))
            continue
        cells = _cells(line)
        if columns is None:
            if "kernel" in before and len(cells) == len(before) and all(_DASHES.fullmatch(cell) for cell in cells):
                columns = before
            before = cells
            continue
        if len(cells) != len(columns):
            unread.append(Unread(at, f"{len(cells)} cells, expected {len(columns)}"))
            continue
        try:
            pairs.append(Pair.from_text({name: unescape(cell) for name, cell in zip(columns, cells, strict=True)}))
        except ValueError as error:
            unread.append(Unread(at, str(error)))
    return Found(tuple(pairs), tuple(unread))
