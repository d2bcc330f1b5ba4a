"""Observed macro series of Sweden, and jobless persons outside the unemployment rate.

A calendar year influences a forecast only through three series (unemployment, real wage growth,
inflation; fractions), so forecasts can go beyond the panel's years.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from saga.data.macro_rows import SERIES, MacroRow
from saga.data.yearly_series import read_shipped_series

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class MacroHistory:
    """Observed series of consecutive years from `first_year`.

    `values` has shape (n_year, 3), in the order of SERIES, in fractions.
    """

    first_year: int
    values: Floats

    @property
    def last_year(self) -> int:
        """Last observed year."""
        return self.first_year + len(self.values) - 1

    @classmethod
    def of(cls, rows: Mapping[int, MacroRow]) -> MacroHistory:
        """The history of consecutive years; `rows` must ascend."""
        return cls(min(rows), np.array(list(rows.values()), dtype=np.float64))

    def until(self, year: int) -> MacroHistory:
        """The history up to the end of `year`."""
        return MacroHistory(self.first_year, self.values[: max(0, year - self.first_year + 1)])


@cache
def sweden_as_published() -> MacroHistory:
    """Swedish series 1990-2022 as fractions, unemployment by the definition of its year."""
    table = read_shipped_series("macro_sweden")
    columns = [list(table[name].values.values()) for name in SERIES]
    return MacroHistory(min(table[SERIES[0]].values), np.column_stack(columns) / 100)


def sweden() -> MacroHistory:
    """Swedish series 1990-2022 as fractions, unemployment by the present definition.

    Since 2007 the definition includes jobless persons who study or are in a labour-market programme
    and look for work. The definition before 2007 leaves out a third of the jobless of the 1990s. By
    the definitions of their years, the rate is 9.4 % in 1994 and 8.4 % in 2009, although far more
    persons were out of work in 1994.
    """
    published = sweden_as_published()
    values = published.values.copy()
    years = range(published.first_year, published.last_year + 1)
    values[:, SERIES.index("unemployment")] += [
        uncounted_jobless(year) - uncounted_jobless(published.last_year) for year in years
    ]
    return MacroHistory(published.first_year, values)


def uncounted_jobless(year: int) -> float:
    """Joblessness less the published unemployment rate, share of the labour force.

    Before 2008 these are mostly persons in labour-market programmes. Interpolated between the years
    of the table. Negative from 2008 on: the present definition also counts students who look for
    work.
    """
    shares = _uncounted_shares()
    return float(np.interp(year, list(shares), list(shares.values())))


@cache
def _uncounted_shares() -> Mapping[int, float]:
    table = read_shipped_series("labour_market_programmes_sweden", gaps=True)
    return table["labour_market_programmes"].values


def log_wage_index(growth: Floats) -> Floats:
    """Cumulated log real wage growth over the last axis, starting at the first year's growth."""
    return np.cumsum(np.log1p(growth), axis=-1)
