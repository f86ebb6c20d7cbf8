"""Read a kernel's name: the op, its stage, its dtypes. A name is a hint (stage A); shapes.json is evidence.

Names come from many places: Triton functions, mangled C++, Tensile solutions, profiler rows that are not kernels. The first
rule that fits decides; a name that fits none is unknown.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from .units import Dtype, parse_dtype

#: Why an op that the name gives has no work model.
UNMODELED = {
    "collective": "a collective: bound by the interconnect, which this roofline has no axis for",
    "memcpy": "a memory copy or fill issued by the runtime, not a kernel to optimize",
    "moe_helper": "an MoE routing, sorting or reduction helper: its traffic depends on the routing",
    "fused": "a fused kernel named after what it fused: its reads and writes are not in the name",
    "helper": "a reduction or merge step of a larger op: its partial results are not in any shape given",
    "conv": "a convolution without shapes: give shapes.json with conv1d, conv2d or conv3d",
    "linear_attention": "linear attention or a state-space scan without shapes: give shapes.json with gated_delta or ssm_scan",
    "backward": "a backward step: it reads and writes more than the forward step of the same name, give shapes.json",
    "sampling": "top-k or sampling without shapes: the work depends on the data",
    "unknown": "the name matches no op that is known; give shapes.json with an op",
}

#: The first op with one of these words in the name, in order.
_RULES = {
    "memcpy": "__amd_rocclr_|copybuffer",
    "collective": (
        "nccl|rccl|allreduce|all_reduce|cross_device_reduce|quickreduce|allgather|all_gather|reducescatter"
        "|reduce_scatter|alltoall|all_to_all|all2all|multimem|symm_mem|oneshot|twoshot|deep_ep"
    ),
    # Inductor names a fused pointwise or reduction kernel after everything it fused, attention and MoE included.
    "fused": "triton_poi_|triton_red_|triton_per_|triton_tem_fused",
    "helper": (
        "splitkreduce|splitk_reduce|split_k_reduce|reduce_kernel|postgsu|combine|merge_attn|finalize|reduce_segments"
        "|computewgradsplitk|kv_indices|block_score|decode_score|reshape_and_cache|offsetskernel|_fwd_kernel_stage2"
        "|_fwd_grouped_kernel_stage2|store_kvcache|set_kv_buffer|set_mla_kv_buffer|_fixup"
    ),
    # A routing or sorting word in the name of an expert GEMM is of its layout, not of its work.
    "expert_gemm": "mfma_moe1|mfma_moe2|fmoe_gemm|moe_ck2stages_gemm|fmoe_stage",
    "conv": "fprop|dgrad|wgrad|igemm_|implicit_gemm|scudnn|conv2d|conv3d|winograd|convolution|asmconv",
    "linear_attention": (
        "gated_delta|chunk_fwd_kernel|chunk_delta|recurrent_gated|fused_recurrent|causal_conv1d|mamba"
        "|selective_scan|state_passing|linear_attn|lightning_attn|chunk_scan|chunk_state|_kda_"
    ),
    "moe_helper": (
        "moe_sort|moesort|_sort|moe_align|moe_reduction|moe_sum|moe_fused_gate|routing|gating|topk_softmax"
        "|topk_sigmoid|topk_softplus|topkgating|grouped_topk|permute|smooth_quant|moe::dev::activation"
        "|count_and_sort|expert_histogram|expert_tokens|expandinputrows"
    ),
    "rope": "_rope|rope_|ropekernel|rotary|ropequantize|applymlarope",
    "moe": "moe|fused_experts|matmul_ogs|grouped_gemm|group_gemm",
    "rmsnorm": "rmsnorm|rms_norm|fused_rms",
    "layernorm": "layernorm|layer_norm|layernormkernel",
    "mla_decode": "_mla|mla_|flashmla|flash_mla|mqa_logits|sparse_mla|indexer",
    "attention": "attention|attn|fmha|flash_fwd|flash_bwd|sdpa|flashinfer::batch|_fwd_grouped_kernel_stage1|_fwd_kernel_stage1",
    "sampling": "topk|top_k|sampling|argmax|multinomial|sort_kernel|radixsort",
    "softmax": "softmax",
    "gemm": (
        "gemm|gemv|cijk_|matmul|nvjet|cublas|cutlass|splitk|split_k|xmma|wvsplit|flatmm|linear_kernel|_mm_kernel|bmm_"
        "|a8w8_|a4w4_|a16w16_|a16w8_|a16w4_|a8w4_|mul_mat_q|mul_mat_vec"  # the last two of llama.cpp
    ),
    "quantize": "quant",
    "transpose": "batched_transpose",
    "copy": "direct_copy|copy_kernel|veccopy|catarray|concat",
    "elementwise": "elementwise|silu|gelu|act_and_mul|swiglu|fillfunctor|add_kernel|mul_kernel|sigmoid",
}
_WORDS = [(op, words.split("|")) for op, words in _RULES.items()]
#: Words of a name that say decode whatever else it says: a split over the KV cache, TensorRT-LLM's generation kernels.
_DECODE_ALWAYS = ("splitkv", "split_kv", "forgen", "_kernel_stage1")
_DECODE = ("decode", "paged", "unified_attention")
_PREFILL = ("prefill", "context_attention", "varlen_fwd", "flash_fwd", "fmha_fwd", "attn_fwd", "persistentcontext")
#: TensorRT-LLM's MLA kernels: query and key of 512 + 64, value of 512.
_MLA_HEADS = "hqk576hv512"
#: Norms and softmax in a backward pass: their forward models count too few bytes.
_FORWARD_ONLY = ("rmsnorm", "layernorm", "softmax")

#: Copies and fills by a runtime or a copy engine, as nsys, Kineto, rocprof and JAX name them, and API calls of HIP and CUDA.
#: Whole names: a device kernel such as direct_copy_kernel is none.
_COPIES = re.compile(
    r"\[CUDA mem(?:cpy|set)\b.*\]|Mem(?:cpy|set) .*|Memcpy[HDP](?:to|2)[HDP]|Memset|MEMORY_COPY_\w+"
    r"|Copy(?:Host|Device|Agent)To(?:Host|Device|Agent)|(?:hip|cuda|cu)Mem(?:cpy|set)\w*"
)


class Hint(NamedTuple):
    """What a name suggests."""

    op: str
    stage: str | None = None  # of a MoE: "1" or "2"
    dtype: Dtype | None = None  # of the activations, where the name spells it
    weight_dtype: Dtype | None = None  # likewise


def classify(name: str, classification: str = "", regime: str = "decode") -> Hint:
    """Classify a kernel by the profiler's ``classification`` where it is specific, else by its name.

    An attention name that does not say decode or prefill is taken for the regime that carries its launches.
    """
    low = name.lower()
    if is_copy(name):
        return Hint("memcpy")
    op = _match(low)
    profiled = _match(classification.lower()) if classification else "unknown"
    if op == "unknown" or (profiled in ("collective", "moe", "attention", "gemm") and op in ("elementwise", "copy")):
        op = profiled
    is_backward = _has(low, "bwd", "backward", "_grad")
    if op == "attention":
        op = "attn_backward" if is_backward else _attention(low, regime)
    if op in _FORWARD_ONLY and is_backward:
        op = "backward"
    if op == "gemm" and "bmm_" in low:
        return Hint(op, None, *_trtllm_dtypes(name))
    if op != "moe":
        return Hint(op)
    stored = _quantized(name)
    return Hint(op, _moe_stage(low), _spelled(low, "a") or stored[0], _spelled(low, "w") or stored[1])


def is_copy(name: str) -> bool:
    """Return whether a profiler's row is a copy or a fill between memories by the runtime, which is no kernel."""
    return _COPIES.fullmatch(name.strip()) is not None


def _attention(low: str, regime: str) -> str:
    if _MLA_HEADS in low:
        return "mla_decode"
    if _has(low, *_DECODE_ALWAYS):
        return "attn_decode"
    is_prefill = _has(low, *_PREFILL) or (regime == "prefill" and not _has(low, *_DECODE))
    return "attn_prefill" if is_prefill else "attn_decode"


def _moe_stage(low: str) -> str | None:
    """Return the stage of an expert GEMM by the digit or the word in its name; None for one kernel that may be both."""
    digit = re.search(r"(?:moe|stage_?|gemm)([12])(?![0-9x])", low)
    if digit:
        return digit.group(1)
    if _has(low, "gate_up") or ("matmul_ogs" in low and "swiglu" in low):
        return "1"
    return "2" if "moe_down" in low else None


#: Element types in the names of TensorRT-LLM's batched GEMMs, longest first.
_TRTLLM = {
    "MxE4m3": "mxfp8",
    "MxE2m1": "mxfp4",
    "MxInt4": "int4",
    "E4m3": "fp8",
    "E2m1": "nvfp4",
    "Bfloat16": "bf16",
    "Fp16": "fp16",
}


def _trtllm_dtypes(name: str) -> tuple[Dtype | None, Dtype | None]:
    """Read ``bmm_C_AB_...``: the output, then the weights and the activations; return activations and weights.

    E2m1 with a scale per 16 values is NVFP4; the formats of OCP begin with Mx (NVIDIA/TensorRT-LLM, batched GEMM cubins).
    """
    kinds = "|".join(_TRTLLM)
    match = re.search(rf"bmm_(?:{kinds})_({kinds})({kinds})?", name, re.IGNORECASE)
    if match is None:
        return None, None
    spelled = {key.lower(): dtype for key, dtype in _TRTLLM.items()}
    first, second = match.group(1), match.group(2) or match.group(1)
    return parse_dtype(spelled[second.lower()]), parse_dtype(spelled[first.lower()])


@lru_cache(maxsize=2**16)  # a Top-N is looked through twice: for the verdicts, and for the neighbors to fuse with
def _match(low: str) -> str:
    if low in ("comm", "communication"):
        return "collective"
    if low in ("norm", "normalization"):
        return "rmsnorm"
    op = next((op for op, words in _WORDS if any(word in low for word in words)), "unknown")
    return "moe" if op == "expert_gemm" else op


def _has(low: str, *words: str) -> bool:
    return any(word in low for word in words)


def _spelled(low: str, letter: str) -> Dtype | None:
    """``..._afp8_wfp4_...`` spells the activation and the weight dtype of an aiter MoE kernel."""
    for part in low.split("_"):
        if part.startswith(letter) and part[1:] in ("fp4", "fp8", "bf16", "fp16", "int8", "int4"):
            return parse_dtype(part[1:])
    return None


#: How a name spells the scales of what it multiplies: those of the activations and of the weights. aiter's block scale is
#: DeepSeek's: fp32 per 1 x 128 of the activations and per 128 x 128 of the weights.
_SCALINGS = (
    (re.compile(r"per_?1x32|(a4w4|f4gemm|fp4)\w*bl(oc)?k_?scale", re.I), ("per_1x32", "per_1x32")),
    (re.compile(r"per_?1x16", re.I), ("per_1x16", "per_1x16")),
    (re.compile(r"bl(oc)?k_?scale|per_?(1|128)x128", re.I), ("per_1x128", "per_128x128")),
    (re.compile(r"per_?(token|tensor)", re.I), ("per_token", "per_token")),
)
_QUANTIZED = re.compile(r"(?:per_?\d+x\d+|bl(?:oc)?k_?scale|per_?token|per_?tensor)(Fp4|Fp8|Int8|Int4)", re.I)
_GGUF_TYPE = re.compile(r"(?:^|_)(i?q[1-8](?:_?[01k]|_(?:xxs|xs|s|m|nl)))(?=_|$)", re.I)


def find_scaling(name: str) -> tuple[str, str] | None:
    """Return the quantization of activations and weights that a name spells, for ``units.quantize_dtype``; else None."""
    return next((schemes for pattern, schemes in _SCALINGS if pattern.search(name)), None)


def _quantized(name: str) -> tuple[Dtype | None, Dtype | None]:
    """Read activations and weights of ``..._per1x32Fp4_...`` and ``..._blockscaleFp8_...``, or the weights of ``q4K``."""
    match, scaling = _QUANTIZED.search(name), find_scaling(name)
    if match is not None and scaling is not None:
        activations, weights = (parse_dtype(f"{match.group(1)}/{scheme}") for scheme in scaling)
        return activations, weights
    gguf = _GGUF_TYPE.search(name)
    if gguf is None:
        return None, None
    spelled = gguf.group(1).lower()
    return None, parse_dtype(spelled if "_" in spelled else f"{spelled[:-1]}_{spelled[-1]}")


def clean_name(name: str) -> str:
    """Return a kernel's name without the marks of its code object: ``[clone .kd]``, ``(.kd)``, ``.kd``."""
    return re.sub(r"(\[clone \.kd\]|\(\.kd\)|\.kd)$", "", name.strip()).rstrip()


def stem(name: str) -> str:
    """Return a kernel's name without return type, template arguments and parameters, as truncated names have it."""
    text = name[len("void ") :] if name.startswith("void ") else name
    text = text.replace("(anonymous namespace)", "{anonymous}")
    return re.split(r"[<(]", text, maxsplit=1)[0].strip() or name


def short_name(name: str) -> str:
    """Return a label of at most 60 characters, without template arguments, parameters and return type."""
    name = name.replace("(anonymous namespace)::", "")
    text = name.split("(")[0] if not name.startswith("(") else name
    text = text.split("<")[0].strip() or name
    if text.startswith("void "):
        text = text[len("void ") :]
    return text if len(text) <= 60 else text[:57] + "..."
