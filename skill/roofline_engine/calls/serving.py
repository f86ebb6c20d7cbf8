"""What an operation of vLLM, SGLang, aiter and FlashAttention is to the engine: norms, activations, rotary embedding, writes of
the KV cache, quantized products, fused experts, attention over ragged batches and paged caches.

``serving_schema`` has the argument names and the builder of each operation. The libraries move arguments between versions, so
builders find a tensor by its name and check it by its shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..fields import note
from ..ops.attention import attention_pairs
from ..units import parse_dtype
from .call import BatchFacts, Call, OpSpec, TensorFacts, is_tensor, nbytes_of

if TYPE_CHECKING:
    from .call import Builders


def _no_model(text: str) -> OpSpec:
    return OpSpec(None, notes=(note(text),))


def _tensors(call: Call) -> list[Any]:
    return [value for value in call.values.values() if is_tensor(value)]


def _tensor(call: Call, *names: str) -> Any:
    """Return the first of these arguments that is a tensor; None without one."""
    return next((call.values[name] for name in names if is_tensor(call.values.get(name))), None)


def _number(call: Call, name: str) -> int | None:
    value = call.values.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


# Streams.


def rms_norm(call: Call) -> OpSpec:
    """Normalize rows; with a residual that is added first where the operation has one."""
    source = _tensor(call, "input", "hidden_states")
    rows = [tensor for tensor in _tensors(call) if tensor.dim() > 1 and tensor.shape[-1] == source.shape[-1]]
    weight = next((tensor for tensor in _tensors(call) if tensor.dim() == 1 and tensor.shape == source.shape[-1:]), None)
    out = _tensor(call, "out", "result") or next((tensor for tensor in rows if _is_narrow(tensor)), source)
    cols = source.shape[-1]
    sizes = {
        "rows": source.numel() // cols,
        "cols": cols,
        "weights": 0 if weight is None else 1,
        "residual": _tensor(call, "residual", "residual_in") is not None,
        "dtype": source.dtype,
        "out_dtype": out.dtype,
    }
    return OpSpec("layernorm" if "layer" in call.name else "rmsnorm", sizes)


def _is_narrow(tensor: Any) -> bool:
    return parse_dtype(str(tensor.dtype)).value_bits <= 8


def gated_activation(call: Call) -> OpSpec:
    """Multiply an activation of one half of each row with the other half."""
    source = _tensor(call, "input")
    out = _tensor(call, "out") or TensorFacts((*source.shape[:-1], source.shape[-1] // 2), str(source.dtype))
    sizes = {"numel": source.numel() // 2, "inputs": 2, "outputs": 1, "dtype": source.dtype, "out_dtype": out.dtype}
    return OpSpec("elementwise", sizes)


def activation(call: Call) -> OpSpec:
    source = _tensor(call, "input")
    return OpSpec("elementwise", {"numel": source.numel(), "inputs": 1, "outputs": 1, "dtype": source.dtype})


def rotary(call: Call) -> OpSpec:
    """Rotate the queries and keys of each token by its position."""
    query, key, cache = _tensor(call, "query", "q"), _tensor(call, "key", "k"), _tensor(call, "cos_sin_cache", "cos_cache")
    tokens = _tensor(call, "positions", "pos_ids").numel() if _tensor(call, "positions", "pos_ids") else query.shape[0]
    head = _number(call, "head_size") or (query.shape[-1] if query.dim() > 2 else None)
    if head is None:
        return _no_model("the size of a head is not recorded")
    elements = query.numel() + (key.numel() if key is not None else 0)
    rotated = min(cache.shape[-1], head) if cache is not None else head
    sizes = {
        "tokens": tokens,
        "n_heads": elements // (tokens * head),
        "head_dim": head,
        "rotary_dim": rotated,
        "dtype": query.dtype,
    }
    return OpSpec("rope", sizes)


def cache_write(call: Call) -> OpSpec:
    """Copy the keys and values of new tokens to their slots of the cache."""
    sources = [_tensor(call, name) for name in ("key", "value", "kv_c", "k_pe")]
    moved = sum(tensor.numel() for tensor in sources if tensor is not None)
    cache = _tensor(call, "key_cache", "kv_cache")
    first = next(tensor for tensor in sources if tensor is not None)
    slots = _tensor(call, "slot_mapping")
    sizes: dict[str, Any] = {"rows": 1, "cols": moved, "dtype": first.dtype, "out_dtype": _stored(call, cache, first)}
    if slots is not None:
        width = parse_dtype(str(sizes["dtype"])).nbytes + parse_dtype(str(sizes["out_dtype"])).nbytes
        sizes["bytes"] = moved * width + nbytes_of(slots)
    return OpSpec("copy", sizes)


def _stored(call: Call, cache: Any, source: Any) -> str:
    """Return the dtype of a cache: an fp8 cache is recorded as bytes."""
    kind = call.values.get("kv_cache_dtype")
    if isinstance(kind, str) and kind.startswith("fp8"):
        return "fp8"
    return str(cache.dtype if cache is not None else source.dtype)


def quantize(call: Call) -> OpSpec:
    source, out = _tensor(call, "input", "x"), _tensor(call, "out", "output", "output_q")
    if out is None:
        return _no_model("the dtype of its result is not recorded")
    cols = source.shape[-1]
    scales = _tensor(call, "scales", "output_s")
    sizes = {"rows": source.numel() // cols, "cols": cols, "dtype": source.dtype, "out_dtype": out.dtype}
    if scales is not None and scales.numel() > 1:
        sizes["scale_dtype"] = scales.dtype
        sizes["group_size"] = max(source.numel() // scales.numel(), 1)
    return OpSpec("quantize", sizes)


def routing(call: Call) -> OpSpec:
    """Choose the experts of each token."""
    scores, chosen = _tensor(call, "gating_output"), _tensor(call, "topk_weights", "topk_ids")
    experts = scores.shape[-1]
    k = chosen.shape[-1] if chosen is not None else _number(call, "topk")
    return OpSpec("topk", {"rows": scores.numel() // experts, "cols": experts, "k": k, "dtype": scores.dtype})


# Products.


def product(call: Call) -> OpSpec:
    """Multiply activations with a weight whose rows or columns match them; a packed weight has fewer."""
    a, b, out = _tensor(call, "a"), _tensor(call, "b"), _tensor(call, "out")
    k, rows = a.shape[-1], a.numel() // a.shape[-1]
    dtype, weight = str(a.dtype), str(b.dtype)
    if parse_dtype(dtype).pack == 2 or (_is_byte(a) and _is_byte(b) and "4" in call.name):  # two fp4 values in a byte
        k, dtype, weight = 2 * k, "fp4", "fp4"
        n = b.shape[0]
    else:
        n = _columns(call, b, k, out)
        if n is None:
            return _no_model(f"a weight of {tuple(b.shape)} does not fit activations of {tuple(a.shape)}")
        if b.numel() < n * k:  # int32 with several values each: GPTQ, AWQ, Marlin
            bits = 8 * b.numel() * b.element_size() / (n * k)
            if bits not in (4.0, 8.0):
                return _no_model(f"a weight of {bits:g} bits a value")
            weight = "int4" if bits == 4.0 else "int8"
    sizes: dict[str, Any] = {"M": rows, "N": n, "K": k, "dtype": dtype, "out_dtype": _result_dtype(call, a, out)}
    if weight != dtype:
        sizes["weight_dtype"] = weight
    if _tensor(call, "bias") is not None:
        sizes["addend"] = _tensor(call, "bias").numel()
    return OpSpec("gemm", sizes, extra=[scale for scale in (_tensor(call, "a_scales"), _tensor(call, "b_scales")) if scale])


def _is_byte(tensor: Any) -> bool:
    return parse_dtype(str(tensor.dtype)).name in ("uint8", "fp4x2")


def _columns(call: Call, b: Any, k: int, out: Any) -> int | None:
    """Return the columns of the result."""
    given = _number(call, "size_n")
    if given:
        return given
    if out is not None and out.dim() > 1:
        return int(out.shape[-1])
    if b.dim() != 2 or k not in b.shape:
        scales = _tensor(call, "b_scales")
        return int(scales.shape[-1]) if scales is not None and scales.dim() == 2 and b.numel() < k * scales.shape[-1] else None
    return int(b.shape[0] if b.shape[1] == k else b.shape[1])


def _result_dtype(call: Call, a: Any, out: Any) -> str:
    if out is not None:
        return str(out.dtype)
    bias = _tensor(call, "bias")
    if bias is not None:
        return str(bias.dtype)
    return "bf16" if _is_narrow(a) else str(a.dtype)


def fused_experts(call: Call) -> OpSpec:
    """Model all experts of a layer: both products of each token's experts."""
    hidden, w1, w2 = _tensor(call, "hidden_states"), _tensor(call, "w1"), _tensor(call, "w2")
    chosen = _tensor(call, "topk_ids", "topk_weights")
    if w1 is None or w2 is None or w1.dim() != 3 or w2.dim() != 3:
        return _no_model("the weights of its experts are not recorded")
    if chosen is None or chosen.dim() != 2:
        return _no_model("how many experts a token has is not recorded")
    tokens, width = hidden.numel() // hidden.shape[-1], hidden.shape[-1]
    experts, rows = w1.shape[0], w1.shape[1]
    packing = width // w1.shape[2] if w1.shape[2] and width % w1.shape[2] == 0 else 0
    inter = w2.shape[2] * packing
    if not packing or w2.shape[1] != width or rows not in (inter, 2 * inter):
        return _no_model(f"weights of {tuple(w1.shape)} and {tuple(w2.shape)} do not fit a hidden size of {width}")
    weight = str(w1.dtype)
    if packing > 1:
        bits = 8 * w1.element_size() / packing
        if bits != 4.0:
            return _no_model(f"weights of {bits:g} bits a value")
        weight = "mxfp4" if _is_byte(w1) else "int4"
    sizes = {
        "tokens": tokens,
        "hidden": width,
        "inter": inter,
        "experts": experts,
        "top_k": chosen.shape[1],
        "gated": rows == 2 * inter,
        "dtype": hidden.dtype,
        "weight_dtype": weight,
    }
    return OpSpec("moe", sizes)


# Attention.


def attention(call: Call) -> OpSpec:
    """Model attention over a batch of equal sequences, a ragged batch, or a paged cache."""
    q, k, v = _tensor(call, "q", "query"), _tensor(call, "k", "key"), _tensor(call, "v", "value")
    heads, dim = q.shape[-2], q.shape[-1]
    kv_heads, dim_v = k.shape[-2], v.shape[-1] if v is not None else dim
    base: dict[str, Any] = {"n_q_heads": heads, "n_kv_heads": kv_heads, "head_dim": dim, "head_dim_v": dim_v, "dtype": q.dtype}
    if str(k.dtype) != str(q.dtype):
        base["kv_dtype"] = k.dtype
    left, right = (_window(call, name) for name in ("window_left", "window_right"))
    causal = call.values.get("causal") is not False and call.values.get("causal") is not None
    mask: dict[str, Any] = {"causal": causal}
    if left is not None:
        mask["window_left"] = left
    if right is not None and not causal:
        mask["window_right"] = right
    batch: BatchFacts | None = getattr(call, "batch", None)
    lengths = _tensor(call, "cu_seqlens_q")
    if q.dim() == 4 and lengths is None and _tensor(call, "block_table") is None:
        if q.shape[1] == 1:
            return OpSpec("attn_decode", {**base, "batch": q.shape[0], "seq_len": k.shape[1], "kv_dtype": k.dtype})
        return OpSpec("attn_prefill", {**base, **mask, "batch": q.shape[0], "seq_q": q.shape[1], "seq_kv": k.shape[1]})
    if batch is not None and left is None and batch.queries <= q.shape[0]:
        return _of_sums(base, batch)
    if lengths is None:
        return _no_model("the lengths of its sequences are not recorded")
    return _ragged(call, base, mask, q, k, lengths.numel() - 1)


def _window(call: Call, name: str) -> int | None:
    value = _number(call, name)
    return None if value is None or value < 0 else value


def _of_sums(base: Mapping[str, Any], batch: BatchFacts) -> OpSpec:
    """Model attention by the sums over its sequences that the range around it has."""
    if not batch.prefills:
        sizes = {key: value for key, value in base.items() if key != "causal"}
        sizes.setdefault("kv_dtype", base["dtype"])
        return OpSpec("attn_decode", {**sizes, "batch": batch.decodes, "seq_len": batch.keys / batch.decodes})
    sizes = {**base, "causal": False, "seq_lens": ((batch.queries, batch.keys),), "pairs": batch.pairs}
    return OpSpec("attn_prefill", sizes, notes=(note("its sequences by the sums in the name of the range around it"),))


def _ragged(call: Call, base: dict[str, Any], mask: dict[str, Any], q: Any, k: Any, sequences: int) -> OpSpec:
    """Model sequences whose lengths are unknown but for their number, sum and maximum."""
    if sequences < 1:
        return _no_model("it has no sequence")
    most_q, most_k = _number(call, "max_q"), _number(call, "max_k")
    total_q = q.shape[0]
    is_paged = _tensor(call, "block_table", "kv_indptr", "kv_page_indices") is not None or k.dim() == 4
    total_k = None if is_paged else k.shape[0]
    if most_q is None or most_k is None:
        return _no_model("the longest of its sequences is not recorded")
    is_known = most_q == most_k if total_k is None else sequences * most_k == total_k
    if sequences * most_q == total_q and is_known:  # all as long as the longest
        if most_q == 1:
            return OpSpec("attn_decode", {**base, "batch": sequences, "seq_len": most_k, "kv_dtype": k.dtype})
        return OpSpec("attn_prefill", {**base, **mask, "batch": sequences, "seq_q": most_q, "seq_kv": most_k})
    if total_k is None or total_k != total_q:
        return _no_model("the lengths of its sequences in the cache are not recorded")
    ends = [_pairs(lengths, mask) for lengths in (_even(total_q, sequences), _uneven(total_q, sequences, most_q))]
    per_pair = 2.0 * base["n_q_heads"] * (base["head_dim"] + base["head_dim_v"])
    sizes = {**base, **mask, "seq_lens": _even(total_q, sequences), "flops_range": tuple(per_pair * pairs for pairs in ends)}
    return OpSpec("attn_prefill", sizes, notes=(note("the lengths of its sequences are unknown: the range has both ends"),))


def _even(total: int, count: int) -> tuple[int, ...]:
    """Return the lengths with the fewest pairs: as equal as can be."""
    base, more = divmod(total, count)
    return (base + 1,) * more + (base,) * (count - more)


def _uneven(total: int, count: int, longest: int) -> tuple[int, ...]:
    """Return the lengths with the most pairs: as many as can be are the longest, every other has one token."""
    lengths, rest = [], total
    for left in range(count, 0, -1):
        length = max(min(longest, rest - (left - 1)), 0)
        lengths.append(length)
        rest -= length
    return tuple(lengths)


def _pairs(lengths: tuple[int, ...], mask: Mapping[str, Any]) -> int:
    right = 0 if mask.get("causal") else mask.get("window_right")
    return sum(attention_pairs(n, n, left=mask.get("window_left"), right=right) for n in lengths)


def attention_backward(call: Call) -> OpSpec:
    spec = attention(call)
    if spec.op != "attn_prefill":
        return spec if spec.op is None else _no_model("one query with a gradient")
    parameters = dict(spec.parameters)
    if "flops_range" in parameters:
        parameters["flops_range"] = tuple(2.5 * value for value in parameters["flops_range"])
    return spec._replace(op="attn_backward", parameters=parameters)


#: Operations | their arguments by name | the builder. A name without a namespace is that of an autograd function.
_SCHEMAS = """
_C::rms_norm aiter::rmsnorm sgl_kernel::rmsnorm sgl_kernel::gemma_rmsnorm aiter::rmsnorm2d_fwd_with_smoothquant
  aiter::layernorm2d_fwd_ck | out input weight epsilon | rms_norm
_C::rms_norm_static_fp8_quant | out input weight scale epsilon | rms_norm
_C::rms_norm_dynamic_per_token_quant | out input weight scales epsilon scale_ub residual | rms_norm
aiter::rms_norm aiter::rmsnorm2d_fwd vllm::rms_norm vllm::rocm_aiter_rms_norm aiter::rmsnorm2d_fwd_ck
  aiter::layernorm2d_fwd | input weight epsilon | rms_norm
_C::fused_add_rms_norm sgl_kernel::fused_add_rmsnorm sgl_kernel::gemma_fused_add_rmsnorm
  | input residual weight epsilon | rms_norm
_C::fused_add_rms_norm_static_fp8_quant | out input residual weight scale epsilon | rms_norm
vllm::rocm_aiter_rmsnorm2d_fwd_with_add | input residual weight epsilon | rms_norm
aiter::add_rmsnorm aiter::rmsnorm2d_fwd_with_add aiter::layernorm2d_fwd_with_add aiter::rmsnorm2d_fwd_with_add_ck
  | out input residual_in residual_out weight epsilon | rms_norm
_C::silu_and_mul _C::gelu_and_mul _C::gelu_tanh_and_mul _C::mul_and_silu aiter::silu_and_mul aiter::gelu_and_mul
  sgl_kernel::silu_and_mul sgl_kernel::gelu_and_mul sgl_kernel::gelu_tanh_and_mul | out input | gated_activation
_C::silu_and_mul_quant aiter::scaled_silu_and_mul | out input scale | gated_activation
LigerSiLUMulFunction | input second | activation
_C::gelu_new _C::gelu_fast _C::gelu_quick | out input | activation
_C::rotary_embedding sgl_kernel::rotary_embedding | positions query key head_size cos_sin_cache is_neox | rotary
sgl_kernel::apply_rope_pos_ids_cos_sin_cache | query key q_rope k_rope cos_sin_cache pos_ids interleave | rotary
vllm::rocm_aiter_rotary_embedding | positions query key head_size cos_sin_cache is_neox | rotary
_C_cache_ops::reshape_and_cache_flash _C_cache_ops::reshape_and_cache aiter::reshape_and_cache aiter::reshape_and_cache_flash
  | key value key_cache value_cache slot_mapping kv_cache_dtype k_scale v_scale | cache_write
sglang::store_cache sgl_kernel::store_kv_cache | key value key_cache value_cache slot_mapping | cache_write
sgl_kernel::set_kv_buffer_kernel | key_cache value_cache slot_mapping key value | cache_write
_C_cache_ops::concat_and_cache_mla aiter::concat_and_cache_mla
  | kv_c k_pe kv_cache slot_mapping kv_cache_dtype scale | cache_write
_C::static_scaled_fp8_quant _C::dynamic_scaled_fp8_quant aiter::static_per_tensor_quant aiter::dynamic_per_tensor_quant
  | out input scale | quantize
_C::dynamic_per_token_scaled_fp8_quant aiter::dynamic_per_token_scaled_quant | out input scales scale_ub | quantize
_C::static_scaled_int8_quant _C::dynamic_scaled_int8_quant | out input scales azp | quantize
sgl_kernel::sgl_per_token_group_quant_fp8 sgl_kernel::sgl_per_token_group_quant_8bit sgl_kernel::sgl_per_token_group_quant_int8
  _C::per_token_group_fp8_quant | input output_q output_s group_size eps | quantize
sgl_kernel::sgl_per_token_quant_fp8 sgl_kernel::sgl_per_tensor_quant_fp8 | input output_q output_s | quantize
_moe_C::topk_softmax aiter::topk_softmax | topk_weights topk_ids token_expert_indices gating_output | routing
sgl_kernel::topk_softmax | topk_weights topk_ids gating_output | routing
sgl_kernel::moe_fused_gate aiter::moe_fused_gate | gating_output bias num_expert_group topk_group topk | routing
_C::cutlass_scaled_mm | out a b a_scales b_scales bias | product
sgl_kernel::fp8_scaled_mm sgl_kernel::int8_scaled_mm | a b a_scales b_scales out_dtype bias | product
sgl_kernel::fp8_blockwise_scaled_mm | a b a_scales b_scales out_dtype | product
vllm::w8a8_triton_block_scaled_mm_func vllm::w8a8_block_fp8_matmul vllm::rocm_aiter_gemm_a8w8_blockscale
  sglang::w8a8_block_fp8_matmul sglang::w8a8_block_fp8_matmul_deepgemm | a b a_scales b_scales block_size | product
vllm::rocm_aiter_gemm_w8a8 vllm::rocm_aiter_gemm_w8a8_blockscale | a b a_scales b_scales bias | product
aiter::gemm_a8w8 aiter::gemm_a8w8_ck aiter::gemm_a8w8_CK aiter::gemm_a8w8_bpreshuffle aiter::gemm_a8w8_blockscale
  aiter::gemm_a8w8_asm aiter::gemm_a8w8_blockscale_bpreshuffle | a b a_scales b_scales out | product
aiter::gemm_a4w4 aiter::gemm_a4w4_asm aiter::_gemm_a4w4_asm aiter::gemm_a4w4_blockscale | a b a_scales b_scales out | product
aiter::gemm_a16w16 aiter::gemm_a16w16_asm aiter::wvSpltK vllm::rocm_unquantized_gemm vllm::rocm_unquantized_gemm_impl
  aiter::hipb_mm tgemm::mm | a b bias | product
_rocm_C::wvSplitK _rocm_C::LLMM1 | b a | product
_C::awq_gemm | a b b_scales zeros split_k | product
_C::gptq_gemm | a b zeros b_scales g_idx | product
deep_gemm::fp8_gemm_nt deep_gemm::gemm_fp8_fp8_bf16_nt | a b out | product
trtllm::cublas_scaled_mm trtllm::fp8_block_scaling_gemm trtllm::cublas_mm bitsandbytes::int8_linear_matmul | a b | product
vllm::inplace_fused_experts vllm::outplace_fused_experts vllm::fused_experts sglang::inplace_fused_experts
  sglang::outplace_fused_experts sgl_kernel::fused_experts | hidden_states w1 w2 topk_weights topk_ids | fused_experts
vllm::rocm_aiter_fused_moe aiter::fused_moe_ aiter::fused_moe vllm::rocm_aiter_asm_moe_tkw1
  | hidden_states w1 w2 topk_weights topk_ids | fused_experts
vllm::unified_attention_with_output | q k v out layer_name | step_attention
vllm::unified_attention | q k v layer_name | step_attention
sglang::unified_attention_with_output | q k v out save_kv_cache layer_id | step_attention
sglang_profiler::attention_paged_attention_ragged | out workspace q k v kv_indptr | step_attention
flash_attn::_flash_attn_forward FlashAttnFunc | q k v dropout softmax_scale causal window_left window_right softcap | attention
flash_attn::_flash_attn_varlen_forward | q k v cu_seqlens_q cu_seqlens_k max_q max_k dropout softmax_scale causal window_left
  window_right softcap alibi return_softmax block_table | attention
flash_attn::_flash_attn_backward | dout q k v out softmax_lse dq dk dv dropout softmax_scale causal window_left
  window_right | attention_backward
flash_attn::_flash_attn_varlen_backward | dout q k v out softmax_lse dq dk dv cu_seqlens_q cu_seqlens_k max_q max_k dropout
  softmax_scale causal window_left window_right | attention_backward
_vllm_fa2_C::varlen_fwd | q k v out cu_seqlens_q cu_seqlens_k seqused_k leftpad_k block_table alibi max_q max_k dropout
  softmax_scale zero_tensors causal window_left window_right | attention
flash_attn_3::fwd _vllm_fa3_C::fwd sgl_kernel::fwd | q k v k_new v_new q_v out cu_seqlens_q cu_seqlens_k cu_seqlens_k_new
  seqused_q seqused_k max_q max_k block_table kv_batch_idx leftpad_k rotary_cos rotary_sin seqlens_rotary q_descale k_descale
  v_descale softmax_scale causal window_left window_right | attention
aiter::mha_fwd aiter::fmha_v3_fwd aiter::_flash_attn_forward aiter::wrapper_fmha_v3_fwd | q k v dropout softmax_scale causal
  window_left window_right | attention
aiter::mha_varlen_fwd aiter::fmha_v3_varlen_fwd | q k v cu_seqlens_q cu_seqlens_k max_q max_k min_q dropout softmax_scale
  softcap zero_tensors causal window_left window_right | attention
aiter::mha_batch_prefill | q k v cu_seqlens_q kv_indptr kv_page_indices max_q max_k dropout softmax_scale softcap zero_tensors
  causal window_left window_right | attention
aiter::mha_bwd aiter::fmha_v3_bwd | dout q k v out softmax_lse dropout softmax_scale causal window_left
  window_right | attention_backward
"""


def step_attention(call: Call) -> OpSpec:
    """Model attention of one model step, whose operation records the new tokens alone: the cache is known by the range."""
    batch = getattr(call, "batch", None)
    if batch is None:
        return _no_model("the lengths of its sequences in the cache are not recorded, nor named by a range around it")
    return attention(call)


_BUILDERS: dict[str, Builders] = {
    "rms_norm": rms_norm,
    "gated_activation": gated_activation,
    "activation": activation,
    "rotary": rotary,
    "cache_write": cache_write,
    "quantize": quantize,
    "routing": routing,
    "product": product,
    "fused_experts": fused_experts,
    "attention": attention,
    "attention_backward": attention_backward,
    "step_attention": step_attention,
}


def _read_schemas() -> dict[str, tuple[tuple[str, ...], Builders]]:
    table: dict[str, tuple[tuple[str, ...], Builders]] = {}
    for line in _SCHEMAS.replace("\n  ", " ").strip().split("\n"):
        names, arguments, builder = (part.split() for part in line.split("|"))
        table.update(dict.fromkeys(names, (tuple(arguments), _BUILDERS[builder[0]])))
    return table


_SERVING = _read_schemas()


def serving_schema(name: str) -> tuple[tuple[str, ...], Builders] | None:
    """Return the names of an operation's arguments and its builder; None where it has none.

    SGLang's profiler adds the line of the call to a name.
    """
    found = _SERVING.get(name)
    return _SERVING.get(name.rstrip("0123456789").rstrip("_")) if found is None and name.startswith("sglang") else found
