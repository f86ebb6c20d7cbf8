"""pytest-benchmark's JSON, of every schema since 2015: seconds, by the same reader as ``roofline annotate``.

Work is what the file says: the row that a run with ``--roofline`` left under ``extra_info.roofline``, or totals under known
keys of ``extra_info``. Names of tests are no evidence here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from roofline_engine.check import Alternative

from .. import declare
from ..declare import Declared
from ..row import declaration_in
from ..timing.plugins import of_benchmark_json
from .row import RecordRow
from .source import Sample, Source, benchmarks, outline
from .values import buildable, label, mapping

NAME = "pytest-benchmark JSON"


def matches(sample: Sample) -> bool:
    """Benchmarks with statistics."""
    return ".benchmarks[].stats" in outline(sample.text)


def read(source: Source) -> Iterator[RecordRow]:
    """A row per benchmark.

    Raises:
        RefusedError: for what is no JSON or has no list of benchmarks.
    """
    _, listed = benchmarks(source)
    for at, item in enumerate(listed):
        yield _row(mapping(item), f"benchmarks[{at}]")


def _row(item: Mapping[str, Any], where: str) -> RecordRow:
    name = label(item.get("fullname")) or label(item.get("name"))
    try:
        measurement = of_benchmark_json(item)
    except ValueError as error:
        return RecordRow(row=where, name=name, refused=str(error))
    extra = mapping(item.get("extra_info"))
    said, why = _said(extra)
    work: dict[str, Any] | None = None
    alternatives: tuple[Alternative, ...] = ()
    if said is not None and said.work is not None:
        work, alternatives = _keywords(said)
    elif not why:
        try:
            keywords = declare.of_extra_info(extra)
            work, why = buildable(keywords) if keywords else (None, "extra_info says nothing of bytes")
        except ValueError as error:
            why = str(error)
    return RecordRow(
        row=where,
        name=(said and said.kernel) or name,
        work=work,
        no_work=why,
        t_s=measurement.t_s,
        hand_written=measurement.t_s == 1,
        device=said.device if said else None,
        launches=said.launches if said else 1,
        clock=measurement.clock,
        cache=measurement.cache,
        rounds=measurement.rounds,
        q1_s=measurement.q1_s,
        q3_s=measurement.q3_s,
        alternatives=alternatives,
        notes=measurement.notes,
    )


def _said(extra: Mapping[str, Any]) -> tuple[Declared | None, str]:
    """What the row of a run with ``--roofline`` declares; the reason where it cannot be understood."""
    if not isinstance(extra.get("roofline"), Mapping):
        return None, ""
    try:
        said = declaration_in(extra["roofline"])
    except KeyError as error:
        return None, f"extra_info.roofline: no {error}"
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        return None, f"extra_info.roofline: {error}"
    return said, "" if said.work is not None else "extra_info.roofline has no work"


def _keywords(said: Declared) -> tuple[dict[str, Any], tuple[Alternative, ...]]:
    """The work of a row by its figure; its other byte models are ways to have counted too many bytes."""
    work = said.work
    assert work is not None
    keywords = {
        "op": work.op,
        "bytes": work.bytes,
        "flops": work.flops,
        "dtype": work.dtype.name,
        "weight_dtype": work.weight_dtype.name,
        "engine": work.engine,
    }
    fewer = [model for model in work.candidates[1:] if 0 < model.bytes < work.bytes]
    return keywords, tuple(
        Alternative("overcounted_bytes", work.bytes / model.bytes, "memory", f"bytes by {label(model.model)}")
        for model in fewer
    )
