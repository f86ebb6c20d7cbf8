"""The documentation: its commands run and print what it shows, and its tables equal the code's."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from roofline_engine.counters.amd import GFX950_ROCM, LINE_BYTES, MOPS_FLOPS
from roofline_engine.counters.base import KNOWN_COPY_BAND
from roofline_engine.counters.read import COMPULSORY, WANTED
from roofline_engine.fields import FIELDS
from roofline_engine.inputs import read_env, read_shapes, read_topn
from roofline_engine.ops import OPS, work
from support.pages import QUICK, blocks, run_page, search_path
from support.tool import ROOT

PAGES = [
    ROOT / "README.md",
    ROOT / "docs" / "inputs.md",
    ROOT / "docs" / "artifact.md",
    ROOT / "docs" / "counters.md",
    ROOT / "docs" / "ceilings.md",
    ROOT / "docs" / "timing.md",
    ROOT / "AGENTS.md",
]


#: All pages with commands but unmodified.md, whose run test_unmodified looks at.
PLUGIN_PAGES = [
    "annotate",
    "tutorial",
    "gate",
    "trace",
    "compare",
    "predictions",
    "skill",
    "ledger",
    "check",
    "figure",
    "hooks",
    "python_api",
]


@pytest.mark.docs
@pytest.mark.parametrize("name", PLUGIN_PAGES)
def test_a_page_runs_as_it_stands(name: str, tmp_path: Path, ceilings: Path) -> None:
    assert list(run_page(name, tmp_path, ceilings))


@pytest.mark.docs
def test_the_commands_of_the_readme_do_what_it_shows(tmp_path: Path, ceilings: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for block in blocks(ROOT / "README.md", "python"):
        name, _, rest = block.partition("\n")
        (tmp_path / name.removeprefix("# ")).write_text(rest, encoding="utf-8")
    environment = {
        **os.environ,
        "PATH": search_path(),
        "COLUMNS": "100",
        "ROOFLINE_CACHE_DIR": str(ceilings),
        "PYTEST_ADDOPTS": QUICK,
    }
    ran = 0
    for block in blocks(ROOT / "README.md", "console"):
        shown = ""
        for line in block.splitlines():
            if not line.startswith("$ "):
                assert " ".join(line.split()) in shown, f"not shown: {line}"
                continue
            command = shlex.split(line[2:])
            if command[0] in ("make", "pip"):  # CI runs make; the packaging tests install
                continue
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment, check=False)
            assert done.returncode == 0, done.stderr
            shown, ran = " ".join(done.stdout.split()), ran + 1
    assert ran == 4


def test_the_make_commands_in_the_docs_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        targets = re.findall(r"(?:`|\$ )make ([a-z-]+)", page.read_text(encoding="utf-8"))
        assert targets
        assert [name for name in targets if not re.search(rf"(?m)^{name}:", makefile)] == []


def test_example_files_of_the_inputs_page_are_read_without_problems() -> None:
    topn, env, shapes = (json.loads(block) for block in blocks(ROOT / "docs" / "inputs.md", "json"))
    assert read_topn(topn, "t").problems == ()
    assert read_env(env, "e").problems == ()
    cases, problems = read_shapes(shapes, "s")
    assert problems == []
    for (case,) in cases.values():
        parameters = dict(case)
        op = str(parameters.pop("op"))
        if op == "attn_decode":
            parameters["seq_len"] = 1
        assert work(op, **parameters).bytes > 0


def test_the_inputs_page_lists_every_op_with_every_parameter() -> None:
    listed: dict[str, set[str]] = {}
    for line in (ROOT / "docs" / "inputs.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        names = re.findall(r"`(\w+)`", cells[0])
        if line.startswith("|") and len(cells) == 2 and names and all(name in OPS for name in names):
            for name in names:
                listed[name] = set(re.findall(r"`(\w+)`", cells[1]))
    assert listed == {name: set(op.parameters) for name, op in OPS.items()}


def test_the_artifact_page_lists_every_field() -> None:
    rows = {}
    for line in (ROOT / "docs" / "artifact.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `"):
            rows[cells[0].strip("`")] = cells[1:]
    assert rows == {name: [form.unit, ", ".join(form.choices), form.doc] for name, form in FIELDS.items()}


def test_the_counters_page_matches_the_engine() -> None:
    text = " ".join((ROOT / "docs" / "counters.md").read_text(encoding="utf-8").split())
    assert f"A line is 128 bytes on {', '.join(list(LINE_BYTES)[:-1])} and {list(LINE_BYTES)[-1]}, else 64." in text
    assert set(LINE_BYTES.values()) == {128}
    assert f"only from ROCm {'.'.join(map(str, GFX950_ROCM))} on" in text
    assert f"| FLOPs, AMD | {MOPS_FLOPS} x " in text
    assert f"under {COMPULSORY} of what the op must read" in text
    assert f"within {KNOWN_COPY_BAND:.0%}".replace("%", " %") in text
    wanted = [name for purpose, names in WANTED.items() if purpose.startswith("bytes") for name in names]
    assert not [name for name in wanted if f"`{name}`" not in text]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_have_a_target(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_the_map_names_every_module_and_data_flows_in_its_order() -> None:
    lines = (ROOT / "AGENTS.md").read_text(encoding="utf-8").splitlines()
    rows = [line.split("|")[1] for line in lines if line.startswith("| `")]
    order = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    engine = ROOT / "skill" / "roofline_engine"
    names = {path: path.relative_to(engine).parts[0].removesuffix(".py") for path in engine.rglob("*.py")}
    assert sorted(order) == sorted(set(names.values()) - {"__init__"})
    for path, name in names.items():
        depth = len(path.relative_to(engine).parts)  # an import with so many dots is of the engine itself
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level == depth:
                for used in [node.module] if node.module else [alias.name for alias in node.names]:
                    assert order.index(used.partition(".")[0]) < order.index(name), f"{path} imports {used}"


def test_no_file_contains_a_path_of_a_machine() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    pattern = re.compile(r"(?<![\w.])/(?:work|root|home|tmp)/")
    for name in listed.stdout.split():
        path = ROOT / name
        if name == "tests/e2e/test_docs.py" or not path.is_file():
            continue
        assert not pattern.search(path.read_bytes().decode("utf-8", "replace")), name
