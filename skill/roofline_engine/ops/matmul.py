"""Work models of matrix multiplications: GEMM, grouped GEMM, MoE experts, convolutions, sparse matrices."""

from __future__ import annotations

import math
from functools import partial

from ..fields import ByteModel, note
from ..units import Dtype, parse_dtype, whole, wider_dtype
from ..work import LEFT_TO_CACHE, Params, Work, op


def _with_16_bit_output(p: Params, a: Dtype, nbytes: float, elements: float, flops: float) -> tuple[ByteModel, ...]:
    """Return A + B + C; for a narrow GEMM without out_dtype also with the 16-bit output that it usually writes."""
    out = p.dtype("out_dtype", a)
    primary = ByteModel("a_b_c", nbytes + elements * out.nbytes, flops)
    if "out_dtype" in p.raw or a.value_bits >= 16:
        return (primary,)
    return primary, ByteModel("a_b_c_16bit_out", nbytes + elements * 2.0, flops)


#: 2:4 sparsity of the weights: two of four values are kept, each with an index of two bits, and the multiply-adds of the
#: others are skipped (NVIDIA, PTX ISA, sparse mma; A100 white paper: twice the dense rate; hipSPARSELt, storage format). Of
#: 4-bit values a pair has one index (PTX ISA, 4:8 in pairs).
_SPARSITIES: dict[object, str] = {"dense": "dense", "2:4": "2:4"}
_SPARSE_SOURCE = '; sparsity="2:4": half of the weights with 2-bit indices, half of the multiply-adds'


def _kept(p: Params, w: Dtype) -> tuple[float, float]:
    """Return the bytes of one weight, and the share of the multiply-adds that are done, under the sparsity of the weights."""
    if p.choice("sparsity", _SPARSITIES) == "dense":
        return w.nbytes, 1.0
    index = 2.0 / 8 if w.value_bits > 4 else 1.0 / 8
    return (w.nbytes + index) / 2, 0.5


@op(
    "gemm",
    op_class="gemm",
    source="2MNK; A + B + C once each (specification section 4; cuBLAS and rocBLAS report the same); block scales: fp32 "
    "per 1 x b of A and b x b of B (DeepSeek-V3 fp8), 16 bit per group of B's K (GPTQ, AWQ); addend: elements of C or of a "
    "bias, read in the output's type (BLAS: alpha A B + beta C)" + _SPARSE_SOURCE,
    leaves_out="split-K partial sums, padding, zero points, the FLOPs of alpha, beta and bias, cache misses beyond the first "
    "touch",
    required=("M", "N", "K"),
    optional=("weight_dtype", "scale_block", "group_size"),
    defaults={"batch": 1, "addend": 0, "sparsity": "dense"},
)
def _gemm(p: Params) -> Work:
    m, n, k, batch = p.size("M"), p.size("N"), p.size("K"), p.size("batch")
    a = p.dtype("dtype")
    w = p.dtype("weight_dtype", a)
    scales = 0.0
    block, group = p.maybe_size("scale_block"), p.maybe_size("group_size")
    if block and not p.has_scales(a, "scale_block"):
        scales += 4.0 * m * math.ceil(k / block)
    if block and not p.has_scales(w, "scale_block"):
        scales += 4.0 * math.ceil(k / block) * math.ceil(n / block)
    if group and not p.has_scales(w, "group_size"):
        scales += 2.0 * math.ceil(k / group) * n
    weight_bytes, done = _kept(p, w)
    flops = 2.0 * batch * m * n * k * done
    inputs = batch * (m * k * a.nbytes + k * n * weight_bytes + scales)
    if "addend" in p.raw:
        inputs += p.size("addend", minimum=0) * p.dtype("out_dtype", a).nbytes
    candidates = _with_16_bit_output(p, a, inputs, batch * m * n, flops)
    written = batch * m * n * p.dtype("out_dtype", a).nbytes
    texts = [f"GEMM M={m} N={n} K={k}" + (f" batch={batch}" if batch > 1 else "") + (", 2:4 sparse" if done < 1 else "")]
    if len(candidates) > 1:
        texts.append(f"out_dtype not given: {a.name} assumed, a 16-bit output is in the range")
    return Work("gemm", "gemm", candidates, "matrix", wider_dtype(a, w), w, tuple(map(note, texts)), written=written)


@op(
    "grouped_gemm",
    op_class="gemm",
    source="2MNK over the rows of all groups; the weights of each group that has rows, once (DeepGEMM's accounting); "
    "without group_sizes every group has rows while there are enough, and those that uniform draws hit are in the range"
    + _SPARSE_SOURCE,
    leaves_out="padding of groups to tiles, block scales, empty groups' launches, skew without group_sizes",
    required=("M", "N", "K", "groups"),
    optional=("group_sizes", "weight_dtype"),
    defaults={"sparsity": "dense"},
)
def _grouped_gemm(p: Params) -> Work:
    m, n, k, groups = p.size("M"), p.size("N"), p.size("K"), p.size("groups")
    used = min(groups, m)
    if "group_sizes" in p.raw:
        sizes = p.sizes("group_sizes", minimum=0)
        if len(sizes) != groups or sum(sizes) != m:
            raise ValueError(
                f"grouped_gemm: group_sizes has {len(sizes)} sizes that add up to {sum(sizes)}, not {groups}, M={m}"
            )
        used = sum(size > 0 for size in sizes)
    a = p.dtype("dtype")
    w = p.dtype("weight_dtype", a)
    weight_bytes, done = _kept(p, w)
    flops = 2.0 * m * n * k * done
    candidates = _with_16_bit_output(p, a, m * k * a.nbytes + used * k * n * weight_bytes, m * n, flops)
    if "group_sizes" not in p.raw:
        unused = (used - experts_hit(groups, m)) * k * n * weight_bytes
        candidates += (ByteModel("groups_hit", candidates[0].bytes - unused, flops),)
    text = f"grouped GEMM: {m} rows over {used} of {groups} groups, N={n} K={k}" + (", 2:4 sparse" if done < 1 else "")
    written = m * n * p.dtype("out_dtype", a).nbytes
    return Work("grouped_gemm", "gemm", candidates, "matrix", wider_dtype(a, w), w, (note(text),), written=written)


def experts_hit(experts: float, pairs: float) -> float:
    """Return the distinct experts that ``pairs`` independent uniform draws touch: E(1 - (1 - 1/E)^pairs).

    Source: specification section 4 (the coupon-collector expectation). Never above min(pairs, E) for pairs >= 1.
    """
    if experts <= 1:
        return float(min(experts, pairs))
    return -experts * math.expm1(pairs * math.log1p(-1.0 / experts))


def experts_hit_distinct(experts: float, tokens: float, top_k: float) -> float:
    """Return the same for ``top_k`` distinct experts a token, as top-k routing draws them: E(1 - (1 - k/E)^tokens)."""
    if top_k >= experts:
        return float(experts)
    return -experts * math.expm1(tokens * math.log1p(-top_k / experts))


def experts_expected(experts: float, tokens: float, top_k: float) -> float:
    """Return the distinct experts of the figure.

    A token draws ``top_k`` distinct experts, so it leaves one out with the probability 1 - k/E, T tokens with (1 - k/E)^T, and
    E(1 - (1 - k/E)^T) are hit: exactly k by one token. The specification's estimate draws with replacement, a fraction of an
    expert less. It stands where there are more draws than experts, and few are left to miss.
    """
    if tokens * top_k <= experts:
        return experts_hit_distinct(experts, tokens, top_k)
    return experts_hit(experts, tokens * top_k)


_STAGES: dict[object, str] = {1: "1", 2: "2", "1": "1", "2": "2", "both": "both", "gate_up": "1", "down": "2"}


@op(
    "moe",
    op_class="moe",
    source="specification section 4: routed experts' weights; 2 FLOPs per MAC and (token, expert) pair" + _SPARSE_SOURCE,
    leaves_out="router, token sorting, block scales, routing skew unless ``routing`` gives it (it lowers the distinct "
    "experts), the FLOPs of the activation, rows of stage 2 that are written by expert before they are summed",
    required=("tokens", "hidden", "inter", "experts", "top_k"),
    optional=("routing", "shared_inter", "weight_dtype"),
    defaults={"stage": "both", "gated": True, "shared_experts": 0, "streams_all_experts": False, "sparsity": "dense"},
)
def _moe(p: Params) -> Work:
    tokens, hidden, inter = p.size("tokens"), p.size("hidden"), p.size("inter")
    experts, top_k, shared = p.size("experts"), p.size("top_k"), p.size("shared_experts", minimum=0)
    if top_k > experts:
        raise ValueError(f"moe: top_k {top_k} is more than experts {experts}")
    stage = p.choice("stage", _STAGES)
    a = p.dtype("dtype")
    w = p.dtype("weight_dtype", a)
    out = p.dtype("out_dtype", a)

    def elements(width: int) -> int:
        """Return the weights of one expert in this stage."""
        up = hidden * width * (2 if p.flag("gated") else 1)
        return {"1": up, "2": width * hidden, "both": up + width * hidden}[stage]

    pairs = tokens * top_k
    shared_width = p.maybe_size("shared_inter") or inter
    shared_elements = shared * elements(shared_width)  # of experts that every token passes, in the same launch
    weight_bytes, done = _kept(p, w)
    flops = done * (2.0 * pairs * elements(inter) + 2.0 * tokens * shared_elements)

    stage_1_out = pairs * inter + tokens * shared * shared_width
    rows_in = tokens * hidden if stage != "2" else stage_1_out
    rows_out = stage_1_out if stage == "1" else tokens * hidden
    activations = rows_in * a.nbytes + rows_out * out.nbytes
    intermediate = stage_1_out * a.nbytes if stage == "both" else 0.0

    weights, fixed = elements(inter) * weight_bytes, shared_elements * weight_bytes
    if "routing" in p.raw:
        hit = _routed(p, experts, pairs)
        experts_text = f"{hit} experts hit by the captured routing"
        candidates = [ByteModel("experts_routed", hit * weights + fixed, flops)]
        largest = hit * weights
    else:
        expected, distinct = experts_expected(experts, tokens, top_k), experts_hit_distinct(experts, tokens, top_k)
        experts_text = f"{expected:.1f} distinct experts expected"
        candidates = [ByteModel("experts_hit", expected * weights + fixed, flops)]
        if expected != distinct:
            experts_text += f" ({distinct:.1f} with distinct draws per token)"
            candidates.append(ByteModel("experts_hit_distinct", distinct * weights + fixed, flops))
        largest = distinct * weights
    candidates.append(ByteModel("experts_hit_and_activations", largest + fixed + activations, flops))
    every = ByteModel("all_experts", experts * weights + fixed, flops, in_range=p.flag("streams_all_experts"))
    what = {"1": "stage 1 (gate and up)", "2": "stage 2 (down)", "both": "both stages"}[stage]
    sizes = f"hidden={hidden} inter={inter}" + (f", {shared} shared" if shared else "") + (", 2:4 sparse" if done < 1 else "")
    notes = (note(f"MoE {what}: {tokens} tokens x top-{top_k} of {experts} experts, {experts_text}, {sizes}"), LEFT_TO_CACHE)
    launches = None if stage == "both" else 1
    cached = (activations, intermediate)
    return Work("moe", "moe", (*candidates, every), "matrix", wider_dtype(a, w), w, notes, launches, cached)


def _routed(p: Params, experts: int, pairs: int) -> int:
    """Return the number of experts with tokens in a captured histogram of tokens per expert."""
    histogram = p.sizes("routing", minimum=0)
    if len(histogram) != experts or sum(histogram) != pairs:
        raise ValueError(
            f"moe: routing has {len(histogram)} counts that add up to {sum(histogram)}, expected {experts} experts "
            f"and tokens x top_k = {pairs}"
        )
    return sum(count > 0 for count in histogram)


_DIRECTIONS: dict[object, str] = {"forward": "forward", "data": "data", "weight": "weight"}


@op(
    "conv1d",
    "conv2d",
    "conv3d",
    op_class="gemm",
    source="2 x batch x out_channels x outputs x in_channels/groups x taps, the same forward, by data and by weight "
    "(torch.utils.flop_counter conv_flop_count); input, weight and output once, a bias (by weight its gradient) once; of the "
    "input only the positions that a tap meets: a stride beyond the kernel skips some",
    leaves_out="im2col copies, Winograd and FFT (they execute fewer FLOPs), the FLOPs of a bias, taps that meet only "
    "padding (counted as FLOPs and as weights), skipped positions that share a sector with others",
    required=("batch", "in_channels", "out_channels", "input", "kernel"),
    optional=("weight_dtype",),
    defaults={"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "direction": "forward", "bias": False},
)
def _conv(p: Params) -> Work:
    dims = int(p.op.name[4])
    batch, groups = p.size("batch"), p.size("groups")
    channels, filters = p.size("in_channels"), p.size("out_channels")
    if channels % groups or filters % groups:
        raise ValueError(f"{p.op.name}: {channels} and {filters} channels do not split into {groups} groups")
    extent, kernel = p.sizes("input"), p.sizes("kernel")
    if len(extent) != dims or len(kernel) != dims:
        raise ValueError(f"{p.op.name}: input and kernel need {dims} sizes, got {len(extent)} and {len(kernel)}")
    stride, padding, dilation = (_per_axis(p, key, dims) for key in ("stride", "padding", "dilation"))
    out = [
        (size + 2 * pad - step * (taps - 1) - 1) // hop + 1
        for size, taps, hop, pad, step in zip(extent, kernel, stride, padding, dilation)
    ]
    if min(out) < 1:
        raise ValueError(f"{p.op.name}: the kernel {kernel} does not fit the input {extent}")
    a = p.dtype("dtype")
    w = p.dtype("weight_dtype", a)
    macs = batch * filters * math.prod(out) * (channels // groups) * math.prod(kernel)
    direction = p.choice("direction", _DIRECTIONS)
    axes = zip(extent, kernel, stride, padding, dilation, out)
    met = extent if direction == "data" else [positions_met(*axis) for axis in axes]  # a gradient is written in full
    sizes = {
        "input": batch * channels * math.prod(met) * a.nbytes,
        "weight": filters * (channels // groups) * math.prod(kernel) * w.nbytes,
        "output": batch * filters * math.prod(out) * p.dtype("out_dtype", a).nbytes,
    }
    if p.flag("bias") and direction != "data":
        sizes["bias"] = filters * w.nbytes
    candidate = ByteModel("input_weight_output", sum(sizes.values()), 2.0 * macs)
    written = {"forward": ("output",), "data": ("input",), "weight": ("weight", "bias")}[direction]
    text = f"{p.op.name} {direction}: {batch} x {channels} x {extent}, {filters} filters of {kernel}, output {out}"
    written_bytes = sum(sizes.get(part, 0.0) for part in written)
    return Work(p.op.name, "gemm", (candidate,), "matrix", wider_dtype(a, w), w, (note(text),), written=written_bytes)


def positions_met(size: int, taps: int, stride: int, padding: int, dilation: int, outputs: int) -> int:
    """Return how many of the ``size`` positions of an axis a window of ``taps`` meets in ``outputs`` steps, without padding.

    Tap t meets the positions t x dilation - padding + i x stride for i < outputs. Positions with the same remainder by the
    stride are neighbors, so they are counted as stretches.
    """
    met = 0
    ends: dict[int, int] = {}
    for tap in range(taps):
        first, rest = divmod(tap * dilation - padding, stride)
        last = min(first + outputs - 1, (size - 1 - rest) // stride)
        begin = max(first, ends.get(rest, -1) + 1)
        if begin <= last:
            met += last - begin + 1
            ends[rest] = last
    return met


def _per_axis(p: Params, key: str, dims: int) -> list[int]:
    """Return the sizes of a parameter that has one size for every axis, or one for each."""
    minimum = 0 if key == "padding" else 1
    value = p.raw.get(key, p.op.parameters[key])
    values = value if isinstance(value, (list, tuple)) else [value] * dims
    if len(values) != dims:
        raise ValueError(f"{p.name(key)} needs {dims} sizes, got {len(values)}")
    return [whole(item, p.name(key), minimum=minimum) for item in values]


_FORMATS: dict[object, str] = {name: name for name in ("csr", "csc", "coo", "bsr")}
_sparse = partial(
    op,
    op_class="elementwise",
    source="2 FLOPs per stored value and column of the dense operand; stored values, column indices and row pointers once, the "
    "dense operand's rows that a stored value meets once, the result once: the compulsory traffic of Williams et al., SC07 "
    "(doi:10.1145/1362622.1362674) and of Bell and Garland, NVIDIA NVR-2008-004; without cols_used every column has values "
    "while there are enough, and no fewer than nnz / rows columns can have them",
    leaves_out="partly used cache lines of the dense operand, its rows that are read again, a result that is added to",
    optional=("weight_dtype", "block", "cols_used"),
    defaults={"format": "csr", "index_dtype": "int32"},
)


@_sparse("spmm", required=("rows", "cols", "n", "nnz"))
@_sparse("spmv", required=("rows", "cols", "nnz"))
def _sparse_product(p: Params) -> Work:
    """Return the work of a sparse matrix, ``rows`` x ``cols``, times a dense matrix, ``cols`` x ``n``, or a vector."""
    rows, cols, nnz = p.size("rows"), p.size("cols"), p.size("nnz", minimum=0)
    n = p.size("n") if p.op.name == "spmm" else 1
    kind = p.choice("format", _FORMATS)
    block = p.sizes("block") if "block" in p.raw else [1, 1]
    if ("block" in p.raw) != (kind == "bsr") or len(block) != 2:
        raise ValueError(f"{p.name('block')} is {p.raw.get('block')!r:.40}, expected rows and columns of a block for bsr alone")
    if kind != "coo" and nnz > rows * cols:  # COO may repeat a place
        raise ValueError(f"{p.name('nnz')} is {nnz}, more than the {rows} x {cols} places of the matrix")
    a, index = p.dtype("dtype"), p.dtype("index_dtype", parse_dtype("int32"))
    b = p.dtype("weight_dtype", a)
    met = p.maybe_size("cols_used", minimum=0)
    most = min(cols, nnz) if met is None else met
    blocks = nnz / math.prod(block)
    indices = {"csr": nnz + rows + 1, "csc": nnz + cols + 1, "coo": 2 * nnz, "bsr": blocks + rows / block[0] + 1}[kind]
    wide = wider_dtype(a, b)
    fixed = nnz * a.nbytes + indices * index.nbytes + rows * n * p.dtype("out_dtype", wide).nbytes
    flops = 2.0 * nnz * n
    candidate = ByteModel("values_indices_and_vectors", fixed + most * n * b.nbytes, flops)
    fewest = min(math.ceil(nnz / rows), most)
    text = f"{p.op.name}: {rows} x {cols} in {kind.upper()} with {nnz} stored values, times {n} columns"
    least = None if met is not None else (fixed + fewest * n * b.nbytes, flops)
    return Work(p.op.name, "elementwise", (candidate,), "vector", wide, b, (note(text),), least=least)
