"""Roofline headroom for kernels: ``pytest --roofline`` and the ``roofline`` command around ``roofline_engine``.

The names below are the public API; every other module and name may change. Each is imported when it is first used: without
``--roofline`` the package costs pytest three small modules.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from roofline_engine.peaks import Peaks

    from .plot import roofline_figure
    from .records.source import Adapter, RecordRow
    from .row import Row
    from .timing import compare, measure
    from .warnings import BeyondRoofWarning, ExceedsTargetWarning, PytestRooflineWarning

__all__ = [
    "Adapter",
    "BeyondRoofWarning",
    "ExceedsTargetWarning",
    "Peaks",
    "PytestRooflineWarning",
    "RecordRow",
    "Row",
    "compare",
    "measure",
    "roofline_figure",
]

_MODULES = {
    "Adapter": "pytest_roofline.records.source",
    "Peaks": "roofline_engine.peaks",
    "RecordRow": "pytest_roofline.records.source",
    "Row": "pytest_roofline.row",
    "compare": "pytest_roofline.timing",
    "measure": "pytest_roofline.timing",
    "roofline_figure": "pytest_roofline.plot",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_MODULES.get(name, "pytest_roofline.warnings")), name)
