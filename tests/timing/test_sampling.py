"""The order of events of a measurement, recorded by a simulated clock."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_roofline.timing import Settings
from pytest_roofline.timing.clocks import Call, CannotCaptureError, WaitMeter
from pytest_roofline.timing.measurement import Setup, run
from pytest_roofline.timing.sampling import ROUND_OVER_RESOLUTION, quartiles, uncertainty

QUICK = Settings(warmup_calls=3, warmup_s=0.0, min_s=0.0, budget_s=1.0)


class Recorder:
    """A clock and its device. It logs the events; a call advances its time by the duration that the test gives."""

    name = "recorder"

    def __init__(self, resolution_s: float = 1e-9, capture: bool = False, refuses: str = "") -> None:
        self.resolution_s = resolution_s
        self.log: list[str] = []
        self.time = 0.0
        self.straggles_s = 0.0
        self.row_s: tuple[float, float] | None = None
        self._capture, self._refuses = capture, refuses
        self._marks: dict[tuple[str, int], float] = {}
        self._queued: set[int] = set()

    def now(self) -> float:
        return self.time

    def kernel(self, name: str, seconds: Callable[[], float]) -> Call:
        def call() -> str:
            self.log.append(name)
            self.time += seconds()
            return name

        return call

    def flush(self) -> None:
        self.log.append("flush")
        self.time += 1e-3

    def prepare(self, call: Call) -> Call:
        if self._refuses:
            raise CannotCaptureError(self._refuses)
        self.log.append("prepare")
        if not self._capture:
            return call
        name = call()

        def replay() -> None:
            self.log.append(f"replay {name}")
            self.time += 1e-3

        return replay

    def reserve(self, samples: int) -> None:
        self.log.append("reserve")

    def start(self, sample: int) -> None:
        self.log.append("start")
        self._marks["start", sample] = self.time

    def stop(self, sample: int) -> None:
        self.log.append("stop")
        self._marks["stop", sample] = self.time
        self._queued.add(sample)

    def synchronize(self) -> None:
        self.log.append("synchronize")
        self._queued.clear()

    def elapsed_s(self, sample: int) -> float:
        assert sample not in self._queued, "read before the device was waited for"
        self.log.append("read")
        return self._marks["stop", sample] - self._marks["start", sample]

    def tail_after_stop_s(self, call: Call) -> float:
        return self.straggles_s

    def back_to_back_s(self, call: Call, prepared: Call) -> tuple[float, float] | None:
        return self.row_s

    @property
    def rounds(self) -> list[str]:
        """The log from the first round of the last clock preparation on, batch sizing included."""
        last = len(self.log) - self.log[::-1].index("prepare")
        return self.log[last:]


def steady(seconds: float) -> Callable[[], float]:
    return lambda: seconds


def series(*seconds: float) -> Callable[[], float]:
    return itertools.cycle(seconds).__next__


def timed(log: list[str]) -> Iterator[list[str]]:
    """Return the events between each start and its stop."""
    starts = [at for at, event in enumerate(log) if event == "start"]
    for at in starts:
        yield log[at + 1 : log.index("stop", at)]


def test_cold_rounds_flush_before_each_start_and_time_one_call_alone() -> None:
    clock = Recorder()
    run(Setup(clock, clock.flush, "cold"), [clock.kernel("fn", steady(1e-3))], QUICK, clock.now)
    log = clock.rounds
    assert [log[at - 1] for at, event in enumerate(log) if event == "start"] == ["flush"] * log.count("start")
    assert list(timed(log)) == [["fn"]] * log.count("start")
    assert log.count("start") >= 5


def test_warm_rounds_never_flush() -> None:
    clock = Recorder()
    run(Setup(clock), [clock.kernel("fn", steady(1e-3))], QUICK, clock.now)
    assert "flush" not in clock.log
    assert all(calls == ["fn"] for calls in timed(clock.log))


def test_the_device_is_waited_for_once_a_block_and_read_after() -> None:
    clock = Recorder()
    run(Setup(clock, clock.flush, "cold"), [clock.kernel("fn", steady(1e-3))], QUICK, clock.now)
    block = clock.rounds
    assert block[0] == "reserve"
    assert block.count("synchronize") == 1
    assert block.index("synchronize") > max(at for at, event in enumerate(block) if event == "stop")
    assert block[block.index("synchronize") + 1 :] == ["read"] * block.count("start")


def test_the_order_of_two_functions_alternates_evenly() -> None:
    clock = Recorder()
    calls = [clock.kernel("baseline", steady(2e-3)), clock.kernel("candidate", steady(1e-3))]
    found, samples = run(Setup(clock, clock.flush, "cold"), calls, QUICK, clock.now)
    order = [calls for (calls,) in timed(clock.rounds)]
    pairs = list(zip(order[::2], order[1::2]))
    assert pairs == [("baseline", "candidate"), ("candidate", "baseline")] * (len(pairs) // 2)
    assert [round(m.t_s, 9) for m in found] == [2e-3, 1e-3]
    assert samples.ratios == pytest.approx([2.0] * len(pairs))


def test_a_warm_pair_warms_its_operands_before_each_start() -> None:
    clock = Recorder()
    run(Setup(clock), [clock.kernel("a", steady(1e-3)), clock.kernel("b", steady(1e-3))], QUICK, clock.now)
    log = clock.rounds
    last_block = log[len(log) - log[::-1].index("reserve") :]
    starts = [at for at, event in enumerate(last_block) if event == "start"]
    assert starts
    assert all(last_block[at - 1] == last_block[at + 1] for at in starts)


def test_drift_cancels_in_pairs() -> None:
    clock = Recorder()
    slower = (1e-3 * (1 + 0.01 * step) for step in itertools.count())
    calls = [clock.kernel("a", slower.__next__), clock.kernel("b", slower.__next__)]
    _, samples = run(Setup(clock, clock.flush, "cold"), calls, QUICK, clock.now)
    assert quartiles(samples.ratios).median == pytest.approx(1.0, abs=0.01)


def test_a_graph_is_captured_once_after_the_warm_up_and_only_replays_are_timed() -> None:
    clock = Recorder(capture=True)
    run(Setup(clock, clock.flush, "cold"), [clock.kernel("fn", steady(1e-3))], QUICK, clock.now)
    assert clock.log.count("prepare") == 1
    assert clock.log[: clock.log.index("prepare")].count("fn") >= QUICK.warmup_calls
    assert set(itertools.chain(*timed(clock.rounds))) == {"replay fn"}


def test_a_failed_capture_moves_both_functions_to_events() -> None:
    events = Recorder()
    graph = Recorder(refuses="operation not permitted when stream is capturing")
    calls = [events.kernel("a", steady(1e-3)), events.kernel("b", steady(1e-3))]
    found, _ = run(Setup(graph, events.flush, "cold", fallback=events), calls, QUICK, events.now)
    assert {m.clock for m in found} == {"recorder"}
    assert all("operation not permitted" in " ".join(m.notes) for m in found)
    assert "start" not in graph.log


def test_short_calls_are_batched_and_timed_per_call() -> None:
    clock = Recorder(resolution_s=1e-6)
    (found,), _ = run(Setup(clock), [clock.kernel("fn", steady(1e-6))], QUICK, clock.now)
    assert found.t_s == pytest.approx(1e-6)
    (note,) = found.notes
    assert int(note.split()[0]) >= ROUND_OVER_RESOLUTION
    assert note.endswith("calls a round")


def test_long_calls_are_not_batched() -> None:
    clock = Recorder(resolution_s=1e-6)
    run(Setup(clock), [clock.kernel("fn", steady(1.0))], QUICK, clock.now)
    assert all(calls == ["fn"] for calls in timed(clock.log))


def test_a_cold_call_is_never_batched_and_gets_a_note() -> None:
    clock = Recorder(resolution_s=1e-6)
    (found,), _ = run(Setup(clock, clock.flush, "cold"), [clock.kernel("fn", steady(5e-6))], QUICK, clock.now)
    assert all(calls == ["fn"] for calls in timed(clock.rounds))
    assert any("resolution" in note for note in found.notes)


def test_warm_up_reaches_both_minimums() -> None:
    for settings in (
        Settings(warmup_calls=20, warmup_s=0.0, min_s=0.0),
        Settings(warmup_calls=1, warmup_s=0.02, min_s=0.0),
    ):
        clock = Recorder()
        run(Setup(clock), [clock.kernel("fn", steady(1e-3))], settings, clock.now)
        before = clock.log[: clock.log.index("prepare")]
        assert before.count("fn") >= 20
        assert "start" not in before


def test_warm_up_of_a_slow_function_ends_with_the_budget() -> None:
    clock = Recorder()
    settings = Settings(warmup_calls=100, warmup_s=0.1, budget_s=1.0, min_s=0.0)
    run(Setup(clock), [clock.kernel("fn", steady(10.0))], settings, clock.now)
    assert clock.log[: clock.log.index("prepare")].count("fn") == 1


def test_steady_rounds_stop_at_the_minimum() -> None:
    clock = Recorder()
    (found,), samples = run(Setup(clock), [clock.kernel("fn", steady(1e-2))], QUICK, clock.now)
    assert samples.settled
    assert found.rounds == 5
    assert found.notes == ()


def test_steady_rounds_are_still_spread_over_the_least_time() -> None:
    clock = Recorder()
    settings = Settings(warmup_s=0.0, min_s=0.2, budget_s=1.0)
    (found,), _ = run(Setup(clock), [clock.kernel("fn", steady(1e-2))], settings, clock.now)
    assert found.rounds is not None
    assert found.rounds >= 20


def test_scattered_rounds_continue_until_the_median_is_known() -> None:
    clock = Recorder()
    (found,), samples = run(
        Setup(clock),
        [clock.kernel("fn", series(*(1e-3 * (1 + 0.03 * (step * 7 % 11)) for step in range(11))))],
        QUICK,
        clock.now,
    )
    assert samples.settled
    assert found.rounds is not None
    assert found.rounds > 5
    assert found.spread > QUICK.band
    assert any("spread" in note for note in found.notes)


def test_the_budget_ends_unsteady_rounds_with_a_note() -> None:
    clock = Recorder()
    settings = Settings(warmup_s=0.0, min_s=0.0, budget_s=0.5)
    two_speeds = clock.kernel("fn", series(1e-2, 2e-2))
    (found,), samples = run(Setup(clock), [two_speeds], settings, clock.now)
    assert not samples.settled
    assert samples.spent_s <= settings.budget_s
    assert any(note.startswith("budget of 0.5 s ended after") for note in found.notes)


def test_five_rounds_are_taken_whatever_the_budget() -> None:
    clock = Recorder()
    settings = Settings(budget_s=0.0, warmup_s=0.0, min_s=0.0)
    (found,), _ = run(Setup(clock), [clock.kernel("fn", series(1.0, 3.0))], settings, clock.now)
    assert found.rounds == 5


def test_a_clock_that_reads_zero_gives_its_resolution_as_a_bound() -> None:
    clock = Recorder(resolution_s=5e-7)
    (found,), _ = run(Setup(clock, lambda: clock.flush(), "cold"), [clock.kernel("fn", steady(0.0))], QUICK, clock.now)
    assert found.t_s == 5e-7
    assert any("resolution, 5e-07 s" in note for note in found.notes)


def test_work_after_the_stop_is_reported() -> None:
    for straggle, said in ((1e-5, 0), (5e-3, 1)):
        clock = Recorder()
        clock.straggles_s = straggle
        (found,), _ = run(Setup(clock), [clock.kernel("fn", steady(1e-2))], QUICK, clock.now)
        assert sum("another stream" in note for note in found.notes) == said


def test_an_exception_in_a_later_call_propagates_unchanged() -> None:
    clock, raised = Recorder(), KeyError("seventh")
    calls = itertools.count()

    def fn() -> None:
        clock.time += 1e-3
        if next(calls) == 7:  # in a round: three calls warm up, one sizes the batch
            raise raised

    with pytest.raises(KeyError) as caught:
        run(Setup(clock), [fn], QUICK, clock.now)
    assert caught.value is raised


@pytest.mark.parametrize(
    ("key", "value"),
    [("cache", "hot"), ("band", -1.0), ("budget_s", float("nan")), ("min_rounds", 4), ("warmup_calls", 0), ("llc_bytes", 0)],
)
def test_a_setting_out_of_range_is_refused_by_name(key: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{key} is "):
        Settings(**{key: value})  # type: ignore[arg-type]


def test_quartiles_are_those_of_the_inclusive_method() -> None:
    assert quartiles([4.0, 1.0, 3.0, 2.0, 5.0]) == (2.0, 3.0, 4.0)
    assert quartiles([1.0, 2.0]) == (1.25, 1.5, 1.75)  # statistics.quantiles([1, 2], n=4, method="inclusive")
    assert quartiles([7.0]) == (7.0, 7.0, 7.0)


def test_the_uncertainty_of_a_median_matches_theory() -> None:
    """The variance of the median of n values of density f is 1 / (4 n f^2): over [1, 2] a deviation of 0.5 / sqrt(n)."""
    n = 10_001
    values = [1 + step / (n - 1) for step in range(n)]
    assert uncertainty(values) == pytest.approx(2 * 0.6745 * 0.5 / n**0.5 / 1.5, rel=0.01)


@given(st.lists(st.floats(1e-9, 1e3), min_size=5, max_size=40), st.integers(1, 20))
def test_uncertainty_is_relative_and_within_the_values(values: list[float], power: int) -> None:
    scale = 2.0**power
    assert uncertainty([value * scale for value in values]) == uncertainty(values)
    assert 0 <= uncertainty(values) <= (max(values) - min(values)) / quartiles(values).median


def test_the_wait_for_a_core_is_a_share_of_the_time_that_threads_wanted_one(tmp_path: Path) -> None:
    def write(thread: int, ran: int, waited: int) -> None:
        (tmp_path / str(thread)).mkdir(exist_ok=True)
        (tmp_path / str(thread) / "schedstat").write_text(f"{ran} {waited} 7\n")

    write(9, 100, 50)
    meter = WaitMeter(tmp_path)
    write(9, 400, 50)
    write(10, 100, 600)  # a thread that started meanwhile
    assert meter.share() == 0.6  # 600 of 300 + 100 + 600
    assert WaitMeter(tmp_path / "missing").share() is None
    assert WaitMeter(tmp_path).share() is None  # nothing ran
