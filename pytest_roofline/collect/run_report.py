"""In the child: every point of a function under ``triton.testing.perf_report``, called as its own ``run`` calls it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

from ..capture.timers import Observed, observing
from ..capture.trace import Captured
from ..capture.watching import of_timed
from ..declare import build, guess
from ..timing.devices import device_kind
from ..values import plain, raised
from .returned import understood
from .rows import Row

#: More rows of one function nobody reads.
MOST = 10_000
UNSEEN = "its work is not known: no do_bench and no torch Timer was seen in it, and its names tell no op"
#: Of one argument in a label no more.
_SHOWN = 40


def keep_still() -> None:
    """Triton's own ``run``, which some files call as they are imported, does nothing in this process.

    Raises:
        ModuleNotFoundError: where there is no triton.
    """
    setattr(import_module("triton.testing").Mark, "run", lambda *_, **__: None)  # noqa: B010  # it has no types


def report(module: ModuleType, name: str) -> Iterator[Row]:
    """A row per point and provider.

    Raises:
        RuntimeError: where every call raised.
    """
    mark = getattr(module, name)
    benchmarks = mark.benchmarks if isinstance(mark.benchmarks, (list, tuple)) else [mark.benchmarks]
    rows, failed, last = 0, 0, ""
    for benchmark in benchmarks:
        prefix = f"{benchmark.plot_name} " if len(benchmarks) > 1 else ""
        for arguments, label in _points(benchmark):
            row = _row(module, mark.fn, arguments, prefix + label, benchmark.ylabel)
            rows, failed, last = rows + 1, failed + row.problem.startswith(_RAISED), row.problem or last
            yield row
            if rows >= MOST:
                return
    if rows and failed == rows:
        raise RuntimeError(f"every call of {name} raised, the last: {last.removeprefix(_RAISED)}")


_RAISED = "it raised "


def _points(benchmark: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """The arguments of each call, and what tells it apart: as ``triton.testing.Mark`` makes them."""
    lines = list(zip(benchmark.line_vals, benchmark.line_names or benchmark.line_vals))
    for x in benchmark.x_vals:
        values = x if isinstance(x, (list, tuple)) else [x] * len(benchmark.x_names)
        if len(values) != len(benchmark.x_names):
            raise ValueError(f"expected {len(benchmark.x_names)} values of x, got {x!r:.60}")
        sizes = dict(zip(benchmark.x_names, values))
        for value, line in lines:
            named = {**sizes, benchmark.line_arg: value}
            label = " ".join([*(f"{key}={plain(size)!s:.{_SHOWN}}" for key, size in sizes.items()), f"{line!s:.{_SHOWN}}"])
            yield {**benchmark.args, **named}, label


def _row(module: ModuleType, fn: Any, arguments: dict[str, Any], label: str, ylabel: str) -> Row:
    with observing([vars(module)], of_timed) as observed:
        try:
            value = fn(**arguments)
        except Exception as error:  # of one point: the others stand
            return Row(label, Captured("", reason="it did not run"), problem=f"{_RAISED}{raised(error)}")
    found = understood(value, ylabel)
    timed = _of_it(observed, found.measurement.t_s if found.measurement else None)
    measurement = timed.measurement if timed is not None else found.measurement
    work = _work(timed, fn.__name__, arguments)
    seen = device_kind(*arguments.values())
    problem = found.problem if measurement is None else ""
    return Row(label, work, measurement, None, found.claims, seen, problem)


def _of_it(observed: list[Observed], t_s: float | None) -> Observed | None:
    """The time behind the figure: the last that was taken, or the one that is the figure where it is a time."""
    if t_s is None:
        return observed[-1] if observed else None
    return next((one for one in reversed(observed) if abs(one.measurement.t_s / t_s - 1) < 1e-3), None)


def _work(timed: Observed | None, name: str, arguments: dict[str, Any]) -> Captured:
    """What was timed, watched once more; else what the names of the function and its arguments tell, for display."""
    found = timed.captured if timed is not None else None
    if found is not None and found.work is not None:
        return found
    keywords = guess(name.removeprefix("benchmark_"), arguments)
    try:
        work = build(keywords) if keywords is not None else None
    except ValueError:
        work = None
    if work is not None:
        return Captured("names", work, sure=False)
    return found if found is not None else Captured("", reason=UNSEEN)
