"""The report in a real browser: no requests, no errors, screen readers, printing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page
from typer.testing import CliRunner

from saga.cli import app
from saga.diagnostics_tables import Diagnostics
from saga.pages.report import write_report
from tests.chromium import QUICK_IN_CHROMIUM, start_chromium

pytestmark = QUICK_IN_CHROMIUM

PAPER = 680  # pixels between the margins of A4, at 96 an inch


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with start_chromium() as started:
        yield started


@pytest.fixture(scope="module")
def opened(
    browser: Browser, faultless: Diagnostics, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Page, list[str], list[str]]]:
    """The page in a browser, the addresses that it requested, and the browser's messages."""
    file = write_report(faultless, tmp_path_factory.mktemp("page") / "report.html", bundle="holder")
    requests: list[str] = []
    messages: list[str] = []
    page = browser.new_page(viewport={"width": 1000, "height": 900})
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.goto(file.as_uri())
    page.wait_for_load_state("networkidle")
    yield page, requests, messages
    page.close()


def test_the_page_requests_nothing_and_the_browser_reports_no_error(
    opened: tuple[Page, list[str], list[str]],
) -> None:
    page, requests, messages = opened
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    assert messages == []
    assert page.title() == "Calibration report: can these forecasts be trusted?"


def number_of_pages(pdf: bytes) -> int:
    return len(re.findall(rb"/Type\s*/Page\b", pdf))


def test_the_shipped_report_prints_on_few_pages_and_its_answer_on_the_first(
    browser: Browser, tmp_path: Path
) -> None:
    done = CliRunner().invoke(app, ["report", "--out", str(tmp_path / "report.html")])
    assert done.exit_code == 0, done.stderr
    page = browser.new_page(viewport={"width": PAPER, "height": 960})
    page.goto((tmp_path / "report.html").as_uri())
    notes = page.locator(".in-file")
    tables = page.locator("table").count()
    assert not notes.first.is_visible(), "the screen has everything"
    page.emulate_media(media="print")
    assert number_of_pages(page.pdf(prefer_css_page_size=True)) <= 13
    assert notes.first.is_visible()
    assert all("file of the report" in text for text in notes.all_text_contents())
    assert page.locator("table:visible").count() < tables
    tops = page.locator(".people > figure").evaluate_all("all => all.map(f => f.offsetTop)")
    assert len(tops) == 10
    assert set(Counter(tops).values()) == {2}, "two persons in each row"
    cut_off = page.locator(".people > figure").evaluate_all(
        "all => all.filter(f => f.querySelector('table').getBoundingClientRect().right"
        " > f.getBoundingClientRect().right + 1)"
    )
    assert cut_off == []
    page.evaluate(
        "[...document.querySelectorAll('#first ~ :has(.grid) ~ *, main > section:has(#first) ~ *,"
        " footer')].forEach(rest => rest.remove())"
    )
    assert page.locator(".grid").count() == 1
    assert number_of_pages(page.pdf(prefer_css_page_size=True)) == 1, "all verdicts are on page 1"
    page.close()
