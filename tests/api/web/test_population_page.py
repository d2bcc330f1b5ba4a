"""Many persons in the explorer: numbers, files, hidden groups, scenarios, links, phone, dark."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from playwright.sync_api import Page

from saga.data.reading import read_panel
from saga.entrants import entrants_from
from saga.forecaster import Forecaster
from saga.population.group_forecast import forecast_groups
from saga.requests import Draws, PopulationRequest
from tests.api.web.conftest import TIMEOUT, serious_findings, words
from tests.chromium import QUICK_IN_CHROMIUM

if TYPE_CHECKING:
    from tests.conftest import Running

pytestmark = QUICK_IN_CHROMIUM
PANEL = Path(__file__).resolve().parents[3] / "api" / "web" / "example_panel.csv"
SCENARIOS = ("baseline", "recession-1990s")
OWN = "#view=many&persons=file&until=2030"
REQUEST = PopulationRequest(
    by=("sex",), compare=("male/female",), events=("mean_ratio male/female 2030 < 1",), until=2030
)


def panel_of(men: int, women: int) -> pl.DataFrame:
    """The records of some persons of the example, aged 30 to 50."""
    rows = pl.read_csv(PANEL, schema_overrides={"person_id": pl.String})
    rows = rows.filter(pl.col("birth_year").is_between(1972, 1992))
    ids = rows.unique("person_id").sort("person_id").partition_by("sex", as_dict=True)
    chosen = [ids["male",]["person_id"].head(men), ids["female",]["person_id"].head(women)]
    return rows.filter(pl.col("person_id").is_in(pl.concat(chosen).to_list()))


def upload(page: Page, rows: pl.DataFrame, place: Path) -> None:
    """Give the page a file, and wait for its forecast."""
    rows.write_csv(place) if place.suffix == ".csv" else rows.write_parquet(place)
    page.wait_for_selector("#by option:nth-child(3)", state="attached")
    for place_of_answer in ("problem", "life-figures"):  # nothing is left of the answer before
        page.evaluate(f"document.getElementById('{place_of_answer}').replaceChildren()")
    page.set_input_files("#panel", place)
    page.wait_for_selector("#problem p, #life-figures svg", timeout=TIMEOUT)
    # The first view has few futures and says so.
    page.wait_for_selector("#problem p, #status:text('The forecast is shown.')", timeout=TIMEOUT)


def downloaded(page: Page, folder: Path) -> pl.DataFrame:
    with page.expect_download() as waiting:
        page.get_by_role("button", name="CSV", exact=True).click()
    waiting.value.save_as(folder / "table.csv")
    return pl.read_csv(folder / "table.csv", infer_schema_length=None)


def test_the_first_view_shows_an_example_and_stays_at_its_top(
    service: Running, visit: Callable[..., Page]
) -> None:
    page = visit(service.url)
    page.wait_for_selector("#status:text('The forecast is shown.')", timeout=TIMEOUT)
    assert "In 2040 about" in words(page, "#sentences")
    assert "The chance that the gap has closed or reversed by 2040 is" in words(page, "#sentences")
    assert page.locator("#figures svg").count() == 4  # sum, ratio, women and men
    assert words(page, "#own-error") == "not part of it", "the bundle has no vintages"
    assert page.evaluate("window.scrollY") == 0
    assert "#" not in page.url, "nothing was chosen yet"


@pytest.mark.thorough
def test_a_file_has_the_table_of_the_library_as_csv_and_as_parquet(
    service: Running, visit: Callable[..., Page], tiny_bundle: Path, tmp_path: Path
) -> None:
    rows = panel_of(14, 16)
    draws = Draws(n_paths=100)
    forecaster = Forecaster.load(tiny_bundle, threads=1)
    expected = forecast_groups(forecaster, read_panel(rows), REQUEST, draws).table
    page = visit(service.url + OWN)
    page.wait_for_selector("#status:text('Choose the file')")
    for name in ("own.csv", "own.parquet"):
        upload(page, rows, tmp_path / name)
        table = downloaded(page, tmp_path)
        shown = table.select("year", "sex", "statistic", "value", "lower_90", "upper_90")
        of_groups = expected.filter(pl.col("statistic") != "chance").select(shown.columns)
        assert shown.cast(of_groups.schema).equals(of_groups)
    chance = expected.filter(statistic="chance")["value"].item()
    last = expected.filter(year=2030, sex="total", statistic="total")["value"].item()
    told = words(page, "#sentences")
    assert f"{float(format(last / 1e6, '.3g')):g} million SEK of 2022" in told
    ratio = expected.filter(statistic="mean_ratio")["value"][0]
    closed = chance if ratio > 1 else 1 - chance
    assert f"by 2030 is {100 * closed:.0f} %" in told


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_the_gap_is_that_of_the_last_year_in_which_somebody_is_under_65(
    suffix: str, service: Running, visit: Callable[..., Page], tmp_path: Path
) -> None:
    """Before the year of the form; who has died does not count, however young."""
    rows = pl.read_csv(PANEL, schema_overrides={"person_id": pl.String})
    rows = rows.filter(pl.col("birth_year").is_between(1962, 1969)).with_columns(birth_year=1969)
    dead = rows.head(1).with_columns(person_id=pl.lit("dead"), birth_year=1999)
    exits = {"exit_year": pl.col("year") + 1, "exit_reason": pl.lit("dead")}
    page = visit(service.url + OWN.replace("2030", "2040"))
    page.wait_for_selector("#status:text('Choose the file')")
    file = tmp_path / f"own{suffix}"
    upload(page, pl.concat([rows, dead.with_columns(**exits)], how="diagonal_relaxed"), file)
    assert words(page, "#problem") == ""
    assert "by 2033 is" in words(page, "#sentences")


def test_the_status_says_which_file_is_being_read(
    service: Running, visit: Callable[..., Page], tmp_path: Path
) -> None:
    rows = panel_of(12, 12)
    page = visit(service.url + OWN)
    page.wait_for_selector("#status:text('Choose the file')")
    page.evaluate(
        """() => {
          window.said = [];
          const status = document.getElementById("status");
          const watch = new MutationObserver(() => said.push(status.textContent));
          watch.observe(status, { childList: true });
        }"""
    )
    upload(page, rows, tmp_path / "own.csv")
    assert page.evaluate("said")[:2] == ["Reading own.csv.", "Computing the forecast."]
    page.get_by_role("link", name="One person").click()
    page.wait_for_selector("#life-figures svg")
    page.evaluate("said.length = 0")
    rows.filter(person_id=rows["person_id"][0]).write_csv(tmp_path / "one.csv")
    page.set_input_files("#file", tmp_path / "one.csv")
    page.wait_for_selector("#status:text('The form has changed.')")
    assert page.evaluate("said[0]") == "Reading one.csv."


@pytest.mark.thorough
def test_another_choice_ends_the_computation_before_it(
    service: Running, visit: Callable[..., Page], tmp_path: Path
) -> None:
    """The service does the calls of a page in order: one that is not needed holds others up."""
    page = visit(service.url + OWN + "&paths=500")
    ended: list[str] = []
    page.on("requestfailed", lambda request: ended.append(str(request.post_data)))
    page.select_option("#persons", "example")
    page.get_by_role("button", name="Show the forecast").dblclick()  # the same request twice
    page.wait_for_selector("#status:text('computing all')", timeout=TIMEOUT)
    page.select_option("#scenario", "recession-1990s")
    page.wait_for_timeout(500)
    assert not ended, "the scenario needs it"
    upload(page, panel_of(12, 12), tmp_path / "own.csv")
    assert words(page, "#who").startswith("own.csv: 24 persons")
    assert len(ended) == 1
    page.get_by_role("link", name="One person").click()
    page.wait_for_selector("#figures svg")
    page.get_by_role("link", name="Many persons").click()
    page.wait_for_selector("#status:text('The forecast is shown.')", timeout=TIMEOUT)


@pytest.mark.thorough
def test_groups_under_ten_persons_are_hidden_and_named(
    service: Running, visit: Callable[..., Page], tmp_path: Path
) -> None:
    page = visit(service.url + OWN)
    upload(page, panel_of(6, 16), tmp_path / "few.csv")
    assert "Hidden are groups of fewer than ten persons" in words(page, "#warnings")
    assert page.locator("#figures figcaption").count() == 1, "the sum alone"
    page.get_by_text("Year by year").click()
    assert "hidden" in words(page, "#tables")
    upload(page, panel_of(3, 4), tmp_path / "fewer.csv")
    assert "Every figure is hidden" in page.get_by_role("alert").inner_text()
    assert page.evaluate("document.activeElement.id") == "problem"
    assert not page.is_visible("#answer")


@pytest.mark.thorough
def test_groups_are_those_of_the_file(
    service: Running, visit: Callable[..., Page], tmp_path: Path
) -> None:
    page = visit(service.url + OWN + "&by=sex")
    rows = panel_of(12, 12).select("person_id", "year", "birth_year", "earnings")
    upload(page, rows, tmp_path / "four.csv")
    offered = page.eval_on_selector_all("#by option", "all => all.map(each => each.value)")
    assert offered == ["", "age", "cohort", "birth_year"]
    assert page.locator("#figures figcaption").nth(1).inner_text().startswith("Mean earnings: all")
    page.select_option("#by", "cohort")
    page.wait_for_selector("#answer :text('born 19')", timeout=TIMEOUT)


@pytest.mark.thorough
def test_what_is_wrong_with_a_file_is_said_without_its_amounts(
    service: Running, browser: Any, tmp_path: Path
) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844})  # it reports refused calls
    page.goto(service.url + OWN)
    rows = panel_of(12, 12)
    for changed, told in (
        (rows.rename({"earnings": "income"}), "It lacks earnings: rename"),
        (rows.rename({"person_id": "id", "birth_year": "born"}), "It lacks person_id, birth_year"),
        (rows.with_columns(earnings=pl.lit(-98765)), "column earnings"),
        (rows.with_columns(birth_year=pl.lit(1900)), "age"),
    ):
        upload(page, changed, tmp_path / "wrong.csv")
        problem = page.get_by_role("alert").inner_text()
        assert told in problem
        assert "98765" not in problem
        box = page.locator("#problem").bounding_box()
        assert 0 <= box["y"] <= 844 - box["height"]
    page.select_option("#by", "sex")
    upload(page, rows.drop("sex"), tmp_path / "unknown.parquet")
    assert "male and female, which no group has" in page.get_by_role("alert").inner_text()
    page.fill("#until", "2030.5")
    page.keyboard.press("Tab")
    page.wait_for_selector("#problem:has-text('a whole number (Up to the year). Correct it.')")
    page.close()


@pytest.mark.thorough
def test_a_file_is_named_and_a_refused_one_leaves_none_before_it_chosen(
    service: Running, visit: Callable[..., Page], tmp_path: Path
) -> None:
    page = visit(service.url + OWN)
    rows = panel_of(12, 12)
    chosen = "document.getElementById('persons').selectedOptions[0].text"
    upload(page, rows, tmp_path / "first.csv")
    assert page.evaluate(chosen) == "first.csv: 24 persons"
    assert words(page, "#who").startswith("first.csv: 24 persons, ")
    upload(page, rows.rename({"earnings": "income"}), tmp_path / "second.csv")
    assert "first" not in page.inner_text("#persons")
    assert "second.csv" in page.evaluate(chosen)
    page.get_by_role("button", name="Show the forecast").click()
    page.wait_for_selector("#problem:has-text('Choose a file of persons')")
    assert not page.is_visible("#answer")
    upload(page, rows, tmp_path / "third.csv")
    assert page.evaluate(chosen) == "third.csv: 24 persons"


@pytest.mark.thorough
def test_persons_who_join_later_count_as_in_the_library(
    service: Running, visit: Callable[..., Page], tiny_bundle: Path, tmp_path: Path
) -> None:
    rows = panel_of(60, 60)
    entrants = [{"year": 2026, "age": 40, "persons": 25_000.5}]
    request = replace(REQUEST, inflow=entrants_from(entrants))
    forecaster = Forecaster.load(tiny_bundle, threads=1)
    panel = read_panel(rows)
    expected = forecast_groups(forecaster, panel, request, Draws(n_paths=100)).table
    joining = tmp_path / "inflow.csv"
    joining.write_text("Year;age;persons;sex\n2026;40;25 000,5;\n;;;\n", encoding="utf-8")
    page = visit(service.url + OWN)
    page.wait_for_selector("#status:text('Choose the file')")
    page.get_by_text("Persons who join later").click()
    for name in ("own.csv", "own.parquet"):
        page.select_option("#joining", "")
        upload(page, rows, tmp_path / name)
        page.set_input_files("#joining-file", joining)
        page.wait_for_selector("#who:text('Those of your file join')", timeout=TIMEOUT)
        page.wait_for_selector("#status:text('The forecast is shown.')", timeout=TIMEOUT)
        table = downloaded(page, tmp_path)
        shown = table.select("year", "sex", "statistic", "value", "lower_90", "upper_90")
        of_groups = expected.filter(pl.col("statistic") != "chance").select(shown.columns)
        assert shown.cast(of_groups.schema).equals(of_groups)
    assert "those who have joined" in words(page, "#sentences")
    page.select_option("#scenario", "recession-1990s")
    page.wait_for_selector("#problem p")
    assert "nobody who joins later" in page.get_by_role("alert").inner_text()


@pytest.mark.thorough
def test_a_wrong_file_of_those_who_join_is_told_its_line(
    service: Running, browser: Any, tmp_path: Path
) -> None:
    page = browser.new_page()
    page.goto(service.url + OWN)
    page.wait_for_selector("#status:text('Choose the file')")
    for text, told in (
        ("year,age\n2030,20\n", "It lacks persons: rename"),
        ("year,age,persons,earnings\n2030,20,5,1\n", "column earnings"),
        ("year,age,persons\n2030,20,\n", "Line 2: persons is missing"),
        ("year,age,persons\n,,\n2030,20,\n", "Line 3: persons is missing"),
        ("year,age,persons\n30,20,5\n", "four digits"),
        ("year,age,persons\n2030,20,many\n", "persons is not a number"),
        ("year,age,persons\n2030,20,1,000\n", "Line 2 has more cells"),
        ("year,age,persons,sex\n2030,20,5\n", "Line 2 has fewer cells"),
        ("year,age,persons\n", "has no row"),
        ("PK\3\4", "perhaps a workbook of Excel"),
    ):
        (tmp_path / "inflow.csv").write_text(text)
        page.evaluate("document.getElementById('problem').replaceChildren()")
        page.set_input_files("#joining-file", tmp_path / "inflow.csv")
        page.wait_for_selector("#problem p", timeout=TIMEOUT)
        assert told in page.get_by_role("alert").inner_text()
    page.close()


@pytest.mark.thorough
def test_a_scenario_beside_it_has_the_same_seed(
    service: Running, visit: Callable[..., Page], tmp_path: Path
) -> None:
    page = visit(service.url + OWN)
    upload(page, panel_of(14, 16), tmp_path / "own.csv")
    alone = downloaded(page, tmp_path)
    page.select_option("#scenario", "recession-1990s")
    page.wait_for_selector("#scenario-line")
    both = downloaded(page, tmp_path)
    before = both.filter(scenario="baseline")
    assert before.select(alone.columns).equals(alone)
    assert before["effect"].null_count() == before.height
    after = both.filter(scenario="recession-1990s", statistic="total").join(
        before, on=["statistic", "sex", "year"]
    )
    apart = after["value"] - after["value_right"] - after["effect"]
    assert apart.abs().to_numpy().max() <= 150  # three amounts, each rounded to 100
    ends = {
        (sex, year): [f"{100 * end / value:+.0f}" for end in (low, high)]
        for sex, year, value, low, high in after.select(
            "sex", "year", "value_right", "effect_lower_90", "effect_upper_90"
        ).rows()
    }
    values = both.pivot("scenario", index=["statistic", "sex", "year"], values="value")
    change = 100 * (pl.col("recession-1990s") / pl.col("baseline") - 1)
    of = {row[:3]: row[3] for row in values.with_columns(change=change).drop(SCENARIOS).rows()}
    sums = {year: of["total", "total", year] for year in range(2023, 2031)}
    most = max(sums, key=lambda year: abs(sums[year]))
    told = words(page, "#sentences")
    for what, moved in (
        (f"the sum of {most}", sums[most]),
        ("the sum of 2030", sums[2030]),
        ("the mean present value of a lifetime", of["lifetime_mean", "total", None]),
        ("that of the group female", of["lifetime_mean", "female", None]),
    ):
        assert f"{what} is {abs(moved):.1f} % {'higher' if moved > 0 else 'lower'} (" in told
    low, high = (end.replace("-", "\u2212") for end in ends["total", 2030])
    assert f"({low} to {high} %)" in told
    for kind in ("SVG", "PNG"):
        with page.expect_download() as waiting:
            page.get_by_role("button", name=kind).click()
        waiting.value.save_as(tmp_path / kind)
    picture = (tmp_path / "SVG").read_text(encoding="utf-8")
    assert "Sum of earnings: " in picture
    assert "Simulated people, not real" in picture
    assert "Grey: other groups." in re.sub("<[^>]*>", " ", picture)
    assert "var(--" not in picture
    assert (tmp_path / "PNG").read_bytes().startswith(b"\x89PNG")


@pytest.mark.thorough
def test_a_link_has_the_options_and_nothing_of_a_file(
    service: Running, visit: Callable[..., Page], tmp_path: Path
) -> None:
    page = visit(service.url + OWN)
    upload(page, panel_of(14, 16), tmp_path / "own.csv")
    page.select_option("#by", "birth_year")
    page.wait_for_selector("#status:text('is shown')")
    page.get_by_role("button", name="Copy link").click()
    assert "by=birth_year&within=&until=2030" in page.url
    assert not [text for text in ("197", "198", "male", "own") if text in page.url]
    linked = visit(page.url)
    linked.wait_for_selector("#status:text('Choose the file')")
    assert linked.input_value("#by") == "birth_year"


@pytest.mark.thorough
def test_a_link_keeps_a_comparison_of_which_only_an_answer_tells_the_levels(
    service: Running, visit: Callable[..., Page]
) -> None:
    page = visit(f"{service.url}#view=many&by=age&compare=30-39&against=40-49&until=2024")
    page.wait_for_selector("#sentences p:has-text('The mean of 30-39 is')", timeout=TIMEOUT)
    page.wait_for_selector("#compare option[value='50-59']", state="attached")
    pair = [page.input_value(f"#{name}") for name in ("compare", "against")]
    assert pair == ["30-39", "40-49"]


@pytest.mark.thorough
def test_each_view_keeps_what_it_showed(
    service: Running, visit: Callable[..., Page], tmp_path: Path
) -> None:
    page = visit(service.url + OWN)
    upload(page, panel_of(14, 16), tmp_path / "own.csv")
    many = words(page, "#sentences")
    page.get_by_role("link", name="One person").click()
    page.wait_for_selector("#life-figures svg:nth-of-type(3)")
    assert page.get_by_role("heading", level=1).inner_text() == "What may this person earn?"
    page.get_by_role("link", name="Many persons").click()
    assert words(page, "#sentences") == many
    page.go_back()
    page.wait_for_selector("#who:text('born')")


@pytest.mark.thorough
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_telephone_reads_aloud_and_prints(
    service: Running, visit: Callable[..., Page], tmp_path: Path, scheme: str
) -> None:
    page = visit(service.url + OWN, viewport={"width": 390, "height": 844}, color_scheme=scheme)
    upload(page, panel_of(14, 16), tmp_path / "own.csv")
    page.select_option("#scenario", "high-growth")
    page.wait_for_selector("#scenario-line")
    page.get_by_text("Year by year").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert serious_findings(page) == []
    charts = page.get_by_role("img").evaluate_all(
        "all => all.map(chart => chart.getAttribute('aria-label'))"
    )
    assert len(charts) == 5
    assert all("90 % band" in label for label in charts)
    page.emulate_media(media="print")
    assert not page.locator("form").is_visible()
    assert not page.locator("nav").is_visible()
    assert page.locator("#figures svg").first.is_visible()
