"""From the files of a run to the artifact: select the head, model each kernel, take the verdicts, rank. Never raises."""

from __future__ import annotations

import os
from collections.abc import Iterable

from . import inputs, peaks, peaktable
from .entry import STAGES, Entry, to_dict
from .inputs import Env, Row, TopN
from .judge import Judge
from .metrics import HEAD_MAX, HEAD_PCT
from .peaks import Peaks
from .record import TYPE_CHECKING, Record
from .units import printable

if TYPE_CHECKING:
    from .modelconfig import ModelConfig
    from .stagec import Book

#: The artifact format's version, the specification's; it changes with the format, not with the package.
SKILL_VERSION = "1"


class Sources(Record):
    """The files of one run, found or named. A path that is None was not found."""

    topn: str
    env: str | None = None
    config: str | None = None
    shapes: str | None = None
    peaks: str | None = None
    peaks_shipped: bool = True
    peaks_device: str | None = None
    targets: str | None = None
    counters: tuple[str, ...] = ()


class Report:
    """What analyze found: the peaks, the entries in order of pct_gpu_time, and everything it could not do."""

    def __init__(self, peaks: Peaks, errors: list[str], head_pct: float, head_max: int) -> None:
        self.peaks = peaks
        self.entries: list[Entry] = []
        self.degraded: list[dict[str, str]] = []
        self.skill_errors = errors
        self.head_pct, self.head_max = head_pct, head_max
        self.rows = 0
        self.head_share = 0.0

    @property
    def stage(self) -> str:
        return min((entry.stage for entry in self.entries), default="A", key=STAGES.index)

    def to_dict(self) -> dict[str, object]:
        """The artifact: plain builtins, ready for JSON."""
        return {
            "skill": "roofline",
            "skill_version": SKILL_VERSION,
            "gfx": self.peaks.gfx,
            "peaks": self.peaks.to_dict(),
            "stage": self.stage,
            "head_pct": self.head_pct,
            "head_max": self.head_max,
            "entries": [to_dict(entry) for entry in self.entries],
            "ranking_by_pct": [entry.name for entry in by_pct(self.entries)],
            "ranking_by_expected_gain": [entry.name for entry in by_expected_gain(self.entries)],
            "degraded": self.degraded,
            "skill_errors": self.skill_errors,
        }


def by_pct(entries: Iterable[Entry]) -> list[Entry]:
    """Every entry by its share of GPU time."""
    return sorted(entries, key=lambda entry: -(entry.pct_gpu_time or 0.0))


def by_expected_gain(entries: Iterable[Entry]) -> list[Entry]:
    """Rankable entries by expected gain, then the rest by share: an entry that cannot be ranked is never dropped."""
    return sorted(
        by_pct(entries),
        key=lambda entry: (0, -(entry.expected_e2e_gain_pct or 0.0)) if entry.rankable else (1, -(entry.pct_gpu_time or 0.0)),
    )


def find_sources(path: str) -> Sources:
    """The files beside ``path``, a directory or a Top-N file.

    Raises:
        ValueError: when there is no Top-N to analyse.
    """
    folder = path if os.path.isdir(path) else os.path.dirname(os.path.abspath(path))
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    topn = _topn_in(path, names) if os.path.isdir(path) else path
    if not os.path.isfile(topn):
        expected = f"{inputs.TOPN_NAME} in it" if os.path.isdir(path) else "a Top-N file or a directory with one"
        lists = _csv_lists(names) if os.path.isdir(path) else []
        if lists:
            expected = f"one Top-N list in it, found {', '.join(map(printable, lists))}: name one"
        raise ValueError(f"{printable(path)}: expected {expected}")
    table = peaktable.locate()
    return Sources(
        topn=topn,
        env=inputs.find(folder, inputs.ENV_NAME, 2),
        config=inputs.find(folder, inputs.CONFIG_NAME, 2),
        shapes=inputs.find(folder, inputs.SHAPES_NAME, 0),
        peaks=table,
        counters=tuple(
            os.path.join(folder, name) for name in names if name != os.path.basename(topn) and _is_counters(folder, name)
        ),
    )


def _topn_in(folder: str, names: list[str]) -> str:
    """profile_topN.json of a folder, or the one CSV in it that a profiler wrote as such a list."""
    topn = os.path.join(folder, inputs.TOPN_NAME)
    lists = [] if os.path.isfile(topn) else _csv_lists(names)
    return os.path.join(folder, lists[0]) if len(lists) == 1 else topn


def _csv_lists(names: list[str]) -> list[str]:
    if not any(name.lower().endswith(".csv") for name in names):
        return []
    from .topcsv import is_topn

    return [name for name in names if is_topn(name)]


def _is_counters(folder: str, name: str) -> bool:
    """By name; a JSON of results must also say that rocprofv3 wrote it, since many tools leave a results.json."""
    low = name.lower()
    if low.endswith(".csv"):
        return "counter" in low or low.startswith(("pmc_", "ncu"))
    if low.endswith("results.json"):
        try:
            with open(os.path.join(folder, name), "rb") as handle:
                return b"rocprofiler-sdk-tool" in handle.read(4096)
        except OSError:
            return False
    return low.endswith(".json") and "counter" in low


def analyze(sources: Sources, *, head_pct: float = HEAD_PCT, head_max: int = HEAD_MAX) -> Report | None:
    """Analyse one run. None is L0: the run asked for no analysis. Everything else that goes wrong is in the report."""
    errors: list[str] = []
    env = _read_env(sources.env, errors)
    if env.analysis_skill == "none":
        return None
    peaks = _targeted(_resolve(sources, env, errors), sources.targets, errors)
    report = Report(peaks, errors, head_pct, head_max)
    config = _read_config(sources.config, errors)
    shapes = _read_shapes(sources.shapes, errors)
    try:
        topn = _read_topn(sources.topn)
    except ValueError as error:
        errors.append(f"L5: {error}")
        return report
    errors += [f"L5: {problem}" for problem in topn.problems]
    _name_strangers(shapes, topn, errors)
    head = select_head(topn.rows, head_pct, head_max)
    report.rows, report.head_share = len(topn.rows), sum(row.pct for row in head)
    book = _read_counters(sources.counters, topn, env, report.peaks)
    judge = Judge(topn, env, config, shapes, report.peaks, book)
    report.entries = [judge.entry(row) for row in head]
    report.degraded += judge.degraded + (book.degraded if book else [])
    errors += judge.errors
    return report


def _read_topn(path: str) -> TopN:
    label = os.path.basename(path)
    if not path.lower().endswith(".csv"):
        return inputs.read_topn(inputs.read_json(path), label)
    from . import measured, topcsv

    return topcsv.read(measured.read_text(path), printable(label))


def _read_counters(paths: tuple[str, ...], topn: TopN, env: Env, peaks: Peaks) -> Book | None:
    """The counters of the run; loaded only where there are some, since most runs have none."""
    if not paths:
        return None
    from .stagec import Book

    return Book(paths, topn.rows, peaks.gfx or env.device.gfx, env.rocm_version)


def select_head(rows: Iterable[Row], head_pct: float, head_max: int) -> list[Row]:
    """Rows at or over the share, biggest first, at most ``head_max`` (0 is off for either)."""
    head = sorted((row for row in rows if row.pct >= head_pct), key=lambda row: -row.pct)
    return head[:head_max] if head_max else head


def _read_env(path: str | None, errors: list[str]) -> Env:
    if path is None:
        errors.append(f"L1: no {inputs.ENV_NAME}: the device, the dtype and the workload are unknown")
        return Env()
    try:
        env = inputs.read_env(inputs.read_json(path), os.path.basename(path))
    except ValueError as error:
        errors.append(f"L5: {error}")
        return Env()
    errors += [f"L5: {problem}" for problem in env.problems]
    return env


def _resolve(sources: Sources, env: Env, errors: list[str]) -> Peaks:
    table, measured, path, shipped = None, None, sources.peaks, sources.peaks_shipped
    if path is not None and not shipped:
        from . import ceilings, overlay

        given, path = path, peaktable.locate()  # measured ceilings lie over the shipped table
        try:
            measured = ceilings.read(given, sources.peaks_device)
            path = given if measured is None else path
        except (OSError, ValueError) as error:
            errors.append(f"L1: peaks: {error}")
        shipped = path != given
    if path is None:
        errors.append("L1: no peaks.md was found: peaks are null unless the device's properties give them")
    else:
        try:
            table = peaktable.load(path, shipped=shipped)
        except (OSError, ValueError) as error:
            errors.append(f"L1: peaks: {error}")
    try:
        found = peaks.resolve(table, env.device)
    except Exception as error:  # a table of the user's may hold anything
        errors.append(f"L1: peaks: {error}")
        return Peaks(gfx=env.device.gfx, source="derived", note="L1: the peak table could not be read")
    if measured is not None:
        try:
            found, refused = overlay.apply(found, measured, table)
            errors += [f"L1: peaks: {line}" for line in refused]
        except ValueError as error:
            errors.append(f"L1: peaks: {error}")
    return found


def _targeted(peaks: Peaks, path: str | None, errors: list[str]) -> Peaks:
    """The peaks with the observed targets of the file that was named."""
    if path is None:
        return peaks
    from .targets import read_targets

    try:
        return peaks._replace(targets=read_targets(path))
    except (OSError, ValueError) as error:
        errors.append(f"L5: targets not used: {error}")
        return peaks


def _read_config(path: str | None, errors: list[str]) -> ModelConfig | None:
    if path is None:
        return None
    from . import modelconfig  # not every run has one

    try:
        config = modelconfig.read(inputs.read_json(path))
    except ValueError as error:
        errors.append(f"L5: {error}")
        return None
    if config is None:
        errors.append(f"L5: {printable(path)}: not a model's config.json (no hidden_size)")
        return None
    errors += [f"L5: {problem}" for problem in config.problems]
    return config


def _read_shapes(path: str | None, errors: list[str]) -> dict[str, list[dict[str, object]]]:
    if path is None:
        return {}
    try:
        shapes, problems = inputs.read_shapes(inputs.read_json(path), os.path.basename(path))
    except ValueError as error:
        errors.append(f"L5: {error}")
        return {}
    errors += [f"L5: {problem}" for problem in problems]
    return shapes


def _name_strangers(shapes: dict[str, list[dict[str, object]]], topn: TopN, errors: list[str]) -> None:
    """Shapes for a kernel that no row names, or that several do, would be lost or misplaced in silence."""
    counts: dict[str, int] = {}
    for row in topn.rows:
        for name in {row.name, row.short_name}:
            counts[name] = counts.get(name, 0) + 1
    for name in list(shapes):
        count = counts.get(name, 0)
        if count == 0:
            errors.append(f"L5: {inputs.SHAPES_NAME}: no kernel of the Top-N is named {printable(name)[:60]}")
        elif count > 1:
            errors.append(f"L5: {inputs.SHAPES_NAME}: {count} rows are named {printable(name)[:60]}: not used")
            del shapes[name]
