"""The hook that finds the files: by name and by syntax tree, without importing or running them."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Generator, Iterator, Sequence
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path

import pytest

from ..config import Settings
from . import scripts, task_dirs
from .items import ChildFile, Problem, Reports

#: Files that Python, pytest or an installer runs.
_NEVER = ("__init__.py", "__main__.py", "conftest.py", "setup.py")
#: Files whose ``perf_report`` functions are items although the command line does not name them.
_BENCHES = ("bench_*.py", "benchmark_*.py")
#: A larger source file (bytes) is skipped: it is generated data.
_LARGEST = 2_000_000
#: Calls that end a process: the module (empty for a builtin) and the name.
_EXITS = {("sys", "exit"), ("os", "_exit"), ("", "exit"), ("", "quit"), ("", "SystemExit")}
_Block = Sequence[ast.stmt]


class Collectors:
    """The plugin with the hook that collects the files, registered only with ``--roofline``."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self.config, self.settings = config, settings
        self.script_entries = scripts.read_scripts(settings.scripts)

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(
        self, file_path: Path, parent: pytest.Collector
    ) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
        """Replace the collectors that would import one of these files (for tests and doctests) with ours.

        A file of benchmarks that may contain tests keeps its module as well; a linter's items stay in any case.
        """
        collectors = yield
        if file_path.suffix != ".py" or file_path.name in _NEVER:
            return collectors
        file = PythonFile(file_path)
        collector = self._collector(file, parent)
        if collector is None:
            return collectors
        functions, classes = self.config.getini("python_functions"), self.config.getini("python_classes")
        has_both = isinstance(collector, Reports) and (self._is_test(file_path) or file.has_tests(functions, classes))
        return [*(other for other in collectors if has_both or not isinstance(other, pytest.Module)), collector]

    def _collector(self, file: PythonFile, parent: pytest.Collector) -> ChildFile | None:
        path, settings = file.path, self.settings
        named = parent.session.isinitpath(path)  # on the command line
        entry = scripts.find_entry(self.script_entries, path, self.config.rootpath)
        if entry is not None:
            return scripts.Script.from_parent(parent, path=path, settings=settings, entry=entry)
        if task_dirs.is_task(path):
            return task_dirs.TaskDir.from_parent(parent, path=path, settings=settings)
        functions = file.reports() if named or any(fnmatch(path.name, pattern) for pattern in _BENCHES) else []
        if functions:
            return Reports.from_parent(parent, path=path, settings=settings, functions=functions)
        if (named or self._is_test(path)) and file.ends_at_import():
            return scripts.Script.from_parent(parent, path=path, settings=settings)
        problems = file.problems()
        return Problem.from_parent(parent, path=path, settings=settings, functions=problems) if problems else None

    def _is_test(self, path: Path) -> bool:
        """Return whether the file name matches ``python_files``; a pattern with a folder matches the whole path."""
        patterns: list[str] = self.config.getini("python_files")
        return any(fnmatch(str(path) if "/" in one else path.name, f"*/{one}" if "/" in one else one) for one in patterns)


class PythonFile:
    """A Python file by its text and its syntax tree; none of it runs. An unreadable file is empty here: pytest reports it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def text(self) -> str:
        try:
            with self.path.open("rb") as stream:
                data = stream.read(_LARGEST + 1)
        except OSError:
            return ""
        return "" if len(data) > _LARGEST else data.decode("utf-8", errors="replace")

    @cached_property
    def body(self) -> _Block:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes in its strings
            try:
                return ast.parse(self.text.removeprefix("\ufeff")).body
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return ()

    def ends_at_import(self) -> bool:
        """Return whether an import always reads the command line or ends the process: then the file is a script.

        A call under a condition, in a function or in a ``try`` that catches SystemExit does not count. Neither does
        ``parse_args`` with arguments, or after the file assigned ``sys.argv``.
        """
        if not any(word in self.text for word in ("parse_args", "exit(", "quit(", "SystemExit")):
            return False
        local = {name for statement in self.body for name in _bound(statement)}
        for statement in _always(self.body):
            if any(_ends(call, local) for call in _calls(statement)):
                return True
            if isinstance(statement, ast.Assign) and any(map(_is_argv, statement.targets)):
                local.add("parse_args")
        return False

    def reports(self) -> list[tuple[str, int]]:
        """Return the functions under ``perf_report``, decorated or wrapped and assigned, with their lines."""
        if "perf_report" not in self.text:
            return []
        functions = []
        for statement in self.body:
            if isinstance(statement, ast.FunctionDef) and any(map(_is_report, statement.decorator_list)):
                functions.append((statement.name, statement.lineno))
            elif (
                isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call) and _is_report(statement.value.func)
            ):
                functions += [(target.id, statement.lineno) for target in statement.targets if isinstance(target, ast.Name)]
        return functions

    def problems(self) -> list[tuple[str, int]]:
        """Return the file's name and the line of ``Model`` for a KernelBench problem, which also has functions for inputs."""
        if not all(word in self.text for word in ("class Model", "def get_inputs", "def get_init_inputs")):
            return []
        functions = {one.name for one in self.body if isinstance(one, ast.FunctionDef)}
        models = [one.lineno for one in self.body if isinstance(one, ast.ClassDef) and one.name == "Model"]
        return [(self.path.stem, models[0])] if models and functions >= {"get_inputs", "get_init_inputs"} else []

    def has_tests(self, functions: Sequence[str], classes: Sequence[str]) -> bool:
        """Return whether pytest may find tests: by the prefixes of their names, or by a base class with Test in its name."""
        for one in self.body:
            if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)) and one.name.startswith(tuple(functions)):
                return True
            if isinstance(one, ast.ClassDef):
                bases = " ".join(ast.unparse(base) for base in one.bases)
                if "Test" in bases or one.name.startswith(tuple(classes)):
                    return True
        return False


def _is_report(node: ast.expr) -> bool:
    """Return whether an expression is ``perf_report(...)``, from any module."""
    called = node.func if isinstance(node, ast.Call) else None
    name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    return name == "perf_report"


def _always(block: _Block) -> Iterator[ast.stmt]:
    """Yield the statements that an import runs unconditionally."""
    for statement in block:
        if isinstance(statement, (ast.With, ast.AsyncWith)):
            yield from _always(statement.body)
        elif isinstance(statement, ast.Try):
            if not any(_catches_exit(handler) for handler in statement.handlers):
                yield from _always(statement.body)
            yield from _always(statement.finalbody)
        elif isinstance(statement, (ast.Expr, ast.Assign, ast.AnnAssign, ast.Raise, ast.AugAssign)):
            yield statement


def _catches_exit(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or (isinstance(kind, ast.Name) and kind.id in ("SystemExit", "BaseException")) for kind in kinds)


def _calls(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the calls and raised names that run with a statement, without those in lambdas and conditional expressions."""
    if isinstance(node, (ast.Lambda, ast.IfExp, ast.BoolOp)):
        return
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Name):
        yield node.exc
    if isinstance(node, ast.Call):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _calls(child)


def _ends(node: ast.AST, local: set[str]) -> bool:
    """Return whether a call ends the process, or may do so with another program's command line."""
    called = node.func if isinstance(node, ast.Call) else node
    if isinstance(called, ast.Attribute):
        if called.attr == "parse_args":
            return "parse_args" not in local and not (isinstance(node, ast.Call) and _has_arguments(node))
        return isinstance(called.value, ast.Name) and (called.value.id, called.attr) in _EXITS
    return isinstance(called, ast.Name) and ("", called.id) in _EXITS and called.id not in local


def _is_argv(target: ast.expr) -> bool:
    """Return whether an assignment is to ``sys.argv`` or to a slice of it."""
    return ast.unparse(target.value if isinstance(target, ast.Subscript) else target) == "sys.argv"


def _has_arguments(call: ast.Call) -> bool:
    """Return whether ``parse_args`` has arguments and does not read those of the process."""
    values = [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "args")]
    return any(isinstance(value, (ast.List, ast.Tuple)) for value in values)


def _bound(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement of the module binds, which are then not builtins."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        yield statement.name
    elif isinstance(statement, ast.ImportFrom) and statement.module != "sys":
        yield from (alias.asname or alias.name for alias in statement.names)
