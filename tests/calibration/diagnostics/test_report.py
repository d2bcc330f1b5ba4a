"""The report shows the tables, loads nothing from outside, and needs no colour vision."""

from __future__ import annotations

import base64
import io
import re
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from html import unescape
from itertools import pairwise
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import polars as pl
import pytest
from saga.api.settings import Settings
from saga.calibration.diagnostics.diagnosis import diagnose
from saga.calibration.diagnostics.example_persons import (
    draw_example_persons,
    invent_persons,
    tabulate_example_persons,
)
from saga.calibration.diagnostics.verdicts import MIN_VERDICT_PERSONS, MISS, POWER

from saga.bundle import Bundle
from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.diagnostics_tables import STATUSES, TABLES, Diagnostics
from saga.forecaster import Forecaster
from saga.pages.format import listed, percent, short_percent
from saga.pages.layout import MARK
from saga.pages.report import SHORT_ANSWERS, make_brief, render_report, years_ahead
from saga.pages.uses import decide_uses
from saga.requests import Draws
from saga.summaries import count
from tests.command_line import answer, done, refusal


def words_of(html: str) -> str:
    """The text without tags, and without spaces beside one another."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())


def parts_of(html: str, tags: str) -> list[str]:
    """The elements with one of the tags, with what is in them."""
    return [found[0] for found in re.finditer(rf"<({tags})\b.*?</\1>", html, re.DOTALL)]


@dataclass(frozen=True)
class Page:
    """The HTML of a report."""

    text: str

    @property
    def tables(self) -> dict[str, list[list[str]]]:
        """Rows of cell texts, by the caption that every table has."""
        return {
            words_of(parts_of(table, "caption")[0]): [
                [words_of(cell) for cell in parts_of(row, "td|th")] for row in parts_of(table, "tr")
            ]
            for table in parts_of(self.text, "table")
        }

    @property
    def labels(self) -> list[str]:
        """What a screen reader says instead of each picture."""
        return re.findall(r'<svg role="img" aria-label="([^"]*)"', self.text)

    @property
    def links(self) -> dict[str, str]:
        """The addresses of files to download."""
        links = re.findall(r"<a [^>]*download[^>]*>", self.text)
        names, places = (
            [re.findall(rf'\b{name}="([^"]*)"', link)[0] for link in links]
            for name in ("download", "href")
        )
        return dict(zip(names, places, strict=True))


@pytest.fixture(scope="module")
def text(faultless: Diagnostics) -> str:
    return render_report(faultless, bundle="holder")


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def test_nothing_is_loaded_from_outside(text: str, page: Page) -> None:
    assert not re.search(r"https?:|//[a-z]|@import|<script|<link|<iframe", text)
    assert "default-src 'none'" in text
    assert all(link.startswith("data:text/csv") for link in page.links.values())
    assert len(text.encode()) < 3_000_000


def test_pictures_have_words_and_headings_have_order(page: Page) -> None:
    assert len(page.labels) == 12
    assert all(len(label) > 40 for label in page.labels)
    headings = [int(level) for level in re.findall(r"<h([1-6])\b", page.text)]
    assert headings.index(1) == 0
    assert headings.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(headings))
    ids = re.findall(r'\bid="([^"]*)"', page.text)
    assert len(set(ids)) == len(ids)


def test_downloads_are_the_tables(faultless: Diagnostics, page: Page) -> None:
    assert set(page.links) == {f"{name}.csv" for name in TABLES}
    for name, columns in TABLES.items():
        data = base64.b64decode(page.links[f"{name}.csv"].split(",", 1)[1])
        assert pl.read_csv(io.BytesIO(data), schema=columns.schema).equals(faultless[name]), name


def test_the_rule_of_the_verdicts_is_the_one_that_decides_them(page: Page) -> None:
    rule = " ".join(page.text[page.text.index("How the verdicts are decided") :].split())
    assert f"there are {MIN_VERDICT_PERSONS} persons or more" in rule
    assert MISS == 2
    assert f"twice these amounts would have left the band with a probability of {POWER:.0%}" in (
        rule.replace("80 %", "80%")
    )


def test_numbers_on_the_page_are_those_of_the_tables(faultless: Diagnostics, page: Page) -> None:
    everybody = faultless["coverage"].filter(grouping="all")
    shown = page.tables["Share inside, by years ahead"][1:]
    for row, cells in zip(everybody.iter_rows(named=True), shown, strict=True):
        assert cells[:4] == [
            str(row["horizon"]),
            percent(row["coverage"], 0),
            f"{row['n']:,}",
            percent(row["inside"]),
        ]
        assert cells[4:7] == [
            f"{percent(row['band_lower'])} to {percent(row['band_upper'])}",
            percent(row["under"]),
            percent(row["over"]),
        ]
    for name, caption in (
        ("reliability", "How often the event happened"),
        ("periods", "By year of the outcome"),
        ("mean_error", "Forecast and outcome"),
    ):
        assert len(page.tables[caption]) - 1 == faultless[name].height
    told = {
        question
        for question, status in faultless["verdicts"].select("question", "status").iter_rows()
        if status != "unclear"
    }
    lights = page.tables[f"{count(len(told), 'question')}, by years ahead"]
    words = {"holds": "✓ holds", "unclear": "? cannot tell", "watch": "! watch", "fails": "✗ fails"}
    assert set(words) == set(STATUSES)
    # Several years together are not judged one year ahead.
    flat = [cell for row in lights[1:] for cell in row[1:] if cell != "-"]
    judged = faultless["verdicts"].filter(pl.col("question").is_in(told))["status"]
    assert flat == [words[status] for status in judged], "questions without a verdict have no row"


def test_a_hidden_group_shows_no_number(page: Page) -> None:
    rows = {
        row[0]: row[1:]
        for row in page.tables["Share inside the 90 % intervals, by group and years ahead"]
    }
    assert rows["Born in: Europe"] == ["? cannot tell fewer than 10"] * 2
    assert re.fullmatch(r"\? cannot tell \d\d\.\d % of [\d,]+", rows["Born in: Sweden"][0])
    widths = {
        row[0]: row[1:]
        for row in page.tables[next(c for c in page.tables if c.startswith("Typical width"))]
    }
    assert widths["Born in: Europe"] == ["-", "-"]


def with_status(diagnostics: Diagnostics, **statuses: str) -> Diagnostics:
    """The diagnostics with other verdicts on some questions."""
    changed = pl.col("question").replace_strict(statuses, default=pl.col("status")).alias("status")
    return Diagnostics(
        {**diagnostics.tables, "verdicts": diagnostics["verdicts"].with_columns(changed)}
    )


UNIT = "SEK a year, prices of 2022"


def test_an_error_of_the_sum_has_one_figure_and_an_interval_its_coverage_horizon_and_unit(
    faultless: Diagnostics,
) -> None:
    horizon, (budget, one_person, _) = decide_uses(faultless.tables, 0.9, UNIT, simulated=False)
    (of_all,) = faultless["sums"].filter(grouping="all", horizon=horizon).to_dicts()
    table = Page(render_report(faultless)).tables
    shown = next(rows for caption, rows in table.items() if caption.startswith("Mean earnings of"))
    difference = next(row[4] for row in shown if row[0] == f"{horizon}")
    assert difference == percent(of_all["size"])
    assert short_percent(of_all["size"]) in budget.reason
    assert f"90 % interval {horizon} year" in one_person.reason
    assert UNIT in one_person.reason


@pytest.mark.parametrize(
    ("size", "words"),
    [(0.0004, "less than 0.1 % above"), (-0.0004, "less than 0.1 % below"), (0.02, "2 % above")],
)
def test_a_sum_that_is_hardly_off_is_not_said_to_be_off_by_nothing(
    faultless: Diagnostics, size: float, words: str
) -> None:
    sums = faultless["sums"].with_columns(size=pl.lit(size))
    _, (budget, *_) = decide_uses({**faultless.tables, "sums": sums}, 0.9, UNIT, simulated=False)
    assert f"the true total was {words} the forecast total" in budget.reason


@pytest.mark.parametrize(
    ("status", "size", "n_judged", "sides"),
    [
        ("watch", 0.01, 4, ["more"]),
        ("watch", -0.01, 4, ["fewer"]),
        ("holds", 0.01, 4, ["holds"]),
        ("holds", 0.01, 1, ["partly"]),
    ],
)
def test_the_short_answer_claims_no_more_than_was_judged(
    faultless: Diagnostics, status: str, size: float, n_judged: int, sides: list[str]
) -> None:
    judged = with_status(faultless, coverage=status)
    of_size = judged["verdicts"].with_columns(size=pl.lit(size), figures=4, judged=n_judged)
    brief = make_brief(replace(judged, tables={**judged.tables, "verdicts": of_size}))
    horizons = years_ahead(faultless["verdicts"]["horizon"].unique().sort().to_list())
    assert brief.answers[: len(sides)] == [SHORT_ANSWERS[side].format(horizons) for side in sides]


def answers(diagnostics: Diagnostics, *, simulated: bool = False) -> list[str]:
    return [use.answer for use in decide_uses(diagnostics.tables, 0.9, UNIT, simulated)[1]]


@pytest.mark.parametrize(
    ("of_sum", "answer"),
    [("holds", "Yes"), ("watch", "With care"), ("unclear", "Not known"), ("fails", "No")],
)
def test_a_budget_is_as_safe_as_the_sum_and_no_single_person_is(
    faultless: Diagnostics, of_sum: str, answer: str
) -> None:
    judged = with_status(faultless, sum=of_sum)
    assert answers(judged)[:2] == [answer, "No"]
    on_simulated = answers(judged, simulated=True)[0]
    assert on_simulated == ("Not yet for real people" if answer == "Yes" else answer)


@pytest.mark.parametrize("n", [9, 15, 60])
def test_a_report_of_few_persons_says_what_is_not_shown(
    diagnosed: Callable[..., Diagnostics], n: int
) -> None:
    few = diagnosed(n=n)
    assert answers(few) == ["Not known", "No", "Not known"]
    page = Page(render_report(few))
    assert "--folds" in page.text, "what to do is said"
    assert len(page.labels) + page.text.count("not shown, because too few") >= 8
    assert (n < 10) == (not page.labels)
    assert all(len(rows) > 1 for rows in page.tables.values()), "no table is a header alone"
    said = words_of(page.text[page.text.index("<main") :])
    assert not re.search(r", \.|stored before", said)


@pytest.mark.thorough
def test_the_command_names_its_files_and_has_the_words_of_the_page(tmp_path: Path) -> None:
    out, brief = tmp_path / "report.html", tmp_path / "brief.pdf"
    said = done("report", "--out", out, "--brief", brief).stdout
    assert f"Wrote {out} and {brief}: of " in said
    assert "cannot tell" in said
    assert "unclear" not in said


def test_a_person_is_missed_as_often_as_the_coverage_says(faultless: Diagnostics) -> None:
    for coverage, outside in ((0.8, 5), (0.9, 10)):
        _, (_, one_person, _) = decide_uses(faultless.tables, coverage, UNIT, simulated=False)
        assert one_person.reason.startswith(f"Even {100 * coverage:.0f} % intervals that hold ")
        assert f"one person in {outside}, " in one_person.reason


@pytest.mark.parametrize("suffix", [".pdf", ".docx"])
def test_a_brief_is_one_page_with_the_answers_of_the_report(
    faultless: Diagnostics, tmp_path: Path, suffix: str
) -> None:
    brief, out = make_brief(faultless), tmp_path / f"brief{suffix}"
    _, uses = decide_uses(faultless.tables, 0.9, UNIT, simulated=False)
    assert [use.question for use in brief.uses] == [use.question for use in uses]
    brief.write(out)
    first = out.read_bytes()
    if suffix == ".pdf":
        assert first.startswith(b"%PDF")
        assert first.count(b"/Type /Page\n") + first.count(b"/Type/Page\n") <= 1
        return
    with ZipFile(out) as parts:
        text = unescape(re.sub(r"<[^>]*>", "", parts.read("word/document.xml").decode()))
        assert not re.search(r"\d %", text), "a number and its sign are on one line"
        text = text.replace("\N{NO-BREAK SPACE}", " ")
        assert any(name.endswith(".png") for name in parts.namelist())
    for part in (*brief.answers, *(use.reason for use in brief.uses), brief.caption):
        assert part in text


@pytest.mark.parametrize(("p_zero", "wide"), [(0.1, 9.0), (0.0, None)])
def test_examples_are_described_as_they_are_drawn(
    faultless: Diagnostics, p_zero: float, wide: float | None
) -> None:
    """A panel may have nobody without earnings, and too few persons for 90 % intervals."""
    person = {"person": 1, "kind": "Short record"}
    years = [
        {**person, "year": 2022, "age": 40, "earnings": 5.0},
        {**person, "year": 2023, "age": 41, "horizon": 1, "median": 5.0, "p_zero": p_zero}
        | {"lower_50": 4.0, "upper_50": 6.0, "lower_90": wide and 1.0, "upper_90": wide},
    ]
    people = pl.concat([faultless["people"], pl.DataFrame(years)], how="diagonal_relaxed")
    text = render_report(replace(faultless, tables={**faultless.tables, "people": people}))
    assert f"should contain {'50, 90' if wide else '50'} in 100 outcomes" in text
    assert ("The bars below show the probability of no earnings" in text) == (p_zero > 0)


def test_few_persons_get_one_page_that_says_what_is_known_and_what_to_do(
    faultless: Diagnostics,
) -> None:
    """Everything else is folded; persons needed are those whose band would reach 2 points."""
    few = {
        **faultless.tables,
        "verdicts": faultless["verdicts"].with_columns(status=pl.lit("unclear")),
        "coverage": faultless["coverage"].with_columns(band_lower=pl.col("coverage") - 0.1),
    }
    few_judged = replace(faultless, tables=few)
    page = Page(render_report(few_judged))
    known = page.tables["The widest intervals that there are, by years ahead"][1:]
    for row, n in zip(known, faultless["guarantees"]["n"], strict=True):
        needed = int(float(f"{n * (0.1 / 0.02) ** 2:.1g}"))
        bounds = ["90 %", "below 80 % inside", "80 % to 90 % inside"]
        assert row[1:] == [f"{n:,}", *bounds, f"{needed:,}"]
    ahead = known[-1][0]
    *_, needed_in_all, next_step = make_brief(few_judged).answers
    counts = listed(row[1] for row in known)
    assert f"{ahead} years ahead {counts} persons were judged; about " in needed_in_all
    assert "saga evaluate --folds 5" in next_step
    assert "saga train --folds 5" in next_step
    method = pl.DataFrame([("calibration_method", "cv+")], few["provenance"].schema, orient="row")
    of_folds = replace(faultless, tables={**few, "provenance": few["provenance"].vstack(method)})
    assert "saga train" not in make_brief(of_folds).answers[-1] + render_report(of_folds)
    many = {**few, "verdicts": faultless["verdicts"].with_columns(status=pl.lit("holds"))}
    assert "--folds" not in " ".join(make_brief(replace(faultless, tables=many)).answers)
    shown = re.sub(r'<details class="all">.*</details>', "", page.text, flags=re.DOTALL)
    assert "What to do next" in shown
    assert "saga evaluate --folds 5" in shown
    assert len(words_of(shown[shown.index("<main") :]).split()) < 900
    assert not re.search("questions?, by years ahead", page.text), "there is no verdict to show"


@pytest.mark.parametrize(("panel_id", "name"), [("panel", "the panel"), ("ours", "the panel ours")])
def test_a_panel_without_a_name_has_none_on_the_page(
    panel_id: str, name: str, faultless: Diagnostics
) -> None:
    record = faultless["provenance"]
    row = pl.DataFrame([("panel", panel_id)], record.schema, orient="row")
    tables = {
        **faultless.tables,
        "provenance": record.filter(pl.col("name") != "panel").vstack(row),
    }
    page = words_of(render_report(replace(faultless, tables=tables)))
    assert f"test persons of {name} who" in page


@pytest.mark.thorough
@pytest.mark.usefixtures("two_origins")
def test_from_panel_to_bundle_to_page_and_service(
    tiny_bundle: Path,
    register_dir: Path,
    tmp_path: Path,
    start: Callable[[Settings], AbstractContextManager[Any]],
) -> None:
    bundle, judged, plain = tmp_path / "bundle", tmp_path / "judged.html", tmp_path / "plain.html"
    shutil.copytree(tiny_bundle, bundle)

    without_panel = ("report", bundle, "--out", plain)
    assert "--store" in refusal(*without_panel)
    options = f"--panel {register_dir} --paths 50 --horizons 1,5 --threads 1 --store"
    facts, stored = answer("report", bundle, "--out", judged, options), Bundle.load(bundle)
    assert facts["bundle"] == stored.digest
    assert facts["provenance"]["bundle"] == Bundle.load(tiny_bundle).digest
    assert facts["provenance"]["bundle"] == stored.manifest["parents"][-1]
    assert facts["provenance"]["calibration"] == stored.calibration_digest
    done(*without_panel)
    assert plain.read_bytes() == judged.read_bytes()
    diagnostics = Diagnostics.of_bundle(stored)
    assert diagnostics["mean_error"]["economy"].abs().max() > 0  # type: ignore[operator]
    assert diagnostics["guarantees"]["n"].to_list()[0] > 100
    for place, status, kind in ((bundle, 200, "text/html"), (tiny_bundle, 404, "application/")):
        with start(Settings(bundle=place, threads=1)) as service:
            served = service.client.get("/v1/calibration/report")
            assert served.status_code == status
            assert served.headers["content-type"].startswith(kind)
            if status == 200:
                assert f"{served.text}<!-- {MARK} -->\n" == plain.read_text(encoding="utf-8")
            else:
                assert served.json()["type"] == "urn:saga:problem:no-diagnostics"


@pytest.mark.thorough
def test_years_ahead_that_a_panel_with_gaps_lacks_give_way_to_the_next(
    tiny_bundle: Path, register_panel: Panel
) -> None:
    frame = register_panel.frame.filter(pl.col("year") % 2 == 0)
    forecaster = Forecaster.load(tiny_bundle, threads=1)
    panel, draws = register_panel.with_frame(frame), Draws(4)
    judged = diagnose(
        forecaster, panel, horizons=(1, 5, 10), draws=draws, persons=40, min_persons=1
    )
    assert set(judged["coverage"]["horizon"]) == {2, 6, 10}


def test_persons_of_a_real_panel_are_never_drawn(register_panel: Panel) -> None:
    assert register_panel.meta.simulated
    real = replace(register_panel, meta=replace(register_panel.meta, simulated=False))
    groups = pl.DataFrame({"person_id": real.persons()})
    with pytest.raises(ValueError, match="simulated panels only"):
        draw_example_persons(real, groups, seed=0)
    invented, kinds = invent_persons(real, 300_000.0)
    assert not set(invented.persons()) & set(real.persons())
    assert len(kinds) == 10


def test_examples_who_cannot_be_forecast_are_left_out(
    tiny_bundle: Path, register_panel: Panel
) -> None:
    """Nobody at the last age of the training records can be."""
    person = register_panel.persons()[0]
    record = register_panel.frame.filter(pl.col("person_id") == person)
    retired = record.with_columns(birth_year=record["year"].max() - pl.lit(64, pl.Int32))
    records = register_panel.with_frame(retired)
    forecaster = Forecaster.load(tiny_bundle, threads=1)
    assert tabulate_example_persons(forecaster, (records, {person: "Low earnings"})) == []


ROWS = {
    # Name -> birth years, years, whether some are zero, whether some cells are unknown.
    "workers of 50 and more": (range(1955, 1972), range(2012, 2022), True, True),
    "young men without zeros": (range(1957, 1964), range(1980, 1988), False, False),
    "every second year": (range(1950, 1990), range(1997, 2018, 2), True, False),
    "two years": (range(1960, 1995), range(2020, 2022), True, False),
    "gaps alone": (range(1960, 1995), range(2005, 2020), False, True),
    "nobody before retirement": (range(1954, 1956), range(2015, 2020), True, False),
    "one cohort": (range(1970, 1971), range(1995, 2010), True, False),
}


@pytest.mark.parametrize("name", ROWS)
def test_invented_persons_are_like_those_of_the_panel(name: str, tmp_path: Path) -> None:
    born, years, with_zeros, with_gaps = ROWS[name]
    rows = [
        {
            "person_id": f"{birth_year}-{i}",
            "year": year,
            "birth_year": birth_year,
            "earnings": None
            if with_gaps and (year + i) % 4 == 0
            else 0.0
            if with_zeros and (year + i) % 3 == 0
            else 200_000.0,
        }
        for birth_year in born
        for i in range(4)
        for year in years
        if 16 <= year - birth_year
    ]
    pl.DataFrame(rows).write_csv(tmp_path / "panel.csv")
    panel = read_panel(tmp_path / "panel.csv")
    invented, kinds = invent_persons(panel, 300_000.0)
    known, ours = panel.frame.drop_nulls("earnings"), invented.frame
    end, age = known["year"].max(), pl.col("year") - pl.col("birth_year")
    in_last_year = set(known.filter(pl.col("year") == end).select(age).to_series())
    assert set(kinds) == set(invented.persons())
    assert bool(kinds) == (name not in ("nobody before retirement", "one cohort"))
    assert (ours.select(age).to_series() < known.select(age).max().item()).all()
    assert set(ours["year"]) <= set(known["year"])
    assert set(ours.filter(pl.col("year") == end).select(age).to_series()) <= in_last_year
    assert (ours.select(age).to_series() >= known.select(age).min().item()).all()
    assert (ours["earnings"] == 0).any() <= with_zeros
    assert (ours["earnings"].null_count() > 0) <= with_gaps
    assert not set(invented.persons()) & set(panel.persons())
    if name == "workers of 50 and more":
        assert "Close to retirement" in kinds.values()
        assert "First years of work" not in kinds.values()
