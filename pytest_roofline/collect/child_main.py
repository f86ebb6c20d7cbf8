"""The program of a child process that imports a user's file: a ``perf_report`` function or a problem file.

``child_boot`` calls ``main`` with ROWS KIND FILE [ARGUMENT...]. ROWS is the file for the rows (see ``child``); the user's
code keeps stdout and stderr. Nothing here imports pytest.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

from roofline_engine.check import Baseline, Claim, Measurement
from roofline_engine.units import Unit, unit_in

from ..capture.timers import TimedCall, observe_timers
from ..capture.trace import CapturedWork
from ..capture.watching import capture_timed
from ..declare import build_work, guess_keywords
from ..timing import compare, measure
from ..timing.devices import device_kind
from ..values import plain, raised
from .child import ChildRow

#: A file that needs one of these and lacks it is skipped, not failed.
FRAMEWORKS = ("torch", "triton")
#: The most rows of one function.
MOST = 10_000
NO_WORK = "no byte/FLOP model: it calls neither do_bench nor torch's Timer, and its names do not tell its op"
SPREAD = "the spread is the least and the most that the function returned"
#: A label shows this many characters of one argument.
_WIDTH = 40
#: KernelBench's tolerance of an output, absolute and relative.
TOLERANCE = 1e-2
_SEED = 42


def main(rows: str, kind: str, file: str, *arguments: str) -> None:
    """Write the rows of one item."""
    sys.argv[:] = [file]
    with open(rows, "w", encoding="utf-8") as stream:
        try:
            if kind == "perf_report":
                disable_run()
            write = report if kind == "perf_report" else problem
            for row in write(_load(file), *arguments):
                print(row.to_json(), file=stream, flush=True)
        except ModuleNotFoundError as error:
            if error.name not in FRAMEWORKS:
                raise
            print(json.dumps({"needs": error.name}), file=stream)
        print(json.dumps({"done": True}), file=stream)


def _load(file: str) -> ModuleType:
    """Import the user's file as a module."""
    sys.path.insert(0, os.path.dirname(file))
    name = os.path.splitext(os.path.basename(file))[0]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


# ``perf_report``: every point of a function, called as ``triton.testing.Mark.run`` calls it.


def disable_run() -> None:
    """Make ``triton.testing.Mark.run`` do nothing in this process; some files call it when they are imported.

    Raises:
        ModuleNotFoundError: if triton is missing.
    """
    setattr(import_module("triton.testing").Mark, "run", lambda *_, **__: None)  # noqa: B010  # it has no types


def report(module: ModuleType, name: str) -> Iterator[ChildRow]:
    """Yield a row per point and provider.

    Raises:
        RuntimeError: if every call raised.
    """
    mark = getattr(module, name)
    benchmarks = mark.benchmarks if isinstance(mark.benchmarks, (list, tuple)) else [mark.benchmarks]
    count = 0
    errors: list[str] = []
    for benchmark in benchmarks:
        prefix = f"{benchmark.plot_name} " if len(benchmarks) > 1 else ""
        for arguments, label in _points(benchmark):
            count += 1
            row, error = _call(module, mark.fn, arguments, prefix + label, benchmark.ylabel)
            yield row
            errors += [error] if error else []
            if count >= MOST:
                return
    if errors and len(errors) == count:
        raise RuntimeError(f"every call of {name} raised, the last: {errors[-1]}")


def _points(benchmark: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the arguments and the label of each call, as ``triton.testing.Mark`` makes them."""
    lines = list(zip(benchmark.line_vals, benchmark.line_names or benchmark.line_vals))
    for x in benchmark.x_vals:
        values = x if isinstance(x, (list, tuple)) else [x] * len(benchmark.x_names)
        if len(values) != len(benchmark.x_names):
            raise ValueError(f"expected {len(benchmark.x_names)} values of x, got {x!r:.60}")
        sizes = dict(zip(benchmark.x_names, values))
        for value, line in lines:
            label = " ".join([*(f"{key}={plain(size)!s:.{_WIDTH}}" for key, size in sizes.items()), f"{line!s:.{_WIDTH}}"])
            yield {**benchmark.args, **sizes, benchmark.line_arg: value}, label


def _call(module: ModuleType, fn: Any, arguments: dict[str, Any], label: str, ylabel: str) -> tuple[ChildRow, str]:
    """Return the row of one call, and what the function raised; the other calls go on."""
    with observe_timers([vars(module)], capture_timed) as observed:
        try:
            value = fn(**arguments)
        except Exception as error:
            problem = raised(error)
            return ChildRow(label, CapturedWork("", reason="it did not run"), problem=f"it raised {problem}"), problem
    result = read_result(value, ylabel)
    timed = _find_timed(observed, result.measurement.t_s if result.measurement else None)
    measurement = timed.measurement if timed is not None else result.measurement
    row = ChildRow(
        label,
        _work(timed, fn.__name__, arguments),
        measurement,
        claims=result.claims,
        device_kind=device_kind(*arguments.values()),
        problem=result.problem if measurement is None else "",
    )
    return row, ""


def _find_timed(observed: list[TimedCall], t_s: float | None) -> TimedCall | None:
    """Return the observed time behind a result: the one that equals it, or the last where the result is not a time."""
    if t_s is None:
        return observed[-1] if observed else None
    return next((one for one in reversed(observed) if abs(one.measurement.t_s / t_s - 1) < 1e-3), None)


def _work(timed: TimedCall | None, name: str, arguments: dict[str, Any]) -> CapturedWork:
    """Return the captured work of the timed call; else what the function's and its arguments' names tell, for display."""
    captured = timed.captured if timed is not None else None
    if captured is not None and captured.work is not None:
        return captured
    keywords = guess_keywords(name.removeprefix("benchmark_"), arguments)
    try:
        work = build_work(keywords) if keywords is not None else None
    except ValueError:
        work = None
    if work is not None:
        return CapturedWork("", work, certain=False, source="names")
    return captured if captured is not None else CapturedWork("", reason=NO_WORK)


# What the function returns, in the unit of its axis.

#: The kinds of units of a result.
RESULT_UNITS = ("time", "bandwidth", "flop_rate")


class Result(NamedTuple):
    """What a function returned: a time, or rates, which are claims."""

    measurement: Measurement | None = None
    claims: tuple[Claim, ...] = ()
    problem: str = ""  # why it is neither


def read_result(value: Any, label: str) -> Result:
    """Read what a function returned: a number, three numbers (the value and its spread), or a dict by unit."""
    value = plain(value)
    if isinstance(value, dict):
        return _by_key(value)
    numbers = value if isinstance(value, list) else [value]
    if len(numbers) not in (1, 3) or not all(_is_number(item) for item in numbers):
        return Result(problem=f"it returned {value!r:.60}, expected a number or three")
    unit = unit_in(label, *RESULT_UNITS)
    if unit is None:
        return Result(problem=f"no unit of time or rate in its ylabel {label!r:.60}")
    return _result(numbers, unit)


def _result(numbers: list[float], unit: Unit) -> Result:
    first = numbers[0] * unit.factor
    if not (0 < first < math.inf):
        return Result(problem=f"it returned {numbers[0]!r:.60}, not a time or rate")
    if unit.axis:
        return Result(claims=(Claim(unit.axis, first),))
    low, high = sorted(number * unit.factor for number in numbers[1:]) if len(numbers) == 3 else (first, first)
    has_spread = len(numbers) == 3 and 0 < low <= first <= high < math.inf
    return Result(Measurement("user", first, low, high, notes=(SPREAD,)) if has_spread else Measurement("user", first))


def _by_key(values: Mapping[str, Any]) -> Result:
    result = Result()
    for key, value in values.items():
        unit = unit_in(str(key), *RESULT_UNITS)
        if unit is not None and _is_number(value):
            one = _result([value], unit)
            result = Result(result.measurement or one.measurement, result.claims + one.claims, result.problem or one.problem)
    return result if result != Result() else Result(problem=f"it returned {dict(values)!r:.60}, and no key has a unit")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# Problem files as KernelBench has them: ``Model``, ``get_inputs`` and ``get_init_inputs``.


def problem(module: ModuleType, timed: str) -> Iterator[ChildRow]:
    """Yield the row of ``Model``, and that of ``ModelNew`` if there is one.

    The work is that of one call on the meta device, which computes nothing. ``timed`` is ``yes`` to run the models as well:
    ``ModelNew`` must then return the same output, and the two are timed in alternation.
    """
    import torch

    with torch.no_grad():
        work = _on_meta(torch, module)
        new = getattr(module, "ModelNew", None)
        if timed != "yes":
            yield from (ChildRow(name, work) for name in (("",) if new is None else ("Model", "ModelNew")))
            return
        device = "cuda" if torch.cuda.is_available() else "cpu"
        kind = "cpu" if device == "cpu" else "gpu"
        model, inputs = _make(torch, module.Model, module, device), _inputs(torch, module, device)
        if new is None:
            _, measurement = measure(model, *inputs)
            yield ChildRow("", work, measurement, device_kind=kind)
            return
        candidate = _make(torch, new, module, device)
        _assert_same(torch, model(*inputs), candidate(*inputs))
        both = compare(model, candidate, *inputs)
        yield ChildRow("Model", work, both.baseline, device_kind=kind)
        baseline = Baseline("eager", t_s=both.baseline.t_s, spread=both.baseline.spread, source="Model")
        yield ChildRow("ModelNew", work, both.candidate, baseline, device_kind=kind)


def _on_meta(torch: Any, module: ModuleType) -> CapturedWork:
    try:
        with torch.device("meta"):
            model, inputs = _make(torch, module.Model, module, "meta"), _inputs(torch, module, "meta")
    except Exception as error:  # it names a device, or needs values
        return CapturedWork("torch", reason=f"the model does not run on the meta device: {raised(error)}")
    return capture_timed(model, tuple(inputs))


def _make(torch: Any, kind: Any, module: ModuleType, device: str) -> Any:
    torch.manual_seed(_SEED)
    arguments = module.get_init_inputs()
    model = kind(**arguments) if isinstance(arguments, dict) else kind(*arguments)
    return model.to(device)


def _inputs(torch: Any, module: ModuleType, device: str) -> list[Any]:
    torch.manual_seed(_SEED)
    return [value.to(device) if isinstance(value, torch.Tensor) else value for value in module.get_inputs()]


def _assert_same(torch: Any, expected: Any, actual: Any) -> None:
    """Compare the output of ``ModelNew`` with that of ``Model``.

    Raises:
        AssertionError: if they differ.
    """
    if isinstance(expected, (list, tuple)):
        if not isinstance(actual, (list, tuple)) or len(actual) != len(expected):
            raise AssertionError("ModelNew returns a different number of outputs than Model")
        for one, other in zip(expected, actual):
            _assert_same(torch, one, other)
    elif isinstance(expected, torch.Tensor):
        if not isinstance(actual, torch.Tensor) or actual.shape != expected.shape:
            raise AssertionError(f"ModelNew returns {getattr(actual, 'shape', type(actual))}, Model {expected.shape}")
        if not torch.allclose(actual, expected, atol=TOLERANCE, rtol=TOLERANCE):
            raise AssertionError(f"ModelNew differs from Model by up to {(actual - expected).abs().max().item():.3g}")
