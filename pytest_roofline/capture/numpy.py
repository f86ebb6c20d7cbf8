"""The work of a call of numpy, from running it once on views of its arrays that record what is done with them."""

from __future__ import annotations

import math
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from roofline_engine.calls.call import Part, Unknown, unknown_part
from roofline_engine.fields import note
from roofline_engine.ops import work

from ..timing.devices import loaded
from ..values import attributes, contents, is_kind, raised
from .restore import assign, bind_call, present_items, replaced, restored_generators, unwrap_partial, variable_holders
from .trace import CapturedWork, OpTrace, Region, Strided, resize, strided, total
from .unseen import (
    DEPTH,
    GROWS,
    Contents,
    Input,
    add_signs,
    allocations_traced,
    arrays_in,
    find_growth,
    find_inputs,
    find_native,
    find_signs,
)

#: Calls of more operations are loops over elements in Python: no roof applies to them.
MOST_OPERATIONS = 10_000
#: Longer lists and dictionaries are not searched for arrays.
MOST_ITEMS = 1_000
_NONE: Mapping[int, Any] = {}
#: Functions that make arrays, under any name that a call has for them; asarray and the like would drop the recording view.
_MAKERS = ("zeros", "ones", "full", "empty", "arange", "linspace", "eye", "array", "asarray", "asanyarray", "ascontiguousarray")
#: Methods outside of ``__array_ufunc__``: they move elements, or reduce them; the FLOPs of the others are unknown.
_MOVES = ("reshape", "astype", "copy", "flatten", "ravel", "take", "repeat", "compress", "byteswap")
_REDUCES = ("argmax", "argmin")
_OTHERS = ("sort", "argsort", "partition", "argpartition", "searchsorted", "nonzero", "choose", "put")
#: Reductions of booleans that stop at the first element that decides (numpy's loops.c.src: BOOL_logical_or and its aliases).
_STOPPING = ("logical_or", "logical_and", "bitwise_or", "bitwise_and", "maximum", "minimum")
#: scipy's sparse matrices that multiply a vector or a matrix in C, and the methods that do it.
_SPARSE = (
    ("scipy.sparse._compressed", "_cs_matrix"),
    ("scipy.sparse._bsr", "_bsr_base"),
    ("scipy.sparse._coo", "_coo_base"),
)
_SPARSE_PRODUCTS = ("_matmul_vector", "_matmul_multivector")
#: Methods that give elements as Python's numbers.
_ELEMENTS = ("item", "__iter__", "__float__", "__int__", "__bool__")
#: Functions that compute nothing.
_FREE = (
    *("can_cast", "result_type", "min_scalar_type", "may_share_memory", "shares_memory", "shape", "ndim", "size"),
    *("iscomplexobj", "isrealobj", "isfortran", "common_type", "array_repr", "array_str", "array2string"),
)
#: Functions with a model; numpy makes the others of these and of ufuncs.
_KNOWN = ("dot", "inner", "vdot", "tensordot", "outer", "einsum", "concatenate", "where", "copyto", "copy")
DRAWN = "it draws random numbers, and their FLOPs are unknown"


def capture(
    fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
) -> tuple[Any, CapturedWork]:
    """Call ``fn`` once; return its value, with plain arrays, and its work.

    A function that fails on watched arrays is called again with its own arrays. Random generators have their state of before
    afterwards. Watched are the arrays among the arguments and in the containers, closure, globals and object that the function
    itself reaches, and what is made from them or by numpy's functions that make arrays.
    """
    np, (fn, args, kwargs) = loaded("numpy"), unwrap_partial(fn, args, kwargs or {})
    fn = bind_call(fn)
    if np is None:
        return fn(*args, **kwargs), CapturedWork("numpy", reason="numpy is not imported")
    failure = ""
    try:
        return _call_watched(np, fn, args, kwargs)
    except Exception as error:
        failure = raised(error)
    with restored_generators(fn, args, kwargs):  # no view is left, so that the function may resize its arrays
        value = fn(*args, **kwargs)
    return value, CapturedWork("numpy", reason=f"it does not run on arrays that record: {failure}")


def _call_watched(np: Any, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, CapturedWork]:
    watch = _Watch(np)
    inputs = find_inputs(fn, args, kwargs, watch.is_array)
    watch.number_inputs(inputs)
    with allocations_traced() as watch.origin:
        with restored_generators(fn, args, kwargs) as drawn, watch.watching(fn, [args, kwargs]) as (given, named):
            value = fn(*given, **named)
        value = watch.plain(value)
        after = find_inputs(fn, args, kwargs, watch.is_array)
        captured = watch.finish(value, inputs, after, find_native(fn))
    growing = find_growth(inputs, after, watch.touched, watch.number)
    reason = DRAWN if any(drawn) else GROWS.format(growing) if growing else ""
    return value, captured._replace(work=None, reason=reason) if reason else captured


class _Watch:
    def __init__(self, np: Any) -> None:
        self.np = np
        self.traces: list[OpTrace] = []
        self.allocations: set[int] = set()  # storages that the call made
        self.is_partial = False  # an array comes from a function that is not recorded
        self.origin: Callable[[Any], str] = lambda thing: ""  # the file that made an object during the call
        self._folder, self._masked = str(np.__path__[0]), str(np.ma.__path__[0])
        self.touched: set[int] = set()  # storages that recorded operations used
        self.unwritten: set[int] = set()  # storages that the call made and nothing recorded wrote
        self.contents = Contents(partial(_sample, np))
        self.uses_unwritten = False
        self.kind = _subclass(np, self)
        self._owners: dict[int, tuple[Any, int]] = {}  # a weak reference to the owner of memory and its number, by ``id``
        self._number = count()
        self._changed: list[tuple[Any, Any]] = []  # items of containers that hold a view in the place of an array
        self._searched = 0  # items of containers
        self._paused = False  # while arrays are made for the recording
        self._originals: dict[int, tuple[Any, Any]] = {}  # a view and its array, by the view's ``id``

    def is_array(self, value: Any) -> bool:
        return issubclass(type(value), self.np.ndarray) and value.ndim > 0 and value.size > 0

    def number_inputs(self, inputs: Sequence[Input]) -> None:
        for item in inputs:
            for _, array in item.arrays:
                self.region(array)

    def _unwatched_class(self, inputs: Sequence[Input]) -> str:
        """Return the class of an array that computes by its own rules, such as a masked array; empty without one."""
        kinds = {type(array) for item in inputs for _, array in item.arrays} - {self.np.ndarray, self.np.memmap}
        return next((kind.__name__ for kind in kinds), "")

    # Views in the place of arrays.

    @contextmanager
    def watching(self, fn: Any, given: list[Any]) -> Iterator[list[Any]]:
        with ExitStack() as stack:
            for holder, keys in variable_holders(fn):
                stack.callback(self._swap, holder, keys, self.plain)
                self._swap(holder, keys, self.watched)
            for name in _MAKERS:
                stack.enter_context(replaced(self.np, name, partial(self.maker, name)))
            for module, name in _SPARSE:
                kind = getattr(loaded(module), name, None)
                for method in _SPARSE_PRODUCTS if kind is not None else ():
                    stack.enter_context(replaced(kind, method, self.sparse_product))
            stack.callback(self._put_back)
            stack.callback(self._sweep, given)
            yield [self.watched(item) for item in given]

    def _swap(self, holder: Any, keys: list[Any] | None, change: Callable[[Any], Any]) -> None:
        self._searched = 0
        for key, value in present_items(holder, keys).items():
            assign(holder, key, change(value))

    def watched(self, value: Any, depth: int = DEPTH) -> Any:
        """Replace arrays by views that record, also in containers; lists and dictionaries change in place."""
        if type(value) is self.np.ndarray:
            self.region(value)
            view = value.view(self.kind)
            self._originals[id(view)] = (view, value)
            return view
        return self._inside(value, self.watched, depth)

    def plain(self, value: Any, depth: int = DEPTH + 1) -> Any:
        """Replace views that record by plain arrays: by the array itself where the call was given it."""
        if is_kind(value, self.kind):
            _, original = self._originals.get(id(value), (None, None))
            return self.bare(value) if original is None else original
        return self._inside(value, self.plain, depth)

    def bare(self, view: Any) -> Any:
        base = view.base
        same = type(base) is self.np.ndarray and base.__array_interface__ == view.__array_interface__
        return base if same else view.view(self.np.ndarray)

    def _inside(self, value: Any, change: Callable[..., Any], depth: int) -> Any:
        """Change every item of a container, in place except for tuples; a step into an object counts twice."""
        if depth <= 0:
            return value
        change = partial(change, depth=depth - (1 if is_kind(value, (tuple, list, dict, deque)) else 2))
        if is_kind(value, tuple) and tuple.__len__(value) <= MOST_ITEMS:
            items = [change(item) for item in tuple.__iter__(value)]
            if any(new is not old for new, old in zip(items, tuple.__iter__(value))):
                return type(value)._make(items) if hasattr(value, "_make") else tuple(items)
            return value
        holder: Any = value if type(value) in (list, dict, deque) else attributes(value)
        if holder is not None and len(holder) <= MOST_ITEMS and self._searched < MOST_OPERATIONS:
            for key in list(holder) if isinstance(holder, dict) else range(len(holder)):
                self._searched += 1
                new = change(holder[key])
                if new is not holder[key]:
                    holder[key] = new
                    self._changed.append((holder, key))
        return value

    def _sweep(self, values: list[Any]) -> None:
        self._searched = 0
        self.plain(values)

    def _put_back(self) -> None:
        """Put plain arrays back into containers, whatever the call has put there since."""
        for holder, key in self._changed:
            if key in holder if isinstance(holder, dict) else key < len(holder):
                assign(holder, key, self.plain(holder[key], 0))

    # What the views call.

    def ufunc(self, ufunc: Any, method: str, inputs: Sequence[Any], out: Any, options: dict[str, Any]) -> Any:
        given = [self.plain(item) for item in inputs]
        options = {key: self.plain(item) for key, item in options.items()}
        if out is not None:
            options["out"] = tuple(self.plain(item) for item in out)
            self.check(self.arrays(given))  # before they may be written
        result = getattr(ufunc, method)(*given, **options)
        reads = self.arrays([*given, options.get("where")])
        writes = self.arrays(options["out"] if out is not None else result)
        if method == "at":  # in place
            self.wrote(reads[:1])
        if reads:
            self.add(
                f"numpy.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}"),
                reads,
                writes,
                partial(of_ufunc, ufunc, method, reads, writes, options),
                out,
                used=self._part(masked_parts, options.get("where"), [*reads, *writes]),
                least=_least_of_reduction(ufunc.__name__, reads[0], writes) if method == "reduce" else None,
            )
        if out is None:
            return self.result(result)
        return out[0] if len(out) == 1 else out

    def function(self, run: Callable[[], Any], func: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """Run one of numpy's functions: with a model, or made of others, which are recorded instead."""
        name = func.__name__
        label = f"{func.__module__}.{name}"
        if name in _KNOWN and func.__module__ == "numpy":
            return self.known(func, args, options)
        before, first = len(self.traces), next(self._number)
        result = run()
        results, has_inner = self.arrays(result), len(self.traces) > before
        fresh = [array for array in results if not 0 <= self.number(array) < first]
        unrecorded = any(not isinstance(array, self.kind) and self.number(array) < 0 for array in fresh)
        given = self.arrays([args, options])
        if name not in _FREE:
            self.touched.update(map(self.number, given))
        if name == "empty_like":
            self.unwritten.update(self.region(array, is_new=True).storage for array in results)
        elif name not in _FREE and (unrecorded or (not has_inner and (fresh or not results))):
            if not results:  # it may write to an argument, as ``fill_diagonal`` does
                self.wrote(given)
            self.add(label, given, results)
        return self.result(result)

    def known(self, func: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        given, named = self._bare(list(args)), self._bare(dict(options))
        result = func(*given, **named)
        name, used = func.__name__, _NONE
        build: Callable[[], OpSpec | None] | None = None
        target = given.pop(0) if name == "copyto" else named.pop("out", None)
        reads, writes = self.arrays([given, named]), self.arrays(result if target is None else target)
        if name == "copyto" and reads and writes and _is_same(writes[0], reads[0]):
            return result  # numpy moves nothing
        if name == "einsum" and any(self.np.may_share_memory(one, read) for one in writes for read in reads if target is None):
            return self.result(result)  # a view, as of ij->ji
        if name == "copyto":
            used = self._part(masked_parts, given[2] if len(given) > 2 else named.get("where"), [*reads, *writes])
        if name in ("copyto", "copy", "concatenate", "where"):
            build = partial(move, writes[0]) if writes else None
        elif name == "einsum" and given and isinstance(given[0], str):
            build = partial(einsum, given[0], reads, writes)
        elif len(reads) == 2:
            build = partial(contraction, reads, writes)
        self.add(f"numpy.{name}", reads, writes, build, target, used)
        return self.result(result) if options.get("out") is None else options["out"]

    def method(self, name: str, array: Any, *args: Any, **options: Any) -> Any:
        base = self.bare(array)
        result = getattr(base, name)(*self._bare(list(args)), **self._bare(dict(options)))
        results = self.arrays(result)
        if name not in _MOVES:
            build, least = None, None
            if name in _REDUCES:
                build, least = partial(reduce, base, results), self._part(_least_of_search, base, results)
            if not results:  # in place, such as sort
                self.wrote([base])
            self.add(f"ndarray.{name}", [base], results, build, least=least)
        elif results and self.number(results[0]) < 0:
            key = (args[0] if args else options.get("indices")) if name == "take" else None
            axis = args[1] if len(args) > 1 else options.get("axis")
            used = {}
            if key is not None:
                used[id(base)] = self._part(taken_part, base, self._bare(key), axis, results[0].size)
            elif name == "compress":
                used[id(base)] = unknown_part(results[0].nbytes)
            self.add(f"ndarray.{name}", [base], results, partial(move, results[0]), used=used)
        return self.result(result)

    def fill(self, array: Any, value: Any) -> None:
        base = self.bare(array)
        base.fill(value)
        self.add("ndarray.fill", [], [base], lambda: move(base), base)

    def get(self, array: Any, key: Any) -> Any:
        base, key = self.bare(array), self._bare(key)
        result = base[key]
        if not isinstance(result, self.np.ndarray):  # one element
            self.check([base])
        elif result.ndim and not self.np.may_share_memory(base, result):
            used = {id(base): self._part(indexed_part, base, key, result.size)}
            self.add("ndarray.__getitem__", [base, *self.arrays(key)], [result], lambda: move(result), used=used)
        return self.result(result)

    def set(self, array: Any, key: Any, value: Any) -> None:
        base, key, value = self.bare(array), self._bare(key), self._bare(value)
        self.contents.check(self.number(base), base)
        base[key] = value
        self.wrote([base])
        target = base[key]
        if not isinstance(target, self.np.ndarray) or not target.size or _is_same(target, value):
            return
        inside = self.np.may_share_memory(base, target)
        writes, reads = [target if inside else base], self.arrays([value, key])
        used = {} if inside else {id(base): self._part(indexed_part, base, key, target.size)}
        self.add("ndarray.__setitem__", reads, writes, lambda: move(target), base, used=used)

    def maker(self, name: str, original: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if self._paused:
            return original(*args, **options)
        given = [item for item in (*args, *options.values()) if isinstance(item, (self.np.ndarray, list, tuple))]
        result = original(*self._bare(list(args)), **self._bare(options))
        if type(result) is not self.np.ndarray or self.number(result) >= 0:
            return self.result(result)
        copies = name.startswith(("as", "arr"))
        reads = self.arrays(self._bare(given)) if copies else []
        if name != "empty" and (reads or not copies):
            least = {id(result): 0} if name == "zeros" else None  # the system has pages of zeros that are never written
            self.add(f"numpy.{name}", reads, [result], lambda: move(result), least=least)
        region = self.region(result, is_new=not any(result is item for item in args))
        if name == "empty" and region.nbytes:
            self.unwritten.add(region.storage)
        return self.result(result)

    def sparse_product(self, original: Callable[..., Any], matrix: Any, other: Any) -> Any:
        """Multiply a sparse matrix of scipy and a dense operand, as one operation."""
        if self._paused or len(matrix.shape) != 2:
            return original(matrix, other)
        before, other = len(self.traces), self._bare(other)
        result = self._part(lambda np: original(matrix, other))
        del self.traces[before:]  # scipy's views of its own arrays
        stored = vars(matrix)
        arrays = [stored[name] for name in ("data", "indices", "indptr") if name in stored]
        arrays = self.arrays(self._bare([*arrays, *stored.get("coords", ())]))
        results = self.arrays(result)
        if arrays and results:
            used = {id(other): self._part(_columns_met, matrix.format, arrays, other)}
            build = partial(sparse, matrix.format, arrays, matrix.shape, other, results)
            self.add(f"scipy.sparse.{matrix.format}", [*arrays, other], results, build, used=used)
        return self.result(result)

    def result(self, value: Any) -> Any:
        """Return a result as the call goes on with it: arrays that record."""
        if type(value) is self.np.ndarray and value.ndim:
            return value.view(self.kind)
        if type(value) is list:
            return [self.result(item) for item in value]
        if is_kind(value, tuple):
            items = [self.result(item) for item in tuple.__iter__(value)]
            return type(value)._make(items) if hasattr(value, "_make") else tuple(items)
        return value

    def _bare(self, value: Any, depth: int = 3) -> Any:
        """Replace views by plain arrays, in new containers."""
        if is_kind(value, self.kind):
            return self.bare(value)
        if depth and type(value) in (list, tuple):
            return type(value)(self._bare(item, depth - 1) for item in value)
        if depth and type(value) is dict:
            return {key: self._bare(item, depth - 1) for key, item in value.items()}
        return value

    def arrays(self, value: Any, depth: int = 4) -> list[Any]:
        if is_kind(value, self.np.ndarray):
            return [value] if value.ndim else []
        items = contents(value, MOST_OPERATIONS) if depth else None
        return [array for item in items or () for array in self.arrays(item, depth - 1)]

    # The recording.

    def add(
        self,
        name: str,
        reads: Sequence[Any],
        writes: Sequence[Any],
        build: Callable[[], OpSpec | None] | None = None,
        target: Any = None,
        used: Mapping[int, Part] = _NONE,
        least: Mapping[int, int] | None = None,
    ) -> None:
        """Record an operation.

        build: makes the engine's op; None where the FLOPs are unknown.
        target: the array that the caller gave to be written.
        used: how much of an array is used, by its ``id``.
        least: bytes of an array that no run avoids, by its ``id``, where the data decide how much is used.
        """
        written = {self.number(array) for array in writes}
        self.check([array for array in reads if self.number(array) not in written])
        has_inputs = any(array.size for array in reads)
        if len(self.traces) >= MOST_OPERATIONS or not (
            any(array.size for array in writes) if writes else has_inputs or not reads
        ):
            return
        if reads and not has_inputs:
            build = partial(move, writes[0])  # a product over no elements: zeros are written
        whole = Part(0.0, None, True)
        inputs = [used.get(id(array), whole).of(self.region(array)) for array in reads]
        outputs = [used.get(id(array), whole).of(self.region(array, is_new=target is None)) for array in writes]
        self.wrote(writes)
        is_bound = not all(part.exact for part in used.values())
        trace = OpTrace(name, tuple(inputs), tuple(outputs), flops=None, is_bound=is_bound)
        if least is not None:
            reads_least = tuple(_first_bytes(region, least.get(id(array))) for region, array in zip(inputs, reads))
            writes_least = tuple(_first_bytes(region, least.get(id(array))) for region, array in zip(outputs, writes))
            trace = trace._replace(least=(reads_least, writes_least))
        try:
            spec = build() if build is not None else None
            if spec is not None:
                trace = trace._replace(work=resize(work(spec.op, **spec.parameters), trace, spec.flops), flops=0.0)
        except ValueError as error:  # without a model, or a dtype or a size that the engine refuses
            trace = trace._replace(notes=(note(str(error)),))
        self.traces.append(trace)

    def check(self, arrays: Sequence[Any]) -> None:
        """Note that an operation uses these arrays, and whether something wrote them that was not recorded."""
        for array in arrays:
            number = self.number(array)
            self.touched.add(number)
            if array.size and number >= 0:
                self.contents.check(number, array)
                self.uses_unwritten = self.uses_unwritten or number in self.unwritten

    def wrote(self, arrays: Sequence[Any]) -> None:
        for array in arrays:
            number = self.number(array)
            self.touched.add(number)
            self.unwritten.discard(number)
            self.contents.keep(number, array)

    def _part(self, find: Callable[..., Any], *given: Any) -> Any:
        """Find which part of an array is used; the arrays that numpy makes for this are not the call's."""
        self._paused = True
        try:
            return find(self.np, *given)
        finally:
            self._paused = False

    def number(self, array: Any) -> int:
        """Return the number of the allocation that an array lies in; -1 for a new one."""
        owner = _owner(self.np, array)
        reference, number = self._owners.get(id(owner), (None, -1))
        return number if reference is not None and reference() is owner else -1

    def region(self, array: Any, *, is_new: bool = False) -> Region:
        owner, number = _owner(self.np, array), self.number(array)
        if number < 0:
            number = next(self._number)
            self._owners[id(owner)] = (weakref.ref(owner), number)
            origin = "" if is_new else self.origin(owner)
            if isinstance(owner, self.kind) and not is_new:  # of a method that is not recorded
                self.is_partial = True
            elif is_new or (origin.startswith(self._folder) and not origin.startswith(self._masked)):
                self.allocations.add(number)
            elif origin:
                self.is_partial = True
            self.contents.keep(number, owner)
        start = array.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
        view, nbytes = strided(start, array.itemsize, zip(array.shape, array.strides)) if array.size else (Strided(0, 0), 0)
        return Region(number, view, float(nbytes), float(strided(0, owner.itemsize, zip(owner.shape, owner.strides))[1]))

    def finish(self, value: Any, inputs: Sequence[Input], after: Sequence[Input], native: str) -> CapturedWork:
        """Return the work of the call.

        value: what it returned, which must be alive until then.
        inputs, after: what it was given or reached, before and after it.
        native: the name of a native function in its code.
        """
        failed = CapturedWork("numpy", operations=len(self.traces))
        if len(self.traces) >= MOST_OPERATIONS:
            return failed._replace(reason=f"more than {MOST_OPERATIONS} operations")
        known = {id(original) for _, original in self._originals.values()}
        for array in self.arrays(value):
            self.is_partial = self.is_partial or (id(array) not in known and self.number(array) < 0)
        for _, array in arrays_in(value, self.is_array):
            number, owner = self.number(array), _owner(self.np, array)
            self.is_partial = self.is_partial or (number < 0 and self.origin(owner) != "")
            self.uses_unwritten = self.uses_unwritten or number in self.unwritten
            self.contents.check(number, array)
        for item in inputs:
            for _, array in item.arrays:
                self.contents.check(self.number(array), array)
        signs = find_signs(
            inputs,
            after,
            self.touched,
            self.number,
            native=native,
            changed=self.contents.changed,
            unwatched=self._unwatched_class(inputs),
            unwritten=self.uses_unwritten,
        )
        if self.is_partial:
            note_of_part = note("an array comes from a function that is not recorded", "partly_seen")
            return failed._replace(reason=note_of_part.text, notes=tuple(signs))
        survivors = {number for reference, number in self._owners.values() if reference() is not None}
        captured = total("numpy", self.traces, allocations=self.allocations, survivors=survivors)._replace(launches=None)
        return add_signs(captured, signs)


def _subclass(np: Any, watch: _Watch) -> Any:
    """Return a class of arrays that tell ``watch`` what is done with them."""

    def array_ufunc(self: Any, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        return watch.ufunc(ufunc, method, inputs, out, options)

    def array_function(self: Any, func: Any, types: Any, args: Any, options: Any) -> Any:
        return watch.function(lambda: np.ndarray.__array_function__(self, func, types, args, options), func, args, options)

    space: dict[str, Any] = {
        "__array_ufunc__": array_ufunc,
        "__array_function__": array_function,
        "__getitem__": lambda self, key: watch.get(self, key),
        "__setitem__": lambda self, key, value: watch.set(self, key, value),
        "dot": lambda self, other, out=None: watch.known(np.dot, (self, other), {"out": out}),
        "fill": lambda self, value: watch.fill(self, value),
    }
    for name in _ELEMENTS:

        def element(self: Any, *args: Any, _name: str = name) -> Any:
            watch.check([self])
            return getattr(np.ndarray, _name)(self, *args)

        space[name] = element
    for name in (*_MOVES, *_REDUCES, *_OTHERS):
        space[name] = lambda self, *args, _name=name, **options: watch.method(_name, self, *args, **options)
    return type("ndarray", (np.ndarray,), space)


def _first_bytes(region: Region, nbytes: int | None) -> Region:
    """Return the first bytes of a region; all of it for None."""
    if nbytes is None or nbytes >= region.nbytes:
        return region
    begin = 0 if region.view is None or isinstance(region.view, Unknown) else region.view.bounds()[0]
    return region._replace(view=Strided(begin, nbytes), nbytes=float(nbytes))


def _least_of_reduction(name: str, source: Any, writes: Sequence[Any]) -> dict[int, int] | None:
    """Return the bytes that a reduction of booleans cannot avoid: one element a result. None for a reduction of all."""
    return {id(source): _size(writes) * source.itemsize} if source.dtype.kind == "b" and name in _STOPPING else None


def _least_of_search(np: Any, source: Any, writes: Sequence[Any]) -> dict[int, int] | None:
    """Return the bytes that ``argmax`` and ``argmin`` cannot avoid: they stop at the first True or NaN. None for all."""
    stops = source.dtype.kind == "b" or (source.dtype.kind == "f" and bool(np.isnan(np.max(source))))
    return {id(source): _size(writes) * source.itemsize} if stops else None


def _is_same(target: Any, value: Any) -> bool:
    """Return whether an array is assigned to itself, as by ``a[1:] += x``; numpy then moves nothing."""
    return is_kind(value, type(target)) and target.__array_interface__ == value.__array_interface__


#: Bytes that are compared of an array, and in how many pieces.
_SAMPLED, _PIECES = 4096, 64


def _sample(np: Any, array: Any) -> bytes | None:
    """Return some of the bytes of the memory that an array lies in; None where they are no plain bytes."""
    owner = _owner(np, array)
    if owner.dtype.hasobject or not (owner.flags.c_contiguous or owner.flags.f_contiguous) or not owner.size:
        return None
    flat = owner.view(np.ndarray).reshape(-1, order="A").view("u1")
    if flat.size <= _SAMPLED:
        return bytes(flat.tobytes())
    step = flat.size // _PIECES
    return bytes(flat[: step * _PIECES].reshape(_PIECES, step)[:, :16].tobytes() + flat[-16:].tobytes())


def _owner(np: Any, array: Any) -> Any:
    while True:
        base = array.base
        if not isinstance(base, np.ndarray):
            base = getattr(base, "base", None)  # of the stand-in that as_strided makes
        if not isinstance(base, np.ndarray):
            return array
        array = base


# What an operation is to the engine; a ValueError tells why it has no model.


class OpSpec(NamedTuple):
    """The engine's op of an operation."""

    op: str
    parameters: Mapping[str, Any]
    flops: float | None = None  # in place of the engine's


#: Generalized ufuncs that multiply; the core dimensions of the operands give M, N and K.
_PRODUCTS = ("matmul", "vecdot", "matvec", "vecmat")


def of_ufunc(ufunc: Any, method: str, reads: Sequence[Any], writes: Sequence[Any], options: Mapping[str, Any]) -> OpSpec | None:
    """Return the spec of a call, reduction, accumulation or outer product of a universal function; None for any other."""
    if getattr(ufunc, "signature", None) is not None:
        is_known = ufunc.__name__ in _PRODUCTS and method == "__call__" and not {"axes", "axis"} & set(options)
        return product(ufunc.__name__, reads[0], reads[-1], _size(writes), _dtype(writes, reads)) if is_known else None
    if method not in ("reduce", "__call__", "accumulate", "outer"):
        return None
    spec = reduce(reads[0], writes) if method == "reduce" else elementwise(reads, writes)
    mask = options.get("where", True)
    if mask is True or not spec.flops:
        return spec
    # Only elements under a set mask are computed.
    shape = max((array.shape for array in (*reads, *writes)), key=math.prod)
    share = float(mask) if not getattr(mask, "ndim", 0) else int(mask.sum()) / mask.size
    return spec._replace(flops=spec.flops * round(share * math.prod(shape)) / math.prod(shape))


def elementwise(reads: Sequence[Any], writes: Sequence[Any]) -> OpSpec:
    """Count one FLOP per written element, if one of the types is a float."""
    arrays = (*reads, *writes)
    numel = max((array.size for array in writes), default=0) or max((array.size for array in reads), default=1)
    parameters = {"numel": numel, "inputs": len(reads), "outputs": max(len(writes), 1), "dtype": _dtype(writes, reads)}
    return _counted("elementwise", parameters, arrays, float(numel * max(len(writes), 1)))


def reduce(source: Any, writes: Sequence[Any]) -> OpSpec:
    rows = _size(writes)
    sizes = {"rows": rows, "cols": max(source.size // rows, 1), "dtype": str(source.dtype)}
    return _counted("reduce", {**sizes, "out_dtype": _dtype(writes, [source])}, (source, *writes), float(source.size))


def move(out: Any) -> OpSpec:
    """Move elements, as bytes of any type; nothing is computed."""
    if out.dtype.hasobject:
        raise ValueError("the bytes of objects are unknown")
    cols = out.shape[-1] if out.ndim else 1
    return OpSpec("copy", {"rows": out.size // cols, "cols": cols * out.itemsize, "dtype": "uint8"}, 0.0)


def product(name: str, a: Any, b: Any, results: int, dtype: str) -> OpSpec:
    """Model ``matmul`` and the like, over stacks of matrices."""
    m = a.shape[-2] if name in ("matmul", "matvec") and a.ndim > 1 else 1
    n = b.shape[-1] if name in ("matmul", "vecmat") and b.ndim > 1 else 1
    return _gemm(a, b, m, n, a.shape[-1], max(results // (m * n), 1), dtype)


def contraction(reads: Sequence[Any], writes: Sequence[Any]) -> OpSpec:
    """Model ``dot``, ``inner``, ``vdot``, ``tensordot``, ``outer``: M x K and K x N elements make M x N."""
    a, b = reads
    k = max(math.isqrt(a.size * b.size // max(_size(writes), 1)), 1)
    if k == 1:  # nothing is added: an outer product
        return elementwise(reads, writes)
    return _gemm(a, b, a.size // k, b.size // k, k, 1, _dtype(writes, reads))


def einsum(subscripts: str, operands: Sequence[Any], writes: Sequence[Any]) -> OpSpec:
    """Model two operands whose indices are of a batch, of rows, of columns, or summed."""
    given, arrow, out = subscripts.replace(" ", "").partition("->")
    terms = given.split(",")
    if "." in subscripts or len(terms) != len(operands) or any(len(set(term)) != len(term) for term in terms):
        raise ValueError("an einsum with an ellipsis or a diagonal")
    if not arrow:
        out = "".join(sorted(index for index in set("".join(terms)) if given.count(index) == 1))
    sizes = {index: size for term, array in zip(terms, operands) for index, size in zip(term, array.shape)}
    if len(terms) == 1:
        return reduce(operands[0], writes) if len(out) < len(terms[0]) else move(operands[0])
    if len(terms) != 2:
        raise ValueError(f"an einsum of {len(terms)} operands may be taken in several orders")
    left, right = (set(term) for term in terms)
    if ((left ^ right) - set(out)) or not set(out) <= left | right:
        raise ValueError("an einsum that sums an index of one operand")

    def extent(indices: set[str]) -> int:
        return math.prod(sizes[index] for index in indices)

    m, n, k = extent(left - right), extent(right - left), extent((left & right) - set(out))
    if k == 1:
        return elementwise(operands, writes)
    return _gemm(operands[0], operands[1], m, n, k, extent(left & right & set(out)), _dtype(writes, operands))


def _gemm(a: Any, b: Any, m: int, n: int, k: int, batch: int, dtype: str) -> OpSpec:
    if "c" in (a.dtype.kind, b.dtype.kind):
        raise ValueError("complex products have no model")
    sizes = {"M": m, "N": n, "K": k, "batch": batch}
    return OpSpec("gemm", {**sizes, "dtype": str(a.dtype), "weight_dtype": str(b.dtype), "out_dtype": dtype})


def sparse(kind: str, arrays: Sequence[Any], shape: Sequence[int], other: Any, writes: Sequence[Any]) -> OpSpec:
    """Model a sparse matrix times a vector or a matrix. ``arrays``: its values, then its indices."""
    values = arrays[0]
    if {values.dtype.kind, other.dtype.kind} & set("cOSU"):
        raise ValueError("sparse products of complex numbers or objects have no model")
    parameters = {"rows": shape[0], "cols": shape[1], "nnz": values.size, "format": kind, "index_dtype": str(arrays[1].dtype)}
    parameters |= {"block": values.shape[1:]} if kind == "bsr" else {}
    parameters |= {"n": other.shape[1]} if other.ndim == 2 else {}
    dtypes = {"dtype": str(values.dtype), "weight_dtype": str(other.dtype), "out_dtype": _dtype(writes, [values])}
    return _counted("spmm" if other.ndim == 2 else "spmv", {**parameters, **dtypes}, (values, other), None)


def _columns_met(np: Any, kind: str, arrays: Sequence[Any], other: Any) -> Part:
    """Return the rows of a dense operand that a stored value of a sparse matrix meets."""
    if kind == "csc":
        columns = np.flatnonzero(np.diff(arrays[2]))
    elif kind == "bsr":
        width = arrays[0].shape[2]
        columns = (np.unique(arrays[1])[:, None] * width + np.arange(width)).ravel()
    else:
        columns = arrays[2] if kind == "coo" else arrays[1]
    return taken_part(np, other, columns, 0, columns.size * (other.size // other.shape[0]))


def _counted(op: str, parameters: Mapping[str, Any], arrays: Sequence[Any], flops: float | None) -> OpSpec:
    kinds = {array.dtype.kind for array in arrays}
    if not kinds <= set("biuf"):
        raise ValueError("arithmetic on complex numbers, objects, text or dates has no model")
    return OpSpec(op, parameters, flops if "f" in kinds else 0.0)


def _size(writes: Sequence[Any]) -> int:
    return int(writes[0].size) if writes else 1


def _dtype(writes: Sequence[Any], reads: Sequence[Any]) -> str:
    return str((*writes, *reads)[0].dtype)


# How much of an array a mask or an index selects.

#: More elements than these of an index or a mask are not read.
MOST_READ = 1 << 22


def masked_parts(np: Any, mask: Any, arrays: Sequence[Any]) -> dict[int, Part]:
    """Return, by ``id``, the part of each array that a mask selects; empty without an array as the mask."""
    if not isinstance(mask, np.ndarray):
        return {}
    shape = np.broadcast_shapes(*(array.shape for array in arrays), mask.shape)
    elements = int(np.count_nonzero(np.broadcast_to(mask, shape)))
    key = Unknown((hash(mask.tobytes()) if mask.size <= MOST_READ else id(mask),))
    return {
        id(array): Part(float(elements * array.itemsize), key, True)
        for array in arrays
        if array is not mask and array.shape == shape
    }


def indexed_part(np: Any, base: Any, key: Any, elements: int) -> Part:
    """Return the part that an index of arrays selects, which may repeat elements; ``elements`` if none repeats."""
    keys = key if isinstance(key, (list, tuple)) else [key]
    kinds = {one.dtype.kind for one in keys if isinstance(one, np.ndarray) and one.ndim}
    if kinds == {"b"}:
        return unknown_part(elements * base.itemsize)  # a mask selects each element once
    if not isinstance(key, tuple):
        return taken_part(np, base, key, 0, elements)
    if base.size > MOST_READ:
        return unknown_part(elements * base.itemsize, exact=False)
    return _part_of_places(np, base, np.arange(base.size).reshape(base.shape)[key], 1)


def taken_part(np: Any, base: Any, key: Any, axis: Any, elements: int) -> Part:
    """Return the part of the rows along an axis that ``key`` selects; without an axis, of the elements."""
    keys = np.asarray(key)
    if keys.dtype.kind not in "iu" or keys.size > MOST_READ:
        return unknown_part(elements * base.itemsize, exact=keys.dtype.kind == "b")
    length = base.size if axis is None else base.shape[axis]
    return _part_of_places(np, base, keys % length, base.size // length)


def _part_of_places(np: Any, base: Any, places: Any, elements: int) -> Part:
    distinct = np.unique(places)
    return Part(float(distinct.size * elements * base.itemsize), Unknown((hash(distinct.tobytes()),)), True)
