"""Write the interactive page: one HTML file with Vega's runtime, the drawing, a list of the kernels and exports."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any

from roofline_engine.fields import FIELDS

from . import draw, style, vega
from .layout import Entry, Layout, Size, arrange
from .model import Change, Chart, factor_text, percent, times

#: The page loads nothing from the network, whatever a name contains. Vega compiles functions from text.
POLICY = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:"
#: The drawings of the page, by the width of its window. The page takes the widest that fits and stretches it.
_SIZES = {
    "narrow": Size(360, 460, bare=True),
    "middle": Size(600, 520, bare=True),
    "usual": Size(840, 620, bare=True),  # of a window of 1280 pixels, next to the lists
    "wide": Size(1060, 640, bare=True),
}
#: Most changes in the table of several runs.
_CHANGES = 500
#: Words for the keys of an entry whose own words read badly.
_WORDS = {
    "pct_gpu_time": "share of GPU time",
    "t_ms": "time of a launch",
    "t_unit_ms": "time of a unit",
    "bytes_est": "bytes",
    "flops_est": "FLOPs",
    "l1_traffic": "traffic of L1",
    "l2_traffic": "traffic of L2",
    "achieved_bw_bytes_s": "achieved bandwidth",
    "achieved_flops": "achieved rate",
    "hbm_util": "of memory peak",
    "compute_util": "of compute peak",
    "roofline_pct": "fraction of roof",
    "roofline_pct_raw": "fraction of roof, not clamped",
    "roofline_pct_range": "fraction of roof, range",
    "target_eff": "achievable fraction",
    "expected_e2e_gain_pct": "expected gain",
    "expected_e2e_gain_pct_range": "expected gain, range",
    "expected_throughput_gain_pct": "expected throughput gain",
    "attainable_speedup_range": "attainable speedup, range",
    "hard_limit_speedup": "speedup to the roof",
    "bytes_upper_bound": "most bytes in this time",
}


def page(chart: Chart, engine: str) -> str:
    """Return the page as one HTML document.

    engine: the JavaScript of Vega, Vega-Lite and Vega-Embed.
    """
    legend = style.legend(chart)
    layouts = {name: arrange(chart, legend, size) for name, size in _SIZES.items()}
    texts = {
        "roofline-page": _data(chart, layouts),
        "roofline-vega-lite": vega.specification(chart, arrange(chart, legend)),
        "roofline-vega": draw.specification(chart, layouts["wide"], {}),
        "roofline-state": {"notes": [], "view": None},
    }
    scripts = [_json(name, json.dumps(value, separators=(",", ":"))) for name, value in texts.items()]
    scripts.append(f'<script id="roofline-engine">{inert(engine)}</script>')
    scripts.append(f"<script>{_asset('page.js')}</script>")
    return Template(_asset("page.html")).substitute(
        policy=POLICY,
        title=html.escape(chart.title),
        subtitle=html.escape(chart.subtitle),
        style=_style(),
        legend="".join(map(_legend_item, legend)),
        listed=_listed(chart),
        scripts="".join(scripts),
    )


@cache
def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _style() -> str:
    rules = [
        f':is(#drawing, #legend) [{attribute}="{light}" i]{{{attribute}:{dark}}}'
        for light, dark in style.DARK.items()
        for attribute in ("fill", "stroke")
    ]
    return f"{_asset('page.css')}@media (prefers-color-scheme: dark){{{''.join(rules)}}}"


def _legend_item(one: Entry) -> str:
    """Return an item of the legend: a sample of the mark, and its meaning."""
    marks = "".join(_svg_mark(kind, values) for kind, values in draw.sample(one, 1.0, 8.0))
    sample = f'<svg width="22" height="16" aria-hidden="true">{marks}</svg>'
    return f"<li>{sample}{html.escape(one.text)}</li>"


_CORNERS = {
    "square": ((-1, -1), (1, -1), (1, 1), (-1, 1)),
    "triangle-up": ((0, -1.1), (1.2, 1), (-1.2, 1)),
    "diamond": ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
}


def _svg_mark(kind: str, values: dict[str, Any]) -> str:
    look = {"stroke": "stroke", "strokeWidth": "stroke-width", "strokeOpacity": "stroke-opacity", "fill": "fill"}
    paint = "".join(f' {name}="{values[key]}"' for key, name in look.items() if key in values)
    if "strokeDash" in values:
        paint += f' stroke-dasharray="{" ".join(map(str, values["strokeDash"]))}"'
    x, y = values["x"], values["y"]
    if kind == "rule":
        return f'<line x1="{x}" y1="{y}" x2="{values["x2"]}" y2="{values["y2"]}"{paint}/>'
    r = (values["size"] / 3.1416) ** 0.5
    if values["shape"] == "circle":
        return f'<circle cx="{x}" cy="{y}" r="{r:.1f}"{paint}/>'
    corners = " ".join(f"{x + r * dx:.1f},{y + r * dy:.1f}" for dx, dy in _CORNERS[values["shape"]])
    return f'<polygon points="{corners}"{paint}/>'


def _json(name: str, text: str) -> str:
    escaped = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return f'<script type="application/json" id="{name}">{escaped}</script>'


def inert(script: str) -> str:
    """Escape the end tags in the strings of a script."""
    return re.sub(r"</(script)", r"<\\/\1", script, flags=re.IGNORECASE).replace("<!--", "<\\!--")


def _listed(chart: Chart) -> str:
    """Return the section with the rows that failed a gate, the excluded rows and the notes on the roofs."""
    failed = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in cells)}</tr>" for cells in chart.failures[:200])
    if failed:
        more = f" (the first 200 of {len(chart.failures)})" if len(chart.failures) > 200 else ""
        head = "<thead><tr><th>row</th><th>why it failed</th><th>arithmetic</th></tr></thead>"
        failed = f"<h2>Failed gates{more}</h2><table>{head}<tbody>{failed}</tbody></table>"
    rows = "".join(
        f"<tr><td>{html.escape(one.name)}</td><td>{html.escape(one.kind)}</td><td>{html.escape(one.why)}</td></tr>"
        for one in chart.excluded[:200]
    )
    changes = "".join(map(_change, chart.changes[:_CHANGES]))
    if changes:
        more = f" (the first {_CHANGES} of {len(chart.changes)})" if len(chart.changes) > _CHANGES else ""
        titles = ("of roof before", "now", "speed")
        head = f"<thead><tr><th>kernel</th>{''.join(f'<th class=number>{one}</th>' for one in titles)}<th></th></tr></thead>"
        changes = f"<h2>Changes since {html.escape(chart.since)}{more}</h2><table>{head}<tbody>{changes}</tbody></table>"
    notes = "".join(f'<p class="faint">{html.escape(note)}</p>' for note in chart.notes)
    notes = f"<h2>Notes on the roofs</h2>{notes}" if notes else ""
    if rows:
        more = f" (the first 200 of {len(chart.excluded)})" if len(chart.excluded) > 200 else ""
        head = "<thead><tr><th>row</th><th>kind</th><th>why</th></tr></thead>"
        rows = f"<h2>Listed, not drawn{more}</h2><table>{head}<tbody>{rows}</tbody></table>"
    parts = f"{failed}{changes}{rows}{notes}"
    return f'<section id="listed">{parts}</section>' if parts else ""


def _change(one: Change) -> str:
    """Return a row of the table of changes."""
    parts = ("" if part is None else percent(part) for part in (one.fraction_before, one.fraction))
    numbers = "".join(f'<td class="number">{text}</td>' for text in (*parts, factor_text(one.factor)))
    return f"<tr><td>{html.escape(one.name)}</td>{numbers}<td>{html.escape(one.word)}</td></tr>"


def _data(chart: Chart, layouts: dict[str, Layout]) -> dict[str, Any]:
    """Return what the page's script reads, next to the Vega-Lite specification with the points."""
    kernels = chart.kernels
    rows = [one.row for one in kernels]
    columns = {key: [values[row] for row in rows] for key, values in chart.columns.items()}
    own = {
        "roof that binds": [one.axis for one in kernels],
        "percent by level": [
            ", ".join(f"{level.upper()} {percent(part)}" for level, part in one.by_level) or None for one in kernels
        ],
        f"since {chart.since}": [factor_text(one.change) or None for one in kernels],
        "up to": [times(one.headroom) if one.headroom else None for one in kernels],
    }
    order = sorted(range(len(rows)), key=lambda at: (-(kernels[at].share or 0.0), kernels[at].fraction or 2.0, at))
    return {
        "unit": layouts["wide"].unit[1],
        "names": [one.name for one in kernels],
        "fractions": [None if one.fraction is None else vega.short(one.fraction) for one in kernels],
        "kernel_of_point": [at for at, one in enumerate(kernels) for _ in one.spots],
        "order": order,
        "shapes": {text: shape for shape, text in style.BOUNDS.values()},
        "fills": {text: color for color, text in style.VERDICTS.values()},
        "columns": {key: packed(values) for key, values in {**own, **columns}.items() if any(v is not None for v in values)},
        "fields": {
            key: [_WORDS.get(key, key.replace("_", " ")), field.doc, field.unit, field.fmt]
            for key, field in FIELDS.items()
            if key in columns
        },
        "shared": draw.shared_rows(chart, layouts["wide"]),
        "layouts": {name: dict(_layout(chart, layout)) for name, layout in layouts.items()},
    }


def _layout(chart: Chart, layout: Layout) -> Iterator[tuple[str, Any]]:
    """Yield the size, the axes and the placed rows of one drawing."""
    spec = draw.specification(chart, layout, {})
    yield from (("width", layout.size.width), ("height", layout.size.height), ("padding", spec["padding"]))
    yield from ((signal["name"], signal["value"]) for signal in spec["signals"] if signal["name"] in ("xdom", "ydom"))
    yield from draw.placed_rows(chart, layout).items()


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
