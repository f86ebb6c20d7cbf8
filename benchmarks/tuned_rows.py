"""Tuner CSVs of aiter through the model: how many published rows lie beyond the roof, by accident or by a wrong model.

    python benchmarks/tuned_rows.py gemm FILE.csv ... --device NAME
    python benchmarks/tuned_rows.py fmoe FILE.csv ... --device NAME
    python benchmarks/tuned_rows.py planted FILE.csv ...

``planted`` divides the times by 10, 100, 1,000 and a million, and counts the rows that ``roofline check`` calls beyond the roof
and those that it must: the operands that a launch has to read, over the full bus, or its FLOPs at the highest clock, take
more than twice the planted time (a clock may be off by the time itself). The rows as they are come first.

A row beyond the roof is a false alarm, unless its time is a placeholder. The device is that of gfx and ``cu_num``: 80 CU of
gfx942 are MI308X, 304 MI300X, 256 CU of gfx950 MI355X; ``--device`` overrides it. A GEMM file without a dtype column is fp8
(block scale). Rows whose time or device cannot be used are counted.
"""

import argparse
import csv
import dataclasses
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "skill"), str(ROOT)]

from pytest_roofline.records.check import Checker  # noqa: E402
from pytest_roofline.records.formats import ADAPTERS, choose  # noqa: E402
from pytest_roofline.records.source import RecordRow, open_source  # noqa: E402
from roofline_engine.ops import work  # noqa: E402
from roofline_engine.peaks import (  # noqa: E402
    Device,
    Peaks,
    resolve,
)
from roofline_engine.peaks_table import Table, load  # noqa: E402
from roofline_engine.roofline import roof_of  # noqa: E402
from roofline_engine.units import number, parse_dtype  # noqa: E402
from roofline_engine.work import Work  # noqa: E402

DEVICES = {("gfx942", "80"): "MI308X", ("gfx942", "304"): "MI300X", ("gfx950", "256"): "MI355X"}


def gemm(row: dict[str, str]) -> list[Work]:
    dtype = parse_dtype(row.get("dtype") or row.get("q_dtype_w") or "fp8")
    out = parse_dtype(row.get("outdtype") or "bf16")
    return [work("gemm", M=row["M"], N=row["N"], K=row["K"], dtype=dtype, out_dtype=out)]


def fmoe(row: dict[str, str]) -> list[Work]:
    """With the routed experts, and with all of them."""
    weight = parse_dtype(row["q_dtype_w"])
    shape = {"tokens": row["token"], "hidden": row["model_dim"], "inter": row["inter_dim"], "experts": row["expert"]}
    done = work(
        "moe",
        top_k=row["topk"],
        gated=row["use_g1u1"] == "1",
        dtype=parse_dtype(row["q_dtype_a"]),
        weight_dtype=weight,
        out_dtype=parse_dtype(row["dtype"]),
        **shape,
    )
    every = next(model for model in done.candidates if model.model == "all_experts")
    return [done, done._replace(candidates=(every,))]


def ratios(done: Work, seconds: float, peaks: Peaks) -> tuple[float, float]:
    """Memory and compute utilisation."""
    p = roof_of(done, peaks).place(done.bytes, done.flops, seconds)
    return p.hbm_util or 0.0, p.compute_util or 0.0


#: What a rate may exceed a rated peak by where the table has no highest clock: see ``peaks.OVER_RATED``.
UNKNOWN_CLOCK = 1.10


def least_seconds(done: Work, peaks: Peaks) -> float:
    """Return the time that no launch can take: reads over the full bus, FLOPs at the highest clock.

    What a launch writes may still be in a cache when it ends. The bytes of a MoE are weights, which are read.
    """
    axis, rate = peaks.compute_axis(done.engine, done.dtype.peak)
    bus = peaks.hbm_bw_limit_bytes_s or peaks.hbm_bw_bytes_s
    reads = done.unavoidable[0] - (done.written or 0.0)
    fastest = peaks.highest(axis) or (rate * UNKNOWN_CLOCK if rate else None)
    return max(reads / bus if bus else 0.0, done.unavoidable[1] / fastest if fastest else 0.0)


def plant(table: Table, files: list[Path], device: str | None) -> None:
    """Print how many impossible times are caught, of those that were made from the times of public tables."""
    checker = Checker(table, device=device)
    records: list[RecordRow] = []
    for path in files:
        with open_source(path) as source:
            adapter = choose(source.sample(), ADAPTERS)
            assert adapter is not None, path
            records += [record for record in adapter.read(source) if record.t_s is not None and not record.refused]
    for factor in (1.0, 10.0, 100.0, 1e3, 1e6):
        counts: Counter[str] = Counter()
        for record in records:
            planted = dataclasses.replace(record, t_s=(record.t_s or 0.0) / factor, placeholder_time=False)
            row, done, peaks = checker.row("planted", planted), checker.work_of(planted), checker.peaks_of(planted)
            if row.refusal is not None or done is None or isinstance(peaks, str):
                counts["without work or peaks"] += 1
                continue
            is_caught = row.check.status == "beyond_roof"
            is_placeholder = is_caught and factor == 1 and record.placeholder_time
            is_certain = least_seconds(done, peaks) > 1.05 * 2 * planted.t_s
            counts["rows"] += 1
            counts["caught"] += is_caught and not is_placeholder
            counts["placeholders"] += is_placeholder
            counts["certain"] += is_certain
            counts["missed"] += is_certain and not is_caught
        total = counts["rows"]
        print(
            f"times / {factor:g}: {counts['caught']} of {total} beyond the roof ({counts['caught'] / max(total, 1):.1%}), "
            f"{counts['placeholders']} placeholders; {counts['certain']} must be, {counts['missed']} of them missed; "
            f"{counts['without work or peaks']} without work or peaks"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=["gemm", "fmoe", "planted"])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--device")
    options = parser.parse_args()
    table = load(str(ROOT / "peaks.md"))
    if options.kind == "planted":
        plant(table, options.files, options.device)
        return
    build = {"gemm": gemm, "fmoe": fmoe}[options.kind]
    total: Counter[str] = Counter({"rows": 0, "refused": 0, "beyond the roof": 0})
    highest = 0.0, 0.0
    for path in options.files:
        with path.open(newline="", encoding="utf-8") as handle:
            rows = list(csv.DictReader(handle))
        for line, row in enumerate(rows, 2):
            total["rows"] += 1
            target = (row.get("gfx") or "gfx942", row.get("cu_num", ""))
            name = options.device or DEVICES.get(target)
            if name is None:
                total["on devices without peaks"] += 1
                continue
            peaks = resolve(table, Device(device_name=name))
            try:
                seconds = number(row["us"], "us", above=0) / 1e6
                works = build(row)
            except (ValueError, KeyError) as error:
                total["refused"] += 1
                print(f"{path.name}:{line}: refused: {error}")
                continue
            for label, done in zip(("beyond the roof", "beyond the roof with all experts"), works):
                memory, compute = ratios(done, seconds, peaks)
                if max(memory, compute) > 1:
                    total[label] += 1
                    if label == "beyond the roof":
                        print(f"{path.name}:{line}: {memory:.3g} of bandwidth, {compute:.3g} of FLOP/s in {seconds * 1e6:g} us")
                if label == "beyond the roof" and seconds > 1e-6:
                    highest = max(highest[0], memory), max(highest[1], compute)
    print(", ".join(f"{count} {label}" for label, count in total.items()))
    print(f"highest shares of rows longer than 1 us: {highest[0]:.3f} of bandwidth, {highest[1]:.3f} of FLOP/s")


if __name__ == "__main__":
    main()
