"""Forecasts from changed records: differences of published forecasts, in money."""

from __future__ import annotations

import polars as pl
import pytest
from saga.evaluation.explain.changed_records import forecast_changes

from saga.data.panel import Panel
from saga.data.reading import read_panel
from saga.forecaster import Forecaster
from saga.requests import ForecastRequest

RECORD = """person_id,year,birth_year,earnings,education_level
p,2014,1980,280000,upper_secondary
p,2015,1980,281000,upper_secondary
p,2016,1980,290000,upper_secondary
p,2017,1980,295000,upper_secondary
p,2018,1980,300000,upper_secondary
p,2019,1980,0,upper_secondary
p,2021,1980,310000,upper_secondary
p,2022,1980,320000,upper_secondary
"""


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Panel:
    path = tmp_path_factory.mktemp("record") / "record.csv"
    path.write_text(RECORD)
    return read_panel(path, prices=2022)


def forecast_with(forecaster: Forecaster, record: Panel, **columns: pl.Expr) -> tuple[float, float]:
    """Mean and chance of no earnings two years ahead, from a record changed by hand."""
    changed = record.with_frame(record.frame.with_columns(**columns))
    table = forecaster.forecast(changed, ForecastRequest([2])).table
    return table.select("mean", "p_zero").row(0)


def test_each_change_is_a_forecast_of_the_record_changed_by_hand(
    forecaster: Forecaster, record: Panel
) -> None:
    changes = {each.change: each for each in forecast_changes(forecaster, record, 2)}
    earnings = pl.col("earnings")
    unknown = pl.lit(None, pl.Float64)
    by_hand: dict[str, dict[str, pl.Expr]] = {
        "the earnings of 2022": {"earnings": pl.when(pl.col("year") != 2022).then(earnings)},
        "all earnings up to 2016": {"earnings": pl.when(pl.col("year") > 2016).then(earnings)},
        "the column education level": {"education_level": unknown.cast(pl.String)},
        "no work in 2022": {
            "earnings": pl.when(pl.col("year") != 2022).then(earnings).otherwise(0.0)
        },
        "work in 2019, with earnings as in the nearest year of work": {
            "earnings": pl.when(pl.col("year") == 2019).then(300_000.0).otherwise(earnings)
        },
        "compulsory education": {"education_level": pl.lit("compulsory")},
    }
    mean, p_zero = forecast_with(forecaster, record)
    for words, columns in by_hand.items():
        each = changes[words]
        expected = forecast_with(forecaster, record, **columns)
        assert (each.mean, each.p_zero) == pytest.approx(expected, rel=1e-4), words
        assert each.mean_effect == pytest.approx(expected[0] - mean, abs=2)
        assert each.p_zero_effect == pytest.approx(expected[1] - p_zero, abs=1e-4)
        assert each.hidden == words.startswith(("the earnings", "all", "the column"))


def test_a_record_of_one_year_without_work_has_nothing_to_compare(
    forecaster: Forecaster, record: Panel
) -> None:
    alone = record.with_frame(
        record.frame.filter(pl.col("year") == 2022).with_columns(
            earnings=pl.lit(0.0), education_level=pl.lit(None, pl.String)
        )
    )
    assert forecast_changes(forecaster, alone, 1) == ()


def test_a_year_above_64_has_no_published_forecast_to_compare(
    forecaster: Forecaster, record: Panel
) -> None:
    older = record.with_frame(record.frame.with_columns(birth_year=pl.lit(1959, pl.Int32)))
    assert forecast_changes(forecaster, older, 3) == ()
