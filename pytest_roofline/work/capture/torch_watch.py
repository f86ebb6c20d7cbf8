"""Watching a call of torch once: what it computed, and which memory it touched.

Two modes of torch's own: functions that torch takes apart before it runs them (attention with its mask, RMSNorm, cross-entropy,
linear layers) are recorded as they were called, everything else where it is dispatched, also in backward. Imports torch, so
it is imported only where the user's code already did.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from time import perf_counter
from types import FrameType, TracebackType
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from roofline_engine.models import Work, work

from .record import Captured, Region, Seen
from .torch_composites import COMPOSITES, Composite
from .torch_ops import CHECKS, FREE, WRITE_ONLY, Call, Model, attention_backward, models
from .torch_storage import Storages, refused
from .total import distinct, total

#: Seconds that recording may take of one call, beside the call itself.
BUDGET_S = 10.0


class Watch:
    """Records what runs under it in this thread and in the backward passes that it starts.

    An error of ours never reaches the call: it ends the recording, and ``finish`` gives it as the reason.
    """

    def __init__(self, *, budget_s: float = BUDGET_S) -> None:
        self.seen: list[Seen] = []
        self.problem = ""
        self._storages = Storages()
        self._budget_s, self._spent_s = budget_s, 0.0
        self._inside = 0  # of a function that is recorded as a whole
        self._launches = 0  # of the operations inside of it
        self._checks: set[int] = set()  # results of a test's checks
        self._decomposed: list[_Decomposed] = []
        self._base: FrameType | None = None
        self._functions, self._dispatch = _Functions(self), _Dispatch(self)

    def __enter__(self) -> Watch:
        self._base = sys._getframe(1)
        self._functions.__enter__()
        self._dispatch.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._base = None
        self._dispatch.__exit__(kind, error, traceback)
        self._functions.__exit__(kind, error, traceback)

    def region(self, tensor: Any) -> Region:
        """What a tensor covers, for who launches kernels on it himself."""
        return self._storages.region(tensor)

    def finish(self, value: Any = None) -> Captured:
        """What was seen, as one amount of work. value: what the call returned, alive while this is decided."""
        if self.problem:
            return Captured("torch", reason=self.problem, operations=len(self.seen))
        try:
            seen = _merged(self.seen, self._decomposed)
            return total("torch", seen, made=self._storages.made, kept=self._storages.kept())
        except Exception as error:
            return Captured("torch", reason=f"the capture failed: {_said(error)}", operations=len(self.seen))

    # What the modes call.

    def function(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        composite = COMPOSITES.get(func)
        if composite is None or self._inside or self.problem:
            if getattr(func, "__name__", "") in CHECKS and not self._inside:
                return self._checked(func, args, kwargs)
            return func(*args, **kwargs)
        values = self._safely(composite.values, args, kwargs)
        if values is None or self._in_a_check():
            return func(*args, **kwargs)
        first, self._launches = torch._C._autograd._get_sequence_nr(), 0
        self._inside += 1
        try:
            out = func(*args, **kwargs)
        finally:
            self._inside -= 1
        self._safely(self._composite, composite, values, out, first)
        return out

    def dispatched(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = func(*args, **kwargs)
        if not self.problem:
            self._safely(self._operation, func, args, kwargs, out)
        return out

    def _safely(self, step: Callable[..., Any], *args: Any) -> Any:
        """A step of the recording on the clock of its budget; an error in it ends the recording."""
        start = perf_counter()
        try:
            return step(*args)
        except Exception as error:
            self.problem = f"the capture failed: {_said(error)}"
        finally:
            self._spent_s += perf_counter() - start
            if self._spent_s > self._budget_s and not self.problem:
                self.problem = f"the capture took more than its {self._budget_s:g} s, after {len(self.seen)} operations"
        return None

    def _checked(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A comparison such as allclose: its operations are not recorded, nor what is done with its result."""
        self._inside += 1
        try:
            out = func(*args, **kwargs)
        finally:
            self._inside -= 1
        if isinstance(out, torch.Tensor):
            self._safely(self._mark_check, [out])
        return out

    def _mark_check(self, tensors: Sequence[Any]) -> None:
        self._checks.update(self._storages.number(tensor, made=True) for tensor in tensors)

    def _in_a_check(self) -> bool:
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame is not self._base:
            if frame.f_code.co_filename == _COMPARISON:
                return True
            frame = frame.f_back
        return False

    def _operation(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        plan = _plan(func)
        values = dict(zip(plan.names, args))
        values.update(kwargs)
        given = {name: _tensors(value) for name, value in values.items() if not isinstance(value, _SCALARS)}
        outs = _tensors(out)
        for tensors in given.values():
            for tensor in tensors:
                self._admit(plan.name, tensor)
        for tensor in outs:
            self._admit(plan.name, tensor, made=True)
        if plan.free:
            return
        numbers = {self._storages.number(tensor) for tensors in given.values() for tensor in tensors}
        written = [tensor for name in plan.mutated for tensor in given.get(name, ())]
        fresh = [tensor for tensor in outs if self._storages.number(tensor) not in numbers]
        if not written and not fresh:  # a view, or something for the host
            return
        if (numbers and numbers <= self._checks) or self._in_a_check():
            return self._mark_check(outs)
        self._launches += 1
        if self._inside:
            return None
        unread = plan.outs + (plan.mutated if plan.write_only else ())
        reads = [] if plan.write_only and plan.functional else [
            tensor for name, tensors in given.items() if name not in unread for tensor in tensors
        ]  # fmt: skip
        self._record(Call(plan.name, values, reads, [*written, *fresh]), plan.tags, func)
        return None

    def _admit(self, name: str, tensor: Any, *, made: bool = False) -> None:
        why = refused(tensor)
        if why:
            raise _RefusedError(f"{name} on {why}")
        self._storages.number(tensor, made=made)

    def _record(self, call: Call, tags: Sequence[Any], func: Any) -> None:
        if self._decomposed:
            self._backward_of()
        if all(not tensor.numel() for tensor in call.writes):
            return
        label = f"{getattr(func, 'namespace', 'aten')}.{call.name}"
        for model in models(call, tags):
            self.seen.append(self._seen(label, call, model))

    def _seen(self, label: str, call: Call, model: Model) -> Seen:
        reads = call.reads if model.reads is None else model.reads
        writes = call.writes if model.writes is None else model.writes
        part = model.part
        regions = tuple(_part(self._storages.region(tensor), part.get(id(tensor))) for tensor in reads)
        written = tuple(_part(self._storages.region(tensor, made=True), part.get(id(tensor))) for tensor in writes)
        places = {tensor.device.type for tensor in (*reads, *writes) if tensor.dim()}
        between = len(places) > 1
        base = Seen(
            label,
            tuple(region for region in regions if region.nbytes),
            tuple(region for region in written if region.nbytes),
            partly=between,
            note="a copy between devices crosses no single memory" if between else model.note,
        )
        if model.op is None:
            return base._replace(flops=None)
        parameters = {key: str(value) if isinstance(value, torch.dtype) else value for key, value in model.parameters.items()}
        found = _work(model.op, tuple(parameters.items()))
        change = 0.0
        if model.exact:
            change = distinct(regions, written) - found.bytes
        elif model.charged:
            counted = [*model.charged, *model.extra]
            full = sum(tensor.numel() * tensor.element_size() for tensor in model.charged)
            change = distinct([self._storages.region(tensor) for tensor in counted]) - full
        return base._replace(work=_changed(found, change), dtype=found.dtype.name)

    def _composite(self, composite: Composite, values: Mapping[str, Any], out: Any, first: int) -> None:
        reads = [tensor for value in values.values() for tensor in _tensors(value)]
        writes = _tensors(out)
        for tensor in (*reads, *writes):
            self._admit(composite.name, tensor)
        if not all(tensor.numel() for tensor in (*reads, *writes)):
            return
        call = Call(composite.name, values, reads, writes)
        found = self._seen(composite.name, call, composite.model(call))
        self.seen.append(found._replace(launches=self._launches))
        last = torch._C._autograd._get_sequence_nr()
        if composite.name == "scaled_dot_product_attention" and self._launches > 1 and last > first:
            model = attention_backward(call, "math")
            parameters = {
                key: str(value) if isinstance(value, torch.dtype) else value for key, value in model.parameters.items()
            }
            assert model.op is not None
            self._decomposed.append(_Decomposed(first, last, _work(model.op, tuple(parameters.items())), []))

    def _backward_of(self) -> None:
        """Note that the next operation belongs to the backward pass of a function that was taken apart."""
        node = torch._C._current_autograd_node()
        if node is None:
            return
        at = node._sequence_nr()
        for item in self._decomposed:
            if item.first <= at < item.last:
                item.steps.append(len(self.seen))


class _Decomposed(NamedTuple):
    """Attention that ran as several operations: its autograd nodes by number, its backward work, where in ``seen`` it is."""

    first: int
    last: int
    work: Work
    steps: list[int]


def _merged(seen: Sequence[Seen], decomposed: Sequence[_Decomposed]) -> list[Seen]:
    """With each backward pass that was taken apart as one operation, at the place of its first step."""
    whole: dict[int, Seen] = {}
    dropped: set[int] = set()
    for item in decomposed:
        if not item.steps:
            continue
        steps = [seen[at] for at in item.steps]
        inner = {region.storage for step in steps for region in step.writes}
        reads = dict.fromkeys(region for step in steps for region in step.reads if region.storage not in inner)
        writes = dict.fromkeys(region for step in steps for region in step.writes)
        dropped.update(item.steps)
        whole[item.steps[0]] = Seen(
            "scaled_dot_product_attention backward", tuple(reads), tuple(writes), work=item.work, launches=len(steps)
        )
    return [whole.get(at, one) for at, one in enumerate(seen) if at not in dropped or at in whole]


class _Functions(TorchFunctionMode):  # type: ignore[misc]  # torch is not typed for who has it not installed
    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._watch.function(func, args, kwargs or {})


class _Dispatch(TorchDispatchMode):  # type: ignore[misc]
    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._watch.dispatched(func, args, kwargs or {})


class _RefusedError(Exception):
    """A tensor that a capture cannot account for."""


_COMPARISON = str(sys.modules["torch.testing._comparison"].__file__)
_SCALARS = (int, float, str, bool, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)


class _Plan(NamedTuple):
    """What the schema of an operation says: its arguments, those it changes, those it only writes."""

    name: str
    names: tuple[str, ...]
    mutated: tuple[str, ...]
    outs: tuple[str, ...]
    tags: tuple[Any, ...]
    free: bool
    write_only: bool
    functional: bool


@cache
def _plan(func: Any) -> _Plan:
    arguments = func._schema.arguments
    name = func.overloadpacket.__name__
    mutated = tuple(item.name for item in arguments if item.alias_info is not None and item.alias_info.is_write)
    free = name in FREE or bool(func.is_view) or torch.Tag.inplace_view in func.tags
    outs = tuple(item.name for item in arguments if item.is_out)
    return _Plan(
        name,
        tuple(item.name for item in arguments),
        mutated,
        outs,
        tuple(func.tags),
        free,
        name in WRITE_ONLY,
        not mutated,
    )


def _tensors(value: Any) -> list[Any]:
    """The tensors of an argument or a result, also of a list of them."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in _tensors(item)]
    return []


@lru_cache(maxsize=4096)
def _work(op: str, parameters: tuple[tuple[str, Any], ...]) -> Work:
    return work(op, **dict(parameters))


def _changed(done: Work, nbytes: float) -> Work:
    """The same with other bytes, in every byte model."""
    if not nbytes:
        return done
    return done._replace(candidates=tuple(model._replace(bytes=model.bytes + nbytes) for model in done.candidates))


def _part(region: Region, nbytes: float | None) -> Region:
    """A region that is used in part."""
    if nbytes is None or nbytes >= region.nbytes:
        return region
    return region._replace(nbytes=nbytes, view=(*region.view, int(nbytes)))


def _said(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    prefix = "" if isinstance(error, (_RefusedError, ValueError)) else f"{type(error).__name__}: "
    return f"{prefix}{text[0] if text else ''}"[:200]


def capture(
    fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, *, budget_s: float = BUDGET_S
) -> tuple[Any, Captured]:
    """Call ``fn`` once and say what it did. The states of the random generators are those of before the call afterwards."""
    states = _random_states()
    watch = Watch(budget_s=budget_s)
    try:
        with watch:
            value = fn(*args, **(kwargs or {}))
    finally:
        for restore in states:
            restore()
    return value, watch.finish(value)


def _random_states() -> list[Callable[[], object]]:
    """What sets each generator that exists back to where it is."""
    python, cpu = random.getstate(), torch.get_rng_state()
    restore: list[Callable[[], object]] = [lambda: random.setstate(python), lambda: torch.set_rng_state(cpu)]
    if torch.cuda.is_initialized():
        devices = torch.cuda.get_rng_state_all()
        restore.append(lambda: torch.cuda.set_rng_state_all(devices))
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        state = numpy.get_state()
        restore.append(lambda: numpy.set_state(state))
    return restore
