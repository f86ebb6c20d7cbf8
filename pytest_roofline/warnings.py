"""The warnings of a run, for ``filterwarnings``: a measurement that contradicts what was predicted, and nothing else."""

from __future__ import annotations

import pytest


class PytestRooflineWarning(pytest.PytestWarning):
    """A contradiction between a measurement and its prediction."""

    __module__ = "pytest_roofline"


class ExceedsTargetWarning(PytestRooflineWarning):
    """A speedup over what was thought attainable: the target was too low."""

    __module__ = "pytest_roofline"


class BeyondRoofWarning(PytestRooflineWarning):
    """A rate beyond the roof: the model, the peak or the measurement is wrong."""

    __module__ = "pytest_roofline"
