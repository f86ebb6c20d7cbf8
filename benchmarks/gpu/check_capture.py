"""What only a GPU can show of ``pytest_roofline.capture``: launches of Triton, times that a test takes, XLA's own count.

    python benchmarks/gpu/check_capture.py [--out check_capture.json]

Needs torch built for CUDA or ROCm and Triton 3.4 or newer; also checks JAX if it has the GPU. Takes about a minute. Prints PASS
or FAIL and the figures of each check, and writes them as JSON. Exit 0: all passed; 1: one failed; 2: no GPU (one line). Not yet
run on a GPU: the tests have a stand-in for its driver.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pytest_roofline.capture.timers import observe_timers
from pytest_roofline.capture.trace import CapturedWork, OpTrace, Region, Unknown
from pytest_roofline.capture.triton import missing_hooks, watch_launches
from roofline_engine.fields import has_note

try:
    import triton.language as tl  # a kernel finds its names in its module
except ImportError:  # main reports it
    tl = None

SIZE = 2**24


class Check(NamedTuple):
    name: str
    passed: bool
    wanted: str
    figures: dict[str, Any]


class Gpu(NamedTuple):
    torch: Any
    triton: Any
    add: Any
    figured: Any

    def vectors(self) -> tuple[Any, Any, Any]:
        return tuple(self.torch.ones(SIZE, dtype=self.torch.float32, device="cuda") for _ in range(3))  # type: ignore[return-value]

    def launch(self, kernel: Any, *vectors: Any) -> None:
        kernel[(self.triton.cdiv(SIZE, 1024),)](*vectors, SIZE, BLOCK=1024)

    def region(self, tensor: Any) -> Region:
        storage = tensor.untyped_storage()
        view = Unknown((tensor.storage_offset(), *tensor.shape, *tensor.stride()))
        return Region(storage.data_ptr(), view, float(tensor.numel() * tensor.element_size()), float(storage.nbytes()))

    def watched(self, call: Callable[[], Any]) -> list[OpTrace]:
        traces: list[OpTrace] = []
        with watch_launches(self.region, traces):
            call()
        self.torch.cuda.synchronize()
        return traces


def kernels(triton: Any) -> tuple[Any, Any]:
    def add(x, y, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)

    def said(grid: Any, metadata: Any, args: dict[str, Any]) -> dict[str, Any]:
        return {"name": "said", "flops32": args["n"], "bytes": 12 * args["n"]}

    return triton.jit(add), triton.jit(add, launch_metadata=said)


def a_launch_has_its_footprint(gpu: Gpu) -> Check:
    x, y, out = gpu.vectors()
    traces = gpu.watched(lambda: gpu.launch(gpu.add, x, y, out))
    sizes = [region.nbytes for item in traces for region in item.either]
    right = bool(gpu.torch.equal(out, x + y))
    return Check(
        "a launch is recorded once, with three vectors of 64 MiB",
        len(traces) == 1
        and sizes == [4.0 * SIZE] * 3
        and right
        and not any(has_note(item.notes, "interpreted") for item in traces),
        f"one launch of 3 x {4 * SIZE} B, the right sum",
        {"traces": [item._asdict() for item in traces], "right": right, "missing_hooks": missing_hooks()},
    )


def the_authors_figures_are_taken(gpu: Gpu) -> Check:
    vectors = gpu.vectors()
    traces = gpu.watched(lambda: gpu.launch(gpu.figured, *vectors))
    work = traces[0].work if traces else None
    return Check(
        "launch_metadata is called on the device's launch",
        work is not None and (work.bytes, work.flops) == (12.0 * SIZE, float(SIZE)),
        f"{12 * SIZE} B and {SIZE} FLOPs",
        {"traces": [item._asdict() for item in traces]},
    )


def hooks_of_the_user_still_run(gpu: Gpu) -> Check:
    vectors, names = gpu.vectors(), []
    runtime = gpu.triton.knobs.runtime
    hook = runtime.launch_enter_hook

    def mine(metadata: Any) -> None:
        names.append(metadata.get()["name"])

    if hasattr(hook, "add"):
        hook.add(mine)
    else:
        runtime.launch_enter_hook = mine
    try:
        traces = gpu.watched(lambda: gpu.launch(gpu.figured, *vectors))
    finally:
        if hasattr(hook, "remove"):
            hook.remove(mine)
        else:
            runtime.launch_enter_hook = hook
    return Check(
        "a user's launch hook still runs",
        len(traces) == 1 and names == ["said"],
        "one call of each",
        {"names": names},
    )


def autotuning_is_no_work(gpu: Gpu) -> Check:
    vectors = gpu.vectors()
    configs = [gpu.triton.Config({"BLOCK": block}) for block in (256, 512, 1024)]
    tuned = gpu.triton.autotune(configs, key=["n"])(gpu.add)
    with observe_timers() as observed:
        traces = gpu.watched(lambda: tuned[lambda meta: (gpu.triton.cdiv(SIZE, meta["BLOCK"]),)](*vectors, SIZE))
    return Check(
        "of an autotuned kernel only the chosen launch is recorded, and none of its times",
        len(traces) == 1 and not observed,
        "one launch, no time",
        {"traces": len(traces), "observed": len(observed)},
    )


def do_bench_is_observed(gpu: Gpu) -> Check:
    vectors, found = gpu.vectors(), {}
    with observe_timers() as observed:
        for mode in ("median", "mean", "all"):
            result = gpu.triton.testing.do_bench(lambda: gpu.launch(gpu.add, *vectors), return_mode=mode)
            found[mode] = result if isinstance(result, float) else len(result)
        gpu.triton.testing.do_bench_cudagraph(lambda: gpu.launch(gpu.add, *vectors), return_mode="median")
    clocks = [item.measurement.clock for item in observed]
    rates = [12 * SIZE / item.measurement.t_s for item in observed]
    return Check(
        "do_bench and do_bench_cudagraph are observed with their clocks",
        clocks == ["device-event"] * 3 + ["device-graph"] and abs(observed[0].measurement.t_s * 1e3 - found["median"]) < 1e-9,
        "three times by events, one by a graph, the first the median that was returned",
        {"returned": found, "bytes_s": rates, "observed": [item.measurement._asdict() for item in observed]},
    )


def compiled_code_is_recorded(gpu: Gpu) -> Check:
    """Not a claim but a figure: which launches of torch.compile's kernels are recorded."""
    x, y, _ = gpu.vectors()
    compiled = gpu.torch.compile(lambda x, y: gpu.torch.relu(x + y) * 2)
    compiled(x, y)
    traces = gpu.watched(lambda: compiled(x, y))
    return Check(
        "launches of Inductor's kernels (for information)",
        True,
        "none with Inductor's static launcher, one without",
        {"traces": [item.name for item in traces]},
    )


def jax_counts_a_product(gpu: Gpu) -> Check:
    try:
        import jax
    except ImportError:
        return Check("JAX (not installed)", True, "nothing", {})
    from pytest_roofline.capture.jax import capture

    x = jax.numpy.ones((1024, 1024), "float32")
    platform = next(iter(x.devices())).platform
    found: CapturedWork = capture(lambda a, b: a @ b, (x, x + 1))
    work = found.work
    return Check(
        "JAX: a product of 1024^3, whatever library XLA calls for it",
        work is not None and (work.bytes, work.flops) == (3 * 4.0 * 1024**2, 2.0 * 1024**3),
        "12582912 B and 2147483648 FLOPs",
        {"platform": platform, "dtype": work.dtype.name if work else None, "reason": found.reason, "notes": found.notes},
    )


CHECKS: tuple[Callable[[Gpu], Check], ...] = (
    a_launch_has_its_footprint,
    the_authors_figures_are_taken,
    hooks_of_the_user_still_run,
    autotuning_is_no_work,
    do_bench_is_observed,
    compiled_code_is_recorded,
    jax_counts_a_product,
)


def ran(gpu: Gpu) -> Iterator[Check]:
    for check in CHECKS:
        try:
            yield check(gpu)
        except Exception as error:  # one check that cannot run must not hide the others
            yield Check(check.__name__.replace("_", " "), False, "to run", {"error": f"{type(error).__name__}: {error}"})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("check_capture.json"), metavar="FILE")
    options = parser.parse_args()
    try:
        import torch
        import triton
    except ImportError as error:
        print(f"check_capture: {error.name} is not installed, so no launch can be seen", file=sys.stderr)
        return 2
    if not torch.cuda.is_available():
        print(f"check_capture: torch {torch.__version__} finds no CUDA or HIP device; nothing was checked", file=sys.stderr)
        return 2
    gpu = Gpu(torch, triton, *kernels(triton))
    checks = []
    for check in ran(gpu):
        checks.append(check)
        print("PASS" if check.passed else "FAIL", check.name, f"(wanted: {check.wanted})")
        print("     " + json.dumps(check.figures, default=str))
    document = {
        "device": torch.cuda.get_device_name(),
        "versions": {
            "torch": torch.__version__,
            "triton": triton.__version__,
            "cuda": torch.version.cuda,
            "hip": torch.version.hip,
        },
        "checks": [check._asdict() for check in checks],
    }
    options.out.write_text(json.dumps(document, indent=1, default=str) + "\n", encoding="utf-8")
    failed = sum(not check.passed for check in checks)
    print(f"{len(checks) - failed} of {len(checks)} passed; {options.out}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
