"""The output formats of the figure: SVG, PNG, PDF, Vega-Lite and Vega, from the command, a run and Python."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pytest_roofline.plot import output, roofline_figure, sources, style, vega
from pytest_roofline.plot.layout import arrange
from pytest_roofline.plot.model import Chart
from pytest_roofline.report import Figures
from support.figures import GPU, NASTY, SEVEN, V100, many
from support.project import Project
from support.tool import ROOT

vl_convert = pytest.importorskip("vl_convert")

ROOFLINE = [sys.executable, "-c", "import sys; from pytest_roofline.cli import main; sys.exit(main())"]


def plot(folder: Path, document: Any, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    source = folder / "table.json"
    source.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    command = [*ROOFLINE, "plot", str(source), *options]
    env = {**os.environ, **environment}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=env, check=False, timeout=300)


def model(document: Any) -> Chart:
    return output.read_document(document, "table.json")


#: A table with all that can be drawn: levels, a baseline, a range of verdicts, two dtypes, a hostile name.
FULL: dict[str, Any] = {
    **many(12),
    "bandwidths": [*GPU["bandwidths"], {"name": "L2", "level": "l2", "gbs": 5500, "basis": "measured"}],
}
FULL["kernels"] += [
    {"name": NASTY, "intensities": {"hbm": 40, "l2": 12}, "gflops": 9000, "dtype": "fp32", "share": 1},
    {"name": "faster now", "intensity": 3, "gflops": 4000, "before_gflops": 1500, "dtype": "fp32", "share": 2},
    {"name": "copy", "gbs": 1500},
]


# Vega-Lite.


@cache
def scene(kind: str) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Every item of every mark that Vega's engine draws of ``FULL``, with its mark's role or name."""
    spec = output.vega_lite(model(FULL))
    drawn = (
        vl_convert.vegalite_to_scenegraph(spec, vl_version=vega.VERSION)
        if kind == "vega-lite"
        else vl_convert.vega_to_scenegraph(output.vega(model(FULL)))
    )

    def items(mark: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        for item in mark.get("items", []):
            yield f"{mark['marktype']} {mark.get('role') or ''}", item
            for inner in item.get("items", []):
                yield from items(inner)

    return tuple(items(drawn["scenegraph"]))


def texts(svg: str) -> list[str]:
    return ["".join(node.itertext()) for node in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def lines(svg: str) -> list[str]:
    """Yield each line of each text that the package draws."""
    found = []
    for node in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):
        spans = list(node)
        found += ["".join(span.itertext()) for span in spans] if spans else ["".join(node.itertext())]
    return found


@pytest.mark.parametrize("kind", ["vega-lite", "vega"])
def test_the_vega_scene_has_the_points_labels_and_legend(kind: str) -> None:
    made = model(FULL)
    layout = arrange(made, style.legend(made))
    ours = lines(output.svg(made))
    drawn = scene(kind)
    colors = {color.lower() for color, _ in style.VERDICTS.values()}
    points = sorted(
        (round(item["x"]), round(item["y"]))
        for role, item in drawn
        if role == "symbol mark" and item.get("fill", "").lower() in colors and item.get("stroke") == style.PAPER
    )
    expected = [
        (layout.plane.px(x) - layout.plane.frame.x, layout.plane.py(one.rate) - layout.plane.frame.y)
        for one in made.kernels
        for _, x in one.spots
    ]
    assert len(points) == len(expected)
    for (ax, ay), (bx, by) in zip(points, sorted((round(x), round(y)) for x, y in expected)):
        assert abs(ax - bx) <= 1
        assert abs(ay - by) <= 1
    labels = {str(item["text"]) for role, item in drawn if role == "text mark"}
    told = {line for label in layout.labels for line in label.lines}
    assert len(told) > 10
    assert told <= labels
    assert told <= set(ours)
    roofs = {slope.words for slope in layout.slopes} | {"compute bound", "fp32 vector: 19.5 TFLOP/s"}
    assert roofs <= labels
    assert roofs <= set(ours)
    entries = [entry.text for entry in layout.legend if kind == "vega" or entry.kind != "mark"]
    assert set(entries) <= {str(item["text"]) for role, item in drawn if role.startswith("text")}
    assert set(entries) <= set(ours)


def test_vega_roofs_are_lines_between_exact_vertices() -> None:
    spec = output.vega_lite(model(SEVEN))
    vertices: dict[str, list[tuple[float, float]]] = {}
    for row in spec["datasets"]["roofs"]:
        vertices.setdefault(row["roof"], []).append((row["intensity"], row["rate"]))
    assert all(len(ends) == 2 for ends in vertices.values())
    for x, y in vertices["STREAM"]:
        assert y == pytest.approx(204 * x, rel=1e-6)
    assert {y for _, y in vertices["no FMA"]} == {920}
    assert vertices["no FMA"][0][0] == pytest.approx(920 / 204)
    assert len(json.dumps(output.vega_lite(model(SEVEN)))) < 16_000


@pytest.mark.parametrize("document", [SEVEN, V100, FULL, {"kernels": []}], ids=["seven", "v100", "full", "empty"])
def test_the_specification_matches_the_vega_lite_schema(document: dict[str, Any]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    altair = pytest.importorskip("altair")
    path = Path(altair.__file__).parent / "vegalite" / "v6" / "schema" / "vega-lite-schema.json"
    schema = json.loads(path.read_text(encoding="utf-8"))
    errors = [
        error.message[:200] for error in jsonschema.Draft7Validator(schema).iter_errors(output.vega_lite(model(document)))
    ]
    assert errors == []


def test_the_vega_drawing_has_every_point() -> None:
    made = model(FULL)
    spec = output.vega(made)
    assert spec["$schema"] == "https://vega.github.io/schema/vega/v6.json"
    values = {one["name"]: one["values"] for one in spec["data"]}
    assert sorted(row["k"] for row in values["kernels"]) == [at for at, one in enumerate(made.kernels) for _ in one.spots]
    sizes = [row["size"] for row in values["kernels"]]
    assert sizes == sorted(sizes, reverse=True)  # the last one drawn is on top


def test_tooltips_carry_basis_range_limiter_and_share() -> None:
    (points,) = (layer for layer in output.vega_lite(model(FULL))["layer"] if "params" in layer)
    assert points["params"][0]["bind"] == "scales"  # zoom and pan
    assert {tip["field"] for tip in points["encoding"]["tooltip"]} >= {"name", "of_roof", "bound", "verdict", "share", "dtype"}
    (points,) = (layer for layer in output.vega_lite(model(SEVEN))["layer"] if "params" in layer)
    assert "verdict" not in {tip["field"] for tip in points["encoding"]["tooltip"]}  # none has one


# Names and bytes.


def test_a_hostile_name_is_escaped_everywhere(tmp_path: Path) -> None:
    done = plot(tmp_path, FULL, *(part for suffix in output.SUFFIXES for part in ("-o", f"o{suffix}")))
    assert done.returncode == 0, done.stderr
    svg = (tmp_path / "o.svg").read_text(encoding="utf-8")
    assert any(line.startswith("</script><img") for line in lines(svg))  # read back as text, by a parser
    page = (tmp_path / "o.html").read_text(encoding="utf-8")
    for text in (svg, page, (tmp_path / "o.vl.json").read_text(encoding="utf-8")):
        assert "<img src=x" not in text
        assert "\x1b" not in text
        assert "\x00" not in text
        assert "std::tuple<std::tuple<" * 10 not in text
    assert (tmp_path / "o.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "o.pdf").read_bytes().startswith(b"%PDF")
    assert json.loads((tmp_path / "o.vg.json").read_text(encoding="utf-8"))["marks"]


def test_two_runs_write_the_same_bytes(tmp_path: Path) -> None:
    found = []
    for seed in ("1", "2"):
        folder = tmp_path / seed
        folder.mkdir()
        files = ["o.html", "o.svg", "o.vl.json", "o.vg.json"]
        done = plot(folder, FULL, *(part for name in files for part in ("-o", name)), PYTHONHASHSEED=seed)
        assert done.returncode == 0, done.stderr
        found.append({name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in files})
    assert found[0] == found[1]


def test_a_page_has_no_network_address() -> None:
    page = output.html(model(SEVEN))
    links = set(re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?(https?:[^"')\s>]+)""", page))
    assert links == set()
    assert "default-src 'none'" in page


def test_five_thousand_kernels_are_a_page_of_under_five_megabytes(tmp_path: Path) -> None:
    name = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_{}_256x128_ldg8_f2f_stages_64x3_nn_align8>(Params)"
    assert plot(tmp_path, many(5000, name), "-o", "o.html").returncode == 0
    assert (tmp_path / "o.html").stat().st_size < 5e6


def test_the_docs_pictures_equal_the_output_of_their_command() -> None:
    spec = importlib.util.spec_from_file_location("make_figures", ROOT / "docs" / "make_figures.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    drawn = dict(made.drawings())
    assert drawn == {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "figures").glob("*.svg")}
    for name, table in (("cpu", SEVEN), ("v100", V100)):
        assert json.loads((ROOT / "examples" / "figure" / f"{name}.json").read_text(encoding="utf-8")) == table


# The command.


def test_the_suffix_of_an_output_is_known(tmp_path: Path) -> None:
    done = plot(tmp_path, SEVEN, "-o", "o.txt")
    assert (done.returncode, done.stderr.strip().count("\n")) == (2, 0)
    assert "expected a file that ends in .html, .svg, .png, .pdf, .vl.json or .vg.json" in done.stderr


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "not JSON"),
        ('{"a": 1}', "nothing to draw"),
        ("[]", "nothing to draw"),
        ('{"kernels": [], "ceilings": 3}', "ceilings is int, expected a list"),
    ],
)
def test_an_invalid_document_gives_one_line(tmp_path: Path, text: str, told: str) -> None:
    done = plot(tmp_path, text, "-o", "o.svg")
    assert done.returncode == 2
    assert told in done.stderr
    assert done.stderr.strip().count("\n") == 0
    assert not (tmp_path / "o.svg").exists()


def test_a_directory_is_not_overwritten_and_no_file_remains(tmp_path: Path) -> None:
    (tmp_path / "o.svg").mkdir()
    done = plot(tmp_path, SEVEN, "-o", "o.svg")
    assert done.returncode == 2
    assert "o.svg: not written: a directory, which is not overwritten" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["o.svg", "table.json"]


def test_a_file_that_cannot_be_written_is_one_line_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old", encoding="utf-8")
    done = plot(tmp_path, SEVEN, "-o", "file/o.svg")
    assert done.returncode == 2
    assert done.stderr.strip() == "file/o.svg: not written: File exists"
    assert (tmp_path / "file").read_text(encoding="utf-8") == "old"


def test_a_missing_extra_gives_one_line_with_the_install_command(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['vl_convert'] = None", encoding="utf-8")
    done = plot(tmp_path, SEVEN, "-o", "o.svg", PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    assert "pip install 'pytest-roofline[plot]'" in done.stderr
    assert done.stderr.strip().count("\n") == 0


def test_other_commands_do_not_import_the_plot_package() -> None:
    code = (
        "import sys; sys.argv = ['roofline', 'peaks', 'list']; from pytest_roofline.cli import main; main();"
        "print([name for name in sys.modules if name.partition('.')[0] in ('vl_convert', 'narwhals')"
        " or name.startswith('pytest_roofline.plot')], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


# A run.

TEST = """
import pytest

@pytest.mark.roofline(bytes=8e8, flops=1e8, dtype="bf16", device="MI300X")
def test_stream(roofline):
    roofline.record(200e-6)
"""


def test_a_run_writes_the_figure_of_its_rows(project: Project) -> None:
    project.write(test_a=TEST)
    ran = project.spawn("--roofline-report=svg:out/r.svg", "--roofline-report=vl.json:r.vl.json")
    assert ran.code == 0, ran.out
    told = lines((project.path / "out" / "r.svg").read_text(encoding="utf-8"))
    # 8e8 bytes in 200 us are 4 TB/s of 5.3
    assert "75.5% of roof, up to 1.3x" in told
    spec = json.loads((project.path / "r.vl.json").read_text(encoding="utf-8"))
    assert [row["name"] for row in spec["datasets"]["kernels"]] == ["test_stream"]
    assert "roofline report: out/r.svg" in ran.out


def test_all_figures_of_a_run_use_one_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(sources, "read_document", lambda *given, of=sources.read_document: made.append(given) or of(*given))
    figures = Figures({"entries": []})
    for kind in ("svg", "vl.json", "png"):
        figures.write(str(tmp_path / f"o.{kind}"), kind)
    assert len(made) == 1
    assert len(list(tmp_path.iterdir())) == 3


def test_a_run_reports_a_missing_extra_at_start(project: Project) -> None:
    project.write(test_a=TEST)
    (project.path / "sitecustomize.py").write_text("import sys; sys.modules['vl_convert'] = None", encoding="utf-8")
    ran = project.spawn("--roofline-report=html:r.html", PYTHONPATH=str(project.path))
    assert ran.code == 4
    assert "--roofline-report: the figure needs the extra 'plot': pip install 'pytest-roofline[plot]'" in ran.out


# From Python.


def test_a_frame_and_a_list_give_the_same_figure() -> None:
    polars = pytest.importorskip("polars")
    roofs = {key: SEVEN[key] for key in ("ceilings", "bandwidths")}
    of_list = roofline_figure(SEVEN["kernels"], roofs)
    of_frame = roofline_figure(polars.DataFrame(SEVEN["kernels"]), roofs)
    assert of_list.chart == of_frame.chart
    shown = of_list._repr_html_()
    assert shown.startswith('<iframe srcdoc="&lt;!doctype html&gt;')
    assert len(shown) < 1_500_000


def test_an_empty_cell_has_no_value() -> None:
    pandas = pytest.importorskip("pandas")
    rows = [{"name": "a", "intensity": 1.0, "gflops": 50.0, "gbs": None}, {"name": "b", "gbs": 30.0}]
    roofs = {"ceilings": [{"gflops": 100}], "bandwidths": [{"gbs": 80}]}
    made = roofline_figure(pandas.DataFrame(rows), roofs).chart
    assert [one.name for one in made.kernels] == ["a"]
    assert [(one.name, one.kind) for one in made.excluded] == [("b", "copy")]


ROOFS = {"ceilings": [{"gflops": 1000}], "bandwidths": [{"gbs": 100, "level": "hbm"}, {"gbs": 500, "level": "l2"}]}


def test_values_of_any_library_type_are_read() -> None:
    numpy, pandas = pytest.importorskip("numpy"), pytest.importorskip("pandas")
    row = {"name": numpy.str_("a"), "intensity": numpy.float32(2), "gflops": numpy.int64(50), "share": Decimal("12.5")}
    frame = pandas.DataFrame([{"name": "a", "intensity": 2, "gflops": Decimal(50), "share": 12.5}]).astype({"name": "category"})
    for rows in ([row], frame, [{**row, "dtype": pandas.NA, "when": pandas.NaT}]):
        (one,) = roofline_figure(rows, ROOFS).chart.kernels
        assert (one.name, one.fraction, one.share, one.dtype) == ("a", 0.25, 12.5, None)  # 50 of 2 x 100 GFLOP/s


def test_a_level_without_a_count_is_skipped() -> None:
    polars = pytest.importorskip("polars")
    rows = [
        {"name": "both", "intensities": {"hbm": 2.0, "l2": 0.1}, "gflops": 25.0},
        {"name": "one", "intensities": {"hbm": 2.0, "l2": None}, "gflops": 25.0},
    ]
    for given in (rows, polars.DataFrame(rows)):
        both, one = roofline_figure(given, ROOFS).chart.kernels
        assert (both.fraction, len(both.spots)) == (0.5, 2)  # of 0.1 x 500
        assert (one.fraction, len(one.spots)) == (0.125, 1)  # of 2 x 100


def test_names_are_found_in_the_index_of_a_frame() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame([{"name": "a", "part": "x", "intensity": 1.0, "gflops": 5.0}] * 2)
    frame.loc[1, "name"] = None

    def names(frame: Any) -> list[str]:
        return [one.name for one in roofline_figure(frame, ROOFS).chart.kernels]

    assert names(frame.set_index("name")) == ["a", "row 2"]
    assert names(frame.set_index(["part", "name"])) == ["a", "row 2"]
    assert names(frame.drop(columns="name").set_index("part")) == ["x", "x"]
    assert names(frame.drop(columns="name").iloc[::-1]) == ["row 1", "row 2"]  # numbers are no names


def test_an_invalid_table_gives_one_line() -> None:
    pandas = pytest.importorskip("pandas")
    twice = pandas.DataFrame([["a", 1.0, 5.0]], columns=["name", "gflops", "gflops"])
    for rows, roofs, told in (
        (twice, ROOFS, "rows: .*gflops.* 2 times"),
        ([], [1], "ceilings is list, expected a dict with ceilings and bandwidths"),
    ):
        with pytest.raises(ValueError, match=told) as caught:
            roofline_figure(rows, roofs)
        assert "\n" not in str(caught.value)


def test_reports_and_tables_keep_their_own_roofs(tmp_path: Path) -> None:
    figure = roofline_figure(SEVEN)
    figure.save(str(tmp_path / "o.svg"))
    assert (tmp_path / "o.svg").read_text(encoding="utf-8") == figure.to_svg()
    with pytest.raises(ValueError, match="has its own"):
        roofline_figure(SEVEN, SEVEN)
    with pytest.raises(ValueError, match="rows is int, expected a list of dicts"):
        roofline_figure(7, SEVEN)
