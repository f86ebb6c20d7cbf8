"""Numbers and dtypes as other tools write them. K1 to K4 are published errors of the skill that this one replaces."""

from __future__ import annotations

import pytest

from roofline_engine.units import (
    UNITS,
    finite,
    number,
    parse_dtype,
    printable,
    quantity,
    quantize_dtype,
    seconds,
    short_repr,
    unit_in,
    unit_of,
    whole,
    wider_dtype,
)


@pytest.mark.parametrize(
    ("spelling", "name", "nbytes"),
    [
        ("torch.bfloat16", "bf16", 2),
        ("c10::BFloat16", "bf16", 2),  # K4: unmatched, it fell back to the largest peak
        ("__hip_bfloat16", "bf16", 2),
        ("DF16b", "bf16", 2),
        ("torch.float16", "fp16", 2),
        ("c10::Half", "fp16", 2),
        ("_Float16", "fp16", 2),
        ("const __half*", "fp16", 2),
        ("torch.float8_e4m3fnuz", "fp8", 1),
        ("c10::Float8_e4m3fn", "fp8", 1),
        ("__nv_fp8_e4m3", "fp8", 1),
        ("jnp.float8_e5m2", "fp8", 1),
        ("fp8e4nv", "fp8", 1),
        ("float", "fp32", 4),
        ("double", "fp64", 8),
        ("tf32", "tf32", 4),
        ("XF32", "tf32", 4),
        ("torch.float6_e2m3fn", "fp6", 0.75),  # K2: these widths were silently two bytes
        ("torch.int4", "int4", 0.5),
        ("torch.bool", "bool", 1),
        ("torch.complex64", "complex64", 8),
        ("c10::complex<float>", "complex64", 8),
        ("mxfp4", "mxfp4", 4.25 / 8),  # OCP MX v1.0: one 8-bit scale per 32 values
        ("nvfp4", "nvfp4", 4.5 / 8),  # one 8-bit scale per 16 values
        ("mxfp8", "mxfp8", 8.25 / 8),
        ("signed char", "int8", 1),
        ("unsigned char", "uint8", 1),
        ("std::int64_t", "int64", 8),
    ],
)
def test_dtype_spellings(spelling: str, name: str, nbytes: float) -> None:
    dtype = parse_dtype(spelling)
    assert (dtype.name, dtype.nbytes) == (name, nbytes)


def test_k1_a_prefix_is_stripped_whole() -> None:
    # lstrip("torch.") strips characters: "torch.half" lost its h-less head and "torch.chalf" became another type.
    assert parse_dtype("torch.half").name == "fp16"
    assert parse_dtype("torch.chalf").name == "complex32"


def test_k3_packed_types_say_how_many_values_an_element_holds() -> None:
    packed = parse_dtype("torch.float4_e2m1fn_x2")
    assert (packed.nbytes, packed.pack, packed.peak) == (0.5, 2, "fp4")
    assert parse_dtype("torch.float4_e2m1fn").pack == 1


@pytest.mark.parametrize(
    ("element", "scheme", "name", "bits"),
    [
        ("fp4", "per_1x32", "mxfp4", 4 + 8 / 32),  # OCP MX v1.0: one E8M0 scale for 32 values: 6.25 % more than the elements
        ("fp8", "QuantType.per_1x32", "mxfp8", 8 + 8 / 32),
        ("fp4", "per1x16", "nvfp4", 4 + 8 / 16),  # NVFP4: one E4M3 scale for 16 values
        ("fp8", "per_1x128", "fp8/per_1x128", 8 + 32 / 128),  # DeepSeek-V3: fp32 scales of activations
        ("fp8", "per_128x128", "fp8/per_128x128", 8 + 32 / 128**2),  # and of weights
        ("int4", "group_128", "int4/group_128", 4 + 16 / 128),  # GPTQ, symmetric: an fp16 scale for 128 weights
        ("int4", "group_128_zp", "int4/group_128_zp", 4 + 20 / 128),  # AWQ: and a zero point of 4 bits
        ("fp8", "per_Token", "fp8", 8),
        ("int8", "QuantType.per_Tensor", "int8", 8),
        ("bf16", "QuantType.No", "bf16", 16),
        ("bf16", "per_1x32", "bf16", 16),  # the activations of a16w4
        ("mxfp4", "per_1x32", "mxfp4", 4.25),
    ],
)
def test_a_quantization_gives_elements_and_scales(element: str, scheme: str, name: str, bits: float) -> None:
    dtype = quantize_dtype(parse_dtype(element), scheme)
    assert (dtype.name, dtype.bits) == (name, bits)
    assert parse_dtype(dtype.name) == dtype  # a name that the work model takes
    assert dtype.peak == parse_dtype(element).peak


@pytest.mark.parametrize("unknown", ["per_banana", "", "per_0x32", "group_0", "128", "per_1x"])
def test_an_unknown_quantization_is_refused(unknown: str) -> None:
    with pytest.raises(ValueError, match="quantization"):
        quantize_dtype(parse_dtype("fp8"), unknown)


@pytest.mark.parametrize(
    ("name", "fields", "values"),
    [  # the structs of llama.cpp's ggml-common.h, their fields in bytes
        ("q4_0", (2, 16), 32),
        ("q8_0", (2, 32), 32),
        ("q2_K", (2, 2, 16, 64), 256),
        ("q3_K", (32, 64, 12, 2), 256),
        ("q4_K", (2, 2, 12, 128), 256),
        ("q5_K", (2, 2, 12, 32, 128), 256),
        ("q6_K", (128, 64, 16, 2), 256),
        ("iq4_xs", (2, 2, 4, 128), 256),
    ],
)
def test_gguf_blocks_have_their_bits_per_weight(name: str, fields: tuple[int, ...], values: int) -> None:
    assert parse_dtype(name).bits == 8 * sum(fields) / values
    assert parse_dtype(name).peak is None


@pytest.mark.parametrize(
    "unknown", ["float7/per_1x32", "float7", "torch.tensor", "bf", "fp", "8", "float16x", "fp88", "", None, 16, ["bf16"]]
)
def test_unknown_dtypes_fail_closed(unknown: object) -> None:
    with pytest.raises(ValueError, match="dtype"):
        parse_dtype(unknown)


def test_mixed_operands_run_at_the_wider_rate() -> None:
    assert wider_dtype(parse_dtype("bf16"), parse_dtype("int4")).name == "bf16"
    assert wider_dtype(parse_dtype("fp8"), parse_dtype("mxfp4")).name == "fp8"


@pytest.mark.parametrize(
    ("text", "value"), [("12.5", 12.5), ("1,234", 1234), ("1,234,567.25", 1234567.25), (" 7 ", 7), ("-3", -3), ("1e3", 1000.0)]
)
def test_numbers_are_parsed_exactly(text: str, value: float) -> None:
    assert number(text, "x") == value


REFUSED = ["1,23", "1,2345", "12,34.5", "1.234,5", "1_000", "nan", "inf", "26.45%", "", "0x10"]


@pytest.mark.parametrize("value", [*REFUSED, True, float("nan"), 10**400, [1], None])
def test_invalid_numbers_are_refused_by_name(value: object) -> None:
    with pytest.raises(ValueError, match=r"^row 3: pct is .*expected"):
        number(value, "row 3: pct")


def test_whole_numbers() -> None:
    assert whole(64.0, "M") == 64
    for bad in (64.5, 0, -1, 1e16):
        with pytest.raises(ValueError, match=r"^M is"):
            whole(bad, "M")


@pytest.mark.parametrize(
    ("value", "shown"),
    [(696746007.75, "696.7 MB"), (201326592, "201.3 MB"), (999_960, "1 MB"), (950, "950 B"), (0, "0 B"), (8e12, "8 TB")],
)
def test_quantities_are_si(value: float, shown: str) -> None:
    assert quantity(value, "B") == shown  # MB is 10^6, not 2^20 (torchcomms#142, nvbench#4)


def test_terminal_escapes_are_escaped() -> None:
    assert printable("k\x1b[31mred\x07\n") == "k\\x1b[31mred\\x07\\n"


@pytest.mark.parametrize(
    ("spellings", "kind", "factor", "axis"),
    [
        ("ns nsec nanoseconds", "time", 1e-9, ""),
        ("us \u00b5s \u03bcs usec microseconds", "time", 1e-6, ""),
        ("ms msec milliseconds", "time", 1e-3, ""),
        ("s sec seconds", "time", 1.0, ""),
        ("GFLOPS gflop/s gflops/s", "flop_rate", 1e9, "compute"),
        ("TFLOPS TFLOP/s tflops/s tflop_s TFLPOS", "flop_rate", 1e12, "compute"),
        ("PFLOPS pflop/s", "flop_rate", 1e15, "compute"),
        ("flops_s", "flop_rate", 1.0, "compute"),
        ("GB/s gbps GB_s GB_per_s gb_per_sec gbs GBytes/s bandwidth_gbps bandwidth_gb_s", "bandwidth", 1e9, "memory"),
        ("TB/s tbps tb_s tb_per_s tb_per_sec", "bandwidth", 1e12, "memory"),
        ("bytes_s bytes/s", "bandwidth", 1.0, "memory"),
        ("GiB/s", "bandwidth", 2.0**30, "memory"),
        ("MB", "bytes", 1e6, ""),
        ("MiB", "bytes", 2.0**20, ""),
        ("FLOPs", "flops", 1.0, ""),
    ],
)
def test_units_by_every_spelling(spellings: str, kind: str, factor: float, axis: str) -> None:
    for spelling in spellings.split():
        unit = unit_of(f" {spelling} ")
        assert unit is not None, spelling
        assert (unit.kind, unit.factor, unit.axis) == (kind, pytest.approx(factor), axis), spelling


def test_a_unit_is_a_whole_word_of_the_kinds_asked_for() -> None:
    assert all(spelling == spelling.lower() for spelling in UNITS)
    assert unit_of("parsecs") is None
    assert unit_of("ms", "bandwidth", "flop_rate") is None
    assert unit_in("Runtime (us)") == unit_of("us")
    assert unit_in("TFLOPS, tflop/s") == unit_of("tflops")
    assert unit_in("ms or us") is None
    assert unit_in("size in MB, time in ms", "time") == unit_of("ms")


def test_only_finite_numbers_are_json_numbers() -> None:
    assert finite(3) == 3.0
    assert [finite(value) for value in (True, "1", None, float("nan"), float("inf"), 10**400)] == [None] * 6


def test_a_value_in_a_message_is_short_and_printable() -> None:
    assert short_repr("a\x1b[0m") == "'a\\x1b[0m'"
    assert short_repr("x" * 100) == "'" + "x" * 56 + "..."
    assert len(short_repr(list(range(100)), 40)) == 40


def test_a_number_has_an_upper_limit() -> None:
    with pytest.raises(ValueError, match="share is 2, expected at most 1"):
        number(2, "share", maximum=1)


def test_a_time_is_one_that_a_kernel_can_take() -> None:
    assert seconds("0.25", "t_s") == 0.25
    for value in (1e308, 1e-300, 2e9, True, 0, -1.0, "soon"):
        with pytest.raises(ValueError, match=r"^t_s is .*, expected "):
            seconds(value, "t_s")
