"""Times that a test takes with Triton's ``do_bench`` functions or ``torch.utils.benchmark.Timer``."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

from roofline_engine.check import Measurement

from ..timing.devices import loaded
from ..timing.sampling import quartiles
from .restore import replaced
from .trace import CapturedWork

#: Clock, cache and notes of Triton's functions (triton/testing.py): events around each call after 256 MB were written; one
#: graph of many calls, replayed; kernel times of Proton, the cache cleared outside of them. 256 MB are the whole memory-side
#: cache of an MI300, so that part of it may stay warm.
_BENCHES = {
    "do_bench": ("device-event", "cold", ()),
    "do_bench_cudagraph": ("device-graph", "warm", ()),
    "do_bench_proton": ("device-event", "cold", ("kernel times by Proton",)),
    "do_bench_cudagraph_proton": ("device-graph", "cold", ("kernel times by Proton",)),
}
_TIMERS = ("timeit", "blocked_autorange", "adaptive_autorange")
#: Modules of functions that Triton and torch time for themselves.
_LIBRARIES = ("triton.runtime.", "torch._inductor.", "torch._dynamo.")


class TimedCall(NamedTuple):
    """One time that a test took."""

    fn: Callable[[], Any] | None  # what was timed; None for code that is not Python
    measurement: Measurement
    source: str  # the timer's name
    captured: CapturedWork | None = None


@contextmanager
def observe_timers(
    namespaces: Iterable[MutableMapping[str, Any]] = (),
    work: Callable[[Callable[[], Any]], CapturedWork] | None = None,
    before: Callable[[], None] | None = None,
) -> Iterator[list[TimedCall]]:
    """Yield a list that fills with what is timed inside the block; each caller gets its own result, untouched.

    namespaces: globals in which a name may be bound to a timer (``from triton.testing import do_bench``).
    work: captures the work of a timed function; called before the caller gets its time, and changes what was timed.
    before: called before a time is taken.

    What Triton and torch time for themselves, such as an autotuner's candidates, is not observed.
    """
    calls: list[TimedCall] = []
    is_capturing = False

    def observe(read: Callable[..., TimedCall | None], original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a timer; ``read`` makes a ``TimedCall`` of its result and arguments."""
        nonlocal is_capturing
        __tracebackhide__ = True
        if is_capturing:
            return original(*args, **kwargs)
        if before is not None:
            before()
        result = original(*args, **kwargs)
        try:
            timed = read(result, original, *args, **kwargs)
        except Exception:  # a version with other arguments or results
            timed = None
        if timed is None:
            return result
        if timed.fn is not None and work is not None:
            is_capturing = True
            try:
                timed = timed._replace(captured=work(timed.fn))
            finally:
                is_capturing = False
        calls.append(timed)
        return result

    spaces = tuple(namespaces)
    triton, torch = loaded("triton.testing"), loaded("torch.utils.benchmark.utils.timer")
    with ExitStack() as stack:
        for name in _BENCHES if triton is not None else ():
            stack.enter_context(replaced(triton, name, partial(observe, partial(_read_bench, name)), spaces))
        for name in _TIMERS if torch is not None else ():
            stack.enter_context(replaced(torch.Timer, name, partial(observe, partial(_read_timer, name))))
        yield calls


def _read_bench(name: str, result: Any, original: Callable[..., Any], *args: Any, **kwargs: Any) -> TimedCall | None:
    bound = inspect.signature(original).bind(*args, **kwargs)
    bound.apply_defaults()
    fn = bound.arguments["fn"]
    if str(getattr(fn, "__module__", "")).startswith(_LIBRARIES):
        return None
    measurement = _read_times(result, bound.arguments.get("quantiles"), bound.arguments.get("return_mode", "mean"))
    if measurement is None:
        return None
    clock, cache, notes = _BENCHES[name]
    measurement = measurement._replace(clock=clock, cache=cache, notes=(*measurement.notes, *notes))
    return TimedCall(fn, measurement, f"triton.testing.{name}")


def _read_times(result: Any, quantiles: Any, mode: str) -> Measurement | None:
    """Read the milliseconds that were returned: the one statistic that the caller asked for."""
    values = [1e-3 * float(value) for value in (result if isinstance(result, (list, tuple)) else [result])]
    if not values or not all(math.isfinite(value) and value > 0 for value in values):
        return None
    if quantiles is None:
        if mode == "all":
            return _summarize(values)
        return Measurement("user", values[0], notes=() if mode == "median" else (f"the {mode}, not the median",))
    by_quantile = dict(zip((float(quantile) for quantile in quantiles), values))
    nearest = min(by_quantile, key=lambda quantile: abs(quantile - 0.5))
    if nearest != 0.5:
        return Measurement("user", by_quantile[nearest], notes=(f"the {nearest:g} quantile; no median was asked for",))
    has_quartiles = 0.25 in by_quantile and 0.75 in by_quantile
    q1, q3 = (by_quantile[0.25], by_quantile[0.75]) if has_quartiles else (None, None)
    return Measurement("user", by_quantile[0.5], q1, q3)


def _summarize(values: list[float]) -> Measurement:
    spread = quartiles(values)
    several = len(values) > 1
    return Measurement("user", spread.median, spread.q1 if several else None, spread.q3 if several else None, len(values))


def _read_timer(name: str, result: Any, original: Callable[..., Any], timer: Any, *args: Any, **kwargs: Any) -> TimedCall:
    measurement = _summarize([float(value) for value in result.times])
    batch = int(result.number_per_run)
    notes = (f"{batch} calls a round",) if batch > 1 else ()
    measurement = measurement._replace(clock=_clock(timer), cache="warm", notes=notes)
    return TimedCall(_statement(timer), measurement, f"torch.utils.benchmark.Timer.{name}")


def _clock(timer: Any) -> str:
    """Return the clock of a Timer: torch's own waits for the accelerator, the host's do not, another may be anything."""
    function = getattr(timer._timer, "timer", None)
    if function is getattr(loaded("torch.utils.benchmark.utils.timer"), "timer", None):
        torch = loaded("torch")
        return "host+sync" if getattr(torch, "accelerator", torch.cuda).is_available() else "host"
    return "host" if function in (time.perf_counter, time.monotonic, time.time) else "unknown"


def _statement(timer: Any) -> Callable[[], Any] | None:
    """Return one run of a Timer's statement, in its globals and after its setup; None for C++."""
    inner = getattr(timer._timer, "inner", None)  # timeit's: the setup, then the statement as often as the iterator gives
    if inner is None:
        return None
    spec, space = timer._task_spec, dict(timer._globals)
    try:
        exec(compile(spec.setup, "<setup of a Timer>", "exec"), space)
    except Exception:  # it cannot run twice
        return None
    try:
        code = compile(spec.stmt, "<statement of a Timer>", "eval")
    except SyntaxError:  # several lines, or no expression
        code = compile(spec.stmt, "<statement of a Timer>", "exec")
    return lambda: eval(code, space)
