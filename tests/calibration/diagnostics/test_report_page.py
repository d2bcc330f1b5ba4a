"""The shipped report in a real browser: no requests, no errors, printing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.chromium import QUICK_IN_CHROMIUM, start_chromium
from tests.command_line import done

pytestmark = QUICK_IN_CHROMIUM

PAPER = 680  # pixels between the margins of A4, at 96 an inch


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with start_chromium() as started:
        yield started


def number_of_pages(pdf: bytes) -> int:
    return len(re.findall(rb"/Type\s*/Page\b", pdf))


@pytest.mark.thorough
def test_the_shipped_report_prints_on_few_pages_and_its_answer_on_the_first(
    browser: Browser, tmp_path: Path
) -> None:
    done("report --out", tmp_path / "report.html")
    page = browser.new_page(viewport={"width": PAPER, "height": 960})
    seen: list[str] = []
    page.on("request", lambda request: seen.append(request.url))
    page.on("console", lambda message: seen.append(message.text))
    page.goto((tmp_path / "report.html").as_uri())
    assert [text for text in seen if not text.startswith(("file:", "data:"))] == []
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
