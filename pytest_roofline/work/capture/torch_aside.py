"""When torch must not find a watch in its way: what it does then depends on whether modes are active.

Imports torch, so it is imported only where the user's code already did.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, _pop_mode, _push_mode
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import TorchDispatchMode

from ...timing.arrays import loaded
from .replaced import replaced

#: The ways into torch._C's tracer, whose check reads values where modes see none; the last is that of torch.onnx.
_TRACERS = ("trace", "trace_module", "_get_trace_graph")
#: Modules of torch that choose between kernels by whether a function mode is active (torch/nn/modules/activation.py and
#: transformer.py, "why_not_sparsity_fast_path").
_FAST_PATHS = ("MultiheadAttention", "TransformerEncoder", "TransformerEncoderLayer")
COMPILED = "it runs code of torch.compile, which does not compile under a watch"
TRACED = "it traces with torch.jit, which does not run while it is watched"
OTHERS = "other modes of torch are active"
THREADS = "it starts threads, and what they do is not seen"


def _telling(tell: Callable[[str], None], why: str) -> Callable[..., Any]:
    """For ``replaced``: tell(why), then the original."""

    def call(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        tell(why)
        return original(*args, **kwargs)

    return call


@contextmanager
def unhindered(leave: Callable[[str], None], aside: Callable[[Callable[[], Any]], Any]) -> Iterator[None]:
    """While the block runs a test: leave(why) before torch compiles, aside(call) around what chooses its kernels by modes.

    A compiled function asks for its stance at each call (torch/_dynamo/eval_frame.py), which is the only place to hear of one
    that was made before.
    """
    with ExitStack() as stack:
        compiler = loaded("torch._dynamo.eval_frame")

        def called(original: Callable[..., Any], callback: Any) -> Any:
            if callback:  # None or False: a function that shall not be compiled
                leave(COMPILED)
            return original(callback)

        def fast(module: Any, *args: Any, **kwargs: Any) -> Any:
            return aside(lambda: torch.nn.Module.__call__(module, *args, **kwargs))

        stack.enter_context(replaced(torch, "compile", _telling(leave, COMPILED)))
        if compiler is not None:
            stack.enter_context(replaced(compiler, "_callback_from_stance", called))
        for name in _FAST_PATHS:
            kind = getattr(torch.nn, name)
            if "__call__" not in vars(kind):  # forward itself is torch.jit's to read
                kind.__call__ = fast
                stack.callback(delattr, kind, "__call__")
        yield


@contextmanager
def uncompiled(leave: Callable[[str], None]) -> Iterator[None]:
    """While the block runs a call: compiled functions run as what they are compiled from.

    One that met a watch before it is compiled would be left uncompiled for good. Where the compiler is not loaded nothing has
    been compiled, and what the call compiles itself it does without the watch.
    """
    with ExitStack() as stack:
        if loaded("torch._dynamo") is None:
            stack.enter_context(replaced(torch, "compile", _telling(leave, COMPILED)))
        elif hasattr(torch.compiler, "set_stance"):
            stance = torch.compiler.set_stance("force_eager")
            stack.callback(lambda: stance.__exit__(None, None, None))
        yield


@contextmanager
def untraced(leave: Callable[[str], None]) -> Iterator[None]:
    """While the block runs a call: leave(why) before it traces."""
    with ExitStack() as stack:
        for name in _TRACERS:
            stack.enter_context(replaced(torch.jit, name, _telling(leave, TRACED)))
        yield


@contextmanager
def told_of_threads(tell: Callable[[str], None]) -> Iterator[None]:
    """While the block runs a call: tell(why) where it hands work to another thread."""
    started = _telling(tell, THREADS)
    with replaced(threading.Thread, "start", started), replaced(ThreadPoolExecutor, "submit", started):
        yield


def others() -> bool:
    """Whether modes of somebody else are active, but for the one of a default device."""
    functions = [torch._C._get_function_stack_at(at) for at in range(torch._C._len_torch_function_stack())]
    return bool(torch._C._len_torch_dispatch_stack()) or any(type(one) is not DeviceContext for one in functions)


def alone(function: TorchFunctionMode, dispatch: TorchDispatchMode) -> bool:
    """Whether these modes are the last that were put on, and no tracer is active."""
    functions, operations = torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()
    if not functions or operations != 1:
        return False
    return torch._C._get_function_stack_at(functions - 1) is function and torch._C._get_dispatch_stack_at(0) is dispatch


def take_off_function(mode: TorchFunctionMode) -> None:
    """Take a mode off its stack, wherever in it others have put it."""
    above: list[Any] = []
    while torch._C._len_torch_function_stack():
        top = _pop_mode()
        if top is mode:
            break
        above.append(top)
    for one in reversed(above):
        _push_mode(one)


_FLAGS = (
    "old_dispatch_mode_flags",
    "old_non_infra_dispatch_mode_flags",
    "old_without_ignore_compile_internals_dispatch_mode_flags",
)


def take_off_dispatch(mode: TorchDispatchMode) -> None:
    """The same; each mode remembers what was so before it was put on, which for those above it is another thing now."""
    stack = [torch._C._get_dispatch_stack_at(at) for at in range(torch._C._len_torch_dispatch_stack())]
    if not any(one is mode for one in stack):
        return
    above = []
    while stack.pop() is not mode:
        above.append(torch._C._pop_torch_dispatch_stack(None))
    if mode.old_dispatch_mode_flags:
        TorchDispatchMode.__exit__(mode, None, None, None)
    else:  # taken off before, and put back by who had saved the stack for a while
        torch._C._pop_torch_dispatch_stack(None)
    for one in reversed(above):
        for name in _FLAGS:
            flags = getattr(one, name, None)
            if flags:
                flags.pop()
        TorchDispatchMode.__enter__(one)
