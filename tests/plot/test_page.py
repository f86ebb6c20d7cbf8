"""The page in a browser: each tool works, a click without a tool changes nothing, and the page uses no network."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_roofline.plot import output
from support.figures import GPU, NASTY, SEVEN, V100, many
from support.profiles import worked_example

pytest.importorskip("plotpress")
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
        self.context.add_init_script("delete window.showSaveFilePicker")  # a picker waits for a person
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

    def tool(self, mode: str) -> None:
        menu = {"span": "Axes", "zoom": "Axes", "pick": "Point Picking"}.get(mode, "Annotate")
        if mode != "magnify":
            self.page.locator(".plotpress-menu-label", has_text=menu).click()
        self.page.locator(f"button[data-mode={mode}]").click()
        if mode != "magnify":
            self.page.locator(".plotpress-menu-label", has_text=menu).click()

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Drag between two places of the frame, given as fractions of its width and height."""
        box = self.frame()
        self.page.mouse.move(box["x"] + start[0] * box["w"], box["y"] + start[1] * box["h"])
        self.page.mouse.down()
        self.page.mouse.move(box["x"] + end[0] * box["w"], box["y"] + end[1] * box["h"], steps=4)
        self.page.mouse.up()

    def frame(self) -> dict[str, float]:
        found = self.page.evaluate(
            """() => { const svg = document.getElementById('plotpress-svg'), m = svg.getScreenCTM();
            const b = svg.querySelector('clipPath rect').getBBox();
            return {x: m.e + m.a * b.x, y: m.f + m.d * b.y, w: m.a * b.width, h: m.d * b.height}; }"""
        )
        assert isinstance(found, dict)
        return found

    def ticks(self) -> list[str]:
        return list(self.page.locator("#ticks0 text").all_text_contents())

    def pins(self) -> int:
        return int(self.page.locator(".plotpress-pin").count())

    def spot(self, name: str) -> tuple[float, float]:
        """Return the position of a kernel's point: the ring that its list entry draws."""
        self.page.locator("#kernels-body button", has_text=name).first.click()
        box = self.page.locator("#ring").bounding_box()
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def row(self) -> dict[str, str]:
        terms = self.page.locator("#row dt").all_inner_texts()
        return dict(zip(terms, self.page.locator("#row dd").all_inner_texts()))

    def dots(self) -> int:
        """Return the number of visible points."""
        found = self.page.evaluate(
            """() => { const d = JSON.parse(document.getElementById('roofline-page').textContent)
              .drawings[document.getElementById('figure').dataset.drawing]; let n = 0;
            for (const k of Object.keys(d.spots)) { const paths = document.querySelectorAll('#s0_' + k + ' path');
              n += (paths[paths.length - 1].getAttribute('d').match(/M/g) || []).length; } return n; }"""
        )
        return int(found)

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


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1920])
def test_opens_without_an_error_and_fits(opened: Any, width: int, scheme: str) -> None:
    page = opened("many", width=width, scheme=scheme)
    assert page.dots() == 60
    assert page.page.evaluate("document.documentElement.scrollWidth") <= width
    size = page.page.evaluate("parseFloat(getComputedStyle(document.querySelector('.plotpress-cscale text')).fontSize)")
    assert size * page.page.evaluate("document.getElementById('plotpress-svg').getScreenCTM().a") >= 6.5  # legible
    paper = page.page.evaluate("getComputedStyle(document.querySelector('#plotpress-svg > rect')).fill")
    ink = page.page.evaluate("getComputedStyle(document.querySelector('#ticks0 text')).fill")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    assert (ink == "rgb(31, 41, 55)") == (scheme == "light")


def test_nothing_happens_before_a_tool_is_chosen(opened: Any) -> None:
    page = opened("seven")
    before = page.page.locator("#plotpress-svg").evaluate("node => node.outerHTML")
    page.drag((0.3, 0.3), (0.7, 0.7))
    page.page.mouse.wheel(0, 200)
    page.page.mouse.wheel(0, -200)
    page.page.mouse.dblclick(400, 400)
    page.page.locator("#plotpress-svg").focus()
    for key in ("ArrowLeft", "+", "Enter"):
        page.page.keyboard.press(key)
    assert page.page.locator("#plotpress-svg").evaluate("node => node.outerHTML") == before
    assert "Nothing is picked" in page.page.locator("#row").inner_text()


def test_zoom_changes_the_domain_and_a_double_click_brings_it_back(opened: Any) -> None:
    page = opened("seven")
    before = page.ticks()
    page.tool("zoom")
    page.drag((0.4, 0.2), (0.6, 0.5))
    zoomed = page.ticks()
    assert zoomed != before
    assert page.page.locator("#zoom0").get_attribute("transform").startswith("matrix(")
    box = page.frame()
    page.page.mouse.dblclick(box["x"] + box["w"] / 2, box["y"] + box["h"] / 2)
    assert page.ticks() == before


def test_pan_moves_the_domain(opened: Any) -> None:
    page = opened("seven")
    page.tool("span")
    page.drag((0.5, 0.5), (0.7, 0.5))
    a, _, _, d, e, f = json.loads("[" + page.page.locator("#zoom0").get_attribute("transform")[7:-1] + "]")
    scale = page.page.evaluate("document.getElementById('plotpress-svg').getScreenCTM().a")
    assert (round(a, 6), round(d, 6)) == (1, 1)
    assert e == pytest.approx(0.2 * page.frame()["w"] / scale, abs=1)
    assert f == pytest.approx(0, abs=1)


def test_picking_shows_the_row(opened: Any) -> None:
    page = opened("many")
    x, y = page.spot("kernel_31")
    page.page.evaluate("document.getElementById('ring').remove()")
    page.spot("kernel_4")  # another row is shown
    page.tool("pick")
    page.page.mouse.click(x, y)
    page.page.wait_for_function("document.querySelector('.plotpress-pin text').textContent.startsWith('kernel_31: ')")
    row = page.row()
    assert row["kernel"] == "kernel_31"
    kernel = TABLES["many"]["kernels"][31]
    assert row["dtype"] == "bf16"
    assert row["share of time"] == f"{kernel['share']:.4g}%"
    assert row["verdict"] == "verdict unknown"
    roof = min(kernel["intensity"] * 2039, 312000)
    assert row["percent of roof"] == f"{100 * kernel['gflops'] / roof:.1f}%"
    assert {"limiter", "roof that binds", "intensity", "attained"} <= set(row)


@pytest.mark.parametrize("name", ["least", "most"])
def test_picking_and_zoom_work_over_eleven_decades(opened: Any, name: str) -> None:
    page = opened("decades")
    x, y = page.spot(name)
    page.tool("pick")
    page.page.mouse.click(x, y)
    page.page.wait_for_selector(".plotpress-pin")
    pin = page.page.locator(".plotpress-pin circle").bounding_box()
    assert pin["x"] + pin["width"] / 2 == pytest.approx(x, abs=2)
    assert pin["y"] + pin["height"] / 2 == pytest.approx(y, abs=2)
    before = page.ticks()
    page.tool("zoom")
    page.drag((0.05, 0.6), (0.3, 0.95))
    assert page.ticks() != before


def test_the_row_of_an_artifact_says_basis_range_limiter_route_and_notes(opened: Any) -> None:
    page = opened("serving")
    page.spot("kernel_paged_attention_2d")
    row = page.row()
    assert row["percent of roof"] == "17.8%"
    assert row["range"] == "11.9 to 23.8% of roof"
    assert row["limiter"] == "latency bound: neither roof is near"
    assert row["basis"] == "model, medium"
    assert row["route"] == "occupancy_track"
    assert "context 1536 = isl + osl/2" in row["notes"]
    assert row["hbm util"] == "0.178"
    assert row["expected e2e gain pct"].startswith("5.70 % of GPU time saved")
    assert row["bytes est"].endswith(" MB")


@pytest.mark.parametrize(("name", "count"), [("nothing", "0 kernels"), ("roofs", "0 kernels"), ("one", "1 kernel")])
def test_a_page_with_few_or_no_kernels_works(opened: Any, name: str, count: str) -> None:
    page = opened(name)
    assert page.page.locator("#count").inner_text() == count
    before = page.ticks()
    page.tool("zoom")
    page.drag((0.3, 0.3), (0.6, 0.6))
    assert page.ticks() != before


def test_an_annotation_stays_and_is_exported(opened: Any, browser: Any, tmp_path: Path) -> None:
    page = opened("seven")
    page.answer = "look </script> here"
    page.tool("note-free")
    box = page.frame()
    page.page.mouse.click(box["x"] + 0.3 * box["w"], box["y"] + 0.3 * box["h"])
    note = page.page.locator(".plotpress-note text")
    assert note.text_content() == "look </script> here"
    page.tool("zoom")
    page.drag((0.2, 0.1), (0.9, 0.9))
    assert note.text_content() == "look </script> here"
    page.page.locator(".plotpress-menu-label", has_text="File").click()
    with page.page.expect_download() as download:
        page.page.locator("button", has_text="Save As").click()
    saved = tmp_path / "saved.html"
    download.value.save_as(saved)
    again = Opened(browser, saved)
    assert again.page.locator(".plotpress-note text").text_content() == "look </script> here"
    assert again.ticks() == page.ticks()
    assert again.dots() == 7
    again.spot("N-body")
    assert again.row()["percent of roof"] == "90.2%"
    again.close()


def test_filters_hide_points_labels_and_rows(opened: Any) -> None:
    page = opened("many")
    page.page.select_option("#dtype", "fp32")
    assert page.dots() == 30
    assert page.page.locator("#count").inner_text() == "30 of 60 kernels"
    lines = page.page.locator(".plotpress-cscale:not(.roofline-hidden) tspan").all_text_contents()
    named = [int(line[len("kernel_") :]) for line in lines if line.startswith("kernel_")]
    assert named
    assert not [number for number in named if number % 2]  # those are of the other dtype
    page.page.fill("#share", "2.0")
    wanted = [one for one in TABLES["many"]["kernels"][:60:2] if one["share"] >= 2.0]
    assert 0 < len(wanted) < 30
    assert page.dots() == len(wanted)
    x, y = page.spot(wanted[0]["name"])
    page.tool("pick")
    page.page.mouse.click(x + 3, y)  # what is hidden is not picked
    page.page.wait_for_selector(".plotpress-pin")
    assert page.row()["kernel"] in [one["name"] for one in wanted]
    page.page.fill("#share", "0")
    page.page.select_option("#dtype", "")
    assert page.dots() == 60


def test_a_level_of_memory_is_chosen(opened: Any) -> None:
    page = opened("v100")
    assert page.dots() == 3
    page.page.select_option("#level", "L2")
    assert page.dots() == 1
    assert not page.page.locator("#dtype").is_visible()


def test_a_level_shows_only_its_own_points(opened: Any) -> None:
    page = opened("v100")  # 2085.8 of 2.58 x 828.758 GFLOP/s: memory binds first, so the label's percent is of that level

    def words() -> list[str]:
        return list(page.page.locator(".plotpress-cscale:not(.roofline-hidden) tspan").all_text_contents())

    def ways() -> int:
        return int(page.page.locator("#plotpress-svg path.roofline-hidden").count())

    assert {"97.5% of roof", "L1", "L2", "HBM"} <= {*words(), *page.page.locator(".plotpress-cscale").all_text_contents()}
    for level, labelled in (("L1", False), ("HBM", True)):
        page.page.select_option("#level", level)
        shown = page.page.locator(".plotpress-cscale:not(.roofline-hidden)").all_text_contents()
        assert [one for one in shown if one in ("L1", "L2", "HBM")] == [level]
        assert any("97.5% of roof" in one for one in shown) == labelled
        assert ways() >= 1  # the line between the levels
    page.page.select_option("#level", "")
    assert ways() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_visible_figure_is_saved_as_svg_and_png(opened: Any, tmp_path: Path, scheme: str) -> None:
    page = opened("many", scheme=scheme)
    page.answer = "look <here>"
    page.tool("note-free")
    box = page.frame()
    page.page.mouse.click(box["x"] + 0.3 * box["w"], box["y"] + 0.3 * box["h"])
    page.page.select_option("#dtype", "fp32")
    page.tool("zoom")
    page.drag((0.1, 0.1), (0.8, 0.9))
    for kind in ("svg", "png"):
        with page.page.expect_download() as download:
            page.page.locator(f"#figure-{kind}").click()
        assert download.value.suggested_filename == f"roofline.{kind}"
        download.value.save_as(tmp_path / f"o.{kind}")
    svg = (tmp_path / "o.svg").read_text(encoding="utf-8")
    told = ["".join(node.itertext()) for node in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert "look <here>" in told
    assert set(page.ticks()) <= set(told)  # the view
    named = [int(line[len("kernel_") :]) for line in ElementTree.fromstring(svg).itertext() if line.startswith("kernel_")]
    assert named
    assert not [number for number in named if number % 2]  # what is filtered out
    assert 'fill="#FFFFFF"' in svg  # light, whatever the page was seen in
    assert (tmp_path / "o.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    width = int.from_bytes((tmp_path / "o.png").read_bytes()[16:20], "big")
    assert width == 2 * 960


def test_a_kernel_out_of_view_has_no_ring_but_a_row(opened: Any) -> None:
    page = opened("seven")
    page.spot("stream triad")
    assert page.page.locator("#ring").count() == 1
    page.tool("zoom")
    page.drag((0.6, 0.05), (0.95, 0.3))
    page.page.locator("#kernels-body button", has_text="stream triad").click()
    assert page.page.locator("#ring").count() == 0
    assert page.row()["percent of roof"] == "91.5%"
    assert page.row()["up to"] == "1.09x"  # 1 / 0.915


def test_print_shows_full_lists_and_no_tools(opened: Any) -> None:
    page = opened("many")
    page.page.emulate_media(media="print")
    assert not page.page.locator(".plotpress-menubar").is_visible()
    assert not page.page.locator("#controls").is_visible()
    cut = page.page.locator("#kernels").evaluate("node => node.scrollHeight - node.clientHeight")
    assert cut <= 1
    assert page.page.locator("#kernels-body tr").count() == 60


def test_every_control_works_by_keyboard(opened: Any) -> None:
    page = opened("seven").page
    page.locator(".plotpress-menu-label", has_text="Axes").focus()
    page.keyboard.press("Enter")
    page.locator("button[data-mode=zoom]").focus()
    page.keyboard.press("Enter")
    page.locator("#plotpress-svg").focus()
    before = page.locator("#ticks0").text_content()
    page.keyboard.press("+")
    assert page.locator("#ticks0").text_content() != before
    page.keyboard.press("-")
    assert page.locator("#ticks0").text_content() == before
    page.locator("button[data-mode=span]").evaluate("node => node.click()")
    page.locator("#plotpress-svg").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#zoom0").get_attribute("transform").startswith("matrix(1,0,0,1,-")
    page.keyboard.press("0")
    page.locator("button[data-mode=pick]").evaluate("node => node.click()")
    page.locator("#plotpress-svg").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#row dt")
    assert page.locator("#row dd").first.inner_text() == "dense GEMM (naive)"
    page.locator("#kernels-body button", has_text="FFT").focus()
    page.keyboard.press("Enter")
    assert page.locator("#row dd").first.inner_text() == "FFT, 1M point"
    page.keyboard.press("Escape")
    assert page.locator(".plotpress-pin").count() == 0


def test_exports_equal_the_files_and_render_in_vega(opened: Any) -> None:
    page = opened("seven")
    made = output.read_document(SEVEN, "seven")
    for name, expected in (("vega-lite", output.vega_lite_text(made)), ("vega", output.vega_text(made))):
        with page.context.expect_page() as info:
            page.page.locator(f"#{name}-json").click()
        assert json.loads(info.value.locator("body").inner_text()) == json.loads(expected)
        with page.context.expect_page() as info:
            page.page.locator(f"#{name}-live").click()
        live = info.value
        live.wait_for_selector("svg.marks")
        assert "74.7% of roof, up to 1.3x" in live.locator("svg.marks").text_content()
        assert live.locator("svg.marks [aria-roledescription=point]").count() >= 7
        live.close()


def test_a_hostile_name_is_shown_as_text(opened: Any) -> None:
    page = opened("nasty")
    assert page.page.locator("img").count() == 0
    page.page.locator("#kernels-body button").click()
    row = page.row()
    assert row["kernel"].startswith("</script><img src=x onerror=alert(1)>")
    assert len(row["kernel"]) <= 120
    assert row["note"].startswith("</script><img")
    assert len(row["note"]) <= 400


def test_what_is_not_drawn_is_listed(opened: Any) -> None:
    assert "copy" in opened("many").page.locator("#listed").inner_text()
