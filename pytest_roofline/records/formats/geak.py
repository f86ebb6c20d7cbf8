"""GEAK: the lines that a task's unittest prints, its op_bench JSON, and the ``meta.json`` of a task, which has the sizes.

Times are ms by their keys, from device events. A case has a name and no sizes; those are in the task's ``meta.json`` next to
the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from roofline_engine.files import parse_json, read_text
from roofline_engine.ops import OPS, op_name
from roofline_engine.units import number, parse_dtype, quantize_dtype

from ..source import DocumentFormat, RecordRow, RefusedError, Sample, Source, parse
from ..values import build_row, check_work, count, first, flag, items, label, mapping, maybe_seconds, ratio, short_repr

META = "meta.json"


class Workload(NamedTuple):
    """One case of a task."""

    name: str  # by which the harness reports it
    work: dict[str, Any] | None  # keywords of a work model
    reason: str = ""  # why work is None
    notes: tuple[str, ...] = ()


class Task(NamedTuple):
    """What a ``meta.json`` says of its task."""

    cases: tuple[Workload, ...] = ()
    kernel: str = ""  # its name in a profile
    pct_gpu_time: float | None = None
    problem: str = ""  # what is wrong with the file
    kind: str = ""  # its op_kind

    def case(self, name: str) -> Workload:
        """Return the case with this name; when it is missing or ambiguous, a case without work and with the reason."""
        cases = [case for case in self.cases if case.name == name]
        if len(cases) == 1:
            return cases[0]
        return Workload(name, None, f"{META}: {len(cases) or 'no'} cases of this name" if self.cases else self.problem)


# Lines: ``GEAK_PER_CASE [{"sig": ..., "baseline_ms": ..., "optimized_ms": ...}]``. Baseline and optimized are the same kernel
# before and after, so the baseline is ``previous``. The geomean, weighted and v3 latency lines mix shapes and are not rows.
# ``RESULT PASS|FAIL`` is about the list before it.

_MARKED = re.compile(r"^[ \t]*GEAK_[A-Z_]+[ =:]", re.MULTILINE)
CASES = re.compile(r"\s*GEAK_PER_CASE\s*[=:]?\s*(?=\[)")
_RESULT = re.compile(r"\s*RESULT\s+(PASS|FAIL)\b")
_UNTRUSTED = re.compile(r"\s*GEAK_[A-Z_]*SPEEDUP[ =:].*\buntrusted\b", re.IGNORECASE)
#: The speedup is printed with three or four digits.
_ROUNDING = 0.002


def _read_lines(source: Source) -> Iterator[RecordRow]:
    waiting: list[RecordRow] = []  # the rows of the last list, for the result behind it
    task, has_list = read_task_next_to(source.path), False
    for at, line in enumerate(source.lines(), 1):
        result, cases = _RESULT.match(line), CASES.match(line)
        if result:
            yield from (replace(record, correct=result[1] == "PASS") for record in waiting)
            waiting = []
        elif cases:
            yield from waiting
            has_list = True
            listed = parse(line[cases.end() :], f"{source.label}: line {at}: GEAK_PER_CASE")
            waiting = [_case_row(case, f"line {at}: [{place}]", task) for place, case in enumerate(listed)]
        elif _UNTRUSTED.match(line):
            note = "the harness itself calls the speedup untrusted"
            waiting = [replace(record, notes=(*record.notes, note)) for record in waiting]
    yield from waiting
    if not has_list:
        raise RefusedError(f"{source.label}: no GEAK_PER_CASE line with a list; a speedup over all shapes has no roof")


def _case_row(case: Any, where: str, task: Task) -> RecordRow:
    case = mapping(case)
    if not case:
        return RecordRow(row=where, refused="expected an object with sig, baseline_ms and optimized_ms", refused_code="row")
    name = label(case.get("sig")) or label(case.get("name"))
    baseline, notes = maybe_seconds(case, "baseline_ms")
    workload = _same_case(task.case(name), case.get("m"))
    printed = ratio(case.get("speedup"))
    record = build_row(
        where,
        case,
        "optimized_ms",
        name=name,
        work=(workload.work, workload.reason),
        rounds=count(case.get("reps")),
        baseline=("previous", baseline),
        speedup=printed,
        notes=(*notes, *workload.notes),
    )
    if record.t_s is not None and baseline is not None:
        if baseline == record.t_s:
            record.notes += ("baseline_ms and optimized_ms are equal to the last digit: was the same leg timed twice?",)
        if printed is not None and abs(printed * record.t_s / baseline - 1) > _ROUNDING:
            record.notes += (f"speedup is {short_repr(case['speedup'])}, its own times give {baseline / record.t_s:.4g}",)
    return record


def _same_case(workload: Workload, m: object) -> Workload:
    """Return the case, without work when its M is not the printed one: the task may have been extracted again since."""
    if workload.work is None or m is None or workload.work.get("M", m) == m:
        return workload
    reason = f"{META} has M = {workload.work['M']} for this case, and m is {short_repr(m)} here"
    return workload._replace(work=None, reason=reason)


# op_bench: one op, a row per backend, with the backend in use as the baseline: another kernel, so ``reference``.
# ``isolated_speedup`` null means never timed, and 0.0 in old files the same or "not faster": both are missing.
# ``measurement_mode`` is the cache.


def _is_op_bench(sample: Sample) -> bool:
    keys = sample.keys
    return ".op_kind" in keys and not keys.isdisjoint((".results[].backend", ".winner_backend", ".winner_ms"))


def _read_op_bench(source: Source) -> Iterator[RecordRow]:
    whole = mapping(source.json())
    workload = _timed_case(whole, read_task_next_to(source.path))
    results = items(whole.get("results"))
    if results:
        for at, result in enumerate(results):
            yield _backend_row(whole, mapping(result), f"results[{at}]", "ms", workload)
    elif whole.get("winner_ms") is not None:
        winner = {"backend": whole.get("winner_backend"), "winner_ms": whole["winner_ms"]}
        yield _backend_row(whole, winner, "winner", "winner_ms", workload)
    else:
        raise RefusedError(f"{source.label}: no results and no winner_ms, expected a list of backends with ms")


def _backend_row(whole: Mapping[str, Any], result: Mapping[str, Any], where: str, key: str, workload: Workload) -> RecordRow:
    backend, correct = label(result.get("backend")), flag(result.get("correct"))
    name = "/".join(part for part in (label(whole.get("task")) or label(whole.get("op_kind")), backend) if part)
    refused = _not_timed(whole, result)
    if refused:
        return RecordRow(row=where, name=name, refused=refused, correct=correct)
    baseline, notes = maybe_seconds(whole, "baseline_ms")
    if whole.get("baseline_ms") == result.get(key):
        baseline = None  # this row is the baseline
    if whole.get("harness_suspect") is True:
        notes += ("the harness calls its own run suspect",)
    mode, is_winner = whole.get("measurement_mode"), backend == label(whole.get("winner_backend"))
    return build_row(
        where,
        result,
        key,
        name=name,
        work=(workload.work, workload.reason),
        wall_s=maybe_seconds(result, "wall_ms")[0],
        cache=mode if mode in ("cold", "warm") else "unknown",
        baseline=("reference", baseline),
        speedup=ratio(whole.get("isolated_speedup")) if is_winner and whole.get("baseline_ms") is None else None,
        correct=correct,
        notes=(*notes, *workload.notes),
    )


def _timed_case(whole: Mapping[str, Any], task: Task) -> Workload:
    """Return the case that was timed, when the task has only one."""
    kind = label(whole.get("op_kind"))
    if len(task.cases) == 1 and task.kind == kind:
        return task.cases[0]
    why = f"{META} has {len(task.cases)} cases, and this file does not say which was timed" if task.cases else task.problem
    if task.cases and task.kind != kind:
        why = f"the task's {META} has op_kind {task.kind or 'unknown'}, this file {kind or 'unknown'}"
    return Workload("", None, why)


def _not_timed(whole: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    if whole.get("measured") is False:
        return "measured is false: nothing was timed"
    if not result:
        return "expected an object with backend and ms"
    if result.get("available") is False:
        return "available is false: the backend did not run"
    return "" if result.get("raised") in (None, False) else "raised: the backend failed"


# meta.json. Cases are in ``workload.cases``, in older packages in ``cases``; the oldest have buckets of M alone, whose cases
# their harnesses call ``decode_M64``. Sizes are those of one GEMM (``m``, ``N``, ``K``, else the shapes of A and B), or have
# the names that serving stacks give them. A list of shapes without names does not describe an attention.

#: The largest meta.json that is read (bytes): ten thousand cases are two million.
_LARGEST = 50_000_000


def read_task_next_to(path: Path) -> Task:
    """Return the task of the meta.json next to a file; without cases when that is missing."""
    meta = path.with_name(META)
    if meta.is_file():
        return read_task(meta)
    return Task(problem=f"no shapes: the row has only a name, and there is no {META} next to the file")


def read_task(path: Path) -> Task:
    """Return the task of a meta.json; a fault in the file is its ``problem``."""
    try:
        return parse_task(read_text(str(path), _LARGEST))
    except ValueError as error:
        return Task(problem=str(error))


def parse_task(text: str) -> Task:
    """Return the task in a meta.json; a fault is the ``problem`` of the task or the ``reason`` of a case."""
    try:
        meta = parse_json(text, META)
    except ValueError as error:
        return Task(problem=str(error))
    if not isinstance(meta, dict):
        return Task(problem=f"{META} is a {type(meta).__name__}, expected an object")
    share, problem = None, ""
    if meta.get("pct_gpu_time") is not None:
        try:
            share = number(meta["pct_gpu_time"], f"{META}: pct_gpu_time", minimum=0, maximum=100)
        except ValueError as error:
            problem = str(error)
    kernel = label(meta.get("short_name")) or label(meta.get("kernel_name")) or label(meta.get("name"))
    cases = tuple(_workload(_Case(case, meta), at) for at, case in enumerate(_cases(meta)))
    if not cases:
        problem = problem or f"{META} lists no cases: workload.cases, cases or m_buckets"
    return Task(cases, kernel, share, problem, label(meta.get("op_kind")))


def _cases(meta: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    listed = items(mapping(meta.get("workload")).get("cases")) or items(meta.get("cases"))
    if listed:
        return list(map(mapping, listed))
    buckets = [(regime, m) for regime in ("decode", "prefill") for m in items(meta.get(f"{regime}_m_buckets"))]
    if not meta.get("decode_m_buckets") and not meta.get("prefill_m_buckets"):
        buckets = [("prefill", m) for m in items(meta.get("m_buckets"))]
    return [{"name": f"{regime}_M{m}", "m": m, "regime": regime} for regime, m in buckets]


class _Case:
    """The values of one case, of its nested params, and of its task."""

    def __init__(self, case: Mapping[str, Any], meta: Mapping[str, Any]) -> None:
        self.case, self.meta = case, meta

    def get(self, *names: str) -> Any:
        """Return the value under one of these names, of the case before that of the task."""
        return _pick(self.of_case(*names), first(self.meta, *names))

    def of_case(self, *names: str) -> Any:
        """Return the value under one of these names in the case itself."""
        return _pick(first(self.case, *names), first(mapping(self.case.get("params")), *names))

    def shapes(self) -> Any:
        """Return the list of shapes of the case's operands."""
        return self.case.get("dims") or self.case.get("input_shapes")


def _workload(case: _Case, at: int) -> Workload:
    name = label(case.case.get("name")) or label(case.case.get("sig")) or f"case {at}"
    kind = case.get("op_kind")
    maker = _KINDS.get(kind) if isinstance(kind, str) else None
    try:
        if maker is not None:
            keywords = maker(case)
        elif isinstance(kind, str) and (op := op_name(kind)) in OPS:
            keywords = _by_name(case, op, {key: (key,) for key in OPS[op].parameters})
        else:
            raise ValueError(f"op_kind is {short_repr(kind)}, expected gemm, attn, moe or an op with a work model")
        notes = tuple(keywords.pop("notes", ()))
    except ValueError as error:
        return Workload(name, None, f"{META}: {error}")
    work, why = check_work(keywords)
    return Workload(name, work, f"{META}: {why}" if why else "", notes)


_GROUPS = ("groups", "num_groups", "experts", "num_experts", "topk", "top_k")


def _gemm(case: _Case) -> dict[str, Any]:
    a, b = _shapes(case)
    transposed = case.meta.get("transpose_b", True)
    b_n, b_k = (b[-2], b[-1]) if transposed else (b[-1], b[-2])
    sizes = {
        "M": _pick(case.of_case("M", "m"), a[-2]),
        "N": _pick(case.of_case("N", "n"), b_n, first(case.meta, "N", "n")),  # one layer's, when the cases differ in M alone
        "K": _pick(case.of_case("K", "k"), a[-1], b_k, first(case.meta, "K", "k")),
    }
    if isinstance(b_k, int) and isinstance(sizes["K"], int) and b_k != sizes["K"]:
        raise ValueError(f"K is {sizes['K']}, and {b_k} in b_shape with transpose_b {transposed}")
    missing = [key for key, value in sizes.items() if value is None or value == key]
    if missing:
        raise ValueError(f"no {', '.join(missing)} in the case, its dims, a_shape, b_shape or the task")
    batch = a[0] if len(a) == 3 else case.of_case("batch", "b")
    grouped = next((key for key in _GROUPS if case.case.get(key) not in (None, 1)), None)
    if grouped:
        raise ValueError(f"{grouped} is {short_repr(case.case[grouped])} in a case of one GEMM: which was timed is unknown")
    return _with_dtypes(case, {"op": "gemm", **sizes} | ({} if batch is None else {"batch": batch}))


def _pick(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _shapes(case: _Case) -> list[list[Any]]:
    """Return the shapes of A and B, of the case or else of the task; a size may be the text M, and is None when missing."""
    listed, keys = case.shapes(), ("a_shape", "b_shape")
    pair = listed[:2] if isinstance(listed, list) and len(listed) >= 2 else [case.meta.get(key) for key in keys]
    for shape, key in zip(pair, keys):
        if shape is not None and not (isinstance(shape, list) and 2 <= len(shape) <= 3):
            raise ValueError(f"{key} is {short_repr(shape)}, expected two sizes, or three with a batch")
    return [shape or [None, None] for shape in pair]


#: Schemes that name a dtype with its scales, by the width of its values; and words for weights narrower than activations.
_BLOCK_FORMATS = {"mxfp4": 4, "nvfp4": 4, "mxfp8": 8}
_WEIGHTS_ALONE = ("a16", "awq", "gptq", "weight_only", "weight-only")


def _with_dtypes(case: _Case, work: dict[str, Any]) -> dict[str, Any]:
    """Return the work with its dtypes and the scales of its quantization."""
    listed = items(case.case.get("dtypes")) or items(case.case.get("input_dtypes"))
    work["dtype"] = listed[0] if listed else case.get("dtype")
    if work["dtype"] in (None, ""):
        raise ValueError("no dtype in the case or the task")
    weight = _pick(case.get("weight_dtype"), listed[1] if len(listed) > 1 else None)
    if weight not in (None, "", work["dtype"]):
        work["weight_dtype"] = weight
    if case.get("out_dtype") not in (None, ""):
        work["out_dtype"] = case.get("out_dtype")
    scheme = case.get("quant_scheme")
    name = scheme.lower() if isinstance(scheme, str) else ""
    if name in _BLOCK_FORMATS:
        for key in ("dtype", "weight_dtype"):
            if key in work and parse_dtype(work[key]).value_bits == _BLOCK_FORMATS[name]:
                work[key] = name
    elif "weight_dtype" not in work and any(word in name for word in _WEIGHTS_ALONE):
        raise ValueError(f"quant_scheme is {short_repr(scheme)}, and no weight_dtype says how wide the weights are")
    blocks = case.get("weight_block_size")
    if blocks in (None, [], ""):
        return work if name in _BLOCK_FORMATS else _quantized(work, name)
    square = isinstance(blocks, list) and len(blocks) == 2 and blocks[0] == blocks[1] and isinstance(blocks[0], int)
    if work["op"] == "gemm" and square:
        return {**work, "scale_block": blocks[0]}
    why = "its model has no block scales" if square else "the model's blocks are square"
    return {**work, "notes": (f"weight_block_size {short_repr(blocks)} is not counted: {why}",)}


def _quantized(work: dict[str, Any], scheme: str) -> dict[str, Any]:
    """Return the work with the scales of ``per_1x32`` and its like in its dtypes; other words are no scheme of scales."""
    scaled = {key: parse_dtype(work[key]) for key in ("dtype", "weight_dtype") if key in work}
    try:
        return {**work, **{key: quantize_dtype(value, scheme).name for key, value in scaled.items() if value.value_bits < 16}}
    except ValueError:
        return work


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
    "window": ("window", "sliding_window"),
}
_DECODE = {
    **_HEADS,
    "seq_q": ("seq_q", "q_len", "seqlen_q", "decode_qlen"),
    "seq_len": ("seq_len", "context_len", "ctx", "kv_len", "seq_kv"),
}
_PREFILL = {
    **_HEADS,
    "seq_q": ("seq_q", "q_len", "seqlen_q", "seq_len"),
    "seq_kv": ("seq_kv", "kv_len", "seqlen_k", "seq_len"),
    "causal": ("causal", "is_causal"),
}
#: One rank of several: a task's sizes do not say which experts it has and how many tokens reach them.
_RANKS = ("ep", "ep_size", "expert_parallel_size")
_LOCAL = ("local_num_experts", "num_local_experts", "local_experts", "n_local_experts")


def _moe(case: _Case) -> dict[str, Any]:
    work = _by_name(case, "moe", _MOE)
    for keys, whole in ((_RANKS, 1), (_LOCAL, work.get("experts"))):
        for key in keys:
            ranks = case.get(key)
            if ranks is not None and ranks != whole:
                raise ValueError(f"{key} is {short_repr(ranks)}: how many tokens reach the experts of one rank is unknown")
    return work


def _attention(case: _Case) -> dict[str, Any]:
    regime = case.get("regime")
    if regime == "decode":
        return _by_name(case, "attn_decode", _DECODE)
    if regime == "prefill":
        return _by_name(case, "attn_prefill", _PREFILL)
    raise ValueError(f"regime is {short_repr(regime)}, expected decode or prefill")


_KINDS = {"gemm": _gemm, "moe": _moe, "attn": _attention}


def _by_name(case: _Case, op: str, names: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Return an op with the parameters that the case has under one of their names."""
    work = {"op": op} | {key: value for key in names if (value := case.get(*names[key])) is not None}
    parameters = OPS[op].parameters
    missing = [key for key in names if parameters.get(key) is ... and key not in work]
    if missing:
        hint = "; its list of shapes does not say which size is which" if case.shapes() else ""
        raise ValueError(f"no {', '.join(missing)} of {op}{hint}")
    work = _with_dtypes(case, work)
    if "weight_dtype" in work and "weight_dtype" not in parameters:
        second = work.pop("weight_dtype")
        if "kv_dtype" in parameters:
            work.setdefault("kv_dtype", second)
    return work


UNITTEST = DocumentFormat(
    "GEAK unittest output",
    lambda sample: _MARKED.search(sample.text) is not None,
    _read_lines,
    "lines GEAK_...; the sizes from meta.json beside the file",
)
OP_BENCH = DocumentFormat("GEAK op_bench JSON", _is_op_bench, _read_op_bench, "op_kind, results[] with backend and ms")
