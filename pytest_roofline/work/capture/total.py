"""The operations of one call as one amount of work."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from roofline_engine.entry import ByteModel
from roofline_engine.kernels import classify
from roofline_engine.models import Work
from roofline_engine.units import Dtype, parse_dtype, quantity

from .record import Captured, Region, Seen

#: An op is named, and so has a target, where it makes up this much of the work; what is left could not change its class,
#: whose bands are 0.6 and 0.9 of the target.
NEARLY_ALL = 0.9
#: Beside the FLOPs of a named matrix op: the part of the call's bytes that it touches itself.
MOST = 0.5
#: Names of the byte models of several operations.
FUSED, OP_BY_OP = "fused", "op_by_op"


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
    nbytes = traffic(seen, made, kept)
    doubtful = len({region for item in seen for region in item.either if region.storage not in made})
    if doubtful:
        said.append(f"{doubtful} arguments that are read or written, not known which: each counted once")
    whole, more = (_alone(seen[0], nbytes), []) if len(seen) == 1 else _several(seen, nbytes, made, kept)
    if not whole.bytes > 0:
        return base._replace(reason="it reads nothing from outside and leaves nothing behind", notes=_once(said))
    return base._replace(
        work=whole,
        sure=not any(item.partly for item in seen),
        launches=sum(item.launches for item in seen) or None,
        notes=_once(said + more),
    )


def traffic(seen: Iterable[Seen], made: Collection[int], kept: Collection[int]) -> float:
    """Compulsory bytes: distinct views read from outside and written to what outlives the call, by storage at most its size."""
    read, written = _Views(), _Views()
    for item in seen:
        for region in item.reads:
            if region.storage not in made and not written.covers(region):
                read.add(region)
        for region in item.either:
            if region.storage in made:
                written.add(region)
            elif not written.covers(region):
                read.add(region)
        for region in item.writes:
            written.add(region)
    return read.nbytes() + written.nbytes(lambda storage: storage not in made or storage in kept)


class _Views:
    """Distinct views of each storage."""

    def __init__(self) -> None:
        self._met: set[tuple[int, tuple[int, ...]]] = set()
        self._nbytes: dict[int, float] = {}

    def add(self, region: Region) -> None:
        storage, view, nbytes, whole = region
        key = (storage, view)
        if key not in self._met:
            self._met.add(key)
            self._nbytes[storage] = min(self._nbytes.get(storage, 0.0) + nbytes, max(whole, nbytes))

    def covers(self, region: Region) -> bool:
        return self._nbytes.get(region.storage, -1.0) >= region.whole or (region.storage, region.view) in self._met

    def nbytes(self, counted: Callable[[int], bool] = lambda storage: True) -> float:
        return float(sum(nbytes for storage, nbytes in self._nbytes.items() if counted(storage)))


def distinct(*groups: Sequence[Region]) -> float:
    """Bytes of the regions of each group, every view of a storage once."""
    result = 0.0
    for group in groups:
        storages, nbytes = set(), 0.0
        for region in group:
            storages.add(region.storage)
            nbytes += region.nbytes
        if len(storages) < len(group):
            views = _Views()
            for region in group:
                views.add(region)
            nbytes = views.nbytes()
        result += nbytes
    return result


def _own_bytes(item: Seen) -> float:
    """What one operation moves by itself."""
    return item.work.bytes if item.work is not None else distinct(item.reads, item.writes, item.either)


def _alone(item: Seen, nbytes: float) -> Work:
    if item.work is not None:
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
    note = f"{len(seen)} operations as one: {names}; {quantity(separate, 'B')} one by one"
    if main is None:
        return Work("unknown", "unknown", candidates, engine, dtype, dtype, (note,)), said
    return Work(main.op, main.op_class, candidates, engine, dtype, main.weight_dtype, (note,)), said


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
