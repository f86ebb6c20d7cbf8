"""``peaks audit``: every block of a peak table held to the rules (``rules``) and to what each block must say.

What cannot be waived is here: a key, value, source or size that is missing, misspelt or out of range, and an L2 that is
one die's (4 MiB on MI300X: GEAK).
"""

from __future__ import annotations

from .peaktable import Block, Table, normalise, unit_counts
from .rules import OVER_ARITHMETIC, broken, bus_bandwidth, unwaived, waiver_key, waivers

#: RDNA 3.5 has 51 KiB of L2 a CU, every other part more; one XCD's L2 over the CUs of MI300X is 13.
_L2_PER_UNIT = 40 * 1024

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
        allowed = {
            "product": (*_KEYS, "memory_bus", "product"),
            "default": ("default", "use", "hbm_bw_bytes_s"),
            "rates": ("rates",),
        }
        keys: set[str] = set()
        for line in block.lines:
            figure = line.key in ("hbm_bw_bytes_s", "memory_bus") or line.key.startswith(("matrix.", "vector."))
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
                value = (bus_bandwidth(block) or 0.0) if line.key == "memory_bus" else block.value(line)
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
        counts, cache = unit_counts(block), block.line("l2_bytes")
        if counts and cache and cache.value.isdigit() and float(cache.value) < _L2_PER_UNIT * counts[0]:
            self.problem(
                block, cache.number, f"l2_bytes is {cache.value} for {counts[0]} units: one die's? give the device's sum"
            )
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
        units = block.line("units")
        if units and units.value.split()[:1] != ["unknown"] and not unit_counts(block):
            readable = False
            self.problem(block, units.number, f"units is {units.value!r}, expected a count and its name")
        return readable

    def _rules(self, block: Block) -> None:
        waived = waivers(block)
        for _, axis, line, what in unwaived(self.table, block):
            self.problem(block, line.number, f"{axis}: {what}")
        breaches = {waiver_key(fault) for fault in broken(self.table, block)} | {("rates", "gfx")}
        for waiver, line in waived:
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
