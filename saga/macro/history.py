"""Observed macro series of Sweden, and jobless persons outside the unemployment rate.

A calendar year influences a forecast only through three series (unemployment, real wage growth,
inflation; fractions), so forecasts can go beyond the panel's years.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated

import numpy as np

from saga.arrays import Floats
from saga.data.facts import Facts, read_shipped_series, shipped_facts
from saga.data.macro_rows import SERIES, MacroRow
from saga.data.origins import last_year
from saga.data.panel import Panel
from saga.errors import UsageError
from saga.files.stored_values import Shape, Year

# Last year of the history of the synthetic register. Later years of a register are drawn, so the
# published series do not describe them.
LAST_REGISTER_YEAR = 2022
_MIN_YEARS = 10  # to which a process can be fitted


@dataclass(frozen=True)
class MacroHistory:
    """Observed series of consecutive years from `first_year`.

    `values` has shape (n_year, 3), in the order of SERIES, in fractions.
    """

    first_year: Year
    values: Annotated[Floats, Shape("year", len(SERIES))]

    @property
    def last_year(self) -> int:
        """Last observed year."""
        return self.first_year + len(self.values) - 1

    def has(self, year: int) -> bool:
        """Whether the series have the year."""
        return self.first_year <= year <= self.last_year

    def of_year(self, year: int) -> Floats:
        """Values (3,) of a year of the series."""
        values: Floats = self.values[year - self.first_year]
        return values

    @classmethod
    def of(cls, rows: Mapping[int, MacroRow]) -> MacroHistory:
        """The history of consecutive years; `rows` must ascend."""
        return cls(min(rows), np.array(list(rows.values()), dtype=np.float64))

    def continued(self, later: MacroHistory) -> MacroHistory:
        """This history, continued with the years of `later` after `last_year`.

        `later` must begin by `last_year` + 1.
        """
        after = later.values[max(0, self.last_year + 1 - later.first_year) :]
        return MacroHistory(self.first_year, np.concatenate([self.values, after]))

    def until(self, year: int) -> MacroHistory:
        """The history up to the end of `year`."""
        return MacroHistory(self.first_year, self.values[: max(0, year - self.first_year + 1)])


def sweden_as_published(
    until: int = LAST_REGISTER_YEAR, facts: Facts | None = None
) -> MacroHistory:
    """Swedish series from 1990 to `until` or the last year with values.

    Fractions; unemployment by the definition of its year. `facts` are by default the shipped ones.
    """
    series = (facts or shipped_facts()).series
    by_year = [series[name].values for name in SERIES]
    first, last = max(map(min, by_year)), min(map(max, by_year))
    rows = [[values[year] for values in by_year] for year in range(first, last + 1)]
    return MacroHistory(first, np.array(rows) / 100).until(until)


def sweden(until: int = LAST_REGISTER_YEAR, facts: Facts | None = None) -> MacroHistory:
    """Swedish series as `sweden_as_published`, but unemployment by the present definition.

    Since 2007 the definition includes jobless persons who look for work while they study or take
    part in a labour-market programme. The earlier definition leaves out a third of the jobless of
    the 1990s: as published, the rate is 9.4 % in 1994 and 8.4 % in 2009, although far more persons
    were out of work in 1994.
    """
    published = sweden_as_published(until, facts)
    values = published.values.copy()
    years = range(published.first_year, published.last_year + 1)
    # Less the value of the present definition, so that years from 2008 on stay as published.
    values[:, SERIES.index("unemployment")] += [
        uncounted_jobless(year) - uncounted_jobless(LAST_REGISTER_YEAR) for year in years
    ]
    return MacroHistory(published.first_year, values)


def histories_of(panel: Panel) -> tuple[MacroHistory, MacroHistory] | None:
    """A panel's macro history as known in its last year, and the series that it moves like.

    None for a panel without macro series. Raises UsageError if it has fewer than ten years.
    """
    meta, until = panel.meta, last_year(panel)
    if meta.macro_rows is not None:
        history = dynamics = MacroHistory.of(meta.macro_rows).until(until)
    elif meta.macro != "sweden":
        return None
    else:
        if meta.simulated:  # the later years of a register have another economy
            until = min(until, LAST_REGISTER_YEAR)
        history = sweden(until, meta.facts)
        # Dynamics fitted to the published series forecast unemployment better.
        dynamics = sweden_as_published(until, meta.facts)
    if len(dynamics.values) < _MIN_YEARS:
        raise UsageError(
            f"The macro series {meta.macro} have {len(dynamics.values)} years up to {until}; "
            f"training needs {_MIN_YEARS}. Leave them out: `macro: none` in the mapping (and "
            "name the currency, if it is not SEK), in Python read_panel(rows, "
            'mapping={"macro": "none"}).'
        )
    return history, dynamics


def uncounted_jobless(year: int) -> float:
    """Joblessness less the published unemployment rate, both shares of the labour force.

    Joblessness counts participants of labour-market programmes, but not students who look for work.
    Until 2006 the difference is positive: mostly such participants, who were not counted. From 2008
    on it is negative: the present definition, which holds since 2007, also counts the students.
    Values are interpolated between the years of the table. It has no row for 2007, so that value is
    between those of 2006 and 2008, and still positive.
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
