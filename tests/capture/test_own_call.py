"""A watched test has the same outcome as an unwatched one: its result, what torch does in it, and the state after it."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from support.project import Project

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")

#: Each of these fails or changes its result if torch is watched carelessly.
TESTS = """
import copy, functools, pickle, sys, threading, weakref

import pytest, torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.overrides import TorchFunctionMode

torch.manual_seed(0)
X, W, Q = torch.randn(8, 16), torch.randn(16, 16), torch.randn(1, 2, 8, 16)
TARGETS = torch.zeros(8, dtype=torch.long)


def softmax(x, w):
    return torch.softmax(x @ w, -1)


LATER = torch.compile(softmax, backend="eager")  # before any test runs
KEPT = {}


def close(a, b):
    return bool(torch.allclose(a, b))


# Compilers and tracers: the tests check what they produce.

def test_compile():
    made = []
    def backend(graph, inputs):
        made.append(len(graph.graph.nodes))
        return graph.forward
    compiled = torch.compile(softmax, backend=backend, fullgraph=True)
    assert close(compiled(X, W), compiled(X, W)) and made == [5]

def test_compiled_before():
    seen = []
    def inner(x):
        seen.append(torch.compiler.is_compiling())
        return x + 1
    torch.compile(inner, backend="eager")(X)
    assert close(LATER(X, W), softmax(X, W)) and seen in ([], [True])

def test_explain():
    assert torch._dynamo.explain(softmax)(X, W).graph_count == 1

def test_trace_and_script():
    traced = torch.jit.trace(softmax, (X, W))
    assert [n.kind() for n in traced.graph.nodes() if n.kind().startswith("aten")] == ["aten::matmul", "aten::softmax"]
    module = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(16, 4), torch.nn.LayerNorm(4)))
    assert module(X).shape == (8, 4)

def test_script_what_is_stepped_aside_for():
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    assert torch.jit.script(layer)(X[None]).shape == (1, 8, 16)
    assert torch.compile(layer, backend="eager")(X[None]).shape == (1, 8, 16)
    assert "__call__" not in vars(torch.nn.MultiheadAttention)  # what compiles finds torch as it is

def test_export():
    class Module(torch.nn.Module):
        def forward(self, x, w):
            return softmax(x, w)
    exported = torch.export.export(Module(), (X, W))
    assert close(exported.module()(X, W), softmax(X, W))
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    assert torch.export.export(layer, (X[None],)).module()(X[None]).shape == (1, 8, 16)

def test_symbolic_trace():
    from torch.fx.experimental.proxy_tensor import make_fx
    assert len(torch.fx.symbolic_trace(softmax).graph.nodes) == 5
    names = [str(node.target) for node in make_fx(lambda x, w: F.linear(x, w))(X, W).graph.nodes]
    assert names == ["x_1", "w_1", "aten.t.default", "aten.mm.default", "output"], names

# Functions of functions.

def test_func():
    assert close(torch.func.grad(lambda x: (x**2).sum())(X), 2 * X)
    assert torch.vmap(lambda q: F.scaled_dot_product_attention(q, q, q))(Q[None]).shape == (1, 1, 2, 8, 16)
    assert torch.func.jacrev(torch.sin)(X[0]).shape == torch.func.jacfwd(torch.sin)(X[0]).shape == (16, 16)
    assert torch.func.hessian(lambda x: (x**3).sum())(X[0]).shape == (16, 16)

def test_gradcheck():
    a = torch.randn(3, 4, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a: F.linear(a, a).tanh(), (a,))

@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint(reentrant):
    from torch.utils.checkpoint import checkpoint
    grads = []
    for call in (lambda f, x: f(x), functools.partial(checkpoint, use_reentrant=reentrant)):
        x = X.clone().requires_grad_()
        call(lambda x: F.layer_norm(F.linear(x, W), (16,)), x).relu().sum().backward()
        grads.append(x.grad)
    assert torch.equal(*grads)

# Modes.

def test_asked_for_modes():
    assert not torch.overrides.has_torch_function((X,)) and not torch._C._len_torch_dispatch_stack()

def test_own_modes():
    functions, operations = [], []
    class Functions(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            functions.append(func.__name__)
            return func(*args, **(kwargs or {}))
    class Operations(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            operations.append(str(func))
            return func(*args, **(kwargs or {}))
    with Functions(), Operations():
        F.linear(X, W)
    assert functions == ["linear"] and operations == ["aten.t.default", "aten.mm.default"]

def test_fake():
    from torch._subclasses.fake_tensor import FakeTensorMode
    with FakeTensorMode() as mode:
        assert type(F.layer_norm(mode.from_tensor(X), (16,)) @ torch.empty(16, 4)).__name__ == "FakeTensor"
    with torch.device("meta"):
        assert F.embedding(torch.ones(3, dtype=torch.long), torch.ones(4, 4)).is_meta

def test_default_device():
    torch.set_default_device("meta")
    try:
        assert torch.ones(3).is_meta
    finally:
        torch.set_default_device(None)
    assert not torch.ones(3).is_meta

def test_a_mode_left_open():
    KEPT["mode"] = FlopLike()
    KEPT["mode"].__enter__()
    X @ W

def test_after_a_mode_left_open():
    assert KEPT["mode"].seen >= 1
    KEPT["mode"].__exit__(None, None, None)
    before = KEPT["mode"].seen
    X @ W
    assert KEPT["mode"].seen == before

class FlopLike(TorchDispatchMode):
    seen = 0
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen += 1
        return func(*args, **(kwargs or {}))

def test_autocast_and_inference():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert F.linear(X, W).dtype is torch.bfloat16
    with torch.inference_mode():
        assert F.linear(X, W).is_inference() and not X.view(-1).is_inference()

def test_profiler():
    from torch.profiler import profile, ProfilerActivity
    table = torch.zeros(1000, 16)
    with profile(activities=[ProfilerActivity.CPU]) as found:
        table.index_fill_(0, TARGETS, 1.0)
        X @ W
    counts = {event.key: event.count for event in found.key_averages()}
    assert counts["aten::mm"] == counts["aten::index_fill_"] == 1 and not any("uniq" in name for name in counts), counts

# Tensors and results.

def test_subclasses():
    log = []
    class Tensor(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            log.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})
    out = F.linear(X.as_subclass(Tensor), W)
    assert type(out) is Tensor and log == ["linear"], log

def test_objects():
    out = X @ W
    gone = weakref.ref(out)
    assert sys.getrefcount(out) == 2
    del out
    assert gone() is None
    into = torch.empty(8, 16)
    assert torch.mm(X, W, out=into) is into and close(pickle.loads(pickle.dumps(into)), copy.deepcopy(into))

def test_the_same_bits():
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    with torch.no_grad():
        if not KEPT.get("layer"):
            KEPT["layer"] = layer
        out = KEPT["layer"](X[None])
        heads = torch.nn.MultiheadAttention(16, 2, batch_first=True).eval()
        heads(X[None], X[None], X[None])
    assert out.shape == (1, 8, 16)

def test_graph_of_autograd():
    x = X.clone().requires_grad_()
    kinds = [type(out.grad_fn).__name__ for out in (F.linear(x, W), F.layer_norm(x, (16,)), F.cross_entropy(x, TARGETS))]
    assert kinds == ["MmBackward0", "NativeLayerNormBackward0", "NllLossBackward0"], kinds

def test_random_numbers():
    drawn = []
    for _ in range(2):
        torch.manual_seed(3)
        drawn.append((F.dropout(torch.ones(100), 0.5), F.scaled_dot_product_attention(Q, Q, Q, dropout_p=0.5), torch.rand(4)))
    assert all(torch.equal(a, b) for a, b in zip(*drawn))

def test_threads():
    out = []
    thread = threading.Thread(target=lambda: out.append(X @ W))
    thread.start()
    thread.join()
    assert torch.equal(out[0], X @ W)

def test_errors():
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        X @ X
    with pytest.raises(RuntimeError):
        F.scaled_dot_product_attention(X, X, torch.ones(3, 3))
    torch.use_deterministic_algorithms(True)
    try:
        torch.zeros(4).scatter_add_(0, torch.tensor([0, 0]), torch.ones(2))
    finally:
        torch.use_deterministic_algorithms(False)

def test_fails():
    X @ W
    assert 0, "as it should"
"""


def outcomes(text: str) -> dict[str, str]:
    lines = (line.split(" - ")[0].split() for line in text.splitlines() if line.startswith(("PASSED ", "FAILED ", "ERROR ")))
    return {words[1]: words[0] for words in lines}


def test_every_test_has_the_same_outcome_under_capture(project: Project) -> None:
    project.write(test_own=TESTS)
    alone = outcomes(project.spawn("-rA", on=False, torch=True).out)
    assert {name for name, outcome in alone.items() if outcome != "PASSED"} == {"test_own.py::test_fails"}
    assert len(alone) == TESTS.count("\ndef test_") + 1
    assert outcomes(project.spawn("-rA", "--roofline-device=MI355X", torch=True).out) == alone


WATCHED = """
import torch, torch.nn.functional as F

X = torch.ones(8, 128)

def compiled(x):
    return torch.softmax(x, -1)

LATER = torch.compile(compiled, backend="eager")

def test_softmax():
    torch.softmax(X, -1)

def test_softmax_compiled():
    torch.softmax(X, -1)
    LATER(X)

def test_softmax_beside_attention():
    heads = torch.nn.MultiheadAttention(128, 2, batch_first=True).eval()
    with torch.no_grad():
        heads(X[None], X[None], X[None])
    torch.softmax(X, -1)

def test_softmax_on_the_meta_device():
    torch.softmax(X.to("meta"), -1)
"""


def test_which_calls_of_a_test_are_watched(project: Project) -> None:
    """Softmax of 8 x 128 floats: read and written once. A compiled call is not watched. A call whose kernels torch selects by
    whether it is watched runs unwatched, and the rest of the test is watched."""
    project.write(test_own=WATCHED)
    ran = project.spawn("--roofline-device=MI355X", torch=True)
    assert set(ran.counts) == {"passed"}
    told = {name: (row["bytes_est"], row["stage"]) for name, row in ran.rows.items()}
    softmax = (2 * 4 * 8 * 128, "A")
    assert told == {
        "test_softmax": softmax,
        "test_softmax_beside_attention": softmax,
        "test_softmax_on_the_meta_device": softmax,
    }
