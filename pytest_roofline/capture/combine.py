"""The operations of one call as one amount of work."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from roofline_engine.fields import ByteModel, note
from roofline_engine.kernels import classify
from roofline_engine.units import Dtype, parse_dtype, quantity
from roofline_engine.work import Work

from .coverage import Covered
from .trace import Captured, Region, Seen

#: An op is named, and so has a target, where it makes up this much of the work; what is left could not change its class,
#: whose bands are 0.6 and 0.9 of the target.
NEARLY_ALL = 0.9
#: Beside the FLOPs of a named matrix op: the part of the call's bytes that it touches itself.
MOST = 0.5
#: Names of the byte models of several operations.
FUSED, OP_BY_OP = "fused", "op_by_op"
OVERLAP = "different parts of one buffer are used, and whether they overlap is not known: its bytes are an upper bound"
DROPPED = "it returns nothing: what it makes last counts as its result"


def total(
    how: str,
    seen: Sequence[Seen],
    *,
    made: Collection[int] = (),
    kept: Collection[int] = (),
    notes: Iterable[str] = (),
) -> Captured:
    """One ``Work`` for what a call did.

    made: storages that the call itself made; every other is an input. kept: those of them that are still there after it.

    One operation alone is the engine's work of it. The figure of several is the compulsory traffic of the whole, ``fused``:
    what is outside read once unless the call wrote it before, what outlives the call written once, in between nothing. The
    traffic of the operations one by one, ``op_by_op``, is listed and not in the range of the verdict: that an eager chain
    writes its intermediates is what it loses against the roof, not a doubt about the roof; and where they stay in a cache it
    is more than the memory sees.
    """
    said = [*notes, *(item.note for item in seen if item.note)]
    kernels = _once(item.name for item in seen if item.kernel)
    if kernels:
        how = "triton" if all(item.kernel for item in seen) else f"{how} and triton"
    base = Captured(how, operations=len(seen), kernels=kernels)
    if not seen:
        return base._replace(reason="no operation was seen", notes=_once(said))
    unknown = _once(
        item.name + (f" ({item.note})" if item.note else "") for item in seen if item.work is None and item.flops is None
    )
    if unknown:
        return base._replace(reason=f"nobody knows the FLOPs of {_listed(unknown)}", notes=_once(said))
    made, kept = frozenset(made), frozenset(kept)
    if not kept and not any(region.storage not in made for item in seen for region in item.writes + item.either):
        kept = _left(seen, made)
        said += [DROPPED] if kept and len(seen) > 1 else []
    nbytes, exact = _traffic(seen, made, kept)
    if not exact:
        said.append(OVERLAP)
    doubtful = len({region for item in seen for region in item.either if region.storage not in made})
    if doubtful:
        said.append(f"{doubtful} arguments that are read or written, not known which: each counted once")
    whole, more = (_alone(seen[0], nbytes, kept), []) if len(seen) == 1 else _several(seen, nbytes, made, kept)
    if not whole.bytes > 0:
        return base._replace(reason="it reads nothing from outside and leaves nothing behind", notes=_once(said))
    return base._replace(
        work=whole,
        sure=exact and not any(item.partly for item in seen),
        launches=sum(item.launches for item in seen) or None,
        notes=_once(said + more),
    )


def traffic(seen: Iterable[Seen], made: Collection[int], kept: Collection[int]) -> float:
    """Compulsory bytes: what is read from outside before the call wrote it, and what is written to what outlives the call, each
    byte once."""
    return _traffic(seen, made, kept)[0]


def _traffic(seen: Iterable[Seen], made: Collection[int], kept: Collection[int]) -> tuple[float, bool]:
    """The bytes, and whether they are exact: views that may overlap are a bound from above."""
    touched, written = _Views(), _Views()
    read = 0.0
    for item in seen:
        for region in (*item.reads, *item.either):
            if region.storage not in made:
                read += touched.add(region)
        for region in (*item.writes, *(region for region in item.either if region.storage in made)):
            written.add(region)
            if region.storage not in made:
                touched.add(region)
    counted = [views for storage, views in written.storages.items() if storage not in made or storage in kept]
    inexact = [views for views in (*counted, *touched.storages.values()) if not views.exact]
    return read + sum(views.nbytes for views in counted), not inexact


class _Views:
    """Views of each storage."""

    def __init__(self) -> None:
        self.storages: dict[int, Covered] = {}

    def add(self, region: Region) -> float:
        storage, view, nbytes, whole = region
        views = self.storages.get(storage)
        if views is None:
            views = self.storages[storage] = Covered(max(whole, nbytes))
        return views.add(view, nbytes)


def distinct(*groups: Sequence[Region]) -> float:
    """Bytes of the regions of each group, every byte of a storage once."""
    result = 0.0
    for group in groups:
        storages, nbytes = set(), 0.0
        for region in group:
            storages.add(region.storage)
            nbytes += region.nbytes
        if len(storages) < len(group):
            views = _Views()
            nbytes = sum(views.add(region) for region in group)
        result += nbytes
    return result


def _own_bytes(item: Seen) -> float:
    """What one operation moves by itself."""
    return item.work.bytes if item.work is not None else distinct(item.reads, item.writes, item.either)


def _left(seen: Sequence[Seen], made: frozenset[int]) -> frozenset[int]:
    """What a call that keeps nothing has made and not used: a benchmark need not return the result of its kernel."""
    left: set[int] = set()
    for item in seen:
        left -= {region.storage for region in item.reads}
        left |= {region.storage for region in item.writes if region.storage in made}
    return frozenset(left)


def _alone(item: Seen, nbytes: float, kept: frozenset[int]) -> Work:
    if item.work is not None:
        results = [region for region in item.writes if region.storage in kept]
        if 0 < len(results) < len(item.writes) and item.work.bytes == distinct(item.reads, item.writes):
            # What nobody keeps beside its result, such as the places of the maxima, need not be written.
            (first, *others) = item.work.candidates
            return item.work._replace(candidates=(first._replace(bytes=distinct(item.reads, results)), *others))
        return item.work
    dtype = _dtype(item.dtype)
    candidate = ByteModel("inputs_and_outputs", nbytes, float(item.flops or 0.0))
    return Work("unknown", "unknown", (candidate,), "matrix", dtype, dtype, ())


class _Flops:
    """FLOPs of one engine, by dtype."""

    def __init__(self) -> None:
        self.by_dtype: dict[Dtype, float] = {}

    def add(self, dtype: Dtype, flops: float) -> None:
        self.by_dtype[dtype] = self.by_dtype.get(dtype, 0.0) + flops

    @property
    def sum(self) -> float:
        return sum(self.by_dtype.values())

    @property
    def dtype(self) -> Dtype:
        return max(self.by_dtype, key=lambda dtype: self.by_dtype[dtype])


def _several(seen: Sequence[Seen], nbytes: float, made: Collection[int], kept: Collection[int]) -> tuple[Work, list[str]]:
    engines = {"matrix": _Flops(), "vector": _Flops()}
    for item in seen:
        if item.work is not None:
            engines[item.work.engine].add(item.work.dtype, item.work.flops)
        elif item.flops:  # as for declared counts: they may run on the matrix units
            engines["matrix"].add(_dtype(item.dtype), item.flops)
    matrix, vector = engines["matrix"], engines["vector"]
    engine = "matrix" if matrix.sum >= vector.sum and matrix.by_dtype else "vector"
    chosen, other = (matrix, vector) if engine == "matrix" else (vector, matrix)
    said = []
    if other.sum:
        said.append(f"{quantity(other.sum, 'FLOP')} of the {'vector' if engine == 'matrix' else 'matrix'} units left out")
    if len(chosen.by_dtype) > 1:
        rest = ", ".join(sorted(dtype.name for dtype in chosen.by_dtype if dtype != chosen.dtype))
        said.append(f"FLOPs in {rest} counted as {chosen.dtype.name}, which most are in")
    separate = sum(_own_bytes(item) for item in seen)
    dtype = chosen.dtype if chosen.by_dtype else _dtype(None)
    main = _main(seen, engine, nbytes, separate, made, kept)
    candidates = (ByteModel(FUSED, nbytes, chosen.sum), ByteModel(OP_BY_OP, separate, chosen.sum, in_range=False))
    names = ", ".join(f"{count} {name}" for name, count in _counts(seen))
    text = f"{len(seen)} operations as one: {names}; {quantity(separate, 'B')} one by one"
    if main is None:
        return Work("unknown", "unknown", candidates, engine, dtype, dtype, (note(text),)), said
    return Work(main.op, main.op_class, candidates, engine, dtype, main.weight_dtype, (note(text),)), said


def _main(
    seen: Sequence[Seen], engine: str, nbytes: float, separate: float, made: Collection[int], kept: Collection[int]
) -> Work | None:
    """The op that makes up nearly all of the work.

    On the matrix units: nearly all FLOPs, and most of the bytes of the whole touched by it, so that an epilogue does not hide
    a GEMM and a GEMM does not hide what streams around it. On the vector units: nearly all bytes of the ops one by one.
    """
    flops = sum(item.work.flops if item.work is not None else item.flops or 0.0 for item in seen)
    for op in _once(item.work.op for item in seen if item.work is not None and item.work.engine == engine):
        mine = [item for item in seen if item.work is not None and item.work.op == op]
        works = [item.work for item in mine if item.work is not None]
        if engine == "vector":
            nearly_all = sum(work.bytes for work in works) >= NEARLY_ALL * separate
        else:
            nearly_all = sum(work.flops for work in works) >= NEARLY_ALL * flops
            nearly_all = nearly_all and traffic(mine, made, kept) >= MOST * nbytes
        if nearly_all:
            return max(works, key=lambda work: work.bytes)
    return None


def _counts(seen: Iterable[Seen]) -> list[tuple[str, int]]:
    counts: dict[str, int] = {}
    for item in seen:
        counts[item.name] = counts.get(item.name, 0) + 1
    shown = list(counts.items())[:6]
    left = sum(counts.values()) - sum(count for _, count in shown)
    return shown + ([("more", left)] if left else [])


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _once(items: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(items))


def _dtype(name: str | None) -> Dtype:
    return parse_dtype(name or "uint8")  # where nothing is computed no peak is used


#: Of these a test does many beside the kernel that it tests.
_BESIDE = ("elementwise", "copy", "transpose", "cat", "reduce", "gather", "unknown")


def under_test(name: str, seen: Sequence[Seen], problem: str = "") -> Captured:
    """The kernel that a test is of, out of all that its own call did: inputs, a reference and checks are there too.

    Its author's own kernels are it; else the operations of the op that the test's name tells; else the only operations that
    are more than element-wise or moving data. It is a guess which they are, so the figures are for display. Of operations
    alike the largest is taken, since a reference does the same once more.
    """
    if problem or not seen:
        return Captured("torch", reason=problem or "no operation was seen", operations=len(seen))
    kernels = [item for item in seen if item.kernel]
    if kernels:
        return total("triton", kernels)._replace(sure=False)
    ops = {item.work.op for item in seen if item.work is not None}
    told = classify(name.removeprefix("test_")).op
    main = {op for op in ops if op == told or (op[:5] == told[:5] == "attn_")} or ops - set(_BESIDE)
    if len(main) != 1:
        what = f"{', '.join(sorted(main))} ran" if main else "nothing but element-wise operations and copies ran"
        return Captured("torch", reason=f"{what} in its own call: which is under test is not known", operations=len(seen))
    alike = [item for item in seen if item.work is not None and item.work.op in main]
    largest = max(alike, key=lambda item: (item.work.bytes, item.work.flops) if item.work else (0.0, 0.0))
    note = f"the largest {largest.name} of the {len(seen)} operations of its own call"
    return total("torch", [largest], notes=[note])._replace(sure=False, operations=len(seen))


def sized(found: Work, seen: Seen, flops: float | None = None) -> Work:
    """``found`` with the distinct bytes that ``seen`` reads and writes, and other FLOPs where they are given."""
    model = found.candidates[0]
    nbytes = distinct(seen.reads, seen.writes)
    return found._replace(candidates=(model._replace(bytes=nbytes, flops=model.flops if flops is None else flops),))
