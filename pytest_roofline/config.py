"""The settings of a run, resolved once: command line, then ini, then ``[tool.roofline]`` or roofline.toml, then default."""

from __future__ import annotations

import dataclasses
import datetime
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator, model_validator

from roofline_engine.files import parse_document, read_text
from roofline_engine.roofline import ISOLATED_NOISE
from roofline_engine.units import number, printable

from .gate import KINDS, LIMITS, SKIPS, Allowance, Gates, read_kinds
from .values import percent

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: The settings of the command line and of the ini file, by their names without ``roofline_``.
OPTIONS = (
    *("device", "peaks", "predictions", "baseline", "report", "fail_on", "fail_under", "allow_unchecked", "ledger"),
    *("time", "match", "capture", "cache", "save", "compare", "storage"),
)
INI_KEYS = ("device", "peaks", "fail_on", "fail_under", "allow_unchecked", "noise", "junit", "item_timeout", "scripts")
#: The folder of saved runs in the root of a project.
FOLDER = ".roofline"
#: Seconds for one child process: a task that times its cases, a script that sweeps sizes.
ITEM_TIMEOUT = 600.0
#: Report types and whether each needs a destination.
TYPES = {"term": False, "json": True, "md": True, "github": False}
#: The report types that are figures, by the suffix of the file.
FIGURES = ("html", "svg", "png", "pdf", "vl.json", "vg.json")
TYPES.update(dict.fromkeys(FIGURES, True))
#: What an option or a key without a value may be.
_UNSET: tuple[Any, ...] = (None, "", [])
#: Settings that an empty value must not turn off: an unset variable of a CI job would.
_NEVER_EMPTY = ("fail_on", "fail_under", "allow_unchecked")
#: Keys of ``[tool.roofline]`` that ask for a gate.
_GATE_KEYS = ("fail_on", "fail_under", "allow", "allow_unchecked")


class SettingsError(ValueError):
    """An invalid setting, in one line: its name, its value, and what was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one run."""

    device: str = "auto"
    peaks: Path | None = None
    predictions: Path | None = None
    baseline: Path | None = None
    save: str | None = None  # the name of the run to save; empty: the branch's
    compare: str | None = None  # the saved run to compare with; empty: the latest that passed
    storage: Path = Path(FOLDER)
    ledger: Path | None = None
    targets: Path | None = None
    reports: tuple[tuple[str, str], ...] = (("term", ""),)  # type and destination
    fail_on: frozenset[str] = frozenset()  # keys of gate.KINDS
    fail_under: float | None = None  # percent of the roof
    allow_unchecked: frozenset[str] = frozenset()  # keys of gate.SKIPS
    allow: tuple[Allowance, ...] = ()
    problems: tuple[str, ...] = ()  # tables that are not read
    noise: float = ISOLATED_NOISE  # a relative change
    junit: bool = True
    time: str | None = None  # a glob over nodeids
    match: Path | None = None
    capture: bool = True
    cache: Literal["auto", "cold"] = "auto"  # cold: the caches of the host are evicted before each round of a benchmark
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
        return Gates(self.fail_on, self.fail_under, self.allow, self.allow_unchecked, datetime.date.today())


class AllowEntry(BaseModel):
    """``[[tool.roofline.allow]]``: what a gate may find."""

    model_config = ConfigDict(extra="forbid", strict=True)

    test: str | None = None  # a glob over nodeids
    record: str | None = None  # a glob over "FILE ROW" or the names of records
    kind: str
    reason: str
    until: datetime.date

    @field_validator("until", mode="before")
    @classmethod
    def _read_date(cls, value: Any) -> Any:
        """Read a quoted date, too."""
        try:
            return datetime.date.fromisoformat(value) if isinstance(value, str) else value
        except ValueError:
            raise ValueError("expected a date, as in 2026-12-31") from None

    @model_validator(mode="after")
    def _check(self) -> AllowEntry:
        kinds = (*KINDS, *LIMITS, *SKIPS)
        if (self.test is None) == (self.record is None):
            raise ValueError("expected one of test and record, a glob")
        if not (self.test or self.record or "").strip("*?"):
            raise ValueError("its glob covers every row or none: name the rows, or leave the kind out of the gate")
        if self.kind not in kinds:
            raise ValueError(f"unknown kind {self.kind!r}, expected one of {', '.join(kinds)}")
        if not self.reason.strip():
            raise ValueError("reason is empty")
        return self

    def to_allowance(self) -> Allowance:
        """Return the entry as the gates use it."""
        target = "test" if self.test is not None else "record"
        return Allowance(self.test or self.record or "", target, self.kind, self.reason, self.until)


class Project(BaseModel):
    """``[tool.roofline]`` of pyproject.toml, or roofline.toml."""

    model_config = ConfigDict(extra="forbid", strict=True)

    device: str | None = None
    peaks: str | None = None
    predictions: str | None = None
    baseline: str | None = None
    storage: str | None = None
    ledger: str | None = None
    targets: str | None = None
    report: list[str] | None = None
    fail_on: list[str] | None = None
    fail_under: int | float | None = None
    allow_unchecked: bool | list[str] | None = None
    allow: list[AllowEntry] = []
    noise: int | float | None = None
    junit: str | None = None
    time: str | None = None
    match: str | None = None
    capture: str | None = None
    cache: str | None = None
    item_timeout: int | float | None = None
    scripts: list[str] | None = None
    work: dict[str, dict[str, Any]] = {}


def resolve(options: Mapping[str, Any], ini: Mapping[str, Any], root: Path) -> Settings:
    """Return the settings of one run.

    options, ini: the values of the command line and of the ini file by name (``fail_on``, ``report``, ...), None where unset.
    root: the folder of pyproject.toml. Relative paths of the project's files start there, those of the command line in the
    working directory.

    Raises:
        SettingsError: for an invalid value.
    """
    project, shadowed = read_project(root)
    in_project = project.model_dump(exclude={"work", "allow"})

    def get(name: str) -> tuple[Any, str]:
        """Return the value of a setting, and the option or key that gave it."""
        for value, where in ((options.get(name), f"--roofline-{name.replace('_', '-')}"), (ini.get(name), f"roofline_{name}")):
            if value not in _UNSET or (name in _NEVER_EMPTY and value is not None):
                return value, where
        return in_project.get(name), f"[tool.roofline] {name}"

    def folder_of(name: str) -> Path:
        """Return the folder of relative paths, absolute, since a test may change the working directory."""
        return (Path() if options.get(name) not in _UNSET else root).absolute()

    def path(name: str) -> Path | None:
        value, _ = get(name)
        return None if value is None else folder_of(name) / str(value)

    def choice(name: str, *choices: str) -> str:
        value, where = get(name)
        if value not in (None, *choices):
            raise SettingsError(f"{where} is {value!r}, expected {' or '.join(choices)}")
        return value or choices[0]

    def saved(name: str) -> str | None:
        value = options.get(name)
        return "" if value is True else value

    device = str(get("device")[0] or "auto")
    reports, report_source = get("report")
    kinds, kinds_source = get("fail_on")
    under, under_source = get("fail_under")
    try:
        settings = Settings(
            device=device.lower() if device.lower() in ("auto", "cpu") else device,
            peaks=path("peaks"),
            predictions=path("predictions"),
            baseline=path("baseline"),
            save=saved("save"),
            compare=saved("compare"),
            storage=path("storage") or root.absolute() / FOLDER,
            ledger=path("ledger"),
            targets=path("targets"),
            reports=_reports(reports, report_source, folder_of("report")),
            fail_on=frozenset() if kinds is None else read_kinds(kinds, kinds_source),
            fail_under=None if under is None else percent(under, under_source),
            allow_unchecked=read_codes(*get("allow_unchecked")),
            allow=tuple(entry.to_allowance() for entry in project.allow),
            problems=(shadowed.line,) if shadowed is not None else (),
            noise=_number(*get("noise"), ISOLATED_NOISE, 0, 1, "a fraction (0.034 is 3.4 %), at most"),
            junit=choice("junit", "full", "none") == "full",
            time=get("time")[0],
            match=path("match"),
            capture=choice("capture", "auto", "off") == "auto",
            cache="cold" if choice("cache", "auto", "cold") == "cold" else "auto",
            item_timeout=_number(*get("item_timeout"), ITEM_TIMEOUT, 0.1, 86_400),
            scripts=tuple(get("scripts")[0] or ()),
            work=project.work,
            root=root,
        )
    except ValueError as error:
        raise SettingsError(str(error)) from None
    if shadowed is not None and (settings.gated or shadowed.has_gate):
        raise SettingsError(shadowed.line)
    return settings


class Shadowed(NamedTuple):
    """``[tool.roofline]`` of a pyproject.toml beside a roofline.toml, which alone is read."""

    line: str
    has_gate: bool  # whether the table asks for a gate


def read_project(root: Path) -> tuple[Project, Shadowed | None]:
    """Read ``roofline.toml`` in ``root``, else ``[tool.roofline]`` of its pyproject.toml; return an unread table, too.

    Raises:
        SettingsError: for a file that cannot be read, and for an unknown key or an invalid value.
    """
    own, shared = root / "roofline.toml", root / "pyproject.toml"
    table = _read_table(shared, "tool", "roofline") if os.path.lexists(shared) else None
    if not os.path.lexists(own):
        return (Project(), None) if table is None else (_validate_project(table, "pyproject.toml [tool.roofline]"), None)
    project = _validate_project(_read_table(own), own.name)
    if table is None:
        return project, None
    line = "pyproject.toml [tool.roofline] is not read: roofline.toml is next to it. Keep one of the two"
    return project, Shadowed(line, isinstance(table, dict) and any(key in table for key in _GATE_KEYS))


def _read_table(path: Path, *keys: str) -> Any:
    """Return a table of a TOML file, None where the file has none.

    Raises:
        SettingsError: for a file that cannot be read: a gate may be in it.
    """
    if not path.is_file():
        raise SettingsError(f"{path.name}: is no regular file, or a link to a missing one")
    try:
        table: Any = read_toml(path)
    except ValueError as error:
        raise SettingsError(str(error)) from None
    for key in keys:
        table = table.get(key) if isinstance(table, dict) else None
    return table


def _validate_project(table: Any, label: str) -> Project:
    try:
        return Project.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the table"
        if first["type"] == "extra_forbidden":
            fields = (AllowEntry if first["loc"][0] == "allow" else Project).model_fields
            raise SettingsError(f"{label}: unknown key {where}, expected {', '.join(fields)}") from None
        raise SettingsError(f"{label}: {where}: {first['msg']}, given {printable(repr(first['input']))[:60]}") from None


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        ValueError: one line with the file, for one that cannot be read or is not TOML.
    """
    text = read_text(str(path)).replace("\r\n", "\n")
    return cast("dict[str, Any]", parse_document(tomllib.loads, text, printable(path.name)))


def _reports(values: Sequence[str] | None, where: str, folder: Path) -> tuple[tuple[str, str], ...]:
    """Parse ``TYPE[:DEST]`` each. The terminal section stays unless an empty value turns it off."""
    reports: dict[tuple[str, str], None] = {("term", ""): None}
    for value in values or ():
        if not value:
            reports.pop(("term", ""), None)
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
        reports[kind, str(folder / destination) if destination else ""] = None
    return tuple(reports)


def read_codes(value: bool | str | Sequence[str] | None, where: str) -> frozenset[str]:
    """Return the codes of unchecked rows that do not fail a run: all for true, none for false, or those that are listed.

    Raises:
        ValueError: for an unknown code, and for an empty value.
    """
    if value is None or isinstance(value, bool):
        return frozenset(SKIPS if value else ())
    texts = [value] if isinstance(value, str) else list(value)
    codes = [code for text in texts for part in text.split(",") if (code := part.strip())]
    if codes in (["true"], ["false"]):
        return frozenset(SKIPS if codes == ["true"] else ())
    unknown = [code for code in codes if code not in SKIPS]
    if unknown or not codes:
        given = f"unknown code {printable(repr(unknown[0]))[:60]}" if unknown else "is empty"
        raise ValueError(f"{where}: {given}, expected true, false or codes of {', '.join(SKIPS)}")
    return frozenset(codes)


def _number(value: Any, where: str, default: float, low: float, high: float, most: str = "at most") -> float:
    if value is None:
        return default
    result = float(number(value, where, minimum=low))
    if result > high:
        raise SettingsError(f"{where} is {value}, expected {most} {high:g}")
    return result
