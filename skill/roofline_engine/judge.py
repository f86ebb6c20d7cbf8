"""From one row of the Top-N to one entry: its time, its work, its unit, its verdict. A row that fails costs only itself."""

from __future__ import annotations

from . import advice, fold, inputs, kernels, share
from .entry import Entry
from .inputs import Env, Row, TopN
from .metrics import assess, route, unmodelled
from .models import OPS, Work, op_class, work
from .peaks import Peaks
from .record import TYPE_CHECKING, Record
from .units import number, printable

if TYPE_CHECKING:
    from .modelconfig import ModelConfig
    from .stagec import Book

#: Captured calls are the row's launches when they add up to them within this.
_SAME_CALLS = 0.02
#: A base_latency_ms this many times the average over all launches, or as many times under it, is worth a remark. Our own
#: value: launches of two regimes differ by less in most profiles, a wrong unit by 1000.
_FAR = 2.0


class Case(Record):
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
        notes: list[str] = [f"pct_gpu_time computed from times, of {row.pct_basis}"] if row.pct_basis else []
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
            entry = self._unmodelled(entry, hint, f"L2: {error}", notes)
        except Exception as error:  # L5: a fault of ours must not cost the other entries
            what = f"{type(error).__name__}: {error}"
            self.errors.append(f"L5: fault of the helper at {printable(row.name)[:60]}: {what}")
            entry = self._unmodelled(entry, hint, f"L5: {type(error).__name__} while modelling it", notes)
        entry = entry._replace(route=route(entry), notes="; ".join(notes))
        return advice.attach(entry, self._neighbours, self.env.backends)

    def _neighbours(self) -> list[Row]:
        if self._beside is None:  # only a saturated entry asks, and a long profile has many names to look at
            self._beside = advice.neighbours(self.topn.rows)
        return self._beside

    def _judged(
        self, entry: Entry, row: Row, hint: kernels.Hint, captured: list[dict[str, object]] | None, notes: list[str]
    ) -> tuple[Entry, tuple[str, ...]]:
        cases = self._captured(captured, notes) if captured else [self._guessed(row, hint, entry.regime, notes)]
        launches, known = self._launches(row, cases, notes)
        done, conflict = cases[0].work, not known
        if len(cases) > 1:
            entry, done, same_roof = self._folded(entry, row, cases, launches, notes)
            conflict = conflict or not same_roof
        t_unit_ms = entry.t_ms * launches if entry.t_ms is not None else None
        entry = entry._replace(launches_per_unit=launches, t_unit_ms=t_unit_ms)
        if self.counters is not None:
            entry = self.counters.assess(entry, done, self.peaks, notes, conflict=conflict, shapes=len(cases))
        else:
            entry = assess(entry, done, self.peaks, conflict=conflict)
        return entry, done.notes

    def _folded(self, entry: Entry, row: Row, cases: list[Case], launches: float, notes: list[str]) -> tuple[Entry, Work, bool]:
        """Several shapes as one, and whether one ratio can speak for them.

        With a time for each, their rates are weighted by calls x time on the roof where most of it goes, dispatch-bound
        shapes apart, and the share left out is said. With the Top-N's one time, shapes on different roofs give no verdict.
        """
        labels = fold.roofs([case.work for case in cases], self.peaks)
        if entry.t_ms is not None and all(case.t_s for case in cases):
            times = [case.t_s or 0.0 for case in cases]
            labels = ["dispatch" if t / launches <= self.peaks.dispatch_floor_s else label for t, label in zip(times, labels)]
            weights = [case.calls * t for case, t in zip(cases, times)]
            kept, excluded = fold.heaviest(labels, weights)
            t_unit = entry.t_ms / 1e3 * launches
            chosen = [at for at, label in enumerate(labels) if label == kept]
            rates = [fold.scaled(cases[at].work, t_unit / times[at]) for at in chosen]
            notes.append("the shapes' rates are weighted by calls x t_us")
            if excluded > 0:
                notes.append(f"{excluded:.1%} of that time is of shapes on another roof or within the dispatch floor, left out")
            return entry, fold.mean(rates, [weights[at] for at in chosen]), True
        calls = sum(case.calls for case in cases)
        done = fold.mean([case.work for case in cases], [case.calls for case in cases])
        if row.avg_ms is not None and row.calls and abs(calls / row.calls - 1) <= _SAME_CALLS:
            entry = entry._replace(t_ms=row.avg_ms)
            notes.append("the shapes cover all launches, so the average over all launches is the time of one")
        else:
            done = fold.spread(done, [case.work for case in cases])
            notes.append("one time for several shapes: each shape is in the range")
        if len(set(labels)) > 1:
            notes.append("the shapes stand on different sides of the ridge point: no one ratio speaks for them")
        return entry, done, len(set(labels)) == 1

    def _unmodelled(self, entry: Entry, hint: kernels.Hint, reason: str, notes: list[str]) -> Entry:
        self.degraded.append({"name": entry.name, "reason": reason})
        notes.insert(0, reason)
        return unmodelled(entry, hint.op, op_class(hint.op))

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
        given = latency.get(regime, latency.get(""))
        if given is not None:
            if row.avg_ms is not None and not 1 / _FAR <= given / row.avg_ms <= _FAR:
                notes.append(
                    f"base_latency_ms is {given / row.avg_ms:.2g} times the average over all launches ({row.avg_ms:.4g} ms): "
                    "it is used, check that it is of this kernel and in ms"
                )
            return regime, given
        if row.avg_ms is not None:
            missing = f"base_latency_ms has no {regime}" if latency else "no base_latency_ms"
            notes.append(f"{missing}: the average over all launches is used as the time of one")
            return regime, row.avg_ms
        notes.append("no usable time: no base_latency_ms, avg_us or calls with a total")
        return regime, None

    def _captured(self, captured: list[dict[str, object]], notes: list[str]) -> list[Case]:
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

    def _guessed(self, row: Row, hint: kernels.Hint, regime: str, notes: list[str]) -> Case:
        """Stage A: from the row's own shapes or the model's config."""
        from . import guess  # not needed where every shape is captured

        op, values = guess.parameters(row, hint, regime, self.env, self.config, notes)
        self._context(op, values, notes)
        return Case(work(op, self.peaks.l2_bytes, **values), 1.0, None, None)

    def _context(self, op: str, values: dict[str, object], notes: list[str]) -> None:
        """A missing seq_len comes from the workload, with its range, a missing kv_dtype from env_report.json."""
        if op not in ("attn_decode", "mla_decode"):
            return
        if values.get("kv_dtype") is None and self.env.kv_dtype not in (None, "auto"):
            values["kv_dtype"] = self.env.kv_dtype
        if values.get("seq_len") is None and values.get("seq_lens") is None:
            mean, span, note = share.context(self.env)
            values.update(seq_len=mean, seq_len_range=span)
            notes.append(note)

    def _launches(self, row: Row, cases: list[Case], notes: list[str]) -> tuple[float, bool]:
        """Launches of one unit, and whether that is known: as captured; one for a staged MoE; per step over layers.

        A whole MoE layer may be one launch or several, which is a factor in its ratio: without evidence it is not known.
        """
        given = {case.launches for case in cases if case.launches is not None}
        if len(given) > 1:
            raise ValueError(f"{inputs.SHAPES_NAME}: launches differ between the cases ({', '.join(map(str, sorted(given)))})")
        if given:
            (launches,) = given
            notes.insert(0, f"unit: {_launches(launches)} (shapes.json)")
            return launches, True
        done = cases[0].work
        if done.launches is not None:
            notes.insert(0, "unit: one launch, one stage of one layer")
            return done.launches, True
        layers = self.config.layers_of(done.op, row.launches_per_step) if self.config is not None else None
        if row.launches_per_step and layers:
            per_layer = row.launches_per_step / layers
            if per_layer >= 1 and per_layer == int(per_layer):
                notes.insert(0, f"unit: one of {layers} layers, {_launches(per_layer)}")
                return per_layer, True
            notes.append(f"{row.launches_per_step:g} launches a step do not divide over {layers} layers")
        known = done.op != "moe"
        doubt = "" if known else ": a whole MoE layer may take several, give launches or stage in shapes.json"
        notes.insert(0, f"unit: one launch (assumed){doubt}")
        return 1, known


def _launches(count: float) -> str:
    return "one launch" if count == 1 else f"{count:g} launches"
