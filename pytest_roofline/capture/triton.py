"""Launches of Triton kernels, each as one operation: what its arguments cover, and the FLOPs that its author gives."""

from __future__ import annotations

import gc
import inspect
import math
import re
import types
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple

from roofline_engine.fields import ByteModel, Note, note
from roofline_engine.units import Dtype, parse_dtype
from roofline_engine.work import Work

from ..timing.devices import loaded
from .restore import names_in, replaced
from .trace import INTERPRETED, OpTrace, Region

NO_DOT = note("no tl.dot in it: its FLOPs are not counted, and only the memory roof applies")
DOT = note("FLOPs unknown: it uses tl.dot and its launch_metadata gives none")
OWN_BYTES = note("bytes of its author's launch_metadata")
LATE_IMPORT = note("Triton was imported by the call: its launches were not recorded")

#: What multiplies matrices: triton.language, and the instructions that Gluon and TLX name.
_MATRIX = ("dot", "dot_scaled", "dot_fma", "async_dot", "async_dot_scaled")
_MATRIX_ENDS = ("mma", "mma_v2", "mma_scaled", "mfma", "mfma_scaled", "wmma", "wmma_scaled")
#: Arguments of these types may select parts of the other arguments: block tables, indices, lengths.
_INDEX = ("int32", "int64", "uint32", "uint64")
#: Proton's keys (triton/profiler/metric.py): FLOPs by the width of their operands, and ``flops`` without a width.
_WIDTHS = {8: "fp8", 16: "fp16", 32: "fp32", 64: "fp64"}
#: What is replaced: module, class and method, with the method of ``_Watch`` in its place.
_HOOKS = (
    ("triton.compiler.compiler", "CompiledKernel", "launch_metadata", "launch"),
    ("triton.runtime.autotuner", "Autotuner", "_bench", "benchmark"),
    ("triton.runtime.interpreter", "InterpretedFunction", "rewrite", "rewrite"),
    ("triton.runtime.interpreter", "GridExecutor", "__call__", "interpret"),
)
#: The same for the accesses of the interpreter, which a version may lack.
_ACCESS_HOOKS = (
    ("triton.runtime.interpreter", "GridExecutor", "_init_args_hst", "host_arguments"),
    ("triton.runtime.interpreter", "InterpreterBuilder", "create_masked_load", "load"),
    ("triton.runtime.interpreter", "InterpreterBuilder", "create_masked_store", "store"),
    ("triton.runtime.interpreter", "InterpreterBuilder", "create_atomic_rmw", "update"),
    ("triton.runtime.interpreter", "InterpreterBuilder", "create_atomic_cas", "compare_and_swap"),
)


class Access(NamedTuple):
    """What a kernel does with the memory of one argument."""

    loads: bool = False
    stores: bool = False


@contextmanager
def watch_launches(
    region: Callable[[Any], Region], traces: list[OpTrace], is_active: Callable[[], bool] = lambda: True
) -> Iterator[None]:
    """Append one ``OpTrace`` per launch; what the launch itself runs (copies of the interpreter, an autotuner's benchmark) is
    removed from ``traces`` again.

    region: returns what a tensor covers.
    is_active: whether launches are still to be recorded.

    Triton is as before after the block, however the block ends.
    """
    watch = _Watch(region, traces, is_active)
    before = loaded("triton")
    with ExitStack() as stack:
        for module, owner, name, wrapper in (*_HOOKS, *_ACCESS_HOOKS):
            kind = getattr(loaded(module), owner, None)
            if kind is not None:
                stack.enter_context(replaced(kind, name, getattr(watch, wrapper)))
        yield
    if watch.kernels:
        gc.collect()  # functions of the interpreter that refer to themselves keep the arguments as if they outlived the call
    if before is None and _has_kernels():
        traces.append(OpTrace("triton", flops=None, is_kernel=True, notes=(LATE_IMPORT,)))


def _has_kernels() -> bool:
    """Return whether the user has kernels; torch imports Triton for itself, with its own kernels."""
    jit, interpreter = loaded("triton.runtime.jit"), loaded("triton.runtime.interpreter")
    kinds = (getattr(jit, "JITFunction", ()), getattr(interpreter, "InterpretedFunction", ()))
    return any(kinds) and any(
        issubclass(type(thing), kinds) and not thing.fn.__module__.startswith(("triton.", "torch."))
        for thing in gc.get_objects()
    )


def missing_hooks() -> str:
    """Return why launches of the loaded Triton cannot be recorded; empty where they can, or without Triton."""
    if loaded("triton") is None:
        return ""
    missing = [
        f"{module}.{owner}.{name}"
        for module, owner, name, _ in _HOOKS
        if loaded(module) is not None and not callable(getattr(getattr(loaded(module), owner, None), name, None))
    ]
    version = getattr(loaded("triton"), "__version__", "of unknown version")
    return f"Triton {version} has no {', '.join(missing)}" if missing else ""


class _Launch(NamedTuple):
    """One launch of a kernel."""

    name: str
    fn: Any
    launch_metadata: Callable[..., Any] | None  # its author's function
    grid: Any
    options: Any  # what launch_metadata is given as ``metadata``
    arguments: Mapping[str, Any]  # by name, constexprs too
    accesses: Sequence[Access] | None = None  # of its tensors, in their order; None where unknown


class _Watch:
    def __init__(self, region: Callable[[Any], Region], traces: list[OpTrace], is_active: Callable[[], bool]) -> None:
        self.region, self.traces, self.is_active = region, traces, is_active
        self.paused = False
        self.kernels: dict[int, Any] = {}
        self._hosted: tuple[Any, Any] | None = None  # positional and keyword arguments of the interpreter, on the host
        self._spans: list[tuple[int, int]] = []  # the addresses of each tensor among them
        self._accesses: list[Access] = []

    def launch(self, original: Callable[..., Any], kernel: Any, grid: Any, stream: Any, *args: Any) -> Any:
        result = original(kernel, grid, stream, *args)
        if not self.paused and self.is_active():
            fn = getattr(kernel.src, "fn", None)  # a kernel that came as IR has none
            names = getattr(fn, "arg_names", None) or [f"argument {at}" for at in range(len(args))]
            metadata = getattr(fn, "launch_metadata", None)
            accesses = read_accesses(str(dict.get(getattr(kernel, "asm", {}), "ttir", "")))
            self.add(_Launch(kernel.name, fn, metadata, grid, kernel.metadata, dict(zip(names, args)), accesses))
        return result

    def benchmark(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with self.unrecorded():
            return original(*args, **kwargs)

    def rewrite(self, original: Callable[..., Any], kernel: Any) -> Any:
        """Note which kernel a rewritten function came from: the executor of a grid is given the function alone."""
        fn = original(kernel)
        self.kernels[id(fn)] = kernel
        return fn

    def interpret(self, original: Callable[..., Any], executor: Any, *args: Any, **kwargs: Any) -> Any:
        paused = self.paused
        if not self.is_active():
            return original(executor, *args, **kwargs)
        self._hosted = None
        with self.unrecorded():
            result = original(executor, *args, **kwargs)
        if not paused:
            accesses = self._accesses if self._hosted is not None else None
            kernel = self.kernels.get(id(executor.fn))
            fn = getattr(kernel, "fn", executor.fn)
            signature = inspect.signature(fn)
            bound = signature.bind(*args, **{key: value for key, value in kwargs.items() if key in signature.parameters})
            bound.apply_defaults()
            metadata = getattr(getattr(kernel, "rewriter", None), "kwargs", {}).get("launch_metadata")
            options = types.SimpleNamespace(**{"num_warps": 4, "num_stages": 3, "num_ctas": 1, **kwargs, "name": fn.__name__})
            self.add(_Launch(fn.__name__, fn, metadata, executor.grid, options, bound.arguments, accesses), INTERPRETED)
        return result

    def host_arguments(self, original: Callable[..., Any], executor: Any, args: Any, kwargs: Any) -> Any:
        """Note where the interpreter put the tensors of a launch."""
        hosted = original(executor, args, kwargs)
        with suppress(Exception):  # an error in the recording must not stop the user's launch
            bound = inspect.signature(executor.fn).bind(*hosted[0], **hosted[1])
            tensors = [tensor for _, tensor in _tensors(bound.arguments)]
            self._spans = [(tensor.data_ptr(), tensor.data_ptr() + _span(tensor)) for tensor in tensors]
            self._accesses, self._hosted = [Access() for _ in tensors], hosted
        return hosted

    def load(self, original: Callable[..., Any], builder: Any, *args: Any, **kwargs: Any) -> Any:
        self.note_access(args[:1], args[1:2] or _mask_of(kwargs), Access(loads=True))
        return original(builder, *args, **kwargs)

    def store(self, original: Callable[..., Any], builder: Any, *args: Any, **kwargs: Any) -> Any:
        self.note_access(args[:1], args[2:3] or _mask_of(kwargs), Access(stores=True))
        return original(builder, *args, **kwargs)

    def update(self, original: Callable[..., Any], builder: Any, *args: Any, **kwargs: Any) -> Any:
        self.note_access(args[1:2], args[3:4] or _mask_of(kwargs), Access(loads=True, stores=True))
        return original(builder, *args, **kwargs)

    def compare_and_swap(self, original: Callable[..., Any], builder: Any, *args: Any, **kwargs: Any) -> Any:
        self.note_access(args[:1], (), Access(loads=True, stores=True))
        return original(builder, *args, **kwargs)

    def note_access(self, pointers: Sequence[Any], masks: Sequence[Any], access: Access) -> None:
        """Note an access by the tensors in which its addresses lie."""
        try:
            (pointer,) = pointers
            addresses = pointer.data[masks[0].data] if masks else pointer.data
            if not addresses.size:
                return
            low, high = int(addresses.min()), int(addresses.max())
        except Exception:  # another version of the interpreter: its accesses are unknown
            self._hosted = None
            return
        for at, (begin, end) in enumerate(self._spans):
            if low < end and high >= begin:
                before = self._accesses[at]
                self._accesses[at] = Access(before.loads or access.loads, before.stores or access.stores)

    @contextmanager
    def unrecorded(self) -> Iterator[None]:
        """Drop what runs inside from the operations of the call."""
        before, paused, self.paused = len(self.traces), self.paused, True
        try:
            yield
        finally:
            self.paused = paused
            del self.traces[before:]

    def add(self, launch: _Launch, *notes: Note) -> None:
        try:
            trace = self.trace(launch, *notes)
        except Exception as error:  # an error in the recording must not stop the user's launch
            problem = note(f"its arguments were not understood: {type(error).__name__}: {error}")
            trace = OpTrace(launch.name, flops=None, is_kernel=True, notes=(*notes, problem))
        if trace is not None:
            self.traces.append(trace)

    def trace(self, launch: _Launch, *given: Note) -> OpTrace | None:
        tensors = list(_tensors(launch.arguments))
        grid = launch.grid(dict(launch.arguments)) if callable(launch.grid) else launch.grid
        if math.prod(grid) == 0:
            return None
        notes, metadata = list(given), _Metadata()
        if launch.launch_metadata is not None:
            with self.unrecorded():
                metadata = _read_metadata(launch._replace(grid=grid), [tensor.dtype for _, tensor in tensors])
            notes += [note(text) for text in (metadata.error, metadata.doubt) if text]
        multiplies = uses_dot([launch.fn, *launch.arguments.values()])
        flops, dtype = metadata.flops, metadata.dtype
        if flops is None and not metadata.doubt:
            flops = None if multiplies else 0.0
            notes.append(DOT if multiplies else NO_DOT)
        regions = [self.region(tensor) for _, tensor in tensors]
        base = OpTrace(metadata.name or launch.name, flops=flops, is_kernel=True)
        if metadata.nbytes is not None and flops is not None:
            computed = dtype or parse_dtype("fp32")
            candidate = ByteModel("launch_metadata", metadata.nbytes, flops)
            work = Work("unknown", "unknown", (candidate,), "matrix" if multiplies else "vector", computed, computed, ())
            used = _scale_regions(regions, metadata.nbytes)
            return base._replace(either=used, work=work, dtype=computed.name, notes=(*notes, OWN_BYTES))
        indices = _index_names(tensors)
        if indices:
            notes.append(note(f"{', '.join(indices)} may select parts of its buffers: their size is an upper bound"))
        name = dtype.name if dtype is not None and flops else None
        base = base._replace(dtype=name, is_bound=bool(indices), notes=tuple(notes))
        if launch.accesses is None or len(launch.accesses) != len(regions):
            return base._replace(either=tuple(regions))
        reads = tuple(region for region, access in zip(regions, launch.accesses) if access.loads)
        writes = tuple(region for region, access in zip(regions, launch.accesses) if access.stores)
        return base._replace(reads=reads, writes=writes)


def _tensors(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the tensors among a kernel's arguments, also in tuples, in descriptors, and reinterpreted as another type."""
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


def _mask_of(keywords: Mapping[str, Any]) -> tuple[Any, ...]:
    return (keywords["mask"],) if "mask" in keywords else ()


def _span(tensor: Any) -> int:
    """Return the bytes from the first to the last element of a tensor."""
    steps = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return int((steps + 1) * tensor.element_size()) if tensor.numel() else 0


_VALUE = re.compile(r"%[\w.]+(?:#\d+)?")
_LINE = re.compile(r"\s*(?:(?P<result>%[\w.]+)(?P<many>:\d+)? = )?(?P<op>[\w.]+)\b(?P<rest>.*)")
_BINDING = re.compile(r"(%[\w.]+) = (%[\w.]+(?:#\d+)?)")
#: What the operations of Triton's IR do with the memory that their first operand points to.
_IR_ACCESSES = {
    "tt.load": Access(loads=True),
    "tt.store": Access(stores=True),
    "tt.atomic_rmw": Access(loads=True, stores=True),
    "tt.atomic_cas": Access(loads=True, stores=True),
    "tt.descriptor_load": Access(loads=True),
    "tt.descriptor_gather": Access(loads=True),
    "tt.descriptor_store": Access(stores=True),
    "tt.descriptor_scatter": Access(stores=True),
    "tt.descriptor_reduce": Access(loads=True, stores=True),
}
#: Operations around which no pointer is followed, and those that may reach memory through a pointer that they are given.
_IR_OPAQUE = ("tt.call", "scf.while", "cf.br", "cf.cond_br")
_IR_FOREIGN = ("tt.elementwise_inline_asm", "tt.extern_elementwise")


def read_accesses(ttir: str) -> list[Access] | None:
    """Return what a kernel does with each pointer and descriptor of its signature, in order, by its Triton IR.

    A pointer is followed from the signature through the values that are computed from it, also around loops. None where the IR
    is missing, or where a pointer cannot be followed.
    """
    head, _, body = ttir.partition("tt.func public")[2].partition("\n")
    arguments = re.findall(r"(%[\w.]+): !tt\.(?:ptr|tensordesc)", head)
    bases: defaultdict[str, set[int]] = defaultdict(set)  # the arguments that a value points into
    for at, name in enumerate(arguments):
        bases[name] = {at}
    found = [Access() for _ in arguments]
    for _ in range(3):  # a pointer that a loop hands to its next round
        before = {name: set(values) for name, values in bases.items()}
        if not arguments or not _follow(body, bases, found):
            return None
        if before == bases:
            break
    return found


def _follow(body: str, bases: defaultdict[str, set[int]], found: list[Access]) -> bool:
    """Follow pointers through the lines of a kernel; False where one cannot be followed."""
    blocks: list[tuple[str, str, list[str]]] = []  # of each open block: its result, whether it has several, what it carries
    for line in body.splitlines():
        text = line.partition(" loc(")[0].strip()
        closes = text.startswith("}")
        match = _LINE.match(text)
        if match is not None and not closes:
            result, op, rest = match["result"] or "", match["op"], match["rest"]
            operands = _VALUE.findall(rest)
            if op in _IR_OPAQUE or (op in _IR_FOREIGN and any(bases[name] for name in operands)):
                return False
            if op in _IR_ACCESSES:
                if not operands or not bases[operands[0]]:
                    return False
                for at in bases[operands[0]]:
                    access, more = found[at], _IR_ACCESSES[op]
                    found[at] = Access(access.loads or more.loads, access.stores or more.stores)
            elif op == "scf.yield" and blocks:
                owner, many, carried = blocks[-1]
                for at, name in enumerate(operands):
                    bases[f"{owner}#{at}" if many else owner] |= bases[name]
                    if at < len(carried):
                        bases[carried[at]] |= bases[name]
            elif op == "scf.for":
                for at, (name, value) in enumerate(_BINDING.findall(rest.partition("iter_args")[2])):
                    bases[name] |= bases[value]
                    bases[f"{result}#{at}" if match["many"] else result] |= bases[value]
            elif op != "scf.if" and result:
                bases[result] = set().union(*(bases[name] for name in operands))
            if text.endswith("{"):
                carried = [name for name, _ in _BINDING.findall(rest.partition("iter_args")[2])]
                blocks.append((result, match["many"] or "", carried))
        elif closes and not text.endswith("{") and blocks:
            blocks.pop()
    return True


def _scale_regions(regions: list[Region], nbytes: float) -> tuple[Region, ...]:
    """Return the regions with no more bytes than the author gives; which of them the author leaves out is unknown."""
    whole = sum(region.nbytes for region in dict.fromkeys(regions))
    part = nbytes / whole if whole > nbytes else 1.0
    return tuple(region._replace(nbytes=part * region.nbytes) for region in regions)


def _index_names(tensors: list[tuple[str, Any]]) -> list[str]:
    """Return the names of integer arguments next to other types; a kernel on integers alone computes with them."""
    dtypes = [str(tensor.dtype).rpartition(".")[2] for _, tensor in tensors]
    if set(dtypes) <= set(_INDEX):
        return []
    return list(dict.fromkeys(name for (name, _), dtype in zip(tensors, dtypes) if dtype in _INDEX))


class _Metadata(NamedTuple):
    """What ``launch_metadata`` gave."""

    name: str = ""
    nbytes: float | None = None
    flops: float | None = None
    dtype: Dtype | None = None
    doubt: str = ""  # why its FLOPs cannot be used
    error: str = ""


def _read_metadata(launch: _Launch, dtypes: list[Any]) -> _Metadata:
    """Call the author's ``launch_metadata``."""
    assert launch.launch_metadata is not None
    try:
        given = dict(launch.launch_metadata(launch.grid, launch.options, dict(launch.arguments)) or {})
        nbytes = _amount(given.get("bytes"))
        by_width = {width: _amount(given.get(f"flops{width}")) for width in _WIDTHS}
        plain = _amount(given.get("flops"))
    except Exception as error:  # it is the author's code, and expects more than an interpreter has
        return _Metadata(error=f"launch_metadata: {type(error).__name__}: {error}")
    name = given.get("name")
    metadata = _Metadata(name if isinstance(name, str) else "", nbytes)
    widths = {width: amount for width, amount in by_width.items() if amount}
    if len(widths) > 1 or (widths and plain):
        doubt = f"FLOPs of several widths ({', '.join(f'flops{width}' for width in widths)})"
        return metadata._replace(doubt=doubt)
    for width, amount in widths.items():
        return metadata._replace(flops=amount, dtype=_dtype_of_width(width, dtypes))
    if plain:
        peaked = {dtype for dtype in map(_known_dtype, dtypes) if dtype is not None and dtype.peak}
        if len(peaked) != 1:
            return metadata._replace(doubt="flops without a width, and arguments of several types")
        return metadata._replace(flops=plain, dtype=peaked.pop())
    is_zero = plain == 0 or any(amount == 0 for amount in by_width.values())
    return metadata._replace(flops=0.0 if is_zero else None)


def _amount(value: Any) -> float | None:
    """Read a number, or a tensor of one, as proton takes them."""
    if value is None:
        return None
    amount = float(value)
    if not (math.isfinite(amount) and amount >= 0):
        raise ValueError(f"{amount!r} is no amount")
    return amount


def _dtype_of_width(width: int, dtypes: list[Any]) -> Dtype:
    """Return the type of an argument with this width, else the usual float."""
    for dtype in map(_known_dtype, dtypes):
        if dtype is not None and dtype.peak and dtype.value_bits == width:
            return dtype
    return parse_dtype(_WIDTHS[width])


def _known_dtype(dtype: Any) -> Dtype | None:
    try:
        return parse_dtype(str(dtype))
    except ValueError:
        return None


def uses_dot(given: list[Any]) -> bool:
    """Return whether a kernel, an argument of it, or a device function that they call, multiplies matrices.

    This is read off the names in its code, so a function that is never reached counts.
    """
    waiting, visited = given, set()
    while waiting:
        code, scope = _code_of(waiting.pop())
        if code is None or code in visited:
            continue
        visited.add(code)
        names = set(names_in(code))
        if any(name in _MATRIX or name.endswith(_MATRIX_ENDS) for name in names):
            return True
        values = [scope[name] for name in names if name in scope]
        modules = [value for value in values if isinstance(value, types.ModuleType)]
        waiting += values + [vars(module)[name] for module in modules for name in names if name in vars(module)]
    return False


def _code_of(fn: Any) -> tuple[types.CodeType | None, Mapping[str, Any]]:
    """Return the code of a ``@triton.jit`` function and its scope; None for anything else, and for Triton's own."""
    python = getattr(fn, "value", fn)  # a constexpr
    is_kernel = any(kind.__module__.startswith("triton.") for kind in type(python).__mro__)
    while is_kernel and not inspect.isfunction(python) and python is not None:
        python = getattr(python, "fn", None)  # an autotuner's, of heuristics
    if not inspect.isfunction(python) or not (is_kernel or fn is python) or python.__module__.startswith("triton."):
        return None, {}
    return python.__code__, {**python.__globals__, **inspect.getclosurevars(python).nonlocals}
