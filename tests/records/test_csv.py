"""CSV records of other tools: the header gives the format, each row is read or refused with the reason."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_roofline.declare import build_work
from pytest_roofline.records import source as records_source
from pytest_roofline.records.formats import choose
from pytest_roofline.records.formats.claims import template
from pytest_roofline.records.formats.triton import LIGER as LIGER_CSV
from pytest_roofline.records.source import SAMPLE, RecordRow, RefusedError, Sample, Source, open_source, separator
from roofline_engine.check import AGREES, Claim, Facts, Finding, explain_claim
from roofline_engine.ops import OPS, work
from roofline_engine.ops.matmul import experts_hit
from roofline_engine.units import half_digit
from roofline_engine.work import Work


def adapter(text: str) -> str:
    found = choose(Sample(text[:SAMPLE]))
    return found.NAME if found is not None else ""


def read(text: str | bytes) -> list[RecordRow]:
    """Read with the adapter that the content selects, for any file name."""
    data = text if isinstance(text, bytes) else text.encode()
    source = Source(Path("records.txt"), io.BytesIO(data))
    found = choose(source.sample())
    assert found is not None, "no adapter knows it"
    return list(found.read(source))


def one(text: str | bytes) -> RecordRow:
    (record,) = read(text)
    return record


def refusals(records: Sequence[RecordRow]) -> dict[str, str]:
    return {record.row: record.refused for record in records if record.refused}


def built(record: RecordRow) -> Work:
    assert record.work is not None, record.no_work
    done = build_work(record.work)
    assert done is not None
    return done


def finding_of(record: RecordRow, axis: str) -> Finding | None:
    """Compare the printed rate of a record with the bytes or FLOPs of its model in its time."""
    (printed,) = (claim for claim in record.claims if claim.axis == axis)
    assert record.t_s is not None
    amount = built(record).bytes if axis == "memory" else built(record).flops
    return explain_claim(printed, amount / record.t_s, Facts(known_mistakes=record.known_mistakes))


GEMM = "gfx,cu_num,M,N,K,q_dtype_w,libtype,kernelId,splitK,us,kernelName,tflops,bw,errRatio"


def gemm(
    *, m: int = 64, n: int = 8192, k: int = 1024, us: str = "10.0", tflops: str = "", bw: str = "", err: str = "0.0"
) -> str:
    return f"gfx942,80,{m},{n},{k},torch.float8_e4m3fnuz,ck,1,0,{us},a_kernel,{tflops},{bw},{err}\n"


# Tuned GEMMs


def test_a_tuned_gemm_row_becomes_a_record_in_base_units() -> None:
    flops, nbytes = 2 * 64 * 8192 * 1024, 64 * 1024 + 8192 * 1024 + 2 * 64 * 8192
    record = one(f"{GEMM}\n{gemm(us='10.0', tflops=f'{flops / 10e-6 / 1e12:.4f}', bw=f'{nbytes / 10e-6 / 1e9:.2f}')}")
    assert (record.row, record.name, record.device, record.units) == ("line 2", "a_kernel", "gfx942", 80)
    assert record.t_s == pytest.approx(10e-6)
    assert record.correct is True
    assert not record.placeholder_time
    done = built(record)
    assert (done.flops, done.bytes) == (flops, nbytes)
    assert done.dtype.name == "fp8"
    assert finding_of(record, "compute") is None
    assert finding_of(record, "memory") is None


def test_a_bandwidth_in_the_wrong_unit_is_a_differing_claim() -> None:
    nbytes = 64 * 1024 + 8192 * 1024 + 2 * 64 * 8192
    in_tb = one(f"{GEMM}\n{gemm(bw=f'{nbytes / 10e-6 / 1e12:.5f}')}")
    (printed,) = in_tb.claims
    assert printed.claimed == pytest.approx(nbytes / 10e-6 / 1e3, rel=1e-4)  # as GB/s, which the format says
    finding = finding_of(in_tb, "memory")
    assert finding is not None
    assert (finding.cause, finding.factor) == ("accounting_unit", pytest.approx(1e-3, rel=1e-4))


def test_a_tenfold_rate_and_a_zero_rate_are_reported() -> None:
    tenfold, zero = read(f"{GEMM}\n{gemm(tflops=f'{2 * 64 * 8192 * 1024 / 1e-5 / 1e11:.2f}')}{gemm(tflops='0.0')}")
    finding = finding_of(tenfold, "compute")
    assert finding is not None
    assert (finding.cause, finding.factor) == ("accounting_unit", pytest.approx(10, rel=1e-3))
    finding = finding_of(zero, "compute")
    assert finding is not None
    assert finding.cause == "placeholder"


def test_an_fp32_output_counted_at_2_bytes_is_a_dtype_width_mistake() -> None:
    head = "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,us,kernelName,err_ratio,tflops,bw"
    m, n, k, us = 64, 256, 5120, 7.9191
    at_2 = (m * k + n * k) * 2 + m * n * 2
    row = f"gfx950,256,{m},{n},{k},False,torch.bfloat16,torch.float32,False,False,asm,{us},x,0.0,21.19"
    record = one(f"{head}\n{row},{at_2 / us / 1e3:.2f}\n")
    assert built(record).bytes == at_2 + m * n * 2
    finding = finding_of(record, "memory")
    assert finding is not None
    assert (finding.cause, finding.factor) == ("dtype_width", pytest.approx(at_2 / (at_2 + 2 * m * n), rel=1e-4))
    assert finding_of(record, "compute") is None


@pytest.mark.parametrize(
    ("us", "said"),
    [
        ("0", "us is '0', expected more than 0"),
        ("-3.5", "us is '-3.5', expected more than 0"),
        ("nan", "us is 'nan', expected a finite number"),
        ("inf", "us is 'inf', expected a finite number"),
        ("", "us is empty"),
        ("1e-320", "us is '1e-320', too small for a time"),
        ("1_000", "us is '1_000', expected a number"),
        ("True", "us is 'True', expected a number"),
        ('"12,5"', "us is '12,5': the comma may be a decimal point"),
        ('"1,234"', "us is '1,234': the comma may be a decimal point"),
    ],
)
def test_a_bad_time_refuses_its_row_and_keeps_the_other_fields(us: str, said: str) -> None:
    record, good = read(f"{GEMM}\n{gemm(us=us, tflops='0.0')}{gemm()}")
    assert record.row == "line 2"
    assert record.refused.startswith(said)
    assert (record.t_s, record.name, record.device) == (None, "a_kernel", "gfx942")
    assert record.work is not None
    assert not good.refused


@pytest.mark.parametrize(("us", "rounding"), [("40", 0.5 / 40), ("40.0", 0.05 / 40), ("0.04", 0.005 / 0.04), ("4e1", 5 / 40)])
def test_the_last_printed_digit_is_kept(us: str, rounding: float) -> None:
    assert one(f"{GEMM}\n{gemm(us=us)}").rounding == pytest.approx(rounding)


@pytest.mark.parametrize("us", ["1e308", "1e-300"])
def test_a_time_that_no_kernel_takes_refuses_its_row(us: str) -> None:
    record = one(f"{GEMM}\n{gemm(us=us)}")
    assert record.refused == f"us is '{us}', too {'large' if us == '1e308' else 'small'} for a time"


def test_a_sparse_product_is_read_as_one() -> None:
    dense, sparse = f"{GEMM}\n{gemm()}", f"{GEMM.strip()},sparsity\n{gemm().strip()},2:4\n"
    assert built(one(sparse)).flops == built(one(dense)).flops / 2
    assert built(one(sparse.replace("2:4", ""))) == built(one(dense))


def test_thousands_with_a_decimal_point_are_understood() -> None:
    assert one(f"{GEMM}\n{gemm(us=chr(34) + '1,234.5' + chr(34))}").t_s == pytest.approx(1234.5e-6)


def test_a_time_of_exactly_one_is_marked_not_refused() -> None:
    ones = read(f"{GEMM}\n{gemm(us='1.0')}{gemm(us='1')}{gemm(us='1.0001')}")
    assert [record.placeholder_time for record in ones] == [True, True, False]
    assert not refusals(ones)


@pytest.mark.parametrize(("err", "correct"), [("0.0", True), ("0.05", True), ("0.0501", False), ("0.9323", False), ("", None)])
def test_the_share_of_wrong_elements_decides_whether_a_row_is_correct(err: str, correct: bool | None) -> None:
    assert one(f"{GEMM}\n{gemm(err=err)}").correct is correct


def test_milliseconds_in_a_us_column_give_a_differing_claim() -> None:
    flops = 2 * 64 * 8192 * 1024
    record = one(f"{GEMM}\n{gemm(us='0.0100', tflops=f'{flops / 10e-6 / 1e12:.2f}')}")
    assert record.t_s == pytest.approx(0.01e-6)
    finding = finding_of(record, "compute")
    assert finding is not None
    assert (finding.cause, finding.factor) == ("accounting_unit", pytest.approx(1e-3, rel=0.01))


@pytest.mark.parametrize(("units", "gfx"), [("304", "gfx942"), ("80", "gfx942"), ("256", "gfx950"), ("17", None)])
def test_without_gfx_the_compute_units_identify_the_device(units: str, gfx: str | None) -> None:
    record = one(f"cu_num,M,N,K,q_dtype_w,us,kernelName\n{units},1,2,3,torch.int8,5.0,x\n")
    assert (record.device, record.units) == (gfx, int(units))
    assert "no gfx" in record.notes[0]


def test_without_a_dtype_column_the_kernel_name_gives_the_dtype() -> None:
    head = "gfx,cu_num,M,N,K,libtype,us,kernelName\n"
    asm, triton = read(head + "gfx950,256,1,2,3,asm,5.0,_ZN5aiter42fp8gemm_bf16_x\ngfx950,256,1,2,3,triton,5.0,triton\n")
    assert [built(record).dtype.name for record in (asm, triton)] == ["fp8", "fp8"]  # a file is of one dtype
    unsaid = one(head + "gfx950,256,1,2,3,triton,5.0,triton\n")
    assert unsaid.work is None
    assert "a dtype column is missing" in unsaid.no_work


def test_a_batch_counted_as_one_matrix_is_reported() -> None:
    b, m, n, k = 16, 64, 512, 128
    of_one = (m * k + n * k + 2 * m * n) / 20e-6 / 1e9
    record = one(f"cu_num,B,M,N,K,q_dtype_w,us,kernelName,bw\n304,{b},{m},{n},{k},torch.int8,20.0,x,{of_one:.3f}\n")
    finding = finding_of(record, "memory")
    assert finding is not None
    assert (finding.cause, finding.factor) == ("accounting_unit", pytest.approx(1 / b, rel=0.01))


def test_an_unknown_dtype_or_a_broken_size_refuses_its_row() -> None:
    rows = (
        gemm().replace("torch.float8_e4m3fnuz", "torch.float7")
        + gemm().replace(",64,", ",64.5,")
        + gemm().replace(",64,", ",,")
    )
    said = refusals(read(f"{GEMM}\n{rows}"))
    assert "float7" in said["line 2"]
    assert said["line 3"] == "M is 64.5, expected a whole number"
    assert said["line 4"] == "M is empty"


# Fused MoE

FMOE = (
    "cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_stage1,block_m,"
    "ksplit,us1,kernelName1,err1,us2,kernelName2,err2,us,run_1stage,tflops,bw,_tag"
)


def fmoe(tokens: int, us: str, tflops: str, bw: str, *, stages: str = "0", err: str = "0.0%") -> str:
    fp8 = "torch.float8_e4m3fnuz"
    return (
        f"80,{tokens},2304,1536,64,2,ActivationType.Gelu,torch.bfloat16,{fp8},{fp8},QuantType.per_Token,1,1,32,0,"
        f"17.8,stage1,0.0%,14.5,stage2,{err},{us},{stages},{tflops},{bw},\n"
    )


def test_a_moe_row_that_counts_every_expert_is_overcounted() -> None:
    every = 64 * 3 * 2304 * 1536
    record = one(f"{FMOE}\n{fmoe(4, '32.3123', '5.26', f'{every / 32.3123e-6 / 1e9:.2f}')}")
    done = built(record)
    assert done.flops == 2 * 4 * 2 * 3 * 2304 * 1536
    assert record.launches == 2
    assert record.name == "stage1 + stage2"
    finding = finding_of(record, "memory")
    assert finding is not None
    assert (finding.cause, finding.factor) == ("overcounted_bytes", pytest.approx(64 / experts_hit(64, 8), rel=0.01))


@pytest.mark.parametrize("wide", [2, 4])
def test_every_expert_at_twice_or_four_times_the_width_is_the_same_mistake(wide: int) -> None:
    every = wide * 64 * 3 * 2304 * 1536
    finding = finding_of(one(f"{FMOE}\n{fmoe(4, '32.3', '', f'{every / 32.3e-6 / 1e9:.2f}')}"), "memory")
    assert finding is not None
    assert finding.cause == "overcounted_bytes"


def test_a_row_copied_to_another_number_of_tokens_is_found_by_its_time() -> None:
    rate = 2 * 16 * 2 * 3 * 2304 * 1536 / 72.3706e-6 / 1e12
    rows = [fmoe(tokens, "72.3706", f"{rate:.3f}", "") for tokens in (4, 16)] + [fmoe(8, "72.3707", f"{rate / 2:.3f}", "")]
    copied, right, other = read(f"{FMOE}\n{''.join(rows)}")
    finding = finding_of(copied, "compute")
    assert finding is not None
    assert (finding.cause, finding.factor) == ("accounting_unit", pytest.approx(4, rel=1e-3))
    assert "16 tokens" in finding.decided
    assert finding_of(right, "compute") is None
    assert any("4, 16 tokens" in note for note in right.notes)
    assert finding_of(other, "compute") is None


def test_the_scales_of_a_micro_scaled_moe_are_counted_from_its_column() -> None:
    fp8, fp4 = "torch.float8_e4m3fnuz", "torch.float4_e2m1fn_x2"
    plain = f"{FMOE}\n{fmoe(64, '80', '', '')}".replace(fp8, fp4)
    scaled = one(plain.replace("per_Token", "per_1x32"))
    done, without = built(scaled), built(one(plain))
    assert (done.dtype.name, done.flops) == ("mxfp4", without.flops)
    weights = experts_hit(64, 128) * 3 * 2304 * 1536
    assert done.bytes - without.bytes == pytest.approx(weights / 32, rel=0.01)  # a scale of one byte for 32 values
    assert "per_banana" in refusals(read(f"{FMOE}\n{fmoe(4, '80', '', '')}".replace("per_Token", "per_banana")))["line 2"]


def test_a_moe_whose_rate_leaves_the_scales_out_is_a_dtype_width_mistake() -> None:
    fp8, fp4 = "torch.float8_e4m3fnuz", "torch.float4_e2m1fn_x2"
    rows = f"{FMOE}\n{fmoe(64, '80', '', '{rate}')}".replace(fp8, fp4)
    rate = built(one(rows.replace("{rate}", ""))).bytes / 80e-6 / 1e9
    finding = finding_of(one(rows.replace("per_Token", "per_1x32").replace("{rate}", f"{rate:.2f}")), "memory")
    assert finding is not None
    assert (finding.cause, finding.factor) == ("dtype_width", pytest.approx(1 / 1.0625, rel=0.005))


def test_the_scales_of_a_product_are_counted_from_its_kernels_name() -> None:
    head = "gfx,cu_num,M,N,K,libtype,us,kernelName\n"
    fp4, fp8, rowwise = read(
        f"{head}gfx950,256,16,128,7168,asm,6.0,_ZN5aiter42f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128E\n"
        "gfx950,256,16,128,7168,asm,6.0,_ZN5aiter42fp8gemm_bf16_blockscale_BpreShuffle_32x128E\n"
        "gfx950,256,16,128,7168,ck,6.0,a8w8_bpreshuffle_128x16x32x512\n"
    )
    a, w, out = 16 * 7168, 128 * 7168, 16 * 128 * 2
    assert built(fp4).bytes == (a + w) * 4.25 / 8 + out
    assert built(fp8).bytes == a * (1 + 4 / 128) + w * (1 + 4 / 128**2) + out
    assert built(rowwise).bytes == a + w + out


def test_one_stage_is_one_launch() -> None:
    first, second = read(f"{FMOE}\n{fmoe(4, '30.0', '', '', stages='1', err='15.8%')}{fmoe(8, '30.0', '', '', err='50.1%')}")
    assert (first.launches, first.correct) == (1, True)
    assert (second.launches, second.correct) == (2, False)


# Wide tables of op tests


def test_each_backend_of_a_wide_row_is_a_record() -> None:
    flops, nbytes = 2 * 64 * 8192 * 1024, 64 * 1024 + 8192 * 1024 + 2 * 64 * 8192
    text = "dtype,m,n,k,ck us,ck TFLOPS,ck TB/s,triton us,triton/ck\n"
    text += f"fp8,64,8192,1024,6.4,{flops / 6.4e6:.1f},{nbytes / 6.4e6:.3f},,0.95\n"
    ck, triton = read(text)
    assert (ck.name, ck.t_s) == ("ck", pytest.approx(6.4e-6))
    assert finding_of(ck, "compute") is None
    assert finding_of(ck, "memory") is None
    assert (triton.name, triton.refused) == ("triton", "triton us is empty")


def test_the_same_table_in_markdown_is_read() -> None:
    text = "| dtype  |   m |    n |    k |   ck us |   ck TFLOPS |\n|:-------|----:|-----:|-----:|--------:|------------:|\n"
    record = one(text + "| fp8    |  64 | 8192 | 1024 |     6.4 |      167.77 |\n")
    assert (record.row, record.name) == ("line 3", "ck")
    assert finding_of(record, "compute") is None


def test_mla_decode_reproduces_flops_and_bytes_of_its_printed_rates() -> None:
    heads, batch, ctx, us = 32, 16, 4096, 34.7793
    flops = 2 * batch * ctx * heads * (576 + 512)
    kv, rest = batch * ctx * 576 * 2, batch * heads * (576 * 2 + 512 * 2)
    head = "nhead,mtp,batch,ctx,dtype,us,TFLOPS,TB/s\n"
    record = one(head + f"{heads},1,{batch},{ctx},bf16,{us},{flops / us / 1e6:.2f},{(kv + rest) / us / 1e6:.5f}\n")
    assert finding_of(record, "compute") is None
    assert {kv, kv + rest} == {model.bytes for model in built(record).candidates}
    assert record.claims[1].claimed == pytest.approx((kv + rest) / (us * 1e-6), rel=1e-4)


def test_a_wide_table_of_an_unknown_op_keeps_its_time() -> None:
    record = one("dtype,rows,blub,ck us,ck TFLOPS\nfp8,1,2,6.4,1.0\n")
    assert record.work is None
    assert "dtype, rows, blub" in record.no_work
    assert record.t_s == pytest.approx(6.4e-6)


# FlashInfer

FLASHINFER = (
    "routine,median_time,std_time,tflops,tb_per_sec,backend,s_qo,s_kv,head_dim_qk,head_dim_vo,causal,q_dtype,kv_dtype,n,"
    "group_size,use_nvfp4,num_tokens,top_k,num_tokens,top_k,batch_size,input_dtype,out_dtype,m,k,num_qo_heads,num_kv_heads"
)


def flashinfer(**cells: object) -> str:
    seen: dict[str, int] = {}
    out = []
    for name in FLASHINFER.split(","):
        seen[name] = seen.get(name, 0) + 1
        out.append(str(cells.get(name if seen[name] == 1 else f"{name}_{seen[name]}", "")))
    return ",".join(out) + "\n"


def test_flashinfer_times_are_milliseconds_and_rates_tflops_and_tb_s() -> None:
    m, n, k = 128, 2048, 4096
    row = flashinfer(routine="mm_bf16", median_time=0.05, backend="cublas", m=m, n=n, k=k, out_dtype="torch.bfloat16")
    tflops, tb_s = 2 * m * n * k / 5e-5 / 1e12, 2 * (m * k + n * k + m * n) / 5e-5 / 1e12
    row = row.replace(",,,cublas", f",{tflops:.3f},{tb_s:.4f},cublas")
    record = one(f"{FLASHINFER}\n{row}")
    assert (record.name, record.t_s) == ("mm_bf16 cublas", pytest.approx(5e-5))
    assert finding_of(record, "compute") is None
    assert finding_of(record, "memory") is None


def test_flashinfers_batched_product_prints_the_bytes_of_one_of_the_batch() -> None:
    b, m, n, k, ms = 64, 1, 512, 4096, 0.05
    cells = {"routine": "bmm_fp8", "median_time": ms, "batch_size": b, "m": m, "n": n, "k": k}
    cells.update(input_dtype="torch.float8_e4m3fn", out_dtype="torch.bfloat16", backend="cudnn")
    cells.update(tflops=2 * b * m * n * k / ms / 1e9, tb_per_sec=(m * k + n * k + 2 * m * n) / ms / 1e9)
    record = one(f"{FLASHINFER}\n{flashinfer(**cells)}")
    assert finding_of(record, "compute") is None
    finding = finding_of(record, "memory")
    assert finding is not None
    assert (finding.cause, finding.factor) == ("accounting_unit", pytest.approx(1 / b, rel=0.01))


def test_flashinfers_attention_rows_have_their_work() -> None:
    shape = {"batch_size": 8, "num_qo_heads": 32, "num_kv_heads": 8, "head_dim_qk": 128, "head_dim_vo": 128}
    shape.update(q_dtype="torch.bfloat16", kv_dtype="torch.bfloat16", s_qo=1, s_kv=1024, median_time=0.1)
    decode, prefill = read(
        f"{FLASHINFER}\n{flashinfer(routine='BatchDecodeWithPagedKVCacheWrapper', **shape)}"
        f"{flashinfer(routine='BatchPrefillWithRaggedKVCacheWrapper', **{**shape, 's_qo': 1024}, causal='True')}"
    )
    assert built(decode).flops == 4 * 8 * 1024 * 32 * 128
    assert built(prefill).flops == pytest.approx(4 * 8 * 1024 * 1025 / 2 * 32 * 128)


def test_a_row_without_sizes_has_a_reason() -> None:
    unknown, short = read(
        f"{FLASHINFER}\n{flashinfer(routine='top_p_renorm_probs', median_time=1.5)}"
        f"{flashinfer(routine='mm_bf16', median_time=1.5)}"
    )
    assert unknown.no_work == "no work model for routine top_p_renorm_probs"
    assert short.no_work == "mm_bf16: the row gives no m"


def test_an_empty_cell_of_a_required_size_gives_no_work() -> None:
    """A causal mask halves the FLOPs, NVFP4 has twice the scales of MXFP4, and a gate is a third of the weights."""
    shape = {"batch_size": 8, "num_qo_heads": 32, "num_kv_heads": 8, "head_dim_qk": 128, "head_dim_vo": 128, "s_kv": 1024}
    shape.update(q_dtype="torch.bfloat16", kv_dtype="torch.bfloat16", s_qo=1024, median_time=0.1)
    fp4 = {"m": 128, "n": 2048, "k": 4096, "out_dtype": "torch.bfloat16", "median_time": 0.05}
    prefill, product = read(
        f"{FLASHINFER}\n{flashinfer(routine='BatchPrefillWithRaggedKVCacheWrapper', **shape)}"
        f"{flashinfer(routine='mm_fp4', **fp4)}"
    )
    assert prefill.no_work == "BatchPrefillWithRaggedKVCacheWrapper: the row gives no causal"
    assert product.no_work == "mm_fp4: the row gives no use_nvfp4"
    row = fmoe(4, "32.3", "", "").replace("per_Token,1,1", "per_Token,,1")
    assert one(f"{FMOE}\n{row}").refused == "use_g1u1 is empty"


def test_the_activation_dtype_does_not_give_the_weight_dtype() -> None:
    lines = [line.split(",") for line in f"{FMOE}\n{fmoe(4, '32.3', '', '')}".splitlines()]
    place = lines[0].index("q_dtype_w")
    text = "\n".join(",".join(line[:place] + line[place + 1 :]) for line in lines)
    with pytest.raises(RefusedError, match="no column q_dtype_w"):
        read(text)


def test_a_groupwise_product_has_the_rows_of_each_group() -> None:
    cells = {"m": 4, "n": 512, "k": 256, "group_size": 8, "out_dtype": "torch.bfloat16", "median_time": 0.05}
    done = built(one(f"{FLASHINFER}\n{flashinfer(routine='group_gemm_fp8_nt_groupwise', **cells)}"))
    assert [model.bytes for model in done.candidates] == [8 * (4 * 256 + 512 * 256 + 4 * 512 * 2)]


# tritonbench

TRITONBENCH = "(M, N, K);aten-latency;triton-latency;triton-tflops;triton-speedup;triton-accuracy\n"


def test_tritonbench_splits_at_semicolons_and_drops_the_average_with_a_note() -> None:
    aten, triton, average = read(
        TRITONBENCH + "(64, 8192, 1024);0.0071;0.0061 (±1.2%);176.0;1.16;1.0\naverage;0.0071;0.0061;176.0;1.16;1.0\n"
    )
    assert (aten.t_s, aten.baseline_kind, aten.speedup) == (pytest.approx(7.1e-6), "unknown", None)
    assert (triton.t_s, triton.baseline_t_s) == (pytest.approx(6.1e-6), pytest.approx(7.1e-6))
    assert (triton.baseline_kind, triton.speedup, triton.correct) == ("eager", 1.16, True)
    assert triton.name == "triton (M, N, K)=(64, 8192, 1024)"
    assert triton.claims == (Claim("compute", 176e12, pytest.approx(0.05 / 176 + 0.5 / 61)),)
    assert triton.no_work == "the file names neither the op nor the dtype"
    assert "average" in average.refused


def test_tritonbench_with_commas_quotes_its_tuples_and_a_failed_backend_is_refused() -> None:
    aten, triton = read('x_val,aten-latency,triton-latency\n"(64, 8192)",0.5,CUDA OOM\n')
    assert aten.name == "aten x_val=(64, 8192)"
    assert triton.refused == "triton-latency is 'CUDA OOM', expected a number"


def test_a_list_of_shapes_is_refused_in_one_line() -> None:
    with pytest.raises(RefusedError, match=r"^records.txt: shapes alone \(M, K, N, Bias\), no column of a time"):
        read("M,K,N,Bias\n152710,512,2048,2048\n6,1536,384,\n")


# Liger

LIGER = (
    "kernel_name,kernel_provider,kernel_operation_mode,metric_name,metric_unit,x_name,x_label,x_value,y_value_50,y_value_20,"
    "y_value_80,extra_benchmark_config_str,gpu_name,timestamp,liger_version"
)


def liger(
    kernel: str,
    provider: str,
    ms: str,
    config: str,
    *,
    mode: str = "forward",
    x: str = "H,hidden size,4096",
    metric: str = "speed,ms",
) -> str:
    quoted = config.replace('"', '""')
    return f'{kernel},{provider},{mode},{metric},{x},{ms},0.029,0.032,"{quoted}",NVIDIA A100-SXM4-80GB,2024-09-03,0.2.1\n'


NORM = '{"M": 2048, "dtype": "torch.bfloat16", "eps": 1e-06}'


def test_liger_takes_the_other_provider_as_its_baseline_before_or_after_it() -> None:
    ours, theirs = read(f"{LIGER}\n{liger('rms_norm', 'liger', '0.031', NORM)}{liger('rms_norm', 'huggingface', '0.31', NORM)}")
    assert ours.t_s == pytest.approx(31e-6)
    assert (ours.q1_s, ours.q3_s) == (pytest.approx(29e-6), pytest.approx(32e-6))
    assert (ours.baseline_kind, ours.baseline_t_s) == ("eager", pytest.approx(310e-6))
    assert theirs.baseline_t_s is None
    assert ours.device == "NVIDIA A100-SXM4-80GB"
    assert built(ours).bytes == work("rmsnorm", rows=2048, cols=4096, dtype="bf16").bytes


@pytest.mark.parametrize(
    ("provider", "kind"),
    [("huggingface", "eager"), ("torch", "eager"), ("torch_compile", "compiled"), ("flash_attn", "reference")],
)
def test_a_provider_name_gives_the_kind_of_baseline(provider: str, kind: str) -> None:
    rows = liger("rms_norm", provider, "0.3", NORM) + liger("rms_norm", "liger", "0.03", NORM)
    assert read(f"{LIGER}\n{rows}")[1].baseline_kind == kind


def test_liger_compares_only_rows_of_the_same_sizes_mode_and_gpu() -> None:
    other = NORM.replace("2048", "4096")
    rows = liger("rms_norm", "huggingface", "0.3", other) + liger("rms_norm", "huggingface", "0.3", NORM, mode="full")
    assert all(record.baseline_t_s is None for record in read(f"{LIGER}\n{rows}{liger('rms_norm', 'liger', '0.03', NORM)}"))


def test_memory_is_never_read_as_a_time() -> None:
    speed, memory = read(
        f"{LIGER}\n{liger('rms_norm', 'liger', '0.03', NORM)}"
        f"{liger('rms_norm', 'huggingface', '0.03', NORM, metric='memory,MB')}"
    )
    assert speed.baseline_t_s is None
    assert memory.t_s is None
    assert memory.refused == "metric_name is 'memory' in MB, not a time"


def test_a_swiglu_row_times_a_whole_mlp() -> None:
    config = '{"B": 4, "hidden_size": 4096, "dtype": "torch.bfloat16", "intermediate_size": 11008, "hidden_act": "silu"}'
    record = one(f"{LIGER}\n{liger('swiglu', 'liger', '10.0', config, x='T,sequence length,1024')}")
    assert record.timed_flops == 3 * 2 * 4 * 1024 * 4096 * 11008
    assert built(record).bytes == 3 * 2 * 4 * 1024 * 11008


def test_liger_rows_without_a_size_are_not_compared_with_each_other() -> None:
    rows = "".join(liger("rms_norm", who, "0.03", NORM, x="H,hidden size,nan") for who in ("liger", "huggingface"))
    refused = refusals(read(f"{LIGER}\n{rows}"))
    assert refused["line 2"] == refused["line 3"] == "x_value is 'nan': the size of H is missing"


def test_a_liger_row_without_sizes_has_no_work() -> None:
    no_dtype, backward, broken = read(
        f"{LIGER}\n{liger('cross_entropy', 'liger', '0.5', '{}', x='V,vocab size,4096')}"
        f"{liger('rms_norm', 'liger', '0.5', NORM, mode='backward')}{liger('rms_norm', 'liger', '0.5', '{M: 1')}"
    )
    assert no_dtype.no_work == "the row gives no dtype"
    assert "backward" in backward.no_work
    assert broken.refused == "extra_benchmark_config_str is '{M: 1', expected JSON"


# A microbenchmark

MICRO = "M,N,K,TILE_M,TILE_N,TILE_K,STAGES,dtype,time_ms,TFLOPS\n"


def test_a_microbenchmarks_rate_agrees_and_a_failed_build_is_refused() -> None:
    good, failed = read(MICRO + "64,16,131072,64,16,16,0,BF16,0.728806,0.368322\n# BUILD_FAILED: 64,16,256,6,0\n")
    assert finding_of(good, "compute") is None
    assert good.name == "TILE_M=64 TILE_N=16 TILE_K=16 STAGES=0"
    assert (failed.row, failed.refused) == ("line 3", "a comment, not a row: # BUILD_FAILED: 64,16,256,6,0")


# Reading CSV


def test_byte_order_marks_and_crlf_change_nothing() -> None:
    plain = read(f"{GEMM}\n{gemm()}")
    assert read(b"\xef\xbb\xbf" + f"{GEMM}\n{gemm()}".replace("\n", "\r\n").encode()) == plain


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("packed", [False, True])
def test_each_format_is_read_in_each_encoding(tmp_path: Path, encoding: str, packed: bool) -> None:
    """UTF-16 with its mark, as Windows shells redirect output, and gzip, whatever the name of the file."""
    mark = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}.get(encoding, b"")
    for text in (*EVERY, json.dumps({"benchmarks": [{"name": "f", "real_time": 2}]}), "benchmark.0.mean: 5\ncheck: pass\n"):
        data = mark + text.encode(encoding)
        path = tmp_path / "records"
        path.write_bytes(gzip.compress(data) if packed else data)
        with open_source(path) as source:
            found = choose(source.sample())
            assert found is not None, text
            records = list(found.read(source))
        assert records == read(text)
        assert not records[0].refused


def test_a_gzip_of_a_table_is_read() -> None:
    found = choose(Sample(GEMM))
    assert found is not None
    stream = gzip.GzipFile(fileobj=io.BytesIO(gzip.compress(f"{GEMM}\n{gemm()}".encode())))
    assert [record.row for record in found.read(Source(Path("records.gz"), stream))] == ["line 2"]


def test_ragged_rows_are_refused_by_line() -> None:
    cut = gemm()[:30] + "\n"
    said = refusals(read(f"{GEMM}\n{gemm()}\n{cut}{gemm().rstrip()},more\n{gemm()}"))
    assert said == {"line 4": "6 fields, the header has 14", "line 5": "15 fields, the header has 14"}


def test_a_file_that_ends_in_the_middle_of_a_row_loses_that_row_alone() -> None:
    whole, cut = read(f"{GEMM}\n{gemm()}{gemm()[:-12]}")
    assert not whole.refused
    assert "fields, the header has 14" in cut.refused


def test_an_unclosed_quote_is_refused_at_its_start() -> None:
    whole, cut = read(f'{GEMM}\n{gemm()}gfx942,"80,64\n{gemm()}')
    assert not whole.refused
    assert (cut.row, cut.refused) == ("line 3", "not a CSV row: unexpected end of data")


def test_an_oversized_quoted_cell_ends_reading_with_a_message() -> None:
    cut = one(f'{GEMM}\ngfx942,"80,64\n{gemm() * 3000}')
    assert cut.refused.endswith("nothing after it is read")


def test_a_row_of_several_lines_is_named_by_its_first_and_the_next_by_its_own() -> None:
    said = refusals(read(f'{GEMM}\ngfx942,"80\n80",64\n{gemm(us="nan")}'))
    assert list(said) == ["line 2", "line 4"]


def test_a_nul_byte_refuses_its_row() -> None:
    said = refusals(read(f"{GEMM}\n{gemm().replace('a_kernel', 'a_' + chr(0))}{gemm()}"))
    assert said == {"line 2": "a NUL byte in the row"}


def test_binary_content_refuses_the_file() -> None:
    with pytest.raises(RefusedError, match=r"^records.txt: line 2: not UTF-8"):
        read(f"{GEMM}\n".encode() + b"\xff\xfe\x00\n")


def test_a_required_column_that_appears_twice_refuses_the_file() -> None:
    with pytest.raises(RefusedError, match=r"column 'us' appears 2 times \(fields 10 and 15\)"):
        read(f"{GEMM},us\n")


def test_a_missing_column_refuses_the_file_in_one_line() -> None:
    source = Source(Path("records.txt"), io.BytesIO(LIGER.replace("y_value_50", "y").encode()))
    with pytest.raises(RefusedError, match=r"^records.txt: no column y_value_50; it has kernel_name, [^\n]*$"):
        list(LIGER_CSV.read(source))


def test_terminal_escapes_in_a_name_are_escaped() -> None:
    assert one(f"{GEMM}\n{gemm().replace('a_kernel', chr(27) + '[31m')}").name == "\\x1b[31m"


def test_the_header_gives_the_format() -> None:
    named = {
        adapter(head + "\n")
        for head in (
            GEMM,
            FMOE,
            FLASHINFER,
            TRITONBENCH.strip(),
            LIGER,
            MICRO.strip(),
            "m,n,k,dtype,ck us,ck TFLOPS",
            "M,K,N,Bias",
        )
    }
    assert len(named) == 7  # tritonbench twice
    for other in ("", "a,b,c", "{}", "name,Percentage", "\x00\x01us,M,N,K,gfx", "gfx us M N K", "x" * SAMPLE):
        assert adapter(other) == ""


@pytest.mark.parametrize(
    ("head", "mark"), [("a,b", ","), ("(M, N, K);a;b", ";"), ('"a;b",c', ","), ("a\tb", "\t"), ("| a | b |", "|"), ("a", ",")]
)
def test_the_header_gives_the_separator(head: str, mark: str) -> None:
    assert separator(head) == mark


@pytest.mark.parametrize(
    ("text", "half"), [("0.09", 0.005), ("510.5", 0.05), ("12", 0.5), ("1.25e-05", 0.005e-5), ("3e2", 50.0), ("1.5E+3", 50.0)]
)
def test_half_of_the_last_printed_digit(text: str, half: float) -> None:
    assert half_digit(text, float(text)) == pytest.approx(half / float(text))


def test_a_rate_of_two_digits_agrees_within_its_own_rounding() -> None:
    rate = 2 * 64 * 8192 * 1 / 10.109e-6 / 1e12  # 0.1037
    record = one(f"{GEMM}\n{gemm(k=1, us='10.109', tflops='0.10')}")
    assert abs(rate / 0.10 - 1) > AGREES
    assert finding_of(record, "compute") is None


def test_reading_streams() -> None:
    """The first record is there before the rest of the file is read."""
    stream = io.BytesIO(f"{GEMM}\n{gemm() * 1000}".encode())
    found = choose(Sample(GEMM))
    assert found is not None
    next(iter(found.read(Source(Path("records.txt"), stream))))
    assert stream.tell() < 1000


def test_a_header_with_too_many_columns_is_refused() -> None:
    with pytest.raises(RefusedError, match="3014 columns, expected at most 2000"):
        read(GEMM + ",x" * 3000 + "\n")


EVERY = (
    f"{GEMM}\n{gemm(tflops='1.5', bw='20.25')}{gemm()}",
    f"{FMOE}\n{fmoe(4, '32.3', '5.26', '2629.41')}{fmoe(16, '32.3', '5.26', '2629.41')}",
    "dtype,m,n,k,ck us,ck TFLOPS,ck TB/s,triton us\nfp8,64,8192,1024,6.4,167.8,1.32,6.1\n",
    f"{FLASHINFER}\n{flashinfer(routine='mm_bf16', median_time=0.05, m=1, n=2, k=3, out_dtype='bf16')}",
    TRITONBENCH + "(64, 8192, 1024);0.0071;0.0061;176.0;1.16;1.0\naverage;0.0071;0.0061;176.0;1.16;1.0\n",
    f"{LIGER}\n{liger('rms_norm', 'liger', '0.031', NORM)}{liger('rms_norm', 'torch', '0.31', NORM)}",
    MICRO + "64,16,131072,64,16,16,0,BF16,0.728806,0.368322\n",
)


BROKEN = [b"inf", b"-1", b"1e999", b'"', b",", b"\n", b"\0", b"\xff", b"[" * 3000, b"9" * 5000]


@given(
    text=st.sampled_from(EVERY),
    at=st.floats(0, 1),
    cut=st.integers(0, 12),
    put=st.one_of(st.binary(max_size=6), st.sampled_from(BROKEN)),
)
def test_broken_input_is_refused_and_other_rows_are_usable(text: str, at: float, cut: int, put: bytes) -> None:
    data = text.encode()
    place = int(at * len(data))
    data = data[:place] + put + data[place + cut :]
    source = Source(Path("records.csv"), io.BytesIO(data))
    found = choose(source.sample())
    if found is None:
        return
    with contextlib.suppress(RefusedError):
        for record in found.read(source):
            assert record.row.startswith("line ")
            assert "\n" not in record.refused
            assert record.refused or (record.t_s is not None and 0 < record.t_s < math.inf)
            assert record.refused or record.work is not None or record.no_work
            assert all(0 <= claim.claimed < math.inf for claim in record.claims)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_fifo_is_refused_and_the_pipe_of_a_shell_is_read(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)  # without a writer: who opens it waits
    with pytest.raises(RefusedError, match=r"pipe: a named pipe \(FIFO\), expected a regular file$"):
        open_source(path)
    ours, theirs = os.pipe()
    os.write(theirs, b"M,N,K\n1,2,3\n")
    os.close(theirs)
    try:
        with open_source(Path(f"/dev/fd/{ours}")) as source:  # what <(command) becomes
            assert source.sample().columns == {"m", "n", "k"}
            assert list(source.lines()) == ["M,N,K", "1,2,3"]
    finally:
        os.close(ours)


def test_a_gzip_of_lines_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "small.csv"
    with gzip.open(path, "wb") as packed:
        packed.write(b"M,N,K\n" + b"1,2,3\n" * 200_000)  # 1.2 MB in 4 kB
    monkeypatch.setattr(records_source, "LARGEST_UNPACKED", 1 << 20)
    told = r"small\.csv: larger than 1 MiB when unpacked\. ROOFLINE_MAX_FILE_MIB=N raises the bound to N MiB$"
    with open_source(path) as source, pytest.raises(RefusedError, match=told):
        list(source.lines())
    monkeypatch.setenv("ROOFLINE_MAX_FILE_MIB", "2")
    with open_source(path) as source:
        assert sum(1 for _ in source.lines()) == 200_001


# triton.testing.perf_report, and Intel's benchmarks


def test_each_provider_of_a_perf_report_is_a_record_over_the_library() -> None:
    library, mine = read("M,N,K,cuBLAS (TFLOPS),Triton (TFLOPS)\n4096.000000,4096.000000,4096.000000,500.000000,625.000000\n")
    assert (library.name, mine.name) == ("cuBLAS M=4096 N=4096 K=4096", "Triton M=4096 N=4096 K=4096")
    flops = 2 * 4096**3
    assert (library.t_s, mine.t_s) == (pytest.approx(flops / 500e12), pytest.approx(flops / 625e12))
    assert (mine.baseline_kind, mine.baseline_t_s) == ("reference", library.t_s)
    assert library.baseline_t_s is None
    assert "no dtype" in mine.no_work
    typed = read("M,N,K,dtype,Triton (ms)\n4096,4096,4096,fp16,1.5\n")[0]
    assert (typed.t_s, built(typed).flops) == (1.5e-3, flops)


def test_times_of_a_perf_report_are_compared_and_a_missing_one_is_refused() -> None:
    mine, eager, missing, other = read("size,Triton (ms),Torch (ms)\n4096,0.006,0.009\n8192,nan,0.009\n")
    assert (mine.t_s, mine.baseline_kind, mine.baseline_t_s) == (pytest.approx(6e-6), "eager", pytest.approx(9e-6))
    assert (eager.baseline_t_s, other.t_s) == (None, pytest.approx(9e-6))
    assert "Triton (ms)" in missing.refused


INTEL = "{},Triton-GB/s,XeTLA-GB/s,Triton-GB/s-min,Triton-TFlops,XeTLA-TFlops,Triton-CV,XeTLA-CV,datetime,run_counter\n"


def test_rates_of_an_intel_gemm_give_its_time_and_bytes() -> None:
    """4096^3 at 100 TFLOP/s takes 1.374 ms, in which 250 GB/s are 343.6 MB."""
    mine, library = read(INTEL.format("B,M,N,K") + "1.0,4096.0,4096.0,4096.0,250,300,200,100,120,0.01,0.01,2025-05-05,1\n")
    t_s = 2 * 4096**3 / 100e12
    assert mine.t_s == pytest.approx(t_s)
    assert built(mine).bytes == pytest.approx(250e9 * t_s)
    assert mine.baseline_t_s == library.t_s == pytest.approx(t_s / 1.2)


def test_rates_without_sizes_give_a_speedup_and_no_time() -> None:
    mine, library = read(INTEL.format("N") + "256.0,400,500,90,0.4,0.5,0.01,0.01,2025-05-05,1\n")
    assert (mine.t_s, mine.speedup, mine.baseline_kind) == (None, pytest.approx(0.8), "reference")
    assert "no time" in library.refused


@pytest.mark.parametrize(
    "header",
    [
        "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Name",
        "Name,Avg (ns),Max (ns)",
        "size,Triton (ms),Torch (GB/s)",
        "size,Triton (ms),kernel",
        "Triton (ms),Torch (ms)",
    ],
)
def test_another_table_with_units_is_not_a_perf_report(header: str) -> None:
    assert adapter(header + "\n") == ""


# A table of claims


CLAIM = "op,M,N,K,dtype,device,{}\ngemm,4096,4096,4096,bf16,MI300X,{}\n"
#: Of that GEMM: 2 M N K, and A + B + C at two bytes.
CLAIM_FLOPS, CLAIM_BYTES = 2 * 4096**3, 3 * 4096**2 * 2


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        ("us", "250"),
        ("ms", "0.25"),
        ("ns", "250000"),
        ("time_us", "250"),
        ("latency_ms", "0.25"),
        ("Duration (us)", "250"),
        ("runtime [ms]", "0.25"),
        ("median_us", "250"),
        ("gpu time us", "250"),
        ("time_s", "2.5e-4"),
    ],
)
def test_a_claims_time_is_read_in_the_usual_spellings(column: str, cell: str) -> None:
    record = one(CLAIM.format(column, cell))
    assert record.t_s == pytest.approx(250e-6)
    assert (record.device, record.clock, record.cache) == ("MI300X", "unknown", "unknown")
    assert (built(record).flops, built(record).bytes) == (CLAIM_FLOPS, CLAIM_BYTES)


def test_a_column_without_a_unit_takes_it_from_its_cells() -> None:
    good, bare, empty = read("op,M,N,K,dtype,time\n" + "".join(f"gemm,8,8,8,bf16,{cell}\n" for cell in ("0.25 ms", "250", "")))
    assert good.t_s == pytest.approx(250e-6)
    assert "time_us" in bare.refused
    assert "time is empty" in empty.refused
    assert one("op,M,N,K,dtype,time,time_us\ngemm,8,8,8,bf16,x,250\n").t_s == pytest.approx(250e-6)


def test_comments_above_the_header_are_skipped() -> None:
    record = one("# my results\n\n#second\n" + CLAIM.format("us", "250"))
    assert (record.t_s, record.row) == (pytest.approx(250e-6), "line 5")


@pytest.mark.parametrize(("op", "meant"), [("matmul", "gemm"), ("rms_norm", "rmsnorm"), ("rmsnrom", "rmsnorm")])
def test_another_name_of_an_op_is_suggested(op: str, meant: str) -> None:
    assert f"{meant}?" in one(f"op,rows,cols,dtype,us\n{op},8,8,bf16,9\n").no_work


def test_thousands_of_a_size_are_refused_by_name() -> None:
    assert "separator" in one('op,M,N,K,dtype,us\ngemm,"4,096",8,8,bf16,9\n').refused


def test_a_median_is_taken_before_a_mean_and_two_of_a_kind_are_refused() -> None:
    assert one(CLAIM.format("mean_us,median_us,min_us", "300,250,240")).t_s == pytest.approx(250e-6)
    with pytest.raises(RefusedError, match="us and time_us"):
        read(CLAIM.format("us,time_us", "300,250"))


@pytest.mark.parametrize(
    ("mine", "base", "kind"), [("optimized_us", "baseline_us", "unknown"), ("after_us", "before_us", "previous")]
)
def test_a_table_of_before_and_after_is_read(mine: str, base: str, kind: str) -> None:
    record = one(CLAIM.format(f"{base},{mine}", "500,250"))
    assert (record.t_s, record.baseline_t_s) == (pytest.approx(250e-6), pytest.approx(500e-6))
    assert record.baseline_kind == kind


@pytest.mark.parametrize("column", ["gpu", "device_name", "Hardware"])
def test_a_claims_device_has_several_names(column: str) -> None:
    assert one(f"op,rows,cols,dtype,{column},us\nsoftmax,8,8,bf16,H100 SXM,9\n").device == "H100 SXM"


@pytest.mark.parametrize("cell", ["4096x512x1024", "(4096, 512, 1024)", "[4096; 512; 1024]", "4096 512 1024"])
def test_a_shape_in_one_column_is_that_of_a_gemm(cell: str) -> None:
    work = one(f'op,shape,dtype,us\ngemm,"{cell}",bf16,9\n').work
    assert work is not None
    assert (work["M"], work["N"], work["K"]) == (4096, 512, 1024)


def test_a_shape_that_does_not_fit_the_op_is_refused() -> None:
    refused = one("op,shape,dtype,us\ngemm,4096x512,bf16,9\n").refused
    assert "4096x512" in refused
    assert "M, N, K" in refused


def test_sizes_of_a_convolution_are_lists_in_a_cell() -> None:
    head = "op,batch,in_channels,out_channels,input,kernel,padding,dtype,us\n"
    record = one(head + 'conv2d,8,64,128,56x56,"[3, 3]",1,bf16,9\n')
    # Padding keeps 56 x 56 outputs; 3 x 3 taps over 64 channels, 2 FLOPs a multiply-add.
    assert built(record).flops == 2 * 8 * 128 * 56 * 56 * 64 * 9


def test_a_misspelled_parameter_is_refused_with_its_name() -> None:
    refused = one("op,rows,cols,residuals,dtype,us\nrmsnorm,8,8,true,bf16,9\n").refused
    assert "residuals" in refused
    assert "residual?" in refused


def test_columns_with_no_meaning_here_are_allowed() -> None:
    assert one("op,rows,cols,dtype,us,commit,date\nsoftmax,8,8,bf16,9,abc,today\n").refused == ""


@pytest.mark.parametrize(
    ("column", "kind"),
    [("baseline_us", "unknown"), ("previous_us", "previous"), ("reference_ms", "reference"), ("eager_us", "eager")],
)
def test_a_claims_baseline_has_the_kind_of_its_column(column: str, kind: str) -> None:
    record = one(CLAIM.format(f"us,{column}", "250,500"))
    assert record.baseline_kind == kind
    assert record.baseline_t_s == pytest.approx(500e-6 if column.endswith("us") else 0.5)


def test_a_column_names_the_kind_of_the_baseline() -> None:
    assert one(CLAIM.format("us,baseline_us,baseline_kind", "250,500,previous")).baseline_kind == "previous"
    assert "baseline_kind" in one(CLAIM.format("us,baseline_us,baseline_kind", "250,500,mine")).refused


def test_a_printed_speedup_is_a_claim_where_both_times_are_there() -> None:
    record = one(CLAIM.format("us,baseline_us,speedup", "250,500,2.5x"))
    assert [(claim.axis, claim.claimed) for claim in record.claims] == [("speedup", 2.5)]
    assert one(CLAIM.format("us,speedup", "250,2.5x")).speedup == 2.5


def test_rates_of_a_claim_are_claims() -> None:
    record = one(CLAIM.format("us,GB/s,achieved_tflops", "250,402.65,549.8"))
    assert [claim.axis for claim in record.claims] == ["memory", "compute"]
    assert finding_of(record, "memory") is None
    assert finding_of(record, "compute") is None


def test_a_time_and_a_bandwidth_alone_give_the_bytes() -> None:
    record = one("kernel_name,time_us,GB/s\nmine,100,2000\n")
    assert built(record).bytes == pytest.approx(2000e9 * 100e-6)
    assert any("times the time" in text for text in record.notes)


def test_totals_stand_for_an_op_without_a_model() -> None:
    record = one("op,bytes,flops,dtype,us\nmy_fused_op,1000000,2000000,bf16,9\n")
    assert (built(record).bytes, built(record).flops) == (1e6, 2e6)


def test_a_row_without_an_op_says_what_is_missing() -> None:
    record = one("shape,us,GB/s\n4096x4096x4096,250,\n")
    assert record.work is None
    assert "op" in record.no_work


@pytest.mark.parametrize("op", sorted(OPS))
def test_a_template_has_all_that_an_op_needs(op: str) -> None:
    header = template(op)
    dims = int(op[4]) if op.startswith("conv") else 1
    cells = {
        "name": "x",
        "op": op,
        "dtype": "bf16",
        "out_dtype": "fp8",
        "us": "9",
        "algorithm": "adam",
        "input": "x".join("8" * dims),
    }
    cells.update(kernel="x".join("3" * dims), **dict.fromkeys(("device", "baseline_us", "speedup", "GB/s", "TFLOPS"), ""))
    assert adapter(header + "\n") == "table of claims"
    assert built(one(f"{header}\n{','.join(cells.get(name, '4') for name in header.split(','))}\n")).bytes > 0


def test_a_template_of_an_unknown_op_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ValueError, match="Did you mean gemm"):
        template("matmul")
    with pytest.raises(ValueError, match="gemm"):
        template("gem")
