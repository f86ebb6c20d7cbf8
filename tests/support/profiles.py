"""Profiles to analyze, in the formats that profilers and serving stacks write."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

from support.tool import EXAMPLE, run_tool


@functools.cache
def worked_example() -> str:
    """Return the artifact of the worked example as JSON text; it is analyzed once per process, into a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        done = run_tool("analyze", EXAMPLE, "--json", "--out", folder)
    assert done.code == 0, done.err
    return done.out


class Run:
    """A run's folder: profile/round_1 with the Top-N and shapes, env_report.json and config.json two folders above."""

    def __init__(self, folder: Path) -> None:
        self.top = folder
        self.round = folder / "profile" / "round_1"
        self.round.mkdir(parents=True)

    def topn(self, *rows: dict[str, Any], **keys: Any) -> Run:
        return self.write("profile_topN.json", {"top_kernels": list(rows), **keys})

    def env(self, **keys: Any) -> Run:
        return self.write("env_report.json", keys)

    def config(self, **keys: Any) -> Run:
        return self.write("config.json", keys)

    def shapes(self, **cases: Any) -> Run:
        return self.write("shapes.json", cases)

    def write(self, name: str, content: Any) -> Run:
        folder = self.round if name in ("profile_topN.json", "shapes.json") else self.top
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name).write_text(text, encoding="utf-8")
        return self

    def analyze(self, *options: object, **environment: str) -> dict[str, Any]:
        """Return the artifact; the command must succeed and print only the result on stdout."""
        done = run_tool("analyze", self.round, "--json", *options, **environment)
        assert done.code == 0, done.err
        assert "Traceback" not in done.err
        artifact = json.loads(done.out)
        assert isinstance(artifact, dict)
        return artifact


def entry(artifact: dict[str, Any], name: str) -> dict[str, Any]:
    return next(item for item in artifact["entries"] if item["name"] == name)


#: A gemm that is half way up the memory roof of an MI300X: (M*K + K*N + M*N) * 2 bytes in the time given with it.
GEMM = {"op": "gemm", "M": 64, "N": 8192, "K": 8192, "dtype": "bf16"}
MI300X = {"gfx": "gfx942", "device_name": "AMD Instinct MI300X"}


def gemm_row(name: str = "gemm_kernel", pct: float = 20.0, t_ms: float = 0.05, **keys: Any) -> dict[str, Any]:
    return {"name": name, "pct_gpu_time": pct, "base_latency_ms": t_ms, "editable": True, **keys}
