"""One child process: started in a group of its own, ended with all that it started, its output in files and never in memory.

Files, not pipes: what a grandchild leaves open hangs nobody. What is shown of them is their start and their end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from roofline_engine.units import printable

#: The largest output that is waited for, bytes: a loop that prints fills no disk.
LARGEST = 1_000_000_000
#: A line longer than this is cut: no record is as long.
LONGEST_LINE = 8_000_000
#: Shown of an output: so many bytes of its start and of its end.
_HEAD, _TAIL = 2_000, 8_000
#: Of these so many lines, each cut to so many characters, in a message.
_LINES, _WIDTH = 12, 300
#: The child ends itself at the limit and says where it stood; it is killed where it does not.
_GRACE = 1.0
_BOOT = Path(__file__).with_name("boot.py")


class Ended(NamedTuple):
    """What came of a child.

    code: its exit status, of a signal negative. late: it ran into the limit (s). flooded: it wrote more than ``LARGEST``.
    out, err: files with what it wrote.
    """

    code: int
    late: float | None
    flooded: bool
    out: Path
    err: Path

    @property
    def problem(self) -> str:
        """Why it is no success, in one line; empty where it is one."""
        if self.late is not None:
            return f"not done after {self.late:g} s (roofline_item_timeout); it was killed, and what it had started"
        if self.flooded:
            return f"wrote more than {LARGEST / 1e9:g} GB; it was killed"
        if self.code < 0:
            return f"killed by {_signal(-self.code)}"
        return f"exit status {self.code}" if self.code else ""

    def told(self, note: str = "") -> str:
        """The problem with the end of what the child said of it: stderr, and stdout where it has none."""
        where, lines = "stderr", last_lines(self.err)
        if not lines:
            where, lines = "stdout", last_lines(self.out)
        head = ": ".join(part for part in (note, self.problem) if part)
        return "\n".join([head, *([f"the end of its {where}:"] if lines else []), *(f"  {line}" for line in lines)])


def run(
    file: Path, arguments: Sequence[str], *, folder: str, cwd: Path, limit: float, scratch: Path, paths: Sequence[str] = ()
) -> Ended:
    """Run a Python file to its end, by the interpreter of this process.

    folder: as of ``boot``. limit: seconds. scratch: a folder for its output. paths: for its ``PYTHONPATH``.

    Raises:
        OSError: where it cannot be started.
    """
    command = [sys.executable, str(_BOOT), repr(limit), folder, str(file), *arguments]
    out, err = scratch / "stdout", scratch / "stderr"
    with out.open("wb") as to_out, err.open("wb") as to_err:
        started = time.monotonic()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=to_out,
            stderr=to_err,
            cwd=cwd,
            env=_environment(paths),
            start_new_session=True,  # its own group: a Ctrl-C is ours alone, and the group can be killed whole
        )
        flooded, killed = False, False
        try:
            while process.poll() is None:
                if time.monotonic() - started > limit + _GRACE:
                    killed = True
                    break
                if os.fstat(to_out.fileno()).st_size + os.fstat(to_err.fileno()).st_size > LARGEST:
                    flooded = True
                    break
                _wait(process, time.monotonic() - started)
        finally:  # also on Ctrl-C
            seconds = time.monotonic() - started
            _kill(process)
    code = -9 if process.returncode is None else process.returncode
    late = killed or (seconds >= limit and code != 0 and not flooded)
    return Ended(code, limit if late else None, flooded, out, err)


def _wait(process: subprocess.Popen[bytes], so_far: float) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(min(0.2, 0.005 + so_far / 10))


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the process and everything of its group, also what it left behind."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except AttributeError:  # Windows has no groups
        process.kill()
    except (ProcessLookupError, PermissionError):  # none is left; macOS says the second of a group of zombies
        pass
    with contextlib.suppress(subprocess.TimeoutExpired):  # a driver may hold it where no signal reaches
        process.wait(_GRACE)


def _environment(paths: Sequence[str]) -> Mapping[str, str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    environment.setdefault("MPLBACKEND", "Agg")  # a window would wait for somebody to close it
    environment["PYTHONPATH"] = os.pathsep.join([*paths, *filter(None, [environment.get("PYTHONPATH")])])
    return environment if environment["PYTHONPATH"] else {k: v for k, v in environment.items() if k != "PYTHONPATH"}


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def lines(path: Path, starts: bytes = b"") -> Iterator[str]:
    """The lines of an output as text: what is no UTF-8 is replaced, and what is over the bound of a line cut off.

    starts: the first letters of the lines that are wanted; in place of others an empty one, which takes a third of the time.
    """
    with path.open("rb") as stream:
        while line := stream.readline(LONGEST_LINE):
            wanted = not starts or line.lstrip()[:1] in starts
            yield line.decode("utf-8", errors="replace").rstrip("\r\n") if wanted else ""
            while len(line) == LONGEST_LINE and not line.endswith(b"\n"):
                line = stream.readline(LONGEST_LINE)


def cleaned(path: Path) -> Path:
    """A copy of an output that is text, as the readers of records want it, under the same name in a folder beside it."""
    copy = path.parent / "text" / path.name
    copy.parent.mkdir(exist_ok=True)
    with copy.open("w", encoding="utf-8", newline="\n") as stream:
        stream.writelines(f"{line}\n" for line in lines(path))
    return copy


def last_lines(path: Path) -> list[str]:
    """The end of an output, fit to print."""
    text = _end(path)
    found = [printable(line.rstrip()) for line in text.splitlines() if line.strip()]
    return [line if len(line) <= _WIDTH else line[:_WIDTH] + "..." for line in found[-_LINES:]]


def _end(path: Path) -> str:
    with path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - _TAIL))
        return stream.read().decode("utf-8", errors="replace")


def excerpt(path: Path) -> str:
    """An output for a report: whole where it is short, else its start and its end."""
    with path.open("rb") as stream:
        start = stream.read(_HEAD + _TAIL)
    if len(start) < _HEAD + _TAIL:
        text = start.decode("utf-8", errors="replace")
    else:
        left_out = path.stat().st_size - _HEAD - _TAIL
        text = f"{start[:_HEAD].decode('utf-8', errors='replace')}\n... {left_out} bytes left out ...\n{_end(path)}"
    return "\n".join(printable(line) for line in text.splitlines())
