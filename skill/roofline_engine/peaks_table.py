"""``peaks.md`` as a table: fenced blocks, one ``key: value | field | [sources]`` a line, parsed as far as asked for."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from .units import number

_WORDS_BEFORE = ("NVIDIA", "AMD", "INTEL", "GOOGLE", "AWS", "APPLE", "TESLA", "GEFORCE", "INSTINCT", "RADEON")
_WORDS_AFTER = ("GRAPHICS", "OAM", "VF")


class Line(NamedTuple):
    """One line of a block: ``key: value | field | [a, b]``."""

    number: int
    key: str
    value: str
    fields: tuple[str, ...]
    sources: tuple[str, ...]

    def named(self, name: str) -> str | None:
        """The field ``name VALUE``, or None."""
        for item in self.fields:
            head, _, rest = item.partition(" ")
            if head == name:
                return rest.strip()
        return None


class Block:
    """One fenced block: a product, an architecture's default, or an architecture's rates per clock and unit."""

    def __init__(self, path: str, start: int, text: str) -> None:
        self.path, self.start, self._text = path, start, text
        self.kind, _, rest = text.split("\n", 1)[0].partition(":")
        self.id = rest.strip()
        self._lines: list[Line] | None = None

    @property
    def lines(self) -> list[Line]:
        if self._lines is None:
            self._lines = [
                _line(self.start + offset, raw)
                for offset, raw in enumerate(self._text.split("\n"))
                if raw.strip() and not raw.lstrip().startswith("#")
            ]
        return self._lines

    def line(self, key: str) -> Line | None:
        """The first line of this key, found without parsing the others: a name is looked up in every block."""
        at = self._text.find(f"\n{key}:") + 1
        if at == 0:
            return None
        end = self._text.find("\n", at)
        return _line(self.start + self._text.count("\n", 0, at), self._text[at : end if end >= 0 else None])

    def text(self, key: str) -> str | None:
        found = self.line(key)
        return None if found is None or found.value in ("", "unknown", "none") else found.value

    def figures(self, prefix: str) -> Iterable[tuple[str, Line]]:
        for item in self.lines:
            if item.key.startswith(prefix) and item.value != "unknown":
                yield item.key[len(prefix) :], item

    def value(self, line: Line, text: str | None = None) -> float:
        """A figure of this block; ValueError names the file and the line."""
        what = f"{self.path}:{line.number}: {line.key} of {self.id}"
        return float(number(line.value if text is None else text, what, above=0))

    def maybe(self, key: str) -> float | None:
        found = self.line(key)
        return None if found is None or found.value in ("unknown", "none") else self.value(found)


def _line(at: int, raw: str) -> Line:
    key, _, rest = raw.partition(":")
    parts = [part.strip() for part in rest.split(" | ")]
    sources: tuple[str, ...] = ()
    if len(parts) > 1 and parts[-1].startswith("["):
        sources = tuple(item.strip() for item in parts.pop().strip("[]").split(",") if item.strip())
    return Line(at, key.strip(), parts[0], tuple(parts[1:]), sources)


class Table:
    """``peaks.md``, parsed as far as it is asked for."""

    def __init__(self, text: str, path: str = "peaks.md", *, shipped: bool = True) -> None:
        self.path, self.shipped, self.text = path, shipped, text
        self.blocks: list[Block] = []
        at = 1
        for index, chunk in enumerate(text.split("\n```\n")):
            # Chunks alternate: prose, block, prose, ...
            if index % 2:
                self.blocks.append(Block(path, at, chunk))
            at += chunk.count("\n") + 2
        self.products = {block.id: block for block in self.blocks if block.kind == "product"}
        self.defaults = {block.id: block for block in self.blocks if block.kind == "default"}
        self.rates = {block.id: block for block in self.blocks if block.kind == "rates"}

    def named(self, name: str) -> list[Block]:
        """The products that carry this whole name (normalised) or this id."""
        if name in self.products:
            return [self.products[name]]
        wanted = normalize_name(name)
        if not wanted:
            return []
        word = max(wanted.split(), key=len)  # normalising keeps words, so most blocks need no closer look
        return [block for block in self.products.values() if wanted in _names(block, word)]

    def near(self, name: str) -> str:
        """A question for whoever misspelt a device, such as ``is it h100-sxm or h100-pcie? ``; empty where nothing is near."""
        from difflib import get_close_matches  # for a mistake alone

        wanted = normalize_name(name)
        found = [known for known in self.products if wanted and wanted in normalize_name(known)]
        found = found or get_close_matches(name.lower(), list(self.products), n=4, cutoff=0.8)
        return f"is it {' or '.join(found[:4])}? " if found else ""

    def of_arch(self, gfx: str) -> list[Block]:
        return [block for block in self.products.values() if block.text("gfx") == gfx]


def load(path: str, *, shipped: bool = True) -> Table:
    """Read a peak table. Raises OSError when it cannot be read and ValueError when it holds no product."""
    with open(path, encoding="utf-8") as handle:
        table = Table(handle.read(), path, shipped=shipped)
    if not table.products:
        raise ValueError(f"{path}: no fenced block starts with 'product:'")
    return table


def locate() -> str | None:
    """The shipped ``peaks.md``: above ``skill/`` in a clone or a copied skill, or in the installed package's bundle."""
    skill = skill_dir()
    return os.path.join(skill, "peaks.md") if skill else None


def skill_dir() -> str | None:
    """The folder that holds SKILL.md, peaks.md and skill/, or the nearest thing to it that has peaks.md."""
    engine = os.path.dirname(os.path.abspath(__file__))
    beside = os.path.dirname(engine)
    for folder in (
        os.path.dirname(beside),
        os.path.join(beside, "pytest_roofline", ".agents", "skills", "pytest-roofline"),
    ):
        if os.path.isfile(os.path.join(folder, "peaks.md")):
            return folder
    return None


def normalize_name(name: str) -> str:
    """A device name without what never tells two products apart; '-' and '_' read as spaces, case folded."""
    for mark in ("(R)", "(TM)", "(r)", "(tm)"):
        name = name.replace(mark, " ")
    words = name.upper().replace("-", " ").replace("_", " ").split()
    while words and words[0] in _WORDS_BEFORE:
        words.pop(0)
    while words and words[-1] in _WORDS_AFTER:
        words.pop()
    return " ".join(words)


def _names(block: Block, word: str) -> set[str]:
    """The normalised names of a block, if one of them can hold ``word``."""
    listed = block.line("device_names")
    return {normalize_name(item) for item in listed.value.split(";")} if listed and word in listed.value.upper() else set()


def unit_counts(block: Block) -> tuple[int, ...]:
    """The unit count and the count the driver reports (RDNA reports work-group processors, half the CUs)."""
    line = block.line("units")
    if line is None or line.value == "unknown":
        return ()
    first, reported = line.value.split(" ")[0], line.named("reported") or ""
    if not first.isdigit():
        return ()
    return (int(first), int(reported)) if reported.isdigit() else (int(first),)
