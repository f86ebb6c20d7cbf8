"""The figure as values: percentages, ridges, omitted kernels, and labels that do not overlap."""

from __future__ import annotations

import copy
import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from pytest_roofline.ceilings.machine import Machine
from pytest_roofline.ceilings.store import Ceiling, Ceilings
from pytest_roofline.plot import style
from pytest_roofline.plot.layout import NARROW, WIDE, Box, Layout, Size, arrange
from pytest_roofline.plot.model import Chart, percent
from pytest_roofline.plot.sources import measured_roofs, read_ceilings, read_document
from pytest_roofline.report.columns import shorten
from support.figures import BANDWIDTH, GPU, NASTY, PEAK, SEVEN, SEVEN_OF_ROOF, V100, many
from support.profiles import GEMM, MI300X, Run, gemm_row, worked_example


def model(document: dict[str, Any], **options: Any) -> Chart:
    return read_document(document, "table.json", **options)


def table(*kernels: Any, **roof: Any) -> Chart:
    return model({**GPU, **roof, "kernels": list(kernels)})


def laid(document: dict[str, Any], size: Size = WIDE) -> tuple[Chart, Layout]:
    made = model(document)
    return made, arrange(made, style.legend(made), size)


# The specification's table.


def test_each_kernel_has_its_percent_of_the_roof_that_binds() -> None:
    made = model(SEVEN)
    assert [percent(one.fraction or 0) for one in made.kernels] == SEVEN_OF_ROOF
    assert [one.axis for one in made.kernels] == ["memory"] * 4 + ["compute"] * 3
    for one in made.kernels:  # the definition itself
        assert one.fraction == pytest.approx(one.rate / min(one.intensity * BANDWIDTH * 1e9, PEAK * 1e9))


def test_ceilings_and_ridges_match_the_specification() -> None:
    made = model(SEVEN)
    assert sorted((one.flops_s / 1e9 for one in made.ceilings), reverse=True) == [1840, 920, 115]
    assert sorted((round(x, 2) for x, _ in made.ridges), reverse=True) == [9.02, 4.51, 0.56]


def test_only_the_naive_gemm_is_reported_as_not_vectorized() -> None:
    made = model(SEVEN)
    assert {one.name: one.explanation for one in made.kernels if one.explanation} == {"dense GEMM (naive)": "not vectorized"}
    assert made.title == "dense GEMM (naive) is farthest from its roof, at 5.9%: not vectorized"


@pytest.mark.parametrize(
    ("intensity", "gflops", "told"),
    [
        (0.52, 96, ""),  # under the scalar ceiling, left of its ridge at 0.56: the bandwidth alone explains it
        (0.6, 96, "not vectorized"),
        (0.6, 116, ""),  # over the scalar ceiling, left of the ridge without FMA
        (5.0, 800, "no fused multiply-add"),
        (5.0, 930, ""),
        (5.0, 100, "not vectorized"),  # the lowest ceiling says most
    ],
)
def test_a_lower_ceiling_explains_only_what_is_right_of_its_ridge(intensity: float, gflops: float, told: str) -> None:
    made = model({**SEVEN, "kernels": [{"name": "k", "intensity": intensity, "gflops": gflops}]})
    assert made.kernels[0].explanation == told


def test_the_label_says_how_far_the_roof_is() -> None:
    labels = {one.name: one.label() for one in model(SEVEN).kernels}
    assert labels["FFT, 1M point"] == ("FFT, 1M point", "74.7% of roof, up to 1.3x")  # 1 / 0.747 = 1.34
    assert labels["stream triad"] == ("stream triad", "91.5% of roof")
    assert labels["dense GEMM (naive)"][1:] == ("5.9% of roof, up to 17x", "not vectorized")


# Roofs.


def test_slopes_are_straight_parallel_and_of_slope_one() -> None:
    made, layout = laid(V100)
    decade_x = layout.plane.px(10.0) - layout.plane.px(1.0)
    decade_y = layout.plane.py(1e9) - layout.plane.py(1e10)
    for slope in layout.slopes:
        wide = slope.roof
        low, high = layout.plane.x[0] * 2, layout.plane.x[1] / 2
        middle = math.sqrt(low * high)
        rise = layout.plane.py(low * wide.bytes_s) - layout.plane.py(high * wide.bytes_s)
        assert rise / (layout.plane.px(high) - layout.plane.px(low)) == pytest.approx(decade_y / decade_x)
        assert layout.plane.py(middle * wide.bytes_s) == pytest.approx(
            (layout.plane.py(low * wide.bytes_s) + layout.plane.py(high * wide.bytes_s)) / 2
        )
        assert slope.angle == pytest.approx(math.degrees(math.atan(decade_y / decade_x)))
    assert len({slope.angle for slope in layout.slopes}) == 1
    assert len(made.bandwidths) == 3


def test_a_kernel_is_drawn_at_each_level_and_judged_by_the_limiting_one() -> None:
    made = model(V100)
    (gpp,) = made.kernels
    assert dict(gpp.spots) == {"l1": 0.865, "l2": 2.25, "hbm": 2.58}
    # L1 12401, L2 6743, HBM 2138 GFLOP/s: HBM is the least
    assert gpp.spots[0] == ("hbm", 2.58)
    assert gpp.fraction == pytest.approx(2085.8 / (2.58 * 828.758))
    assert made.main is not None
    assert made.main.name == "HBM"


def test_a_kernel_without_a_level_uses_main_memory() -> None:
    (one,) = table({"name": "k", "intensity": 1, "gflops": 1000, "dtype": "fp32"}).kernels
    assert one.bytes_s == 2039e9


def test_a_dtype_uses_only_its_own_ceiling() -> None:
    made = table(
        {"name": "single", "intensity": 1e4, "gflops": 9750, "dtype": "torch.float32"},
        {"name": "half", "intensity": 1e4, "gflops": 9750, "dtype": "bf16"},
        {"name": "none", "intensity": 1e4, "gflops": 9750},
    )
    assert [one.flops_s for one in made.kernels] == [19500e9, 312000e9, None]
    assert made.kernels[0].fraction == 0.5


def test_a_measured_ceiling_under_the_rated_one_explains_nothing() -> None:
    """Nearly every kernel is under it; a lower ceiling of the same kind does."""
    measured = {"name": "bf16, reached by a GEMM", "gflops": 200000, "dtype": "bf16", "basis": "measured"}
    half = {"name": "AVX2", "gflops": 90000, "dtype": "bf16", "basis": "rated"}
    rows = {"ceilings": [*GPU["ceilings"], measured, half]}
    kernels = [{"name": str(rate), "intensity": 1e4, "gflops": rate, "dtype": "bf16"} for rate in (150000, 80000)]
    assert [one.explanation for one in table(*kernels, **rows).kernels] == ["", "under AVX2"]


# What is not drawn.


@pytest.mark.parametrize(
    ("row", "kind", "why"),
    [
        ({"intensity": 0, "gflops": 5}, "unusable", "intensity is 0"),
        ({"intensity": -1, "gflops": 5}, "unusable", "intensity is -1"),
        ({"intensity": math.nan, "gflops": 5}, "unusable", "nan"),
        ({"intensity": 1, "gflops": math.inf}, "unusable", "inf"),
        ({"intensity": 1, "gflops": -5}, "unusable", "more than 0"),
        ({"intensity": "1,234.5x", "gflops": 5}, "unusable", "expected a number"),
        ({"intensity": True, "gflops": 5}, "unusable", "expected a number"),
        ({"gflops": 5}, "unusable", "no intensity"),
        ({"intensity": 1, "gflops": 5, "flops_s": 5e9}, "unusable", "both"),
        ({"intensities": {"L9": 1}, "gflops": 5}, "unusable", "its intensities name the level 'L9', the bandwidths have hbm"),
        ({"intensity": 1e300, "gflops": 5}, "unusable", "out of the range"),
        ({"intensity": 1, "flops_s": 1e-200}, "unusable", "out of the range"),
        ({"intensity": 1}, "not measured", "no rate"),
        ({"intensity": 0, "gflops": 0, "gbs": 1019.5}, "copy", "1.02 TB/s, 50.0% of HBM"),
        ({"gbs": 1019.5}, "copy", "no FLOPs are given"),
        ({"intensity": 1, "gflops": 4078, "dtype": "fp32"}, "impossible", "2 times its roof of 2.039 TFLOP/s"),
        (7, "unusable", "not an object"),
    ],
)
def test_kernels_that_cannot_be_drawn_are_listed_with_a_reason(row: Any, kind: str, why: str) -> None:
    good = {"name": "good", "intensity": 1, "gflops": 1000, "dtype": "fp32"}
    made = table(row if isinstance(row, int) else {"name": "odd", **row}, good)
    assert [one.name for one in made.kernels] == ["good"]
    (left,) = made.excluded
    assert left.kind == kind
    assert why in left.why
    assert "1 listed, not drawn" in made.subtitle
    layout = arrange(made, style.legend(made))
    assert any(why.split(" ")[0] in line for line in layout.footer)


def test_a_bandwidth_reached_at_an_intensity_is_a_rate() -> None:
    (one,) = table({"name": "triad", "intensity": 0.083, "gbs": 1000, "dtype": "fp32"}).kernels
    assert one.rate == pytest.approx(83e9)


@pytest.mark.parametrize(
    ("roof", "told"),
    [
        ({"ceilings": [{"name": "a"}]}, r"ceilings\[0\]: expected flops_s or gflops"),
        ({"ceilings": [{"gflops": 0}]}, "more than 0"),
        ({"ceilings": [{"gflops": math.nan}]}, r"ceilings\[0\] gflops is nan"),
        ({"ceilings": [{"gflops": 1e300}]}, "out of the range"),
        ({"ceilings": [3]}, r"ceilings\[0\] is int"),
        ({"bandwidths": {"gbs": 1}}, "bandwidths is dict, expected a list"),
        ({"bandwidths": [{"gbs": 1, "basis": "guessed"}]}, "basis is 'guessed', expected rated, measured, given"),
    ],
)
def test_an_invalid_roof_is_an_error(roof: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        table(**roof)


def test_an_unknown_document_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"table.json: nothing to draw\. Expected a report or an artifact"):
        model({"rows": []})


def test_a_hostile_name_is_shortened_and_shows_no_control_character() -> None:
    (one,) = table({"name": NASTY, "intensity": 1, "gflops": 100, "dtype": "fp32"}).kernels
    assert len(one.name) <= 120
    assert len(one.label_name) <= 30
    assert one.name.startswith("</script><img")
    assert one.name.isprintable()
    assert one.name.endswith("\\x00\\u202e")
    assert shorten("plain") == "plain"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("void scale<float>(float*, int)", "scale<float>"),
        ("ns::copy(Params)", "ns::copy"),
        ("dense GEMM (naive)", "dense GEMM (naive)"),
        (
            "void wide_kernel_of_many_letters<float, 128, 256>(int)",
            "wide_kernel_of_many… 128, 256>",
        ),  # 19 letters, the ellipsis, 10
    ],
)
def test_labels_omit_the_shared_part_of_signatures(name: str, shown: str) -> None:
    (one,) = table({"name": name, "intensity": 1, "gflops": 100, "dtype": "fp32"}).kernels
    assert (one.name, one.label_name) == (name, shown)


# From an artifact and from a report.


def test_an_artifacts_percentages_are_its_own() -> None:
    artifact = json.loads(worked_example())
    made = model(artifact)
    entries = {entry["short_name"]: entry for entry in artifact["entries"]}
    assert {one.name: one.fraction for one in made.kernels} == {name: entry["roofline_pct"] for name, entry in entries.items()}
    for one in made.kernels:  # and the roof drawn over each is the one that gives them
        assert one.rate / (one.roof or 0) == pytest.approx(one.fraction)
    assert [one.name for one in made.ceilings] == ["fp8 matrix", "bf16 matrix"]
    assert made.subtitle.endswith("gfx950, peaks: table, high confidence")
    attention = next(one for one in made.kernels if "attention" in one.name)
    assert attention.range_ends is not None  # 1024 to 2048 tokens
    assert attention.range_ends[1][1] / attention.range_ends[0][1] == pytest.approx(2.0, rel=0.02)


def test_rows_of_an_artifact_that_cannot_be_drawn_are_listed(run: Run) -> None:
    run.env(**MI300X).topn(
        gemm_row("timed"),
        gemm_row("too_fast", t_ms=0.001),
        gemm_row("copies", t_ms=0.1),
        gemm_row("unknown_kernel"),
    ).shapes(
        timed=[GEMM],
        too_fast=[GEMM],
        copies=[{"op": "copy", "rows": 8192, "cols": 8192, "dtype": "bf16"}],
    )
    artifact = run.analyze()
    made = model(artifact)
    assert [one.name for one in made.kernels] == ["timed"]
    assert {one.name: one.kind for one in made.excluded} == {
        "too_fast": "impossible",
        "copies": "copy",
        "unknown_kernel": "unmodelled",
    }


def test_an_artifact_without_dtypes_has_the_roofs_of_its_ridge_points() -> None:
    """As published artifacts are: ridge point x bandwidth is the compute roof, and the arrow ends there, not at the slope."""
    peaks = {"hbm_bw_bytes_s": 8e12, "flops": {"bf16": 2.5e15, "fp4": 1e16}, "source": "table", "confidence": "high"}
    row = {"t_ms": 1.0, "arithmetic_intensity": 512.0, "achieved_flops": 1e14, "roofline_pct": 0.04, "modeled": True}
    made = model(
        {
            "entries": [
                {**row, "name": "flat", "ridge_point": 312.5},
                {**row, "name": "slope", "ridge_point": 1250.0, "roofline_pct": 0.024},
                {**row, "name": "unlisted", "ridge_point": 100.0, "roofline_pct": 0.125},
            ],
            "peaks": peaks,
        }
    )
    assert {one.name: (one.axis, one.arrow_tip) for one in made.kernels} == {
        "flat": ("compute", 2.5e15),
        "slope": ("memory", 512 * 8e12),
        "unlisted": ("compute", 8e14),
    }
    assert {one.name: one.flops_s for one in made.ceilings} == {"bf16 matrix": 2.5e15, "fp4 matrix": 1e16}


def test_a_device_is_chosen_by_name_or_by_most_rows() -> None:
    entry = {
        "name": "k",
        "modeled": True,
        "t_unit_ms": 1.0,
        "flops_est": 1e9,
        "achieved_flops": 1e12,
        "arithmetic_intensity": 1.0,
        "roofline_pct": 0.5,
        "headroom_class": "underperforming",
        "bound_type": "latency",
    }
    peaks = {"product": "a", "hbm_bw_bytes_s": 2e12, "flops": {}, "vector": {}, "source": "table", "confidence": "high"}
    report = {
        "entries": [{**entry, "device": "A"}, {**entry, "device": "B"}, {**entry, "device": "B"}],
        "devices": {"A": peaks, "B": {**peaks, "product": "b"}},
    }
    assert len(model(report).kernels) == 2
    assert len(model(report, device="A").kernels) == 1
    assert [one.kind for one in model(report, device="A").excluded] == ["other device"] * 2
    with pytest.raises(ValueError, match="no device 'C', expected A, B"):
        model(report, device="C")


def test_a_baseline_of_the_same_kind_is_the_earlier_point() -> None:
    entry = {
        "name": "k",
        "modeled": True,
        "t_unit_ms": 1.0,
        "flops_est": 1e9,
        "achieved_flops": 1e12,
        "arithmetic_intensity": 1.0,
        "roofline_pct": 0.5,
        "measurement": {"t_s": 1e-3, "q1_s": 0.9e-3, "q3_s": 1.25e-3},
        "baseline": {"kind": "previous", "t_s": 2e-3},
    }
    peaks = {"hbm_bw_bytes_s": 2e12}
    (one,) = model({"entries": [entry], "peaks": peaks}).kernels
    assert one.earlier == ((1.0, 5e11),)
    assert one.range_ends == ((1.0, pytest.approx(8e11)), (1.0, pytest.approx(1e12 / 0.9)))
    (other,) = model({"entries": [{**entry, "baseline": {"kind": "eager", "t_s": 2e-3}}], "peaks": peaks}).kernels
    assert other.earlier == ()


def measured_cpu() -> dict[str, Any]:
    """A CPU of 100 GB/s and 800 GFLOP/s in fp64, half of it without FMA, an eighth by scalar code, with one cache."""
    figures = [
        ("read", "bandwidth", "DRAM", 100e9),
        ("triad", "bandwidth", "DRAM", 80e9),
        ("read", "bandwidth", "L2", 900e9),
        ("vector_fma", "compute", None, 800e9),
        ("vector", "compute", None, 400e9),
        ("scalar", "compute", None, 100e9),
    ]
    items = tuple(
        Ceiling(name=name, kind=kind, level=level, dtype="fp64", threads=8, value=value, median=value, rounds=5, method="carm")
        for name, kind, level, value in figures
    )
    machine = Machine(cpu="a CPU", arch="x86_64", cores=8, memory_bytes=2**34, cache_bytes=2**25)
    record = Ceilings(machine=machine, method="carm", date="2026-01-01T00:00:00Z", clock_mhz=3000, call_s=1e-7, items=items)
    return {"peaks": record.peaks().to_dict(), **record.to_json()}


def test_measured_cpu_ceilings_complete_a_report() -> None:
    record = measured_cpu()
    entry = {
        "name": "k",
        "modeled": True,
        "dtype": "fp64",
        "t_unit_ms": 1.0,
        "flops_est": 1e9,
        "achieved_flops": 60e9,
        "arithmetic_intensity": 16.0,
        "ridge_point": 8.0,
        "roofline_pct": 60 / 800,
    }
    report = {"entries": [{**entry, "device": "cpu"}], "devices": {"cpu": record["peaks"]}}
    bare, full = model(report), model(report, ceilings=record)
    assert [one.explanation for one in bare.kernels] == [""]
    assert [one.explanation for one in full.kernels] == ["not vectorized"]
    assert [(one.name, one.flops_s) for one in full.ceilings] == [
        ("fp64 vector", 800e9),
        ("fp64 no FMA", 400e9),
        ("fp64 scalar", 100e9),
    ]
    assert [(one.name, one.bytes_s) for one in full.bandwidths] == [
        ("memory, measured", 100e9),
        ("DRAM triad", 80e9),
        ("L2 read", 900e9),
    ]
    assert full.kernels[0].fraction == bare.kernels[0].fraction
    alone = model(record)
    assert len(alone.ceilings) == 3
    assert alone.kernels == ()
    with pytest.raises(ValueError, match="--ceilings is of a CPU"):
        model({**report, "devices": {"cpu": {**record["peaks"], "product": "mi300x"}}}, ceilings=record)
    with pytest.raises(ValueError, match="not a record of roofline peaks measure: schema is None"):
        model(report, ceilings={})
    with pytest.raises(ValueError, match="this document has roofs already"):
        model(SEVEN, ceilings=record)


#: Values that a field of a third-party document may hold.
ODD: list[Any] = [None, "", "x", math.nan, math.inf, -1, 0, 1e300, 1e-300, True, [], {}, [1, [2]], "\ud800", "</script>"]
ODD += [10**400, "1,000", ["a", None]]


def broken(value: Any, dice: random.Random) -> Any:
    """Return a copy of a document with one field replaced."""
    if not isinstance(value, (dict, list)) or not value or dice.random() < 0.04:
        return dice.choice(ODD)
    made = copy.copy(value)
    place = dice.choice(list(made)) if isinstance(made, dict) else dice.randrange(len(made))
    made[place] = broken(made[place], dice)
    return made


def test_every_document_error_is_one_line(run: Run) -> None:
    run.env(**MI300X).topn(gemm_row("timed")).shapes(timed=[GEMM])
    whole = [run.analyze(), SEVEN, V100, many(6), measured_cpu()]
    drawn, refused = 0, []
    for seed in range(600):
        dice = random.Random(seed)
        document = dice.choice(whole)
        for _ in range(dice.choice([1, 3, 10])):
            document = broken(document, dice)
        try:
            made = model(document)
        except ValueError as error:
            refused.append(str(error))
            continue
        layout = arrange(made, style.legend(made))
        said = [made.title, made.subtitle, *layout.footer, *(line for label in layout.labels for line in label.lines)]
        assert all(line.isprintable() for line in said)
        drawn += 1
    assert drawn > 200
    assert len(refused) > 50
    assert not [line for line in refused if "\n" in line]


# Levels of memory in a report.

#: 1 TFLOP/s at 1 FLOP/B of main memory, half of 2 TB/s; in the same second 4 TB pass the L2.
COUNTED = {
    **{"name": "k", "modeled": True, "t_unit_ms": 1000.0, "flops_est": 1e12, "achieved_flops": 1e12, "roof_axis": "memory"},
    **{"arithmetic_intensity": 1.0, "ridge_point": 10.0, "roofline_pct": 0.5, "l2_traffic": 4e12, "headroom_class": "moderate"},
}
GPU_PEAKS = {"hbm_bw_bytes_s": 2e12, "vector": {"fp32": 2e13}, "source": "table", "confidence": "high", "product": "gpu"}


def counted(gbs: float) -> Chart:
    """The row with an L2 of ``gbs`` GB/s: 4 TB of traffic in a second."""
    record = {"entries": [COUNTED], "peaks": GPU_PEAKS}
    return model(record, ceilings={"bandwidths": [{"name": "L2", "level": "L2", "gbs": gbs, "basis": "measured"}]})


def test_a_counted_level_has_a_point_and_the_binding_one_is_marked() -> None:
    for gbs, first, part in ((16_000, "hbm", 0.5), (5_000, "l2", 0.8)):  # 4 of 16 TB/s is 25 %, 4 of 5 is 80 %
        made = counted(gbs)
        (one,) = made.kernels
        assert dict(one.spots) == {"hbm": 1.0, "l2": 0.25}  # 1e12 FLOP / 4e12 B
        assert one.spots[0][0] == first
        assert one.fraction == pytest.approx(part)
        assert dict(one.by_level) == pytest.approx({"hbm": 0.5, "l2": 4_000 / gbs})
        assert [text.words for text in arrange(made, []).levels if text.words.endswith("binds")] == [f"{first.upper()} binds"]
    assert one.label()[1] == "80.0% of L2 roof, up to 1.2x"


def test_the_published_bandwidth_of_the_l2_is_drawn_where_its_traffic_was_counted() -> None:
    peaks = {**GPU_PEAKS, "l2_bw_bytes_s": 5e12}
    made = model({"entries": [COUNTED], "peaks": peaks})
    assert [(one.name, one.bytes_s) for one in made.bandwidths] == [("memory, rated", 2e12), ("L2, rated", 5e12)]
    assert made.kernels[0].spots[0] == ("l2", 0.25)
    assert len(model({"entries": [{**COUNTED, "l2_traffic": None}], "peaks": peaks}).bandwidths) == 1


def test_a_level_that_cannot_be_drawn_is_in_the_notes() -> None:
    (note,) = counted(3_000).notes  # 4 TB/s through 3
    assert note == "L2: not drawn for 1 of the kernels: their rate is over its roof, so count or bandwidth is wrong"
    (note,) = model({"entries": [COUNTED], "peaks": GPU_PEAKS}).notes
    assert note == "L2: counted, not drawn: its bandwidth is unknown. Give measured bandwidths with --ceilings"


def test_a_row_judged_by_a_cache_is_drawn_under_the_roof_of_that_cache() -> None:
    """4 TFLOP/s at 1 FLOP/B is twice the roof of memory, and 80 % of an L2 of 5 TB/s; the row after it is of memory."""
    cached = {**COUNTED, "achieved_flops": 4e12, "achieved_bw_bytes_s": 4e12, "roofline_pct": 0.8, "roofline_pct_raw": 0.8}
    rows = [{**cached, "roof_level": "L2", "device": "cpu"}, {**COUNTED, "device": "cpu"}]
    peaks = {**GPU_PEAKS, "source": "measured"}
    made = model({"entries": [{**row, "l2_traffic": None} for row in rows], "devices": {"cpu": peaks}})
    one, other = made.kernels
    assert (one.fraction, one.spots) == (0.8, (("l2", 1.0),))
    assert one.roof == pytest.approx(5e12)
    assert (other.fraction, other.roof) == (0.5, 2e12)
    assert [(line.level, line.bytes_s) for line in made.bandwidths] == [("memory", 2e12), ("l2", pytest.approx(5e12))]
    assert made.excluded == ()


def test_rocprof_compute_ceilings_are_read(tmp_path: Path) -> None:
    path = tmp_path / "roofline.csv"
    path.write_text(
        "device,HBMBw,L2Bw,L1Bw,LDSBw,FP32Flops,MFMABF16Flops\n0,1388,5018,9226,17717,20941,170483\n1,1389,5029,,1,1,1\n"
    )
    roofs = measured_roofs(read_ceilings(str(path)), "roofline.csv")
    assert [(one.level, one.bytes_s) for one in roofs.bandwidths] == [("hbm", 1389e9), ("l2", 5029e9), ("l1", 9226e9)]
    assert [(one.dtype, one.flops_s) for one in roofs.ceilings] == [("fp32", 20941e9), ("bf16", 170483e9)]
    path.write_text("device,HBMBw,L2Bw\n0,fast,1\n")
    with pytest.raises(ValueError, match="line 2: HBMBw"):
        read_ceilings(str(path))


# On paper.


def boxes_of(layout: Layout) -> list[Box]:
    return [label.box for label in layout.labels]


@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_forty_labels_do_not_overlap(size: Size) -> None:
    made, layout = laid(many(40), size)
    boxes = boxes_of(layout)
    assert len(boxes) >= (25 if size is WIDE else 8)
    for at, box in enumerate(boxes):
        assert box.inside(layout.plane.frame)
        assert not any(box.hits(other) for other in boxes[at + 1 :])
        assert not (size.inside and box.hits(layout.legend_box))
        for one, wide in zip(made.kernels, layout.diameters):
            disc = Box(layout.plane.px(one.intensity) - wide / 2, layout.plane.py(one.rate) - wide / 2, wide, wide)
            assert not box.hits(disc)


def test_names_of_close_ceilings_do_not_overlap() -> None:
    near = [{"name": f"measured {at}", "gflops": 312000 - 2000 * at, "dtype": "bf16"} for at in range(5)]
    _, layout = laid({**many(10), "ceilings": near})
    boxes = [tag.box for tag in layout.tags]
    assert len(boxes) == 5
    for at, box in enumerate(boxes):
        assert box.inside(layout.plane.frame)
        assert not any(box.hits(other) for other in boxes[at + 1 :])


def test_at_most_forty_of_the_largest_kernels_are_labeled() -> None:
    made, layout = laid(many(2000))
    assert 0 < len(layout.labels) <= 40
    named = [made.kernels[label.kernel].share or 0 for label in layout.labels]
    ranked = sorted((one.share or 0 for one in made.kernels), reverse=True)
    assert min(named) >= ranked[39]


@pytest.mark.parametrize(
    "kernels",
    [
        [],
        [{"name": "one", "intensity": 3, "gflops": 500, "dtype": "fp32"}],
        [{"name": f"same_{at}", "intensity": 3, "gflops": 500, "dtype": "fp32"} for at in range(30)],
        [
            {"name": "least", "intensity": 1e-5, "gflops": 1e-5, "dtype": "fp32"},
            {"name": "most", "intensity": 1e5, "gflops": 1e5, "dtype": "bf16"},
        ],
        [{"name": "under the legend", "intensity": 1e4, "gflops": 30, "dtype": "bf16"}],
    ],
    ids=["none", "one", "one point", "ten decades", "low right"],
)
@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_everything_is_inside_the_frame(kernels: list[dict[str, Any]], size: Size) -> None:
    made, layout = laid({**GPU, "kernels": kernels}, size)
    for one in made.kernels:
        spot = Box(layout.plane.px(one.intensity), layout.plane.py(one.rate), 0, 0)
        assert spot.grown(4).inside(layout.plane.frame)
        assert not (size.inside and spot.grown(1).hits(layout.legend_box))
    for x, y in made.ridges:
        assert Box(layout.plane.px(x), layout.plane.py(y), 0, 0).inside(layout.plane.frame)
    assert all(box.inside(layout.plane.frame) for box in boxes_of(layout))


def test_an_empty_table_is_still_a_figure() -> None:
    made, layout = laid({"kernels": []})
    assert (made.title, made.subtitle) == ("Roofline", "0 kernels; no roof given")
    assert layout.unit[1] == "GFLOP/s"
    assert model({"kernels": [{"name": "k"}]}).title == "No row has a place on this plot: see the list for the reasons"
    assert layout.plane.x[0] < layout.plane.x[1]


def test_marker_areas_grow_with_the_share() -> None:
    rows = [{"name": str(share), "intensity": 1, "gflops": 100, "dtype": "fp32", "share": share} for share in (64, 16, 0)]
    _, layout = laid({**GPU, "kernels": rows})
    large, middle, small = (wide**2 for wide in layout.diameters)
    assert middle - small == pytest.approx((large - small) / 4, rel=0.15)  # in steps


def test_the_title_ranks_by_remaining_time() -> None:
    row = {"intensity": 1, "dtype": "fp32"}
    made = table(
        {**row, "name": "short", "gflops": 200, "share": 1, "headroom_class": "underperforming"},
        {**row, "name": "long", "gflops": 1000, "share": 60, "headroom_class": "moderate"},
        {**row, "name": "unsure", "gflops": 20, "share": 39, "headroom_class": "unknown"},
    )
    told = "long has most to win: 60% of the time at 49.0% of its roof"
    assert made.title == f"Of the rows with a verdict, {told}"  # the unsure one, 39 % at 1 %, would come first
    sure = table(
        {**row, "name": "long", "gflops": 1000, "share": 60, "headroom_class": "moderate"},
        {**row, "name": "unsure", "gflops": 2000, "share": 39, "headroom_class": "unknown"},
    )
    assert sure.title == told
