"""Reading other people's files: the Top-N in its variants, env_report.json, config.json, shapes.json.

Every reader takes parsed JSON and returns values, with one line per thing that could not be used: file, row, key, what
was expected. A bad row never costs the others.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence

from .device import Device
from .record import Record
from .units import number, printable

TOPN_NAME = "profile_topN.json"
ENV_NAME = "env_report.json"
CONFIG_NAME = "config.json"
SHAPES_NAME = "shapes.json"

#: A share is a percentage; the slack is for lists whose rounded rows run a little over.
_LARGEST_SHARE = 100.5
#: Points of a share that rounding, or a total with a little idle time in it, may move.
_SHARE_SLACK = 1.0
_GIVEN = "the list's total"
#: No launch is as short, an empty one is 1 us and more; what comes out shorter is the time of one call, divided by all.
_SHORTEST_US = 0.1
_LARGEST_FILE = 512 * 2**20


class Row(Record):
    """One kernel of the Top-N. Times in ms; ``pct`` as given, or from times, of what ``pct_basis`` says."""

    name: str
    short_name: str
    pct: float
    pct_basis: str = ""
    calls: float | None = None
    avg_ms: float | None = None
    base_latency_ms: Mapping[str, float] = {}
    classification: str = ""
    regime: str | None = None
    editable: bool | None = None
    launches_per_step: float | None = None
    backend: str | None = None
    shapes: object = None
    dtypes: object = None
    est_shape: object = None


class TopN(Record):
    """A Top-N list. decode_steps and prefill_steps are None where the list does not say."""

    rows: tuple[Row, ...]
    decode_steps: float | None = None
    prefill_steps: float | None = None
    problems: tuple[str, ...] = ()


class Env(Record):
    """What env_report.json says that the model uses."""

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


def read_json(path: str) -> object:
    """Parse a JSON file. Raises ValueError with one line that names the file and the place."""
    label = printable(path)
    try:
        if os.path.getsize(path) > _LARGEST_FILE:
            raise ValueError(f"{label}: larger than 512 MiB")
        with open(path, encoding="utf-8-sig") as handle:
            return json.load(handle)
    except OSError as error:
        raise ValueError(f"{label}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{label}: not UTF-8 text (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{label}: not JSON: line {error.lineno} column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise ValueError(f"{label}: nested too deep to read") from None
    except ValueError as error:  # an integer literal longer than Python converts
        raise ValueError(f"{label}: {error}") from None


def find(folder: str, name: str, levels: int) -> str | None:
    """``name`` in ``folder`` or up to ``levels`` folders above it."""
    folder = os.path.abspath(folder)
    for _ in range(levels + 1):
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            return path
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above
    return None


class _Reader:
    """Reads keys of one mapping and keeps one line for each that cannot be used."""

    def __init__(self, data: Mapping[str, object], where: str, problems: list[str]) -> None:
        self.data, self.where, self.problems = data, where, problems

    def number(self, *keys: str, above: float | None = None, minimum: float | None = None) -> float | None:
        for key in keys:
            if self.data.get(key) is None:
                continue
            try:
                return number(self.data[key], key, above=above, minimum=minimum)
            except ValueError as error:
                self.problems.append(f"{self.where}: {error}")
        return None

    def whole(self, *keys: str) -> int | None:
        value = self.number(*keys, minimum=1)
        if value is not None and value != int(value):
            self.problems.append(f"{self.where}: {keys[0]} is {value}, expected a whole number")
            return None
        return None if value is None else int(value)

    def text(self, *keys: str) -> str | None:
        for key in keys:
            value = self.data.get(key)
            if isinstance(value, str) and value.strip():
                return value
            if value is not None and not isinstance(value, str):
                self.problems.append(f"{self.where}: {key} is {type(value).__name__}, expected text")
        return None

    def group(self, key: str) -> _Reader:
        """A nested object; anything else is named and read as empty."""
        value = self.data.get(key)
        if value is not None and not isinstance(value, Mapping):
            self.problems.append(f"{self.where}: {key} is {type(value).__name__}, expected an object")
        return _Reader(value if isinstance(value, Mapping) else {}, f"{self.where}: {key}", self.problems)

    def flag(self, key: str) -> bool | None:
        value = self.data.get(key)
        if value is None or isinstance(value, bool):
            return value
        self.problems.append(f"{self.where}: {key} is {value!r:.40}, expected true or false")
        return None


def read_topn(data: object, label: str) -> TopN:
    """Understand a Top-N: ``top_kernels`` of the standard form, or a list of kernels with times as profilers write them.

    A share that a row lacks is computed from the list's own times. A row whose share cannot be had is named in
    ``problems`` and left out, since nothing can be said of its weight.

    Raises:
        ValueError: when no list of kernels can be found.
    """
    problems: list[str] = []
    top: Mapping[str, object] = data if isinstance(data, Mapping) else {}
    listed = (
        data
        if isinstance(data, list)
        else next((top[key] for key in ("top_kernels", "kernels") if isinstance(top.get(key), list)), None)
    )
    if not isinstance(listed, list):
        raise ValueError(f"{label}: no list 'top_kernels' or 'kernels' in it, expected a Top-N profile")
    whole = _Reader(top, label, problems)
    total_ms = whole.number("total_gpu_time_ms", "total_gpu_ms", "total_ms", above=0)
    if total_ms is None:
        total_us = whole.number("total_us", above=0)
        total_ms = total_us / 1e3 if total_us is not None else None
    readers = []
    for index, raw in enumerate(listed, 1):
        if isinstance(raw, Mapping):
            readers.append(_Reader(raw, f"{label}: row {index}", problems))
        else:
            problems.append(f"{label}: row {index} is {type(raw).__name__}, expected an object with name and times")
    times = [_row_ms(reader) for reader in readers]
    of = _GIVEN
    if total_ms is None:
        total_ms = sum(time for time in times if time is not None) or None
        of = "the sum of the listed rows"
    found = (_row(reader, ms, total_ms, of) for reader, ms in zip(readers, times))
    rows = [row for row in found if row is not None]
    steps = whole.group("serving")
    problems += doubtful_shares(label, rows)
    return TopN(
        tuple(rows),
        steps.number("n_decode_steps", minimum=0),
        steps.number("n_prefill_steps", minimum=0),
        tuple(problems),
    )


def doubtful_shares(label: str, rows: Sequence[Row]) -> list[str]:
    """A line when the shares of a list cannot be percentages of one whole."""
    if rows and max(row.pct for row in rows) <= 1.0 and not any(row.pct_basis for row in rows):
        return [f"{label}: no share is over 1: are they fractions? pct_gpu_time is a percentage"]
    total = sum(row.pct for row in rows)
    return [f"{label}: the shares add up to {total:.1f} %: not of one whole, so no gain is right"] if total > 101 else []


def _row_ms(row: _Reader) -> float | None:
    total = row.number("total_ms", "ms", minimum=0)
    if total is None:
        total_us = row.number("us", "total_us", minimum=0)
        total = total_us / 1e3 if total_us is not None else None
    return total


def _row(row: _Reader, row_ms: float | None, total_ms: float | None, of: str) -> Row | None:
    name = row.text("name", "kernel")
    if name is None:
        row.problems.append(f"{row.where}: no name, expected a kernel name under 'name' or 'kernel'")
        return None
    row.where += f" ({printable(name)[:60]})"
    calls = row.number("calls", minimum=0)
    if row_ms and calls and 1e3 * row_ms / calls < _SHORTEST_US:
        per_call = f"{1e3 * row_ms:.6g} us over {calls:g} calls are {1e3 * row_ms / calls:.2g} us each"
        row.problems.append(f"{row.where}: {per_call}, which no launch is: is it the time of one? It is not used")
        row_ms = None
    pct, basis = row.number("pct_gpu_time", "pct", minimum=0), ""
    if pct is not None and pct > _LARGEST_SHARE:
        row.problems.append(f"{row.where}: pct_gpu_time is {pct}, expected a percentage of at most 100")
        return None
    if pct is not None and of == _GIVEN and row_ms and total_ms and abs(pct - 100.0 * row_ms / total_ms) > _SHARE_SLACK:
        row.problems.append(
            f"{row.where}: pct_gpu_time is {pct:.4g}, but its time is {100.0 * row_ms / total_ms:.4g} % of the total given"
        )
    if pct is None:
        if row_ms is None or not total_ms or row_ms > total_ms:
            row.problems.append(f"{row.where}: no usable share: give pct_gpu_time, or total_ms and the list's total")
            return None
        pct, basis = 100.0 * row_ms / total_ms, of
    avg_us = row.number("avg_us", "us_per_call", above=0)
    if avg_us is None and row_ms and calls:
        avg_us = 1e3 * row_ms / calls
    latency = row.data.get("base_latency_ms")
    per_regime: dict[str, float] = {}
    if isinstance(latency, Mapping):
        reader = _Reader(latency, f"{row.where}: base_latency_ms", row.problems)
        for key in latency:
            value = reader.number(key, above=0)
            if value is not None:
                per_regime[str(key)] = value
    else:
        value = row.number("base_latency_ms", above=0)
        if value is not None:
            per_regime[""] = value
    regime = (row.text("regime") or "").lower().split()[:1]
    if regime not in ([], ["decode"], ["prefill"]):
        row.problems.append(f"{row.where}: regime is {row.data.get('regime')!r:.40}, expected decode or prefill")
    return Row(
        name=name,
        short_name=row.text("short_name") or short_name(name),
        pct=pct,
        pct_basis=basis,
        calls=calls,
        avg_ms=avg_us / 1e3 if avg_us is not None else None,
        base_latency_ms=per_regime,
        classification=row.text("classification", "cat") or "",
        regime=regime[0] if regime in (["decode"], ["prefill"]) else None,
        editable=row.flag("editable"),
        launches_per_step=row.number("launches_per_step", above=0),
        backend=row.text("backend_guess"),
        shapes=row.data.get("shapes"),
        dtypes=row.data.get("dtypes"),
        est_shape=row.data.get("est_shape"),
    )


def short_name(name: str) -> str:
    """A label of at most 60 characters: without template arguments, parameters and return type."""
    text = name.split("(")[0] if not name.startswith("(") else name
    text = text.split("<")[0].strip() or name
    if text.startswith("void "):
        text = text[len("void ") :]
    return text if len(text) <= 60 else text[:57] + "..."


def read_env(data: object, label: str) -> Env:
    """Understand env_report.json; keys that are not used are accepted and ignored.

    Raises:
        ValueError: when it is not an object.
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"{label}: is {type(data).__name__}, expected an object with gfx, model_dtype and workload")
    problems: list[str] = []
    env = _Reader(data, label, problems)
    load = env.group("workload")
    offered = data.get("available_backends")
    if offered is not None and not isinstance(offered, list):
        problems.append(f"{label}: available_backends is {type(offered).__name__}, expected a list")
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
        backends=tuple(item for item in offered if isinstance(item, str)) if isinstance(offered, list) else (),
        rocm_version=env.text("rocm_version"),
        problems=tuple(problems),
    )


def read_shapes(data: object, label: str) -> tuple[dict[str, list[dict[str, object]]], list[str]]:
    """Understand shapes.json: kernel name to the captured cases. A single case may stand without its list.

    Raises:
        ValueError: when it is not an object.
    """
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
