"""A function of somebody else's that goes through ours for a while."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any


@contextmanager
def replaced(
    owner: Any, name: str, wrapper: Callable[..., Any], namespaces: tuple[MutableMapping[str, Any], ...] = ()
) -> Iterator[None]:
    """``owner.name(*args)`` is ``wrapper(original, *args)``, also under any name it has in ``namespaces``.

    Who has kept the replacement beyond the block calls the original through it. Nothing is replaced where ``owner`` has no
    such attribute of its own, and nothing put back where somebody has replaced ours since.
    """
    original = vars(owner).get(name)
    if original is None:
        yield
        return
    active = True

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        return wrapper(original, *args, **kwargs) if active else original(*args, **kwargs)

    bound = [(space, key) for space in namespaces for key, value in list(space.items()) if value is original]
    setattr(owner, name, call)
    for space, key in bound:
        space[key] = call
    try:
        yield
    finally:
        active = False
        if vars(owner).get(name) is call:
            setattr(owner, name, original)
        for space, key in bound:
            if space.get(key) is call:
                space[key] = original
