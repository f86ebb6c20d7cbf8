"""The settings of a run, resolved once: command line, then ini, then ``[tool.roofline]`` or roofline.toml, then default."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from roofline_engine.roofline import ISOLATED_NOISE
from roofline_engine.units import number, printable

from .gate import TEST_KINDS, Gates
from .values import percent

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: The settings of the command line and of the ini file, by their names without ``roofline_``.
OPTIONS = (
    *("device", "peaks", "predictions", "baseline", "report", "fail_on", "fail_under", "ledger"),
    *("time", "match", "capture"),
)
INI_KEYS = ("device", "peaks", "fail_on", "fail_under", "noise", "junit", "item_timeout", "scripts")
#: Seconds for one child process: a task that times its cases, a script that sweeps sizes.
ITEM_TIMEOUT = 600.0
#: Report types and whether each needs a destination.
TYPES = {"term": False, "json": True, "md": True, "github": False}
#: The report types that are figures, by the suffix of the file.
FIGURES = ("html", "svg", "png", "pdf", "vl.json", "vg.json")
TYPES.update(dict.fromkeys(FIGURES, True))


class SettingsError(ValueError):
    """An invalid setting, in one line: its name, its value, and what was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one run."""

    device: str = "auto"
    peaks: Path | None = None
    predictions: Path | None = None
    baseline: Path | None = None
    ledger: Path | None = None
    targets: Path | None = None
    reports: tuple[tuple[str, str], ...] = (("term", ""),)  # type and destination
    fail_on: frozenset[str] = frozenset()  # keys of gate.TEST_KINDS
    fail_under: float | None = None  # percent of the roof
    noise: float = ISOLATED_NOISE  # a relative change
    junit: bool = True
    time: str | None = None  # a glob over nodeids
    match: Path | None = None
    capture: bool = True
    item_timeout: float = ITEM_TIMEOUT  # seconds for one child process of a collected file
    scripts: tuple[str, ...] = ()  # globs of script files to collect, see ``collect.scripts``
    work: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)  # glob over nodeids: work, in file order
    root: Path = Path()  # pytest's rootdir

    @property
    def gated(self) -> bool:
        """Whether a setting of this run can fail a test."""
        return bool(self.fail_on) or self.fail_under is not None

    @property
    def gates(self) -> Gates:
        """The gates that this run applies to each row."""
        return Gates(self.fail_on, self.fail_under)


class Project(BaseModel):
    """``[tool.roofline]`` of pyproject.toml, or roofline.toml."""

    model_config = ConfigDict(extra="forbid", strict=True)

    device: str | None = None
    peaks: str | None = None
    predictions: str | None = None
    baseline: str | None = None
    ledger: str | None = None
    targets: str | None = None
    report: list[str] | None = None
    fail_on: list[str] | None = None
    fail_under: int | float | None = None
    noise: int | float | None = None
    junit: str | None = None
    time: str | None = None
    match: str | None = None
    capture: str | None = None
    item_timeout: int | float | None = None
    scripts: list[str] | None = None
    work: dict[str, dict[str, Any]] = {}


def resolve(given: Mapping[str, Any], ini: Mapping[str, Any], root: Path) -> Settings:
    """The settings of one run.

    given: the command line's values by name (``fail_on``, ``report``, ...), None where an option was not used. ini: likewise.
    root: the folder of pyproject.toml; relative paths of the project's file start there, those of the command line where the
    user stands.

    Raises:
        SettingsError: for a value that cannot be meant.
    """
    project = read_project(root)
    told = project.model_dump(exclude={"work"})

    def first(name: str) -> tuple[Any, str]:
        for value, where in ((given.get(name), f"--roofline-{name.replace('_', '-')}"), (ini.get(name), f"roofline_{name}")):
            if value not in (None, "", []):
                return value, where
        return told.get(name), f"[tool.roofline] {name}"

    def path(name: str) -> Path | None:
        value, where = first(name)
        if value is None:
            return None
        return start(where) / str(value)

    def start(where: str) -> Path:
        """Where relative paths start; absolute from here on, since a test may change the working directory."""
        return (Path() if where.startswith("--") else root).absolute()

    device = first("device")[0] or "auto"
    reports, where = first("report")
    kinds, of_kinds = first("fail_on")
    under, of_under = first("fail_under")
    noise, of_noise = first("noise")
    junit, of_junit = first("junit")
    timeout, of_timeout = first("item_timeout")
    if junit not in (None, "full", "none"):
        raise SettingsError(f"{of_junit} is {junit!r}, expected full or none")
    capture, of_capture = first("capture")
    if capture not in (None, "auto", "off"):
        raise SettingsError(f"{of_capture} is {capture!r}, expected auto or off")
    return Settings(
        device=str(device).lower() if str(device).lower() in ("auto", "cpu") else str(device),
        peaks=path("peaks"),
        predictions=path("predictions"),
        baseline=path("baseline"),
        ledger=path("ledger"),
        targets=path("targets"),
        reports=_reports(reports, where, start(where)),
        fail_on=_kinds(kinds, of_kinds),
        fail_under=None if under is None else _percent(under, of_under),
        noise=ISOLATED_NOISE if noise is None else _number(noise, of_noise, 0, 1, "a fraction (0.034 is 3.4 %), at most"),
        junit=junit != "none",
        time=first("time")[0],
        match=path("match"),
        capture=capture != "off",
        item_timeout=ITEM_TIMEOUT if timeout is None else _number(timeout, of_timeout, 0.1, 86_400),
        scripts=tuple(first("scripts")[0] or ()),
        work=project.work,
        root=root,
    )


def read_project(root: Path) -> Project:
    """``roofline.toml`` in ``root``, else ``[tool.roofline]`` of its pyproject.toml.

    Raises:
        SettingsError: for a file that cannot be read, and for a key or value that is not known, by name.
    """
    own, shared = root / "roofline.toml", root / "pyproject.toml"
    source = own if own.is_file() else shared
    if not source.is_file():
        return Project()
    try:
        document = read_toml(source)
    except (OSError, ValueError) as error:
        if source is shared:  # pytest says it itself
            return Project()
        raise SettingsError(f"{source.name}: {error}") from None
    table = document if source is own else document.get("tool", {}).get("roofline", {})
    label = source.name if source is own else f"{source.name} [tool.roofline]"
    try:
        return Project.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the table"
        if first["type"] == "extra_forbidden":
            raise SettingsError(f"{label}: unknown key {where}, expected {', '.join(Project.model_fields)}") from None
        raise SettingsError(f"{label}: {where}: {first['msg']}, given {printable(repr(first['input']))[:60]}") from None


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        OSError: for a file that cannot be read.
        ValueError: for one that is not TOML.
    """
    document: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    return document


def _reports(values: Sequence[str] | None, where: str, start: Path) -> tuple[tuple[str, str], ...]:
    """``TYPE[:DEST]`` each; an empty one silences. A terminal section stays unless silenced."""
    found: dict[tuple[str, str], None] = {("term", ""): None}
    for value in values or ():
        if not value:
            found.pop(("term", ""), None)
            continue
        kind, _, destination = value.partition(":")
        if kind not in TYPES:
            raise SettingsError(f"{where}: unknown report type {kind!r}, expected {', '.join(TYPES)}, as in json:FILE")
        if TYPES[kind] and not destination:
            raise SettingsError(f"{where}: {kind} needs a destination, as in {kind}:roofline.{kind}")
        if kind in FIGURES:
            from .plot.output import MissingExtraError, require_extra

            try:
                require_extra()
            except MissingExtraError as error:
                raise SettingsError(f"{where}: {error}") from None
        if kind == "term" and destination:
            raise SettingsError(f"{where}: term takes no destination")
        found[kind, str(start / destination) if destination else ""] = None
    return tuple(found)


def _kinds(value: str | Sequence[str] | None, where: str) -> frozenset[str]:
    given = [value] if isinstance(value, str) else list(value or ())
    kinds = [kind.strip() for text in given for kind in text.split(",") if kind.strip()]
    unknown = [kind for kind in kinds if kind not in TEST_KINDS]
    if unknown:
        raise SettingsError(f"{where}: unknown kind {unknown[0]!r}, expected {', '.join(TEST_KINDS)}")
    return frozenset(kinds)


def _percent(value: Any, where: str) -> float:
    try:
        return percent(value, where)
    except ValueError as error:
        raise SettingsError(str(error)) from None


def _number(value: Any, where: str, low: float, high: float, most: str = "at most") -> float:
    try:
        result = float(number(value, where, minimum=low))
    except ValueError as error:
        raise SettingsError(str(error)) from None
    if result > high:
        raise SettingsError(f"{where} is {value}, expected {most} {high:g}")
    return result
