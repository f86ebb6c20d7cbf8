"""One file a machine in the user's cache directory; two processes that want it measure once."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from filelock import FileLock

from roofline_engine.files import to_json, write_whole
from roofline_engine.units import printable

from .machine import Machine
from .record import Ceilings

#: Told in one line what went otherwise than asked.
Say = Callable[[str], None]


def on_stderr(line: str) -> None:
    """The default way to say something."""
    print(printable(line), file=sys.stderr)


#: Longer than any measurement takes: whoever holds the lock has hung.
_LOCK_S = 900.0


def folder(environ: Mapping[str, str] = os.environ) -> Path:
    """``ROOFLINE_CACHE_DIR``, else ``pytest-roofline`` in the user's cache directory of this system.

    A user without a home, as in a container under a number that no account has, gets a folder among the temporary files.
    """
    try:
        return _named(environ)
    except RuntimeError:  # expanduser
        return Path(tempfile.gettempdir()) / f"pytest-roofline-{os.getuid() if hasattr(os, 'getuid') else 'cache'}"


def _named(environ: Mapping[str, str]) -> Path:
    if environ.get("ROOFLINE_CACHE_DIR"):
        return Path(environ["ROOFLINE_CACHE_DIR"]).expanduser()
    named = environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    return Path(named or "~/.cache").expanduser() / "pytest-roofline"


def path_of(machine: Machine, where: Path | None = None) -> Path:
    """The file of ``machine``'s ceilings."""
    return (folder() if where is None else where) / f"ceilings-{machine.key}.json"


def load(path: Path, machine: Machine, say: Say) -> Ceilings | None:
    """What the file holds; None where there is none or, said in one line, where it is of no use."""
    try:
        found = Ceilings.from_json(json.loads(path.read_text(encoding="utf-8")))
        if found.machine != machine:
            raise ValueError(f"of another machine ({found.machine.cpu}, {found.machine.cores} cores)")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        say(f"{path.name}: not used, measured afresh: {_line(error)}")
        return None
    return found


def once(
    path: Path, machine: Machine, good: Callable[[Ceilings], bool], make: Callable[[], Ceilings], say: Say, force: bool = False
) -> Ceilings:
    """What the file holds when that is ``good``, else what ``make`` measures, kept in the file.

    ``force`` measures whatever the file held before the call; what another process has measured meanwhile is new enough.
    """
    before = load(path, machine, _unsaid)  # said when it is read again under the lock
    if before is not None and good(before) and not force:
        return before

    def change(held: Ceilings | None) -> Ceilings:
        return held if held is not None and good(held) and not (force and held == before) else make()

    return settle(path, machine, change, say)


def settle(path: Path, machine: Machine, change: Callable[[Ceilings | None], Ceilings], say: Say) -> Ceilings:
    """Put what ``change`` makes of the file's ceilings into it; one process at a time.

    A folder that cannot be written costs the memory of the measurement, not the measurement.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(f"{path}.lock")
        lock.acquire(timeout=_LOCK_S)
    except OSError as error:  # a lock that is not to be had in time is one too
        say(f"{path.parent}: not kept: {_line(error)}")
        return change(load(path, machine, _unsaid))
    try:
        held = load(path, machine, say)
        made = change(held)
        if made != held:
            try:
                write_whole(str(path), to_json(made.to_json()))
            except OSError as error:
                say(f"{path.name}: not kept: {_line(error)}")
        return made
    finally:
        lock.release()


def _unsaid(line: str) -> None:
    pass


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
