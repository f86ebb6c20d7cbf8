"""Work models of kernels that stream: element-wise maps, norms, copies, reductions, look-ups, optimizer steps.

Their math runs on the vector units, in fp32 whatever the storage dtype.
"""

from __future__ import annotations

from functools import partial

from ..fields import ByteModel, note
from ..units import Dtype, parse_dtype, whole
from ..work import Params, Work, op

#: Register a work model of this module; they all have one class.
streaming_op = partial(op, op_class="elementwise")


def _stream_work(p: Params, nbytes: float, flops: float, text: str, *, written: float, op_name: str = "") -> Work:
    a = p.dtype("dtype")
    candidate = ByteModel("inputs_and_outputs", nbytes, flops)
    name = op_name or p.op.name
    notes = (note(text), note("math in fp32 assumed"))
    return Work(name, "elementwise", (candidate,), "vector", parse_dtype("fp32"), a, notes, written=written)


@streaming_op(
    "elementwise",
    source="specification section 4: every input and output element once, one FLOP per output element",
    leaves_out="broadcast operands re-read from cache, transcendental cost",
    required=("numel",),
    defaults={"inputs": 1, "outputs": 1},
)
def _elementwise(p: Params) -> Work:
    numel, inputs, outputs = p.size("numel"), p.size("inputs", minimum=0), p.size("outputs", minimum=0)
    a = p.dtype("dtype")
    written = numel * outputs * p.dtype("out_dtype", a).nbytes
    text = f"elementwise: {numel} elements, {inputs} read and {outputs} written"
    return _stream_work(p, numel * inputs * a.nbytes + written, float(numel * outputs), text, written=written)


@streaming_op(
    "rmsnorm",
    source="input and output once, the weight row once; square, sum, scale, weight: 4 FLOPs per element; residual: it is read "
    "and the sum written, in the type of the input, 1 FLOP more",
    leaves_out="quantized outputs' scales",
    required=("rows", "cols"),
    defaults={"residual": False, "weights": 1},
)
@streaming_op(
    "layernorm",
    source="input and output once, weight and bias rows once; mean, variance (3), scale, weight, bias: 7 FLOPs per element; "
    "residual as in rmsnorm",
    leaves_out="saved mean and variance",
    required=("rows", "cols"),
    defaults={"residual": False, "weights": 2},
)
def _norm(p: Params) -> Work:
    """Return the work of rows that are read and written once, with rows of parameters: one FLOP per element each.

    A fused add reads the residual and writes the sum, in the type of the input also where the result is quantized.
    """
    rows, cols, weights = p.size("rows"), p.size("cols"), p.size("weights", minimum=0)
    added = 1 if p.flag("residual") else 0
    a = p.dtype("dtype")
    written = rows * cols * (added * a.nbytes + p.dtype("out_dtype", a).nbytes)
    nbytes = rows * cols * (1 + added) * a.nbytes + written + weights * cols * a.nbytes
    flops = ({"rmsnorm": 3, "layernorm": 5}[p.op.name] + weights + added) * rows * cols
    text = f"{p.op.name}: {rows} rows x {cols} columns" + (" with a fused residual add" if added else "")
    return _stream_work(p, nbytes, flops, text, written=written)


@streaming_op(
    "softmax",
    source="input and output once (the row stays on chip); max, subtract, exp, sum, divide: 5 FLOPs per element",
    leaves_out="rows too long for one pass, masks",
    required=("rows", "cols"),
)
@streaming_op(
    "copy",
    "transpose",
    "cat",
    source="every element read once and written once, no FLOPs",
    leaves_out="strides that waste cache lines, index math",
    required=("rows", "cols"),
)
def _rows(p: Params) -> Work:
    rows, cols = p.size("rows"), p.size("cols")
    a = p.dtype("dtype")
    written = rows * cols * p.dtype("out_dtype", a).nbytes
    flops = (5 if p.op.name == "softmax" else 0) * rows * cols
    text = f"{p.op.name}: {rows} rows x {cols} columns"
    return _stream_work(p, rows * cols * a.nbytes + written, flops, text, written=written)


@streaming_op(
    "reduce",
    source="every element read once, one result per row written; one FLOP per element",
    leaves_out="partial results of a second pass",
    required=("rows", "cols"),
)
def _reduce(p: Params) -> Work:
    rows, cols = p.size("rows"), p.size("cols")
    a = p.dtype("dtype")
    written = rows * p.dtype("out_dtype", a).nbytes
    text = f"reduce: {rows} rows x {cols} columns to one value each"
    return _stream_work(p, rows * cols * a.nbytes + written, float(rows * cols), text, written=written)


@streaming_op(
    "gather",
    source="one table row read and one output row written per index, the indices once; no FLOPs; table_rows: no more rows than "
    "the table has can be read from memory, whatever the indices repeat",
    leaves_out="repeated indices that hit in cache, partly used sectors of narrow rows",
    required=("rows", "cols"),
    optional=("table_rows",),
    defaults={"index_dtype": "int64"},
)
def _gather(p: Params) -> Work:
    rows, cols = p.size("rows"), p.size("cols")
    a = p.dtype("dtype")
    index = p.dtype("index_dtype", parse_dtype("int64"))
    table = p.maybe_size("table_rows") or rows
    written = rows * cols * p.dtype("out_dtype", a).nbytes
    nbytes = min(rows, table) * cols * a.nbytes + rows * index.nbytes + written
    source = f" from a table of {table}" if table < rows else ""
    return _stream_work(p, nbytes, 0.0, f"gather: {rows} rows of {cols}{source}", written=written)


@streaming_op(
    "rope",
    source="each rotated element read and written, cos and sin of each position once; 2 multiplies and an add: 3 FLOPs per "
    "rotated element",
    leaves_out="elements beyond rotary_dim when they are copied too",
    required=("tokens", "n_heads", "head_dim"),
    optional=("rotary_dim",),
)
def _rope(p: Params) -> Work:
    tokens, heads, dim = p.size("tokens"), p.size("n_heads"), p.size("head_dim")
    rotated = p.maybe_size("rotary_dim") or dim
    if rotated > dim:
        raise ValueError(f"rope: rotary_dim {rotated} is more than head_dim {dim}")
    a = p.dtype("dtype")
    elements = tokens * heads * rotated
    written = elements * p.dtype("out_dtype", a).nbytes
    nbytes = elements * a.nbytes + written + tokens * rotated * a.nbytes
    text = f"rope: {tokens} tokens x {heads} heads x {rotated} of {dim}"
    return _stream_work(p, nbytes, 3.0 * elements, text, written=written)


def _scales(p: Params, narrow: Dtype, rows: int, cols: int) -> float:
    """Return the bytes of one scale per group of ``group_size`` columns, by default the whole row."""
    if narrow.bits != narrow.value_bits:
        if "scale_dtype" in p.raw and p.dtype("scale_dtype").bits != 8:
            raise ValueError(f"{p.name('scale_dtype')} is {p.raw['scale_dtype']!r:.40}, but {narrow.name} has scales of 8 bits")
        if "group_size" not in p.raw or p.has_scales(narrow, "group_size"):
            return 0.0
    group = p.maybe_size("group_size") or cols
    return rows * -(-cols // group) * p.dtype("scale_dtype", parse_dtype("fp32")).nbytes


@streaming_op(
    "quantize",
    "dequantize",
    source="input and output once, one scale per group, unless the narrow dtype has its scales in its width (mxfp4, nvfp4); "
    "quantize: abs, max, multiply; dequantize: multiply",
    leaves_out="a second read of rows too long for the chip",
    required=("rows", "cols"),
    optional=("group_size",),
    defaults={"scale_dtype": "fp32"},
)
def _quantize(p: Params) -> Work:
    rows, cols = p.size("rows"), p.size("cols")
    if "out_dtype" not in p.raw:
        raise ValueError(f"{p.op.name}: missing out_dtype")
    before, after = p.dtype("dtype"), p.dtype("out_dtype")
    narrow = after if p.op.name == "quantize" else before
    scales = _scales(p, narrow, rows, cols)
    nbytes = rows * cols * (before.nbytes + after.nbytes) + scales
    written = rows * cols * after.nbytes + (scales if p.op.name == "quantize" else 0.0)
    text = f"{p.op.name}: {rows} rows x {cols} columns, {before.name} to {after.name}"
    flops = {"quantize": 3.0, "dequantize": 1.0}[p.op.name] * rows * cols
    return _stream_work(p, nbytes, flops, text, written=written, op_name="quantize")


@streaming_op(
    "cross_entropy",
    source="the logits once and a loss per row (fp32 unless out_dtype says otherwise); with_grad: the gradient is written in "
    "place after a second read (Liger's fused forward: two reads and one write); max, subtract, exp, sum: 4 FLOPs per "
    "element and pass",
    leaves_out="label smoothing, the target indices",
    required=("rows", "cols"),
    defaults={"with_grad": False},
)
def _cross_entropy(p: Params) -> Work:
    rows, cols = p.size("rows"), p.size("cols")
    a = p.dtype("dtype")
    passes = 3 if p.flag("with_grad") else 1
    losses = rows * p.dtype("out_dtype", parse_dtype("fp32")).nbytes
    nbytes, written = rows * cols * passes * a.nbytes + losses, losses + (rows * cols * a.nbytes if passes == 3 else 0.0)
    flops = 4.0 * rows * cols * (2 if passes == 3 else 1)
    direction = "with the gradient written in place" if passes == 3 else "forward"
    return _stream_work(p, nbytes, flops, f"cross-entropy {direction}: {rows} rows x {cols} classes", written=written)


@streaming_op(
    "topk",
    source="every element read once, k values and 32-bit indices per row written; one comparison per element",
    leaves_out="passes of a radix selection over rows that do not stay on chip",
    required=("rows", "cols", "k"),
)
def _topk(p: Params) -> Work:
    rows, cols, k = p.size("rows"), p.size("cols"), p.size("k")
    if k > cols:
        raise ValueError(f"topk: k {k} is more than cols {cols}")
    a = p.dtype("dtype")
    written = rows * k * (p.dtype("out_dtype", a).nbytes + 4.0)
    text = f"top-{k} of {rows} rows x {cols}"
    return _stream_work(p, rows * cols * a.nbytes + written, float(rows * cols), text, written=written)


#: Optimizers: (state tensors, FLOPs per parameter). Adam: two moments, their corrections, root, divide, decay.
_OPTIMIZERS: dict[object, str] = {"sgd": "sgd", "momentum": "momentum", "adam": "adam", "adamw": "adam"}
_STEPS = {"sgd": (0, 2), "momentum": (1, 4), "adam": (2, 14)}


@streaming_op(
    "optimizer",
    source="parameter, gradient and state read, parameter and state written; FLOPs of the update rule per parameter "
    "(sgd 2, momentum 4, Adam 14)",
    leaves_out="gradient norms and clipping, loss scaling",
    required=("numel", "algorithm"),
    optional=("grad_dtype", "master_dtype"),
    defaults={"state_dtype": "fp32"},
)
def _optimizer(p: Params) -> Work:
    numel = whole(p.raw["numel"], p.name("numel"))
    states, flops = _STEPS[p.choice("algorithm", _OPTIMIZERS)]
    a = p.dtype("dtype")
    if p.dtype("out_dtype", a) != a:
        raise ValueError(f"{p.name('out_dtype')} is {p.raw['out_dtype']!r:.40}, but the step writes the parameter, in {a.name}")
    state = states * p.dtype("state_dtype", parse_dtype("fp32")).nbytes
    # With a master copy that one is read and written, and the low-precision copy is only written.
    main = p.dtype("master_dtype", a).nbytes
    written = main + state + (a.nbytes if "master_dtype" in p.raw else 0.0)
    read = main + state + p.dtype("grad_dtype", a).nbytes
    text = f"{p.raw['algorithm']} step over {numel} parameters"
    return _stream_work(p, numel * (read + written), float(flops * numel), text, written=numel * written)
