"""Published kernel figures through the model: predictions reproduced, FLOPs agreed, nothing beyond the maximum-clock roof.

    python benchmarks/golden_figures.py FIGURES.csv

The file has one figure a row: source, arch_key, op_class, dtype, shape_json, time_us, achieved_tflops, achieved_gbs.
Rows whose op_class ends in ``trap`` carry a known error and are left out, as are rows without a complete shape.
"""

import csv
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "skill"))

from roofline_engine.ops import work  # noqa: E402
from roofline_engine.peaks import (  # noqa: E402
    Device,
    Peaks,
    resolve,
)
from roofline_engine.peaks_table import load  # noqa: E402
from roofline_engine.work import Work  # noqa: E402

PRODUCTS = {
    "gfx942": "MI300X",
    "gfx950": "MI355X",
    "mi350x": "MI350X",
    "mi308x": "MI308X",
    "h100-sxm5": "h100-sxm",
    "h800-sxm5": "h800-sxm",
    "h200-sxm5": "h200-sxm",
    "a100-sxm4-80gb": "a100-sxm-80",
}
NARROW = ("fp8", "mxfp8", "nvfp4", "fp4", "mxfp4")


def modelled(op: str, dtype: str, shape: dict[str, Any]) -> Work | None:
    """The work of a row, or None where its shape is not complete."""
    out = "bf16" if dtype in (*NARROW, "int8") else None
    op = op.removeprefix("sol_prediction_")
    if op in ("gemm", "gemv") and {"M", "N", "K"} <= shape.keys():
        return work("gemm", M=shape["M"], N=shape["N"], K=shape["K"], batch=shape.get("B", 1), dtype=dtype, out_dtype=out)
    if op == "moe_grouped":
        rows = shape["groups"] * shape["M_per_group"]
        return work("grouped_gemm", M=rows, N=shape["N"], K=shape["K"], groups=shape["groups"], dtype=dtype, out_dtype=out)
    if op == "moe" and "E" in shape:
        sizes = {"tokens": shape["tokens"], "hidden": shape["hidden"], "inter": shape["inter"]}
        return work("moe", experts=shape["E"], top_k=shape["topk"], dtype=dtype, out_dtype=out, l2_bytes=1e12, **sizes)
    if op in ("attn_prefill", "attn_bwd") and "Sq" in shape:
        return work(
            {"attn_bwd": "attn_backward"}.get(op, op),
            batch=shape["B"],
            n_q_heads=shape["Hq"],
            n_kv_heads=shape["Hkv"],
            head_dim=shape["D"],
            seq_q=shape["Sq"],
            seq_kv=shape["Skv"],
            causal=shape["causal"],
            dtype=dtype,
        )
    if op == "attn_decode" and "Skv_avg" in shape:
        heads = {"n_q_heads": shape["Hq"], "n_kv_heads": shape["Hkv"], "head_dim": shape["D"]}
        return work("attn_decode", batch=shape["B"], seq_len=shape["Skv_avg"], dtype=dtype, **heads)
    if op == "mla_decode" and "Skv_avg" in shape:
        return work("mla_decode", batch=shape["B"], n_q_heads=shape["Hq"], seq_len=shape["Skv_avg"], dtype=dtype)
    if op in ("softmax", "norm", "cross_entropy") and "M" in shape:
        kind = {"norm": "rmsnorm"}.get(op, op)
        return work(kind, rows=shape["M"], cols=shape["N"], dtype=dtype)
    return None


def roof_time(done: Work, peaks: Peaks, *, rated: bool) -> float:
    """Seconds under the roof with the smallest byte model; at maximum clock where that is known, unless ``rated``."""
    axis, rate = peaks.compute_axis(done.engine, done.dtype.peak)
    top = (peaks.flops_max if axis.startswith("matrix") else peaks.vector_max).get(axis.split(".")[1])
    bandwidth = peaks.hbm_bw_bytes_s if rated else peaks.hbm_bw_limit_bytes_s
    rate = rate if rated or not top else max(top, rate or 0.0)
    smallest = min(model.bytes for model in done.candidates if model.in_range)
    return max(smallest / (bandwidth or 1e99), done.flops / rate if rate else 0.0)


def main() -> None:
    table = load(str(ROOT / "peaks.md"))
    counts = {"predictions": [0, 0], "FLOPs within 3 %": [0, 0], "under the maximum-clock roof": [0, 0]}
    with Path(sys.argv[1]).open(newline="", encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    for number, row in enumerate(rows, 2):
        op, dtype, us = row["op_class"], row["dtype"], row["time_us"]
        shape = json.loads(row["shape_json"]) if row["shape_json"] else {}
        peaks = resolve(table, Device(device_name=PRODUCTS.get(row["arch_key"], row["arch_key"])))
        done = modelled(op, dtype, shape) if not op.endswith("trap") else None
        if done is None:
            continue

        def check(name: str, right: bool, what: str, at: int = number) -> None:
            counts[name][0] += right
            counts[name][1] += 1
            if not right:
                print(f"line {at}: {name}: {what}")

        if op.startswith("sol_prediction"):
            exact = roof_time(done, peaks, rated=True) * 1e6
            check("predictions", abs(exact / float(us) - 1) <= 0.005, f"{exact:.4g} us, published {us}")
            continue
        flops = row["achieved_tflops"]
        if us and flops and op.split("_")[0] in ("gemm", "attn", "moe"):
            ratio = done.flops / (float(us) * 1e-6 * float(flops) * 1e12)
            check("FLOPs within 3 %", abs(ratio - 1) <= 0.03, f"{ratio:.4f} of time x TFLOP/s ({op} {row['shape_json']})")
        if us:
            share = roof_time(done, peaks, rated=False) / (float(us) * 1e-6)
            check("under the maximum-clock roof", share <= 1.0, f"{share:.3f} of the roof ({op} {dtype} {row['shape_json']})")
    for name, (right, every) in counts.items():
        print(f"{name}: {right} of {every}")


if __name__ == "__main__":
    main()
