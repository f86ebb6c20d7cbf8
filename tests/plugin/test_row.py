"""One row: what each gate says of it, and its JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_roofline.gate import KINDS, SKIPS, Allowance, Gates, Summary
from pytest_roofline.row import Refusal, Row, declaration_in, read_field, read_part
from roofline_engine.check import BASELINE_KINDS, STATUSES, Baseline, Check, Measurement, assess_measurement
from roofline_engine.fields import CONFIDENCES, UNKNOWN_REASONS, Entry, note
from roofline_engine.ops import work
from roofline_engine.peaks import Peaks
from roofline_engine.work import COVERAGES

PEAKS = Peaks(product="x", hbm_bw_bytes_s=8e12, flops={"bf16": 2.5e15}, l2_bytes=3e7, confidence="high")
GEMM = work("gemm", M=64, N=8192, K=8192, dtype="bf16")
TIME = Measurement("user", 5e-5, 4.9e-5, 5.1e-5, 100, clock="device-event", cache="cold", notes=("by hand",))


@pytest.fixture
def row() -> Row:
    """34 % of the memory roof, slower than its baseline."""
    entry = assess_measurement(Entry(name="gemm", short_name="test_gemm", stage="B"), GEMM, TIME, PEAKS)
    entry = entry._replace(notes=(note("one launch", "unit"), note("a remark", "remark")))
    return Row(
        nodeid="test_a.py::test_gemm",
        entry=entry,
        check=Check("regression", "takes 1.2 times as long", utilisation=0.34, speedup=0.8, band=0.05),
        device="x",
        roof_s=1.7e-5,
        work_source="marker",
        engine="matrix",
        measurement=TIME,
        baseline=Baseline("previous", t_s=4e-5),
    )


def outcomes(
    row: Row, *kinds: str, fail_under: float | None = None, min_pct: float | None = None
) -> list[tuple[str, str, str]]:
    found = Gates(frozenset(kinds), fail_under).evaluate(row, min_pct)
    return [(outcome.gate, outcome.status, outcome.code) for outcome in found]


def test_each_gate_that_was_asked_for_has_one_outcome(row: Row) -> None:
    assert outcomes(row) == []
    assert outcomes(row, *KINDS, fail_under=30, min_pct=50) == [
        ("beyond_roof", "passed", ""),
        ("unmodelled", "passed", ""),
        ("exceeds_target", "passed", ""),
        ("regression", "failed", ""),
        ("infeasible", "passed", ""),
        ("refused", "passed", ""),  # and nothing for claim: the row prints no rate
        ("min_pct", "failed", ""),
        ("fail_under", "passed", ""),
    ]


def test_the_first_failure_is_the_line_to_report(row: Row) -> None:
    row = replace(row, gates=Gates(frozenset({"regression"}), 50).evaluate(row))
    assert row.failed == "regression: takes 1.2 times as long"
    expected = row.expected_to_fail()
    assert expected.failed is None
    assert [(one.status, one.code) for one in expected.gates if one.gate == "regression"] == [("allowed", "xfail")]


@pytest.mark.parametrize(
    ("change", "kind", "code"),
    [
        ({"notes": (note("n", "shared_workers"),)}, "regression", "shared_workers"),
        ({"confidence": "low"}, "fail_under", "low_confidence"),
        ({"unknown_reason": "unvalidated_peak"}, "fail_under", "no_percent"),
        ({"roofline_pct": None}, "fail_under", "no_percent"),
        ({"roofline_pct": 0.9, "unknown_reason": "cache_resident"}, "fail_under", "no_percent"),
        ({"unknown_reason": "infeasible", "confidence": "low"}, "infeasible", "low_confidence"),
    ],
)
def test_a_gate_skips_what_it_cannot_judge(row: Row, change: dict[str, object], kind: str, code: str) -> None:
    row = replace(row, entry=row.entry._replace(**change))  # type: ignore[arg-type]
    gates = Gates(frozenset({kind}) - {"fail_under"}, 50 if kind == "fail_under" else None)
    row = replace(row, gates=gates.evaluate(row))
    assert [(outcome.gate, outcome.status, outcome.code) for outcome in row.gates] == [(kind, "skipped", code)]
    summary = Summary(gates)
    summary.add(row, "test_gemm", row.gates)
    assert summary.line() == f"gate: 0 checked, 0 failed, 0 allowed, 1 unchecked ({code} 1)"
    assert summary.fails_run
    tolerant = Summary(gates._replace(allow_unchecked=frozenset({code})))
    tolerant.add(row, "test_gemm", row.gates)
    assert not tolerant.fails_run


def test_a_regression_needs_no_confidence_in_the_roof(row: Row) -> None:
    row = replace(row, entry=row.entry._replace(confidence="low"))
    assert outcomes(row, "regression") == [("regression", "failed", "")]


def test_a_gate_without_a_roof_or_a_baseline_is_skipped(row: Row) -> None:
    without_roof = replace(row, check=row.check._replace(utilisation=None))
    assert outcomes(without_roof, "beyond_roof") == [("beyond_roof", "skipped", "no_roof")]
    assert outcomes(replace(without_roof, device=None), "beyond_roof") == [("beyond_roof", "skipped", "no_device")]
    assert outcomes(replace(row, check=Check("not_checked")), "regression") == [("regression", "skipped", "no_baseline")]


def test_a_row_survives_its_json(row: Row) -> None:
    row = replace(row, gates=Gates(frozenset(KINDS), 50).evaluate(row))
    assert Row.from_dict(json.loads(json.dumps(row.to_dict()))) == row


def test_the_declaration_of_a_row_is_read_back(row: Row) -> None:
    declaration = declaration_in({**row.to_dict(), "op": "quantise"})
    assert declaration.work is not None
    assert (declaration.source, declaration.stage, declaration.work.op) == ("marker", "B", "quantize")
    assert (declaration.work.bytes, declaration.work.flops) == (GEMM.bytes, GEMM.flops)
    with pytest.raises(ValueError, match=r"^work\.engine: is 'tensor', expected matrix or vector"):
        declaration_in({**row.to_dict(), "work": {"engine": "tensor"}})


def test_how_much_of_the_work_is_known_survives_the_json(row: Row) -> None:
    row = replace(row, coverage="range", least=(64.0, 0.0))
    written = json.loads(json.dumps(row.to_dict()))
    assert Row.from_dict(written) == row
    work = declaration_in(written).work
    assert work is not None
    assert (work.coverage, work.least) == ("range", (64.0, 0.0))
    with pytest.raises(ValueError, match=r"^work\.coverage: is 'most', expected one of whole, range, lower_bound, args"):
        declaration_in({**written, "work": {"engine": "matrix", "coverage": "most"}})


def test_a_wrong_value_of_a_file_is_named(row: Row) -> None:
    with pytest.raises(ValueError, match=r"^r.json: entries\.3\.t_s: Input should be a valid number"):
        read_part(Measurement, {"source": "user", "t_s": "soon"}, "r.json: entries.3")
    with pytest.raises(ValueError, match=r"^r.json: entries\.3\.stats\.median: Input should be a finite number"):
        read_field(float, {"stats": {"median": float("inf")}}, "stats.median", "r.json: entries.3")
    assert read_field(float, {"stats": None}, "stats.median") is None
    with pytest.raises(ValueError, match=r"^r.json: entries\.3\.t_s: is true, expected a number"):
        read_part(Measurement, {"source": "user", "t_s": True}, "r.json: entries.3")


# Whatever a row holds, each gate decides it or names why not.

ROWS = st.builds(
    Row,
    nodeid=st.just("test_a.py::test_it"),
    entry=st.builds(
        Entry,
        name=st.just("it"),
        modeled=st.booleans(),
        roofline_pct=st.none() | st.floats(0.01, 1.0),
        roofline_pct_raw=st.none() | st.floats(0.01, 1e9),
        unknown_reason=st.none() | st.sampled_from(UNKNOWN_REASONS),
        confidence=st.sampled_from(CONFIDENCES),
        suspect=st.booleans(),
        notes=st.sampled_from([(), *((note("n", code),) for code in ("idle", "untimed", "shared_workers", "unknown_device"))]),
    ),
    check=st.builds(
        Check,
        status=st.sampled_from(STATUSES),
        utilisation=st.none() | st.floats(0.0, 1e9),
        limit=st.none() | st.just(1.1),
        speedup=st.none() | st.floats(1e-3, 1e3),
        band=st.none() | st.floats(0.0, 3.0),
        attainable=st.none() | st.floats(1.0, 10.0),
    ),
    device=st.sampled_from([None, "x"]),
    coverage=st.sampled_from(COVERAGES),
    measurement=st.sampled_from([None, TIME]),
    baseline=st.none() | st.builds(Baseline, kind=st.sampled_from(BASELINE_KINDS), t_s=st.just(1e-5)),
    work_source=st.sampled_from([None, "marker", "captured", "names"]),
    claims=st.integers(0, 2),
    refusal=st.sampled_from([None, Refusal("line 1: no time", "time")]),
)


@given(ROWS, st.sets(st.sampled_from(sorted(KINDS)), min_size=1), st.sampled_from([None, 50.0]))
def test_no_gate_is_silent_about_a_row(row: Row, kinds: set[str], fail_under: float | None) -> None:
    gates = Gates(frozenset(kinds), fail_under)
    found = gates.evaluate(row)
    is_given = row.measurement is not None or row.work_source in (None, "marker") or bool(row.entry.notes)
    assert is_given or not found
    for outcome in found:
        assert outcome.status in ("passed", "failed", "skipped")
        assert (outcome.status == "skipped") == (outcome.code in SKIPS)
        assert (outcome.status == "failed") == (outcome.text != "" and outcome.status != "skipped")
    decided = {outcome.gate for outcome in found}
    if found and "device" not in decided:
        assert decided | {"claim"} == kinds | {"claim"} | ({"fail_under"} if fail_under else set())
    if any(outcome.gate == "beyond_roof" for outcome in found) and row.check.status == "beyond_roof":
        assert [outcome.status for outcome in found if outcome.gate == "beyond_roof"] == ["failed"]

    summary = Summary(gates)
    summary.add(row, "it", found)
    assert summary.checked + summary.unchecked == bool(found)
    assert summary.failed == any(outcome.status == "failed" for outcome in found)
    assert summary.fails_run == any(outcome.status in ("failed", "skipped") for outcome in found)
    assert list(summary.lines())[-1] == summary.line()


@given(ROWS, st.sampled_from(sorted(KINDS)), st.booleans())
def test_an_allowance_turns_one_finding_of_a_row_into_allowed(row: Row, kind: str, is_expired: bool) -> None:
    gates = Gates(frozenset({kind}), today=date(2026, 6, 1))
    until = date(2026, 5, 31) if is_expired else date(2026, 6, 1)
    for outcome in gates.evaluate(row):
        allowed = outcome.code if outcome.code in SKIPS else outcome.gate
        listed = gates._replace(allow=(Allowance("test_a*", "test", allowed, "known", until),))
        again = next(one for one in listed.evaluate(row) if one.gate == outcome.gate)
        if outcome.status == "passed" or is_expired:
            assert again == outcome
        else:
            assert (again.status, again.code) == ("allowed", outcome.code)
            assert again.text.startswith("known (until 2026-06-01)")
