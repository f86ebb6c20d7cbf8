"""The page in a browser: tools, pointing, filters, exports, at two widths and in both color schemes; no network."""

from __future__ import annotations

import json
import math
import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_roofline.history import Line, Point, write_page
from pytest_roofline.plot import output
from pytest_roofline.saved import Run
from support.figures import GPU, NASTY, SEVEN, V100, many
from support.profiles import worked_example

pytest.importorskip("vl_convert")
sync_api = pytest.importorskip("playwright.sync_api")

CHROMIUM = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: apt-get install chromium"),
]

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
TABLES: dict[str, dict[str, Any]] = {
    "seven": SEVEN,
    "v100": V100,
    "many": {**many(60), "kernels": [*many(60)["kernels"], {"name": "copy", "gbs": 9}]},
    "decades": {
        **GPU,
        "kernels": [
            {"name": "least", "intensity": 1e-6, "gflops": 1e-3, "dtype": "bf16"},
            {"name": "most", "intensity": 1e5, "gflops": 1e5, "dtype": "bf16"},
        ],
    },
    "roofs": {**GPU, "kernels": []},
    "nothing": {"kernels": []},
    "one": {**GPU, "kernels": [{"name": "one", "intensity": 3, "gflops": 500, "dtype": "fp32"}]},
    "hidden": {
        **GPU,
        "kernels": [
            {"name": "large below", "intensity": 3.0, "gflops": 2000, "dtype": "fp32", "share": 60},
            {"name": "small on top", "intensity": 3.02, "gflops": 2010, "dtype": "fp32", "share": 2},
        ],
    },
    "nasty": {**GPU, "kernels": [{"name": NASTY, "intensity": 3, "gflops": 2000, "dtype": "fp32", "note": NASTY}]},
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    for name, table in {**TABLES, "serving": json.loads(worked_example())}.items():
        output.write(output.read_document(table, name), str(folder / f"{name}.html"))
    return {path.stem: path for path in folder.glob("*.html")}


class Opened:
    """An open page. faults: its errors, dialogs and requests, which must be empty."""

    def __init__(self, browser: Any, path: Path, width: int = 1280, scheme: str = "light") -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.faults: list[str] = []
        self.context.on("request", lambda request: self._request(request.url, path))
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.faults.append(message.text))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.answer: str | None = None
        self.page.on("dialog", self._dialog)
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready]")

    def _request(self, url: str, path: Path) -> None:
        if not url.startswith(("blob:", "data:", path.parent.as_uri())):
            self.faults.append(url)

    def _dialog(self, dialog: Any) -> None:
        if self.answer is None:
            self.faults.append(f"dialog: {dialog.message}")
            dialog.dismiss()
        else:
            dialog.accept(self.answer)

    def tool(self, name: str) -> None:
        self.page.locator(f"#tools button[data-tool={name}]").click()

    def frame(self) -> dict[str, float]:
        """Return the frame of the plot in pixels of the window."""
        found = self.page.evaluate(
            """() => { const b = document.querySelector('#drawing svg .plot > g > .background').getBoundingClientRect();
            return {x: b.x, y: b.y, w: b.width, h: b.height}; }"""
        )
        assert isinstance(found, dict)
        return found

    def place(self, across: float, down: float) -> tuple[float, float]:
        """Return the pixel at fractions of the frame's width and height."""
        box = self.frame()
        return box["x"] + across * box["w"], box["y"] + down * box["h"]

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Drag between two places of the frame, given as fractions of its width and height."""
        self.page.mouse.move(*self.place(*start))
        self.page.mouse.down()
        self.page.mouse.move(*self.place(*end), steps=4)
        self.page.mouse.up()

    def points(self) -> dict[str, tuple[float, float]]:
        """Return the middle of each visible point by its name and percent."""
        found = self.page.evaluate(
            """() => Array.from(document.querySelectorAll('#drawing svg .points path')).map(p => {
            const b = p.getBoundingClientRect();
            return [p.getAttribute('aria-label'), b.x + b.width / 2, b.y + b.height / 2]; })"""
        )
        return {name: (x, y) for name, x, y in found}

    def spot(self, name: str) -> tuple[float, float]:
        """Return the middle of a kernel's point."""
        return next(place for label, place in self.points().items() if label.startswith(f"{name}: "))

    def ticks(self) -> list[str]:
        return list(self.page.locator("#drawing .role-axis-label text").all_text_contents())

    def texts(self) -> list[str]:
        """Return the texts in the plot."""
        return list(self.page.locator("#drawing svg .role-mark text").all_text_contents())

    def row(self) -> dict[str, str]:
        terms = self.page.locator("#row dt").all_inner_texts()
        return dict(zip(terms, self.page.locator("#row dd").all_inner_texts()))

    def pick(self, name: str) -> None:
        self.page.locator("#kernels-body button", has_text=name).first.click()

    def close(self) -> None:
        self.context.close()
        assert self.faults == []


@pytest.fixture
def opened(browser: Any, pages: dict[str, Path]) -> Iterator[Any]:
    made: list[Opened] = []

    def open_(name: str, **look: Any) -> Opened:
        made.append(Opened(browser, pages[name], **look))
        return made[-1]

    yield open_
    for one in made:
        one.close()


LOOKS = [{"width": width, "scheme": scheme} for width in (400, 1280) for scheme in ("light", "dark")]


@pytest.mark.parametrize("look", [*LOOKS, {"width": 1920, "scheme": "light"}], ids=str)
def test_opens_without_an_error_fits_and_is_legible(opened: Any, look: dict[str, Any]) -> None:
    page = opened("many", **look)
    assert len(page.points()) == 60
    assert page.page.evaluate("document.documentElement.scrollWidth") <= look["width"]
    sizes = page.page.evaluate(
        """() => Array.from(document.querySelectorAll('#drawing svg text')).filter(text => text.textContent.trim())
        .map(text => [parseFloat(getComputedStyle(text).fontSize), text.getScreenCTM()])
        .map(([size, m]) => size * Math.hypot(m.a, m.b))"""
    )
    assert min(sizes) >= 10.99
    assert page.frame()["w"] > 0.75 * page.page.locator("#figure").bounding_box()["width"]
    ink = page.page.evaluate("getComputedStyle(document.querySelector('#drawing .role-axis-label text')).fill")
    assert (ink == "rgb(31, 41, 55)") == (look["scheme"] == "light")


@pytest.mark.parametrize("look", LOOKS, ids=str)
def test_nothing_moves_before_a_tool_is_chosen(opened: Any, look: dict[str, Any]) -> None:
    page = opened("seven", **look)
    before = page.points()
    page.drag((0.3, 0.3), (0.7, 0.7))
    page.page.mouse.wheel(0, -300)
    page.page.mouse.dblclick(*page.place(0.5, 0.95))
    page.page.locator("#drawing").focus()
    for key in ("ArrowLeft", "+", "-"):
        page.page.keyboard.press(key)
    assert page.points() == before


@pytest.mark.parametrize("look", LOOKS, ids=str)
def test_a_pan_moves_every_point_with_the_cursor(opened: Any, look: dict[str, Any]) -> None:
    page = opened("seven", **look)
    before, box = page.points(), page.frame()
    page.tool("pan")
    page.drag((0.5, 0.5), (0.62, 0.58))
    after = page.points()
    for name, (x, y) in before.items():
        assert after[name][0] - x == pytest.approx(0.12 * box["w"], abs=1.5), name
        assert after[name][1] - y == pytest.approx(0.08 * box["h"], abs=1.5), name
    page.page.locator("#reset").click()
    assert page.points() == before


@pytest.mark.parametrize("look", LOOKS, ids=str)
def test_the_wheel_zooms_at_the_cursor_and_keeps_shapes(opened: Any, look: dict[str, Any]) -> None:
    page = opened("seven", **look)
    page.tool("zoom")
    x, y = page.spot("FFT, 1M point")
    far = math.dist((x, y), page.spot("stencil, 7-point"))
    page.page.mouse.move(x, y)
    page.page.mouse.wheel(0, -120)
    page.page.wait_for_timeout(50)
    assert page.spot("FFT, 1M point") == pytest.approx((x, y), abs=1)
    assert math.dist((x, y), page.spot("stencil, 7-point")) > 1.1 * far
    sizes = page.page.evaluate(
        """() => Array.from(document.querySelectorAll('#drawing svg .points path')).map(p => p.getBBox())
        .map(b => [b.width, b.height])"""
    )
    assert all(wide == pytest.approx(high, rel=0.35) for wide, high in sizes)  # a triangle is not quite square
    page.page.mouse.dblclick(*page.place(0.5, 0.9))
    assert page.spot("FFT, 1M point") == pytest.approx((x, y), abs=1)


def test_a_box_becomes_the_view(opened: Any) -> None:
    page = opened("seven")
    page.tool("zoom")
    (x, y), box = page.spot("FFT, 1M point"), page.frame()
    across, down = (x - box["x"]) / box["w"], (y - box["y"]) / box["h"]
    page.drag((across - 0.1, down - 0.2), (across + 0.2, down + 0.1))
    x, y = page.spot("FFT, 1M point")
    assert (x - box["x"]) / box["w"] == pytest.approx(1 / 3, abs=0.01)  # 0.1 of the 0.3 that were drawn
    assert (y - box["y"]) / box["h"] == pytest.approx(2 / 3, abs=0.01)
    assert len(page.ticks()) >= 4


@pytest.mark.parametrize("look", LOOKS, ids=str)
def test_pointing_shows_a_kernel_and_a_click_picks_it(opened: Any, look: dict[str, Any]) -> None:
    page = opened("many", **look)
    x, y = page.spot("kernel_31")
    page.page.mouse.move(x + 2, y)
    shown = page.page.locator("#tip").inner_text()
    kernel = TABLES["many"]["kernels"][31]
    roof = min(kernel["intensity"] * 2039, 312000)
    for part in ("kernel_31", f"{100 * kernel['gflops'] / roof:.1f}% of roof", "FLOP/B", "FLOP/s", "verdict"):
        assert part in shown
    box, frame = page.page.locator("#tip").bounding_box(), page.page.locator("#figure").bounding_box()
    assert frame["x"] <= box["x"]
    assert box["x"] + box["width"] <= frame["x"] + frame["width"] + 1
    page.page.mouse.click(x, y)
    row = page.row()
    assert row["kernel"] == "kernel_31"
    assert row["dtype"] == "bf16"
    assert row["share of time"] == f"{kernel['share']:.4g}%"
    assert row["percent of roof"] == f"{100 * kernel['gflops'] / roof:.1f}%"
    assert {"limiter", "roof that binds", "intensity", "attained"} <= set(row)
    assert page.page.locator("#kernels-body tr.picked").inner_text().startswith("kernel_31")
    page.page.mouse.move(*page.place(0.98, 0.98))
    assert not page.page.locator("#tip").is_visible()


def test_a_kernel_under_others_is_named_and_reached(opened: Any) -> None:
    page = opened("hidden", width=400)
    x, y = page.spot("small on top")
    page.page.mouse.move(x, y)
    shown = page.page.locator("#tip").inner_text()
    assert "small on top" in shown
    assert "large below" in shown
    names = set()
    for _ in range(2):
        page.page.mouse.click(x, y)
        names.add(page.row()["kernel"])
    assert names == {"small on top", "large below"}
    sizes = [
        path["size"]
        for path in page.page.evaluate(
            "() => Array.from(document.querySelectorAll('#drawing svg .points path')).map(p => ({size: p.getBBox().width}))"
        )
    ]
    assert sizes == sorted(sizes, reverse=True)  # what is drawn last is on top


@pytest.mark.parametrize("name", ["least", "most"])
def test_pointing_and_zoom_work_over_eleven_decades(opened: Any, name: str) -> None:
    page = opened("decades")
    page.page.mouse.move(*page.spot(name))
    assert name in page.page.locator("#tip").inner_text()
    before = page.ticks()
    page.tool("zoom")
    page.drag((0.05, 0.6), (0.3, 0.95))
    assert page.ticks() != before


def test_the_row_of_an_artifact_has_words_and_units(opened: Any) -> None:
    page = opened("serving")
    page.pick("kernel_paged_attention_2d")
    row = page.row()
    assert row["percent of roof"] == "17.8%"
    assert row["range"] == "11.9 to 23.8% of roof"
    assert row["limiter"] == "latency bound: neither roof is near"
    assert row["basis"] == "model, medium"
    assert row["route"] == "occupancy_track"
    assert "context 1536 = isl + osl/2" in row["notes"]
    assert row["of memory peak"] == "0.178"
    assert row["achieved bandwidth"] == "1.427 TB/s"
    assert row["time of a launch"] == "141.1 us"
    assert row["expected gain"].startswith("5.70 % of GPU time saved")
    assert row["bytes"].endswith(" MB")
    assert not [term for term in row if "_" in term]


@pytest.mark.parametrize(("name", "count"), [("nothing", "0 kernels"), ("roofs", "0 kernels"), ("one", "1 kernel")])
def test_a_page_with_few_or_no_kernels_works(opened: Any, name: str, count: str) -> None:
    page = opened(name)
    assert page.page.locator("#count").inner_text() == count
    before = page.ticks()
    page.tool("zoom")
    page.drag((0.3, 0.3), (0.6, 0.6))
    assert page.ticks() != before


def test_a_note_keeps_its_place_and_is_saved(opened: Any, browser: Any, tmp_path: Path) -> None:
    page = opened("seven")
    page.answer = "look </script> here"
    page.tool("note")
    page.page.mouse.click(*page.place(0.3, 0.3))
    assert "look </script> here" in page.texts()
    page.tool("zoom")
    page.drag((0.2, 0.1), (0.9, 0.9))
    with page.page.expect_download() as download:
        page.page.locator("#save").click()
    saved = tmp_path / "saved.html"
    download.value.save_as(saved)
    again = Opened(browser, saved)
    assert "look </script> here" in again.texts()
    assert again.ticks() == page.ticks()
    assert again.points() == page.points()
    again.pick("N-body")
    assert again.row()["percent of roof"] == "90.2%"
    again.close()


def test_filters_hide_points_labels_and_rows(opened: Any) -> None:
    page = opened("many")
    page.page.select_option("#dtype", "fp32")
    assert len(page.points()) == 30
    assert page.page.locator("#count").inner_text() == "30 of 60 kernels"
    named = [int(line[len("kernel_") :]) for line in page.texts() if line.startswith("kernel_")]
    assert named
    assert not [number for number in named if number % 2]  # those are of the other dtype
    page.page.fill("#share", "2.0")
    wanted = [one for one in TABLES["many"]["kernels"][:60:2] if one["share"] >= 2.0]
    assert 0 < len(wanted) < 30
    assert len(page.points()) == len(wanted)
    page.page.mouse.click(*page.spot(wanted[0]["name"]))  # what is hidden is not picked
    assert page.row()["kernel"] in [one["name"] for one in wanted]
    page.page.fill("#share", "0")
    page.page.select_option("#dtype", "")
    assert len(page.points()) == 60
    page.page.fill("#search", "kernel_59")
    assert page.page.locator("#kernels-body tr").count() == 1


def test_a_level_shows_only_its_own_points(opened: Any) -> None:
    page = opened("v100")  # 2085.8 of 2.58 x 828.758 GFLOP/s: memory binds first, so the label's percent is of that level
    assert len(page.page.locator("#drawing svg .points path").all()) == 3
    assert {"97.5% of roof", "L1", "L2", "HBM binds"} <= set(page.texts())
    assert not page.page.locator("#dtype").is_visible()
    for level, text, labelled in (("L1", "L1", False), ("HBM", "HBM binds", True)):
        page.page.select_option("#level", level)
        assert len(page.page.locator("#drawing svg .points path").all()) == 1
        assert {one for one in page.texts() if one in ("L1", "L2", "HBM binds")} == {text}
        assert ("97.5% of roof" in page.texts()) == labelled


def test_the_list_sorts_by_each_column(opened: Any) -> None:
    page = opened("seven")

    def names() -> list[str]:
        return list(page.page.locator("#kernels-body button").all_inner_texts())

    by_name = sorted((one["name"] for one in SEVEN["kernels"]), key=str.lower)
    page.page.locator("th button[data-sort=name]").click()
    assert names() == by_name
    page.page.locator("th button[data-sort=name]").click()
    assert names() == by_name[::-1]
    page.page.locator("th button[data-sort=of_roof]").click()
    assert names()[0] == "stream triad"
    assert names()[-1] == "dense GEMM (naive)"
    assert page.page.locator("th[aria-sort=descending]").count() == 1


def test_the_view_is_exported_as_it_is_seen(opened: Any, tmp_path: Path) -> None:
    page = opened("many", scheme="dark")
    page.page.select_option("#dtype", "fp32")
    page.tool("zoom")
    page.drag((0.1, 0.1), (0.95, 0.95))
    for name in ("svg", "png"):
        with page.page.expect_download() as download:
            page.page.locator(f"#figure-{name}").click()
        download.value.save_as(tmp_path / f"o.{name}")
    svg = (tmp_path / "o.svg").read_text(encoding="utf-8")
    words = [node.text or "" for node in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    named = [int(line[len("kernel_") :]) for line in words if line.startswith("kernel_")]
    assert named
    assert not [number for number in named if number % 2]  # what is filtered out
    assert svg.count("<title>kernel_") == 30
    assert 'fill="#FFFFFF"' in svg  # light, whatever the page was seen in
    assert (tmp_path / "o.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes((tmp_path / "o.png").read_bytes()[16:20], "big") >= 2 * page.frame()["w"]


def test_a_kernel_out_of_view_has_a_row(opened: Any) -> None:
    page = opened("seven")
    page.tool("zoom")
    page.drag((0.6, 0.05), (0.95, 0.3))
    page.pick("stream triad")
    assert page.row()["percent of roof"] == "91.5%"
    assert page.row()["up to"] == "1.09x"  # 1 / 0.915


def test_print_shows_full_lists_and_no_tools(opened: Any) -> None:
    page = opened("many")
    page.page.emulate_media(media="print")
    assert not page.page.locator("#controls").is_visible()
    cut = page.page.locator("#kernels").evaluate("node => node.scrollHeight - node.clientHeight")
    assert cut <= 1
    assert page.page.locator("#kernels-body tr").count() == 60


@pytest.mark.parametrize("look", LOOKS, ids=str)
def test_every_control_works_by_keyboard(opened: Any, look: dict[str, Any]) -> None:
    made = opened("seven", **look)
    page = made.page
    page.locator("#tools button[data-tool=zoom]").focus()
    page.keyboard.press("Enter")
    page.locator("#drawing").focus()
    before = made.points()
    page.keyboard.press("+")
    assert made.points() != before
    page.keyboard.press("0")
    assert made.points() == before
    page.keyboard.press("ArrowRight")
    name = next(iter(before))
    assert made.points()[name][0] == pytest.approx(before[name][0] - made.frame()["w"] / 8, abs=1.5)
    page.keyboard.press("0")
    page.keyboard.press("Enter")
    assert made.row()["kernel"] == "dense GEMM (naive)"
    page.keyboard.press("Enter")
    assert made.row()["kernel"] == "FFT, 1M point"
    page.keyboard.press("Escape")
    assert page.locator("#tools button[aria-pressed=true]").count() == 0
    page.locator("#kernels-body button", has_text="N-body").focus()
    page.keyboard.press("Enter")
    assert made.row()["kernel"] == "N-body"


def test_a_window_that_changes_its_width_keeps_the_view(opened: Any) -> None:
    page = opened("seven")
    page.tool("zoom")
    page.drag((0.2, 0.1), (0.9, 0.9))
    zoomed = page.ticks()
    for width in (420, 1300):
        page.page.set_viewport_size({"width": width, "height": 900})
        page.page.wait_for_timeout(400)
        assert page.page.evaluate("document.documentElement.scrollWidth") <= width
        assert set(page.ticks()) & set(zoomed)
        assert len(page.points()) == 7


def test_exports_equal_the_files_and_render_in_vega(opened: Any) -> None:
    page = opened("seven")
    made = output.read_document(SEVEN, "seven")
    with page.context.expect_page() as info:
        page.page.locator("#vega-lite-json").click()
    assert json.loads(info.value.locator("body").inner_text()) == json.loads(output.vega_lite_text(made))
    with page.context.expect_page() as info:
        page.page.locator("#vega-json").click()
    shown = {one["name"]: one["values"] for one in json.loads(info.value.locator("body").inner_text())["data"]}
    assert {row["tip"] for row in shown["kernels"]} == {row["tip"] for row in _kernels(output.vega(made))}
    for name in ("vega-lite", "vega"):
        with page.context.expect_page() as info:
            page.page.locator(f"#{name}-live").click()
        live = info.value
        live.wait_for_selector("svg.marks")
        assert "74.7% of roof, up to 1.3x" in live.locator("svg.marks").text_content()
        live.close()


def _kernels(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return next(one["values"] for one in spec["data"] if one["name"] == "kernels")


def test_a_hostile_name_is_shown_as_text(opened: Any) -> None:
    page = opened("nasty")
    assert page.page.locator("img").count() == 0
    page.page.locator("#kernels-body button").click()
    page.page.mouse.move(*next(iter(page.points().values())))
    assert page.page.locator("#tip").inner_text().startswith("</script><img")
    row = page.row()
    assert row["kernel"].startswith("</script><img src=x onerror=alert(1)>")
    assert len(row["kernel"]) <= 120
    assert row["note"].startswith("</script><img")
    assert len(row["note"]) <= 400


def test_what_is_not_drawn_is_listed(opened: Any) -> None:
    assert "copy" in opened("many").page.locator("#listed").inner_text()


def test_the_legend_explains_every_mark(opened: Any) -> None:
    shown = opened("serving").page.locator("#legend").inner_text()
    for text in ("headroom to the roof", "range of the figure", "area: share of the time", "latency bound", "saturated"):
        assert text in shown


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_the_history_picks_sorts_and_searches(browser: Any, tmp_path: Path, width: int, scheme: str) -> None:
    runs = [Run(Path("x"), number, "main", created="2026", noise=0.034, cpu="CPU", machine="m") for number in (1, 2, 3)]

    def line(name: str, *times: float) -> Line:
        return Line(name, "cpu", "m", [Point(at, t_s, t_s, t_s, t_s, 10, 0.5) for at, t_s in enumerate(times)])

    lines = [line("test_a.py::test_steady", 1e-3, 1e-3), line(f"test_a.py::{NASTY}", 1e-3, 2e-3, 1e-3)]
    write_page(str(tmp_path / "history.html"), runs, lines)
    page = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on(
        "request", lambda request: None if request.url.startswith(("file:", "data:", "blob:")) else errors.append(request.url)
    )
    page.goto((tmp_path / "history.html").as_uri())
    page.wait_for_selector("#drawing svg")
    names = page.locator("#body button")
    assert names.all_inner_texts()[1] == "test_a.py::test_steady"  # the line with changes comes first, and is picked
    assert "2x slower" in page.inner_text("#steps").replace("2.00x", "2x")
    assert page.locator("#drawing svg [aria-roledescription=point]").count() == 6  # 3 times, 3 percents
    names.nth(1).click()
    page.wait_for_function("document.querySelectorAll('#drawing svg [aria-roledescription=point]').length === 4")
    assert page.inner_text("#steps") == "No change beyond the noise."
    page.click("[data-sort=runs]")
    page.click("[data-sort=runs]")
    assert names.all_inner_texts()[0] == "test_a.py::test_steady"  # 2 runs, then 3
    assert page.get_attribute("th:has([data-sort=runs])", "aria-sort") == "ascending"
    page.fill("#search", "STEADY")
    assert names.count() == 1
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert errors == []
