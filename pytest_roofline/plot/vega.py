"""Write a chart as a small Vega-Lite specification: exact vertices, a legend, tooltips, zoom by drag and wheel.

It is an export: the pictures and the page are drawn by ``draw``.
"""

from __future__ import annotations

import json
import math
from typing import Any

from . import style
from .layout import LINE, SMALL, TEXT, TITLE, Layout, Line, kernel_lines, roof_ends
from .model import Chart, readable

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
VERSION = "6.4"
#: Height of a legend line in Vega at this font size, in pixels.
ROW = 14.0
LEGEND = {
    "title": None,
    "orient": "none",
    "labelLimit": 400,
    "labelFontSize": SMALL,
    "symbolSize": 50,
    "fillColor": style.PAPER,
    "padding": 3,
    "rowPadding": 1,
}
_TIPS = (
    ("name", "kernel"),
    ("of_roof", "percent of roof"),
    ("interval", "range"),
    ("bound", "limiter"),
    ("below", "what that means"),
    ("verdict", "verdict"),
    ("reason", "reason"),
    ("basis", "basis"),
    ("share", "share of time, %"),
    ("dtype", "dtype"),
    ("level", "level"),
    ("intensity", "intensity, FLOP/B"),
)
_POINT = {"type": "point", "filled": True, "opacity": 1, "clip": True}
_HALO = {"stroke": style.PAPER, "strokeWidth": 2.4, "strokeJoin": "round"}


def specification(chart: Chart, layout: Layout) -> dict[str, Any]:
    """Return the Vega-Lite specification of one drawing. ``datasets`` holds the values in FLOP/byte and the axis unit."""
    unit, plane = layout.unit[1], layout.plane
    x = _axis(
        "intensity",
        "arithmetic intensity (FLOP per byte " + ("at each level)" if len(chart.levels) > 1 else "of DRAM traffic)"),
        plane.x,
    )
    y = _axis("rate", f"attained performance ({unit})", (plane.y[0] / layout.unit[0], plane.y[1] / layout.unit[0]))
    place = {"x": x, "y": y}
    rows = datasets(chart, layout)
    return {
        "$schema": SCHEMA,
        "description": chart.title,
        "title": {
            "text": list(layout.title),
            "subtitle": [*layout.subtitle, *layout.footer],
            "anchor": "start",
            "fontSize": TITLE,
            "subtitleFontSize": TEXT,
            "subtitleColor": style.FAINT,
        },
        "width": round(plane.frame.w),
        "height": round(plane.frame.h),
        "background": style.PAPER,
        "config": {
            "font": "Helvetica, Arial, sans-serif",
            "view": {"stroke": style.INK},
            "axis": {
                "gridColor": style.GRID,
                "gridWidth": 0.6,
                "titleFontWeight": "normal",
                "titleFontSize": TEXT,
                "labelFontSize": TEXT,
            },
        },
        "datasets": rows,
        "layer": [
            _roofs(chart, layout, place),
            _ridges(place),
            *_ways(place),
            _points(chart, layout, place, rows["kernels"]),
            *_words(place),
        ],
        "resolve": {"scale": dict.fromkeys(("color", "strokeDash", "shape", "size"), "independent")},
    }


def _axis(field: str, title: str, domain: tuple[float, float]) -> dict[str, Any]:
    ends = [short(domain[0]), short(domain[1])]
    axis = {"format": "~g", "values": ticks(*domain)}
    return {
        "field": field,
        "type": "quantitative",
        "title": title,
        "axis": axis,
        "scale": {"type": "log", "domain": ends, "nice": False},
    }


def ticks(low: float, high: float) -> list[float]:
    """Return the decades, fewer when there are many, with 2 and 5 between them when there are few."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    step = max(1, math.ceil((last - first) / 12))
    values = [float(f"1e{one}") for one in range(first, last + 1, step)]
    if sum(low <= one <= high for one in values) < 3:
        values = [float(f"{digit}e{one}") for one in range(first, last + 1) for digit in (1, 2, 5)]
    return [one for one in values if low <= one <= high]


def short(value: float) -> float:
    """Round to seven digits: finer than a pixel, fewer bytes."""
    return float(f"{value:.7g}")


def datasets(chart: Chart, layout: Layout) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each layer."""
    scale, names = layout.unit[0], style.roof_names(chart)
    lines = kernel_lines(chart, layout)
    return {
        "roofs": [_vertex(names[one], x, y / scale) for one, *ends in roof_ends(chart, layout.plane) for x, y in ends],
        "ridges": [_vertex("", x, y / scale) for x, y in chart.ridges],
        "ways": [_line(one) for one in lines if one.kind != "range"],
        "ranges": [_line(one) for one in lines if one.kind == "range"],
        "kernels": kernels(chart, layout),
        "labels": _labels(chart, layout),
        "names": _texts(chart, layout),
    }


def kernels(chart: Chart, layout: Layout) -> list[dict[str, Any]]:
    """Return one row per point: a kernel has a point at each counted memory level."""
    rows = []
    has_levels = len(chart.levels) > 1
    for one, wide in zip(chart.kernels, layout.diameters):
        for level, x in one.spots:
            row = {
                "name": one.name,
                "intensity": short(x),
                "rate": short(one.rate / layout.unit[0]),
                "of_roof": one.percent_text,
                "verdict": style.VERDICTS[one.verdict][1],
                "bound": style.BOUNDS[one.bound][1],
                "area": round(0.785 * wide * wide),
            }
            if has_levels:
                row["level"] = level.upper()
            for key, value in (
                ("basis", one.basis),
                ("interval", one.interval),
                ("dtype", one.dtype),
                ("reason", readable(one.reason)),
            ):
                if value:
                    row[key] = value
            if one.share is not None:
                row["share"] = short(one.share)
            if one.lower_ceiling is not None:
                row["below"] = one.explanation
            rows.append(row)
    return rows


def _labels(chart: Chart, layout: Layout) -> list[dict[str, Any]]:
    """Return each label at its place in the layout, as pixels from its point."""
    rows = []
    for label in layout.labels:
        one = chart.kernels[label.kernel]
        box = label.box
        for at, words in enumerate(label.lines):
            rows.append(
                {
                    "intensity": short(one.intensity),
                    "rate": short(one.rate / layout.unit[0]),
                    "text": words,
                    "align": "right" if label.leftward else "left",
                    "dx": round(box.x + (box.w if label.leftward else 0.0) - layout.plane.px(one.intensity), 1),
                    "dy": round(box.y + LINE * (at + 1) - 2 - layout.plane.py(one.rate), 1),
                }
            )
    return rows


def _texts(chart: Chart, layout: Layout) -> list[dict[str, Any]]:
    """Return the texts of roofs and memory levels at their places in the layout."""
    looks, rows = style.roof_looks(chart), []
    for one in layout.texts:
        row = _vertex("", layout.plane.back_x(one.x), layout.plane.back_y(one.y) / layout.unit[0])
        color = style.text_color(one, looks)
        rows.append({**row, "text": one.words, "angle": round(-one.angle, 2), "color": color, "align": one.align})
    return rows


def _vertex(roof: str, intensity: float, rate: float) -> dict[str, Any]:
    row = {"intensity": short(intensity), "rate": short(rate)}
    return {"roof": roof, **row} if roof else row


def _line(line: Line) -> dict[str, Any]:
    (x, y), (x2, y2) = line.start, line.end
    return {"kind": line.kind, "intensity": short(x), "rate": short(y), "x2": short(x2), "y2": short(y2)}


def _roofs(chart: Chart, layout: Layout, place: dict[str, Any]) -> dict[str, Any]:
    looks, roofs = style.roof_looks(chart), style.roof_names(chart)
    names = [roofs[one] for one in looks]
    dashes = [[5, 3] if dash == "--" else [1, 0] for _, dash in looks.values()]
    legend = {**_legend(layout, "line"), "symbolType": "stroke"} if roofs else None
    return {
        "data": {"name": "roofs"},
        "mark": {"type": "line", "clip": True, "strokeWidth": 1.9},
        "encoding": {
            **place,
            "color": {
                "field": "roof",
                "type": "nominal",
                "scale": {"domain": names, "range": [color for color, _ in looks.values()]},
                "legend": legend,
            },
            "strokeDash": {
                "field": "roof",
                "type": "nominal",
                "scale": {"domain": names, "range": dashes},
                "legend": legend,
            },
        },
    }


def _legend(layout: Layout, kind: str) -> dict[str, Any]:
    """Return a legend at the place of its kind of lines in the layout."""
    kinds = [one.kind for one in layout.legend]
    box, frame = layout.legend_box, layout.plane.frame
    before = kinds.index(kind)
    return {
        **LEGEND,
        "legendX": round(box.x - frame.x, 1),
        "legendY": round(box.y - frame.y + ROW * before + 3 * len(set(kinds[:before])), 1),
    }


def _ridges(place: dict[str, Any]) -> dict[str, Any]:
    mark = {**_POINT, "size": 20, "color": style.INK}
    return {"data": {"name": "ridges"}, "mark": mark, "encoding": place}


def _ways(place: dict[str, Any]) -> list[dict[str, Any]]:
    ends = {**place, "x2": {"field": "x2"}, "y2": {"field": "y2"}}
    thin = {"type": "rule", "clip": True, "color": style.FAINT, "strokeWidth": 1}
    dashes = {"condition": {"test": "datum.kind == 'arrow'", "value": [1, 2]}, "value": [1, 0]}
    wide = {"type": "rule", "clip": True, "color": style.INK, "strokeWidth": 2.6, "opacity": 0.45}
    widths = {"condition": {"test": "datum.kind == 'leader'", "value": 0.6}, "value": 1}
    return [
        {"data": {"name": "ways"}, "mark": thin, "encoding": {**ends, "strokeDash": dashes, "strokeWidth": widths}},
        {
            "data": {"name": "ways"},
            "transform": [{"filter": "datum.kind == 'before'"}],
            "mark": {**_POINT, "fill": style.PAPER, "stroke": style.FAINT, "strokeWidth": 1, "size": 28},
            "encoding": place,
        },
        {
            "data": {"name": "ways"},
            "transform": [{"filter": "datum.kind == 'arrow'"}],
            "mark": {
                "type": "point",
                "shape": "triangle-up",
                "filled": True,
                "opacity": 1,
                "size": 25,
                "clip": True,
                "yOffset": 3.5,
            },
            "encoding": {"x": place["x"], "y": {**place["y"], "field": "y2"}, "color": {"value": style.FAINT}},
        },
        {"data": {"name": "ranges"}, "mark": wide, "encoding": ends},
    ]


def _points(chart: Chart, layout: Layout, place: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    verdicts = [value for key, value in style.VERDICTS.items() if any(one.verdict == key for one in chart.kernels)]
    bounds = [value for key, value in style.BOUNDS.items() if any(one.bound == key for one in chart.kernels)]
    plain = all(one.verdict == "none" for one in chart.kernels)
    used = {key for row in rows for key in row} - ({"verdict"} if plain else set())
    return {
        "data": {"name": "kernels"},
        "params": [{"name": "view", "select": {"type": "interval"}, "bind": "scales"}],
        "mark": {**_POINT, "stroke": style.PAPER, "strokeWidth": 0.8},
        "encoding": {
            **place,
            "color": {
                "field": "verdict",
                "type": "nominal",
                "scale": {"domain": [text for _, text in verdicts], "range": [color for color, _ in verdicts]},
                "legend": None if plain else {**_legend(layout, "color"), "symbolType": "circle", "symbolStrokeWidth": 0},
            },
            "shape": {
                "field": "bound",
                "type": "nominal",
                "scale": {"domain": [text for _, text in bounds], "range": [shape for shape, _ in bounds]},
                "legend": {
                    **_legend(layout, "shape"),
                    "symbolFillColor": style.PAPER,
                    "symbolStrokeColor": style.FAINT,
                    "symbolStrokeWidth": 1.4,
                }
                if bounds
                else None,
            },
            "size": {"field": "area", "type": "quantitative", "scale": None, "legend": None},
            "tooltip": [
                {"field": key, "title": title, "type": "quantitative" if key in ("share", "intensity", "rate") else "nominal"}
                for key, title in (*_TIPS, ("rate", layout.unit[1]))
                if key in used
            ],
        },
    }


def _words(place: dict[str, Any]) -> list[dict[str, Any]]:
    """Return each text twice: a halo in the color of the paper, then the letters."""
    shape = {
        "type": "text",
        "clip": True,
        "align": {"expr": "datum.align"},
        "baseline": "alphabetic",
        "fontSize": SMALL,
        "dx": {"expr": "datum.dx"},
        "dy": {"expr": "datum.dy"},
    }
    text = {**place, "text": {"field": "text", "type": "nominal"}}
    roof = {"type": "text", "clip": True, "align": {"expr": "datum.align"}, "baseline": "alphabetic", "fontSize": SMALL}
    text_boxes = {**roof, "angle": {"expr": "datum.angle"}}
    color = {"color": {"field": "color", "type": "nominal", "scale": None}}
    return [
        {"data": {"name": "names"}, "mark": {**text_boxes, **_HALO}, "encoding": text},
        {"data": {"name": "names"}, "mark": text_boxes, "encoding": {**text, **color}},
        {"data": {"name": "labels"}, "mark": {**shape, **_HALO}, "encoding": text},
        {"data": {"name": "labels"}, "mark": {**shape, "color": style.INK}, "encoding": text},
    ]


def text(spec: dict[str, Any]) -> str:
    """Return a specification as ASCII JSON with one data row a line, safe inside a script element of a page."""
    encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode

    def lines(rows: list[Any]) -> str:
        return "[\n" + ",\n".join(map(encode, rows)) + "\n]" if rows else "[]"

    parts = []
    for key, value in spec.items():
        if key == "datasets":
            data = ",\n".join(f"{encode(name)}: {lines(rows)}" for name, rows in value.items())
            parts.append(f"{encode(key)}: {{\n{data}\n}}")
        elif isinstance(value, list):
            parts.append(f"{encode(key)}: {lines(value)}")
        else:
            parts.append(f"{encode(key)}: {encode(value)}")
    return "{\n" + ",\n".join(parts).replace("<", "\\u003c") + "\n}\n"
