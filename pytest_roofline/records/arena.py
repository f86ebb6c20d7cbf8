"""AgentKernelArena: the list of a performance report, and ``task_result.yaml``.

A report row's time is the first of the key families that its own tools look for; each has its unit in its name except
``execution_time``, ``time``, ``ori_time`` and ``opt_time``, which the format has in ms, as the three times of
``task_result.yaml``. Before and after are the task's own kernel, so that baseline is ``previous``. The YAML is read as flat
``key: value`` lines or one ``{...}``, and refused beyond that.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from .row import RecordRow
from .source import RefusedError, Sample, Source, outline, parse
from .values import claims, flag, label, mapping, maybe_seconds, ratio, shown, timed, work_of

NAME = "AgentKernelArena report"

#: Keys of a time in the order in which they are trusted: the clock each implies.
_TIMES = {
    "device_time_ms": "device-event",
    "gpu_time_ms": "device-event",
    "kernel_time_ms": "device-event",
    "cuda_event_time_ms": "device-event",
    "cuda_graph_time_ms": "device-graph",
    "execution_time_ms": "",
    "opt_time": "",
    "execution_time": "",
    "time_ms": "",
    "time": "",
    "host_time_ms": "host",
    "wall_time_ms": "host",
}
_METHODS = {"cuda_graph": "device-graph", "cuda_event": "device-event", "cuda_events": "device-event", "wall": "host"}
_TASK = ("base_execution_time", "best_optimized_execution_time")
_TASK_KEY = re.compile(rf"(?m)(?:^|[{{,])[ \t]{{0,8}}[\"']?({'|'.join(_TASK)})[\"']?[ \t]{{0,8}}:")
_FLAT = re.compile(r"([A-Za-z_][\w.-]*|\"[\w.-]+\"|'[\w.-]+')\s*:(?:\s+(.*))?")
_PAIR = re.compile(r"\s*([A-Za-z_][\w.-]*|\"[\w.-]+\"|'[\w.-]+')\s*:\s*(\"[^\"]*\"|'[^']*'|[^,{}\[\]\"']*)(?:,|$)")


def matches(sample: Sample) -> bool:
    """A list of cases with times, or the keys of a task's result."""
    keys = outline(sample.text)
    cases = not keys.isdisjoint(("[].test_case_id", "[].params", "[].shape"))
    if cases and not keys.isdisjoint(f"[].{key}" for key in (*_TIMES, "ori_time")):
        return True
    return _TASK_KEY.search(sample.text) is not None


def read(source: Source) -> Iterator[RecordRow]:
    """A row per case, or the one of a task.

    Raises:
        RefusedError: for what is neither a list of cases nor flat YAML.
    """
    text = source.text()
    if text.lstrip()[:1] != "[":
        yield _task(_flat(text, source.label))
        return
    for at, case in enumerate(parse(text, source.label)):
        yield _case(mapping(case), f"[{at}]")


def _case(case: Mapping[str, Any], where: str) -> RecordRow:
    name = label(case.get("test_case_id")) or label(case.get("name"))
    key = next((key for key in _TIMES if case.get(key) is not None), None)
    if key is None:
        return RecordRow(row=where, name=name, refused="no time under " + ", ".join(_TIMES))
    work, why = work_of(mapping(case.get("params")))
    method = case.get("benchmark_method")
    clock = _TIMES[key] or (_METHODS.get(method.lower(), "unknown") if isinstance(method, str) else "unknown")
    baseline, notes = maybe_seconds(case.get("ori_time"), "ori_time", "ms")
    if method is not None and not isinstance(method, str):
        notes += (f"benchmark_method is {shown(method)}, expected text",)
    return timed(
        where,
        case[key],
        key,
        "ms",
        name=name,
        work=work,
        no_work=why,
        clock=clock,
        wall_s=maybe_seconds(case.get("wall_time_ms"), "wall_time_ms", "ms")[0] if key != "wall_time_ms" else None,
        baseline_kind="previous" if baseline is not None else "unknown",
        baseline_t_s=baseline,
        claims=claims(case),
        device=label(case.get("hardware")) or label(case.get("gpu_name")) or None,
        correct=_passed(case),
        notes=notes,
    )


def _passed(case: Mapping[str, Any]) -> bool | None:
    found = [flag(case.get(key)) for key in ("correctness", "correct", "pass_correctness", "passed")]
    known = [value for value in found if value is not None]
    return all(known) if known else None


def _task(task: Mapping[str, Any]) -> RecordRow:
    name = label(task.get("task_name")) or label(task.get("task"))
    correct = flag(task.get("pass_correctness"))
    if task.get("pass_compilation") is False:
        return RecordRow(row="task", name=name, correct=correct, refused="pass_compilation is false: nothing was timed")
    baseline, notes = maybe_seconds(task.get("base_execution_time"), "base_execution_time", "ms")
    return timed(
        "task",
        task.get("best_optimized_execution_time"),
        "best_optimized_execution_time",
        "ms",
        name=name,
        no_work="a task's result has no sizes",
        baseline_kind="previous",
        baseline_t_s=baseline,
        speedup=ratio(task.get("speedup_ratio")) if baseline is None else None,
        correct=correct,
        notes=(*notes, "the two times may be of different methods (graph or events): the format does not say"),
    )


def _flat(text: str, where: str) -> dict[str, Any]:
    """Flat YAML: ``key: value`` lines, or one ``{key: value, ...}``."""
    body = text.strip()
    if body.startswith("{"):
        return _braces(body, where)
    found: dict[str, Any] = {}
    for number, line in enumerate(text.split("\n"), 1):
        line = line.rstrip()
        if not line or line.lstrip().startswith("#") or (line == "---" and not found):
            continue
        pair = _FLAT.fullmatch(line)
        value = (pair[2] or "").strip() if pair else ""
        if pair is None or value[:1] in tuple("{[|>&*!%@`"):
            raise RefusedError(f"{where}: line {number}: expected `key: value`; no other YAML is read")
        found[pair[1].strip("\"'")] = _scalar(value)
    return found


def _braces(body: str, where: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    inner, at = body[1:-1].strip().rstrip(","), 0
    if not body.endswith("}"):
        raise RefusedError(f"{where}: expected `{{key: value, ...}}` to its closing brace")
    while at < len(inner):
        pair = _PAIR.match(inner, at)
        if pair is None:
            raise RefusedError(f"{where}: near {shown(inner[at : at + 30])}: expected `key: value`; no nested YAML is read")
        found[pair[1].strip("\"'")] = _scalar(pair[2].strip())
        at = pair.end()
    return found


_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None, ".nan": math.nan, ".inf": math.inf, "nan": math.nan}


def _scalar(text: str) -> Any:
    if text[:1] in ("'", '"'):
        return text.strip(text[0])
    plain = text.partition(" #")[0].strip()
    if plain.lower() in _WORDS:
        return _WORDS[plain.lower()]
    try:
        return float(plain) if "_" not in plain else plain
    except ValueError:
        return plain
