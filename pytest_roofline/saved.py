"""Saved runs: a folder with one report for each run, and an index of them that loads a thousand runs in about a second.

A saved run is a JSON report with ``run``: its number, name, commit, branch and machine. So it is a baseline, and
``roofline plot`` draws it. ``index.sqlite`` holds what a history needs of each file. A missing or stale index is rebuilt.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import re
import sqlite3
import subprocess
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock, Timeout

from roofline_engine.check import CONTENDED
from roofline_engine.files import read_json, to_json, write_whole
from roofline_engine.units import is_time, printable, short_repr

from .ceilings.machine import this_machine
from .row import REPORT_SCHEMA

_INDEX = "index.sqlite"
#: The version of the index. A file of another version is made again.
_VERSION = 1
_FILE = re.compile(r"(\d{4,})_([\w.-]+)\.json", re.ASCII)
#: Seconds to wait for another process that saves.
_LOCK_S, _GIT_S = 60.0, 10.0
#: The shortest part of a commit's hash that names a run.
_HASH = 7
#: Variables of CI services with the commit and the branch. The branch of a pull request comes before the merge that is tested.
_COMMIT = ("GITHUB_SHA", "CI_COMMIT_SHA", "BUILDKITE_COMMIT", "BUILD_SOURCEVERSION", "GIT_COMMIT")
_BRANCH = (
    *("GITHUB_HEAD_REF", "GITHUB_REF_NAME", "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME", "CI_COMMIT_REF_NAME", "BUILDKITE_BRANCH"),
    *("BUILD_SOURCEBRANCHNAME", "GIT_BRANCH"),
)


class Run(NamedTuple):
    """One saved run."""

    path: Path
    number: int
    name: str
    created: str = ""  # ISO 8601, UTC
    commit: str | None = None
    branch: str | None = None
    is_dirty: bool = False  # whether tracked files differed from the commit
    machine: str = ""  # identifies machines of equal hardware, see ``ceilings.machine.Machine``
    cpu: str = ""
    host: str = ""
    noise: float = 0.0  # the relative change that is noise
    failed: int = 0  # rows that failed a gate

    def describe(self) -> str:
        """Name the run and its commit in a few words."""
        commit = f" {self.commit[:_HASH]}{'+' * self.is_dirty}" if self.commit else ""
        return printable(f"{self.number:04} {self.name}{commit}")

    def answers_to(self, name: str) -> bool:
        """Return whether a user means this run by its number, its name, its branch, or seven or more letters of its commit."""
        is_commit = len(name) >= _HASH and (self.commit or "").startswith(name.lower())
        return is_commit or name in (self.name, self.branch) or (name.isdigit() and int(name) == self.number)


class Points(NamedTuple):
    """The times of one run, a position for each row that was measured."""

    tests: tuple[tuple[str, str], ...]  # nodeid and device; the same object for runs of the same tests
    t_s: Sequence[float]  # medians, seconds
    q1_s: Sequence[float]  # nan where unknown, as in the next columns
    q3_s: Sequence[float]
    min_s: Sequence[float]  # the best rounds
    rounds: Sequence[float]  # 0 where other programs had the cores: the quartiles are theirs
    fractions: Sequence[float]  # of the roof, not clamped
    failures: Mapping[int, str]  # by position: the gates that failed the row


class NoRunError(ValueError):
    """No saved run fits."""


def save(folder: Path, name: str, report: Mapping[str, Any], root: Path) -> Path:
    """Write ``report`` as the next run and return its path.

    name: empty for the name of the branch. root: a folder of the project, for its commit.

    Raises:
        OSError: where the folder cannot be written.
    """
    facts = _read_git(root)
    machine = this_machine()
    name = re.sub(r"[^\w.-]+", "-", name or facts["branch"] or "run", flags=re.ASCII).strip("-.") or "run"
    run = {**facts, "machine": machine.key, "cpu": machine.cpu, "host": platform.node()}
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / f"{_INDEX}.lock").acquire(timeout=_LOCK_S, poll_interval=0.005):
            number = 1 + max((int(match[1]) for _, match in _list_files(folder)), default=0)
            path = folder / f"{number:04}_{name}.json"
            entries = {"schema": report["schema"], "run": {"number": number, "name": name, **run}}
            write_whole(os.fspath(path), to_json({**entries, **report}))
    except Timeout as error:
        raise OSError(f"{printable(str(folder))}: locked by another process for {_LOCK_S:.0f} s") from error
    return path


def choose(runs: Iterable[Run], name: str, folder: Path) -> Run:
    """Return the run to compare with: the latest that ``name`` means; for an empty name, the latest of a machine like this one
    in which no gate failed.

    Raises:
        NoRunError: where no run fits, with the reason.
    """
    runs, here, label = list(runs), this_machine().key, printable(str(folder))
    if not runs:
        raise NoRunError(f"{label} has no saved run: --roofline-save makes one")
    named = [run for run in runs if not name or run.answers_to(name)]
    if not named:
        known = ", ".join(run.describe() for run in runs[-5:])
        raise NoRunError(f"{label} has no run {short_repr(name)}. The latest are {known}")
    alike = [run for run in named if run.machine == here]
    if name:
        return (alike or named)[-1]
    passed = [run for run in alike if not run.failed]
    if not passed:
        why = "a gate failed in each run of this machine" if alike else "the saved runs are of other machines"
        raise NoRunError(f"{label}: {why}")
    return passed[-1]


def read_runs(folder: Path, say: Callable[[str], object]) -> list[Run]:
    """Return the saved runs in their order. say: takes a line about each file that cannot be read.

    Raises:
        OSError: for an index that cannot be read.
    """
    with closing(_open_index(folder, say)) as index:
        return [run for run, _ in _select(index, folder, "NULL, NULL")]


def read_points(folder: Path, say: Callable[[str], object]) -> Iterator[tuple[Run, Points]]:
    """Yield the saved runs with their times, in their order; as ``read_runs``."""
    lists: dict[str, tuple[tuple[str, str], ...]] = {}
    with closing(_open_index(folder, say)) as index:
        for run, (tests, blob) in _select(index, folder, "tests, points"):
            if tests not in lists:
                names = index.execute("SELECT names FROM tests WHERE key = ?", [tests]).fetchone()[0]
                lists[tests] = tuple((nodeid, device) for nodeid, device in json.loads(names))
            length, values = len(lists[tests]), array("d")
            end = 6 * length * values.itemsize
            values.frombytes(blob[:end])
            t_s, q1_s, q3_s, min_s, rounds, fractions = (values[at * length : (at + 1) * length] for at in range(6))
            failures = {int(at): kinds for at, kinds in json.loads(blob[end:]).items()}
            yield run, Points(lists[tests], t_s, q1_s, q3_s, min_s, rounds, fractions, failures)


def _select(index: sqlite3.Connection, folder: Path, columns: str) -> Iterator[tuple[Run, tuple[Any, ...]]]:
    for file, facts, *more in index.execute(f"SELECT file, facts, {columns} FROM run ORDER BY number, file"):
        yield Run(folder / file, **json.loads(facts)), tuple(more)


def _list_files(folder: Path) -> list[tuple[os.DirEntry[str], re.Match[str]]]:
    try:
        with os.scandir(folder) as entries:
            return [(entry, match) for entry in entries if (match := _FILE.fullmatch(entry.name)) and entry.is_file()]
    except FileNotFoundError:
        return []


def _open_index(folder: Path, say: Callable[[str], object]) -> sqlite3.Connection:
    """Return the index of the folder's files as they are now; in memory where the folder cannot be written."""
    files = {entry.name: f"{entry.stat().st_size} {entry.stat().st_mtime_ns}" for entry, _ in _list_files(folder)}
    if not files:
        return _connect(":memory:")
    path = os.fspath(folder / _INDEX)
    for attempt in (path, path, ":memory:"):
        index = None
        try:
            index = _connect(attempt)
            _update(index, folder, files, say)
            return index
        except sqlite3.Error as error:
            if index is not None:
                index.close()
            if attempt == ":memory:":
                raise OSError(f"{printable(path)}: {error}") from error
            if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
                Path(path).unlink(missing_ok=True)  # no database: only a cache is lost
    raise AssertionError("unreachable")


def _connect(path: str) -> sqlite3.Connection:
    index = sqlite3.connect(path, timeout=_LOCK_S)
    if index.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
        with index:
            index.executescript(
                "BEGIN IMMEDIATE; DROP TABLE IF EXISTS run; DROP TABLE IF EXISTS tests;"
                "CREATE TABLE run (file TEXT PRIMARY KEY, stamp TEXT, number INTEGER, facts TEXT, tests TEXT, points BLOB);"
                f"CREATE TABLE tests (key TEXT PRIMARY KEY, names TEXT); PRAGMA user_version = {_VERSION}; COMMIT"
            )
    return index


def _update(index: sqlite3.Connection, folder: Path, files: Mapping[str, str], say: Callable[[str], object]) -> None:
    """Add the files that the index lacks, and drop those that are gone or have changed."""
    known = dict(index.execute("SELECT file, stamp FROM run"))
    if known == files:
        return
    with index:
        index.executemany("DELETE FROM run WHERE file = ?", [[file] for file in known if files.get(file) != known[file]])
        for file in sorted(files):
            if known.get(file) == files[file]:
                continue
            try:
                number, facts, names, points = _index_row(folder / file)
            except (ValueError, OSError, KeyError, TypeError, AttributeError) as error:
                say(f"{printable(file)}: not a saved run: {error}")
                continue
            key = hashlib.sha256(names.encode()).hexdigest()
            index.execute("INSERT OR IGNORE INTO tests VALUES (?, ?)", [key, names])
            index.execute(
                "INSERT OR REPLACE INTO run VALUES (?, ?, ?, ?, ?, ?)", [file, files[file], number, facts, key, points]
            )


def _index_row(path: Path) -> tuple[int, str, str, bytes]:
    """Return what the index holds of a file: number, facts, tests and points."""
    report = read_json(os.fspath(path))
    if not isinstance(report, Mapping) or report.get("schema") != REPORT_SCHEMA or not isinstance(report.get("run"), Mapping):
        raise ValueError(f"expected a report ({REPORT_SCHEMA}) with run")
    given = report["run"]
    number = given["number"]
    facts: dict[str, Any] = {key: given[key] for key in Run._fields[2:] if isinstance(given.get(key), str)}
    facts.update(number=number, is_dirty=given.get("is_dirty") is True)
    if type(number) is not int or not 0 < number < 10**9 or not isinstance(given["name"], str):
        raise ValueError("expected run.number, a whole number, and run.name")
    gate = report.get("gate") or {}
    facts.update(created=report["created"], noise=float(report["noise"]), failed=int(gate.get("failed", 0)))
    rows = [row for row in report["entries"] if row.get("measurement") and is_time(row["measurement"]["t_s"])]
    columns: list[list[float]] = [[] for _ in Points._fields[1:-1]]
    failures = {}
    for at, row in enumerate(rows):
        timed = row["measurement"]
        rounds = 0 if (timed.get("wait_share") or 0.0) > CONTENDED else timed.get("rounds")
        values = (*(timed.get(key) for key in ("t_s", "q1_s", "q3_s", "min_s")), rounds, row.get("roofline_pct_raw"))
        for column, value in zip(columns, values):
            column.append(math.nan if value is None else float(value))
        kinds = [outcome["gate"] for outcome in row.get("gates", ()) if outcome["status"] == "failed"]
        if kinds:
            failures[at] = ", ".join(kinds)
    names = json.dumps([[row["nodeid"], row.get("device") or ""] for row in rows])
    points = b"".join(array("d", column).tobytes() for column in columns) + json.dumps(failures).encode()
    return number, json.dumps(facts), names, points


def _read_git(root: Path) -> dict[str, Any]:
    """Return commit, branch and is_dirty from one call of git, else from the variables of a CI service; None where unknown."""
    facts: dict[str, Any] = {"commit": None, "branch": None, "is_dirty": False}
    command = ["git", "-C", os.fspath(root), "status", "--porcelain=v2", "--branch", "--untracked-files=no"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_GIT_S, check=False)
        lines = done.stdout.decode("utf-8", "replace").splitlines()
    except (OSError, subprocess.SubprocessError):
        lines = []
    for line in lines:
        kind, _, value = line.partition(" ")
        key, _, value = value.partition(" ") if kind == "#" else ("", "", "")
        if key == "branch.oid" and value != "(initial)":
            facts["commit"] = value
        elif key == "branch.head" and value != "(detached)":
            facts["branch"] = value
        elif kind != "#":
            facts["is_dirty"] = True
    facts["commit"] = facts["commit"] or next(filter(None, map(os.environ.get, _COMMIT)), None)
    facts["branch"] = facts["branch"] or next(filter(None, map(os.environ.get, _BRANCH)), None)
    return facts
