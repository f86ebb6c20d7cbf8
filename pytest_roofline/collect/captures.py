"""The work of one call in this process: torch's operations and Triton's launches, watched once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from ..timing.arrays import loaded
from ..work.capture.record import Captured

#: What a call without torch is seen by.
UNSEEN = "no array library whose calls are watched here"


def captured(fn: Callable[..., Any], *args: Any, launches: bool = True) -> Captured:
    """Call ``fn`` once and say what it did; an error of its own is the reason why that is not known.

    launches: whether Triton may launch kernels in it; on the meta device nothing does, though torch imports Triton there.
    """
    if loaded("torch") is None:
        return Captured("", reason=UNSEEN)
    from ..work.capture.torch_watch import Watch
    from ..work.capture.triton_launches import watching

    watch = Watch()
    try:
        with watch, watching(watch.region, watch.seen) if launches else nullcontext():
            value = fn(*args)
    except Exception as error:  # the user's call, on inputs that it was not made for
        return Captured("torch", reason=f"it could not be watched: {said(error)}")
    return watch.finish(value)


def said(error: BaseException) -> str:
    """An exception in one line."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"[:200]
