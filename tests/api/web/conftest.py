"""A browser for the pages of the explorer, and what tests read from them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.chromium import start_chromium

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
TIMEOUT = 180_000  # milliseconds; on a busy machine a lifetime takes long


@pytest.fixture(scope="module")  # another module may run a loop of its own
def browser() -> Iterator[Browser]:
    with start_chromium() as started:
        yield started


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens an address in a new tab; a message of the browser or another host fails the test."""
    messages: list[str] = []
    hosts: set[str] = set()
    pages: list[Page] = []

    def watch(page: Page) -> None:
        is_expected = re.compile("status of (401|503)").search  # answers that the page tells of
        page.on("console", lambda m: None if is_expected(m.text) else messages.append(m.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on(
            "request", lambda request: hosts.add(re.sub(r"(https?://[^/]+).*", r"\1", request.url))
        )

    def go(url: str, **options: Any) -> Page:
        page = browser.new_page(**{"viewport": {"width": 1280, "height": 900}, **options})
        page.set_default_timeout(TIMEOUT)
        watch(page)
        pages.append(page)
        page.goto(url)
        return page

    yield go
    addresses = {re.sub(r"(https?://[^/]+).*", r"\1", page.url) for page in pages}
    for page in pages:
        page.close()
    assert messages == []
    assert {host for host in hosts if not host.startswith(("blob:", "data:"))} <= addresses


def words(page: Page, selector: str) -> str:
    return page.inner_text(selector).replace("\u00a0", " ")


def serious_findings(page: Page) -> list[str]:
    """The rules of axe that the page breaks seriously."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    violations = page.evaluate("axe.run()")["violations"]
    return [v["id"] for v in violations if v["impact"] in ("serious", "critical")]
