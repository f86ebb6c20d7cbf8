"""The roofline figure: a chart as plain values, and the renderers that draw it.

Entry points: ``roofline_figure`` in Python, ``roofline plot``, and ``--roofline-report=html:FILE``. The renderers are imported
when something is drawn.
"""

from .output import RooflineFigure, roofline_figure

__all__ = ["RooflineFigure", "roofline_figure"]
