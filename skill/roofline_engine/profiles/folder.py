"""Which profiles in a folder are read: those of the format that says most, all of them where they are ranks of one run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..files import ARTIFACT_NAME
from ..inputs import CONFIG_NAME, ENV_NAME, SHAPES_NAME, is_topn_csv
from ..units import printable
from . import READERS, Reader, find_reader

#: Endings of profiles; other files are not opened.
_ENDINGS = (".json", ".json.gz", ".csv", ".csv.gz", ".db", ".sqlite", ".sqlite3", ".txt")
_OURS = (ARTIFACT_NAME, ENV_NAME, CONFIG_NAME, SHAPES_NAME)
#: Profilers write into a folder by host, and in it into one by process.
_LEVELS = 2
#: Files that are opened; a folder with more is no run.
_MOST_FILES = 2000
#: Files that a remark names.
_NAMED = 4
_LISTS = "statistics by kernel"


class FoundProfiles(NamedTuple):
    """What to read of a folder."""

    paths: tuple[str, ...]  # of one format: ranks
    counters: tuple[str, ...] = ()  # further files of counters of the same run
    remarks: tuple[str, ...] = ()  # what is read, and what is not


def find_profiles(folder: str) -> FoundProfiles | None:
    """Return the profiles to read in a folder, or in the folders in it where it has none; None without any.

    Profiles of other formats are of the same run, so they are named and left out: nothing is added up twice.
    """
    for paths in _levels(folder):
        groups = _group(paths)
        if groups:
            return _choose(groups)
    return None


def _levels(folder: str) -> Iterator[list[str]]:
    """Yield the files of the folder, then those one level lower, then those two levels lower."""
    folders = [folder]
    opened = 0
    for _ in range(_LEVELS + 1):
        files, lower = [], []
        for place in folders:
            try:
                names = sorted(os.listdir(place))
            except OSError:
                continue
            for name in names:
                path = os.path.join(place, name)
                if os.path.isdir(path) and not os.path.islink(path):
                    lower.append(path)
                elif name.lower().endswith(_ENDINGS) and name not in _OURS and opened < _MOST_FILES:
                    opened += 1
                    files.append(path)
        yield files
        folders = lower


def _group(paths: Sequence[str]) -> dict[str, list[str]]:
    """Return the files by format, the format that says most first."""
    by_format: dict[str, list[str]] = {}
    seen: set[str] = set()
    for path in paths:
        reader = find_reader(path)
        name = reader.name if isinstance(reader, Reader) else _LISTS if reader is None and is_topn_csv(path) else None
        plain = re.sub(r"\.gz$", "", path)
        if name is not None and plain not in seen:  # a file and its gzip are one
            seen.add(plain)
            by_format.setdefault(name, []).append(path)
    order = [reader.name for reader in READERS if isinstance(reader, Reader)]
    order.insert(order.index("torch key_averages table"), _LISTS)
    return {name: by_format[name] for name in order if name in by_format}


def _choose(groups: dict[str, list[str]]) -> FoundProfiles:
    (name, paths), *others = groups.items()
    counters: list[str] = []
    if _is_counted(name) and len(paths) > 1:  # passes over the same launches
        paths = sorted(paths, key=lambda path: os.path.basename(path) != "pmc_perf.csv")
        paths, counters = paths[:1], paths[1:]
    remarks = [f"read: {_names(paths)} ({name}{f', {len(paths)} files as ranks' if len(paths) > 1 else ''})"]
    left = [f"{_names(files)} ({other})" for other, files in others if not _is_counted(other)]
    if left:
        remarks.append(f"not read, since they may be of the same run: {'; '.join(left)}; name one to read it")
    return FoundProfiles(tuple(paths), tuple(counters), tuple(remarks))


def _is_counted(name: str) -> bool:
    return any(isinstance(reader, Reader) and reader.name == name and reader.is_counted for reader in READERS)


def _names(paths: Sequence[str]) -> str:
    names = [printable(os.path.basename(path)) for path in paths]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
