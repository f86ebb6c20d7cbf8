"""From the files of a run to the artifact: select the head, model each kernel, take the verdicts, rank. Never raises."""

from __future__ import annotations

import os
from collections.abc import Iterable

from . import advice, fold, guess, inputs, kernels, modelconfig, peaks, peaktable
from .entry import STAGES, Entry, to_dict
from .inputs import Env, Row, TopN
from .metrics import HEAD_MAX, HEAD_PCT, assess, route, unmodelled
from .modelconfig import ModelConfig
from .models import OPS, Work, work
from .peaks import Peaks
from .record import Record
from .units import number, printable

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
    return sorted(entries, key=lambda entry: -entry.pct_gpu_time)


def by_expected_gain(entries: Iterable[Entry]) -> list[Entry]:
    """Rankable entries by expected gain, then the rest by share: an entry that cannot be ranked is never dropped."""
    return sorted(
        by_pct(entries),
        key=lambda entry: (0, -(entry.expected_e2e_gain_pct or 0.0)) if entry.rankable else (1, -entry.pct_gpu_time),
    )


def find_sources(path: str) -> Sources:
    """The files beside ``path``, a directory or a Top-N file.

    Raises:
        ValueError: when there is no Top-N to analyse.
    """
    folder = path if os.path.isdir(path) else os.path.dirname(os.path.abspath(path))
    topn = os.path.join(path, inputs.TOPN_NAME) if os.path.isdir(path) else path
    if not os.path.isfile(topn):
        expected = f"{inputs.TOPN_NAME} in it" if os.path.isdir(path) else "a Top-N file or a directory with one"
        raise ValueError(f"{printable(path)}: expected {expected}")
    table = peaktable.locate()
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return Sources(
        topn=topn,
        env=inputs.find(folder, inputs.ENV_NAME, 2),
        config=inputs.find(folder, inputs.CONFIG_NAME, 2),
        shapes=inputs.find(folder, inputs.SHAPES_NAME, 0),
        peaks=table,
        counters=tuple(name for name in names if _is_counters(name)),
    )


def _is_counters(name: str) -> bool:
    low = name.lower()
    return low.endswith((".csv", ".json")) and ("counter" in low or low.startswith("pmc_"))


def analyze(sources: Sources, *, head_pct: float = HEAD_PCT, head_max: int = HEAD_MAX) -> Report | None:
    """Analyse one run. None is L0: the run asked for no analysis. Everything else that goes wrong is in the report."""
    errors: list[str] = []
    env = _read_env(sources.env, errors)
    if env.analysis_skill == "none":
        return None
    report = Report(_resolve(sources, env, errors), errors, head_pct, head_max)
    config = _read_config(sources.config, errors)
    shapes = _read_shapes(sources.shapes, errors)
    for name in sources.counters:
        report.degraded.append(
            {
                "name": printable(name),
                "reason": "L4: counters are not read; the analytic result stands, at its confidence",
            }
        )
    try:
        topn = inputs.read_topn(inputs.read_json(sources.topn), os.path.basename(sources.topn))
    except ValueError as error:
        errors.append(f"L5: {error}")
        return report
    errors += [f"L5: {problem}" for problem in topn.problems]
    _name_strangers(shapes, topn, errors)
    head = select_head(topn.rows, head_pct, head_max)
    report.rows, report.head_share = len(topn.rows), sum(row.pct for row in head)
    run = _Run(topn, env, config, shapes, report)
    report.entries = [run.entry(row) for row in head]
    return report


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
    table = None
    if sources.peaks is None:
        errors.append("L1: no peaks.md was found: peaks are null unless the device's properties give them")
    else:
        try:
            table = peaktable.load(sources.peaks, shipped=sources.peaks_shipped)
        except (OSError, ValueError) as error:
            errors.append(f"L1: peaks: {error}")
    try:
        return peaks.resolve(table, env.device)
    except ValueError as error:
        errors.append(f"L1: peaks: {error}")
        return Peaks(gfx=env.device.gfx, source="derived", note="L1: the peak table could not be read")


def _read_config(path: str | None, errors: list[str]) -> ModelConfig | None:
    if path is None:
        return None
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
    for name in list(shapes):
        count = sum(name in (row.name, row.short_name) for row in topn.rows)
        if count == 0:
            errors.append(f"L5: {inputs.SHAPES_NAME}: no kernel of the Top-N is named {printable(name)[:60]}")
        elif count > 1:
            errors.append(f"L5: {inputs.SHAPES_NAME}: {count} rows are named {printable(name)[:60]}: not used")
            del shapes[name]


class _Run:
    """What every entry of one run needs."""

    def __init__(
        self, topn: TopN, env: Env, config: ModelConfig | None, shapes: dict[str, list[dict[str, object]]], report: Report
    ) -> None:
        self.topn, self.env, self.config, self.shapes, self.report = topn, env, config, shapes, report

    def entry(self, row: Row) -> Entry:
        """One entry; whatever goes wrong with it stays with it."""
        cases = self.shapes.get(row.name) or self.shapes.get(row.short_name)
        notes: list[str] = [] if row.pct_given else ["pct_gpu_time computed from the list's own times"]
        regime, t_ms = self._time(row, notes)
        hint = kernels.classify(row.name, row.classification, regime)
        entry = Entry(
            name=row.name,
            short_name=row.short_name,
            pct_gpu_time=row.pct,
            regime=regime,
            op=hint.op,
            stage="B" if cases else "A",
            editable=row.editable,
            t_ms=t_ms,
            launches_per_step=row.launches_per_step,
        )
        try:
            conflict, launches = False, None
            if cases:
                done, launches, conflict = self._captured(cases, notes)
            else:
                done = self._guessed(row, hint, regime, notes)
            entry = entry._replace(launches_per_unit=self._launches(row, done, launches, notes))
            if t_ms is not None:
                entry = entry._replace(t_unit_ms=t_ms * entry.launches_per_unit)
            entry = assess(entry, done, self.report.peaks, conflict=conflict)
            notes = [*done.notes, *notes, *advice.remarks(entry, self.report.peaks)]
        except ValueError as error:  # L2, CannotModelError included
            entry = self._unmodelled(entry, hint, f"L2: {error}", notes)
        except Exception as error:  # L5: a fault of ours must not cost the other entries
            self.report.skill_errors.append(f"L5: fault of the helper at {printable(row.name)[:60]}: {type(error).__name__}: {error}")
            entry = self._unmodelled(entry, hint, f"L5: {type(error).__name__} while modelling it", notes)
        entry = entry._replace(route=route(entry), notes="; ".join(notes))
        return advice.attach(entry, self.topn.rows, self.env.backends)

    def _unmodelled(self, entry: Entry, hint: kernels.Hint, reason: str, notes: list[str]) -> Entry:
        self.report.degraded.append({"name": entry.name, "reason": reason})
        notes.insert(0, reason)
        return unmodelled(entry, hint.op, kernels.OP_CLASS.get(hint.op, "unknown"))

    def _time(self, row: Row, notes: list[str]) -> tuple[str, float | None]:
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
                notes.append("no step counts: decode assumed")
        if regime in latency:
            return regime, latency[regime]
        if "" in latency:
            return regime, latency[""]
        if row.avg_ms is not None:
            missing = f"base_latency_ms has no {regime}" if latency else "no base_latency_ms"
            notes.append(f"{missing}: the average over all launches is used as the time of one")
            return regime, row.avg_ms
        notes.append("no usable time: no base_latency_ms, avg_us or calls with a total")
        return regime, None

    def _captured(self, cases: list[dict[str, object]], notes: list[str]) -> tuple[Work, float | None, bool]:
        """Stage B: the captured shapes, several of them as the mean over their calls."""
        works: list[Work] = []
        weights: list[float] = []
        launches = None
        for index, case in enumerate(cases, 1):
            where = f"{inputs.SHAPES_NAME}: case {index}" if len(cases) > 1 else inputs.SHAPES_NAME
            values = dict(case)
            op = values.pop("op", None)
            calls, count = values.pop("calls", 1), values.pop("launches", None)
            values.pop("t_us", None)  # an isolated time weights nothing here: the Top-N's time is the kernel's
            if not isinstance(op, str) or op not in OPS:
                raise ValueError(f"{where}: no work model for op {op!r}; there are {', '.join(sorted(OPS))}")
            self._context(op, values, notes)
            try:
                works.append(work(op, self.report.peaks.l2_bytes, **values))
                weights.append(number(calls, "calls", above=0))
                if count is not None:
                    launches = number(count, "launches", above=0)
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from None
        if len(works) == 1:
            return works[0], launches, False
        done, conflict = fold.mean(works, weights, self.report.peaks)
        return done, launches, conflict

    def _guessed(self, row: Row, hint: kernels.Hint, regime: str, notes: list[str]) -> Work:
        op, values, assumed = guess.parameters(row, hint, regime, self.env, self.config)
        notes += assumed
        self._context(op, values, notes)
        return work(op, self.report.peaks.l2_bytes, **values)

    def _context(self, op: str, values: dict[str, object], notes: list[str]) -> None:
        """A missing seq_len comes from the workload, with its range."""
        if op == "attn_decode" and values.get("seq_len") is None:
            mean, span, note = guess.context(self.env)
            values.update(seq_len=mean, seq_len_range=span)
            notes.append(note)

    def _launches(self, row: Row, done: Work, captured: float | None, notes: list[str]) -> float:
        """Launches that make one unit: as captured; one for a staged MoE; launches per step over layers of that kind."""
        if captured is not None:
            notes.insert(0, f"unit: {_launches(captured)} (shapes.json)")
            return captured
        if done.launches is not None:
            notes.insert(0, "unit: one launch, one stage of one layer")
            return done.launches
        layers = None
        if self.config is not None and done.op in ("moe", "attn_decode"):
            layers = self.config.moe_layers if done.op == "moe" else self.config.attention_layers
        if row.launches_per_step and layers:
            per_layer = row.launches_per_step / layers
            if per_layer >= 1 and per_layer == int(per_layer):
                notes.insert(0, f"unit: one of {layers} layers, {_launches(per_layer)}")
                return per_layer
            notes.append(f"{row.launches_per_step:g} launches a step do not divide over {layers} layers")
        notes.insert(0, "unit: one launch (assumed)")
        return 1


def _launches(count: float) -> str:
    return "one launch" if count == 1 else f"{count:g} launches"
