"""Takes the pictures of the explorer: wide, narrow, dark and printed, in Chromium.

They show the example panel by the shipped bundle. It also prints the seconds from opening the page
to the first fan, and the hosts that the page has contacted.

Usage: python docs/pictures/explorer.py [FOLDER]  (default: docs/pictures; SAGA_CHROMIUM names the
browser). Only the wide one is in the repository.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import threading
import time
from pathlib import Path

import uvicorn
from playwright.sync_api import Page, sync_playwright
from saga.api.app import create_app
from saga.api.server import open_socket, server_config
from saga.api.settings import Settings

FOLDER = Path(__file__).resolve().parent
WIDE, NARROW = (1280, 900), (390, 844)
OPTIONS = "#view=many&persons=example&by=sex&compare=male&against=female&until=2040&paths=100"


def main() -> None:
    """Serve, open the page, take the pictures."""
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    out.mkdir(parents=True, exist_ok=True)
    settings = Settings(bundle=FOLDER.parents[1] / "bundles/small", drain_seconds=0)
    with open_socket("127.0.0.1", 0) as listener:
        server = uvicorn.Server(
            server_config(lambda: create_app(settings, log=io.StringIO()), settings)
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        try:
            take_pictures(url, out)
        finally:
            server.should_exit = True
            thread.join()


def take_pictures(url: str, out: Path) -> None:
    """Measure the first fan, then take one picture of each kind."""
    chromium = os.environ.get("SAGA_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        hosts: set[str] = set()
        page = browser.new_page(viewport={"width": WIDE[0], "height": WIDE[1]})
        page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
        while not page.request.get(f"{url}readyz").ok:
            time.sleep(0.5)
        start = time.perf_counter()
        page.goto(url)
        page.wait_for_selector("#figures svg", timeout=300_000)
        print_line(f"first fan after {time.perf_counter() - start:.2f} s")
        page.close()
        for name, scheme, (width, height) in (
            ("explorer", "light", WIDE),
            ("explorer-dark", "dark", WIDE),
            ("explorer-narrow", "light", NARROW),
        ):
            size = {"width": width, "height": height}
            page = browser.new_page(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]
            page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
            open_example(page, url)
            page.screenshot(path=out / f"{name}.png", full_page=name != "explorer")
            if name == "explorer":
                page.pdf(path=out / "explorer-print.pdf", prefer_css_page_size=True)
            page.close()
        browser.close()
        print_line(f"hosts contacted: {', '.join(sorted(hosts))}")


def open_example(page: Page, url: str) -> None:
    """Open the example and wait until all futures are there."""
    page.goto(url + OPTIONS)
    page.wait_for_selector("#status:text('is shown'), #problem p", timeout=300_000)


def print_line(text: str) -> None:
    """Write a line on standard output."""
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
