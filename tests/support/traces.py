"""Chrome traces as the torch profiler writes them, made in a test: operations, their launches, and kernels on a device."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

H100 = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85018279936, "computeMajor": 9, "computeMinor": 0}
H100.update(warpSize=32, numSms=132)  # type: ignore[call-overload]
MI300X = {"id": 0, "name": "AMD Instinct MI300X", "totalGlobalMem": 206141652992, "computeMajor": 9, "computeMinor": 4}
MI300X.update(warpSize=64, numSms=304)  # type: ignore[call-overload]

Tensor = tuple[Sequence[int], str]


class TraceBuilder:
    """Collects events; every operation starts 1000 us after the one before, every kernel when the one before it ends."""

    def __init__(self, device: Mapping[str, Any] | None = H100, **metadata: Any) -> None:
        self.events: list[dict[str, Any]] = []
        self.device, self.metadata = device, metadata
        self._id, self._at, self._gpu = 100, 1_000_000.0, 1_000_000.0

    def op(
        self,
        name: str,
        inputs: Sequence[Any] = (),
        kernels: Sequence[tuple[str, float]] = (),
        *,
        strides: Sequence[Any] | None = None,
        link: str = "external",
        grid: Sequence[int] = (132, 1, 1),
        stream: int = 7,
    ) -> None:
        """Add an operation with its kernels (name, microseconds).

        inputs: a tensor as (shape, dtype), anything else as the text that a profiler records.
        link: how a kernel names its operation: external, correlation, or interval.
        """
        self._id += 1
        external, start = self._id, self._at
        args: dict[str, Any] = {"External id": external}
        if inputs:
            args["Concrete Inputs"] = ["" if isinstance(item, tuple) else str(item) for item in inputs]
            args["Input type"] = [item[1] if isinstance(item, tuple) else "Scalar" if item != "" else "" for item in inputs]
            args["Input Dims"] = [list(item[0]) if isinstance(item, tuple) else [] for item in inputs]
            args["Input Strides"] = (
                [list(item) for item in strides]
                if strides
                else [dense(item[0]) if isinstance(item, tuple) else [] for item in inputs]
            )
        self._event("cpu_op", name, start, 900.0, args, pid=1, tid=1)
        for number, (kernel, dur) in enumerate(kernels):
            self._id += 1
            self._event(
                "cuda_runtime", "cudaLaunchKernel", start + 10 * number + 1, 5.0, {"correlation": self._id}, pid=1, tid=1
            )
            launched: dict[str, Any] = {
                "correlation": self._id,
                "device": 0,
                "stream": stream,
                "grid": list(grid),
                "block": [128, 1, 1],
            }
            if link == "external":
                launched["External id"] = external
            self.kernel(kernel, dur, launched)
        self._at += 1000.0

    def kernel(
        self, name: str, dur: Any, args: Mapping[str, Any], *, at: float | None = None, category: str = "kernel"
    ) -> None:
        """Add a slice on the device."""
        start = max(self._gpu, self._at) if at is None else at
        self._event(category, name, start, dur, dict(args), pid=0, tid=args.get("stream", 7))
        if at is None and isinstance(dur, float) and dur > 0:
            self._gpu = start + dur

    def annotation(self, name: str, start: float, end: float) -> None:
        """Add a range on the host's thread."""
        self._event("user_annotation", name, start, end - start, {}, pid=1, tid=1)

    def _event(self, category: str, name: str, ts: float, dur: Any, args: dict[str, Any], pid: int, tid: Any) -> None:
        event = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}
        self.events.append(event)

    def document(self) -> dict[str, Any]:
        properties = {} if self.device is None else {"deviceProperties": [dict(self.device)]}
        return {"schemaVersion": 1, **properties, **self.metadata, "traceEvents": self.events}

    def write(self, path: Path, *, indent: int | None = 2) -> Path:
        """Write the trace, packed if the name ends with .gz."""
        text = json.dumps(self.document(), indent=indent)
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
        return path


def dense(shape: Sequence[int]) -> list[int]:
    """Return the strides of a contiguous tensor."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return strides[::-1]
