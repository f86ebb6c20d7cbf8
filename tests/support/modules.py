"""Modules that stay imported after a run of pytest in this process.

pytester drops the modules that a run imports. Libraries with extension modules do not survive a second import (torch ends the
process), and our modules would exist twice. So these are put back, and every process imports them once, in any test order.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

LIBRARIES = frozenset({"numpy", "torch", "jax", "jaxlib", "triton", "pandas", "polars", "narwhals", "pyarrow", "hypothesis"})
PLUGINS = frozenset({"pytest_benchmark", "pytest_codspeed", "xdist", "execnet"})
OURS = frozenset({"pytest_roofline", "roofline_engine", "pydantic", "pydantic_core", "rich"})
KEPT = LIBRARIES | PLUGINS | OURS


class ModuleKeeper:
    """A plugin of the runs in one test. It remembers the modules that they imported; ``restore`` puts them back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder  # the stand-ins for libraries that a test writes are in here
        self.modules: dict[str, ModuleType] = {}

    def pytest_unconfigure(self) -> None:
        for name, module in sys.modules.items():
            package = name.partition(".")[0]
            if package in KEPT and self._is_installed(sys.modules.get(package)):
                self.modules.setdefault(name, module)

    def _is_installed(self, module: ModuleType | None) -> bool:
        origin = getattr(getattr(module, "__spec__", None), "origin", None)
        return isinstance(origin, str) and not Path(origin).is_relative_to(self.folder)

    def restore(self) -> None:
        for name, module in self.modules.items():
            sys.modules.setdefault(name, module)
