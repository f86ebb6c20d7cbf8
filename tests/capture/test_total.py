"""Operations of one call as one amount of work, without a framework."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_roofline.capture.trace import (
    DROPPED,
    NEARLY_ALL,
    OVERLAP,
    Coverage,
    Listed,
    OpTrace,
    Region,
    Strided,
    Unknown,
    View,
    distinct,
    strided,
    total,
    traffic,
)
from roofline_engine.fields import note
from roofline_engine.ops import work


def tensor(storage: int, nbytes: float = 4000.0, *, at: int = 0, whole: float | None = None) -> Region:
    return Region(storage, Strided(at, int(nbytes)), nbytes, nbytes if whole is None else whole)


def mapped(reads: list[Region], writes: list[Region], **kwargs: Any) -> OpTrace:
    """An elementwise operation in fp32 over these."""
    numel = int(writes[0].nbytes // 4)
    return OpTrace(
        "map", tuple(reads), tuple(writes), work=work("elementwise", numel=numel, inputs=len(reads), dtype="fp32"), **kwargs
    )


def product(reads: list[Region], writes: list[Region], size: int = 32, dtype: str = "fp32") -> OpTrace:
    return OpTrace("mm", tuple(reads), tuple(writes), work=work("gemm", M=size, N=size, K=size, dtype=dtype))


A, B, C, D = (tensor(number) for number in range(4))


def test_one_operation_is_the_engines_work_of_it() -> None:
    done = total("torch", [mapped([A, B], [C])], allocations={2}, survivors={2})
    assert done.work == work("elementwise", numel=1000, inputs=2, dtype="fp32")
    assert (done.how, done.operations, done.launches, done.certain, done.notes) == ("torch", 1, 1, True, ())


def test_intermediate_results_are_free() -> None:
    """d = f(a) * b: a and b read, d written; c is made and gone."""
    done = total("torch", [mapped([A], [C]), mapped([C, B], [D])], allocations={2, 3}, survivors={3})
    assert done.work is not None
    assert [(model.model, model.bytes, model.in_range) for model in done.work.candidates] == [
        ("fused", 3 * 4000, True),
        ("op_by_op", 5 * 4000, False),
    ]
    assert (done.work.op, done.work.flops, done.launches) == ("elementwise", 2000, 2)


def test_results_that_outlive_the_call_are_written() -> None:
    steps = [mapped([A], [C]), mapped([C, B], [D])]
    assert traffic(steps, allocations={2, 3}, survivors={2, 3}) == 4 * 4000


def test_repeated_reads_count_once() -> None:
    assert traffic([mapped([A, B], [C]), mapped([A], [D])], allocations={2, 3}, survivors={2, 3}) == 4 * 4000


def test_in_place_is_read_and_written() -> None:
    assert traffic([mapped([A], [A])], allocations=(), survivors=()) == 2 * 4000
    assert traffic([mapped([A], [A]), mapped([A], [A])], allocations=(), survivors=()) == 2 * 4000


def test_memory_written_by_the_call_is_not_read_again() -> None:
    assert traffic([mapped([A], [B]), mapped([B], [C])], allocations={2}, survivors={2}) == 3 * 4000


def test_views_of_a_storage_never_add_up_to_more_than_it() -> None:
    windows = [tensor(0, 3000, at=at, whole=4000) for at in (0, 500, 1000)]
    assert distinct(windows) == 4000
    assert distinct(windows[:1]) == 3000
    assert distinct([windows[0], windows[0]]) == 3000
    assert distinct([windows[0]], [windows[0]]) == 6000  # read and written


def test_arguments_of_unknown_direction() -> None:
    """Made in the call: written. From outside: once, with a note."""
    kernel = OpTrace("kernel", either=(A, C), flops=1e6, dtype="bf16")
    done = total("triton", [kernel], allocations={2}, survivors={2})
    assert done.work is not None
    assert (done.work.bytes, done.work.flops, done.work.dtype.name, done.work.op) == (8000, 1e6, "bf16", "unknown")
    assert done.notes == (note("1 kernel arguments are read or written, unknown which: each counts once"),)
    assert traffic([kernel, mapped([C], [D])], allocations={2, 3}, survivors={3}) == 2 * 4000


def test_a_partly_used_region_is_uncertain() -> None:
    assert not total("torch", [mapped([A], [C], is_bound=True)]).certain


def test_an_operation_without_a_flop_count_is_named() -> None:
    done = total("torch", [mapped([A], [C]), OpTrace("aten.sort", (C,), (D,), flops=None)], allocations={2, 3}, survivors={3})
    assert done.work is None
    assert done.reason == "no FLOP count for aten.sort"
    assert done.operations == 2


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        ([], "no operation was recorded"),
        (
            [OpTrace("fill", writes=(A,)), OpTrace("to the host", reads=(A,))],
            "it reads no input and leaves no result",
        ),
    ],
)
def test_nothing_to_count(seen: list[OpTrace], reason: str) -> None:
    assert total("torch", seen, allocations={0}).reason == reason


@pytest.mark.parametrize(("views", "nbytes", "exact"), [
    ([Strided(0, 8), Strided(4, 8)], 12, True),  # 0 to 11
    ([Strided(0, 8), Strided(16, 8), Strided(4, 16)], 24, True),
    ([Strided(0, 4, ((3, 8),)), Strided(4, 4, ((3, 8),))], 24, True),  # the halves of three cells of 8
    ([Strided(0, 4, ((3, 8),)), Strided(2, 4, ((3, 8),))], 18, True),  # of each cell 0 to 5
    ([Strided(0, 4, ((3, 8),)), Strided(0, 8)], 16, True),  # the first cell, and half of the other two
    ([Strided(0, 24), Strided(0, 4, ((3, 8),))], 24, True),
    ([Listed(4, (0, 8)), Listed(4, (8, 16))], 12, True),
    ([Listed(4, (0, 8)), Strided(0, 8)], 12, True),
    ([Unknown((1,)), Unknown((2,))], 40, False),  # 20 bytes somewhere and 20 somewhere else
    ([Unknown((1,)), Unknown((1,))], 20, True),
    ([Unknown((1,)), None], 100, True),
])  # fmt: skip
def test_bytes_that_views_share_count_once(views: list[View | None], nbytes: float, exact: bool) -> None:
    whole = Coverage(100)
    for view in views:
        nbytes_alone = 100 if view is None else 20 if isinstance(view, Unknown) else view.run * view.count_runs()
        whole.add(view, nbytes_alone)
    assert (whole.nbytes, whole.exact) == (nbytes, exact)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 4), st.integers(1, 4), st.integers(-9, 9)), min_size=1, max_size=4))
def test_views_cover_the_bytes_of_their_elements(windows: list[tuple[int, int, int, int]]) -> None:
    """Elements of ``width`` bytes over two dimensions, whatever their strides."""
    whole, bytes_met = Coverage(200), set()
    for start, width, size, stride in windows:
        base = 60 + start
        dims = [(size, stride), (3, 5)]
        view, nbytes = strided(base, width, dims)
        mine = {base + i * stride + j * 5 + k for i in range(size) for j in range(3) for k in range(width)}
        assert nbytes == len(mine)
        bytes_met |= mine
        whole.add(view, nbytes)
    assert (whole.nbytes, whole.exact) == (len(bytes_met), True)


def test_possibly_overlapping_parts_are_a_bound() -> None:
    parts = [Region(0, Unknown((at,)), 100.0, 1000.0) for at in range(2)]
    done = total("torch", [mapped([parts[0]], [C]), mapped([parts[1], C], [D])], allocations={2, 3}, survivors={3})
    assert done.work is not None
    assert (done.work.bytes, done.certain) == (200 + 4000, False)
    assert OVERLAP in done.notes


def test_a_call_that_returns_nothing_has_its_last_results() -> None:
    """c = f(a), d = f(c), and nothing kept: a read and d written."""
    done = total("torch", [mapped([A], [C]), mapped([C], [D])], allocations={2, 3}, survivors=())
    assert done.work is not None
    assert (done.work.bytes, done.notes) == (8000, (DROPPED,))


def test_a_second_result_that_the_caller_drops_is_not_written() -> None:
    both = OpTrace("max", (A,), (C, D), work=work("elementwise", numel=1000, outputs=2, dtype="fp32"))
    done = total("torch", [both], allocations={2, 3}, survivors={2})
    assert done.work is not None
    assert done.work.bytes == 2 * 4000


# Several operations on the matrix and the vector units.


def test_an_epilogue_does_not_hide_the_product() -> None:
    """2 x 32^3 = 65,536 FLOPs against 1,000 of the map, and two of the three tensors outside."""
    done = total("torch", [product([A, B], [C]), mapped([C], [D])], allocations={2, 3}, survivors={3})
    assert done.work is not None
    assert (done.work.op, done.work.op_class, done.work.engine, done.work.flops) == ("gemm", "gemm", "matrix", 65536)
    assert done.notes == (note("1 kFLOP of the vector units left out"),)


def test_a_small_product_beside_a_large_map_names_no_op() -> None:
    """The product's FLOPs are most, the map's bytes are."""
    steps = [product([A, B], [C], size=512), mapped([tensor(5, 4e6)], [tensor(6, 4e6)])]
    done = total("torch", steps, allocations={2, 6}, survivors={2, 6})
    assert done.work is not None
    assert (done.work.op, done.work.op_class, done.work.engine) == ("unknown", "unknown", "matrix")
    assert done.work.flops == 2 * 512**3


def test_mixed_products_run_at_the_most_frequent_dtype() -> None:
    steps = [product([A, B], [C], size=64, dtype="bf16"), product([C, B], [D], dtype="fp32")]
    done = total("torch", steps, allocations={2, 3}, survivors={3})
    assert done.work is not None
    assert (done.work.dtype.name, done.work.flops) == ("bf16", 2 * 64**3 + 2 * 32**3)
    assert done.notes == (note("FLOPs in fp32 counted as bf16, which most are in"),)


@pytest.mark.parametrize(("cols", "op"), [(90_000, "softmax"), (3_000, "elementwise")])
def test_an_op_is_named_if_it_moves_nearly_all_bytes(cols: int, op: str) -> None:
    rows = OpTrace(
        "softmax", (tensor(0, cols * 4.0),), (tensor(1, cols * 4.0),), work=work("softmax", rows=1, cols=cols, dtype="fp32")
    )
    done = total("torch", [rows, mapped([B], [D])], allocations={1, 3}, survivors={1, 3})
    share = cols * 8 / (cols * 8 + 8000)
    assert (share >= NEARLY_ALL) == (op == "softmax")
    assert done.work is not None
    assert done.work.op == op


# Whatever the operations are.

_regions = st.builds(
    lambda storage, at, part: tensor(storage, 100.0 * part, at=at, whole=1000.0),
    st.integers(0, 5), st.integers(0, 3), st.integers(1, 10),
)  # fmt: skip
_seen = st.builds(
    lambda reads, writes, either: OpTrace("op", tuple(reads), tuple(writes), tuple(either)),
    st.lists(_regions, max_size=3), st.lists(_regions, max_size=2), st.lists(_regions, max_size=2),
)  # fmt: skip


@given(st.lists(_seen, max_size=6), st.sets(st.integers(0, 5)), st.sets(st.integers(0, 5)))
def test_traffic_is_bounded(seen: list[OpTrace], made: set[int], among: set[int]) -> None:
    kept = made & among
    nbytes = traffic(seen, made, kept)
    assert 0 <= nbytes <= sum(distinct(item.reads, item.writes, item.either) for item in seen)
    assert nbytes <= 2 * 1000 * 6  # each storage read once and written once
    assert traffic(seen * 2, made, kept) == nbytes  # the same again touches nothing new
    assert traffic(seen, made, ()) <= nbytes <= traffic(seen, made, made)
