"""A call that does more than what is recorded: its work is a lower bound or unknown, and an honest call's work is whole."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from pytest_roofline.capture import capture
from pytest_roofline.capture.trace import CapturedWork
from roofline_engine.fields import has_note

N = 64
A, B = (np.random.default_rng(seed).random((N, N)) for seed in (0, 1))
ROW = A[0].copy()
OUT = np.empty((N, N))
NBYTES = A.nbytes


def native_copy(to: Any, source: Any) -> None:
    """Stands for a kernel in native code: nothing records it."""
    ctypes.memmove(to.ctypes.data, source.ctypes.data, source.nbytes)


def captured(fn: Callable[..., Any], *args: Any) -> CapturedWork:
    fn(*args)  # as after the timed calls
    return capture(fn, args, {}).captured


def reasons(found: CapturedWork) -> str:
    return "; ".join(item.text for item in found.notes if item.code == "partly_seen")


# Half recorded.


def into_zeros(a: Any, b: Any) -> Any:
    out = np.zeros(a.shape)
    native_copy(out, a)
    return np.maximum(out, b)


def into_zeros_in_place(a: Any) -> Any:
    out = np.zeros(a.shape)
    native_copy(out, a)
    return np.maximum(out, 0, out=out)


def into_empty(a: Any) -> Any:
    out = np.empty_like(a)
    native_copy(out, a)
    return np.maximum(out, 0)


def into_kept_memory(b: Any) -> Any:
    native_copy(OUT, A)
    return np.maximum(OUT, b)


def sum_of_a_copy(to: Any, source: Any) -> Any:
    ctypes.memmove(to.ctypes.data, source.ctypes.data, source.nbytes)
    return to[0].sum()


class Product:
    """An object with arrays that nothing recorded uses."""

    def __init__(self) -> None:
        self.weight = B.copy()

    def __call__(self, x: Any) -> Any:
        out = np.zeros(x.shape)
        native_copy(out, self.weight)
        return out + x


@pytest.mark.parametrize(
    ("fn", "args", "why"),
    [
        (into_zeros, (A, B), "memory changed"),
        (into_zeros_in_place, (A,), "memory changed"),
        (into_empty, (A,), "memory was used that nothing recorded wrote"),
        (into_kept_memory, (B,), "nothing recorded used variable A"),
        (sum_of_a_copy, (OUT.copy(), A), "nothing recorded used argument source"),
        (sum_of_a_copy, (OUT.copy(), A), "ctypes is native code"),
        (lambda product, x: product(x), (Product(), A), "nothing recorded used argument product"),
        (Product(), (A,), "the object of class Product"),
        (lambda a, unused: a + 1, (A, B), "nothing recorded used argument unused"),
    ],
)
def test_a_half_recorded_call_is_a_lower_bound(fn: Callable[..., Any], args: tuple[Any, ...], why: str) -> None:
    found = captured(fn, *args)
    assert why in reasons(found)
    assert found.work is not None
    assert found.work.coverage == "lower_bound"


def returns_native_memory(a: Any) -> Any:
    out = np.empty(a.shape)
    native_copy(out, a)
    return out


def uses_a_foreign_array(a: Any) -> Any:
    return np.frombuffer(bytes(a)).reshape(a.shape) + a  # made by neither a recorded function nor the caller


@pytest.mark.parametrize(
    ("fn", "why"), [(returns_native_memory, "no operation was recorded"), (uses_a_foreign_array, "not recorded")]
)
def test_a_call_of_which_no_bound_is_known_is_unmodelled(fn: Callable[..., Any], why: str) -> None:
    found = captured(fn, A)
    assert found.work is None
    assert why in found.reason


def test_a_masked_array_is_unmodelled() -> None:
    masked = np.ma.masked_array(A, mask=A > 0.5)
    for fn in (lambda m: m.sum(), lambda m: m + 1):
        found = captured(fn, masked)
        assert found.work is None
        assert "operations on a MaskedArray are not" in reasons(found)


def test_the_half_of_numpy_in_a_call_of_torch_is_a_lower_bound() -> None:
    torch = pytest.importorskip("torch")
    found = captured(lambda a: torch.from_numpy(a * 2).sum(), A)
    assert "torch ran operations too" in reasons(found)
    assert found.work is not None
    assert found.work.coverage == "lower_bound"
    whole = captured(lambda a: torch.from_numpy(a).sum(), A)
    assert whole.work is not None
    assert (whole.work.coverage, whole.work.bytes, whole.work.flops) == ("whole", NBYTES + 8, N * N)


@pytest.mark.skipif(find_spec("scipy") is None, reason="needs scipy")
def test_scipy_on_images_and_signals_is_never_complete() -> None:
    from scipy import ndimage, signal

    kernel = A[:5, :5].copy()
    for fn, args in ((ndimage.convolve, (A, kernel)), (ndimage.gaussian_filter, (A, 2.0)), (signal.fftconvolve, (A, kernel))):
        found = captured(fn, *args)
        assert found.work is None or found.work.coverage == "lower_bound", fn.__name__


@pytest.mark.skipif(find_spec("numba") is None, reason="needs numba")
def test_numba_is_native() -> None:
    import numba

    @numba.njit  # type: ignore[untyped-decorator,unused-ignore]
    def fill(a: Any, out: Any) -> None:
        out[:] = a * 2

    def step(a: Any) -> Any:
        fill(a, OUT)
        return np.maximum(OUT, 0)

    assert "fill is native code" in reasons(captured(step, A))


@pytest.mark.skipif(find_spec("cffi") is None, reason="needs cffi")
def test_cffi_is_native() -> None:
    import cffi

    ffi = cffi.FFI()
    ffi.cdef("void *memcpy(void *, const void *, size_t);")
    library = ffi.dlopen(None)

    def step(a: Any) -> Any:
        library.memcpy(ffi.from_buffer(OUT), ffi.from_buffer(a), a.nbytes)
        return np.maximum(OUT, 0)

    assert "is native code" in reasons(captured(step, A))


# State that grows.


class Cache:
    def __init__(self) -> None:
        self.rows = ROW[None].copy()
        self.parts = [ROW.copy() for _ in range(6)]

    def append_row(self, row: Any) -> Any:
        self.rows = np.concatenate([self.rows, row[None]])
        return self.rows.sum(0)

    def append_part(self, row: Any) -> Any:
        self.parts.append(row)
        return sum(part * 2 for part in self.parts)

    def replace(self, row: Any) -> Any:
        self.rows = self.rows + row
        return self.rows


def test_state_that_grows_is_unmodelled() -> None:
    for method in (Cache().append_row, Cache().append_part):
        found = captured(method, ROW)
        assert found.work is None
        assert "grows from call to call" in found.reason


class Step:
    """An object that is called, as a layer is."""

    def __init__(self) -> None:
        self.parts = [ROW.copy() for _ in range(6)]

    def __call__(self, row: Any) -> Any:
        self.parts.append(row * 2)
        return sum(part.sum() for part in self.parts)


def test_state_of_an_object_that_is_called_grows() -> None:
    found = captured(Step(), ROW)
    assert found.work is None
    assert "grows from call to call" in found.reason


class Weighted:
    def __init__(self) -> None:
        self.weights = ROW.copy()

    def __call__(self, row: Any) -> Any:
        return self.weights.sum() + row.sum()


def test_arrays_of_an_object_that_is_called_and_of_a_deque_are_recorded() -> None:
    rows = deque([ROW.copy(), ROW.copy()])
    for fn in (Weighted(), lambda row: rows[0].sum() + row.sum()):
        found = captured(fn, ROW)
        assert found.work is not None
        assert (found.work.coverage, found.work.bytes) == ("whole", 2 * ROW.nbytes)  # each row is read once
    assert {type(row) for row in rows} == {np.ndarray}


def test_a_window_of_rows_in_a_deque_is_recorded_and_put_back() -> None:
    rows = deque([ROW.copy() for _ in range(3)], maxlen=3)

    def push(row: Any) -> Any:
        rows.append(row * 2)
        return sum(part.sum() for part in rows)

    found = captured(push, ROW)
    assert found.work is not None
    assert found.work.flops >= 4 * ROW.size - 3  # one product and three sums
    assert {type(row) for row in rows} == {np.ndarray}


class Slotted:
    __slots__ = ("weights",)

    def __init__(self) -> None:
        self.weights = ROW.copy()

    def run(self, row: Any) -> Any:
        return self.weights.sum() + row.sum()


def test_arrays_in_slots_are_not_recorded_and_that_is_said() -> None:
    assert "nothing recorded used the object of class Slotted" in reasons(captured(Slotted().run, ROW))


def test_state_that_is_replaced_does_not_grow() -> None:
    found = captured(Cache().replace, ROW)
    assert found.work is not None


# Whole, and so without a sign.


def accumulate(a: Any, b: Any) -> Any:
    total = np.zeros(a.shape[0])
    for row in a:
        total += row
    total[0] = 3.0
    return total * b[0]


def into_out(a: Any, b: Any) -> Any:
    out = np.empty_like(a)
    np.add(a, b, out=out)
    out *= 2
    return out


def sort_rows(a: Any) -> Any:
    rows = a.copy()
    rows.sort()
    return rows


HONEST: dict[str, Callable[..., Any]] = {
    "product": lambda a, b: a @ b,
    "accumulate": accumulate,
    "out": into_out,
    "in place": lambda a, b: np.add(a, b, out=a),
    "softmax": lambda a, b: np.exp(a - b.max()) / np.exp(a - b.max()).sum(),
    "zeros_like": lambda a, b: np.zeros_like(a) + b,
    "pad": lambda a, b: np.pad(a + b, 1),
    "roll": lambda a, b: np.roll(a, 3, axis=0) + b,
    "triu": lambda a, b: np.triu(a) + b,
    "identity": lambda a, b: a @ np.identity(N) + b,
    "mgrid": lambda a, b: a + b + np.mgrid[:N, :N][0],
    "fftfreq": lambda a, b: a + b + np.fft.fftfreq(N),
    "isclose": np.isclose,
    "stack": lambda a, b: np.stack([a, b]),
    "loop": lambda a, b: [a @ b for _ in range(3)][-1],
    "elements": lambda a, b: sum(a[i : i + 8, j : j + 8] * b[i, j] for i in range(3) for j in range(3)),
    "iterated": lambda a, b: a * sum(item for item in b[0]),
    "item": lambda a, b: a * b[0].item(3) if b[:1, :1] else a,
    "nested": lambda a, b: {"x": [{"y": a}]}["x"][0]["y"].sum() + b.sum(),
}


@pytest.mark.parametrize("name", HONEST)
def test_a_call_that_is_recorded_in_full_is_whole(name: str) -> None:
    found = captured(HONEST[name], A.copy(), B.copy())
    assert found.work is not None, found.reason
    assert (found.work.coverage, reasons(found)) == ("whole", "")


def test_arrays_deep_in_containers_are_recorded() -> None:
    found = captured(lambda tree: tree["x"][0]["y"][0]["z"].sum() + tree["b"].sum(), {"x": [{"y": [{"z": A}]}], "b": B})
    assert found.work is not None
    assert (found.work.coverage, found.work.bytes) == ("whole", 2 * NBYTES)


def test_an_operation_without_an_element_is_no_work() -> None:
    def step(a: Any, b: Any) -> Any:
        a[:0] = b[:0]
        return a[:, :0] @ b[:0] + a

    found = captured(step, A.copy(), B)
    assert found.work is not None, found.reason
    assert found.work.coverage == "whole"
    assert found.work.flops == N * N  # the product is zeros: only the sum computes


def test_a_sign_beside_an_unknown_operation_is_a_note() -> None:
    def step(a: Any, b: Any) -> Any:
        return sort_rows(a)

    found = captured(step, A, B)
    assert found.work is None
    assert has_note(found.notes, "partly_seen")
