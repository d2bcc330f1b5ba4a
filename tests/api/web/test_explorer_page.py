"""One person in the explorer: numbers, other hosts, keyboard, screen reader, phone, dark, print."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from playwright.sync_api import Browser, Page, Route
from saga.api.key_file import add_key, new_key
from saga.api.refusals import REFUSALS, Http
from saga.api.settings import Settings

from saga.pages.person import describe_year
from saga.schema import STATIC
from tests.api.web.conftest import TIMEOUT, serious_findings, words
from tests.chromium import NEEDS_CHROMIUM

if TYPE_CHECKING:
    from playwright.sync_api import ViewportSize

    from tests.conftest import Running

pytestmark = NEEDS_CHROMIUM
PERSON = "#view=person"
OTHER = "person_id,year,birth_year,sex,education_level,earnings\n" + "".join(
    f"7,{year},1965,male,compulsory,{300_000 + year}\n" for year in range(2010, 2023)
)
RECORD = "year;earnings\n2019;301 000,5\n2020;312000\n2022;0\n"


def show(page: Page, example: str = "gaps", **values: str) -> None:
    """Choose an example and options, ask for the forecast and wait for it."""
    page.wait_for_selector("#example option:nth-child(3)", state="attached")
    page.select_option("#example", example)
    for name, value in values.items():
        page.select_option(f"#{name}", value)
    ask(page)


def press(page: Page) -> None:
    """Ask for the forecast of the form, with nothing left of the one before.

    In one step, so that no earlier answer comes between.
    """
    page.get_by_role("button", name="Show the forecast").evaluate(
        "button => { document.getElementById('life-figures').replaceChildren(); button.click(); }"
    )


def ask(page: Page) -> None:
    press(page)
    page.wait_for_selector("#life-figures svg")


def number(cell: str) -> float | None:
    """A cell of the downloaded table; no interval is an empty cell."""
    return float(cell) if cell else None


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
        row |= {
            f"{name}_{label}": each[name]
            for name in ("lower", "upper", "includes_zero", "guarantee")
        }
    return describe_year(row, "SEK of 2022")


def test_an_example_is_shown_with_the_numbers_that_a_program_gets(
    service: Running, visit: Callable[..., Page], tmp_path: Path
) -> None:
    page = visit(service.url + PERSON)
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


def test_a_change_that_rounding_hides_is_told_without_equal_amounts_or_a_signed_zero(
    service: Running, visit: Callable[..., Page]
) -> None:
    page = visit(service.url + PERSON)
    told = page.evaluate(
        """async () => {
          const { describeChange, describeScenario } = await import("/explorer/sentences.js");
          const year = (median) => ({ year: 2027, p_zero: 0.1, quantiles: { 0.5: median } });
          const pairs = [["the sum", 1000, 1001, [-3, 4]], ["the mean", 1000, 1020, [-9, 40]]];
          return [285000, 285000.4, 285300, 286780]
            .map((median) => describeChange(year(285000), year(median), "a change"))
            .concat(describeScenario("a recession", pairs));
        }"""
    )
    moves = [
        "does not move,",
        "does not move,",
        "hardly moves,",
        "is 2,000 higher (285,000 becomes",
    ]
    assert [move in text for move, text in zip(moves, told, strict=False)] == [True] * 4
    assert "(in 9 of 10 futures 0 to 0 %)" in told[4]
    assert "(\u22121 to +4 %)" in told[4]


@pytest.mark.parametrize("view", ["many", "person"])
def test_the_page_goes_on_when_the_service_is_ready(
    service: Running, visit: Callable[..., Page], view: str
) -> None:
    entry = REFUSALS["loading"]
    assert isinstance(entry.kind, Http)
    answer = {"type": f"urn:saga:problem:{entry.kind.slug}", "title": entry.title}
    answers = [answer, answer]
    page = visit(service.url + "/livez")
    page.route(
        "**/v1/model",
        lambda route: (
            route.fulfill(status=503, json=answers.pop()) if answers else route.continue_()
        ),
    )
    page.goto(f"{service.url}#view={view}")
    page.wait_for_selector("#status:text('The service is starting')")
    assert page.inner_text("#problem") == ""
    page.wait_for_selector("#prices option", state="attached")
    assert answers == []


def test_sets_whose_coverage_was_not_tested_are_dashed_and_named(
    service: Running, visit: Callable[..., Page]
) -> None:
    # Under a scenario no outcome has been observed: all its sets are extrapolated.
    page = visit(service.url + PERSON)
    show(page, "student", change="scenario", to="high-growth")
    page.wait_for_selector("#life-figures figure:nth-child(2) svg")
    student = example_person(service, "student")
    for i, scenario in enumerate(("baseline", "high-growth"), start=1):
        years = forecast_of(service, student, scenario=scenario)
        words_of = [[each["guarantee"] for each in year["intervals"]] for year in years]
        picture = page.locator(f"#figures figure:nth-child({i}) svg").first
        by_coverage = list(zip(*words_of, strict=True))
        shaded = [("assumption", "assumption") in pairwise(words) for words in by_coverage]
        dashed = [set(words) != {"assumption"} for words in by_coverage]
        assert picture.locator("[fill-opacity] path").count() == sum(shaded)
        assert picture.locator("[stroke-dasharray='4 3'] path").count() == 2 * sum(dashed)
        assert dashed == [True] * 3 or scenario == "baseline"
        rows = page.locator("#tables table").nth(i - 1).locator("tbody tr").all_text_contents()
        told = [row.count("(coverage not tested)") for row in rows]
        assert told == [words.count("extrapolated") for words in words_of]
    assert page.is_visible("#untested")


def test_one_thing_is_changed_and_both_forecasts_are_shown(
    service: Running, visit: Callable[..., Page]
) -> None:
    page = visit(service.url + PERSON)
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
    old, new = (
        f"{float(format(year['quantiles']['0.5'], '.3g')):,.0f}" for year in (before, changed)
    )
    assert ("hardly moves" if old == new else f"({old} becomes {new})") in told
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
    page = visit(service.url + PERSON)
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
    for encoding in ("utf-16", "latin-1"):  # as Excel writes it
        (tmp_path / "people.csv").write_bytes(people.encode(encoding))
        page.evaluate("document.getElementById('file-person').replaceChildren()")
        page.set_input_files("#file", tmp_path / "people.csv")
        page.wait_for_selector("#file-person option:nth-child(2)", state="attached")
        assert page.locator("#file-person option").all_inner_texts() == ["Åsa", "Örjan"]
    page.select_option("#file-person", "Örjan")
    assert page.input_value("#birth_year") == "1985"


@pytest.fixture
def sent(browser: Browser, service: Running) -> Iterator[tuple[Page, list[dict[str, Any]]]]:
    """A page, in which the browser may report refused calls, and the persons that it sends."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(TIMEOUT)
    persons: list[dict[str, Any]] = []
    page.on(
        "request",
        lambda call: persons.extend(json.loads(call.post_data or "{}").get("persons", [])),
    )
    page.goto(service.url + PERSON)
    page.wait_for_selector("#life-figures svg")  # of the example that a new page shows
    persons.clear()
    yield page, persons
    page.close()


def outcome(page: Page) -> str:
    """What the page says after the button: an error, or nothing."""
    press(page)
    page.wait_for_selector("#problem p, #life-figures svg")
    return page.inner_text("#problem")


@pytest.mark.parametrize("way", ["pasted", "typed", "file"])
def test_the_columns_of_a_record_count_before_the_form_and_fill_it(
    sent: tuple[Page, list[dict[str, Any]]], tmp_path: Path, way: str
) -> None:
    page, persons = sent
    if way == "file":
        (tmp_path / "people.csv").write_text(OTHER)
        page.set_input_files("#file", tmp_path / "people.csv")
        page.wait_for_function("() => document.getElementById('birth_year').value === '1965'")
    elif way == "pasted":
        page.fill("#record", OTHER)
    else:
        page.locator("#record").press("ControlOrMeta+a")
        page.locator("#record").press_sequentially(OTHER[:120].rsplit("\n", 1)[0])
    shown = {name: page.input_value(f"#{name}") for name in ("birth_year", "sex")}
    assert shown == {"birth_year": "1965", "sex": "male"}
    assert page.is_disabled("#sex"), "the record is the place to change it"
    assert outcome(page) == ""
    assert (persons[0]["birth_year"], persons[0]["sex"]) == (1965, "male")
    assert {year["education_level"] for year in persons[0]["history"]} == {"compulsory"}
    page.emulate_media(media="print")
    assert "Person 7: born 1965, male, compulsory" in words(page, "#who")
    assert page.is_visible("#who")


def test_a_column_that_changes_with_the_year_is_sent_as_it_is(
    sent: tuple[Page, list[dict[str, Any]]],
) -> None:
    page, persons = sent
    levels = ["compulsory", "upper_secondary"]
    page.fill(
        "#record",
        "year,earnings,education_level,birth_year\n"
        f"2019,250000,{levels[0]},1985\n2020,260000,{levels[1]},1985\n",
    )
    assert page.input_value("#education_level") == levels[1], "the last one"
    page.evaluate("document.getElementById('birth_year').value = '1999'")
    assert outcome(page) == ""
    assert persons[0]["birth_year"] == 1985
    assert [year["education_level"] for year in persons[0]["history"]] == levels
    head, first, last = page.input_value("#record").split()
    page.fill("#record", "\n".join([head, last, first]))
    assert page.input_value("#education_level") == levels[1], "the last year may come first"
    assert outcome(page) == ""
    assert [year["year"] for year in persons[-1]["history"]] == [2019, 2020]
    assert "born 1985, upper secondary" in words(page, "#who")


def test_nothing_of_the_example_stays_with_another_record(
    sent: tuple[Page, list[dict[str, Any]]],
) -> None:
    page, persons = sent
    text = page.input_value("#record")
    page.fill("#record", text.replace("9000", "9500", 1))
    assert page.input_value("#birth_year") == "2000", "an edited line is the same person"
    page.fill("#record", RECORD)
    assert outcome(page) == "The year of birth is missing."
    page.fill("#birth_year", "1985")
    page.fill("#record", RECORD.replace("301", "401").replace("2020", "2021"))
    assert page.input_value("#birth_year") == "1985", "it was entered, not filled"
    assert outcome(page) == ""
    assert "sex" not in persons[-1]
    assert not any("education_level" in year for year in persons[-1]["history"])


DIALECTS: dict[str, dict[int, float | None] | str] = {
    "sep=;\nyear;earnings\n2019;250000,5\n": {2019: 250_000.5},
    '\n \n"sep=~"\nyear~earnings\n2019~250000\n': {2019: 250_000},
    "\n\nyear|earnings\n2019|250000\n\n": {2019: 250_000},
    "year\tearnings\n2019\t250000\n2020\t": {2019: 250_000, 2020: None},
    ",year,earnings,\n0,2019,250000,\n1,2020,,\n": {2019: 250_000, 2020: None},
    "sep=;\nyear;earnings\n2019;x\n": "Line 3: earnings is not a number.",
    "\nyear,earnings,\n2019,250000,male\n": "Line 3 has a value in column 3, which the first line "
    "does not name. Name the column, or remove it.",
}


@pytest.mark.parametrize("text", DIALECTS)
def test_a_text_is_read_as_the_file_of_other_programs_that_it_is(
    sent: tuple[Page, list[dict[str, Any]]], text: str
) -> None:
    page, persons = sent
    expected = DIALECTS[text]
    page.fill("#record", text)
    page.fill("#birth_year", "1985")
    if isinstance(expected, str):
        assert outcome(page) == expected
        return
    assert outcome(page) == ""
    assert {year["year"]: year.get("earnings") for year in persons[-1]["history"]} == expected
    gaps = " (earnings known in 1)" if None in expected.values() else ""
    years = f"{len(expected)} year{'s' if len(expected) > 1 else ''}{gaps}, 2019 to"
    assert f"record of {years}" in words(page, "#who")


def test_amounts_and_years_are_understood_or_refused(
    sent: tuple[Page, list[dict[str, Any]]],
) -> None:
    page, persons = sent
    understood = {
        "year;earnings\n2019;250.000\n2020;1.260.000\n": [250_000, 1_260_000],
        'year,earnings\n2019,"250,000"\n2020,"1,260,000.5"\n': [250_000, 1_260_000.5],
        "year;earnings\n2019;301 000,5\n2020;250.000\n": [301_000.5, 250_000],
        "year,earnings\n2019,250.125\n2020,301234.5\n": [250.125, 301_234.5],
        "year\tearnings\n2019\t1e+05\n2020.0\t250'000\n": [100_000, 250_000],
    }
    for text, amounts in understood.items():
        page.fill("#record", text)
        page.fill("#birth_year", "1985")
        assert outcome(page) == "", text
        assert [year["earnings"] for year in persons[-1]["history"]] == amounts, text
        assert [year["year"] for year in persons[-1]["history"]] == [2019, 2020], text
    refused = {
        "year;earnings\n2019;250.000\n2020;260.000\n": "Line 2: earnings can be read in two ways",
        'year,earnings\n2019,"250,000"\n': "Line 2: earnings can be read in two ways",
        "year;earnings\n2019;250.000\n2020;0.5\n": "Line 2: earnings can be read in two ways",
        "year,earnings\n2019,0x10\n": "Line 2: earnings is not a number",
        "year,earnings\n2019,2 019 30\n": "Line 2: earnings is not a number",
        "year,earnings\n97,250000\n": "Line 2: year needs four digits",
        "year,earnings,birth_year\n2019,250000,85\n": "Line 2: birth_year needs four digits",
        "year,earnings,earnings\n2019,1,2\n": "names earnings twice",
        "year,earnings,sex\n2019,1,male\n2020,1,female\n": "Line 3: sex",
        "year,earnings\n2019,\n": "no known earnings",
        "year,earnings,sex\n2019,1,male\n2020,1\n": "Line 3 has fewer cells",
        'year,earnings\n2019,"1': "A quotation mark is not closed",
        "person_id,year,earnings\nA,2019,1\n,2020,1\n": "Line 3: person_id is missing",
    }
    for text, told in refused.items():
        page.fill("#record", text)
        page.fill("#birth_year", "1985")
        assert told in outcome(page), text
    page.fill("#record", RECORD)
    page.fill("#birth_year", "85")
    assert "four digits" in outcome(page)


@pytest.mark.parametrize("size", [{"width": 1280, "height": 900}, {"width": 390, "height": 844}])
@pytest.mark.parametrize("down", [False, True])
def test_an_error_is_seen_and_takes_the_forecast_away(
    sent: tuple[Page, list[dict[str, Any]]], size: ViewportSize, down: bool
) -> None:
    page, _ = sent
    page.set_viewport_size(size)
    ask(page)
    if down:
        page.route("**/v1/**", lambda route: route.abort())
    else:
        page.fill("#record", "year,earnings\n2020,abc\n")
    page.get_by_role("button", name="Show the forecast").click()
    page.wait_for_selector("#problem p")
    box = page.locator("#problem").bounding_box()
    assert box is not None
    assert box["y"] >= 0
    assert box["y"] + box["height"] <= size["height"]
    assert page.evaluate("document.activeElement.id") == "problem"
    assert not page.is_visible("#answer")
    assert page.get_by_role("status").inner_text() == ""


@pytest.mark.parametrize("way", ["example", "option", "person"])
def test_a_choice_after_an_error_shows_its_forecast(
    sent: tuple[Page, list[dict[str, Any]]], tmp_path: Path, way: str
) -> None:
    page, _ = sent
    (tmp_path / "people.csv").write_text(OTHER + OTHER.split("\n", 1)[1].replace("7,", "8,", 1))
    page.set_input_files("#file", tmp_path / "people.csv")
    page.wait_for_selector("#file-person option:nth-child(2)", state="attached")
    page.fill("#record", "year,earnings\n2020,abc\n")
    assert outcome(page) == "Line 2: earnings is not a number."
    if way == "option":
        page.route("**/v1/forecasts", lambda route: route.fulfill(body="<p>Log in</p>"))
        page.fill("#record", OTHER)
        assert outcome(page) == "The service does not answer"
        page.unroute("**/v1/forecasts")
        page.select_option("#years", "5")
    else:
        page.select_option("#example" if way == "example" else "#file-person", index=1)
    page.wait_for_selector("#life-figures svg")
    assert page.inner_text("#problem") == ""
    assert words(page, "#who").startswith("Student" if way == "example" else "Person ")


def test_the_page_says_which_years_of_a_record_are_used(
    sent: tuple[Page, list[dict[str, Any]]],
) -> None:
    page, _ = sent
    page.fill("#record", "year,earnings,birth_year\n1995,0,1980\n2020,260000,1980\n2097,1,1980\n")
    assert outcome(page) == ""
    assert "record of 1 year, 2020 to 2020" in words(page, "#who")
    assert "Years outside ages 16 to 64 are not used." in words(page, "#warnings")


def test_a_wrong_unit_is_told_without_advice_about_mappings(
    sent: tuple[Page, list[dict[str, Any]]],
) -> None:
    page, _ = sent
    page.fill("#record", "year,earnings,capital_income,birth_year\n2020,300,2,1980\n")
    assert outcome(page) == ""
    told = words(page, "#warnings")
    assert "multiply them by 1000." in told
    assert "scale" not in told


def test_a_record_of_our_own_register_goes_in_and_out(
    sent: tuple[Page, list[dict[str, Any]]], service: Running, register_dir: Path, tmp_path: Path
) -> None:
    page, persons = sent
    frame = pl.read_parquet(register_dir / "panel" / "birth_year=1970" / "*.parquet")
    frame = frame.with_columns(birth_year=1970).filter(pl.col("exit_year").is_null())
    frame = frame.filter(pl.col("person_id").is_in(frame["person_id"].unique().sort().head(3)))
    assert frame["entry_year"].count() > 0
    frame.write_csv(tmp_path / "register.csv")
    page.set_input_files("#file", tmp_path / "register.csv")
    page.wait_for_selector("#file-person option:nth-child(3)", state="attached")
    for person_id, rows in frame.group_by("person_id", maintain_order=True):
        page.select_option("#file-person", str(person_id[0]))
        persons.clear()
        assert outcome(page) == ""
        fixed = {name: rows[name][0] for name in STATIC if name in rows.columns}
        years = [
            {name: value for name, value in row.items() if value is not None}
            for row in rows.drop(*fixed).iter_rows(named=True)
        ]
        fixed = {name: value for name, value in fixed.items() if value is not None}
        assert persons[0] == {**fixed, "history": years}


def test_back_forward_and_links_keep_what_is_shown(
    sent: tuple[Page, list[dict[str, Any]]], browser: Browser
) -> None:
    page, _ = sent
    student = words(page, "#who")  # of the example that a new page shows
    page.fill("#record", OTHER)
    ask(page)
    page.wait_for_selector("#who:text('Person 7')")
    page.go_back()
    page.wait_for_selector("#who:text('Student')")
    assert words(page, "#who") == student
    page.go_forward()
    page.wait_for_selector("#who:text('Person 7')")
    assert page.input_value("#record") == OTHER
    page.reload()
    page.wait_for_selector("#who:text('Person 7')")
    assert page.evaluate("JSON.stringify([localStorage, sessionStorage])") == "[{},{}]"
    linked = browser.new_page()
    linked.goto(page.url)
    linked.wait_for_selector("#status:text('Enter it to see')")
    assert linked.input_value("#example") == linked.input_value("#record") == ""
    linked.close()


@pytest.mark.parametrize("cause", ["record", "service", "file"])
def test_back_from_an_error_is_the_forecast_before_it(
    sent: tuple[Page, list[dict[str, Any]]], tmp_path: Path, cause: str
) -> None:
    page, _ = sent
    page.fill("#record", OTHER)
    ask(page)
    for _ in range(2):  # another error is no further entry
        if cause == "record":
            page.fill("#record", OTHER.replace("302010", "x"))
            outcome(page)
        elif cause == "service":
            page.route("**/v1/forecasts", lambda route: route.abort())
            page.select_option("#years", "5")
        else:
            (tmp_path / "people.csv").write_text("year,income\n")
            page.set_input_files("#file", tmp_path / "people.csv")
        page.wait_for_selector("#problem p")
    page.unroute_all()
    page.go_back()
    page.wait_for_selector("#who:text('Person 7')")
    assert page.input_value("#record") == OTHER
    page.go_back()
    page.wait_for_selector("#who:text('Student')")


def test_a_figure_of_another_bundle_is_not_shown(sent: tuple[Page, list[dict[str, Any]]]) -> None:
    """The service may be started anew beside an open page; a panel's figures are kept there."""
    page, _ = sent

    def replaced(route: Route) -> None:
        answer = route.fetch()
        content = answer.json()
        content["provenance"]["bundle"] = "f" * 64
        route.fulfill(response=answer, json=content)

    page.route("**/v1/forecasts", replaced)
    press(page)
    page.wait_for_selector("#problem p:text('another bundle')")


@pytest.mark.parametrize("call", ["forecasts", "lifetimes"])
def test_an_edit_during_a_computation_is_said(
    sent: tuple[Page, list[dict[str, Any]]], call: str
) -> None:
    page, _ = sent
    held: list[Route] = []
    page.route(f"**/v1/{call}", lambda route: held.append(route))
    with page.expect_request(f"**/v1/{call}"):
        press(page)
    page.fill("#record", OTHER)
    held[0].continue_()
    page.wait_for_selector("#life-figures svg")
    page.wait_for_selector("#status:text('The form has changed')")
    assert words(page, "#who").startswith("Student")


def test_a_choice_during_the_first_computation_is_computed(
    browser: Browser, service: Running
) -> None:
    page = browser.new_page()
    held: list[Route] = []
    page.route("**/v1/forecasts", lambda route: held.append(route))
    page.goto(service.url + PERSON)
    page.wait_for_selector("#example option:nth-child(3)", state="attached")
    page.wait_for_selector("#status:text('Computing')")
    page.unroute_all()
    page.select_option("#example", "nurse on leave")
    page.wait_for_selector("#life-figures svg")
    assert words(page, "#who").startswith("Nurse on leave")
    page.close()


@pytest.mark.parametrize(
    ("record", "born", "told"),
    [
        ("year,income\n2020,98765\n", "1980", "It lacks earnings: rename"),
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
    page.goto(service.url + PERSON)
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
    page = visit(service.url + PERSON)
    show(page, "student", years="20", change="scenario", to="high-growth")
    page.get_by_role("button", name="Copy link").click()
    link = page.url
    again = visit(link, viewport={"width": 390, "height": 844})
    again.wait_for_selector("#life-figures svg")
    box = again.locator("#sentences").bounding_box()
    assert box is not None
    assert 0 <= box["y"] < 844  # below the form, but what a link names is seen at once
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


@pytest.mark.parametrize(
    "asked",
    [
        "view=person&years=7",
        "view=person&example=nobody",
        "view=person&example=student&prices=1999",
        "view=person&example=student&rate=0.5",
        "view=person&example=student&change=year&to=1850",
        "view=many&by=hair",
        "view=many&by=sex&compare=men&against=female",
    ],
)
def test_a_link_that_asks_for_what_the_page_does_not_have_is_told(
    service: Running, visit: Callable[..., Page], asked: str
) -> None:
    page = visit(f"{service.url}#{asked}")
    page.wait_for_selector("#problem p")
    assert "The link asks for what this page does not have" in words(page, "#problem")
    assert page.is_hidden("#answer")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(
    service: Running, visit: Callable[..., Page], scheme: str
) -> None:
    page = visit(service.url + PERSON, color_scheme=scheme)
    show(page, "nurse on leave", change="education_level", to="compulsory")
    page.get_by_text("Year by year").click()
    assert serious_findings(page) == []
    names = page.get_by_role("img").evaluate_all(
        "all => all.map(p => p.getAttribute('aria-label'))"
    )
    assert len(names) == 10
    assert all(len(name or "") > 40 for name in names)


def test_the_keyboard_is_enough(service: Running, visit: Callable[..., Page]) -> None:
    page = visit(service.url + PERSON)
    page.wait_for_selector("#example option:nth-child(3)", state="attached")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('href')") == "#result"
    for _ in range(3):  # past the links to the two views
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "example"
    page.keyboard.press("ArrowDown")
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.type") == "submit":
            break
    page.keyboard.press("Enter")
    page.wait_for_selector("#status:text('The forecast is shown.')")
    page.wait_for_selector("#life-figures svg")


def test_it_fits_a_telephone_and_large_type_and_prints_the_result_alone(
    service: Running, visit: Callable[..., Page]
) -> None:
    page = visit(service.url + PERSON, viewport={"width": 390, "height": 844})
    show(page, "top earner", change="year")
    made = page.get_by_text("What made these numbers")
    made.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.set_viewport_size({"width": 640, "height": 900})  # 1280 pixels at 200 %
    page.wait_for_timeout(300)
    assert page.evaluate("document.documentElement.scrollWidth") <= 640
    made.click()
    page.emulate_media(media="print")
    assert not page.locator("form").is_visible()
    assert page.locator("#figures svg").first.is_visible()
    page.wait_for_selector("#provenance :text('calibration method')")
    page.emulate_media(media="screen")
    page.wait_for_selector("#provenance", state="hidden")


def test_a_service_with_keys_asks_for_one_and_forgets_it(
    start: Callable[[Settings], AbstractContextManager[Running]],
    tiny_bundle: Path,
    tmp_path: Path,
    visit: Callable[..., Page],
) -> None:
    secret, key = new_key("analyst")
    add_key(tmp_path / "keys", key)
    with start(Settings(bundle=tiny_bundle, threads=1, keys=tmp_path / "keys")) as service:
        page = visit(service.url + PERSON)
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
