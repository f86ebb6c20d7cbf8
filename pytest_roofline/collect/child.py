"""One child process: how it runs, how it ends, and the rows that it sends back.

The process has its own group and ends with everything that it started. Its output goes to files, never to memory, and not to
pipes: a pipe that a grandchild keeps open would hang this process. Messages show the start and the end of the output.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import roofline_engine
from roofline_engine.check import Baseline, Claim, Measurement
from roofline_engine.units import printable

from ..capture.trace import CapturedWork

#: A child that writes more than this (bytes) is killed: an endless loop of prints must not fill the disk.
LARGEST = 1_000_000_000
#: A longer line is cut, because no record is that long.
LONGEST_LINE = 8_000_000
#: Messages show this many bytes of the start and of the end of an output.
_HEAD, _TAIL = 2_000, 8_000
#: They show this many lines, each cut to this many characters.
_LINES, _WIDTH = 12, 300
#: The child ends itself at the limit and prints where it was; this many seconds later it is killed.
_GRACE = 1.0
_BOOT = Path(__file__).with_name("child_boot.py")
#: From where the child imports this package and the engine, as this process did.
_FOLDERS = os.pathsep.join(str(Path(file).parent.parent) for file in (Path(__file__).parent, roofline_engine.__file__))


class ChildExit(NamedTuple):
    """How a child ended."""

    code: int  # the exit status; negative for a signal
    limit: float | None  # the time limit in seconds, if the child exceeded it
    flooded: bool  # whether it wrote more than LARGEST
    out: Path  # the file with its stdout
    err: Path  # the file with its stderr

    @property
    def problem(self) -> str:
        """Why the child failed, in one line; empty for a success."""
        if self.limit is not None:
            return f"not done after {self.limit:g} s (roofline_item_timeout): killed, with the processes that it started"
        if self.flooded:
            return f"wrote more than {LARGEST / 1e9:g} GB: killed"
        if self.code < 0:
            return f"killed by {_signal(-self.code)}"
        return f"exit status {self.code}" if self.code else ""

    def message(self, note: str = "") -> str:
        """Return the problem and the end of the child's stderr, or of its stdout if stderr is empty."""
        name, lines = "stderr", last_lines(self.err)
        if not lines:
            name, lines = "stdout", last_lines(self.out)
        head = ": ".join(part for part in (note, self.problem) if part)
        return "\n".join([head, *([f"the end of its {name}:"] if lines else []), *(f"  {line}" for line in lines)])


def run(
    file: Path | None,  # None for ``child_main``
    arguments: Sequence[str],
    *,
    folder: str = "first",  # the place of the file's folder on ``sys.path``, as in ``child_boot``
    cwd: Path,
    limit: float,  # seconds
    scratch: Path,  # an empty folder for the output
    paths: Sequence[str] = (),  # folders for ``PYTHONPATH``
) -> ChildExit:
    """Run a Python file to its end with the interpreter of this process.

    Raises:
        OSError: if the process cannot be started.
    """
    program = ["package", _FOLDERS] if file is None else [folder, str(file)]
    out, err = scratch / "stdout", scratch / "stderr"
    with out.open("wb") as to_out, err.open("wb") as to_err:
        start = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, str(_BOOT), repr(limit), *program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=to_out,
            stderr=to_err,
            cwd=cwd,
            env=_environment(paths),
            start_new_session=True,  # a process group of the child: Ctrl-C reaches pytest only, and the group can be killed
        )
        flooded, killed = False, False
        try:
            while process.poll() is None:
                if time.monotonic() - start > limit + _GRACE:
                    killed = True
                    break
                if os.fstat(to_out.fileno()).st_size + os.fstat(to_err.fileno()).st_size > LARGEST:
                    flooded = True
                    break
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(min(0.2, 0.005 + (time.monotonic() - start) / 10))
        finally:  # also on Ctrl-C
            seconds = time.monotonic() - start
            _kill(process)
    code = -9 if process.returncode is None else process.returncode
    late = killed or (seconds >= limit and code != 0 and not flooded)
    return ChildExit(code, limit if late else None, flooded, out, err)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the process and its group, including processes that it left running."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except AttributeError:  # Windows has no groups
        process.kill()
    except (ProcessLookupError, PermissionError):  # the group is gone; macOS raises the second for a group of zombies
        pass
    with contextlib.suppress(subprocess.TimeoutExpired):  # a driver may hold it where no signal reaches
        process.wait(_GRACE)


def _environment(paths: Sequence[str]) -> Mapping[str, str]:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTEST_CURRENT_TEST", "PYTHONPATH")}
    environment.setdefault("MPLBACKEND", "Agg")  # a window would wait for a user to close it
    folders = [*paths, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**environment, "PYTHONPATH": os.pathsep.join(folders)} if folders else environment


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# The output.


def lines(path: Path) -> Iterator[str]:
    """Yield the lines of an output as text. Bytes that are not UTF-8 are replaced, and long lines are cut."""
    with path.open("rb") as stream:
        while line := stream.readline(LONGEST_LINE):
            yield line.decode("utf-8", errors="replace").rstrip("\r\n")
            while len(line) == LONGEST_LINE and not line.endswith(b"\n"):
                line = stream.readline(LONGEST_LINE)


def cleaned(path: Path) -> Path:
    """Copy an output to a file of valid UTF-8 text, as the readers of records need, and return the copy."""
    copy = path.parent / "text" / path.name
    copy.parent.mkdir(exist_ok=True)
    with copy.open("w", encoding="utf-8", newline="\n") as stream:
        stream.writelines(f"{line}\n" for line in lines(path))
    return copy


def last_lines(path: Path) -> list[str]:
    """Return the last lines of an output, escaped and cut for a message."""
    escaped = [printable(line.rstrip()) for line in _end(path).splitlines() if line.strip()]
    return [line if len(line) <= _WIDTH else line[:_WIDTH] + "..." for line in escaped[-_LINES:]]


def _end(path: Path) -> str:
    with path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - _TAIL))
        return stream.read().decode("utf-8", errors="replace")


def excerpt(path: Path) -> str:
    """Return an output for a report: all of a short one, else its start and its end."""
    with path.open("rb") as stream:
        start = stream.read(_HEAD + _TAIL)
    if len(start) < _HEAD + _TAIL:
        text = start.decode("utf-8", errors="replace")
    else:
        rest = path.stat().st_size - _HEAD - _TAIL
        text = f"{start[:_HEAD].decode('utf-8', errors='replace')}\n... {rest} bytes left out ...\n{_end(path)}"
    return "\n".join(printable(line) for line in text.splitlines())


# The rows of ``child_main``: a line of JSON each, after the last row ``{"done": true}``, or ``{"needs": MODULE}``.


class ChildRow(NamedTuple):
    """One row of a function or problem that ran in a child."""

    label: str  # which of the item's rows it is
    captured: CapturedWork
    measurement: Measurement | None = None
    baseline: Baseline | None = None
    claims: tuple[Claim, ...] = ()  # rates that the function returned
    device_kind: str | None = None  # where its arrays were: cpu or gpu
    problem: str = ""  # why it has no time

    def to_json(self) -> str:
        """Return the row as one line, which ``row.read_part`` reads."""
        return json.dumps(_plain(self))


def _plain(value: Any) -> Any:
    """Return named tuples as dicts of their fields."""
    if hasattr(value, "_asdict"):
        return {name: _plain(item) for name, item in value._asdict().items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
