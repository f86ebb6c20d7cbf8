"""Shapes for a row that has none captured: from its own ``est_shape`` or tensors, else from the model's config (stage A).

Everything here is a guess that is shown and never ranked on. What cannot be told is refused with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping

from .inputs import Env, Row
from .kernels import UNMODELLED, Hint
from .models import OPS
from .record import TYPE_CHECKING
from .share import CannotModelError, launch_tokens, named_dtype, of_one_rank, parallel, sixteen_bit
from .units import Dtype, parse_dtype, whole

if TYPE_CHECKING:
    from .modelconfig import ModelConfig

#: Tile of aiter's fp4 MoE kernels: its tuned gpt-oss files hold 3072 where config.json says 2880.
_FP4_TILE = 256
_WHICH = "which of the model's operands these are cannot be told"
_OPERANDS = {"attn_prefill": "how the tokens of a launch split into sequences is unknown"}


def parameters(
    row: Row, hint: Hint, regime: str, env: Env, config: ModelConfig | None, notes: list[str]
) -> tuple[str, dict[str, object]]:
    """Op and work-model parameters for one row; what was assumed goes to ``notes``.

    Raises:
        CannotModelError: with the reason.
    """
    given = _estimated(row, hint, notes) or _from_tensors(row, hint, notes)
    if given:
        return given
    from . import guess_attention  # the rows of a dense profile have no use for it

    if hint.op == "mla_decode":
        return "mla_decode", guess_attention.latent(row, hint, regime, env, config, notes)
    if hint.op not in OPS:
        raise CannotModelError(UNMODELLED.get(hint.op, f"{hint.op}: no work model"))
    if hint.op not in ("moe", "attn_decode", "rmsnorm"):
        raise CannotModelError(f"{hint.op} without usable shapes: {_OPERANDS.get(hint.op, _WHICH)}")
    if config is None:
        raise CannotModelError(f"{hint.op} without usable shapes, and no config.json of the model")
    if hint.op == "attn_decode" and config.mla is not None and not config.attention_kind:
        return "mla_decode", guess_attention.latent(row, hint, regime, env, config, notes)
    if hint.op == "attn_decode" and regime == "prefill":
        raise CannotModelError(f"attention at prefill without usable shapes: {_OPERANDS['attn_prefill']}")
    tokens = launch_tokens(regime, env, notes)
    if hint.op == "moe":
        return "moe", _moe(hint, tokens, env, config, notes)
    if hint.op == "attn_decode":
        return "attn_decode", guess_attention.attention(row, tokens, env, config, notes)
    return "rmsnorm", _rmsnorm(row, tokens, env, config, notes)


def _estimated(row: Row, hint: Hint, notes: list[str]) -> tuple[str, dict[str, object]] | None:
    """``est_shape`` as parameters of the op: an object, or text such as ``M=64, N=4096, K=2048, dtype=bf16``."""
    if row.est_shape is None:
        return None
    if isinstance(row.est_shape, Mapping):
        values = {str(key): value for key, value in row.est_shape.items()}
    elif isinstance(row.est_shape, str) and "=" in row.est_shape:
        pairs = (item.partition("=") for item in row.est_shape.replace(";", ",").split(","))
        values = {key.strip(): value.strip() for key, _, value in pairs if key.strip()}
    else:
        notes.append("est_shape is neither an object nor text like M=64, N=4096: not used")
        return None
    op = values.pop("op", hint.op)
    for key in ("launches", "calls", "t_us"):
        values.pop(key, None)
    if not isinstance(op, str) or op not in OPS:
        raise CannotModelError(f"est_shape: no work model for op {op!r:.40}")
    if "dtype" not in values and isinstance(row.dtypes, list) and row.dtypes:
        values["dtype"] = row.dtypes[0]
    notes.append("shapes from est_shape")
    return op, values


def _from_tensors(row: Row, hint: Hint, notes: list[str]) -> tuple[str, dict[str, object]] | None:
    """The row's own tensor shapes and dtypes, for the ops whose operands they identify."""
    if hint.op not in ("gemm", "elementwise", "copy", "softmax", "rmsnorm", "layernorm"):
        return None
    tensors = _tensors(row, notes)
    if not tensors:
        return None
    used = "shapes from the Top-N's tensors"
    first, dtype = tensors[0]
    if hint.op == "gemm":
        matrices = [item for item in tensors if len(item[0]) == 2][:2]
        if len(matrices) < 2:
            return None
        (m, k), (rows, cols), weight = matrices[0][0], matrices[1][0], matrices[1][1]
        if k not in (rows, cols):
            return None
        notes.append(used)
        n = cols if k == rows else rows
        return "gemm", {"M": m, "N": n, "K": k, "dtype": matrices[0][1], "weight_dtype": weight}
    notes.append(used)
    numel = 1
    for size in first:
        numel *= size
    if hint.op == "elementwise":
        if any(tensor != tensors[0] for tensor in tensors):
            notes.append("the Top-N's tensors differ in shape or dtype: which are read and which written cannot be told")
            return None
        return "elementwise", {"numel": numel, "inputs": len(tensors), "outputs": 1, "dtype": dtype}
    return hint.op, {"rows": numel // first[-1], "cols": first[-1], "dtype": dtype}


def _tensors(row: Row, notes: list[str]) -> list[tuple[list[int], Dtype]]:
    """(logical shape, dtype) of each tensor; lists that cannot be read are no evidence, an unknown dtype is refused."""
    if not row.shapes and not row.dtypes:
        return []
    shapes, dtypes = row.shapes, row.dtypes
    if isinstance(shapes, list) and isinstance(dtypes, list) and len(dtypes) == 1:
        dtypes = dtypes * len(shapes)
    if not isinstance(shapes, list) or not isinstance(dtypes, list) or len(shapes) != len(dtypes):
        notes.append("the Top-N's shapes and dtypes are not two lists of the same length: not used")
        return []
    found = []
    for shape, name in zip(shapes, dtypes):
        try:
            sizes = [whole(size, "size") for size in shape] if isinstance(shape, list) else []
        except ValueError:
            sizes = []
        if not sizes:
            notes.append("a shape of the Top-N is no list of sizes: its tensors are not used")
            return []
        try:
            dtype = parse_dtype(name)
        except ValueError as error:
            raise CannotModelError(str(error)) from None
        if dtype.pack != 1 and dtype.peak:  # the stored shape holds several values an element
            sizes[-1] *= dtype.pack
            dtype = parse_dtype(dtype.peak)
        found.append((sizes, dtype))
    return found


def _rmsnorm(row: Row, tokens: float, env: Env, config: ModelConfig, notes: list[str]) -> dict[str, object]:
    low = row.name.lower()
    if "quant" in low or "qk" in low or "q_norm" in low or "k_norm" in low:
        raise CannotModelError("a norm of another width, or fused with quantisation: its shapes are not in config.json")
    if config.hidden is None:
        raise CannotModelError("rmsnorm without shapes: config.json has no hidden size")
    notes.append("hidden size from config.json")
    if config.mla is not None and config.mla.q_lora_rank is not None:
        notes.append("the norms of the latent ranks may run under the same name: hidden size assumed")
    residual = "add" in low
    return {
        "rows": of_one_rank(tokens, env, notes),
        "cols": config.hidden,
        "dtype": sixteen_bit(config, env, "activations"),
        "residual": residual,
    }


def _moe(hint: Hint, tokens: float, env: Env, config: ModelConfig, notes: list[str]) -> dict[str, object]:
    sizes = {
        "hidden": config.hidden,
        "inter": config.moe_inter,
        "experts": config.experts,
        "top_k": config.top_k,
    }
    missing = [key for key, value in sizes.items() if value is None]
    if missing:
        raise CannotModelError(f"moe without shapes: config.json does not give {', '.join(missing)}")
    tp, ep = parallel(env, notes), env.expert_parallel or 1
    inter, experts = config.moe_inter or 0, config.experts or 0
    if ep > 1:
        here = f"{experts // ep} of {experts} experts are here" if experts % ep == 0 else f"{experts} experts over {ep} devices"
        raise CannotModelError(f"moe without shapes under expert parallelism: {here}, the tokens routed to them are unknown")
    if (env.data_parallel or 1) > 1:
        raise CannotModelError("moe without shapes under data parallelism: whether a device sees all ranks' tokens is unknown")
    if inter % tp:
        raise CannotModelError(f"moe without shapes: the experts' width {inter} does not split over {tp} devices")
    weight = _with_scales(hint.weight_dtype, env, config) or _weight_dtype(config, env, notes)
    act = _with_scales(hint.dtype, env, config) or _activations(weight, config, env)
    notes.append(f"expert sizes from config.json, activations in {act.name}, weights in {_width(weight, config)}")
    sizes.update(tokens=int(tokens), inter=inter // tp)
    _say_padding([config.hidden or 0, inter // tp], weight, notes)
    shared = _shared_experts(config, tp, notes)
    return {**sizes, **shared, "stage": hint.stage or "both", "gated": config.gated, "dtype": act, "weight_dtype": weight}


def _shared_experts(config: ModelConfig, tp: int, notes: list[str]) -> dict[str, object]:
    """Shared experts count where config.json says that the engine fuses them into the launch of the routed ones."""
    count, width = config.shared_experts, config.shared_inter
    if not count or not width:
        return {}
    what = f"{count} shared expert{'s' if count > 1 else ''} of width {width}"
    fused = config.fused_shared and width % tp == 0 and "shared_experts" not in config.excluded
    if not fused:
        notes.append(f"{what} not counted: taken for a launch of its own (num_fused_shared_experts says otherwise)")
        return {}
    notes.append(f"{what} counted: num_fused_shared_experts is {config.fused_shared}")
    return {"shared_experts": count, "shared_inter": width // tp}


def _say_padding(sizes: list[int], weight: Dtype, notes: list[str]) -> None:
    """aiter pads gpt-oss's 2880 to 3072 for its fp4 kernels: 256 is the multiple of their tiles."""
    if weight.value_bits > 4:
        return
    for size in sorted(set(sizes)):
        padded = -(-size // _FP4_TILE) * _FP4_TILE
        if padded != size:
            notes.append(f"a 4-bit kernel may pad {size} to {padded} (+{100 * (padded / size - 1):.1f} %): not counted")


def _width(dtype: Dtype, config: ModelConfig) -> str:
    """The dtype's name, with what shares a scale where that is the config's to say."""
    block = config.quantisation.block if config.quantisation is not None and dtype == config.weight_dtype else ()
    if dtype.bits == dtype.value_bits or dtype.name.startswith(("mx", "nv")) or not block:
        return dtype.name
    return f"{dtype.name} ({dtype.bits:.5g} bits with a scale per {'x'.join(map(str, block))})"


def _with_scales(spelled: Dtype | None, env: Env, config: ModelConfig) -> Dtype | None:
    """A kernel name says fp4 where the model is mxfp4: the same values, and the scales are part of the operand."""
    if spelled is None:
        return None
    if env.model_dtype:
        model = named_dtype(env.model_dtype, "model_dtype")
        return model if model.peak == spelled.peak else spelled
    written = config.weight_dtype
    return written if written is not None and written.peak == spelled.peak else spelled


def _weight_dtype(config: ModelConfig, env: Env, notes: list[str]) -> Dtype:
    """The experts' dtype: the config's, which knows the scales and what is left alone, unless the run says otherwise."""
    written, quantised = config.weight_dtype, config.quantisation
    named = named_dtype(env.model_dtype, "model_dtype") if env.model_dtype else None
    if quantised is not None and quantised.dtype is not None:
        if written is None:
            raise CannotModelError("config.json leaves some of the experts at the model's dtype: their width differs by layer")
        if written == config.dtype:
            notes.append(f"{quantised.method} leaves the experts in {written.name}")
            return written
    if named is None:
        if written is None:
            raise CannotModelError("the weights' dtype is unknown: give model_dtype in env_report.json")
        return written
    if written is not None and written.value_bits != named.value_bits and written.value_bits < 16:
        raise CannotModelError(f"model_dtype says {named.name}, config.json says {written.name} weights: which is it?")
    return written if written is not None and written.peak == named.peak and written.bits > named.bits else named


def _activations(weight: Dtype, config: ModelConfig, env: Env) -> Dtype:
    """What feeds the experts: as the quantisation says; without one, 8-bit weights are fed 8-bit activations."""
    quantised = config.quantisation
    if quantised is not None and quantised.dtype is not None and weight == config.weight_dtype:
        return config.activation_dtype or sixteen_bit(config, env, "activations")
    return weight if weight.value_bits == 8 else sixteen_bit(config, env, "activations")
