"""Write a chart to a file by its suffix, whole or not at all; `roofline plot`; the chart from Python and in a notebook."""

from __future__ import annotations

import html as escaping
import os
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from roofline_engine.arguments import Option, Options
from roofline_engine.files import read_json, write_whole
from roofline_engine.units import printable

from . import sources
from .model import Model, shortened

#: How to get what the figure needs, in one line.
EXTRA = "the figure needs the extra 'plot': pip install 'pytest-roofline[plot]'"
_NEEDS = ("plotpress", "vl_convert", "narwhals")


class MissingExtraError(ValueError):
    """What draws is not installed."""


def needed() -> None:
    """Raise MissingExtraError, in one line, where what draws is not installed."""
    from importlib.util import find_spec

    missing = [name for name in _NEEDS if find_spec(name) is None]
    if missing:
        raise MissingExtraError(f"{EXTRA} (not found: {', '.join(missing)})")


def of_document(document: Any, label: str, device: str | None = None, title: str | None = None, ceilings: Any = None) -> Model:
    """The model of a parsed report, artifact, plain table, or record of a CPU's ceilings.

    ceilings: such a record, whose caches and lower ceilings are drawn beside the roofs of a report's rows.

    Raises:
        ValueError: for a document of no kind known, in one line that names ``label``.
    """
    title = None if title is None else shortened(title, 300)
    if isinstance(document, Mapping):
        if isinstance(document.get("entries"), list):
            more = None if ceilings is None else sources.measured(ceilings, "--ceilings")
            return sources.report_chart(document, label, device, title, more)
        if ceilings is not None:
            raise ValueError(f"{label}: no rows in it that measured ceilings could be drawn over, its roofs are its own")
        if sources.is_record(document):
            return sources.machine_chart(document, label, title)
        if isinstance(document.get("kernels"), list):
            if device is not None:
                raise ValueError(f"{label}: a table has one set of roofs, --device has nothing to choose")
            return sources.table_chart(document["kernels"], document, label, title)
    expected = "a report or an artifact (entries), a table (kernels, ceilings, bandwidths), or measured ceilings"
    raise ValueError(f"{label}: nothing to draw in it: expected {expected}")


def svg(model: Model) -> str:
    """The drawing as one SVG document."""
    from . import draw
    from .layout import arrange

    return draw.draw_chart(model, arrange(model, draw.legend(model))).svg() + "\n"


def png(model: Model) -> bytes:
    """The drawing as a picture of two pixels a point."""
    import vl_convert

    return bytes(vl_convert.svg_to_png(svg(model), scale=2))


def pdf(model: Model) -> bytes:
    """The drawing as a page of its size."""
    import vl_convert

    return bytes(vl_convert.svg_to_pdf(svg(model)))


def vega_lite(model: Model) -> dict[str, Any]:
    """The Vega-Lite specification."""
    from . import draw, vega
    from .layout import arrange

    return vega.specification(model, arrange(model, draw.legend(model)))


def vega_lite_text(model: Model) -> str:
    from . import vega

    return vega.text(vega_lite(model))


def vega_text(model: Model) -> str:
    from . import vega

    return vega.text(vega.compiled(vega_lite(model)))


def html(model: Model, live: bool = True) -> str:
    """The interactive page; live: with Vega's engine in it, 0.9 MB, for the exports that are rendered."""
    from .page import page

    return page(model, engine() if live else None)


def engine() -> str:
    """vl-convert's bundled page around the place of a specification. It takes seconds the first time, then it is cached."""
    from importlib.metadata import version

    import vl_convert

    from ..ceilings.store import folder
    from .page import MARKER

    kept = folder() / f"vega-page-{version('vl-convert-python')}.html"
    try:
        text = kept.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        text = ""
    if text.count(MARKER) == 1 and text.rstrip().endswith("</html>"):
        return text
    from . import vega

    stand_in = {"$schema": vega.SCHEMA, "data": {"values": []}, "mark": "point"}
    text = str(vl_convert.vegalite_to_html(stand_in, bundle=True, vl_version=vega.VERSION))
    text = _marked(text, MARKER)
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_whole(os.fspath(kept), text)
    except OSError:  # a cache only saves time
        pass
    return text


def _marked(text: str, marker: str) -> str:
    """The page with ``marker`` for its specification, which is the one line that says ``const spec =``."""
    head, found, rest = text.rpartition("const spec = ")
    end = rest.find("\n")
    if not found or end < 0:
        raise ValueError("this version of vl-convert bundles another page than is known: 1.9 is known to do")
    return f"{head}{found}{marker};{rest[end:]}"


TEXTS: dict[str, Callable[[Model], str]] = {
    ".html": html,
    ".svg": svg,
    ".vl.json": vega_lite_text,
    ".vg.json": vega_text,
}
BYTES: dict[str, Callable[[Model], bytes]] = {".png": png, ".pdf": pdf}
SUFFIXES = (".html", ".svg", ".png", ".pdf", ".vl.json", ".vg.json")


def suffix_of(path: str) -> str:
    """The type of a file's name.

    Raises:
        ValueError: for a suffix that is none of ``SUFFIXES``.
    """
    name = os.path.basename(path).lower()
    for suffix in SUFFIXES:
        if name.endswith(suffix) and name != suffix:
            return suffix
    raise ValueError(f"{path}: expected a file that ends in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")


def write(model: Model, path: str, kind: str | None = None) -> None:
    """Write the figure to ``path``, whose folders are made; kind: its suffix, where its name does not say.

    Raises:
        ValueError: for a suffix that is not known, and where the extra is missing.
        OSError: where it cannot be written; the file that was there stays as it was.
    """
    suffix = kind or suffix_of(path)
    needed()
    made: str | bytes = TEXTS[suffix](model) if suffix in TEXTS else BYTES[suffix](model)
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, made)
    except OSError as error:
        if error.strerror is None:
            raise
        raise OSError(f"{printable(path)}: not written: {error.strerror}") from None


OPTIONS = (
    Option("path", "REPORT", "a report, an artifact, a table in JSON, or measured ceilings alone", required=True),
    Option("--output", "FILE", f"ends in {', '.join(SUFFIXES)}; repeatable", many=True, required=True, short="o"),
    Option("--ceilings", "FILE", "what roofline peaks measure --json printed: caches, no FMA, scalar, beside a report's roofs"),
    Option("--device", "NAME", "whose rows, where a report has several devices"),
    Option("--title", "TEXT", "in place of the one that says what to see"),
)


def run(options: Options) -> int:
    """Write the figure to each file.

    Raises:
        ValueError, OSError: for bad usage, a file that cannot be read and one that cannot be written, in one line.
    """
    for path in options.output:
        suffix_of(path)
    needed()
    label = printable(os.path.basename(options.path))
    ceilings = read_json(options.ceilings) if options.ceilings else None
    model = of_document(read_json(options.path), label, options.device, options.title, ceilings)
    for path in options.output:
        write(model, path)
        print(f"wrote {printable(path)}")
    return 0


class RooflineFigure:
    """A figure that shows itself in a notebook. model: what it draws, with its percentages and what it left out."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def _repr_html_(self) -> str:
        page = escaping.escape(html(self.model, live=False))
        return f'<iframe srcdoc="{page}" style="width:100%;height:780px;border:0" title="roofline"></iframe>'

    def to_svg(self) -> str:
        return svg(self.model)

    def to_html(self) -> str:
        """The whole page, with the live exports."""
        return html(self.model)

    def to_vega_lite(self) -> dict[str, Any]:
        return vega_lite(self.model)

    def to_vega(self) -> dict[str, Any]:
        from . import vega

        return vega.compiled(self.to_vega_lite())

    def save(self, path: str) -> None:
        """Write it by the suffix of ``path``: .html, .svg, .png, .pdf, .vl.json or .vg.json."""
        write(self.model, str(path))


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
    needed()
    if isinstance(rows, Mapping):
        if ceilings is not None:
            raise ValueError("ceilings: a report, an artifact or a table with its roofs has its own")
        return RooflineFigure(of_document(rows, "rows", device, title))
    if device is not None:
        raise ValueError("device: rows have one set of roofs, there is nothing to choose")
    if ceilings is not None and not isinstance(ceilings, Mapping):
        raise ValueError(f"ceilings is {type(ceilings).__name__}, expected a dict with ceilings and bandwidths")
    return RooflineFigure(sources.table_chart(_rows(rows), ceilings or {}, "ceilings", title))


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
