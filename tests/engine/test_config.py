"""config.json to shapes: layers by kind, widths, quantized weights, and the share of one device.

The configs are small ones with the keys of a family; each expected value is derived next to it.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline_engine.config import guess
from roofline_engine.config.model import ModelConfig
from roofline_engine.config.model import read as read_config
from roofline_engine.inputs import Env, Row
from roofline_engine.kernels import Hint
from roofline_engine.ops import OPS
from support.profiles import MI300X, Run, entry, gemm_row

DENSE: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 1024,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "torch_dtype": "bfloat16",
}
MOE: dict[str, Any] = {**DENSE, "num_experts": 64, "num_experts_per_tok": 4, "moe_intermediate_size": 512}
LOAD = {"isl": 1024, "osl": 1024, "conc": 64}  # a mean context of 1536 in [1024, 2048]


def read(**keys: Any) -> ModelConfig:
    config = read_config({**MOE, **keys})
    assert config is not None
    return config


# The public reports, research group H


def test_h1_lm_polygraph_435_transformers_37515_dims_are_in_the_nested_config() -> None:
    vision = {"hidden_size": 77, "num_attention_heads": 7, "num_hidden_layers": 3}
    for wrapped in (
        {"text_config": MOE, "vision_config": vision},
        {"thinker_config": {"text_config": MOE, "vision_config": vision}},
        {"language_config": MOE},
        {"hidden_size": 77, "llm_config": MOE},
    ):
        config = read_config(wrapped)
        assert config == read(), wrapped
    assert read().hidden == 1024


def test_h2_eole_78_an_explicit_head_dim_is_never_hidden_over_heads() -> None:
    assert read(head_dim=128).head_dim == 128  # Qwen3-30B-A3B: 128 where 2048 / 32 is 64
    assert read().head_dim == 1024 // 16
    wrong = read(head_dim="many")  # and a wrong one is not replaced by a guess
    assert wrong.head_dim is None
    assert wrong.problems == ("config.json: head_dim is 'many', expected a number",)
    uneven = read(num_attention_heads=24)
    assert uneven.head_dim is None
    assert "not a multiple of num_attention_heads 24" in uneven.problems[0]


def test_h3_full_attention_interval_only_some_layers_have_a_kv_cache() -> None:
    config = read(full_attention_interval=4)
    assert config.kinds == {"full": 2, "linear": 6}  # of eight layers the fourth and the eighth
    assert config.attention_layers == 2


def test_h4_gpt_oss_padded_dims_are_named_and_not_counted(run: Run) -> None:
    run.config(**{**MOE, "hidden_size": 2880, "head_dim": 64, "moe_intermediate_size": 2880})
    run.topn(gemm_row("fused_moe_kernel_stage1")).env(**MI300X, model_dtype="mxfp4", workload=LOAD)
    item = run.analyze()["entries"][0]
    hit = 64 * (1 - (1 - 1 / 64) ** (64 * 4))
    assert item["bytes_est"] == pytest.approx(hit * 2 * 2880 * 2880 * 4.25 / 8)
    assert "may pad 2880 to 3072 (+6.7 %): not counted" in item["notes"]  # 3072 = 12 x 256


def test_h5_nas_model_one_layer_is_not_all_layers(run: Run) -> None:
    attention = [{"n_heads_in_group": 8, "no_op": False}, {"n_heads_in_group": None, "no_op": True}]
    blocks = [{"attention": attention[index % 3 == 2], "ffn": {"ffn_mult": 1.0 + index % 2}} for index in range(8)]
    nas = {**DENSE, "num_key_value_heads": None, "intermediate_size": None, "block_configs": blocks}
    config = read_config(nas)
    assert config is not None
    assert (config.attention_layers, config.n_kv_heads, config.problems) == (6, None, ())  # all but layers 2 and 5
    run.config(**nas).topn(gemm_row("paged_attention"), gemm_row("rmsnorm")).env(**MI300X, workload=LOAD)
    artifact = run.analyze()
    assert "block_configs: 8 layers of 4 kinds, 6 with attention" in artifact["degraded"][0]["reason"]
    assert entry(artifact, "rmsnorm")["bytes_est"] == 64 * 1024 * 4 + 1024 * 2  # the hidden size is every layer's


# Groups A and E of the reports, as far as a config decides them


def test_a1_flashinfer_3093_local_experts_are_not_all_experts(run: Run) -> None:
    run.config(**MOE).topn(gemm_row("fused_moe_kernel")).env(**MI300X, ep=8, tp=1, workload=LOAD)
    assert "8 of 64 experts are here, the tokens routed to them are unknown" in run.analyze()["degraded"][0]["reason"]


def test_a2_inference_sim_764_few_tokens_hit_as_many_experts_as_distinct_draws(run: Run) -> None:
    run.config(**{**MOE, "num_experts": 8, "num_experts_per_tok": 2})
    run.topn(gemm_row("fused_moe_kernel_stage2")).env(**MI300X, tp=1, workload={**LOAD, "conc": 3})
    models = {item["model"]: item["bytes"] for item in run.analyze()["entries"][0]["byte_models"]}
    assert models["experts_hit"] == pytest.approx(4.625 * 512 * 1024 * 2)  # 8 (1 - (6/8)^3)


def test_a10_the_kv_dtype_decides_the_bytes_and_an_unknown_one_gives_no_class(run: Run) -> None:
    run.config(**DENSE).topn(gemm_row("paged_attention"))
    sizes = {}
    for name in (None, "auto", "fp8"):
        item = run.env(**MI300X, tp=1, workload=LOAD, kv_cache_dtype=name).analyze()["entries"][0]
        sizes[name] = item["bytes_est"]
        assert item["headroom_class"] == "unknown"
        assert ("assumed: no kv_cache_dtype" in item["notes"]) == (name is None)
    assert sizes["auto"] == sizes[None] == 64 * 1536 * 4 * 64 * 2 * 2
    assert sizes["fp8"] == sizes["auto"] / 2


# Layers by kind


@pytest.mark.parametrize(
    ("keys", "kinds"),
    [
        ({}, {"full": 8}),
        ({"layer_types": ["sliding_attention"] * 6 + ["full_attention"] * 2, "sliding_window": 128}, {"full": 2, "sliding": 6}),
        ({"layer_types": ["chunked_attention", "full_attention"] * 4}, {"chunked": 4, "full": 4}),
        ({"layers_block_type": ["mamba"] * 7 + ["attention"]}, {"mamba": 7, "full": 1}),
        ({"hybrid_override_pattern": "MEM*EME-"}, {"mamba": 3, "moe": 3, "full": 1, "mlp": 1}),
        ({"hybrid_layer_pattern": [0, 1, 1, 1, 0, 1, 1, 1], "sliding_window": 128}, {"full": 2, "sliding": 6}),
        ({"attn_type_list": [0, 0, 0, 1] * 2}, {"linear": 6, "full": 2}),
        ({"attn_layer_period": 4, "attn_layer_offset": 2}, {"mamba": 6, "full": 2}),
        ({"linear_attn_config": {"full_attn_layers": [4, 8]}}, {"linear": 6, "full": 2}),
        ({"sliding_window": 512, "sliding_window_pattern": 4}, {"sliding": 6, "full": 2}),
        ({"sliding_window": 512, "sliding_window_pattern": "LLLG"}, {"sliding": 6, "full": 2}),
        ({"sliding_window": 512, "model_type": "gemma2"}, {"sliding": 4, "full": 4}),  # transformers: every second is full
        ({"sliding_window": 512, "model_type": "gemma3_text"}, {"sliding": 7, "full": 1}),  # every sixth
        ({"sliding_window": 512, "model_type": "mistral"}, {"sliding": 8}),
        ({"sliding_window": None, "model_type": "mixtral"}, {"full": 8}),
        ({"sliding_window": 512, "model_type": "qwen2", "use_sliding_window": False}, {"full": 8}),
        (
            {"sliding_window": 512, "model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 6},
            {"full": 6, "sliding": 2},
        ),
        ({"model_type": "llama4_text", "attention_chunk_size": 8192}, {"chunked": 6, "full": 2}),  # every fourth has no rope
        (
            {"model_type": "llama4_text", "attention_chunk_size": 8192, "no_rope_layers": [1, 0] * 4},
            {"chunked": 4, "full": 4},
        ),
        ({"sparse_attention_config": {"sparse_attention_freq": [0, 0] + [1] * 6}}, {"full": 2, "sparse": 6}),
        ({"compress_ratios": [128, 4] * 4}, {"compressed": 8}),
        (
            {"num_nextn_predict_layers": 1, "layer_types": ["full_attention"] * 9},
            {"full": 8},
        ),  # the ninth predicts a token more
    ],
)
def test_layers_by_kind(keys: dict[str, Any], kinds: dict[str, int]) -> None:
    config = read(**keys)
    assert config.kinds == kinds
    assert config.problems == ()
    assert config.attention_layers == sum(
        count for kind, count in kinds.items() if kind not in ("mamba", "linear", "moe", "mlp")
    )


@pytest.mark.parametrize(
    ("keys", "count"),
    [
        ({}, 8),
        ({"first_k_dense_replace": 3}, 5),
        ({"first_k_dense_replace": 1, "moe_layer_freq": 2}, 3),  # DeepSeek: from layer 1 on, layers 2, 4, 6
        ({"moe_layer_freq": [0, 0, 0, 1, 1, 1, 1, 1]}, 5),
        ({"decoder_sparse_step": 2, "mlp_only_layers": [7]}, 3),  # Qwen: layers 1, 3, 5, not 7
        ({"interleave_moe_layer_step": 2}, 4),
        ({"moe_layers": [1, 3]}, 2),
        ({"moe_layers_enum": "4,5,6"}, 3),
        ({"mlp_layer_types": ["dense"] * 3 + ["sparse"] * 5}, 5),
        ({"expert_layer_period": 2, "expert_layer_offset": 1}, 4),
        ({"moe_layer_start_index": 1, "moe_layer_end_index": 6, "moe_layer_interval": 1}, 6),
        ({"hybrid_override_pattern": "MEM*EME-"}, 3),
    ],
)
def test_layers_with_experts(keys: dict[str, Any], count: int) -> None:
    assert read(**keys).moe_layers == count


def test_a_dense_model_has_no_experts() -> None:
    config = read_config({**DENSE, "num_experts": 0})
    assert config is not None
    assert (config.experts, config.moe_layers, config.moe_inter, config.problems) == (None, None, None, ())


# Experts and heads


@pytest.mark.parametrize(
    ("keys", "shared", "width"),
    [
        ({}, 0, None),
        ({"n_shared_experts": None}, 0, None),
        ({"n_shared_experts": 2}, 2, 512),  # DeepSeek: of the routed experts' width
        ({"shared_expert_intermediate_size": 2048}, 1, 2048),  # Qwen2-MoE: one MLP
        ({"n_shared_experts": 1, "moe_shared_expert_intermediate_size": 1024}, 1, 1024),  # Nemotron-H
        ({"n_shared_experts": 1, "shared_intermediate_size": 768}, 1, 768),  # MiniMax
        ({"model_type": "llama4_text"}, 1, 512),
    ],
)
def test_shared_experts_and_their_width(keys: dict[str, Any], shared: int, width: int | None) -> None:
    config = read(**keys)
    assert (config.shared_experts, config.shared_inter) == (shared, width)


def test_expert_keys_of_each_family() -> None:
    mixtral = read_config({**DENSE, "num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 3584})
    assert mixtral is not None
    assert (mixtral.experts, mixtral.top_k, mixtral.moe_inter) == (8, 2, 3584)
    gemma = read_config({**DENSE, "num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704, "top_k": 50})
    assert gemma is not None
    assert (gemma.top_k, gemma.moe_inter) == (8, 704)  # top_k itself is a sampling parameter
    assert read(moe_intermediate_size=None, intermediate_size=4096).moe_inter is None  # that width is the dense layers'
    assert read(mlp_hidden_act="relu2").gated is False
    assert read(hidden_act="silu").gated is True


def test_mimo_and_gemma_give_other_heads_for_one_kind_of_layer() -> None:
    mimo = read(
        hybrid_layer_pattern=[0, 1] * 4,
        sliding_window=128,
        head_dim=192,
        v_head_dim=128,
        swa_num_key_value_heads=8,
        swa_head_dim=192,
        swa_v_head_dim=128,
    )
    full, sliding = mimo.attention
    assert (full.n_kv_heads, full.head_dim, full.head_dim_v, full.window) == (4, 192, 128, None)
    assert (sliding.n_kv_heads, sliding.head_dim, sliding.head_dim_v, sliding.window) == (8, 192, 128, 128)
    gemma = read(
        layer_types=["sliding_attention"] * 7 + ["full_attention"],
        sliding_window=1024,
        head_dim=256,
        global_head_dim=512,
        num_global_key_value_heads=2,
        attention_k_eq_v=True,
    )
    full, sliding = gemma.attention
    assert (full.n_kv_heads, full.head_dim, full.shared_kv) == (2, 512, True)
    assert (sliding.n_kv_heads, sliding.head_dim, sliding.shared_kv) == (4, 256, False)


MLA = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "q_lora_rank": 1536}


def test_mla_ranks_and_the_tokens_a_device_reads() -> None:
    config = read(**MLA, num_key_value_heads=16)
    assert config.mla is not None
    assert (config.mla.kv_lora_rank, config.mla.rope_dim, config.mla.q_lora_rank) == (512, 64, 1536)
    assert config.head_dim == 128 + 64  # of a query and key, whatever hidden / heads is
    env = Env(isl=1024, osl=1024, conc=64, tensor_parallel=8)
    row = Row("mla_decode_stage1", "", 10.0)
    got = guess.ShapeGuess(row, Hint("mla"), "decode", env, config).latent_attention()
    assert (got["n_q_heads"], got["kv_lora_rank"], got["rope_dim"]) == (2, 512, 64)  # the cache does not split over heads
    assert (got["seq_len"], got["seq_len_range"]) == (1536, [1024, 2048])
    narrow = guess.ShapeGuess(row, Hint("mla"), "decode", env, read(**MLA, index_topk=1280))
    sparse = narrow.latent_attention()
    assert (sparse["seq_len"], sparse["seq_len_range"]) == (1280, [1024, 1280])
    assert "at most index_topk = 1280" in narrow.notes[-2].text
    for name, regime, says in (
        ("mqa_logits_kernel_mla", "decode", "indexer"),
        ("mla_decode_reduce", "decode", "a helper step"),
        ("flash_mla", "prefill", "at prefill"),
    ):
        with pytest.raises(guess.CannotModelError, match=says):
            guess.ShapeGuess(row._replace(name=name), Hint("mla"), regime, env, config).latent_attention()


# What is stored narrow


FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}


@pytest.mark.parametrize(
    ("quantisation", "name", "bits", "activations"),
    [
        (FP8, "fp8", 8 + 32 / 128**2, "fp8"),  # one fp32 scale a block
        ({**FP8, "scale_fmt": "ue8m0"}, "fp8", 8 + 8 / 128**2, "fp8"),
        ({"quant_method": "fp8"}, "fp8", 8, "fp8"),
        ({"quant_method": "mxfp4"}, "mxfp4", 4.25, None),
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, "int4", 4 + 20 / 128, None),
        ({"quant_method": "gptq", "bits": 4, "group_size": 64, "sym": True}, "int4", 4 + 16 / 64, None),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "int8", 8, None),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4", 4.5, "nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8", 8, "fp8"),
        (
            {
                "quant_method": "quark",
                "global_quant_config": {
                    "weight": {"dtype": "fp4", "group_size": 32},
                    "input_tensors": {"dtype": "fp4", "group_size": 32},
                },
            },
            "mxfp4",
            4.25,
            "mxfp4",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {
                        "targets": ["Linear"],
                        "weights": {"num_bits": 4, "type": "int", "group_size": 32, "symmetric": True},
                        "input_activations": None,
                    }
                },
            },
            "int4",
            4 + 16 / 32,
            None,
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "a": {"targets": ["re:.*self_attn.*"], "weights": {"num_bits": 8, "type": "float"}},
                    "b": {
                        "targets": ["re:.*mlp\\.experts.*"],
                        "weights": {"num_bits": 4, "type": "float", "group_size": 16},
                        "input_activations": {"num_bits": 8, "type": "float"},
                    },
                },
            },
            "nvfp4",
            4.5,
            "fp8",
        ),
    ],
)
def test_quantization_gives_weight_and_activation_dtypes(
    quantisation: dict[str, Any], name: str, bits: float, activations: str | None
) -> None:
    config = read(quantization_config=quantisation)
    assert config.weight_dtype is not None
    assert (config.weight_dtype.name, config.weight_dtype.bits) == (name, bits)
    assert (config.activation_dtype.name if config.activation_dtype else None) == activations
    assert config.dtype is not None
    assert config.dtype.name == "bf16"
    assert config.problems == ()


def test_fp4_experts_inside_an_fp8_checkpoint() -> None:
    config = read(expert_dtype="fp4", quantization_config={**FP8, "scale_fmt": "ue8m0"})
    assert config.weight_dtype is not None
    assert (config.weight_dtype.name, config.weight_dtype.bits) == ("mxfp4", 4.25)


@pytest.mark.parametrize(
    ("rules", "excluded"),
    [
        (["lm_head"], {"lm_head"}),
        (
            ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens"],
            {"attention", "router", "embeddings"},
        ),
        ([f"model.layers.{index}.mlp.gate" for index in range(8)], {"router"}),
        (["model.layers.0.self_attn*", "lm_head"], {"attention", "lm_head"}),
        (
            ["re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"],
            {"attention", "shared_experts", "dense_mlp"},
        ),
        ([r"re:.*layers\.[0-2]\.mlp\.\w+_proj$"], {"dense_mlp"}),
        (["re:vision_tower.*", "model.visual.blocks.0.attn"], set()),
        (["model.layers.8.mlp.experts"], set()),  # the layer after the last: multi-token prediction
    ],
)
def test_modules_excluded_from_quantization_keep_their_dtype(rules: list[str], excluded: set[str]) -> None:
    config = read(quantization_config={**FP8, "modules_to_not_convert": rules})
    assert set(config.excluded) == excluded
    assert config.weight_dtype is not None
    assert config.weight_dtype.name == "fp8"  # none of these is an expert
    assert config.problems == ()


def test_excluded_layers_are_counted() -> None:
    config = read(quantization_config={**FP8, "ignored_layers": [r"re:.*layers\.(0|3)\.self_attn.*", "lm_head"]})
    assert config.excluded == {"attention": frozenset({0, 3}), "lm_head": None}


def test_excluded_experts_keep_the_model_dtype(run: Run) -> None:
    wholly = {**FP8, "modules_to_not_convert": ["re:.*experts.*"]}
    config = read(quantization_config=wholly)
    assert config.weight_dtype == config.dtype
    run.topn(gemm_row("fused_moe_kernel_stage2")).env(**MI300X, tp=1, model_dtype="fp8", workload=LOAD)
    item = run.config(**MOE, quantization_config=wholly).analyze()["entries"][0]
    assert (item["weight_dtype"], item["dtype"]) == ("bf16", "bf16")
    assert "fp8 leaves the experts in bf16" in item["notes"]
    some = {**FP8, "modules_to_not_convert": ["model.layers.0", "model.layers.7"]}
    artifact = run.config(**MOE, quantization_config=some).analyze()
    assert "their width differs by layer" in artifact["degraded"][0]["reason"]
    dense_first = read(quantization_config={**FP8, "ignore": ["model.layers.0"]}, first_k_dense_replace=1)
    assert dense_first.weight_dtype is not None
    assert dense_first.weight_dtype.name == "fp8"  # layer 0 has no experts


@pytest.mark.parametrize("rule", ["re:(a+)+$", r"re:.*(?!gate)experts.*", "re:.*[a-z]{3}.*", "re:(((", r"re:.*" + "(0|1)" * 12])
def test_an_unknown_rule_leaves_the_width_unknown(rule: str) -> None:
    config = read(quantization_config={**FP8, "ignore": [rule]})
    assert config.weight_dtype is None
    assert "is not understood" in config.problems[0]


# Wrong and missing values


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"num_experts_per_tok": "two"}, "num_experts_per_tok is 'two'"),
        ({"moe_intermediate_size": [512, 1024]}, "moe_intermediate_size is [512, 1024]"),
        ({"num_key_value_heads": True}, "num_key_value_heads is True"),
        ({"hidden_size": -1}, "hidden_size is -1"),
        ({"num_hidden_layers": 10**12}, "num_hidden_layers is 1000000000000, expected at most"),
        ({"layer_types": ["full_attention"] * 3}, "layer_types has 3 layers, num_hidden_layers says 8"),
        ({"layer_types": ["quantum_attention"] * 8}, "the layer kind 'quantum_attention' is unknown"),
        ({"layer_types": "full_attention"}, "layer_types is 'full_attention', expected a list"),
        ({"moe_layer_freq": [1, 0]}, "moe_layer_freq has 2 layers"),
        ({"first_k_dense_replace": "three"}, "first_k_dense_replace is 'three'"),
        ({"full_attention_interval": 0}, "full_attention_interval is 0"),
        ({"mlp_only_layers": 3}, "mlp_only_layers is 3"),
        ({"torch_dtype": "auto"}, "torch_dtype: unknown dtype 'auto'"),
        ({"expert_dtype": "fp5"}, "expert_dtype: unknown dtype 'fp5'"),
        ({"sliding_window": 4096, "model_type": "new"}, "sliding_window is given, but not which layers use it"),
        ({"quantization_config": "fp8"}, "quantization_config is str"),
        ({"quantization_config": {"quant_method": "magic"}}, "magic: the weights' width is unknown"),
        ({"quantization_config": {"quant_method": "fp8", "weight_block_size": 128}}, "weight_block_size is 128"),
        ({"quantization_config": {**FP8, "modules_to_not_convert": "lm_head"}}, "modules_to_not_convert is 'lm_head'"),
    ],
)
def test_a_wrong_value_gets_one_line_that_names_the_key(keys: dict[str, Any], says: str) -> None:
    problems = read(**keys).problems
    assert len(problems) == 1
    assert says in problems[0]
    assert problems[0].startswith("config.json: ")


NULLABLE = (*MOE, "head_dim", "sliding_window", "layer_types", "quantization_config", "kv_lora_rank", "first_k_dense_replace")


@pytest.mark.parametrize("key", [key for key in NULLABLE if key != "hidden_size"])
def test_null_is_not_a_number(key: str) -> None:
    assert read(**{key: None}).problems == ()


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text("ab.*(|", max_size=8)
    | st.sampled_from(["re:(", "full_attention"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab", max_size=4), inner, max_size=3),
    max_leaves=8,
)
_KEYS = (*NULLABLE, *MLA, "moe_layer_freq", "hybrid_override_pattern", "block_configs", "text_config", "expert_dtype")
_QUANT = ("quant_method", "bits", "group_size", "weight_block_size", "ignore", "config_groups", "global_quant_config")


@given(
    st.dictionaries(st.sampled_from(_KEYS), _JSON, max_size=4),
    st.dictionaries(st.sampled_from(_QUANT), _JSON | st.sampled_from(["fp8", "awq", "quark", "compressed-tensors"])),
)
def test_no_config_causes_a_traceback(keys: dict[str, Any], quantisation: dict[str, Any]) -> None:
    assert isinstance(read(**keys).problems, tuple)
    assert isinstance(read(quantization_config=quantisation).problems, tuple)


def test_a_table_of_models_is_no_config(run: Run) -> None:
    table = {"llama": {"8B": {"hidden_size": 4096}, "70B": {"hidden_size": 8192}}}
    run.write("config.json", table).topn(gemm_row()).env(**MI300X)
    errors = [line for line in run.analyze()["skill_errors"] if "config.json" in line]
    assert errors == ["L5: config.json: a table of models (llama), expected the config of one"]


# From the model to one launch on one device


@pytest.mark.parametrize(
    ("heads", "kv_heads", "tp", "local"),
    [(16, 4, 1, 4), (16, 4, 2, 2), (16, 4, 4, 1), (16, 4, 8, 1), (16, 1, 8, 1)],
)
def test_kv_heads_split_and_then_replicate(run: Run, heads: int, kv_heads: int, tp: int, local: int) -> None:
    run.config(**{**DENSE, "num_attention_heads": heads, "num_key_value_heads": kv_heads})
    item = run.topn(gemm_row("paged_attention")).env(**MI300X, tp=tp, workload=LOAD).analyze()["entries"][0]
    assert item["bytes_est"] == 64 * 1536 * local * 64 * 2 * 2
    assert ("replicated over" in item["notes"]) == (tp > kv_heads)


def test_data_parallel_ranks_share_the_tokens(run: Run) -> None:
    run.config(**MOE).topn(gemm_row("paged_attention"), gemm_row("rmsnorm"), gemm_row("fused_moe_kernel"))
    artifact = run.env(**MI300X, tp=1, dp=3, workload=LOAD).analyze()
    assert entry(artifact, "paged_attention")["bytes_est"] == 22 * 1536 * 4 * 64 * 2 * 2  # 64 over three: 22 on the fullest
    assert entry(artifact, "rmsnorm")["bytes_est"] == 22 * 1024 * 4 + 1024 * 2
    assert "under data parallelism" in artifact["degraded"][0]["reason"]
    both = run.env(**MI300X, tp=2, dp=2, workload=LOAD).analyze()
    assert any("tp and dp together" in item["reason"] for item in both["degraded"])


SLIDING = {"layer_types": ["sliding_attention"] * 6 + ["full_attention"] * 2, "sliding_window": 128}


def test_one_kernel_for_full_and_sliding_layers_has_the_mean_with_both_ends_in_the_range(run: Run) -> None:
    run.config(**DENSE, **SLIDING).env(**MI300X, tp=1, workload=LOAD)
    a_token = 64 * 4 * 64 * 2 * 2
    item = run.topn(gemm_row("paged_attention", launches_per_step=8)).analyze()["entries"][0]
    assert item["bytes_est"] == (6 * 128 + 2 * 1536) / 8 * a_token
    sizes = [model["bytes"] for model in item["byte_models"] if model["model"].startswith("kv_cache_at")]
    assert (min(sizes), max(sizes)) == (128 * a_token, 2048 * a_token)
    assert "2 full and 6 sliding (128) layers under one name" in item["notes"]
    alone = run.topn(gemm_row("paged_attention", launches_per_step=6)).analyze()["entries"][0]
    assert alone["bytes_est"] == 128 * a_token
    assert "one of 6 layers, one launch" in alone["notes"]
    full = run.topn(gemm_row("paged_attention", launches_per_step=2)).analyze()["entries"][0]
    assert full["bytes_est"] == 1536 * a_token


def test_layers_of_different_kv_sizes_under_one_name_are_refused(run: Run) -> None:
    run.config(**{**DENSE, **SLIDING, "head_dim": 64, "swa_num_key_value_heads": 8}).env(**MI300X, tp=1, workload=LOAD)
    artifact = run.topn(gemm_row("paged_attention", launches_per_step=8)).analyze()
    assert "2 full and 6 sliding layers read different KV sizes" in artifact["degraded"][0]["reason"]
    told = run.topn(gemm_row("paged_attention", launches_per_step=6)).analyze()["entries"][0]
    assert told["bytes_est"] == 64 * 128 * 8 * 64 * 2 * 2


def test_chunked_layers_are_full_below_the_chunk_and_unknown_above(run: Run) -> None:
    run.topn(gemm_row("paged_attention")).env(**MI300X, tp=1, workload=LOAD)
    short = run.config(**{**DENSE, "model_type": "llama4_text", "attention_chunk_size": 8192}).analyze()["entries"][0]
    assert short["bytes_est"] == 64 * 1536 * 4 * 64 * 2 * 2
    artifact = run.config(**{**DENSE, "model_type": "llama4_text", "attention_chunk_size": 1024}).analyze()
    assert "chunked layers read what is filled of their 1024 tokens" in artifact["degraded"][0]["reason"]


def test_a_different_head_dim_for_v_is_modeled(run: Run) -> None:
    run.topn(gemm_row("paged_attention")).env(**MI300X, tp=1, workload=LOAD)
    artifact = run.config(**{**DENSE, "head_dim": 192, "v_head_dim": 128}).analyze()
    if "head_dim_v" in OPS["attn_decode"].parameters:
        assert artifact["entries"][0]["bytes_est"] == 64 * 1536 * 4 * (192 + 128) * 2
    else:
        assert "another head_dim for V" in artifact["degraded"][0]["reason"]


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"compress_ratios": [4] * 8}, "compressed or sparse attention"),
        ({"sparse_attention_config": {"sparse_attention_freq": [1] * 8}}, "block-sparse attention"),
        ({"sliding_window": 512, "model_type": "new"}, "does not tell which layers use its window"),
        ({"layer_types": ["linear_attention"] * 8}, "does not tell which layers have attention"),
    ],
)
def test_attention_without_a_model_is_refused(run: Run, keys: dict[str, Any], says: str) -> None:
    run.config(**{**DENSE, **keys}).topn(gemm_row("paged_attention")).env(**MI300X, tp=1, workload=LOAD)
    assert says in run.analyze()["degraded"][0]["reason"]


def test_shared_experts_are_a_launch_of_their_own_unless_the_engine_fuses_them(run: Run) -> None:
    run.topn(gemm_row("fused_moe_kernel_stage2")).env(**MI300X, tp=2, workload=LOAD)
    alone = run.config(**MOE, n_shared_experts=1).analyze()["entries"][0]
    hit = 64 * (1 - (1 - 1 / 64) ** (64 * 4))
    assert alone["bytes_est"] == pytest.approx(hit * 1024 * (512 // 2) * 2)
    assert "1 shared expert of width 512 not counted" in alone["notes"]
    fused = run.config(**MOE, n_shared_experts=1, num_fused_shared_experts=1).analyze()["entries"][0]
    if "shared_experts" in OPS["moe"].parameters:
        assert fused["bytes_est"] == pytest.approx((hit + 1) * 1024 * (512 // 2) * 2)
    else:
        assert fused["bytes_est"] == alone["bytes_est"]


def test_block_scales_are_part_of_the_experts_bytes(run: Run) -> None:
    run.config(**MOE, quantization_config=FP8)
    run.topn(gemm_row("fused_moe_kernel_stage2")).env(**MI300X, tp=1, model_dtype="fp8", workload=LOAD)
    item = run.analyze()["entries"][0]
    hit = 64 * (1 - (1 - 1 / 64) ** (64 * 4))
    assert item["bytes_est"] == pytest.approx(hit * 1024 * 512 * (1 + 4 / 128**2))
    assert (item["dtype"], item["weight_dtype"]) == ("fp8", "fp8")
    assert "fp8 (8.002 bits with a scale per 128x128)" in item["notes"]


def test_four_bit_weights_alone_are_fed_sixteen_bit_activations(run: Run) -> None:
    ignore = {"quant_method": "gptq", "bits": 4, "group_size": 64, "sym": True}
    run.config(**MOE, quantization_config=ignore).topn(gemm_row("fused_moe_kernel_stage2"))
    item = run.env(**MI300X, tp=1, workload=LOAD).analyze()["entries"][0]
    assert (item["dtype"], item["weight_dtype"]) == ("bf16", "int4")  # W4A16 runs at the 16-bit rate


# Sizes that differ between layers, and sizes that this reader does not know


def guess_of(op: str, name: str, config: ModelConfig, **env: Any) -> dict[str, Any]:
    row = Row(name=name, short_name=name, pct=50.0, launches_per_step=env.pop("launches", None))
    workload = Env(isl=1024, osl=1024, conc=64, tensor_parallel=1, **env)
    return guess.ShapeGuess(row, Hint(op), "decode", workload, config).parameters()[1]


#: Laguna: 2 full layers with 16 query heads, 6 sliding ones with 24.
PER_LAYER: dict[str, Any] = {
    "layer_types": ["full_attention", *["sliding_attention"] * 3] * 2,
    "num_attention_heads_per_layer": [16, 24, 24, 24] * 2,
    "sliding_window": 512,
}


def test_a_list_of_heads_gives_each_kind_of_layer_its_own() -> None:
    config = read(**PER_LAYER)
    assert [(group.kind, group.layers, group.n_q_heads) for group in config.attention] == [("full", 2, 16), ("sliding", 6, 24)]
    sliding = guess_of("attn_decode", "sliding_attention_decode", config, launches=6)
    assert (sliding["n_q_heads"], sliding["window"]) == (24, 512)
    assert guess_of("attn_decode", "full_attention_decode", config, launches=2)["n_q_heads"] == 16
    with pytest.raises(guess.CannotModelError, match="layers read different KV sizes"):
        guess_of("attn_decode", "paged_attention", config)


def test_heads_that_differ_within_a_kind_are_groups_of_their_own() -> None:
    config = read(num_attention_heads_per_layer=[16] * 5 + [32] * 3)
    assert [(group.kind, group.layers, group.n_q_heads) for group in config.attention] == [("full", 5, 16), ("full", 3, 32)]


def test_a_list_of_heads_of_the_wrong_length_leaves_the_heads_unknown() -> None:
    config = read(num_attention_heads_per_layer=[16, 24])
    assert [group.n_q_heads for group in config.attention] == [None]
    assert config.problems == ("config.json: num_attention_heads_per_layer has 2 layers, num_hidden_layers says 8",)
    with pytest.raises(guess.CannotModelError, match="head counts"):
        guess_of("attn_decode", "paged_attention", config)


def test_step_3_5_gives_its_sliding_layers_heads_in_a_group_of_keys() -> None:
    kinds = ["full_attention", *["sliding_attention"] * 3] * 2
    other = {"attention_type": "sliding_attention", "num_attention_heads": 24, "num_attention_groups": 2, "head_dim": 128}
    config = read(layer_types=kinds, sliding_window=512, attention_other_setting=other, num_key_value_heads=None)
    groups = [(group.kind, group.n_q_heads, group.n_kv_heads, group.head_dim) for group in config.attention]
    assert groups == [("full", 16, None, 64), ("sliding", 24, 2, 128)]


def test_experts_in_a_latent_space_are_of_its_width() -> None:
    """Nemotron 3 Super: the experts read and write moe_latent_size values, not hidden_size."""
    experts = guess_of("moe", "fused_moe_kernel", read(moe_latent_size=256))
    assert (experts["hidden"], experts["inter"]) == (256, 512)
    assert guess_of("moe", "fused_moe_kernel", read())["hidden"] == 1024


@pytest.mark.parametrize(
    ("keys", "refused", "guessed"),
    [
        ({"zero_expert_num": 4}, ("moe",), ("attn_decode", "rmsnorm")),
        ({"expert_bottleneck_dim": 256}, ("moe",), ("attn_decode", "rmsnorm")),
        ({"num_attention_heads_by_group": [16, 8]}, ("attn_decode",), ("moe", "rmsnorm")),
        ({"stream_size": 512}, ("moe", "attn_decode", "rmsnorm"), ()),
        ({"moe_other_setting": {"hidden_dim": 128}}, ("moe",), ("attn_decode", "rmsnorm")),
        ({"vocab_size": 32000, "index_head_dim": 128, "zero_expert_num": 0, "head_scale_per_layer": True}, (), ("moe",)),
    ],
)
def test_a_size_that_is_not_understood_refuses_the_ops_near_it(
    keys: dict[str, Any], refused: tuple[str, ...], guessed: tuple[str, ...]
) -> None:
    for op in refused:
        with pytest.raises(
            guess.CannotModelError, match=f"config.json has {next(iter(keys))}.*, a size that is not understood"
        ):
            guess_of(op, op, read(**keys))
    for op in guessed:
        assert guess_of(op, op, read(**keys))


def test_what_is_stored_and_what_feeds_it_are_two_facts() -> None:
    """fp8 experts without torch_dtype: the run's model_dtype is that of the activations that quantization leaves at 16 bits."""
    scheme = {"quant_method": "compressed-tensors", "config_groups": {"a": {"targets": ["Linear"], "weights": W8}}}
    config = read(torch_dtype=None, quantization_config=scheme)
    with pytest.raises(guess.CannotModelError, match="the dtype of activations is unknown"):
        guess_of("moe", "fused_moe_kernel", config)
    experts = guess_of("moe", "fused_moe_kernel", config, model_dtype="bf16")
    assert (experts["weight_dtype"].name, experts["dtype"].name) == ("fp8", "bf16")


W8 = {"num_bits": 8, "type": "float", "strategy": "channel"}
