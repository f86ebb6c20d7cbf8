"""The ``meta.json`` of an extracted task: its cases, and the work of each or why it is not known. Knows nothing of pytest.

Cases stand in ``workload.cases``, in older packages in ``cases``; the oldest have buckets of M alone, whose cases their
harnesses call ``decode_M64``. Sizes are those of one GEMM (``m``, ``N``, ``K``, else the shapes of A and B), or stand under
the names that serving stacks give them. A list of shapes without names says nothing of an attention.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from roofline_engine.ops import OPS
from roofline_engine.units import number, parse_dtype, printable

from .values import buildable, label, mapping

META = "meta.json"
#: The largest meta.json that is read, bytes: ten thousand cases are two million.
_LARGEST = 50_000_000
_Meta = Mapping[str, Any]


class Workload(NamedTuple):
    """One case. name: by which the harness reports it. work: keywords of a work model; None, and why in ``reason``."""

    name: str
    work: dict[str, Any] | None
    reason: str = ""
    notes: tuple[str, ...] = ()


class Task(NamedTuple):
    """A task. kernel: the name it has in a profile. problem: why its meta.json says nothing. kind: its ``op_kind``."""

    cases: tuple[Workload, ...] = ()
    kernel: str = ""
    pct_gpu_time: float | None = None
    problem: str = ""
    kind: str = ""

    def case(self, name: str) -> Workload:
        """The case of a name; where it is not told which that is, one without work and the reason."""
        found = [case for case in self.cases if case.name == name]
        if len(found) == 1:
            return found[0]
        why = self.problem if not self.cases else f"{META}: {len(found) or 'no'} cases of this name"
        return Workload(name, None, why)


def of_file(path: Path) -> Task:
    """As ``read``, of a file."""
    try:
        with path.open("rb") as stream:
            data = stream.read(_LARGEST + 1)
    except OSError as error:
        return Task(problem=f"{META} cannot be read: {error.strerror}")
    if len(data) > _LARGEST:
        return Task(problem=f"{META} is larger than {_LARGEST} bytes")
    try:
        return read(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        return Task(problem=f"{META} is no UTF-8 text (byte {error.start})")


def beside(path: Path) -> Task:
    """Of the meta.json in the folder of a record; with no case where there is none."""
    meta = path.with_name(META)
    return of_file(meta) if meta.is_file() else Task(problem=f"it has a name and no sizes; no {META} of its task lies beside")


def read(text: str) -> Task:
    """What a meta.json says; what is wrong with it is the ``problem`` of the task, or the ``reason`` of a case."""
    try:
        meta = json.loads(text)
    except json.JSONDecodeError as error:
        return Task(problem=f"meta.json is no JSON: line {error.lineno} column {error.colno}: {error.msg}")
    except (ValueError, RecursionError) as error:
        return Task(problem=f"meta.json cannot be read: {error}")
    if not isinstance(meta, dict):
        return Task(problem=f"meta.json is a {type(meta).__name__}, expected an object")
    share, problem = None, ""
    if meta.get("pct_gpu_time") is not None:
        try:
            share = number(meta["pct_gpu_time"], "meta.json: pct_gpu_time", minimum=0)
        except ValueError as error:
            problem = str(error)
        if share is not None and share > 100:
            share, problem = None, f"meta.json: pct_gpu_time is {share:g}, expected at most 100"
    kernel = label(meta.get("short_name")) or label(meta.get("kernel_name")) or label(meta.get("name"))
    found = tuple(_case(meta, case, at) for at, case in enumerate(_cases(meta)))
    if not found:
        problem = problem or "meta.json lists no cases: workload.cases, cases or m_buckets"
    return Task(found, kernel, share, problem, label(meta.get("op_kind")))


def _cases(meta: _Meta) -> Iterator[_Meta]:
    for listed in (mapping(meta.get("workload")).get("cases"), meta.get("cases")):
        if isinstance(listed, list) and listed:
            yield from (mapping(case) for case in listed)
            return
    for key, regime in (("decode_m_buckets", "decode"), ("prefill_m_buckets", "prefill")):
        buckets = meta.get(key)
        yield from (_bucket(m, regime) for m in (buckets if isinstance(buckets, list) else ()))
    buckets = meta.get("m_buckets")
    if isinstance(buckets, list) and not meta.get("decode_m_buckets") and not meta.get("prefill_m_buckets"):
        yield from (_bucket(m, "prefill") for m in buckets)


def _bucket(m: Any, regime: str) -> _Meta:
    return {"name": f"{regime}_M{m}", "m": m, "regime": regime}


def _case(meta: _Meta, case: _Meta, at: int) -> Workload:
    name = label(case.get("name")) or label(case.get("sig")) or f"case {at}"
    kind = case.get("op_kind", meta.get("op_kind"))
    maker = _KINDS.get(kind) if isinstance(kind, str) else None
    try:
        if maker is not None:
            keywords = maker(meta, case)
        elif isinstance(kind, str) and kind in OPS:
            keywords = _by_name(meta, case, kind, {key: (key,) for key in OPS[kind].parameters})
        else:
            raise ValueError(f"op_kind is {_shown(kind)}, expected gemm, attn, moe or an op with a work model")
        notes = tuple(keywords.pop("notes", ()))
    except ValueError as error:
        return Workload(name, None, f"meta.json: {error}")
    work, why = buildable(keywords)
    return Workload(name, work, f"meta.json: {why}" if why else "", notes)


# A GEMM.

_GROUPS = ("groups", "num_groups", "experts", "num_experts", "topk", "top_k")


def _gemm(meta: _Meta, case: _Meta) -> dict[str, Any]:
    a, b = _shapes(meta, case)
    transposed = meta.get("transpose_b", True)
    m, n, k = (_first(case, key, key.lower()) for key in "MNK")
    if a is not None:
        m, k = _or(m, a[-2]), _or(k, a[-1])
    if b is not None:
        n, k = _or(n, b[-2 if transposed else -1]), _or(k, b[-1 if transposed else -2])
        inner = b[-1 if transposed else -2]
        if isinstance(inner, int) and isinstance(k, int) and inner != k:
            raise ValueError(f"K is {k}, and {inner} in b_shape with transpose_b {transposed}")
    n, k = _or(n, _first(meta, "N", "n")), _or(k, _first(meta, "K", "k"))  # one layer's, where the cases differ in M alone
    missing = [key for key, value in (("M", m), ("N", n), ("K", k)) if value is None or value == key]
    if missing:
        raise ValueError(f"no {', '.join(missing)} in the case, its dims, a_shape, b_shape or the task")
    found: dict[str, Any] = {"op": "gemm", "M": m, "N": n, "K": k}
    batch = a[0] if a is not None and len(a) == 3 else _first(case, "batch", "b")
    if batch is not None:
        found["batch"] = batch
    grouped = next((key for key in _GROUPS if case.get(key) not in (None, 1)), None)
    if grouped:
        raise ValueError(f"{grouped} is {_shown(case[grouped])} in a case of one GEMM: which GEMMs were timed is not told")
    return _typed(meta, case, found)


def _shapes(meta: _Meta, case: _Meta) -> tuple[list[Any] | None, list[Any] | None]:
    """The shapes of A and B, of the case or else of the task, where M may stand for a size."""
    listed = case.get("dims") or case.get("input_shapes")
    pair = listed[:2] if isinstance(listed, list) and len(listed) >= 2 else [meta.get("a_shape"), meta.get("b_shape")]
    found = []
    for shape, key in zip(pair, ("a_shape", "b_shape")):
        if shape is not None and not (isinstance(shape, list) and 2 <= len(shape) <= 3):
            raise ValueError(f"{key} is {_shown(shape)}, expected two sizes, or three with a batch")
        found.append(shape)
    return found[0], found[1]


def _typed(meta: _Meta, case: _Meta, found: dict[str, Any]) -> dict[str, Any]:
    """The same with the dtypes of a product, and the scales of its quantisation."""
    listed = case.get("dtypes") or case.get("input_dtypes")
    if isinstance(listed, list) and listed:
        found["dtype"], weight = listed[0], listed[1] if len(listed) > 1 else None
    else:
        found["dtype"], weight = case.get("dtype", meta.get("dtype")), None
    weight = case.get("weight_dtype", meta.get("weight_dtype", weight))
    if found["dtype"] in (None, ""):
        raise ValueError("no dtype in the case or the task")
    if weight not in (None, "", found["dtype"]):
        found["weight_dtype"] = weight
    out = case.get("out_dtype", meta.get("out_dtype"))
    if out not in (None, ""):
        found["out_dtype"] = out
    scheme = case.get("quant_scheme", meta.get("quant_scheme"))
    if isinstance(scheme, str) and scheme.lower() in _BLOCK_FORMATS:
        for key in ("dtype", "weight_dtype"):
            if key in found and parse_dtype(found[key]).value_bits == _BLOCK_FORMATS[scheme.lower()]:
                found[key] = scheme.lower()
    elif isinstance(scheme, str) and "weight_dtype" not in found and any(word in scheme.lower() for word in _WEIGHTS_ALONE):
        raise ValueError(f"quant_scheme is {_shown(scheme)}, and no weight_dtype says how wide the weights are")
    return _blocks(case.get("weight_block_size", meta.get("weight_block_size")), found)


#: Schemes that name a dtype with its scales, by the width of its values; and words for weights narrower than activations.
_BLOCK_FORMATS = {"mxfp4": 4, "nvfp4": 4, "mxfp8": 8}
_WEIGHTS_ALONE = ("a16", "awq", "gptq", "weight_only", "weight-only")


def _blocks(blocks: object, found: dict[str, Any]) -> dict[str, Any]:
    if blocks in (None, [], ""):
        return found
    square = isinstance(blocks, list) and len(blocks) == 2 and blocks[0] == blocks[1] and isinstance(blocks[0], int)
    if found["op"] == "gemm" and square and isinstance(blocks, list):
        return {**found, "scale_block": blocks[0]}
    why = "its model has no block scales" if square else "the model's blocks are square"
    return {**found, "notes": (f"weight_block_size {_shown(blocks)} is not counted: {why}",)}


# Ops whose sizes have names.

_MOE = {
    "tokens": ("tokens", "num_tokens"),  # not m: of a routed GEMM it is the rows after routing
    "hidden": ("hidden", "hidden_size", "model_dim"),
    "inter": ("inter", "inter_dim", "intermediate_size", "moe_intermediate_size"),
    "experts": ("experts", "num_experts", "n_experts", "E"),
    "top_k": ("top_k", "topk", "num_experts_per_tok"),
    "stage": ("stage",),
    "gated": ("gated",),
}
_HEADS = {
    "batch": ("batch", "batch_size", "bs", "num_seqs"),
    "n_q_heads": ("n_q_heads", "num_q_heads", "num_heads", "num_query_heads", "num_attention_heads"),
    "n_kv_heads": ("n_kv_heads", "num_kv_heads", "num_key_value_heads"),
    "head_dim": ("head_dim", "head_size"),
    "kv_dtype": ("kv_dtype", "kv_cache_dtype"),
}
_DECODE = {
    **_HEADS,
    "seq_q": ("seq_q", "q_len", "seqlen_q", "decode_qlen"),
    "seq_len": ("seq_len", "context_len", "ctx", "kv_len", "seq_kv"),
    "window": ("window", "sliding_window"),
}
#: One rank of several: which experts are here, and how many tokens reach them, is in none of a task's sizes.
_RANKS = ("ep", "ep_size", "expert_parallel_size")
_LOCAL = ("local_num_experts", "num_local_experts", "local_experts", "n_local_experts")
_PREFILL = {
    **_HEADS,
    "seq_q": ("seq_q", "q_len", "seqlen_q", "seq_len"),
    "seq_kv": ("seq_kv", "kv_len", "seqlen_k", "seq_len"),
    "causal": ("causal", "is_causal"),
    "window": ("window", "sliding_window"),
}


def _moe(meta: _Meta, case: _Meta) -> dict[str, Any]:
    found = _by_name(meta, case, "moe", _MOE)
    for keys, whole in ((_RANKS, 1), (_LOCAL, found.get("experts"))):
        for key in keys:
            said = _first(case, key) or _first(mapping(case.get("params")), key) or _first(meta, key)
            if said is not None and said != whole:
                raise ValueError(f"{key} is {_shown(said)}: how many tokens reach the experts of one rank is not told")
    return _blocks(case.get("weight_block_size", meta.get("weight_block_size")), found)


def _attention(meta: _Meta, case: _Meta) -> dict[str, Any]:
    regime = case.get("regime") or meta.get("regime")
    if regime == "decode":
        return _by_name(meta, case, "attn_decode", _DECODE)
    if regime == "prefill":
        return _by_name(meta, case, "attn_prefill", _PREFILL)
    raise ValueError(f"regime is {_shown(regime)}, expected decode or prefill")


_KINDS = {"gemm": _gemm, "moe": _moe, "attn": _attention}


def _by_name(meta: _Meta, case: _Meta, op: str, names: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """The parameters of an op that stand under one of their names, in the case before the task."""
    found: dict[str, Any] = {"op": op}
    nested = mapping(case.get("params"))
    for key, spellings in names.items():
        value = next((place[name] for place in (case, nested, meta) for name in spellings if place.get(name) is not None), None)
        if value is not None:
            found[key] = value
    missing = [key for key in names if OPS[op].parameters.get(key) is ... and key not in found]
    if missing:
        shapes = "; its list of shapes does not say which size is which" if case.get("dims") or case.get("input_shapes") else ""
        raise ValueError(f"no {', '.join(missing)} of {op}{shapes}")
    typed = _typed(meta, case, found)
    if "weight_dtype" in typed and "weight_dtype" not in OPS[op].parameters:
        second = typed.pop("weight_dtype")
        if "kv_dtype" in OPS[op].parameters:
            typed.setdefault("kv_dtype", second)
    return typed


def _first(values: _Meta, *keys: str) -> Any:
    return next((values[key] for key in keys if values.get(key) is not None), None)


def _or(value: Any, other: Any) -> Any:
    return other if value is None else value


def _shown(value: object) -> str:
    text = printable(repr(value))
    return text if len(text) <= 40 else text[:37] + "..."
