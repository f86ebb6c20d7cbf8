"""The table and what belongs to it, for a terminal: as wide as it is, coloured by class, as talkative as asked."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from roofline_engine.fields import first_text, has_note, join_notes
from roofline_engine.peaks import CPU
from roofline_engine.roofline import ISOLATED_NOISE, SUSPECT_LOW
from roofline_engine.units import printable, quantity

from ..evaluate import IDLE, NO_DEVICE_SYNC, SHARED_WORKERS
from ..gate import TEST_KINDS, skipped_rows
from ..names import distinct_labels
from ..row import Row
from .columns import ALARMS, COLUMNS, duration, overhead_told

if TYPE_CHECKING:
    from .document import Document

_COLOURS = {"underperforming": ("yellow",), "moderate": ("cyan",), "saturated": ("green",)}
_ALARM = ("red", "bold")
#: Narrowest a kernel's name is cut to.
_NAME = 24
#: Kernels and names told where not all of them are.
_TOLD = 3
_LISTED = 5


class Line(NamedTuple):
    """One line. markup: colours and weight by the names that pytest's terminal writer takes."""

    text: str
    markup: tuple[str, ...] = ()


def title(document: Document) -> str:
    """How much was measured and judged."""
    rows = [row for row in document.rows if row.measurement is not None]
    verdicts = sum(row.entry.headroom_class != "unknown" for row in rows)
    untimed = len(document.rows) - len(rows)
    return f"roofline: {len(rows)} measured, {verdicts} with a verdict" + (f", {untimed} not measured" if untimed else "")


def lines(document: Document, width: int, verbosity: int) -> Iterator[Line]:
    """The section under its title, none wider than ``width`` but for a word that is, such as a path to be copied.

    verbosity: as pytest's: under 0 the contradictions alone, 1 the bases, 2 the notes.
    """
    for line in _content(document, width, verbosity):
        if len(line.text) <= width:
            yield line
            continue
        indent = " " * (len(line.text) - len(line.text.lstrip()) + 2)
        for part in textwrap.wrap(line.text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False):
            yield Line(part, line.markup)


def _content(document: Document, width: int, verbosity: int) -> Iterator[Line]:
    rows = [row for row in document.rows if row.measurement is not None]
    if verbosity >= 0:
        yield from _table(document, rows, width)
        for name, peaks in document.devices.items():
            yield Line(f"peaks of {printable(name)}: {_peaks(peaks)}")
    for row in document.rows:
        if row.check.status in ALARMS:
            colour = _ALARM if row.check.status == "beyond_roof" else ("yellow",)
            yield Line(f"{row.check.status}: {document.name(row)}: {printable(row.check.message)}", colour)
    low = [f"{document.name(row)} ({duration(row.measurement.t_s)})" for row in rows if row.measurement and _is_far_below(row)]
    if low:
        told = _some(low, verbosity > 0)
        yield Line(f"under a thousandth of the roof, as a time in a wrong unit is (seconds are meant): {told}", ("yellow",))
    hidden = [(row.overhead, row) for row in document.rows if row.overhead and row.overhead.graph_speedup > 1 + ISOLATED_NOISE]
    for spent, row in sorted(hidden, key=lambda pair: -pair[0].share)[: None if verbosity > 0 else _TOLD]:
        yield Line(f"launch overhead: {document.name(row)}: {overhead_told(spent)}")
    yield from _untimed(document, [row for row in document.rows if row.measurement is None and row.entry.modeled], verbosity)
    idle = sum(has_note(row.entry.notes, "idle") for row in document.rows)
    if idle:
        yield Line(f"not measured, {idle}: {IDLE.text}", ("yellow",))
    yield from _gates(document, rows)
    if verbosity >= 0:
        yield from _reasons(rows)
        yield from _rankings(document, rows, full=verbosity > 0)
        yield from _unmatched(document)
    if verbosity > 0:
        yield from _bases(document, notes=verbosity > 1)
    for line in document.problems:
        yield Line(f"roofline: {printable(line)}", ("yellow",))
    for path in document.written:
        yield Line(f"roofline report: {printable(path)}")


def _is_far_below(row: Row) -> bool:
    """Whether a device's kernel is so slow that its time may be in another unit; a loop on one of many cores may well be."""
    ratio = row.entry.roofline_pct_raw or 1.0
    return row.device != CPU and bool(row.entry.falsifiable) and ratio < SUSPECT_LOW


def _untimed(document: Document, rows: Sequence[Row], verbosity: int) -> Iterator[Line]:
    """Work without a time: what it would take at the roof."""
    told = [f"{document.name(row)} ({_moved(row)})" for row in rows[: None if verbosity > 0 else _TOLD]]
    if told and verbosity >= 0:
        more = f" and {len(rows) - len(told)} more" if len(rows) > len(told) else ""
        yield Line(f"work without a time: {', '.join(told)}{more}")


def _moved(row: Row) -> str:
    entry = row.entry
    moved = quantity(entry.bytes_est, "B") if entry.bytes_est else "no work"
    if entry.bytes_est and entry.flops_est:  # a kernel that does none, or whose FLOPs nobody counted, is of its bytes alone
        moved += f", {quantity(entry.flops_est, 'FLOP')}"
    roof = "memory roof" if entry.flops_est and entry.ridge_point is None else "roof"  # of a dtype without a compute peak
    return moved if row.roof_s is None else f"{moved}: {duration(row.roof_s)} at the {roof}"


def _gates(document: Document, rows: Sequence[Row]) -> Iterator[Line]:
    """What a gate that was asked for did not look at: silence would read as passed."""
    settings = document.settings
    spared = [document.name(row) for row in skipped_rows(rows, [*TEST_KINDS, "fail_under"], "low_confidence")]
    if spared:
        yield Line(f"not gated for low confidence, {len(spared)}: {_some(spared, False)}", ("yellow",))
    kinds = sorted(settings.fail_on & {"exceeds_target", "regression"})
    if rows and kinds and all(row.check.speedup is None for row in rows):
        yield Line(f"no row has a baseline, so {' and '.join(kinds)} could fail none: --roofline-baseline", ("yellow",))


def _table(document: Document, rows: Sequence[Row], width: int) -> Iterator[Line]:
    if not rows:
        return
    columns = [column for column in COLUMNS if column.title != "check" or any(column.text(row) != "-" for row in rows)]
    names = [document.name(row) for row in rows]
    longest = max(map(len, ("kernel", *names)))
    while True:
        cells = [[column.title for column in columns], *[[column.text(row) for column in columns] for row in rows]]
        sizes = [max(map(len, texts)) for texts in zip(*cells)]
        rest = sum(sizes) + 2 * len(sizes)
        optional = [column for column in columns if column.spare]
        if rest + min(longest, _NAME) <= width or not optional:
            break
        columns.remove(min(optional, key=lambda column: column.spare))
    size = min(longest, max(_NAME, width - rest))
    labels = distinct_labels(names, size, "..")
    for at, (name, texts) in enumerate(zip(("kernel", *(labels[name] for name in names)), cells)):
        padded = [text.rjust(wide) if column.right else text.ljust(wide) for text, wide, column in zip(texts, sizes, columns)]
        yield Line("  ".join([name.ljust(size), *padded]).rstrip(), _colour(rows[at - 1]) if at else ("bold",))


def _colour(row: Row) -> tuple[str, ...]:
    return _ALARM if row.check.status == "beyond_roof" or row.failed else _COLOURS.get(row.entry.headroom_class, ())


def _peaks(peaks: dict[str, object]) -> str:
    bandwidth = peaks.get("hbm_bw_bytes_s")
    parts = [quantity(bandwidth, "B/s") if isinstance(bandwidth, (int, float)) else "unknown bandwidth"]
    rates = peaks.get("flops") or peaks.get("vector")
    if isinstance(rates, dict):
        parts += [f"{dtype} {quantity(rates[dtype], 'FLOP/s')}" for dtype in ("fp64", "fp32", "bf16", "fp8") if dtype in rates]
    axes = peaks.get("low_confidence_axes")
    doubt = f"low confidence on {_some(axes, False)}" if isinstance(axes, list) else f"{peaks.get('confidence')} confidence"
    return f"{', '.join(parts)}; {peaks.get('source')}, {doubt}"


def _reasons(rows: Sequence[Row]) -> Iterator[Line]:
    """Why rows have no verdict, a line a reason, with what would settle it."""
    seen: dict[str, int] = {}
    for row in rows:
        if row.entry.headroom_class == "unknown" and row.check.status not in ("beyond_roof", "near_roof"):
            first = first_text(row.entry.notes) if not row.entry.modeled else _why(row)
            if first:
                seen[first] = seen.get(first, 0) + 1
    for reason, count in seen.items():
        yield Line(f"no verdict for {count}: {printable(reason)}")


def _why(row: Row) -> str:
    """The remark that explains the reason, not those on the model."""
    reason = row.entry.unknown_reason or ""
    if reason == "low_confidence":
        return _doubt(row)
    return {
        "cache_resident": "operands of up to twice the last-level cache are partly served by it: larger ones, or "
        "roofline.measure with a cold cache",
        "dispatch_bound": "the call is within the cost of a launch",
        "no_target": "what a good kernel of this op reaches is not known: target_eff= in the marker",
        "conflicting_models": "no one class holds over the byte models that are possible",
        "unvalidated_peak": "the peak of its roof is not known, or breaks a rule",
        "infeasible": "the ratio is impossible: the model, the peak or the time is wrong",
    }.get(reason, reason)


def _doubt(row: Row) -> str:
    if row.entry.stage == "A" and row.work_source == "captured":
        return "its captured work is a bound, or a guess at what is under test: a marker or the fixture makes it evidence"
    if row.entry.stage == "A":
        return "its work is guessed from names: a marker, the fixture or [tool.roofline.work] makes it evidence"
    if has_note(row.entry.notes, "shared_workers"):
        return SHARED_WORKERS.text
    if has_note(row.entry.notes, "no_device_sync"):
        return NO_DEVICE_SYNC.text
    if row.device == CPU:
        return "its ceiling swung while it was measured: `roofline peaks measure --force` in a quiet minute"
    return "the peak of its axis is not certain: name the product, not the architecture"


def _rankings(document: Document, rows: Sequence[Row], *, full: bool) -> Iterator[Line]:
    if len(rows) < 2:
        return
    shares = [document.name(row) for row in document.by_share() if row.measurement is not None]
    gains = [f"{document.name(row)} {_gain(row)}" for row in document.by_gain() if row.entry.rankable]
    measure = "share of GPU time" if any(row.entry.pct_gpu_time for row in rows) else "time"
    yield Line(f"by {measure}: {_some(shares, full)}")
    yield Line(f"by expected gain: {_some(gains, full) or 'nothing can be ranked'}")


def _some(names: Sequence[str], full: bool) -> str:
    return ", ".join(names if full or len(names) <= _TOLD else [*names[:_TOLD], "..."])


def _gain(row: Row) -> str:
    entry = row.entry
    return (
        f"(+{entry.expected_e2e_gain_pct:.2f} %)"
        if entry.expected_e2e_gain_pct is not None
        else f"({entry.attainable_speedup:.2f}x)"
    )


def _unmatched(document: Document) -> Iterator[Line]:
    kernels, tests = document.unmatched()
    for what, names in (("predictions without a test", kernels), ("tests without a prediction", tests)):
        if names:
            more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
            yield Line(f"{what}: {', '.join(printable(name) for name in names[:_LISTED])}{more}")


def _bases(document: Document, *, notes: bool) -> Iterator[Line]:
    for row in document.rows:
        entry, m = row.entry, row.measurement
        timed = f"{m.source}, {m.clock} clock, {m.cache} cache, {m.rounds or '?'} rounds" if m else "not measured"
        yield Line(f"{document.name(row)}: {_moved(row)} ({row.work_source or 'no source'}, stage {entry.stage}); {timed}")
        if notes and entry.notes:
            yield Line(f"    {printable(join_notes(entry.notes))}")
            for lever in (*entry.byte_reduction_levers, *entry.host_side_levers):
                yield Line(f"    lever: {printable(lever)}")
