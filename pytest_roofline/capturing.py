"""Work captured while a test runs: of what it has timed, or else of its own call.

A marker, the fixture or a glob that says the work stands over it, and then nothing is captured.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from .plain import raised
from .timing.arrays import loaded
from .work.capture import Outcome, capture, own_call
from .work.capture.record import Captured
from .work.capture.replaced import replaced
from .work.capture.timers import Observed, observing
from .work.capture.triton_launches import INTERPRETED
from .work.declared import Declared

#: Names in the source of a module that times something itself: to watch its tests would be part of their times.
_TIMES_ITSELF = re.compile(
    r"\b(?:perf_counter|process_time|monotonic|timeit|time\.time|Event|elapsed_time|Timer|run_perftest|\w*bench\w*|profil\w+)\b"
)
CHANGED = "capture dropped: the captured call returned something else than the timed ones"


@dataclass(slots=True)
class Watched:
    """What was captured of one test: of its benchmark, of each timer that it used, or of its own call."""

    benchmark: Captured | None = None
    observed: list[tuple[Observed, Captured | None]] = field(default_factory=list)
    own: Captured | None = None


@contextmanager
def watching(test: str, namespace: dict[str, Any], fixture: Any, *, own: bool, timed: Callable[[], bool]) -> Iterator[Watched]:
    """Capture what a test times while the block runs.

    test: the name of its function. namespace: its module's. fixture: its ``benchmark``, of pytest-benchmark or
    pytest-codspeed; timed: whether that took a time. own: where nothing is timed, its own call is captured.
    """
    watched = Watched()
    with ExitStack() as stack:
        if fixture is not None:
            stack.enter_context(replaced(type(fixture), "__call__", _benchmark(watched, timed)))
        observed = stack.enter_context(observing([namespace]))
        look = own and fixture is None and loaded("torch") is not None and not times_itself(namespace.get("__file__"))
        watch = stack.enter_context(own_call()) if look else None
        yield watched
    watched.observed = [(one, of_timed(one.fn) if one.fn is not None else None) for one in observed]
    if watch is not None and not observed:
        watched.own = watch(test)


def _benchmark(watched: Watched, timed: Callable[[], bool]) -> Callable[..., Any]:
    def call(original: Callable[..., Any], fixture: Any, fn: Any, *args: Any, **kwargs: Any) -> Any:
        value = original(fixture, fn, *args, **kwargs)
        if timed():
            watched.benchmark = of_timed(fn, args, kwargs, like=shape(value))
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


_sources: dict[str, bool] = {}


def times_itself(path: str | None) -> bool:
    """Whether the source of a module names a timer; where there is none to read, it may."""
    if path is None:
        return True
    if path not in _sources:
        try:
            with open(path, encoding="utf-8", errors="replace") as source:
                _sources[path] = _TIMES_ITSELF.search(source.read()) is not None
        except OSError:
            _sources[path] = True
    return _sources[path]


def declared(captured: Captured) -> tuple[Declared | None, str]:
    """What a capture says of a test's kernel, and why nothing where it says nothing."""
    guessed = captured.how == "names"  # by a collected file
    how = f"captured: {captured.how}" if captured.how and not guessed else ""
    if captured.work is None:
        return None, "; ".join(filter(None, (captured.reason, *captured.notes)))
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
