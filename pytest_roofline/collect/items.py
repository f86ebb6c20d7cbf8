"""What the collected files have in common: items with cases of their own, which a child process has the figures of."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ..config import Settings
from ..testcase import Case
from .child import Ended, excerpt, run


class ChildFile(pytest.File):
    """A file that is never imported here."""

    def __init__(self, *, settings: Settings, **of_pytest: Any) -> None:
        super().__init__(**of_pytest)
        self.settings = settings

    def run(
        self,
        item: pytest.Item,
        scratch: Path,
        file: Path | None = None,
        arguments: Sequence[str] = (),
        folder: str = "first",
        cwd: Path | None = None,
    ) -> Ended:
        """Run a Python file, this one unless another is given, and keep what it wrote for the report of ``item``."""
        paths = [str(path) for path in self.config.getini("pythonpath")]
        try:
            ended = run(
                file or self.path,
                arguments,
                folder=folder,
                cwd=cwd or self.path.parent,
                limit=self.settings.item_timeout,
                scratch=scratch,
                paths=paths,
            )
        except OSError as error:
            pytest.fail(f"{self.path.name} could not be started: {error}", pytrace=False)
        for name, path in (("stdout", ended.out), ("stderr", ended.err)):
            text = excerpt(path)
            if text:
                item.add_report_section("call", name, text)
        return ended


class ChildItem(pytest.Item):
    """A test that has its rows from a child process. ``roofline_cases``: what ``cases.Cases`` takes as it is."""

    def __init__(self, *, line: int = 0, **of_pytest: Any) -> None:
        super().__init__(**of_pytest)
        self.line = line
        self.roofline_cases: list[Case] = []

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.line, self.name


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for what one child writes."""
    try:
        made = tempfile.TemporaryDirectory(prefix="roofline-", ignore_cleanup_errors=True)
    except OSError as error:
        pytest.fail(f"no temporary folder for what it writes: {error}", pytrace=False)
    with made as folder:
        yield Path(folder).resolve()


def own_names(names: Sequence[str]) -> list[str]:
    """The names of the items of a file, each its own; ``::`` would part a nodeid."""
    taken: set[str] = set()
    found = []
    for name in names:
        plain = name.replace("::", ":")
        own, number = plain, 2
        while own in taken:
            own, number = f"{plain}-{number}", number + 1
        taken.add(own)
        found.append(own)
    return found
