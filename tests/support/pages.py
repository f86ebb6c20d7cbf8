"""The documentation's pages: their code blocks, and their commands run as they stand."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from support.tool import ROOT

COMMAND_TIMEOUT_S = 600
#: Added to every run of pytest: plugins that no page uses are not loaded, and benchmarks take little time.
QUICK = "-p no:cacheprovider -p no:hypothesispytest --benchmark-max-time=0.05 --benchmark-min-rounds=3"


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def run_page(
    name: str, folder: Path, ceilings: Path, options: str = ""
) -> Iterator[tuple[str, subprocess.CompletedProcess[str]]]:
    """Run the commands of docs/``name``.md in ``folder``; each must exit as the page says and print what the page shows.

    Blocks whose first line names a file are that file, JSON is before.json, and text is the file that the line
    above names. ``options`` are added to every run of pytest.
    """
    page = ROOT / "docs" / f"{name}.md"
    if " examples/" in "".join(blocks(page, "console")):
        shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    for language in ("python", "toml"):
        for block in blocks(page, language):
            first, _, rest = block.partition("\n")
            (folder / first.removeprefix("# ")).write_text(rest)
    for file, block in re.findall(r"`(\S+)`:\n\n```text\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        (folder / file).write_text(block)
    for block in blocks(page, "json"):
        json.loads(block)
        (folder / "before.json").write_text(block)
    environment = {**os.environ, "PATH": search_path(), "COLUMNS": "120", "ROOFLINE_CACHE_DIR": str(ceilings)}
    environment["PYTEST_ADDOPTS"] = f"{QUICK} {options}"
    shown = ""
    for line in "".join(blocks(page, "console")).splitlines():
        if not line.startswith("$ "):
            text = " ".join(line.split())
            assert text in shown, f"not shown: {line}\n{shown}"
            continue
        command, _, status = line[2:].partition("  # exits ")
        done = subprocess.run(
            shlex.split(command),
            cwd=folder,
            capture_output=True,
            text=True,
            env=environment,
            check=False,
            timeout=COMMAND_TIMEOUT_S,
        )
        expected = int(status or 0)
        if command == "pytest --roofline" or command.endswith("fail-on=beyond_roof"):
            expected = done.returncode  # the reader's own tests; here the page's, some of which are meant to fail
        assert done.returncode == expected, done.stdout + done.stderr
        shown = " ".join(done.stdout.split())
        yield command, done


def search_path() -> str:
    """PATH with this environment's commands first."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
