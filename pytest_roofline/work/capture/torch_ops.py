"""What an operation of aten is to the engine: its op and parameters.

A table by name, and for what is not in it the tags that torch gives its own operations. Imports torch, so it is imported
only where the user's code already did.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch


class Call:
    """One operation with what it was given. values: its arguments by name. reads, writes: its tensors."""

    __slots__ = ("name", "reads", "values", "writes")

    def __init__(self, name: str, values: Mapping[str, Any], reads: Sequence[Any], writes: Sequence[Any]) -> None:
        self.name, self.values, self.reads, self.writes = name, values, reads, writes

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def get(self, name: str, default: Any = None) -> Any:
        value = self.values.get(name)
        return default if value is None else value


class Model(NamedTuple):
    """The engine's op of a call.

    op: None where nobody knows the FLOPs. charged: the operands that the engine counts in full; where they share memory,
    with themselves (an expanded dimension) or with each other, the figure is lower by that. extra: tensors read that the
    engine does not count. exact: the op's bytes are its tensors', so they are taken from these. reads, writes: of this part
    alone, where the call is several. part: bytes of a tensor that are used, by its ``id``.
    """

    op: str | None
    parameters: Mapping[str, Any] = {}
    charged: Sequence[Any] = ()
    extra: Sequence[Any] = ()
    exact: bool = False
    reads: Sequence[Any] | None = None
    writes: Sequence[Any] | None = None
    part: Mapping[int, float] = {}
    note: str = ""


UNKNOWN = Model(None)


def models(call: Call, tags: Sequence[Any]) -> list[Model]:
    """One for each kernel's worth of work in the call, most often one."""
    build = TABLE.get(call.name.rstrip("_")) or TABLE.get(call.name)
    if build is not None:
        found = build(call)
        return found if isinstance(found, list) else [found]
    if not call.writes:
        return [UNKNOWN]
    if call.name.startswith("_foreach_") or torch.Tag.pointwise in tags:
        return [elementwise(call)]
    if torch.Tag.reduction in tags:
        return [_reduce(call)]
    return [UNKNOWN]


def elementwise(call: Call) -> Model:
    """A map: every tensor of it once."""
    out = max(call.writes, key=lambda tensor: tensor.numel())
    if call.name.startswith("_foreach_"):
        numel, inputs, outputs = sum(tensor.numel() for tensor in call.writes), 1, 1
    else:
        numel, inputs, outputs = out.numel(), len(call.reads), len(call.writes)
    first = call.reads[0] if call.reads else out
    parameters = {"numel": numel, "inputs": inputs, "outputs": outputs, "dtype": first.dtype, "out_dtype": out.dtype}
    return Model("elementwise", parameters, exact=True)


def _moved(call: Call) -> Model:
    """Elements moved, none computed."""
    out, source = call.writes[0], call.reads[0] if call.reads else call.writes[0]
    turned = out.shape == source.shape and _order(out) != _order(source)
    return Model("transpose" if turned else "copy", _rows(out, source), exact=True)


def _order(tensor: Any) -> list[int]:
    """Dimensions from the slowest to the fastest, of those that have a length."""
    strides, sizes = tensor.stride(), tensor.size()
    return sorted((at for at in range(len(sizes)) if sizes[at] > 1 and strides[at]), key=lambda at: -strides[at])


def _rows(out: Any, source: Any, cols: int | None = None) -> dict[str, Any]:
    cols = cols or (out.shape[-1] if out.dim() else 1)
    return {"rows": out.numel() // cols, "cols": cols, "dtype": source.dtype, "out_dtype": out.dtype}


def _cat(call: Call) -> Model:
    return Model("cat", _rows(call.writes[0], call.reads[0]), exact=True)


def _reduce(call: Call) -> Model:
    out, source = call.writes[0], max(call.reads, key=lambda tensor: tensor.numel())
    rows = out.numel()
    parameters = {"rows": rows, "cols": source.numel() // rows, "dtype": source.dtype, "out_dtype": out.dtype}
    return Model("reduce", parameters, exact=True)


def _softmax(call: Call) -> Model:
    source = call["self"]
    cols = source.shape[call["dim"]] if source.dim() else 1
    return Model("softmax", _rows(call.writes[0], source, cols), charged=(source,))


def _layer_norm(call: Call) -> Model:
    source = call["input"]
    return _norm("layernorm", source, call.writes[0], call["normalized_shape"], (call.get("weight"), call.get("bias")))


def rms_norm(call: Call) -> Model:
    return _norm("rmsnorm", call["input"], call.writes[0], call["normalized_shape"], (call.get("weight"),))


def _norm(op: str, source: Any, out: Any, shape: Sequence[int], parameters: Sequence[Any]) -> Model:
    present = [tensor for tensor in parameters if tensor is not None]
    sizes = _rows(out, source, math.prod(shape))
    return Model(op, {**sizes, "weights": len(present)}, charged=(source, *present))


def _group_norm(call: Call) -> Model:
    """Groups are rows; the weights are of channels, so the tensors say the bytes."""
    source, out = call["input"], call.writes[0]
    groups = call.get("group", 1) * source.shape[0]
    return Model("layernorm", {**_rows(out, source, source.numel() // groups), "weights": 0}, exact=True)


def _gather(table: str, index: str) -> Callable[[Call], Model]:
    def build(call: Call) -> Model:
        source, indices, out = call[table], call[index], call.writes[0]
        indices = [one for one in indices if one is not None] if isinstance(indices, (list, tuple)) else [indices]
        rows = math.prod(torch.broadcast_shapes(*(one.shape for one in indices)))
        cols = max(out.numel() // max(rows, 1), 1)
        if indices[0].dtype in (torch.bool, torch.uint8):
            cols = 1
        parameters = {**_rows(out, source, cols), "index_dtype": indices[0].dtype}
        return Model("gather", parameters, exact=True, part={id(source): float(out.numel() * source.element_size())})

    return build


def _scatter(call: Call) -> Model:
    """Values written to some places of a tensor; without a functional copy only those places move."""
    source = call.get("values", call.get("src", call.get("source", call.get("tensor"))))
    if source is None or isinstance(source, (int, float)) or call.writes[0] is not call["self"]:
        return elementwise(call)
    used = float(source.numel() * call["self"].element_size())
    parameters = {"numel": source.numel(), "inputs": 2, "dtype": source.dtype}
    return Model("elementwise", parameters, exact=True, part={id(call["self"]): used})


# Matrix products.


def matrix_dtype(tensor: Any, *, convolution: bool = False) -> Any:
    """The dtype at which a product of this tensor runs: fp32 may run as TF32 on CUDA."""
    if tensor.dtype is not torch.float32 or tensor.device.type != "cuda" or torch.version.hip:
        return tensor.dtype
    fast = torch.backends.cudnn.allow_tf32 if convolution else torch.get_float32_matmul_precision() != "highest"
    return "tf32" if fast else tensor.dtype


def gemm(a: Any, b: Any, out: Any, *, m: int, n: int, k: int, batch: int = 1, addend: int = 0) -> Model:
    """``batch`` products of an m x k and a k x n matrix; ``addend``: elements of C or a bias that are added."""
    if out.dtype.is_complex:
        return Model(None, note="complex products have no model")
    parameters: dict[str, Any] = {"M": m, "N": n, "K": k, "batch": batch, "dtype": matrix_dtype(a), "out_dtype": out.dtype}
    if addend:
        parameters["addend"] = addend
    if b.dtype != a.dtype:
        parameters["weight_dtype"] = b.dtype
    return Model("gemm", parameters, charged=(a, b))


def _product(first: str, second: str, added: str = "") -> Callable[[Call], Model]:
    """Of two matrices or two batches of them; a vector is a matrix of one row or column."""

    def build(call: Call) -> Model:
        a, b = call[first], call[second]
        batch = a.shape[0] if a.dim() == 3 else 1
        m = a.shape[-2] if a.dim() > 1 else 1
        n = b.shape[-1] if b.dim() > 1 else 1
        c = call.get(added) if added and call.get("beta", 1) != 0 else None
        return gemm(a, b, call.writes[0], m=m, n=n, k=a.shape[-1], batch=batch, addend=_elements(c))

    return build


def _elements(tensor: Any) -> int:
    """Distinct ones: a row that is expanded over a matrix is read once."""
    if tensor is None:
        return 0
    return math.prod(size for size, stride in zip(tensor.shape, tensor.stride()) if stride)


def _scaled_mm(call: Call) -> Model:
    a, b = call["self"], call["mat2"]
    found = gemm(a, b, call.writes[0], m=a.shape[0], n=b.shape[1], k=a.shape[1], addend=_elements(call.get("bias")))
    scales = [call.get(name) for name in ("scale_a", "scale_b")]
    return found._replace(extra=[scale for scale in scales if isinstance(scale, torch.Tensor) and scale.numel() > 1])


def linear(call: Call) -> Model:
    source, weight, out = call["input"], call["weight"], call.writes[0]
    n, k = (weight.shape[0], weight.shape[1]) if weight.dim() == 2 else (1, weight.shape[0])
    return gemm(source, weight, out, m=source.numel() // k, n=n, k=k, addend=_elements(call.get("bias")))


def _convolution(call: Call) -> Model:
    source, weight, out = call["input"], call["weight"], call.writes[0]
    found = _conv(call, source, weight, out, "data" if call.get("transposed") else "forward")
    if call.get("bias") is None or found.op is None:
        return found
    return found._replace(parameters={**found.parameters, "bias": True})


def _conv(call: Call, source: Any, weight: Any, out: Any, direction: str) -> Model:
    """Of the convolution whose input and output these are; of a transposed one it is the product by data."""
    if source.dtype.is_complex:
        return Model(None, note="complex products have no model")
    transposed = call.get("transposed", False)
    large, small = (out, source) if transposed else (source, out)
    dims = weight.dim() - 2
    if large.dim() == dims + 1:  # without a batch
        large, small = large[None], small[None]

    def per_axis(name: str, default: int) -> list[int]:
        value = list(call.get(name, [default]))
        return value * dims if len(value) == 1 else value

    parameters = {
        "batch": large.shape[0],
        "in_channels": large.shape[1],
        "out_channels": small.shape[1],
        "input": tuple(large.shape[2:]),
        "kernel": tuple(weight.shape[2:]),
        "stride": tuple(per_axis("stride", 1)),
        "padding": tuple(per_axis("padding", 0)),
        "dilation": tuple(per_axis("dilation", 1)),
        "groups": call.get("groups", 1),
        "direction": direction,
        "dtype": matrix_dtype(source, convolution=True),
    }
    return Model(f"conv{dims}d", parameters, charged=(source, weight))


def _convolution_backward(call: Call) -> list[Model]:
    grad, source, weight = call["grad_output"], call["input"], call["weight"]
    by_data, by_weight, by_bias = call["output_mask"]
    grads = list(call.writes)
    found = []
    if by_data:
        direction = "forward" if call.get("transposed") else "data"
        model = _conv(call, source, weight, grad, direction)
        found.append(model._replace(charged=(grad, weight), reads=(grad, weight), writes=(grads.pop(0),)))
    if by_weight:
        model = _conv(call, source, weight, grad, "weight")
        found.append(model._replace(charged=(grad, source), reads=(grad, source), writes=(grads.pop(0),)))
    if by_bias:
        bias = grads.pop(0)
        channels = bias.numel()
        sizes = {"rows": channels, "cols": grad.numel() // channels, "dtype": grad.dtype, "out_dtype": bias.dtype}
        found.append(Model("reduce", sizes, exact=True, reads=(grad,), writes=(bias,)))
    return found


# Attention.


def attention(call: Call) -> Model:
    """Scaled dot-product attention. One query without a mask is a step of decoding."""
    q, k, v = call["query"], call["key"], call["value"]
    sizes = _attention(q, k, v, causal=call.get("is_causal", False))
    mask = call.get("attn_mask", call.get("attn_bias"))
    extra = (mask,) if isinstance(mask, torch.Tensor) else ()
    note = "attention under a mask: its pairs counted as if it hid none" if extra else ""
    if q.shape[-2] == 1:
        sizes = {name: sizes[name] for name in ("batch", "n_q_heads", "n_kv_heads", "head_dim", "head_dim_v", "dtype")}
        seen = 1 if call.get("is_causal", False) else k.shape[-2]
        sizes = {**sizes, "seq_len": seen, "kv_dtype": k.dtype}
        return Model("attn_decode", sizes, charged=() if seen < k.shape[-2] else (k, v), extra=extra, note=note)
    charged = () if sizes["seq_kv"] < k.shape[-2] else (q, k, v)
    return Model("attn_prefill", sizes, charged=charged, extra=extra, note=note)


def _attention(q: Any, k: Any, v: Any, *, causal: bool) -> dict[str, Any]:
    """Sizes; torch's causal mask is aligned at the top left: query i sees the keys up to i, unlike the engine's."""
    n_q, n_kv = q.shape[-2], k.shape[-2]
    batch = math.prod(q.shape[:-3])
    sizes = {
        "batch": batch,
        "n_q_heads": q.shape[-3] if q.dim() > 2 else 1,
        "n_kv_heads": k.shape[-3] if k.dim() > 2 else 1,
        "head_dim": q.shape[-1],
        "head_dim_v": v.shape[-1],
        "seq_q": n_q,
        "seq_kv": n_kv,
        "causal": causal,
        "dtype": q.dtype,
    }
    if causal and n_q < n_kv:
        sizes["seq_kv"] = n_q  # the keys after the last query's are never seen
    elif causal and n_q > n_kv:
        sizes.update(causal=False, pairs=batch * (n_kv * (n_kv + 1) // 2 + (n_q - n_kv) * n_kv))
    return sizes


def attention_backward(call: Call, algorithm: str = "flash") -> Model:
    q, k, v = call["query"], call["key"], call["value"]
    sizes = _attention(q, k, v, causal=call.get("is_causal", False))
    return Model("attn_backward", {**sizes, "algorithm": algorithm})


def cross_entropy(call: Call) -> Model:
    logits = call["input"]
    classes = logits.shape[1] if logits.dim() > 1 else logits.shape[0]
    return Model("cross_entropy", {"rows": logits.numel() // classes, "cols": classes, "dtype": logits.dtype})


def _optimiser(algorithm: str) -> Callable[[Call], Model]:
    def build(call: Call) -> Model:
        parameters = call["self"]
        states = call.get("exp_avgs") or call.get("momentum_buffer_list") or [parameters[0]]
        sizes = {
            "numel": sum(tensor.numel() for tensor in parameters),
            "algorithm": "momentum" if algorithm == "sgd" and call.get("momentum_buffer_list") else algorithm,
            "dtype": parameters[0].dtype,
            "grad_dtype": call["grads"][0].dtype,
            "state_dtype": states[0].dtype,
        }
        return Model("optimiser", sizes)

    return build


_FLASH = "_scaled_dot_product_{}"
_BACKENDS = ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention")
_ATTENTION = [_FLASH.format(name) for name in (*_BACKENDS, "fused_attention_overrideable", "attention_math")]
_ATTENTION_BACKWARD = [_FLASH.format(name + "_backward") for name in (*_BACKENDS, "fused_attention_overrideable")]

#: By the operation's name, without the underscore of its in-place form.
TABLE: dict[str, Callable[[Call], Model | list[Model]]] = {
    "mm": _product("self", "mat2"),
    "bmm": _product("self", "mat2"),
    "mv": _product("self", "vec"),
    "dot": _product("self", "tensor"),
    "vdot": _product("self", "other"),
    "_int_mm": _product("self", "mat2"),
    "addmm": _product("mat1", "mat2", "self"),
    "_addmm_activation": _product("mat1", "mat2", "self"),
    "addmv": _product("mat", "vec", "self"),
    "baddbmm": _product("batch1", "batch2", "self"),
    "_scaled_mm": _scaled_mm,
    "linear": linear,
    "convolution": _convolution,
    "_convolution": _convolution,
    "convolution_overrideable": _convolution,
    "convolution_backward": _convolution_backward,
    **dict.fromkeys(_ATTENTION, attention),
    **dict.fromkeys(_ATTENTION_BACKWARD, attention_backward),
    "_softmax": _softmax,
    "_log_softmax": _softmax,
    "_safe_softmax": _softmax,
    "native_layer_norm": _layer_norm,
    "_fused_rms_norm": rms_norm,
    "native_group_norm": _group_norm,
    "embedding": _gather("weight", "indices"),
    "index_select": _gather("self", "index"),
    "index": _gather("self", "indices"),
    "gather": _gather("self", "index"),
    "take": _gather("self", "index"),
    **dict.fromkeys(("cat", "stack"), _cat),
    **dict.fromkeys(
        ("clone", "_to_copy", "copy", "flip", "roll", "repeat", "tril", "triu", "constant_pad_nd", "unfold_copy",
         "nonzero", "masked_select", "diag_embed", "reflection_pad1d", "reflection_pad2d", "replication_pad1d",
         "replication_pad2d", "pixel_shuffle", "pixel_unshuffle", "im2col", "repeat_interleave", "_pack_padded_sequence",
         "slice_backward", "select_backward", "unfold_backward", "embedding_dense_backward", "channel_shuffle"),
        _moved,
    ),
    **dict.fromkeys(
        ("index_put", "index_add", "index_copy", "scatter", "scatter_add", "masked_scatter", "index_fill",
         "_index_put_impl", "scatter_reduce"),
        _scatter,
    ),
    # Streams without a tag of torch's: maps with a few operations an element.
    **dict.fromkeys(
        ("fill", "zero", "zeros", "zeros_like", "ones", "ones_like", "full", "full_like", "arange", "linspace", "eye",
         "scalar_tensor", "new_zeros", "new_ones", "new_full", "rand", "rand_like", "randn", "randn_like", "randint",
         "randint_like", "uniform", "normal", "normal_functional", "bernoulli", "random", "exponential", "native_dropout",
         "native_dropout_backward", "_softmax_backward_data", "_log_softmax_backward_data", "native_layer_norm_backward",
         "_fused_rms_norm_backward", "native_group_norm_backward", "native_batch_norm", "_native_batch_norm_legit",
         "native_batch_norm_backward", "cudnn_batch_norm", "miopen_batch_norm", "nll_loss_forward", "nll_loss_backward",
         "nll_loss2d_forward", "nll_loss2d_backward", "mse_loss", "mse_loss_backward", "cumsum", "cumprod", "logcumsumexp",
         "glu", "glu_backward", "max_pool2d_with_indices", "avg_pool2d", "_adaptive_avg_pool2d", "upsample_nearest2d",
         "upsample_bilinear2d", "_foreach_norm", "_amp_foreach_non_finite_check_and_unscale"),
        elementwise,
    ),
    "var_mean": _reduce,
    "var": _reduce,
    "std": _reduce,
    "logsumexp": _reduce,
    "linalg_vector_norm": _reduce,
    "count_nonzero": _reduce,
    "_fused_adam": _optimiser("adam"),
    "_fused_adamw": _optimiser("adamw"),
    "_fused_sgd": _optimiser("sgd"),
}  # fmt: skip

#: They allocate, compare for the host or do nothing on the device.
FREE = {
    "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted", "_local_scalar_dense",
    "is_nonzero", "item", "_assert_async", "lift_fresh", "lift", "resize_", "resize_as_", "set_", "is_same_size", "sym_size",
    "sym_stride", "sym_numel", "record_stream", "is_pinned", "pin_memory", "_fused_sdp_choice", "is_set_to",
}  # fmt: skip
#: What they write to is not read.
WRITE_ONLY = {
    "copy_", "fill_", "zero_", "uniform_", "normal_", "bernoulli_", "random_", "exponential_", "zeros_like", "ones_like",
    "full_like", "rand_like", "randn_like", "randint_like", "new_zeros", "new_ones", "new_full",
}  # fmt: skip
#: A test's checks are not its kernel.
CHECKS = {"allclose", "equal", "isclose"}
