"""The structure of the two packages: imports run downwards, no circle, and no decision on the words of a message.

The tests read syntax trees. Nothing is imported.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from support.tool import ROOT

PACKAGES = {"roofline_engine": ROOT / "skill" / "roofline_engine", "pytest_roofline": ROOT / "pytest_roofline"}

#: Modules of both packages, ``__init__`` included. A module is one idea, and a reader should be able to keep the list in mind.
MAX_MODULES = 142

#: The layers of pytest_roofline, top first. A module imports from its own layer and from lower ones; the longest entry that
#: starts its name gives its layer.
LAYERS = (
    ("plugin", "cli"),
    ("session",),
    ("agent_skill", "annotate", "collect", "history", "records.check"),
    ("report", "records.cases"),
    ("evaluate", "testcase"),
    ("baselines", "fixture", "saved"),
    ("config", "devices"),
    ("capture", "ceilings", "gate", "hookspec", "ledger", "plot", "records", "schema"),
    ("declare", "report.columns", "row", "timing"),
    ("report.console", "values", "warnings"),
)

#: Names of human-readable text. Code may print such a value, but may not search in it to decide something.
TEXT_NAMES = re.compile(r"(note|message|problem|reason|remark|warning|doubt)s?|detail|sentence|why")
#: Methods of a string that look for a part of it.
SEARCHES = re.compile(r"startswith|endswith|r?partition|r?split|r?find|r?index|count|removeprefix|removesuffix")

#: Phrases that do not read as plain English.
ODD_PHRASES = re.compile(r"\b(nobody|somebody|whoever|says so|held to|told apart|cannot be meant)\b")
MAX_ODD_LINES = 10


class Import(NamedTuple):
    importer: str
    imported: str
    line: int


def read_modules() -> dict[str, Path]:
    """Return the paths of the modules of both packages by dotted name."""
    modules = {}
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = [package, *path.relative_to(folder).with_suffix("").parts]
            modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


MODULES = read_modules()
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}


def resolve(importer: str, node: ast.AST) -> Iterator[str]:
    """Yield our modules that an import statement names."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in MODULES)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            package = importer if MODULES[importer].name == "__init__.py" else importer.rpartition(".")[0]
            parents = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*parents, *([node.module] if node.module else [])])
        for alias in node.names:
            name = f"{base}.{alias.name}"
            if name in MODULES:
                yield name
            elif base in MODULES:
                yield base


IMPORTS = [
    Import(importer, imported, node.lineno)
    for importer, tree in TREES.items()
    for node in ast.walk(tree)
    if isinstance(node, (ast.Import, ast.ImportFrom))
    for imported in resolve(importer, node)
    if imported != importer
]


def find_circles() -> list[list[str]]:
    """Return the groups of modules that import each other, directly or through others (Tarjan's algorithm)."""
    targets: dict[str, set[str]] = {name: set() for name in MODULES}
    for edge in IMPORTS:
        targets[edge.importer].add(edge.imported)
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    circles = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for target in sorted(targets[name]):
            if target not in order:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], order[target])
        if low[name] == order[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                circles.append(sorted(stack[at:]))
            del stack[at:]

    for name in sorted(MODULES):
        if name not in order:
            visit(name)
    return circles


def layer_of(module: str) -> int | None:
    """Return the layer of a module of pytest_roofline, 0 for the top; None if LAYERS has no entry for it."""
    package, *parts = module.split(".")
    if package != "pytest_roofline":
        return None
    for length in range(len(parts), 0, -1):
        prefix = ".".join(parts[:length])
        for layer, prefixes in enumerate(LAYERS):
            if prefix in prefixes:
                return layer
    return None


def find_searches(name: str) -> Iterator[str]:
    """Yield the places that search in a human-readable text: ``x in row.notes``, ``message.startswith(...)``."""
    for node in ast.walk(TREES[name]):
        searched: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            searched = [right for op, right in zip(node.ops, node.comparators) if isinstance(op, (ast.In, ast.NotIn))]
            if isinstance(node.left, ast.Name) and isinstance(node.ops[0], ast.NotIn):
                searched = []  # a list of messages without duplicates
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if SEARCHES.fullmatch(node.func.attr):
                searched = [node.func.value]
            elif ast.unparse(node.func) in ("re.search", "re.match", "re.fullmatch", "re.findall"):
                searched = node.args[1:2]
        for value in searched:
            last = value.attr if isinstance(value, ast.Attribute) else value.id if isinstance(value, ast.Name) else ""
            if TEXT_NAMES.fullmatch(last):
                yield f"{MODULES[name].relative_to(ROOT)}:{value.lineno}: {ast.unparse(node)}"


def texts() -> Iterator[Path]:
    """Yield the Python and Markdown files of the repository."""
    listed = subprocess.run(["git", "ls-files", "*.py", "*.md"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("needs a git checkout")
    yield from (path for path in (ROOT / name for name in listed.stdout.splitlines()) if path.is_file())


def test_no_modules_import_each_other() -> None:
    assert find_circles() == []


def test_imports_run_downwards() -> None:
    upwards = []
    for edge in IMPORTS:
        importer, imported = layer_of(edge.importer), layer_of(edge.imported)
        if importer is not None and imported is not None and imported < importer:
            upwards.append(f"{edge.importer}, line {edge.line}, imports {edge.imported}")
    assert upwards == []


def test_every_module_has_a_layer() -> None:
    assert [name for name in MODULES if name.startswith("pytest_roofline.") and layer_of(name) is None] == []


def test_the_engine_does_not_import_the_plugin() -> None:
    edges = [edge for edge in IMPORTS if edge.importer.startswith("roofline_engine")]
    assert [edge for edge in edges if edge.imported.startswith("pytest_roofline")] == []


def test_the_number_of_modules_is_limited() -> None:
    assert len(MODULES) <= MAX_MODULES


def test_no_module_decides_by_searching_in_a_text() -> None:
    assert [place for name in MODULES for place in find_searches(name)] == []


def test_the_language_is_plain() -> None:
    here = Path(__file__)
    lines = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in texts()
        if path != here
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if ODD_PHRASES.search(line)
    ]
    assert len(lines) <= MAX_ODD_LINES, "\n".join(lines)
