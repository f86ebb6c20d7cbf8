"""The verdict: axis, bound, bands, no-verdict rules and their order, ranges, caps, routes."""

from __future__ import annotations

import pytest

from roofline_engine.fields import ByteModel, Entry, Note, has_note, join_notes, note, read_notes, tidy_notes
from roofline_engine.peaks import Device, Peaks, resolve
from roofline_engine.peaks_table import load
from roofline_engine.roofline import assess, headroom, point, route, throughput_gain_pct, time_saved_pct
from roofline_engine.units import parse_dtype
from roofline_engine.work import Work, combine_shapes, scale_work
from support.tool import ROOT

#: Round peaks: ridge at 100 FLOP/B.
PEAKS = Peaks(
    product="test",
    gfx="gfx000",
    hbm_bw_bytes_s=1e12,
    flops={"bf16": 1e14},
    vector={"fp32": 1e13},
    source="table",
    confidence="high",
)
T_S = 1e-3


def judged(
    share_of_bw: float,
    intensity: float = 1.0,
    *,
    op: str = "gemm",
    others: tuple[float, ...] = (),
    peaks: Peaks = PEAKS,
    t_s: float = T_S,
    dtype: str = "bf16",
    conflict: bool = False,
    **fields: object,
) -> Entry:
    """Assess a kernel that moves ``share_of_bw`` of what the roof allows in its time; ``others`` are further byte models."""
    nbytes = share_of_bw * 1e12 * t_s
    candidates = tuple(
        ByteModel(f"model_{index}", share * 1e12 * t_s, intensity * nbytes)
        for index, share in enumerate((share_of_bw, *others))
    )
    kind = "attn" if op.startswith("attn") else op
    done = Work(op, kind, candidates, "matrix", parse_dtype(dtype), parse_dtype(dtype), ())
    start = {"stage": "B", "t_ms": t_s * 1e3, "t_unit_ms": t_s * 1e3, "pct_gpu_time": 20.0, **fields}
    return assess(Entry(**start), done, peaks, conflict=conflict)  # type: ignore[arg-type]


def test_k8_on_the_ridge_is_memory_and_a_ratio_of_one_is_possible() -> None:
    at_ridge = judged(1.0, intensity=100.0)
    assert at_ridge.roof_axis == "memory"
    assert at_ridge.roofline_pct == at_ridge.roofline_pct_raw == 1.0
    assert (at_ridge.suspect, at_ridge.headroom_class) == (False, "saturated")
    assert judged(0.5, intensity=100.001).roof_axis == "compute"


def test_k8_a_ratio_of_zero_is_suspect() -> None:
    nothing = judged(0.0, intensity=0.0)
    assert (nothing.suspect, nothing.headroom_class, nothing.unknown_reason) == (True, "unknown", "infeasible")
    assert nothing.bound_type == "unknown"


def test_k7_d12_attainable_and_gain_identity_of_geaks_minimax() -> None:
    entry = judged(0.3)
    assert entry.attainable_speedup == pytest.approx(0.9 / 0.3)
    assert entry.expected_e2e_gain_pct == pytest.approx(20.0 * (1 - 1 / 3.0))
    assert entry.hard_limit_speedup == pytest.approx(1 / 0.3)
    # The published MiniMax artifact printed 6.81 for a share of 21.79 and 11.89x: the identity gives 19.96 (D12).
    assert time_saved_pct(21.79, 11.89) == pytest.approx(19.96, abs=0.005)


def test_throughput_gain_is_not_time_saved() -> None:
    # 21.2 % of the time saved is 26.9 % more throughput (gpt-oss-120b report).
    assert throughput_gain_pct(21.2) == pytest.approx(26.9, abs=0.01)
    assert throughput_gain_pct(100.0) is None


@pytest.mark.parametrize(
    ("pct", "verdict"),
    [(0.81, "saturated"), (0.8099, "moderate"), (0.54, "moderate"), (0.5399, "underperforming"), (0.95, "saturated")],
)
def test_bands_are_against_the_target(pct: float, verdict: str) -> None:
    assert headroom(pct, 0.90) == verdict  # 0.9 x 0.90 = 0.81, 0.6 x 0.90 = 0.54


@pytest.mark.parametrize(
    ("share", "intensity", "bound"),
    [
        (0.60, 1.0, "memory"),
        (0.59, 1.0, "latency"),  # a small intensity alone is not memory-bound
        (0.30, 200.0, "compute"),  # 0.3 of the bandwidth at 200 FLOP/B is 0.6 of the FLOP/s
        (0.29, 200.0, "latency"),
    ],
)
def test_utilization_decides_the_limiter(share: float, intensity: float, bound: str) -> None:
    assert judged(share, intensity).bound_type == bound


def test_attainable_is_never_under_one() -> None:
    assert judged(0.97).attainable_speedup == 1.0
    assert judged(0.97).expected_e2e_gain_pct == 0.0


def test_k6_dispatch_bound_up_to_five_microseconds_and_not_beyond() -> None:
    short = judged(0.3, t_s=5e-6)
    assert (short.bound_type, short.unknown_reason, short.attainable_speedup) == ("latency", "dispatch_bound", None)
    longer = judged(0.3, t_s=8.3e-6)
    assert longer.unknown_reason is None
    # The published GLM-5.3-Flash table: an 8.3 us kernel is capped at 8.3 / 5 = 1.66x whatever its ratio.
    assert longer.attainable_speedup == pytest.approx(1.66)


def test_a_launch_within_the_floor_is_dispatch_bound_also_without_a_peak() -> None:
    assessed = judged(0.3, t_s=4e-6, peaks=PEAKS._replace(flops={}))
    assert assessed.roof_axis is None  # a gemm without a compute peak
    assert (assessed.unknown_reason, assessed.bound_type) == ("dispatch_bound", "latency")


def test_the_range_must_agree_on_a_class() -> None:
    same = judged(0.82, others=(0.88,))
    assert same.headroom_class == "saturated"
    assert same.roofline_pct_range == pytest.approx((0.82, 0.88))
    assert same.attainable_speedup_range == pytest.approx((0.9 / 0.88, 0.9 / 0.82))
    split = judged(0.30, others=(0.70,))
    assert (split.headroom_class, split.unknown_reason) == ("unknown", "conflicting_models")
    assert split.indicative_class == "underperforming"
    assert split.rankable is False
    assert split.stage_c_candidate is True
    assert split.attainable_speedup is not None  # shown, not ranked on


def test_an_infeasible_candidate_leaves_the_range() -> None:
    entry = judged(0.85, others=(1.02,))
    assert [model.feasible for model in entry.byte_models] == [True, False]
    assert entry.roofline_pct_range == pytest.approx((0.85, 0.85))
    assert entry.headroom_class == "saturated"


def test_candidates_on_different_roofs_conflict() -> None:
    # The same FLOPs over half the bytes cross the ridge.
    entry = judged(0.6, intensity=60.0, others=(0.3,))
    assert entry.unknown_reason == "conflicting_models"


def test_missing_time_keeps_bytes_and_gives_no_verdict() -> None:
    entry = judged(0.5, t_ms=None, t_unit_ms=None)
    assert (entry.unknown_reason, entry.headroom_class, entry.roofline_pct) == ("not_measured", "unknown", None)
    assert entry.bytes_est == pytest.approx(0.5e9)
    assert entry.arithmetic_intensity == pytest.approx(1.0)


def test_missing_compute_peak_gives_no_axis_to_a_gemm() -> None:
    entry = judged(0.7, peaks=PEAKS._replace(flops={}))
    assert (entry.roofline_pct, entry.compute_util, entry.ridge_point) == (None, None, None)
    assert entry.hbm_util == pytest.approx(0.7)
    assert (entry.headroom_class, entry.unknown_reason) == ("unknown", "unvalidated_peak")


def test_a_rate_over_the_one_known_peak_is_impossible_without_the_other() -> None:
    for entry in (judged(1.7, peaks=PEAKS._replace(flops={})), judged(0.5, 300.0, peaks=PEAKS._replace(hbm_bw_bytes_s=None))):
        assert (entry.suspect, entry.unknown_reason) == (True, "infeasible")


def test_an_unvalidated_compute_peak_costs_only_the_compute_axis() -> None:
    peaks = PEAKS._replace(unvalidated={"matrix.bf16": "bf16 and fp16 differ"})
    compute = judged(0.4, intensity=200.0, peaks=peaks)
    assert (compute.roof_axis, compute.unknown_reason, compute.attainable_speedup) == ("compute", "unvalidated_peak", None)
    assert judged(0.85, peaks=peaks).headroom_class == "saturated"


def test_low_confidence_peaks_of_one_axis() -> None:
    peaks = PEAKS._replace(confidence="low", low_axes=("memory",))
    memory = judged(0.85, peaks=peaks)
    assert (memory.confidence, memory.headroom_class, memory.unknown_reason) == ("low", "unknown", "low_confidence")
    assert (memory.indicative_class, memory.rankable) == ("saturated", False)
    compute = judged(0.45, intensity=200.0, peaks=peaks)
    assert (compute.confidence, compute.headroom_class) == ("medium", "saturated")


def test_streaming_work_needs_no_compute_peak() -> None:
    done = Work("rmsnorm", "elementwise", (ByteModel("x", 0.5e9, 1e9),), "vector", parse_dtype("fp32"), parse_dtype("bf16"), ())
    start = Entry(stage="B", t_ms=1.0, t_unit_ms=1.0, pct_gpu_time=20.0)
    entry = assess(start, done, PEAKS._replace(vector={}))
    assert (entry.roof_axis, entry.bound_type, entry.headroom_class) == ("memory", "latency", "underperforming")
    assert route(entry) == "occupancy_track"


def test_an_op_without_a_target_gets_none() -> None:
    entry = judged(0.5, op="scan")
    assert (entry.target_eff, entry.unknown_reason, entry.attainable_speedup) == (None, "no_target", None)
    assert entry.roofline_pct == pytest.approx(0.5)


def test_fp32_matrix_work_runs_on_the_vector_units_where_there_is_no_matrix_rate() -> None:
    entry = judged(0.5, dtype="fp32")
    assert entry.ridge_point == pytest.approx(1e13 / 1e12)


def test_falsifiable_needs_a_roof_time_over_the_floor() -> None:
    assert judged(0.5).falsifiable is True  # half a millisecond of transfer
    assert judged(0.5, t_s=6e-6).falsifiable is False  # 3 us of transfer


@pytest.mark.parametrize(
    ("share", "intensity", "fields", "where"),
    [
        (0.85, 1.0, {}, "byte_reduction_track"),
        (0.9, 100.5, {}, "algorithmic_track"),
        (0.30, 1.0, {}, "occupancy_track"),
        (0.30, 200.0, {}, "kernel_track"),  # compute at 0.6 of 0.9: moderate
        (0.70, 1.0, {}, "kernel_track"),
        (0.57, 1.0, {}, "occupancy_track"),  # moderate, neither roof near
        (0.70, 1.0, {"editable": False}, "host_side_track"),
        (1.50, 1.0, {}, "pct_order"),
        (0.30, 1.0, {"stage": "A"}, "pct_order"),
        (0.30, 1.0, {"pct_gpu_time": 4.9}, "low_priority"),
        (0.30, 1.0, {"pct_gpu_time": 5.0}, "occupancy_track"),
    ],
)
def test_routes(share: float, intensity: float, fields: dict[str, object], where: str) -> None:
    assert route(judged(share, intensity, **fields)) == where  # type: ignore[arg-type]


def test_saturated_attention_below_the_latency_threshold_needs_fewer_bytes() -> None:
    entry = judged(0.50, op="attn_decode")  # at its target, and under 0.60 of either roof
    assert (entry.headroom_class, entry.bound_type, route(entry)) == ("saturated", "latency", "byte_reduction_track")


def test_reasons_are_taken_in_their_order() -> None:
    # Infeasible and dispatch-bound at once: infeasible comes first.
    assert judged(1.5, t_s=4e-6).unknown_reason == "infeasible"
    # Stage A and conflicting: conflicting comes first.
    assert judged(0.3, others=(0.7,), stage="A").unknown_reason == "conflicting_models"


def test_point_refuses_a_time_that_is_no_time() -> None:
    for t_s in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="time is"):
            point(1.0, 1.0, t_s, 1e12, 1e14)


# Public reports of ratios that could not be.


@pytest.mark.parametrize(
    ("report", "share", "intensity"),
    [
        ("nsys-ai#385: MFU 369 % accepted", 0.0369, 10_000.0),
        ("tinygrad#14626 and ninfer-3090#51: 418 % of bandwidth", 4.18, 1.0),
        ("nanoGPT#464: 104 % MFU", 0.0104, 10_000.0),
        ("nvbench#270: 114.41 % of peak, L2 hits", 1.1441, 1.0),
    ],
)
def test_over_one_hundred_percent_is_suspect_and_never_saturated(report: str, share: float, intensity: float) -> None:
    entry = judged(share, intensity)
    assert entry.suspect, report
    assert (entry.headroom_class, entry.roofline_pct) == ("unknown", 1.0)
    assert entry.roofline_pct_raw is not None
    assert entry.roofline_pct_raw > 1


def test_nersc_v100_gpp_lies_on_or_under_the_roof_at_every_level() -> None:
    # NERSC's V100 ceilings (ERT): 7068.86 GFLOP/s with FMA; L1 14336, L2 2996.77, HBM 828.758 GB/s. GPP from nw=1 to nw=6:
    # (GFLOP/s, AI at HBM, L2, L1), the ends of the published ranges.
    for gflops, hbm, l2, l1 in ((2085.8, 2.58, 2.25, 0.865), (4692.2, 13.2, 5.18, 4.03)):
        for intensity, bandwidth in ((hbm, 828.758e9), (l2, 2996.77e9), (l1, 14336e9)):
            p = point(gflops * 1e9 / intensity, gflops * 1e9, 1.0, bandwidth, 7068.86e9)
            assert p.raw is not None
            assert p.raw <= 1.0


#: RRZE-HPC/gpu-benches 1038c5d, gpu-roofline: an FP32 kernel of growing intensity, (FLOP/B, GB/s, GFLOP/s) at its start, about
#: the ridge and at its end; before it the data sheet's GB/s and FP32 GFLOP/s without tensor cores.
RRZE = {
    "a100-sxm-40": (1555, 19.5e3, (0.25, 1371, 343), (10.25, 1283, 13148), (14.25, 1147, 16342), (116.25, 163, 18999)),
    "a40": (696, 37.4e3, (0.25, 679, 170), (26.25, 669, 17551), (60.25, 367, 22099), (126.25, 185, 23340)),
    "l40": (864, 90.5e3, (0.25, 844, 211), (30.25, 840, 25412), (40.25, 708, 28516), (126.25, 315, 39731)),
    "h200-sxm": (4800, 66.9e3, (0.25, 3759, 940), (8.25, 3232, 26667), (20.25, 1838, 37227), (100.25, 425, 42558)),
    "mi300x": (5300, 163.4e3, (0.25, 4073, 1018), (12.25, 3342, 40940), (62.75, 1206, 75647), (253.25, 381, 96524)),
}


@pytest.mark.parametrize("product", RRZE)
def test_rrze_roofline_sweep_lies_under_both_roofs(product: str) -> None:
    bandwidth, peak, *rows = RRZE[product]
    peaks = resolve(load(str(ROOT / "peaks.md")), Device(device_name=product))
    fp32 = parse_dtype("fp32")
    for intensity, gb_s, gflops in rows:
        flops = gb_s * 1e9 * intensity  # of one second
        model = ByteModel("counted", gb_s * 1e9, flops)
        done = Work("elementwise", "elementwise", (model,), "vector", fp32, fp32, ())
        entry = assess(Entry("sweep", t_ms=1000.0, t_unit_ms=1000.0, stage="B"), done, peaks)
        assert flops == pytest.approx(gflops * 1e9, rel=0.01)  # the file's own columns agree
        assert entry.roof_axis == ("memory" if intensity < peak / bandwidth else "compute")
        assert entry.roofline_pct_raw == pytest.approx(max(gb_s / bandwidth, flops / 1e9 / peak), rel=0.01)
        assert entry.roofline_pct_raw < 1
        assert not entry.suspect


@pytest.mark.parametrize(("nbytes", "flops"), [(0.0, 0.0), (0.0, 1e9), (1e9, 0.0)])
def test_kerncraft_85_zero_bytes_and_zero_flops_have_a_result(nbytes: float, flops: float) -> None:
    p = point(nbytes, flops, 1e-3, 1e12, 1e14)
    assert p.achieved_bw_bytes_s == nbytes / 1e-3
    assert p.arithmetic_intensity == (flops / nbytes if nbytes else None)


def test_notes_survive_their_json_form() -> None:
    notes = tidy_notes([note("unit: one launch", "unit"), note("a; b"), note(""), note("b", "remark")])
    assert notes == (Note("unit", "unit: one launch"), Note("basis", "a"), Note("basis", "b"))
    assert read_notes(join_notes(notes), [item.code for item in notes]) == notes
    assert has_note(notes, "idle", "unit")
    assert not has_note(notes, "idle")


def test_a_note_code_outside_the_closed_set_is_refused() -> None:
    with pytest.raises(ValueError, match="note code 'odd' is unknown"):
        note("text", "odd")


# Work that is known in part: at 1 TB/s, 1 ms is 1 GB of the memory roof.


def partly(coverage: str, nbytes: float, least: tuple[float, float] | None = None, **fields: object) -> Entry:
    kind = parse_dtype("fp32")
    done = Work(
        "reduce", "elementwise", (ByteModel("seen", nbytes, 0.0),), "vector", kind, kind, (), coverage=coverage, least=least
    )
    start = {"stage": "B", "t_ms": 1.0, "t_unit_ms": 1.0, **fields}
    return assess(Entry(**start), done, PEAKS)  # type: ignore[arg-type]


def test_work_that_depends_on_the_data_has_a_class_where_both_ends_give_it() -> None:
    # target 0.875: saturated from 0.7875 of the roof, underperforming under 0.525
    sure = partly("range", 0.95e9, (0.85e9, 0.0))
    assert (sure.headroom_class, sure.unknown_reason) == ("saturated", None)
    assert sure.roofline_pct_range == pytest.approx((0.85, 0.95))
    for nbytes in (0.95e9, 5000e9):  # an early exit reads one cache line of it
        unsure = partly("range", nbytes, (64.0, 0.0))
        assert (unsure.headroom_class, unsure.unknown_reason, unsure.suspect) == ("unknown", "data_dependent", False)
        assert (unsure.roofline_pct, unsure.achieved_bw_bytes_s, unsure.bound_type) == (None, None, "unknown")
    impossible = partly("range", 5000e9, (2e9, 0.0))
    assert (impossible.unknown_reason, impossible.suspect) == ("infeasible", True)


def test_a_part_of_the_work_can_only_be_impossible() -> None:
    seen = partly("lower_bound", 0.8e9)
    assert (seen.headroom_class, seen.unknown_reason, seen.roofline_pct) == ("unknown", "partly_seen", None)
    assert partly("lower_bound", 1.2e9).unknown_reason == "infeasible"
    assert partly("lower_bound", 0.8e9, t_ms=0.004, t_unit_ms=1.0).unknown_reason == "dispatch_bound"


def test_argument_traffic_is_for_display() -> None:
    shown = partly("args", 0.8e9, stage="A")
    assert (shown.headroom_class, shown.unknown_reason, shown.rankable) == ("unknown", "args_only", False)
    assert (shown.roofline_pct, shown.achieved_bw_bytes_s) == (pytest.approx(0.8), pytest.approx(0.8e12))
    unread = partly("args", 3e9, stage="A")  # an argument that the call leaves unread is no contradiction
    assert (unread.unknown_reason, unread.roofline_pct, unread.suspect) == ("args_only", None, False)


def test_shapes_of_one_kernel_are_as_known_as_the_least_known_of_them() -> None:
    kind = parse_dtype("fp32")
    whole = Work("reduce", "elementwise", (ByteModel("all", 100.0, 10.0),), "vector", kind, kind, (note("a"),))
    part = whole._replace(coverage="range", least=(4.0, 2.0))
    both = combine_shapes([whole, part], [3.0, 1.0])
    assert (both.coverage, both.least) == ("range", (76.0, 8.0))  # (3 x 100 + 4) / 4, (3 x 10 + 2) / 4
    assert scale_work(both, 2.0).least == (152.0, 16.0)
    assert combine_shapes([whole, whole], [1.0, 1.0]).least is None
