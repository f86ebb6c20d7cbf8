"""Matrix products, convolutions and attention of torch as the engine's ops.

Imports torch, so it is imported only where the user's code already did.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from roofline_engine.ops_matmul import positions_met

from .covered import SOME
from .record import Part
from .torch_models import Call, Model, readable


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
