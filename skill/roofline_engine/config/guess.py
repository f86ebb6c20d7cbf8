"""Guess the shapes of a kernel (stage A): from the row's own ``est_shape`` or tensors, else from the model's config.

A guess is shown and never ranked. A shape that cannot be derived is refused with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..fields import Note, note
from ..inputs import Env, Row
from ..kernels import UNMODELED, Hint
from ..ops import OPS, op_name
from ..units import Dtype, parse_dtype, whole
from .layers import unread_of
from .model import Attention, ModelConfig

#: Tile of aiter's fp4 MoE kernels: its tuned gpt-oss files hold 3072 where config.json says 2880.
_FP4_TILE = 256
_WHICH = "which of the model's operands these are is unknown"
_OPERANDS = {"attn_prefill": "how the tokens of a launch split into sequences is unknown"}


class CannotModelError(ValueError):
    """L2: this row has no work model or no shapes; the message is the reason."""


def find_context(env: Env) -> tuple[float, list[float], Note]:
    """The mean context of a decode step and its range: isl + osl/2 over [isl, isl + osl] (specification section 4)."""
    if env.isl is None or env.osl is None:
        raise CannotModelError("attention without seq_len: env_report.json lacks workload.isl or workload.osl")
    mean = env.isl + env.osl / 2
    return mean, [env.isl, env.isl + env.osl], note(f"context {mean:g} = isl + osl/2")


def _named_dtype(name: object, key: str = "") -> Dtype:
    try:
        return parse_dtype(name)
    except ValueError as error:
        raise CannotModelError(f"{key}: {error}" if key else str(error)) from None


class ShapeGuess:
    """The guess for one row. ``notes`` holds what the guess rests on, also after it failed."""

    def __init__(self, row: Row, hint: Hint, regime: str, env: Env, config: ModelConfig | None) -> None:
        self.row, self.hint, self.regime, self.env, self._config = row, hint, regime, env, config
        self.notes: list[Note] = []

    def parameters(self) -> tuple[str, dict[str, object]]:
        """Return the op and the parameters of its work model. Raises CannotModelError with the reason."""
        own = self._from_estimate() or self._from_tensors()
        if own:
            return own
        op = self.hint.op
        if op == "mla_decode":
            return op, self.latent_attention()
        if op not in OPS:
            raise CannotModelError(UNMODELED.get(op, f"{op}: no work model"))
        builders = {"moe": self._moe, "attn_decode": self._attention, "rmsnorm": self._rmsnorm}
        if op not in builders:
            raise CannotModelError(f"{op} without usable shapes: {_OPERANDS.get(op, _WHICH)}")
        config = self.config
        if op == "attn_decode" and config.mla is not None and not config.attention_kind:
            return "mla_decode", self.latent_attention()
        if op == "attn_decode" and self.regime == "prefill":
            raise CannotModelError(f"attention at prefill without usable shapes: {_OPERANDS['attn_prefill']}")
        return op, builders[op](self._launch_tokens())

    @property
    def config(self) -> ModelConfig:
        """The model's config. Raises CannotModelError where the run has none."""
        if self._config is None:
            raise CannotModelError(f"{self.hint.op} without usable shapes, and no config.json of the model")
        return self._config

    def _note(self, text: str) -> None:
        self.notes.append(note(text))

    # The row's own shapes.

    def _from_estimate(self) -> tuple[str, dict[str, object]] | None:
        """``est_shape`` as parameters of the op: an object, or text such as ``M=64, N=4096, K=2048, dtype=bf16``."""
        row = self.row
        if row.est_shape is None:
            return None
        if isinstance(row.est_shape, Mapping):
            values = {str(key): value for key, value in row.est_shape.items()}
        elif isinstance(row.est_shape, str) and "=" in row.est_shape:
            pairs = (item.partition("=") for item in row.est_shape.replace(";", ",").split(","))
            values = {key.strip(): value.strip() for key, _, value in pairs if key.strip()}
        else:
            self._note("est_shape is neither an object nor text like M=64, N=4096: not used")
            return None
        op = values.pop("op", self.hint.op)
        for key in ("launches", "calls", "t_us"):
            values.pop(key, None)
        if not isinstance(op, str) or op_name(op) not in OPS:
            raise CannotModelError(f"est_shape: no work model for op {op!r:.40}")
        if "dtype" not in values and isinstance(row.dtypes, list) and row.dtypes:
            values["dtype"] = row.dtypes[0]
        self._note("shapes from est_shape")
        return op, values

    def _from_tensors(self) -> tuple[str, dict[str, object]] | None:
        """The row's own tensor shapes and dtypes, for the ops whose operands they identify."""
        op = self.hint.op
        if op not in ("gemm", "elementwise", "copy", "softmax", "rmsnorm", "layernorm"):
            return None
        tensors = self._tensors()
        if not tensors:
            return None
        source = "shapes from the Top-N's tensors"
        first, dtype = tensors[0]
        if op == "gemm":
            matrices = [item for item in tensors if len(item[0]) == 2][:2]
            if len(matrices) < 2:
                return None
            (m, k), (rows, cols), weight = matrices[0][0], matrices[1][0], matrices[1][1]
            if k not in (rows, cols):
                return None
            self._note(source)
            n = cols if k == rows else rows
            return op, {"M": m, "N": n, "K": k, "dtype": matrices[0][1], "weight_dtype": weight}
        self._note(source)
        if op == "elementwise":
            if any(tensor != tensors[0] for tensor in tensors):
                self._note("the Top-N's tensors differ in shape or dtype: which are read and which are written is unknown")
                return None
            return op, {"numel": math.prod(first), "inputs": len(tensors), "outputs": 1, "dtype": dtype}
        return op, {"rows": math.prod(first[:-1]), "cols": first[-1], "dtype": dtype}

    def _tensors(self) -> list[tuple[list[int], Dtype]]:
        """(logical shape, dtype) of each tensor; lists that cannot be read are ignored, an unknown dtype is refused."""
        shapes, dtypes = self.row.shapes, self.row.dtypes
        if not shapes and not dtypes:
            return []
        if isinstance(shapes, list) and isinstance(dtypes, list) and len(dtypes) == 1:
            dtypes = dtypes * len(shapes)
        if not isinstance(shapes, list) or not isinstance(dtypes, list) or len(shapes) != len(dtypes):
            self._note("the Top-N's shapes and dtypes are not two lists of the same length: not used")
            return []
        tensors = []
        for shape, name in zip(shapes, dtypes):
            try:
                sizes = [whole(size, "size") for size in shape] if isinstance(shape, list) else []
            except ValueError:
                sizes = []
            if not sizes:
                self._note("a shape of the Top-N is not a list of sizes: its tensors are not used")
                return []
            dtype = _named_dtype(name)
            if dtype.pack != 1 and dtype.peak:  # the stored shape holds several values an element
                sizes[-1] *= dtype.pack
                dtype = parse_dtype(dtype.peak)
            tensors.append((sizes, dtype))
        return tensors

    # The share of one launch on one device.

    def _launch_tokens(self) -> float:
        """Tokens of one launch over all ranks."""
        if self.regime == "prefill":
            if self.env.prefill_tokens is None:
                raise CannotModelError("prefill without shapes: tokens of one launch unknown (give workload.prefill_tokens)")
            self._note(f"{self.env.prefill_tokens:g} tokens from workload.prefill_tokens")
            return self.env.prefill_tokens
        if self.env.conc is None:
            raise CannotModelError("decode without shapes: workload.conc is missing, so the tokens of one step are unknown")
        self._note(f"{self.env.conc:g} tokens a step = workload.conc")
        return self.env.conc

    def _rank_tokens(self, tokens: float) -> int:
        """The tokens of the fullest data-parallel rank."""
        ranks = self.env.data_parallel or 1
        if ranks == 1:
            return int(tokens)
        if (self.env.tensor_parallel or 1) > 1:
            raise CannotModelError(
                "tp and dp together: engines differ in whether dp divides tp, so one device's share is unknown"
            )
        share = math.ceil(tokens / ranks)
        self._note(f"{share} of them on the fullest of {ranks} data-parallel ranks (assumed: the workload is that of all)")
        return share

    def _tensor_parallel(self) -> int:
        if self.env.tensor_parallel is None:
            self._note("tensor parallelism is missing: 1 assumed")
        return self.env.tensor_parallel or 1

    def _model_dtype(self) -> Dtype | None:
        return _named_dtype(self.env.model_dtype, "model_dtype") if self.env.model_dtype else None

    def _unquantized_dtype(self, operand: str) -> Dtype:
        """The model's own dtype, for an operand that a weight quantization does not convert."""
        if self.config.dtype is not None:
            return self.config.dtype
        named = self._model_dtype()
        if named is not None and named.value_bits >= 16:
            return named
        raise CannotModelError(f"the dtype of {operand} is unknown: config.json has no torch_dtype")

    # Norms.

    def _refuse_unread(self, part: str) -> None:
        """Refuse a guess from a config with a size that this reader does not know: it may change the sizes that it does."""
        key = unread_of(self.config.unread, part)
        if key is not None:
            raise CannotModelError(f"config.json has {key}, a size that is not understood: the sizes of the {part} may differ")

    def _rmsnorm(self, tokens: float) -> dict[str, object]:
        self._refuse_unread("norm")
        low = self.row.name.lower()
        if any(word in low for word in ("quant", "qk", "q_norm", "k_norm")):
            raise CannotModelError("a norm of another width, or fused with quantization: its shapes are not in config.json")
        if self.config.hidden is None:
            raise CannotModelError("rmsnorm without shapes: config.json has no hidden size")
        self._note("hidden size from config.json")
        if self.config.mla is not None and self.config.mla.q_lora_rank is not None:
            self._note("the norms of the latent ranks may run under the same name: hidden size assumed")
        return {
            "rows": self._rank_tokens(tokens),
            "cols": self.config.hidden,
            "dtype": self._unquantized_dtype("activations"),
            "residual": "add" in low,
        }

    # Mixture of experts.

    def _moe(self, tokens: float) -> dict[str, object]:
        self._refuse_unread("experts")
        config, env = self.config, self.env
        sizes = {"hidden": config.moe_hidden, "inter": config.moe_inter, "experts": config.experts, "top_k": config.top_k}
        missing = [key for key, value in sizes.items() if value is None]
        if missing:
            raise CannotModelError(f"moe without shapes: config.json does not give {', '.join(missing)}")
        tp, ep = self._tensor_parallel(), env.expert_parallel or 1
        hidden, inter, experts = config.moe_hidden or 0, config.moe_inter or 0, config.experts or 0
        if ep > 1:
            even = experts % ep == 0
            share = f"{experts // ep} of {experts} experts are here" if even else f"{experts} experts over {ep} devices"
            raise CannotModelError(
                f"moe without shapes under expert parallelism: {share}, the tokens routed to them are unknown"
            )
        if (env.data_parallel or 1) > 1:
            raise CannotModelError(
                "moe without shapes under data parallelism: whether a device sees all ranks' tokens is unknown"
            )
        if inter % tp:
            raise CannotModelError(f"moe without shapes: the experts' width {inter} does not split over {tp} devices")
        weight = self._with_scales(self.hint.weight_dtype) or self._weight_dtype()
        act = self._with_scales(self.hint.dtype) or self._activation_dtype(weight)
        self._note(f"expert sizes from config.json, activations in {act.name}, weights in {self._show_width(weight)}")
        self._note_padding(hidden, inter // tp, weight)
        return {
            **sizes,
            "tokens": int(tokens),
            "inter": inter // tp,
            **self._shared_experts(tp),
            "stage": self.hint.stage or "both",
            "gated": config.gated,
            "dtype": act,
            "weight_dtype": weight,
        }

    def _shared_experts(self, tp: int) -> dict[str, object]:
        """Shared experts count where config.json says that the engine fuses them into the launch of the routed ones."""
        config = self.config
        count, width = config.shared_experts, config.shared_inter
        if not count or not width:
            return {}
        label = f"{count} shared expert{'s' if count > 1 else ''} of width {width}"
        if not (config.fused_shared and width % tp == 0 and "shared_experts" not in config.excluded):
            self._note(f"{label} not counted: assumed to run in a launch apart (num_fused_shared_experts says otherwise)")
            return {}
        self._note(f"{label} counted: num_fused_shared_experts is {config.fused_shared}")
        return {"shared_experts": count, "shared_inter": width // tp}

    def _note_padding(self, hidden: int, inter: int, weight: Dtype) -> None:
        """aiter pads gpt-oss's 2880 to 3072 for its fp4 kernels: 256 is the multiple of their tiles."""
        if weight.value_bits > 4:
            return
        for size in sorted({hidden, inter}):
            padded = -(-size // _FP4_TILE) * _FP4_TILE
            if padded != size:
                self._note(f"a 4-bit kernel may pad {size} to {padded} (+{100 * (padded / size - 1):.1f} %): not counted")

    def _show_width(self, dtype: Dtype) -> str:
        """The dtype's name, with what shares a scale where the config decides that."""
        quantization = self.config.quantization
        block = quantization.block if quantization is not None and dtype == self.config.weight_dtype else ()
        if dtype.bits == dtype.value_bits or dtype.name.startswith(("mx", "nv")) or not block:
            return dtype.name
        return f"{dtype.name} ({dtype.bits:.5g} bits with a scale per {'x'.join(map(str, block))})"

    def _with_scales(self, spelled: Dtype | None) -> Dtype | None:
        """A kernel name says fp4 where the model is mxfp4: the same values, and the scales are part of the operand."""
        if spelled is None or spelled.bits > spelled.value_bits:  # the name spells the scales as well
            return spelled
        stored = self._model_dtype() or self.config.weight_dtype
        return stored if stored is not None and stored.peak == spelled.peak else spelled

    def _weight_dtype(self) -> Dtype:
        """The experts' dtype: the config's, which knows the scales and the excluded modules, unless the run says otherwise."""
        stored, quantization, named = self.config.weight_dtype, self.config.quantization, self._model_dtype()
        if quantization is not None and quantization.dtype is not None:
            if stored is None:
                raise CannotModelError(
                    "config.json leaves some of the experts at the model's dtype: their width differs by layer"
                )
            if stored == self.config.dtype:
                self._note(f"{quantization.method} leaves the experts in {stored.name}")
                return stored
        if named is None:
            if stored is None:
                raise CannotModelError("the weights' dtype is unknown: give model_dtype in env_report.json")
            return stored
        if stored is not None and stored.value_bits < 16 <= named.value_bits:
            # What a checkpoint stores and what its layers are fed are two facts; a 16-bit model_dtype is the second.
            self._note(
                f"model_dtype {named.name} is taken for the activations: config.json stores the experts in {stored.name}"
            )
            return stored
        if stored is not None and stored.value_bits != named.value_bits and stored.value_bits < 16:
            raise CannotModelError(f"model_dtype says {named.name}, config.json says {stored.name} weights: which is it?")
        return stored if stored is not None and stored.peak == named.peak and stored.bits > named.bits else named

    def _activation_dtype(self, weight: Dtype) -> Dtype:
        """What feeds the experts: as the quantization says; without one, 8-bit weights are fed 8-bit activations."""
        quantization = self.config.quantization
        if quantization is not None and quantization.dtype is not None and weight == self.config.weight_dtype:
            return self.config.activation_dtype or self._unquantized_dtype("activations")
        return weight if weight.value_bits == 8 else self._unquantized_dtype("activations")

    # Attention: what the layers of a config.json read on one device.

    def latent_attention(self) -> dict[str, object]:
        """MLA decode: every head reads the same latents, so tensor parallelism splits the heads and not the cache."""
        low = self.row.name.lower()
        if any(word in low for word in ("indexer", "mqa_logits")):
            raise CannotModelError("the indexer of sparse attention reads its own keys, not the latents: no work model")
        if any(word in low for word in ("reduce", "combine", "metadata", "cache", "quant")):
            raise CannotModelError("a helper step of latent attention: its operands are in no file")
        if self.regime == "prefill" or "prefill" in low:
            raise CannotModelError("multi-head latent attention at prefill: no work model")
        config = self.config
        if config.attention_kind:
            raise CannotModelError(f"{config.attention_kind}: no work model")
        self._refuse_unread("attention")
        mla, heads = config.mla, config.n_q_heads
        if mla is None or mla.kv_lora_rank is None or mla.rope_dim is None or heads is None:
            raise CannotModelError(
                "multi-head latent attention without shapes: config.json does not give kv_lora_rank, rope and head counts"
            )
        batch = self._rank_tokens(self._launch_tokens())
        tp = self._tensor_parallel()
        if heads % tp:
            raise CannotModelError(f"multi-head latent attention without shapes: {heads} heads do not split over {tp} devices")
        mean, (low_end, high_end), basis = find_context(self.env)
        self.notes.append(basis)
        if config.index_topk is not None:
            mean, low_end, high_end = (min(size, config.index_topk) for size in (mean, low_end, high_end))
            self._note(f"sparse: at most index_topk = {config.index_topk} tokens are read")
        return {
            "batch": batch,
            "n_q_heads": heads // tp,
            "kv_lora_rank": mla.kv_lora_rank,
            "rope_dim": mla.rope_dim,
            "seq_len": mean,
            "seq_len_range": [low_end, high_end],
            "kv_dtype": self._cache_dtype(),
            "dtype": self._unquantized_dtype("queries"),
        }

    def _attention(self, tokens: float) -> dict[str, object]:
        """Decode over a KV cache: one launch runs one layer, on one device's share of the heads."""
        if self.config.attention_kind:
            raise CannotModelError(f"{self.config.attention_kind}: no work model")
        self._refuse_unread("attention")
        groups = self._attention_groups()
        group = groups[0]
        heads, kv_heads, head_dim = group.n_q_heads, group.n_kv_heads, group.head_dim
        extra: dict[str, object] = {} if group.head_dim_v == head_dim else {"head_dim_v": group.head_dim_v}
        if group.shared_kv:
            extra["shared_kv"] = True
            self._note("K is V (attention_k_eq_v), read once: a cache that holds both is read twice")
        if heads is None or kv_heads is None or head_dim is None:
            raise CannotModelError("attention without shapes: config.json does not give head counts and head_dim")
        batch = self._rank_tokens(tokens)
        tp = self._tensor_parallel()
        if heads % tp or (kv_heads % tp and tp % kv_heads):
            raise CannotModelError(f"attention without shapes: {heads} and {kv_heads} heads do not split over {tp} devices")
        if tp > kv_heads:
            self._note(f"{kv_heads} KV heads replicated over {tp} devices: one on each")
        return {
            "kv_dtype": self._cache_dtype(),
            "batch": batch,
            "n_q_heads": heads // tp,
            "n_kv_heads": max(1, kv_heads // tp),
            "head_dim": head_dim,
            **extra,
            **self._read_length(groups),
            "dtype": self._unquantized_dtype("queries"),
        }

    def _attention_groups(self) -> tuple[Attention, ...]:
        """The layers this kernel runs: those of one kind, or all of one size. Where sizes differ, launches must decide."""
        groups = self.config.attention
        if not groups:
            raise CannotModelError("attention without shapes: config.json does not tell which layers have attention")
        if any(group.kind == "unstated" for group in groups):
            raise CannotModelError("attention without shapes: config.json does not tell which layers use its window")
        if len(groups) == 1:
            return groups
        counts = " and ".join(f"{group.layers} {group.kind}" for group in groups)
        match = self.config.kind_with(self.row.launches_per_step)
        if match is not None:
            self._note(f"{counts} layers: {self.row.launches_per_step:g} launches a step are the {match.kind} ones")
            return (match,)
        if len({group._replace(kind="", layers=0, window=None) for group in groups}) > 1:
            raise CannotModelError(f"{counts} layers read different KV sizes, and which of them this kernel runs is unknown")
        return groups

    def _read_length(self, groups: tuple[Attention, ...]) -> dict[str, object]:
        """The context that the layers read: a window for one kind, else the mean over the layers, both ends in the range."""
        if len(groups) == 1 and groups[0].kind == "full":
            return {}
        mean, (low, high), basis = find_context(self.env)
        for group in groups:
            if group.kind == "chunked" and group.window is not None and high > group.window:
                raise CannotModelError(
                    f"chunked layers read what is filled of their {group.window} tokens, and contexts run to {high:g}: unknown"
                )
            if group.kind != "full" and group.window is None:
                raise CannotModelError(f"attention without shapes: config.json gives no window for its {group.kind} layers")
        if len(groups) == 1:
            return {"window": groups[0].window} if groups[0].kind == "sliding" else {}

        def tokens_read(group: Attention, tokens: float) -> float:
            return tokens if group.window is None else min(tokens, group.window)

        total = sum(group.layers for group in groups)
        combined = sum(group.layers * tokens_read(group, mean) for group in groups) / total
        windows = (f" ({group.window})" if group.window else "" for group in groups)
        kinds = " and ".join(f"{group.layers} {group.kind}{window}" for group, window in zip(groups, windows))
        self.notes.append(basis)
        self._note(f"{kinds} layers under one name: {combined:g} tokens is their mean, the range covers each")
        ends = [min(tokens_read(group, low) for group in groups), max(tokens_read(group, high) for group in groups)]
        return {"seq_len": combined, "seq_len_range": ends}

    def _cache_dtype(self) -> Dtype:
        """The dtype of kv_cache_dtype; ``auto`` is the checkpoint's scheme, else the model's dtype."""
        if self.env.kv_dtype and self.env.kv_dtype != "auto":
            kv, basis = _named_dtype(self.env.kv_dtype, "kv_cache_dtype"), ""
        elif self.config.kv_dtype is not None:
            kv, basis = self.config.kv_dtype, " as the checkpoint says"
        else:
            kv = self._unquantized_dtype("the KV cache")
            basis = "" if self.env.kv_dtype else " (assumed: no kv_cache_dtype)"
        self._note(f"heads from config.json, KV cache in {kv.name}{basis}")
        return kv
