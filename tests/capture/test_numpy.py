"""The captured work of numpy calls: derived bytes and FLOPs, unchanged user arrays, and the reason where work is unknown."""

from __future__ import annotations

import functools
import math
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import pytest

from pytest_roofline.capture.numpy import capture
from pytest_roofline.capture.trace import CapturedWork

Function = Callable[..., Any]

#: M N K = 64 256 128: 2MNK = 4194304; A 64 x 128, B 128 x 256 and C 64 x 256 of fp32 are 229376 B.
A, B = np.ones((64, 128), np.float32), np.ones((128, 256), np.float32)
MATMUL = ("gemm", 229376.0, 4194304.0)
#: 64 x 128 of fp32.
SIZE = 32768.0
COUNT = 8192.0


def known(found: CapturedWork) -> tuple[str, float, float]:
    """Op, bytes and FLOPs."""
    assert found.work is not None, found.reason
    assert found.certain
    return found.work.op, found.work.bytes, found.work.flops


def a_b(a: Any, b: Any) -> Any:
    return a @ b


@pytest.mark.parametrize(
    "fn",
    [
        pytest.param(a_b, id="operator"),
        pytest.param(np.matmul, id="ufunc"),
        pytest.param(np.dot, id="dot"),
        pytest.param(lambda a, b: a.dot(b), id="method"),
        pytest.param(lambda a, b: np.einsum("mk,kn->mn", a, b), id="einsum"),
        pytest.param(lambda a, b: np.einsum("mk,kn", a, b), id="einsum without an arrow"),
        pytest.param(lambda a, b: np.tensordot(a, b, axes=1), id="tensordot"),
        pytest.param(lambda a, b: np.inner(a, b.T), id="inner"),
        pytest.param(lambda a, b: np.asarray(a) @ np.asarray(b), id="asarray"),
        pytest.param(functools.partial(a_b), id="partial"),
    ],
)
def test_a_matrix_product_however_it_is_written(fn: Function) -> None:
    value, found = capture(fn, (A, B))
    assert known(found) == MATMUL
    assert found.work is not None
    assert (found.how, found.work.engine, found.work.dtype.name, found.launches) == ("numpy", "matrix", "fp32", None)
    assert type(value) is np.ndarray
    np.testing.assert_array_equal(value, np.full((64, 256), 128.0))


def test_arrays_in_closures_partials_modules_and_objects_are_seen() -> None:
    a, b = A.copy(), B.copy()

    class Layer:
        def __init__(self) -> None:
            self.weight = b

        def __call__(self, x: Any) -> Any:
            return x @ self.weight

        def forward(self, x: Any) -> Any:
            return x @ self.weight

    layer = Layer()
    for fn, args in (
        (lambda: a @ b, ()),
        (lambda: A @ B, ()),
        (lambda: a_b(A, B), ()),
        (functools.partial(np.matmul, a), (b,)),
        (functools.partial(a_b, b=b), (a,)),
        (layer.forward, (a,)),
        (lambda: layer.forward(a), ()),
    ):
        assert known(capture(fn, args)[1]) == MATMUL
    assert layer.weight is b
    assert type(a) is type(A) is np.ndarray


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (lambda a: a + a, ("elementwise", 2 * SIZE, COUNT)),  # one array read, one written
        (lambda a: a + a[0], ("elementwise", 2 * SIZE, COUNT)),  # its own first row adds nothing to read
        (np.exp, ("elementwise", 2 * SIZE, COUNT)),
        (lambda a: np.clip(a, 0, 1), ("elementwise", 2 * SIZE, COUNT)),
        (lambda a: np.cumsum(a, axis=1), ("elementwise", 2 * SIZE, COUNT)),
        (lambda a: np.divmod(a, 2), ("elementwise", 3 * SIZE, 2 * COUNT)),
        (lambda a: a.sum(), ("reduce", SIZE, COUNT)),
        (lambda a: np.sum(a, axis=0), ("reduce", SIZE + 512, COUNT)),  # 128 sums
        (lambda a: a.mean(), ("reduce", SIZE, COUNT)),
        (lambda a: a.argmax(axis=1), ("reduce", SIZE + 512, COUNT)),  # 64 indices of 8 B
        (lambda a: np.einsum("ij->i", a), ("reduce", SIZE + 256, COUNT)),
        (lambda a: np.ascontiguousarray(a.T), ("copy", 2 * SIZE, 0.0)),
        (lambda a: a.astype(np.float64), ("copy", 3 * SIZE, 0.0)),
        (lambda a: a.copy(), ("copy", 2 * SIZE, 0.0)),
        (lambda a: np.concatenate([a, a]), ("copy", 3 * SIZE, 0.0)),
        (lambda a: np.stack([a, a]), ("copy", 3 * SIZE, 0.0)),
        (lambda a: a[[0, 1, 5]], ("copy", 3 * 512 * 2.0, 0.0)),  # three rows of 512 B
        (lambda a: np.take(a, [1, 2], axis=0), ("copy", 2 * 512 * 2.0, 0.0)),
        (lambda a: a @ a[0], ("gemm", SIZE + 256, 2 * COUNT)),  # the vector is a part of the matrix
        (lambda a: np.vdot(a, a), ("gemm", SIZE, 2 * COUNT)),
        (lambda a: np.outer(a[0], a[1]), ("elementwise", 2 * 512 + 65536.0, 128.0**2)),  # one product an element
        (lambda a: np.einsum("i,j->ij", a[0], a[1]), ("elementwise", 2 * 512 + 65536.0, 128.0**2)),
        (lambda a: a[:, :0] @ a.T[:0], ("copy", 64 * 64 * 4.0, 0.0)),  # no product: 64 x 64 zeros are written
        (lambda a: np.full((4, 4), 2.0), ("copy", 128.0, 0.0)),
        (lambda a: a.astype(np.int32) + 1, ("elementwise", 2 * SIZE, 0.0)),  # integers have no FLOPs
    ],
)
def test_an_operation(fn: Function, expected: tuple[str, float, float]) -> None:
    assert known(capture(fn, (A.copy(),))[1]) == expected


#: Set in the first two of 64 rows: 256 elements of 1 KiB, and 8 KiB of mask.
MASK = np.repeat(np.arange(64) < 2, 128).reshape(64, 128)
ROW = 512.0


@pytest.mark.parametrize(
    ("fn", "nbytes", "flops"),
    [
        # Where a mask is not set nothing is read, computed or written.
        (lambda a: np.add(a, 1, out=a, where=MASK), 2 * 1024 + 8192.0, 256.0),
        (lambda a: np.sum(a, where=MASK), 1024 + 8192.0, 256.0),
        (lambda a: np.copyto(a, 2 * np.ones(128, np.float32), where=MASK), 1024 + 8192.0, None),
        (lambda a: a.__setitem__(MASK, 0), 1024 + 8192.0, 0.0),
        (lambda a: np.add(a, 1, where=True), 2 * SIZE, COUNT),
        # An element that is named twice is read once; two rows of three.
        (lambda a: a[[0, 0, 1]], 2 * ROW + 3 * ROW, 0.0),
        (lambda a: a[np.array([0, 0, -63])], 2 * ROW + 3 * ROW + 24, 0.0),
        (lambda a: np.take(a, [0, 0, 1], axis=0), 2 * ROW + 3 * ROW, 0.0),
        (lambda a: np.take(a, [5, 5, 6]), 2 * 4 + 3 * 4.0, 0.0),
        (lambda a: a[[0, 0, 1], [2, 2, 3]], 2 * 4 + 3 * 4.0, 0.0),
        (lambda a: a.__setitem__([0, 0, 1], 0.0), 2 * ROW, 0.0),
        # Windows of 3 over a row of 128: the row is read, 126 sums of three are written.
        (lambda a: np.lib.stride_tricks.sliding_window_view(a[0], 3).sum(-1), ROW + 126 * 4, 378.0),
        (lambda a: np.lib.stride_tricks.as_strided(a, (126, 3), (4, 4)) * 1, ROW + 126 * 3 * 4, 378.0),
        # Elements 0 to 39 and 20 to 59: sixty.
        (lambda a: a[0, :40] + a[0, 20:60], 60 * 4 + 40 * 4.0, 40.0),
        (lambda a: a[::-1] + a, 2 * SIZE, COUNT),
        (lambda a: np.broadcast_to(a[0], (64, 128)).sum(), ROW, COUNT),
    ],
)  # fmt: skip
def test_only_used_elements_count_and_only_once(fn: Function, nbytes: float, flops: float | None) -> None:
    _, found = capture(fn, (A.copy(),))
    assert found.work is not None, found.reason
    assert found.work.bytes == nbytes
    assert found.certain
    assert flops is None or found.work.flops == flops


def test_sliding_windows_count_as_their_array() -> None:
    windows = np.lib.stride_tricks.sliding_window_view(np.ones(128, np.float32), 3)
    assert known(capture(lambda w: w.sum(-1), (windows,))[1]) == ("reduce", 512 + 126 * 4.0, 378.0)


class Dice:
    def __init__(self) -> None:
        self.dice = np.random.default_rng(1)


RNG, OLD, HELD = np.random.default_rng(0), np.random.RandomState(0), Dice()


@pytest.mark.parametrize(
    ("fn", "args"),
    [
        (lambda r, a: a + r.random((64, 128)), (RNG, A)),
        (lambda a: a + RNG.standard_normal((64, 128)), (A,)),
        (RNG.random, (100,)),
        (RNG.permutation, (A,)),
        (lambda a: a * HELD.dice.random(), (A,)),
        (lambda r, a: a + r.rand(64, 128), (OLD, A)),
        (lambda a: a + np.random.rand(64, 128), (A,)),
        (lambda: np.random.rand(4), ()),
    ],
)
def test_random_numbers_have_no_work_and_are_repeated(fn: Function, args: tuple[Any, ...]) -> None:
    def state() -> str:
        return str((RNG.bit_generator.state, OLD.get_state(), HELD.dice.bit_generator.state, np.random.get_state()))

    before = state()
    _, found = capture(fn, args)
    assert (found.work, found.reason) == (None, "it draws random numbers, and their FLOPs are unknown")
    assert state() == before


def test_an_unused_generator_is_no_obstacle() -> None:
    assert known(capture(lambda r, a: a + 1, (RNG, A))[1]) == ("elementwise", 2 * SIZE, COUNT)


def test_batches_and_types() -> None:
    """8 products of 64^3 of fp64, an operand given twice read once."""
    stack = np.ones((8, 64, 64))
    assert known(capture(a_b, (stack, stack))[1]) == ("gemm", 2 * 262144.0, 8 * 2.0 * 64**3)
    assert known(capture(lambda a, b: np.einsum("bij,bjk->bik", a, b), (stack, stack + 1))[1]) == (
        "gemm",
        3 * 262144.0,
        8 * 2.0 * 64**3,
    )
    found = capture(a_b, (stack, stack))[1].work
    assert found is not None
    assert found.dtype.name == "fp64"


def test_a_chain_reads_its_arguments_and_writes_its_result() -> None:
    """Softmax: max, subtract, exp, sum and divide, five FLOPs an element; intermediate results stay inside the call."""

    def softmax(a: Any) -> Any:
        e = np.exp(a - a.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    value, found = capture(softmax, (A,))
    assert known(found) == ("elementwise", 2 * SIZE, 5 * COUNT)
    assert found.operations == 5
    np.testing.assert_allclose(value, 1 / 128)


def test_in_place_writes_reach_the_users_array() -> None:
    a, out = A.copy(), np.zeros((64, 256), np.float32)
    value, found = capture(lambda: np.matmul(a, B, out=out))
    assert value is out
    assert out[0, 0] == 128
    assert known(found) == MATMUL

    def add(x: Any) -> None:
        x += 1

    assert known(capture(add, (a,))[1]) == ("elementwise", 2 * SIZE, COUNT)
    assert a[0, 0] == 2

    def rows(x: Any) -> None:
        x[:8] = x[8:16] * 2

    assert known(capture(rows, (a,))[1])[1:] == (2 * 4096.0, 1024.0)  # 8 rows of 512 B read and written
    assert a[0, 0] == 4


def test_arrays_are_plain_again_after_the_call() -> None:
    class Pair(NamedTuple):
        first: Any
        second: Any

    store: dict[str, Any] = {"given": A}
    kept: list[Any] = []
    last: Any = None

    class Model:
        def step(self) -> Any:
            nonlocal last
            self.last = last = store["given"] + 1
            kept.append(self.last)
            store["new"] = [self.last]
            return Pair(self.last, {"same": store["given"]})

    model = Model()
    value, found = capture(model.step)
    assert found.work is not None
    assert isinstance(value, Pair)
    assert value.second["same"] is store["given"] is A
    for array in (value.first, model.last, kept[0], store["new"][0], last):
        assert type(array) is np.ndarray
    assert value.first is model.last


def test_objects_with_arrays_are_searched_and_restored() -> None:
    class Weights:
        def __init__(self) -> None:
            self.w = B
            self.deep = {"bias": [np.ones(256, np.float32)]}

    class Model:
        def __init__(self) -> None:
            self.weights = Weights()

        def __call__(self) -> Any:
            return A @ self.weights.w + self.weights.deep["bias"][0]

    model = Model()
    before = model.weights.deep["bias"][0]
    value, found = capture(lambda: model())
    # A, B and the bias of 1 KiB read, one result written; 2MNK, the additions on the vector units.
    assert known(found) == ("gemm", MATMUL[1] + 1024, MATMUL[2])
    assert known(capture(model.__call__)[1]) == known(capture(lambda held: held(), (model,))[1]) == known(found)
    assert model.weights.w is B
    assert model.weights.deep["bias"][0] is before
    assert type(value) is np.ndarray


def test_a_list_argument_stays_the_users_list() -> None:
    arrays = [A.copy(), A.copy()]
    first = arrays[0]

    def add(given: list[Any]) -> Any:
        given.append(given[0] + given[1])
        return given[-1]

    value, found = capture(add, (arrays,))
    assert known(found) == ("elementwise", 3 * SIZE, COUNT)
    assert arrays[0] is first
    assert arrays[2] is value
    assert type(value) is np.ndarray


def test_arrays_made_by_the_call_are_not_inputs() -> None:
    """Both operands are made in the call: only the 64 x 4 result leaves it."""
    _, found = capture(lambda: np.ones((64, 128)) @ np.ones((128, 4)))
    assert known(found)[1:] == (64 * 4 * 8.0, 2.0 * 64 * 4 * 128)


@pytest.mark.parametrize(
    ("fn", "reason"),
    [
        (np.sort, "no FLOP count for ndarray.sort"),
        (lambda a: a.argsort(), "no FLOP count for ndarray.argsort"),
        (np.fft.fft, "no FLOP count for numpy.fft.fft"),
        (np.linalg.svd, "no FLOP count for numpy.linalg.svd"),
        (np.linalg.norm, "no FLOP count for numpy.linalg.norm"),
        (lambda a: np.linalg.solve(a[:, :64] + np.eye(64), a), "no FLOP count for numpy.linalg.solve"),
        (lambda a: np.convolve(a[0], a[1]), "no FLOP count for numpy.convolve"),
        (lambda a: np.interp(a[0], a[1], a[2]), "no FLOP count for numpy.interp"),
        (np.count_nonzero, "no FLOP count for numpy.count_nonzero"),
        (lambda a: np.add.at(a, [0], 1), "no FLOP count for numpy.add.at"),
        (lambda a: np.einsum("ij,kj,kl->il", a, a, a), "no FLOP count for numpy.einsum"),
        (lambda a: np.einsum("ij,kj->k", a, a), "no FLOP count for numpy.einsum"),
        (lambda a: a.astype(complex) * 2, "no FLOP count for numpy.multiply"),
        (lambda a: a.astype(object) + 1, "no FLOP count for"),
        (lambda a: np.matmul(a, a.T, axes=[(0, 1), (0, 1), (0, 1)]), "no FLOP count for numpy.matmul"),
        (lambda a: np.frombuffer(a.tobytes(), np.float32), "an array comes from a function that is not recorded"),
        (lambda a: a.T, "no operation was recorded"),
        (lambda a: np.einsum("ij->ji", a), "no operation was recorded"),  # a view
        (lambda a: np.einsum("ii->i", a[:, :64]), "no operation was recorded"),
        (lambda a: math.sqrt(2.0), "no operation was recorded"),
    ],
)
def test_unknown_work_has_a_reason(fn: Function, reason: str) -> None:
    _, found = capture(fn, (A.copy(),))
    assert found.work is None
    assert found.reason.startswith(reason)


def test_a_function_that_requires_plain_arrays_gets_them() -> None:
    calls = []

    def strict(a: Any) -> Any:
        calls.append(type(a))
        if type(a) is not np.ndarray:
            raise TypeError("cannot type it")
        return a + 1

    value, found = capture(strict, (A,))
    assert value[0, 0] == 2
    assert found.reason == "it does not run on arrays that record: TypeError: cannot type it"
    assert len(calls) == 2


def test_an_exception_propagates_and_state_is_restored() -> None:
    a = A.copy()
    makers = (np.zeros, np.asarray)

    def fails() -> None:
        raise KeyError(a.shape)

    with pytest.raises(KeyError, match="64"):
        capture(fails)
    assert type(a) is np.ndarray
    assert (np.zeros, np.asarray) == makers


def test_a_loop_over_elements_has_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def loop(a: Any) -> float:
        return float(sum(a[at % 64].sum() for at in range(301)))

    monkeypatch.setattr("pytest_roofline.capture.numpy.MOST_OPERATIONS", 300)
    value, found = capture(loop, (A,))
    assert value == 301 * 128.0
    assert found.reason == "more than 300 operations"


def test_without_numpy_there_is_a_reason() -> None:
    code = (
        "import sys\nfrom pytest_roofline.capture.numpy import capture\n"
        "value, found = capture(abs, (-1,))\nprint(value, found.reason, 'numpy' in sys.modules, 'pytest' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "1 numpy is not imported False False\n", done.stderr


BOOLS = np.zeros((16, 64), bool)
NAN = np.array([np.nan, *np.ones(1023)], np.float32)


@pytest.mark.parametrize(
    ("fn", "array", "least"),
    [
        pytest.param(np.any, BOOLS, 1, id="any"),
        pytest.param(np.all, BOOLS, 1, id="all"),
        pytest.param(lambda a: a.any(), BOOLS, 1, id="method"),
        pytest.param(lambda a: a.any(axis=1), BOOLS, 16 + 16, id="a row"),  # one element and one result of each row
        pytest.param(np.logical_or.reduce, BOOLS.ravel(), 1, id="ufunc"),
        pytest.param(np.bitwise_or.reduce, BOOLS.ravel(), 1, id="alias"),
        pytest.param(np.max, BOOLS, 1, id="max"),
        pytest.param(np.argmax, BOOLS, 1, id="argmax"),
        pytest.param(np.argmin, BOOLS, 1, id="argmin"),
        pytest.param(np.argmax, NAN, 4, id="a NaN is the largest"),
        pytest.param(lambda: np.zeros(4096), None, 0, id="pages that nothing writes"),
    ],
)
def test_what_stops_early_is_a_range(fn: Function, array: Any, least: float) -> None:
    """numpy stops at the first element that decides, so that no more than one element a result is sure to be read."""
    work = capture(fn, () if array is None else (array,))[1].work
    assert work is not None
    assert (work.coverage, work.least) == ("range", (least, 0.0))
    assert work.bytes > least


@pytest.mark.parametrize(
    "fn",
    [
        pytest.param(lambda a: np.any(a), id="any of floats"),
        pytest.param(np.argmax, id="argmax without a NaN"),
        pytest.param(np.max, id="max"),
        pytest.param(lambda a: np.isnan(a).any(), id="any of what was computed"),
        pytest.param(lambda a: np.add(a, a, out=np.zeros_like(a)), id="zeros that are written"),
    ],
)
def test_what_reads_all_is_no_range(fn: Function) -> None:
    work = capture(fn, (A,))[1].work
    assert work is not None
    assert (work.coverage, work.least) == ("whole", None)
    assert work.bytes >= SIZE


def test_an_assignment_of_nothing_is_no_work() -> None:
    def fn(a: Any, b: Any) -> Any:
        a[:0] = 1
        a[np.array([], int)] = 1
        a[1:] = a[1:]  # numpy skips it: the arrays are the same
        np.copyto(a, a)
        return a @ b

    assert known(capture(fn, (A, B))[1]) == MATMUL


def test_a_function_that_resizes_its_array_runs() -> None:
    array = np.ones(8)

    def fn(a: Any) -> Any:
        out = np.ones(4)
        out.resize(8)
        return a + out

    value, found = capture(fn, (array,))
    assert value.sum() == 12.0  # 8 ones, 4 ones and 4 zeros
    assert found.work is None
    assert found.reason.startswith("it does not run on arrays that record: ValueError: cannot resize")


@pytest.mark.skipif(find_spec("scipy") is None, reason="needs scipy")
@pytest.mark.parametrize(
    ("kind", "stored", "indices", "met"),
    [
        ("csr", 16, 16 + 7, 4),  # a column per value, a pointer per row and the end
        ("csc", 16, 16 + 9, 4),
        ("coo", 16, 2 * 16, 4),
        ("bsr", 32, 8 + 4, 8),  # 8 blocks of 2 x 2, half of them zeros, in 3 rows of blocks
    ],
)
@pytest.mark.parametrize("columns", [None, 3])
def test_a_product_with_a_sparse_matrix(kind: str, stored: int, indices: int, met: int, columns: int | None) -> None:
    from scipy import sparse

    dense = np.zeros((6, 8))
    dense[:4, ::2] = 1.0 + np.arange(16).reshape(4, 4)  # 16 values; the columns 1, 3, 5 and 7 have none
    matrix = sparse.bsr_array(dense, blocksize=(2, 2)) if kind == "bsr" else sparse.coo_array(dense).asformat(kind)
    operand = np.ones(8 if columns is None else (8, columns))
    value, found = capture(lambda m, x: m @ x, (matrix, operand))
    assert np.array_equal(value, dense @ operand)
    assert type(value) is np.ndarray
    n, index_bytes = columns or 1, 4 * indices
    op = "spmv" if columns is None else "spmm"
    assert known(found) == (op, 8.0 * (stored + n * (met + 6)) + index_bytes, 2.0 * stored * n)
    assert found.work is not None
    assert found.work.coverage == "whole"


@pytest.mark.skipif(find_spec("scipy") is None, reason="needs scipy")
def test_a_sparse_matrix_in_a_chain_and_on_the_right() -> None:
    from scipy import sparse

    matrix = sparse.csr_matrix(np.eye(64))
    x = np.ones(64)
    # 64 values, their columns and 65 pointers; x is read once and the result written once.
    nbytes = 8.0 * 64 + 4 * (64 + 65) + 8 * 64 + 8 * 64
    for fn, flops in ((lambda m, x: x @ m, 128), (lambda m, x: m.T.dot(x) + 1, 192)):
        found = capture(fn, (matrix, x))[1]
        assert found.work is not None, found.reason
        assert (found.work.bytes, found.work.flops, found.work.coverage) == (nbytes, flops, "whole")
    several = capture(lambda m, x: (m * 2) @ x, (matrix, x))[1].work
    assert several is not None
    assert several.op == "unknown"  # a sparse product has no target of its own, and lends none to the sum of operations
    kept = capture(lambda m, x: sparse.csr_matrix(m @ m) @ x, (matrix, x))[
        1
    ]  # a product of two sparse matrices is not recorded
    assert kept.work is None or kept.work.coverage == "lower_bound"
