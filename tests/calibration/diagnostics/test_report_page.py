"""The report in a real browser: no requests, no errors, screen readers, printing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page
from typer.testing import CliRunner

from saga.cli import app
from saga.diagnostics_tables import Diagnostics
from saga.pages.report import STATUS_WORDS, write_report
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


def test_the_keyboard_gets_past_the_head_and_a_verdict_is_a_word(
    opened: tuple[Page, list[str], list[str]],
) -> None:
    page = opened[0]
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('href')") == "#main"
    verdicts = {" ".join(text.split()) for text in page.locator(".verdict").all_text_contents()}
    assert verdicts <= {" ".join(words) for words in STATUS_WORDS.values()}
    named = page.locator("section").evaluate_all(
        "all => all.every(s => document.getElementById(s.getAttribute('aria-labelledby')))"
    )
    assert named


def test_the_page_fits_a_narrow_screen(opened: tuple[Page, list[str], list[str]]) -> None:
    page = opened[0]
    page.set_viewport_size({"width": 380, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 380
    page.set_viewport_size({"width": 1000, "height": 900})


def test_it_prints_with_whole_pictures_and_without_parts_that_need_a_click(
    opened: tuple[Page, list[str], list[str]],
) -> None:
    page = opened[0]
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    assert not page.locator("details").first.is_visible()
    style: Any = page.locator("figure").first.evaluate("f => getComputedStyle(f).breakInside")
    assert style == "avoid"
    printed = page.pdf(prefer_css_page_size=True)
    screen = page.viewport_size
    assert screen is not None
    page.set_viewport_size({"width": PAPER, "height": 960})
    too_wide = page.locator("table").evaluate_all(
        "all => all.filter(t => t.offsetParent && t.getBoundingClientRect().right > innerWidth)"
        ".map(t => t.textContent.slice(0, 60))"
    )
    page.set_viewport_size(screen)
    page.emulate_media(media="screen")
    assert too_wide == [], "a browser shrinks the whole page, or cuts columns off"
    assert number_of_pages(printed) <= 1.5 * page.locator("h2:not(.first)").count()
    assert not re.search(rb"/URI \(https?:", printed)


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


def test_a_table_can_be_downloaded(
    opened: tuple[Page, list[str], list[str]], faultless: Diagnostics, tmp_path: Path
) -> None:
    page = opened[0]
    with page.expect_download() as waiting:
        page.get_by_role("link", name="coverage.csv").click()
    waiting.value.save_as(tmp_path / "coverage.csv")
    assert (tmp_path / "coverage.csv").read_text() == faultless["coverage"].write_csv()
