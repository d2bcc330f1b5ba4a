"""The picture of one person: the published numbers, plain sentences, files of their own."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.errors import InputError, UsageError
from saga.forecast_results import Forecasts
from saga.forecaster import Forecaster
from saga.pages.format import NOT_TESTED, about, chance
from saga.pages.person import (
    PHONE,
    SIMULATED,
    SMALL,
    ChartSize,
    ForecastPicture,
    describe_set,
    describe_year,
    draw_person,
)
from saga.requests import ForecastRequest
from tests.command_line import done, refusal

PEOPLE = """person_id,year,birth_year,earnings
007,2016,1980,300000
007,2018,1980,310000
007,2019,1980,
007,2022,1980,0
<b>,2022,1990,250000
old,2022,1958,250000
"""
REQUEST = ForecastRequest(
    horizons=range(1, 9), coverage=(0.5, 0.9), quantiles=(0.05, 0.25, 0.5, 0.75, 0.95)
)


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("people") / "people.csv"
    path.write_text(PEOPLE)
    return path


@pytest.fixture(scope="module")
def panel(people: Path) -> Panel:
    return read_panel(people).only(["007", "<b>"])


@pytest.fixture(scope="module")
def forecasts(tiny_bundle: Path, panel: Panel) -> Forecasts:
    return Forecaster.load(tiny_bundle, threads=1).forecast(panel, REQUEST)


def chart_rows(picture: ForecastPicture) -> list[dict[str, Any]]:
    """The rows from which the chart is drawn."""
    datasets = picture.chart.to_dict()["datasets"]
    return [row for rows in datasets.values() for row in rows]


def test_the_chart_has_the_published_numbers_and_the_record(
    forecasts: Forecasts, panel: Panel
) -> None:
    picture = forecasts.plot("007")
    table = forecasts.table.filter(person_id="007")
    columns = {"p_zero": "p_zero", "median": "q50"}
    columns |= {"from_50": "q25", "to_50": "q75", "from_90": "q05", "to_90": "q95"}
    rows = {row["year"]: row for row in chart_rows(picture) if row.get("p_zero") is not None}
    assert list(rows) == table["year"].to_list()
    for row in table.iter_rows(named=True):
        assert {name: rows[row["year"]][name] for name in columns} == {
            name: row[quantile] for name, quantile in columns.items()
        }
    record = panel.frame.filter(person_id="007").select("year", "earnings").rows()
    past = {(r["year"], r["earnings"]) for r in chart_rows(picture) if "earnings" in r}
    known = {year: earnings for year, earnings in record if earnings is not None}
    assert past >= set(known.items())
    missing = set(range(min(known), max(known))) - set(known)
    assert past >= {(year, None) for year in missing}  # which break the line


@pytest.mark.parametrize(
    ("p_zero", "top"), [(0.0, None), (0.04, 0.1), (0.1, 0.1), (0.11, 0.2), (0.3, 0.5), (1.0, 1.0)]
)
def test_the_chance_of_no_earnings_is_to_be_seen_and_has_its_number(
    p_zero: float, top: float | None
) -> None:
    """A panel in which nobody is without earnings has no empty strip below."""
    rows = forecast_rows({"90": ["assumption"] * 2}).with_columns(
        p_zero=pl.when(pl.col("p_zero").is_not_null()).then(p_zero)
    )
    chart = draw_person(rows, "SEK", marked=rows.row(-1, named=True)).to_dict()
    assert len(chart["vconcat"]) == (1 if top is None else 2)
    if top is None:
        return
    bars, number = chart["vconcat"][1]["layer"]
    assert bars["encoding"]["y"]["scale"]["domain"] == [0, top]
    assert number["encoding"]["text"]["value"] == chance(p_zero)
    assert str(rows["year"][-1]) in number["transform"][0]["filter"]


def test_a_person_must_be_named_among_several_and_be_there(forecasts: Forecasts) -> None:
    with pytest.raises(UsageError, match="There are 2 persons"):
        forecasts.plot()
    with pytest.raises(InputError, match="cannot be drawn") as raised:
        forecasts.plot("nobody")
    assert raised.value.problems[0].person_id == "nobody"
    without_median = replace(forecasts, table=forecasts.table.drop("q50"))
    with pytest.raises(UsageError, match="needs the median"):
        without_median.plot("007")


@pytest.mark.parametrize("suffix", [".html", ".svg"])
def test_a_file_says_what_the_numbers_are_and_needs_no_other_file(
    forecasts: Forecasts, tmp_path: Path, suffix: str
) -> None:
    picture = forecasts.plot("<b>")
    text = picture.save(tmp_path / f"p{suffix}").read_text(encoding="utf-8")
    words = re.sub(r"<[^>]*>|\s+", " ", text)
    assert SIMULATED in words
    assert "the chance of no earnings is" in words
    assert "<b>" not in text, "ids are escaped"
    addresses = re.findall(r"https?://[^\"' ]+", text)
    assert {a for a in addresses if not a.startswith("http://www.w3.org/")} == set()
    assert "<script" not in text
    real = tuple(w for w in picture.warnings if w.code != "simulated-people")
    trained_on_records = replace(picture, warnings=real)
    assert "simulated" not in trained_on_records._repr_html_().lower()
    assert "Simulated" in picture._repr_html_()


YEAR = {
    "horizon": 5,
    "year": 2027,
    "median": 412_345.0,
    "p_zero": 0.0712,
    "lower_80": 210_400.0,
    "upper_80": 640_000.0,
    "includes_zero_80": False,
    "guarantee_80": "assumption",
}
FIFTY = {"lower_50": 300_000.0, "upper_50": 500_000.0, "guarantee_50": "assumption"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "the 80 % set is 210,000 to 640,000"),
        ({"includes_zero_80": True}, "the 80 % set is 0 or 210,000 to 640,000"),
        ({"includes_zero_80": True, "lower_80": 0.0}, "the 80 % set is 0 to 640,000"),
        ({"lower_80": 0.0, "upper_80": 0.0}, "the 80 % set is no earnings alone"),
        ({"lower_80": 1.0}, "the 80 % set is above 0 to 640,000"),
        ({"lower_80": None, "upper_80": None}, "there is no set of stated coverage"),
        (
            {"guarantee_80": "extrapolated"},
            "the 80 % set is 210,000 to 640,000 (coverage not tested)",
        ),
        (
            {"guarantee_80": "extrapolated", **FIFTY},
            "the 50 % set is 300,000 to 500,000",  # what is tested goes first
        ),
        ({"lower_80": None, "upper_80": None, **FIFTY}, "the 50 % set is 300,000 to 500,000"),
    ],
)
def test_a_sentence_describes_the_published_set(changes: dict[str, Any], words: str) -> None:
    assert describe_set(YEAR | changes) == words


def test_a_sentence_gives_the_median_and_the_chance_of_no_earnings() -> None:
    assert describe_year(YEAR, "SEK of 2022") == (
        "In 2027, 5 years after the record ends, earnings are as likely to be above as below "
        "412,000 SEK of 2022; the 80 % set is 210,000 to 640,000, and the chance of no earnings is "
        "7 %."
    )
    assert "more likely than having some" in describe_year(YEAR | {"median": 0.0}, "SEK of 2022")
    shares = [chance(p) for p in (0.0, 0.004, 0.5, 0.996, 1.0)]
    assert shares == ["0 %", "below 1 %", "50 %", "above 99 %", "100 %"]


def test_the_command_draws_one_person_and_refuses_what_it_cannot_draw(
    tiny_bundle: Path, people: Path, tmp_path: Path
) -> None:
    out = tmp_path / "new" / "p.html"
    drawn = done(f"plot {people} --person 007 --bundle {tiny_bundle} --out {out}")
    assert "the chance of no earnings is" in drawn.stdout
    assert "What this person may earn" in out.read_text(encoding="utf-8")
    for arguments, words in (
        ("--person 008", "with the zeros at its start"),
        ("--person old", "no year remains"),
        ("", "Name the one to draw"),
        ("--person 007 --coverage 2", "strictly between 0 and 1"),
    ):
        assert words in refusal(f"plot {people} --bundle {tiny_bundle} --out {out} {arguments}")
    refusal(f"plot {people} --person 007 --bundle {tiny_bundle} --out {tmp_path / 'p.gif'}")


LABELS = ("50", "80", "90")
GUARANTEES = ("assumption", "extrapolated", "none", None)  # None: the year is not in the table
Guarantees = list[str | None]


def forecast_rows(guarantees: dict[str, Guarantees]) -> pl.DataFrame:
    """A record, and a forecast whose ranges and sets have these guarantees."""
    ahead: list[dict[str, Any]] = [{"year": 2022, "earnings": 300_000.0}]
    for h, words in enumerate(zip(*guarantees.values(), strict=True), start=1):
        if None in words:
            continue
        row: dict[str, Any] = {"year": 2022 + h, "horizon": h, "median": 3e5, "p_zero": 0.1}
        for i, (label, word) in enumerate(zip(guarantees, words, strict=True)):
            ends = (3e5 - 1e5 * (i + 1), 3e5 + 1e5 * (i + 1))
            row |= {f"from_{label}": ends[0], f"to_{label}": ends[1]}
            lower, upper = ends if word != "none" else (None, None)
            row |= {f"lower_{label}": lower, f"upper_{label}": upper}
            row |= {f"guarantee_{label}": word, f"includes_zero_{label}": False}
        ahead.append(row)
    return pl.DataFrame(ahead, infer_schema_length=None)


def drawn_years(rows: pl.DataFrame) -> tuple[dict[float, list[int]], dict[float, set[int]]]:
    """Upper end of the ranges -> years of its shades and bars, and -> years of its outlines."""
    chart = draw_person(rows, "SEK").to_dict()
    filled: dict[float, list[int]] = {}
    outlined: dict[float, set[int]] = {}
    for layer in chart["vconcat"][0]["layer"]:
        kind, data = layer["mark"]["type"], chart["datasets"][layer["data"]["name"]]
        shown = {row["year"]: row["to"] for row in data if row.get("to") is not None}
        for year, upper in shown.items():
            if kind in ("area", "bar") and layer["mark"].get("filled", True):
                filled.setdefault(upper, []).append(year)
            else:
                outlined.setdefault(upper, set()).add(year)
    return filled, outlined


@pytest.mark.parametrize("seed", range(6))
def test_what_was_tested_is_filled_what_was_not_is_outlined_and_nothing_else_is_drawn(
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    # Guarantees in any order, and years that are not in the table.
    drawn = rng.choice(
        np.array(GUARANTEES, dtype=object), (len(LABELS), 24), p=[0.4, 0.4, 0.1, 0.1]
    )
    guarantees = dict(zip(LABELS, drawn.tolist(), strict=True))
    rows = forecast_rows(guarantees)
    filled, outlined = drawn_years(rows)
    for i, label in enumerate(LABELS):
        words = dict(rows.drop_nulls("horizon").select("year", f"guarantee_{label}").iter_rows())
        upper = 3e5 + 1e5 * (i + 1)
        tested = [year for year, word in words.items() if word == "assumption"]
        beyond = words.keys() - set(tested)
        assert sorted(filled.get(upper, [])) == tested
        assert outlined.get(upper, set()) >= beyond
        # An outline begins at the last tested year beside it, and nowhere else.
        begins = outlined.get(upper, set()) - beyond
        assert begins == {y for y in tested if {y - 1, y + 1} & beyond}


@pytest.mark.parametrize(
    ("changes", "ends"),
    [
        ({}, (210_400.0, 640_000.0, [])),
        ({"guarantee_80": "extrapolated"}, (210_400.0, 640_000.0, [4, 3])),
        ({"lower_80": None, "upper_80": None}, None),
    ],
)
@pytest.mark.parametrize("n_years", [5, 8])
def test_the_set_that_the_sentence_names_is_drawn_at_its_year(
    changes: dict[str, Any], ends: tuple[float, float, list[int]] | None, n_years: int
) -> None:
    """In the last year its name is to the left, because those of the ranges are to the right."""
    rows = forecast_rows({"50": ["assumption"] * n_years})
    chart = draw_person(rows, "SEK", marked=YEAR | changes).to_dict()
    sets = [layer for layer in chart["vconcat"][0]["layer"] if layer["mark"]["type"] == "rule"]
    drawn = [chart["datasets"][layer["data"]["name"]][0] for layer in sets]
    assert [
        (row["lower"], row["upper"], layer["mark"]["strokeDash"])
        for layer, row in zip(sets, drawn, strict=True)
    ] == ([ends] if ends else [])
    assert all(row["year"] == 2027 and row["name"] == "80 % set" for row in drawn)
    marks = [layer["mark"] for layer in chart["vconcat"][0]["layer"]]
    of_sets = [mark["align"] for mark in marks if mark["type"] == "text" and mark.get("dy") == -8]
    assert of_sets == (["right" if n_years == 5 else "center"] if ends else [])


@pytest.mark.parametrize("size", [ChartSize(), PHONE, SMALL])
@pytest.mark.parametrize("labels", [["50"], ["50", "80", "90"]])
def test_lines_and_shades_have_their_names_beside_them(labels: list[str], size: ChartSize) -> None:
    rows = forecast_rows({label: ["assumption"] * 8 for label in labels})
    chart = draw_person(rows, "SEK", size).to_dict()
    texts = [layer for layer in chart["vconcat"][0]["layer"] if layer["mark"]["type"] == "text"]
    named = [row for layer in texts for row in chart["datasets"][layer["data"]["name"]]]
    names = ["median", *(f"middle {label} %" for label in labels), "record"]
    assert [row["name"] for row in named] == (names if size.is_large else [])
    places = [row["value"] for row in named[:-1]]
    least = 0.06 * rows[f"to_{labels[-1]}"].max()  # type: ignore[operator]
    assert all(high - low > 0.99 * least for low, high in pairwise(places))


@pytest.mark.parametrize("n_beyond", [0, 5])
def test_the_legend_and_the_table_say_which_coverage_was_not_tested(
    forecasts: Forecasts, n_beyond: int
) -> None:
    tested: Guarantees = ["assumption"] * 8
    of_90: Guarantees = [*["assumption"] * (8 - n_beyond), *["extrapolated"] * n_beyond]
    rows = forecast_rows({"50": tested, "90": of_90})
    picture = replace(forecasts.plot("007"), rows=rows)
    assert picture._page().count(f"({NOT_TESTED})") == n_beyond
    assert (f"middle 90 %: {NOT_TESTED}" in picture.page_svgs[0]) == (n_beyond > 0)


@pytest.mark.parametrize(
    ("amount", "words"),
    [(3805, "3,810"), (3795, "3,800"), (412345.0, "412,000"), (0, "0"), (999.5, "1,000")],
)
def test_halves_are_rounded_up_as_a_browser_does(amount: float, words: str) -> None:
    """The explorer has `Number.toPrecision`, which takes the larger of two equally near numbers."""
    assert about(amount) == words
