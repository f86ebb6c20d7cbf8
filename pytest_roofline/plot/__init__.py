"""The roofline figure: a pure chart of it, and what draws that.

``roofline_figure`` is the way in from Python, beside ``roofline plot`` and ``--roofline-report=html:FILE``. What draws is
imported when something is drawn.
"""

from .output import RooflineFigure, roofline_figure

__all__ = ["RooflineFigure", "roofline_figure"]
