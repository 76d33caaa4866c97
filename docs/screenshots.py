"""Screenshots of the look page (light and dark) and of a translation with its alignment, for the README.

    regard demo
    python docs/screenshots.py demo/run

They are written beside this file: look-light.png, look-dark.png, alignment.png. Needs the extras `dev` (playwright)
and `plot`, and Chromium on the path.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

import regard

TEXT = "The bag weighs 49.6 kilograms."
WIDTH, HEIGHT = 1200, 900
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("model", help="a translator, such as demo/run")
    arguments.add_argument("--text", default=TEXT)
    arguments.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = arguments.parse_args()
    analysis = regard.load(options.model, device="cpu").look(options.text)
    with tempfile.TemporaryDirectory() as folder:
        page = analysis.save(Path(folder) / "look.html", words=True)
        for scheme in ("light", "dark"):
            capture(page, options.out / f"look-{scheme}.png", scheme)
    kind = {"kind": "cross", "layer": -1, "head": analysis.view_data("attention").focus.head}
    print(analysis.save(options.out / "alignment.png", "attention", words=True, **kind))


def capture(page: Path, out: Path, scheme: str, width: int = WIDTH, height: int = HEIGHT) -> None:
    """Write a screenshot of the top of a page in a colour scheme."""
    browser_path = next(filter(None, map(shutil.which, BROWSERS)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        tab.goto(page.absolute().as_uri())
        tab.wait_for_selector('#look[data-built="true"]')
        tab.wait_for_timeout(500)  # thumbnails are drawn when the browser is idle
        tab.screenshot(path=out)
        browser.close()
    print(out)


if __name__ == "__main__":
    main()
