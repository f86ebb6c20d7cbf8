"""From the files of a run to the artifact: select the head, model each kernel, take the verdicts, rank. Never raises."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from . import advice, inputs, kernels, peaks, peaks_measured, peaks_table
from .config import guess, model
from .config.model import ModelConfig
from .counters.apply import Book
from .fields import STAGES, Entry, Note, note, tidy_notes, to_dict
from .files import read_json, read_text
from .inputs import Env, Row, TopN
from .ops import OPS, op_class, work
from .peaks import Peaks
from .roofline import HEAD_MAX, HEAD_PCT, assess, roof_axes, route, unmodelled
from .units import number, printable
from .work import Work, combine_shapes, heaviest_label, scale_work, widen_range

#: The artifact format's version, the specification's; it changes with the format, not with the package.
SKILL_VERSION = "1"


class Sources(NamedTuple):
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
    table = peaks_table.locate()
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
    return [name for name in names if inputs.is_topn_csv(name)]


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
        return inputs.read_topn(read_json(path), label)
    return inputs.read_topn_csv(read_text(path), printable(label))


def _read_counters(paths: tuple[str, ...], topn: TopN, env: Env, peaks: Peaks) -> Book | None:
    """The counters of the run; loaded only where there are some, since most runs have none."""
    if not paths:
        return None
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
        env = inputs.read_env(read_json(path), os.path.basename(path))
    except ValueError as error:
        errors.append(f"L5: {error}")
        return Env()
    errors += [f"L5: {problem}" for problem in env.problems]
    return env


def _resolve(sources: Sources, env: Env, errors: list[str]) -> Peaks:
    table, measured, path, shipped = None, None, sources.peaks, sources.peaks_shipped
    if path is not None and not shipped:
        given, path = path, peaks_table.locate()  # measured ceilings lie over the shipped table
        try:
            measured = peaks_measured.read_ceilings(given, sources.peaks_device)
            path = given if measured is None else path
        except (OSError, ValueError) as error:
            errors.append(f"L1: peaks: {error}")
        shipped = path != given
    if path is None:
        errors.append("L1: no peaks.md was found: peaks are null unless the device's properties give them")
    else:
        try:
            table = peaks_table.load(path, shipped=shipped)
        except (OSError, ValueError) as error:
            errors.append(f"L1: peaks: {error}")
    try:
        found = peaks.resolve(table, env.device)
    except Exception as error:  # a table of the user's may hold anything
        errors.append(f"L1: peaks: {error}")
        return Peaks(gfx=env.device.gfx, source="derived", note="L1: the peak table could not be read")
    if measured is not None:
        try:
            found, refused = peaks_measured.lay_over(found, measured, table)
            errors += [f"L1: peaks: {line}" for line in refused]
        except ValueError as error:
            errors.append(f"L1: peaks: {error}")
    return found


def _targeted(peaks: Peaks, path: str | None, errors: list[str]) -> Peaks:
    """The peaks with the observed targets of the file that was named."""
    if path is None:
        return peaks
    try:
        return peaks._replace(targets=inputs.read_targets(path))
    except (OSError, ValueError) as error:
        errors.append(f"L5: targets not used: {error}")
        return peaks


def _read_config(path: str | None, errors: list[str]) -> ModelConfig | None:
    if path is None:
        return None
    try:
        config = model.read(read_json(path))
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
        shapes, problems = inputs.read_shapes(read_json(path), os.path.basename(path))
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


#: Captured calls are the row's launches when they add up to them within this.
_SAME_CALLS = 0.02
#: A base_latency_ms this many times the average over all launches, or as many times under it, is worth a remark. Our own
#: value: launches of two regimes differ by less in most profiles, a wrong unit by 1000.
_FAR = 2.0


class Case(NamedTuple):
    """One captured shape: its work, how often it ran, its own time (s) and launches where they were given."""

    work: Work
    calls: float
    t_s: float | None
    launches: float | None


class Judge:
    """What every entry of one run needs, and the lines about what could not be done."""

    def __init__(
        self,
        topn: TopN,
        env: Env,
        config: ModelConfig | None,
        shapes: dict[str, list[dict[str, object]]],
        peaks: Peaks,
        counters: Book | None = None,
    ) -> None:
        self.topn, self.env, self.config, self.shapes, self.peaks = topn, env, config, shapes, peaks
        self.counters = counters
        self._beside: list[Row] | None = None
        self.degraded: list[dict[str, str]] = []
        self.errors: list[str] = []

    def entry(self, row: Row) -> Entry:
        """The entry of one row."""
        captured = self.shapes.get(row.name) or self.shapes.get(row.short_name)
        notes = [note(f"pct_gpu_time computed from times, of {row.pct_basis}")] if row.pct_basis else []
        regime, t_ms = self._time(row, notes)
        hint = kernels.classify(row.name, row.classification, regime)
        entry = Entry(
            name=row.name,
            short_name=row.short_name,
            pct_gpu_time=row.pct,
            regime=regime,
            op=hint.op,
            stage="B" if captured else "A",
            editable=row.editable,
            t_ms=t_ms,
            launches_per_step=row.launches_per_step,
        )
        try:
            entry, said = self._judged(entry, row, hint, captured, notes)
            notes = [*said, *notes, *advice.remarks(entry, self.peaks)]
        except ValueError as error:  # L2, CannotModelError included
            entry = self._unmodelled(entry, hint, note(f"L2: {error}", "no_work_model"), notes)
        except Exception as error:  # L5: a fault of ours must not cost the other entries
            what = f"{type(error).__name__}: {error}"
            self.errors.append(f"L5: fault of the helper at {printable(row.name)[:60]}: {what}")
            entry = self._unmodelled(entry, hint, note(f"L5: {type(error).__name__} while modelling it", "model_error"), notes)
        entry = entry._replace(route=route(entry), notes=tidy_notes(notes))
        return advice.attach(entry, self._neighbours, self.env.backends)

    def _neighbours(self) -> list[Row]:
        if self._beside is None:  # only a saturated entry asks, and a long profile has many names to look at
            self._beside = advice.neighbours(self.topn.rows)
        return self._beside

    def _judged(
        self, entry: Entry, row: Row, hint: kernels.Hint, captured: list[dict[str, object]] | None, notes: list[Note]
    ) -> tuple[Entry, tuple[Note, ...]]:
        cases = self._captured(captured, notes) if captured else [self._guessed(row, hint, entry.regime, notes)]
        launches, known = self._launches(row, cases, notes)
        done, conflict = cases[0].work, not known
        if len(cases) > 1:
            entry, done, same_roof = self._folded(entry, row, cases, launches, notes)
            conflict = conflict or not same_roof
        t_unit_ms = entry.t_ms * launches if entry.t_ms is not None else None
        entry = entry._replace(launches_per_unit=launches, t_unit_ms=t_unit_ms)
        if self.counters is not None:
            texts: list[str] = []
            entry = self.counters.assess(entry, done, self.peaks, texts, conflict=conflict, shapes=len(cases))
            notes += map(note, texts)
        else:
            entry = assess(entry, done, self.peaks, conflict=conflict)
        return entry, done.notes

    def _folded(
        self, entry: Entry, row: Row, cases: list[Case], launches: float, notes: list[Note]
    ) -> tuple[Entry, Work, bool]:
        """Several shapes as one, and whether one ratio can speak for them.

        With a time for each, their rates are weighted by calls x time on the roof where most of it goes, dispatch-bound
        shapes apart, and the share left out is said. With the Top-N's one time, shapes on different roofs give no verdict.
        """
        labels = roof_axes([case.work for case in cases], self.peaks)
        if entry.t_ms is not None and all(case.t_s for case in cases):
            times = [case.t_s or 0.0 for case in cases]
            labels = ["dispatch" if t / launches <= self.peaks.dispatch_floor_s else label for t, label in zip(times, labels)]
            weights = [case.calls * t for case, t in zip(cases, times)]
            kept, excluded = heaviest_label(labels, weights)
            t_unit = entry.t_ms / 1e3 * launches
            chosen = [at for at, label in enumerate(labels) if label == kept]
            rates = [scale_work(cases[at].work, t_unit / times[at]) for at in chosen]
            notes.append(note("the shapes' rates are weighted by calls x t_us"))
            if excluded > 0:
                notes.append(
                    note(f"{excluded:.1%} of that time is of shapes on another roof or within the dispatch floor, left out")
                )
            return entry, combine_shapes(rates, [weights[at] for at in chosen]), True
        calls = sum(case.calls for case in cases)
        done = combine_shapes([case.work for case in cases], [case.calls for case in cases])
        if row.avg_ms is not None and row.calls and abs(calls / row.calls - 1) <= _SAME_CALLS:
            entry = entry._replace(t_ms=row.avg_ms)
            notes.append(note("the shapes cover all launches, so the average over all launches is the time of one"))
        else:
            done = widen_range(done, [case.work for case in cases])
            notes.append(note("one time for several shapes: each shape is in the range"))
        if len(set(labels)) > 1:
            notes.append(note("the shapes stand on different sides of the ridge point: no one ratio speaks for them"))
        return entry, done, len(set(labels)) == 1

    def _unmodelled(self, entry: Entry, hint: kernels.Hint, reason: Note, notes: list[Note]) -> Entry:
        self.degraded.append({"name": entry.name, "reason": reason.text})
        notes.insert(0, reason)
        return unmodelled(entry, hint.op, op_class(hint.op))

    def _time(self, row: Row, notes: list[Note]) -> tuple[str, float | None]:
        """The regime that carries the launches, and the time of one launch in it."""
        latency = row.base_latency_ms
        decode, prefill = self.topn.decode_steps, self.topn.prefill_steps
        low = row.name.lower()
        if row.regime:
            regime = row.regime
        elif decode is not None or prefill is not None:
            regime = "prefill" if (prefill or 0) > (decode or 0) else "decode"
        elif len(latency) == 1 and next(iter(latency)) in ("decode", "prefill"):
            regime = next(iter(latency))
        elif "prefill" in low and "decode" not in low:
            regime = "prefill"
        else:
            regime = "decode"
            if "decode" not in low:
                notes.append(note("no step counts: decode assumed"))
        given = latency.get(regime, latency.get(""))
        if given is not None:
            if row.avg_ms is not None and not 1 / _FAR <= given / row.avg_ms <= _FAR:
                notes.append(
                    note(
                        f"base_latency_ms is {given / row.avg_ms:.2g} times the average over all launches "
                        f"({row.avg_ms:.4g} ms): it is used, check that it is of this kernel and in ms"
                    )
                )
            return regime, given
        if row.avg_ms is not None:
            missing = f"base_latency_ms has no {regime}" if latency else "no base_latency_ms"
            notes.append(note(f"{missing}: the average over all launches is used as the time of one"))
            return regime, row.avg_ms
        notes.append(note("no usable time: no base_latency_ms, avg_us or calls with a total"))
        return regime, None

    def _captured(self, captured: list[dict[str, object]], notes: list[Note]) -> list[Case]:
        """Stage B: the captured shapes."""
        cases = []
        if len({raw.get("calls") is None for raw in captured}) > 1:
            raise ValueError(f"{inputs.SHAPES_NAME}: calls are given for some cases only")
        for index, raw in enumerate(captured, 1):
            where = f"{inputs.SHAPES_NAME}: case {index}" if len(captured) > 1 else inputs.SHAPES_NAME
            values = dict(raw)
            op = values.pop("op", None)
            if not isinstance(op, str) or op not in OPS:
                raise ValueError(f"{where}: no work model for op {op!r:.40}; there are {', '.join(sorted(OPS))}")
            calls, t_us, launches = (values.pop(key, None) for key in ("calls", "t_us", "launches"))
            self._context(op, values, notes)
            try:
                cases.append(
                    Case(
                        work(op, self.peaks.l2_bytes, **values),
                        1.0 if calls is None else number(calls, "calls", minimum=0),
                        None if t_us is None else number(t_us, "t_us", above=0) / 1e6,
                        None if launches is None else number(launches, "launches", minimum=1),
                    )
                )
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from None
        ran = [case for case in cases if case.calls > 0]
        if not ran:
            raise ValueError(f"{inputs.SHAPES_NAME}: no case has calls")
        return ran

    def _guessed(self, row: Row, hint: kernels.Hint, regime: str, notes: list[Note]) -> Case:
        """Stage A: from the row's own shapes or the model's config."""
        texts: list[str] = []
        try:
            op, values = guess.parameters(row, hint, regime, self.env, self.config, texts)
        finally:
            notes += map(note, texts)
        self._context(op, values, notes)
        return Case(work(op, self.peaks.l2_bytes, **values), 1.0, None, None)

    def _context(self, op: str, values: dict[str, object], notes: list[Note]) -> None:
        """A missing seq_len comes from the workload, with its range, a missing kv_dtype from env_report.json."""
        if op not in ("attn_decode", "mla_decode"):
            return
        if values.get("kv_dtype") is None and self.env.kv_dtype not in (None, "auto"):
            values["kv_dtype"] = self.env.kv_dtype
        if values.get("seq_len") is None and values.get("seq_lens") is None:
            mean, span, basis = guess.context(self.env)
            values.update(seq_len=mean, seq_len_range=span)
            notes.append(note(basis))

    def _launches(self, row: Row, cases: list[Case], notes: list[Note]) -> tuple[float, bool]:
        """Launches of one unit, and whether that is known: as captured; one for a staged MoE; per step over layers.

        A whole MoE layer may be one launch or several, which is a factor in its ratio: without evidence it is not known.
        """
        given = {case.launches for case in cases if case.launches is not None}
        if len(given) > 1:
            raise ValueError(f"{inputs.SHAPES_NAME}: launches differ between the cases ({', '.join(map(str, sorted(given)))})")
        if given:
            (launches,) = given
            notes.insert(0, note(f"unit: {_launches(launches)} (shapes.json)", "unit"))
            return launches, True
        done = cases[0].work
        if done.launches is not None:
            notes.insert(0, note("unit: one launch, one stage of one layer", "unit"))
            return done.launches, True
        layers = self.config.layers_of(done.op, row.launches_per_step) if self.config is not None else None
        if row.launches_per_step and layers:
            per_layer = row.launches_per_step / layers
            if per_layer >= 1 and per_layer == int(per_layer):
                notes.insert(0, note(f"unit: one of {layers} layers, {_launches(per_layer)}", "unit"))
                return per_layer, True
            notes.append(note(f"{row.launches_per_step:g} launches a step do not divide over {layers} layers"))
        known = done.op != "moe"
        doubt = "" if known else ": a whole MoE layer may take several, give launches or stage in shapes.json"
        notes.insert(0, note(f"unit: one launch (assumed){doubt}", "unit"))
        return 1, known


def _launches(count: float) -> str:
    return "one launch" if count == 1 else f"{count:g} launches"
