"""The warnings of a run, for ``filterwarnings``. The package exports them."""

from __future__ import annotations

import pytest


class PytestRooflineWarning(pytest.PytestWarning):
    """A measurement contradicts its prediction."""

    __module__ = "pytest_roofline"


class ExceedsTargetWarning(PytestRooflineWarning):
    """A speedup is larger than predicted: the prediction's target was too low."""

    __module__ = "pytest_roofline"


class BeyondRoofWarning(PytestRooflineWarning):
    """A rate is higher than the device allows: the work model, the peak or the measurement is wrong."""

    __module__ = "pytest_roofline"
