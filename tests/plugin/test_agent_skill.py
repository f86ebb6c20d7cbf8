"""``roofline skill install``, ``check`` and ``uninstall``: nothing of the user's is replaced, and nothing is silent."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_roofline import agent_skill
from pytest_roofline.cli import main
from support.tool import ROOT


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project with a folder to work in, and a home folder of its own."""
    home, project = tmp_path / "my home", tmp_path / "my project"
    home.mkdir()
    (project / ".git").mkdir(parents=True)
    (project / "src").mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.chdir(project / "src")
    return project


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["roofline", "skill", *arguments])
    return main()


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_round_trip(project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    folder = project / ".agents" / "skills" / "pytest-roofline"
    assert run(monkeypatch, "check") == 1
    assert "absent" in capsys.readouterr().out
    assert run(monkeypatch, "install") == 0
    assert capsys.readouterr().out.startswith(f"installed: {folder}")
    assert (folder / "SKILL.md").read_bytes() == (ROOT / "SKILL.md").read_bytes()
    assert list(folder.parent.iterdir()) == [folder]  # no temporary folder stays
    helper = [sys.executable, str(folder / "skill" / "roofline_tools.py"), "peaks", "show", "MI300X"]
    assert subprocess.run(helper, capture_output=True, check=False).returncode == 0  # leaves compiled files behind
    assert run(monkeypatch, "check") == 0
    assert run(monkeypatch, "install") == 0
    assert "current: " in capsys.readouterr().out
    assert run(monkeypatch, "uninstall") == 0
    assert not folder.exists()
    assert run(monkeypatch, "uninstall") == 0


def test_the_installed_copy_is_a_valid_skill(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    validator = pytest.importorskip("skills_ref", reason="skills-ref needs Python 3.11")
    run(monkeypatch, "install")
    assert validator.validate(project / ".agents" / "skills" / "pytest-roofline") == []


@pytest.mark.parametrize(
    ("client", "in_project", "in_home"),
    [
        ("agents", ".agents/skills", ".agents/skills"),
        ("claude", ".claude/skills", ".claude/skills"),
        ("codex", ".agents/skills", ".agents/skills"),
        ("copilot", ".github/skills", ".copilot/skills"),
        ("cursor", ".cursor/skills", ".cursor/skills"),
        ("gemini", ".gemini/skills", ".gemini/skills"),
    ],
)
def test_each_client_has_its_folder(
    client: str, in_project: str, in_home: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(monkeypatch, "install", "--client", client) == 0
    assert (project / in_project / "pytest-roofline" / "SKILL.md").is_file()
    assert run(monkeypatch, "install", "--client", client, "--user") == 0
    assert (Path.home() / in_home / "pytest-roofline" / "SKILL.md").is_file()


def test_claude_is_installed_where_the_project_has_its_folder(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / ".claude").mkdir()
    run(monkeypatch, "install")
    assert (project / ".claude" / "skills" / "pytest-roofline" / "SKILL.md").is_file()
    assert (project / ".agents" / "skills" / "pytest-roofline" / "SKILL.md").is_file()


def test_the_configuration_folder_of_claude(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "elsewhere"))
    run(monkeypatch, "install", "--client", "claude", "--user")
    assert (tmp_path / "elsewhere" / "skills" / "pytest-roofline" / "SKILL.md").is_file()


def test_another_skill_of_that_name_stays(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = project / ".agents" / "skills" / "pytest-roofline"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("mine", encoding="utf-8")
    for command in ("install", "uninstall", "check"):
        assert run(monkeypatch, command) == 1
        assert "this command did not make it" in capsys.readouterr().out
    assert tree(folder) == {"SKILL.md": b"mine"}


@pytest.mark.parametrize("change", ["edit", "add", "remove", "link"])
def test_a_copy_that_was_changed_stays(
    change: str, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, "install")
    folder = project / ".agents" / "skills" / "pytest-roofline"
    path = folder / ("notes.md" if change in ("add", "link") else "peaks.md")
    if change == "remove":
        path.unlink()
    elif change == "link":
        path.symlink_to(project)
    else:
        path.write_text("mine", encoding="utf-8")
    before = tree(folder)
    for command in ("install", "uninstall", "check"):
        assert run(monkeypatch, command) == 1
        assert path.name in capsys.readouterr().out
    assert tree(folder) == before


def test_a_link_to_a_skill_stays(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = project / "own"
    target.mkdir()
    folder = project / ".agents" / "skills" / "pytest-roofline"
    folder.parent.mkdir(parents=True)
    folder.symlink_to(target)
    assert run(monkeypatch, "install") == 1
    assert run(monkeypatch, "uninstall") == 1
    assert folder.is_symlink()
    assert list(target.iterdir()) == []


def test_an_older_copy_is_stale_and_updated(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import hashlib

    run(monkeypatch, "install")
    folder = project / ".agents" / "skills" / "pytest-roofline"
    (folder / "SKILL.md").write_text("older", encoding="utf-8")
    record = json.loads((folder / ".pytest-roofline.json").read_text(encoding="utf-8"))
    record["version"], record["files"]["SKILL.md"] = "0.0.1", hashlib.sha256(b"older").hexdigest()
    (folder / ".pytest-roofline.json").write_text(json.dumps(record), encoding="utf-8")
    capsys.readouterr()
    assert run(monkeypatch, "check") == 1
    assert "stale: " in capsys.readouterr().out
    assert run(monkeypatch, "install") == 0
    assert "updated: " in capsys.readouterr().out
    assert run(monkeypatch, "check") == 0


def test_an_update_that_fails_keeps_the_older_copy(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project / ".agents" / "skills" / "pytest-roofline"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("older", encoding="utf-8")
    rename = Path.rename

    def fail(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise OSError("the disk went away")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="disk"):
        agent_skill._replace(folder, {"SKILL.md": b"newer"})
    assert tree(folder) == {"SKILL.md": b"older"}
    assert list(folder.parent.iterdir()) == [folder]


def test_a_folder_that_cannot_be_written_is_one_line(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / ".agents").write_text("a file", encoding="utf-8")
    assert run(monkeypatch, "install") == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_an_unknown_client_is_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "install", "--client", "emacs") == 2
    assert "emacs" in capsys.readouterr().err
