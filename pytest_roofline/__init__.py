"""Roofline headroom for kernels: ``pytest --roofline`` and the ``roofline`` command around ``roofline_engine``.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .warnings import BeyondRoofWarning, ExceedsTargetWarning, PytestRooflineWarning

__all__ = ["BeyondRoofWarning", "ExceedsTargetWarning", "PytestRooflineWarning"]


def __getattr__(name: str) -> object:
    """The warnings by name, for ``filterwarnings``; importing them with the package would import pytest for the command."""
    if name in __all__:
        from . import warnings

        return getattr(warnings, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
