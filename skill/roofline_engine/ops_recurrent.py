"""Work models of linear attention and state-space layers, in their recurrent form.

Chunked kernels compute more than the recurrence to use the matrix units; the FLOPs here are those of the definition.
"""

from __future__ import annotations

from .entry import ByteModel, note
from .models import REQUIRED, Params, Work, op
from .units import parse_dtype


def _recurrent(p: Params, nbytes: float, flops: float, text: str) -> Work:
    """One step runs on the vector units in fp32; a sequence runs chunked on the matrix units."""
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
    leaves_out="the chunked form's extra products, the causal convolution, normalisation of q and k",
    batch=REQUIRED,
    seq=REQUIRED,
    heads=REQUIRED,
    key_heads=None,
    key_dim=REQUIRED,
    value_dim=REQUIRED,
    state_dtype="fp32",
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
    batch=REQUIRED,
    seq=REQUIRED,
    heads=REQUIRED,
    head_dim=REQUIRED,
    state_dim=REQUIRED,
    groups=1,
    state_dtype="fp32",
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
