"""The site of the documentation in a real browser: pages fit, and both themes are legible."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.api.web.conftest import serious_findings
from tests.chromium import NEEDS_CHROMIUM, start_chromium

ROOT = Path(__file__).resolve().parents[1]
MKDOCS = ROOT / "build" / "docs-tools" / "bin" / "mkdocs"
PAGES = [path.relative_to(ROOT / "docs") for path in sorted((ROOT / "docs").rglob("*.md"))]
FAULTS = r"""() => ({
  overflow: document.documentElement.scrollWidth - innerWidth,
  formulas: document.querySelector("article").innerText.match(/\$\$|\\[(\[]/g) ?? [],
  broken: [...document.images].filter((image) => image.complete && !image.naturalWidth).length,
})"""

pytestmark = [
    *NEEDS_CHROMIUM,
    pytest.mark.skipif(not MKDOCS.exists(), reason="make build/docs-tools"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [str(MKDOCS), "build", "--quiet", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True)
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with start_chromium() as started:
        yield started


@pytest.mark.parametrize("width", [1280, 390])
def test_every_page_fits_and_has_no_raw_formula(site: Path, browser: Browser, width: int) -> None:
    page, faults = browser.new_page(viewport={"width": width, "height": 900}), {}
    for name in PAGES:
        page.goto((site / name.with_suffix(".html")).as_uri())
        found = page.evaluate(FAULTS)
        if found["overflow"] > 0 or found["formulas"] or found["broken"]:
            faults[name] = found
    page.close()
    assert faults == {}


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["index", "tutorial", "method/model", "how-to/jobs", "service"])
def test_axe_finds_nothing_serious(
    site: Path, browser: Browser, scheme: Any, width: int, name: str
) -> None:
    page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 900})
    page.goto((site / f"{name}.html").as_uri())
    body = page.locator("body").get_attribute("data-md-color-scheme")
    findings = serious_findings(page)
    page.close()
    assert body == ("slate" if scheme == "dark" else "default")
    assert findings == []


@pytest.mark.parametrize("words", ["birth year", "birth_year", "education"])
def test_a_search_for_a_column_shows_the_page_of_columns_first(
    site: Path, browser: Browser, words: str
) -> None:
    page = browser.new_page()
    page.goto((site / "index.html").as_uri())
    page.click("input.md-search__input")
    page.keyboard.type(words)
    first = page.locator(".md-search-result__item a").first
    first.wait_for()
    link = first.get_attribute("href")
    page.close()
    assert link is not None
    assert "/columns.html" in link
