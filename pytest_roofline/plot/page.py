"""Write the interactive page: plotpress' live figure with kernel rows, filters and exports, in one file."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any, NamedTuple

from roofline_engine.fields import FIELDS

from ..report.columns import shorten
from . import draw, vega
from .draw import Drawing
from .layout import NARROW, WIDE, Layout, arrange
from .model import Chart, times

#: The place of the specification in vl-convert's bundled page.
MARKER = '{"roofline":"specification"}'
#: The page loads nothing from the network, whatever a name contains. Vega's engine compiles functions from text.
_POLICY = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:"
#: With more kernels the page has one drawing, and a narrow screen scrolls.
_TWO_DRAWINGS = 1000


class Live(NamedTuple):
    """The parts of plotpress' document: the SVG, its data by id, and the script that makes it interactive."""

    svg: str
    data: dict[str, str]
    script: str


def page(chart: Chart, engine: str | None) -> str:
    """Return the page as one HTML document.

    engine: vl-convert's bundled page with ``MARKER``, for the live exports; None drops those two links.
    """
    legend = draw.legend(chart)
    layouts = {"wide": arrange(chart, legend, WIDE)}
    if len(chart.kernels) <= _TWO_DRAWINGS:
        layouts["narrow"] = arrange(chart, legend, NARROW)
    wide = layouts["wide"]
    spec = vega.specification(chart, wide)
    with ThreadPoolExecutor(1) as beside:  # Vega's compiler is a slow child process
        compiling = beside.submit(vega.compile_spec, spec, rows=False)
        drawn = {name: draw.draw_chart(chart, layout) for name, layout in layouts.items()}
        live = {name: _live(one, layouts[name]) for name, one in drawn.items()}
        data = json.dumps(_data(chart, wide, drawn), separators=(",", ":"))
        lite = json.dumps(spec, separators=(",", ":"))
        pick = json.dumps(_pick(chart, wide), separators=(",", ":"))
        compiled = json.dumps(compiling.result(), separators=(",", ":"))
    scripts = []
    if "narrow" in live:
        scripts += [f'<template id="narrow">{_drawing(live["narrow"])}</template>', f"<script>{_CHOOSE}</script>"]
    for name, text in (
        ("plotpress-pick", pick),
        ("roofline-page", data),
        ("roofline-vega-lite", lite),
        ("roofline-vega", compiled),
    ):
        scripts.append(_json(name, text))
    if engine is not None:
        scripts.append(f'<script type="text/plain" id="roofline-engine">{_inert(engine)}</script>')
    scripts.append(f"<script>{_asset('page.js')}</script>")
    scripts.append("<script>window.PLOTPRESS_OPTIONS=[];window.PLOTPRESS_OPTION_CONFIG={};</script>")
    scripts.append(f"<script>{live['wide'].script}</script>")
    return Template(_asset("page.html")).substitute(
        policy=_POLICY,
        title=html.escape(chart.title),
        style=_style(),
        live_links=_LIVE_LINKS if engine is not None else "",
        figure=_drawing(live["wide"]),
        listed=_listed(chart),
        scripts="".join(scripts),
    )


_LIVE_LINKS = """<a id="vega-lite-live" href="#vega-lite-live" target="_blank">Vega-Lite live ↗</a>
<a id="vega-live" href="#vega-live" target="_blank">Vega live ↗</a>"""
#: Before plotpress' script reads the figure.
_CHOOSE = (
    "if(matchMedia('(max-width:640px)').matches){var f=document.getElementById('figure');f.dataset.drawing='narrow';"
    "f.replaceChildren(document.getElementById('narrow').content.cloneNode(true));}"
)


@cache
def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _style() -> str:
    rules = []
    for light, dark in draw.DARK.items():
        for attribute in ("fill", "stroke"):
            rules.append(f'#plotpress-svg [{attribute}="{light}" i]{{{attribute}:{dark}}}')
    return f"{_asset('page.css')}@media (prefers-color-scheme: dark){{{''.join(rules)}}}"


def _live(drawn: Drawing, layout: Layout) -> Live:
    document = drawn.figure.to_html(standalone=False, pick_max_points=0, binary_pick_data=False)
    head, end, rest = document.partition("</svg>")
    svg = drawn.add_overlay(head[head.index("<svg ") :] + end)
    data = {}
    script = ""
    for attributes, text in re.findall(r"<script([^>]*)>(.*?)</script>", rest, re.DOTALL):
        named = re.search(r'id="([^"]+)"', attributes)
        if named:
            data[named.group(1)] = text
        elif not text.startswith("window.PLOTPRESS_"):
            script = text
    if not script or "plotpress-meta" not in data:
        raise ValueError("plotpress writes a page of an unknown form. Install plotpress 0.42")
    meta = json.loads(data["plotpress-meta"])
    for one in meta.values():  # plotpress keeps six decimals, none of a small intensity
        (x0, x1), (y0, y1), scale = layout.plane.x, layout.plane.y, layout.unit[0]
        ends = {"xmin": x0, "xmax": x1, "ymin": y0 / scale, "ymax": y1 / scale}
        one.update({name: vega.short(value) for name, value in ends.items()})
    data["plotpress-meta"] = json.dumps(meta, separators=(",", ":"))
    return Live(svg, data, script)


def _drawing(live: Live) -> str:
    return live.svg + "".join(_json(name, text) for name, text in live.data.items() if name != "plotpress-pick")


def _json(name: str, text: str) -> str:
    escaped = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return f'<script type="application/json" id="{name}">{escaped}</script>'


def _inert(text: str) -> str:
    """Escape a whole page for a script element. ``page.js`` reverses it."""
    return re.sub(r"</(script)", r"<\\/\1", text, flags=re.IGNORECASE).replace("<!--", "<\\!--")


def _listed(chart: Chart) -> str:
    """Return the section with the excluded rows and the notes on the roofs."""
    rows = "".join(
        f"<tr><td>{html.escape(one.name)}</td><td>{html.escape(one.kind)}</td><td>{html.escape(one.why)}</td></tr>"
        for one in chart.excluded[:200]
    )
    notes = "".join(f'<p class="faint">{html.escape(note)}</p>' for note in chart.notes)
    notes = f"<h2>Notes on the roofs</h2>{notes}" if notes else ""
    if rows:
        more = f" (the first 200 of {len(chart.excluded)})" if len(chart.excluded) > 200 else ""
        head = "<thead><tr><th>row</th><th>kind</th><th>why</th></tr></thead>"
        rows = f"<h2>Listed, not drawn{more}</h2><table>{head}<tbody>{rows}</tbody></table>"
    return f'<section id="listed">{rows}{notes}</section>' if rows or notes else ""


def _pick(chart: Chart, layout: Layout) -> dict[str, Any]:
    """Return what picking snaps to: each kernel at each of its levels, in the order of the specification's rows."""
    xs = [vega.short(x) for one in chart.kernels for _, x in one.spots]
    ys = [vega.short(one.rate / layout.unit[0]) for one in chart.kernels for _ in one.spots]
    names = [shorten(one.name, 48) for one in chart.kernels for _ in one.spots]
    series = {"kind": "scatter", "x": xs, "y": ys, "vals": {"kernel": names}, "label": None, "color": None}
    return {"0": {"series": [series], "meshes": [], "pies": []}}


def _data(chart: Chart, layout: Layout, drawn: Mapping[str, Drawing]) -> dict[str, Any]:
    rows = [one.row for one in chart.kernels]
    columns = {key: [values[row] for row in rows] for key, values in chart.columns.items()}
    own = {
        "roof that binds": [one.axis for one in chart.kernels],
        "up to": [times(one.headroom) if one.headroom else None for one in chart.kernels],
    }
    first = [0]
    for one in chart.kernels:
        first.append(first[-1] + len(one.spots))
    order = sorted(range(len(rows)), key=lambda at: (-(chart.kernels[at].share or 0.0), chart.kernels[at].fraction or 2.0, at))
    return {
        "unit": layout.unit[1],
        "marker": MARKER,
        "kernel_of_point": [at for at, one in enumerate(chart.kernels) for _ in one.spots],
        "order": order,
        "columns": {key: packed(values) for key, values in {**own, **columns}.items() if any(v is not None for v in values)},
        "fields": {key: [field.doc, field.unit, field.fmt] for key, field in FIELDS.items() if key in columns},
        "drawings": {name: _marks(one) for name, one in drawn.items()},
    }


def _marks(drawn: Drawing) -> dict[str, Any]:
    return {
        "series": drawn.series,
        "spots": drawn.spots,
        "links": drawn.links,
        "labels": drawn.labels,
        "levels": drawn.levels,
    }


def packed(values: Sequence[Any]) -> dict[str, Any]:
    """Pack a column: one value when all are equal, repeated texts by number, numbers to five digits.

    Notes and lists are split, since their parts repeat more often than the whole.
    """
    if all(one == values[0] for one in values):
        return {"all": _digits(values[0])}
    present = [one for one in values if one is not None]
    if not all(
        isinstance(one, str) or (isinstance(one, list) and all(isinstance(part, str) for part in one)) for one in present
    ):
        return {"at": [_digits(one) for one in values]}
    number: dict[str, int] = {}
    at = []
    for one in values:
        parts = one.split("; ") if isinstance(one, str) else one
        at.append(None if parts is None else [number.setdefault(part, len(number)) for part in parts])
    return {"words": list(number), "at": at}


def _digits(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.5g}")
    return [_digits(one) for one in value] if isinstance(value, list) else value
