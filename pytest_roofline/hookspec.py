"""The hooks of this plugin, for a conftest.py or another plugin.

Write an implementation with ``@pytest.hookimpl(optionalhook=True)``, so that it is no error where this plugin is off or absent.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import pluggy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    import pytest

    from roofline_engine.peaks import Peaks

    from .records.source import Adapter
    from .row import Row

_hookspec = pluggy.HookspecMarker("pytest")  # as pytest.hookspec; ``roofline check`` reads this without pytest, half its start


@_hookspec(firstresult=True)
def pytest_roofline_work(item: pytest.Item, params: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The work of a test's kernel, as the keywords of the ``roofline`` marker; None to leave it to the next source.

    ``params`` are the test's parametrize arguments. A marker or a call of the fixture stands before this hook.
    """


@_hookspec(firstresult=True)
def pytest_roofline_peaks(config: pytest.Config, device: str) -> Peaks | None:
    """The peaks of ``device`` (a name, a gfx, ``cpu``), in place of the table's and of measured ones."""


@_hookspec
def pytest_roofline_annotation(item: pytest.Item, annotation: Row) -> None:
    """Called with each finished row, in the process that ran the test."""


@_hookspec
def pytest_roofline_report(config: pytest.Config, report: dict[str, Any]) -> None:
    """Called once with the report's document, before anything is written; it may be added to."""


@_hookspec
def pytest_roofline_ingest() -> Iterable[Adapter] | None:
    """Adapters of more record formats for ``roofline check``, which loads the entry points of the group ``pytest_roofline``."""
