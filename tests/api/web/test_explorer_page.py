"""The explorer in Chromium: numbers, other hosts, keyboard, screen readers, narrow, dark, print."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Browser, Page
from saga.api.key_file import add_key, new_key
from saga.api.settings import Settings

from saga.conformal.families.set_family import SMALLEST_AMOUNT
from saga.pages.person import describe_year
from tests.chromium import NEEDS_CHROMIUM, start_chromium

if TYPE_CHECKING:
    from tests.conftest import Running

pytestmark = NEEDS_CHROMIUM
AXE = Path(__file__).parent / "vendor" / "axe.min.js"
TIMEOUT = 180_000  # milliseconds; on a busy machine a lifetime takes long
RECORD = "year;earnings\n2019;301 000,5\n2020;312000\n2022;0\n"


@pytest.fixture(scope="module")
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
        page.on("console", lambda m: messages.append(m.text) if "401" not in m.text else None)
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


def show(page: Page, example: str = "gaps", **values: str) -> None:
    """Choose an example and options, ask for the forecast and wait for it."""
    page.wait_for_selector("#example option:nth-child(3)", state="attached")
    page.select_option("#example", example)
    for name, value in values.items():
        page.select_option(f"#{name}", value)
    ask(page)


def ask(page: Page) -> None:
    page.get_by_role("button", name="Show the forecast").click()
    page.wait_for_selector("#life-figures svg")


def number(cell: str) -> float | None:
    """A cell of the downloaded table; no interval is an empty cell."""
    return float(cell) if cell else None


def words(page: Page, selector: str) -> str:
    return page.inner_text(selector).replace("\u00a0", " ")


def example_person(service: Running, name: str) -> dict[str, Any]:
    """A person of the page's examples as a program would send it."""
    text = service.client.get("/explorer/example_people.csv").text
    rows = [row for row in csv.DictReader(io.StringIO(text)) if row.pop("person_id") == name]
    fixed = {"birth_year", "sex", "birth_region"}
    labels = {"sex", "birth_region", "education_level"}
    history = [
        {k: v if k in labels else float(v) for k, v in row.items() if k not in fixed}
        for row in rows
    ]
    static = {k: rows[0][k] for k in fixed - {"birth_year"}}
    born = int(rows[0]["birth_year"])
    return {"person_id": name, "birth_year": born, **static, "history": history}


def forecast_of(service: Running, person: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    """The years of a person's forecast, by a call of a program."""
    options = {"coverage": [0.5, 0.8, 0.9], "quantiles": [0.5]} | options
    answer = service.forecast({"persons": [person], "horizons": list(range(1, 11)), **options})
    assert answer.status_code == 200, answer.text
    years: list[dict[str, Any]] = answer.json()["forecasts"][0]["horizons"]
    return years


def sentence(year: dict[str, Any]) -> str:
    """The sentence that `saga plot` writes about a year of an answer."""
    row = {"horizon": year["h"], "year": year["year"], "p_zero": year["p_zero"]}
    row["median"] = year["quantiles"]["0.5"]
    for each in year["intervals"]:
        label = f"{100 * each['coverage']:.0f}"
        row |= {f"{name}_{label}": each[name] for name in ("lower", "upper", "includes_zero")}
    return describe_year(row, "SEK of 2022")


def test_an_example_is_shown_with_the_numbers_that_a_program_gets(
    service: Running, visit: Callable[..., Page], tmp_path: Path
) -> None:
    page = visit(service.url)
    show(page, "long unemployed")
    years = forecast_of(service, example_person(service, "long unemployed"))
    assert words(page, "#sentences") == sentence(years[4])
    assert "Simulated people, not real" in page.inner_text("#simulated")
    with page.expect_download() as waiting:
        page.get_by_role("button", name="CSV", exact=True).click()
    waiting.value.save_as(tmp_path / "f.csv")
    rows = list(csv.DictReader((tmp_path / "f.csv").read_text().splitlines()))
    assert [int(row["year"]) for row in rows] == [year["year"] for year in years]
    for row, year in zip(rows, years, strict=True):
        assert float(row["p_zero"]) == year["p_zero"]
        assert float(row["median"]) == year["quantiles"]["0.5"]
        for each in year["intervals"]:
            label = f"{100 * each['coverage']:.0f}"
            assert number(row[f"lower_{label}"]) == each["lower"]
            assert number(row[f"upper_{label}"]) == each["upper"]
            assert row[f"guarantee_{label}"] == each["guarantee"]


def test_the_chart_names_a_set_in_the_words_of_the_table(
    service: Running, visit: Callable[..., Page]
) -> None:
    page = visit(service.url)
    show(page, "nurse on leave")
    years = forecast_of(service, example_person(service, "nurse on leave"))
    starts = [each["lower"] for year in years for each in year["intervals"]]
    assert SMALLEST_AMOUNT in starts, "the example has such a set"
    chart = page.locator("#figures svg").first
    box = chart.bounding_box()
    assert box is not None
    tips = set()
    for x in range(0, int(box["width"]), 8):
        page.mouse.move(box["x"] + x, box["y"] + box["height"] / 2)
        tips |= {*chart.locator("[aria-label=tip]").all_text_contents()}
    assert any("% set: above 0 to " in tip for tip in tips)
    assert not any("% set: 1 to " in tip for tip in tips)


def test_one_thing_is_changed_and_both_forecasts_are_shown(
    service: Running, visit: Callable[..., Page]
) -> None:
    page = visit(service.url)
    show(page, "gaps", change="year", to="2021")
    person = example_person(service, "gaps")
    before = forecast_of(service, person)[4]
    for year in person["history"]:
        if year["year"] == 2021:
            year["earnings"] = 0.0
    changed = forecast_of(service, person)[4]
    page.wait_for_selector("#figures figure:nth-child(2) svg")
    assert page.locator("#figures figcaption").all_inner_texts() == [
        "As it is",
        "With no work in 2021",
    ]
    told = words(page, "#sentences")
    assert f"becomes {float(format(changed['quantiles']['0.5'], '.3g')):,.0f}" in told
    rises = changed["quantiles"]["0.5"] > before["quantiles"]["0.5"]
    assert ("a person who returns searches for a job first" in told) == rises
    for change, to in (("education_level", "compulsory"), ("scenario", "recession-1990s")):
        page.select_option("#change", change)
        page.select_option("#to", to)
        ask(page)
        page.wait_for_selector("#figures figure:nth-child(2) svg")
        axes = page.locator("#figures svg:nth-of-type(1)").all_text_contents()
        assert re.findall("[0-9]+k", axes[0]) == re.findall("[0-9]+k", axes[1]), "one scale"


def test_a_record_is_typed_with_decimal_commas_or_read_from_a_file_of_sas(
    service: Running, visit: Callable[..., Page], tmp_path: Path
) -> None:
    page = visit(service.url)
    page.wait_for_selector("#example option:nth-child(3)", state="attached")
    page.fill("#record", RECORD)
    assert page.input_value("#example") == "", "an edited record is no example"
    page.fill("#birth_year", "1985")
    page.select_option("#sex", "")
    page.select_option("#education_level", "")
    ask(page)
    amounts = {2019: 301_000.5, 2020: 312_000.0, 2022: 0.0}
    history = [{"year": year, "earnings": amount} for year, amount in amounts.items()]
    person = {"person_id": "x", "birth_year": 1985, "history": history}
    assert words(page, "#sentences") == sentence(forecast_of(service, person)[4])

    people = "person_id;year;birth_year;earnings\nÅsa;2021;1990;250000\nÖrjan;2022;1985;300000\n"
    (tmp_path / "people.csv").write_bytes(people.encode("latin-1"))
    page.set_input_files("#file", tmp_path / "people.csv")
    page.wait_for_selector("#file-person option:nth-child(2)", state="attached")
    assert page.locator("#file-person option").all_inner_texts() == ["Åsa", "Örjan"]
    page.select_option("#file-person", "Örjan")
    assert page.input_value("#birth_year") == "1985"


@pytest.mark.parametrize(
    ("record", "born", "told"),
    [
        ("year,income\n2020,98765\n", "1980", "one of them is earnings"),
        ("year,earnings\n2020,98765x\n", "1980", "Line 2: earnings is not a number"),
        ("year,earnings\n2020,98765\n\n2022,98765,5\n", "1980", "Line 4 has more cells"),
        ("year,earnings\n2020,98765\n,98765\n", "1980", "Line 3: the year is missing"),
        ("2020,98765\n2021,98765\n", "1980", "The first line must name the columns"),
        ("year,earnings\n2020,98765\n2020,98765\n", "1980", "two rows for one year"),
        ("year,earnings,hobby\n2020,98765,x\n", "1980", "The column hobby is not known"),
        ("year,earnings\n2020,98765\n", "", "The year of birth is missing"),
        ("year,earnings\n2020,-98765\n", "1980", "year 2020, column earnings"),
        ("year,earnings\n2020,98765\n", "1910", "age"),
    ],
)
def test_what_is_wrong_with_a_record_is_said_without_its_amounts(
    service: Running, browser: Browser, record: str, born: str, told: str
) -> None:
    page = browser.new_page()  # the browser itself reports the refused calls
    page.goto(service.url)
    page.wait_for_selector("#example option:nth-child(3)", state="attached")
    page.fill("#record", record)
    page.fill("#birth_year", born)
    page.get_by_role("button", name="Show the forecast").click()
    page.wait_for_selector("#problem p")
    problem = page.get_by_role("alert").inner_text()
    page.close()
    assert told in problem
    assert "98765" not in problem


def test_a_link_has_the_options_and_nothing_of_an_own_record(
    service: Running, visit: Callable[..., Page]
) -> None:
    page = visit(service.url)
    show(page, "student", years="20", change="scenario", to="high-growth")
    page.get_by_role("button", name="Copy link").click()
    link = page.url
    again = visit(link)
    again.wait_for_selector("#life-figures svg")
    for name, value in {"example": "student", "years": "20", "to": "high-growth"}.items():
        assert again.input_value(f"#{name}") == value
    assert words(again, "#sentences") == words(page, "#sentences")
    page.fill("#record", RECORD)
    page.fill("#birth_year", "1985")
    page.select_option("#change", "year")
    ask(page)
    page.get_by_role("button", name="Copy link").click()
    hidden = ("2019", "2020", "301", "312", "1985", "student", "female")
    assert not [text for text in hidden if text in page.url]


def test_pictures_are_files_of_their_own(
    service: Running, visit: Callable[..., Page], tmp_path: Path
) -> None:
    page = visit(service.url)
    show(page)
    for name in ("SVG", "PNG"):
        with page.expect_download() as waiting:
            page.get_by_role("button", name=name).click()
        waiting.value.save_as(tmp_path / name)
    svg = (tmp_path / "SVG").read_text(encoding="utf-8")
    assert "Simulated people, not real" in svg
    assert "the chance of no earnings" in svg
    assert "var(--" not in svg, "a file has no style of the page"
    assert "<script" not in svg
    assert (tmp_path / "PNG").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(
    service: Running, visit: Callable[..., Page], scheme: str
) -> None:
    page = visit(service.url, color_scheme=scheme)
    show(page, "nurse on leave", change="education_level", to="compulsory")
    page.get_by_text("Year by year").click()
    page.evaluate(AXE.read_text(encoding="utf-8"))
    violations = page.evaluate("axe.run()")["violations"]
    assert [v["id"] for v in violations if v["impact"] in ("serious", "critical")] == []
    names = page.get_by_role("img").evaluate_all(
        "all => all.map(p => p.getAttribute('aria-label'))"
    )
    assert len(names) == 10
    assert all(len(name or "") > 40 for name in names)


def test_the_keyboard_is_enough(service: Running, visit: Callable[..., Page]) -> None:
    page = visit(service.url)
    page.wait_for_selector("#example option:nth-child(3)", state="attached")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('href')") == "#result"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "example"
    page.keyboard.press("ArrowDown")
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.type") == "submit":
            break
    page.keyboard.press("Enter")
    page.wait_for_selector("#life-figures svg")
    assert page.get_by_role("status").inner_text() == "The forecast is shown."


def test_it_fits_a_telephone_and_large_type_and_prints_the_result_alone(
    service: Running, visit: Callable[..., Page]
) -> None:
    page = visit(service.url, viewport={"width": 390, "height": 844})
    show(page, "top earner", change="year")
    page.get_by_text("What made these numbers").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.set_viewport_size({"width": 640, "height": 900})  # 1280 pixels at 200 %
    page.wait_for_timeout(300)
    assert page.evaluate("document.documentElement.scrollWidth") <= 640
    page.emulate_media(media="print")
    assert not page.locator("form").is_visible()
    assert page.locator("#figures svg").first.is_visible()


def test_a_service_with_keys_asks_for_one_and_forgets_it(
    start: Callable[[Settings], AbstractContextManager[Running]],
    tiny_bundle: Path,
    tmp_path: Path,
    visit: Callable[..., Page],
) -> None:
    secret, key = new_key("analyst")
    add_key(tmp_path / "keys", key)
    with start(Settings(bundle=tiny_bundle, threads=1, keys=tmp_path / "keys")) as service:
        service.wait_until_ready()
        page = visit(service.url)
        page.wait_for_selector("#key", state="visible")
        assert "A key is needed" in page.get_by_role("alert").inner_text()
        page.fill("#key", secret)
        page.keyboard.press("Tab")
        show(page)
        stored = page.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie])")
        assert stored == '[{},{},""]'
        assert secret not in page.url
        page.reload()
        page.wait_for_selector("#key", state="visible")
        assert page.input_value("#key") == ""
