"""What a capture records of Triton launches: in the interpreter, and of compiled kernels on a stand-in for a GPU driver.

Triton reads TRITON_INTERPRET when a kernel is defined, so each mode runs in a separate process, once for all cases.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pytest_roofline.capture.trace import INTERPRETED
from pytest_roofline.capture.triton import DOT, NO_DOT, Access, missing_hooks, read_accesses
from roofline_engine.fields import Note

pytestmark = pytest.mark.skipif(not (find_spec("triton") and find_spec("torch")), reason="needs triton and torch")

KERNELS = """
import json, sys
import torch, triton, triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor
from pytest_roofline.capture.trace import Unknown
from pytest_roofline.capture.trace import Region
from pytest_roofline.capture.triton import missing_hooks, watch_launches


def region(tensor):
    storage = tensor.untyped_storage()
    view = Unknown((tensor.storage_offset(), *tensor.shape, *tensor.stride()))
    return Region(storage.data_ptr(), view, float(tensor.numel() * tensor.element_size()), float(storage.nbytes()))


def said_by_author(grid, metadata, args):
    calls.append([list(grid), metadata.name, metadata.num_warps, sorted(args)])
    return {"name": f"add_{args['n']}", "flops32": torch.tensor(1.0 * args["n"]), "bytes": 12 * args["n"]}


def of_flops(figures):
    def said(grid, metadata, args):
        return dict(figures)
    return said


def add(x, y, out, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


plain = triton.jit(add)
figured = triton.jit(launch_metadata=said_by_author)(add)
sparing = triton.jit(launch_metadata=lambda grid, metadata, args: {"bytes": 3000, "flops32": 0})(add)
broken = triton.jit(launch_metadata=lambda grid, metadata, args: {"flops32": args["missing"]})(add)
negative = triton.jit(launch_metadata=of_flops({"bytes": -1}))(add)
unwidthed = triton.jit(launch_metadata=of_flops({"flops": 500}))(add)
two_widths = triton.jit(launch_metadata=of_flops({"flops8": 5, "flops16": 7}))(add)


@triton.jit
def deepest(a, b):
    return tl.dot(a, b)


@triton.jit
def helper(a, b):
    return deepest(a, b)


def matmul(a, b, c, B: tl.constexpr):
    at = tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :]
    tl.store(c + at, helper(tl.load(a + at), tl.load(b + at)))


unknown = triton.jit(matmul)
known = triton.jit(launch_metadata=of_flops({"flops32": 2 * 16**3}))(matmul)


@triton.jit
def given(a, b, c, B: tl.constexpr, f: tl.constexpr):
    at = tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :]
    tl.store(c + at, f(tl.load(a + at), tl.load(b + at)))


@triton.jit
def look_up(table, index, out, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + at, tl.load(table + tl.load(index + at, mask=at < n), mask=at < n), mask=at < n)


@triton.jit
def described(desc, out, B: tl.constexpr):
    at = tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :]
    tl.store(out + at, desc.load([0, 0]))


@triton.jit
def of_a_pair(pair, out, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(out + at, tl.load(pair[0] + at) + tl.load(pair[1] + at))


@triton.jit
def double(x, unused, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def accumulate(x, out, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(out + at, tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def in_a_loop(x, y, out, steps, B: tl.constexpr):
    at = tl.arange(0, B)
    source, total = x + at, tl.zeros((B,), tl.float32)
    for _ in range(0, steps):
        total += tl.load(source)
        source += B
    other = y + at
    if steps > 100:
        other = y + 2 * at
    tl.store(out + at, total + tl.load(other))


N = 1000
x, y, out = torch.rand(N), torch.rand(N), torch.zeros(N)
a, c = torch.rand(16, 16), torch.zeros(16, 16)
grid = lambda meta: (triton.cdiv(N, meta["B"]),)
calls, cases = [], {}


def case(name, launch):
    seen = []
    try:
        with watch_launches(region, seen):
            launch()
    except Exception as error:
        seen.append(type(error).__name__)
    cases[name] = [item if isinstance(item, str) else item._asdict() for item in seen]


case("plain", lambda: plain[grid](x, y, out, N, B=128))
cases["right"] = bool(torch.equal(out, x + y)) if STAND_IN is None else True
case("twice", lambda: [plain[grid](x, y, out, N, B=128) for _ in range(2)])
case("figured", lambda: figured[grid](x, y, out, N, B=128))
case("sparing", lambda: sparing[grid](x, y, out, N, B=128))
case("broken", lambda: broken[grid](x, y, out, N, B=128))
case("negative", lambda: negative[grid](x, y, out, N, B=128))
case("unwidthed", lambda: unwidthed[grid](x, y, out, N, B=128))
case("two widths", lambda: two_widths[grid](x, y, out, N, B=128))
case("matmul", lambda: unknown[(1,)](a, a, c, B=16))
case("known", lambda: known[(1,)](a, a, c, B=16))
case("given", lambda: given[(1,)](a, a, c, B=16, f=helper))
case("look up", lambda: look_up[grid](x, torch.arange(N), out, N, B=128))
case("integers", lambda: look_up[grid](torch.arange(N), torch.arange(N), torch.arange(N), N, B=128))
case("described", lambda: described[(1,)](TensorDescriptor.from_tensor(a, [16, 16]), c, B=16))
case("pair", lambda: of_a_pair[(1,)]((x, y), out, B=128))
case("reinterpreted", lambda: plain[grid](triton.reinterpret(x, torch.int32), y, out, N, B=128))
case("slice", lambda: plain[grid](x[100:], y, out[:128], 128, B=128))
case("in place", lambda: double[grid](x.clone(), y, N, B=128))
case("output is input", lambda: plain[grid](a.view(-1), y[:256], a.view(-1), 256, B=128))
case("atomic", lambda: accumulate[grid](x, out.clone(), N, B=128))
case("loop", lambda: in_a_loop[(1,)](x[:256], y, c, 2, B=128))
case("nothing", lambda: plain[(0,)](x, y, out, N, B=128))
case("wrong", lambda: plain[grid](x, B=128))


def noisy(tensor):
    raise RuntimeError("no storage")


seen = []
with watch_launches(noisy, seen):
    plain[grid](x, y, out, N, B=128)
cases["no region"] = [item._asdict() for item in seen]

from triton.compiler.compiler import CompiledKernel
from triton.runtime.autotuner import Autotuner
import triton.runtime.interpreter as interpreter
owned = lambda: [CompiledKernel.launch_metadata, Autotuner._bench, interpreter.GridExecutor.__call__,
                 interpreter.InterpretedFunction.rewrite]
before = owned()
outer, inner = [], []
try:
    with watch_launches(region, outer), watch_launches(region, inner):
        plain[grid](x, y, out, N, B=128)
        cases["wrapped"] = [now is not then for now, then in zip(owned(), before)]
        raise KeyError
except KeyError:
    pass
cases["restored"] = [now is then for now, then in zip(owned(), before)]
cases["nested"] = [len(outer), len(inner)]

def bench(kernel_call, quantiles):
    times = [kernel_call() for _ in range(5)]
    return [1.0, 1.0, 1.0]

tuned = triton.autotune([triton.Config({"B": 64}), triton.Config({"B": 128})], key=["n"], do_bench=bench)(plain)
case("tuned", lambda: tuned[grid](x, y, out, N))
cases["calls"] = calls[:1]

from pytest_roofline.capture.torch.watch import Watch


def chain():
    between = torch.empty_like(x)
    plain[grid](x, y, between, N, B=128)
    return between * 2


watch = Watch()
with watch, watch_launches(watch.region, watch.traces):
    value = chain()
done = watch.finish(value)
cases["chain"] = [done.work.bytes, done.work.flops, done.operations, done.launches, list(done.notes)]
print(json.dumps(cases))
"""

#: The real path of a launch on a GPU, compiled for sm_90, whose driver launches nothing.
STAND_IN = """
import warnings
warnings.simplefilter("ignore")
from triton.backends.compiler import GPUTarget
from triton.runtime import driver


class Utils:
    def load_binary(self, name, kernel, shared, device):
        return object(), 1, 8, 0, 1024

    def unload_module(self, module):
        pass

    def get_device_properties(self, device):
        return {"max_shared_mem": 2**20}


class Driver:
    utils = Utils()

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 7

    def launcher_cls(self, src, metadata):
        return lambda *args: None


STAND_IN = Driver()
driver.set_active(STAND_IN)
"""

Cases = dict[str, Any]


def ran(folder: Path, head: str, interpret: str) -> Cases:
    script = folder / "kernels.py"
    script.write_text(f"{head}\n{KERNELS}", encoding="utf-8")
    env = {
        **os.environ,
        "TRITON_INTERPRET": interpret,
        "TRITON_CACHE_DIR": str(folder / "cache"),
        "TRITON_DEFAULT_FP_FUSION": "1",
    }
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=env, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    found: Cases = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module", params=["interpreter", "compiled"])
def cases(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Cases:
    inside = request.param == "interpreter"
    return {
        "mode": request.param,
        **ran(tmp_path_factory.mktemp(request.param), "STAND_IN = None" if inside else STAND_IN, "1" if inside else "0"),
    }


def notes(cases: Cases, *more: Note | str) -> list[list[str]]:
    first = [INTERPRETED] if cases["mode"] == "interpreter" else []
    return [list(item) if isinstance(item, Note) else ["basis", item] for item in (*first, *more)]


def sizes(seen: dict[str, Any]) -> list[float]:
    return [nbytes for _, _, nbytes, _ in (*seen["reads"], *seen["writes"], *seen["either"])]


def test_a_launch_has_the_footprint_of_its_tensors(cases: Cases) -> None:
    """Three vectors of 1000 fp32."""
    (seen,) = cases["plain"]
    assert (seen["name"], seen["flops"], seen["is_bound"], seen["work"]) == ("add", 0.0, False, None)
    assert sizes(seen) == [4000.0, 4000.0, 4000.0]
    assert seen["notes"] == notes(cases, NO_DOT)
    assert cases["right"]
    assert len(cases["twice"]) == 2


def test_the_authors_figures_have_priority_over_the_footprint(cases: Cases) -> None:
    """1000 additions of fp32 and 12 bytes each; a tensor is a figure too, as for proton."""
    (seen,) = cases["figured"]
    op, _, candidates, engine, dtype, *_ = seen["work"]
    assert (seen["name"], op, engine, dtype[0]) == ("add_1000", "unknown", "vector", "fp32")
    assert candidates == [["launch_metadata", 12000.0, 1000.0, True, None]]
    assert cases["calls"] == [[[8], "add", 4, ["B", "n", "out", "x", "y"]]]  # 8 = ceil(1000 / 128)


def test_an_author_who_counts_less_than_the_footprint_is_believed(cases: Cases) -> None:
    """3000 of the 12000 bytes, wherever they lie: what the call as a whole moves follows."""
    (seen,) = cases["sparing"]
    assert sizes(seen) == [1000.0, 1000.0, 1000.0]
    assert seen["work"][2] == [["launch_metadata", 3000.0, 0.0, True, None]]


@pytest.mark.parametrize(
    ("case", "problem"),
    [("broken", "launch_metadata: KeyError: 'missing'"), ("negative", "launch_metadata: ValueError: -1.0 is no amount")],
)
def test_invalid_figures_fall_back_to_the_footprint(cases: Cases, case: str, problem: str) -> None:
    (seen,) = cases[case]
    assert sizes(seen) == [4000.0, 4000.0, 4000.0]
    assert seen["notes"] == notes(cases, problem, NO_DOT)


def test_flops_without_a_width_use_the_common_dtype(cases: Cases) -> None:
    (seen,) = cases["unwidthed"]
    assert (seen["flops"], seen["dtype"]) == (500.0, "fp32")


def test_flops_of_two_widths_have_no_one_peak(cases: Cases) -> None:
    (seen,) = cases["two widths"]
    assert seen["flops"] is None
    assert seen["notes"] == notes(cases, "FLOPs of several widths (flops8, flops16)")


@pytest.mark.parametrize("case", ["matmul", "given"])
def test_flops_of_a_dot_are_unknown_even_in_a_device_function(cases: Cases, case: str) -> None:
    (seen,) = cases[case]
    assert seen["flops"] is None
    assert seen["notes"] == notes(cases, DOT)


def test_flops_of_a_dot_come_from_its_author(cases: Cases) -> None:
    """2 x 16^3, and the bytes of the arguments: one 16 x 16 matrix of fp32 read twice, one written."""
    (seen,) = cases["known"]
    assert (seen["flops"], seen["dtype"]) == (8192.0, "fp32")
    assert sizes(seen) == [1024.0, 1024.0, 1024.0]
    assert seen["reads"][0] == seen["reads"][1] != seen["writes"][0]


@pytest.mark.parametrize(
    ("case", "reads", "writes"),
    [
        ("plain", [4000.0, 4000.0], [4000.0]),
        ("in place", [4000.0], [4000.0]),  # a read and a write; the argument that is not used is no traffic
        ("atomic", [4000.0, 4000.0], [4000.0]),
        ("loop", [1024.0, 4000.0], [1024.0]),
    ],
)
def test_loads_and_stores_tell_reads_from_writes(cases: Cases, case: str, reads: list[float], writes: list[float]) -> None:
    (seen,) = cases[case]
    assert [nbytes for _, _, nbytes, _ in seen["reads"]] == reads
    assert [nbytes for _, _, nbytes, _ in seen["writes"]] == writes
    assert seen["either"] == []


def test_an_output_that_is_an_input_is_a_read_and_a_write(cases: Cases) -> None:
    """The interpreter sees addresses, the IR arguments: the storage is read once and written once by both."""
    (seen,) = cases["output is input"]
    assert len({tuple(map(str, region)) for region in seen["reads"]}) == 2
    assert len({tuple(map(str, region)) for region in seen["writes"]}) == 1


@pytest.mark.parametrize(
    "line",
    [
        "%r = tt.call @helper(%x) : (!tt.ptr<f32>) -> i32",
        "%r = tt.load %unknown : !tt.ptr<f32>",
        '%r = tt.elementwise_inline_asm "ld" {packed_element = 1} %x : !tt.ptr<f32> -> f32',
    ],
)
def test_a_pointer_that_cannot_be_followed_leaves_the_accesses_unknown(line: str) -> None:
    head = "module {\n  tt.func public @k(%x: !tt.ptr<f32>, %n: i32) {\n"
    assert read_accesses(head + f"    {line}\n    tt.return\n  }}\n}}") is None
    assert read_accesses(head + "    %r = tt.load %x : !tt.ptr<f32>\n    tt.return\n  }\n}") == [Access(loads=True)]
    assert read_accesses("") is None


def test_pointers_that_a_loop_exchanges_are_both_read() -> None:
    ir = """module {
  tt.func public @k(%x: !tt.ptr<f32> loc("x"(#loc)), %y: !tt.ptr<f32>, %z: !tt.ptr<f32>, %n: i32) {
    %0:2 = scf.for %i = %c0 to %n step %c1 iter_args(%a = %x, %b = %y) -> (!tt.ptr<f32>, !tt.ptr<f32>)  : i32 {
      %v = tt.load %a : !tt.ptr<f32> loc(#loc1)
      scf.yield %b, %a : !tt.ptr<f32>, !tt.ptr<f32>
    }
    tt.store %z, %v : !tt.ptr<f32>
    tt.return
  }
}"""
    assert read_accesses(ir) == [Access(loads=True), Access(loads=True), Access(stores=True)]


def test_an_index_makes_the_footprint_an_upper_bound(cases: Cases) -> None:
    (seen,) = cases["look up"]
    assert seen["is_bound"]
    assert sizes(seen) == [4000.0, 8000.0, 4000.0]
    assert "index may select parts of its buffers: their size is an upper bound" in [text for _, text in seen["notes"]]
    assert not cases["integers"][0]["is_bound"]


def test_tensors_are_found_in_descriptors_tuples_and_other_types(cases: Cases) -> None:
    assert sizes(cases["described"][0]) == [1024.0, 1024.0]
    assert sizes(cases["pair"][0]) == [4000.0, 4000.0, 4000.0]
    assert sizes(cases["reinterpreted"][0]) == [4000.0, 4000.0, 4000.0]


def test_a_slice_is_a_region_of_its_storage(cases: Cases) -> None:
    """900 of the 1000 elements of x."""
    _, view, nbytes, whole = cases["slice"][0]["reads"][0]
    assert (view[0][0], nbytes, whole) == (100, 3600.0, 4000.0)


def test_an_empty_grid_launches_nothing_and_errors_propagate(cases: Cases) -> None:
    assert cases["nothing"] == []
    assert cases["wrong"] == ["TypeError"]


def test_a_tensor_that_cannot_be_read_leaves_the_work_unknown(cases: Cases) -> None:
    (seen,) = cases["no region"]
    assert seen["flops"] is None
    assert seen["notes"] == notes(cases, "its arguments were not understood: RuntimeError: no storage")


def test_watches_nest_and_restore_everything(cases: Cases) -> None:
    assert cases["wrapped"] == [True] * 4
    assert cases["restored"] == [True] * 4
    assert cases["nested"] == [1, 1]


def test_autotuning_is_not_work_of_the_call(cases: Cases) -> None:
    (seen,) = cases["tuned"]
    assert seen["name"] == "add"


def test_a_launch_is_one_of_the_operations_of_torch(cases: Cases) -> None:
    """x, y and the result of the chain, 4000 B each: what is between stays inside. The copies of the interpreter are no
    operations."""
    nbytes, flops, operations, launches, said = cases["chain"]
    assert (nbytes, flops, operations, launches) == (12000.0, 1000.0, 2, 2)
    assert ("interpreted" in [code for code, _ in said]) is (cases["mode"] == "interpreter")


def test_the_interpreter_is_detected(cases: Cases) -> None:
    codes = [[code for code, _ in seen["notes"]] for name in ("plain", "figured", "matmul") for seen in cases[name]]
    assert all(("interpreted" in said) is (cases["mode"] == "interpreter") for said in codes)


def test_triton_imported_during_the_call_is_reported(tmp_path: Path) -> None:
    code = (
        "from pytest_roofline.capture.triton import missing_hooks, watch_launches\n"
        "import sys\nassert 'triton' not in sys.modules and missing_hooks() == ''\nseen = []\n"
        "with watch_launches(None, seen):\n    import triton\n"  # as torch does for itself
        "assert not seen\ndel sys.modules['triton']\n"
        "with watch_launches(None, seen):\n    import triton\n    kernel = triton.jit(vars(__import__('kernels'))['add'])\n"
        "print(seen[0].flops, seen[0].notes[0].text, repr(missing_hooks()))"
    )
    (tmp_path / "kernels.py").write_text("def add(x_ptr):\n    pass\n")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "None Triton was imported by the call: its launches were not recorded ''\n", done.stderr


def test_a_triton_without_the_wrapped_function_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("triton", "triton.compiler.compiler"):
        module = types.ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        vars(module).update(__version__="9.9", CompiledKernel=type("CompiledKernel", (), {}))
        monkeypatch.setitem(sys.modules, name, module)
    assert missing_hooks() == "Triton 9.9 has no triton.compiler.compiler.CompiledKernel.launch_metadata"
