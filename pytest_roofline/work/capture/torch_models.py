"""What an operation of torch is to the engine: its op and parameters.

Imports torch, so it is imported only where the user's code already did.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from .record import Part, Region


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
        model = Model("optimiser", sizes, writes=written)
        if not call.get("amsgrad"):
            return model
        return model._replace(exact=True, note="AMSGrad's maximum left out of the FLOPs")

    return build
