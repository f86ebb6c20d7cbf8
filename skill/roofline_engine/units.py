"""Numbers, dtypes and units as other tools write them, understood exactly or refused by name."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import NamedTuple

#: Tesla to Blackwell and MI50 to MI355X are well inside these bounds; a figure outside is a unit error (GB read as bytes, kHz
#: as MHz, a 1000x typo: pytorch/ao roofline_utils RTX 5090, pytorch#196372).
BANDWIDTH_BOUNDS = (0.05e12, 20e12)  # bytes/s of one device
FLOPS_BOUNDS = (0.1e12, 200e15)  # FLOP/s of one device, any dtype
#: A CPU, from one core of a phone to two sockets with HBM.
HOST_BANDWIDTH_BOUNDS = (1e9, 4e12)
HOST_FLOPS_BOUNDS = (0.5e9, 1e15)


#: A femtosecond, in which light crosses 0.3 um, and 30 years. No kernel takes such a time, and every rate of one is finite.
TIME_BOUNDS = (1e-15, 1e9)  # seconds
#: More bytes or FLOPs than a kernel can have: 1e18 bytes/s for 30 years. Every rate of them is finite.
LARGEST_WORK = 1e30


def number(
    value: object, what: str, *, minimum: float | None = None, above: float | None = None, maximum: float | None = None
) -> float:
    """Return ``value`` as a finite number; an int stays an int.

    Accepts int, float, and strings holding a plain number, also with commas between groups of three digits
    (``"1,234.5"``). Refuses booleans, NaN, infinities, anything else, and values outside the limits.

    Raises:
        ValueError: naming ``what``, the value and what was expected.
    """
    result: float
    if isinstance(value, bool):
        raise ValueError(f"{what} is {value}, expected a number")
    if isinstance(value, (int, float)):
        result = value
    elif isinstance(value, str):
        result = _number_from_text(value, what)
    else:
        raise ValueError(f"{what} is {short_repr(value)}, expected a number")
    if finite(result) is None:
        raise ValueError(f"{what} is {short_repr(value)}, expected a finite number")
    if minimum is not None and result < minimum:
        raise ValueError(f"{what} is {short_repr(value)}, expected at least {minimum:g}")
    if above is not None and result <= above:
        raise ValueError(f"{what} is {short_repr(value)}, expected more than {above:g}")
    if maximum is not None and result > maximum:
        raise ValueError(f"{what} is {short_repr(value)}, expected at most {maximum:g}")
    return result


def seconds(value: object, what: str) -> float:
    """Return ``value`` as a time in seconds.

    Raises:
        ValueError: as ``number``, and for a time outside TIME_BOUNDS.
    """
    t_s = number(value, what, above=0)
    if not is_time(t_s):
        raise ValueError(f"{what} is {short_repr(value)}, expected a time from {TIME_BOUNDS[0]:g} to {TIME_BOUNDS[1]:g} s")
    return float(t_s)


def is_time(t_s: float) -> bool:
    """Return whether a number of seconds may be the time of a kernel; false for NaN."""
    return TIME_BOUNDS[0] <= t_s <= TIME_BOUNDS[1]


_HALF_DIGITS = tuple(0.5 * 10.0**-places for places in range(40))


def half_digit(text: str, value: float) -> float:
    """Return half of the last printed digit as a fraction of the value: 0.09 is exact to 0.056 of itself. 0 for a zero."""
    if not value:
        return 0.0
    fraction = text.partition(".")[2]
    if fraction.isdigit() and len(fraction) < len(_HALF_DIGITS):
        return _HALF_DIGITS[len(fraction)] / value
    mantissa, _, exponent = text.strip().lower().partition("e")
    places = len(mantissa.partition(".")[2]) - (int(exponent) if exponent.strip("+-").isdigit() else 0)
    return float(0.5 * 10.0**-places / value)


def finite(value: object) -> float | None:
    """Return ``value`` as a float where it is a finite number, else None; text and booleans are no numbers."""
    if type(value) is float:  # nearly every number of a report
        return value if math.isfinite(value) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an int beyond the range of a double
        return None


def _number_from_text(text: str, what: str) -> float:
    plain = text.strip()
    if "," in plain:
        sign = plain[:1] if plain[:1] in "+-" else ""
        whole, dot, fraction = plain[len(sign) :].partition(".")
        groups = whole.split(",")
        grouped = 1 <= len(groups[0]) <= 3 and all(len(group) == 3 for group in groups[1:])
        if not (grouped and all(_is_digits(group) for group in groups) and (not dot or _is_digits(fraction))):
            raise ValueError(f"{what} is {short_repr(text)}, expected a number (thousands groups of three, a decimal point)")
        plain = sign + "".join(groups) + dot + fraction
    if "_" in plain:  # Python reads 1_000; no profiler writes it, so it is a typo
        raise ValueError(f"{what} is {short_repr(text)}, expected a number")
    try:
        return int(plain)
    except ValueError:
        pass
    try:
        return float(plain)
    except ValueError:
        raise ValueError(f"{what} is {short_repr(text)}, expected a number") from None


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


#: Far over any tensor dimension; products of dimensions stay inside a double.
_LARGEST_SIZE = 10**15


def whole(value: object, what: str, *, minimum: int = 1) -> int:
    """Return ``value`` as an int of at least ``minimum``; 64.0 is 64, 64.5 raises ValueError."""
    if type(value) is int and minimum <= value <= _LARGEST_SIZE:  # most sizes of most rows
        return value
    result = number(value, what, minimum=minimum)
    if result > _LARGEST_SIZE:
        raise ValueError(f"{what} is {short_repr(value)}, expected at most 1e15")
    if result != int(result):
        raise ValueError(f"{what} is {short_repr(value)}, expected a whole number")
    return int(result)


def short_repr(value: object, limit: int = 60) -> str:
    """Return the repr of a value for a message, printable and of at most ``limit`` characters."""
    text = printable(repr(value))
    return text if len(text) <= limit else text[: limit - 3] + "..."


def printable(text: str) -> str:
    """Return the text with control characters and terminal escapes escaped; kernel names come from unknown binaries."""
    if text.isprintable():
        return text
    return "".join(ch if ch.isprintable() else ch.encode("unicode_escape", "backslashreplace").decode() for ch in text)


class Dtype(NamedTuple):
    """One element type."""

    name: str  # the canonical spelling
    value_bits: float  # the width of one value
    bits: float  # the same with its share of block scales
    peak: str | None  # its row of a peak table; None where no matrix or vector rate is published
    pack: int = 1  # values in one storage element (2 for float4_e2m1fn_x2, whose tensor shape is halved)

    @property
    def nbytes(self) -> float:
        """Bytes of one logical value, block scales included."""
        return self.bits / 8


#: GGUF's block formats: bytes of one block and the values in it (the block structs of llama.cpp's ggml-common.h: q4_K has two
#: fp16 super-scales, 12 bytes of 6-bit scales and minimums and 128 bytes of values for 256 weights). Nothing computes in them.
_GGUF = {
    **{"q4_0": (18, 32), "q4_1": (20, 32), "q5_0": (22, 32), "q5_1": (24, 32), "q8_0": (34, 32), "q8_1": (36, 32)},
    **{"q2_k": (84, 256), "q3_k": (110, 256), "q4_k": (144, 256), "q5_k": (176, 256), "q6_k": (210, 256), "q8_k": (292, 256)},
    **{"iq1_s": (50, 256), "iq1_m": (56, 256), "iq2_xxs": (66, 256), "iq2_xs": (74, 256), "iq2_s": (82, 256)},
    **{"iq3_xxs": (98, 256), "iq3_s": (110, 256), "iq4_nl": (18, 32), "iq4_xs": (136, 256)},
}
#: Each dtype with its other spellings. Scale overheads: OCP Microscaling Formats (MX) v1.0, one 8-bit E8M0 scale per 32
#: values; NVFP4, one FP8 scale per 16 values (NVIDIA Blackwell documentation).
_SPELLINGS = {
    Dtype("fp64", 64, 64, "fp64"): "double float64 f64",
    Dtype("fp32", 32, 32, "fp32"): "float float32 f32 single",
    Dtype("tf32", 32, 32, "tf32"): "xf32 tensorfloat32 tfloat32 tfloat32_t",
    Dtype("fp16", 16, 16, "fp16"): "half float16 f16 half_t nv_half fp16_t float16_t e5m10",
    Dtype("bf16", 16, 16, "bf16"): "bfloat16 bfloat hip_bfloat16 nv_bfloat16 bhalf bhalf_t bfloat16_t bf16_t df16b e8m7",
    Dtype("fp8", 8, 8, "fp8"): (
        "float8 f8 bf8 fp8_t bf8_t f8_t e4m3 e5m2 e4m3fn e4m3fnuz e5m2fnuz float8_e4m3 float8_e4m3fn float8_e4m3fnuz "
        "float8_e4m3b11fnuz float8_e5m2 float8_e5m2fnuz float8_e3m4 f8e4m3 f8e4m3fn f8e4m3fnuz f8e4m3b11fnuz f8e5m2 "
        "f8e5m2fnuz f8e3m4 fp8_e4m3 fp8_e5m2 fp8_e4m3fn fp8_e4m3fnuz fp8_e5m2fnuz nv_fp8_e4m3 nv_fp8_e5m2 hip_fp8_e4m3 "
        "hip_fp8_e5m2 hip_fp8_e4m3_fnuz hip_fp8_e5m2_fnuz float_e4m3_t float_e5m2_t fp8e4nv fp8e4b8 fp8e4b15 fp8e5 fp8e5b16"
    ),
    Dtype("fp6", 6, 6, "fp6"): "f6 e2m3 e3m2 float6_e2m3fn float6_e3m2fn f6e2m3fn f6e3m2fn fp6_e2m3 fp6_e3m2",
    Dtype("fp4", 4, 4, "fp4"): "f4 e2m1 float4_e2m1fn float4_e2m1 f4e2m1fn fp4_e2m1 float_e2m1_t fp4_t",
    Dtype("fp4x2", 4, 4, "fp4", pack=2): "float4_e2m1fn_x2 float4_e2m1_x2 fp4_x2 f4x2 nv_fp4x2_e2m1 fp4x2_t",
    Dtype("mxfp8", 8, 8.25, "fp8"): "mx_fp8 mxfp8_e4m3 mxfp8_e5m2",
    Dtype("mxfp6", 6, 6.25, "fp6"): "mx_fp6 mxfp6_e2m3 mxfp6_e3m2",
    Dtype("mxfp4", 4, 4.25, "fp4"): "mx_fp4 mxfp4_e2m1",
    Dtype("nvfp4", 4, 4.5, "fp4"): "nv_fp4",
    **{
        Dtype(name, float(name[1 + name.startswith("iq")]), 8.0 * size / values, None): ""
        for name, (size, values) in _GGUF.items()
    },
    Dtype("e8m0", 8, 8, None): "float8_e8m0fnu f8e8m0fnu",
    Dtype("int8", 8, 8, "int8"): "i8 s8 int8_t char signed_char qint8",
    Dtype("uint8", 8, 8, "int8"): "u8 uint8_t unsigned_char uchar byte quint8",
    Dtype("int4", 4, 4, "int4"): "i4 s4 uint4 u4 int4_t uint4_t",
    Dtype("int4x2", 4, 4, "int4", pack=2): "i4x2 u4x2 pk_int4_t",
    Dtype("int16", 16, 16, None): "i16 s16 int16_t short short_int uint16 u16 uint16_t unsigned_short",
    Dtype("int32", 32, 32, None): "i32 s32 int32_t int uint32 u32 uint32_t unsigned_int unsigned qint32",
    Dtype("int64", 64, 64, None): "i64 s64 int64_t long long_int long_long uint64 u64 uint64_t unsigned_long size_t",
    Dtype("bool", 8, 8, None): "pred",
    Dtype("complex32", 32, 32, None): "chalf complex<half>",
    Dtype("complex64", 64, 64, None): "cfloat complex<float>",
    Dtype("complex128", 128, 128, None): "cdouble complex<double>",
}
_DTYPES = {spelling: dtype for dtype, others in _SPELLINGS.items() for spelling in (dtype.name, *others.split())}
_NAMESPACES = ("torch.", "jnp.", "np.", "numpy.", "ml_dtypes.", "jax.numpy.", "tl.", "dtype.")


def parse_dtype(text: object) -> Dtype:
    """Return the dtype that ``text`` spells: torch, JAX, HIP, CUDA, C++, MLIR and profiler names are understood.

    Raises:
        ValueError: for an unknown spelling. A width is never guessed from a part of a name: a wrong one moves every figure
            by 2x or more.
    """
    if isinstance(text, Dtype):
        return text
    if isinstance(text, str) and text in _DTYPES:
        return _DTYPES[text]
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"dtype is {short_repr(text)}, expected a name such as bf16, fp8 or torch.float8_e4m3fn")
    key = text.strip().lower()
    if key.startswith("const "):
        key = key[len("const ") :]
    key = key.rstrip("*& ")
    prefix, colons, rest = key.rpartition("::")
    if colons and "<" not in prefix:
        key = rest
    elif key.startswith(("c10::complex", "std::complex", "thrust::complex")):
        key = key.partition("::")[2].replace("c10::", "")
    for namespace in _NAMESPACES:
        if key.startswith(namespace):
            key = key[len(namespace) :]
    key = key.lstrip("_").replace(" ", "_").replace("-", "_")
    element, slash, scheme = key.partition("/")
    if slash:
        return quantize_dtype(parse_dtype(element), scheme)
    try:
        return _DTYPES[key]
    except KeyError:
        raise ValueError(f"unknown dtype {short_repr(text)}: its width and peak are not guessed") from None


#: Bits of one scale by the values that share it: E8M0 for 32 in a row (OCP MX v1.0), E4M3 for 16 (NVFP4, whose second scale
#: per tensor weighs nothing), fp32 for other blocks (DeepSeek-V3's fp8, aiter's QuantType). Integers: fp16 for a group of a
#: row, and a zero point as wide as a value (AWQ, GPTQ).
_SCALE_BITS = {(1, 32): 8, (1, 16): 8}
BLOCK_SCALE_BITS, GROUP_SCALE_BITS = 32, 16
#: Schemes with a scale for a whole row, column or tensor, which weighs nothing next to it, and without one.
_NO_SCALES = re.compile(r"(per_?(token|tensor|channel|row|col|column|out_channel)|no|none|rowwise|tensorwise)(_\w+)?")
_BLOCKS = re.compile(r"per_?(?P<rows>\d+)x(?P<columns>\d+)|(per_?)?(group|g)_?(?P<group>\d+)(?P<zero>_zp)?")


def quantize_dtype(dtype: Dtype, scheme: str) -> Dtype:
    """Return ``dtype`` with its share of the scales of a quantization: ``per_1x32``, ``per_128x128``, ``group_128_zp``.

    ``fp4`` per 1x32 is ``mxfp4``, per 1x16 ``nvfp4``. Otherwise the name says both: ``fp8/per_128x128``, a spelling that
    ``parse_dtype`` takes. A dtype that has its scales in its width, or at least 16 bits, stays as it is.

    Raises:
        ValueError: for an unknown scheme.
    """
    name = scheme.strip().lower().rpartition(".")[2].replace("-", "_")
    match = _BLOCKS.fullmatch(name)
    if match is None and _NO_SCALES.fullmatch(name):
        return dtype
    if match is None:
        raise ValueError(
            f"unknown quantization {short_repr(scheme)}: expected per_1x32, per_128x128, group_128, per_token, ..."
        )
    if match["group"]:
        bits, values = GROUP_SCALE_BITS + (dtype.value_bits if match["zero"] else 0.0), int(match["group"])
    else:
        block = int(match["rows"]), int(match["columns"])
        bits, values = _SCALE_BITS.get(block, BLOCK_SCALE_BITS), block[0] * block[1]
    if values < 1:
        raise ValueError(f"quantization {short_repr(scheme)} has an empty block")
    if dtype.bits != dtype.value_bits or dtype.value_bits >= 16:
        return dtype
    scaled = add_scales(dtype, bits, values)
    known = {("fp4", 4.25): "mxfp4", ("fp6", 6.25): "mxfp6", ("fp8", 8.25): "mxfp8", ("fp4", 4.5): "nvfp4"}
    if values <= 32 and (dtype.name, scaled.bits) in known:
        return _DTYPES[known[dtype.name, scaled.bits]]
    return scaled._replace(name=f"{dtype.name}/{name}")


def add_scales(dtype: Dtype, scale_bits: float, values: int) -> Dtype:
    """Return ``dtype`` with its share of one scale of ``scale_bits`` for so many ``values``."""
    return dtype._replace(bits=dtype.value_bits + scale_bits / values)


def wider_dtype(first: Dtype, second: Dtype) -> Dtype:
    """Return the operand type that sets the matrix rate of a mixed product: the wider one (W4A16 runs at the 16-bit rate)."""
    return first if first.value_bits >= second.value_bits else second


def quantity(value: float, unit: str) -> str:
    """Return a value with an SI prefix and four significant digits: ``quantity(6.9675e8, "B")`` is ``696.8 MB``."""
    magnitude = abs(value)
    for factor, prefix in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if magnitude >= factor * 0.99995:
            return f"{value / factor:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}"


class Unit(NamedTuple):
    """A unit of measurement."""

    kind: str  # time, bandwidth, flop_rate, bytes or flops
    factor: float  # seconds, bytes/s, FLOP/s, bytes or FLOPs in one

    @property
    def axis(self) -> str:
        """The roof of a rate, ``memory`` or ``compute``; empty for the other kinds."""
        return {"bandwidth": "memory", "flop_rate": "compute"}.get(self.kind, "")


def _units() -> dict[str, Unit]:
    """Return every spelling in lower case. ``b`` is bytes: kernel benchmarks write ``gbps`` for gigabytes."""
    table: dict[str, Unit] = {}

    def add(kind: str, factor: float, spellings: Iterable[str]) -> None:
        table.update(dict.fromkeys(spellings, Unit(kind, factor)))

    for short, long, factor in (("n", "nano", 1e-9), ("u", "micro", 1e-6), ("m", "milli", 1e-3), ("", "", 1.0)):
        words = (f"{long}second", f"{long}seconds", f"{short}second", f"{short}seconds")
        add("time", factor, (f"{short}s", f"{short}sec", *words))
    add("time", 1e-6, ("\u00b5s", "\u03bcs"))  # the micro sign, the Greek letter
    decimal = (("", 1.0), ("k", 1e3), ("m", 1e6), ("g", 1e9), ("t", 1e12), ("p", 1e15))
    for prefix, factor in decimal:
        add("flop_rate", factor, (f"{prefix}{word}" for word in ("flop/s", "flops/s", "flop_s", "flops_s", "flop/sec")))
        add("bandwidth", factor, (f"{prefix}{word}" for word in ("bytes/s", "bytes_s", "byte/s")))
        add("bytes", factor, (f"{prefix}bytes", f"{prefix}byte"))
        add("flops", factor, (f"{prefix}flop",))
        if prefix:
            add("flop_rate", factor, (f"{prefix}flops",))
            rates = ("b/s", "bps", "bs", "b_s", "b_per_s", "b_per_sec", "b/sec")
            add("bandwidth", factor, (f"{prefix}{word}" for word in rates))
            add("bandwidth", factor, (f"bandwidth_{prefix}{word}" for word in ("bps", "b_s")))
            add("bytes", factor, (f"{prefix}b",))
    add("flops", 1.0, ("flops",))  # without a prefix a number of operations, with one a rate
    add("flop_rate", 1e12, ("tflpos",))  # as some of aiter's op tests spell it
    for power, prefix in enumerate(("ki", "mi", "gi", "ti"), 1):
        add("bandwidth", 1024.0**power, (f"{prefix}b/s", f"{prefix}b_s", f"{prefix}bps", f"{prefix}b/sec"))
        add("bytes", 1024.0**power, (f"{prefix}b",))
    return table


#: Every spelling of a unit that files, keys and labels use, in lower case.
UNITS = _units()
_WORDS = re.compile(r"[^\s()\[\],;:=]+")


def unit_of(spelling: str, *kinds: str) -> Unit | None:
    """Return the unit with this spelling, in any case; None where it is unknown or not of one of ``kinds``."""
    unit = UNITS.get(spelling.strip().lower())
    return unit if unit is not None and (not kinds or unit.kind in kinds) else None


def unit_in(label: str, *kinds: str) -> Unit | None:
    """Return the one unit in a label such as ``Runtime (us)``; None where it has none, or two that differ."""
    units = {unit_of(word, *kinds) for word in _WORDS.findall(label)} - {None}
    return units.pop() if len(units) == 1 else None
