"""Recorded operations have the work of live ones: the torch profiler's record of a call, through the map of the engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from roofline_engine.calls.recorded import has_model, model
from roofline_engine.calls.signatures import POINTWISE, REDUCTIONS
from roofline_engine.ops import work
from roofline_engine.profiles.torch_trace import _read_facts


@pytest.fixture(scope="module")
def torch() -> Any:
    """Import torch in a test, not with the file: collecting these tests must not import torch for the others."""
    return pytest.importorskip("torch", reason="torch is not installed")


def record(torch: Any, fn: Callable[[], Any], folder: Path) -> list[Any]:
    """Return what the profiler records of the outermost operations of a call that have a model."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
        fn()
    path = folder / "trace.json"
    profiler.export_chrome_trace(str(path))
    events = [event for event in json.loads(path.read_text())["traceEvents"] if event.get("cat") == "cpu_op"]
    outer, end = [], -1.0
    for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
        if event["ts"] >= end and has_model(event["name"]):
            outer.append(_read_facts(event["name"], event["args"]))
            end = event["ts"] + event["dur"]
    return outer


def calls(torch: Any) -> dict[str, Callable[[], Any]]:
    """Calls on tensors that share no memory, since a profiler does not record what does."""
    from torch.nn import functional

    made = [torch.randn(64, 128) for _ in range(3)]
    x, y, z = made
    image, weight = torch.randn(2, 8, 16, 16), torch.randn(4, 8, 3, 3)
    vector, rows = torch.randn(128), torch.arange(32)
    half = x.to(torch.bfloat16)
    return {
        "add": lambda: x + y,
        "broadcast": lambda: x + vector,
        "transposed": lambda: x.t() + torch.empty(128, 64),
        "mixed dtypes": lambda: half + y,
        "compare": lambda: x > y,
        "addcmul": lambda: torch.addcmul(x, y, z),
        "in place": lambda: torch.empty(64, 128).mul_(y),
        "gelu": lambda: functional.gelu(half),
        "lerp": lambda: torch.lerp(x, y, 0.5),
        "sum": lambda: x.sum(),
        "sum of rows": lambda: x.sum(1),
        "mean kept": lambda: x.mean(0, keepdim=True),
        "max with indices": lambda: x.max(1),
        "maximum": lambda: torch.max(x, y),
        "any": lambda: (x > 0).any(1),
        "variance": lambda: torch.var_mean(x, 1),
        "norm": lambda: x.norm(),
        "mm": lambda: torch.mm(x, y.t()),
        "addmm": lambda: torch.addmm(torch.empty(64), x, y.t()),
        "bmm": lambda: torch.bmm(x.view(4, 16, 128), y.view(4, 128, 16)),
        "mv": lambda: x.mv(vector),
        "linear": lambda: functional.linear(x, y),
        "conv2d": lambda: functional.conv2d(image, weight, padding=1),
        "conv2d strided": lambda: functional.conv2d(image, weight, stride=2),
        "conv2d transposed": lambda: functional.conv_transpose2d(image, torch.empty(8, 4, 3, 3), stride=2, output_padding=1),
        "softmax": lambda: x.softmax(-1),
        "layer norm": lambda: functional.layer_norm(x, (128,), vector, torch.empty(128)),
        "group norm": lambda: functional.group_norm(image, 4, torch.empty(8), torch.empty(8)),
        "clone": lambda: x.clone(),
        "contiguous": lambda: x.t().contiguous(),
        "convert": lambda: x.to(torch.bfloat16),
        "copy": lambda: torch.empty(64, 128).copy_(y),
        "fill": lambda: torch.empty(64, 128).fill_(1.0),
        "zeros like": lambda: torch.zeros_like(x),
        "arange": lambda: torch.arange(10, 1000, 2),
        "index select": lambda: x.index_select(0, rows),
        "embedding": lambda: functional.embedding(rows, x),
        "tril": lambda: x.tril(),
        "topk": lambda: x.topk(4),
        "cumsum": lambda: x.cumsum(1),
        "glu": lambda: functional.glu(x),
        "pad": lambda: functional.pad(x, (1, 2)),
        "average pool": lambda: functional.avg_pool2d(image, 3, 2, 1),
        "adaptive pool": lambda: functional.adaptive_avg_pool2d(image, (4, 4)),
        "upsample": lambda: functional.interpolate(image, scale_factor=2),
        "dropout": lambda: torch.native_dropout(x, 0.5, True),
        "mse": lambda: functional.mse_loss(x, y),
    }


def test_a_recorded_operation_has_the_work_of_the_live_one(torch: Any, tmp_path: Path) -> None:
    """Each index of the look-ups names another row, so that the most that they may read is what they read."""
    from pytest_roofline.capture.torch.watch import capture

    differences = {}
    for name, fn in calls(torch).items():
        live = capture(fn)[1].work
        assert live is not None, name
        expected = next((one for one in live.candidates if one.model == "op_by_op"), live.candidates[0])
        nbytes = flops = 0.0
        for facts in record(torch, fn, tmp_path):
            found = model(facts)
            assert found.case is not None, (name, facts, found.reason)
            case = dict(found.case)
            recorded = work(case.pop("op"), **case)
            nbytes, flops = nbytes + recorded.bytes, flops + recorded.flops
        if (nbytes, flops) != (pytest.approx(expected.bytes, rel=1e-3), pytest.approx(expected.flops)):
            differences[name] = (nbytes, flops, expected.bytes, expected.flops)
    assert differences == {}


def test_the_classes_of_operations_are_torch_tags(torch: Any) -> None:
    for names, tag in ((POINTWISE, torch.Tag.pointwise), (REDUCTIONS, torch.Tag.reduction)):
        for name in names - {"hardswish", "hardswish_backward", "hardsigmoid_backward", "floor_divide"}:
            packet = getattr(torch.ops.aten, name)
            assert any(tag in getattr(packet, overload).tags for overload in packet.overloads()), name
