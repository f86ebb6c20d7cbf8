"""Write a chart to a file by its suffix, whole or not at all; ``roofline plot``; the figure in Python and in a notebook."""

from __future__ import annotations

import html as escaping
import os
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from roofline_engine.files import read_json, read_text, write_whole
from roofline_engine.units import printable

from .changes import compare
from .model import Chart
from .sources import read_ceilings, read_document, read_rows, table_chart

#: How to install the renderers, in one line.
EXTRA = "the figure needs the extra 'plot': pip install 'pytest-roofline[plot]'"
_RENDERERS = ("vl_convert", "narwhals")
_TERMINAL = ("plotille",)


class MissingExtraError(ValueError):
    """The extra ``plot`` is not installed."""


def require_extra(modules: Sequence[str] = _RENDERERS) -> None:
    """Raise MissingExtraError, in one line, unless these modules of the extra ``plot`` are installed."""
    from importlib.util import find_spec

    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise MissingExtraError(f"{EXTRA} (not found: {', '.join(missing)})")


# The renderers are imported where they are used: they take most of a second, and one file needs one of them.


def svg(chart: Chart) -> str:
    """Return the drawing as one SVG document; a point has its name as a title, which browsers show."""
    import vl_convert

    drawn = str(vl_convert.vega_to_svg(vega(chart)))
    label = escaping.escape(chart.title)
    drawn = drawn.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
    drawn = _PLACE.sub(lambda place: _LONG.sub(_round, place[0]), drawn)
    first = min(map(int, _CLIP.findall(drawn)), default=0)
    drawn = _CLIP.sub(lambda clip: f"clip{int(clip[1]) - first}", drawn)
    return _POINT.sub(r"\1><title>\2</title></path>", drawn) + "\n"


#: In the SVG of Vega: a point, which is a path with a description.
_POINT = re.compile(r'(<path aria-label="([^"]*)"[^>]*)/>')
#: The number of a clip, which counts the drawings of the process.
_CLIP = re.compile(r"\bclip(\d+)")
#: The attributes of a place, and a number in them with more digits than a pixel needs.
_PLACE, _LONG = re.compile(r' (?:transform|d|x2|y2)="[^"]*"'), re.compile(r"-?\d+\.\d{3,}")


def _round(number: re.Match[str]) -> str:
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")


def png(chart: Chart) -> bytes:
    """Return the drawing as a picture with two pixels a point."""
    import vl_convert

    return bytes(vl_convert.vega_to_png(vega(chart), scale=2))


def pdf(chart: Chart) -> bytes:
    """Return the drawing as one PDF page of its size."""
    import vl_convert

    return bytes(vl_convert.vega_to_pdf(vega(chart)))


def vega(chart: Chart) -> dict[str, Any]:
    """Return the Vega specification of the drawing."""
    from . import draw, style
    from .layout import arrange

    return draw.specification(chart, arrange(chart, style.legend(chart)))


def vega_lite(chart: Chart) -> dict[str, Any]:
    """Return the Vega-Lite specification."""
    from . import style
    from . import vega as lite
    from .layout import arrange

    return lite.specification(chart, arrange(chart, style.legend(chart)))


def vega_lite_text(chart: Chart) -> str:
    from .vega import text

    return text(vega_lite(chart))


def vega_text(chart: Chart) -> str:
    from .vega import text

    return text(vega(chart))


def html(chart: Chart) -> str:
    """Return the interactive page, with the runtime of Vega (0.9 MB)."""
    from .page import page

    return page(chart, engine())


def engine() -> str:
    """Return the JavaScript of Vega, Vega-Lite and Vega-Embed. The first call takes seconds, then it is cached."""
    from importlib.metadata import version

    import vl_convert

    from ..ceilings.store import folder
    from .vega import VERSION

    path = folder() / f"vega-{version('vl-convert-python')}.js"
    try:
        text = read_text(os.fspath(path))
    except ValueError:
        text = ""
    if _ENGINE_END.search(text):
        return text
    text = str(vl_convert.javascript_bundle(_ENGINE_NAMES, vl_version=VERSION))
    if not _ENGINE_END.search(text):
        raise ValueError("vl-convert bundles Vega in an unknown form. Install vl-convert-python 1.9")
    with suppress(OSError):  # the cache only saves time
        write_whole(os.fspath(path), text)
    return text


#: The last statements of the bundle: the names that the page and the live exports use.
_ENGINE_NAMES = "window.vegaEmbed=vegaEmbed;window.vegaLite=vegaLite;"
_ENGINE_END = re.compile(r"window\.vegaLite=\w+;\s*\Z")


TEXTS: dict[str, Callable[[Chart], str]] = {
    ".html": html,
    ".svg": svg,
    ".vl.json": vega_lite_text,
    ".vg.json": vega_text,
}
BYTES: dict[str, Callable[[Chart], bytes]] = {".png": png, ".pdf": pdf}
SUFFIXES = (".html", ".svg", ".png", ".pdf", ".vl.json", ".vg.json")


def suffix_of(path: str) -> str:
    """Return the suffix of ``SUFFIXES`` in a file's name.

    Raises:
        ValueError: for another suffix.
    """
    name = os.path.basename(path).lower()
    for suffix in SUFFIXES:
        if name.endswith(suffix) and name != suffix:
            return suffix
    raise ValueError(f"{path}: expected a file that ends in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")


def write(chart: Chart, path: str, kind: str | None = None) -> None:
    """Write the chart to ``path``, as ``write_whole`` does. kind: the suffix, when the name has none.

    Raises:
        ValueError: for an unknown suffix, and when the extra is missing.
        OSError: when the file cannot be written; an existing file stays as it was.
    """
    suffix = kind or suffix_of(path)
    require_extra()
    content: str | bytes = TEXTS[suffix](chart) if suffix in TEXTS else BYTES[suffix](chart)
    write_whole(path, content)


# ``roofline plot``.


def configure(parser: ArgumentParser) -> None:
    """Add the options of ``roofline plot``."""
    what = "a report, an artifact, a table in JSON, or measured ceilings alone; with several, the changes from run to run"
    parser.add_argument("paths", metavar="REPORT", nargs="+", help=what)
    suffixes = f"the file to write; ends in {', '.join(SUFFIXES)}; repeatable (default: draw in the terminal)"
    parser.add_argument("-o", "--output", metavar="FILE", action="append", default=[], help=suffixes)
    parser.add_argument(
        "--ceilings",
        metavar="FILE",
        help="adds caches and lower ceilings to a report's roofs: output of roofline peaks measure --json, rocprof-compute's "
        "roofline.csv, or JSON with bandwidths and ceilings",
    )
    parser.add_argument("--device", metavar="NAME", help="draw the rows of this device (default: the device with most rows)")
    parser.add_argument("--title", metavar="TEXT", help="replaces the generated title")
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    """Write the figure to each file, or draw it in the terminal.

    Raises:
        ValueError, OSError: for bad usage, an unreadable input and an unwritable output, in one line.
    """
    for path in options.output:
        suffix_of(path)
    require_extra(_RENDERERS if options.output else _TERMINAL)
    ceilings = read_ceilings(options.ceilings) if options.ceilings else None
    runs = []
    for path, label in zip(options.paths, _labels(options.paths)):
        runs.append((label, read_document(read_json(path), label, options.device, options.title, ceilings)))
    chart = runs[0][1] if len(runs) == 1 else compare(runs, options.title)
    for path in options.output:
        write(chart, path)
        print(f"wrote {printable(path)}")
    if not options.output:
        print(_terminal(chart), end="")
    return 0


#: The braille characters, as an encoding without them shows them: a space, and a dot for any other.
_PLAIN = {0x2800 + at: "." if at else " " for at in range(256)} | {ord(one): two for one, two in zip("│┤└─┬→…", "||+-+>~")}


def _terminal(chart: Chart) -> str:
    """Return the drawing for this terminal: at its size and in its encoding."""
    from shutil import get_terminal_size

    from .terminal import draw

    size = get_terminal_size((100, 40))
    text = draw(chart, max(50, min(size.columns, 140)), max(12, min(size.lines - 14, 30)))
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return text.translate(_PLAIN).encode("ascii", "replace").decode()
    return text


def _labels(paths: Sequence[str]) -> list[str]:
    """Return the names of the files, with their folders where two have one name."""
    names = [os.path.basename(path) for path in paths]
    return [printable(path if names.count(name) > 1 else name) for path, name in zip(paths, names)]


# The figure in Python.


class RooflineFigure:
    """A figure that a notebook shows."""

    def __init__(self, chart: Chart) -> None:
        self.chart = chart  #: what is drawn: kernels with their percentages, and the excluded rows

    def _repr_html_(self) -> str:
        page = escaping.escape(html(self.chart))
        return f'<iframe srcdoc="{page}" style="width:100%;height:780px;border:0" title="roofline"></iframe>'

    def to_svg(self) -> str:
        return svg(self.chart)

    def to_html(self) -> str:
        """Return the whole page, with the live exports."""
        return html(self.chart)

    def to_vega_lite(self) -> dict[str, Any]:
        return vega_lite(self.chart)

    def to_vega(self) -> dict[str, Any]:
        return vega(self.chart)

    def save(self, path: str) -> None:
        """Write the figure by the suffix of ``path``: .html, .svg, .png, .pdf, .vl.json or .vg.json."""
        write(self.chart, str(path))


def roofline_figure(
    rows: Any, ceilings: Mapping[str, Any] | None = None, *, title: str | None = None, device: str | None = None
) -> RooflineFigure:
    """Return the roofline figure of ``rows`` under ``ceilings``.

    Args:
        rows: a list of dicts, or a pandas, polars or arrow table, with ``name`` (or an index of names), ``intensity``
            (FLOP/byte) or ``intensities`` by memory level, and ``flops_s`` or ``gflops``; optionally ``dtype``, ``share``
            (percent of the time) and further columns. Or the parsed JSON of a report or an artifact, which has its own roofs.
        ceilings: ``{"ceilings": [{"name", "flops_s" or "gflops"}], "bandwidths": [{"name", "level", "bytes_s" or "gbs"}]}``.
        title: replaces the generated title.
        device: draw the rows of this device, for a report with several.

    Raises:
        ValueError: for an invalid roof and when the extra ``plot`` is missing, in one line.
    """
    require_extra()
    if isinstance(rows, Mapping):
        if ceilings is not None:
            raise ValueError("ceilings: a report, an artifact or a table with roofs has its own")
        return RooflineFigure(read_document(rows, "rows", device, title))
    if device is not None:
        raise ValueError("device: selects one of several devices of a report, rows have one set of roofs")
    if ceilings is not None and not isinstance(ceilings, Mapping):
        raise ValueError(f"ceilings is {type(ceilings).__name__}, expected a dict with ceilings and bandwidths")
    return RooflineFigure(table_chart(read_rows(rows), ceilings or {}, "ceilings", title))
