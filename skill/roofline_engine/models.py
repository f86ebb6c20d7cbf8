"""Bytes and FLOPs per op: what a kernel must move and compute, whatever its implementation.

``work(op, **parameters)`` is the one entry point. The parameters are one vocabulary for shapes.json and for Python:

    gemm         M, N, K, batch                                    [M,K] x [K,N], ``batch`` of them
    moe          tokens, hidden, inter, experts, top_k, stage      stage 1 (gate and up), 2 (down) or both
    attn_decode  batch, n_q_heads, n_kv_heads, head_dim, seq_len, window
    rmsnorm, layernorm, softmax, copy      rows, cols
    elementwise  numel, inputs, outputs
    everywhere   dtype, weight_dtype, kv_dtype, out_dtype          as ``units.parse_dtype`` reads them

Bytes are compulsory traffic of the memory roof: each operand once. FLOPs count a multiply-add as two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from .entry import ByteModel
from .record import Record
from .units import Dtype, number, parse_dtype, whole, wider

#: How close a well-written kernel of an op comes to its roof: priors, set by how regular the access is.
#: gemm, moe, attn_decode and the streaming band 0.85-0.90 (its middle) are the specification's section 7; attn_prefill
#: (FlashAttention-3 reports up to 0.75 of the H100 fp16 peak, arXiv:2407.08608) and conv are weak priors. An op that is
#: not here has no target.
TARGET_EFF = {
    "gemm": 0.90,
    "moe": 0.90,
    "attn_decode": 0.50,
    "attn_prefill": 0.75,
    "conv": 0.80,
    "elementwise": 0.875,
    "rmsnorm": 0.875,
    "layernorm": 0.875,
    "softmax": 0.875,
    "rope": 0.875,
    "quantise": 0.875,
    "copy": 0.875,
    "transpose": 0.875,
    "cat": 0.875,
    "reduce": 0.875,
    "gather": 0.875,
}


class Work(Record):
    """The work of one unit.

    candidates: the figure first, then every other byte model. engine: ``matrix`` or ``vector``, the peak table to use.
    dtype: the compute peak's row. launches: the launches of one unit where the parameters tell. notes: assumptions.
    """

    op: str
    op_class: str
    candidates: tuple[ByteModel, ...]
    engine: str
    dtype: Dtype
    weight_dtype: Dtype
    notes: tuple[str, ...]
    launches: int | None = None

    @property
    def bytes(self) -> float:
        return self.candidates[0].bytes

    @property
    def flops(self) -> float:
        return self.candidates[0].flops


class Op(Record):
    """A work model: its parameters (name to default, ``...`` where one must be given), formula source and limits."""

    name: str
    op_class: str
    parameters: Mapping[str, object]
    build: Callable[[Mapping[str, object], float | None], Work]
    source: str
    leaves_out: str


OPS: dict[str, Op] = {}

REQUIRED = ...


def _op(
    name: str, op_class: str, *, source: str, leaves_out: str, **parameters: object
) -> Callable[[Callable[[_Params], Work]], Callable[[_Params], Work]]:
    def register(build: Callable[[_Params], Work]) -> Callable[[_Params], Work]:
        def checked(raw: Mapping[str, object], l2_bytes: float | None) -> Work:
            return build(_Params(OPS[name], raw, l2_bytes))

        OPS[name] = Op(name, op_class, parameters, checked, source, leaves_out)
        return build

    return register


def work(op: str, l2_bytes: float | None = None, **parameters: object) -> Work:
    """Bytes and FLOPs of one unit of ``op``.

    l2_bytes: the cache below which activations need not count as memory traffic; None when it is not known.

    Raises:
        ValueError: for an op without a model, a parameter that is missing, unknown, or not a positive whole number,
            and a dtype that is not known.
    """
    if op not in OPS:
        raise ValueError(f"no work model for op {op!r}; there are models for {', '.join(sorted(OPS))}")
    return OPS[op].build(parameters, l2_bytes)


class _Params:
    """The parameters of one call, each checked when it is read; leftovers are refused."""

    def __init__(self, op: Op, raw: Mapping[str, object], l2_bytes: float | None) -> None:
        self.op, self.l2_bytes = op, l2_bytes
        accepted = set(op.parameters) | {"dtype", "out_dtype"}
        unknown = sorted(set(raw) - accepted)
        if unknown:
            raise ValueError(f"{op.name}: unknown parameter {', '.join(unknown)}; it takes {', '.join(sorted(accepted))}")
        self.raw = {key: value for key, value in raw.items() if value is not None}
        missing = [key for key, default in op.parameters.items() if default is REQUIRED and key not in self.raw]
        missing += [] if "dtype" in self.raw else ["dtype"]
        if missing:
            raise ValueError(f"{op.name}: missing {', '.join(missing)}")

    def size(self, key: str) -> int:
        return whole(self.raw.get(key, self.op.parameters[key]), f"{self.op.name}: {key}")

    def maybe_size(self, key: str) -> int | None:
        return self.size(key) if key in self.raw else None

    def flag(self, key: str) -> bool:
        value = self.raw.get(key, self.op.parameters[key])
        if not isinstance(value, bool):
            raise ValueError(f"{self.op.name}: {key} is {value!r}, expected true or false")
        return value

    def dtype(self, key: str, default: Dtype | None = None) -> Dtype:
        if key not in self.raw and default is not None:
            return default
        try:
            found = parse_dtype(self.raw[key])
        except ValueError as error:
            raise ValueError(f"{self.op.name}: {key}: {error}") from None
        if found.pack != 1:
            # The tensor's shape is halved already; whether the sizes here are is anyone's guess, and 2x is at stake.
            raise ValueError(
                f"{self.op.name}: {key} {self.raw[key]} names a packed storage: give logical sizes and {found.peak}"
            )
        return found

    def held_in_cache(self, nbytes: float) -> bool:
        """Whether activations may stay in the last-level cache; an unknown cache size cannot rule it out."""
        return self.l2_bytes is None or nbytes <= self.l2_bytes


@_op(
    "gemm",
    "gemm",
    source="2MNK; A + B + C once each (specification section 4; cuBLAS and rocBLAS report the same)",
    leaves_out="split-K partial sums, padding, bias and scale vectors, cache misses beyond the first touch",
    M=REQUIRED,
    N=REQUIRED,
    K=REQUIRED,
    batch=1,
    weight_dtype=None,
)
def _gemm(p: _Params) -> Work:
    m, n, k, batch = p.size("M"), p.size("N"), p.size("K"), p.size("batch")
    a = p.dtype("dtype")
    w = p.dtype("weight_dtype", a)
    out = p.dtype("out_dtype", a)
    flops = 2.0 * batch * m * n * k
    inputs = batch * (m * k * a.nbytes + k * n * w.nbytes)
    candidates = [ByteModel("a_b_c", inputs + batch * m * n * out.nbytes, flops)]
    notes = [f"GEMM M={m} N={n} K={k}" + (f" batch={batch}" if batch > 1 else "")]
    if "out_dtype" not in p.raw and a.value_bits < 16:
        # A narrow GEMM usually writes 16-bit results; the specification's formula writes the input width.
        candidates.append(ByteModel("a_b_c_16bit_out", inputs + batch * m * n * 2.0, flops))
        notes.append(f"out_dtype not given: {out.name} assumed, a 16-bit output is in the range")
    return Work("gemm", "gemm", tuple(candidates), "matrix", wider(a, w), w, tuple(notes))


def experts_hit(experts: float, pairs: float) -> float:
    """Distinct experts that ``pairs`` independent uniform draws touch: E(1 - (1 - 1/E)^pairs).

    Source: specification section 4 (the coupon-collector expectation). Never above min(pairs, E) for pairs >= 1.
    """
    if experts <= 1:
        return float(min(experts, pairs))
    return -experts * math.expm1(pairs * math.log1p(-1.0 / experts))


def experts_hit_distinct(experts: float, tokens: float, top_k: float) -> float:
    """The same when each token's ``top_k`` experts are distinct, as top-k routing draws them: E(1 - (1 - k/E)^tokens)."""
    if top_k >= experts:
        return float(experts)
    return -experts * math.expm1(tokens * math.log1p(-top_k / experts))


_STAGES = {1: "1", 2: "2", "1": "1", "2": "2", "both": "both", "gate_up": "1", "down": "2"}


@_op(
    "moe",
    "moe",
    source="specification section 4: routed experts' weights; 2 FLOPs per MAC and (token, expert) pair",
    leaves_out="router, token sorting, block scales, shared experts, routing skew (it lowers the distinct experts)",
    tokens=REQUIRED,
    hidden=REQUIRED,
    inter=REQUIRED,
    experts=REQUIRED,
    top_k=REQUIRED,
    stage="both",
    gated=True,
    streams_all_experts=False,
    weight_dtype=None,
)
def _moe(p: _Params) -> Work:
    tokens, hidden, inter = p.size("tokens"), p.size("hidden"), p.size("inter")
    experts, top_k = p.size("experts"), p.size("top_k")
    if top_k > experts:
        raise ValueError(f"moe: top_k {top_k} is more than experts {experts}")
    asked = p.raw.get("stage", "both")
    stage = _STAGES.get(asked) if isinstance(asked, (int, str)) and not isinstance(asked, bool) else None
    if stage is None:
        raise ValueError(f"moe: stage is {asked!r}, expected 1 (gate and up), 2 (down) or both")
    a = p.dtype("dtype")
    w = p.dtype("weight_dtype", a)
    out = p.dtype("out_dtype", a)
    up = hidden * inter * (2 if p.flag("gated") else 1)
    down = inter * hidden
    per_expert = {"1": up, "2": down, "both": up + down}[stage]
    pairs = tokens * top_k
    flops = 2.0 * pairs * per_expert

    rows_in = tokens * hidden if stage != "2" else pairs * inter
    rows_out = pairs * inter if stage == "1" else tokens * hidden
    activations = rows_in * a.nbytes + rows_out * out.nbytes
    intermediate = 2 * pairs * inter * a.nbytes if stage == "both" else 0.0
    if not p.held_in_cache(intermediate / 2):
        activations += intermediate
    counted = 0.0 if p.held_in_cache(activations) else activations

    hit = experts_hit(experts, pairs)
    distinct = experts_hit_distinct(experts, tokens, top_k)
    weights = per_expert * w.nbytes
    candidates = [
        ByteModel("experts_hit", hit * weights + counted, flops),
        ByteModel("experts_hit_distinct", distinct * weights + counted, flops),
    ]
    if not counted:
        candidates.append(ByteModel("experts_hit_and_activations", distinct * weights + activations, flops))
    all_counted = p.flag("streams_all_experts")
    candidates.append(ByteModel("all_experts", experts * weights + counted, flops, in_range=all_counted))
    what = {"1": "stage 1 (gate and up)", "2": "stage 2 (down)", "both": "both stages"}[stage]
    notes = (
        f"MoE {what}: {tokens} tokens x top-{top_k} of {experts} experts, {hit:.1f} distinct experts expected "
        f"({distinct:.1f} with distinct draws per token), hidden={hidden} inter={inter}",
        "activations " + ("counted (more than the L2)" if counted else "left out of the figure, in the range"),
    )
    launches = None if stage == "both" else 1
    return Work("moe", "moe", tuple(candidates), "matrix", wider(a, w), w, notes, launches)


@_op(
    "attn_decode",
    "attn",
    source="specification section 4: K and V of the context once; QK^T and PV at 2 FLOPs per MAC and query head",
    leaves_out="softmax FLOPs, page tables, split-KV partial results, KV scales",
    batch=REQUIRED,
    n_q_heads=REQUIRED,
    n_kv_heads=REQUIRED,
    head_dim=REQUIRED,
    seq_len=REQUIRED,
    seq_len_range=None,
    window=None,
    kv_dtype=None,
)
def _attn_decode(p: _Params) -> Work:
    batch, head_dim = p.size("batch"), p.size("head_dim")
    q_heads, kv_heads = p.size("n_q_heads"), p.size("n_kv_heads")
    if q_heads % kv_heads:
        raise ValueError(f"attn_decode: n_q_heads {q_heads} is not a multiple of n_kv_heads {kv_heads}")
    window = p.maybe_size("window")
    a = p.dtype("dtype")
    kv = p.dtype("kv_dtype", a)
    out = p.dtype("out_dtype", a)
    q_and_out = batch * q_heads * head_dim * (a.nbytes + out.nbytes)
    counted = 0.0 if p.held_in_cache(q_and_out) else q_and_out

    def at(model: str, tokens: float, extra: float = 0.0) -> ByteModel:
        seen = min(tokens, window) if window else tokens
        nbytes = batch * seen * kv_heads * head_dim * 2 * kv.nbytes
        return ByteModel(model, nbytes + counted + extra, 4.0 * batch * q_heads * seen * head_dim)

    seq_len = number(p.raw["seq_len"], "attn_decode: seq_len", minimum=1)
    candidates = [at("kv_cache", seq_len)]
    notes = [
        f"attention decode: batch={batch} context={seq_len:g}"
        + (f" window={window}" if window else "")
        + f" q_heads={q_heads} kv_heads={kv_heads} head_dim={head_dim}, KV in {kv.name}"
    ]
    if not counted:
        candidates.append(at("kv_cache_q_and_out", seq_len, q_and_out))
    if "seq_len_range" in p.raw:
        low, high = _context_range(p.raw["seq_len_range"])
        candidates += [at(f"kv_cache_at_{low:g}", low), at(f"kv_cache_at_{high:g}", high)]
        notes.append(f"the context runs from {low:g} to {high:g} tokens: the range covers it")
    return Work("attn_decode", "attn", tuple(candidates), "matrix", wider(a, kv), kv, tuple(notes))


def _context_range(value: object) -> tuple[float, float]:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise ValueError(f"attn_decode: seq_len_range is {value!r}, expected [low, high]")
    low, high = (number(item, "attn_decode: seq_len_range", minimum=1) for item in value)
    if low > high:
        raise ValueError(f"attn_decode: seq_len_range is {value!r}, expected low <= high")
    return low, high


def _streaming(p: _Params, op: str, nbytes: float, flops: float, note: str) -> Work:
    """Element-wise math runs on the vector units in fp32, whatever the storage dtype."""
    a = p.dtype("dtype")
    candidate = ByteModel("inputs_and_outputs", nbytes, flops)
    return Work(op, "elementwise", (candidate,), "vector", parse_dtype("fp32"), a, (note, "math in fp32 assumed"))


@_op(
    "elementwise",
    "elementwise",
    source="specification section 4: every input and output element once, one FLOP per output element",
    leaves_out="broadcast operands re-read from cache, transcendental cost",
    numel=REQUIRED,
    inputs=1,
    outputs=1,
)
def _elementwise(p: _Params) -> Work:
    numel, inputs, outputs = p.size("numel"), p.size("inputs"), p.size("outputs")
    a = p.dtype("dtype")
    nbytes = numel * (inputs * a.nbytes + outputs * p.dtype("out_dtype", a).nbytes)
    note = f"elementwise: {numel} elements, {inputs} read and {outputs} written"
    return _streaming(p, "elementwise", nbytes, float(numel * outputs), note)


def _row_op(p: _Params, op: str, flops_per_element: float, weights: int) -> Work:
    rows, cols = p.size("rows"), p.size("cols")
    a = p.dtype("dtype")
    out = p.dtype("out_dtype", a)
    streams = 2 if op in ("rmsnorm", "layernorm") and p.flag("residual") else 1  # a fused add reads and writes it too
    nbytes = rows * cols * streams * (a.nbytes + out.nbytes) + weights * cols * a.nbytes
    note = f"{op}: {rows} rows x {cols} columns" + (" with a fused residual add" if streams == 2 else "")
    return _streaming(p, op, nbytes, flops_per_element * rows * cols, note)


@_op(
    "rmsnorm",
    "elementwise",
    source="input and output once, the weight row once; square, sum, scale, weight: 4 FLOPs per element",
    leaves_out="quantised outputs' scales",
    rows=REQUIRED,
    cols=REQUIRED,
    residual=False,
)
def _rmsnorm(p: _Params) -> Work:
    return _row_op(p, "rmsnorm", 4, weights=1)


@_op(
    "layernorm",
    "elementwise",
    source="input and output once, weight and bias rows once; mean, variance, scale, weight, bias: 7 FLOPs per element",
    leaves_out="saved mean and variance",
    rows=REQUIRED,
    cols=REQUIRED,
    residual=False,
)
def _layernorm(p: _Params) -> Work:
    return _row_op(p, "layernorm", 7, weights=2)


@_op(
    "softmax",
    "elementwise",
    source="input and output once (the row stays on chip); max, subtract, exp, sum, divide: 5 FLOPs per element",
    leaves_out="rows too long for one pass, masks",
    rows=REQUIRED,
    cols=REQUIRED,
)
def _softmax(p: _Params) -> Work:
    return _row_op(p, "softmax", 5, weights=0)


@_op(
    "copy",
    "elementwise",
    source="every element read once and written once, no FLOPs",
    leaves_out="strides that waste cache lines",
    rows=REQUIRED,
    cols=REQUIRED,
)
def _copy(p: _Params) -> Work:
    return _row_op(p, "copy", 0, weights=0)
