"""Capture of a test while it runs: the work of what the test times, else of the test's own call.

A marker, the fixture or a glob takes precedence; nothing is captured then.
"""

from __future__ import annotations

import inspect
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from roofline_engine.fields import ByteModel, has_note, join_notes, note
from roofline_engine.units import parse_dtype, quantity
from roofline_engine.work import Work

from ..declare import Declaration
from ..timing.devices import array_form, device_kind, distinct_bytes, extents, reachable_values, untouched_bytes
from ..values import contents, raised
from . import capture, own_call
from .restore import names_in, replaced
from .timers import TimedCall, observe_timers
from .trace import CapturedWork

#: Names in the code of a test that times something itself: watching it would be part of its times.
_CLOCK = re.compile(
    r"(?i)time[drs]?|timeit|event|getfixturevalue|.*(?:bench|perf|profil|elapsed|clock|monotonic|process_time).*"
)
#: Names in the code of a test that asks torch for its modes or uses torch's compiler: a watch changes what these give.
_MODES = re.compile(r"(?i)_dynamo|.*torch_?(?:function|dispatch).*|.*(?:function|dispatch)_?mode.*")
PEDANTIC = "not captured: benchmark.pedantic() runs a fixed number of calls"
#: Values in the containers of a result that are compared with those of the timed calls.
MOST_RESULTS = 1_000
#: The part of the work that pages which nothing wrote may be: half of what timers and data sheets are good to.
UNTOUCHED = 0.025
#: In the place of a result that is not known.
UNKNOWN = object()
CHANGED = "capture dropped: the captured call returned something other than the timed calls"


@dataclass(slots=True)
class CaptureResult:
    """What was captured of one test."""

    benchmark: CapturedWork | None = None  # the call of its benchmark fixture
    device: str | None = None  # cpu or gpu: what the arrays of the benchmark are on
    untouched: float = 0.0  # bytes of its arrays that lie on pages which nothing wrote
    timed_calls: list[TimedCall] = field(default_factory=list)  # the calls that it timed with other timers
    own_call: CapturedWork | None = None


@contextmanager
def watch_test(
    test: str, namespace: dict[str, Any], fixture: Any, *, own: bool, is_timed: Callable[[], bool]
) -> Iterator[CaptureResult]:
    """Capture what a test times while the block runs.

    test: the name of its function.
    namespace: the globals of its module.
    fixture: its ``benchmark`` of pytest-benchmark or pytest-codspeed, or None.
    own: whether to capture the test's own call where it times nothing; torch is imported then.
    is_timed: whether the fixture took a time.
    """
    result = CaptureResult()
    with ExitStack() as stack:
        if fixture is not None:
            stack.enter_context(_watch_fixture(fixture, result, is_timed))
        call = stack.enter_context(own_call()) if own else None
        result.timed_calls = stack.enter_context(observe_timers([namespace], capture_timed, call.leave if call else None))
        yield result
    if call is not None and not result.timed_calls:
        result.own_call = call.under_test(test)


@contextmanager
def watch_devices(fixture: Any) -> Iterator[CaptureResult]:
    """Find only what the arrays of a benchmark are on while the block runs: its work is declared."""
    result = CaptureResult()
    with _watch_fixture(fixture, result, lambda: False):
        yield result


@contextmanager
def _watch_fixture(fixture: Any, result: CaptureResult, is_timed: Callable[[], bool]) -> Iterator[None]:
    def call(original: Callable[..., Any], fixture: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        value = original(fixture, *args, **kwargs)
        result.device = device_kind(value, args, kwargs)
        if args:  # its function may also be passed as a keyword
            result.untouched = untouched_bytes(args[1:], kwargs, reachable_values(args[0]))
            if is_timed():
                result.benchmark = capture_timed(args[0], args[1:], kwargs, value)
        return value

    def pedantic(original: Callable[..., Any], fixture: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        value = original(fixture, *args, **kwargs)
        given = (
            args[1:3],
            kwargs.get("args"),
            kwargs.get("kwargs"),
            reachable_values(args[0] if args else kwargs.get("target")),
        )
        result.device = device_kind(value, *given)
        result.untouched = untouched_bytes(*given)
        result.benchmark = CapturedWork("", reason=PEDANTIC)
        if is_timed():
            result.benchmark = count_arguments(result.benchmark, *given, value)
        return value

    with replaced(type(fixture), "__call__", call), replaced(type(fixture), "pedantic", pedantic):
        yield


def capture_timed(
    fn: Callable[..., Any], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None, value: Any = UNKNOWN
) -> CapturedWork:
    """Capture the work of a call that has just been timed, from one more call; where that fails, the traffic of its arguments.

    value: what a timed call returned; a captured call that returns something else gives no work.
    """
    given = args, kwargs, reachable_values(fn), None if value is UNKNOWN else value
    try:
        like = result_shape(value)
        with warnings.catch_warnings():  # the timed calls have given theirs
            warnings.simplefilter("ignore")
            outcome = capture(fn, args, kwargs or {})
        captured = outcome.captured
        if outcome.called and value is not UNKNOWN and result_shape(outcome.value) != like:
            captured = CapturedWork(captured.how, reason=CHANGED, operations=captured.operations)
    except Exception as error:  # its timed calls did not raise
        captured = CapturedWork("", reason=f"capture dropped: the captured call raised {raised(error)}")
    return captured if captured.work is not None or has_no_kernel_time(captured) else count_arguments(captured, *given)


def count_arguments(captured: CapturedWork, *values: object) -> CapturedWork:
    """Add the bytes of the arrays among a call's arguments and results, each once, to a capture without work.

    This is no model of the work, which may read less, or the same again: it is for display.
    """
    arrays = extents(*values)
    nbytes = distinct_bytes(arrays)
    if not nbytes:
        return captured
    dtype = parse_dtype("uint8")  # nothing is known to be computed
    remark = note(f"args: its {len(arrays)} arrays, each once. Its work is unknown: {captured.reason}", "no_work_model")
    work = Work("unknown", "unknown", (ByteModel("args", float(nbytes), 0.0),), "vector", dtype, dtype, (), coverage="args")
    return captured._replace(work=work, certain=False, notes=(*captured.notes, remark))


def leave_out_untouched(work: Work, nbytes: float) -> Work:
    """Return work whose operands have ``nbytes`` on pages that nothing wrote: no run need read those from memory."""
    least, flops = work.unavoidable
    if nbytes < UNTOUCHED * work.bytes:
        return work
    remark = note(
        f"{quantity(min(nbytes, work.bytes), 'B')} of its operands lie on pages that nothing wrote, and a cache serves those. "
        "Write to the operands once before they are timed, such as with fill(0)",
        "untouched_pages",
    )
    coverage = "range" if work.coverage == "whole" else work.coverage
    return work._replace(coverage=coverage, least=(max(0.0, least - nbytes), flops), notes=(*work.notes, remark))


def result_shape(value: Any) -> list[object]:
    """Return what two results of one function have in common; their numbers may differ (an update in place)."""
    shape: list[object] = []
    waiting = [value]
    while waiting and len(shape) < MOST_RESULTS:
        value = waiting.pop()
        items = contents(value, MOST_RESULTS)
        inner = [] if items is None else list(items)
        shape.append((type(value), array_form(value) if items is None else len(inner)))
        waiting.extend(inner)
    return shape


def uses_clock_or_modes(test: Callable[..., Any], owner: type | None = None) -> bool:
    """Return whether a watch may change a test: its code, or a function of its module that it calls, names a clock or modes.

    owner: the class whose methods it may call.
    """
    waiting, visited = list(_layers(test)), set()
    while waiting:
        fn = waiting.pop()
        if fn in visited:
            continue
        visited.add(fn)
        code = fn.__code__
        names = {*names_in(code), *code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]}
        if any(_CLOCK.fullmatch(name) or _MODES.fullmatch(name) for name in names):
            return True
        scopes = [vars(scope) for scope in (owner, sys.modules.get(fn.__module__)) if scope is not None]
        values = [scope[name] for scope in scopes for name in names if name in scope]
        waiting += [layer for value in values for layer in _layers(value) if layer.__module__ == fn.__module__]
    return False


def _layers(value: Any) -> Iterator[FunctionType]:
    """Yield a function and the functions that it wraps."""
    while inspect.isfunction(value):
        yield value
        value = getattr(value, "__wrapped__", None)


def declare_captured(captured: CapturedWork) -> tuple[Declaration | None, str]:
    """Return captured work as a declaration, or None with the reason."""
    if captured.work is None:
        reason = f"{captured.reason}. Add a roofline marker with its op or its bytes" if captured.reason else ""
        return None, "; ".join(filter(None, (reason, join_notes(captured.notes))))
    how = (note(f"captured: {captured.how}"),) if captured.how else ()
    return (
        Declaration(
            work=captured.work,
            source=captured.source,
            stage="B" if captured.certain and captured.work.coverage != "lower_bound" else "A",
            launches=captured.launches or 1,
            notes=(*how, *captured.notes),
        ),
        "",
    )


def ran_in_interpreter(captured: CapturedWork | None) -> bool:
    """Return whether a captured call ran in an interpreter, so that its time is not the time of a kernel."""
    return captured is not None and has_note(captured.notes, "interpreted")


def has_no_kernel_time(captured: CapturedWork | None) -> bool:
    """Return whether the time of a call is not the time of a kernel: an interpreter ran it, or its tensors have no memory."""
    return captured is not None and has_note(captured.notes, "interpreted", "meta_device")
