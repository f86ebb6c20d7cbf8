"""Runs of pytest in a process forked from one that has imported torch, so that torch is imported once for all of them.

The helper process starts with the first such run and ends with this process. Runs that are about a fresh process, and
platforms that cannot fork, start Python instead.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from support.tool import ROOT

PRELOADED = ["pytest", "numpy", "torch", "torch.utils.benchmark"]


@functools.cache
def fork_context() -> Any:
    """Return the context that forks from a helper with these modules; None if the platform cannot fork."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return None
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def run_forked(arguments: Sequence[str], folder: Path, environment: Mapping[str, str], timeout_s: float) -> tuple[int, str]:
    """Run ``python -m pytest`` with these arguments in ``folder``; return the exit status and the output, stderr included."""
    output = folder.with_name(f"{folder.name}.output")
    process = fork_context().Process(target=_run, args=(list(arguments), str(folder), dict(environment), str(output)))
    process.start()
    process.join(timeout_s)
    if process.is_alive():
        process.kill()
        process.join()
        raise TimeoutError(f"pytest {' '.join(arguments)} in {folder}: not done after {timeout_s} s")
    text = output.read_text(encoding="utf-8", errors="replace")
    output.unlink()
    return int(process.exitcode), text


def _run(arguments: list[str], folder: str, environment: dict[str, str], output: str) -> None:
    """Run in the forked process what ``python -m pytest`` runs in a fresh one."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path[:] = [folder, *(entry for entry in sys.path if entry not in ("", str(ROOT / "tests")))]
    with open(output, "wb") as stream:
        for descriptor in (1, 2):
            os.dup2(stream.fileno(), descriptor)
    import pytest

    sys.argv = ["pytest", *arguments]
    sys.exit(int(pytest.main(arguments)))
