"""Read the inputs of a run: the Top-N as JSON or CSV, env_report.json, shapes.json, and targets.

Every reader returns values, with one line for each that could not be used: file, row, key, what was expected. A bad row never
costs the others.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from .fields import REGIMES
from .files import Problems, condense, read_json, read_table, read_text
from .kernels import clean_name, is_copy, short_name
from .ops import op_name
from .peaks import Device, Target
from .peaks_table import normalize_name
from .units import number, printable, whole

TOPN_NAME = "profile_topN.json"
ENV_NAME = "env_report.json"
CONFIG_NAME = "config.json"
SHAPES_NAME = "shapes.json"

#: A share is a percentage; the slack is for lists whose rounded rows run a little over.
_LARGEST_SHARE = 100.5
_SUM_OF_ROWS = "the sum of the listed rows"
#: Points of a share that rounding, or a total with a little idle time in it, may move.
_SHARE_SLACK = 1.0
#: An empty launch takes 1 us or more; a shorter time per call is the time of one call, divided by all.
_SHORTEST_US = 0.1


#: A mean with a maximum this many times the mean, or a standard deviation this many times it, is not the time of a typical
#: launch. Our own values: launches of one kernel and shape differ by less than 2x in the traces that we have read; a mean that
#: one stalled launch moved differs from the median by more.
_FAR_MAX, _FAR_STD = 5.0, 1.0
#: One launch moved the mean where it is this many times that of the others, and the others' is within this of the shortest.
_MOVED, _ALIKE = 1.1, 1.5


class Times(NamedTuple):
    """The times of all calls of one thing."""

    calls: float
    total_us: float
    median_us: float | None = None
    min_us: float | None = None
    max_us: float | None = None
    std_us: float | None = None

    @property
    def mean_us(self) -> float:
        return self.total_us / self.calls


def times_of(durations: Sequence[float]) -> Times:
    """Return the times of these durations, of which there is at least one."""
    ordered = sorted(durations)
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    return Times(len(ordered), sum(ordered), median, ordered[0], ordered[-1])


class TypicalTime(NamedTuple):
    """The time of one call, as far as the spread lets it be known."""

    t_us: float
    basis: str  # median, mean or minimum, and why
    is_noisy: bool = False  # the spread contradicts it, and the file has no better one: no verdict


def typical_time(times: Times) -> TypicalTime:
    """Return the median where it is known, else the mean unless its own spread contradicts it.

    A mean that the longest launch alone made gives way to the mean of the others, any other to the minimum.
    """
    mean, longest, shortest = times.mean_us, times.max_us, times.min_us
    if not (1 - _ROUNDED) * (shortest or 0.0) <= mean <= (1 + _ROUNDED) * (longest or mean):
        return TypicalTime(mean, "mean (its minimum and maximum, which do not contain it, are not used)")
    if times.median_us is not None:
        return TypicalTime(times.median_us, "median")
    if longest is not None and shortest is not None and times.calls > 1:
        others = (times.total_us - longest) / (times.calls - 1)
        if others > 0 and mean > _MOVED * others and shortest <= others <= _ALIKE * shortest:
            return TypicalTime(others, f"mean without the longest one, which took {longest:.4g} us,")
    far = longest is not None and longest > _FAR_MAX * mean
    wide = times.std_us is not None and times.std_us > _FAR_STD * mean
    if not (far or wide):
        return TypicalTime(mean, "mean")
    spread = f"the mean {mean:.4g} us has a {'maximum' if far else 'standard deviation'} of "
    spread += f"{longest if far else times.std_us:.4g} us"
    if shortest:
        return TypicalTime(shortest, f"minimum (since {spread})")
    return TypicalTime(mean, f"mean, but {spread} and the file has no median or minimum,", is_noisy=True)


class Row(NamedTuple):
    """One kernel of the Top-N. Times are in ms."""

    name: str
    short_name: str
    pct: float  # its share of GPU time, in percent
    pct_basis: str = ""  # where pct is computed from times: the total it is a share of
    calls: float | None = None
    avg_ms: float | None = None  # of a typical launch, where the list has the spread of its launches
    times: Times | None = None  # of all launches, where the list has more than their mean
    base_latency_ms: Mapping[str, float] = {}
    classification: str = ""
    regime: str | None = None
    editable: bool | None = None
    launches_per_step: float | None = None
    backend: str | None = None
    shapes: object = None
    dtypes: object = None
    est_shape: object = None
    # Of a profile that ties kernels to the operations that launched them:
    unit: str = ""  # what its time and calls are of, in words
    case: Mapping[str, object] | None = None  # its shapes, as a case of shapes.json
    unmodeled: str = ""  # why it has no case
    compute_pct: float | None = None  # its share of the time without communication, which decides whether it is in the head
    missing: str = ""  # why its operation or its shapes are unknown: a key of profiles.form.MISSING
    framework_op: str | None = None  # the operation: aten::mm
    shape: str | None = None  # the operation's inputs, for people
    remarks: tuple[str, ...] = ()  # what the time and the shapes rest on


class Copy(NamedTuple):
    """A row of the Top-N that is a copy or a fill by the runtime: it is no kernel, so it has no headroom."""

    name: str
    pct: float | None  # its share of GPU time, in percent; None where the list gives none


class TopN(NamedTuple):
    """A Top-N list."""

    rows: tuple[Row, ...]
    decode_steps: float | None = None  # None is unknown
    prefill_steps: float | None = None
    copies: tuple[Copy, ...] = ()
    problems: tuple[str, ...] = ()
    assumed_regime: str = "decode"  # of a row that nothing tells the regime of; a trace tells it or it is unknown


class Env(NamedTuple):
    """What the analysis uses of env_report.json."""

    device: Device = Device()
    analysis_skill: str = ""
    model_dtype: str | None = None
    kv_dtype: str | None = None
    isl: float | None = None
    osl: float | None = None
    conc: float | None = None
    prefill_tokens: float | None = None
    tensor_parallel: int | None = None
    expert_parallel: int | None = None
    data_parallel: int | None = None
    backends: tuple[str, ...] = ()
    rocm_version: str | None = None
    problems: tuple[str, ...] = ()


def find(folder: str, name: str, levels: int) -> str | None:
    """Find ``name`` in ``folder`` or up to ``levels`` folders above it."""
    folder = os.path.abspath(folder)
    for _ in range(levels + 1):
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            return path
        folder = os.path.dirname(folder)
    return None


T = TypeVar("T")


class _Reader:
    """Reads the keys of one mapping; ``problems`` gets one line for each that cannot be used."""

    def __init__(self, data: Mapping[str, object], where: str, problems: Problems) -> None:
        self.data, self.where, self.problems = data, where, problems

    def wrong(self, text: str) -> None:
        """Keep one line about what cannot be used."""
        self.problems.add(f"{self.where}: {text}")

    def _first(self, keys: tuple[str, ...], read: Callable[[object, str], T | None]) -> T | None:
        """The value of the first of ``keys`` that the mapping has and ``read`` takes."""
        for key in keys:
            try:
                value = read(self.data[key], key) if self.data.get(key) is not None else None
            except ValueError as error:
                self.wrong(str(error))
                continue
            if value is not None:
                return value
        return None

    def number(self, *keys: str, above: float | None = None, minimum: float | None = None) -> float | None:
        return self._first(keys, partial(number, above=above, minimum=minimum))

    def time_ms(self, keys_ms: tuple[str, ...], keys_us: tuple[str, ...], **limit: float) -> float | None:
        """A time in ms, from a key in ms, else from one in us."""
        time_ms = self.number(*keys_ms, **limit)
        time_us = self.number(*keys_us, **limit) if time_ms is None else None
        return time_ms if time_us is None else time_us / 1e3

    def whole(self, *keys: str) -> int | None:
        return self._first(keys, whole)

    def text(self, *keys: str) -> str | None:
        def read(value: object, key: str) -> str | None:
            if not isinstance(value, str):
                raise ValueError(f"{key} is {type(value).__name__}, expected text")
            return value if value.strip() else None

        return self._first(keys, read)

    def group(self, key: str) -> _Reader:
        """A nested object; anything else is named and read as empty."""
        value = self.data.get(key)
        if value is not None and not isinstance(value, Mapping):
            self.wrong(f"{key} is {type(value).__name__}, expected an object")
        return _Reader(value if isinstance(value, Mapping) else {}, f"{self.where}: {key}", self.problems)

    def flag(self, key: str) -> bool | None:
        value = self.data.get(key)
        if value is not None and not isinstance(value, bool):
            self.wrong(f"{key} is {value!r:.40}, expected true or false")
        return value if isinstance(value, bool) else None


def read_topn(data: object, label: str) -> TopN:
    """Read a Top-N: ``top_kernels`` of the standard form, or a list of kernels with times as profilers write them.

    A share that a row lacks is computed from the times of the list. A row without a share is named in ``problems`` and left
    out, since its weight is unknown.

    Raises ValueError when the document has no list of kernels.
    """
    problems = Problems()
    top: Mapping[str, object] = data if isinstance(data, Mapping) else {}
    listed = next((item for item in (data, top.get("top_kernels"), top.get("kernels")) if isinstance(item, list)), None)
    if listed is None:
        raise ValueError(f"{label}: the list 'top_kernels' or 'kernels' is missing, expected a Top-N profile")
    reader = _Reader(top, label, problems)
    given_ms = reader.time_ms(("total_gpu_time_ms", "total_gpu_ms", "total_ms"), ("total_us",), above=0)
    readers = []
    for index, raw in enumerate(listed, 1):
        if isinstance(raw, Mapping):
            readers.append(_Reader(raw, f"{label}: row {index}", problems))
        else:
            problems.add(f"{label}: row {index} is {type(raw).__name__}, expected an object with name and times")
    times = [row.time_ms(("total_ms", "ms"), ("us", "total_us"), minimum=0) for row in readers]
    total_ms = given_ms or sum(time for time in times if time is not None) or None
    read = (_row(row, ms, total_ms, given_ms is not None) for row, ms in zip(readers, times))
    listed_rows = [row for row in read if row is not None]
    rows = tuple(row for row in listed_rows if not is_copy(row.name))
    copies = tuple(Copy(row.name, row.pct) for row in listed_rows if is_copy(row.name))
    serving = reader.group("serving")
    decode, prefill = (serving.number(key, minimum=0) for key in ("n_decode_steps", "n_prefill_steps"))
    return TopN(rows, decode, prefill, copies, (*problems.lines, *doubtful_shares(label, listed_rows)))


def doubtful_shares(label: str, rows: Sequence[Row]) -> list[str]:
    """Return a line when the shares of a list cannot be percentages of one total."""
    if rows and max(row.pct for row in rows) <= 1.0 and not any(row.pct_basis for row in rows):
        return [f"{label}: no share is over 1: are they fractions? pct_gpu_time is a percentage"]
    total = sum(row.pct for row in rows)
    line = f"{label}: the shares add up to {total:.1f} %: they are not of one total, so no gain is right"
    return [line] if total > 101 else []


def _row(row: _Reader, row_ms: float | None, total_ms: float | None, total_is_given: bool) -> Row | None:
    name = row.text("name", "kernel")
    if name is None:
        row.wrong("no name, expected a kernel name under 'name' or 'kernel'")
        return None
    row.where += f" ({printable(name)[:60]})"
    calls = row.number("calls", minimum=0)
    if row_ms and calls and 1e3 * row_ms / calls < _SHORTEST_US:
        per_call = f"{1e3 * row_ms:.6g} us over {calls:g} calls are {1e3 * row_ms / calls:.2g} us each"
        row.wrong(f"{per_call}, too short for a launch: is it the time of one? It is not used")
        row_ms = None
    pct, basis = row.number("pct_gpu_time", "pct", minimum=0), ""
    if pct is not None and pct > _LARGEST_SHARE:
        row.wrong(f"pct_gpu_time is {pct}, expected a percentage of at most 100")
        return None
    time_pct = 100.0 * row_ms / total_ms if row_ms and total_ms else None
    if pct is not None and time_pct is not None and total_is_given and abs(pct - time_pct) > _SHARE_SLACK:
        row.wrong(f"pct_gpu_time is {pct:.4g}, but its time is {time_pct:.4g} % of the total given")
    if pct is None:
        if row_ms is None or not total_ms or row_ms > total_ms:
            row.wrong("no usable share: give pct_gpu_time, or total_ms and the list's total")
            return None
        pct, basis = 100.0 * row_ms / total_ms, "the list's total" if total_is_given else _SUM_OF_ROWS
    avg_us = row.number("avg_us", "us_per_call", above=0)
    if avg_us is None and row_ms and calls:
        avg_us = 1e3 * row_ms / calls
    times = None
    spread = [row.number(f"t_us_{key}", above=0) for key in ("median", "min", "max", "std")]
    if avg_us is not None and any(value is not None for value in spread):
        times = Times(calls or 1.0, avg_us * (calls or 1.0), *spread)
        avg_us = typical_time(times).t_us
    latency = row.data.get("base_latency_ms")
    if isinstance(latency, Mapping):
        group = row.group("base_latency_ms")
        latencies = {str(key): group.number(key, above=0) for key in latency}
    else:
        latencies = {"": row.number("base_latency_ms", above=0)}
    regime = next(iter((row.text("regime") or "").lower().split()), None)
    if regime not in (None, *REGIMES):
        row.wrong(f"regime is {row.data.get('regime')!r:.40}, expected decode or prefill")
        regime = None
    return Row(
        name=name,
        short_name=row.text("short_name") or short_name(name),
        pct=pct,
        pct_basis=basis,
        calls=calls,
        avg_ms=avg_us / 1e3 if avg_us is not None else None,
        times=times,
        base_latency_ms={key: ms for key, ms in latencies.items() if ms is not None},
        classification=row.text("classification", "cat") or "",
        regime=regime,
        editable=row.flag("editable"),
        launches_per_step=row.number("launches_per_step", above=0),
        backend=row.text("backend_guess"),
        shapes=row.data.get("shapes"),
        dtypes=row.data.get("dtypes"),
        est_shape=row.data.get("est_shape"),
    )


def read_env(data: object, label: str) -> Env:
    """Read env_report.json; other keys are ignored. Raises ValueError when it is not an object."""
    if not isinstance(data, Mapping):
        raise ValueError(f"{label}: is {type(data).__name__}, expected an object with gfx, model_dtype and workload")
    problems = Problems()
    env = _Reader(data, label, problems)
    load = env.group("workload")
    backends = data.get("available_backends")
    if backends is not None and not isinstance(backends, list):
        problems.add(f"{label}: available_backends is {type(backends).__name__}, expected a list")
    device = Device(
        gfx=env.text("gfx", "gcnArchName", "compute_capability"),
        device_name=env.text("device_name", "gpu_name"),
        cu_count=env.whole("cu_count", "multi_processor_count"),
        memory_bytes=env.number("memory_bytes", "total_memory", above=0),
        clock_khz=env.number("clock_khz", "clock_rate", "clockRate", above=0),
        memory_clock_khz=env.number("memory_clock_khz", "memory_clock_rate", "memoryClockRate", above=0),
        run_clock_khz=env.number("run_clock_khz", above=0),
        memory_bus_bits=env.number("memory_bus_bits", "memory_bus_width", "memoryBusWidth", above=0),
    )
    return Env(
        device=device,
        analysis_skill=(env.text("analysis_skill") or "").strip().lower(),
        model_dtype=env.text("model_dtype"),
        kv_dtype=env.text("kv_cache_dtype", "kv_dtype"),
        isl=load.number("isl", minimum=1),
        osl=load.number("osl", minimum=0),
        conc=load.number("conc", minimum=1),
        prefill_tokens=load.number("prefill_tokens", "max_num_batched_tokens", minimum=1),
        tensor_parallel=env.whole("tp", "tensor_parallel_size") or load.whole("tp"),
        expert_parallel=env.whole("ep", "expert_parallel_size") or load.whole("ep"),
        data_parallel=env.whole("dp", "data_parallel_size", "dp_size") or load.whole("dp"),
        backends=tuple(item for item in backends if isinstance(item, str)) if isinstance(backends, list) else (),
        rocm_version=env.text("rocm_version"),
        problems=tuple(problems.lines),
    )


class Surroundings(NamedTuple):
    """What profilers write about the machine to files beside a profile."""

    device: Device = Device()
    archs: tuple[str, ...] = ()  # the architectures of all GPUs
    rocm_version: str | None = None
    problems: tuple[str, ...] = ()


#: What follows the common beginning of the files that one run of rocprofv3 writes.
_ENDINGS = re.compile(
    r"(counter_collection|kernel_trace|kernel_stats|domain_stats|memory_copy_trace|memory_copy_stats|hip_api_trace|hip_api_stats"
    r"|hip_stats|hip_trace|results|out)\.(csv|json|db)$"
)
#: Models of rocprof-compute that are one product: MI300X_A1 is, MI200 is a family.
_MODEL = re.compile(r"(MI\d{3}[AX]|MI100)(_A\d)?$")


def read_surroundings(path: str) -> Surroundings:
    """Read sysinfo.csv of rocprof-compute and agent_info.csv of rocprofv3 beside a profile; unreadable files are left out."""
    folder, name = os.path.split(os.path.abspath(path))
    devices: dict[str, Device] = {}
    rocm = None
    for item in ("sysinfo.csv", f"{_ENDINGS.sub('', name)}agent_info.csv"):
        if item == name or not os.path.isfile(os.path.join(folder, item)):
            continue
        try:
            table = read_table(read_text(os.path.join(folder, item)), item, _is_machine)
        except ValueError:
            continue
        arch_at, rocm_at = table.column("gpu_arch", "Name"), table.column("rocm_version")
        product_at, units_at = table.column("gpu_model", "Product_Name"), table.column("cu_per_gpu", "Cu_Count")
        for line, cells in table.rows:
            arch = cells[arch_at].strip() if arch_at is not None else ""
            if rocm is None and rocm_at is not None:
                rocm = cells[rocm_at].strip() or None
            if not arch.startswith("gfx"):  # a CPU
                continue
            product = cells[product_at].strip() if product_at is not None else ""
            model = _MODEL.match(product)
            product = model[1] if model else product
            units = cells[units_at].strip() if units_at is not None else ""
            devices[f"{item} {line}"] = amd_device(arch, product, int(units) if units.isdigit() else None)
        if devices:
            break
    device, doubts = choose_device(devices)
    return Surroundings(device, tuple(sorted({item.gfx for item in devices.values() if item.gfx})), rocm, tuple(doubts))


def _is_machine(header: Sequence[str]) -> bool:
    return "gpu_arch" in header or "Gfx_Target_Version" in header


def amd_device(gfx: str, product: str, units: int | None, memory_bytes: float | None = None) -> Device:
    """Return the device of these facts. A product name such as ``AMD Radeon Graphics`` is a driver's, and names no product."""
    is_named = re.search(r"\bMI(100|\d{3}[AX])|\bRX |\bPRO |\bW\d", product) is not None
    return Device(
        gfx=gfx if gfx.startswith("gfx") else None,
        device_name=product if is_named else None,
        cu_count=units or None,
        memory_bytes=memory_bytes,
    )


def choose_device(devices: Mapping[str, Device]) -> tuple[Device, list[str]]:
    """Return the first device, and a line where they are of several kinds."""
    kinds = list(dict.fromkeys(devices.values()))
    if len({(kind.gfx, kind.device_name, kind.cu_count) for kind in kinds}) <= 1:
        return (kinds[0] if kinds else Device()), []
    named = ", ".join(printable(kind.device_name or kind.gfx or "unknown") for kind in kinds)
    return kinds[0], [f"devices of several kinds ran kernels ({named}): the first is taken"]


def read_shapes(data: object, label: str) -> tuple[dict[str, list[dict[str, object]]], list[str]]:
    """Read shapes.json: kernel name to cases; one case needs no list. Raises ValueError when it is not an object."""
    if not isinstance(data, Mapping):
        raise ValueError(f"{label}: is {type(data).__name__}, expected an object of kernel name to list of cases")
    shapes: dict[str, list[dict[str, object]]] = {}
    problems = []
    for name, cases in data.items():
        if isinstance(cases, Mapping):
            cases = [cases]
        if isinstance(cases, list) and cases and all(isinstance(case, Mapping) for case in cases):
            shapes[str(name)] = [{str(key): value for key, value in case.items()} for case in cases]
        else:
            problems.append(f"{label}: {printable(str(name))[:60]}: expected a list of cases like {{'op': 'gemm', 'M': 64}}")
    return shapes, problems


_UNITS_MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}
#: An average may be rounded to a unit of its column.
_ROUNDED = 0.02
#: Rows of domain_stats and hip_api_stats: time of the host.
_DOMAIN = re.compile(r"(HIP|HSA|MARKER|RCCL|ROCDECODE|ROCJPEG|OMPT|KERNEL|MEMORY|SCRATCH)_[A-Z_]+$")
_API = re.compile(r"(__hip|hip|cuda|cu|hsaKmt)[A-Z]\w*$|hsa_\w+$")


#: The columns of the spread of a kernel's launches: median, minimum, maximum and standard deviation, by either tool's versions.
_SPREAD = (("Med", "Median", "MedianNs"), ("MinNs", "Min", "Minimum"), ("MaxNs", "Max", "Maximum"), ("StdDev", "StdDevNs"))


def is_topn_csv(name: str) -> bool:
    """Whether a file's name, with or without its folder, is that of a Top-N CSV."""
    low = os.path.basename(name).lower()
    return low.endswith(".csv") and any(mark in low for mark in ("kernel_stats", "kern_sum", "gpukernsum", "results.stats."))


def read_topn_csv(text: str, label: str) -> TopN:
    """Read a Top-N as rocprofv3 (``kernel_stats``) and nsys (``cuda_gpu_kern_sum``) write it to CSV.

    Shares are copied, never renormalized, since a list may be cut.

    Raises ValueError when it lists no kernels but API calls, domains or copies, or nothing.
    """
    table = read_table(text, label, lambda header: "Name" in header and len(header) > 2)
    name_at = table.column("Name")
    calls_at = table.column("Calls", "Instances", "Count")
    pct_at = table.column("Percentage", "Time (%)", "Time(%)")
    total_at, total_ms = _time_column(table.header, ("TotalDurationNs", "Total Time"))
    avg_at, avg_ms = _time_column(table.header, ("AverageNs", "Avg", "Average"))
    spread_at = [_time_column(table.header, titles) for titles in _SPREAD]
    if table.column("Num Calls") is not None:
        raise ValueError(f"{label}: API calls of the host, not kernels: give kernel_stats or cuda_gpu_kern_sum")
    if name_at is None or calls_at is None or (pct_at is None and total_at is None):
        raise ValueError(f"{label}: expected the columns of kernel_stats or cuda_gpu_kern_sum")
    problems = Problems((*table.problems, *_name_others(label, [cells[name_at] for _, cells in table.rows])))
    listed = 0.0
    if pct_at is None and total_at is not None:
        listed = sum(Problems().attempt(number, cells[total_at], "", minimum=0) or 0.0 for _, cells in table.rows)
    rows: list[Row] = []
    copies: list[Copy] = []
    for line, cells in table.rows:
        name = cells[name_at].strip()
        if not name:
            problems.add(f"{label}: line {line} has no name: left out")
        if is_copy(name):
            copies.append(Copy(name, None if pct_at is None else Problems().attempt(number, cells[pct_at], "", minimum=0)))
        if not name or _not_kernels(name):
            continue
        where = f"{label}: line {line} ({printable(name)[:60]})"
        calls, total, average, pct = (
            None if at is None else problems.attempt(number, cells[at], f"{where}: {table.header[at]}", minimum=0)
            for at in (calls_at, total_at, avg_at, pct_at)
        )
        t_ms = average * avg_ms if average else None
        if total and calls:
            per_call = total * total_ms / calls
            if t_ms and abs(t_ms / per_call - 1) > _ROUNDED:
                problems.add(f"{where}: {t_ms:.6g} ms on average, but {per_call:.6g} ms by total and calls: no time used")
                t_ms = None
            elif t_ms is None:
                t_ms = per_call
        if pct_at is None:
            pct = 100.0 * total / listed if total else None
        if pct is None or pct > _LARGEST_SHARE:
            problems.add(f"{where}: no usable share: left out")
            continue
        name, basis = clean_name(name), _SUM_OF_ROWS if pct_at is None else ""
        spread = [
            None if at is None else problems.attempt(number, cells[at], f"{where}: {table.header[at]}", minimum=0)
            for at, _ in spread_at
        ]
        times = None
        if t_ms and calls and any(spread):
            in_us = (None if value is None else 1e3 * value * to_ms for value, (_, to_ms) in zip(spread, spread_at))
            times = Times(calls, 1e3 * t_ms * calls, *in_us)
            t_ms = typical_time(times).t_us / 1e3
        rows.append(Row(name, short_name(name), pct, pct_basis=basis, calls=calls, avg_ms=t_ms, times=times))
    if not rows:
        raise ValueError(f"{label}: it lists no kernel" + (f": {problems.lines[0]}" if problems.lines else ""))
    lines = condense((*problems.lines, *doubtful_shares(label, rows)))
    return TopN(tuple(rows), copies=tuple(copies), problems=lines)


def _not_kernels(name: str) -> str:
    """What a row is that is not a kernel. A kernel may be named like an API call, so those count only where all rows are."""
    if is_copy(name):
        return "copies"
    return "domains of API or copy time" if _DOMAIN.match(name) else ""


def _name_others(label: str, names: list[str]) -> list[str]:
    """Return one line for each kind of row that is not a kernel. Raises ValueError when no row is one."""
    kinds = [kind for kind in map(_not_kernels, names) if kind]
    if names and len(kinds) == len(names):
        what = " and ".join(dict.fromkeys(kinds))
    elif names and all(map(_API.match, names)):
        what = "API calls of the host"
    else:
        others = (kind for kind in dict.fromkeys(kinds) if kind != "copies")  # those are listed with their share
        return [f"{label}: {kinds.count(kind)} rows are {kind}, not kernels: left out" for kind in others]
    raise ValueError(f"{label}: {what}, not kernels: give kernel_stats or cuda_gpu_kern_sum")


def _time_column(header: tuple[str, ...], names: tuple[str, ...]) -> tuple[int | None, float]:
    """Find a column of times by its name without the unit; return its place and the factor to ms."""
    for at, title in enumerate(header):
        match = re.match(r"(.*?)\s*\((\w+)\)$", title)
        base, unit = match.groups() if match else (title, "ns")
        if base in names and unit in _UNITS_MS:
            return at, _UNITS_MS[unit]
    return None, 1.0


#: The schema of a file of targets: what a good kernel of an op was observed to reach.
TARGETS_SCHEMA = "roofline-targets/1"


def read_targets(path: str) -> dict[tuple[str, str, str, str], Target]:
    """Read the file of ``roofline ledger calibrate --out``: targets by device without its vendor, op, axis and dtype.

    Raises ValueError, which names the file, the row and what was expected; no part of a bad file is used.
    """
    label = printable(path)
    data = read_json(path)
    if not isinstance(data, dict) or data.get("schema") != TARGETS_SCHEMA or not isinstance(data.get("targets"), list):
        raise ValueError(f'{label}: expected "schema": "{TARGETS_SCHEMA}" and a list "targets"')
    targets: dict[tuple[str, str, str, str], Target] = {}
    for at, row in enumerate(data["targets"]):
        where = f"{label}: targets[{at}]"
        if not isinstance(row, dict):
            raise ValueError(f"{where} is not an object")
        device, op, axis, dtype = (_target_key(row, name, where) for name in ("device", "op", "axis", "dtype"))
        if axis not in ("memory", "compute"):
            raise ValueError(f"{where}.axis is {printable(repr(axis))[:60]}, expected memory or compute")
        target = number(row.get("target_eff"), f"{where}.target_eff", above=0)
        if target > 1:
            raise ValueError(f"{where}.target_eff is {target}, expected a fraction of the roof")
        count = int(number(row.get("n"), f"{where}.n", minimum=1))
        device, op = normalize_name(device), op_name(op)
        if (device, op, axis, dtype) in targets:
            raise ValueError(f"{where}: {printable(f'{device}, {op}, {axis}, {dtype}')} is listed twice")
        targets[device, op, axis, dtype] = Target(float(target), count, printable(str(row.get("source", ""))))
    return targets


def _target_key(row: Mapping[str, object], key: str, where: str) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{where}.{key} is {printable(repr(value))[:60]}, expected a name")
    return value
