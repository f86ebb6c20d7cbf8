"""Times that a test takes with Triton's ``do_bench`` functions or ``torch.utils.benchmark.Timer``, and of which function."""

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
from .trace import Captured

#: Clock and cache of Triton's functions (triton/testing.py): events around each call after 256 MB were written; one graph of
#: many calls, replayed; kernel times of Proton, the cache cleared outside of them. 256 MB are the whole memory-side cache of
#: an MI300, of which some may then remain.
_BENCHES = {
    "do_bench": ("device-event", "cold", ()),
    "do_bench_cudagraph": ("device-graph", "warm", ()),
    "do_bench_proton": ("device-event", "cold", ("kernel times by Proton",)),
    "do_bench_cudagraph_proton": ("device-graph", "cold", ("kernel times by Proton",)),
}
#: Where the functions come from that Triton and torch time for themselves.
_THEIRS = ("triton.runtime.", "torch._inductor.", "torch._dynamo.")
_TIMERS = ("timeit", "blocked_autorange", "adaptive_autorange")


class Observed(NamedTuple):
    """One time that a test took. fn: what was timed; None where it is no Python. captured: the work of it."""

    fn: Callable[[], Any] | None
    measurement: Measurement
    source: str
    captured: Captured | None = None


class _Observing:
    """The times that have been taken. quiet: what is timed now is our own doing."""

    def __init__(self, work: Callable[[Callable[[], Any]], Captured] | None, before: Callable[[], None] | None) -> None:
        self.observed: list[Observed] = []
        self.work, self.before = work, before
        self.quiet = False

    def take(self, found: Observed) -> None:
        """Keep a time, with its work from one more call: at once, before the caller goes on and changes what was timed."""
        if self.work is not None and found.fn is not None:
            self.quiet = True
            try:
                found = found._replace(captured=self.work(found.fn))
            finally:
                self.quiet = False
        self.observed.append(found)


@contextmanager
def observing(
    namespaces: Iterable[MutableMapping[str, Any]] = (),
    work: Callable[[Callable[[], Any]], Captured] | None = None,
    before: Callable[[], None] | None = None,
) -> Iterator[list[Observed]]:
    """A list that fills with what is timed inside the block; each caller gets its own result, untouched.

    namespaces: globals in which a name may be bound to one of these functions (``from triton.testing import do_bench``).
    work: what captures the work of a function that has been timed, which is called before the caller has its time. before:
    called before a time is taken. What Triton and torch time for themselves, an autotuner's candidates, is not observed.
    """
    observed = _Observing(work, before)
    spaces, triton, torch = tuple(namespaces), loaded("triton.testing"), loaded("torch.utils.benchmark.utils.timer")
    with ExitStack() as stack:
        for name in _BENCHES if triton is not None else ():
            stack.enter_context(replaced(triton, name, _observer(observed, partial(_bench, name)), spaces))
        for name in _TIMERS if torch is not None else ():
            stack.enter_context(replaced(torch.Timer, name, _observer(observed, partial(_timer, name))))
        yield observed.observed


def _observer(observed: _Observing, understood: Callable[..., Observed | None]) -> Callable[..., Any]:
    """Takes down what one of the functions has returned; whatever becomes of that, its caller gets the result."""

    def call(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if observed.quiet:
            return original(*args, **kwargs)
        if observed.before is not None:
            observed.before()
        result = original(*args, **kwargs)
        try:
            found = understood(result, original, *args, **kwargs)
        except Exception:  # a version that takes or returns something else
            found = None
        if found is not None:
            observed.take(found)
        return result

    return call


def _bench(name: str, result: Any, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Observed | None:
    given = inspect.signature(original).bind(*args, **kwargs)
    given.apply_defaults()
    fn = given.arguments["fn"]
    if str(getattr(fn, "__module__", "")).startswith(_THEIRS):
        return None
    found = _of_bench(result, given.arguments.get("quantiles"), given.arguments.get("return_mode", "mean"))
    if found is None:
        return None
    clock, cache, said = _BENCHES[name]
    found = found._replace(clock=clock, cache=cache, notes=(*found.notes, *said))
    return Observed(fn, found, f"triton.testing.{name}")


def _of_bench(result: Any, quantiles: Any, mode: str) -> Measurement | None:
    """The milliseconds that were returned, as what they are: the user asked for one statistic and no other is known."""
    values = [1e-3 * float(value) for value in (result if isinstance(result, (list, tuple)) else [result])]
    if not values or not all(math.isfinite(value) and value > 0 for value in values):
        return None
    if quantiles is None:
        if mode == "all":
            return _of_times(values)
        return Measurement("user", values[0], notes=() if mode == "median" else (f"the {mode}, not the median",))
    asked = dict(zip((float(quantile) for quantile in quantiles), values))
    nearest = min(asked, key=lambda quantile: abs(quantile - 0.5))
    if nearest != 0.5:
        return Measurement("user", asked[nearest], notes=(f"the {nearest:g} quantile, the median was not asked for",))
    between = 0.25 in asked and 0.75 in asked
    return Measurement("user", asked[0.5], asked[0.25] if between else None, asked[0.75] if between else None)


def _of_times(values: list[float]) -> Measurement:
    found = quartiles(values)
    several = len(values) > 1
    return Measurement("user", found.median, found.q1 if several else None, found.q3 if several else None, len(values))


def _timer(name: str, result: Any, original: Callable[..., Any], timer: Any, *args: Any, **kwargs: Any) -> Observed:
    found = _of_times([float(value) for value in result.times])
    batch = int(result.number_per_run)
    notes = (f"{batch} calls a round",) if batch > 1 else ()
    found = found._replace(clock=_clock(timer), cache="warm", notes=notes)
    return Observed(_statement(timer), found, f"torch.utils.benchmark.Timer.{name}")


def _clock(timer: Any) -> str:
    """Torch's own timer waits for the accelerator where there is one; another may be anything."""
    used = getattr(timer._timer, "timer", None)
    if used is getattr(loaded("torch.utils.benchmark.utils.timer"), "timer", None):
        torch = loaded("torch")
        return "host+sync" if getattr(torch, "accelerator", torch.cuda).is_available() else "host"
    return "host" if used in (time.perf_counter, time.monotonic, time.time) else "unknown"


def _statement(timer: Any) -> Callable[[], Any] | None:
    """One run of the statement, in the globals and after the setup it was timed with; None for C++."""
    inner = getattr(timer._timer, "inner", None)  # timeit's: the setup, then the statement as often as the iterator says
    if inner is None:
        return None
    spec, space = timer._task_spec, dict(timer._globals)
    try:
        exec(compile(spec.setup, "<setup of a Timer>", "exec"), space)
    except Exception:  # it does not bear another run
        return None
    try:
        code = compile(spec.stmt, "<statement of a Timer>", "eval")
    except SyntaxError:  # several lines, or no expression
        code = compile(spec.stmt, "<statement of a Timer>", "exec")
    return lambda: eval(code, space)
