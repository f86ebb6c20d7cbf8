"""``roofline check``: public mistakes are identified, honest rows pass, and unusable input is refused with the reason.

The figures of the traps are public ones, with their source in a comment; the factors follow from shape and time.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_roofline.cli import main
from pytest_roofline.records.check import Checker
from pytest_roofline.records.source import RecordRow
from pytest_roofline.row import Row
from roofline_engine import peaks_table
from roofline_engine.check import CAUSES, EXPERIMENTS, Claim, Facts, Mistake, check, explain_claim, explain_excess
from roofline_engine.ops.matmul import experts_hit
from roofline_engine.peaks import Peaks
from support.profiles import MI300X, Run, gemm_row


@pytest.fixture(scope="module")
def table() -> peaks_table.Table:
    path = peaks_table.locate()
    assert path
    return peaks_table.load(path)


def result(table: peaks_table.Table, record: RecordRow, **keys: Any) -> Row:
    found = Checker(table, **keys).row("f", record)
    assert found.refusal is None, found
    return found


def moe(experts: int, tokens: int, top_k: int, width: float = 1.0) -> tuple[Mistake, ...]:
    ratio = experts / experts_hit(experts, tokens * top_k)
    return tuple(Mistake("overcounted_bytes", ratio * times, "memory", "all experts") for times in (1, 2, 4))


def fused(tokens: int, hidden: int, inter: int, experts: int, top_k: int, dtype: str) -> dict[str, Any]:
    sizes = {"tokens": tokens, "hidden": hidden, "inter": inter, "experts": experts, "top_k": top_k}
    return {"op": "moe", **sizes, "dtype": dtype, "weight_dtype": dtype, "out_dtype": "bf16"}


TRAPS = {
    "aiter int8 batched GEMM: one-byte operands charged at two": (
        RecordRow(
            row="1",
            work={"op": "gemm", "M": 1, "N": 8192, "K": 1024, "batch": 16, "dtype": "int8", "out_dtype": "int8"},
            t_s=37.703e-6,
            device="MI300X",
            claims=(Claim("memory", 7127.6e9),),
            known_mistakes=(Mistake("accounting_unit", 1 / 16, "", "the batch is missing"),),
        ),
        "dtype_width",
        2.0,
    ),
    "aiter MoE bf16: all 128 experts": (
        RecordRow(
            row="1",
            work=fused(16, 4096, 384, 128, 8, "bf16"),
            t_s=218.24e-6,
            device="MI300X",
            claims=(Claim("memory", 5536e9),),
            known_mistakes=moe(128, 16, 8),
        ),
        "overcounted_bytes",
        1.553,
    ),
    "aiter MoE mxfp8: all 257 experts": (
        RecordRow(
            row="1",
            work=fused(32, 6144, 512, 257, 9, "fp8"),
            t_s=263.169e-6,
            device="MI355X",
            claims=(Claim("memory", 9218e9),),
            known_mistakes=moe(257, 32, 9),
        ),
        "overcounted_bytes",
        1.469,
    ),
    "aiter MoE fp4: 257 experts at one byte, nine are hit at half a byte": (
        RecordRow(
            row="1",
            work=fused(1, 7168, 256, 257, 9, "fp4"),
            t_s=18.8943e-6,
            device="MI355X",
            claims=(Claim("memory", 74880e9),),
            known_mistakes=moe(257, 1, 9),
        ),
        "overcounted_bytes",
        57.1,
    ),
    "aiter#815 attention backward: causal counted full, under the roof all the same": (
        RecordRow(
            row="1",
            work={
                "op": "attn_backward",
                "batch": 8,
                "n_q_heads": 64,
                "n_kv_heads": 8,
                "head_dim": 128,
                "seq_q": 8192,
                "seq_kv": 8192,
                "causal": True,
                "dtype": "bf16",
            },
            t_s=20893e-6,
            device="MI355X",
            claims=(Claim("compute", 2105e12),),
        ),
        "flop_convention",
        2.0,
    ),
    "flashinfer bmm_fp8: the batch of 64 is missing from the bandwidth": (
        RecordRow(
            row="1",
            work={"op": "gemm", "M": 4, "N": 1024, "K": 7168, "batch": 64, "dtype": "fp8", "out_dtype": "bf16"},
            t_s=84.528e-6,
            device="B200",
            claims=(Claim("memory", 87.3e9),),
            known_mistakes=(Mistake("accounting_unit", 1 / 64, "", "the batch is missing"),),
        ),
        "accounting_unit",
        1 / 64,
    ),
    "Liger swiglu: a record of one activation that times three GEMMs": (
        RecordRow(
            row="1",
            work={"op": "elementwise", "numel": 32768 * 11008, "inputs": 2, "dtype": "bf16"},
            t_s=35930e-6,
            device="NVIDIA A100-SXM4-80GB",
            timed_flops=6.0 * 32768 * 4096 * 11008,
        ),
        "accounting_unit",
        None,
    ),
    "llm.c#851 layernorm on L40S: the working set stays in the L2": (
        RecordRow(row="1", device="L40S", claims=(Claim("memory", 3530e9),), working_set=40e6),
        "cache_resident",
        None,
    ),
    "the same without its working set": (
        RecordRow(row="1", device="L40S", claims=(Claim("memory", 3530e9),)),
        "unexplained",
        None,
    ),
    "kernelbench.com W4A16 on RTX PRO 6000: weights pinned in the L2": (
        RecordRow(row="1", device="rtxpro6000-ws", claims=(Claim("memory", 4320e9),), working_set=90e6),
        "cache_resident",
        None,
    ),
    "the same without its working set too": (
        RecordRow(row="1", device="rtxpro6000-ws", claims=(Claim("memory", 4320e9),)),
        "unexplained",
        None,
    ),
    "GEAK#468: counters that show three quarters of a copy": (
        RecordRow(
            row="1",
            work={"op": "copy", "rows": 1 << 16, "cols": 1 << 13, "dtype": "fp8"},
            t_s=300e-6,
            device="MI355X",
            counter_ratio=0.75,
        ),
        "counter_fault",
        None,
    ),
}


@pytest.mark.parametrize("name", TRAPS)
def test_public_mistakes_are_identified(table: peaks_table.Table, name: str) -> None:
    record, cause, factor = TRAPS[name]
    found = result(table, record)
    assert found.mismatch is not None
    assert found.mismatch.cause == cause
    assert found.mismatch.experiment == EXPERIMENTS[cause]
    if factor is not None:
        assert found.mismatch.factor == pytest.approx(factor, rel=0.02)
    assert found.check.status != "beyond_roof"  # what is printed decides nothing


def test_a_peak_that_breaks_a_rule_is_the_cause_of_what_exceeds_it() -> None:
    # kernelbench.com's table: fp8 400e12 for a board whose units give 1e15; cuBLAS reaches 773.
    wrong = Peaks(product="rtxpro6000-ws", hbm_bw_bytes_s=1.792e12, flops={"fp8": 4e14}, source="user", confidence="high")
    wrong = wrong._replace(unvalidated={"matrix.fp8": "0.40 of what units, clock and rate give"})
    shape = {"op": "gemm", "M": 4096, "N": 4096, "K": 4096, "dtype": "fp8", "out_dtype": "bf16"}
    found = Checker(None, peaks=wrong).row("f", RecordRow(row="1", work=shape, t_s=2 * 4096**3 / 773e12))
    assert found.refusal is None
    assert (found.check.status, found.check.cause) == ("beyond_roof", "wrong_peak")
    claimed = Checker(None, peaks=wrong).row("f", RecordRow(row="1", work=shape, claims=(Claim("compute", 773e12),)))
    assert claimed.mismatch is not None
    assert claimed.mismatch.cause == "wrong_peak"


def test_a_time_written_by_hand_is_beyond_the_roof_where_it_is_impossible(table: peaks_table.Table) -> None:
    # aiter's bpreshuffle table: us = 1.0 for a GEMM whose roof time is 13,245 us.
    shape = {"op": "gemm", "M": 65536, "N": 36864, "K": 7168, "dtype": "fp8", "out_dtype": "bf16"}
    record = RecordRow(row="line 1292", work=shape, t_s=1e-6, device="gfx942", units=80, placeholder_time=True)
    found = result(table, record)
    assert (found.check.status, found.check.cause, found.nodeid) == ("beyond_roof", "placeholder", "line 1292")
    small = {**shape, "M": 1, "N": 64, "K": 64}
    honest = Checker(table).row("f", RecordRow(row="1", work=small, t_s=1e-6, device="gfx942", units=80, placeholder_time=True))
    assert honest.check.status == "not_checked"  # exactly 1 us, and possible


@pytest.mark.parametrize("us", [100.0, 20.0, 17.0, 10.0, 1.0, 1e-6])
@pytest.mark.parametrize("cache", ["cold", "unknown"])
@pytest.mark.parametrize("dtype", ["bf16", "bool"])
def test_the_short_way_says_what_the_check_says(table: peaks_table.Table, us: float, cache: str, dtype: str) -> None:
    # 136 MB, 17.04 us at 8 TB/s: most rows of a table are within their roof and skip the whole check.
    shape = {"op": "gemm", "M": 64, "N": 8192, "K": 8192, "dtype": dtype}
    record = RecordRow(row="1", work=shape, t_s=us * 1e-6, device="MI355X", clock="device-event", cache=cache, rounding=0.001)
    row, checker = result(table, record), Checker(table)
    done, peaks = checker.work_of(record), checker.peaks_of(record)
    assert done is not None
    assert not isinstance(peaks, str)
    assert row.check == check(row.entry, done, row.measurement, peaks)
    assert row.check.limit is not None
    assert row.to_checked_dict()["limit"] == row.check.limit


def test_no_time_of_a_table_is_too_short_for_its_roof(table: peaks_table.Table) -> None:
    # 0.26 MB in fp8 are 33 ns at 8 TB/s: far under a launch, and a picosecond is far under both.
    shape = {"op": "gemm", "M": 1, "N": 512, "K": 512, "dtype": "fp8", "out_dtype": "bf16"}
    for t_s, status in ((5e-6, "not_checked"), (40e-9, "not_checked"), (1e-9, "beyond_roof"), (1e-12, "beyond_roof")):
        record = RecordRow(row="1", work=shape, t_s=t_s, device="MI355X", clock="device-event", cache="cold")
        assert result(table, record).check.status == status


def test_a_moe_beyond_its_roof_is_not_explained_by_a_printed_rate(table: peaks_table.Table) -> None:
    # 8 of 128 experts are hit by one token. That all are counted would explain a printed rate, not this time.
    shape = fused(1, 4096, 384, 128, 8, "bf16")
    least_s = 8 * 3 * 4096 * 384 * 2 / 5.3e12
    claimed = Claim("memory", 16 * 8 * 3 * 4096 * 384 * 2 / (least_s / 4))  # by all experts
    told = {"claims": (claimed,), "known_mistakes": moe(128, 1, 8)}
    record = RecordRow(row="1", work=shape, t_s=least_s / 4, device="MI300X", cache="cold", **told)  # type: ignore[arg-type]
    found = result(table, record)
    assert (found.check.status, found.check.cause) == ("beyond_roof", "unexplained")
    assert found.mismatch is not None
    assert (found.mismatch.cause, found.mismatch.factor) == ("overcounted_bytes", pytest.approx(16.0))


def test_a_speedup_is_compared_only_over_the_same_kernel(table: peaks_table.Table) -> None:
    copy = {"op": "copy", "rows": 1 << 16, "cols": 1 << 13, "dtype": "fp8"}  # 1.07 GB: 134 us at 8 TB/s
    base = {"row": "1", "work": copy, "device": "MI355X", "t_s": 250e-6}
    assert result(table, RecordRow(**base, baseline_kind="eager", baseline_t_s=5e-3)).check.status == "not_comparable"
    assert result(table, RecordRow(**base, baseline_kind="previous", baseline_t_s=252e-6)).check.status == "no_change"
    # 0.357 of the roof before: a target of 0.875 leaves 2.45x, and 1.5x is within it.
    assert result(table, RecordRow(**base, baseline_kind="previous", baseline_t_s=375e-6)).check.status == "consistent"
    assert result(table, RecordRow(**base, baseline_kind="previous", baseline_t_s=200e-6)).check.status == "regression"


@pytest.mark.parametrize(("printed", "digits", "cause"), [(100.4, 0.0, None), (103.0, 0.05, None), (103.0, 0.0, "unexplained")])
def test_rounding_is_not_a_mistake(printed: float, digits: float, cause: str | None) -> None:
    finding = explain_claim(Claim("memory", printed, digits), 100.0)
    assert (finding.cause if finding else None) == cause


def test_causes_are_listed_in_the_defined_order() -> None:
    assert tuple(EXPERIMENTS) == CAUSES
    peaks = Peaks(hbm_bw_bytes_s=1e12, unvalidated={"memory": "no"})
    everything = Facts(
        placeholder_time=True,
        counter_ratio=0.5,
        known_mistakes=(Mistake("overcounted_bytes", 2.0, "memory", "all experts", in_work=True),),
        working_set=1e6,
        fewer_bytes=1e6,
        correct=False,
    )
    causes, facts = [], everything
    for without in (
        {"placeholder_time": False},
        {"counter_ratio": None},
        {"known_mistakes": ()},
        {"unvalidated": {}},
        {"working_set": None},
        {"fewer_bytes": None},
        {"correct": None},
        {},
    ):
        causes.append(explain_excess("memory", 1.5, 1e9, peaks, facts).cause)
        peaks = peaks._replace(unvalidated={}) if "unvalidated" in without else peaks
        facts = facts._replace(**{key: value for key, value in without.items() if key != "unvalidated"})
    expected = ["placeholder", "counter_fault", "overcounted_bytes", "wrong_peak", "cache_resident", "different_algorithm"]
    assert causes == [*expected, "work_skipped", "unexplained"]


# The command.

HEAD = "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName,err_ratio,tflops,bw"


def tuned(us: str, *, n: int = 8192, tflops: str = "", bw: str = "", gfx: str = "gfx950") -> str:
    return f"{gfx},256,64,{n},8192,False,torch.bfloat16,torch.bfloat16,False,False,asm,1,0,{us},kernel,0.0,{tflops},{bw}"


def command(*args: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "import sys; from pytest_roofline.cli import main; sys.exit(main())", "check", *map(str, args)],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "100"},
        timeout=120,
    )


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    # 64 x 8192 x 8192 in bf16 moves 136.3 MB, 17.04 us at 8 TB/s.
    flops, nbytes = 2 * 64 * 8192 * 8192, 2 * (64 * 8192 + 8192 * 8192 + 64 * 8192)
    lines = [
        HEAD,
        tuned("40.0", tflops=f"{flops / 40 / 1e6:.2f}", bw=f"{nbytes / 40 / 1e3:.2f}"),
        tuned("10.0"),  # 1.7 times the roof
        tuned("inf"),
        tuned("40.0", gfx="gfx9999"),
        tuned("40.0", tflops=f"{flops / 40 / 1e5:.2f}"),  # ten times too high
    ]
    path = tmp_path / "tuned.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_the_command_starts_without_pytest(rows: Path) -> None:
    asked = "import sys; from pytest_roofline.cli import main; main(); sys.exit('_pytest.config' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", asked, "check", str(rows)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_command_writes_json(rows: Path, tmp_path: Path) -> None:
    done = command(rows, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["counts"] == {"not_checked": 2, "beyond_roof": 1}
    assert [(item["row"], item["reason"]) for item in found["refused"]] == [
        ("line 4", "us is 'inf', expected a finite number"),
        ("line 5", "no peaks for device gfx9999"),
    ]
    beyond = next(item for item in found["rows"] if item["status"] == "beyond_roof")
    assert beyond["row"] == "line 3"
    assert beyond["roofline_pct"] == pytest.approx(2 * (2 * 64 * 8192 + 8192 * 8192) / 10e-6 / 8e12)
    claim = next(item["claim"] for item in found["rows"] if item["row"] == "line 6")
    assert (claim["axis"], claim["cause"], claim["factor"]) == ("compute", "accounting_unit", pytest.approx(10, rel=1e-3))
    assert found["causes"]["accounting_unit"] == 1


@pytest.mark.parametrize(
    ("kinds", "code"), [("beyond_roof", 1), ("claim", 1), ("refused", 1), ("unmodelled", 0), ("unmodelled,infeasible", 1)]
)
def test_only_named_kinds_fail_the_command(rows: Path, tmp_path: Path, kinds: str, code: int) -> None:
    done = command(rows, "--fail-on", kinds, "--allow-unchecked", cwd=tmp_path)  # two rows are refused
    assert done.returncode == code


def test_a_row_that_a_gate_cannot_check_fails_the_command(rows: Path, tmp_path: Path) -> None:
    lines = rows.read_text().splitlines()
    refused = tmp_path / "refused.csv"
    refused.write_text("\n".join([lines[0], lines[3], lines[4]]) + "\n")
    good = tmp_path / "good.csv"
    good.write_text("\n".join([lines[0], lines[1]]) + "\n")
    for path, code, checked in ((good, 0, "1 of 1 row"), (refused, 1, "0 of 2 rows")):
        done = command(path, "--fail-on", "beyond_roof", cwd=tmp_path)
        assert done.returncode == code
        assert f"checked {checked} against the roof" in done.stdout
    assert "unchecked by beyond_roof, 2: the row could not be used (refused)" in done.stdout
    assert done.stdout.endswith("gate: 0 checked, 0 failed, 0 allowed, 2 unchecked (refused 2)\n")
    done = command(good, refused, "--fail-on", "beyond_roof", "--allow-unchecked", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.endswith("gate: 1 checked, 0 failed, 0 allowed, 2 unchecked (refused 2)\n")
    gate = json.loads(command(refused, "--fail-on", "beyond_roof", "--json", cwd=tmp_path).stdout)["gate"]
    assert (gate["checked"], gate["unchecked"], gate["reasons"]) == (0, 2, {"refused": 2})


def test_rows_are_counted_without_a_gate(rows: Path, tmp_path: Path) -> None:
    done = command(rows, cwd=tmp_path)
    assert done.stdout.endswith("checked 3 of 5 rows against the roof, 0 unchecked, 2 refused\n")


def test_a_row_without_a_baseline_is_unchecked_by_regression(rows: Path, tmp_path: Path) -> None:
    done = command(rows, "--fail-on", "regression", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout.endswith("gate: 0 checked, 0 failed, 0 allowed, 5 unchecked (no_baseline 3, refused 2)\n")


def test_claim_is_given_only_rows_that_print_a_rate(rows: Path, tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    path.write_text("\n".join([HEAD, tuned("40.0"), rows.read_text().splitlines()[1]]) + "\n")
    done = command(path, "--fail-on", "claim", cwd=tmp_path)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "gate: 1 checked, 0 failed, 0 allowed, 0 unchecked")
    path.write_text("\n".join([HEAD, tuned("40.0")]) + "\n")
    done = command(path, "--fail-on", "claim", cwd=tmp_path)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "gate: 0 checked, 0 failed, 0 allowed, 0 unchecked")


@pytest.mark.parametrize("kinds", ["", " ", ",", "beyond"])
def test_an_empty_or_unknown_kind_is_refused(rows: Path, tmp_path: Path, kinds: str) -> None:
    done = command(rows, "--fail-on", kinds, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "expected beyond_roof, unmodelled, " in done.stderr


@pytest.mark.parametrize("other", ["missing.csv", "folder", "unknown.txt"])
@pytest.mark.parametrize("gate", [(), ("--fail-on", "beyond_roof"), ("--fail-on", "beyond_roof", "--allow-unchecked")])
def test_a_named_file_that_cannot_be_read_is_exit_2(tmp_path: Path, other: str, gate: tuple[str, ...]) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "unknown.txt").write_text("not a record\n")
    (tmp_path / "good.csv").write_text(f"{HEAD}\n{tuned('40.0')}\n")
    done = command("good.csv", other, *gate, cwd=tmp_path)
    assert done.returncode == 2
    assert other in done.stderr
    assert "1 row" in done.stdout


def test_a_reader_that_goes_away_does_not_hide_a_failure(rows: Path, tmp_path: Path) -> None:
    script = "import sys; from pytest_roofline.cli import main; sys.exit(main())"
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as stdout:
        arguments = [sys.executable, "-c", script, "check", str(rows), "--fail-on", "beyond_roof"]
        done = subprocess.run(arguments, cwd=tmp_path, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (1, "")


ALLOW = """
[[{table}]]
record = "{record}"
kind = "{kind}"
reason = "a prototype"
until = {until}
"""


@pytest.mark.parametrize(
    ("record", "kind", "until", "code"),
    [
        ("tuned.csv line 3", "beyond_roof", "2999-01-01", 0),
        ("*line 3", "beyond_roof", "2999-01-01", 0),
        ("kernel", "beyond_roof", "2999-01-01", 0),  # by its name
        ("*line 2", "beyond_roof", "2999-01-01", 1),
        ("*line 3", "claim", "2999-01-01", 1),
        ("*line 3", "beyond_roof", "2020-01-01", 1),
    ],
)
def test_the_allow_list_of_the_project_applies(
    rows: Path, tmp_path: Path, record: str, kind: str, until: str, code: int
) -> None:
    entry = ALLOW.format(table="allow", record=record, kind=kind, until=until)
    (tmp_path / "roofline.toml").write_text('allow_unchecked = ["refused"]\n' + entry)
    done = command(rows, "--fail-on", "beyond_roof", cwd=tmp_path)
    assert done.returncode == code
    assert ("1 allowed" in done.stdout) == (code == 0)
    assert ("allow list: " in done.stdout) == (code == 1)  # unused or expired
    (tmp_path / "roofline.toml").rename(tmp_path / "other.toml")
    table = ALLOW.format(table="tool.roofline.allow", record=record, kind=kind, until=until)
    (tmp_path / "pyproject.toml").write_text(table)
    assert command(rows, "--fail-on", "beyond_roof", "--allow-unchecked", cwd=tmp_path).returncode == code


def test_a_gate_without_a_row_to_check_is_reported(tmp_path: Path) -> None:
    (tmp_path / "tuned.csv").write_text(HEAD)  # a tuner that died after its first line
    assert command("tuned.csv", cwd=tmp_path).stderr == ""
    done = command("tuned.csv", "--fail-on", "beyond_roof", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert "checked 0 of 0 rows" in done.stdout
    assert done.stdout.endswith("gate: 0 checked, 0 failed, 0 allowed, 0 unchecked\n")


def test_a_misspelled_device_gets_similar_names(tmp_path: Path) -> None:
    (tmp_path / "gemm.csv").write_text("dtype,m,n,k,us\nbf16,64,8192,8192,40\n")
    done = command("gemm.csv", "--format", "aiter op test", "--device", "H100", cwd=tmp_path)
    assert "no peaks for device H100: is it h100-sxm or h100-pcie or h100-nvl?" in done.stdout


def test_a_folder_is_reported_as_unreadable(tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    assert command("records/.", cwd=tmp_path).stderr.startswith("records: ")


def test_the_worst_row_comes_first_with_a_way_to_confirm(rows: Path, tmp_path: Path) -> None:
    done = command(rows, "--markdown", "out.md", "--github", cwd=tmp_path)
    assert done.returncode == 0
    assert "3 rows" not in done.stdout
    assert done.stdout.startswith("5 rows: 2 within the roof, 1 beyond_roof; 2 refused")
    assert "to confirm: " in done.stdout
    assert f"::warning file={rows},line=3,title=roofline%3A beyond_roof::" in done.stdout
    assert "beyond_roof" in (tmp_path / "out.md").read_text()


def test_github_gets_an_error_for_what_fails_and_a_warning_for_the_rest(rows: Path, tmp_path: Path) -> None:
    """Rows 3 and 7 are 1.7 times the roof. Line 4 has no time, line 5 no peaks; ``claim`` fails line 6 alone."""
    folder = tmp_path / "results"
    folder.mkdir()
    moved = rows.rename(folder / "tuned.csv")
    lines = command("results/tuned.csv", "--github", "--fail-on", "beyond_roof", cwd=tmp_path).stdout.splitlines()
    commands = [line for line in lines if line.startswith("::")]
    assert [line.partition(",title")[0] for line in commands] == [
        "::error file=results/tuned.csv,line=3",
        "::error file=results/tuned.csv,line=4",
        "::error file=results/tuned.csv,line=5",
    ]
    lines = command(moved, "--github", "--fail-on", "claim", "--allow-unchecked", cwd=tmp_path).stdout.splitlines()
    commands = [line.partition(",title")[0] for line in lines if line.startswith("::")]
    assert commands == [f"::error file={moved},line=6", f"::warning file={moved},line=3"]


def test_a_cpu_has_the_peaks_that_peaks_measure_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At 40 GB/s a copy of 2 GB takes 50 ms: 25 ms is beyond the roof. A row of a GPU keeps the GPU's roof."""
    memory = {"name": "copy", "kind": "bandwidth", "level": "DRAM", "dtype": "fp64", "threads": 2, "unit": "B/s"}
    memory.update(value=40e9, median=39e9, rounds=9, reproduced=9, method="numpy", working_set=None, cpu_share=1.0)
    machine = {"cpu": "AMD EPYC", "arch": "x86_64", "cores": 2, "memory_bytes": 2**34, "cache_bytes": 2**25}
    printed = {"peaks": {}, "schema": "roofline-ceilings/2", "method": "numpy", "date": "2026-01-01T00:00:00Z", "notes": []}
    printed.update(clock_mhz=2000.0, call_s=3e-8, machine=machine, ceilings=[memory])
    (tmp_path / "cpu.json").write_text(json.dumps(printed))
    (tmp_path / "a.csv").write_text("name,op,bytes,device,ms\na,copy,2e9,,25\nb,copy,2e9,cpu,25\nc,copy,2e9,MI300X,25\n")
    monkeypatch.chdir(tmp_path)

    def check(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["roofline", "check", "a.csv", *arguments])
        code = main()
        out = capsys.readouterr()
        return code, out.out + out.err

    code, text = check("--peaks", "cpu.json", "--device", "cpu", "--fail-on", "beyond_roof")
    assert (code, text.count("beyond_roof: a.csv")) == (1, 2)
    assert "3 checked, 2 failed" in text
    assert check("--peaks", "cpu.json")[1].count("beyond_roof: a.csv") == 2
    assert "--device cpu" in check("--peaks", "cpu.json", "--device", "MI300X")[1]
    (tmp_path / "cpu.json").write_text(json.dumps({**printed, "schema": "roofline-ceilings/0"}))
    assert check("--peaks", "cpu.json")[0] == 2
    monkeypatch.setenv("ROOFLINE_CACHE_DIR", str(tmp_path / "empty"))
    code, text = check("--device", "cpu")
    assert (code, "roofline peaks measure" in text) == (2, True)


def test_a_row_that_a_cache_may_have_served_is_listed(tmp_path: Path) -> None:
    # 16.8 MB in 1 us are 2.1 times 8 TB/s, and fit the cache of MI355X; nothing says that it was flushed.
    (tmp_path / "a.csv").write_text("device,op,rows,cols,dtype,us\nMI355X,copy,1024,4096,bf16,1.001\n")
    done = command("a.csv", cwd=tmp_path)
    assert "over the memory roof as a cache allows, 1 not_checked:" in done.stdout, done.stdout + done.stderr
    assert "flush between rounds" in done.stdout


@pytest.mark.parametrize(
    ("device", "units", "rate", "status"),
    [
        ("sm_90", 132, 4.4e12, "near_roof"),  # an H200's: 4.8 TB/s, where the default of sm_90 is an H100 of 3.35
        ("gfx942", 304, 5.8e12, "near_roof"),  # an MI325X's: 6.0 TB/s, where it is an MI300X of 5.3
        ("gfx942", 304, 6.7e12, "beyond_roof"),  # 6.144 TB/s of its bus, and 5 %
        ("MI300X", None, 5.8e12, "beyond_roof"),
    ],
)
def test_a_shared_name_allows_the_rate_of_its_fastest_product(
    table: peaks_table.Table, device: str, units: int | None, rate: float, status: str
) -> None:
    work = {"op": "copy", "rows": 1 << 20, "cols": 1024, "dtype": "fp32"}
    found = result(table, RecordRow(row="1", work=work, t_s=2 * 4 * 2**30 / rate, device=device, units=units, cache="cold"))
    assert found.check.status == status


@pytest.mark.parametrize(("factor", "cause"), [(1 / 1.024, "accounting_unit"), (0.972, "unexplained"), (1.02, "unexplained")])
def test_a_binary_prefix_explains_its_own_factor_alone(factor: float, cause: str) -> None:
    finding = explain_claim(Claim("memory", factor * 1e12), 1e12)
    assert finding is not None
    assert finding.cause == cause


def test_activations_of_many_tokens_count_as_in_analyze(tmp_path: Path, run: Run) -> None:
    """16384 rows of 4096 in fp8 and out in bf16 are 201 MB, six times the L2: without them it would be compute-bound."""
    moved = 8 * 3 * 4096 * 128 + 16384 * 4096 * (1 + 2)
    head = "gfx,cu_num,token,model_dim,inter_dim,expert,topk,dtype,q_dtype_a,q_dtype_w,use_g1u1,us,run_1stage"
    (tmp_path / "moe.csv").write_text(f"{head}\ngfx942,304,16384,4096,128,8,1,torch.bfloat16,fp8,fp8,1,100.0,1\n")
    (row,) = json.loads(command("moe.csv", "--json", cwd=tmp_path).stdout)["rows"]
    case = {"op": "moe", "tokens": 16384, "hidden": 4096, "inter": 128, "experts": 8, "top_k": 1, "launches": 1}
    run.topn(gemm_row("k", t_ms=0.1)).shapes(k=[{**case, "dtype": "fp8", "out_dtype": "bf16"}]).env(**MI300X)
    (item,) = run.analyze()["entries"]
    for found in (row, item):
        assert found["roof_axis"] == "memory"
        assert found["roofline_pct"] == pytest.approx(moved / 100e-6 / 5.3e12, rel=1e-4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "unknown format"),
        (b"\x00\x01\x02\xff" * 1000, "unknown format"),
        (b"a,b,c\n1,2,3\n", "unknown format"),
        (b"\x1f\x8b\x08\x00broken", "bad.csv"),
        (HEAD.encode() + b"\n" + b"9" * 9_000_000, "line 2 is longer than"),
        (HEAD.encode() + b"\n\xff\xfe\n", "line 2: not UTF-8"),
        (HEAD.encode("utf-16") + b"\x0a", "not UTF-16 text"),
        (b'{"benchmarks": [', "bad.csv"),
    ],
)
def test_an_invalid_record_is_refused_in_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "bad.csv").write_bytes(content)
    done = command("bad.csv", cwd=tmp_path)
    assert done.returncode in (0, 2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr) < 400


def test_a_gzip_is_read_but_a_zip_bomb_is_refused(rows: Path, tmp_path: Path) -> None:
    (tmp_path / "tuned.csv.gz").write_bytes(gzip.compress(rows.read_bytes()))
    assert command("tuned.csv.gz", cwd=tmp_path).stdout.startswith("5 rows: ")
    with gzip.open(tmp_path / "bomb.csv.gz", "wb", compresslevel=9) as handle:
        handle.write(HEAD.encode() + b"\n")
        for _ in range(20):
            handle.write(b"0" * 1_000_000)
    done = command("bomb.csv.gz", cwd=tmp_path)
    assert "line 2 is longer than" in done.stderr


def test_one_bad_file_loses_only_itself(rows: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_text("not a record\n")
    done = command("bad.txt", rows, "missing.csv", cwd=tmp_path)
    assert done.returncode == 2
    assert "5 rows" in done.stdout
    assert done.stderr.count("\n") == 2


# The ledger.


def predictions(tmp_path: Path) -> Path:
    from support.tool import EXAMPLE

    done = subprocess.run(
        [sys.executable, "-c", "import sys; from pytest_roofline.cli import main; sys.exit(main())"]
        + ["analyze", str(EXAMPLE), "--out", str(tmp_path)],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    return tmp_path / "profile_roofline.json"


MOE = 'op="moe", tokens=64, hidden=2048, inter=512, experts=256, top_k=8, dtype="fp8"'


def test_check_appends_the_result_of_a_prediction(tmp_path: Path) -> None:
    case = {"sig": "fused_moe_kernel", "regime": "decode", "baseline_ms": 0.098942, "optimized_ms": 0.0945, "speedup": 1.047}
    (tmp_path / "out.txt").write_text(f"GEAK_PER_CASE {json.dumps([case])}\nGEAK_GEOMEAN_SPEEDUP 1.047\n")
    told = ("--predictions", predictions(tmp_path), "--device", "gfx950", "--ledger", "ledger.jsonl")
    done = command("out.txt", *told, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["rows"]
    assert (found["status"], found["speedup"]) == ("consistent", pytest.approx(1.047, rel=1e-3))
    text = (tmp_path / "ledger.jsonl").read_text()
    assert text.count("fused_moe_kernel") == 1
    assert "out.txt" in text


def test_pytest_reports_an_empty_append(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("def test_a(roofline):\n    roofline.record(1e-3)\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--roofline", "--roofline-ledger=ledger.jsonl", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0
    assert "ledger: nothing to append: no row has both a prediction and a speedup" in done.stdout
    assert not (tmp_path / "ledger.jsonl").exists()


def test_pytest_appends_the_result_of_a_prediction(tmp_path: Path) -> None:
    predictions(tmp_path)
    (tmp_path / "test_moe.py").write_text(
        f"""
import pytest

@pytest.mark.roofline(kernel="fused_moe_kernel", {MOE})
def test_experts(roofline):
    roofline.record(94.5e-6, clock="device-event", cache="cold")
"""
    )
    before = {"benchmarks": [{"fullname": "test_moe.py::test_experts", "stats": {"median": 98.942e-6}}]}
    (tmp_path / "before.json").write_text(json.dumps(before))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--roofline", "--roofline-device=gfx950", "--roofline-ledger=ledger.jsonl"]
        + ["--roofline-predictions=profile_roofline.json", "--roofline-baseline=before.json", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "fused_moe_kernel" in (tmp_path / "ledger.jsonl").read_text()
