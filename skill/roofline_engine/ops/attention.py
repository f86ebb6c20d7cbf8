"""Work models of attention: paged decode (MHA, GQA, MLA), prefill with its masks, backward; and linear attention.

Linear attention and state-space layers are counted in their recurrent form. Chunked kernels compute more, to use the matrix
units; the FLOPs here are those of the definition.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from ..fields import ByteModel, note
from ..units import number, parse_dtype, whole, wider_dtype
from ..work import Params, Work, op


def attention_pairs(n_q: int, n_kv: int, *, left: int | None = None, right: int | None = None) -> int:
    """Return the (query, key) pairs of one head under a mask aligned at the bottom right: the last query sees the last key.

    A query at position p sees the keys from p - left to p + right; None is no limit, so ``right=0`` is causal: with
    n_q = n_kv = N that is N(N+1)/2, and n_q n_kv - n_q(n_q-1)/2 for n_q <= n_kv.
    """
    first, last = n_kv - n_q, n_kv - 1  # positions of the first and the last query

    def ramp(x: int, cap: int | None = None) -> int:
        """Return the sum of min(max(t, 0), cap) over t up to x."""
        if x <= 0:
            return 0
        if cap is None or x <= cap:
            return x * (x + 1) // 2
        return cap * (cap + 1) // 2 + (x - cap) * cap

    upto = n_q * n_kv if right is None else ramp(last + right + 1, n_kv) - ramp(first + right, n_kv)
    before = 0 if left is None else ramp(last - left) - ramp(first - left - 1)
    return upto - before


def keys_seen(n_q: int, n_kv: int, *, left: int | None = None) -> int:
    """Return the keys that some query sees under the same mask; a kernel need not read the others.

    The first query sees back to n_kv - n_q - left, the last one sees the last key, whatever ``right`` is.
    """
    if n_q == 0:
        return 0
    return n_kv if left is None else min(n_kv, max(0, n_q + left))


def _heads(p: Params) -> tuple[int, int, int, int]:
    """Return the heads of Q and of K and V, and the dimensions of a head of Q and K, and of V."""
    q_heads, kv_heads = p.size("n_q_heads"), p.size("n_kv_heads")
    if q_heads % kv_heads:
        raise ValueError(f"{p.op.name}: n_q_heads {q_heads} is not a multiple of n_kv_heads {kv_heads}")
    dim = p.size("head_dim")
    return q_heads, kv_heads, dim, p.maybe_size("head_dim_v") or dim


def _visible_context(queries: int, window: int | None, tokens: float) -> tuple[float, float]:
    """Return the keys that one sequence of a decode step reads, and the (query, key) pairs of one head.

    The queries are the last positions, causal among themselves, each within the window. Both results are linear in the length
    between whole numbers, so a fractional mean length is interpolated.
    """
    if queries == 1:
        keys = tokens if window is None else min(tokens, window)
        return keys, keys
    if window == 0:
        return 0.0, 0.0
    left = None if window is None else window - 1
    below = int(tokens)
    (keys, pairs), (more_keys, more_pairs) = (
        (keys_seen(queries, n, left=left), attention_pairs(queries, n, left=left, right=0)) for n in (below, below + 1)
    )
    part = tokens - below
    return keys + part * (more_keys - keys), pairs + part * (more_pairs - pairs)


def _context(p: Params) -> tuple[tuple[float, ...], tuple[float, ...], str]:
    """Return the context of a decode step: the lengths or their mean, the ends of the range, and words for the note."""
    if "seq_lens" in p.raw:
        lengths = p.sizes("seq_lens", minimum=0)
        if len(lengths) != p.size("batch"):
            raise ValueError(f"{p.op.name}: seq_lens has {len(lengths)} lengths for a batch of {p.size('batch')}")
        return tuple(lengths), (), f"context={sum(lengths) / len(lengths):g} on average (captured lengths)"
    if "seq_len" not in p.raw:
        raise ValueError(f"{p.op.name}: missing seq_len")
    seq_len = float(number(p.raw["seq_len"], p.name("seq_len"), minimum=0))
    if "seq_len_range" not in p.raw:
        return (seq_len,), (), f"context={seq_len:g}"
    span = p.raw["seq_len_range"]
    if not isinstance(span, (list, tuple)) or len(span) != 2:
        raise ValueError(f"{p.name('seq_len_range')} is {span!r:.40}, expected [low, high]")
    low, high = (float(number(item, p.name("seq_len_range"), minimum=0)) for item in span)
    if low > high:
        raise ValueError(f"{p.name('seq_len_range')} is {span!r:.40}, expected low <= high")
    return (seq_len,), (low, high), f"context={seq_len:g}, from {low:g} to {high:g} tokens: the range covers it"


def _decode(p: Params, kv_elements: int, flops_per_token: float, q_and_out: float, text: str) -> Work:
    """Return a decode step: KV of the context once for all query heads; Q and output in the range, a cache may hold them."""
    batch, queries = p.size("batch"), p.size("seq_q")
    a = p.dtype("dtype")
    kv = p.dtype("kv_dtype", a)
    window = p.maybe_size("window", minimum=0) if "window" in p.op.parameters else None

    def model_at(name: str, lengths: tuple[float, ...], extra: float = 0.0) -> ByteModel:
        visible = [_visible_context(queries, window, length) for length in lengths]  # of each sequence, not of the mean
        keys, pairs = (batch * sum(values) / len(lengths) for values in zip(*visible))
        return ByteModel(name, keys * kv_elements * kv.nbytes + extra, pairs * flops_per_token)

    lengths, span, context = _context(p)
    candidates = [model_at("kv_cache", lengths), model_at("kv_cache_q_and_out", lengths, q_and_out)]
    candidates += [model_at(f"kv_cache_at_{length:g}", (length,)) for length in span]
    context += f", {queries} queries a sequence" if queries > 1 else ""
    texts = [f"{text}, {context}" + (f", window={window}" if window is not None else "") + f", KV in {kv.name}"]
    if "kv_dtype" not in p.raw:
        texts.append(f"kv_dtype not given: {kv.name} assumed")
    cached = (q_and_out, 0.0)
    return Work(p.op.name, "attn", tuple(candidates), "matrix", wider_dtype(a, kv), kv, tuple(map(note, texts)), None, cached)


@op(
    "attn_decode",
    op_class="attn",
    source="specification section 4: K and V of the context once; QK^T and PV at 2 FLOPs per MAC and query head; with seq_q "
    "above 1 (speculative decoding) the queries are the last positions of the context, causal among themselves",
    leaves_out="softmax FLOPs, page tables, split-KV partial results, KV scales, pages that sequences share (counted for each)",
    required=("batch", "n_q_heads", "n_kv_heads", "head_dim"),
    optional=("head_dim_v", "seq_len", "seq_lens", "seq_len_range", "window", "kv_dtype"),
    defaults={"shared_kv": False, "seq_q": 1},
)
def _attn_decode(p: Params) -> Work:
    q_heads, kv_heads, dim, dim_v = _heads(p)
    a = p.dtype("dtype")
    per_token = kv_heads * (max(dim, dim_v) if p.flag("shared_kv") else dim + dim_v)
    q_and_out = p.size("batch") * p.size("seq_q") * q_heads * (dim * a.nbytes + dim_v * p.dtype("out_dtype", a).nbytes)
    text = f"attention decode: batch={p.size('batch')} q_heads={q_heads} kv_heads={kv_heads} head_dim={dim}"
    return _decode(p, per_token, 2.0 * q_heads * (dim + dim_v), q_and_out, text)


@op(
    "mla_decode",
    op_class="attn",
    source="one latent row of kv_lora_rank + rope_dim per token serves K and V of all heads; 2 FLOPs per MAC over "
    "kv_lora_rank + rope_dim (scores) and kv_lora_rank (values), absorbed form (FlashMLA, aiter mla_decode)",
    leaves_out="the absorbed up-projections, sparse index passes, KV scales, pages that sequences share (counted for each)",
    required=("batch", "n_q_heads"),
    optional=("seq_len", "seq_lens", "seq_len_range", "kv_dtype"),
    defaults={"kv_lora_rank": 512, "rope_dim": 64, "seq_q": 1},
)
def _mla_decode(p: Params) -> Work:
    heads, rank, rope = p.size("n_q_heads"), p.size("kv_lora_rank"), p.size("rope_dim")
    a = p.dtype("dtype")
    rows = p.size("batch") * p.size("seq_q") * heads
    q_and_out = rows * ((rank + rope) * a.nbytes + rank * p.dtype("out_dtype", a).nbytes)
    text = f"MLA decode: batch={p.size('batch')} heads={heads} latent={rank}+{rope}"
    return _decode(p, rank + rope, 2.0 * heads * (2 * rank + rope), q_and_out, text)


class _Prefill(NamedTuple):
    """A batch of sequences under a mask, per head."""

    pairs: int  # (query, key) pairs that the mask leaves
    rows_q: int
    rows_kv: int
    visible_kv: int  # key rows that some query sees
    text: str  # for the note


def _prefill_pairs(p: Params) -> _Prefill:
    causal = p.flag("causal")
    window = p.maybe_size("window", minimum=0)
    left, right = p.maybe_size("window_left", minimum=0), p.maybe_size("window_right", minimum=0)
    if causal:
        if right or (window is not None and left not in (None, window - 1)):
            key, mask = ("window_right", "causal") if right else ("window_left", f"causal and window {window}")
            raise ValueError(f"{p.name(key)} is {p.raw[key]!r:.40}, which contradicts {mask}")
        right = 0
        left = window - 1 if window is not None else left
    elif window is not None:
        raise ValueError(f"{p.op.name}: window counts keys up to the query: give causal, or window_left and window_right")
    if "seq_lens" in p.raw:
        raw = p.raw["seq_lens"]
        pairs_of = raw if isinstance(raw, (list, tuple)) else ()
        lengths = [tuple(item) if isinstance(item, (list, tuple)) else (item, item) for item in pairs_of]
        if not lengths or any(len(item) != 2 for item in lengths):
            raise ValueError(f"{p.name('seq_lens')} is {raw!r:.40}, expected lengths or [queries, keys] per sequence")
        other = [key for key in ("seq_q", "seq_kv") if key in p.raw]
        if other or p.maybe_size("batch") not in (None, len(lengths)):
            conflict = f"{other[0]} is given too" if other else f"batch is {p.raw['batch']}"
            raise ValueError(
                f"{p.name('seq_lens')} has {len(lengths)} sequences, and {conflict}: give [queries, keys] per sequence"
            )
        sequences = [tuple(whole(size, p.name("seq_lens"), minimum=0) for size in item) for item in lengths]
        text = f"{len(sequences)} sequences of captured lengths"
    else:
        missing = [key for key in ("batch", "seq_q") if key not in p.raw]
        if missing:
            raise ValueError(f"{p.op.name}: missing {', '.join(missing)}")
        n_q = p.size("seq_q")
        sequences = [(n_q, p.maybe_size("seq_kv") or n_q)] * p.size("batch")
        text = f"batch={len(sequences)} seq_q={n_q} seq_kv={sequences[0][1]}"
    counts = Counter(sequences if window != 0 or not causal else ())  # a causal window of no key leaves none
    pairs = sum(n * attention_pairs(q, kv, left=left, right=right) for (q, kv), n in counts.items())
    visible = sum(n * keys_seen(q, kv, left=left) for (q, kv), n in counts.items())
    mask = ("causal" if causal else "full") + (f" window={window}" if window is not None else "")
    given = p.maybe_size("pairs", minimum=0)
    if given is not None:
        if given > pairs:
            raise ValueError(f"{p.name('pairs')} is {given}, expected at most the {pairs} that the {mask} mask leaves")
        pairs, mask = given, f"{mask}, {given} of its pairs"
    rows_q, rows_kv = (sum(item[at] for item in sequences) for at in (0, 1))
    return _Prefill(pairs, rows_q, rows_kv, visible, f"{text} {mask}")


_SEQUENCES = ("batch", "head_dim_v", "seq_q", "seq_kv", "seq_lens", "kv_dtype")
_MASK = ("window", "window_left", "window_right", "pairs")
_ALGORITHMS: dict[object, str] = {"flash": "flash", "math": "math"}


@op(
    "attn_prefill",
    op_class="attn",
    source="2 FLOPs per MAC of QK^T and PV over the (query, key) pairs the mask leaves, by query heads; Q, K, V and output "
    "once, K and V by KV heads and of the keys that a query sees (FlashAttention's accounting; causal N(N+1)/2 pairs)",
    leaves_out="softmax FLOPs, K and V read again for each block of queries, masked tiles that are computed anyway",
    required=("n_q_heads", "n_kv_heads", "head_dim"),
    optional=(*_SEQUENCES, *_MASK),
    defaults={"causal": True},
)
@op(
    "attn_backward",
    op_class="attn",
    source="dV, dP, dQ, dK and, for flash, S again: 5 matrix products over the mask's pairs (2.5 x forward, FlashAttention's "
    "convention), 4 when the forward kept S; Q, K, V, out and dout read, dQ, dK and dV written",
    leaves_out="softmax statistics, dQ accumulated in fp32, the preprocess kernel, narrower gradients than their tensors",
    required=("n_q_heads", "n_kv_heads", "head_dim"),
    optional=(*_SEQUENCES, *_MASK),
    defaults={"causal": True, "algorithm": "flash"},
)
def _masked_attention(p: Params) -> Work:
    q_heads, kv_heads, dim, dim_v = _heads(p)
    a = p.dtype("dtype")
    kv, out = p.dtype("kv_dtype", a), p.dtype("out_dtype", a)
    batch = _prefill_pairs(p)
    model, direction, passes, macs, rows_kv = "q_k_v_out", "prefill", 1, dim + dim_v, batch.visible_kv
    if p.op.name == "attn_backward":
        model, direction, passes = "inputs_and_grads", "backward", 2
        scores = dim if p.choice("algorithm", _ALGORITHMS) == "flash" else 0  # computed again
        macs = scores + 2 * dim + 2 * dim_v
        rows_kv += batch.rows_kv  # read; gradients written, those of unseen keys as zeros
    nbytes = passes * batch.rows_q * q_heads * (dim * a.nbytes + dim_v * out.nbytes)
    nbytes += rows_kv * kv_heads * (dim + dim_v) * kv.nbytes
    written = batch.rows_q * q_heads * dim_v * out.nbytes
    if passes == 2:
        written = batch.rows_q * q_heads * dim * a.nbytes + batch.rows_kv * kv_heads * (dim + dim_v) * kv.nbytes
    candidate = ByteModel(model, nbytes, 2.0 * batch.pairs * q_heads * macs)
    text = f"attention {direction}: {batch.text} q_heads={q_heads} kv_heads={kv_heads} head_dim={dim}"
    return Work(p.op.name, "attn", (candidate,), "matrix", wider_dtype(a, kv), kv, (note(text),), written=written)


def _recurrent(p: Params, nbytes: float, flops: float, text: str) -> Work:
    """Return the work of a recurrence: one step runs on the vector units in fp32, a sequence chunked on the matrix units."""
    a = p.dtype("dtype")
    one_step = p.size("seq") == 1
    engine, dtype = ("vector", parse_dtype("fp32")) if one_step else ("matrix", a)
    model = ByteModel("inputs_state_outputs", nbytes, flops)
    return Work(p.op.name, "unknown", (model,), engine, dtype, a, (note(text),))


@op(
    "gated_delta",
    op_class="unknown",
    source="gated delta rule (arXiv:2412.06464): decay, k^T S, the rank-one update and q S on a key_dim x value_dim state, "
    "1 + 2 + 2 + 2 FLOPs per state element and token; q, k, v, gates and output once, the fp32 state read and written",
    leaves_out="the chunked form's extra products, the causal convolution, normalization of q and k",
    required=("batch", "seq", "heads", "key_dim", "value_dim"),
    optional=("key_heads",),
    defaults={"state_dtype": "fp32"},
)
def _gated_delta(p: Params) -> Work:
    batch, seq, heads = p.size("batch"), p.size("seq"), p.size("heads")
    key_heads = p.maybe_size("key_heads") or heads
    key_dim, value_dim = p.size("key_dim"), p.size("value_dim")
    a = p.dtype("dtype")
    tokens = batch * seq
    nbytes = tokens * (2 * key_heads * key_dim * a.nbytes + heads * value_dim * (a.nbytes + p.dtype("out_dtype", a).nbytes))
    nbytes += tokens * heads * 2 * 4.0  # decay and write strength
    nbytes += 2 * batch * heads * key_dim * value_dim * p.dtype("state_dtype", parse_dtype("fp32")).nbytes
    text = f"gated delta rule: batch={batch} seq={seq} heads={heads} state {key_dim}x{value_dim}"
    return _recurrent(p, nbytes, 7.0 * tokens * heads * key_dim * value_dim, text)


@op(
    "ssm_scan",
    op_class="unknown",
    source="Mamba-2 recurrence (arXiv:2405.21060): decay, input and add on a head_dim x state_dim state (3 FLOPs), read-out "
    "(2) per state element and token, the skip 2 per channel; x, B, C, dt and output once, the fp32 state read and written",
    leaves_out="the chunked form's extra products, the causal convolution, the gate",
    required=("batch", "seq", "heads", "head_dim", "state_dim"),
    defaults={"groups": 1, "state_dtype": "fp32"},
)
def _ssm_scan(p: Params) -> Work:
    batch, seq, heads = p.size("batch"), p.size("seq"), p.size("heads")
    dim, state, groups = p.size("head_dim"), p.size("state_dim"), p.size("groups")
    a = p.dtype("dtype")
    tokens = batch * seq
    nbytes = tokens * (heads * dim * (a.nbytes + p.dtype("out_dtype", a).nbytes) + 2 * groups * state * a.nbytes)
    nbytes += tokens * heads * 4.0  # dt
    nbytes += 2 * batch * heads * dim * state * p.dtype("state_dtype", parse_dtype("fp32")).nbytes
    text = f"state-space scan: batch={batch} seq={seq} heads={heads} state {dim}x{state}"
    return _recurrent(p, nbytes, tokens * heads * (5.0 * dim * state + 2.0 * dim), text)
