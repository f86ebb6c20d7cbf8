"""FlashInfer's benchmark CSV: one row a routine, backend and shape; ``median_time`` in ms, ``tflops``, ``tb_per_sec``.

All routines share one header, which repeats a name where two of them use it (num_tokens, top_k), and leave the others' columns
empty. The printed bytes of the batched products are those of one of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from roofline_engine.check import Alternative

from .aiter_gemm import mistakes
from .aiter_moe import every_expert
from .row import RecordRow
from .source import Sample, Source
from .table import Table, claim, dtype, duration, flag, half_digit, header, real, shown, size

NAME = "FlashInfer benchmark"

#: What the routine's name says of the operands.
_GEMM = {
    "gemm_fp8_nt_groupwise": "fp8",
    "bmm_fp8": "",
    "mm_fp8": "fp8",
    "mm_mxfp8": "mxfp8",
    "bmm_mxfp8": "mxfp8",
    "mm_bf16": "bf16",
    "bmm_bf16": "bf16",
}


def matches(sample: Sample) -> bool:
    return {"routine", "median_time", "tb_per_sec"} <= header(sample)


def read(source: Source) -> Iterator[RecordRow]:
    table = Table(source)
    return table.records(_reader(table))


class _Cells:
    """One row by column name; of a repeated name, the first cell that is filled."""

    def __init__(self, places: Mapping[str, list[int]], fields: list[str]) -> None:
        self._places, self._fields = places, fields

    def text(self, name: str) -> str:
        return next((found for place in self._places.get(name, ()) if (found := self._fields[place].strip())), "")

    def size(self, name: str, default: int | None = None) -> int:
        text = self.text(name)
        if not text:
            if default is None:
                raise KeyError(name)
            return default
        return size(text, name)

    def dtype(self, name: str) -> str:
        return dtype(self._told(name))

    def flag(self, name: str) -> bool:
        return flag(self._told(name), name)

    def _told(self, name: str) -> str:
        text = self.text(name)
        if not text:
            raise KeyError(name)
        return text


def _reader(table: Table) -> Callable[[str, list[str]], Iterable[RecordRow]]:
    routine, time = table.column("routine"), table.column("median_time")
    tflops, rate, backend = table.maybe("tflops"), table.column("tb_per_sec"), table.maybe("backend")
    places = {name.lower(): table.every(name) for name in table.names}

    def row(where: str, fields: list[str]) -> Iterable[RecordRow]:
        cells = _Cells(places, fields)
        named = fields[routine].strip()
        t_s, refused = duration(fields[time], "median_time", 1e-3)
        rounding = half_digit(fields[time], t_s * 1e3) if t_s else 0.0
        claims = (
            None if tflops is None else claim(fields[tflops], "compute", 1e12, rounding),
            claim(fields[rate], "memory", 1e12, rounding),
        )
        work, no_work = _work(named, cells)
        graph = cells.text("no_cuda_graph")
        yield RecordRow(
            row=where,
            name=shown(f"{named} {'' if backend is None else fields[backend]}"),
            work=work,
            no_work=no_work,
            t_s=t_s,
            clock="device-graph" if graph and not flag(graph, "no_cuda_graph") else "device-event",
            claims=tuple(found for found in claims if found),
            hand_written=t_s == 1e-3,
            alternatives=_mistakes(work),
            refused=refused,
        )

    return row


def _work(routine: str, cells: _Cells) -> tuple[dict[str, Any] | None, str]:
    """The keywords of the work model, or None and why there are none."""
    try:
        if routine in _GEMM or routine == "mm_fp4":
            return _gemm(routine, cells), ""
        if routine in _OTHERS:
            return _OTHERS[routine](cells), ""
    except KeyError as error:
        return None, f"{routine}: the row gives no {error.args[0]}"
    except _UnmodelledError as error:
        return None, f"{routine}: {error}"
    return None, f"no work model for routine {shown(routine)[:60]}"


class _UnmodelledError(Exception):
    """Why a routine's row does not tell its work."""


def _gemm(routine: str, cells: _Cells) -> dict[str, Any]:
    work: dict[str, Any] = {"op": "gemm", **{key: cells.size(key.lower()) for key in ("M", "N", "K")}}
    if routine == "mm_fp4":
        work["dtype"] = "nvfp4" if cells.flag("use_nvfp4") else "mxfp4"
    else:
        work["dtype"] = _GEMM[routine] or cells.dtype("input_dtype")
    work["out_dtype"] = cells.dtype("out_dtype")
    if routine.startswith("bmm"):
        work["batch"] = cells.size("batch_size")
    return work


def _group_gemm(cells: _Cells) -> dict[str, Any]:
    groups = cells.size("group_size")
    work = {"op": "grouped_gemm", "M": groups * cells.size("m"), "N": cells.size("n"), "K": cells.size("k")}
    sizes = [cells.size("m")] * groups
    return {**work, "groups": groups, "group_sizes": sizes, "dtype": "fp8", "out_dtype": cells.dtype("out_dtype")}


def _heads(cells: _Cells) -> dict[str, Any]:
    q = cells.dtype("q_dtype")
    work = {"batch": cells.size("batch_size"), "n_q_heads": cells.size("num_qo_heads"), "dtype": q}
    return {**work, "out_dtype": dtype(cells.text("out_dtype") or q), "kv_dtype": dtype(cells.text("kv_dtype") or q)}


def _context(cells: _Cells) -> float:
    mean = cells.text("avg_actual_seq_len")
    return real(mean, "avg_actual_seq_len", above=0.0) if mean else cells.size("s_kv")


def _gqa(cells: _Cells) -> dict[str, Any]:
    sizes = {"n_kv_heads": "num_kv_heads", "head_dim": "head_dim_qk", "head_dim_v": "head_dim_vo"}
    return {**_heads(cells), **{key: cells.size(name) for key, name in sizes.items()}}


def _decode(cells: _Cells) -> dict[str, Any]:
    return {"op": "attn_decode", **_gqa(cells), "seq_len": _context(cells), "seq_q": cells.size("s_qo", 1)}


def _mla(cells: _Cells) -> dict[str, Any]:
    ranks = {"kv_lora_rank": cells.size("head_dim_ckv"), "rope_dim": cells.size("head_dim_kpe")}
    return {"op": "mla_decode", **_heads(cells), **ranks, "seq_len": _context(cells), "seq_q": cells.size("s_qo", 1)}


def _prefill(cells: _Cells) -> dict[str, Any]:
    if cells.text("random_actual_seq_len") and cells.flag("random_actual_seq_len"):
        raise _UnmodelledError("lengths drawn at random: their squares are not in the row")
    lengths = {"seq_q": cells.size("s_qo"), "seq_kv": cells.size("s_kv"), "causal": cells.flag("causal")}
    return {"op": "attn_prefill", **_gqa(cells), **lengths}


def _rmsnorm(cells: _Cells) -> dict[str, Any]:
    rows = cells.size("batch_size") * cells.size("num_heads", 1)
    a = cells.dtype("input_dtype")
    return {"op": "rmsnorm", "rows": rows, "cols": cells.size("hidden_size"), "dtype": a}


def _softmax(cells: _Cells) -> dict[str, Any]:
    return {
        "op": "softmax",
        "rows": cells.size("batch_size"),
        "cols": cells.size("vocab_size"),
        "dtype": cells.dtype("input_dtype"),
    }


def _moe_fp8(cells: _Cells) -> dict[str, Any]:
    experts = cells.size("num_experts")
    if cells.size("local_num_experts", experts) != experts or cells.size("tp_size", 1) != 1:
        raise _UnmodelledError("one rank of several: which of the experts its tokens reach is not in the row")
    shape = {"tokens": "num_tokens", "hidden": "hidden_size", "inter": "intermediate_size", "top_k": "top_k"}
    sizes = {key: cells.size(name) for key, name in shape.items()}
    return {"op": "moe", **sizes, "experts": experts, "dtype": "fp8", "out_dtype": "bf16"}


_OTHERS: Mapping[str, Callable[[_Cells], dict[str, Any]]] = {
    "group_gemm_fp8_nt_groupwise": _group_gemm,
    "BatchDecodeWithPagedKVCacheWrapper": _decode,
    "BatchMLAPagedAttentionWrapper": _mla,
    "BatchPrefillWithPagedKVCacheWrapper": _prefill,
    "BatchPrefillWithRaggedKVCacheWrapper": _prefill,
    "rmsnorm": _rmsnorm,
    "softmax": _softmax,
    "trtllm_fp8_block_scale_moe": _moe_fp8,
    "trtllm_fp8_per_tensor_scale_moe": _moe_fp8,
}


def _mistakes(work: Mapping[str, Any] | None) -> tuple[Alternative, ...]:
    if work is None:
        return ()
    if work["op"] == "moe":
        return every_expert(work["experts"], work["tokens"] * work["top_k"])
    if work["op"] == "gemm":
        return mistakes(work["M"], work["N"], work["K"], work.get("batch", 1), work["dtype"], work["out_dtype"])
    return ()
