"""What an operation of torch is to the engine: its op and parameters.

Imports torch, so it is imported only where the user's code already did.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

import torch

from roofline_engine.ops.matmul import positions_met

from ..coverage import LISTED, SOME
from ..trace import Part, Region


class Call:
    """One operation with what it was given.

    values: its arguments by name. reads, writes: its tensors. regions: what each of them covers, by its ``id``. looks: whether
    a model may look at what a tensor holds, such as indices.
    """

    __slots__ = ("looks", "name", "reads", "regions", "values", "writes")

    def __init__(
        self,
        name: str,
        values: Mapping[str, Any],
        reads: Sequence[Any],
        writes: Sequence[Any],
        regions: Mapping[int, Region],
        *,
        looks: bool = True,
    ) -> None:
        self.looks = looks
        self.name, self.values, self.reads, self.writes, self.regions = name, values, reads, writes, regions

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def get(self, name: str, default: Any = None) -> Any:
        value = self.values.get(name)
        return default if value is None else value


#: More indices than these are not sorted to find those that repeat, nor more elements of a mask counted.
MOST_LOOKED_AT = 1 << 22


def readable(call: Call, tensor: Any) -> bool:
    """Whether looking at what a tensor holds is safe, and cheap beside the call."""
    if not call.looks or tensor.device.type == "meta" or tensor.numel() > MOST_LOOKED_AT:
        return False
    if tensor.device.type != "cuda":
        return True
    return not (torch.cuda.is_current_stream_capturing() or torch.cuda.get_sync_debug_mode())


class Model(NamedTuple):
    """The engine's op of a call.

    op: None where nobody knows the FLOPs. charged: the operands that the engine counts in full; where they share memory,
    with themselves (an expanded dimension) or with each other, the figure is lower by that. extra: tensors read that the
    engine does not count. exact: the op's bytes are its tensors', so they are taken from these. reads, writes: of this part
    alone, where the call is several, or of those that move. part: what of a tensor is used, by its ``id``; partly: of which it
    is not known how much, so that its bytes are an upper bound.
    """

    op: str | None
    parameters: Mapping[str, Any] = {}
    charged: Sequence[Any] = ()
    extra: Sequence[Any] = ()
    exact: bool = False
    reads: Sequence[Any] | None = None
    writes: Sequence[Any] | None = None
    part: Mapping[int, Part] = {}
    partly: bool = False
    note: str = ""


UNKNOWN = Model(None)


def elementwise(call: Call) -> Model:
    """A map: every tensor of it once."""
    out = call.writes[0]
    numel, inputs, outputs = out.numel(), len(call.reads), len(call.writes)
    if outputs > 1:
        numel = max(tensor.numel() for tensor in call.writes)
        if call.name.startswith("_foreach_"):
            numel, inputs, outputs = sum(tensor.numel() for tensor in call.writes), 1, 1
    first = call.reads[0] if call.reads else out
    parameters = {"numel": numel, "inputs": inputs, "outputs": outputs, "dtype": first.dtype, "out_dtype": out.dtype}
    return Model("elementwise", parameters, exact=True)


def moved(call: Call) -> Model:
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


def copied(call: Call, numel: int) -> Model:
    """``numel`` elements written, none computed."""
    out, source = call.writes[0], call.reads[0] if call.reads else call.writes[0]
    sizes = {"rows": 1, "cols": max(numel, 1), "dtype": source.dtype, "out_dtype": out.dtype}
    return Model("copy", sizes, exact=True)


def listed(call: Call) -> Model:
    """Lists of tensors written, none computed."""
    return copied(call, sum(tensor.numel() for tensor in call.writes))


def norms(call: Call) -> Model:
    """One of each tensor of a list."""
    sizes = {"rows": 1, "cols": sum(tensor.numel() for tensor in call.reads), "dtype": call.reads[0].dtype}
    return Model("reduce", {**sizes, "out_dtype": call.writes[0].dtype}, exact=True)


def cat(call: Call) -> Model:
    return Model("cat", _rows(call.writes[0], call.reads[0]), exact=True)


def reduce(call: Call) -> Model:
    out, source = call.writes[0], max(call.reads, key=lambda tensor: tensor.numel())
    rows = out.numel()
    parameters = {"rows": rows, "cols": source.numel() // rows, "dtype": source.dtype, "out_dtype": out.dtype}
    return Model("reduce", parameters, exact=True)


def softmax(call: Call) -> Model:
    source = call["self"]
    cols = source.shape[call["dim"]] if source.dim() else 1
    return Model("softmax", _rows(call.writes[0], source, cols), charged=(source,))


def topk(call: Call) -> Model:
    source = call["self"]
    cols = source.shape[call.get("dim", -1)]
    sizes = {"rows": source.numel() // cols, "cols": cols, "k": call["k"], "dtype": source.dtype}
    return Model("topk", sizes, charged=(source,))


def layer_norm(call: Call) -> Model:
    source = call["input"]
    return _norm("layernorm", source, call.writes[0], call["normalized_shape"], (call.get("weight"), call.get("bias")))


def rms_norm(call: Call) -> Model:
    return _norm("rmsnorm", call["input"], call.writes[0], call["normalized_shape"], (call.get("weight"),))


def _norm(op: str, source: Any, out: Any, shape: Sequence[int], parameters: Sequence[Any]) -> Model:
    present = [tensor for tensor in parameters if tensor is not None]
    sizes = _rows(out, source, math.prod(shape))
    return Model(op, {**sizes, "weights": len(present)}, charged=(source, *present))


def group_norm(call: Call) -> Model:
    """Groups are rows; the weights are of channels, so the tensors say the bytes."""
    source, out = call["input"], call.writes[0]
    groups = call.get("group", 1) * source.shape[0]
    weights = sum(call.get(name) is not None for name in ("weight", "bias"))
    return Model("layernorm", {**_rows(out, source, source.numel() // groups), "weights": weights}, exact=True)


def cross_entropy(call: Call) -> Model:
    logits = call["input"]
    classes = logits.shape[1] if logits.dim() > 1 else logits.shape[0]
    return Model("cross_entropy", {"rows": logits.numel() // classes, "cols": classes, "dtype": logits.dtype})


def optimiser(algorithm: str) -> Callable[[Call], Model]:
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
        # torch says that it writes gradients, which it does where it takes a scale out of them alone.
        grads = () if call.get("grad_scale") is not None else {id(tensor) for tensor in call["grads"]}
        written = [tensor for tensor in call.writes if id(tensor) not in grads]
        model = Model("optimizer", sizes, writes=written)
        if not call.get("amsgrad"):
            return model
        return model._replace(exact=True, note="AMSGrad's maximum left out of the FLOPs")

    return build


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


def product(first: str, second: str, added: str = "") -> Callable[[Call], Model]:
    """Of two matrices or two batches of them; a vector is a matrix of one row or column."""

    def build(call: Call) -> Model:
        a, b = call[first], call[second]
        batch = a.shape[0] if a.dim() == 3 else 1
        m = a.shape[-2] if a.dim() > 1 else 1
        n = b.shape[-1] if b.dim() > 1 else 1
        c = call.get(added) if added else None
        if call.get("beta", 1) == 0:  # BLAS: then C is not read
            found = gemm(a, b, call.writes[0], m=m, n=n, k=a.shape[-1], batch=batch)
            return found._replace(reads=_without(call, c))
        return gemm(a, b, call.writes[0], m=m, n=n, k=a.shape[-1], batch=batch, addend=_elements(c))

    return build


def _elements(tensor: Any) -> int:
    """Distinct ones: a row that is expanded over a matrix is read once."""
    if tensor is None:
        return 0
    return math.prod(size for size, stride in zip(tensor.shape, tensor.stride()) if stride)


def _without(call: Call, tensor: Any) -> list[Any]:
    return [one for one in call.reads if one is not tensor]


def scaled_mm(call: Call) -> Model:
    a, b = call["self"], call["mat2"]
    found = gemm(a, b, call.writes[0], m=a.shape[0], n=b.shape[1], k=a.shape[1], addend=_elements(call.get("bias")))
    scales = [call.get(name) for name in ("scale_a", "scale_b")]
    return found._replace(extra=[scale for scale in scales if isinstance(scale, torch.Tensor) and scale.numel() > 1])


def linear(call: Call) -> Model:
    source, weight, out = call["input"], call["weight"], call.writes[0]
    n, k = (weight.shape[0], weight.shape[1]) if weight.dim() == 2 else (1, weight.shape[0])
    return gemm(source, weight, out, m=source.numel() // k, n=n, k=k, addend=_elements(call.get("bias")))


def convolution(call: Call) -> Model:
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
    dims = weight.dim() - 2
    large, small = (out, source) if transposed else (source, out)

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
    model = Model(f"conv{dims}d", parameters, charged=(source, weight))
    if direction == "data":
        return model
    axes = zip(parameters["input"], parameters["kernel"], parameters["stride"], parameters["padding"], parameters["dilation"])
    met = [positions_met(*axis, outputs) for axis, outputs in zip(axes, small.shape[2:])]
    return model._replace(part=met_only(large, met))


def met_only(source: Any, met: Sequence[int]) -> dict[int, Part]:
    """The part of an input of which windows meet so many positions along each axis; nothing where they meet all."""
    if list(met) == list(source.shape[-len(met) :]):
        return {}
    nbytes = float(math.prod(source.shape[: -len(met)]) * math.prod(met) * source.element_size())
    return {id(source): Part(nbytes, (SOME, *met, *source.shape, *source.stride()), True)}


def convolution_backward(call: Call) -> list[Model]:
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


MASKED = "attention under a mask of which it is not known what it hides: counted as if it hid nothing"


def attention(call: Call) -> Model:
    """Scaled dot-product attention. One query is a step of decoding."""
    q, k, v = call["query"], call["key"], call["value"]
    sizes = _attention(q, k, v, causal=bool(call.get("is_causal", False)))
    mask = _mask(call)
    extra = () if mask is None else (mask,)
    charged = () if sizes["seq_kv"] < k.shape[-2] else (q, k, v)  # else they are more than the engine counts
    pairs = _unhidden(call, mask, sizes)
    hides = pairs != _all_pairs(sizes)
    if sizes["seq_q"] > 1:
        sizes.update({"pairs": pairs} if mask is not None and hides and pairs is not None else {})
        unsure = mask is not None and pairs is None
        return Model("attn_prefill", sizes, charged=charged, extra=extra, partly=unsure, note=MASKED if unsure else "")
    sizes = {name: sizes[name] for name in ("batch", "n_q_heads", "n_kv_heads", "head_dim", "head_dim_v", "dtype", "seq_kv")}
    sizes.update(seq_len=sizes.pop("seq_kv"), kv_dtype=k.dtype)
    unsure = mask is not None and hides
    note = MASKED if unsure else ""
    return Model("attn_decode", sizes, charged=charged[1:], extra=extra, partly=unsure, note=note)


def _mask(call: Call) -> Any:
    mask = call.get("attn_mask", call.get("attn_bias"))
    return mask if isinstance(mask, torch.Tensor) else None


def _all_pairs(sizes: Mapping[str, Any]) -> int:
    return int(sizes["batch"] * sizes["seq_q"] * sizes["seq_kv"])


def _unhidden(call: Call, mask: Any, sizes: Mapping[str, Any]) -> int | None:
    """(query, key) pairs of a batch, per head, that a mask leaves; None where that cannot be looked up."""
    if mask is None or not readable(call, mask):
        return None
    left = int((mask if mask.dtype == torch.bool else ~torch.isneginf(mask)).sum())
    heads = sizes["n_q_heads"]
    pairs, rest = divmod(left * _all_pairs(sizes) * heads, mask.numel() * heads)  # a mask is expanded over what it lacks
    return None if rest else pairs


def _attention(q: Any, k: Any, v: Any, *, causal: bool) -> dict[str, Any]:
    """Sizes; torch's causal mask is aligned at the top left: query i sees the keys up to i, unlike the engine's."""
    (*batches, n_q, dim), (*_, n_kv, _), dim_v = _heads(q), _heads(k), v.shape[-1]
    batch = math.prod(batches[:-1])
    sizes = {
        "batch": batch,
        "n_q_heads": batches[-1],
        "n_kv_heads": _heads(k)[-3],
        "head_dim": dim,
        "head_dim_v": dim_v,
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


def _heads(tensor: Any) -> tuple[int, ...]:
    """Its shape, with one head where it has no dimension of heads."""
    shape = tuple(tensor.shape)
    return shape if len(shape) > 2 else (1, *shape)


def attention_backward(call: Call, algorithm: str = "flash") -> Model:
    q, k, v = call["query"], call["key"], call["value"]
    sizes = _attention(q, k, v, causal=call.get("is_causal", False))
    mask = _mask(call)
    if mask is None:
        return Model("attn_backward", {**sizes, "algorithm": algorithm})
    pairs = _unhidden(call, mask, sizes)
    hides = {"pairs": pairs} if pairs is not None and pairs != _all_pairs(sizes) else {}
    unsure = pairs is None
    sizes = {**sizes, **hides, "algorithm": algorithm}
    return Model("attn_backward", sizes, extra=(mask,), partly=unsure, note=MASKED if unsure else "")


def pool(dims: int) -> Callable[[Call], Model]:
    """One FLOP per element of a window, as for ``reduce``; positions that no window meets are not read."""

    def build(call: Call) -> Model:
        source, out = call["self"], call.writes[0]
        kernel = _per_axis(call["kernel_size"], dims)
        stride = _per_axis(call.get("stride") or kernel, dims)
        padding, dilation = _per_axis(call.get("padding", 0), dims), _per_axis(call.get("dilation", 1), dims)
        axes = zip(source.shape[-dims:], kernel, stride, padding, dilation, out.shape[-dims:])
        met = [positions_met(*axis) for axis in axes]
        return _reduced(source, out, math.prod(kernel) * out.numel())._replace(part=met_only(source, met))

    return build


def adaptive(call: Call) -> Model:
    """Window i of n over an axis of s positions is from floor(i s / n) to ceil((i + 1) s / n)."""
    source, out = call["self"], call.writes[0]
    sizes = call["output_size"]
    elements = math.prod(source.shape[: -len(sizes)])
    for size, many in zip(source.shape[-len(sizes) :], out.shape[-len(sizes) :]):
        elements *= sum(-(-(at + 1) * size // many) - at * size // many for at in range(many))
    return _reduced(source, out, elements)


def _reduced(source: Any, out: Any, elements: int) -> Model:
    sizes = {"rows": 1, "cols": elements, "dtype": source.dtype, "out_dtype": out.dtype}
    return Model("reduce", sizes, exact=True)


def _per_axis(value: Any, dims: int) -> list[int]:
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    return values * dims if len(values) == 1 else values


#: Stretches of a table that are listed one by one, so that what two look-ups share is known.
MOST_LISTED = 4096
REPEATED = "which rows its indices name is not known: the bytes of its table are an upper bound"
_key = count()


def _touched(call: Call, table: Any, dims: Sequence[int], indices: Sequence[Any]) -> Part:
    """The part of ``table`` at these indices along these dimensions, in full along the others; the indices broadcast."""
    rest = [at for at in range(table.dim()) if at not in dims]
    row = table.element_size() * math.prod(table.shape[at] for at in rest)
    return _part(call, table, dims, indices, rest, row)


def _element_part(call: Call, table: Any, dim: int, index: Any) -> Part:
    """The elements that ``gather`` or ``scatter`` reaches: along ``dim`` where the index says, elsewhere at its own place."""
    dims = range(table.dim())
    places = [
        index if at == dim else torch.arange(index.shape[at], device=index.device).view([-1 if to == at else 1 for to in dims])
        for at in dims
    ]
    return _part(call, table, list(dims), places, [], table.element_size())


def _part(call: Call, table: Any, dims: Sequence[int], indices: Sequence[Any], rest: Sequence[int], row: int) -> Part:
    whole = table.numel() * table.element_size()
    many = math.prod(torch.broadcast_shapes(*(index.shape for index in indices)))
    bound = Part(float(min(many * row, whole)), (SOME, next(_key)), False)
    if many > MOST_LOOKED_AT or not all(readable(call, index) for index in indices):
        return bound
    try:
        place = 0
        for dim, index in zip(dims, indices):
            place = place + torch.remainder(index.long(), table.shape[dim]) * table.stride(dim)
        places = torch.unique(place)
        found = int(places.numel())
        inner = math.prod(table.shape[at] for at in rest)
        nbytes = float(found * row)
        width = table.element_size()
        dense = _dense([(table.shape[at], table.stride(at)) for at in rest])
        if found * (1 if dense else inner) > MOST_LISTED:
            checked = int((places * torch.arange(1, found + 1, device=places.device)).sum())
            return Part(nbytes, (SOME, found, checked, *dims), True)
        run = inner if dense else 1
        if not dense:
            for at in rest:
                places = places[..., None] + torch.arange(table.shape[at], device=places.device) * table.stride(at)
        start = table.storage_offset()
        starts = sorted({(start + at) * width for at in places.flatten().tolist()})
    except (RuntimeError, NotImplementedError):  # indices without values, as a tracer's are
        return bound
    return Part(nbytes, (LISTED, run * width, *starts), True)


def _dense(dims: Sequence[tuple[int, int]]) -> bool:
    """Whether these dimensions are one stretch."""
    length = 1
    for size, stride in sorted(dims, key=lambda pair: pair[1]):
        if size != 1 and stride != length:
            return False
        length *= size
    return True


def _looked_up(call: Call, table: Any, indices: Any) -> Part:
    """The part of a table that ``table[indices]`` is; a mask stands for the places where it is true."""
    dims: list[int] = []
    given = []
    at = 0
    for index in indices:
        if index is None:
            at += 1
        elif index.dtype in (torch.bool, torch.uint8):
            if not readable(call, index):
                return Part(float(table.numel() * table.element_size()), (SOME, next(_key)), False)
            dims += range(at, at + index.dim())
            given += index.nonzero().unbind(-1)
            at += index.dim()
        else:
            dims.append(at)
            given.append(index)
            at += 1
    return _touched(call, table, dims, given)


def _indices(index: Any) -> list[Any]:
    return [one for one in index if one is not None] if isinstance(index, (list, tuple)) else [index]


# How an operation names its table, its indices and what it writes there.

Finds = Callable[[Call, Any], Part]


def rows(dim: str | int, index: str) -> Finds:
    """Along one dimension; ``dim``: its name, or which."""

    def find(call: Call, table: Any) -> Part:
        at = call[dim] if isinstance(dim, str) else dim
        return _touched(call, table, [at % table.dim()], [call[index].reshape(-1)]) if table.dim() else _all(table)

    return find


def places(call: Call, table: Any) -> Part:
    return _element_part(call, table, call["dim"] % table.dim(), call["index"]) if table.dim() else _all(table)


def flat(call: Call, table: Any) -> Part:
    """Of ``take`` and ``put``, which see their table as one row."""
    index = call["index"]
    if not table.is_contiguous():
        return Part(float(min(index.numel(), table.numel()) * table.element_size()), (SOME, next(_key)), False)
    return _touched(call, table.view(-1), [0], [index])


def indexed(call: Call, table: Any) -> Part:
    return _looked_up(call, table, call["indices"])


def masked(call: Call, table: Any) -> Part:
    return _looked_up(call, table, [call["mask"].expand_as(table)])


def _all(table: Any) -> Part:
    return Part(float(table.numel() * table.element_size()), None, True)


def gather(table: str, index: str, find: Finds) -> Callable[[Call], Model]:
    """Rows or elements of a table as they are asked for, each read once."""

    def build(call: Call) -> Model:
        source, indices, out = call[table], _indices(call[index]), call.writes[0]
        part = find(call, source)
        many = math.prod(torch.broadcast_shapes(*(one.shape for one in indices)))
        cols = max(out.numel() // max(many, 1), 1)
        if indices[0].dtype in (torch.bool, torch.uint8):
            cols = 1
        parameters = {
            "rows": out.numel() // cols, "cols": cols, "dtype": source.dtype, "out_dtype": out.dtype,
            "index_dtype": indices[0].dtype,
        }  # fmt: skip
        return _bounded(Model("gather", parameters, exact=True, part={id(source): part}), part)

    return build


def scatter(find: Finds, source: str = "", *, adds: bool = False) -> Callable[[Call], Model]:
    """Values written to some places of a table, or added to them: no other place of it moves, unless a copy is made.

    adds: it computes, so that what is there is read; also where the call says ``accumulate``.
    """

    def build(call: Call) -> Model:
        table, out = call["self"], call.writes[0]
        part = find(call, table)
        values = call.get(source) if source else None
        values = values if isinstance(values, torch.Tensor) else None
        computes = adds or bool(call.get("accumulate")) or isinstance(call.get("reduce"), str)
        others = tuple(tensor for tensor in call.reads if tensor is not table)
        if out is table:
            model = elementwise(call) if computes else copied(call, int(part.nbytes) // table.element_size())
            model = model._replace(reads=(*others, table) if computes else others, part={id(table): part})
        else:
            model = elementwise(call) if computes else copied(call, out.numel())
            untouched = float(table.numel() * table.element_size()) - part.nbytes
            left = Part(untouched, (SOME, next(_key)), part.exact)
            model = model._replace(part={} if computes else {id(table): left})
        if computes:
            numel = values.numel() if values is not None else int(part.nbytes) // table.element_size()
            model = model._replace(parameters={**model.parameters, "numel": numel, "outputs": 1})
        return _bounded(model, part)

    return build


def masked_scatter(call: Call) -> Model:
    """As many of the values, from the first on, as the mask has places."""
    model, source = scatter(masked)(call), call["source"]
    part = masked(call, call["self"])
    used = int(part.nbytes) // call["self"].element_size() * source.element_size()
    return model._replace(part={**model.part, id(source): Part(float(used), (SOME, next(_key)), part.exact)})


def slice_scatter(call: Call) -> Model:
    """A copy with one part from elsewhere."""
    table, source = call["self"], call["src"]
    left = float((table.numel() - source.numel()) * table.element_size())
    return copied(call, call.writes[0].numel())._replace(part={id(table): Part(left, (SOME, next(_key)), True)})


def nll_loss(call: Call) -> Model:
    """One of each row's log-probabilities, where the target says; a row that is ignored has none."""
    scores, target = call["self"], call["target"]
    if not readable(call, target):
        used, exact = target.numel(), False
    else:
        used, exact = int((target != call.get("ignore_index", -100)).sum()), True
    part = Part(float(used * scores.element_size()), (SOME, next(_key)), exact)
    if not used:
        return UNKNOWN._replace(note="every row is ignored")
    sizes = {"rows": 1, "cols": used, "dtype": scores.dtype, "out_dtype": call.writes[0].dtype}
    return _bounded(Model("reduce", sizes, exact=True, part={id(scores): part}), part)


def _bounded(model: Model, part: Part) -> Model:
    return model if part.exact else model._replace(partly=True, note="; ".join(filter(None, (model.note, REPEATED))))
