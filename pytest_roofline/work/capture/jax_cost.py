"""The work of a call of JAX, from tracing it; XLA's own ``cost_analysis`` of the compiled program stands beside it.

XLA counts what it compiled, and that not always (jax 0.10.2 on CPU): the body of a loop once whatever its length, a call of a
library as -1 or as nothing (LAPACK's QR, Cholesky), integer arithmetic as FLOPs, what a closure holds as no argument. So FLOPs
and bytes are those of the operations traced, and XLA's are a check and a candidate.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from roofline_engine.entry import ByteModel
from roofline_engine.units import quantity

from ...plain import raised
from ...timing.arrays import loaded
from .jax_ops import UPDATES, Reader
from .record import Captured
from .surroundings import surroundings
from .total import total

#: Programs of more operations are not compiled once more for XLA's count: a hundred take about a second.
MOST_COMPILED = 500
#: XLA's FLOPs under this part of the matrix products traced: it found a way round them, such as computing with constants
#: beforehand. It may well simplify sums.
FOLDED = 0.5
#: Values of a container that are looked at for what a function may have changed.
MOST_REACHED = 100
#: XLA's count is told where it is this far from ours.
APART = 0.1
BEFOREHAND = "part of it depends on nothing but constants, and whether XLA computes that beforehand is not known"
MOVED = "a constant is moved or converted, which XLA may do beforehand: its bytes are a bound"


def capture(fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Captured:
    """The work of ``fn(*args, **kwargs)``, which is traced and not run. What it changes in its surroundings is put back."""
    jax, kwargs = loaded("jax"), dict(kwargs or {})
    if jax is None:
        return Captured("jax", reason="jax is not imported")
    try:
        leaves = jax.tree_util.tree_leaves((args, kwargs))
        devices = {device for leaf in leaves if isinstance(leaf, jax.Array) for device in leaf.devices()}
        if len(devices) > 1:
            return Captured("jax", reason=f"its arrays lie on {len(devices)} devices")
        traced = _traced(jax, fn, args, kwargs)
    except Exception as error:  # what the function's own code raises under a tracer, too
        return Captured("jax", reason=f"JAX cannot trace it: {raised(error)}")
    reader = Reader(_platform(jax, devices), compiled=traced.jitted)
    try:
        kept = reader.whole(traced.jaxpr.jaxpr, traced.jaxpr.consts, traced.arguments)
        found = total("jax", reader.seen, made=reader.made, kept=kept)._replace(launches=None)
    except Exception as error:  # a jaxpr of another version
        return Captured("jax", reason=f"the capture failed: {raised(error)}")
    if (any(traced.donated) or reader.donates) and any(seen.name in UPDATES for seen in reader.seen):
        note = "an argument that is updated in place was donated: its bytes are an upper bound"
        found = found._replace(sure=False, notes=(*found.notes, note))
    return found if found.work is None else _checked(found, traced, reader)


class _Traced(NamedTuple):
    """jaxpr: closed. compiled: compiles it. donated: of each argument, whether its memory may be used. jitted: by the user."""

    jaxpr: Any
    arguments: Sequence[Any]
    compiled: Callable[[], Any]
    donated: Sequence[bool]
    jitted: bool


def _traced(jax: Any, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> _Traced:
    """A function that is jitted as the user's calls are, from JAX's cache; another as if it were, what it closes over given
    to it as arguments."""
    if hasattr(fn, "trace") and hasattr(fn, "lower"):
        own = fn.trace(*args, **kwargs)
        donated = [info.donated for info in jax.tree_util.tree_leaves(own.args_info)]
        return _Traced(own.jaxpr, jax.tree_util.tree_leaves((args, kwargs)), lambda: own.lower().compile(), donated, True)
    leaves, tree = jax.tree_util.tree_flatten((tuple(args), dict(kwargs)))
    arrays = [at for at, leaf in enumerate(leaves) if hasattr(leaf, "dtype") and hasattr(leaf, "shape")]

    def call(*given: Any) -> Any:
        filled = dict(zip(arrays, given))
        positional, named = jax.tree_util.tree_unflatten(tree, [filled.get(at, leaf) for at, leaf in enumerate(leaves)])
        return [leaf for leaf in jax.tree_util.tree_leaves(fn(*positional, **named)) if isinstance(leaf, kinds)]

    kinds = (jax.Array, jax.core.Tracer)
    with _unchanged(fn), _ready(jax.core.Tracer):
        closed = jax.jit(call).trace(*(leaves[at] for at in arrays)).jaxpr

    def run(constants: Sequence[Any], given: Sequence[Any]) -> Any:
        return jax.core.eval_jaxpr(closed.jaxpr, constants, *given)

    given = [leaves[at] for at in arrays]
    return _Traced(closed, given, lambda: jax.jit(run).lower(closed.consts, given).compile(), (), False)


@contextmanager
def _ready(tracer: Any) -> Iterator[None]:
    """A benchmark waits for its result; a traced one has nothing to wait for."""
    if "block_until_ready" in vars(tracer):
        yield
        return
    tracer.block_until_ready = lambda self: self
    try:
        yield
    finally:
        del tracer.block_until_ready


@contextmanager
def _unchanged(fn: Any) -> Iterator[None]:
    """What a function has assigned, or put into a list, dictionary, set or object that it reaches, is as before: a tracer left
    there would fail the user's next call."""
    with ExitStack() as stack:
        for holder, keys in surroundings(fn):
            values = {key: holder[key] for key in (list(holder) if keys is None else keys) if key in holder}
            stack.callback(_assigned, holder, values, keys)
            for value in [fn, *values.values()]:
                if isinstance(value, functools._lru_cache_wrapper):
                    stack.callback(_forgotten, value, value.cache_info().misses)
            for held in _containers(list(values.values())):
                if isinstance(held, dict):
                    stack.callback(_assigned, held, dict(held), None)
                elif isinstance(held, list):
                    stack.callback(held.__setitem__, slice(None), list(held))
                else:
                    stack.callback(_filled, held, set(held))
        yield


def _containers(values: Sequence[Any], depth: int = 3) -> Iterator[Any]:
    for value in values[:MOST_REACHED]:
        if isinstance(value, (types.ModuleType, types.FunctionType, type)):
            continue
        held = value if isinstance(value, (dict, list, set)) else getattr(value, "__dict__", None)
        if isinstance(held, (dict, list, set)):
            yield held
            if depth > 1:
                yield from _containers(list(held.values() if isinstance(held, dict) else held), depth - 1)


def _assigned(holder: Any, before: Mapping[Any, Any], keys: Sequence[Any] | None) -> None:
    for key in list(holder) if keys is None else keys:
        if key in holder and key not in before:
            del holder[key]
    for key, value in before.items():
        if key not in holder or holder[key] is not value:
            holder[key] = value


def _forgotten(cached: Any, misses: int) -> None:
    """What a cache has taken up is of the trace."""
    if cached.cache_info().misses != misses:
        cached.cache_clear()


def _filled(held: set[Any], before: set[Any]) -> None:
    held.clear()
    held |= before


def _platform(jax: Any, devices: set[Any]) -> str:
    """cuda, rocm, tpu or cpu."""
    client = next(iter(devices)).client if devices else jax.devices()[0].client
    platform = str(client.platform)
    return ("rocm" if "rocm" in str(client.platform_version).lower() else "cuda") if platform == "gpu" else platform


def _checked(found: Captured, traced: _Traced, reader: Reader) -> Captured:
    """With XLA's bytes as a candidate that is listed, and none of it where XLA computes much less than was traced."""
    work = found.work
    assert work is not None
    folds = any(seen.work is None or seen.work.flops for seen in reader.beforehand)
    if reader.beforehand and not folds:
        found = _noted(found, MOVED)._replace(sure=False)
    unchecked = found._replace(work=None, reason=BEFOREHAND) if folds else found
    if len(reader.seen) > MOST_COMPILED:
        return _noted(unchecked, f"{len(reader.seen)} operations: not compiled for XLA's own count")
    try:
        program = traced.compiled()
        cost = program.cost_analysis()
        cost = cost[0] if isinstance(cost, (list, tuple)) else cost
        text = program.as_text() or ""
    except Exception as error:
        return _noted(unchecked, f"no cost_analysis: {raised(error)}")
    silent = (
        "it has a loop, whose body it counts once" if reader.loops else "it calls a library" if "custom-call" in text else ""
    )
    figures = {key: float(cost.get(key, 0.0)) for key in ("flops", "transcendentals", "bytes accessed", "optimal_seconds")}
    if silent or min(figures.values()) < 0:
        return _noted(unchecked, f"XLA's own count is not of the whole: {silent or 'it is negative'}")
    works = [seen.work for seen in reader.seen if seen.work is not None]
    ours = sum(work.flops for work in works)
    products = sum(work.flops for work in works if work.engine == "matrix")
    theirs = figures["flops"] + figures["transcendentals"]
    told = f"XLA counts {quantity(theirs, 'FLOP')}, {quantity(ours, 'FLOP')} were traced"
    if theirs < FOLDED * products or (ours and not theirs) or (folds and theirs < (1 - APART) * ours):
        return found._replace(work=None, reason=f"{told}: it computes with constants beforehand, or leaves work out")
    accessed = figures["bytes accessed"]
    if accessed > 0:
        candidate = ByteModel("xla_bytes_accessed", accessed, work.flops, in_range=False)
        found = found._replace(work=work._replace(candidates=(*work.candidates, candidate)))
    return _noted(found, told) if abs(theirs - ours) > APART * ours > 0 else found


def _noted(found: Captured, note: str) -> Captured:
    return found._replace(notes=(*found.notes, note))
