"""The JSON and line formats of `roofline check`: small inputs in the formats that the tools write, detected by content."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_roofline.declare import build_work
from pytest_roofline.records.formats import ADAPTERS, choose
from pytest_roofline.records.source import SAMPLE, Adapter, RecordRow, RefusedError, Sample, Source, outline


def read(tmp_path: Path, content: Any, name: str = "x.dat") -> tuple[str, list[RecordRow]]:
    """Return the adapter that the content selects, and its rows. Text is written unchanged, other content as JSON."""
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    chosen = choose(Sample(path.read_text(encoding="utf-8")[:SAMPLE]))
    assert chosen is not None
    return chosen.NAME, rows_of(chosen, path)


def rows_of(adapter: Adapter, path: Path) -> list[RecordRow]:
    with path.open("rb") as stream:
        return list(adapter.read(Source(path, stream)))


def one(tmp_path: Path, content: Any, name: str = "x.dat") -> RecordRow:
    (record,) = read(tmp_path, content, name)[1]
    return record


CASE = {"sig": "down_proj_M64", "m": 64, "baseline_ms": 0.0412, "optimized_ms": 0.0330, "speedup": 1.2485, "reps": 1}
OP_BENCH = {
    "op_kind": "gemm",
    "task": "q_proj",
    "measured": True,
    "measurement_mode": "cold",
    "results": [
        {"backend": "hipblaslt", "available": True, "correct": True, "ms": 0.05},
        {"backend": "triton", "available": True, "correct": True, "ms": 0.04},
    ],
    "winner_backend": "triton",
    "baseline_ms": 0.05,
    "isolated_speedup": 1.25,
}
ARENA = [{"test_case_id": "m64", "params": {"M": 64, "N": 32, "K": 16, "dtype": "bf16"}, "execution_time_ms": 0.031}]
TASK = "base_execution_time: 0.052\nbest_optimized_execution_time: 0.026\nspeedup_ratio: 2.0\npass_correctness: true\n"
SAMPLES = {
    "7": [
        {
            "sample_id": 0,
            "compiled": True,
            "correctness": True,
            "metadata": {"hardware": "NVIDIA H100 80GB HBM3"},
            "runtime": 0.41,
            "runtime_stats": {"mean": 0.41, "num_trials": 100},
        }
    ]
}
LEVELS = {"level1": {"7_Example_.py": {"mean": 0.55, "std": 0.004, "num_trials": 100, "hardware": "NVIDIA H100 PCIe"}}}
SETTINGS = {
    "eval_settings": {"N_2048": {"mean_time": 0.36, "median_time": 0.35}},
    "device_info": {
        "devices": {
            "GPU_0": {"name": "H100", "multiprocessors": 132, "memory_bus_width_bits": 5120, "memory_clock_rate_MHz": 2619.0}
        }
    },
}
TRACE = {
    "definition": "rmsnorm_h4096",
    "solution": "mine_v2",
    "workload": {"uuid": "u1", "axes": {"batch_size": 34}, "inputs": {"x": {"type": "random"}, "weight": {"type": "random"}}},
    "evaluation": {
        "status": "PASSED",
        "environment": {"hardware": "NVIDIA_B200"},
        "performance": {"latency_ms": 0.0082, "reference_latency_ms": 0.0246, "speedup_factor": 3.0},
    },
}
RMSNORM = {
    "name": "rmsnorm_h4096",
    "op_type": "rmsnorm",
    "axes": {"batch_size": {"type": "var"}, "h": {"type": "const", "value": 4096}},
    "inputs": {"x": {"shape": ["batch_size", "h"], "dtype": "bfloat16"}, "weight": {"shape": ["h"], "dtype": "bfloat16"}},
    "outputs": {"y": {"shape": ["batch_size", "h"], "dtype": "bfloat16"}},
}
POPCORN = "benchmark-count: 1\nbenchmark.0.spec: m: 1024; n: 1536; k: 7168; seed: 1\nbenchmark.0.runs: 100\n" + (
    "benchmark.0.mean: 21500.0\nbenchmark.0.best: 20900.0\ncheck: pass\n"
)
STATS = {"median": 2e-6, "q1": 1.9e-6, "q3": 2.2e-6, "rounds": 10, "iterations": 4}
PYTEST = {"benchmarks": [{"name": "test_f", "fullname": "t.py::test_f", "params": None, "stats": STATS}], "version": "2.5.0"}
GOOGLE = {"context": {}, "benchmarks": [{"name": "BM_F", "iterations": 9, "real_time": 10, "cpu_time": 8, "time_unit": "us"}]}


def summary(tag: str, value: object, hint: str = "") -> dict[str, Any]:
    return {"tag": tag, "hint": hint, "data": [{"name": "value", "type": "float64", "value": str(value)}]}


def nvbench(*summaries: dict[str, Any], **state: Any) -> dict[str, Any]:
    listed = [summary("nv/cold/sample_size", 78), summary("nv/cold/time/gpu/mean", 0.002, "duration"), *summaries]
    return {
        "meta": {"version": {"nvbench": {"major": 0}}},
        "devices": [{"id": 0, "name": "Quadro GV100", "number_of_sms": 80, "global_memory_bus_bandwidth": 870400000000}],
        "benchmarks": [{"name": "copy", "states": [{"name": "Device=0", "device": 0, "summaries": listed, **state}]}],
    }


EVERY = {
    "GEAK unittest output": "noise\nGEAK_PER_CASE " + json.dumps([CASE]) + "\nRESULT PASS (oracle=True)\n",
    "GEAK op_bench JSON": json.dumps(OP_BENCH),
    "AgentKernelArena report": json.dumps(ARENA),
    "KernelBench JSON": json.dumps(SAMPLES),
    "Trace JSON lines": json.dumps(TRACE) + "\n",
    "POPCORN lines": POPCORN,
    "pytest-benchmark JSON": json.dumps(PYTEST),
    "google-benchmark JSON": json.dumps(GOOGLE),
    "nvbench JSON": json.dumps(nvbench()),
    "JSON claims": json.dumps([{"op": "softmax", "rows": 8, "cols": 8, "dtype": "bf16", "us": 9}]),
}


CLAIM_ROWS = [
    {"op": "gemm", "M": 64, "N": 32, "K": 16, "dtype": "bf16", "device": "MI300X", "us": 9.5, "baseline_us": 19, "note": None},
    {
        "op": "conv2d",
        "batch": 8,
        "in_channels": 4,
        "out_channels": 4,
        "input": [8, 8],
        "kernel": [3, 3],
        "dtype": "fp16",
        "us": 9,
    },
]


def test_claims_are_read_from_a_list_and_from_lines(tmp_path: Path) -> None:
    lines = "\n".join(map(json.dumps, CLAIM_ROWS)) + "\n"
    for content in (CLAIM_ROWS, lines):
        name, (gemm, conv) = read(tmp_path, content)
        assert (name, gemm.t_s, gemm.baseline_t_s) == ("JSON claims", pytest.approx(9.5e-6), pytest.approx(19e-6))
        assert gemm.device == "MI300X"
        assert gemm.work is not None
        assert gemm.work["M"] == 64
        assert conv.work is not None
        assert (conv.work["kernel"], conv.refused) == ([3, 3], "")
    with pytest.raises(RefusedError, match="line 2: not JSON"):
        read(tmp_path, lines[:-5])
    with pytest.raises(RefusedError, match="list of objects"):
        read(tmp_path, [*CLAIM_ROWS, 3])


# Telling formats apart


@pytest.mark.parametrize("name", EVERY)
def test_exactly_one_adapter_accepts_a_format_under_any_file_name(name: str) -> None:
    assert [adapter.NAME for adapter in ADAPTERS if adapter.matches(Sample(EVERY[name]))] == [name]


def test_a_baseline_timing_and_settings_are_of_the_format_of_kernelbench(tmp_path: Path) -> None:
    assert {read(tmp_path, content)[0] for content in (LEVELS, SETTINGS)} == {"KernelBench JSON"}


def test_a_key_inside_a_string_does_not_select_a_format() -> None:
    assert choose(Sample(json.dumps({"reference": '{"benchmarks": [{"stats": 1, "real_time": 2}]}'}))) is None


@given(st.text(max_size=300), st.integers(0, 300))
@example("[" * 300, 300)
@example('{"' + '\\"' * 100, 200)
def test_an_outline_of_any_text_cut_off_anywhere_is_bounded(text: str, cut: int) -> None:
    assert all(len(path) < 500 for path in outline(text[:cut]))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab", max_size=3), inner, max_size=4),
        max_leaves=20,
    )
)
def test_an_outline_has_every_key_of_the_first_level(value: Any) -> None:
    found = outline(json.dumps(value))
    if isinstance(value, dict):
        assert {f".{key}" for key in value} <= found


# Times


@pytest.mark.parametrize(
    "literal", ["0", "-1", "NaN", "Infinity", "-Infinity", "1e999", "true", '"0.03"', "null", "[]", "{}", "1e-400", "9" * 400]
)
@pytest.mark.parametrize("name", ["GEAK unittest output", "AgentKernelArena report", "Trace JSON lines"])
def test_an_invalid_time_refuses_its_row_by_key(tmp_path: Path, name: str, literal: str) -> None:
    key, value = {
        "GEAK unittest output": ("optimized_ms", "0.033"),
        "AgentKernelArena report": ("execution_time_ms", "0.031"),
        "Trace JSON lines": ("latency_ms", "0.0082"),
    }[name]
    text = EVERY[name].replace(f'"{key}": {value}', f'"{key}": {literal}')
    record = one(tmp_path, text)
    assert record.t_s is None
    assert key in record.refused
    assert "\n" not in record.refused


@pytest.mark.parametrize(
    ("name", "t_s"),
    [
        ("GEAK unittest output", 33e-6),
        ("AgentKernelArena report", 31e-6),
        ("KernelBench JSON", 410e-6),
        ("Trace JSON lines", 8.2e-6),
        ("POPCORN lines", 21.5e-6),
        ("pytest-benchmark JSON", 2e-6),
        ("google-benchmark JSON", 10e-6),
        ("nvbench JSON", 2e-3),
    ],
)
def test_each_format_has_its_unit(tmp_path: Path, name: str, t_s: float) -> None:
    found, (record,) = read(tmp_path, EVERY[name])
    assert (found, record.refused) == (name, "")
    assert record.t_s == pytest.approx(t_s, rel=1e-12)


def test_a_time_of_exactly_one_is_marked_as_maybe_written_by_hand(tmp_path: Path) -> None:
    assert one(tmp_path, [{**ARENA[0], "execution_time_ms": 1.0}]).placeholder_time is True
    assert one(tmp_path, ARENA).placeholder_time is False


# Files that cannot be read


@pytest.mark.parametrize("name", [name for name in EVERY if "lines" not in name and "output" not in name])
def test_truncated_json_is_refused_in_one_line_with_its_position(tmp_path: Path, name: str) -> None:
    text = EVERY[name][:-3]
    with pytest.raises(RefusedError, match=r"^x\.dat: not JSON: line 1 column \d+: [^\n]+$"):
        read(tmp_path, text)


def test_deep_nesting_is_refused_in_one_line(tmp_path: Path) -> None:
    text = json.dumps(GOOGLE)[:-1] + ', "x": ' + "[" * 200_000 + "]" * 200_000 + "}"
    with pytest.raises(RefusedError, match=r"^x\.dat: nested more than 100 levels deep$"):
        read(tmp_path, text)


def test_a_truncated_list_of_cases_names_its_line(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"^x\.dat: line 2: GEAK_PER_CASE: not JSON"):
        read(tmp_path, "ok\nGEAK_PER_CASE [{\n")


#: Where each format holds its rows; any value may stand in their place, or in a row's.
_ANY: list[Any] = [
    None,
    True,
    7,
    -1.5,
    "text",
    [],
    {},
    [[]],
    [{}],
    {"a": 1},
    [None],
    [1, "a"],
    {"a": {"b": [1]}},
    math.nan,
    10**400,
]


@pytest.mark.parametrize("name", [name for name in EVERY if name not in ("POPCORN lines", "GEAK unittest output")])
@pytest.mark.parametrize("value", _ANY, ids=lambda value: repr(value)[:20])
def test_wrong_types_anywhere_are_refused_rows_or_files(tmp_path: Path, name: str, value: Any) -> None:
    adapter = {adapter.NAME: adapter for adapter in ADAPTERS}[name]
    for at, changed in enumerate(_replaced(json.loads(EVERY[name]), value)):
        path = tmp_path / str(at)
        path.write_text(json.dumps(changed))
        try:
            records = rows_of(adapter, path)
        except RefusedError as error:
            records = [RecordRow(row="whole", refused=str(error))]
        for record in records:
            assert record.refused or (record.t_s is not None and 0 < record.t_s < math.inf)
            assert "\n" not in record.refused
            assert isinstance(record.name, str)
            if record.work is not None:
                build_work(record.work)


def _replaced(whole: Any, value: Any) -> list[Any]:
    """Yield copies of ``whole`` with each of its parts replaced by ``value``."""
    found = [value]
    if isinstance(whole, dict):
        for key, item in whole.items():
            found += [{**whole, key: changed} for changed in _replaced(item, value)]
    elif isinstance(whole, list):
        for at, item in enumerate(whole):
            found += [[*whole[:at], changed, *whole[at + 1 :]] for changed in _replaced(item, value)]
    return found


def test_terminal_escapes_in_names_are_made_visible(tmp_path: Path) -> None:
    assert one(tmp_path, [{**ARENA[0], "test_case_id": "a\x1b[31m"}]).name == "a\\x1b[31m"


# GEAK


def test_both_times_of_a_case_belong_to_one_kernel(tmp_path: Path) -> None:
    record = one(tmp_path, EVERY["GEAK unittest output"])
    assert (record.name, record.baseline_kind, record.clock) == ("down_proj_M64", "previous", "device-event")
    assert record.baseline_t_s == pytest.approx(41.2e-6)
    assert record.work is None
    assert "meta.json" in record.no_work


def test_a_result_line_applies_to_the_cases_before_it(tmp_path: Path) -> None:
    line = "GEAK_PER_CASE " + json.dumps([CASE]) + "\n"
    _, records = read(tmp_path, f"{line}RESULT FAIL\n{line}RESULT PASS\n{line}")
    assert [record.correct for record in records] == [False, True, None]


def test_a_speedup_that_contradicts_its_times_is_noted(tmp_path: Path) -> None:
    record = one(tmp_path, "GEAK_PER_CASE " + json.dumps([{**CASE, "speedup": 1.5}]))
    assert record.notes == ("speedup is 1.5, its own times give 1.248",)
    assert one(tmp_path, EVERY["GEAK unittest output"]).notes == ()


def test_equal_times_before_and_after_are_noted(tmp_path: Path) -> None:
    record = one(tmp_path, "GEAK_PER_CASE " + json.dumps([{**CASE, "baseline_ms": 0.033, "speedup": 1.0}]))
    assert "same leg" in record.notes[0]


def test_an_untrusted_speedup_is_noted(tmp_path: Path) -> None:
    text = "GEAK_PER_CASE " + json.dumps([CASE]) + "\nGEAK_WEIGHTED_SPEEDUP=UNTRUSTED reason=identity\n"
    assert "untrusted" in one(tmp_path, text).notes[0]


def test_without_cases_a_speedup_over_all_shapes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="no GEAK_PER_CASE"):
        read(tmp_path, "GEAK_GEOMEAN_SPEEDUP 1.2\nRESULT PASS\n")


def test_backends_are_compared_with_the_one_in_use(tmp_path: Path) -> None:
    _, (used, other) = read(tmp_path, OP_BENCH)
    assert (used.name, used.baseline_t_s) == ("q_proj/hipblaslt", None)
    assert (other.baseline_kind, other.cache) == ("reference", "cold")
    assert other.baseline_t_s == pytest.approx(50e-6)


#: 64 x 2048 x 4096 in bf16: 2 M N K = 2^30 FLOPs, each operand once in 2 bytes an element.
GEMM_TASK = {
    "op_kind": "gemm",
    "dtype": "bf16",
    "b_shape": [2048, 4096],
    "transpose_b": True,
    "workload": {"cases": [{"name": "down_proj_M64", "m": 64}]},
}


@pytest.mark.parametrize("name", ["GEAK unittest output", "GEAK op_bench JSON"])
def test_the_sizes_are_those_of_the_tasks_meta_json(name: str, tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text(json.dumps(GEMM_TASK))
    _, records = read(tmp_path, EVERY[name])
    for record in records:
        assert record.work is not None, record.no_work
        work = build_work(record.work)
        assert work is not None
        assert (work.flops, work.bytes) == (2**30, 2 * (64 * 4096 + 2048 * 4096 + 64 * 2048))


@pytest.mark.parametrize(
    ("changed", "lines", "op_bench"),
    [
        ({"op_kind": "moe"}, "no tokens", "has op_kind moe, this file gemm"),
        ({"workload": {"cases": [{"name": "up_proj_M64", "m": 64}]}}, "no cases of this name", ""),
        (
            {"workload": {"cases": [{"name": "down_proj_M64", "m": 64}] * 2}},
            "2 cases of this name",
            "this file does not say which was timed",
        ),
        ({"workload": {"cases": [{"name": "down_proj_M64", "m": 128}]}}, "has M = 128 for this case, and m is 64 here", ""),
        ({"dtype": None}, "no dtype", "no dtype"),
        ({"workload": {}}, "lists no cases", "lists no cases"),
    ],
)
def test_an_incomplete_meta_json_gives_no_sizes(changed: dict[str, Any], lines: str, op_bench: str, tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text(json.dumps({**GEMM_TASK, **changed}))
    record = one(tmp_path, EVERY["GEAK unittest output"])
    assert record.work is None
    assert lines in record.no_work
    assert record.t_s == pytest.approx(33e-6)
    _, (backend, _) = read(tmp_path, OP_BENCH)
    assert (op_bench in backend.no_work and backend.work is None) if op_bench else backend.work is not None


def test_a_broken_meta_json_loses_only_the_sizes(tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text("{")
    assert "not JSON: line 1" in one(tmp_path, EVERY["GEAK unittest output"]).no_work


@pytest.mark.parametrize("speedup", [0.0, None, True, "1.2", math.nan])
def test_a_speedup_that_was_never_taken_is_missing(tmp_path: Path, speedup: object) -> None:
    _, records = read(tmp_path, {**OP_BENCH, "baseline_ms": None, "isolated_speedup": speedup})
    assert [record.speedup for record in records] == [None, None]


def test_the_winner_has_the_speedup_where_the_baseline_has_no_time(tmp_path: Path) -> None:
    _, records = read(tmp_path, {**OP_BENCH, "baseline_ms": None})
    assert [record.speedup for record in records] == [None, 1.25]


def test_a_backend_that_did_not_run_is_refused_and_a_wrong_one_marked(tmp_path: Path) -> None:
    rows = [
        {"backend": "a", "available": False, "ms": 0.0},
        {"backend": "b", "raised": True, "ms": 0.1},
        {"backend": "c", "correct": False, "ms": 0.1},
    ]
    _, (away, raised, wrong) = read(tmp_path, {**OP_BENCH, "results": rows})
    assert away.refused.startswith("available is false")
    assert raised.refused.startswith("raised")
    assert (wrong.refused, wrong.correct) == ("", False)


# AgentKernelArena


def test_sizes_and_dtype_of_a_gemm_give_its_work(tmp_path: Path) -> None:
    record = one(tmp_path, ARENA)
    assert record.work is not None
    work = build_work(record.work)
    assert work is not None
    assert work.flops == 2 * 64 * 32 * 16
    assert work.bytes == 2 * (64 * 16 + 16 * 32 + 64 * 32)


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({}, "no sizes"),
        ({"M": 64, "N": 32, "K": 16}, "the dtype is missing"),
        ({"M": 64, "dtype": "bf16"}, "no op"),
        ({"M": 64, "N": 32, "K": 16, "dtype": "bf15"}, "unknown dtype"),
        ({"M": 64, "N": 32, "K": 0, "dtype": "bf16"}, "K is 0"),
        ({"M": 64, "N": 32, "K": 16, "dtype": "bf16", "op": "softmax"}, "softmax"),
        ({"tokens": 64, "num_experts": 8, "topk": 2, "hidden": 64, "inter": 64, "dtype": "bf16"}, "which GEMMs"),
    ],
)
def test_params_without_work_have_a_reason(tmp_path: Path, params: dict[str, Any], why: str) -> None:
    record = one(tmp_path, [{**ARENA[0], "params": params}])
    assert record.work is None
    assert why in record.no_work
    assert record.t_s is not None


def test_weight_bits_narrow_the_weights(tmp_path: Path) -> None:
    record = one(tmp_path, [{**ARENA[0], "params": {**ARENA[0]["params"], "weight_bits": 4}}])
    assert record.work is not None
    work = build_work(record.work)
    assert work is not None
    assert work.bytes == 2 * 64 * 16 + 16 * 32 / 2 + 2 * 64 * 32


def test_a_device_time_is_preferred_to_a_wall_time(tmp_path: Path) -> None:
    row = {"test_case_id": "a", "wall_time_ms": 3.0, "device_time_ms": 2.0}
    record = one(tmp_path, [row])
    assert (record.t_s, record.clock) == (2e-3, "device-event")


def test_a_wall_time_is_kept_with_the_device_time(tmp_path: Path) -> None:
    arena = one(tmp_path, [{"test_case_id": "a", "wall_time_ms": 3.0, "device_time_ms": 2.0}])
    backend = {"backend": "a", "available": True, "correct": True, "ms": 2.0, "wall_ms": 3.0}
    geak = one(tmp_path, {**OP_BENCH, "results": [backend]})
    state = one(tmp_path, nvbench(summary("nv/cold/time/cpu/mean", 0.003, "duration")))
    assert [(record.t_s, record.wall_s) for record in (arena, geak, state)] == [(2e-3, 3e-3)] * 3
    assert one(tmp_path, [{"test_case_id": "a", "wall_time_ms": 3.0}]).wall_s is None  # then it is the time
    assert one(tmp_path, nvbench()).wall_s is None


def test_the_method_gives_the_clock(tmp_path: Path) -> None:
    assert one(tmp_path, [{**ARENA[0], "benchmark_method": "cuda_graph"}]).clock == "device-graph"
    assert one(tmp_path, ARENA).clock == "unknown"


def test_original_and_optimised_times_are_before_and_after(tmp_path: Path) -> None:
    record = one(tmp_path, [{"test_case_id": "a", "ori_time": 3.0, "opt_time": 2.0}])
    assert (record.t_s, record.baseline_kind, record.baseline_t_s) == (2e-3, "previous", 3e-3)


def test_printed_rates_are_claims_by_the_unit_of_their_key(tmp_path: Path) -> None:
    record = one(tmp_path, [{**ARENA[0], "TFLOPS": 176.0, "gbps": 1600, "tb_per_sec": 1.6, "other": 3}])
    assert [(claim.axis, claim.claimed) for claim in record.claims] == [
        ("compute", 176e12),
        ("memory", 1.6e12),
        ("memory", 1.6e12),
    ]
    assert record.claims[0].digits == pytest.approx(0.05 / 176)
    assert record.claims[1].digits == pytest.approx(0.5 / 1600)


@pytest.mark.parametrize(
    "text",
    [
        TASK,
        "---\n# result\n" + TASK,
        "{" + TASK.strip().replace("\n", ", ") + "}",
        json.dumps(
            {
                "base_execution_time": 0.052,
                "best_optimized_execution_time": 0.026,
                "speedup_ratio": 2.0,
                "pass_correctness": True,
            },
            indent=1,
        ),
    ],
    ids=["lines", "commented", "braces", "json"],
)
def test_a_tasks_result_is_read_flat(tmp_path: Path, text: str) -> None:
    record = one(tmp_path, text, "task_result.yaml")
    assert (record.t_s, record.baseline_t_s, record.baseline_kind) == (26e-6, pytest.approx(52e-6), "previous")
    assert record.correct is True


@pytest.mark.parametrize("more", ["- 1\n", "a: *x\n", "a: [1, 2\n", "a: {b\n", "a: !unknown 1\n", "a: !!python/tuple [1]\n"])
def test_broken_yaml_is_refused_by_line(tmp_path: Path, more: str) -> None:
    with pytest.raises(RefusedError, match=r"^x\.dat: line [56]: not YAML: [^\n]+$"):
        read(tmp_path, TASK + more)


@pytest.mark.parametrize(
    "more", ["a:\n  b: 1\n", "a: [1, 2]\n", "a: {b: 1}\n", "a: |\n  text\n", "a: &x 1\nb: *x\n", "a: !!float 1\n"]
)
def test_other_values_in_yaml_change_nothing(tmp_path: Path, more: str) -> None:
    assert one(tmp_path, TASK + more) == one(tmp_path, TASK)


def test_a_list_of_yaml_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="expected `key: value` lines"):
        read(tmp_path, "- {base_execution_time: 1.5}\n")


def test_a_time_with_an_exponent_in_yaml_is_a_number(tmp_path: Path) -> None:
    assert one(tmp_path, TASK.replace("0.026", "5e-05")).t_s == pytest.approx(50e-9)


def test_yaml_without_pyyaml_is_refused_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(RefusedError, match=r"^x\.dat: YAML needs PyYAML: pip install pyyaml$"):
        read(tmp_path, TASK)


@pytest.mark.parametrize("value", [".nan", ".inf", "0.0", "true", "'0.02'", "null", "fast"])
def test_an_invalid_time_in_yaml_is_refused_by_key(tmp_path: Path, value: str) -> None:
    record = one(tmp_path, TASK.replace("0.026", value))
    assert "best_optimized_execution_time" in record.refused


def test_a_task_that_did_not_compile_was_not_timed(tmp_path: Path) -> None:
    record = one(tmp_path, TASK.replace("pass_correctness: true", "pass_correctness: false\npass_compilation: false"))
    assert record.refused.startswith("pass_compilation is false")
    assert record.correct is False


# KernelBench


def test_a_sample_has_its_mean_in_ms_and_its_hardware(tmp_path: Path) -> None:
    record = one(tmp_path, SAMPLES)
    assert (record.row, record.device, record.rounds, record.correct) == ("7[0]", "NVIDIA H100 80GB HBM3", 100, True)
    assert (record.baseline_kind, record.baseline_t_s) == ("unknown", None)
    assert "not in its name" in record.no_work


def test_a_wrong_sample_is_marked_and_one_that_was_not_timed_refused(tmp_path: Path) -> None:
    sample = SAMPLES["7"][0]
    rows = [{**sample, "correctness": False}, {**sample, "correctness": False, "runtime": -1.0, "runtime_stats": {}}]
    _, (timed, untimed) = read(tmp_path, {"7": rows})
    assert (timed.correct, timed.refused) == (False, "")
    assert (untimed.correct, untimed.refused) == (False, "correctness is false and runtime is -1.0: it was not timed")


def test_the_reference_in_a_record_is_eager(tmp_path: Path) -> None:
    sample = {**SAMPLES["7"][0], "ref_runtime": 0.82}
    record = one(tmp_path, {"7": sample})
    assert (record.baseline_kind, record.baseline_t_s) == ("eager", 0.82e-3)
    assert one(tmp_path, {"7": {**sample, "ref_runtime": -1.0}}).baseline_kind == "unknown"


def test_samples_by_id_are_rows(tmp_path: Path) -> None:
    assert one(tmp_path, {"7": {"0": SAMPLES["7"][0]}}).row == "7/0"


def test_params_in_a_sample_give_its_work(tmp_path: Path) -> None:
    record = one(tmp_path, {"7": [{**SAMPLES["7"][0], "params": ARENA[0]["params"]}]})
    assert record.work == {"op": "gemm", "M": 64, "N": 32, "K": 16, "dtype": "bf16"}


def test_a_baseline_timing_is_a_time_without_a_baseline(tmp_path: Path) -> None:
    record = one(tmp_path, LEVELS)
    assert (record.row, record.name, record.device) == ("level1/7_Example_.py", "7_Example_.py", "NVIDIA H100 PCIe")
    assert (record.t_s, record.baseline_t_s, record.work) == (pytest.approx(0.55e-3), None, None)


def test_a_baseline_file_next_to_the_results_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "baseline_time_torch.json").write_text(json.dumps(LEVELS))
    assert one(tmp_path, SAMPLES).baseline_t_s is None


def test_settings_of_robust_kbench_have_a_median_and_a_device(tmp_path: Path) -> None:
    record = one(tmp_path, SETTINGS)
    assert (record.t_s, record.device, record.units) == (0.35e-3, "H100", 132)
    # 2619 MHz x 2 transfers x 5120 bits / 8 = 3.352e12 B/s
    assert "3.352 TB/s" in record.notes[0]


def test_a_mean_over_launches_of_two_kernels_is_no_rate(tmp_path: Path) -> None:
    metrics = {"Memory Throughput": {"unit": "byte/second", "avg_value": 2.6e12, "n": 6}}
    row = {"task": "layernorm", "forward": "True", "runtime_ms": 0.046, "speedup": "165.7", "ncu_metrics": metrics}
    record = one(tmp_path, [row])
    assert (record.name, record.baseline_kind, record.speedup) == ("layernorm", "eager", 165.7)
    assert record.claims == ()
    assert "mean over 6 launches" in record.notes[0]


# Traces


def traces(tmp_path: Path, definition: dict[str, Any], where: str, *lines: Any) -> list[RecordRow]:
    path = tmp_path / where
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(definition))
    return read(tmp_path, "".join(json.dumps(line) + "\n" for line in lines), "traces/norm/t.jsonl")[1]


@pytest.mark.parametrize(
    "where", ["traces/norm/any.json", "definitions/norm/rmsnorm_h4096.json", "traces/definitions/a/b/c.json"]
)
def test_a_definition_is_found_by_its_name_next_to_the_traces_and_above(tmp_path: Path, where: str) -> None:
    (record,) = traces(tmp_path, RMSNORM, where, TRACE)
    assert record.work is not None
    work = build_work(record.work)
    assert work is not None
    # 34 rows of 4096 read and written in bf16, and the weight row once.
    assert (work.bytes, work.flops) == (2 * 2 * 34 * 4096 + 2 * 4096, 4 * 34 * 4096)
    assert (record.device, record.correct) == ("NVIDIA_B200", True)
    assert (record.baseline_kind, record.baseline_t_s) == ("reference", pytest.approx(24.6e-6))


def test_without_its_definition_a_trace_still_has_its_time(tmp_path: Path) -> None:
    record = one(tmp_path, json.dumps(TRACE))
    assert record.t_s is not None
    assert record.no_work.startswith("shapes are not known: definition 'rmsnorm_h4096' is missing next to the traces")


def test_the_factor_alone_is_the_speedup_where_the_reference_has_no_time(tmp_path: Path) -> None:
    performance = {"latency_ms": 0.01, "reference_latency_ms": None, "speedup_factor": 3.0}
    record = one(tmp_path, json.dumps({**TRACE, "evaluation": {**TRACE["evaluation"], "performance": performance}}))
    assert (record.speedup, record.baseline_t_s) == (3.0, None)


@pytest.mark.parametrize(
    ("status", "correct"), [("INCORRECT_NUMERICAL", False), ("REWARD_HACK", False), ("TIMEOUT", None), (None, None)]
)
def test_only_passed_solutions_have_a_time(tmp_path: Path, status: str | None, correct: bool | None) -> None:
    record = one(tmp_path, json.dumps({**TRACE, "evaluation": {**TRACE["evaluation"], "status": status}}))
    assert record.refused.startswith(f"status is {status or 'missing'}")
    assert record.correct is correct


def test_a_workload_has_no_time_and_known_work(tmp_path: Path) -> None:
    workload = TRACE["workload"]
    records = traces(tmp_path, RMSNORM, "traces/norm/definition.json", workload, {**TRACE, "evaluation": None})
    assert [record.refused for record in records] == ["no time: a workload that was not evaluated"] * 2
    assert [record.work is not None for record in records] == [True, True]


def test_a_definition_alone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"^x\.dat: a definition, which has no times"):
        read(tmp_path, RMSNORM)


def test_a_truncated_line_loses_only_itself(tmp_path: Path) -> None:
    line = json.dumps(TRACE)
    _, records = read(tmp_path, f"{line}\n{line[:40]}\n\n{line}\n")
    assert [record.row for record in records] == ["line 1", "line 2", "line 4"]
    assert records[1].refused.startswith("line 2: not JSON")


def test_lines_are_read_lazily(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text((json.dumps(TRACE) + "\n") * 3)
    adapter = choose(Sample(path.read_text()))
    assert adapter is not None
    asked = []

    class Counted(Source):
        def lines(self) -> Iterator[str]:
            for line in super().lines():
                asked.append(line)
                yield line

    with path.open("rb") as stream:
        next(iter(adapter.read(Counted(path, stream))))
    assert len(asked) == 1


def definition(kind: str, inputs: dict[str, Any], outputs: dict[str, Any], **axes: Any) -> dict[str, Any]:
    def side(tensors: dict[str, Any]) -> dict[str, Any]:
        return {name: {"shape": shape, "dtype": dtype} for name, (shape, dtype) in tensors.items()}

    return {**RMSNORM, "op_type": kind, "axes": axes, "inputs": side(inputs), "outputs": side(outputs)}


def work_of(tmp_path: Path, definition: dict[str, Any], **axes: int) -> RecordRow:
    workload = {"uuid": "u", "axes": axes, "inputs": {name: {"type": "random"} for name in definition["inputs"]}}
    (record,) = traces(tmp_path, definition, "traces/norm/d.json", {**TRACE, "workload": workload})
    return record


VAR, CONST = {"type": "var"}, {"type": "const", "value": 64}


@pytest.mark.parametrize("b", [["N", "K"], ["K", "N"]])
def test_a_gemm_is_known_by_its_shapes(tmp_path: Path, b: list[str]) -> None:
    shapes = definition(
        "gemm",
        {"A": (["M", "K"], "float16"), "B": (b, "float16")},
        {"C": (["M", "N"], "float16")},
        M=VAR,
        N={"type": "const", "value": 128},
        K=CONST,
    )
    record = work_of(tmp_path, shapes, M=8)
    assert record.work is not None
    assert (record.work["op"], record.work["M"], record.work["N"], record.work["K"]) == ("gemm", 8, 128, 64)


def test_scales_of_a_gemm_add_bytes_and_no_flops(tmp_path: Path) -> None:
    shapes = definition(
        "gemm",
        {"A": (["M", "K"], "float8_e4m3fn"), "B": (["N", "K"], "float8_e4m3fn"), "s": (["M"], "float32")},
        {"C": (["M", "N"], "bfloat16")},
        M=VAR,
        N={"type": "const", "value": 128},
        K=CONST,
    )
    record = work_of(tmp_path, shapes, M=8)
    assert record.work is not None
    work = build_work(record.work)
    assert work is not None
    assert (work.bytes, work.flops) == (8 * 64 + 128 * 64 + 8 * 4 + 8 * 128 * 2, 2 * 8 * 128 * 64)
    assert (work.engine, work.dtype.name) == ("matrix", "fp8")


def test_a_packed_operand_holds_two_values_in_each_element(tmp_path: Path) -> None:
    shapes = definition(
        "gemm",
        {"A": (["M", "K"], "float4_e2m1fn_x2"), "B": (["N", "K"], "float4_e2m1fn_x2")},
        {"C": (["M", "N"], "bfloat16")},
        M=VAR,
        N={"type": "const", "value": 128},
        K=CONST,
    )
    record = work_of(tmp_path, shapes, M=8)
    assert record.work is not None
    assert record.work["flops"] == 2 * 8 * 128 * (2 * 64)
    assert record.work["bytes"] == 8 * 64 + 128 * 64 + 8 * 128 * 2


def test_a_fused_add_reads_a_second_row(tmp_path: Path) -> None:
    rows = (["T", "H"], "bfloat16")
    shapes = definition("rmsnorm", {"x": rows, "r": rows, "w": (["H"], "bfloat16")}, {"y": rows}, T=VAR, H=CONST)
    record = work_of(tmp_path, shapes, T=8)
    assert record.work is not None
    assert (record.work["bytes"], record.work["flops"]) == (3 * 8 * 64 * 2 + 64 * 2, (4 + 1) * 8 * 64)


def test_a_rope_has_three_flops_per_element(tmp_path: Path) -> None:
    x = (["B", "S", "H", "D"], "bfloat16")
    tables = {"cos": (["S", "D"], "float32"), "sin": (["S", "D"], "float32")}
    shapes = definition("rope", {"x": x, **tables}, {"y": x}, B=VAR, S=VAR, H={"type": "const", "value": 2}, D=CONST)
    record = work_of(tmp_path, shapes, B=2, S=16)
    assert record.work is not None
    elements = 2 * 16 * 2 * 64
    assert (record.work["bytes"], record.work["flops"]) == (2 * elements * 2 + 2 * 16 * 64 * 4, 3 * elements)


def test_an_op_without_a_model_has_its_operands_bytes_alone(tmp_path: Path) -> None:
    shapes = definition(
        "swish", {"x": (["T", "H"], "float32"), "scale": (None, "float32")}, {"y": (["T"], "int64")}, T=VAR, H=CONST
    )
    record = work_of(tmp_path, shapes, T=8)
    assert record.work == {"bytes": 8 * 64 * 4 + 8 * 8}
    assert "FLOPs are not known" in record.notes[0]


@pytest.mark.parametrize(
    ("kind", "inputs"),
    [
        ("gqa_paged", {"q": (["T", "H"], "bfloat16"), "kv_cache": (["T", "H"], "bfloat16")}),
        ("moe", {"x": (["T", "H"], "bfloat16"), "w": (["T", "H", "H"], "bfloat16")}),
        ("lookup", {"table": (["T", "H"], "bfloat16"), "rows": (["T"], "int32")}),
    ],
)
def test_data_dependent_reads_give_no_work(tmp_path: Path, kind: str, inputs: dict[str, Any]) -> None:
    record = work_of(tmp_path, definition(kind, inputs, {"y": (["T"], "bfloat16")}, T=VAR, H=CONST), T=8)
    assert record.work is None
    assert "the data decides how much of" in record.no_work


def test_an_axis_may_be_arithmetic_over_others(tmp_path: Path) -> None:
    axes = {"T": VAR, "H": CONST, "W": {"type": "expr", "expression": "2 * H + T % 3"}}
    record = work_of(tmp_path, definition("swish", {"x": (["T", "W"], "int8")}, {"y": (["H // 2"], "int8")}, **axes), T=8)
    assert record.work == {"bytes": 8 * (2 * 64 + 2) + 32}


@pytest.mark.parametrize(
    "formula",
    ["__import__('os')", "H ** 9", "H / 0", "H.real", "H[0]", "(" * 150, "lambda: 1", "9" * 199, "X", None, [], "-H", "H / 7"],
)
def test_invalid_arithmetic_is_refused(tmp_path: Path, formula: object) -> None:
    axes = {"T": VAR, "H": CONST, "W": {"type": "expr", "expression": formula}}
    record = work_of(tmp_path, definition("swish", {"x": (["T", "W"], "int8")}, {"y": (["T"], "int8")}, **axes), T=8)
    assert record.work is None
    assert "axis W" in record.no_work


def test_an_optional_input_that_is_left_out_is_not_counted(tmp_path: Path) -> None:
    shapes = definition("swish", {"x": (["T"], "int8"), "b": (["T"], "int8")}, {"y": (["T"], "int8")}, T=VAR)
    shapes["inputs"]["b"]["optional"] = True
    workload = {"uuid": "u", "axes": {"T": 8}, "inputs": {"x": {"type": "random"}}}
    (record,) = traces(tmp_path, shapes, "traces/norm/d.json", {**TRACE, "workload": workload})
    assert record.work == {"bytes": 16}


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "many", None, 10**16])
def test_a_bad_size_gives_no_work(tmp_path: Path, size: Any) -> None:
    record = work_of(tmp_path, RMSNORM, batch_size=size)
    assert record.work is None
    assert "axis batch_size" in record.no_work


# POPCORN


def test_sizes_of_a_spec_without_a_dtype_are_no_work(tmp_path: Path) -> None:
    record = one(tmp_path, POPCORN)
    assert (record.row, record.rounds, record.correct) == ("benchmark.0", 100, True)
    assert record.no_work == "k, m, n, seed: the dtype is missing"


def test_a_dtype_in_a_spec_gives_the_work(tmp_path: Path) -> None:
    record = one(tmp_path, POPCORN.replace("seed: 1", "dtype: fp8"))
    assert record.work == {"op": "gemm", "M": 1024, "N": 1536, "K": 7168, "dtype": "fp8"}


@pytest.mark.parametrize(
    ("more", "work", "why"),
    [
        ("l: 4", {"batch": 4}, ""),  # CUTLASS and gpu-mode call the batch l
        ("batch_size: 4", None, "batch_size may be part of M or a batch of GEMMs"),
        ("batch_size: 1", {}, ""),
        ("g: 8", None, "the record does not say which GEMMs of a MoE or a group were timed"),
        ("group_size: 8", None, "group_size may be of scales or of a group of GEMMs; the weights are not narrow"),
        ("group_size: 128; weight_bits: 4", {"group_size": 128, "weight_dtype": "int4"}, ""),
    ],
)
def test_a_size_besides_m_n_and_k_is_not_ignored(tmp_path: Path, more: str, work: dict[str, Any] | None, why: str) -> None:
    record = one(tmp_path, POPCORN.replace("seed: 1", f"dtype: bf16; {more}"))
    if work is None:
        assert record.work is None
        assert record.no_work.endswith(why)
    else:
        assert record.work == {"op": "gemm", "M": 1024, "N": 1536, "K": 7168, "dtype": "bf16", **work}


def test_a_benchmark_that_failed_is_refused_and_the_others_are_doubted(tmp_path: Path) -> None:
    text = POPCORN.replace("check: pass", "benchmark.1.status: fail\nbenchmark.1.error: mismatch\ncheck: fail")
    _, (timed, failed) = read(tmp_path, text)
    assert (timed.correct, timed.refused) == (False, "")
    assert failed.refused == "it failed: mismatch"


@pytest.mark.parametrize("value", ["0.0", "-3", "nan", "inf", "soon", "1_000", ""])
def test_an_invalid_time_in_a_line_is_refused_by_key(tmp_path: Path, value: str) -> None:
    assert "benchmark.0.mean" in one(tmp_path, POPCORN.replace("21500.0", value)).refused


def test_a_run_of_tests_has_no_times(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="tests have no times"):
        read(tmp_path, "test-count: 1\ntest.0.spec: m: 1\ntest.0.status: pass\ncheck: pass\n")


# pytest-benchmark


def test_the_schema_of_2015_is_accepted(tmp_path: Path) -> None:
    record = one(tmp_path, PYTEST)
    assert (record.t_s, record.q1_s, record.q3_s, record.rounds) == (2e-6, 1.9e-6, 2.2e-6, 10)
    assert (record.clock, record.cache, record.work) == ("host", "warm", None)


def test_totals_in_extra_info_are_work(tmp_path: Path) -> None:
    item = {**PYTEST["benchmarks"][0], "extra_info": {"bytes": 1e6, "flops": 2e6, "dtype": "fp32"}}
    assert one(tmp_path, {"benchmarks": [item]}).work == {"bytes": 1e6, "flops": 2e6, "dtype": "fp32"}


def test_the_row_of_a_run_with_roofline_is_work(tmp_path: Path) -> None:
    models = [
        {"model": "experts_hit", "bytes": 200.0, "flops": 400.0, "in_range": True},
        {"model": "fewer", "bytes": 100.0, "flops": 400.0, "in_range": True},
    ]
    row = {
        "modeled": True,
        "kernel": "moe_kernel",
        "device": "MI300X",
        "op": "moe",
        "op_class": "moe",
        "dtype": "bf16",
        "weight_dtype": "fp8",
        "byte_models": models,
        "work": {"source": "marker", "engine": "matrix"},
        "stage": "B",
        "launches_per_unit": 2,
    }
    item = {**PYTEST["benchmarks"][0], "extra_info": {"roofline": row}}
    record = one(tmp_path, {"benchmarks": [item]})
    assert (record.name, record.device, record.launches) == ("moe_kernel", "MI300X", 2)
    assert record.work is not None
    assert (record.work["op"], record.work["bytes"], record.work["weight_dtype"]) == ("moe", 200.0, "fp8")
    assert [(found.cause, found.factor) for found in record.known_mistakes] == [("overcounted_bytes", 2.0)]
    broken = {**item, "extra_info": {"roofline": {**row, "dtype": 3}}}
    assert one(tmp_path, {"benchmarks": [broken]}).no_work.startswith("extra_info.roofline: ")


def test_statistics_that_are_missing_refuse_their_row(tmp_path: Path) -> None:
    record = one(tmp_path, {"benchmarks": [{"fullname": "a", "stats": {**STATS, "median": 0}}]})
    assert record.refused == "stats.median is 0.0; expected a time above 0"


# google-benchmark


@pytest.mark.parametrize(("unit", "t_s"), [("ns", 10e-9), ("us", 10e-6), ("ms", 10e-3), ("s", 10.0), (None, 10e-9)])
def test_the_time_unit_of_a_row_is_its_own(tmp_path: Path, unit: str | None, t_s: float) -> None:
    row = {"name": "a", "real_time": 10, **({"time_unit": unit} if unit else {})}
    assert one(tmp_path, {"benchmarks": [row]}).t_s == pytest.approx(t_s)


def test_an_unknown_unit_refuses_its_row(tmp_path: Path) -> None:
    record = one(tmp_path, {"benchmarks": [{"name": "a", "real_time": 10, "time_unit": "min"}]})
    assert record.refused == "time_unit is 'min', expected ns, us, ms or s"


def test_bytes_follow_from_the_clock_of_the_rate(tmp_path: Path) -> None:
    row = {"name": "a", "real_time": 10, "cpu_time": 8, "time_unit": "us", "bytes_per_second": 1e9}
    assert one(tmp_path, {"benchmarks": [row]}).work == {"bytes": pytest.approx(8000)}
    assert one(tmp_path, {"benchmarks": [{**row, "name": "a/real_time"}]}).work == {"bytes": pytest.approx(10000)}
    assert one(tmp_path, {"benchmarks": [{**row, "threads": 4}]}).work is None


def test_items_are_not_bytes(tmp_path: Path) -> None:
    record = one(tmp_path, {"benchmarks": [{"name": "a", "real_time": 10, "items_per_second": 5.0}]})
    assert record.no_work == "items_per_second counts items, not bytes"


def test_a_median_without_repetition_rows_is_a_time(tmp_path: Path) -> None:
    aggregate = {"run_name": "a", "run_type": "aggregate", "repetitions": 5, "real_time": 10}
    rows = [{**aggregate, "name": f"a_{kind}", "aggregate_name": kind} for kind in ("mean", "median", "stddev")]
    _, (mean, median, stddev) = read(tmp_path, {"benchmarks": rows})
    assert (median.name, median.t_s, median.rounds) == ("a", 10e-9, 5)
    assert mean.refused == "an aggregate (mean), not the time of a run"
    assert stddev.refused
    _, (row, again) = read(tmp_path, {"benchmarks": [{"name": "a", "run_type": "iteration", "real_time": 9}, rows[1]]})
    assert row.t_s == 9e-9
    assert again.refused == "an aggregate (median) of repetitions that are rows themselves"


def test_an_error_is_refused_with_its_message(tmp_path: Path) -> None:
    row = {"name": "a", "run_type": "iteration", "error_occurred": True, "error_message": "no GPU", "real_time": 0}
    assert one(tmp_path, {"benchmarks": [row]}).refused == "error_occurred: no GPU"


def test_a_row_without_a_time_is_refused(tmp_path: Path) -> None:
    assert one(tmp_path, {"benchmarks": [{"name": "a", "family_index": 0}]}).refused == "no time: real_time is missing"


# nvbench


def test_the_cold_time_is_taken_with_its_device(tmp_path: Path) -> None:
    record = one(tmp_path, nvbench())
    assert (record.name, record.device, record.units, record.rounds) == ("copy Device=0", "Quadro GV100", 80, 78)
    assert (record.clock, record.cache) == ("device-event", "cold")
    assert "870.4 GB/s" in record.notes[0]
    assert record.no_work == "no global memory reads or writes are declared"


def test_declared_sizes_are_exact_where_the_rate_agrees(tmp_path: Path) -> None:
    sizes = [summary("nv/gmem/reads/In", 1000, "bytes"), summary("nv/gmem/writes/Out", 500, "bytes")]
    rate = summary("nv/cold/bw/global/bytes_per_second", 1500 / 0.002, "byte_rate")
    assert one(tmp_path, nvbench(*sizes, rate)).work == {"bytes": 1500}
    # A read that the benchmark declared without a name is in the rate alone.
    more = summary("nv/cold/bw/global/bytes_per_second", 2500 / 0.002, "byte_rate")
    assert one(tmp_path, nvbench(*sizes, more)).work == {"bytes": 2500}


def test_a_skipped_state_is_refused_with_its_reason(tmp_path: Path) -> None:
    record = one(tmp_path, nvbench(is_skipped=True, skip_reason="too small", summaries=None))
    assert record.refused == "skipped: too small"


def test_without_a_cold_time_a_batch_is_warm(tmp_path: Path) -> None:
    record = one(tmp_path, nvbench(summaries=[summary("nv/batch/time/gpu/mean", 0.001)]))
    assert (record.t_s, record.cache) == (1e-3, "warm")


@pytest.mark.parametrize("value", ["nan", "inf", "0", "-1", "x"])
def test_an_invalid_time_is_refused_by_its_tag(tmp_path: Path, value: str) -> None:
    record = one(tmp_path, nvbench(summaries=[summary("nv/cold/time/gpu/mean", value)]))
    assert "nv/cold/time/gpu/mean" in record.refused
