"""Scripts as tests: modules that read the command line when they are imported, and the files in ``roofline_scripts``.

A script is one item. It runs as ``python FILE`` does, and each record that it writes or prints is a row. Without ``csv=`` it
runs in a temporary folder, where files that it writes by relative names are found.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterable, Iterator
from glob import escape, glob
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ..declare import Declaration, matches
from ..records.cases import cases_of_records
from ..records.formats import choose
from ..records.source import RecordRow, RefusedError, open_source
from ..row import Refusal
from ..testcase import Case
from . import child
from .items import ChildFile, ChildItem, scratch

#: Stands for the temporary folder of a script's files.
OUT = "{out}"
#: Files that hold records, by their suffixes: one in an unknown format is reported.
_TABLES = (".csv", ".tsv", ".jsonl")
#: The most rows of one script; ``roofline check`` reads larger files.
MOST = 10_000
NO_RECORDS = "it ran and wrote no records in a known format (see roofline check list)"


class ScriptEntry(NamedTuple):
    """A line of ``roofline_scripts``."""

    glob: str  # of the scripts
    pattern: str | None = None  # of the files that they write
    arguments: tuple[str, ...] = ()  # of their command line


def read_scripts(lines: Iterable[str]) -> tuple[ScriptEntry, ...]:
    """Parse lines of ``GLOB[::csv=PATTERN][::args=ARGUMENTS]``.

    Raises:
        pytest.UsageError: for any other line.
    """
    entries = []
    for line in lines:
        name, *parts = [part.strip() for part in str(line).split("::")]
        values = dict(part.split("=", 1) for part in parts if "=" in part)
        if not name or len(values) != len(parts) or not values.keys() <= {"csv", "args"} or "" in values.values():
            raise pytest.UsageError(f"roofline: roofline_scripts: {line!r}, expected GLOB[::csv=PATTERN][::args=ARGUMENTS]")
        try:
            arguments = tuple(shlex.split(values.get("args", "")))
        except ValueError as error:
            raise pytest.UsageError(f"roofline: roofline_scripts: {line!r}: args: {error}") from None
        entries.append(ScriptEntry(name, values.get("csv"), arguments))
    return tuple(entries)


def find_entry(entries: Iterable[ScriptEntry], path: Path, root: Path) -> ScriptEntry | None:
    """Return the first line whose glob matches the file's path under the root."""
    relative = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()
    return next((one for one in entries if matches(one.glob, relative)), None)


class Script(ChildFile):
    """The file of one script."""

    def __init__(self, *, entry: ScriptEntry | None = None, **of_pytest: Any) -> None:
        super().__init__(**of_pytest)
        self.entry = entry or ScriptEntry("")

    def collect(self) -> Iterator[ChildItem]:
        yield ScriptItem.from_parent(self, name=self.path.stem)


class ScriptItem(ChildItem):
    """The run of one script."""

    def runtest(self) -> None:
        script = self.parent
        assert isinstance(script, Script)
        _, pattern, arguments = script.entry
        self.roofline_cases = []
        with scratch() as folder:
            out = folder / "out"
            out.mkdir()
            in_root = pattern is not None and OUT not in pattern  # it writes its files below the root, not into OUT
            cwd = self.config.rootpath if in_root else out
            files = "" if pattern is None else str(Path(escape(str(cwd))) / pattern.replace(OUT, escape(str(out))))
            before = _files(glob(files, recursive=True)) if in_root else {}
            child_exit = script.run(self, folder, [word.replace(OUT, str(out)) for word in arguments], cwd=cwd)
            if child_exit.problem:
                pytest.fail(child_exit.message(), pytrace=False)
            names = glob(files, recursive=True) if files else map(str, out.rglob("*"))  # hidden files, too
            written = [path for path, state in _files(names).items() if before.get(path) != state]
            records, unread = _records(written, report_unknown=pattern is not None)
            if not records:
                records, more = _printed(child_exit.out)
                unread += more
        self.roofline_cases = _as_cases(records, unread)


def _as_cases(records: list[RecordRow], unread: list[str]) -> list[Case]:
    if not records:
        return [_refused("", "; ".join(unread) or NO_RECORDS)]
    cases = cases_of_records(records[:MOST], {}, "script")
    cases += [_refused(f"unread {at}", problem) for at, problem in enumerate(unread, 1)]
    if len(records) > MOST:
        cases.append(_refused("further rows", f"shows the first {MOST} rows; roofline check reads all of the file"))
    return cases


def _refused(nodeid: str, reason: str) -> Case:
    """Return the case of what a script wrote and cannot be read, so that a gate counts it."""
    refusal = Refusal(reason, "row")
    return Case(nodeid=nodeid, test="", declaration=Declaration(), problem=reason, refusal=refusal)


def _files(names: Iterable[str]) -> dict[Path, tuple[int, int]]:
    """Return the files among some paths, each with a state that changes when the file is written."""
    states = {}
    for name in sorted(names):
        path = Path(name)
        if path.is_file():
            status = path.stat()
            states[path] = status.st_mtime_ns, status.st_size
    return states


def _records(paths: Iterable[Path], report_unknown: bool) -> tuple[list[RecordRow], list[str]]:
    """Return the rows of files, and a line for each unreadable file.

    report_unknown: whether a file in an unknown format gets a line as well.
    """
    records: list[RecordRow] = []
    unread = []
    for path in paths:
        try:
            with open_source(path) as source:
                adapter = choose(source.sample())
                if adapter is not None:
                    records += itertools.islice(adapter.read(source), MOST + 1 - len(records))
                elif report_unknown or path.suffix in _TABLES:
                    unread.append(f"{source.label}: not in a known format (see roofline check list)")
        except RefusedError as error:
            unread.append(str(error))
    return records, unread


def _printed(out: Path) -> tuple[list[RecordRow], list[str]]:
    """Return the rows of a script's stdout: its marked lines and Markdown tables, else all of it as one format."""
    parts = []
    for at, lines in enumerate(_parts(out), 1):
        part = out.with_name(f"stdout part {at}")
        part.write_text("\n".join(lines), encoding="utf-8")
        parts.append(part)
    return _records(parts or [child.cleaned(out)], report_unknown=False)


#: Lines that a harness prints for other programs: GEAK's and POPCORN's.
_MARKED = re.compile(r"\s*(?:GEAK_|RESULT (?:PASS|FAIL)\b|(?:benchmark|test)\.\d+\.\w+:|check: )")
#: The most marked lines, and the most lines of one table, that are kept.
_MOST_LINES = 100_000


def _parts(out: Path) -> Iterator[list[str]]:
    """Yield the marked lines; then each run of lines that open with a pipe: a header, a rule, rows."""
    marked: list[str] = []
    table: list[str] = []
    tables = []
    for line in itertools.chain(child.lines(out), [""]):
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
