"""Benchmark programs of GEMM libraries: hipblaslt-bench, rocblas-bench, hipblas-bench, and the CUTLASS profiler.

Each prints a header line and comma-separated rows somewhere in a log. The lines before and between them name the device and
the kernels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from roofline_engine.check import Claim, Mistake
from roofline_engine.units import half_digit, parse_dtype, printable, quantize_dtype

from ...declare import build_work
from ..source import DocumentFormat, RecordRow, RefusedError, Sample, Source
from ..table import RATES, TIMES, claim, clean, duration, real, size

Cells = Mapping[str, str]  # the cells of a row by column
_Work = tuple["dict[str, Any] | None", str]  # the keywords of a work model, or None and the reason


class _Log(NamedTuple):
    """The rows of a header in a log, and what is known from other lines."""

    columns: list[str]
    read: Callable[[str, Cells], RecordRow]
    rows: set[tuple[str, ...]]  # the rows so far, for a winner that is printed again


def _read_log(
    source: Source,
    header: re.Pattern[str],
    open_table: Callable[[list[str]], Callable[[str, Cells], RecordRow]],
    note: Callable[[str], str],
) -> Iterator[RecordRow]:
    """Yield the rows under each header of a log.

    Args:
        source: the log.
        header: what the header line contains.
        open_table: returns the function that reads the rows of a header, by its columns.
        note: looks at each other line, and returns the name of the kernel of the row above when the line has one.

    Raises:
        RefusedError: for a log without a header.
    """
    log: _Log | None = None
    held: RecordRow | None = None  # its name may follow
    is_winner = False
    for number, line in enumerate(source.lines(), 1):
        text = line.strip().rstrip(",")
        if header.search(text):
            columns = [printable(name.strip()) for name in text.rpartition("]:")[2].split(",")]
            log = _Log(columns, open_table(columns), log.rows if log is not None else set())
            continue
        fields = tuple(field.strip() for field in text.split(","))
        if log is None or len(fields) * 2 <= len(log.columns):
            name = note(text)
            if held is not None and name:
                held.name = clean(name)
            is_winner = is_winner or text.lower().startswith("winner")
            continue
        if held is not None:
            yield held
        where = f"line {number}"
        if len(fields) != len(log.columns):
            held = RecordRow(row=where, refused=f"{len(fields)} fields, the header has {len(log.columns)}", refused_code="row")
        elif is_winner and fields in log.rows:
            held = RecordRow(row=where, refused="the winner, a row above", refused_code="summary")
        else:
            log.rows.add(fields)
            try:  # of two columns with one name the first is read: the second is the CPU's
                held = log.read(where, dict(zip(reversed(log.columns), reversed(fields))))
            except ValueError as error:
                held = RecordRow(row=where, refused=str(error), refused_code="value")
        is_winner = False
    if log is None:
        raise RefusedError(f"{source.label}: no header line with columns")
    if held is not None:
        yield held


def _time(text: str, column: str, unit: float) -> dict[str, Any]:
    """Return the fields of a record for the time in a cell."""
    t_s, refused = duration(text, column, unit)
    if t_s is None:
        return {"refused": refused, "refused_code": "time"}
    return {"t_s": t_s, "rounding": half_digit(text, t_s / unit), "placeholder_time": t_s == unit}


def _claims(cells: Cells, rates: Mapping[str, tuple[str, float]], rounding: float) -> tuple[Claim, ...]:
    printed = [claim(cells[name], *rate, rounding) for name, rate in rates.items() if name in cells]
    return tuple(item for item in printed if item is not None)


# hipblaslt-bench, rocblas-bench, hipblas-bench. ``us`` is the mean time of a call. hipblaslt-GB/s is GiB/s: 106496 x 8192 x
# 16384 in bf16 moves 5.503e9 bytes, and 234.327 is printed for 21871.2 us. rocBLAS divides by 1e9. --rotating goes through
# copies of the operands; from twice the last-level cache of an MI300X (256 MiB) on, they are not in a cache. --flush empties
# the cache of instructions alone (hipBLASLt, clients/bench: "Flush icache, only works for gemm").

_BENCH_HEADER = re.compile(r"^(?:\[\d+\]:)?[^:]*\b(?:hipblaslt|rocblas|hipblas)-(?:Gflops|GB/s)\b", re.I)
_BENCH_START = re.compile(r"^[^\n]*,(?:hipblaslt|rocblas|hipblas)-(?:Gflops|GB/s)\b", re.I | re.M)
_DEVICE = re.compile(r"Device ID (\d+) : (.+?) (gfx[0-9a-f]+)")
_TARGET = re.compile(r"Target device ID is (\d+)")
_COMMAND = re.compile(r"\b(?:hipblaslt|rocblas|hipblas)-bench\b.*?(?:\s-r|\s--precision)[\s=]+(\w+)")
_KERNEL = re.compile(r"--(?:kernel|solution) name:\s*(\S+)", re.I)
#: Precisions of rocBLAS in a letter.
_LETTERS = {"s": "f32_r", "d": "f64_r", "h": "f16_r", "c": "f32_c", "z": "f64_c"}
#: The option from which a run is cold, and what the copies must add up to where the log says that: with few iterations there
#: are fewer copies.
_COLD_MIB, _COLD_COPIES_MIB = 512, 384
_COPIES = re.compile(r"Needed Size: (\d+) MiB\. Needed block count: (\d+)")
_GIB_S = ("memory", float(1 << 30))
_GFLOP_S = RATES["gflops"]


class _Bench:
    """What a log of these programs says outside its rows."""

    def __init__(self) -> None:
        self.precision = ""  # of the command line
        self._copies_mib: int | None = None  # of the operands that the next rows go through
        self._devices: dict[str, str] = {}  # by id
        self._target = "0"

    def note(self, line: str) -> str:
        """Look at a line that is not a row; return the name of a kernel in it."""
        if device := _DEVICE.search(line):  # the driver's name of many parts is AMD Radeon Graphics
            self._devices[device[1]] = device[3] if device[2] == "AMD Radeon Graphics" else device[2]
        elif target := _TARGET.search(line):
            self._target = target[1]
        elif copies := _COPIES.search(line):
            self._copies_mib = int(copies[1]) * int(copies[2])
        elif command := _COMMAND.search(line):
            self.precision = command[1]
        kernel = _KERNEL.search(line)
        return kernel[1] if kernel else ""

    def open_table(self, columns: list[str]) -> Callable[[str, Cells], RecordRow]:
        """Return the function that reads the rows under a header."""
        program = next(name for name in ("hipblaslt", "rocblas", "hipblas") if any(name in it.lower() for it in columns))
        gb_s = _GIB_S if program == "hipblaslt" else RATES["gb/s"]
        rates = {f"{program}-gflops": _GFLOP_S, f"{program}-gb/s": gb_s}

        def read(where: str, given: Cells) -> RecordRow:
            cells = {name.lower(): text for name, text in given.items()}
            time = next((name for name in ("us", f"{program}-us") if name in cells), None)
            missing: dict[str, Any] = {"refused": "a column us is missing", "refused_code": "time"}
            timing = _time(cells[time], time, TIMES["us"]) if time else missing
            work, no_work = self._work(cells)
            units = cells.get("cus", "")
            return RecordRow(
                row=where,
                name=_shape_name(cells),
                device=cells.get("gcnarchname", "").partition(":")[0] or self._devices.get(self._target),
                units=size(units, "CUs") if units else None,
                work=work,
                no_work=no_work,
                claims=_claims(cells, rates, timing.get("rounding", 0.0)),
                known_mistakes=_addend_mistakes(work) if program == "hipblaslt" else (),
                clock={"1": "device-event", "0": "host"}.get(cells.get("use_gpu_timer", ""), "unknown"),
                cache=_cache(cells.get("rotating_buffer", ""), self._copies_mib),
                **timing,
            )

        return read

    def _work(self, cells: Cells) -> _Work:
        if not {"transa", "transb", "m", "n", "k"} <= cells.keys():
            return None, "the columns are not a GEMM's (transA, transB, M, N, K), and the output does not name its function"
        if cells.get("grouped_gemm", "0") not in ("0", ""):
            return None, "a grouped GEMM: the row has the sizes of one group"
        default = _LETTERS.get(self.precision, self.precision)
        types = {key: cells.get(f"{key}_type") or default for key in "abcd"}
        if not types["a"] or not types["b"]:
            return None, "the output has no a_type: keep the line of the command with -r or --precision above it"
        types["d"] = types["d"] or types["c"] or types["a"]
        if any(text.endswith("_c") for text in types.values()):
            return None, "a product of complex numbers has no work model"
        compute = cells.get("compute_type", "").lower().removeprefix("c_")
        a, b, d = (_rocm_dtype(types[key], f"{key}_type") for key in "abd")
        if a == b == "fp32" and compute not in ("", "f32_r"):
            if not compute.startswith("xf32"):
                return None, f"fp32 operands multiplied as compute_type {printable(compute)[:20]}: its peak is not fp32's"
            a = b = "tf32"
        a, b = (_with_scale(name, cells.get(f"scale{key}", "")) for name, key in ((a, "a"), (b, "b")))
        m, n, k = (size(cells[name], name) for name in "mnk")
        batch = size(cells["batch_count"], "batch_count") if cells.get("batch_count") else 1
        reads_c = real(cells["beta"], "beta") != 0 if cells.get("beta") else False
        addend = batch * m * n * reads_c + m * (cells.get("bias_vector", "0") not in ("0", ""))
        work = {"op": "gemm", "M": m, "N": n, "K": k, "dtype": a, "weight_dtype": b, "out_dtype": d}
        work.update({"batch": batch} if batch > 1 else {})
        work.update({"addend": addend} if addend else {})
        return work, ""


@lru_cache(maxsize=256)
def _rocm_dtype(text: str, column: str) -> str:
    """Return the dtype of a type of hipBLAS: ``bf16_r``; ``f8_fnuz_r`` and ``bf8_r`` are fp8."""
    name = text.lower().removesuffix("_r").removesuffix("_fnuz")
    try:
        return parse_dtype({"bf8": "fp8", "bf6": "fp6"}.get(name, name)).name
    except ValueError as error:
        raise ValueError(f"{column}: {error}") from None


def _with_scale(dtype: str, scale: str) -> str:
    """Return a dtype with the block scales of scale mode 3, one UE8M0 for 32 values; a scalar or a vector is no traffic."""
    return quantize_dtype(parse_dtype(dtype), "per_1x32").name if scale == "3" else dtype


def _shape_name(cells: Cells) -> str:
    names = [cells[name] for name in ("m", "n", "k") if name in cells]
    return clean(f"{cells.get('transa', '')}{cells.get('transb', '')} {'x'.join(names)}".strip())


def _cache(rotating: str, copies_mib: int | None) -> str:
    """Return the cache of a run by the size of its rotating buffers in MiB, and by what the copies add up to."""
    if not rotating:
        return "unknown"
    mib = real(rotating, "rotating_buffer")
    is_cold = mib >= _COLD_MIB and (copies_mib is None or copies_mib >= _COLD_COPIES_MIB)
    return "cold" if is_cold else "unknown" if mib else "warm"


def _addend_mistakes(work: Mapping[str, Any] | None) -> tuple[Mistake, ...]:
    """Return the count of hipblaslt-bench with beta: three matrices of the output's size, where C is read and D is written.

    Its documentation prints 363.509 for 1024 x 512 x 1024 in fp16 and 16.1189 us: 6.29e6 bytes, of which 5.24e6 must move.
    """
    if work is None or work.get("addend", 0) < work["M"] * work["N"]:
        return ()
    built = build_work(work)
    third = work.get("batch", 1) * work["M"] * work["N"] * parse_dtype(work["out_dtype"]).nbytes
    if built is None:
        return ()
    return (Mistake("overcounted_bytes", 1 + third / built.bytes, "memory", "a third matrix of the output's size, for beta"),)


def _read_bench(source: Source) -> Iterator[RecordRow]:
    bench = _Bench()
    yield from _read_log(source, _BENCH_HEADER, bench.open_table, bench.note)


# The CUTLASS profiler. Runtime is ms and GB/s is GiB/s: 3221225472 bytes in 481.022 ms are 6.697e9 B/s, and 6.23672 is printed.
# Flops count 2 for each output besides the products (alpha A B + beta C): M N (2 K + 2). A convolution's Bytes count its input
# as often as the filter meets it (im2col). The profiler names no device.

_CUTLASS_HEADER = re.compile(r"^(?:[^,]+,)*?Problem,Provider,OperationKind,Operation,")
_CUTLASS_START = re.compile(r"^(?:[^,\n]+,)*?Problem,Provider,OperationKind,Operation,", re.M)
_CUTLASS_RATES = {"GB/s": _GIB_S, "GFLOPs": _GFLOP_S}
_WRONG = {"incorrect": "the profiler found a wrong result", "failed": "the profiler reports a failure"}
#: Names of kernels that multiply fp32 operands in a narrower type, such as s1688f16gemm.
_FAST_MATH = re.compile(r"_[a-z]+\d+(?:f16|bf16)(?:gemm|fprop|dgrad|wgrad)")
_KINDS_OF_GEMM = {"gemm", "universal", "batched", "array", "spgemm", ""}
_DIRECTIONS = {"fprop": "forward", "dgrad": "data", "wgrad": "weight"}


def _read_cutlass(source: Source) -> Iterator[RecordRow]:
    yield from _read_log(source, _CUTLASS_HEADER, lambda _: _cutlass_row, lambda _: "")


def _cutlass_row(where: str, cells: Cells) -> RecordRow:
    name, disposition, status = (clean(cells.get(key, "")) for key in ("Operation", "Disposition", "Status"))
    if disposition in _WRONG:
        return RecordRow(row=where, name=name, correct=False, refused=f"Disposition is {disposition}: {_WRONG[disposition]}")
    if status != "success":
        return RecordRow(row=where, name=name, refused=f"Status is {status or 'empty'}, expected success")
    timing = _time(cells.get("Runtime", ""), "Runtime", TIMES["ms"])
    work, mistakes, no_work = _cutlass_work(cells)
    return RecordRow(
        row=where,
        name=name,
        work=work,
        no_work=no_work,
        claims=_claims(cells, _CUTLASS_RATES, timing.get("rounding", 0.0)),
        known_mistakes=mistakes,
        correct=True if disposition == "passed" else None,
        clock="device-event",
        **timing,
    )


def _cutlass_work(cells: Cells) -> tuple[dict[str, Any] | None, tuple[Mistake, ...], str]:
    """Return the keywords of the work with the profiler's known counts; or None and the reason."""
    kind = cells.get("OperationKind", "")
    if kind in ("gemm", "spgemm"):
        if cells.get("gemm_kind", "") not in _KINDS_OF_GEMM:
            return None, (), f"gemm_kind {printable(cells['gemm_kind'])[:30]} has no work model"
        operands = ("A", "B", "D" if cells.get("D") else "C")
    elif kind == "conv2d" and cells.get("conv_kind") in _DIRECTIONS:
        operands = ("Activation", "Filter", "Output")
    else:
        return None, (), f"OperationKind {printable(kind)[:30]} has no work model"
    types = [cells.get(name, "").partition(":")[0] for name in operands]
    if any(text.startswith(("cf", "cs", "cu")) for text in types):
        return None, (), "a product of complex numbers has no work model"
    a, b, out = (parse_dtype(text[1:] if text.startswith(("fe", "ue")) else text).name for text in types)
    is_simt = cells.get("op_class") == "simt"
    if "fp32" in (a, b) and not is_simt:
        if _FAST_MATH.search(cells.get("Operation", "")):
            return None, (), "fp32 operands multiplied in a 16-bit type: no dtype has their bytes and their peak"
        a, b = ("tf32" if name == "fp32" else name for name in (a, b))
    if kind == "conv2d":
        work, mistakes = _convolution(cells, a, b, out)
    else:
        work, mistakes = _product(cells, a, b, out, is_sparse=kind == "spgemm")
    return _on_vector_units(work) if is_simt else work, mistakes, ""


def _product(cells: Cells, a: str, b: str, out: str, *, is_sparse: bool) -> tuple[dict[str, Any], tuple[Mistake, ...]]:
    m, n, k = (size(cells.get(name, ""), name) for name in "mnk")
    batch = size(cells["batch_count"], "batch_count") if cells.get("batch_count") else 1
    work: dict[str, Any] = {"op": "gemm", "M": m, "N": n, "K": k, "dtype": a, "weight_dtype": b, "out_dtype": out}
    dense = 1.0
    if is_sparse:  # A is the sparse operand, the model's is B: the transposed product
        work.update(M=n, N=m, dtype=b, weight_dtype=a, sparsity="2:4")
        dense = 2.0
    if batch > 1:
        work["batch"] = batch
    if cells.get("beta") and real(cells["beta"], "beta") != 0:
        work["addend"] = batch * m * n
    why = "2 FLOPs more for each output, for alpha and beta" + (", and the FLOPs of a dense product" if is_sparse else "")
    return work, (Mistake("flop_convention", dense * (k + 1) / k, "compute", why),)


def _convolution(cells: Cells, a: str, b: str, out: str) -> tuple[dict[str, Any], tuple[Mistake, ...]]:
    n, h, w, c, k, r, s, p, q = (size(cells.get(name, ""), name) for name in "nhwckrspq")

    def pair(name: str, default: int) -> list[int]:
        return [int(real(cells.get(f"{name}_{axis}") or str(default), f"{name}_{axis}")) for axis in "hw"]

    work: dict[str, Any] = {
        "op": "conv2d",
        "batch": n,
        "in_channels": c,
        "out_channels": k,
        "input": [h, w],
        "kernel": [r, s],
        "stride": pair("stride", 1),
        "padding": pair("pad", 0),
        "dilation": pair("dilation", 1),
        "direction": _DIRECTIONS[cells["conv_kind"]],
        "dtype": a,
        "weight_dtype": b,
        "out_dtype": out,
    }
    if cells.get("groups"):
        work["groups"] = size(cells["groups"], "groups")
    built = build_work(work)
    taps = r * s * c // work.get("groups", 1)
    products = 2.0 * n * p * q * k * taps
    mistakes = [Mistake("flop_convention", (taps + 1) / taps, "compute", "2 FLOPs more for each output, for alpha and beta")]
    if built is not None:
        if built.flops:
            whole = Mistake("flop_convention", products / built.flops, "compute", "the products with padding counted")
            more = (products + 2.0 * n * p * q * k) / built.flops
            mistakes += [whole, whole._replace(factor=more, why="padding and 2 FLOPs more for each output counted")]
        elements = (n * p * q * taps, a), (k * taps, b), (n * p * q * k, out)
        unrolled = sum(count * parse_dtype(name).nbytes for count, name in elements)
        mistakes.append(
            Mistake("overcounted_bytes", unrolled / built.bytes, "memory", "the input as often as the filter meets it (im2col)")
        )
    return work, tuple(mistakes)


def _on_vector_units(work: dict[str, Any]) -> dict[str, Any]:
    """Return the totals of a product that the vector units compute."""
    built = build_work(work)
    if built is None:
        return work
    totals = {"op": work["op"], "bytes": built.bytes, "flops": built.flops, "dtype": work["dtype"]}
    return {**totals, "weight_dtype": work["weight_dtype"], "engine": "vector"}


def _has(pattern: re.Pattern[str]) -> Callable[[Sample], bool]:
    return lambda sample: pattern.search(sample.text) is not None


BLAS_BENCH = DocumentFormat(
    "hipblaslt-bench and rocblas-bench output",
    _has(_BENCH_START),
    _read_bench,
    "a log with a header: transA, transB, m, n, k, a_type, ..., hipblaslt-Gflops, hipblaslt-GB/s, us; rocblas-, hipblas-",
)
CUTLASS = DocumentFormat(
    "CUTLASS profiler CSV",
    _has(_CUTLASS_START),
    _read_cutlass,
    "a file or log with a header: Problem, Provider, OperationKind, Operation, Disposition, Status, m, n, k, A, B, C, Runtime",
)
