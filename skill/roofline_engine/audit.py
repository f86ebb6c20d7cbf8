"""The rules a peak table must keep; ``peaks audit`` runs them on every product, ``peaks.resolve`` on the one in use."""

from __future__ import annotations

from .peaktable import Block, Line, Table, normalise, unit_counts
from .units import BANDWIDTH_BOUNDS, FLOPS_BOUNDS

#: A rated figure may exceed units x clock x rate by this: the largest rounding of a vendor figure that is right (L40S).
OVER_ARITHMETIC = 0.012
#: Measured "peaks" under this part of the arithmetic are microbenchmark faults: rocm-amdgpu-bench#24, rocm-systems#5162.
UNDER_ARITHMETIC = 0.55


def faults(table: Table, block: Block) -> list[tuple[str, Line, str]]:
    """The rules a product's figures break, as (axis, line, what is wrong), less those the block waives with a reason."""
    waived = {waiver for waiver, _ in _waivers(block)}
    return [(axis, line, what) for rule, axis, line, what in _broken(table, block) if (rule, axis) not in waived]


def _waivers(block: Block) -> list[tuple[tuple[str, ...], Line]]:
    return [(tuple(line.value.split()[:2]), line) for line in block.lines if line.key == "waiver"]


def _broken(table: Table, block: Block) -> list[tuple[str, str, Line, str]]:
    """Every rule that is broken, waived or not, as (rule, axis, line, what is wrong).

    Rules: plausible magnitude; rated <= units x clock x rate x 1.012 and >= 0.55 of it; BF16 == FP16 where the
    architecture runs them alike; without known rates, 8-bit at most 2.05x and 4-bit at most 4.1x the BF16 figure.
    """
    found: list[tuple[str, str, Line, str]] = []

    def fault(rule: str, axis: str, line: Line, text: str) -> None:
        found.append((rule, axis, line, text))

    memory = block.line("hbm_bw_bytes_s")
    if memory and memory.value != "unknown":
        value = block.value(memory)
        if not BANDWIDTH_BOUNDS[0] <= value <= BANDWIDTH_BOUNDS[1]:
            fault("magnitude", "memory", memory, f"{value:.4g} bytes/s is out of the range of any device: a unit error?")
    rates = table.rates.get(block.text("rates") or "")
    counts = unit_counts(block)
    for prefix in ("matrix.", "vector."):
        values = {dtype: (block.value(line), line) for dtype, line in block.figures(prefix)}
        for dtype, (value, line) in values.items():
            axis = prefix + dtype
            if not FLOPS_BOUNDS[0] <= value <= FLOPS_BOUNDS[1]:
                fault("magnitude", axis, line, f"{value:.4g} FLOP/s is out of the range of any device: a unit error?")
                continue
            rate = rates.maybe(axis) if rates else None
            # NVIDIA publishes the FP64 tensor rate at the clock of the vector units (H100 white paper, table 3).
            clock = _clock(block, "vector" if dtype == "fp64" else prefix.rstrip("."))
            if rate and counts and clock:
                exact = counts[0] * clock * 1e6 * rate
                ratio = value / exact
                against = f"{value:.5g} is {ratio:.3g}x units x clock x rate ({exact:.5g})"
                if ratio > 1 + OVER_ARITHMETIC:
                    hint = ": a structured-sparsity figure?" if 1.9 < ratio < 2.1 else ""
                    fault("over_arithmetic", axis, line, against + hint)
                elif ratio < UNDER_ARITHMETIC:
                    hint = "a unit error?" if ratio < 0.01 else "a capped or mismeasured figure?"
                    fault("under_arithmetic", axis, line, f"{against}: {hint}")
            elif not rates and "bf16" in values:
                limit = {"fp8": 2.05, "int8": 2.05, "fp4": 4.1}.get(dtype)
                if limit and value > limit * values["bf16"][0]:
                    fault("ratio", axis, line, f"{value:.5g} is more than {limit}x the bf16 figure: a sparse figure?")
        if "bf16" in values and "fp16" in values:
            same = not rates or rates.maybe(prefix + "bf16") == rates.maybe(prefix + "fp16")
            bf16, fp16 = values["bf16"][0], values["fp16"][0]
            if same and abs(bf16 / fp16 - 1) > 0.01:
                for dtype in ("bf16", "fp16"):
                    what = f"bf16 {bf16:.5g} and fp16 {fp16:.5g} must be equal here"
                    fault("bf16_fp16", prefix + dtype, values[dtype][1], what)
    return found


def _clock(block: Block, engine: str) -> float | None:
    """MHz from ``clock_mhz: matrix 1830 | vector 1980 | max 1980``."""
    line = block.line("clock_mhz")
    parts = (line.value, *line.fields) if line else ()
    found = next((part.split()[1] for part in parts if part.startswith(engine + " ")), "unknown")
    return None if found == "unknown" else float(found)


_REQUIRED = ("device_names", "gfx", "confidence", "units", "memory_bytes", "hbm_bw_bytes_s", "l2_bytes", "mall_bytes", "rates")


def audit(table: Table) -> tuple[int, list[str]]:
    """Check every product of a table: (number of figures read, one ``file:line: product: what is wrong`` a problem)."""
    problems: list[tuple[int, str]] = []
    figures = 0
    known_sources = _sources(table)
    owners: dict[str, str] = {}

    def problem(line: int, what: str) -> None:
        problems.append((line, f"{table.path}:{line}: {what}"))

    seen: set[tuple[str, str]] = set()
    for block in table.blocks:
        if (block.kind, block.id) in seen:
            problem(block.start, f"{block.kind} {block.id} appears twice")
        seen.add((block.kind, block.id))
        broken = False
        for line in block.lines:
            figure = line.key == "hbm_bw_bytes_s" or line.key.startswith(("matrix.", "vector."))
            if not figure or line.value == "unknown":
                continue
            figures += 1
            try:
                value = block.value(line)
                for name in ("max", "limit"):
                    top = line.named(name)
                    if top and top != "unknown" and block.value(line, top) < value / (1 + OVER_ARITHMETIC):
                        problem(line.number, f"{block.id}: {line.key} {name} {top} is under the rated {line.value}")
            except ValueError as error:
                broken = True
                problem(line.number, f"{block.id}: {error}")
            if not line.sources:
                problem(line.number, f"{block.id}: {line.key} has no source")
            for source in line.sources:
                if known_sources and source not in known_sources:
                    problem(line.number, f"{block.id}: {line.key} cites {source}, which the table of sources lacks")
        if block.kind == "default" and block.text("use") not in table.products:
            problem(block.start, f"default {block.id} uses {block.text('use')}, which is no product")
        if block.kind != "product":
            continue
        for key in _REQUIRED:
            if block.line(key) is None:
                problem(block.start, f"{block.id}: no line {key} (write unknown where it is not known)")
        if block.text("confidence") not in ("high", "medium", "low"):
            problem(block.start, f"{block.id}: confidence is {block.text('confidence')}, expected high, medium or low")
        listed = block.line("device_names")
        for name in {normalise(item) for item in listed.value.split(";")} if listed else ():
            if name in owners and "/" not in name:
                problem(listed.number if listed else block.start, f"{block.id}: {name} already names {owners[name]}")
            owners[name] = block.id
        if broken:
            continue
        for axis, line, what in faults(table, block):
            problem(line.number, f"{block.id}: {axis}: {what}")
        breaches = {(rule, axis) for rule, axis, _, _ in _broken(table, block)}
        for waiver, line in _waivers(block):
            if waiver not in breaches:
                problem(line.number, f"{block.id}: the waiver of {' '.join(waiver)} waives nothing")
            if not line.fields:
                problem(line.number, f"{block.id}: the waiver of {' '.join(waiver)} gives no reason")
    return figures, [text for _, text in sorted(problems)]


def _sources(table: Table) -> set[str]:
    """The ids of the table under ``## Sources``; empty where a user's table has none."""
    _, found, tail = table.text.partition("\n## Sources")
    rows = (line.split("|") for line in tail.split("\n") if line.startswith("|"))
    return {cells[1].strip(" `") for cells in rows if len(cells) > 2} if found else set()
