"""One table of units: a spelling that one reader of records knows, all of them know."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from pytest_roofline.collect.child_main import read_result
from pytest_roofline.records.cases import returned_records
from pytest_roofline.records.formats import choose
from pytest_roofline.records.source import RecordRow, Source
from roofline_engine.check import Claim
from roofline_engine.units import UNITS

TIMES = {spelling: unit.factor for spelling, unit in UNITS.items() if unit.kind == "time"}
RATES = {spelling: (unit.axis, unit.factor) for spelling, unit in UNITS.items() if unit.axis}


def read(text: str) -> RecordRow:
    source = Source(Path("records"), io.BytesIO(text.encode()))
    adapter = choose(source.sample())
    assert adapter is not None, text
    (record,) = adapter.read(source)
    return record


def google(unit: str) -> RecordRow:
    return read(json.dumps({"benchmarks": [{"name": "f", "real_time": 3, "time_unit": unit}]}))


def op_test(unit: str) -> RecordRow:
    return read(f"m,n,k,dtype,ck {unit},ck tflops\n1,2,3,bf16,3,1\n")


def liger(unit: str) -> RecordRow:
    head = "kernel_name,kernel_provider,kernel_operation_mode,metric_name,metric_unit,x_name,x_value,y_value_50"
    return read(f"{head}\nrms_norm,liger,forward,speed,{unit},H,4096,3\n")


def sweep(unit: str) -> RecordRow:
    return read(f"M,N,K,dtype,time_{unit}\n1,2,3,bf16,3\n")


def returned(unit: str) -> RecordRow:
    (record,) = returned_records({f"ck_{unit}": 3}, {}, "test_f")
    return record


def perf_report(unit: str) -> RecordRow:
    result = read_result(3, f"Runtime ({unit})")
    return RecordRow(row="", t_s=result.measurement and result.measurement.t_s, refused=result.problem)


@pytest.mark.parametrize("reader", [google, op_test, liger, sweep, returned, perf_report])
def test_a_time_in_any_unit_is_read_by_every_reader(reader: Any) -> None:
    assert TIMES.keys() >= {"ns", "us", "µs", "ms", "s", "sec", "microseconds"}
    for spelling, second in TIMES.items():
        for unit in (spelling, spelling.upper()):
            record = reader(unit)
            assert (record.refused, record.t_s) == ("", pytest.approx(3 * second)), unit


def arena_rate(unit: str) -> tuple[Claim, ...]:
    return read(json.dumps([{"test_case_id": "a", "time_ms": 3, unit: 5.25}])).claims


def op_test_rate(unit: str) -> tuple[Claim, ...]:
    return read(f"m,n,k,dtype,ck us,ck {unit}\n1,2,3,bf16,3,5.25\n").claims


def sweep_rate(unit: str) -> tuple[Claim, ...]:
    return read(f"M,N,K,dtype,time_ms,{unit}\n1,2,3,bf16,3,5.25\n").claims


def tritonbench_rate(unit: str) -> tuple[Claim, ...]:
    return read(f"x,triton-latency,triton-{unit}\n1,3,5.25\n").claims


def returned_rate(unit: str) -> tuple[Claim, ...]:
    (record,) = returned_records({"ck_us": 3, f"ck_{unit}": 5.25}, {}, "test_f")
    return record.claims


def perf_report_rate(unit: str) -> tuple[Claim, ...]:
    return read_result(5.25, unit).claims


@pytest.mark.parametrize("reader", [arena_rate, op_test_rate, sweep_rate, tritonbench_rate, returned_rate, perf_report_rate])
def test_a_rate_in_any_unit_is_read_by_every_reader(reader: Any) -> None:
    assert RATES.keys() >= {"pflops", "tflop_s", "tflops/s", "gb_s", "gb_per_s", "gib/s", "gbps", "tb/s", "bandwidth_gbps"}
    for spelling, (axis, base) in RATES.items():
        for unit in (spelling, spelling.upper()):
            (claim,) = reader(unit)
            assert (claim.axis, claim.claimed) == (axis, pytest.approx(5.25 * base)), unit
            assert reader is perf_report_rate or claim.digits == pytest.approx(0.005 / 5.25, abs=0.5 / 3)


@pytest.mark.parametrize("key", ["s", "S", "num_experts", "loss", "bytes", "flops", "items"])
def test_a_key_without_a_unit_is_not_a_time(key: str) -> None:
    (record,) = returned_records({key: 3}, {}, "test_f")
    assert "no column of a time" in record.refused
