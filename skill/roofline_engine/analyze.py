"""Analyze a run: read its files, select the head, model each kernel, take the verdicts, rank. Never raises."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from . import advice, inputs
from .fields import ARTIFACT_VERSION, STAGES, Degradation, Entry, Note, note, tidy_notes, to_dict
from .files import READ_ERRORS, open_binary, read_json, read_text
from .inputs import Copy, Env, Row, TopN, typical_time
from .kernels import Hint, classify
from .ops import OPS, op_class, op_name, work
from .peaks import Device, Peaks
from .peaks_measured import CeilingsError, PeakFiles, open_peaks
from .roofline import HEAD_MAX, HEAD_PCT, SUSPECT_LOW, assess, mark_unmodeled, roof_axes, route
from .units import number, printable
from .work import Work, combine_shapes, heaviest_label, scale_work, widen_range

# A run may have no config.json and no counters, and analyze runs after every serving run: these load where they are used.
if TYPE_CHECKING:
    from .config.model import ModelConfig
    from .counters.read import CounterSet
    from .profiles.form import Profile
    from .profiles.output import Op
    from .profiles.ranks import RankTable


class Sources(NamedTuple):
    """The files of one run. None: the run has no such file."""

    topn: str  # a Top-N, or a profile that ties kernels to operations
    env: str | None = None
    config: str | None = None
    shapes: str | None = None
    peaks: str | None = None  # in place of the shipped table, or ceilings to lay over it
    peaks_device: str | None = None
    targets: str | None = None
    counters: Sequence[str] = ()
    device: str | None = None  # the device by name, in place of what the files say
    shapes_from: str | None = None  # the trace of the capture of the graphs that the profile replays
    ranks: Sequence[str] = ()  # profiles of the other ranks
    remarks: Sequence[str] = ()  # which profiles of a folder are read, and which are not

    def paths(self) -> tuple[str, ...]:
        """Return every file of the run."""
        named = (self.topn, self.env, self.config, self.shapes, self.peaks, self.targets, self.shapes_from)
        return (*(path for path in named if path is not None), *self.counters, *self.ranks)


class Report:
    """The result of a run: the peaks, the entries in order of pct_gpu_time, and everything that could not be done."""

    def __init__(self, peaks: Peaks, errors: list[Degradation], head_pct: float, head_max: int) -> None:
        self.peaks, self.skill_errors = peaks, errors
        self.entries: list[Entry] = []
        self.degraded: list[Degradation] = []
        self.head_pct, self.head_max = head_pct, head_max
        self.rows, self.head_share = 0, 0.0
        self.copies: tuple[Copy, ...] = ()
        self.profile: Profile | None = None  # what the rows were read from, if it is more than a Top-N
        self.ops: list[Op] = []  # every operation of the profile
        self.remarks: Sequence[str] = ()  # on the files that were read
        self.ranks: RankTable | None = None  # where several ranks were read; the profile is then the slowest

    @property
    def stage(self) -> str:
        return min((entry.stage for entry in self.entries), default="A", key=STAGES.index)

    def to_dict(self) -> dict[str, object]:
        """The artifact: plain builtins, ready for JSON."""
        if self.profile is not None:
            from .profiles.output import profile_fields

            ranks = self.ranks.fields() if self.ranks is not None else {}
            return {**self._fields(), **profile_fields(self.profile, self.ops, self.remarks), **ranks}
        return self._fields()

    def _fields(self) -> dict[str, object]:
        return {
            "skill": "roofline",
            "skill_version": ARTIFACT_VERSION,
            "gfx": self.peaks.gfx,
            "peaks": self.peaks.to_dict(),
            "stage": self.stage,
            "head_pct": self.head_pct,
            "head_max": self.head_max,
            "entries": [to_dict(entry) for entry in self.entries],
            "ranking_by_pct": [entry.name for entry in by_pct(self.entries)],
            "ranking_by_expected_gain": [entry.name for entry in by_expected_gain(self.entries)],
            "copies": [{"name": item.name, "pct_gpu_time": item.pct} for item in self.copies],
            "degraded": [{"name": item.name, "reason": str(item)} for item in self.degraded],
            "skill_errors": list(map(str, self.skill_errors)),
        }


def by_pct(entries: Iterable[Entry]) -> list[Entry]:
    """Every entry by its share of GPU time."""
    return sorted(entries, key=lambda entry: -(entry.pct_gpu_time or 0.0))


def by_expected_gain(entries: Iterable[Entry]) -> list[Entry]:
    """Rankable entries by expected gain, then the rest by share: an entry that cannot be ranked is never dropped."""
    last = float("inf")
    return sorted(by_pct(entries), key=lambda entry: -(entry.expected_e2e_gain_pct or 0.0) if entry.rankable else last)


def find_sources(path: str) -> Sources:
    """Find the files of a run at ``path``, a directory or a Top-N file. Raises ValueError when the Top-N is missing."""
    is_folder = os.path.isdir(path)
    folder = path if is_folder else os.path.dirname(os.path.abspath(path))
    topn = os.path.join(path, inputs.TOPN_NAME) if is_folder else path
    found = None
    if is_folder and not os.path.isfile(topn):
        from .profiles import find_profiles

        found = find_profiles(path)
        if found is None:
            raise ValueError(f"{printable(path)}: expected {inputs.TOPN_NAME} or the output of a profiler in it")
        topn = found.paths[0]
        if len(found.paths) > 1 and inputs.is_topn_csv(topn):
            lists = ", ".join(printable(os.path.basename(name)) for name in found.paths)
            raise ValueError(f"{printable(path)}: expected one Top-N list in it, found {lists}: name one")
    if not os.path.isfile(topn):
        raise ValueError(f"{printable(path)}: expected a Top-N file, a profile, or a directory with one")
    beside = os.path.dirname(topn)
    names = [] if not is_folder and _is_counted(path) else sorted(os.listdir(beside or "."))
    counters = [os.path.join(beside, name) for name in names if _is_counters(beside, name)]
    counters = [name for name in counters if os.path.abspath(name) != os.path.abspath(topn)]
    return Sources(
        topn=topn,
        env=inputs.find(folder, inputs.ENV_NAME, 2),
        config=inputs.find(folder, inputs.CONFIG_NAME, 2),
        shapes=inputs.find(folder, inputs.SHAPES_NAME, 0),
        counters=tuple(dict.fromkeys((*counters, *(found.counters if found else ())))),
        ranks=found.paths[1:] if found else (),
        remarks=found.remarks if found else (),
    )


def _is_counted(path: str) -> bool:
    """Whether a file that is named has counters itself; those of other files are then of other runs."""
    from .profiles import Reader, find_reader

    if os.path.basename(path) == inputs.TOPN_NAME or inputs.is_topn_csv(path):
        return False
    reader = find_reader(path)
    return isinstance(reader, Reader) and reader.is_counted


def _is_counters(folder: str, name: str) -> bool:
    """Whether a file has counters, by its name; a results.json must also name rocprofv3, since many tools write one."""
    low = name.lower()
    if low.endswith(".csv"):
        return "counter" in low or low.startswith(("pmc_", "ncu"))
    if low.endswith("results.json"):
        try:
            with open_binary(os.path.join(folder, name)) as stream:
                return b"rocprofiler-sdk-tool" in stream.read(4096)
        except (*READ_ERRORS, ValueError):
            return False
    return low.endswith(".json") and "counter" in low


def select_head(rows: Iterable[Row], head_pct: float, head_max: int) -> list[Row]:
    """Return the rows at or over the share, biggest first, at most ``head_max`` (0 is off for either).

    The share is that of the time without communication where a profile tells it.
    """
    head = sorted((row for row in rows if (row.compute_pct or row.pct) >= head_pct), key=lambda row: -row.pct)
    return head[:head_max] if head_max else head


def analyze(
    sources: Sources, *, head_pct: float = HEAD_PCT, head_max: int = HEAD_MAX, more_ranks: Sequence[str] = ()
) -> Report | None:
    """Analyze one run. None is L0: the run asked for no analysis. Everything else that goes wrong is in the report.

    more_ranks: further profiles of other ranks; the verdicts are then of the slowest rank.
    """
    reader = _Reader(sources)
    profile = reader.profile()
    ranks = None
    more_ranks = (*sources.ranks, *more_ranks)
    if more_ranks:
        profile, ranks = reader.slowest(profile, more_ranks)
    env = reader.env(profile)
    if env.analysis_skill == "none":
        return None
    report = Report(reader.peaks(env), reader.errors, head_pct, head_max)
    config, shapes = reader.config(), reader.shapes()
    topn = reader.topn(profile)
    if topn is None:
        return report
    report.profile, report.ranks, report.remarks = profile, ranks, sources.remarks
    reader.drop_ambiguous(shapes, topn)
    head = select_head(topn.rows, head_pct, head_max)
    report.rows, report.head_share = len(topn.rows), sum(row.pct for row in head)
    report.copies = topn.copies
    counters = None
    files = (sources.topn, *sources.counters) if profile is not None and profile.is_counted else sources.counters
    if files:
        from .counters.read import CounterSet

        counters = CounterSet(files, topn.rows, report.peaks.gfx or env.device.gfx, env.rocm_version)
    neighbors = lru_cache(maxsize=None)(partial(advice.find_neighbors, topn.rows))
    run = Run(topn, env, config, shapes, report.peaks, counters, neighbors)
    for row in head:
        builder = EntryBuilder(run, row)
        report.entries.append(builder.build())
        report.degraded += builder.degraded
        report.skill_errors += builder.errors
    report.degraded += counters.degraded if counters else []
    if profile is not None:
        from .profiles.output import Op
        from .profiles.rows import op_rows

        report.ops = [Op(EntryBuilder(run, op.row).build(), op) for op in op_rows(profile)]
    return report


T = TypeVar("T")


class _Reader:
    """Reads the files of one run. ``errors`` has a line for each that cannot be read, or only in part."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._is_unreadable = False
        self.errors: list[Degradation] = []

    def _refuse(self, *problems: object, level: str = "L5") -> None:
        self.errors += [Degradation(level, str(problem)) for problem in problems]

    def _read(self, path: str | None, parse: Callable[[Any, str], T], load: Callable[[str], object] = read_json) -> T | None:
        """Parse a file; None where it is not given or not understood."""
        try:
            return None if path is None else parse(load(path), printable(os.path.basename(path)))
        except ValueError as error:
            self._refuse(error)
            return None

    def profile(self) -> Profile | None:
        """The profile that is given in place of a Top-N; None where a Top-N is given, or the profile cannot be read."""
        path = self._sources.topn
        if os.path.basename(path) == inputs.TOPN_NAME or inputs.is_topn_csv(path):
            return None
        return self._read_profile(path)

    def slowest(self, first: Profile | None, paths: Sequence[str]) -> tuple[Profile | None, RankTable]:
        """Return the rank whose kernels take longest, and the table of all; each file is dropped before the next."""
        from .profiles.ranks import RankTable

        table = RankTable()
        slowest, longest = first, None if first is None else table.add(first)
        for path in paths:
            profile = self._read_profile(path)
            if profile is None:
                continue
            total = table.add(profile)
            if longest is None or (total.compute_us, total.kernels_us) > (longest.compute_us, longest.kernels_us):
                slowest, longest = profile, total
        self._is_unreadable = slowest is None
        return slowest, table

    def _read_profile(self, path: str) -> Profile | None:
        """The profile in a file; None where it is none, or cannot be read."""
        from .profiles import find_reader  # most runs have a Top-N

        profile_reader = find_reader(path)
        if profile_reader is None:
            return None
        try:
            return profile_reader.read(path, self._sources.shapes_from)
        except ValueError as error:
            self._refuse(error)
            self._is_unreadable = True
            return None

    def env(self, profile: Profile | None = None) -> Env:
        """The facts of the run; the device of a profile is the one it was made on."""
        beside = inputs.read_surroundings(self._sources.topn)
        device = profile.device if profile is not None else Device()
        env = self._env(has_device=device != Device() or beside.device != Device())
        if device.device_name or device.gfx:
            env = env._replace(device=device)
        if env.device.device_name is None and env.device.gfx in (None, beside.device.gfx) and beside.device != Device():
            env = env._replace(device=beside.device)
            self._refuse(*beside.problems)
        if env.rocm_version is None:
            env = env._replace(rocm_version=beside.rocm_version)
        return env if self._sources.device is None else env._replace(device=Device(device_name=self._sources.device))

    def _env(self, has_device: bool) -> Env:
        if self._sources.env is None and not has_device and self._sources.device is None:
            unknown = "the device, the dtype and the workload are unknown; --device names the device"
            self._refuse(f"{inputs.ENV_NAME} is missing: {unknown}", level="L1")
        env = self._read(self._sources.env, inputs.read_env) or Env()
        self._refuse(*env.problems)
        return env

    def peaks(self, env: Env) -> Peaks:
        """The peaks of the device, under measured ceilings and with observed targets where the caller named such files."""
        peaks = self._rated_peaks(env)
        if self._sources.targets is None:
            return peaks
        try:
            return peaks._replace(targets=inputs.read_targets(self._sources.targets))
        except (OSError, ValueError) as error:
            self._refuse(f"targets not used: {error}")
            return peaks

    def _rated_peaks(self, env: Env) -> Peaks:
        sources, files = self._sources, PeakFiles(None)
        for path in (sources.peaks, None):
            try:
                files = open_peaks(path, sources.peaks_device)
                if files.table is None:
                    self._refuse("peaks.md is missing: peaks are null unless the device's properties give them", level="L1")
                break
            except CeilingsError as error:  # the shipped table stands without them
                self._refuse(f"peaks: {error}", level="L1")
            except (OSError, ValueError) as error:  # no other table stands in for the one that was named
                self._refuse(f"peaks: {error}", level="L1")
                break
        try:
            peaks = files.rated(sources.device or env.device)
        except Exception as error:  # a user's table may hold anything
            self._refuse(f"peaks: {error}", level="L1")
            return Peaks(gfx=env.device.gfx, source="derived", note="the peak table could not be read (L1)")
        try:
            peaks, refused = files.lay_over(peaks)
            self._refuse(*(f"peaks: {line}" for line in refused), level="L1")
        except ValueError as error:
            self._refuse(f"peaks: {error}", level="L1")
        return peaks

    def config(self) -> ModelConfig | None:
        config = self._read(self._sources.config, _parse_config)
        self._refuse(*(config.problems if config else ()))
        return config

    def shapes(self) -> dict[str, list[dict[str, object]]]:
        shapes, problems = self._read(self._sources.shapes, inputs.read_shapes) or ({}, [])
        self._refuse(*problems)
        return shapes

    def topn(self, profile: Profile | None = None) -> TopN | None:
        if profile is not None:
            from .profiles.rows import topn_of

            self._refuse(*profile.problems)
            return topn_of(profile)
        if self._is_unreadable:
            return None
        path = self._sources.topn
        is_csv = path.lower().endswith(".csv")
        if not is_csv and not path.lower().endswith((".json", ".json.gz")) and not _starts_as_json(path):
            label = printable(os.path.basename(path))
            self._refuse(f"{label}: of no known format: expected the output of a profiler, or a Top-N as JSON or CSV")
            return None
        topn = self._read(path, inputs.read_topn_csv, read_text) if is_csv else self._read(path, inputs.read_topn)
        self._refuse(*(topn.problems if topn else ()))
        return topn

    def drop_ambiguous(self, shapes: dict[str, list[dict[str, object]]], topn: TopN) -> None:
        """Report shapes for a kernel that no row names, and drop those that several rows name."""
        counts = Counter(name for row in topn.rows for name in {row.name, row.short_name})
        for name in list(shapes):
            if counts[name] == 0:
                self._refuse(f"{inputs.SHAPES_NAME}: no kernel of the Top-N is named {printable(name)[:60]}")
            elif counts[name] > 1:
                self._refuse(f"{inputs.SHAPES_NAME}: {counts[name]} rows are named {printable(name)[:60]}: not used")
                del shapes[name]


def _starts_as_json(path: str) -> bool:
    try:
        with open_binary(path) as stream:
            return stream.read(64).lstrip(b"\xef\xbb\xbf\xff\xfe \t\r\n\0")[:1] in (b"{", b"[")
    except (*READ_ERRORS, ValueError):
        return True  # the reading names what is wrong


def _parse_config(data: object, label: str) -> ModelConfig:
    from .config.model import read

    config = read(data)
    if config is None:
        raise ValueError(f"{label}: not a model's config.json (no hidden_size)")
    return config


#: Captured calls are the row's launches when they add up to them within this.
_SAME_CALLS = 0.02
#: A base_latency_ms this many times the average over all launches, or as many times under it, is worth a remark. Our own
#: value: launches of two regimes differ by less in most profiles, a wrong unit by 1000.
_FAR = 2.0
#: A launch of up to this many dispatch floors may do next to nothing: a scalar takes as long as a megabyte.
_SHORT = 4.0


class Case(NamedTuple):
    """One captured shape."""

    work: Work
    calls: float  # how often it ran
    t_s: float | None = None  # its own time, where given
    launches: float | None = None  # its launches, where given


class Run(NamedTuple):
    """What every entry of one run needs."""

    topn: TopN
    env: Env
    config: ModelConfig | None
    shapes: dict[str, list[dict[str, object]]]
    peaks: Peaks
    counters: CounterSet | None
    neighbors: Callable[[], list[Row]]  # the small kernels; only a saturated entry asks, and a long profile has many names


class EntryBuilder:
    """Builds the entry of one row: its time, its work, its unit, its verdict. A row that fails costs only itself."""

    def __init__(self, run: Run, row: Row) -> None:
        self.run, self.row = run, row
        self._is_noisy = False
        self.notes: list[Note] = []
        self.degraded: list[Degradation] = []
        self.errors: list[Degradation] = []

    def _note(self, text: str) -> None:
        self.notes.append(note(text))

    def build(self) -> Entry:
        """Return the entry; ``degraded`` and ``errors`` hold what could not be done."""
        row, run = self.row, self.run
        captured = [dict(row.case)] if row.case else run.shapes.get(row.name) or run.shapes.get(row.short_name)
        if row.pct_basis:
            self._note(f"pct_gpu_time computed from times, of {row.pct_basis}")
        regime = self._regime()
        hint = classify(row.name, row.classification, regime)
        entry = Entry(
            name=row.name,
            short_name=row.short_name,
            pct_gpu_time=row.pct,
            regime=regime,
            op=hint.op,
            stage="B" if captured else "A",
            editable=row.editable,
            t_ms=self._launch_ms(regime),
            launches_per_step=row.launches_per_step,
            framework_op=row.framework_op,
            shape=row.shape,
            calls=row.calls,
        )
        self.notes += [note(text) for text in row.remarks]
        try:
            cases = self._captured_cases(captured) if captured else [self._guessed_case(hint, regime)]
            entry = self._assess(entry, cases)
            self.notes += advice.remarks(entry, run.peaks)
        except ValueError as error:  # L2, CannotModelError included
            entry = self._counted(entry) or self._unmodeled(
                entry, hint, Degradation("L2", str(error), row.name), "no_work_model"
            )
        except Exception as error:  # L5: a bug of the engine must not cost the other entries
            name = type(error).__name__
            self.errors.append(Degradation("L5", f"the helper failed at {printable(row.name)[:60]}: {name}: {error}"))
            entry = self._unmodeled(entry, hint, Degradation("L5", f"{name} while modeling it", row.name), "model_error")
        entry = entry._replace(route=route(entry), notes=tidy_notes(self.notes))
        return advice.attach(entry, run.neighbors, run.env.backends)

    def _counted(self, entry: Entry) -> Entry | None:
        """The entry by its hardware counters alone; None where they do not hold."""
        if self.run.counters is None or entry.t_ms is None:
            return None
        swing = float("inf") if self._is_noisy else 1.0
        alone = entry._replace(launches_per_unit=1.0, t_unit_ms=entry.t_ms)
        counted = self.run.counters.assess_unmodeled(alone, self.run.peaks, swing=swing)
        if counted is None:
            return None
        self.notes = [note("unit: one launch", "unit"), *counted[1], *self.notes]
        return counted[0]

    def _unmodeled(self, entry: Entry, hint: Hint, reason: Degradation, code: str) -> Entry:
        self.degraded.append(reason)
        self.notes.insert(0, note(reason.show(), code))
        return mark_unmodeled(entry, hint.op, op_class(hint.op))

    def _assess(self, entry: Entry, cases: list[Case]) -> Entry:
        launches, is_known = self._launches(cases)
        total, conflict = cases[0].work, not is_known
        if len(cases) > 1:
            entry, total, same_roof = self._combine(entry, cases, launches)
            conflict = conflict or not same_roof
        t_unit_ms = entry.t_ms * launches if entry.t_ms is not None else None
        entry = entry._replace(launches_per_unit=launches, t_unit_ms=t_unit_ms)
        self.notes[:0] = total.notes
        swing = float("inf") if self._is_noisy else 1.0
        if self.run.counters is None:
            floors = (entry.t_ms or 0.0) / 1e3 / self.run.peaks.dispatch_floor_s
            is_short = self.row.case is not None and floors <= _SHORT  # a trace ties the time of a launch to its shapes
            lowest = 0.0 if is_short else SUSPECT_LOW
            return assess(entry, total, self.run.peaks, conflict=conflict, swing=swing, lowest=lowest)
        entry, notes = self.run.counters.assess(entry, total, self.run.peaks, conflict=conflict, swing=swing, shapes=len(cases))
        self.notes += notes
        return entry

    def _combine(self, entry: Entry, cases: list[Case], launches: float) -> tuple[Entry, Work, bool]:
        """Combine several shapes into one work, and say whether one ratio can describe them.

        With a time for each, their rates are weighted by calls x time on the roof where most of it goes, dispatch-bound
        shapes apart; a note gives the share left out. With the Top-N's one time, shapes on different roofs give no verdict.
        """
        floor_s = self.run.peaks.dispatch_floor_s
        roofs = roof_axes([case.work for case in cases], self.run.peaks)
        if entry.t_ms is not None and all(case.t_s for case in cases):
            times = [case.t_s or 0.0 for case in cases]
            roofs = ["dispatch" if t_s / launches <= floor_s else roof for t_s, roof in zip(times, roofs)]
            weights = [case.calls * t_s for case, t_s in zip(cases, times)]
            main_roof, excluded = heaviest_label(roofs, weights)
            t_unit_s = entry.t_ms / 1e3 * launches
            chosen = [at for at, roof in enumerate(roofs) if roof == main_roof]
            rates = [scale_work(cases[at].work, t_unit_s / times[at]) for at in chosen]
            self._note("the shapes' rates are weighted by calls x t_us")
            if excluded > 0:
                self._note(f"{excluded:.1%} of that time is of shapes on another roof or within the dispatch floor, left out")
            return entry, combine_shapes(rates, [weights[at] for at in chosen]), True
        calls = sum(case.calls for case in cases)
        total = combine_shapes([case.work for case in cases], [case.calls for case in cases])
        mean_ms = self.row.times.mean_us / 1e3 if self.row.times else self.row.avg_ms
        if mean_ms is not None and self.row.calls and abs(calls / self.row.calls - 1) <= _SAME_CALLS:
            entry = entry._replace(t_ms=mean_ms)
            self._is_noisy = False  # the shapes explain the spread
            self._note("the shapes cover all launches, so the average over all launches is the time of one")
        else:
            total = widen_range(total, [case.work for case in cases])
            self._note("one time for several shapes: each shape is in the range")
        same_roof = len(set(roofs)) == 1
        if not same_roof:
            self._note("the shapes are on different sides of the ridge point: no one ratio describes them")
        return entry, total, same_roof

    def _regime(self) -> str:
        """The regime that carries the launches."""
        row, topn = self.row, self.run.topn
        low, latency = row.name.lower(), row.base_latency_ms
        if row.regime:
            return row.regime
        if topn.decode_steps is not None or topn.prefill_steps is not None:
            return "prefill" if (topn.prefill_steps or 0) > (topn.decode_steps or 0) else "decode"
        if set(latency) in ({"decode"}, {"prefill"}):
            return next(iter(latency))
        if "decode" in low:
            return "decode"
        if "prefill" in low:
            return "prefill"
        if topn.assumed_regime == "decode":
            self._note("no step counts: decode assumed")
        return topn.assumed_regime

    def _launch_ms(self, regime: str) -> float | None:
        """The time of one launch in ``regime``."""
        latency, average = self.row.base_latency_ms, self.row.avg_ms
        latency_ms = latency.get(regime, latency.get(""))
        if latency_ms is not None:
            if average is not None and not 1 / _FAR <= latency_ms / average <= _FAR:
                self._note(
                    f"base_latency_ms is {latency_ms / average:.2g} times the average over all launches ({average:.4g} ms): "
                    "it is used, check that it is of this kernel and in ms"
                )
            return latency_ms
        if average is not None and self.row.times is not None:
            time = typical_time(self.row.times)
            self._is_noisy = time.is_noisy
            if not self.row.unit:  # its remarks say it
                self._note(f"t_ms is the {time.basis} of {self.row.times.calls:g} launches")
            if time.t_us < self.row.times.mean_us / _FAR:
                part = time.t_us / self.row.times.mean_us
                self._note(f"launches that took longer are in pct_gpu_time: {part:.0%} of it is of launches of this time")
            return average
        if average is not None and self.row.unit:
            return average
        if average is not None:
            missing = f"base_latency_ms has no {regime}" if latency else "no base_latency_ms"
            self._note(f"{missing}: the average over all launches is used as the time of one")
            return average
        self._note("no usable time: no base_latency_ms, avg_us or calls with a total")
        return None

    def _captured_cases(self, captured: list[dict[str, object]]) -> list[Case]:
        """Stage B: the captured shapes."""
        cases = []
        if len({raw.get("calls") is None for raw in captured}) > 1:
            raise ValueError(f"{inputs.SHAPES_NAME}: calls are given for some cases only")
        for index, raw in enumerate(captured, 1):
            where = f"{inputs.SHAPES_NAME}: case {index}" if len(captured) > 1 else inputs.SHAPES_NAME
            op, calls, t_us, launches = map(raw.get, ("op", "calls", "t_us", "launches"))
            if not isinstance(op, str) or op_name(op) not in OPS:
                raise ValueError(f"{where}: no work model for op {op!r:.40}; there are {', '.join(sorted(OPS))}")
            values = {key: value for key, value in raw.items() if key not in ("op", "calls", "t_us", "launches")}
            self._fill_context(op, values)
            try:
                shape = work(op, self.run.peaks.l2_bytes, **values)
                times = 1.0 if calls is None else number(calls, "calls", minimum=0)
                t_s = None if t_us is None else number(t_us, "t_us", above=0) / 1e6
                cases.append(Case(shape, times, t_s, None if launches is None else number(launches, "launches", minimum=1)))
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from None
        called = [case for case in cases if case.calls > 0]
        if not called:
            raise ValueError(f"{inputs.SHAPES_NAME}: no case has calls")
        return called

    def _guessed_case(self, hint: Hint, regime: str) -> Case:
        """Stage A: from the row's own shapes or the model's config."""
        if self.row.unmodeled and self.run.config is None:
            raise ValueError(self.row.unmodeled)
        from .config.guess import ShapeGuess

        guess = ShapeGuess(self.row, hint, regime, self.run.env, self.run.config)
        try:
            op, values = guess.parameters()
        finally:
            self.notes += guess.notes
        self._fill_context(op, values)
        return Case(work(op, self.run.peaks.l2_bytes, **values), 1.0)

    def _fill_context(self, op: str, values: dict[str, object]) -> None:
        """Fill what a capture of an op leaves out.

        Attention gets the dtype of its activations from the Top-N or model_dtype, decode its seq_len from the workload, with
        its range, and its kv_dtype from env_report.json. A norm whose kernel adds a residual reads and writes it.
        """
        if op in ("rmsnorm", "layernorm") and "residual" not in values and "add" in self.row.name.lower():
            values["residual"] = True
            self._note("the kernel's name has a fused add, which the captured op lacks: residual counted")
        if op_class(op) == "attn" and values.get("dtype") is None:
            dtypes = self.row.dtypes
            named = dtypes[0] if isinstance(dtypes, list) and dtypes else self.run.env.model_dtype
            if named is not None:
                values["dtype"] = named
                self._note(f"activation dtype {printable(str(named))} from {'the Top-N' if dtypes else 'model_dtype'}")
        if op not in ("attn_decode", "mla_decode"):
            return
        if values.get("kv_dtype") is None and self.run.env.kv_dtype not in (None, "auto"):
            values["kv_dtype"] = self.run.env.kv_dtype
        if values.get("seq_len") is None and values.get("seq_lens") is None:
            from .config.guess import find_context

            mean, ends, basis = find_context(self.run.env)
            values.update(seq_len=mean, seq_len_range=ends)
            self.notes.append(basis)

    def _launches(self, cases: list[Case]) -> tuple[float, bool]:
        """Launches of one unit, and whether that is known: as captured; one for a staged MoE; per step over layers.

        A whole MoE layer may be one launch or several, which is a factor in its ratio: without evidence it is unknown.
        """
        config, per_step = self.run.config, self.row.launches_per_step
        captured = {case.launches for case in cases if case.launches is not None}
        if len(captured) > 1:
            raise ValueError(
                f"{inputs.SHAPES_NAME}: launches differ between the cases ({', '.join(map(str, sorted(captured)))})"
            )
        first, launches, is_known = cases[0].work, 1.0, True
        if self.row.unit and self.row.case is not None:
            self.notes.insert(0, note(f"unit: {self.row.unit}", "unit"))
            return launches, is_known
        layers = config.layers_of(first.op, per_step) if config is not None and per_step else None
        if captured:
            (launches,) = captured
            unit = f"{_show_launches(launches)} (shapes.json)"
        elif first.launches is not None:
            launches, unit = first.launches, "one launch, one stage of one layer"
        elif per_step and layers and per_step >= layers and per_step % layers == 0:
            launches = per_step / layers
            unit = f"one of {layers} layers, {_show_launches(launches)}"
        else:
            if per_step and layers:
                self._note(f"{per_step:g} launches a step do not divide over {layers} layers")
            unit, is_known = "one launch (assumed)", first.op != "moe"
            unit += "" if is_known else ": a whole MoE layer may take several, give launches or stage in shapes.json"
        self.notes.insert(0, note(f"unit: {unit}", "unit"))
        return launches, is_known


def _show_launches(count: float) -> str:
    return "one launch" if count == 1 else f"{count:g} launches"
