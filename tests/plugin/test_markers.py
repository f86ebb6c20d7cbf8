"""Keywords of the marker, from every place that takes them, and markers of several levels as one."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_roofline.declare import merge_keywords, read_declaration
from support.project import Project

CONV = 'op="conv2d", batch=1, in_channels=3, out_channels=8, input=[8, 8], kernel=[3, 3], dtype="fp32"'
#: An output of 6 x 6: 2 x 8 x 36 x 3 x 9 FLOPs; input, weight and output once, 4 bytes each.
CONV_FLOPS, CONV_BYTES = 15552, 4 * (3 * 64 + 8 * 3 * 9 + 8 * 36)

PLACES = {
    "marker": f"import pytest\n@pytest.mark.roofline({CONV})\ndef test_conv(roofline): roofline.record(1e-3)",
    "fixture": f"def test_conv(roofline):\n    roofline({CONV})\n    roofline.record(1e-3)",
    "hook": "def test_conv(roofline): roofline.record(1e-3)",
    "config": "def test_conv(roofline): roofline.record(1e-3)",
}
TOML = f'[tool.roofline.work]\n"*test_conv*" = {{ {CONV} }}\n'
HOOK = f"import pytest\n@pytest.hookimpl(optionalhook=True)\ndef pytest_roofline_work(item): return dict({CONV})\n"


@pytest.mark.parametrize("place", PLACES)
def test_a_convolution_is_declared_with_its_size(project: Project, place: str) -> None:
    project.write(test_a=PLACES[place], **({"conftest": HOOK} if place == "hook" else {}))
    if place == "config":
        project.toml(TOML)
    row = project.run("--roofline-device=MI355X").rows["test_conv"]
    assert (row["flops_est"], row["bytes_est"], row["work"]["source"]) == (CONV_FLOPS, CONV_BYTES, place)


def test_text_in_kernel_is_the_name_and_a_list_the_size() -> None:
    sizes: dict[str, Any] = {"op": "conv1d", "batch": 1, "in_channels": 2, "out_channels": 2, "input": ["n"], "dtype": "fp32"}
    declared = read_declaration({**sizes, "kernel": ["k"], "kernel_name": "conv_fprop"}, {"n": 8, "k": 3}, "marker")
    assert declared.kernel == "conv_fprop"
    assert declared.work is not None
    assert declared.work.flops == 2 * 2 * 6 * 2 * 3  # 6 outputs of 2 filters, each of 2 channels x 3 taps
    assert read_declaration({"bytes": 8, "kernel": "copy_kernel"}, {}, "marker").kernel == "copy_kernel"


@pytest.mark.parametrize(
    ("keywords", "error"),
    [
        ({"bytes": 8, "kernel": [3, 3]}, r"kernel is \[3, 3\], expected text"),
        ({"bytes": 8, "kernel": "a", "kernel_name": "b"}, "give kernel_name alone"),
        ({"op": "conv1d", "kernel": "3", "dtype": "fp32"}, r"missing .*kernel.*kernel=\[3, 3\]"),
    ],
)
def test_a_kernel_that_is_neither_name_nor_size_is_refused(keywords: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        read_declaration(keywords, {}, "marker")


LEVELS = """
import pytest

pytestmark = pytest.mark.roofline(device="MI355X", dtype="bf16", launches=2)
GEMM = pytest.mark.roofline(op="gemm", M=8, N="n", K=32)

@pytest.mark.roofline(device="H200", op="rmsnorm", rows=4, cols=8)
class TestRows:
    @pytest.mark.roofline(cols=16)
    def test_norm(self, roofline): roofline.record(1e-3)

    @pytest.mark.roofline(bytes=800)
    def test_totals(self, roofline): roofline.record(1e-3)

@GEMM
@pytest.mark.parametrize("n", [16, pytest.param(64, marks=pytest.mark.roofline(device="MI300X", launches=1))])
def test_gemm(roofline, n): roofline.record(1e-3)
"""


def test_markers_of_all_levels_count_as_one(project: Project) -> None:
    ran = project.write(test_a=LEVELS).run()
    found = {name: (row["device"], row["launches_per_unit"], row["flops_est"]) for name, row in ran.rows.items()}
    # RMSNorm has 4 FLOPs an element, a GEMM 2MNK.
    assert found == {
        "test_norm": ("H200", 2, 4 * 4 * 16),
        "test_totals": ("H200", 2, 0),  # the sizes of the class are of another kernel
        "test_gemm[16]": ("MI355X", 2, 2 * 8 * 16 * 32),
        "test_gemm[64]": ("MI300X", 1, 2 * 8 * 64 * 32),
    }
    assert not any(row["unknown_reason"] == "unvalidated_peak" for row in ran.rows.values())


def test_the_closest_marker_wins_for_each_keyword() -> None:
    far = {"op": "gemm", "M": 1, "N": 2, "K": 3, "dtype": "bf16", "min_pct": 50}
    assert merge_keywords([{"M": 4}, far]) == {**far, "M": 4}
    assert merge_keywords([{"op": "gemm", "M": 4}, far]) == {**far, "M": 4}
    assert merge_keywords([{"op": "copy", "rows": 4}, far]) == {"op": "copy", "rows": 4, "dtype": "bf16", "min_pct": 50}
    assert merge_keywords([{"bytes": 4}, far]) == {"bytes": 4, "dtype": "bf16", "min_pct": 50}
    assert merge_keywords([]) == {}


def test_a_wrong_keyword_of_a_class_is_an_error_of_collection(project: Project) -> None:
    ran = project.write(test_a=LEVELS.replace('"H200"', "3")).run()
    assert ran.code == 2
    assert "test_norm: roofline marker: device is 3, expected text" in ran.out
