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
    "sampling": "top-k or sampling without shapes: the work depends on the data",
    "unknown": "the name matches no op that is known; give shapes.json with an op",
}

#: The first op with one of these words in the name, in order.
_RULES = {
    "memcpy": "memcpy dtod|memcpy htod|memcpy dtoh|memcpy ptop|memset (|__amd_rocclr_|copybuffer",
    "collective": (
        "nccl|rccl|allreduce|all_reduce|cross_device_reduce|quickreduce|allgather|all_gather|reducescatter"
        "|reduce_scatter|alltoall|all_to_all|all2all|multimem|symm_mem|oneshot|twoshot|deep_ep"
    ),
    # Inductor names a fused pointwise or reduction kernel after everything it fused, attention and MoE included.
    "fused": "triton_poi_|triton_red_|triton_per_|triton_tem_fused",
    "helper": (
        "splitkreduce|splitk_reduce|split_k_reduce|reduce_kernel|postgsu|combine|merge_attn|finalize"
        "|computewgradsplitk|kv_indices|block_score|decode_score|reshape_and_cache|offsetskernel"
    ),
    "conv": "fprop|dgrad|wgrad|igemm_|implicit_gemm|scudnn|conv2d|conv3d|winograd|convolution",
    "linear_attention": (
        "gated_delta|chunk_fwd_kernel|chunk_delta|recurrent_gated|fused_recurrent|causal_conv1d|mamba"
        "|selective_scan|state_passing|linear_attn|lightning_attn|chunk_scan|chunk_state|_kda_"
    ),
    "moe_helper": (
        "moe_sort|moesort|_sort|moe_align|moe_reduction|moe_sum|moe_fused_gate|routing|gating|topk_softmax"
        "|topk_sigmoid|topk_softplus|topkgating|grouped_topk|permute|smooth_quant|moe::dev::activation"
        "|count_and_sort|expert_histogram|expert_tokens"
    ),
    "rope": "_rope|rope_|ropekernel|rotary",
    "moe": "moe|fused_experts|matmul_ogs|grouped_gemm|group_gemm",
    "rmsnorm": "rmsnorm|rms_norm|fused_rms",
    "layernorm": "layernorm|layer_norm|layernormkernel",
    "mla_decode": "_mla|mla_|flashmla|flash_mla|mqa_logits|sparse_mla|indexer",
    "attention": "attention|attn|fmha|flash_fwd|sdpa|flashinfer::batch",
    "sampling": "topk|top_k|sampling|argmax|multinomial|sort_kernel|radixsort",
    "softmax": "softmax",
    "gemm": ("gemm|gemv|cijk_|matmul|nvjet|cublas|cutlass|splitk|split_k|xmma|wvsplit|flatmm|linear_kernel|_mm_kernel"),
    "quantize": "quant",
    "copy": "direct_copy|copy_kernel|catarray|concat",
    "elementwise": "elementwise|silu|gelu|act_and_mul|swiglu|fillfunctor|add_kernel|mul_kernel|sigmoid",
}
_WORDS = [(op, words.split("|")) for op, words in _RULES.items()]
_DECODE = ("decode", "paged", "unified_attention")
_PREFILL = ("prefill", "context_attention", "varlen_fwd", "flash_fwd", "fmha_fwd")


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
    op = _match(low)
    profiled = _match(classification.lower()) if classification else "unknown"
    if op == "unknown" or (profiled in ("collective", "moe", "attention", "gemm") and op in ("elementwise", "copy")):
        op = profiled
    if op == "attention" and _has(low, "bwd", "backward"):
        op = "attn_backward"
    if op == "attention":
        is_prefill = _has(low, *_PREFILL) or (regime == "prefill" and not _has(low, *_DECODE))
        op = "attn_prefill" if is_prefill else "attn_decode"
    if op != "moe":
        return Hint(op)
    second = "2" if _has(low, "moe2", "stage2", "stage_2", "moe_down") else None
    stage = "1" if _has(low, "moe1", "stage1", "stage_1", "gate_up") else second
    return Hint(op, stage, _spelled(low, "a"), _spelled(low, "w"))


@lru_cache(maxsize=2**16)  # a Top-N is looked through twice: for the verdicts, and for the neighbors to fuse with
def _match(low: str) -> str:
    if low in ("comm", "communication"):
        return "collective"
    if low in ("norm", "normalization"):
        return "rmsnorm"
    return next((op for op, words in _WORDS if any(word in low for word in words)), "unknown")


def _has(low: str, *words: str) -> bool:
    return any(word in low for word in words)


def _spelled(low: str, letter: str) -> Dtype | None:
    """``..._afp8_wfp4_...`` spells the activation and the weight dtype of an aiter MoE kernel."""
    for part in low.split("_"):
        if part.startswith(letter) and part[1:] in ("fp4", "fp8", "bf16", "fp16", "int8", "int4"):
            return parse_dtype(part[1:])
    return None


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
    text = name.split("(")[0] if not name.startswith("(") else name
    text = text.split("<")[0].strip() or name
    if text.startswith("void "):
        text = text[len("void ") :]
    return text if len(text) <= 60 else text[:57] + "..."
