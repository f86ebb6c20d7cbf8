"""The work of a call of numpy, from running it once on views of its arrays that record what is done with them."""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from typing import Any

from roofline_engine.ops import work

from ..timing.devices import loaded
from ..values import raised
from . import numpy_ops as ops
from .combine import sized, total
from .coverage import strided
from .restore import as_before, put, replaced, surroundings
from .trace import Captured, Part, Region, Seen, part_of

#: A loop over elements in Python is nothing to hold against a roof.
MOST_OPERATIONS = 10_000
#: Longer lists and dictionaries are not looked through for arrays.
MOST_ITEMS = 1_000
_NONE: Mapping[int, Any] = {}
#: Functions that make arrays, under which name a call finds them; asarray and its kin would drop the view that records.
_MAKERS = ("zeros", "ones", "full", "empty", "arange", "linspace", "eye", "array", "asarray", "asanyarray", "ascontiguousarray")
#: Methods that do not go through ``__array_ufunc__``: they move elements, or reduce them; the FLOPs of the rest nobody knows.
_MOVES = ("reshape", "astype", "copy", "flatten", "ravel", "take", "repeat", "compress", "byteswap")
_REDUCES = ("argmax", "argmin")
_OTHERS = ("sort", "argsort", "partition", "argpartition", "searchsorted", "nonzero", "choose", "put")
#: Functions that compute nothing.
_FREE = (
    *("can_cast", "result_type", "min_scalar_type", "may_share_memory", "shares_memory", "shape", "ndim", "size"),
    *("iscomplexobj", "isrealobj", "isfortran", "common_type", "array_repr", "array_str", "array2string"),
)
DRAWN = "it draws random numbers, of which nobody knows the FLOPs"
_CONTRACTIONS = ("dot", "inner", "vdot", "tensordot", "outer")


def capture(fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> tuple[Any, Captured]:
    """Call ``fn`` once and say what it did; its value has plain arrays. Where the function fails on arrays that are watched
    it is called again with its own. Random generators stand afterwards where they stood before.

    Seen are arrays among the arguments and in the containers, closure, globals and object that the function itself reaches,
    and what is made from them or by numpy's functions that make arrays.
    """
    np, kwargs = loaded("numpy"), dict(kwargs or {})
    if np is None:
        return fn(*args, **kwargs), Captured("numpy", reason="numpy is not imported")
    watch, failed = _Watch(np), ""
    with as_before(fn, args, kwargs) as drawn:
        try:
            with watch.watching(fn, [args, kwargs]) as (given, named):
                value = fn(*given, **named)
        except Exception as error:
            failed = raised(error)
    if failed:
        with as_before(fn, args, kwargs):
            value = fn(*args, **kwargs)
        return value, Captured("numpy", reason=f"its function fails on watched arrays: {failed}")
    value = watch.plain(value)
    found = watch.finish(value)
    return value, found._replace(work=None, reason=DRAWN) if any(drawn) else found


class _Watch:
    def __init__(self, np: Any) -> None:
        self.np = np
        self.seen: list[Seen] = []
        self.made: set[int] = set()
        self.lost = False
        self.kind = _subclass(np, self)
        self._owners: dict[int, tuple[Any, int]] = {}
        self._number = count()
        self._places: list[tuple[Any, Any]] = []
        self._looked_at = 0
        self._busy = False  # with arrays of its own
        self._originals: dict[int, tuple[Any, Any]] = {}

    # Views in the place of arrays.

    @contextmanager
    def watching(self, fn: Any, given: list[Any]) -> Iterator[list[Any]]:
        with ExitStack() as stack:
            for holder, keys in surroundings(fn):
                stack.enter_context(self._swapped(holder, keys))
            for name in _MAKERS:
                stack.enter_context(replaced(self.np, name, partial(self.maker, name)))
            stack.callback(self._put_back)
            stack.callback(self._sweep, given)
            yield [self.watched(item) for item in given]

    @contextmanager
    def _swapped(self, holder: Any, keys: list[Any] | None) -> Iterator[None]:
        def change(to: Callable[[Any], Any]) -> None:
            self._looked_at = 0
            for key in list(holder) if keys is None else keys:
                if key in holder:
                    put(holder, key, to(holder[key]))

        change(self.watched)
        try:
            yield
        finally:
            change(self.plain)

    def watched(self, value: Any, depth: int = 3) -> Any:
        """A view of an array that records, also of those in containers; lists and dictionaries are filled in place."""
        if type(value) is self.np.ndarray:
            self.region(value)
            view = value.view(self.kind)
            self._originals[id(view)] = (view, value)
            return view
        return self._inside(value, partial(self.watched, depth=depth - 1)) if depth else value

    def plain(self, value: Any, depth: int = 4) -> Any:
        """The same without views that record: the array itself where it is one that was given."""
        if isinstance(value, self.kind):
            _, original = self._originals.get(id(value), (None, None))
            return self.bare(value) if original is None else original
        return self._inside(value, partial(self.plain, depth=depth - 1)) if depth else value

    def bare(self, view: Any) -> Any:
        base = view.base
        same = type(base) is self.np.ndarray and base.__array_interface__ == view.__array_interface__
        return base if same else view.view(self.np.ndarray)

    def _inside(self, value: Any, change: Callable[[Any], Any]) -> Any:
        """Every item of a container changed: in place, but for tuples."""
        if isinstance(value, tuple) and len(value) <= MOST_ITEMS:
            items = [change(item) for item in value]
            if any(new is not old for new, old in zip(items, value)):
                return type(value)._make(items) if hasattr(value, "_make") else tuple(items)
            return value
        holder = value if type(value) in (list, dict) else _attributes(value)
        if holder is not None and len(holder) <= MOST_ITEMS and self._looked_at < MOST_OPERATIONS:
            for key in list(holder) if isinstance(holder, dict) else range(len(holder)):
                self._looked_at += 1
                new = change(holder[key])
                if new is not holder[key]:
                    holder[key] = new
                    self._places.append((holder, key))
        return value

    def _sweep(self, values: list[Any]) -> None:
        self._looked_at = 0
        self.plain(values)

    def _put_back(self) -> None:
        """Whatever the call has made of the places that were filled."""
        for holder, key in self._places:
            if key in holder if isinstance(holder, dict) else key < len(holder):
                put(holder, key, self.plain(holder[key], 0))

    # What the views call.

    def ufunc(self, ufunc: Any, method: str, inputs: Sequence[Any], out: Any, options: dict[str, Any]) -> Any:
        given = [self.plain(item) for item in inputs]
        options = {key: self.plain(item) for key, item in options.items()}
        if out is not None:
            options["out"] = tuple(self.plain(item) for item in out)
        result = getattr(ufunc, method)(*given, **options)
        reads = self.arrays([*given, options.get("where")])
        writes = self.arrays(options["out"] if out is not None else result)
        mask = options.get("where")
        mask = mask if isinstance(mask, self.np.ndarray) else None
        if reads:
            self.add(
                f"numpy.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}"),
                reads,
                writes,
                partial(ops.of_ufunc, ufunc, method, reads, writes, options),
                out,
                used=self._of(ops.masked, mask, [*reads, *writes]),
            )
        if out is None:
            return self.result(result)
        return out[0] if len(out) == 1 else out

    def function(self, call: Callable[..., Any], func: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """One of numpy's functions: known here, or made of others, which are seen instead."""
        name = func.__name__
        label = f"{func.__module__}.{name}"
        known = name in _CONTRACTIONS or name in ("einsum", "concatenate", "where", "copyto")
        if known and func.__module__ == "numpy":
            return self._known(func, label, args, options)
        before, first = len(self.seen), next(self._number)
        result = call(func, args, options)
        results, inside = self.arrays(result), len(self.seen) > before
        fresh = [array for array in results if not 0 <= self.number(array) < first]
        lost = fresh and (not inside or any(not isinstance(array, self.kind) and self.number(array) < 0 for array in fresh))
        if name == "empty_like":
            for array in results:
                self.region(array, made=True)
        elif name not in _FREE and (lost or not (results or inside)):
            self.add(label, self.arrays([args, options]), results, lambda: ops.UNKNOWN)
        return self.result(result)

    def _known(self, func: Any, label: str, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        given, named = self._bare(list(args)), self._bare(dict(options))
        result = func(*given, **named)
        target = named.get("out")
        reads = self.arrays([given, {key: item for key, item in named.items() if key != "out"}])
        writes = self.arrays([result] if target is None else [target])
        name = func.__name__
        if name == "copyto":
            mask = given[3] if len(given) > 3 else named.get("where")
            mask = mask if isinstance(mask, self.np.ndarray) else None
            reads, writes, target = self.arrays([*given[1:], named.get("where")]), self.arrays(given[:1]), given[0]
            used = self._of(ops.masked, mask, [*reads, *writes])
            self.add(label, reads, writes, lambda: ops.moved(writes[0]), target, used=used)
        elif name in ("concatenate", "where"):
            self.add(label, reads, writes, lambda: ops.moved(writes[0]) if writes else ops.UNKNOWN, target)
        elif name == "einsum" and given and isinstance(given[0], str):
            self.add(label, reads, writes, lambda: ops.einsum(given[0], reads, *_shape(writes, reads)), target)
        elif len(reads) == 2:
            self.add(label, reads, writes, lambda: ops.contraction(reads[0], reads[1], *_shape(writes, reads)), target)
        else:
            self.add(label, reads, writes, lambda: ops.UNKNOWN, target)
        return options["out"] if target is not None and "out" in options else self.result(result)

    def method(self, name: str, array: Any, *args: Any, **options: Any) -> Any:
        base = self.bare(array)
        result = getattr(base, name)(*self._bare(list(args)), **self._bare(dict(options)))
        results = self.arrays(result)
        if name in _MOVES:
            if results and self.number(results[0]) < 0:
                key = (args[0] if args else options.get("indices")) if name == "take" else None
                axis = args[1] if len(args) > 1 else options.get("axis")
                used = {} if key is None else {id(base): self._of(ops.taken, base, self._bare(key), axis, results[0].size)}
                if name == "compress":
                    used = {id(base): ops.some(base, results[0].size)}
                self.add(f"ndarray.{name}", [base], results, lambda: ops.moved(results[0]), used=used)
        elif name in _REDUCES:
            self.add(f"ndarray.{name}", [base], results, lambda: ops.reduced(base, results))
        else:
            self.add(f"ndarray.{name}", [base], results, lambda: ops.UNKNOWN)
        return self.result(result)

    def dot(self, array: Any, other: Any, out: Any = None) -> Any:
        return self._known(self.np.dot, "numpy.dot", (array, other), {} if out is None else {"out": out})

    def fill(self, array: Any, value: Any) -> None:
        base = self.bare(array)
        base.fill(value)
        self.add("ndarray.fill", [], [base], lambda: ops.moved(base), base)

    def get(self, array: Any, key: Any) -> Any:
        base, key = self.bare(array), self._bare(key)
        result = base[key]
        if isinstance(result, self.np.ndarray) and result.ndim and not self.np.may_share_memory(base, result):
            used = {id(base): self._of(ops.named, base, key, result.size)}
            self.add("ndarray.__getitem__", [base, *self.arrays(key)], [result], lambda: ops.moved(result), used=used)
        return self.result(result)

    def set(self, array: Any, key: Any, value: Any) -> None:
        base, key, value = self.bare(array), self._bare(key), self._bare(value)
        base[key] = value
        target = base[key]
        if not isinstance(target, self.np.ndarray):
            return
        inside = self.np.may_share_memory(base, target)
        writes, reads = [target if inside else base], self.arrays([value, key])
        used = {} if inside else {id(base): self._of(ops.named, base, key, target.size)}
        self.add("ndarray.__setitem__", reads, writes, lambda: ops.moved(target), base, used=used)

    def maker(self, name: str, original: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if self._busy:
            return original(*args, **options)
        given = [item for item in (*args, *options.values()) if isinstance(item, (self.kind, list, tuple))]
        result = original(*self._bare(list(args)), **self._bare(options))
        if type(result) is not self.np.ndarray or self.number(result) >= 0:
            return self.result(result)
        reads = self.arrays(self._bare(given)) if name.startswith(("as", "arr")) else []
        if name != "empty" and (reads or name not in ("array", "asarray", "asanyarray", "ascontiguousarray")):
            self.add(f"numpy.{name}", reads, [result], lambda: ops.moved(result))
        self.region(result, made=True)
        return self.result(result)

    def result(self, value: Any) -> Any:
        """A result as the call goes on with it: arrays that record."""
        if type(value) is self.np.ndarray and value.ndim:
            return value.view(self.kind)
        if type(value) is list:
            return [self.result(item) for item in value]
        if isinstance(value, tuple):
            items = [self.result(item) for item in value]
            return type(value)._make(items) if hasattr(value, "_make") else tuple(items)
        return value

    def _bare(self, value: Any, depth: int = 3) -> Any:
        """Plain arrays for numpy, in containers of their own."""
        if isinstance(value, self.kind):
            return self.bare(value)
        if depth and type(value) in (list, tuple):
            return type(value)(self._bare(item, depth - 1) for item in value)
        if depth and type(value) is dict:
            return {key: self._bare(item, depth - 1) for key, item in value.items()}
        return value

    def arrays(self, value: Any, depth: int = 4) -> list[Any]:
        if isinstance(value, self.np.ndarray):
            return [value] if value.ndim else []
        if depth and isinstance(value, (list, tuple, dict)):
            items = value.values() if isinstance(value, dict) else value
            return [array for item in items for array in self.arrays(item, depth - 1)]
        return []

    # The record.

    def add(
        self,
        name: str,
        reads: Sequence[Any],
        writes: Sequence[Any],
        model: Callable[[], ops.Model],
        target: Any = None,
        used: Mapping[int, Part] = _NONE,
    ) -> None:
        """target: what the caller gave to be written. used: what is used of an array, by its ``id``."""
        if len(self.seen) >= MOST_OPERATIONS or (writes and not any(array.size for array in writes)):
            return
        inputs = [part_of(self.region(array), used.get(id(array))) for array in reads]
        outputs = [part_of(self.region(array, made=target is None), used.get(id(array))) for array in writes]
        seen = Seen(name, tuple(inputs), tuple(outputs), flops=None, partly=not all(part.exact for part in used.values()))
        try:
            found = model()
            note = found.note
            if found.op is not None:
                seen = seen._replace(work=sized(work(found.op, **found.parameters), seen, found.flops), flops=0.0)
        except ValueError as error:  # a dtype or a size that the engine has no model for
            note = str(error)
        self.seen.append(seen._replace(note=note))

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """What numpy makes inside is nothing of the call's."""
        self._busy = True
        try:
            yield
        finally:
            self._busy = False

    def _of(self, find: Callable[..., Any], *given: Any) -> Any:
        """What one of the functions of ``numpy_ops`` finds."""
        with self._aside():
            return find(self.np, *given)

    def number(self, array: Any) -> int:
        """Of the allocation that an array lies in; -1 for one that has not been seen."""
        owner = _owner(self.np, array)
        reference, number = self._owners.get(id(owner), (None, -1))
        return number if reference is not None and reference() is owner else -1

    def region(self, array: Any, *, made: bool = False) -> Region:
        owner, number = _owner(self.np, array), self.number(array)
        if number < 0:
            number = next(self._number)
            self._owners[id(owner)] = (weakref.ref(owner), number)
            if made:
                self.made.add(number)
            elif isinstance(owner, self.kind):  # of a method that is not watched
                self.lost = True
        start = array.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
        view, nbytes = strided(start, array.itemsize, zip(array.shape, array.strides)) if array.size else ((0, 0), 0)
        return Region(number, view, float(nbytes), float(strided(0, owner.itemsize, zip(owner.shape, owner.strides))[1]))

    def finish(self, value: Any) -> Captured:
        if len(self.seen) >= MOST_OPERATIONS:
            return Captured("numpy", reason=f"more than {MOST_OPERATIONS} operations", operations=len(self.seen))
        known = {id(original) for _, original in self._originals.values()}
        for array in self.arrays(value):
            self.lost = self.lost or (id(array) not in known and self.number(array) < 0)
        if self.lost:
            reason = "some of it comes from a function that is not seen"
            return Captured("numpy", reason=reason, operations=len(self.seen))
        kept = {number for reference, number in self._owners.values() if reference() is not None}
        return total("numpy", self.seen, made=self.made, kept=kept)._replace(launches=None)


def _subclass(np: Any, watch: _Watch) -> Any:
    """An array that tells ``watch`` what is done with it."""

    def array_ufunc(self: Any, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        return watch.ufunc(ufunc, method, inputs, out, options)

    def array_function(self: Any, func: Any, types: Any, args: Any, options: Any) -> Any:
        call = partial(np.ndarray.__array_function__, self)
        return watch.function(lambda func, args, options: call(func, types, args, options), func, args, options)

    space: dict[str, Any] = {
        "__array_ufunc__": array_ufunc,
        "__array_function__": array_function,
        "__getitem__": lambda self, key: watch.get(self, key),
        "__setitem__": lambda self, key, value: watch.set(self, key, value),
        "dot": lambda self, other, out=None: watch.dot(self, other, out),
        "fill": lambda self, value: watch.fill(self, value),
    }
    for name in (*_MOVES, *_REDUCES, *_OTHERS):
        space[name] = lambda self, *args, _name=name, **options: watch.method(_name, self, *args, **options)
    return type("ndarray", (np.ndarray,), space)


def _attributes(value: Any) -> Any:
    """Those of an object of the user's, as a dictionary."""
    if isinstance(value, (type, types.ModuleType, types.FunctionType, types.MethodType)):
        return None
    held = getattr(value, "__dict__", None)
    return held if type(held) is dict else None


def _owner(np: Any, array: Any) -> Any:
    while True:
        base = array.base
        if not isinstance(base, np.ndarray):
            base = getattr(base, "base", None)  # of numpy's stand-in that as_strided makes
        if not isinstance(base, np.ndarray):
            return array
        array = base


def _shape(writes: Sequence[Any], reads: Sequence[Any]) -> tuple[int, str]:
    """Elements and type of a result; a number has none of its own."""
    return (int(writes[0].size), str(writes[0].dtype)) if writes else (1, str(reads[0].dtype))
