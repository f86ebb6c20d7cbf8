"""Names of rows: the shortest unique names, and shortening that keeps the differences."""

from __future__ import annotations

import pytest

from pytest_roofline.report.columns import distinct_labels, row_names, short_name


@pytest.mark.parametrize(
    ("nodeid", "short"),
    [
        ("tests/test_a.py::test_x", "test_x"),
        ("tests/test_a.py::TestA::test_x[64-bf16]", "test_x[64-bf16]"),
        ("tests/test_a.py::test_x[a::b/c]", "test_x[a::b/c]"),
        ("test_x", "test_x"),
        ("bench.py[M=1]", "bench.py[M=1]"),
    ],
)
def test_short_name_is_the_test_with_its_arguments(nodeid: str, short: str) -> None:
    assert short_name(nodeid) == short


def test_row_names_add_only_what_tells_rows_apart() -> None:
    names = row_names(
        [
            "tests/test_a.py::test_x",
            "tests/test_b.py::test_x",
            "tests/test_a.py::TestOne::test_y[8]",
            "tests/test_a.py::TestTwo::test_y[8]",
            "one/test_c.py::test_z",
            "two/test_c.py::test_z",
            "tests/test_a.py::test_alone",
        ]
    )
    assert list(names.values()) == [
        "test_a.py::test_x",
        "test_b.py::test_x",
        "TestOne::test_y[8]",
        "TestTwo::test_y[8]",
        "one/test_c.py::test_z",
        "two/test_c.py::test_z",
        "test_alone",
    ]


def test_row_names_end_for_rows_that_nothing_tells_apart() -> None:
    assert row_names(["test_x", "a.py::test_x", "a.py::test_x"]) == {"test_x": "test_x", "a.py::test_x": "a.py::test_x"}


def test_labels_with_a_long_shared_prefix_show_what_differs() -> None:
    names = [f"test_blockscale_gemm_forward[{kind}-M=4096-N=7168-K=16384-bias]" for kind in ("fp8", "bf16")]
    labels = distinct_labels(names, 30, "..")
    assert all(len(label) <= 30 for label in labels.values())
    assert "[fp8-" in labels[names[0]]
    assert "[bf16-" in labels[names[1]]
    assert distinct_labels(["test_short"], 30) == {"test_short": "test_short"}
