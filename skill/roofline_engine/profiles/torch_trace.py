"""Traces of the torch profiler: which kernels ran how long, launched by which operation with which shapes.

A kernel belongs to the operation that its ``External id`` names, else to the one around its launch, which ``correlation``
names. It then belongs to the nearest operation around that one which has a work model: with its siblings it is one unit.
"""

from __future__ import annotations

import gc
import math
import re
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from ..calls.call import BatchFacts
from ..calls.recorded import OpFacts, has_model, is_whole
from ..inputs import times_of
from ..kernels import clean_name
from ..peaks import Device
from .chrome import Trace
from .form import KernelUse, Profile, Timeline, Unit
from .rows import is_collective
from .timeline import COMMUNICATION, COMPUTE, COPY, merge_intervals

#: Categories of events, by the names that torch 1.8 to 2.9 gave them, in lower case.
_OPS = ("cpu_op", "operator")
_GPU = {"kernel": "kernel", "gpu_memcpy": "copy", "memcpy": "copy", "gpu_memset": "memset", "memset": "memset"}
_RUNTIMES = ("cuda_runtime", "cuda_driver", "hip_runtime", "runtime", "xpu_runtime")
_RANGES = ("user_annotation", "gpu_user_annotation")
#: A slice that covers the next one of its queue, and is this many times the median of its kernel, has a wrong duration.
_OVERFLOWED = 4.0
#: A kernel borrows the shapes of others with its name and grid where its time is within this factor of theirs.
_SAME_TIME = 1.5


class _Slice(NamedTuple):
    """One kernel, copy or memset on the device."""

    name: int  # in the list of names
    start: float
    dur: float
    queue: tuple[Any, Any]  # device, stream
    kind: str
    external: Any
    correlation: Any
    grid: tuple[int, ...]
    block: tuple[int, ...]


class _Launch(NamedTuple):
    """A call of the runtime that starts work on the device."""

    thread: tuple[Any, Any]
    at: float
    external: Any
    is_graph: bool
    kernel: str  # its name, where the runtime records it
    correlation: Any


class _Events:
    """What of a trace's events is needed, in columns."""

    def __init__(self) -> None:
        self.slices: list[_Slice] = []
        self.names: dict[str, int] = {}
        self.ops: list[tuple[tuple[Any, Any], float, float, int, Any]] = []  # thread, start, end, facts, External id
        self.facts: dict[OpFacts, int] = {}
        self._texts: dict[str, int] = {}
        self._shared: dict[Any, Any] = {}
        self.launches: dict[Any, _Launch] = {}  # by correlation
        self.launches_by_id: dict[Any, _Launch] = {}  # by External id, where a trace has no correlation
        self.ranges: list[tuple[Any, float, float, str]] = []  # thread or queue, start, end, name
        self.negative = self.broken = 0

    def _facts_of(self, name: str, args: Mapping[str, Any]) -> int:
        """Return the number of an operation's facts. Most repeat, and their text is quicker to compare than to read."""
        text = name + str([args.get(key) for key in _INPUTS])
        number = self._texts.get(text)
        if number is None:
            number = self._texts[text] = self.facts.setdefault(_read_facts(name, args), len(self.facts))
        return number

    def add(self, events: Iterable[Any]) -> None:
        for event in events:
            try:
                self._add(event)
            except (TypeError, ValueError, AttributeError, KeyError):
                self.broken += 1

    def _add(self, event: Any) -> None:
        category = event.get("cat")
        if category is None or event.get("ph") != "X":
            return
        if category not in _KNOWN:
            category = category.lower()
            if category not in _KNOWN:
                return
        args = event.get("args") or {}
        if category in _RUNTIMES:
            name = event["name"]
            if "aunch" in name or "emcpy" in name or "emset" in name:
                correlation = args.get("correlation")
                launch = _Launch(
                    (event.get("pid"), event.get("tid")),
                    float(event["ts"]),
                    args.get("External id"),
                    "Graph" in name,
                    str(args.get("kernel") or ""),
                    correlation,
                )
                hash(launch)  # what is no id is refused here
                if correlation is not None:
                    self.launches[correlation] = launch
                elif launch.external is not None:
                    self.launches_by_id[launch.external] = launch
            return
        start, dur = float(event["ts"]), float(event.get("dur", 0.0))
        if not (math.isfinite(start) and math.isfinite(dur)):
            raise ValueError("not finite")
        if category in _OPS:
            number = self._facts_of(event["name"], args)
            thread = (event.get("pid"), event.get("tid"))
            hash((thread, args.get("External id")))
            self.ops.append((thread, start, start + dur, number, args.get("External id", args.get("external id"))))
        elif category in _GPU:
            if dur < 0:
                self.negative += 1
                return
            name = self.names.setdefault(str(event["name"]), len(self.names))
            queue = (args.get("device", event.get("pid")), args.get("stream", event.get("tid")))
            grid, block = args.get("grid"), args.get("block")
            share = self._shared.setdefault  # most kernels repeat the queue and the grid of another
            item = _Slice(
                name,
                start,
                dur,
                share(queue, queue),
                _GPU[category],
                args.get("External id", args.get("external id")),
                args.get("correlation"),
                _shared_tuple(grid, share),
                _shared_tuple(block, share),
            )
            hash(item)
            self.slices.append(item)
        else:
            name, place = str(event["name"]), (event.get("pid"), event.get("tid"))
            hash(place)
            if read_range(name) is not None:
                self.ranges.append((place, start, start + dur, name))


def _shared_tuple(value: Any, share: Callable[[Any, Any], Any]) -> tuple[Any, ...]:
    sizes = tuple(value) if value else ()
    shared: tuple[Any, ...] = share(sizes, sizes)
    return shared


_KNOWN = frozenset((*_OPS, *_GPU, *_RUNTIMES, *_RANGES))
_INPUTS = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")


def _read_facts(name: str, args: Mapping[str, Any]) -> OpFacts:
    dims = args.get("Input Dims", args.get("Input dims"))
    if not dims and not args.get("Input type"):
        return OpFacts(name)
    types = args.get("Input type") or ()
    return OpFacts(
        name,
        _frozen(dims or ()),
        tuple(map(str, types)),
        _frozen(args.get("Input Strides") or ()),
        tuple(map(str, args.get("Concrete Inputs") or ())),
    )


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


# Ranges that say what a step of a model does.


class RangeFacts(NamedTuple):
    """What the name of a range says."""

    regime: str | None  # decode or prefill; None where it has both
    batch: BatchFacts | None = None


_SUMS = r"\(sq(\d+)sk(\d+)sqsq(\d+)sqsk(\d+)\)"
#: As vLLM and SGLang name a step for TraceLens: sequences, and sums over them of queries, keys, squares and products.
_STEP = re.compile(rf"execute_(?:new_)?\d+_(?:context|cached)_(\d+)(?:{_SUMS})?_generation_(\d+)(?:{_SUMS})?")
_PREFILL_WORDS = re.compile(r"\b(prefill|extend|context_phase)\b|_prefill|prefill_", re.IGNORECASE)
_DECODE_WORDS = re.compile(r"\b(decode|generation_phase)\b|_decode|decode_", re.IGNORECASE)


@lru_cache(maxsize=4096)
def read_range(name: str) -> RangeFacts | None:
    """Return what the name of a range says of the step in it; None where it says nothing."""
    step = _STEP.search(name)
    if step:
        prefills, decodes = int(step.group(1)), int(step.group(6))
        regime = None if prefills and decodes else "prefill" if prefills else "decode" if decodes else None
        sums = [[int(value or 0) for value in step.groups()[at : at + 4]] for at in (1, 6)]
        if step.group(2) is None and step.group(7) is None:
            return RangeFacts(regime)
        queries, keys, squares, products = (a + b for a, b in zip(*sums))
        pairs = products - (squares - queries) // 2  # of one sequence q k - q (q - 1) / 2
        return RangeFacts(regime, BatchFacts(prefills, decodes, queries, keys, pairs))
    prefill, decode = bool(_PREFILL_WORDS.search(name)), bool(_DECODE_WORDS.search(name))
    if prefill == decode:
        return RangeFacts(None) if prefill else None
    return RangeFacts("prefill" if prefill else "decode")


class _Ranges:
    """The ranges of each thread or queue, in order."""

    def __init__(self, ranges: Sequence[tuple[Any, float, float, str]]) -> None:
        self._by_place: dict[Any, list[tuple[float, float, str]]] = defaultdict(list)
        for place, start, end, name in sorted(ranges, key=lambda item: (item[1], -item[2])):
            self._by_place[place].append((start, end, name))
        self._starts = {place: [item[0] for item in items] for place, items in self._by_place.items()}

    def find(self, place: Any, at: float) -> RangeFacts | None:
        """Return what the ranges around a time say: the innermost that names the regime, and the sums of any."""
        items = self._by_place.get(place)
        if not items:
            return None
        found: RangeFacts | None = None
        for index in range(bisect_right(self._starts[place], at) - 1, -1, -1):
            _, end, name = items[index]
            if end < at:
                continue
            facts = read_range(name)
            if facts is None:
                continue
            if found is None:
                found = facts
            elif found.batch is None and facts.batch is not None:
                found = RangeFacts(found.regime, facts.batch)
            if found.batch is not None:
                break
        return found


# From events to units.


class _Ops:
    """The operations of the host with their places in each other."""

    def __init__(self, events: _Events) -> None:
        self.events = events.ops
        self.facts = list(events.facts)
        self.has_model = [has_model(facts.name) for facts in self.facts]
        self.is_whole = [is_whole(facts.name) for facts in self.facts]
        self._owners: dict[int, tuple[int, int]] = {}
        self.by_id: dict[Any, int] = {}
        self.parents = [-1] * len(self.events)
        threads: dict[Any, list[int]] = defaultdict(list)
        for number, (thread, _, _, _, external) in enumerate(self.events):
            threads[thread].append(number)
            if external is not None:
                self.by_id[external] = number if external not in self.by_id else -1  # merged traces repeat numbers
        self.orders: dict[Any, tuple[list[float], list[int]]] = {}
        for thread, numbers in threads.items():
            numbers.sort(key=lambda number: (self.events[number][1], -self.events[number][2]))
            stack: list[int] = []
            for number in numbers:
                start = self.events[number][1]
                while stack and self.events[stack[-1]][2] <= start:
                    stack.pop()
                self.parents[number] = stack[-1] if stack else -1
                stack.append(number)
            self.orders[thread] = ([self.events[number][1] for number in numbers], numbers)

    def around(self, thread: Any, at: float) -> int:
        """Return the innermost operation of a thread at a time, or -1."""
        starts, numbers = self.orders.get(thread, ((), ()))
        index = bisect_right(starts, at) - 1
        number = numbers[index] if index >= 0 else -1
        while number >= 0 and self.events[number][2] < at:
            number = self.parents[number]
        return number

    def owners(self, number: int) -> tuple[int, int]:
        """Return the outermost operation that owns all it runs, and the nearest with a model; without one, this one."""
        found = self._owners.get(number)
        if found is None:
            nearest, whole, at = -1, -1, number
            while at >= 0:
                facts = self.events[at][3]
                if nearest < 0 and self.has_model[facts]:
                    nearest = at
                if self.is_whole[facts]:
                    whole = at
                at = self.parents[at]
            nearest = number if nearest < 0 else nearest
            self._owners[number] = found = (nearest if whole < 0 else whole, nearest)
        return found


class _Use:
    """Everything that one kind of unit did: an operation with its shapes and its kernels, in one regime."""

    __slots__ = ("durations", "facts", "kernels", "regime")

    def __init__(self, facts: int, regime: str | None) -> None:
        self.facts, self.regime = facts, regime
        self.durations = array("d")
        self.kernels: dict[tuple[int, Any, Any], list[float]] = {}  # name, grid and block to launches and time

    def add(self, slices: Sequence[_Slice]) -> None:
        self.durations.append(sum(item.dur for item in slices))
        for item in slices:
            use = self.kernels.setdefault((item.name, item.grid, item.block), [0.0, 0.0])
            use[0] += 1
            use[1] += item.dur


class _Captured(NamedTuple):
    """A kernel as it was launched into a graph."""

    name: str  # empty where the runtime does not record it
    owner: int  # the operation in its trace
    facts: OpFacts


def _read_events(trace: Trace) -> _Events:
    events = _Events()
    collects = gc.isenabled()
    gc.disable()  # nothing that is parsed has a cycle, and a collection looks at all of it
    try:
        for batch in trace.batches():
            events.add(batch)
    finally:
        if collects:
            gc.enable()
    return events


def _read_captured(path: str) -> list[_Captured]:
    """Return the launches into a graph in their order, from the trace of its capture: those whose kernel did not run then.

    Raises:
        ValueError: with one line that names the file.
    """
    trace = Trace(path)
    events = _read_events(trace)
    ops, ran = _Ops(events), {item.correlation for item in events.slices}
    captured = []
    for launch in sorted(events.launches.values(), key=lambda launch: launch.at):
        if launch.is_graph or launch.correlation in ran:
            continue
        number = ops.by_id.get(launch.external, -1) if launch.external is not None else -1
        number = ops.around(launch.thread, launch.at) if number < 0 else number
        if number >= 0:
            owner = ops.owners(number)[0]
            captured.append(_Captured(clean_name(launch.kernel), owner, ops.facts[ops.events[owner][3]]))
    if not captured:
        raise ValueError(f"{trace.label}: no launch into a graph in it: expected the trace of a graph's capture")
    return captured


def _match_captured(
    replayed: Sequence[tuple[_Slice, RangeFacts | None]], captured: Sequence[_Captured], names: Sequence[str]
) -> dict[int, tuple[int, _Captured]]:
    """Return for each replayed kernel, by its place, which replay it is of and what was captured.

    The replays of a graph launch its kernels again in its order, so the n-th kernel of a name is the n-th that was captured.
    A name that was replayed another number of times than a multiple of its captures stays unknown.
    """
    has_names = all(one.name for one in captured)
    places: dict[str, list[int]] = defaultdict(list)
    for at, one in enumerate(captured):
        places[one.name if has_names else ""].append(at)
    order = sorted(range(len(replayed)), key=lambda at: replayed[at][0].start)
    seen: dict[str, list[int]] = defaultdict(list)
    for at in order:
        seen[names[replayed[at][0].name] if has_names else ""].append(at)
    found = {}
    for name, ats in seen.items():
        known = places.get(name)
        if known and len(ats) % len(known) == 0:
            for number, at in enumerate(ats):
                found[at] = (number // len(known), captured[known[number % len(known)]])
    return found


def read(path: str, shapes_from: str | None = None) -> Profile:
    """Read a trace.

    shapes_from: the trace of the capture of the graphs that this one replays, which has the shapes of their kernels.

    Raises:
        ValueError: with one line that names the file.
    """
    captured = _read_captured(shapes_from) if shapes_from else []
    trace = Trace(path)
    events = _read_events(trace)
    problems = list(trace.problems)
    label = trace.label
    if events.broken:
        problems.append(f"{label}: {events.broken} events have no usable time or name: left out")
    if events.negative:
        problems.append(f"{label}: {events.negative} slices have a negative duration: left out")
    names = [clean_name(name) for name in events.names]
    kinds = [is_collective(name) for name in names]
    slices, clipped = _clip(events.slices)
    if clipped:
        problems.append(
            f"{label}: {clipped} slices overlap the next of their queue: clipped to its start, their durations are wrong"
        )
    timelines = _timelines(slices, kinds)
    slices = [item for item in slices if item.kind != "copy" or names[item.name].startswith("Memcpy DtoD")]
    if not any(item.kind == "kernel" for item in slices):
        raise ValueError(f"{label}: no GPU kernel in it: was the activity CUDA profiled?")
    units, steps, lost = _units(events, slices, names, kinds, captured)
    if lost:
        problems.append(
            f"{label}: {lost} kernels have neither an operation nor a launch in the trace, so their shapes are unknown"
        )
    device, doubt = _device(trace.metadata, {str(item.queue[0]) for item in slices})
    problems += [f"{label}: {line}" for line in doubt]
    rank = trace.metadata.get("distributedInfo")
    rank = rank.get("rank") if isinstance(rank, dict) else None
    return Profile(
        source="torch profiler trace",
        label=label,
        units=tuple(units),
        device=device,
        timelines=tuple(timelines),
        rank=rank if isinstance(rank, int) else None,
        problems=tuple(problems),
        steps=tuple(steps),
    )


def _clip(slices: list[_Slice]) -> tuple[list[_Slice], int]:
    """Return the slices, those with a duration that overflowed clipped to the next start of their queue, and their count."""
    queues: dict[Any, list[int]] = defaultdict(list)
    for number, item in enumerate(slices):
        queues[item.queue].append(number)
    suspects = []
    for numbers in queues.values():
        numbers.sort(key=lambda number: slices[number].start)
        for number, after in zip(numbers, numbers[1:]):
            item, following = slices[number], slices[after]
            if item.start < following.start and item.start + item.dur > following.start + following.dur:
                suspects.append((number, following.start))
    if not suspects:
        return slices, 0
    by_name: dict[int, list[float]] = defaultdict(list)
    for item in slices:
        by_name[item.name].append(item.dur)
    clipped = 0
    for number, start in suspects:
        item = slices[number]
        others = sorted(by_name[item.name])
        if item.dur > _OVERFLOWED * others[(len(others) - 1) // 2] or len(others) == 1:
            slices[number] = item._replace(dur=start - item.start)
            clipped += 1
    return slices, clipped


def _timelines(slices: Sequence[_Slice], kinds: Sequence[bool]) -> list[Timeline]:
    devices: dict[Any, list[_Slice]] = defaultdict(list)
    for item in slices:
        devices[item.queue[0]].append(item)
    timelines = []
    for device, items in devices.items():
        items.sort(key=lambda item: item.start)
        timeline = merge_intervals(str(device), ((item.start, item.start + item.dur, _kind(item, kinds)) for item in items))
        if timeline is not None:
            timelines.append(timeline)
    return timelines


def _kind(item: _Slice, kinds: Sequence[bool]) -> int:
    return COPY if item.kind != "kernel" else COMMUNICATION if kinds[item.name] else COMPUTE


def _units(
    events: _Events,
    slices: Sequence[_Slice],
    names: Sequence[str],
    kinds: Sequence[bool],
    captured: Sequence[_Captured],
) -> tuple[list[Unit], list[Unit], int]:
    """Return the units by time, the steps inside of some, and how many kernels have no operation and no launch."""
    ops, ranges = _Ops(events), _Ranges(events.ranges)
    owned: dict[int, list[_Slice]] = defaultdict(list)
    inner: dict[tuple[int, int], list[_Slice]] = defaultdict(list)
    places: dict[int, RangeFacts | None] = {}
    uses: dict[Any, _Use] = {}
    alone = _Alone()
    replayed: list[tuple[_Slice, RangeFacts | None]] = []  # whose capture may be known
    lost = 0
    has_correlation = bool(events.launches)
    for item in slices:
        if kinds[item.name]:  # a collective is a unit of its own
            alone.add(item, None, "")
            continue
        launch = events.launches.get(item.correlation) if item.correlation is not None else None
        number = -1
        if not has_correlation and item.external is not None:
            launch = events.launches_by_id.get(item.external)
        elif item.external is not None:
            number = ops.by_id.get(item.external, -1)
        if number < 0 and launch is not None:
            number = ops.by_id.get(launch.external, -1) if launch.external is not None and has_correlation else -1
            if number < 0:
                number = ops.around(launch.thread, launch.at)
        if number < 0 and not has_correlation and item.external is not None:
            number = ops.by_id.get(item.external, -1)
        if launch is not None and launch.is_graph:  # whatever operation is around the launch of the graph
            number = -1
        if number < 0:
            where = ranges.find(launch.thread, launch.at) if launch else ranges.find(item.queue, item.start)
            missing = "no_launch" if launch is None else "graph_replay" if launch.is_graph else "no_operation"
            lost += launch is None and item.kind == "kernel"
            if missing == "graph_replay" and captured:
                replayed.append((item, where))
            else:
                alone.add(item, where, missing if ops.events or missing == "graph_replay" else "")
            continue
        owner, step = ops.owners(number)
        if step != owner:
            inner[owner, step].append(item)
        if owner not in places:
            thread, start = ops.events[owner][:2]
            places[owner] = ranges.find(thread, start) or ranges.find(item.queue, item.start)
        owned[owner].append(item)
    facts_list = ops.facts
    numbers: dict[OpFacts, int] = dict(events.facts)
    for owner, items in owned.items():
        where = places[owner]
        facts = ops.events[owner][3]
        if where is not None and where.batch is not None and _is_attention(facts_list[facts].name):
            special = facts_list[facts]._replace(batch=where.batch)
            facts = numbers.setdefault(special, len(numbers))
            if facts == len(facts_list):
                facts_list.append(special)
        regime = where.regime if where else None
        main = max(items, key=lambda item: item.dur).name
        key = (facts, main, regime)
        use = uses.get(key)
        if use is None:
            use = uses[key] = _Use(facts, regime)
        use.add(items)
    units = [_unit(use, names, facts_list[use.facts]) for use in uses.values()]
    for item, where in _take_captured(replayed, captured, names, facts_list, numbers, units):
        alone.add(item, where, "graph_replay")
    units += _lonely_units(alone, uses, names, facts_list)
    units.sort(key=lambda unit: -unit.times.total_us)
    steps: dict[Any, _Use] = {}
    for (owner, step), items in inner.items():
        where, facts = places[owner], ops.events[step][3]
        regime = where.regime if where else None
        steps.setdefault((facts, ops.events[owner][3], regime), _Use(facts, regime)).add(items)
    inside = [
        _unit(use, names, facts_list[use.facts])._replace(inside=facts_list[outer].name) for (_, outer, _), use in steps.items()
    ]
    return units, inside, lost


def _take_captured(
    replayed: Sequence[tuple[_Slice, RangeFacts | None]],
    captured: Sequence[_Captured],
    names: Sequence[str],
    facts_list: list[OpFacts],
    numbers: dict[OpFacts, int],
    units: list[Unit],
) -> list[tuple[_Slice, RangeFacts | None]]:
    """Add the units of replayed kernels whose capture is known to ``units``; return the other kernels."""
    found = _match_captured(replayed, captured, names)
    calls: dict[tuple[int, int], list[_Slice]] = defaultdict(list)
    facts_of: dict[tuple[int, int], tuple[OpFacts, str | None]] = {}
    for at, (replay, one) in found.items():
        item, where = replayed[at]
        facts = one.facts
        if where is not None and where.batch is not None and _is_attention(facts.name):
            facts = facts._replace(batch=where.batch)
        calls[replay, one.owner].append(item)
        facts_of[replay, one.owner] = (facts, where.regime if where else None)
    uses: dict[Any, _Use] = {}
    for key, items in calls.items():
        facts, regime = facts_of[key]
        number = numbers.setdefault(facts, len(numbers))
        if number == len(facts_list):
            facts_list.append(facts)
        uses.setdefault((number, max(items, key=lambda item: item.dur).name, regime), _Use(number, regime)).add(items)
    units += [_unit(use, names, facts_list[use.facts], "shapes of the trace of the graph's capture") for use in uses.values()]
    return [entry for at, entry in enumerate(replayed) if at not in found]


def _is_attention(name: str) -> bool:
    low = name.lower()
    return any(word in low for word in ("attention", "attn", "mha", "mla", "fmha"))


def _unit(use: _Use, names: Sequence[str], facts: OpFacts | None, borrowed: str = "", missing: str = "") -> Unit:
    kernels = [
        KernelUse(names[name], launches, total, grid, block) for (name, grid, block), (launches, total) in use.kernels.items()
    ]
    kernels.sort(key=lambda kernel: -kernel.total_us)
    return Unit(tuple(kernels), times_of(use.durations), facts, use.regime, borrowed, use.durations, missing)


class _Alone:
    """Kernels without an operation, by name, grid, regime and why it is missing."""

    def __init__(self) -> None:
        self.groups: dict[Any, _Use] = {}

    def add(self, item: _Slice, where: RangeFacts | None, missing: str) -> None:
        regime = where.regime if where else None
        key = (item.name, item.grid, item.block, regime, missing)
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = _Use(-1, regime)
        group.add((item,))


def _lonely_units(alone: _Alone, uses: Mapping[Any, _Use], names: Sequence[str], facts_list: Sequence[OpFacts]) -> list[Unit]:
    """Return the units of kernels without an operation, as those of a replayed graph.

    They take the operation of other launches with the same kernel and grid, where there is one alone and the times agree.
    """
    donors: dict[Any, dict[int, list[float]]] = defaultdict(dict)
    for use in uses.values():
        if len(use.kernels) == 1:
            ((name, grid, block),) = use.kernels
            if grid:
                donors[name, grid, block].setdefault(use.facts, []).extend(use.durations)
    units = []
    merged: dict[Any, _Use] = {}
    for (name, grid, block, regime, missing), group in alone.groups.items():
        donor = donors.get((name, grid, block))
        if donor and len(donor) == 1:
            ((facts, durations),) = donor.items()
            ratio = (times_of(group.durations).median_us or 0.0) / (times_of(durations).median_us or math.inf)
            if 1 / _SAME_TIME <= ratio <= _SAME_TIME:
                basis = f"shapes of {len(durations)} other launches of the same kernel with the same grid"
                units.append(_unit(group, names, facts_list[facts], basis))
                continue
        rest = merged.setdefault((name, regime, missing), _Use(-1, regime))
        rest.durations.extend(group.durations)
        rest.kernels.update(group.kernels)
    return units + [_unit(use, names, None, missing=missing) for (_, _, missing), use in merged.items()]


# The device.

_ARCHS = {(9, 4): "gfx942", (9, 5): "gfx950"}


def _device(metadata: Mapping[str, Any], used: set[str]) -> tuple[Device, list[str]]:
    """Return the device that the kernels ran on, and remarks. ROCm numbers devices in another way than it lists them."""
    listed = metadata.get("deviceProperties")
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    if not entries:
        return Device(), []
    chosen = [entry for entry in entries if str(entry.get("id")) in used] or entries
    names = list(dict.fromkeys(str(entry.get("name") or "") for entry in chosen))
    doubt = (
        [f"devices of several kinds are listed ({', '.join(map(repr, names))}): the first is taken"] if len(names) > 1 else []
    )
    entry = chosen[0]
    major, minor = entry.get("computeMajor"), entry.get("computeMinor")
    memory = entry.get("totalGlobalMem")
    is_amd = entry.get("warpSize") == 64 or any(key.startswith(("hip", "roc")) for key in metadata)
    gfx = None
    if isinstance(major, int) and isinstance(minor, int):
        if not is_amd:
            gfx = f"sm_{major}{minor}"
        else:
            gfx = _ARCHS.get((major, minor))
            if (major, minor) == (9, 0) and isinstance(memory, (int, float)):
                gfx = "gfx90a" if memory > 40e9 else None  # MI210 and MI250 have 64 GB, MI100 32 GB
    units = entry.get("numSms")
    return (
        Device(
            gfx=gfx,
            device_name=str(entry.get("name") or "") or None,
            cu_count=units if isinstance(units, int) and units > 0 else None,
            memory_bytes=float(memory) if isinstance(memory, (int, float)) and memory > 0 else None,
        ),
        doubt,
    )
