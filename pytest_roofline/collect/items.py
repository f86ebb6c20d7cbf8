"""What the collected files have in common: a child process per item, and the cases that the item gets from it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ..config import Settings
from ..testcase import Case
from .child import ChildExit, excerpt, run


class ChildFile(pytest.File):
    """A file that this process never imports."""

    def __init__(self, *, settings: Settings, **of_pytest: Any) -> None:
        super().__init__(**of_pytest)
        self.settings = settings

    def run(
        self,
        item: pytest.Item,
        scratch: Path,
        arguments: Sequence[str] = (),
        *,
        main: Sequence[str] | None = None,
        folder: str = "first",
        cwd: Path | None = None,
    ) -> ChildExit:
        """Run this file, or ``child_main`` with the arguments ``main``, and add its output to the report of ``item``."""
        try:
            child_exit = run(
                self.path if main is None else None,
                arguments if main is None else main,
                folder=folder,
                cwd=cwd or self.path.parent,
                limit=self.settings.item_timeout,
                scratch=scratch,
                paths=[str(path) for path in self.config.getini("pythonpath")],
            )
        except OSError as error:
            pytest.fail(f"{self.path.name} could not be started: {error}", pytrace=False)
        for name, path in (("stdout", child_exit.out), ("stderr", child_exit.err)):
            text = excerpt(path)
            if text:
                item.add_report_section("call", name, text)
        return child_exit


class ChildItem(pytest.Item):
    """A test whose rows come from a child process.

    ``testcase.Cases`` takes the attribute ``roofline_cases`` of an item as the cases of that item.
    """

    def __init__(self, *, line: int = 0, **of_pytest: Any) -> None:
        super().__init__(**of_pytest)
        self.line = line
        self.roofline_cases: list[Case] = []

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.line, self.name


@contextmanager
def scratch() -> Iterator[Path]:
    """Make a temporary folder for the output of one child."""
    try:
        temporary = tempfile.TemporaryDirectory(prefix="roofline-", ignore_cleanup_errors=True)
    except OSError as error:
        pytest.fail(f"no temporary folder for its output: {error}", pytrace=False)
    with temporary as folder:
        yield Path(folder).resolve()


def unique_names(names: Sequence[str]) -> list[str]:
    """Return distinct item names for a file, without ``::``, which separates the parts of a nodeid."""
    unique: dict[str, None] = {}
    for name in names:
        base = name.replace("::", ":")
        candidate, number = base, 2
        while candidate in unique:
            candidate, number = f"{base}-{number}", number + 1
        unique[candidate] = None
    return list(unique)
