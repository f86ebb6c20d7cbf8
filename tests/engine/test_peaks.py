"""peaks.md: the table, the resolver, the audit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roofline_engine.peaks import Device, Peaks, architecture, resolve
from roofline_engine.peaks_audit import audit
from roofline_engine.peaks_table import Table, load
from support.tool import ROOT, run_tool

TEXT = (ROOT / "peaks.md").read_text(encoding="utf-8")
TABLE = load(str(ROOT / "peaks.md"))
GIB = 2**30

#: Device names as drivers and runtimes report them, and the product each is; None is a device the table does not know.
NAMES: dict[str, str | None] = {
    "Tesla V100-SXM2-16GB": "v100-sxm2",
    "Tesla V100-SXM2-32GB": "v100-sxm2",
    "Tesla V100-PCIE-32GB": "v100-pcie",
    "Tesla V100S-PCIE-32GB": "v100s-pcie",
    "Tesla T4": "t4",
    "NVIDIA T4G": None,
    "NVIDIA A10": "a10",
    "NVIDIA A10G": "a10g",
    "NVIDIA A30": "a30",
    "NVIDIA A40": "a40",
    "NVIDIA A100-SXM4-80GB": "a100-sxm-80",
    "NVIDIA A800-SXM4-80GB": "a100-sxm-80",
    "NVIDIA A100 80GB PCIe": "a100-pcie-80",
    "NVIDIA A100-SXM4-40GB": "a100-sxm-40",
    "NVIDIA A100-PCIE-40GB": "a100-pcie-40",
    "NVIDIA RTX A6000": "rtx-a6000",
    "NVIDIA RTX 6000 Ada Generation": "rtx6000-ada",
    "NVIDIA L4": "l4",
    "NVIDIA L40": "l40",
    "NVIDIA L40S": "l40s",
    "NVIDIA GeForce RTX 3090": "rtx3090",
    "NVIDIA GeForce RTX 3090 Ti": None,
    "NVIDIA GeForce RTX 4090": "rtx4090",
    "NVIDIA GeForce RTX 4090 D": "rtx4090d",
    "NVIDIA GeForce RTX 5090": "rtx5090",
    "NVIDIA GeForce RTX 5090 D": None,
    "NVIDIA GeForce RTX 5090 Laptop GPU": None,
    "NVIDIA GeForce RTX 5060 Ti": None,
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "rtxpro6000-ws",
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition": "rtxpro6000-maxq",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "rtxpro6000-se",
    "NVIDIA H100 80GB HBM3": "h100-sxm",
    "NVIDIA H100 PCIe": "h100-pcie",
    "NVIDIA H100 NVL": "h100-nvl",
    "NVIDIA H100 80GB HBM3 MIG 1g.10gb": "h100-sxm",
    "NVIDIA H200": "h200-sxm",
    "NVIDIA H200 NVL": "h200-nvl",
    "NVIDIA H800": "h800-sxm",
    "NVIDIA H800 PCIe": "h800-pcie",
    "NVIDIA H20": "h20",
    "NVIDIA H20-3e": "h20-3e",
    "NVIDIA GH200 480GB": "gh200-96",
    "NVIDIA GH200 120GB": "gh200-96",
    "NVIDIA GH200 144G HBM3e": "gh200-144",
    "NVIDIA B100": "b100",
    "NVIDIA B200": "b200",
    "NVIDIA GB200": "gb200",
    "NVIDIA B300 SXM6 AC": "b300",
    "NVIDIA GB300": "gb300",
    "NVIDIA GB10": "gb10",
    "AMD Instinct MI50/MI60": "mi50",
    "AMD Instinct MI100": "mi100",
    "AMD Instinct MI210": "mi210",
    "AMD Instinct MI250X": "mi250x-gcd",
    "AMD Instinct MI300X": "mi300x",
    "AMD Instinct MI300X VF": "mi300x",
    "AMD Instinct MI300A": "mi300a",
    "AMD Instinct MI308X": "mi308x",
    "AMD Instinct MI325X": "mi325x",
    "AMD Instinct MI350X": "mi350x",
    "AMD Instinct MI355X": "mi355x",
    "AMD Radeon RX 7900 XTX": "rx7900xtx",
    "AMD Radeon RX 7900 XT": None,
    "AMD Radeon PRO W7900": "w7900",
    "AMD Radeon PRO W7900D": None,
    "AMD Radeon RX 9070 XT": "rx9070xt",
    "AMD Radeon RX 9070": "rx9070",
    "AMD Radeon AI PRO R9700": "r9700",
    "Radeon 8060S Graphics": "strix-halo",
    "AMD Radeon Graphics": None,
    "Intel(R) Data Center GPU Max 1550": "max1550",
    "Intel(R) Arc(TM) B580 Graphics": "b580",
    "TPU v4": "tpu-v4",
    "TPU v5 lite": "tpu-v5e",
    "TPU v5": "tpu-v5p",
    "TPU v6 lite": "tpu-v6e",
    "TPU7x": "tpu-v7",
    "Apple M1 Max": "m1-max",
    "Apple M4 Max": "m4-max",
    "Apple M4": None,
}
SHARED_NAME = "AMD Instinct MI250X/MI250"


def found(**keys: object) -> Peaks:
    return resolve(TABLE, Device(**keys))  # type: ignore[arg-type]


def test_the_table_holds_its_76_products() -> None:
    assert len(TABLE.products) == 76
    assert len(NAMES) + 1 == 81


@pytest.mark.parametrize(("name", "product"), NAMES.items())
def test_device_names_resolve_whole(name: str, product: str | None) -> None:
    peaks = found(device_name=name)
    if product is None:
        assert (peaks.source, peaks.hbm_bw_bytes_s) == ("derived", None)
        assert run_tool("peaks", "show", name).code == 2
    else:
        assert (peaks.product, peaks.source) == (product, "table")


def test_a_shared_name_has_two_candidates_until_the_unit_count_decides() -> None:
    both = found(device_name=SHARED_NAME)
    assert both.product is None
    assert "mi250-gcd, mi250x-gcd" in both.note
    assert both.confidence == "high"  # they agree within 10 %
    assert found(device_name=SHARED_NAME, cu_count=104).product == "mi250-gcd"
    assert found(device_name=SHARED_NAME, cu_count=110).product == "mi250x-gcd"
    shown = run_tool("peaks", "show", SHARED_NAME)
    assert (shown.code, "mi250-gcd, mi250x-gcd" in shown.out) == (0, True)


def test_every_product_shows_by_its_id() -> None:
    for product in TABLE.products:
        assert found(device_name=product).product == product


@pytest.mark.parametrize(
    ("keys", "product"),
    [
        ({"gfx": "gfx942:sramecc+:xnack-", "cu_count": 304, "memory_bytes": 192 * GIB}, "mi300x"),
        ({"gfx": "gfx942", "cu_count": 304, "memory_bytes": 256 * GIB}, "mi325x"),
        ({"gfx": "gfx942", "cu_count": 228}, "mi300a"),
        ({"gfx": "gfx942", "cu_count": 80}, "mi308x"),
        ({"gfx": "gfx90a", "cu_count": 110}, "mi250x-gcd"),
        ({"gfx": "gfx1201", "memory_bytes": 32 * GIB}, "r9700"),
        ({"gfx": "gfx1201", "cu_count": 28}, "rx9070"),  # reported as work-group processors
        ({"gfx": "gfx1100", "memory_bytes": 24 * GIB}, "rx7900xtx"),
        ({"gfx": "9.0", "cu_count": 78, "memory_bytes": 96 * GIB}, "h20"),
        ({"gfx": "sm_100a", "cu_count": 152}, "gb200"),
        ({"gfx": "sm_89", "cu_count": 58}, "l4"),
        ({"gfx": "MI355X"}, "mi355x"),
    ],
)
def test_architecture_with_units_and_memory_is_a_product(keys: dict[str, object], product: str) -> None:
    assert found(**keys).product == product


def test_bare_gfx950_has_the_specifications_rounded_figures() -> None:
    peaks = found(gfx="gfx950")
    assert (peaks.hbm_bw_bytes_s, peaks.flops["fp8"]) == (8.0e12, 5.0e15)
    assert peaks.flops["fp8"] / peaks.hbm_bw_bytes_s == 625
    assert peaks.confidence == "high"  # MI350X and MI355X are 8.3 % apart
    assert found(device_name="AMD Instinct MI355X").flops["fp8"] == 5.0332e15
    assert found(device_name="AMD Instinct MI350X").flops["fp8"] == pytest.approx(4.6137e15)


def test_bare_gfx942_is_low_where_its_products_differ_and_says_which_key_to_add() -> None:
    peaks = found(gfx="gfx942")
    assert (peaks.product, peaks.confidence) == (None, "low")
    assert "memory" in peaks.low_axes  # 5.3 and 6.0 TB/s
    assert "device_name, or cu_count and memory_bytes" in peaks.note


@pytest.mark.parametrize("gfx", ["gfx1201", "gfx1100", "sm_86", "sm_89", "sm_120"])
def test_architectures_without_a_default_do_not_inherit(gfx: str) -> None:
    peaks = found(gfx=gfx)
    assert (peaks.source, peaks.hbm_bw_bytes_s, peaks.flops) == ("derived", None, {})
    assert "device_name" in peaks.note


def test_an_unlisted_name_is_never_more_than_low() -> None:
    peaks = found(gfx="gfx950", device_name="AMD Instinct MI399X")
    assert (peaks.confidence, peaks.product) == ("low", None)
    assert "MI399X" in peaks.note


def test_contradicting_keys_are_low_and_named() -> None:
    peaks = found(gfx="gfx950", device_name="AMD Instinct MI300X")
    assert peaks.confidence == "low"
    assert "mi300x (gfx942) but gfx says gfx950" in peaks.note


def test_a_mig_slice_is_scaled_and_low() -> None:
    whole, part = found(device_name="NVIDIA H100 80GB HBM3"), found(device_name="NVIDIA H100 80GB HBM3 MIG 3g.40gb")
    assert (part.product, part.confidence) == ("h100-sxm", "low")
    assert part.hbm_bw_bytes_s == pytest.approx((whole.hbm_bw_bytes_s or 0) * 4 / 8)  # 40 of 80 GB: 4 memory slices of 8
    assert part.flops["bf16"] == pytest.approx(whole.flops["bf16"] * 60 / 132)  # not 3/7
    seen = found(device_name="NVIDIA H100 80GB HBM3 MIG 3g.40gb", cu_count=48)
    assert seen.flops["bf16"] == pytest.approx(whole.flops["bf16"] * 48 / 132)


@pytest.mark.parametrize(
    ("name", "units", "memory"),
    [
        # SMs by nvidia-smi mig -lgip, memory slices of eight by the MIG user guide.
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 14, 1 / 8),
        ("NVIDIA A100-SXM4-80GB MIG 7g.80gb", 98, 1.0),  # 98 of 108
        ("NVIDIA A100-PCIE-40GB MIG 3g.20gb", 42, 4 / 8),
        ("NVIDIA A30 MIG 2g.12gb", 28, 2 / 4),
        ("NVIDIA H100 80GB HBM3 MIG 1g.20gb", 26, 2 / 8),  # more than the 16 of 1g.10gb
        ("NVIDIA H100 PCIe MIG 4g.40gb", 62, 4 / 8),
        ("NVIDIA H100 NVL MIG 3g.47gb", 60, 4 / 8),
        ("NVIDIA H200 MIG 1g.18gb+me", 16, 1 / 8),
        ("NVIDIA GH200 480GB MIG 4g.48gb", 64, 4 / 8),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition MIG 1g.24gb", 46, 1 / 4),
    ],
)
def test_a_mig_profile_has_its_own_number_of_sms(name: str, units: int, memory: float) -> None:
    whole, part = found(device_name=name.partition(" MIG ")[0]), found(device_name=name)
    assert part.units == units
    assert part.flops["bf16"] == pytest.approx(whole.flops["bf16"] * units / (whole.units or 0))
    assert part.hbm_bw_bytes_s == pytest.approx((whole.hbm_bw_bytes_s or 0) * memory)


@pytest.mark.parametrize("name", ["NVIDIA B200 MIG 2g.45gb", "NVIDIA GB200 MIG 1g.24gb", "NVIDIA H100 PCIe MIG 1c.3g.40gb"])
def test_a_mig_profile_with_an_unknown_number_of_sms_has_no_compute_roof(name: str) -> None:
    part = found(device_name=name)
    assert (part.flops, part.vector, part.units) == ({}, {}, None)
    assert part.hbm_bw_bytes_s
    assert "its SMs are not known, so no compute peak: add cu_count" in part.note


def test_a_partition_is_scaled_and_low() -> None:
    whole, part = found(device_name="AMD Instinct MI300X"), found(device_name="AMD Instinct MI300X", cu_count=38)
    assert part.confidence == "low"
    assert part.flops["fp8"] == pytest.approx(whole.flops["fp8"] / 8)


@pytest.mark.parametrize(
    ("gfx", "clock_khz", "bus_bits", "bandwidth"),
    [
        ("gfx90a", 1600000, 4096, 1.6384e12),  # MI250X: 2 transfers a clock
        ("gfx942", 1300000, 8192, 5.3248e12),  # MI300X: 4; the usual 2 reads half (triton.testing)
        ("gfx1201", 1250000, 256, 0.64e12),  # GDDR6 as HIP reports it: 16
        ("sm_90", 2619000, 5120, 3.35232e12),  # H100: 2
    ],
)
def test_derived_bandwidth_uses_the_memorys_transfers(gfx: str, clock_khz: int, bus_bits: int, bandwidth: float) -> None:
    peaks = found(gfx=gfx, device_name="unlisted part", cu_count=1, memory_clock_khz=clock_khz, memory_bus_bits=bus_bits)
    assert peaks.source == "derived"
    assert peaks.hbm_bw_bytes_s == pytest.approx(bandwidth)


def test_compute_is_not_derived_where_siblings_are_cut() -> None:
    # H20 has 78 SMs and 148 TFLOP/s; units x clock x rate would say 632.
    keys = {"cu_count": 78, "memory_bytes": 120e9, "clock_khz": 1980000, "memory_clock_khz": 2619000, "memory_bus_bits": 5120}
    peaks = found(gfx="sm_90", **keys)
    assert (peaks.source, peaks.flops) == ("derived", {})
    assert peaks.hbm_bw_bytes_s is not None
    assert "h20" in peaks.note


def test_an_uninformative_device_name_leaves_the_other_keys() -> None:
    keys = {"gfx": "gfx942", "cu_count": 304, "memory_bytes": 192 * GIB}
    assert found(**keys, device_name="AMD Radeon Graphics") == found(**keys)


def test_a17_a_clock_in_the_wrong_unit_is_refused_by_magnitude() -> None:
    """pytorch#196372: kHz read as MHz, 1000 times too low."""
    peaks = found(gfx="sm_90", device_name="unlisted", cu_count=1, memory_clock_khz=2619, memory_bus_bits=5120)
    assert peaks.hbm_bw_bytes_s is None


def test_architecture_spellings() -> None:
    assert {architecture(text) for text in ("sm_90", "sm90", "SM90a", "9.0")} == {"sm_90"}
    assert {architecture(text) for text in ("12.0", "sm_120", "sm120f")} == {"sm_120"}
    assert architecture("gfx90a:sramecc+") == "gfx90a"


def test_show_json_is_the_artifacts_peaks_object() -> None:
    shown = json.loads(run_tool("peaks", "show", "NVIDIA H200", "--json").out)
    assert shown["product"] == "h200-sxm"
    assert shown["hbm_bw_bytes_s"] == 4.8e12
    assert shown["flops"]["bf16"] == pytest.approx(989.4e12)
    assert set(shown) >= {"product", "gfx", "hbm_bw_bytes_s", "flops", "vector", "source", "confidence", "note"}


def test_list_has_a_line_for_each_product() -> None:
    done = run_tool("peaks", "list")
    assert done.code == 0
    assert {line.split()[0] for line in done.out.splitlines()[1:]} == set(TABLE.products)
    assert set(json.loads(run_tool("peaks", "list", "--json").out)) == set(TABLE.products)


def test_the_table_as_shipped_passes_its_audit() -> None:
    done = run_tool("peaks", "audit")
    assert (done.code, "76 products" in done.out) == (0, True), done.out


def line_of(text: str, product: str, key: str) -> tuple[int, str]:
    lines = text.split("\n")
    start = lines.index(f"product: {product}")
    return next((number, line) for number, line in enumerate(lines[start:], start + 1) if line.startswith(f"{key}:"))


@pytest.mark.parametrize(
    ("product", "key", "planted", "says"),
    [
        ("h100-sxm", "matrix.bf16", "1979e12", "structured-sparsity"),  # sparse as dense (KernelAgent, torch inductor)
        ("mi300x", "matrix.fp8", "5229.8e12", "structured-sparsity"),
        ("rtx5090", "hbm_bw_bytes_s", "1.792e15", "unit error"),  # 1000x (torchao)
        ("l4", "matrix.fp16", "121e9", "unit error"),
        ("mi355x", "matrix.bf16", "1.2583e15", "must be equal"),  # BF16 half of FP16 (rocm-amdgpu-bench#24)
        ("mi300x", "matrix.fp16", "700e12", "units x clock x rate"),  # under 0.55 of the arithmetic
        ("a100-sxm-80", "matrix.bf16", "316e12", "units x clock x rate"),  # 1.75 % over
        ("tpu-v6e", "matrix.int8", "3672e12", "more than 2.05x"),
        ("h20", "matrix.fp8", "592e12", "more than 2.12x the bf16 figure"),  # waived arithmetic, the ratio still holds
        ("mi300x", "rates", "gfx924", "is no rates block"),
        ("mi300x", "gfx", "gfx924", "are not those of gfx"),
        ("mi300x", "memory_bytes", "192", "expected bytes between"),
        ("mi300x", "mall_bytes", "256", "expected bytes between"),
        ("mi300x", "clock_mhz", "matrx 2100", "expected matrix, vector or max"),
        ("mi300x", "units", "CU", "expected a count"),
    ],
)
def test_the_audit_names_the_line_of_a_planted_error(tmp_path: Path, product: str, key: str, planted: str, says: str) -> None:
    number, line = line_of(TEXT, product, key)
    lines = TEXT.split("\n")
    lines[number - 1] = " |".join([f"{key}: {planted}", *line.split("|")[1:]])
    path = tmp_path / "peaks.md"
    path.write_text("\n".join(lines), encoding="utf-8")
    done = run_tool("peaks", "audit", "--peaks", path)
    assert done.code == 1
    named = [row for row in done.out.splitlines() if row.startswith(f"{path}:") and f": {product}: " in row]
    assert any(says in row for row in named), done.out
    if key != "gfx":  # a wrong gfx shows at the rates that do not go with it
        assert any(row.startswith(f"{path}:{number}: ") for row in named), done.out


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("matrix.fp8: 5.0e15 | max 5.0332e15", "matrix.fp8: 10.0e15 | max 10.0e15", "structured-sparsity"),
        ("matrix.bf16: 2.5e15", "matrix.bf16: 1.25e15", "must be equal"),
        ("hbm_bw_bytes_s: 8.0e12 | limit 8.192e12", "hbm_bw_bytes_s: 8.0e15 | limit 8.192e15", "unit error"),
    ],
)
def test_a_default_block_must_match_its_product(old: str, new: str, says: str) -> None:
    at = TEXT.index("default: gfx950")
    broken = Table(TEXT[:at] + TEXT[at:].replace(old, new, 1))
    assert any("gfx950" in problem and says in problem for problem in audit(broken)[1])
    if "bf16" in old:
        assert "matrix.bf16" in resolve(broken, Device(gfx="gfx950")).unvalidated


def test_the_audit_finds_misspelled_and_repeated_lines() -> None:
    at = TEXT.index("product: mi300x\n")
    for old, new, says in (
        ("matrix.fp8:", "matrx.fp8:", "matrx.fp8 is not a key of a product block"),
        ("matrix.fp16:", "matrix.bf16:", "matrix.bf16 is given twice"),
    ):
        broken = TEXT[:at] + TEXT[at:].replace(old, new, 1)
        assert any(says in problem for problem in audit(Table(broken))[1])


def test_memory_that_differs_from_the_product_is_doubted() -> None:
    peaks = found(device_name="AMD Instinct MI300X", memory_bytes=256 * GIB)
    assert peaks.confidence == "low"
    assert "memory_bytes 274.9e9 is not that of mi300x" in peaks.note


def test_differing_candidates_are_not_reported_as_equal() -> None:
    peaks = found(gfx="sm_90", cu_count=78)  # H20 has 4.0 TB/s, H20-3e 4.8
    assert peaks.confidence == "low"
    assert "differ by more than 10 % on memory" in peaks.note


def test_clocks_in_mhz_are_not_read_as_khz() -> None:
    peaks = found(gfx="sm_90", device_name="unlisted", cu_count=144, clock_khz=1980)
    assert peaks.flops == {}


def test_the_audit_requires_sources_reasons_and_used_waivers() -> None:
    broken = TEXT.replace("vector.fp32: 66.9e12 | max 66.908e12 | [nv-h100-wp]", "vector.fp32: 66.9e12 | max 66.908e12", 1)
    assert any("has no source" in problem for problem in audit(Table(broken))[1])
    broken = TEXT.replace("[nv-h100-wp]", "[unlisted-source]", 1)
    assert any("cites unlisted-source" in problem for problem in audit(Table(broken))[1])
    at = TEXT.index("waiver: over_arithmetic vector.fp32", TEXT.index("product: h20\n"))
    end = TEXT.index("\n", at)
    assert any("units x clock x rate" in problem for problem in audit(Table(TEXT[:at] + TEXT[end + 1 :]))[1])
    bare = TEXT[:at] + "waiver: over_arithmetic vector.fp32" + TEXT[end:]
    assert any("gives no reason" in problem for problem in audit(Table(bare))[1])
    idle = TEXT.replace("product: t4\n", "product: t4\nwaiver: over_arithmetic matrix.fp16 | because\n", 1)
    assert any("waives nothing" in problem for problem in audit(Table(idle))[1])


def test_bf16_may_differ_from_fp16_where_the_architecture_runs_it_at_half_rate() -> None:
    mi100 = found(device_name="AMD Instinct MI100")
    assert mi100.flops["bf16"] == pytest.approx(mi100.flops["fp16"] / 2, rel=0.01)
    assert mi100.unvalidated == {}


def test_a_users_table_with_a_bad_peak_gives_no_compute_verdict(tmp_path: Path) -> None:
    number, line = line_of(TEXT, "mi300x", "matrix.bf16")
    lines = TEXT.split("\n")
    lines[number - 1] = "matrix.bf16: 653.7e12 |" + line.split("|", 1)[1]
    peaks = resolve(Table("\n".join(lines), shipped=False), Device(device_name="MI300X"))
    assert peaks.source == "user"
    assert set(peaks.unvalidated) >= {"matrix.bf16"}


def test_an_unreadable_line_is_named(tmp_path: Path) -> None:
    _, line = line_of(TEXT, "mi300x", "matrix.bf16")
    path = tmp_path / "peaks.md"
    path.write_text(TEXT.replace(line, "matrix.bf16: lots | [arith]", 1), encoding="utf-8")
    done = run_tool("peaks", "audit", "--peaks", path)
    assert done.code == 1
    assert "matrix.bf16 of mi300x is 'lots', expected a number" in done.out


def test_a_file_without_a_table_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "empty.md"
    path.write_text("# nothing\n")
    done = run_tool("peaks", "list", "--peaks", path)
    assert (done.code, "no fenced block starts with 'product:'" in done.err) == (2, True)


def test_the_bandwidth_of_the_l2_is_that_of_its_bytes_a_clock() -> None:
    """NVIDIA: 5,120 bytes a clock on A100, at 1410 MHz; 2,048 on V100, at 1530 MHz. Of several products, only a common one."""
    assert found(device_name="NVIDIA A100-SXM4-80GB").l2_bw_bytes_s == pytest.approx(5120 * 1410e6, rel=1e-4)
    assert found(device_name="Tesla V100-SXM2-16GB").l2_bw_bytes_s == pytest.approx(2048 * 1530e6, rel=1e-3)
    assert found(device_name="NVIDIA H100 80GB HBM3").l2_bw_bytes_s is None
