"""The past growth of everybody in a panel without macro series.

Persons of a cell, the same ages and levels of columns, are compared between consecutive known years
(a chained index). What all cells have in common is growth, with an error because persons are few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray
from saga.training.group_cells import cells_of, statistic_of

from saga.macro.everybody import Everybody
from saga.macro.wage_trends import CountryWages, country_spreads, growth_trends
from saga.requests import MAX_HORIZON

Floats = NDArray[np.float64]
# Judgements that weigh as much as so many years: the spread of yearly growth where no country is
# known yet, and of the yearly step of log odds of having any earnings.
_POOLED_YEARS, _SHOCK, _ODDS_STEP = 8.0, 0.02, 0.05
# Prior standard deviation of a yearly growth that the network carries on, beside the expected one.
PACE_SD = 0.01


def everybody_of(rows: pl.DataFrame, by: Sequence[str], wages: CountryWages) -> Everybody | None:
    """The growth of cells of persons; None if fewer than three years can be compared.

    The network, which does not know the year, is taken to carry on the mean growth of all years.
    Where cohorts are few, it can hardly be told from what one cohort has beside the next (the error
    comes from leaving out a tenth of the persons), and is shrunk towards the expected growth.

    Args:
        rows: Person-years, as `saga.training.group_cells.person_years` makes them.
        by: Columns of a cell beside the year.
        wages: Wages of countries up to the last year.
    """
    cells = cells_of(rows, ["year", *by])
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
    carried_on = _pace(earnings) * np.arange(1.0, MAX_HORIZON + 1)
    everybody = Everybody.expecting(last, trend, *shocks, carried_on)
    tenth = pl.col("person_id").rank("dense") % 10
    paces = [
        _pace(_steps(cells_of(rows.filter(tenth != k), ["year", *by]), by, "earnings"))
        for k in range(10)
    ]
    share = PACE_SD**2 / (PACE_SD**2 + 9 * np.var(paces))
    implied = share * carried_on + (1 - share) * everybody.expected
    return replace(everybody, implied=implied)


def _pace(steps: Floats) -> float:
    """Mean change of a year."""
    return float(steps[:, 1].sum() / steps[:, 0].sum())


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
        year=pl.col("year").replace_strict(years[1:], years[:-1], default=None),
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
    steps = steps.filter(pl.col("year") > max(broken, default=years[0] - 1))
    return steps.drop("year").to_numpy().astype(np.float64)


def _shock(steps: Floats, pooled: float) -> float:
    """Standard deviation of a year's own shock: changes less their mean and sampling errors."""
    length, step, variance = steps.T
    apart = step - length * _pace(steps)
    square = (apart**2 / length).sum() / (len(steps) - 1) - (variance / length).mean()
    total = len(steps) * max(square, 0.0) + _POOLED_YEARS * pooled**2
    return float(np.sqrt(total / (len(steps) + _POOLED_YEARS)))
