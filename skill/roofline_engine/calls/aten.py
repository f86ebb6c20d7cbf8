"""What an operation of PyTorch is to the engine: the op and its parameters, from one builder of ``OpSpec`` for each kind.

``TABLE`` has the builder of each operation by name; torch's own tags classify the operations outside of the table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..fields import note
from ..ops.matmul import positions_met
from . import serving
from .call import (
    UNKNOWN,
    UNKNOWN_MASK,
    UNKNOWN_ROWS,
    Call,
    OpSpec,
    Part,
    TensorFacts,
    Unknown,
    broadcast,
    is_complex,
    is_mask,
    is_tensor,
    nbytes_of,
    unknown_part,
)

if TYPE_CHECKING:
    from .call import Builder, Builders

# Streams: element by element, copies, reductions, norms.


def elementwise(call: Call) -> OpSpec:
    """Count each tensor of a map once."""
    out = call.writes[0]
    numel, inputs, outputs = out.numel(), len(call.reads), len(call.writes)
    if outputs > 1:
        numel = max(tensor.numel() for tensor in call.writes)
        if call.name.startswith("_foreach_"):
            numel, inputs, outputs = sum(tensor.numel() for tensor in call.writes), 1, 1
    first = call.reads[0] if call.reads else out
    parameters = {"numel": numel, "inputs": inputs, "outputs": outputs, "dtype": first.dtype, "out_dtype": out.dtype}
    return OpSpec("elementwise", parameters, exact=True)


def move(call: Call) -> OpSpec:
    """Move elements, as a copy or a transpose: nothing is computed."""
    out, source = call.writes[0], call.reads[0] if call.reads else call.writes[0]
    is_transposed = out.shape == source.shape and _order(out) != _order(source)
    return OpSpec("transpose" if is_transposed else "copy", _rows(out, source), exact=True)


def _order(tensor: Any) -> list[int]:
    """Return the dimensions with a length, from the slowest to the fastest."""
    strides, sizes = tensor.stride(), tensor.size()
    return sorted((at for at in range(len(sizes)) if sizes[at] > 1 and strides[at]), key=lambda at: -strides[at])


def _rows(out: Any, source: Any, cols: int | None = None) -> dict[str, Any]:
    cols = cols or (out.shape[-1] if out.dim() else 1)
    return {"rows": out.numel() // cols, "cols": cols, "dtype": source.dtype, "out_dtype": out.dtype}


def copy_elements(call: Call, numel: int | None = None) -> OpSpec:
    """Write ``numel`` elements, or all; nothing is computed."""
    out, source = call.writes[0], call.reads[0] if call.reads else call.writes[0]
    numel = sum(tensor.numel() for tensor in call.writes) if numel is None else numel
    return OpSpec("copy", {"rows": 1, "cols": max(numel, 1), "dtype": source.dtype, "out_dtype": out.dtype}, exact=True)


def cat(call: Call) -> OpSpec:
    return OpSpec("cat", _rows(call.writes[0], call.reads[0]), exact=True)


def _reduce(rows: int, cols: int, source: Any, out: Any) -> OpSpec:
    return OpSpec("reduce", {"rows": rows, "cols": cols, "dtype": source.dtype, "out_dtype": out.dtype}, exact=True)


def reduce(call: Call) -> OpSpec:
    out, source = call.writes[0], max(call.reads, key=lambda tensor: tensor.numel())
    return _reduce(out.numel(), source.numel() // out.numel(), source, out)


def reduce_lists(call: Call) -> OpSpec:
    """Take one norm of each tensor of a list."""
    return _reduce(1, sum(tensor.numel() for tensor in call.reads), call.reads[0], call.writes[0])


def softmax(call: Call) -> OpSpec:
    source = call["self"]
    cols = source.shape[call["dim"]] if source.dim() else 1
    return OpSpec("softmax", _rows(call.writes[0], source, cols), charged=(source,))


def topk(call: Call) -> OpSpec:
    source = call["self"]
    cols = source.shape[call.get("dim", -1)]
    sizes = {"rows": source.numel() // cols, "cols": cols, "k": call["k"], "dtype": source.dtype}
    return OpSpec("topk", sizes, charged=(source,))


def norm(op: str, *weights: str) -> Builder:
    def build(call: Call) -> OpSpec:
        source = call["input"]
        present = [call[name] for name in weights if call.get(name) is not None]
        sizes = _rows(call.writes[0], source, math.prod(call["normalized_shape"]))
        return OpSpec(op, {**sizes, "weights": len(present)}, charged=(source, *present))

    return build


def group_norm(call: Call) -> OpSpec:
    """Treat groups as rows; the weights are per channel, so the bytes are those of the tensors."""
    source, out = call["input"], call.writes[0]
    groups = call.get("group", 1) * source.shape[0]
    weights = sum(call.get(name) is not None for name in ("weight", "bias"))
    return OpSpec("layernorm", {**_rows(out, source, source.numel() // groups), "weights": weights}, exact=True)


def cross_entropy(call: Call) -> OpSpec:
    logits = call["input"]
    classes = logits.shape[1] if logits.dim() > 1 else logits.shape[0]
    return OpSpec("cross_entropy", {"rows": logits.numel() // classes, "cols": classes, "dtype": logits.dtype})


def optimizer(algorithm: str) -> Builder:
    def build(call: Call) -> OpSpec:
        parameters = call["self"]
        states = call.get("exp_avgs") or call.get("momentum_buffer_list") or [parameters[0]]
        sizes = {
            "numel": sum(tensor.numel() for tensor in parameters),
            "algorithm": "momentum" if algorithm == "sgd" and call.get("momentum_buffer_list") else algorithm,
            "dtype": parameters[0].dtype,
            "grad_dtype": call["grads"][0].dtype,
            "state_dtype": states[0].dtype,
        }
        # The schema lists gradients as written; they are written only where a scale is taken out of them.
        grads = () if call.get("grad_scale") is not None else {id(tensor) for tensor in call["grads"]}
        spec = OpSpec("optimizer", sizes, writes=[tensor for tensor in call.writes if id(tensor) not in grads])
        if not call.get("amsgrad"):
            return spec
        return spec._replace(exact=True, notes=(note("AMSGrad's maximum left out of the FLOPs"),))

    return build


# Products: matrices, convolutions, attention.


_COMPLEX = OpSpec(None, notes=(note("complex products have no model"),))


def gemm(call: Call, a: Any, b: Any, out: Any, *, m: int, n: int, k: int, batch: int = 1, addend: Any = None) -> OpSpec:
    """Multiply ``batch`` pairs of an m x k and a k x n matrix; ``addend``: a matrix or a bias that is added."""
    if is_complex(out.dtype):
        return _COMPLEX
    parameters: dict[str, Any] = {"M": m, "N": n, "K": k, "batch": batch, "dtype": call.matrix_dtype(a), "out_dtype": out.dtype}
    if addend is not None:  # a row that is expanded over the matrix is read once
        parameters["addend"] = math.prod(size for size, stride in zip(addend.shape, addend.stride()) if stride)
    if b.dtype != a.dtype:
        parameters["weight_dtype"] = b.dtype
    return OpSpec("gemm", parameters, charged=(a, b))


def product(first: str, second: str, added: str = "") -> Builder:
    """Multiply two matrices or two batches of them; a vector is a matrix with one row or column."""

    def build(call: Call) -> OpSpec:
        a, b = call[first], call[second]
        batch = a.shape[0] if a.dim() == 3 else 1
        m = a.shape[-2] if a.dim() > 1 else 1
        n = b.shape[-1] if b.dim() > 1 else 1
        c = call.get(added) if added else None
        ignores_c = call.get("beta", 1) == 0  # BLAS does not read C then
        if call.get("alpha", 1) == 0:  # nor A and B: nothing is multiplied
            out = call.writes[0]
            sizes = {"rows": 1, "cols": max(out.numel(), 1), "dtype": out.dtype}
            return OpSpec("copy", sizes, exact=True, reads=[] if ignores_c or c is None else [c])
        spec = gemm(call, a, b, call.writes[0], m=m, n=n, k=a.shape[-1], batch=batch, addend=None if ignores_c else c)
        return spec._replace(reads=[tensor for tensor in call.reads if tensor is not c]) if ignores_c else spec

    return build


def scaled_mm(call: Call) -> OpSpec:
    a, b = call["self"], call["mat2"]
    spec = gemm(call, a, b, call.writes[0], m=a.shape[0], n=b.shape[1], k=a.shape[1], addend=call.get("bias"))
    scales = [call.get(name) for name in ("scale_a", "scale_b")]
    return spec._replace(extra=[scale for scale in scales if is_tensor(scale) and scale.numel() > 1])


def linear(call: Call) -> OpSpec:
    source, weight, out = call["input"], call["weight"], call.writes[0]
    n, k = (weight.shape[0], weight.shape[1]) if weight.dim() == 2 else (1, weight.shape[0])
    return gemm(call, source, weight, out, m=source.numel() // k, n=n, k=k, addend=call.get("bias"))


def per_axis(value: Any, dims: int) -> list[int]:
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    return values * dims if len(values) == 1 else values


def convolution(call: Call) -> OpSpec:
    direction = "data" if call.get("transposed") else "forward"
    spec = _convolution(call, call["input"], call["weight"], call.writes[0], direction)
    if call.get("bias") is None or spec.op is None:
        return spec
    return spec._replace(parameters={**spec.parameters, "bias": True})


def _convolution(call: Call, source: Any, weight: Any, out: Any, direction: str) -> OpSpec:
    """Model the convolution with this input and output; a transposed convolution is the product by data."""
    if is_complex(source.dtype):
        return _COMPLEX
    dims = weight.dim() - 2
    large, small = (out, source) if call.get("transposed") else (source, out)
    parameters = {
        "batch": large.shape[0],
        "in_channels": large.shape[1],
        "out_channels": small.shape[1],
        "input": tuple(large.shape[2:]),
        "kernel": tuple(weight.shape[2:]),
        "stride": tuple(per_axis(call.get("stride", 1), dims)),
        "padding": tuple(per_axis(call.get("padding", 0), dims)),
        "dilation": tuple(per_axis(call.get("dilation", 1), dims)),
        "groups": call.get("groups", 1),
        "direction": direction,
        "dtype": call.matrix_dtype(source, convolution=True),
    }
    spec = OpSpec(f"conv{dims}d", parameters, charged=(source, weight))
    if direction == "data":
        return spec
    windows = [parameters[name] for name in ("kernel", "stride", "padding", "dilation")]
    return spec._replace(parts=_parts_met(large, *windows, small.shape[2:]))


def _parts_met(source: Any, *windows: Sequence[int]) -> dict[int, Part]:
    """Return the part of an input that windows meet; empty where they meet all.

    windows: kernel, stride, padding, dilation and number along each axis.
    """
    sizes = source.shape[-len(windows[0]) :]
    met = [positions_met(*axis) for axis in zip(sizes, *windows)]
    if met == list(sizes):
        return {}
    nbytes = float(math.prod(source.shape[: -len(met)]) * math.prod(met) * source.element_size())
    return {id(source): Part(nbytes, Unknown((*met, *source.shape, *source.stride())), True)}


def convolution_backward(call: Call) -> list[OpSpec]:
    grad, source, weight = call["grad_output"], call["input"], call["weight"]
    products = (("forward" if call.get("transposed") else "data", weight), ("weight", source))
    grads = list(call.writes)
    specs = []
    for is_wanted, (direction, operand) in zip(call["output_mask"], products):
        if is_wanted:
            spec = _convolution(call, source, weight, grad, direction)
            specs.append(spec._replace(charged=(grad, operand), reads=(grad, operand), writes=(grads.pop(0),)))
    if call["output_mask"][2]:
        bias = grads.pop(0)
        spec = _reduce(bias.numel(), grad.numel() // bias.numel(), grad, bias)
        specs.append(spec._replace(reads=(grad,), writes=(bias,)))
    return specs


def attention(call: Call) -> OpSpec:
    """Model scaled dot-product attention. One query is a step of decoding."""
    q, k, v = call["query"], call["key"], call["value"]
    sizes = _attention_sizes(call)
    charged = () if sizes["seq_kv"] < k.shape[-2] else (q, k, v)  # else they are more than the engine counts
    if sizes["seq_q"] > 1:
        return _under_mask(call, OpSpec("attn_prefill", sizes, charged=charged), sizes)
    names = ("batch", "n_q_heads", "n_kv_heads", "head_dim", "head_dim_v", "dtype")
    parameters = {**{name: sizes[name] for name in names}, "seq_len": sizes["seq_kv"], "kv_dtype": k.dtype}
    return _under_mask(call, OpSpec("attn_decode", parameters, charged=charged[1:]), sizes)


def attention_backward(call: Call, algorithm: str = "flash") -> OpSpec:
    sizes = _attention_sizes(call)
    return _under_mask(call, OpSpec("attn_backward", {**sizes, "algorithm": algorithm}), sizes)


def _by_rows(call: Call) -> Call:
    """Return a call of FlashAttention's own kernel, whose tensors have the heads after the rows, as ``attention`` has them."""
    values = dict(call.values)
    for name in ("query", "key", "value"):
        tensor = values[name]
        order = [0, 2, 1, 3]
        values[name] = TensorFacts([tensor.shape[at] for at in order], str(tensor.dtype), [tensor.stride()[at] for at in order])
    if call.get("custom_mask_type"):  # of xFormers: causal from the top left or the bottom right
        values["is_causal"] = True
    return Call(call.name, values, call.reads, call.writes)


def _without_batch(tensor: Any) -> Any:
    """Return the rows of a ragged batch, which xFormers puts into a batch of one."""
    return TensorFacts(tensor.shape[1:], str(tensor.dtype), tensor.stride()[1:]) if tensor.dim() == 4 else tensor


def kernel_attention(build: Builder, build_ragged: Builder) -> Builder:
    """Model FlashAttention's and xFormers' own operations, over equal sequences or a ragged batch."""

    def build_by_rows(call: Call) -> OpSpec:
        lengths = call.get("cum_seq_q", call.get("cu_seqlens_q"))
        if not is_tensor(lengths):
            return build(_by_rows(call))._replace(charged=())
        values = {short: call.get(name) for short, name in (("q", "query"), ("k", "key"), ("v", "value"))}
        values.update(
            {name: _without_batch(tensor) for name, tensor in values.items()},
            cu_seqlens_q=lengths,
            max_q=call.get("max_q", call.get("max_seqlen_q")),
            max_k=call.get("max_k", call.get("max_seqlen_k")),
            causal=bool(call.get("is_causal") or call.get("custom_mask_type")),
            window_left=call.get("window_size_left"),
            window_right=call.get("window_size_right"),
        )
        return build_ragged(Call(call.name, values, call.reads, call.writes))

    return build_by_rows


def _under_mask(call: Call, spec: OpSpec, sizes: Mapping[str, Any]) -> OpSpec:
    """Add what a mask hides, where it can be read, and where the op has a parameter for it."""
    mask = call.get("attn_mask", call.get("attn_bias"))
    if not is_tensor(mask):
        return spec
    pairs = int(sizes["batch"] * sizes["seq_q"] * sizes["seq_kv"])
    visible = call.visible_pairs(mask, pairs)
    spec = spec._replace(extra=(mask,))
    if visible is None or (visible != pairs and spec.op == "attn_decode"):
        return spec._replace(is_bound=True, notes=(UNKNOWN_MASK,))
    return spec if visible == pairs else spec._replace(parameters={**spec.parameters, "pairs": visible})


def _attention_sizes(call: Call) -> dict[str, Any]:
    """Return the sizes. Torch's causal mask starts at the top left, unlike the engine's: query i sees the keys up to i."""
    q, k, v = _with_heads(call["query"]), _with_heads(call["key"]), call["value"]
    (*batches, n_q, dim), n_kv, causal = q, k[-2], bool(call.get("is_causal", False))
    batch = math.prod(batches[:-1])
    sizes = {
        "batch": batch,
        "n_q_heads": batches[-1],
        "n_kv_heads": k[-3],
        "head_dim": dim,
        "head_dim_v": v.shape[-1],
        "seq_q": n_q,
        "seq_kv": n_kv,
        "causal": causal,
        "dtype": call["query"].dtype,
    }
    if causal and n_q < n_kv:
        sizes["seq_kv"] = n_q  # no query sees the keys after the last query
    elif causal and n_q > n_kv:
        sizes.update(causal=False, pairs=batch * (n_kv * (n_kv + 1) // 2 + (n_q - n_kv) * n_kv))
    return sizes


def _with_heads(tensor: Any) -> tuple[int, ...]:
    """Return its shape, with one head where it has no dimension of heads."""
    shape = tuple(tensor.shape)
    return shape if len(shape) > 2 else (1, *shape)


# Pooling: windows over an input, some of which skip positions.


def pool(dims: int) -> Builder:
    """Count one FLOP per element of a window, as ``reduce`` does; positions that no window meets are not read."""

    def build(call: Call) -> OpSpec:
        source, out = call["self"], call.writes[0]
        kernel = per_axis(call["kernel_size"], dims)
        stride = per_axis(call.get("stride") or kernel, dims)
        padding, dilation = per_axis(call.get("padding", 0), dims), per_axis(call.get("dilation", 1), dims)
        parts = _parts_met(source, kernel, stride, padding, dilation, out.shape[-dims:])
        return _reduce(1, math.prod(kernel) * out.numel(), source, out)._replace(parts=parts)

    return build


def adaptive_pool(call: Call) -> OpSpec:
    """Count the elements of all windows: window i of n over s positions goes from floor(i s / n) to ceil((i + 1) s / n)."""
    source, out = call["self"], call.writes[0]
    sizes = call["output_size"]
    elements = math.prod(source.shape[: -len(sizes)])
    for size, windows in zip(source.shape[-len(sizes) :], out.shape[-len(sizes) :]):
        elements *= sum(-(-(at + 1) * size // windows) - at * size // windows for at in range(windows))
    return _reduce(1, elements, source, out)


# Indexing: rows or elements of a table, by the values of the indices.


def gather(table: str, index: str, find: str) -> Builder:
    """Look up rows or elements of a table, each read once."""

    def build(call: Call) -> OpSpec:
        source, indices, out = call[table], call[index], call.writes[0]
        indices = [one for one in indices if one is not None] if isinstance(indices, (list, tuple)) else [indices]
        part = call.find(find, source)
        looked_up = math.prod(broadcast([tuple(one.shape) for one in indices]))
        cols = 1 if is_mask(indices[0]) else max(out.numel() // max(looked_up, 1), 1)
        sizes = {**_rows(out, source, cols), "index_dtype": indices[0].dtype}
        return _with_part(OpSpec("gather", sizes, exact=True, parts={id(source): part}), part)

    return build


def scatter(find: str, source: str = "", *, adds: bool = False) -> Builder:
    """Write values to some places of a table, or add them: no other place of it moves, unless a copy is made.

    adds: it computes, so that the old values are read; also where the call has ``accumulate``.
    """

    def build(call: Call) -> OpSpec:
        table, out = call["self"], call.writes[0]
        part = call.find(find, table)
        values = call.get(source) if source else None
        computes = adds or bool(call.get("accumulate")) or isinstance(call.get("reduce"), str)
        others = tuple(tensor for tensor in call.reads if tensor is not table)
        changed = int(part.nbytes) // table.element_size()
        if out is table:
            spec = elementwise(call) if computes else copy_elements(call, changed)
            spec = spec._replace(reads=(*others, table) if computes else others, parts={id(table): part})
        else:
            spec = elementwise(call) if computes else copy_elements(call)
            unchanged = unknown_part(nbytes_of(table) - part.nbytes)
            spec = spec._replace(parts={} if computes or not part.exact else {id(table): unchanged})
        if computes:
            numel = values.numel() if values is not None and is_tensor(values) else changed
            spec = spec._replace(parameters={**spec.parameters, "numel": numel, "outputs": 1})
        return _with_part(spec, part)

    return build


def masked_scatter(call: Call) -> OpSpec:
    """Write as many of the values, from the first on, as the mask has places."""
    spec, source = scatter("indexed")(call), call["source"]
    part = call.find("indexed", call["self"])
    nbytes = int(part.nbytes) // call["self"].element_size() * source.element_size()
    return spec._replace(parts={**spec.parts, id(source): unknown_part(nbytes, exact=part.exact)})


def slice_scatter(call: Call) -> OpSpec:
    """Copy a table with one part from another tensor."""
    table = call["self"]
    unchanged = unknown_part((table.numel() - call["src"].numel()) * table.element_size())
    return copy_elements(call)._replace(parts={id(table): unchanged})


def nll_loss(call: Call) -> OpSpec:
    """Take one of each row's log-probabilities, by the target; an ignored row has none."""
    scores, target = call["self"], call["target"]
    kept = call.kept_rows(target, call.get("ignore_index", -100))
    rows = target.numel() if kept is None else kept
    if not rows:
        return UNKNOWN._replace(notes=(note("every row is ignored"),))
    part = unknown_part(rows * scores.element_size(), exact=kept is not None)
    return _with_part(_reduce(1, rows, scores, call.writes[0])._replace(parts={id(scores): part}), part)


def _with_part(spec: OpSpec, part: Part) -> OpSpec:
    return spec if part.exact else spec._replace(is_bound=True, notes=(*spec.notes, UNKNOWN_ROWS))


# Which builder an operation has.


def spec_builder(name: str, *, is_pointwise: bool, is_reduction: bool) -> Builders:
    """Return what builds the spec of a call of this operation: several specs where it does the work of several kernels.

    is_pointwise, is_reduction: torch's tags of the operation, which classify the operations outside of ``TABLE``.
    """
    builder = TABLE.get(name.rstrip("_")) or TABLE.get(name)
    if builder is not None:
        return builder
    if name.startswith("_foreach_") or is_pointwise:
        return elementwise
    if is_reduction:
        return reduce
    return lambda call: UNKNOWN


#: Prefix of attention that torch did not take apart: one operation forward, and one backward.
FUSED = "_scaled_dot_product"
_SDPA = ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention", "fused_attention_overrideable")

#: By the operation's name, without the underscore of its in-place form.
TABLE: dict[str, Builders] = {
    **dict.fromkeys(("mm", "bmm", "_int_mm"), product("self", "mat2")),
    "mv": product("self", "vec"),
    "dot": product("self", "tensor"),
    "vdot": product("self", "other"),
    **dict.fromkeys(("addmm", "_addmm_activation"), product("mat1", "mat2", "self")),
    "addmv": product("mat", "vec", "self"),
    "baddbmm": product("batch1", "batch2", "self"),
    "_scaled_mm": scaled_mm,
    "linear": linear,
    **dict.fromkeys(("convolution", "_convolution", "convolution_overrideable"), convolution),
    "convolution_backward": convolution_backward,
    **{f"{FUSED}_{name}": attention for name in (*_SDPA, "attention_math")},
    **{f"{FUSED}_{name}_backward": attention_backward for name in _SDPA},
    **dict.fromkeys(
        ("_flash_attention_forward", "_efficient_attention_forward"),
        kernel_attention(attention, serving.attention),
    ),
    **dict.fromkeys(
        ("_flash_attention_backward", "_efficient_attention_backward"),
        kernel_attention(attention_backward, serving.attention_backward),
    ),
    **dict.fromkeys(("_softmax", "_log_softmax", "_safe_softmax"), softmax),
    "native_layer_norm": norm("layernorm", "weight", "bias"),
    "_fused_rms_norm": norm("rmsnorm", "weight"),
    "native_group_norm": group_norm,
    "embedding": gather("weight", "indices", "0:indices"),
    "index_select": gather("self", "index", "dim:index"),
    "index": gather("self", "indices", "indexed"),
    "gather": gather("self", "index", "elements"),
    "take": gather("self", "index", "flat"),
    **dict.fromkeys(("cat", "stack"), cat),
    **dict.fromkeys(
        ("clone", "_to_copy", "copy", "flip", "roll", "repeat", "tril", "triu", "constant_pad_nd", "unfold_copy",
         "nonzero", "masked_select", "diag_embed", "reflection_pad1d", "reflection_pad2d", "replication_pad1d",
         "replication_pad2d", "pixel_shuffle", "pixel_unshuffle", "im2col", "repeat_interleave", "_pack_padded_sequence",
         "slice_backward", "select_backward", "unfold_backward", "embedding_dense_backward", "channel_shuffle",
         "fill", "zero", "zeros", "zeros_like", "ones", "ones_like", "full", "full_like", "eye", "scalar_tensor", "new_zeros",
         "new_ones", "new_full"),
        move,
    ),
    **dict.fromkeys(("index_put", "_index_put_impl", "_unsafe_index_put"), scatter("indexed", "values")),
    **dict.fromkeys(("index_add", "index_reduce"), scatter("dim:index", "source", adds=True)),
    "index_copy": scatter("dim:index", "source"),
    "index_fill": scatter("dim:index"),
    "scatter": scatter("elements", "src"),
    **dict.fromkeys(("scatter_add", "scatter_reduce"), scatter("elements", "src", adds=True)),
    "put": scatter("flat", "source"),
    "masked_fill": scatter("indexed"),
    "masked_scatter": masked_scatter,
    **dict.fromkeys(("slice_scatter", "select_scatter", "diagonal_scatter"), slice_scatter),
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), nll_loss),
    # Streams without a tag: maps with a few operations per element.
    **dict.fromkeys(
        ("arange", "linspace", "rand", "rand_like", "randn", "randn_like", "randint",
         "randint_like", "uniform", "normal", "normal_functional", "bernoulli", "random", "exponential", "native_dropout",
         "native_dropout_backward", "_softmax_backward_data", "_log_softmax_backward_data", "native_layer_norm_backward",
         "_fused_rms_norm_backward", "native_group_norm_backward", "native_batch_norm", "_native_batch_norm_legit",
         "native_batch_norm_backward", "cudnn_batch_norm", "miopen_batch_norm", "nll_loss_backward", "nll_loss2d_backward",
         "mse_loss_backward", "cumsum", "cumprod", "logcumsumexp",
         "glu", "glu_backward", "upsample_nearest2d", "upsample_bilinear2d", "_amp_foreach_non_finite_check_and_unscale"),
        elementwise,
    ),
    "topk": topk,
    **{f"{name}_pool{dims}d": pool(dims) for name in ("avg", "max") for dims in (1, 2, 3)},
    **{f"max_pool{dims}d_with_indices": pool(dims) for dims in (2, 3)},
    **dict.fromkeys(
        ("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_max_pool2d", "adaptive_max_pool3d"),
        adaptive_pool,
    ),
    **dict.fromkeys(("_foreach_copy", "_foreach_zero"), copy_elements),
    "_foreach_norm": reduce_lists,
    **dict.fromkeys(("mse_loss", "var_mean", "var", "std", "logsumexp", "linalg_vector_norm", "count_nonzero"), reduce),
    "_fused_adam": optimizer("adam"),
    "_fused_adamw": optimizer("adamw"),
    "_fused_sgd": optimizer("sgd"),
}  # fmt: skip

#: Operations that allocate, compare for the host or do nothing on the device.
FREE = {
    "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted", "_local_scalar_dense",
    "is_nonzero", "item", "_assert_async", "lift_fresh", "lift", "resize_", "resize_as_", "set_", "is_same_size", "sym_size",
    "sym_stride", "sym_numel", "record_stream", "device", "layout", "is_pinned", "pin_memory", "_fused_sdp_choice", "is_set_to",
}  # fmt: skip
#: Operations that do not read what they write to.
WRITE_ONLY = {
    "copy_", "_foreach_copy_", "_foreach_zero_",
    "fill_", "zero_", "uniform_", "normal_", "bernoulli_", "random_", "exponential_", "zeros_like", "ones_like",
    "full_like", "rand_like", "randn_like", "randint_like", "new_zeros", "new_ones", "new_full",
}  # fmt: skip
