"""Writing the figure: the type by the file's suffix, whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from roofline_engine.artifact import write_whole
from roofline_engine.units import printable

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
    from . import machine, plain, rows

    title = None if title is None else shortened(title, 300)
    if isinstance(document, Mapping):
        if isinstance(document.get("entries"), list):
            more = None if ceilings is None else machine.measured(ceilings, "--ceilings")
            return rows.model(document, label, device, title, more)
        if ceilings is not None:
            raise ValueError(f"{label}: no rows in it that measured ceilings could be drawn over, its roofs are its own")
        if machine.is_record(document):
            return machine.model(document, label, title)
        if isinstance(document.get("kernels"), list):
            if device is not None:
                raise ValueError(f"{label}: a table has one set of roofs, --device has nothing to choose")
            return plain.model(document["kernels"], document, label, title)
    expected = "a report or an artifact (entries), a table (kernels, ceilings, bandwidths), or measured ceilings"
    raise ValueError(f"{label}: nothing to draw in it: expected {expected}")


def svg(model: Model) -> str:
    """The drawing as one SVG document."""
    from . import marks
    from .drawing import draw
    from .layout import arrange

    return draw(model, arrange(model, marks.legend(model))).svg() + "\n"


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
    from . import marks, vega
    from .layout import arrange

    return vega.specification(model, arrange(model, marks.legend(model)))


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

    from ..ceilings.cache import folder
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
