"""A context of ours around a test of somebody else's, which it must not fail."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")


class Guarded(Generic[T]):
    """``make()`` as a context; where that, its start or its end raises of itself, ``tell`` hears of it and the block goes on.

    instead: what the block gets where there is no context. An exception of the block leaves as it is.
    """

    def __init__(self, make: Callable[[], AbstractContextManager[T]], instead: T, tell: Callable[[Exception], object]) -> None:
        self._make, self._instead, self._tell = make, instead, tell
        self._context: AbstractContextManager[T] | None = None

    def __enter__(self) -> T:
        try:
            context = self._make()
            value = context.__enter__()
        except Exception as error:
            self._tell(error)
            return self._instead
        self._context = context
        return value

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._context is None:
            return
        try:
            self._context.__exit__(kind, error, trace)
        except Exception as fault:
            if fault is not error:
                self._tell(fault)
