"""The cache of ceilings: one file a machine, measured by one process, and never a reason to fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_roofline.ceilings import store
from pytest_roofline.ceilings.store import Ceilings
from support.ceilings import BOX, bandwidth, of_box
from support.tool import ROOT

FOUND = of_box(bandwidth(2e10))


class Desk:
    """One process that uses the cache: it counts its measurements and keeps its messages."""

    def __init__(self, folder: Path) -> None:
        self.path = store.path_of(BOX, folder)
        self.measured = 0
        self.said: list[str] = []

    def once(self, force: bool = False, good: bool = True, made: Ceilings = FOUND) -> Ceilings:
        def make(cached: Ceilings | None) -> Ceilings:
            self.measured += 1
            return made

        return store.once(self.path, BOX, lambda found: good, make, self.said.append, force)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "not" / "there yet")


def test_a_measurement_is_found_again(desk: Desk) -> None:
    assert desk.once() == FOUND
    assert desk.once() == FOUND
    assert (desk.measured, desk.said) == (1, [])


def test_force_and_an_insufficient_record_measure_again(desk: Desk) -> None:
    desk.once()
    newer = replace(FOUND, date="2026-02-03T00:00:00Z")
    assert desk.once(force=True, made=newer) == newer
    assert desk.once() == newer
    desk.once(good=False)
    assert desk.measured == 3


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe\x00",
        b'{"schema": "roofline-ceilings/99"}',
        b"[" * 100_000,
        json.dumps({**FOUND.to_json(), "ceilings": 3}).encode(),
        json.dumps(replace(FOUND, machine=replace(BOX, cores=64)).to_json()).encode(),
    ],
    ids=["empty", "cut", "list", "bytes", "newer", "deep", "no_list", "other_machine"],
)
def test_an_unusable_file_is_measured_again_with_one_message(desk: Desk, content: bytes) -> None:
    desk.path.parent.mkdir(parents=True)
    desk.path.write_bytes(content)
    assert desk.once() == FOUND
    assert len(desk.said) == 1
    assert desk.path.name in desk.said[0]
    assert "\n" not in desk.said[0]
    assert desk.once() == FOUND
    assert desk.measured == 1


def test_a_folder_that_cannot_be_created_gives_one_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    desk = Desk(tmp_path / "file")
    assert desk.once() == FOUND
    assert len(desk.said) == 1
    assert "not kept" in desk.said[0]


@pytest.mark.skipif(os.name == "nt" or getattr(os, "geteuid", lambda: 1)() == 0, reason="permissions do not bind this user")
def test_a_read_only_folder_gives_one_message_and_is_read(desk: Desk) -> None:
    desk.once()
    desk.path.parent.chmod(0o500)
    try:
        assert desk.once() == FOUND
        assert (desk.measured, desk.said) == (1, [])
        assert desk.once(force=True) == FOUND
        assert len(desk.said) == 1
        assert "not kept" in desk.said[0]
    finally:
        desk.path.parent.chmod(0o700)


def test_a_symbolic_link_is_not_written_through(desk: Desk, tmp_path: Path) -> None:
    target = tmp_path / "theirs"
    target.write_text("{}")
    desk.path.parent.mkdir(parents=True)
    desk.path.symlink_to(target)
    assert desk.once() == FOUND
    assert target.read_text() == "{}"
    assert any("symbolic link" in line for line in desk.said)


def test_two_processes_that_want_the_ceilings_measure_once(tmp_path: Path) -> None:
    code = """
import sys, time
from pathlib import Path
from support.ceilings import BOX, bandwidth, of_box
from pytest_roofline.ceilings import store

folder, name = Path(sys.argv[1]), sys.argv[2]
(folder / f"ready-{name}").touch()
while len(list(folder.glob("ready-*"))) < 2:
    time.sleep(0.01)

def make(cached):
    with open(folder / "measured", "a") as log:
        log.write(name + "\\n")
    time.sleep(0.3)  # long enough that the other one asks meanwhile
    return of_box(bandwidth(2e10))

assert store.once(store.path_of(BOX, folder / "cache"), BOX, lambda found: True, make, print) == of_box(bandwidth(2e10))
"""
    tests = str(ROOT / "tests")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])}
    both = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), name], env=environment) for name in ("one", "two")]
    assert [process.wait(60) for process in both] == [0, 0]
    assert len((tmp_path / "measured").read_text().splitlines()) == 1


def test_the_folder_is_the_user_cache_or_the_one_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert store.folder({"ROOFLINE_CACHE_DIR": "here"}) == Path("here")
    monkeypatch.setattr(store.sys, "platform", "linux")
    assert store.folder({"XDG_CACHE_HOME": "/there"}) == Path("/there/pytest-roofline")
    home = Path.home() / ".cache" / "pytest-roofline"
    # https://specifications.freedesktop.org/basedir-spec/latest: a relative path is invalid and is ignored
    assert store.folder({}) == store.folder({"XDG_CACHE_HOME": "there"}) == store.folder({"XDG_CACHE_HOME": ""}) == home
    for wrong in ("", "relative"):
        monkeypatch.setenv("HOME", wrong)
        assert store.folder({"HOME": wrong}).parent == Path(tempfile.gettempdir())
    monkeypatch.setattr(store.sys, "platform", "win32")
    assert store.folder({"LOCALAPPDATA": "/local"}) == Path("/local/pytest-roofline")


def test_different_machines_have_different_files(tmp_path: Path) -> None:
    others = [replace(BOX, cores=4), replace(BOX, cpu="Box 2"), replace(BOX, memory_bytes=2**35), replace(BOX, arch="aarch64")]
    assert len({store.path_of(machine, tmp_path) for machine in (BOX, *others)}) == 5
