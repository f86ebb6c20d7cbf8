"""profile_roofline.md: the verdicts first, the two rankings side by side, then each kernel with its basis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .advice import ROUTES
from .analyze import Report, by_expected_gain, by_pct
from .fields import ByteModel, Entry, Note, show
from .peaks import Peaks
from .units import parse_dtype, printable, quantity

if TYPE_CHECKING:
    from .profiles.ranks import RankTable

#: How many kernels that rank differently by gain and by share are described in words; the two lists show all.
_MOVES_SHOWN = 8
_COPIES_SHOWN = 3


def markdown(report: Report) -> str:
    """Write the report for people. Kernel names are shown escaped."""
    entries = by_pct(report.entries)
    parts = ["# Roofline headroom", _head(report)]
    if report.profile is not None:
        parts += ["## Where the time goes", _time(report)]
    if report.ranks is not None:
        parts += ["## Ranks", _ranks(report.ranks)]
    if entries:
        parts += ["## Verdicts", _verdicts(entries), "## The two rankings", _rankings(entries), "## Kernel by kernel"]
        parts += [_kernel(number, entry, report.peaks) for number, entry in enumerate(entries, 1)]
    else:
        parts.append(f"No kernel has {report.head_pct:g} % of GPU time or more, or none could be read: nothing to judge.")
    if report.degraded:
        parts += ["## Not judged", _bullets([f"{code(item.name)}: {text(item.show())}" for item in report.degraded])]
    if report.skill_errors:
        parts += ["## What went wrong", _bullets([text(item.show()) for item in report.skill_errors])]
    parts.append(
        "roofline_pct says how well a kernel spends its byte and FLOP budget, not whether that budget is needed. "
        "This report orders work and drops none; the measurement decides."
    )
    return "\n\n".join(parts) + "\n"


#: The narrowest that the columns of operations and shapes of the table by operation get.
_NARROWEST = 12


def by_op(report: Report, width: int | None = None) -> str:
    """Write the table by operation and shape. Names are shown escaped.

    width: of the terminal, to which long names and shapes are cut; None cuts nothing.
    """
    parts = ["# Roofline headroom by operation", _head(report)]
    if report.profile is None:
        parts.append("A table by operation needs a trace, which has the operations and their shapes; this is a Top-N.")
        return "\n\n".join(parts) + "\n"
    parts += ["## Where the time goes", _time(report)]
    if report.ranks is not None:
        parts += ["## Ranks", _ranks(report.ranks)]
    rows = [
        ["operation", "shape", "calls", "mean", "median", "GPU time", "FLOP", "bytes", "% roof", "roof", "headroom", "verdict"]
    ]
    for entry, row in report.ops:
        if row.inside:
            continue
        times = row.times
        rows.append(
            [
                code(entry.framework_op or entry.short_name, longest=40),
                text((entry.shape or "-")[:60]) + (f" {entry.regime}" if entry.regime != "unknown" else ""),
                f"{times.calls:g}",
                f"{times.mean_us:.4g} us",
                "-" if times.median_us is None else f"{times.median_us:.4g} us",
                f"{entry.pct_gpu_time:.2f} %",
                "-" if entry.flops_est is None else quantity(entry.flops_est, ""),
                "-" if entry.bytes_est is None else quantity(entry.bytes_est, "B"),
                _percent(entry.roofline_pct_raw if entry.suspect else entry.roofline_pct),
                entry.roof_axis or "-",
                _speedup(entry),
                _verdict(entry),
            ]
        )
    parts += ["## Operations", table(rows if width is None else _cut(rows, width))]
    if report.skill_errors:
        parts += ["## What went wrong", _bullets([text(item.show()) for item in report.skill_errors])]
    return "\n\n".join(parts) + "\n"


def _cut(rows: Sequence[Sequence[str]], width: int) -> list[list[str]]:
    """Return the rows with their first two columns, operation and shape, cut until the table fits; cells end with dots then."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    surplus = sum(widths) + 3 * len(widths) + 1 - width
    for at in (1, 0):
        less = max(0, min(surplus, widths[at] - _NARROWEST))
        widths[at] -= less
        surplus -= less
    return [[_shorten(cell, widths[at]) if at < 2 else cell for at, cell in enumerate(row)] for row in rows]


def _shorten(cell: str, width: int) -> str:
    if len(cell) <= width:
        return cell
    if cell.startswith("`"):
        return f"{cell.rstrip('`')[: width - 4]}...`"
    return f"{cell[: width - 3]}..."


def _time(report: Report) -> str:
    """Describe where the time of each device goes, and how much of it has a verdict."""
    from .profiles.output import cover

    assert report.profile is not None
    lines = []
    for timeline in report.profile.timelines:
        span = timeline.span_us or 1.0
        kernels = timeline.busy_us - timeline.exposed_communication_us - timeline.exposed_copy_us
        shares = [
            ("kernels", kernels),
            ("exposed communication", timeline.exposed_communication_us),
            ("exposed copies", timeline.exposed_copy_us),
            ("idle", timeline.idle_us),
        ]
        if not timeline.copy_us:  # none ran, or the file does not record them: then their time is idle
            shares[2:] = [("idle (no copy is recorded)", timeline.idle_us)]
        named = ", ".join(f"{name} {100 * value / span:.1f} %" for name, value in shares)
        lines.append(f"device {text(timeline.device)}: {timeline.span_us / 1e3:.4g} ms: {named}")
        without = timeline.span_us - timeline.exposed_communication_us
        if timeline.communication_us and without > 0:
            rest = f"kernels {100 * kernels / without:.1f} %, idle {100 * timeline.idle_us / without:.1f} %"
            in_all = f"{timeline.communication_us / 1e3:.4g} ms of communication in all"
            lines.append(f"without exposed communication: {rest}; {in_all}")
    covered = cover(report.ops)
    lines.append(
        f"of the kernels' time {covered.verdict:.1f} % has a verdict, {covered.reason:.1f} % a reason without one, "
        f"{covered.no_model:.1f} % no model"
    )
    if covered.reasons:
        lines.append("reasons: " + ", ".join(f"{name} {share:.1f} %" for name, share in covered.reasons.items()))
    if covered.largest:
        names = ", ".join(f"{code(name, longest=60)} {share:.1f} %" for name, share in covered.largest)
        lines.append(f"largest without a model: {names}")
    return _bullets(lines)


#: Operations of the table over ranks that the report shows; the artifact has all.
_RANK_ROWS = 20


def _ranks(ranks: RankTable) -> str:
    """Describe the ranks: who is slow, and where."""
    totals = sorted(ranks.totals, key=lambda total: -total.compute_us)
    slowest, fastest = totals[0], totals[-1]
    mean = sum(total.compute_us for total in totals) / len(totals)
    ends = [f"rank {text(total.name)} ({total.compute_us / 1e3:.4g} ms)" for total in (slowest, fastest)]
    lines = [
        f"{len(totals)} ranks: kernels take longest on {ends[0]}, shortest on {ends[1]}, {mean / 1e3:.4g} ms on average",
        f"the verdicts are of rank {text(slowest.name)}",
    ]
    lines += [f"straggler: rank {text(total.name)}" for total in ranks.stragglers()]
    rows = [["operation", "shape", "mean", "slowest", "rank", "fastest", "rank"]]
    for row in ranks.rows()[:_RANK_ROWS]:
        rows.append(
            [
                code(row.op, longest=40),
                text(row.shape[:60]) or "-",
                f"{row.total_us / row.ranks:.5g} us",
                f"{row.slowest[0]:.5g} us",
                text(row.slowest[1]),
                f"{row.fastest[0]:.5g} us",
                text(row.fastest[1]),
            ]
        )
    return _bullets(lines) + "\n\n" + table(rows)


def code(name: str, *, longest: int = 400) -> str:
    """Return a name as an inline code span, cut when it is very long."""
    label = printable(name[: 2 * longest]).replace("`", "'")
    return f"`{label}`" if len(label) <= longest else f"`{label[: longest - 3]}...`"


def _label(entry: Entry) -> str:
    """A name short enough for a table; the number next to it separates two equal ones."""
    shape = f" {text(entry.shape[:60])}" if entry.shape else ""
    return code(entry.short_name, longest=44) + shape


_ESCAPES = {ord(mark): "\\" + mark for mark in "\\`*|<>[]"}


def text(line: str) -> str:
    """Return free text with Markdown and HTML escaped."""
    return printable(line).translate(_ESCAPES)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table whose columns also line up in a terminal; the first row is the head."""
    rows = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows)]
    line = "| " + " | ".join(f"{{:<{width}}}" for width in widths) + " |"
    lines = [line.format(*row) for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


#: What each stage rests on.
_STAGES = {"A": "guessed shapes", "B": "captured shapes", "C": "hardware counters"}


def _head(report: Report) -> str:
    limit = f", at most {report.head_max}" if report.head_max else ""
    guessed = ", or no model, for at least one row; such rows are display only" if report.stage == "A" else ""
    return _bullets(
        [
            f"device: {_device(report.peaks)}",
            *(text(remark) for remark in report.remarks),
            *([f"about these peaks: {text(report.peaks.note)}"] if report.peaks.note else []),
            f"head: {len(report.entries)} of {report.rows} kernels, those with {report.head_pct:g} % of GPU time or more"
            f"{limit}; {report.head_share:.1f} % together",
            *_copies(report),
            *([f"stage {report.stage} ({_STAGES[report.stage]}){guessed}"] if report.entries else []),
        ]
    )


def _copies(report: Report) -> list[str]:
    """One line on the copies of the list, which are no kernels."""
    if not report.copies:
        return []
    share = sum(item.pct or 0.0 for item in report.copies)
    names = ", ".join(code(item.name, longest=44) for item in report.copies[:_COPIES_SHOWN])
    more = f" and {len(report.copies) - _COPIES_SHOWN} more" if len(report.copies) > _COPIES_SHOWN else ""
    return [f"copies and fills by the runtime, not kernels: {share:.1f} % of GPU time ({names}{more})"]


def _device(peaks: Peaks) -> str:
    name = peaks.product or peaks.gfx or "unknown"
    bandwidth = quantity(peaks.hbm_bw_bytes_s, "B/s") if peaks.hbm_bw_bytes_s else "unknown bandwidth"
    rates = [f"{dtype} {quantity(peaks.flops[dtype], 'FLOP/s')}" for dtype in ("bf16", "fp8") if dtype in peaks.flops]
    return f"{code(name)}, {', '.join([bandwidth, *rates])}; {peaks.source}, {peaks.confidence} confidence"


def _percent(fraction: float | None, span: Sequence[float] | None = None) -> str:
    return _range(fraction and 100 * fraction, span and [100 * end for end in span], ".1f", " %")


def _range(value: float | None, span: Sequence[float] | None, fmt: str, unit: str) -> str:
    if value is None:
        return "-"
    cell = format(value, fmt) + unit
    if span and format(span[0], fmt) != format(span[1], fmt):
        cell += f" ({format(span[0], fmt)} to {format(span[1], fmt)})"
    return cell


def _speedup(entry: Entry) -> str:
    digits = ".3f" if (entry.attainable_speedup or 0) < 2 else ".2f"
    return _range(entry.attainable_speedup, entry.attainable_speedup_range, digits, "x")


def _verdict(entry: Entry) -> str:
    if entry.headroom_class != "unknown":
        return f"**{entry.headroom_class}**"
    hint = f", would be {entry.indicative_class}" if entry.indicative_class else ""
    if not entry.modeled and entry.op != "unknown":
        hint = f" {entry.op}"
    return f"unknown ({entry.unknown_reason}{hint})"


def _verdicts(entries: Sequence[Entry]) -> str:
    rows = [["#", "kernel", "GPU time", "verdict", "roof", "% roof", "limiter", "headroom", "end to end", "route"]]
    for number, entry in enumerate(entries, 1):
        ratio = entry.roofline_pct_raw if entry.suspect else entry.roofline_pct
        rows.append(
            [
                str(number),
                _label(entry),
                f"{entry.pct_gpu_time:.2f} %",
                _verdict(entry),
                entry.roof_axis or "-",
                _percent(ratio, entry.roofline_pct_range) + (" impossible" if entry.suspect else ""),
                entry.bound_type,
                _speedup(entry),
                _range(entry.expected_e2e_gain_pct, entry.expected_e2e_gain_pct_range, ".2f", " %"),
                entry.route,
            ]
        )
    return table(rows)


def _rankings(entries: Sequence[Entry]) -> str:
    gains = by_expected_gain(entries)
    rows = [["rank", "by share of GPU time", "by expected end-to-end gain"]]
    for number, (share, gain) in enumerate(zip(entries, gains), 1):
        expected = f"+{gain.expected_e2e_gain_pct or 0:.2f} %" if gain.rankable else "not rankable, by share"
        rows.append([str(number), f"{_label(share)} {share.pct_gpu_time:.2f} %", f"{_label(gain)} {expected}"])
    return table(rows) + "\n\n" + _disagreement(entries, gains)


def _disagreement(entries: Sequence[Entry], gains: Sequence[Entry]) -> str:
    if not any(entry.rankable for entry in entries):
        return "Nothing can be ranked by gain yet, so both lists are in the order of GPU time."
    positions = {id(entry): position for position, entry in enumerate(entries, 1)}
    moved = [(place, entry) for place, entry in enumerate(gains, 1) if entry.rankable and place != positions[id(entry)]]
    if not moved:
        return "The two lists agree."
    moves = [
        f"{_label(entry)} is {_nth(place)} by gain and {_nth(positions[id(entry)])} by share"
        for place, entry in moved[:_MOVES_SHOWN]
    ]
    more = f", and {len(moved) - _MOVES_SHOWN} more" if len(moved) > _MOVES_SHOWN else ""
    return "They disagree: " + "; ".join(moves) + f"{more}."


def _nth(number: int) -> str:
    return {1: "first", 2: "second", 3: "third"}.get(number, f"{number}th")


def _kernel(number: int, entry: Entry, peaks: Peaks) -> str:
    lines = [f"### {number}. {code(entry.short_name)}"]
    if entry.short_name != entry.name:
        lines.append(f"full name: {code(entry.name)}")
    facts = []
    if entry.t_ms is not None:
        launches = entry.launches_per_unit
        unit = f", {launches:g} launches a unit: {show(entry, 't_unit_ms')}" if launches != 1 else ""
        facts.append(f"time: {show(entry, 't_ms')} a launch, {entry.regime}{unit}")
    if entry.bytes_est is not None:
        flops = "unknown FLOPs" if entry.flops_est is None else quantity(entry.flops_est, "FLOP")
        work = f"work: {quantity(entry.bytes_est, 'B')} and {flops} a unit"
        if entry.arithmetic_intensity is not None:
            ridge = "unknown" if entry.ridge_point is None else f"{entry.ridge_point:.4g}"
            work += f", {entry.arithmetic_intensity:.3g} FLOP/B against a ridge at {ridge}"
        facts.append(work)
    if entry.achieved_bw_bytes_s is not None:
        achieved = f"achieved: {quantity(entry.achieved_bw_bytes_s, 'B/s')} ({_percent(entry.hbm_util)} of peak)"
        if entry.achieved_flops:
            peak = f" ({_percent(entry.compute_util)} of {entry.dtype} peak)" if entry.dtype else ""
            achieved += f" and {quantity(entry.achieved_flops, 'FLOP/s')}{peak}"
        facts.append(achieved)
        facts += _achievable(entry, peaks)
    if entry.attainable_speedup is not None and entry.hard_limit_speedup is not None:
        exact = max(1.0, (entry.target_eff or 0) / (entry.roofline_pct or 1))
        capped = " (capped by the dispatch floor)" if entry.attainable_speedup < 0.999 * exact else ""
        facts.append(
            f"target: {entry.target_eff:.3g} of the roof; attainable {entry.attainable_speedup:.3f}x{capped}, "
            f"the roof itself {entry.hard_limit_speedup:.3f}x"
        )
        stage = f"stage {entry.stage} ({_STAGES[entry.stage]})"
        facts.append(f"basis: {entry.measurement_basis}, {stage}, {entry.confidence} confidence")
    if len(entry.byte_models) > 1:
        facts.append("byte models: " + "; ".join(_model(entry, model) for model in entry.byte_models))
    facts.append(f"route: {entry.route} ({ROUTES[entry.route]})")
    facts += [f"lever: {text(lever)}" for lever in (*entry.byte_reduction_levers, *entry.host_side_levers)]
    facts += _notes(entry.notes)
    return "\n\n".join([*lines, _bullets(facts)])


def _achievable(entry: Entry, peaks: Peaks) -> list[str]:
    """The achieved rate against the measured ceiling of its axis and against the roof."""
    if entry.roof_axis is None or entry.dtype is None or entry.suspect:
        return []
    axis, rate, unit = "memory", entry.achieved_bw_bytes_s, "B/s"
    if entry.roof_axis == "compute":
        if not (entry.achieved_flops and entry.compute_util):
            return []
        dtype, peak = parse_dtype(entry.dtype).peak, entry.achieved_flops / entry.compute_util
        engines = ("vector", "matrix") if entry.op_class == "elementwise" else ("matrix", "vector")
        roofs = [peaks.compute_axis(engine, dtype) for engine in engines]
        axis = next((name for name, roof in roofs if roof and abs(roof / peak - 1) < 1e-6), "")
        rate, unit = entry.achieved_flops, "FLOP/s"
    ceiling = peaks.achievable.get(axis)
    if not ceiling or rate is None:
        return []
    return [
        f"measured ceiling: {_percent(rate / ceiling)} of the {quantity(ceiling, unit)} achievable, "
        f"{_percent(entry.roofline_pct)} of the roof"
    ]


def _notes(notes: Sequence[Note]) -> list[str]:
    """The notes by kind: the unit, the assumptions and remarks, how to sharpen the figure."""
    units = [item.text for item in notes if item.code == "unit"]
    sharper = [item.text for item in notes if item.code == "sharpen"]
    rest = [item.text for item in notes if item.code not in ("unit", "sharpen")]
    remarks = ["assumptions and remarks: " + "; ".join(rest)] if rest else []
    return [text(line) for line in (*units, *remarks, *sharper)]


def _model(entry: Entry, model: ByteModel) -> str:
    remark = " infeasible" if model.feasible is False else " listed only" if model.feasible and not model.in_range else ""
    used = " (the figure)" if model is entry.byte_models[0] else ""
    share = ""
    if entry.bytes_est and entry.hbm_util is not None:
        share = f", {100 * entry.hbm_util * model.bytes / entry.bytes_est:.1f} % of peak"
    return f"{model.model} {quantity(model.bytes, 'B')}{share}{remark}{used}"
