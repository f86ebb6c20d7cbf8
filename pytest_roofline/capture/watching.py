"""Work captured while a test runs: of what it has timed, or else of its own call.

A marker, the fixture or a glob that says the work stands over it, and then nothing is captured.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from ..declare import Declared
from ..timing.devices import device_kind
from ..values import raised
from . import Outcome, capture, own_call
from .restore import names_of, replaced
from .timers import Observed, observing
from .trace import META, Captured
from .triton import INTERPRETED

#: Names of who times something itself: to watch such a test would be part of its times.
_CLOCK = re.compile(r"(?i)time[drs]?|timeit|event|.*(?:bench|perf|profil|elapsed|clock|monotonic|process_time).*")
#: Names of who asks torch for its modes, or compiles by torch's inner functions: that comes out differently under a watch.
_MODES = re.compile(r"(?i)_dynamo|.*torch_?(?:function|dispatch).*|.*(?:function|dispatch)_?mode.*")
PEDANTIC = "benchmark.pedantic makes the calls it is told to and none more, so it is not watched: a marker says what it moves"
CHANGED = "capture dropped: the captured call returned something else than the timed ones"


@dataclass(slots=True)
class Watched:
    """What was captured of one test: of its benchmark, of each timer that it used, or of its own call.

    seen: what the arrays of its benchmark were on.
    """

    benchmark: Captured | None = None
    seen: str | None = None
    observed: list[Observed] = field(default_factory=list)
    own: Captured | None = None


@contextmanager
def watching(test: str, namespace: dict[str, Any], fixture: Any, *, own: bool, timed: Callable[[], bool]) -> Iterator[Watched]:
    """Capture what a test times while the block runs.

    test: the name of its function. namespace: its module's. fixture: its ``benchmark``, of pytest-benchmark or
    pytest-codspeed; timed: whether that took a time. own: where nothing is timed, its own call is captured; torch is loaded
    then.
    """
    watched = Watched()
    with ExitStack() as stack:
        if fixture is not None:
            stack.enter_context(_on_benchmark(fixture, watched, timed))
        watch = stack.enter_context(own_call()) if own else None
        leave = watch.leave if watch is not None else None
        watched.observed = stack.enter_context(observing([namespace], of_timed, leave))
        yield watched
    if watch is not None and not watched.observed:
        watched.own = watch.under_test(test)


@contextmanager
def seeing(fixture: Any) -> Iterator[Watched]:
    """See what the arrays of a benchmark are on while the block runs, where its work is known."""
    watched = Watched()
    with _on_benchmark(fixture, watched, lambda: False):
        yield watched


@contextmanager
def _on_benchmark(fixture: Any, watched: Watched, timed: Callable[[], bool]) -> Iterator[None]:
    with (
        replaced(type(fixture), "__call__", _benchmark(watched, timed)),
        replaced(type(fixture), "pedantic", _pedantic(watched)),
    ):
        yield


def _benchmark(watched: Watched, timed: Callable[[], bool]) -> Callable[..., Any]:
    def call(original: Callable[..., Any], fixture: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        value = original(fixture, *args, **kwargs)
        watched.seen = device_kind(value, args, kwargs)
        if args and timed():  # its function may also be named by a keyword
            watched.benchmark = of_timed(args[0], args[1:], kwargs, like=shape(value))
        return value

    return call


def _pedantic(watched: Watched) -> Callable[..., Any]:
    def call(original: Callable[..., Any], fixture: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        value = original(fixture, *args, **kwargs)
        watched.seen = device_kind(value, args[1:2], kwargs.get("args"), kwargs.get("kwargs"))
        watched.benchmark = Captured("", reason=PEDANTIC)
        return value

    return call


def of_timed(
    fn: Callable[..., Any], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None, like: object = None
) -> Captured:
    """The work of a call that has just been timed, from one more of it; without it where that one returns something else.

    like: the ``shape`` of what a timed call returned, where that is known.
    """
    try:
        found: Outcome = capture(fn, args, kwargs or {})
    except Exception as error:  # its timed calls did not raise
        return Captured("", reason=f"capture dropped: the captured call raised {raised(error)}")
    if found.called and like is not None and shape(found.value) != like:
        return Captured(found.captured.how, reason=CHANGED, operations=found.captured.operations)
    return found.captured


def shape(value: Any) -> object:
    """What is the same of two results of one function; their numbers may differ (an update in place)."""
    if isinstance(value, (list, tuple)):
        return type(value), tuple(map(shape, value))
    return type(value), tuple(getattr(value, "shape", ())), str(getattr(value, "dtype", ""))


def minds_a_watch(test: Callable[..., Any], owner: type | None = None) -> bool:
    """Whether a test, or a function of its own module that it calls, uses a name that tells of a clock, or of torch's modes:
    whether it may come out differently for being watched.

    owner: the class whose methods it may call.
    """
    waiting, done = list(_layers(test)), set()
    while waiting:
        fn = waiting.pop()
        if fn in done:
            continue
        done.add(fn)
        code = fn.__code__
        names = {*names_of(code), *code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]}
        if any(_CLOCK.fullmatch(name) or _MODES.fullmatch(name) for name in names):
            return True
        spaces = [vars(space) for space in (owner, sys.modules.get(fn.__module__)) if space is not None]
        called = [space[name] for space in spaces for name in names if name in space]
        waiting += [layer for one in called for layer in _layers(one) if layer.__module__ == fn.__module__]
    return False


def _layers(value: Any) -> Iterator[FunctionType]:
    """A function, and those that it wraps."""
    while inspect.isfunction(value):
        yield value
        value = getattr(value, "__wrapped__", None)


def declared(captured: Captured) -> tuple[Declared | None, str]:
    """What a capture says of a test's kernel, and why nothing where it says nothing."""
    guessed = captured.how == "names"  # by a collected file
    how = f"captured: {captured.how}" if captured.how and not guessed else ""
    if captured.work is None:
        to_do = "" if not captured.reason or "marker" in captured.reason else ": a marker can say what it moves"
        return None, "; ".join(filter(None, (f"{captured.reason}{to_do}", *captured.notes)))
    return (
        Declared(
            work=captured.work,
            source="names" if guessed else "captured",
            stage="B" if captured.sure else "A",
            launches=captured.launches or 1,
            notes=tuple(filter(None, (how, *captured.notes))),
        ),
        "",
    )


def interpreted(captured: Captured | None) -> bool:
    """Whether a captured call ran in Triton's interpreter, so that its time is no kernel's."""
    return captured is not None and any(INTERPRETED in note for note in captured.notes)


def timeless(captured: Captured | None) -> bool:
    """Whether the time that a call took is no kernel's: it ran in an interpreter, or on tensors without memory."""
    return captured is not None and (interpreted(captured) or META in captured.notes)
