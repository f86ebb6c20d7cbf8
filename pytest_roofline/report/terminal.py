"""The terminal section: a table as wide as the terminal, and lines below it, as many as the verbosity asks for."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from roofline_engine.check import CONTENDED
from roofline_engine.fields import has_note, join_notes
from roofline_engine.peaks import CPU
from roofline_engine.roofline import ISOLATED_NOISE, SUSPECT_LOW
from roofline_engine.units import printable, quantity

from ..ceilings import TORCH_DTYPES
from ..evaluate import IDLE, NO_DEVICE_SYNC, SHARED_WORKERS
from ..row import Row
from .columns import ALARMS, COLUMNS, describe_overhead, distinct_labels, duration, list_some

if TYPE_CHECKING:
    from .document import Document

_COLORS = {"underperforming": ("yellow",), "moderate": ("cyan",), "saturated": ("green",)}
_ALARM = ("red", "bold")
_CAUTION = ("yellow",)
#: The smallest width of the column of names.
_NAME = 24
#: Names in one line: of rows, of predictions and tests without the other.
_SOME, _LISTED = 3, 5
#: What to do where no test of a run has a time.
_FIRST_STEP = "use the benchmark fixture, roofline.measure(fn, ...), or time= in the marker with --roofline-time='*'"
#: Why a row has no verdict by the code of the reason, and what to do.
_REASONS = {
    "unmodelled": ("its work is unknown", "declare it with the marker"),
    "cache_resident": ("a cache may hold the operands, and no one level decides", "run with --roofline-cache=cold"),
    "data_dependent": ("what it reads depends on its data, and the least and the most give no one class", "time fixed data"),
    "partly_seen": ("only a part of its work was seen", "declare its work with the marker"),
    "args_only": ("only its arguments and results are known", "declare its work with the marker"),
    "dispatch_bound": ("the call takes about as long as a launch", "time larger operands, or several calls as one"),
    "no_target": ("no achievable percent is known for this op", "set target_eff= in the marker"),
    "conflicting_models": ("the possible byte models give different verdicts", "declare bytes= and flops= in the marker"),
    "noisy": ("the class differs between the median and the best round", "run again, or with more rounds"),
    "unvalidated_peak": ("the peak of its roof is unknown, or breaks a rule", "give the peak with --roofline-peaks"),
    "infeasible": ("the ratio is over the rated roof", "unless near_roof, correct the work model, the peak or the time"),
    "low_confidence": ("the peak of its roof is uncertain", "name the product, not the architecture"),
}


class Line(NamedTuple):
    """One line."""

    text: str
    markup: tuple[str, ...] = ()  # colors and weight, by the names of pytest's terminal writer


def title(document: Document) -> str:
    """Count the rows: measured, with a verdict, not measured."""
    rows = [row for row in document.rows if row.measurement is not None]
    verdicts = sum(row.entry.headroom_class != "unknown" for row in rows)
    untimed = len(document.rows) - len(rows)
    return f"roofline: {len(rows)} measured, {verdicts} with a verdict" + (f", {untimed} not measured" if untimed else "")


def lines(document: Document, width: int, verbosity: int) -> Iterator[Line]:
    """Yield the section below its title, wrapped to ``width``; a longer word, such as a path, stays whole.

    verbosity: pytest's. Below 0: the contradictions alone; 1: also where each figure comes from; 2: also the notes.
    """
    yield from _wrap(_content(document, width, verbosity), width)


def _wrap(lines: Iterable[Line], width: int) -> Iterator[Line]:
    for line in lines:
        if len(line.text) <= width:
            yield line
            continue
        indent = " " * (len(line.text) - len(line.text.lstrip()) + 2)
        for part in textwrap.wrap(line.text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False):
            yield Line(part, line.markup)


def _content(document: Document, width: int, verbosity: int) -> Iterator[Line]:
    rows = [row for row in document.rows if row.measurement is not None]
    is_full = verbosity > 0
    if document.rowless and not rows:
        count = len(document.rowless)
        tests = "1 test has" if count == 1 else f"{count} tests have"
        yield Line(f"{tests} no time: {_FIRST_STEP}", _CAUTION)
    if verbosity >= 0:
        yield from _table(document, rows, width)
        for name, peaks in document.devices.items():
            yield Line(f"peaks of {printable(name)}: {_peaks(peaks)}")
    for row in document.rows:
        if row.check.status in ALARMS and not row.is_allowed:
            markup = _ALARM if row.check.status == "beyond_roof" else _CAUTION
            yield Line(f"{row.check.status}: {document.name(row)}: {printable(row.check.message)}", markup)
    unclear = [row for row in rows if row.check.status == "not_checked" and row.check.speedup is not None]
    for row in unclear[: None if is_full else _SOME]:
        yield Line(f"not_checked: {document.name(row)}: {printable(row.check.message)}")
    slow = [f"{document.name(row)} ({duration(row.measurement.t_s)})" for row in rows if row.measurement and _is_far_below(row)]
    if slow:
        names = _join_some(slow, is_full)
        yield Line(f"suspiciously slow, under 0.1 % of the roof. Is the time in seconds? {names}", _CAUTION)
    launches = [(row.overhead, row) for row in rows if row.overhead and row.overhead.graph_speedup > 1 + ISOLATED_NOISE]
    for overhead, row in sorted(launches, key=lambda pair: -pair[0].share)[: None if is_full else _SOME]:
        yield Line(f"launch overhead: {document.name(row)}: {describe_overhead(overhead)}")
    untimed = [row for row in document.rows if row.measurement is None and row.entry.modeled]
    if untimed and verbosity >= 0:
        works = [f"{document.name(row)} ({_work(row)})" for row in untimed]
        yield Line(f"work without a time: {list_some(works, len(works) if is_full else _SOME)}")
    idle = sum(has_note(row.entry.notes, "idle") for row in document.rows)
    if idle:
        yield Line(f"not measured, {idle}: {IDLE.text}", _CAUTION)
    if verbosity >= 0:
        yield from _group_reasons(rows, is_cold=document.settings.cache == "cold")
        if len(rows) > 1:
            yield from _rankings(document, rows, is_full)
        yield from _unmatched(document)
    if is_full:
        yield from _sources(document, with_notes=verbosity > 1)
    for problem in document.problems:
        yield Line(f"roofline: {printable(problem)}", _CAUTION)
    for path in document.written:
        yield Line(f"roofline report: {printable(path)}")


def gate_lines(document: Document, width: int, verbosity: int) -> Iterator[Line]:
    """Yield what the gates of a run decided, wrapped to ``width``, at any verbosity; nothing without a gate.

    The last line has the counts.
    """
    gate = document.gate
    if not gate.is_needed:
        return
    *reasons, counts = gate.lines(verbosity > 0)
    yield from _wrap((Line(line, _CAUTION) for line in reasons), width)
    markup = _ALARM if gate.fails_run else _CAUTION if gate.unchecked else ("green",)
    yield Line(counts, markup)


def _is_far_below(row: Row) -> bool:
    """Return whether a device's time may be in another unit. A loop on one of many CPU cores may well be this slow."""
    ratio = row.entry.roofline_pct_raw or 1.0
    return row.device != CPU and bool(row.entry.falsifiable) and ratio < SUSPECT_LOW


def _work(row: Row) -> str:
    """Describe the bytes, the FLOPs and the time at the roof."""
    entry = row.entry
    text = quantity(entry.bytes_est, "B") if entry.bytes_est else "no work"
    if row.coverage == "args" and row.measurement is not None:
        return f"{text} of arguments and results at {quantity((entry.bytes_est or 0.0) / row.measurement.t_s, 'B/s')}"
    if entry.bytes_est and entry.flops_est:
        text += f", {quantity(entry.flops_est, 'FLOP')}"
    roof = "memory roof" if entry.flops_est and entry.ridge_point is None else "roof"  # of a dtype without a compute peak
    return text if row.roof_s is None else f"{text}: {duration(row.roof_s)} at the {roof}"


def _table(document: Document, rows: Sequence[Row], width: int) -> Iterator[Line]:
    """Yield the table. Columns that do not fit are left out, then names are shortened."""
    if not rows:
        return
    columns = [column for column in COLUMNS if column.title != "check" or any(column.text(row) != "-" for row in rows)]
    has_baseline = any(row.check.speedup is not None for row in rows)  # someone asked for the speedup
    names = [document.name(row) for row in rows]
    longest = max(map(len, ("kernel", *names)))
    while True:
        cells = [[column.title for column in columns], *[[column.text(row) for column in columns] for row in rows]]
        sizes = [max(map(len, texts)) for texts in zip(*cells)]
        rest = sum(sizes) + 2 * len(sizes)
        optional = [column for column in columns if column.spare and not (has_baseline and column.title == "check")]
        if rest + min(longest, _NAME) <= width or not optional:
            break
        columns.remove(min(optional, key=lambda column: column.spare))
    size = min(longest, max(_NAME, width - rest))
    labels = distinct_labels(names, size, "..")
    for at, (name, texts) in enumerate(zip(("kernel", *(labels[name] for name in names)), cells)):
        padded = [text.rjust(wide) if column.right else text.ljust(wide) for text, wide, column in zip(texts, sizes, columns)]
        yield Line("  ".join([name.ljust(size), *padded]).rstrip(), _markup(rows[at - 1]) if at else ("bold",))


def _markup(row: Row) -> tuple[str, ...]:
    return _ALARM if row.check.status == "beyond_roof" or row.failed else _COLORS.get(row.entry.headroom_class, ())


def _peaks(peaks: dict[str, object]) -> str:
    bandwidth = peaks.get("hbm_bw_bytes_s")
    parts = [quantity(bandwidth, "B/s") if isinstance(bandwidth, (int, float)) else "unknown bandwidth"]
    rates = peaks.get("flops") or peaks.get("vector")
    if isinstance(rates, dict):
        parts += [f"{dtype} {quantity(rates[dtype], 'FLOP/s')}" for dtype in ("fp64", "fp32", "bf16", "fp8") if dtype in rates]
    axes = peaks.get("low_confidence_axes")
    confidence = f"low confidence on {_join_some(axes)}" if isinstance(axes, list) else f"{peaks.get('confidence')} confidence"
    return f"{', '.join(parts)}; {peaks.get('source')}, {confidence}"


def _group_reasons(rows: Sequence[Row], *, is_cold: bool) -> Iterator[Line]:
    """Yield one line for each reason of rows without a verdict: its code, the number of rows, the cause, what to do.

    is_cold: whether the run evicts the caches.
    """
    counts = Counter(reason for row in rows if (reason := _reason(row, is_cold)) is not None)
    for (code, cause, action), count in counts.items():
        text = f"no verdict: {code}, {count} row{'s' * (count > 1)}: {cause}"
        yield Line(printable(f"{text}; {action}" if action else text))


def _reason(row: Row, is_cold: bool) -> tuple[str, str, str] | None:
    """Return why a row has no verdict (code and cause) and what to do; None where it has one or an alarm of its own line."""
    entry = row.entry
    if entry.headroom_class != "unknown" or row.check.status in ("beyond_roof", "near_roof"):
        return None
    code = entry.unknown_reason or "unmodelled"
    cause, action = _REASONS.get(code, (code, ""))
    if code == "unmodelled" and row.reason:
        return code, row.reason, ""  # which tells what to do
    if code == "cache_resident" and (is_cold or row.device != CPU):
        action = "use operands more than twice the cache" if is_cold else "time it with roofline.measure and cache='cold'"
    elif code == "data_dependent" and has_note(entry.notes, "untouched_pages"):
        cause, action = "pages of its operands were never written", "write to the operands once before: x.fill(0)"
    elif code == "noisy" and row.measurement is not None and (row.measurement.wait_share or 0.0) > CONTENDED:
        cause, action = "other programs had the cores while it was timed", "run on an idle machine"
    elif code == "unvalidated_peak" and row.device == CPU and entry.roofline_pct_raw is None:
        cause = f"the {entry.dtype} ceiling of this CPU is unknown"
        action = "install torch, which measures it" if entry.dtype in TORCH_DTYPES else "give it with --roofline-peaks"
    elif code == "low_confidence":
        cause, action = _doubt(row) or (cause, action)
    return code, cause, action


def _doubt(row: Row) -> tuple[str, str] | None:
    """Return why the confidence of a row is low and what to do; None where only its peak is uncertain."""
    entry = row.entry
    if entry.stage == "A" and row.work_source == "captured":
        return "its captured work is a bound, or a guess at the kernel under test", "use a marker or the fixture"
    if entry.stage == "A":
        return "its work is guessed from names", "use a marker, the fixture or [tool.roofline.work]"
    if has_note(entry.notes, "shared_workers"):
        return SHARED_WORKERS.text, ""
    if has_note(entry.notes, "no_device_sync"):
        return NO_DEVICE_SYNC.text, "time it with roofline.measure"
    if row.device == CPU:
        return "too few rounds reached the ceiling of its roof", "run `roofline peaks measure --force` on an idle machine"
    return None


def _rankings(document: Document, rows: Sequence[Row], is_full: bool) -> Iterator[Line]:
    shares = [document.name(row) for row in document.by_share() if row.measurement is not None]
    gains = [f"{document.name(row)} {_gain(row)}" for row in document.by_gain() if row.entry.rankable]
    measure = "share of GPU time" if any(row.entry.pct_gpu_time for row in rows) else "time"
    yield Line(f"by {measure}: {_join_some(shares, is_full)}")
    yield Line(f"by expected gain: {_join_some(gains, is_full) or 'nothing can be ranked'}")


def _gain(row: Row) -> str:
    gain = row.entry.expected_e2e_gain_pct
    return f"({row.entry.attainable_speedup:.2f}x)" if gain is None else f"(+{gain:.2f} %)"


def _join_some(names: Sequence[str], is_full: bool = False) -> str:
    return ", ".join(names if is_full or len(names) <= _SOME else [*names[:_SOME], "..."])


def _unmatched(document: Document) -> Iterator[Line]:
    kernels, tests = document.unmatched()
    for what, names in (("predictions without a test", kernels), ("tests without a prediction", tests)):
        if names:
            yield Line(f"{what}: {list_some([printable(name) for name in names], _LISTED)}")


def _sources(document: Document, *, with_notes: bool) -> Iterator[Line]:
    """Say where the work and the time of each row come from."""
    for row in document.rows:
        entry, m = row.entry, row.measurement
        timed = f"{m.source}, {m.clock} clock, {m.cache} cache, {m.rounds or '?'} rounds" if m else "not measured"
        yield Line(f"{document.name(row)}: {_work(row)} ({row.work_source or 'no source'}, stage {entry.stage}); {timed}")
        if with_notes and entry.notes:
            yield Line(f"    {printable(join_notes(entry.notes))}")
            for lever in (*entry.byte_reduction_levers, *entry.host_side_levers):
                yield Line(f"    lever: {printable(lever)}")
