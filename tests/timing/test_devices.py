"""The clock of a call, with real arrays of numpy, torch and JAX and with stand-ins for devices."""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
import re
import subprocess
import sys
import time
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pytest_roofline.timing import Settings, compare, measure
from pytest_roofline.timing.devices import device_kind, distinct_bytes, extents, untouched_bytes
from pytest_roofline.timing.sampling import UNKNOWN_HOST_BYTES, host_cache, host_flush
from support.tool import ROOT

QUICK = Settings(warmup_calls=1, warmup_s=0.0, min_s=0.0, budget_s=0.02)
COLD = Settings(cache="cold", llc_bytes=2**20, warmup_calls=1, warmup_s=0.0, min_s=0.0, budget_s=0.02)


def test_measure_returns_the_value_and_passes_every_argument() -> None:
    def fn(*args: int, **kwargs: int) -> tuple[tuple[int, ...], dict[str, int]]:
        return args, kwargs

    value, found = measure(fn, 1, 2, settings=QUICK, fn=3, baseline=4)
    assert value == ((1, 2), {"fn": 3, "baseline": 4})
    assert (found.source, found.clock, found.cache) == ("roofline", "host", "warm")
    assert found.t_s > 0
    assert found.rounds is not None
    assert found.rounds >= 5


def test_measure_returns_what_the_first_call_returned() -> None:
    calls: list[int] = []
    value, _ = measure(lambda: calls.append(1) or len(calls), settings=QUICK)  # type: ignore[func-returns-value]
    assert value == 1


def test_compare_returns_the_value_of_the_candidate_and_keeps_its_buffer() -> None:
    out = [0]

    def fill(number: int) -> Any:
        def fn() -> list[int]:
            out[0] = number
            return out

        return fn

    found = compare(fill(1), fill(2), settings=QUICK)
    value, baseline, candidate, speedup = found
    assert value is out
    assert out == [2]
    assert baseline.clock == candidate.clock == "host"
    assert baseline.rounds == candidate.rounds == speedup.rounds
    assert speedup.rounds % 2 == 0
    assert 0 < speedup.q1 <= speedup.median <= speedup.q3


def test_an_exception_propagates_unchanged() -> None:
    raised = RuntimeError("of the function")

    def fn() -> None:
        raise raised

    for call in (lambda: measure(fn), lambda: compare(fn, int), lambda: compare(int, fn)):
        with pytest.raises(RuntimeError) as caught:
            call()
        assert caught.value is raised


def test_timing_imports_neither_pytest_nor_an_array_library() -> None:
    code = (
        "import sys; from pytest_roofline.timing import measure, plugins; measure(int);"
        "print([name for name in ('pytest', '_pytest', 'numpy', 'torch', 'jax', 'cupy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr


def test_numpy_is_timed_by_the_host_warm_or_cold() -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.ones(10_000)
    value, warm = measure(numpy.add, array, array, settings=QUICK)
    assert value.sum() == 20_000
    assert (warm.clock, warm.cache) == ("host", "warm")
    _, cold = measure(numpy.add, array, array, settings=COLD)
    assert cold.clock == "host"
    assert cold.cache == ("cold" if host_cache().instances == 1 else "unknown")


def test_torch_on_the_cpu_is_timed_by_the_host() -> None:
    torch = pytest.importorskip("torch")
    array = torch.ones(64, 64)
    value, found = measure(torch.mm, array, array, settings=QUICK)
    assert float(value[0, 0]) == 64.0
    assert found.clock == "host"
    _, graph = measure(torch.mm, array, array, settings=Settings(graph=True, warmup_s=0.0, min_s=0.0, budget_s=0.02))
    assert graph.clock == "host"
    assert any("graph replay" in note for note in graph.notes)


def test_jax_results_are_waited_for() -> None:
    jax = pytest.importorskip("jax")
    array = jax.numpy.ones((64, 64))
    value, found = measure(jax.jit(jax.numpy.matmul), array, array, settings=QUICK)
    assert float(value[0, 0]) == 64.0
    assert found.clock == "host+sync"
    _, cold = measure(jax.jit(jax.numpy.matmul), array, array, settings=COLD)
    assert cold.clock == "host+sync"


def test_every_timed_jax_result_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    jax = pytest.importorskip("jax")
    array, returned, waited = jax.numpy.ones((64, 64)), [], []
    jitted, wait = jax.jit(lambda a: {"result": (a @ a,)}), jax.block_until_ready

    def fn(a: Any) -> Any:
        returned.append(jitted(a))
        return returned[-1]

    def ready(result: Any) -> Any:
        waited.append(result)
        return wait(result)

    monkeypatch.setattr(jax, "block_until_ready", ready)
    measure(fn, array, settings=QUICK)
    assert len(waited) >= 5
    assert all(result is timed for result, timed in zip(reversed(waited), reversed(returned)))


@pytest.mark.parametrize("instances", [1, 2])
def test_the_last_level_cache_is_read_from_the_system(tmp_path: Path, instances: int) -> None:
    for cpu in range(4):
        for index, (level, size, shared) in enumerate(
            [(1, "32K", f"{cpu}"), (2, "1024K", f"{cpu}"), (3, "32768K", "0-3" if instances == 1 else f"{cpu // 2 * 2}-x")]
        ):
            folder = tmp_path / f"cpu{cpu}" / "cache" / f"index{index}"
            folder.mkdir(parents=True)
            for name, text in (("level", level), ("size", size), ("shared_cpu_list", shared)):
                (folder / name).write_text(f"{text}\n")
    assert host_cache(tmp_path, range(4)) == (32 * 2**20, instances)
    assert host_cache(tmp_path, [0, 1]) == (32 * 2**20, 1)
    assert host_cache(tmp_path / "absent", range(4)) == (UNKNOWN_HOST_BYTES, None)


def test_the_host_flush_reads_its_whole_buffer() -> None:
    assert host_flush(4096)() == -1  # looked for a zero in every byte, and there is none


# Stand-ins: a device that logs, under the names of the library that drives it.


class Log(list[str]):
    def __init__(self) -> None:
        super().__init__()
        self.time_ms = 0.0


class Tensor:
    def __init__(self, kind: str, index: int | None = 0) -> None:
        self.device = SimpleNamespace(type=kind, index=index)


class Event:
    def __init__(self, log: Log, enable_timing: bool) -> None:
        assert enable_timing
        self.log = log

    def record(self, stream: str) -> None:
        self.log.append(f"event on {stream}")
        self.at_ms = self.log.time_ms

    def elapsed_time(self, stop: Event) -> float:
        assert self.log[-1] in ("synchronize 1", "elapsed"), "read before the device was waited for"
        self.log.append("elapsed")
        return stop.at_ms - self.at_ms

    def synchronize(self) -> None:
        self.log.append("wait for event")


class Graph:
    def __init__(self, log: Log) -> None:
        self.log = log

    def replay(self) -> None:
        self.log.append("replay")
        self.log.time_ms += 1.0


class Capture:
    def __init__(self, log: Log) -> None:
        self.log = log

    def __call__(self, graph: Graph) -> Capture:
        return self

    def __enter__(self) -> None:
        self.log.append("capture")

    def __exit__(self, *_: object) -> None:
        self.log.append("captured")


def stand_in(name: str, **attributes: object) -> ModuleType:
    """Put a stand-in module in sys.modules."""
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    vars(module).update(attributes)
    return module


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    """A torch with one CUDA device in use, number 1; each flush and each event is logged."""
    log = Log()
    cuda = SimpleNamespace(
        Event=functools.partial(Event, log),
        CUDAGraph=lambda: Graph(log),
        graph=Capture(log),
        device=contextlib.nullcontext,
        current_stream=lambda device: f"stream of {device}",
        synchronize=lambda device=None: log.append(f"synchronize {device}"),
        get_device_properties=lambda device: SimpleNamespace(L2_cache_size=50 * 2**20),
        is_initialized=lambda: True,
    )

    def zeros(size: int, **_: object) -> str:
        if size > 1:
            log.append(f"buffer of {4 * size}")
        return "buffer"

    torch = stand_in(
        "torch",
        Tensor=Tensor,
        cuda=cuda,
        zeros=zeros,
        float32="float32",
        device=lambda kind, index: f"{kind}:{index}",
        sum=lambda *_, **__: log.append("flush"),
        version=SimpleNamespace(hip=None),
        xpu=SimpleNamespace(synchronize=lambda: log.append("wait for xpu")),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    for name in ("jax", "cupy"):
        monkeypatch.setitem(sys.modules, name, None)  # type: ignore[arg-type]
    return log


def kernel(log: Log) -> Any:
    def fn(*_: object) -> None:
        log.append("kernel")
        log.time_ms += 1.0

    return fn


CUDA_1 = Tensor("cuda", 1)


def test_arrays_on_a_device_are_timed_by_its_events_on_its_stream(log: Log) -> None:
    _, found = measure(kernel(log), Tensor("cpu"), {"x": [CUDA_1]}, settings=QUICK)
    assert (found.clock, found.cache, found.t_s) == ("device-event", "cold", 1e-3)
    assert {event for event in log if "stream" in event} == {"event on stream of 1"}
    assert {event for event in log if "synchronize" in event} == {"synchronize 1"}


def test_the_flush_is_twice_the_cache_and_outside_the_events(log: Log) -> None:
    measure(kernel(log), CUDA_1, settings=QUICK)
    assert [event for event in log if "buffer" in event] == [f"buffer of {2 * 50 * 2**20}"]
    event = "event on stream of 1"
    rounds = log[: log.index("elapsed")]
    assert rounds[-21:-1] == ["flush", event, "kernel", event] * 5
    assert rounds[-1] == "synchronize 1"


def test_the_cache_of_an_amd_device_includes_its_last_level(log: Log) -> None:
    sys.modules["torch"].version.hip = "7.0"
    measure(kernel(log), CUDA_1, settings=QUICK)
    measure(kernel(log), CUDA_1, settings=Settings(llc_bytes=2**20, warmup_s=0.0, min_s=0.0, budget_s=0.02))
    assert [event for event in log if "buffer" in event] == [f"buffer of {2 * 256 * 2**20}", f"buffer of {2 * 2**20}"]


def test_a_device_without_room_for_the_flush_is_timed_warm_with_a_note(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(sys.modules["torch"], "zeros", full)
    _, found = measure(kernel(log), CUDA_1, settings=QUICK)
    assert found.cache == "warm"
    assert "cache not evicted: RuntimeError: out of memory" in found.notes


def test_a_graph_is_captured_once_and_replayed_cold(log: Log) -> None:
    _, found = measure(
        kernel(log), CUDA_1, settings=Settings(graph=True, warmup_calls=1, warmup_s=0.0, min_s=0.0, budget_s=0.02)
    )
    assert (found.clock, found.cache) == ("device-graph", "cold")
    assert log.count("capture") == 1
    event = "event on stream of 1"
    assert log[: log.index("elapsed")][-21:-1] == ["flush", event, "replay", event] * 5


def test_a_graph_replayed_without_a_flush_is_warm(log: Log) -> None:
    settings = Settings(graph=True, cache="warm", warmup_calls=1, warmup_s=0.0, min_s=0.0, budget_s=0.02)
    _, found = measure(kernel(log), CUDA_1, settings=settings)
    assert (found.clock, found.cache) == ("device-graph", "warm")
    assert "flush" not in log


def test_a_graph_time_comes_with_the_time_of_plain_launches(log: Log) -> None:
    def launched(*_: object) -> None:
        if "capture" not in log or "captured" in log:
            time.sleep(1e-3)  # the host, launching

    settings = Settings(graph=True, cache="warm", warmup_calls=1, warmup_s=0.0, min_s=0.0, budget_s=0.02)
    _, found = measure(launched, CUDA_1, settings=settings)
    assert found.busy_s is not None
    assert found.wall_s is not None
    assert found.busy_s < 1e-3 <= found.wall_s
    _, events = measure(kernel(log), CUDA_1, settings=QUICK)
    assert events.wall_s is None  # events hold the gaps: nothing tells them from the kernels


def test_a_capture_that_fails_falls_back_to_events(log: Log) -> None:
    def fn(_: object) -> None:
        if log and "capture" in log and "captured" not in log:
            raise RuntimeError("not permitted while capturing")
        log.time_ms += 1.0

    settings = Settings(graph=True, warmup_calls=1, warmup_s=0.0, min_s=0.0, budget_s=0.02)
    _, found = measure(fn, CUDA_1, settings=settings)
    assert found.clock == "device-event"
    assert any("not permitted while capturing" in note for note in found.notes)


@pytest.mark.parametrize("carried", ["closure", "partial", "method", "result"])
def test_the_device_is_found_without_arguments(log: Log, carried: str) -> None:
    run, array = kernel(log), Tensor("cuda", 1)

    class Held(Tensor):
        def method(self) -> None:
            run()

    def result() -> Tensor:
        run()
        return Tensor("cuda", 1)

    calls = {
        "closure": lambda: run(array),
        "partial": functools.partial(run, array),
        "method": Held("cuda", 1).method,
        "result": result,
    }
    _, found = measure(calls[carried], settings=QUICK)
    assert found.clock == "device-event"


def test_a_device_in_use_is_waited_for_without_arrays(log: Log) -> None:
    run = kernel(log)
    _, found = measure(lambda: run(), settings=QUICK)
    assert found.clock == "host+sync"
    assert any("no array" in note for note in found.notes)


def test_host_arrays_need_no_wait_for_a_device_in_use(log: Log) -> None:
    _, found = measure(lambda array: None, Tensor("cpu"), settings=QUICK)
    assert found.clock == "host"
    assert not any("no array" in note for note in found.notes)
    assert not log


def test_two_devices_are_timed_by_the_host_with_a_wait_for_each(log: Log) -> None:
    settings = Settings(cache="cold", warmup_calls=1, warmup_s=0.0, min_s=0.0, budget_s=0.02)
    _, found = measure(kernel(log), CUDA_1, Tensor("cuda", 0), settings=settings)
    assert (found.clock, found.cache) == ("host+sync", "warm")
    assert {"synchronize 0", "synchronize 1"} <= set(log)
    assert any("no eviction" in note for note in found.notes)


def test_another_device_of_torch_is_waited_for(log: Log) -> None:
    _, found = measure(kernel(log), Tensor("xpu"), settings=QUICK)
    assert found.clock == "host+sync"
    assert "wait for xpu" in log


def test_an_array_without_a_wait_is_not_called_synchronized(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch", "cupy", "jax", "numba.cuda"):
        monkeypatch.setitem(sys.modules, name, None)  # type: ignore[arg-type]

    class Foreign:
        __cuda_array_interface__ = {"version": 3}  # noqa: RUF012

    _, found = measure(lambda _: None, Foreign(), settings=QUICK)
    assert found.clock == "host"
    assert any("launch alone" in note for note in found.notes)


def test_compare_times_both_legs_on_one_clock(log: Log) -> None:
    def slow(_: object) -> None:
        log.time_ms += 3.0

    _, baseline, candidate, speedup = compare(slow, kernel(log), CUDA_1, settings=QUICK)
    assert (baseline.clock, candidate.clock) == ("device-event", "device-event")
    assert (baseline.t_s, candidate.t_s) == (pytest.approx(3e-3), pytest.approx(1e-3))
    assert speedup.median == pytest.approx(3.0)


def test_cupy_is_timed_by_its_events(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()

    class Device:
        def __init__(self, number: int) -> None:
            self.id, self.attributes = number, {"L2CacheSize": 2**20}

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None: ...

        def synchronize(self) -> None:
            log.append("synchronize 1")

    class ndarray:  # noqa: N801
        device = Device(1)

        def sum(self, out: object) -> None:
            log.append("flush")

    def zeros(*_: object, **__: object) -> ndarray:
        return ndarray()

    cuda = SimpleNamespace(
        Device=Device,
        Event=lambda: Event(log, True),
        get_current_stream=lambda: "stream",
        get_elapsed_time=lambda start, stop: start.elapsed_time(stop),
        runtime=SimpleNamespace(is_hip=False),
    )
    monkeypatch.setitem(sys.modules, "torch", None)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "cupy", stand_in("cupy", ndarray=ndarray, cuda=cuda, zeros=zeros))
    _, found = measure(kernel(log), ndarray(), settings=QUICK)
    assert (found.clock, found.cache, found.t_s) == ("device-event", "cold", 1e-3)


def test_the_gpu_script_reports_a_missing_gpu_in_one_line(tmp_path: Path) -> None:
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
    script = ROOT / "benchmarks" / "gpu" / "check_timing.py"
    done = subprocess.run([sys.executable, script], cwd=tmp_path, env=hidden, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert not list(tmp_path.iterdir())


def test_the_example_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "timing.md").read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(block, "docs/timing.md", "exec"), {})
    assert " us, " in capsys.readouterr().out


def test_the_device_of_arrays_is_found_in_containers() -> None:
    numpy = pytest.importorskip("numpy")
    on_gpu = type("Array", (), {"__cuda_array_interface__": {}})()
    assert device_kind({"a": [numpy.ones(2)]}, 1) == "cpu"
    assert device_kind(numpy.ones(2), [on_gpu]) == "gpu"
    assert device_kind(1, "text", None, [2.0]) is None


@pytest.mark.parametrize("kind", ["measure", "compare"])
def test_a_long_call_is_timed_in_one_round(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_roofline.timing.measurement.LONG_CALL_S", 0.0)
    calls: list[int] = []

    def fn() -> int:
        calls.append(1)
        return len(calls)

    if kind == "measure":
        value, found = measure(fn)
        assert value == 1
        assert len(calls) == 2  # the first call, which may compile, and the round
    else:
        found = compare(fn, fn).candidate
        assert len(calls) == 2 * 2 + 1  # the same of both, and the candidate once more for its value
    assert (found.rounds, found.q1_s, found.q3_s) == (1, None, None)
    assert any(note.startswith("one round, because a call takes") for note in found.notes)


def test_a_call_whose_first_call_alone_is_long_is_timed_in_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call compiles; what is timed is short."""
    first = iter([10.0])
    monkeypatch.setattr("pytest_roofline.timing.measurement.LONG_CALL_S", 0.05)
    _, found = measure(lambda: time.sleep(next(first, 0.0) and 0.1), settings=QUICK)
    assert found.rounds is not None
    assert found.rounds >= 5


def test_the_memory_of_arrays_counts_each_byte_once() -> None:
    np = pytest.importorskip("numpy")
    x = np.zeros((64, 32), np.float32)  # 8192 B
    assert distinct_bytes(extents(x, [x], {"a": x})) == 8192
    assert distinct_bytes(extents(x[:32], x[16:])) == 8192  # they overlap
    assert distinct_bytes(extents(x[:, :1])) == 64 * 4
    assert distinct_bytes(extents(x[::-1])) == 8192
    assert distinct_bytes(extents(np.broadcast_to(np.float32(1), (64, 32)))) == 4
    assert distinct_bytes(extents(x[:0], 3, "text", None)) == 0
    assert distinct_bytes(extents(SimpleNamespace(weight=x, bias=x[0].copy()))) == 8192 + 128


@pytest.mark.skipif(not Path("/proc/self/pagemap").exists(), reason="the system does not tell")
def test_pages_that_nothing_wrote_are_found(tmp_path: Path) -> None:
    np = pytest.importorskip("numpy")
    size = 4 << 20

    def new_pages() -> Any:  # as those of a large np.zeros; malloc may return smaller blocks that were used before
        return np.frombuffer(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)

    fresh, filled, ones = new_pages(), new_pages(), np.ones(size, np.uint8)
    fresh.sum()  # a read maps the page of zeros
    filled.fill(0)
    (tmp_path / "file").write_bytes(b"\1" * size)
    mapped = np.memmap(tmp_path / "file", np.uint8, "r")
    assert untouched_bytes(filled, ones, mapped) == 0
    assert untouched_bytes(fresh) == size
    fresh[: size // 2] = 0
    assert 0.4 * size <= untouched_bytes([fresh]) <= 0.6 * size
    assert untouched_bytes(np.zeros(1 << 16)) == 0  # a cache holds it
