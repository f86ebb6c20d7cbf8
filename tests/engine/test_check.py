"""A measurement against its roof and its prediction: the worked example, and each status at its limit and in its order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline_engine.check import (
    COMPARABLE,
    STATUSES,
    Baseline,
    Check,
    Facts,
    Measurement,
    Mistake,
    Prediction,
    assess_measurement,
    check,
    explain_excess,
    launch_overhead,
    limit_of,
)
from roofline_engine.fields import ByteModel, Entry
from roofline_engine.ops import work
from roofline_engine.peaks import Level, Peaks
from roofline_engine.units import parse_dtype
from roofline_engine.work import Work

#: 8 TB/s and 5 PFLOP/s: the worked example's device, without a figure for its bus or its clock.
PEAKS = Peaks(product="x", gfx="gfx950", hbm_bw_bytes_s=8e12, hbm_bw_limit_bytes_s=8e12, flops={"fp8": 5e15}, confidence="high")
#: Ceilings that were measured on a CPU.
MEASURED = Peaks(product="cpu", hbm_bw_bytes_s=20e9, vector={"fp64": 50e9}, source="measured", confidence="high", l2_bytes=32e6)


def moves(nbytes: float, flops: float = 0.0, dtype: str = "fp8", written: float | None = 0.0) -> Work:
    kind = parse_dtype(dtype)
    return Work("copy", "elementwise", (ByteModel("declared", nbytes, flops),), "matrix", kind, kind, (), written=written)


def run(
    done: Work | None,
    t_s: float | None,
    peaks: Peaks = PEAKS,
    *,
    spread: float = 0.0,
    cache: str = "cold",
    clock: str = "device-event",
    baseline: Baseline | None = None,
    prediction: Prediction | None = None,
    target_eff: float | None = None,
) -> Check:
    time = None
    entry = Entry(name="k", stage="B")
    if t_s is not None:
        time = Measurement("user", t_s, q1_s=t_s * (1 - spread / 2), q3_s=t_s * (1 + spread / 2), clock=clock, cache=cache)
    if done is not None and time is not None:
        entry = assess_measurement(entry, done, time, peaks, target_eff=target_eff)
    return check(entry, done, time, peaks, baseline=baseline, prediction=prediction)


# Against the prediction. The worked example: 0.880 of the roof, so 0.9 / 0.880 = 1.022x is attainable.

EXPERTS = Prediction("fused_moe_kernel", attainable_speedup=0.9 / 0.880, roofline_pct=0.880, roof_axis="memory")


@pytest.mark.parametrize(
    ("speedup", "status"),
    [
        (1.047, "consistent"),  # 1.0227 x 1.034 = 1.0575
        (1.0574, "consistent"),
        (1.0577, "exceeds_target"),
        (1.10, "exceeds_target"),
        (1.033, "no_change"),
        (1.0, "no_change"),
        (0.968, "no_change"),  # 1 / 1.034 = 0.9671
        (0.966, "regression"),
    ],
)
def test_the_worked_example_within_the_roof(speedup: float, status: str) -> None:
    before = 98.942e-6  # 0.880 of 8 TB/s for 696.75 MB
    done = moves(696.75e6)
    found = run(done, before / speedup, baseline=Baseline("previous", t_s=before), prediction=EXPERTS, target_eff=0.9)
    assert (found.status, found.speedup) == (status, pytest.approx(speedup))
    assert found.attainable == pytest.approx(1.0227, abs=1e-4)


def test_the_worked_example_beyond_the_roof() -> None:
    found = run(moves(696.75e6), 98.942e-6 / 1.31, baseline=Baseline("previous", t_s=98.942e-6), prediction=EXPERTS)
    assert found.status == "beyond_roof"
    assert found.utilisation == pytest.approx(1.31 * 696.75e6 / 98.942e-6 / 8e12)  # 1.153, the memory limit is 1
    assert found.limit == pytest.approx(1 + 1e-6 / (98.942e-6 / 1.31))  # the full bus, by a clock of 1 us
    assert "missing sync" in found.message


@pytest.mark.parametrize(("speedup", "status"), [(1.047, "consistent"), (1.10, "exceeds_target"), (1.31, "beyond_roof")])
def test_the_worked_example_by_a_speedup_alone(speedup: float, status: str) -> None:
    # 0.880 x 1.31 = 1.153 of the roof, though the row has no time of its own.
    found = run(None, None, baseline=Baseline("previous", speedup=speedup), prediction=EXPERTS)
    assert found.status == status


def test_a_ratio_over_another_kind_of_kernel_is_not_comparable() -> None:
    for kind in ("eager", "compiled", "reference", "unknown"):
        assert kind not in COMPARABLE
        found = run(moves(696.75e6), 95e-6, baseline=Baseline(kind, t_s=950e-6), prediction=EXPERTS)
        assert (found.status, found.speedup) == ("not_comparable", pytest.approx(10.0))


def test_a_huge_speedup_over_eager_can_be_under_the_roof() -> None:
    # robust-kbench LayerNorm: 165.7x over eager, yet 67 MB in 46.25 us are 1.45 TB/s.
    found = run(moves(67e6), 46.25e-6, baseline=Baseline("eager", speedup=165.7))
    assert found.status == "not_comparable"
    assert found.utilisation == pytest.approx(67e6 / 46.25e-6 / 8e12)


def test_the_band_is_the_wider_of_noise_and_either_legs_spread() -> None:
    done, before = moves(80e6), 100e-6
    for spread_of in ("row", "baseline"):
        spreads = {"spread": 0.2} if spread_of == "row" else {}
        old = Baseline("live", t_s=before, spread=0.2 if spread_of == "baseline" else 0.0)
        found = run(done, before / 1.15, baseline=old, prediction=EXPERTS, **spreads)  # type: ignore[arg-type]
        assert (found.status, found.band) == ("no_change", pytest.approx(0.2))


def test_without_a_prediction_the_target_is_the_prediction() -> None:
    # 80 MB in 20 us are 0.5 of 8 TB/s: a target of 0.9 leaves 1.8x.
    old = Baseline("live", t_s=20e-6)
    found = run(moves(80e6), 20e-6 / 1.7, baseline=old, target_eff=0.9)
    assert (found.status, found.attainable) == ("consistent", pytest.approx(1.8))
    assert run(moves(80e6), 20e-6 / 1.9, baseline=old, target_eff=0.9).status == "exceeds_target"
    assert run(None, 10e-6, baseline=old).status == "not_checked"  # 2x, and nothing to hold it against


# Against the roof.


@pytest.mark.parametrize(
    ("utilisation", "status"), [(0.5, "not_checked"), (1.0, "not_checked"), (1.04, "near_roof"), (1.06, "beyond_roof")]
)
def test_the_memory_roof_of_a_table(utilisation: float, status: str) -> None:
    found = run(moves(80e9), 80e9 / 8e12 / utilisation)
    assert (found.status, found.axis, found.utilisation) == (status, "memory", pytest.approx(utilisation))


@pytest.mark.parametrize(("utilisation", "status"), [(1.2, "near_roof"), (1.31, "near_roof"), (1.32, "beyond_roof")])
def test_a_measured_ceiling_is_a_lower_bound(utilisation: float, status: str) -> None:
    done = moves(1e9, dtype="fp64")
    found = run(done, 1e9 / 20e9 / utilisation, MEASURED, clock="host")
    assert (found.status, found.limit) == (status, pytest.approx(1.25, abs=1e-4))
    assert ("under-measured" in found.message) is (status == "near_roof")


def test_the_limit_of_an_axis() -> None:
    known = PEAKS._replace(flops_max={"fp8": 5.5e15}, hbm_bw_limit_bytes_s=8.2e12)
    assert limit_of(known, "matrix.fp8", 5e15).factor == pytest.approx(1.1)  # the highest clock
    assert limit_of(known, "memory", 8e12).factor == pytest.approx(1.025)  # the full bus
    assert limit_of(PEAKS, "matrix.fp8", 5e15).factor == pytest.approx(1.10)  # no clock known
    assert limit_of(PEAKS._replace(product="rtx5090"), "matrix.fp8", 5e15).factor == pytest.approx(1.25)  # boosts freely
    assert limit_of(PEAKS._replace(flops_max={"fp8": 4.9e15}), "matrix.fp8", 5e15).factor == 1.0  # never under the rated figure


def test_the_smallest_byte_model_decides_beyond_roof() -> None:
    # 800 MB of which 400 may be all that moved: 1.4x by the larger is 0.7 by the smaller.
    both = moves(800e6)._replace(candidates=(ByteModel("all", 800e6, 0.0), ByteModel("routed", 400e6, 0.0)))
    t_s = 800e6 / 8e12 / 1.4
    assert run(both, t_s).status == "not_checked"
    assert run(moves(800e6), t_s).status == "beyond_roof"


def test_work_known_in_part_is_impossible_by_what_no_run_can_avoid() -> None:
    part = moves(80e9)._replace(coverage="range", least=(64.0, 0.0))
    assert run(part, 1e-3).status == "not_checked"  # 10 times the roof if it read all of it
    assert run(part._replace(least=(16e9, 0.0)), 1e-3).status == "beyond_roof"
    assert run(moves(16e9)._replace(coverage="lower_bound"), 1e-3).status == "beyond_roof"
    assert run(moves(16e9)._replace(coverage="args"), 1e-3).status == "not_checked"


def test_the_compute_roof_is_checked_too() -> None:
    done = work("gemm", M=8192, N=8192, K=8192, dtype="fp8")
    found = run(done, 2 * 8192**3 / 5e15 / 1.2)
    assert (found.status, found.axis) == ("beyond_roof", "matrix.fp8")  # 1.2 over 1.05 x 1.10


@pytest.mark.parametrize("launches", [1, 1000])
@pytest.mark.parametrize("faster", [10, 1e3, 1e6])
def test_no_time_is_too_short_to_be_beyond_the_roof(faster: float, launches: float) -> None:
    # 16 MB at 8 TB/s are 2 us, under what a launch costs. A launch only adds to the time of its kernel.
    done, t_s = moves(16e6), 2e-6 / faster
    time = Measurement("user", t_s, clock="device-event", cache="cold")
    entry = assess_measurement(Entry(name="k", stage="B"), done, time, PEAKS, launches=launches)
    found = check(entry, done, time, PEAKS)
    assert (found.status, found.utilisation) == ("beyond_roof", pytest.approx(faster))
    assert run(done, 8e-6).status == "not_checked"  # 0.25 of the roof


@pytest.mark.parametrize(
    ("t_us", "peaks", "status"),
    [
        # 8 MB at 8 TB/s are 1 us. A reading of 0.7 us may be of 1.2 us on CUDA and of 1.4 us on HIP, and 0.4 us of 0.8 us.
        (0.7, PEAKS._replace(gfx="sm_100"), "near_roof"),
        (0.7, PEAKS, "near_roof"),
        (0.47, PEAKS._replace(gfx="sm_100"), "beyond_roof"),  # 0.47 + 0.47 us, 1.06 of the roof
        (0.6, PEAKS._replace(gfx="sm_100", hbm_bw_bytes_s=4e12, hbm_bw_limit_bytes_s=4e12), "beyond_roof"),  # 1.1 us of 2
    ],
)
def test_a_reading_is_as_good_as_its_clock(t_us: float, peaks: Peaks, status: str) -> None:
    found = run(moves(8e6), t_us * 1e-6, peaks)
    assert found.status == status


@pytest.mark.parametrize(("t_s", "status"), [(0.05, "near_roof"), (0.04, "beyond_roof")])
def test_a_printed_time_stands_for_its_interval(t_s: float, status: str) -> None:
    # Two digits after the point: 0.05 s is 0.045 to 0.055, 0.04 is at most 0.045. 423 GB at 8 TB/s take 0.0529.
    time = Measurement("user", t_s, clock="device-event", cache="cold", rounding=0.005 / t_s)
    done = moves(0.0529 * 8e12)
    entry = assess_measurement(Entry(name="k", stage="B"), done, time, PEAKS)
    assert check(entry, done, time, PEAKS).status == status


def test_a_prediction_whose_best_case_is_the_launch_cannot_be_contradicted() -> None:
    # 80 us of 5 us launches: 2x of 8 us is 4 us, under the floor. A slower time contradicts no prediction; it is slower.
    twice = EXPERTS._replace(attainable_speedup=2.0, roofline_pct=0.01)
    for factor, status in ((2.2, "not_falsifiable"), (1.5, "not_falsifiable"), (1.0, "no_change"), (0.5, "regression")):
        found = run(moves(1e6), 8e-6 / factor, baseline=Baseline("previous", t_s=8e-6), prediction=twice)
        assert found.status == status
    found = run(moves(1e6), 80e-6 / 2.2, baseline=Baseline("previous", t_s=80e-6), prediction=twice)
    assert found.status == "exceeds_target"


def test_slower_is_slower_whatever_the_roof_says() -> None:
    # 1.02 of the memory roof, and twice the time of its baseline; then a roof that is not known at all.
    before = Baseline("previous", t_s=51e-6 / 1.02)
    near = run(moves(800e6), 100e-6 / 1.02, baseline=before)
    assert (near.status, near.change) == ("near_roof", "slower")
    unknown = run(None, 100e-6, baseline=before)
    assert (unknown.status, unknown.change) == ("regression", "slower")
    assert run(moves(80e6), 50e-6, baseline=before).change == "within_noise"
    assert run(moves(80e6), 25e-6, baseline=before).change == "faster"
    assert run(moves(80e6), 25e-6, baseline=Baseline("eager", t_s=50e-6)).change is None


@pytest.mark.parametrize(("factor", "status"), [(1.0, "not_comparable"), (0.5, "not_comparable"), (1e-5, "regression")])
def test_times_that_spread_over_more_than_themselves_show_no_change(factor: float, status: str) -> None:
    # Quartiles of 1 ns and 1 s around 0.4 ms: a band of 2,500 would call any slowdown noise.
    old = Baseline("previous", t_s=400e-6, spread=1 / 400e-6)
    assert run(moves(80e6), 400e-6 / factor, baseline=old).status == status


# A roof that is not known.

FP8_ONLY = PEAKS._replace(flops={"fp8": 5e15, "bf16": 2.5e15})


def product(n: int, dtype: str) -> Work:
    return work("gemm", M=n, N=n, K=n, dtype=dtype)


def test_a_rate_over_that_of_any_dtype_is_impossible_in_every_dtype() -> None:
    # 2 x 8192^3 FLOPs in 40 us are 27.5 PFLOP/s, and nothing of the device is faster than 5 PFLOP/s.
    found = run(product(8192, "bool"), 40e-6, FP8_ONLY)
    assert (found.status, found.axis, found.unchecked_axis) == ("beyond_roof", "matrix.bool", "matrix.bool")
    assert found.utilisation == pytest.approx(2 * 8192**3 / 40e-6 / 5e15)
    assert "fastest rate of any dtype" in found.message
    slower = run(product(8192, "bool"), 1e-3, FP8_ONLY)
    assert (slower.status, slower.axis, slower.unchecked_axis) == ("not_checked", "memory", "matrix.bool")


def test_an_axis_that_cannot_bind_is_not_missing() -> None:
    row = work("gemm", M=1, N=8192, K=8192, dtype="bool")  # 2 FLOP/B, where even 2.5 PFLOP/s leave 312
    assert run(row, 1e-3, FP8_ONLY).unchecked_axis is None
    assert run(product(8192, "fp8"), 1e-3, FP8_ONLY).unchecked_axis is None
    assert run(moves(8e6, 1e12), 1e-3, FP8_ONLY._replace(flops={})).unchecked_axis == "matrix.fp8"
    assert run(product(8192, "fp8"), 1e-3, FP8_ONLY._replace(hbm_bw_bytes_s=None)).unchecked_axis == "memory"


def test_no_cpu_exceeds_what_its_cores_can_do() -> None:
    # bf16 has no measured ceiling. 1,024 FLOP a clock at 6.2 GHz on 2 cores are 12.7 TFLOP/s; 55 are claimed.
    two = MEASURED._replace(units=2)
    fast, slow = (run(product(8192, "bf16"), 2 * 8192**3 / rate, two, clock="host") for rate in (55e12, 2e12))
    assert (fast.status, slow.status, slow.unchecked_axis) == ("beyond_roof", "not_checked", "matrix.bf16")
    # Without the number of cores: a tile unit is 32 times the fastest measured rate, 1.25 x 1.6 TFLOP/s.
    for rate, status in ((2.2e12, "beyond_roof"), (1.5e12, "not_checked")):
        assert run(product(8192, "bf16"), 2 * 8192**3 / rate, MEASURED, clock="host").status == status
    # 2.1 MB in 98 ns are 21 TB/s. The slack of a cache times that of a disturbed ceiling allows 40 TB/s, two L1s 2.38 TB/s.
    disturbed = two._replace(confidence="low", low_axes=("memory",))
    nothing = run(moves(2.1e6, dtype="fp64"), 98e-9, disturbed, cache="warm", clock="host")
    assert nothing.status == "beyond_roof"
    assert nothing.limit_basis.startswith("2 cores of 192 B a clock")
    assert run(moves(2.1e6, dtype="fp64"), 2e-6, disturbed, cache="warm", clock="host").cause == "cache_resident"


# Explanations.


@pytest.mark.parametrize(("times", "is_candidate"), [(1.5, True), (2.5, False)])
def test_a_gemm_within_twice_its_dense_peak_may_be_sparse(times: float, is_candidate: bool) -> None:
    found = run(product(8192, "fp8"), 2 * 8192**3 / 5e15 / times)
    assert (found.status, found.cause) == ("beyond_roof", "unexplained")
    assert ("2:4 sparsity" in found.message) is is_candidate
    sparse = work("gemm", M=8192, N=8192, K=8192, dtype="fp8", sparsity="2:4")
    assert run(sparse, 2 * 8192**3 / 5e15 / 1.5).status == "not_checked"  # 0.75 of twice the rate


def test_a_mistake_of_a_printed_rate_does_not_explain_a_time() -> None:
    # The recomputed bytes are those of the experts that are hit, so counting all of them cannot be why they are too many.
    every = Mistake("overcounted_bytes", 2.0, "memory", "all experts")
    for mistake, cause in ((every, "unexplained"), (every._replace(in_work=True), "overcounted_bytes")):
        time, done = Measurement("user", 60e-6, clock="device-event", cache="cold"), moves(800e6)
        entry = assess_measurement(Entry(name="k", stage="B"), done, time, PEAKS)
        assert check(entry, done, time, PEAKS, facts=Facts(known_mistakes=(mistake,))).cause == cause
    assert explain_excess("memory", 1.6, None, PEAKS, Facts(known_mistakes=(every,)), printed=True).cause == "overcounted_bytes"


def test_a_rate_that_a_cache_allows_is_not_beyond_the_roof_of_the_memory() -> None:
    # 40 MB over and over, through 32 MB of cache: 2 caches are still served in part.
    done = moves(40e6, dtype="fp64")
    found = run(done, 40e6 / 20e9 / 30, MEASURED, cache="warm", clock="host")
    assert (found.status, found.cause) == ("not_checked", "cache_resident")
    assert "flush between rounds" in found.message
    cold = run(done, 40e6 / 20e9 / 3, MEASURED, cache="cold", clock="host")
    assert (cold.status, cold.cause) == ("beyond_roof", "unexplained")
    # No cache gives 1000 times the memory's rate: a call that does nothing is found out all the same.
    assert run(done, 40e6 / 20e9 / 1000, MEASURED, cache="warm", clock="host").status == "beyond_roof"
    for cache in ("warm", "unknown"):
        found = run(moves(240e6), 240e6 / 8e12 / 9, cache=cache)
        assert (found.status, found.cause) == ("not_checked", "cache_resident")
    too_fast = run(moves(240e6), 240e6 / 8e12 / 30, cache="warm")  # an L2 of a device is under 10, and 1 us may be 2
    assert (too_fast.status, too_fast.cause) == ("beyond_roof", "unexplained")


def test_a_rate_that_a_cache_allows_is_compared_with_its_baseline() -> None:
    t_s = 40e6 / 20e9 / 3
    found = run(
        moves(40e6, dtype="fp64"), t_s, MEASURED, cache="warm", clock="host", baseline=Baseline("previous", t_s=t_s / 2)
    )
    assert (found.status, found.cause) == ("regression", "cache_resident")


@pytest.mark.parametrize(("nbytes", "status"), [(40e6, "not_checked"), (400e6, "exceeds_target")])
def test_a_speedup_that_a_cache_allows_makes_no_target_too_low(nbytes: float, status: str) -> None:
    # From half of the memory's roof to all of it, where 0.8 was the target: 2x, of 1.6x. 40 MB fit twice 32 MB of cache.
    roof_s = nbytes / 20e9
    before = Baseline("live", t_s=2 * roof_s)
    done = moves(nbytes, dtype="fp64")
    found = run(done, roof_s, MEASURED, cache="warm", clock="host", baseline=before, target_eff=0.8)
    assert (found.status, found.attainable) == (status, pytest.approx(1.6))
    mild = run(done, roof_s / 0.75, MEASURED, cache="warm", clock="host", baseline=before, target_eff=0.8)
    assert mild.status == "consistent"


def test_a_rate_that_a_cache_allows_is_no_impossible_ratio() -> None:
    done, time = moves(40e6, dtype="fp64"), Measurement("user", 40e6 / 20e9 / 3, clock="host", cache="warm")
    entry = assess_measurement(Entry(name="k", stage="B"), done, time, MEASURED, target_eff=0.9)
    assert (entry.headroom_class, entry.unknown_reason) == ("unknown", "cache_resident")
    cold = assess_measurement(Entry(name="k", stage="B"), done, time._replace(cache="cold"), MEASURED, target_eff=0.9)
    assert cold.unknown_reason == "infeasible"
    for faster, reason in ((3, "cache_resident"), (30, "infeasible")):  # the caches of a device are under 10 times its memory
        time = Measurement("user", 240e6 / 8e12 / faster, clock="device-event", cache="warm")
        assert assess_measurement(Entry(name="k", stage="B"), moves(240e6), time, PEAKS).unknown_reason == reason


@pytest.mark.parametrize(("times", "status"), [(1.9, "near_roof"), (2.7, "beyond_roof")])
@pytest.mark.parametrize("written", [None, 16e6])
def test_output_of_a_cold_kernel_may_be_in_a_cache(times: float, status: str, written: float | None) -> None:
    # Of a copy of 16 MB to 16 MB, 16 are in the 32 MB of cache when it ends: half came from memory. 2 x 1.25 x 1.05.
    done = moves(32e6, dtype="fp64", written=written)
    assert run(done, 32e6 / 20e9 / times, MEASURED, clock="host").status == status
    reads = moves(32e6, dtype="fp64", written=1e6)
    assert run(reads, 32e6 / 20e9 / 1.9, MEASURED, clock="host").status == "beyond_roof"
    # Of 320 MB the cache holds 32: 288 moved. 1.11 x 1.25 x 1.05 is 1.46.
    large = moves(320e6, dtype="fp64", written=None)
    assert run(large, 320e6 / 20e9 / 1.5, MEASURED, clock="host").status == "beyond_roof"


def test_output_of_a_device_may_be_in_its_cache_too() -> None:
    # 50 MB of L2: of a cold copy of 40 MB to 40 MB, 40 MB came from memory. A reduction of 80 MB reads all of them.
    peaks = PEAKS._replace(l2_bytes=50e6)
    copy, reduction = moves(80e6, written=40e6), moves(80e6, written=1e3)
    assert run(copy, 80e6 / 8e12 / 1.9, peaks).status == "near_roof"
    assert run(copy, 80e6 / 8e12 / 2.8, peaks).status == "beyond_roof"  # 2 x 1.28 x 1.05, by a clock of 1 us
    assert run(reduction, 80e6 / 8e12 / 1.2, peaks).status == "beyond_roof"


@pytest.mark.parametrize(("times", "status"), [(2.0, "near_roof"), (10.0, "near_roof"), (11.0, "beyond_roof")])
def test_a_disturbed_ceiling_is_good_to_an_order_of_magnitude(times: float, status: str) -> None:
    disturbed = MEASURED._replace(confidence="low", low_axes=("memory",))
    assert run(moves(1e9, dtype="fp64"), 1e9 / 20e9 / times, disturbed, clock="host").status == status
    assert run(moves(1e9, dtype="fp64"), 1e9 / 20e9 / times, MEASURED, clock="host").status == "beyond_roof"


def test_a_row_over_its_ceiling_has_no_class() -> None:
    done = moves(1e9, dtype="fp64")
    time = Measurement("user", 1e9 / 20e9 / 1.1, clock="host", cache="cold")
    entry = assess_measurement(Entry(name="k", stage="B"), done, time, MEASURED, target_eff=0.9)
    assert (entry.headroom_class, entry.unknown_reason, entry.suspect) == ("unknown", "infeasible", True)
    assert entry.attainable_speedup is None


# The row itself.


def test_a_slow_kernel_is_slow_and_not_impossible() -> None:
    # 80 MB in a second are 1e-5 of the roof: a Top-N with such a ratio has a wrong unit, a naive loop under test has not.
    time = Measurement("user", 1.0, clock="device-event", cache="cold")
    entry = assess_measurement(Entry(name="k", stage="B"), moves(80e6), time, PEAKS, target_eff=0.9)
    assert (entry.headroom_class, entry.suspect) == ("underperforming", False)
    assert entry.roofline_pct == pytest.approx(1e-5)


def test_device_work_on_a_host_clock_has_no_class() -> None:
    done = moves(800e6)
    for clock, expected in (("host", "unknown"), ("unknown", "unknown"), ("host+sync", "underperforming")):
        time = Measurement("user", 250e-6, clock=clock, cache="cold")  # 0.4 of the roof
        entry = assess_measurement(Entry(name="k", stage="B"), done, time, PEAKS, target_eff=0.9)
        assert (entry.headroom_class, entry.rankable) == (expected, expected != "unknown")
        assert entry.roofline_pct == pytest.approx(0.4)


def test_a_warm_working_set_within_the_caches_gives_no_verdict_on_memory() -> None:
    done = moves(40e6, dtype="fp64")
    warm = Measurement("user", 4e-3, clock="host", cache="warm")  # 0.5 of 20 GB/s
    entry = assess_measurement(Entry(name="k", stage="B"), done, warm, MEASURED, target_eff=0.9)
    assert (entry.headroom_class, entry.unknown_reason) == ("unknown", "cache_resident")
    cold = assess_measurement(Entry(name="k", stage="B"), done, warm._replace(cache="cold"), MEASURED, target_eff=0.9)
    assert cold.headroom_class == "underperforming"


@pytest.mark.parametrize(
    ("median_pct", "rounds", "reason"),
    [
        # The bands of a target of 0.9 begin at 0.54 and 0.81.
        (0.30, {"min_s": 1 / 1.5}, None),  # 45 % at best: the class of the median
        (0.50, {"min_s": 1 / 1.5}, "noisy"),  # 75 % at best
        (0.50, {"q1_s": 1 / 1.5, "q3_s": 2.0}, "noisy"),  # the lower quartile stands for an unknown best
        (0.50, {}, None),
        (0.90, {"min_s": 1 / 4}, None),  # nothing is over saturated
        (0.30, {"min_s": 1.0, "wait_share": 0.19}, None),
        (0.30, {"wait_share": 0.5}, "noisy"),
        (0.30, {"min_s": 1.0, "wait_share": 0.5}, "noisy"),  # no round had the cores for itself
        (0.90, {"min_s": 1.0, "wait_share": 0.5}, None),
    ],
)
def test_a_class_that_no_round_proves_is_noisy(median_pct: float, rounds: dict[str, float], reason: str | None) -> None:
    t_s = 10e-3  # of 20 GB/s
    times = {name: value * t_s if name.endswith("_s") else value for name, value in rounds.items()}
    time = Measurement("user", t_s, clock="host", cache="cold", **times)  # type: ignore[arg-type]
    done = moves(median_pct * 20e9 * t_s, dtype="fp64")
    entry = assess_measurement(Entry(name="k", stage="B"), done, time, MEASURED, target_eff=0.9)
    assert entry.unknown_reason == reason
    assert (entry.headroom_class == "unknown") is (reason is not None)
    low, high = entry.roofline_pct_range or (0.0, 0.0)
    assert low == pytest.approx(median_pct)
    assert high == pytest.approx(1.0 if rounds.get("wait_share") == 0.5 else min(1.0, median_pct * time.swing))


def test_a_unit_test_has_no_end_to_end_gain() -> None:
    time = Measurement("user", 250e-6, clock="device-event", cache="cold")
    entry = assess_measurement(Entry(name="k", stage="B"), moves(800e6), time, PEAKS, target_eff=0.9)
    assert entry.attainable_speedup == pytest.approx(0.9 / 0.4)
    assert entry.expected_e2e_gain_pct is None
    assert entry.rankable
    assert entry.route == "occupancy_track"  # neither roof is within 0.60


def test_launches_inside_the_timed_call_make_one_unit() -> None:
    time = Measurement("user", 200e-6, clock="device-event", cache="cold")
    entry = assess_measurement(Entry(name="k", stage="B"), moves(800e6), time, PEAKS, launches=4, target_eff=0.9)
    assert (entry.t_ms, entry.t_unit_ms) == (pytest.approx(0.05), pytest.approx(0.2))
    assert entry.roofline_pct == pytest.approx(800e6 / 200e-6 / 8e12)


@given(
    st.floats(1e-7, 1e-1),
    st.floats(1e3, 1e10),
    st.floats(0.0, 0.5),
    st.sampled_from([None, *("live", "previous", "eager", "unknown")]),
    st.floats(0.1, 50),
    st.booleans(),
)
def test_every_case_has_one_status_and_a_reason(
    t_s: float, nbytes: float, spread: float, kind: str | None, speedup: float, predicted: bool
) -> None:
    baseline = None if kind is None else Baseline(kind, t_s=t_s * speedup)
    found = run(moves(nbytes), t_s, spread=spread, baseline=baseline, prediction=EXPERTS if predicted else None)
    assert found.status in STATUSES
    assert found.message
    if found.status in ("exceeds_target", "consistent", "regression", "no_change"):
        assert kind in COMPARABLE
        assert found.utilisation is not None
        assert found.utilisation <= 1.0


# Launch overhead, which no roof shows.


def test_the_overhead_of_launches_is_the_wall_time_that_no_device_time_covers() -> None:
    """GEAK's backend_playbook.md: gpt-oss-120b decode, saturated by its bytes, won 26.9 % end to end from launches alone."""
    time = Measurement("user", 100e-6, clock="device-graph", wall_s=126.9e-6)
    found = launch_overhead(time, launches=12)
    assert found is not None
    assert found.graph_speedup == pytest.approx(1.269)
    assert found.share == pytest.approx(1 - 1 / 1.269)  # 21.2 % of the time
    assert found.launches == 12


def test_overhead_uses_the_device_time_of_the_same_cache_state() -> None:
    cold = Measurement("roofline", 200e-6, clock="device-graph", cache="cold", wall_s=150e-6, busy_s=100e-6)
    found = launch_overhead(cold)
    assert found is not None
    assert found.graph_speedup == pytest.approx(1.5)


@pytest.mark.parametrize(
    "time",
    [
        Measurement("user", 1e-4, clock="device-event"),
        Measurement("user", 1e-4, clock="host", wall_s=2e-4),  # a host's time is no device's
        Measurement("user", 1e-4, clock="device-event", wall_s=0.9e-4),  # impossible: one of the two is wrong
        Measurement("user", 1e-4, clock="device-event", wall_s=0.0),
    ],
)
def test_overhead_needs_both_times(time: Measurement) -> None:
    assert launch_overhead(time) is None


def test_a_wall_time_within_noise_of_the_device_time_is_no_overhead() -> None:
    found = launch_overhead(Measurement("user", 1e-4, clock="device-event", wall_s=0.99e-4))
    assert found is not None
    assert (found.share, found.graph_speedup) == (0.0, 1.0)


#: 1 MB at 200 GB/s from the L2s, 8 MB at 100 GB/s and 32 MB at 25 GB/s from the L3, more at 20 GB/s from memory.
CACHED = MEASURED._replace(
    levels=(Level("L2", 1e6, 200e9, "high"), Level("L3", 8e6, 100e9, "high"), Level("L3", 32e6, 25e9, "high")),
    dispatch_floor_s=50e-9,
)


@pytest.mark.parametrize(
    ("nbytes", "rate", "verdict", "level", "of"),
    [
        # The bands of a target of 0.9 begin at 0.54 and 0.81.
        (0.5e6, 100e9, "underperforming", "L2", 200e9),
        (0.5e6, 190e9, "saturated", "L2", 200e9),
        (2e6, 50e9, "underperforming", "L3", 100e9),  # between 1 MB and 8 MB, and slow for both
        (2e6, 90e9, "cache_resident", None, 20e9),  # 0.45 of the one, 0.9 of the other
        (2e6, 190e9, "saturated", "L2", 200e9),  # faster than 8 MB allow
        (8e6, 60e9, "cache_resident", None, 20e9),  # 0.3 of the L2's rate
        (8e6, 110e9, "cache_resident", None, 20e9),  # a little over the rate of 8 MB, 0.55 of the other
        (20e6, 12e9, "underperforming", "L3", 25e9),
        (20e6, 50e9, "underperforming", "L3", 100e9),  # faster than 32 MB allow
        (40e6, 18.5e9, "cache_resident", None, 20e9),  # 0.93 of memory, 0.74 of the L3
        (40e6, 10e9, "underperforming", None, 20e9),
        (40e6, 21e9, "saturated", "L3", 25e9),  # 1.05 times memory: its ceiling is a lower bound
        (100e6, 18e9, "saturated", None, 20e9),  # no cache reaches so far
    ],
)
def test_operands_in_a_cache_are_judged_by_the_level_that_holds_them(
    nbytes: float, rate: float, verdict: str, level: str | None, of: float
) -> None:
    warm = Measurement("user", nbytes / rate, clock="host", cache="warm")
    done = moves(nbytes, dtype="fp64")
    entry = assess_measurement(Entry(name="k", stage="B"), done, warm, CACHED, target_eff=0.9)
    assert (entry.unknown_reason or entry.headroom_class, entry.roof_level) == (verdict, level)
    assert entry.hbm_util == pytest.approx(rate / 20e9)
    assert entry.roofline_pct_raw == pytest.approx(rate / of)
    # The limit of a gate stays that of the memory and the caches.
    assert check(entry, done, warm, CACHED).status != "beyond_roof"
    cold = assess_measurement(Entry(name="k", stage="B"), done, warm._replace(cache="cold"), CACHED, target_eff=0.9)
    assert cold.roof_level is None


def test_a_doubtful_level_gives_no_verdict() -> None:
    doubtful = CACHED._replace(levels=tuple(level._replace(confidence="low") for level in CACHED.levels))
    warm = Measurement("user", 0.5e6 / 60e9, clock="host", cache="warm")
    entry = assess_measurement(Entry(name="k", stage="B"), moves(0.5e6, dtype="fp64"), warm, doubtful, target_eff=0.9)
    assert (entry.headroom_class, entry.unknown_reason) == ("unknown", "low_confidence")


def test_a_speedup_in_a_cache_is_compared_with_the_roof_of_its_level() -> None:
    warm = Measurement("user", 0.5e6 / 100e9, clock="host", cache="warm")
    done = moves(0.5e6, dtype="fp64")
    entry = assess_measurement(Entry(name="k", stage="B"), done, warm, CACHED, target_eff=0.9)
    # The baseline ran at 50 GB/s, 0.25 of the L2: 3.6x is attainable, and 2x was measured.
    outcome = check(entry, done, warm, CACHED, baseline=Baseline("live", t_s=0.5e6 / 50e9))
    assert (outcome.status, outcome.attainable) == ("consistent", pytest.approx(3.6))
