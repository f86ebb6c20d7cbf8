"""The rules a peak table must keep; ``peaks audit`` runs them on every product, ``peaks.resolve`` on the one in use."""

from __future__ import annotations

from .peaktable import Block, Line, Table, normalise, unit_counts
from .units import BANDWIDTH_BOUNDS, FLOPS_BOUNDS

#: A rated figure may exceed units x clock x rate by this: the largest rounding of a vendor figure that is right (L40S).
OVER_ARITHMETIC = 0.012
#: Measured "peaks" under this part of the arithmetic are microbenchmark faults: rocm-amdgpu-bench#24, rocm-systems#5162.
UNDER_ARITHMETIC = 0.55

#: Vendor roundings move the ratio of two dtypes by up to 5.2 % (GB10's FP4 headline).
_RATIO_SLACK = 1.06
#: Pin rate times bus is at most 7 % over what vendors sell (B200: 7.672 of 8.192).
_LIMIT_OVER_RATED = 1.15


def faults(table: Table, block: Block) -> list[tuple[str, Line, str]]:
    """The rules a product's figures break, as (axis, line, what is wrong), less those the block waives with a reason."""
    waived = {waiver for waiver, _ in _waivers(block)}
    return [(axis, line, what) for rule, axis, line, what in _broken(table, block) if (rule, axis) not in waived]


def _waivers(block: Block) -> list[tuple[tuple[str, ...], Line]]:
    return [(tuple(line.value.split()[:2]), line) for line in block.lines if line.key == "waiver"]


def _broken(table: Table, block: Block) -> list[tuple[str, str, Line, str]]:
    """Every rule that is broken, waived or not, as (rule, axis, line, what is wrong).

    Rules: plausible magnitude; rated <= units x clock x rate x 1.012 and >= 0.55 of it; BF16 == FP16 where the
    architecture runs them alike; 8-bit and 4-bit figures in their architecture's ratio to BF16, at most 2.05x and 4.1x
    where that is not known. A default block is checked with the units and clocks of the product it uses.
    """
    base = table.products.get(block.text("use") or "", block)
    rates = table.rates.get(base.text("rates") or "")
    counts = unit_counts(base)
    found: list[tuple[str, str, Line, str]] = []

    def fault(rule: str, axis: str, line: Line, text: str) -> None:
        found.append((rule, axis, line, text))

    memory = block.line("hbm_bw_bytes_s")
    if memory and memory.value != "unknown":
        value = block.value(memory)
        limit = memory.named("limit")
        if not BANDWIDTH_BOUNDS[0] <= value <= BANDWIDTH_BOUNDS[1]:
            fault("magnitude", "memory", memory, f"{value:.4g} bytes/s is out of the range of any device: a unit error?")
        elif limit and limit != "unknown" and block.value(memory, limit) > _LIMIT_OVER_RATED * value:
            fault("magnitude", "memory", memory, f"the limit {limit} is over {_LIMIT_OVER_RATED}x the rated {memory.value}")
    for prefix in ("matrix.", "vector."):
        values = {dtype: (block.value(line), line) for dtype, line in block.figures(prefix)}
        half = values["bf16"][0] if "bf16" in values else None
        for dtype, (value, line) in values.items():
            axis = prefix + dtype
            if not FLOPS_BOUNDS[0] <= value <= FLOPS_BOUNDS[1]:
                fault("magnitude", axis, line, f"{value:.4g} FLOP/s is out of the range of any device: a unit error?")
                continue
            rate = rates.maybe(axis) if rates else None
            # NVIDIA publishes the FP64 tensor rate at the clock of the vector units (H100 white paper, table 3).
            clock = _clock(base, "vector" if dtype == "fp64" else prefix.rstrip("."))
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
            most = {"fp8": 2.05, "int8": 2.05, "fp6": 4.1, "fp4": 4.1}.get(dtype)
            base_rate = rates.maybe(prefix + "bf16") if rates else None
            if most and half:
                most = _RATIO_SLACK * rate / base_rate if rate and base_rate else most
                if value > most * half:
                    fault("ratio", axis, line, f"{value:.5g} is more than {most:.3g}x the bf16 figure: a sparse figure?")
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
    return float(found) if found.replace(".", "", 1).isdigit() else None


_KEYS = (
    "vendor",
    "device_names",
    "gfx",
    "confidence",
    "units",
    "pci_ids",
    "memory_bytes",
    "hbm_bw_bytes_s",
    "l2_bytes",
    "mall_bytes",
    "clock_mhz",
    "rates",
)
_SIZES = {"memory_bytes": (1e9, 1e12), "l2_bytes": (1e5, 1e9), "mall_bytes": (1e6, 1e9)}


def audit(table: Table) -> tuple[int, list[str]]:
    """Check every block of a table: (number of figures read, one ``file:line: block: what is wrong`` a problem)."""
    return _Audit(table).run()


class _Audit:
    def __init__(self, table: Table) -> None:
        self.table = table
        self.problems: list[tuple[int, str]] = []
        self.figures = 0
        self.known_sources = _sources(table)
        self.owners: dict[str, str] = {}

    def problem(self, block: Block, line: int, what: str) -> None:
        self.problems.append((line, f"{self.table.path}:{line}: {block.id}: {what}"))

    def run(self) -> tuple[int, list[str]]:
        seen: set[tuple[str, str]] = set()
        for block in self.table.blocks:
            if (block.kind, block.id) in seen:
                self.problem(block, block.start, f"a second {block.kind} block of this name")
            seen.add((block.kind, block.id))
            readable = self._lines(block)
            if block.kind == "default" and block.text("use") not in self.table.products:
                self.problem(block, block.start, f"uses {block.text('use')}, which is no product")
                continue
            if block.kind == "product":
                readable = self._product(block) and readable
            if block.kind != "rates" and readable:
                self._rules(block)
        return self.figures, [text for _, text in sorted(self.problems)]

    def _lines(self, block: Block) -> bool:
        """Keys, values and sources of each line; whether every figure could be read."""
        readable = True
        allowed = {"product": (*_KEYS, "product"), "default": ("default", "use", "hbm_bw_bytes_s"), "rates": ("rates",)}
        keys: set[str] = set()
        for line in block.lines:
            figure = line.key == "hbm_bw_bytes_s" or line.key.startswith(("matrix.", "vector."))
            if line.key not in (*allowed.get(block.kind, ()), "note", "waiver") and not line.key.startswith(
                ("matrix.", "vector.")
            ):
                self.problem(block, line.number, f"{line.key} is no key of a {block.kind} block")
            if line.key in keys and line.key != "waiver":
                self.problem(block, line.number, f"{line.key} is given twice")
            keys.add(line.key)
            if not figure or line.value == "unknown":
                continue
            self.figures += 1
            try:
                value = block.value(line)
                for name in ("max", "limit"):
                    top = line.named(name)
                    if top and top != "unknown" and block.value(line, top) < value / (1 + OVER_ARITHMETIC):
                        self.problem(block, line.number, f"{line.key} {name} {top} is under the rated {line.value}")
            except ValueError as error:
                readable = False
                self.problem(block, line.number, str(error))
            if not line.sources:
                self.problem(block, line.number, f"{line.key} has no source")
            for source in line.sources:
                if self.known_sources and source not in self.known_sources:
                    self.problem(block, line.number, f"{line.key} cites {source}, which the table of sources lacks")
        return readable

    def _product(self, block: Block) -> bool:
        """What a product must say, and whether its arithmetic can be checked at all."""
        readable = True
        for key in _KEYS:
            if block.line(key) is None:
                self.problem(block, block.start, f"no line {key} (write unknown where it is not known)")
        if block.text("confidence") not in ("high", "medium", "low"):
            self.problem(block, block.start, f"confidence is {block.text('confidence')}, expected high, medium or low")
        for key, (low, high) in _SIZES.items():
            line = block.line(key)
            for size in (block.text(key) or "").split():
                try:
                    right = low <= float(size) <= high
                except ValueError:
                    right = False
                if not right and line:
                    self.problem(block, line.number, f"{key} is {size}, expected bytes between {low:g} and {high:g}")
        listed = block.line("device_names")
        for name in {normalise(item) for item in listed.value.split(";")} if listed else ():
            if name in self.owners and "/" not in name:
                self.problem(block, listed.number if listed else 0, f"{name} already names {self.owners[name]}")
            self.owners[name] = block.id
        rates, line = block.text("rates"), block.line("rates")
        if rates and rates not in self.table.rates and line:
            self.problem(block, line.number, f"rates {rates} is no rates block")
        elif rates and line and not _same_arch(rates, block.text("gfx")) and ("rates", "gfx") not in dict(_waivers(block)):
            self.problem(block, line.number, f"rates {rates} are not those of gfx {block.text('gfx')}")
        clocks = block.line("clock_mhz")
        for part in (clocks.value, *clocks.fields) if clocks else ():
            engine, _, clock = part.partition(" ")
            if engine not in ("matrix", "vector", "max") or not (clock == "unknown" or clock.replace(".", "").isdigit()):
                readable = False
                self.problem(
                    block, clocks.number if clocks else 0, f"clock_mhz: {part!r}, expected matrix, vector or max and MHz"
                )
        units = block.line("units")
        if units and units.value.split()[:1] != ["unknown"] and not unit_counts(block):
            readable = False
            self.problem(block, units.number, f"units is {units.value!r}, expected a count and its name")
        return readable

    def _rules(self, block: Block) -> None:
        broken = _broken(self.table, block)
        waivers = _waivers(block)
        for axis, line, what in faults(self.table, block):
            self.problem(block, line.number, f"{axis}: {what}")
        breaches = {(rule, axis) for rule, axis, _, _ in broken} | {("rates", "gfx")}
        for waiver, line in waivers:
            if waiver not in breaches:
                self.problem(block, line.number, f"the waiver of {' '.join(waiver)} waives nothing")
            if not line.fields:
                self.problem(block, line.number, f"the waiver of {' '.join(waiver)} gives no reason")


def _same_arch(rates: str, gfx: str | None) -> bool:
    """Whether a rates block (``sm_120-pro``) is of this architecture."""
    return rates in (gfx, f"{gfx}-pro", f"{gfx}-geforce")


def _sources(table: Table) -> set[str]:
    """The ids of the table under ``## Sources``; empty where a user's table has none."""
    _, found, tail = table.text.partition("\n## Sources")
    rows = (line.split("|") for line in tail.split("\n") if line.startswith("|"))
    return {cells[1].strip(" `") for cells in rows if len(cells) > 2} if found else set()
