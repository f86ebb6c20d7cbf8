"""The engine runs on every Python from 3.8 to 3.13 that this machine has, isolated, and gives the same artifact."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.counter_files import details_csv, long_csv
from support.profiles import GEMM, MI300X, Run
from support.tool import EXAMPLE, ROOT, run_tool

ENGINE = sorted((ROOT / "skill").rglob("*.py"))


def interpreter(version: str) -> str | None:
    found = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python3"))
    return str(found[-1]) if found else shutil.which(f"python{version}")


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13"])
def test_worked_example_gives_the_same_result(version: str, tmp_path: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    here = run_tool("analyze", EXAMPLE, "--json", "--out", tmp_path)
    there = run_tool("analyze", EXAMPLE, "--json", "--out", tmp_path, python=python)
    assert there.code == 0, there.err
    assert json.loads(there.out) == json.loads(here.out)
    assert run_tool("validate", tmp_path / "profile_roofline.json", python=python).code == 0
    assert run_tool("peaks", "audit", python=python).code == 0


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13"])
def test_counters_give_the_same_result(version: str, run: Run) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    (run.round / "kernel_stats.csv").write_text('"Name","Calls","TotalDurationNs"\n"gemm_kernel",2,100000\n')
    (run.round / "counter_collection.csv").write_text(
        long_csv({"FETCH_SIZE": 140_000, "WRITE_SIZE": 1_000, "ns": 50_000}, name="gemm_kernel")
    )
    (run.round / "ncu.csv").write_text(details_csv(("0", "k", "dram__bytes.sum", "Mbyte", "2523,00")))
    run.shapes(gemm_kernel=[GEMM]).env(**MI300X)
    here = run_tool("analyze", run.round, "--json")
    assert json.loads(here.out)["stage"] == "C"
    assert run_tool("analyze", run.round, "--json", python=python).out == here.out
    for name in ("counter_collection.csv", "ncu.csv"):
        shown = [run_tool("counters", "show", run.round / name, "--json", python=one).out for one in (sys.executable, python)]
        assert shown[0] == shown[1] != ""


@pytest.mark.parametrize("path", ENGINE, ids=lambda path: path.name)
def test_the_engine_imports_only_the_standard_library(path: Path) -> None:
    if not hasattr(sys, "stdlib_module_names"):
        pytest.skip("sys.stdlib_module_names is Python 3.10")
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        for name in names:
            top = name.split(".")[0]
            assert top in sys.stdlib_module_names or top == "roofline_engine", f"{path.name} imports {name}"


def test_the_primitives_are_importable_from_the_front() -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'skill')!r}); import roofline_tools as t; "
        "print(t.work('gemm', M=64, N=64, K=64, dtype='bf16').flops, t.experts_hit(256, 512) > 221, len(t.__all__)); "
        "[getattr(t, name) for name in t.__all__]"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.startswith("524288.0 True")


def test_record_is_a_named_tuple() -> None:
    from roofline_engine.fields import ByteModel

    model = ByteModel("x", 1.0, 2.0)
    assert model == ("x", 1.0, 2.0, True, None)
    assert model._replace(feasible=True).feasible is True
    assert ByteModel.__doc__
    with pytest.raises(AttributeError):
        model.bytes = 3.0  # type: ignore[misc]
