"""Pictures of several persons and of groups have the numbers of the tables."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import polars as pl
import pytest

from saga import Forecaster, UsageError
from saga.forecast_results import Forecasts, GroupForecasts
from saga.pages.person import SIMULATED

PEOPLE = Path(__file__).resolve().parents[3] / "examples" / "people.csv"


@pytest.fixture(scope="module")
def forecasts() -> Forecasts:
    return Forecaster.load(threads=1).forecast(PEOPLE, horizons=range(1, 4))


@pytest.fixture(scope="module")
def groups(forecasts: Forecasts) -> GroupForecasts:
    """A table of two groups, in one year of which a value is suppressed."""
    rows = [
        (year, sex, statistic, None if (year, sex) == (2024, "male") else value, 0.9, 9.9)
        for sex, value in (("female", 3.25), ("male", 4.5))
        for year in (2023, 2024)
        for statistic in ("mean", "total")
    ]
    columns = ["year", "sex", "statistic", "value", "lower_90", "upper_90"]
    table = pl.DataFrame(rows, columns, orient="row")
    return GroupForecasts(table, forecasts.warnings, forecasts.panel, forecasts.provenance)


def test_each_person_of_several_is_drawn_as_alone(forecasts: Forecasts, tmp_path: Path) -> None:
    picture = forecasts.plot(["0002", "0001"])
    charts = picture.chart.to_dict()
    assert [chart["title"] for chart in charts["concat"]] == ["0002", "0001"]
    drawn = {str(row) for rows in charts["datasets"].values() for row in rows}
    for person in ("0001", "0002"):
        alone = forecasts.plot(person).chart.to_dict()["datasets"]
        rows = [row for of_layer in alone.values() for row in of_layer]
        # The set of a year is drawn on the chart of one person alone.
        assert {str(row) for row in rows if "name" not in row} <= drawn
    assert SIMULATED in picture.save(tmp_path / "p.svg").read_text(encoding="utf-8")
    assert "(dashed: coverage not tested)" in picture.alt_text
    assert picture.save(tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    assert 'role="img"' in picture._repr_html_()
    for names in (pd.Series(["0002", "0001"]), pd.Series(["0002", "0001"]).unique()):
        assert forecasts.plot(names).alt_text == picture.alt_text


@pytest.mark.parametrize("guarantee", ["assumption", "extrapolated"])
def test_printed_rows_say_which_sets_were_not_tested(forecasts: Forecasts, guarantee: str) -> None:
    table = forecasts.table.with_columns(guarantee_90=pl.lit(guarantee))
    shown = replace(forecasts, table=table)
    for text in (str(shown).split("|", 1)[1], shown._repr_html_().rsplit("<table>", 1)[1]):
        assert ("guarantee_90" in text) == (guarantee == "extrapolated")


@pytest.mark.parametrize("persons", [[], ["0001"] * 25])
def test_a_picture_has_1_to_24_persons(forecasts: Forecasts, persons: list[str]) -> None:
    with pytest.raises(UsageError, match="1 to 24 persons"):
        forecasts.plot(persons)


def test_a_person_is_named_by_text(forecasts: Forecasts) -> None:
    with pytest.raises(UsageError, match="a text such as '0001', not of type int"):
        forecasts.plot(1)  # type: ignore[call-overload]


def test_rows_that_are_printed_name_group_statistic_and_value(groups: GroupForecasts) -> None:
    heading = re.sub(" +", " ", str(groups))
    assert "| year | sex | statistic | value | lower_90 | upper_90 |" in heading
    for name in ("sex", "statistic", "value"):
        assert f"<th>{name}</th>" in groups._repr_html_()


def test_the_title_and_the_lines_name_the_groups(groups: GroupForecasts) -> None:
    chart = groups.plot().chart.to_dict()
    assert chart["title"]["text"] == [
        "female: 3.25 in 2023, 3.25 (0.900 to 9.90) in 2024",
        "male: 4.50 (0.900 to 9.90) in 2023",
    ]
    (rows,) = chart["datasets"].values()
    places = [row["place"] for row in rows if row["place"] is not None]
    assert places == [3.25, 4.5], "one at the end of each line"


@pytest.mark.parametrize(
    ("statistic", "text", "axis"),
    [
        ("total", "Sum of earnings in SEK of 2022, by year", "SEK of 2022"),
        ("zero_share", "Share of persons without earnings, by year", "share"),
        ("mean_ratio", "Mean earnings of one group over those of another, by year", "ratio"),
    ],
)
def test_pictures_say_what_is_drawn_and_in_which_unit(
    groups: GroupForecasts, statistic: str, text: str, axis: str
) -> None:
    table = groups.table.filter(statistic="total").with_columns(statistic=pl.lit(statistic))
    picture = replace(groups, table=table).plot(statistic)
    chart = picture.chart.to_dict()
    assert chart["title"]["subtitle"][0] == f"{text} with 90 % bands"
    assert picture.alt_text.startswith(text)
    assert chart["layer"][1]["encoding"]["y"]["title"] == axis


def test_chances_of_events_are_no_line(groups: GroupForecasts) -> None:
    chances = groups.table.with_columns(statistic=pl.lit("chance"))
    table = pl.concat([groups.table, chances])
    with pytest.raises(UsageError, match=r"no values of chance to draw. It has: mean, total\."):
        replace(groups, table=table).plot("chance")


@pytest.fixture
def many_groups(groups: GroupForecasts) -> Callable[[int], GroupForecasts]:
    """A table of so many groups, which end together."""

    def make(n_groups: int) -> GroupForecasts:
        rows = [(2023, f"{i}", "mean", 5.0, 0.0, 10.0) for i in range(n_groups)]
        table = pl.DataFrame(rows, groups.table.schema, orient="row")
        return GroupForecasts(table, (), groups.panel, groups.provenance)

    return make


@pytest.mark.parametrize("n_groups", [2, 3])
def test_names_of_lines_that_end_together_are_apart(
    many_groups: Callable[[int], GroupForecasts], n_groups: int
) -> None:
    (drawn,) = many_groups(n_groups).plot().chart.to_dict()["datasets"].values()
    assert [row["place"] for row in drawn] == pytest.approx([5 + 0.7 * i for i in range(n_groups)])


def test_of_many_groups_each_has_a_panel_with_the_others_in_grey(
    many_groups: Callable[[int], GroupForecasts],
) -> None:
    picture = many_groups(10).plot()
    chart = picture.chart.to_dict()
    assert len(chart["concat"]) == 10
    for i, panel in enumerate(chart["concat"]):
        assert panel["title"]["text"] == [f"{i}", "5.00 (0 to 10.0) in 2023"]
        others, band, line = (chart["datasets"][layer["data"]["name"]] for layer in panel["layer"])
        assert len(others) == 10
        assert [row["group"] for row in band] == [row["group"] for row in line] == [f"{i}"]
    assert chart["resolve"]["scale"]["y"] == "shared", "panels can be compared"
    assert "9: 5.00 (0 to 10.0) in 2023" in picture.alt_text


def test_groups_are_drawn_without_values_that_are_suppressed(groups: GroupForecasts) -> None:
    (rows,) = groups.plot("total").chart.to_dict()["datasets"].values()
    assert [(row["year"], row["group"], row["value"]) for row in rows] == [
        (2023, "female", 3.25),
        (2024, "female", 3.25),
        (2023, "male", 4.5),
    ]
    with pytest.raises(UsageError, match=r"no values of gini to draw. It has: mean, total\."):
        groups.plot("gini")
