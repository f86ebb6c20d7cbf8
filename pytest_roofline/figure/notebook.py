"""The figure from Python: of rows, of a data frame, or of a report, and shown by a notebook."""

from __future__ import annotations

import html as escaping
from collections.abc import Mapping, Sequence
from decimal import Decimal
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

    rows: dicts, or a pandas, polars or arrow table, with ``name`` (or an index of names), ``intensity`` (FLOP/byte) or
    ``intensities`` by level, and ``flops_s`` or ``gflops``; ``dtype``, ``share`` (percent of the time) and others where they
    are known. Or the parsed JSON of a report or an artifact, which has its own roofs.
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
    if ceilings is not None and not isinstance(ceilings, Mapping):
        raise ValueError(f"ceilings is {type(ceilings).__name__}, expected a dict with ceilings and bandwidths")
    return RooflineFigure(plain.model(_rows(rows), ceilings or {}, "ceilings", title))


def _rows(rows: Any) -> list[Any]:
    if isinstance(rows, Sequence) and not isinstance(rows, (str, bytes)):
        return [_row(row) for row in rows]
    import narwhals as nw
    from narwhals.exceptions import NarwhalsError

    try:
        frame = nw.from_native(rows, eager_only=True)
    except TypeError:
        told = "a list of dicts or a pandas, polars or arrow table"
        raise ValueError(f"rows is {type(rows).__name__}, expected {told}") from None
    except NarwhalsError as error:  # two columns of one name
        raise ValueError(f"rows: {' '.join(str(error).split())}") from None
    found: list[dict[str, Any]] = [_row(row) for row in frame.rows(named=True)]
    if frame.implementation.is_pandas_like():  # whose NaN is a cell without a value
        found = [{key: None if value != value else value for key, value in row.items()} for row in found]
    if "name" not in frame.columns:
        for row, name in zip(found, _of_index(nw.maybe_get_index(frame))):
            row["name"] = name
    return found


def _of_index(index: Any) -> list[Any]:
    """Names that a pandas frame has in its index: its level of that name, else all of it where it is words."""
    if index is None:
        return []
    if "name" in index.names:
        return [_cell(one) for one in index.get_level_values("name")]
    found = [" ".join(map(str, one)) if isinstance(one, tuple) else one for one in index]
    return found if all(isinstance(one, str) for one in found) else []


def _row(row: Any) -> Any:
    return {key: _cell(value) for key, value in row.items()} if isinstance(row, Mapping) else row


def _cell(value: Any) -> Any:
    """A value as JSON would have it: what decimals, the scalars of numpy and the missing values of pandas stand for."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, Mapping):
        return _row(value)
    if isinstance(value, Decimal):
        return float(value)
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    return value.item() if getattr(value, "shape", None) == () else value
