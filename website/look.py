"""Look at every page in a browser: ``python website/look.py [PAGE_OR_FOLDER ...] [-o SHOTS]``.

Opens the built site (``website/html`` by default) or any other HTML, a run's report for instance, at the
width of a desktop and of a phone, light and dark. Names what a reader would stumble over (a page wider than
the window, a broken image, an error in the console, a request) and keeps a picture of each page, without the
end of very long ones. Needs ``pip install playwright`` and Chromium: ``playwright install chromium``, or one
on the path.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WINDOWS = {"desktop": (1280, 900), "phone": (390, 844)}
SCHEMES = ("light", "dark")

#: Pixels of a picture: below this Chromium paints the beginning of a page again.
_TALLEST = 16_000

#: Pixels that the page is wider than the window, and images that did not load.
MEASURE = """() => [
    document.documentElement.scrollWidth - document.documentElement.clientWidth,
    [...document.images].filter(image => !image.naturalWidth).map(image => image.src),
]"""


@contextmanager
def browser() -> Iterator[Any]:
    """Chromium without a window."""
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        sys.exit("playwright is not installed: pip install playwright")
    with sync_playwright() as playwright:
        # --no-sandbox: the pages are our own, and root in a container has no sandbox.
        chromium = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-background-networking"],
        )
        yield chromium
        chromium.close()


def pages(paths: list[Path]) -> Iterator[tuple[Path, str]]:
    """Files to open, and the names of their pictures."""
    for path in paths:
        for page in sorted(path.rglob("*.html")) if path.is_dir() else [path]:
            name = page.relative_to(path if path.is_dir() else page.parent)
            yield page, "-".join(name.with_suffix("").parts)


def faults(page: Any, address: str) -> list[str]:
    """What is wrong with a page as it is shown."""
    found: list[str] = []

    def console(message: Any) -> None:
        if message.type == "error":
            found.append(message.text)

    def request(asked: Any) -> None:
        if not asked.url.startswith(("file:", "data:", "blob:")):
            found.append(f"asks for {asked.url}")

    page.on("console", console)
    page.on("request", request)
    page.goto(address, wait_until="load")
    wider, broken = page.evaluate(MEASURE)
    page.remove_listener("console", console)
    page.remove_listener("request", request)
    if wider > 0:
        found.append(f"{wider} pixels wider than the window")
    return found + [f"image not shown: {source}" for source in broken]


def main() -> int:
    """Look at the pages; 1 where one has a fault."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("paths", nargs="*", type=Path, default=[ROOT / "website" / "html"])
    parser.add_argument("-o", "--out", type=Path, default=ROOT / "website" / "shots")
    asked = parser.parse_args()
    if missing := [path for path in asked.paths if not path.exists()]:
        parser.error(f"{missing[0]}: not found; make docs builds the site")
    asked.out.mkdir(parents=True, exist_ok=True)
    count = 0
    with browser() as chromium:
        for (window, (width, height)), scheme in itertools.product(WINDOWS.items(), SCHEMES):
            size = {"width": width, "height": height}
            page = chromium.new_context(viewport=size, color_scheme=scheme).new_page()
            page.set_default_timeout(0)  # the machine may be busy
            for path, name in pages(asked.paths):
                for fault in faults(page, path.resolve().as_uri()):
                    count += 1
                    print(f"{path}, {window}, {scheme}: {fault}")
                picture = asked.out / f"{name}-{window}-{scheme}.png"
                height = min(page.evaluate("document.documentElement.scrollHeight"), _TALLEST)
                clip = {"x": 0, "y": 0, "width": width, "height": height}
                page.screenshot(path=picture, full_page=True, clip=clip)
    print(f"pictures in {asked.out}; faults: {count}")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
