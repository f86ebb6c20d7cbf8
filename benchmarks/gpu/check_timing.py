"""What only a GPU can show of ``pytest_roofline.timing``: cold and warm, events and graphs, streams, a missing wait.

    python benchmarks/gpu/check_timing.py [--peak BYTES_S] [--llc BYTES] [--out check_timing.json]

Needs torch built for CUDA or ROCm, pytest-roofline installed, 6 GB of free device memory and about a minute on an otherwise
idle GPU. Prints PASS or FAIL and the figures of each check, and writes them as JSON. Exit 0: all passed; 1: one failed;
2: no GPU (one line). The rated bandwidth and the caches come from the peaks table unless they are given.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pytest_roofline.timing import Settings, compare, measure
from roofline_engine.check import Measurement
from roofline_engine.peaks import Device, resolve
from roofline_engine.peaks_table import load, locate

#: A copy that reaches less of the rated bandwidth than this is timed with something else in it.
LEAST_OF_RATED = 0.5
#: How far two ways to time one thing may be apart.
AGREE = 0.05
COPY_BYTES = 2**30


class Check(NamedTuple):
    name: str
    passed: bool
    wanted: str
    figures: dict[str, Any]


class Gpu(NamedTuple):
    """The device under test, with what is rated: bytes/s, the most that can be believed, bytes of the last-level cache."""

    torch: Any
    rated: float
    limit: float
    llc: int

    def floats(self, size: int) -> Any:
        return self.torch.ones(size // 4, dtype=self.torch.float32, device="cuda")

    def settings(self, **changes: Any) -> Settings:
        return Settings(**{"cache": "cold", "budget_s": 2.0, "llc_bytes": self.llc, **changes})


def copy(source: Any, target: Any) -> None:
    target.copy_(source)


def cold_copy_is_under_the_roof(gpu: Gpu) -> Check:
    source, target = gpu.floats(COPY_BYTES), gpu.floats(COPY_BYTES)
    _, found = measure(copy, source, target, settings=gpu.settings())
    rate = 2 * COPY_BYTES / found.t_s
    return Check(
        "a cold copy of 1 GiB by events",
        LEAST_OF_RATED * gpu.rated <= rate <= gpu.limit,
        f"{LEAST_OF_RATED:g} x {gpu.rated:.4g} <= bytes/s <= {gpu.limit:.4g}",
        {"bytes_s": rate, "of_rated": rate / gpu.rated, **shown(found)},
    )


def cold_differs_from_warm(gpu: Gpu) -> Check:
    """Both by graph replay: the copy is so short that launch gaps would hide the difference."""
    half = gpu.llc * 3 // 10
    source, target = gpu.floats(half), gpu.floats(half)
    _, cold = measure(copy, source, target, settings=gpu.settings(graph=True))
    _, warm = measure(copy, source, target, settings=gpu.settings(graph=True, cache="warm"))
    labels = (cold.cache, warm.cache) == ("cold", "warm")
    return Check(
        "a working set of 0.6 of the last-level cache, cold against warm",
        labels and cold.t_s > 1.1 * warm.t_s,
        "cold over 1.1 x warm",
        {"cold": shown(cold), "warm": shown(warm), "ratio": cold.t_s / warm.t_s},
    )


def flush_is_large_enough(gpu: Gpu) -> Check:
    half = gpu.llc * 3 // 10
    source, target = gpu.floats(half), gpu.floats(half)
    _, twice = measure(copy, source, target, settings=gpu.settings(graph=True))
    _, more = measure(copy, source, target, settings=gpu.settings(graph=True, llc_bytes=2 * gpu.llc))
    return Check(
        "a flush of twice the cache evicts what one of four times does",
        abs(more.t_s / twice.t_s - 1) <= AGREE,
        f"within {AGREE:.0%}",
        {"twice": shown(twice), "four_times": shown(more), "ratio": more.t_s / twice.t_s},
    )


def missing_wait_shows(gpu: Gpu) -> Check:
    """What a host clock without a wait would have read for the copy, and the bandwidth that this would claim."""
    source, target = gpu.floats(COPY_BYTES), gpu.floats(COPY_BYTES)
    _, found = measure(copy, source, target, settings=gpu.settings())
    readings = []
    for _ in range(9):
        gpu.torch.cuda.synchronize()
        begin = time.perf_counter()
        copy(source, target)
        readings.append(time.perf_counter() - begin)
    gpu.torch.cuda.synchronize()
    launch_s = statistics.median(readings)
    return Check(
        "a missing wait reads the launch, not the copy",
        launch_s < found.t_s / 2,
        "under half of the time by events",
        {"without_wait_s": launch_s, "by_events": shown(found), "would_claim_bytes_s": 2 * COPY_BYTES / launch_s},
    )


def graph_agrees_on_a_long_kernel(gpu: Gpu) -> Check:
    source, target = gpu.floats(COPY_BYTES), gpu.floats(COPY_BYTES)
    _, events = measure(copy, source, target, settings=gpu.settings())
    _, graph = measure(copy, source, target, settings=gpu.settings(graph=True))
    return Check(
        "graph replay and events agree on a long kernel",
        graph.clock == "device-graph" and abs(graph.t_s / events.t_s - 1) <= AGREE,
        f"within {AGREE:.0%}",
        {"events": shown(events), "graph": shown(graph), "ratio": graph.t_s / events.t_s},
    )


def graph_has_no_launch_gaps(gpu: Gpu) -> Check:
    small = gpu.floats(2**16)

    def twenty_launches(array: Any) -> None:
        for _ in range(20):
            array.mul_(1.0)

    _, events = measure(twenty_launches, small, settings=gpu.settings(cache="warm"))
    _, graph = measure(twenty_launches, small, settings=gpu.settings(cache="warm", graph=True))
    return Check(
        "graph replay of twenty short kernels takes no longer than their launches",
        graph.clock == "device-graph" and graph.t_s <= events.t_s * (1 + AGREE),
        f"at most {1 + AGREE:g} x events",
        {"events": shown(events), "graph": shown(graph), "gaps_ratio": events.t_s / graph.t_s},
    )


def another_current_stream_is_followed(gpu: Gpu) -> Check:
    source, target = gpu.floats(COPY_BYTES), gpu.floats(COPY_BYTES)
    gpu.torch.cuda.synchronize()
    _, default = measure(copy, source, target, settings=gpu.settings())
    with gpu.torch.cuda.stream(gpu.torch.cuda.Stream()):
        _, side = measure(copy, source, target, settings=gpu.settings())
    gpu.torch.cuda.synchronize()
    return Check(
        "the time on another current stream is the same",
        abs(side.t_s / default.t_s - 1) <= AGREE,
        f"within {AGREE:.0%}",
        {"default": shown(default), "side": shown(side), "ratio": side.t_s / default.t_s},
    )


def work_on_a_hidden_stream_is_said(gpu: Gpu) -> Check:
    source, target = gpu.floats(COPY_BYTES), gpu.floats(COPY_BYTES)
    hidden = gpu.torch.cuda.Stream()
    gpu.torch.cuda.synchronize()

    def fn(source: Any, target: Any) -> None:
        with gpu.torch.cuda.stream(hidden):
            target.copy_(source)

    _, found = measure(fn, source, target, settings=gpu.settings(budget_s=0.2))
    gpu.torch.cuda.synchronize()
    return Check(
        "work on a stream without a wait gets a note",
        any("another stream" in note for note in found.notes),
        "a note on it",
        shown(found),
    )


def a_pair_of_equals_is_equal(gpu: Gpu) -> Check:
    source, target = gpu.floats(COPY_BYTES // 8), gpu.floats(COPY_BYTES // 8)
    _, first, second, speedup = compare(copy, copy, source, target, settings=gpu.settings())
    return Check(
        "a function is as fast as itself",
        abs(speedup.median - 1) <= 0.034,
        "1 within the noise band of 3.4%",
        {"speedup": speedup._asdict(), "first": shown(first), "second": shown(second)},
    )


CHECKS: tuple[Callable[[Gpu], Check], ...] = (
    cold_copy_is_under_the_roof,
    cold_differs_from_warm,
    flush_is_large_enough,
    missing_wait_shows,
    graph_agrees_on_a_long_kernel,
    graph_has_no_launch_gaps,
    another_current_stream_is_followed,
    work_on_a_hidden_stream_is_said,
    a_pair_of_equals_is_equal,
)


def shown(found: Measurement) -> dict[str, Any]:
    return {**found._asdict(), "spread": found.spread}


def ran(gpu: Gpu) -> Iterator[Check]:
    for check in CHECKS:
        try:
            yield check(gpu)
        except Exception as error:  # one check that cannot run must not hide the others
            yield Check(check.__name__.replace("_", " "), False, "to run", {"error": f"{type(error).__name__}: {error}"})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--peak", type=float, metavar="BYTES_S", help="rated memory bandwidth, in place of the table's")
    parser.add_argument("--llc", type=int, metavar="BYTES", help="last-level cache, memory-side caches included")
    parser.add_argument("--out", type=Path, default=Path("check_timing.json"), metavar="FILE")
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("check_timing: torch is not installed, so no GPU can be timed through it", file=sys.stderr)
        return 2
    if not torch.cuda.is_available():
        print(f"check_timing: torch {torch.__version__} finds no CUDA or HIP device; nothing was checked", file=sys.stderr)
        return 2

    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    gfx = getattr(properties, "gcnArchName", "") if torch.version.hip else f"sm_{properties.major}{properties.minor}"
    table = locate()
    device = Device(gfx, properties.name, properties.multi_processor_count, float(properties.total_memory))
    peaks = resolve(load(table) if table else None, device)
    rated = options.peak or peaks.hbm_bw_bytes_s
    llc = options.llc or int(peaks.mall_bytes or peaks.l2_bytes or 0) or int(getattr(properties, "L2_cache_size", 0))
    if not rated or not llc:
        print(f"check_timing: the table does not know {properties.name}; give --peak and --llc", file=sys.stderr)
        return 2
    gpu = Gpu(torch, rated, rated if options.peak else (peaks.hbm_bw_limit_bytes_s or rated), llc)

    checks = []
    for check in ran(gpu):
        checks.append(check)
        print("PASS" if check.passed else "FAIL", check.name, f"(wanted: {check.wanted})")
        print("     " + json.dumps(check.figures))
    document = {
        "device": {**device._asdict(), "product": peaks.product, "rated_bytes_s": rated, "llc_bytes": llc},
        "versions": {"torch": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip},
        "checks": [check._asdict() for check in checks],
    }
    options.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    failed = sum(not check.passed for check in checks)
    print(f"{len(checks) - failed} of {len(checks)} passed; {options.out}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
