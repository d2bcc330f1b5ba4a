"""The observed macro series, and what the definition of unemployment leaves out.

A calendar year enters a forecast only by three series (unemployment, real wage growth, inflation; fractions), so that
years after the panel exist.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
SERIES = ("unemployment", "real_wage_growth", "inflation")

# Sweden 1990-2022, per cent: unemployment as published, real wage growth, CPI inflation. Unemployment: chartingtheglobe.com;
# inflation: SCB, 2006-22 read, before from memory; wages: Mediation Office, from memory, checked against its decade means.
_SWEDEN = """
1990 1.7 -1.1 10.5;1991 3.1 -3.6 9.3;1992 5.6 2.3 2.3;1993 9.1 -1.7 4.6;1994 9.4 0.2 2.2;1995 8.8 0.8 2.5;1996 9.6 5.6 0.5;
1997 9.9 4.0 0.5;1998 8.2 3.8 -0.1;1999 6.7 3.0 0.4;2000 5.6 2.7 1.0;2001 6.0 1.9 2.5;2002 6.1 2.0 2.1;2003 6.7 1.6 1.9;
2004 7.5 2.9 0.4;2005 7.9 2.7 0.4;2006 7.2 1.7 1.4;2007 6.2 1.1 2.2;2008 6.3 0.8 3.5;2009 8.4 3.7 -0.3;2010 8.7 1.3 1.3;
2011 7.9 -0.2 2.6;2012 8.1 2.1 0.9;2013 8.1 2.5 0.0;2014 8.0 3.0 -0.2;2015 7.5 2.4 0.0;2016 7.1 1.4 1.0;2017 6.8 0.5 1.8;
2018 6.4 0.5 2.0;2019 6.9 0.8 1.8;2020 8.5 1.6 0.5;2021 8.9 0.5 2.2;2022 7.5 -5.6 8.4
"""

# Labour-market programmes, share of the labour force [from memory]: jobless, but not counted as unemployed by the definition of before
# 2007. Negative: the present definition counts more than the jobless of the one before (students who look for work).
_PROGRAMME_YEARS = (1989, 1990, 1991, 1992, 1993, 1994, 1996, 1998, 2000, 2003, 2006, 2008)
_PROGRAMMES = (0.012, 0.012, 0.020, 0.036, 0.050, 0.058, 0.052, 0.045, 0.030, 0.022, 0.016, -0.005)


@dataclass(frozen=True)
class MacroHistory:
    """Observed series: `values` of shape (n_year, 3) in the order of SERIES, fractions, for consecutive years from `first_year`."""

    first_year: int
    values: Floats

    @property
    def last_year(self) -> int:
        """Last observed year."""
        return self.first_year + len(self.values) - 1

    def until(self, year: int) -> MacroHistory:
        """The history known at the end of `year`."""
        return MacroHistory(self.first_year, self.values[: max(0, year - self.first_year + 1)])


def sweden_as_published() -> MacroHistory:
    """Swedish series 1990-2022 as fractions, unemployment by the definition of its year."""
    rows = [[float(x) for x in row.split()] for row in _SWEDEN.replace("\n", "").split(";")]
    return MacroHistory(int(rows[0][0]), np.array(rows)[:, 1:] / 100)


def sweden() -> MacroHistory:
    """Swedish series 1990-2022 as fractions, unemployment by the present definition throughout.

    The definition of 2007 counts who is in a labour-market programme and looks for work. By the one before, a third of the jobless of
    the 1990s were not unemployed, and 2009, with fewer out of work, had nearly the unemployment of 1994.
    """
    published = sweden_as_published()
    values = published.values.copy()
    years = range(published.first_year, published.last_year + 1)
    values[:, 0] += [programmes(year) - programmes(published.last_year) for year in years]
    return MacroHistory(published.first_year, values)


def programmes(year: int) -> float:
    """Jobless people whom the unemployment rate published for that year did not count, a share of the labour force."""
    return float(np.interp(year, _PROGRAMME_YEARS, _PROGRAMMES))


def log_wage_index(growth: Floats) -> Floats:
    """Cumulated log real wage growth over the last axis, starting at the first year's growth."""
    return np.cumsum(np.log1p(growth), axis=-1)
