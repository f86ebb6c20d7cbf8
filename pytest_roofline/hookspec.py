"""The hooks of this plugin, for a conftest.py or another plugin. docs/hooks.md has an example of each.

Write an implementation with ``@pytest.hookimpl(optionalhook=True)``: then it is no error where this plugin is absent.

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

#: The same as ``pytest.hookspec``. ``roofline check`` reads this module without pytest, which would be half of its start-up.
_hookspec = pluggy.HookspecMarker("pytest")


@_hookspec(firstresult=True)
def pytest_roofline_work(item: pytest.Item, params: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the work of a test's kernel, as keywords of the ``roofline`` marker; None to leave it to the next source.

    A marker or a call of the fixture comes before this hook.

    :param item: the test.
    :param params: the test's parametrize arguments.
    """


@_hookspec(firstresult=True)
def pytest_roofline_peaks(config: pytest.Config, device: str) -> Peaks | None:
    """Return the peaks of a device, in place of the table and of measured ceilings; None for those.

    :param config: pytest's configuration.
    :param device: a product, an architecture, or ``cpu``.
    """


@_hookspec
def pytest_roofline_annotation(item: pytest.Item, annotation: Row) -> None:
    """Get each finished row, in the process that ran the test.

    :param item: the test.
    :param annotation: its row; a test has several when it measures several times.
    """


@_hookspec
def pytest_roofline_report(config: pytest.Config, report: dict[str, Any]) -> None:
    """Get the report once, before anything is written, and add to it.

    :param config: pytest's configuration.
    :param report: the document that ``roofline schema report`` describes.
    """


@_hookspec
def pytest_roofline_ingest() -> Iterable[Adapter] | None:
    """Return adapters of more record formats for ``roofline check``.

    The command runs without pytest: it asks the packages of the entry-point group ``pytest_roofline``.
    """
