"""Runs of the skill's command line, as an agent starts it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "skill" / "roofline_tools.py"
EXAMPLE = ROOT / "examples" / "worked_example"
_BYTECODE = tempfile.TemporaryDirectory()


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


def run_tool(*args: object, python: str = sys.executable, tool: Path = TOOL, **environment: str) -> Outcome:
    """Run the helper as an agent does: isolated from site-packages and from Python settings of the environment."""
    bytecode = f"pycache_prefix={_BYTECODE.name}"  # compiled once per session, outside the sources
    done = subprocess.run(
        [python, "-I", "-S", "-X", bytecode, str(tool), *map(str, args)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, **environment},
        timeout=120,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)
