"""The texts of the figure about kernels and roofs, their limits, and labels in readable positions."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from pytest_roofline.plot import draw, output, style
from pytest_roofline.plot.layout import NARROW, WIDE, Box, Layout, Size, arrange, roof_lines, stem, text_width
from pytest_roofline.plot.model import Chart
from support.figures import GPU, V100, many


def model(document: dict[str, Any]) -> Chart:
    return output.read_document(document, "table.json")


def laid(document: dict[str, Any], size: Size = WIDE) -> tuple[Chart, Layout]:
    made = model(document)
    return made, arrange(made, style.legend(made), size)


# A percent is of the roof that binds, or it names its roof.

FAR: dict[str, Any] = {"name": "k", "intensity": 3000, "gflops": 1000}
PEAK = {"name": "peak", "gflops": 20000, "dtype": "fp32"}


@pytest.mark.parametrize(
    ("roofs", "kernel", "told"),
    [
        # 1000 of 3000 x 2039 GFLOP/s, with no compute ceiling at all, and with none of this dtype
        ({"bandwidths": [{"gbs": 2039}]}, FAR, ("0.016% of memory roof", "compute roof unknown")),
        ({"bandwidths": [{"gbs": 2039}], "ceilings": [PEAK]}, FAR, ("0.016% of memory roof", "compute roof unknown")),
        (
            {"bandwidths": [{"gbs": 2039}], "ceilings": [PEAK]},
            {**FAR, "dtype": "fp64"},
            ("0.016% of memory roof", "compute roof unknown"),
        ),
        ({"ceilings": [PEAK]}, {**FAR, "dtype": "fp32"}, ("5.0% of compute roof", "memory roof unknown")),
        ({}, FAR, ("no roof known",)),
    ],
)
def test_with_one_known_limit_the_percent_names_it_without_advice(
    roofs: dict[str, Any], kernel: dict[str, Any], told: tuple[str, ...]
) -> None:
    made = model({**roofs, "kernels": [kernel]})
    (one,) = made.kernels
    assert one.label()[1:] == told
    assert one.label(terse=True)[1:] == told
    assert (one.arrow_tip, one.headroom) == (None, None)
    assert made.title == "Roofline: the binding roof of these kernels is unknown"
    assert "median" not in made.subtitle
    (row,) = output.vega_lite(made)["datasets"]["kernels"]
    assert row["of_roof"] in ("unknown", f"{told[0].replace('of ', 'of the ')} alone")


def test_a_rate_over_the_only_known_limit_is_impossible() -> None:
    made = model({"ceilings": [PEAK], "kernels": [{**FAR, "gflops": 21000, "dtype": "fp32"}]})
    assert [one.kind for one in made.excluded] == ["impossible"]


ENTRY: dict[str, Any] = {
    "name": "k",
    "modeled": True,
    "t_unit_ms": 1.0,
    "flops_est": 1e9,
    "achieved_flops": 1e12,
    "arithmetic_intensity": 1.0,
    "ridge_point": 10.0,
    "roofline_pct": 0.5,
    "roof_axis": "memory",
    "hard_limit_speedup": 2.0,
    "headroom_class": "underperforming",
}
PEAKS: dict[str, Any] = {"hbm_bw_bytes_s": 2e12, "vector": {"fp32": 2e13}, "source": "table", "confidence": "high"}


@pytest.mark.parametrize("reason", ["cache_resident", "dispatch_bound", "unvalidated_peak"])
def test_a_roof_that_does_not_limit_a_row_has_no_advice(reason: str) -> None:
    low = {**ENTRY, "name": "cached", "achieved_flops": 2e10, "roofline_pct": 0.01, "headroom_class": "unknown"}
    made = model({"entries": [ENTRY, {**low, "unknown_reason": reason, "hard_limit_speedup": 100.0}], "peaks": PEAKS})
    known, cached = made.kernels
    assert known.label()[1:] == ("50.0% of roof, up to 2.0x",)
    assert cached.label()[1:] == ("1.0% of memory roof", f"unknown: {reason.replace('_', ' ')}")
    assert cached.label(terse=True) == cached.label()
    assert (cached.arrow_tip, cached.headroom) == (None, None)
    assert made.title == "k is farthest from its roof, at 50.0%"  # the other's roof is not what it is far from
    assert "median" not in made.subtitle


def test_advice_unknown_to_the_engine_is_not_drawn() -> None:
    (one,) = model({"entries": [{**ENTRY, "hard_limit_speedup": None}], "peaks": PEAKS}).kernels
    assert (one.headroom, one.label()[1]) == (None, "50.0% of memory roof")
    row = {**ENTRY, "hard_limit_speedup": None, "unknown_reason": "no_target", "headroom_class": "unknown"}
    (one,) = model({"entries": [row], "peaks": PEAKS}).kernels
    assert one.label()[1:] == ("50.0% of roof, up to 2.0x", "unknown: no target")  # without a target there is a roof
    other = {key: value for key, value in ENTRY.items() if key != "hard_limit_speedup"}  # an artifact of another tool
    (one,) = model({"entries": [other], "peaks": PEAKS}).kernels
    assert one.headroom == 2.0


def test_the_subtitle_names_the_gfx_and_the_missing_peaks() -> None:
    assert "; gfx942, peaks: table, high confidence" in model({"entries": [ENTRY], "peaks": PEAKS, "gfx": "gfx942"}).subtitle
    nothing = {"product": None, "hbm_bw_bytes_s": None, "flops": {}, "vector": {}, "source": "derived", "confidence": "low"}
    assert model({"entries": [], "peaks": nothing}).subtitle == "0 kernels; no device known, no peaks known"


def test_a_row_without_a_verdict_is_unknown() -> None:
    row = {"intensity": 1, "gflops": 900, "dtype": "fp32"}
    rows = [{**row, "name": "a", "headroom_class": "moderate"}, {**row, "name": "b"}]
    made = model({**GPU, "kernels": rows})
    assert [one.verdict for one in made.kernels] == ["moderate", "unknown"]
    shown = [entry.text for entry in style.legend(made) if entry.kind == "color"]
    assert shown == ["moderate", "verdict unknown"]
    assert [one.verdict for one in model({**GPU, "kernels": rows[1:]}).kernels] == ["none"]


# Names.


@pytest.mark.parametrize("name", [None, "", "  \t ", math.nan])
def test_a_row_without_a_name_is_named_by_position(name: Any) -> None:
    rows = [{"name": name, "intensity": 1, "gflops": 900, "dtype": "fp32"}, {"name": name, "gbs": 5}]
    made = model({**GPU, "kernels": rows})
    assert [one.name for one in made.kernels] == ["row 1"]
    assert [one.name for one in made.excluded] == ["row 2"]
    assert model({"entries": [{**ENTRY, "name": name}], "peaks": PEAKS}).kernels[0].name == "row 1"


def test_stacked_combining_marks_are_cut_to_three() -> None:
    (one,) = model(
        {**GPU, "kernels": [{"name": "a" + "\u0301" * 40 + "b", "intensity": 1, "gflops": 9, "dtype": "fp32"}]}
    ).kernels
    assert one.name == "a" + "\u0301" * 3 + "b"


@pytest.mark.parametrize(
    ("said", "basis"),
    [
        ({"measurement_basis": "model", "confidence": "medium"}, "model, medium"),
        ({"confidence": "low"}, "low confidence"),
        ({}, ""),
    ],
)
def test_a_basis_names_what_it_describes(said: dict[str, str], basis: str) -> None:
    assert model({"entries": [{**ENTRY, **said}], "peaks": PEAKS}).kernels[0].basis == basis


def test_names_that_differ_in_the_middle_stay_different() -> None:
    name = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_{}_ldg8_f2f_stages_64x3_nn_align8>(Params)"
    made = model(many(40, name))
    shown = [one.label_name for one in made.kernels]
    assert len(set(shown)) == 40
    assert all(len(one) <= 30 for one in shown)
    assert shown[17].startswith("cutlass:…")
    assert "_17_ldg8" in shown[17]
    same = model({**GPU, "kernels": [{"name": name, "intensity": 1, "gflops": at, "dtype": "fp32"} for at in (300, 400)]})
    assert {one.label_name for one in same.kernels} == {"cutlass::Kernel2<cu…nn_align8>"}  # one kernel twice


def test_names_beyond_the_usual_length_stay_different() -> None:
    """The names share 240 characters before their first difference, and two of them 30 more before the second."""
    name = "void ns::launch<" + 240 * "A" + "Axis{}" + 30 * "B" + "{}" + 200 * "C" + ">(Params)"
    rows = [{"name": name.format(*one), "intensity": 1, "gflops": 300, "dtype": "fp32"} for one in ("0x", "1x", "1y")]
    rows += [{"name": f"f({one})", "intensity": 1, "gflops": 300, "dtype": "fp32"} for one in ("std::pair<int, int>", "double")]
    made = model({**GPU, "kernels": rows})
    entries = [{**ENTRY, "name": row["name"], "short_name": "ns::launch"} for row in rows]
    for chart in (made, model({"entries": entries, "peaks": PEAKS})):
        for shown in ([one.name for one in chart.kernels], [one.label_name for one in chart.kernels]):
            assert len(set(shown)) == 5
            assert "Axis0" in shown[0]
        assert all(len(one.name) <= 120 and len(one.label_name) <= 30 for one in chart.kernels)


def test_matrix_units_of_the_rate_of_vector_units_have_no_roof_of_their_own() -> None:
    peaks = {**PEAKS, "flops": {"fp32": 1e13}, "vector": {"fp32": 1e13}}
    row = {**ENTRY, "dtype": "fp32", "ridge_point": 5.0}
    made = model({"entries": [row], "peaks": peaks})
    assert [one.name for one in made.ceilings] == ["fp32 matrix and vector"]


def test_roofs_with_one_name_stay_different() -> None:
    roofs = {
        "ceilings": [
            {"name": "peak", "gflops": 1000, "dtype": "fp32"},
            {"name": "peak", "gflops": 2000, "dtype": "fp16"},
            {"name": "peak", "gflops": 2000, "dtype": "bf16"},
            {"name": "DRAM", "gflops": 300},
        ],
        "bandwidths": [{"name": "DRAM", "gbs": 100}, {"name": "DRAM", "gbs": 80}, {"name": "DRAM", "gbs": 80}],
    }
    made = model({**roofs, "kernels": []})
    shown = [entry.text for entry in style.legend(made)]
    assert sorted(shown) == [
        "DRAM: 100 GB/s",
        "DRAM: 300 GFLOP/s",
        "DRAM: 80 GB/s",
        "peak: 1 TFLOP/s",
        "peak: 2 TFLOP/s, bf16",
        "peak: 2 TFLOP/s, fp16",
    ]
    spec = output.vega_lite(made)
    assert spec["layer"][0]["encoding"]["color"]["scale"]["domain"] == shown
    for name in shown:  # a line each, of two vertices
        assert sum(row["roof"] == name for row in spec["datasets"]["roofs"]) == 2


def test_legend_symbols_are_unique() -> None:
    made = model(many(40))
    samples = [json.dumps(list(draw.sample(entry, 0, 0))) for entry in style.legend(made)]
    assert len(samples) >= 6
    assert len(set(samples)) == len(samples)  # an unknown verdict, gray, is not the circle of a memory bound


# Words on paper.


def through(layout: Layout, made: Chart) -> list[tuple[str, str]]:
    """Words along a slope, and a bandwidth's line that runs through them."""
    plane, found = layout.plane, []
    for slope in layout.slopes:
        for one in made.bandwidths:
            x, y = plane.back_x(slope.x), plane.back_y(slope.y)
            over = (plane.py(x * one.bytes_s) - plane.py(y)) * math.cos(plane.angle)
            if -6 < over < 0:  # from the letters' foot, a pixel down is positive
                found.append((slope.words, one.name))
    return found


@pytest.mark.parametrize("other", [1950, 1750, 1500, 1200])
@pytest.mark.parametrize("ceilings", [[], GPU["ceilings"]])
def test_bandwidth_lines_do_not_cross_labels(other: float, ceilings: list[dict[str, Any]]) -> None:
    wide = [{"name": "HBM", "level": "hbm", "gbs": 2039}, {"name": "copy", "level": "hbm", "gbs": other}]
    made, layout = laid({"bandwidths": wide, "ceilings": ceilings, "kernels": [{"name": "k", "intensity": 3, "gflops": 500}]})
    assert len(layout.slopes) == 2
    assert through(layout, made) == []


@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_without_room_only_main_memory_keeps_its_label(size: Size) -> None:
    _, layout = laid(many(40), size)
    (main,) = (slope.words for slope in layout.slopes if slope.words.startswith("memory bound, "))
    assert "2.039 TB/s" in main


#: Three kernels of 25 % or more at nearly one place, and four small ones at another.
CLOSE = [
    {"name": f"{'large ' * 4}{at}", "intensity": 300 + 5 * at, "gflops": 100_000, "dtype": "bf16", "share": 25 + at}
    for at in range(3)
]
CLOSE += [{"name": f"small {at}", "intensity": 1 + 0.1 * at, "gflops": 100 + 200 * at, "dtype": "fp32"} for at in range(4)]


@pytest.mark.parametrize("size", [WIDE, NARROW, Size(360, 460, bare=True)])
def test_kernels_of_much_of_the_time_have_labels(size: Size) -> None:
    made, layout = laid({**GPU, "kernels": [{"share": 4, **row} for row in CLOSE]}, size)
    assert {0, 1, 2} <= {label.kernel for label in layout.labels}
    spec = draw.specification(made, layout)
    marks = [mark for mark in spec["marks"][0]["marks"] if mark["from"]["data"] == "kernels"]
    assert [set(mark["encode"]["update"]) & {"fill", "stroke"} for mark in marks] == [{"fill", "stroke"}, {"stroke"}]


@pytest.mark.parametrize("size", [WIDE, NARROW, Size(360, 460, bare=True)])
@pytest.mark.parametrize("table", [many(40), many(12), {**GPU, "kernels": CLOSE}], ids=["forty", "twelve", "close"])
def test_arrows_do_not_cross_texts(table: dict[str, Any], size: Size) -> None:
    made, layout = laid(table, size)
    boxes = [*(label.box for label in layout.labels), *(text.box for text in (*layout.tags, *layout.flat, *layout.levels))]
    arrows = [line for at in layout.arrows if (line := stem(made.kernels[at], layout.plane)) is not None]
    assert arrows
    assert not any(box.crossed(line) for line in arrows for box in boxes)


def test_ceiling_labels_avoid_points() -> None:
    row = {"gflops": 18500, "dtype": "fp32", "share": 20}
    made, layout = laid({**GPU, "kernels": [{**row, "name": f"k{at}", "intensity": 10.0**at} for at in range(3, 7)]})
    discs = [layout.plane.disc(one.intensity, one.rate, wide) for one, wide in zip(made.kernels, layout.diameters)]
    (tag,) = (one for one in layout.tags if one.roof.name == "fp32 vector")
    assert not any(tag.box.hits(disc) for disc in discs)
    assert tag.box.inside(layout.plane.frame)


def test_ceiling_labels_avoid_slopes() -> None:
    wide = [{"name": "L1", "level": "l1", "gbs": 14336}, {"name": "HBM", "level": "hbm", "gbs": 829}]
    full = [{"name": f"k{x}", "intensity": x, "gflops": 3400, "share": 30} for x in (30, 100)]  # no room on the right
    ceilings = [{"name": "top", "gflops": 7069}, {"name": "n", "gflops": 3536}]
    made, layout = laid({"bandwidths": wide, "ceilings": ceilings, "kernels": full}, Size(520, 620, inside=False))
    (tag,) = (one for one in layout.tags if one.roof.name == "n")
    assert not any(tag.box.hits(layout.plane.disc(one.intensity, one.rate, 22)) for one in made.kernels)
    lines = roof_lines(made, layout.plane)
    assert not any(tag.box.crossed(line) for line in lines if line[0][1] != line[1][1])


@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_level_names_do_not_overlap(size: Size) -> None:
    near = [
        {"name": f"k{at}", "intensities": {"L1": x, "L2": 1.03 * x, "HBM": 1.06 * x}, "gflops": 150}
        for at, x in enumerate((0.3, 0.31, 2.0))
    ]
    made, layout = laid({**V100, "kernels": [*V100["kernels"], *near]}, size)
    boxes: list[Box] = [level.box for level in layout.levels]
    assert len(boxes) >= 5
    for at, box in enumerate(boxes):
        for one, wide in zip(made.kernels, layout.diameters):
            assert not any(box.hits(layout.plane.disc(x, one.rate, wide)) for _, x in one.spots)
        assert not any(box.hits(other) for other in boxes[at + 1 :])


def test_points_have_edges_unless_they_are_many() -> None:
    for count, wide in ((20, 0.8), (500, 0)):
        made = model(many(count))
        spec = draw.specification(made, arrange(made, style.legend(made)))
        (points,) = (mark for mark in spec["marks"][0]["marks"] if mark.get("name") == "points")
        assert points["encode"]["update"]["strokeWidth"]["value"] == wide


def test_a_row_whose_percent_contradicts_its_figures_is_not_drawn() -> None:
    """1 TFLOP/s at 1 FLOP/B is half of 2 TB/s; what says 90 %, or stands over that roof, is wrong somewhere."""
    rows = [
        {**ENTRY, "name": "right"},
        {**ENTRY, "name": "printed", "roofline_pct": 0.48},  # of rounded figures
        {**ENTRY, "name": "other", "roofline_pct": 0.9},
        {**ENTRY, "name": "over", "achieved_flops": 3e12, "roofline_pct": 0.15, "roof_axis": "compute"},
    ]
    made = model({"entries": rows, "peaks": PEAKS})
    assert [one.name for one in made.kernels] == ["right", "printed"]
    assert [(one.name, one.kind, one.why) for one in made.excluded] == [
        ("other", "unusable", "its roofline_pct is 0.9, its rate 0.5 of the roof at its intensity"),
        ("over", "impossible", "3 TFLOP/s is 1.5 times its roof of 2 TFLOP/s"),
    ]


def test_without_kernels_the_title_names_the_ridge() -> None:
    roofs = {"ceilings": [{"name": "FMA", "gflops": 800}, {"name": "scalar", "gflops": 50}], "bandwidths": [{"gbs": 100}]}
    assert model({**roofs, "kernels": []}).title == "Memory binds below 8 FLOP/byte, FMA above"


def test_a_name_of_combining_accents_is_as_wide_as_its_letters() -> None:
    assert text_width("a" + "\u0301" * 30) == text_width("a")
    assert text_width("\u77e9\u9635") >= 2 * text_width("a")
