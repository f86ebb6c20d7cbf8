"""In the child: a problem file as KernelBench has them, ``Model``, ``get_inputs`` and ``get_init_inputs``.

Its work is that of one call on the meta device, which computes nothing. Its time is taken only where it is asked for; a
``ModelNew`` beside it is then held to the same output, and compared by turns.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

from roofline_engine.check import Baseline

from ..capture.trace import Captured
from ..capture.watching import of_timed
from ..timing import compare, measure
from ..values import raised
from .rows import Row

#: KernelBench's own tolerance of an output, absolute and relative.
TOLERANCE = 1e-2
_SEED = 42


def problem(module: ModuleType, timed: str) -> Iterator[Row]:
    """The row of ``Model``, and that of ``ModelNew`` where there is one. timed: ``yes`` to run them."""
    import torch

    with torch.no_grad():
        work = _on_meta(torch, module)
        new = getattr(module, "ModelNew", None)
        if timed != "yes":
            yield from (Row(name, work) for name in _labels(new))
            return
        device = "cuda" if torch.cuda.is_available() else "cpu"
        seen = "cpu" if device == "cpu" else "gpu"
        model, inputs = _made(torch, module.Model, module, device), _inputs(torch, module, device)
        if new is None:
            _, measurement = measure(model, *inputs)
            yield Row("", work, measurement, seen=seen)
            return
        candidate = _made(torch, new, module, device)
        _same(torch, model(*inputs), candidate(*inputs))
        both = compare(model, candidate, *inputs)
        yield Row("Model", work, both.baseline, seen=seen)
        baseline = Baseline("eager", t_s=both.baseline.t_s, spread=both.baseline.spread, source="Model")
        yield Row("ModelNew", work, both.candidate, baseline, seen=seen)


def _labels(new: Any) -> tuple[str, ...]:
    return ("",) if new is None else ("Model", "ModelNew")


def _on_meta(torch: Any, module: ModuleType) -> Captured:
    try:
        with torch.device("meta"):
            model, inputs = _made(torch, module.Model, module, "meta"), _inputs(torch, module, "meta")
    except Exception as error:  # it asks for a device by name, or needs values
        return Captured("torch", reason=f"it cannot be made on the meta device: {raised(error)}")
    return of_timed(model, tuple(inputs))


def _made(torch: Any, kind: Any, module: ModuleType, device: str) -> Any:
    torch.manual_seed(_SEED)
    given = module.get_init_inputs()
    model = kind(**given) if isinstance(given, dict) else kind(*given)
    return model.to(device)


def _inputs(torch: Any, module: ModuleType, device: str) -> list[Any]:
    torch.manual_seed(_SEED)
    return [value.to(device) if isinstance(value, torch.Tensor) else value for value in module.get_inputs()]


def _same(torch: Any, expected: Any, found: Any) -> None:
    """Hold an output to another.

    Raises:
        AssertionError: where they differ.
    """
    if isinstance(expected, (list, tuple)):
        if not isinstance(found, (list, tuple)) or len(found) != len(expected):
            raise AssertionError("ModelNew returns another number of outputs than Model")
        for one, other in zip(expected, found):
            _same(torch, one, other)
    elif isinstance(expected, torch.Tensor):
        if not isinstance(found, torch.Tensor) or found.shape != expected.shape:
            raise AssertionError(f"ModelNew returns {getattr(found, 'shape', type(found))}, Model {expected.shape}")
        if not torch.allclose(found, expected, atol=TOLERANCE, rtol=TOLERANCE):
            raise AssertionError(f"ModelNew differs from Model by up to {(found - expected).abs().max().item():.3g}")
