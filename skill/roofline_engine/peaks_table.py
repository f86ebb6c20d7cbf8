"""Read ``peaks.md``: fenced blocks, one ``key: value | field | [sources]`` a line, each parsed when it is first used.

The top of ``peaks.md`` describes the grammar.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from .files import read_text
from .units import number

_WORDS_BEFORE = ("NVIDIA", "AMD", "INTEL", "GOOGLE", "AWS", "APPLE", "TESLA", "GEFORCE", "INSTINCT", "RADEON")
_WORDS_AFTER = ("GRAPHICS", "OAM", "VF")
#: The beginnings of the keys of FLOP/s figures; each key is a compute axis, such as matrix.bf16.
ENGINES = ("matrix.", "vector.")


class Line(NamedTuple):
    """One line of a block: ``key: value | field | [a, b]``."""

    number: int  # in the file
    key: str
    value: str
    fields: tuple[str, ...]
    sources: tuple[str, ...]

    def field(self, name: str) -> str | None:
        """Return VALUE of the field ``name VALUE``, or None."""
        for item in self.fields:
            head, _, rest = item.partition(" ")
            if head == name:
                return rest.strip()
        return None


class Block:
    """One fenced block: a product, the default of an architecture, or the rates of an architecture per clock and unit."""

    def __init__(self, path: str, start: int, text: str) -> None:
        self.path, self.start, self._text = path, start, text
        self.kind, _, rest = text.split("\n", 1)[0].partition(":")
        self.id = rest.strip()
        self._lines: list[Line] | None = None

    @property
    def lines(self) -> list[Line]:
        """The lines without comments."""
        if self._lines is None:
            self._lines = [
                _line(self.start + offset, raw)
                for offset, raw in enumerate(self._text.split("\n"))
                if raw.strip() and not raw.lstrip().startswith("#")
            ]
        return self._lines

    def line(self, key: str) -> Line | None:
        """Return the first line with this key, without parsing the others: a name is looked up in every block."""
        at = self._text.find(f"\n{key}:") + 1
        if at == 0:
            return None
        end = self._text.find("\n", at)
        return _line(self.start + self._text.count("\n", 0, at), self._text[at : end if end >= 0 else None])

    def known(self, key: str) -> Line | None:
        """Return the line of a key, None where it is missing or unknown."""
        line = self.line(key)
        return None if line is None or line.value == "unknown" else line

    def text(self, key: str) -> str | None:
        """Return the value of a key, None where it is unknown."""
        line = self.known(key)
        return None if line is None or line.value in ("", "none") else line.value

    def figures(self, engines: str | tuple[str, ...] = ENGINES) -> Iterable[tuple[str, Line]]:
        """Return (dtype, line) of each known FLOP/s figure of the engines."""
        for line in self.lines:
            if line.key.startswith(engines) and line.value != "unknown":
                yield line.key.partition(".")[2], line

    def value(self, line: Line, text: str | None = None) -> float:
        """Return a figure of this block; ValueError names the file and the line."""
        what = f"{self.path}:{line.number}: {line.key} of {self.id}"
        return float(number(line.value if text is None else text, what, above=0))

    def maybe(self, key: str) -> float | None:
        """Return the figure of a key, None where it is unknown."""
        line = self.known(key)
        return None if line is None or line.value == "none" else self.value(line)

    def limit(self, line: Line, name: str) -> float | None:
        """Return the figure in the field ``name VALUE`` of a line, None where it is unknown."""
        text = line.field(name)
        return self.value(line, text) if text and text != "unknown" else None


def _line(at: int, raw: str) -> Line:
    key, _, rest = raw.partition(":")
    parts = [part.strip() for part in rest.split(" | ")]
    sources: tuple[str, ...] = ()
    if len(parts) > 1 and parts[-1].startswith("["):
        sources = tuple(item.strip() for item in parts.pop().strip("[]").split(",") if item.strip())
    return Line(at, key.strip(), parts[0], tuple(parts[1:]), sources)


class Table:
    """A peak table."""

    def __init__(self, text: str, path: str = "peaks.md", *, shipped: bool = True) -> None:
        self.path, self.shipped, self.text = path, shipped, text
        self.blocks: list[Block] = []
        at = 1
        for index, chunk in enumerate(text.split("\n```\n")):
            if index % 2:  # chunks alternate: prose, block, prose, ...
                self.blocks.append(Block(path, at, chunk))
            at += chunk.count("\n") + 2
        self.products = {block.id: block for block in self.blocks if block.kind == "product"}
        self.defaults = {block.id: block for block in self.blocks if block.kind == "default"}
        self.rates = {block.id: block for block in self.blocks if block.kind == "rates"}

    def find(self, name: str) -> list[Block]:
        """Return the products with this whole name (normalized) or this id."""
        if name in self.products:
            return [self.products[name]]
        key = normalize_name(name)
        if not key:
            return []
        word = max(key.split(), key=len)  # normalizing keeps words, so most blocks need no closer look
        return [block for block in self.products.values() if key in names_of(block, word)]

    def suggest(self, name: str) -> str:
        """Return a question about a misspelled device, such as ``is it h100-sxm or h100-pcie? ``; empty without a near name."""
        from difflib import get_close_matches  # only a mistake needs it

        key = normalize_name(name)
        products = [product for product in self.products if key and key in normalize_name(product)]
        products = products or get_close_matches(name.lower(), list(self.products), n=4, cutoff=0.8)
        return f"is it {' or '.join(products[:4])}? " if products else ""

    def of_arch(self, gfx: str) -> list[Block]:
        """Return the products of an architecture."""
        return [block for block in self.products.values() if block.text("gfx") == gfx]


def load(path: str, *, shipped: bool = True) -> Table:
    """Read a peak table. Raises ValueError when it cannot be read or holds no product."""
    table = Table(read_text(path), path, shipped=shipped)
    if not table.products:
        raise ValueError(f"{path}: no fenced block starts with 'product:'")
    return table


def locate() -> str | None:
    """Return the path of the shipped ``peaks.md``: above ``skill/``, or in the bundle of the installed package."""
    skill = skill_dir()
    return os.path.join(skill, "peaks.md") if skill else None


def skill_dir() -> str | None:
    """Return the folder of the skill, which has SKILL.md, peaks.md and skill/; None where no such folder has peaks.md."""
    parent = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    bundle = os.path.join(parent, "pytest_roofline", ".agents", "skills", "pytest-roofline")
    folders = (os.path.dirname(parent), bundle)
    return next((folder for folder in folders if os.path.isfile(os.path.join(folder, "peaks.md"))), None)


def skill_version() -> str:
    """Return the version in SKILL.md, which is that of the package."""
    folder = skill_dir()
    if folder is None:
        return "unknown: SKILL.md was not found"
    with open(os.path.join(folder, "SKILL.md"), encoding="utf-8") as stream:
        return next((line.split('"')[1] for line in stream if line.startswith('  version: "')), "unknown")


def normalize_name(name: str) -> str:
    """Return a device name in upper case without vendor words and marks; '-' and '_' are spaces."""
    for mark in ("(R)", "(TM)", "(r)", "(tm)"):
        name = name.replace(mark, " ")
    words = name.upper().replace("-", " ").replace("_", " ").split()
    while words and words[0] in _WORDS_BEFORE:
        words.pop(0)
    while words and words[-1] in _WORDS_AFTER:
        words.pop()
    return " ".join(words)


def names_of(block: Block, word: str = "") -> set[str]:
    """Return the normalized names of a block where one of them can contain ``word``."""
    line = block.line("device_names")
    return {normalize_name(item) for item in line.value.split(";")} if line and word in line.value.upper() else set()


def unit_counts(block: Block) -> tuple[int, ...]:
    """Return the unit count, and the count that the driver reports (RDNA: work-group processors, half the CUs)."""
    line = block.line("units")
    counts = (line.value.split(" ")[0], line.field("reported") or "") if line else ("", "")
    if not counts[0].isdigit():
        return ()
    return tuple(int(count) for count in counts if count.isdigit())
