"""The past growth of everybody in a panel without macro series.

Persons of a cell, the same ages and levels of columns, are compared between consecutive known years
(a chained index). What all cells have in common is growth, with an error because persons are few.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray
from saga.training.group_cells import statistic_of

from saga.macro.everybody import Everybody
from saga.macro.wage_trends import CountryWages, country_spreads, growth_trends
from saga.requests import MAX_HORIZON

Floats = NDArray[np.float64]
# Judgements that weigh as much as so many years: the spread of yearly growth where no country is
# known yet, and of the yearly step of log odds of having any earnings.
_POOLED_YEARS, _SHOCK, _ODDS_STEP = 8.0, 0.02, 0.05


def everybody_of(cells: pl.DataFrame, by: Sequence[str], wages: CountryWages) -> Everybody | None:
    """The growth of cells `by` of each year; None if fewer than three years can be compared.

    The network's growth is taken to be the expected one.

    Args:
        cells: As `saga.training.group_cells.cells_of` makes them.
        by: Columns of a cell.
        wages: Wages of countries up to the last year.
    """
    years = cells["year"].unique().sort().to_list()
    earnings, odds = (_steps(cells, by, years, name) for name in ("earnings", "odds"))
    if len(earnings) < 3:
        return None
    length, step, _ = earnings.T
    first = years[-1] - int(length.sum()) + 1
    growth = np.expm1(np.repeat(step / length, length.astype(int)))
    joined = wages.beside(growth, first)
    (trend,) = growth_trends(joined, wages.posterior, [0], len(joined) - 1)
    countries = wages.growth.shape[1]
    typical = float(np.median(country_spreads(wages.growth))) if countries else _SHOCK
    shocks = _shock(earnings, typical), _shock(odds, _ODDS_STEP)
    return Everybody.around_network(years[-1], trend, *shocks, MAX_HORIZON)


def _steps(cells: pl.DataFrame, by: Sequence[str], years: Sequence[int], statistic: str) -> Floats:
    """Years between, mean change and error variance (n, 3) of the last years that can be compared.

    Cells are weighted by their persons, for earnings by what these earn.
    """
    steps: list[tuple[float, float, float]] = []
    for before, after in pairwise(years):
        both = [cells.filter(pl.col("year") == year) for year in (before, after)]
        then, now = (
            each.join(other, on=list(by), how="semi").sort(by) for each, other in (both, both[::-1])
        )
        if then.is_empty():
            steps = []
            continue
        size = then["workers"] * then["mean"] if statistic == "earnings" else then["persons"]
        weight = (size / size.sum()).to_numpy()
        (old, variance), (new, more) = (statistic_of(each, statistic) for each in (then, now))
        change, error = weight @ (new - old), weight**2 @ (variance + more)
        steps.append((after - before, float(change), float(error)))
    return np.array(steps, dtype=np.float64).reshape(-1, 3)


def _shock(steps: Floats, pooled: float) -> float:
    """Standard deviation of a year's own shock: changes less their mean and sampling errors."""
    length, step, variance = steps.T
    apart = step - length * step.sum() / length.sum()
    square = (apart**2 / length).sum() / (len(steps) - 1) - (variance / length).mean()
    total = len(steps) * max(square, 0.0) + _POOLED_YEARS * pooled**2
    return float(np.sqrt(total / (len(steps) + _POOLED_YEARS)))
