"""A ceiling is the best of rounds spread over a budget. An implausible one is refused. Peaks carry a confidence."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from pytest_roofline.ceilings import carm, kernels, machine, measure
from pytest_roofline.ceilings.kernels import Kernel
from pytest_roofline.ceilings.store import Ceiling, Ceilings
from roofline_engine import roofline
from support.ceilings import BOX, bandwidth, compute, of_box


class Clock:
    """A clock that advances only by the time of kernels."""

    def __init__(self) -> None:
        self.now = 0.0
        self.cpu = 0.0
        self.order: list[str] = []

    def __call__(self) -> float:
        return self.now

    def kernel(self, name: str, *seconds: float, threads: int = 1) -> Kernel:
        """1 GB in each of ``seconds`` in turn, half a second of it on the cores; the first call is the warm-up."""
        left = list(seconds)

        def call() -> None:
            self.order.append(name)
            spent = left.pop(0) if len(left) > 1 else left[0]
            self.now += spent
            self.cpu += min(spent, 0.5) * threads

        return Kernel(name=name, kind="bandwidth", level="DRAM", dtype="fp64", threads=threads, work=1e9, call=call)


def test_a_ceiling_is_the_best_of_at_least_five_rounds_with_the_median_kept() -> None:
    clock = Clock()
    (found,) = kernels.measure([clock.kernel("read", 9.0, 1.0, 0.5, 2.0, 1.0, 4.0)], "numpy", 0.001, clock=clock)
    assert (found.value, found.median, found.rounds) == (2e9, 1e9, 5)
    assert found.spread == 1.0


def test_rounds_use_the_budget_and_run_every_kernel() -> None:
    clock = Clock()
    both = [clock.kernel("read", 0.0, 1.0), clock.kernel("copy", 0.0, 1.0)]
    ticks: list[float] = []
    found = kernels.measure(both, "numpy", 20.0, clock=clock, tick=ticks.append)
    assert [item.rounds for item in found] == [10, 10]
    assert clock.order == ["read", "copy"] * 11
    assert ticks == sorted(ticks)
    assert ticks[-1] == 1.0


@pytest.mark.parametrize("threads", [1, 2])
def test_shared_cores_show_in_cpu_time_and_lower_the_confidence(threads: int) -> None:
    clock = Clock()
    both = [clock.kernel("read", 1.0, threads=threads), clock.kernel("copy", 0.5, threads=threads)]
    shared, own = kernels.measure(both, "numpy", 1.0, clock=clock, cpu=lambda: clock.cpu)
    assert (shared.cpu_share, own.cpu_share) == (0.5, 1.0)
    assert (shared.steady, own.steady) == (False, True)
    peaks = of_box(shared).peaks()
    assert peaks.confidence == "low"
    assert "other programs" in peaks.note
    assert of_box(own).peaks().confidence == "high"


def test_passes_of_one_round_each_make_one_ceiling() -> None:
    passes = [[bandwidth(value, rounds=1), compute(1e10, rounds=1)] for value in (1e10, 3e10, 2e10)]
    read, fma = carm.best_of(passes)
    assert (read.value, read.median, read.rounds) == (3e10, 2e10, 3)
    assert (fma.value, fma.rounds) == (1e10, 3)


def test_a_record_survives_json() -> None:
    found = of_box(bandwidth(2e10, median=1.9e10), compute(1e11), notes=("a note",))
    assert Ceilings.from_json(json.loads(json.dumps(found.to_json()))) == found
    listed = found.to_json()["ceilings"]
    assert isinstance(listed, list)
    assert [item["unit"] for item in listed] == ["B/s", "FLOP/s"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"schema": "roofline-ceilings/1"}, "schema"),
        ({"ceilings": None}, "ceilings"),
        ({"ceilings": [{"name": "read"}]}, "kind"),
        ({"ceilings": [{**bandwidth(2e10).to_json(), "level": "L9"}]}, "L9"),
        ({"ceilings": [{**compute(2e10).to_json(), "level": "L1"}]}, "L1"),
        ({"ceilings": [{**compute(2e10).to_json(), "name": "magic"}]}, "magic"),
        ({"call_s": -1}, "call_s"),
        ({"machine": "mine"}, "machine"),
        ({"clock_mhz": "fast"}, "clock_mhz"),
    ],
)
def test_an_invalid_record_is_refused_by_name(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Ceilings.from_json({**of_box(bandwidth(2e10)).to_json(), **change})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 0.0, True, "fast", "1e30", None])
def test_an_invalid_rate_is_refused(value: object) -> None:
    data = json.loads(json.dumps(of_box(bandwidth(2e10)).to_json()))
    data["ceilings"][0]["value"] = value
    with pytest.raises(ValueError, match="value"):
        Ceilings.from_json(data)


def test_peaks_are_the_best_memory_and_vector_ceilings_of_the_whole_machine() -> None:
    caches = [bandwidth(4e11, "L1"), bandwidth(6e10, "L3")]
    found = of_box(bandwidth(1e10, threads=1), bandwidth(2e10), bandwidth(2.5e10, name="triad"), *caches, compute(1.9e11))
    peaks = replace(
        found, items=(*found.items, compute(1.3e11, "gemm"), compute(9e10, "vector"), compute(6e10, "gemm", "fp64"))
    ).peaks()
    assert (peaks.hbm_bw_bytes_s, peaks.vector, peaks.flops) == (2.5e10, {"fp32": 1.9e11, "fp64": 6e10}, {})
    assert (peaks.product, peaks.source, peaks.l2_bytes, peaks.dispatch_floor_s) == ("cpu", "measured", 2**25, 5e-8)
    assert peaks.compute_axis("matrix", "fp32") == ("vector.fp32", 1.9e11)
    for word in ("Box 1", "2026-01-02", "carm", "3000 MHz", "memory 5 of 5", "lower bound"):
        assert word in peaks.note


@pytest.mark.parametrize(
    ("memory", "fp32", "confidence", "low"),
    [(3, 5, "high", ()), (2, 5, "low", ("memory",)), (5, 1, "low", ("vector.fp32",)), (1, 1, "low", ())],
)
def test_confidence_is_high_where_three_rounds_reached_the_best(
    memory: int, fp32: int, confidence: str, low: tuple[str, ...]
) -> None:
    slow = {"median": 1e9}  # how slow the other rounds were says nothing of the best
    peaks = of_box(bandwidth(1e10, reproduced=memory, **slow), compute(1e11, reproduced=fp32, **slow)).peaks()
    assert (peaks.confidence, peaks.low_axes) == (confidence, low)
    for axis, reproduced in (("memory", memory), ("vector.fp32", fp32)):
        assert peaks.axis_confidence(axis) == ("high" if reproduced >= 3 else "low")


def test_one_thread_with_its_core_is_no_roof_of_a_machine_whose_other_cores_were_taken() -> None:
    one = bandwidth(1.2e11, "L1", threads=1, cpu_share=1.0, working_set=2**15)
    shared, own = (bandwidth(1e11, "L1", cpu_share=share, working_set=2**15) for share in (0.5, 0.95))
    for both, confidence in ((shared, "low"), (own, "high")):
        found = of_box(one, both)
        (level,) = found.levels()
        assert (level.name, level.bandwidth_bytes_s, level.confidence) == ("L1", 1.2e11, confidence)
        assert found.doubtful() == (("L1",) if confidence == "low" else ())


def test_a_size_of_operands_has_the_best_rate_of_it_and_of_larger_ones() -> None:
    rates = {2**18: 9e10, 2**22: 1e11, 2**25: 3e10, 2**26: 1e10}  # the first was disturbed, the last reads from memory
    items = [bandwidth(rate, "L2" if size < 2**20 else "L3", working_set=size) for size, rate in rates.items()]
    peaks = of_box(bandwidth(2e10), *items).peaks()
    assert [(level.name, level.bytes, level.bandwidth_bytes_s) for level in peaks.levels] == [
        ("L2", 2**18, 1e11),
        ("L3", 2**22, 1e11),
        ("L3", 2**25, 3e10),
        ("L3", 2**26, 2e10),
    ]
    sizes = {2**17: [2**18], 2**18: [2**18], 2**20: [2**18, 2**22], 2**26: [2**25, 2**26], 2**27: [2**26, float("inf")]}
    assert {size: [level.bytes for level in peaks.levels_around(size)] for size in sizes} == sizes
    assert peaks.at_level(peaks.levels[1]).hbm_bw_bytes_s == 1e11


def test_operands_of_growing_size_reach_from_the_l1_to_twice_the_last_cache() -> None:
    pytest.importorskip("numpy")
    box = replace(BOX, cache_bytes=2**20)
    found = kernels.numpy_levels(box, {"L1": (2**15, 2), "L2": (2**18, 2), "L3": (2**20, 1)}, available=2**30)
    one = [(item.level, item.working_set) for item in found if item.threads == 1]
    assert one[0] == ("L1", 24 * 2**10)
    assert one[3:5] == [("L2", 192 * 2**10), ("L3", 384 * 2**10)]
    assert one[-1] == ("L3", 1536 * 2**10)  # the next step is over 2 MiB
    both = [(item.level, item.working_set) for item in found if item.threads == 2]
    assert both[0] == ("L1", 48 * 2**10)
    assert kernels.numpy_levels(box, {}) == []


def test_the_engine_takes_the_last_level_cache_for_its_residency_rule() -> None:
    peaks = of_box(bandwidth(2e10), compute(1e11)).peaks()
    assert roofline.cache_bytes(peaks) == 2**25


def test_two_ceilings_of_one_thing_keep_the_larger() -> None:
    found = of_box(bandwidth(2e10))
    assert found.merged(bandwidth(1e10, method="numpy")) == found
    (kept,) = found.merged(bandwidth(3e10, method="numpy")).items
    assert (kept.value, kept.method) == (3e10, "numpy")
    assert len(found.merged(bandwidth(3e10, threads=1)).items) == 2


def test_a_doubtful_best_is_believed_once_other_rounds_reproduce_it() -> None:
    doubtful = bandwidth(2e10, reproduced=1)
    near = bandwidth(1.95e10, reproduced=2)  # 2.5 % under
    for first, second in ((doubtful, near), (near, doubtful)):
        (kept,) = of_box(first).merged(second).items
        assert (kept.value, kept.reproduced, kept.rounds) == (2e10, 3, 10)
        assert kept.steady
    far = bandwidth(1.9e10)  # 5 % under: it stays doubtful
    (kept,) = of_box(doubtful).merged(far).items
    assert (kept.value, kept.reproduced, kept.steady) == (2e10, 1, False)


def test_a_measurement_goes_on_until_the_best_is_reproduced_or_its_patience_ends() -> None:
    clock = Clock()
    lucky = clock.kernel("read", 1.0, 0.5, 1.0)  # a warm-up, one round at half the time, the others alike
    (found,) = kernels.measure([lucky], "numpy", 10.0, clock=clock)
    assert (found.reproduced, found.rounds) == (1, 31)  # 0.5 s and thirty of 1 s: three times the budget
    clock = Clock()
    (found,) = kernels.measure([clock.kernel("read", 1.0)], "numpy", 10.0, clock=clock)
    assert (found.reproduced, found.rounds) == (10, 10)


def test_a_busy_machine_lowers_no_ceiling_and_one_line_tells_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = machine.this_machine()
    quiet = replace(of_box(bandwidth(2e10), compute(2.32e11), method="numpy"), machine=here)
    busy = replace(of_box(bandwidth(2.5e10), compute(2.18e10, reproduced=1), method="numpy"), machine=here)
    said: list[str] = []
    announced: list[str] = []
    for made in (quiet, busy):
        monkeypatch.setattr(measure, "_quick", lambda *_: made)  # noqa: B023
        found = measure.ceilings("numpy", force=True, where=tmp_path, say=said.append, announce=announced.append)
    assert found.peaks().vector == {"fp32": 2.32e11}
    assert found.peaks().hbm_bw_bytes_s == 2.5e10
    (line,) = said
    assert "232 GFLOP/s" in line
    assert "21.8 GFLOP/s" in line
    assert len(announced) == 2
    assert measure.ceilings("quick", where=tmp_path, announce=announced.append) == found
    assert len(announced) == 2


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (bandwidth(1e30), "outside the range"),
        (bandwidth(6e11), "a core"),  # 300 GB/s for each of two cores
        (bandwidth(3e12, "L1"), "bytes a clock"),
        (compute(1e30), "outside the range"),
        (compute(9e11), "FLOPs a clock"),  # 69 a clock at 6.5 GHz and two cores
        (compute(1.4e13, "gemm", "bf16"), "FLOPs a clock"),  # AMX: 2 x 1024 x 6.5e9 = 1.33e13
    ],
)
def test_a_ceiling_that_no_cpu_reaches_makes_its_file_unusable(item: Ceiling, why: str) -> None:
    data = of_box(bandwidth(2e10), item).to_json()
    with pytest.raises(ValueError, match=why):
        Ceilings.from_json(data)


def test_a_repeated_measurement_keeps_the_larger_ceiling(tmp_path: Path) -> None:
    found = of_box(bandwidth(2e10), compute(1e11))
    assert measure.keep_larger(found, (bandwidth(1.5e10),), where=tmp_path) is found
    assert list(tmp_path.iterdir()) == []
    more = measure.keep_larger(found, (bandwidth(3e10),), where=tmp_path)
    assert more.peaks().hbm_bw_bytes_s == 3e10
    again = measure.keep_larger(more, (bandwidth(1e10, name="copy"),), where=tmp_path)
    assert {(item.rounds, item.reproduced) for item in again.items} == {(5, 5)}  # no round counts twice
    # What another process found meanwhile is not lost.
    last = measure.keep_larger(found, (compute(2e11),), where=tmp_path)
    assert (last.peaks().hbm_bw_bytes_s, last.peaks().vector["fp32"]) == (3e10, 2e11)


# What cannot be right


def test_a_plausible_measurement_is_accepted() -> None:
    levels = [bandwidth(4e11, "L1"), bandwidth(1.4e11, "L2"), bandwidth(4e10, "L3"), bandwidth(1.9e10)]
    stack = [compute(1.9e11), compute(9.4e10, "vector"), compute(1.2e10, "scalar")]
    quick = [bandwidth(2.2e10, method="numpy"), compute(1.3e11, "gemm", method="numpy")]
    assert measure.refused([*levels, *stack], quick) == {}


@pytest.mark.parametrize(
    ("wrong", "others", "quick", "why"),
    [
        (bandwidth(6e10), [], [bandwidth(2e10, method="numpy")], "out of a cache"),
        (bandwidth(1e10), [], [bandwidth(2e10, method="numpy")], "busy"),
        (bandwidth(1e10, "L3"), [bandwidth(2e10)], [], "of DRAM"),
        (bandwidth(1e11, "L1"), [bandwidth(2e11, "L2")], [], "of L2"),
        (compute(1e11), [], [compute(1.5e11, "gemm", method="numpy")], "GEMM"),
        (compute(5e10), [compute(9e10, "vector")], [], "of vector"),
        (compute(1e12), [], [], "FLOPs a clock"),
        (bandwidth(20.0), [], [], "unit error"),
    ],
    ids=["cache", "busy", "slow_l3", "slow_l1", "under_gemm", "slow_fma", "too_many_flops", "unit"],
)
def test_an_implausible_measurement_is_refused_in_one_line(
    wrong: Ceiling, others: list[Ceiling], quick: list[Ceiling], why: str
) -> None:
    found = measure.refused([wrong, *others], quick)
    assert list(found) == [wrong]
    assert why in found[wrong]
    assert "\n" not in found[wrong]


# Two cores of a virtual machine on an eight-core L3 of 32 MiB, of which it gets a third. carm-roofline's own size was 24 MiB:
# 17.4 GB/s, and numpy adds arrays from 4 MiB at 76.5 GB/s on the same machine. The other figures are of that day too.
VIRTUAL = {"L1": (32 * 2**10, 2), "L2": (512 * 2**10, 2), "L3": (32 * 2**20, 1)}
PROOF = {"L1": 3.3e10, "L2": 7.7e10, "L3": 7.65e10}


def by_numpy(rates: dict[str, float]) -> list[Ceiling]:
    return [bandwidth(value, level, name="add", threads=1, method="numpy") for level, value in rates.items()]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("level", "disturbed"), [("L1", 6e10), ("L2", 3.8e10), ("L3", 1.74e10)])
def test_a_level_that_an_ordinary_loop_beats_is_unknown_with_the_reason(level: str, disturbed: float, threads: int) -> None:
    rates = {"L1": 1.2e11, "L2": 8e10, "L3": 7e10, "DRAM": 1.6e10} | {level: disturbed}
    lines = [
        carm_memory(rate / 1e9 * part, ratio, at, num_threads=threads)
        for at, rate in rates.items()
        for ratio, part in (("1:0", 1.0), ("2:1", 0.95))
    ]
    found = measure.refused(list(carm.read("\n".join(lines), "x86_avx2")), by_numpy(PROOF))
    assert {item.level for item in found} == {level}
    assert len(found) == 2  # read and triad
    for why in found.values():
        assert why.startswith(f"carm: {level} ")
        assert "numpy's add" in why
        assert why.endswith("not used")


@pytest.mark.parametrize(
    ("proof", "most"),
    [
        (("L3", 1), 1.5),  # the same level by as many threads: two methods
        (("L3", 2), None),  # two threads prove nothing of one
        (("DRAM", 1), 1.1),  # what lies beneath is no faster
        (("L2", 1), None),
    ],
)
def test_a_level_uses_the_best_of_its_ceilings(proof: tuple[str, int], most: float | None) -> None:
    level, threads = proof
    long = [bandwidth(4e10, "L3", threads=1), bandwidth(5e10, "L3", name="triad", threads=1)]
    for times in (1.05, 1.15, 1.45, 1.55, 10.0):
        (loop,) = (replace(item, threads=threads) for item in by_numpy({level: times * 5e10}))
        assert len(measure.refused(long, [loop])) == (2 if most and times > most else 0), times


def test_more_threads_are_no_slower_than_one() -> None:
    one = by_numpy({"L3": 5.6e10})
    assert measure.refused([bandwidth(5.2e10, "L3")], one) == {}
    assert len(measure.refused([bandwidth(5e10, "L3")], one)) == 1  # 12 % under


# carm-roofline's sizes


@pytest.mark.parametrize(
    ("caches", "threads", "kib"),
    [
        (VIRTUAL, 1, {"L1": 24, "L2": 128, "L3": 2048}),
        (VIRTUAL, 2, {"L1": 24, "L2": 128, "L3": 2048}),
        (VIRTUAL, 4, {"L1": 12, "L2": 64, "L3": 1024}),  # two threads a core
        ({"L1": (48 * 2**10, 24), "L2": (2**21, 24), "L3": (45 * 2**20, 1)}, 1, {"L1": 36, "L2": 192, "L3": 8192}),
        # 1.9 MiB of L3 a thread beside 2 MiB of L2: any size that stays in the one is in the other too
        ({"L1": (48 * 2**10, 24), "L2": (2**21, 24), "L3": (45 * 2**20, 1)}, 24, {"L1": 36, "L2": 192}),
        ({"L1": (32 * 2**10, 1), "L2": (128 * 2**10, 1)}, 1, {"L1": 24, "L2": 96}),  # three quarters of a small L2
        ({}, 1, {}),
    ],
)
def test_each_level_is_measured_at_four_times_the_one_above_it(
    caches: dict[str, tuple[int, int]], threads: int, kib: dict[str, int]
) -> None:
    assert kernels.level_bytes(caches, threads) == {level: size * 1024 for level, size in kib.items()}


def test_sizes_reach_the_tool_and_a_level_without_size_is_named() -> None:
    _, memory = carm.arguments(BOX, "x86_avx2", VIRTUAL)
    dram, _ = kernels.array_bytes(BOX, 2)
    said = f"-m L1 L2 L3 DRAM --mem-test-sizes 24KiB 128KiB 2048KiB {dram // 1024}KiB --threads 1 2"
    assert said in " ".join(memory)
    assert carm.left_out(BOX, VIRTUAL) == []
    small = {"L1": (48 * 2**10, 2), "L2": (2**21, 2), "L3": (6 * 2**20, 1)}
    _, one, both = carm.arguments(BOX, "x86_avx2", small)
    assert "-m L1 L2 DRAM" in " ".join(both)
    assert both[-2:] == ["--threads", "2"]
    assert one[-2:] == ["--threads", "1"]
    assert "-m L1 L2 L3 DRAM" in " ".join(one)
    (line,) = carm.left_out(BOX, small)
    assert line.startswith("carm: L3, 2 threads: unknown")


TOOL = """
import json, pathlib, sys
def after(name): return sys.argv[sys.argv.index(name) + 1]
folder = pathlib.Path(after("--output-dir"), after("--name"))
folder.mkdir(parents=True)
row = {"type": "memory", "isa": after("-i"), "data_type": "f64", "load_store_ratio": "1:0", "num_threads": 1}
rates = {"L1": 390, "L2": 2, "L3": 2} if after("-t") == "memory" else {}
rows = [json.dumps({**row, "cache_level": level, "bandwidth_gbps": rate}) for level, rate in rates.items()]
(folder / "benchmarks.jsonl").write_text("\\n".join(rows))
"""


@pytest.mark.skipif(carm.missing(machine.this_machine()) != "", reason="carm-roofline's needs")
@pytest.mark.skipif("L3" not in machine.caches(), reason="no L3 here")
def test_the_long_measurement_drops_a_level_that_numpy_beats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "carm_roofline").mkdir()
    (tmp_path / "carm_roofline/__init__.py").touch()
    (tmp_path / "carm_roofline/carm.py").write_text(TOOL)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(kernels, "available_bytes", lambda: 2**26)
    said: list[str] = []
    found = measure.ceilings("carm", 0.01, where=tmp_path, say=said.append)
    assert [item.level for item in found.items if item.method == "carm"] == ["L1"]
    assert {line.split(" read")[0] for line in said} == {"carm: L2", "carm: L3"}
    assert any("numpy's add from L" in line for line in said)
    assert set(said) <= set(found.notes)


# carm-roofline's records


def carm_row(**keys: Any) -> str:
    return json.dumps({"isa": "x86_avx2", "data_type": "f32", "num_threads": 2, "machine": "box", **keys})


def carm_memory(gbps: object, ratio: str = "1:0", level: str = "DRAM", **keys: Any) -> str:
    return carm_row(type="memory", bandwidth_gbps=gbps, load_store_ratio=ratio, cache_level=level, **keys)


def test_carms_records_become_the_stacked_ceilings() -> None:
    lines = [
        carm_row(type="arithmetic", operation="fma", performance_gops=190.3),
        carm_row(type="arithmetic", operation="add", performance_gops=93.98, data_type="f64"),
        carm_row(type="arithmetic", operation="add", performance_gops=11.7, isa="x86"),
        carm_row(type="arithmetic", operation="fma", performance_gops=23.4, isa="x86"),
        carm_memory(19.5),
        carm_memory(400.0, "2:1", "L1"),
        carm_memory(9.0, "1:1"),
        carm_row(type="mixed", points=[]),
    ]
    found = [(item.name, item.level, item.dtype, round(item.value)) for item in carm.read("\n".join(lines), "x86_avx2")]
    assert found == [
        ("vector_fma", None, "fp32", 190300000000),
        ("vector", None, "fp64", 93980000000),
        ("scalar", None, "fp32", 11700000000),
        ("read", "DRAM", "fp64", 19500000000),
        ("triad", "L1", "fp64", 400000000000),
    ]


@pytest.mark.parametrize("line", ["{", "[1]", carm_memory(-1.0), carm_memory("NaN"), carm_memory(9.0, num_threads=None)])
def test_a_broken_record_of_carm_is_refused_by_its_line(line: str) -> None:
    with pytest.raises(ValueError, match="line 2"):
        list(carm.read(carm_memory(19.5) + "\n" + line, "x86_avx2"))


# The kernels


def test_a_quick_measurement_by_numpy_gives_plausible_figures() -> None:
    here = machine.this_machine()
    streams, notes = kernels.numpy_streams(here, available=2**26)
    assert "too little free memory" in notes[0]
    gemms, _ = kernels.numpy_gemms(here, {})
    found = kernels.measure(streams + gemms, "numpy", 0.05)
    assert {item.name for item in found} == {"read", "copy", "add", "triad", "gemm"}
    for item in found:
        low, high = (1e8, 1e13) if item.kind == "bandwidth" else (1e8, 1e15)
        assert low < item.median <= item.value < high, item


def test_numpys_kernels_count_each_array_once_a_pass() -> None:
    streams, _ = kernels.numpy_streams(BOX, available=12 * 2**22)
    nbytes = 2**22
    assert {kernel.name: kernel.work for kernel in streams} == {
        "read": nbytes,
        "copy": 2 * nbytes,
        "add": 3 * nbytes,
        "triad": 3 * nbytes,
    }
    assert {kernel.threads for kernel in streams} == {1, 2}


def test_gemm_on_fewer_threads_than_cores_is_noted() -> None:
    gemms, notes = kernels.numpy_gemms(BOX, {"OMP_NUM_THREADS": "1"})
    assert {kernel.threads for kernel in gemms} == {1}
    assert notes == ["GEMM on 1 of 2 cores (OMP_NUM_THREADS)"]
    assert kernels.numpy_gemms(BOX, {"OMP_NUM_THREADS": "64"})[1] == []


def test_without_numpy_bandwidth_is_still_measured_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    said: list[str] = []
    found = measure.ceilings("quick", 0.01, where=tmp_path, say=said.append)
    assert (found.method, said) == ("memory", [])
    assert (found.peaks().hbm_bw_bytes_s or 0) > 1e8
    assert found.peaks().vector == {}
    assert found.notes == ("bandwidth only: compute ceilings need numpy",)
    assert measure.remeasure(found, "vector.fp32", 0.01, where=tmp_path) is found
    with pytest.raises(ValueError, match="numpy is not installed"):
        measure.ceilings("numpy", where=tmp_path)


def test_arrays_are_four_times_the_cache_where_memory_allows() -> None:
    assert kernels.array_bytes(BOX, 3, 2**34) == (2**27, "")
    size, note = kernels.array_bytes(BOX, 3, 2**29)
    assert size < 2**27
    assert "too little free memory" in note
    assert "unknown" in kernels.array_bytes(replace(BOX, cache_bytes=None), 3, 2**34)[1]


@pytest.mark.parametrize("threads", [1, 3])
def test_a_team_covers_every_element_once(threads: int) -> None:
    team = kernels.Team(threads)
    seen = [0] * 10

    def share(at: int) -> None:
        for place in range(*team.cut(10)[at].indices(10)):
            seen[place] += 1

    team.run(share)
    assert seen == [1] * 10


# The machine


def system(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_machine_is_its_cpu_its_usable_cores_its_memory_and_caches(tmp_path: Path) -> None:
    text = "model name : Fast  CPU\nflags : fpu avx2\ncpu MHz : 2400.5\nmodel name : Fast  CPU\ncpu MHz : 3100.0\n"
    system(tmp_path, proc__cpuinfo=text, proc__meminfo="MemTotal: 16300000 kB\nMemAvailable: 8000000 kB\n")
    for cpu, shared in ((0, "0-1"), (1, "0-1"), (2, "2-3")):
        for index, level, kind, size in ((0, 1, "Data", "32K"), (3, 3, "Unified", "16M")):
            folder = f"sys__devices__system__cpu__cpu{cpu}__cache__index{index}"
            keys = {"level": str(level), "type": kind, "size": size, "shared_cpu_list": shared if level == 3 else str(cpu)}
            system(tmp_path, **{f"{folder}__{key}": f"{value}\n" for key, value in keys.items()})
    found = machine.this_machine(tmp_path, {0, 1, 2})
    assert (found.cpu, found.cores, found.cache_bytes) == ("Fast CPU", 3, 2 * 16 * 2**20)
    assert machine.caches(tmp_path, {0, 1, 2}) == {"L1": (32 * 2**10, 3), "L3": (16 * 2**20, 2)}
    assert found.memory_bytes == 16 * 2**30
    assert machine.clock_mhz(tmp_path) == 3100.0
    assert machine.available_bytes(tmp_path) == 8000000 * 1024
    assert machine.isa_flags(tmp_path) == {"fpu", "avx2"}
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cpu.max").write_text("150000 100000\n")
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("1000000000\n")
    assert machine.this_machine(tmp_path, {0, 1, 2}).cores == 2
    assert machine.available_bytes(tmp_path) == 1000000000
    assert machine.this_machine(tmp_path, {0, 1, 2}).key != found.key


def test_unequal_caches_are_summed_for_the_machine_and_the_smallest_counts_for_a_thread(tmp_path: Path) -> None:
    for cpu, size in ((0, "96M"), (1, "32M")):  # one group of cores with a stacked die, one without
        keys = {"level": "3", "type": "Unified", "size": size, "shared_cpu_list": str(cpu)}
        folder = f"sys__devices__system__cpu__cpu{cpu}__cache__index3"
        system(tmp_path, **{f"{folder}__{key}": f"{value}\n" for key, value in keys.items()})
    assert machine.this_machine(tmp_path, {0, 1}).cache_bytes == 128 * 2**20
    assert machine.caches(tmp_path, {0, 1}) == {"L3": (32 * 2**20, 2)}


def test_a_system_without_information_is_still_a_machine(tmp_path: Path) -> None:
    found = machine.this_machine(tmp_path)
    assert found.cores >= 1
    assert found.cpu
    assert (found.memory_bytes, found.cache_bytes, machine.clock_mhz(tmp_path)) == (None, None, None)


def test_the_package_imports_neither_pytest_nor_numpy() -> None:
    code = "import sys, pytest_roofline.ceilings; print([m for m in ('pytest', 'numpy', 'torch', 'rich') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_narrow_dtype_gets_its_ceiling_from_torch_and_is_no_slower_than_fp32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    results = {"bf16": 3e11, "fp16": 1e9}  # torch has no fast kernel for fp16 on most CPUs

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        dtype = next(name for name in results if name in command[-1])
        item = compute(results[dtype], "gemm", dtype, method="torch")
        return subprocess.CompletedProcess(command, 0, "a warning\n" + json.dumps([asdict(item)]), "")

    monkeypatch.setattr(measure.subprocess, "run", run)
    found = of_box(bandwidth(2e10), compute(2e11, "gemm"))
    announced: list[str] = []
    for dtype in results:
        found = measure.add_dtype(found, dtype, where=tmp_path, announce=announced.append)
    assert found.peaks().vector == {"fp32": 2e11, "bf16": 3e11, "fp16": 2e11}
    assert len(announced) == 2

    def fail(command: list[str], **_: object) -> None:
        raise subprocess.CalledProcessError(1, command, stderr="Traceback\nRuntimeError: no kernel")

    monkeypatch.setattr(measure.subprocess, "run", fail)
    said: list[str] = []
    assert measure.add_dtype(found, "int8", where=tmp_path, say=said.append) is found
    assert said == ["the int8 ceiling was not measured: torch: RuntimeError: no kernel"]
