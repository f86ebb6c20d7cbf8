"""Bytes and FLOPs of a call without a declaration, from watching it run once.

A framework is imported here only after the user's code has imported it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

from ..timing.devices import held_by, kinds, loaded
from .combine import under_test
from .trace import Captured

TIMED = "it takes a time, which a watch would be part of"


class Outcome(NamedTuple):
    """What was captured, and what the call returned where there was one: JAX is asked without calling."""

    captured: Captured
    called: bool = False
    value: Any = None


def capture(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Outcome:
    """The work of ``fn(*args, **kwargs)``, called once more for it where its framework cannot tell otherwise.

    Which framework is asked follows from the arrays among the arguments and in the closure. An exception of ``fn`` leaves.
    """
    found = kinds(args, kwargs, held_by(fn))
    if "jax" in found and "torch" not in found:
        from .jax import capture as capture_jax

        return Outcome(capture_jax(fn, args, kwargs))
    if "numpy" in found and "torch" not in found:
        from .numpy_arrays import capture as capture_numpy

        value, captured = capture_numpy(fn, args, kwargs)
        return Outcome(captured, True, value)
    if loaded("torch") is not None:
        from .torch.watch import capture as capture_torch

        value, captured = capture_torch(fn, args, kwargs, beside=_kernels)
        return Outcome(captured, True, value)
    return Outcome(Captured("", reason="no array among its arguments or in its closure"))


class OwnCall(NamedTuple):
    """leave: ends the watch, for what the test does now is timed. under_test: the work of the kernel under test, by the name of
    the test's function: its reference, its inputs and its checks run there too."""

    leave: Callable[[], None]
    under_test: Callable[[str], Captured]


@contextmanager
def own_call() -> Iterator[OwnCall]:
    """Watch a test's own call while the block runs."""
    from .torch.watch import Watch

    with Watch(own=True) as watch, _kernels(watch):
        yield OwnCall(lambda: watch.leave(TIMED), lambda name: under_test(name, watch.seen, watch.problem))


def _kernels(watch: Any) -> AbstractContextManager[object]:
    from .triton import watching

    return watching(watch.region, watch.seen, lambda: not watch.problem)
