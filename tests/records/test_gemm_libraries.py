"""Output of the benchmark programs of GEMM libraries: small logs in their formats, figures derived from the shapes."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from pytest_roofline.declare import build_work
from pytest_roofline.records.formats import choose
from pytest_roofline.records.formats.gemm_libraries import BLAS_BENCH, CUTLASS
from pytest_roofline.records.source import RecordRow, RefusedError, Sample, Source
from roofline_engine.check import Facts, Finding, explain_claim
from roofline_engine.work import Work


def read(text: str) -> list[RecordRow]:
    adapter = choose(Sample(text))
    assert adapter in (BLAS_BENCH, CUTLASS)
    return list(adapter.read(Source(Path("log.txt"), io.BytesIO(text.encode()))))


def one(text: str) -> RecordRow:
    (record,) = read(text)
    return record


def built(record: RecordRow) -> Work:
    assert record.work is not None, record.no_work
    work = build_work(record.work)
    assert work is not None
    return work


def finding(record: RecordRow, axis: str) -> Finding | None:
    (printed,) = (claim for claim in record.claims if claim.axis == axis)
    assert record.t_s is not None
    amount = built(record).bytes if axis == "memory" else built(record).flops
    return explain_claim(printed, amount / record.t_s, Facts(known_mistakes=record.known_mistakes))


# hipblaslt-bench and rocblas-bench

DEVICES = """hipBLASLt version: 100200
Query device success: there are 2 devices. (Target device ID is 1)
Device ID 0 : AMD Instinct MI210 gfx90a:sramecc+:xnack-
with 68.7 GB memory, max. SCLK 1700 MHz, max. MCLK 1600 MHz, compute capability 9.0
Device ID 1 : AMD Instinct MI300X gfx942:sramecc+:xnack-

Is supported 1 / Total solutions: 1
"""
HIPBLASLT = (
    "[0]:transA,transB,grouped_gemm,batch_count,m,n,k,alpha,lda,stride_a,beta,ldb,stride_b,ldc,stride_c,ldd,stride_d,"
    "a_type,b_type,c_type,d_type,compute_type,scaleA,scaleB,scaleC,scaleD,amaxD,activation_type,bias_vector,bias_type,"
    "aux_type,rotating_buffer,flush,use_gpu_timer,hipblaslt-Gflops,hipblaslt-GB/s,us\n"
)


def hipblaslt(
    types: str = "bf16_r,bf16_r,bf16_r,bf16_r,f32_r",
    *,
    grouped: int = 0,
    batch: int = 1,
    beta: int = 0,
    scale: str = "0,0",
    bias: int = 0,
    rotating: int = 512,
    printed: str = "500000,234.375,1000",
) -> str:
    return (
        f"    T,N,{grouped},{batch},4096,8192,2048,1,2048,1,{beta},2048,1,4096,1,4096,1,{types},{scale},0,0,0,none,{bias},"
        f"bf16_r,bf16_r,{rotating},1,1,{printed}\n"
    )


#: A + B + C of 4096 x 8192 x 2048 in 16 bits, and 2 M N K.
BYTES, FLOPS = 2 * (4096 * 2048 + 8192 * 2048 + 4096 * 8192), 2 * 4096 * 8192 * 2048


def test_a_row_of_hipblaslt_bench_has_shape_device_name_and_gibibytes() -> None:
    kernel = "    --Solution index: 7\n    --Solution name:  Cijk_MT256\n    --kernel name:    Cijk_MT256_k\n"
    gib_s = BYTES / 300e-6 / 2**30  # 364.583 by the 117440512 bytes
    record = one(DEVICES + HIPBLASLT + hipblaslt(printed=f"{FLOPS / 300e-6 / 1e9:.6g},{gib_s:.6g},300") + kernel)
    assert (built(record).bytes, built(record).flops) == (BYTES, FLOPS)
    assert (record.device, record.name, record.t_s) == ("AMD Instinct MI300X", "Cijk_MT256_k", pytest.approx(300e-6))
    assert (record.clock, record.cache) == ("device-event", "cold")
    assert finding(record, "memory") is None
    assert finding(record, "compute") is None


def test_a_printed_row_of_hipblaslt_reproduces() -> None:
    """The row of a public log: 2 (m k + n k + m n) bytes in 21871.2 us are 251.6e9 B/s, which is 234.327 GiB/s."""
    head = "[0]:transA,transB,m,n,k,a_type,b_type,c_type,d_type,compute_type,hipblaslt-Gflops,hipblaslt-GB/s,us\n"
    record = one(head + "    T,N,106496,8192,16384,bf16_r,bf16_r,bf16_r,bf16_r,f32_r,1.30708e+06,234.327,21871.2\n")
    assert finding(record, "memory") is None
    assert finding(record, "compute") is None


@pytest.mark.parametrize(
    ("types", "scale", "dtypes"),
    [
        ("f8_r,bf8_r,f32_r,bf16_r,f32_r", "1,1", ("fp8", "fp8", "bf16")),
        ("f8_fnuz_r,f8_fnuz_r,f16_r,f16_r,f32_r", "0,0", ("fp8", "fp8", "fp16")),
        ("f32_r,f32_r,f32_r,f32_r,xf32_r", "0,0", ("tf32", "tf32", "fp32")),
        ("f32_r,f32_r,f32_r,f32_r,f32_r", "0,0", ("fp32", "fp32", "fp32")),
        ("f4_r,f4_r,bf16_r,bf16_r,f32_r", "3,3", ("mxfp4", "mxfp4", "bf16")),
        ("i8_r,i8_r,i32_r,i32_r,i32_r", "0,0", ("int8", "int8", "int32")),
    ],
)
def test_types_of_hipblaslt(types: str, scale: str, dtypes: tuple[str, str, str]) -> None:
    work = one(HIPBLASLT + hipblaslt(types, scale=scale)).work
    assert work is not None
    assert (work["dtype"], work["weight_dtype"], work["out_dtype"]) == dtypes


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (hipblaslt(grouped=1), "the sizes of one group"),
        (hipblaslt("f32_c,f32_c,f32_c,f32_c,f32_c"), "complex"),
        (hipblaslt("f32_r,f32_r,f32_r,f32_r,f32_f16_r"), "compute_type f32_f16_r"),
    ],
)
def test_a_product_without_a_model_says_why(row: str, reason: str) -> None:
    record = one(HIPBLASLT + row)
    assert record.work is None
    assert reason in record.no_work


def test_c_and_the_bias_are_read_and_the_third_matrix_is_named() -> None:
    """The row of hipBLASLt's documentation: 363.509 GiB/s x 16.1189 us is 6.29 MB; 5.24 MB must move."""
    head = "[0]:transA,transB,m,n,k,beta,a_type,b_type,c_type,d_type,compute_type,bias_vector,hipblaslt-GB/s,us\n"
    record = one(f"{head}N,N,1024,512,1024,1,f16_r,f16_r,f16_r,f16_r,f32_r,0,363.509,16.1189\n")
    assert built(record).bytes == 2 * (1024 * 1024 + 512 * 1024 + 2 * 1024 * 512)
    found = finding(record, "memory")
    assert found is not None
    assert found.cause == "overcounted_bytes"
    assert "third matrix" in found.decided
    biased = one(f"{head}N,N,1024,512,1024,0,f16_r,f16_r,f16_r,f16_r,f32_r,1,363.509,16.1189\n")
    assert built(biased).bytes == 2 * (1024 * 1024 + 512 * 1024 + 1024 * 512 + 1024)


@pytest.mark.parametrize(("rotating", "cache"), [(512, "cold"), (64, "unknown"), (0, "warm")])
def test_the_rotating_buffer_decides_the_cache(rotating: int, cache: str) -> None:
    """--flush is 1 in each of these rows: it empties the cache of instructions."""
    assert one(HIPBLASLT + hipblaslt(rotating=rotating)).cache == cache


@pytest.mark.parametrize(
    ("size", "count", "cache"), [(19, 26, "cold"), (19, 10, "unknown"), (0, 50, "unknown"), (1464, 1, "cold")]
)
def test_few_copies_of_small_operands_may_stay_in_a_cache(size: int, count: int, cache: str) -> None:
    line = f"Rotating buffer 512 MiB. Needed Size: {size} MiB. Needed block count: {count} (Capped to max iters: {count})\n"
    assert one(line + HIPBLASLT + hipblaslt(rotating=512)).cache == cache


def test_a_tuned_file_names_its_device_in_the_row() -> None:
    head = "Git Version: abc\n    transA,transB,m,n,k,a_type,b_type,hipblaslt-Gflops,us,solution_index,gcnArchName,CUs\n"
    record = one(head + "    T,N,64,64,64,f16_r,f16_r,1,9,12,gfx942:sramecc+:xnack-,304\n")
    assert (record.device, record.units) == ("gfx942", 304)


def test_a_part_that_the_driver_does_not_name_is_its_architecture() -> None:
    log = DEVICES.replace("AMD Instinct MI300X", "AMD Radeon Graphics") + HIPBLASLT + hipblaslt()
    assert one(log).device == "gfx942"


def test_a_winner_that_is_printed_again_is_a_summary() -> None:
    again = "Winner: \n" + HIPBLASLT[4:]
    slow, fast = hipblaslt(printed="1,1,900"), hipblaslt(printed="1,1,800")
    records = read(HIPBLASLT + slow + "    --kernel name: a\n" + fast + "    --kernel name: b\n" + again + fast)
    assert [(record.name, record.refused_code if record.refused else "") for record in records[:2]] == [("a", ""), ("b", "")]
    assert records[2].refused_code == "summary"
    assert read(again + fast)[0].refused == ""  # the only row


def test_a_log_that_ends_in_a_row_refuses_that_row() -> None:
    good, bad = read(HIPBLASLT + hipblaslt() + hipblaslt()[:120])
    assert good.refused == ""
    assert "fields" in bad.refused
    broken = one(HIPBLASLT + hipblaslt(printed="1,1,inf"))
    assert "us" in broken.refused
    with pytest.raises(RefusedError, match="no header"):
        list(BLAS_BENCH.read(Source(Path("log.txt"), io.BytesIO(b"nothing\n"))))


ROCBLAS = "transA,transB,M,N,K,alpha,lda,beta,ldb,ldc,{}rocblas-Gflops,rocblas-GB/s,us,CPU-Gflops,us,norm_error\n"


def test_rocblas_counts_gigabytes_and_its_first_time_is_the_gpus() -> None:
    # 3 x 4096 x 4096 values of 2 bytes in 250 us: 100663296 bytes are 402.653 GB/s; 2 x 4096^3 FLOPs are 549756 GFLOP/s.
    row = "N,T,4096,4096,4096,1,4096,0,4096,4096,{}549756,402.653,250,80,1.7e6,0\n"
    record = one(ROCBLAS.format("a_type,b_type,c_type,d_type,") + row.format("f16_r,f16_r,f16_r,f16_r,"))
    assert record.t_s == pytest.approx(250e-6)
    assert finding(record, "memory") is None
    assert finding(record, "compute") is None
    unnamed = one(ROCBLAS.format("") + row.format(""))
    assert unnamed.work is None
    assert "--precision" in unnamed.no_work
    command = "$ ./rocblas-bench -f gemm -r h -m 4096 -n 4096 -k 4096\n"
    assert built(one(command + ROCBLAS.format("") + row.format(""))).dtype.name == "fp16"


def test_another_function_of_rocblas_says_that_it_is_not_named() -> None:
    record = one("M,N,alpha,lda,incx,beta,incy,rocblas-Gflops,rocblas-GB/s,us\n4096,4096,1,4096,1,0,1,300,600,110\n")
    assert record.t_s == pytest.approx(110e-6)
    assert "does not name its function" in record.no_work


# The CUTLASS profiler

GEMM_HEAD = (
    "Problem,Provider,OperationKind,Operation,Disposition,Status,gemm_kind,m,n,k,A,B,C,D,alpha,beta,split_k_slices,"
    "batch_count,op_class,accum,Bytes,Flops,Flops/Byte,Runtime,GB/s,GFLOPs\n"
)


def cutlass(
    types: str = "f16:column,f16:row,f32:column,f32:column",
    *,
    name: str = "cutlass_tensorop_s16816gemm_f16",
    status: str = "passed,success",
    op_class: str = "tensorop",
    printed: str = "134217728,137472507904,1024,1,125,137472",
    sizes: str = "4096,4096,4096",
) -> str:
    return f"1,CUTLASS,gemm,{name},{status},universal,{sizes},{types},1,0,1,1,{op_class},f32,{printed}\n"


def test_a_public_row_of_the_profiler_reproduces() -> None:
    """fp32 on vector units, 16384^3: 3 x 16384^2 x 4 bytes in 481.022 ms are 6.697e9 B/s, 6.23672 GiB/s."""
    types, printed = "f32:column,f32:column,f32:column,f32:column", "3221225472,8796629893120,2730,481.022,6.23672,18287.4"
    row = cutlass(types, op_class="simt", printed=printed, sizes="16384,16384,16384", name="cutlass_simt_sgemm_128x128")
    record = one("=====\nCSV Results:\n\n" + GEMM_HEAD + row)
    assert (record.t_s, record.correct, record.name) == (pytest.approx(0.481022), True, "cutlass_simt_sgemm_128x128")
    assert (built(record).bytes, built(record).flops) == (3 * 16384**2 * 4, 2 * 16384**3)
    assert (built(record).engine, built(record).dtype.name) == ("vector", "fp32")
    assert finding(record, "memory") is None
    assert finding(record, "compute") is None


def test_the_flops_of_alpha_and_beta_are_a_convention() -> None:
    """With K = 8: M N (2 K + 2) FLOPs against 2 M N K are 1.125."""
    sizes = "4096,4096,8"
    record = one(GEMM_HEAD + cutlass(sizes=sizes, printed=f"1,1,1,1.00000,1,{4096 * 4096 * 18 / 1e6:.6g}"))
    found = finding(record, "compute")
    assert found is not None
    assert (found.cause, "alpha" in found.decided) == ("flop_convention", True)


@pytest.mark.parametrize(
    ("types", "name", "dtype"),
    [
        ("f32:column,f32:row,f32:row,f32:row", "cutlass_tensorop_s1688gemm_128x128", "tf32"),
        ("bf16:column,bf16:row,f32:row,f32:row", "cutlass_tensorop_s16816gemm_bf16", "bf16"),
        ("e4m3:row,e5m2:column,bf16:row,bf16:row", "cutlass3x_sm90_tensorop_gemm", "fp8"),
        ("s8:row,s8:column,s32:row,s32:row", "cutlass_tensorop_i16832gemm_s8", "int8"),
    ],
)
def test_operands_of_tensor_cores(types: str, name: str, dtype: str) -> None:
    work = built(one(GEMM_HEAD + cutlass(types, name=name)))
    assert (work.dtype.name, work.engine) == (dtype, "matrix")


@pytest.mark.parametrize("name", ["cutlass_tensorop_s1688f16gemm_128x128", "cutlass_tensorop_s1688bf16gemm_64x64"])
def test_fp32_multiplied_in_16_bits_has_no_work(name: str) -> None:
    assert "16-bit" in one(GEMM_HEAD + cutlass("f32:row,f32:row,f32:row,f32:row", name=name)).no_work


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("incorrect,success", "wrong result"),
        ("failed,success", "a failure"),
        ("not_run,error_not_supported", "error_not_supported"),
        ("passed,error_internal", "error_internal"),
    ],
)
def test_a_wrong_or_failed_row_is_refused_with_its_state(status: str, reason: str) -> None:
    record = one(GEMM_HEAD + cutlass(status=status))
    assert reason in record.refused
    assert record.work is None


def test_a_row_that_was_not_verified_is_read() -> None:
    record = one(GEMM_HEAD + cutlass(status="not_verified,success"))
    assert (record.refused, record.correct) == ("", None)


def test_a_sparse_product_keeps_half_of_a() -> None:
    """16384^3 in fp16: A/2, B, C in fp32 and 2 bits of index for each kept value are the 1912602624 bytes of a public row."""
    head = GEMM_HEAD.replace("C,D,", "C,E,")
    row = "1,CUTLASS,spgemm,s16832spgemm,not_verified,success,spgemm,16384,16384,16384,f16:column,f16:row,f32:row,u16:nk2,"
    record = one(head + row + "1,0,1,1,tensorop,f32,1912602624,8796629893120,4599,18.19,97.9245,483596\n")
    assert built(record).bytes == 1912602624
    assert built(record).flops == 16384**3
    assert finding(record, "memory") is None
    found = finding(record, "compute")
    assert found is not None
    assert found.cause == "flop_convention"


CONV_HEAD = (
    "Problem,Provider,OperationKind,Operation,Disposition,Status,conv_kind,n,h,w,c,k,r,s,p,q,pad_h,pad_w,stride_h,stride_w,"
    "dilation_h,dilation_w,Activation,Filter,Output,op_class,accum,Bytes,Flops,Flops/Byte,Runtime,GB/s,GFLOPs\n"
)


def test_a_convolution_reads_its_input_once_where_the_profiler_counts_it_per_tap() -> None:
    """The 1130659840 bytes of a public row are 8 x 224 x 224 outputs x 9 taps x 128 channels x 2, the filter, the output."""
    row = (
        "1,CUTLASS,conv2d,fprop_f16,passed,success,fprop,8,224,224,128,128,3,3,224,224,1,1,1,1,1,1,f16:nhwc,f16:nhwc,f32:nhwc,"
    )
    record = one(CONV_HEAD + row + "tensorop,f32,1130659840,118482796544,104,3.63979,289.305,32552.1\n")
    pixels = 8 * 224 * 224
    assert built(record).bytes == pixels * 128 * 2 + 128 * 128 * 9 * 2 + pixels * 128 * 4
    found = finding(record, "memory")
    assert found is not None
    assert (found.cause, "im2col" in found.decided) == ("overcounted_bytes", True)
    compute = finding(record, "compute")
    assert compute is None or compute.cause == "flop_convention"


def test_another_operation_says_that_it_has_no_model() -> None:
    record = one(GEMM_HEAD + cutlass().replace(",gemm,", ",rank_k,", 1))
    assert "rank_k" in record.no_work


def test_a_tagged_profile_is_read_and_a_cut_row_is_refused() -> None:
    good, bad = read("Build," + GEMM_HEAD + "a," + cutlass() + "a," + cutlass()[:110] + "\n")
    assert good.refused == ""
    assert "fields" in bad.refused
    with pytest.raises(RefusedError, match="no header"):
        list(CUTLASS.read(Source(Path("log.txt"), io.BytesIO(b"nothing\n"))))
