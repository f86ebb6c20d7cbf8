"""What a Python file is, by its text and its syntax tree: nothing of it is run. Knows nothing of pytest."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

#: A larger file is data in the clothes of code, bytes.
_LARGEST = 2_000_000
#: The names of calls that end a process, by the module that they are of ("" for a builtin).
_EXITS = {("sys", "exit"), ("os", "_exit"), ("", "exit"), ("", "quit"), ("", "SystemExit")}
_Block = Sequence[ast.stmt]


class PythonFile:
    """A file; what cannot be read or parsed is empty, and pytest's to complain about."""

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
            warnings.simplefilter("ignore")  # of its escapes, which are its author's
            try:
                return ast.parse(self.text.removeprefix("\ufeff")).body
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return ()

    def ends_at_import(self) -> bool:
        """Whether importing it reads the command line or ends the process, whatever the case: it is a script.

        A call under a condition, in a function or in a ``try`` that takes SystemExit does not count, nor one of ``parse_args``
        with the arguments given, be it by a ``sys.argv`` of the file's own.
        """
        if not any(word in self.text for word in ("parse_args", "exit(", "quit(", "SystemExit")):
            return False
        own = {name for statement in self.body for name in _bound(statement)}
        for statement in _always(self.body):
            if any(_ends(call, own) for call in _calls(statement)):
                return True
            if isinstance(statement, ast.Assign) and any(map(_is_argv, statement.targets)):
                own.add("parse_args")
        return False

    def reports(self) -> list[tuple[str, int]]:
        """The functions under ``perf_report`` with the lines they stand on: decorated, or wrapped and given a name."""
        if "perf_report" not in self.text:
            return []
        found = []
        for statement in self.body:
            if isinstance(statement, ast.FunctionDef) and any(map(_is_report, statement.decorator_list)):
                found.append((statement.name, statement.lineno))
            elif (
                isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call) and _is_report(statement.value.func)
            ):
                found += [(target.id, statement.lineno) for target in statement.targets if isinstance(target, ast.Name)]
        return found

    def problem(self) -> int | None:
        """The line of ``Model`` where the file is a problem as KernelBench has them: with its two functions of inputs."""
        if not all(word in self.text for word in ("class Model", "def get_inputs", "def get_init_inputs")):
            return None
        functions = {one.name for one in self.body if isinstance(one, ast.FunctionDef)}
        models = [one.lineno for one in self.body if isinstance(one, ast.ClassDef) and one.name == "Model"]
        return models[0] if models and functions >= {"get_inputs", "get_init_inputs"} else None

    def has_tests(self, functions: Sequence[str], classes: Sequence[str]) -> bool:
        """Whether pytest may find tests in it: by the prefixes of their names, or a class with a base that is called a test."""
        for one in self.body:
            if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)) and one.name.startswith(tuple(functions)):
                return True
            if isinstance(one, ast.ClassDef):
                bases = " ".join(ast.unparse(base) for base in one.bases)
                if "Test" in bases or one.name.startswith(tuple(classes)):
                    return True
        return False


def _is_report(node: ast.expr) -> bool:
    """Whether an expression is ``perf_report(...)``, of whatever module."""
    called = node.func if isinstance(node, ast.Call) else None
    return (isinstance(called, ast.Attribute) and called.attr == "perf_report") or (
        isinstance(called, ast.Name) and called.id == "perf_report"
    )


def _always(block: _Block) -> Iterator[ast.stmt]:
    """The statements that an import runs without a condition."""
    for statement in block:
        if isinstance(statement, (ast.With, ast.AsyncWith)):
            yield from _always(statement.body)
        elif isinstance(statement, ast.Try):
            if not any(_takes_exit(handler) for handler in statement.handlers):
                yield from _always(statement.body)
            yield from _always(statement.finalbody)
        elif isinstance(statement, (ast.Expr, ast.Assign, ast.AnnAssign, ast.Raise, ast.AugAssign)):
            yield statement


def _takes_exit(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or (isinstance(kind, ast.Name) and kind.id in ("SystemExit", "BaseException")) for kind in kinds)


def _calls(node: ast.AST) -> Iterator[ast.AST]:
    """Calls and raised names that run with a statement: none of a lambda's or a conditional expression's."""
    if isinstance(node, (ast.Lambda, ast.IfExp, ast.BoolOp)):
        return
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Name):
        yield node.exc
    if isinstance(node, ast.Call):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _calls(child)


def _ends(node: ast.AST, own: set[str]) -> bool:
    """Whether a call ends the process, or may for the command line of another program."""
    called = node.func if isinstance(node, ast.Call) else node
    if isinstance(called, ast.Attribute):
        if called.attr == "parse_args":
            return "parse_args" not in own and not (isinstance(node, ast.Call) and _given(node))
        return isinstance(called.value, ast.Name) and (called.value.id, called.attr) in _EXITS
    return isinstance(called, ast.Name) and ("", called.id) in _EXITS and called.id not in own


def _is_argv(target: ast.expr) -> bool:
    """Whether an assignment is to ``sys.argv``, whole or by a slice."""
    return ast.unparse(target.value if isinstance(target, ast.Subscript) else target) == "sys.argv"


def _given(call: ast.Call) -> bool:
    """Whether ``parse_args`` has its arguments, rather than those of the process."""
    values = [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "args")]
    return any(isinstance(value, (ast.List, ast.Tuple)) for value in values)


def _bound(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement of the module binds, which are then no builtins."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        yield statement.name
    elif isinstance(statement, ast.ImportFrom) and statement.module != "sys":
        yield from (alias.asname or alias.name for alias in statement.names)
