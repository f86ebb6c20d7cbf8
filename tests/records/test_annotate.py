"""``roofline annotate``: a stored pytest-benchmark JSON to the report of a run, and ``roofline schema``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_roofline.schema import NAMES, model
from support.profiles import MI300X, Run, gemm_row
from support.tool import EXAMPLE


def command(*args: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "import sys; from pytest_roofline.cli import main; sys.exit(main())", *map(str, args)],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "100", "ROOFLINE_CACHE_DIR": str(cwd / "cache"), **environment},
        timeout=120,
    )


def stored(path: Path, *rows: dict[str, Any], **keys: Any) -> Path:
    path.write_text(json.dumps({"machine_info": {}, "benchmarks": list(rows), **keys}))
    return path


def row(name: str, median: Any, *, extra: dict[str, Any] | None = None, params: dict[str, Any] | None = None) -> dict[str, Any]:
    stats = {"median": median, "q1": median, "q3": median, "rounds": 5, "iterations": 1}
    return {"fullname": name, "group": None, "params": params, "extra_info": extra or {}, "stats": stats}


def test_totals_in_extra_info_are_compared_with_the_roof(tmp_path: Path) -> None:
    path = stored(tmp_path / "now.json", row("t.py::test_copy", 400e-6, extra={"IOBytes": 1.6e9}))
    done = command("annotate", path, "--device", "MI355X", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (entry,) = json.loads(done.stdout)["entries"]
    assert entry["roofline_pct"] == pytest.approx(1.6e9 / 400e-6 / 8e12)  # 4 of 8 TB/s
    assert entry["work"]["source"] == "extra_info"
    # A GPU's work on a host's clock: the percent is shown, and is no evidence.
    assert (entry["headroom_class"], entry["confidence"]) == ("unknown", "low")


@pytest.mark.parametrize(
    ("extra", "why"),
    [
        ({"bytes": 1e6, "flops": 1e13}, "extra_info: flops= without dtype="),  # of bytes alone it would be bound by memory
        ({"bytes": "1MB"}, "extra_info: bytes is '1MB', expected a number"),
    ],
)
def test_an_invalid_figure_in_extra_info_is_ignored(tmp_path: Path, extra: dict[str, Any], why: str) -> None:
    path = stored(tmp_path / "now.json", row("t.py::test_copy", 400e-6, extra=extra))
    done = command("annotate", path, "--device", "MI355X", "--json", cwd=tmp_path)
    (entry,) = json.loads(done.stdout)["entries"]
    assert (entry["modeled"], entry["unknown_reason"], entry["roofline_pct"]) == (False, "unmodelled", None)
    assert entry["notes"].startswith(why)


def test_names_of_parameters_give_a_percent_for_display(tmp_path: Path) -> None:
    params = {"M": 4096, "N": 4096, "K": 4096, "dtype": "UNSERIALIZABLE[torch.bfloat16]"}
    path = stored(tmp_path / "now.json", row("t.py::test_gemm[a]", 1e-3, params=params))
    done = command("annotate", path, "--device", "MI355X", "--json", cwd=tmp_path)
    (entry,) = json.loads(done.stdout)["entries"]
    assert entry["flops_est"] == 2 * 4096**3
    assert (entry["stage"], entry["rankable"], entry["work"]["source"]) == ("A", False, "names")


def test_activations_beyond_the_devices_cache_are_counted(tmp_path: Path, run: Run) -> None:
    """16384 rows of 4096 in fp8 and out in bf16 are 201 MB: more than the 32 MiB of an MI300X."""
    op = 'op = "moe", tokens = 16384, hidden = 4096, inter = 128, experts = 8, top_k = 1, dtype = "fp8", out_dtype = "bf16"'
    (tmp_path / "pyproject.toml").write_text(f'[tool.roofline.work]\n"*::test_moe*" = {{ {op} }}\n')
    case = {"op": "moe", "tokens": 16384, "hidden": 4096, "inter": 128, "experts": 8, "top_k": 1, "launches": 1}
    run.topn(gemm_row("test_moe", t_ms=0.2)).shapes(test_moe=[{**case, "dtype": "fp8", "out_dtype": "bf16"}]).env(**MI300X)
    predicted = tmp_path / "predicted.json"
    predicted.write_text(json.dumps(run.analyze()))
    path = stored(tmp_path / "now.json", row("t.py::test_moe", 100e-6))
    done = command("annotate", path, "--device", "MI300X", "--predictions", predicted, "--json", cwd=tmp_path)
    (entry,) = json.loads(done.stdout)["entries"]
    assert entry["prediction"]["kernel"] == "test_moe"  # of the same bytes, so of this shape
    assert entry["bytes_est"] == pytest.approx(8 * 3 * 4096 * 128 + 16384 * 4096 * (1 + 2))
    assert entry["roof_axis"] == "memory"


@pytest.mark.parametrize(("name", "more"), [("test_gemm", "num_experts"), ("test_gemm", "seq_len"), ("test_gemm", "G")])
def test_a_size_unknown_to_the_model_prevents_a_guess(tmp_path: Path, name: str, more: str) -> None:
    """Eight experts, sequences or groups are eight times the work, if they are; 1 changes nothing."""
    params = {"M": 64, "N": 128, "K": 256, "dtype": "torch.bfloat16"}
    rows = [row(f"t.py::{name}[{size}]", 1e-3, params={**params, more: size}) for size in (8, 1)]
    done = command("annotate", stored(tmp_path / "now.json", *rows), "--device", "MI355X", "--json", cwd=tmp_path)
    several, one = json.loads(done.stdout)["entries"]
    assert (several["modeled"], several["roofline_pct"]) == (False, None)
    assert one["flops_est"] == 2 * 64 * 128 * 256


def test_a_run_and_its_stored_json_give_the_same_rows(tmp_path: Path) -> None:
    (tmp_path / "test_kernels.py").write_text(
        """
import pytest

@pytest.mark.roofline(op="gemm", M=64, N=4096, K=8192, dtype="fp8", weight_dtype="fp8", device="MI355X", launches=2)
def test_gemm(benchmark):
    benchmark.pedantic(lambda: None, rounds=5)

@pytest.mark.roofline(bytes=8e6, flops=1e6, dtype="fp64", target_eff=0.8, kernel="axpy", device="MI300X")
def test_axpy(benchmark):
    benchmark.pedantic(lambda: None, rounds=5)
"""
    )
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--roofline", "--benchmark-json=now.json", "--roofline-report=json:run.json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "ROOFLINE_CACHE_DIR": str(tmp_path / "cache")},
        timeout=120,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    done = command("annotate", "now.json", "--json", cwd=tmp_path)
    before = {entry["nodeid"]: entry for entry in json.loads((tmp_path / "run.json").read_text())["entries"]}
    after = {entry["nodeid"]: entry for entry in json.loads(done.stdout)["entries"]}
    assert len(before) == 2
    assert before.keys() == after.keys()
    for nodeid, entry in before.items():
        differs = {key for key in entry if entry[key] != after[nodeid][key]}
        # Notes of the model are the run's; a line number is not stored.
        assert differs <= {"notes", "note_codes", "line"}, (nodeid, {key: (entry[key], after[nodeid][key]) for key in differs})


def test_times_from_another_machine_are_not_compared_with_this_cpu(tmp_path: Path) -> None:
    machine = {"machine": "not-this", "cpu": {"brand_raw": "another CPU"}}
    path = stored(tmp_path / "now.json", row("t.py::test_copy", 1e-3, extra={"bytes": 1e9}), machine_info=machine)
    done = command("annotate", path, "--json", cwd=tmp_path)
    assert done.returncode == 0
    report = json.loads(done.stdout)
    assert report["entries"][0]["roofline_pct"] is None
    assert any("another machine" in line for line in report["skill_errors"])
    assert not (tmp_path / "cache").exists()  # and nothing was measured


@pytest.mark.parametrize(
    ("gate", "code"), [((), 0), (("--fail-on", "beyond_roof"), 1), (("--fail-on", "unmodelled"), 0), (("--fail-under", "1"), 1)]
)
def test_a_gate_fails_the_command(tmp_path: Path, gate: tuple[str, ...], code: int) -> None:
    path = stored(tmp_path / "now.json", row("t.py::test_copy", 50e-6, extra={"bytes": 1.6e9}))  # 32 TB/s
    done = command("annotate", path, "--device", "MI355X", *gate, cwd=tmp_path)
    assert done.returncode == code
    assert (": 4 times the memory roof" in done.stderr) is (code == 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "now.json: not JSON"),
        ("[]", "now.json: the list 'benchmarks' is missing"),
        ('{"benchmarks": 3}', "now.json: the list 'benchmarks' is missing"),
    ],
)
def test_an_invalid_benchmark_json_is_refused_in_one_line(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "now.json").write_text(content)
    done = command("annotate", "now.json", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_unreadable_row_is_unchecked_under_a_gate(tmp_path: Path) -> None:
    good = row("t.py::test_ok", 1e-3, extra={"bytes": 1e9})
    bad = [row("t.py::test_a", "fast"), {"stats": {}}, 7]
    path = stored(tmp_path / "now.json", good, *bad)
    done = command("annotate", path, "--device", "MI355X", "--fail-on", "beyond_roof", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout.endswith("gate: 1 checked, 0 failed, 0 allowed, 3 unchecked (refused 3)\n")
    gate = ("--device", "MI355X", "--fail-on", "beyond_roof", "--allow-unchecked")
    assert command("annotate", path, *gate, cwd=tmp_path).returncode == 0
    for rows in (bad, []):
        done = command("annotate", stored(tmp_path / "now.json", *rows), *gate, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert "no benchmark could be read" in done.stderr
        assert command("annotate", "now.json", cwd=tmp_path).returncode == 0


def test_the_allow_list_of_the_project_applies(tmp_path: Path) -> None:
    path = stored(tmp_path / "now.json", row("t.py::test_copy", 50e-6, extra={"bytes": 1.6e9}))  # 32 TB/s
    entry = '[[allow]]\ntest = "*::test_copy"\nkind = "beyond_roof"\nreason = "known"\nuntil = 2999-01-01\n'
    (tmp_path / "roofline.toml").write_text(entry)
    done = command("annotate", path, "--device", "MI355X", "--fail-on", "beyond_roof", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.endswith("gate: 1 checked, 0 failed, 1 allowed, 0 unchecked\n")


@pytest.mark.parametrize("gate", [("--fail-on", ""), ("--fail-on", ","), ("--fail-under", ""), ("--fail-under", "0")])
def test_an_empty_gate_is_refused(tmp_path: Path, gate: tuple[str, ...]) -> None:
    done = command("annotate", stored(tmp_path / "now.json", row("t.py::test_a", 1e-3)), *gate, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(gate[0])


def test_each_row_of_a_test_that_is_in_the_file_twice_is_checked(tmp_path: Path) -> None:
    rows = [row("t.py::test_copy", t_s, extra={"bytes": 1.6e9}) for t_s in (50e-6, 1e-3)]  # 32 TB/s, then 1.6 TB/s
    gate = ("--device", "MI355X", "--fail-on", "beyond_roof")
    done = command("annotate", stored(tmp_path / "now.json", *rows), *gate, cwd=tmp_path)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "gate: 2 checked, 1 failed, 0 allowed, 0 unchecked")


def test_an_unreadable_row_loses_only_itself(tmp_path: Path) -> None:
    rows = [row("t.py::test_a", "fast"), row("t.py::test_b", -1.0), {"stats": {}}, 7, row("t.py::test_ok", 1e-3)]
    done = command("annotate", stored(tmp_path / "now.json", *rows), "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [entry["nodeid"] for entry in report["entries"] if entry["measurement"]] == ["t.py::test_ok"]
    assert {" ".join(line.split()[:3]).rstrip(":") for line in report["skill_errors"]} == {
        f"now.json: benchmark {at}" for at in (1, 2, 3, 4)
    }


def test_an_unknown_device_is_refused_with_similar_names(tmp_path: Path) -> None:
    path = stored(tmp_path / "now.json", row("t.py::test_copy", 1e-3, extra={"bytes": 1e9}))
    done = command("annotate", path, "--device", "H100", cwd=tmp_path)
    assert done.returncode == 2
    assert "h100-sxm" in done.stderr


def test_every_record_has_a_schema(tmp_path: Path) -> None:
    assert command("schema", cwd=tmp_path).stdout.split() == list(NAMES)
    for name in NAMES:
        schema = (
            json.loads(command("schema", name, cwd=tmp_path).stdout) if name == "report" else model(name).model_json_schema()
        )
        assert schema["type"] == "object"
    assert command("schema", "nothing", cwd=tmp_path).returncode == 2


def test_written_documents_match_their_schemas(tmp_path: Path) -> None:
    done = command("analyze", EXAMPLE, "--out", tmp_path, "--json", cwd=tmp_path)
    model("artifact").model_validate_json(done.stdout, strict=True)
    broken = json.loads(done.stdout)
    broken["entries"][0]["headroom_class"] = "great"
    with pytest.raises(ValueError, match="headroom_class"):
        model("artifact").model_validate(broken)
    path = stored(tmp_path / "now.json", row("t.py::test_copy", 400e-6, extra={"bytes": 1.6e9}), row("t.py::test_b", 1.0))
    report = command("annotate", path, "--device", "MI355X", "--json", cwd=tmp_path)
    model("report").model_validate_json(report.stdout, strict=True)


def test_deeply_nested_parameters_are_refused_in_one_line(tmp_path: Path) -> None:
    path = stored(tmp_path / "now.json", row("t.py::test_gemm", 1e-3, params={"K": "deep"}))
    path.write_text(path.read_text().replace('"deep"', "[" * 900 + "]" * 900))
    done = command("annotate", path, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, f"{path}: nested more than 100 levels deep\n")
