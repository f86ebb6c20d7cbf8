"""What does not run under a mode of torch's: a trace of ``torch.jit``, whose check reads values where the modes see none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from .replaced import replaced

#: The ways into ``torch._C``'s tracer; the last is that of ``torch.onnx``.
_WAYS = ("trace", "trace_module", "_get_trace_graph")
REASON = "it traces with torch.jit, which does not run while it is watched"


@contextmanager
def untraced(watch: Any) -> Iterator[None]:
    """A trace made while the block runs is made as if nobody watched; ``watch`` then says so and nothing of its work."""

    def call(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        watch.problem = watch.problem or REASON
        with _disable_current_modes():
            return original(*args, **kwargs)

    with ExitStack() as stack:
        for name in _WAYS:
            stack.enter_context(replaced(torch.jit, name, call))
        yield
