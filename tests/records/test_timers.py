"""Tables of nvbench, and the files of tools that have times by name: codspeed, pyperf, asv, hyperfine."""

from __future__ import annotations

import io
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_roofline.cli import main
from pytest_roofline.records.formats import ADAPTERS, choose
from pytest_roofline.records.source import RecordRow, RefusedError, Sample, Source


def read(name: str, content: Any) -> list[RecordRow]:
    text = content if isinstance(content, str) else json.dumps(content)
    assert [adapter.NAME for adapter in ADAPTERS if adapter.matches(Sample(text))] == [name]
    adapter = choose(Sample(text))
    assert adapter is not None
    return list(adapter.read(Source(Path("x.dat"), io.BytesIO(text.encode()))))


def one(name: str, content: Any) -> RecordRow:
    (record,) = read(name, content)
    return record


# nvbench's tables. 256 MiB are read and written in 2.040 ms: 536870912 bytes / 2.040 ms are 263.172 GB/s.

MARKDOWN = """# Devices

## [0] `NVIDIA GeForce RTX 3090`
* Number of SMs: 82

# Log

```
Pass: Cold: 2.040000ms GPU, 2.062000ms CPU, 0.50s total GPU, 0.51s total wall, 246x
```

# Benchmark Results

## copy

### [0] NVIDIA GeForce RTX 3090

|   Elements      |  T  | Samples | CPU Time | Noise | GPU Time | Noise | GlobalMem BW | BWUtil | Samples | Batch GPU |
|-----------------|-----|---------|----------|-------|----------|-------|--------------|--------|---------|-----------|
| 2^26 = 67108864 | F32 |    246x | 2.062 ms | 1.08% | 2.040 ms | inf% | 263.172 GB/s | 28.10% |    258x |  2.034 ms |
| 2^10 = 1024     | F32 |   9000x | 5.062 us | 1.08% | 2.040 us | 0.06% |              |        |         |           |

## on_the_cpu

| N | Samples | CPU Time | Noise |
|---|---------|----------|-------|
| 8 |     10x |   2.5 us | 1.08% |
"""
CSV = (
    "Benchmark,Device,Device Name,T,Elements (pow2),Elements,Skipped,Samples,CPU Time (sec),Noise (%),GPU Time (sec),Noise (%),"
    "GlobalMem BW (bytes/sec),Samples,Batch GPU (sec)\n"
    "copy,0,NVIDIA GeForce RTX 3090,F32,2^26,67108864,No,246,0.002062,1,0.00204,1,263171819607.8,258,0.002034\n"
    "copy,0,NVIDIA GeForce RTX 3090,F64,2^26,67108864,Yes,,,,,,,,\n"
)


@pytest.mark.parametrize(("name", "text"), [("nvbench Markdown", MARKDOWN), ("nvbench CSV", CSV)])
def test_a_state_of_nvbenchs_tables_has_its_cold_time_bytes_and_device(name: str, text: str) -> None:
    record = read(name, text)[0]
    assert (record.t_s, record.wall_s) == (pytest.approx(2.040e-3), pytest.approx(2.062e-3))
    assert (record.clock, record.cache, record.rounds, record.device) == (
        "device-event",
        "cold",
        246,
        "NVIDIA GeForce RTX 3090",
    )
    assert record.work is not None
    assert record.work["bytes"] == pytest.approx(2 * 2**28, rel=1e-5)
    assert record.name.startswith("copy ")
    assert "67108864" in record.name


def test_states_without_a_bandwidth_or_a_gpu_time_say_so() -> None:
    _, no_bytes, on_cpu = read("nvbench Markdown", MARKDOWN)
    assert (no_bytes.work, no_bytes.t_s) == (None, pytest.approx(2.040e-6))
    assert "GlobalMem BW" in no_bytes.no_work
    assert (on_cpu.name, on_cpu.device, on_cpu.clock, on_cpu.t_s) == ("on_the_cpu N=8", None, "host", pytest.approx(2.5e-6))
    assert read("nvbench CSV", CSV)[1].refused == "skipped"


def test_a_broken_row_of_nvbenchs_tables_is_refused_alone() -> None:
    cut = MARKDOWN.replace("|    258x |  2.034 ms |", "|")
    assert ["fields" in record.refused for record in read("nvbench Markdown", cut)] == [True, False, False]
    assert "GPU Time" in read("nvbench Markdown", MARKDOWN.replace("2.040 ms |", "2.040 parsecs |"))[0].refused
    assert "fields" in read("nvbench CSV", CSV.replace(",258,0.002034", ""))[0].refused


# Times by name

CODSPEED = {
    "creator": {"name": "pytest-codspeed"},
    "instrument": {"type": "walltime"},
    "benchmarks": [
        {
            "name": "test_f",
            "uri": "t.py::test_f",
            "config": {},
            "stats": {
                "min_ns": 1900.0,
                "max_ns": 2500.0,
                "mean_ns": 2050.0,
                "q1_ns": 1950.0,
                "median_ns": 2000.0,
                "q3_ns": 2100.0,
                "rounds": 10,
                "iter_per_round": 4,
            },
        }
    ],
}
PYPERF = {
    "version": "1.0",
    "metadata": {"unit": "second"},
    "benchmarks": [
        {
            "metadata": {"name": "test_f"},
            "runs": [{"warmups": [[1, 0.1]]}, {"values": [1e-3, 3e-3]}, {"values": [2e-3]}],
        }
    ],
}
HYPERFINE = {
    "results": [{"command": "./test_f", "mean": 0.9, "median": 0.3, "times": [0.2, 0.3, 0.4], "exit_codes": [0, 0, 0]}]
}
ASV = {
    "commit_hash": "abc",
    "env_name": "py",
    "result_columns": ["result", "params", "version", "stats_q_25", "stats_q_75"],
    "results": {
        "suite.Sort.time_f": [[1e-3, None, math.nan], [["'a'", "'b'", "'c'"]], "v", [9e-4, None, None], [2e-3, None, None]],
        "suite.time_g": [[5e-3], [], "v"],
        "suite.peakmem_f": [[1e8], [], "v"],
    },
    "version": 2,
}


@pytest.mark.parametrize(
    ("name", "content", "record_name", "t_s", "quartiles"),
    [
        ("pytest-codspeed JSON", CODSPEED, "t.py::test_f", 2e-6, (1.95e-6, 2.1e-6)),
        ("pyperf JSON", PYPERF, "test_f", 2e-3, (1.5e-3, 2.5e-3)),  # of 1, 2, 3 ms
        ("hyperfine JSON", HYPERFINE, "./test_f", 0.3, (0.25, 0.35)),
    ],
)
def test_a_time_has_its_name_unit_and_quartiles(
    name: str, content: Any, record_name: str, t_s: float, quartiles: tuple[float, float]
) -> None:
    record = one(name, content)
    assert (record.name, record.t_s) == (record_name, pytest.approx(t_s))
    assert (record.q1_s, record.q3_s) == (pytest.approx(quartiles[0]), pytest.approx(quartiles[1]))
    assert record.clock == "host"
    assert "[tool.roofline.work]" in record.no_work


def test_asv_has_a_time_for_each_parameter_and_no_time_for_memory() -> None:
    first, failed, skipped, plain, memory = read("asv results", ASV)
    assert (first.name, first.t_s, first.q1_s, first.q3_s) == ("suite.Sort.time_f('a')", 1e-3, 9e-4, 2e-3)
    assert (failed.name, failed.refused) == ("suite.Sort.time_f('b')", "the benchmark failed")
    assert (skipped.refused, skipped.refused_code) == ("skipped", "not_timed")
    assert (plain.name, plain.t_s) == ("suite.time_g", 5e-3)
    assert "not a time" in memory.refused
    old = one("asv results", {"commit_hash": "a", "env_name": "b", "results": {"time_h": 2e-3}, "version": 1})
    assert (old.name, old.t_s) == ("time_h", 2e-3)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("pytest-codspeed JSON", {"benchmarks": [{"stats": {"median_ns": None}}]}, "median_ns"),
        ("pyperf JSON", {"benchmarks": [{"runs": [{"values": [1.0]}], "metadata": {"unit": "byte"}}]}, "'byte'"),
        ("pyperf JSON", {"benchmarks": [{"runs": [{"values": [1.0, "x"]}]}]}, "values"),
        ("pyperf JSON", {"benchmarks": [{"runs": []}]}, "values is empty"),
        ("hyperfine JSON", {"results": [{"command": "f", "mean": 1, "exit_codes": [0, 1]}]}, "1 of 2 runs failed"),
        ("hyperfine JSON", {"results": [{"command": "f", "mean": -1}]}, "times"),
    ],
)
def test_a_row_without_a_time_is_refused(name: str, content: Any, reason: str) -> None:
    assert reason in one(name, content).refused


def test_a_broken_file_is_refused_in_one_line() -> None:
    for name, content in (("pyperf JSON", PYPERF), ("hyperfine JSON", HYPERFINE), ("pytest-codspeed JSON", CODSPEED)):
        with pytest.raises(RefusedError, match="not JSON"):
            read(name, json.dumps(content)[:-1])
    with pytest.raises(RefusedError, match="'results' is missing"):
        read("asv results", '{"results": 3, "result_columns": []}')


def test_a_glob_of_the_project_gives_the_work_of_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A copy of 1 GiB, read and written, in 0.3 s is 7.2 GB/s; in 1 ms it is 2.1 TB/s, over the 0.936 TB/s of an RTX 3090."""
    monkeypatch.chdir(tmp_path)
    settings = tmp_path / "roofline.toml"
    for name, t_s in (("slow.json", 0.3), ("fast.json", 1e-3)):
        (tmp_path / name).write_text(json.dumps({"results": [{"command": "./copy", "mean": t_s}]}))

    def check(name: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["roofline", "check", name, "--device", "rtx3090", "--fail-on", "beyond_roof"])
        code = main()
        return code, capsys.readouterr().out

    assert check("slow.json")[0] == 1
    settings.write_text('[work]\n"./c*" = { bytes = 2147483648, dtype = "fp32" }\n')
    assert check("slow.json")[0] == 0
    assert "beyond_roof: fast.json" in check("fast.json")[1]
    settings.write_text('[work]\n"*" = { op = "rmsnorm", rows = "tokens", cols = 8, dtype = "bf16" }\n')
    assert check("slow.json")[0] == 1
