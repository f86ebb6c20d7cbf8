"""Bytes and FLOPs of a call without a declaration, from watching it run once.

A framework is imported here only after the user's code imported it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

from ..timing.devices import array_libraries, loaded, reachable_values
from .trace import CapturedWork, under_test
from .unseen import add_signs, partly_seen

TIMED = "it takes a time, and a watch would be part of it"


class CaptureOutcome(NamedTuple):
    """What was captured."""

    captured: CapturedWork
    called: bool = False  # whether the function ran: JAX is asked without a call
    value: Any = None  # what the call returned


def capture(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> CaptureOutcome:
    """Capture the work of ``fn(*args, **kwargs)``, called once more where its framework needs that.

    The framework follows from the arrays among the arguments and in the closure. An exception of ``fn`` is not caught.
    """
    libraries = array_libraries(args, kwargs, reachable_values(fn))
    if "jax" in libraries and "torch" not in libraries:
        from .jax import capture as capture_jax

        return CaptureOutcome(capture_jax(fn, args, kwargs))
    if "numpy" in libraries and "torch" not in libraries:
        from .numpy import capture as capture_numpy

        if loaded("torch") is None:
            value, captured = capture_numpy(fn, args, kwargs)
            return CaptureOutcome(captured, True, value)
        from .torch.watch import Watch

        with Watch() as watch, _watch_kernels(watch):
            value, captured = capture_numpy(fn, args, kwargs)
        if watch.traces and not captured.operations:
            captured = watch.finish(value)
        elif watch.traces or watch.problem:
            captured = add_signs(captured, [partly_seen("torch ran operations too")])
        return CaptureOutcome(captured, True, value)
    if loaded("torch") is not None:
        from .torch.watch import capture as capture_torch

        value, captured = capture_torch(fn, args, kwargs, also_watch=_watch_kernels)
        return CaptureOutcome(captured, True, value)
    return CaptureOutcome(CapturedWork("", reason="no array among its arguments or in its closure"))


class OwnCall(NamedTuple):
    """The watch of a test's own call."""

    leave: Callable[[], None]  # ends the watch, because the test times something now
    under_test: Callable[[str], CapturedWork]  # the work of the kernel under test, by the name of the test's function


@contextmanager
def own_call() -> Iterator[OwnCall]:
    """Watch a test's own call while the block runs."""
    from .torch.watch import Watch

    with Watch(own=True) as watch, _watch_kernels(watch):
        yield OwnCall(lambda: watch.leave(TIMED), lambda name: under_test(name, watch.traces, watch.problem))


def _watch_kernels(watch: Any) -> AbstractContextManager[object]:
    from .triton import watch_launches

    return watch_launches(watch.region, watch.traces, lambda: not watch.problem)
