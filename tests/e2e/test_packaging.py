"""Wheel, sdist, editable install, plain clone and copied skill folder: each gives a working ``analyze``."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from support.tool import EXAMPLE, ROOT, run_tool

BUNDLE = "pytest_roofline/.agents/skills/pytest-roofline"


def call(*command: object, cwd: Path | None = None) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, cwd=cwd, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone with the files of the working tree, in a folder that is not named after the skill."""
    target = tmp_path_factory.mktemp("clone") / "a clone with spaces"
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, check=False
    )
    if listed.returncode:
        shutil.copytree(ROOT, target, ignore=shutil.ignore_patterns("__pycache__", ".*", "build", "dist"))
        return target
    for name in listed.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)
    return target


@pytest.fixture(scope="module")
def built(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    out = tmp_path_factory.mktemp("dist")
    call(sys.executable, "-m", "build", "--outdir", out, clone)  # the sdist, and the wheel from the sdist
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, sdist


@pytest.fixture(scope="module")
def installed(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    call(python, "-m", "pip", "install", "--quiet", built[0])
    return python


def files_of(folder: Path) -> set[str]:
    """The files of a package that are installed, by their path in it."""
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.suffix in (".py", ".css", ".html", ".js") or path.name == "py.typed"
    }


@pytest.mark.packaging
def test_the_wheel_holds_exactly_these_files(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[0]) as wheel:
        names = set(wheel.namelist())
    info = next(name.split("/")[0] for name in names if name.endswith(".dist-info/METADATA"))
    assert names == (
        {f"pytest_roofline/{name}" for name in files_of(ROOT / "pytest_roofline")}
        | {f"roofline_engine/{name}" for name in files_of(ROOT / "skill" / "roofline_engine")}
        | {f"{BUNDLE}/{name}" for name in ("SKILL.md", "peaks.md", "skill/roofline_tools.py")}
        | {f"{BUNDLE}/skill/roofline_engine/{name}" for name in files_of(ROOT / "skill" / "roofline_engine")}
        | {f"{BUNDLE}/skill/reference/{path.name}" for path in (ROOT / "skill" / "reference").glob("*.md")}
        | {f"{info}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")}
    )


@pytest.mark.packaging
def test_the_bundled_skill_equals_the_repository(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[0]) as wheel:
        engine = [f"skill/roofline_engine/{name}" for name in files_of(ROOT / "skill" / "roofline_engine")]
        pages = [f"skill/reference/{path.name}" for path in (ROOT / "skill" / "reference").glob("*.md")]
        for name in ("SKILL.md", "peaks.md", "skill/roofline_tools.py", *pages, *engine):
            assert wheel.read(f"{BUNDLE}/{name}") == (ROOT / name).read_bytes()


@pytest.mark.packaging
def test_the_sdist_holds_what_a_build_and_the_tests_need(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[1]) as sdist:
        names = {name.split("/", 1)[1] for name in sdist.getnames() if "/" in name}
    assert names >= {"SKILL.md", "peaks.md", "pyproject.toml", "README.md", "LICENSE", "Makefile", "tests/conftest.py"}
    assert names >= {"examples/worked_example/profile_topN.json", "skill/roofline_tools.py"}
    assert not [name for name in names if "__pycache__" in name or name.startswith((".git/", ".venv"))]


def analyzed(command: list[object], out: Path) -> None:
    report = call(*command, "analyze", EXAMPLE, "--out", out)
    assert "**saturated**" in report
    assert "1.022x" in report


@pytest.mark.packaging
def test_wheel_install(installed: Path, tmp_path: Path) -> None:
    roofline = installed.with_name("roofline")
    analyzed([roofline], tmp_path)
    folder = Path(call(roofline, "skill", "path").strip())
    assert (folder / "SKILL.md").is_file()
    assert folder.as_posix().endswith(BUNDLE)
    analyzed([sys.executable, "-I", "-S", folder / "skill" / "roofline_tools.py"], tmp_path / "again")
    assert call(roofline, "validate", tmp_path / "profile_roofline.json").strip().endswith("consistent")
    assert "76 products" in call(roofline, "peaks", "audit")


@pytest.mark.packaging
def test_editable_install_uses_the_clone(clone: Path, tmp_path: Path) -> None:
    folder = tmp_path / "venv"
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    call(python, "-m", "pip", "install", "--quiet", "-e", clone)
    analyzed([python.with_name("roofline")], tmp_path / "out")
    assert Path(call(python.with_name("roofline"), "skill", "path").strip()) == clone.resolve()


def test_plain_clone(clone: Path, tmp_path: Path) -> None:
    analyzed([sys.executable, "-I", "-S", clone / "skill" / "roofline_tools.py"], tmp_path)


def test_copied_skill_folder(clone: Path, tmp_path: Path) -> None:
    folder = tmp_path / "pytest-roofline"
    folder.mkdir()
    for name in ("SKILL.md", "peaks.md"):
        shutil.copy(clone / name, folder)
    shutil.copytree(clone / "skill", folder / "skill")
    analyzed([sys.executable, "-I", "-S", folder / "skill" / "roofline_tools.py"], tmp_path / "out")


def test_a_broken_helper_tells_the_agent_to_go_on_by_hand(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "skill", tmp_path / "skill", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "skill" / "roofline_engine" / "units.py").write_text("def broken(:\n")
    done = run_tool("analyze", EXAMPLE, tool=tmp_path / "skill" / "roofline_tools.py")
    assert done.code == 2
    assert "go on by hand from SKILL.md" in done.err
    assert "Traceback" not in done.err


def test_every_version_is_the_skills_version() -> None:
    (stated,) = re.findall(r'(?m)^  version: "(.+)"$', (ROOT / "SKILL.md").read_text(encoding="utf-8"))
    done = run_tool("--version")
    assert (done.code, done.out.split()[-1], done.err) == (0, stated, "")
    assert importlib.metadata.version("pytest-roofline") == stated
