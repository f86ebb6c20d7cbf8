"""Tuner CSVs of aiter through the model: how many published rows lie beyond the roof, by accident or by a wrong model.

    python benchmarks/tuned_rows.py gemm FILE.csv ... --device NAME
    python benchmarks/tuned_rows.py fmoe FILE.csv ... --device NAME

A row beyond the roof is a false alarm, unless its time is a placeholder. The device is that of gfx and ``cu_num``: 80 CU of
gfx942 are MI308X, 304 MI300X, 256 CU of gfx950 MI355X; ``--device`` overrides it. A GEMM file without a dtype column is fp8
(block scale). Rows whose time or device cannot be used are counted.
"""

import argparse
import csv
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "skill"))

from roofline_engine.ops import work  # noqa: E402
from roofline_engine.peaks import (  # noqa: E402
    Device,
    Peaks,
    resolve,
)
from roofline_engine.peaks_table import load  # noqa: E402
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=["gemm", "fmoe"])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--device")
    options = parser.parse_args()
    table = load(str(ROOT / "peaks.md"))
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
