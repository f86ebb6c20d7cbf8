"""Scripts that are tests: a module that reads the command line as it is imported, and what ``roofline_scripts`` lists.

Each is one item: run as ``python FILE`` runs it, and a row per record of what it wrote. Without a ``csv=`` of its own it stands
in a fresh folder, so that what it writes by a relative name is found and litters nothing.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import shlex
from collections.abc import Iterable, Iterator
from glob import escape, glob
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ..declare import Declared, matches
from ..recorded import of_records
from ..records.registry import choose
from ..records.row import RecordRow
from ..records.source import SAMPLE, RefusedError, open_source
from ..testcase import Case
from . import child
from .items import ChildFile, ChildItem, scratch

#: Where a script's files land: a fresh folder, in which it also stands.
OUT = "{out}"
#: More rows of one script are a file for ``roofline check``.
MOST = 10_000
NOTHING = "it ran, and wrote no figures of a format that is known here (roofline check list)"


class Listed(NamedTuple):
    """A line of ``roofline_scripts``. pattern: of the files that it writes; arguments: of its command line."""

    glob: str
    pattern: str | None = None
    arguments: tuple[str, ...] = ()


def read_listed(lines: Iterable[str]) -> tuple[Listed, ...]:
    """``GLOB[::csv=PATTERN][::args=ARGUMENTS]`` each.

    Raises:
        pytest.UsageError: for a line that cannot be meant.
    """
    found = []
    for line in lines:
        name, *parts = [part.strip() for part in str(line).split("::")]
        values = dict(part.split("=", 1) for part in parts if "=" in part)
        if not name or len(values) != len(parts) or not values.keys() <= {"csv", "args"} or "" in values.values():
            raise pytest.UsageError(f"roofline: roofline_scripts: {line!r}, expected GLOB[::csv=PATTERN][::args=ARGUMENTS]")
        try:
            arguments = tuple(shlex.split(values.get("args", "")))
        except ValueError as error:
            raise pytest.UsageError(f"roofline: roofline_scripts: {line!r}: args: {error}") from None
        found.append(Listed(name, values.get("csv"), arguments))
    return tuple(found)


def find(listed: Iterable[Listed], path: Path, root: Path) -> Listed | None:
    """The first line that a file fits, by its path under the root."""
    relative = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()
    return next((one for one in listed if matches(one.glob, relative)), None)


class Script(ChildFile):
    """One script."""

    def __init__(self, *, listed: Listed | None = None, **of_pytest: Any) -> None:
        super().__init__(**of_pytest)
        self.listed = listed or Listed("")

    def collect(self) -> Iterator[ChildItem]:
        yield ScriptItem.from_parent(self, name=self.path.stem)


class ScriptItem(ChildItem):
    """The run of one script."""

    def runtest(self) -> None:
        script = self.parent
        assert isinstance(script, Script)
        _, pattern, arguments = script.listed
        self.roofline_cases = []
        with scratch() as folder:
            out = folder / "out"
            out.mkdir()
            aside = pattern is not None and OUT not in pattern  # it writes where it always does
            cwd = self.config.rootpath if aside else out
            named = str(Path(escape(str(cwd))) / (pattern or f"{OUT}/**").replace(OUT, escape(str(out))))
            before = _files(named) if aside else {}
            ended = script.run(self, folder, arguments=[word.replace(OUT, str(out)) for word in arguments], cwd=cwd)
            if ended.problem:
                pytest.fail(ended.told(), pytrace=False)
            written = [path for path, state in _files(named).items() if before.get(path) != state]
            records, unread = _records(written, asked=pattern is not None)
            if not records:
                records, more = _printed(ended.out)
                unread += more
        self.roofline_cases = _as_cases(records, unread)


def _as_cases(records: list[RecordRow], unread: list[str]) -> list[Case]:
    if not records:
        return [Case(nodeid="", test="", declared=Declared(), problem="; ".join(unread) or NOTHING)]
    cases = of_records(records[:MOST], {}, "script")
    left = [f"more than {MOST} rows, these are the first: roofline check reads the file"] if len(records) > MOST else []
    notes = [*unread, *left]
    if notes:
        first = cases[0]
        said = dataclasses.replace(first.declared, notes=(*first.declared.notes, *notes))
        cases[0] = dataclasses.replace(first, declared=said)
    return cases


def _files(pattern: str) -> dict[Path, tuple[int, int]]:
    """The files of a pattern with what tells a new content from an old one."""
    found = {}
    for name in sorted(glob(pattern, recursive=True)):
        path = Path(name)
        if path.is_file():
            state = path.stat()
            found[path] = state.st_mtime_ns, state.st_size
    return found


def _records(paths: Iterable[Path], asked: bool) -> tuple[list[RecordRow], list[str]]:
    """The rows of files, and what could not be read. asked: somebody named these files, so that one of no format is told."""
    records: list[RecordRow] = []
    unread = []
    for path in paths:
        try:
            with open_source(path) as source:
                adapter = choose(source.start(SAMPLE), path.suffix)
                if adapter is not None:
                    records += itertools.islice(adapter.read(source), MOST + 1 - len(records))
                elif asked:
                    unread.append(f"{source.label}: of no format that is known here")
        except RefusedError as error:
            unread.append(str(error))
    return records, unread


def _printed(out: Path) -> tuple[list[RecordRow], list[str]]:
    """The rows of what a script printed: marked lines, Markdown tables, else the whole as one format."""
    parts = []
    for at, lines in enumerate(_parts(out), 1):
        part = out.with_name(f"stdout part {at}")
        part.write_text("\n".join(lines), encoding="utf-8")
        parts.append(part)
    return _records(parts or [child.cleaned(out)], asked=False)


#: Lines that some harness prints for others to find: GEAK's, POPCORN's.
_MARKED = re.compile(r"\s*(?:GEAK_|RESULT (?:PASS|FAIL)\b|(?:benchmark|test)\.\d+\.\w+:|check: )")
#: Of marked lines and of the rows of a table no more is held.
_MOST_LINES = 100_000


def _parts(out: Path) -> Iterator[list[str]]:
    """The marked lines; then each run of lines that open with a pipe: a header, its rule, rows."""
    marked: list[str] = []
    table: list[str] = []
    tables = []
    for line in itertools.chain(child.lines(out, b"|GRbtc"), [""]):
        if line.lstrip().startswith("|"):
            if len(table) < _MOST_LINES:
                table.append(line)
            continue
        if len(table) > 2:
            tables.append(table)
        table = []
        if _MARKED.match(line) and len(marked) < _MOST_LINES:
            marked.append(line)
    if marked:
        yield marked
    yield from tables
