"""Launches of Triton kernels while a call runs: the arguments of each, and the figures its author gives.

``CompiledKernel.launch_metadata`` runs before every launch of a compiled kernel (3.4 to 3.9; Inductor's launchers of Triton
3.5 and newer call it too) and knows the arguments. ``knobs.runtime.launch_enter_hook`` does not know them, and a hook that is
set while ``torch.compile`` compiles changes which launcher Inductor makes, so it is left alone. The interpreter
(TRITON_INTERPRET=1) launches nothing; there the run of the grid is watched.
"""

from __future__ import annotations

import gc
import inspect
import math
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from roofline_engine.fields import ByteModel
from roofline_engine.units import Dtype, parse_dtype
from roofline_engine.work import Work

from ..timing.devices import loaded
from .restore import names_of, replaced
from .trace import Region, Seen

#: Also of Pallas, whose interpreter is a program of XLA's.
INTERPRETED = "ran in an interpreter: its time is not a kernel's"
NO_DOT = "no tl.dot in it: its FLOPs are not counted, it is held against the memory roof alone"
DOT = "FLOPs not known: it uses tl.dot and its launch_metadata gives none"

#: What multiplies matrices: triton.language, and the instructions that Gluon and TLX name.
_MATRIX = ("dot", "dot_scaled", "dot_fma", "async_dot", "async_dot_scaled")
_MATRIX_ENDS = ("mma", "mma_v2", "mma_scaled", "mfma", "mfma_scaled", "wmma", "wmma_scaled")
#: Of these an argument may say which parts of the others are used: block tables, indices, lengths.
_INDEX = ("int32", "int64", "uint32", "uint64")
#: Proton's keys (triton/profiler/metric.py): FLOPs by the width of their operands, and ``flops`` that says none.
_WIDTHS = (8, 16, 32, 64)
_BY_WIDTH = {8: "fp8", 16: "fp16", 32: "fp32", 64: "fp64"}


@contextmanager
def watching(region: Callable[[Any], Region], seen: list[Seen], active: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Append one ``Seen`` per launch; what the launch itself does beside it (copies of the interpreter, an autotuner's
    benchmark) is taken out of ``seen`` again.

    region: what a tensor touches. active: whether launches are still to be seen. Nothing of Triton is changed after the block,
    however it ends.
    """
    watch = _Watch(region, seen, active)
    before = loaded("triton")
    with ExitStack() as stack:
        for module, owner, name, wrapper in watch.wrapped():
            kind = getattr(loaded(module), owner, None)
            if kind is not None:
                stack.enter_context(replaced(kind, name, wrapper))
        yield
    if watch.kernels:
        gc.collect()  # functions of the interpreter that refer to themselves hold the arguments, as if they outlived the call
    if before is None and _has_kernels():
        seen.append(Seen("triton", flops=None, kernel=True, note="Triton was imported by the call: its launches were not seen"))


def _has_kernels() -> bool:
    """Whether kernels of the user's exist; torch imports Triton for itself, with kernels of its own."""
    kinds = [
        getattr(loaded(f"triton.runtime.{module}"), name, None)
        for module, name in (("jit", "JITFunction"), ("interpreter", "InterpretedFunction"))
    ]
    known = tuple(kind for kind in kinds if kind is not None)
    return bool(known) and any(
        issubclass(type(thing), known) and not thing.fn.__module__.startswith(("triton.", "torch."))
        for thing in gc.get_objects()
    )


def unseen() -> str:
    """Why launches of the Triton that is loaded cannot be seen; empty where they can, or where there is none."""
    if loaded("triton") is None:
        return ""
    missing = [
        f"{module}.{owner}.{name}"
        for module, owner, name, _ in _Watch(_no_region, [], bool).wrapped()
        if loaded(module) is not None and not callable(getattr(getattr(loaded(module), owner, None), name, None))
    ]
    version = getattr(loaded("triton"), "__version__", "of unknown version")
    return f"Triton {version} has no {', '.join(missing)}" if missing else ""


def interpreted(notes: Iterable[str]) -> bool:
    """Whether these notes, of a ``Captured`` or of ``Seen``, say that a kernel ran in the interpreter."""
    return any(INTERPRETED in note for note in notes)


def _no_region(_: Any) -> Region:
    return Region(0, (), 0.0, 0.0)


class _Launch(NamedTuple):
    """arguments: by name, constexprs too. metadata: what its author's ``launch_metadata`` is given as such."""

    name: str
    fn: Any
    said: Callable[..., Any] | None
    grid: Any
    metadata: Any
    arguments: Mapping[str, Any]


class _Watch:
    def __init__(self, region: Callable[[Any], Region], seen: list[Seen], active: Callable[[], bool]) -> None:
        self.region, self.seen, self.active = region, seen, active
        self.quiet = False
        self.kernels: dict[int, Any] = {}

    def wrapped(self) -> tuple[tuple[str, str, str, Callable[..., Any]], ...]:
        interpreter = "triton.runtime.interpreter"
        return (
            ("triton.compiler.compiler", "CompiledKernel", "launch_metadata", self.launch),
            ("triton.runtime.autotuner", "Autotuner", "_bench", self.benchmark),
            (interpreter, "InterpretedFunction", "rewrite", self.rewrite),
            (interpreter, "GridExecutor", "__call__", self.interpret),
        )

    def launch(self, original: Callable[..., Any], kernel: Any, grid: Any, stream: Any, *args: Any) -> Any:
        result = original(kernel, grid, stream, *args)
        if not self.quiet and self.active():
            fn = getattr(kernel.src, "fn", None)  # a kernel that came as IR has none
            names = getattr(fn, "arg_names", None) or [f"argument {at}" for at in range(len(args))]
            said = getattr(fn, "launch_metadata", None)
            self.add(_Launch(kernel.name, fn, said, grid, kernel.metadata, dict(zip(names, args))))
        return result

    def benchmark(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with self.alone():
            return original(*args, **kwargs)

    def rewrite(self, original: Callable[..., Any], kernel: Any) -> Any:
        """The executor of a grid is given the rewritten function alone; this is the kernel it came from."""
        fn = original(kernel)
        self.kernels[id(fn)] = kernel
        return fn

    def interpret(self, original: Callable[..., Any], executor: Any, *args: Any, **kwargs: Any) -> Any:
        quiet = self.quiet
        if not self.active():
            return original(executor, *args, **kwargs)
        with self.alone():
            result = original(executor, *args, **kwargs)
        if not quiet:
            kernel = self.kernels.get(id(executor.fn))
            fn = getattr(kernel, "fn", executor.fn)
            signature = inspect.signature(fn)
            bound = signature.bind(*args, **{key: value for key, value in kwargs.items() if key in signature.parameters})
            bound.apply_defaults()
            said = getattr(getattr(kernel, "rewriter", None), "kwargs", {}).get("launch_metadata")
            options = types.SimpleNamespace(**{"num_warps": 4, "num_stages": 3, "num_ctas": 1, **kwargs, "name": fn.__name__})
            self.add(_Launch(fn.__name__, fn, said, executor.grid, options, bound.arguments), INTERPRETED)
        return result

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nothing that runs inside is an operation of the call."""
        before, quiet, self.quiet = len(self.seen), self.quiet, True
        try:
            yield
        finally:
            self.quiet = quiet
            del self.seen[before:]

    def add(self, launch: _Launch, *notes: str) -> None:
        try:
            seen = self.operation(launch, *notes)
        except Exception as error:  # the user's launch goes on whatever we make of it
            said = f"its arguments were not understood: {type(error).__name__}: {error}"
            seen = Seen(launch.name, flops=None, kernel=True, note="; ".join((*notes, said)))
        if seen is not None:
            self.seen.append(seen)

    def operation(self, launch: _Launch, *notes: str) -> Seen | None:
        tensors = list(_tensors(launch.arguments))
        grid = launch.grid(dict(launch.arguments)) if callable(launch.grid) else launch.grid
        if math.prod(grid) == 0:
            return None
        told = list(notes)
        said = _Said()
        if launch.said is not None:
            with self.alone():
                said, problem = _said(launch._replace(grid=grid), [tensor.dtype for _, tensor in tensors])
            told += [problem] if problem else []
        name = said.name or launch.name
        multiplies = uses_dot(launch.fn, launch.arguments.values())
        flops, dtype = said.flops, said.dtype
        if flops is None and not said.doubt:
            flops = None if multiplies else 0.0
            told.append(DOT if multiplies else NO_DOT)
        elif said.doubt:
            told.append(said.doubt)
        regions = [self.region(tensor) for _, tensor in tensors]
        if said.nbytes is not None and flops is not None:
            told.append("bytes of its author's launch_metadata")
            engine = "matrix" if multiplies else "vector"
            computed = dtype or parse_dtype("fp32")
            candidate = ByteModel("launch_metadata", said.nbytes, flops)
            work = Work("unknown", "unknown", (candidate,), engine, computed, computed, ())
            used = _used(regions, said.nbytes)
            return Seen(name, either=used, work=work, flops=flops, dtype=computed.name, kernel=True, note="; ".join(told))
        indices = _indices(tensors)
        if indices:
            told.append(f"{', '.join(indices)} may select parts of its buffers: their size is an upper bound")
        return Seen(
            name,
            either=tuple(regions),
            flops=flops,
            dtype=dtype.name if dtype is not None and flops else None,
            partly=bool(indices),
            kernel=True,
            note="; ".join(told),
        )


def _tensors(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Tensors among a kernel's arguments: as they are, in tuples, in descriptors, and reinterpreted as another type."""
    waiting = list(arguments.items())[::-1]
    while waiting:
        name, value = waiting.pop()
        base = getattr(value, "base", None)
        if isinstance(value, (tuple, list)):
            waiting += [(name, item) for item in reversed(value)]
        elif base is not None and hasattr(base, "data_ptr"):
            yield name, base
        elif hasattr(value, "data_ptr") and hasattr(value, "dtype"):
            yield name, value


def _used(regions: list[Region], nbytes: float) -> tuple[Region, ...]:
    """The regions with no more bytes than the author says: which of them he leaves out is not known."""
    whole = sum(region.nbytes for region in dict.fromkeys(regions))
    part = nbytes / whole if whole > nbytes else 1.0
    return tuple(region._replace(nbytes=part * region.nbytes) for region in regions)


def _indices(tensors: list[tuple[str, Any]]) -> list[str]:
    """Integers beside other types; a kernel on integers alone computes with them."""
    kinds = {_spelled(tensor.dtype) for _, tensor in tensors}
    if kinds <= set(_INDEX):
        return []
    return list(dict.fromkeys(name for name, tensor in tensors if _spelled(tensor.dtype) in _INDEX))


def _spelled(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]


class _Said(NamedTuple):
    """What ``launch_metadata`` gave. doubt: why its FLOPs cannot be used."""

    name: str = ""
    nbytes: float | None = None
    flops: float | None = None
    dtype: Dtype | None = None
    doubt: str = ""


def _said(launch: _Launch, dtypes: list[Any]) -> tuple[_Said, str]:
    assert launch.said is not None
    try:
        given = dict(launch.said(launch.grid, launch.metadata, dict(launch.arguments)) or {})
        nbytes = _amount(given.get("bytes"))
        by_width = {width: _amount(given.get(f"flops{width}")) for width in _WIDTHS}
        plain = _amount(given.get("flops"))
    except Exception as error:  # it is the author's code, and expects more than an interpreter has
        return _Said(), f"launch_metadata: {type(error).__name__}: {error}"
    name = given.get("name")
    said = _Said(name if isinstance(name, str) else "", nbytes)
    widths = {width: amount for width, amount in by_width.items() if amount}
    if len(widths) > 1 or (widths and plain):
        return said._replace(doubt=f"FLOPs of several widths ({', '.join(f'flops{width}' for width in widths)})"), ""
    for width, amount in widths.items():
        return said._replace(flops=amount, dtype=_of_width(width, dtypes)), ""
    if plain:
        found = {dtype for dtype in map(_known, dtypes) if dtype is not None and dtype.peak}
        if len(found) != 1:
            return said._replace(doubt="flops without a width, and arguments of no one type"), ""
        return said._replace(flops=plain, dtype=found.pop()), ""
    zero = plain == 0 or any(amount == 0 for amount in by_width.values())
    return said._replace(flops=0.0 if zero else None), ""


def _amount(value: Any) -> float | None:
    """A number, or a tensor of one, as proton takes them."""
    if value is None:
        return None
    amount = float(value)
    if not (math.isfinite(amount) and amount >= 0):
        raise ValueError(f"{amount!r} is no amount")
    return amount


def _of_width(width: int, dtypes: list[Any]) -> Dtype:
    """The type of an argument that has this width; the usual float where none has."""
    for dtype in map(_known, dtypes):
        if dtype is not None and dtype.peak and dtype.value_bits == width:
            return dtype
    return parse_dtype(_BY_WIDTH[width])


def _known(dtype: Any) -> Dtype | None:
    try:
        return parse_dtype(str(dtype))
    except ValueError:
        return None


def uses_dot(fn: Any, arguments: Iterable[Any] = ()) -> bool:
    """Whether a kernel, a device function it calls, or one it is given, multiplies matrices.

    Read off the names in its code, so a function that is never reached counts.
    """
    waiting, done = [fn, *arguments], set()
    while waiting:
        code, scope = _code(waiting.pop())
        if code is None or code in done:
            continue
        done.add(code)
        names = set(names_of(code))
        if any(name in _MATRIX or name.endswith(_MATRIX_ENDS) for name in names):
            return True
        values = [scope[name] for name in names if name in scope]
        modules = [value for value in values if isinstance(value, types.ModuleType)]
        waiting += values + [vars(module)[name] for module in modules for name in names if name in vars(module)]
    return False


def _code(fn: Any) -> tuple[types.CodeType | None, Mapping[str, Any]]:
    """The code of a ``@triton.jit`` function and what its names mean; None for anything else, and for Triton's own."""
    python = getattr(fn, "value", fn)  # a constexpr
    kernel = any(kind.__module__.startswith("triton.") for kind in type(python).__mro__)
    while kernel and not inspect.isfunction(python) and python is not None:
        python = getattr(python, "fn", None)  # an autotuner's, of heuristics
    if not inspect.isfunction(python) or not (kernel or fn is python) or python.__module__.startswith("triton."):
        return None, {}
    return python.__code__, {**python.__globals__, **inspect.getclosurevars(python).nonlocals}
