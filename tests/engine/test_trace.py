"""Traces of the torch profiler: kernels tied to operations, their work, where the time goes, and what has no verdict."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from roofline_engine.calls.recorded import OpFacts, model
from roofline_engine.profiles import find_reader
from roofline_engine.profiles.form import Profile
from roofline_engine.profiles.timeline import COMMUNICATION, COMPUTE, COPY, merge_intervals
from support.tool import ROOT, run_tool
from support.traces import H100, MI300X, TraceBuilder, dense

BF16 = "c10::BFloat16"


def analyze(path: Path, *options: str) -> dict[str, Any]:
    done = run_tool("analyze", path, "--json", "--out", path.parent / "out", *options)
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert isinstance(document, dict)
    return document


def read(path: Path) -> Profile:
    reader = find_reader(str(path))
    assert reader is not None
    return reader.read(str(path))


def facts(name: str, *inputs: Any, strides: list[Any] | None = None) -> OpFacts:
    """Return an operation as recorded: a tensor as (shape, dtype), a list of tensors as a list, anything else as its text."""
    shapes, dtypes, steps, concrete = [], [], [], []
    for at, item in enumerate(inputs):
        stride = strides[at] if strides else None
        if isinstance(item, list):
            shapes.append(tuple(tuple(shape) for shape, _ in item))
            steps.append(tuple(tuple(dense(shape)) for shape, _ in item))
        elif isinstance(item, tuple):
            shapes.append(tuple(item[0]))
            steps.append(tuple(stride or dense(item[0])))
        else:
            shapes.append(())
            steps.append(())
        kind = "Scalar" if item != "" else ""
        dtypes.append("TensorList" if isinstance(item, list) else item[1] if isinstance(item, tuple) else kind)
        concrete.append("" if isinstance(item, (list, tuple)) else str(item))
    return OpFacts(name, tuple(shapes), tuple(dtypes), tuple(steps), tuple(concrete))


def case(name: str, *inputs: Any, kernels: tuple[str, ...] = (), strides: list[Any] | None = None) -> dict[str, Any]:
    found = model(facts(name, *inputs, strides=strides), kernels)
    assert found.case is not None, found.reason
    return dict(found.case)


# Kernels, operations and their links.


@pytest.mark.parametrize("link", ["external", "correlation"])
@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
@pytest.mark.parametrize("indent", [None, 2])
def test_a_kernel_has_the_shapes_of_the_operation_that_launched_it(
    link: str, suffix: str, indent: int | None, tmp_path: Path
) -> None:
    """A GEMM of 4096 x 4096 x 4096 in bf16 is 2 x 4096^3 FLOPs; in 205 us 670 TFLOP/s, of 989.4 on an H100."""
    trace = TraceBuilder()
    for dur in (205.0, 203.0, 300.0):
        trace.op("aten::mm", [((4096, 4096), BF16), ((4096, 4096), BF16)], [("gemm_kernel", dur)], link=link)
    report = analyze(trace.write(tmp_path / f"trace{suffix}", indent=indent))
    (entry,) = report["entries"]
    assert report["peaks"]["product"] == "h100-sxm"
    assert (entry["framework_op"], entry["calls"], entry["stage"]) == ("aten::mm", 3, "B")
    assert entry["t_ms"] == pytest.approx(0.205)  # the median: one call was disturbed
    assert entry["roofline_pct"] == pytest.approx(2 * 4096**3 / 205e-6 / 989.4e12, rel=1e-3)
    assert entry["regime"] == "unknown"


def test_one_kernel_name_with_two_shapes_is_two_rows_with_their_own_times(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for rows, dur in ((4096, 205.0), (1024, 60.0), (4096, 207.0)):
        trace.op("aten::mm", [((rows, 4096), BF16), ((4096, 4096), BF16)], [("gemm_kernel", dur)])
    entries = analyze(trace.write(tmp_path / "trace.json"))["entries"]
    assert [(entry["name"], entry["calls"], entry["t_ms"]) for entry in entries] == [
        ("gemm_kernel", 2, pytest.approx(0.206)),
        ("gemm_kernel", 1, pytest.approx(0.060)),
    ]
    assert all(entry["headroom_class"] != "unknown" for entry in entries)


def test_the_kernels_of_one_call_are_one_unit(tmp_path: Path) -> None:
    """A split-K GEMM with its reduction takes the sum of both times."""
    trace = TraceBuilder()
    shapes = [((256, 131072), BF16), ((131072, 512), BF16)]
    trace.op("aten::mm", shapes, [("Cijk_split", 1084.0), ("Cijk_PostGSU2", 5.0)])
    report = analyze(trace.write(tmp_path / "trace.json"))
    (entry,) = report["entries"]
    assert entry["t_unit_ms"] == pytest.approx(1.089)
    assert entry["flops_est"] == 2 * 256 * 131072 * 512
    assert [kernel["name"] for kernel in report["ops"][0]["kernels"]] == ["Cijk_split", "Cijk_PostGSU2"]


def test_an_operation_without_a_model_gives_its_kernels_to_the_one_around_it(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", [((4096, 4096), BF16), ((4096, 4096), BF16)])
    inner = {"External id": 999}
    trace._event("cpu_op", "mylib::launch", 1_000_100.0, 200.0, inner, pid=1, tid=1)
    trace.kernel("gemm_kernel", 205.0, {"External id": 999, "correlation": 5, "device": 0, "stream": 7})
    trace._event("cuda_runtime", "cudaLaunchKernel", 1_000_150.0, 5.0, {"correlation": 5}, pid=1, tid=1)
    (row,) = analyze(trace.write(tmp_path / "trace.json"))["ops"]
    assert row["aten"] == "aten::mm"


def test_by_op_lists_every_operation_with_its_spread(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for dur in (10.0, 20.0, 60.0):
        trace.op("aten::add", [((1024, 1024), "float"), ((1024, 1024), "float"), "1"], [("add_kernel", dur)])
    path = trace.write(tmp_path / "trace.json")
    (row,) = analyze(path)["ops"]
    assert row["t_us"] == {"mean": 30.0, "median": 20.0, "min": 10.0, "max": 60.0, "total": 90.0}
    assert (row["bytes_est"], row["flops_est"]) == (3 * 4 * 2**20, 2**20)
    assert row["shape"] == [[1024, 1024], [1024, 1024], []]
    shown = run_tool("analyze", path, "--by", "op", "--out", tmp_path / "out").out
    assert "`aten::add`" in shown
    assert "1024x1024, 1024x1024 fp32" in shown


def test_the_table_by_operation_is_cut_to_the_terminal(tmp_path: Path) -> None:
    from roofline_engine.analyze import Sources
    from roofline_engine.analyze import analyze as analyze_run
    from roofline_engine.report import by_op

    report = analyze_run(Sources(str(ROOT / "examples" / "trace" / "trace.json")))
    assert report is not None
    widest = {width: max(map(len, by_op(report, width).partition("## Operations")[2].splitlines())) for width in (None, 170)}
    assert widest[None] > 170
    assert widest[170] <= 170
    assert "fused_a" in by_op(report, 170)


def test_profile_writes_a_run_that_analyzes_to_the_same_verdicts(tmp_path: Path) -> None:
    path = ROOT / "examples" / "trace" / "trace.json"
    done = run_tool("profile", path, "--out", tmp_path / "work")
    assert done.code == 0, done.err
    fields = ("pct_gpu_time", "t_ms", "roofline_pct", "headroom_class", "unknown_reason")
    first, second = (
        [
            [entry[field] for field in fields]
            for entry in json.loads(run_tool("analyze", source, "--json", "--out", out).out)["entries"]
        ]
        for source, out in ((path, tmp_path / "out"), (tmp_path / "work", tmp_path / "out2"))
    )
    assert first == second
    assert any(row[3] == "moderate" for row in first)


def test_a_kernel_of_a_graph_takes_the_shapes_of_the_same_kernel_and_grid(tmp_path: Path) -> None:
    trace = TraceBuilder()
    shapes = [((4096, 4096), BF16), ((4096, 4096), BF16)]
    trace.op("aten::mm", shapes, [("gemm_kernel", 205.0)], grid=(512, 1, 1))
    trace._event("cuda_runtime", "cudaGraphLaunch", 1_002_000.0, 9.0, {"correlation": 77}, pid=1, tid=1)
    for grid in (512, 8):
        args = {"correlation": 77, "device": 0, "stream": 7, "grid": [grid, 1, 1], "block": [128, 1, 1]}
        trace.kernel("gemm_kernel", 206.0, args)
    report = analyze(trace.write(tmp_path / "trace.json"))
    by_op = {(row["aten"], row["calls"], row["headroom_class"]) for row in report["ops"]}
    assert by_op == {("aten::mm", 1, "moderate"), (None, 1, "unknown")}  # only the first grid is known
    assert len([row for row in report["ops"] if row["aten"] == "aten::mm"]) == 2  # what ran eagerly, and what borrows
    assert report["coverage"]["reasons_pct"] == {"graph_replay": pytest.approx(100 * 206 / 617)}


def test_a_replayed_graph_takes_its_shapes_from_the_trace_of_its_capture(tmp_path: Path) -> None:
    """Two products of one kernel are captured in turn; two replays launch them again in that order, with a reduction."""
    capture, replay = TraceBuilder(), TraceBuilder()
    capture._event("cuda_runtime", "hipGraphInstantiate", 1.0, 1.0, {}, pid=1, tid=1)
    for number, rows in enumerate((4096, 1024)):
        capture.op("aten::mm", [((rows, 4096), BF16), ((4096, 4096), BF16)])
        for at, kernel in enumerate(("Cijk_gemm", "Cijk_PostGSU")):
            args = {"correlation": 10 * number + at, "External id": capture._id, "kernel": kernel}
            capture._event("cuda_runtime", "hipModuleLaunchKernel", 1e6 + 1000 * number + at, 2.0, args, pid=1, tid=1)
    for graph in (0, 1):
        replay._event("cuda_runtime", "hipGraphLaunch", 1e6 + graph, 9.0, {"correlation": 70 + graph}, pid=1, tid=1)
        for kernel, dur in (("Cijk_gemm", 200.0), ("Cijk_PostGSU", 5.0), ("Cijk_gemm", 60.0), ("Cijk_PostGSU", 4.0)):
            replay.kernel(kernel, dur, {"correlation": 70 + graph, "device": 0, "stream": 0})
        replay.kernel("other", 1.0, {"correlation": 70 + graph, "device": 0, "stream": 0})
    path, beside = replay.write(tmp_path / "replay.json"), capture.write(tmp_path / "capture.json")
    rows = analyze(path, "--shapes-from", str(beside))["ops"]
    assert [(row["aten"], row["calls"], row["t_us"]["median"], row["flops_est"]) for row in rows] == [
        ("aten::mm", 2, 205.0, 2 * 4096**3),
        ("aten::mm", 2, 64.0, 2 * 1024 * 4096**2),
        (None, 2, 1.0, None),
    ]
    assert "capture" in rows[0]["notes"]


@pytest.mark.parametrize(
    ("name", "regime"),
    [
        ("execute_2_context_2(sq8sk8sqsq32sqsk32)_generation_0(sq0sk0sqsq0sqsk0)", "prefill"),
        ("execute_2_context_0(sq0sk0sqsq0sqsk0)_generation_2(sq2sk9sqsq2sqsk9)", "decode"),
        ("execute_3_context_1(sq4sk4sqsq16sqsk16)_generation_2(sq2sk9sqsq2sqsk9)", "unknown"),
        ("step[DECODE bs=15]", "decode"),
        ("forward", "unknown"),
    ],
)
def test_the_regime_is_what_a_range_says(name: str, regime: str, tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.annotation(name, 999_000.0, 1_900_000.0)
    trace.op("aten::mm", [((4096, 4096), BF16), ((4096, 4096), BF16)], [("gemm_kernel", 205.0)])
    assert analyze(trace.write(tmp_path / "trace.json"))["entries"][0]["regime"] == regime


def test_paged_attention_is_counted_by_the_sums_in_the_range(tmp_path: Path) -> None:
    """Two sequences of 512 queries and keys: 2 x 512 x 513 / 2 pairs under the causal mask, 4 FLOPs x head_dim x heads each."""
    trace = TraceBuilder()
    trace.annotation("execute_1024_context_2(sq1024sk1024sqsq524288sqsk524288)_generation_0(sq0sk0sqsq0sqsk0)", 9e5, 2e6)
    q, kv = ((1024, 32, 128), BF16), ((1024, 8, 128), BF16)
    trace.op("vllm::unified_attention_with_output", [q, kv, kv, q], [("unified_attention_2d", 90.0)])
    (row,) = analyze(trace.write(tmp_path / "trace.json"))["ops"]
    assert row["flops_est"] == 4 * 128 * 32 * (512 * 513)
    assert row["bytes_est"] == 2 * 1024 * (2 * 32 + 2 * 8) * 128


# The work of operations. Values are those of the formula in a comment, worked by hand.


def test_strided_and_broadcast_operands_count_what_they_cover() -> None:
    """An expanded row is read once; a transposed copy moves each element twice."""
    row = case("aten::add", ((64, 1024), "float"), ((64, 1024), "float"), "1", strides=[[1024, 1], [0, 1], []])
    assert row["bytes"] == 4 * (64 * 1024 + 1024 + 64 * 1024)
    column = case("aten::mul", ((16, 8), "float"), ((16, 1), "float"))
    assert column["bytes"] == 4 * (16 * 8 + 16 + 16 * 8)
    moved = case("aten::copy_", ((64, 32), BF16), ((64, 32), BF16), "False", strides=[[32, 1], [1, 64], []])
    assert (moved["op"], moved["rows"] * moved["cols"]) == ("transpose", 64 * 32)


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (("aten::addmm", ((768,), BF16), ((788, 64), BF16), ((64, 768), BF16), "1", "1"),
         {"M": 788, "N": 768, "K": 64, "addend": 768}),
        (("aten::bmm", ((8, 16, 32), "float"), ((8, 32, 64), "float")), {"batch": 8, "M": 16, "N": 64, "K": 32}),
        (("aten::linear", ((4, 7, 64), BF16), ((256, 64), BF16), ""), {"M": 28, "N": 256, "K": 64}),
        (
            ("aten::cudnn_convolution", ((4, 3, 224, 224), BF16), ((768, 3, 16, 16), BF16), "[0, 0]", "[16, 16]", "[1, 1]",
             "1"),
            {"op": "conv2d", "batch": 4, "stride": (16, 16), "padding": (0, 0), "out_channels": 768},
        ),
        (
            ("aten::_scaled_mm", ((64, 512), "c10::Float8_e4m3fn"), ((512, 128), "c10::Float8_e4m3fn"), ((), "float"),
             ((), "float"), "", "", "15", "True"),
            {"M": 64, "N": 128, "K": 512, "dtype": "c10::Float8_e4m3fn", "out_dtype": "bf16"},
        ),
        (
            ("aten::_flash_attention_forward", ((2, 128, 8, 64), BF16), ((2, 128, 2, 64), BF16), ((2, 128, 2, 64), BF16), "",
             "", "128", "128", "0.", "True", "False", "0.125"),
            {"op": "attn_prefill", "batch": 2, "n_q_heads": 8, "n_kv_heads": 2, "seq_q": 128, "causal": True},
        ),
        (("aten::mean", ((16, 559, 1024), "float"), "[-1]", "True", ""), {"op": "reduce", "rows": 16 * 559, "cols": 1024}),
        (("aten::_softmax", ((8, 128, 512), BF16), "-1", "False"), {"op": "softmax", "rows": 1024, "cols": 512}),
        (("aten::native_layer_norm", ((4, 197, 768), BF16), "[768]", ((768,), BF16), ((768,), BF16), "1e-12"),
         {"op": "layernorm", "rows": 788, "cols": 768, "weights": 2}),
        (("sgl_kernel::silu_and_mul", ((8, 64), BF16), ((8, 128), BF16)), {"op": "elementwise", "numel": 512, "inputs": 2}),
        (("_C::fused_add_rms_norm", ((8, 64), BF16), ((8, 64), BF16), ((64,), BF16), "1e-5"),
         {"op": "rmsnorm", "rows": 8, "cols": 64, "residual": True, "weights": 1}),
        (("_C::rotary_embedding", ((8,), "long int"), ((8, 256), BF16), ((8, 64), BF16), "64", ((4096, 64), BF16), "True"),
         {"op": "rope", "tokens": 8, "n_heads": 5, "head_dim": 64}),
        (("_C::cutlass_scaled_mm", ((8, 128), BF16), ((8, 64), "c10::Float8_e4m3fn"), ((64, 128), "c10::Float8_e4m3fn"),
          ((), "float"), ((), "float")), {"op": "gemm", "M": 8, "N": 128, "K": 64, "out_dtype": BF16}),
        (("aiter::gemm_a8w8_blockscale", ((8, 256), "c10::Float8_e4m3fnuz"), ((64, 256), "c10::Float8_e4m3fnuz"),
          ((8, 2), "float"), ((1, 2), "float")), {"M": 8, "N": 64, "K": 256, "out_dtype": "bf16"}),
        (("vllm::outplace_fused_experts", ((16, 4096), BF16), ((64, 22016, 4096), BF16), ((64, 4096, 11008), BF16),
          ((16, 2), "float"), ((16, 2), "int")),
         {"op": "moe", "tokens": 16, "experts": 64, "inter": 11008, "top_k": 2, "gated": True}),
        (("aiter::mha_fwd", ((2, 512, 8, 128), BF16), ((2, 512, 8, 128), BF16), ((2, 512, 8, 128), BF16), "0.0", "0.1", "False",
          "-1", "-1"), {"op": "attn_prefill", "causal": False, "seq_q": 512}),
    ],
)  # fmt: skip
def test_an_operation_becomes_a_case_of_the_engine(operation: tuple[Any, ...], expected: dict[str, Any]) -> None:
    found = case(*operation)
    assert {key: found[key] for key in expected} == expected


def test_lists_of_tensors_take_their_dtype_from_the_kernel() -> None:
    """Two tensors of 1000 and 24 fp32 values are read, and both operands' sums written: 3 x 4 x 1024 bytes."""
    tensors = [((1000,), ""), ((24,), "")]
    kernel = ("void multi_tensor_apply_kernel<TensorListMetadata<2>, BinaryOpListAlphaFunctor<float, 2, 2, 0>>",)
    found = case("aten::_foreach_add_", tensors, tensors, "1", kernels=kernel)
    assert found["numel"] == 1024
    assert found["bytes"] == 3 * 4 * 1024
    packed = case(
        "aten::cat", [((4, 8), ""), ((4, 8), "")], "1", kernels=("CatArrayBatchedCopy<OpaqueType<2u>, unsigned int>",)
    )
    assert packed["rows"] * packed["cols"] == 64
    assert packed["dtype"] == "bf16"


def test_fp32_products_that_ran_as_tf32_are_judged_as_tf32() -> None:
    shapes = (((64, 64), "float"), ((64, 64), "float"))
    assert case("aten::mm", *shapes, kernels=("cutlass_80_tensorop_s1688gemm_128x128",))["dtype"] == "tf32"
    assert case("aten::mm", *shapes, kernels=("cutlass_80_simt_sgemm_128x32",))["dtype"] == "float"


def test_a_ragged_batch_of_unknown_lengths_has_both_ends_in_its_range() -> None:
    """Two sequences of 300 tokens, none over 200: 150 and 150 have the fewest causal pairs, 200 and 100 the most."""
    q = ((300, 4, 64), BF16)
    lengths = ((3,), "int")
    found = case(
        "flash_attn::_flash_attn_varlen_forward", q, q, q, lengths, lengths, "200", "200", "0.0", "0.1", "True", "-1", "-1"
    )
    pairs = [2 * 150 * 151 / 2, 200 * 201 / 2 + 100 * 101 / 2]
    assert found["flops_range"] == tuple(4 * 4 * 64 * number for number in pairs)
    own = case("aten::_flash_attention_forward", q, q, q, lengths, lengths, "200", "200", "0.", "True", "False", "0.1")
    assert own["flops_range"] == found["flops_range"]


def test_a_generated_kernel_counts_its_arguments_and_has_no_class(tmp_path: Path) -> None:
    """Two operands and a result of 2^20 bf16 values: 6 MiB, of which nothing says that each is moved once."""
    trace = TraceBuilder()
    tensor = ((1024, 1024), BF16)
    trace.op("triton_poi_fused_add_0", [tensor, tensor, tensor, "1048576"], [("triton_poi_fused_add_0", 20.0)])
    (row,) = analyze(trace.write(tmp_path / "trace.json"))["ops"]
    assert (row["bytes_est"], row["headroom_class"], row["unknown_reason"]) == (6 * 2**20, "unknown", "args_only")


def test_rows_that_indices_name_are_a_range() -> None:
    """At least the result is written; at most each of 32 indices reads a row of its own."""
    found = case("aten::embedding", ((1000, 64), BF16), ((32,), "long int"), "-1", "False", "False")
    assert found["least_bytes"] == 32 * 64 * 2
    assert found.get("bytes", 32 * 64 * 4 + 32 * 8) == 32 * 64 * 4 + 32 * 8


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        (("mylib::op", ((8, 8), BF16)), "it has no model"),
        (("aten::mm",), "record_shapes=True"),
        (("aten::mm", ((8, 8), BF16), ""), "do not fit"),
        (("aten::mm", ((8, 8), "Mystery"), ((8, 8), "Mystery")), "unknown dtype"),
        (("vllm::unified_attention", ((8, 4, 64), BF16), ((8, 4, 64), BF16), ((8, 4, 64), BF16)), "the cache are not recorded"),
        (("vllm::fused_experts", ((8, 64), BF16)), "weights of its experts"),
    ],
)
def test_what_has_no_case_says_why(operation: tuple[Any, ...], reason: str) -> None:
    found = model(facts(*operation))
    assert found.case is None
    assert reason in found.reason


# Where the time goes.


def test_the_timeline_counts_overlapping_intervals_once() -> None:
    """Kernels 0-10 and 5-20, communication 15-30, a copy 28-35, and nothing from 35 to 40."""
    intervals = [
        (0.0, 10.0, COMPUTE),
        (5.0, 20.0, COMPUTE),
        (15.0, 30.0, COMMUNICATION),
        (28.0, 35.0, COPY),
        (40.0, 50.0, COMPUTE),
    ]
    timeline = merge_intervals("0", sorted(intervals))
    assert timeline is not None
    assert (timeline.span_us, timeline.busy_us, timeline.idle_us) == (50.0, 45.0, 5.0)
    assert (timeline.compute_us, timeline.exposed_communication_us, timeline.exposed_copy_us) == (30.0, 10.0, 5.0)


def test_a_long_collective_hides_no_kernel(tmp_path: Path) -> None:
    """The GEMM has 4 % of all time, which is under the head's 5 %, and all of the time without communication."""
    trace = TraceBuilder()
    trace.op("aten::mm", [((4096, 4096), BF16), ((4096, 4096), BF16)], [("gemm_kernel", 205.0)])
    trace.kernel("ncclDevKernel_AllReduce_Sum_bf16", 4920.0, {"device": 0, "stream": 20})
    report = analyze(trace.write(tmp_path / "trace.json"))
    assert [entry["op"] for entry in report["entries"]] == ["collective", "gemm"]
    assert report["entries"][1]["pct_gpu_time"] == pytest.approx(4.0)
    assert report["coverage"]["reasons_pct"] == {"collective": pytest.approx(96.0)}


@pytest.mark.parametrize(("dur", "reason"), [(12.0, None), (3000.0, "infeasible")])
def test_a_short_launch_may_do_next_to_nothing_and_a_long_one_not(dur: float, reason: str | None, tmp_path: Path) -> None:
    """A sum of 640 values moves 2.6 kB: 0.06 of a thousandth of the roof in 12 us, which the launch takes whatever it does."""
    trace = TraceBuilder()
    trace.op("aten::sum", [((640,), "float"), ""], [("reduce_kernel", dur)])
    (entry,) = analyze(trace.write(tmp_path / "trace.json"))["entries"]
    assert (entry["unknown_reason"], entry["suspect"]) == (reason, reason is not None)
    assert run_tool("validate", tmp_path / "out" / "profile_roofline.json").code == 0


def test_five_operations_without_a_model_are_named_with_their_shares(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for at in range(7):
        trace.op(f"mylib::op{at}", [((8, 8), BF16)], [(f"kernel{at}", 10.0 + at)])
    coverage = analyze(trace.write(tmp_path / "trace.json"))["coverage"]
    assert coverage["no_model_pct"] == pytest.approx(100.0)
    assert [item["name"] for item in coverage["no_model"]] == [f"mylib::op{at}" for at in (6, 5, 4, 3, 2)]


# Several ranks.


def test_ranks_are_one_table_with_the_straggler_named(tmp_path: Path) -> None:
    paths = []
    for rank, dur in enumerate((200.0, 205.0, 260.0)):
        trace = TraceBuilder(H100, distributedInfo={"rank": rank})
        trace.op("aten::mm", [((4096, 4096), BF16), ((4096, 4096), BF16)], [("gemm_kernel", dur)])
        paths.append(trace.write(tmp_path / f"rank{rank}.json"))
    done = run_tool("analyze", *paths, "--json", "--out", tmp_path / "out")
    report = json.loads(done.out)
    assert report["stragglers"] == ["2"]
    (row,) = report["rank_ops"]
    assert row["total_us"] == {
        "mean": pytest.approx(665 / 3),
        "slowest": 260.0,
        "slowest_rank": "2",
        "fastest": 200.0,
        "fastest_rank": "0",
    }
    assert report["entries"][0]["t_ms"] == pytest.approx(0.260)  # the verdicts are of the slowest rank


def test_a_rank_that_cannot_be_read_is_named_and_the_others_are_compared(tmp_path: Path) -> None:
    (tmp_path / "rank0.json").write_text('{"traceEvents": []}')
    paths = [tmp_path / "rank0.json"]
    for rank in (1, 2):
        trace = TraceBuilder(H100, distributedInfo={"rank": rank})
        trace.op("aten::mm", [((4096, 4096), BF16), ((4096, 4096), BF16)], [("gemm_kernel", 200.0 + rank)])
        paths.append(trace.write(tmp_path / f"rank{rank}.json"))
    done = run_tool("analyze", *paths, "--json", "--out", tmp_path / "out")
    assert [one["name"] for one in json.loads(done.out)["ranks"]] == ["1", "2"]
    assert "rank0.json: no GPU kernel" in done.err
    topn = tmp_path / "profile_topN.json"
    topn.write_text('{"top_kernels": []}')
    refused = run_tool("analyze", paths[1], topn)
    assert refused.code == 2
    assert "profile_topN.json: several files are the ranks of one run" in refused.err


def test_an_operation_number_that_two_operations_have_links_nothing(tmp_path: Path) -> None:
    """Two processes in one file number their operations alike: the launch decides."""
    trace = TraceBuilder()
    trace.op("aten::add", [((64, 64), "float"), ((64, 64), "float"), "1"])
    trace.op("aten::mm", [((4096, 4096), BF16), ((4096, 4096), BF16)], [("gemm_kernel", 205.0)])
    for event in trace.events:
        if "External id" in event["args"]:
            event["args"]["External id"] = 1
    assert [row["aten"] for row in analyze(trace.write(tmp_path / "trace.json"))["ops"]] == ["aten::mm"]


# Devices.


def test_rocm_numbers_devices_in_another_way_than_it_lists_them(tmp_path: Path) -> None:
    trace = TraceBuilder({**MI300X, "name": ""})
    trace.kernel("Cijk_gemm", 100.0, {"device": 9, "stream": 0})
    assert analyze(trace.write(tmp_path / "trace.json"))["peaks"]["product"] == "mi300x"


def test_the_device_option_wins_over_the_trace(tmp_path: Path) -> None:
    trace = TraceBuilder(None)
    trace.op("aten::mm", [((4096, 4096), BF16), ((4096, 4096), BF16)], [("gemm_kernel", 205.0)])
    path = trace.write(tmp_path / "trace.json")
    assert analyze(path)["entries"][0]["unknown_reason"] == "unvalidated_peak"
    assert analyze(path, "--device", "mi300x")["peaks"]["product"] == "mi300x"


# Broken and hostile files.


def one_kernel() -> TraceBuilder:
    trace = TraceBuilder()
    trace.op("aten::mm", [((4096, 4096), BF16), ((4096, 4096), BF16)], [("gemm_kernel", 205.0)])
    return trace


def test_a_bare_array_and_keys_after_the_events_are_read(tmp_path: Path) -> None:
    trace = one_kernel()
    (tmp_path / "array.json").write_text(json.dumps(trace.events))
    assert len(read(tmp_path / "array.json").units) == 1
    document = trace.document()
    reversed_keys = {"traceEvents": document.pop("traceEvents"), **document}
    (tmp_path / "after.json").write_text('{"schemaVersion": 1, "deviceProperties": [],' + json.dumps(reversed_keys)[1:])
    assert read(tmp_path / "after.json").device.device_name == "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_ends_early_is_read_to_its_last_event(packed: bool, tmp_path: Path) -> None:
    trace = one_kernel()
    for _ in range(50):
        trace.op("aten::mm", [((4096, 4096), BF16), ((4096, 4096), BF16)], [("gemm_kernel", 205.0)])
    text = json.dumps(trace.document(), indent=2).encode()
    path = tmp_path / ("trace.json.gz" if packed else "trace.json")
    path.write_bytes(gzip.compress(text)[:-20] if packed else text[: len(text) * 2 // 3])
    profile = read(path)
    assert profile.units[0].times.calls > 10
    assert "ends" in profile.problems[0]


def test_durations_that_cannot_be_are_counted(tmp_path: Path) -> None:
    """A negative one, NaN, text that is no number, and a slice that covers the two after it in its queue."""
    trace = TraceBuilder()
    args = {"device": 0, "stream": 7}
    for at in range(6):
        trace.kernel("gemm_kernel", 100.0, args, at=1000.0 + 200 * at)
    trace.kernel("gemm_kernel", -5.0, args, at=100.0)
    trace.kernel("gemm_kernel", float("nan"), args, at=200.0)
    trace.kernel("gemm_kernel", "many", args, at=300.0)
    trace.kernel("gemm_kernel", "100.0", args, at=3000.0)  # a number as text is a number
    trace.kernel("gemm_kernel", 900.0, args, at=1900.0 - 750.0)  # until 2050, over the next four
    profile = read(trace.write(tmp_path / "trace.json"))
    (unit,) = profile.units
    assert unit.times.calls == 8
    assert unit.times.max_us == 100.0  # clipped to the start of the next, 50 us later
    assert [line.partition(": ")[2].split()[0] for line in profile.problems] == ["2", "1", "1", "8"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"traceEvents": []}, "no GPU kernel"),
        ({"schemaVersion": 1, "deviceProperties": []}, "no traceEvents"),
        ({"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 1}]}, "no GPU kernel"),
        ({"traceEvents": [1, None, "x", {"ph": "X", "cat": "kernel"}, {"cat": 5, "ph": "X"}]}, "no GPU kernel"),
    ],
)
def test_a_trace_without_kernels_is_one_clear_line(content: Any, message: str, tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text(json.dumps(content))
    done = run_tool("analyze", tmp_path / "trace.json", "--out", tmp_path / "out")
    assert done.code == 0
    assert message in done.err
    assert "Traceback" not in done.err


def test_a_gzip_that_unpacks_to_no_trace_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    with gzip.open(path, "wb", compresslevel=1) as stream:
        stream.write(b'{"traceEvents": [')
        for _ in range(130):
            stream.write(b" " * (1 << 20))
    reader = find_reader(str(path))
    assert reader is not None
    with pytest.raises(ValueError, match=r"trace.json.gz: .*no trace"):
        reader.read(str(path))


def test_events_spaced_in_several_ways_are_all_read(tmp_path: Path) -> None:
    """A hand-edited file: the separator that the first two events have is not that of the others."""
    trace = one_kernel()
    first = {"ph": "M", "name": "process_name", "args": {"name": "python"}}
    events = ",\n".join(json.dumps(event) for event in [first, first])
    events += ",  " + ", ".join(json.dumps(event, indent=1) for event in trace.events)
    (tmp_path / "trace.json").write_text('{"traceEvents": [' + events + "]}")
    assert read(tmp_path / "trace.json").units[0].times.calls == 1


def test_an_existing_artifact_is_kept_when_a_trace_cannot_be_read(tmp_path: Path) -> None:
    path = one_kernel().write(tmp_path / "trace.json")
    analyze(path)
    kept = (tmp_path / "out" / "profile_roofline.json").read_text()
    path.write_text('{"traceEvents": []}')
    run_tool("analyze", path, "--out", tmp_path / "out")
    assert (tmp_path / "out" / "profile_roofline.json").read_text() == kept


def test_an_artifact_with_argument_traffic_alone_is_consistent(tmp_path: Path) -> None:
    """A generated kernel has no limiter, although its arguments have a share of the bandwidth."""
    trace = TraceBuilder()
    inputs = [((4096, 4096), "float"), ((4096, 4096), "float"), "16777216"]
    trace.op("triton_poi_fused_add_0", inputs, [("triton_poi_fused_add_0", 100.0)])
    report = analyze(trace.write(tmp_path / "trace.json"))
    assert report["entries"][0]["unknown_reason"] == "args_only"
    assert run_tool("validate", tmp_path / "out" / "profile_roofline.json").code == 0
