"""Count false alarms on honest kernels: calls of numpy and torch that do what they say, so that no time can be beyond the roof.

Each kernel is measured by the ``roofline`` fixture, or by pytest-benchmark where it is installed and ``--benchmark`` asks for
it, without any declaration; this process or busy loops next to it use the cores as well. Exit status 1 if a row is beyond_roof.

    python benchmarks/honest_kernels.py                  # once, on the machine as it is
    python benchmarks/honest_kernels.py --repeat 3 --busy 2
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

#: Each line is a name and an expression of a kernel's function and arguments. ``n`` is the number of elements.
NUMPY = """
add                 lambda: (np.add, f(n), f(n))
add_out             lambda: (lambda a, b, out: np.add(a, b, out=out), f(n), f(n), f(n))
add_out_alias       lambda: (lambda a, b: np.add(a, b, out=a), f(n), f(n))
add_scalar          lambda: (np.add, f(n), 1.0)
add_in_place        lambda: (lambda a: a.__iadd__(1.0), f(n))
add_part_in_place   lambda: (part_in_place, f(n))
multiply_zero       lambda: (np.multiply, f(n), 0.0)
power_two           lambda: (lambda a: a**2, f(n))
power_zero          lambda: (lambda a: a**0, f(n))
square_root         lambda: (np.sqrt, f(n))
exponential         lambda: (np.exp, f(n))
denormals           lambda: (np.add, f(n) * np.float32(1e-42), f(n) * np.float32(1e-42))
fma_chain           lambda: (lambda a, b, c: a * b + c, f(n), f(n), f(n))
normalize           lambda: (lambda a: (a - a.mean()) / a.std(), f(n))
softmax             lambda: (softmax, f(n).reshape(-1, 1024))
integers            lambda: (np.add, i(n), i(n))
integers_8          lambda: (np.add, i(n).astype(np.int8), np.int8(1))
bits                lambda: (np.bitwise_and, i(n), i(n))
compare             lambda: (np.less, f(n), f(n))
copy                lambda: (np.copy, f(n))
copyto              lambda: (np.copyto, f(n), f(n))
copyto_self         lambda: (lambda a: np.copyto(a, a), f(n))
assign_self         lambda: (lambda a: a.__setitem__(slice(None), a), f(n))
assign_scalar       lambda: (lambda a: a.__setitem__(slice(None), 2), f(n))
fill                lambda: (lambda a: a.fill(3), f(n))
astype              lambda: (lambda a: a.astype(np.float64), f(n))
astype_same         lambda: (lambda a: a.astype(np.float32, copy=False), f(n))
transpose_copy      lambda: (lambda a: np.ascontiguousarray(a.T), f(n).reshape(1024, -1))
contiguous_already  lambda: (np.ascontiguousarray, f(n))
ravel_view          lambda: (np.ravel, f(n).reshape(1024, -1))
reshape_view        lambda: (lambda a: a.reshape(-1), f(n).reshape(1024, -1))
concatenate         lambda: (lambda a, b: np.concatenate([a, b]), f(n), f(n))
stack_twice         lambda: (lambda a: np.stack([a, a]), f(n))
repeat              lambda: (lambda a: np.repeat(a, 4), f(n // 4))
tile                lambda: (lambda a: np.tile(a, 4), f(n // 4))
roll                lambda: (lambda a: np.roll(a, 7), f(n))
flip                lambda: (lambda a: np.flip(a).copy(), f(n))
pad                 lambda: (lambda a: np.pad(a, 8), f(n))
broadcast_sum       lambda: (np.sum, np.broadcast_to(np.float32(1), (n,)))
broadcast_add       lambda: (np.add, np.broadcast_to(f(1024), (n // 1024, 1024)), np.float32(1))
broadcast_rows      lambda: (np.add, f(n).reshape(-1, 1024), f(1024))
strided             lambda: (lambda a: a[::4] + 1, f(n))
strided_far         lambda: (lambda a: a[::64].sum(), f(n))
reversed            lambda: (lambda a: a[::-1] + 1, f(n))
column              lambda: (lambda a: a[:, 3].sum(), f(n).reshape(-1, 1024))
windows             lambda: (lambda a: np.lib.stride_tricks.sliding_window_view(a, 64).sum(axis=1), f(n // 64))
diagonal            lambda: (lambda a: np.trace(a), f(1 << 22).reshape(2048, 2048))
views_twice         lambda: (lambda a: a[: n // 2] + a[: n // 2], f(n))
views_overlap       lambda: (lambda a: a[:-1] + a[1:], f(n))
take                lambda: (np.take, f(n), i(n // 4))
take_repeated       lambda: (np.take, f(n), np.zeros(n // 4, np.int64))
index_repeated      lambda: (lambda a, k: a[k], f(n), np.zeros(n // 4, np.int64))
index_sorted        lambda: (lambda a, k: a[k], f(n), np.arange(0, n, 4))
mask_none           lambda: (lambda a, m: a[m], f(n), np.zeros(n, bool))
mask_some           lambda: (lambda a, m: a[m], f(n), f(n) > 1.5)
where               lambda: (lambda m, a, b: np.where(m, a, b), f(n) > 1.5, f(n), f(n))
where_out           lambda: (lambda a, m, out: np.add(a, 1, out=out, where=m), f(n), np.zeros(n, bool), f(n))
masked_assign       lambda: (lambda a, m: a.__setitem__(m, 0), f(n), np.zeros(n, bool))
put_repeated        lambda: (lambda a, k: a.__setitem__(k, 0), f(n), np.zeros(n // 4, np.int64))
clip                lambda: (lambda a: np.clip(a, 0, 1), f(n))
sum                 lambda: (np.sum, f(n))
sum_axis            lambda: (lambda a: a.sum(axis=0), f(n).reshape(-1, 1024))
sum_of_bool         lambda: (np.sum, np.ones(n, bool))
sum_where_none      lambda: (lambda a, m: np.sum(a, where=m), f(n), np.zeros(n, bool))
max                 lambda: (np.max, f(n))
argmax              lambda: (np.argmax, f(n))
argmax_nan          lambda: (np.argmax, nan(n))
argmin_nan          lambda: (np.argmin, nan(n))
any_bool            lambda: (np.any, np.ones(n, bool))
all_bool            lambda: (np.all, np.zeros(n, bool))
any_rows            lambda: (lambda a: a.any(axis=1), np.ones((1024, n // 1024), bool))
max_bool            lambda: (np.max, np.ones(n, bool))
argmax_bool         lambda: (np.argmax, np.ones(n, bool))
logical_or_bool     lambda: (np.logical_or.reduce, np.ones(n, bool))
contains            lambda: (lambda a: 1.5 in a, f(n))
contains_list       lambda: (lambda a: a[0] in a, f(n))
array_equal         lambda: (np.array_equal, f(n), f(n))
array_equal_self    lambda: (lambda a: np.array_equal(a, a), i(n))
allclose            lambda: (np.allclose, f(n), f(n))
isnan_any           lambda: (lambda a: np.isnan(a).any(), f(n))
count_nonzero       lambda: (np.count_nonzero, f(n) > 1.5)
nonzero             lambda: (np.nonzero, np.zeros(n, bool))
nansum              lambda: (np.nansum, f(n))
cumsum              lambda: (np.cumsum, f(n))
diff                lambda: (np.diff, f(n))
histogram           lambda: (lambda a: np.histogram(a, 16), f(n // 8))
bincount            lambda: (np.bincount, i(n // 4) % 256)
unique_sorted       lambda: (np.unique, np.zeros(n // 16, np.int32))
sort_sorted         lambda: (np.sort, np.arange(n // 8, dtype=np.float32))
searchsorted        lambda: (np.searchsorted, np.arange(n), 12345)
searchsorted_many   lambda: (np.searchsorted, np.arange(n), i(n // 64))
dot                 lambda: (np.dot, f(n), f(n))
dot_self            lambda: (lambda a: a @ a, f(n))
gemv                lambda: (np.matmul, f(n).reshape(-1, 1024), f(1024))
gemm                lambda: (np.matmul, f(1 << 20).reshape(1024, 1024), f(1 << 20).reshape(1024, 1024))
gemm_self           lambda: (lambda a: a @ a.T, f(1 << 20).reshape(1024, 1024))
gemm_thin           lambda: (np.matmul, f(1 << 18).reshape(-1, 4), f(1024).reshape(4, -1))
gemm_zeros          lambda: (np.matmul, np.zeros((1024, 1024), np.float32), np.zeros((1024, 1024), np.float32))
gemm_empty          lambda: (lambda a: a[:, :0] @ a[:0], f(1 << 20).reshape(1024, 1024))
gemm_broadcast      lambda: (np.matmul, np.broadcast_to(f(64), (256, 64, 64)), f(1 << 20).reshape(256, 64, 64))
outer               lambda: (np.outer, f(4096), f(4096))
einsum              lambda: (lambda a, b: np.einsum("ij,ij->i", a, b), f(n).reshape(-1, 1024), f(n).reshape(-1, 1024))
kron                lambda: (np.kron, f(1024), f(1024))
inverse             lambda: (np.linalg.inv, np.eye(512, dtype=np.float32) + 1)
norm                lambda: (np.linalg.norm, f(n))
fft                 lambda: (np.fft.rfft, f(n // 16))
convolve            lambda: (lambda a: np.convolve(a, a[:8]), f(n // 16))
zeros               lambda: (lambda: np.zeros(n, np.float32),)
zeros_part          lambda: (zeros_part, f(n))
zeros_read          lambda: (np.sum, np.zeros(8 * n, np.float32))
zeros_dot           lambda: (np.dot, np.zeros(4 * n, np.float32), np.zeros(4 * n, np.float32))
zeros_max           lambda: (np.max, np.zeros(8 * n, np.float32))
zeros_half          lambda: (np.sum, half(8 * n))
empty               lambda: (lambda: np.empty(n, np.float32),)
memory_map          lambda: (np.sum, mapped(n, "r"))
copy_on_write       lambda: (np.sum, mapped(n, "c"))
sparse_file         lambda: (np.sum, mapped(n, "w+"))
bytes_equal         lambda: (lambda a, b: a.tobytes() == b.tobytes(), f(n), f(n))
loop_early          lambda: (lambda a: next(k for k, v in enumerate(a) if v > 0), f(n))
objects             lambda: (np.sum, np.ones(1 << 12, object))
complex             lambda: (np.add, f(n).view(np.complex64), 1j)
masked_array        lambda: (lambda a: a.sum(), np.ma.masked_less(f(n), 1.5))
pickle              lambda: (lambda a: pickle.loads(pickle.dumps(a)), f(n // 4))
"""
TORCH = """
torch_add           lambda: (torch.add, t(n), t(n))
torch_add_in_place  lambda: (lambda a: a.add_(1), t(n))
torch_expand        lambda: (lambda a: a.expand(64, n // 64).sum(), t(n // 64))
torch_view          lambda: (lambda a: a.view(-1, 64), t(n))
torch_transpose     lambda: (lambda a: a.t().contiguous(), t(n).view(1024, -1))
torch_contiguous    lambda: (lambda a: a.contiguous(), t(n))
torch_clone         lambda: (torch.clone, t(n))
torch_zeros         lambda: (lambda: torch.zeros(n),)
torch_empty         lambda: (lambda: torch.empty(n),)
torch_zeros_sum     lambda: (torch.sum, torch.zeros(8 * n))
torch_of_zeros      lambda: (torch.sum, torch.from_numpy(np.zeros(8 * n, np.float32)))
torch_any           lambda: (torch.any, torch.ones(n, dtype=torch.bool))
torch_all           lambda: (torch.all, torch.zeros(n, dtype=torch.bool))
torch_argmax        lambda: (torch.argmax, t(n))
torch_argmax_nan    lambda: (torch.argmax, torch.from_numpy(nan(n)))
torch_equal         lambda: (torch.equal, t(n), t(n) + 1)
torch_equal_self    lambda: (lambda a: torch.equal(a, a), t(n))
torch_allclose      lambda: (torch.allclose, t(n), t(n))
torch_searchsorted  lambda: (torch.searchsorted, torch.arange(n), torch.tensor([5]))
torch_isin          lambda: (torch.isin, torch.arange(n // 16), torch.tensor([5]))
torch_nonzero       lambda: (torch.nonzero, torch.zeros(n))
torch_gather        lambda: (lambda a, k: a[k], t(n), torch.zeros(n // 4, dtype=torch.long))
torch_index_select  lambda: (lambda a, k: a.index_select(0, k), t(n).view(-1, 64), torch.zeros(4096, dtype=torch.long))
torch_embedding     lambda: (F.embedding, torch.zeros(4096, dtype=torch.long), t(n).view(-1, 64))
torch_where         lambda: (lambda m, a: torch.where(m, a, 0.0), t(n) > 1.5, t(n))
torch_masked        lambda: (lambda a, m: a.masked_select(m), t(n), torch.zeros(n, dtype=torch.bool))
torch_cat           lambda: (lambda a: torch.cat([a, a]), t(n))
torch_softmax       lambda: (lambda a: torch.softmax(a, -1), t(n).view(-1, 1024))
torch_layer_norm    lambda: (lambda a: F.layer_norm(a, (1024,)), t(n).view(-1, 1024))
torch_mm            lambda: (torch.mm, t(1 << 20).view(1024, 1024), t(1 << 20).view(1024, 1024))
torch_mm_zeros      lambda: (torch.mm, torch.zeros(1024, 1024), torch.zeros(1024, 1024))
torch_mm_bf16       lambda: (torch.mm, t(1 << 20).view(1024, 1024).bfloat16(), t(1 << 20).view(1024, 1024).bfloat16())
torch_addmm_zero    lambda: (lambda a: torch.addmm(a, a, a, beta=0, alpha=0), t(1 << 20).view(1024, 1024))
torch_bmm_expand    lambda: (torch.bmm, t(64).expand(256, 64, 64), t(1 << 20).view(256, 64, 64))
torch_empty_mm      lambda: (lambda a: a[:, :0] @ a[:0], t(1 << 20).view(1024, 1024))
torch_conv          lambda: (F.conv2d, t(1 << 18).view(1, 16, 128, 128), t(2304).view(16, 16, 3, 3))
torch_dropout_eval  lambda: (lambda a: F.dropout(a, 0.5, training=False), t(n))
torch_dropout_none  lambda: (lambda a: F.dropout(a, 0.0), t(n))
torch_relu_in_place lambda: (lambda a: a.relu_(), t(n))
torch_cumsum        lambda: (lambda a: a.cumsum(0), t(n))
torch_sort          lambda: (torch.sort, torch.arange(n // 8))
torch_topk          lambda: (lambda a: torch.topk(a, 4), t(n))
torch_sparse        lambda: (torch.mv, torch.eye(1024).to_sparse_csr(), t(1024))
torch_numpy         lambda: (lambda a: torch.from_numpy(a.numpy() * 2).sum(), t(n))
torch_attention     lambda: (lambda q: F.scaled_dot_product_attention(q, q, q), t(1 << 18).view(1, 8, 512, 64))
torch_backward      lambda: (lambda a: (a * 2).sum().backward(), t(n // 8).requires_grad_())
torch_compare_max   lambda: (lambda a: (a > 0).max(), t(n))
torch_amax_bool     lambda: (torch.max, torch.ones(n, dtype=torch.bool))
torch_unfold        lambda: (lambda a: a.unfold(0, 64, 1).sum(-1), t(n // 64))
torch_flip          lambda: (lambda a: a.flip(0), t(n))
torch_to_same       lambda: (lambda a: a.to(torch.float32), t(n))
torch_to_double     lambda: (lambda a: a.double(), t(n))
torch_norm          lambda: (torch.linalg.norm, t(n))
torch_scatter       lambda: (lambda a, k, s: a.scatter_add_(0, k, s), t(n), torch.zeros(n // 8, dtype=torch.long), t(n // 8))
"""
HEAD = """
import pickle
import numpy as np
import pytest

n = 1 << {bits}

def f(size): return np.random.default_rng(0).random(size, np.float32) + 1
def i(size): return np.random.default_rng(0).integers(0, size, size)
def nan(size):
    values = f(size)
    values[0] = np.nan
    return values
def half(size):
    values = np.zeros(size, np.float32)
    values[: size // 2] = 1
    return values
def mapped(size, mode):
    path = "mapped_" + mode[0]
    if mode != "w+":
        np.ones(size, np.float32).tofile(path)
    return np.memmap(path, np.float32, mode, shape=(size,))
def part_in_place(a):
    a[10 : n // 2] += 1
def softmax(a):
    e = np.exp(a - a.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)
def zeros_part(a):
    out = np.zeros(n, np.float32)
    out[:10] = a[:10]
    return out
"""
TORCH_HEAD = """
import torch
import torch.nn.functional as F

def t(size): return torch.rand(size) + 1
"""
TEST = """
KERNELS = {{
{lines}
}}

@pytest.mark.parametrize("name", list(KERNELS))
def test_kernel(name, {fixture}):
    {call}(*KERNELS[name]())
"""


def write(folder: Path, args: argparse.Namespace) -> None:
    """Write a file for each library: torch would also time what numpy's kernels do."""
    call = "benchmark" if args.benchmark else "roofline.measure"
    for name, kernels, head in (("numpy", NUMPY, ""), ("torch", TORCH, TORCH_HEAD)):
        pairs = [line.split(None, 1) for line in kernels.strip().splitlines()]
        lines = "\n".join(f"    {key!r}: {text}," for key, text in pairs if args.only in key)
        test = TEST.format(lines=lines, fixture=call.partition(".")[0], call=call)
        (folder / f"test_{name}.py").write_text(HEAD.format(bits=args.bits) + head + test, encoding="utf-8")


def run(folder: Path, library: str) -> list[dict[str, object]]:
    """Run the kernels of a library under the gate; return their rows."""
    report = folder / f"{library}.json"
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", f"test_{library}.py", "--roofline"]
    command += ["--roofline-fail-on=beyond_roof", f"--roofline-report=json:{report}", "--benchmark-max-time=0.2"]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    errors = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if not report.exists():
        sys.exit(f"no report of {library}: {done.stdout[-2000:]}")
    print(*(f"  {line[:200]}" for line in errors), sep="\n", end="\n" if errors else "")
    rows: list[dict[str, object]] = json.loads(report.read_text(encoding="utf-8"))["entries"]
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=1, help="runs of all kernels")
    parser.add_argument("--busy", type=int, default=0, help="busy loops next to them")
    parser.add_argument("--bits", type=int, default=22, help="the arrays have two to the power of this many elements")
    parser.add_argument("--only", default="", help="kernels whose name contains this")
    parser.add_argument("--benchmark", action="store_true", help="measure with pytest-benchmark")
    args = parser.parse_args()
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(args.busy)]
    beyond, rows = 0, []
    try:
        with tempfile.TemporaryDirectory() as name:
            write(Path(name), args)
            for number in range(args.repeat):
                found = [row for library in ("numpy", "torch") for row in run(Path(name), library)]
                over = [row for row in found if row["check"]["status"] == "beyond_roof"]  # type: ignore[index]
                print(f"run {number + 1}: {len(found)} kernels, {len(over)} beyond_roof", flush=True)
                print(*(f"  {row['short_name']}: {row['check']['message']}" for row in over), sep="\n")  # type: ignore[index]
                beyond, rows = beyond + len(over), [*rows, *found]
    finally:
        for loop in loops:
            loop.kill()
    verdicts = Counter(row["unknown_reason"] or row["headroom_class"] for row in rows)
    print(f"{len(rows)} rows, {beyond} beyond_roof: " + ", ".join(f"{count} {name}" for name, count in verdicts.most_common()))
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main())
