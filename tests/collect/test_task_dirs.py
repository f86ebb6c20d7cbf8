"""Extracted task folders under ``pytest --roofline``: meta.json gives the cases, unittest.py their results."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pytest_roofline.records.formats.geak import parse_task
from support.project import Project, Ran

META = {
    "op_kind": "gemm",
    "short_name": "down_proj",
    "dtype": "bf16",
    "a_shape": ["M", 4096],
    "b_shape": [2048, 4096],
    "transpose_b": True,
    "pct_gpu_time": 12.5,
    "workload": {"cases": [{"name": "decode_M64", "m": 64, "regime": "decode"}, {"sig": "prefill_M2048", "m": 2048}]},
}
CASES = [
    {"sig": "decode_M64", "baseline_ms": 0.0412, "optimized_ms": 0.0330, "speedup": 1.2485},
    {"sig": "prefill_M2048", "baseline_ms": 0.4, "optimized_ms": 0.2},
]
PASSES = f"""
import unittest
assert hasattr(unittest, "TestCase"), unittest.__file__  # the standard library's, not this file
import harness_lib
print("GEAK_PER_CASE " + {json.dumps(CASES)!r})
print("GEAK_GEOMEAN_SPEEDUP 1.5804")
print("RESULT PASS (oracle=True random_parity=True)")
"""


def task(project: Project, harness: str = PASSES, meta: Any = META, name: str = "down_proj_task") -> Path:
    folder = project.path / name
    folder.mkdir()
    (folder / "meta.json").write_text(meta if isinstance(meta, str) else json.dumps(meta), encoding="utf-8")
    (folder / "unittest.py").write_text(harness, encoding="utf-8")
    (folder / "harness_lib.py").write_text("", encoding="utf-8")
    return folder


def run(project: Project, *args: object, **more: Any) -> Ran:
    ran = project.run("--roofline-device=MI355X", *args, **more)
    assert "INTERNALERROR" not in ran.out, ran.out
    return ran


def test_an_item_per_case_with_its_work_time_baseline_and_share(project: Project) -> None:
    task(project)
    ran = run(project)
    assert ran.counts["passed"] == 2, ran.out
    row = ran.rows["decode_M64"]
    assert row["nodeid"] == "down_proj_task/unittest.py::decode_M64"
    assert row["bytes_est"] == 2 * (64 * 4096 + 4096 * 2048 + 64 * 2048)
    assert row["flops_est"] == 2 * 64 * 4096 * 2048
    assert row["work"]["source"] == "meta.json"
    assert row["stage"] == "B"
    assert row["measurement"]["t_s"] == pytest.approx(33e-6)
    assert row["measurement"]["clock"] == "device-event"
    assert row["baseline"]["kind"] == "previous"
    assert row["check"]["speedup"] == pytest.approx(0.0412 / 0.0330)
    assert row["pct_gpu_time"] == 12.5
    assert row["kernel"] == "down_proj"
    assert ran.rows["prefill_M2048"]["check"]["speedup"] == 2.0


def test_without_the_flag_a_task_is_not_collected(project: Project) -> None:
    task(project)
    ran = project.spawn(on=False)
    assert ran.code == 5, ran.out  # no tests ran


def test_the_harness_runs_once_for_its_cases_and_again_for_a_rerun(project: Project) -> None:
    folder = task(project, PASSES + "open('ran', 'a').write('.')\n")
    run(project, "-p", "no:cacheprovider")
    assert (folder / "ran").read_text() == "."
    task(project, "import sys; open('ran', 'a').write('.'); sys.exit(1)", name="wrong_task")
    run(project, "wrong_task", "--reruns=1", plugins=("rerunfailures",))
    assert (project.path / "wrong_task" / "ran").read_text() == "..."  # once for both, then once for each that failed


def test_the_recorded_tensors_are_not_opened(project: Project) -> None:
    folder = task(project)
    os.mkfifo(folder / "reference_io.pt")  # who opens it hangs
    assert run(project, "-o", "roofline_item_timeout=20").counts["passed"] == 2


def test_collection_runs_nothing_and_names_select_cases(project: Project) -> None:
    folder = task(project, PASSES + "open('ran', 'a').write('.')\n")
    listed = run(project, "--collect-only", "-q", report=False)
    assert "down_proj_task/unittest.py::decode_M64" in listed.out
    assert not (folder / "ran").exists()
    for select in (
        ("down_proj_task/unittest.py::prefill_M2048",),
        ("-k", "prefill"),
        ("--deselect", "down_proj_task/unittest.py::decode_M64"),
    ):
        ran = run(project, *select)
        assert list(ran.rows) == ["prefill_M2048"], select
    assert list(run(project, "down_proj_task/unittest.py").rows) == ["decode_M64", "prefill_M2048"]


def test_last_failed_runs_what_failed(project: Project) -> None:
    folder = task(project, "import sys; print('RESULT FAIL (oracle=False)'); sys.exit(1)")
    assert run(project).counts == {"failed": 2}
    (folder / "unittest.py").write_text(PASSES)
    project.write(test_a="def test_one(): pass")
    assert run(project, "--lf").counts == {"passed": 2}


def test_under_workers(project: Project) -> None:
    task(project)
    ran = run(project, "-n2", plugins=("xdist",))
    assert ran.counts["passed"] == 2, ran.out
    assert set(ran.rows) == {"decode_M64", "prefill_M2048"}


@pytest.mark.parametrize(
    ("ending", "outcome", "told"),
    [
        ("print('RESULT FAIL (oracle=False)'); sys.exit(1)", "failed", "RESULT FAIL (oracle=False): exit status 1"),
        ("print('no GPU here', file=sys.stderr); sys.exit(2)", "skipped", "environment missing: exit status 2"),
        ("print('UT_HARNESS_INCOMPLETE: no replay bundle'); sys.exit(3)", "xfailed", "harness incomplete: no replay bundle"),
        ("print('UT_HARNESS_INCOMPLETE: no bundle'); raise ValueError", "xfailed", "harness incomplete: no bundle"),
        ("import argparse; argparse.ArgumentParser().parse_args(['--no'])", "failed", "exit status 2"),
        ("sys.exit(7)", "failed", "exit status 7"),
        ("raise RuntimeError('broken harness')", "failed", "RuntimeError: broken harness"),
    ],
)
def test_the_exit_status_is_the_outcome(project: Project, ending: str, outcome: str, told: str) -> None:
    task(project, f"import sys\n{ending}")
    ran = run(project, "-rsx")
    assert ran.counts == {outcome: 2}
    assert told in ran.out
    assert ran.report["entries"] == []


def test_an_incomplete_harness_fails_under_runxfail(project: Project) -> None:
    task(project, "import sys; print('UT_HARNESS_INCOMPLETE: no bundle'); sys.exit(3)")
    assert run(project, "--runxfail").counts == {"failed": 2}


def test_a_case_without_its_own_line_has_work_but_no_time(project: Project) -> None:
    task(project, 'print(\'GEAK_PER_CASE [{"sig": "decode_M64", "optimized_ms": 0.033}]\')')
    row = run(project).rows["prefill_M2048"]
    assert row["measurement"] is None
    assert row["flops_est"] == 2 * 2048 * 4096 * 2048
    assert "printed no time for this case" in row["notes"]


@pytest.mark.parametrize(
    ("lines", "times"),
    [
        (["GEAK_RESULT_LATENCY_MS=0.05"], {}),  # a mean over the two cases
        (
            ["GEAK_RESULT_LATENCY_MS=0.05 case=decode_M64", "GEAK_RESULT_LATENCY_MS=0.5 case_id=prefill_M2048"],
            {64: 50e-6, 2048: 5e-4},
        ),
        (["GEAK_RESULT_LATENCY_MS=nan case=decode_M64"], {}),
        (["GEAK_PER_CASE [{]"], {}),
    ],
)
def test_the_lines_of_older_harnesses(project: Project, lines: list[str], times: dict[int, float]) -> None:
    task(project, "\n".join(f"print({line!r})" for line in lines))
    rows = run(project).rows
    for name, m in (("decode_M64", 64), ("prefill_M2048", 2048)):
        measurement = rows[name]["measurement"]
        assert (measurement and measurement["t_s"]) == (pytest.approx(times[m]) if m in times else None)


def test_a_single_case_takes_the_total_latency(project: Project) -> None:
    meta = {**META, "workload": {"cases": [{"name": "decode_M64", "m": 64}]}}
    task(project, "print('GEAK_SHAPES_USED=[0]'); print('GEAK_RESULT_LATENCY_MS=0.05')", meta)
    assert run(project).rows["decode_M64"]["measurement"]["t_s"] == pytest.approx(50e-6)


@pytest.mark.parametrize(
    ("meta", "why"),
    [
        ('{"op_kind": "gemm", "workl', "meta.json: not JSON: line 1 column"),
        ("[1, 2]", "meta.json is a list, expected an object"),
        ("{}", "meta.json lists no cases"),
        ('{"workload": {"cases": []}}', "meta.json lists no cases"),
        ('{"workload": 3, "cases": "many"}', "meta.json lists no cases"),
        ("[" * 100_000, "meta.json"),
    ],
)
def test_without_cases_in_meta_json_the_printed_ones_count(project: Project, meta: str, why: str) -> None:
    task(project, meta=meta)
    ran = run(project)
    assert ran.counts["passed"] == 1
    assert list(ran.rows) == ["down_proj_task[decode_M64]", "down_proj_task[prefill_M2048]"]
    for row in ran.rows.values():
        assert row["measurement"] is not None
        assert row["unknown_reason"] == "unmodelled"
        assert why in row["notes"]


@pytest.mark.parametrize("name", ["unittest.py", "meta.json"])
def test_a_folder_with_only_one_of_the_two_files_is_no_task(project: Project, name: str) -> None:
    (task(project) / name).unlink()
    assert run(project).code == 5


@pytest.mark.parametrize("name", ["a task", "tâche-√", "down::proj"])
def test_paths_and_names_of_any_spelling(project: Project, name: str) -> None:
    meta = {**META, "workload": {"cases": [{"name": f"{name} [64]", "m": 64}]}}
    task(project, "print('GEAK_RESULT_LATENCY_MS=0.05')", meta, name=name.replace(":", "-"))
    ran = run(project)
    (row,) = ran.report["entries"]
    assert row["measurement"]["t_s"] == pytest.approx(50e-6)
    assert run(project, row["nodeid"]).counts == {"passed": 1}


def test_a_linked_task_in_a_read_only_folder_runs(project: Project) -> None:
    folder = task(project, name="real")
    (project.path / "linked").symlink_to(folder, target_is_directory=True)
    folder.chmod(0o555)
    try:
        assert run(project, "linked").counts["passed"] == 2
    finally:
        folder.chmod(0o755)


def test_ten_thousand_cases_are_listed_and_one_is_run(project: Project) -> None:
    many = {**META, "workload": {"cases": [{"name": f"M{m}", "m": m} for m in range(1, 10_001)]}}
    cases = [{"sig": f"M{m}", "optimized_ms": 0.05} for m in range(1, 10_001)]
    task(project, f"import json\nprint('GEAK_PER_CASE ' + json.dumps({cases!r}))", many)
    assert "10000 tests collected" in run(project, "--co", "-q", report=False).out
    ran = run(project, "down_proj_task/unittest.py::M9999")
    assert ran.rows["M9999"]["flops_est"] == 2 * 9999 * 4096 * 2048


def test_an_invalid_share_is_ignored(project: Project) -> None:
    task(project, meta=json.dumps(META).replace("12.5", "NaN"))
    row = run(project).rows["decode_M64"]
    assert row["pct_gpu_time"] is None
    assert "pct_gpu_time" in row["notes"]


# meta.json to the work of its cases.

SMALL = {"m": 1, "N": 2, "K": 4}


def case(**meta: Any) -> Any:
    (found,) = parse_task(json.dumps(meta)).cases
    return found


def test_sizes_of_a_gemm_from_the_case_its_dims_or_the_task() -> None:
    gemm = {"op": "gemm", "M": 64, "N": 2048, "K": 4096, "dtype": "bf16"}
    task_ = {"op_kind": "gemm", "dtype": "bf16"}
    assert case(**task_, cases=[{"sig": "a", "m": 64, "N": 2048, "K": 4096}]).work == gemm
    assert case(**task_, cases=[{"sig": "a", "dims": [[64, 4096], [2048, 4096]]}]).work == gemm
    assert case(**task_, transpose_b=False, cases=[{"sig": "a", "dims": [[64, 4096], [4096, 2048]]}]).work == gemm
    assert case(**task_, N=2048, K=4096, cases=[{"sig": "a", "m": 64}]).work == gemm  # one layer at several M
    assert case(**task_, N=1, K=4096, cases=[{"sig": "a", "m": 64, "N": 2048}]).work == gemm  # the case knows better
    batched = case(**task_, cases=[{"sig": "a", "dims": [[8, 64, 4096], [8, 2048, 4096]]}]).work
    assert batched == {**gemm, "batch": 8}


def test_buckets_of_the_oldest_layout() -> None:
    meta = {"op_kind": "gemm", "dtype": "bf16", "a_shape": ["M", 4096], "b_shape": [2048, 4096]}
    split = parse_task(json.dumps({**meta, "decode_m_buckets": [1, 64], "prefill_m_buckets": [2048], "m_buckets": [7]}))
    assert [one.name for one in split.cases] == ["decode_M1", "decode_M64", "prefill_M2048"]
    assert [one.work["M"] for one in split.cases if one.work] == [1, 64, 2048]
    assert [one.name for one in parse_task(json.dumps({**meta, "m_buckets": [7]})).cases] == ["prefill_M7"]


def test_dtypes_and_block_scales() -> None:
    meta = {"op_kind": "gemm", "cases": [{"sig": "a", "m": 64, "N": 2048, "K": 4096, "dtypes": ["fp8_e4m3", "fp8_e4m3"]}]}
    quantised = case(**meta, quant_scheme="fp8_block", weight_block_size=[128, 128], out_dtype="bf16").work
    assert quantised == {**quantised, "scale_block": 128, "out_dtype": "bf16"}
    assert "weight_dtype" not in quantised
    odd = case(**meta, weight_block_size=[1, 128])
    assert "scale_block" not in odd.work
    assert "blocks are square" in odd.notes[0]
    mixed = case(op_kind="gemm", dtype="bf16", weight_dtype="fp4", quant_scheme="mxfp4", cases=[{"m": 1, "N": 2, "K": 4}])
    assert (mixed.work["dtype"], mixed.work["weight_dtype"]) == ("bf16", "mxfp4")


def test_attention_and_experts_by_the_names_of_their_sizes() -> None:
    heads = {"num_heads": 32, "num_kv_heads": 8, "head_dim": 128, "dtype": "bf16"}
    decode = case(
        op_kind="attn", **heads, cases=[{"sig": "d", "regime": "decode", "bs": 64, "ctx": 4096, "dtypes": ["bf16", "fp8"]}]
    )
    assert decode.work["op"] == "attn_decode"
    assert (decode.work["seq_len"], decode.work["kv_dtype"]) == (4096, "fp8")
    prefill = case(op_kind="attn", **heads, cases=[{"sig": "p", "regime": "prefill", "batch": 1, "seq_len": 2048}])
    assert (prefill.work["seq_q"], prefill.work["seq_kv"]) == (2048, 2048)
    moe = {"hidden_size": 2048, "moe_intermediate_size": 512, "num_experts": 256, "num_experts_per_tok": 8, "dtype": "fp8"}
    assert case(op_kind="moe", **moe, cases=[{"sig": "m", "num_tokens": 64}]).work["top_k"] == 8
    assert case(op_kind="rmsnorm", dtype="bf16", cases=[{"rows": 4096, "cols": 8192}]).work["rows"] == 4096


def test_decode_queries_and_gemm_batches_are_counted() -> None:
    heads = {"num_heads": 32, "num_kv_heads": 8, "head_dim": 128, "dtype": "bf16", "regime": "decode", "bs": 64, "ctx": 4096}
    assert case(op_kind="attn", cases=[{"sig": "d", **heads, "q_len": 4}]).work["seq_q"] == 4
    assert case(op_kind="gemm", dtype="bf16", cases=[{**SMALL, "batch": 8}]).work["batch"] == 8
    assert case(**EXPERTS, ep_size=1, local_num_experts=8).work["experts"] == 8


EXPERTS = {
    **{"op_kind": "moe", "hidden": 64, "inter": 32, "experts": 8, "top_k": 2, "dtype": "bf16"},
    "cases": [{"sig": "m", "tokens": 16}],
}


@pytest.mark.parametrize(
    ("meta", "why"),
    [
        ({"op_kind": "attn", "cases": [{"regime": "decode", "dims": [[64, 32]]}]}, "no batch, n_q_heads, n_kv_heads, head_dim"),
        ({"op_kind": "attn", "cases": [{"regime": "mixed"}]}, "regime is 'mixed', expected decode or prefill"),
        ({"op_kind": "moe", "cases": [{"m": 64}], "dtype": "bf16"}, "no tokens, hidden, inter, experts, top_k of moe"),
        ({"op_kind": "sort", "cases": [{}]}, "op_kind is 'sort', expected gemm, attn, moe"),
        ({"op_kind": ["gemm"], "cases": [{}]}, "op_kind is ['gemm']"),
        ({"op_kind": "gemm", "cases": [{"m": 64}], "dtype": "bf16"}, "no N, K in the case"),
        ({"op_kind": "gemm", "cases": [{"dims": [[64, 8], [16, 4]]}], "dtype": "bf16"}, "K is 8, and 4 in b_shape"),
        ({"op_kind": "gemm", "cases": [{"dims": [64, 8]}], "dtype": "bf16"}, "a_shape is 64, expected two sizes"),
        ({"op_kind": "gemm", "cases": [{"m": 1, "N": 2, "K": 4}]}, "no dtype in the case or the task"),
        ({"op_kind": "gemm", "cases": [{"m": 1, "N": 2, "K": 4}], "dtype": "fp99"}, "fp99"),
        ({"op_kind": "gemm", "cases": [{"m": -1, "N": 2, "K": 4}], "dtype": "bf16"}, "M"),
        ({"op_kind": "gemm", "cases": [{"m": True, "N": 2, "K": 4}], "dtype": "bf16"}, "M"),
        ({"op_kind": "gemm", "cases": [{"m": 1.5, "N": 2, "K": 4}], "dtype": "bf16"}, "M"),
        ({"op_kind": "gemm", "cases": [SMALL], "dtype": "bf16", "quant_scheme": "w4a16"}, "no weight_dtype says how wide"),
        ({"op_kind": "gemm", "cases": [3]}, "no M, N, K"),
        ({"op_kind": "gemm", "cases": [{**SMALL, "num_experts": 8}], "dtype": "bf16"}, "num_experts is 8 in a case"),
        ({**EXPERTS, "ep_size": 8}, "ep_size is 8: how many tokens reach the experts of one rank is unknown"),
        ({**EXPERTS, "local_num_experts": 4}, "local_num_experts is 4"),
    ],
)  # fmt: skip
def test_missing_sizes_have_a_reason(meta: dict[str, Any], why: str) -> None:
    found = case(**meta)
    assert found.work is None
    assert why in found.reason
