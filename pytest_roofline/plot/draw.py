"""The drawing of a chart as a Vega specification, which the pictures and the page share.

Every mark has a place in FLOP/byte and in the unit of the rate axis. Texts have an offset in pixels from their place, so that
they keep their distance when the page zooms. The signals ``xdom`` and ``ydom`` are the ends of the axes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from . import style
from .layout import (
    CROWD,
    LEGEND_LINE,
    LINE,
    SMALL,
    SUBTITLE_LINE,
    TEXT,
    TITLE,
    TITLE_LINE,
    Box,
    Entry,
    Layout,
    Text,
    kernel_lines,
)
from .model import Bandwidth, Ceiling, Chart
from .vega import short, ticks

SCHEMA = "https://vega.github.io/schema/vega/v6.json"
_FONT = "Helvetica, Arial, 'Liberation Sans', sans-serif"
#: How far a roof goes beyond the axes, as a factor: the page may zoom out by as much.
_BEYOND = 1e6
#: The angle of a line of slope one, for the text along it.
_ANGLE = "-atan2(height / log(ydom[1] / ydom[0]), width / log(xdom[1] / xdom[0])) * 180 / PI"
#: The direction of a line from an earlier place to a later one.
_WAY = "atan2(scale('x', datum.x2) - scale('x', datum.x), scale('y', datum.y) - scale('y', datum.y2)) * 180 / PI"
#: The color of the ring around the picked kernel, and of notes.
_PICKED = "#C2410C"
#: The names of the rows of marks. ``picked`` (the points of the picked kernel) and ``notes`` have rows on the page alone.
NAMES = ("roofs", "ridges", "lines", "arrows", "kernels", "leaders", "names", "labels", "picked", "notes")
Rows = Mapping[str, list[dict[str, Any]]]
_X, _Y = {"scale": "x", "field": "x"}, {"scale": "y", "field": "y"}
_ENDS = {"x": _X, "y": _Y, "x2": {"scale": "x", "field": "x2"}, "y2": {"scale": "y", "field": "y2"}}


def specification(chart: Chart, layout: Layout, rows: Rows | None = None) -> dict[str, Any]:
    """Return the whole drawing, with title, legend and the list of what is not drawn unless the layout is bare.

    rows: the rows of its marks by name, those of ``datasets`` by default; an absent name has none.
    """
    rows = datasets(chart, layout) if rows is None else rows
    size, frame = layout.size, layout.plane.frame
    (x0, x1), (y0, y1), scale = layout.plane.x, layout.plane.y, layout.unit[0]
    xdom, ydom = [short(x0), short(x1)], [short(y0 / scale), short(y1 / scale)]
    traffic = "at each level" if len(chart.levels) > 1 else "of DRAM traffic"
    return {
        "$schema": SCHEMA,
        "description": chart.title,
        "width": round(frame.w),
        "height": round(frame.h),
        "padding": {
            "left": round(frame.x),
            "top": round(frame.y),
            "right": round(size.width - frame.x - frame.w),
            "bottom": round(size.height - frame.y - frame.h),
        },
        "autosize": "none",
        "background": style.PAPER,
        "config": {"text": {"font": _FONT}, "axis": {"labelFont": _FONT, "titleFont": _FONT}},
        "signals": [
            {"name": "xdom", "value": xdom},
            {"name": "ydom", "value": ydom},
            {"name": "xticks", "value": ticks(*xdom)},
            {"name": "yticks", "value": ticks(*ydom)},
            {"name": "slope", "update": _ANGLE},
        ],
        "data": [{"name": name, "values": rows.get(name, [])} for name in NAMES],
        "scales": [_scale("x", "xdom", "width"), _scale("y", "ydom", "height")],
        "axes": [
            _axis("x", "bottom", f"arithmetic intensity (FLOP per byte {traffic})"),
            _axis("y", "left", f"attained performance ({layout.unit[1]})"),
        ],
        "marks": [*_plot(len(chart.kernels), bool(chart.changes)), *([] if size.bare else _around(layout))],
    }


def _scale(name: str, ends: str, pixels: str) -> dict[str, Any]:
    return {"name": name, "type": "log", "domain": {"signal": ends}, "range": pixels, "nice": False, "zero": False}


def _axis(scale: str, orient: str, title: str) -> dict[str, Any]:
    return {
        "scale": scale,
        "orient": orient,
        "title": title,
        "values": {"signal": f"{scale}ticks"},
        "format": "~g",
        "grid": True,
        "gridColor": style.GRID,
        "gridWidth": 0.6,
        "domainColor": style.INK,
        "tickColor": style.INK,
        "labelColor": style.INK,
        "labelFontSize": TEXT,
        "labelOverlap": True,
        "titleColor": style.INK,
        "titleFontSize": TEXT,
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "aria": False,
        "zindex": 0,
    }


# The rows of each kind of mark. ``k`` is the index of the kernel in the chart, by which the page filters.


def datasets(chart: Chart, layout: Layout) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each kind of mark, by the name that its mark reads."""
    rows = {**shared_rows(chart, layout), "kernels": kernels(chart, layout), **placed_rows(chart, layout)}
    return {name: rows.get(name, []) for name in NAMES}


def shared_rows(chart: Chart, layout: Layout) -> dict[str, list[dict[str, Any]]]:
    """Return the rows that are the same in every layout of a chart."""
    ridges = [_place(place, layout.unit[0]) for place in chart.ridges]
    return {"roofs": list(_roofs(chart, layout)), "ridges": ridges}


def placed_rows(chart: Chart, layout: Layout) -> dict[str, list[dict[str, Any]]]:
    """Return the rows that a layout places: lines between marks, and texts."""
    looks = style.roof_looks(chart)
    lines = [
        {"k": one.kernel, "kind": one.kind, **_place(one.start, 1.0), "x2": short(one.end[0]), "y2": short(one.end[1])}
        for one in kernel_lines(chart, layout)
    ]
    return {
        "lines": [row for row in lines if row["kind"] in ("levels", "before", "range")],
        "arrows": [row for row in lines if row["kind"] == "arrow"],
        "leaders": list(_leaders(chart, layout)),
        "names": [_name(chart, layout, one, looks) for one in layout.texts],
        "labels": list(_labels(chart, layout)),
    }


def _place(place: tuple[float, float], scale: float) -> dict[str, float]:
    return {"x": short(place[0]), "y": short(place[1] / scale)}


def _roofs(chart: Chart, layout: Layout) -> Iterator[dict[str, Any]]:
    """Yield every limit: a bandwidth up to the highest ceiling, a ceiling from its ridge with the fastest memory."""
    (low, high), scale = layout.plane.x, layout.unit[0]
    low, high = low / _BEYOND, high * _BEYOND
    top = max((one.flops_s for one in chart.ceilings), default=None)
    fastest = max((one.bytes_s for one in chart.bandwidths), default=None)
    names = style.roof_names(chart)
    for one, (color, dash) in style.roof_looks(chart).items():
        if isinstance(one, Bandwidth):
            end = top / one.bytes_s if top else high
            ends = (low, low * one.bytes_s), (end, end * one.bytes_s)
        else:
            start = one.flops_s / fastest if fastest else low
            ends = (start, one.flops_s), (high, one.flops_s)
        row = {**_place(ends[0], scale), "x2": short(ends[1][0]), "y2": short(ends[1][1] / scale)}
        yield {**row, "roof": names[one], "color": color, "dash": _DASHES[dash]}


_DASHES = {"-": [1, 0], "--": [5, 3]}


def kernels(chart: Chart, layout: Layout) -> list[dict[str, Any]]:
    """Return a row for each point, a kernel at each of its memory levels: large ones first, so that none is hidden."""
    rows = []
    for at, (one, wide) in enumerate(zip(chart.kernels, layout.diameters)):
        for level, x in one.spots:
            row = {
                "k": at,
                **_place((x, one.rate), layout.unit[0]),
                "size": round(0.785 * wide * wide),
                "shape": style.BOUNDS[one.bound][0],
                "fill": style.VERDICTS[one.verdict][0],
                "tip": f"{one.name}: {one.percent_text}{f' at {level.upper()}' if len(one.spots) > 1 else ''}",
            }
            rows.append({**row, "level": level} if level else row)
    return sorted(rows, key=lambda row: -float(row["size"]))


def _leaders(chart: Chart, layout: Layout) -> Iterator[dict[str, Any]]:
    """Yield the line from a point to its label, in pixels from the point."""
    for label in layout.labels:
        if label.leader is not None:
            (x, y), (x2, y2) = label.leader
            one = chart.kernels[label.kernel]
            place = _place((one.intensity, one.rate), layout.unit[0])
            yield {"k": label.kernel, **place, "dx": round(x2 - x, 1), "dy": round(y2 - y, 1)}


def _labels(chart: Chart, layout: Layout) -> Iterator[dict[str, Any]]:
    for label in layout.labels:
        one, box, plane = chart.kernels[label.kernel], label.box, layout.plane
        for at, words in enumerate(label.lines):
            yield {
                "k": label.kernel,
                **_place((one.intensity, one.rate), layout.unit[0]),
                "text": words,
                "align": "right" if label.leftward else "left",
                "dx": round(box.x + (box.w if label.leftward else 0.0) - plane.px(one.intensity), 1),
                "dy": round(box.y + LINE * (at + 1) - 3 - plane.py(one.rate), 1),
            }


def _name(chart: Chart, layout: Layout, text: Text, looks: dict[Bandwidth | Ceiling, tuple[str, str]]) -> dict[str, Any]:
    """Return the text of a roof or of a memory level. A text of a ceiling keeps its distance from the right edge.

    looks: as of ``style.roof_looks``.
    """
    plane = layout.plane
    x = plane.back_x(text.x)
    if text.kernel is not None:
        rate = chart.kernels[text.kernel].rate
    elif isinstance(text.roof, Bandwidth):
        rate = x * text.roof.bytes_s
    else:
        rate = text.roof.flops_s if text.roof is not None else max(one.flops_s for one in chart.ceilings)
    row: dict[str, Any] = {
        **_place((x, rate), layout.unit[0]),
        "dy": round(text.y - plane.py(rate), 1),
        "text": text.words,
        "align": text.align,
        "size": text.size,
        "color": style.text_color(text, looks),
        "sloped": isinstance(text.roof, Bandwidth),
    }
    if text.kernel is not None:
        return {**row, "k": text.kernel, "level": text.level}
    if not isinstance(text.roof, Bandwidth):
        row["right"] = round(plane.frame.x + plane.frame.w - text.x, 1)
    return row


# The marks.


def _plot(count: int, has_changes: bool) -> list[dict[str, Any]]:
    """Return the frame with everything in it, clipped to it. has_changes: whether lines have the direction of a change."""
    halo = _fixed(stroke=style.PAPER, strokeWidth=3, strokeJoin="round")
    name = {
        "x": [{"test": "isValid(datum.right)", "signal": "width - datum.right"}, _X],
        "y": {**_Y, "offset": {"field": "dy"}},
        "text": {"field": "text"},
        "align": {"field": "align"},
        "baseline": {"value": "alphabetic"},
        "fontSize": {"field": "size"},
        "angle": {"signal": "datum.sloped ? slope : 0"},
    }
    label = {
        "x": {**_X, "offset": {"field": "dx"}},
        "y": {**_Y, "offset": {"field": "dy"}},
        "text": {"field": "text"},
        "align": {"field": "align"},
        "baseline": {"value": "alphabetic"},
        "fontSize": {"value": SMALL},
    }
    note = {"x": {**_X, "offset": 7}, "y": _Y, "text": {"field": "text"}, **_fixed(baseline="middle", fontSize=TEXT)}
    leader = {
        **{"x": _X, "y": _Y, "x2": {**_X, "offset": {"field": "dx"}}, "y2": {**_Y, "offset": {"field": "dy"}}},
        **_fixed(stroke=style.FAINT, strokeWidth=0.7),
    }
    line = {
        **_ENDS,
        "stroke": {"signal": f"datum.kind == 'range' ? '{style.INK}' : '{style.FAINT}'"},
        "strokeWidth": {"signal": "datum.kind == 'range' ? 2.6 : 1"},
        "strokeOpacity": {"signal": "datum.kind == 'range' ? 0.45 : 1"},
    }
    baseline = {**{"x": _X, "y": _Y}, **_fixed(size=32, fill=style.PAPER, stroke=style.FAINT, strokeWidth=1)}
    way = {
        "x": {"signal": "(scale('x', datum.x) + scale('x', datum.x2)) / 2"},
        "y": {"signal": "(scale('y', datum.y) + scale('y', datum.y2)) / 2"},
        "angle": {"signal": _WAY},
        "size": {"signal": "datum.kind == 'before' ? 30 : 0"},
        **_fixed(shape="triangle-up", fill=style.FAINT),
    }
    tip = {**_ENDS, **_fixed(stroke=style.FAINT, strokeWidth=1, strokeDash=[1, 2.5])}
    head = {
        "x": _X,
        "y": {"scale": "y", "field": "y2", "offset": 3.5},
        **_fixed(size=28, shape="triangle-up", fill=style.FAINT),
    }
    kernel = {
        **{"x": _X, "y": _Y, "size": {"field": "size"}, "shape": {"field": "shape"}, "fill": {"field": "fill"}},
        **_fixed(stroke=style.PAPER, strokeWidth=0.8 if count <= CROWD else 0),
        "description": {"field": "tip"},
    }
    # The edge of a point that others cover stays visible.
    edge = {key: kernel[key] for key in ("x", "y", "size", "shape")}
    edge.update(_fixed(stroke=style.PAPER, strokeWidth=0.8))
    roof = {**_ENDS, "stroke": {"field": "color"}, "strokeDash": {"field": "dash"}, "strokeWidth": {"value": 1.9}}
    marks = [
        _mark("rule", "roofs", roof),
        _mark("symbol", "ridges", {"x": _X, "y": _Y, **_fixed(size=22, fill=style.INK)}),
        _mark("rule", "leaders", leader),
        _mark("rule", "arrows", tip),
        _mark("symbol", "arrows", head),
        _mark("rule", "lines", line),
        *([_mark("symbol", "lines", way)] if has_changes else []),
        _mark("symbol", "lines", {**baseline, "opacity": {"signal": "datum.kind == 'before' ? 1 : 0"}}),
        {**_mark("symbol", "kernels", kernel), "name": "points", "aria": True},
        *([_mark("symbol", "kernels", edge)] if count <= CROWD else []),
        _mark("symbol", "picked", {"x": _X, "y": _Y, **_fixed(size=560, stroke=_PICKED, strokeWidth=2)}),
        _mark("symbol", "notes", {"x": _X, "y": _Y, **_fixed(size=18, fill=_PICKED)}),
        _mark("text", "names", {**name, **halo}),
        _mark("text", "names", {**name, "fill": {"field": "color"}}),
        _mark("text", "labels", {**label, **halo}),
        _mark("text", "labels", {**label, **_fixed(fill=style.INK)}),
        _mark("text", "notes", {**note, **halo}),
        _mark("text", "notes", {**note, **_fixed(fill=_PICKED)}),
    ]
    frame = {"width": {"signal": "width"}, "height": {"signal": "height"}}
    outline = {**frame, **_fixed(stroke=style.INK, fill="transparent")}
    return [
        {"type": "group", "name": "plot", "clip": True, "encode": {"update": frame}, "marks": marks, "aria": False},
        {"type": "rect", "interactive": False, "aria": False, "encode": {"update": outline}},
    ]


def _mark(kind: str, data: str, encode: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "from": {"data": data}, "interactive": False, "aria": False, "encode": {"update": encode}}


def _fixed(**values: Any) -> dict[str, dict[str, Any]]:
    """Return the encoding of constants."""
    return {name: {"value": value} for name, value in values.items()}


def _around(layout: Layout) -> Iterator[dict[str, Any]]:
    """Yield the title, the list of what is not drawn, and the legend, at places relative to the frame."""
    frame = layout.plane.frame
    x, y = 16 - frame.x, 22 - frame.y
    for words in layout.title:
        yield _words(words, x, y, TITLE, style.INK, bold=True)
        y += TITLE_LINE
    for words in layout.subtitle:
        yield _words(words, x, y, TEXT, style.FAINT)
        y += SUBTITLE_LINE
    low = frame.h + 56 if layout.size.inside else layout.legend_box.y + layout.legend_box.h + 16 - frame.y
    for at, words in enumerate(layout.footer):
        yield _words(words, x, low + LINE * at, SMALL, style.FAINT)
    if layout.legend:
        box = layout.legend_box
        yield from _legend(layout.legend, Box(box.x - frame.x, box.y - frame.y, box.w, box.h))


def _words(words: str, x: float, y: float, size: float, color: str, *, bold: bool = False) -> dict[str, Any]:
    fixed = _fixed(text=words, x=round(x, 1), y=round(y, 1), fontSize=size, fill=color, baseline="alphabetic")
    return _constant("text", {**fixed, **(_fixed(fontWeight="bold") if bold else {})})


def _constant(kind: str, encode: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "interactive": False, "aria": False, "encode": {"update": encode}}


def _legend(entries: tuple[Entry, ...], box: Box) -> Iterator[dict[str, Any]]:
    place = {"x": round(box.x, 1), "y": round(box.y, 1), "width": round(box.w, 1), "height": round(box.h, 1)}
    yield _constant("rect", _fixed(**place, cornerRadius=3, fill=style.PAPER, fillOpacity=0.92, stroke=style.GRID))
    for at, one in enumerate(entries):
        x, y = box.x + 8, box.y + 5 + LEGEND_LINE * (at + 0.5)
        yield from (_constant(kind, _fixed(**values)) for kind, values in sample(one, x, y))
        yield _words(one.text, x + 28, y + 4, SMALL, style.INK)


def sample(one: Entry, x: float, y: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the marks of an entry of the legend, 20 pixels wide."""
    middle = {"x": round(x + 10, 1), "y": round(y, 1)}
    flat = {"x": round(x, 1), "x2": round(x + 20, 1), "y": round(y, 1), "y2": round(y, 1)}
    hollow = {"fill": style.PAPER, "stroke": one.color, "strokeWidth": 1.4}
    if one.kind == "line":
        yield "rule", {**flat, "stroke": one.color, "strokeWidth": 2, "strokeDash": _DASHES[one.shape]}
    elif one.kind == "color":
        yield "symbol", {**middle, "size": 60, "shape": one.shape, "fill": one.color}
    elif one.kind == "shape":
        yield "symbol", {**middle, "size": 55, "shape": one.shape, **hollow}
    elif one.shape == "arrow":
        upright = {"x": round(x + 10, 1), "x2": round(x + 10, 1), "y": round(y + 6, 1), "y2": round(y - 3, 1)}
        yield "rule", {**upright, "stroke": one.color, "strokeDash": [1, 2.5]}
        yield "symbol", {"x": middle["x"], "y": round(y - 3, 1), "size": 28, "shape": "triangle-up", "fill": one.color}
    elif one.shape == "range":
        yield "rule", {**flat, "stroke": style.INK, "strokeWidth": 2.6, "strokeOpacity": 0.45}
    elif one.shape == "before":
        yield "rule", {**flat, "stroke": one.color}
        yield "symbol", {**middle, "size": 32, "shape": "circle", **hollow, "strokeWidth": 1}
    else:
        yield "symbol", {"x": round(x + 4, 1), "y": round(y, 1), "size": 20, "shape": "circle", "fill": one.color}
        yield "symbol", {"x": round(x + 14, 1), "y": round(y, 1), "size": 90, "shape": "circle", "fill": one.color}
