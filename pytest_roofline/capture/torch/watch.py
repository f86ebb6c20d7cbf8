"""Watching a call of torch once: what it computed, and which memory it touched.

Two modes of torch: functions that torch takes apart before it runs them (attention with its mask, RMSNorm, cross-entropy,
linear layers) are recorded as they were called, everything else where it is dispatched, also in backward.

Imports torch, so it is imported only after the user's code imported torch.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from time import perf_counter
from types import FrameType, TracebackType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, _pop_mode, _push_mode
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import TorchDispatchMode

from roofline_engine.calls.aten import FUSED, copy_elements
from roofline_engine.calls.call import engine_work
from roofline_engine.fields import Note, note
from roofline_engine.units import quantity

from ...timing.devices import loaded
from ...values import is_kind
from ..restore import replaced, restored_generators, unwrap_partial
from ..trace import META, CapturedWork, OpTrace, Region, distinct, total
from ..unseen import GROWS, Input, add_signs, arrays_in, find_growth, find_inputs, find_native, find_signs, touched_storages
from .ops import CHECKS, COMPOSITES, Call, Composite
from .trace import (
    SCHEMAS,
    SPARSE_PRODUCTS,
    DecomposedAttention,
    Schema,
    Storages,
    has_own_dispatch,
    merge_backward,
    read_schema,
    result_tensors,
    sparse_parts,
    sparse_product,
    tensors_of,
    trace_op,
    unsupported,
)

FOR_BACKWARD = "{} kept in addition to its result, such as for a backward pass, count as written"
ACCUMULATED = "{} kept in addition to its result count as written: if it keeps more at each call, each call does more work"
COMPILED_NOTE = note("compiled: recorded as the operations it is compiled from, so its launches are unknown")
COMPILED = "it runs code of torch.compile, which does not compile under a watch"
TRACED = "it traces with torch.jit, which does not run under a watch"
OTHER_MODES = "other modes of torch are active"
THREADS = "it starts threads, whose work is not recorded"
#: Seconds that recording may add to one call.
BUDGET_S = 10.0


def capture(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    budget_s: float = BUDGET_S,
    also_watch: Callable[[Watch], AbstractContextManager[object]] = nullcontext,
) -> tuple[Any, CapturedWork]:
    """Call ``fn`` once; return its value and its work. Random generators have their state of before afterwards.

    also_watch: records what torch does not see into ``traces``.
    """
    watch, (fn, args, kwargs) = Watch(budget_s=budget_s), unwrap_partial(fn, args, kwargs or {})
    inputs = find_inputs(fn, args, kwargs, _is_input)
    watch.number_inputs(inputs)
    with restored_generators(fn, args, kwargs), _on_threads(watch.give_up), watch, also_watch(watch):
        value = fn(*args, **kwargs)
    after = find_inputs(fn, args, kwargs, _is_input)
    signs = watch.find_signs(value, inputs, after, find_native(fn))
    growing = find_growth(inputs, after, watch.touched, watch.number)
    if growing:
        watch.give_up(GROWS.format(growing))
    return value, add_signs(watch.finish(value), signs)


def _is_input(value: Any) -> bool:
    if not is_kind(value, torch.Tensor):
        return False
    with _NoSubclasses():
        return not (has_own_dispatch(value) or value.is_nested or not value.numel())


def _is_onto_itself(target: Any, source: Any) -> bool:
    """Return whether a copy is of memory to the same memory."""
    try:
        return bool(target.dtype == source.dtype and target.is_set_to(source) and target.is_neg() == source.is_neg())
    except (RuntimeError, NotImplementedError):  # another layout
        return False


class Watch:
    """Records what runs under it in this thread and in the backward passes that it starts.

    An error in the recording never reaches the call: it ends the recording, and ``finish`` gives it as the reason.

    own: the call is a test's own call, whose outcome must not change. So the watch steps aside where torch would behave
    differently under it, and does not read the values of tensors, which would allocate and wait for the device.
    """

    def __init__(self, *, budget_s: float = BUDGET_S, own: bool = False) -> None:
        self.traces: list[OpTrace] = []
        self.problem = ""
        self._storages = Storages()
        self.region = self._storages.region  # what a tensor covers, for a kernel that does not run through torch
        self._budget_s, self._spent_s = budget_s, 0.0
        self.touched: set[int] = set()  # storages that recorded operations used
        self._empty: set[int] = set()  # storages that the call made without contents
        self._depth = 0  # inside functions that are recorded as a whole, or inside checks
        self._steps: list[str] = []  # the operations inside a function that is recorded as a whole
        self._steps_only = False
        self._meta = False
        self._compiled = False
        self._checks: set[int] = set()  # storages of the results of a test's checks
        self._decomposed: list[DecomposedAttention] = []
        self._base: FrameType | None = None
        self._own, self._around = own, ExitStack()
        self._functions, self._dispatch = _Functions(self), _Dispatch(self)

    def __enter__(self) -> Watch:
        self._base = sys._getframe(1)
        if self._own and _has_other_modes():
            self.problem = OTHER_MODES
            return self
        for name in _TRACERS:
            self._around.enter_context(replaced(torch.jit, name, _after(self.leave, TRACED)))
        if self._own:
            _step_aside(self._around, self.leave, self._unwatched)
        else:
            _stay_uncompiled(self._around, self.leave)
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
        _remove_dispatch_mode(self._dispatch)
        _remove_function_mode(self._functions)

    def give_up(self, reason: str) -> None:
        """End the recording; the call goes on."""
        self.problem = self.problem or reason

    def leave(self, reason: str) -> None:
        """End the recording and remove the modes."""
        self.give_up(reason)
        self._take_off()
        self._around.close()

    def _unwatched(self, call: Callable[[], Any]) -> Any:
        """Call without the modes."""
        if self.problem or self._depth:
            return call()
        if not _are_last(self._functions, self._dispatch):  # they could not be put back in their place
            self.leave(OTHER_MODES)
            return call()
        self._take_off()
        try:
            return call()
        finally:
            self._put_on()

    def finish(self, value: Any = None) -> CapturedWork:
        """Return the work of the call; value: what the call returned, which must be alive until then."""
        if not self.problem:
            try:
                traces = merge_backward(self.traces, self._decomposed)
                survivors = self._storages.survivors()
                notes, accumulates = self._remarks(value, survivors)
                captured = total("torch", traces, allocations=self._storages.allocations, survivors=survivors, notes=notes)
                captured = captured._replace(certain=captured.certain and not accumulates)
                return captured._replace(launches=None) if self._compiled else captured
            except Exception as error:
                self._fail(error)
        return CapturedWork("torch", reason=self.problem, operations=len(self.traces))

    def _remarks(self, value: Any, survivors: set[int]) -> tuple[list[Note], bool]:
        """Return notes on the whole call, and whether the call leaves something for the next one."""
        notes, accumulates = [], False
        results = result_tensors(value)
        returned = {self._storages.number(tensor) for tensor in results}
        extra = [region for trace in self.traces for region in trace.writes if region.storage in survivors - returned]
        if value is not None and extra:
            accumulates = not any(tensor.requires_grad for tensor in results)
            text = ACCUMULATED if accumulates else FOR_BACKWARD
            notes.append(note(text.format(quantity(distinct(extra), "B"))))
        if self._compiled:
            notes.append(COMPILED_NOTE)
        if self._meta:
            notes.append(META)
        return notes, accumulates

    def number_inputs(self, inputs: Sequence[Input]) -> None:
        for item in inputs:
            for _, tensor in item.arrays:
                self.number(tensor)

    def number(self, tensor: Any) -> int:
        """Return the number of the allocation of a tensor, of a sparse matrix that of its values; -1 where it has none."""
        try:
            with _NoSubclasses():
                return self._storages.number((*sparse_parts(tensor), tensor)[0])
        except (RuntimeError, NotImplementedError):  # another layout
            return -1

    def find_signs(self, value: Any, inputs: Sequence[Input], after: Sequence[Input], native: str) -> list[Note]:
        """Return why the recorded operations are a part of the call alone."""
        if self.problem:
            return []
        given = [tensor for item in inputs for _, tensor in item.arrays]
        if any(tensor.grad_fn is not None for tensor in given):  # a graph, and the leaves whose gradients it may give
            self.touched.update(self.number(tensor) for tensor in given if tensor.requires_grad)
        returned = {self.number(tensor) for _, tensor in arrays_in(value, _is_input)}
        self.touched |= touched_storages(self.traces) | returned
        written: set[int] = set()
        unwritten = False
        for trace in self.traces:
            unwritten = unwritten or any(region.storage in self._empty - written for region in trace.reads)
            written.update(region.storage for region in (*trace.writes, *trace.either))
        unwritten = unwritten or bool(returned & self._empty - written)
        return find_signs(inputs, after, self.touched, self.number, native=native, changed=False, unwritten=unwritten)

    # Called by the modes.

    def function(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._depth or self.problem:
            return func(*args, **kwargs)
        try:
            composite = COMPOSITES.get(func)
        except TypeError:  # not hashable, so not one of them
            composite = None
        if composite is None:
            is_check = getattr(func, "__name__", "") in CHECKS
            return self._run_check(func, args, kwargs) if is_check else func(*args, **kwargs)
        call = self._safely(self._composite_call, composite, args, kwargs)
        if call is None or self._is_in_check():
            return func(*args, **kwargs)
        first, self._steps = torch._C._autograd._get_sequence_nr(), []
        self._depth += 1
        self._steps_only = True
        try:
            out = func(*args, **kwargs)
        finally:
            self._depth -= 1
            self._steps_only = False
        self._safely(self._record_composite, composite, call, out, first)
        return out

    def dispatched(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        schema = None if self.problem else SCHEMAS.get(func) or self._safely(read_schema, func)
        if schema is not None and schema.is_composite:
            with self._dispatch:
                return func.decompose(*args, **kwargs)
        out = func(*args, **kwargs)
        if schema is not None and not schema.is_view:  # the memory of a view is numbered with the next operation on it
            self._safely(self._record, schema, args, kwargs, out)
        return out

    def _safely(self, step: Callable[..., Any], *args: Any) -> Any:
        """Run a step of the recording within its budget; an error in it ends the recording."""
        start = perf_counter()
        try:
            with _NoSubclasses():  # subclasses of tensors do not see what the recording asks them
                return step(*args)
        except Exception as error:
            self._fail(error)
        finally:
            self._spent_s += perf_counter() - start
            if self._spent_s > self._budget_s and not self.problem:
                self.problem = f"the capture took more than its {self._budget_s:g} s, after {len(self.traces)} operations"
        return None

    def _fail(self, error: Exception) -> None:
        lines = str(error).strip().splitlines() or [""]
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        self.problem = self.problem or f"the capture failed: {kind}{lines[0]}"[:200]

    def _run_check(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a comparison such as allclose: neither it nor what is done with its result is recorded."""
        self._depth += 1
        try:
            out = func(*args, **kwargs)
        finally:
            self._depth -= 1
        if isinstance(out, torch.Tensor):
            self._safely(lambda: self._checks.add(self._storages.number(out, is_new=True)))
        return out

    def _is_in_check(self) -> bool:
        """Return whether torch.testing is calling; on the way notice compiled functions."""
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

    def _record(self, schema: Schema, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        if self._steps_only:
            # The inputs of the function have numbers, so a storage without one was made by it.
            before = len(self._storages)
            for tensor in (out,) if type(out) is torch.Tensor else tensors_of(out):
                self._storages.number(tensor, True)
            if not schema.is_free and (schema.written or len(self._storages) > before):
                self._steps.append(schema.name)
            return
        if schema.name == "copy_" and _is_onto_itself(*args[:2]):
            return  # torch moves nothing
        results = tensors_of(out)
        if schema.is_free or self._depth:
            # The arguments first: a storage that only a result has, the call has made.
            self._number(schema.label, tensors_of(args) + (tensors_of(tuple(kwargs.values())) if kwargs else []))
            self._number(schema.label, results, is_new=True)
            if schema.name in _EMPTY and not self._depth:
                self._empty.update(self._storages.number(tensor) for tensor in results if tensor.numel())
            return
        values = dict(zip(schema.arguments, args))
        values.update(kwargs)
        given = []
        for name, value in values.items():
            kind = type(value)
            if kind is torch.Tensor:
                given.append((name, value))
            elif kind not in _SCALARS:
                given.extend((name, tensor) for tensor in tensors_of(value))
        regions: dict[int, Region] = {}
        operands = [values.get(name) for name in SPARSE_PRODUCTS.get(schema.name, ())[:2]]
        stored = [part for operand in operands for part in sparse_parts(operand)]
        if stored:
            added = values.get(SPARSE_PRODUCTS[schema.name][2]) if values.get("beta", 1) else None
            dense = [operand for operand in (*operands, added) if operand is not None and operand.layout is torch.strided]
            given = [("", tensor) for tensor in (*stored, *dense)]
        self._regions(schema.label, [tensor for _, tensor in given], regions)
        inputs = {region.storage for region in regions.values()}
        if not schema.ignores_values:
            self.touched |= inputs
        self._regions(schema.label, results, regions, is_new=True)
        fresh = [tensor for tensor in results if regions[id(tensor)].storage not in inputs]
        written = [tensor for name, tensor in given if name in schema.written] if schema.written else []
        if not (written or fresh):  # a view, or a value for the host
            return
        if (inputs and inputs <= self._checks) or self._is_in_check():
            self._checks.update(regions[id(tensor)].storage for tensor in results)
            return
        writes = written + fresh
        self._meta = self._meta or writes[0].is_meta
        if not any(regions[id(tensor)].nbytes for tensor in writes):
            return
        reads = [] if schema.ignores_values else [tensor for name, tensor in given if name not in schema.unread]
        if self._decomposed:
            self._note_backward()
        call = Call(schema.name, values, reads, writes, regions, may_read=not self._own)
        built = sparse_product(call, operands, stored) if stored else schema.build(call)
        for spec in built if isinstance(built, list) else (built,):
            trace = trace_op(schema.label, call, spec)
            if trace.work is None and not all(regions[id(tensor)].nbytes for tensor in reads):
                trace = trace_op(schema.label, call, copy_elements(call))  # a product or a sum over no elements
            self.traces.append(trace)

    def _number(self, label: str, tensors: Sequence[Any], *, is_new: bool = False) -> None:
        """Number the storages of tensors whose regions are not needed."""
        try:
            for tensor in tensors:
                self._storages.number(tensor, is_new)
        except RuntimeError:
            raise ValueError(f"{label} on {unsupported(tensors) or 'a tensor without a storage'}") from None

    def _regions(self, label: str, tensors: Sequence[Any], regions: dict[int, Region], *, is_new: bool = False) -> None:
        """Put what the tensors cover into ``regions``."""
        try:
            for tensor in tensors:
                if type(tensor) is not torch.Tensor and has_own_dispatch(tensor):
                    raise NotImplementedError
                regions[id(tensor)] = self._storages.region(tensor, is_new)
        except RuntimeError:
            if not unsupported(tensors):
                raise
            raise ValueError(f"{label} on {unsupported(tensors)}") from None

    def _composite_call(self, composite: Composite, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        """Return a function that is recorded as a whole with its inputs; None where it is not."""
        values = composite.bind(args, kwargs)
        if values is None:
            return None
        call = Call(composite.name, values, tensors_of(list(values.values())), [], {}, may_read=not self._own)
        self._regions(composite.name, call.reads, call.regions)
        return call

    def _record_composite(self, composite: Composite, call: Call, out: Any, first: int) -> None:
        call.writes = [out] if type(out) is torch.Tensor else tensors_of(out)
        self._regions(composite.name, call.writes, call.regions, is_new=True)
        if not all(region.nbytes for region in call.regions.values()):
            return
        self._meta = self._meta or call.writes[0].is_meta
        self.traces.append(trace_op(composite.name, call, composite.build(call), len(self._steps)))
        if composite.build_backward is not None and not any(step.startswith(FUSED) for step in self._steps):
            backward = engine_work(composite.build_backward(call))
            self._decomposed.append(DecomposedAttention(first, torch._C._autograd._get_sequence_nr(), backward, []))

    def _note_backward(self) -> None:
        """Note that the next operation belongs to the backward pass of attention that ran as several operations."""
        node = torch._C._current_autograd_node()
        if node is not None:
            at = node._sequence_nr()
            for attention in self._decomposed:
                if attention.first <= at < attention.last:
                    attention.steps.append(len(self.traces))


class _Functions(TorchFunctionMode):  # type: ignore[misc]  # torch may be missing where types are checked
    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._watch.function(func, args, kwargs or {})


class _Dispatch(TorchDispatchMode):  # type: ignore[misc]
    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: torch would import its compiler and run it for each operation, and nothing compiles under a watch."""
        return False

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._watch.dispatched(func, args, kwargs or {})


#: Operations that make memory without contents.
_EMPTY = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted")
_NoSubclasses = torch._C.DisableTorchFunctionSubclass
_SCALARS = (int, float, bool, type(None), str, torch.dtype, torch.device, torch.layout, torch.memory_format)
_COMPARISON = str(sys.modules["torch.testing._comparison"].__file__)


# Where torch behaves differently under modes, the watch ends or steps aside.

#: The ways into torch._C's tracer, whose check reads values where modes see none; the last is that of torch.onnx.
_TRACERS = ("trace", "trace_module", "_get_trace_graph")
#: Modules of torch that choose between kernels by whether a function mode is active (torch/nn/modules/activation.py and
#: transformer.py, "why_not_sparsity_fast_path").
_FAST_PATHS = ("MultiheadAttention", "TransformerEncoder", "TransformerEncoderLayer")


def _after(notify: Callable[[str], None], reason: str) -> Callable[..., Any]:
    """Return a wrapper for ``replaced`` that calls notify(reason), then the original."""

    def call(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        notify(reason)
        return original(*args, **kwargs)

    return call


def _step_aside(stack: ExitStack, leave: Callable[[str], None], unwatched: Callable[[Callable[[], Any]], Any]) -> None:
    """Until ``stack`` ends, call leave(reason) before torch compiles, and unwatched(call) where torch chooses kernels by modes.

    A compiled function asks for its stance at each call (torch/_dynamo/eval_frame.py); no other place shows a function that was
    compiled earlier.
    """

    def called(original: Callable[..., Any], callback: Any) -> Any:
        if callback:  # None or False: a function that is not to be compiled
            leave(COMPILED)
        return original(callback)

    def fast(module: Any, *args: Any, **kwargs: Any) -> Any:
        return unwatched(lambda: torch.nn.Module.__call__(module, *args, **kwargs))

    stack.enter_context(replaced(torch, "compile", _after(leave, COMPILED)))
    compiler = loaded("torch._dynamo.eval_frame")
    if compiler is not None:
        stack.enter_context(replaced(compiler, "_callback_from_stance", called))
    for name in _FAST_PATHS:
        kind = getattr(torch.nn, name)
        if "__call__" not in vars(kind):  # torch.jit reads forward itself
            kind.__call__ = fast
            stack.callback(delattr, kind, "__call__")


def _stay_uncompiled(stack: ExitStack, leave: Callable[[str], None]) -> None:
    """Until ``stack`` ends, run compiled functions as the code they are compiled from.

    A function that meets a watch before it is compiled would stay uncompiled for good. Where the compiler is not loaded,
    nothing has been compiled, and the watch ends before the call compiles.
    """
    if loaded("torch._dynamo") is None:
        stack.enter_context(replaced(torch, "compile", _after(leave, COMPILED)))
    elif hasattr(torch.compiler, "set_stance"):
        stance = torch.compiler.set_stance("force_eager")
        stack.callback(lambda: stance.__exit__(None, None, None))


@contextmanager
def _on_threads(notify: Callable[[str], None]) -> Iterator[None]:
    """While a call runs, call notify(reason) where it hands work to another thread."""
    started = _after(notify, THREADS)
    with replaced(threading.Thread, "start", started), replaced(ThreadPoolExecutor, "submit", started):
        yield


def _has_other_modes() -> bool:
    """Return whether other modes are active, except for that of a default device."""
    functions = [torch._C._get_function_stack_at(at) for at in range(torch._C._len_torch_function_stack())]
    return bool(torch._C._len_torch_dispatch_stack()) or any(type(mode) is not DeviceContext for mode in functions)


def _are_last(function: TorchFunctionMode, dispatch: TorchDispatchMode) -> bool:
    """Return whether these modes are the last that were put on, and no tracer is active."""
    functions, operations = torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()
    if not functions or operations != 1:
        return False
    return torch._C._get_function_stack_at(functions - 1) is function and torch._C._get_dispatch_stack_at(0) is dispatch


def _remove_function_mode(mode: TorchFunctionMode) -> None:
    """Remove a mode from its stack, wherever it is in the stack."""
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


def _remove_dispatch_mode(mode: TorchDispatchMode) -> None:
    """Remove a mode from its stack. Each mode remembers the state before it, which changes for the modes above."""
    stack = [torch._C._get_dispatch_stack_at(at) for at in range(torch._C._len_torch_dispatch_stack())]
    if not any(one is mode for one in stack):
        return
    above = []
    while stack.pop() is not mode:
        above.append(torch._C._pop_torch_dispatch_stack(None))
    if mode.old_dispatch_mode_flags:
        TorchDispatchMode.__exit__(mode, None, None, None)
    else:  # removed before, and put back by code that had saved the stack for a while
        torch._C._pop_torch_dispatch_stack(None)
    for one in reversed(above):
        for name in _FLAGS:
            flags = getattr(one, name, None)
            if flags:
                flags.pop()
        TorchDispatchMode.__enter__(one)
