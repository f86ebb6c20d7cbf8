"""Compare the table by operation of a trace with TraceLens's tables of the same trace, row by row.

    python benchmarks/compare_tracelens.py trace.json.gz trace_perf_report_csvs/ [MORE_PAIRS ...]

Reads GEMM, CONV_fwd, SDPA_fwd, Normalization, BinaryElementwise, UnaryElementwise and Reduce_fwd. A row of theirs is an
operation that launched ours or is around it; rows are matched by calls and total time, which are facts of the trace. Prints
each row that is missing, or whose FLOPs or bytes differ by more than 1 %, and the counts. Their "Data Moved (MB)" is in MiB.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "skill")]

from roofline_engine.calls.recorded import model  # noqa: E402
from roofline_engine.ops import work  # noqa: E402
from roofline_engine.profiles import find_reader  # noqa: E402
from roofline_engine.profiles.rows import OpRow, op_rows  # noqa: E402

TABLES = ("GEMM", "CONV_fwd", "SDPA_fwd", "Normalization", "BinaryElementwise", "UnaryElementwise", "Reduce_fwd")
#: FLOPs and bytes agree within this; times within the rounding of their float64 timestamps.
SAME, SAME_TIME = 0.01, 0.005


class Theirs(NamedTuple):
    table: str
    name: str
    calls: int
    total_us: float
    flops: float
    nbytes: float
    inputs: str


def read_tables(folder: Path) -> Iterator[Theirs]:
    for table in TABLES:
        path = folder / f"{table}.csv"
        if not path.is_file():
            continue
        with path.open(encoding="utf-8", newline="") as stream:
            for row in csv.DictReader(stream):
                total = next(
                    float(value) for key, value in row.items() if key.startswith("Kernel Time") and key.endswith("_sum")
                )
                yield Theirs(
                    table,
                    row["name"],
                    int(float(row["name_count"])),
                    total,
                    float(row["GFLOPS_first"] or 0) * 1e9,
                    float(row["Data Moved (MB)_first"] or 0) * 2**20,
                    row["Input Dims_first"],
                )


def find(theirs: Theirs, rows: list[OpRow]) -> OpRow | None:
    """Return our row with these calls and this time, by preference with the same operation."""
    alike = [
        row
        for row in rows
        if row.facts is not None
        and row.times.calls == theirs.calls
        and abs(row.times.total_us - theirs.total_us) <= SAME_TIME * theirs.total_us + 0.01 * theirs.calls
    ]
    return min(alike, key=lambda row: row.facts is None or row.facts.name != theirs.name, default=None)


def compare(trace: Path, folder: Path) -> tuple[int, int, list[str]]:
    """Return how many rows of theirs there are, how many agree, and a line for each that does not."""
    reader = find_reader(str(trace))
    if reader is None:
        raise SystemExit(f"{trace}: not a trace")
    rows = op_rows(reader.read(str(trace)))
    count = agree = 0
    lines = []
    for theirs in read_tables(folder):
        count += 1
        label = f"{theirs.table} {theirs.name} {theirs.inputs}, {theirs.calls} calls, {theirs.total_us:.6g} us"
        row = find(theirs, rows)
        if row is None:
            lines.append(f"{label}: no row with these calls and this time")
            continue
        assert row.facts is not None
        found = model(row.facts, tuple(dict.fromkeys(use.name for use in row.kernels)))
        if found.case is None:
            lines.append(f"{label}: no model ({found.reason})")
            continue
        parameters: dict[str, Any] = dict(found.case)
        ours = work(str(parameters.pop("op")), **parameters)
        differences = [
            f"{what} {mine:.6g}, theirs {other:.6g} ({mine / other - 1:+.2%})" if other else f"{what} {mine:.6g}, theirs 0"
            for what, mine, other in (("FLOPs", ours.flops, theirs.flops), ("bytes", ours.bytes, theirs.nbytes))
            if abs(mine - other) > SAME * other
        ]
        agree += not differences
        if differences:
            lines.append(f"{label}: {'; '.join(differences)}")
    return count, agree, lines


def main() -> None:
    paths = [Path(name) for name in sys.argv[1:]]
    if not paths or len(paths) % 2:
        raise SystemExit(__doc__)
    for trace, folder in zip(paths[::2], paths[1::2], strict=True):
        count, agree, lines = compare(trace, folder)
        print(f"{trace.name}: {count} rows, {agree} agree within {SAME:.0%}")
        for line in lines:
            print(f"  {line}")


if __name__ == "__main__":
    main()
