"""Makes the pictures of docs/figure.md: ``python docs/make_figures.py``. The screenshots need a Chromium and playwright."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pytest_roofline.plot import roofline_figure
from roofline_engine import cli

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "docs" / "figures"


def drawings() -> Iterator[tuple[str, str]]:
    """Name and SVG of each drawing; the same bytes each time."""
    for name in ("cpu", "v100"):
        yield f"{name}.svg", roofline_figure(_table(name)).to_svg()
    yield "serving.svg", roofline_figure(_artifact()).to_svg()


def _table(name: str) -> dict[str, object]:
    found = json.loads((ROOT / "examples" / "figure" / f"{name}.json").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def _artifact() -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        cli.main(["analyze", str(ROOT / "examples" / "worked_example"), "--out", folder])
        found = json.loads((Path(folder) / "profile_roofline.json").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


#: Name, table, width, height, colour scheme.
SHOTS = (
    ("page-light.png", "cpu", 1280, 760, "light"),
    ("page-dark.png", "cpu", 1280, 760, "dark"),
    ("page-390.png", "cpu", 390, 1000, "light"),
    ("page-1920.png", "v100", 1920, 1000, "light"),
)


def screenshots(chromium: str) -> None:
    """The page at each size, a kernel picked; and Vega's own rendering of the export."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--headless", "--no-sandbox", "--disable-gpu"])
        for name, table, width, height, scheme in SHOTS:
            path = Path(folder) / f"{table}.html"
            roofline_figure(_table(table)).save(str(path))
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
            page = context.new_page()
            page.goto(path.as_uri())
            page.wait_for_selector("html[data-ready]")
            if width > 400:
                page.locator("#drawing").focus()
                page.keyboard.press("Enter")
                page.wait_for_selector("#row dt")
                page.locator("#drawing").blur()
            page.screenshot(path=str(HERE / name))
            if name == "page-light.png":
                with context.expect_page() as live:
                    page.locator("#vega-lite-live").click()
                live.value.wait_for_selector("svg.marks")
                live.value.locator("svg.marks").screenshot(path=str(HERE / "vega.png"))
            context.close()
        browser.close()


def main() -> int:
    HERE.mkdir(exist_ok=True)
    for name, svg in drawings():
        (HERE / name).write_text(svg, encoding="utf-8")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        print("no chromium: the screenshots are as they were", file=sys.stderr)
        return 0
    screenshots(chromium)
    return 0


if __name__ == "__main__":
    sys.exit(main())
