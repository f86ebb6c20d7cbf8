"""Leaderboards and harnesses of generated kernels: KernelBench and robust-kbench, gpu-mode's POPCORN, AgentKernelArena.

Times are in ms, in POPCORN in ns. Sizes come from the parameters in a record, where only a GEMM has names that are clear.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from roofline_engine.kernels import classify
from roofline_engine.units import number, parse_dtype, printable, quantity

from ..source import DocumentFormat, RecordRow, RefusedError, Sample, Source, parse
from ..values import build_row, check_work, claims, count, first, flag, judge, label, mapping, maybe_seconds, ratio, short_repr

#: Spellings of the parameters that give a GEMM.
_GEMM: dict[str, tuple[str, ...]] = {
    "M": ("m",),
    "N": ("n",),
    "K": ("k",),
    "dtype": ("dtype", "data_type", "torch_dtype", "in_dtype", "input_dtype"),
    "batch": ("batch", "b", "l"),  # l is CUTLASS's and gpu-mode's
    "out_dtype": ("out_dtype", "output_dtype"),
    "weight_dtype": ("weight_dtype", "w_dtype"),
    "group_size": ("group_size",),
}
_OP = ("op", "op_type", "op_name", "kernel")
#: Weights narrower than the activations: their width decides, the product runs at the activations' rate.
_WEIGHT_BITS = {4: "int4", 8: "int8"}
#: With these next to M, N and K, the sizes do not say which GEMMs were timed.
_GROUPED = ("num_experts", "experts", "n_experts", "expert", "e", "groups", "num_groups", "g", "topk", "top_k")
_BATCHED = ("batch_size", "bs", "num_batches")


def work_of(params: Mapping[str, Any]) -> tuple[dict[str, Any] | None, str]:
    """Return a GEMM when M, N, K and the dtype are all among the parameters of a record; else None and the reason."""
    lower = {key.lower(): value for key, value in params.items() if isinstance(key, str) and value is not None}
    if not lower:
        return None, "no sizes in the record"
    names = printable(", ".join(sorted(lower)))[:80]
    if any(key in lower for key in _GROUPED):
        return None, f"{names}: the record does not say which GEMMs of a MoE or a group were timed"
    batched = next((key for key in _BATCHED if lower.get(key, 1) != 1), None)
    if batched:
        return None, f"{names}: {batched} may be part of M or a batch of GEMMs"
    op = next((lower[name] for name in _OP if name in lower), "gemm")
    if not isinstance(op, str) or classify(op).op != "gemm":
        return None, f"op {short_repr(op)}: only a GEMM is known by the names of its sizes"
    work = {"op": "gemm"} | {key: value for key, names_ in _GEMM.items() if (value := first(lower, *names_)) is not None}
    if not work.keys() >= {"M", "N", "K"}:
        return None, f"{names}: no op is known by these sizes"
    if "dtype" not in work:
        return None, f"{names}: the dtype is missing"
    keywords, why = _with_weights(work, lower.get("weight_bits"))
    if keywords and "group_size" in keywords and parse_dtype(keywords.get("weight_dtype", keywords["dtype"])).value_bits > 8:
        return None, f"{names}: group_size may be of scales or of a group of GEMMs; the weights are not narrow"
    return keywords, why


def _with_weights(gemm: dict[str, Any], bits: object) -> tuple[dict[str, Any] | None, str]:
    """Return the GEMM with weights of ``bits`` when they are narrower than the activations."""
    work, why = check_work(gemm)
    if work is None or bits is None or "weight_dtype" in gemm or bits == parse_dtype(gemm["dtype"]).value_bits:
        return work, why
    if not isinstance(bits, int) or bits not in _WEIGHT_BITS:
        return None, f"weight_bits is {short_repr(bits)}, expected 4 or 8"
    return check_work({**gemm, "weight_dtype": _WEIGHT_BITS[bits]})


# KernelBench: results of samples and baseline timings by level; robust-kbench's timings and profile extracts. ``runtime`` is ms
# too, though a comment in KernelBench calls it us, since it is filled from the statistics in ms. By default times are of CUDA
# events. A baseline in another file is not looked for: each file alone gives times, and only a ``ref_runtime`` in the record
# (the eager reference) is a baseline.

_SAMPLE = re.compile(r"\.\d+(\[\]|\.\d+)?\.(compiled|correctness)")
_LEVEL = re.compile(r"\.level\w+\..+\.mean")
_IN_CODE = "the problem's sizes are in its code, not in its name"


def _is_kernelbench(sample: Sample) -> bool:
    """Look for samples by problem, problems by level, and robust-kbench's settings and tasks."""
    keys = sample.keys
    if ".eval_settings" in keys or {"[].task", "[].runtime_ms"} <= keys or {".compiled", ".correctness", ".runtime"} <= keys:
        return True
    return any(_SAMPLE.fullmatch(key) or _LEVEL.fullmatch(key) for key in keys)


def _read_kernelbench(source: Source) -> list[RecordRow]:
    records = list(_kernelbench_rows(source.json()))
    if not records:
        raise RefusedError(f"{source.label}: no samples, levels or eval_settings in it")
    return records


def _kernelbench_rows(whole: Any) -> Iterator[RecordRow]:
    if isinstance(whole, list):
        for at, row in enumerate(whole):
            yield _robust_task(mapping(row), f"[{at}]")
    elif not isinstance(whole, dict):
        return
    elif "eval_settings" in whole:
        yield from _robust_settings(whole)
    elif "correctness" in whole:
        yield _sample(whole, "sample", "")
    else:
        for key, value in whole.items():
            if key.startswith("level"):
                for problem, row in mapping(value).items():
                    yield _level(mapping(row), label(f"{key}/{problem}"), label(problem))
            else:
                for where, row in _samples(value, label(key)):
                    yield _sample(mapping(row), where, label(key))


def _samples(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list):
        yield from ((f"{key}[{at}]", row) for at, row in enumerate(value))
    elif isinstance(value, dict) and "correctness" not in value and all(isinstance(row, dict) for row in value.values()):
        yield from ((f"{key}/{label(at)}", row) for at, row in value.items())
    else:
        yield key, value


def _sample(row: Mapping[str, Any], where: str, problem: str) -> RecordRow:
    metadata, stats = mapping(row.get("metadata")), mapping(row.get("runtime_stats"))
    correct = flag(row.get("correctness"))
    fields: dict[str, Any] = {
        "name": label(row.get("problem_name")) or (f"problem {problem}" if problem else ""),
        "device": label(metadata.get("hardware")) or None,
        "correct": correct,
    }
    if not row:
        return RecordRow(row=where, refused="expected an object with correctness and runtime", refused_code="row")
    if row.get("compiled") is False:
        return RecordRow(row=where, refused="compiled is false: nothing was timed", **fields)
    key, value = ("runtime_stats.mean", stats["mean"]) if "mean" in stats else ("runtime", row.get("runtime"))
    if correct is False and isinstance(value, (int, float)) and value <= 0:
        return RecordRow(row=where, refused=f"correctness is false and {key} is {value}: it was not timed", **fields)

    baseline, notes = (None, ()) if row.get("ref_runtime") == -1 else maybe_seconds(row, "ref_runtime")
    if metadata.get("excessive_speedup"):
        notes += ("KernelBench itself flags the speedup as excessive",)
    return build_row(
        where,
        {key: value},
        key,
        work=work_of(mapping(row.get("params"))) if row.get("params") else (None, _IN_CODE),
        rounds=count(stats.get("num_trials")),
        baseline=("eager", baseline),
        notes=(*notes, "a mean"),
        **fields,
    )


def _level(row: Mapping[str, Any], where: str, problem: str) -> RecordRow:
    return build_row(
        where,
        row,
        "mean",
        name=problem,
        work=(None, _IN_CODE),
        device=label(row.get("hardware")) or None,
        rounds=count(row.get("num_trials")),
        notes=("a mean",),
    )


def _robust_settings(whole: Mapping[str, Any]) -> Iterator[RecordRow]:
    """Yield the median of each robust-kbench setting, on the first device that the file lists."""
    devices = mapping(mapping(whole.get("device_info")).get("devices"))
    device = mapping(next(iter(devices.values()), None))
    for key, value in mapping(whole["eval_settings"]).items():
        name, times = label(key), mapping(value)
        yield build_row(
            f"eval_settings/{name}",
            times,
            "median_time" if "median_time" in times else "mean_time",
            name=name,
            work=(None, f"only the setting {name} is given; the op and its dtype are not"),
            device=label(device.get("name")) or None,
            units=count(device.get("multiprocessors")),
            notes=_bus(device),
        )


def _bus(device: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a note with the bandwidth of the device's own record: bits over 8, two transfers a clock, as for HBM and GDDR."""
    bits, mhz = device.get("memory_bus_width_bits"), device.get("memory_clock_rate_MHz")
    try:
        rate = 2e6 * number(mhz, "memory_clock_rate_MHz", above=0.0) * number(bits, "memory_bus_width_bits", above=0.0) / 8
    except ValueError:
        return ()
    return (f"the device's own memory clock and bus width give {quantity(rate, 'B/s')}, two transfers a clock",)


def _robust_task(row: Mapping[str, Any], where: str) -> RecordRow:
    """Return a robust-kbench task, whose ``speedup`` is over eager, also when it is text."""
    is_backward = row.get("forward") in (False, "False")
    speedup: float | None = None
    notes: tuple[str, ...] = ()
    if row.get("speedup") is not None:
        try:
            speedup = float(number(row["speedup"], "speedup", above=0.0))
        except ValueError as error:
            notes = (str(error),)
    rate = mapping(mapping(row.get("ncu_metrics")).get("Memory Throughput"))
    if (count(rate.get("n")) or 0) > 1:
        mean = f"ncu's {short_repr(rate.get('avg_value'))} B/s is a plain mean over {rate['n']} launches of different lengths"
        notes = (*notes, f"{mean}: not the rate of this row")
    return build_row(
        where,
        row,
        "runtime_ms",
        name=label(row.get("task")) + (" backward" if is_backward else ""),
        work=(None, _IN_CODE),
        baseline=("eager", None),
        speedup=speedup,
        notes=notes,
    )


# POPCORN: the ``key: value`` lines of gpu-mode's evaluators. ``benchmark.0.spec: m: 1024; n: 1536; k: 7168; seed: 1`` with
# ``benchmark.0.mean`` in ns, from device events. ``check`` is about the whole run. A spec names sizes, and sometimes a dtype.

_LINE = re.compile(r"(benchmark|test)\.(\d{1,9})\.(spec|runs|mean|std|err|best|worst|status|error)\s*:[ \t]*([^\r\n]*)")
_IS_LINE = re.compile(rf"^{_LINE.pattern}", re.MULTILINE)
_CHECK = re.compile(r"check\s*:\s*(\w+)\s*")


def _read_popcorn(source: Source) -> Iterator[RecordRow]:
    runs: dict[int, dict[str, str]] = {}
    passed: bool | None = None
    for line in source.lines():
        value, check = _LINE.match(line), _CHECK.fullmatch(line)
        if value and value[1] == "benchmark":
            runs.setdefault(int(value[2]), {})[value[3]] = value[4].strip()
        elif check:
            passed = {"pass": True, "fail": False}.get(check[1].lower())
    if not runs:
        raise RefusedError(f"{source.label}: no benchmark lines; tests have no times")
    for at, run in sorted(runs.items()):
        yield _popcorn_row(run, f"benchmark.{at}", passed)


def _popcorn_row(run: Mapping[str, str], where: str, passed: bool | None) -> RecordRow:
    spec = run.get("spec", "")
    if run.get("status", "pass").lower() == "fail" or "error" in run:
        refused = f"it failed: {label(run.get('error')) or 'no reason given'}"
        return RecordRow(row=where, name=label(spec), correct=False, refused=refused)
    pairs = (part.partition(":") for part in spec.split(";"))
    params = {key.strip(): _figure(value.strip()) for key, colon, value in pairs if colon}
    runs, key = run.get("runs", ""), f"{where}.mean"
    return build_row(
        where,
        {key: _figure(run.get("mean"))},
        key,
        "ns",
        name=label(spec),
        work=work_of(params),
        rounds=int(runs) if re.fullmatch(r"[1-9]\d{0,8}", runs) else None,
        correct=passed,
        notes=("a mean",),
    )


def _figure(text: Any) -> Any:
    """Return the number in a text, or the text."""
    if not isinstance(text, str) or "_" in text:
        return text
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


# AgentKernelArena: the list of a performance report, and ``task_result.yaml``. A report row's time is the first of the key
# families that its own tools look for; each has its unit in its name except ``execution_time``, ``time``, ``ori_time`` and
# ``opt_time``, which the format has in ms, as the three times of ``task_result.yaml``. Before and after are the task's own
# kernel, so that baseline is ``previous``.

#: Keys of a time, the most trusted first, with the clock that each implies.
_TIMES = {
    **dict.fromkeys(("device_time_ms", "gpu_time_ms", "kernel_time_ms", "cuda_event_time_ms"), "device-event"),
    "cuda_graph_time_ms": "device-graph",
    **dict.fromkeys(("execution_time_ms", "opt_time", "execution_time", "time_ms", "time"), ""),
    **dict.fromkeys(("host_time_ms", "wall_time_ms"), "host"),
}
_METHODS = {"cuda_graph": "device-graph", "cuda_event": "device-event", "cuda_events": "device-event", "wall": "host"}
_TASK = ("base_execution_time", "best_optimized_execution_time")
_TASK_KEY = re.compile(rf"(?m)(?:^|[{{,])[ \t]{{0,8}}[\"']?({'|'.join(_TASK)})[\"']?[ \t]{{0,8}}:")


def _is_arena(sample: Sample) -> bool:
    """Look for a list of cases with times, and for the keys of a task's result."""
    keys = sample.keys
    has_cases = not keys.isdisjoint(("[].test_case_id", "[].params", "[].shape"))
    if has_cases and not keys.isdisjoint(f"[].{key}" for key in (*_TIMES, "ori_time")):
        return True
    return _TASK_KEY.search(sample.text) is not None


def _read_arena(source: Source) -> Iterator[RecordRow]:
    text = source.text()
    if text.lstrip()[:1] == "[":
        for at, case in enumerate(parse(text, source.label)):
            yield _arena_case(mapping(case), f"[{at}]")
    else:
        yield _arena_task(_parse_yaml(text, source.label))


def _parse_yaml(text: str, where: str) -> Mapping[str, Any]:
    """Return the mapping in a YAML file. Raises RefusedError for other text, and when PyYAML is not installed."""
    try:
        import yaml  # optional, and only for this file
    except ImportError:
        raise RefusedError(f"{where}: YAML needs PyYAML: pip install pyyaml") from None

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """YAML 1.1 takes 5e-05, as Python prints it, for text."""

    Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[-+]?\d+[eE][-+]?\d+"), list("-+0123456789"))
    try:
        whole = yaml.load(text, Loader)
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise RefusedError(f"{where}: {line}not YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise RefusedError(f"{where}: not YAML: {label(str(error))}") from None
    if not isinstance(whole, dict):
        raise RefusedError(f"{where}: expected `key: value` lines")
    return whole


def _arena_case(case: Mapping[str, Any], where: str) -> RecordRow:
    name = label(case.get("test_case_id")) or label(case.get("name"))
    key = next((key for key in _TIMES if case.get(key) is not None), None)
    if key is None:
        return RecordRow(row=where, name=name, refused="no time under " + ", ".join(_TIMES), refused_code="time")
    method = case.get("benchmark_method")
    baseline, notes = maybe_seconds(case, "ori_time")
    if method is not None and not isinstance(method, str):
        notes += (f"benchmark_method is {short_repr(method)}, expected text",)
    return build_row(
        where,
        case,
        key,
        name=name,
        work=work_of(mapping(case.get("params"))),
        clock=_TIMES[key] or _METHODS.get(str(method).lower(), "unknown"),
        wall_s=maybe_seconds(case, "wall_time_ms")[0] if key != "wall_time_ms" else None,
        baseline=("previous", baseline),
        claims=claims(case),
        device=label(case.get("hardware")) or label(case.get("gpu_name")) or None,
        correct=judge(flag(case.get(name)) for name in ("correctness", "correct", "pass_correctness", "passed")),
        notes=notes,
    )


def _arena_task(task: Mapping[str, Any]) -> RecordRow:
    name = label(task.get("task_name")) or label(task.get("task"))
    correct = flag(task.get("pass_correctness"))
    if task.get("pass_compilation") is False:
        return RecordRow(row="task", name=name, correct=correct, refused="pass_compilation is false: nothing was timed")
    baseline, notes = maybe_seconds(task, "base_execution_time")
    return build_row(
        "task",
        task,
        "best_optimized_execution_time",
        name=name,
        work=(None, "a task's result has no sizes"),
        clock="unknown",
        baseline=("previous", baseline),
        speedup=ratio(task.get("speedup_ratio")),
        correct=correct,
        notes=(*notes, "the two times may be of different methods (graph or events): the format does not say which"),
    )


KERNELBENCH = DocumentFormat(
    "KernelBench JSON", _is_kernelbench, _read_kernelbench, "problems with runtime_stats, or levels with mean and hardware"
)
POPCORN = DocumentFormat(
    "POPCORN lines",
    lambda sample: _IS_LINE.search(sample.text) is not None,
    _read_popcorn,
    "benchmark.N.spec, benchmark.N.mean and the other lines of a leaderboard's run",
)
ARENA = DocumentFormat(
    "AgentKernelArena report", _is_arena, _read_arena, "cases with params and execution_time_ms, or a task's YAML result"
)
