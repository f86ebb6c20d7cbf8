"""The captured work of JAX calls: FLOPs and compulsory bytes derived by hand, and the reason where work is unknown."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from pytest_roofline.capture.jax import capture
from pytest_roofline.capture.trace import CapturedWork
from roofline_engine.fields import has_note

jax = pytest.importorskip("jax")
jnp, lax = jax.numpy, jax.lax

Function = Callable[..., Any]


def ones(*shape: int, dtype: str = "float32") -> Any:
    return jnp.ones(shape, dtype)


def known(found: CapturedWork) -> tuple[str, float, float]:
    """Op, bytes and FLOPs."""
    assert found.work is not None, found.reason
    assert found.certain
    return found.work.op, found.work.bytes, found.work.flops


#: M N K = 64 256 128: 2MNK = 4194304; A 64 x 128, B 128 x 256 and C 64 x 256 of fp32 are 229376 B.
A, B = ones(64, 128), ones(128, 256)
MATMUL = ("gemm", 229376.0, 4194304.0)
SQUARE = ones(512, 512)  # 2^20 B


@pytest.mark.parametrize(
    "fn",
    [
        pytest.param(lambda a, b: a @ b, id="plain"),
        pytest.param(jax.jit(lambda a, b: a @ b), id="jitted"),
        pytest.param(functools.partial(jnp.dot), id="partial"),
        pytest.param(lambda a, b: (a @ b).block_until_ready(), id="waits"),
        pytest.param(lambda a, b: jax.block_until_ready(jax.jit(jnp.matmul)(a, b)), id="waits for a jitted one"),
        pytest.param(lambda a, b: jnp.einsum("mk,kn->mn", a, b), id="einsum"),
    ],
)
def test_a_matrix_product_however_it_is_written(fn: Function) -> None:
    found = capture(fn, (A, B))
    assert known(found) == MATMUL
    assert found.work is not None
    assert (found.how, found.work.engine, found.work.dtype.name, found.operations) == ("jax", "matrix", "fp32", 1)


def test_what_a_function_closes_over_is_read() -> None:
    assert known(capture(lambda: A @ B)) == MATMUL
    product = jax.jit(lambda: A @ B)
    assert known(capture(product)) == MATMUL
    # 1 MiB of the closure, 1 MiB given, 1 MiB written.
    assert known(capture(lambda y: y + SQUARE, (ones(512, 512),))) == ("elementwise", 3 * 2.0**20, 2.0**18)


def test_an_array_that_is_given_twice_is_read_once() -> None:
    """One 64 x 64 operand read, one written."""
    x = ones(64, 64)
    assert known(capture(lambda a, b: a @ b, (x, x))) == ("gemm", 2 * 16384.0, 2.0 * 64**3)


def test_numpy_arrays_and_plain_values_are_accepted() -> None:
    numpy = pytest.importorskip("numpy")
    x = numpy.ones((64, 128), numpy.float32)
    assert known(capture(jnp.add, (x, x + 1))) == ("elementwise", 3 * 32768.0, 8192.0)
    # (66 x 130 written + 64 x 128 read) x 4 B
    assert known(capture(lambda a, mode: jnp.pad(a, 1, mode=mode), (x, "constant"))) == ("copy", 67088.0 + 4, 0.0)
    assert known(capture(lambda a, *, k: a * k, (x,), {"k": 3.0})) == ("elementwise", 65536.0, 8192.0)


@pytest.mark.parametrize(
    ("fn", "shapes", "expected"),
    [
        # 8 products of 64^3; three operands of 8 x 64 x 64.
        (lambda a, b: a @ b, [(8, 64, 64), (8, 64, 64)], ("gemm", 3 * 131072.0, 8 * 2.0 * 64**3)),
        (jax.vmap(lambda a, b: a @ b), [(8, 64, 64), (8, 64)], ("gemm", 131072 + 2 * 2048.0, 8 * 2.0 * 64**2)),
        (lambda a, b: a.T @ b, [(64, 32), (64, 16)], ("gemm", 4.0 * (64 * 32 + 64 * 16 + 32 * 16), 2.0 * 32 * 16 * 64)),
        (lambda a: a.sum(), [(64, 128)], ("reduce", 32768.0 + 4, 8192.0)),
        (lambda a: a.T, [(64, 128)], ("copy", 2 * 32768.0, 0.0)),
        (jnp.exp, [(64, 128)], ("elementwise", 2 * 32768.0, 8192.0)),
        (lambda a: jnp.cumsum(a, axis=1), [(64, 128)], ("elementwise", 2 * 32768.0, 8192.0)),
        # A pool of 2 x 2: every element read once, a quarter written.
        (
            lambda a: lax.reduce_window(a, 0.0, lax.add, (2, 2), (2, 2), "VALID"),
            [(64, 128)],
            ("elementwise", 32768.0 + 8192, 8192.0),
        ),
        # 2 x (2 x 8 x 30 x 30) outputs x 16 channels x 9 taps.
        (
            lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "VALID"),
            [(2, 16, 32, 32), (8, 16, 3, 3)],
            ("conv2d", 4.0 * (2 * 16 * 1024 + 8 * 16 * 9 + 2 * 8 * 900), 2.0 * 14400 * 16 * 9),
        ),
        # 4 groups: each output sees 4 channels.
        (
            lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "VALID", feature_group_count=4),
            [(2, 16, 32, 32), (8, 4, 3, 3)],
            ("conv2d", 4.0 * (2 * 16 * 1024 + 8 * 4 * 9 + 2 * 8 * 900), 2.0 * 14400 * 4 * 9),
        ),
        # Channels last, every second position: 16 x 16 outputs.
        (
            lambda x, w: lax.conv_general_dilated(x, w, (2, 2), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")),
            [(2, 33, 33, 16), (3, 3, 16, 8)],
            ("conv2d", 4.0 * (2 * 33 * 33 * 16 + 9 * 16 * 8 + 2 * 256 * 8), 2.0 * 2 * 256 * 8 * 16 * 9),
        ),
    ],
)
def test_an_operation(fn: Function, shapes: list[tuple[int, ...]], expected: tuple[str, float, float]) -> None:
    assert known(capture(fn, tuple(ones(*shape) for shape in shapes))) == expected


@pytest.mark.parametrize(
    ("fn", "dtype", "expected"),
    [
        (lambda a, b: a @ b, "bfloat16", "bf16"),
        (lambda a, b: lax.dot(a, b, preferred_element_type="float32"), "float8_e4m3fn", "fp8"),
        (lambda a, b: lax.dot(a, b, preferred_element_type="int32"), "int8", "int8"),
        (lambda a, b: jnp.dot(a, b, precision="BF16_BF16_F32"), "float32", "bf16"),
        (lambda a, b: jnp.dot(a, b, precision="highest"), "float32", "fp32"),
    ],
)
def test_a_product_runs_at_the_rate_of_its_operands_or_precision(fn: Function, dtype: str, expected: str) -> None:
    found = capture(fn, (ones(64, 128, dtype=dtype), ones(128, 256, dtype=dtype)))
    assert found.work is not None
    assert (found.work.dtype.name, found.work.flops) == (expected, 4194304.0)


def test_a_chain_reads_its_arguments_and_writes_its_result() -> None:
    """Twenty layers: 20 weights of 1 MiB and the input read, one result written; intermediate results stay inside."""
    weights = [SQUARE + at for at in range(20)]
    found = capture(lambda x, weights: functools.reduce(lambda y, w: jnp.tanh(y @ w), weights, x), (ones(512, 512), weights))
    assert known(found) == ("gemm", 22 * 2.0**20, 20 * 2.0 * 512**3)
    assert found.operations == 40


def test_bytes_accessed_is_listed_and_not_in_the_range() -> None:
    found = capture(jax.nn.softmax, (A,))
    assert found.work is not None
    listed = {model.model: (model.bytes, model.in_range) for model in found.work.candidates}
    assert listed["fused"] == (65536.0, True)
    assert listed["xla_bytes_accessed"][0] > 65536.0
    assert not listed["xla_bytes_accessed"][1]


def test_the_body_of_a_loop_counts_as_often_as_it_runs() -> None:
    """Ten products of 64^3, of which XLA counts one; 16 KiB read and as much written."""
    x = ones(64, 64)
    for fn in (
        lambda x: lax.scan(lambda c, _: (c @ c, None), x, None, length=10)[0],
        lambda x: lax.fori_loop(0, 10, lambda _, c: c @ c, x),
    ):
        found = capture(fn, (x,))
        assert known(found)[1:] == (32768.0, 10 * 2.0 * 64**3)
        assert any("counts once" in note.text for note in found.notes)


def test_what_a_scan_stacks_is_written_once() -> None:
    """64 rows of 128 read, as many written, and the last carry of 128; two FLOPs per element."""
    found = capture(lambda rows: lax.scan(lambda c, row: (c + row, c * row), jnp.zeros(128), rows), (A,))
    assert known(found)[1:] == (2 * 32768.0 + 512, 2 * 8192.0)


def test_a_slice_reads_only_its_part() -> None:
    """8 rows of 512 read, scaled and written, of a table of 512; a gather reads its 8 indices of 4 B too."""
    assert known(capture(lambda t: t[:8] * 2, (SQUARE,)))[1:] == (2 * 16384.0, 4096.0)
    assert known(capture(lambda t, i: t[i], (SQUARE, jnp.arange(8))))[1:] == (2 * 16384.0 + 32, 0.0)


ROW = 2048.0


@pytest.mark.parametrize(
    ("fn", "args", "nbytes", "flops"),
    [
        # A row that is named twice is read once; each of eight is written, its index is of 4 B.
        (lambda t, i: t[i], (SQUARE, jnp.zeros(8, int)), ROW + 8 * ROW + 32, 0.0),
        (lambda t, i: t[i], (SQUARE, jnp.arange(8) - 512), 16 * ROW + 32, 0.0),
        (lambda t, i: jnp.take(t, i, axis=0), (SQUARE, jnp.array([5, 5, 6])), 2 * ROW + 3 * ROW + 12, 0.0),
        (jax.jit(lambda t, i: t[i]), (SQUARE, jnp.zeros(8, int)), ROW + 8 * ROW + 32, 0.0),
        # Rows 0 to 7 and 4 to 11: twelve.
        (lambda t, i, j: t[i] + t[j], (SQUARE, jnp.arange(8), jnp.arange(4, 12)), 12 * ROW + 8 * ROW + 64, 4096.0),
        (lambda t: t[:8] + t[4:12], (SQUARE,), 12 * ROW + 8 * ROW, 4096.0),
        (lambda t: t[:, :256] * t[:, 256:], (SQUARE,), 1.5 * 2.0**20, 131072.0),
        (lambda t: t[::2] * 2, (SQUARE,), 2.0**20, 131072.0),
        # A row is written over, the rest of the copy is read.
        (lambda t, k: lax.dynamic_update_slice(t, k, (3, 0)), (SQUARE, ones(1, 512)), 2 * 2.0**20, 0.0),
        # Positions 0, 2, 4, 6, 8 of 9 on each axis.
        (lambda x, w: lax.conv_general_dilated(x, w, (2, 2), "VALID"), (ones(2, 4, 9, 9), ones(6, 4, 1, 1)),
         4.0 * (2 * 4 * 25 + 24 + 2 * 6 * 25), 2.0 * 2 * 6 * 25 * 4),
        (lambda a: lax.reduce_window(a, 0.0, lax.add, (2, 2), (4, 4), "VALID"), (ones(8, 8),), 4.0 * (16 + 4), 16.0),
        # What is given on as it is costs nothing.
        (lambda a: (SQUARE, a + 1), (ones(512, 512),), 2 * 2.0**20, 2.0**18),
    ],
)  # fmt: skip
def test_repeated_reads_of_an_operand_count_once(fn: Function, args: tuple[Any, ...], nbytes: float, flops: float) -> None:
    assert known(capture(fn, args))[1:] == (nbytes, flops)


def test_rows_that_the_call_itself_chooses_are_bounded() -> None:
    """The 8 largest of a row name rows: at most eight different ones."""
    found = capture(lambda t, i: t[(i * 2.0).astype(int)], (SQUARE, jnp.arange(8.0)))
    assert found.work is not None
    assert not found.certain
    assert any("upper bound" in note.text for note in found.notes)


def test_a_function_of_the_call_that_takes_the_memory_of_its_argument_bounds_it() -> None:
    update = jax.jit(lambda t: lax.dynamic_update_slice(t, jnp.ones((1, 512)), (3, 0)), donate_argnums=0)
    found = capture(lambda t: update(t), (ones(512, 512),))
    assert not found.certain
    assert any("donated" in note.text for note in found.notes)


def test_constant_results_have_no_work() -> None:
    """exp of a constant is computed when the function is compiled; a product of constants is not (and XLA counts it)."""
    x = SQUARE + 1
    found = capture(jax.jit(lambda x: x + jnp.exp(SQUARE)), (x,))
    assert found.work is None
    assert "constants at compile time" in found.reason
    assert known(capture(lambda x: x + jnp.exp(SQUARE), (x,)))[2] == 2 * 2.0**18  # not compiled: both run
    assert known(capture(jax.jit(lambda x: x @ (SQUARE @ SQUARE)), (x,)))[2] == 2 * 2.0 * 512**3
    looped = jax.jit(lambda x: lax.fori_loop(0, 3, lambda _, y: y @ x, x) + jnp.exp(SQUARE))
    assert capture(looped, (x,)).reason.startswith("part of it depends on constants only")
    turned = capture(jax.jit(lambda x: x * SQUARE.astype("bfloat16")), (x,))
    assert not turned.certain


def test_a_cached_result_is_no_work_and_a_cache_holds_no_traces() -> None:
    held: dict[str, Any] = {}

    def memo(x: Any) -> Any:
        if "y" not in held:
            held["y"] = jnp.exp(x)
        return held["y"]

    assert known(capture(memo, (SQUARE,)))[2] == 2.0**18
    assert not held
    memo(SQUARE)
    assert capture(memo, (SQUARE,)).reason == "no operation was recorded"

    @functools.lru_cache
    def cached() -> Any:
        return jnp.exp(SQUARE)

    capture(lambda: cached() + 1)
    assert float(cached()[0, 0]) == pytest.approx(2.718281828)
    assert known(capture(lambda: cached() + 1))[2] == 2.0**18  # what is in the cache is read


def test_unused_results_have_no_work() -> None:
    def dead(a: Any, b: Any) -> Any:
        _ = a @ b
        return a + 1

    assert known(capture(dead, (SQUARE, ones(512, 512)))) == ("elementwise", 2 * 2.0**20, 2.0**18)


def test_a_donated_argument_that_is_updated_in_place_is_a_bound() -> None:
    update = jax.jit(lambda t: lax.dynamic_update_slice(t, jnp.ones((1, 512)), (3, 0)), donate_argnums=0)
    found = capture(update, (ones(512, 512),))
    assert found.work is not None
    assert not found.certain
    assert any("donated" in note.text for note in found.notes)
    assert known(capture(jax.jit(lambda a: a + 1, donate_argnums=0), (ones(512, 512),)))[1] == 2 * 2.0**20


def test_integers_have_no_flops() -> None:
    assert known(capture(lambda x: x + 1, (jnp.arange(1000),))) == ("elementwise", 8000.0, 0.0)


@pytest.mark.parametrize(
    ("fn", "reason"),
    [
        (jnp.sort, "no FLOP count for sort"),
        (jnp.fft.fft, "no FLOP count for fft"),
        (lambda a: jnp.linalg.qr(a)[0], "no FLOP count for qr"),
        (lambda a: jnp.linalg.cholesky(a), "no FLOP count for cholesky"),
        (lambda a: lax.while_loop(lambda c: c[0, 0] < 9.0, lambda c: c @ c, a), "no FLOP count for while"),
        (lambda a: lax.cond(a[0, 0] > 0, lambda c: c @ c, lambda c: c, a), "no FLOP count for cond"),
        (lambda a: jnp.dot(a, a, precision="BF16_BF16_F32_X3"), "no FLOP count for dot_general"),
        (lambda a: a.astype("complex64") * 2, "no FLOP count for"),
        (lambda a: float(a.sum()), "JAX cannot trace it: ConcretizationTypeError"),
        (lambda a: a if a.sum() > 0 else -a, "JAX cannot trace it: TracerBoolConversionError"),
        (lambda a: {}["missing"], "JAX cannot trace it: KeyError: 'missing'"),
        (lambda a: a, "no operation was recorded"),
        (lambda a: None, "no operation was recorded"),
    ],
)
def test_unknown_work_has_a_reason(fn: Function, reason: str) -> None:
    found = capture(fn, (ones(64, 64),))
    assert found.work is None
    assert found.reason.startswith(reason)


def test_constants_folded_by_xla_are_not_work_of_the_call() -> None:
    found = capture(jax.jit(lambda: jnp.exp(SQUARE) + 1))
    assert found.work is None
    assert "constants at compile time" in found.reason


def test_tracing_runs_nothing_and_restores_state() -> None:
    state: dict[str, Any] = {"x": SQUARE, "deep": {"n": []}}
    count = 0

    class Model:
        def __init__(self) -> None:
            self.x = SQUARE

        def step(self) -> Any:
            self.x, self.y = self.x + 1, 1
            return self.x

    def step() -> Any:
        nonlocal count
        count += 1
        state["x"] = state["x"] + 1
        state["deep"]["n"].append(state["x"])
        state["new"] = state["x"]
        return state["x"]

    model = Model()
    assert known(capture(step))[0] == known(capture(model.step))[0] == "elementwise"
    assert state["x"] is model.x is SQUARE
    assert (list(state), state["deep"], count) == (["x", "deep"], {"n": []}, 0)
    assert list(vars(model)) == ["x"]
    assert "block_until_ready" not in vars(jax.core.Tracer)


def test_a_pallas_kernel_uses_its_cost_estimate() -> None:
    pallas = pytest.importorskip("jax.experimental.pallas")

    def kernel(x_ref: Any, out_ref: Any) -> None:
        out_ref[...] = x_ref[...] + 1

    shape = jax.ShapeDtypeStruct((256, 256), "float32")
    estimate = pallas.CostEstimate(flops=65536, bytes_accessed=524288, transcendentals=0)
    found = capture(pallas.pallas_call(kernel, out_shape=shape, interpret=True, cost_estimate=estimate), (ones(256, 256),))
    assert known(found) == ("unknown", 524288.0, 65536.0)
    assert has_note(found.notes, "interpreted")
    silent = capture(pallas.pallas_call(kernel, out_shape=shape, interpret=True), (ones(256, 256),))
    assert silent.work is None
    assert any("without a cost_estimate" in note.text for note in silent.notes)


def test_arrays_on_several_devices_are_not_counted() -> None:
    code = (
        "import os; os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=2'\n"
        "import jax, jax.numpy as jnp\nfrom jax.sharding import Mesh, NamedSharding, PartitionSpec\n"
        "from pytest_roofline.capture.jax import capture\n"
        "where = NamedSharding(Mesh(jax.devices(), 'x'), PartitionSpec('x'))\n"
        "print(capture(jnp.exp, (jax.device_put(jnp.ones(8), where),)).reason)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "its arrays lie on 2 devices\n", done.stderr


def test_without_jax_there_is_a_reason() -> None:
    code = (
        "import sys\nfrom pytest_roofline.capture.jax import capture\n"
        "print(capture(abs, (1,)).reason, 'jax' in sys.modules, 'pytest' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "jax is not imported False False\n", done.stderr


def test_a_slice_of_elements_under_a_byte_counts_its_own_elements() -> None:
    x = jnp.ones((64, 32), jnp.int4)
    _, nbytes, _ = known(capture(lambda x: x[:8, ::2] + 1, (x,)))
    assert nbytes == 2 * 8 * 16 / 2  # 8 x 16 elements of half a byte, read and written


def test_a_product_over_no_elements_writes_zeros() -> None:
    a, b = jnp.ones((64, 32)), jnp.ones((32, 16))
    assert known(capture(lambda a, b: a[:, :0] @ b[:0], (a, b))) == ("copy", 4.0 * 64 * 16, 0.0)
