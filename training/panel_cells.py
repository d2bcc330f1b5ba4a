"""Cells of persons of a panel, by year, age and levels of columns, and what all have in common.

In a panel without macro series the past growth of everybody is that of a chained index: persons of
a cell are compared between consecutive known years. What all cells have in common is growth, with
an error because persons are few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from saga.arrays import Floats
from saga.data.panel import Panel
from saga.macro.everybody import Everybody
from saga.macro.wage_trends import CountryWages, country_spreads, growth_trends
from saga.requests import MAX_HORIZON
from saga.small_groups import MIN_PERSONS

# Ages from which a person belongs to the whole, and the years of a band.
FIRST_AGE, LAST_AGE, BAND = 20, 64, 5
# Judgements that weigh as much as so many years: the spread of yearly growth where no country is
# known yet, and of the yearly step of log odds of having any earnings.
_POOLED_YEARS, _SHOCK, _ODDS_STEP = 8.0, 0.02, 0.05


def person_years(panel: Panel, persons: Sequence[str], columns: Sequence[str]) -> pl.DataFrame:
    """Years of known earnings at ages 20 to 64, with the last known levels."""
    age = pl.col("year") - pl.col("birth_year")
    return (
        panel.frame.lazy()
        .select(
            *("person_id", "year", "birth_year", "earnings"),
            *(pl.col(column).forward_fill().over("person_id") for column in columns),
            age=age,
            band=age // BAND,
        )
        .filter(
            age.is_between(FIRST_AGE, LAST_AGE),
            pl.col("earnings").is_not_null(),
            pl.col("person_id").is_in(pl.Series(persons).implode()),
        )
        .drop_nulls(["earnings", *columns])
        .collect()
    )


def cells_of(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Persons, workers, and mean and standard deviation of positive earnings in cells.

    Cells without ten workers are left out. `weight` is a cell's mean number of persons in a year.
    """
    positive = pl.col("earnings").filter(pl.col("earnings") > 0)
    return (
        rows.group_by(by)
        .agg(persons=pl.len(), workers=positive.len(), mean=positive.mean(), sd=positive.std())
        .filter(pl.col("workers") >= MIN_PERSONS)
        .sort(by)
        .with_columns(weight=pl.col("persons").mean().over([c for c in by if c != "year"]))
    )


def statistic_of(cells: pl.DataFrame, statistic: str) -> tuple[Floats, Floats]:
    """Log mean earnings, or log odds of having any, of cells (n,), and the error variances."""
    workers, persons = (cells[name].to_numpy().astype(float) for name in ("workers", "persons"))
    if statistic == "earnings":
        variance = (cells["sd"] / cells["mean"]).to_numpy() ** 2 / workers
        value = cells["mean"].log().to_numpy() + variance / 2  # the log of a mean is too low
    else:
        without = persons - workers + 0.5
        variance, value = 1 / (workers + 0.5) + 1 / without, np.log((workers + 0.5) / without)
    return value, variance


def everybody_of(cells: pl.DataFrame, by: Sequence[str], wages: CountryWages) -> Everybody | None:
    """How the earnings of everybody grow; None if fewer than three changes can be compared.

    The network's own growth is not known here, so it is set to the expected growth.

    Args:
        cells: As `cells_of` makes them.
        by: Columns of a cell beside the year.
        wages: Wages of countries up to the last year.
    """
    earnings, odds = (_steps(cells, by, name) for name in ("earnings", "odds"))
    if len(earnings) < 3:
        return None
    length, step, _ = earnings.T
    last: int = cells["year"].sort()[-1]
    first = last - int(length.sum()) + 1
    growth = np.expm1(np.repeat(step / length, length.astype(int)))
    joined = wages.beside(growth, first)
    (trend,) = growth_trends(joined, wages.posterior, [0], len(joined) - 1)
    countries = wages.growth.shape[1]
    typical = float(np.median(country_spreads(wages.growth))) if countries else _SHOCK
    shocks = _shock(earnings, typical), _shock(odds, _ODDS_STEP)
    everybody = Everybody.expecting(last, trend, *shocks, np.zeros(MAX_HORIZON))
    return replace(everybody, implied=everybody.expected)


def _steps(cells: pl.DataFrame, by: Sequence[str], statistic: str) -> Floats:
    """Years between, mean change and error variance (n, 3) of the last years that can be compared.

    Cells are weighted by their persons, for earnings by what these earn.
    """
    years = cells["year"].unique().sort().to_list()
    value, variance = statistic_of(cells, statistic)
    size = pl.col("workers") * pl.col("mean") if statistic == "earnings" else pl.col("persons")
    then = cells.select("year", *by, size=size, value=value, variance=variance)
    now = then.drop("size").with_columns(
        after=pl.col("year"),
        year=pl.col("year").replace_strict(
            years[1:], years[:-1], default=None, return_dtype=cells.schema["year"]
        ),
    )
    weight = pl.col("size") / pl.col("size").sum()
    change = pl.col("value_right") - pl.col("value")
    steps = (
        then.join(now, on=["year", *by])
        .group_by("year")
        .agg(
            length=(pl.col("after") - pl.col("year")).first(),
            change=(weight * change).sum(),
            error=(weight**2 * (pl.col("variance") + pl.col("variance_right"))).sum(),
        )
        .sort("year")
    )
    broken = [year for year in years[:-1] if year not in set(steps["year"])]
    if broken:
        steps = steps.filter(pl.col("year") > max(broken))
    return steps.drop("year").to_numpy().astype(np.float64)


def _shock(steps: Floats, pooled: float) -> float:
    """Standard deviation of a year's own shock: changes less their mean and sampling errors."""
    length, step, variance = steps.T
    apart = step - length * step.sum() / length.sum()
    square = (apart**2 / length).sum() / (len(steps) - 1) - (variance / length).mean()
    total = len(steps) * max(square, 0.0) + _POOLED_YEARS * pooled**2
    return float(np.sqrt(total / (len(steps) + _POOLED_YEARS)))
