"""Several runs in one figure: kernels that are the same, what changed since the first run, and what only one run has."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import pytest

from pytest_roofline.plot import output, page, sources, style
from pytest_roofline.plot.changes import compare
from pytest_roofline.plot.layout import NARROW, WIDE, Size, arrange
from pytest_roofline.plot.model import Chart
from support.figures import GPU


def run(*rows: dict[str, Any], **roofs: Any) -> Chart:
    return sources.read_document({**GPU, **roofs, "kernels": list(rows)}, "table.json")


def row(name: str, gflops: float, intensity: float = 1.0) -> dict[str, Any]:
    return {"name": name, "intensity": intensity, "gflops": gflops, "dtype": "fp32"}


def test_kernels_of_one_name_are_compared() -> None:
    before = run(row("up", 500), row("down", 1000), row("same", 1000), row("gone", 100))
    after = run(row("new", 100), row("same", 1020), row("down", 500, 2.0), row("up", 1000))
    made = compare([("before.json", before), ("after.json", after)])
    up, down, same = (next(one for one in made.kernels if one.name == name) for name in ("up", "down", "same"))
    assert (up.earlier, up.change) == (((1.0, 5e11),), 2.0)
    assert (down.earlier, down.change) == (((1.0, 1e12),), 0.5)
    assert (same.earlier, same.change) == (((1.0, 1e12),), None)  # 2 % is within the noise of reruns, 3.4 %
    assert up.label()[1] == "24.5% → 49.0% of roof, 2.0x faster"  # 500 and 1000 of 2039
    assert up.arrow_tip is None  # the arrow is that of the change
    assert [(one.name, one.factor, one.word) for one in made.changes] == [
        ("down", 0.5, "slower"),
        ("same", 1.02, "within the noise of reruns"),
        ("up", 2.0, "faster"),
        ("new", None, "new"),
        ("gone", None, "only in before.json"),
    ]
    assert made.title == "1 kernel faster, 1 kernel slower since before.json: down most, 2.0x slower"
    assert [(one.name, one.why) for one in made.excluded] == [("gone", "only in before.json")]
    assert made.notes == ()


def test_reports_are_compared_by_time_and_by_test() -> None:
    """A run that does twice the work in the same time has twice the rate, and is no faster."""
    peaks = {"hbm_bw_bytes_s": 2e12, "vector": {"fp32": 2e13}, "source": "table", "confidence": "high"}
    entry = {"name": "k", "modeled": True, "roof_axis": "memory", "ridge_point": 10.0, "arithmetic_intensity": 1.0}

    def report(*rows: tuple[str, float, float]) -> Chart:
        entries = [
            {**entry, "nodeid": nodeid, "t_unit_ms": ms, "flops_est": rate * ms / 1e3, "achieved_flops": rate}
            for nodeid, ms, rate in rows
        ]
        return sources.read_document({"entries": entries, "peaks": peaks}, "report.json")

    before = report(("a.py::test_x", 1.0, 1e11), ("b.py::test_x", 1.0, 1e11))
    after = report(("b.py::test_x", 0.25, 4e11), ("a.py::test_x", 1.0, 2e11))
    made = compare([("0", before), ("1", after)])
    assert [(one.name, one.factor) for one in made.changes] == [("a.py::test_x", 1.0), ("b.py::test_x", 4.0)]


def test_the_first_of_two_kernels_with_one_name_is_compared_with_the_first() -> None:
    made = compare([("0", run(row("k", 100), row("k", 200))), ("1", run(row("k", 300), row("k", 800)))])
    assert [one.change for one in made.kernels] == [pytest.approx(3.0), pytest.approx(4.0)]


def test_a_kernel_goes_through_all_runs_and_changes_since_the_first() -> None:
    made = compare([(str(at), run(row("k", gflops))) for at, gflops in enumerate((100, 400, 200))])
    (one,) = made.kernels
    assert one.earlier == ((1.0, 1e11), (1.0, 4e11))
    assert one.change == pytest.approx(2.0)
    assert made.subtitle.startswith("0 → 1 → 2; 1 kernel")


@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_labels_are_off_the_lines_of_changes(size: Size) -> None:
    before = [row(f"k{at}", 0.4 * min(2039 * 3.0**at, 19500), 3.0**at) for at in range(-3, 4)]
    after = [{**one, "gflops": 2 * one["gflops"]} for one in before]
    made = compare([("0", run(*before)), ("1", run(*after))])
    layout = arrange(made, style.legend(made), size)
    assert len(layout.labels) >= 5
    for label in layout.labels:
        one = made.kernels[label.kernel]
        line = layout.plane.at(*one.earlier[0]), layout.plane.at(one.intensity, one.rate)
        assert not label.box.crossed(line)


def test_other_roofs_and_no_common_kernel_are_named() -> None:
    before = run(row("a", 100), bandwidths=[{"name": "HBM", "gbs": 1000}])
    made = compare([("before.json", before), ("after.json", run(row("b", 100)))])
    (note,) = made.notes
    assert note == "before.json has other roofs than after.json: its places are drawn under the roofs of after.json"
    assert made.title == "No kernel is in before.json too"
    same = compare([("0", run(row("a", 100))), ("1", run(row("a", 100)))])
    assert same.title == "No kernel changed beyond the noise of reruns since 0"
    assert compare([("0", before), ("1", before)], "a title").title == "a title"


def test_two_reports_are_one_page_with_a_table_of_changes(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    paths = []
    for name, gflops in (("before", 500), ("after", 1000)):
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_text(json.dumps({**GPU, "kernels": [row("<up>", gflops)]}))
    out = tmp_path / "changes.svg"
    parser = ArgumentParser()
    output.configure(parser)
    assert output.run(parser.parse_args([*map(str, paths), "-o", str(out)])) == 0
    svg = out.read_text(encoding="utf-8")
    assert "24.5% → 49.0% of roof, 2.0x faster" in svg
    assert "in before.json" in svg  # the legend
    runs = [(path.name, output.read_document(json.loads(path.read_text()), path.name)) for path in paths]
    text = page.page(compare(runs), "")
    assert "<h2>Changes since before.json</h2>" in text
    assert '<td>&lt;up&gt;</td><td class="number">24.5%</td><td class="number">49.0%</td>' in text
