"""SKILL.md: its form, and its constants, closed sets and template, which equal the engine's."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from roofline_engine import check, roofline
from roofline_engine import fields as definitions
from roofline_engine.fields import FIELDS
from roofline_engine.ops import OPS
from roofline_engine.units import parse_dtype
from roofline_engine.validate import validate
from roofline_engine.work import TARGET_EFF
from support.tool import ROOT, run_tool

REFERENCE = ROOT / "skill" / "reference"
SKILL = (ROOT / "SKILL.md").read_text(encoding="utf-8")


def table(first: str, second: str) -> dict[str, str]:
    """Return two columns of the table whose header starts with these names."""
    lines = SKILL.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith(f"| {first} | {second} |"))
    rows = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        rows[cells[0]] = cells[1]
    return rows


def test_size_and_line_ends() -> None:
    assert len(SKILL.splitlines()) <= 350
    assert len(SKILL.encode()) <= 20_000
    assert SKILL.startswith("---\nname: pytest-roofline\n")
    assert SKILL.rstrip().endswith("End of the skill.")
    body = SKILL.split("---\n", 2)[2]
    assert "to its last line" in body.splitlines()[0]


def test_there_is_exactly_one_skill_md_in_git() -> None:
    listed = subprocess.run(["git", "ls-files", "*SKILL.md"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    assert listed.stdout.split() == ["SKILL.md"]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="skills-ref needs Python 3.11")
def test_the_exported_skill_passes_the_validator(tmp_path: Path) -> None:
    folder = tmp_path / "pytest-roofline"
    folder.mkdir()
    for name in ("SKILL.md", "peaks.md"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "skill", folder / "skill", ignore=shutil.ignore_patterns("__pycache__"))
    command = Path(sys.executable).with_name("agentskills")
    done = subprocess.run([str(command), "validate", str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_constants_equal_the_engines() -> None:
    assert {name: float(value) for name, value in table("constant", "value").items()} == {
        "latency_threshold": roofline.LATENCY_THRESHOLD,
        "saturated_band": roofline.SATURATED_BAND,
        "moderate_band": roofline.MODERATE_BAND,
        "dispatch_floor_us": pytest.approx(roofline.DISPATCH_FLOOR_S * 1e6),
        "head_pct": roofline.HEAD_PCT,
        "head_max": roofline.HEAD_MAX,
        "isolated_noise": roofline.ISOLATED_NOISE,
        "serving_noise": roofline.SERVING_NOISE,
        "streaming_fraction": roofline.STREAMING_FRACTION,
        "suspect_low": roofline.SUSPECT_LOW,
    }


def test_targets_equal_the_engines() -> None:
    rows = table("op", "target_eff").items()
    written = {name.strip(): float(value) for names, value in rows for name in names.split(",")}
    norm, conv = written.pop("norm"), written.pop("conv")
    assert {
        **written,
        **dict.fromkeys(("rmsnorm", "layernorm"), norm),
        **dict.fromkeys(("conv1d", "conv2d", "conv3d"), conv),
    } == TARGET_EFF


def test_closed_sets_equal_the_engines() -> None:
    rows = table("field", "values")
    for field, allowed in (
        ("op_class", definitions.OP_CLASSES),
        ("regime", definitions.REGIMES),
        ("bound_type", definitions.BOUND_TYPES),
        ("roof_axis", definitions.ROOF_AXES),
        ("headroom_class", definitions.HEADROOM_CLASSES),
        ("stage", definitions.STAGES),
        ("confidence", definitions.CONFIDENCES),
        ("measurement_basis", definitions.MEASUREMENT_BASES),
        ("target_basis", definitions.TARGET_BASES),
        ("route", definitions.ROUTES),
        ("peaks.source", definitions.PEAK_SOURCES),
        ("peaks.confidence", definitions.PEAK_CONFIDENCES),
    ):
        without_remarks = re.sub(r"\([^)]*\)|;.*", "", rows[field])
        assert tuple(word.strip() for word in without_remarks.split(",")) == allowed, field
    reasons = [name.rstrip(" *") for name in table("unknown_reason", "when")]
    assert tuple(reasons) == definitions.UNKNOWN_REASONS


def test_dtype_widths_equal_the_engines() -> None:
    lines = SKILL.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("| dtype |"))
    names = [cell.strip() for cell in lines[at].strip("|").split("|")][1:]
    widths = [cell.strip() for cell in lines[at + 2].strip("|").split("|")][1:]
    for spelled, width in zip(names, widths):
        for name in re.sub(r"\([^)]*\)", "", spelled).split(","):
            assert parse_dtype(name.strip()).nbytes == float(width), name


def read_template(text: str) -> dict[str, Any]:
    """Return the artifact of the one block of a page, with rankings that name its entry."""
    document: dict[str, Any] = json.loads(text.split("```jsonc\n", 1)[1].split("\n```", 1)[0])
    document["ranking_by_pct"] = document["ranking_by_expected_gain"] = [document["entries"][0]["name"]]
    return document


def test_the_template_is_a_consistent_artifact() -> None:
    assert validate(read_template(SKILL)) == []


def test_the_whole_template_has_every_field_and_is_consistent() -> None:
    document = read_template((REFERENCE / "artifact.md").read_text(encoding="utf-8"))
    (only,) = document["entries"]
    assert set(only) == set(FIELDS)
    assert validate(document) == []
    short = read_template(SKILL)["entries"][0]
    assert {key: only[key] for key in short if key != "byte_models"} == {
        key: value for key, value in short.items() if key != "byte_models"
    }


def test_every_reference_page_is_named_where_it_is_needed() -> None:
    named = set(re.findall(r"`skill/reference/([a-z]+\.md)`", SKILL))
    assert named == {path.name for path in REFERENCE.glob("*.md")}


def test_every_op_has_a_model_in_the_pages() -> None:
    pages = SKILL.split("## 10.", 1)[1].split("## 11.", 1)[0] + (REFERENCE / "models.md").read_text(encoding="utf-8")
    families = {"conv1d": "conv", "conv2d": "conv", "conv3d": "conv", "rmsnorm": "norm", "layernorm": "norm"}
    families |= dict.fromkeys(("transpose", "cat"), "copy") | {"dequantize": "quantize"}
    missing = [op for op in OPS if not re.search(rf"\b{families.get(op, op)}\b", pages)]
    assert missing == []


def test_the_lines_by_hand_make_the_top_n_of_the_helper(tmp_path: Path) -> None:
    """Three launches of one kernel and one of another; the copy is no kernel."""
    events = [
        {"ph": "X", "cat": "kernel", "name": "a", "ts": 0, "dur": 10, "args": {"device": 0, "stream": 7, "correlation": 1}},
        {"ph": "X", "cat": "kernel", "name": "b", "ts": 20, "dur": 60, "args": {"device": 0, "stream": 7, "correlation": 2}},
        {"ph": "X", "cat": "kernel", "name": "a", "ts": 90, "dur": 12, "args": {"device": 0, "stream": 7, "correlation": 3}},
        {"ph": "X", "cat": "kernel", "name": "a", "ts": 110, "dur": 18, "args": {"device": 0, "stream": 7, "correlation": 4}},
        {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD", "ts": 130, "dur": 50, "args": {"device": 0, "stream": 7}},
    ]
    trace = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}], "traceEvents": events}
    (tmp_path / "trace.json").write_text(json.dumps(trace), encoding="utf-8")
    code = (REFERENCE / "trace.md").read_text(encoding="utf-8").split("```python\n", 1)[1].split("```", 1)[0]
    subprocess.run([sys.executable, "-c", code, "trace.json"], cwd=tmp_path, check=True)
    by_hand = json.loads((tmp_path / "profile_topN.json").read_text(encoding="utf-8"))
    # a: 10 + 12 + 18 of 100 us, median 12; b: 60 of 100.
    assert by_hand["top_kernels"] == [
        {"name": "b", "pct_gpu_time": 60.0, "calls": 1, "avg_us": 60.0, "t_us_median": 60.0},
        {"name": "a", "pct_gpu_time": 40.0, "calls": 3, "avg_us": 40 / 3, "t_us_median": 12.0},
    ]
    assert run_tool("profile", tmp_path / "trace.json", "--out", tmp_path / "out").code == 0
    helper = json.loads((tmp_path / "out" / "profile_topN.json").read_text(encoding="utf-8"))
    rows = {row["name"]: row for row in helper["top_kernels"]}
    for row in by_hand["top_kernels"]:
        shared = {key: value for key, value in row.items() if key in rows[row["name"]]}
        assert {"name", "pct_gpu_time", "calls"} <= set(shared)
        assert {key: rows[row["name"]][key] for key in shared} == pytest.approx(shared)


def test_constants_in_the_reference_pages_equal_the_engines() -> None:
    page = (REFERENCE / "check.md").read_text(encoding="utf-8")
    assert "U > 1.05 L" in page
    assert check.BEYOND == 1.05
    statuses = re.findall(r"(?m)^\| (\w+) \|", page)[1:]
    assert sorted(statuses) == sorted(check.STATUSES)


def test_helper_calls_use_the_skill_folder() -> None:
    calls = [line for line in SKILL.splitlines() if "roofline_tools.py" in line]
    assert calls
    assert all('"<skill-dir>/skill/roofline_tools.py"' in line for line in calls)


@pytest.mark.parametrize(
    "lost",
    [
        "never prune",
        "still belongs in ranking_by_expected_gain",
        "accuracy gate",
        "no speculative decoding",
        "moe and attn only, launches_per_step / layers",  # a GEMM of three launches a layer is one launch in one launch's time
    ],
)
def test_required_statements_are_present(lost: str) -> None:
    assert lost in SKILL


def test_version_equals_the_packages() -> None:
    from importlib.metadata import version

    assert re.search(r'(?m)^  version: "([^"]+)"$', SKILL).group(1) == version("pytest-roofline")  # type: ignore[union-attr]
