"""Watching a call of torch once: what it computed, and which memory it touched.

Two modes of torch's own: functions that torch takes apart before it runs them (attention with its mask, RMSNorm, cross-entropy,
linear layers) are recorded as they were called, everything else where it is dispatched, also in backward. Imports torch, so
it is imported only where the user's code already did.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from time import perf_counter
from types import FrameType, TracebackType
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode, _pop_mode, _push_mode
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import TorchDispatchMode

from roofline_engine.units import quantity

from ...timing.devices import loaded
from ..combine import distinct, total
from ..restore import as_before, replaced
from ..trace import META, Captured, Region, Seen
from .models import Call
from .ops import CHECKS, COMPOSITES, FUSED, Composite
from .trace import (
    SCHEMAS,
    Decomposed,
    Schema,
    Storages,
    engine_work,
    foreign,
    held_in,
    merged,
    schema,
    seen,
    tensors_of,
    why_not,
)

FOR_BACKWARD = "{} that it keeps beside its result, such as for a backward pass, count as written"
STAYS = "{} that it keeps beside its result count as written: where it keeps more at each call, a call does more each time"
#: Seconds that recording may take of one call, beside the call itself.
BUDGET_S = 10.0


def capture(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    budget_s: float = BUDGET_S,
    beside: Callable[[Watch], AbstractContextManager[object]] = nullcontext,
) -> tuple[Any, Captured]:
    """Call ``fn`` once and say what it did. The random generators stand where they stood before it afterwards.

    beside: watches what torch does not see, and adds it to ``seen``.
    """
    watch = Watch(budget_s=budget_s)
    with as_before(fn, args, kwargs or {}), told_of_threads(watch.give_up), watch, beside(watch):
        value = fn(*args, **(kwargs or {}))
    return value, watch.finish(value)


class _Given(NamedTuple):
    values: Mapping[str, Any]
    reads: Sequence[Any]
    regions: dict[int, Region]


class Watch:
    """Records what runs under it in this thread and in the backward passes that it starts.

    An error of ours never reaches the call: it ends the recording, and ``finish`` gives it as the reason.

    own: it is a test's own call, of which nothing may come out differently. So the watch steps aside where torch would do
    something else under it, and does not look at what tensors hold, which would allocate and wait for the device.
    """

    def __init__(self, *, budget_s: float = BUDGET_S, own: bool = False) -> None:
        self.seen: list[Seen] = []
        self.problem = ""
        self._storages = Storages()
        self._budget_s, self._spent_s = budget_s, 0.0
        self._inside = 0  # of a function that is recorded as a whole, or of a check
        self._steps: list[str] = []  # the operations inside of it
        self._steps_only = False
        self._meta = False
        self._compiled = False
        self._checks: set[int] = set()  # storages of the results of a test's checks
        self._decomposed: list[Decomposed] = []
        self._base: FrameType | None = None
        self._own, self._around = own, ExitStack()
        self._functions, self._dispatch = _Functions(self), _Dispatch(self)

    def __enter__(self) -> Watch:
        self._base = sys._getframe(1)
        if self._own and others():
            self.problem = OTHERS
            return self
        self._around.enter_context(untraced(self.leave))
        if self._own:
            self._around.enter_context(unhindered(self.leave, self._aside))
        else:
            self._around.enter_context(uncompiled(self.leave))
        self._put_on()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._base = None
        self._take_off()
        self._around.close()

    def _put_on(self) -> None:
        self._functions.__enter__()
        self._dispatch.__enter__()

    def _take_off(self) -> None:
        take_off_dispatch(self._dispatch)
        take_off_function(self._functions)

    def give_up(self, why: str) -> None:
        """End the recording; the call goes on."""
        self.problem = self.problem or why

    def leave(self, why: str) -> None:
        """End the recording and the watch."""
        self.give_up(why)
        self._take_off()
        self._around.close()

    def _aside(self, call: Callable[[], Any]) -> Any:
        """A call without the watch."""
        if self.problem or self._inside:
            return call()
        if not alone(self._functions, self._dispatch):  # it could not be put back where it was
            self.leave(OTHERS)
            return call()
        self._take_off()
        try:
            return call()
        finally:
            self._put_on()

    def region(self, tensor: Any) -> Region:
        """What a tensor covers, for who launches kernels on it himself."""
        return self._storages.region(tensor)

    def finish(self, value: Any = None) -> Captured:
        """What was seen, as one amount of work. value: what the call returned, alive while this is decided."""
        if not self.problem:
            try:
                operations = merged(self.seen, self._decomposed)
                kept = self._storages.kept()
                notes, stays = self._beside(value, kept)
                done = total("torch", operations, made=self._storages.made, kept=kept, notes=notes)
                done = done._replace(sure=done.sure and not stays)
                return done._replace(launches=None) if self._compiled else done
            except Exception as error:
                self._failed(error)
        return Captured("torch", reason=self.problem, operations=len(self.seen))

    def _beside(self, value: Any, kept: set[int]) -> tuple[list[str], bool]:
        """What a reader has to know of the whole, and whether the call leaves something for the next one."""
        notes, stays = [], False
        results = held_in(value)
        returned = {self._storages.number(tensor) for tensor in results}
        beside = [region for item in self.seen for region in item.writes if region.storage in kept - returned]
        if value is not None and beside:
            stays = not any(tensor.requires_grad for tensor in results)
            nbytes = quantity(distinct(beside), "B")
            notes.append(STAYS.format(nbytes) if stays else FOR_BACKWARD.format(nbytes))
        if self._compiled:
            notes.append("compiled: watched as the operations it is compiled from, so its launches are not known")
        if self._meta:
            notes.append(META)
        return notes, stays

    # What the modes call.

    def function(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._inside or self.problem:
            return func(*args, **kwargs)
        try:
            composite = COMPOSITES.get(func)
        except TypeError:  # what cannot be hashed is none of them
            composite = None
        if composite is None:
            return self._checked(func, args, kwargs) if _name(func) in CHECKS else func(*args, **kwargs)
        given = self._safely(self._given, composite, args, kwargs)
        if given is None or self._in_a_check():
            return func(*args, **kwargs)
        first, self._steps = torch._C._autograd._get_sequence_nr(), []
        self._inside += 1
        self._steps_only = True
        try:
            out = func(*args, **kwargs)
        finally:
            self._inside -= 1
            self._steps_only = False
        self._safely(self._composite, composite, given, out, first)
        return out

    def dispatched(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        known = None if self.problem else SCHEMAS.get(func) or self._safely(schema, func)
        if known is not None and known.composite:
            with self._dispatch:
                return func.decompose(*args, **kwargs)
        out = func(*args, **kwargs)
        if known is not None and not known.view:  # a view's memory is met, or made, with what is done to it
            self._safely(self._operation, known, args, kwargs, out)
        return out

    def _safely(self, step: Callable[..., Any], *args: Any) -> Any:
        """A step of the recording, on the clock of its budget; an error in it ends the recording."""
        start = perf_counter()
        try:
            with _NoSubclasses():  # a class of tensors is not told of what we ask its tensors
                return step(*args)
        except Exception as error:
            self._failed(error)
        finally:
            self._spent_s += perf_counter() - start
            if self._spent_s > self._budget_s and not self.problem:
                self.problem = f"the capture took more than its {self._budget_s:g} s, after {len(self.seen)} operations"
        return None

    def _failed(self, error: Exception) -> None:
        text = str(error).strip().splitlines() or [""]
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        self.problem = self.problem or f"the capture failed: {kind}{text[0]}"[:200]

    def _checked(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A comparison such as allclose: neither its operations are recorded nor what is done with its result."""
        self._inside += 1
        try:
            out = func(*args, **kwargs)
        finally:
            self._inside -= 1
        if isinstance(out, torch.Tensor):
            self._safely(lambda: self._checks.add(self._storages.number(out, made=True)))
        return out

    def _in_a_check(self) -> bool:
        """Whether torch.testing is calling; notes compiled functions on the way."""
        frame: FrameType | None = sys._getframe(2)
        base = self._base
        while frame is not None and frame is not base:
            code = frame.f_code
            if code.co_filename == _COMPARISON:
                return True
            if code.co_name == "compile_wrapper":  # of torch._dynamo
                self._compiled = True
            frame = frame.f_back
        return False

    def _operation(self, known: Schema, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        if self._steps_only:
            # What the function was given has been met, so what is met now it has made.
            new = self._storages.met
            for tensor in (out,) if type(out) is torch.Tensor else tensors_of(out):
                self._storages.number(tensor, True)
            if not known.free and (known.changed or self._storages.met > new):
                self._steps.append(known.name)
            return
        results = tensors_of(out)
        if known.free or self._inside:
            # The arguments first: what is met as a result alone, the call has made.
            self._meet(known.label, tensors_of(args) + (tensors_of(tuple(kwargs.values())) if kwargs else []))
            self._meet(known.label, results, made=True)
            return
        values = dict(zip(known.names, args))
        values.update(kwargs)
        given = []
        for name, value in values.items():
            kind = type(value)
            if kind is torch.Tensor:
                given.append((name, value))
            elif kind not in _SCALARS:
                given.extend((name, tensor) for tensor in tensors_of(value))
        regions: dict[int, Region] = {}
        self._regions(known.label, [tensor for _, tensor in given], regions)
        before = {region.storage for region in regions.values()}
        self._regions(known.label, results, regions, made=True)
        fresh = [tensor for tensor in results if regions[id(tensor)].storage not in before]
        changed = [tensor for name, tensor in given if name in known.changed] if known.changed else []
        if not (changed or fresh):  # a view, or something for the host
            return
        if (before and before <= self._checks) or self._in_a_check():
            self._checks.update(regions[id(tensor)].storage for tensor in results)
            return
        writes = changed + fresh
        self._meta = self._meta or writes[0].is_meta
        if not any(regions[id(tensor)].nbytes for tensor in writes):
            return
        reads = [] if known.blank else [tensor for name, tensor in given if name not in known.unread]
        if self._decomposed:
            self._note_backward()
        call = Call(known.name, values, reads, writes, regions, looks=not self._own)
        found = known.model(call)
        for model in found if isinstance(found, list) else (found,):
            self.seen.append(seen(known.label, call, model))

    def _meet(self, label: str, tensors: Sequence[Any], *, made: bool = False) -> None:
        """Tensors of which nothing but their storages counts."""
        try:
            for tensor in tensors:
                self._storages.number(tensor, made)
        except (RuntimeError, NotImplementedError):
            raise ValueError(f"{label} on {why_not(tensors) or 'a tensor without a storage'}") from None

    def _regions(self, label: str, tensors: Sequence[Any], regions: dict[int, Region], *, made: bool = False) -> None:
        """What the tensors cover, into ``regions``."""
        try:
            for tensor in tensors:
                if type(tensor) is not torch.Tensor and foreign(tensor):
                    break
                regions[id(tensor)] = self._storages.region(tensor, made)
            else:
                return
        except (RuntimeError, NotImplementedError):
            if not why_not(tensors):
                raise
        raise ValueError(f"{label} on {why_not(tensors)}")

    def _given(self, composite: Composite, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Given | None:
        """The arguments of a function that is recorded as a whole; None where it is not."""
        values = composite.values(args, kwargs)
        if values is None:
            return None
        reads = tensors_of(list(values.values()))
        regions: dict[int, Region] = {}
        self._regions(composite.name, reads, regions)
        return _Given(values, reads, regions)

    def _composite(self, composite: Composite, given: _Given, out: Any, first: int) -> None:
        (values, reads, regions), writes = given, [out] if type(out) is torch.Tensor else tensors_of(out)
        self._regions(composite.name, writes, regions, made=True)
        for region in regions.values():
            if not region.nbytes:
                return
        self._meta = self._meta or writes[0].is_meta
        call = Call(composite.name, values, reads, writes, regions, looks=not self._own)
        self.seen.append(seen(composite.name, call, composite.model(call), len(self._steps)))
        if composite.backward is not None and not any(step.startswith(FUSED) for step in self._steps):
            work = engine_work(composite.backward(call))
            self._decomposed.append(Decomposed(first, torch._C._autograd._get_sequence_nr(), work, []))

    def _note_backward(self) -> None:
        """Note that the next operation belongs to the backward pass of attention that ran as several operations."""
        node = torch._C._current_autograd_node()
        if node is not None:
            at = node._sequence_nr()
            for item in self._decomposed:
                if item.first <= at < item.last:
                    item.steps.append(len(self.seen))


class _Functions(TorchFunctionMode):  # type: ignore[misc]  # the classes of torch are not typed to who lacks it
    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._watch.function(func, args, kwargs or {})


class _Dispatch(TorchDispatchMode):  # type: ignore[misc]
    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """torch would import its compiler for this, and go through it at each operation. Nothing is compiled under a watch."""
        return False

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._watch.dispatched(func, args, kwargs or {})


_NoSubclasses = torch._C.DisableTorchFunctionSubclass
_SCALARS = (int, float, bool, type(None), str, torch.dtype, torch.device, torch.layout, torch.memory_format)
_COMPARISON = str(sys.modules["torch.testing._comparison"].__file__)


def _name(func: Any) -> str:
    return getattr(func, "__name__", "")


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
