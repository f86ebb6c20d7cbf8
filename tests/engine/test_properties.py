"""Properties that hold for every input, valid or not."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roofline_engine import files, inputs
from roofline_engine.analyze import Sources, analyze, select_head
from roofline_engine.fields import CLOSED_SETS, FIELDS, Entry
from roofline_engine.ops import work
from roofline_engine.ops.matmul import experts_hit, experts_hit_distinct
from roofline_engine.report import markdown
from roofline_engine.roofline import HEAD_MAX, HEAD_PCT, point
from roofline_engine.validate import validate

ANY_TEXT = st.text(max_size=12)
ANY_NUMBER = st.one_of(
    st.integers(-(10**25), 10**25), st.floats(), st.sampled_from([0, 1, 64, 10**400, -1, 1e-310, 1e308, math.nan, math.inf])
)
ANY_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), ANY_NUMBER, ANY_TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(ANY_TEXT, inner, max_size=4)),
    max_leaves=12,
)


SIZE = st.one_of(st.integers(1, 10**5), st.sampled_from([64, 128, 256, 4096]))
DTYPE = st.sampled_from(["bf16", "fp8", "torch.float16", "mxfp4", "int64", "float99", "fp32"])
NAME = st.sampled_from(
    ["gemm_kernel", "fused_moe_kernel", "paged_attention", "rmsnorm", "nccl", "k\x1b[2J", "main_kernel", "moe2_x", "softmax"]
)
T_MS = st.floats(1e-3, 10)


def optional(**known: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=known)


ROW = st.fixed_dictionaries(
    {"name": NAME, "pct_gpu_time": st.floats(0, 100), "avg_us": st.floats(1, 1e4)},
    optional={
        "short_name": NAME,
        "calls": st.integers(0, 10**6),
        "base_latency_ms": st.one_of(T_MS, st.dictionaries(st.sampled_from(["decode", "prefill"]), T_MS, max_size=2)),
        "launches_per_step": st.integers(1, 200),
        "editable": st.booleans(),
        "classification": st.sampled_from(["moe", "gemm", "attention", "norm", "comm", "elementwise"]),
        "shapes": st.lists(st.lists(SIZE, max_size=3), max_size=3),
        "dtypes": st.lists(DTYPE, max_size=3),
        "est_shape": st.one_of(st.just("M=64,N=64,K=64,dtype=bf16"), optional(M=SIZE, N=SIZE, K=SIZE, dtype=DTYPE)),
    },
)
OTHER_ROW = st.fixed_dictionaries({"kernel": NAME, "us": st.floats(0, 1e6), "calls": st.integers(0, 10**4)})
TOPN = st.one_of(
    st.fixed_dictionaries(
        {"top_kernels": st.one_of(st.lists(ROW, min_size=1, unique_by=lambda row: row["name"]), st.lists(ROW, max_size=12))},
        optional={"serving": optional(n_decode_steps=st.integers(0, 9999), n_prefill_steps=st.integers(0, 99))},
    ),
    st.fixed_dictionaries({"kernels": st.lists(OTHER_ROW, min_size=1, max_size=6)}, optional={"total_us": st.floats(1, 1e9)}),
)
ENV = optional(
    gfx=st.sampled_from(["gfx950", "gfx950", "gfx942", "gfx1201", "sm_90", "gfx999", "H200"]),
    device_name=st.sampled_from(
        ["AMD Instinct MI300X", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "toaster", "AMD Instinct MI250X/MI250", "NVIDIA H200"]
    ),
    cu_count=st.integers(1, 400),
    memory_bytes=st.floats(1e9, 1e12),
    clock_khz=st.floats(1e5, 4e6),
    memory_clock_khz=st.floats(1e5, 4e6),
    memory_bus_bits=st.sampled_from([256, 4096, 8192]),
    model_dtype=DTYPE,
    tp=st.integers(1, 9),
    workload=optional(isl=st.integers(1, 9999), osl=st.integers(0, 9999), conc=st.integers(1, 999)),
)
CONFIG = st.fixed_dictionaries(
    {"hidden_size": SIZE},
    optional={
        "num_hidden_layers": st.integers(1, 99),
        "num_attention_heads": st.integers(1, 128),
        "num_key_value_heads": st.integers(1, 64),
        "head_dim": SIZE,
        "num_experts": st.integers(1, 512),
        "num_experts_per_tok": st.integers(1, 16),
        "moe_intermediate_size": SIZE,
        "torch_dtype": DTYPE,
        "layer_types": st.lists(st.sampled_from(["full_attention", "linear_attention"]), max_size=4),
    },
)
USUAL_DTYPE = st.sampled_from(["bf16", "fp8", "fp32"])
CASE = st.one_of(
    st.fixed_dictionaries(
        {"op": st.just("gemm"), "M": SIZE, "N": SIZE, "K": SIZE, "dtype": USUAL_DTYPE},
        optional={"calls": st.floats(1, 99), "launches": st.integers(1, 9), "out_dtype": DTYPE, "weight_dtype": DTYPE},
    ),
    st.fixed_dictionaries(
        {
            "op": st.just("moe"),
            "tokens": SIZE,
            "hidden": SIZE,
            "inter": SIZE,
            "experts": st.integers(8, 512),
            "top_k": st.integers(1, 8),
        }
        | {"dtype": USUAL_DTYPE},
        optional={"stage": st.sampled_from([1, 2, "both"]), "streams_all_experts": st.booleans()},
    ),
    st.fixed_dictionaries(
        {"op": st.just("attn_decode"), "batch": SIZE, "n_q_heads": st.just(32), "n_kv_heads": st.sampled_from([1, 4, 32])}
        | {"head_dim": st.just(128), "dtype": USUAL_DTYPE},
        optional={"seq_len": SIZE, "window": SIZE},
    ),
    st.fixed_dictionaries(
        {"op": st.sampled_from(["copy", "softmax", "rmsnorm"]), "rows": SIZE, "cols": SIZE, "dtype": USUAL_DTYPE}
    ),
)
SHAPES = st.dictionaries(NAME, st.lists(CASE, min_size=1, max_size=2), min_size=3, max_size=8)


@st.composite
def mutated(draw: st.DrawFn, valid: st.SearchStrategy[Any]) -> Any:
    """A valid document with up to two places replaced by anything at all."""
    document = draw(valid)
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 1, 2]))):
        holder, key, value = None, None, document
        while isinstance(value, (dict, list)) and value and (holder is None or draw(st.booleans())):
            key = draw(st.sampled_from(list(value) if isinstance(value, dict) else range(len(value))))
            holder, value = value, value[key]
        if holder is None:
            document = draw(ANY_JSON)
        else:
            holder[key] = draw(ANY_JSON)
    return document


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("any")


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(topn=mutated(TOPN), env=mutated(ENV), config=mutated(CONFIG), shapes=mutated(SHAPES))
def test_any_json_gives_a_consistent_report(folder: Path, topn: Any, env: Any, config: Any, shapes: Any) -> None:
    for name, content in (("topn", topn), ("env", env), ("config", config), ("shapes", shapes)):
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    paths = {name: str(folder / f"{name}.json") for name in ("topn", "env", "config", "shapes")}
    report = analyze(Sources(**paths))
    if report is None:
        assert isinstance(env, dict)
        assert env["analysis_skill"] == "none"
        return
    document = json.loads(files.to_json(report.to_dict()))
    assert validate(document) == []
    assert not any("fault of the helper" in line for line in report.skill_errors), report.skill_errors
    assert "\x1b" not in markdown(report)

    # Entries are the head selection, to the row, with the shares as given.
    try:
        rows = inputs.read_topn(inputs.read_json(paths["topn"]), "topn.json").rows
    except ValueError:
        rows = ()
    head = select_head(rows, HEAD_PCT, HEAD_MAX)
    assert [(item["name"], item["pct_gpu_time"]) for item in document["entries"]] == [(row.name, row.pct) for row in head]
    names = sorted(item["name"] for item in document["entries"])
    assert sorted(document["ranking_by_pct"]) == sorted(document["ranking_by_expected_gain"]) == names

    for item in document["entries"]:
        assert list(item) == list(FIELDS)
        for key, allowed in CLOSED_SETS.items():
            assert item[key] is None or item[key] in allowed
        assert (item["headroom_class"] == "unknown") == (item["unknown_reason"] is not None)
        assert item["rankable"] == (item["headroom_class"] != "unknown")
        if item["confidence"] == "low" or item["suspect"] or item["unknown_reason"] == "infeasible":
            assert item["headroom_class"] == "unknown"
        if item["attainable_speedup"] is not None:
            assert item["attainable_speedup"] >= 1
            assert 0 < item["roofline_pct"] <= 1
            low, high = item["roofline_pct_range"]
            assert low <= item["roofline_pct"] <= high
        if not item["modeled"]:
            assert item["bytes_est"] is None


@given(
    nbytes=st.floats(1e3, 1e12),
    flops=st.floats(0, 1e15),
    t_s=st.floats(1e-6, 10),
    bw=st.floats(1e10, 1e13),
    peak=st.floats(1e11, 1e17),
)
def test_the_ratio_does_not_depend_on_the_units(nbytes: float, flops: float, t_s: float, bw: float, peak: float) -> None:
    in_si = point(nbytes, flops, t_s, bw, peak)
    scaled = point(nbytes / 1e9, flops / 1e9, t_s, bw / 1e9, peak / 1e9)  # GB, GFLOP, GB/s, GFLOP/s
    slower = point(nbytes, flops, t_s * 1e3, bw / 1e3, peak / 1e3)  # milliseconds
    assert in_si.raw is not None
    for other in (scaled, slower):
        assert other.raw == pytest.approx(in_si.raw)


@given(experts=st.integers(1, 4096), tokens=st.integers(1, 100_000), top_k=st.integers(1, 64))
def test_experts_hit_is_bounded(experts: int, tokens: int, top_k: int) -> None:
    """vLLM#54228, AMD-Ecosystem/llama.cpp#50: min(M k, E) is a bound; as the figure it passed 100 % of the bandwidth."""
    top_k = min(top_k, experts)
    bound = min(tokens * top_k, experts) * (1 + 1e-12)
    replaced, distinct = experts_hit(experts, tokens * top_k), experts_hit_distinct(experts, tokens, top_k)
    assert 0 < replaced <= bound
    assert replaced <= distinct * (1 + 1e-9)
    assert distinct <= bound
    assert distinct >= top_k * (1 - 1e-12)


@given(m=st.integers(1, 4096), n=st.integers(1, 4096), k=st.integers(1, 4096), batch=st.integers(1, 64))
def test_a_batch_is_the_sum_of_its_parts(m: int, n: int, k: int, batch: int) -> None:
    one, all_of_them = (work("gemm", M=m, N=n, K=k, batch=count, dtype="bf16") for count in (1, batch))
    assert all_of_them.flops == batch * one.flops
    assert all_of_them.bytes == batch * one.bytes


@given(document=ANY_JSON)
def test_validate_names_problems_and_never_raises(document: Any) -> None:
    assert validate(document)


@given(entry=st.dictionaries(st.sampled_from(list(FIELDS)), ANY_JSON), peaks=ANY_JSON, rankings=ANY_JSON)
def test_validate_reads_any_entry(entry: Any, peaks: Any, rankings: Any) -> None:
    document = {"skill": "roofline", "peaks": peaks, "entries": [entry], "ranking_by_pct": rankings}
    assert all(isinstance(line, str) for line in validate(document))


def test_every_field_of_an_entry_has_one_definition() -> None:
    assert list(FIELDS) == [*Entry._fields, "note_codes"]
    assert all(form.doc for form in FIELDS.values())
