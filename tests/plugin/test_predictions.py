"""Matching of predictions to tests: by kernel name, by work and by pins."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from pytest_roofline.baselines import Match, Predicted, Predictions, read_pins, symbol
from roofline_engine.check import Prediction
from roofline_engine.ops import work


@pytest.mark.parametrize(
    ("name", "folded"),
    [
        ("test_rms_norm[4096-bf16]", "rmsnorm"),
        ("rms_norm_kernel", "rmsnorm"),
        ("_rms_norm_kernel", "rmsnorm"),
        ("void vllm::rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*)", "rmsnorm"),
        ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float>(int)", "vectorizedlayernorm"),
        ("_ZN4vllm15rms_norm_kernelIN3c108BFloat16ELi8EEEvPT_S4_", "rmsnorm"),
        ("_ZN12_GLOBAL__N_115rms_norm_kernelIfEEvPT_", "rmsnorm"),
        ("_Z15rms_norm_kernelPfS_", "rmsnorm"),
        ("_ZN4vllm15rms_norm_kernelIN3c108BFl", "rmsnorm"),  # as profilers cut it
        ("_rms_norm_kernel_0d1d2d3c4c", "rmsnorm"),  # Triton's specialisation of its arguments
        ("rms_norm_kernel_BLOCK_SIZE_M_64_num_warps_4", "rmsnorm"),  # aiter's tuned names
        ("rms_norm_kernel_3", "rmsnorm"),
        ("bench_rms_norm", "rmsnorm"),
        ("kernel_paged_attention_2d", "pagedattention2d"),  # 2d is no specialisation
        ("gemm_a8w8", "gemma8w8"),
        ("kernel", "kernel"),
        ("test_", ""),
        ("", ""),
        ("_Z", "z"),
    ],
)
def test_a_kernel_name_folds_to_the_part_shared_with_its_test(name: str, folded: str) -> None:
    assert symbol(name) == folded


@pytest.mark.skipif(shutil.which("c++filt") is None, reason="c++filt is not installed")
@pytest.mark.parametrize(
    "mangled",
    [
        "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15BUnaryFunctorIfffNS0_15binary_internal10MulFunctorIfEEEEEEvT_",
        "_ZN5aiter15mhc_post_kernelIDF16bLi4ELi4ELi1024ELb0EEEvPT_S2_",
        "_Z23ncclDevKernel_Generic_124ncclDevKernelArgsStorageILm4096EE",
        "_ZN7cutlass6KernelIfE3runEv",
    ],
)
def test_a_mangled_name_folds_as_its_demangled_one(mangled: str) -> None:
    plain = subprocess.run(["c++filt", mangled], capture_output=True, text=True, check=True).stdout.strip()
    if plain != "cutlass::Kernel<float>::run()":  # of a member of a class template, both give the class
        assert symbol(mangled) == symbol(plain)
    else:
        assert symbol(mangled) == symbol("cutlass::Kernel<float>") == "kernel"


def predicted(name: str, op: str | None = None, nbytes: float | None = None, flops: float | None = None) -> Predicted:
    return Predicted(Prediction(name, attainable_speedup=1.5), frozenset({name}), op, nbytes, flops)


def of(*entries: Predicted) -> Predictions:
    return Predictions("profile_roofline.json", None, None, list(entries))


def found(match: Match) -> tuple[str | None, str]:
    return (match.entry.prediction.kernel if match.entry else None), match.how or match.problem


#: 4096 rows of 8192 bf16 elements in and out and a row of weights: (2 * 4096 + 1) * 8192 * 2 B.
NORM = work("rmsnorm", rows=4096, cols=8192, dtype="bf16")
NORM_BYTES = (2 * 4096 + 1) * 8192 * 2


def test_the_kernel_that_a_test_names_comes_before_its_own_name() -> None:
    predictions = of(predicted("rms_norm_kernel"), predicted("fused_norm"))
    assert found(predictions.match("test_rms_norm", kernel="fused_norm")) == ("fused_norm", "by kernel=, fused_norm")
    assert found(predictions.match("test_rms_norm")) == ("rms_norm_kernel", "by its name, test_rms_norm")
    assert found(predictions.match("test_rms_norm", kernel="another")) == (None, "")  # what the user says is not guessed over


def test_the_kernel_that_a_test_launches_comes_before_its_name() -> None:
    predictions = of(predicted("add_kernel"), predicted("sum"))
    match = predictions.match("test_sum", launched=["_add_kernel"])
    assert found(match) == ("add_kernel", "by the kernel it launches, _add_kernel")


def test_equal_names_match_by_work() -> None:
    small, large = predicted("norm<8>", "rmsnorm", 1e6, 1e6), predicted("norm<16>", "rmsnorm", NORM_BYTES, NORM.flops)
    assert found(of(small, large).match("test_norm", work=NORM))[0] == "norm<16>"
    kernel, why = found(of(small, large).match("test_norm"))
    assert kernel is None
    assert why == "2 predictions fit by its name, test_norm: norm<8>, norm<16>: --roofline-match pins one"


def test_an_op_name_matches_by_work_alone() -> None:
    """GEAK#337: candidates named after ops and a Top-N of kernel symbols had no name in common."""
    other = predicted("Cijk_Ailk", "gemm", NORM_BYTES, NORM.flops)
    kernel = predicted("void ns::kern<1>", "rmsnorm", NORM_BYTES * 1.01, NORM.flops)
    name, how = found(of(other, kernel).match("test_t5", work=NORM))
    assert (name, how) == ("void ns::kern<1>", "by its op and work: rmsnorm of 134.2 MB")
    far = predicted("void ns::kern<1>", "rmsnorm", NORM_BYTES * 1.1, NORM.flops)
    assert found(of(other, far).match("test_t5", work=NORM)) == (None, "")
    assert found(of(predicted("void ns::kern<1>", "rmsnorm")).match("test_t5", work=NORM)) == (None, "")


def test_a_pin_has_priority_over_names() -> None:
    predictions = of(predicted("a"), predicted("b"))
    predictions.pin({"test_x.py::test_a[*]": "b"}, "match.toml")
    assert found(predictions.match("test_a", nodeid="test_x.py::test_a[1]", kernel="a")) == ("b", "pinned by match.toml")
    assert found(predictions.match("test_a", nodeid="test_y.py::test_a[1]"))[0] == "a"


def test_a_pin_without_a_target_is_reported() -> None:
    with pytest.raises(ValueError, match=r"^match\.toml: '\*': no prediction is named 'c' in profile_roofline\.json$"):
        of(predicted("a")).pin({"*": "c"}, "match.toml")
    with pytest.raises(ValueError, match=r"^match\.toml: '\*': 2 predictions are named 'a' in"):
        of(predicted("a"), predicted("a")).pin({"*": "a"}, "match.toml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('"*" = 3', r"^match\.toml: '\*' is 3, expected the name of a prediction"),
        ('["*"]\na = "b"', r"^match\.toml: '\*' is \{'a': 'b'\}, expected"),
        ("* = b", r"^match\.toml: Invalid"),
        (b"\xff", r"match\.toml: not UTF-8 text \(byte 0\)$"),
        ("z = " + "[" * 2000 + "]" * 2000, r"^match\.toml: nested more than 100 levels deep$"),
        ("z = " + "7" * 5000, r"^match\.toml: it has an integer of more digits than Python reads \(4300\)$"),
    ],
)
def test_an_unreadable_pins_file_is_reported(tmp_path: Path, text: str | bytes, message: str) -> None:
    path = tmp_path / "match.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=message):
        read_pins(path)
