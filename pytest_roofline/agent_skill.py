"""``roofline skill install``, ``check`` and ``uninstall``: copies of the skill where the clients of coding agents look.

A copy is a folder ``pytest-roofline`` with SKILL.md, peaks.md and skill/. Beside them lies a record of what was copied, so that
a file of the user's is never taken for one of the copy. The commands replace and remove only what the record lists.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from roofline_engine.cli import DONE, FAILED
from roofline_engine.peaks_table import skill_dir, skill_version
from roofline_engine.units import printable

#: The folder of a copy; clients require the name in SKILL.md.
NAME = "pytest-roofline"
#: The record of a copy: its version, and the SHA-256 of each file.
RECORD = ".pytest-roofline.json"


class Client(NamedTuple):
    """Where a client looks for skills, by its documentation."""

    project: str  # relative to the root of a project
    user: str  # relative to the home folder
    variable: str = ""  # an environment variable with the folder that holds ``skills``, for user


CLIENTS = {
    "agents": Client(".agents/skills", ".agents/skills"),  # the shared folder; agentskills.io lists who reads it
    "claude": Client(".claude/skills", ".claude/skills", "CLAUDE_CONFIG_DIR"),  # code.claude.com/docs/en/skills
    "codex": Client(".agents/skills", ".agents/skills"),  # developers.openai.com/codex/skills
    "copilot": Client(".github/skills", ".copilot/skills"),  # docs.github.com/copilot, "About agent skills"
    "cursor": Client(".cursor/skills", ".cursor/skills"),  # cursor.com/docs/context/skills
    "gemini": Client(".gemini/skills", ".gemini/skills"),  # geminicli.com/docs/cli/skills
}
#: What marks the root of a project.
_ROOT_MARKS = (".git", ".agents", ".claude")


class Copy(NamedTuple):
    """The copy at one place, compared with its record and with the skill of this package."""

    state: str  # absent, current, stale, edited or foreign
    detail: str = ""  # for people: a version, or the files that differ


def configure_install(parser: ArgumentParser) -> None:
    """Add the options of ``roofline skill install``."""
    _add_places(parser, "default: agents, and claude where it has a folder")
    parser.set_defaults(run=_install)


def configure_check(parser: ArgumentParser) -> None:
    """Add the options of ``roofline skill check``."""
    _add_places(parser, "default: every place that has a copy")
    parser.set_defaults(run=_check)


def configure_uninstall(parser: ArgumentParser) -> None:
    """Add the options of ``roofline skill uninstall``."""
    _add_places(parser, "default: every place that has a copy")
    parser.set_defaults(run=_uninstall)


def _add_places(parser: ArgumentParser, default: str) -> None:
    parser.add_argument("--client", metavar="NAME", action="append", choices=CLIENTS, help=f"{', '.join(CLIENTS)}; {default}")
    scope = parser.add_mutually_exclusive_group()
    scope.add_argument("--project", action="store_true", help="in the project of the current folder (default)")
    scope.add_argument("--user", action="store_true", help="in the home folder, for every project")


def _install(options: Namespace) -> int:
    """Copy the skill to each place; a place that has something else is left as it is and the status is 1."""
    files = _bundle()
    clients = options.client or ["agents", *(["claude"] if (_root(options.user) / ".claude").is_dir() else [])]
    refused = False
    for folder in _folders(clients, options.user):
        copy = _compare(folder, files)
        if copy.state == "current":
            line = f"current: {folder} ({copy.detail})"
        elif copy.state in ("absent", "stale"):
            _replace(folder, files)
            line = f"{'updated' if copy.state == 'stale' else 'installed'}: {folder} (version {skill_version()})"
        else:
            refused = True
            line = f"not installed: {_describe(folder, copy)}. Move the folder away to install a new copy"
        print(printable(line))
    return FAILED if refused else DONE


def _check(options: Namespace) -> int:
    """Print the state of each copy; 1 when one is not current, or none was found."""
    copies = list(_found(options))
    for folder, copy in copies:
        print(printable(f"{copy.state}: {_describe(folder, copy)}"))
    if not copies:
        print(f"absent: no copy of the skill was found in the {'home folder' if options.user else 'project'}")
    return DONE if copies and all(copy.state == "current" for _, copy in copies) else FAILED


def _uninstall(options: Namespace) -> int:
    """Remove each copy that has only files of the skill; 1 when one was left."""
    copies = list(_found(options))
    refused = False
    for folder, copy in copies:
        if copy.state in ("current", "stale"):
            shutil.rmtree(folder)
            print(printable(f"removed: {folder}"))
        elif copy.state != "absent":
            refused = True
            print(printable(f"not removed: {_describe(folder, copy)}"))
    if not any(copy.state != "absent" for _, copy in copies):
        print("absent: no copy of the skill was found")
    return FAILED if refused else DONE


def _describe(folder: Path, copy: Copy) -> str:
    return f"{folder} ({copy.detail})" if copy.detail else str(folder)


def _found(options: Namespace) -> Iterator[tuple[Path, Copy]]:
    """Yield the places that the options name with the copy there; without ``--client`` those that have one."""
    files = _bundle()
    for folder in _folders(options.client or list(CLIENTS), options.user):
        copy = _compare(folder, files)
        if options.client or copy.state != "absent":
            yield folder, copy


def _folders(clients: list[str], user: bool) -> list[Path]:
    """Return the folder of a copy for each client; clients that share one have one."""
    folders = []
    for name in clients:
        client = CLIENTS[name]
        own = os.environ.get(client.variable) if user and client.variable else None
        parent = Path(own).expanduser() / "skills" if own else _root(user) / (client.user if user else client.project)
        folders.append(parent / NAME)
    return list(dict.fromkeys(folders))


def _root(user: bool) -> Path:
    """Return the home folder, or the root of the project: the nearest folder with a mark, else the current folder."""
    try:
        home = Path.home()
    except RuntimeError as error:
        raise ValueError(f"the home folder is unknown: {error}") from None
    if user:
        return home
    here = Path.cwd()
    marked = (
        folder for folder in (here, *here.parents) if folder != home and any((folder / mark).exists() for mark in _ROOT_MARKS)
    )
    return next(marked, here)


def _bundle() -> dict[str, bytes]:
    """Return the files of the skill by their path in its folder.

    Raises:
        ValueError: where the installation lacks the folder.
    """
    source = skill_dir()
    if source is None:
        raise ValueError("the skill's folder (SKILL.md, peaks.md, skill/) was not found")
    root = Path(source)
    paths = [root / "SKILL.md", root / "peaks.md", *sorted((root / "skill").rglob("*"))]
    kept = [path for path in paths if path.is_file() and path.suffix in (".md", ".py")]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in kept}


def _compare(folder: Path, files: dict[str, bytes]) -> Copy:
    """Return the state of the copy in ``folder``: whether it is ours, untouched, and equal to ``files``."""
    if folder.is_symlink():
        return Copy("foreign", f"a symbolic link to {os.readlink(folder)}")
    if not folder.exists():
        return Copy("absent")
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        recorded, version = dict(record["files"]), str(record["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return Copy("foreign", "this command did not make it")
    present = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or (path.is_file() and name != RECORD and "__pycache__" not in path.parts):
            present[name] = "" if path.is_symlink() else _digest(path.read_bytes())
    changed = sorted(name for name in {*recorded, *present} if recorded.get(name) != present.get(name))
    if changed:
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        return Copy("edited", f"changed since it was installed: {', '.join(changed[:3])}{more}")
    if present == {name: _digest(content) for name, content in files.items()}:
        return Copy("current", f"version {version}")
    return Copy("stale", f"version {version}, this package has {skill_version()}")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _replace(folder: Path, files: dict[str, bytes]) -> None:
    """Write the files beside ``folder`` and rename the result onto it, so that a client never reads half a copy."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{NAME}-", dir=folder.parent))
    try:
        new = work / "new"
        for name, content in files.items():
            path = new / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        record = {"version": skill_version(), "files": {name: _digest(content) for name, content in files.items()}}
        (new / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        old = folder.rename(work / "old") if folder.exists() else None
        try:
            new.rename(folder)
        except OSError:
            if old is not None:
                old.rename(folder)
            raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
