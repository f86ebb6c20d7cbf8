"""The figure from Python: of rows, of a data frame, or of a report, and shown by a notebook."""

from __future__ import annotations

import html as escaping
from collections.abc import Mapping, Sequence
from typing import Any

from . import output, plain
from .model import Model


class RooflineFigure:
    """A figure that shows itself in a notebook. model: what it draws, with its percentages and what it left out."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def _repr_html_(self) -> str:
        page = escaping.escape(output.html(self.model, live=False))
        return f'<iframe srcdoc="{page}" style="width:100%;height:780px;border:0" title="roofline"></iframe>'

    def to_svg(self) -> str:
        return output.svg(self.model)

    def to_html(self) -> str:
        """The whole page, with the live exports."""
        return output.html(self.model)

    def to_vega_lite(self) -> dict[str, Any]:
        return output.vega_lite(self.model)

    def to_vega(self) -> dict[str, Any]:
        from . import vega

        return vega.compiled(self.to_vega_lite())

    def save(self, path: str) -> None:
        """Write it by the suffix of ``path``: .html, .svg, .png, .pdf, .vl.json or .vg.json."""
        output.write(self.model, str(path))


def roofline_figure(
    rows: Any, ceilings: Mapping[str, Any] | None = None, *, title: str | None = None, device: str | None = None
) -> RooflineFigure:
    """The roofline figure of ``rows`` under ``ceilings``.

    rows: dicts, or a pandas, polars or arrow table, with ``name``, ``intensity`` (FLOP/byte) or ``intensities`` by level, and
    ``flops_s`` or ``gflops``; ``dtype``, ``share`` (percent of the time) and others where they are known. Or the parsed JSON of
    a report or an artifact, which has its own roofs.
    ceilings: ``{"ceilings": [{"name", "flops_s" or "gflops"}], "bandwidths": [{"name", "level", "bytes_s" or "gbs"}]}``.
    device: whose rows, where a report has several.

    Raises:
        ValueError: for a roof that cannot be meant, and where the extra ``plot`` is missing, in one line.
    """
    output.needed()
    if isinstance(rows, Mapping):
        if ceilings is not None:
            raise ValueError("ceilings: a report, an artifact or a table with its roofs has its own")
        return RooflineFigure(output.of_document(rows, "rows", device, title))
    if device is not None:
        raise ValueError("device: rows have one set of roofs, there is nothing to choose")
    return RooflineFigure(plain.model(_rows(rows), ceilings or {}, "ceilings", title))


def _rows(rows: Any) -> Sequence[Mapping[str, Any]]:
    if isinstance(rows, Sequence) and not isinstance(rows, (str, bytes)):
        return rows
    import narwhals as nw

    try:
        frame = nw.from_native(rows, eager_only=True)
    except TypeError:
        told = "a list of dicts or a pandas, polars or arrow table"
        raise ValueError(f"rows is {type(rows).__name__}, expected {told}") from None
    found: list[dict[str, Any]] = frame.rows(named=True)
    if frame.implementation.is_pandas_like():  # whose NaN is a cell without a value
        found = [{key: None if value != value else value for key, value in row.items()} for row in found]
    return found
