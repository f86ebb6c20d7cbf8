"""What watching a call of torch costs: microseconds per operation over the plain call, and how often it calls.

    python benchmarks/bench_capture.py

Processor time, the best of many short rounds, of operations so small that the call itself is nearly free. The share that is
the two modes of torch alone, without anything recorded, is shown for comparison.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_roofline.capture.torch.watch import capture

OPERATIONS, ROUNDS, LIMIT_US = 50, 400, 100.0


class Functions(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def best_us(call: Callable[[], object]) -> float:
    """Of one operation."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        call()
        best = min(best, time.process_time() - start)
    return best / OPERATIONS * 1e6


def many(step: Callable[[Any], Any], x: Any) -> Callable[[], Any]:
    def run() -> Any:
        y = x
        for _ in range(OPERATIONS):
            y = step(y)
        return y

    return run


def bare(call: Callable[[], Any]) -> None:
    with Functions(), Dispatch():
        call()


def main() -> None:
    torch.set_num_threads(1)
    x, heads, keys = torch.ones(8, 8), torch.ones(1, 2, 8, 8), torch.ones(1, 2, 8, 8)
    steps = {
        "add": (lambda y: y + x, x),
        "add_": (lambda y: y.add_(1), x.clone()),
        "mm": (lambda y: y @ x, x),
        "linear": (lambda y: functional.linear(y, x), x),
        "layer_norm": (lambda y: functional.layer_norm(y, (8,)), x),
        "attention": (lambda y: functional.scaled_dot_product_attention(y, keys, heads), heads),
        "view": (lambda y: y.t(), x),
    }
    nothing = best_us(lambda: capture(lambda: None))  # once a capture, not per operation
    print(f"{'':12}{'plain':>8}{'modes':>8}{'capture':>9}  us per operation")
    worst = 0.0
    for name, (step, start) in steps.items():
        run = many(step, start)
        plain, modes, captured = (
            best_us(run),
            best_us(lambda run=run: bare(run)),
            best_us(lambda run=run: capture(run)) - nothing,
        )
        worst = max(worst, captured - plain)
        print(f"{name:12}{plain:8.1f}{modes - plain:+8.1f}{captured - plain:+9.1f}", flush=True)
    calls: list[None] = []
    capture(lambda: calls.append(None))
    print(f"a capture of nothing: {nothing * OPERATIONS:.0f} us")
    print(f"at most {worst:.0f} us an operation (limit {LIMIT_US:.0f}); {len(calls)} extra call")


if __name__ == "__main__":
    main()
