"""The ledger's file: where it is, one append at a time, whole at every moment."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock, Timeout

from roofline_engine.units import printable

from . import markdown, playbook
from .markdown import Unread
from .pair import Pair

PLAYBOOK = Path("knowledge", "backend_playbook.md")
OWN = Path(".roofline", "ledger.md")
#: An append takes milliseconds: whoever holds the lock this long has hung.
_LOCK_S = 120.0
#: Notes of a person and a line a pair: beyond this it is another file.
_LARGEST = 1 << 28


class Ledger(NamedTuple):
    """What a file holds. notes: pairs from lines of free text; skipped: such lines that were not understood."""

    pairs: tuple[Pair, ...]
    unread: tuple[Unread, ...] = ()
    notes: tuple[Pair, ...] = ()
    skipped: tuple[int, ...] = ()

    @property
    def all(self) -> tuple[Pair, ...]:
        """Every pair once: a line of free text that stands in the table too is left out."""
        known = {_same(pair) for pair in self.pairs}
        return self.pairs + tuple(pair for pair in self.notes if _same(pair) not in known)


def _same(pair: Pair) -> tuple[object, ...]:
    return pair.date, pair.device, pair.attainable, pair.predicted_e2e_pct, pair.measured, pair.measured_e2e_pct


def locate(root: Path) -> Path:
    """The ledger of the project in ``root``: the playbook where it has one, else a file of our own."""
    return root / PLAYBOOK if (root / PLAYBOOK).is_file() else root / OWN


def read(path: Path) -> Ledger:
    """What ``path`` holds; nothing where there is no such file.

    Raises:
        ValueError: for a file that cannot be one.
    """
    data = _bytes(path)
    found = markdown.parse(data)
    notes = playbook.parse(data.decode("utf-8", "replace"), path.name)
    return Ledger(found.pairs, found.unread, notes.pairs, notes.skipped)


def append(path: Path, pairs: Iterable[Pair], *, once: bool = False) -> int:
    """Add ``pairs`` to the ledger in ``path`` and return how many; made with its folder where there is none.

    once: leave out what already stands there, field by field. Several processes may append to one file; a process that is
    killed leaves the file as it was or with all of its lines.

    Raises:
        OSError: when the file cannot be written, is a folder or a symbolic link, or stays locked.
        ValueError: for a file that cannot be a ledger.
    """
    wanted = list(pairs)
    if not wanted:
        return 0
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(f"{path}.lock").acquire(timeout=_LOCK_S, poll_interval=0.005):
            before = _bytes(path)
            if once:
                held = set(markdown.parse(before).pairs)
                wanted = [pair for pair in dict.fromkeys(wanted) if pair not in held]
            if wanted:
                _write(path, markdown.append(before, wanted))
    except Timeout as error:
        raise OSError(f"{printable(str(path))}: locked by another process for {_LOCK_S:.0f} s") from error
    return len(wanted)


def _bytes(path: Path) -> bytes:
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError(f"{printable(str(path))}: larger than {_LARGEST >> 20} MiB, not a ledger")
        data = path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise ValueError(f"{printable(str(path))}: {error.strerror or error}") from None
    if b"\0" in data:
        raise ValueError(f"{printable(str(path))}: not UTF-8 text, not a ledger")
    return data


def _write(path: Path, data: bytes) -> None:
    """A temporary sibling renamed onto ``path``, with its permissions."""
    if path.is_symlink() or path.is_dir():
        kind = "symbolic link" if path.is_symlink() else "directory"
        raise OSError(f"{printable(str(path))} is a {kind}, it is not overwritten")
    temporary = path.with_name(f"{path.name}.{os.urandom(4).hex()}.tmp")
    try:
        with open(temporary, "xb") as handle:
            handle.write(data)
        if path.exists():
            shutil.copymode(path, temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
