"""What a capture records of each operation, the bytes that its views cover, and the work that all operations come to."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from itertools import pairwise, product
from typing import NamedTuple, TypeVar

from roofline_engine.calls.call import Unknown
from roofline_engine.fields import ByteModel, Note, join_notes, note
from roofline_engine.kernels import classify
from roofline_engine.units import Dtype, parse_dtype, quantity
from roofline_engine.work import TARGET_EFF, Work

#: Stretches that are looked at one by one; about a tenth of a second.
MOST_RUNS = 1 << 17
#: Different views of one allocation beyond which no overlap is looked for.
MOST_VIEWS = 256


class Strided(NamedTuple):
    """A stretch of bytes, repeated at regular distances. Two spellings of the same bytes are equal."""

    start: int
    run: int  # bytes of the stretch
    dims: tuple[tuple[int, int], ...] = ()  # (how often, bytes apart), the shortest distance first

    def runs(self) -> Iterator[tuple[int, int]]:
        """Yield the first byte of each stretch and the byte after its last."""
        return ((self.start + at, self.start + at + self.run) for at in _offsets(self.dims))

    def count_runs(self) -> int:
        return math.prod(size for size, _ in self.dims)

    def bounds(self) -> tuple[int, int]:
        return self.start, self.start + self.run + sum((size - 1) * stride for size, stride in self.dims)


class Listed(NamedTuple):
    """Stretches of one length at listed places, in order."""

    run: int
    starts: tuple[int, ...]

    def runs(self) -> Iterator[tuple[int, int]]:
        return ((at, at + self.run) for at in self.starts)

    def count_runs(self) -> int:
        return len(self.starts)

    def bounds(self) -> tuple[int, int]:
        return self.starts[0], self.starts[-1] + self.run


View = Strided | Listed | Unknown


def strided(start: int, width: int, dims: Iterable[tuple[int, int]]) -> tuple[View, int]:
    """Return the view of elements of ``width`` bytes over dimensions of (size, stride in bytes), and its distinct bytes.

    The dimensions may be in any order. An expanded dimension (stride 0) adds nothing; overlapping windows count once.
    """
    run = width
    outer: list[tuple[int, int]] = []
    span = width  # from the first byte to the last
    is_plain = True
    for stride, size in sorted((abs(stride), size if stride > 0 else -size) for size, stride in dims if stride and size != 1):
        if size < 0:
            size = -size
            start -= (size - 1) * stride
        inner, step = outer[-1] if outer else (0, 1)
        ratio, rest = divmod(stride, step)
        if not outer and stride <= run:
            run += (size - 1) * stride
        elif not rest and ratio <= inner:
            outer[-1] = ((size - 1) * ratio + inner, step)
        else:
            is_plain = is_plain and stride >= span
            outer.append((size, stride))
        span += (size - 1) * stride
    view = Strided(start, run, tuple(outer))
    runs = view.count_runs()
    if is_plain:
        return view, run * runs
    if runs > MOST_RUNS:  # never seen in a real kernel: windows that overlap in no regular way
        return Unknown(view), min(runs * run, span)
    starts = tuple(sorted({start + at for at in _offsets(outer)}))
    listed = Listed(run, starts)
    return listed, _length(_join(listed.runs()))


def _offsets(dims: Sequence[tuple[int, int]]) -> Iterator[int]:
    return map(sum, product(*(range(0, size * stride, stride) for size, stride in reversed(dims))))


def _join(runs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the union of stretches, in order."""
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(runs):
        if joined and begin <= joined[-1][1]:
            if end > joined[-1][1]:
                joined[-1] = (joined[-1][0], end)
        else:
            joined.append((begin, end))
    return joined


def _length(runs: Iterable[tuple[int, int]]) -> int:
    return sum(end - begin for begin, end in runs)


class Coverage:
    """The bytes that the views of one allocation cover."""

    __slots__ = ("_views", "exact", "nbytes", "whole")

    def __init__(self, whole: float) -> None:
        self.whole = whole  # bytes of the allocation
        self.nbytes = 0.0
        self.exact = True  # whether ``nbytes`` is what the views cover, or an upper bound
        self._views: dict[View, float] = {}

    def add(self, view: View | None, nbytes: float) -> float:
        """Return the bytes that this view covers and no view before it did; None is the whole allocation."""
        view = view or Strided(0, int(self.whole))
        if view in self._views or (self.exact and self.nbytes >= self.whole):
            return 0.0
        before = self.nbytes
        self._views[view] = nbytes
        if len(self._views) == 1:
            self.nbytes = nbytes
        else:
            together = self._together() if len(self._views) <= MOST_VIEWS and self.exact else None
            if together is None:
                # Together they are at most all of it; that is exact only where one of them is all of it.
                self.exact = nbytes >= self.whole
                together = min(before + nbytes, self.whole)
            self.nbytes = max(float(together), before)
        return self.nbytes - before

    def _together(self) -> float | None:
        """Return the bytes of all views, each byte once; None where that takes too long or is unknown."""
        views = [view for view in self._views if not isinstance(view, Unknown)]
        if len(views) < len(self._views):
            return None
        plain = _join(view.bounds() for view in views if isinstance(view, Strided) and not view.dims)
        others: list[Strided | Listed] = []
        for view in views:
            low, high = view.bounds()
            if (isinstance(view, Listed) or view.dims) and not any(begin <= low and high <= end for begin, end in plain):
                others.append(view)
        known: list[Strided | Listed] = [*(Strided(begin, end - begin) for begin, end in plain), *others]
        self._views = {view: self._views[view] if view in others else float(view.run) for view in known}
        bounds = sorted(view.bounds() for view in known)
        if all(one[1] <= after[0] for one, after in pairwise(bounds)):
            return sum(self._views.values())
        return _of_a_grid(known) or _of_runs(known)


META = note("its tensors are on the meta device, where nothing is computed", "meta_device")
#: Pallas has an interpreter too: a program of XLA.
INTERPRETED = note("ran in an interpreter: its time is not the time of a kernel", "interpreted")


class Region(NamedTuple):
    """What an operation touches of one allocation."""

    storage: int  # the allocation, by its number within a capture
    view: View | None  # which of its bytes; None: all
    nbytes: float  # distinct bytes of the view
    whole: float  # bytes of the allocation


class OpTrace(NamedTuple):
    """One operation as it ran."""

    name: str  # the framework's name (``aten.mm``), or the symbol of a kernel
    reads: tuple[Region, ...] = ()
    writes: tuple[Region, ...] = ()
    either: tuple[Region, ...] = ()  # read or written, unknown which: the arguments of a kernel
    work: Work | None = None  # the engine's model, with the op, its FLOPs and dtype; None where the engine has no model
    flops: float | None = 0.0  # without a model; None where unknown
    dtype: str | None = None
    is_bound: bool = False  # its regions may be used in part (a paged cache), so that their bytes are an upper bound
    launches: int = 1
    notes: tuple[Note, ...] = ()
    is_kernel: bool = False  # a kernel that the test's author wrote, not an operation of a framework
    least: tuple[tuple[Region, ...], tuple[Region, ...]] | None = None  # reads and writes that no run avoids; None: all

    def own_bytes(self) -> float:
        """Return the bytes that the operation moves by itself."""
        return self.work.bytes if self.work is not None else distinct(self.reads, self.writes, self.either)

    def own_flops(self) -> float:
        return self.work.flops if self.work is not None else self.flops or 0.0


class CapturedWork(NamedTuple):
    """The work of one call."""

    how: str  # what saw the call: torch, triton, torch and triton, jax or numpy
    work: Work | None = None  # None where unknown
    reason: str = ""  # why the work is unknown
    certain: bool = True  # False for upper bounds and guesses, so that the row is for display only
    launches: int | None = None  # kernel launches in the call, where they show
    operations: int = 0  # how many were recorded
    notes: tuple[Note, ...] = ()
    kernels: tuple[str, ...] = ()  # symbols of the author's own kernels
    source: str = "captured"  # captured, or names for a guess from names alone

    def add_note(self, remark: Note) -> CapturedWork:
        return self._replace(notes=(*self.notes, remark))


def _of_a_grid(views: Sequence[Strided | Listed]) -> float | None:
    """Return the bytes of views that are parts of the same cells, as the halves of each row are."""
    grids = [view for view in views if isinstance(view, Strided) and view.dims]
    if len(grids) < len(views) or len({view.dims for view in grids}) > 1:
        return None
    dims, first = grids[0].dims, min(view.start for view in grids)
    if max(view.start + view.run for view in grids) - first > min(stride for _, stride in dims):
        return None
    cells = _join((view.start, view.start + view.run) for view in grids)
    return float(_length(cells) * grids[0].count_runs())


def _of_runs(views: Sequence[Strided | Listed]) -> float | None:
    if sum(view.count_runs() for view in views) > MOST_RUNS:
        return None
    return float(_length(_join(run for view in views for run in view.runs())))


T = TypeVar("T", bound=Hashable)

#: An op is named, and so has a target, where it makes up this much of the work; the rest could not change its class, whose
#: bands are 0.6 and 0.9 of the target.
NEARLY_ALL = 0.9
#: The part of the call's bytes that a matrix op must touch itself to be named.
MOST = 0.5
#: Names of the byte models of several operations.
FUSED, OP_BY_OP = "fused", "op_by_op"
OVERLAP = note("different parts of one buffer are used and may overlap: its bytes are an upper bound")
STOPS_EARLY = note("how much it reads depends on its data: its bytes are the most", "data_dependent")
DROPPED = note("it returns nothing: its last results count as written")


def total(
    how: str,
    traces: Sequence[OpTrace],
    *,
    allocations: Collection[int] = (),
    survivors: Collection[int] = (),
    notes: Iterable[Note] = (),
) -> CapturedWork:
    """Combine the operations of a call into one ``Work``.

    allocations: storages that the call made; every other is an input.
    survivors: those of them that outlive the call.

    One operation alone is the engine's work of it. The figure of several is the compulsory traffic of the whole, ``fused``:
    each input read once unless the call wrote it before, each result that outlives the call written once, and nothing in
    between. The traffic of the operations one by one, ``op_by_op``, is listed but not in the range of the verdict: that an
    eager chain writes its intermediates is what it loses against the roof, not a doubt about the roof. Where the intermediates
    stay in a cache, it is more than the memory sees.
    """
    remarks = [*notes, *(item for trace in traces for item in trace.notes)]
    kernels = _unique(trace.name for trace in traces if trace.is_kernel)
    if kernels:
        how = "triton" if all(trace.is_kernel for trace in traces) else f"{how} and triton"
    base = CapturedWork(how, operations=len(traces), kernels=kernels, notes=_unique(remarks))
    if not traces:
        return base._replace(reason="no operation was recorded")
    unknown = _unique(
        trace.name + (f" ({join_notes(trace.notes)})" if trace.notes else "")
        for trace in traces
        if trace.work is None and trace.flops is None
    )
    if unknown:
        more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
        return base._replace(reason=f"no FLOP count for {', '.join(unknown[:3])}{more}")
    allocations, survivors = frozenset(allocations), frozenset(survivors)
    if not survivors and not any(
        region.storage not in allocations for trace in traces for region in trace.writes + trace.either
    ):
        survivors = _unused_results(traces, allocations)
        remarks += [DROPPED] if survivors and len(traces) > 1 else []
    nbytes, exact = _traffic(traces, allocations, survivors)
    if not exact:
        remarks.append(OVERLAP)
    either = len({region for trace in traces for region in trace.either if region.storage not in allocations})
    if either:
        remarks.append(note(f"{either} kernel arguments are read or written, unknown which: each counts once"))
    if len(traces) == 1:
        work = _work_of_one(traces[0], nbytes, survivors)
    else:
        work, more_remarks = _work_of_several(traces, nbytes, allocations, survivors)
        remarks += more_remarks
    if not work.bytes > 0:
        return base._replace(reason="it reads no input and leaves no result", notes=_unique(remarks))
    work = _with_least(work, traces, allocations, survivors)
    if work.coverage == "range":
        remarks.append(STOPS_EARLY)
    return base._replace(
        work=work,
        certain=exact and not any(trace.is_bound for trace in traces),
        launches=sum(trace.launches for trace in traces) or None,
        notes=_unique(remarks),
    )


def _with_least(work: Work, traces: Sequence[OpTrace], allocations: Collection[int], survivors: Collection[int]) -> Work:
    """Return the work as a range where operations may read or write less than all, by their data."""
    if all(trace.least is None for trace in traces):
        return work
    floors = [trace if trace.least is None else trace._replace(reads=trace.least[0], writes=trace.least[1]) for trace in traces]
    nbytes = min(traffic(floors, allocations, survivors), work.bytes)
    flops = min(sum(trace.own_flops() for trace in traces if trace.least is None), work.flops)
    return work if nbytes >= work.bytes else work._replace(coverage="range", least=(nbytes, flops))


def traffic(traces: Iterable[OpTrace], allocations: Collection[int], survivors: Collection[int]) -> float:
    """Return the compulsory bytes: inputs read before the call wrote them, and results that outlive it, each byte once."""
    return _traffic(traces, allocations, survivors)[0]


def _traffic(traces: Iterable[OpTrace], allocations: Collection[int], survivors: Collection[int]) -> tuple[float, bool]:
    """Return the compulsory bytes, and whether they are exact: views that may overlap are an upper bound."""
    touched, written = _Views(), _Views()
    read = 0.0
    for trace in traces:
        for region in (*trace.reads, *trace.either):
            if region.storage not in allocations:
                read += touched.add(region)
        for region in (*trace.writes, *(region for region in trace.either if region.storage in allocations)):
            written.add(region)
            if region.storage not in allocations:
                touched.add(region)
    results = [views for storage, views in written.storages.items() if storage not in allocations or storage in survivors]
    exact = all(views.exact for views in (*results, *touched.storages.values()))
    return read + sum(views.nbytes for views in results), exact


class _Views:
    """Views of each storage."""

    def __init__(self) -> None:
        self.storages: dict[int, Coverage] = {}

    def add(self, region: Region) -> float:
        storage, view, nbytes, whole = region
        views = self.storages.get(storage)
        if views is None:
            views = self.storages[storage] = Coverage(max(whole, nbytes))
        return views.add(view, nbytes)


def distinct(*groups: Sequence[Region]) -> float:
    """Return the bytes of the regions of each group, every byte of a storage once."""
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


def resize(work: Work, trace: OpTrace, flops: float | None = None) -> Work:
    """Return the engine's work with the distinct bytes that ``trace`` reads and writes, and with other FLOPs if given."""
    model = work.candidates[0]
    nbytes = distinct(trace.reads, trace.writes)
    return work._replace(candidates=(model._replace(bytes=nbytes, flops=model.flops if flops is None else flops),))


def _unused_results(traces: Sequence[OpTrace], allocations: frozenset[int]) -> frozenset[int]:
    """Return what a call without results allocated and did not read: a benchmark need not return its kernel's result."""
    unused: set[int] = set()
    for trace in traces:
        unused -= {region.storage for region in trace.reads}
        unused |= {region.storage for region in trace.writes if region.storage in allocations}
    return frozenset(unused)


def _work_of_one(trace: OpTrace, nbytes: float, survivors: frozenset[int]) -> Work:
    if trace.work is None:
        dtype = _dtype(trace.dtype)
        candidate = ByteModel("inputs_and_outputs", nbytes, float(trace.flops or 0.0))
        return Work("unknown", "unknown", (candidate,), "matrix", dtype, dtype, ())
    results = [region for region in trace.writes if region.storage in survivors]
    if 0 < len(results) < len(trace.writes) and trace.work.bytes == distinct(trace.reads, trace.writes):
        # A second result that the caller drops, such as the places of the maxima, need not be written.
        (first, *others) = trace.work.candidates
        return trace.work._replace(candidates=(first._replace(bytes=distinct(trace.reads, results)), *others))
    return trace.work


def _work_of_several(
    traces: Sequence[OpTrace], nbytes: float, allocations: Collection[int], survivors: Collection[int]
) -> tuple[Work, list[Note]]:
    units: dict[str, dict[Dtype, float]] = {"matrix": defaultdict(float), "vector": defaultdict(float)}  # FLOPs by dtype
    for trace in traces:
        if trace.work is not None:
            units[trace.work.engine][trace.work.dtype] += trace.work.flops
        elif trace.flops:  # as for declared totals: they may run on the matrix units
            units["matrix"][_dtype(trace.dtype)] += trace.flops
    matrix, vector = (sum(by_dtype.values()) for by_dtype in units.values())
    if matrix >= vector and units["matrix"]:
        engine, other, left_out = "matrix", "vector", vector
    else:
        engine, other, left_out = "vector", "matrix", matrix
    by_dtype = units[engine]
    dtype = max(by_dtype, key=lambda dtype: by_dtype[dtype]) if by_dtype else _dtype(None)
    remarks = []
    if left_out:
        remarks.append(note(f"{quantity(left_out, 'FLOP')} of the {other} units left out"))
    if len(by_dtype) > 1:
        rest = ", ".join(sorted(one.name for one in by_dtype if one != dtype))
        remarks.append(note(f"FLOPs in {rest} counted as {dtype.name}, which most are in"))
    separate, flops = sum(trace.own_bytes() for trace in traces), sum(by_dtype.values())
    main = _main_work(traces, engine, nbytes, separate, allocations, survivors)
    candidates = (ByteModel(FUSED, nbytes, flops), ByteModel(OP_BY_OP, separate, flops, in_range=False))
    summary = note(f"{len(traces)} operations as one: {_count_names(traces)}; {quantity(separate, 'B')} one by one")
    if main is None:
        return Work("unknown", "unknown", candidates, engine, dtype, dtype, (summary,)), remarks
    return Work(main.op, main.op_class, candidates, engine, dtype, main.weight_dtype, (summary,)), remarks


def _main_work(
    traces: Sequence[OpTrace],
    engine: str,
    nbytes: float,
    separate: float,
    allocations: Collection[int],
    survivors: Collection[int],
) -> Work | None:
    """Return the work of the op that makes up nearly all of the work.

    On the matrix units: nearly all FLOPs, and most of the bytes of the whole touched by it, so that an epilogue does not hide
    a GEMM and a GEMM does not hide what streams around it. On the vector units: nearly all bytes of the ops one by one. Ops
    that all stream their operands (elementwise, reductions, copies, softmax) are elementwise as one, since they stream as one.
    """
    flops = sum(trace.own_flops() for trace in traces)
    for op in _unique(trace.work.op for trace in traces if trace.work is not None and trace.work.engine == engine):
        same = [trace for trace in traces if trace.work is not None and trace.work.op == op]
        if engine == "vector":
            nearly_all = sum(trace.own_bytes() for trace in same) >= NEARLY_ALL * separate
        else:
            nearly_all = sum(trace.own_flops() for trace in same) >= NEARLY_ALL * flops
            nearly_all = nearly_all and traffic(same, allocations, survivors) >= MOST * nbytes
        if nearly_all:
            return max(same, key=OpTrace.own_bytes).work
    main = max(traces, key=OpTrace.own_bytes).work
    if main is not None and all(trace.work is not None and _streams(trace.work) for trace in traces):
        return main._replace(op="elementwise")
    return None


def _streams(work: Work) -> bool:
    """Return whether an op streams its operands; of those without a target, such as a sparse product, it is unknown."""
    return work.op_class == "elementwise" and work.op in TARGET_EFF


def _count_names(traces: Iterable[OpTrace]) -> str:
    """Return how often each name occurs, the first six names alone."""
    counts = Counter(trace.name for trace in traces)
    shown = list(counts.items())[:6]
    rest = counts.total() - sum(number for _, number in shown)
    return ", ".join(f"{number} {name}" for name, number in [*shown, *([("more", rest)] if rest else [])])


def _unique(items: Iterable[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(items))


def _dtype(name: str | None) -> Dtype:
    return parse_dtype(name or "uint8")  # where nothing is computed no peak is used


#: Ops that a test often runs around the kernel that it tests.
_AUXILIARY = ("elementwise", "copy", "transpose", "cat", "reduce", "gather", "unknown")


def under_test(name: str, traces: Sequence[OpTrace], problem: str = "") -> CapturedWork:
    """Return the work of the kernel under test, out of all that the test's own call did: inputs, a reference and checks too.

    name: of the test's function.
    problem: why the recording ended early.

    The author's own kernels are under test; else the operations of the op in the test's name; else the only op that is more
    than elementwise or a move of data. This is a guess, so the figures are for display. Of several operations of that op the
    largest is taken, since a reference does the same once more.
    """
    if problem or not traces:
        return CapturedWork("torch", reason=problem or "no operation was recorded", operations=len(traces))
    kernels = [trace for trace in traces if trace.is_kernel]
    if kernels:
        return total("triton", kernels)._replace(certain=False)
    ops = {trace.work.op for trace in traces if trace.work is not None}
    named = classify(name.removeprefix("test_")).op
    main = {op for op in ops if op == named or (op[:5] == named[:5] == "attn_")} or ops - set(_AUXILIARY)
    if len(main) != 1:
        what = ", ".join(sorted(main)) or "only elementwise operations and copies"
        reason = f"{what} ran in the test's own call: which is under test is unknown"
        return CapturedWork("torch", reason=reason, operations=len(traces))
    alike = [trace for trace in traces if trace.work is not None and trace.work.op in main]
    largest = max(alike, key=lambda trace: (trace.own_bytes(), trace.own_flops()))
    remark = note(f"the largest {largest.name} of the {len(traces)} operations of the test's own call")
    return total("torch", [largest], notes=[remark])._replace(certain=False, operations=len(traces))
