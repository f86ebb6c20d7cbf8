"""A collected file that crashes, hangs or floods its child process fails its own item with one clear message."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from pytest_roofline.collect import child
from support.project import Project, Ran

OTHER = "def test_other(): pass"
#: What makes a file a script, for the end of one.
SCRIPT = "\nimport sys\nsys.exit(0)\n"


def run(project: Project, body: str, *args: object, limit: float = 30) -> Ran:
    """Sleeps take 600 s, longer than a test waits, so a hang is a failure."""
    project.write(test_bad=body + SCRIPT, test_other=OTHER)
    ran = project.run("--roofline-device=MI355X", "-o", f"roofline_item_timeout={limit}", *args)
    assert "INTERNALERROR" not in ran.out, ran.out
    return ran


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("import sys; sys.exit(3)", "exit status 3"),
        ("raise SystemExit('no such kernel')", "no such kernel"),
        ("import os; os._exit(17)", "exit status 17"),
        ("import ctypes; ctypes.string_at(0)", "killed by SIGSEGV"),
        ("import os; os.abort()", "killed by SIGABRT"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed by SIGKILL"),
        ("raise RuntimeError('tile does not fit')", "RuntimeError: tile does not fit"),
        ("this is no Python", "exit status 1"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("import sys; sys.stderr.buffer.write(bytes(range(256)) * 100); sys.exit(1)", "exit status 1"),
        ("print('x' * 30_000_000); import sys; sys.exit(1)", "exit status 1"),
        ("import sys; sys.stdout.write('without an end'); sys.exit(1)", "  without an end"),
    ],
)
def test_a_failed_child_fails_its_item(project: Project, body: str, told: str) -> None:
    project.write(test_bad=body if "no Python" in body else body + SCRIPT)
    (project.path / "pytest.ini").write_text("[pytest]\nroofline_scripts = test_bad.py\n")
    project.write(test_other=OTHER)
    ran = project.run("--roofline-device=MI355X")
    assert "INTERNALERROR" not in ran.out
    assert ran.counts == {"failed": 1, "passed": 1}
    assert told in ran.out
    assert ran.out.count("exit status") <= 3  # the failure and the summary; not a wall
    assert len(ran.out) < 60_000


def test_a_hang_ends_at_the_limit_and_shows_its_place(project: Project) -> None:
    ran = run(project, "import time\ndef wait_for_the_device():\n    time.sleep(600)\nwait_for_the_device()", limit=2)
    assert ran.counts == {"failed": 1, "passed": 1}
    assert "not done after 2 s (roofline_item_timeout)" in ran.out
    assert "in wait_for_the_device" in ran.out


def test_a_hang_that_ignores_signals_is_killed_with_its_children(project: Project) -> None:
    body = f"""
        import faulthandler, os, signal, subprocess, sys, time
        faulthandler.cancel_dump_traceback_later()
        for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGABRT"):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
        children = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) for _ in range(3)]
        open({str(project.path / "pids")!r}, "w").write(" ".join(str(one.pid) for one in children))
        time.sleep(600)
    """
    ran = run(project, body.replace("\n        ", "\n").strip(), limit=3)
    assert ran.counts == {"failed": 1, "passed": 1}
    assert_gone(project.path / "pids")


def test_a_grandchild_that_keeps_the_pipes_open_does_not_hang_the_run(project: Project) -> None:
    body = f"""
import subprocess, sys
left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open({str(project.path / "pids")!r}, "w").write(str(left.pid))
"""
    assert run(project, body).counts == {"passed": 2}
    assert_gone(project.path / "pids")


def assert_gone(pids: Path) -> None:
    for pid in map(int, pids.read_text().split()):
        for _ in range(100):
            if not alive(pid):
                break
            time.sleep(0.05)
        else:
            raise AssertionError(f"{pid} is still there")


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")  # of a zombie: its parent has not waited for it
    return not (state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z")


MUCH = """
import resource, sys
sys.stdout.write("the first line\\n")
for _ in range(100):
    sys.stdout.write("a line that says nothing of a kernel\\n" * 27_000)
print("GEAK_PER_CASE [{\\"sig\\": \\"M64\\", \\"optimized_ms\\": 0.05}]")
"""


def test_large_output_is_read_but_not_kept(project: Project) -> None:
    """100 MB, with one line of a record in it."""
    before = peak()
    ran = run(project, MUCH, "-rP")
    assert ran.counts == {"passed": 2}
    assert ran.rows["test_bad[M64]"]["measurement"]["t_s"] == pytest.approx(50e-6)
    assert "the first line" in ran.out
    assert "bytes left out" in ran.out
    assert len(ran.out) < 60_000
    assert peak() - before < 40_000_000


def peak() -> int:
    import resource

    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def test_endless_output_is_stopped(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "LARGEST", 5_000_000)
    ran = run(project, "while True: print('x' * 1000)")
    assert ran.counts == {"failed": 1, "passed": 1}
    assert "wrote more than 0.005 GB: killed" in ran.out


def test_terminal_escapes_of_a_child_are_escaped(project: Project) -> None:
    ran = run(project, "import sys; print('\\x1b[31mred\\x07', file=sys.stderr); sys.exit(1)")
    assert "\x1b[31mred" not in ran.out
    assert "\\x1b[31mred\\x07" in ran.out


def test_a_child_has_no_input(project: Project) -> None:
    assert "EOFError" in run(project, "input('which kernel? ')").out


#: Of a shell's background job, as CI may be one, an interrupt would be ignored.
_INTERRUPTED = """
import signal, sys, pytest
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(pytest.main(sys.argv[1:]))
"""


def test_an_interrupt_ends_the_child(project: Project) -> None:
    body = f"import os, time\nopen({str(project.path / 'pids')!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)"
    project.write(test_bad=body + SCRIPT)
    process = subprocess.Popen(
        [sys.executable, "-c", _INTERRUPTED, "-p", "roofline", "--roofline"],
        cwd=project.path,
        env={**os.environ, **project.env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        for _ in range(1200):
            if (project.path / "pids").exists() and (project.path / "pids").read_text():
                break
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 2, out
    assert "KeyboardInterrupt" in out
    assert_gone(project.path / "pids")


@pytest.mark.parametrize("value", ["0", "-1", "nan", "100000"])
def test_an_invalid_limit_is_refused(project: Project, value: str) -> None:
    ran = run(project, "", "-o", f"roofline_item_timeout={value}")
    assert ran.code == 4
    assert "roofline_item_timeout is" in ran.out


def test_the_first_entry_of_the_project_path_is_kept(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    (project.path / "lib").mkdir()
    (project.path / "lib" / "helper.py").write_text("X = 1\n")
    assert run(project, "import helper", "-o", "pythonpath=lib").counts == {"passed": 2}


def test_a_missing_temporary_folder_is_reported_in_one_line(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(project.path / "none"))
    ran = run(project, "", "-p", "no:cacheprovider", "-s")
    assert ran.counts == {"failed": 1, "passed": 1}
    assert "no temporary folder for its output: " in ran.out
    assert "Traceback" not in ran.out
    assert "items.py" not in ran.out
